# SPDX-License-Identifier: Apache-2.0
"""Puts NumPy arrays where a backend wants them, calls a function there the strict way, and brings results back.

Nothing here knows an operator.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tolerance import assert_same_bits

from verify.dtypes import DTYPES, Array
from verify.memory.arrays import CupyArrays, NumpyArrays, TorchArrays
from verify.memory.blocks import POISONS

# Frameworks whose arrays the functions take, by the names that frameworks.py gives them.
HOST_FRAMEWORKS = ("numpy", "torch", "jax", "dlpack")
CUDA_FRAMEWORKS = ("torch-cuda", "cupy", "jax-cuda", "cuda.core", "cuda-array-interface")


def available(module: str) -> bool:
    """Whether a package is installed; it is not imported."""
    return importlib.util.find_spec(module) is not None


class Place:
    """Where a test's arrays live: on the host they are NumPy's."""

    def __init__(self, arrays: NumpyArrays | None = None) -> None:
        self._arrays = arrays or NumpyArrays()
        self.backend = self._arrays.backend

    def array(self, values: Array) -> Any:
        """An array of this place with these values; on the host the same object, strides and all."""
        return values if self.backend == "cpu" else self._arrays.put(values)

    def numpy(self, array: Any) -> Array:
        return self._arrays.get(array)

    def poisoned(self, shape: Sequence[int], dtype: Any, byte: int) -> Any:
        """An output whose every byte is ``byte``, so that an element not written shows."""
        return self._arrays.poisoned(shape, dtype, byte)

    def owns(self, value: Any) -> bool:
        """Whether a value is an array of this place."""
        return self._arrays.owns(value)

    def pointer(self, array: Any) -> int:
        return self._arrays.pointer(array)

    def permuted(self, array: Any, axes: Sequence[int]) -> Any:
        return self._arrays.permuted(array, axes)

    def broadcast(self, values: Array, shape: Sequence[int]) -> Any:
        """The same values as often as a shape has them, in memory once."""
        return self._arrays.broadcast(self.array(values), shape)

    def transposed(self, values: Array) -> Any:
        """The same values with the first axis varying fastest in memory."""
        backwards = tuple(range(values.ndim))[::-1]
        return self.permuted(self.array(np.ascontiguousarray(values.transpose(backwards))), backwards)

    def every_second(self, values: Array) -> Any:
        """The same values in every second place of a longer last axis; the gaps hold poison."""
        wide = self.numpy(self.poisoned((*values.shape[:-1], 2 * values.shape[-1]), values.dtype, 0xFF)).copy()
        wide[..., ::2] = values
        return self.array(wide)[..., ::2]

    def misaligned(self, values: Array) -> Any:
        """The same values, contiguous, at an address that is one element past a 16-byte boundary."""
        itemsize = values.dtype.itemsize
        flat = np.zeros(values.size + 1 + 16 // itemsize, values.dtype)
        # On the host this array itself is used; a device allocator starts on a boundary every time.
        start = (-self.pointer(self.array(flat)) % 16) // itemsize + 1
        flat[start : start + values.size] = values.ravel()
        part = self.array(flat)[start : start + values.size].reshape(values.shape)
        assert self.pointer(part) % 16 == itemsize or values.size == 0
        return part

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        outputs: Sequence[tuple[Sequence[int], Any]],
        **options: Any,
    ) -> list[Array]:
        """Calls ``function`` three times and answers its outputs, all checks passed.

        Twice into poisoned ``out=`` arrays and once without: all three give the same bytes, ``out=``
        is what comes back, and no input changes. On another backend than the CPU the CPU library must
        give these bytes too.
        """
        before = [a.copy() if isinstance(a, np.ndarray) else None for a in arguments]
        placed = [self.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
        results: list[list[Array]] = []
        for byte in POISONS:
            given = tuple(self.poisoned(shape, dtype, byte) for shape, dtype in outputs)
            returned = function(*placed, out=given if len(given) > 1 else given[0], **options)
            answered = returned if len(given) > 1 else (returned,)
            for mine, back in zip(given, answered, strict=True):
                assert back is mine or self.pointer(back) == self.pointer(mine), "out= is not what came back"
            results.append([self.numpy(each) for each in given])
        fresh = function(*placed, **options)
        results.append([self.numpy(each) for each in (fresh if len(outputs) > 1 else (fresh,))])
        if self.backend != "cpu":
            on_host = [self.numpy(a) if self.owns(a) else a for a in arguments]
            again = function(*on_host, **options)
            results.append(list(again) if len(outputs) > 1 else [again])
        for other in results[1:]:
            for one, two in zip(results[0], other, strict=True):
                assert_same_bits(two, one)
        for original, array in zip(before, arguments, strict=True):
            if original is not None:
                assert original.tobytes() == array.tobytes(), "an input was changed"
        return results[0]


def place_for(backend: str, dtype: Any) -> Place | None:
    """Where arrays of ``dtype`` live on ``backend``; None if nothing installed here can make them."""
    if backend == "cpu":
        return Place()
    if np.dtype(dtype) != DTYPES["bf16"] and available("cupy"):
        return Place(CupyArrays())
    return Place(TorchArrays()) if available("torch") else None
