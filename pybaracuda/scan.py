# SPDX-License-Identifier: Apache-2.0
"""Scans along an axis: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._arrays import Operand, read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._dtypes import FLOATS
from ._plan import Plan

__all__ = [
    "CummaxDescriptor",
    "CummaxPlan",
    "CummaxminBackwardDescriptor",
    "CummaxminBackwardPlan",
    "CumminDescriptor",
    "CumminPlan",
    "CumprodBackwardDescriptor",
    "CumprodBackwardPlan",
    "CumprodDescriptor",
    "CumprodPlan",
    "CumsumDescriptor",
    "CumsumPlan",
    "LogcumsumexpBackwardDescriptor",
    "LogcumsumexpBackwardPlan",
    "LogcumsumexpDescriptor",
    "LogcumsumexpPlan",
    "cummax",
    "cummaxmin_backward",
    "cummin",
    "cumprod",
    "cumprod_backward",
    "cumsum",
    "logcumsumexp",
    "logcumsumexp_backward",
]

# The integers that are summed and multiplied, which wrap around, and those that are compared besides.
_INTEGERS = ("i32", "i64")
_BYTES = ("s8", "u8")


@dataclass(frozen=True, slots=True)
class CumsumDescriptor(Descriptor):
    """A cumulative sum along the middle axis of [outer, length, inner].

    Parameters
    ----------
    outer, length, inner : int
        Elements before the axis, along it and behind it.
    reverse : int
        1: from the axis's end to its begin; 0: from its begin to its end. Of a gradient, the forward's.
    element : str
        Dtype of all tensors but indices: "f32", "f64", "f16" or "bf16"; of sums and products also "i32" and "i64", of
        maxima and minima "s8" and "u8", too.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    outer: int
    length: int
    inner: int
    reverse: int = 0
    element: str = "f32"

    operator: ClassVar[str] = "cumsum"


@dataclass(frozen=True, slots=True)
class CumprodDescriptor(CumsumDescriptor):
    """A cumulative product; the fields are those of :class:`CumsumDescriptor`."""

    operator: ClassVar[str] = "cumprod"


@dataclass(frozen=True, slots=True)
class CumprodBackwardDescriptor(CumsumDescriptor):
    """The gradient of a cumulative product; the fields are those of :class:`CumsumDescriptor`."""

    operator: ClassVar[str] = "cumprod_backward"


@dataclass(frozen=True, slots=True)
class LogcumsumexpDescriptor(CumsumDescriptor):
    """A cumulative log-sum-exp; the fields are those of :class:`CumsumDescriptor`."""

    operator: ClassVar[str] = "logcumsumexp"


@dataclass(frozen=True, slots=True)
class LogcumsumexpBackwardDescriptor(CumsumDescriptor):
    """The gradient of a cumulative log-sum-exp; the fields are those of :class:`CumsumDescriptor`."""

    operator: ClassVar[str] = "logcumsumexp_backward"


@dataclass(frozen=True, slots=True)
class CummaxDescriptor(CumsumDescriptor):
    """Cumulative maxima; the fields are those of :class:`CumsumDescriptor`."""

    operator: ClassVar[str] = "cummax"


@dataclass(frozen=True, slots=True)
class CumminDescriptor(CumsumDescriptor):
    """Cumulative minima; the fields are those of :class:`CumsumDescriptor`."""

    operator: ClassVar[str] = "cummin"


@dataclass(frozen=True, slots=True)
class CummaxminBackwardDescriptor(CumsumDescriptor):
    """The gradient of cumulative maxima or minima; the fields are those of :class:`CumsumDescriptor`."""

    operator: ClassVar[str] = "cummaxmin_backward"


class CumsumPlan(Plan):
    """Tensors ``input`` and ``output`` [outer, length, inner]."""

    __slots__ = ()
    descriptor_type = CumsumDescriptor
    category = "scan"


class CumprodPlan(Plan):
    """Tensors ``input`` and ``output`` [outer, length, inner]."""

    __slots__ = ()
    sums = False
    descriptor_type = CumprodDescriptor
    category = "scan"


