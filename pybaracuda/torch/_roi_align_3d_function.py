# SPDX-License-Identifier: Apache-2.0
"""RoIAlign of volumes on tensors, with gradients; what is computed is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._call import extent_triple
from ..roi_align_3d import roi_align_3d as align
from ..roi_align_3d import roi_align_3d_backward
from ._image_functions import joined_boxes
from ._opaque import Differentiable, define

__all__ = ["roi_align_3d"]

_CORNERS = 6


def _run(input: Any, boxes: Any, d: int, h: int, w: int, spatial_scale: float, ratio: int, aligned: bool) -> Any:
    return align(input, boxes, (d, h, w), spatial_scale, ratio, aligned)


def _fake(input: Any, boxes: Any, d: int, h: int, w: int, spatial_scale: float, ratio: int, aligned: bool) -> Any:
    return input.new_empty((boxes.shape[0], input.shape[1], d, h, w))


_roi_align_3d = define(
    "roi_align_3d(Tensor input, Tensor boxes, SymInt pooled_depth, SymInt pooled_height, SymInt pooled_width, "
    "float spatial_scale, int sampling_ratio, bool aligned) -> Tensor",
    _run,
    _fake,
    lambda *args: _RoiAlign3d.apply(*args),
)


def _run_backward(
    grad_output: Any, boxes: Any, input_shape: Sequence[int], spatial_scale: float, ratio: int, aligned: bool
) -> Any:
    return roi_align_3d_backward(grad_output, boxes, tuple(input_shape), spatial_scale, ratio, aligned)


def _fake_backward(
    grad_output: Any, boxes: Any, input_shape: Sequence[int], spatial_scale: float, ratio: int, aligned: bool
) -> Any:
    return grad_output.new_empty(input_shape)


_roi_align_3d_backward = define(
    "roi_align_3d_backward(Tensor grad_output, Tensor boxes, SymInt[] input_shape, float spatial_scale, "
    "int sampling_ratio, bool aligned) -> Tensor",
    _run_backward,
    _fake_backward,
    lambda *args: _RoiAlign3dBackward.apply(*args),
)


class _RoiAlign3d(Differentiable):
    """Linear in the input; boxes have no gradient."""

    @staticmethod
    def forward(input: Any, boxes: Any, d: int, h: int, w: int, spatial_scale: float, ratio: int, aligned: bool) -> Any:
        return _roi_align_3d(input, boxes, d, h, w, spatial_scale, ratio, aligned)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, boxes, _, _, _, *ctx.options = inputs
        ctx.save_for_backward(boxes)
        ctx.shape = tuple(input.shape)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        (boxes,) = ctx.saved_tensors
        grad = _RoiAlign3dBackward.apply(grad_output, boxes, ctx.shape, *ctx.options)
        return grad, None, None, None, None, None, None, None


class _RoiAlign3dBackward(Differentiable):
    """The adjoint."""

    @staticmethod
    def forward(
        grad_output: Any, boxes: Any, input_shape: Sequence[int], spatial_scale: float, ratio: int, aligned: bool
    ) -> Any:
        return _roi_align_3d_backward(grad_output, boxes, input_shape, spatial_scale, ratio, aligned)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, boxes, _, *ctx.options = inputs
        ctx.save_for_backward(boxes)
        ctx.pooled = tuple(grad_output.shape[2:])

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (boxes,) = ctx.saved_tensors
        return _RoiAlign3d.apply(grad, boxes, *ctx.pooled, *ctx.options), None, None, None, None, None


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
    input : Tensor, [N, C, D, H, W]
        Volumes in float32, float64, float16 or bfloat16.
    boxes : Tensor, [K, 7], or a sequence of Tensor, [L, 6]
        Rows (batch index, x1, y1, z1, x2, y2, z2) in voxels times 1 / `spatial_scale`, or rows (x1, y1, z1, x2, y2, z2)
        of each volume, which are joined by a copy. float64 for float64 input, else float32; narrower floats are
        widened by a copy.
    output_size : int or (int, int, int)
        Bins along z, y and x.
    spatial_scale, sampling_ratio, aligned
        As ``pybaracuda.roi_align_3d`` has them.

    Returns
    -------
    Tensor, [K, C, *output_size]
        Of the input's dtype and device.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.roi_align_3d``; PyTorch's dispatcher refuses, for example, a string for a number: RuntimeError.

    Notes
    -----
    Linear in the input, so derivatives of every order exist; boxes have none. The gradient is that of
    ``pybaracuda.roi_align_3d_backward``, bit for bit: the same bits on every run, thread count, GPU and backend.
    """
    pooled = extent_triple("output_size", output_size)
    rows = joined_boxes(boxes, input, _CORNERS)
    return _RoiAlign3d.apply(input, rows, *pooled, spatial_scale, sampling_ratio, aligned)
