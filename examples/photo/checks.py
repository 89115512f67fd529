# SPDX-License-Identifier: Apache-2.0
"""One thing that the demo promises and how it turned out; what is promised stands in the jobs."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """A promise with what was found and what was wanted, both as text."""

    promise: str
    kept: bool
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.kept else 'FAIL'}  {self.promise}: {self.found} (wanted {self.wanted})"


def at_least(promise: str, found: float, wanted: float, unit: str = "") -> Check:
    """Keeps the promise if found >= wanted; a NaN does not."""
    return Check(promise, bool(found >= wanted), f"{found:.3g}{unit}", f"at least {wanted:g}{unit}")


def at_most(promise: str, found: float, wanted: float, unit: str = "") -> Check:
    """Keeps the promise if found <= wanted; a NaN does not."""
    return Check(promise, bool(found <= wanted), f"{found:.3g}{unit}", f"at most {wanted:g}{unit}")


def equal(promise: str, found: int, wanted: int) -> Check:
    """Keeps the promise if both numbers are the same."""
    return Check(promise, found == wanted, f"{found:,}", f"{wanted:,}")
