# SPDX-License-Identifier: Apache-2.0
"""Maximum pooling and its gradient, window by window as PyTorch's loops define them.

Source: torch.nn.functional.max_pool1d to max_pool3d and adaptive_max_pool1d to adaptive_max_pool3d. A tensor here is
[N, C, D, H, W]; what a pooled axis lacks is an extent of 1 with a window of 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, in_float64

# The gradient: an addition for every term.
MAX_POOL = Roundings(1, 0)

# Of one axis: the elements of the input that each window has.
Axes = tuple[list[range], list[range], list[range]]


def fixed_windows(extent: int, bins: int, kernel: int, stride: int, padding: int, dilation: int) -> list[range]:
    """Windows of one size, a step apart."""
    found = []
    for o in range(bins):
        places = [o * stride - padding + k * dilation for k in range(kernel)]
        inside = [place for place in places if 0 <= place < extent]
        found.append(range(inside[0], inside[-1] + 1, dilation) if inside else range(0))
    return found


def fixed_spans(extent: int, bins: int, kernel: int, stride: int, padding: int, dilation: int) -> list[range]:
    """From each window's first place to its last one, with what lies between; what the input does not have is not."""
    begins = [o * stride - padding for o in range(bins)]
    return [range(max(begin, 0), min(begin + (kernel - 1) * dilation + 1, extent)) for begin in begins]


def adaptive_windows(extent: int, bins: int) -> list[range]:
    """Windows that divide an axis, each rounded outwards."""
    return [range(o * extent // bins, -(-(o + 1) * extent // bins)) for o in range(bins)]


def _winner(values: Array) -> Array:
    """Of each plane's list [N, C, K] the place that wins: the last NaN, or else the first of the largest numbers."""
    is_nan = np.isnan(values)
    last_nan = values.shape[-1] - 1 - np.argmax(is_nan[..., ::-1], axis=-1)
    first = np.argmax(np.where(is_nan, -np.inf, values), axis=-1)
    return np.asarray(np.where(is_nan.any(axis=-1), last_nan, first))


def max_pool(input: Any, axes: Axes) -> tuple[Array, Array]:
    """The maxima over windows of [N, C, D, H, W], and which element of its plane each is; elements are moved."""
    image = np.asarray(input)
    values = in_float64(image)
    n, c, d, h, w = values.shape
    shape = (n, c, *(len(axis) for axis in axes))
    output, indices = np.full(shape, -np.inf).astype(image.dtype), np.full(shape, -1, np.int64)
    flat = image.reshape(n, c, d * h * w)
    for place in np.ndindex(*shape[2:]):
        ds, hs, ws = (np.array(axis[o], np.int64) for axis, o in zip(axes, place, strict=True))
        if not (len(ds) and len(hs) and len(ws)) or not n * c:
            continue
        elements = ((ds[:, None, None] * h + hs[:, None]) * w + ws).ravel()
        found = elements[_winner(in_float64(flat[:, :, elements]))]
        at = (slice(None), slice(None), *place)
        indices[at] = found
        output[at] = np.take_along_axis(flat, found[:, :, None], axis=2)[:, :, 0]
    return output, indices


def max_pool_backward(grad_output: Any, indices: Any, input_shape: tuple[int, ...], spans: Axes) -> Sum:
    """The gradient [N, C, D, H, W]: each window's goes to the element that it names, if it spans that."""
    gradient, named = in_float64(grad_output), np.asarray(indices)
    n, c, d, h, w = input_shape
    plane = d * h * w
    inside = (named >= 0) & (named < plane)
    places = np.unravel_index(np.where(inside, named, 0), (d, h, w)) if plane else (named, named, named)
    for axis, (windows, place) in enumerate(zip(spans, places, strict=True)):
        # One number for each window of the axis, along that axis.
        along = [-1 if other == axis + 2 else 1 for other in range(5)]
        first, stop = (
            np.array([getattr(window, end) for window in windows], np.int64).reshape(along) for end in ("start", "stop")
        )
        inside &= (place >= first) & (place < stop)
    total = Accumulator(n * c * plane, 1)
    rows = (np.arange(n * c).reshape(n, c, 1, 1, 1) * plane + named)[inside]
    total.add(rows, gradient[inside][:, None])
    return total.result(MAX_POOL).map(lambda part: part.reshape(input_shape))
