# SPDX-License-Identifier: Apache-2.0
"""What a segment without rows is where the caller says so: through the array functions, the plans and the C symbol."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import normal
from place import Place
from tolerance import assert_same_bits

import pybaracuda
from pybaracuda._check.abi_calls import STATUS, Launch, Library, Values, symbols
from pybaracuda.segment.plans import plan_of
from verify.definitions import segment as oracle
from verify.dtypes import DTYPES, Array, bits, rounded

FORMS = ("unsorted", "sorted", "csr")
FORM = pytest.mark.parametrize("form", FORMS)
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "max_with_arg", "min_with_arg")
REDUCTION = pytest.mark.parametrize("reduction", REDUCTIONS)
INTEGERS = pytest.mark.parametrize("integer", [np.int32, np.int64])


def reduced(
    place: Place, reduction: str, form: str, input: Array, ids: Array, count: int, index: Any = np.int32, **options: Any
) -> list[Array]:
    """The result and, of `_with_arg`, the rows; `ids` ascend unless the form is unsorted."""
    reduce = reduction.removesuffix("_with_arg")
    outputs: list[tuple[Any, Any]] = [((count, input.shape[1]), input.dtype)]
    if reduce != reduction:
        options["return_arg"] = True
        outputs.append(((count, input.shape[1]), np.dtype(index)))
    if form == "csr":
        offsets = np.searchsorted(ids, np.arange(count + 1)).astype(index)
        return place.run(pybaracuda.segment_csr, input, offsets, reduce, outputs=outputs, **options)
    function = getattr(pybaracuda, f"segment_{reduce}")
    options["indices_are_sorted"] = form == "sorted"
    return place.run(function, input, ids.astype(index), count, outputs=outputs, **options)


def holed_ids(rng: np.random.Generator, rows: int, count: int, form: str) -> Array:
    """Ids of which every third is missing; some lie outside."""
    ids = rng.integers(-1, count + 1, rows)
    ids = np.where((ids % 3 == 1) & (ids >= 0), ids - 1, ids)
    return ids if form == "unsorted" else np.sort(ids)


def check(
    place: Place, reduction: str, form: str, input: Array, ids: Array, count: int, value: Any, pattern: Array
) -> None:
    """Segments with rows are what they are without a value; the others are its bits, and no row holds them."""
    plain = reduced(place, reduction, form, input, ids, count)
    found = reduced(place, reduction, form, input, ids, count, empty_value=value)
    inside = ids[(ids >= 0) & (ids < count)]
    empty = np.bincount(inside, minlength=count) == 0 if count else np.zeros(0, bool)
    assert_same_bits(found[0][~empty], plain[0][~empty])
    assert (bits(found[0][empty]) == bits(pattern)).all()
    if reduction.endswith("_with_arg"):
        assert_same_bits(found[1], plain[1])
        assert (found[1][empty] == -1).all()


@FORM
@REDUCTION
@pytest.mark.parametrize("value", [0, -2.5, -0.0, math.inf, 0.1, 3, 1e300, 2**70], ids=str)
def test_only_segments_without_rows_take_it(
    place: Place, dtype: Any, rng: np.random.Generator, form: str, reduction: str, value: Any
) -> None:
    ids = holed_ids(rng, 90, 14, form)
    check(place, reduction, form, normal(rng, (90, 5), dtype), ids, 14, value, rounded(np.array([value]), dtype))


@pytest.mark.parametrize("width", [1, 4, 64, 65])
@pytest.mark.parametrize("rows", [0, 1, 600])
@REDUCTION
def test_sizes(place: Place, dtype: Any, rng: np.random.Generator, reduction: str, rows: int, width: int) -> None:
    # 600 rows in one segment of many are more pieces than one.
    ids = np.where(rng.random(rows) < 0.9, 20, holed_ids(rng, rows, 40, "unsorted"))
    input = normal(rng, (rows, width), dtype)
    check(place, reduction, "unsorted", input, ids, 40, -7, rounded(np.array([-7]), dtype))


@FORM
@pytest.mark.parametrize("reduction", ["max", "sum", "min_with_arg"])
def test_nan_is_the_canonical_one(place: Place, dtype: Any, form: str, reduction: str) -> None:
    input, ids = np.ones((2, 2), dtype), np.array([0, 2])
    output = reduced(place, reduction, form, input, ids, 3, empty_value=math.nan)[0]
    assert_same_bits(output[1], rounded(np.full(2, math.nan), dtype))


@FORM
@INTEGERS
@pytest.mark.parametrize("reduction", ["sum", "max", "min", "prod", "max_with_arg", "min_with_arg"])
def test_integers(place: Place, rng: np.random.Generator, form: str, integer: Any, reduction: str) -> None:
    limits = np.iinfo(integer)
    input = rng.integers(limits.min, limits.max, (60, 3), dtype=integer, endpoint=True)
    ids = holed_ids(rng, 60, 10, form)
    # 2**53 + 1 is no float64.
    for value in (limits.min, limits.max, 0, -1.0, np.int64(7), min(2**53 + 1, limits.max - 1)):
        check(place, reduction, form, input, ids, 10, value, np.array([value], integer))


@INTEGERS
@pytest.mark.parametrize("value", [2.5, math.nan, math.inf, -math.inf, 2**63, -(2**63) - 1, 1e300], ids=str)
def test_integers_refuse_what_they_cannot_hold(integer: Any, value: Any) -> None:
    with pytest.raises(pybaracuda.InvalidProblemError, match="empty_value is"):
        pybaracuda.segment_sum(np.ones((2, 1), integer), np.zeros(2, np.int32), 2, empty_value=value)


def test_int32_refuses_what_int64_holds() -> None:
    with pytest.raises(pybaracuda.InvalidProblemError, match="empty_value is 2147483648"):
        pybaracuda.segment_max(np.ones((2, 1), np.int32), np.zeros(2, np.int32), 2, empty_value=2**31)


@pytest.mark.parametrize("value", ["0", b"0", None.__class__, [0], 1j], ids=str)
def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(TypeError, match="empty_value: wanted a number"):
        pybaracuda.segment_sum(np.ones((2, 1), np.float32), np.zeros(2, np.int32), 2, empty_value=value)


def test_operations_without_a_value_of_a_segment() -> None:
    rows, offsets = np.ones((2, 1), np.float32), np.array([0, 2])
    with pytest.raises(pybaracuda.InvalidProblemError, match="softmax has no value of a segment"):
        pybaracuda.segment_csr(rows, offsets, "softmax", empty_value=0)
    with pytest.raises(pybaracuda.InvalidProblemError, match="max_backward has no value"):
        pybaracuda.SegmentSelectionDescriptor("max_backward", 2, 1, 1, empty_value=0.0)


def test_a_value_is_rounded_once() -> None:
    """Rounded to float32 first, 1 + 2**-8 + 2**-40 would be a tie between two bfloat16 numbers."""
    rows, ids = np.ones((1, 1), DTYPES["bf16"]), np.array([0])
    for sign in (1, -1):
        for tail, wanted in ((2.0**-40, 1 + 2.0**-7), (0.0, 1.0), (-(2.0**-40), 1.0)):
            found = pybaracuda.segment_sum(rows, ids, 2, empty_value=sign * (1 + 2.0**-8 + tail))
            assert float(found[1, 0]) == sign * wanted


def test_a_segment_of_nothing_but_its_identity_is_not_empty() -> None:
    """torch_scatter answers 0 for a maximum over rows of -infinity."""
    rows, ids = np.full((2, 1), -np.inf, np.float32), np.array([0, 0])
    assert pybaracuda.segment_max(rows, ids, 2, empty_value=0).ravel().tolist() == [-np.inf, 0]


def test_a_segment_whose_rows_are_all_dropped_is_empty() -> None:
    rows = np.ones((3, 1), np.float32)
    assert pybaracuda.segment_mean(rows, np.array([5, -1, 2]), 2, empty_value=9).ravel().tolist() == [9, 9]
    assert pybaracuda.segment_csr(rows, np.array([3, 3, 7]), "prod", empty_value=9).ravel().tolist() == [9, 9]


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_gradients_know_nothing_of_it(rng: np.random.Generator, reduction: str) -> None:
    rows, ids = rng.normal(size=(20, 3)), rng.integers(0, 4, 20) * 2
    gradient = rng.normal(size=(8, 3))
    function = getattr(pybaracuda, f"segment_{reduction}")
    backward = getattr(pybaracuda, f"segment_{reduction}_backward")
    _, arg = function(rows, ids, 8, return_arg=True, empty_value=3)
    assert_same_bits(backward(gradient, None, ids, arg=arg), backward(gradient, rows, ids))
    output = pybaracuda.segment_logsumexp(rows, ids, 8, empty_value=3)
    plain = pybaracuda.segment_logsumexp(rows, ids, 8)
    assert_same_bits(
        pybaracuda.segment_logsumexp_backward(gradient, rows, output, ids),
        pybaracuda.segment_logsumexp_backward(gradient, rows, plain, ids),
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    ids=st.lists(st.integers(-2, 7), max_size=40),
    form=st.sampled_from(FORMS),
    reduction=st.sampled_from(REDUCTIONS),
    width=st.integers(0, 6),
    count=st.integers(0, 6),
    value=st.floats(width=16, allow_nan=False),
)
def test_any_ids(
    seed: int, name: str, ids: list[int], form: str, reduction: str, width: int, count: int, value: float
) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    found = np.array(ids, np.int64)
    if form != "unsorted":
        found = np.sort(found)
    input = normal(rng, (len(ids), width), dtype)
    check(Place(), reduction, form, input, found, count, value, rounded(np.array([value]), dtype))


# ---- plans and C


@FORM
@REDUCTION
def test_plans(rng: np.random.Generator, form: str, reduction: str) -> None:
    plan_type, descriptor_type = plan_of(reduction)
    plan: Any = plan_type.select(descriptor_type(reduction, 6, 2, 4, form, "f64", "i64", -1.5))
    assert plan.descriptor.operator == "segment_ex"
    assert [spec.name for spec in plan.tensors] == [
        "input", "index", "output", *(["arg"] if reduction.endswith("arg") else []),
    ]  # fmt: skip
    assert plan.can_implement()
    ids = np.array([0, 0, 0, 2, 2, 2])
    rows = rng.normal(size=(6, 2))
    index = np.array([0, 3, 3, 6, 6]) if form == "csr" else ids
    output, arg = np.full((4, 2), 99.0), np.full((4, 2), 99)
    given: dict[str, Any] = {"arg": arg} if reduction.endswith("arg") else {}
    plan.run(input=rows, index=index, output=output, **given)
    expected = reduced(Place(), reduction, form, rows, ids, 4, np.int64)
    assert_same_bits(output[[0, 2]], expected[0][[0, 2]])
    assert (output[[1, 3]] == -1.5).all()
    if given:
        assert_same_bits(arg, expected[1])


def test_plans_of_equal_values_with_other_bits_differ() -> None:
    positive, negative = (
        pybaracuda.SegmentPlan.select(pybaracuda.SegmentDescriptor("sum", 0, 1, 1, empty_value=value))
        for value in (0.0, -0.0)
    )
    assert positive is not negative
    for plan, sign in ((positive, 1), (negative, -1)):
        output = np.full((1, 1), 99, np.float32)
        plan.run(input=np.zeros((0, 1), np.float32), index=np.zeros(0, np.int32), output=output)
        assert math.copysign(1, output[0, 0]) == sign


@pytest.mark.parametrize("reduce", [1, 5])
def test_integers_have_no_mean_and_no_logarithm(backend: str, reduce: int) -> None:
    library = Library(backend)
    values: Values = {"num_rows": 3, "embedding_dim": 2, "num_segments": 2, "form": 0, "reduce": reduce}
    for symbol in symbols():
        if symbol.operator.name == "segment_ex":
            status = library.can_implement(symbol, values)
            if symbol.variant.types["T"] in ("i32", "i64"):
                assert status == STATUS["INVALID_PROBLEM"]
                assert f"options->reduce is {reduce}; wanted" in library.last_error()
            else:
                assert status == STATUS["OK"]


def test_an_argument_that_is_not_asked_for_is_left_alone() -> None:
    library = Library("cpu")
    symbol = next(symbol for symbol in symbols() if symbol.name == "segment_ex_f32")
    values: Values = {"num_rows": 3, "embedding_dim": 1, "num_segments": 2, "form": 0, "reduce": 2, "empty_value": 5.0}
    rows, ids = np.array([1, 3, 2], np.float32), np.zeros(3, np.int32)
    output, arg = np.zeros(2, np.float32), np.full(2, 77, np.int32)
    pointers = {"input": rows, "index": ids, "output": output, "arg": arg}
    launch = Launch({name: array.ctypes.data for name, array in pointers.items()})
    assert library.run(symbol, values, launch) == STATUS["OK"]
    assert output.tolist() == [3, 5]
    assert arg.tolist() == [77, 77]
    assert oracle.unsorted_segment_argmax(rows[:, None], ids, 1).tolist() == [[1]]
