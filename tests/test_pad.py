# SPDX-License-Identifier: Apache-2.0
"""Constant padding and its gradient: moves, so every comparison is to the bit; frameworks are in test_peers.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import any_bits, integers, normal
from oracle import pad as oracle
from oracle.sums import Array
from place import DTYPES, Place
from tolerance import assert_same_bits, bits, rounded

import pybaracuda

# (shape, pad_low, pad_high)
PROBLEMS = {
    "rank1": ((7,), (2,), (3,)),
    "rank2": ((3, 5), (0, 1), (2, 0)),
    "rank3": ((2, 3, 4), (1, 0, 2), (0, 3, 1)),
    "image": ((2, 3, 5, 7), (0, 0, 1, 2), (0, 0, 3, 1)),
    "volume": ((1, 2, 3, 4, 5), (0, 0, 1, 1, 1), (0, 0, 1, 1, 1)),
    "rank6": ((2, 1, 3, 2, 1, 2), (1, 0, 0, 1, 1, 0), (0, 1, 0, 0, 1, 2)),
    "rank8": ((2, 1, 2, 3, 1, 2, 1, 2), (1, 0, 0, 1, 0, 0, 2, 0), (0, 1, 1, 0, 0, 0, 0, 1)),
    "no-pad": ((3, 4), (0, 0), (0, 0)),
    "wide": ((2, 3), (9, 20), (17, 5)),
    "size-one": ((1, 1, 1), (1, 2, 0), (0, 1, 3)),
    "crop": ((5, 6), (-1, -2), (-2, 0)),
    "crop-and-pad": ((5, 6), (-2, 3), (4, -3)),
    "crop-all-then-pad": ((3, 4), (-3, 1), (2, 0)),
    "crop-all": ((3, 4), (-1, 0), (-2, 0)),
    "rows-of-16-bytes": ((5, 16), (1, 4), (1, 4)),
    "rows-of-17": ((4, 17), (1, 3), (2, 5)),
    "long-row": ((1030,), (5,), (9,)),
}
PROBLEM = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
Problem = tuple[Sequence[int], Sequence[int], Sequence[int]]


def padded_shape(problem: Problem) -> tuple[int, ...]:
    return tuple(n + low + high for n, low, high in zip(*problem, strict=True))


def forward(place: Place, input: Any, problem: Problem, dtype: Any, **options: Any) -> Array:
    _, low, high = problem
    outputs = [(padded_shape(problem), dtype)]
    return place.run(pybaracuda.pad, input, low, high, outputs=outputs, **options)[0]


def backward(place: Place, grad_output: Any, problem: Problem, dtype: Any) -> Array:
    shape, low, high = problem
    return place.run(pybaracuda.pad_backward, grad_output, low, high, outputs=[(tuple(shape), dtype)])[0]


@PROBLEM
def test_any_bits_are_moved(place: Place, dtype: Any, rng: np.random.Generator, problem: Problem) -> None:
    _, low, high = problem
    values = any_bits(rng, problem[0], dtype)
    # The oracle moves the patterns as integers, so that no NaN is touched on the way.
    assert_same_bits(bits(forward(place, values, problem, dtype)), oracle.pad_constant(bits(values), low, high))
    gradient = any_bits(rng, padded_shape(problem), dtype)
    expected = oracle.pad_constant_backward(bits(gradient), low, high)
    assert_same_bits(bits(backward(place, gradient, problem, dtype)), expected)


@PROBLEM
def test_adjoint_identity_is_exact(place: Place, dtype: Any, rng: np.random.Generator, problem: Problem) -> None:
    values = integers(rng, problem[0], dtype).astype(dtype)
    gradient = integers(rng, padded_shape(problem), dtype)
    output = forward(place, values, problem, dtype).astype(np.float64)
    grad_input = backward(place, gradient, problem, dtype).astype(np.float64)
    assert np.sum(output * gradient.astype(np.float64)) == np.sum(values.astype(np.float64) * grad_input)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -2.0, 0.1, 1e-41, float("inf"), -float("inf"), float("nan")])
def test_value_is_rounded_once(place: Place, dtype: Any, rng: np.random.Generator, value: float) -> None:
    problem = PROBLEMS["crop-and-pad"]
    _, low, high = problem
    values = any_bits(rng, problem[0], dtype)
    pattern = bits(rounded(np.array([value]), dtype))[0]
    actual = forward(place, values, problem, dtype, value=value)
    assert_same_bits(bits(actual), oracle.pad_constant(bits(values), low, high, pattern))


def test_ones_count_the_input(place: Place, dtype: Any) -> None:
    for problem in PROBLEMS.values():
        gradient = backward(place, np.ones(padded_shape(problem), dtype), problem, dtype)
        kept = [n + min(low, 0) + min(high, 0) for n, low, high in zip(*problem, strict=True)]
        assert gradient.astype(np.float64).sum() == np.prod(kept)


EMPTY = {
    "empty-input": ((0, 3), (2, 1), (1, 0)),
    "empty-middle": ((2, 0, 3), (0, 1, 0), (0, 1, 0)),
    "empty-both": ((0, 3), (0, 1), (0, 0)),
    "empty-output": ((3, 4), (0, -4), (0, 0)),
    "all-empty": ((0, 0), (0, 0), (0, 0)),
}


@pytest.mark.parametrize("problem", EMPTY.values(), ids=EMPTY)
def test_empty_problems_write_the_value(place: Place, dtype: Any, problem: Problem) -> None:
    shape, low, high = problem
    values, gradient = np.ones(shape, dtype), np.ones(padded_shape(problem), dtype)
    actual = forward(place, values, problem, dtype, value=2.0)
    assert_same_bits(actual, oracle.pad_constant(values, low, high, 2.0))
    assert_same_bits(backward(place, gradient, problem, dtype), oracle.pad_constant_backward(gradient, low, high))


@pytest.mark.parametrize(("low", "high"), [((-4, 0), (0, 0)), ((0, -3), (0, -2)), ((-4, 0), (5, 0))])
def test_cropping_below_nothing_is_refused(place: Place, dtype: Any, low: Any, high: Any) -> None:
    values = place.array(np.ones((3, 4), dtype))
    with pytest.raises(pybaracuda.InvalidProblemError):
        pybaracuda.pad(values, low, high)


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    problem = PROBLEMS["image"]
    values, gradient = normal(rng, problem[0], dtype), normal(rng, padded_shape(problem), dtype)
    output, grad_input = forward(place, values, problem, dtype), backward(place, gradient, problem, dtype)
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(forward(place, layout(values), problem, dtype), output)
        assert_same_bits(backward(place, layout(gradient), problem, dtype), grad_input)


def test_shared_gradient(place: Place, dtype: Any) -> None:
    # The gradient of a sum: one element with strides of 0.
    problem = PROBLEMS["image"]
    gradient = np.broadcast_to(np.ones((1,) * 4, dtype), padded_shape(problem))
    assert_same_bits(backward(place, gradient, problem, dtype), np.ones(problem[0], dtype))


def test_reversed_input(dtype: Any, rng: np.random.Generator) -> None:
    # Negative strides, which only NumPy has.
    problem = PROBLEMS["image"]
    values = normal(rng, problem[0], dtype)
    backwards = np.ascontiguousarray(values[:, :, ::-1, ::-1])[:, :, ::-1, ::-1]
    assert_same_bits(forward(Place(), backwards, problem, dtype), forward(Place(), values, problem, dtype))


def test_large_batch(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    # More rows than a launch grid has in its second and third dimension.
    problem = ((65_537, 2), (0, 1), (1, 0))
    _, low, high = problem
    values, gradient = normal(rng, problem[0], dtype), normal(rng, padded_shape(problem), dtype)
    assert_same_bits(forward(place, values, problem, dtype), oracle.pad_constant(values, low, high))
    assert_same_bits(backward(place, gradient, problem, dtype), oracle.pad_constant_backward(gradient, low, high))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "symmetric"])
def test_modes_to_come_are_named(place: Place, dtype: Any, mode: str) -> None:
    with pytest.raises(pybaracuda.UnsupportedError, match=mode):
        pybaracuda.pad(place.array(np.ones((3, 4), dtype)), (1, 1), (1, 1), mode=mode)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    rank = draw(st.integers(1, 8))
    shape = draw(st.lists(st.integers(0, 5 if rank < 4 else 2), min_size=rank, max_size=rank))
    low = [draw(st.integers(-extent, 3 if rank < 4 else 1)) for extent in shape]
    high = [
        draw(st.integers(-(extent + min(before, 0)), 3 if rank < 4 else 1))
        for extent, before in zip(shape, low, strict=True)
    ]
    return shape, low, high


@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(list(DTYPES)), problem=problems())
def test_any_problem(seed: int, name: str, problem: Problem) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    _, low, high = problem
    values, gradient = any_bits(rng, problem[0], dtype), any_bits(rng, padded_shape(problem), dtype)
    assert_same_bits(bits(forward(Place(), values, problem, dtype)), oracle.pad_constant(bits(values), low, high))
    assert_same_bits(
        bits(backward(Place(), gradient, problem, dtype)), oracle.pad_constant_backward(bits(gradient), low, high)
    )
