# SPDX-License-Identifier: Apache-2.0
"""Scans of tensors along an axis, with gradients; what they compute is in the array functions.

Second derivatives of products and of logarithms of sums go through PyTorch's own operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import scan
from ._opaque import Differentiable, define

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]

_SCHEMA = "(Tensor input, int dim, bool reverse) -> "
_BACKWARD_SCHEMA = "_backward(Tensor grad_output, Tensor input, Tensor output, int dim, bool reverse) -> Tensor"


def _like(input: Any, *_: Any) -> Any:
    return input.new_empty(input.shape)


def _like_with_indices(input: Any, *_: Any) -> Any:
    return input.new_empty(input.shape), input.new_empty(input.shape, dtype=torch.int64)


_cumsum = define(
    f"cumsum{_SCHEMA}Tensor",
    lambda input, dim, reverse: scan.cumsum(input, dim, reverse=reverse),
    _like,
    lambda *args: _Cumsum.apply(*args),
)


class _Cumsum(Differentiable):
    """Linear; its adjoint is the sum the other way."""

    @staticmethod
    def forward(input: Any, dim: int, reverse: bool) -> Any:
        return _cumsum(input, dim, reverse)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.dim, ctx.reverse = inputs

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return _Cumsum.apply(grad_output, ctx.dim, not ctx.reverse), None, None


def _of_torch(function: Callable[..., Any], input: Any, dim: int, reverse: bool) -> Any:
    """Answer what PyTorch's function answers, also from the axis's end."""
    return function(input.flip(dim), dim).flip(dim) if reverse else function(input, dim)


class _Gradient(Differentiable):
    """What has a gradient of its own; the forward's output follows from the input, whose share it is."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, input, _, ctx.dim, ctx.reverse = inputs
        ctx.save_for_backward(grad_output, input)


def _second(function: Callable[..., Any], ctx: Any, grad: Any) -> tuple[Any, ...]:
    """Answer the derivatives of the gradient of PyTorch's function."""
    grad_output, input = ctx.saved_tensors

    def gradient(upstream: Any, values: Any) -> Any:
        return torch.func.vjp(lambda x: _of_torch(function, x, ctx.dim, ctx.reverse), values)[1](upstream)[0]

    of_gradient, of_input = torch.func.vjp(gradient, grad_output, input)[1](grad)
    return of_gradient, of_input, None, None, None


# Products and logarithms of sums are alike, and written one by one: while it traces a gradient, torch.compile finds the
# function of the gradient's gradient by its name in a module, and not in what a function encloses.
_cumprod = define(
    f"cumprod{_SCHEMA}Tensor",
    lambda input, dim, reverse: scan.cumprod(input, dim, reverse=reverse),
    _like,
    lambda *args: _Cumprod.apply(*args),
)
_cumprod_backward = define(
    f"cumprod{_BACKWARD_SCHEMA}",
    lambda g, input, output, dim, reverse: scan.cumprod_backward(g, input, output, dim, reverse=reverse),
    _like,
    lambda *args: _CumprodBackward.apply(*args),
)


class _Cumprod(Differentiable):
    @staticmethod
    def forward(input: Any, dim: int, reverse: bool) -> Any:
        return _cumprod(input, dim, reverse)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, ctx.dim, ctx.reverse = inputs
        ctx.save_for_backward(input, output)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        input, output = ctx.saved_tensors
        return _CumprodBackward.apply(grad_output, input, output, ctx.dim, ctx.reverse), None, None


class _CumprodBackward(_Gradient):
    @staticmethod
    def forward(grad_output: Any, input: Any, output: Any, dim: int, reverse: bool) -> Any:
        return _cumprod_backward(grad_output, input, output, dim, reverse)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _second(torch.cumprod, ctx, grad)


_logcumsumexp = define(
    f"logcumsumexp{_SCHEMA}Tensor",
    lambda input, dim, reverse: scan.logcumsumexp(input, dim, reverse=reverse),
    _like,
    lambda *args: _Logcumsumexp.apply(*args),
)
_logcumsumexp_backward = define(
    f"logcumsumexp{_BACKWARD_SCHEMA}",
    lambda g, input, output, dim, reverse: scan.logcumsumexp_backward(g, input, output, dim, reverse=reverse),
    _like,
    lambda *args: _LogcumsumexpBackward.apply(*args),
)


class _Logcumsumexp(Differentiable):
    @staticmethod
    def forward(input: Any, dim: int, reverse: bool) -> Any:
        return _logcumsumexp(input, dim, reverse)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, ctx.dim, ctx.reverse = inputs
        ctx.save_for_backward(input, output)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        input, output = ctx.saved_tensors
        return _LogcumsumexpBackward.apply(grad_output, input, output, ctx.dim, ctx.reverse), None, None


class _LogcumsumexpBackward(_Gradient):
    @staticmethod
    def forward(grad_output: Any, input: Any, output: Any, dim: int, reverse: bool) -> Any:
        return _logcumsumexp_backward(grad_output, input, output, dim, reverse)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _second(torch.logcumsumexp, ctx, grad)


