# SPDX-License-Identifier: Apache-2.0
"""Copies elements that lie with strides, of any width and on either backend, to where they lie densely.

The kernel is that of constant padding by nothing, which moves elements bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import ClassVar

from ._descriptor import Descriptor
from ._kernel import NO_SCRATCH, Kernel

__all__ = ["copy_strided"]

_MOST_COPIES = 256


@dataclass(frozen=True, slots=True)
class _StridedCopy(Descriptor):
    """Elements of `width` bytes (1, 2, 4, 8 or 16) in places `input_strides` elements apart."""

    width: int
    input_shape: tuple[int, ...]
    input_strides: tuple[int, ...]

    operator: ClassVar[str] = "pad_constant"
    value: ClassVar[int] = 0

    @property
    def element(self) -> str:
        """The dtype token of bits of the width."""
        return f"b{8 * self.width}"

    @property
    def rank(self) -> int:
        """Axes."""
        return len(self.input_shape)

    @property
    def output_numel(self) -> int:
        """Elements."""
        return prod(self.input_shape)

    @property
    def pad_low(self) -> tuple[int, ...]:
        """Nothing is added before an axis."""
        return (0,) * self.rank

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Nor after one."""
        return self.input_shape

    @property
    def output_strides(self) -> tuple[int, ...]:
        """Row-major, without gaps."""
        return tuple(prod(self.input_shape[axis + 1 :]) for axis in range(self.rank))


@lru_cache(maxsize=_MOST_COPIES)
def _kernel(backend: str, width: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Kernel:
    return Kernel(_StridedCopy(width, shape, strides), backend)


def copy_strided(
    backend: str, width: int, shape: tuple[int, ...], strides: tuple[int, ...], source: int, target: int, stream: int
) -> None:
    """Copy from the address `source` to `target`; `strides` are in elements of `width` bytes."""
    _kernel(backend, width, shape, strides).invoke((source, target), NO_SCRATCH, stream)
