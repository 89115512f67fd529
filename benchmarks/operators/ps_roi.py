# SPDX-License-Identifier: Apache-2.0
"""Position-sensitive pooling as benchmark cases, both kinds and directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.boxes import BoxCase
from benchmarks.harness.case import NO_SLOWER, TWICE_AS_FAST, FrameworkCall, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import (
    PsRoiAlignBackwardDescriptor,
    PsRoiAlignBackwardPlan,
    PsRoiAlignDescriptor,
    PsRoiAlignPlan,
    PsRoiPoolBackwardDescriptor,
    PsRoiPoolBackwardPlan,
    PsRoiPoolDescriptor,
    PsRoiPoolPlan,
)
from verify.definitions import ps_roi as definitions
from verify.dtypes import Array

# What is held against the definition: so many boxes of one image, forward, and one channel, backward.
_BOXES = 16


@dataclass(frozen=True, kw_only=True)
class _PsRoi(BoxCase):
    """What all four have in common; the input has a map for each of `c` channels and each bin."""

    ratio = 2

    @property
    def maps_shape(self) -> tuple[int, int, int, int]:
        return (self.n, self.c * self.bins * self.bins, self.h, self.w)

    @property
    def has_samples(self) -> bool:
        """Whether bins are sampled, as ps_roi_align has them, and not averaged over whole pixels."""
        return "align" in self.plan_type.descriptor_type.operator

    def fields(self) -> dict[str, Any]:
        samples = {"sampling_ratio": self.ratio} if self.has_samples else {}
        return {**super().fields(), "spatial_scale": self.scale, **samples}

    @property
    def _options(self) -> dict[str, Any]:
        samples = {"sampling_ratio": self.ratio} if self.has_samples else {}
        return {"spatial_scale": self.scale, "coordinate_dtype": self.coordinates, **samples}

    def small(self) -> _PsRoi:
        return replace(super().small(), c=2, bins=3)

    def _torchvision(
        self, torch: Any, given: Mapping[str, Any], values: str, sizes: Sequence[int]
    ) -> dict[str, FrameworkCall]:
        """The call of the operator, by name."""
        try:
            import torchvision  # noqa: F401  (registers the operators)
        except ImportError:
            return {}
        backward = values == "grad_output"
        kind = "ps_roi_align" if self.has_samples else "ps_roi_pool"
        function = getattr(torch.ops.torchvision, f"_{kind}_backward" if backward else kind)
        boxes = given["rois"].to(given[values].dtype)
        ratio = (self.ratio,) if kind == "ps_roi_align" else ()
        options = (self.scale, self.bins, self.bins, *ratio, *sizes)
        maps = torch.arange(self.c * self.bins**2, dtype=torch.int32, device=boxes.device)
        maps = maps.reshape(1, self.c, self.bins, self.bins).repeat(self.boxes, 1, 1, 1)
        name = "torchvision" if boxes.dtype == given["rois"].dtype else "torchvision, 16-bit boxes"
        if backward:
            return {name: lambda: (function(given[values], boxes, maps, *options),)}
        return {name: lambda: function(given[values], boxes, *options)[:1]}


@dataclass(frozen=True, kw_only=True)
class _Forward(_PsRoi):
    """Forward of either kind."""

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.maps_shape, self.element), "rois": self.draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.pooled_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        order = of_image[draw.some(_BOXES, len(of_image))]
        rows = inputs["rois"][order].copy()
        rows[:, 0] = 0
        function = definitions.ps_roi_align if self.has_samples else definitions.ps_roi_pool
        # The maps of one channel.
        channel, bins = int(draw.rng.integers(self.c)), self.bins * self.bins
        maps = inputs["input"][image, channel * bins : (channel + 1) * bins][None]
        expected = function(maps, rows, (self.bins, self.bins), **self._options)
        return [Part(0, lambda output: output[order, channel][:, None], expected)]

    @property
    def parts_text(self) -> str:
        return f"up to {_BOXES} boxes of one image, 1 of {self.c} channels"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        return self._torchvision(torch, given, "input", ())


@dataclass(frozen=True, kw_only=True)
class _Backward(_PsRoi):
    """Backward of either kind."""

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self.pooled_shape, self.element), "rois": self.draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.maps_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        channel, bins = int(draw.rng.integers(self.c)), self.bins * self.bins
        backward = definitions.ps_roi_align_backward if self.has_samples else definitions.ps_roi_pool_backward
        expected = backward(
            inputs["grad_output"][of_image][:, channel][:, None],
            self.alone(inputs["rois"], image),
            (1, bins, self.h, self.w),
            **self._options,
        )
        own = slice(channel * bins, (channel + 1) * bins)
        return [Part(0, lambda gradient: gradient[image, own], expected.map(lambda part: part[0]))]

    @property
    def parts_text(self) -> str:
        return f"1 of {self.c} channels of one image, all its boxes"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        return self._torchvision(torch, given, "grad_output", self.maps_shape)


@dataclass(frozen=True, kw_only=True)
class PsRoiAlign(_Forward):
    """By samples."""

    plan_type = PsRoiAlignPlan

    def descriptor(self) -> PsRoiAlignDescriptor:
        return PsRoiAlignDescriptor(**self.fields())


@dataclass(frozen=True, kw_only=True)
class PsRoiAlignBackward(_Backward):
    """By samples."""

    plan_type = PsRoiAlignBackwardPlan

    def descriptor(self) -> PsRoiAlignBackwardDescriptor:
        return PsRoiAlignBackwardDescriptor(**self.fields())


@dataclass(frozen=True, kw_only=True)
class PsRoiPool(_Forward):
    """By averages."""

    plan_type = PsRoiPoolPlan

    def descriptor(self) -> PsRoiPoolDescriptor:
        return PsRoiPoolDescriptor(**self.fields())


@dataclass(frozen=True, kw_only=True)
class PsRoiPoolBackward(_Backward):
    """By averages."""

    plan_type = PsRoiPoolBackwardPlan

    def descriptor(self) -> PsRoiPoolBackwardDescriptor:
        return PsRoiPoolBackwardDescriptor(**self.fields())


# ---- rows

ORDER = 17

# R-FCN's 490 maps on a backbone's last but one stage, and a small map.
_C4: dict[str, Any] = dict(n=2, c=10, h=50, w=76, boxes=512, low=32, high=512, scale=1 / 16)
_SMALL: dict[str, Any] = dict(n=1, c=10, h=25, w=38, boxes=128, low=64, high=512, scale=1 / 32)

CUDA = (
    Row(PsRoiAlignBackward(**_C4), limits=TWICE_AS_FAST, headline=True),
    Row(PsRoiAlignBackward(**_SMALL), limits=TWICE_AS_FAST),
    Row(PsRoiAlignBackward(**_C4, element="f16"), limits=TWICE_AS_FAST),
    Row(PsRoiPoolBackward(**_C4), limits=NO_SLOWER, headline=True),
    Row(PsRoiPoolBackward(**_SMALL), limits=NO_SLOWER),
    Row(PsRoiAlign(**_C4), limits=NO_SLOWER),
    Row(PsRoiPool(**_C4), limits=NO_SLOWER),
)

_CPU_MAP: dict[str, Any] = dict(n=1, c=4, h=50, w=76, boxes=128, low=32, high=512, scale=1 / 16)

CPU = (
    on_cpu(PsRoiAlignBackward(**_CPU_MAP), TWICE_AS_FAST),
    on_cpu(PsRoiPoolBackward(**_CPU_MAP), TWICE_AS_FAST),
    on_cpu(PsRoiAlign(**_CPU_MAP), NO_SLOWER),
    on_cpu(PsRoiPool(**_CPU_MAP), NO_SLOWER),
)
