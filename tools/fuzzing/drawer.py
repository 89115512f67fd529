# SPDX-License-Identifier: Apache-2.0
"""The randomness of one call: everything is a function of the seed and the call's number. No operator is named here."""

from __future__ import annotations

from random import Random
from typing import Any

SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17)


class Drawer:
    """Randomness of one call."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = Random((seed << 44) + number)
        self.random = self.rng.random

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def one_in(self, count: int) -> bool:
        return self.random() * count < 1

    def choice(self, values: Any) -> Any:
        return values[int(self.random() * len(values))]

    def size(self, most: int = 17) -> int:
        """Small and often odd; one in some is 0."""
        found: int = SIZES[int(self.random() * len(SIZES))]
        return found if found <= most else int(self.random() * most) + 1

    def bits(self, count: int) -> int:
        return self.rng.getrandbits(count)
