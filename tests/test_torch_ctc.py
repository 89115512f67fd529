# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification through PyTorch: what install() takes, and what the function has of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.nn import functional

import pybaracuda.torch
from pybaracuda.torch import _ctc
from pybaracuda.torch._route import ROUTES

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
WIDE = pytest.mark.parametrize("dtype", FLOATS[:2], ids=lambda dtype: str(dtype).removeprefix("torch."))
REDUCTION = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
JOINED = pytest.mark.parametrize("joined", [False, True])


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    pybaracuda.torch.uninstall()


def drawn(device: str, dtype: Any, joined: bool = False) -> tuple[Any, Any, Any, Any]:
    """Five sequences of up to 30 steps and 8 labels, of which one has no alignment."""
    log_probs = torch.randn((30, 5, 11), device=device, dtype=torch.float64).log_softmax(2).to(dtype)
    targets = torch.randint(1, 11, (5, 8), device=device)
    steps, labels = torch.tensor([30, 29, 20, 3, 16]), torch.tensor([8, 0, 5, 7, 3])
    if joined:
        targets = torch.cat([row[:count] for row, count in zip(targets, labels.tolist(), strict=True)])
    return log_probs.requires_grad_(), targets, steps, labels


@WIDE
@REDUCTION
@JOINED
@pytest.mark.parametrize("as_lists", [False, True])
def test_installed_calls_answer_as_the_function_does(
    as_lists: bool, joined: bool, reduction: str, dtype: Any, device: str
) -> None:
    log_probs, targets, steps, labels = drawn(device, dtype, joined)
    lengths = (steps.tolist(), labels.tolist()) if as_lists else (steps, labels)
    options: dict[str, Any] = {"reduction": reduction, "zero_infinity": True}
    with pybaracuda.torch.install(devices=device):
        output = functional.ctc_loss(log_probs, targets, *lengths, **options)
        upstream = torch.randn_like(output)
        (gradient,) = torch.autograd.grad(output, log_probs, upstream)
    ours = pybaracuda.torch.ctc_loss(log_probs, targets, *lengths, **options)
    (slopes,) = torch.autograd.grad(ours, log_probs, upstream)
    # On the CPU so few elements are PyTorch's.
    if reduction == "none" and device == "cuda":
        assert torch.equal(output, ours)
        assert torch.equal(gradient, slopes)
    torch.testing.assert_close(output, ours)
    torch.testing.assert_close(gradient, slopes)
    assert not gradient[:, 3].any()  # no alignment


@FLOAT
@REDUCTION
@JOINED
def test_the_function_answers_as_pytorch_does(joined: bool, reduction: str, dtype: Any, device: str) -> None:
    """PyTorch's own kernel in float64: losses are rounded to the dtype, gradients too."""
    log_probs, targets, steps, labels = drawn(device, dtype, joined)
    steps[3] = 20
    ours = pybaracuda.torch.ctc_loss(log_probs, targets, steps, labels, reduction=reduction)
    wide = log_probs.detach().cpu().double().requires_grad_()
    theirs = functional.ctc_loss(wide, targets.cpu(), steps, labels, reduction=reduction)
    assert (ours.dtype, ours.shape) == (dtype, theirs.shape)
    upstream = torch.ones_like(ours)
    (slopes,) = torch.autograd.grad(ours, log_probs, upstream)
    (expected,) = torch.autograd.grad(theirs, wide, upstream.cpu().double())
    exact = torch.finfo(dtype).eps
    assert ((ours.cpu().double() - theirs).abs() <= 64 * max(exact, 2.0**-52) * theirs.abs() + 1e-300).all()
    # Logarithms up to some hundred, whose roundings an exponential passes on.
    assert (slopes.cpu().double() - expected).abs().max() <= 512 * max(exact, 2.0**-52)


def test_one_sequence_without_an_axis(device: str) -> None:
    log_probs, targets, steps, labels = drawn(device, torch.float64)
    alone = pybaracuda.torch.ctc_loss(log_probs[:, 0], targets[0], 30, 8, reduction="none")
    every = pybaracuda.torch.ctc_loss(log_probs, targets, steps, labels, reduction="none")
    assert alone.shape == ()
    assert torch.equal(alone, every[0])


