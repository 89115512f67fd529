# SPDX-License-Identifier: Apache-2.0
"""Makers of test inputs: lattice inputs, on which all arithmetic is exact, and random ones; nothing is checked here.

On the lattice values are small integers, positions are multiples of a quarter (so a bilinear weight is
a multiple of 1/16) and every divisor is a power of two. With the sizes used here every partial sum is a
multiple of 2^-12 below 2^12, so it fits float32's 24 bits and the order of summation cannot matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from verify.dtypes import Array, coordinate_dtype


def integers(rng: np.random.Generator, shape: Sequence[int], dtype: Any, limit: int = 2) -> Array:
    """Small integers, exact in every dtype."""
    return rng.integers(-limit, limit + 1, tuple(shape)).astype(dtype)


def normal(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> Array:
    """Ordinary data: zero mean, unit variance."""
    return rng.standard_normal(tuple(shape)).astype(dtype)


class RoiCase(NamedTuple):
    """A roi_align problem with its gradient; ``options`` are the function's keyword arguments."""

    input: Array
    boxes: Array
    output_size: tuple[int, int]
    grad_output: Array
    options: dict[str, Any]


# Bin sizes whose samples fall on quarters: the first sample lies bin / (2 * ratio) into the bin. Adaptive
# sampling takes bin samples a bin, which must be a power of two for the divisor.
LATTICE_BINS = {1: (0.5, 1.0, 1.5, 2.0), 2: (1.0, 2.0, 3.0), 4: (2.0, 4.0), -1: (1.0, 2.0, 4.0)}


def lattice_roi_case(
    rng: np.random.Generator,
    dtype: Any,
    sampling_ratio: int,
    aligned: bool,
    spatial_scale: float = 0.25,
    shape: tuple[int, int, int, int] = (2, 3, 8, 9),
    output_size: tuple[int, int] = (2, 3),
    num_rois: int = 12,
    limit: int = 2,
) -> RoiCase:
    """Boxes inside, across and beyond the borders; ``spatial_scale`` has to be a power of two."""
    n, c, h, w = shape
    bins = np.array(LATTICE_BINS[sampling_ratio])
    if not aligned:
        # Otherwise the minimum size of 1 changes the bin.
        bins = bins[bins * min(output_size) >= 1]
    x1 = rng.integers(-16, 4 * w + 4, num_rois) / 4
    y1 = rng.integers(-16, 4 * h + 4, num_rois) / 4
    x2 = x1 + rng.choice(bins, num_rois) * output_size[1]
    y2 = y1 + rng.choice(bins, num_rois) * output_size[0]
    corners = (np.stack([x1, y1, x2, y2], axis=1) + (0.5 if aligned else 0.0)) / spatial_scale
    boxes = np.concatenate([rng.integers(0, n, (num_rois, 1)), corners], axis=1)
    return RoiCase(
        integers(rng, shape, dtype, limit),
        boxes.astype(coordinate_dtype(dtype)),
        output_size,
        integers(rng, (num_rois, c, *output_size), dtype, limit),
        {"spatial_scale": spatial_scale, "sampling_ratio": sampling_ratio, "aligned": aligned},
    )


# A scale that is not a power of two and the same number in float32 and float64.
ODD_SCALE = float(np.float32(0.1))


def random_boxes(
    rng: np.random.Generator, dtype: Any, shape: tuple[int, int, int, int], spatial_scale: float, num_rois: int
) -> Array:
    """Boxes of any place and size around images of this shape, some of them reversed."""
    n, _, h, w = shape
    corners = rng.uniform(-0.3, 1.3, (num_rois, 4)) * (np.array([w, h, w, h]) / spatial_scale)
    boxes = np.concatenate([rng.integers(0, max(n, 1), (num_rois, 1)), corners], axis=1)
    return boxes.astype(coordinate_dtype(dtype))


def random_roi_case(
    rng: np.random.Generator,
    dtype: Any,
    sampling_ratio: int,
    aligned: bool,
    spatial_scale: float = ODD_SCALE,
    shape: tuple[int, int, int, int] = (2, 3, 9, 11),
    output_size: tuple[int, int] = (3, 2),
    num_rois: int = 15,
) -> RoiCase:
    """Boxes of any place and size around the image, some of them reversed."""
    boxes = random_boxes(rng, dtype, shape, spatial_scale, num_rois)
    return RoiCase(
        normal(rng, shape, dtype),
        boxes,
        output_size,
        normal(rng, (num_rois, shape[1], *output_size), dtype),
        {"spatial_scale": spatial_scale, "sampling_ratio": sampling_ratio, "aligned": aligned},
    )


class GridCase(NamedTuple):
    """A grid_sample problem with its gradient."""

    input: Array
    grid: Array
    grad_output: Array


def normalised(position: Array, extent: int) -> Array:
    """The coordinate of a pixel position (align_corners=False); exact if the extent is a power of two."""
    return (2 * position + 1) / max(extent, 1) - 1


