# SPDX-License-Identifier: Apache-2.0
"""The problems of maximum unpooling and of its gradient."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import any_bits, subnormal
from ..problem import Family, Problem
from ..splitmix import Array, encoded, integers

_AXES = ("d", "h", "w")


def _indices(seed: int, count: int, token: str, values: Values) -> Array:
    """Places of an output plane, many of them named twice, and one before and behind them."""
    plane = 1
    for axis in _AXES:
        extent = values[f"output_{axis}"]
        assert isinstance(extent, int)
        plane *= extent
    return encoded(integers(seed, count, -1, plane), token)


def _sizes(images: tuple[int, int], extents: tuple[int, int, int], output: tuple[int, int, int]) -> Values:
    values: Values = {"n": images[0], "c": images[1]}
    for axis, extent, places in zip(_AXES, extents, output, strict=True):
        values |= {axis: extent, f"output_{axis}": places}
    return values


_PLAIN = {"indices": _indices}
_PROBLEMS = [
    Problem("typical", "twice as many rows and columns", _sizes((2, 5), (1, 10, 15), (1, 20, 30)), _PLAIN),
    Problem("volume", "twice as many on three axes", _sizes((2, 3), (4, 5, 7), (8, 10, 14)), _PLAIN),
    Problem("small-planes", "planes of four places, each of which many elements name",
            _sizes((9, 140), (1, 3, 5), (1, 2, 2)), _PLAIN),
    Problem("one-row", "one dimension, odd extents", _sizes((3, 7), (1, 1, 129), (1, 1, 257)), _PLAIN),
    Problem("parts", "planes of more places than one block keeps", _sizes((1, 3), (3, 40, 65), (6, 80, 129)), _PLAIN),
    Problem("many-elements", "more elements than places, in planes of more places than one block keeps",
            _sizes((1, 2), (6, 80, 130), (5, 80, 129)), _PLAIN),
    Problem("special", "any bits", _sizes((1, 3), (2, 5, 6), (4, 9, 11)),
            {"input": any_bits, "grad_output": any_bits, "indices": _indices}),
    Problem("subnormal", "subnormal data alone", _sizes((1, 3), (1, 6, 7), (1, 12, 14)),
            {"input": subnormal, "grad_output": subnormal, "indices": _indices}),
    Problem("parallel", "enough work for several threads, one past every tile",
            _sizes((3, 33), (1, 33, 65), (1, 65, 129)), _PLAIN),
]  # fmt: skip

FAMILY = Family({"max_unpool": _PROBLEMS})
