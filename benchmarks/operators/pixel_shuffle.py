# SPDX-License-Identifier: Apache-2.0
"""pixel_shuffle and pixel_unshuffle as benchmark cases; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness.case import COPY, NEAR_COPY, NO_SLOWER, Case, FrameworkCall, JaxCall, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import (
    PixelShuffleDescriptor,
    PixelShufflePlan,
    PixelUnshuffleDescriptor,
    PixelUnshufflePlan,
)
from verify.bounds import exact
from verify.definitions import pixel_shuffle as definitions
from verify.dtypes import Array, in_float64

C = TypeVar("C", bound="_PixelShuffle")


@dataclass(frozen=True, kw_only=True)
class _PixelShuffle(Case):
    """`n` images with `c` channels of `factor` `h` x `factor` `w` pixels, or as many elements with more channels."""

    n: int
    c: int
    h: int
    w: int
    factor: int

    @property
    def text(self) -> str:
        return f"{self.n}x{self.c}x{self.h * self.factor}x{self.w * self.factor} factor {self.factor}"

    @property
    def parts_text(self) -> str:
        return "one channel"

    @property
    def _deep(self) -> tuple[int, int, int, int]:
        return (self.n, self.c * self.factor**2, self.h, self.w)

    @property
    def _wide(self) -> tuple[int, int, int, int]:
        return (self.n, self.c, self.h * self.factor, self.w * self.factor)

    def _channel_of_deep(self, chosen: Any) -> slice:
        return slice(int(chosen) * self.factor**2, (int(chosen) + 1) * self.factor**2)

    def _small(self: C) -> C:
        return replace(self, n=2, c=3, h=5, w=8)


@dataclass(frozen=True, kw_only=True)
class PixelShuffle(_PixelShuffle):
    """Channels become pixels."""

    plan_type = PixelShufflePlan

    def descriptor(self) -> PixelShuffleDescriptor:
        return PixelShuffleDescriptor(self.n, self.c, self.h, self.w, self.factor, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self._deep, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self._wide, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        chosen = int(draw.rng.integers(self.c))
        deep = np.ascontiguousarray(inputs["input"][:1, self._channel_of_deep(chosen)])
        expected = exact(in_float64(definitions.pixel_shuffle(deep, self.factor)))
        return [Part(0, lambda output: output[:1, chosen : chosen + 1], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        values, out = given["input"], given["output"]
        return {"PyTorch": lambda: (torch.ops.aten.pixel_shuffle.out(values, self.factor, out=out),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        split = (self.n, self.c, self.factor, self.factor, self.h, self.w)
        return JaxCall(lambda values: values.reshape(split).transpose(0, 1, 4, 2, 5, 3).reshape(self._wide), ("input",))

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class PixelUnshuffle(_PixelShuffle):
    """Pixels become channels."""

    plan_type = PixelUnshufflePlan

    def descriptor(self) -> PixelUnshuffleDescriptor:
        return PixelUnshuffleDescriptor(self.n, self.c, self.h, self.w, self.factor, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self._wide, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self._deep, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        chosen = int(draw.rng.integers(self.c))
        wide = np.ascontiguousarray(inputs["input"][:1, chosen : chosen + 1])
        expected = exact(in_float64(definitions.pixel_unshuffle(wide, self.factor)))
        return [Part(0, lambda output: output[:1, self._channel_of_deep(chosen)], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        values, out = given["input"], given["output"]
        return {"PyTorch": lambda: (torch.ops.aten.pixel_unshuffle.out(values, self.factor, out=out),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        split = (self.n, self.c, self.h, self.factor, self.w, self.factor)
        return JaxCall(lambda values: values.reshape(split).transpose(0, 1, 3, 5, 2, 4).reshape(self._deep), ("input",))

    def small(self) -> Case:
        return self._small()


# ---- rows

ORDER = 65

_IMAGES: dict[str, Any] = dict(n=8, c=64, h=256, w=256, factor=2)
_BY_THREE: dict[str, Any] = dict(n=16, c=3, h=360, w=640, factor=3)
_BY_FOUR: dict[str, Any] = dict(n=8, c=16, h=256, w=256, factor=4)

CUDA = (
    Row(PixelShuffle(**_IMAGES), limits=COPY),
    Row(PixelUnshuffle(**_IMAGES), limits=COPY),
    Row(PixelShuffle(**_IMAGES, element="bf16"), limits=COPY),
    Row(PixelUnshuffle(**_IMAGES, element="bf16"), limits=COPY),
    Row(PixelShuffle(**_BY_THREE), limits=NO_SLOWER),
    Row(PixelUnshuffle(**_BY_THREE), limits=NO_SLOWER),
    Row(PixelShuffle(**_BY_FOUR), limits=COPY),
    Row(PixelUnshuffle(**_BY_FOUR), limits=COPY),
)

_CPU_IMAGES: dict[str, Any] = dict(n=2, c=16, h=128, w=128, factor=2)

CPU = (
    on_cpu(PixelShuffle(**_CPU_IMAGES), NEAR_COPY),
    on_cpu(PixelUnshuffle(**_CPU_IMAGES), NEAR_COPY),
)
