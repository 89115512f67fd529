# SPDX-License-Identifier: Apache-2.0
"""grid_sample in 2D and its two gradients, tap by tap; interpolations and paddings are rows of two tables.

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
# Its gradient to the input: the same 4, and partial sums: they are added in at most as many additions as there are
# partial sums, which the terms already pay for, plus the one of the last.
GRID_SAMPLE_INPUT = Roundings(1, 5)
# Its gradient to the grid: 1 - fraction, the products with the value, the gradient and half the extent, a difference of
# two values or two weighted values formed first, and the last partial sum.
GRID_SAMPLE_GRID = Roundings(1, 6)


class _AxisTap(NamedTuple):
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


def _zeros(pixel: Array, extent: int) -> tuple[Array, Array]:
    inside = (pixel >= 0) & (pixel < extent)  # false for NaN
    return np.where(inside, pixel, 0).astype(np.int64), inside


# name -> taps of a position: (pixel as a float, weight, slope)
INTERPOLATIONS: dict[str, Callable[[Array], list[tuple[Array, Array, Array]]]] = {"bilinear": _bilinear}
# name -> (pixel as a float, extent) to (pixel, whether it exists)
PADDINGS: dict[str, Callable[[Array, int], tuple[Array, Array]]] = {"zeros": _zeros}


def _axis_taps(position: Array, extent: int, mode: str, padding_mode: str) -> list[_AxisTap]:
    taps = []
    for pixel, weight, slope in INTERPOLATIONS[mode](position):
        index, exists = PADDINGS[padding_mode](pixel, extent)
        taps.append(_AxisTap(index, weight, slope, exists))
    return taps


class _Samples(NamedTuple):
    """The grid in one flat list of samples, row-major."""

    image: Array
    missing: Array  # bool: a NaN coordinate
    across: list[_AxisTap]
    down: list[_AxisTap]


def _samples(
    grid: Any, height: int, width: int, mode: str, padding_mode: str, align_corners: bool, coordinate_dtype: Any
) -> _Samples:
    coordinates = np.asarray(grid).astype(coordinate_dtype)
    batch, rows, columns, _ = coordinates.shape
    flat = coordinates.reshape(-1, 2)
    with np.errstate(all="ignore"):
        x = source_position(flat[:, 0], width, align_corners)
        y = source_position(flat[:, 1], height, align_corners)
        across = _axis_taps(x, width, mode, padding_mode)
        down = _axis_taps(y, height, mode, padding_mode)
    missing = np.isnan(flat).any(axis=1)
    image = np.repeat(np.arange(batch), rows * columns)
    return _Samples(image, missing, across, down)


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
    return total.result(GRID_SAMPLE).map(lambda part: np.moveaxis(part.reshape(n, oh, ow, c), 3, 1).copy())


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
    return total.result(GRID_SAMPLE_INPUT).map(lambda part: np.moveaxis(part.reshape(n, h, w, c), 3, 1).copy())


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
    per_pixel_x = (w - 1) / 2 if align_corners else w / 2  # d(position)/d(coordinate)
    per_pixel_y = (h - 1) / 2 if align_corners else h / 2
    with np.errstate(all="ignore"):
        for tap_y in samples.down:
            for tap_x in samples.across:
                exists = tap_y.exists & tap_x.exists & ~samples.missing
                for axis, weight, per_pixel in (
                    (0, tap_x.slope * tap_y.weight, per_pixel_x),
                    (1, tap_y.slope * tap_x.weight, per_pixel_y),
                ):
                    (taken,) = np.nonzero(exists & (weight != 0))
                    source = (samples.image[taken] * h + tap_y.pixel[taken]) * w + tap_x.pixel[taken]
                    terms = gradients[taken] * pixels[source] * weight[taken, None] * per_pixel
                    total.add(np.repeat(2 * taken + axis, c), terms.reshape(-1, 1))
    return total.result(GRID_SAMPLE_GRID).map(lambda part: part.reshape(n, oh, ow, 2))


def grid_sample_2d_backward(grad_output: Any, input: Any, grid: Any, **options: Any) -> tuple[Sum, Sum]:
    """The gradients with respect to input [N, C, H, W] and grid [N, OH, OW, 2]; options as in each of the two."""
    return (
        grid_sample_2d_backward_input(grad_output, grid, np.shape(input)[2:], **options),
        grid_sample_2d_backward_grid(grad_output, input, grid, **options),
    )


def pixels_read(grid: Any, size: tuple[int, int], coordinate_dtype: Any = np.float64) -> int:
    """How many pixels of its images, of ``size`` (H, W), a grid reads; bilinear, zeros outside."""
    h, w = size
    samples = _samples(grid, h, w, "bilinear", "zeros", False, coordinate_dtype)
    seen = np.zeros(len(np.asarray(grid)) * h * w, bool)
    for tap_y in samples.down:
        for tap_x in samples.across:
            exists = tap_y.exists & tap_x.exists
            seen[((samples.image * h + tap_y.pixel) * w + tap_x.pixel)[exists]] = True
    return int(seen.sum())
