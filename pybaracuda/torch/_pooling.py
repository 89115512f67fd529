# SPDX-License-Identifier: Apache-2.0
"""Routes of pooling and unpooling. One axis PyTorch makes two of, and windows of whole planes a mean."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from .._windows import Windows
from ..avg_pool import adaptive_avg_pool, adaptive_avg_pool_backward, avg_pool, avg_pool_backward
from ..fractional_max_pool import fractional_max_pool, fractional_max_pool_backward
from ..max_pool import adaptive_max_pool, adaptive_max_pool_backward, max_pool, max_pool_backward
from ..max_unpool import max_unpool
from ._bad_indices import note
from ._channels_last import as_images, as_volumes, has_channels_last, has_whole_vectors
from ._named import in_range
from ._native import screen
from ._route import CHANNELS_LAST, CPU_ALWAYS, FEW_ELEMENTS, SIXTEEN_BITS, of_floats, route

__all__: list[str] = []

_REFUSED = "arguments that PyTorch refuses"
# Below it a call of Python's is most of the time.
_FEW = 1 << 16
_FLOATS = "float32, float64, float16, bfloat16; on the CPU 65,536 elements and more, in rows"


def _of_tensor(tensor: Any, axes: int) -> str:
    """Say what is wrong with the tensor that is pooled, or with its gradient."""
    if tensor.dim() not in (axes + 1, axes + 2):
        return "shapes that do not fit"
    if not tensor.numel():
        return "an empty tensor"
    if tensor.device.type == "cpu" and not CPU_ALWAYS:
        if tensor.numel() < _FEW:
            return FEW_ELEMENTS
        if _format(tensor, axes) != torch.contiguous_format:
            return CHANNELS_LAST
    return of_floats(tensor)


def _format(tensor: Any, axes: int) -> Any:
    """Answer the memory format in which PyTorch's kernel answers; those of three axes know one."""
    return torch.channels_last if axes == 2 and has_channels_last(tensor) else torch.contiguous_format


def _lies_as_volumes(tensor: Any, axes: int) -> bool:
    """Tell whether images are pooled as volumes, without a copy."""
    return axes == 2 and has_channels_last(tensor) and has_whole_vectors(tensor)


def _formed(result: Any, tensor: Any, axes: int) -> Any:
    return result.contiguous(memory_format=_format(tensor, axes))


def _each(numbers: Sequence[int], axes: int) -> tuple[int, ...]:
    return tuple(numbers) * axes if len(numbers) == 1 else tuple(numbers)


