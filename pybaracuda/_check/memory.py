# SPDX-License-Identifier: Apache-2.0
"""Plain memory for the fixed cases, on the host and on a GPU; what it holds is not judged here."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from .splitmix import Array

# What device allocators align to.
BOUNDARY = 256
# More than any case needs.
CAPACITY = 1 << 25


class HostRegions:
    """Named pieces of one array, each `offsets` bytes past a boundary."""

    def __init__(self, sizes: Mapping[str, int], offsets: Mapping[str, int]) -> None:
        self._regions: dict[str, slice] = {}
        end = 0
        for name, size in sizes.items():
            start = -(-end // BOUNDARY) * BOUNDARY + offsets.get(name, 0)
            end = start + size
            self._regions[name] = slice(start, end)
        raw = np.empty(end + BOUNDARY, np.uint8)
        first = -int(raw.ctypes.data) % BOUNDARY
        self._image: Array = raw[first : first + end]

    def address(self, name: str) -> int:
        """Where a piece begins for the backend's functions."""
        return int(self._image.ctypes.data) + int(self._regions[name].start)

    def put(self, name: str, content: Array) -> None:
        """Give a piece these bytes; the backend sees them after `write`."""
        self._image[self._regions[name]] = content

    def fill(self, name: str, byte: int) -> None:
        """Give every byte of a piece one value; the backend sees it after `write`."""
        self._image[self._regions[name]] = byte

    def write(self) -> None:
        """Bring everything that was put to where the backend reads it: here the host, where it is."""

    def read(self) -> Array:
        """Answer an image of everything, after all calls that came before."""
        return self._image

    def part(self, image: Array, name: str) -> Array:
        """Answer one piece of an image."""
        found: Array = image[self._regions[name]]
        return found


class DeviceBlock:
    """Memory of the GPU whose context is current, straight from the driver."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._driver.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
        self._driver.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(CAPACITY))
        self.address = address.value

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._driver, name)(*arguments):
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(status, ctypes.byref(text))
            raise RuntimeError(f"{name} failed: {(text.value or b'unknown error').decode()} ({status})")

    def write(self, image: Array) -> None:
        """Copy an image to the beginning of the block, before everything enqueued later."""
        self._call("cuMemcpyHtoD_v2", self.address, image.ctypes.data, image.size)
        self._call("cuCtxSynchronize")

    def read(self, image: Array) -> None:
        """Copy the beginning of the block into an image, after everything enqueued before."""
        self._call("cuCtxSynchronize")
        self._call("cuMemcpyDtoH_v2", image.ctypes.data, self.address, image.size)


class DeviceRegions(HostRegions):
    """The same pieces in a block of a GPU's memory."""

    def __init__(self, block: DeviceBlock, sizes: Mapping[str, int], offsets: Mapping[str, int]) -> None:
        super().__init__(sizes, offsets)
        if self._image.size > CAPACITY:
            raise RuntimeError(f"{self._image.size} bytes do not fit in {CAPACITY}")
        self._block = block

    def address(self, name: str) -> int:
        """Where a piece begins on the GPU."""
        return self._block.address + int(self._regions[name].start)

    def write(self) -> None:
        """Bring everything that was put to the GPU."""
        self._block.write(self._image)

    def read(self) -> Array:
        """Answer an image of everything on the GPU."""
        image = np.empty_like(self._image)
        self._block.read(image)
        return image
