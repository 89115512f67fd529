# SPDX-License-Identifier: Apache-2.0
"""Memory that the C functions read and write, with canary bytes around every tensor; no operator is named here."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from cuda_driver import driver

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

    def free(self) -> None: ...


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

    def free(self) -> None:
        self._bytes = self._bytes[:0]


class DeviceMemory:
    """Device memory straight from the driver, exactly as large as asked for."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        address = ctypes.c_uint64()
        driver().enter()
        driver().call("cuMemAlloc_v2", ctypes.byref(address), _bytes(capacity))
        self.address = address.value

    def write(self, image: Bytes) -> None:
        driver().enter()
        driver().call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), ctypes.c_void_p(image.ctypes.data), _bytes(image.size)
        )
        driver().call("cuCtxSynchronize")

    def read(self, count: int) -> Bytes:
        image = np.empty(count, np.uint8)
        driver().call("cuCtxSynchronize")
        driver().call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(image.ctypes.data), ctypes.c_uint64(self.address), _bytes(count)
        )
        return image

    def free(self) -> None:
        driver().call("cuMemFree_v2", ctypes.c_uint64(self.address))


def _bytes(count: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(count)


def memory_for(backend: str, capacity: int) -> Memory:
    return DeviceMemory(capacity) if backend == "cuda" else HostMemory(capacity)


class Arena:
    """Named regions of a memory, each `offset` bytes past a 256-byte boundary, canaries between them."""

    def __init__(self, memory: Memory, sizes: Mapping[str, int], offsets: Mapping[str, int] | None = None) -> None:
        self._lay_out(sizes, offsets or {})
        assert self.image.size <= memory.capacity, f"{self.image.size} bytes do not fit in {memory.capacity}"
        self._memory = memory

    def _lay_out(self, sizes: Mapping[str, int], offsets: Mapping[str, int]) -> None:
        self._regions: dict[str, slice] = {}
        end = CANARY_BYTES
        for name, size in sizes.items():
            start = -(-end // BOUNDARY) * BOUNDARY + offsets.get(name, 0)
            self._regions[name] = slice(start, start + size)
            end = start + size + CANARY_BYTES
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


class Apart(Arena):
    """The same regions, each an allocation of its own that ends where the region ends.

    A tool that watches accesses sees the first byte past an end; the canaries between the regions are the
    image's alone. A region that nothing was put into is neither written nor read: to such a tool its bytes
    stay uninitialised.
    """

    def __init__(self, backend: str, sizes: Mapping[str, int]) -> None:
        self._lay_out(sizes, {})
        # No backend allocates 0 bytes, and nobody may touch the byte that stands for them.
        self._memories = {name: memory_for(backend, max(size, 1)) for name, size in sizes.items()}
        self._known: set[str] = set()

    def address(self, name: str) -> int:
        return self._memories[name].address

    def put(self, name: str, content: Bytes) -> None:
        super().put(name, content)
        self._known.add(name)

    def fill(self, name: str, byte: int) -> None:
        super().fill(name, byte)
        self._known.add(name)

    def write(self) -> None:
        for name in self._known:
            if self.part(self.image, name).size:
                self._memories[name].write(self.part(self.image, name))

    def read(self) -> Bytes:
        image = self.image.copy()
        for name in self._known:
            region = self._regions[name]
            image[region] = self._memories[name].read(region.stop - region.start)
        return image

    def free(self) -> None:
        for memory in self._memories.values():
            memory.free()
