# SPDX-License-Identifier: Apache-2.0
"""Routes of the image operators: sampling, boxes and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..affine_grid import affine_grid_backward
from ..grid_sample import grid_sample, grid_sample_backward
from ..pad import pad, pad_backward
from ..roi_align import roi_align, roi_align_backward
from ..roi_pool import roi_pool, roi_pool_backward
from ._nms_functions import kept_indices
from ._route import of_floats, route, widened_floats

__all__: list[str] = []

# By PyTorch's numbers.
_MODES, _PADDING_MODES = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _rule(interpolation: int, padding: int, align_corners: bool) -> tuple[str, str, bool]:
    return _MODES[interpolation], _PADDING_MODES[padding], align_corners


_GRID = {
    2: "any mode, padding_mode and align_corners; float32, float64, float16, bfloat16",
    3: "any mode, padding_mode and align_corners; float32, float64, float16, bfloat16",
}


def _sampled(input: Any, grid: Any) -> tuple[int, ...]:
    return (*input.shape[:2], *grid.shape[1:-1])


def _enter_grid(axes: int) -> None:
    name, rank = f"grid_sampler_{axes}d", axes + 2

    def refusal(input: Any, grid: Any, interpolation: int, padding: int, align_corners: bool) -> str:
        modes = len(_MODES) if axes == 2 else len(_MODES) - 1  # volumes have no bicubic samples
        if not 0 <= interpolation < modes or not 0 <= padding < len(_PADDING_MODES):
            return "another mode"
        if input.dim() != rank or grid.dim() != rank or grid.shape[-1] != axes or grid.shape[0] != input.shape[0]:
            return "shapes that do not fit"
        return of_floats(input, grid) or ("an empty tensor" if not input.numel() or not grid.numel() else "")

    def forward(input: Any, grid: Any, interpolation: int, padding: int, align_corners: bool) -> Any:
        return grid_sample(input, widened_floats(grid), *_rule(interpolation, padding, align_corners))

    def backward_refusal(
        grad_output: Any, input: Any, grid: Any, interpolation: int, padding: int, align_corners: bool, output_mask: Any
    ) -> str:
        found = refusal(input, grid, interpolation, padding, align_corners) or of_floats(input, grad_output)
        return found or ("" if tuple(grad_output.shape) == _sampled(input, grid) else "shapes that do not fit")

    def backward(
        grad_output: Any,
        input: Any,
        grid: Any,
        interpolation: int,
        padding: int,
        align_corners: bool,
        output_mask: Sequence[bool],
    ) -> tuple[Any, Any]:
        # PyTorch's kernel answers the second whether it is wanted or not, and its batching rule relies on that.
        rule = _rule(interpolation, padding, align_corners)
        of_input, of_grid = grid_sample_backward(
            grad_output, input, widened_floats(grid), *rule, (bool(output_mask[0]), True)
        )
        return of_input, of_grid.to(grid.dtype)

    route(f"aten::{name}", refusal, _GRID[axes])(forward)
    route(f"aten::{name}_backward", backward_refusal, _GRID[axes], group=name)(backward)
    if axes == 3:
        return

    # What PyTorch calls on CUDA in place of the above for bilinear samples with zeros around and aligned corners. The
    # gradient has no mask there.
    rule, both = (0, 0, True), (True, True)

    def cudnn_refusal(input: Any, grid: Any) -> str:
        return refusal(input, grid, *rule)

    def cudnn_forward(input: Any, grid: Any) -> Any:
        return forward(input, grid, *rule)

    def cudnn_backward_refusal(input: Any, grid: Any, grad_output: Any) -> str:
        return backward_refusal(grad_output, input, grid, *rule, both)

    def cudnn_backward(input: Any, grid: Any, grad_output: Any) -> tuple[Any, Any]:
        return backward(grad_output, input, grid, *rule, both)

    options: dict[str, Any] = {"group": name, "devices": ("cuda",), "whole": True}
    route("aten::cudnn_grid_sampler", cudnn_refusal, _GRID[axes], **options)(cudnn_forward)
    route("aten::cudnn_grid_sampler_backward", cudnn_backward_refusal, _GRID[axes], **options)(cudnn_backward)


for _axes in (2, 3):
    _enter_grid(_axes)


def _affine_refusal(grad: Any, size: Sequence[int], align_corners: bool) -> str:
    if len(size) not in (4, 5):
        return "sizes that do not fit"
    if grad.dtype not in (torch.float32, torch.float64):
        return f"dtype {grad.dtype}"
    return "an empty tensor" if not grad.numel() else ""


@route(
    "aten::affine_grid_generator_backward",
    _affine_refusal,
    "float32, float64",
)
def _affine_grid_generator_backward(grad: Any, size: Sequence[int], align_corners: bool) -> Any:
    return affine_grid_backward(grad, tuple(size), align_corners)


def _roi_refusal(values: Any, rois: Any, *rest: Any) -> str:
    if values.dim() != 4 or rois.dim() != 2 or rois.shape[1] != 5:
        return "shapes that do not fit"
    return of_floats(values, rois) or ("an empty tensor" if not values.numel() else "")


_ROI = "float32, float64, float16, bfloat16"


@route("torchvision::roi_align", _roi_refusal, _ROI)
def _roi_align(
    input: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    return roi_align(input, widened_floats(rois), (pooled_height, pooled_width), spatial_scale, sampling_ratio, aligned)


@route("torchvision::_roi_align_backward", _roi_refusal, _ROI, group="roi_align")
def _roi_align_backward(
    grad: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    shape = (batch_size, channels, height, width)
    return roi_align_backward(grad, widened_floats(rois), shape, spatial_scale, sampling_ratio, aligned)


@route("torchvision::roi_pool", _roi_refusal, _ROI)
def _roi_pool(input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple[Any, Any]:
    size = (pooled_height, pooled_width)
    output, argmax = roi_pool(input, widened_floats(rois), size, spatial_scale, return_argmax=True)
    return output, argmax


def _roi_pool_backward_refusal(grad: Any, rois: Any, argmax: Any, *rest: Any) -> str:
    if argmax.dtype != torch.int32 or argmax.shape != grad.shape:
        return "shapes that do not fit"
    return _roi_refusal(grad, rois)


@route("torchvision::_roi_pool_backward", _roi_pool_backward_refusal, _ROI, group="roi_pool")
def _roi_pool_backward(
    grad: Any,
    rois: Any,
    argmax: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Any:
    return roi_pool_backward(grad, widened_floats(rois), argmax, (batch_size, channels, height, width))


def _nms_refusal(dets: Any, scores: Any, iou_threshold: float) -> str:
    if dets.dim() != 2 or dets.shape[1] != 4 or scores.dim() != 1 or scores.shape[0] != dets.shape[0]:
        return "shapes that do not fit"
    return of_floats(dets, scores) or ("an empty tensor" if not dets.numel() else "")


# How many boxes are kept decides the result's shape, for which the host has to wait.
@route("torchvision::nms", _nms_refusal, _ROI, whole=True)
def _nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    return kept_indices(dets, scores, None, iou_threshold)


def _split(pads: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Answer how many elements come before and after each axis; PyTorch's list begins with the last one."""
    rest = (0,) * (rank - len(pads) // 2)
    return rest + tuple(pads[-2::-2]), rest + tuple(pads[::-2])


def _layout(tensor: Any) -> Any:
    """Answer the memory format that PyTorch's padding keeps."""
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous():
        return torch.channels_last
    return torch.contiguous_format


def _empty(self: Any, extents: Sequence[int]) -> Any:
    """Answer a tensor like another one with these extents, in the memory format that PyTorch's padding keeps."""
    return torch.empty(extents, dtype=self.dtype, device=self.device, memory_format=_layout(self))


def _padded(self: Any, padding: Sequence[int]) -> list[int]:
    """Answer the extents with what comes before and after each axis, or less it where that is negative."""
    low, high = _split(padding, self.dim())
    return [extent + before + after for extent, before, after in zip(self.shape, low, high, strict=True)]


# PyTorch repeats elements as if nothing were cut off, and cuts then; the kernels cut first.
def _positive(pads: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(each, 0) for each in pads)


def _negative(pads: Sequence[int]) -> tuple[int, ...]:
    return tuple(min(each, 0) for each in pads)


def _repeated_refusal(axes: int, mode: str) -> Any:
    def refusal(self: Any, padding: Sequence[int]) -> str:
        if self.dim() not in (axes + 1, axes + 2) or len(padding) != 2 * axes:
            return "shapes that do not fit"
        extents = self.shape[-axes:]
        if not self.numel() or min(_padded(self, padding)) < 1:
            return "an empty tensor"
        widest = [max(padding[2 * k], padding[2 * k + 1]) for k in range(axes)]
        if mode == "reflect" and any(w >= n for w, n in zip(widest, reversed(extents), strict=True)):
            return "a pad as wide as the input"
        return of_floats(self)

    return refusal


def _enter_repeated(name: str, mode: str, axes: int) -> None:
    refusal = _repeated_refusal(axes, mode)
    conditions = "float32, float64, float16, bfloat16"
    # Rows within images PyTorch copies faster on a CPU, and elements that are only moved have the same bits.
    devices = ("cpu", "cuda") if axes == 1 else ("cuda",)
    if axes > 1:
        conditions += "; the forward on CUDA"

    def forward(self: Any, padding: Sequence[int]) -> Any:
        low, high = _split(padding, self.dim())
        wide = _padded(self, [max(each, 0) for each in padding])
        out = pad(self, _positive(low), _positive(high), mode=mode, out=_empty(self, wide))
        if min(padding) >= 0:
            return out
        return pad(out, _negative(low), _negative(high), out=_empty(self, _padded(self, padding)))

    def backward_refusal(grad_output: Any, self: Any, padding: Sequence[int]) -> str:
        found = refusal(self, padding) or of_floats(self, grad_output)
        return found or ("" if list(grad_output.shape) == _padded(self, padding) else "shapes that do not fit")

    def backward(grad_output: Any, self: Any, padding: Sequence[int]) -> Any:
        low, high = _split(padding, self.dim())
        if min(padding) < 0:
            grad_output = pad_backward(grad_output, _negative(low), _negative(high))
        out = _empty(self, self.shape)
        return pad_backward(grad_output, _positive(low), _positive(high), mode=mode, out=out)

    route(f"aten::{name}", refusal, conditions, devices=devices, compiled=False)(forward)
    route(f"aten::{name}_backward", backward_refusal, conditions, group=name)(backward)


for _axes in (1, 2, 3):
    _enter_repeated(f"reflection_pad{_axes}d", "reflect", _axes)
    _enter_repeated(f"replication_pad{_axes}d", "replicate", _axes)


def _constant_refusal(self: Any, pads: Sequence[int], value: Any = 0) -> str:
    if len(pads) % 2 or len(pads) > 2 * self.dim() or self.dim() > 8:
        return "shapes that do not fit"
    low, high = _split(pads, self.dim())
    if not self.numel() or any(
        extent + before + after <= 0 or extent + min(before, 0) + min(after, 0) <= 0
        for extent, before, after in zip(self.shape, low, high, strict=True)
    ):
        return "an empty tensor"
    return of_floats(self) or ("a complex value" if isinstance(value, complex) else "")


# It moves elements alone, as its gradient does, and is a call of Python's.
@route(
    "aten::constant_pad_nd",
    _constant_refusal,
    "up to 8 axes, pads of any sign; float32, float64, float16, bfloat16; on CUDA",
    devices=("cuda",),
    compiled=False,
)
def _constant_pad_nd(self: Any, pads: Sequence[int], value: Any = 0) -> Any:
    low, high = _split(pads, self.dim())
    return pad(self, low, high, value=value, out=_empty(self, _padded(self, pads)))
