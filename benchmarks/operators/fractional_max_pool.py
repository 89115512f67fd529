# SPDX-License-Identifier: Apache-2.0
"""Fractional maximum pooling as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.case import NO_SLOWER, TWICE_AS_FAST, Case, FrameworkCall, Limit, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from benchmarks.harness.pooling import PLANES, SMALL_EXTENTS, Pooling
from pybaracuda import (
    FractionalMaxPoolBackwardDescriptor,
    FractionalMaxPoolBackwardPlan,
    FractionalMaxPoolDescriptor,
    FractionalMaxPoolPlan,
)
from verify.bounds import exact
from verify.definitions import fractional_max_pool as definitions
from verify.dtypes import Array


@dataclass(frozen=True, kw_only=True)
class _FractionalPool(Pooling):
    """Cubic windows over the axes in `extents`, two or three, as many on every axis as a part of its extent."""

    bins: tuple[int, ...]
    kernel: int = 2

    @property
    def text(self) -> str:
        extents, bins = ("x".join(map(str, sizes)) for sizes in (self.extents, self.bins))
        return f"N{self.n} C{self.c} {extents} -> {bins}, windows of {self.kernel}"

    @property
    def windows(self) -> tuple[int, ...]:
        return self.bins

    @property
    def _kernel(self) -> tuple[int, int, int]:
        return self.three((self.kernel,) * len(self.extents))

    def descriptor_fields(self, *others: Any) -> tuple[Any, ...]:
        """All of a descriptor's, `others` among them."""
        return (*self.fields(), *self._kernel, *others, self.element)

    def _samples(self, draw: Draw) -> Array:
        # Sixteenths: every dtype holds them, and none is 1.
        drawn = draw.rng.integers(0, 16, (self.n, self.c, len(self.extents))) / 16
        return drawn.astype(draw.normal((1,), self.element).dtype)

    def small(self) -> Case:
        return replace(self, n=2, c=3, extents=SMALL_EXTENTS[: len(self.extents)], bins=(4, 5, 6)[: len(self.extents)])


@dataclass(frozen=True, kw_only=True)
class FractionalMaxPool(_FractionalPool):
    """Forward."""

    plan_type = FractionalMaxPoolPlan

    def descriptor(self) -> FractionalMaxPoolDescriptor:
        return FractionalMaxPoolDescriptor(*self.descriptor_fields(len(self.extents)))

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.input_shape, self.element), "random_samples": self._samples(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.output_shape, self.element), "indices": (self.output_shape, "i64")}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        channels, image = draw.some(PLANES, self.c), int(draw.rng.integers(self.n))
        elements, samples = (inputs[name][image, channels][None] for name in ("input", "random_samples"))
        expected = definitions.fractional_max_pool(elements, samples, self._kernel, self.three(self.bins))
        return [
            Part(number, lambda output: output[image, channels][None], exact(values))
            for number, values in enumerate(expected)
        ]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        image, samples = self.flat(given["input"]), given["random_samples"]
        axes = len(self.extents)
        function = getattr(torch.ops.aten, f"fractional_max_pool{axes}d")
        return {"torch": lambda: function(image, [self.kernel] * axes, list(self.bins), samples)}


@dataclass(frozen=True, kw_only=True)
class FractionalMaxPoolBackward(_FractionalPool):
    """Backward."""

    plan_type = FractionalMaxPoolBackwardPlan

    def descriptor(self) -> FractionalMaxPoolBackwardDescriptor:
        return FractionalMaxPoolBackwardDescriptor(*self.descriptor_fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        """A gradient, and of each window that samples place any of its elements."""
        samples, index = self._samples(draw), np.zeros(self.output_shape, np.int64)
        for axis, (extent, bins) in enumerate(zip(self.input_shape[2:], self.output_shape[2:], strict=True)):
            begins = np.empty((self.n, self.c, bins), np.int64)
            for plane in np.ndindex(self.n, self.c):
                sample = definitions.samples_by_axis(samples[plane], samples.dtype)[axis]
                begins[plane] = definitions.starts(extent, bins, self._kernel[axis], sample)
            shape = [self.n, self.c, 1, 1, 1]
            shape[2 + axis] = bins
            drawn = np.floor(draw.rng.random(self.output_shape, np.float32) * self._kernel[axis]).astype(np.int64)
            index = index * extent + begins.reshape(shape) + np.minimum(drawn, self._kernel[axis] - 1)
        return {"grad_output": draw.normal(self.output_shape, self.element), "indices": index}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.input_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        channels, image = draw.some(PLANES, self.c), int(draw.rng.integers(self.n))
        gradient, indices = (inputs[name][image, channels][None] for name in ("grad_output", "indices"))
        shape = (1, len(channels), *self.input_shape[2:])
        expected = definitions.fractional_max_pool_backward(gradient, indices, shape, self._kernel)
        return [Part(0, lambda gradient: gradient[image, channels][None], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        gradient, indices = self.flat(given["grad_output"]), self.flat(given["indices"])
        axes = len(self.extents)
        # Its shape alone is read.
        image = gradient.new_empty((self.n, self.c, *self.extents))
        function = getattr(torch.ops.aten, f"fractional_max_pool{axes}d_backward")
        return {"torch": lambda: (function(gradient, image, [self.kernel] * axes, list(self.bins), indices),)}


# ---- rows

ORDER = 74

_BACKWARD = (Limit("light", 2.2), Limit("peer", 1.0))

# The shapes that PyTorch refuses with its deterministic flag, and some beside them.
_VOLUME: dict[str, Any] = dict(n=2, c=32, extents=(32, 64, 64), bins=(16, 32, 32))
_MAP: dict[str, Any] = dict(n=16, c=64, extents=(128, 128), bins=(64, 64))
_OVERLAPPING: dict[str, Any] = dict(n=16, c=64, extents=(128, 128), bins=(90, 90), kernel=3)

CUDA = (
    Row(FractionalMaxPoolBackward(**_VOLUME), limits=_BACKWARD, headline=True),
    Row(FractionalMaxPoolBackward(**_VOLUME, element="f16"), limits=_BACKWARD),
    Row(FractionalMaxPoolBackward(**_MAP), limits=_BACKWARD),
    Row(FractionalMaxPoolBackward(**_OVERLAPPING), limits=_BACKWARD),
    Row(FractionalMaxPool(**_VOLUME), limits=NO_SLOWER),
    Row(FractionalMaxPool(**_MAP), limits=NO_SLOWER),
    Row(FractionalMaxPool(**_OVERLAPPING), limits=NO_SLOWER),
)

CPU = (
    on_cpu(FractionalMaxPoolBackward(n=2, c=16, extents=(32, 64, 64), bins=(16, 32, 32)), TWICE_AS_FAST),
    on_cpu(FractionalMaxPool(n=2, c=16, extents=(32, 64, 64), bins=(16, 32, 32)), NO_SLOWER),
    on_cpu(FractionalMaxPoolBackward(n=4, c=64, extents=(128, 128), bins=(64, 64)), TWICE_AS_FAST),
    on_cpu(FractionalMaxPool(n=4, c=64, extents=(128, 128), bins=(64, 64)), NO_SLOWER),
)
