# SPDX-License-Identifier: Apache-2.0
"""Losses of classification through PyTorch: what install() takes, and what the functions have of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.nn import functional

import pybaracuda
import pybaracuda.torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
SHAPES = ((6, 5), (2, 5, 3, 4))
SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()


def drawn(shape: tuple[int, ...], device: str, dtype: Any) -> tuple[Any, Any, Any]:
    """Log-probabilities, targets of which some are ignored, and weights."""
    logits = torch.randn(shape, device=device).log_softmax(1).to(dtype)
    target = torch.randint(-1, shape[1], (shape[0], *shape[2:]), device=device)
    return logits.requires_grad_(), target, (torch.rand(shape[1], device=device) + 0.5).to(dtype)


@FLOAT
@SHAPE
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_installed_calls_have_the_array_functions_bits(
    shape: tuple[int, ...], reduction: str, dtype: Any, device: str
) -> None:
    logits, target, weight = drawn(shape, device, dtype)
    with pybaracuda.torch.install(devices=device):
        output = functional.nll_loss(logits, target, weight, ignore_index=-1, reduction=reduction)
        upstream = torch.randn_like(output)
        (gradient,) = torch.autograd.grad(output, logits, upstream)
    loss, total, _ = pybaracuda.nll_loss(logits.detach(), target, weight, -1, reduction, return_sums=True)
    assert torch.equal(output, loss)
    # PyTorch keeps the sum of weights in the input's dtype.
    total = total.to(dtype).to(total.dtype)
    slopes = pybaracuda.nll_loss_backward(upstream, target, total, shape, weight, -1, reduction)
    assert torch.equal(gradient, slopes)


@SHAPE
def test_overloads_with_outputs(shape: tuple[int, ...], device: str) -> None:
    logits, target, weight = drawn(shape, device, torch.float32)
    name = "nll_loss2d" if len(shape) == 4 else "nll_loss"
    forward, backward = (getattr(torch.ops.aten, f"{name}_{which}") for which in ("forward", "backward"))
    detached, upstream = logits.detach(), torch.ones((), device=device)
    with pybaracuda.torch.install(devices=device):
        wanted = forward(detached, target, weight, 1, -1)
        outputs = torch.empty(0, device=device), torch.empty(0, device=device)
        forward.output(detached, target, weight, 1, -1, output=outputs[0], total_weight=outputs[1])
        slopes = backward(upstream, detached, target, weight, 1, -1, wanted[1])
        given = torch.zeros_like(detached)
        backward.grad_input(upstream, detached, target, weight, 1, -1, wanted[1], grad_input=given)
    for found, each in zip((*outputs, given), (*wanted, slopes), strict=True):
        assert torch.equal(found, each)
    lines = {line.operator: line.ours for line in pybaracuda.torch.report().lines if line.device == device}
    assert all(
        lines[f"aten::{name}_{each}"] for each in ("forward", "forward.output", "backward", "backward.grad_input")
    )


@SHAPE
def test_a_bad_target_is_an_error_on_the_cpu(shape: tuple[int, ...]) -> None:
    logits, target, _ = drawn(shape, "cpu", torch.float32)
    target[-1] = 7
    with pybaracuda.torch.install(devices="cpu"), pytest.raises(IndexError, match=r"Target 7 is out of bounds\."):
        functional.nll_loss(logits, target, ignore_index=-1)
    for function in (pybaracuda.torch.nll_loss, pybaracuda.torch.cross_entropy):
        with pytest.raises(IndexError, match=r"Target 7 is out of bounds\."):
            function(logits, target, ignore_index=-1)
        assert torch.isfinite(function(logits, target.clamp(max=4), ignore_index=-1))


def test_a_bad_target_is_counted_on_a_gpu() -> None:
    if not (pybaracuda.backend_available("cuda") and torch.cuda.is_available()):
        pytest.skip("no CUDA")
    logits, target, _ = drawn((4, 5, 6, 7), "cuda", torch.float32)
    pybaracuda.torch.check_indices()
    target[0] = 5
    with pybaracuda.torch.install(devices="cuda"):
        functional.cross_entropy(logits, target, ignore_index=-1)
    pybaracuda.torch.cross_entropy(logits, target, ignore_index=-1)
    with pytest.raises(IndexError, match="dropped: 84 on cuda:0"):
        pybaracuda.torch.check_indices()
    with pybaracuda.torch.install(devices="cuda", deterministic=True):
        functional.cross_entropy(logits, target.clamp(max=4), ignore_index=-1).backward()


def test_what_is_left_to_pytorch() -> None:
    logits, target, weight = drawn((6, 5), "cpu", torch.float32)
    with pybaracuda.torch.install(devices="cpu"):
        alone = torch.ops.aten.nll_loss_forward(logits[0].detach(), torch.tensor(1), weight, 0, -100)
        assert alone[1] == weight[1]
        with pytest.raises(RuntimeError, match=r"scalar type Long|Long or Byte"):
            functional.nll_loss(logits, target.int(), ignore_index=-1)
        empty = functional.nll_loss(logits[:0], target[:0])
    assert empty.isnan()


def test_probabilities_are_pytorchs() -> None:
    logits = torch.randn(4, 5, requires_grad=True)
    shares = torch.rand(4, 5).softmax(1)
    found = pybaracuda.torch.cross_entropy(logits, shares, label_smoothing=0.1)
    assert torch.equal(found, functional.cross_entropy(logits, shares, label_smoothing=0.1))
    with pytest.raises(ValueError, match="return_sums"):
        pybaracuda.torch.cross_entropy(logits, shares, return_sums=True)


def test_sums_on_request(device: str) -> None:
    logits, target, weight = drawn((2, 5, 3, 4), device, torch.float32)
    for name in ("nll_loss", "cross_entropy"):
        found = getattr(pybaracuda.torch, name)(logits, target, weight, -1, return_sums=True)
        wanted = getattr(pybaracuda, name)(logits.detach(), target, weight, -1, return_sums=True)
        assert [each.requires_grad for each in found] == [True, *[False] * (len(found) - 1)]
        for one, other in zip(found, wanted, strict=True):
            assert torch.equal(one, other)


def test_third_derivative_is_refused() -> None:
    logits, target, _ = drawn((6, 5), "cpu", torch.float64)
    (first,) = torch.autograd.grad(pybaracuda.torch.cross_entropy(logits, target, None, -1), logits, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), logits, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivative"):
        torch.autograd.grad(second.sum(), logits)
