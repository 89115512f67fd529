# SPDX-License-Identifier: Apache-2.0
"""Position-sensitive pooling's problems, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values: Values = {
        "n": draw.size(3), "c": draw.size(5), "h": draw.size(), "w": draw.size(), "num_rois": draw.size(9),
        "pooled_h": 1 + draw.below(4), "pooled_w": 1 + draw.below(4),
        "spatial_scale": draw.choice((1.0, 1.0, 0.5, 0.25, 0.0625, -1.0, 3.7, 0.0)),
    }  # fmt: skip
    if any(scalar.name == "sampling_ratio" for scalar in symbol.scalars):
        values["sampling_ratio"] = draw.choice((-1, 0, 0, 1, 2, 2, 3, 4))
    if large:
        values |= {"n": 2, "c": 1 + draw.below(4), "h": 1 + draw.below(70), "w": 1 + draw.below(70)}
        values |= {"num_rois": draw.below(150)}
    return values


FAMILY = Family(("ps_roi",), _values)
