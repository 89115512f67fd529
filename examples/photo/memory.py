# SPDX-License-Identifier: Apache-2.0
"""Where the demo's arrays live: host memory, or a GPU's through CuPy, torch or cuda.core. No operators."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np

import pybaracuda

Array = np.ndarray[Any, np.dtype[Any]]

# The ABI's names of the float types; bf16 is there only when ml_dtypes is.
DTYPES: dict[str, Any] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16": np.dtype(np.float16)}
if find_spec("ml_dtypes") is not None:
    import ml_dtypes

    DTYPES["bf16"] = np.dtype(ml_dtypes.bfloat16)

# A timing is the best of this many batches, each long enough for the clock: other programs only ever add to a time.
_BATCHES = 7
_BATCH_SECONDS = 0.008
# What fills an output before a call, so that an element the call forgets is seen: NaN in every float type.
_POISON = 0xFF


class NoDeviceError(Exception):
    """Arrays cannot be made on the GPU here; the text says why in one sentence."""


class Memory:
    """Host memory: NumPy arrays, the CPU library."""

    backend = "cpu"
    source = "NumPy"
    # How many times as large a timed problem is as the one that is checked.
    repeats = 1
    dtypes = tuple(DTYPES)

    def put(self, array: Array) -> Any:
        """Copy of a NumPy array in this memory."""
        return array.copy()

    def get(self, array: Any) -> Array:
        """The same values as a NumPy array."""
        return np.asarray(array)

    def synchronize(self) -> None:
        """Wait until everything enqueued is done."""

    def poisoned(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An output array whose every byte is wrong."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.put(np.full(count, _POISON, np.uint8).view(dtype).reshape(shape))

    def seconds(self, call: Callable[[], object]) -> float:
        """Best time of a call, many enqueued back to back so that a GPU's launch latency is hidden."""

        def batch(calls: int) -> float:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            self.synchronize()
            return (time.perf_counter() - start) / calls

        batch(1)
        calls = _calls_in_batch(batch(1))
        return min(batch(calls) for _ in range(_BATCHES))

    def copy_seconds(self, num_bytes: int) -> float:
        """Time to copy so many bytes that `num_bytes` are moved in all, read plus written, with every core at work."""
        source = np.zeros(max(num_bytes // 2, 1), np.uint8)
        target = np.empty_like(source)
        alone = self.seconds(lambda: np.copyto(target, source))
        cores = len(os.sched_getaffinity(0))
        calls = _calls_in_batch(alone)

        def copies(part: tuple[Array, Array]) -> None:
            for _ in range(calls):
                np.copyto(*part)

        # np.copyto lets go of the interpreter's lock, and no core waits for another until all copies are done.
        parts = list(zip(np.array_split(target, cores), np.array_split(source, cores), strict=True))
        best = alone
        with ThreadPoolExecutor(cores) as pool:
            for _ in range(_BATCHES):
                start = time.perf_counter()
                list(pool.map(copies, parts))
                best = min(best, (time.perf_counter() - start) / calls)
        return best


def _calls_in_batch(seconds: float) -> int:
    return max(1, min(1000, int(_BATCH_SECONDS / max(seconds, 1e-9))))


class _DeviceMemory(Memory):
    backend = "cuda"
    # One photo keeps a GPU busy for less time than a launch takes.
    repeats = 16

    def copy_seconds(self, num_bytes: int) -> float:
        count = max(num_bytes // 2, 1)
        source, target = self.put(np.zeros(count, np.uint8)), self.put(np.zeros(count, np.uint8))
        return self.seconds(lambda: self._copy(target, source))

    def _copy(self, target: Any, source: Any) -> None:
        raise NotImplementedError


class _CupyMemory(_DeviceMemory):
    source = "CuPy"
    dtypes = ("f32", "f64", "f16")

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy

    def put(self, array: Array) -> Any:
        return self._cupy.asarray(array)

    def get(self, array: Any) -> Array:
        return np.asarray(self._cupy.asnumpy(array))

    def synchronize(self) -> None:
        self._cupy.cuda.get_current_stream().synchronize()

    def _copy(self, target: Any, source: Any) -> None:
        self._cupy.copyto(target, source)


class _TorchMemory(_DeviceMemory):
    source = "torch"

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def put(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":  # torch does not know ml_dtypes' type; the bits are the same
            bits = self._torch.from_numpy(array.view(np.int16).copy())
            return bits.view(self._torch.bfloat16).cuda()
        return self._torch.from_numpy(array.copy()).cuda()

    def get(self, array: Any) -> Array:
        if array.dtype == self._torch.bfloat16:
            return np.asarray(array.view(self._torch.int16).cpu().numpy()).view(DTYPES["bf16"])
        return np.asarray(array.cpu().numpy())

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def _copy(self, target: Any, source: Any) -> None:
        target.copy_(source)


class _CudaCoreMemory(_DeviceMemory):
    source = "cuda.core"
    dtypes = ("f32", "f64", "f16")

    def __init__(self) -> None:
        from cuda.core import Device
        from cuda.core.utils import StridedMemoryView

        self._view = StridedMemoryView
        self._device = Device()
        self._device.set_current()
        # The stream that the package uses where an array's framework has no notion of a current one.
        self._stream = self._device.default_stream

    def put(self, array: Array) -> Any:
        from cuda.bindings import driver

        dense = np.ascontiguousarray(array)
        buffer = self._device.memory_resource.allocate(max(dense.nbytes, 1), stream=self._stream)
        self._stream.sync()
        _succeed(driver.cuMemcpyHtoD(int(buffer.handle), dense.ctypes.data, dense.nbytes))
        return self._view.from_buffer(buffer, shape=dense.shape, dtype=dense.dtype)

    def get(self, array: Any) -> Array:
        from cuda.bindings import driver

        result = np.empty(array.shape, array.dtype)
        self._stream.sync()
        _succeed(driver.cuMemcpyDtoH(result.ctypes.data, array.ptr, result.nbytes))
        return result

    def synchronize(self) -> None:
        self._stream.sync()

    def _copy(self, target: Any, source: Any) -> None:
        from cuda.bindings import driver

        count = int(np.prod(source.shape)) * source.dtype.itemsize
        _succeed(driver.cuMemcpyDtoDAsync(target.ptr, source.ptr, count, self._stream.handle))


def _succeed(answer: tuple[Any, ...]) -> None:
    if int(answer[0]) != 0:
        raise RuntimeError(f"CUDA driver: {answer[0]}")


# Tried in this order; the first whose arrays can be made on this machine's GPU is taken.
_DEVICE_MEMORIES: tuple[type[_DeviceMemory], ...] = (_CupyMemory, _TorchMemory, _CudaCoreMemory)


def _device_memory() -> Memory | None:
    for kind in _DEVICE_MEMORIES:
        try:
            memory = kind()
            memory.get(memory.put(np.zeros(1, np.float32)))
        except (ImportError, AssertionError, RuntimeError):
            continue  # not installed, or without CUDA: torch asserts then, CuPy and cuda.core raise RuntimeErrors
        return memory
    return None


def choose(backend: str) -> Memory:
    """The memory to work in; `auto` takes the GPU when one can be used. Raises NoDeviceError if that is not there."""
    memory: Memory | None = None
    if backend != "cpu":
        problem = pybaracuda.backend_problem("cuda")
        memory = _device_memory() if problem is None else None
        if memory is None and backend == "cuda":
            raise NoDeviceError(problem or "nothing here makes GPU arrays: install CuPy, torch or pybaracuda[cuda]")
    return memory or Memory()
