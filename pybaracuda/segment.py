# SPDX-License-Identifier: Apache-2.0
"""Segment reductions: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._abi import OPERATORS, Tensor
from ._arrays import Operand, read
from ._call import FLOATS, MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._errors import InvalidProblemError, UnsupportedError
from ._plan import Plan

__all__ = [
    "SegmentDescriptor",
    "SegmentPlan",
    "SegmentSelectionDescriptor",
    "SegmentSelectionPlan",
    "UnsortedSegmentMaxBackwardDescriptor",
    "UnsortedSegmentMaxBackwardPlan",
    "UnsortedSegmentMaxDescriptor",
    "UnsortedSegmentMaxPlan",
    "gather_csr",
    "segment_csr",
    "segment_csr_backward",
    "segment_gather",
    "segment_logsumexp",
    "segment_logsumexp_backward",
    "segment_max",
    "segment_max_backward",
    "segment_mean",
    "segment_mean_backward",
    "segment_min",
    "segment_min_backward",
    "segment_prod",
    "segment_prod_backward",
    "segment_softmax",
    "segment_softmax_backward",
    "segment_sum",
    "segment_sum_backward",
    "unsorted_segment_max",
    "unsorted_segment_max_backward",
]

_INTEGERS = ("s8", "u8", "s16", "u16", "i32", "u32", "i64", "u64")
# What ids of a dtype are converted to; None is native. uint64 ids from 2**63 on become negative: out of range, dropped.
_ID_CASTS = {"i32": None, "i64": None, "s8": "i32", "u8": "i32", "s16": "i32", "u16": "i32", "u32": "i64", "u64": "i64"}


@dataclass(frozen=True, slots=True)
class _SegmentProblem(Descriptor):
    """What both directions of a segment maximum are described by."""

    num_inputs: int
    embedding_dim: int
    num_segments: int
    element: str = "f32"
    index_element: str = "i32"

    @property
    def aux_element(self) -> str:
        """Dtype token of the ids."""
        return self.index_element

    @property
    def variant(self) -> str:
        """The dtype suffix of the C functions."""
        return self.element if self.index_element == "i32" else f"{self.index_element}idx_{self.element}"


@dataclass(frozen=True, slots=True)
class UnsortedSegmentMaxDescriptor(_SegmentProblem):
    """A segment maximum.

    Parameters
    ----------
    num_inputs : int
        Rows of the input.
    embedding_dim : int
        Columns.
    num_segments : int
        Rows of the output.
    element : {"f32", "f64", "f16", "bf16"}
    index_element : {"i32", "i64"}
        Dtype of the ids.
    """

    operator: ClassVar[str] = "unsorted_segment_max"


@dataclass(frozen=True, slots=True)
class UnsortedSegmentMaxBackwardDescriptor(_SegmentProblem):
    """The gradient of a segment maximum; the fields are those of :class:`UnsortedSegmentMaxDescriptor`."""

    operator: ClassVar[str] = "unsorted_segment_max_backward"


class UnsortedSegmentMaxPlan(Plan):
    """Tensors ``input`` [num_inputs, embedding_dim], ``segment_ids`` [num_inputs], ``output``."""

    __slots__ = ()
    descriptor_type = UnsortedSegmentMaxDescriptor
    category = "segment"
    sums = False
    moves = True


class UnsortedSegmentMaxBackwardPlan(Plan):
    """Tensors ``grad_output`` [num_segments, embedding_dim], ``input``, ``segment_ids`` and ``grad_input``."""

    __slots__ = ()
    descriptor_type = UnsortedSegmentMaxBackwardDescriptor
    category = "segment"
    sums = False
    moves = True


# The operators of each form of an index begin so.
_PREFIXES = {"unsorted": "unsorted_segment", "sorted": "segment", "csr": "segment_csr"}
_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp")
_OF_INTEGERS = ("sum", "max", "min", "prod")


@dataclass(frozen=True, slots=True)
class _AnySegmentProblem(Descriptor):
    """What every segment operator is described by."""

    operation: str
    num_rows: int
    embedding_dim: int
    num_segments: int
    form: str = "unsorted"
    element: str = "f32"
    index_element: str = "i32"

    # Not a dataclass field: it follows from the others.
    @property
    def operator(self) -> str:  # type: ignore[override]
        """Name of the C functions without their dtypes."""
        if self.form not in _PREFIXES:
            raise InvalidProblemError(f"segment: form is {self.form!r}; wanted one of {', '.join(_PREFIXES)}")
        name = "segment_gather" if self.operation == "gather" else f"{_PREFIXES[self.form]}_{self.operation}"
        if name not in OPERATORS:
            raise UnsupportedError(f"segment: there is no operation {self.operation!r} of {self.form} segments")
        return name

    @property
    def num_inputs(self) -> int:
        """The rows, by the name that they have beside ids."""
        return self.num_rows

    @property
    def aux_element(self) -> str:
        """Dtype token of the ids or offsets."""
        return self.index_element

    @property
    def variant(self) -> str:
        """The dtype suffix of the C functions."""
        return self.element if self.index_element == "i32" else f"{self.index_element}idx_{self.element}"


@dataclass(frozen=True, slots=True)
class SegmentDescriptor(_AnySegmentProblem):
    """A segment operation that computes.

    Parameters
    ----------
    operation : str
        sum, mean, prod, logsumexp or softmax, or one of them and ``_backward``; max_even_backward, min_even_backward.
    num_rows, embedding_dim, num_segments : int
    form : {"unsorted", "sorted", "csr"}
        Ids in any order, ids that never descend, or offsets.
    element : str
        f32, f64, f16, bf16; for sum and prod also i32 and i64.
    index_element : {"i32", "i64"}
        Dtype of the ids or offsets.
    """


@dataclass(frozen=True, slots=True)
class SegmentSelectionDescriptor(_AnySegmentProblem):
    """A segment operation that only moves bits: max, min, either and ``_with_arg``, their backward, gather.

    The other fields are those of :class:`SegmentDescriptor`; integers go for max and min.
    """


class SegmentPlan(Plan):
    """The tensors' names are those of the C functions, in their order."""

    __slots__ = ()
    descriptor_type = SegmentDescriptor
    category = "segment"


