# SPDX-License-Identifier: Apache-2.0
"""Problems whose data arrays hold bad values: NaN, infinities, huge and subnormal numbers, ids out of range.

Nothing is run or judged here; good and special data with committed results are in pybaracuda/_check/problems.
"""

from __future__ import annotations

import contract_cases
import numpy as np

from pybaracuda._check.abi_calls import Symbol, completed, span
from pybaracuda._check.cases import Case
from pybaracuda._check.splitmix import BIT_TYPES, WORD_BYTES, Array, encoded, special_patterns, word_bytes, words

MIXES = ("palette", "random-bits", "every-third")
SIZES = ("small", "larger")

# Coordinates, extents and batch indices one step past what is valid, and far past it.
BAD_NUMBERS = [-1.0, -0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 2.0**24 + 2, 2.0**31, -(2.0**31), 2.0**63, 1e30, -1e30, 1e38]
BAD_INTEGERS = {
    "i32": [-1, 0, 1, 3, 4, 5, 2**31 - 1, -(2**31)],
    "i64": [-1, 0, 1, 3, 4, 5, 2**31, 2**32, 2**32 + 1, 2**63 - 1, -(2**63)],
    "s8": [-128, -1, 0, 127],
    "u8": [0, 1, 128, 255],
}


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


def case(symbol: Symbol, mix: str, size: str) -> Case:
    """The symbol's baseline problem, or its larger one, with every input drawn by `bad_elements`."""
    table = contract_cases.baseline(symbol)
    assert table.larger is not None, (
        f"{symbol.operator.name} has no larger problem: add it to its record in tests/operators"
    )
    values = completed(symbol, {**table.values, **(table.larger if size == "larger" else {})})
    inputs = {
        tensor.name: bad_elements(1000 + 10 * index, span(tensor, values).elements, symbol.dtype(tensor), mix)
        for index, tensor in enumerate(symbol.tensors)
        if tensor.role == "input"
    }
    return Case(f"{symbol.name}/bad-{mix}-{size}", f"bad data: {mix}", symbol, values, inputs)
