# SPDX-License-Identifier: Apache-2.0
"""The sampling of deformable convolution: descriptors, plans and array functions; the products are the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from . import _call
from ._arrays import Operand, read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._dtypes import FLOATS
from ._errors import InvalidProblemError, shown
from ._plan import Plan
from ._windows import Windows

__all__ = [
    "DeformIm2colBackwardDescriptor",
    "DeformIm2colBackwardPlan",
    "DeformIm2colDescriptor",
    "DeformIm2colOffsetBackwardDescriptor",
    "DeformIm2colOffsetBackwardPlan",
    "DeformIm2colPlan",
    "deform_im2col",
    "deform_im2col_backward",
    "deform_im2col_offset_backward",
]


@dataclass(frozen=True, slots=True)
class DeformIm2colDescriptor(Descriptor):
    """A sampling problem of deformable convolution.

    Parameters
    ----------
    n, offset_groups, c, h, w : int
        Images, groups of channels that share offsets, channels of each such group, rows and columns.
    output_h, output_w : int
        Positions of the kernel along y and x; any number.
    kernel_h, kernel_w : int
        Taps of the kernel, at least 1.
    stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w : int
        As convolutions have them.
    has_mask : int
        1 if every sample is multiplied by a number of its own, else 0.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input and columns. Offsets and mask are f64 for f64, else f32.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    n: int
    offset_groups: int
    c: int
    h: int
    w: int
    output_h: int
    output_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int = 1
    stride_w: int = 1
    padding_h: int = 0
    padding_w: int = 0
    dilation_h: int = 1
    dilation_w: int = 1
    has_mask: int = 0
    element: str = "f32"

    operator: ClassVar[str] = "deform_im2col"

    @property
    def absent_tensors(self) -> frozenset[str]:
        """The mask, if there is none."""
        return frozenset() if self.has_mask else frozenset({"mask"})


@dataclass(frozen=True, slots=True)
class DeformIm2colBackwardDescriptor(DeformIm2colDescriptor):
    """The gradient by input; the fields are those of :class:`DeformIm2colDescriptor`."""

    operator: ClassVar[str] = "deform_im2col_backward"


@dataclass(frozen=True, slots=True)
class DeformIm2colOffsetBackwardDescriptor(DeformIm2colDescriptor):
    """The gradients by offset and mask; the fields are those of :class:`DeformIm2colDescriptor`."""

    operator: ClassVar[str] = "deform_im2col_offset_backward"

    @property
    def absent_tensors(self) -> frozenset[str]:
        """The mask and its gradient, if there is none."""
        return frozenset() if self.has_mask else frozenset({"mask", "grad_mask"})


class DeformIm2colPlan(Plan):
    """Tensors ``input`` [n, offset_groups, c, h, w], ``offset`` [n, offset_groups, kernel_h kernel_w, 2, output_h,
    output_w], ``mask``, with a mask, [n, 1, offset_groups, kernel_h kernel_w, output_h, output_w], and ``columns`` [n,
    offset_groups, c, kernel_h kernel_w, output_h, output_w].
    """

    __slots__ = ()
    descriptor_type = DeformIm2colDescriptor
    category = "image"
    layout = "nchw"


class DeformIm2colBackwardPlan(Plan):
    """Tensors ``grad_columns``, ``offset``, with a mask ``mask``, and ``grad_input``."""

    __slots__ = ()
    descriptor_type = DeformIm2colBackwardDescriptor
    category = "image"
    layout = "nchw"


class DeformIm2colOffsetBackwardPlan(Plan):
    """Tensors ``grad_columns``, ``input``, ``offset``, ``grad_offset``, and with a mask ``mask`` and ``grad_mask``."""

    __slots__ = ()
    descriptor_type = DeformIm2colOffsetBackwardDescriptor
    category = "image"
    layout = "nchw"


# An operand as far as it is checked before a call: shape and dtype, or None where there is no such operand.
_Given = tuple[tuple[int, ...], str] | None


class _Operands(NamedTuple):
    """What offsets and mask say of a problem."""

    fields: dict[str, Any]  # a descriptor's
    casts: tuple[str | None, ...]  # of the offsets, and of the mask if there is one
    columns: tuple[int, int, int]


