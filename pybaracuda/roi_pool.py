# SPDX-License-Identifier: Apache-2.0
"""RoIPool: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._boxes import check_boxes, check_images, read_boxes
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._plan import Plan

__all__ = [
    "RoiPoolBackwardDescriptor",
    "RoiPoolBackwardPlan",
    "RoiPoolDescriptor",
    "RoiPoolPlan",
    "roi_pool",
    "roi_pool_backward",
]


@dataclass(frozen=True, slots=True)
class RoiPoolDescriptor(Descriptor):
    """A RoIPool problem.

    Parameters
    ----------
    n, c, h, w : int
        Extents of the input: images, channels, rows, columns; ``h * w`` at most 2**31 - 1.
    num_rois : int
        Boxes.
    pooled_h, pooled_w : int
        Bins along y and x.
    spatial_scale : float
        Input pixels per unit of the boxes; finite, rounded to float32.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input and output. Boxes are f64 for f64, else f32.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    n: int
    c: int
    h: int
    w: int
    num_rois: int
    pooled_h: int
    pooled_w: int
    spatial_scale: float = 1.0
    element: str = "f32"

    operator: ClassVar[str] = "roi_pool"

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        # -0.0 is the same problem as 0.0.
        object.__setattr__(self, "spatial_scale", self.spatial_scale + 0.0)


@dataclass(frozen=True, slots=True)
class RoiPoolBackwardDescriptor(Descriptor):
    """The gradient of RoIPool; the fields are those of :class:`RoiPoolDescriptor` that its argmax does not answer."""

    n: int
    c: int
    h: int
    w: int
    num_rois: int
    pooled_h: int
    pooled_w: int
    element: str = "f32"

    operator: ClassVar[str] = "roi_pool_backward"


class RoiPoolPlan(Plan):
    """Tensors ``input`` [n, c, h, w], ``rois`` [num_rois, 5], ``output`` and ``argmax``.

    The last two are [num_rois, c, pooled_h, pooled_w], ``argmax`` in int32.
    """

    __slots__ = ()
    descriptor_type = RoiPoolDescriptor
    category = "image"
    layout = "nchw"
    sums = False
    moves = True


class RoiPoolBackwardPlan(Plan):
    """Tensors ``grad_output`` [num_rois, c, pooled_h, pooled_w], ``rois``, ``argmax`` and ``grad_input`` [n, c, h, w].

    ``argmax`` is what the forward wrote; of ``rois`` only the batch index is read.
    """

    __slots__ = ()
    descriptor_type = RoiPoolBackwardDescriptor
    category = "image"
    layout = "nchw"


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    input_shape: tuple[int, ...],
    dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    pooled: tuple[int, int],
    spatial_scale: float,
    return_argmax: bool,
) -> Prepared:
    _call.check_rank("input", input_shape, "[N, C, H, W]", 4)
    element = _call.element_of("input", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element)
    n, c, h, w = input_shape
    descriptor = RoiPoolDescriptor(n, c, h, w, boxes_shape[0], *pooled, spatial_scale, element)
    kernel = _call.kernel_for(descriptor, device)
    shape = (boxes_shape[0], c, *pooled)
    outputs = [Output(shape, element, element), Output(shape, "i32", "i32", wanted=return_argmax)]
    return Prepared(kernel, outputs, casts=(None, cast))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    argmax_shape: tuple[int, ...],
    argmax_dtype: str,
    input_shape: tuple[int, ...],
) -> Prepared:
    _call.check_rank("grad_output", grad_shape, "[K, C, pooled_h, pooled_w]", 4)
    element = _call.element_of("grad_output", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element)
    _call.element_of("argmax", argmax_dtype, ("i32",))
    if len(input_shape) != 4:
        raise ValueError(f"input_shape is {input_shape}; wanted (N, C, H, W)")
    n, c, h, w = input_shape
    pooled_h, pooled_w = grad_shape[2:]
    _call.check_shape("grad_output", grad_shape, (boxes_shape[0], c, pooled_h, pooled_w))
    _call.check_shape("argmax", argmax_shape, grad_shape)
    descriptor = RoiPoolBackwardDescriptor(n, c, h, w, boxes_shape[0], pooled_h, pooled_w, element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(input_shape, element, element)], casts=(None, cast, None))


