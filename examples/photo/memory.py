# SPDX-License-Identifier: Apache-2.0
"""Where the demo's arrays live and how calls on them are timed: host memory, or a GPU's. No operators."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import pybaracuda
from verify.dtypes import Array
from verify.memory.arrays import NumpyArrays, device_arrays

# A timing is the best of this many batches, each long enough for the clock: other programs only ever add to a time.
_BATCHES = 7
_BATCH_SECONDS = 0.003
# One photo keeps a GPU busy for less time than a launch takes.
_TIMES_ON_A_GPU = 16


class NoDeviceError(Exception):
    """Arrays cannot be made on the GPU here; the text says why in one sentence."""


class Memory:
    """Arrays of one kind, and a clock for calls on them."""

    def __init__(self, arrays: NumpyArrays) -> None:
        self.arrays = arrays
        self.backend, self.source, self.dtypes = arrays.backend, arrays.source, arrays.dtypes
        # How many times as large a timed problem is as the one that is checked.
        self.repeats = 1 if arrays.backend == "cpu" else _TIMES_ON_A_GPU

    def put(self, array: Array) -> Any:
        """Copy of a NumPy array in this memory."""
        return self.arrays.put(array)

    def get(self, array: Any) -> Array:
        """The same values as a NumPy array."""
        return self.arrays.get(array)

    def seconds(self, call: Callable[[], object]) -> float:
        """Best time of a call, many enqueued back to back so that a GPU's launch latency is hidden."""

        def batch(calls: int) -> float:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            self.arrays.synchronize()
            return (time.perf_counter() - start) / calls

        batch(1)
        calls = _calls_in_batch(batch(1))
        return min(batch(calls) for _ in range(_BATCHES))

    def copy_seconds(self, num_bytes: int) -> float:
        """Time to copy so many bytes that `num_bytes` are moved in all, read plus written, with every core at work."""
        count = max(num_bytes // 2, 1)
        source, target = self.put(np.zeros(count, np.uint8)), self.put(np.zeros(count, np.uint8))
        alone = self.seconds(lambda: self.arrays.copy(target, source))
        return alone if self.backend != "cpu" else min(alone, _copy_seconds_of_all_cores(target, source, alone))


def _copy_seconds_of_all_cores(target: Array, source: Array, alone: float) -> float:
    """Best time of a copy that all cores share, `alone` being the time that one takes."""
    cores = len(os.sched_getaffinity(0))
    calls = _calls_in_batch(alone)

    def copies(part: tuple[Array, Array]) -> None:
        for _ in range(calls):
            np.copyto(*part)

    # np.copyto lets go of the interpreter's lock, and no core waits for another until all copies are done.
    parts = list(zip(np.array_split(target, cores), np.array_split(source, cores), strict=True))
    found = []
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(_BATCHES):
            start = time.perf_counter()
            list(pool.map(copies, parts))
            found.append((time.perf_counter() - start) / calls)
    return min(found)


def _calls_in_batch(seconds: float) -> int:
    return max(1, min(1000, int(_BATCH_SECONDS / max(seconds, 1e-9))))


def host() -> Memory:
    """NumPy arrays, the CPU library."""
    return Memory(NumpyArrays())


def choose(backend: str) -> Memory:
    """The memory to work in; `auto` takes the GPU when one can be used. Raises NoDeviceError if that is not there."""
    arrays: NumpyArrays | None = None
    if backend != "cpu":
        problem = pybaracuda.backend_problem("cuda")
        arrays = device_arrays() if problem is None else None
        if arrays is None and backend == "cuda":
            raise NoDeviceError(problem or "nothing here makes GPU arrays: install CuPy, torch or pybaracuda[cuda]")
    return host() if arrays is None else Memory(arrays)
