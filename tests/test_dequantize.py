# SPDX-License-Identifier: Apache-2.0
"""dequantize_per_channel and its gradient: one exact product rounded once, so every comparison is to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import QuantizedCase, any_bits, integers, quantized_case
from place import Place
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits

import pybaracuda
from verify.definitions import dequantize as oracle
from verify.dtypes import DTYPES, Array

QUANTIZED = pytest.mark.parametrize("quantized", [np.int8, np.uint8], ids=["s8", "u8"])
SHAPES = pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((5,), 0),
        ((4, 3), 0),
        ((4, 3), 1),
        ((2, 3, 4), 1),
        ((2, 3, 4, 5), 0),
        ((2, 3, 4, 5), 1),
        ((2, 3, 4, 5), 2),
        ((2, 3, 4, 5), 3),
        ((1, 1, 1, 1), 2),
        ((3, 1, 1, 17), 3),
        ((1, 70, 1, 33), 1),
        ((65_537, 2, 3), 1),
        ((2, 65_537, 3), 1),
    ],
)


def forward(place: Place, case: QuantizedCase, input: Any = None, scale: Any = None, zero_point: Any = None) -> Array:
    """The library's output; the arrays given replace the case's by equal ones of another layout."""
    return place.run(
        pybaracuda.dequantize_per_channel,
        case.input if input is None else input,
        case.scale if scale is None else scale,
        case.zero_point if zero_point is None else zero_point,
        case.axis,
        outputs=[(case.input.shape, case.scale.dtype)],
    )[0]


def backward(place: Place, case: QuantizedCase, grad_output: Any = None, scale: Any = None) -> Array:
    return place.run(
        pybaracuda.dequantize_per_channel_backward,
        case.grad_output if grad_output is None else grad_output,
        case.scale if scale is None else scale,
        case.axis,
        outputs=[(case.grad_output.shape, case.scale.dtype)],
    )[0]


def check(place: Place, case: QuantizedCase) -> tuple[Array, Array]:
    """Both directions are the oracle's product rounded once; answers them."""
    output, grad_input = forward(place, case), backward(place, case)
    assert_exact(output, oracle.dequantize_per_channel(case.input, case.scale, case.zero_point, case.axis))
    assert_exact(grad_input, oracle.dequantize_per_channel_backward(case.grad_output, case.scale, case.axis))
    return output, grad_input


@QUANTIZED
@SHAPES
def test_products_are_rounded_once(
    place: Place, dtype: Any, rng: np.random.Generator, quantized: Any, shape: tuple[int, ...], axis: int
) -> None:
    check(place, quantized_case(rng, dtype, quantized, shape, axis))


@QUANTIZED
def test_adjoint_identity_is_exact_on_the_lattice(
    place: Place, dtype: Any, rng: np.random.Generator, quantized: Any
) -> None:
    # With zero points of 0 the function is linear; powers of two and small integers stay within 8 bits.
    case = quantized_case(rng, dtype, quantized, (3, 4, 5), 1)
    case = case._replace(
        input=rng.integers(0, 16, case.input.shape).astype(quantized),
        scale=np.exp2(rng.integers(-3, 3, 4)).astype(dtype),
        zero_point=np.zeros(4, np.int32),
        grad_output=integers(rng, case.input.shape, dtype, 8),
    )
    output, grad_input = (each.astype(np.float64) for each in (forward(place, case), backward(place, case)))
    in_output = np.sum(output * case.grad_output.astype(np.float64))
    assert in_output == np.sum(case.input.astype(np.float64) * grad_input)


@QUANTIZED
def test_every_quantized_value(place: Place, dtype: Any, rng: np.random.Generator, quantized: Any) -> None:
    limits = np.iinfo(quantized)
    values = np.arange(limits.min, limits.max + 1).astype(quantized)
    case = quantized_case(rng, dtype, quantized, (7, 256), 0)
    check(place, case._replace(input=np.tile(values, (7, 1))))


SCALES = [0.0, -0.0, -1.5, 1e-41, 1e30, -1e30, float("inf"), -float("inf"), float("nan"), 1.0, 2.0**-20]


