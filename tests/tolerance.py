# SPDX-License-Identifier: Apache-2.0
"""Assertions that hold a result against its definition: to the bit, or within the bound of the sum it is."""

from __future__ import annotations

import numpy as np

from verify.bounds import Sum
from verify.dtypes import Array, bits, in_float64, rounded
from verify.judge import compare, foreign_nans


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
    """The result is the definition's value rounded once to the result's dtype; +0 and -0 differ."""
    value = expected.value if isinstance(expected, Sum) else expected
    assert_same_bits(actual, rounded(value, actual.dtype))


def assert_canonical_nans(actual: Array) -> None:
    """Every NaN is the canonical quiet one."""
    foreign = foreign_nans(actual)
    if foreign.any():
        at = _first_difference(foreign)
        raise AssertionError(f"NaN at {at} is {int(bits(actual)[at]):#x}")


def assert_within(actual: Array, expected: Sum) -> None:
    """Finite values lie within the derived bound; infinities and canonical NaNs lie where the definition's do."""
    assert actual.shape == expected.value.shape, f"got shape {actual.shape}, wanted {expected.value.shape}"
    assert_canonical_nans(actual)
    found = compare(actual, expected)
    if found.wrong.any():
        at = _first_difference(found.wrong)
        raise AssertionError(
            f"{int(found.wrong.sum())} of {found.wrong.size} elements are off, first at {at}: "
            f"got {in_float64(actual)[at]!r}, wanted {found.wanted[at]!r} +- {found.bound[at]!r} "
            f"({int(expected.terms[at])} terms)"
        )
