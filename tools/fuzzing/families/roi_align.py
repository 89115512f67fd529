# SPDX-License-Identifier: Apache-2.0
"""roi_align's problems, drawn; nothing about another family."""

from __future__ import annotations

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values = _of_levels(draw, large) if symbol.host_arrays else _of_map(draw, large)
    if "boxes" in symbol.name and values["sampling_ratio"] > 100:
        values["sampling_ratio"] = 100  # it takes every sample by itself
    return values


def _of_levels(draw: Drawer, large: bool) -> Values:
    """One map's problem, and maps that shrink from level to level, or any."""
    values = _of_map(draw, large)
    h, w, scale = values.pop("h"), values.pop("w"), values.pop("spatial_scale")
    maps = 1 + draw.below(8)
    shrinks = draw.below(2)
    values |= {
        "num_levels": maps,
        "heights": [h >> level if shrinks else draw.size() for level in range(maps)],
        "widths": [w >> level if shrinks else draw.size() for level in range(maps)],
        "spatial_scales": [scale / 2**level for level in range(maps)],
        "k_min": draw.choice((2, 2, 0, -3, 64, -64)), "canonical_level": draw.choice((4, 4, 2, 64, -64)),
        "canonical_scale": draw.choice((224.0, 4.0, 8.0, 1.0, 0.0, -3.5)),
    }  # fmt: skip
    return values


def _of_map(draw: Drawer, large: bool) -> Values:
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