@QUANTIZED
def test_any_scale(place: Place, dtype: Any, rng: np.random.Generator, quantized: Any) -> None:
    # Scales are data: 0, negative, subnormal, overflowing and not finite ones are multiplied like any other.
    case = quantized_case(rng, dtype, quantized, (6, len(SCALES)), 1)
    with np.errstate(over="ignore"):
        scale = np.array(SCALES).astype(dtype)
    # One row at the zero points: 0 * inf is a NaN.
    values = case.input.copy()
    values[0] = case.zero_point.astype(quantized)
    output, grad_input = check(place, case._replace(scale=scale, input=values))
    assert_canonical_nans(output)
    assert_canonical_nans(grad_input)


def test_any_gradient_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = quantized_case(rng, dtype, np.int8, (3, 40), 1)
    # A NaN with a payload went through a product: it leaves as the canonical one.
    _, grad_input = check(place, case._replace(grad_output=any_bits(rng, (3, 40), dtype)))
    assert_canonical_nans(grad_input)


@pytest.mark.parametrize("zero_point", [-129, 128, 256, -32768, 32767])
@QUANTIZED
def test_zero_points_beyond_the_quantized_type(
    place: Place, dtype: Any, rng: np.random.Generator, quantized: Any, zero_point: int
) -> None:
    case = quantized_case(rng, dtype, quantized, (4, 6), 0)
    case = case._replace(zero_point=np.full(4, zero_point, np.int32))
    if dtype.itemsize == 2:
        # 16 bits of difference times 11 bits of scale: with short scales float32 holds the product.
        case = case._replace(scale=np.exp2(rng.integers(-9, -5, 4)).astype(dtype))
    check(place, case)


@pytest.mark.parametrize("zero_point", [-(2**31), 2**31 - 1])
@QUANTIZED
def test_extreme_zero_points_do_not_wrap(
    place: Place, wide_dtype: Any, rng: np.random.Generator, quantized: Any, zero_point: int
) -> None:
    case = quantized_case(rng, wide_dtype, quantized, (2, 5), 1)
    case = case._replace(zero_point=np.full(5, zero_point, np.int32), scale=np.ones(5, wide_dtype))
    actual = forward(place, case)
    exact = case.input.astype(np.float64) - zero_point
    # The difference has 33 bits: float32 rounds it, perhaps after rounding the zero point alone.
    unit = np.spacing(np.float32(2.0**31)) if wide_dtype == np.float32 else 0.0
    assert (np.abs(actual.astype(np.float64) - exact) <= unit).all()


@pytest.mark.parametrize(
    ("shape", "axis"), [((0, 3), 1), ((0, 3), 0), ((3, 0), 0), ((2, 3, 0, 4), 1), ((2, 0, 5, 4), 1)]
)
@QUANTIZED
def test_empty_problems(
    place: Place, dtype: Any, rng: np.random.Generator, quantized: Any, shape: tuple[int, ...], axis: int
) -> None:
    check(place, quantized_case(rng, dtype, quantized, shape, axis))


@QUANTIZED
def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator, quantized: Any) -> None:
    case = quantized_case(rng, dtype, quantized, (2, 3, 4, 5), 1)
    output, grad_input = forward(place, case), backward(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        scale = layout(case.scale)
        assert_same_bits(forward(place, case, layout(case.input), scale, layout(case.zero_point)), output)
        assert_same_bits(backward(place, case, layout(case.grad_output), scale), grad_input)


@pytest.mark.parametrize("inner", [1, 2, 7, 8, 15, 16, 17, 255, 256, 257])
def test_inner_extents_around_vector_widths(place: Place, dtype: Any, rng: np.random.Generator, inner: int) -> None:
    check(place, quantized_case(rng, dtype, np.int8, (3, 5, inner), 1))


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    quantized=st.sampled_from([np.int8, np.uint8]),
    shape=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    data=st.data(),
)
def test_any_problem(seed: int, name: str, quantized: Any, shape: list[int], data: st.DataObject) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    axis = data.draw(st.integers(0, len(shape) - 1))
    check(Place(), quantized_case(rng, dtype, quantized, shape, axis))
