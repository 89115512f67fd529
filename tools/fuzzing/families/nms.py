# SPDX-License-Identifier: Apache-2.0
"""Problems of non-maximum suppression, drawn, and the one rule that two arguments have together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, kind_by_name

_THRESHOLDS = (0.5, 0.5, 0.7, 0.25, 0.0, 1.0, -0.5, 1e-40, math.inf, -math.inf, math.nan)
_CLASSES = 4


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    num_boxes = 1 + draw.below(3000) if large else draw.size(200)
    threshold = draw.choice(_THRESHOLDS)
    if symbol.operator.name == "nms":
        return {"num_boxes": num_boxes, "iou_thresh": threshold}
    return {"num_boxes": num_boxes, "num_class_ids": num_boxes * draw.below(2), "iou_threshold": threshold}


def _kind(draw: Drawer, symbol: Symbol, name: str, values: Values) -> str:
    if name == "class_ids":
        return "ids-" + str(draw.choice(content.INDEX_KINDS))
    return kind_by_name(draw, symbol, name, values)


def _limit(symbol: Symbol, name: str, values: Values) -> int:
    return _CLASSES if name == "class_ids" else 0


def _steps(symbol: Symbol, values: Mapping[str, Any]) -> int:
    # A box that is kept is compared with all behind it: 2^16 boxes, one of the hostile numbers, take minutes where
    # sanitizers watch.
    return int(values["num_boxes"]) ** 2


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    return {"num_class_ids"} if values.get("num_class_ids", 0) not in (0, values["num_boxes"]) else set()


FAMILY = Family(("nms",), _values, kind=_kind, limit=_limit, steps=_steps, faults=_faults)
