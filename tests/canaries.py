# SPDX-License-Identifier: Apache-2.0
"""The fixed cases in memory with canaries around every tensor: what runs and judges them is the package's own check."""

from __future__ import annotations

from pybaracuda._check import child
from pybaracuda._check.abi_calls import Library
from pybaracuda._check.cases import Case
from pybaracuda._check.runs import Bench, layout_of
from verify.memory.arena import CANARY, Arena
from verify.memory.blocks import Memory, memory_for

CAPACITY = 1 << 25


class CanaryBench(Bench):
    """A case in an Arena: nothing but its outputs and the workspace may be written."""

    def results(self) -> dict[str, bytes]:
        image = self._arena.read()
        written = {tensor.name for tensor in self.case.symbol.outputs} | {"workspace"}
        changed = self._arena.changed_regions(image) - written
        assert not changed, f"{self.case.name}: {sorted(changed)} changed (canary {CANARY:#x})"
        return self.outputs_in(image)


def laid_out(case: Case, library: Library, memory: Memory, layout: str = "tight") -> CanaryBench:
    """The case in one memory, canaries around every tensor; the layouts are Configuration's."""
    needs = layout_of(case, library, layout)
    return CanaryBench(case, library, Arena(memory, needs.sizes, needs.offsets), needs.workspace_bytes)


def _between_canaries(backend: str) -> child.LayOut:
    memory = memory_for(backend, CAPACITY)
    return lambda case, library, layout: laid_out(case, library, memory, layout)


def main() -> int:
    """What a process of the tests' own check does."""
    return child.main(_between_canaries)
