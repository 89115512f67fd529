# SPDX-License-Identifier: Apache-2.0
"""Shows which pixels a few boxes look at: the gradient of the contrast in every box, back through roi_align."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import pybaracuda
from verify.definitions import roi_align as definitions
from verify.dtypes import DTYPES, Array

from .checks import Check, at_most
from .measure import Case, Input, Output
from .memory import Memory

OUTPUT_SIZE = (14, 14)
# Every pixel of a box takes part: as many samples as a bin has pixels.
SAMPLING_RATIO = -1
ALIGNED = True


class Box(NamedTuple):
    """A place in the photo, in parts of its width and height; one reaches beyond the border."""

    name: str
    left: float
    top: float
    right: float
    bottom: float


BOXES = (
    Box("cap badge", 0.375, 0.033, 0.685, 0.185),
    Box("glasses", 0.345, 0.272, 0.705, 0.388),
    Box("face", 0.293, 0.215, 0.735, 0.54),
    Box("name tag", 0.145, 0.795, 0.34, 0.87),
    Box("ribbons", 0.62, 0.805, 0.895, 0.88),
    Box("stars", -0.05, 0.07, 0.275, 0.36),
)


@dataclass
class RoiAttention:
    """The boxes in pixels, what was pooled from them, and where the gradient of their contrast lands."""

    boxes: Array
    pooled: Array
    grad_output: Array
    gradient: Array
    adjoint_error: float

    def checks(self) -> list[Check]:
        """Forward and backward must be one linear map and its transpose."""
        return [at_most("roi_align: <A x, g> and <x, A' g> differ by a part of", self.adjoint_error, 1e-5)]


def boxes_in_pixels(height: int, width: int) -> Array:
    """[K, 5] rows (image, x1, y1, x2, y2)."""
    corners = [(0, b.left * width, b.top * height, b.right * width, b.bottom * height) for b in BOXES]
    return np.array(corners, np.float32)


def run(photo: Array, memory: Memory) -> RoiAttention:
    """Pool the boxes, take half the squared distance of every bin from its box's mean colour, and go back."""
    _, height, width = photo.shape
    boxes = boxes_in_pixels(height, width)
    placed, image = memory.put(boxes), memory.put(photo[None])
    pooled = memory.get(pybaracuda.roi_align(image, placed, OUTPUT_SIZE, 1.0, SAMPLING_RATIO, ALIGNED))
    grad_output = pooled - pooled.mean(axis=(2, 3), keepdims=True)
    gradient = memory.get(
        pybaracuda.roi_align_backward(memory.put(grad_output), placed, (1, *photo.shape), 1.0, SAMPLING_RATIO, ALIGNED)
    )[0]
    forward = float(np.vdot(pooled.astype(np.float64), grad_output))
    backward = float(np.vdot(photo.astype(np.float64), gradient))
    return RoiAttention(boxes, pooled, grad_output, gradient, abs(forward - backward) / max(abs(forward), 1e-30))


def cases(job: RoiAttention, photo: Array, dtype: str) -> list[Case]:
    """Both operators on the job's arrays."""
    channels, height, width = photo.shape
    number = DTYPES[dtype]
    image, grad_output = photo[None].astype(number), job.grad_output.astype(number)
    boxes = job.boxes.astype(number if dtype == "f64" else DTYPES["f32"])
    one_map = (1, 1, height, width)
    sampling: dict[str, Any] = {
        "sampling_ratio": SAMPLING_RATIO,
        "aligned": ALIGNED,
        "coordinate_dtype": boxes.dtype,
    }
    read = definitions.pixels_read(boxes, one_map, OUTPUT_SIZE, **sampling)
    shape = f"{{n}} x {height} x {width}, {len(boxes)} boxes"
    return [
        Case(
            "roi_align",
            dtype,
            shape,
            channels,
            (Input(image, 1, read / (height * width)), Input(boxes)),
            (Output(grad_output.shape, number, 1),),
            lambda image, boxes, out: pybaracuda.roi_align(
                image, boxes, OUTPUT_SIZE, 1.0, SAMPLING_RATIO, ALIGNED, out=out
            ),
            lambda: (definitions.roi_align(image, boxes, OUTPUT_SIZE, **sampling),),
        ),
        Case(
            "roi_align_backward",
            dtype,
            shape,
            channels,
            (Input(grad_output, 1), Input(boxes)),
            (Output(image.shape, number, 1),),
            lambda gradient, boxes, out: pybaracuda.roi_align_backward(
                gradient, boxes, (1, gradient.shape[1], height, width), 1.0, SAMPLING_RATIO, ALIGNED, out=out
            ),
            lambda: (definitions.roi_align_backward(grad_output, boxes, (1, channels, height, width), **sampling),),
        ),
    ]
