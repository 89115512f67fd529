# SPDX-License-Identifier: Apache-2.0
"""grid_sample in 2D and its two gradients, tap by tap; interpolations and paddings are rows of two tables.

A padding says where a position goes and by how much it then moves with its coordinate: by the sign, or not at all.

Source: ATen's GridSampler (torch.nn.functional.grid_sample).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, in_float64

# grid_sample: 1 - fraction on two axes, the product of two weights, the product with the value.
GRID_SAMPLE = Roundings(1, 4)
# A bicubic weight's own roundings: 1 - t meets one, by which a weight may change as by its square; its factors five
# more. The factor 1 + t - 5/4 t^2, at least 3/4, meets three roundings of at most 2 each and another of 1 - t; that of
# a slope, 9/2 - 15/4 s of at least 3/4, its own and one of s, which it scales by at most 5; 3 t - 1 and 3 t - 2 one.
_CUBIC_WEIGHT = 15
# Its gradient to the input: the same 4, and partial sums: they are added in at most as many additions as there are
# partial sums, which the terms already pay for, plus the one of the last.
GRID_SAMPLE_INPUT = Roundings(1, 5)
# Its gradient to the grid: 1 - fraction, the products with the value, the gradient and half the extent, a difference of
# two values or two weighted values formed first, and the last partial sum.
GRID_SAMPLE_GRID = Roundings(1, 6)


def _of_mode(roundings: Roundings, mode: str) -> Roundings:
    """Those of the linear modes, and the weights' own on two axes where they are cubic."""
    return Roundings(roundings.passes, roundings.extra + 2 * _CUBIC_WEIGHT) if mode == "bicubic" else roundings


class AxisTap(NamedTuple):
    """One tap of every sample on one axis."""

    pixel: Array  # int64; any value where it does not exist
    weight: Array  # float64
    slope: Array  # float64: d(weight)/d(position)
    exists: Array  # bool: within the input


def source_position(coordinate: Array, extent: int, align_corners: bool) -> Array:
    """Normalised coordinate to pixel position, each step rounded to the coordinate's own dtype."""
    compute = coordinate.dtype.type
    if align_corners:
        return np.asarray((coordinate + compute(1)) / compute(2) * compute(extent - 1))
    return np.asarray(((coordinate + compute(1)) * compute(extent) - compute(1)) / compute(2))


def _bilinear(position: Array) -> list[tuple[Array, Array, Array]]:
    low = np.floor(position)
    fraction = (position - low).astype(np.float64)
    slope = np.ones_like(fraction)
    return [(low, 1 - fraction, -slope), (low + 1, fraction, slope)]


def _nearest(position: Array) -> list[tuple[Array, Array, Array]]:
    pixel = np.rint(position)  # ties to even
    return [(pixel, np.ones(pixel.shape), np.zeros(pixel.shape))]


def _bicubic(position: Array) -> list[tuple[Array, Array, Array]]:
    """Keys' kernel with a = -3/4 at the distances of four pixels; at infinity the second alone counts."""
    low = np.floor(position)
    fraction = np.where(np.isfinite(position), position - low, 0).astype(np.float64)
    t, s = fraction, 1 - fraction
    # In factors of both distances: a polynomial of one would cancel where its weight is small. What cancels of a slope,
    # 3 t - 1 and 3 t - 2, does so in differences that are exact there.
    weights = (-0.75 * t * s**2, s * (1 + t - 1.25 * t**2), t * (1 + s - 1.25 * s**2), -0.75 * t**2 * s)
    slopes = (0.75 * s * (t - (1 - 2 * t)), t * (3.75 * t - 4.5), s * (4.5 - 3.75 * s), 0.75 * t * (t - 2 * s))
    pixels = (np.asarray(low + position.dtype.type(k - 1), position.dtype) for k in range(4))
    return list(zip(pixels, weights, slopes, strict=True))


def _zeros(position: Array, extent: int, align_corners: bool) -> tuple[Array, Array]:
    return position, np.ones(position.shape)


def _border(position: Array, extent: int, align_corners: bool) -> tuple[Array, Array]:
    last = position.dtype.type(extent - 1)
    # An infinite coordinate of one pixel, whose position is infinity times 0, is there, too.
    clipped = np.clip(np.where(np.isnan(position), 0, position), 0, last).astype(position.dtype)
    return clipped, ((position > 0) & (position < last)).astype(np.float64)


