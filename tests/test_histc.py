# SPDX-License-Identifier: Apache-2.0
"""Histograms: their definition to the bit on every path, and PyTorch's and NumPy's counts beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from large_problems import PIECE, few_and_large, pieces, repeated
from lattice import integers, normal
from place import Place, available
from tolerance import assert_exact, assert_same_bits

import pybaracuda
from verify.definitions import histc as oracle
from verify.dtypes import DTYPES, Array

DTYPE = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
# Counts of a block in many copies, in fewer, in one, and of none.
BINS = (1, 2, 100, 384, 385, 6145, 12_288, 12_289, 40_000)


def run(place: Place, x: Array, bins: int, low: float = 0.0, high: float = 0.0) -> Array:
    (found,) = place.run(pybaracuda.histc, x, outputs=[((bins,), x.dtype)], bins=bins, min=low, max=high)
    return np.asarray(found)


def hold(place: Place, x: Array, bins: int, low: float = 0.0, high: float = 0.0) -> Array:
    found = run(place, x, bins, low, high)
    assert_exact(found, oracle.histc(x, bins, low, high).astype(np.float64))
    return found


@pytest.mark.parametrize("bins", BINS)
def test_bins_around_every_threshold(place: Place, bins: int, rng: np.random.Generator) -> None:
    x = normal(rng, (70_003,), np.float32)
    hold(place, x, bins)
    hold(place, x, bins, -1.5, 0.75)


@DTYPE
def test_random_data_of_every_dtype(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    for count in (1, 3, 17, 1000, 100_001):
        x = normal(rng, (count,), dtype)
        hold(place, x, 64)
        hold(place, x, 100, -0.7, 0.1)
        # Not where vectors begin.
        hold(place, x[1:], 33, -1.0, 1.0)


def test_integers_fall_into_their_bins(place: Place, rng: np.random.Generator) -> None:
    x = integers(rng, (50_000,), np.float32)
    low, high = int(x.min()), int(x.max())
    found = run(place, x, high + 1 - low, low, high + 1)
    assert found.tolist() == np.bincount((x - low).astype(np.int64)).tolist()
    assert found.sum() == x.size


def test_the_last_bin_has_its_end(place: Place) -> None:
    x = np.array([0.0, 1.0, 2.0, 4.0, 4.0, -0.5, 4.5], np.float32)
    assert run(place, x, 4, 0.0, 4.0).tolist() == [1, 1, 1, 2]


def test_a_range_of_one_number(place: Place) -> None:
    assert run(place, np.full(9, 3.0, np.float32), 4).tolist() == [0, 0, 9, 0]
    assert run(place, np.array([1.0, 2.0], np.float32), 2, 5.0, 5.0).tolist() == [1, 1]
    # One less and one more are the same number in float32.
    assert run(place, np.full(9, 1e10, np.float32), 4).tolist() == [9, 0, 0, 0]
    assert run(place, np.zeros(0, np.float32), 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(place: Place, bad: float, rng: np.random.Generator) -> None:
    x = normal(rng, (5000,), np.float32)
    x[::7] = bad
    assert not run(place, x, 10).any()
    hold(place, x, 10, -1.0, 1.0)


def test_data_of_a_range_that_overflows(place: Place) -> None:
    x = np.array([-3e38, 0.0, 3e38], np.float32)
    assert not run(place, x, 4).any()
    with pytest.raises(pybaracuda.InvalidProblemError, match="max is 3e"):
        pybaracuda.histc(x, 4, -3e38, 3e38)


def test_counts_are_rounded_once(place: Place) -> None:
    for count, dtype in ((4099, np.float16), (2049, np.float16), (70_000, np.float16)):
        found = run(place, np.zeros(count, dtype), 1, -1.0, 1.0)
        with np.errstate(over="ignore"):
            assert found[0] == np.float16(count)
    bfloat16 = DTYPES["bf16"]
    for count in (257, 259, 65_793, 33_000_000 // 8 + 1):
        assert_exact(run(place, np.zeros(count, bfloat16), 1, -1.0, 1.0), np.array([float(count)]))


def test_numpy_counts_the_same(place: Place, rng: np.random.Generator) -> None:
    # Bins of a width that is a power of two begin where they should.
    x = normal(rng, (20_000,), np.float64)
    found = run(place, x, 64, -4.0, 4.0)
    assert found.tolist() == np.histogram(x, 64, (-4.0, 4.0))[0].tolist()


@few_and_large
def test_more_than_2_31_elements(is_large: bool, place: Place, rng: np.random.Generator) -> None:
    repeats, bins = pieces(is_large), 200
    piece = rng.integers(0, bins - 1, PIECE).astype(np.float32)
    piece[0] = 0
    x = repeated(place, piece, repeats)
    # The last elements alone are as large, so that the data's range has to be that of all of them.
    x[-5:] = bins - 1
    counts = oracle.histc(piece, bins, 0, bins) * repeats
    counts -= np.bincount(piece[-5:].astype(np.int64), minlength=bins)
    counts[-1] += 5
    # Among so many bins most counts are held exactly; the only bin's does not fit 31 bits.
    for wanted, low, high in ((counts, 0, bins), (counts, 0, 0), (counts.sum(keepdims=True), 0, bins)):
        out = place.poisoned(wanted.shape, np.float32, 0xFF)
        pybaracuda.histc(x, len(wanted), low, high, out=out)
        assert_same_bits(place.numpy(out), wanted.astype(np.float32))


@pytest.mark.skipif(not available("torch"), reason="no torch")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pytorch_counts_the_same(dtype: Any, rng: np.random.Generator) -> None:
    import torch

    x = normal(rng, (300, 41), dtype)
    for bins, low, high in ((100, 0, 0), (7, -0.1, 0.7), (3000, -1, 1), (10, 2, 2)):
        found = pybaracuda.histc(x, bins, low, high)
        assert found.tolist() == torch.histc(torch.from_numpy(x), bins, low, high).tolist()
