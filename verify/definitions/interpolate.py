# SPDX-License-Identifier: Apache-2.0
"""Interpolation to another size and its gradient, axis after axis: where output pixels lie, what they are made of.

Source: torch.nn.functional.interpolate (2.13), modes nearest and nearest-exact by CUDA's formulas, the others by the
CPU's. A position is one rounding of s (o + 1/2) - 1/2; PyTorch rounds once or twice, as its compilers like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from verify.bounds import Sum, additions, exact
from verify.dtypes import Array, coordinate_dtype, in_float64

# In the order of the numbers that the ABI's options give them.
MODES = ("nearest", "nearest-exact", "linear", "cubic", "linear-antialias", "cubic-antialias")
# The radius of a filter.
ANTIALIASED = {"linear-antialias": 1, "cubic-antialias": 2}

# An axis of the linear mode: a product, and one fused operation that adds the other pixel's.
_LINEAR_ROUNDINGS = 2
# Of the cubic mode: a fused operation for each of four taps.
_CUBIC_ROUNDINGS = 4
# A cubic weight's own: at most three for 1 - t, by which it may change as by its square, and five operations; the cubic
# factor 1 + t - 5/4 t^2, at least 3/4, meets three roundings of at most 2 each, and another of t. Three additions where
# taps meet at an edge.
_CUBIC_WEIGHT_ROUNDINGS = 15
# A filter's value has at most these, its distance being given: the triangle one, where 1 - x is rounded; the cubic in
# factors, of which 1 - x, x - 1 and 2 - x have one or none each. Below 1 the other factor is a fused operation on a
# product and a sum, 1 + x - 3/2 x^2 >= 1/2 of numbers of at most 3/2 and 2, each a rounding of at most 4 and 3, and its
# own; the product is one more. From 1 on there are three products.
_FILTER_ROUNDINGS = {1: 1, 2: 10}


class Axis(NamedTuple):
    """Output pixel o is ``low[o]`` times pixel ``pixel[o]`` and ``high[o]`` times the next one, if that is not 0."""

    pixel: Array
    low: Array
    high: Array
    input: int
    is_same: bool

    @property
    def output(self) -> int:
        """Output pixels."""
        return len(self.pixel)

    @property
    def taps(self) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
        """For the lower and the upper pixel: the output pixels that have it, which it is, with what weight."""
        everyone, upper = np.arange(len(self.pixel)), np.flatnonzero(self.high)
        return (everyone, self.pixel, self.low), (upper, self.pixel[upper] + 1, self.high[upper])


class CubicAxis(NamedTuple):
    """Output pixel o is the sum of ``weights[k, o]`` times pixel ``pixels[k, o]``, of those that are not 0."""

    pixels: Array
    weights: Array
    input: int
    is_same: bool = False

    @property
    def output(self) -> int:
        """Output pixels."""
        return int(self.pixels.shape[1])

    @property
    def joined(self) -> CubicAxis:
        """The same with each pixel once, by the sum of its weights: where pixels beyond an edge are the edge's."""
        pixels, weights = self.pixels, self.weights.copy()
        for k in range(1, 4):
            for first in range(k):
                same = (pixels[first] == pixels[k]) & (weights[k] != 0)
                weights[first, same] += weights[k, same]
                weights[k, same] = 0
        return self._replace(weights=weights)

    @property
    def taps(self) -> list[tuple[Array, Array, Array]]:
        """For each of the four: the output pixels that have it, which it is, with what weight."""
        some = [np.flatnonzero(weights) for weights in self.weights]
        return [(o, self.pixels[k, o], self.weights[k, o]) for k, o in enumerate(some)]


class FilterAxis(NamedTuple):
    """Output pixel o is the sum of ``weights[o, i]`` times pixel i, of those that are not 0."""

    weights: Array
    roundings: Array  # of the weights of output pixel o

    is_same: bool = False

    @property
    def output(self) -> int:
        """Output pixels."""
        return int(self.weights.shape[0])

    @property
    def input(self) -> int:
        """Input pixels."""
        return int(self.weights.shape[1])

    @property
    def taps(self) -> list[tuple[Array, Array, Array]]:
        """For every input pixel: the output pixels that have it, which it is, with what weight."""
        some = [np.flatnonzero(column) for column in self.weights.T]
        return [(o, np.full(len(o), i), self.weights[o, i]) for i, o in enumerate(some) if len(o)]


