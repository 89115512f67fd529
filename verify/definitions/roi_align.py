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


def positions(start: Any, bin_size: Any, pooled: int, count: int, extent: int) -> tuple[Array, Array]:
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


def corners(position: Array, extent: int) -> tuple[Array, Array, Array]:
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
        bin_x, x = positions(x1, bin_w, pooled_w, samples_w, width)
        bin_y, y = positions(y1, bin_h, pooled_h, samples_h, height)
        # One entry a sample from here on: y varies slowest.
        bins = (bin_y[:, None] * pooled_w + bin_x[None, :]).ravel()
        samples_y = np.repeat(y, x.size)
        samples_x = np.tile(x, y.size)
        low_y, high_y, down = corners(samples_y, height)
        low_x, high_x, right = corners(samples_x, width)
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


# The gradient of boxes: a term is a (sample, channel, corner) triple. Sums are cut into 8 lanes of channels and 32 of
# samples: a term meets a chain of its lane's channels and one of its lane's samples, which are numbered from the first
# visible one on each axis to the last.
_CHANNEL_LANES, _SAMPLE_LANES = 8, 32
# Besides: 5 additions of the samples' lanes and 8 of the channels', the difference of two pixels, 1 - fraction, its
# product and the sum of two such, 4 for what a corner does to a sample and 1 for their product, two divisors and the
# scale.
_BESIDES = 13 + 4 + 5 + 3


class _Moves(NamedTuple):
    """The samples of one axis that are not out of range."""

    bins: Array
    low: Array
    high: Array
    fraction: Array  # of the pixel `high`
    moving: Array  # 1 where the sample lies between two pixels, 0 where it is clamped
    shares: tuple[Array, Array]  # how it moves with the box's low and high corner, in units of the scale
    span: int  # from the first to the last, with those between them that are out of range


def _moves(start: Any, size: Any, pooled: int, count: int, extent: int, is_least: bool) -> _Moves:
    bins, position = positions(start, size, pooled, count, extent)
    low, high, fraction = corners(position, extent)
    # Where a sample lies along the box; `positions` drops some, so the numbers of the kept are found in the same way.
    numbers = np.broadcast_to(np.arange(count)[None, :], (pooled, count))
    compute = start.dtype.type
    inside = (np.arange(count)[None, :].astype(compute) + compute(0.5)) * size / compute(max(count, 1))
    every = (start + np.arange(pooled)[:, None].astype(compute) * size) + inside
    sample = numbers[(every >= -1) & (every <= extent)]
    along = (bins + (sample + 0.5) / count) / pooled
    moving = ((position > 0) & (position < extent - 1)).astype(np.float64)
    shares = (np.ones_like(along), np.zeros_like(along)) if is_least else (1 - along, along)
    places = bins * count + sample
    span = int(places.max() - places.min()) + 1 if places.size else 0
    return _Moves(bins, low, high, fraction, moving, shares, span)


