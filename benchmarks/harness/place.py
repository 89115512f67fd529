# SPDX-License-Identifier: Apache-2.0
"""Host clocks for the benchmark, and what any place must offer; no operators, no frameworks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pybaracuda import _library
from verify.dtypes import Array
from verify.memory.tensors import HostTensors, workers

# Read before every repetition: several times a large cache. Written instead, it would leave lines in the caches that
# the timed call has to write back first.
_HOST_FLUSH_BYTES = 128 << 20
_RATE_BYTES = 128 << 20
_RATE_REPEATS = 11
# A slow peer's repetitions end when they have taken so long together, but it has a few for its median.
_ENOUGH_SECONDS = 1.0
FEWEST_REPEATS = 3


class Place(HostTensors):
    """Where a run's arrays live and how calls on them are timed. This one is host memory.

    Attributes
    ----------
    flush : str
        How caches are emptied before each repetition, in words.
    """

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
        library = _library.load("cpu")
        return f"{name}, {library.cpu_threads} threads, {library.cpu_isa}"

    def copy(self, nbytes: int) -> Callable[[], Any]:
        """A plain copy of `nbytes` bytes, as fast as the machine does it."""
        source, target = np.ones(max(nbytes, 1), np.uint8), np.ones(max(nbytes, 1), np.uint8)
        cores = len(os.sched_getaffinity(0))
        parts = list(zip(np.array_split(target, cores), np.array_split(source, cores), strict=True))
        return lambda: list(workers().map(lambda part: np.copyto(*part), parts))

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
                list(workers().map(np.max, self._trash))
                start = time.perf_counter()
                call()
                found.append(time.perf_counter() - start)
        return seconds


def enough(seconds: Sequence[float]) -> bool:
    """Whether these repetitions of one call are enough because they took long."""
    return len(seconds) >= FEWEST_REPEATS and sum(seconds) >= _ENOUGH_SECONDS
