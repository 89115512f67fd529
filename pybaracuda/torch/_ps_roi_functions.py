# SPDX-License-Identifier: Apache-2.0
"""Position-sensitive pooling on tensors, with gradients, and its routes; what is computed is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._call import extent_pair
from ..ps_roi import ps_roi_align as align
from ..ps_roi import ps_roi_align_backward, ps_roi_pool_backward
from ..ps_roi import ps_roi_pool as pool
from ._image_functions import joined_boxes
from ._opaque import Differentiable, define
from ._route import of_floats, route, widened_floats

__all__ = ["ps_roi_align", "ps_roi_pool"]

# A ratio of samples; of averages, which have none, it is this.
_NO_RATIO = -1


def _run(input: Any, boxes: Any, h: int, w: int, spatial_scale: float, samples: bool, ratio: int) -> Any:
    if samples:
        return align(input, boxes, (h, w), spatial_scale, ratio)
    return pool(input, boxes, (h, w), spatial_scale)


def _fake(input: Any, boxes: Any, h: int, w: int, spatial_scale: float, samples: bool, ratio: int) -> Any:
    return input.new_empty((boxes.shape[0], input.shape[1] // (h * w), h, w))


_ps_roi = define(
    "ps_roi(Tensor input, Tensor boxes, SymInt pooled_height, SymInt pooled_width, float spatial_scale, bool samples, "
    "int sampling_ratio) -> Tensor",
    _run,
    _fake,
    lambda *args: _PsRoi.apply(*args),
)


def _run_backward(
    grad_output: Any, boxes: Any, input_shape: Sequence[int], spatial_scale: float, samples: bool, ratio: int
) -> Any:
    if samples:
        return ps_roi_align_backward(grad_output, boxes, tuple(input_shape), spatial_scale, ratio)
    return ps_roi_pool_backward(grad_output, boxes, tuple(input_shape), spatial_scale)


def _fake_backward(
    grad_output: Any, boxes: Any, input_shape: Sequence[int], spatial_scale: float, samples: bool, ratio: int
) -> Any:
    return grad_output.new_empty(input_shape)


_ps_roi_backward = define(
    "ps_roi_backward(Tensor grad_output, Tensor boxes, SymInt[] input_shape, float spatial_scale, bool samples, "
    "int sampling_ratio) -> Tensor",
    _run_backward,
    _fake_backward,
    lambda *args: _PsRoiBackward.apply(*args),
)


class _PsRoi(Differentiable):
    """Linear in the input; boxes have no gradient, as in torchvision."""

    @staticmethod
    def forward(input: Any, boxes: Any, h: int, w: int, spatial_scale: float, samples: bool, ratio: int) -> Any:
        return _ps_roi(input, boxes, h, w, spatial_scale, samples, ratio)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, boxes, _, _, *ctx.options = inputs
        ctx.save_for_backward(boxes)
        ctx.shape = tuple(input.shape)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        (boxes,) = ctx.saved_tensors
        grad = _PsRoiBackward.apply(grad_output, boxes, ctx.shape, *ctx.options)
        return grad, None, None, None, None, None, None


class _PsRoiBackward(Differentiable):
    """The adjoint."""

    @staticmethod
    def forward(
        grad_output: Any, boxes: Any, input_shape: Sequence[int], spatial_scale: float, samples: bool, ratio: int
    ) -> Any:
        return _ps_roi_backward(grad_output, boxes, input_shape, spatial_scale, samples, ratio)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, boxes, _, *ctx.options = inputs
        ctx.save_for_backward(boxes)
        ctx.pooled = tuple(grad_output.shape[2:])

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (boxes,) = ctx.saved_tensors
        return _PsRoi.apply(grad, boxes, *ctx.pooled, *ctx.options), None, None, None, None, None


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
    input : Tensor, [N, C * PH * PW, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    boxes : Tensor, [K, 5], or a sequence of Tensor, [L, 4]
        As :func:`roi_align` takes them.
    output_size : int or (int, int)
        Bins PH and PW along y and x.
    spatial_scale, sampling_ratio
        As ``pybaracuda.ps_roi_align`` has them.

    Returns
    -------
    Tensor, [K, C, PH, PW]
        Of the input's dtype and device.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.ps_roi_align``; PyTorch's dispatcher refuses, for example, a string for a number: RuntimeError.

    Notes
    -----
    Linear in the input, so derivatives of every order exist; boxes have none, as in torchvision. The gradient is that
    of ``pybaracuda.ps_roi_align_backward``, bit for bit: the same bits on every run, thread count, GPU and backend.
    """
    pooled = extent_pair("output_size", output_size)
    return _PsRoi.apply(input, joined_boxes(boxes, input), *pooled, spatial_scale, True, sampling_ratio)


