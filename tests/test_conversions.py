# SPDX-License-Identifier: Apache-2.0
"""What array functions convert: narrower coordinates, wider ids, boxes by image, pads and the padding value.

NumPy's results are the reference here; whether they are right is tested with the operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import DLPackExporters, Framework, knows, placed
from function_cases import DTYPE, cases, listed
from operators import RECORDS, joined
from operators.record import Integers, Narrow, numbers
from tolerance import assert_canonical_nans, assert_same_bits

import pybaracuda
from verify.dtypes import DTYPES, Array

NARROW: dict[str, Narrow] = joined(record.narrow for record in RECORDS)
INTEGERS: dict[str, Integers] = joined(record.integers for record in RECORDS)


@pytest.mark.parametrize("token", ["f16", "bf16"])
def test_narrow_coordinates_are_widened_and_their_gradients_narrowed(framework: Framework, token: str) -> None:
    narrow = DTYPES[token]
    if not knows(framework, narrow) or framework.name in ("cuda.core", "cuda-array-interface"):
        return
    for name, converted in NARROW.items():
        for dtype in (narrow, np.dtype(np.float32), np.dtype(np.float64)):
            if converted.is_datas and dtype == narrow:
                continue
            case = cases(dtype)[name]
            rounded = case.arrays[converted.argument].astype(narrow)
            wide = np.float64 if dtype == np.float64 and not converted.alone else np.float32
            expected = listed(case(**{converted.argument: rounded.astype(wide)}))
            arrays = placed(framework, case)
            results = listed(case(**{**arrays, converted.argument: framework.make(rounded)}))
            if converted.narrows:
                expected[-1] = expected[-1].astype(narrow)
            for result, wanted in zip(results, expected, strict=True):
                assert_same_bits(framework.values(result), wanted)


def test_a_narrowed_gradient_goes_into_out() -> None:
    case = cases()["grid_sample_backward"]
    grid = case.arrays["grid"].astype(np.float16)
    expected = case(grid=grid)
    outs = tuple(np.full_like(each, 9) for each in expected)
    results = case(grid=grid, out=outs)
    for result, out, wanted in zip(results, outs, expected, strict=True):
        assert result is out
        assert_same_bits(out, wanted)
    with pytest.raises(TypeError, match=r"out\[1\] has dtype float32; wanted float16"):
        case(grid=grid, out=(None, np.empty(grid.shape, np.float32)))


@pytest.mark.parametrize("token", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nan_in_a_narrowed_result_is_the_canonical_one(framework: Framework, token: str, bad: float) -> None:
    """Every framework's own converter makes another NaN."""
    narrow = DTYPES[token]
    if not knows(framework, narrow) or framework.name in ("cuda.core", "cuda-array-interface"):
        return
    # In float32 beside float64 data.
    narrowing = {name: each for name, each in NARROW.items() if each.narrows and not (token == "f32" and each.alone)}
    for name, converted in narrowing.items():
        argument = converted.argument
        case = cases(np.float64 if token == "f32" else np.float32)[name]
        given = {**case.arrays, argument: case.arrays[argument].astype(narrow)}
        spoiled = argument if converted.alone else next(each for each in given if each.startswith("grad_"))
        # Enough of them for a vectorised converter; half, since an infinite sum of both signs is a NaN too.
        given[spoiled] = given[spoiled].copy()
        given[spoiled].reshape(-1)[::2] = bad
        with np.errstate(all="ignore"):
            expected = listed(case(**given))
        assert expected[-1].dtype == narrow
        assert np.isnan(expected[-1]).sum() > 2
        assert_canonical_nans(expected[-1])
        arrays = {each: framework.make(values) for each, values in given.items()}
        for result, wanted in zip(listed(case(**arrays)), expected, strict=True):
            assert_same_bits(framework.values(result), wanted)
        if framework.takes_out and not isinstance(framework, DLPackExporters):
            outs = [framework.poisoned(wanted) for wanted in expected]
            case(out=tuple(outs) if case.outputs > 1 else outs[0], **arrays)
            for out, wanted in zip(outs, expected, strict=True):
                assert_same_bits(framework.values(out), wanted)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integer_ids_and_zero_points_of_any_width(framework: Framework, dtype: Any) -> None:
    raw = framework.name in ("cuda.core", "cuda-array-interface")
    for name, converted in INTEGERS.items():
        if dtype in converted.but or (raw and dtype not in converted.raw):
            continue
        case = cases()[name]
        values = np.abs(case.arrays[converted.argument]).astype(dtype)
        expected = case(**{converted.argument: values.astype(np.int32)})
        arrays = {**placed(framework, case), converted.argument: framework.make(values)}
        assert_same_bits(framework.values(case(**arrays)), expected)


