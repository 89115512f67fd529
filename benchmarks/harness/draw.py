# SPDX-License-Identifier: Apache-2.0
"""Fresh random arrays, made by every core at once; what distribution an operator's inputs have is said in its case."""

from __future__ import annotations

import math
import os
import secrets
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from verify.dtypes import Array, dtype_of

# Elements that one generator makes: a few milliseconds' work.
_CHUNK = 1 << 19


class Draw:
    """Random numbers of one row; the same entropy gives the same numbers on every machine.

    Attributes
    ----------
    rng : numpy.random.Generator
        For what is small.
    entropy : int
    """

    def __init__(self, entropy: int | None = None) -> None:
        self.entropy = secrets.randbits(64) if entropy is None else entropy
        self._seeds = np.random.SeedSequence(self.entropy)
        self.rng = np.random.default_rng(self._seeds.spawn(1)[0])

    def normal(self, shape: tuple[int, ...], element: str) -> Array:
        """Standard normal numbers in a float dtype, given by its token."""
        result = np.empty(math.prod(shape), dtype_of(element))
        source = np.float64 if element == "f64" else np.float32

        def fill(part: Array, seed: np.random.SeedSequence) -> None:
            part[:] = np.random.default_rng(seed).standard_normal(len(part), source)

        parts = [result[start : start + _CHUNK] for start in range(0, len(result), _CHUNK)]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(fill, parts, self._seeds.spawn(len(parts))))
        return result.reshape(shape)

    def some(self, count: int, of: int) -> Array:
        """At most `count` different ascending indices below `of`."""
        return np.sort(self.rng.choice(of, min(count, of), replace=False))
