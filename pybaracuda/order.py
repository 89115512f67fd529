# SPDX-License-Identifier: Apache-2.0
"""Order statistics along an axis: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._dtypes import FLOATS
from ._plan import Plan

__all__ = [
    "KthvalueDescriptor",
    "KthvaluePlan",
    "MedianDescriptor",
    "MedianPlan",
    "ModeDescriptor",
    "ModePlan",
    "NanmedianDescriptor",
    "NanmedianPlan",
    "ValueSelectingReductionBackwardDescriptor",
    "ValueSelectingReductionBackwardPlan",
    "kthvalue",
    "median",
    "mode",
    "nanmedian",
    "value_selecting_reduction_backward",
]

_INTEGERS = ("i32", "i64", "s8", "u8")


@dataclass(frozen=True, slots=True)
class KthvalueDescriptor(Descriptor):
    """The k-th smallest elements along the middle axis of [outer, length, inner].

    Parameters
    ----------
    outer, length, inner : int
        Elements before the axis, along it and behind it; at least one along it.
    k : int
        Which element, counted from 1.
    element : str
        Dtype of input and output: "f32", "f64", "f16", "bf16", "i32", "i64", "s8" or "u8".

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    outer: int
    length: int
    inner: int
    k: int
    element: str = "f32"

    operator: ClassVar[str] = "kthvalue"


@dataclass(frozen=True, slots=True)
class MedianDescriptor(Descriptor):
    """Medians along the middle axis of [outer, length, inner].

    Parameters
    ----------
    outer, length, inner : int
        Elements before the axis, along it and behind it; at least one along it.
    element : str
        Dtype of input and output: "f32", "f64", "f16", "bf16", "i32", "i64", "s8" or "u8". Of a gradient the first
        four.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    outer: int
    length: int
    inner: int
    element: str = "f32"

    operator: ClassVar[str] = "median"


@dataclass(frozen=True, slots=True)
class NanmedianDescriptor(MedianDescriptor):
    """Medians of what is no NaN; the fields are those of :class:`MedianDescriptor`."""

    operator: ClassVar[str] = "nanmedian"


@dataclass(frozen=True, slots=True)
class ModeDescriptor(MedianDescriptor):
    """The most frequent elements; the fields are those of :class:`MedianDescriptor`."""

    operator: ClassVar[str] = "mode"


@dataclass(frozen=True, slots=True)
class ValueSelectingReductionBackwardDescriptor(MedianDescriptor):
    """The gradient of an order statistic; the fields are those of :class:`MedianDescriptor`."""

    operator: ClassVar[str] = "value_selecting_reduction_backward"


class KthvaluePlan(Plan):
    """Tensors ``input`` [outer, length, inner], ``output`` and, in int64, ``indices`` [outer, inner]."""

    __slots__ = ()
    moves = True
    sums = False
    descriptor_type = KthvalueDescriptor
    category = "order"


class MedianPlan(Plan):
    """Tensors ``input`` [outer, length, inner], ``output`` and, in int64, ``indices`` [outer, inner]."""

    __slots__ = ()
    moves = True
    sums = False
    descriptor_type = MedianDescriptor
    category = "order"


class NanmedianPlan(Plan):
    """Tensors ``input`` [outer, length, inner], ``output`` and, in int64, ``indices`` [outer, inner]."""

    __slots__ = ()
    moves = True
    sums = False
    descriptor_type = NanmedianDescriptor
    category = "order"


class ModePlan(Plan):
    """Tensors ``input`` [outer, length, inner], ``output`` and, in int64, ``indices`` [outer, inner]."""

    __slots__ = ()
    moves = True
    sums = False
    descriptor_type = ModeDescriptor
    category = "order"


class ValueSelectingReductionBackwardPlan(Plan):
    """Tensors ``grad_output`` and, in int64, ``indices`` [outer, inner], ``grad_input`` [outer, length, inner]."""

    __slots__ = ()
    moves = True
    sums = False
    descriptor_type = ValueSelectingReductionBackwardDescriptor
    category = "order"


def reduced_shape(shape: tuple[int, ...], axis: int, keepdim: bool) -> tuple[int, ...]:
    """Without the axis, or with one element of it."""
    if not shape:
        return ()
    return (*shape[:axis], *((1,) if keepdim else ()), *shape[axis + 1 :])


_DESCRIPTORS: dict[str, Any] = {
    kind.operator: kind for kind in (KthvalueDescriptor, MedianDescriptor, NanmedianDescriptor, ModeDescriptor)
}


def _extents(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    return prod(shape[:axis]), shape[axis] if shape else 1, prod(shape[axis + 1 :])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    operator: str, device: int, shape: tuple[int, ...], dtype: str, dim: int, keepdim: bool, k: int | None = None
) -> Prepared:
    element = _call.element_of("input", dtype, (*FLOATS, *_INTEGERS))
    axis = _call.axis_of(shape, dim)
    rank = () if k is None else (k,)
    kernel = _call.kernel_for(_DESCRIPTORS[operator](*_extents(shape, axis), *rank, element), device)
    found = reduced_shape(shape, axis, keepdim)
    return Prepared(kernel, [Output(found, element, element), Output(found, "i64", "i64")])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    indices_shape: tuple[int, ...],
    indices_dtype: str,
    input_shape: tuple[int, ...],
    dim: int,
    keepdim: bool,
) -> Prepared:
    element = _call.element_of("grad_output", dtype)
    _call.element_of("indices", indices_dtype, ("i64",))
    axis = _call.axis_of(input_shape, dim)
    if any(extent < 0 for extent in input_shape):
        raise ValueError(f"input_shape is {input_shape}; wanted extents of at least 0")
    for name, shape in (("grad_output", grad_shape), ("indices", indices_shape)):
        _call.check_shape(name, shape, reduced_shape(input_shape, axis, keepdim))
    descriptor = ValueSelectingReductionBackwardDescriptor(*_extents(input_shape, axis), element)
    return Prepared(_call.kernel_for(descriptor, device), [Output(input_shape, element, element)])


def _pair(out: Any) -> Sequence[Any]:
    return _call.outs_of(out, ("values", "indices"), "a pair ")


def _select(
    operator: str, input: Any, dim: Any, keepdim: Any, out: Any, stream: Any, k: int | None = None
) -> tuple[Any, Any]:
    first = read("input", input, stream)
    axis, keeps = _call.whole("dim", dim), _call.flag("keepdim", keepdim)
    prepared = prepare(operator, first.device, first.shape, first.dtype, axis, keeps, k)
    values, indices = prepared.launch((first,), _pair(out), stream)
    return values, indices


def kthvalue(
    input: Any, k: int, dim: int = -1, keepdim: bool = False, *, out: Any = None, stream: Any = None
) -> tuple[Any, Any]:
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
    out : pair of arrays, optional
        Dense arrays that receive the values, in the input's dtype, and the indices, in int64. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    values, indices : array
        Of the input's kind and device; `out` if given.

    Raises
    ------
    TypeError
        If the input is no array or has another dtype.
    ValueError
        If there is no such axis, or `out` cannot be written.
    InvalidProblemError
        If the axis is empty, or `k` is less than 1 or more than its elements.

    Notes
    -----
    Of equal elements the lowest place counts, zeros of both signs being equal. NaNs are equal and larger than every
    number. Bits are moved, so that results are the same on every run, thread count, GPU and backend. Strided arrays
    are copied first. May be called from any number of threads.
    """
    return _select("kthvalue", input, dim, keepdim, out, stream, _call.whole("k", k))


