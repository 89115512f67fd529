# SPDX-License-Identifier: Apache-2.0
"""Gradients of the array functions by ids, and the gather, which is the sum's."""

from __future__ import annotations

from typing import Any

from .._errors import shown
from .documentation import PER_ROW, documented
from .operation import form_of, run

__all__ = [
    "segment_gather",
    "segment_logsumexp_backward",
    "segment_max_backward",
    "segment_mean_backward",
    "segment_min_backward",
    "segment_prod_backward",
    "segment_softmax_backward",
    "segment_sum_backward",
    "selection_backward",
    "unsorted_segment_max_backward",
]


def selection_backward(operation: str, input: Any, arg: Any, ties: str) -> tuple[str, Any]:
    """Choose the gradient of a maximum or minimum, and which array it takes: the values, or the rows that hold them."""
    if not isinstance(ties, str) or ties not in ("first", "even"):
        raise ValueError(f"ties is {shown(ties)}; wanted 'first' or 'even'")
    if arg is None:
        if input is None:
            raise TypeError("input: wanted an array (or arg instead), got NoneType")
        return f"{operation}_even_backward" if ties == "even" else f"{operation}_backward", input
    if ties == "even":
        raise ValueError("arg: one row of a tie is known; ties='even' needs input alone")
    return f"{operation}_with_arg_backward", arg


@documented(returns=PER_ROW)
def segment_sum_backward(
    grad_output: Any, segment_ids: Any, *, indices_are_sorted: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`segment_sum`: each row takes its segment's, bit for bit."""
    return run("sum_backward", form_of(indices_are_sorted), (grad_output, segment_ids), out=out, stream=stream)


@documented(returns=PER_ROW)
def segment_mean_backward(
    grad_output: Any, segment_ids: Any, *, indices_are_sorted: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`segment_mean`: each row takes its segment's, over the number of rows."""
    return run("mean_backward", form_of(indices_are_sorted), (grad_output, segment_ids), out=out, stream=stream)


@documented(returns=PER_ROW)
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
    """Compute the gradient of :func:`segment_max`: each segment's goes to the row that holds the maximum."""
    operation, rows = selection_backward("max", input, arg, ties)
    return run(operation, form_of(indices_are_sorted), (grad_output, rows, segment_ids), out=out, stream=stream)


@documented(returns=PER_ROW)
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
    """Compute the gradient of :func:`segment_min`: each segment's goes to the row that holds the minimum."""
    operation, rows = selection_backward("min", input, arg, ties)
    return run(operation, form_of(indices_are_sorted), (grad_output, rows, segment_ids), out=out, stream=stream)


@documented(
    output="array, [num_segments, ...]: Result of the forward call. Not read: the products are formed anew.",
    returns=PER_ROW,
)
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
    """Compute the gradient of :func:`segment_prod`, also where rows are 0: each segment's, times the other rows."""
    form = form_of(indices_are_sorted)
    return run("prod_backward", form, (grad_output, input, output, segment_ids), out=out, stream=stream)


@documented(returns=PER_ROW)
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
    """Compute the gradient of :func:`segment_logsumexp`: each segment's, times the softmax."""
    form = form_of(indices_are_sorted)
    return run("logsumexp_backward", form, (grad_output, input, output, segment_ids), out=out, stream=stream)


@documented(
    grad_output="array, [N, ...]: Gradient of the result, float32, float64, float16 or bfloat16.",
    output="array, [N, ...]: Result of the forward call.",
    returns=PER_ROW,
)
def segment_softmax_backward(
    grad_output: Any,
    output: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`segment_softmax`."""
    form, arrays = form_of(indices_are_sorted), (grad_output, output, segment_ids)
    return run("softmax_backward", form, arrays, num_segments=num_segments, out=out, stream=stream)


@documented(
    input="array, [num_segments, ...]: A row for each segment, in float32, float64, float16 or bfloat16.",
    returns=PER_ROW,
)
def segment_gather(input: Any, segment_ids: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Answer each row's segment: ``input[segment_ids]``, the adjoint of :func:`segment_sum`, which is its gradient.

    Bits are copied.
    """
    return run("gather", "unsorted", (input, segment_ids), out=out, stream=stream)


@documented(returns=PER_ROW)
def unsorted_segment_max_backward(
    grad_output: Any, input: Any, segment_ids: Any, *, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`unsorted_segment_max`: each segment's goes to the first row with its maximum.

    Bits are copied. A tie is not split: its first row takes the whole (PyTorch, JAX and TensorFlow split it evenly, as
    ``segment_max_backward(..., ties="even")`` does).
    """
    return run("max_backward", "unsorted", (grad_output, input, segment_ids), out=out, stream=stream)
