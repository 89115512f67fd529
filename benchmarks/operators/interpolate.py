# SPDX-License-Identifier: Apache-2.0
"""Interpolation as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from benchmarks.harness.case import NO_SLOWER, TWICE_AS_FAST, Case, FrameworkCall, Limit, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import (
    InterpolateBackwardDescriptor,
    InterpolateBackwardPlan,
    InterpolateDescriptor,
    InterpolatePlan,
)
from verify.definitions import interpolate as definitions
from verify.dtypes import Array

# So many of the planes are held against their definition.
_PLANES = 2
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}

C = TypeVar("C", bound="_Interpolate")


@dataclass(frozen=True, kw_only=True)
class _Interpolate(Case):
    """Planes of `sizes` and of `size`, by size."""

    n: int
    c: int
    sizes: tuple[int, ...]
    size: tuple[int, ...]
    mode: str = "linear"
    align_corners: bool = False

    @property
    def text(self) -> str:
        extents = ("x".join(map(str, each)) for each in (self.sizes, self.size))
        corners = ", corners kept" if self.align_corners else ""
        antialiased = " antialiased" if self._is_antialiased else ""
        return f"{self._torch_mode}{antialiased} N{self.n} C{self.c} {' to '.join(extents)}{corners}"

    @property
    def _is_antialiased(self) -> bool:
        return self.mode in definitions.ANTIALIASED

    @property
    def _torch_mode(self) -> str:
        kind = self.mode.removesuffix("-antialias")
        return {"linear": _LINEAR[len(self.sizes)], "cubic": "bicubic"}.get(kind, kind)

    @property
    def _inner(self) -> tuple[int, ...]:
        return (self.n, self.c, *self.sizes)

    @property
    def _outer(self) -> tuple[int, ...]:
        return (self.n, self.c, *self.size)

    @property
    def _fields(self) -> dict[str, Any]:
        """What both descriptors are made of."""
        return {
            "n": self.n,
            "c": self.c,
            "input_size": self.sizes,
            "output_size": self.size,
            "mode": self.mode,
            "align_corners": self.align_corners,
            "element": self.element,
        }

    @property
    def _torch_corners(self) -> tuple[bool, ...]:
        """The argument that PyTorch's operators have but in the nearest modes."""
        return () if self.mode in ("nearest", "nearest-exact") else (self.align_corners,)

    @property
    def _torch_name(self) -> str:
        axes = f"{len(self.sizes)}d"
        if self._is_antialiased:
            return f"_upsample_{self._torch_mode}{axes}_aa"
        return {"nearest": f"upsample_nearest{axes}", "nearest-exact": f"_upsample_nearest_exact{axes}"}.get(
            self.mode, f"upsample_{self._torch_mode}{axes}"
        )

    @property
    def parts_text(self) -> str:
        return f"{_PLANES} of {self.n * self.c} planes"

    def _planes(self, values: Array) -> Array:
        """The planes, one after the other, as images of one channel."""
        return values.reshape(-1, 1, *values.shape[2:])

    def _small(self: C) -> C:
        sizes = tuple(range(5, 5 + len(self.sizes)))
        size = tuple(each // 2 if self._is_antialiased else 2 * each for each in sizes)
        return replace(self, n=2, c=3, sizes=sizes, size=size)


@dataclass(frozen=True, kw_only=True)
class Interpolate(_Interpolate):
    """Forward."""

    plan_type = InterpolatePlan

    def descriptor(self) -> InterpolateDescriptor:
        return InterpolateDescriptor(**self._fields)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self._inner, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self._outer, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        planes = draw.some(_PLANES, self.n * self.c)
        chosen = self._planes(inputs["input"])[planes]
        expected = definitions.interpolate(chosen, self.size, self.mode, self.align_corners)
        return [Part(0, lambda output: self._planes(output)[planes], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        function = getattr(torch.ops.aten, self._torch_name).out
        options = (list(self.size), *self._torch_corners)
        return {"PyTorch": lambda: (function(given["input"], *options, out=given["output"]),)}

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class InterpolateBackward(_Interpolate):
    """Backward."""

    plan_type = InterpolateBackwardPlan

    def descriptor(self) -> InterpolateBackwardDescriptor:
        return InterpolateBackwardDescriptor(**self._fields)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self._outer, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self._inner, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        planes = draw.some(_PLANES, self.n * self.c)
        chosen = self._planes(inputs["grad_output"])[planes]
        expected = definitions.interpolate_backward(chosen, self.sizes, self.mode, self.align_corners)
        return [Part(0, lambda gradient: self._planes(gradient)[planes], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        function = getattr(torch.ops.aten, f"{self._torch_name}_backward").grad_input
        options = (list(self.size), list(self._inner), *self._torch_corners)
        return {"PyTorch": lambda: (function(given["grad_output"], *options, grad_input=given["grad_input"]),)}

    def small(self) -> Case:
        return self._small()


# ---- rows

ORDER = 35

# All bytes at the rate of a copy, and room for two more reads of what neighbours share: whole factors, of which a half
# is one.
_NEAR_LIGHT = (Limit("light", 1.6), Limit("peer", 1.0))
# Factors that are not whole, whose windows differ from element to element; sixteen taps for an output pixel; filters
# that overlap.
_SHARED = (Limit("light", 2.2), Limit("peer", 1.0))

# Feature maps and labels doubled, as decoders do; a small map and a large one; volumes; signals; by no whole factor.
_DOUBLED: dict[str, Any] = dict(n=16, c=64, sizes=(128, 128), size=(256, 256))
_SMALL: dict[str, Any] = dict(n=8, c=256, sizes=(14, 14), size=(28, 28))
_LARGE: dict[str, Any] = dict(n=2, c=64, sizes=(512, 512), size=(1024, 1024))
_FOURFOLD: dict[str, Any] = dict(n=8, c=21, sizes=(128, 128), size=(512, 512))
_ODD: dict[str, Any] = dict(n=16, c=64, sizes=(100, 152), size=(199, 303))
_HALVED: dict[str, Any] = dict(n=16, c=64, sizes=(256, 256), size=(128, 128))
_VOLUMES: dict[str, Any] = dict(n=2, c=32, sizes=(32, 64, 64), size=(64, 128, 128))
_SIGNALS: dict[str, Any] = dict(n=16, c=64, sizes=(16384,), size=(32768,))
# Thumbnails of photographs, and maps brought to a size of no whole factor.
_THUMBNAILS: dict[str, Any] = dict(n=32, c=3, sizes=(1024, 1024), size=(224, 224))
_REDUCED: dict[str, Any] = dict(n=16, c=64, sizes=(199, 303), size=(100, 152))
_SMALL_HALVED: dict[str, Any] = dict(n=8, c=256, sizes=(28, 28), size=(14, 14))
_ONE_PIXEL: dict[str, Any] = dict(n=16, c=256, sizes=(1, 1), size=(64, 64))

CUDA = (
    Row(InterpolateBackward(**_DOUBLED), limits=_NEAR_LIGHT, headline=True),
    Row(InterpolateBackward(**_DOUBLED, element="f16"), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_DOUBLED, element="bf16"), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_DOUBLED, element="f64"), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_DOUBLED, align_corners=True), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_DOUBLED, mode="nearest"), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_DOUBLED, mode="nearest-exact"), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_SMALL), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_LARGE), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_FOURFOLD), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_ODD), limits=_SHARED),
    Row(InterpolateBackward(**_HALVED), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_ONE_PIXEL), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_VOLUMES), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_SIGNALS), limits=_NEAR_LIGHT),
    Row(InterpolateBackward(**_DOUBLED, mode="cubic"), limits=_SHARED, headline=True),
    Row(InterpolateBackward(**_DOUBLED, mode="cubic", element="f16"), limits=_SHARED),
    Row(InterpolateBackward(**_DOUBLED, mode="cubic", element="f64"), limits=_SHARED),
    Row(InterpolateBackward(**_SMALL, mode="cubic"), limits=_SHARED),
    Row(InterpolateBackward(**_LARGE, mode="cubic"), limits=_SHARED),
    Row(InterpolateBackward(**_ODD, mode="cubic", align_corners=True), limits=_SHARED),
    Row(InterpolateBackward(**_HALVED, mode="cubic"), limits=_SHARED),
    *(
        row
        for mode in definitions.ANTIALIASED
        for row in (
            Row(InterpolateBackward(**_HALVED, mode=mode), limits=_SHARED, headline=mode == "linear-antialias"),
            Row(InterpolateBackward(**_HALVED, mode=mode, element="f16"), limits=_SHARED),
            Row(InterpolateBackward(**_HALVED, mode=mode, element="f64"), limits=_SHARED),
            Row(InterpolateBackward(**_THUMBNAILS, mode=mode), limits=_SHARED),
            Row(InterpolateBackward(**_REDUCED, mode=mode), limits=_SHARED),
            Row(InterpolateBackward(**_DOUBLED, mode=mode), limits=_SHARED),
            Row(InterpolateBackward(**_SMALL_HALVED, mode=mode), limits=_SHARED),
            Row(Interpolate(**_HALVED, mode=mode), limits=NO_SLOWER),
            Row(Interpolate(**_HALVED, mode=mode, element="f16"), limits=NO_SLOWER),
            Row(Interpolate(**_THUMBNAILS, mode=mode), limits=NO_SLOWER),
            Row(Interpolate(**_REDUCED, mode=mode), limits=NO_SLOWER),
            Row(Interpolate(**_DOUBLED, mode=mode), limits=NO_SLOWER),
            Row(Interpolate(**_SMALL_HALVED, mode=mode), limits=NO_SLOWER),
        )
    ),
    Row(Interpolate(**_DOUBLED), limits=NO_SLOWER),
    Row(Interpolate(**_DOUBLED, element="f16"), limits=NO_SLOWER),
    Row(Interpolate(**_DOUBLED, mode="nearest"), limits=NO_SLOWER),
    Row(Interpolate(**_SMALL), limits=NO_SLOWER),
    Row(Interpolate(**_LARGE), limits=NO_SLOWER),
    Row(Interpolate(**_FOURFOLD), limits=NO_SLOWER),
    Row(Interpolate(**_ODD), limits=NO_SLOWER),
    Row(Interpolate(**_HALVED), limits=NO_SLOWER),
    Row(Interpolate(**_VOLUMES), limits=NO_SLOWER),
    Row(Interpolate(**_VOLUMES, mode="nearest"), limits=NO_SLOWER),
    Row(Interpolate(**_SIGNALS), limits=NO_SLOWER),
    Row(Interpolate(**_DOUBLED, mode="cubic"), limits=NO_SLOWER),
    Row(Interpolate(**_DOUBLED, mode="cubic", element="f16"), limits=NO_SLOWER),
    Row(Interpolate(**_LARGE, mode="cubic"), limits=NO_SLOWER),
    Row(Interpolate(**_HALVED, mode="cubic"), limits=NO_SLOWER),
)

