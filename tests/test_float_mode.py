# SPDX-License-Identifier: Apache-2.0
"""A caller whose thread flushes subnormal numbers and rounds upwards gets the bits that everybody gets.

Scalars and arrays are subnormal wherever Python converts something on the way to a kernel.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks import framework_of
from function_cases import FUNCTION, cases, listed
from place import DTYPES
from tolerance import Array

import pybaracuda
from pybaracuda import _call, _float_environment, _plan
from pybaracuda._check.runs import CallerMode

# Subnormal in float32; 5e-324 in float64.
TINY = 1e-42
HOST = pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="no SSE mode")


def forget() -> None:
    """Empty the caches, so that what was converted in one float mode is not used in the other."""
    _plan._build.cache_clear()
    for module in [found for name, found in sys.modules.items() if name.startswith("pybaracuda.")]:
        for name in ("prepare", "prepare_backward"):
            if hasattr(module, name):
                getattr(module, name).cache_clear()


def bits(result: Any, framework: Any) -> list[bytes]:
    return [framework.values(each).tobytes() for each in listed(result)]


def assert_no_mode_shows(call: Callable[[], Any], name: str = "numpy") -> list[bytes]:
    framework = framework_of(name)
    forget()
    expected = bits(call(), framework)
    forget()
    with CallerMode().flushing():
        result = call()
        again = call()  # of the cached problem
    assert bits(result, framework) == expected
    assert bits(again, framework) == expected
    # What was prepared in the caller's mode serves everybody.
    assert bits(call(), framework) == expected
    return expected


def subnormal(values: Array) -> Array:
    """The array in numbers of which every one is subnormal, signs kept; integers as they are."""
    if values.dtype.kind != "f" and values.dtype != DTYPES["bf16"]:
        return values
    words = {2: np.uint16, 4: np.uint32, 8: np.uint64}[values.dtype.itemsize]
    steps = (np.arange(values.size) % 61 * 5 + 3).astype(words).reshape(values.shape)
    if values.itemsize == 4:
        steps <<= 12  # of which 16 bits keep something
    signs = (values.astype(np.float64) < 0).astype(words) << words(8 * values.itemsize - 1)
    return (steps | signs).view(values.dtype)


@FUNCTION
@HOST
@pytest.mark.parametrize("token", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("other", ["f32", "f16", "bf16"])
def test_every_function_on_subnormal_numbers_with_every_conversion(
    framework: str, name: str, token: str, other: str
) -> None:
    """The first float array has one dtype, the others another, if the function takes that."""
    found = framework_of(framework)
    case = cases(DTYPES[token])[name]
    first = next(iter(case.arrays))
    arrays = {}
    for argument, values in case.arrays.items():
        is_float = values.dtype.kind == "f" or values.dtype == DTYPES["bf16"]
        dtype = DTYPES[other] if is_float and argument != first else values.dtype
        arrays[argument] = found.make(subnormal(values.astype(dtype)))
    try:
        case(**arrays)
    except TypeError:
        return  # the operator takes no such mixture, which test_arguments.py is about
    assert_no_mode_shows(lambda: case(**arrays), framework)


@pytest.mark.parametrize("token", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(
    "value", [TINY, -TINY, np.float32(TINY), 5e-324, 3e-8, 6.1e-5, 1e-40, 1.1, -1.1, np.float16(3e-7)]
)
def test_scalars_of_functions_and_plans(token: str, value: Any) -> None:
    image = np.ones((3, 3), DTYPES[token])
    padded = assert_no_mode_shows(lambda: pybaracuda.pad(image, 1, 1, value=value))
    ids = np.array([0, 2, 2], np.int32)
    empty = assert_no_mode_shows(lambda: pybaracuda.segment_sum(image, ids, 4, empty_value=value))
    corner = np.frombuffer(padded[0], DTYPES[token])[0]
    assert np.frombuffer(empty[0], DTYPES[token])[-1].tobytes() == corner.tobytes()
    if token in ("f32", "f64", "f16"):
        assert corner == DTYPES[token].type(value)

    def planned() -> Array:
        descriptor = pybaracuda.PadDescriptor((3, 3), (1, 1), (1, 1), value=value, element=token)
        output = np.zeros((5, 5), DTYPES[token])
        pybaracuda.PadPlan.select(descriptor).run(input=image, output=output)
        return output

    assert assert_no_mode_shows(planned) == padded


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, np.float32, np.bool_, np.int32])
def test_padding_values_that_are_bit_patterns(dtype: Any) -> None:
    array = np.ones(3, dtype)
    value = complex(TINY, 5e-324) if array.dtype.kind == "c" else TINY if array.dtype.kind == "f" else 1
    assert_no_mode_shows(lambda: pybaracuda.pad(array, 1, 1, value=value))


def test_an_integer_that_cannot_hold_a_subnormal_number_says_so_in_every_mode() -> None:
    for call in (
        lambda: pybaracuda.pad(np.ones(3, np.int32), 1, 1, value=1e-310),
        lambda: pybaracuda.segment_sum(np.ones((3, 1), np.int32), np.zeros(3, np.int32), 2, empty_value=1e-310),
    ):
        forget()
        with pytest.raises(ValueError, match="cannot hold"):
            call()
        forget()
        with CallerMode().flushing(), pytest.raises(ValueError, match="cannot hold"):
            call()


def test_boxes_in_a_list_are_widened_whole() -> None:
    image = np.ones((2, 1, 4, 4), np.float64)
    tiny = np.array([[TINY, TINY, 3 * TINY, 4 * TINY]], np.float32)
    for name in ("numpy", "torch", "jax"):
        framework = framework_of(name)
        boxes = [framework.make(tiny), framework.make(tiny.astype(np.float64))]
        given = framework.make(image * np.arange(1.0, 5.0))
        assert_no_mode_shows(
            lambda boxes=boxes, given=given: pybaracuda.roi_align(
                given, boxes, 1, spatial_scale=1e36, sampling_ratio=1, aligned=True
            ),
            name,
        )


def test_zero_is_told_from_subnormal_numbers_by_bits() -> None:
    with CallerMode().flushing():
        found = [_float_environment.is_zero(value) for value in (0.0, -0.0, 5e-324, -5e-324, 1.0)]
        numbers = [_call.number("spatial_scale", value) for value in (5e-324, -0.0)]
    assert found == [True, True, False, False, False]
    assert [number.hex() for number in numbers] == [(5e-324).hex(), "0x0.0p+0"]


def test_threads_of_torch_that_were_started_while_it_flushed() -> None:
    """torch's worker threads keep the mode of the thread that started them."""
    script = """
import numpy as np, torch, pybaracuda
torch.set_num_threads(2)
torch.set_flush_denormal(True)
torch.ones(4_000_000) + 1
torch.set_flush_denormal(False)
gradient = torch.ones(1, 2_000_000, dtype=torch.float64)
scale = torch.from_numpy(np.full(2_000_000, 714, np.uint32).view(np.float32))
assert (pybaracuda.dequantize_per_channel_backward(gradient, scale, 1) != 0).all()
print("done")
"""
    pytest.importorskip("torch")
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout == "done\n", result.stderr
