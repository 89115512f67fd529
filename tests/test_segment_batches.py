# SPDX-License-Identifier: Apache-2.0
"""Ids of a batch: each entry has segments of its own, and the bits of a call for it, through every kind of array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from frameworks import Framework, knows
from function_cases import listed
from hypothesis import given
from hypothesis import strategies as st
from lattice import normal
from place import Place
from tolerance import assert_same_bits, assert_within

import pybaracuda
from pybaracuda import _call
from pybaracuda._arrays import read
from verify.definitions import segment as oracle
from verify.dtypes import DTYPES, Array

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")
REDUCTION = pytest.mark.parametrize("reduce", REDUCTIONS)
GRADIENTS = ("sum", "mean", "max", "min", "max_even", "max_arg", "min_arg", "prod", "logsumexp", "softmax", "gather")
# These have no arithmetic of their own to number entries with.
WITHOUT_ARITHMETIC = ("cuda.core", "cuda-array-interface")
INDEX = pytest.mark.parametrize("index", [np.int32, np.int64, np.uint8, np.uint32], ids=lambda each: each.__name__)
BATCH, ROWS, COUNT = 3, 40, 7

Function = Callable[..., Any]


def reduction(reduce: str) -> Function:
    return getattr(pybaracuda, f"segment_{reduce}")  # type: ignore[no-any-return]


def drawn_ids(rng: np.random.Generator, shape: tuple[int, ...], count: int, index: Any = np.int64) -> Array:
    """Some of every sort: out of range on both sides, and far out; some segments stay empty."""
    ids = rng.integers(-2, count + 2, shape)
    ids[(ids == 1) & (rng.random(shape) < 0.5)] = -(2**31)
    ids[rng.random(shape) < 0.1] = 2**31 - 1
    return (ids & 0x7F if np.dtype(index).kind == "u" else ids).astype(index)


def looped(function: Function, *arrays: Array, **options: Any) -> list[Array]:
    """One call for each entry."""
    entries = [listed(function(*each, **options)) for each in zip(*arrays, strict=True)]
    return [np.stack(each) for each in zip(*entries, strict=True)]


def gradient_call(name: str, rng: np.random.Generator, ids: Array, count: int, dtype: Any) -> tuple[Function, Any]:
    """A gradient as a function of arrays, and these, of a batch."""
    size, rows = ids.shape
    x, g = normal(rng, (size, rows, 2), dtype), normal(rng, (size, count, 2), dtype)
    if name in ("sum", "mean"):
        return getattr(pybaracuda, f"segment_{name}_backward"), (g, ids)
    if name == "gather":
        return pybaracuda.segment_gather, (g, ids)
    if name == "softmax":
        y = looped(pybaracuda.segment_softmax, x, ids, num_segments=count)[0]
        function = pybaracuda.segment_softmax_backward
        return lambda *arrays, **options: function(*arrays, count, **options), (normal(rng, x.shape, dtype), y, ids)
    if name in ("prod", "logsumexp"):
        y = looped(reduction(name), x, ids, num_segments=count)[0]
        return getattr(pybaracuda, f"segment_{name}_backward"), (g, x, y, ids)
    function = getattr(pybaracuda, f"segment_{name.partition('_')[0]}_backward")
    if name.endswith("_arg"):
        arg = looped(reduction(name[:3]), x, ids, num_segments=count, return_arg=True)[1]
        # One row that is none.
        arg[..., :1, :1] = rows
        return lambda g, i, a, **options: function(g, None, i, arg=a, **options), (g, ids, arg)
    ties = "even" if name.endswith("_even") else "first"
    # With ties: halves, small ones.
    return lambda *a, **options: function(*a, ties=ties, **options), (g, np.round(x * 2).astype(dtype), ids)


@REDUCTION
@INDEX
def test_reductions(framework: Framework, reduce: str, index: Any, rng: np.random.Generator) -> None:
    ids, x = drawn_ids(rng, (BATCH, ROWS), COUNT, index), normal(rng, (BATCH, ROWS, 2, 3), np.float32)
    placed = framework.make(x), framework.make(ids)
    if framework.name in WITHOUT_ARITHMETIC:
        with pytest.raises(TypeError, match=r"segment_ids: cuda\.core has no arithmetic"):
            reduction(reduce)(*placed, COUNT)
        return
    found = reduction(reduce)(*placed, COUNT)
    (wanted,) = looped(reduction(reduce), x, ids, num_segments=COUNT)
    assert_same_bits(framework.values(found), wanted)
    if reduce in ("max", "min"):
        pair = reduction(reduce)(*placed, COUNT, return_arg=True)
        of_entries = looped(reduction(reduce), x, ids, num_segments=COUNT, return_arg=True)
        for one, other in zip(pair, of_entries, strict=True):
            assert_same_bits(framework.values(one), other)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(framework: Framework, name: str, rng: np.random.Generator) -> None:
    if framework.name in WITHOUT_ARITHMETIC:
        return
    for index in (np.int32, np.int64):
        ids = drawn_ids(rng, (BATCH, ROWS), COUNT, index)
        function, arrays = gradient_call(name, rng, ids, COUNT, np.float64)
        found = framework.values(function(*map(framework.make, arrays)))
        assert_same_bits(found, looped(function, *arrays)[0])


@REDUCTION
def test_every_dtype_within_the_definition(place: Place, dtype: Any, reduce: str, rng: np.random.Generator) -> None:
    ids, x = drawn_ids(rng, (BATCH, ROWS), COUNT), normal(rng, (BATCH, ROWS, 2), dtype)
    (wanted,) = looped(reduction(reduce), x, ids, num_segments=COUNT)
    found = place.run(reduction(reduce), x, ids, COUNT, outputs=[(wanted.shape, dtype)])[0]
    assert_same_bits(found, wanted)
    name = f"unsorted_segment_{reduce}" if reduce in ("max", "min") else f"segment_{reduce}"
    if reduce == "min":
        name = "unsorted_segment_max"
    for entry in range(BATCH):
        options = {"smallest": True} if reduce == "min" else {}
        value = getattr(oracle, name)(x[entry], ids[entry], COUNT, **options)
        if reduce in ("max", "min"):
            assert_same_bits(found[entry], value)
        else:
            assert_within(found[entry], value)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_every_dtype_into_outputs(place: Place, dtype: Any, name: str, rng: np.random.Generator) -> None:
    function, arrays = gradient_call(name, rng, drawn_ids(rng, (BATCH, ROWS), COUNT), COUNT, dtype)
    wanted = looped(function, *arrays)[0]
    assert_same_bits(place.run(function, *arrays, outputs=[(wanted.shape, dtype)])[0], wanted)


@pytest.mark.parametrize("integer", [np.int32, np.int64])
@pytest.mark.parametrize("reduce", ["sum", "max", "min", "prod"])
def test_integers_and_rows_of_maxima(place: Place, integer: Any, reduce: str, rng: np.random.Generator) -> None:
    ids, x = drawn_ids(rng, (BATCH, ROWS), COUNT, np.int32), rng.integers(-9, 9, (BATCH, ROWS, 3)).astype(integer)
    options: dict[str, Any] = {"empty_value": -5}
    outputs = [((BATCH, COUNT, 3), integer)]
    if reduce in ("max", "min"):
        options["return_arg"] = True
        outputs.append(((BATCH, COUNT, 3), np.int32))
    found = place.run(reduction(reduce), x, ids, COUNT, outputs=outputs, **options)
    for one, other in zip(found, looped(reduction(reduce), x, ids, num_segments=COUNT, **options), strict=True):
        assert_same_bits(one, other)


@REDUCTION
def test_a_promise_of_order(place: Place, reduce: str, rng: np.random.Generator) -> None:
    # 900 rows of few segments: more pieces than one.
    ids = np.sort(rng.integers(-1, 4, (2, 900)), 1)
    x = normal(rng, (2, 900, 2), np.float32) * np.float32(0.1) + np.float32(1)
    options = {"indices_are_sorted": True}
    (wanted,) = looped(reduction(reduce), x, ids, num_segments=3, **options)
    assert_same_bits(
        place.run(reduction(reduce), x, ids, 3, outputs=[(wanted.shape, np.float32)], **options)[0], wanted
    )


@REDUCTION
@pytest.mark.parametrize(
    ("size", "rows", "count"), [(0, 5, 3), (2, 0, 3), (2, 5, 0), (0, 0, 0), (1, 5, 3), (2, 5, 1)], ids=str
)
def test_nothing(framework: Framework, reduce: str, size: int, rows: int, count: int) -> None:
    if framework.name in WITHOUT_ARITHMETIC:
        return
    x, ids = np.ones((size, rows, 2), np.float32), np.zeros((size, rows), np.int32)
    found = framework.values(reduction(reduce)(framework.make(x), framework.make(ids), count))
    shape = (size, rows if reduce == "softmax" else count, 2)
    assert found.shape == shape
    if size:
        assert_same_bits(found, looped(reduction(reduce), x, ids, num_segments=count)[0])
    if reduce == "max":
        _, arg = reduction(reduce)(framework.make(x), framework.make(ids), count, return_arg=True)
        assert framework.values(arg).shape == shape
    gradient = pybaracuda.segment_sum_backward(framework.make(np.ones((size, count, 2))), framework.make(ids))
    assert framework.values(gradient).shape == (size, rows, 2)


def test_rows_without_columns_and_strides(place: Place, rng: np.random.Generator) -> None:
    ids, x = drawn_ids(rng, (BATCH, ROWS), COUNT), rng.normal(size=(BATCH, ROWS))
    (wanted,) = looped(pybaracuda.segment_sum, x, ids, num_segments=COUNT)
    assert_same_bits(place.numpy(pybaracuda.segment_sum(place.array(x), place.array(ids), COUNT)), wanted)
    for layout in (place.transposed, place.every_second):
        assert_same_bits(place.numpy(pybaracuda.segment_sum(layout(x), layout(ids), COUNT)), wanted)
    # The same ids for every entry, in memory once.
    shared = place.broadcast(ids[:1], ids.shape)
    (wanted,) = looped(pybaracuda.segment_sum, x, ids[[0] * BATCH], num_segments=COUNT)
    assert_same_bits(place.numpy(pybaracuda.segment_sum(place.array(x), shared, COUNT)), wanted)


@pytest.mark.parametrize("reduce", ["sum", "max", "softmax"])
def test_the_ids_say_how_many_segments(framework: Framework, reduce: str) -> None:
    if framework.name in WITHOUT_ARITHMETIC:
        return
    x, ids = np.arange(12, dtype=np.float32).reshape(2, 3, 2), np.array([[0, -1, 1], [4, 0, 0]])
    found = framework.values(reduction(reduce)(framework.make(x), framework.make(ids)))
    assert_same_bits(found, looped(reduction(reduce), x, ids, num_segments=5)[0])
    assert found.shape[1] == (3 if reduce == "softmax" else 5)
    empty = reduction(reduce)(framework.make(x[:, :0]), framework.make(ids[:, :0]))
    assert framework.values(empty).shape == (2, 0, 2)


def test_outputs_are_written_where_they_lie(framework: Framework, rng: np.random.Generator) -> None:
    if not framework.takes_out or framework.name in WITHOUT_ARITHMETIC:
        return
    ids, x = drawn_ids(rng, (BATCH, ROWS), COUNT, np.int32), normal(rng, (BATCH, ROWS, 2), np.float32)
    wanted = looped(pybaracuda.segment_max, x, ids, num_segments=COUNT, return_arg=True)
    outs = tuple(framework.poisoned(each) for each in wanted)
    found = pybaracuda.segment_max(framework.make(x), framework.make(ids), COUNT, return_arg=True, out=outs)
    for one, out, other in zip(found, outs, wanted, strict=True):
        assert one is out
        assert_same_bits(framework.values(one), other)
    wrong = tuple(framework.make(each.reshape(-1, 2)) for each in wanted)
    with pytest.raises(ValueError, match=r"out\[0\] has shape \(21, 2\); wanted \(3, 7, 2\)"):
        pybaracuda.segment_max(framework.make(x), framework.make(ids), COUNT, return_arg=True, out=wrong)


def test_bfloat16(framework: Framework, rng: np.random.Generator) -> None:
    dtype = DTYPES["bf16"]
    if not knows(framework, dtype):
        return
    ids, x = drawn_ids(rng, (BATCH, ROWS), COUNT), normal(rng, (BATCH, ROWS, 2), dtype)
    found = framework.values(pybaracuda.segment_mean(framework.make(x), framework.make(ids), COUNT))
    assert_same_bits(found, looped(pybaracuda.segment_mean, x, ids, num_segments=COUNT)[0])


def test_functions_by_the_older_name(rng: np.random.Generator) -> None:
    ids, x = drawn_ids(rng, (BATCH, ROWS), COUNT), rng.normal(size=(BATCH, ROWS, 2))
    g = rng.normal(size=(BATCH, COUNT, 2))
    assert_same_bits(pybaracuda.unsorted_segment_max(x, ids, COUNT), pybaracuda.segment_max(x, ids, COUNT))
    backward = pybaracuda.unsorted_segment_max_backward
    assert_same_bits(backward(g, x, ids), looped(backward, g, x, ids)[0])


def refused() -> Iterator[Any]:
    x, ids = np.ones((2, 3, 4), np.float32), np.zeros((2, 3), np.int32)
    g = np.ones((2, 5, 4), np.float32)
    total, backward, invalid = pybaracuda.segment_sum, pybaracuda.segment_max_backward, pybaracuda.InvalidProblemError
    cases: list[tuple[Function, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        (total, (x[:1], ids, 5), {}, ValueError, r"input has shape \(1, 3, 4\); wanted \(2, 3, 4\)"),
        (
            pybaracuda.segment_sum,
            (x, ids[:, :2], 5),
            {},
            ValueError,
            r"segment_ids has shape \(2, 2\); wanted \(2, 3\)",
        ),
        (
            pybaracuda.segment_sum,
            (x[0, :2, 0], ids, 5),
            {},
            ValueError,
            r"input has shape \(2,\); wanted \[B, N, ...\]",
        ),
        (total, (x, ids[None], 5), {}, ValueError, r"segment_ids has shape \(1, 2, 3\); wanted \[N\]"),
        (total, (x, ids, -1), {}, ValueError, "num_segments is -1"),
        (
            pybaracuda.segment_sum,
            (x, ids, 2**30),
            {},
            pybaracuda.InvalidProblemError,
            "a batch of 2 with 1073741824 seg",
        ),
        (total, (x[:0], ids[:0], 2**31), {}, invalid, "a batch of 0 with 2147"),
        (total, (x, ids.astype(np.float32), 5), {}, TypeError, "segment_ids has dtype float32"),
        (pybaracuda.segment_gather, (g[:1], ids), {}, ValueError, r"input has shape \(1, 5, 4\); wanted \(2, 5, 4\)"),
        (pybaracuda.segment_gather, (g[0, 0], ids), {}, ValueError, r"wanted \[B, num_segments, ...\]"),
        (backward, (g[:, :, :3], x, ids), {}, ValueError, r"grad_output has shape \(2, 5, 3\); wanted \(2, 5, 4\)"),
        (backward, (g, None, ids), {"arg": g.astype(np.int64)}, TypeError, "arg has dtype int64; wanted int32"),
    ]
    for number, case in enumerate(cases):
        yield pytest.param(*case, id=f"{case[0].__name__}-{number}")


@pytest.mark.parametrize(("function", "arrays", "options", "error", "text"), list(refused()))
def test_what_is_no_batch(
    function: Function, arrays: tuple[Any, ...], options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        function(*arrays, **options)


def test_one_call_for_all(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    calls = []
    run = _call.Prepared._run

    def counted(self: Any, *arguments: Any) -> None:
        calls.append(self.kernel)
        run(self, *arguments)

    monkeypatch.setattr(_call.Prepared, "_run", counted)
    pybaracuda.segment_sum(rng.normal(size=(BATCH, ROWS)), drawn_ids(rng, (BATCH, ROWS), COUNT), COUNT)
    assert len(calls) == 1


def test_numbers_of_entries() -> None:
    numbers = np.array([[0, 4, 5, -1], [2**31 - 1, -(2**31), 3, 0]], np.int32)
    operand = read("ids", numbers)
    found = operand.adapter.renumbered(operand, "i32", 5, 5, None, 0)
    assert found.dtype == np.int32
    assert found.tolist() == [[0, 4, -1, -1], [-1, -1, 8, 5]]
    assert operand.adapter.renumbered(operand, "i64", 5, 5, None, 0).dtype == np.int64
    # The last number of all that an int32 holds.
    largest = read("ids", np.array([[2**31 - 2], [0]], np.int32))
    assert largest.adapter.renumbered(largest, "i32", 2**31 - 1, 1, None, 0).tolist() == [[2**31 - 2], [1]]


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    size=st.integers(1, 4),
    rows=st.integers(0, 30),
    count=st.integers(0, 6),
    reduce=st.sampled_from(REDUCTIONS),
)
def test_any_batch(seed: int, name: str, size: int, rows: int, count: int, reduce: str) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    ids, x = drawn_ids(rng, (size, rows), count), normal(rng, (size, rows, 3), dtype)
    assert_same_bits(reduction(reduce)(x, ids, count), looped(reduction(reduce), x, ids, num_segments=count)[0])
