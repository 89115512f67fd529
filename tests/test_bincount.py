# SPDX-License-Identifier: Apache-2.0
"""Weighted counts: sums in one order, which a loop in Python takes as well, conflicts of every kind, bad entries."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from lattice import integers, normal
from place import Place, available
from tolerance import assert_same_bits, assert_within

import pybaracuda
from verify.definitions import bincount as oracle
from verify.dtypes import Array, in_float64

BLOCK, GROUP, MOST_BINS = 4096, 64 * 4096, 4096


def counted(place: Place, entries: Array, weights: Array, num_bins: int) -> Array:
    def run(entries: Any, weights: Any, **options: Any) -> Any:
        return pybaracuda.bincount(entries, weights, num_bins, **options)

    return place.run(run, entries, weights, outputs=[((num_bins,), weights.dtype)])[0]


def in_order(entries: Array, weights: Array, num_bins: int) -> Array:
    """The header's order, one addition after the other, in the dtype of sums."""
    wide = weights.dtype if weights.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    zero = wide.type(0)
    result = [zero] * num_bins
    for group in range(0, len(entries), GROUP):
        of_group = [zero] * num_bins
        for block in range(group, min(group + GROUP, len(entries)), BLOCK):
            of_block = [zero] * num_bins
            end = min(block + BLOCK, group + GROUP, len(entries))
            for entry, weight in zip(entries[block:end].tolist(), weights[block:end].astype(wide), strict=True):
                if 0 <= entry < num_bins:
                    of_block[entry] = of_block[entry] + weight
            of_group = [one + other for one, other in zip(of_group, of_block, strict=True)]
        result = [one + other for one, other in zip(result, of_group, strict=True)]
    return np.array(result, wide).astype(weights.dtype)


def check(place: Place, entries: Array, weights: Array, num_bins: int) -> Array:
    """The sum in its order to the bit, and the definition's bound."""
    found = counted(place, entries, weights, num_bins)
    assert_same_bits(found, in_order(entries, weights, num_bins))
    assert_within(found, oracle.bincount(entries, weights, num_bins))
    return found


# Around a step, a batch of steps, a block and a group.
SIZES = (1, 2, 31, 32, 33, 127, 128, 129, 160, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 31, GROUP - 1, GROUP, GROUP + 1)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sums_have_one_order(place: Place, index: Any, n: int, rng: np.random.Generator) -> None:
    check(place, rng.integers(0, 50, n).astype(index), normal(rng, (n,), np.float32), 50)


def test_several_groups(place: Place, rng: np.random.Generator) -> None:
    n = 2 * GROUP + BLOCK + 5
    check(place, rng.integers(0, 7, n), normal(rng, (n,), np.float32), 7)


