# SPDX-License-Identifier: Apache-2.0
"""grid_sample of volumes and its two gradients, tap by tap, for any interpolation and padding of the 2D definition.

Source: ATen's GridSampler (torch.nn.functional.grid_sample), which takes five dimensions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.grid_sample import PADDINGS, AxisTap, axis_taps, source_position
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, in_float64

# 1 - fraction on three axes, two products of weights, the product with the value.
GRID_SAMPLE = Roundings(1, 6)
# Its gradient to the input: the same 6, and the sum of the last partial sum; the others' are paid for by their terms.
GRID_SAMPLE_INPUT = Roundings(1, 7)
# Its gradient to the grid: 1 - fraction on two axes, the product of two weights, those with the value, the gradient and
# half the extent, and the last partial sum; values are added up before the gradient is a factor.
GRID_SAMPLE_GRID = Roundings(1, 8)


class _Samples(NamedTuple):
    """The grid in one flat list of samples, row-major; axes are x, y, z."""

    volume: Array
    missing: Array  # bool: a NaN coordinate, or one whose reflection ends nowhere
    axes: list[list[AxisTap]]
    moves: list[Array]  # float64: d(position)/d(coordinate)
    extents: tuple[int, int, int]

    def taps(self) -> list[tuple[AxisTap, AxisTap, AxisTap]]:
        """The eight, or the one, of each sample: x is the fastest."""
        x_taps, y_taps, z_taps = self.axes
        return [(x, y, z) for z in z_taps for y in y_taps for x in x_taps]

    def voxels(self, taps: tuple[AxisTap, AxisTap, AxisTap], taken: Array) -> Array:
        """The place of a tap of these samples among the voxels of all volumes."""
        x, y, z = (tap.pixel[taken] for tap in taps)
        width, height, depth = self.extents
        return np.asarray(((self.volume[taken] * depth + z) * height + y) * width + x)


def _samples(
    grid: Any,
    size: tuple[int, int, int],
    mode: str,
    padding_mode: str,
    align_corners: bool,
    coordinate_dtype: Any,
) -> _Samples:
    coordinates = np.asarray(grid).astype(coordinate_dtype)
    flat = coordinates.reshape(-1, 3)
    extents = (size[2], size[1], size[0])
    with np.errstate(all="ignore"):
        missing = np.isnan(flat).any(axis=1)
        axes, moves = [], []
        for axis, extent in enumerate(extents):
            position = source_position(flat[:, axis], extent, align_corners)
            if padding_mode == "reflection":
                missing |= ~np.isfinite(position)
            padded, sign = PADDINGS[padding_mode](position, extent, align_corners)
            axes.append(axis_taps(padded, extent, mode))
            moves.append(sign * ((extent - 1) / 2 if align_corners else extent / 2))
    volume = np.repeat(np.arange(len(coordinates)), int(np.prod(coordinates.shape[1:4])))
    return _Samples(volume, missing, axes, moves, extents)


def _exists(taps: tuple[AxisTap, AxisTap, AxisTap], missing: Array) -> Array:
    x, y, z = taps
    return np.asarray(x.exists & y.exists & z.exists & ~missing)


def _rows(volumes: Array) -> Array:
    """[N, C, ...] as rows of channels."""
    return np.moveaxis(volumes, 1, -1).reshape(-1, volumes.shape[1])


def grid_sample_3d(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """[N, C, OD, OH, OW] from input [N, C, D, H, W] and grid [N, OD, OH, OW, 3] of (x, y, z)."""
    volumes = in_float64(input)
    c, d, h, w = volumes.shape[1:]
    shape = np.asarray(grid).shape[:4]
    samples = _samples(grid, (d, h, w), mode, padding_mode, align_corners, coordinate_dtype)
    rows = _rows(volumes)
    total = Accumulator(int(np.prod(shape)), c)
    with np.errstate(all="ignore"):
        for taps in samples.taps():
            weight = taps[2].weight * taps[1].weight * taps[0].weight
            (taken,) = np.nonzero(_exists(taps, samples.missing) & (weight != 0))
            total.add(taken, weight[taken, None] * rows[samples.voxels(taps, taken)])
    total.value[samples.missing] = np.nan
    return total.result(GRID_SAMPLE).map(lambda part: np.moveaxis(part.reshape(*shape, c), 4, 1).copy())


def grid_sample_3d_backward_input(
    grad_output: Any,
    grid: Any,
    size: tuple[int, int, int],
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient with respect to an input [N, C, D, H, W] of ``size`` (D, H, W)."""
    gradient = in_float64(grad_output)
    n, c = gradient.shape[:2]
    samples = _samples(grid, size, mode, padding_mode, align_corners, coordinate_dtype)
    rows = _rows(gradient)
    total = Accumulator(n * int(np.prod(size)), c)
    with np.errstate(all="ignore"):
        for taps in samples.taps():
            weight = taps[2].weight * taps[1].weight * taps[0].weight
            (taken,) = np.nonzero(_exists(taps, samples.missing) & (weight != 0))
            total.add(samples.voxels(taps, taken), weight[taken, None] * rows[taken])
    return total.result(GRID_SAMPLE_INPUT).map(lambda part: np.moveaxis(part.reshape(n, *size, c), 4, 1).copy())


def grid_sample_3d_backward_grid(
    grad_output: Any,
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient with respect to the grid [N, OD, OH, OW, 3]."""
    volumes, gradient = in_float64(input), in_float64(grad_output)
    c, shape = volumes.shape[1], np.asarray(grid).shape
    size: tuple[int, int, int] = volumes.shape[2:]
    samples = _samples(grid, size, mode, padding_mode, align_corners, coordinate_dtype)
    rows, gradients = _rows(volumes), _rows(gradient)
    total = Accumulator(int(np.prod(shape)), 1)
    with np.errstate(all="ignore"):
        for taps in samples.taps():
            exists = _exists(taps, samples.missing)
            for axis in range(3):
                one, other = (taps[k].weight for k in range(3) if k != axis)
                weight, moves = taps[axis].slope * one * other, samples.moves[axis]
                (taken,) = np.nonzero(exists & (weight != 0) & (moves != 0))
                values = rows[samples.voxels(taps, taken)]
                terms = gradients[taken] * values * (weight * moves)[taken, None]
                total.add(np.repeat(3 * taken + axis, c), terms.reshape(-1, 1))
    return total.result(GRID_SAMPLE_GRID).map(lambda part: part.reshape(shape))


def grid_sample_3d_backward(grad_output: Any, input: Any, grid: Any, **options: Any) -> tuple[Sum, Sum]:
    """The gradients with respect to input [N, C, D, H, W] and grid [N, OD, OH, OW, 3]; options as in each of them."""
    return (
        grid_sample_3d_backward_input(grad_output, grid, np.shape(input)[2:], **options),
        grid_sample_3d_backward_grid(grad_output, input, grid, **options),
    )


def voxels_read(
    grid: Any,
    size: tuple[int, int, int],
    coordinate_dtype: Any = np.float64,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> int:
    """How many voxels of its volumes, of ``size`` (D, H, W), a grid reads."""
    samples = _samples(grid, size, mode, padding_mode, align_corners, coordinate_dtype)
    seen = np.zeros(len(np.asarray(grid)) * int(np.prod(size)), bool)
    for taps in samples.taps():
        (taken,) = np.nonzero(_exists(taps, samples.missing))
        seen[samples.voxels(taps, taken)] = True
    return int(seen.sum())
