# SPDX-License-Identifier: Apache-2.0
"""Segment reductions: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import FLOATS, MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._plan import Plan

__all__ = [
    "UnsortedSegmentMaxBackwardDescriptor",
    "UnsortedSegmentMaxBackwardPlan",
    "UnsortedSegmentMaxDescriptor",
    "UnsortedSegmentMaxPlan",
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
