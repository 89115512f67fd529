# SPDX-License-Identifier: Apache-2.0
"""RoIAlign as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness.case import FORWARD, NO_SLOWER, Case, FrameworkCall, Part, Row, on_cpu, us
from benchmarks.harness.draw import Draw
from pybaracuda import (
    RoiAlignBackwardDescriptor,
    RoiAlignBackwardPlan,
    RoiAlignDescriptor,
    RoiAlignPlan,
)
from verify.definitions import roi_align as definitions
from verify.dtypes import Array, dtype_of

# What is held against float64: so many channels of one image and, forward, so many of its boxes.
_CHANNELS, _BOXES = 2, 64

C = TypeVar("C", bound="_RoiAlign")


@dataclass(frozen=True, kw_only=True)
class _RoiAlign(Case):
    """Boxes inside the image, their sides between `low` and `high` of its pixels; `scale` is a power of two."""

    n: int
    c: int
    h: int
    w: int
    boxes: int
    low: int
    high: int
    scale: float
    bins: int = 7
    sampling_ratio: int = 2

    @property
    def text(self) -> str:
        sampling = f"sr {self.sampling_ratio}" if self.sampling_ratio else "adaptive"
        return (
            f"N{self.n} C{self.c} {self.h}x{self.w}, {self.boxes} boxes {self.low}..{self.high} px "
            f"at 1/{round(1 / self.scale)}, {self.bins}x{self.bins} {sampling}"
        )

    @property
    def _coordinates(self) -> str:
        return "f64" if self.element == "f64" else "f32"

    @property
    def _map_shape(self) -> tuple[int, int, int, int]:
        return (self.n, self.c, self.h, self.w)

    @property
    def _pooled_shape(self) -> tuple[int, ...]:
        return (self.boxes, self.c, self.bins, self.bins)

    def _fields(self) -> dict[str, Any]:
        """What both descriptors are made of."""
        return {
            "n": self.n,
            "c": self.c,
            "h": self.h,
            "w": self.w,
            "num_rois": self.boxes,
            "pooled_h": self.bins,
            "pooled_w": self.bins,
            "spatial_scale": self.scale,
            "sampling_ratio": self.sampling_ratio,
            "element": self.element,
        }

    def _draw_boxes(self, draw: Draw) -> Array:
        rng, count = draw.rng, self.boxes
        extents = np.array([self.w / self.scale, self.h / self.scale])
        # Uniform on a logarithmic axis: as many boxes of 20 to 40 pixels as of 100 to 200.
        sides = np.exp(rng.uniform(math.log(self.low), math.log(self.high), (count, 2)))
        corners = rng.uniform(0, 1, (count, 2)) * np.maximum(extents - sides, 0)
        image = rng.integers(0, self.n, (count, 1))
        boxes = np.concatenate([image, corners, corners + sides], axis=1)
        return boxes.astype(dtype_of(self._coordinates))

    @property
    def _options(self) -> dict[str, Any]:
        """What the definitions want to know beside the arrays."""
        coordinates = dtype_of(self._coordinates)
        return {"spatial_scale": self.scale, "sampling_ratio": self.sampling_ratio, "coordinate_dtype": coordinates}

    @staticmethod
    def _alone(boxes: Array, image: int) -> Array:
        """The boxes of one image, as if there were no other."""
        chosen: Array = boxes[boxes[:, 0] == image].copy()
        chosen[:, 0] = 0
        return chosen

    def _small(self: C) -> C:
        return replace(self, n=min(self.n, 2), c=5, h=19, w=37, boxes=11, low=8, high=64, scale=0.25)

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
        return RoiAlignDescriptor(**self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self._map_shape, self.element), "rois": self._draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self._pooled_shape, self.element)}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        read = definitions.pixels_read(inputs["rois"], self._map_shape, (self.bins, self.bins), **self._options)
        return (self.n * self.h * self.w - read) * self.c * inputs["input"].itemsize

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channels = draw.some(_CHANNELS, self.c)
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        order = draw.some(_BOXES, len(of_image))
        expected = definitions.roi_align(
            inputs["input"][image, channels][None],
            self._alone(inputs["rois"], image)[order],
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

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class RoiAlignBackward(_RoiAlign):
    """Backward."""

    plan_type = RoiAlignBackwardPlan

    def descriptor(self) -> RoiAlignBackwardDescriptor:
        return RoiAlignBackwardDescriptor(**self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self._pooled_shape, self.element), "rois": self._draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self._map_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channels = draw.some(_CHANNELS, self.c)
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        expected = definitions.roi_align_backward(
            inputs["grad_output"][np.ix_(of_image, channels)],
            self._alone(inputs["rois"], image),
            (1, len(channels), self.h, self.w),
            **self._options,
        )
        return [Part(0, lambda gradient: gradient[image, channels], expected)]

    @property
    def parts_text(self) -> str:
        return f"{_CHANNELS} of {self.c} channels of one image, all its boxes"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        options = (self.scale, self.bins, self.bins, *self._map_shape, self.sampling_ratio, False)
        return self._torchvision(torch, given, "grad_output", options)

    def small(self) -> Case:
        return self._small()


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
