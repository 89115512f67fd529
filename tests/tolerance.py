# SPDX-License-Identifier: Apache-2.0
"""How a result is compared with the oracle: to the bit, or within a bound derived from the sum it is.

No relative or absolute tolerance may be picked by hand here: every constant carries its derivation.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from oracle.sums import Array, Sum

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)

# Half the distance from 1 to the next number: round-to-nearest is off by at most this part of the value.
UNIT_ROUNDOFF = {FLOAT16: 2.0**-11, BFLOAT16: 2.0**-8, FLOAT32: 2.0**-24, FLOAT64: 2.0**-53}
# The smallest subnormal: below the normal range rounding is off by at most half of it, whatever the value.
SMALLEST = {FLOAT16: 2.0**-24, BFLOAT16: 2.0**-133, FLOAT32: 2.0**-149, FLOAT64: 2.0**-1074}
# The one NaN that arithmetic may store.
CANONICAL_NAN = {FLOAT16: 0x7E00, BFLOAT16: 0x7FC0, FLOAT32: 0x7FC00000, FLOAT64: 0x7FF8000000000000}
BITS: dict[int, np.dtype[Any]] = {
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
    1: np.dtype(np.uint8),
    16: np.dtype([("low", np.uint64), ("high", np.uint64)]),
}

# Roundings that one term meets beside the additions, per operator; each is at most one unit roundoff.
# Positions do not appear: the oracle computes them in the same dtype by the same steps.
#
# roi_align, both directions: `terms` counts (sample, corner) pairs, while a kernel may first merge the
# a (or b) weights that fall on one row (or column), then sum over bins or pixels. One term then meets
# at most (a - 1) + (b - 1) merge additions, one chain over the A rows and one over the B columns of its
# box, and the additions of the chunk totals. With a + b <= a*b + 1 and A, B, a*b each at most the
# number of pairs, that is 2 * terms + 1; so `terms` stands for itself and is doubled by ROI_ALIGN_PASSES.
# On top: 1 - fraction on two axes, the reciprocal of the sample count and its product with a weight on
# at most two axes (4), and the product with the value: 7.
ROI_ALIGN_PASSES = 2
ROI_ALIGN_ROUNDINGS = 8
# grid_sample: 1 - fraction on two axes, the product of two weights, the product with the value: 4.
GRID_SAMPLE_ROUNDINGS = 4
# Its gradient to the input: the same 4, and chunk totals: 256-term chunks are added in at most as many
# additions as there are chunks, which the terms already pay for, plus the one of the last chunk.
GRID_SAMPLE_INPUT_ROUNDINGS = 5
# Its gradient to the grid: 1 - fraction, the products with the value, the gradient and half the extent,
# a difference of two values or two weighted values formed first (1), and the last chunk total: 6.
GRID_SAMPLE_GRID_ROUNDINGS = 6
# affine_grid: two fused multiply-adds, or two products and two sums: `terms` pays for all but one.
AFFINE_GRID_ROUNDINGS = 1
# Its gradient: the product, and the last chunk total.
AFFINE_GRID_THETA_ROUNDINGS = 2
# The gradient of padding: additions, which `terms` pays for, and the last chunk total.
PAD_ROUNDINGS = 1


def tolerance(dtype: Any, terms: Any, magnitude: Any, extra_roundings: int, value: Any = None) -> Array:
    """The largest error that a correct kernel can make on a sum of ``terms`` terms.

    With n roundings on the way from a term to the result, each a factor (1 + d), |d| <= u, the result
    is off by at most n*u / (1 - n*u) * sum(|terms|) (Higham, Accuracy and Stability of Numerical
    Algorithms, lemma 3.1). n = terms + extra_roundings: each term takes part in at most ``terms``
    additions in any order of summation. f16 and bf16 accumulate in float32 and round once more at the store:
    half a unit in the last place of the stored ``value`` (its magnitude, if not given).
    """
    dtype = np.dtype(dtype)
    compute = FLOAT64 if dtype == FLOAT64 else FLOAT32
    magnitude = np.asarray(magnitude, np.float64)
    roundings = np.asarray(terms, np.float64) + extra_roundings
    unit = UNIT_ROUNDOFF[compute]
    bound = roundings * unit / (1 - roundings * unit) * magnitude
    # The oracle's own float64 sum obeys the same bound with float64's unit.
    bound = bound + roundings * UNIT_ROUNDOFF[FLOAT64] / (1 - roundings * UNIT_ROUNDOFF[FLOAT64]) * magnitude
    # Products that leave the normal range: half the smallest subnormal each, in the kernel and in the oracle.
    bound = bound + roundings * SMALLEST[compute]
    if dtype not in (FLOAT32, FLOAT64):
        stored = magnitude if value is None else np.abs(np.asarray(value, np.float64))
        bound = bound + UNIT_ROUNDOFF[dtype] * (stored + bound) + SMALLEST[dtype] / 2
    return np.asarray(bound)


def bits(values: Array) -> Array:
    """The elements' bit patterns as unsigned integers."""
    contiguous = np.ascontiguousarray(values)
    return contiguous.view(BITS[contiguous.dtype.itemsize]).reshape(values.shape)


