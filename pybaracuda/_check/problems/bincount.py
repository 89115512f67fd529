# SPDX-License-Identifier: Apache-2.0
"""The problems of weighted counts."""

from __future__ import annotations

import numpy as np

from ..abi_calls import Values
from ..content import INT32_MAX, INT32_MIN, Maker, special, subnormal, whole_numbers, wide
from ..problem import Family, Problem
from ..splitmix import Array, encoded, integers


def _num_bins(values: Values) -> int:
    found = values["num_bins"]
    assert isinstance(found, int)
    return found


def _entries(seed: int, count: int, token: str, values: Values) -> Array:
    return encoded(integers(seed, count, 0, _num_bins(values) - 1), token)


def _skewed(seed: int, count: int, token: str, values: Values) -> Array:
    """Nine entries of ten name one bin in the middle."""
    drawn = integers(seed, count, 0, _num_bins(values) - 1)
    drawn[integers(seed ^ 1, count, 0, 9) > 0] = _num_bins(values) // 2
    return encoded(drawn, token)


def _bad_entries(seed: int, count: int, token: str, values: Values) -> Array:
    """Entries on either side of the bins and the extremes of the type; half of the bins stay empty."""
    bins = _num_bins(values)
    bad = [-1, bins, INT32_MIN, INT32_MAX] + ([-(2**63), 2**63 - 1, 2**32, 2**32 + 1] if token == "i64" else [])
    drawn = integers(seed, count, 0, bins - 1) & ~1
    drawn[::3] = np.array(bad)[integers(seed ^ 1, count, 0, len(bad) - 1)][::3]
    return encoded(drawn, token)


def _problem(
    name: str,
    description: str,
    n: int,
    num_bins: int,
    makers: dict[str, Maker] | None = None,
    *,
    rows: int = 0,
    floats_only: bool = False,
) -> Problem:
    values: Values = {"n": n, "num_bins": num_bins, **({"rows": rows} if rows else {"wants_extent": 1})}
    return Problem(name, description, values, {"input": _entries, **(makers or {})}, floats_only=floats_only)


_PROBLEMS = [
    _problem("typical", "random entries", 700, 100),
    _problem("conflicts", "one entry more than a step, most of them not alone", 33, 3),
    _problem("one-bin", "every entry names it", 1000, 1, {"weights": wide}),
    _problem("skewed", "one bin takes most of the entries of a block", 4096, 37, {"input": _skewed}),
    _problem("blocks", "one entry more than two blocks", 8193, 20),
    _problem("most-bins", "as many bins as there may be", 20_001, 4096),
    _problem("groups", "one entry more than a group, enough work for several threads", 262_145, 1000),
    _problem("bad-entries", "entries out of range are dropped, half of the bins are empty", 5000, 40,
             {"input": _bad_entries}),
    _problem("special", "NaN, infinities, zeros and subnormals", 300, 60, {"weights": special}, floats_only=True),
    _problem("subnormal", "subnormal weights alone", 600, 7, {"weights": subnormal}, floats_only=True),
]  # fmt: skip

_PROBLEMS_OF_ROWS = [
    _problem("typical", "rows of a block", 700, 100, rows=9),
    _problem("short", "many rows, each shorter than a step", 5, 3, rows=3001),
    _problem("skewed", "one bin takes most of the entries of a row", 4096, 37, {"input": _skewed}, rows=3),
    _problem("blocks", "rows of one entry more than two blocks", 8193, 20, rows=2),
    _problem("most-bins", "as many bins as there may be", 4097, 4096, rows=3),
    _problem("groups", "rows of one entry more than a group", 262_145, 3, rows=2),
    _problem("bad-entries", "entries out of range are dropped, half of the bins are empty", 500, 40,
             {"input": _bad_entries}, rows=6),
    _problem("special", "NaN, infinities, zeros and subnormals", 300, 60, {"weights": special}, rows=4,
             floats_only=True),
]  # fmt: skip


def _maker(operator: str, tensor: str, element: str | None, maker: Maker) -> Maker:
    return whole_numbers if element in ("i32", "i64") else maker


FAMILY = Family({"bincount": _PROBLEMS, "bincount_rows": _PROBLEMS_OF_ROWS}, maker=_maker)
