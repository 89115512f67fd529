# SPDX-License-Identifier: Apache-2.0
"""What operators on boxes of feature maps have in common as benchmark cases; none of them is named here."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from verify.dtypes import Array, dtype_of

from .case import Case
from .draw import Draw

C = TypeVar("C", bound="BoxCase")


@dataclass(frozen=True, kw_only=True)
class BoxCase(Case):
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

    @property
    def text(self) -> str:
        return (
            f"N{self.n} C{self.c} {self.h}x{self.w}, {self.boxes} boxes {self.low}..{self.high} px "
            f"at 1/{round(1 / self.scale)}, {self.bins}x{self.bins}"
        )

    @property
    def coordinates(self) -> Any:
        """The boxes' dtype."""
        return dtype_of("f64" if self.element == "f64" else "f32")

    @property
    def map_shape(self) -> tuple[int, int, int, int]:
        """That of the feature maps."""
        return (self.n, self.c, self.h, self.w)

    @property
    def pooled_shape(self) -> tuple[int, ...]:
        """That of the bins."""
        return (self.boxes, self.c, self.bins, self.bins)

    def fields(self) -> dict[str, Any]:
        """What descriptors of both directions are made of."""
        return {
            "n": self.n,
            "c": self.c,
            "h": self.h,
            "w": self.w,
            "num_rois": self.boxes,
            "pooled_h": self.bins,
            "pooled_w": self.bins,
            "element": self.element,
        }

    def draw_boxes(self, draw: Draw) -> Array:
        """Rows (number of the image, x1, y1, x2, y2) in the image's pixels."""
        rng, count = draw.rng, self.boxes
        extents = np.array([self.w / self.scale, self.h / self.scale])
        # Uniform on a logarithmic axis: as many boxes of 20 to 40 pixels as of 100 to 200.
        sides = np.exp(rng.uniform(math.log(self.low), math.log(self.high), (count, 2)))
        corners = rng.uniform(0, 1, (count, 2)) * np.maximum(extents - sides, 0)
        image = rng.integers(0, self.n, (count, 1))
        return np.concatenate([image, corners, corners + sides], axis=1).astype(self.coordinates)

    @staticmethod
    def alone(boxes: Array, image: int) -> Array:
        """The boxes of one image, as if there were no other."""
        chosen: Array = boxes[boxes[:, 0] == image].copy()
        chosen[:, 0] = 0
        return chosen

    def small(self: C) -> C:
        return replace(self, n=min(self.n, 2), c=5, h=19, w=37, boxes=11, low=8, high=64, scale=0.25)