def lattice_grid_case(
    rng: np.random.Generator,
    dtype: Any,
    shape: tuple[int, int, int, int] = (2, 3, 4, 8),
    output_size: tuple[int, int] = (5, 7),
    limit: int = 2,
) -> GridCase:
    """Positions in quarters from two pixels before the input to two beyond; h and w are powers of two."""
    n, c, h, w = shape
    x = normalised(rng.integers(-8, 4 * w + 5, (n, *output_size)) / 4, w)
    y = normalised(rng.integers(-8, 4 * h + 5, (n, *output_size)) / 4, h)
    return GridCase(
        integers(rng, shape, dtype, limit),
        np.stack([x, y], axis=-1).astype(coordinate_dtype(dtype)),
        integers(rng, (n, c, *output_size), dtype, limit),
    )


def lattice_ruled_grid_case(
    rng: np.random.Generator,
    dtype: Any,
    align_corners: bool,
    shape: tuple[int, int, int, int] = (2, 3, 4, 8),
    output_size: tuple[int, int] = (5, 7),
    limit: int = 2,
) -> GridCase:
    """Coordinates in steps of 2^-5 up to five images away; h and w are powers of two.

    A position is then a multiple of 2^-6, or with aligned corners, where it is a product with (w - 1) / 2, too. Weights
    are products of two such: with few samples all sums fit.
    """
    n, c, _, _ = shape
    step = 8 if np.dtype(dtype).itemsize == 2 else 32
    return GridCase(
        integers(rng, shape, dtype, limit),
        (rng.integers(-5 * step, 5 * step + 1, (n, *output_size, 2)) / step).astype(coordinate_dtype(dtype)),
        integers(rng, (n, c, *output_size), dtype, limit),
    )


def random_grid_case(
    rng: np.random.Generator,
    dtype: Any,
    shape: tuple[int, int, int, int] = (2, 3, 6, 7),
    output_size: tuple[int, int] = (5, 8),
) -> GridCase:
    """Coordinates all over the input and a little beyond."""
    n, c, _, _ = shape
    return GridCase(
        normal(rng, shape, dtype),
        rng.uniform(-1.4, 1.4, (n, *output_size, 2)).astype(coordinate_dtype(dtype)),
        normal(rng, (n, c, *output_size), dtype),
    )


def lattice_theta(rng: np.random.Generator, n: int, dtype: Any, axes: int = 2) -> Array:
    """Matrices in quarters; with extents that are powers of two the grid is exact."""
    return (rng.integers(-8, 9, (n, axes, axes + 1)) / 4).astype(dtype)


class SegmentCase(NamedTuple):
    """An unsorted_segment_max problem with its gradient."""

    input: Array
    segment_ids: Array
    num_segments: int
    grad_output: Array


def segment_case(
    rng: np.random.Generator,
    dtype: Any,
    ids_dtype: Any = np.int32,
    num_rows: int = 60,
    width: int = 5,
    num_segments: int = 9,
    ties: bool = True,
) -> SegmentCase:
    """Rows with many equal values (both zeros among them) if ``ties``, ids one beyond either end, empty segments."""
    rows = rng.integers(-3, 4, (num_rows, width)) * rng.choice([-1.0, 1.0], (num_rows, width))
    values = rows if ties else rng.standard_normal((num_rows, width))
    ids = rng.integers(-1, num_segments + 1, num_rows)
    ids[ids == num_segments // 2] = -1  # so that one segment is always empty
    return SegmentCase(
        values.astype(dtype), ids.astype(ids_dtype), num_segments, normal(rng, (num_segments, width), dtype)
    )


class QuantizedCase(NamedTuple):
    """A dequantize_per_channel problem with its gradient."""

    input: Array
    scale: Array
    zero_point: Array
    axis: int
    grad_output: Array


def quantized_case(
    rng: np.random.Generator, dtype: Any, quantized: Any, shape: Sequence[int], axis: int
) -> QuantizedCase:
    """Every quantized value can occur; zero points lie within the quantized type, scales around 2^-5."""
    limits = np.iinfo(quantized)
    channels = shape[axis]
    return QuantizedCase(
        rng.integers(limits.min, limits.max + 1, tuple(shape)).astype(quantized),
        rng.uniform(0.01, 0.06, channels).astype(dtype),
        rng.integers(limits.min, limits.max + 1, channels).astype(np.int32),
        axis,
        normal(rng, shape, dtype),
    )


def any_bits(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> Array:
    """Random bit patterns: every kind of NaN, infinities, subnormals and both zeros."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    values = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(tuple(shape)).copy()
    # Two NaNs with payloads and a negative zero, wherever there is room.
    patterns = values.reshape(-1).view(f"u{dtype.itemsize}")
    exponent = {2: 0x7C00 if dtype == np.float16 else 0x7F80, 4: 0x7F800000, 8: 0x7FF0000000000000}[dtype.itemsize]
    sign = 1 << (8 * dtype.itemsize - 1)
    for place, pattern in enumerate((exponent | 0x5, sign | exponent | 0x45, sign)[: patterns.size]):
        patterns[place] = pattern
    return np.asarray(values)