def _reflection(position: Array, extent: int, align_corners: bool) -> tuple[Array, Array]:
    compute = position.dtype.type
    edge, span = compute(0 if align_corners else -0.5), compute(extent - 1 if align_corners else extent)
    if span == 0:
        return np.zeros_like(position), np.zeros(position.shape)
    distance = position - edge
    period = compute(2) * span
    left = np.fmod(np.abs(distance), period)  # exact
    returns = left >= span
    mirrored = np.where(returns, period - left, left) + edge
    clipped, moves = _border(np.asarray(mirrored, position.dtype), extent, align_corners)
    return clipped, moves * np.where((distance < 0) ^ returns, -1.0, 1.0)


# name -> taps of a position: (pixel as a float, weight, slope)
INTERPOLATIONS: dict[str, Callable[[Array], list[tuple[Array, Array, Array]]]] = {
    "bilinear": _bilinear,
    "nearest": _nearest,
    "bicubic": _bicubic,
}
# name -> (position, extent, align_corners) to (position, the sign with which it moves, or 0)
PADDINGS: dict[str, Callable[[Array, int, bool], tuple[Array, Array]]] = {
    "zeros": _zeros,
    "border": _border,
    "reflection": _reflection,
}


def axis_taps(position: Array, extent: int, mode: str) -> list[AxisTap]:
    return within(INTERPOLATIONS[mode](position), extent)


def within(found: list[tuple[Array, Array, Array]], extent: int) -> list[AxisTap]:
    """Taps with what of them exists."""
    taps = []
    for pixel, weight, slope in found:
        inside = (pixel >= 0) & (pixel < extent)  # false for NaN
        taps.append(AxisTap(np.where(inside, pixel, 0).astype(np.int64), weight, slope, inside))
    return taps


class _Samples(NamedTuple):
    """The grid in one flat list of samples, row-major."""

    image: Array
    missing: Array  # bool: a NaN coordinate, or one whose reflection ends nowhere
    across: list[AxisTap]
    down: list[AxisTap]
    moves: tuple[Array, Array]  # float64: d(position)/d(coordinate), across and down


def _samples(
    grid: Any, height: int, width: int, mode: str, padding_mode: str, align_corners: bool, coordinate_dtype: Any
) -> _Samples:
    coordinates = np.asarray(grid).astype(coordinate_dtype)
    batch, rows, columns, _ = coordinates.shape
    flat = coordinates.reshape(-1, 2)
    with np.errstate(all="ignore"):
        missing = np.isnan(flat).any(axis=1)
        axes, moves = [], []
        for axis, extent in enumerate((width, height)):
            position = source_position(flat[:, axis], extent, align_corners)
            if padding_mode == "reflection":
                missing |= ~np.isfinite(position)
            scale = (extent - 1) / 2 if align_corners else extent / 2
            if mode == "bicubic":
                # Padding moves each pixel, and the sample not at all.
                padded_taps = [
                    (PADDINGS[padding_mode](pixel, extent, align_corners)[0], weight, slope)
                    for pixel, weight, slope in _bicubic(position)
                ]
                axes.append(within(padded_taps, extent))
                moves.append(np.full(position.shape, scale))
                continue
            padded, sign = PADDINGS[padding_mode](position, extent, align_corners)
            axes.append(axis_taps(padded, extent, mode))
            moves.append(sign * scale)
    image = np.repeat(np.arange(batch), rows * columns)
    return _Samples(image, missing, axes[0], axes[1], (moves[0], moves[1]))


