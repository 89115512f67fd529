# SPDX-License-Identifier: Apache-2.0
"""roi_pool's problems, drawn, and its one limit that two arguments have together; nothing about another family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, kind_by_name

_MOST_PIXELS = 2**31 - 1


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values: Values = {
        "n": draw.size(3), "c": draw.size(9), "h": draw.size(), "w": draw.size(), "num_rois": draw.size(9),
        "pooled_h": draw.size(4), "pooled_w": draw.size(4),
    }  # fmt: skip
    if any(scalar.name == "spatial_scale" for scalar in symbol.scalars):
        values["spatial_scale"] = draw.choice((1.0, 1.0, 0.5, 0.25, 0.0625, -1.0, 3.7, 0.0))
    if large:
        values |= {"n": 2, "c": 1 + draw.below(70), "h": 1 + draw.below(70), "w": 1 + draw.below(70)}
        values |= {"num_rois": draw.below(150), "pooled_h": 1 + draw.below(7), "pooled_w": 1 + draw.below(7)}
    return values


def _kind(draw: Drawer, symbol: Symbol, name: str, values: Values) -> str:
    if name == "argmax":
        return "ids-" + str(draw.choice(content.INDEX_KINDS))
    return kind_by_name(draw, symbol, name, values)


def _limit(symbol: Symbol, name: str, values: Values) -> int:
    """Pixels of a plane, which argmax names."""
    height, width = values["h"], values["w"]
    assert isinstance(height, int)
    assert isinstance(width, int)
    return height * width if name == "argmax" else 0


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    return {"h", "w"} if values["h"] * values["w"] > _MOST_PIXELS else set()


FAMILY = Family(("roi_pool",), _values, kind=_kind, limit=_limit, faults=_faults)
