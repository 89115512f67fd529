# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression as benchmark cases; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, Part, Row, on_cpu, us
from benchmarks.harness.draw import Draw
from pybaracuda import NmsDescriptor, NmsPlan, NmsWithScoresDescriptor, NmsWithScoresPlan
from pybaracuda._descriptor import Descriptor
from pybaracuda._plan import Plan
from verify.bounds import exact
from verify.definitions import nms as definitions
from verify.dtypes import Array, dtype_of

# An image's sides in pixels, and up to which number of boxes the definition takes no time.
_IMAGE = (1216.0, 800.0)
_MOST_DEFINED = 20_000


@dataclass(frozen=True, kw_only=True)
class Nms(Case):
    """Proposals of a detector: `objects` places with so many boxes around each that `boxes` are reached.

    A proposal is its object's box with each corner moved by up to `jitter` of the object's side.
    """

    boxes: int
    objects: int
    jitter: float
    threshold: float
    classes: int = 0
    index: str = "i64"

    plan_type: ClassVar[type[Plan]] = NmsWithScoresPlan

    @property
    def text(self) -> str:
        classes = f", {self.classes} classes" if self.classes else ""
        return (
            f"{self.boxes:,} boxes of {self.objects:,} objects, jitter {self.jitter:g}, iou {self.threshold:g}{classes}"
        )

    def descriptor(self) -> Descriptor:
        ids = self.boxes if self.classes else 0
        return NmsWithScoresDescriptor(self.boxes, ids, self.threshold, self.element, self.index)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        rng, dtype = draw.rng, dtype_of(self.element)
        side = np.exp(rng.uniform(np.log(16), np.log(256), (self.objects, 2)))
        low = rng.uniform(0, 1, (self.objects, 2)) * (np.array(_IMAGE) - side)
        of = rng.integers(0, self.objects, self.boxes)
        corners = np.concatenate([low, low + side], axis=1)[of]
        moved = corners + rng.uniform(-self.jitter, self.jitter, corners.shape) * np.tile(side[of], 2)
        ids = rng.integers(0, max(self.classes, 1), self.boxes if self.classes else 0)
        return {
            "boxes": moved.astype(dtype),
            "scores": rng.random(self.boxes).astype(dtype),
            "class_ids": ids.astype(dtype_of(self.index)),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {
            "keep": ((self.boxes,), self.index),
            "count": ((1,), "i32"),
            "keep_mask": ((self.boxes,), "u8"),
        }

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        if self.boxes > _MOST_DEFINED:
            return []
        compute = dtype_of("f64" if self.element == "f64" else "f32")
        ids = inputs["class_ids"] if self.classes else None
        keep = definitions.nms(inputs["boxes"], inputs["scores"], self.threshold, ids, compute)
        expected = (
            definitions.padded(keep, self.boxes, dtype_of(self.index)),
            np.array([len(keep)], np.int32),
            definitions.mask_of(keep, self.boxes),
        )
        return [Part(number, lambda output: output, exact(values)) for number, values in enumerate(expected)]

    @property
    def parts_text(self) -> str:
        return "everything"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        try:
            import torchvision
        except ImportError:
            return {}
        boxes, scores, ids = given["boxes"], given["scores"], given["class_ids"]
        if boxes.dtype == torch.bfloat16:
            return {}

        function = torch.ops.torchvision.nms if not self.classes else torchvision.ops.batched_nms
        arguments = (boxes, scores, ids, self.threshold) if self.classes else (boxes, scores, self.threshold)

        def call() -> tuple[Any, ...]:
            # As many indices as boxes are kept, neither a count nor a mask: no output of ours.
            function(*arguments)
            return None, None, None

        return {"torchvision": call}

    def small(self) -> Case:
        return replace(self, boxes=96, objects=9)


@dataclass(frozen=True, kw_only=True)
class NmsInOrder(Nms):
    """The frozen symbol: boxes in the order of their scores."""

    plan_type = NmsPlan

    def descriptor(self) -> Descriptor:
        return NmsDescriptor(self.boxes, self.threshold, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"boxes": Nms.inputs(self, draw)["boxes"]}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"keep_mask": ((self.boxes,), "u8"), "count": ((1,), "i32")}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        compute = dtype_of("f64" if self.element == "f64" else "f32")
        keep = definitions.nms(inputs["boxes"], None, float(np.float32(self.threshold)), dtype=compute)
        expected = (definitions.mask_of(keep, self.boxes), np.array([len(keep)], np.int32))
        return [Part(number, lambda output: output, exact(values)) for number, values in enumerate(expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        return {}


# ---- rows

ORDER = 17

# What a region proposal network's levels come to, before and after they are cut; what an anchor-free detector leaves.
_RPN: dict[str, Any] = dict(boxes=6000, objects=600, jitter=0.15, threshold=0.7)
_LEVEL: dict[str, Any] = dict(boxes=1000, objects=200, jitter=0.15, threshold=0.7)
_MANY: dict[str, Any] = dict(boxes=200_000, objects=10_000, jitter=0.15, threshold=0.5)

CUDA = (
    Row(Nms(**_RPN), limits=(*us(150), *NO_SLOWER)),
    Row(Nms(**_RPN, element="f16"), limits=us(150)),
    Row(Nms(**_RPN, element="f64"), limits=NO_SLOWER),
    Row(Nms(**_RPN, classes=5), limits=(*us(150), *NO_SLOWER)),
    Row(Nms(**_LEVEL), limits=NO_SLOWER),
    Row(NmsInOrder(**_RPN), limits=us(150)),
    Row(Nms(**{**_RPN, "objects": 6000, "threshold": 0.9}), limits=(*us(150), *NO_SLOWER)),
    Row(Nms(**_MANY), limits=NO_SLOWER),
    Row(Nms(**_MANY, classes=80), limits=NO_SLOWER),
)

CPU = (
    on_cpu(Nms(**_RPN), NO_SLOWER),
    on_cpu(Nms(**_RPN, classes=5), NO_SLOWER),
    on_cpu(Nms(**_LEVEL), NO_SLOWER),
    on_cpu(NmsInOrder(**_RPN)),
)
