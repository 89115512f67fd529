# SPDX-License-Identifier: Apache-2.0
"""grid_sample's problems, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    if large:
        sizes = [1 + draw.below(2), 1 + draw.below(70), *(1 + draw.below(90) for _ in range(4))]
    else:
        sizes = [draw.size(3), draw.size(9), *(draw.size() for _ in range(4))]
    return dict(zip(("n", "c", "input_h", "input_w", "output_h", "output_w"), sizes, strict=True))


FAMILY = Family(("grid_sample",), _values)