def ps_roi_pool(
    input: Any, boxes: Any | Sequence[Any], output_size: int | Sequence[int], spatial_scale: float = 1.0
) -> Any:
    """Average the pixels in every bin of every box, each bin from a map of its own, as torchvision does.

    Parameters
    ----------
    input : Tensor, [N, C * PH * PW, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    boxes : Tensor, [K, 5], or a sequence of Tensor, [L, 4]
        As :func:`roi_align` takes them.
    output_size : int or (int, int)
        Bins PH and PW along y and x.
    spatial_scale : float
        Input pixels per unit of the boxes.

    Returns
    -------
    Tensor, [K, C, PH, PW]
        Of the input's dtype and device.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.ps_roi_pool``; PyTorch's dispatcher refuses, for example, a string for a number: RuntimeError.

    Notes
    -----
    Linear in the input, so derivatives of every order exist; boxes have none, as in torchvision. The gradient is that
    of ``pybaracuda.ps_roi_pool_backward``, bit for bit: the same bits on every run, thread count, GPU and backend.
    """
    pooled = extent_pair("output_size", output_size)
    return _PsRoi.apply(input, joined_boxes(boxes, input), *pooled, spatial_scale, False, _NO_RATIO)


def _refusal(input: Any, rois: Any, spatial_scale: float, height: int, width: int, *ratio: int) -> str:
    if input.dim() != 4 or rois.dim() != 2 or rois.shape[1] != 5 or min(height, width) < 1:
        return "shapes that do not fit"
    if input.shape[1] % (height * width):
        return "shapes that do not fit"
    return of_floats(input, rois) or ("an empty tensor" if not input.numel() else "")


def _mapping(output: Any) -> Any:
    """Answer which map each bin came from."""
    maps = torch.arange(output.shape[1:].numel(), dtype=torch.int32, device=output.device)
    return maps.reshape(1, *output.shape[1:]).repeat(output.shape[0], 1, 1, 1)


_CONDITIONS = "float32, float64, float16, bfloat16"


@route("torchvision::ps_roi_align", _refusal, _CONDITIONS)
def _ps_roi_align(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Any, Any]:
    output = align(input, widened_floats(rois), (pooled_height, pooled_width), spatial_scale, sampling_ratio)
    return output, _mapping(output)


@route("torchvision::ps_roi_pool", _refusal, _CONDITIONS)
def _ps_roi_pool(input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple[Any, Any]:
    output = pool(input, widened_floats(rois), (pooled_height, pooled_width), spatial_scale)
    return output, _mapping(output)


def _backward_refusal(
    grad: Any, rois: Any, channel_mapping: Any, spatial_scale: float, height: int, width: int, *rest: int
) -> str:
    if grad.dim() != 4 or rois.dim() != 2 or rois.shape[1] != 5 or tuple(grad.shape[2:]) != (height, width):
        return "shapes that do not fit"
    if channel_mapping.shape != grad.shape or rest[-3] != grad.shape[1] * height * width:
        return "shapes that do not fit"
    return of_floats(grad, rois) or ("an empty tensor" if not grad.numel() else "")


# The map of a bin follows from where it is, as in torchvision's forward: what the mapping says is not read.
@route("torchvision::_ps_roi_align_backward", _backward_refusal, _CONDITIONS, group="ps_roi_align")
def _ps_roi_align_backward(
    grad: Any,
    rois: Any,
    channel_mapping: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Any:
    shape = (batch_size, channels, height, width)
    return ps_roi_align_backward(grad, widened_floats(rois), shape, spatial_scale, sampling_ratio)


@route("torchvision::_ps_roi_pool_backward", _backward_refusal, _CONDITIONS, group="ps_roi_pool")
def _ps_roi_pool_backward(
    grad: Any,
    rois: Any,
    channel_mapping: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Any:
    return ps_roi_pool_backward(grad, widened_floats(rois), (batch_size, channels, height, width), spatial_scale)
