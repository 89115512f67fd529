# SPDX-License-Identifier: Apache-2.0
"""Weighted counts' problems, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, kind_by_name

# As many as there may be.
_MOST = 4096


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    """A few entries, or some on either side of a step and of a block."""
    if large:
        n = draw.choice((255, 4095, 4096, 4097, 8193, 20_000))
        values: Values = {"n": n, "num_bins": draw.choice((1, 2, 3, 17, 1000, _MOST - 1, _MOST))}
    else:
        values = {"n": draw.choice((0, 1, 2, 31, 32, 33, 64, 130)), "num_bins": draw.size(60)}
    if symbol.operator.name == "bincount":
        return {**values, "wants_extent": draw.below(2)}
    return {"rows": draw.size(5), **values}


def _kind(draw: Drawer, symbol: Symbol, name: str, values: Values) -> str:
    if name == "input":
        return "ids-" + str(draw.choice(content.INDEX_KINDS))
    return kind_by_name(draw, symbol, name, values)


def _limit(symbol: Symbol, name: str, values: Values) -> int:
    """What entries stay below when they are good."""
    found = values["num_bins"]
    assert isinstance(found, int)
    return found if name == "input" else 0


FAMILY = Family(("bincount",), _values, one_large_in=32, kind=_kind, limit=_limit)
