# SPDX-License-Identifier: Apache-2.0
"""Boxes pooled from several feature maps, on tensors with gradients; what is computed is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._call import extent_pair
from ..roi_align_levels import level_options, roi_align_levels_backward
from ..roi_align_levels import roi_align_levels as align
from ._image_functions import joined_boxes
from ._opaque import Differentiable, define

__all__ = ["roi_align_levels"]

# Behind the boxes and the bins, each way: what the array functions call so, in the same order but for the last two.
_OPTIONS = (
    "float[] spatial_scales, int sampling_ratio, bool aligned, int k_min, int canonical_level, float canonical_scale"
)


def _named(
    scales: Sequence[float], ratio: int, aligned: bool, k_min: int, canonical_level: int, canonical_scale: float
) -> dict[str, Any]:
    return {
        "spatial_scales": tuple(scales),
        "sampling_ratio": ratio,
        "aligned": aligned,
        "k_min": k_min,
        "canonical_scale": canonical_scale,
        "canonical_level": canonical_level,
    }


def _run(inputs: Sequence[Any], boxes: Any, h: int, w: int, *options: Any) -> Any:
    return align(list(inputs), boxes, (h, w), **_named(*options))


def _fake(inputs: Sequence[Any], boxes: Any, h: int, w: int, *options: Any) -> Any:
    return inputs[0].new_empty((boxes.shape[0], inputs[0].shape[1], h, w))


_levels = define(
    f"roi_align_levels(Tensor[] inputs, Tensor boxes, SymInt pooled_height, SymInt pooled_width, {_OPTIONS}) -> Tensor",
    _run,
    _fake,
    lambda inputs, *rest: _RoiAlignLevels.apply(*rest, *inputs),
)


def _shapes(extents: Sequence[int]) -> list[tuple[int, ...]]:
    """Four numbers a map."""
    return [tuple(extents[at : at + 4]) for at in range(0, len(extents), 4)]


def _run_backward(grad_output: Any, boxes: Any, extents: Sequence[int], *options: Any) -> Any:
    return list(roi_align_levels_backward(grad_output, boxes, _shapes(extents), **_named(*options)))


def _fake_backward(grad_output: Any, boxes: Any, extents: Sequence[int], *options: Any) -> Any:
    return [grad_output.new_empty(shape) for shape in _shapes(extents)]


_levels_backward = define(
    f"roi_align_levels_backward(Tensor grad_output, Tensor boxes, SymInt[] input_shapes, {_OPTIONS}) -> Tensor[]",
    _run_backward,
    _fake_backward,
    lambda *args: list(_RoiAlignLevelsBackward.apply(*args)),
)


class _RoiAlignLevels(Differentiable):
    """Linear in the maps, which come last; boxes have no gradient, as in torchvision."""

    @staticmethod
    def forward(boxes: Any, h: int, w: int, *rest: Any) -> Any:
        return _levels(list(rest[6:]), boxes, h, w, *rest[:6])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        boxes, _, _, *rest = inputs
        ctx.save_for_backward(boxes)
        ctx.options = rest[:6]
        ctx.extents = [extent for each in rest[6:] for extent in each.shape]

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        (boxes,) = ctx.saved_tensors
        grads = _RoiAlignLevelsBackward.apply(grad_output, boxes, ctx.extents, *ctx.options)
        return (None,) * 9 + tuple(grads)


class _RoiAlignLevelsBackward(Differentiable):
    """The adjoint."""

    @staticmethod
    def forward(
        grad_output: Any,
        boxes: Any,
        extents: Sequence[int],
        scales: Sequence[float],
        ratio: int,
        aligned: bool,
        k_min: int,
        canonical_level: int,
        canonical_scale: float,
    ) -> Any:
        # Its parameters have names: a compiler takes the context of a nested function for one of `*options`.
        return tuple(
            _levels_backward(
                grad_output, boxes, extents, scales, ratio, aligned, k_min, canonical_level, canonical_scale
            )
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, boxes, _, *ctx.options = inputs
        ctx.save_for_backward(boxes)
        ctx.pooled = tuple(grad_output.shape[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (boxes,) = ctx.saved_tensors
        grad = _RoiAlignLevels.apply(boxes, *ctx.pooled, *ctx.options, *grads)
        return grad, None, None, *(None for _ in ctx.options)


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
    inputs : sequence of 1 to 8 Tensor, [N, C, H, W]
        Feature maps of the same images, the finest first, in float32, float64, float16 or bfloat16.
    boxes : Tensor, [K, 5], or a sequence of Tensor, [L, 4]
        As :func:`roi_align` takes them.
    output_size : int or (int, int)
        Bins along y and x.
    spatial_scales, sampling_ratio, aligned, k_min, canonical_scale, canonical_level
        As ``pybaracuda.roi_align_levels`` has them.

    Returns
    -------
    Tensor, [K, C, *output_size]
        In the order of the boxes, of the maps' dtype and device.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.roi_align_levels``; PyTorch's dispatcher refuses, for example, a string for a number:
        RuntimeError.

    Notes
    -----
    The maps of the boxes are found on the device: the host does not wait. Linear in the maps, so derivatives of every
    order exist; boxes have none. The gradients are those of ``pybaracuda.roi_align_levels_backward``, bit for bit: the
    same bits on every run, thread count, GPU and backend.
    """
    # No union of types: the compiler of torch 2.9 does not know them.
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(f"inputs: wanted a sequence of tensors, got {type(inputs).__name__}")
    if not inputs:
        raise ValueError("inputs has 0 entries; wanted 1 to 8")
    pooled = extent_pair("output_size", output_size)
    options = level_options(spatial_scales, sampling_ratio, aligned, k_min, (canonical_scale, canonical_level))
    rois = joined_boxes(boxes, inputs[0])
    result: torch.Tensor = _RoiAlignLevels.apply(rois, *pooled, list(options[0]), *options[1:], *inputs)
    return result
