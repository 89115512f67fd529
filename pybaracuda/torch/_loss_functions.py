# SPDX-License-Identifier: Apache-2.0
"""Losses of classification on tensors, with gradients; what they compute is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._call import flag
from ..nll_loss import cross_entropy as entropy
from ..nll_loss import cross_entropy_backward, nll_loss_backward, reduction_of, smoothing_of
from ..nll_loss import nll_loss as likelihood
from ._losses import forward
from ._opaque import Differentiable, define

__all__ = ["cross_entropy", "nll_loss"]


def _wide(tensor: Any) -> Any:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _losses(input: Any, target: Any, reduction: str) -> Any:
    """Answer what a loss's result looks like, without values."""
    return input.new_empty(target.shape if reduction == "none" else ())


def _sums(input: Any, target: Any) -> tuple[Any, Any]:
    """Answer what the sum of weights and the number of dropped targets look like."""
    index = torch.int64 if target.dtype == torch.int64 else torch.int32
    return input.new_empty((1,), dtype=_wide(input)), input.new_empty((1,), dtype=index)


def _run_nll_loss(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> tuple[Any, ...]:
    return forward(input, target, weight, ignore_index, reduction, likelihood)


def _fake_nll_loss(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> tuple[Any, ...]:
    return _losses(input, target, reduction), *_sums(input, target)


_nll_loss = define(
    "nll_loss(Tensor input, Tensor target, Tensor? weight, int ignore_index, str reduction) -> "
    "(Tensor, Tensor, Tensor)",
    _run_nll_loss,
    _fake_nll_loss,
    lambda *args: _NllLoss.apply(*args),
)


def _run_nll_loss_backward(
    grad_output: Any,
    target: Any,
    total_weight: Any,
    input_shape: Sequence[int],
    weight: Any,
    ignore_index: int,
    reduction: str,
) -> Any:
    return nll_loss_backward(grad_output, target, total_weight, tuple(input_shape), weight, ignore_index, reduction)


def _fake_nll_loss_backward(
    grad_output: Any, target: Any, total_weight: Any, input_shape: Sequence[int], *options: Any
) -> Any:
    return grad_output.new_empty(input_shape)


_nll_loss_backward = define(
    "nll_loss_backward(Tensor grad_output, Tensor target, Tensor total_weight, SymInt[] input_shape, Tensor? weight, "
    "int ignore_index, str reduction) -> Tensor",
    _run_nll_loss_backward,
    _fake_nll_loss_backward,
    lambda *args: _NllLossBackward.apply(*args),
)


class _NllLoss(Differentiable):
    """Linear in the input; the sum of weights and the number of dropped targets have no gradient."""

    @staticmethod
    def forward(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> Any:
        return _nll_loss(input, target, weight, ignore_index, reduction)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, target, weight, *ctx.options = inputs
        ctx.save_for_backward(target, weight, output[1])
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.shape = tuple(input.shape)

    @staticmethod
    def backward(ctx: Any, grad_output: Any, of_total: Any, of_count: Any) -> Any:
        target, weight, total_weight = ctx.saved_tensors
        grad = _NllLossBackward.apply(grad_output, target, total_weight, ctx.shape, weight, *ctx.options)
        return grad, None, None, None, None


class _NllLossBackward(Differentiable):
    """The adjoint."""

    @staticmethod
    def forward(
        grad_output: Any,
        target: Any,
        total_weight: Any,
        input_shape: Sequence[int],
        weight: Any,
        ignore_index: int,
        reduction: str,
    ) -> Any:
        return _nll_loss_backward(grad_output, target, total_weight, input_shape, weight, ignore_index, reduction)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, target, _, _, weight, *ctx.options = inputs
        ctx.save_for_backward(target, weight)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        target, weight = ctx.saved_tensors
        return _NllLoss.apply(grad, target, weight, *ctx.options)[0], None, None, None, None, None, None


def _run_cross_entropy(
    input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float
) -> tuple[Any, ...]:
    return forward(input, target, weight, ignore_index, reduction, entropy, label_smoothing)


def _fake_cross_entropy(
    input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float
) -> tuple[Any, ...]:
    sums = input.new_empty(target.shape, dtype=_wide(input)), *_sums(input, target)
    return _losses(input, target, reduction), *sums


_cross_entropy = define(
    "cross_entropy(Tensor input, Tensor target, Tensor? weight, int ignore_index, str reduction, "
    "float label_smoothing) -> (Tensor, Tensor, Tensor, Tensor)",
    _run_cross_entropy,
    _fake_cross_entropy,
    lambda *args: _CrossEntropy.apply(*args),
)


def _run_cross_entropy_backward(
    grad_output: Any, input: Any, target: Any, log_sum_exp: Any, total_weight: Any, weight: Any, *options: Any
) -> Any:
    return cross_entropy_backward(grad_output, input, target, log_sum_exp, total_weight, weight, *options)


def _fake_cross_entropy_backward(grad_output: Any, input: Any, *others: Any) -> Any:
    return input.new_empty(input.shape)


_cross_entropy_backward = define(
    "cross_entropy_backward(Tensor grad_output, Tensor input, Tensor target, Tensor log_sum_exp, Tensor total_weight, "
    "Tensor? weight, int ignore_index, str reduction, float label_smoothing) -> Tensor",
    _run_cross_entropy_backward,
    _fake_cross_entropy_backward,
    lambda *args: _CrossEntropyBackward.apply(*args),
)


class _CrossEntropy(Differentiable):
    """The sums that the gradient needs have none themselves."""

    @staticmethod
    def forward(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float) -> Any:
        return _cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, target, weight, *ctx.options = inputs
        ctx.save_for_backward(input, target, output[1], output[2], weight)
        ctx.mark_non_differentiable(output[1], output[2], output[3])

    @staticmethod
    def backward(ctx: Any, grad_output: Any, of_sums: Any, of_total: Any, of_count: Any) -> Any:
        grad = _CrossEntropyBackward.apply(grad_output, *ctx.saved_tensors, *ctx.options)
        return grad, None, None, None, None, None


class _CrossEntropyBackward(Differentiable):
    """Linear in the gradient of the loss; what it is of the logits is PyTorch's arithmetic."""

    # A compiler takes a function of any number of arguments for one with a context.
    @staticmethod
    def forward(
        grad_output: Any,
        input: Any,
        target: Any,
        log_sum_exp: Any,
        total_weight: Any,
        weight: Any,
        ignore_index: int,
        reduction: str,
        label_smoothing: float,
    ) -> Any:
        options = (ignore_index, reduction, label_smoothing)
        return _cross_entropy_backward(grad_output, input, target, log_sum_exp, total_weight, weight, *options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ignore_index, reduction, label_smoothing = inputs
        ctx.options = (ignore_index, reduction, label_smoothing)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        of_grad, of_input = _CrossEntropyTwice.apply(grad, *ctx.saved_tensors, *ctx.options)
        return of_grad, of_input, None, None, None, None, None, None, None


class _CrossEntropyTwice(Differentiable):
    """The second derivative, which ends here."""

    @staticmethod
    def forward(
        grad: Any,
        grad_output: Any,
        input: Any,
        target: Any,
        log_sum_exp: Any,
        total_weight: Any,
        weight: Any,
        ignore_index: int,
        reduction: str,
        label_smoothing: float,
    ) -> Any:
        options = (ignore_index, reduction, label_smoothing)
        axis = 0 if input.dim() == 1 else 1
        wide, classes = _wide(input), input.shape[axis]
        # The gradient is linear in that of the loss.
        slopes = _cross_entropy_backward(
            torch.ones_like(grad_output), input, target, log_sum_exp, total_weight, weight, *options
        )
        of_grad = (grad.to(wide) * slopes.to(wide)).sum(axis)
        of_grad = of_grad if reduction == "none" else of_grad.sum()
        has_loss = (target >= 0) & (target < classes) & (target != ignore_index)
        weights = torch.ones(classes, dtype=wide, device=input.device) if weight is None else weight.to(wide)
        scale = (1 - label_smoothing) * weights[torch.where(has_loss, target, 0).to(torch.int64)]
        scale = (scale + label_smoothing / max(classes, 1) * weights.sum()) * grad_output.to(wide)
        scale = scale / total_weight.reshape(()) if reduction == "mean" else scale
        share = (input.to(wide) - log_sum_exp.unsqueeze(axis)).exp()
        step = grad.to(wide) - (share * grad.to(wide)).sum(axis, keepdim=True)
        of_input = torch.where(has_loss.unsqueeze(axis), scale.unsqueeze(axis) * share * step, 0.0)
        return of_grad.to(grad_output.dtype), of_input.to(input.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("cross_entropy has no third derivative")


def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    return_sums: bool = False,
) -> Any:
    """Take the negative log-likelihood of target classes, as ``torch.nn.functional.nll_loss`` does.

    Parameters
    ----------
    input : Tensor, [C], [N, C] or [N, C, ...]
        Logarithms of the classes' probabilities in float32, float64, float16 or bfloat16.
    target : Tensor, [], [N] or [N, ...]
        The class of each element in int64 or int32; narrower integers are converted by a copy.
    weight : Tensor, [C], optional
        A weight for each class in the input's dtype; it has no gradient.
    ignore_index : int
        The target of elements that do not count; it need not be a class.
    reduction : {"mean", "sum", "none"}
    return_sums : bool
        Whether to answer also `total_weight` and `num_dropped`, as ``pybaracuda.nll_loss`` does.

    Returns
    -------
    Tensor, [], or of the target's shape
        Of the input's dtype and device; with `return_sums` a tuple, of which the others have no gradient.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.nll_loss``.
    IndexError
        On the CPU, if a target is no class.

    Notes
    -----
    On a GPU a target that is no class is dropped, and counted for :func:`check_indices`. Derivatives of every order.
    The same bits on every run, thread count, GPU and backend.
    """
    found = _NllLoss.apply(input, target, weight, ignore_index, reduction_of(reduction))
    return tuple(found) if flag("return_sums", return_sums) else found[0]


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    return_sums: bool = False,
) -> Any:
    """Take the cross entropy between logits and targets, as ``torch.nn.functional.cross_entropy`` does.

    Parameters
    ----------
    input : Tensor, [C], [N, C] or [N, C, ...]
        Logits of the classes in float32, float64, float16 or bfloat16.
    target : Tensor
        The class of each element in int64 or int32, as :func:`nll_loss` takes it. Probabilities of classes, in the
        input's shape and dtype, go to PyTorch's own function.
    weight : Tensor, [C], optional
        A weight for each class in the input's dtype; it has no gradient.
    ignore_index : int
        The target of elements that do not count; it need not be a class.
    reduction : {"mean", "sum", "none"}
    label_smoothing : float
        Share of the target, from 0 to 1, that all classes have alike.
    return_sums : bool
        Whether to answer also `log_sum_exp`, `total_weight` and `num_dropped`, as ``pybaracuda.cross_entropy`` does;
        not for probabilities.

    Returns
    -------
    Tensor, [], or of the target's shape
        Of the input's dtype and device; with `return_sums` a tuple, of which the others have no gradient.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.cross_entropy``.
    IndexError
        On the CPU, if a target is no class.

    Notes
    -----
    Logits are read once in the forward pass and once for the gradient; PyTorch's function writes their log-softmax
    between. On a GPU a target that is no class is dropped, and counted for :func:`check_indices`. Second derivatives
    exist, by PyTorch's arithmetic; third ones raise NotImplementedError. The same bits on every run, thread count, GPU
    and backend.
    """
    every = flag("return_sums", return_sums)
    if target.is_floating_point():
        if every:
            raise ValueError("return_sums: a loss by probabilities has no sums to answer")
        return torch.nn.functional.cross_entropy(
            input, target, weight, None, ignore_index, None, reduction, label_smoothing
        )
    options = (ignore_index, reduction_of(reduction), smoothing_of(label_smoothing))
    found = _CrossEntropy.apply(input, target, weight, *options)
    return tuple(found) if every else found[0]
