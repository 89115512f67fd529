# SPDX-License-Identifier: Apache-2.0
"""How a gradient of padding is judged: what occurs once is moved to the bit, what occurs often is a sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tolerance import assert_same_bits, assert_within

from verify.definitions import pad as oracle
from verify.dtypes import Array, bits


def assert_pad_gradient(actual: Array, gradient: Array, low: Sequence[int], high: Sequence[int], mode: str) -> None:
    """The gradient agrees with the oracle: bits where there is one term or none, else within the bound of the sum."""
    expected = oracle.pad_backward(gradient, low, high, mode)
    assert actual.shape == expected.value.shape
    single = expected.terms <= 1
    assert_same_bits(bits(actual)[single], oracle.pad_backward_moves(bits(gradient), low, high, mode)[single])
    assert_within(np.asarray(actual[~single]), expected.map(lambda part: part[~single]))
