# SPDX-License-Identifier: Apache-2.0
"""Segment maximum and its gradient, one row after the other; no sorting, no grouping, bits are moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.sums import Array, in_float64


def unsorted_segment_argmax(input: Any, segment_ids: Any, num_segments: int) -> Array:
    """The row [num_segments, D] that holds each maximum, -1 for an empty segment.

    NaN beats every number, the first NaN beats a later one, -0 equals +0, and among equals the first
    row wins. Ids outside [0, num_segments) drop their row.
    """
    rows = in_float64(input)
    ids = np.asarray(segment_ids)
    arg = np.full((num_segments, rows.shape[1]), -1, np.int64)
    best = np.zeros((num_segments, rows.shape[1]))
    for index, (row, segment) in enumerate(zip(rows, ids, strict=True)):
        if not 0 <= segment < num_segments:
            continue
        holder, value = arg[segment], best[segment]
        with np.errstate(invalid="ignore"):
            wins = (holder < 0) | (row > value) | (np.isnan(row) & ~np.isnan(value))
        holder[wins] = index
        value[wins] = row[wins]
    return arg


def unsorted_segment_max(input: Any, segment_ids: Any, num_segments: int) -> Array:
    """[num_segments, D] in the input's dtype: the winners' own bits, -inf for an empty segment."""
    rows = np.asarray(input)
    arg = unsorted_segment_argmax(rows, segment_ids, num_segments)
    output = np.full(arg.shape, -np.inf, rows.dtype)
    for segment, column in np.argwhere(arg >= 0):
        output[segment, column] = rows[arg[segment, column], column]
    return output


def unsorted_segment_max_backward(grad_output: Any, input: Any, segment_ids: Any) -> Array:
    """[N, D] in the gradient's dtype: each winner gets its segment's gradient, everyone else 0."""
    gradient = np.asarray(grad_output)
    arg = unsorted_segment_argmax(input, segment_ids, gradient.shape[0])
    grad_input = np.zeros(np.asarray(input).shape, gradient.dtype)
    for segment, column in np.argwhere(arg >= 0):
        grad_input[arg[segment, column], column] = gradient[segment, column]
    return grad_input
