# SPDX-License-Identifier: Apache-2.0
"""Memory that the C functions read and write, with canary bytes around every tensor; no operator is named here."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

CANARY = 0xC3
FILLS = (0xA5, 0x5A)  # complements: no byte of a result equals both
BOUNDARY = 256  # what device allocators align to
CANARY_BYTES = 64  # the widest vector store


class Memory(Protocol):
    """A block of bytes that one backend's pointers reach."""

    address: int
    capacity: int

    def write(self, image: Bytes) -> None: ...

    def read(self, count: int) -> Bytes: ...


class HostMemory:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        raw = np.zeros(capacity + BOUNDARY, np.uint8)
        start = -int(raw.ctypes.data) % BOUNDARY
        self._bytes = raw[start : start + capacity]
        self.address = int(self._bytes.ctypes.data)

    def write(self, image: Bytes) -> None:
        self._bytes[: image.size] = image

    def read(self, count: int) -> Bytes:
        return self._bytes[:count].copy()


class DeviceMemory:
    """Device memory straight from the driver, so that the raw ABI is tested without any Python package for CUDA."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._driver = ctypes.CDLL("libcuda.so.1")
        device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        # The primary context is the one that the runtime inside the library uses.
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(capacity))
        self._context = context
        self.address = address.value

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        assert status == 0, f"{name} answered {status}"

    def write(self, image: Bytes) -> None:
        self._call("cuCtxSetCurrent", self._context)
        self._call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), ctypes.c_void_p(image.ctypes.data), _bytes(image.size)
        )
        self._call("cuCtxSynchronize")

    def read(self, count: int) -> Bytes:
        image = np.empty(count, np.uint8)
        self._call("cuCtxSynchronize")
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(image.ctypes.data), ctypes.c_uint64(self.address), _bytes(count))
        return image


def _bytes(count: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(count)


def memory_for(backend: str, capacity: int) -> Memory:
    return DeviceMemory(capacity) if backend == "cuda" else HostMemory(capacity)


class Arena:
    """Named regions of a memory, each `offset` bytes past a 256-byte boundary, canaries between them."""

    def __init__(self, memory: Memory, sizes: Mapping[str, int], offsets: Mapping[str, int] | None = None) -> None:
        self._memory = memory
        self._regions: dict[str, slice] = {}
        end = CANARY_BYTES
        for name, size in sizes.items():
            start = -(-end // BOUNDARY) * BOUNDARY + (offsets or {}).get(name, 0)
            self._regions[name] = slice(start, start + size)
            end = start + size + CANARY_BYTES
        assert end <= memory.capacity, f"{end} bytes do not fit in the arena's {memory.capacity}"
        self.image: Bytes = np.full(end, CANARY, np.uint8)

    def address(self, name: str) -> int:
        return self._memory.address + self._regions[name].start

    def put(self, name: str, content: Bytes) -> None:
        self.image[self._regions[name]] = content

    def fill(self, name: str, byte: int) -> None:
        self.image[self._regions[name]] = byte

    def write(self) -> None:
        self._memory.write(self.image)

    def read(self) -> Bytes:
        return self._memory.read(self.image.size)

    def part(self, image: Bytes, name: str) -> Bytes:
        return image[self._regions[name]]

    def changed_regions(self, image: Bytes) -> set[str]:
        """The regions that differ from what was written; "outside" stands for a canary."""
        differs = image != self.image
        changed = set()
        for name, region in self._regions.items():
            if differs[region].any():
                changed.add(name)
                differs[region] = False
        return changed | ({"outside"} if differs.any() else set())
