# SPDX-License-Identifier: Apache-2.0
"""RoIAlign as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.boxes import BoxCase
from benchmarks.harness.case import FORWARD, NO_SLOWER, TWICE_AS_FAST, FrameworkCall, Part, Row, on_cpu, us
from benchmarks.harness.draw import Draw
from pybaracuda import (
    RoiAlignBackwardDescriptor,
    RoiAlignBackwardPlan,
    RoiAlignBoxesBackwardDescriptor,
    RoiAlignBoxesBackwardPlan,
    RoiAlignDescriptor,
    RoiAlignLevelsBackwardDescriptor,
    RoiAlignLevelsBackwardPlan,
    RoiAlignLevelsDescriptor,
    RoiAlignLevelsPlan,
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


@dataclass(frozen=True, kw_only=True)
class RoiAlignBoxesBackward(_RoiAlign):
    """Backward to the boxes, which no framework has."""

    plan_type = RoiAlignBoxesBackwardPlan

    def descriptor(self) -> RoiAlignBoxesBackwardDescriptor:
        return RoiAlignBoxesBackwardDescriptor(**self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "grad_output": draw.normal(self.pooled_shape, self.element),
            "input": draw.normal(self.map_shape, self.element),
            "rois": self.draw_boxes(draw),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_rois": ((self.boxes, 5), "f64" if self.element == "f64" else "f32")}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        read = definitions.pixels_read(inputs["rois"], self.map_shape, (self.bins, self.bins), **self._options)
        return (self.n * self.h * self.w - read) * self.c * inputs["input"].itemsize

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        order = draw.some(_BOXES, self.boxes)
        expected = definitions.roi_align_boxes_backward(
            inputs["grad_output"][order], inputs["input"], inputs["rois"][order], **self._options
        )
        return [Part(0, lambda gradient: gradient[order], expected)]

    @property
    def parts_text(self) -> str:
        return f"up to {_BOXES} boxes"


@dataclass(frozen=True, kw_only=True)
class _RoiAlignLevels(BoxCase):
    """What both directions have in common on several maps, each of half the extents of the one before."""

    levels: int = 4
    sampling_ratio: int = 2
    canonical_scale: float = 224.0

    @property
    def text(self) -> str:
        return f"{super().text} sr {self.sampling_ratio}, {self.levels} maps"

    @property
    def map_shapes(self) -> list[tuple[int, int, int, int]]:
        return [(self.n, self.c, -(-self.h >> level), -(-self.w >> level)) for level in range(self.levels)]

    @property
    def scales(self) -> tuple[float, ...]:
        return tuple(self.scale / 2**level for level in range(self.levels))

    def fields(self) -> dict[str, Any]:
        fields = super().fields()
        del fields["h"], fields["w"]
        return {
            **fields,
            "heights": tuple(shape[2] for shape in self.map_shapes),
            "widths": tuple(shape[3] for shape in self.map_shapes),
            "spatial_scales": self.scales,
            "sampling_ratio": self.sampling_ratio,
            "canonical_scale": self.canonical_scale,
        }

    def levels_of(self, boxes: Array) -> Array:
        """The map of each box."""
        return definitions.levels_of(boxes, self.levels, 2, self.canonical_scale, 4, self.coordinates)

    @property
    def _options(self) -> dict[str, Any]:
        return {"sampling_ratio": self.sampling_ratio, "coordinate_dtype": self.coordinates}

    def small(self) -> _RoiAlignLevels:
        return replace(super().small(), canonical_scale=32.0)

    def _split(self, torch: Any, boxes: Any) -> list[Any]:
        """The numbers of each map's boxes, found before the clock runs."""
        levels = torch.from_numpy(self.levels_of(boxes.cpu().numpy())).to(boxes.device)
        return [torch.where(levels == level)[0] for level in range(self.levels)]


