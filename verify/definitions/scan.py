# SPDX-License-Identifier: Apache-2.0
"""Scans along the middle axis of [outer, length, inner], element by element from the begin of the scan.

Sources: torch.cumsum, cumprod, logcumsumexp, cummax and cummin. A kernel joins what stands in front of an element by
halves of blocks of 128, then by blocks of a tile of 8192, then by tiles, and may join a first value to it: that is how
many joins an element of the row can meet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.bounds import EXPONENTIAL, LOGARITHM, Sum
from verify.dtypes import Array, in_float64

_BLOCK, _TILE = 128, 8192


def _along(values: Any, reverse: bool) -> Array:
    """In the order of the scan; the way back is the same."""
    array = np.asarray(values)
    return array[:, ::-1] if reverse else array


def _joins(shape: tuple[int, ...]) -> Array:
    """How many joins a term can meet on its way to the result at each place along the scan."""
    place = np.arange(shape[1])
    in_block = np.ceil(np.log2(np.minimum(place % _BLOCK, _BLOCK - 1) + 1))
    joins = np.where(place >= _BLOCK, 7, in_block) + np.where(place >= _TILE, 63, place // _BLOCK) + place // _TILE + 1
    return np.broadcast_to(joins[:, None], shape)


def _places(shape: tuple[int, ...]) -> Array:
    """The number of terms of each result."""
    return np.broadcast_to(np.arange(1, shape[1] + 1)[:, None], shape)


def cumsum(input: Any, reverse: bool = False) -> Sum:
    values = _along(in_float64(input), reverse)
    with np.errstate(invalid="ignore", over="ignore"):
        value, magnitude = np.cumsum(values, 1), np.cumsum(np.abs(values), 1)
    terms = _places(values.shape)
    return Sum(value, magnitude, terms, _joins(values.shape), own=terms).map(lambda part: _along(part, reverse))


def cumsum_of_integers(input: Any, reverse: bool = False) -> Array:
    """In the integers' own dtype, which wraps around."""
    values = _along(input, reverse)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(_along(np.cumsum(values, 1, values.dtype), reverse))


def cumprod(input: Any, reverse: bool = False) -> Sum:
    """Each of the factors but one is a product, and each product a rounding."""
    values = _along(in_float64(input), reverse)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        value = np.cumprod(values, 1)
    terms = _places(values.shape)
    return Sum(value, np.abs(value), terms, terms, own=terms).map(lambda part: _along(part, reverse))


def cumprod_of_integers(input: Any, reverse: bool = False) -> Array:
    """In the integers' own dtype, which wraps around."""
    values = _along(input, reverse)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(_along(np.cumprod(values, 1, values.dtype), reverse))


def _at(part: Array, places: Array, reverse: bool) -> Array:
    """Of an array along the scan the places of the row that are asked for."""
    return np.ascontiguousarray(_along(part, reverse)[:, places])


def cumprod_backward(
    grad_output: Any, input: Any, output: Any, reverse: bool = False, places: Array | None = None
) -> Sum:
    """For every element, of it and those behind: the gradient times the factors between; at some places alone.

    A term meets a rounding for each of these factors, one for each sum it is in, and the product with what is in front.
    """
    gradient, factors, products = (_along(in_float64(each), reverse) for each in (grad_output, input, output))
    value, magnitude = np.zeros(gradient.shape), np.zeros(gradient.shape)
    length = gradient.shape[1]
    chosen = np.arange(length) if places is None else places
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for j in length - 1 - chosen if reverse else chosen:
            between = np.cumprod(np.concatenate([np.ones_like(factors[:, :1]), factors[:, j + 1 :]], 1), 1)
            terms = gradient[:, j:] * between
            front = products[:, j - 1] if j > 0 else np.ones_like(products[:, 0])
            value[:, j] = front * terms.sum(1)
            magnitude[:, j] = np.abs(front) * np.abs(terms).sum(1)
    count = _places(gradient.shape)[:, ::-1]
    roundings = count + _joins(gradient.shape)[:, ::-1] + 2
    found = Sum(value, magnitude, count, roundings, own=2 * count + 2)
    return found.map(lambda part: _at(part, chosen, reverse))


def _size(values: Array) -> Array:
    """The magnitude of finite numbers."""
    return np.where(np.isfinite(values), np.abs(values), 0.0)


# No exponential of less than this is a number, so how far it is off does not matter.
_LEAST = 746.0


