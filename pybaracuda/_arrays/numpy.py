# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays, bfloat16 through ml_dtypes included. Nothing about another framework belongs here."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, c_char
from typing import Any

import numpy as np

from .._dtypes import DTYPE_NAMES, EXTENSION_DTYPES, NUMPY_TOKENS, numpy_dtype, numpy_token
from .._float_environment import DefaultFloatEnvironment
from .interface import HOST, Adapter, Operand, element_strides, fill_boxes, numbered_entries

__all__ = ["NUMPY", "NumpyAdapter"]

# ctypes looks through the buffer protocol, which the extension dtypes do not have.
_BYTE: Any = c_char
_BUFFER_TOKENS = frozenset(DTYPE_NAMES) - EXTENSION_DTYPES


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


class NumpyAdapter(Adapter):
    """Reads the array interface, which read-only and bfloat16 arrays have too."""

    kind = "NumPy"

    def read(self, name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
        dtype = array.dtype
        token = NUMPY_TOKENS.get(dtype) or numpy_token(dtype)
        flags = array.flags
        strides = None
        if not flags.c_contiguous:
            if any(stride % dtype.itemsize for stride in array.strides):
                # A field of a structured array, whose rows no count of elements spans: a copy, never an output.
                array = np.ascontiguousarray(array)
                return Operand(name, array, self, _address(array), array.shape, None, token, HOST, True)
            strides = element_strides(name, array.shape, array.strides, dtype.itemsize)
        writeable = flags.writeable
        if writeable and strides is None and token in _BUFFER_TOKENS and array.size:
            # A fourth of the time of the array interface, which would build a dictionary.
            pointer = addressof(_BYTE.from_buffer(array))
        else:
            pointer = _address(array)
        return Operand(name, array, self, pointer, array.shape, strides, token, HOST, not writeable)

    def empty(self, like: Operand, shape: tuple[int, ...], dtype: str, stream: int) -> tuple[int, Any]:
        array = np.empty(shape, numpy_dtype(dtype))
        if dtype in _BUFFER_TOKENS and array.size:
            return addressof(_BYTE.from_buffer(array)), array
        return _address(array), array

    def contiguous(self, operand: Operand, stream: int) -> Operand:
        return self.read(operand.name, np.ascontiguousarray(operand.array))

    def cast(self, operand: Operand, dtype: str, stream: int) -> Operand:
        # Overflow to infinity is what the framework's own conversion gives, without a warning for it.
        with np.errstate(over="ignore", invalid="ignore"), DefaultFloatEnvironment():
            return self.read(operand.name, np.asarray(operand.array).astype(numpy_dtype(dtype), order="C"))

    def narrow(self, wide: Operand, dtype: str, target: Operand | None, stream: int) -> Any:
        # NumPy and ml_dtypes keep a NaN's sign and highest bits, so the canonical one stays canonical.
        if target is None:
            return self.cast(wide, dtype, stream).array
        with np.errstate(over="ignore", invalid="ignore"), DefaultFloatEnvironment():
            np.copyto(target.array, wide.array, casting="unsafe")
        return target.array

    def renumbered(
        self, operand: Operand, dtype: str, bound: int, step: int, target: Operand | None, stream: int
    ) -> Any:
        numbers = np.asarray(operand.array).astype(numpy_dtype(dtype), copy=False)
        found = numbered_entries(np, numbers, bound, step)
        if target is None:
            return np.ascontiguousarray(found)
        np.copyto(target.array, found)
        return target.array

    def join_boxes(self, boxes: Sequence[Any], dtype: str) -> Any:
        rows = np.empty((sum(map(len, boxes)), 1 + boxes[0].shape[1]), numpy_dtype(dtype))
        with DefaultFloatEnvironment():
            return fill_boxes(rows, boxes)


NUMPY = NumpyAdapter()
