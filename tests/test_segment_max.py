# SPDX-License-Identifier: Apache-2.0
"""unsorted_segment_max and its gradient: values are moved, so every comparison is to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import SegmentCase, any_bits, normal, segment_case
from place import Place
from tolerance import assert_same_bits

import pybaracuda
from verify.definitions import segment as oracle
from verify.dtypes import DTYPES, Array

IDS = pytest.mark.parametrize("ids_dtype", [np.int32, np.int64], ids=["ids32", "ids64"])
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def forward(place: Place, case: SegmentCase, input: Any = None, segment_ids: Any = None) -> Array:
    """The library's output; ``input`` and ``segment_ids`` replace the case's by equal arrays of another layout."""
    return place.run(
        pybaracuda.unsorted_segment_max,
        case.input if input is None else input,
        case.segment_ids if segment_ids is None else segment_ids,
        case.num_segments,
        outputs=[((case.num_segments, case.input.shape[1]), case.input.dtype)],
    )[0]


def backward(
    place: Place, case: SegmentCase, grad_output: Any = None, input: Any = None, segment_ids: Any = None
) -> Array:
    return place.run(
        pybaracuda.unsorted_segment_max_backward,
        case.grad_output if grad_output is None else grad_output,
        case.input if input is None else input,
        case.segment_ids if segment_ids is None else segment_ids,
        outputs=[(case.input.shape, case.input.dtype)],
    )[0]


def check(place: Place, case: SegmentCase) -> tuple[Array, Array]:
    """Both directions equal the oracle to the bit; answers them."""
    output, grad_input = forward(place, case), backward(place, case)
    assert_same_bits(output, oracle.unsorted_segment_max(case.input, case.segment_ids, case.num_segments))
    expected = oracle.unsorted_segment_max_backward(case.grad_output, case.input, case.segment_ids)
    assert_same_bits(grad_input, expected)
    return output, grad_input


@IDS
@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
def test_random_rows(place: Place, dtype: Any, rng: np.random.Generator, ids_dtype: Any, ties: bool) -> None:
    check(place, segment_case(rng, dtype, ids_dtype, ties=ties))


@IDS
def test_any_bits_are_moved(place: Place, dtype: Any, rng: np.random.Generator, ids_dtype: Any) -> None:
    case = segment_case(rng, dtype, ids_dtype, num_rows=80)
    # NaN payloads, infinities and subnormals as values and as gradients.
    check(
        place,
        case._replace(
            input=any_bits(rng, case.input.shape, dtype), grad_output=any_bits(rng, case.grad_output.shape, dtype)
        ),
    )


def rows_of(values: list[float], dtype: Any) -> SegmentCase:
    """One column whose rows all belong to segment 0, with a gradient of 2."""
    return SegmentCase(
        np.array(values).reshape(-1, 1).astype(dtype),
        np.zeros(len(values), np.int32),
        1,
        np.full((1, 1), 2, dtype),
    )


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "winner"),
    [
        ([1, 3, 3, 2], 1),
        ([0.0, -0.0], 0),
        ([-0.0, 0.0], 0),
        ([-1, -0.0, 0.0, -0.0], 1),
        ([-INF, -INF], 0),
        ([INF, INF], 0),
        ([1, NAN, 5, NAN], 1),
        ([NAN, INF], 0),
        ([INF, NAN], 1),
        ([-INF, NAN], 1),
        ([-1e-41, -2e-41], 0),
    ],
)
def test_first_row_wins(place: Place, dtype: Any, values: list[float], winner: int) -> None:
    case = rows_of(values, dtype)
    output, grad_input = check(place, case)
    assert_same_bits(output[0], case.input[winner])
    expected = np.zeros_like(case.input)
    expected[winner] = 2
    assert_same_bits(grad_input, expected)


def test_first_nan_keeps_its_payload(place: Place, dtype: Any) -> None:
    case = rows_of([1, 2, 3, 4], dtype)
    nans = any_bits(np.random.default_rng(0), (2, 1), dtype)  # begins with two NaNs of different payloads
    values = np.concatenate([case.input[:1], nans, case.input[3:]])
    output, grad_input = check(place, case._replace(input=values))
    assert_same_bits(output, nans[:1])
    assert np.argmax(grad_input != 0) == 1


@IDS
def test_ids_out_of_range_are_dropped(place: Place, dtype: Any, rng: np.random.Generator, ids_dtype: Any) -> None:
    case = segment_case(rng, dtype, ids_dtype)
    ids = case.segment_ids.copy()
    bad = [-1, case.num_segments, INT_MIN, INT_MAX, case.num_segments + 1, -2]
    if ids_dtype == np.int64:
        # Ids that become valid ones if their upper half is lost.
        bad += [2**32, -(2**32) + 1, 2**63 - 1, -(2**63), 2**32 + 3]
    where = rng.choice(len(ids), 3 * len(bad), replace=False)
    ids[where] = np.array(3 * bad, ids_dtype)
    input = case.input.copy()
    input[where] = INF  # they would win everywhere
    output, grad_input = check(place, case._replace(segment_ids=ids, input=input))
    assert not (output == INF).any()
    assert_same_bits(grad_input[where], np.zeros_like(grad_input[where]))


def test_all_ids_out_of_range(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = segment_case(rng, dtype)
    output, grad_input = check(place, case._replace(segment_ids=np.full_like(case.segment_ids, -1)))
    assert_same_bits(output, np.full_like(output, -INF))
    assert_same_bits(grad_input, np.zeros_like(grad_input))


@pytest.mark.parametrize(
    ("num_rows", "width", "num_segments"),
    [(0, 3, 4), (0, 3, 0), (5, 0, 4), (5, 3, 0), (0, 0, 0)],
    ids=["no-rows", "no-rows-no-segments", "no-columns", "no-segments", "nothing"],
)
@IDS
def test_empty_problems_are_still_written(
    place: Place, dtype: Any, ids_dtype: Any, num_rows: int, width: int, num_segments: int
) -> None:
    case = SegmentCase(
        np.ones((num_rows, width), dtype),
        np.zeros(num_rows, ids_dtype),
        num_segments,
        np.ones((num_segments, width), dtype),
    )
    assert_same_bits(forward(place, case), np.full((num_segments, width), -INF, dtype))
    assert_same_bits(backward(place, case), np.zeros((num_rows, width), dtype))


@pytest.mark.parametrize(("num_rows", "width", "num_segments"), [(1, 1, 1), (1, 7, 3), (9, 1, 1), (9, 1, 4)])
def test_size_one_dimensions(
    place: Place, dtype: Any, rng: np.random.Generator, num_rows: int, width: int, num_segments: int
) -> None:
    check(place, segment_case(rng, dtype, np.int32, num_rows, width, num_segments))


@pytest.mark.parametrize("length", [255, 256, 257, 513, 5000])
def test_long_segment(place: Place, dtype: Any, rng: np.random.Generator, length: int) -> None:
    # Chunks are 256 rows long. Few distinct values, so that the winner has equals in later chunks.
    case = segment_case(rng, dtype, np.int32, length, 3, 2)
    check(place, case._replace(segment_ids=np.zeros(length, np.int32)))
    # The winner in the last row of all.
    values = np.zeros((length, 3), dtype)
    values[-1] = 1
    _, grad_input = check(place, case._replace(input=values, segment_ids=np.ones(length, np.int32)))
    assert_same_bits(grad_input[-1], case.grad_output[1])


def test_segments_of_very_different_lengths(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = segment_case(rng, dtype, np.int32, 3000, 2, 300)
    ids = np.minimum(rng.zipf(1.3, 3000) - 1, 299).astype(np.int32)
    check(place, case._replace(segment_ids=ids))


@pytest.mark.parametrize("width", [1, 3, 4, 17, 64, 65])
def test_widths(place: Place, dtype: Any, rng: np.random.Generator, width: int) -> None:
    check(place, segment_case(rng, dtype, np.int64, 70, width, 8))


def test_more_segments_than_rows(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    check(place, segment_case(rng, dtype, np.int32, 20, 2, 70_000))


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = segment_case(rng, dtype)
    output, grad_input = forward(place, case), backward(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        ids = layout(case.segment_ids)
        assert_same_bits(forward(place, case, layout(case.input), ids), output)
        again = backward(place, case, layout(case.grad_output), layout(case.input), ids)
        assert_same_bits(again, grad_input)


def test_ids_of_both_widths_agree(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = segment_case(rng, dtype)
    wide = case._replace(segment_ids=case.segment_ids.astype(np.int64))
    assert_same_bits(forward(place, wide), forward(place, case))
    assert_same_bits(backward(place, wide), backward(place, case))


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    ids=st.lists(st.one_of(st.integers(-2, 7), st.sampled_from([INT_MIN, INT_MAX])), max_size=40),
    ids_dtype=st.sampled_from([np.int32, np.int64]),
    width=st.integers(0, 6),
    num_segments=st.integers(0, 6),
    ties=st.booleans(),
)
def test_any_ids(
    seed: int, name: str, ids: list[int], ids_dtype: Any, width: int, num_segments: int, ties: bool
) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    shape = (len(ids), width)
    values = rng.choice([-1.0, -0.0, 0.0, 1.0, NAN], shape).astype(dtype) if ties else any_bits(rng, shape, dtype)
    gradient = normal(rng, (num_segments, width), dtype)
    check(Place(), SegmentCase(values, np.array(ids, ids_dtype), num_segments, gradient))
