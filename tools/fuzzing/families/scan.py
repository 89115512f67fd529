# SPDX-License-Identifier: Apache-2.0
"""Scans' problems, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _length(values: Values) -> int:
    length = values["length"]
    assert isinstance(length, int)
    return length


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    """Short rows, dense or side by side, or a few that are longer than a block or a tile."""
    inner = 1 if draw.below(2) else draw.size(40)
    length = draw.size(20_000 if inner == 1 else 300) if large else draw.size(20)
    return {"outer": draw.size(3 if large else 12), "length": length, "inner": inner, "reverse": draw.below(2)}


def _limit(symbol: Symbol, tensor: str, values: Values) -> int:
    return _length(values) if tensor == "indices" else 0


FAMILY = Family(
    ("scan",),
    _values,
    limit=_limit,
    in_place={"cumsum": "input", "cumprod": "input", "logcumsumexp": "input"},
)
