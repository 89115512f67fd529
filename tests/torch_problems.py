# SPDX-License-Identifier: Apache-2.0
"""What tests of many drawn problems beside PyTorch's and torchvision's CPU kernels share; no operator, no test here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from place import available
from tolerance import assert_within

from verify.bounds import Sum
from verify.dtypes import Array
from verify.judge import compare


def torchvision_or_none() -> Any:
    """torchvision, if its kernels are there: a build for another PyTorch lacks them, or cannot be imported at all."""
    if not (available("torch") and available("torchvision")):
        return None
    try:
        torchvision = importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        return None
    return torchvision if torchvision.extension._has_ops() else None


@contextmanager
def problem(seed: Sequence[int], number: int) -> Iterator[np.random.Generator]:
    """What a problem is drawn from, and is drawn from again alone by what a failure prints."""
    drawn = [*seed, number]
    try:
        yield np.random.default_rng(drawn)
    except Exception:
        print(f"problem {number} is drawn from numpy.random.default_rng({drawn})")
        raise


def chance(rng: np.random.Generator, probability: float) -> bool:
    return bool(rng.random() < probability)


def draw(rng: np.random.Generator, values: Sequence[int], count: int) -> tuple[int, ...]:
    """So many of these numbers, each as likely as another."""
    return tuple(int(each) for each in rng.choice(values, count))


def assert_both(ours: Array, theirs: Array, expected: Sum, slack: Any = 0.0) -> None:
    """Ours is within the definition's bound; theirs, too, but for what its other formulas may differ by besides.

    Where the slack is infinite theirs is not looked at.
    """
    assert_within(ours, expected)
    assert theirs.shape == expected.value.shape, f"got shape {theirs.shape}, wanted {expected.value.shape}"
    found = compare(theirs, expected)
    wrong = ~(found.error <= found.bound + slack)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} elements of theirs are off, first at {at}: got {theirs[at]!r}, wanted "
            f"{found.wanted[at]!r} +- {found.bound[at]!r}; ours is {ours[at]!r}"
        )