def _step(input: int, output: int, scale: float, dtype: Any) -> Any:
    if scale > 0:
        with np.errstate(all="ignore"):
            return dtype(np.float64(1) / np.float64(scale))
    return dtype(input) / dtype(output)


def _clipped(position: Any, input: int) -> int:
    """The pixel at or below a position; NaN, which 0 times infinity is, is at the first."""
    if not position > 0:
        return 0
    return input - 1 if position >= input else int(position)


def _nearest(input: int, output: int, scale: float, exactly: bool) -> list[int]:
    """In float32 for every dtype."""
    step, half = _step(input, output, scale, np.float32), np.float32(0.5 if exactly else 0)
    with np.errstate(all="ignore"):
        return [_clipped((np.float32(o) + half) * step, input) for o in range(output)]


def _position(o: int, step: Any, dtype: Any, least: float = 0) -> Any:
    """s (o + 1/2) - 1/2 with one rounding behind that of o + 1/2, at least `least`."""
    centre = dtype(o) + dtype(0.5)
    if not np.isfinite(step):
        return step
    (a, b), (c, d) = float(step).as_integer_ratio(), float(centre).as_integer_ratio()
    # (2 a c - b d) / (2 b d). The quotient of integers is rounded once, to float64, in which a float32's is exact: 48
    # bits of product, of which no positive result loses any.
    above, below = 2 * a * c - b * d, 2 * b * d
    return max(dtype(above / below), dtype(least))


def _linear(
    input: int, output: int, scale: float, align_corners: bool, dtype: Any
) -> tuple[list[int], list[Any], list[Any]]:
    indices, lows, highs = [], [], []
    corner_step = dtype(input - 1) / dtype(output - 1) if output > 1 else dtype(0)
    step = corner_step if align_corners else _step(input, output, scale, dtype)
    for o in range(output):
        position = step * dtype(o) if align_corners else _position(o, step, dtype)
        index = _clipped(position, input)
        high = position - dtype(index) if index < input - 1 else dtype(0)
        indices.append(index)
        lows.append(dtype(1) - high)
        highs.append(high)
    return indices, lows, highs


def _keys(t: float) -> tuple[float, float, float, float]:
    """Keys' kernel with a = -3/4 at distances 1 + t, t, 1 - t and 2 - t, as polynomials that lose nothing near 0."""
    a, s = -0.75, 1 - t
    beside = [-(a + 2) * x**3 + (2 * a + 3) * x**2 - a * x for x in (s, t)]
    return a * t * s**2, beside[0], beside[1], a * s * t**2


def _cubic(input: int, output: int, scale: float, align_corners: bool, dtype: Any) -> CubicAxis:
    corner_step = dtype(input - 1) / dtype(output - 1) if output > 1 else dtype(0)
    step = corner_step if align_corners else _step(input, output, scale, dtype)
    pixels, weights = np.zeros((4, output), np.int64), np.zeros((4, output))
    for o in range(output):
        position = step * dtype(o) if align_corners else _position(o, step, dtype, -1)
        # Far outside it is the pixel at the edge alone; nowhere, which a NaN is, the first.
        pixel = input if position >= input else int(np.floor(position)) if position == position else 0
        t = position - dtype(pixel) if position < input else dtype(0)
        weights[:, o] = _keys(float(t))
        for k in range(4):
            pixels[k, o] = min(max(pixel - 1 + k, 0), input - 1)
    return CubicAxis(pixels, weights, input)


