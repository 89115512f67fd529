# SPDX-License-Identifier: Apache-2.0
"""Problems of losses of classification, drawn: targets are classes, some of them none."""

from __future__ import annotations

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, kind_by_name, values_of_table

_SMOOTHINGS = (0.0, 0.0, 0.1, 0.5, 1.0, -0.25, 3.0)


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values = values_of_table(draw, symbol, large)
    values["ignore_index"] = draw.choice((-100, 0, 1, 255, -1, -(2**63), 2**63 - 1))
    if "label_smoothing" in values:
        values["label_smoothing"] = draw.choice(_SMOOTHINGS)
    return values


def _kind(draw: Drawer, symbol: Symbol, name: str, values: Values) -> str:
    if name == "target":
        return "ids-" + str(draw.choice(content.INDEX_KINDS))
    return kind_by_name(draw, symbol, name, values)


def _limit(symbol: Symbol, name: str, values: Values) -> int:
    classes = values["c"]
    assert isinstance(classes, int)
    return classes if name == "target" else 0


FAMILY = Family(("nll_loss",), _values, kind=_kind, limit=_limit)
