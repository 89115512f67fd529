# SPDX-License-Identifier: Apache-2.0
"""Memory in which a step too far shows: guard pages around host memory, canaries around device memory.

A region is a run of bytes that a tensor, a workspace or a host array may stand in. Nothing here knows a call.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

PAGE = mmap.PAGESIZE
# Bytes watched on either side of what a region holds, where no guard page is: as wide as the widest vector.
MARGIN = 64
CANARIES = bytes([0xC3]) * MARGIN


class GuardedRegion:
    """Host memory between two pages that nobody can touch."""

    def __init__(self, capacity: int) -> None:
        self.capacity = -(-capacity // PAGE) * PAGE
        self.bytes = mmap.mmap(-1, self.capacity + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))
        self.base = base
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (base, base + PAGE + self.capacity):
            if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self._low, self._high = PAGE, PAGE + self.capacity
        self.release()

    def release(self) -> None:
        """Hold nothing."""
        self.start = self.stop = self.before = self.after = self._low
        self._front = self._back = self._image = b""

    def hold(self, size: int, at: str, shift: int) -> int:
        """Choose where `size` bytes stand; answers their address. What is there comes with `put`."""
        start = self._high - size - shift if at == "end" else self._low + shift
        stop = start + size
        before, after = start - MARGIN, stop + MARGIN
        if before < self._low:
            before = self._low
        if after > self._high:
            after = self._high
        self.start, self.stop, self.before, self.after = start, stop, before, after
        self._front, self._back = CANARIES[: start - before], CANARIES[: after - stop]
        return self.base + start

    def put(self, content: bytes) -> None:
        """Write what is held, with canaries beside it."""
        self._image = image = self._front + content + self._back
        self.bytes[self.before : self.after] = image

    def put_from(self, source: int, size: int) -> None:
        """The same from an address, for contents that `is_untouched` is not asked about."""
        self.bytes[self.before : self.start], self.bytes[self.stop : self.after] = self._front, self._back
        ctypes.memmove(self.base + self.start, source, size)

    def get(self) -> bytes:
        return self.bytes[self.start : self.stop]

    def is_untouched(self) -> bool:
        """Whether it all is as `put` left it."""
        return self.bytes[self.before : self.after] == self._image

    def canaries_live(self) -> bool:
        """Whether what stands beside is as `put` left it."""
        found = self.bytes
        return found[self.before : self.start] == self._front and found[self.stop : self.after] == self._back


class HostMemory:
    """Regions of host memory; what is put there is there."""

    streams: tuple[int, ...] = ()

    def __init__(self, count: int, capacity: int) -> None:
        self.regions = [GuardedRegion(capacity) for _ in range(count)]

    def upload(self) -> None:
        """Nothing: the regions are what the library sees."""

    def download(self) -> None:
        """Nothing."""

    def stream(self, number: int) -> int:
        """The stream of that number."""
        raise LookupError("host memory has no streams")


class StagedRegion(GuardedRegion):
    """A region of device memory and its picture in host memory; canaries take the guard pages' place."""

    def __init__(self, capacity: int, address: int) -> None:
        super().__init__(capacity)
        self._address = address - PAGE

    def hold(self, size: int, at: str, shift: int) -> int:
        return super().hold(size, at, shift + MARGIN) - self.base + self._address


class DeviceMemory:
    """Regions of device memory, from the driver: nothing but what is asked for is initialised."""

    def __init__(self, count: int, capacity: int, driver: Any = None) -> None:
        self._driver = driver or ctypes.CDLL("libcuda.so.1")
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        # The primary context is the one that the runtime inside the library uses.
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._call("cuCtxSetCurrent", self._context)
        self.regions: list[StagedRegion] = []
        for _ in range(count):
            address = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(capacity))
            self.regions.append(StagedRegion(capacity, address.value))
        # The legacy default stream, and two of the caller's: one that waits for it and one that does not.
        streams = [0]
        for flags in (0, 1):
            handle = ctypes.c_void_p()
            self._call("cuStreamCreate", ctypes.byref(handle), ctypes.c_uint(flags))
            streams.append(handle.value or 0)
        self.streams = tuple(streams)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(status, ctypes.byref(text))
            raise RuntimeError(f"{name} answered {status} ({(text.value or b'unknown').decode()})")

    def _copy(self, name: str, to_device: bool) -> None:
        for region in self.regions:
            size = region.after - region.before
            if size == 0:
                continue
            host = ctypes.c_void_p(region.base + region.before)
            there = ctypes.c_uint64(region._address + region.before)
            self._call(name, *((there, host) if to_device else (host, there)), ctypes.c_size_t(size))

    def upload(self) -> None:
        """Make the device's memory what the regions hold."""
        self._copy("cuMemcpyHtoD_v2", to_device=True)
        self._call("cuCtxSynchronize")

    def download(self) -> None:
        """Wait for everything that was enqueued, then read the device's memory back."""
        self._call("cuCtxSynchronize")
        self._copy("cuMemcpyDtoH_v2", to_device=False)

    def stream(self, number: int) -> int:
        return self.streams[number % len(self.streams)]
