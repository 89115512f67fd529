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
from ._route import of_floats, route

__all__: list[str] = []

_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def _wide(coordinates: Any) -> Any:
    """Answer coordinates as our kernels take them: those of 16 bits in float32, which is exact."""
    wide = _WIDE.get(coordinates.dtype)
    return coordinates if wide is None else coordinates.to(wide)


def _grid_refusal(input: Any, grid: Any, interpolation: int, padding: int, align_corners: bool) -> str:
    if interpolation or padding or align_corners:
        return "a mode other than bilinear, zeros, align_corners=False"
    if input.dim() != 4 or grid.dim() != 4 or grid.shape[3] != 2 or grid.shape[0] != input.shape[0]:
        return "shapes that do not fit"
    return of_floats(input, grid) or ("an empty tensor" if not input.numel() or not grid.numel() else "")


_GRID = "bilinear, zeros outside, align_corners=False; float32, float64, float16, bfloat16"


@route("aten::grid_sampler_2d", _grid_refusal, _GRID)
def _grid_sampler_2d(input: Any, grid: Any, interpolation: int, padding: int, align_corners: bool) -> Any:
    return grid_sample(input, _wide(grid))


def _grid_backward_refusal(
    grad_output: Any, input: Any, grid: Any, interpolation: int, padding: int, align_corners: bool, output_mask: Any
) -> str:
    found = _grid_refusal(input, grid, interpolation, padding, align_corners) or of_floats(input, grad_output)
    return found or ("" if tuple(grad_output.shape) == _sampled(input, grid) else "shapes that do not fit")


def _sampled(input: Any, grid: Any) -> tuple[int, ...]:
    return (input.shape[0], input.shape[1], grid.shape[1], grid.shape[2])


@route("aten::grid_sampler_2d_backward", _grid_backward_refusal, _GRID, group="grid_sampler_2d")
def _grid_sampler_2d_backward(
    grad_output: Any,
    input: Any,
    grid: Any,
    interpolation: int,
    padding: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Any, Any]:
    of_input, of_grid = grid_sample_backward(grad_output, input, _wide(grid))
    # PyTorch's kernel answers the second whether it is wanted or not, and its batching rule relies on that.
    return (of_input if output_mask[0] else None, of_grid.to(grid.dtype))


def _affine_refusal(grad: Any, size: Sequence[int], align_corners: bool) -> str:
    if align_corners or len(size) != 4:
        return "align_corners=True or volumes"
    if grad.dtype not in (torch.float32, torch.float64):
        return f"dtype {grad.dtype}"
    return "an empty tensor" if not grad.numel() else ""


@route(
    "aten::affine_grid_generator_backward",
    _affine_refusal,
    "two dimensions, align_corners=False; float32, float64",
)
def _affine_grid_generator_backward(grad: Any, size: Sequence[int], align_corners: bool) -> Any:
    return affine_grid_backward(grad, tuple(size))


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
    return roi_align(input, _wide(rois), (pooled_height, pooled_width), spatial_scale, sampling_ratio, aligned)


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
    return roi_align_backward(grad, _wide(rois), shape, spatial_scale, sampling_ratio, aligned)


@route("torchvision::roi_pool", _roi_refusal, _ROI)
def _roi_pool(input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple[Any, Any]:
    size = (pooled_height, pooled_width)
    output, argmax = roi_pool(input, _wide(rois), size, spatial_scale, return_argmax=True)
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
    return roi_pool_backward(grad, _wide(rois), argmax, (batch_size, channels, height, width))


def _split(pads: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Answer how many elements come before and after each axis; PyTorch's list begins with the last one."""
    rest = (0,) * (rank - len(pads) // 2)
    return rest + tuple(pads[-2::-2]), rest + tuple(pads[::-2])


def _layout(tensor: Any) -> Any:
    """Answer the memory format that PyTorch's padding keeps."""
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous():
        return torch.channels_last
    return torch.contiguous_format


def _repeated_refusal(axes: int, mode: str) -> Any:
    def refusal(self: Any, padding: Sequence[int]) -> str:
        if self.dim() not in (axes + 1, axes + 2) or len(padding) != 2 * axes:
            return "shapes that do not fit"
        if min(padding) < 0:
            return "a negative pad"
        extents = self.shape[-axes:]
        if not self.numel():
            return "an empty tensor"
        widest = [max(padding[2 * k], padding[2 * k + 1]) for k in range(axes)]
        if mode == "reflect" and any(w >= n for w, n in zip(widest, reversed(extents), strict=True)):
            return "a pad as wide as the input"
        return of_floats(self)

    return refusal


def _enter_repeated(name: str, mode: str, axes: int) -> None:
    refusal = _repeated_refusal(axes, mode)
    conditions = "no negative pads; float32, float64, float16, bfloat16"
    # Rows within images PyTorch copies faster on a CPU, and elements that are only moved have the same bits.
    devices = ("cpu", "cuda") if axes == 1 else ("cuda",)
    if axes > 1:
        conditions += "; the forward on CUDA"

    def forward(self: Any, padding: Sequence[int]) -> Any:
        low, high = _split(padding, self.dim())
        shape = [extent + before + after for extent, before, after in zip(self.shape, low, high, strict=True)]
        out = torch.empty(shape, dtype=self.dtype, device=self.device, memory_format=_layout(self))
        return pad(self, low, high, mode=mode, out=out)

    def backward_refusal(grad_output: Any, self: Any, padding: Sequence[int]) -> str:
        found = refusal(self, padding) or of_floats(self, grad_output)
        if found:
            return found
        low, high = _split(padding, self.dim())
        shape = [extent + before + after for extent, before, after in zip(self.shape, low, high, strict=True)]
        return "" if list(grad_output.shape) == shape else "shapes that do not fit"

    def backward(grad_output: Any, self: Any, padding: Sequence[int]) -> Any:
        low, high = _split(padding, self.dim())
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device, memory_format=_layout(self))
        return pad_backward(grad_output, low, high, mode=mode, out=out)

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
    shape = [extent + before + after for extent, before, after in zip(self.shape, low, high, strict=True)]
    out = torch.empty(shape, dtype=self.dtype, device=self.device, memory_format=_layout(self))
    return pad(self, low, high, value=value, out=out)
