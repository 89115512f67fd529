# SPDX-License-Identifier: Apache-2.0
"""RoIAlign: descriptors, plans and array functions; nothing about another operator."""

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
from ._errors import InvalidProblemError
from ._plan import Plan

__all__ = [
    "RoiAlignBackwardDescriptor",
    "RoiAlignBackwardPlan",
    "RoiAlignBoxesBackwardDescriptor",
    "RoiAlignBoxesBackwardPlan",
    "RoiAlignDescriptor",
    "RoiAlignPlan",
    "roi_align",
    "roi_align_backward",
    "roi_align_boxes_backward",
]


@dataclass(frozen=True, slots=True)
class _RoiAlignProblem(Descriptor):
    """What both directions of RoIAlign are described by."""

    n: int
    c: int
    h: int
    w: int
    num_rois: int
    pooled_h: int
    pooled_w: int
    spatial_scale: float = 1.0
    sampling_ratio: int = 0
    aligned: bool = False
    element: str = "f32"

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        if self.sampling_ratio < 0:
            raise InvalidProblemError(
                f"{self.operator}: sampling_ratio is {self.sampling_ratio}; wanted 0 (adaptive) or more"
            )
        # -0.0 is the same problem as 0.0.
        object.__setattr__(self, "spatial_scale", self.spatial_scale + 0.0)


@dataclass(frozen=True, slots=True)
class RoiAlignDescriptor(_RoiAlignProblem):
    """A RoIAlign problem.

    Parameters
    ----------
    n, c, h, w : int
        Extents of the input: images, channels, rows, columns.
    num_rois : int
        Boxes.
    pooled_h, pooled_w : int
        Bins along y and x.
    spatial_scale : float
        Input pixels per unit of the boxes; finite, rounded to float32.
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive. Negative values are refused.
    aligned : bool
        Whether boxes are shifted by half a pixel.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input and output. Boxes are f64 for f64, else f32.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    InvalidProblemError
        If `sampling_ratio` is negative.
    """

    operator: ClassVar[str] = "roi_align"


@dataclass(frozen=True, slots=True)
class RoiAlignBackwardDescriptor(_RoiAlignProblem):
    """The gradient of RoIAlign; the fields are those of :class:`RoiAlignDescriptor`."""

    operator: ClassVar[str] = "roi_align_backward"


@dataclass(frozen=True, slots=True)
class RoiAlignBoxesBackwardDescriptor(_RoiAlignProblem):
    """The gradient of RoIAlign's boxes; the fields are those of :class:`RoiAlignDescriptor`."""

    operator: ClassVar[str] = "roi_align_boxes_backward"


class RoiAlignPlan(Plan):
    """Tensors ``input`` [n, c, h, w], ``rois`` [num_rois, 5] and ``output`` [num_rois, c, pooled_h, pooled_w]."""

    __slots__ = ()
    descriptor_type = RoiAlignDescriptor
    category = "image"
    layout = "nchw"


class RoiAlignBackwardPlan(Plan):
    """Tensors ``grad_output`` [num_rois, c, pooled_h, pooled_w], ``rois`` and ``grad_input`` [n, c, h, w]."""

    __slots__ = ()
    descriptor_type = RoiAlignBackwardDescriptor
    category = "image"
    layout = "nchw"


class RoiAlignBoxesBackwardPlan(Plan):
    """Tensors ``grad_output``, ``input`` [n, c, h, w], ``rois`` [num_rois, 5] and ``grad_rois`` of the same shape."""

    __slots__ = ()
    descriptor_type = RoiAlignBoxesBackwardDescriptor
    category = "image"
    layout = "nchw"


def sampling_options(spatial_scale: float, sampling_ratio: int, aligned: bool) -> tuple[float, int, bool]:
    """Convert what says how boxes are sampled; every ratio below 1 is adaptive."""
    return (
        _call.number("spatial_scale", spatial_scale),
        max(_call.whole("sampling_ratio", sampling_ratio), 0),
        _call.flag("aligned", aligned),
    )


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    input_shape: tuple[int, ...],
    dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    pooled: tuple[int, int],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Prepared:
    _call.check_rank("input", input_shape, "[N, C, H, W]", 4)
    element = _call.element_of("input", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element)
    n, c, h, w = input_shape
    descriptor = RoiAlignDescriptor(
        n, c, h, w, boxes_shape[0], *pooled, spatial_scale, sampling_ratio, aligned, element
    )
    kernel = _call.kernel_for(descriptor, device)
    output = Output((boxes_shape[0], c, *pooled), element, element)
    return Prepared(kernel, [output], casts=(None, cast))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    input_shape: tuple[int, ...],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Prepared:
    _call.check_rank("grad_output", grad_shape, "[K, C, pooled_h, pooled_w]", 4)
    element = _call.element_of("grad_output", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element)
    if len(input_shape) != 4:
        raise ValueError(f"input_shape is {input_shape}; wanted (N, C, H, W)")
    n, c, h, w = input_shape
    pooled_h, pooled_w = grad_shape[2:]
    _call.check_shape("grad_output", grad_shape, (boxes_shape[0], c, pooled_h, pooled_w))
    descriptor = RoiAlignBackwardDescriptor(
        n, c, h, w, boxes_shape[0], pooled_h, pooled_w, spatial_scale, sampling_ratio, aligned, element
    )
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(input_shape, element, element)], casts=(None, cast))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_boxes_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    input_shape: tuple[int, ...],
    input_dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Prepared:
    _call.check_rank("grad_output", grad_shape, "[K, C, pooled_h, pooled_w]", 4)
    element = _call.element_of("grad_output", dtype)
    _call.check_rank("input", input_shape, "[N, C, H, W]", 4)
    _call.element_of("input", input_dtype, (element,), why=", the dtype of grad_output")
    cast = check_boxes(boxes_shape, boxes_dtype, element)
    n, c, h, w = input_shape
    pooled_h, pooled_w = grad_shape[2:]
    _call.check_shape("grad_output", grad_shape, (boxes_shape[0], c, pooled_h, pooled_w))
    descriptor = RoiAlignBoxesBackwardDescriptor(
        n, c, h, w, boxes_shape[0], pooled_h, pooled_w, spatial_scale, sampling_ratio, aligned, element
    )
    kernel = _call.kernel_for(descriptor, device)
    coordinates = "f64" if element == "f64" else "f32"
    return Prepared(kernel, [Output(boxes_shape, coordinates, coordinates)], casts=(None, None, cast))


