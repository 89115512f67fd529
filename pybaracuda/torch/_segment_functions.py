# SPDX-License-Identifier: Apache-2.0
"""Segment operations on tensors, with gradients; what they compute, and in what order, is in the array functions."""

from __future__ import annotations

from typing import Any

from ..segment.csr import check_reduce
from ..segment.documentation import FLOAT_ROWS, NUMBER_ROWS
from ..segment.lengths import check_naming
from ..segment.operation import form_of
from ..segment.reductions import with_arg
from ._documentation import documented_of_tensors
from ._segment_batches import of_batch, offsets_of
from ._segment_operators import gather_rows, reduced, selected, softmax

__all__ = [
    "gather_csr",
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

_PER_SEGMENT = "Tensor, [num_segments, ...]: Of the input's dtype and device."
_PER_ROW = "Tensor, [N, ...]: Of the input's dtype and device. Dropped rows are 0."


def _number_of_segments(num_segments: int | None, ids: Any) -> int:
    """Answer how many segments there are: as said, else one more than the largest id."""
    if num_segments is not None:
        return num_segments
    return max(int(ids.max()) + 1, 0) if ids.numel() else 0


def _segments(
    operation: str,
    input: Any,
    index: Any,
    form: str,
    num_segments: int | None,
    empty_value: Any,
    return_arg: bool = False,
    ties: str = "first",
) -> Any:
    """Call a reduction with its derivative, a maximum or minimum as the caller wants it."""
    num_segments = _number_of_segments(num_segments, index)
    if form != "csr" and index.dim() == 2:

        def call(rows: Any, ids: Any, count: int) -> Any:
            return _segments(operation, rows, ids, "unsorted", count, empty_value, return_arg, ties)

        return of_batch(call, input, index, num_segments)
    if operation not in ("max", "min"):
        return reduced(input, index, operation, form, num_segments, empty_value)
    return selected(input, index, with_arg(operation, return_arg), form, num_segments, empty_value, ties)


@documented_of_tensors(input=NUMBER_ROWS, returns=_PER_SEGMENT)
def segment_sum(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
) -> Any:
    """Sum the rows of each segment, as ``jax.ops.segment_sum`` does.

    A segment without rows is 0. float16 and bfloat16 are summed in float32; integers wrap around. Derivatives of every
    order.
    """
    return _segments("sum", input, segment_ids, form_of(indices_are_sorted), num_segments, empty_value)


@documented_of_tensors(input=FLOAT_ROWS, returns=_PER_SEGMENT)
def segment_mean(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
) -> Any:
    """Average the rows of each segment.

    A segment without rows is 0. The divisor is an integer count. Derivatives of every order.
    """
    return _segments("mean", input, segment_ids, form_of(indices_are_sorted), num_segments, empty_value)


@documented_of_tensors(input=NUMBER_ROWS, returns=_PER_SEGMENT + " With `return_arg`, that and the rows.")
def segment_max(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    return_arg: bool = False,
    ties: str = "first",
) -> Any:
    """Take the maximum over the rows of each segment, as ``jax.ops.segment_max`` does.

    A segment without rows is -infinity, or the lowest integer. NaN is larger than every number, -0 equals +0, and among
    equals the first row wins; the winner's bits are copied. Derivatives of every order; the second by the rows is 0.
    """
    form = form_of(indices_are_sorted)
    return _segments("max", input, segment_ids, form, num_segments, empty_value, return_arg, ties)


@documented_of_tensors(input=NUMBER_ROWS, returns=_PER_SEGMENT + " With `return_arg`, that and the rows.")
def segment_min(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    return_arg: bool = False,
    ties: str = "first",
) -> Any:
    """Take the minimum over the rows of each segment, as ``jax.ops.segment_min`` does.

    A segment without rows is infinity, or the highest integer. NaN is smaller than every number, -0 equals +0, and
    among equals the first row wins; the winner's bits are copied. Derivatives of every order; the second by the rows is
    0.
    """
    form = form_of(indices_are_sorted)
    return _segments("min", input, segment_ids, form, num_segments, empty_value, return_arg, ties)


@documented_of_tensors(input=NUMBER_ROWS, returns=_PER_SEGMENT)
def segment_prod(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
) -> Any:
    """Multiply the rows of each segment, as ``jax.ops.segment_prod`` does.

    A segment without rows is 1. float16 and bfloat16 are multiplied in float32; integers wrap around. The gradient and
    the second derivative are right where rows are 0, too; a third one by the rows raises NotImplementedError.
    """
    return _segments("prod", input, segment_ids, form_of(indices_are_sorted), num_segments, empty_value)


@documented_of_tensors(input=FLOAT_ROWS, returns=_PER_SEGMENT)
def segment_logsumexp(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
) -> Any:
    """Take the logarithm of the sum of exponentials of each segment's rows.

    A segment without rows is -infinity. Derivatives of every order.
    """
    return _segments("logsumexp", input, segment_ids, form_of(indices_are_sorted), num_segments, empty_value)


@documented_of_tensors(input=FLOAT_ROWS, returns=_PER_ROW)
def segment_softmax(
    input: Any, segment_ids: Any, num_segments: int | None = None, *, indices_are_sorted: bool = False
) -> Any:
    """Take the softmax over the rows of each segment.

    Where the largest value of a segment is infinite, the rows that hold it share 1 equally. Derivatives of every order.
    """
    form, count = form_of(indices_are_sorted), _number_of_segments(num_segments, segment_ids)
    if segment_ids.dim() != 2:
        return softmax(input, segment_ids, form, count)

    def call(rows: Any, ids: Any, all_segments: int) -> Any:
        return softmax(rows, ids, "unsorted", all_segments)

    return of_batch(call, input, segment_ids, count, by_rows=True)


@documented_of_tensors(
    input="array, [num_segments, ...]: A row for each segment, in float32, float64, float16 or bfloat16.",
    returns=_PER_ROW,
)
def segment_gather(input: Any, segment_ids: Any) -> Any:
    """Answer each row's segment: ``input[segment_ids]``, whose gradient is :func:`segment_sum`.

    Bits are copied. Derivatives of every order.
    """
    if segment_ids.dim() != 2:
        return gather_rows(input, segment_ids, "unsorted", segment_ids.shape[0])

    def call(segments: Any, ids: Any, _: int) -> Any:
        return gather_rows(segments, ids, "unsorted", ids.shape[0])

    count = input.shape[1] if input.dim() > 1 else 0
    return of_batch(call, input, segment_ids, count, of_rows=False, by_rows=True)


@documented_of_tensors(
    input=NUMBER_ROWS + " Integers for sum, max, min and prod.",
    reduce='{"sum", "mean", "max", "min", "prod", "logsumexp", "softmax"}: What :func:`segment_sum` and the like do.',
    returns="Tensor, [num_segments, ...], for softmax [N, ...]: Of the input's dtype and device. With `return_arg`, "
    "that and the rows.",
)
def segment_csr(
    input: Any,
    offsets: Any = None,
    reduce: str = "sum",
    *,
    lengths: Any = None,
    empty_value: Any = None,
    return_arg: bool = False,
    ties: str = "first",
) -> Any:
    """Reduce consecutive rows; derivatives as :func:`segment_sum` and the like have them.

    :mod:`pybaracuda.torch.scatter` has the function of torch_scatter's name and arguments.
    """
    check_reduce(reduce, return_arg)
    if check_naming(offsets, lengths):
        offsets = offsets_of(lengths)
    num_segments = max(offsets.shape[0] - 1, 0)
    if reduce == "softmax":
        if empty_value is not None:
            raise ValueError("empty_value: softmax has no value of a segment")
        return softmax(input, offsets, "csr", num_segments)
    return _segments(reduce, input, offsets, "csr", num_segments, empty_value, return_arg, ties)


@documented_of_tensors(
    input="array, [num_segments, ...]: A row for each segment, in float32, float64, float16 or bfloat16.",
    num_rows="int: Rows of the result.",
    returns=_PER_ROW,
)
def gather_csr(input: Any, offsets: Any = None, num_rows: int | None = None, *, lengths: Any = None) -> Any:
    """Repeat each segment's row as often as the segment has rows; the gradient is the sum of :func:`segment_csr`.

    Bits are copied. Derivatives of every order.
    """
    if check_naming(offsets, lengths):
        offsets = offsets_of(lengths)
    if num_rows is None:
        raise TypeError("num_rows: wanted an int, got NoneType")
    return gather_rows(input, offsets, "csr", num_rows)
