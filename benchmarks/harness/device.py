# SPDX-License-Identifier: Apache-2.0
"""A GPU's memory and clock through the CUDA driver alone, so that the benchmark needs no framework; no operators."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import _machine
from .._arrays import numpy_dtype, numpy_token
from .draw import Array
from .place import Place, Tensor, copy_bytes, enough, same_bits

# Written before every repetition: ten times the L2 cache of an H100, and long enough to enqueue a call meanwhile.
_FLUSH_BYTES = 512 << 20
_STAGING_BYTES = 32 << 20
_RATE_BYTES = 1 << 30
_RATE_REPEATS = 21
_HOST_TRIALS = 3

_Pointer = ctypes.c_uint64
_SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [ctypes.c_uint],
    "cuDeviceGet": [ctypes.POINTER(ctypes.c_int), ctypes.c_int],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int],
    "cuCtxSetCurrent": [ctypes.c_void_p],
    "cuCtxSynchronize": [],
    "cuMemAlloc_v2": [ctypes.POINTER(_Pointer), ctypes.c_size_t],
    "cuMemFree_v2": [_Pointer],
    "cuMemHostAlloc": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint],
    "cuMemcpyHtoD_v2": [_Pointer, ctypes.c_void_p, ctypes.c_size_t],
    "cuMemcpyDtoH_v2": [ctypes.c_void_p, _Pointer, ctypes.c_size_t],
    "cuMemcpyDtoDAsync_v2": [_Pointer, _Pointer, ctypes.c_size_t, ctypes.c_void_p],
    "cuMemsetD8Async": [_Pointer, ctypes.c_uint8, ctypes.c_size_t, ctypes.c_void_p],
    "cuEventCreate": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint],
    "cuEventRecord": [ctypes.c_void_p, ctypes.c_void_p],
    "cuEventSynchronize": [ctypes.c_void_p],
    "cuEventElapsedTime": [ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_void_p],
}


class _Driver:
    """The driver's functions; each raises on failure."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        for name, types in _SIGNATURES.items():
            getattr(library, name).argtypes = types
        self._library = library

    def __call__(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name} failed: {(text.value or b'unknown error').decode()} ({code})")