def roi_align(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Average bilinear samples in every bin of every box, as ``torchvision.ops.roi_align`` does.

    Parameters
    ----------
    input : array, [N, C, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        Rows (batch index, x1, y1, x2, y2) in pixels times 1 / `spatial_scale`, or one array of rows (x1, y1, x2, y2)
        per image, which are joined by a copy. float64 for float64 input, else float32; narrower floats are widened
        by a copy.
    output_size : int or (int, int)
        Bins along y and x.
    spatial_scale : float
        Input pixels per unit of the boxes. Rounded to float32, for float64 input too.
    sampling_ratio : int
        Samples per bin and axis, at most 2**20; 0 or less is adaptive, ceil(box extent / bins).
    aligned : bool
        Whether boxes are shifted by half a pixel; without it they are at least 1 x 1.
    out : array, [K, C, *output_size], optional
        Dense array of the input's dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [K, C, *output_size]
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that RoIAlign never takes.
    ValueError
        If shapes do not fit, arrays are on different devices, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range.

    Notes
    -----
    A box whose batch index lies outside [0, N), whose scaled corner or extent is not finite, or whose adaptive sample
    count passes 2**20 on an axis gives 0. Strided arrays are copied first. Bit-stable: the same inputs give the same
    bits on every run, thread count, GPU and backend. May be called from any number of threads.

    Defined by torchvision 0.26 and He et al., Mask R-CNN, 2017; sums are kept in float32 (float64 for float64).
    """
    first = read("input", input, stream)
    rois = read_boxes(boxes, first, stream)
    prepared = prepare(
        first.device,
        first.shape,
        first.dtype,
        rois.shape,
        rois.dtype,
        _call.extent_pair("output_size", output_size),
        *sampling_options(spatial_scale, sampling_ratio, aligned),
    )
    check_images(boxes, "input", first.shape)
    return prepared.launch((first, rois), (out,), stream)[0]


def roi_align_backward(
    grad_output: Any,
    boxes: Any | Sequence[Any],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`roi_align` with respect to its input.

    Parameters
    ----------
    grad_output : array, [K, C, pooled_h, pooled_w]
        Gradient of the bins in float32, float64, float16 or bfloat16.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        The boxes of the forward call.
    input_shape : (int, int, int, int)
        Shape (N, C, H, W) of the forward call's input.
    spatial_scale, sampling_ratio, aligned
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
        As :func:`roi_align`.

    Notes
    -----
    No atomics: a pixel owns its sum, boxes ascending in blocks fixed by the shapes, so the bits are the same on every
    run, thread count, GPU and backend. The boxes' gradient is :func:`roi_align_boxes_backward`. May be called from any
    number of threads.
    """
    first = read("grad_output", grad_output, stream)
    rois = read_boxes(boxes, first, stream)
    shape = _call.whole_tuple("input_shape", input_shape)
    prepared = prepare_backward(
        first.device,
        first.shape,
        first.dtype,
        rois.shape,
        rois.dtype,
        shape,
        *sampling_options(spatial_scale, sampling_ratio, aligned),
    )
    check_images(boxes, "input_shape", shape)
    return prepared.launch((first, rois), (out,), stream)[0]


def roi_align_boxes_backward(
    grad_output: Any,
    input: Any,
    boxes: Any | Sequence[Any],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`roi_align` with respect to its boxes.

    Parameters
    ----------
    grad_output : array, [K, C, pooled_h, pooled_w]
        Gradient of the bins in float32, float64, float16 or bfloat16.
    input : array, [N, C, H, W]
        The feature maps of the forward call, in the same dtype.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        The boxes of the forward call.
    spatial_scale, sampling_ratio, aligned
        As in the forward call.
    out : array, [K, 5], optional
        Dense array of the boxes' dtype, float64 for float64 gradients, else float32. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [K, 5]
        Rows (0, x1, y1, x2, y2) of the gradient's kind and device, float64 for float64 gradients, else float32.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`roi_align`.

    Notes
    -----
    Where a sample lies at a pixel, its derivative is that to the right; a sample beyond the centre of the first or the
    last pixel does not move along that axis, and an adaptive number of samples does not change. A box that contributes
    nothing has the gradient 0.

    A box owns its sums, whose order is fixed by the problem: the same bits on every run, thread count, GPU and backend.
    The time grows with the samples. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    maps = read("input", input, stream, first)
    rois = read_boxes(boxes, first, stream)
    prepared = prepare_boxes_backward(
        first.device,
        first.shape,
        first.dtype,
        maps.shape,
        maps.dtype,
        rois.shape,
        rois.dtype,
        *sampling_options(spatial_scale, sampling_ratio, aligned),
    )
    check_images(boxes, "input", maps.shape)
    return prepared.launch((first, maps, rois), (out,), stream)[0]