def _windows(
    axes: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Windows:
    """Answer the windows; no stride is the kernel's."""
    step = stride or kernel
    return Windows(_each(kernel, axes), _each(step, axes), _each(padding, axes), _each(dilation, axes), ceil_mode)


def _of_volumes(windows: Windows) -> Windows:
    """Answer images' windows as those of volumes whose third axis is the channels."""
    kernel, stride, padding, dilation, ceil_mode = windows
    return Windows((*kernel, 1), (*stride, 1), (*padding, 0), (*dilation, 1), ceil_mode)


def _bins(tensor: Any, windows: Windows, axes: int) -> tuple[int, ...] | None:
    """Answer how many windows there are along each axis; None where PyTorch raises."""
    kernel, stride, padding, dilation, _ = windows
    if not all(len(each) == axes for each in windows[:4]) or min(*kernel, *stride, *dilation) < 1:
        return None
    spans = [(size - 1) * gap + 1 for size, gap in zip(kernel, dilation, strict=True)]
    if min(padding) < 0 or any(pad > span // 2 for pad, span in zip(padding, spans, strict=True)):
        return None
    if prod(kernel) >= 2**31 or max(*stride, *padding, *dilation) >= 2**31:
        return None
    # A window's first place in the input may be past its end: PyTorch then names an element that is none.
    if any(gap > 1 and gap > extent for gap, extent in zip(dilation, tensor.shape[-axes:], strict=True)):
        return None
    bins = windows.bins(tuple(tensor.shape))
    return bins if min(bins) > 0 else None


def _pooled_shape(tensor: Any, bins: tuple[int, ...]) -> tuple[int, ...]:
    return (*tensor.shape[: -len(bins)], *bins)


def _enter_fixed(axes: int) -> None:
    name = f"avg_pool{axes}d"

    def refusal(
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> str:
        found = _of_tensor(self, axes)
        if found:
            return found
        bins = _bins(self, _windows(axes, kernel_size, stride, padding, (1,), ceil_mode), axes)
        return _REFUSED if bins is None or divisor_override == 0 else ""

    def forward(
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        windows = _windows(axes, kernel_size, stride, padding, (1,), ceil_mode)
        options = (ceil_mode, count_include_pad, divisor_override)
        if _lies_as_volumes(self, axes):
            return as_images(avg_pool(as_volumes(self), *_of_volumes(windows)[:3], *options, axes=3))
        return _formed(avg_pool(self, *windows[:3], *options, axes=axes), self, axes)

    def backward_refusal(grad_output: Any, self: Any, kernel_size: Any, stride: Any, padding: Any, *rest: Any) -> str:
        found = refusal(self, kernel_size, stride, padding, *rest) or of_floats(self, grad_output)
        if found:
            return found
        bins = _bins(self, _windows(axes, kernel_size, stride, padding, (1,), rest[0]), axes)
        fits = bins is not None and tuple(grad_output.shape) == _pooled_shape(self, bins)
        return "" if fits else "shapes that do not fit"

    def backward(
        grad_output: Any,
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Any:
        windows = _windows(axes, kernel_size, stride, padding, (1,), ceil_mode)
        options = (ceil_mode, count_include_pad, divisor_override)
        if _lies_as_volumes(self, axes):
            shape = tuple(as_volumes(self).shape)
            along = _of_volumes(windows)[:3]
            return as_images(avg_pool_backward(as_volumes(grad_output), shape, *along, *options, axes=3))
        gradient = avg_pool_backward(grad_output, tuple(self.shape), *windows[:3], *options, axes=axes)
        return _formed(gradient, self, axes)

    route(f"aten::{name}", refusal, _FLOATS)(forward)
    route(f"aten::{name}_backward", backward_refusal, _FLOATS, group=name)(backward)


def _enter_adaptive(axes: int) -> None:
    name = f"adaptive_avg_pool{axes}d"

    def refusal(self: Any, output_size: Sequence[int]) -> str:
        found = _of_tensor(self, axes)
        if found:
            return found
        return "" if len(output_size) == axes and min(output_size) > 0 else _REFUSED

    def forward(self: Any, output_size: Sequence[int]) -> Any:
        if _lies_as_volumes(self, axes):
            return as_images(adaptive_avg_pool(as_volumes(self), (*output_size, self.shape[1]), axes=3))
        return _formed(adaptive_avg_pool(self, tuple(output_size), axes=axes), self, axes)

    def backward_refusal(grad_output: Any, self: Any) -> str:
        found = _of_tensor(self, axes) or of_floats(self, grad_output)
        if found:
            return found
        fits = grad_output.dim() == self.dim() and grad_output.shape[:-axes] == self.shape[:-axes]
        return "" if fits and grad_output.numel() else "shapes that do not fit"

    def backward(grad_output: Any, self: Any) -> Any:
        if _lies_as_volumes(self, axes):
            shape = tuple(as_volumes(self).shape)
            return as_images(adaptive_avg_pool_backward(as_volumes(grad_output), shape, axes=3))
        return _formed(adaptive_avg_pool_backward(grad_output, tuple(self.shape), axes=axes), self, axes)

    route(f"aten::_{name}", refusal, _FLOATS, group=name)(forward)
    route(f"aten::_{name}_backward", backward_refusal, _FLOATS, group=name)(backward)


def _maxima_as_images(output: Any, indices: Any) -> tuple[Any, Any]:
    """View maxima of volumes as images; their indices, which counted the channels, name pixels."""
    return as_images(output), as_images(indices.div_(indices.shape[-1], rounding_mode="trunc"))


def _indices_of_volumes(indices: Any) -> Any:
    """Answer indices of pixels, in images with their channels last, as those of places in volumes."""
    channels = indices.shape[1]
    each = torch.arange(channels, device=indices.device)[:, None, None]
    return as_volumes(torch.add(each, indices, alpha=channels))


def _named_refusal(grad_output: Any, self: Any, indices: Any, bins: tuple[int, ...] | None) -> str:
    """Say what is wrong with a gradient and the indices of the maxima."""
    if bins is None or tuple(grad_output.shape) != _pooled_shape(self, bins) or indices.shape != grad_output.shape:
        return "shapes that do not fit"
    return "" if indices.dtype == torch.int64 else f"indices of dtype {indices.dtype}"


def _enter_fixed_maximum(axes: int) -> None:
    name = f"max_pool{axes}d_with_indices"

    def refusal(
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> str:
        found = _of_tensor(self, axes)
        if found:
            return found
        bins = _bins(self, _windows(axes, kernel_size, stride, padding, dilation, ceil_mode), axes)
        return _REFUSED if bins is None else ""

    def forward_refusal(self: Any, *windows: Any, **named: Any) -> str:
        # PyTorch's kernel of CUDA for them has the same bits in two thirds of the time: it writes indices of pixels.
        is_theirs = axes == 2 and has_channels_last(self) and self.device.type == "cuda"
        return CHANNELS_LAST if is_theirs else refusal(self, *windows, **named)

    def forward(
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Any, Any]:
        windows = _windows(axes, kernel_size, stride, padding, dilation, ceil_mode)
        if _lies_as_volumes(self, axes):
            return _maxima_as_images(*max_pool(as_volumes(self), *_of_volumes(windows), True, axes=3))
        output, indices = max_pool(self, *windows, True, axes=axes)
        return _formed(output, self, axes), _formed(indices, self, axes)

    def backward_refusal(
        grad_output: Any,
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        indices: Any,
    ) -> str:
        found = refusal(self, kernel_size, stride, padding, dilation, ceil_mode) or of_floats(self, grad_output)
        if found:
            return found
        bins = _bins(self, _windows(axes, kernel_size, stride, padding, dilation, ceil_mode), axes)
        return _named_refusal(grad_output, self, indices, bins)

    def backward(
        grad_output: Any,
        self: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        indices: Any,
    ) -> Any:
        windows = _windows(axes, kernel_size, stride, padding, dilation, ceil_mode)
        if _lies_as_volumes(self, axes):
            named, shape = _indices_of_volumes(indices), tuple(as_volumes(self).shape)
            return as_images(max_pool_backward(as_volumes(grad_output), named, shape, *_of_volumes(windows), axes=3))
        gradient = max_pool_backward(grad_output, indices, tuple(self.shape), *windows, axes=axes)
        return _formed(gradient, self, axes)

    route(f"aten::{name}", forward_refusal, _FLOATS)(forward)
    route(f"aten::{name}_backward", backward_refusal, _FLOATS, group=name)(backward)


def _enter_adaptive_maximum(axes: int) -> None:
    name = f"adaptive_max_pool{axes}d"

    def refusal(self: Any, output_size: Sequence[int]) -> str:
        found = _of_tensor(self, axes)
        if found:
            return found
        return "" if len(output_size) == axes and min(output_size) > 0 else _REFUSED

    def forward(self: Any, output_size: Sequence[int]) -> tuple[Any, Any]:
        if _lies_as_volumes(self, axes):
            bins = (*output_size, self.shape[1])
            return _maxima_as_images(*adaptive_max_pool(as_volumes(self), bins, True, axes=3))
        output, indices = adaptive_max_pool(self, tuple(output_size), True, axes=axes)
        return _formed(output, self, axes), _formed(indices, self, axes)

    def backward_refusal(grad_output: Any, self: Any, indices: Any) -> str:
        found = _of_tensor(self, axes) or of_floats(self, grad_output)
        if found:
            return found
        if grad_output.dim() != self.dim() or not grad_output.numel():
            return "shapes that do not fit"
        return _named_refusal(grad_output, self, indices, tuple(grad_output.shape[-axes:]))

    def backward(grad_output: Any, self: Any, indices: Any) -> Any:
        if _lies_as_volumes(self, axes):
            named, shape = _indices_of_volumes(indices), tuple(as_volumes(self).shape)
            return as_images(adaptive_max_pool_backward(as_volumes(grad_output), named, shape, axes=3))
        gradient = adaptive_max_pool_backward(grad_output, indices, tuple(self.shape), axes=axes)
        return _formed(gradient, self, axes)

    route(f"aten::{name}", refusal, _FLOATS)(forward)
    route(f"aten::{name}_backward", backward_refusal, _FLOATS, group=name)(backward)


def _of_fractional(tensor: Any, kernel: Sequence[int], bins: Sequence[int], axes: int) -> str:
    """Say what is wrong with a fractional pooling of a tensor."""
    if tensor.dim() not in (axes + 1, axes + 2):
        return "shapes that do not fit"
    if not tensor.numel():
        return "an empty tensor"
    if tensor.device.type == "cpu" and not CPU_ALWAYS:
        if tensor.numel() < _FEW:
            return FEW_ELEMENTS
        # PyTorch's kernel for the CPU also places windows in 16 bits, its kernel for CUDA as ours do.
        if tensor.dtype.itemsize == 2:
            return SIXTEEN_BITS
    if not len(kernel) == len(bins) == axes or min(*kernel, *bins) < 1 or prod(kernel) >= 2**31:
        return _REFUSED
    # Volumes PyTorch refuses if there is a window at every place.
    spare = 1 if axes == 3 else 0
    if any(m + k - 1 + spare > n for m, k, n in zip(bins, kernel, tensor.shape[-axes:], strict=True)):
        return _REFUSED
    return of_floats(tensor)


def _enter_fractional(axes: int) -> None:
    name = f"fractional_max_pool{axes}d"
    conditions = "float32, float64, float16, bfloat16; on the CPU 65,536 elements and more, not in 16 bits"

    def refusal(self: Any, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Any) -> str:
        found = _of_fractional(self, kernel_size, output_size, axes) or of_floats(self, random_samples)
        if found:
            return found
        images = self.shape[0] if self.dim() == axes + 2 else 1
        fits = random_samples.dim() == 3 and tuple(random_samples.shape[1:]) == (self.shape[-1 - axes], axes)
        # There may be samples of more images.
        return "" if fits and random_samples.shape[0] >= images else "shapes that do not fit"

    def forward(self: Any, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Any) -> Any:
        samples = random_samples[: self.shape[0] if self.dim() == axes + 2 else 1]
        return fractional_max_pool(self, tuple(kernel_size), tuple(output_size), samples, True)

    def backward_refusal(
        grad_output: Any, self: Any, kernel_size: Sequence[int], output_size: Sequence[int], indices: Any
    ) -> str:
        found = _of_fractional(self, kernel_size, output_size, axes) or of_floats(self, grad_output)
        return found or _named_refusal(grad_output, self, indices, tuple(output_size))

    def backward(
        grad_output: Any, self: Any, kernel_size: Sequence[int], output_size: Sequence[int], indices: Any
    ) -> Any:
        return fractional_max_pool_backward(grad_output, indices, tuple(self.shape), tuple(kernel_size))

    route(f"aten::{name}", refusal, conditions)(forward)
    route(f"aten::{name}_backward", backward_refusal, conditions, group=name)(backward)


def _enter_unpooling(axes: int) -> None:
    name = f"max_unpool{axes}d"

    def refusal(self: Any, indices: Any, output_size: Sequence[int], *sizes: Sequence[int]) -> str:
        if self.dim() not in (axes + 1, axes + 2) or indices.shape != self.shape:
            return "shapes that do not fit"
        if not self.numel():
            return "an empty tensor"
        if indices.dtype != torch.int64:
            return f"indices of dtype {indices.dtype}"
        # Those of three axes are told a stride and a padding, which they look at and leave.
        if not all(len(each) == axes for each in (output_size, *sizes)) or min(output_size) < 1:
            return _REFUSED
        if sizes and min(sizes[0]) < 1:
            return _REFUSED
        return of_floats(self) or ("" if in_range(indices, prod(output_size)) else "an index out of range")

    def forward(self: Any, indices: Any, output_size: Sequence[int], *sizes: Sequence[int]) -> Any:
        if not screen(indices, prod(output_size)):
            note(indices, prod(output_size))
        output = max_unpool(self, indices, tuple(output_size), axes=axes)
        return _formed(output, self, axes) if self.device.type == "cpu" else output

    route(f"aten::{name}", refusal, "float32, float64, float16, bfloat16")(forward)


for _axes in (2, 3):
    _enter_unpooling(_axes)
    _enter_fixed(_axes)
    _enter_adaptive(_axes)
    _enter_fixed_maximum(_axes)
    _enter_adaptive_maximum(_axes)
    _enter_fractional(_axes)
