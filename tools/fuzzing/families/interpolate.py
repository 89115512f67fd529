# SPDX-License-Identifier: Apache-2.0
"""Interpolation's problems, drawn, with the rules that several of its arguments have together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family

_LINEAR, _CUBIC, _NUMBER_OF_MODES = 2, 3, 6  # from linear on modes have corners, from cubic on they are for images
_SCALES = (0.0, 0.0, 1.0, 2.0, 0.5, 1.5, 0.1, -1.0, 1e300, 1e-300, 1e-45)


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    axes = [name.removeprefix("input_") for name in (each.name for each in symbol.scalars) if name.startswith("input_")]
    values: Values = {"n": draw.size(3), "c": draw.size(9)}
    for axis in axes:
        input = draw.size()
        output = draw.choice((input, 2 * input, 4 * input, input // 2, draw.size(), 300))
        if large and axis != "d":
            input, output = 1 + draw.below(70), 1 + draw.below(400)
        # Without a pixel to interpolate there is nothing to write either, mostly.
        values |= {f"input_{axis}": input, f"output_{axis}": output if input or draw.below(8) == 0 else 0}
    if "d" in axes:
        values |= {"input_d": values["input_d"] if draw.below(3) == 0 else 1}
        values |= {"output_d": draw.size(5) if draw.below(3) == 0 else 1, "mode": draw.below(_NUMBER_OF_MODES)}
        if values["mode"] >= _CUBIC and draw.below(8):
            values |= {"input_d": 1, "output_d": 1}
    for name in [each.name for each in symbol.scalars] + [each.name for each in symbol.fields]:
        if name.startswith("scale"):
            values[name] = draw.choice(_SCALES)
        elif name == "align_corners":
            values[name] = draw.below(2) if values.get("mode", _LINEAR) >= _LINEAR or draw.below(8) == 0 else 0
    return values


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    found = set()
    if values.get("mode", _LINEAR) < _LINEAR and values.get("align_corners") == 1:
        found |= {"align_corners", "mode"}
    if values.get("mode", _LINEAR) >= _CUBIC:
        found |= {name for name in ("input_d", "output_d") if values[name] != 1}
    inputs = {name: value for name, value in values.items() if name.startswith("input_") and value == 0}
    outputs = [values[name] for name in values if name.startswith("output_")]
    if inputs and all(each > 0 for each in (values["n"], values["c"], *outputs)):
        found |= set(inputs)
    return found


FAMILY = Family(("interpolate",), _values, faults=_faults)
