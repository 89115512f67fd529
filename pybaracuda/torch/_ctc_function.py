# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification of tensors, with a gradient; what it computes is in the array functions."""

from __future__ import annotations

from typing import Any

import torch

from .._errors import shown
from ..ctc_loss import ctc_loss as losses
from ..ctc_loss import ctc_loss_backward, states_of
from ..nll_loss import REDUCTIONS
from ._ctc import lengths_of, reduced
from ._opaque import Differentiable, define

__all__ = ["ctc_loss"]


def _run(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int, max_target_length: int
) -> tuple[Any, Any]:
    found: tuple[Any, Any] = losses(
        log_probs, targets, input_lengths, target_lengths, blank, max_target_length=max_target_length,
        return_log_alpha=True,
    )  # fmt: skip
    return found


def _fake(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int, max_target_length: int
) -> tuple[Any, Any]:
    wide = torch.float64 if log_probs.dtype == torch.float64 else torch.float32
    t, n, _ = log_probs.shape
    return log_probs.new_empty((n,), dtype=wide), log_probs.new_empty((n, t, 2 * max_target_length + 1), dtype=wide)


_ctc_loss = define(
    "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
    "int max_target_length) -> (Tensor, Tensor)",
    _run,
    _fake,
    lambda *args: _CtcLoss.apply(*args, False),
)


def _fake_backward(grad_output: Any, log_probs: Any, *others: Any) -> Any:
    return log_probs.new_empty(log_probs.shape)


_ctc_loss_backward = define(
    "ctc_loss_backward(Tensor grad_output, Tensor log_probs, Tensor targets, Tensor input_lengths, "
    "Tensor target_lengths, Tensor neg_log_likelihood, Tensor log_alpha, int blank, bool zero_infinity) -> Tensor",
    ctc_loss_backward,
    _fake_backward,
    lambda *args: _CtcLossBackward.apply(*args),
)


class _CtcLoss(Differentiable):
    """The alphas, which the gradient needs, have none themselves."""

    @staticmethod
    def forward(
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        blank: int,
        max_target_length: int,
        zero_infinity: bool,
    ) -> Any:
        return _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, max_target_length)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, blank, _, zero_infinity = inputs
        ctx.options = (blank, zero_infinity)
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad_output: Any, of_alpha: Any) -> Any:
        grad = _CtcLossBackward.apply(grad_output, *ctx.saved_tensors, *ctx.options)
        return grad, None, None, None, None, None, None


class _CtcLossBackward(Differentiable):
    """The gradient, which has none: PyTorch's has none either."""

    @staticmethod
    def forward(
        grad_output: Any,
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        neg_log_likelihood: Any,
        log_alpha: Any,
        blank: int,
        zero_infinity: bool,
    ) -> Any:
        tensors = log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha
        return _ctc_loss_backward(grad_output, *tensors, blank, zero_infinity)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise NotImplementedError("ctc_loss has no second derivative")


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
    *,
    max_target_length: int | None = None,
) -> Any:
    """Take the connectionist temporal classification loss, as ``torch.nn.functional.ctc_loss`` does.

    Parameters
    ----------
    log_probs : Tensor, [T, N, C] or [T, C]
        Logarithms of the classes' probabilities in float32, float64, float16 or bfloat16.
    targets : Tensor, [N, S] or one axis
        Classes of the labels, a row for each sequence or one target behind another.
    input_lengths, target_lengths : Tensor, [N], or sequence of int
        Time steps of each sequence and labels of each target, an int or a tensor without axes for [T, C].
    blank : int
        The class that is no label.
    reduction : {"mean", "sum", "none"}
        The mean is that of losses over the lengths of their targets.
    zero_infinity : bool
        Whether infinite losses and their gradients are 0.
    max_target_length : int, optional
        The most labels that a target may have. None is S, or the longest of the joined targets: if their lengths are on
        a GPU, the host waits for it.

    Returns
    -------
    Tensor, [], or [N]
        Of the dtype of `log_probs`; with one sequence without an axis and "none", [].

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.ctc_loss``.

    Notes
    -----
    A sequence with a length or a label that is out of range has the loss and the gradient NaN. Losses are reduced in
    float32, for float64 in float64, and rounded once. The gradient is that of logarithms of a softmax, as PyTorch's; it
    has no derivative. Losses without a reduction and gradients have the same bits on every run, thread count, GPU and
    backend.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is {shown(reduction)}; wanted one of {', '.join(REDUCTIONS)}")
    if log_probs.dim() not in (2, 3):
        raise ValueError(f"log_probs has shape {tuple(log_probs.shape)}; wanted [T, N, C] or [T, C]")
    device = log_probs.device
    steps, labels = lengths_of(input_lengths, device), lengths_of(target_lengths, device)
    has_batch = log_probs.dim() == 3
    if not has_batch:
        log_probs, steps, labels = log_probs.unsqueeze(1), steps.reshape(1), labels.reshape(1)
        targets = targets.unsqueeze(0) if targets.dim() == 1 else targets
    if max_target_length is None:
        if targets.dim() == 2:
            max_target_length = targets.shape[1]
        else:
            max_target_length = int(labels.max()) if labels.numel() else 0
    states_of(tuple(targets.shape), max_target_length)
    found = _CtcLoss.apply(log_probs, targets, steps, labels, blank, max_target_length, zero_infinity)[0]
    found = reduced(found, labels, reduction, zero_infinity)
    if reduction == "none" and not has_batch:
        found = found.squeeze(0)
    return found.to(log_probs.dtype)
