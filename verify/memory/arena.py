# SPDX-License-Identifier: Apache-2.0
"""What the C functions read and write, laid out in memory with canary bytes around every tensor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verify.memory.blocks import BOUNDARY, Bytes, Memory, memory_for

CANARY = 0xC3
FILLS = (0xA5, 0x5A)  # complements: no byte of a result equals both
CANARY_BYTES = 64  # the widest vector store


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
        return self._memory.address + int(self._regions[name].start)

    def put(self, name: str, content: Bytes) -> None:
        self.image[self._regions[name]] = content

    def fill(self, name: str, byte: int) -> None:
        self.image[self._regions[name]] = byte

    def write(self) -> None:
        self._memory.write(self.image)

    def read(self) -> Bytes:
        return self._memory.read(self.image.size)

    def part(self, image: Bytes, name: str) -> Bytes:
        found: Bytes = image[self._regions[name]]
        return found

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
        image: Bytes = self.image.copy()
        for name in self._known:
            region = self._regions[name]
            image[region] = self._memories[name].read(region.stop - region.start)
        return image

    def free(self) -> None:
        for memory in self._memories.values():
            memory.free()
