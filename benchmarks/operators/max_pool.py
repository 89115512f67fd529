# SPDX-License-Identifier: Apache-2.0
"""Maximum pooling as benchmark cases, by fixed and by adaptive windows, both directions; nothing about another
operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness.case import NO_SLOWER, TWICE_AS_FAST, FrameworkCall, Limit, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from benchmarks.harness.pooling import PLANES, AdaptivePooling, FixedPooling, Pooling
from pybaracuda import (
    AdaptiveMaxPoolBackwardDescriptor,
    AdaptiveMaxPoolBackwardPlan,
    AdaptiveMaxPoolDescriptor,
    AdaptiveMaxPoolPlan,
    MaxPoolBackwardDescriptor,
    MaxPoolBackwardPlan,
    MaxPoolDescriptor,
    MaxPoolPlan,
)
from verify.bounds import exact
from verify.definitions import max_pool as definitions
from verify.dtypes import Array


@dataclass(frozen=True, kw_only=True)
class _Pool(Pooling):
    """What is held against the definition."""

    @property
    def _axes(self) -> definitions.Axes:
        raise NotImplementedError

    def _forward_parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        channels, image = draw.some(PLANES, self.c), int(draw.rng.integers(self.n))
        expected = definitions.max_pool(inputs["input"][image, channels][None], self._axes)
        return [
            Part(number, lambda output: output[image, channels][None], exact(values))
            for number, values in enumerate(expected)
        ]

    def _forward_outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.output_shape, self.element), "indices": (self.output_shape, "i64")}

    def _draw_windows(self, draw: Draw) -> dict[str, Array]:
        """A gradient, and of each window any of its elements."""
        places = []
        for axis, windows in enumerate(self._axes):
            firsts = np.array([window.start for window in windows])
            counts = np.array([len(window) for window in windows])
            shape = [1] * 5
            shape[2 + axis] = -1
            drawn = np.floor(draw.rng.random(self.output_shape, np.float32) * counts.reshape(shape)).astype(np.int64)
            places.append(np.minimum(drawn, counts.reshape(shape) - 1) + firsts.reshape(shape))
        _, _, _, h, w = self.input_shape
        indices = (places[0] * h + places[1]) * w + places[2]
        return {"grad_output": draw.normal(self.output_shape, self.element), "indices": indices}

    def _backward_parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        channels, image = draw.some(PLANES, self.c), int(draw.rng.integers(self.n))
        gradient, shape = inputs["grad_output"][image, channels][None], (1, len(channels), *self.input_shape[2:])
        indices = inputs["indices"][image, channels][None]
        expected = definitions.max_pool_backward(gradient, indices, shape, self._axes)
        return [Part(0, lambda gradient: gradient[image, channels][None], expected)]


@dataclass(frozen=True, kw_only=True)
class _Fixed(_Pool, FixedPooling):
    """By fixed windows."""

    @property
    def _axes(self) -> definitions.Axes:
        sizes = (self.kernel, self.stride, self.padding, 1)
        found = [
            definitions.fixed_windows(extent, bins, *(sizes if place >= 3 - len(self.extents) else (1, 1, 0, 1)))
            for place, (extent, bins) in enumerate(zip(self.input_shape[2:], self.output_shape[2:], strict=True))
        ]
        return found[0], found[1], found[2]

    def fields(self) -> tuple[Any, ...]:
        windows = self.of_windows((self.kernel, 1), (self.stride, 1), (self.padding, 0), (1, 1))
        return (*super().fields(), *windows, self.element)


@dataclass(frozen=True, kw_only=True)
class MaxPool(_Fixed):
    """Forward."""

    plan_type = MaxPoolPlan

    def descriptor(self) -> MaxPoolDescriptor:
        return MaxPoolDescriptor(*self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.input_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return self._forward_outputs()

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        return self._forward_parts(inputs, draw)

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        image = self.flat(given["input"])
        function = getattr(torch.nn.functional, f"max_pool{len(self.extents)}d")
        return {"torch": lambda: function(image, self.kernel, self.stride, self.padding, return_indices=True)}


@dataclass(frozen=True, kw_only=True)
class MaxPoolBackward(_Fixed):
    """Backward."""

    plan_type = MaxPoolBackwardPlan

    def descriptor(self) -> MaxPoolBackwardDescriptor:
        return MaxPoolBackwardDescriptor(*self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return self._draw_windows(draw)

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
        function = getattr(torch.ops.aten, f"max_pool{axes}d_with_indices_backward")
        indices = self.flat(given["indices"])
        sizes = [[size] * axes for size in (self.kernel, self.stride, self.padding, 1)]
        return {"torch": lambda: (function(gradient, image, *sizes, False, indices),)}


@dataclass(frozen=True, kw_only=True)
class _Adaptive(_Pool, AdaptivePooling):
    """By windows that divide the elements."""

    @property
    def _axes(self) -> definitions.Axes:
        sizes = zip(self.input_shape[2:], self.output_shape[2:], strict=True)
        d, h, w = (definitions.adaptive_windows(*size) for size in sizes)
        return d, h, w


@dataclass(frozen=True, kw_only=True)
class AdaptiveMaxPool(_Adaptive):
    """Forward."""

    plan_type = AdaptiveMaxPoolPlan

    def descriptor(self) -> AdaptiveMaxPoolDescriptor:
        return AdaptiveMaxPoolDescriptor(*self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.input_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return self._forward_outputs()

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        return self._forward_parts(inputs, draw)

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        image = self.flat(given["input"])
        function = getattr(torch.nn.functional, f"adaptive_max_pool{len(self.extents)}d")
        return {"torch": lambda: function(image, self.windows, return_indices=True)}


@dataclass(frozen=True, kw_only=True)
class AdaptiveMaxPoolBackward(_Adaptive):
    """Backward."""

    plan_type = AdaptiveMaxPoolBackwardPlan

    def descriptor(self) -> AdaptiveMaxPoolBackwardDescriptor:
        return AdaptiveMaxPoolBackwardDescriptor(*self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return self._draw_windows(draw)

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
        function = getattr(torch.ops.aten, f"adaptive_max_pool{axes}d_backward")
        indices = self.flat(given["indices"])
        return {"torch": lambda: (function(gradient, image, indices),)}


# ---- rows

ORDER = 72

_BACKWARD = (Limit("light", 1.6), Limit("peer", 1.0))
_FRACTIONAL = (Limit("light", 2.2), Limit("peer", 1.0))

# The shapes that PyTorch refuses with its deterministic flag, and some beside them.
_VOLUME: dict[str, Any] = dict(n=2, c=32, extents=(32, 64, 64), kernel=3, stride=2)
_MAP: dict[str, Any] = dict(n=16, c=64, extents=(128, 128))
_STEM: dict[str, Any] = dict(n=8, c=64, extents=(112, 112), kernel=3, stride=2, padding=1)
_SCAN: dict[str, Any] = dict(n=2, c=32, extents=(32, 64, 64))

CUDA = (
    Row(MaxPoolBackward(**_VOLUME), limits=_BACKWARD, headline=True),
    Row(MaxPoolBackward(**_VOLUME, element="f16"), limits=_BACKWARD),
    Row(MaxPoolBackward(**_MAP, kernel=3, stride=2), limits=_BACKWARD),
    Row(MaxPoolBackward(**_STEM), limits=_BACKWARD),
    Row(AdaptiveMaxPoolBackward(**_MAP, bins=50), limits=_FRACTIONAL),
    Row(AdaptiveMaxPoolBackward(**_SCAN, bins=7), limits=_FRACTIONAL),
    Row(MaxPool(**_VOLUME), limits=NO_SLOWER),
    Row(MaxPool(**_MAP, kernel=3, stride=2), limits=NO_SLOWER),
    Row(MaxPool(**_STEM), limits=NO_SLOWER),
    Row(AdaptiveMaxPool(**_MAP, bins=50), limits=NO_SLOWER),
    Row(AdaptiveMaxPool(**_SCAN, bins=7), limits=NO_SLOWER),
)

CPU = (
    on_cpu(MaxPoolBackward(n=2, c=16, extents=(32, 64, 64), kernel=3, stride=2), TWICE_AS_FAST),
    on_cpu(MaxPool(n=2, c=16, extents=(32, 64, 64), kernel=3, stride=2), NO_SLOWER),
    on_cpu(AdaptiveMaxPoolBackward(n=4, c=64, extents=(128, 128), bins=50), TWICE_AS_FAST),
    on_cpu(AdaptiveMaxPool(n=4, c=64, extents=(128, 128), bins=50), NO_SLOWER),
)