def _check(
    name: str, shape: tuple[int, ...], element: str, windows: Windows, offset: tuple[tuple[int, ...], str], mask: _Given
) -> _Operands:
    """Check offsets and mask beside an input of this shape; `name` is what texts call it."""
    n, channels, h, w = shape
    output = windows.bins(shape)
    if min(output) < 1:
        raise InvalidProblemError(
            f"{name} has {shown(h)} x {shown(w)} pixels, on which the kernel has {output[0]} x {output[1]} positions; "
            "wanted at least 1"
        )
    taps = windows.kernel[0] * windows.kernel[1]
    text = f"[N, 2 * groups * {shown(windows.kernel[0])} * {shown(windows.kernel[1])}, {output[0]}, {output[1]}]"
    if len(offset[0]) != 4 or offset[0][0] != n or offset[0][1] % (2 * taps) or offset[0][2:] != output:
        raise ValueError(f"offset has shape {offset[0]}; wanted {text} with N = {shown(n)}")
    groups = offset[0][1] // (2 * taps)
    if groups < 1 or channels % groups:
        raise ValueError(f"offset has {groups} groups; {name} has {shown(channels)} channels, which they do not divide")
    wide = "f64" if element == "f64" else "f32"
    _call.element_of("offset", offset[1], FLOATS)
    casts = [_call.wider("offset", offset[1], wide)]
    if mask is not None:
        _call.check_shape("mask", mask[0], (n, groups * taps, *output))
        _call.element_of("mask", mask[1], FLOATS)
        casts.append(_call.wider("mask", mask[1], wide))
    fields = {
        "n": n, "offset_groups": groups, "c": channels // groups, "h": h, "w": w,
        "output_h": output[0], "output_w": output[1],
        "kernel_h": windows.kernel[0], "kernel_w": windows.kernel[1],
        "stride_h": windows.stride[0], "stride_w": windows.stride[1],
        "padding_h": windows.padding[0], "padding_w": windows.padding[1],
        "dilation_h": windows.dilation[0], "dilation_w": windows.dilation[1],
        "has_mask": int(mask is not None), "element": element,
    }  # fmt: skip
    return _Operands(fields, tuple(casts), (n, channels * taps, output[0] * output[1]))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    input_shape: tuple[int, ...],
    dtype: str,
    windows: Windows,
    offset: tuple[tuple[int, ...], str],
    mask: _Given,
) -> Prepared:
    _call.check_rank("input", input_shape, "[N, C, H, W]", 4)
    element = _call.element_of("input", dtype)
    found = _check("input", input_shape, element, windows, offset, mask)
    kernel = _call.kernel_for(DeformIm2colDescriptor(**found.fields), device)
    return Prepared(kernel, [Output(found.columns, element, element)], casts=(None, *found.casts))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    input_shape: tuple[int, ...],
    windows: Windows,
    offset: tuple[tuple[int, ...], str],
    mask: _Given,
) -> Prepared:
    element = _call.element_of("grad_columns", dtype)
    if len(input_shape) != 4:
        raise ValueError(f"input_shape is {input_shape}; wanted (N, C, H, W)")
    found = _check("input_shape", input_shape, element, windows, offset, mask)
    _call.check_shape("grad_columns", grad_shape, found.columns)
    kernel = _call.kernel_for(DeformIm2colBackwardDescriptor(**found.fields), device)
    return Prepared(kernel, [Output(input_shape, element, element)], casts=(None, *found.casts))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_offset_backward(
    device: int,
    grad_shape: tuple[int, ...],
    grad_dtype: str,
    input_shape: tuple[int, ...],
    dtype: str,
    windows: Windows,
    offset: tuple[tuple[int, ...], str],
    mask: _Given,
) -> Prepared:
    _call.check_rank("input", input_shape, "[N, C, H, W]", 4)
    element = _call.element_of("input", dtype)
    _call.element_of("grad_columns", grad_dtype, (element,), why=", the dtype of input")
    found = _check("input", input_shape, element, windows, offset, mask)
    _call.check_shape("grad_columns", grad_shape, found.columns)
    kernel = _call.kernel_for(DeformIm2colOffsetBackwardDescriptor(**found.fields), device)
    given = [each for each in (offset, mask) if each is not None]
    outputs = [Output(shape, cast or own, own) for (shape, own), cast in zip(given, found.casts, strict=True)]
    return Prepared(kernel, outputs, casts=(None, None, *found.casts))


