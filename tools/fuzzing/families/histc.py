# SPDX-License-Identifier: Apache-2.0
"""Problems of histograms, drawn; nothing about another family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family

_BOUNDS = (0.0, 0.0, -1.0, 1.0, 0.5, -0.25, 3.7, 1e-42, 7.0, -1e4)


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    """Few elements, or more than a block's; bins that fit a block's shared memory or not."""
    numel = draw.size(150_000 if large else 300)
    bins = 1 + draw.below(30_000 if large and draw.one_in(2) else 200)
    low, high = draw.choice(_BOUNDS), draw.choice(_BOUNDS)
    if high < low and not draw.one_in(20):
        low, high = high, low
    return {"num_elements": numel, "bins": bins, "min": low, "max": high}


def _wide_of(symbol: Symbol) -> Any:
    """What elements are computed with."""
    return np.float64 if symbol.variant.types["T"] == "f64" else np.float32


def _faults(symbol: Symbol, values: Mapping[str, Any]) -> set[str]:
    """A range goes upwards, and no step to a bin's number is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high, bins = (_wide_of(symbol)(values[name]) for name in ("min", "max", "bins"))
        is_finite = np.isfinite((high - low) * bins)
    return set() if values["min"] <= values["max"] and is_finite else {"max"}


FAMILY = Family(("histc",), _values, faults=_faults)
