# SPDX-License-Identifier: Apache-2.0
"""Segment reductions and their gradients, scattered row by row; maxima move bits.

``segment_ids`` name a segment for each row; those outside [0, num_segments) drop their row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verify.bounds import EXPONENTIAL, LOGARITHM, Sum, additions, exact
from verify.dtypes import Array, in_float64


class _Segments:
    """The rows that have a segment, in their own order, with their segments, and how many each segment has."""

    def __init__(self, segment_ids: Any, number: int) -> None:
        ids = np.asarray(segment_ids)
        self.num_rows, self.number = len(ids), number
        self.rows = np.flatnonzero((ids >= 0) & (ids < number))
        self.ids = ids[self.rows]
        self.count = np.bincount(self.ids, minlength=number)[:, None]

    def total(self, values: Array) -> Array:
        """[number, D] sums of the rows' values."""
        found = np.zeros((self.number, values.shape[1]))
        for column, each in enumerate(values.T):
            found[:, column] = np.bincount(self.ids, each, self.number)
        return found

    def fold(self, function: np.ufunc, values: Array, empty: Any) -> Array:
        """[number, D] of another associative function than the sum, in the values' dtype."""
        found = np.full((values.shape[1], self.number), empty, values.dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            for column, target in zip(np.ascontiguousarray(values.T), found, strict=True):
                function.at(target, self.ids, column)
        return np.ascontiguousarray(found.T)

    def extreme(self, values: Array, smallest: bool) -> Array:
        """[number, D] largest or smallest values; NaN beats every number."""
        return self.fold(np.minimum if smallest else np.maximum, values, _identity(values.dtype, smallest))

    def holds(self, values: Array, extreme: Array) -> Array:
        """[rows, D]: whether a row has its segment's extreme; -0 equals +0 and a NaN equals a NaN."""
        wanted = extreme[self.ids]
        return np.asarray((values == wanted) | (np.isnan(values) & np.isnan(wanted)))

    def spread(self, values: Array, empty: Any = 0) -> Array:
        """[N, D]: the rows' values in their places, ``empty`` for rows without a segment."""
        found = np.full((self.num_rows, values.shape[1]), empty, values.dtype)
        found[self.rows] = values
        return found

    def sum_of_rows(self, value: Array, magnitude: Array, terms: Any, roundings: Any, own: Any = None) -> Sum:
        """A Sum of [N, D] from its parts for the rows; a row without a segment is 0, and exactly that."""
        parts = [value, magnitude, terms, roundings, *([] if own is None else [own])]
        return Sum(*(self.spread(np.broadcast_to(part, value.shape)) for part in parts))


def _identity(dtype: Any, smallest: bool) -> Any:
    if np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        return limits.max if smallest else limits.min
    return np.inf if smallest else -np.inf


# ---- maxima, and what else moves bits


def unsorted_segment_argmax(input: Any, segment_ids: Any, num_segments: int, smallest: bool = False) -> Array:
    """The row [num_segments, D] that holds each maximum (or minimum), -1 for an empty segment.

    NaN beats every number, the first NaN beats a later one, -0 equals +0, and among equals the first row wins. Integers
    are compared as they are.
    """
    of = _Segments(segment_ids, num_segments)
    values = (np.asarray(input) if np.asarray(input).dtype.kind == "i" else in_float64(input))[of.rows]
    holds = of.holds(values, of.extreme(values, smallest))
    arg = np.full((num_segments, values.shape[1]), -1, np.int64)
    for column in range(values.shape[1]):
        (holders,) = np.nonzero(holds[:, column])
        segments, first = np.unique(of.ids[holders], return_index=True)
        arg[segments, column] = of.rows[holders[first]]
    return arg


def unsorted_segment_max(input: Any, segment_ids: Any, num_segments: int, smallest: bool = False) -> Array:
    """[num_segments, D] in the input's dtype: the winners' own bits, -inf (or inf) for an empty segment.

    Integers have their type's limits instead.
    """
    rows = np.asarray(input)
    arg = unsorted_segment_argmax(rows, segment_ids, num_segments, smallest)
    output = np.full(arg.shape, _identity(rows.dtype, smallest), rows.dtype)
    segments, columns = np.nonzero(arg >= 0)
    output[segments, columns] = rows[arg[segments, columns], columns]
    return output


def unsorted_segment_max_backward(grad_output: Any, input: Any, segment_ids: Any, smallest: bool = False) -> Array:
    """[N, D] in the gradient's dtype: each winner gets its segment's gradient, everyone else 0."""
    arg = unsorted_segment_argmax(input, segment_ids, len(np.asarray(grad_output)), smallest)
    return segment_arg_backward(grad_output, arg, segment_ids)


def segment_arg_backward(grad_output: Any, arg: Any, segment_ids: Any) -> Array:
    """[N, D] in the gradient's dtype: what its segment has for the row that ``arg`` names, everyone else 0."""
    gradient, of = np.asarray(grad_output), _Segments(segment_ids, len(np.asarray(grad_output)))
    named = np.asarray(arg)[of.ids] == of.rows[:, None]
    return of.spread(np.where(named, gradient[of.ids], np.zeros((), gradient.dtype)))


def segment_gather(input: Any, segment_ids: Any) -> Array:
    """The segments' own bits, 0 for a row without one."""
    values = np.asarray(input)
    of = _Segments(segment_ids, len(values))
    return of.spread(values[of.ids])


# ---- reductions


def segment_sum(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    of, values = _Segments(segment_ids, num_segments), in_float64(input)
    values = values[of.rows]
    with np.errstate(invalid="ignore", over="ignore"):
        value, magnitude = of.total(values), of.total(np.abs(values))
    terms = np.broadcast_to(of.count, value.shape)
    return Sum(value, magnitude, terms, additions(terms), own=terms)


def segment_mean(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    """Besides the sum, the division."""
    value, magnitude, terms, roundings, _ = segment_sum(input, segment_ids, num_segments)
    count = np.maximum(terms, 1)
    return Sum(value / count, magnitude / count, terms, roundings + 1, own=terms + 1)


def segment_prod(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    of = _Segments(segment_ids, num_segments)
    value = of.fold(np.multiply, in_float64(input)[of.rows], 1.0)
    terms = np.broadcast_to(of.count, value.shape)
    return Sum(value, np.abs(value), terms, additions(terms), own=terms)


class _Exponentials:
    """The exponentials of a segment's rows relative to its largest, their sum, and the sum's relative error.

    The error is in roundings. A term meets an exponential, its argument's rounding and additions: the arguments of all
    of them, each off by a rounding of itself, add up to the distance from the largest value, at most `reach`. Where the
    largest value grows from one partial sum to the next, what is there is scaled by another exponential.
    """

    def __init__(self, of: _Segments, values: Array) -> None:
        self.largest = of.extreme(values, smallest=False)
        with np.errstate(invalid="ignore"):
            difference = values - self.largest[of.ids]
            # An infinity is its own distance 0 from the largest.
            self.relative = np.where(values == self.largest[of.ids], 0.0, difference)
            self.terms = np.exp(self.relative)
            self.sum = of.total(self.terms)
            self.distance = np.where(np.isfinite(self.relative), -self.relative, 0.0)
        self.reach = of.fold(np.maximum, self.distance, 0.0)
        self.error = (1 + EXPONENTIAL) * (additions(of.count) + 1) + self.reach
        self.own = (1 + EXPONENTIAL) * (of.count + 1) + self.reach


def segment_logsumexp(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    """The sum's relative error is an absolute one of its logarithm; besides, the logarithm and the result."""
    of = _Segments(segment_ids, num_segments)
    parts = _Exponentials(of, in_float64(input)[of.rows])
    with np.errstate(invalid="ignore", divide="ignore"):
        logarithm = np.log(parts.sum)
        value = np.where(of.count > 0, parts.largest + logarithm, -np.inf)
    besides = sum(np.where(np.isfinite(each), np.abs(each), 0.0) for each in (LOGARITHM * logarithm, value))
    filled = of.count > 0
    return Sum(
        value,
        np.ones(value.shape),
        np.broadcast_to(of.count, value.shape),
        np.where(filled, parts.error + besides, 0.0),
        own=np.where(filled, parts.own + besides, 0.0),
    )


def segment_softmax(input: Any, segment_ids: Any, num_segments: int) -> Sum:
    """Besides the sum: the exponential, that of its argument, and the division."""
    of = _Segments(segment_ids, num_segments)
    parts = _Exponentials(of, in_float64(input)[of.rows])
    with np.errstate(invalid="ignore"):
        value = parts.terms / parts.sum[of.ids]
    besides = parts.distance + 1 + EXPONENTIAL
    roundings, own = (each[of.ids] + besides for each in (parts.error, parts.own))
    return of.sum_of_rows(value, np.abs(value), of.count[of.ids], roundings, own)


# ---- gradients


def segment_mean_backward(grad_output: Any, segment_ids: Any) -> Sum:
    """The division."""
    gradient = in_float64(grad_output)
    of = _Segments(segment_ids, len(gradient))
    value = (gradient / np.maximum(of.count, 1))[of.ids]
    return of.sum_of_rows(value, np.abs(value), 1, 1)


def segment_even_backward(grad_output: Any, input: Any, segment_ids: Any, smallest: bool = False) -> Sum:
    """An equal part of the gradient to each row that holds the extreme."""
    gradient = in_float64(grad_output)
    of = _Segments(segment_ids, len(gradient))
    values = in_float64(input)[of.rows]
    holds = of.holds(values, of.extreme(values, smallest))
    value = np.where(holds, (gradient / np.maximum(of.total(holds), 1))[of.ids], 0.0)
    return of.sum_of_rows(value, np.abs(value), 1, 1)


def _products_before(values: Array, first: Array) -> Array:
    """The product of the rows from ``first[row]`` up to each row, and without it."""
    place = np.arange(len(values))
    found = np.ones(values.shape)
    later = place > first
    found[later] = values[place[later] - 1]
    step = 1
    while (reaches := place - step >= first).any():
        # Each product has up to `step` rows; with the product of the row that lies so far before, it has twice as many.
        found[reaches] *= found[place[reaches] - step]
        step *= 2
    return found


def segment_prod_backward(grad_output: Any, input: Any, segment_ids: Any) -> Sum:
    """The gradient times the product of the other rows, each product formed without its row.

    Besides the product: the one with the gradient, and two where a kernel divides by the row or joins two products.
    """
    gradient = in_float64(grad_output)
    of = _Segments(segment_ids, len(gradient))
    order = np.argsort(of.ids, kind="stable")
    values, ids = in_float64(input)[of.rows[order]], of.ids[order]
    begin = np.cumsum(of.count[:, 0]) - of.count[:, 0]
    end = begin + of.count[:, 0]
    with np.errstate(invalid="ignore", over="ignore"):
        before = _products_before(values, begin[ids])
        behind = _products_before(values[::-1], (len(values) - end[ids])[::-1])[::-1]
        value = np.empty(values.shape)
        value[order] = gradient[ids] * (before * behind)
    terms = of.count[of.ids]
    return of.sum_of_rows(value, np.abs(value), terms, additions(terms) + 3, own=terms + 1)


def segment_logsumexp_backward(grad_output: Any, input: Any, output: Any, segment_ids: Any) -> Sum:
    """The difference, the exponential and the product. In 16 bits ``output`` is rounded and plays no part."""
    gradient = in_float64(grad_output)
    of = _Segments(segment_ids, len(gradient))
    values = in_float64(input)[of.rows]
    if np.asarray(input).dtype.itemsize == 2:
        return _softmax_times(gradient, of, values)
    sums = in_float64(output)[of.ids]
    with np.errstate(invalid="ignore", over="ignore"):
        relative = np.where(values == sums, 0.0, values - sums)
        value = gradient[of.ids] * np.exp(relative)
    distance = np.where(np.isfinite(relative), np.abs(relative), 0.0)
    return of.sum_of_rows(value, np.abs(value), 1, distance + 1 + EXPONENTIAL)


def _softmax_times(gradient: Array, of: _Segments, values: Array) -> Sum:
    """The softmax's roundings and a product; the rows that hold an infinite extreme have the whole gradient each."""
    parts = _Exponentials(of, values)
    with np.errstate(invalid="ignore", over="ignore"):
        value = gradient[of.ids] * parts.terms / np.where(np.isinf(parts.largest), 1.0, parts.sum)[of.ids]
    besides = parts.distance + 2 + EXPONENTIAL
    roundings, own = (each[of.ids] + besides for each in (parts.error, parts.own))
    return of.sum_of_rows(value, np.abs(value), of.count[of.ids], roundings, own)


def segment_softmax_backward(grad_output: Any, output: Any, segment_ids: Any, num_segments: int) -> Sum:
    """Besides the sum: a product in it, the difference, the product with it, and the last partial sum."""
    of = _Segments(segment_ids, num_segments)
    gradient, values = in_float64(grad_output)[of.rows], in_float64(output)[of.rows]
    with np.errstate(invalid="ignore", over="ignore"):
        products = values * gradient
        value = values * (gradient - of.total(products)[of.ids])
        magnitude = np.abs(values) * (np.abs(gradient) + of.total(np.abs(products))[of.ids])
    terms = of.count[of.ids]
    return of.sum_of_rows(value, magnitude, terms + 1, additions(terms) + 4, own=terms + 4)


def ids_of_offsets(offsets: Any, num_rows: int) -> Array:
    """The segment of each row, -1 for a row that no segment covers; offsets may lie outside [0, num_rows]."""
    ids = np.full(num_rows, -1, np.int64)
    places = np.clip(np.asarray(offsets, np.int64), 0, num_rows)
    for segment in range(len(places) - 1):
        ids[places[segment] : places[segment + 1]] = segment
    return ids


# ---- by the operations' names in a descriptor

Tensors = Mapping[str, Any]


def _selected(name: str, with_arg: bool) -> Callable[[Tensors, Any, int], list[Sum]]:
    smallest = name == "min"

    def define(given: Tensors, ids: Any, number: int) -> list[Sum]:
        found = [exact(unsorted_segment_max(given["input"], ids, number, smallest))]
        return [*found, exact(unsorted_segment_argmax(given["input"], ids, number, smallest))] if with_arg else found

    return define


def _of_table(function: Callable[..., Sum]) -> Callable[[Tensors, Any, int], list[Sum]]:
    return lambda given, ids, number: [function(**given, segment_ids=ids, num_segments=number)]


def _of_rows(function: Callable[..., Sum | Array], **options: Any) -> Callable[[Tensors, Any, int], list[Sum]]:
    """Of a function that sees how many segments there are."""

    def define(given: Tensors, ids: Any, number: int) -> list[Sum]:
        found = function(**given, segment_ids=ids, **options)
        return [found if isinstance(found, Sum) else exact(found)]

    return define


# A function of the operator's tensors by their names in C, of the rows' segments and of how many segments there are
# answers what the operation's outputs, in order, must be.
DEFINITIONS: dict[str, Callable[[Tensors, Any, int], list[Sum]]] = {
    "sum": _of_table(segment_sum),
    "mean": _of_table(segment_mean),
    "max": _selected("max", with_arg=False),
    "min": _selected("min", with_arg=False),
    "prod": _of_table(segment_prod),
    "logsumexp": _of_table(segment_logsumexp),
    "max_with_arg": _selected("max", with_arg=True),
    "min_with_arg": _selected("min", with_arg=True),
    "softmax": _of_table(segment_softmax),
    "sum_backward": lambda given, ids, number: [exact(segment_gather(given["grad_output"], ids))],
    "mean_backward": _of_rows(segment_mean_backward),
    "max_backward": _of_rows(unsorted_segment_max_backward),
    "min_backward": _of_rows(unsorted_segment_max_backward, smallest=True),
    "max_even_backward": _of_rows(segment_even_backward),
    "min_even_backward": _of_rows(segment_even_backward, smallest=True),
    "max_with_arg_backward": _of_rows(segment_arg_backward),
    "min_with_arg_backward": _of_rows(segment_arg_backward),
    # The product itself is a tensor of the operator, too: a kernel may divide it.
    "prod_backward": lambda given, ids, number: [segment_prod_backward(given["grad_output"], given["input"], ids)],
    "logsumexp_backward": _of_rows(segment_logsumexp_backward),
    "softmax_backward": _of_table(segment_softmax_backward),
    "gather": _of_rows(segment_gather),
}