class CumprodBackwardPlan(Plan):
    """Tensors ``grad_output``, ``input``, ``output`` and ``grad_input`` [outer, length, inner]."""

    __slots__ = ()
    descriptor_type = CumprodBackwardDescriptor
    category = "scan"


class LogcumsumexpPlan(Plan):
    """Tensors ``input`` and ``output`` [outer, length, inner]."""

    __slots__ = ()
    descriptor_type = LogcumsumexpDescriptor
    category = "scan"


class LogcumsumexpBackwardPlan(Plan):
    """Tensors ``grad_output``, ``input``, ``output`` and ``grad_input`` [outer, length, inner]."""

    __slots__ = ()
    descriptor_type = LogcumsumexpBackwardDescriptor
    category = "scan"


class CummaxPlan(Plan):
    """Tensors ``input``, ``output`` and, in int64, ``indices`` [outer, length, inner]."""

    __slots__ = ()
    moves = True
    sums = False
    descriptor_type = CummaxDescriptor
    category = "scan"


class CumminPlan(Plan):
    """Tensors ``input``, ``output`` and, in int64, ``indices`` [outer, length, inner]."""

    __slots__ = ()
    moves = True
    sums = False
    descriptor_type = CumminDescriptor
    category = "scan"


class CummaxminBackwardPlan(Plan):
    """Tensors ``grad_output``, ``indices`` in int64 and ``grad_input`` [outer, length, inner]."""

    __slots__ = ()
    descriptor_type = CummaxminBackwardDescriptor
    category = "scan"


_DESCRIPTORS: dict[str, Any] = {
    kind.operator: kind
    for kind in (
        CumsumDescriptor,
        CumprodDescriptor,
        CumprodBackwardDescriptor,
        LogcumsumexpDescriptor,
        LogcumsumexpBackwardDescriptor,
        CummaxDescriptor,
        CumminDescriptor,
        CummaxminBackwardDescriptor,
    )
}


def _descriptor(operator: str, shape: tuple[int, ...], dim: int, reverse: bool, element: str) -> Descriptor:
    axis = _call.axis_of(shape, dim)
    length = shape[axis] if shape else 1
    found: Descriptor = _DESCRIPTORS[operator](
        prod(shape[:axis]), length, prod(shape[axis + 1 :]), int(reverse), element
    )
    return found


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(operator: str, device: int, shape: tuple[int, ...], dtype: str, dim: int, reverse: bool) -> Prepared:
    has_indices = operator in ("cummax", "cummin")
    integers = () if operator == "logcumsumexp" else (*_INTEGERS, *_BYTES) if has_indices else _INTEGERS
    element = _call.element_of("input", dtype, (*FLOATS, *integers))
    kernel = _call.kernel_for(_descriptor(operator, shape, dim, reverse, element), device)
    outputs = [Output(shape, element, element)]
    if has_indices:
        return Prepared(kernel, [*outputs, Output(shape, "i64", "i64")])
    return Prepared(kernel, outputs, in_place=0)


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    operator: str,
    device: int,
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, ...],
    dim: int,
    reverse: bool,
) -> Prepared:
    names = ("grad_output", "indices") if operator == "cummaxmin_backward" else ("grad_output", "input", "output")
    element = _call.element_of("grad_output", dtypes[0])
    for name, shape, dtype in zip(names[1:], shapes[1:], dtypes[1:], strict=True):
        _call.element_of(name, dtype, ("i64",) if name == "indices" else (element,))
        _call.check_shape(name, shape, shapes[0])
    kernel = _call.kernel_for(_descriptor(operator, shapes[0], dim, reverse, element), device)
    return Prepared(kernel, [Output(shapes[0], element, element)])


def _scan(operator: str, input: Any, dim: Any, reverse: Any, outs: Sequence[Any], stream: Any) -> Any:
    first = read("input", input, stream)
    axis, backwards = _call.whole("dim", dim), _call.flag("reverse", reverse)
    prepared = prepare(operator, first.device, first.shape, first.dtype, axis, backwards)
    return prepared.launch((first,), outs, stream)