def test_huge_unsigned_ids_are_dropped() -> None:
    case = cases()["unsorted_segment_max"]
    ids = np.array([1, 2**64 - 1, 3, 1, 2**63, 2**32 + 1, 0], np.uint64)
    expected = case(segment_ids=np.array([1, -1, 3, 1, -1, -1, 0]))
    assert_same_bits(case(segment_ids=ids), expected)


def test_segment_max_of_any_rank() -> None:
    rows = numbers((7, 2, 3))
    ids = np.array([1, 0, 3, 1, 7, -1, 0])
    result = pybaracuda.unsorted_segment_max(rows, ids, 4)
    assert_same_bits(result, pybaracuda.unsorted_segment_max(rows.reshape(7, 6), ids, 4).reshape(4, 2, 3))
    line = pybaracuda.unsorted_segment_max(rows[:, 0, 0], ids, 4)
    assert_same_bits(line, np.ascontiguousarray(result[:, 0, 0]))
    gradient = pybaracuda.unsorted_segment_max_backward(numbers((4, 2, 3)), rows, ids)
    assert gradient.shape == rows.shape


def test_float64_takes_the_scale_in_float32() -> None:
    case = cases(np.float64)["roi_align"]
    scale = 0.1
    result = pybaracuda.roi_align(**case.arrays, output_size=2, spatial_scale=scale)
    rounded = pybaracuda.roi_align(**case.arrays, output_size=2, spatial_scale=float(np.float32(scale)))
    assert_same_bits(result, rounded)


# ---- boxes by image


def test_boxes_may_come_one_array_per_image(framework: Framework) -> None:
    if framework.name in ("cuda.core", "cuda-array-interface", "dlpack"):
        return
    per_image = [numbers((3, 4)) / 4, np.zeros((0, 4), np.float32), numbers((2, 4)) / 3]
    joined = np.concatenate([np.insert(each, 0, index, axis=1) for index, each in enumerate(per_image)])
    image = numbers((3, 2, 6, 7))
    options: dict[str, Any] = {"output_size": 2, "sampling_ratio": 2}
    expected = pybaracuda.roi_align(image, joined.astype(np.float32), **options)
    for kind in (list, tuple):
        boxes = kind(framework.make(each) for each in per_image)
        result = pybaracuda.roi_align(framework.make(image), boxes, **options)
        assert framework.owns(result)
        assert_same_bits(framework.values(result), expected)
        gradient = pybaracuda.roi_align_backward(framework.make(expected), boxes, image.shape, sampling_ratio=2)
        wanted = pybaracuda.roi_align_backward(expected, joined.astype(np.float32), image.shape, sampling_ratio=2)
        assert_same_bits(framework.values(gradient), wanted)
    empty = pybaracuda.roi_align(framework.make(image), [], **options)
    assert framework.values(empty).shape == (0, 2, 2, 2)


