# SPDX-License-Identifier: Apache-2.0
"""Counts in bins of one width. Source: torch.histc on CUDA.

Where a bin begins follows from roundings, so that the steps to a bin's number are the source's, in the dtype that is
computed in. A count is exact before it is rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.dtypes import Array, in_float64


def histc(input: Any, bins: int, min: float = 0.0, max: float = 0.0) -> Array:
    """The counts, in int64."""
    given = np.asarray(input).ravel()
    wide = np.float64 if given.dtype == np.float64 else np.float32
    with np.errstate(invalid="ignore"):
        values = in_float64(given).astype(wide)
    one = wide(1)
    low, high = wide(min), wide(max)
    if low == high:
        if not np.isfinite(values).all():
            return np.zeros(bins, np.int64)
        if values.size:
            low, high = values.min(), values.max()
        if low == high:
            low, high = low - one, high + one
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        width = high - low
        if not np.isfinite(width * wide(bins)):
            return np.zeros(bins, np.int64)
        inside = values[(values >= low) & (values <= high)]
        places = (inside - low) * wide(bins) / width
    # A range of no width has all in the first bin.
    places = np.where(places == places, places, 0)
    return np.bincount(np.minimum(places.astype(np.int64), bins - 1), minlength=bins).astype(np.int64)