# One bin, two, numbers of bins around a power of two and around a vector, and as many as there may be.
@pytest.mark.parametrize("num_bins", [1, 2, 3, 15, 16, 17, 1000, MOST_BINS - 1, MOST_BINS])
def test_conflicts(place: Place, num_bins: int, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    check(place, rng.integers(0, num_bins, 3000), normal(rng, (3000,), dtype), num_bins)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_pattern_of_a_step(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    # All alone, pairs of neighbours and of halves, all the same, and one bin beside entries that name none.
    lanes = np.arange(32)
    patterns = [lanes, lanes // 2, lanes % 16, lanes * 0, lanes[::-1] // 3, np.where(lanes % 2, 5, -1), lanes * 0 - 1]
    entries = np.concatenate(patterns)
    check(place, entries, normal(rng, entries.shape, dtype), 32)


def test_exact_on_the_lattice(place: Place, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    entries = rng.integers(-3, 44, 900)
    weights = integers(rng, (900,), dtype)
    expected = oracle.bincount(entries, weights, 40)
    assert_same_bits(counted(place, entries, weights, 40), expected.value.astype(dtype))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("num_bins", [3, MOST_BINS + 1])
def test_integers_wrap_around(place: Place, num_bins: int, dtype: Any, rng: np.random.Generator) -> None:
    limits = np.iinfo(dtype)
    weights = rng.integers(limits.min, limits.max, 5000, dtype, endpoint=True)
    entries = rng.integers(-1, 4, 5000)
    found = counted(place, entries, weights, num_bins)
    assert_same_bits(found, oracle.bincount_of_integers(entries, weights, num_bins))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_bad_entries_are_dropped(place: Place, index: Any, rng: np.random.Generator) -> None:
    limits = np.iinfo(index)
    bad = [-1, 40, limits.min, limits.max, *([2**32, 2**32 + 3, -(2**32)] if index == np.int64 else [])]
    entries = rng.integers(0, 40, 9000).astype(index)
    entries[::2] = rng.choice(bad, 4500).astype(index)
    weights = normal(rng, (9000,), np.float32)
    # Whatever stands beside them.
    weights[::2] = np.nan
    kept = np.where((entries >= 0) & (entries < 40), weights, np.float32(0))
    assert np.isfinite(check(place, entries, weights, 40)).all()
    assert_same_bits(counted(place, entries, weights, 40), counted(place, entries, kept, 40))


# Rows shorter than a step, of a block, of one more and of a group more; more rows than warps are at work at once.
@pytest.mark.parametrize(("rows", "n"), [(5, 1), (4000, 7), (300, 33), (3, BLOCK), (2, BLOCK + 1), (2, GROUP + 5)])
def test_every_row_has_the_bits_of_its_own_count(place: Place, rows: int, n: int, rng: np.random.Generator) -> None:
    entries = rng.integers(-1, 21, (rows, n)).astype(rng.choice([np.int32, np.int64]))
    weights = normal(rng, (rows, n), np.float32)

    def run(entries: Any, weights: Any, **options: Any) -> Any:
        return pybaracuda.bincount(entries, weights, 20, **options)

    (found,) = place.run(run, entries, weights, outputs=[((rows, 20), weights.dtype)])
    for row in {0, 1, rows // 2, rows - 1}:
        assert_same_bits(found[row], in_order(entries[row], weights[row], 20))
    for row in range(rows):
        assert_within(found[row], oracle.bincount(entries[row], weights[row], 20))


def test_rows_stand_along_the_last_axis(place: Place, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    entries = rng.integers(0, 6, (2, 3, 40))
    weights = normal(rng, (2, 3, 40), dtype)

    def run(entries: Any, weights: Any, **options: Any) -> Any:
        return pybaracuda.bincount(entries, weights, 6, **options)

    (found,) = place.run(run, entries, weights, outputs=[((2, 3, 6), weights.dtype)])
    for axes in np.ndindex(2, 3):
        assert_same_bits(found[axes], in_order(entries[axes], weights[axes], 6))


def test_no_rows_and_empty_rows(place: Place, dtype: np.dtype[Any]) -> None:
    def counted_rows(rows: int, n: int, bins: int) -> Array:
        def run(entries: Any, weights: Any, **options: Any) -> Any:
            return pybaracuda.bincount(entries, weights, bins, **options)

        given = np.zeros((rows, n), np.int64), np.ones((rows, n), dtype)
        return place.run(run, *given, outputs=[((rows, bins), np.dtype(dtype))])[0]

    assert counted_rows(0, 9, 3).shape == (0, 3)
    assert counted_rows(2, 9, 0).shape == (2, 0)
    assert_same_bits(counted_rows(3, 0, 4), np.zeros((3, 4), dtype))


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("n", [0, 1, 31, 33, BLOCK, BLOCK + 1, GROUP + 7])
@pytest.mark.parametrize("which", ["all inside", "beyond the bins", "the largest", "negative", "the least"])
def test_extent(place: Place, which: str, n: int, index: Any, rng: np.random.Generator) -> None:
    entries, limits = rng.integers(0, 40, n).astype(index), np.iinfo(index)
    odd = {"beyond the bins": 5000, "the largest": limits.max, "negative": -1, "the least": limits.min}
    if n and which in odd:
        entries[rng.integers(n)] = odd[which]
    weights = normal(rng, (n,), np.float32)

    def run(entries: Any, weights: Any, **options: Any) -> Any:
        return pybaracuda.bincount(entries, weights, 50, return_extent=True, **options)

    found, extent = place.run(run, entries, weights, outputs=[((50,), weights.dtype), ((1,), np.dtype(np.int64))])
    assert_same_bits(found, counted(place, entries, weights, 50))
    assert extent.tolist() == [oracle.extent(entries)]


def test_extent_of_no_bins(place: Place) -> None:
    def run(entries: Any, weights: Any, **options: Any) -> Any:
        return pybaracuda.bincount(entries, weights, 0, return_extent=True, **options)

    entries = np.arange(5000) % 77
    weights = np.ones(5000, np.float32)
    found, extent = place.run(run, entries, weights, outputs=[((0,), weights.dtype), ((1,), np.dtype(np.int64))])
    assert found.shape == (0,)
    assert extent.tolist() == [77]


def test_nothing_is_zero(place: Place, dtype: np.dtype[Any]) -> None:
    none, no_weights = np.zeros(0, np.int64), np.zeros(0, dtype)
    assert_same_bits(counted(place, none, no_weights, 5), np.zeros(5, dtype))
    assert counted(place, none, no_weights, 0).shape == (0,)
    assert counted(place, np.zeros(9, np.int64), np.ones(9, dtype), 0).shape == (0,)
    # A sum of negative zeros begins with a positive one.
    assert_same_bits(counted(place, np.zeros(9, np.int64), np.full(9, -0.0, dtype), 2), np.zeros(2, dtype))


def test_nan_and_infinities(place: Place, dtype: np.dtype[Any]) -> None:
    entries = np.array([0, 1, 1, 2, 3, 3, 4])
    weights = np.array([np.nan, np.inf, -np.inf, np.inf, -np.inf, 1, 2]).astype(dtype)
    found = counted(place, entries, weights, 6)
    nan = np.array([np.nan], np.float32).astype(dtype)
    assert_same_bits(found[:2], np.concatenate([nan, nan]))
    assert_same_bits(in_float64(found[2:]), np.array([np.inf, -np.inf, 2, 0]))


def test_16_bits_are_rounded_once(place: Place, rng: np.random.Generator) -> None:
    # Of so many ones float16 itself would stop at 2048.
    entries, weights = np.zeros(10_000, np.int64), np.ones(10_000, np.float16)
    assert_same_bits(counted(place, entries, weights, 1), np.array([10_000], np.float16))


def test_many_bins_are_segments(place: Place, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    entries = rng.integers(-1, MOST_BINS + 2, 9000)
    weights = normal(rng, (9000,), dtype)
    found = counted(place, entries, weights, MOST_BINS + 1)

    def run(rows: Any, ids: Any, **options: Any) -> Any:
        return pybaracuda.segment_sum(rows, ids, MOST_BINS + 1, **options)

    (expected,) = place.run(run, weights, entries, outputs=[((MOST_BINS + 1,), weights.dtype)])
    assert_same_bits(found, expected)


def test_gather_is_the_adjoint(place: Place, rng: np.random.Generator) -> None:
    entries = rng.integers(-2, 12, 500)
    weights, upstream = integers(rng, (500,), np.float64), integers(rng, (10,), np.float64)

    def gathered(rows: Any, ids: Any, **options: Any) -> Any:
        return pybaracuda.segment_gather(rows, ids, **options)

    (slopes,) = place.run(gathered, upstream, entries, outputs=[((500,), upstream.dtype)])
    assert (counted(place, entries, weights, 10) * upstream).sum() == (weights * slopes).sum()


@pytest.mark.skipif(not available("torch"), reason="no torch")
def test_torch_has_the_same_counts(rng: np.random.Generator) -> None:
    torch = importlib.import_module("torch")
    entries, weights = rng.integers(0, 30, 5000), integers(rng, (5000,), np.float32)
    theirs = torch.bincount(torch.from_numpy(entries), torch.from_numpy(weights), 30)
    assert_same_bits(pybaracuda.bincount(entries, weights, 30), theirs.numpy())
