# SPDX-License-Identifier: Apache-2.0
"""What the fuzzer has to know about a family of operators beyond the ABI table; no family is named here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer

# Tensors whose numbers mean something, by the name that they have in every operator.
_INDICES = tuple(f"ids-{kind}" for kind in content.INDEX_KINDS)
_KINDS_BY_NAME = {"rois": content.BOX_KINDS, "grid": content.GRID_KINDS, "indices": _INDICES}
# Of a real-valued scalar.
_FACTORS = (1.0, 1.0, 0.5, 0.25, 0.0625, -1.0, 3.7, 0.0)
# Scalars with no more values than this are flags and modes; others are extents.
_MOST_CHOICES = 16


def values_of_table(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    """A valid problem of an operator whose problem is scalars alone, as their ranges in the ABI table allow."""
    if symbol.host_arrays or symbol.options is not None:
        raise LookupError(
            f"{symbol.operator.name} has arrays or options in its problem, which the ABI table does not bind: "
            f"add tools/fuzzing/families/{symbol.operator.family}.py"
        )
    values: Values = {}
    extents, counts = [], []
    for scalar in symbol.scalars:
        if scalar.name.endswith("numel"):
            counts.append(scalar.name)
        elif scalar.finite:
            values[scalar.name] = draw.choice(_FACTORS)
        elif scalar.low is not None and scalar.high is not None and scalar.high - scalar.low < _MOST_CHOICES:
            values[scalar.name] = int(scalar.low) + draw.below(int(scalar.high - scalar.low) + 1)
        else:
            values[scalar.name] = draw.size()
            extents.append(scalar.name)
    if large and extents:
        values[draw.choice(extents)] = 1 + draw.below(2000)
    for name in counts:
        values[name] = math.prod(symbol.extents(symbol.outputs[0], values))
    return values


def kind_by_name(draw: Drawer, symbol: Symbol, name: str, values: Values) -> str:
    """The kind of a tensor's data (content.py)."""
    return str(draw.choice(_KINDS_BY_NAME.get(name, content.KINDS)))


def nothing_below(symbol: Symbol, name: str, values: Values) -> int:
    """Of a family without ids."""
    return 0


def indices_below(*axes: str) -> Callable[[Symbol, str, Values], int]:
    """Of a family whose `indices` name the elements of a plane with these extents."""

    def limit(symbol: Symbol, name: str, values: Values) -> int:
        extents = [values[axis] for axis in axes]
        assert all(isinstance(extent, int) for extent in extents)
        return math.prod(extents) if name == "indices" else 0

    return limit


def no_fault(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    """Of a family whose arguments are each right or wrong alone."""
    return set()


def no_steps(symbol: Symbol, values: Mapping[str, Any]) -> int:
    """Of a family whose time grows as its tensors do, whose size is bounded already."""
    return 0


class Family(NamedTuple):
    """How a family's calls are drawn and judged; what is not said follows from the ABI table."""

    # Its families in the ABI table.
    names: tuple[str, ...]
    # The problem; the last argument asks for one that is large enough for threads, tiles and cut sums.
    values: Callable[[Drawer, Symbol, bool], Values] = values_of_table
    # Of one call in how many that problem is large.
    one_large_in: int = 16
    # The kind of a tensor's data, and what its ids, offsets and rows stay below when they are good.
    kind: Callable[[Drawer, Symbol, str, Values], str] = kind_by_name
    limit: Callable[[Symbol, str, Values], int] = nothing_below
    # Steps of a call, where their number grows faster than the tensors.
    steps: Callable[[Symbol, Mapping[str, Any]], int] = no_steps
    # The arguments at fault where it is only together, or in a variant, that they are wrong; fields of the options as
    # messages name them, and they are asked about first.
    options_faults: Callable[[Symbol, Mapping[str, Any]], set[str]] = no_fault
    faults: Callable[[Symbol, Mapping[str, Any]], set[str]] = no_fault
    # Operators whose output may be an input itself, and the input.
    in_place: Mapping[str, str] = {}
    # Operators that take a workspace of 4 bytes a segment, which is too small, for none.
    frozen_workspace: frozenset[str] = frozenset()
