# SPDX-License-Identifier: Apache-2.0
"""A GPU's clock through the CUDA driver alone, so that the benchmark needs no framework; no operators."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pybaracuda import _machine
from verify.memory.blocks import DeviceMemory
from verify.memory.driver import driver
from verify.memory.tensors import DeviceTensors

from .place import Place, enough

# Written before every repetition: ten times the L2 cache of an H100, and long enough to enqueue a call meanwhile.
_FLUSH_BYTES = 512 << 20
_RATE_BYTES = 1 << 30
_RATE_REPEATS = 21
_HOST_TRIALS = 3


class DevicePlace(DeviceTensors, Place):
    """The first GPU, its primary context and its default stream, which frameworks use too."""

    flush = f"{_FLUSH_BYTES >> 20} MiB written"

    def __init__(self) -> None:
        super().__init__()
        self._flushed = DeviceMemory(_FLUSH_BYTES)
        self._start, self._stop = self._event(), self._event()
        self._flush_seconds = self._seconds(lambda: self._flush(1), 0)

    @property
    def device(self) -> str:
        return _machine.device_name(0)

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        driver().call("cuEventCreate", ctypes.byref(event), 0)
        return event

    def copy(self, nbytes: int) -> Callable[[], Any]:
        source, target = (self.empty((max(nbytes, 1),), "u8") for _ in range(2))
        self.fill(source, 1)
        return lambda: driver().call("cuMemcpyDtoDAsync_v2", target.pointer, source.pointer, nbytes, None)

    def copy_rate(self) -> float:
        (seconds,) = self.times([self.copy(_RATE_BYTES)], _RATE_REPEATS)
        self.release()
        return 2 * _RATE_BYTES / float(np.median(seconds))

    def floor(self) -> float:
        (seconds,) = self.times(
            [lambda: driver().call("cuMemsetD8Async", self._flushed.address, 0, 1, None)],
            _RATE_REPEATS,
        )
        return float(np.median(seconds))

    def _flush(self, passes: int) -> None:
        for number in range(passes):
            driver().call("cuMemsetD8Async", self._flushed.address, number, _FLUSH_BYTES, None)

    def _seconds(self, call: Callable[[], Any], passes: int) -> float:
        """Device time of one call, from when everything before it is done to when it is done."""
        self._flush(passes)
        driver().call("cuEventRecord", self._start, None)
        call()
        driver().call("cuEventRecord", self._stop, None)
        driver().call("cuEventSynchronize", self._stop)
        milliseconds = ctypes.c_float()
        driver().call("cuEventElapsedTime", ctypes.byref(milliseconds), self._start, self._stop)
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
