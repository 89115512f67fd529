# SPDX-License-Identifier: Apache-2.0
"""dequantize_per_channel's problems, drawn and judged; nothing about another family."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tools.fuzzing.abi import Symbol, is_product
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    shape = [draw.size(40 if large else 7) for _ in range(4)]
    return {"shape": shape, "axis": draw.below(4), "numel": math.prod(shape)}


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    return set() if is_product(values["numel"], values["shape"]) else {"numel"}


FAMILY = Family(
    ("dequantize",),
    _values,
    faults=_faults,
    in_place={"dequantize_per_channel_backward": "grad_output"},
)
