# SPDX-License-Identifier: Apache-2.0
"""Every segment operation in its three forms: unsorted ids, sorted ids and offsets."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from function_cases import listed
from hypothesis import given
from hypothesis import strategies as st
from large_problems import assert_equal, assert_repeated, few_and_large, parts, poisoned, repeated, shape_of
from lattice import any_bits, integers, normal
from operators.segment.calls import calls as segment_calls
from place import Place
from tolerance import assert_exact, assert_same_bits, assert_within

import pybaracuda
from pybaracuda import _abi
from pybaracuda._check.abi_calls import STATUS, Launch, Library, Values, numel, symbols
from pybaracuda.segment.plans import plan_of
from verify.bounds import Sum
from verify.definitions import segment as oracle
from verify.dtypes import DTYPES, Array, rounded

FORMS = ("unsorted", "sorted", "csr")
FORM = pytest.mark.parametrize("form", FORMS)
INDEX = pytest.mark.parametrize("index", [np.int32, np.int64], ids=["index32", "index64"])
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")
REDUCTION = pytest.mark.parametrize("reduce", REDUCTIONS)
NAN, INF = float("nan"), float("inf")


class Rows(NamedTuple):
    """Rows with a segment each, in ascending order of segments unless the form is unsorted."""

    input: Array
    ids: Array
    num_segments: int
    form: str
    index: Any

    @property
    def naming(self) -> tuple[Array, ...]:
        """What the function of the form takes to name segments."""
        if self.form == "csr":
            return (np.searchsorted(self.ids, np.arange(self.num_segments + 1)).astype(self.index),)
        return (self.ids.astype(self.index),)

    def with_input(self, values: Array) -> Rows:
        return self._replace(input=values)


def rows_of(
    rng: np.random.Generator, values: Array, num_segments: int, form: str, index: Any = np.int32, skewed: bool = False
) -> Rows:
    """Segment 1 of 3 or more stays empty; ids of dropped rows lie on both sides (offsets drop rows at both ends)."""
    count = len(values)
    ids = rng.integers(-1, num_segments + 1, count)
    if skewed:
        ids = np.where(rng.random(count) < 0.8, num_segments // 2, ids)
    if num_segments > 2:
        ids[ids == 1] = 0
    return Rows(values, ids if form == "unsorted" else np.sort(ids), num_segments, form, index)


def forward(place: Place, rows: Rows, reduce: str, return_arg: bool = False, dtype: Any = None) -> list[Array]:
    """The outputs; their ``dtype`` has to be said where the input is not NumPy's."""
    per_row = reduce == "softmax"
    shape = rows.input.shape if per_row else (rows.num_segments, rows.input.shape[1])
    outputs: list[tuple[Any, Any]] = [(shape, rows.input.dtype if dtype is None else dtype)]
    options: dict[str, Any] = {}
    if return_arg:
        outputs.append((shape, np.dtype(rows.index)))
        options["return_arg"] = True
    if rows.form == "csr":
        return place.run(pybaracuda.segment_csr, rows.input, *rows.naming, reduce, outputs=outputs, **options)
    function = getattr(pybaracuda, f"segment_{reduce}")
    options["indices_are_sorted"] = rows.form == "sorted"
    return place.run(function, rows.input, *rows.naming, rows.num_segments, outputs=outputs, **options)


def backward(place: Place, rows: Rows, reduce: str, gradient: Array, **given_arrays: Any) -> Array:
    """The gradient; arrays by the names of the gradient functions, in their order."""
    outputs = [(rows.input.shape, rows.input.dtype)]
    ties = {"ties": given_arrays.pop("ties")} if "ties" in given_arrays else {}
    if rows.form == "csr":

        def call(grad_output: Any, offsets: Any, *arrays: Any, **options: Any) -> Any:
            named = dict(zip(given_arrays, arrays, strict=True))
            return pybaracuda.segment_csr_backward(
                grad_output, offsets, reduce, num_rows=len(rows.input), **named, **ties, **options
            )

        return place.run(call, gradient, *rows.naming, *given_arrays.values(), outputs=outputs)[0]
    function = getattr(pybaracuda, f"segment_{reduce}_backward")

    def call_with_ids(grad_output: Any, ids: Any, *arrays: Any, **options: Any) -> Any:
        named = dict(zip(given_arrays, arrays, strict=True))
        if reduce in ("max", "min"):
            named.setdefault("input", None)
        if reduce == "softmax":
            named["num_segments"] = rows.num_segments
        return function(
            grad_output=grad_output,
            segment_ids=ids,
            indices_are_sorted=rows.form == "sorted",
            **named,
            **ties,
            **options,
        )

    return place.run(call_with_ids, gradient, *rows.naming, *given_arrays.values(), outputs=outputs)[0]


