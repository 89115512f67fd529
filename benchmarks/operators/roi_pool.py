# SPDX-License-Identifier: Apache-2.0
"""RoIPool as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness.boxes import BoxCase
from benchmarks.harness.case import NO_SLOWER, TWICE_AS_FAST, FrameworkCall, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import RoiPoolBackwardDescriptor, RoiPoolBackwardPlan, RoiPoolDescriptor, RoiPoolPlan
from verify.bounds import exact
from verify.definitions import roi_pool as definitions
from verify.dtypes import Array

# What is held against the definition: so many channels of one image and, forward, so many of its boxes.
_CHANNELS, _BOXES = 2, 64


@dataclass(frozen=True, kw_only=True)
class RoiPool(BoxCase):
    """Forward."""

    plan_type = RoiPoolPlan

    def descriptor(self) -> RoiPoolDescriptor:
        return RoiPoolDescriptor(**self.fields(), spatial_scale=self.scale)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.map_shape, self.element), "rois": self.draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.pooled_shape, self.element), "argmax": (self.pooled_shape, "i32")}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channels = draw.some(_CHANNELS, self.c)
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        order = draw.some(_BOXES, len(of_image))
        expected = definitions.roi_pool(
            inputs["input"][image, channels][None],
            self.alone(inputs["rois"], image)[order],
            (self.bins, self.bins),
            self.scale,
            self.coordinates,
        )
        return [
            Part(number, lambda output: output[np.ix_(of_image[order], channels)], exact(values))
            for number, values in enumerate(expected)
        ]

    @property
    def parts_text(self) -> str:
        return f"up to {_BOXES} boxes of one image, {_CHANNELS} of {self.c} channels"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        try:
            import torchvision  # noqa: F401  (registers the operators)
        except ImportError:
            return {}
        # torchvision wants the boxes in the map's dtype, a 16-bit one too.
        boxes = given["rois"].to(given["input"].dtype)
        name = "torchvision" if boxes.dtype == given["rois"].dtype else "torchvision, 16-bit boxes"
        function = torch.ops.torchvision.roi_pool
        return {name: lambda: function(given["input"], boxes, self.scale, self.bins, self.bins)}


@dataclass(frozen=True, kw_only=True)
class RoiPoolBackward(BoxCase):
    """Backward; each bin's maximum is any of the pixels that its box gives it."""

    plan_type = RoiPoolBackwardPlan

    def descriptor(self) -> RoiPoolBackwardDescriptor:
        return RoiPoolBackwardDescriptor(**self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        boxes = self.draw_boxes(draw)
        return {
            "grad_output": draw.normal(self.pooled_shape, self.element),
            "rois": boxes,
            "argmax": self._draw_pixels(draw, boxes),
        }

    def _draw_pixels(self, draw: Draw, boxes: Array) -> Array:
        """Rows and columns within the bins, uniform."""

        def places(low: Array, high: Array, extent: int, shape: tuple[int, ...]) -> Array:
            start, last = np.rint(low * self.scale), np.rint(high * self.scale)
            unit = np.arange(self.bins).reshape(shape) + draw.rng.random((self.boxes, self.c, self.bins, self.bins))
            sides = (last - start + 1).reshape(-1, 1, 1, 1)
            found = start.reshape(-1, 1, 1, 1) + np.floor(unit / self.bins * sides)
            return np.asarray(np.clip(found, 0, extent - 1).astype(np.int32))

        rows = places(boxes[:, 2], boxes[:, 4], self.h, (1, 1, -1, 1))
        columns = places(boxes[:, 1], boxes[:, 3], self.w, (1, 1, 1, -1))
        return np.asarray(rows * np.int32(self.w) + columns)

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.map_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channels = draw.some(_CHANNELS, self.c)
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        expected = definitions.roi_pool_backward(
            inputs["grad_output"][np.ix_(of_image, channels)],
            self.alone(inputs["rois"], image),
            inputs["argmax"][np.ix_(of_image, channels)],
            (1, len(channels), self.h, self.w),
        )
        return [Part(0, lambda gradient: gradient[image, channels], expected.map(lambda part: part[0]))]

    @property
    def parts_text(self) -> str:
        return f"{_CHANNELS} of {self.c} channels of one image, all its boxes"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        try:
            import torchvision  # noqa: F401  (registers the operators)
        except ImportError:
            return {}
        boxes = given["rois"].to(given["grad_output"].dtype)
        name = "torchvision" if boxes.dtype == given["rois"].dtype else "torchvision, 16-bit boxes"
        function = torch.ops.torchvision._roi_pool_backward
        options = (self.scale, self.bins, self.bins, *self.map_shape)
        return {name: lambda: (function(given["grad_output"], boxes, given["argmax"], *options),)}


# ---- rows

ORDER = 15

# A detector's finest pyramid level, and boxes that all lie on one small map.
_P2: dict[str, Any] = dict(n=2, c=256, h=200, w=304, boxes=1024, low=16, high=224, scale=1 / 4)
_HOT: dict[str, Any] = dict(n=1, c=256, h=32, w=32, boxes=1024, low=128, high=256, scale=1 / 8)

CUDA = (
    Row(RoiPoolBackward(**_P2), limits=TWICE_AS_FAST, headline=True),
    Row(RoiPoolBackward(**_HOT), limits=TWICE_AS_FAST),
    Row(RoiPoolBackward(**_P2, element="f16"), limits=TWICE_AS_FAST),
    Row(RoiPool(**_P2), limits=NO_SLOWER),
    Row(RoiPool(**_P2, element="f16"), limits=NO_SLOWER),
)

_CPU_MAP: dict[str, Any] = dict(n=1, c=64, h=100, w=152, boxes=256, low=16, high=224, scale=1 / 4)

CPU = (
    on_cpu(RoiPoolBackward(**_CPU_MAP), TWICE_AS_FAST),
    on_cpu(RoiPool(**_CPU_MAP), NO_SLOWER),
)
