# SPDX-License-Identifier: Apache-2.0
"""The problems of maximum pooling, by fixed and by adaptive windows, and of its gradients."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import any_bits, special, subnormal, tied, wide
from ..problem import Family, Problem
from ..splitmix import Array, encoded, integers

_AXES = ("d", "h", "w")


def _indices(seed: int, count: int, token: str, values: Values) -> Array:
    """Elements of a plane, most of them not where their window is, and one before and behind them."""
    plane = 1
    for axis in _AXES:
        extent = values[axis]
        assert isinstance(extent, int)
        plane *= extent
    return encoded(integers(seed, count, -1, plane), token)


def _adaptive(images: tuple[int, int], extents: tuple[int, int, int], bins: tuple[int, int, int]) -> Values:
    values: Values = {"n": images[0], "c": images[1]}
    for axis, extent, number in zip(_AXES, extents, bins, strict=True):
        values |= {axis: extent, f"output_{axis}": number}
    return values


def _fixed(
    images: tuple[int, int],
    extents: tuple[int, int, int],
    kernel: tuple[int, int, int],
    stride: tuple[int, int, int],
    padding: tuple[int, int, int] = (0, 0, 0),
    dilation: tuple[int, int, int] = (1, 1, 1),
    *,
    more: int = 0,
) -> Values:
    """With `more` windows along each pooled axis than fit, as ceil_mode has."""
    axes = zip(extents, kernel, stride, padding, dilation, strict=True)
    bins = tuple((n + 2 * p - e * (k - 1) - 1) // s + 1 + (more if k > 1 else 0) for n, k, s, p, e in axes)
    values = _adaptive(images, extents, (bins[0], bins[1], bins[2]))
    sizes = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    for name, numbers in sizes.items():
        values |= {f"{name}_{axis}": number for axis, number in zip(_AXES, numbers, strict=True)}
    return values


_PLAIN = {"grad_output": wide, "indices": _indices}
_FIXED = [
    Problem("typical", "a network's 3 x 3 windows of every second pixel, padded",
            _fixed((2, 5), (1, 20, 30), (1, 3, 3), (1, 2, 2), (0, 1, 1)), _PLAIN),
    Problem("halves", "2 x 2 windows side by side", _fixed((3, 4), (1, 16, 24), (1, 2, 2), (1, 2, 2)), _PLAIN),
    Problem("small-planes", "planes of four elements: most indices are where their windows are, sums are long",
            _fixed((9, 40), (1, 2, 2), (1, 2, 2), (1, 1, 1), (0, 1, 1)), _PLAIN),
    Problem("volume", "3 x 3 x 3 windows of odd extents, which overlap; one more on each axis than fit",
            _fixed((2, 3), (8, 10, 14), (3, 3, 3), (2, 2, 2), (1, 1, 1), more=1), _PLAIN),
    Problem("dilated", "places with gaps between them, another gap on each axis",
            _fixed((2, 2), (5, 9, 21), (2, 3, 2), (1, 2, 3), (1, 2, 1), (2, 3, 4)), _PLAIN),
    Problem("ties", "few distinct values, zeros of both signs: the first wins",
            _fixed((1, 4), (1, 12, 9), (1, 3, 3), (1, 1, 2), (0, 1, 1)), {**_PLAIN, "input": tied}),
    Problem("special", "NaN payloads, infinities, zeros of both signs and subnormals",
            _fixed((1, 3), (3, 9, 11), (2, 3, 2), (1, 2, 2), (1, 1, 0)),
            {"input": any_bits, "grad_output": special, "indices": _indices}),
    Problem("subnormal", "subnormal data alone", _fixed((1, 3), (1, 6, 7), (1, 2, 3), (1, 1, 2)),
            {"input": subnormal, "grad_output": subnormal, "indices": _indices}),
    Problem("parallel", "enough work for several threads, more windows in a row than are kept at a time",
            _fixed((2, 9), (1, 33, 2100), (1, 3, 2), (1, 2, 1), (0, 1, 1)), _PLAIN),
]  # fmt: skip

_ADAPTIVE = [
    Problem("typical", "7 x 7 windows that share pixels", _adaptive((2, 5), (1, 20, 30), (1, 7, 7)), _PLAIN),
    Problem("whole", "one window a plane", _adaptive((3, 7), (1, 7, 7), (1, 1, 1)), _PLAIN),
    Problem("volume", "fractional windows on three axes", _adaptive((2, 3), (8, 11, 17), (3, 4, 7)), _PLAIN),
    Problem("more-windows", "more windows than elements on two axes: each element is in several",
            _adaptive((2, 2), (3, 5, 7), (7, 13, 7)), _PLAIN),
    Problem("ties", "few distinct values, zeros of both signs: the first wins",
            _adaptive((1, 4), (1, 12, 9), (1, 5, 4)), {**_PLAIN, "input": tied}),
    Problem("special", "NaN payloads, infinities, zeros of both signs and subnormals",
            _adaptive((1, 3), (3, 9, 11), (2, 4, 5)),
            {"input": any_bits, "grad_output": special, "indices": _indices}),
    Problem("subnormal", "subnormal data alone", _adaptive((1, 3), (1, 6, 7), (1, 4, 3)),
            {"input": subnormal, "grad_output": subnormal, "indices": _indices}),
    Problem("parallel", "enough work for several threads, one past every tile",
            _adaptive((3, 33), (1, 65, 129), (1, 33, 17)), _PLAIN),
]  # fmt: skip

FAMILY = Family({"max_pool": _FIXED, "adaptive_max_pool": _ADAPTIVE, "adaptive_max_pool_backward": _ADAPTIVE})
