# SPDX-License-Identifier: Apache-2.0
"""What array functions refuse, naming the argument: kinds, dtypes, shapes, options, outputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from function_cases import FUNCTION, cases, listed
from operators import OF_CALL, RECORDS
from operators.record import Refusal, numbers
from tolerance import assert_same_bits

import pybaracuda
from verify.dtypes import Array


def refusals() -> Iterator[Refusal]:
    """What follows from the calls, and what the records add."""
    for record in RECORDS:
        calls = record.calls(np.float32)
        for name, call in calls.items():
            for argument, values in call.arrays.items():
                yield from refusals_of_every_array(name, argument, values)
                for dtype, text in record.refused_dtypes(name):
                    yield Refusal(name, {argument: values.astype(dtype)}, TypeError, f"{re.escape(argument)} {text}")
                if argument not in record.any_rank.get(name, ()):
                    yield Refusal(name, {argument: values[..., None]}, ValueError, "has shape")
            for argument in record.floats_only.get(name, ()):
                integers = np.zeros(call.arrays[argument].shape, np.int32)
                text = f"{re.escape(argument)} has dtype int32; wanted float"
                yield Refusal(name, {argument: integers}, TypeError, text)
        yield from record.bad_arrays(calls)


def refusals_of_every_array(name: str, argument: str, values: Array) -> Iterator[Refusal]:
    text = re.escape(argument)
    yield Refusal(name, {argument: values.tolist()}, TypeError, rf"{text}(\[0\])?: wanted an array .* got list")
    if argument not in ("arg", "mask", "weight", "per_sample_weights"):  # None is their default
        yield Refusal(name, {argument: None}, TypeError, f"{text}: wanted an array .* got NoneType")
    yield Refusal(name, {argument: 3.0}, TypeError, f"{text}: wanted an array .* got float")
    masked = np.ma.masked_array(values, values == 0)
    yield Refusal(name, {argument: masked}, TypeError, f"{text}: a masked array")
    if values.dtype.itemsize > 1:
        swapped = values.astype(values.dtype.newbyteorder(">"))
        yield Refusal(name, {argument: swapped}, TypeError, f"{text} has dtype .* foreign byte order")
    yield Refusal(name, {argument: values.astype(object)}, TypeError, f"{text} has dtype object")


def numbered(found: Iterable[Refusal]) -> Iterator[Any]:
    """With ids that another operator does not change."""
    counts: Counter[str] = Counter()
    for refusal in found:
        label = f"{refusal.name}-{'-'.join(refusal.replaced)}"
        yield pytest.param(refusal, id=f"{label}-{counts[label]}")
        counts[label] += 1


@pytest.mark.parametrize("refusal", list(numbered(refusals())))
def test_bad_arrays(refusal: Refusal) -> None:
    case = cases()[refusal.name]
    with pytest.raises(refusal.error, match=refusal.text):
        case(**refusal.replaced)


@pytest.mark.parametrize(
    ("name", "option", "value", "error", "text"), [each for record in RECORDS for each in record.bad_options]
)
def test_bad_options(name: str, option: str, value: Any, error: type[Exception], text: str) -> None:
    case = cases()[name]
    # Twice, and after a success: nothing may be remembered from either.
    case()
    for _ in range(2):
        with pytest.raises(error, match=re.escape(text)):
            case._replace(options={**case.options, option: value})()


def test_more_than_eight_axes() -> None:
    with pytest.raises(pybaracuda.InvalidProblemError, match="rank is 9"):
        pybaracuda.pad(np.zeros((1,) * 9, np.float32), 1, 1)


@FUNCTION
def test_bad_outputs(name: str) -> None:
    case = cases()[name]
    expected = listed(case())
    label = r"out\[0\]" if case.outputs > 1 else "out"

    def attempt(out: Any, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=label + text):
            case(out=(out, *[None] * (case.outputs - 1)) if case.outputs > 1 else out)

    first = expected[0]
    attempt(first.astype(np.float64), TypeError, f" has dtype float64; wanted {first.dtype.name}")
    attempt(np.zeros((1, *first.shape), first.dtype), ValueError, " has shape")
    attempt(first.tolist(), TypeError, ": wanted an array")
    frozen = first.copy()
    frozen.flags.writeable = False
    attempt(frozen, ValueError, ": the array is read-only")
    attempt(jnp.asarray(first), TypeError, ": JAX arrays are immutable")
    if not OF_CALL[name].takes_strided_outputs:
        strided = np.zeros((*first.shape[:-1], first.shape[-1] * 2), first.dtype)[..., ::2]
        # One axis is in Fortran's order as it is in C's.
        for each in (strided, *([np.asfortranarray(strided)] if first.ndim > 1 else [])):
            attempt(each, ValueError, ": the array is not contiguous")


@FUNCTION
def test_an_output_may_not_share_memory_with_an_input(name: str) -> None:
    case = cases()[name]
    expected = listed(case())
    first = expected[0]
    others = [None] * (case.outputs - 1)
    for argument, values in case.arrays.items():
        # One block of memory: the input, and an output that starts at its last byte's element.
        block = np.zeros(values.nbytes + first.nbytes, np.uint8)
        shared = block[: values.nbytes].view(values.dtype).reshape(values.shape)
        shared[...] = values
        start = (values.nbytes - 1) // first.itemsize * first.itemsize
        overlapping = block[start : start + first.nbytes].view(first.dtype).reshape(first.shape)
        beside = block[values.nbytes :]
        if beside.ctypes.data % first.itemsize == 0:
            touching = beside.view(first.dtype).reshape(first.shape)
            outs = (touching, *others) if others else touching
            assert_same_bits(listed(case(**{argument: shared}, out=outs))[0], first)
        shared[...] = values
        with pytest.raises(ValueError, match=f"shares memory with {re.escape(argument)}"):
            case(**{argument: shared}, out=(overlapping, *others) if others else overlapping)


def test_two_outputs_may_not_share_memory() -> None:
    case = cases()["grid_sample_backward"]
    grad_input, grad_grid = case()
    block = np.zeros(grad_input.size + grad_grid.size, np.float32)
    first = block[: grad_input.size].reshape(grad_input.shape)
    with pytest.raises(ValueError, match=r"out\[1\] shares memory with out\[0\]"):
        case(out=(first, block[grad_input.size - 1 : -1].reshape(grad_grid.shape)))
    second = block[grad_input.size :].reshape(grad_grid.shape)
    results = case(out=(first, second))
    assert results[0] is first
    assert results[1] is second
    assert_same_bits(first, grad_input)
    assert_same_bits(second, grad_grid)


def test_an_elementwise_gradient_may_be_computed_in_place() -> None:
    case = cases()["dequantize_per_channel_backward"]
    gradient = case.arrays["grad_output"].copy()
    expected = case()
    assert case(grad_output=gradient, out=gradient) is gradient
    assert_same_bits(gradient, expected)


@pytest.mark.parametrize(
    ("boxes", "error", "text"),
    [
        ([np.zeros((2, 5), np.float32)], ValueError, r"boxes\[0\] has shape \(2, 5\); wanted \[L, 4\]"),
        ([np.zeros((2, 4), np.int32)], TypeError, r"boxes\[0\] has dtype int32"),
        ([np.zeros((2, 4), np.float64)], TypeError, "boxes has dtype float64"),
        ([np.zeros((2, 4), np.float32)] * 3, ValueError, "boxes holds 3 arrays; input has 2 images"),
        ([[0, 0, 1, 1]], TypeError, r"boxes\[0\]: wanted an array"),
    ],
    ids=["columns", "integers", "double", "too many", "nested list"],
)
def test_bad_lists_of_boxes(boxes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pybaracuda.roi_align(numbers((2, 3, 6, 7)), boxes, 2)
