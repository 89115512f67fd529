# SPDX-License-Identifier: Apache-2.0
"""Padding's problems, drawn and judged; nothing about another family."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol, is_product
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family

CONSTANT = 0


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    forward = not symbol.operator.name.endswith("_backward")
    ex, constant = "_ex" in symbol.operator.name, "constant" in symbol.operator.name
    rank = draw.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 8))
    most = 60 if large else 6
    shape = [min(draw.size(most), most if axis < 3 else 3) for axis in range(rank)]
    mode = draw.below(5) if ex else (0 if constant else 1)
    widest = 3 if not draw.one_in(8) else 40
    low, high = [draw.below(widest) for _ in shape], [draw.below(widest) for _ in shape]
    if rank > 4:
        low, high = [each % 2 for each in low], [each % 2 for each in high]
    if ex and draw.below(2):
        low = [each - draw.below(4) for each in low]
        high = [each - draw.below(4) for each in high]
        low = [max(each, -n) for each, n in zip(low, shape, strict=True)]
        high = [max(each, -n - min(other, 0)) for each, other, n in zip(high, low, shape, strict=True)]
    output = [n + before + after for n, before, after in zip(shape, low, high, strict=True)]
    if mode != 0 and 0 not in output and not draw.one_in(8):
        # Something to repeat.
        low = [max(each, 0) for each in low]
        high = [max(each, 0) for each in high]
        shape = [max(n, 1) for n in shape]
        output = [n + before + after for n, before, after in zip(shape, low, high, strict=True)]
    values: Values = {"rank": rank, "input_shape": shape, "pad_low": low}
    if forward or not constant:
        values["output_shape"] = output
    padded = [n + before for n, before in zip(shape, low, strict=True)] if constant and not forward else output
    if forward:
        values |= {"output_numel": math.prod(output), "input_strides": _strides(draw, shape, True)}
        values["output_strides"] = _strides(draw, output, False)
    else:
        values |= {"input_numel": math.prod(shape), "grad_output_strides": _strides(draw, padded, True)}
        values["grad_input_strides"] = _strides(draw, shape, False)
    if ex:
        values |= {"mode": mode, "value": None}
        if draw.below(2):
            values["value"] = draw.bits(8 * content.WIDTHS[symbol.element])
    elif constant and forward:
        values["value"] = _element(draw, symbol)
    return values


def _element(draw: Drawer, symbol: Symbol) -> int | float:
    """A scalar that is an element: f32 and f64 are numbers, all else bits."""
    if symbol.element in ("f32", "f64"):
        return float(draw.choice((0.0, -0.0, 1.5, -3.0, 1e-42, math.inf, -math.inf, math.nan, 3e38)))
    return draw.bits(8 * content.WIDTHS[symbol.element])


def _strides(draw: Drawer, shape: list[int], is_read: bool) -> list[int]:
    """Row-major, with gaps, in another order of the axes, backwards; inputs also repeat."""
    kind = draw.below(8)
    order = list(range(len(shape)))
    if kind in (4, 5):
        draw.rng.shuffle(order)
    gap = 1 + draw.below(3) if kind in (3, 5) else 1
    strides, step = [0] * len(shape), gap
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
        if kind in (2, 3):
            step += draw.below(3)
    if kind in (5, 6):
        strides = [-each if draw.below(2) else each for each in strides]
    if kind == 7 and is_read:
        strides = [0 if draw.below(3) == 0 else each for each in strides]
    return strides


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    forward = not symbol.operator.name.endswith("_backward")
    source, low = values["input_shape"], values["pad_low"]
    output = values["output_shape"] if "output_shape" in values else source + low
    mode = values.get("mode", CONSTANT if symbol.operator.name.startswith("pad_constant") else 1)
    crops = symbol.operator.name.startswith("pad_ex")
    found = set()
    kept = [
        n + min(before, 0) + min(after - n - before, 0) for n, before, after in zip(source, low, output, strict=True)
    ]
    if not crops and any(after < n + before for n, before, after in zip(source, low, output, strict=True)):
        found.add("output_shape")
    if any(each < 0 for each in kept):
        found |= {"pad_low"} if crops else {"output_shape"}
    if not found and mode != CONSTANT and 0 not in output and any(each == 0 for each in kept):
        found.add("input_shape")
    if found:
        return found
    written = output if forward else source
    if not is_product(values["output_numel" if forward else "input_numel"], written):
        found.add("output_numel" if forward else "input_numel")
    return found


FAMILY = Family(("pad",), _values, faults=_faults)
