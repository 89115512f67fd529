# SPDX-License-Identifier: Apache-2.0
"""Fractional maximum pooling and its gradient, window by window as PyTorch's CUDA kernels define them.

Source: torch.nn.functional.fractional_max_pool2d and fractional_max_pool3d. A tensor here is [N, C, D, H, W].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, coordinate_dtype, in_float64

# The gradient: an addition for every term.
FRACTIONAL_MAX_POOL = Roundings(1, 0)


def _whole_part(number: Any) -> int:
    """Towards zero, within 32 bits; no number is 0."""
    if np.isnan(number):
        return 0
    return int(min(max(float(number), -(2.0**31)), 2.0**31 - 1))


def starts(extent: int, bins: int, kernel: int, sample: Any) -> list[int]:
    """Where windows begin along an axis; `sample` is a scalar of the type in which that is computed."""
    compute = type(sample)
    found = []
    with np.errstate(all="ignore"):
        for o in range(bins - 1):
            alpha = compute(extent - kernel) / compute(bins - 1)
            start = _whole_part((compute(o) + sample) * alpha) - _whole_part(sample * alpha)
            found.append(min(max(start, 0), extent - kernel))
    return [*found, extent - kernel][:bins]


def samples_by_axis(samples: Array, dtype: Any) -> tuple[Any, Any, Any]:
    """A plane's samples for depth, height and width: of two, the first is the width's."""
    compute = coordinate_dtype(dtype).type
    numbers = [compute(float(each)) for each in samples]
    return (compute(0), numbers[1], numbers[0]) if len(numbers) == 2 else (numbers[0], numbers[1], numbers[2])


def fractional_max_pool(
    input: Any, random_samples: Any, kernel: tuple[int, int, int], output_size: tuple[int, int, int]
) -> tuple[Array, Array]:
    """The maxima, and which element of its plane each is; elements are moved."""
    image, samples = np.asarray(input), np.asarray(random_samples)
    n, c, d, h, w = image.shape
    values = in_float64(image)
    output = np.zeros((n, c, *output_size), image.dtype)
    indices = np.zeros(output.shape, np.int64)
    for plane in np.ndindex(n, c):
        of_axis = zip((d, h, w), output_size, kernel, samples_by_axis(samples[plane], image.dtype), strict=True)
        begins = [starts(*each) for each in of_axis]
        for place in np.ndindex(*output_size):
            best = None
            z, y, x = (begin[o] for begin, o in zip(begins, place, strict=True))
            for at in np.ndindex(*kernel):
                element = (z + at[0], y + at[1], x + at[2])
                value = values[plane][element]
                # The first of equals stays; a later NaN always wins.
                if best is None or value > values[plane][best] or np.isnan(value):
                    best = element
            assert best is not None
            output[plane][place] = image[plane][best]
            indices[plane][place] = (best[0] * h + best[1]) * w + best[2]
    return output, indices


def spans(extent: int, bins: int, kernel: int) -> list[range]:
    """The elements that each window of an axis may hold, whatever its sample in [0, 1]."""
    slack, gaps = extent - kernel, bins - 1
    if gaps == 0:
        return [range(slack, extent)]
    reach = 1 + slack * gaps // 2**20
    found = []
    for o in range(bins):
        first, last = (o * slack - reach) // gaps, (o * slack + reach) // gaps + kernel
        found.append(range(max(first, 0), min(last + 1, extent)))
    return found


def fractional_max_pool_backward(
    grad_output: Any, indices: Any, input_shape: tuple[int, ...], kernel: tuple[int, int, int]
) -> Sum:
    """The gradient [N, C, D, H, W]: each window's goes to the element that it names, if it may hold that."""
    gradient, named = in_float64(grad_output), np.asarray(indices)
    n, c, d, h, w = input_shape
    plane = d * h * w
    inside = (named >= 0) & (named < plane)
    places = np.unravel_index(np.where(inside, named, 0), (d, h, w)) if plane else (named, named, named)
    for axis, place in enumerate(places):
        windows = spans(input_shape[2 + axis], gradient.shape[2 + axis], kernel[axis])
        # One number for each window of the axis, along that axis.
        along = [-1 if other == axis + 2 else 1 for other in range(5)]
        first, stop = (
            np.array([getattr(window, end) for window in windows], np.int64).reshape(along) for end in ("start", "stop")
        )
        inside &= (place >= first) & (place < stop)
    total = Accumulator(n * c * plane, 1)
    rows = (np.arange(n * c).reshape(n, c, 1, 1, 1) * plane + named)[inside]
    total.add(rows, gradient[inside][:, None])
    return total.result(FRACTIONAL_MAX_POOL).map(lambda part: part.reshape(input_shape))
