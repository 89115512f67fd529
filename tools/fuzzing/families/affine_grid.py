# SPDX-License-Identifier: Apache-2.0
"""affine_grid's problems, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values: Values = {"n": draw.size(), "output_h": draw.size(), "output_w": draw.size()}
    axes = ["output_h", "output_w"]
    if symbol.operator.name.startswith("affine_grid_3d"):
        values["output_d"] = draw.size()
        axes.append("output_d")
    if large:
        values[draw.choice(tuple(axes))] = 1 + draw.below(2000)
    if symbol.options is not None:
        values["align_corners"] = draw.below(2)
    return values


FAMILY = Family(("affine_grid",), _values)