@dataclass(frozen=True, kw_only=True)
class RoiAlignLevels(_RoiAlignLevels):
    """Forward."""

    plan_type = RoiAlignLevelsPlan

    def descriptor(self) -> RoiAlignLevelsDescriptor:
        return RoiAlignLevelsDescriptor(**self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        maps = {f"input_{level}": draw.normal(shape, self.element) for level, shape in enumerate(self.map_shapes)}
        return {**maps, "rois": self.draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.pooled_shape, self.element)}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        bins, unread = (self.bins, self.bins), 0
        levels = self.levels_of(inputs["rois"])
        for level, (shape, scale) in enumerate(zip(self.map_shapes, self.scales, strict=True)):
            mine = inputs["rois"][levels == level]
            read = definitions.pixels_read(mine, shape, bins, spatial_scale=scale, **self._options)
            unread += (shape[0] * shape[2] * shape[3] - read) * self.c * inputs["input_0"].itemsize
        return unread

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channels = draw.some(_CHANNELS, self.c)
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        order = draw.some(_BOXES, len(of_image))
        rows = self.alone(inputs["rois"], image)[order]
        maps = [inputs[f"input_{level}"][image, channels][None] for level in range(self.levels)]
        expected = definitions.roi_align_levels(
            maps, rows, (self.bins, self.bins), self.scales, self.levels_of(rows), **self._options
        )
        return [Part(0, lambda output: output[np.ix_(of_image[order], channels)], expected)]

    @property
    def parts_text(self) -> str:
        return f"up to {_BOXES} boxes of one image, {_CHANNELS} of {self.c} channels"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        try:
            from torchvision.ops import poolers
        except ImportError:
            return {}
        boxes = given["rois"].to(given["input_0"].dtype)
        images = [boxes[given["rois"][:, 0] == image, 1:] for image in range(self.n)]
        order = torch.cat([torch.where(given["rois"][:, 0] == image)[0] for image in range(self.n)])
        back = torch.argsort(order)
        maps = [given[f"input_{level}"] for level in range(self.levels)]
        mapper = poolers.LevelMapper(2, 1 + self.levels, int(self.canonical_scale), 4)
        size, ratio, scales = (self.bins, self.bins), self.sampling_ratio, list(self.scales)
        name = "torchvision" if boxes.dtype == given["rois"].dtype else "torchvision, 16-bit boxes"
        # Back to the order of these boxes: a row's copy is some 5 % of its time.
        call = poolers._multiscale_roi_align
        return {name: lambda: (call(maps, images, size, ratio, scales, mapper)[back],)}


