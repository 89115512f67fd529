# SPDX-License-Identifier: Apache-2.0
"""grid_sample_3d's problems, drawn; nothing about another family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family

_INPUT, _OUTPUT = ("input_d", "input_h", "input_w"), ("output_d", "output_h", "output_w")


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    if large:
        sizes = [1 + draw.below(2), 1 + draw.below(70), *(1 + draw.below(20) for _ in range(6))]
    else:
        sizes = [draw.size(3), draw.size(9), *(draw.size(12) for _ in range(6))]
    values: Values = dict(zip(("n", "c", *_INPUT, *_OUTPUT), sizes, strict=True))
    values |= {"mode": draw.below(2), "padding_mode": draw.below(3), "align_corners": draw.below(2)}
    values["gradients"] = draw.choice((0, 0, 1, 2))
    values["shares_input"] = draw.choice((0, 0, 1))
    if values["padding_mode"] and not draw.one_in(8):
        # A voxel that can be at the border.
        values |= {name: max(1, size) for name, size in zip(_INPUT, sizes[2:5], strict=True)}
    return values


def _options_faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    # The options are those of images, which have bicubic samples, too.
    return {"options->mode"} if values["mode"] == 2 else set()


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    has_voxels = all(values[name] > 0 for name in _INPUT)
    return set() if has_voxels or not values["padding_mode"] else {"input_d"}


FAMILY = Family(("grid_sample_3d",), _values, options_faults=_options_faults, faults=_faults)
