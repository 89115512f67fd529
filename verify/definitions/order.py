# SPDX-License-Identifier: Apache-2.0
"""Order statistics along the middle axis of [outer, length, inner], by sorting a row and by comparing its elements.

Sources: torch.kthvalue, median, nanmedian and mode. Of equal elements the lowest place counts, and NaNs, which are
larger than every number, are equal to each other; but not where elements are counted. All of it is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.dtypes import Array, in_float64


def _comparable(input: Any) -> Array:
    """Elements as numbers that compare as they do."""
    array = np.asarray(input)
    return array if array.dtype.kind in "iu" else in_float64(array)


def _selected(input: Any, places: Array) -> tuple[Array, Array]:
    """The elements at a place of each row, their own bits, and the places."""
    return np.ascontiguousarray(np.take_along_axis(np.asarray(input), places[:, None], 1)[:, 0]), places


def _first_equal(row: Array, value: Any) -> int:
    equals = row == value if value == value else row != row
    return int(np.flatnonzero(equals)[0])


def _each_row(input: Any, choose: Any) -> tuple[Array, Array]:
    """What `choose` answers of each row, a value, is looked for in the row."""
    values = _comparable(input)
    places = np.zeros((values.shape[0], values.shape[2]), np.int64)
    for outer, inner in np.ndindex(*places.shape):
        row = values[outer, :, inner]
        places[outer, inner] = _first_equal(row, choose(row))
    return _selected(input, places)


def kthvalue(input: Any, k: int) -> tuple[Array, Array]:
    """Of each row in ascending order the k-th element, counted from 1."""
    return _each_row(input, lambda row: np.sort(row)[k - 1])


def _lower_middle(row: Array) -> Any:
    return np.sort(row)[(len(row) - 1) // 2]


def median(input: Any) -> tuple[Array, Array]:
    """The lower one in the middle, or a NaN if there is one."""
    return _each_row(input, lambda row: _lower_middle(row) if (row == row).all() else row[row != row][0])


def nanmedian(input: Any) -> tuple[Array, Array]:
    """That of the numbers, or a NaN if there are none."""
    return _each_row(input, lambda row: _lower_middle(row[row == row]) if (row == row).any() else row[0])


def mode(input: Any) -> tuple[Array, Array]:
    """The smallest of those numbers that occur most often, or a NaN if there are none."""

    def most_frequent(row: Array) -> Any:
        numbers, times = np.unique(row[row == row], return_counts=True)
        return numbers[np.argmax(times)] if len(numbers) else row[0]

    return _each_row(input, most_frequent)


def value_selecting_reduction_backward(grad_output: Any, indices: Any, length: int) -> Array:
    """Zeros, and at each row's index its gradient, whose bits are moved; an index outside of its row names nothing."""
    gradient, named = np.asarray(grad_output), np.asarray(indices)
    found = np.zeros((gradient.shape[0], length, gradient.shape[1]), gradient.dtype)
    for outer, inner in zip(*np.nonzero((named >= 0) & (named < length)), strict=True):
        found[outer, named[outer, inner], inner] = gradient[outer, inner]
    return found
