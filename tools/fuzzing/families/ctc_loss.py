# SPDX-License-Identifier: Apache-2.0
"""Problems of connectionist temporal classification, drawn: labels and lengths of which some are out of range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, kind_by_name, values_of_table

_EXTENTS = {"targets": "c", "input_lengths": "t", "target_lengths": "target_columns"}


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values = values_of_table(draw, symbol, large)
    t, n, c = draw.size(40 if large else 9), draw.size(6), draw.size(70 if large else 7)
    labels = draw.size(600 if large else 9)
    values |= {"t": t, "n": n, "c": c, "target_columns": labels, "blank": draw.below(c + 2)}
    values["target_rows"] = draw.choice((1, n))
    values["num_states"] = draw.choice((2 * labels + 1, draw.size(9)))
    return values


def _kind(draw: Drawer, symbol: Symbol, name: str, values: Values) -> str:
    if name in _EXTENTS:
        return "ids-" + str(draw.choice(content.INDEX_KINDS))
    return kind_by_name(draw, symbol, name, values)


def _limit(symbol: Symbol, name: str, values: Values) -> int:
    if name not in _EXTENTS:
        return 0
    extent = values[_EXTENTS[name]]
    assert isinstance(extent, int)
    # A length may be the extent itself.
    return extent + (name != "targets")


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    """Rows of targets are the sequences' or one."""
    return set() if values["target_rows"] in (1, values["n"]) else {"target_rows"}


FAMILY = Family(("ctc_loss",), _values, kind=_kind, limit=_limit, faults=_faults)
