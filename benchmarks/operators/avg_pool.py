# SPDX-License-Identifier: Apache-2.0
"""Average pooling as benchmark cases, by fixed and by adaptive windows, both directions; nothing about another
operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.case import NO_SLOWER, TWICE_AS_FAST, FrameworkCall, Limit, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from benchmarks.harness.pooling import PLANES, AdaptivePooling, FixedPooling, Pooling
from pybaracuda import (
    AdaptiveAvgPoolBackwardDescriptor,
    AdaptiveAvgPoolBackwardPlan,
    AdaptiveAvgPoolDescriptor,
    AdaptiveAvgPoolPlan,
    AvgPoolBackwardDescriptor,
    AvgPoolBackwardPlan,
    AvgPoolDescriptor,
    AvgPoolPlan,
)
from verify.definitions import avg_pool as definitions
from verify.dtypes import Array


@dataclass(frozen=True, kw_only=True)
class _Pool(Pooling):
    """What is held against the definition."""

    @property
    def _axes(self) -> definitions.Axes:
        raise NotImplementedError

    def _forward_parts(self, inputs: Mapping[str, Array], draw: Draw, divisor: int = 0) -> list[Part]:
        channels, image = draw.some(PLANES, self.c), int(draw.rng.integers(self.n))
        expected = definitions.avg_pool(inputs["input"][image, channels][None], self._axes, divisor)
        return [Part(0, lambda output: output[image, channels][None], expected)]

    def _backward_parts(self, inputs: Mapping[str, Array], draw: Draw, divisor: int = 0) -> list[Part]:
        channels, image = draw.some(PLANES, self.c), int(draw.rng.integers(self.n))
        gradient, shape = inputs["grad_output"][image, channels][None], (1, len(channels), *self.input_shape[2:])
        expected = definitions.avg_pool_backward(gradient, shape, self._axes, divisor)
        return [Part(0, lambda gradient: gradient[image, channels][None], expected)]


@dataclass(frozen=True, kw_only=True)
class _Fixed(_Pool, FixedPooling):
    """By fixed windows."""

    @property
    def _axes(self) -> definitions.Axes:
        sizes = (self.kernel, self.stride, self.padding)
        found = [
            definitions.fixed_windows(extent, bins, *(sizes if place >= 3 - len(self.extents) else (1, 1, 0)), True)
            for place, (extent, bins) in enumerate(zip(self.input_shape[2:], self.output_shape[2:], strict=True))
        ]
        return found[0], found[1], found[2]

    def fields(self) -> tuple[Any, ...]:
        windows = self.of_windows((self.kernel, 1), (self.stride, 1), (self.padding, 0))
        return (*super().fields(), *windows, 1, 0, self.element)


@dataclass(frozen=True, kw_only=True)
class AvgPool(_Fixed):
    """Forward."""

    plan_type = AvgPoolPlan

    def descriptor(self) -> AvgPoolDescriptor:
        return AvgPoolDescriptor(*self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.input_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.output_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        return self._forward_parts(inputs, draw)

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        image = self.flat(given["input"])
        function = getattr(torch.nn.functional, f"avg_pool{len(self.extents)}d")
        return {"torch": lambda: (function(image, self.kernel, self.stride, self.padding),)}


@dataclass(frozen=True, kw_only=True)
class AvgPoolBackward(_Fixed):
    """Backward."""

    plan_type = AvgPoolBackwardPlan

    def descriptor(self) -> AvgPoolBackwardDescriptor:
        return AvgPoolBackwardDescriptor(*self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self.output_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.input_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        return self._backward_parts(inputs, draw)

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        axes = len(self.extents)
        if axes == 1:
            return {}
        gradient = self.flat(given["grad_output"])
        # Its shape alone is read.
        image = gradient.new_empty((self.n, self.c, *self.extents))
        function = getattr(torch.ops.aten, f"avg_pool{axes}d_backward")
        sizes = [[size] * axes for size in (self.kernel, self.stride, self.padding)]
        return {"torch": lambda: (function(gradient, image, *sizes, False, True, None),)}


@dataclass(frozen=True, kw_only=True)
class _Adaptive(_Pool, AdaptivePooling):
    """By windows that divide the elements."""

    @property
    def _axes(self) -> definitions.Axes:
        sizes = zip(self.input_shape[2:], self.output_shape[2:], strict=True)
        d, h, w = (definitions.adaptive_windows(*size) for size in sizes)
        return d, h, w


@dataclass(frozen=True, kw_only=True)
class AdaptiveAvgPool(_Adaptive):
    """Forward."""

    plan_type = AdaptiveAvgPoolPlan

    def descriptor(self) -> AdaptiveAvgPoolDescriptor:
        return AdaptiveAvgPoolDescriptor(*self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.input_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.output_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        return self._forward_parts(inputs, draw)

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        image = self.flat(given["input"])
        function = getattr(torch.nn.functional, f"adaptive_avg_pool{len(self.extents)}d")
        return {"torch": lambda: (function(image, self.windows),)}


@dataclass(frozen=True, kw_only=True)
class AdaptiveAvgPoolBackward(_Adaptive):
    """Backward."""

    plan_type = AdaptiveAvgPoolBackwardPlan

    def descriptor(self) -> AdaptiveAvgPoolBackwardDescriptor:
        return AdaptiveAvgPoolBackwardDescriptor(*self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self.output_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.input_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        return self._backward_parts(inputs, draw)

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        axes = len(self.extents)
        if axes == 1:
            return {}
        gradient = self.flat(given["grad_output"])
        # Its shape alone is read.
        image = gradient.new_empty((self.n, self.c, *self.extents))
        function = getattr(torch.ops.aten, f"_adaptive_avg_pool{axes}d_backward")
        return {"torch": lambda: (function(gradient, image),)}


# ---- rows

ORDER = 71

_BACKWARD = (Limit("light", 1.6), Limit("peer", 1.0))
_FRACTIONAL = (Limit("light", 2.2), Limit("peer", 1.0))

# The shapes that PyTorch refuses with its deterministic flag, and a small and a large one beside each.
_VOLUME: dict[str, Any] = dict(n=2, c=32, extents=(32, 64, 64), kernel=3, stride=2)
_HALVED: dict[str, Any] = dict(n=16, c=64, extents=(128, 128), kernel=2, stride=2)
_STEM: dict[str, Any] = dict(n=8, c=64, extents=(112, 112), kernel=3, stride=2, padding=1)
_MAP: dict[str, Any] = dict(n=16, c=64, extents=(128, 128))
_SCAN: dict[str, Any] = dict(n=2, c=32, extents=(32, 64, 64))
_LAST: dict[str, Any] = dict(n=64, c=2048, extents=(7, 7), bins=1)

CUDA = (
    Row(AvgPoolBackward(**_VOLUME), limits=_BACKWARD, headline=True),
    Row(AvgPoolBackward(**{**_VOLUME, "c": 4}), limits=_BACKWARD),
    Row(AvgPoolBackward(**{**_VOLUME, "n": 8, "c": 64}), limits=_BACKWARD),
    Row(AvgPoolBackward(**_VOLUME, element="f16"), limits=_BACKWARD),
    Row(AvgPoolBackward(**_HALVED), limits=_BACKWARD),
    Row(AvgPoolBackward(**_STEM), limits=_BACKWARD),
    Row(AdaptiveAvgPoolBackward(**_MAP, bins=7), limits=_FRACTIONAL, headline=True),
    Row(AdaptiveAvgPoolBackward(**_MAP, bins=50), limits=_FRACTIONAL),
    Row(AdaptiveAvgPoolBackward(**_MAP, bins=7, element="f16"), limits=_FRACTIONAL),
    Row(AdaptiveAvgPoolBackward(**_SCAN, bins=7), limits=_FRACTIONAL),
    Row(AdaptiveAvgPoolBackward(**_LAST), limits=_BACKWARD),
    Row(AvgPool(**_VOLUME), limits=NO_SLOWER),
    Row(AvgPool(**_HALVED), limits=NO_SLOWER),
    Row(AvgPool(**_STEM), limits=NO_SLOWER),
    Row(AvgPool(**_HALVED, element="f16"), limits=NO_SLOWER),
    Row(AdaptiveAvgPool(**_MAP, bins=7), limits=NO_SLOWER),
    Row(AdaptiveAvgPool(**_MAP, bins=50), limits=NO_SLOWER),
    Row(AdaptiveAvgPool(**_SCAN, bins=7), limits=NO_SLOWER),
    Row(AdaptiveAvgPool(**_LAST), limits=NO_SLOWER),
)

CPU = (
    on_cpu(AvgPoolBackward(n=2, c=16, extents=(32, 64, 64), kernel=3, stride=2), TWICE_AS_FAST),
    on_cpu(AvgPool(n=2, c=16, extents=(32, 64, 64), kernel=3, stride=2), NO_SLOWER),
    on_cpu(AdaptiveAvgPoolBackward(n=4, c=64, extents=(128, 128), bins=7), TWICE_AS_FAST),
    on_cpu(AdaptiveAvgPool(n=4, c=64, extents=(128, 128), bins=7), NO_SLOWER),
)
