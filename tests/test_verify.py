# SPDX-License-Identifier: Apache-2.0
"""What verifies the library is verified here: the judge, bounds, canaries, and segments against plain loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from verify.bounds import PARTIAL_SUM, Roundings, Sum, additions, bound, exact
from verify.definitions import grid_sample, roi_align, segment
from verify.definitions.sums import Accumulator
from verify.dtypes import DTYPES, UNIT_ROUNDOFF, Array, bits
from verify.judge import compare, foreign_nans
from verify.memory.arena import CANARY, Apart, Arena
from verify.memory.arrays import NumpyArrays
from verify.memory.blocks import POISONS, memory_for
from verify.memory.tensors import HostTensors, same_bits

NAN, INF = float("nan"), float("inf")


def sum_of(terms: Any) -> Sum:
    """One sum of these terms, with a rounding for each addition."""
    total = Accumulator(1, 1)
    total.add(np.zeros(len(terms), np.int64), np.array(terms, np.float64)[:, None])
    return total.result(Roundings(1, 0))


# ---- the judge


def test_a_result_within_its_bound_is_right(dtype: np.dtype[Any]) -> None:
    expected = sum_of([3.0, -1.0, 0.25])
    found = compare(np.array([[2.25]], dtype), expected)
    assert (found.largest_error, found.of_bound, found.relative_error) == (0, 0, 0)
    allowed = float(expected.bound(dtype)[0, 0])
    off = np.array([[2.25 + 2 * allowed + 4 * UNIT_ROUNDOFF[dtype.name]]], dtype)
    assert compare(off, expected).wrong.all()
    assert compare(off, expected).of_bound > 1


@pytest.mark.parametrize(
    ("found", "value", "right"),
    [
        (INF, INF, True),
        (-INF, INF, False),
        (NAN, NAN, True),
        (1.0, NAN, False),
        (NAN, 1.0, False),
        (3e38, INF, False),
        (INF, 1.0, False),
        (-0.0, 0.0, True),
    ],
)
def test_what_is_not_finite_must_be_so(found: float, value: float, right: bool) -> None:
    for expected in (exact([value]), sum_of([value]).map(np.ravel)):
        verdict = compare(np.array([found], np.float32), expected)
        assert bool(verdict.wrong.any()) is not right
        assert (verdict.of_bound <= 1) is right


def test_an_exact_value_is_rounded_once(dtype: np.dtype[Any]) -> None:
    value = 1 + 0.75 * 2 * UNIT_ROUNDOFF[dtype.name] if dtype.itemsize < 8 else 1.25
    nearest = np.array([value], np.float64).astype(dtype)
    assert compare(nearest, exact([value])).of_bound == 0
    beside = (bits(nearest) + 1).view(dtype)
    assert compare(beside, exact([value])).of_bound == INF


def test_foreign_nans_are_found() -> None:
    patterns = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000, 0x7FA00000, 0x3F800000], np.uint32)
    assert foreign_nans(patterns.view(np.float32)).tolist() == [False, True, True, True, False]


# ---- bounds


def test_additions_of_a_sum_in_parts() -> None:
    last = 3 * PARTIAL_SUM
    assert additions([0, 1, PARTIAL_SUM, PARTIAL_SUM + 1, last]).tolist() == [0, 2, 257, 258, 259]


@pytest.mark.parametrize("count", [1, 7, PARTIAL_SUM, 1000])
def test_sums_in_any_order_keep_their_bound(rng: np.random.Generator, count: int) -> None:
    """Of float32 terms added one after the other, the longest chain that there is, and in pairs."""
    terms = rng.standard_normal(count).astype(np.float32)
    expected = sum_of(terms).map(np.ravel)
    one_by_one = np.add.accumulate(terms)[-1:]
    for found in (one_by_one, terms.sum(keepdims=True), np.add.accumulate(np.sort(terms))[-1:]):
        assert compare(found, expected).of_bound <= 1


def test_a_definitions_own_roundings_count() -> None:
    short, long = bound("float64", 2, 1.0), bound("float64", 2, 1.0, own=1000)
    assert long > 250 * short
    assert bound("float32", 2, 1.0, own=1000) < 1.001 * bound("float32", 2, 1.0)


# ---- memory


def test_what_is_poisoned_shows(dtype: np.dtype[Any]) -> None:
    for byte in POISONS:
        array = NumpyArrays().poisoned((2, 3), dtype, byte)
        assert (array.shape, array.dtype) == ((2, 3), dtype)
        assert array.tobytes() == bytes([byte]) * array.nbytes
    assert np.isnan(NumpyArrays().poisoned((4,), dtype, POISONS[0])).all()


@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
def test_canaries_see_every_foreign_byte(backend: str, apart: bool) -> None:
    sizes = {"one": 5, "none": 0, "two": 64}
    memory = memory_for(backend, 4096)
    arena = Apart(backend, sizes) if apart else Arena(memory, sizes, {"two": 8})
    arena.put("one", np.arange(5, dtype=np.uint8))
    arena.fill("two", 0xA5)
    arena.write()
    image = arena.read()
    assert arena.changed_regions(image) == set()
    assert arena.part(image, "one").tolist() == [0, 1, 2, 3, 4]
    arena.part(image, "two")[-1] ^= 1
    assert arena.changed_regions(image) == {"two"}
    (beyond,) = np.nonzero(arena.image == CANARY)
    for at in (beyond[0], beyond[-1]):
        broken = arena.read()
        broken[at] ^= 1
        assert arena.changed_regions(broken) == {"outside"}
    if not apart:
        assert arena.address("two") % 256 == 8


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 4, 5)], ids=str)
def test_tensors_hold_what_was_put(dtype: np.dtype[Any], rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    tensors, values = HostTensors(), np.asarray(rng.standard_normal(shape)).astype(dtype)
    tensor = tensors.put(values)
    assert same_bits(tensors.get(tensor), values)
    assert tensor.pointer % 64 == 0
    tensors.fill(tensor, 0xFF)
    assert tensors.same(tensor, values) is (values.size == 0)


# ---- definitions of segments, which work on all rows at once, against a loop over segments


def special_rows(rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of ordinary numbers, ties, zeros of both signs, infinities and NaNs, a column each; some have no segment."""
    count = 60
    columns = [
        rng.standard_normal(count),
        rng.choice([-1.0, 0.0, 1.0], count),
        rng.choice([-0.0, 0.0], count),
        np.where(rng.random(count) < 0.1, 0.0, rng.standard_normal(count)),
        np.where(rng.random(count) < 0.2, INF, rng.standard_normal(count)),
        rng.choice([-INF, -INF, 2.0], count),
        np.where(rng.random(count) < 0.1, NAN, rng.standard_normal(count)),
        rng.choice([INF, -INF, NAN, 0.0], count),
    ]
    return np.stack(columns, axis=1), rng.choice([-1, 0, 1, 3, 4, 5], count)


