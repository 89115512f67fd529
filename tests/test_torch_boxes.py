# SPDX-License-Identifier: Apache-2.0
"""What install() makes of torchvision's operators of boxes, called as the dispatcher does, without torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch_calls import fresh

import pybaracuda
import pybaracuda.torch
from pybaracuda.torch._route import ROUTES

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
# A scale, bins along y and x, and of aligned regions samples of a bin along an axis.
OPTIONS = {"ps_roi_align": (0.5, 2, 3, 2), "ps_roi_pool": (0.5, 2, 3)}
OPERATOR = pytest.mark.parametrize("name", list(OPTIONS))
MAPS = (2, 12, 9, 11)


def drawn(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, Any]:
    """Maps, and boxes in them or around them, whose coordinates every dtype has."""
    corners = rng.integers(-8, 40, (7, 2)) / 2
    rows = np.concatenate([rng.integers(0, 2, (7, 1)), corners, corners + rng.integers(-2, 30, (7, 2)) / 2], axis=1)
    return fresh(rng, MAPS, dtype, device), torch.from_numpy(rows).to(device, dtype)


@FLOAT
@OPERATOR
def test_position_sensitive_regions(name: str, dtype: Any, device: str, rng: np.random.Generator) -> None:
    maps, boxes = drawn(rng, dtype, device)
    scale, height, width, *ratio = OPTIONS[name]
    forward, backward = ROUTES[f"torchvision::{name}"], ROUTES[f"torchvision::_{name}_backward"]
    wide = boxes if dtype == torch.float64 else boxes.float()
    wanted = getattr(pybaracuda, name)(maps, wide, (height, width), scale, *ratio)
    assert forward.refusal(maps, boxes, *OPTIONS[name]) == ""
    output, mapping = forward.run(maps, boxes, *OPTIONS[name])
    assert torch.equal(output, wanted)
    assert output.dtype == dtype
    # Bin (i, j) of channel c is that of map (c PH + i) PW + j.
    channels = torch.arange(12, device=device, dtype=torch.int32).reshape(2, height, width)
    assert torch.equal(mapping, channels.expand(7, 2, height, width))
    gradient = fresh(rng, tuple(output.shape), dtype, device)
    arguments = (gradient, boxes, mapping, *OPTIONS[name], *MAPS)
    assert backward.refusal(*arguments) == ""
    slopes = getattr(pybaracuda, f"{name}_backward")(gradient, wide, MAPS, scale, *ratio)
    assert torch.equal(backward.run(*arguments), slopes)


@OPERATOR
def test_what_position_sensitive_regions_leave_to_torchvision(name: str, device: str, rng: np.random.Generator) -> None:
    maps, boxes = drawn(rng, torch.float32, device)
    refusal = ROUTES[f"torchvision::{name}"].refusal
    options = OPTIONS[name]
    assert refusal(maps, boxes.double(), *options) == "operands of several dtypes"
    assert refusal(maps.int(), boxes.int(), *options) == "dtype torch.int32"
    assert refusal(maps, boxes[:, 1:], *options) == "shapes that do not fit"
    assert refusal(maps[0], boxes, *options) == "shapes that do not fit"
    assert refusal(maps[:, :11], boxes, *options) != ""
    assert refusal(maps[:0], boxes, *options) == "an empty tensor"


@FLOAT
def test_suppression(dtype: Any, device: str, rng: np.random.Generator) -> None:
    low = rng.integers(0, 60, (300, 2))
    boxes = torch.from_numpy(np.concatenate([low, low + rng.integers(0, 30, (300, 2))], axis=1)).to(device, dtype)
    scores = torch.from_numpy(rng.integers(0, 64, 300) / 64).to(device, dtype)  # some are equal
    route = ROUTES["torchvision::nms"]
    assert route.refusal(boxes, scores, 0.4) == ""
    found = route.run(boxes, scores, 0.4)
    keep, count = pybaracuda.nms(boxes, scores, 0.4)
    assert found.dtype == torch.int64
    assert torch.equal(found, keep[: int(count[0])].long())
    assert 0 < len(found) < 300


def test_what_suppression_leaves_to_torchvision(device: str) -> None:
    boxes, scores = torch.zeros(3, 4, device=device), torch.zeros(3, device=device)
    refusal = ROUTES["torchvision::nms"].refusal
    assert refusal(boxes, scores.double(), 0.5) == "operands of several dtypes"
    assert refusal(boxes[:, :3], scores, 0.5) == "shapes that do not fit"
    assert refusal(boxes, scores[:2], 0.5) == "shapes that do not fit"
    assert refusal(boxes.int(), scores.int(), 0.5) == "dtype torch.int32"
    assert refusal(boxes[:0], scores[:0], 0.5) == "an empty tensor"
