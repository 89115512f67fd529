# SPDX-License-Identifier: Apache-2.0
"""Average pooling's problems, drawn, and what its arguments must keep together; nothing about another family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family

_AXES = ("d", "h", "w")
_MOST = 2**31 - 1


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values: Values = {"n": draw.size(3), "c": draw.size(5)}
    pooled = 1 + draw.below(3)
    for place, axis in enumerate(_AXES):
        most = (40 if place == 2 else 17) if large else 9
        extent = 1 if place < 3 - pooled else draw.size(most)
        values[axis] = extent
        values[f"output_{axis}"] = 1 if place < 3 - pooled else draw.size(most)
    if symbol.operator.name.startswith("adaptive"):
        return values
    for place, axis in enumerate(_AXES):
        kernel = 1 if place < 3 - pooled else 1 + draw.below(6)
        stride, padding = 1 + draw.below(5), draw.below(kernel // 2 + 1)
        values |= {f"kernel_{axis}": kernel, f"stride_{axis}": stride, f"padding_{axis}": padding}
        extent = values[axis]
        assert isinstance(extent, int)
        # As many windows as begin before the input's end, or fewer.
        most = (extent + padding - 1) // stride + 1 if extent + padding > 0 else 0
        values[f"output_{axis}"] = most if draw.below(2) else draw.below(most + 1)
    values["count_include_pad"] = draw.below(2)
    values["divisor_override"] = draw.choice((0, 0, 0, 1, -3, 7, 2**40))
    return values


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    if symbol.operator.name.startswith("adaptive"):
        return set()
    kernels = [values[f"kernel_{axis}"] for axis in _AXES]
    if kernels[0] * kernels[1] * kernels[2] > _MOST:
        return {f"kernel_{axis}" for axis in _AXES}
    for axis in _AXES:
        extent, padding = values[axis], values[f"padding_{axis}"]
        if padding > values[f"kernel_{axis}"] // 2:
            return {f"padding_{axis}"}
        if extent + 2 * padding > _MOST:
            return {axis}
        bins = values[f"output_{axis}"]
        if extent > 0 and bins > 0 and (bins - 1) * values[f"stride_{axis}"] - padding >= extent:
            return {f"output_{axis}"}
    return set()


FAMILY = Family(("avg_pool",), _values, faults=_faults)
