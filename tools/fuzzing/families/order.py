# SPDX-License-Identifier: Apache-2.0
"""Problems of order statistics, drawn; nothing about another family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    """Short rows, dense or side by side, or a few that are longer than shared memory."""
    inner = 1 if draw.below(2) else draw.size(40)
    length = draw.size(80_000 if draw.one_in(3) else 3000) if large else draw.size(70)
    values: Values = {"outer": draw.size(3 if large else 12), "length": length, "inner": inner}
    if symbol.operator.name == "kthvalue":
        values["k"] = 1 + draw.below(length) if length and not draw.one_in(20) else draw.size()
    return values


def _limit(symbol: Symbol, tensor: str, values: Values) -> int:
    length = values["length"]
    assert isinstance(length, int)
    return length if tensor == "indices" else 0


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    """A rank is one of the row's, which are none of a row without elements."""
    if symbol.operator.name != "kthvalue" or not values["length"]:
        return set()
    return set() if 1 <= values["k"] <= values["length"] else {"k"}


FAMILY = Family(("order",), _values, limit=_limit, faults=_faults)
