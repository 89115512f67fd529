# SPDX-License-Identifier: Apache-2.0
"""What pooling operators have in common as benchmark cases: extents, shapes and texts; none of them is named here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .case import Case

# What is held against the definition: so many planes.
PLANES = 2
# Extents of a small problem, and as many fewer as a case has axes.
SMALL_EXTENTS = (9, 11, 13)


@dataclass(frozen=True, kw_only=True)
class Pooling(Case):
    """Windows over the axes in `extents`, of which there are up to three."""

    n: int
    c: int
    extents: tuple[int, ...]

    @property
    def windows(self) -> tuple[int, ...]:
        """How many along each of these axes."""
        raise NotImplementedError

    def three(self, numbers: tuple[int, ...], other: int = 1) -> tuple[int, int, int]:
        """For all three axes; `other` is of those that have no windows."""
        d, h, w = (other,) * (3 - len(numbers)) + numbers
        return d, h, w

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of the elements."""
        return (self.n, self.c, *self.three(self.extents))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of the windows."""
        return (self.n, self.c, *self.three(self.windows))

    def fields(self) -> tuple[Any, ...]:
        """With what a descriptor begins."""
        return (*self.input_shape, *self.output_shape[2:])

    def flat(self, tensor: Any) -> Any:
        """Without the axes that have no windows, as PyTorch takes it."""
        return tensor.view(*tensor.shape[:2], *tensor.shape[5 - len(self.extents) :])

    @property
    def parts_text(self) -> str:
        return f"{PLANES} of {self.n * self.c} planes"


@dataclass(frozen=True, kw_only=True)
class FixedPooling(Pooling):
    """Cubic windows, alike far apart on every axis."""

    kernel: int
    stride: int
    padding: int = 0

    @property
    def text(self) -> str:
        extents = "x".join(map(str, self.extents))
        return f"N{self.n} C{self.c} {extents}, windows of {self.kernel}, {self.stride} apart, padding {self.padding}"

    @property
    def windows(self) -> tuple[int, ...]:
        return tuple((extent + 2 * self.padding - self.kernel) // self.stride + 1 for extent in self.extents)

    def of_windows(self, *numbers: tuple[int, int]) -> tuple[int, ...]:
        """A descriptor's numbers of windows: of each pair the first along an axis that has some, else the second."""
        return tuple(number for size, other in numbers for number in self.three((size,) * len(self.extents), other))

    def small(self) -> Case:
        return replace(self, n=2, c=3, extents=SMALL_EXTENTS[: len(self.extents)])


@dataclass(frozen=True, kw_only=True)
class AdaptivePooling(Pooling):
    """As many windows on every axis, among which its elements are divided."""

    bins: int

    @property
    def text(self) -> str:
        return f"N{self.n} C{self.c} {'x'.join(map(str, self.extents))} -> {self.bins}"

    @property
    def windows(self) -> tuple[int, ...]:
        return (self.bins,) * len(self.extents)

    def fields(self) -> tuple[Any, ...]:
        return (*super().fields(), self.element)

    def small(self) -> Case:
        return replace(self, n=2, c=3, extents=SMALL_EXTENTS[: len(self.extents)], bins=4)