def one_by_one(definition: Callable[..., Any], rows: Array, ids: Array, empty: float) -> Array:
    """A definition of one segment's rows for each of five segments."""
    found = [definition(rows[ids == each]) if (ids == each).any() else [empty] * rows.shape[1] for each in range(5)]
    return np.array(found)


REDUCED: dict[str, tuple[Callable[[Array], Array], float]] = {
    "sum": (lambda rows: np.sum(rows, axis=0), 0.0),
    "mean": (lambda rows: np.mean(rows, axis=0), 0.0),
    "prod": (lambda rows: np.prod(rows, axis=0), 1.0),
    "logsumexp": (lambda rows: np.logaddexp.reduce(rows, axis=0), -INF),
}


@pytest.mark.parametrize("name", list(REDUCED))
def test_reductions_are_those_of_each_segment(rng: np.random.Generator, name: str) -> None:
    rows, ids = special_rows(rng)
    found = getattr(segment, f"segment_{name}")(rows, ids, 5)
    with np.errstate(invalid="ignore"):
        wanted = one_by_one(REDUCED[name][0], rows, ids, REDUCED[name][1])
    np.testing.assert_allclose(found.value, wanted, rtol=1e-12, atol=1e-12)
    counts = np.bincount(ids[(ids >= 0) & (ids < 5)], minlength=5)
    assert (found.terms == counts[:, None]).all()
    assert np.isfinite(found.roundings).all()


