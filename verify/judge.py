# SPDX-License-Identifier: Apache-2.0
"""The judge: how far a result is from what it must be, and whether two results are the same bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from verify.bounds import Sum
from verify.dtypes import CANONICAL_NAN, Array, bits, in_float64


class Comparison(NamedTuple):
    """A result beside what it must be, element by element.

    Equal infinities and two NaNs agree. An error is infinite where only one is a NaN; the bound is 0 where the value is
    not finite, since rounding does not lead there.
    """

    wanted: Array
    error: Array
    bound: Array

    @property
    def wrong(self) -> Array:
        """Which elements no correct kernel can answer."""
        return np.asarray(~(self.error <= self.bound))

    @property
    def of_bound(self) -> float:
        """The largest part that an element's error is of its bound: at most 1 where none is wrong."""
        none = np.where(self.error > 0, np.inf, 0.0)
        with np.errstate(invalid="ignore"):
            return float(np.divide(self.error, self.bound, out=none, where=self.bound > 0).max(initial=0.0))

    @property
    def largest_error(self) -> float:
        """Of any element."""
        return float(self.error.max(initial=0.0))

    @property
    def relative_error(self) -> float:
        """The largest error over the largest finite value."""
        largest = np.abs(self.wanted[np.isfinite(self.wanted)]).max(initial=0.0)
        return self.largest_error / (float(largest) or 1.0)


def compare(found: Array, expected: Sum) -> Comparison:
    """Hold a result, in the dtype that the operator answered, against its definition.

    The shapes may differ where the order of the elements is the same.
    """
    values = in_float64(found)
    wanted = expected.rounded(found.dtype).reshape(values.shape)
    bound = expected.bound(found.dtype).reshape(values.shape)
    with np.errstate(invalid="ignore"):
        same = (values == wanted) | (np.isnan(values) & np.isnan(wanted))
        error = np.where(same, 0.0, np.abs(values - wanted))
    error[np.isnan(error)] = np.inf
    return Comparison(wanted, error, np.where(np.isfinite(wanted), bound, 0.0))


def foreign_nans(found: Array) -> Array:
    """Which elements are a NaN but not the canonical quiet one."""
    return np.asarray(np.isnan(found) & (bits(found) != CANONICAL_NAN[found.dtype.name]))