class DevicePlace(Place):
    """The first GPU, its primary context and its default stream, which frameworks use too."""

    backend = "cuda"
    flush = f"{_FLUSH_BYTES >> 20} MiB written"

    def __init__(self) -> None:
        self._cuda = _Driver()
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._cuda("cuInit", 0)
        self._cuda("cuDeviceGet", ctypes.byref(device), 0)
        self._cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._cuda("cuCtxSetCurrent", context)
        staging = ctypes.c_void_p()
        self._cuda("cuMemHostAlloc", ctypes.byref(staging), _STAGING_BYTES, 0)
        self._staging_pointer = staging.value or 0
        self._staging = np.ctypeslib.as_array((ctypes.c_uint8 * _STAGING_BYTES).from_address(self._staging_pointer))
        self._allocated: list[int] = []
        self._flushed = self._allocate(_FLUSH_BYTES)
        self._allocated.clear()  # that one is kept
        self._start, self._stop = self._event(), self._event()
        self._flush_seconds = self._seconds(lambda: self._flush(1), 0)

    @property
    def device(self) -> str:
        return _machine.device_name(0)

    def _allocate(self, nbytes: int) -> int:
        pointer = _Pointer()
        self._cuda("cuMemAlloc_v2", ctypes.byref(pointer), max(nbytes, 1))
        self._allocated.append(pointer.value)
        return pointer.value

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._cuda("cuEventCreate", ctypes.byref(event), 0)
        return event

    def empty(self, shape: tuple[int, ...], element: str) -> Tensor:
        pointer = self._allocate(math.prod(shape) * numpy_dtype(element).itemsize)
        return Tensor(pointer, shape, element, None)

    def put(self, array: Array) -> Tensor:
        dense = np.ascontiguousarray(array)
        tensor = self.empty(array.shape, numpy_token(array.dtype))
        self._cuda("cuMemcpyHtoD_v2", tensor.pointer, dense.ctypes.data, dense.nbytes)
        return tensor

    def view(self, tensor: Tensor) -> Array:
        raise TypeError("device memory has no host view")

    def get(self, tensor: Tensor) -> Array:
        result = np.empty(tensor.shape, numpy_dtype(tensor.element))
        self.wait()
        flat = result.reshape(-1).view(np.uint8)
        for start, part in self._pieces(tensor):
            copy_bytes(flat[start : start + len(part)], part)
        return result

    def same(self, tensor: Tensor, array: Array) -> bool:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.wait()
        if tensor.nbytes != flat.size:
            return False
        return all(same_bits(flat[start : start + len(part)], part) for start, part in self._pieces(tensor))

    def _pieces(self, tensor: Tensor) -> Iterator[tuple[int, Array]]:
        """The tensor's bytes piece by piece through pinned memory, and where each begins; the next overwrites it."""
        for start in range(0, tensor.nbytes, _STAGING_BYTES):
            count = min(_STAGING_BYTES, tensor.nbytes - start)
            self._cuda("cuMemcpyDtoH_v2", self._staging_pointer, tensor.pointer + start, count)
            yield start, self._staging[:count]

    def fill(self, tensor: Tensor, byte: int) -> None:
        self._cuda("cuMemsetD8Async", tensor.pointer, byte, tensor.nbytes, None)

    def wait(self) -> None:
        self._cuda("cuCtxSynchronize")

    def release(self) -> None:
        self.wait()
        for pointer in self._allocated:
            self._cuda("cuMemFree_v2", pointer)
        self._allocated.clear()

    def copy(self, nbytes: int) -> Callable[[], Any]:
        source, target = (self.empty((max(nbytes, 1),), "u8") for _ in range(2))
        self.fill(source, 1)
        return lambda: self._cuda("cuMemcpyDtoDAsync_v2", target.pointer, source.pointer, nbytes, None)

    def copy_rate(self) -> float:
        (seconds,) = self.times([self.copy(_RATE_BYTES)], _RATE_REPEATS)
        self.release()
        return 2 * _RATE_BYTES / float(np.median(seconds))

    def floor(self) -> float:
        (seconds,) = self.times(
            [lambda: self._cuda("cuMemsetD8Async", self._flushed, 0, 1, None)],
            _RATE_REPEATS,
        )
        return float(np.median(seconds))

    def _flush(self, passes: int) -> None:
        for number in range(passes):
            self._cuda("cuMemsetD8Async", self._flushed, number, _FLUSH_BYTES, None)

    def _seconds(self, call: Callable[[], Any], passes: int) -> float:
        """Device time of one call, from when everything before it is done to when it is done."""
        self._flush(passes)
        self._cuda("cuEventRecord", self._start, None)
        call()
        self._cuda("cuEventRecord", self._stop, None)
        self._cuda("cuEventSynchronize", self._stop)
        milliseconds = ctypes.c_float()
        self._cuda("cuEventElapsedTime", ctypes.byref(milliseconds), self._start, self._stop)
        return milliseconds.value / 1e3

    def _passes(self, call: Callable[[], Any]) -> int:
        """How often the flush must run to keep the GPU busy while the host enqueues the call."""
        trials = []
        for _ in range(_HOST_TRIALS):
            self.wait()
            start = time.perf_counter()
            call()
            trials.append(time.perf_counter() - start)
        self.wait()
        return 1 + math.ceil(1.5 * min(trials) / self._flush_seconds)

    def times(self, calls: Sequence[Callable[[], Any]], repeat: int) -> list[list[float]]:
        passes = [self._passes(call) for call in calls]
        seconds: list[list[float]] = [[] for _ in calls]
        for _ in range(repeat):
            for call, count, found in zip(calls, passes, seconds, strict=True):
                if not enough(found):
                    found.append(self._seconds(call, count))
        self.wait()
        return seconds
