# SPDX-License-Identifier: Apache-2.0
"""roi_align of volumes and its gradient, sample by sample: torchvision's rule on each of three axes.

Where a batch index names no volume or a box is not finite the box contributes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.roi_align import LARGEST_ADAPTIVE_COUNT, corners, positions
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, in_float64

# As roi_align's, with a third axis. A term meets (a - 1) + (b - 1) + (c - 1) additions of merged weights, one chain
# over the A rows, one over the B planes and one over the C columns of its box, and additions of other boxes, each of
# which has a term. With a + b + c <= abc + 2 and A + B + C <= ABC + 2 two chains as long as the sum, and 1 more, pay
# for that.
# Besides: 1 - fraction, the divisor and its product on each of three axes, the product with the value.
ROI_ALIGN_3D = Roundings(2, 1 + 3 * 3 + 1)


class _Taps(NamedTuple):
    """Every (sample, corner) pair of one box that has a weight, in float64."""

    image: int
    bins: Array  # index into the box's bins
    voxels: Array  # index into the volume's voxels
    weights: Array  # trilinear weight divided by the samples of a bin


def _taps(
    boxes: Any,
    batch: int,
    extents: tuple[int, ...],
    output_size: tuple[int, ...],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    coordinate_dtype: Any,
) -> Iterator[tuple[int, _Taps]]:
    compute = np.dtype(coordinate_dtype).type
    scale, offset = compute(spatial_scale), compute(0.5 if aligned else 0.0)
    for index, row in enumerate(np.asarray(boxes).astype(compute)):
        image = np.trunc(row[0])
        if not 0 <= image < batch or 0 in extents or 0 in output_size:
            continue
        # Rows have x first, volumes z.
        low, high = row[3:0:-1] * scale - offset, row[6:3:-1] * scale - offset
        lengths = high - low
        if not np.isfinite([*low, *high, *lengths]).all():
            continue
        if not aligned:
            lengths = np.maximum(lengths, compute(1))
        sizes = [length / compute(bins) for length, bins in zip(lengths, output_size, strict=True)]
        counts = [float(sampling_ratio) if sampling_ratio > 0 else float(np.ceil(size)) for size in sizes]
        if sampling_ratio <= 0 and max(counts) > LARGEST_ADAPTIVE_COUNT:
            continue
        samples = [max(int(count), 0) for count in counts]
        if 0 in samples:
            continue
        axes = [
            positions(start, size, bins, count, extent)
            for start, size, bins, count, extent in zip(low, sizes, output_size, samples, extents, strict=True)
        ]
        # One entry a sample from here on: z varies slowest.
        grids = np.meshgrid(*(np.arange(len(position)) for _, position in axes), indexing="ij")
        chosen = [grid.ravel() for grid in grids]
        bins = np.zeros(chosen[0].shape, np.int64)
        sides = []
        for (bin, position), which, size, extent in zip(axes, chosen, output_size, extents, strict=True):
            bins = bins * size + bin[which]
            pixel, after, fraction = corners(position, extent)
            sides.append(((pixel[which], 1 - fraction[which]), (after[which], fraction[which])))
        found: list[tuple[Array, Array, Array]] = []
        corners_of = [(z, y, x) for z in sides[0] for y in sides[1] for x in sides[2]]
        for (z, of_z), (y, of_y), (x, of_x) in corners_of:
            exists = (of_z != 0) & (of_y != 0) & (of_x != 0)
            voxels = (z * extents[1] + y) * extents[2] + x
            found.append((bins[exists], voxels[exists], (of_z * of_y * of_x)[exists] / np.prod(samples, dtype=float)))
        parts = [np.concatenate(part) for part in zip(*found, strict=True)]
        yield index, _Taps(int(image), *parts)


def roi_align_3d(
    input: Any,
    boxes: Any,
    output_size: tuple[int, int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """[K, C, pooled_d, pooled_h, pooled_w] from input [N, C, D, H, W], boxes [K, 7] of (image, x1, y1, z1, x2, y2, z2).

    A frozen symbol takes its scale in float32: round it before, for float64 too.
    """
    volumes = in_float64(input)
    n, c, *extents = volumes.shape
    flat = volumes.reshape(n, c, int(np.prod(extents)))
    sums = [Accumulator(int(np.prod(output_size)), c) for _ in range(len(boxes))]
    with np.errstate(all="ignore"):
        for index, taps in _taps(
            boxes, n, tuple(extents), output_size, spatial_scale, sampling_ratio, aligned, coordinate_dtype
        ):
            sums[index].add(taps.bins, flat[taps.image][:, taps.voxels].T * taps.weights[:, None])
    shape = (len(boxes), c, *output_size)
    value, magnitude, terms = (
        np.stack([part.T for part in parts]).reshape(shape) if parts else np.zeros(shape)
        for parts in ([each.parts[which] for each in sums] for which in range(3))
    )
    return Sum.of((value, magnitude, terms), ROI_ALIGN_3D)


def roi_align_3d_backward(
    grad_output: Any,
    boxes: Any,
    input_shape: tuple[int, int, int, int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient [N, C, D, H, W] of roi_align_3d with respect to its input."""
    gradient = in_float64(grad_output)
    n, c, *extents = input_shape
    voxels = int(np.prod(extents))
    rois, _, *pooled = gradient.shape
    bins = gradient.reshape(rois, c, int(np.prod(pooled)))
    total = Accumulator(n * voxels, c)
    with np.errstate(all="ignore"):
        for index, taps in _taps(
            boxes, n, tuple(extents), tuple(pooled), spatial_scale, sampling_ratio, aligned, coordinate_dtype
        ):
            total.add(taps.image * voxels + taps.voxels, bins[index][:, taps.bins].T * taps.weights[:, None])
    return total.result(ROI_ALIGN_3D).map(lambda part: np.moveaxis(part.reshape(n, *extents, c), 4, 1).copy())
