# SPDX-License-Identifier: Apache-2.0
"""Order statistics of tensors along an axis, with gradients, and histograms; what they compute is in the array
functions."""

from __future__ import annotations

from typing import Any

import torch

from .. import order
from ..histc import histc as _counts
from ._opaque import Differentiable, define

__all__ = ["histc", "kthvalue", "median", "mode", "nanmedian"]


def _selected(input: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """Make outputs without values."""
    shape = list(input.shape)
    if shape and keepdim:
        shape[dim] = 1
    elif shape:
        del shape[dim]
    return input.new_empty(shape), input.new_empty(shape, dtype=torch.int64)


_backward = define(
    "value_selecting_reduction_backward(Tensor grad_output, Tensor indices, SymInt[] input_shape, int dim, "
    "bool keepdim) -> Tensor",
    order.value_selecting_reduction_backward,
    lambda grad_output, indices, input_shape, dim, keepdim: grad_output.new_empty(input_shape),
    lambda *args: _SelectionBackward.apply(*args),
)


class _SelectionBackward(Differentiable):
    """The gradient: linear in what comes from the values, whose places stay the same."""

    @staticmethod
    def forward(grad_output: Any, indices: Any, input_shape: Any, dim: int, keepdim: bool) -> Any:
        return _backward(grad_output, indices, input_shape, dim, keepdim)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, indices, input_shape, ctx.dim, keepdim = inputs
        ctx.squeezes = not keepdim and len(input_shape) > 0
        ctx.save_for_backward(indices)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (indices,) = ctx.saved_tensors
        if ctx.squeezes:
            return grad.gather(ctx.dim, indices.unsqueeze(ctx.dim)).squeeze(ctx.dim), None, None, None, None
        return grad.gather(ctx.dim, indices), None, None, None, None


class _Selection(Differentiable):
    """What selects an element of each row. The context has `shape`, `dim` and `keepdim`."""

    @staticmethod
    def keep(ctx: Any, input: Any, dim: int, keepdim: bool, output: Any) -> None:
        """Keep what the gradient needs."""
        ctx.shape, ctx.dim, ctx.keepdim = input.shape, dim, keepdim
        _, indices = output
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)

    @staticmethod
    def gradient(ctx: Any, grad_output: Any) -> Any:
        """Answer the gradient of the input."""
        (indices,) = ctx.saved_tensors
        return _SelectionBackward.apply(grad_output, indices, ctx.shape, ctx.dim, ctx.keepdim)


_kthvalue = define(
    "kthvalue(Tensor input, int k, int dim, bool keepdim) -> (Tensor, Tensor)",
    order.kthvalue,
    lambda input, k, dim, keepdim: _selected(input, dim, keepdim),
    lambda *args: _Kthvalue.apply(*args),
)


class _Kthvalue(_Selection):
    @staticmethod
    def forward(input: Any, k: int, dim: int, keepdim: bool) -> Any:
        return _kthvalue(input, k, dim, keepdim)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, _, dim, keepdim = inputs
        _Selection.keep(ctx, input, dim, keepdim, output)

    @staticmethod
    def backward(ctx: Any, grad_output: Any, _: Any) -> Any:
        return _Selection.gradient(ctx, grad_output), None, None, None


def _selecting(name: str) -> type[Differentiable]:
    """Define a statistic without a rank, and answer its function."""
    operator = define(
        f"{name}(Tensor input, int dim, bool keepdim) -> (Tensor, Tensor)",
        getattr(order, name),
        _selected,
        lambda *args: Statistic.apply(*args),
    )

    class Statistic(_Selection):
        @staticmethod
        def forward(input: Any, dim: int, keepdim: bool) -> Any:
            return operator(input, dim, keepdim)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            input, dim, keepdim = inputs
            _Selection.keep(ctx, input, dim, keepdim, output)

        @staticmethod
        def backward(ctx: Any, grad_output: Any, _: Any) -> Any:
            return _Selection.gradient(ctx, grad_output), None, None

    return Statistic


_Median = _selecting("median")
_Nanmedian = _selecting("nanmedian")
_Mode = _selecting("mode")

_histc = define(
    "histc(Tensor input, SymInt bins, float min, float max) -> Tensor",
    _counts,
    lambda input, bins, min, max: input.new_empty((bins,)),
    lambda *args: _Histc.apply(*args),
)


class _Histc(Differentiable):
    """Counts, which have no derivative."""

    @staticmethod
    def forward(input: Any, bins: int, min: float, max: float) -> Any:
        return _histc(input, bins, min, max)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return None, None, None, None


def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Find the k-th smallest element of each row along an axis, and where it is, as ``torch.kthvalue`` does.

    Parameters
    ----------
    input : Tensor
        In float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    k : int
        Which element, counted from 1.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.

    Returns
    -------
    values, indices : Tensor
        Indices in int64.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.kthvalue``.

    Notes
    -----
    Of equal elements the lowest place counts; NaNs are equal and larger than every number. Linear where the places
    stay, so derivatives of every order exist; a row's gradient goes to its element.
    """
    values, indices = _Kthvalue.apply(input, k, dim, keepdim)
    return values, indices


def median(input: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Find the median of each row along an axis, and where it is, as ``torch.median`` with an axis does.

    Parameters
    ----------
    input : Tensor
        In float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.

    Returns
    -------
    values, indices : Tensor
        Indices in int64.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.median``.

    Notes
    -----
    The lower one of both in the middle; a row with a NaN answers the first of them. As of :func:`kthvalue`.
    """
    values, indices = _Median.apply(input, dim, keepdim)
    return values, indices


def nanmedian(input: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Find the median of each row's elements that are no NaN, and where it is, as ``torch.nanmedian`` does.

    Parameters
    ----------
    input : Tensor
        In float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.

    Returns
    -------
    values, indices : Tensor
        Indices in int64.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.nanmedian``.

    Notes
    -----
    As of :func:`median`; a row of NaNs alone answers the first of them.
    """
    values, indices = _Nanmedian.apply(input, dim, keepdim)
    return values, indices


def mode(input: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Find the most frequent element of each row along an axis, and where it is, as ``torch.mode`` does.

    Parameters
    ----------
    input : Tensor
        In float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.

    Returns
    -------
    values, indices : Tensor
        Indices in int64.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.mode``.

    Notes
    -----
    The smallest of several, at the lowest place; a NaN is equal to nothing. Gradients as of :func:`kthvalue`.
    """
    values, indices = _Mode.apply(input, dim, keepdim)
    return values, indices


def histc(input: Any, bins: int = 100, min: float = 0.0, max: float = 0.0) -> Any:
    """Count elements in bins of one width, as ``torch.histc`` does on CUDA.

    Parameters
    ----------
    input : Tensor
        Of any shape in float32, float64, float16 or bfloat16.
    bins : int
        How many bins there are.
    min, max : float
        Where the first bin begins and the last one ends; if they are equal it is the range of the data.

    Returns
    -------
    Tensor, [bins]
        Of the input's dtype and device, without a gradient.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.histc``.

    Notes
    -----
    Where the range is that of the data and one of these is infinite or NaN, all counts are 0: nothing waits for the
    device.
    """
    return _Histc.apply(input, bins, float(min), float(max))
