# SPDX-License-Identifier: Apache-2.0
"""Docstrings of segment operations in JAX, completed as the array functions' are; no code that runs at a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..segment.documentation import NUMBER_ROWS, documented

__all__ = ["documented_of_arrays"]

F = TypeVar("F", bound=Callable[..., Any])

_PARAMETERS = {
    "data": NUMBER_ROWS + " Integers for sum, max, min and prod.",
    "input": "array, [N, ...] or [num_segments, ...]: Rows, or what each segment has.",
    "num_segments": "int, optional: One more than the largest id if left out, which needs ids that are not traced.",
    "unique_indices": "bool: Taken for jax.ops' sake; nothing depends on it.",
    "bucket_size": "int, optional: Taken for jax.ops' sake; the order of sums is fixed without it.",
    "mode": 'str or jax.lax.GatherScatterMode, optional: "clip" takes ids out of range to the nearest; else they are '
    "dropped.",
    "reduce": '{"sum", "mean", "max", "min", "prod", "logsumexp", "softmax"}: What :func:`segment_sum` and so on do.',
    "num_rows": "int: Rows of the result.",
    "ties": '{"even", "first"}: Who takes the gradient of a tie: its rows in equal parts, as in JAX, or the first.',
}
_RETURNS = (
    "array: [num_segments, ...], or [N, ...] of a softmax or gather, in the input's dtype; with `return_arg`, that and "
    "the rows. Rows that no segment takes are 0."
)
_RAISES = (
    "UnsupportedError: For integers of a width or an operation that is not wired.",
    "TypeError, ValueError: If an argument has another type, dtype or shape; when it is traced.",
)


def documented_of_arrays(function: F) -> F:
    """Complete a docstring."""
    return documented(returns=_RETURNS, raises=_RAISES, **_PARAMETERS)(function)
