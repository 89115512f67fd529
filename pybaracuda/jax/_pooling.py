# SPDX-License-Identifier: Apache-2.0
"""Pooling of boxes in JAX, with its derivatives; what it computes is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from .._arrays import HOST
from .._boxes import check_images
from .._call import Prepared, extent_pair, extent_triple, number
from .._dtypes import numpy_dtype
from .._errors import InvalidProblemError
from ..ps_roi import prepare as prepare_ps_roi
from ..ps_roi import prepare_backward as prepare_ps_roi_backward
from ..roi_align import prepare as prepare_roi_align
from ..roi_align import prepare_backward as prepare_roi_align_backward
from ..roi_align import prepare_boxes_backward as prepare_roi_align_boxes_backward
from ..roi_align import sampling_options
from ..roi_align_3d import prepare as prepare_roi_align_3d
from ..roi_align_3d import prepare_backward as prepare_roi_align_3d_backward
from ..roi_align_levels import MOST_LEVELS, level_options
from ..roi_align_levels import prepare as prepare_levels
from ..roi_align_levels import prepare_backward as prepare_levels_backward
from ..roi_pool import prepare as prepare_roi_pool
from ..roi_pool import prepare_backward as prepare_roi_pool_backward
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents, Unfold, merged, parted
from ._primitive import array_of, call, run

__all__ = ["ps_roi_align", "ps_roi_pool", "roi_align", "roi_align_3d", "roi_align_levels", "roi_pool"]

_IMAGES = ("n", "c", "h", "w")
_BOXES = ("k", "five")
_BINS = ("k", "c", "p", "q")
# Up to here every whole number is a float32, in which boxes name their images.
_MOST_IMAGES = 1 << 24


def _shifted(boxes: Any, num_images: int) -> Any:
    """Let the boxes [B, K, ...] of B problems name the images of all; those that name none of theirs, none at all."""
    size = boxes.shape[0]
    if boxes.dtype == jnp.float32 and size * num_images > _MOST_IMAGES:
        raise InvalidProblemError(f"vmap: boxes in float32 name at most {_MOST_IMAGES} images, not {size * num_images}")
    images = jnp.trunc(boxes[..., :1])
    starts = (jnp.arange(size) * num_images).astype(boxes.dtype)[:, None, None]
    is_inside = (images >= 0) & (images < num_images)
    return jnp.concatenate([jnp.where(is_inside, images + starts, -1), boxes[..., 1:]], 2)


@dataclass(frozen=True)
class _RoiAlign(KernelOperation):
    """The bins of (input, boxes), linear in the input."""

    input_shape: tuple[int, ...]
    pooled: tuple[int, int]
    options: tuple[float, int, bool]

    name = "roi_align"

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), (boxes_shape, boxes_dtype) = specs
        return prepare_roi_align(HOST, shape, dtype, boxes_shape, boxes_dtype, self.pooled, *self.options)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_IMAGES, _BOXES), (_BINS,), frozenset("ck"), frozenset("c"))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        input, boxes = operands
        arrays = [merged(input), merged(_shifted(boxes, input.shape[1]))]
        return self, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        backward = _RoiAlignBackward(self.input_shape, self.pooled, self.options)
        return call(backward, cotangents[0], operands[1])[0], None


@dataclass(frozen=True)
class _RoiAlignBackward(KernelOperation):
    """The gradient of the input by (grad_output, boxes), linear in the first."""

    input_shape: tuple[int, ...]
    pooled: tuple[int, int]
    options: tuple[float, int, bool]

    name = "the gradient of roi_align"

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), (boxes_shape, boxes_dtype) = specs
        # A device may have some of the channels.
        n, _, h, w = self.input_shape
        input_shape = (n, shape[1], h, w)
        return prepare_roi_align_backward(HOST, shape, dtype, boxes_shape, boxes_dtype, input_shape, *self.options)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BINS, _BOXES), (_IMAGES,), frozenset("c"), frozenset("c"))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        grad_output, boxes = operands
        n, *rest = self.input_shape
        arrays = [merged(grad_output), merged(_shifted(boxes, n))]
        folded = replace(self, input_shape=(size * n, *rest))
        return folded, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        forward = _RoiAlign(self.input_shape, self.pooled, self.options)
        return call(forward, cotangents[0], operands[1])[0], None


@dataclass(frozen=True)
class _RoiAlignOfBoxes(_RoiAlign):
    """The bins of (input, boxes), with a gradient of the boxes."""

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        of_input, of_boxes = tangents
        if of_boxes is None:
            return call(_RoiAlign(self.input_shape, self.pooled, self.options), of_input, operands[1])
        moved = jnp.zeros_like(operands[0]) if of_input is None else of_input
        return call(_RoiAlignTangent(self.input_shape, self.pooled, self.options), moved, of_boxes, *operands)


@dataclass(frozen=True)
class _RoiAlignTangent(Operation):
    """The derivative by both, of (their tangents, input, boxes), which is there to be transposed."""

    input_shape: tuple[int, ...]
    pooled: tuple[int, int]
    options: tuple[float, int, bool]

    name = "roi_align"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return _RoiAlign(self.input_shape, self.pooled, self.options).results(*specs[2:])

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        raise NotImplementedError("roi_align has no forward mode through its boxes")

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        of_input = of_boxes = None
        if wanted[0]:
            backward = _RoiAlignBackward(self.input_shape, self.pooled, self.options)
            of_input = call(backward, cotangents[0], operands[3])[0]
        if wanted[1]:
            of_boxes = call(_RoiAlignBoxesBackward(self.options), cotangents[0], *operands[2:])[0]
        return of_input, of_boxes, None, None


@dataclass(frozen=True)
class _RoiAlignBoxesBackward(KernelOperation):
    """The gradient of the boxes by (grad_output, input, boxes)."""

    options: tuple[float, int, bool]

    name = "the gradient of roi_align's boxes"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_roi_align_boxes_backward(HOST, *(each for spec in specs for each in spec), *self.options)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BINS, _IMAGES, _BOXES), (_BOXES,), frozenset("k"), frozenset())

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        grad_output, input, boxes = operands
        arrays = [merged(grad_output), merged(input), merged(_shifted(boxes, input.shape[1]))]
        return self, arrays, lambda results: [parted(size, each) for each in results]


_VOLUMES = ("n", "c", "d", "h", "w")
_BOXES_3D = ("k", "seven")
_BINS_3D = ("k", "c", "o", "p", "q")


@dataclass(frozen=True)
class _RoiAlign3d(KernelOperation):
    """The bins of (input, boxes) of volumes, linear in the input."""

    input_shape: tuple[int, ...]
    pooled: tuple[int, int, int]
    options: tuple[float, int, bool]

    name = "roi_align_3d"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_roi_align_3d(HOST, *(each for spec in specs for each in spec), self.pooled, *self.options)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_VOLUMES, _BOXES_3D), (_BINS_3D,), frozenset("ck"), frozenset("c"))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        input, boxes = operands
        arrays = [merged(input), merged(_shifted(boxes, input.shape[1]))]
        return self, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        backward = _RoiAlign3dBackward(self.input_shape, self.pooled, self.options)
        return call(backward, cotangents[0], operands[1])[0], None


@dataclass(frozen=True)
class _RoiAlign3dBackward(KernelOperation):
    """The gradient of the volumes by (grad_output, boxes), linear in the first."""

    input_shape: tuple[int, ...]
    pooled: tuple[int, int, int]
    options: tuple[float, int, bool]

    name = "the gradient of roi_align_3d"

    def prepare(self, *specs: Spec) -> Prepared:
        # A device may have some of the channels.
        n, _, *extents = self.input_shape
        shape = (n, specs[0][0][1], *extents)
        return prepare_roi_align_3d_backward(HOST, *(each for spec in specs for each in spec), shape, *self.options)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BINS_3D, _BOXES_3D), (_VOLUMES,), frozenset("c"), frozenset("c"))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        grad_output, boxes = operands
        n, *rest = self.input_shape
        arrays = [merged(grad_output), merged(_shifted(boxes, n))]
        folded = replace(self, input_shape=(size * n, *rest))
        return folded, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        forward = _RoiAlign3d(self.input_shape, self.pooled, self.options)
        return call(forward, cotangents[0], operands[1])[0], None


# spatial_scales, sampling_ratio, aligned, k_min, canonical_level, canonical_scale
_LevelOptions = tuple[tuple[float, ...], int, bool, int, int, float]


def _maps(count: int) -> tuple[tuple[str, ...], ...]:
    """The axes of each map; their rows and columns have names of their own."""
    return tuple(("n", "c", f"h{level}", f"w{level}") for level in range(count))


@dataclass(frozen=True)
class _RoiAlignLevels(KernelOperation):
    """The bins of (each map, boxes), linear in the maps."""

    shapes: tuple[tuple[int, ...], ...]
    pooled: tuple[int, int]
    options: _LevelOptions

    name = "roi_align_levels"

    def prepare(self, *specs: Spec) -> Prepared:
        *maps, (boxes_shape, boxes_dtype) = specs
        shapes = tuple(shape for shape, _ in maps)
        return prepare_levels(HOST, shapes, maps[0][1], boxes_shape, boxes_dtype, self.pooled, self.options)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((*_maps(len(self.shapes)), _BOXES), (_BINS,), frozenset("ck"), frozenset("c"))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        *maps, boxes = operands
        arrays = [*(merged(each) for each in maps), merged(_shifted(boxes, maps[0].shape[1]))]
        return self, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        *maps, boxes = operands
        moved = [
            jnp.zeros_like(each) if each_moved is None else each_moved
            for each, each_moved in zip(maps, tangents, strict=False)
        ]
        return call(self, *moved, boxes)

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        backward = _RoiAlignLevelsBackward(self.shapes, self.pooled, self.options)
        found = call(backward, cotangents[0], operands[-1])
        return *(each if is_wanted else None for each, is_wanted in zip(found, wanted, strict=False)), None


@dataclass(frozen=True)
class _RoiAlignLevelsBackward(KernelOperation):
    """The gradient of each map by (grad_output, boxes), linear in the first."""

    shapes: tuple[tuple[int, ...], ...]
    pooled: tuple[int, int]
    options: _LevelOptions

    name = "the gradient of roi_align_levels"

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), (boxes_shape, boxes_dtype) = specs
        # A device may have some of the channels.
        shapes = tuple((n, shape[1], h, w) for n, _, h, w in self.shapes)
        return prepare_levels_backward(HOST, shape, dtype, boxes_shape, boxes_dtype, shapes, self.options)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BINS, _BOXES), _maps(len(self.shapes)), frozenset("c"), frozenset("c"))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        grad_output, boxes = operands
        arrays = [merged(grad_output), merged(_shifted(boxes, self.shapes[0][0]))]
        folded = replace(self, shapes=tuple((size * n, *rest) for n, *rest in self.shapes))
        return folded, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        forward = _RoiAlignLevels(self.shapes, self.pooled, self.options)
        spec = operands[0]
        maps = [
            jnp.zeros(shape, numpy_dtype(spec[1])) if each is None else each
            for shape, each in zip(self.shapes, cotangents, strict=True)
        ]
        return call(forward, *maps, operands[1])[0], None


# Maps are more than channels, so that no axis of them is the bins'.
_BIN_MAPS = ("n", "m", "h", "w")


@dataclass(frozen=True)
class _PsRoi(KernelOperation):
    """The bins of (input, boxes), linear in the input; without a sampling ratio by averages."""

    input_shape: tuple[int, ...]
    pooled: tuple[int, int]
    spatial_scale: float
    ratio: int | None

    name = "position-sensitive pooling"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_ps_roi(
            HOST, *(each for spec in specs for each in spec), self.pooled, self.spatial_scale, self.ratio
        )

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BIN_MAPS, _BOXES), (_BINS,), frozenset("k"), frozenset())

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        input, boxes = operands
        arrays = [merged(input), merged(_shifted(boxes, input.shape[1]))]
        return self, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        backward = _PsRoiBackward(self.input_shape, self.pooled, self.spatial_scale, self.ratio)
        return call(backward, cotangents[0], operands[1])[0], None


@dataclass(frozen=True)
class _PsRoiBackward(KernelOperation):
    """The gradient of the input by (grad_output, boxes), linear in the first."""

    input_shape: tuple[int, ...]
    pooled: tuple[int, int]
    spatial_scale: float
    ratio: int | None

    name = "the gradient of position-sensitive pooling"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_ps_roi_backward(
            HOST, *(each for spec in specs for each in spec), self.input_shape, self.spatial_scale, self.ratio
        )

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BINS, _BOXES), (_BIN_MAPS,), frozenset(), frozenset())

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        grad_output, boxes = operands
        n, *rest = self.input_shape
        arrays = [merged(grad_output), merged(_shifted(boxes, n))]
        folded = replace(self, input_shape=(size * n, *rest))
        return folded, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        forward = _PsRoi(self.input_shape, self.pooled, self.spatial_scale, self.ratio)
        return call(forward, cotangents[0], operands[1])[0], None


@dataclass(frozen=True)
class _RoiPool(KernelOperation):
    """The bins of (input, boxes), and the pixels that they hold."""

    pooled: tuple[int, int]
    spatial_scale: float

    name = "roi_pool"

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), (boxes_shape, boxes_dtype) = specs
        return prepare_roi_pool(HOST, shape, dtype, boxes_shape, boxes_dtype, self.pooled, self.spatial_scale, True)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_IMAGES, _BOXES), (_BINS, _BINS), frozenset("ck"), frozenset("c"))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        input, boxes = operands
        arrays = [merged(input), merged(_shifted(boxes, input.shape[1]))]
        return self, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        # A pixel's place does not move with its value.
        input, boxes = operands
        return call(_RoiPoolTangent(tuple(input.shape)), tangents[0], boxes, outputs[1])[0], None


@dataclass(frozen=True)
class _RoiPoolTangent(Operation):
    """The pixels of (an input's tangent, boxes, argmax) that the bins hold, linear in the first."""

    input_shape: tuple[int, ...]

    name = "roi_pool"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return ((specs[2][0], specs[0][1]),)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        tangent, boxes, argmax = operands
        n, c, h, w = tangent.shape
        images = jnp.trunc(boxes[:, 0])
        is_inside = ((images >= 0) & (images < n))[:, None, None, None] & (argmax >= 0) & (argmax < h * w)
        rows = jnp.where((images >= 0) & (images < n), images, 0).astype(jnp.int32)
        planes = tangent.reshape((n, c, h * w))
        channels = jnp.arange(c)[None, :, None, None]
        if not h * w or not n:
            return [jnp.zeros(argmax.shape, tangent.dtype)]
        found = planes[rows[:, None, None, None], channels, jnp.where(is_inside, argmax, 0)]
        return [jnp.where(is_inside, found, jnp.zeros((), tangent.dtype))]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], *operands[1:])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_RoiPoolBackward(self.input_shape), cotangents[0], *operands[1:])[0], None, None


