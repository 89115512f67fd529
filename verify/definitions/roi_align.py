# SPDX-License-Identifier: Apache-2.0
"""roi_align and its gradient, sample by sample as in torchvision; no per-axis tables, no merged weights.

Source: He et al. 2017 and torchvision.ops.roi_align. Where torchvision reads out of bounds (batch
index, non-finite boxes) the box contributes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, in_float64

# roi_align, both directions: terms are (sample, corner) pairs, while a kernel may first merge the a (or b) weights that
# fall on one row (or column), then sum over bins or pixels. One term then meets at most (a - 1) + (b - 1) merge
# additions, one chain over the A rows and one over the B columns of its box, and the additions of the partial sums.
# With a + b <= a*b + 1 and A, B, a*b each at most the number of pairs, two chains as long as the sum pay for that.
# Besides: 1 - fraction, the divisor and its product on each of two axes, the product with the value, and the merge.
ROI_ALIGN = Roundings(2, 8)

# Above this adaptive count on an axis a box contributes nothing (it would be a box of a million pixels).
LARGEST_ADAPTIVE_COUNT = 2**20


class _Taps(NamedTuple):
    """Every (sample, corner) pair of one box that has a weight, in float64."""

    image: int
    bins: Array  # index into the box's pooled_h x pooled_w bins
    pixels: Array  # index into the image's H x W pixels
    weights: Array  # bilinear weight divided by the samples of a bin


def _positions(start: Any, bin_size: Any, pooled: int, count: int, extent: int) -> tuple[Array, Array]:
    """The bin and the position of every sample on one axis that is not out of range.

    A sample is dropped when either axis is out of range, so dropping per axis is the same thing; it
    keeps a huge box affordable here.
    """
    compute = start.dtype.type
    bins = np.arange(pooled)[:, None]
    inside = (np.arange(count)[None, :].astype(compute) + compute(0.5)) * bin_size / compute(max(count, 1))
    position = (start + bins.astype(compute) * bin_size) + inside
    kept = (position >= -1) & (position <= extent)
    return np.broadcast_to(bins, position.shape)[kept], position[kept]


def _corners(position: Array, extent: int) -> tuple[Array, Array, Array]:
    """Lower and upper pixel of each position on one axis, and how far it is towards the upper one."""
    position = np.where(position <= 0, position.dtype.type(0), position)
    low = np.floor(position).astype(np.int64)
    beyond = low >= extent - 1
    low = np.where(beyond, extent - 1, low)
    high = np.where(beyond, extent - 1, low + 1)
    fraction = np.where(beyond, 0.0, (position - low.astype(position.dtype)).astype(np.float64))
    return low, high, fraction


def _taps(
    boxes: Array,
    batch: int,
    height: int,
    width: int,
    output_size: tuple[int, int],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    coordinate_dtype: Any,
) -> Iterator[tuple[int, _Taps]]:
    compute = np.dtype(coordinate_dtype).type
    pooled_h, pooled_w = output_size
    scale, offset = compute(spatial_scale), compute(0.5 if aligned else 0.0)
    for index, row in enumerate(np.asarray(boxes).astype(compute)):
        image = np.trunc(row[0])
        if not 0 <= image < batch or not pooled_h or not pooled_w or not height or not width:
            continue
        x1, y1, x2, y2 = (corner * scale - offset for corner in row[1:])
        roi_w, roi_h = x2 - x1, y2 - y1
        if not np.isfinite([x1, y1, x2, y2, roi_w, roi_h]).all():
            continue
        if not aligned:
            roi_w, roi_h = max(roi_w, compute(1)), max(roi_h, compute(1))
        bin_w, bin_h = roi_w / compute(pooled_w), roi_h / compute(pooled_h)
        count_w = float(sampling_ratio) if sampling_ratio > 0 else float(np.ceil(bin_w))
        count_h = float(sampling_ratio) if sampling_ratio > 0 else float(np.ceil(bin_h))
        if sampling_ratio <= 0 and max(count_w, count_h) > LARGEST_ADAPTIVE_COUNT:
            continue
        samples_w, samples_h = max(int(count_w), 0), max(int(count_h), 0)
        if not samples_w or not samples_h:
            continue
        bin_x, x = _positions(x1, bin_w, pooled_w, samples_w, width)
        bin_y, y = _positions(y1, bin_h, pooled_h, samples_h, height)
        # One entry a sample from here on: y varies slowest.
        bins = (bin_y[:, None] * pooled_w + bin_x[None, :]).ravel()
        samples_y = np.repeat(y, x.size)
        samples_x = np.tile(x, y.size)
        low_y, high_y, down = _corners(samples_y, height)
        low_x, high_x, right = _corners(samples_x, width)
        corner_bins, corner_pixels, corner_weights = [], [], []
        for pixel_y, weight_y in ((low_y, 1 - down), (high_y, down)):
            for pixel_x, weight_x in ((low_x, 1 - right), (high_x, right)):
                exists = (weight_y != 0) & (weight_x != 0)
                corner_bins.append(bins[exists])
                corner_pixels.append((pixel_y * width + pixel_x)[exists])
                corner_weights.append((weight_y * weight_x)[exists] / (samples_h * samples_w))
        yield (
            index,
            _Taps(
                int(image),
                np.concatenate(corner_bins),
                np.concatenate(corner_pixels),
                np.concatenate(corner_weights),
            ),
        )


def roi_align(
    input: Any,
    boxes: Any,
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """[K, C, pooled_h, pooled_w] from input [N, C, H, W] and boxes [K, 5] of (image, x1, y1, x2, y2).

    A frozen symbol takes its scale in float32: round it before, for float64 too.
    """
    image = in_float64(input)
    n, c, h, w = image.shape
    bins = output_size[0] * output_size[1]
    planes = image.reshape(n, c, h * w)
    sums = [Accumulator(bins, c) for _ in range(len(boxes))]
    with np.errstate(all="ignore"):
        for index, taps in _taps(boxes, n, h, w, output_size, spatial_scale, sampling_ratio, aligned, coordinate_dtype):
            terms = planes[taps.image][:, taps.pixels].T * taps.weights[:, None]
            sums[index].add(taps.bins, terms)
    shape = (len(boxes), c, *output_size)
    value, magnitude, terms = (
        np.stack([part.T for part in parts]).reshape(shape) if parts else np.zeros(shape)
        for parts in ([each.parts[which] for each in sums] for which in range(3))
    )
    return Sum.of((value, magnitude, terms), ROI_ALIGN)


def roi_align_backward(
    grad_output: Any,
    boxes: Any,
    input_shape: tuple[int, int, int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient [N, C, H, W] of roi_align with respect to its input."""
    gradient = in_float64(grad_output)
    n, c, h, w = input_shape
    rois, _, pooled_h, pooled_w = gradient.shape
    bins = gradient.reshape(rois, c, pooled_h * pooled_w)
    total = Accumulator(n * h * w, c)
    with np.errstate(all="ignore"):
        for index, taps in _taps(
            boxes, n, h, w, (pooled_h, pooled_w), spatial_scale, sampling_ratio, aligned, coordinate_dtype
        ):
            terms = bins[index][:, taps.bins].T * taps.weights[:, None]
            total.add(taps.image * h * w + taps.pixels, terms)
    return total.result(ROI_ALIGN).map(lambda part: np.moveaxis(part.reshape(n, h, w, c), 3, 1).copy())


def pixels_read(
    boxes: Any,
    input_shape: tuple[int, int, int, int],
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    coordinate_dtype: Any = np.float64,
) -> int:
    """How many pixels of its images the boxes read."""
    n, _, h, w = input_shape
    seen = np.zeros((n, h * w), bool)
    with np.errstate(all="ignore"):
        for _, taps in _taps(boxes, n, h, w, output_size, spatial_scale, sampling_ratio, aligned, coordinate_dtype):
            seen[taps.image, taps.pixels] = True
    return int(seen.sum())