def grid_sample_2d(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """[N, C, OH, OW] from input [N, C, H, W] and grid [N, OH, OW, 2] of (x, y)."""
    image = in_float64(input)
    n, c, h, w = image.shape
    _, oh, ow, _ = np.asarray(grid).shape
    samples = _samples(grid, h, w, mode, padding_mode, align_corners, coordinate_dtype)
    pixels = np.moveaxis(image, 1, 3).reshape(n * h * w, c)
    total = Accumulator(n * oh * ow, c)
    with np.errstate(all="ignore"):
        for tap_y in samples.down:
            for tap_x in samples.across:
                weight = tap_y.weight * tap_x.weight
                (taken,) = np.nonzero(tap_y.exists & tap_x.exists & ~samples.missing & (weight != 0))
                source = (samples.image[taken] * h + tap_y.pixel[taken]) * w + tap_x.pixel[taken]
                total.add(taken, weight[taken, None] * pixels[source])
    total.value[samples.missing] = np.nan
    return total.result(_of_mode(GRID_SAMPLE, mode)).map(
        lambda part: np.moveaxis(part.reshape(n, oh, ow, c), 3, 1).copy()
    )


def grid_sample_2d_backward_input(
    grad_output: Any,
    grid: Any,
    size: tuple[int, int],
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient with respect to an input [N, C, H, W] of ``size`` (H, W)."""
    gradient, (h, w) = in_float64(grad_output), size
    n, c, oh, ow = gradient.shape
    samples = _samples(grid, h, w, mode, padding_mode, align_corners, coordinate_dtype)
    gradients = np.moveaxis(gradient, 1, 3).reshape(n * oh * ow, c)
    total = Accumulator(n * h * w, c)
    with np.errstate(all="ignore"):
        for tap_y in samples.down:
            for tap_x in samples.across:
                weight = tap_y.weight * tap_x.weight
                (taken,) = np.nonzero(tap_y.exists & tap_x.exists & ~samples.missing & (weight != 0))
                target = (samples.image[taken] * h + tap_y.pixel[taken]) * w + tap_x.pixel[taken]
                total.add(target, weight[taken, None] * gradients[taken])
    return total.result(_of_mode(GRID_SAMPLE_INPUT, mode)).map(
        lambda part: np.moveaxis(part.reshape(n, h, w, c), 3, 1).copy()
    )


def grid_sample_2d_backward_grid(
    grad_output: Any,
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient with respect to the grid [N, OH, OW, 2]."""
    image, gradient = in_float64(input), in_float64(grad_output)
    n, c, h, w = image.shape
    _, _, oh, ow = gradient.shape
    samples = _samples(grid, h, w, mode, padding_mode, align_corners, coordinate_dtype)
    pixels = np.moveaxis(image, 1, 3).reshape(n * h * w, c)
    gradients = np.moveaxis(gradient, 1, 3).reshape(n * oh * ow, c)
    total = Accumulator(n * oh * ow * 2, 1)
    with np.errstate(all="ignore"):
        for tap_y in samples.down:
            for tap_x in samples.across:
                exists = tap_y.exists & tap_x.exists & ~samples.missing
                for axis, weight in ((0, tap_x.slope * tap_y.weight), (1, tap_y.slope * tap_x.weight)):
                    moves = samples.moves[axis]
                    (taken,) = np.nonzero(exists & (weight != 0) & (moves != 0))
                    source = (samples.image[taken] * h + tap_y.pixel[taken]) * w + tap_x.pixel[taken]
                    terms = gradients[taken] * pixels[source] * (weight * moves)[taken, None]
                    total.add(np.repeat(2 * taken + axis, c), terms.reshape(-1, 1))
    return total.result(_of_mode(GRID_SAMPLE_GRID, mode)).map(lambda part: part.reshape(n, oh, ow, 2))


def grid_sample_2d_backward(grad_output: Any, input: Any, grid: Any, **options: Any) -> tuple[Sum, Sum]:
    """The gradients with respect to input [N, C, H, W] and grid [N, OH, OW, 2]; options as in each of the two."""
    return (
        grid_sample_2d_backward_input(grad_output, grid, np.shape(input)[2:], **options),
        grid_sample_2d_backward_grid(grad_output, input, grid, **options),
    )


def pixels_read(
    grid: Any,
    size: tuple[int, int],
    coordinate_dtype: Any = np.float64,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> int:
    """How many pixels of its images, of ``size`` (H, W), a grid reads."""
    h, w = size
    samples = _samples(grid, h, w, mode, padding_mode, align_corners, coordinate_dtype)
    seen = np.zeros(len(np.asarray(grid)) * h * w, bool)
    for tap_y in samples.down:
        for tap_x in samples.across:
            exists = tap_y.exists & tap_x.exists
            seen[((samples.image * h + tap_y.pixel) * w + tap_x.pixel)[exists]] = True
    return int(seen.sum())
