# SPDX-License-Identifier: Apache-2.0
"""Dense tensors, large ones too, as pointers into host memory or a GPU's; no framework has a part in it."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from verify.dtypes import Array, dtype_of, token_of
from verify.memory.blocks import DeviceMemory, HostMemory
from verify.memory.driver import driver

# A core's share of a large array is at least this; handing out less takes longer than the work.
_LEAST_SHARE_BYTES = 1 << 20
_CACHE_LINE = 64
_STAGING_BYTES = 32 << 20


@dataclass
class Tensor:
    """Dense memory. `element` is its dtype's token; `owner` keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    element: str
    owner: Any

    @property
    def nbytes(self) -> int:
        """How much memory it is."""
        return math.prod(self.shape) * dtype_of(self.element).itemsize


class HostTensors:
    """Makes, reads and writes tensors; here in host memory.

    Attributes
    ----------
    backend : str
        Whose functions can be called on them.
    """

    backend = "cpu"

    def empty(self, shape: tuple[int, ...], element: str) -> Tensor:
        """Memory that begins on a cache line, as frameworks allocate it."""
        block = HostMemory(math.prod(shape) * dtype_of(element).itemsize, _CACHE_LINE)
        return Tensor(block.address, shape, element, block)

    def put(self, array: Array) -> Tensor:
        """A copy of a NumPy array."""
        tensor = self.empty(array.shape, token_of(array.dtype))
        copy_bytes(self.view(tensor), np.ascontiguousarray(array))
        return tensor

    def view(self, tensor: Tensor) -> Array:
        """Host memory as a NumPy array, without a copy; it must not outlive the tensor."""
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * tensor.nbytes).from_address(tensor.pointer))
        return np.asarray(raw.view(dtype_of(tensor.element)).reshape(tensor.shape))

    def get(self, tensor: Tensor) -> Array:
        """The values as a new NumPy array."""
        result = np.empty(tensor.shape, dtype_of(tensor.element))
        copy_bytes(result, self.view(tensor))
        return result

    def same(self, tensor: Tensor, array: Array) -> bool:
        """Whether the bits are those of a NumPy array."""
        return same_bits(self.view(tensor), array)

    def fill(self, tensor: Tensor, byte: int) -> None:
        """Write one byte all over; enqueued like a call."""
        ctypes.memset(tensor.pointer, byte, tensor.nbytes)

    def wait(self) -> None:
        """Until everything enqueued is done."""

    def release(self) -> None:
        """Free what `put` and `empty` made; their tensors must not be used any more."""


class DeviceTensors(HostTensors):
    """On the first GPU, in its primary context and on its default stream, which frameworks use too."""

    backend = "cuda"

    def __init__(self) -> None:
        driver().enter()
        staging = ctypes.c_void_p()
        driver().call("cuMemHostAlloc", ctypes.byref(staging), _STAGING_BYTES, 0)
        self._staging_pointer = staging.value or 0
        self._staging = np.ctypeslib.as_array((ctypes.c_uint8 * _STAGING_BYTES).from_address(self._staging_pointer))
        self._allocated: list[DeviceMemory] = []

    def empty(self, shape: tuple[int, ...], element: str) -> Tensor:
        block = DeviceMemory(max(math.prod(shape) * dtype_of(element).itemsize, 1))
        self._allocated.append(block)
        return Tensor(block.address, shape, element, block)

    def put(self, array: Array) -> Tensor:
        tensor = self.empty(array.shape, token_of(array.dtype))
        if tensor.nbytes:
            tensor.owner.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return tensor

    def view(self, tensor: Tensor) -> Array:
        raise TypeError("device memory has no host view")

    def get(self, tensor: Tensor) -> Array:
        result = np.empty(tensor.shape, dtype_of(tensor.element))
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
            driver().call("cuMemcpyDtoH_v2", self._staging_pointer, tensor.pointer + start, count)
            yield start, self._staging[:count]

    def fill(self, tensor: Tensor, byte: int) -> None:
        driver().call("cuMemsetD8Async", tensor.pointer, byte, tensor.nbytes, None)

    def wait(self) -> None:
        driver().call("cuCtxSynchronize")

    def release(self) -> None:
        self.wait()
        for block in self._allocated:
            block.free()
        self._allocated.clear()


@cache
def workers() -> ThreadPoolExecutor:
    """A thread for every core."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)))


def _shared(function: Callable[[Array, Array], Any], one: Array, two: Array) -> list[Any]:
    """A function of matching shares of two dense arrays' bytes, by every core at once where they are large."""
    flat = [each.reshape(-1).view(np.uint8) for each in (one, two)]
    count = max(1, min(len(os.sched_getaffinity(0)), flat[0].size // _LEAST_SHARE_BYTES))
    # Whole words, so that shares can be compared by them.
    ends = [flat[0].size * share // count // 8 * 8 for share in range(1, count)]
    shares = [np.split(each, ends) for each in flat]
    return [function(*flat)] if count == 1 else list(workers().map(function, *shares))


def copy_bytes(target: Array, source: Array) -> None:
    """Copy a dense array onto another of as many bytes."""
    _shared(np.copyto, target, source)


def same_bits(one: Array, two: Array) -> bool:
    """Whether two arrays of one dtype and shape have the same bytes."""
    left, right = (np.ascontiguousarray(each) for each in (one, two))
    return left.nbytes == right.nbytes and all(_shared(_same_bytes, left, right))


def _same_bytes(left: Array, right: Array) -> bool:
    whole = left.size // 8 * 8
    words = np.array_equal(left[:whole].view(np.uint64), right[:whole].view(np.uint64))
    return bool(words and np.array_equal(left[whole:], right[whole:]))
