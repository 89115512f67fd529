# SPDX-License-Identifier: Apache-2.0
"""roi_align_3d's problems, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values: Values = {
        "n": draw.size(3), "c": draw.size(5), "d": draw.size(7), "h": draw.size(9), "w": draw.size(),
        "num_rois": draw.size(9), "pooled_d": draw.size(3), "pooled_h": draw.size(4), "pooled_w": draw.size(5),
        "spatial_scale": draw.choice((1.0, 1.0, 0.5, 0.25, 0.0625, -1.0, 3.7, 0.0)),
        "sampling_ratio": draw.choice((-1, 0, 0, 1, 2, 2, 3, 4)), "aligned": draw.below(2),
    }  # fmt: skip
    if large:
        values |= {"n": 2, "c": 1 + draw.below(20), "d": 1 + draw.below(20), "h": 1 + draw.below(30)}
        values |= {"w": 1 + draw.below(90), "num_rois": draw.below(150)}
    return values


FAMILY = Family(("roi_align_3d",), _values)