def median(input: Any, dim: int = -1, keepdim: bool = False, *, out: Any = None, stream: Any = None) -> tuple[Any, Any]:
    """Find the median of each row along an axis, and where it is, as ``torch.median`` with an axis does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.
    out : pair of arrays, optional
        Dense arrays that receive the values, in the input's dtype, and the indices, in int64. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    values, indices : array
        Of the input's kind and device; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`kthvalue`.

    Notes
    -----
    Of an even number of elements it is the lower of both in the middle. A row with a NaN answers the first of them. Of
    equal elements the lowest place counts, zeros of both signs being equal. Bits are moved. Strided arrays are copied
    first. May be called from any number of threads.
    """
    return _select("median", input, dim, keepdim, out, stream)


def nanmedian(
    input: Any, dim: int = -1, keepdim: bool = False, *, out: Any = None, stream: Any = None
) -> tuple[Any, Any]:
    """Find the median of each row's elements that are no NaN, and where it is, as ``torch.nanmedian`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        Whether results have the axis, with one element.
    out : pair of arrays, optional
        Dense arrays that receive the values, in the input's dtype, and the indices, in int64. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    values, indices : array
        Of the input's kind and device; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`kthvalue`.

    Notes
    -----
    As :func:`median`; a row of NaNs alone answers the first of them. May be called from any number of threads.
    """
    return _select("nanmedian", input, dim, keepdim, out, stream)


def mode(input: Any, dim: int = -1, keepdim: bool = False, *, out: Any = None, stream: Any = None) -> tuple[Any, Any]:
    """Find the most frequent element of each row along an axis, and where it is, as ``torch.mode`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one; of fewer than 2**32 elements.
    keepdim : bool
        Whether results have the axis, with one element.
    out : pair of arrays, optional
        Dense arrays that receive the values, in the input's dtype, and the indices, in int64. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    values, indices : array
        Of the input's kind and device; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`kthvalue`.

    Notes
    -----
    Of several elements that are equally frequent it is the smallest, and the lowest place counts. Zeros of both signs
    are equal; a NaN is equal to nothing, another NaN included, and larger than every number. Bits are moved. Strided
    arrays are copied first. May be called from any number of threads.
    """
    return _select("mode", input, dim, keepdim, out, stream)


def value_selecting_reduction_backward(
    grad_output: Any,
    indices: Any,
    input_shape: Sequence[int],
    dim: int = -1,
    keepdim: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`kthvalue`, :func:`median`, :func:`nanmedian` and :func:`mode`.

    Parameters
    ----------
    grad_output : array
        Gradient of the values in float32, float64, float16 or bfloat16.
    indices : array
        The forward call's, in int64.
    input_shape : sequence of int
        The forward's input's.
    dim : int
        The axis, negative from the last one.
    keepdim : bool
        The forward call's.
    out : array, optional
        Dense array of the gradient's dtype and device that receives the result; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        [*input_shape] of the gradient's kind, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError
        As :func:`kthvalue`, and if shapes do not fit.

    Notes
    -----
    A row's gradient goes to the element that its index names, all others have 0. An index outside of its row names
    nothing. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    second = read("indices", indices, stream, first)
    shape = _call.whole_tuple("input_shape", input_shape)
    axis, keeps = _call.whole("dim", dim), _call.flag("keepdim", keepdim)
    given = (first.shape, first.dtype, second.shape, second.dtype)
    prepared = prepare_backward(first.device, *given, shape, axis, keeps)
    return prepared.launch((first, second), (out,), stream)[0]
