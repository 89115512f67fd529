# SPDX-License-Identifier: Apache-2.0
"""Which calls on the CPU are ours without being asked for: those in which PyTorch's own kernel is not faster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.nn import functional
from torch_calls import Hits, fresh, same

import pybaracuda
import pybaracuda.torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
PADS = {
    "constant_pad_nd": ("constant", (2, 1, -1, 3)),
    "reflection_pad1d": ("reflect", (2, 1)),
    "reflection_pad2d": ("reflect", (2, 1, 0, 3)),
    "reflection_pad3d": ("reflect", (2, 1, 0, 3, 1, 1)),
    "replication_pad1d": ("replicate", (2, 5)),
    "replication_pad2d": ("replicate", (2, 1, 0, 3)),
    "replication_pad3d": ("replicate", (2, 1, 0, 3, 1, 9)),
}

CALLS = """
import json
import torch
import pybaracuda.torch
from torch.nn import functional

pybaracuda.torch.install()

def outcome(call):
    before = {(line.operator, line.device): line for line in pybaracuda.torch.report().lines}
    call()
    found = {}
    for line in pybaracuda.torch.report().lines:
        old = before.get((line.operator, line.device))
        if line.ours > (old.ours if old else 0):
            found[line.operator] = "ours"
        for reason, count in line.fallbacks.items():
            if count > (old.fallbacks.get(reason, 0) if old else 0):
                found[line.operator] = reason
    return found

ids = torch.tensor([0, 2, 1, 2])
def rows(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)

def padded(mode, axes=2):
    image = rows(1, 2, *(4,) * axes).requires_grad_()
    functional.pad(image, (1, 1) * axes, mode).sum().backward()

def boxed():
    try:
        import torchvision.ops
        torchvision.extension._assert_has_ops()
    except (ImportError, RuntimeError):
        return
    image = rows(1, 1, 4, 4).requires_grad_()
    place = torch.tensor([[0.0, 0, 0, 3, 3]])
    for operator in (torchvision.ops.roi_align, torchvision.ops.roi_pool):
        operator(image, place, 2).sum().backward()

def resized(mode, format=torch.contiguous_format):
    image = rows(1, 2, 4, 4).to(memory_format=format).requires_grad_()
    output = functional.interpolate(image, scale_factor=2, mode=mode)
    output.backward(torch.ones_like(output))

def sampled():
    image = rows(1, 2, 4, 4).requires_grad_()
    functional.grid_sample(image, rows(1, 3, 3, 2) / 2, align_corners=False).sum().backward()

def averaged(image):
    functional.avg_pool2d(image.requires_grad_(), 2).sum().backward()

def placed(dtype):
    image, samples = rows(1, 4, 128, 128, dtype=dtype).requires_grad_(), rows(1, 4, 2, dtype=dtype) / 2
    functional.fractional_max_pool2d(image, 2, (64, 64), _random_samples=samples).sum().backward()

print(json.dumps({
    "boxes": outcome(boxed),
    "first": outcome(lambda: rows(3, 2).index_add(0, ids, rows(4, 2))),
    "one before": outcome(lambda: rows(1, 3, 2).index_add(1, ids, rows(1, 4, 2))),
    "second": outcome(lambda: rows(2, 3).index_add(1, ids, rows(2, 4))),
    "half": outcome(lambda: rows(3, 2, dtype=torch.float16).index_add(0, ids, rows(4, 2, dtype=torch.float16))),
    "scatter": outcome(lambda: rows(3, 2).scatter_reduce(0, ids[:, None].expand(4, 2), rows(4, 2), "mean")),
    "scatter second": outcome(lambda: rows(2, 3).scatter_add(1, ids.expand(2, 4), rows(2, 4))),
    "constant": outcome(lambda: padded("constant")),
    "reflect": outcome(lambda: padded("reflect")),
    "reflect 1d": outcome(lambda: padded("reflect", 1)),
    "replicate 3d": outcome(lambda: padded("replicate", 3)),
    "sample": outcome(sampled),
    "bilinear": outcome(lambda: resized("bilinear")),
    "nearest": outcome(lambda: resized("nearest")),
    "bilinear last": outcome(lambda: resized("bilinear", torch.channels_last)),
    "bicubic last": outcome(lambda: resized("bicubic", torch.channels_last)),
    "means": outcome(lambda: averaged(rows(1, 4, 128, 128))),
    "few means": outcome(lambda: averaged(rows(1, 4, 8, 8))),
    "placed": outcome(lambda: placed(torch.float32)),
    "half placed": outcome(lambda: placed(torch.float16)),
    "last": outcome(lambda: averaged(rows(1, 4, 128, 128).to(memory_format=torch.channels_last))),
}))
"""
AXIS = "another axis than the first on the CPU"
BOXES = [f"torchvision::{name}" for name in ("roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward")]
BILINEAR = ("aten::upsample_bilinear2d", "aten::upsample_bilinear2d_backward")
MEANS = ("aten::avg_pool2d", "aten::avg_pool2d_backward")
PLACED = ("aten::fractional_max_pool2d", "aten::fractional_max_pool2d_backward")
LEFT_OR_TAKEN = {
    "boxes": dict.fromkeys(BOXES if available("torchvision") else [], "ours"),
    "first": {"aten::index_add": "ours"},
    "one before": {"aten::index_add": "ours"},
    "second": {"aten::index_add": AXIS},
    "half": {"aten::index_add": "16 bits on the CPU"},
    "scatter": {"aten::scatter_reduce.two": "ours"},
    "scatter second": {"aten::scatter_add": AXIS},
    "constant": {},
    "reflect": {"aten::reflection_pad2d_backward": "ours"},
    "reflect 1d": {"aten::reflection_pad1d": "ours", "aten::reflection_pad1d_backward": "ours"},
    "replicate 3d": {"aten::replication_pad3d_backward": "ours"},
    "sample": {"aten::grid_sampler_2d": "ours", "aten::grid_sampler_2d_backward": "ours"},
    "bilinear": dict.fromkeys(BILINEAR, "ours"),
    "nearest": {},
    "bilinear last": dict.fromkeys(BILINEAR, "channels last"),
    "bicubic last": {"aten::upsample_bicubic2d": "ours", "aten::upsample_bicubic2d_backward": "ours"},
    "means": dict.fromkeys(MEANS, "ours"),
    "few means": dict.fromkeys(MEANS, "few elements on the CPU"),
    "placed": dict.fromkeys(PLACED, "ours"),
    "half placed": dict.fromkeys(PLACED, "16 bits on the CPU"),
    "last": dict.fromkeys(MEANS, "channels last"),
}


COMPILED = """
import json
import torch
import pybaracuda.torch