def _scan_backward(operator: str, operands: tuple[Operand, ...], dim: Any, reverse: Any, out: Any, stream: Any) -> Any:
    axis, backwards = _call.whole("dim", dim), _call.flag("reverse", reverse)
    shapes, dtypes = tuple(each.shape for each in operands), tuple(each.dtype for each in operands)
    prepared = prepare_backward(operator, operands[0].device, shapes, dtypes, axis, backwards)
    return prepared.launch(operands, (out,), stream)[0]


def _pair(out: Any) -> Sequence[Any]:
    return _call.outs_of(out, ("values", "indices"), "a pair ")


def cumsum(input: Any, dim: int, *, reverse: bool = False, out: Any = None, stream: Any = None) -> Any:
    """Sum up to each element along an axis, as ``torch.cumsum`` and ``jax.lax.cumsum`` do.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int32 or int64. Integers keep their dtype and wrap around.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.
    out : array, optional
        Dense array of the input's dtype and device that receives the result; fully overwritten. It may
        be the input itself. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, shape, dtype and device; `out` if given. torch tensors come back without a gradient
        function.

    Raises
    ------
    TypeError
        If the input is no array or has another dtype.
    ValueError
        If there is no such axis, or `out` cannot be written.

    Notes
    -----
    The gradient is :func:`cumsum` of the result's, the other way. Sums of what is not negative never descend. f16 and
    bf16 are summed in float32 and rounded once.

    The order of joins is part of the definition: along the scan a row is cut into tiles of 8192 elements and these into
    blocks of 128, which are halved down to single elements. So the same inputs give the same bits on every run, thread
    count, GPU and backend, and a row alone gives what it gives among others. Strided arrays are copied first. May be
    called from any number of threads.
    """
    return _scan("cumsum", input, dim, reverse, (out,), stream)[0]


def cumprod(input: Any, dim: int, *, reverse: bool = False, out: Any = None, stream: Any = None) -> Any:
    """Multiply up to each element along an axis, as ``torch.cumprod`` and ``jax.lax.cumprod`` do.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int32 or int64. Integers keep their dtype and wrap around.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.
    out : array, optional
        Dense array of the input's dtype and device that receives the result; fully overwritten. It may
        be the input itself. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, shape, dtype and device; `out` if given. torch tensors come back without a gradient
        function.

    Raises
    ------
    TypeError
        If the input is no array or has another dtype.
    ValueError
        If there is no such axis, or `out` cannot be written.

    Notes
    -----
    f16 and bf16 are multiplied in float32 and rounded once.

    The order of joins is part of the definition: along the scan a row is cut into tiles of 8192 elements and these into
    blocks of 128, which are halved down to single elements. So the same inputs give the same bits on every run, thread
    count, GPU and backend, and a row alone gives what it gives among others. Strided arrays are copied first. May be
    called from any number of threads.
    """
    return _scan("cumprod", input, dim, reverse, (out,), stream)[0]


def logcumsumexp(input: Any, dim: int, *, reverse: bool = False, out: Any = None, stream: Any = None) -> Any:
    """Take logarithms of the sums of exponentials up to each element along an axis, as ``torch.logcumsumexp`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16 or bfloat16.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.
    out : array, optional
        Dense array of the input's dtype and device that receives the result; fully overwritten. It may
        be the input itself. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, shape, dtype and device; `out` if given. torch tensors come back without a gradient
        function.

    Raises
    ------
    TypeError
        If the input is no array or has another dtype.
    ValueError
        If there is no such axis, or `out` cannot be written.

    Notes
    -----
    Sums are of e^(x - m), where m is the maximum up to the element. f16 and bf16 are computed with in float32.

    The order of joins is part of the definition: along the scan a row is cut into tiles of 8192 elements and these into
    blocks of 128, which are halved down to single elements. So the same inputs give the same bits on every run, thread
    count, GPU and backend, and a row alone gives what it gives among others. Strided arrays are copied first. May be
    called from any number of threads.
    """
    return _scan("logcumsumexp", input, dim, reverse, (out,), stream)[0]


