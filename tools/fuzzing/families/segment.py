# SPDX-License-Identifier: Apache-2.0
"""Segments' problems, drawn and judged, for the three forms of an index; nothing about another family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, kind_by_name

# Reductions that exist for integers too, by their number in the options.
_OF_INTEGERS = (0, 2, 3, 4, 6, 7)
_INTEGERS = ("i32", "i64")


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    rows = draw.choice((0, 1, 2, 5, 7, 16, 33, 40))
    if large:
        rows = draw.choice((255, 256, 257, 300, 513, 700, 2000, 5000))
    elif draw.one_in(8):
        rows = 30 + draw.below(300)
    values: Values = {
        symbol.scalars[0].name: rows,
        "embedding_dim": draw.size(70 if large else 9),
        "num_segments": draw.choice((1, 3, 40, 700, 2000)) if large else draw.size(),
    }
    if symbol.options is not None:
        integers = symbol.element in _INTEGERS
        values |= {"reduce": draw.choice(_OF_INTEGERS if integers else range(8)), "form": draw.below(3)}
        values["empty_value"] = draw.bits(8 * content.WIDTHS[symbol.element]) if draw.below(2) else None
    return values


def _kind(draw: Drawer, symbol: Symbol, name: str, values: Values) -> str:
    if name == "offsets" or (name == "index" and values.get("form") == 2):
        return "offsets-" + str(draw.choice(content.OFFSET_KINDS))
    if name in ("segment_ids", "index"):
        sorted_ids = symbol.operator.family == "segment_sorted" or values.get("form") == 1
        if sorted_ids and draw.below(2):
            return "ids-sorted"
        return "ids-" + str(draw.choice(content.INDEX_KINDS))
    if name == "arg":
        return "ids-" + str(draw.choice(("random", "outside", "wild", "one")))
    return kind_by_name(draw, symbol, name, values)


def _limit(symbol: Symbol, name: str, values: Values) -> int:
    """What ids, offsets and rows stay below when they are good."""
    if name in ("segment_ids", "index") and values.get("form") != 2:
        return int(values["num_segments"])
    return int(values[symbol.scalars[0].name]) if name in ("offsets", "arg", "index") else 0


def _options_faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    return {"options->reduce"} if symbol.element in _INTEGERS and values["reduce"] not in _OF_INTEGERS else set()


FAMILY = Family(
    ("segment", "segment_sorted", "segment_csr"),
    _values,
    one_large_in=64,
    kind=_kind,
    limit=_limit,
    options_faults=_options_faults,
    frozen_workspace=frozenset(
        f"{prefix}_{name}" for prefix in ("unsorted_segment", "segment") for name in ("mean", "mean_backward")
    ),
)