pybaracuda.torch.install()
torch.manual_seed({seed})
ids = torch.randint(0, 7, (400,))

def added(total, rows):
    return total.index_add(1, ids, rows)

def scattered(total, rows):
    return total.scatter_reduce(1, ids.expand(5, 400), rows, "sum")

for dtype in (torch.float32, torch.bfloat16):
    total, rows = torch.randn(5, 7).to(dtype), torch.randn(5, 400).to(dtype)
    for call in (added, scattered):
        assert torch.equal(torch.compile(call, fullgraph=True)(total, rows), call(total, rows)), (call, dtype)
lines = [line for line in pybaracuda.torch.report().lines if line.operator in {operators}]
assert all(line.calls == 4 and not line.ours for line in lines) and len(lines) == 2, lines
"""


def outcomes(wish: str | None) -> dict[str, dict[str, str]]:
    """What became of each call in a process of its own."""
    found: dict[str, dict[str, str]] = json.loads(run(CALLS, wish))
    return found


def run(code: str, wish: str | None) -> str:
    """What a process of its own prints."""
    environ = {**os.environ, "PYTHONPATH": str(Path(pybaracuda.__file__).parents[1])}
    environ.pop("PYBARACUDA_TORCH_CPU", None)
    if wish is not None:
        environ["PYBARACUDA_TORCH_CPU"] = wish
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("wish", [None, "", "never"])
def test_pytorch_keeps_what_it_does_faster(wish: str | None) -> None:
    found = outcomes(wish)
    assert found.keys() == LEFT_OR_TAKEN.keys()
    for call, expected in LEFT_OR_TAKEN.items():
        # What is left to PyTorch may call another operator, which is left to it for the same reason.
        inner = {name: reason for name, reason in found[call].items() if name not in expected}
        assert {name: found[call].get(name) for name in expected} == expected
        assert set(inner.values()) <= set(expected.values()) - {"ours"}, (call, inner)


def test_all_calls_are_ours_where_that_is_asked_for() -> None:
    found = outcomes("always")
    assert {value for each in found.values() for value in each.values()} == {"ours"}
    assert found["constant"] == {"aten::constant_pad_nd": "ours"}
    assert "aten::reflection_pad2d" in found["reflect"]


def test_a_compiled_program_has_the_eager_bits_where_pytorch_keeps_a_call(seed: list[int]) -> None:
    operators = {"aten::index_add", "aten::scatter_reduce.two"}
    run(COMPILED.format(seed=seed[0], operators=operators), None)


@pytest.mark.parametrize("name", list(PADS))
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_padding_has_pytorchs_bits(name: str, dtype: Any, rng: np.random.Generator) -> None:
    """So that it may be left to PyTorch; NaNs, infinities and zeros with a sign among the elements."""
    mode, pads = PADS[name]
    image = fresh(rng, (2, 3, 4, 5, 6)[: 2 + max(len(pads) // 2, 1)], dtype, "cpu")
    flat = image.reshape(-1)
    flat[:4] = torch.tensor([torch.nan, torch.inf, -0.0, -torch.nan], dtype=dtype)
    plain = functional.pad(image, pads, mode)
    with pybaracuda.torch.install(), Hits(f"aten::{name}"):
        mine = functional.pad(image, pads, mode)
    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[image.element_size()]
    assert same(mine.view(width), plain.view(width))
