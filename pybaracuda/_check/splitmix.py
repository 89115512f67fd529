# SPDX-License-Identifier: Apache-2.0
"""Test data from integers alone, so that any language on any machine makes the same bytes; no library's generator.

Word i of seed s is mix(s * 2^32 + i), where mix is the finaliser of splitmix64 (Steele, Lea, Flood 2014) on
(x + 1) * 0x9E3779B97F4A7C15, all modulo 2^64. Numbers are words divided by powers of two: exact, never rounded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# The significand of each dtype, the implicit bit included.
SIGNIFICAND_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s8": np.int8, "u8": np.uint8,
         "i32": np.int32, "i64": np.int64}  # fmt: skip
BIT_TYPES = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}
# Elements that are no numbers: their bytes.
WORD_BYTES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "b128": 16}
# Sign bit, exponent bits, all significand bits below them.
INFINITY_BITS = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}


def words(seed: int, count: int) -> Array:
    """The first `count` 64-bit words of a seed below 2^32."""
    with np.errstate(over="ignore"):
        x = np.uint64(seed << 32) + np.arange(count, dtype=np.uint64)
        x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))


def integers(seed: int, count: int, low: int, high: int) -> Array:
    """int64 in [low, high], not exactly uniform (the remainder of a 63-bit word)."""
    return np.asarray((words(seed, count) >> np.uint64(1)).astype(np.int64) % (high - low + 1) + low)


def numbers(seed: int, count: int, token: str, low: float = -1.0, high: float = 1.0) -> Array:
    """float64 in [low, high) that the dtype holds exactly; low and high - low are small multiples of powers of two.

    The steps are as fine as the dtype allows at the larger end, so sums and products of them round.
    """
    bits = SIGNIFICAND_BITS[token]
    fraction, exponent = math.frexp(max(abs(low), abs(high)))
    step = 2.0 ** (exponent - (fraction == 0.5) - bits)
    steps = int((high - low) / step)
    drawn = (words(seed, count) >> np.uint64(11)).astype(np.int64) % steps
    return np.asarray(low + drawn.astype(np.float64) * step)


def word_bytes(seed: int, count: int, token: str) -> Array:
    """The bytes of elements that are no numbers, any of them: the lowest of a word or two each."""
    width = WORD_BYTES[token]
    per_element = -(-width // 8)
    drawn = words(seed, count * per_element).view(np.uint8)
    return drawn.reshape(count, 8 * per_element)[:, :width].ravel()


def encoded(values: Array, token: str) -> Array:
    """The bytes of values that the dtype holds exactly (NaN becomes some NaN); a word's are its lowest bits."""
    if token in WORD_BYTES:
        lowest = np.zeros((values.size, WORD_BYTES[token]), np.uint8)
        lowest[:, 0] = values
        return lowest.ravel()
    if token == "bf16":
        high_halves = np.asarray(values, np.float32).view(np.uint32) >> np.uint32(16)
        return np.asarray(high_halves.astype(np.uint16).view(np.uint8).ravel())
    return np.ascontiguousarray(values).astype(NUMPY[token]).view(np.uint8).ravel()


def special_patterns(token: str) -> list[int]:
    """Bit patterns that arithmetic treats apart: zeros, subnormals, the extremes, infinities, NaNs with payloads."""
    infinity = INFINITY_BITS[token]
    sign = (infinity << 1) & ~infinity & ((1 << (8 * np.dtype(BIT_TYPES[token]).itemsize)) - 1)
    payload = 1 << (SIGNIFICAND_BITS[token] - 3)
    quiet = 1 << (SIGNIFICAND_BITS[token] - 2)
    positive = [0, 1, quiet - 1, infinity - 1, infinity, infinity | payload, infinity | quiet | payload | 1]
    return [pattern | side for pattern in positive for side in (0, sign)]
