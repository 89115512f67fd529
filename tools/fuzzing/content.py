# SPDX-License-Identifier: Apache-2.0
"""What tensors hold: pools of elements, made once, of which a tensor takes a piece; ids and offsets fit the problem.

Everything follows from a kind and a start, so that a call that was written down has its data back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from tools.fuzzing.call import Content

# A prime, so that a tensor of many rows does not repeat them.
POOL = 65521
FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.float32}
INTEGERS = {"i32": np.int32, "i64": np.int64, "s8": np.int8, "u8": np.uint8}
BITS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
WIDTHS = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i32": 4, "i64": 8, "s8": 1, "u8": 1, "b8": 1, "b16": 2, "b32": 4,
          "b64": 8, "b128": 16}  # fmt: skip
# Sign, all exponent bits, and the significand's bits.
EXPONENTS = {"f16": (0x7C00, 10), "bf16": (0x7F80, 7), "f32": (0x7F800000, 23), "f64": (0x7FF << 52, 52)}
# Coordinates, extents and counts one step past what is valid, and far past it.
NUMBERS = [-1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 2.0**24 + 2, 2.0**31, -(2.0**31), 2.0**63, 1e30, -1e30, 1e38]
IDS = [-1, 0, 1, 2, 3, 4, 5, 2**31 - 1, -(2**31), 2**31, 2**32, 2**32 + 1, 2**63 - 1, -(2**63)]

KINDS = ("plain", "small", "special", "bits", "mixed", "subnormal", "constant")
INDEX_KINDS = ("random", "sorted", "descending", "outside", "wild", "one")
OFFSET_KINDS = ("even", "sorted", "random", "wild")
BOX_KINDS = ("boxes", "boxes", "mixed-boxes", "special", "bits", "plain")
GRID_KINDS = ("points", "points", "mixed-points", "special", "bits", "subnormal")


def _generator(*key: str) -> np.random.Generator:
    return np.random.default_rng([ord(letter) for letter in ".".join(key)])


def _encode(numbers: Any, token: str) -> Any:
    """Elements of a token from float64 numbers."""
    with np.errstate(all="ignore"):
        narrow = np.asarray(numbers).astype(FLOATS[token])
    return (narrow.view(np.uint32) >> np.uint32(16)).astype(np.uint16) if token == "bf16" else narrow


def _special(token: str) -> Any:
    """Zeros, subnormals, the extremes, infinities, NaNs with payloads, and bad numbers."""
    exponent, significand = EXPONENTS[token]
    width = WIDTHS[token]
    sign, quiet = 1 << (8 * width - 1), 1 << (significand - 1)
    magnitudes = [0, 1, (1 << significand) - 1, 1 << significand, exponent - 1, exponent, exponent | 1,
                  exponent | quiet, exponent | quiet | 5]  # fmt: skip
    patterns = np.array([m | s for m in magnitudes for s in (0, sign)], BITS[width])
    return np.concatenate([patterns, _encode(NUMBERS, token).view(BITS[width])])


@cache
def pool(token: str, kind: str) -> bytes:
    """`POOL` elements of one kind."""
    rng = _generator(token, kind)
    width = WIDTHS[token]
    if token not in FLOATS:
        return _integer_pool(rng, token, kind)
    if kind == "bits":
        return bytes(rng.bytes(POOL * width))
    special = _special(token)
    drawn = special[rng.integers(len(special), size=POOL)]
    numbers: Any = rng.uniform(-2, 2, POOL)
    if kind == "special":
        return bytes(drawn.tobytes())
    if kind == "subnormal":
        signs = rng.integers(2, size=POOL).astype(BITS[width]) << BITS[width](8 * width - 1)
        return bytes((signs | rng.integers(1 << EXPONENTS[token][1], size=POOL).astype(BITS[width])).tobytes())
    if kind in ("boxes", "mixed-boxes"):
        numbers = _boxes(rng)
    elif kind in ("points", "mixed-points"):
        numbers = rng.uniform(-1.2, 1.2, POOL)
        numbers[::4] = rng.integers(-8, 9, len(numbers[::4])) / 8
    elif kind == "small":
        numbers = rng.integers(-2, 3, POOL)
    elif kind == "constant":
        numbers = np.full(POOL, 0.75)
    found = _encode(numbers, token).view(BITS[width]).copy()
    if kind.startswith("mixed"):
        bad = rng.random(POOL) < 0.15
        found[bad] = drawn[bad]
    return bytes(found.tobytes())


def _boxes(rng: np.random.Generator) -> Any:
    """Rows of (image, x1, y1, x2, y2), most of them on small images; some reversed or far away."""
    rows = np.empty((-(-POOL // 5), 5))
    rows[:, 0] = rng.integers(0, 3, len(rows))
    rows[:, 1:3] = rng.uniform(-4, 14, (len(rows), 2))
    rows[:, 3:5] = rows[:, 1:3] + rng.uniform(-1, 12, (len(rows), 2))
    rows[::17, 1:] *= 1e3
    rows[::5, 1:] = np.round(rows[::5, 1:])
    return rows.ravel()[:POOL]


def _integer_pool(rng: np.random.Generator, token: str, kind: str) -> bytes:
    if token in INTEGERS:
        dtype: Any = INTEGERS[token]
        limits = np.iinfo(dtype)
        if kind in ("special", "mixed"):
            bad = [number for number in IDS if limits.min <= number <= limits.max] + [limits.min, limits.max]
            return np.array(bad, dtype)[rng.integers(len(bad), size=POOL)].tobytes()
        if kind in ("plain", "small", "constant"):
            return rng.integers(max(limits.min, -3), 4, POOL).astype(dtype).tobytes()
    return rng.bytes(POOL * WIDTHS[token])


@cache
def _uniform() -> Any:
    return _generator("uniform").random(POOL)


def _piece(start: int, count: int) -> Any:
    numbers = _uniform()
    if start + count <= POOL:
        return numbers[start : start + count]
    return np.resize(np.roll(numbers, -start), count)


def elements(token: str, content: Content, count: int, limit: int) -> bytes:
    """The bytes of a tensor of `count` elements; `limit` is what ids and offsets stay below, when they do."""
    kind, start = content
    if kind.startswith("ids-"):
        return _ids(token, kind[4:], start, count, limit)
    if kind.startswith("offsets-"):
        return _offsets(token, kind[8:], start, count, limit)
    width = WIDTHS[token]
    source = pool(token, kind)
    begin, size = start * width, count * width
    if begin + size <= len(source):
        return source[begin : begin + size]
    return (source[begin:] + source * (size // len(source) + 1))[:size]


def _ids(token: str, kind: str, start: int, count: int, limit: int) -> bytes:
    if kind == "wild":
        return elements(token, Content("special", start), count, limit)
    dtype = INTEGERS[token]
    if kind == "one":
        return np.full(count, start % max(limit, 1), dtype).tobytes()
    numbers = _piece(start, count)
    if kind == "outside":
        numbers = np.floor(numbers * (limit + 2)) - 1
    else:
        numbers = np.floor(numbers * limit)
        if kind != "random":
            numbers.sort()
            if kind == "descending":
                numbers = numbers[::-1]
    return bytes(numbers.astype(dtype).tobytes())


def _offsets(token: str, kind: str, start: int, count: int, limit: int) -> bytes:
    """`count` offsets into `limit` rows."""
    if kind == "wild":
        return elements(token, Content("special", start), count, limit)
    if kind == "even":
        return np.linspace(0, limit, count).astype(INTEGERS[token]).tobytes()
    numbers = np.floor(_piece(start, count) * (limit + 1))
    if kind == "sorted":
        numbers.sort()
        numbers[:1], numbers[-1:] = 0, limit
    return bytes(numbers.astype(INTEGERS[token]).tobytes())


def is_unspecified(symbol_family: str, values: Mapping[str, Any], content: Content, index: bytes, token: str) -> bool:
    """Whether ids or offsets descend where the contract wants them not to: results are then unspecified."""
    form = {"segment_sorted": 1, "segment_csr": 2}.get(symbol_family, 0)
    if "form" in values:
        form = values["form"]
    if form == 0 or content.kind in ("ids-sorted", "ids-one", "offsets-even", "offsets-sorted"):
        return False
    numbers = np.frombuffer(index, INTEGERS[token])
    return bool((numbers[1:] < numbers[:-1]).any())
