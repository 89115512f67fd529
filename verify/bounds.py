# SPDX-License-Identifier: Apache-2.0
"""How far a correct kernel may be from a definition's float64 value, derived from the sum that the value is.

No relative or absolute tolerance may be picked by hand here: every constant carries its derivation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from verify.dtypes import SMALLEST, UNIT_ROUNDOFF, Array, in_float64, rounded

# Kernels cut a long sum: so many terms are added to a partial sum, and partial sums are added in their order.
PARTIAL_SUM = 256


class Roundings(NamedTuple):
    """What a term of a sum meets on its way to the result: of ``passes`` chains of additions, each as long as the sum
    has terms, every one, and ``extra`` roundings besides. Each is at most one unit roundoff.

    A definition states its own, with the reason. Positions do not count: definitions compute them in the kernels' dtype
    by the same steps.
    """

    passes: int
    extra: int


# exp() and log() in the kernels are within this many roundings of their result.
EXPONENTIAL = 1.02
LOGARITHM = 1.02


def additions(terms: Any) -> Array:
    """How many additions a term meets in a sum that is cut into partial sums, the last of them added, too."""
    terms = np.asarray(terms)
    return np.asarray(np.minimum(terms, PARTIAL_SUM) + -(-terms // PARTIAL_SUM))


def bound(dtype: Any, roundings: Any, magnitude: Any, value: Any = None, own: Any = None) -> Array:
    """The largest error that a correct kernel can make on a sum.

    With n roundings on the way from a term to the result, each a factor (1 + d), |d| <= u, the result is off by at most
    n*u / (1 - n*u) * sum(|terms|) (Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1), in any order of
    summation. f16 and bf16 accumulate in float32 and round once more at the store: half a unit in the last place of the
    stored ``value`` (its magnitude, if not given). ``own`` is n of the definition's float64 sum, where it is another.
    """
    name = np.dtype(dtype).name
    wide = "float64" if name == "float64" else "float32"
    magnitude, roundings = np.asarray(magnitude, np.float64), np.asarray(roundings, np.float64)
    found = np.zeros(np.broadcast(magnitude, roundings).shape)
    own = roundings if own is None else np.asarray(own, np.float64)
    for count, unit in ((roundings, UNIT_ROUNDOFF[wide]), (own, UNIT_ROUNDOFF["float64"])):
        found = found + count * unit / (1 - count * unit) * magnitude
    # Products that leave the normal range: half the smallest subnormal each, in the kernel and in the definition.
    found = found + roundings * SMALLEST[wide]
    if name != wide:
        stored = magnitude if value is None else np.abs(np.asarray(value, np.float64))
        found = found + UNIT_ROUNDOFF[name] * (stored + found) + SMALLEST[name] / 2
    return np.asarray(found)


class Sum(NamedTuple):
    """What an output must be: a sum per element, with what its rounding error depends on."""

    value: Array  # float64
    magnitude: Array  # float64: the same sum over the terms' absolute values
    terms: Array  # int64: how many terms the sum has; a tap of zero weight is not a term
    roundings: Array  # how many may stand between a term and the result; 0 where it is the value rounded once
    own: Array | None = None  # how many stand between a term and the value here, where that is another number

    @classmethod
    def of(cls, parts: tuple[Array, Array, Array], roundings: Roundings) -> Sum:
        """The sum whose value, magnitude and terms are given."""
        return cls(*parts, roundings.passes * parts[2] + roundings.extra)

    def map(self, function: Any) -> Sum:
        """The sum whose parts are a function of this one's, such as some of the elements or another shape."""
        value, magnitude, terms, roundings = map(function, self[:4])
        return Sum(value, magnitude, terms, roundings, None if self.own is None else function(self.own))

    def rounded(self, dtype: Any) -> Array:
        """The value in float64, rounded to ``dtype`` where the result must be exact."""
        exact = self.roundings == 0
        if not exact.any():
            return self.value
        return np.where(exact, in_float64(rounded(self.value, dtype)), self.value)

    def bound(self, dtype: Any) -> Array:
        """The largest error of a correct kernel; 0 where the result must be exact."""
        exact = self.roundings == 0
        if exact.all():  # of an integer, too
            return np.zeros(self.value.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            found = bound(dtype, self.roundings, self.magnitude, self.value, self.own)
        return np.where(exact, 0.0, found)


def exact(values: Any) -> Sum:
    """What an output must be that moves elements, or rounds a float64 value once."""
    value = in_float64(values)
    ones = np.ones(value.shape, np.int64)
    return Sum(value, np.abs(value), ones, 0 * ones)