def logcumsumexp(input: Any, reverse: bool = False) -> Sum:
    """The sum's relative error is an absolute one of its logarithm; besides, the logarithm and the result.

    A term meets its own exponential and, at each join, another one that brings it to the new maximum: the arguments of
    all of them, each off by a rounding of itself, add up to how far it is below the last maximum.
    """
    values = _along(in_float64(input), reverse)
    largest = np.maximum.accumulate(values, 1)
    sums = np.zeros(values.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        for outer, inner in np.ndindex(values.shape[0], values.shape[2]):
            row, upto, found = values[outer, :, inner], largest[outer, :, inner], sums[outer, :, inner]
            # The maximum changes where these runs begin.
            begins = np.flatnonzero(np.r_[True, upto[1:] != upto[:-1]])
            for begin, end in zip(begins, np.r_[begins[1:], len(row)], strict=True):
                same = row[begin:end] == upto[begin]
                terms = np.exp(np.where(same, 0.0, row[begin:end] - upto[begin])) * ~np.isneginf(row[begin:end])
                front = found[begin - 1] * np.exp(upto[begin - 1] - upto[begin]) if begin > 0 else 0.0
                found[begin:end] = front + np.cumsum(terms)
        logarithm = np.log(sums)
        value = largest + logarithm
        below = largest - np.minimum.accumulate(np.where(np.isfinite(values), values, np.inf), 1)
    reach = np.minimum(_size(below), _LEAST)
    terms, joins = _places(values.shape), _joins(values.shape)
    besides = LOGARITHM * _size(logarithm) + _size(value)
    roundings = (1 + EXPONENTIAL) * (joins + 1) + reach + besides
    own = (1 + EXPONENTIAL) * (terms + 1) + reach + besides
    whole = Sum(value, np.ones(values.shape), terms, roundings, own=own)
    return whole.map(lambda part: _along(part, reverse))


def logcumsumexp_backward(
    grad_output: Any, input: Any, output: Any, reverse: bool = False, places: Array | None = None
) -> Sum:
    """For every element, of it and those behind: the gradient times e^(input - their output); at some places alone.

    A term meets an exponential at each join and one at the end, whose arguments, each off by a rounding of itself, lead
    from its own output over those between to the element's and from there to the input.
    """
    gradient, values, sums = (_along(in_float64(each), reverse) for each in (grad_output, input, output))
    value, magnitude, reach = (np.zeros(gradient.shape) for _ in range(3))
    length = gradient.shape[1]
    chosen = np.arange(length) if places is None else places
    joins = _joins(gradient.shape)[:, ::-1]
    for j in length - 1 - chosen if reverse else chosen:
        mine, behind = values[:, j : j + 1], sums[:, j:]
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            terms = np.where(np.isneginf(mine), 0.0, gradient[:, j:] * np.exp(mine - behind))
            # At each join the argument is at most the distance between the largest and the smallest output behind.
            span = behind.max(1) - behind.min(1)
        value[:, j], magnitude[:, j] = terms.sum(1), np.abs(terms).sum(1)
        between = np.minimum(_size(span), _LEAST) * np.where(np.all(np.diff(behind, axis=1) >= 0, 1), 1, joins[:, j])
        reach[:, j] = np.minimum(_size(mine - behind[:, :1]), _LEAST)[:, 0] + between
    count = _places(gradient.shape)[:, ::-1]
    roundings = (2 + EXPONENTIAL) * (joins + 2) + reach
    found = Sum(value, magnitude, count, roundings, own=count + 1 + EXPONENTIAL + reach)
    return found.map(lambda part: _at(part, chosen, reverse))


def cummax(input: Any, reverse: bool = False, smallest: bool = False) -> tuple[Array, Array]:
    """The largest element up to each one, its own bits, and where it is: the last of equals, of NaNs the last one."""
    elements = _along(input, reverse)
    values = elements if elements.dtype.kind in "iu" else in_float64(elements)
    best = (np.minimum if smallest else np.maximum).accumulate(values, 1)  # a NaN stays
    wins = (values == best) | ((values != values) & (best != best))
    place = np.arange(elements.shape[1])[:, None]
    last = np.maximum.accumulate(np.where(wins, place, 0), 1)
    output = np.take_along_axis(elements, last, 1)
    indices = elements.shape[1] - 1 - last if reverse else last
    return np.ascontiguousarray(_along(output, reverse)), np.ascontiguousarray(_along(indices, reverse))


def cummaxmin_backward(grad_output: Any, indices: Any, reverse: bool = False) -> Sum:
    """To each element that is named in its own place: the gradients from there on as long as it is named."""
    gradient, named = _along(in_float64(grad_output), reverse), _along(indices, reverse)
    value, magnitude, terms = (np.zeros(gradient.shape) for _ in range(3))
    length = gradient.shape[1]
    for outer, inner in np.ndindex(gradient.shape[0], gradient.shape[2]):
        row = named[outer, :, inner]
        begins = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
        for owner, end in zip(begins, np.r_[begins[1:], length], strict=True):
            if row[owner] == (length - 1 - owner if reverse else owner):
                part = gradient[outer, owner:end, inner]
                with np.errstate(invalid="ignore"):
                    value[outer, owner, inner], magnitude[outer, owner, inner] = part.sum(), np.abs(part).sum()
                terms[outer, owner, inner] = end - owner
    joins = np.where(terms > 0, _joins(gradient.shape)[:, ::-1], 0)
    found = Sum(value, magnitude, terms.astype(np.int64), joins, own=terms)
    return found.map(lambda part: _along(part, reverse))