@dataclass(frozen=True)
class _RoiPoolBackward(KernelOperation):
    """The gradient of the input by (grad_output, boxes, argmax), linear in the first."""

    input_shape: tuple[int, ...]

    name = "the gradient of roi_pool"

    def prepare(self, *specs: Spec) -> Prepared:
        n, _, h, w = self.input_shape
        input_shape = (n, specs[0][0][1], h, w)
        return prepare_roi_pool_backward(HOST, *(each for spec in specs for each in spec), input_shape)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BINS, _BOXES, _BINS), (_IMAGES,), frozenset("c"), frozenset("c"))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        grad_output, boxes, argmax = operands
        n, *rest = self.input_shape
        arrays = [merged(grad_output), merged(_shifted(boxes, n)), merged(argmax)]
        folded = replace(self, input_shape=(size * n, *rest))
        return folded, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], *operands[1:])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_RoiPoolTangent(self.input_shape), cotangents[0], *operands[1:])[0], None, None


def _boxes_of(boxes: Any, input: Any, corners: int = 4, *, gradient: bool = False) -> Any:
    """Answer one array of boxes, without a gradient unless asked for: as given, or of those of each image."""
    stop = (lambda each: each) if gradient else jax.lax.stop_gradient
    if not isinstance(boxes, list | tuple):
        return stop(array_of(boxes))
    check_images(boxes, "input", input.shape)
    parts = [stop(array_of(each)) for each in boxes]
    for number_of, each in enumerate(parts):
        if each.ndim != 2 or each.shape[1] != corners:
            raise ValueError(f"boxes[{number_of}] has shape {each.shape}; wanted [L, {corners}]")
    # In 16 bits an image's index would be rounded from 257 images on.
    wide = (
        jnp.float64 if any(each.dtype == jnp.float64 for each in (*parts, *([] if parts else [input]))) else jnp.float32
    )
    if not parts:
        return jnp.zeros((0, 1 + corners), wide)
    rows = [
        jnp.concatenate([jnp.full((each.shape[0], 1), image, wide), each.astype(wide)], 1)
        for image, each in enumerate(parts)
    ]
    return jnp.concatenate(rows)