class SegmentSelectionPlan(Plan):
    """The tensors' names are those of the C functions, in their order."""

    __slots__ = ()
    descriptor_type = SegmentSelectionDescriptor
    category = "segment"
    sums = False
    moves = True


_MOVES = (
    "max",
    "min",
    "max_with_arg",
    "min_with_arg",
    "max_backward",
    "min_backward",
    "max_with_arg_backward",
    "min_with_arg_backward",
    "sum_backward",
    "gather",
)


def _check_rows(shape: tuple[int, ...], ids_shape: tuple[int, ...], ids_dtype: str) -> tuple[int, int, str, str | None]:
    """Check rows and ids; answer rows, columns, the ids' dtype in the kernel and their conversion."""
    if not shape:
        raise ValueError("input has shape (); wanted [N, ...]")
    _call.element_of("segment_ids", ids_dtype, tuple(_ID_CASTS))
    _call.check_shape("segment_ids", ids_shape, shape[:1])
    cast = _ID_CASTS[ids_dtype]
    return shape[0], prod(shape[1:]), cast or ids_dtype, cast


@lru_cache(maxsize=MOST_COMBINATIONS)
def _prepare(
    device: int, shape: tuple[int, ...], dtype: str, ids_shape: tuple[int, ...], ids_dtype: str, num_segments: int
) -> Prepared:
    element = _call.element_of("input", dtype, FLOATS, _INTEGERS)
    rows, columns, index, cast = _check_rows(shape, ids_shape, ids_dtype)
    if num_segments < 0:
        raise ValueError(f"num_segments is {num_segments}; wanted at least 0")
    descriptor = UnsortedSegmentMaxDescriptor(rows, columns, num_segments, element, index)
    plan = _call.prepare(UnsortedSegmentMaxPlan, descriptor, device)
    return Prepared(plan, [Output((num_segments, *shape[1:]), element, element)], casts=(None, cast))


