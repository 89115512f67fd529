# SPDX-License-Identifier: Apache-2.0
"""What the docstrings of this package's array functions have in common, written once; no code that runs at a call."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

__all__ = ["FLOAT_ROWS", "NUMBER_ROWS", "PER_ROW", "PER_SEGMENT", "documented"]

F = TypeVar("F", bound=Callable[..., Any])

_WIDTH = 116
# A type, then what it is. Functions override what they have otherwise.
_PARAMETERS = {
    "segment_ids": "array, [N]: Segment of each row: int32 or int64; other integers are converted by a copy. Rows "
    "whose id lies outside [0, num_segments) are dropped. Or [B, N], with all other arrays and results one axis more, "
    "[B, N, ...] or [B, num_segments, ...]: the segments of a batch, each entry's its own, numbered from 0 in each, "
    "with the bits of a call for each entry. One call for all; the ids are copied, an order of them is of no use.",
    "offsets": "array, [num_segments + 1], optional: First row of each segment, then the end of the last: int32 or "
    "int64, other integers are converted by a copy; clamped to [0, N]. Rows that no segment covers are dropped.",
    "lengths": "array, [num_segments], optional: Rows of each segment, one behind the other, instead of offsets: int32 "
    "or int64. The offsets are their sums, made in their dtype by :func:`pad` and :func:`cumsum`, without a look at "
    "them: rows behind the last segment are dropped, segments end where the rows do. Of negative lengths, and of sums "
    "that their dtype does not hold, results are unspecified, but no access is out of bounds.",
    "num_segments": "int, optional: None is one more than the largest id: a look at the ids, on the current stream of "
    "their framework, that waits for the device.",
    "grad_output": "array, [num_segments, ...]: Gradient of the result, float32, float64, float16 or bfloat16.",
    "input": "array, [N, ...]: Rows of the forward call.",
    "output": "array, [num_segments, ...]: Result of the forward call.",
    "arg": "array, optional: The rows that the forward call answered; `input` may then be None.",
    "ties": '{"first", "even"}: Who takes the gradient of a tie: its first row, or every row of it an equal part.',
    "indices_are_sorted": "bool: Promise that the ids never descend, which spares the sort. Broken, results are "
    "unspecified.",
    "empty_value": "number, optional: What a segment without rows is, rounded to the rows' dtype; integers must hold "
    "it. It takes part in no other segment. None is the reduction's own.",
    "return_arg": "bool: Whether to answer also the row that holds each value, in the dtype of the index; -1 for a "
    "segment without rows.",
    "out": "array, optional: Dense, of the result's shape, dtype and device; a pair of them or None where there are "
    "two results. Fully overwritten. Not for JAX.",
    "stream": "int or object with ``__cuda_stream__``, optional: CUDA only; None means the current stream of the first "
    "array's framework.",
}
FLOAT_ROWS = "array, [N, ...]: Rows in float32, float64, float16 or bfloat16."
NUMBER_ROWS = "array, [N, ...]: Rows in float32, float64, float16, bfloat16, int32 or int64."
PER_SEGMENT = "array, [num_segments, ...]: Of the first array's kind, dtype and device; `out` if given."
PER_ROW = "array, [N, ...]: Of the first array's kind, dtype and device; `out` if given. Dropped rows are 0."
_RAISES = (
    "InvalidProblemError: If there are more segments or rows than C takes, those of a batch together.",
    "UnsupportedError: For integers of a width or an operation that is not wired.",
    "TypeError, ValueError: If an argument has another type, dtype or shape, or `out` cannot be written.",
)
_NOTES = (
    "Strided arrays are copied first. Bit-stable on every run, thread count, GPU and backend. May be called from any "
    "number of threads."
)


def documented(*, returns: str, raises: Sequence[str] = _RAISES, **parameters: str) -> Callable[[F], F]:
    """Complete a docstring with the function's parameters, in the order of its signature, and with what all share."""

    def complete(function: F) -> F:
        if function.__doc__ is not None:
            known = {**_PARAMETERS, **parameters}
            names = inspect.signature(function).parameters
            sections = {
                "Parameters": "\n".join(_entry(known[name], f"{name} : ") for name in names),
                "Returns": _entry(returns),
                "Raises": "\n".join(map(_entry, raises)),
                "Notes": textwrap.fill(_NOTES, _WIDTH),
            }
            text = "".join(f"\n\n{title}\n{'-' * len(title)}\n{body}" for title, body in sections.items())
            function.__doc__ = inspect.cleandoc(function.__doc__) + text + "\n"
        return function

    return complete


def _entry(text: str, name: str = "") -> str:
    """Set what stands before the first colon, a type, over the rest of a text, as numpydoc wants it."""
    kind, _, rest = text.partition(": ")
    indented = textwrap.fill(rest, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f"{name}{kind}\n{indented}" if rest else name + kind
