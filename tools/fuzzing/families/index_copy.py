# SPDX-License-Identifier: Apache-2.0
"""Problems of copies of rows by an index, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, kind_by_name


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    """Few rows, or more than CUDA looks for by comparing; narrow and wide ones."""
    if large:
        n = draw.choice((2880, 2881, 4096, 9001))
        return {"outer": draw.size(2), "length": draw.choice((1, 3, 1000, 5000)), "n": n, "inner": draw.size(5)}
    inner = draw.choice((1, 2, 3, 4, 8, 16, 33, 1030)) if draw.below(2) else draw.size(20)
    return {"outer": draw.size(4), "length": draw.size(30), "n": draw.size(50), "inner": inner}


def _kind(draw: Drawer, symbol: Symbol, name: str, values: Values) -> str:
    if name == "index":
        return "ids-" + str(draw.choice(content.INDEX_KINDS))
    return kind_by_name(draw, symbol, name, values)


def _limit(symbol: Symbol, name: str, values: Values) -> int:
    """What entries stay below when they are good."""
    found = values["length"]
    assert isinstance(found, int)
    return found if name == "index" else 0


FAMILY = Family(("index_copy",), _values, one_large_in=24, kind=_kind, limit=_limit, in_place={"index_copy": "input"})
