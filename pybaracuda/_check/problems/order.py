# SPDX-License-Identifier: Apache-2.0
"""The problems of order statistics along an axis and of their gradient."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import Maker, any_bits, special, subnormal, tied
from ..problem import Family, Problem
from ..splitmix import Array, encoded, integers


def _values(outer: int, length: int, inner: int, k: int = 1) -> Values:
    return {"outer": outer, "length": length, "inner": inner, "k": k}


def _few(seed: int, count: int, token: str, values: Values) -> Array:
    """Numbers of which most occur several times."""
    return encoded(integers(seed, count, 0, 40), token)


def _any_integers(seed: int, count: int, token: str, values: Values) -> Array:
    """Integers of a dtype's whole range, or of an eighth of it."""
    low, high = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**61), 2**61), "s8": (-128, 127), "u8": (0, 255)}[token]
    return encoded(integers(seed, count, low, high), token)


def _places(seed: int, count: int, token: str, values: Values) -> Array:
    """Indices in and around the row."""
    length = values["length"]
    assert isinstance(length, int)
    return encoded(integers(seed, count, -1, length), token)


_PROBLEMS = [
    Problem("typical", "rows of 300 elements, the lowest quarter's last", _values(7, 300, 1, 75)),
    Problem("few-values", "elements that occur several times", _values(5, 257, 1, 128), {"input": _few}),
    Problem("single", "rows of one element", _values(37, 1, 3)),
    Problem("short-rows", "several rows in a warp", _values(70, 13, 1, 13)),
    Problem("pairs", "of short rows side by side the largest", _values(9, 2, 7, 2), {"input": _few}),
    Problem("whole-warps", "of rows of a warp's lanes the second smallest", _values(11, 32, 1, 2)),
    Problem("after-a-warp", "one element more, side by side", _values(3, 33, 19, 17)),
    Problem("columns", "rows side by side", _values(2, 150, 37, 149)),
    Problem("blocks", "rows of a block", _values(3, 2049, 1, 1025), {"input": _few}),
    Problem("large-blocks", "rows of a larger block, side by side", _values(1, 8193, 2, 8193)),
    Problem("long", "a row that no block's shared memory holds", _values(1, 66001, 1, 20000)),
    Problem("long-columns", "two of them side by side, of few values", _values(1, 65537, 2, 40000), {"input": _few}),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _values(5, 70, 3, 60),
            {"input": special, "grad_output": special}, floats_only=True),
    Problem("any-bits", "the largest numbers, too; NaNs beyond the middle", _values(9, 40, 1, 40),
            {"input": any_bits, "grad_output": any_bits}, floats_only=True),
    Problem("short-special", "the same in short rows", _values(40, 7, 1, 6), {"input": any_bits}, floats_only=True),
    Problem("ties", "few distinct values, zeros of both signs", _values(4, 200, 2, 101), {"input": tied},
            floats_only=True),
    Problem("subnormal", "subnormal data alone", _values(2, 40, 3, 20), {"input": subnormal, "grad_output": subnormal},
            floats_only=True),
    Problem("parallel", "enough work for several threads", _values(200, 513, 1, 257)),
]  # fmt: skip


def _maker(operator: str, tensor: str, element: str | None, maker: Maker) -> Maker:
    if tensor == "indices":
        return _places
    return _any_integers if element in ("i32", "i64") and maker is not _few else maker


FAMILY = Family({"order": _PROBLEMS}, maker=_maker)