@pytest.mark.parametrize("smallest", [False, True], ids=["max", "min"])
def test_extremes_are_those_of_each_segment(rng: np.random.Generator, smallest: bool) -> None:
    rows, ids = special_rows(rng)
    arg = segment.unsorted_segment_argmax(rows, ids, 5, smallest)
    even = segment.segment_even_backward(np.ones((5, rows.shape[1])), rows, ids, smallest).value
    for number in range(5):
        (mine,) = np.nonzero(ids == number)
        for column in range(rows.shape[1]):
            values = [float(value) for value in rows[mine, column]]
            if not values:
                assert arg[number, column] == -1
                continue
            nans = [value != value for value in values]
            extreme = (min if smallest else max)(values)
            holders = nans if any(nans) else [value == extreme for value in values]
            assert arg[number, column] == mine[holders.index(True)]
            shares = [1 / sum(holders) if holds else 0.0 for holds in holders]
            assert even[mine, column].tolist() == shares
    assert not even[(ids < 0) | (ids >= 5)].any()


def test_softmax_is_each_segments(rng: np.random.Generator) -> None:
    rows, ids = special_rows(rng)
    rows = rows[:, :4]
    found = segment.segment_softmax(rows, ids, 5)
    for number in range(5):
        terms = np.exp(rows[ids == number])
        np.testing.assert_allclose(found.value[ids == number], terms / terms.sum(axis=0), rtol=1e-12)
    assert not found.value[(ids < 0) | (ids >= 5)].any()
    # An infinity has all of its segment.
    lone = segment.segment_softmax(np.array([[1.0], [INF], [2.0]]), [0, 0, 0], 1)
    assert lone.value.ravel().tolist() == [0, 1, 0]


def test_gradients_of_products_leave_their_row_out(rng: np.random.Generator) -> None:
    rows, ids = special_rows(rng)
    gradient = rng.standard_normal((5, rows.shape[1]))
    found = segment.segment_prod_backward(gradient, rows, ids)
    wanted = np.zeros(rows.shape)
    with np.errstate(invalid="ignore"):
        for row, number in enumerate(ids):
            if 0 <= number < 5:
                others = (ids == number) & (np.arange(len(ids)) != row)
                wanted[row] = gradient[number] * np.prod(rows[others], axis=0)
    np.testing.assert_allclose(found.value, wanted, rtol=1e-12, atol=1e-12)


def test_other_gradients_are_those_of_each_segment(rng: np.random.Generator) -> None:
    rows, ids = special_rows(rng)
    rows = rows[:, :4]
    gradient, per_row = rng.standard_normal((5, 4)), rng.standard_normal(rows.shape)
    sums, shares = segment.segment_logsumexp(rows, ids, 5).value, segment.segment_softmax(rows, ids, 5).value
    mean = segment.segment_mean_backward(gradient, ids).value
    logsumexp = segment.segment_logsumexp_backward(gradient, rows, sums, ids).value
    softmax = segment.segment_softmax_backward(per_row, shares, ids, 5).value
    gathered = segment.segment_gather(gradient, ids)
    for row, number in enumerate(ids):
        if not 0 <= number < 5:
            assert not any(each[row].any() for each in (mean, logsumexp, softmax, gathered))
            continue
        mine = ids == number
        np.testing.assert_array_equal(gathered[row], gradient[number])
        np.testing.assert_allclose(mean[row], gradient[number] / mine.sum(), rtol=1e-15)
        np.testing.assert_allclose(logsumexp[row], gradient[number] * shares[row], rtol=1e-12)
        inner = (shares[mine] * per_row[mine]).sum(axis=0)
        np.testing.assert_allclose(softmax[row], shares[row] * (per_row[row] - inner), rtol=1e-12, atol=1e-14)


# ---- what operators read


def test_pixels_read_are_those_whose_gradient_can_be_other_than_zero(rng: np.random.Generator) -> None:
    grid = rng.uniform(-1.2, 1.2, (2, 5, 6, 2))
    reached = grid_sample.grid_sample_2d_backward_input(np.ones((2, 1, 5, 6)), grid, (9, 7)).terms > 0
    assert grid_sample.pixels_read(grid, (9, 7)) == reached.sum()
    corners = rng.uniform(-2, 9, (6, 4))
    boxes = np.concatenate([rng.integers(0, 2, (6, 1)), corners], axis=1)
    reached = roi_align.roi_align_backward(np.ones((6, 1, 2, 3)), boxes, (2, 1, 8, 9), aligned=True).terms > 0
    assert roi_align.pixels_read(boxes, (2, 1, 8, 9), (2, 3), aligned=True) == reached.sum()


def test_every_dtype_has_a_bound() -> None:
    assert {dtype.name for dtype in DTYPES.values()} == set(UNIT_ROUNDOFF)
