# SPDX-License-Identifier: Apache-2.0
"""The problems of average pooling, by fixed and by adaptive windows, and of its gradients."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import special, subnormal, wide
from ..problem import Family, Problem

_AXES = ("d", "h", "w")


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
    *,
    more: int = 0,
    count_include_pad: int = 1,
    divisor: int = 0,
) -> Values:
    """With `more` windows along each pooled axis than fit, as ceil_mode has."""
    axes = zip(extents, kernel, stride, padding, strict=True)
    bins = tuple((n + 2 * p - k) // s + 1 + (more if k > 1 else 0) for n, k, s, p in axes)
    values = _adaptive(images, extents, (bins[0], bins[1], bins[2]))
    for name, numbers in (("kernel", kernel), ("stride", stride), ("padding", padding)):
        values |= {f"{name}_{axis}": number for axis, number in zip(_AXES, numbers, strict=True)}
    return {**values, "count_include_pad": count_include_pad, "divisor_override": divisor}


_FIXED = [
    Problem(
        "typical", "a network's 3 x 3 windows of every second pixel, padded",
        _fixed((2, 5), (1, 20, 30), (1, 3, 3), (1, 2, 2), (0, 1, 1)), {"input": wide, "grad_output": wide},
    ),
    Problem(
        "halves", "2 x 2 windows side by side",
        _fixed((3, 4), (1, 16, 24), (1, 2, 2), (1, 2, 2)), {"input": wide, "grad_output": wide},
    ),
    Problem(
        "volume", "3 x 3 x 3 windows of odd extents, which overlap; one more on each axis than fit",
        _fixed((2, 3), (8, 10, 14), (3, 3, 3), (2, 2, 2), (1, 1, 1), more=1, count_include_pad=0),
        {"input": wide, "grad_output": wide},
    ),
    Problem(
        "gaps", "windows with gaps between them, another on each axis, and a divisor of their own",
        _fixed((2, 2), (5, 9, 21), (2, 3, 2), (3, 4, 5), (1, 1, 1), divisor=-3), {"input": wide, "grad_output": wide},
    ),
    Problem(
        "line", "one axis, windows of 300 elements a step apart: lists of more than 256",
        _fixed((1, 2), (1, 1, 2600), (1, 1, 300), (1, 1, 1), (0, 0, 7)), {"input": wide, "grad_output": wide},
    ),
    Problem(
        "one-window", "a window that is the whole padded plane",
        _fixed((2, 3), (1, 9, 2100), (1, 9, 2100), (1, 1, 1), count_include_pad=0), {"input": wide},
    ),
    Problem(
        "special", "NaN payloads, infinities, zeros of both signs and subnormals",
        _fixed((1, 3), (3, 9, 11), (2, 3, 2), (1, 2, 2), (1, 1, 0)), {"input": special, "grad_output": special},
    ),
    Problem(
        "subnormal", "subnormal data alone",
        _fixed((1, 3), (1, 6, 7), (1, 2, 3), (1, 1, 2)), {"input": subnormal, "grad_output": subnormal},
    ),
    Problem(
        "parallel", "enough work for several threads, one past every tile",
        _fixed((3, 33), (1, 65, 129), (1, 3, 2), (1, 2, 1), (0, 1, 1), more=0), {"input": wide, "grad_output": wide},
    ),
]  # fmt: skip

_ADAPTIVE = [
    Problem(
        "typical", "7 x 7 windows that share pixels",
        _adaptive((2, 5), (1, 20, 30), (1, 7, 7)), {"input": wide, "grad_output": wide},
    ),
    Problem(
        "whole", "one window a plane",
        _adaptive((3, 7), (1, 7, 7), (1, 1, 1)), {"input": wide, "grad_output": wide},
    ),
    Problem(
        "volume", "fractional windows on three axes",
        _adaptive((2, 3), (8, 11, 17), (3, 4, 7)), {"input": wide, "grad_output": wide},
    ),
    Problem(
        "more-windows", "more windows than elements on two axes: each element is in several",
        _adaptive((2, 2), (3, 5, 7), (7, 13, 7)), {"input": wide, "grad_output": wide},
    ),
    Problem(
        "line", "windows of 433 or 434 elements, and 700 windows of one: lists of more than 256",
        _adaptive((2, 2), (1, 2, 2600), (1, 700, 6)), {"input": wide, "grad_output": wide},
    ),
    Problem(
        "special", "NaN payloads, infinities, zeros of both signs and subnormals",
        _adaptive((1, 3), (3, 9, 11), (2, 4, 5)), {"input": special, "grad_output": special},
    ),
    Problem(
        "subnormal", "subnormal data alone",
        _adaptive((1, 3), (1, 6, 7), (1, 4, 3)), {"input": subnormal, "grad_output": subnormal},
    ),
    Problem(
        "parallel", "enough work for several threads, one past every tile",
        _adaptive((3, 33), (1, 65, 129), (1, 33, 17)), {"input": wide, "grad_output": wide},
    ),
]  # fmt: skip

FAMILY = Family(
    {
        "avg_pool": _FIXED,
        "adaptive_avg_pool": _ADAPTIVE,
        "adaptive_avg_pool_backward": _ADAPTIVE,
    }
)
