# SPDX-License-Identifier: Apache-2.0
"""Array functions from rows to segments, by ids: the reductions and the softmax."""

from __future__ import annotations

from typing import Any

from .. import _call
from .documentation import FLOAT_ROWS, NUMBER_ROWS, PER_ROW, PER_SEGMENT, documented
from .operation import form_of, run

__all__ = [
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_softmax",
    "segment_sum",
    "unsorted_segment_max",
    "with_arg",
]


def with_arg(operation: str, return_arg: Any) -> str:
    """Name the operation that also answers rows, if it is asked for."""
    return f"{operation}_with_arg" if _call.flag("return_arg", return_arg) else operation


def _run(
    operation: str,
    input: Any,
    segment_ids: Any,
    num_segments: Any,
    indices_are_sorted: Any,
    empty_value: Any,
    out: Any,
    stream: Any,
) -> Any:
    form = form_of(indices_are_sorted)
    arrays = (input, segment_ids)
    return run(operation, form, arrays, num_segments=num_segments, empty_value=empty_value, out=out, stream=stream)


@documented(input=NUMBER_ROWS, returns=PER_SEGMENT)
def segment_sum(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Sum the rows of each segment, as ``jax.ops.segment_sum`` does.

    A segment without rows is 0. float16 and bfloat16 are summed in float32; integers wrap around.
    """
    return _run("sum", input, segment_ids, num_segments, indices_are_sorted, empty_value, out, stream)


@documented(input=FLOAT_ROWS, returns=PER_SEGMENT)
def segment_mean(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Average the rows of each segment.

    A segment without rows is 0. The divisor is an integer count.
    """
    return _run("mean", input, segment_ids, num_segments, indices_are_sorted, empty_value, out, stream)


@documented(input=NUMBER_ROWS, returns=PER_SEGMENT + " With `return_arg`, that and the rows.")
def segment_max(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    return_arg: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the maximum over the rows of each segment, as ``jax.ops.segment_max`` does.

    A segment without rows is -infinity, or the lowest integer. NaN is larger than every number, -0 equals +0, and among
    equals the first row wins; the winner's bits are copied.
    """
    operation = with_arg("max", return_arg)
    return _run(operation, input, segment_ids, num_segments, indices_are_sorted, empty_value, out, stream)


@documented(input=NUMBER_ROWS, returns=PER_SEGMENT + " With `return_arg`, that and the rows.")
def segment_min(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    return_arg: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the minimum over the rows of each segment, as ``jax.ops.segment_min`` does.

    A segment without rows is infinity, or the highest integer. NaN is smaller than every number, -0 equals +0, and
    among equals the first row wins; the winner's bits are copied.
    """
    operation = with_arg("min", return_arg)
    return _run(operation, input, segment_ids, num_segments, indices_are_sorted, empty_value, out, stream)


@documented(input=NUMBER_ROWS, returns=PER_SEGMENT)
def segment_prod(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Multiply the rows of each segment, as ``jax.ops.segment_prod`` does.

    A segment without rows is 1. float16 and bfloat16 are multiplied in float32; integers wrap around.
    """
    return _run("prod", input, segment_ids, num_segments, indices_are_sorted, empty_value, out, stream)


@documented(input=FLOAT_ROWS, returns=PER_SEGMENT)
def segment_logsumexp(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the logarithm of the sum of exponentials of each segment's rows.

    A segment without rows is -infinity.
    """
    return _run("logsumexp", input, segment_ids, num_segments, indices_are_sorted, empty_value, out, stream)


@documented(input=FLOAT_ROWS, returns=PER_ROW)
def segment_softmax(
    input: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the softmax over the rows of each segment.

    Where the largest value of a segment is infinite, the rows that hold it share 1 equally.
    """
    return _run("softmax", input, segment_ids, num_segments, indices_are_sorted, None, out, stream)


@documented(input=NUMBER_ROWS, returns=PER_SEGMENT)
def unsorted_segment_max(
    input: Any, segment_ids: Any, num_segments: int | None = None, *, out: Any = None, stream: Any = None
) -> Any:
    """Take the maximum over the rows of each segment: :func:`segment_max` of ids in any order."""
    return run("max", "unsorted", (input, segment_ids), num_segments=num_segments, out=out, stream=stream)