def roi_align(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    *,
    boxes_gradient: bool = False,
) -> Any:
    """Average bilinear samples in every bin of every box, as ``torchvision.ops.roi_align`` does.

    Parameters
    ----------
    input : array, [N, C, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        Rows (batch index, x1, y1, x2, y2) in pixels times 1 / `spatial_scale`, or rows (x1, y1, x2, y2) of each image.
        float64 for float64 input, else float32; narrower floats are widened by a copy.
    output_size : int or (int, int)
        Bins along y and x.
    spatial_scale, sampling_ratio, aligned
        As ``pybaracuda.roi_align`` has them.
    boxes_gradient : bool
        Whether boxes have a gradient; torchvision's never do.

    Returns
    -------
    array, [K, C, *output_size]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.roi_align``, when it is traced.

    Notes
    -----
    Linear in the input, so derivatives of every order and both modes exist; of the boxes, on request, the first in
    reverse mode, ``pybaracuda.roi_align_boxes_backward``. The gradient is that of
    ``pybaracuda.roi_align_backward``, bit for bit; under vmap that of all mapped images and boxes in one call, whose
    sums may be cut elsewhere than those of the single ones.
    """
    images = array_of(input)
    pooled = extent_pair("output_size", output_size)
    options = sampling_options(spatial_scale, sampling_ratio, aligned)
    operation = _RoiAlign(tuple(images.shape), pooled, options)
    if not boxes_gradient:
        return run(operation, images, _boxes_of(boxes, images))[0]
    rows = _boxes_of(boxes, images, gradient=True)
    wide = jnp.float64 if images.dtype == jnp.float64 else jnp.float32
    if rows.dtype.itemsize < jnp.dtype(wide).itemsize:
        rows = rows.astype(wide)
    return run(_RoiAlignOfBoxes(operation.input_shape, pooled, options), images, rows)[0]