def _filter(x: Array, radius: int) -> Array:
    """A triangle, or Keys' kernel with a = -1/2, at distances from its centre; nothing at a NaN."""
    if radius == 1:
        return np.where(x < 1, 1 - x, 0.0)
    near, far = (1 - x) * (1 + x - 1.5 * x * x), -0.5 * (x - 1) * (2 - x) ** 2
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _antialiased(input: int, output: int, scale: float, align_corners: bool, dtype: Any, radius: int) -> FilterAxis:
    """Positions and distances in `dtype`, as PyTorch computes them; weights in float64."""
    corner_step = dtype(input - 1) / dtype(output - 1) if output > 1 else dtype(0)
    step = corner_step if align_corners else _step(input, output, scale, dtype)
    weights, roundings, half = np.zeros((output, input)), np.zeros(output), dtype(0.5)
    with np.errstate(all="ignore"):
        shrinks = step >= 1
        support = dtype(radius) * (step if shrinks else dtype(1))
        inverse = dtype(1) / step if shrinks else dtype(1)
        most = min(2 * int(np.ceil(support)) + 1, input) if np.isfinite(support) else 0
        for o in range(output):
            centre = step * (dtype(o) + half)
            first, end = (_behind((centre + way * support) + half, input) for way in (-1, 1))
            pixels = np.arange(first, min(end, first + most))
            x = np.abs(((pixels.astype(dtype) - centre) + half) * inverse).astype(np.float64)
            found = _filter(x, radius)
            total = found.sum()
            if total == 0:
                continue
            weights[o, pixels] = found / total
            # A weight's own, those of a total, which may be smaller than the sum of what it is made of, and a division.
            of_total = np.abs(found).sum() / abs(total) * (_FILTER_ROUNDINGS[radius] + len(pixels))
            roundings[o] = _FILTER_ROUNDINGS[radius] + of_total + 1
    return FilterAxis(weights, roundings)


def _behind(position: Any, input: int) -> int:
    """A position towards 0, from 0 to the number of pixels; a NaN is 0."""
    if not position > 0:
        return 0
    return input if position >= input else int(position)


def axis(
    input: int, output: int, mode: str, align_corners: bool, scale: float, dtype: Any
) -> Axis | CubicAxis | FilterAxis:
    """Where the output pixels of one axis lie; `dtype` is the data's, and a scale of 0 or less is not given."""
    ones, zeros = np.ones(output), np.zeros(output)
    if input == output and mode == "linear":
        return Axis(np.arange(output), ones, zeros, input, True)
    compute = np.dtype(coordinate_dtype(dtype)).type
    if mode in ANTIALIASED:
        return _antialiased(input, output, scale, align_corners, compute, ANTIALIASED[mode])
    if mode == "cubic":
        return _cubic(input, output, scale, align_corners, compute)
    if mode != "linear":
        index = _nearest(input, output, scale, mode == "nearest-exact")
        return Axis(np.array(index, np.int64), ones, zeros, input, False)
    indices, lows, highs = _linear(input, output, scale, align_corners, compute)
    return Axis(np.array(indices, np.int64), np.array(lows, np.float64), np.array(highs, np.float64), input, False)


def axes(
    sizes: Sequence[int],
    output_size: Sequence[int],
    mode: str,
    align_corners: bool,
    scales: Sequence[float] | None,
    dtype: Any,
) -> list[Axis | CubicAxis | FilterAxis]:
    """Those of a problem, outermost first; the cubic and the antialiased modes have two, and no depth."""
    given = [0.0] * len(sizes) if scales is None else scales
    if mode in ("cubic", *ANTIALIASED) and len(sizes) == 3:
        return [
            Axis(np.arange(1), np.ones(1), np.zeros(1), 1, True),
            *axes(sizes[1:], output_size[1:], mode, align_corners, given[1:], dtype),
        ]
    return [
        axis(input, output, mode, align_corners, scale, dtype)
        for input, output, scale in zip(sizes, output_size, given, strict=True)
    ]


def _gather(values: Array, places: Sequence[Axis | CubicAxis | FilterAxis], weigh: Callable[[Array], Array]) -> Array:
    for number, each in reversed(list(enumerate(places))):
        moved = np.moveaxis(values, 2 + number, -1)
        found = np.zeros((*moved.shape[:-1], each.output))
        for outputs, pixels, weights in each.taps:
            found[..., outputs] += weigh(weights) * moved[..., pixels]
        values = np.moveaxis(found, -1, 2 + number)
    return values


def _scatter(values: Array, places: Sequence[Axis | CubicAxis | FilterAxis], weigh: Callable[[Array], Array]) -> Array:
    for number, each in enumerate(places):
        moved = np.moveaxis(values, 2 + number, 0)
        found = np.zeros((each.input, *moved.shape[1:]))
        for outputs, pixels, weights in each.taps:
            shape = (-1,) + (1,) * (moved.ndim - 1)
            np.add.at(found, pixels, weigh(weights).reshape(shape) * moved[outputs])
        values = np.moveaxis(found, 0, 2 + number)
    return values


