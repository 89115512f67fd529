# SPDX-License-Identifier: Apache-2.0
"""Array functions over consecutive rows, whose segments are named by offsets or lengths."""

from __future__ import annotations

from typing import Any

from .._errors import shown
from .documentation import NUMBER_ROWS, PER_ROW, documented
from .gradients import selection_backward
from .lengths import check_naming
from .operation import inputs_of, run
from .reductions import with_arg

__all__ = ["check_reduce", "gather_csr", "segment_csr", "segment_csr_backward"]

_REDUCE = ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")


def check_reduce(reduce: str, return_arg: Any = False) -> str:
    """Name the operation that a reduction is; refuse what is none, and rows of one that has none to answer."""
    if not isinstance(reduce, str) or reduce not in _REDUCE:
        raise ValueError(f"reduce is {shown(reduce)}; wanted one of {', '.join(_REDUCE)}")
    operation = with_arg(reduce, return_arg)
    if operation != reduce and reduce not in ("max", "min"):
        raise ValueError(f"return_arg: {reduce} has no rows to answer")
    return operation


@documented(
    input=NUMBER_ROWS + " Integers for sum, max, min and prod.",
    reduce='{"sum", "mean", "max", "min", "prod", "logsumexp", "softmax"}: What :func:`segment_sum` and the like do.',
    returns="array, [num_segments, ...], for softmax [N, ...]: Of the input's kind, dtype and device; `out` if given. "
    "With `return_arg`, that and the rows.",
)
def segment_csr(
    input: Any,
    offsets: Any = None,
    reduce: str = "sum",
    *,
    lengths: Any = None,
    empty_value: Any = None,
    return_arg: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Reduce consecutive rows, as ``torch_scatter.segment_csr`` does, or by `lengths` as ``torch.segment_reduce``."""
    operation = check_reduce(reduce, return_arg)
    by_lengths = check_naming(offsets, lengths)
    arrays = (input, lengths if by_lengths else offsets)
    return run(operation, "csr", arrays, empty_value=empty_value, lengths=by_lengths, out=out, stream=stream)


@documented(
    grad_output="array, [num_segments, ...], for softmax [N, ...]: Gradient of the result.",
    reduce="str: As in the forward call.",
    num_rows="int: For sum and mean, and for max and min by `arg`: the rows of the input.",
    input="array: For max, min, prod and logsumexp: the rows of the forward call.",
    output="array: For logsumexp and softmax: the result of the forward call.",
    arg="array, optional: For max and min: the rows that the forward call answered, instead of `input`.",
    returns=PER_ROW,
)
def segment_csr_backward(
    grad_output: Any,
    offsets: Any = None,
    reduce: str = "sum",
    *,
    lengths: Any = None,
    num_rows: int | None = None,
    input: Any = None,
    output: Any = None,
    arg: Any = None,
    ties: str = "first",
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`segment_csr`."""
    check_reduce(reduce)
    operation = f"{reduce}_backward"
    by_lengths = check_naming(offsets, lengths)
    index = lengths if by_lengths else offsets
    given = {"grad_output": grad_output, "offsets": index, "input": input, "output": output, "arg": arg}
    if reduce in ("max", "min"):
        operation, _ = selection_backward(reduce, input, arg, ties)
    elif reduce == "prod" and output is None:
        # Its values are not read.
        given["output"] = grad_output
    names = inputs_of(operation, "csr")
    for name in names:
        if given[name] is None:
            raise TypeError(f"{name}: wanted an array for the gradient of {reduce}, got NoneType")
    arrays = [given[name] for name in names]
    return run(operation, "csr", arrays, num_rows=num_rows, lengths=by_lengths, out=out, stream=stream)


@documented(
    input="array, [num_segments, ...]: A row for each segment, in float32, float64, float16 or bfloat16.",
    num_rows="int: Rows of the result; no sum of lengths stands in for it, since that would wait for the device.",
    returns=PER_ROW,
)
def gather_csr(
    input: Any,
    offsets: Any = None,
    num_rows: int | None = None,
    *,
    lengths: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Repeat each segment's row as often as the segment has rows, as ``torch_scatter.gather_csr`` does.

    Bits are copied.
    """
    by_lengths = check_naming(offsets, lengths)
    arrays = (input, lengths if by_lengths else offsets)
    return run("gather", "csr", arrays, num_rows=num_rows, lengths=by_lengths, out=out, stream=stream)
