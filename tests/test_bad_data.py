# SPDX-License-Identifier: Apache-2.0
"""Bad values in data arrays never fault, never write out of bounds and never leave an output byte unwritten.

What such values mean is compared with the oracle by each operator's own tests. tests/native/contract.cc drives the same
kinds of data under the sanitizers, with buffers that end where the heap block ends.
"""

from __future__ import annotations

from functools import cache

import bad_data
import pytest
from canaries import CanaryBench, laid_out

from pybaracuda._check.abi_calls import Library, Symbol, symbols
from verify.memory.arena import FILLS
from verify.memory.blocks import Memory, memory_for

CAPACITY = 1 << 23


@cache
def library_for(backend: str) -> Library:
    return Library(backend)


@cache
def memory_of(backend: str) -> Memory:
    return memory_for(backend, CAPACITY)


def bench(backend: str, symbol: Symbol, mix: str, size: str) -> CanaryBench:
    return laid_out(bad_data.case(symbol, mix, size), library_for(backend), memory_of(backend))


@pytest.mark.parametrize("symbol", symbols(), ids=lambda symbol: symbol.name)
@pytest.mark.parametrize("mix", bad_data.MIXES)
@pytest.mark.parametrize("size", bad_data.SIZES)
def test_bad_data_stay_inside(backend: str, symbol: Symbol, mix: str, size: str) -> None:
    results = []
    for fill in FILLS:
        placed = bench(backend, symbol, mix, size)
        placed.write(fill)
        placed.run()
        results.append(placed.results())
    # Written to the last byte, whatever stood there and in the workspace.
    assert results[0] == results[1]
    if backend != "cpu":
        on_host = bench("cpu", symbol, mix, size)
        on_host.write(FILLS[0])
        on_host.run()
        assert results[0] == on_host.results()
