# SPDX-License-Identifier: Apache-2.0
"""Padding and its gradient in every mode: moves are compared to the bit, sums exactly on integers.

Frameworks are in test_peers.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from large_problems import PIECE, assert_equal, few_and_large, poisoned, wound
from lattice import any_bits, integers, normal
from pad_gradients import assert_pad_gradient
from place import Place
from tolerance import assert_exact, assert_same_bits

import pybaracuda
from verify.definitions import pad as oracle
from verify.dtypes import DTYPES, Array, bits, rounded

MODE = pytest.mark.parametrize("mode", oracle.MODES)
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
    "crop-at-one-end-pad-at-the-other": ((9, 8), (-4, 6), (11, -5)),
    "maximal": ((5, 6), (4, 5), (4, 5)),
    "one-more-than-maximal": ((5, 6), (5, 6), (5, 6)),
    "pairs": ((2, 2), (3, 0), (1, 2)),
    "small-planes": ((90, 7, 7), (0, 1, 1), (0, 1, 1)),
    "small-planes-of-3-axes": ((70, 3, 4, 5), (0, 1, 0, 2), (0, 2, 1, 0)),
    "outer-axes-alone": ((6, 3, 40), (2, 1, 0), (1, 1, 0)),
    "rows-of-16-bytes": ((5, 16), (1, 4), (1, 4)),
    "rows-of-17": ((4, 17), (1, 3), (2, 5)),
    "long-row": ((1030,), (5,), (9,)),
}
PROBLEM = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
Problem = tuple[Sequence[int], Sequence[int], Sequence[int]]


def padded_shape(problem: Problem) -> tuple[int, ...]:
    return tuple(n + low + high for n, low, high in zip(*problem, strict=True))


def forward(place: Place, input: Any, problem: Problem, dtype: Any, mode: str = "constant", **options: Any) -> Array:
    _, low, high = problem
    outputs = [(padded_shape(problem), dtype)]
    return place.run(pybaracuda.pad, input, low, high, mode, outputs=outputs, **options)[0]


def backward(place: Place, grad_output: Any, problem: Problem, dtype: Any, mode: str = "constant") -> Array:
    shape, low, high = problem
    return place.run(pybaracuda.pad_backward, grad_output, low, high, mode, outputs=[(tuple(shape), dtype)])[0]


@MODE
@PROBLEM
def test_any_bits_are_moved(place: Place, dtype: Any, rng: np.random.Generator, problem: Problem, mode: str) -> None:
    _, low, high = problem
    values = any_bits(rng, problem[0], dtype)
    # The oracle moves the patterns as integers, so that no NaN is touched on the way.
    assert_same_bits(bits(forward(place, values, problem, dtype, mode)), oracle.pad(bits(values), low, high, mode))


@MODE
@PROBLEM
def test_gradient_of_random_data(
    place: Place, dtype: Any, rng: np.random.Generator, problem: Problem, mode: str
) -> None:
    _, low, high = problem
    gradient = normal(rng, padded_shape(problem), dtype)
    assert_pad_gradient(backward(place, gradient, problem, dtype, mode), gradient, low, high, mode)


@MODE
@PROBLEM
def test_gradient_of_integers_is_exact(
    place: Place, dtype: Any, rng: np.random.Generator, problem: Problem, mode: str
) -> None:
    _, low, high = problem
    gradient = integers(rng, padded_shape(problem), dtype, 1)
    # bf16 holds every integer up to 256; these sums of -1, 0 and 1 stay below.
    actual = backward(place, gradient, problem, dtype, mode)
    expected = oracle.pad_backward(gradient, low, high, mode)
    assert np.abs(expected.value).max(initial=0) <= 256
    np.testing.assert_array_equal(actual.astype(np.float64), expected.value)


@MODE
@pytest.mark.parametrize("name", ["image", "wide", "crop-and-pad", "small-planes", "one-more-than-maximal"])
def test_bad_data_passes_through(place: Place, dtype: Any, rng: np.random.Generator, name: str, mode: str) -> None:
    problem = PROBLEMS[name]
    _, low, high = problem
    gradient = normal(rng, padded_shape(problem), dtype)
    patterns = any_bits(rng, gradient.shape, dtype)
    special = rng.random(gradient.shape) < 0.1
    # Finite numbers so large that f32 sums overflow and float64's do not are not meant here.
    with np.errstate(invalid="ignore"):
        special &= ~np.isfinite(patterns) | (np.abs(patterns.astype(np.float64)) < 1)
    gradient[special] = patterns[special]
    with np.errstate(invalid="ignore"):
        assert_pad_gradient(backward(place, gradient, problem, dtype, mode), gradient, low, high, mode)


def test_one_pad_of_any_integer_type_is_for_every_axis() -> None:
    values = np.arange(6).reshape(2, 3)
    expected = oracle.pad(values, (1, 1), (2, 2), "reflect")
    for low, high in ((1, 2), (np.int64(1), np.uint8(2)), (True, np.array(2))):
        assert (pybaracuda.pad(values, low, high, "reflect") == expected).all()


@MODE
@PROBLEM
def test_adjoint_identity_is_exact(
    place: Place, dtype: Any, rng: np.random.Generator, problem: Problem, mode: str
) -> None:
    values = integers(rng, problem[0], dtype, 1)
    gradient = integers(rng, padded_shape(problem), dtype, 1)
    output = forward(place, values, problem, dtype, mode).astype(np.float64)
    grad_input = backward(place, gradient, problem, dtype, mode).astype(np.float64)
    assert np.sum(output * gradient.astype(np.float64)) == np.sum(values.astype(np.float64) * grad_input)


@MODE
def test_ones_count_the_places(place: Place, dtype: Any, mode: str) -> None:
    for problem in PROBLEMS.values():
        ones = np.ones(padded_shape(problem), np.float32)
        gradient = backward(place, ones.astype(dtype), problem, dtype, mode)
        assert_exact(gradient, oracle.pad_backward(ones, *problem[1:], mode))
        kept = [n + min(low, 0) + min(high, 0) for n, low, high in zip(*problem, strict=True)]
        if dtype.itemsize > 2:
            assert gradient.astype(np.float64).sum() == (np.prod(kept) if mode == "constant" else ones.size)


@pytest.mark.parametrize("mode", oracle.MODES[1:])
@pytest.mark.parametrize("terms", [255, 256, 257, 511, 512, 513])
def test_long_lists_are_cut_every_256_terms(place: Place, dtype: Any, terms: int, mode: str) -> None:
    # The first term outweighs the others: an uncut sum would lose them one by one.
    unit = 2.0**-24 if dtype.itemsize < 8 else 2.0**-53
    gradient = np.full((1, terms), unit, np.float64)
    gradient[0, 0] = 1
    if dtype == DTYPES["f16"]:
        gradient[0, 1:] = 2.0**-24
    problem = ((1, 1), (0, terms // 3), (0, terms - 1 - terms // 3))
    compute = np.float64 if dtype.itemsize == 8 else np.float32
    partials = [np.cumsum(chunk, dtype=compute)[-1] for chunk in np.split(gradient[0], range(256, terms, 256))]
    expected = np.cumsum(np.array(partials, compute), dtype=compute)[-1]
    actual = backward(place, gradient.astype(dtype), problem, dtype, mode)
    assert_same_bits(actual, rounded(np.array([[expected]], np.float64), dtype))


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -2.0, 0.1, 1e-41, float("inf"), -float("inf"), float("nan")])
def test_value_is_rounded_once(place: Place, dtype: Any, rng: np.random.Generator, value: float) -> None:
    problem = PROBLEMS["crop-and-pad"]
    _, low, high = problem
    values = any_bits(rng, problem[0], dtype)
    pattern = bits(rounded(np.array([value]), dtype))[0]
    actual = forward(place, values, problem, dtype, value=value)
    assert_same_bits(bits(actual), oracle.pad(bits(values), low, high, value=pattern))


EMPTY = {
    "empty-input": ((0, 3), (2, 1), (1, 0)),
    "empty-middle": ((2, 0, 3), (0, 1, 0), (0, 1, 0)),
    "empty-both": ((0, 3), (0, 1), (0, 0)),
    "empty-output": ((3, 4), (0, -4), (0, 0)),
    "all-empty": ((0, 0), (0, 0), (0, 0)),
    "crop-all-then-pad": ((3, 4), (-3, 1), (2, 0)),
    "crop-all": ((3, 4), (-1, 0), (-2, 0)),
}


@pytest.mark.parametrize("problem", EMPTY.values(), ids=EMPTY)
def test_empty_problems_write_the_value(place: Place, dtype: Any, problem: Problem) -> None:
    shape, low, high = problem
    values, gradient = np.ones(shape, dtype), np.ones(padded_shape(problem), dtype)
    actual = forward(place, values, problem, dtype, value=2.0)
    assert_same_bits(actual, oracle.pad(values, low, high, value=2.0))
    assert_exact(backward(place, gradient, problem, dtype), oracle.pad_backward(gradient, low, high))


@pytest.mark.parametrize("mode", oracle.MODES[1:])
def test_nothing_to_repeat_is_refused(place: Place, dtype: Any, mode: str) -> None:
    for name in ("empty-input", "empty-middle", "crop-all-then-pad"):
        shape, low, high = EMPTY[name]
        with pytest.raises(pybaracuda.InvalidProblemError, match="wanted an element to repeat"):
            pybaracuda.pad(place.array(np.ones(shape, dtype)), low, high, mode)
        with pytest.raises(pybaracuda.InvalidProblemError, match="wanted an element to repeat"):
            pybaracuda.pad_backward(place.array(np.ones(padded_shape(EMPTY[name]), dtype)), low, high, mode)
    # Without a place for it nothing is missing.
    for name in ("empty-both", "empty-output", "all-empty", "crop-all"):
        shape, low, high = EMPTY[name]
        assert forward(place, np.ones(shape, dtype), EMPTY[name], dtype, mode).size == 0
        gradient = np.ones(padded_shape(EMPTY[name]), dtype)
        assert_same_bits(backward(place, gradient, EMPTY[name], dtype, mode), np.zeros(shape, dtype))


@pytest.mark.parametrize(("low", "high"), [((-4, 0), (0, 0)), ((0, -3), (0, -2)), ((-4, 0), (5, 0))])
def test_cropping_below_nothing_is_refused(place: Place, dtype: Any, low: Any, high: Any) -> None:
    values = place.array(np.ones((3, 4), dtype))
    with pytest.raises(pybaracuda.InvalidProblemError):
        pybaracuda.pad(values, low, high)


@MODE
@pytest.mark.parametrize("name", ["image", "maximal", "crop-and-pad", "small-planes"])
def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator, name: str, mode: str) -> None:
    problem = PROBLEMS[name]
    values, gradient = normal(rng, problem[0], dtype), normal(rng, padded_shape(problem), dtype)
    output = forward(place, values, problem, dtype, mode)
    grad_input = backward(place, gradient, problem, dtype, mode)
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(forward(place, layout(values), problem, dtype, mode), output)
        assert_same_bits(backward(place, layout(gradient), problem, dtype, mode), grad_input)


@MODE
def test_outputs_of_any_layout(place: Place, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    # The fastest axis of the gradient is the first of the call: the order of the sums stays that of the call.
    problem = PROBLEMS["maximal"]
    _, low, high = problem
    gradient = normal(rng, padded_shape(problem), dtype)
    expected = backward(place, gradient, problem, dtype, mode)
    target = place.permuted(place.poisoned(problem[0][::-1], dtype, 0xFF), (1, 0))
    pybaracuda.pad_backward(place.array(gradient), low, high, mode, out=target)
    assert_same_bits(np.ascontiguousarray(place.numpy(target)), expected)


@MODE
def test_shared_gradient(place: Place, dtype: Any, mode: str) -> None:
    # The gradient of a sum: one element with strides of 0.
    problem = PROBLEMS["image"]
    gradient = np.broadcast_to(np.ones((1,) * 4, dtype), padded_shape(problem))
    assert_exact(backward(place, gradient, problem, dtype, mode), oracle.pad_backward(gradient, *problem[1:], mode))


def test_reversed_input(dtype: Any, rng: np.random.Generator) -> None:
    # Negative strides, which only NumPy has.
    problem = PROBLEMS["image"]
    values = normal(rng, problem[0], dtype)
    backwards = np.ascontiguousarray(values[:, :, ::-1, ::-1])[:, :, ::-1, ::-1]
    assert_same_bits(forward(Place(), backwards, problem, dtype), forward(Place(), values, problem, dtype))


@MODE
@pytest.mark.parametrize("problem", [((65_537, 2), (0, 1), (1, 0)), ((1, 65_536, 3), (0, 0, 2), (0, 0, 1))], ids=str)
def test_large_batch(place: Place, dtype: Any, rng: np.random.Generator, problem: Problem, mode: str) -> None:
    # More rows than a launch grid has in its second and third dimension.
    _, low, high = problem
    values, gradient = normal(rng, problem[0], dtype), normal(rng, padded_shape(problem), dtype)
    assert_same_bits(forward(place, values, problem, dtype, mode), oracle.pad(values, low, high, mode))
    assert_pad_gradient(backward(place, gradient, problem, dtype, mode), gradient, low, high, mode)


# How far from an end of an axis a pad of the problem below can be seen, and what decides what is there.
NEAR, DECIDING = 8, 16


def ends(place: Place, array: Any, axis: int, count: int) -> Array:
    """The first and the last places of an axis, one after another on the host."""
    before = (slice(None),) * axis
    sides = (slice(None, count), slice(-count, None))
    return np.concatenate([place.numpy(array[(*before, side)]) for side in sides], axis)


@few_and_large
def test_more_than_2_31_elements(is_large: bool, place: Place, rng: np.random.Generator) -> None:
    """Slices of the launches and 64-bit offsets.

    Ends of rows and columns become what they become where all between them is left out; the rest is moved.
    """
    rows, columns = (30_000, 25_000) if is_large else (50, 60)

    def assert_ends(function: Any, given: Any, low: Sequence[int], high: Sequence[int], mode: str, found: Any) -> None:
        for axis in (1, 2):
            wanted = function(ends(place, given, axis, DECIDING), low, high, mode)
            assert_same_bits(ends(place, found, axis, NEAR), ends(Place(), wanted, axis, NEAR))

    def middle(array: Any, sign: int) -> Any:
        """What lies NEAR the ends of no axis, or what comes from there or goes there."""
        sides = zip(low[1:], high[1:], strict=True)
        return array[(slice(None), *(slice(NEAR + sign * first, -NEAR - sign * last) for first, last in sides))]

    low, high = (0, 2, 3), (0, 3, 2)
    values = wound(place, rng.integers(0, 250, PIECE, np.uint8), (3, rows, columns))
    padded = poisoned(place, (3, rows + 5, columns + 5), np.uint8)
    pybaracuda.pad(values, low, high, "reflect", out=padded)
    assert_ends(pybaracuda.pad, values, low, high, "reflect", padded)
    assert_equal(middle(padded, 0), middle(values, -1))
    del values, padded  # the next ones take more memory

    low, high = (0, 2, 4), (0, 5, 5)
    gradient = wound(place, rng.integers(-3, 4, PIECE).astype(np.float16), (3, rows, columns))
    grad_input = poisoned(place, (3, rows - 7, columns - 9), np.float16)
    pybaracuda.pad_backward(gradient, low, high, "symmetric", out=grad_input)
    assert_ends(pybaracuda.pad_backward, gradient, low, high, "symmetric", grad_input)
    assert_equal(middle(grad_input, 0), middle(gradient, 1))


WORDS = [
    np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.complex64,
    np.complex128, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
]  # fmt: skip
# Values that every dtype holds, then some that only a few do.
WORD_VALUES: dict[Any, list[Any]] = {
    np.int8: [-128], np.uint8: [255], np.int64: [-(2**63)], np.uint64: [2**64 - 1], np.complex64: [1.5 - 2j],
    np.complex128: [complex(0.1, -0.0)], ml_dtypes.float8_e4m3fn: [-1.75], ml_dtypes.float8_e5m2: [float("inf")],
}  # fmt: skip


@MODE
@pytest.mark.parametrize("word", WORDS, ids=lambda word: np.dtype(word).name)
def test_every_dtype_is_moved(rng: np.random.Generator, word: Any, mode: str) -> None:
    dtype = np.dtype(word)
    problem = PROBLEMS["crop-and-pad"]
    _, low, high = problem
    count = int(np.prod(problem[0])) * dtype.itemsize
    raw = rng.integers(0, 2 if word is np.bool_ else 256, count).astype(np.uint8)
    values = raw.view(dtype).reshape(problem[0])
    for value in (0, 1, True, *WORD_VALUES.get(word, [])):
        pattern = bits(np.array([value]).astype(dtype))[0]
        actual = forward(Place(), values, problem, dtype, mode, value=value)
        assert_same_bits(bits(actual), oracle.pad(bits(values), low, high, mode, pattern))


@MODE
@pytest.mark.parametrize("word", [np.uint8, np.int16, np.int32, np.int64], ids=lambda word: np.dtype(word).name)
def test_rows_begin_anywhere(place: Place, rng: np.random.Generator, word: Any, mode: str) -> None:
    """Input, output and their rows at every distance from a 16-byte boundary, with nothing written beside them."""
    itemsize = np.dtype(word).itemsize
    for offset in range(16 // itemsize):
        other = int(rng.integers(0, 16 // itemsize))
        shape = (2, 4, int(rng.integers(40, 75)))
        low, high = ((0, *map(int, rng.integers((-1, -9), (3, 30)))) for _ in range(2))
        values = rng.integers(0, 100, shape).astype(word)
        expected = oracle.pad(values, low, high, mode, 77)
        held = rng.integers(0, 100, values.size + 16).astype(word)
        held[offset : offset + values.size] = values.ravel()
        input = place.array(held)[offset : offset + values.size].reshape(shape)
        target = place.poisoned((expected.size + 16,), word, 0xA5)
        output = target[other : other + expected.size].reshape(expected.shape)
        pybaracuda.pad(input, low, high, mode, value=77, out=output)
        written = place.numpy(target)
        assert_same_bits(written[other : other + expected.size].reshape(expected.shape), expected)
        beside = np.concatenate([written[:other], written[other + expected.size :]])
        assert np.all(beside.view(np.uint8) == 0xA5)


@pytest.mark.parametrize(
    ("word", "value"), [(np.uint8, -1), (np.uint8, 256), (np.int32, 0.5), (np.bool_, 2), (np.int64, float("nan"))]
)
def test_a_value_that_an_integer_cannot_hold_is_refused(word: Any, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="value"):
        pybaracuda.pad(np.zeros(3, word), 1, 1, value=value)


@st.composite
def problems(draw: st.DrawFn) -> tuple[str, Problem]:
    """Any mode, rank and pads: none, narrow, maximal, many periods wide, negative."""
    mode = draw(st.sampled_from(oracle.MODES))
    rank = draw(st.integers(1, 8))
    most = {1: 40, 2: 9, 3: 5}.get(rank, 2)
    shape = draw(st.lists(st.integers(0 if mode == "constant" else 1, most), min_size=rank, max_size=rank))
    low, high = [], []
    for extent in shape:
        widths = [st.just(0), st.integers(0, 2 if rank < 4 else 1), st.just(extent - 1 if rank < 4 else 0)]
        widths += [st.integers(0, 4 * extent + 2)] if rank < 3 else []
        before, after = draw(st.one_of(widths)), draw(st.one_of(widths))
        spare = extent if mode == "constant" else extent - 1
        cut = draw(st.integers(0, spare))
        side = draw(st.sampled_from(["none", "none", "low", "high", "both"]))
        if side in ("low", "both"):
            before = -cut
        if side in ("high", "both"):
            after = -(spare - cut) if side == "both" else -cut
        low.append(max(before, -extent))
        high.append(max(after, -extent))
    return mode, (shape, low, high)


@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(list(DTYPES)), drawn=problems())
def test_any_problem(seed: int, name: str, drawn: tuple[str, Problem]) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    mode, problem = drawn
    _, low, high = problem
    values, gradient = any_bits(rng, problem[0], dtype), normal(rng, padded_shape(problem), dtype)
    actual = forward(Place(), values, problem, dtype, mode)
    assert_same_bits(bits(actual), oracle.pad(bits(values), low, high, mode))
    assert_pad_gradient(backward(Place(), gradient, problem, dtype, mode), gradient, low, high, mode)


@given(seed=st.integers(0, 2**32 - 1), drawn=problems())
def test_any_adjoint_is_exact(seed: int, drawn: tuple[str, Problem]) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES["f64"]
    mode, problem = drawn
    values, gradient = integers(rng, problem[0], dtype, 9), integers(rng, padded_shape(problem), dtype, 9)
    output = forward(Place(), values, problem, dtype, mode)
    assert np.sum(output * gradient) == np.sum(values * backward(Place(), gradient, problem, dtype, mode))


def test_complex_numbers_need_no_more_alignment_than_numpy_gives_them() -> None:
    # 24 MiB and more are written past the caches, where whole lines are filled.
    for shape, low, high in (((2, 2), (1, 0), (0, 3)), ((1200, 1300), (1, 7), (2, 100))):
        count = int(np.prod(shape))
        for first in (0, 1):
            values = np.arange(2.0 * count + 2)[first : first + 2 * count].view(np.complex128).reshape(shape)
            for out_first in (0, 1):
                padded = tuple(a + b + c for a, b, c in zip(shape, low, high, strict=True))
                size = 2 * int(np.prod(padded))
                out = np.empty(size + 2)[out_first : out_first + size].view(np.complex128).reshape(padded)
                pybaracuda.pad(values, low, high, value=3 - 4j, out=out)
                widths = list(zip(low, high, strict=True))
                assert np.array_equal(out, np.pad(values, widths, constant_values=3 - 4j))
