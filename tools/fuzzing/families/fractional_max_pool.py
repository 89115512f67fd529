# SPDX-License-Identifier: Apache-2.0
"""Fractional maximum pooling's problems, drawn, and what its arguments must keep together; no other family's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, indices_below

_AXES = ("d", "h", "w")
_MOST = 2**31 - 1


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values: Values = {"n": draw.size(3), "c": draw.size(5)}
    if not symbol.operator.name.endswith("_backward"):
        values["num_samples"] = 2 + draw.below(2)
    is_flat = draw.below(2)
    for place, axis in enumerate(_AXES):
        most = (60 if place == 2 else 17) if large else 9
        kernel = 1 if is_flat and place == 0 else 1 + draw.below(4)
        bins = 1 if is_flat and place == 0 else draw.size(most)
        values |= {f"kernel_{axis}": kernel, f"output_{axis}": bins}
        # As few elements as the windows have room in, or more.
        values[axis] = kernel + bins - 1 + (draw.below(bins + 2) if draw.below(3) else 0)
    return values


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    for axis in _AXES:
        if values[f"output_{axis}"] > max(values[axis] - values[f"kernel_{axis}"] + 1, 0):
            return {f"output_{axis}"}
    kernels = [values[f"kernel_{axis}"] for axis in _AXES]
    if kernels[0] * kernels[1] * kernels[2] > _MOST:
        return {f"kernel_{axis}" for axis in _AXES}
    return set()


FAMILY = Family(("fractional_max_pool",), _values, limit=indices_below(*_AXES), faults=_faults)
