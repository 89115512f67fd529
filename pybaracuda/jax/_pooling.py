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
from .._call import Prepared, extent_pair, number
from .._errors import InvalidProblemError
from ..roi_align import prepare as prepare_roi_align
from ..roi_align import prepare_backward as prepare_roi_align_backward
from ..roi_align import sampling_options
from ..roi_pool import prepare as prepare_roi_pool
from ..roi_pool import prepare_backward as prepare_roi_pool_backward
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents, Unfold, merged, parted
from ._primitive import array_of, call, run

__all__ = ["roi_align", "roi_pool"]

_IMAGES = ("n", "c", "h", "w")
_BOXES = ("k", "five")
_BINS = ("k", "c", "p", "q")
# Up to here every whole number is a float32, in which boxes name their images.
_MOST_IMAGES = 1 << 24


def _shifted(boxes: Any, num_images: int) -> Any:
    """Let the boxes [B, K, 5] of B problems name the images of all; those that name none of theirs, none at all."""
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


def _boxes_of(boxes: Any, input: Any) -> Any:
    """Answer one array of [K, 5] boxes, without a gradient: as given, or of those of each image."""
    if not isinstance(boxes, list | tuple):
        return jax.lax.stop_gradient(array_of(boxes))
    check_images(boxes, "input", input.shape)
    parts = [jax.lax.stop_gradient(array_of(each)) for each in boxes]
    for number_of, each in enumerate(parts):
        if each.ndim != 2 or each.shape[1] != 4:
            raise ValueError(f"boxes[{number_of}] has shape {each.shape}; wanted [L, 4]")
    # In 16 bits an image's index would be rounded from 257 images on.
    wide = (
        jnp.float64 if any(each.dtype == jnp.float64 for each in (*parts, *([] if parts else [input]))) else jnp.float32
    )
    if not parts:
        return jnp.zeros((0, 5), wide)
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
    Linear in the input, so derivatives of every order and both modes exist; boxes have none. The gradient is that of
    ``pybaracuda.roi_align_backward``, bit for bit; under vmap that of all mapped images and boxes in one call, whose
    sums may be cut elsewhere than those of the single ones.
    """
    images = array_of(input)
    pooled = extent_pair("output_size", output_size)
    options = sampling_options(spatial_scale, sampling_ratio, aligned)
    return run(_RoiAlign(tuple(images.shape), pooled, options), images, _boxes_of(boxes, images))[0]


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
