# SPDX-License-Identifier: Apache-2.0
"""Segment reductions and their gradients, one row or one segment after the other; maxima move bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.sums import Array, Sum, in_float64


def unsorted_segment_argmax(input: Any, segment_ids: Any, num_segments: int, smallest: bool = False) -> Array:
    """The row [num_segments, D] that holds each maximum (or minimum), -1 for an empty segment.

    NaN beats every number, the first NaN beats a later one, -0 equals +0, and among equals the first
    row wins. Ids outside [0, num_segments) drop their row. Integers are compared as they are.
    """
    rows = np.asarray(input) if np.asarray(input).dtype.kind == "i" else in_float64(input)
    ids = np.asarray(segment_ids)
    arg = np.full((num_segments, rows.shape[1]), -1, np.int64)
    best = np.zeros((num_segments, rows.shape[1]), rows.dtype)
    for index, (row, segment) in enumerate(zip(rows, ids, strict=True)):
        if not 0 <= segment < num_segments:
            continue
        holder, value = arg[segment], best[segment]
        with np.errstate(invalid="ignore"):
            better = row < value if smallest else row > value
            wins = (holder < 0) | better | (np.isnan(row) & ~np.isnan(value))
        holder[wins] = index
        value[wins] = row[wins]
    return arg


def unsorted_segment_max(input: Any, segment_ids: Any, num_segments: int, smallest: bool = False) -> Array:
    """[num_segments, D] in the input's dtype: the winners' own bits, -inf (or inf) for an empty segment.

    Integers have their type's limits instead.
    """
    rows = np.asarray(input)
    arg = unsorted_segment_argmax(rows, segment_ids, num_segments, smallest)
    if rows.dtype.kind == "i":
        limits = np.iinfo(rows.dtype)
        output = np.full(arg.shape, limits.max if smallest else limits.min, rows.dtype)
    else:
        output = np.full(arg.shape, np.inf if smallest else -np.inf, rows.dtype)
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


# What follows is arithmetic: each function answers a Sum, whose magnitude and terms say how far rounding may lead.
# ``ids`` name a segment for each row; those outside [0, num_segments) drop their row.


def _members(segment_ids: Any, num_segments: int) -> list[Array]:
    """The rows of every segment, ascending."""
    ids = np.asarray(segment_ids)
    return [np.flatnonzero(ids == segment) for segment in range(num_segments)]


def _per_segment(input: Any, segment_ids: Any, num_segments: int, empty: float) -> tuple[list[Array], Array, Sum]:
    rows = in_float64(input)
    shape = (num_segments, rows.shape[1])
    result = Sum(np.full(shape, empty), np.zeros(shape), np.zeros(shape, np.int64))
    return _members(segment_ids, num_segments), rows, result


def segment_sum(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    members, rows, result = _per_segment(input, segment_ids, num_segments, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        for segment, mine in enumerate(members):
            result.value[segment] = rows[mine].sum(axis=0)
            result.magnitude[segment] = np.abs(rows[mine]).sum(axis=0)
            result.terms[segment] = len(mine)
    return result


def segment_mean(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    value, magnitude, terms = segment_sum(input, segment_ids, num_segments)
    count = np.maximum(terms, 1)
    return Sum(value / count, magnitude / count, terms)


def segment_prod(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    members, rows, result = _per_segment(input, segment_ids, num_segments, 1.0)
    for segment, mine in enumerate(members):
        result.value[segment] = np.prod(rows[mine], axis=0)
        result.terms[segment] = len(mine)
    return result._replace(magnitude=np.abs(result.value))


def segment_logsumexp(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    """A row brings a term's error of at most 4 roundings; differences lose a rounding of the range twice.

    Beside those: a rounding of the largest value plus the logarithm, and two of the logarithm.
    """
    members, rows, result = _per_segment(input, segment_ids, num_segments, -np.inf)
    for segment, mine in enumerate(members):
        if not len(mine):
            continue
        with np.errstate(invalid="ignore"):
            largest = rows[mine].max(axis=0)
            relative = np.where(rows[mine] == largest, 0.0, rows[mine] - largest)
            sums = np.exp(relative).sum(axis=0)
            result.value[segment] = largest + np.log(sums)
            reach = -np.where(np.isfinite(relative), relative, 0.0).min(axis=0)
            value = np.where(np.isfinite(result.value[segment]), np.abs(result.value[segment]), 0.0)
        result.magnitude[segment] = 5 * len(mine) + 2 * reach + 2 * np.log(np.where(sums > 0, sums, 1.0)) + value
        result.terms[segment] = 1
    return result


def segment_softmax(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    """The relative error of the sum, of the exponential and of the division."""
    members, rows, _ = _per_segment(input, segment_ids, num_segments, 0.0)
    result = Sum(np.zeros(rows.shape), np.zeros(rows.shape), np.zeros(rows.shape, np.int64))
    for mine in members:
        if not len(mine):
            continue
        with np.errstate(invalid="ignore"):
            largest = rows[mine].max(axis=0)
            relative = np.where(rows[mine] == largest, 0.0, rows[mine] - largest)
            result.value[mine] = np.exp(relative) / np.exp(relative).sum(axis=0)
            reach = -np.where(np.isfinite(relative), relative, 0.0).min(axis=0)
        result.magnitude[mine] = np.abs(result.value[mine]) * (5 * len(mine) + 3 * reach + 5)
        result.terms[mine] = 1
    return result


def segment_gather(input: Any, segment_ids: Any) -> Array:
    """The segments' own bits, 0 for a row without one."""
    values, ids = np.asarray(input), np.asarray(segment_ids)
    output = np.zeros((len(ids), values.shape[1]), values.dtype)
    for row, segment in enumerate(ids):
        if 0 <= segment < len(values):
            output[row] = values[segment]
    return output


