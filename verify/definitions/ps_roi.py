# SPDX-License-Identifier: Apache-2.0
"""Position-sensitive pooling and its gradients: by samples out of roi_align's definition, by averages pixel by pixel.

Sources: Dai et al., R-FCN, 2016, Li et al., Light-Head R-CNN, 2017, and torchvision's ps_roi_pool and ps_roi_align.
Where torchvision reads out of bounds the box contributes nothing. The gradient by averages is that of the forward,
whose bins end before the last row and column; torchvision's own has bins that reach it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.roi_align import ROI_ALIGN, roi_align, roi_align_backward
from verify.dtypes import Array, in_float64

# Forward, the sum is divided; backward, each term is divided before it is added.
AVERAGE = Roundings(1, 1)


def _maps(bins: tuple[int, int], channels: int) -> Array:
    """The map [C, PH, PW] of each bin."""
    return np.arange(channels * bins[0] * bins[1]).reshape(channels, *bins)


def ps_roi_align(
    input: Any,
    boxes: Any,
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """[K, C, PH, PW] from input [N, C PH PW, H, W]: of roi_align's bins of every map the one that is the map's."""
    whole = roi_align(input, boxes, output_size, spatial_scale, sampling_ratio, True, coordinate_dtype)
    rows, columns = np.indices(output_size)
    maps = _maps(output_size, np.asarray(input).shape[1] // (output_size[0] * output_size[1]))
    return whole.map(lambda part: part[:, maps, rows, columns])


def ps_roi_align_backward(
    grad_output: Any,
    boxes: Any,
    input_shape: tuple[int, int, int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient [N, C PH PW, H, W]: map by map, of roi_align whose other bins nobody asked for."""
    gradient = np.asarray(grad_output)
    rois, _, pooled_h, pooled_w = gradient.shape
    n, channels, h, w = input_shape
    parts = []
    for channel in range(channels):
        row, column = channel // pooled_w % pooled_h, channel % pooled_w
        alone = np.zeros((rois, 1, pooled_h, pooled_w), gradient.dtype)
        alone[:, 0, row, column] = gradient[:, channel // (pooled_h * pooled_w), row, column]
        parts.append(
            roi_align_backward(alone, boxes, (n, 1, h, w), spatial_scale, sampling_ratio, True, coordinate_dtype)
        )
    if not parts:
        nothing = np.zeros(input_shape)
        return Sum.of((nothing, nothing, nothing.astype(np.int64)), ROI_ALIGN)
    value, magnitude, terms = (
        np.concatenate([getattr(each, part) for each in parts], 1) for part in ("value", "magnitude", "terms")
    )
    return Sum.of((value, magnitude, terms), ROI_ALIGN)


def _away(number: Any) -> Any:
    """To the nearest whole number, halves away from zero."""
    whole = np.trunc(number)
    return whole + np.sign(number) if abs(number - whole) >= 0.5 else whole


def _axis(low: Any, high: Any, bins: int, extent: int) -> list[tuple[int, int]] | None:
    """The pixels [first, end) of each bin; None for an axis that is not finite."""
    compute = low.dtype.type
    start, end = _away(low), _away(high)
    length = end - start
    if not np.isfinite([start, end, length]).all():
        return None
    size = max(length, compute(1)) / compute(bins)
    found = []
    for bin in range(bins):
        ends = start + np.floor(compute(bin) * size), start + np.ceil(compute(bin + 1) * size)
        first, last = (int(min(max(float(each), 0.0), max(extent - 1, 0))) for each in ends)
        found.append((first, last))
    return found


def _bins(
    boxes: Any, shape: tuple[int, ...], bins: tuple[int, int], spatial_scale: float, coordinate_dtype: Any
) -> list[tuple[int, int, int, int, slice, slice]]:
    """Box, image, ph, pw and the rectangle of every bin that has pixels."""
    compute = np.dtype(coordinate_dtype).type
    scale, found = compute(spatial_scale), []
    with np.errstate(all="ignore"):
        for number, row in enumerate(np.asarray(boxes).astype(compute)):
            image = np.trunc(row[0])
            if not 0 <= image < shape[0]:
                continue
            x1, y1, x2, y2 = (corner * scale for corner in row[1:])
            across, down = _axis(x1, x2, bins[1], shape[3]), _axis(y1, y2, bins[0], shape[2])
            if across is None or down is None:
                continue
            for ph, (top, bottom) in enumerate(down):
                for pw, (left, right) in enumerate(across):
                    if top < bottom and left < right:
                        found.append((number, int(image), ph, pw, slice(top, bottom), slice(left, right)))
    return found


def ps_roi_pool(
    input: Any,
    boxes: Any,
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """[K, C, PH, PW] from input [N, C PH PW, H, W]."""
    image = in_float64(input)
    maps = _maps(output_size, image.shape[1] // (output_size[0] * output_size[1]))
    value, magnitude, terms = (np.zeros((len(boxes), len(maps), *output_size)) for _ in range(3))
    with np.errstate(all="ignore"):
        for r, number, ph, pw, rows, columns in _bins(boxes, image.shape, output_size, spatial_scale, coordinate_dtype):
            pixels = image[number, maps[:, ph, pw], rows, columns].reshape(len(maps), -1)
            count = pixels.shape[1]
            value[r, :, ph, pw] = pixels.sum(1) / count
            magnitude[r, :, ph, pw] = np.abs(pixels).sum(1) / count
            terms[r, :, ph, pw] = count
    return Sum.of((value, magnitude, terms.astype(np.int64)), AVERAGE)


def ps_roi_pool_backward(
    grad_output: Any,
    boxes: Any,
    input_shape: tuple[int, int, int, int],
    spatial_scale: float = 1.0,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient [N, C PH PW, H, W]."""
    gradient = in_float64(grad_output)
    bins = (gradient.shape[2], gradient.shape[3])
    maps = _maps(bins, gradient.shape[1])
    value, magnitude, terms = (np.zeros(input_shape) for _ in range(3))
    with np.errstate(all="ignore"):
        for r, number, ph, pw, rows, columns in _bins(boxes, input_shape, bins, spatial_scale, coordinate_dtype):
            area = (rows.stop - rows.start) * (columns.stop - columns.start)
            share = (gradient[r, :, ph, pw] / area)[:, None, None]
            value[number, maps[:, ph, pw], rows, columns] += share
            magnitude[number, maps[:, ph, pw], rows, columns] += np.abs(share)
            terms[number, maps[:, ph, pw], rows, columns] += 1
    return Sum.of((value, magnitude, terms.astype(np.int64)), AVERAGE)
