# SPDX-License-Identifier: Apache-2.0
"""RoIAlign of volumes as benchmark cases, both directions; nothing about another operator. No framework has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.case import Case, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import (
    RoiAlign3dBackwardDescriptor,
    RoiAlign3dBackwardPlan,
    RoiAlign3dDescriptor,
    RoiAlign3dPlan,
)
from verify.definitions import roi_align_3d as definitions
from verify.dtypes import Array, dtype_of

# What is held against float64: one channel of one volume and, forward, so many of its boxes.
_BOXES = 8


@dataclass(frozen=True, kw_only=True)
class _RoiAlign3d(Case):
    """Boxes inside the volume, their sides between `low` and `high` of its own voxels times 1 / `scale`."""

    n: int
    c: int
    d: int
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
        return (
            f"N{self.n} C{self.c} {self.d}x{self.h}x{self.w}, {self.boxes} boxes {self.low}..{self.high} voxels "
            f"at 1/{round(1 / self.scale)}, {self.bins}x{self.bins}x{self.bins} sr {self.sampling_ratio}"
        )

    @property
    def coordinates(self) -> Any:
        """The boxes' dtype."""
        return dtype_of("f64" if self.element == "f64" else "f32")

    @property
    def volume_shape(self) -> tuple[int, int, int, int, int]:
        return (self.n, self.c, self.d, self.h, self.w)

    @property
    def pooled_shape(self) -> tuple[int, ...]:
        """That of the bins."""
        return (self.boxes, self.c, *self.output_size)

    @property
    def output_size(self) -> tuple[int, int, int]:
        return (self.bins, self.bins, self.bins)

    def fields(self) -> dict[str, Any]:
        """What descriptors of both directions are made of."""
        names = ("n", "c", "d", "h", "w")
        return {
            **dict(zip(names, self.volume_shape, strict=True)),
            "num_rois": self.boxes,
            "pooled_d": self.bins,
            "pooled_h": self.bins,
            "pooled_w": self.bins,
            "spatial_scale": self.scale,
            "sampling_ratio": self.sampling_ratio,
            "aligned": True,
            "element": self.element,
        }

    @property
    def _options(self) -> dict[str, Any]:
        """What the definitions want to know beside the arrays."""
        return {
            "spatial_scale": self.scale,
            "sampling_ratio": self.sampling_ratio,
            "aligned": True,
            "coordinate_dtype": self.coordinates,
        }

    def draw_boxes(self, draw: Draw) -> Array:
        """Rows (number of the volume, x1, y1, z1, x2, y2, z2)."""
        extents = np.array([self.w, self.h, self.d]) / self.scale
        # Uniform on a logarithmic axis: as many boxes of 20 to 40 voxels as of 100 to 200.
        sides = np.exp(draw.rng.uniform(math.log(self.low), math.log(self.high), (self.boxes, 3)))
        corners = draw.rng.uniform(0, 1, (self.boxes, 3)) * np.maximum(extents - sides, 0)
        volume = draw.rng.integers(0, self.n, (self.boxes, 1))
        return np.concatenate([volume, corners, corners + sides], axis=1).astype(self.coordinates)

    @staticmethod
    def _alone(boxes: Array, volume: int) -> Array:
        """The boxes of one volume, as if there were no other."""
        chosen: Array = boxes[boxes[:, 0] == volume].copy()
        chosen[:, 0] = 0
        return chosen


@dataclass(frozen=True, kw_only=True)
class RoiAlign3d(_RoiAlign3d):
    """Forward."""

    plan_type = RoiAlign3dPlan

    def descriptor(self) -> RoiAlign3dDescriptor:
        return RoiAlign3dDescriptor(**self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.volume_shape, self.element), "rois": self.draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.pooled_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        volume = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channel = int(draw.rng.integers(self.c))
        (of_volume,) = np.nonzero(inputs["rois"][:, 0] == volume)
        order = draw.some(_BOXES, len(of_volume))
        expected = definitions.roi_align_3d(
            inputs["input"][volume, channel][None, None],
            self._alone(inputs["rois"], volume)[order],
            self.output_size,
            **self._options,
        )
        return [Part(0, lambda output: output[of_volume[order], channel][:, None], expected)]

    @property
    def parts_text(self) -> str:
        return f"up to {_BOXES} boxes of one volume, 1 of {self.c} channels"

    def small(self) -> RoiAlign3d:
        return replace(self, n=min(self.n, 2), c=5, d=9, h=11, w=21, boxes=7, low=8, high=32, scale=0.25, bins=3)


@dataclass(frozen=True, kw_only=True)
class RoiAlign3dBackward(_RoiAlign3d):
    """Backward."""

    plan_type = RoiAlign3dBackwardPlan

    def descriptor(self) -> RoiAlign3dBackwardDescriptor:
        return RoiAlign3dBackwardDescriptor(**self.fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self.pooled_shape, self.element), "rois": self.draw_boxes(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.volume_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        volume = int(inputs["rois"][draw.rng.integers(self.boxes), 0])
        channel = int(draw.rng.integers(self.c))
        (of_volume,) = np.nonzero(inputs["rois"][:, 0] == volume)
        expected = definitions.roi_align_3d_backward(
            inputs["grad_output"][of_volume][:, channel][:, None],
            self._alone(inputs["rois"], volume),
            (1, 1, self.d, self.h, self.w),
            **self._options,
        )
        return [Part(0, lambda gradient: gradient[volume, channel][None, None], expected)]

    @property
    def parts_text(self) -> str:
        return f"1 of {self.c} channels of one volume, all its boxes"

    def small(self) -> RoiAlign3dBackward:
        return replace(self, n=min(self.n, 2), c=5, d=9, h=11, w=21, boxes=7, low=8, high=32, scale=0.25, bins=3)


# ---- rows

ORDER = 18

# A detector of lesions in scans: a fine map of its pyramid, and a coarse one.
_FINE: dict[str, Any] = dict(n=2, c=36, d=64, h=64, w=64, boxes=128, low=16, high=128, scale=1 / 4)
_COARSE: dict[str, Any] = dict(n=2, c=128, d=16, h=16, w=16, boxes=64, low=32, high=128, scale=1 / 8)

CUDA = (
    Row(RoiAlign3dBackward(**_FINE)),
    Row(RoiAlign3dBackward(**_FINE, element="f16")),
    Row(RoiAlign3dBackward(**_COARSE)),
    Row(RoiAlign3d(**_FINE)),
    Row(RoiAlign3d(**_FINE, element="f16")),
    Row(RoiAlign3d(**_COARSE)),
)

_CPU_VOLUME: dict[str, Any] = dict(n=1, c=16, d=32, h=32, w=32, boxes=32, low=16, high=96, scale=1 / 4)

CPU = (
    on_cpu(RoiAlign3dBackward(**_CPU_VOLUME)),
    on_cpu(RoiAlign3d(**_CPU_VOLUME)),
)
