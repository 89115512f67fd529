# SPDX-License-Identifier: Apache-2.0
"""roi_pool and its gradient, bin by bin as torchvision documents them, with NumPy's own maximum.

Source: Girshick 2015 and torchvision.ops.roi_pool. Where torchvision reads out of bounds (batch index,
non-finite boxes) the box has no pixels; where it ignores NaN, the first NaN is the maximum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, in_float64

# The gradient: additions, which the terms pay for, and the last partial sum. A partial sum without a term adds 0, which
# rounds nothing; each of the others has a term of its own, so they and the terms are at most one more than the terms.
ROI_POOL = Roundings(1, 1)


def _rounded(value: Any) -> Any:
    """To the nearest integer, halves away from zero."""
    low = np.floor(np.abs(value))
    return np.copysign(low + (np.abs(value) - low >= 0.5), value)


def _spans(low: Any, high: Any, bins: int, extent: int) -> list[range] | None:
    """The pixels of every bin on one axis; None if the box has none at all."""
    compute = low.dtype.type
    start, last = _rounded(low), _rounded(high)
    length = max(last - start + compute(1), compute(1))
    if not np.isfinite([start, last, length]).all():
        return None
    step = length / compute(bins)
    firsts = start + np.floor(np.arange(bins).astype(compute) * step)
    ends = start + np.ceil(np.arange(1, bins + 1).astype(compute) * step)
    return [
        range(int(min(max(first, 0), extent)), int(min(max(end, 0), extent)))
        for first, end in zip(firsts, ends, strict=True)
    ]


def roi_pool(
    input: Any,
    boxes: Any,
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    coordinate_dtype: Any = np.float64,
) -> tuple[Array, Array]:
    """[K, C, pooled_h, pooled_w] from input [N, C, H, W] and boxes [K, 5] of (image, x1, y1, x2, y2), and argmax.

    Elements of the input are moved, so the output is of its dtype. A frozen symbol takes its scale in
    float32: round it before, for float64 too.
    """
    image = np.asarray(input)
    values = in_float64(image)
    n, c, h, w = image.shape
    pooled_h, pooled_w = output_size
    compute = np.dtype(coordinate_dtype).type
    output = np.zeros((len(boxes), c, pooled_h, pooled_w), image.dtype)
    argmax = np.full(output.shape, -1, np.int32)
    if not pooled_h or not pooled_w:
        return output, argmax
    with np.errstate(all="ignore"):
        for index, row in enumerate(np.asarray(boxes).astype(compute)):
            number = np.trunc(row[0])
            x1, y1, x2, y2 = (corner * compute(spatial_scale) for corner in row[1:])
            columns, rows = _spans(x1, x2, pooled_w, w), _spans(y1, y2, pooled_h, h)
            if not 0 <= number < n or columns is None or rows is None:
                continue
            for ph, ys in enumerate(rows):
                for pw, xs in enumerate(columns):
                    if not ys or not xs:
                        continue
                    part = values[int(number), :, ys.start : ys.stop, xs.start : xs.stop].reshape(c, len(ys) * len(xs))
                    # argmax answers the first of equals, and the first NaN if there is one.
                    place = part.argmax(axis=1)
                    y, x = ys.start + place // len(xs), xs.start + place % len(xs)
                    output[index, :, ph, pw] = image[int(number), np.arange(c), y, x]
                    argmax[index, :, ph, pw] = y * w + x
    return output, argmax


def roi_pool_backward(grad_output: Any, boxes: Any, argmax: Any, input_shape: tuple[int, int, int, int]) -> Sum:
    """The gradient [N, C, H, W] of roi_pool with respect to its input: each bin's goes to the pixel it names."""
    gradient = in_float64(grad_output)
    n, c, h, w = input_shape
    rois = len(gradient)
    total = Accumulator(n * c * h * w, 1)
    with np.errstate(all="ignore"):
        images = np.trunc(in_float64(boxes).reshape(rois, 5)[:, 0])
        pixels = np.asarray(argmax).astype(np.int64)
        named = ((images >= 0) & (images < n))[:, None, None, None] & (pixels >= 0) & (pixels < h * w)
        planes = np.where(np.isfinite(images), images, 0).astype(np.int64)[:, None] * c + np.arange(c)
    places = planes[:, :, None, None] * (h * w) + pixels
    total.add(places[named], gradient[named][:, None])
    return total.result(ROI_POOL).map(lambda part: part.reshape(input_shape))
