# SPDX-License-Identifier: Apache-2.0
"""Bad values in data arrays never fault, never write out of bounds and never leave an output byte unwritten.

What such values mean is compared with the oracle by each operator's own tests. tests/native/contract.cc drives the same
kinds of data under the sanitizers, with buffers that end where the heap block ends.
"""

from __future__ import annotations

from functools import cache

import contract_cases as cases
import numpy as np
import pytest
from native_memory import FILLS, Arena, Memory, memory_for
from raw_abi import Launch, Library, Symbol, completed, places, span, symbols
from splitmix import BIT_TYPES, WORD_BYTES, Array, encoded, special_patterns, word_bytes, words

CAPACITY = 1 << 22
SYMBOLS = pytest.mark.parametrize("symbol", symbols(), ids=lambda symbol: symbol.name)

# Coordinates, extents and batch indices one step past what is valid, and far past it.
BAD_NUMBERS = [-1.0, -0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 2.0**24 + 2, 2.0**31, -(2.0**31), 2.0**63, 1e30, -1e30, 1e38]
BAD_INTEGERS = {
    "i32": [-1, 0, 1, 3, 4, 5, 2**31 - 1, -(2**31)],
    "i64": [-1, 0, 1, 3, 4, 5, 2**31, 2**32, 2**32 + 1, 2**63 - 1, -(2**63)],
    "s8": [-128, -1, 0, 127],
    "u8": [0, 1, 128, 255],
}


@cache
def library_for(backend: str) -> Library:
    return Library(backend)


@cache
def memory_of(backend: str) -> Memory:
    return memory_for(backend, CAPACITY)


def palette(token: str) -> Array:
    """One element a row: the bytes of every bad value of a dtype."""
    if token in BAD_INTEGERS:
        content = encoded(np.array(BAD_INTEGERS[token]), token)
        return content.reshape(len(BAD_INTEGERS[token]), -1)
    if token in WORD_BYTES:  # nothing is bad about bytes
        return word_bytes(0, 16, token).reshape(16, -1)
    patterns = np.array(special_patterns(token), BIT_TYPES[token])
    with np.errstate(over="ignore"):
        numbers = encoded(np.array(BAD_NUMBERS), token)
    width = patterns.itemsize
    return np.concatenate([patterns.view(np.uint8).reshape(-1, width), numbers.reshape(-1, width)])


def bad_elements(seed: int, count: int, token: str, mix: str) -> Array:
    """Bytes of `count` elements: all from the palette, all random bits, or small numbers with every third one bad."""
    chosen = palette(token)[(words(seed, count) % np.uint64(len(palette(token)))).astype(np.int64)]
    if mix == "palette":
        return chosen.ravel()
    if mix == "random-bits":
        if token in WORD_BYTES:
            return word_bytes(seed, count, token)
        return words(seed, count).view(np.uint8).reshape(count, 8)[:, : chosen.shape[1]].ravel()
    good = encoded((words(seed + 1, count) % np.uint64(3)).astype(np.int64), token).reshape(count, -1)
    good[::3] = chosen[::3]
    return good.ravel()


@SYMBOLS
@pytest.mark.parametrize("mix", ["palette", "random-bits", "every-third"])
@pytest.mark.parametrize("size", ["small", "larger"])
def test_bad_data_stay_inside(backend: str, symbol: Symbol, mix: str, size: str) -> None:
    library = library_for(backend)
    table = cases.baseline(symbol)
    assert table.larger is not None, f"{symbol.operator.name} has no larger problem in tests/contract_cases.py: add one"
    values = completed(symbol, {**table.values, **(table.larger if size == "larger" else {})})
    sizes = {t.name: span(t, values).elements * symbol.element_bytes(t) for t in symbol.tensors}
    workspace_bytes = library.workspace_size(symbol, values)
    sizes["workspace"] = max(workspace_bytes, cases.WORKSPACE_ALIGNMENT)
    results = []
    for fill in FILLS:
        arena = Arena(memory_of(backend), sizes)
        for index, tensor in enumerate(symbol.tensors):
            if tensor.role == "input":
                content = bad_elements(1000 + 10 * index, span(tensor, values).elements, symbol.dtype(tensor), mix)
                arena.put(tensor.name, content)
            else:
                arena.fill(tensor.name, fill)
        arena.fill("workspace", fill)
        arena.write()
        pointers = {t.name: arena.address(t.name) for t in symbol.tensors}
        status = library.run(symbol, values, Launch(pointers, arena.address("workspace"), workspace_bytes))
        assert (status, library.last_error()) == (0, "")
        image = arena.read()
        outputs = {tensor.name for tensor in symbol.outputs}
        assert arena.changed_regions(image) <= outputs | {"workspace"}
        rows = [arena.part(image, t.name).reshape(-1, symbol.element_bytes(t)) for t in symbol.outputs]
        results.append([row[places(t, values)].tobytes() for row, t in zip(rows, symbol.outputs, strict=True)])
    # Written to the last byte, whatever stood there and in the workspace.
    assert results[0] == results[1]