def roi_align_boxes_backward(
    grad_output: Any,
    input: Any,
    boxes: Any,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient [K, 5] of roi_align with respect to its boxes, sample by sample; that of the image's index is 0.

    Samples at a pixel have the derivative to the right of it; clamped ones do not move.
    """
    gradient, image = in_float64(grad_output), in_float64(input)
    n, c, h, w = image.shape
    pooled_h, pooled_w = gradient.shape[2:]
    compute = np.dtype(coordinate_dtype).type
    scale, offset = compute(spatial_scale), compute(0.5 if aligned else 0.0)
    value, magnitude, terms = np.zeros((len(boxes), 5)), np.zeros((len(boxes), 5)), np.zeros((len(boxes), 5), np.int64)
    roundings = np.zeros((len(boxes), 5), np.int64)
    with np.errstate(all="ignore"):
        # What contributes at all is as in the forward.
        usable = _taps(boxes, n, h, w, (pooled_h, pooled_w), spatial_scale, sampling_ratio, aligned, coordinate_dtype)
        for index, taps in usable:
            x1, y1, x2, y2 = (corner * scale - offset for corner in np.asarray(boxes[index]).astype(compute)[1:])
            axes = []
            for low, high, pooled, extent in ((x1, x2, pooled_w, w), (y1, y2, pooled_h, h)):
                length = high - low
                least = bool(not aligned and length < 1)
                size = (compute(1) if least else length) / compute(pooled)
                count = int(sampling_ratio if sampling_ratio > 0 else np.ceil(size))
                axes.append((_moves(low, size, pooled, count, extent, least), count))
            (x, count_x), (y, count_y) = axes
            roundings[index] = -(-c // _CHANNEL_LANES) + -(-(x.span * y.span) // _SAMPLE_LANES) + _BESIDES
            grads = gradient[index][:, y.bins[:, None], x.bins[None, :]]
            pixels = image[taps.image]
            at = {
                (row, column): pixels[:, getattr(y, row)[:, None], getattr(x, column)[None, :]]
                for row in ("low", "high")
                for column in ("low", "high")
            }
            for of_x, own, other in ((True, x, y), (False, y, x)):
                # Pixels of weight 0 on the other axis do not exist.
                moving = own.moving[None, None, :] if of_x else own.moving[None, :, None]
                fraction = other.fraction[None, :, None] if of_x else other.fraction[None, None, :]
                slope, size_of, number = np.zeros_like(grads), np.zeros_like(grads), np.zeros_like(grads)
                for side, weight in (("low", 1 - fraction), ("high", fraction)):
                    ends = (at[side, "high"], at[side, "low"]) if of_x else (at["high", side], at["low", side])
                    exists = (weight != 0) & (moving != 0)
                    slope += np.where(exists, weight * (ends[0] - ends[1]) * grads, 0)
                    size_of += np.where(exists, np.abs(weight) * (abs(ends[0]) + abs(ends[1])) * np.abs(grads), 0)
                    number += np.where(exists, 2, 0)
                for side_of, share in enumerate(own.shares):
                    weights = share[None, None, :] if of_x else share[None, :, None]
                    column = 1 + 2 * side_of + (0 if of_x else 1)
                    factor = float(scale) / (count_x * count_y)
                    value[index, column] = np.sum(np.where(number > 0, weights * slope, 0)) * factor
                    magnitude[index, column] = np.sum(np.where(number > 0, np.abs(weights) * size_of, 0)) * abs(factor)
                    terms[index, column] = int(np.sum(number * (weights != 0)))
    return Sum(value, magnitude, terms, roundings)


def levels_of(
    boxes: Any,
    num_levels: int,
    k_min: int,
    canonical_scale: float = 224.0,
    canonical_level: int = 4,
    coordinate_dtype: Any = np.float64,
) -> Array:
    """The map of each box, Lin et al. 2017 (1) with torchvision's 1e-6 in float64; -1 for a box without an area."""
    rows = np.asarray(boxes).astype(coordinate_dtype)
    with np.errstate(all="ignore"):
        areas = ((rows[:, 3] - rows[:, 1]) * (rows[:, 4] - rows[:, 2])).astype(np.float64)
        levels = np.floor(canonical_level + np.log2(np.sqrt(areas) / canonical_scale) + 1e-6)
    chosen = np.clip(levels, k_min, k_min + num_levels - 1) - k_min
    return np.where(areas >= 0, chosen, -1).astype(np.int64)


def _of_level(boxes: Any, levels: Array, level: int, coordinate_dtype: Any) -> Array:
    """The boxes, of which those of other maps name no image."""
    rows = np.asarray(boxes).astype(coordinate_dtype)
    rows[levels != level, 0] = -1
    return rows


def roi_align_levels(
    inputs: Any,
    boxes: Any,
    output_size: tuple[int, int],
    spatial_scales: Any,
    levels: Array,
    sampling_ratio: int = -1,
    aligned: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """roi_align of every box on its map, as `levels` says."""
    sums = [
        roi_align(
            input, _of_level(boxes, levels, level, coordinate_dtype), output_size, scale, sampling_ratio, aligned,
            coordinate_dtype,
        )
        for level, (input, scale) in enumerate(zip(inputs, spatial_scales, strict=True))
    ]  # fmt: skip
    # A box has terms on one map at most.
    value, magnitude, terms = (sum(getattr(each, part) for each in sums) for part in ("value", "magnitude", "terms"))
    return Sum.of((value, magnitude, terms), ROI_ALIGN)


def roi_align_levels_backward(
    grad_output: Any,
    boxes: Any,
    input_shapes: Any,
    spatial_scales: Any,
    levels: Array,
    sampling_ratio: int = -1,
    aligned: bool = False,
    coordinate_dtype: Any = np.float64,
) -> list[Sum]:
    """The gradient of each map."""
    return [
        roi_align_backward(
            grad_output, _of_level(boxes, levels, level, coordinate_dtype), shape, scale, sampling_ratio, aligned,
            coordinate_dtype,
        )
        for level, (shape, scale) in enumerate(zip(input_shapes, spatial_scales, strict=True))
    ]  # fmt: skip


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