def segment_mean_backward(grad_output: Any, segment_ids: Any) -> Sum:
    gradient, ids = in_float64(grad_output), np.asarray(segment_ids)
    value = np.zeros((len(ids), gradient.shape[1]))
    for segment, mine in enumerate(_members(ids, len(gradient))):
        with np.errstate(invalid="ignore"):
            value[mine] = gradient[segment] / max(len(mine), 1)
    return Sum(value, np.abs(value), np.ones(value.shape, np.int64))


def segment_even_backward(grad_output: Any, input: Any, segment_ids: Any, smallest: bool) -> Sum:
    """An equal part of the gradient to each row that holds the extreme; NaN is the extreme of all and equals NaN."""
    gradient, rows = in_float64(grad_output), in_float64(input)
    value = np.zeros(rows.shape)
    for segment, mine in enumerate(_members(segment_ids, len(gradient))):
        if len(mine):
            values = rows[mine]
            with np.errstate(invalid="ignore"):
                extreme = values.min(axis=0) if smallest else values.max(axis=0)
                holds = (values == extreme) | (np.isnan(values) & np.isnan(extreme))
                value[mine] = np.where(holds, gradient[segment] / np.maximum(holds.sum(axis=0), 1), 0.0)
    return Sum(value, np.abs(value), np.ones(value.shape, np.int64))


def segment_arg_backward(grad_output: Any, arg: Any, segment_ids: Any) -> Array:
    gradient, ids, rows = np.asarray(grad_output), np.asarray(segment_ids), np.asarray(arg)
    output = np.zeros((len(ids), gradient.shape[1]), gradient.dtype)
    for row, segment in enumerate(ids):
        if 0 <= segment < len(gradient):
            mine = rows[segment] == row
            output[row][mine] = gradient[segment][mine]
    return output


def segment_prod_backward(grad_output: Any, input: Any, segment_ids: Any) -> Sum:
    """The gradient times the product of the other rows, each product formed without its row."""
    gradient, rows = in_float64(grad_output), in_float64(input)
    result = Sum(np.zeros(rows.shape), np.zeros(rows.shape), np.zeros(rows.shape, np.int64))
    for segment, mine in enumerate(_members(segment_ids, len(gradient))):
        for row in mine:
            result.value[row] = gradient[segment] * np.prod(rows[mine[mine != row]], axis=0)
            result.terms[row] = len(mine)
    return result._replace(magnitude=np.abs(result.value))


def segment_logsumexp_backward(grad_output: Any, input: Any, output: Any, segment_ids: Any) -> Sum:
    gradient, rows, sums, ids = in_float64(grad_output), in_float64(input), in_float64(output), np.asarray(segment_ids)
    result = Sum(np.zeros(rows.shape), np.zeros(rows.shape), np.ones(rows.shape, np.int64))
    for segment, mine in enumerate(_members(ids, len(gradient))):
        with np.errstate(invalid="ignore", over="ignore"):
            relative = np.where(rows[mine] == sums[segment], 0.0, rows[mine] - sums[segment])
            result.value[mine] = gradient[segment] * np.exp(relative)
            reach = np.where(np.isfinite(relative), np.abs(relative), 0.0)
        result.magnitude[mine] = np.abs(result.value[mine]) * (reach + 5)
    return result


def segment_softmax_backward(grad_output: Any, output: Any, segment_ids: Any, num_segments: int) -> Sum:
    gradient, values = in_float64(grad_output), in_float64(output)
    result = Sum(np.zeros(values.shape), np.zeros(values.shape), np.zeros(values.shape, np.int64))
    with np.errstate(invalid="ignore", over="ignore"):
        for mine in _members(segment_ids, num_segments):
            products = values[mine] * gradient[mine]
            result.value[mine] = values[mine] * (gradient[mine] - products.sum(axis=0))
            result.magnitude[mine] = np.abs(values[mine]) * (np.abs(gradient[mine]) + np.abs(products).sum(axis=0))
            result.terms[mine] = len(mine) + 1
    return result


def ids_of_offsets(offsets: Any, num_rows: int) -> Array:
    """The segment of each row, -1 for a row that no segment covers; offsets may lie outside [0, num_rows]."""
    ids = np.full(num_rows, -1, np.int64)
    places = np.clip(np.asarray(offsets, np.int64), 0, num_rows)
    for segment in range(len(places) - 1):
        ids[places[segment] : places[segment + 1]] = segment
    return ids
