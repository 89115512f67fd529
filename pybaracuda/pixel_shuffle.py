# SPDX-License-Identifier: Apache-2.0
"""pixel_shuffle and pixel_unshuffle: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._plan import Plan

__all__ = [
    "PixelShuffleDescriptor",
    "PixelShufflePlan",
    "PixelUnshuffleDescriptor",
    "PixelUnshufflePlan",
    "pixel_shuffle",
    "pixel_unshuffle",
]


@dataclass(frozen=True, slots=True)
class PixelShuffleDescriptor(Descriptor):
    """A pixel_shuffle problem: input [n, c upscale_factor^2, h, w], output [n, c, h upscale_factor, w upscale_factor].

    Parameters
    ----------
    n : int
        Images.
    c : int
        Channels of the output.
    h, w : int
        Rows and columns of the input.
    upscale_factor : int
        Positive.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype.
    """

    n: int
    c: int
    h: int
    w: int
    upscale_factor: int
    element: str = "f32"
    operator: ClassVar[str] = "pixel_shuffle"


@dataclass(frozen=True, slots=True)
class PixelUnshuffleDescriptor(Descriptor):
    """A pixel_unshuffle problem: the inverse of that of a :class:`PixelShuffleDescriptor` with the same numbers.

    Parameters
    ----------
    n : int
        Images.
    c : int
        Channels of the input.
    h, w : int
        Rows and columns of the output.
    downscale_factor : int
        Positive.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype.
    """

    n: int
    c: int
    h: int
    w: int
    downscale_factor: int
    element: str = "f32"
    operator: ClassVar[str] = "pixel_unshuffle"


class PixelShufflePlan(Plan):
    """Tensors ``input`` [n, c upscale_factor^2, h, w] and ``output`` [n, c, h upscale_factor, w upscale_factor]."""

    __slots__ = ()
    descriptor_type = PixelShuffleDescriptor
    category = "image"
    moves = True
    sums = False


class PixelUnshufflePlan(Plan):
    """Tensors ``input`` [n, c, h downscale_factor, w downscale_factor], ``output`` [n, c downscale_factor^2, h, w]."""

    __slots__ = ()
    descriptor_type = PixelUnshuffleDescriptor
    category = "image"
    moves = True
    sums = False


def _check(shape: tuple[int, ...], name: str, factor: int) -> None:
    if len(shape) < 3:
        raise ValueError(f"input has shape {shape}; wanted at least (C, H, W)")
    if factor < 1:
        raise ValueError(f"{name} is {factor}; wanted at least 1")


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(device: int, shape: tuple[int, ...], dtype: str, upscale_factor: int) -> Prepared:
    element = _call.element_of("input", dtype)
    _check(shape, "upscale_factor", upscale_factor)
    *batch, channels, h, w = shape
    c, left = divmod(channels, upscale_factor**2)
    if left:
        raise ValueError(f"input has {channels} channels; wanted a multiple of upscale_factor^2, {upscale_factor**2}")
    kernel = _call.kernel_for(PixelShuffleDescriptor(prod(batch), c, h, w, upscale_factor, element), device)
    return Prepared(kernel, [Output((*batch, c, h * upscale_factor, w * upscale_factor), element, element)])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_unshuffle(device: int, shape: tuple[int, ...], dtype: str, downscale_factor: int) -> Prepared:
    element = _call.element_of("input", dtype)
    _check(shape, "downscale_factor", downscale_factor)
    *batch, c, wide_h, wide_w = shape
    (h, left_h), (w, left_w) = divmod(wide_h, downscale_factor), divmod(wide_w, downscale_factor)
    if left_h or left_w:
        raise ValueError(
            f"input has {wide_h} x {wide_w} pixels; wanted multiples of downscale_factor {downscale_factor}"
        )
    kernel = _call.kernel_for(PixelUnshuffleDescriptor(prod(batch), c, h, w, downscale_factor, element), device)
    return Prepared(kernel, [Output((*batch, c * downscale_factor**2, h, w), element, element)])


def pixel_shuffle(input: Any, upscale_factor: int, *, out: Any = None, stream: Any = None) -> Any:
    """Turn channels into pixels, as ``torch.nn.functional.pixel_shuffle`` does.

    Parameters
    ----------
    input : array, [..., C * upscale_factor**2, H, W]
        Images in float32, float64, float16 or bfloat16, any number of axes before the channels.
    upscale_factor : int
        How many times as high and as wide the result is; positive.
    out : array, [..., C, H * upscale_factor, W * upscale_factor], optional
        Dense array of the input's dtype and device. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [..., C, H * upscale_factor, W * upscale_factor]
        With f = upscale_factor, element [c, h f + i, w f + j] is input[(c f + i) f + j, h, w]; of the input's kind.

    Raises
    ------
    TypeError, ValueError
        If the input has another dtype, fewer axes or another number of channels, or `out` cannot be written.
    InvalidProblemError
        If one of the extents passes 2**31 - 1.

    Notes
    -----
    The gradient is :func:`pixel_unshuffle` of the result's. Bits are moved, NaN payloads and signs of zeros too.
    Strided arrays are copied first. May be called from any number of threads.

    Defined by torch 2.11; Shi et al., Real-Time Single Image and Video Super-Resolution, 2016.
    """
    images = read("input", input, stream)
    factor = _call.whole("upscale_factor", upscale_factor)
    return prepare(images.device, images.shape, images.dtype, factor).launch((images,), (out,), stream)[0]


def pixel_unshuffle(input: Any, downscale_factor: int, *, out: Any = None, stream: Any = None) -> Any:
    """Turn pixels into channels, as ``torch.nn.functional.pixel_unshuffle`` does: undo :func:`pixel_shuffle`.

    Parameters
    ----------
    input : array, [..., C, H * downscale_factor, W * downscale_factor]
        Images in float32, float64, float16 or bfloat16, any number of axes before the channels.
    downscale_factor : int
        How many times as high and as wide the input is as the result; positive.
    out : array, [..., C * downscale_factor**2, H, W], optional
        Dense array of the input's dtype and device. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [..., C * downscale_factor**2, H, W]
        With f = downscale_factor, element [(c f + i) f + j, h, w] is input[c, h f + i, w f + j]; of the input's kind.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`pixel_shuffle`.

    Notes
    -----
    The gradient is :func:`pixel_shuffle` of the result's. Bits are moved, NaN payloads and signs of zeros too. Strided
    arrays are copied first. May be called from any number of threads.
    """
    images = read("input", input, stream)
    factor = _call.whole("downscale_factor", downscale_factor)
    return prepare_unshuffle(images.device, images.shape, images.dtype, factor).launch((images,), (out,), stream)[0]
