# SPDX-License-Identifier: Apache-2.0
"""RoIAlign as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness.boxes import BoxCase
from benchmarks.harness.case import FORWARD, NO_SLOWER, FrameworkCall, Part, Row, on_cpu, us
from benchmarks.harness.draw import Draw
from pybaracuda import (
    RoiAlignBackwardDescriptor,
    RoiAlignBackwardPlan,
    RoiAlignDescriptor,
    RoiAlignPlan,
)
from verify.definitions import roi_align as definitions
from verify.dtypes import Array

# What is held against float64: so many channels of one image and, forward, so many of its boxes.
_CHANNELS, _BOXES = 2, 64


@dataclass(frozen=True, kw_only=True)
class _RoiAlign(BoxCase):
    """What both directions have in common; a `sampling_ratio` of 0 is the adaptive one."""

    sampling_ratio: int = 2

    @property
    def text(self) -> str:
        return f"{super().text} {f'sr {self.sampling_ratio}' if self.sampling_ratio else 'adaptive'}"

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "spatial_scale": self.scale, "sampling_ratio": self.sampling_ratio}

    @property
    def _options(self) -> dict[str, Any]:
        """What the definitions want to know beside the arrays."""
        scale, ratio = self.scale, self.sampling_ratio
        return {"spatial_scale": scale, "sampling_ratio": ratio, "coordinate_dtype": self.coordinates}

    def _torchvision(
        self, torch: Any, given: Mapping[str, Any], values: str, options: Sequence[Any]
    ) -> dict[str, FrameworkCall]:
        """The call of the operator, by name. torchvision wants the boxes in the map's dtype, a 16-bit one too."""
        try:
            import torchvision  # noqa: F401  (registers the operators)
        except ImportError:
            return {}
        boxes = given["rois"].to(given[values].dtype)
        function = torch.ops.torchvision.roi_align if values == "input" else torch.ops.torchvision._roi_align_backward
        name = "torchvision" if boxes.dtype == given["rois"].dtype else "torchvision, 16-bit boxes"
        return {name: lambda: (function(given[values], boxes, *options),)}


@dataclass(frozen=True, kw_only=True)
class RoiAlign(_RoiAlign):
    """Forward."""

    plan_type = RoiAlignPlan

    def descriptor(self) -> RoiAlignDescriptor:
        return RoiAlignDescriptor(**self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.map_shape, self.element), "rois": self.draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.pooled_shape, self.element)}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        read = definitions.pixels_read(inputs["rois"], self.map_shape, (self.bins, self.bins), **self._options)
        return (self.n * self.h * self.w - read) * self.c * inputs["input"].itemsize

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channels = draw.some(_CHANNELS, self.c)
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        order = draw.some(_BOXES, len(of_image))
        expected = definitions.roi_align(
            inputs["input"][image, channels][None],
            self.alone(inputs["rois"], image)[order],
            (self.bins, self.bins),
            **self._options,
        )
        return [Part(0, lambda output: output[np.ix_(of_image[order], channels)], expected)]

    @property
    def parts_text(self) -> str:
        return f"up to {_BOXES} boxes of one image, {_CHANNELS} of {self.c} channels"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        options = (self.scale, self.bins, self.bins, self.sampling_ratio, False)
        return self._torchvision(torch, given, "input", options)


@dataclass(frozen=True, kw_only=True)
class RoiAlignBackward(_RoiAlign):
    """Backward."""

    plan_type = RoiAlignBackwardPlan

    def descriptor(self) -> RoiAlignBackwardDescriptor:
        return RoiAlignBackwardDescriptor(**self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self.pooled_shape, self.element), "rois": self.draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.map_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channels = draw.some(_CHANNELS, self.c)
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        expected = definitions.roi_align_backward(
            inputs["grad_output"][np.ix_(of_image, channels)],
            self.alone(inputs["rois"], image),
            (1, len(channels), self.h, self.w),
            **self._options,
        )
        return [Part(0, lambda gradient: gradient[image, channels], expected)]

    @property
    def parts_text(self) -> str:
        return f"{_CHANNELS} of {self.c} channels of one image, all its boxes"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        options = (self.scale, self.bins, self.bins, *self.map_shape, self.sampling_ratio, False)
        return self._torchvision(torch, given, "grad_output", options)


# ---- rows

ORDER = 10

# A detector's finest pyramid level, a backbone's last but one stage, and boxes that all lie on one small map.
_P2: dict[str, Any] = dict(n=2, c=256, h=200, w=304, boxes=1024, low=16, high=224, scale=1 / 4)
_C4: dict[str, Any] = dict(n=2, c=1024, h=50, w=76, boxes=512, low=32, high=512, scale=1 / 16, bins=14)
_HOT: dict[str, Any] = dict(n=1, c=256, h=32, w=32, boxes=1024, low=128, high=256, scale=1 / 8)

CUDA = (
    Row(RoiAlignBackward(**_P2), limits=us(112), headline=True),
    Row(RoiAlignBackward(**_P2, sampling_ratio=0), limits=us(120), headline=True),
    Row(RoiAlignBackward(**_C4), limits=us(320), headline=True),
    Row(RoiAlignBackward(**_HOT), limits=us(100), headline=True),
    Row(RoiAlignBackward(**_P2, element="f16"), limits=us(90), headline=True),
    Row(RoiAlignBackward(**_P2, element="bf16"), limits=us(90)),
    Row(RoiAlignBackward(**_P2, element="f64"), limits=us(260)),
    Row(RoiAlign(**_P2), limits=FORWARD, headline=True),
    Row(RoiAlign(**_P2, sampling_ratio=0), limits=FORWARD),
    Row(RoiAlign(**_C4), limits=FORWARD),
    Row(RoiAlign(**_HOT), limits=FORWARD),
    Row(RoiAlign(**_P2, element="f16"), limits=FORWARD),
    Row(RoiAlign(**_P2, element="bf16"), limits=FORWARD),
    Row(RoiAlign(**_P2, element="f64"), limits=FORWARD),
)

_CPU_MAP: dict[str, Any] = dict(n=1, c=64, h=100, w=152, boxes=256, low=16, high=224, scale=1 / 4)

CPU = (
    on_cpu(RoiAlignBackward(**_CPU_MAP), us(3000, "")),
    on_cpu(RoiAlignBackward(**_CPU_MAP, element="bf16")),
    on_cpu(RoiAlign(**_CPU_MAP), NO_SLOWER),
)
