# SPDX-License-Identifier: Apache-2.0
"""What an oracle of a sum returns, and how it scatters; no operator may be defined here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Sum(NamedTuple):
    """A sum per output element, with what a rounding-error bound needs to know about it."""

    value: Array  # float64
    magnitude: Array  # float64: the same sum over the terms' absolute values
    terms: Array  # int64: how many terms the sum has; a tap of zero weight is not a term


class Accumulator:
    """Scatters terms into rows of a [rows, columns] table, keeping the three parts of a Sum."""

    def __init__(self, rows: int, columns: int) -> None:
        self.value = np.zeros((rows, columns))
        self.magnitude = np.zeros((rows, columns))
        self.terms = np.zeros((rows, columns), np.int64)

    def add(self, rows: Array, terms: Array) -> None:
        """Adds ``terms[i]`` (one number a column) to row ``rows[i]``; a row may be named many times."""
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(self.value, rows, terms)
            np.add.at(self.magnitude, rows, np.abs(terms))
        np.add.at(self.terms, rows, 1)

    def result(self) -> Sum:
        return Sum(self.value, self.magnitude, self.terms)


def in_float64(values: Any) -> Array:
    """The same numbers in float64; exact for every dtype the operators take."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return np.asarray(values).astype(np.float64)