@lru_cache(maxsize=MOST_COMBINATIONS)
def _prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    grad_dtype: str,
    shape: tuple[int, ...],
    dtype: str,
    ids_shape: tuple[int, ...],
    ids_dtype: str,
) -> Prepared:
    element = _call.element_of("input", dtype, FLOATS, _INTEGERS)
    rows, columns, index, cast = _check_rows(shape, ids_shape, ids_dtype)
    _call.element_of("grad_output", grad_dtype, (element,), why=", the dtype of input")
    if len(grad_shape) != len(shape) or grad_shape[1:] != shape[1:]:
        raise ValueError(f"grad_output has shape {grad_shape}; wanted [num_segments, ...] and then {shape[1:]}")
    descriptor = UnsortedSegmentMaxBackwardDescriptor(rows, columns, grad_shape[0], element, index)
    plan = _call.prepare(UnsortedSegmentMaxBackwardPlan, descriptor, device)
    return Prepared(plan, [Output(shape, element, element)], casts=(None, None, cast))


def unsorted_segment_max(
    input: Any, segment_ids: Any, num_segments: int, *, out: Any = None, stream: Any = None
) -> Any:
    """Take the maximum over the rows of each segment, as ``jax.ops.segment_max`` does.

    Parameters
    ----------
    input : array, [N, ...]
        Rows in float32, float64, float16 or bfloat16.
    segment_ids : array, [N]
        Segment of each row, in any order: int32 or int64; other integers are converted by a copy. Rows whose id lies
        outside [0, num_segments) are dropped.
    num_segments : int
        Rows of the result.
    out : array, [num_segments, ...], optional
        Dense array of the input's dtype and device. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [num_segments, ...]
        Of the input's kind, dtype and device; `out` if given. A segment without rows is -infinity.

    Raises
    ------
    UnsupportedError
        For integer input, which is not wired yet.
    TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    NaN is larger than every number, -0 equals +0, and among equals the first row wins; the winner's bits are copied.
    Strided arrays are copied first. Bit-stable on every run, thread count, GPU and backend. May be called from any
    number of threads.

    Defined by jax.ops.segment_max 0.10 for empty segments and tf.math.unsorted_segment_max for the rest.
    """
    rows = read("input", input, stream)
    ids = read("segment_ids", segment_ids, stream, rows)
    count = _call.whole("num_segments", num_segments)
    prepared = _prepare(rows.device, rows.shape, rows.dtype, ids.shape, ids.dtype, count)
    return prepared.launch((rows, ids), (out,), stream)[0]


