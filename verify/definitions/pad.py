# SPDX-License-Identifier: Apache-2.0
"""Padding and its gradient as moves and sums of whole elements; which element stands where is found by walking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, in_float64

# The gradient of padding: additions, which the terms pay for, and the last partial sum.
PAD = Roundings(1, 1)

# In the order of the numbers that the ABI's options give them; all but the first repeat the tensor.
MODES = ("constant", "reflect", "replicate", "circular", "symmetric")

OUTSIDE = -1


def _walk(mode: str, kept: int, steps: int) -> list[int]:
    """The elements met in `steps` steps upwards from the last of `kept` elements; downwards is the mirror image."""
    place, direction = kept - 1, 1
    met = []
    for _ in range(steps):
        ahead = place + direction
        if 0 <= ahead < kept:
            place = ahead
        elif mode == "circular":
            place = 0
        elif mode == "symmetric":
            direction = -direction  # the end once more, then back
        elif mode == "reflect" and kept > 1:
            direction = -direction
            place += direction
        met.append(OUTSIDE if mode == "constant" else place)
    return met


def sources(mode: str, extent: int, low: int, high: int) -> Array:
    """Which input index every padded index of an axis holds, or OUTSIDE. Negative pads crop before anything else."""
    kept = extent + min(low, 0) + min(high, 0)
    if kept < 0:
        raise ValueError(f"pads {low}, {high} crop an extent of {extent} below nothing")
    if kept == 0 and mode != "constant" and (low > 0 or high > 0):
        raise ValueError("no element to repeat")
    above = _walk(mode, kept, max(high, 0))
    below = [place if place == OUTSIDE else kept - 1 - place for place in _walk(mode, kept, max(low, 0))]
    found = np.array([*reversed(below), *range(kept), *above], np.int64)
    return np.where(found == OUTSIDE, OUTSIDE, found - min(low, 0))


def _moves(mode: str, shape: Sequence[int], low: Sequence[int], high: Sequence[int]) -> tuple[list[int], Array, Array]:
    """Padded shape, and the flat (padded, unpadded) indices of every padded element that has a source."""
    axes = [sources(mode, *each) for each in zip(shape, low, high, strict=True)]
    padded = [len(axis) for axis in axes]
    inside = np.ones(padded, bool)
    source = np.zeros(padded, np.int64)
    for number, axis in enumerate(axes):
        along = axis.reshape([-1 if a == number else 1 for a in range(len(axes))])
        inside &= along != OUTSIDE
        source = source * shape[number] + along
    return padded, np.flatnonzero(inside), source[inside]


def pad(input: Any, low: Sequence[int], high: Sequence[int], mode: str = "constant", value: Any = 0) -> Array:
    """Every padded element takes its source; one without is ``value`` in the input's dtype."""
    values = np.asarray(input)
    padded, target, source = _moves(mode, values.shape, low, high)
    output = np.full(int(np.prod(padded, dtype=np.int64)), value, values.dtype)
    output[target] = values.reshape(-1)[source]
    return output.reshape(padded)


def pad_backward(grad_output: Any, low: Sequence[int], high: Sequence[int], mode: str = "constant") -> Sum:
    """Every gradient element is added to its source, and one that is alone is moved; cropped input elements get 0."""
    gradient = np.asarray(grad_output)
    shape = [extent - before - after for extent, before, after in zip(gradient.shape, low, high, strict=True)]
    _, target, source = _moves(mode, shape, low, high)
    sums = Accumulator(int(np.prod(shape, dtype=np.int64)), 1)
    sums.add(source, in_float64(gradient.reshape(-1)[target]).reshape(-1, 1))
    expected = sums.result(PAD).map(lambda part: part.reshape(shape))
    return expected._replace(roundings=np.where(expected.terms > 1, expected.roundings, 0))


def pad_backward_moves(patterns: Array, low: Sequence[int], high: Sequence[int], mode: str = "constant") -> Array:
    """Where an input element occurs at most once in the padded tensor: its gradient's bit pattern, else anything."""
    shape = [extent - before - after for extent, before, after in zip(patterns.shape, low, high, strict=True)]
    _, target, source = _moves(mode, shape, low, high)
    moved = np.zeros(int(np.prod(shape, dtype=np.int64)), patterns.dtype)
    moved[source] = patterns.reshape(-1)[target]
    return moved.reshape(shape)
