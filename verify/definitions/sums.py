# SPDX-License-Identifier: Apache-2.0
"""How definitions scatter terms into sums; no operator may be defined here."""

from __future__ import annotations

import numpy as np

from verify.bounds import Roundings, Sum
from verify.dtypes import Array


class Accumulator:
    """Scatters terms into rows of a [rows, columns] table, keeping value, magnitude and number of terms."""

    def __init__(self, rows: int, columns: int) -> None:
        self.value = np.zeros((rows, columns))
        self.magnitude = np.zeros((rows, columns))
        self._terms = np.zeros(rows, np.int64)

    def add(self, rows: Array, terms: Array) -> None:
        """Add ``terms[i]`` (one number a column) to row ``rows[i]``; a row may be named many times."""
        count = len(self._terms)
        with np.errstate(invalid="ignore", over="ignore"):
            for column, values in enumerate(terms.T):
                self.value[:, column] += np.bincount(rows, values, count)
                self.magnitude[:, column] += np.bincount(rows, np.abs(values), count)
        self._terms += np.bincount(rows, minlength=count)

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """Value, magnitude and number of terms."""
        return self.value, self.magnitude, np.repeat(self._terms[:, None], self.value.shape[1], axis=1)

    def result(self, roundings: Roundings) -> Sum:
        """The table as a Sum."""
        return Sum.of(self.parts, roundings)
