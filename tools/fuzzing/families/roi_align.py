# SPDX-License-Identifier: Apache-2.0
"""roi_align's problems, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values: Values = {
        "n": draw.size(3), "c": draw.size(9), "h": draw.size(), "w": draw.size(), "num_rois": draw.size(9),
        "pooled_h": draw.size(4), "pooled_w": draw.size(4),
        "spatial_scale": draw.choice((1.0, 1.0, 0.5, 0.25, 0.0625, -1.0, 3.7, 0.0)),
        "sampling_ratio": draw.choice((-1, 0, 0, 1, 2, 2, 3, 4)), "aligned": draw.below(2),
    }  # fmt: skip
    if large:
        values |= {"n": 2, "c": 1 + draw.below(70), "h": 1 + draw.below(70), "w": 1 + draw.below(70)}
        values |= {"num_rois": draw.below(150), "pooled_h": 1 + draw.below(7), "pooled_w": 1 + draw.below(7)}
    elif draw.one_in(200):
        values |= {"sampling_ratio": draw.choice((100, 1000, 4097)), "num_rois": draw.below(3)}
    return values


FAMILY = Family(("roi_align",), _values)
