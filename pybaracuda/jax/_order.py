# SPDX-License-Identifier: Apache-2.0
"""Order statistics along an axis in JAX, with their derivatives, and histograms; what they compute is in the array
functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from .. import _call
from .._arrays import HOST
from .._call import Prepared
from ..histc import prepare as prepare_histc
from ..order import prepare, prepare_backward
from ._maxima import answered
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents, Unfold
from ._primitive import array_of, call, run

__all__ = ["histc", "kthvalue", "median", "mode", "nanmedian"]


@dataclass(frozen=True)
class _Along:
    """An axis of `length` elements, counted from the last one so that it stays when others come in front."""

    dim: int
    length: int

    def names(self, rank: int) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
        """Name the axes of the rows, those of what is selected, and those that may be split."""
        rows = tuple(f"n{axis}" for axis in range(rank))
        axis = rank + self.dim
        selected = (*rows[:axis], *rows[axis + 1 :])
        return rows, selected, frozenset(selected)


@dataclass(frozen=True)
class _Selection(_Along, KernelOperation):
    """An element of each row of (input), and its place."""

    name: str
    k: int | None = None

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare(self.name, HOST, *specs[0], self.dim, False, self.k)

    def axes(self, *specs: Spec) -> Axes:
        rows, selected, split = self.names(len(specs[0][0]))
        return Axes((rows,), (selected, selected), split, split)

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        # Problems that stand one behind the other are one problem of one axis more.
        return self, operands, lambda results: results

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        # An element's place does not move with its value.
        return call(_Selected(self.dim, self.length), tangents[0], outputs[1])[0], None


@dataclass(frozen=True)
class _Selected(_Along, Operation):
    """The elements of (a tangent of the input, indices) that were selected, linear in the first."""

    name = "an order statistic"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return ((specs[1][0], specs[0][1]),)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        tangent, indices = operands
        axis = tangent.ndim + self.dim
        places = jnp.expand_dims(answered(indices, self.length), axis)
        return [jnp.squeeze(jnp.take_along_axis(tangent, places, axis=axis), axis)]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_Gradient(self.dim, self.length), cotangents[0], operands[1])[0], None


@dataclass(frozen=True)
class _Gradient(_Along, KernelOperation):
    """The gradient of the input by (grad_output, indices), linear in the first."""

    name = "value_selecting_reduction_backward"

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), (indices_shape, indices_dtype) = specs
        axis = len(shape) + 1 + self.dim
        input_shape = (*shape[:axis], self.length, *shape[axis:])
        return prepare_backward(HOST, shape, dtype, indices_shape, indices_dtype, input_shape, axis, False)

    def axes(self, *specs: Spec) -> Axes:
        rows, selected, split = self.names(len(specs[0][0]) + 1)
        return Axes((selected, selected), (rows,), split, split)

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        return self, operands, lambda results: results

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_Selected(self.dim, self.length), cotangents[0], operands[1])[0], None


@dataclass(frozen=True)
class _Histc(KernelOperation):
    """Counts of (input), which have no derivative."""

    bins: int
    low: float
    high: float

    name = "histc"
    folds = False

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_histc(HOST, *specs[0], self.bins, self.low, self.high)

    def axes(self, *specs: Spec) -> Axes:
        rows = tuple(f"n{axis}" for axis in range(len(specs[0][0])))
        return Axes((rows,), (("bins",),), frozenset(), frozenset())

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return (None,)


def _select(name: str, input: Any, dim: Any, keepdim: Any, k: int | None = None) -> tuple[Any, Any]:
    array = array_of(input)
    keeps, is_number = _call.flag("keepdim", keepdim), array.ndim == 0
    axis = _call.axis_of(array.shape, _call.whole("dim", dim))
    # A single number is a row.
    array = array.reshape(1) if is_number else array
    length = array.shape[axis]
    values, places = run(_Selection(axis - array.ndim, length, name, k), array)
    indices = answered(places, length)
    if keeps and not is_number:
        return jnp.expand_dims(values, axis), jnp.expand_dims(indices, axis)
    return values, indices


def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Find the k-th smallest element of each row along an axis, and where it is, as ``torch.kthvalue`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    k : int
        Which element, counted from 1.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.

    Returns
    -------
    values, indices : array
        Indices in int64 in JAX's 64-bit mode, else in int32.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.kthvalue``, when it is traced.
    OverflowError
        If the axis has more than 2**31 - 1 elements outside of JAX's 64-bit mode.

    Notes
    -----
    Of equal elements the lowest place counts; NaNs are equal and larger than every number. Derivatives of every order
    and both modes exist, in which the places stay; the gradient is that of
    ``pybaracuda.value_selecting_reduction_backward``, bit for bit.
    """
    return _select("kthvalue", input, dim, keepdim, _call.whole("k", k))


def median(input: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Find the median of each row along an axis, and where it is, as ``torch.median`` with an axis does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.

    Returns
    -------
    values, indices : array
        Indices in int64 in JAX's 64-bit mode, else in int32.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError, OverflowError
        As :func:`kthvalue`.

    Notes
    -----
    The lower one of both in the middle, where ``jax.numpy.median`` answers their mean; a row with a NaN answers the
    first of them. Derivatives as of :func:`kthvalue`.
    """
    return _select("median", input, dim, keepdim)


def nanmedian(input: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Find the median of each row's elements that are no NaN, and where it is, as ``torch.nanmedian`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.

    Returns
    -------
    values, indices : array
        Indices in int64 in JAX's 64-bit mode, else in int32.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError, OverflowError
        As :func:`kthvalue`.

    Notes
    -----
    As of :func:`median`; a row of NaNs alone answers the first of them.
    """
    return _select("nanmedian", input, dim, keepdim)


def mode(input: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Find the most frequent element of each row along an axis, and where it is, as ``torch.mode`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.

    Returns
    -------
    values, indices : array
        Indices in int64 in JAX's 64-bit mode, else in int32.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError, OverflowError
        As :func:`kthvalue`.

    Notes
    -----
    The smallest of several, at the lowest place; a NaN is equal to nothing. Derivatives as of :func:`kthvalue`.
    """
    return _select("mode", input, dim, keepdim)


def histc(input: Any, bins: int = 100, min: float = 0.0, max: float = 0.0) -> Any:
    """Count elements in bins of one width, as ``torch.histc`` does on CUDA.

    Parameters
    ----------
    input : array
        Numbers of any shape in float32, float64, float16 or bfloat16.
    bins : int
        How many bins there are.
    min, max : float
        Where the first bin begins and the last one ends; if they are equal it is the range of the data.

    Returns
    -------
    array, [bins]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.histc``, when it is traced.

    Notes
    -----
    Counts have no derivative: gradients through them are 0. Mapped calls are done one after the other.
    """
    ends = _call.number("min", min), _call.number("max", max)
    return run(_Histc(_call.whole("bins", bins), *ends), array_of(input))[0]
