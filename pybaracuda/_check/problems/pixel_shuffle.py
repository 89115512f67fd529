# SPDX-License-Identifier: Apache-2.0
"""The problems of pixel_shuffle and pixel_unshuffle."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import Maker, any_bits, plain, subnormal
from ..problem import Family, Problem


def _values(n: int, c: int, h: int, w: int, factor: int) -> Values:
    return {"n": n, "c": c, "h": h, "w": w, "upscale_factor": factor, "downscale_factor": factor}


_ANY: dict[str, Maker] = {"input": any_bits}
_PROBLEMS = [
    *(
        # Whole vectors of every width, and rows that end within one.
        Problem(f"factor-{factor}-width-{w}", f"factor {factor}, rows of {w}", _values(2, 3, 5, w, factor), _ANY)
        for factor in (1, 2, 3, 4, 8)
        for w in (7, 8)
    ),
    Problem("factor-16", "a factor of more than a vector's elements", _values(1, 2, 3, 5, 16), _ANY),
    Problem("one-pixel", "images of one pixel", _values(3, 5, 1, 1, 2), _ANY),
    Problem("parallel", "enough work for several threads", _values(2, 8, 40, 64, 2), {"input": plain}),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _values(2, 4, 9, 8, 2), _ANY),
    Problem("subnormal", "subnormal data alone", _values(1, 4, 9, 9, 3), {"input": subnormal}),
]

FAMILY = Family({"pixel_shuffle": _PROBLEMS})
