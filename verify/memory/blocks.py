# SPDX-License-Identifier: Apache-2.0
"""Blocks of bytes that one backend's pointers reach; nothing is known here of what they hold."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np

from verify.memory.driver import Pointer, driver

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# What fills an output before a call, so that an element which the call forgets shows: in every byte, 0xFF is a NaN in
# every float type and not the canonical one, 0xA5 a small negative number.
POISONS = (0xFF, 0xA5)
# What device allocators align to.
BOUNDARY = 256


class Memory(Protocol):
    """A block of bytes. What is written is there for calls enqueued later, what is read has all that came before."""

    address: int
    capacity: int

    def write(self, image: Bytes) -> None: ...

    def read(self, count: int) -> Bytes: ...

    def free(self) -> None: ...


class HostMemory:
    def __init__(self, capacity: int, boundary: int = BOUNDARY) -> None:
        self.capacity = capacity
        raw = np.empty(capacity + boundary, np.uint8)
        start = -int(raw.ctypes.data) % boundary
        self.bytes: Bytes = raw[start : start + capacity]
        self.address = int(raw.ctypes.data) + start

    def write(self, image: Bytes) -> None:
        self.bytes[: image.size] = image

    def read(self, count: int) -> Bytes:
        return np.array(self.bytes[:count])

    def free(self) -> None:
        self.bytes = self.bytes[:0]


class DeviceMemory:
    """Device memory straight from the driver, exactly as large as asked for."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        address = Pointer()
        driver().enter()
        driver().call("cuMemAlloc_v2", ctypes.byref(address), capacity)
        self.address = address.value

    def write(self, image: Bytes) -> None:
        driver().enter()
        driver().call("cuMemcpyHtoD_v2", self.address, image.ctypes.data, image.size)
        driver().call("cuCtxSynchronize")

    def read(self, count: int) -> Bytes:
        image = np.empty(count, np.uint8)
        driver().call("cuCtxSynchronize")
        driver().call("cuMemcpyDtoH_v2", image.ctypes.data, self.address, count)
        return image

    def free(self) -> None:
        driver().call("cuMemFree_v2", self.address)


def memory_for(backend: str, capacity: int) -> Memory:
    """A new block that the backend's functions reach."""
    return DeviceMemory(capacity) if backend == "cuda" else HostMemory(capacity)