def roi_pool(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    return_argmax: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the maximum over the pixels in every bin of every box, as ``torchvision.ops.roi_pool`` does.

    Parameters
    ----------
    input : array, [N, C, H, W]
        Feature maps in float32, float64, float16 or bfloat16; H * W at most 2**31 - 1.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        Rows (batch index, x1, y1, x2, y2) in pixels times 1 / `spatial_scale`, or one array of rows (x1, y1, x2, y2)
        per image, which are joined by a copy. float64 for float64 input, else float32; narrower floats are widened
        by a copy.
    output_size : int or (int, int)
        Bins along y and x.
    spatial_scale : float
        Input pixels per unit of the boxes. Rounded to float32, for float64 input too.
    return_argmax : bool
        Whether to answer also which pixel each bin holds, which :func:`roi_pool_backward` needs: y * W + x in int32,
        -1 for a bin without pixels.
    out : array, [K, C, *output_size], optional
        Dense array of the input's dtype and device that receives the result; with `return_argmax` a pair of arrays or
        None, the second in int32. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [K, C, *output_size]
        Of the input's kind, dtype and device; `out` if given. With `return_argmax`, that and the pixels. torch tensors
        come back without a gradient function.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that RoIPool never takes.
    ValueError
        If shapes do not fit, arrays are on different devices, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range.

    Notes
    -----
    A box's scaled corners are rounded, halves away from zero; the last pixel belongs to it, and it is at least 1 x 1.
    Bins round outwards, so neighbours may share pixels; a bin without pixels is 0. NaN is larger than every number,
    -0 equals +0, and among equals the first in row-major order wins; the winner's bits are copied. A box whose batch
    index lies outside [0, N), or whose scaled corner or extent is not finite, has no pixels.

    Strided arrays are copied first. Bit-stable: the same inputs give the same bits on every run, thread count, GPU and
    backend. May be called from any number of threads.

    Defined by torchvision 0.26 and Girshick, Fast R-CNN, 2015.
    """
    wants_argmax = _call.flag("return_argmax", return_argmax)
    first = read("input", input, stream)
    rois = read_boxes(boxes, first, stream)
    prepared = prepare(
        first.device,
        first.shape,
        first.dtype,
        rois.shape,
        rois.dtype,
        _call.extent_pair("output_size", output_size),
        _call.number("spatial_scale", spatial_scale),
        wants_argmax,
    )
    check_images(boxes, "input", first.shape)
    if not wants_argmax:
        return prepared.launch((first, rois), (out, None), stream)[0]
    outs = _call.outs_of(out, ("output", "argmax"), "a pair ")
    return tuple(prepared.launch((first, rois), outs, stream))


def roi_pool_backward(
    grad_output: Any,
    boxes: Any | Sequence[Any],
    argmax: Any,
    input_shape: Sequence[int],
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`roi_pool` with respect to its input.

    Parameters
    ----------
    grad_output : array, [K, C, pooled_h, pooled_w]
        Gradient of the bins in float32, float64, float16 or bfloat16.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        The boxes of the forward call, of which only the image matters.
    argmax : array, [K, C, pooled_h, pooled_w]
        The pixels that the forward call answered, int32.
    input_shape : (int, int, int, int)
        Shape (N, C, H, W) of the forward call's input.
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
        As :func:`roi_pool`.

    Notes
    -----
    A bin's gradient goes to the pixel that `argmax` names; values outside [0, H * W) name none. No atomics: a pixel
    owns its sum, boxes ascending in blocks fixed by the shapes, then bins in row-major order, so the bits are the same
    on every run, thread count, GPU and backend. Sums are kept in float32 (float64 for float64). Boxes have no gradient.
    May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    rois = read_boxes(boxes, first, stream)
    pixels = read("argmax", argmax, stream, first)
    shape = _call.whole_tuple("input_shape", input_shape)
    prepared = prepare_backward(
        first.device, first.shape, first.dtype, rois.shape, rois.dtype, pixels.shape, pixels.dtype, shape
    )
    check_images(boxes, "input_shape", shape)
    return prepared.launch((first, rois, pixels), (out,), stream)[0]
