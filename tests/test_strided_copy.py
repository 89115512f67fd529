# SPDX-License-Identifier: Apache-2.0
"""Strided memory is copied densely, bit for bit, in elements of every width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from place import Place

import pybaracuda
from pybaracuda._arrays import read
from pybaracuda._strided_copy import copy_strided

WIDTHS = (1, 2, 4, 8, 16)
# One dtype of each kind and width that arrays have.
ARRAY_DTYPES = ("int8", "bool", "int16", "float16", "float32", "int64", "complex64", "complex128")


def every_byte(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of random bytes, NaNs with payloads among them; of 0 and 1 for bool."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.random.default_rng(7).random(shape) < 0.5
    content = np.random.default_rng(7).integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    return content.view(dtype).reshape(shape)


@pytest.mark.parametrize("layout", ["transposed", "backwards", "repeated", "every_second"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_is_copied(place: Place, width: int, layout: str) -> None:
    held = every_byte((3, 10, 8), f"V{width}")
    memory = place.array(held.view(np.uint8).reshape(3, 10, 8 * width))
    first, strides, expected = {
        "transposed": (0, (1, 8, 80), held.transpose()),
        "backwards": (79, (80, -8, -1), held[:, ::-1, ::-1]),
        "repeated": (8, (0, 8, 1), np.broadcast_to(held[0, 1:], (3, 9, 8))),
        "every_second": (1, (80, 16, 2), held[:, ::2, 1::2]),
    }[layout]
    target = place.poisoned((expected.nbytes,), np.uint8, 0xA5)
    source = place.pointer(memory) + first * width
    copy_strided(place.backend, width, expected.shape, strides, source, place.pointer(target), 0)
    assert place.numpy(target).tobytes() == expected.tobytes()


def strided_view(values: Any) -> Any:
    """The values in device memory, the first axis varying fastest, as a view of cuda.core's."""
    import cupy
    from cuda.core.utils import StridedMemoryView

    backwards = tuple(range(values.ndim))[::-1]
    array = cupy.asarray(np.ascontiguousarray(values.transpose(backwards))).transpose(backwards)
    return StridedMemoryView.from_any_interface(array, stream_ptr=-1)


@pytest.mark.parametrize("name", ARRAY_DTYPES)
def test_strided_device_views_of_every_width_are_copied(on_cuda: str, name: str) -> None:
    import cupy

    values = every_byte((3, 5, 4), name)
    operand = read("input", strided_view(values))
    assert operand.strides == (1, 3, 15)
    copy = operand.adapter.contiguous(operand, 0)
    assert copy.strides is None
    assert cupy.asnumpy(cupy.from_dlpack(copy.array)).tobytes() == values.tobytes()


def test_a_strided_view_of_bytes_is_an_input(on_cuda: str) -> None:
    import cupy

    values = every_byte((4, 6), np.int8)
    scale, zero_point = np.linspace(0.5, 2, 6, dtype=np.float32), np.arange(6, dtype=np.int32)
    expected = pybaracuda.dequantize_per_channel(values, scale, zero_point, 1)
    result = pybaracuda.dequantize_per_channel(strided_view(values), strided_view(scale), strided_view(zero_point), 1)
    assert cupy.asnumpy(cupy.from_dlpack(result)).tobytes() == expected.tobytes()