def _joined(places: Sequence[Axis | CubicAxis | FilterAxis]) -> list[Axis | CubicAxis | FilterAxis]:
    """What values are made with; bounds have the weights as they are added up."""
    return [each.joined if isinstance(each, CubicAxis) else each for each in places]


def _counts(weights: Array) -> Array:
    return np.ones_like(weights)


def _itself(weights: Array) -> Array:
    return weights


def interpolate_moves(
    input: Any,
    output_size: Sequence[int],
    mode: str = "nearest",
    scales: Sequence[float] | None = None,
) -> Array:
    """The nearest modes: elements of the input [N, C, ...], which may be bits, at their new places."""
    values = np.asarray(input)
    for number, each in enumerate(axes(values.shape[2:], output_size, mode, False, scales, values.dtype)):
        ((_, pixels, _), *_) = each.taps
        values = np.take(values, pixels, axis=2 + number)
    return values


def interpolate(
    input: Any,
    output_size: Sequence[int],
    mode: str = "nearest",
    align_corners: bool = False,
    scales: Sequence[float] | None = None,
) -> Sum:
    """The input [N, C, ...] at another size; positions are of the input's dtype, of 16-bit ones float32."""
    values = np.asarray(input)
    if mode in ("nearest", "nearest-exact"):
        return exact(interpolate_moves(values, output_size, mode, scales))
    places = axes(values.shape[2:], output_size, mode, align_corners, scales, values.dtype)
    data = in_float64(values)
    with np.errstate(all="ignore"):
        value = _gather(data, _joined(places), _itself)
        magnitude = _gather(np.abs(data), places, np.abs)
        terms = _gather(np.ones_like(data), places, _counts)
    roundings = np.zeros((1, 1, *output_size))
    for number, each in enumerate(places):
        if each.is_same:
            continue
        of_axis = np.full(
            each.output, _CUBIC_ROUNDINGS + _CUBIC_WEIGHT_ROUNDINGS if mode == "cubic" else _LINEAR_ROUNDINGS
        )
        if isinstance(each, FilterAxis):
            # A fused operation for every pixel under the filter.
            of_axis = each.roundings + np.count_nonzero(each.weights, axis=1)
        roundings = roundings + of_axis.reshape([-1 if at == 2 + number else 1 for at in range(2 + len(places))])
    roundings = np.broadcast_to(roundings, value.shape)
    # An element that is another one as it is: its own bits, but for a NaN's.
    return Sum(value, magnitude, terms.astype(np.int64), roundings)


def interpolate_backward(
    grad_output: Any,
    input_size: Sequence[int],
    mode: str = "nearest",
    align_corners: bool = False,
    scales: Sequence[float] | None = None,
) -> Sum:
    """The gradient [N, C, *input_size] of interpolate with respect to its input."""
    gradient = np.asarray(grad_output)
    places = axes(input_size, gradient.shape[2:], mode, align_corners, scales, gradient.dtype)
    data = in_float64(gradient)
    with np.errstate(all="ignore"):
        value = _scatter(data, _joined(places), _itself)
        magnitude = _scatter(np.abs(data), places, np.abs)
        terms = _scatter(np.ones_like(data), places, _counts)
    # Along each axis a fused operation for every term, and the addition of every partial sum.
    roundings = np.zeros((1, 1, *input_size))
    for number, each in enumerate(places):
        if each.is_same:
            continue
        shape = [1] * roundings.ndim
        shape[2 + number] = -1
        if isinstance(each, FilterAxis):
            # A fused operation for every term, in one chain, and the roundings of the worst weight.
            has = each.weights != 0
            worst = np.where(has, each.roundings[:, None], 0).max(axis=0, initial=0)
            roundings = roundings + (worst + has.sum(axis=0)).reshape(shape)
            continue
        count = np.zeros(each.input, np.int64)
        for _, pixels, _ in each.taps:
            count += np.bincount(pixels, minlength=each.input)
        of_weights = _CUBIC_WEIGHT_ROUNDINGS * (count > 0) if mode == "cubic" else 0 * count
        roundings = roundings + of_weights.reshape(shape) + additions(count).astype(np.int64).reshape(shape)
    return Sum(value, magnitude, terms.astype(np.int64), np.broadcast_to(roundings, value.shape))
