# SPDX-License-Identifier: Apache-2.0
"""Host memory and host clocks for the benchmark, and what any place must offer; no operators, no frameworks."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from .. import _library, _machine
from .._arrays import numpy_dtype, numpy_token
from .draw import Array

# Read before every repetition: several times a large cache. Written instead, it would leave lines in the caches that
# the timed call has to write back first.
_HOST_FLUSH_BYTES = 128 << 20
_RATE_BYTES = 128 << 20
_RATE_REPEATS = 11
# A core's share of a large array is at least this; handing out less takes longer than the work.
_LEAST_SHARE_BYTES = 1 << 20
# A slow peer's repetitions end when they have taken so long together, but it has a few for its median.
_ENOUGH_SECONDS = 1.0
FEWEST_REPEATS = 3


@dataclass
class Tensor:
    """Dense memory in a place. `owner` keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    element: str
    owner: Any

    @property
    def nbytes(self) -> int:
        """How much memory it is."""
        return math.prod(self.shape) * int(numpy_dtype(self.element).itemsize)


class Place:
    """Where a run's arrays live and how calls on them are timed. This one is host memory.

    Attributes
    ----------
    backend : str
    flush : str
        How caches are emptied before each repetition, in words.
    """

    backend = "cpu"
    flush = f"{_HOST_FLUSH_BYTES >> 20} MiB read"

    @cached_property
    def _trash(self) -> list[Array]:
        return np.array_split(np.ones(_HOST_FLUSH_BYTES // 8, np.uint64), len(os.sched_getaffinity(0)))

    @property
    def device(self) -> str:
        """The name of what computes."""
        name = "CPU"
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    name = line.partition(":")[2].strip()
                    break
        return f"{name}, {_library.load('cpu').cpu_threads} threads, {_machine.cpu_isa()}"

    def empty(self, shape: tuple[int, ...], element: str) -> Tensor:
        """Memory that begins on a cache line, as frameworks allocate it."""
        dtype = numpy_dtype(element)
        raw = np.empty(math.prod(shape) * dtype.itemsize + 64, np.uint8)
        start = -raw.ctypes.data % 64
        return Tensor(raw.ctypes.data + start, shape, element, raw)

    def put(self, array: Array) -> Tensor:
        """A copy of a NumPy array."""
        tensor = self.empty(array.shape, numpy_token(array.dtype))
        copy_bytes(self.view(tensor), np.ascontiguousarray(array))
        return tensor

    def view(self, tensor: Tensor) -> Array:
        """Host memory as a NumPy array, without a copy; it must not outlive the tensor."""
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * tensor.nbytes).from_address(tensor.pointer))
        return np.asarray(raw.view(numpy_dtype(tensor.element)).reshape(tensor.shape))

    def get(self, tensor: Tensor) -> Array:
        """The values as a new NumPy array."""
        result = np.empty(tensor.shape, numpy_dtype(tensor.element))
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
        """Free what `put`, `empty` and `copy` made; their tensors must not be used any more."""

    def copy(self, nbytes: int) -> Callable[[], Any]:
        """A plain copy of `nbytes` bytes, as fast as the machine does it."""
        source, target = np.ones(max(nbytes, 1), np.uint8), np.ones(max(nbytes, 1), np.uint8)
        cores = len(os.sched_getaffinity(0))
        parts = list(zip(np.array_split(target, cores), np.array_split(source, cores), strict=True))
        return lambda: list(_workers().map(lambda part: np.copyto(*part), parts))

    def copy_rate(self) -> float:
        """Bytes read and written per second by a large plain copy."""
        (seconds,) = self.times([self.copy(_RATE_BYTES)], _RATE_REPEATS)
        self.release()
        return 2 * _RATE_BYTES / float(np.median(seconds))

    def floor(self) -> float:
        """Seconds that a call which does nothing takes by this place's clock."""
        (seconds,) = self.times([lambda: None], _RATE_REPEATS)
        return float(np.median(seconds))

    def times(self, calls: Sequence[Callable[[], Any]], repeat: int) -> list[list[float]]:
        """Seconds of each repetition of each call, in turns, with cold caches; slow calls are repeated less often."""
        seconds: list[list[float]] = [[] for _ in calls]
        for _ in range(repeat):
            for call, found in zip(calls, seconds, strict=True):
                if enough(found):
                    continue
                list(_workers().map(np.max, self._trash))
                start = time.perf_counter()
                call()
                found.append(time.perf_counter() - start)
        return seconds


def enough(seconds: Sequence[float]) -> bool:
    """Whether these repetitions of one call are enough because they took long."""
    return len(seconds) >= FEWEST_REPEATS and sum(seconds) >= _ENOUGH_SECONDS


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)))


def _shared(function: Callable[[Array, Array], Any], one: Array, two: Array) -> list[Any]:
    """A function of matching shares of two dense arrays' bytes, by every core at once where they are large."""
    flat = [each.reshape(-1).view(np.uint8) for each in (one, two)]
    count = max(1, min(len(os.sched_getaffinity(0)), flat[0].size // _LEAST_SHARE_BYTES))
    # Whole words, so that shares can be compared by them.
    ends = [flat[0].size * share // count // 8 * 8 for share in range(1, count)]
    shares = [np.split(each, ends) for each in flat]
    return [function(*flat)] if count == 1 else list(_workers().map(function, *shares))


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
