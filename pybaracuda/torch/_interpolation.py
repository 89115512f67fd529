# SPDX-License-Identifier: Apache-2.0
"""Routes of interpolation: PyTorch's upsampling operators in the modes that the kernels have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._decomp.decompositions import upsample_compute_output_size

from ..interpolate import resize, resize_backward
from . import _interpolate_function  # noqa: F401  (defines the operator that compiled programs call)
from ._channels_last import as_images, as_volumes, has_whole_vectors
from ._route import CHANNELS_LAST, CPU_ALWAYS, of_floats, route

__all__: list[str] = []

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


# Modes that leave an axis as it is, bit for bit, where its extent stays; positions of more places have no halves.
_KEEPING, _MOST_KEPT = ("nearest", "nearest-exact", "linear"), 1 << 22


def _format_of(tensor: Any) -> Any:
    """Answer the memory format that PyTorch's operators keep; None for rows."""
    found = _FORMATS.get(tensor.dim())
    is_other = found is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=found)
    return found if is_other else None


def _formed(result: Any, like: Any) -> Any:
    """Answer the result in the memory format of another tensor, by a copy where it is another one."""
    wanted = _format_of(like)
    return result if wanted is None else result.contiguous(memory_format=wanted)


def _lies_as_volumes(tensor: Any, mode: str) -> bool:
    """Tell whether images are resized as volumes, without a copy."""
    is_last = _format_of(tensor) == torch.channels_last and tensor.shape[1] < _MOST_KEPT
    return is_last and mode in _KEEPING and has_whole_vectors(tensor)


def _resized(tensor: Any, size: tuple[int, ...], scales: tuple[float, ...], mode: str, aligned: bool) -> Any:
    """Answer the output in the tensor's memory format."""
    if _lies_as_volumes(tensor, mode):
        volumes = (*size, tensor.shape[1])
        return as_images(resize(as_volumes(tensor), volumes, scales and (*scales, 0.0), mode, aligned))
    return _formed(resize(tensor, size, scales, mode, aligned), tensor)


def _resized_backward(grad: Any, shape: tuple[int, ...], scales: tuple[float, ...], mode: str, aligned: bool) -> Any:
    """Answer the gradient in the memory format of the one that is given."""
    if _lies_as_volumes(grad, mode):
        n, channels, *extents = shape
        volumes = (n, 1, *extents, channels)
        return as_images(resize_backward(as_volumes(grad), volumes, scales and (*scales, 0.0), mode, aligned))
    return _formed(resize_backward(grad, shape, scales, mode, aligned), grad)


def _scales(given: Sequence[float | None]) -> tuple[float, ...]:
    """Answer what the kernels take: 0 stands for none, as what is not above 0 does in PyTorch."""
    return tuple(0.0 if each is None or not each > 0 else float(each) for each in given)


def _refusal(tensor: Any, axes: int, shape: Sequence[int], size: Sequence[int]) -> str:
    if tensor.dim() != axes + 2 or len(size) != axes or len(shape) != axes + 2:
        return "shapes that do not fit"
    if not tensor.numel() or 0 in shape or 0 in size:
        return "an empty tensor"
    return of_floats(tensor)


def _slow(tensor: Any, mode: str) -> str:
    """Say where PyTorch's kernel of a mode is faster."""
    is_host = tensor.device.type == "cpu" and not CPU_ALWAYS
    return CHANNELS_LAST if is_host and mode == "linear" and _format_of(tensor) == torch.channels_last else ""


def _enter(name: str, mode: str, axes: int, devices: Sequence[str]) -> None:
    """Enter both directions; but for the nearest modes operators have an argument more."""
    has_corners = not mode.startswith("nearest")

    def split(options: Sequence[Any]) -> tuple[bool, tuple[float, ...]]:
        """Answer whether corners are aligned, and the scales; PyTorch leaves out what equals a default."""
        aligned, given = (bool(options[0]), options[1:]) if has_corners else (False, options)
        return aligned, () if aligned else _scales([*given, *[None] * (axes - len(given))])

    def refusal(self: Any, output_size: Sequence[int], *options: Any) -> str:
        return _refusal(self, axes, self.shape, output_size) or _slow(self, mode)

    def forward(self: Any, output_size: Sequence[int], *options: Any) -> Any:
        aligned, scales = split(options)
        return _resized(self, tuple(output_size), scales, mode, aligned)

    def composite(input: Any, output_size: Sequence[int] | None, *options: Any) -> Any:
        """Answer the overload that takes an optional size and optional factors."""
        size = upsample_compute_output_size(input.size(), output_size, options[-1])
        aligned, scales = split([*options[:-1], *(options[-1] or ())])
        if refusal(input, size):
            return NotImplemented
        return torch.ops.pybaracuda.interpolate.default(input, size, scales, mode, aligned)

    def backward_refusal(grad_output: Any, output_size: Sequence[int], input_size: Sequence[int], *options: Any) -> str:
        found = _refusal(grad_output, axes, input_size, output_size) or _slow(grad_output, mode)
        if found or tuple(grad_output.shape) == (*input_size[:2], *output_size):
            return found
        return "shapes that do not fit"

    def backward(grad_output: Any, output_size: Sequence[int], input_size: Sequence[int], *options: Any) -> Any:
        aligned, scales = split(options)
        return _resized_backward(grad_output, tuple(input_size), scales, mode, aligned)

    conditions = "float32, float64, float16, bfloat16" + ("" if "cpu" in devices else "; on CUDA")
    overload = (f"aten::{name}.vec", composite)
    route(f"aten::{name}", refusal, conditions, devices=devices, composite=overload)(forward)
    route(f"aten::{name}_backward", backward_refusal, conditions, group=name, devices=devices)(backward)


# On the CPU PyTorch's own kernels move pixels faster, and signals.
for _axes in (1, 2, 3):
    _enter(f"upsample_nearest{_axes}d", "nearest", _axes, ("cuda",))
    _enter(f"_upsample_nearest_exact{_axes}d", "nearest-exact", _axes, ("cuda",))
_enter("upsample_linear1d", "linear", 1, ("cuda",))
_enter("upsample_bilinear2d", "linear", 2, ("cpu", "cuda"))
_enter("upsample_bicubic2d", "cubic", 2, ("cpu", "cuda"))
_enter("upsample_trilinear3d", "linear", 3, ("cpu", "cuda"))
_enter("_upsample_bilinear2d_aa", "linear-antialias", 2, ("cpu", "cuda"))
_enter("_upsample_bicubic2d_aa", "cubic-antialias", 2, ("cpu", "cuda"))
