# SPDX-License-Identifier: Apache-2.0
"""Constant padding and its gradient as moves of whole elements, in any dtype; bits are never interpreted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oracle.sums import Array


def _moves(shape: Sequence[int], pad_low: Sequence[int], pad_high: Sequence[int]) -> tuple[list[int], Array, Array]:
    """Padded shape, and the (unpadded, padded) coordinates of every element that both hold.

    A negative pad crops. In constant mode "crop, then pad" and "shift, then drop what falls outside"
    keep the same elements as long as a crop leaves at least nothing: more is an error.
    """
    padded = []
    for extent, low, high in zip(shape, pad_low, pad_high, strict=True):
        if extent + min(low, 0) + min(high, 0) < 0:
            raise ValueError(f"pads {low}, {high} crop an extent of {extent} below nothing")
        padded.append(extent + low + high)
    coordinates = np.indices(tuple(shape), dtype=np.int64).reshape(len(shape), -1)
    shifted = coordinates + np.asarray(pad_low, np.int64).reshape(-1, 1)
    inside = np.ones(coordinates.shape[1], bool)
    for axis, (extent, high) in enumerate(zip(shape, pad_high, strict=True)):
        inside &= (shifted[axis] >= 0) & (coordinates[axis] < extent + min(high, 0))
        inside &= shifted[axis] < padded[axis]
    return padded, coordinates[:, inside], shifted[:, inside]


def pad_constant(input: Any, pad_low: Sequence[int], pad_high: Sequence[int], value: Any = 0) -> Array:
    """Every element moved by pad_low; the rest of the output is ``value`` in the input's dtype."""
    source = np.asarray(input)
    shape, taken, target = _moves(source.shape, pad_low, pad_high)
    output = np.full(shape, value, source.dtype)
    output[tuple(target)] = source[tuple(taken)]
    return output


def pad_constant_backward(grad_output: Any, pad_low: Sequence[int], pad_high: Sequence[int]) -> Array:
    """Every gradient element moved back; input elements that were cropped away get 0."""
    gradient = np.asarray(grad_output)
    shape = [extent - low - high for extent, low, high in zip(gradient.shape, pad_low, pad_high, strict=True)]
    _, target, taken = _moves(shape, pad_low, pad_high)
    grad_input = np.zeros(shape, gradient.dtype)
    grad_input[tuple(target)] = gradient[tuple(taken)]
    return grad_input
