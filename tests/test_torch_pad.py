# SPDX-License-Identifier: Apache-2.0
"""Pads of tensors by elements that are there, through install(): pads of any sign, beside PyTorch's own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.nn import functional
from torch_calls import all_ours, messages

import pybaracuda.torch

NAMES = {"reflect": "reflection", "replicate": "replication"}


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("mode", list(NAMES))
def test_pads_of_any_sign(
    mode: str, axes: int, layout: torch.memory_format, device: str, rng: np.random.Generator
) -> None:
    """What is cut off is cut off last: a reflection reaches into it. Small whole numbers have exact sums."""
    if layout == torch.channels_last and axes != 2:
        return
    operators = [f"aten::{NAMES[mode]}_pad{axes}d", f"aten::{NAMES[mode]}_pad{axes}d_backward"]
    tried = 0
    before = all_ours(device)
    while tried < 40:
        extents = rng.integers(2, 7, axes)
        widest = np.repeat(extents[::-1] - 1 if mode == "reflect" else extents[::-1] + 3, 2)
        pads = rng.integers(-5, widest, endpoint=True)
        if min(extents[::-1] + pads[::2] + pads[1::2]) < 1:
            continue
        tried += 1
        drawn = rng.integers(-8, 9, (2, 3, *extents)).astype(np.float32)
        x = torch.from_numpy(drawn).to(device).contiguous(memory_format=layout).requires_grad_()
        plain = functional.pad(x, pads.tolist(), mode)
        weights = torch.from_numpy(rng.integers(-8, 9, plain.shape).astype(np.float32)).to(device)
        with pybaracuda.torch.install(devices=device):
            found = functional.pad(x, pads.tolist(), mode)
            (gradient,) = torch.autograd.grad(found, x, weights)
        (slopes,) = torch.autograd.grad(plain, x, weights)
        assert torch.equal(found, plain), pads
        assert torch.equal(gradient, slopes), pads
        # On CUDA PyTorch's reflections and repetitions of channels last are not always.
        is_as_given = device == "cuda"
        assert found.is_contiguous(memory_format=layout) == (is_as_given or plain.is_contiguous(memory_format=layout))
    after = all_ours(device)
    assert [after.get(each, 0) - before.get(each, 0) for each in operators] == [40, 40]


@pytest.mark.parametrize("mode", list(NAMES))
def test_errors_stay_pytorchs(mode: str, device: str) -> None:
    """Less than nothing is left, or a reflection is wider than the input."""
    x = torch.zeros(1, 2, 3, 4, device=device)
    for pads in ((-5, 0, 0, 0), *([(4, -1, 0, 0)] if mode == "reflect" else [])):
        plain, installed = messages(partial(functional.pad, x, pads, mode), RuntimeError, device)
        assert plain == installed