_CPU_IMAGES: dict[str, Any] = dict(n=2, c=16, sizes=(128, 128), size=(256, 256))
_CPU_HALVED: dict[str, Any] = dict(n=2, c=16, sizes=(256, 256), size=(128, 128))
_CPU_THUMBNAILS: dict[str, Any] = dict(n=2, c=3, sizes=(512, 512), size=(112, 112))
_CPU_VOLUMES: dict[str, Any] = dict(n=1, c=8, sizes=(16, 32, 32), size=(32, 64, 64))

CPU = (
    on_cpu(InterpolateBackward(**_CPU_IMAGES), TWICE_AS_FAST),
    on_cpu(InterpolateBackward(**_CPU_IMAGES, element="bf16"), TWICE_AS_FAST),
    on_cpu(InterpolateBackward(**_CPU_IMAGES, mode="nearest"), TWICE_AS_FAST),
    on_cpu(InterpolateBackward(**_CPU_VOLUMES), TWICE_AS_FAST),
    on_cpu(Interpolate(**_CPU_IMAGES), NO_SLOWER),
    on_cpu(Interpolate(**_CPU_IMAGES, element="bf16"), NO_SLOWER),
    on_cpu(Interpolate(**_CPU_IMAGES, mode="nearest"), NO_SLOWER),
    on_cpu(Interpolate(**_CPU_VOLUMES), NO_SLOWER),
    on_cpu(InterpolateBackward(**_CPU_IMAGES, mode="cubic"), TWICE_AS_FAST),
    on_cpu(Interpolate(**_CPU_IMAGES, mode="cubic"), NO_SLOWER),
    *(
        on_cpu(direction(**sizes, mode=mode), limits)
        for mode in definitions.ANTIALIASED
        for direction, limits in ((InterpolateBackward, TWICE_AS_FAST), (Interpolate, NO_SLOWER))
        for sizes in (_CPU_HALVED, _CPU_THUMBNAILS)
    ),
)