def rounded(values: Array, dtype: Any) -> Array:
    """float64 values rounded once, to nearest even, with arithmetic's canonical NaN."""
    dtype = np.dtype(dtype)
    values = np.asarray(values, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == BFLOAT16:
            # ml_dtypes goes through float32. Rounding to odd on the way makes that a single rounding.
            single = values.astype(np.float32)
            away = np.abs(single.astype(np.float64)) > np.abs(values)
            truncated = np.where(away, np.nextafter(single, np.float32(0)), single)
            inexact = (truncated.astype(np.float64) != values) & np.isfinite(values)
            odd = (bits(truncated) | inexact.astype(np.uint32)).view(np.float32).reshape(values.shape)
            result = odd.astype(dtype)
        else:
            result = values.astype(dtype)
    patterns = bits(result)
    patterns[np.isnan(values)] = CANONICAL_NAN[dtype]
    return patterns.view(dtype)


def _first_difference(wrong: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def assert_same_bits(actual: Array, expected: Array) -> None:
    """Both arrays hold the same bit patterns, zeros' signs and NaN payloads included."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    wrong = bits(actual) != bits(expected)
    if wrong.any():
        at = _first_difference(wrong)
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} elements differ, first at {at}: "
            f"got {actual[at]} ({bits(actual)[at].tobytes().hex()}), "
            f"wanted {expected[at]} ({bits(expected)[at].tobytes().hex()})"
        )


def assert_exact(actual: Array, expected: Array | Sum) -> None:
    """The result is the oracle's value rounded once to the result's dtype; +0 and -0 differ."""
    value = expected.value if isinstance(expected, Sum) else expected
    assert_same_bits(actual, rounded(value, actual.dtype))


def assert_canonical_nans(actual: Array) -> None:
    """Every NaN is the canonical quiet one."""
    nans = np.isnan(actual)
    foreign = nans & (bits(actual) != CANONICAL_NAN[actual.dtype])
    if foreign.any():
        at = _first_difference(foreign)
        raise AssertionError(f"NaN at {at} is {int(bits(actual)[at]):#x}")


def assert_within(actual: Array, expected: Sum, extra_roundings: int, passes: int = 1) -> None:
    """Finite values lie within the derived bound; infinities and canonical NaNs lie where the oracle's do."""
    assert actual.shape == expected.value.shape, f"got shape {actual.shape}, wanted {expected.value.shape}"
    assert_canonical_nans(actual)
    got = actual.astype(np.float64)
    finite = np.isfinite(expected.value)
    with np.errstate(invalid="ignore"):
        bound = tolerance(actual.dtype, passes * expected.terms, expected.magnitude, extra_roundings, expected.value)
        error = np.abs(got - expected.value)
        wrong = np.where(
            finite,
            ~(error <= bound),
            ~((got == expected.value) | (np.isnan(got) & np.isnan(expected.value))),
        )
    if wrong.any():
        at = _first_difference(wrong)
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} elements are off, first at {at}: got {got[at]!r}, "
            f"wanted {expected.value[at]!r} +- {bound[at]!r} ({int(expected.terms[at])} terms)"
        )
