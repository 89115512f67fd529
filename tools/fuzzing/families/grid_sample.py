# SPDX-License-Identifier: Apache-2.0
"""grid_sample's problems, drawn; nothing about another family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    if large:
        sizes = [1 + draw.below(2), 1 + draw.below(70), *(1 + draw.below(90) for _ in range(4))]
    else:
        sizes = [draw.size(3), draw.size(9), *(draw.size() for _ in range(4))]
    values: Values = dict(zip(("n", "c", "input_h", "input_w", "output_h", "output_w"), sizes, strict=True))
    if symbol.options is not None:
        values |= {"mode": draw.below(3), "padding_mode": draw.below(3), "align_corners": draw.below(2)}
        values["gradients"] = draw.choice((0, 0, 1, 2))
        values["shares_input"] = draw.choice((0, 0, 1))
        if values["padding_mode"] and not draw.one_in(8):
            # A pixel that can be at the border.
            values |= {"input_h": max(1, sizes[2]), "input_w": max(1, sizes[3])}
    return values


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    has_pixels = values["input_h"] > 0 and values["input_w"] > 0
    return set() if has_pixels or not values.get("padding_mode") else {"input_h"}


FAMILY = Family(("grid_sample",), _values, faults=_faults)