def windows_of_kernel(kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Windows:
    """Convert the kernel's numbers."""
    pair = _call.extent_pair
    return Windows(
        pair("kernel_size", kernel_size),
        pair("stride", stride),
        pair("padding", padding),
        pair("dilation", dilation),
        False,
    )


def _moves(offset: Any, mask: Any, first: Operand, stream: Any) -> tuple[tuple[Operand, ...], tuple[_Given, _Given]]:
    """Read the offsets and the mask, if there is one; answer them, and what is checked of them."""
    moved = read("offset", offset, stream, first)
    if mask is None:
        return (moved,), ((moved.shape, moved.dtype), None)
    masks = read("mask", mask, stream, first)
    return (moved, masks), ((moved.shape, moved.dtype), (masks.shape, masks.dtype))


def deform_im2col(
    input: Any,
    offset: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    mask: Any = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Sample the columns of a deformable convolution, as ``torchvision.ops.deform_conv2d`` does inside.

    ``weight.reshape(OC, -1) @ columns`` is then the convolution, [N, OC, OH * OW].

    Parameters
    ----------
    input : array, [N, C, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    offset : array, [N, 2 * G * KH * KW, OH, OW]
        Where each sample lies from its tap, in pixels, y before x, for each of G groups of channels. float64 for
        float64 input, else float32; narrower floats are widened by a copy.
    kernel_size : int or (int, int)
        Taps KH and KW of the kernel.
    stride, padding, dilation : int or (int, int)
        As convolutions have them.
    mask : array, [N, G * KH * KW, OH, OW], optional
        A number by which each sample is multiplied (Deformable ConvNets v2); floats as for `offset`.
    out : array, [N, C * KH * KW, OH * OW], optional
        Dense array of the input's dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [N, C * KH * KW, OH * OW]
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

    Raises
    ------
    TypeError
        If an argument is no array or has another dtype.
    ValueError
        If shapes do not fit, arrays are on different devices, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range, or the kernel has no position on the image.

    Notes
    -----
    A sample outside of the image is 0, and so is one whose offset is NaN or infinite, whatever its mask. A corner whose
    weight times the mask is 0 does not exist, so that 0 times infinity cannot leak.

    Strided arrays are copied first. Bit-stable: the same inputs give the same bits on every run, thread count, GPU and
    backend. May be called from any number of threads.
    """
    first = read("input", input, stream)
    operands, (offsets, masks) = _moves(offset, mask, first, stream)
    windows = windows_of_kernel(kernel_size, stride, padding, dilation)
    prepared = prepare(first.device, first.shape, first.dtype, windows, offsets, masks)
    return prepared.launch((first, *operands), (out,), stream)[0]


def deform_im2col_backward(
    grad_columns: Any,
    offset: Any,
    input_shape: Sequence[int],
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    mask: Any = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`deform_im2col` with respect to its input.

    Parameters
    ----------
    grad_columns : array, [N, C * KH * KW, OH * OW]
        Gradient of the columns in float32, float64, float16 or bfloat16.
    offset : array, [N, 2 * G * KH * KW, OH, OW]
        As in the forward call.
    input_shape : (int, int, int, int)
        Shape (N, C, H, W) of the forward call's input.
    kernel_size, stride, padding, dilation, mask
        As in the forward call.
    out : array, [N, C, H, W], optional
        Dense array of the gradient's dtype and device; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [N, C, H, W]
        Of the gradient's kind, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`deform_im2col`.

    Notes
    -----
    No atomics: a pixel owns its sum, samples ascending tap by tap, so the bits are the same on every run, thread count,
    GPU and backend. May be called from any number of threads.
    """
    first = read("grad_columns", grad_columns, stream)
    operands, (offsets, masks) = _moves(offset, mask, first, stream)
    windows = windows_of_kernel(kernel_size, stride, padding, dilation)
    shape = _call.whole_tuple("input_shape", input_shape)
    prepared = prepare_backward(first.device, first.shape, first.dtype, shape, windows, offsets, masks)
    return prepared.launch((first, *operands), (out,), stream)[0]


def deform_im2col_offset_backward(
    grad_columns: Any,
    input: Any,
    offset: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    mask: Any = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradients of :func:`deform_im2col` with respect to its offsets and its mask.

    Parameters
    ----------
    grad_columns : array, [N, C * KH * KW, OH * OW]
        Gradient of the columns, of the input's dtype.
    input, offset, kernel_size, stride, padding, dilation, mask
        As in the forward call.
    out : array, or with a mask a pair of arrays, optional
        Dense arrays of the shapes and dtypes of `offset` and `mask`; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, or with a mask (array, array)
        The gradient by offset, and with a mask that by mask, of their shapes and dtypes.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`deform_im2col`.

    Notes
    -----
    Each is one sum over the group's channels, ascending, in partial sums of 64: the same bits on every run, thread
    count, GPU and backend. Where a sample lies on a pixel's row or column, the derivative is that to its right. Samples
    outside of the image have none, and a mask of 0 makes that by offset 0. May be called from any number of threads.
    """
    first = read("grad_columns", grad_columns, stream)
    images = read("input", input, stream, first)
    operands, (offsets, masks) = _moves(offset, mask, first, stream)
    windows = windows_of_kernel(kernel_size, stride, padding, dilation)
    prepared = prepare_offset_backward(
        first.device, first.shape, first.dtype, images.shape, images.dtype, windows, offsets, masks
    )
    if mask is None:
        return prepared.launch((first, images, *operands), (out,), stream)[0]
    outs = _call.outs_of(out, ("grad_offset", "grad_mask"), "a pair ")
    grad_offset, grad_mask = prepared.launch((first, images, *operands), outs, stream)
    return grad_offset, grad_mask