def unsorted_segment_max_backward(
    grad_output: Any, input: Any, segment_ids: Any, *, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`unsorted_segment_max`: each segment's goes to the first row with its maximum.

    Parameters
    ----------
    grad_output : array, [num_segments, ...]
        Gradient of the maxima, in the dtype of `input`.
    input, segment_ids
        As in the forward call.
    out : array, [N, ...], optional
        Dense array of the input's shape, dtype and device; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [N, ...]
        Of the gradient's kind; rows that were dropped get 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        As :func:`unsorted_segment_max`.

    Notes
    -----
    Gradients are copied bit for bit. A tie is not split: its first row takes the whole (PyTorch, JAX and TensorFlow
    split it evenly). May be called from any number of threads.
    """
    gradient = read("grad_output", grad_output, stream)
    rows = read("input", input, stream, gradient)
    ids = read("segment_ids", segment_ids, stream, gradient)
    prepared = _prepare_backward(
        gradient.device, gradient.shape, gradient.dtype, rows.shape, rows.dtype, ids.shape, ids.dtype
    )
    return prepared.launch((gradient, rows, ids), (out,), stream)[0]


@lru_cache(maxsize=MOST_COMBINATIONS)
def _prepare_any(
    device: int,
    operation: str,
    form: str,
    count: int | None,
    rows: int | None,
    names: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, ...],
) -> Prepared:
    """Check the arrays of any operation, in the order of the C arguments; `names` are those of the C tensors."""
    arrays = dict(zip(names, zip(shapes, dtypes, strict=True), strict=True))
    index_name = "offsets" if form == "csr" else "segment_ids"
    index_shape, index_dtype = arrays[index_name]
    _call.element_of(index_name, index_dtype, tuple(_ID_CASTS))
    cast = _ID_CASTS[index_dtype]
    _call.check_rank(index_name, index_shape, "[num_segments + 1]" if form == "csr" else "[N]", 1)
    if form == "csr":
        if not index_shape[0]:
            raise ValueError("offsets has shape (0,); wanted [num_segments + 1]")
        count = index_shape[0] - 1
    operator = OPERATORS["segment_gather" if operation == "gather" else f"{_PREFIXES[form]}_{operation}"]
    by_rows = {
        parameter.name: parameter.shape[0] != "num_segments"
        for parameter in operator.parameters
        if isinstance(parameter, Tensor) and len(parameter.shape) == 2
    }
    first = names[0]
    element = _call.element_of(
        first,
        arrays[first][1],
        ("f32", "f64", "f16", "bf16", "i32", "i64") if operation in _OF_INTEGERS else FLOATS,
        _INTEGERS,
    )
    if form != "csr":
        rows = index_shape[0]
    trailing: tuple[int, ...] | None = None
    for name in names:
        shape, dtype = arrays[name]
        if name == index_name:
            continue
        if name == "arg":
            _call.element_of("arg", dtype, (cast or index_dtype,), why=f", the dtype of {index_name}")
        else:
            _call.element_of(name, dtype, (element,), why=f", the dtype of {first}")
        what = "N" if by_rows[name] else "num_segments"
        if not shape:
            raise ValueError(f"{name} has shape (); wanted [{what}, ...]")
        trailing = shape[1:] if trailing is None else trailing
        if by_rows[name]:
            rows = shape[0] if rows is None else rows
        else:
            count = shape[0] if count is None else count
        wanted = (rows if by_rows[name] else count, *trailing)
        if shape != wanted:
            raise ValueError(f"{name} has shape {shape}; wanted {wanted}")
    if count is None or rows is None or trailing is None:
        raise ValueError(f"num_rows: {operation} of offsets needs it")
    if count < 0:
        raise ValueError(f"num_segments is {count}; wanted at least 0")
    kind, plan_type = (
        (SegmentSelectionDescriptor, SegmentSelectionPlan) if operation in _MOVES else (SegmentDescriptor, SegmentPlan)
    )
    index = cast or index_dtype
    plan = _call.prepare(plan_type, kind(operation, rows, prod(trailing), count, form, element, index), device)
    outputs = []
    for parameter in operator.parameters:
        if isinstance(parameter, Tensor) and parameter.role == "output":
            dtype = index if parameter.name == "arg" else element
            outputs.append(Output((rows if by_rows[parameter.name] else count, *trailing), dtype, dtype))
    return Prepared(plan, outputs, casts=tuple(cast if name == index_name else None for name in names))


def _run(
    operation: str,
    arrays: dict[str, Any],
    *,
    form: str,
    out: Any,
    stream: Any,
    num_segments: Any = None,
    rows: int | None = None,
) -> Any:
    """Run an operation on arrays named as the C tensors, in their order."""
    operands: list[Operand] = []
    for name, array in arrays.items():
        operands.append(read(name, array, stream, operands[0] if operands else None))
    count = None if num_segments is None else _call.whole("num_segments", num_segments)
    prepared = _prepare_any(
        operands[0].device,
        operation,
        form,
        count,
        rows,
        tuple(arrays),
        tuple(operand.shape for operand in operands),
        tuple(operand.dtype for operand in operands),
    )
    if len(prepared.outputs) == 1:
        return prepared.launch(tuple(operands), (out,), stream)[0]
    outs = (None, None) if out is None else tuple(out)
    if len(outs) != len(prepared.outputs):
        raise ValueError(f"out has {len(outs)} entries; wanted {len(prepared.outputs)}")
    return tuple(prepared.launch(tuple(operands), outs, stream))


def _form(indices_are_sorted: Any) -> str:
    return "sorted" if _call.flag("indices_are_sorted", indices_are_sorted) else "unsorted"


def _with_arg(operation: str, return_arg: Any) -> str:
    return f"{operation}_with_arg" if _call.flag("return_arg", return_arg) else operation


def _selection_backward(operation: str, arrays: dict[str, Any], arg: Any, ties: str) -> tuple[str, dict[str, Any]]:
    """Choose the gradient of a maximum or minimum: by the rows given, or by the rows' values."""
    if ties not in ("first", "even"):
        raise ValueError(f"ties is {ties!r}; wanted 'first' or 'even'")
    if arg is None:
        if arrays["input"] is None:
            raise TypeError("input: wanted an array, or arg")
        return (f"{operation}_even_backward" if ties == "even" else f"{operation}_backward"), {
            name: array for name, array in arrays.items() if name != "arg"
        }
    if ties == "even":
        raise ValueError("arg: one row of a tie is known; ties='even' needs input alone")
    return f"{operation}_with_arg_backward", {name: array for name, array in arrays.items() if name != "input"}


def segment_sum(
    input: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Sum the rows of each segment, as ``jax.ops.segment_sum`` does.

    Parameters
    ----------
    input : array, [N, ...]
        Rows in float32, float64, float16, bfloat16, int32 or int64.
    segment_ids : array, [N]
        Segment of each row: int32 or int64; other integers are converted by a copy. Rows whose id lies outside
        [0, num_segments) are dropped.
    num_segments : int
    indices_are_sorted : bool
        Promise that the ids never descend, which spares the sort. Broken, results are unspecified.
    out : array or pair of arrays, optional
        Dense, of the result's shape and dtype. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [num_segments, ...]
        A segment without rows is 0. float16 and bfloat16 are summed in float32; integers wrap around.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    return _run(
        "sum",
        {"input": input, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
        num_segments=num_segments,
    )


def segment_mean(
    input: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Average the rows of each segment.

    Parameters
    ----------
    input : array, [N, ...]
        Rows in float32, float64, float16, bfloat16.
    segment_ids : array, [N]
        Segment of each row: int32 or int64; other integers are converted by a copy. Rows whose id lies outside
        [0, num_segments) are dropped.
    num_segments : int
    indices_are_sorted : bool
        Promise that the ids never descend, which spares the sort. Broken, results are unspecified.
    out : array or pair of arrays, optional
        Dense, of the result's shape and dtype. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [num_segments, ...]
        A segment without rows is 0. The divisor is an integer count.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    return _run(
        "mean",
        {"input": input, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
        num_segments=num_segments,
    )


def segment_max(
    input: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    return_arg: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the maximum over the rows of each segment, as ``jax.ops.segment_max`` does.

    Parameters
    ----------
    input : array, [N, ...]
        Rows in float32, float64, float16, bfloat16, int32 or int64.
    segment_ids : array, [N]
        Segment of each row: int32 or int64; other integers are converted by a copy. Rows whose id lies outside
        [0, num_segments) are dropped.
    num_segments : int
    indices_are_sorted : bool
        Promise that the ids never descend, which spares the sort. Broken, results are unspecified.
    return_arg : bool
        Whether to answer also the row that holds each value, in the dtype of the ids; -1 for a segment without rows.
    out : array or pair of arrays, optional
        Dense, of the result's shape and dtype. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [num_segments, ...], or that and the rows
        A segment without rows is -infinity, or the lowest integer. NaN wins; among equals the first row does.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    return _run(
        _with_arg("max", return_arg),
        {"input": input, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
        num_segments=num_segments,
    )


def segment_min(
    input: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    return_arg: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the minimum over the rows of each segment, as ``jax.ops.segment_min`` does.

    Parameters
    ----------
    input : array, [N, ...]
        Rows in float32, float64, float16, bfloat16, int32 or int64.
    segment_ids : array, [N]
        Segment of each row: int32 or int64; other integers are converted by a copy. Rows whose id lies outside
        [0, num_segments) are dropped.
    num_segments : int
    indices_are_sorted : bool
        Promise that the ids never descend, which spares the sort. Broken, results are unspecified.
    return_arg : bool
        Whether to answer also the row that holds each value, in the dtype of the ids; -1 for a segment without rows.
    out : array or pair of arrays, optional
        Dense, of the result's shape and dtype. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [num_segments, ...], or that and the rows
        A segment without rows is infinity, or the highest integer. NaN wins; among equals the first row does.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    return _run(
        _with_arg("min", return_arg),
        {"input": input, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
        num_segments=num_segments,
    )


def segment_prod(
    input: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Multiply the rows of each segment, as ``jax.ops.segment_prod`` does.

    Parameters
    ----------
    input : array, [N, ...]
        Rows in float32, float64, float16, bfloat16, int32 or int64.
    segment_ids : array, [N]
        Segment of each row: int32 or int64; other integers are converted by a copy. Rows whose id lies outside
        [0, num_segments) are dropped.
    num_segments : int
    indices_are_sorted : bool
        Promise that the ids never descend, which spares the sort. Broken, results are unspecified.
    out : array or pair of arrays, optional
        Dense, of the result's shape and dtype. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [num_segments, ...]
        A segment without rows is 1.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    return _run(
        "prod",
        {"input": input, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
        num_segments=num_segments,
    )


def segment_logsumexp(
    input: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the logarithm of the sum of exponentials of each segment's rows.

    Parameters
    ----------
    input : array, [N, ...]
        Rows in float32, float64, float16, bfloat16.
    segment_ids : array, [N]
        Segment of each row: int32 or int64; other integers are converted by a copy. Rows whose id lies outside
        [0, num_segments) are dropped.
    num_segments : int
    indices_are_sorted : bool
        Promise that the ids never descend, which spares the sort. Broken, results are unspecified.
    out : array or pair of arrays, optional
        Dense, of the result's shape and dtype. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [num_segments, ...]
        A segment without rows is -infinity.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    return _run(
        "logsumexp",
        {"input": input, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
        num_segments=num_segments,
    )


def segment_softmax(
    input: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the softmax over the rows of each segment.

    Parameters
    ----------
    input : array, [N, ...]
        Rows in float32, float64, float16, bfloat16.
    segment_ids : array, [N]
        Segment of each row: int32 or int64; other integers are converted by a copy. Rows whose id lies outside
        [0, num_segments) are dropped.
    num_segments : int
    indices_are_sorted : bool
        Promise that the ids never descend, which spares the sort. Broken, results are unspecified.
    out : array or pair of arrays, optional
        Dense, of the result's shape and dtype. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [N, ...]
        Rows that are dropped are 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    return _run(
        "softmax",
        {"input": input, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
        num_segments=num_segments,
    )


def segment_sum_backward(
    grad_output: Any, segment_ids: Any, *, indices_are_sorted: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`segment_sum`: each row takes its segment's.

    Parameters
    ----------
    grad_output : array
        [num_segments, ...], gradient of the result.
    segment_ids : array
        [N], as in the forward call.
    indices_are_sorted, out, stream
        As in the forward call.

    Returns
    -------
    array, [N, ...]
        Rows that were dropped get 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    return _run(
        "sum_backward",
        {"grad_output": grad_output, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
    )


def segment_mean_backward(
    grad_output: Any, segment_ids: Any, *, indices_are_sorted: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`segment_mean`.

    Parameters
    ----------
    grad_output : array
        [num_segments, ...], gradient of the result.
    segment_ids : array
        [N], as in the forward call.
    indices_are_sorted, out, stream
        As in the forward call.

    Returns
    -------
    array, [N, ...]
        Rows that were dropped get 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    return _run(
        "mean_backward",
        {"grad_output": grad_output, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
    )


def segment_max_backward(
    grad_output: Any,
    input: Any,
    segment_ids: Any,
    *,
    arg: Any = None,
    ties: str = "first",
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`segment_max`.

    Parameters
    ----------
    grad_output : array
        [num_segments, ...], gradient of the result.
    input : array
        [N, ...], rows of the forward call.
    segment_ids : array
        [N], as in the forward call.
    arg : array, optional
        The rows that the forward call answered; `input` may then be None.
    ties : {"first", "even"}
        Who takes the gradient of a tie: its first row, or every row of it an equal part.
    indices_are_sorted, out, stream
        As in the forward call.

    Returns
    -------
    array, [N, ...]
        Rows that were dropped get 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    operation, arrays = _selection_backward(
        "max", {"grad_output": grad_output, "input": input, "arg": arg, "segment_ids": segment_ids}, arg, ties
    )
    return _run(operation, arrays, form=_form(indices_are_sorted), out=out, stream=stream)


def segment_min_backward(
    grad_output: Any,
    input: Any,
    segment_ids: Any,
    *,
    arg: Any = None,
    ties: str = "first",
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`segment_min`.

    Parameters
    ----------
    grad_output : array
        [num_segments, ...], gradient of the result.
    input : array
        [N, ...], rows of the forward call.
    segment_ids : array
        [N], as in the forward call.
    arg : array, optional
        The rows that the forward call answered; `input` may then be None.
    ties : {"first", "even"}
        Who takes the gradient of a tie: its first row, or every row of it an equal part.
    indices_are_sorted, out, stream
        As in the forward call.

    Returns
    -------
    array, [N, ...]
        Rows that were dropped get 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    operation, arrays = _selection_backward(
        "min", {"grad_output": grad_output, "input": input, "arg": arg, "segment_ids": segment_ids}, arg, ties
    )
    return _run(operation, arrays, form=_form(indices_are_sorted), out=out, stream=stream)


def segment_prod_backward(
    grad_output: Any,
    input: Any,
    output: Any,
    segment_ids: Any,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`segment_prod`, also where rows are 0.

    Parameters
    ----------
    grad_output : array
        [num_segments, ...], gradient of the result.
    input : array
        [N, ...], rows of the forward call.
    output : array
        [num_segments, ...], result of the forward call. Not read: the products are formed anew.
    segment_ids : array
        [N], as in the forward call.
    indices_are_sorted, out, stream
        As in the forward call.

    Returns
    -------
    array, [N, ...]
        Rows that were dropped get 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    return _run(
        "prod_backward",
        {"grad_output": grad_output, "input": input, "output": output, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
    )


def segment_logsumexp_backward(
    grad_output: Any,
    input: Any,
    output: Any,
    segment_ids: Any,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`segment_logsumexp`.

    Parameters
    ----------
    grad_output : array
        [num_segments, ...], gradient of the result.
    input : array
        [N, ...], rows of the forward call.
    output : array
        [num_segments, ...], result of the forward call.
    segment_ids : array
        [N], as in the forward call.
    indices_are_sorted, out, stream
        As in the forward call.

    Returns
    -------
    array, [N, ...]
        Rows that were dropped get 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    return _run(
        "logsumexp_backward",
        {"grad_output": grad_output, "input": input, "output": output, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
    )


def segment_softmax_backward(
    grad_output: Any,
    output: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`segment_softmax`.

    Parameters
    ----------
    grad_output : array
        [N, ...], gradient of the result.
    output : array
        [N, ...], result of the forward call.
    segment_ids : array
        [N], as in the forward call.
    indices_are_sorted, out, stream
        As in the forward call.

    Returns
    -------
    array, [N, ...]
        Rows that were dropped get 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    return _run(
        "softmax_backward",
        {"grad_output": grad_output, "output": output, "segment_ids": segment_ids},
        form=_form(indices_are_sorted),
        out=out,
        stream=stream,
        num_segments=num_segments,
    )


def segment_gather(input: Any, segment_ids: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Answer each row's segment: ``input[segment_ids]``, the adjoint of :func:`segment_sum`, which is its gradient.

    Parameters
    ----------
    input : array, [num_segments, ...]
        A row for each segment, in float32, float64, float16 or bfloat16.
    segment_ids : array, [N]
        int32 or int64; other integers are converted by a copy.
    out, stream
        As in :func:`segment_sum`.

    Returns
    -------
    array, [N, ...]
        0 where the id lies outside [0, num_segments). Bits are copied.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    return _run("gather", {"input": input, "segment_ids": segment_ids}, form="unsorted", out=out, stream=stream)


def gather_csr(input: Any, offsets: Any, num_rows: int, *, out: Any = None, stream: Any = None) -> Any:
    """Repeat each segment's row as often as the segment has rows, as ``torch_scatter.gather_csr`` does.

    Parameters
    ----------
    input : array, [num_segments, ...]
    offsets : array, [num_segments + 1]
        First row of each segment, then the end of the last; int32 or int64.
    num_rows : int
        Rows of the result; those that no segment covers are 0.
    out, stream
        As in :func:`segment_sum`.

    Returns
    -------
    array, [num_rows, ...]
        Bits are copied.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    return segment_csr_backward(input, offsets, "sum", num_rows=num_rows, out=out, stream=stream)


def segment_csr(
    input: Any, offsets: Any, reduce: str = "sum", *, return_arg: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Reduce consecutive rows, as ``torch_scatter.segment_csr`` does.

    Parameters
    ----------
    input : array, [N, ...]
    offsets : array, [num_segments + 1]
        First row of each segment, then the end of the last; int32 or int64, clamped to [0, N].
    reduce : {"sum", "mean", "max", "min", "prod", "logsumexp", "softmax"}
        What :func:`segment_sum` and the like do.
    return_arg : bool
        For max and min: whether to answer also the rows.
    out, stream
        As in :func:`segment_sum`.

    Returns
    -------
    array, [num_segments, ...]; for softmax [N, ...]

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    if reduce not in (*_REDUCTIONS, "softmax"):
        raise ValueError(f"reduce is {reduce!r}; wanted one of {', '.join((*_REDUCTIONS, 'softmax'))}")
    operation = _with_arg(reduce, return_arg)
    if operation != reduce and reduce not in ("max", "min"):
        raise ValueError(f"return_arg: {reduce} has no rows to answer")
    return _run(operation, {"input": input, "offsets": offsets}, form="csr", out=out, stream=stream)


def segment_csr_backward(
    grad_output: Any,
    offsets: Any,
    reduce: str = "sum",
    *,
    num_rows: int | None = None,
    input: Any = None,
    output: Any = None,
    arg: Any = None,
    ties: str = "first",
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`segment_csr`.

    Parameters
    ----------
    grad_output : array, [num_segments, ...]; for softmax [N, ...]
    offsets, reduce
        As in the forward call.
    num_rows : int
        For sum and mean, and for max and min by `arg`: the rows of the input.
    input, output, arg : array
        What the reduction's own gradient function takes: input for max, min and prod; both for logsumexp; output for
        softmax; arg instead of input for max and min.
    ties : {"first", "even"}
    out, stream
        As in :func:`segment_sum`.

    Returns
    -------
    array, [N, ...]
        Rows that no segment covers get 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    """
    if reduce not in (*_REDUCTIONS, "softmax"):
        raise ValueError(f"reduce is {reduce!r}; wanted one of {', '.join((*_REDUCTIONS, 'softmax'))}")
    operation = f"{reduce}_backward"
    arrays = {"grad_output": grad_output, "input": input, "output": output, "arg": arg, "offsets": offsets}
    if reduce in ("max", "min"):
        del arrays["output"]
        operation, arrays = _selection_backward(reduce, arrays, arg, ties)
    elif reduce == "prod":
        # Its values are not read.
        arrays["output"] = grad_output if output is None else output
    wanted = {each.name for each in OPERATORS[f"segment_csr_{operation}"].parameters}
    arrays = {name: array for name, array in arrays.items() if name in wanted}
    for name, array in arrays.items():
        if array is None:
            raise TypeError(f"{name}: wanted an array for the gradient of {reduce}")
    rows = None if num_rows is None else _call.whole("num_rows", num_rows)
    return _run(operation, arrays, form="csr", out=out, stream=stream, rows=rows)