def test_second_derivatives_end_here(device: str) -> None:
    log_probs, targets, steps, labels = drawn(device, torch.float64)
    loss = pybaracuda.torch.ctc_loss(log_probs, targets, steps, labels, reduction="sum", zero_infinity=True)
    (slopes,) = torch.autograd.grad(loss, log_probs, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        slopes.sum().backward()


def test_errors_stay_pytorchs(device: str) -> None:
    log_probs, targets, steps, labels = drawn(device, torch.float32)
    with pybaracuda.torch.install(devices=device):
        for wrong in ((steps + 1, labels), (steps, labels + 1), (steps[:2], labels)):
            with pytest.raises(RuntimeError):
                functional.ctc_loss(log_probs, targets, *wrong)


def test_a_bad_label_is_a_nan(device: str) -> None:
    log_probs, targets, steps, labels = drawn(device, torch.float32)
    targets[0, 2] = 11
    losses = pybaracuda.torch.ctc_loss(log_probs, targets, steps, labels, reduction="none")
    (slopes,) = torch.autograd.grad(losses[[0, 1, 2, 4]].sum(), log_probs)
    assert torch.isnan(losses).tolist() == [True, False, False, False, False]
    assert torch.isnan(slopes[:, 0]).all()
    assert torch.isfinite(slopes[:, [1, 2, 4]]).all()


def test_deterministic_algorithms_are_allowed(on_cuda: str) -> None:
    log_probs, targets, steps, labels = drawn(on_cuda, torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        with pybaracuda.torch.install(devices=on_cuda):
            functional.ctc_loss(log_probs, targets, steps, labels, zero_infinity=True).backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.isfinite(log_probs.grad).all()


@JOINED
def test_the_routes_are_the_array_functions(joined: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called by themselves, since few elements of the CPU do not come to them."""
    monkeypatch.setattr(_ctc, "_FEW", 0)
    log_probs, targets, steps, labels = drawn(device, torch.float32, joined)
    image, lengths = log_probs.detach(), (steps.tolist(), labels.tolist())
    forward, backward = ROUTES["aten::_ctc_loss"], ROUTES["aten::_ctc_loss_backward"]
    assert forward.refusal(image, targets, *lengths, 0, True) == ""
    losses, alphas = forward.run(image, targets, *lengths, 0, True)
    theirs = torch._ctc_loss(image, targets, *lengths, 0, True)
    assert alphas.shape == theirs[1].shape
    torch.testing.assert_close(losses, theirs[0])
    upstream = torch.ones_like(losses)
    assert backward.refusal(upstream, image, targets, *lengths, losses, alphas, 0, True) == ""
    slopes = backward.run(upstream, image, targets, *lengths, losses, alphas, 0, True)
    expected = torch.ops.aten._ctc_loss_backward(upstream, image, targets, *lengths, *theirs, 0, True)
    torch.testing.assert_close(slopes, expected, rtol=1e-4, atol=1e-4)
    for wrong in (([31] * 5, lengths[1]), (lengths[0], [9] * 5), (lengths[0][:2], lengths[1])):
        assert forward.refusal(image, targets, *wrong, 0, True) == "arguments that PyTorch refuses"
    assert forward.refusal(image.half(), targets, *lengths, 0, True) == "dtype torch.float16"


def test_many_elements_are_ours_on_the_cpu() -> None:
    log_probs = torch.randn((100, 8, 90)).log_softmax(2).requires_grad_()
    targets, steps, labels = torch.randint(1, 90, (8, 20)), [100, 90, 80, 70, 60, 50, 45, 44], [20] * 8
    with pybaracuda.torch.install(devices="cpu"):
        output = functional.ctc_loss(log_probs, targets, steps, labels, reduction="none")
        (gradient,) = torch.autograd.grad(output.sum(), log_probs)
    ours = pybaracuda.torch.ctc_loss(log_probs, targets, steps, labels, reduction="none")
    (slopes,) = torch.autograd.grad(ours.sum(), log_probs)
    assert torch.equal(output, ours)
    assert torch.equal(gradient, slopes)


@pytest.mark.parametrize("lengths", [[3, 3, 0, 7, 7], [5], []], ids=str)
def test_lengths_that_a_graph_writes(lengths: list[int], device: str) -> None:
    written = _ctc._written(torch.tensor(lengths, dtype=torch.int32), torch.device(device))
    assert written.dtype == torch.int32
    assert written.tolist() == lengths
    assert _ctc._written(torch.tensor(4), torch.device(device)).item() == 4
