# SPDX-License-Identifier: Apache-2.0
"""Weighted counts: sums of weights by bin, in ascending order of the entries.

Source: torch.bincount with weights. A kernel cuts the entries into blocks of 4096 and these into groups of 64: a weight
meets the additions of its bin in its block, then those of the blocks of a group, then those of the groups. What is
added to 0 is not rounded, and neither is a sum that nothing is added to, so each of the three has one rounding less
than it has terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.bounds import Sum
from verify.dtypes import Array, in_float64

_BLOCK, _BLOCKS = 4096, 64


def _named(input: Any, num_bins: int) -> tuple[Array, Array]:
    """The places of the entries that name a bin, and the bins."""
    entries = np.asarray(input)
    (places,) = np.nonzero((entries >= 0) & (entries < num_bins))
    return places, entries[places].astype(np.int64)


def bincount(input: Any, weights: Any, num_bins: int) -> Sum:
    """[num_bins] sums of the weights whose entries name a bin."""
    places, bins = _named(input, num_bins)
    values = in_float64(weights)[places]
    groups = max(1, -(-len(np.asarray(input)) // (_BLOCK * _BLOCKS)))
    with np.errstate(invalid="ignore", over="ignore"):
        value = np.bincount(bins, values, num_bins)
        magnitude = np.bincount(bins, np.abs(values), num_bins)
    terms = np.bincount(bins, minlength=num_bins)
    roundings = sum(np.maximum(np.minimum(terms, most) - 1, 0) for most in (_BLOCK, _BLOCKS, groups))
    return Sum(value, magnitude, terms, np.asarray(roundings), own=np.maximum(terms - 1, 0))


def extent(input: Any) -> int:
    """How many bins the entries name, -1 if one is negative or the largest of 64 bits."""
    entries = [int(entry) for entry in np.asarray(input).ravel()]
    if not entries:
        return 0
    return -1 if min(entries) < 0 or max(entries) == 2**63 - 1 else max(entries) + 1


def bincount_of_integers(input: Any, weights: Any, num_bins: int) -> Array:
    """[num_bins] sums in the weights' own dtype, which wrap around."""
    places, bins = _named(input, num_bins)
    values = np.asarray(weights)[places]
    found = np.zeros(num_bins, values.dtype)
    with np.errstate(over="ignore"):
        np.add.at(found, bins, values)
    return found