def check(place: Place, rows: Rows, reduce: str, gradient: Array) -> tuple[Array, Array]:
    """Both directions against the oracle; answers them."""
    input, ids, count = rows.input, rows.ids, rows.num_segments
    output = forward(place, rows, reduce)[0]
    smallest = reduce == "min"
    if reduce in ("max", "min"):
        assert_same_bits(output, oracle.unsorted_segment_max(input, ids, count, smallest))
        again, arg = forward(place, rows, reduce, return_arg=True)
        assert_same_bits(again, output)
        assert_same_bits(arg, oracle.unsorted_segment_argmax(input, ids, count, smallest).astype(rows.index))
        grad_input = backward(place, rows, reduce, gradient, input=input)
        assert_same_bits(grad_input, oracle.segment_arg_backward(gradient, arg, ids))
        assert_same_bits(backward(place, rows, reduce, gradient, arg=arg), grad_input)
        even = backward(place, rows, reduce, gradient, input=input, ties="even")
        assert_within(even, oracle.segment_even_backward(gradient, input, ids, smallest))
        return output, grad_input
    expected: Sum = getattr(oracle, f"segment_{reduce}")(input, ids, count)
    assert_within(output, expected)
    if reduce == "sum":
        grad_input = backward(place, rows, reduce, gradient)
        assert_same_bits(grad_input, oracle.segment_gather(gradient, ids))
        return output, grad_input
    if reduce == "mean":
        grad_input = backward(place, rows, reduce, gradient)
        expected = oracle.segment_mean_backward(gradient, ids)
    elif reduce == "prod":
        grad_input = backward(place, rows, reduce, gradient, input=input, output=output)
        expected = oracle.segment_prod_backward(gradient, input, ids)
    elif reduce == "logsumexp":
        grad_input = backward(place, rows, reduce, gradient, input=input, output=output)
        expected = oracle.segment_logsumexp_backward(gradient, input, output, ids)
    else:
        grad_input = backward(place, rows, reduce, gradient, output=output)
        expected = oracle.segment_softmax_backward(gradient, output, ids, count)
    assert_within(grad_input, expected)
    return output, grad_input


def gradient_of(rng: np.random.Generator, rows: Rows, reduce: str) -> Array:
    shape = rows.input.shape if reduce == "softmax" else (rows.num_segments, rows.input.shape[1])
    return normal(rng, shape, rows.input.dtype)


