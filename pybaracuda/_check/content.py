# SPDX-License-Identifier: Apache-2.0
"""What the tensors of the fixed cases hold: makers of bytes, from splitmix.py alone. No problem is named here.

A change of a maker changes the committed hashes; add makers instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .abi_calls import Values
from .splitmix import (
    BIT_TYPES,
    SIGNIFICAND_BITS,
    WORD_BYTES,
    Array,
    encoded,
    integers,
    numbers,
    special_patterns,
    word_bytes,
)

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

# (seed, count of elements, dtype token, the case's values) -> bytes
Maker = Callable[[int, int, str, Values], Array]


def plain(seed: int, count: int, token: str, values: Values) -> Array:
    """Numbers in [-1, 1) with a full significand, every value of an 8-bit type, or any bytes."""
    if token in WORD_BYTES:
        return word_bytes(seed, count, token)
    if token in SIGNIFICAND_BITS:
        return encoded(numbers(seed, count, token), token)
    low, high = {"s8": (-128, 127), "u8": (0, 255)}[token]
    return encoded(integers(seed, count, low, high), token)


def wide(seed: int, count: int, token: str, values: Values) -> Array:
    """Numbers whose magnitudes span 2^-12 to 1, so that sums round at every step."""
    scales = 2.0 ** -integers(seed ^ 1, count, 0, 4 if token == "f16" else 12).astype(np.float64)
    # f16's subnormals begin at 2^-14: fewer binades and a coarser significand keep every value exact.
    drawn = numbers(seed, count, "bf16" if token == "f16" else token)
    return encoded(drawn * scales, token)


def special(seed: int, count: int, token: str, values: Values) -> Array:
    """Every third element is a zero, subnormal, infinity or NaN with a payload; the rest are plain.

    The largest finite numbers are left out: their sum overflows in f32 but not in the float64 oracle.
    """
    largest = special_patterns(token)[6:8]
    patterns = np.array([p for p in special_patterns(token) if p not in largest], BIT_TYPES[token])
    content = plain(seed, count, token, values).view(BIT_TYPES[token]).copy()
    chosen = integers(seed ^ 2, count, 0, len(patterns) - 1)
    content[::3] = patterns[chosen[::3]]
    return np.asarray(content.view(np.uint8))


def any_bits(seed: int, count: int, token: str, values: Values) -> Array:
    """Special values in every second element, the largest finite numbers too: for operators that move bits."""
    if token in WORD_BYTES:
        return word_bytes(seed, count, token)
    patterns = np.array(special_patterns(token), BIT_TYPES[token])
    content = plain(seed, count, token, values).view(BIT_TYPES[token]).copy()
    content[::2] = patterns[integers(seed ^ 2, count, 0, len(patterns) - 1)[::2]]
    return np.asarray(content.view(np.uint8))


def tied(seed: int, count: int, token: str, values: Values) -> Array:
    """Few distinct values, zeros of both signs among them, so that most maxima are ties."""
    drawn = np.array([-0.0, 0.0, -1.0, 0.5])[integers(seed, count, 0, 3)]
    return encoded(drawn, token)


def subnormal(seed: int, count: int, token: str, values: Values) -> Array:
    """Subnormal numbers only: a flushed one would show."""
    largest = (1 << (SIGNIFICAND_BITS[token] - 1)) - 1
    patterns = integers(seed, count, 1, largest).astype(BIT_TYPES[token])
    return patterns.view(np.uint8)


def underflowing(seed: int, count: int, token: str, values: Values) -> Array:
    """The subnormal number below 0, among negative zeros: weighed, it is a zero whose sign a sum may keep or not."""
    sign = 1 << (8 * np.dtype(BIT_TYPES[token]).itemsize - 1)
    patterns = [sign | int(each == 0) for each in integers(seed, count, 0, 2)]
    return np.array(patterns, BIT_TYPES[token]).view(np.uint8)


def _number(values: Values, name: str) -> int:
    found = values[name]
    assert isinstance(found, int)
    return found


def boxes(seed: int, count: int, token: str, values: Values) -> Array:
    """Boxes whose corners lie in and around the image; one in eight is reversed or crosses a border."""
    rows = count // 5
    scale = values["spatial_scale"]
    assert isinstance(scale, float)
    wide_, high = _number(values, "w") / scale, _number(values, "h") / scale
    content = np.empty((rows, 5))
    content[:, 0] = integers(seed, rows, 0, _number(values, "n") - 1)
    unit = numbers(seed ^ 1, rows * 4, "f32", 0.0, 1.0).reshape(rows, 4)
    low, size = unit[:, :2] * 1.25 - 0.125, unit[:, 2:] * 0.75 - 0.09375
    content[:, 1:3] = low * (wide_, high)
    content[:, 3:5] = (low + size) * (wide_, high)
    # Rounded to what both coordinate types hold: the f32 value is the definition for all variants.
    return encoded(content.astype(np.float32).ravel(), token)


def far_boxes(seed: int, count: int, token: str, values: Values) -> Array:
    """Boxes so far apart that a subnormal scale moves them within the first pixel, and no further."""
    rows = count // 5
    content = np.empty((rows, 5))
    content[:, 0] = integers(seed, rows, 0, _number(values, "n") - 1)
    content[:, 1:] = numbers(seed ^ 1, rows * 4, "f32", 0.0, 1.0).reshape(rows, 4) * 3e38
    return encoded(content.astype(np.float32).ravel(), token)


def boxes_3d(seed: int, count: int, token: str, values: Values) -> Array:
    """Boxes (volume, x1, y1, z1, x2, y2, z2) as those of two axes."""
    rows = count // 7
    scale = values["spatial_scale"]
    assert isinstance(scale, float)
    extents = np.array([_number(values, axis) for axis in ("w", "h", "d")]) / scale
    content = np.empty((rows, 7))
    content[:, 0] = integers(seed, rows, 0, _number(values, "n") - 1)
    unit = numbers(seed ^ 1, rows * 6, "f32", 0.0, 1.0).reshape(rows, 6)
    low, size = unit[:, :3] * 1.25 - 0.125, unit[:, 3:] * 0.75 - 0.09375
    content[:, 1:4] = low * extents
    content[:, 4:7] = (low + size) * extents
    # Rounded to what both coordinate types hold: the f32 value is the definition for all variants.
    return encoded(content.astype(np.float32).ravel(), token)


_BAD_BOXES = [
    [-1, 1, 1, 5, 4], [-0.5, 1, 1, 5, 4], [1e30, 1, 1, 5, 4], [2.0**31, 1, 1, 5, 4], [math.nan, 1, 1, 5, 4],
    [0, math.nan, 1, 5, 4], [0, 1, -math.inf, 5, 4], [0, 1, 1, math.inf, 4], [0, -1e30, -1e30, 1e30, 1e30],
    [0, 1e30, 1e30, 2e30, 2e30], [0, -3e38, 0, 3e38, 4], [0, -1e10, -1e10, 5, 5], [0, 0, 0, 3e5, 5],
    [0, 5, 6, 1, 2], [0, 6, 1, 2, 5], [0, 3, 3, 3, 3], [0, 1e-40, 1e-40, 4, 4], [0.999, 1, 1, 2, 2],
]  # fmt: skip


def bad_boxes_3d(seed: int, count: int, token: str, values: Values) -> Array:
    """Good boxes with every kind of bad one between them; along z these are as along y."""
    good = boxes_3d(seed, count, "f32", values).view(np.float32).reshape(-1, 7).copy()
    rows = np.array(_BAD_BOXES, np.float32)[:, [0, 1, 2, 2, 3, 4, 4]]
    for place, row in enumerate(rows):
        good[(2 * place + 1) % len(good)] = row
    return encoded(good.ravel(), token)


def bad_boxes(seed: int, count: int, token: str, values: Values) -> Array:
    """Good boxes with every kind of bad one between them."""
    good = boxes(seed, count, "f32", values).view(np.float32).reshape(-1, 5).copy()
    for place, row in enumerate(_BAD_BOXES):
        good[(2 * place + 1) % len(good)] = row
    return encoded(good.ravel(), token)


def positions(seed: int, count: int, token: str, values: Values) -> Array:
    """Coordinates in [-1.25, 1.25): some samples lie outside, wholly or by a part."""
    return encoded(numbers(seed, count, "f32", -1.25, 1.25), token)


def far_positions(seed: int, count: int, token: str, values: Values) -> Array:
    """Coordinates in [-5, 5): an image and its reflections on either side."""
    return encoded(numbers(seed, count, "f32", -5.0, 5.0), token)


def on_pixels(seed: int, count: int, token: str, values: Values) -> Array:
    """Eighths from -1.5 to 1.5: on pixel centres, on borders and half-way, where weights are exactly 0 or 1/2."""
    return encoded(integers(seed, count, -12, 12) / 8, token)


def centre(seed: int, count: int, token: str, values: Values) -> Array:
    """Every sample at 0: in a map of one pixel each is a whole tap of that pixel."""
    return encoded(np.zeros(count), token)


def bad_positions(seed: int, count: int, token: str, values: Values) -> Array:
    """Positions with NaN, infinite, huge and subnormal ones among them."""
    bad = np.array([math.nan, math.inf, -math.inf, 1e30, -1e30, 2.0**31, 1e-40, -0.0, 1.0, -1.0], np.float32)
    content = numbers(seed, count, "f32", -1.25, 1.25).astype(np.float32)
    content[::5] = bad[integers(seed ^ 1, count, 0, len(bad) - 1)][::5]
    return encoded(content, token)


def ids(seed: int, count: int, token: str, values: Values) -> Array:
    return encoded(integers(seed, count, 0, _number(values, "num_segments") - 1), token)


def skewed_ids(seed: int, count: int, token: str, values: Values) -> Array:
    """Nine rows of ten go to one segment in the middle."""
    drawn = integers(seed, count, 0, _number(values, "num_segments") - 1)
    drawn[integers(seed ^ 1, count, 0, 9) > 0] = _number(values, "num_segments") // 2
    return encoded(drawn, token)


def _bad_ids(seed: int, count: int, token: str, segments: int) -> Array:
    bad = [-1, segments, INT32_MIN, INT32_MAX] + ([-(2**63), 2**63 - 1, 2**32, 2**32 + 1] if token == "i64" else [])
    drawn = integers(seed, count, 0, segments - 1) & ~1
    drawn[::3] = np.array(bad)[integers(seed ^ 1, count, 0, len(bad) - 1)][::3]
    return drawn


def bad_ids(seed: int, count: int, token: str, values: Values) -> Array:
    """Ids below 0, at and above num_segments, and the extremes of the type; half of the segments stay empty."""
    return encoded(_bad_ids(seed, count, token, _number(values, "num_segments")), token)


def uneven_ids(seed: int, count: int, token: str, values: Values) -> Array:
    """Bad ids, and one row of 64 goes to one segment in the middle."""
    segments = _number(values, "num_segments")
    drawn = _bad_ids(seed, count, token, segments)
    drawn[::64] = segments // 2
    return encoded(drawn, token)


def sorted_ids(seed: int, count: int, token: str, values: Values) -> Array:
    """Ascending ids, a few of them on either side of the valid ones; some segments stay empty."""
    drawn = np.sort(integers(seed, count, -1, _number(values, "num_segments")))
    return encoded(np.where(drawn == 2, 3, drawn), token)


def offsets(seed: int, count: int, token: str, values: Values) -> Array:
    """Ascending offsets; rows before the first and behind the last are dropped."""
    return encoded(np.sort(integers(seed, count, 0, _number(values, "num_rows"))), token)


def holed_offsets(seed: int, count: int, token: str, values: Values) -> Array:
    """Ascending offsets, every third one that before it: segments without rows."""
    drawn = np.sort(integers(seed, count, 0, _number(values, "num_rows")))
    drawn[2::3] = drawn[1::3][: len(drawn[2::3])]
    return encoded(drawn, token)


def rows(seed: int, count: int, token: str, values: Values) -> Array:
    """Rows that hold a maximum, as far as they exist."""
    return encoded(
        integers(seed, count, -1, _number(values, "num_inputs" if "num_inputs" in values else "num_rows")), token
    )


def whole_numbers(seed: int, count: int, token: str, values: Values) -> Array:
    return encoded(integers(seed, count, -(2**31), 2**31 - 1), token)


def near_one(seed: int, count: int, token: str, values: Values) -> Array:
    """Factors whose products stay in range."""
    return encoded(numbers(seed, count, token, 0.9375, 1.0625), token)


def unit(seed: int, count: int, token: str, values: Values) -> Array:
    """Numbers in [0, 1)."""
    return encoded(numbers(seed, count, token, 0.0, 1.0), token)


def bad_samples(seed: int, count: int, token: str, values: Values) -> Array:
    """Every second number is in [0, 1); the others are beyond, infinite or NaN."""
    bad = np.array([1.0, 1.5, -0.25, -3.0, 2.0**15, -(2.0**15), math.inf, -math.inf, math.nan, -0.0])
    content = numbers(seed, count, token, 0.0, 1.0).astype(np.float64)
    content[::2] = bad[integers(seed ^ 1, count, 0, len(bad) - 1)][::2]
    return encoded(content, token)


def scales(seed: int, count: int, token: str, values: Values) -> Array:
    """Positive scales from 1/16 up to 1/8; 1/16 keeps f16 products normal."""
    return encoded(numbers(seed, count, token, 0.0625, 0.125), token)


def subnormal_singles(seed: int, count: int, token: str, values: Values) -> Array:
    """Subnormal numbers of f32 also where the element is f64; else the element's own."""
    if token != "f64":
        return subnormal(seed, count, token, values)
    return encoded(subnormal(seed, count, "f32", values).view(np.float32).astype(np.float64), token)


def zero_points(seed: int, count: int, token: str, values: Values) -> Array:
    return encoded(integers(seed, count, -128, 255), token)


def far_zero_points(seed: int, count: int, token: str, values: Values) -> Array:
    """Up to 2^15 - 256 on either side: the difference is still exact in f32."""
    return encoded(integers(seed, count, -32512, 32512), token)
