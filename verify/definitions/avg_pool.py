# SPDX-License-Identifier: Apache-2.0
"""Average pooling and its gradient, window by window as PyTorch documents them.

Source: torch.nn.functional.avg_pool1d to avg_pool3d and adaptive_avg_pool1d to adaptive_avg_pool3d. A tensor here is
[N, C, D, H, W]; what a pooled axis lacks is an extent of 1 with a window of 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from verify.bounds import Roundings, Sum
from verify.dtypes import in_float64

# A box of t = a b c terms is added along each axis: a + b + c additions at most stand before a term's way out, which
# t + 2 is at least. A list of more than 256 is cut: its partial sums are fewer than its terms, and those that a term
# meets are then at most 255 with less than one more for every 256. The division and the rounding of a divisor that
# float32 does not hold are two more.
AVG_POOL = Roundings(1, 5)


class Window(NamedTuple):
    """The window of one output along one axis: its elements of the input, and how many places it counts."""

    places: range
    counted: int


def fixed_windows(
    extent: int, bins: int, kernel: int, stride: int, padding: int, count_include_pad: bool
) -> list[Window]:
    """Windows of one size, a step apart."""
    found = []
    for o in range(bins):
        first = o * stride - padding
        end = min(first + kernel, extent + padding)
        places = range(max(first, 0), max(min(end, extent), 0))
        found.append(Window(places, end - first if count_include_pad else len(places)))
    return found


def adaptive_windows(extent: int, bins: int) -> list[Window]:
    """Windows that divide an axis, each rounded outwards."""
    found = []
    for o in range(bins):
        places = range(o * extent // bins, -(-(o + 1) * extent // bins))
        found.append(Window(places, len(places)))
    return found


Axes = tuple[list[Window], list[Window], list[Window]]


def _boxes(axes: Axes) -> Iterator[tuple[Any, Any, int]]:
    """Of every output: the index of its element and of its window in a tensor [N, C, D, H, W], and its count."""
    planes = (slice(None), slice(None))
    for place in np.ndindex(*(len(axis) for axis in axes)):
        windows = [axis[o] for axis, o in zip(axes, place, strict=True)]
        if all(len(window.places) for window in windows):
            box = tuple(slice(window.places.start, window.places.stop) for window in windows)
            yield planes + place, planes + box, windows[0].counted * windows[1].counted * windows[2].counted


def avg_pool(input: Any, axes: Axes, divisor_override: int = 0) -> Sum:
    """The means over windows of [N, C, D, H, W]."""
    values = in_float64(input)
    shape = (*values.shape[:2], *(len(axis) for axis in axes))
    value, magnitude, terms = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
    with np.errstate(all="ignore"):
        for element, window, count in _boxes(axes):
            part = values[window]
            divisor = divisor_override or count
            value[element] = part.sum(axis=(2, 3, 4)) / divisor
            magnitude[element] = np.abs(part).sum(axis=(2, 3, 4)) / abs(divisor)
            terms[element] = np.ones(part.shape[2:]).sum()
    return Sum.of((value, magnitude, terms), AVG_POOL)


def avg_pool_backward(grad_output: Any, input_shape: tuple[int, ...], axes: Axes, divisor_override: int = 0) -> Sum:
    """The gradient [N, C, D, H, W]: every window gives each of its elements an equal share of its own."""
    gradient = in_float64(grad_output)
    value, magnitude, terms = np.zeros(input_shape), np.zeros(input_shape), np.zeros(input_shape, np.int64)
    with np.errstate(all="ignore"):
        for element, window, count in _boxes(axes):
            share = gradient[element][:, :, None, None, None] / (divisor_override or count)
            value[window] += share
            magnitude[window] += np.abs(share)
            terms[window] += 1
    return Sum.of((value, magnitude, terms), AVG_POOL)