@pytest.mark.parametrize("token", ["f16", "bf16"])
def test_an_image_index_is_exact_whatever_the_boxes_dtype(token: str) -> None:
    # 257 is the first integer that bfloat16 rounds, 2049 the first that float16 does.
    count = 2050
    image = np.arange(count, dtype=np.float32).reshape(count, 1, 1, 1)
    boxes = [np.zeros((0, 4), DTYPES[token]) for _ in range(count)]
    boxes[257] = boxes[2049] = np.array([[0, 0, 1, 1]], DTYPES[token])
    result = pybaracuda.roi_align(image, boxes, 1, sampling_ratio=1)
    assert result.ravel().tolist() == [257, 2049]


# ---- pads


def numpy_pad(values: Array, low: tuple[int, ...], high: tuple[int, ...], value: float) -> Array:
    """Crop by negative pads, then pad."""
    part = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(values.shape, low, high, strict=True))
    widths = [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]
    return np.pad(values[part], widths, constant_values=np.array(value).astype(values.dtype))


PADS = [((-1, 2), (1, -2)), ((-2, -1), (-1, -1)), ((0, -5), (0, 3)), ((3, 0), (-4, 0)), ((-4, 0), (6, 0))]


@pytest.mark.parametrize(("low", "high"), PADS, ids=str)
@DTYPE
def test_negative_pads_crop_first(low: tuple[int, ...], high: tuple[int, ...], token: str) -> None:
    values = numbers((4, 5), DTYPES[token])
    for array in (values, np.asfortranarray(values), values[::-1], values[:, ::-1]):
        result = pybaracuda.pad(array, low, high, value=2.5)
        assert_same_bits(result, numpy_pad(array, low, high, 2.5))
    # <pad(x), g> = <x, pad_backward(g)>, exactly: these are small integers over 4.
    wide = values.astype(np.float64)
    output = pybaracuda.pad(wide, low, high)
    grad_output = numbers(output.shape, np.float64)
    grad_input = pybaracuda.pad_backward(grad_output, low, high)
    assert grad_input.shape == wide.shape
    assert np.sum(output * grad_output) == np.sum(wide * grad_input)


def test_one_pad_for_every_axis_and_no_axis_at_all() -> None:
    values = numbers((2, 3))
    assert_same_bits(pybaracuda.pad(values, 1, 2), numpy_pad(values, (1, 1), (2, 2), 0))
    assert_same_bits(pybaracuda.pad(np.float32([[4]]).reshape(()), (), ()), np.array(4, np.float32))
    assert pybaracuda.pad_backward(np.array(4, np.float32), (), ()) == 4


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, -1e40, float("inf"), float("nan"), 0.1, 65520.0, 1 + 2**-9])
@DTYPE
def test_the_padding_value_is_rounded_to_the_dtype(value: float, token: str) -> None:
    dtype = DTYPES[token]
    result = pybaracuda.pad(np.zeros(1, dtype), 1, 0, value=value)
    with np.errstate(over="ignore"):
        # As torch does: through float32 to bfloat16.
        wanted = np.float32(value).astype(dtype) if token == "bf16" else np.array(value).astype(dtype)
    if np.isnan(value):
        assert np.isnan(result[0])
    else:
        assert_same_bits(result[:1], np.array([wanted], dtype))


def test_the_sign_of_a_zero_value_is_not_lost_in_a_cache() -> None:
    values = np.ones(1, np.float32)
    for value in (0.0, -0.0, 0.0, -0.0):
        assert np.signbit(pybaracuda.pad(values, 1, 0, value=value)[0]) == np.signbit(value)


@pytest.mark.parametrize(
    ("low", "high"), [((-5, 0), (0, 0)), ((-3, 0), (-2, 0)), ((0, 0), (3, -6)), ((-6, 0), (9, 0))], ids=str
)
def test_cropping_more_than_there_is(low: tuple[int, ...], high: tuple[int, ...]) -> None:
    with pytest.raises(pybaracuda.InvalidProblemError, match="crop below 0"):
        pybaracuda.pad(numbers((4, 5)), low, high)