_cummaxmin_backward = define(
    "cummaxmin_backward(Tensor grad_output, Tensor indices, int dim, bool reverse) -> Tensor",
    lambda grad_output, indices, dim, reverse: scan.cummaxmin_backward(grad_output, indices, dim, reverse=reverse),
    _like,
    lambda *args: _CummaxminBackward.apply(*args),
)


class _CummaxminBackward(Differentiable):
    """The gradient: linear in what comes from the values, whose indices stay the same."""

    @staticmethod
    def forward(grad_output: Any, indices: Any, dim: int, reverse: bool) -> Any:
        return _cummaxmin_backward(grad_output, indices, dim, reverse)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, indices, ctx.dim, _ = inputs
        ctx.save_for_backward(indices)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (indices,) = ctx.saved_tensors
        return grad.gather(ctx.dim, indices), None, None, None


def _selecting(name: str) -> type[Differentiable]:
    """Define a scan of extremes, and answer its function."""
    forward = getattr(scan, name)
    operator = define(
        f"{name}{_SCHEMA}(Tensor, Tensor)",
        lambda input, dim, reverse: forward(input, dim, reverse=reverse),
        _like_with_indices,
        lambda *args: Scan.apply(*args),
    )

    class Scan(Differentiable):
        @staticmethod
        def forward(input: Any, dim: int, reverse: bool) -> Any:
            return operator(input, dim, reverse)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _, ctx.dim, ctx.reverse = inputs
            _, indices = output
            ctx.mark_non_differentiable(indices)
            ctx.save_for_backward(indices)

        @staticmethod
        def backward(ctx: Any, grad_output: Any, _: Any) -> Any:
            (indices,) = ctx.saved_tensors
            return _CummaxminBackward.apply(grad_output, indices, ctx.dim, ctx.reverse), None, None

    return Scan


_Cummax = _selecting("cummax")
_Cummin = _selecting("cummin")


def cumsum(input: Any, dim: int, *, reverse: bool = False) -> Any:
    """Sum up to each element along an axis, as ``torch.cumsum`` does.

    Parameters
    ----------
    input : Tensor
        In float32, float64, float16, bfloat16, int32 or int64. Integers keep their dtype and wrap around.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    Tensor
        Of the input's shape, dtype and device.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.cumsum``.

    Notes
    -----
    Linear, so derivatives of every order exist. The gradient is the sum the other way, without a copy: the same bits on
    every run, thread count, GPU and backend.
    """
    return _Cumsum.apply(input, dim, reverse)


def cumprod(input: Any, dim: int, *, reverse: bool = False) -> Any:
    """Multiply up to each element along an axis, as ``torch.cumprod`` does.

    Parameters
    ----------
    input : Tensor
        In float32, float64, float16, bfloat16, int32 or int64. Integers keep their dtype and wrap around.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    Tensor
        Of the input's shape, dtype and device.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.cumprod``.

    Notes
    -----
    The gradient is that of ``pybaracuda.cumprod_backward``, bit for bit, and right with any number of zeros; second
    derivatives are PyTorch's own.
    """
    return _Cumprod.apply(input, dim, reverse)


def logcumsumexp(input: Any, dim: int, *, reverse: bool = False) -> Any:
    """Take logarithms of the sums of exponentials up to each element, as ``torch.logcumsumexp`` does.

    Parameters
    ----------
    input : Tensor
        In float32, float64, float16 or bfloat16.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    Tensor
        Of the input's shape, dtype and device.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.logcumsumexp``.

    Notes
    -----
    The gradient is that of ``pybaracuda.logcumsumexp_backward``, bit for bit; second derivatives are PyTorch's own.
    """
    return _Logcumsumexp.apply(input, dim, reverse)


def cummax(input: Any, dim: int, *, reverse: bool = False) -> tuple[Any, Any]:
    """Find the largest element up to each one along an axis, and where it is, as ``torch.cummax`` does.

    Parameters
    ----------
    input : Tensor
        In float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    values, indices : Tensor
        Of the input's shape and device; indices in int64, from the axis's begin.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.cummax``.

    Notes
    -----
    Derivatives of every order exist, in which the indices stay the same. The gradient is that of
    ``pybaracuda.cummaxmin_backward``, bit for bit.
    """
    values, indices = _Cummax.apply(input, dim, reverse)
    return values, indices


def cummin(input: Any, dim: int, *, reverse: bool = False) -> tuple[Any, Any]:
    """Find the smallest element up to each one along an axis, and where it is, as ``torch.cummin`` does.

    Parameters
    ----------
    input : Tensor
        In float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    values, indices : Tensor
        Of the input's shape and device; indices in int64, from the axis's begin.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.cummin``.

    Notes
    -----
    As of :func:`cummax`.
    """
    values, indices = _Cummin.apply(input, dim, reverse)
    return values, indices
