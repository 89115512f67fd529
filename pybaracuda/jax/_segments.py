# SPDX-License-Identifier: Apache-2.0
"""Segment operations in JAX, with jax.ops' signatures; what they compute is in the array functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._call import check_rank, element_of, flag, real, whole
from ..segment.csr import check_reduce
from ..segment.gradients import selection_backward
from ..segment.lengths import check_naming
from ..segment.operation import form_of, key_of
from ..segment.reductions import with_arg
from ._documentation import documented_of_arrays
from ._primitive import array_of, in_64_bits, run, spec_of
from ._rows import Segments

__all__ = [
    "gather_csr",
    "index_of",
    "segment_csr",
    "segment_gather",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_softmax",
    "segment_sum",
]

_LARGEST_ID = 2**31 - 1


def index_of(array: Any) -> Any:
    """Answer ids, offsets or bins; uint32 as int32, whose largest number is out of every range, too."""
    index = array_of(array)
    if index.dtype == jnp.uint32:
        index = jnp.minimum(index, np.uint32(_LARGEST_ID)).astype(jnp.int32)
    return index


def _number_of_segments(num_segments: Any, ids: Any) -> int:
    """Answer how many segments there are: as said, else one more than the largest id, as in jax.ops."""
    if num_segments is not None:
        return whole("num_segments", num_segments)
    if isinstance(ids, jax.core.Tracer):
        raise TypeError("num_segments: wanted an int, since the ids are traced and have no values yet")
    return int(np.max(np.asarray(ids), initial=-1)) + 1


def _checked_mode(mode: Any, ids: Any, num_segments: int) -> Any:
    """Treat ids out of range as jax.ops does: they are dropped, unless they shall be clipped."""
    if mode is None:
        return ids
    scatter_mode = jax.lax.GatherScatterMode.from_any(mode)
    if scatter_mode == jax.lax.GatherScatterMode.CLIP:
        return jnp.clip(ids, 0, max(num_segments - 1, 0))
    return ids


def _run(operation: Segments, array: Any, ids: Any) -> Any:
    """Call an operation by ids, of which two axes are those of a batch: mapped, it is one call, too."""
    if ids.ndim != 2:
        return run(operation, array, ids)
    if array.ndim < 2 or array.shape[0] != ids.shape[0]:
        raise ValueError(f"segment_ids has shape {ids.shape}; wanted [N] or [B, N], beside an array {array.shape}")
    return jax.vmap(lambda *operands: tuple(run(operation, *operands)))(array, ids)


def _offsets(offsets: Any, lengths: Any) -> Any:
    """Answer offsets: those given, or those of segments of these lengths that lie one behind the other."""
    if not check_naming(offsets, lengths):
        return index_of(offsets)
    found = array_of(lengths)
    shape, dtype = spec_of(found)
    element_of("lengths", dtype, ("i32", "i64"))
    check_rank("lengths", shape, "[num_segments]", 1)
    with in_64_bits():
        start = jax.lax.convert_element_type(jnp.zeros(1, jnp.int32), found.dtype)
        return jax.lax.concatenate([start, jax.lax.cumsum(found)], 0)


def _reduced(
    operation: str,
    data: Any,
    segment_ids: Any,
    num_segments: Any,
    indices_are_sorted: Any,
    mode: Any,
    empty_value: Any = None,
    ties: str = "even",
) -> Any:
    """Call an operation by ids."""
    selection_backward("max", data, None, ties)  # refuses what is no way to treat ties
    rows, ids = array_of(data), index_of(segment_ids)
    count = _number_of_segments(num_segments, ids)
    ids = _checked_mode(mode, ids, count)
    empty = None if empty_value is None else key_of(real("empty_value", empty_value))
    num_rows = ids.shape[-1] if ids.ndim else 0
    results = _run(Segments(operation, form_of(indices_are_sorted), count, num_rows, empty, ties), rows, ids)
    return results[0] if len(results) == 1 else results


@documented_of_arrays
def segment_sum(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    empty_value: Any = None,
) -> Any:
    """Sum the rows of each segment, as ``jax.ops.segment_sum`` does.

    A segment without rows is 0. float16 and bfloat16 are summed in float32; integers wrap around. Linear.
    """
    return _reduced("sum", data, segment_ids, num_segments, indices_are_sorted, mode, empty_value)


@documented_of_arrays
def segment_mean(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    empty_value: Any = None,
) -> Any:
    """Average the rows of each segment.

    A segment without rows is 0. The divisor is an integer count. Linear.
    """
    return _reduced("mean", data, segment_ids, num_segments, indices_are_sorted, mode, empty_value)


@documented_of_arrays
def segment_max(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    empty_value: Any = None,
    return_arg: bool = False,
    ties: str = "even",
) -> Any:
    """Take the maximum over the rows of each segment, as ``jax.ops.segment_max`` does.

    A segment without rows is -infinity, or the lowest integer. NaN is larger than every number, -0 equals +0, and among
    equals the first row wins; the winner's bits are copied.
    """
    operation = with_arg("max", return_arg)
    return _reduced(operation, data, segment_ids, num_segments, indices_are_sorted, mode, empty_value, ties)


@documented_of_arrays
def segment_min(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    empty_value: Any = None,
    return_arg: bool = False,
    ties: str = "even",
) -> Any:
    """Take the minimum over the rows of each segment, as ``jax.ops.segment_min`` does.

    A segment without rows is infinity, or the highest integer. NaN is smaller than every number, -0 equals +0, and
    among equals the first row wins; the winner's bits are copied.
    """
    operation = with_arg("min", return_arg)
    return _reduced(operation, data, segment_ids, num_segments, indices_are_sorted, mode, empty_value, ties)


@documented_of_arrays
def segment_prod(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    empty_value: Any = None,
) -> Any:
    """Multiply the rows of each segment, as ``jax.ops.segment_prod`` does.

    A segment without rows is 1. float16 and bfloat16 are multiplied in float32; integers wrap around. The gradient is
    also right where rows are 0; there is no second one.
    """
    return _reduced("prod", data, segment_ids, num_segments, indices_are_sorted, mode, empty_value)


@documented_of_arrays
def segment_logsumexp(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    empty_value: Any = None,
) -> Any:
    """Take the logarithm of the sum of exponentials of each segment's rows.

    A segment without rows is -infinity.
    """
    return _reduced("logsumexp", data, segment_ids, num_segments, indices_are_sorted, mode, empty_value)


@documented_of_arrays
def segment_softmax(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
) -> Any:
    """Take the softmax over the rows of each segment.

    Where the largest value of a segment is infinite, the rows that hold it share 1 equally.
    """
    return _reduced("softmax", data, segment_ids, num_segments, indices_are_sorted, mode)


@documented_of_arrays
def segment_gather(input: Any, segment_ids: Any) -> Any:
    """Answer each row's segment: ``input[segment_ids]``, the adjoint of :func:`segment_sum`, which is its gradient.

    Bits are copied. Linear.
    """
    segments, ids = array_of(input), index_of(segment_ids)
    axis = max(ids.ndim - 1, 0)
    count = segments.shape[axis] if segments.ndim > axis else 0
    num_rows = ids.shape[-1] if ids.ndim else 0
    return _run(Segments("gather", "unsorted", count, num_rows), segments, ids)[0]


@documented_of_arrays
def segment_csr(
    input: Any,
    offsets: Any = None,
    reduce: str = "sum",
    *,
    lengths: Any = None,
    empty_value: Any = None,
    return_arg: bool = False,
    ties: str = "even",
) -> Any:
    """Reduce consecutive rows, as ``torch_scatter.segment_csr`` does; `reduce` also takes "softmax"."""
    operation = check_reduce(reduce, flag("return_arg", return_arg))
    selection_backward("max", input, None, ties)
    rows, index = array_of(input), _offsets(offsets, lengths)
    empty = None if empty_value is None else key_of(real("empty_value", empty_value))
    count = max(index.shape[0] - 1, 0) if index.ndim else 0
    num_rows = rows.shape[0] if rows.ndim else 0
    results = run(Segments(operation, "csr", count, num_rows, empty, ties), rows, index)
    return results[0] if len(results) == 1 else results


@documented_of_arrays
def gather_csr(input: Any, offsets: Any = None, num_rows: int | None = None, *, lengths: Any = None) -> Any:
    """Repeat each segment's row as often as the segment has rows, as ``torch_scatter.gather_csr`` does.

    Bits are copied. Linear.
    """
    segments, index = array_of(input), _offsets(offsets, lengths)
    count = max(index.shape[0] - 1, 0) if index.ndim else 0
    return run(Segments("gather", "csr", count, whole("num_rows", num_rows)), segments, index)[0]