def cumprod_backward(
    grad_output: Any, input: Any, output: Any, dim: int, *, reverse: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`cumprod` with respect to its input.

    Parameters
    ----------
    grad_output : array
        Gradient of the output in float32, float64, float16 or bfloat16.
    input, output : array
        The forward call's, of the gradient's shape and dtype.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        The forward call's.
    out : array, optional
        Dense array of the gradient's dtype and device that receives the result; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        Of the gradient's kind, shape, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError
        As :func:`cumprod`, and if shapes or dtypes differ.

    Notes
    -----
    Nothing is divided, so that the gradient is right with any number of zeros. May be called from any number of
    threads.
    """
    first = read("grad_output", grad_output, stream)
    others = read("input", input, stream, first), read("output", output, stream, first)
    return _scan_backward("cumprod_backward", (first, *others), dim, reverse, out, stream)


def logcumsumexp_backward(
    grad_output: Any, input: Any, output: Any, dim: int, *, reverse: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`logcumsumexp` with respect to its input.

    Parameters
    ----------
    grad_output : array
        Gradient of the output in float32, float64, float16 or bfloat16.
    input, output : array
        The forward call's, of the gradient's shape and dtype.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        The forward call's.
    out : array, optional
        Dense array of the gradient's dtype and device that receives the result; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        Of the gradient's kind, shape, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError
        As :func:`logcumsumexp`, and if shapes or dtypes differ.

    Notes
    -----
    An input of -infinity has the gradient 0. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    others = read("input", input, stream, first), read("output", output, stream, first)
    return _scan_backward("logcumsumexp_backward", (first, *others), dim, reverse, out, stream)


def cummax(input: Any, dim: int, *, reverse: bool = False, out: Any = None, stream: Any = None) -> tuple[Any, Any]:
    """Find the largest element up to each element along an axis, and where it is, as ``torch.cummax`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.
    out : pair of arrays, optional
        Dense arrays that receive the values, in the input's dtype, and the indices, in int64. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    values, indices : array
        Of the input's kind, shape and device; `out` if given. Indices count from the axis's begin, also in reverse.

    Raises
    ------
    TypeError, ValueError
        As :func:`cumsum`.

    Notes
    -----
    Of equal elements the last along the scan wins, and a NaN wins over all numbers. Bits are moved. Strided arrays are
    copied first. May be called from any number of threads.
    """
    values, indices = _scan("cummax", input, dim, reverse, _pair(out), stream)
    return values, indices


def cummin(input: Any, dim: int, *, reverse: bool = False, out: Any = None, stream: Any = None) -> tuple[Any, Any]:
    """Find the smallest element up to each element along an axis, and where it is, as ``torch.cummin`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.
    out : pair of arrays, optional
        Dense arrays that receive the values, in the input's dtype, and the indices, in int64. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    values, indices : array
        Of the input's kind, shape and device; `out` if given. Indices count from the axis's begin, also in reverse.

    Raises
    ------
    TypeError, ValueError
        As :func:`cumsum`.

    Notes
    -----
    Of equal elements the last along the scan wins, and a NaN wins over all numbers. Bits are moved. Strided arrays are
    copied first. May be called from any number of threads.
    """
    values, indices = _scan("cummin", input, dim, reverse, _pair(out), stream)
    return values, indices


def cummaxmin_backward(
    grad_output: Any, indices: Any, dim: int, *, reverse: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`cummax` or :func:`cummin` with respect to their input.

    Parameters
    ----------
    grad_output : array
        Gradient of the values in float32, float64, float16 or bfloat16.
    indices : array
        The forward call's, int64.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        The forward call's.
    out : array, optional
        Dense array of the gradient's dtype and device that receives the result; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        Of the gradient's kind, shape, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError
        As :func:`cumsum`, and if shapes differ.

    Notes
    -----
    An element's gradient is the sum over those that have its index without a gap, in the order of :func:`cumsum`.
    Indices that no forward call made are never followed. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    places = read("indices", indices, stream, first)
    return _scan_backward("cummaxmin_backward", (first, places), dim, reverse, out, stream)