def roi_align_3d(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Any:
    """Average trilinear samples in every bin of every box: :func:`roi_align` of volumes, by its rules on each axis.

    Parameters
    ----------
    input : array, [N, C, D, H, W]
        Volumes in float32, float64, float16 or bfloat16.
    boxes : array, [K, 7], or a sequence of arrays, [L, 6]
        Rows (batch index, x1, y1, z1, x2, y2, z2) in voxels times 1 / `spatial_scale`, or rows (x1, y1, z1, x2, y2, z2)
        of each volume. float64 for float64 input, else float32; narrower floats are widened by a copy.
    output_size : int or (int, int, int)
        Bins along z, y and x.
    spatial_scale, sampling_ratio, aligned
        As ``pybaracuda.roi_align_3d`` has them.

    Returns
    -------
    array, [K, C, *output_size]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.roi_align_3d``, when it is traced.

    Notes
    -----
    As :func:`roi_align` has them.
    """
    volumes = array_of(input)
    pooled = extent_triple("output_size", output_size)
    options = sampling_options(spatial_scale, sampling_ratio, aligned)
    return run(_RoiAlign3d(tuple(volumes.shape), pooled, options), volumes, _boxes_of(boxes, volumes, 6))[0]


def roi_align_levels(
    inputs: Sequence[Any],
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scales: Sequence[float],
    sampling_ratio: int = -1,
    aligned: bool = False,
    k_min: int | None = None,
    canonical_scale: float = 224,
    canonical_level: int = 4,
) -> Any:
    """Pool every box from one of several feature maps, as ``torchvision.ops.MultiScaleRoIAlign`` does.

    Parameters
    ----------
    inputs : sequence of 1 to 8 arrays, [N, C, H, W]
        Feature maps of the same images, the finest first, in float32, float64, float16 or bfloat16.
    boxes, output_size
        As for :func:`roi_align`.
    spatial_scales, sampling_ratio, aligned, k_min, canonical_scale, canonical_level
        As ``pybaracuda.roi_align_levels`` has them.

    Returns
    -------
    array, [K, C, *output_size]
        In the order of the boxes, of the maps' dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.roi_align_levels``, when it is traced.

    Notes
    -----
    Linear in the maps, so derivatives of every order and both modes exist; boxes have none. The gradients are those of
    ``pybaracuda.roi_align_levels_backward``, bit for bit, with :func:`roi_align`'s note about vmap.
    """
    if not isinstance(inputs, list | tuple):
        raise TypeError(f"inputs: wanted a sequence of arrays, got {type(inputs).__name__}")
    maps = [array_of(each) for each in inputs]
    if not 1 <= len(maps) <= MOST_LEVELS:
        raise ValueError(f"inputs has {len(maps)} entries; wanted 1 to {MOST_LEVELS}")
    for level, each in enumerate(maps):
        if each.dtype != maps[0].dtype:
            raise TypeError(f"inputs[{level}] has another dtype than inputs[0]")
    pooled = extent_pair("output_size", output_size)
    options = level_options(spatial_scales, sampling_ratio, aligned, k_min, (canonical_scale, canonical_level))
    shapes = tuple(tuple(each.shape) for each in maps)
    return run(_RoiAlignLevels(shapes, pooled, options), *maps, _boxes_of(boxes, maps[0]))[0]


def _ps_roi(input: Any, boxes: Any, output_size: Any, spatial_scale: float, ratio: int | None) -> Any:
    images = array_of(input)
    pooled = extent_pair("output_size", output_size)
    operation = _PsRoi(tuple(images.shape), pooled, number("spatial_scale", spatial_scale), ratio)
    return run(operation, images, _boxes_of(boxes, images))[0]


def ps_roi_align(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> Any:
    """Average bilinear samples in every bin of every box, each bin from a map of its own, as torchvision does.

    Parameters
    ----------
    input : array, [N, C * PH * PW, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    boxes
        As for :func:`roi_align`.
    output_size, spatial_scale, sampling_ratio
        As ``pybaracuda.ps_roi_align`` has them.

    Returns
    -------
    array, [K, C, PH, PW]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.ps_roi_align``, when it is traced.

    Notes
    -----
    Linear in the input, so derivatives of every order and both modes exist; boxes have none. The gradient is that of
    ``pybaracuda.ps_roi_align_backward``, bit for bit.
    """
    _, ratio, _ = sampling_options(spatial_scale, sampling_ratio, True)
    return _ps_roi(input, boxes, output_size, spatial_scale, ratio)


def ps_roi_pool(
    input: Any, boxes: Any | Sequence[Any], output_size: int | Sequence[int], spatial_scale: float = 1.0
) -> Any:
    """Average the pixels in every bin of every box, each bin from a map of its own, as torchvision does.

    Parameters
    ----------
    input, boxes, output_size, spatial_scale
        As for :func:`ps_roi_align`.

    Returns
    -------
    array, [K, C, PH, PW]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.ps_roi_pool``, when it is traced.

    Notes
    -----
    Linear in the input, so derivatives of every order and both modes exist; boxes have none. The gradient is that of
    ``pybaracuda.ps_roi_pool_backward``, bit for bit.
    """
    return _ps_roi(input, boxes, output_size, spatial_scale, None)


def roi_pool(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    return_argmax: bool = False,
) -> Any:
    """Take the maximum in every bin of every box, as ``torchvision.ops.roi_pool`` does.

    Parameters
    ----------
    input, boxes, output_size, spatial_scale
        As for :func:`roi_align`.
    return_argmax : bool
        Whether to answer also which pixel each value is, in int32; -1 for none.

    Returns
    -------
    array, [K, C, *output_size]
        Of the input's dtype; with `return_argmax`, that and the pixels.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.roi_pool``, when it is traced.

    Notes
    -----
    The gradient is that of ``pybaracuda.roi_pool_backward``, bit for bit, with :func:`roi_align`'s note about vmap.
    Derivatives of every order and both modes exist; boxes have none.
    """
    images = array_of(input)
    pooled = extent_pair("output_size", output_size)
    operation = _RoiPool(pooled, number("spatial_scale", spatial_scale))
    output, argmax = run(operation, images, _boxes_of(boxes, images))
    return (output, argmax) if return_argmax else output
