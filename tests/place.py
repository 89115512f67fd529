# SPDX-License-Identifier: Apache-2.0
"""Puts NumPy arrays where a backend wants them, calls a function there the strict way, and brings results back.

Nothing here knows an operator.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from oracle.sums import Array
from tolerance import assert_same_bits

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
# Frameworks whose arrays the functions take, by the names that frameworks.py gives them.
HOST_FRAMEWORKS = ("numpy", "torch", "jax", "dlpack")
CUDA_FRAMEWORKS = ("torch-cuda", "cupy", "jax-cuda", "cuda.core", "cuda-array-interface")
# 0xFF in every byte is a NaN in all four dtypes and not the canonical one; 0xA5 is a small negative number.
POISONS = (0xFF, 0xA5)


def coordinate_dtype(dtype: Any) -> np.dtype[Any]:
    """What positions are computed in: float64 for float64 data, float32 for everything else."""
    return DTYPES["f64"] if np.dtype(dtype) == DTYPES["f64"] else DTYPES["f32"]


def available(module: str) -> bool:
    """Whether a package is installed; it is not imported."""
    return importlib.util.find_spec(module) is not None


class Place:
    """Host memory: arrays are NumPy's."""

    backend = "cpu"

    def array(self, values: Array) -> Any:
        """An array of this place with these values; on the host the same object, strides and all."""
        return values

    def numpy(self, array: Any) -> Array:
        return np.asarray(array)

    def poisoned(self, shape: Sequence[int], dtype: Any, byte: int) -> Any:
        """An output whose every byte is ``byte``, so that an element not written shows."""
        itemsize = np.dtype(dtype).itemsize
        raw = np.full((*shape, itemsize), byte, np.uint8)
        return self.array(raw.view(dtype).reshape(tuple(shape)))

    def owns(self, value: Any) -> bool:
        """Whether a value is an array of this place."""
        return isinstance(value, np.ndarray)

    def pointer(self, array: Any) -> int:
        return int(array.ctypes.data)

    def permuted(self, array: Any, axes: Sequence[int]) -> Any:
        return array.transpose(*axes)

    def contiguous(self, array: Any) -> Any:
        return np.ascontiguousarray(array)

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


class TorchPlace(Place):
    """CUDA memory through PyTorch, which alone has bfloat16 tensors."""

    backend = "cuda"

    def array(self, values: Array) -> Any:
        import torch

        contiguous = np.ascontiguousarray(values)
        if contiguous.dtype == DTYPES["bf16"]:
            return torch.from_numpy(contiguous.view(np.int16)).view(torch.bfloat16).reshape(values.shape).cuda()
        return torch.from_numpy(contiguous).reshape(values.shape).cuda()

    def numpy(self, array: Any) -> Array:
        import torch

        host = array.detach().cpu().contiguous()
        if host.dtype == torch.bfloat16:
            return np.asarray(host.view(torch.int16).numpy().view(DTYPES["bf16"]))
        return np.asarray(host.numpy())

    def owns(self, value: Any) -> bool:
        return hasattr(value, "data_ptr")

    def pointer(self, array: Any) -> int:
        return int(array.data_ptr())

    def permuted(self, array: Any, axes: Sequence[int]) -> Any:
        return array.permute(*axes)

    def contiguous(self, array: Any) -> Any:
        return array.contiguous()


class CupyPlace(Place):
    """CUDA memory through CuPy."""

    backend = "cuda"

    def array(self, values: Array) -> Any:
        import cupy

        return cupy.asarray(np.ascontiguousarray(values))

    def numpy(self, array: Any) -> Array:
        import cupy

        return np.asarray(cupy.asnumpy(array))

    def owns(self, value: Any) -> bool:
        return hasattr(value, "__cuda_array_interface__")

    def pointer(self, array: Any) -> int:
        return int(array.data.ptr)

    def contiguous(self, array: Any) -> Any:
        import cupy

        return cupy.ascontiguousarray(array)


def place_for(backend: str, dtype: Any) -> Place | None:
    """Where arrays of ``dtype`` live on ``backend``; None if nothing installed here can make them."""
    if backend == "cpu":
        return Place()
    if np.dtype(dtype) != DTYPES["bf16"] and available("cupy"):
        return CupyPlace()
    return TorchPlace() if available("torch") else None