def near_one(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    """Factors whose products of many thousands stay in float32's range, and of thousands in the others'."""
    return np.asarray(rng.choice([-1.0, 1.0], shape) * rng.uniform(0.97, 1.03, shape)).astype(dtype)


@FORM
@INDEX
@REDUCTION
def test_random_rows(place: Place, dtype: Any, rng: np.random.Generator, form: str, index: Any, reduce: str) -> None:
    rows = rows_of(rng, normal(rng, (90, 5), dtype), 9, form, index)
    check(place, rows, reduce, gradient_of(rng, rows, reduce))


@FORM
@REDUCTION
@pytest.mark.parametrize("length", [255, 256, 257, 513, 3000])
def test_long_segments(place: Place, dtype: Any, rng: np.random.Generator, form: str, reduce: str, length: int) -> None:
    # Pieces are 256 rows long, of maxima 32, and joined in ascending order.
    make = near_one if reduce == "prod" else normal
    rows = rows_of(rng, make(rng, (length, 3), dtype), 2, form, skewed=True)
    check(place, rows, reduce, gradient_of(rng, rows, reduce))


@FORM
@REDUCTION
def test_segments_of_very_many_pieces(place: Place, rng: np.random.Generator, form: str, reduce: str) -> None:
    """On CUDA a block joins more than 64 of them, a hundred at a time, and orders more than 32,768 rows by tiles."""
    make = near_one if reduce == "prod" else normal
    rows = rows_of(rng, make(rng, (50_000, 3), np.float32), 2, form, skewed=True)
    check(place, rows, reduce, gradient_of(rng, rows, reduce))


@FORM
def test_exponentials_of_very_many_pieces(place: Place, rng: np.random.Generator, form: str) -> None:
    """What a part of a sum is scaled by depends on whether the largest value grows from piece to piece."""
    count = 60_000
    steps = np.linspace(0, 80, count)
    steady = [steps, -steps, np.where(steps < 40, 0, 30), rng.standard_normal(count)]
    rows = rows_of(rng, np.stack(steady, 1).astype(np.float32), 2, form, skewed=True)
    finite, shares = forward(place, rows, "logsumexp")[0], forward(place, rows, "softmax")[0]
    assert_within(finite, oracle.segment_logsumexp(rows.input, rows.ids, 2))
    assert_within(shares, oracle.segment_softmax(rows.input, rows.ids, 2))
    holder = int(rng.choice(np.flatnonzero(rows.ids == 1)))
    rows.input[holder, :2] = INF, NAN
    rows.input[:, 2] = -INF
    sums = forward(place, rows, "logsumexp")[0][1]
    assert sums[0] == INF
    assert np.isnan(sums[1])
    assert sums[2] == -INF
    assert_same_bits(sums[3:], finite[1, 3:])
    parts = forward(place, rows, "softmax")[0][rows.ids == 1]
    assert parts[:, 0].sum() == 1
    assert np.isnan(parts[:, 1]).all()
    assert (parts[:, 2] == np.float32(1) / np.float32(len(parts))).all()
    assert_same_bits(parts[:, 3], shares[rows.ids == 1, 3])


@FORM
@REDUCTION
@pytest.mark.parametrize("width", [1, 3, 4, 17, 34, 64, 132, 192])
def test_widths(place: Place, dtype: Any, rng: np.random.Generator, form: str, reduce: str, width: int) -> None:
    make = near_one if reduce == "prod" else normal
    rows = rows_of(rng, make(rng, (300, width), dtype), 4, form, skewed=True)
    check(place, rows, reduce, gradient_of(rng, rows, reduce))


@FORM
@pytest.mark.parametrize("reduce", ["sum", "prod"])
def test_exact_on_the_lattice(place: Place, dtype: Any, rng: np.random.Generator, form: str, reduce: str) -> None:
    values = integers(rng, (600, 4), dtype, 2) if reduce == "sum" else rng.choice([-1, 1, 1, 2], (40, 4)).astype(dtype)
    rows = rows_of(rng, values, 7, form, skewed=reduce == "sum")
    expected = oracle.segment_sum if reduce == "sum" else oracle.segment_prod
    value = expected(values, rows.ids, 7).value
    if np.abs(value).max() <= 256:  # what bf16 holds exactly
        assert_exact(forward(place, rows, reduce)[0], value + 0.0)
    else:
        assert_same_bits(forward(place, rows, reduce)[0], rounded(value + 0.0, dtype))


@FORM
def test_sum_is_the_adjoint_of_its_gradient(place: Place, dtype: Any, rng: np.random.Generator, form: str) -> None:
    """<sum(x), g> == <x, sum_backward(g)> exactly, and the gradient of the gradient is the sum itself."""
    rows = rows_of(rng, integers(rng, (500, 3), dtype, 1), 6, form)
    gradient = integers(rng, (6, 3), dtype, 1)
    output, grad_input = check(place, rows, "sum", gradient)
    left = np.sum(output.astype(np.float64) * gradient.astype(np.float64))
    right = np.sum(rows.input.astype(np.float64) * grad_input.astype(np.float64))
    assert left == right
    # sum_backward maps segments to rows; its own backward is the sum over those rows.
    twice = forward(place, rows.with_input(grad_input), "sum")[0]
    counts = np.array([np.count_nonzero(rows.ids == segment) for segment in range(6)])
    assert_same_bits(twice, (gradient.astype(np.float64) * counts[:, None] + 0.0).astype(dtype))


@FORM
def test_the_gradient_of_the_sums_gradient_is_the_sum(
    place: Place, dtype: Any, rng: np.random.Generator, form: str
) -> None:
    """sum_backward is linear: its matrix, a segment's unit vector at a time, transposed, is the sum; so is gather's."""
    count, width = 7, 3
    rows = rows_of(rng, integers(rng, (300, width), dtype, 2), count, form, skewed=True)
    columns = []
    for segment in range(count):
        unit = np.zeros((count, width), dtype)
        unit[segment] = 1
        columns.append(backward(place, rows, "sum", unit)[:, 0].astype(np.float64))
        if form == "unsorted":
            outputs = [(rows.input.shape, dtype)]
            gathered = place.run(pybaracuda.segment_gather, unit, *rows.naming, outputs=outputs)[0]
            assert_same_bits(gathered[:, 0].astype(np.float64), columns[-1])
    transposed = np.stack(columns) @ rows.input.astype(np.float64)
    assert_same_bits(forward(place, rows, "sum")[0], rounded(transposed + 0.0, dtype))


def test_gather_is_the_gradient_of_the_sum(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    table = any_bits(rng, (6, 5), dtype)
    ids = rng.integers(-2, 9, 40).astype(np.int32)
    gathered = place.run(pybaracuda.segment_gather, table, ids, outputs=[((40, 5), dtype)])[0]
    assert_same_bits(gathered, oracle.segment_gather(table, ids))
    assert_same_bits(gathered, place.run(pybaracuda.segment_sum_backward, table, ids, outputs=[((40, 5), dtype)])[0])


def test_gather_csr_repeats(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    table, offsets = any_bits(rng, (4, 3), dtype), np.array([1, 3, 3, 6, 8], np.int64)
    gathered = place.run(pybaracuda.gather_csr, table, offsets, 9, outputs=[((9, 3), dtype)])[0]
    assert_same_bits(gathered, oracle.segment_gather(table, oracle.ids_of_offsets(offsets, 9)))


@FORM
@INDEX
@pytest.mark.parametrize("token", [np.int32, np.int64])
@pytest.mark.parametrize("reduce", ["sum", "max", "min", "prod"])
def test_integers(place: Place, rng: np.random.Generator, form: str, index: Any, token: Any, reduce: str) -> None:
    limits = np.iinfo(token)
    values = rng.integers(limits.min, limits.max, (700, 5), dtype=token, endpoint=True)
    rows = rows_of(rng, values, 5, form, index, skewed=True)
    expected = np.full((5, 5), {"sum": 0, "prod": 1, "max": limits.min, "min": limits.max}[reduce], token)
    for each in range(5):
        mine = values[rows.ids == each]
        if len(mine):
            function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[reduce]
            with np.errstate(over="ignore"):
                expected[each] = function.reduce(mine, axis=0, dtype=token)
    assert_same_bits(forward(place, rows, reduce)[0], expected)
    if reduce in ("max", "min"):
        rows = rows.with_input(np.where(rng.random(values.shape) < 0.5, values, values[:1]))  # ties
        output, arg = forward(place, rows, reduce, return_arg=True)
        assert_same_bits(output, oracle.unsorted_segment_max(rows.input, rows.ids, 5, reduce == "min"))
        held = oracle.unsorted_segment_argmax(rows.input, rows.ids, 5, reduce == "min")
        assert_same_bits(arg, held.astype(index))


@FORM
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_ties_and_nan(place: Place, dtype: Any, rng: np.random.Generator, form: str, reduce: str) -> None:
    values = rng.choice([-1.0, -0.0, 0.0, 1.0, NAN, INF, -INF], (400, 3), p=[0.2, 0.25, 0.25, 0.2, 0.02, 0.04, 0.04])
    rows = rows_of(rng, values.astype(dtype), 8, form)
    check(place, rows, reduce, normal(rng, (8, 3), dtype))
    moved = rows.with_input(any_bits(rng, (400, 3), dtype))
    smallest = reduce == "min"
    assert_same_bits(forward(place, moved, reduce)[0], oracle.unsorted_segment_max(moved.input, moved.ids, 8, smallest))


def test_gradients_of_a_tie_add_up(place: Place, rng: np.random.Generator) -> None:
    """A negative gradient over 70,000 ties: PyTorch's segment_reduce gives each tie all of it."""
    count = 65536
    rows = Rows(np.zeros((count, 1), np.float32), np.zeros(count, np.int64), 1, "unsorted", np.int32)
    gradient = np.full((1, 1), -1.0, np.float32)
    even = backward(place, rows, "max", gradient, input=rows.input, ties="even")
    assert (even == -1.0 / count).all()
    first = backward(place, rows, "max", gradient, input=rows.input)
    assert first[0, 0] == -1
    assert not first[1:].any()


@FORM
def test_mean_of_many_ones_is_one(place: Place, dtype: Any, form: str) -> None:
    rows = Rows(np.ones((5000, 2), dtype), np.zeros(5000, np.int64), 1, form, np.int32)
    assert_same_bits(forward(place, rows, "mean")[0], np.ones((1, 2), dtype))


@pytest.mark.parametrize("num_segments", [1, 300, 4096, 100_000])
def test_mean_gradient_counts_the_rows_of_every_segment(
    place: Place, rng: np.random.Generator, num_segments: int
) -> None:
    """More rows than are counted together, on more segments than that keeps track of, and a third on one of them."""
    count = 20_000
    ids = rng.integers(-2, num_segments + 2, count)
    ids[rng.random(count) < 0.3] = num_segments // 2
    rows = Rows(np.zeros((count, 2), np.float32), ids, num_segments, "unsorted", np.int64)
    gradient = rng.integers(-100, 100, (num_segments, 2)).astype(np.float32)
    valid = (ids >= 0) & (ids < num_segments)
    lengths = np.bincount(ids[valid], minlength=num_segments)
    expected = np.zeros((count, 2), np.float32)
    expected[valid] = gradient[ids[valid]] / lengths[ids[valid], None].astype(np.float32)
    assert_same_bits(backward(place, rows, "mean", gradient), expected)


@FORM
@pytest.mark.parametrize("count", [6000, 300_000])
def test_segments_around_the_length_of_a_piece(place: Place, rng: np.random.Generator, form: str, count: int) -> None:
    """Segments of one piece and of several in turns, between rows that are dropped: each begins anywhere."""
    lengths = rng.choice([1, 2, 3, 7, 31, 32, 33, 64, 65, 255, 256, 257, 300, 511, 513, 1000], 2 * count // 31)
    num_segments = int(np.searchsorted(np.cumsum(lengths), count * 9 // 10))
    kept = np.repeat(np.arange(num_segments), lengths[:num_segments])
    before = int(rng.integers(1, count - len(kept)))
    ids = np.concatenate([np.full(before, -1), kept, np.full(count - before - len(kept), num_segments)])
    if form == "unsorted":
        ids = rng.permutation(ids)
    rows = Rows(rng.integers(0, 50, (count, 3)).astype(np.float32), ids, num_segments, form, np.int32)
    gradient = rng.integers(1, 100, (num_segments, 3)).astype(np.float32)
    expected = np.zeros((count, 3), np.float32)
    holders = np.empty((num_segments, 3), np.int32)
    for column in range(3):
        # The first row of each segment, with larger values before smaller ones.
        order = np.lexsort((np.arange(count), -rows.input[:, column], ids))
        holders[:, column] = order[np.searchsorted(ids[order], np.arange(num_segments))]
        expected[holders[:, column], column] = gradient[:, column]
    assert_same_bits(backward(place, rows, "max", gradient, input=rows.input), expected)
    largest, arg = forward(place, rows, "max", return_arg=True)
    assert_same_bits(arg, holders)
    assert_same_bits(largest, np.take_along_axis(rows.input, holders, 0))
    sums = np.zeros((num_segments + 2, 3), np.float32)
    np.add.at(sums, ids, rows.input)  # the last two rows are those of no segment
    assert_same_bits(forward(place, rows, "sum")[0], sums[:num_segments])


@FORM
def test_product_gradient_at_zeros(place: Place, dtype: Any, form: str) -> None:
    values = np.array([2, 3, 0, 4, 0, 5, 0, -0.0, 6, 7, 0.5], dtype).reshape(-1, 1)
    ids = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4])
    rows = Rows(values, ids, 5, form, np.int32)
    gradient = np.array([[1], [2], [-1], [1], [2]], dtype)
    output = forward(place, rows, "prod")[0]
    grad_input = backward(place, rows, "prod", gradient, input=values, output=output)
    assert (grad_input.astype(np.float64).ravel() == [3, 2, 8, 0, -5, 0, 0, 0, 0, 1, 14]).all()


@FORM
def test_infinite_exponents(place: Place, dtype: Any, form: str) -> None:
    values = np.array([-INF, -INF, 1, INF, INF, 2, NAN, 3, -INF, 0], dtype).reshape(-1, 1)
    ids = np.array([0, 0, 1, 1, 1, 2, 2, 2, 3, 3])
    rows = Rows(values, ids, 5, form, np.int32)
    sums = forward(place, rows, "logsumexp")[0].astype(np.float64).ravel()
    assert (sums[[0, 1, 3, 4]] == [-INF, INF, 0, -INF]).all()
    assert np.isnan(sums[2])
    parts = forward(place, rows, "softmax")[0].astype(np.float64).ravel()
    assert (parts[[0, 1, 2, 3, 4, 8, 9]] == [0.5, 0.5, 0, 0.5, 0.5, 0, 1]).all()
    assert np.isnan(parts[5:8]).all()


@FORM
@REDUCTION
@pytest.mark.parametrize(("count", "width", "segments"), [(0, 3, 4), (5, 0, 4), (5, 3, 0), (1, 1, 1), (0, 0, 0)])
def test_empty_and_single(
    place: Place, dtype: Any, form: str, reduce: str, count: int, width: int, segments: int
) -> None:
    rows = Rows(np.ones((count, width), dtype), np.zeros(count, np.int64), segments, form, np.int32)
    per_row = reduce == "softmax"
    gradient = np.ones((count if per_row else segments, width), dtype)
    output, grad_input = check(place, rows, reduce, gradient)
    if not count and not per_row:
        empty = {"max": -INF, "min": INF, "prod": 1, "logsumexp": -INF}.get(reduce, 0)
        assert_same_bits(output, np.full((segments, width), empty, dtype))
    if not segments:
        assert_same_bits(grad_input, np.zeros((count, width), dtype))


@REDUCTION
def test_forms_agree(place: Place, dtype: Any, rng: np.random.Generator, reduce: str) -> None:
    rows = rows_of(rng, normal(rng, (700, 6), dtype), 8, "sorted", np.int64)
    expected = forward(place, rows, reduce)[0]
    for form in FORMS:
        assert_same_bits(forward(place, rows._replace(form=form), reduce)[0], expected)


@REDUCTION
@pytest.mark.parametrize("form", ["sorted", "csr"])
def test_broken_promises_drop_every_row(place: Place, rng: np.random.Generator, form: str, reduce: str) -> None:
    """Ids or offsets that descend, some far outside: the results of rows without segments."""
    input = place.array(normal(rng, (2000, 3), np.dtype(np.float32)))
    if form == "sorted":
        wild, none = (rng.integers(-3000, 3000, 2000) % 43 - 1).astype(np.int32), np.full(2000, -1, np.int32)
    else:
        wild, none = rng.integers(-3000, 3000, 41).astype(np.int32), np.zeros(41, np.int32)
    assert (np.diff(wild) < 0).any()

    def result(index: Any) -> Array:
        if form == "sorted":
            output = getattr(pybaracuda, f"segment_{reduce}")(input, index, 40, indices_are_sorted=True)
        else:
            output = pybaracuda.segment_csr(input, index, reduce)
        return place.numpy(output)

    assert_same_bits(result(place.array(wild)), result(place.array(none)))


@REDUCTION
def test_gradients_by_descending_offsets(place: Place, rng: np.random.Generator, reduce: str) -> None:
    """Rows are dropped where the gradient needs them in order; else a row has the segment that a bisection finds."""
    values = normal(rng, (2000, 3), np.dtype(np.float32))
    gradient = normal(rng, (2000 if reduce == "softmax" else 40, 3), np.dtype(np.float32))
    wild = rng.integers(-3000, 3000, 41).astype(np.int32)
    output = np.zeros_like(gradient)

    def backward_on(place: Place) -> Array:
        given = {"input": place.array(values), "output": place.array(output)}
        offsets = place.array(wild)
        found = pybaracuda.segment_csr_backward(place.array(gradient), offsets, reduce, num_rows=2000, **given)
        return place.numpy(found)

    found = backward_on(place)
    if reduce in ("sum", "mean", "logsumexp"):
        assert_same_bits(found, backward_on(Place()))
    else:
        assert_same_bits(found, np.zeros_like(values))


def bisected(offsets: Array, rows: int) -> Array:
    """How many of the offsets a bisection takes for at most each row."""
    row, low, high = np.arange(rows), np.zeros(rows, np.int64), np.full(rows, len(offsets))
    while (low < high).any():
        middle = (low + high) // 2
        upwards = offsets[np.minimum(middle, len(offsets) - 1)] <= row
        low, high = np.where(upwards & (low < high), middle + 1, low), np.where(upwards, high, middle)
    return low


# Rows so narrow that one search serves many of them, and more rows than a kernel has blocks for at once.
@pytest.mark.parametrize(("rows", "columns"), [(9_000, 1), (9_000, 2), (9_000, 8), (300_000, 40)])
@pytest.mark.parametrize("kind", ["ascending", "mostly empty", "a few descend", "wild"])
@INDEX
def test_rows_find_their_segments(
    place: Place, rng: np.random.Generator, index: Any, kind: str, rows: int, columns: int
) -> None:
    segments = 4 * rows if kind == "mostly empty" else rows // 10
    offsets = np.sort(rng.integers(5, rows - 5, segments + 1))
    if kind == "a few descend":
        for at in rng.integers(0, segments, 5):
            offsets[[at, at + 1]] = offsets[at + 1] + 1, offsets[at] - 1
    elif kind == "wild":
        offsets = rng.integers(-rows, 2 * rows, segments + 1)
    assert (np.diff(offsets) < 0).any() == (kind in ("a few descend", "wild"))
    gradient = normal(rng, (segments, columns), np.dtype(np.float32))
    found = place.numpy(
        pybaracuda.segment_csr_backward(place.array(gradient), place.array(offsets.astype(index)), "sum", num_rows=rows)
    )
    begun = bisected(offsets, rows)
    belongs = (begun > 0) & (begun <= segments)
    expected = np.zeros((rows, columns), np.float32)
    expected[belongs] = gradient[begun[belongs] - 1]
    assert_same_bits(found, expected)


@FORM
@REDUCTION
def test_layout_does_not_change_bits(
    place: Place, dtype: Any, rng: np.random.Generator, form: str, reduce: str
) -> None:
    rows = rows_of(rng, normal(rng, (60, 8), dtype), 5, form)
    expected = forward(place, rows, reduce)[0]
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(forward(place, rows.with_input(layout(rows.input)), reduce, dtype=dtype)[0], expected)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    ids=st.lists(st.integers(-2, 7), max_size=40),
    form=st.sampled_from(FORMS),
    reduce=st.sampled_from(REDUCTIONS),
    width=st.integers(0, 6),
    num_segments=st.integers(0, 6),
)
def test_any_ids(seed: int, name: str, ids: list[int], form: str, reduce: str, width: int, num_segments: int) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    found = np.array(ids, np.int64)
    rows = Rows(normal(rng, (len(ids), width), dtype), found if form == "unsorted" else np.sort(found), num_segments,
                form, np.int32)  # fmt: skip
    check(Place(), rows, reduce, gradient_of(rng, rows, reduce))


@pytest.mark.parametrize("name", list(segment_calls(np.float32)))
def test_rows_of_any_rank(name: str) -> None:
    """[N], [N, D] and [N, D, 1] say the same of each column."""
    case = segment_calls(np.float32)[name]
    expected = listed(case())
    data = {argument: array for argument, array in case.arrays.items() if array.ndim == 2}
    deep = listed(case(**{argument: array[..., None] for argument, array in data.items()}))
    line = listed(case(**{argument: array[:, 0] for argument, array in data.items()}))
    for one, two, wanted in zip(deep, line, expected, strict=True):
        assert_same_bits(one, wanted[..., None])
        assert_same_bits(two, np.ascontiguousarray(wanted[:, 0]))


class ManyRows(NamedTuple):
    """A block of 4000 rows of 192 again and again; a segment's rows are from blocks all over the input.

    A row of a block belongs, in different blocks, to different segments of one kind: sums and maxima of every segment
    of a kind are equal, and known from one block. The last segment is a long one. It has rows of every block, which
    add up to 0 in each; but the very last row is another than in its block, and the largest.
    """

    place: Place
    block: Array
    kind: Array  # -1: of the long segment
    ids: Array
    rows: Any
    index: Any
    last: Array

    @property
    def kinds(self) -> int:
        return int(self.kind.max()) + 1

    @property
    def num_segments(self) -> int:
        return int(self.ids.max()) + 1

    def assert_kinds(self, found: Any, function: Any, of_the_long_one: Array) -> None:
        assert_repeated(self.place, found[:-1], function(self.block, self.kind, self.kinds))
        assert_same_bits(self.place.numpy(found[-1]), of_the_long_one)

    def poisoned(self, dtype: Any) -> Any:
        return self.place.poisoned((self.num_segments, self.block.shape[1]), dtype, 0xFF)

    def gradient(self, rng: np.random.Generator) -> Array:
        """No number is 0."""
        return rng.integers(1, 100, (self.num_segments, self.block.shape[1])).astype(np.float16)


def many_rows(place: Place, is_large: bool, rng: np.random.Generator) -> ManyRows:
    height, width, kinds = 4000, 192, 36
    blocks = 2**31 // (height * width) + 1 if is_large else 4
    # Small integers: sums in any order are exact.
    block = rng.integers(-8, 9, (height, width)).astype(np.float16)
    long = np.append(rng.permutation(height - 1)[:199], height - 1)
    block[long[100:]] = 0 - block[long[:100]]
    kind = rng.permutation(np.arange(height) % kinds)
    ids = (np.arange(blocks)[:, None] + rng.integers(0, blocks, height)) % blocks * kinds + kind
    ids[:, long] = blocks * kinds
    kind[long] = -1
    ids = ids.ravel().astype(np.int32)
    rows, last = repeated(place, block, blocks), (9 + np.arange(width) % 5).astype(np.float16)
    rows[-1] = place.array(last)
    return ManyRows(place, block, kind, ids, rows, place.array(ids), last)


@few_and_large
def test_sums_of_more_than_2_31_elements(is_large: bool, place: Place, rng: np.random.Generator) -> None:
    many = many_rows(place, is_large, rng)
    sums = many.poisoned(np.float16)
    pybaracuda.segment_sum(many.rows, many.index, many.num_segments, out=sums)
    many.assert_kinds(sums, pybaracuda.segment_sum, many.last - many.block[-1])
    gradient = place.array(many.gradient(rng))
    spread = poisoned(place, shape_of(many.rows), np.float16)
    pybaracuda.segment_sum_backward(gradient, many.index, out=spread)
    for part in parts(*shape_of(many.rows)):
        assert_equal(spread[part], gradient[many.index[part]])


@few_and_large
def test_maxima_of_more_than_2_31_elements(is_large: bool, place: Place, rng: np.random.Generator) -> None:
    many = many_rows(place, is_large, rng)
    count, width = shape_of(many.rows)
    largest, holders = many.poisoned(np.float16), many.poisoned(np.int32)
    pybaracuda.segment_max(many.rows, many.index, many.num_segments, return_arg=True, out=(largest, holders))
    many.assert_kinds(largest, pybaracuda.segment_max, many.last)
    # In 64 bits, as what comes of them are numbers of elements.
    holding = holders * place.array(np.ones((1, 1), np.int64))
    elements = holding * width + place.array(np.arange(width))
    assert_equal(many.rows.reshape(-1)[elements], largest)
    assert bool((many.index[holding] == place.array(np.arange(many.num_segments)[:, None])).all())
    assert (place.numpy(holders[-1]) == count - 1).all()

    gradient, routed = many.gradient(rng), poisoned(place, (count, width), np.float16)
    pybaracuda.segment_max_backward(place.array(gradient), many.rows, many.index, out=routed)
    assert_equal(routed.reshape(-1)[elements], place.array(gradient))
    # Nothing else than these is written.
    assert sum(int((routed[part] != 0).sum()) for part in parts(count, width)) == gradient.size

    # That the first of equal rows holds a maximum, and zeros' signs, in some segments; the long one's are known.
    late = many.ids[-12:][many.kind[-12:] >= 0]
    for segment in (0, 1, many.num_segments - 2, *rng.integers(0, many.num_segments - 1, 20), *late):
        mine = np.flatnonzero(many.ids == segment)
        first = many.block[mine % len(many.block)].astype(np.float32).argmax(axis=0)
        assert_same_bits(place.numpy(holders[int(segment)]), mine[first].astype(np.int32))
        expected = np.zeros((len(mine), width), np.float16)
        expected[first, np.arange(width)] = gradient[segment]
        assert_same_bits(place.numpy(routed[place.array(mine)]), expected)


def test_arguments() -> None:
    rows, ids = np.ones((4, 2), np.float32), np.array([0, 1, 1, 0], np.int32)
    with pytest.raises(pybaracuda.UnsupportedError, match="input has dtype int32"):
        pybaracuda.segment_mean(rows.astype(np.int32), ids, 2)
    with pytest.raises(ValueError, match=r"segment_ids has shape \(4, 1\)"):
        pybaracuda.segment_sum(rows, ids[:, None], 2)
    with pytest.raises(ValueError, match=r"segment_ids has shape \(4,\); wanted \(3,\), one for each row of input"):
        pybaracuda.segment_sum(rows[:3], ids, 2)
    with pytest.raises(TypeError, match=r"grad_output has dtype float64; wanted float32, the dtype of input"):
        pybaracuda.segment_max_backward(rows[:2].astype(np.float64), rows, ids)
    with pytest.raises(ValueError, match="ties is 'last'"):
        pybaracuda.segment_max_backward(rows[:2], rows, ids, ties="last")
    with pytest.raises(TypeError, match=r"input: wanted an array \(or arg instead\)"):
        pybaracuda.segment_max_backward(rows[:2], None, ids)
    with pytest.raises(ValueError, match="reduce is 'median'"):
        pybaracuda.segment_csr(rows, np.array([0, 4]), "median")
    with pytest.raises(ValueError, match="return_arg: sum"):
        pybaracuda.segment_csr(rows, np.array([0, 4]), "sum", return_arg=True)
    with pytest.raises(TypeError, match="output: wanted an array"):
        pybaracuda.segment_csr_backward(rows, np.array([0, 4]), "softmax")
    with pytest.raises(ValueError, match="num_rows"):
        pybaracuda.segment_csr_backward(rows[:1], np.array([0, 4]), "sum")
    with pytest.raises(pybaracuda.InvalidProblemError, match="form is 'coo'"):
        pybaracuda.SegmentPlan.select(pybaracuda.SegmentDescriptor("sum", 4, 2, 2, form="coo"))


def test_plans_say_what_they_do() -> None:
    summing = pybaracuda.SegmentPlan.select(pybaracuda.SegmentDescriptor("sum", 4, 2, 3, form="csr", element="bf16"))
    assert [(tensor.name, tensor.shape) for tensor in summing.tensors] == [
        ("input", (4, 2)), ("offsets", (4,)), ("output", (3, 2)),
    ]  # fmt: skip
    assert summing.precision_guarantee.accumulator == "f32"
    moving = pybaracuda.SegmentSelectionPlan.select(pybaracuda.SegmentSelectionDescriptor("max_with_arg", 4, 2, 3))
    assert [tensor.name for tensor in moving.tensors] == ["input", "segment_ids", "output", "arg"]
    assert moving.precision_guarantee.math_precision == "exact"


def test_exponential_is_within_a_unit(place: Place, rng: np.random.Generator) -> None:
    """e^x comes out of the gradient of logsumexp; 80-bit numbers judge it, over every exponent."""
    x = np.concatenate([rng.uniform(-746, 710, 20000), rng.normal(size=20000), rng.uniform(-1e-6, 1e-6, 2000)])
    special = np.array([-INF, INF, 0.0, -0.0, -745.2, -745.1, 709.78, 709.79, 5e-324])
    values = np.concatenate([x, special])[:, None]
    ids = np.zeros(len(values), np.int32)
    one, zero = np.ones((1, 1)), np.zeros((1, 1))
    outputs = [(values.shape, np.dtype(np.float64))]
    got = place.run(pybaracuda.segment_logsumexp_backward, one, values, zero, ids, outputs=outputs)[0].ravel()
    with np.errstate(over="ignore", under="ignore"):
        exact = np.exp(values.ravel().astype(np.longdouble))
        nearest = exact.astype(np.float64)
    finite = np.isfinite(nearest)
    np.testing.assert_array_equal(got[~finite], nearest[~finite])
    off = np.abs(got[finite].astype(np.longdouble) - exact[finite]) / np.spacing(nearest[finite])
    assert off.max() <= 1
    single = values.astype(np.float32)
    outputs = [(single.shape, np.dtype(np.float32))]
    got = place.run(
        pybaracuda.segment_logsumexp_backward, one.astype(np.float32), single, zero.astype(np.float32), ids,
        outputs=outputs,
    )[0].ravel()  # fmt: skip
    with np.errstate(over="ignore", under="ignore"):
        exact = np.exp(single.ravel().astype(np.longdouble))
        nearest32 = exact.astype(np.float32)
    finite = np.isfinite(nearest32)
    off = np.abs(got[finite].astype(np.longdouble) - exact[finite]) / np.spacing(nearest32[finite])
    assert off.max() <= 1


def test_logarithm_is_within_a_unit(place: Place, rng: np.random.Generator) -> None:
    """The logsumexp of k zeros is log k."""
    counts = np.arange(1, 300)
    rows = np.zeros((counts.sum(), 1))
    ids = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    outputs = [((len(counts), 1), np.dtype(np.float64))]
    got = place.run(pybaracuda.segment_logsumexp, rows, ids, len(counts), outputs=outputs)[0].ravel()
    exact = np.log(counts.astype(np.longdouble))
    off = np.abs(got.astype(np.longdouble) - exact) / np.spacing(np.maximum(exact, 1e-300).astype(np.float64))
    assert off[1:].max() <= 1
    assert got[0] == 0


PREFIXES = {"unsorted_segment": "unsorted", "segment": "sorted", "segment_csr": "csr"}
OPERATORS = [
    operator
    for operator in _abi.OPERATORS.values()
    if operator.family in ("segment", "segment_sorted", "segment_csr") and operator.name != "segment_ex"
]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_every_operator_has_a_plan(rng: np.random.Generator, operator: _abi.Operator) -> None:
    """Every variant runs through its plan, and writes every element of its outputs."""
    family = {"segment": "unsorted_segment", "segment_sorted": "segment", "segment_csr": "segment_csr"}[operator.family]
    operation = "gather" if operator.name == "segment_gather" else operator.name.removeprefix(f"{family}_")
    for variant in operator.variants.values():
        element, index = variant.types["T"], variant.types["I"]
        plan_type, descriptor_type = plan_of(operation)
        descriptor = descriptor_type(operation, 7, 3, 4, PREFIXES[family], element, index)
        assert descriptor.operator == operator.name
        plan: Any = plan_type.select(descriptor)
        dtypes = {**DTYPES, "i32": np.dtype(np.int32), "i64": np.dtype(np.int64)}
        results = []
        inputs = {
            spec.name: np.sort(rng.integers(0, 4, spec.shape)).astype(dtypes[spec.dtype])
            for spec in plan.tensors
            if not spec.is_output
        }
        for byte in (0xFF, 0xA5):
            outputs = {
                spec.name: np.frombuffer(bytes([byte]) * spec.nbytes, dtypes[spec.dtype]).reshape(spec.shape).copy()
                for spec in plan.tensors
                if spec.is_output
            }
            plan.run(**inputs, **outputs)
            results.append(b"".join(array.tobytes() for array in outputs.values()))
        assert results[0] == results[1]


@pytest.mark.parametrize("name", ["unsorted_segment_mean", "unsorted_segment_mean_backward", "segment_mean_backward"])
@pytest.mark.parametrize("count", [15, 16, 17])
def test_frozen_callers_workspace(rng: np.random.Generator, name: str, count: int) -> None:
    """Upstream passes num_segments counts of 4 bytes, whatever we want: from there on it is taken for none."""
    symbol = next(symbol for symbol in symbols() if symbol.name == f"{name}_f32")
    library = Library("cpu")
    values: Values = {"num_inputs": 50, "embedding_dim": 3, "num_segments": 4}
    arrays = {
        tensor.name: rng.integers(0, 4, numel(tensor, values)).astype(
            np.int32 if tensor.name == "segment_ids" else np.float32
        )
        for tensor in symbol.tensors
    }
    scratch = np.full(64, 0xA5, np.uint8)
    start = -scratch.ctypes.data % 16
    pointers = {tensor: array.ctypes.data for tensor, array in arrays.items()}
    status = library.run(symbol, values, Launch(pointers, scratch.ctypes.data + start, count))
    assert status == (STATUS["OK"] if count >= 16 else STATUS["WORKSPACE_TOO_SMALL"])
    given = arrays[symbol.outputs[0].name].copy()
    assert library.run(symbol, values, Launch(pointers)) == STATUS["OK"]
    if count >= 16:
        assert_same_bits(given, arrays[symbol.outputs[0].name])
    assert (scratch[start + count :] == 0xA5).all()


@pytest.mark.parametrize(("dtype", "unit"), [(DTYPES["f16"], 2.0**-11), (DTYPES["bf16"], 2.0**-8)], ids=["f16", "bf16"])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_gradients_of_a_rounded_logsumexp_add_up(dtype: Any, unit: float, is_sorted: bool, place: Place) -> None:
    """A logsumexp near 1000 is off by up to a quarter (bf16: 2): what it is made of is formed anew."""
    base = np.array([1000, 1000.5, 999.5, 1000, 1000, -INF, 1, INF, INF, 2, -INF, -INF])
    input = base[:, None].astype(dtype)
    ids = np.array([0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 3, 3], np.int32)
    gradient = np.array([[1.0], [3.0], [0.5], [2.0], [7.0]], dtype)
    output = place.run(pybaracuda.segment_logsumexp, input, ids, 5, outputs=[(gradient.shape, input.dtype)])[0]
    found = place.run(
        partial(pybaracuda.segment_logsumexp_backward, indices_are_sorted=is_sorted),
        gradient, input, output, ids, outputs=[(input.shape, input.dtype)],
    )[0].astype(np.float64).ravel()  # fmt: skip
    # Each of five parts, at most 1, is rounded once; what float32 adds is far less than another rounding.
    assert abs(found[:6].sum() - 1) <= 6 * unit
    # One row has all of it, rows that are an infinite extreme all of it each, and others nothing.
    assert found[5:].tolist() == [0, 3, 0.5, 0.5, 0, 2, 2]
