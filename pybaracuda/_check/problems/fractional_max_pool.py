# SPDX-License-Identifier: Apache-2.0
"""The problems of fractional maximum pooling and of its gradient."""

from __future__ import annotations

import numpy as np

from ..abi_calls import Values
from ..content import any_bits, bad_samples, special, subnormal, tied, unit, wide
from ..problem import Family, Problem
from ..splitmix import Array, encoded, integers

_AXES = ("d", "h", "w")


def _indices(seed: int, count: int, token: str, values: Values) -> Array:
    """Elements of a plane, many of them not where their window may be, and one before and behind them."""
    plane = 1
    for axis in _AXES:
        extent = values[axis]
        assert isinstance(extent, int)
        plane *= extent
    return encoded(integers(seed, count, -1, plane), token)


def _near_indices(seed: int, count: int, token: str, values: Values) -> Array:
    """Elements about where each window lies on average: most may be its, and some lie just beside."""
    extents = {name: value for name, value in values.items() if isinstance(value, int)}
    rest, index, stride = np.arange(count), np.zeros(count, np.int64), 1
    for place, axis in enumerate(reversed(_AXES)):
        extent, bins, kernel = extents[axis], extents[f"output_{axis}"], extents[f"kernel_{axis}"]
        window, rest = rest % bins, rest // bins
        begin = window * (extent - kernel) // (bins - 1) if bins > 1 else window + extent - kernel
        drawn = begin + integers(seed ^ (place + 1), count, -2, kernel + 2)
        index = index + stride * drawn.clip(0, extent - 1)
        stride *= extent
    return encoded(index, token)


def _pool(
    images: tuple[int, int], extents: tuple[int, int, int], kernel: tuple[int, int, int], bins: tuple[int, int, int]
) -> Values:
    """In two dimensions where there is no depth."""
    values: Values = {"n": images[0], "c": images[1], "num_samples": 2 if extents[0] == 1 else 3}
    for axis, extent, places, number in zip(_AXES, extents, kernel, bins, strict=True):
        values |= {axis: extent, f"kernel_{axis}": places, f"output_{axis}": number}
    return values


_PLAIN = {"random_samples": unit, "grad_output": wide, "indices": _near_indices}
_PROBLEMS = [
    Problem("typical", "2 x 2 windows, some two and some one element apart",
            _pool((2, 5), (1, 20, 30), (1, 2, 2), (1, 14, 21)), _PLAIN),
    Problem("halves", "windows two elements apart, on average and each",
            _pool((3, 4), (1, 16, 24), (1, 2, 2), (1, 8, 12)), _PLAIN),
    Problem("volume", "2 x 3 x 2 windows of three axes", _pool((2, 3), (8, 11, 17), (2, 3, 2), (5, 4, 11)), _PLAIN),
    Problem("whole", "one window a plane, at its end", _pool((3, 7), (1, 7, 9), (1, 3, 9), (1, 1, 1)), _PLAIN),
    Problem("every-place", "a window at every place of two axes", _pool((2, 3), (3, 6, 8), (2, 3, 2), (2, 4, 5)),
            _PLAIN),
    Problem("wide-windows", "windows that overlap by far more than they are apart",
            _pool((2, 3), (1, 19, 24), (1, 9, 11), (1, 6, 8)), _PLAIN),
    Problem("any-indices", "indices anywhere in small planes, and outside of them",
            _pool((9, 20), (1, 5, 4), (1, 2, 2), (1, 3, 3)), {**_PLAIN, "indices": _indices}),
    Problem("bad-samples", "samples outside of [0, 1), infinite ones and NaNs",
            _pool((4, 9), (5, 12, 16), (2, 2, 3), (3, 5, 6)), {**_PLAIN, "random_samples": bad_samples}),
    Problem("ties", "few distinct values, zeros of both signs: the first wins",
            _pool((1, 4), (1, 12, 9), (1, 3, 3), (1, 5, 4)), {**_PLAIN, "input": tied}),
    Problem("special", "NaN payloads, infinities, zeros of both signs and subnormals",
            _pool((1, 3), (3, 9, 11), (2, 3, 2), (2, 4, 5)),
            {**_PLAIN, "input": any_bits, "grad_output": special}),
    Problem("subnormal", "subnormal data alone", _pool((1, 3), (1, 6, 7), (1, 2, 3), (1, 4, 3)),
            {**_PLAIN, "input": subnormal, "grad_output": subnormal}),
    Problem("parallel", "enough work for several threads, more windows in a row than are kept at a time",
            _pool((2, 9), (1, 33, 2500), (1, 3, 2), (1, 16, 1100)), _PLAIN),
]  # fmt: skip

FAMILY = Family({"fractional_max_pool": _PROBLEMS})
