# SPDX-License-Identifier: Apache-2.0
"""The problems of scans along an axis and of their gradients."""

from __future__ import annotations

import numpy as np

from ..abi_calls import Values
from ..content import Maker, any_bits, near_one, plain, special, subnormal, tied, whole_numbers
from ..problem import Family, Problem
from ..splitmix import Array, encoded, integers


def _values(outer: int, length: int, inner: int, reverse: int = 0) -> Values:
    return {"outer": outer, "length": length, "inner": inner, "reverse": reverse}


def _runs(seed: int, count: int, token: str, values: Values) -> Array:
    """Indices that a forward call may give: one in eight elements begins a run, and is what the others of it name."""
    length, inner, reverse = (values[name] for name in ("length", "inner", "reverse"))
    assert isinstance(length, int)
    assert isinstance(inner, int)
    begins = integers(seed, count, 0, 7).reshape(-1, length, inner) == 0
    begins[:, 0] = True
    places = np.arange(length)[:, None]
    named = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    return encoded((length - 1 - named[:, ::-1] if reverse else named).ravel(), token)


def _any_indices(seed: int, count: int, token: str, values: Values) -> Array:
    """Indices in and around the row, in no order; some of them name their own places."""
    length = values["length"]
    assert isinstance(length, int)
    return encoded(integers(seed, count, -1, length), token)


_PROBLEMS = [
    Problem("typical", "rows of more than two blocks", _values(3, 300, 1)),
    Problem("reversed", "from the end", _values(2, 257, 1, 1)),
    Problem("short-rows", "several rows in a block of 128", _values(70, 13, 1)),
    Problem("short-rows-reversed", "of whole vectors", _values(33, 16, 1, 1)),
    Problem("single", "rows of one element", _values(37, 1, 3)),
    Problem("columns", "rows that lie side by side", _values(2, 150, 37)),
    Problem("columns-reversed", "more than one group of rows, from the end", _values(1, 140, 65, 1)),
    Problem("tiles", "more than two tiles", _values(1, 16517, 1)),
    Problem("tiles-reversed", "of rows of whole vectors, from the end", _values(2, 8324, 1, 1)),
    Problem("column-tiles", "rows of more than one tile, side by side", _values(1, 8196, 2)),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _values(5, 70, 3),
            {"input": special, "grad_output": special}, ("prod", "logcumsumexp_backward"), floats_only=True),
    Problem("any-bits", "the largest numbers, too", _values(9, 40, 1), {"input": any_bits},
            ("cumsum", "cumprod", "logcumsumexp", "backward"), floats_only=True),
    Problem("ties", "few distinct values, zeros of both signs", _values(4, 200, 2, 1), {"input": tied},
            ("prod", "logcumsumexp_backward"), floats_only=True),
    Problem("any-indices", "indices that no forward call gives", _values(6, 90, 1), {"indices": _any_indices}),
    Problem("subnormal", "subnormal data alone", _values(2, 40, 3), {"input": subnormal, "grad_output": subnormal},
            ("logcumsumexp_backward",), floats_only=True),
    Problem("parallel", "enough work for several threads", _values(20, 1030, 5)),
]  # fmt: skip


def _maker(operator: str, tensor: str, element: str | None, maker: Maker) -> Maker:
    if tensor == "indices":
        return maker if maker is _any_indices else _runs
    if element in ("i32", "i64"):
        return whole_numbers
    return near_one if maker is plain and "cumprod" in operator and tensor == "input" else maker


FAMILY = Family({"scan": _PROBLEMS}, maker=_maker)
