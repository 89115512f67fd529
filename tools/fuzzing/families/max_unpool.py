# SPDX-License-Identifier: Apache-2.0
"""Maximum unpooling's problems, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, indices_below

_AXES = ("d", "h", "w")


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values: Values = {"n": draw.size(3), "c": draw.size(5)}
    unpooled = 1 + draw.below(3)
    for place, axis in enumerate(_AXES):
        most = (40 if place == 2 else 17) if large else 9
        values[axis] = 1 if place < 3 - unpooled else draw.size(most)
        values[f"output_{axis}"] = 1 if place < 3 - unpooled else draw.size(2 * most)
    return values


FAMILY = Family(("max_unpool",), _values, limit=indices_below(*(f"output_{axis}" for axis in _AXES)))
