# SPDX-License-Identifier: Apache-2.0
"""What tests of maxima's gradients share: indices inside windows, and sums in the header's order; no tests here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verify.dtypes import Array


def indices_in_windows(
    windows: Sequence[Sequence[Sequence[int]]], extents: Sequence[int], shape: tuple[int, ...], rng: np.random.Generator
) -> Array:
    """Draw for each window of planes, which are the last three axes of `shape`, the number of a place that it holds.

    `windows` are each axis's, as the places along it that they hold, one beside the other.
    """
    indices = np.zeros(shape, np.int64)
    for axis, (extent, along) in enumerate(zip(extents, windows, strict=True)):
        in_axis = [-1 if a == axis else 1 for a in range(3)]
        first, end = (np.array([window[at] for window in along]).reshape(in_axis) for at in (0, -1))
        indices = indices * extent + rng.integers(first, end + 1, shape)
    return indices


def sums_in_order(indices: Array, grad_output: Array, elements: int, dtype: Any) -> Array:
    """The gradient of each plane, [planes, elements]: windows in row-major order, summed in `dtype`."""
    planes = indices.shape[0] * indices.shape[1]
    sums = np.zeros((planes, elements), dtype)
    terms = grad_output.reshape(planes, -1).astype(dtype)
    for plane, named in enumerate(indices.reshape(planes, -1)):
        np.add.at(sums[plane], named, terms[plane])
    return sums