@dataclass(frozen=True, kw_only=True)
class RoiAlignLevelsBackward(_RoiAlignLevels):
    """Backward."""

    plan_type = RoiAlignLevelsBackwardPlan

    def descriptor(self) -> RoiAlignLevelsBackwardDescriptor:
        return RoiAlignLevelsBackwardDescriptor(**self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self.pooled_shape, self.element), "rois": self.draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {f"grad_input_{level}": (shape, self.element) for level, shape in enumerate(self.map_shapes)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channels = draw.some(_CHANNELS, self.c)
        (of_image,) = np.nonzero(inputs["rois"][:, 0] == image)
        rows = self.alone(inputs["rois"], image)
        gradient = inputs["grad_output"][np.ix_(of_image, channels)]
        shapes = [(1, len(channels), *shape[2:]) for shape in self.map_shapes]
        found = definitions.roi_align_levels_backward(
            gradient, rows, shapes, self.scales, self.levels_of(rows), **self._options
        )
        return [Part(level, lambda each: each[image, channels], sums) for level, sums in enumerate(found)]

    @property
    def parts_text(self) -> str:
        return f"{_CHANNELS} of {self.c} channels of one image, all its boxes"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        try:
            import torchvision  # noqa: F401  (registers the operators)
        except ImportError:
            return {}
        boxes = given["rois"].to(given["grad_output"].dtype)
        numbers = self._split(torch, given["rois"])
        function = torch.ops.torchvision._roi_align_backward
        name = "torchvision" if boxes.dtype == given["rois"].dtype else "torchvision, 16-bit boxes"

        def call() -> list[Any]:
            # As autograd runs it, but that nobody waits to know which boxes are whose.
            return [
                function(
                    given["grad_output"][mine], boxes[mine], scale, self.bins, self.bins, *shape, self.sampling_ratio,
                    False,
                )
                for mine, scale, shape in zip(numbers, self.scales, self.map_shapes, strict=True)
            ]  # fmt: skip

        return {name: call}


# ---- rows

ORDER = 10

# A detector's finest pyramid level, a backbone's last but one stage, and boxes that all lie on one small map.
_P2: dict[str, Any] = dict(n=2, c=256, h=200, w=304, boxes=1024, low=16, high=224, scale=1 / 4)
_C4: dict[str, Any] = dict(n=2, c=1024, h=50, w=76, boxes=512, low=32, high=512, scale=1 / 16, bins=14)
_HOT: dict[str, Any] = dict(n=1, c=256, h=32, w=32, boxes=1024, low=128, high=256, scale=1 / 8)

# A detector's pyramid: P2 to P5 of images of 800 x 1216, with the boxes of its box head and of its mask head.
_FPN: dict[str, Any] = dict(n=2, c=256, h=200, w=304, boxes=1024, low=16, high=700, scale=1 / 4)

CUDA = (
    Row(RoiAlignBackward(**_P2), limits=us(112), headline=True),
    Row(RoiAlignBackward(**_P2, sampling_ratio=0), limits=us(120), headline=True),
    Row(RoiAlignBackward(**_C4), limits=us(320), headline=True),
    Row(RoiAlignBackward(**_HOT), limits=us(100), headline=True),
    Row(RoiAlignBackward(**_P2, element="f16"), limits=us(90), headline=True),
    Row(RoiAlignBackward(**_P2, element="bf16"), limits=us(90)),
    Row(RoiAlignBackward(**_P2, element="f64"), limits=us(260)),
    Row(RoiAlignBoxesBackward(**_P2)),
    Row(RoiAlignBoxesBackward(**_P2, element="f16")),
    Row(RoiAlignBoxesBackward(**_HOT)),
    Row(RoiAlign(**_P2), limits=FORWARD, headline=True),
    Row(RoiAlign(**_P2, sampling_ratio=0), limits=FORWARD),
    Row(RoiAlign(**_C4), limits=FORWARD),
    Row(RoiAlign(**_HOT), limits=FORWARD),
    Row(RoiAlign(**_P2, element="f16"), limits=FORWARD),
    Row(RoiAlign(**_P2, element="bf16"), limits=FORWARD),
    Row(RoiAlign(**_P2, element="f64"), limits=FORWARD),
    Row(RoiAlignLevelsBackward(**_FPN), limits=NO_SLOWER, headline=True),
    Row(RoiAlignLevelsBackward(**_FPN, element="f16"), limits=NO_SLOWER),
    Row(RoiAlignLevelsBackward(**{**_FPN, "boxes": 128}, bins=14), limits=NO_SLOWER),
    Row(RoiAlignLevels(**_FPN), limits=NO_SLOWER, headline=True),
    Row(RoiAlignLevels(**_FPN, element="f16"), limits=NO_SLOWER),
    Row(RoiAlignLevels(**{**_FPN, "boxes": 128}, bins=14), limits=NO_SLOWER),
)

_CPU_MAP: dict[str, Any] = dict(n=1, c=64, h=100, w=152, boxes=256, low=16, high=224, scale=1 / 4)

CPU = (
    on_cpu(RoiAlignBackward(**_CPU_MAP), us(3000, "")),
    on_cpu(RoiAlignBackward(**_CPU_MAP, element="bf16")),
    on_cpu(RoiAlignBoxesBackward(**_CPU_MAP)),
    on_cpu(RoiAlign(**_CPU_MAP), NO_SLOWER),
    on_cpu(RoiAlignLevelsBackward(**_CPU_MAP), TWICE_AS_FAST),
    on_cpu(RoiAlignLevels(**_CPU_MAP), NO_SLOWER),
)
