# SPDX-License-Identifier: Apache-2.0
"""Position-sensitive pooling: descriptors, plans and array functions; nothing about another operator."""

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
from ._errors import InvalidProblemError, shown
from ._plan import Plan
from .roi_align import sampling_options

__all__ = [
    "PsRoiAlignBackwardDescriptor",
    "PsRoiAlignBackwardPlan",
    "PsRoiAlignDescriptor",
    "PsRoiAlignPlan",
    "PsRoiPoolBackwardDescriptor",
    "PsRoiPoolBackwardPlan",
    "PsRoiPoolDescriptor",
    "PsRoiPoolPlan",
    "ps_roi_align",
    "ps_roi_align_backward",
    "ps_roi_pool",
    "ps_roi_pool_backward",
]


@dataclass(frozen=True, slots=True)
class PsRoiPoolDescriptor(Descriptor):
    """A problem of position-sensitive pooling by averages.

    Parameters
    ----------
    n, c, h, w : int
        Images, channels of the output, rows and columns; the input has ``c * pooled_h * pooled_w`` channels.
    num_rois : int
        Boxes.
    pooled_h, pooled_w : int
        Bins along y and x, at least 1.
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

    operator: ClassVar[str] = "ps_roi_pool"

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        # -0.0 is the same problem as 0.0.
        object.__setattr__(self, "spatial_scale", self.spatial_scale + 0.0)


@dataclass(frozen=True, slots=True)
class PsRoiPoolBackwardDescriptor(PsRoiPoolDescriptor):
    """The gradient; the fields are those of :class:`PsRoiPoolDescriptor`."""

    operator: ClassVar[str] = "ps_roi_pool_backward"


@dataclass(frozen=True, slots=True)
class PsRoiAlignDescriptor(PsRoiPoolDescriptor):
    """A problem of position-sensitive pooling by samples: the fields of :class:`PsRoiPoolDescriptor`, and

    Parameters
    ----------
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive. Negative values are refused.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    InvalidProblemError
        If `sampling_ratio` is negative.
    """

    sampling_ratio: int = 0

    operator: ClassVar[str] = "ps_roi_align"

    def __post_init__(self) -> None:
        PsRoiPoolDescriptor.__post_init__(self)
        if self.sampling_ratio < 0:
            raise InvalidProblemError(
                f"{self.operator}: sampling_ratio is {self.sampling_ratio}; wanted 0 (adaptive) or more"
            )


@dataclass(frozen=True, slots=True)
class PsRoiAlignBackwardDescriptor(PsRoiAlignDescriptor):
    """The gradient; the fields are those of :class:`PsRoiAlignDescriptor`."""

    operator: ClassVar[str] = "ps_roi_align_backward"


class PsRoiAlignPlan(Plan):
    """Tensors ``input`` [n, c, pooled_h, pooled_w, h, w], ``rois`` [num_rois, 5] and ``output``."""

    __slots__ = ()
    descriptor_type = PsRoiAlignDescriptor
    category = "image"
    layout = "nchw"


class PsRoiAlignBackwardPlan(Plan):
    """Tensors ``grad_output`` [num_rois, c, pooled_h, pooled_w], ``rois`` and ``grad_input``."""

    __slots__ = ()
    descriptor_type = PsRoiAlignBackwardDescriptor
    category = "image"
    layout = "nchw"


class PsRoiPoolPlan(Plan):
    """Tensors ``input`` [n, c, pooled_h, pooled_w, h, w], ``rois`` [num_rois, 5] and ``output``."""

    __slots__ = ()
    descriptor_type = PsRoiPoolDescriptor
    category = "image"
    layout = "nchw"


class PsRoiPoolBackwardPlan(Plan):
    """Tensors ``grad_output`` [num_rois, c, pooled_h, pooled_w], ``rois`` and ``grad_input``."""

    __slots__ = ()
    descriptor_type = PsRoiPoolBackwardDescriptor
    category = "image"
    layout = "nchw"


# A sampling ratio, or None for averages; the extents that a descriptor begins with.
_Ratio = int | None
_Sizes = tuple[int, int, int, int, int, int, int]


def _kernel(backward: bool, device: int, sizes: _Sizes, scale: float, ratio: _Ratio, element: str) -> Any:
    """Answer the kernel of a problem."""
    if ratio is None:
        averages = PsRoiPoolBackwardDescriptor if backward else PsRoiPoolDescriptor
        return _call.kernel_for(averages(*sizes, spatial_scale=scale, element=element), device)
    samples = PsRoiAlignBackwardDescriptor if backward else PsRoiAlignDescriptor
    descriptor = samples(*sizes, spatial_scale=scale, element=element, sampling_ratio=ratio)
    return _call.kernel_for(descriptor, device)


def _channels(name: str, channels: int, bins: tuple[int, int]) -> int:
    """Answer the channels of the output, of which each has a map for each bin."""
    if min(bins) < 1:
        raise InvalidProblemError(f"output_size is {shown(bins)}; wanted at least 1 bin on each axis")
    if channels % (bins[0] * bins[1]):
        raise ValueError(
            f"{name} has {channels} channels; wanted a multiple of {shown(bins[0])} x {shown(bins[1])} bins"
        )
    return channels // (bins[0] * bins[1])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    input_shape: tuple[int, ...],
    dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    pooled: tuple[int, int],
    spatial_scale: float,
    sampling_ratio: _Ratio,
) -> Prepared:
    _call.check_rank("input", input_shape, "[N, C, H, W]", 4)
    element = _call.element_of("input", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element)
    n, channels, h, w = input_shape
    c = _channels("input", channels, pooled)
    kernel = _kernel(False, device, (n, c, h, w, boxes_shape[0], *pooled), spatial_scale, sampling_ratio, element)
    return Prepared(kernel, [Output((boxes_shape[0], c, *pooled), element, element)], casts=(None, cast))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    input_shape: tuple[int, ...],
    spatial_scale: float,
    sampling_ratio: _Ratio,
) -> Prepared:
    _call.check_rank("grad_output", grad_shape, "[K, C, pooled_h, pooled_w]", 4)
    element = _call.element_of("grad_output", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element)
    if len(input_shape) != 4:
        raise ValueError(f"input_shape is {input_shape}; wanted (N, C, H, W)")
    n, channels, h, w = input_shape
    pooled = (grad_shape[2], grad_shape[3])
    c = _channels("input_shape", channels, pooled)
    _call.check_shape("grad_output", grad_shape, (boxes_shape[0], c, *pooled))
    kernel = _kernel(True, device, (n, c, h, w, boxes_shape[0], *pooled), spatial_scale, sampling_ratio, element)
    return Prepared(kernel, [Output(input_shape, element, element)], casts=(None, cast))


def _forward(
    input: Any, boxes: Any, output_size: Any, spatial_scale: Any, sampling_ratio: Any, out: Any, stream: Any
) -> Any:
    first = read("input", input, stream)
    rois = read_boxes(boxes, first, stream)
    scale, ratio, _ = sampling_options(spatial_scale, 1 if sampling_ratio is None else sampling_ratio, True)
    prepared = prepare(
        first.device,
        first.shape,
        first.dtype,
        rois.shape,
        rois.dtype,
        _call.extent_pair("output_size", output_size),
        scale,
        None if sampling_ratio is None else ratio,
    )
    check_images(boxes, "input", first.shape)
    return prepared.launch((first, rois), (out,), stream)[0]


def _backward(
    grad_output: Any, boxes: Any, input_shape: Any, spatial_scale: Any, sampling_ratio: Any, out: Any, stream: Any
) -> Any:
    first = read("grad_output", grad_output, stream)
    rois = read_boxes(boxes, first, stream)
    shape = _call.whole_tuple("input_shape", input_shape)
    scale, ratio, _ = sampling_options(spatial_scale, 1 if sampling_ratio is None else sampling_ratio, True)
    prepared = prepare_backward(
        first.device,
        first.shape,
        first.dtype,
        rois.shape,
        rois.dtype,
        shape,
        scale,
        None if sampling_ratio is None else ratio,
    )
    check_images(boxes, "input_shape", shape)
    return prepared.launch((first, rois), (out,), stream)[0]


def ps_roi_align(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Average bilinear samples in every bin of every box, each bin from a map of its own, as torchvision does.

    Parameters
    ----------
    input : array, [N, C * PH * PW, H, W]
        Feature maps in float32, float64, float16 or bfloat16, PH x PW of them for each channel of the output.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        As :func:`roi_align` takes them.
    output_size : int or (int, int)
        Bins PH and PW along y and x, at least 1.
    spatial_scale : float
        Input pixels per unit of the boxes. Rounded to float32, for float64 input too.
    sampling_ratio : int
        Samples per bin and axis, at most 2**20; 0 or less is adaptive, ceil(box extent / bins).
    out : array, [K, C, PH, PW], optional
        Dense array of the input's dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [K, C, PH, PW]
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

    Raises
    ------
    TypeError
        If an argument is no array or has another dtype.
    ValueError
        If shapes do not fit, arrays are on different devices, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range.

    Notes
    -----
    Bin (ph, pw) of channel c has the bits of :func:`roi_align` with ``aligned=True`` there, on map (c * PH + ph) * PW +
    pw; what is said there of bad boxes holds here.

    Strided arrays are copied first. Bit-stable: the same inputs give the same bits on every run, thread count, GPU and
    backend. May be called from any number of threads.
    """
    return _forward(
        input, boxes, output_size, spatial_scale, _call.whole("sampling_ratio", sampling_ratio), out, stream
    )


def ps_roi_align_backward(
    grad_output: Any,
    boxes: Any | Sequence[Any],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`ps_roi_align` with respect to its input.

    Parameters
    ----------
    grad_output : array, [K, C, PH, PW]
        Gradient of the bins in float32, float64, float16 or bfloat16.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        The boxes of the forward call.
    input_shape : (int, int, int, int)
        Shape (N, C * PH * PW, H, W) of the forward call's input.
    spatial_scale, sampling_ratio
        As in the forward call.
    out : array, [N, C * PH * PW, H, W], optional
        Dense array of the gradient's dtype and device; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [N, C * PH * PW, H, W]
        Of the gradient's kind, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`ps_roi_align`.

    Notes
    -----
    No atomics: a pixel owns its sum, boxes ascending, so the bits are the same on every run, thread count, GPU and
    backend. Boxes have no gradient. May be called from any number of threads.
    """
    return _backward(
        grad_output, boxes, input_shape, spatial_scale, _call.whole("sampling_ratio", sampling_ratio), out, stream
    )


def ps_roi_pool(
    input: Any,
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Average the pixels in every bin of every box, each bin from a map of its own, as ``torchvision`` does.

    Parameters
    ----------
    input : array, [N, C * PH * PW, H, W]
        Feature maps in float32, float64, float16 or bfloat16, PH x PW of them for each channel of the output.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        As :func:`roi_align` takes them.
    output_size : int or (int, int)
        Bins PH and PW along y and x, at least 1.
    spatial_scale : float
        Input pixels per unit of the boxes. Rounded to float32, for float64 input too.
    out : array, [K, C, PH, PW], optional
        Dense array of the input's dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [K, C, PH, PW]
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

    Raises
    ------
    TypeError
        If an argument is no array or has another dtype.
    ValueError
        If shapes do not fit, arrays are on different devices, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range.

    Notes
    -----
    Bins end before the last row and column, as torchvision's do. A box whose batch index lies outside [0, N), or whose
    scaled corner or extent is not finite, gives 0, and so does a bin without pixels.

    Strided arrays are copied first. Bit-stable: the same inputs give the same bits on every run, thread count, GPU and
    backend. May be called from any number of threads.
    """
    return _forward(input, boxes, output_size, spatial_scale, None, out, stream)


def ps_roi_pool_backward(
    grad_output: Any,
    boxes: Any | Sequence[Any],
    input_shape: Sequence[int],
    spatial_scale: float = 1.0,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`ps_roi_pool` with respect to its input.

    Parameters
    ----------
    grad_output : array, [K, C, PH, PW]
        Gradient of the bins in float32, float64, float16 or bfloat16.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        The boxes of the forward call.
    input_shape : (int, int, int, int)
        Shape (N, C * PH * PW, H, W) of the forward call's input.
    spatial_scale
        As in the forward call.
    out : array, [N, C * PH * PW, H, W], optional
        Dense array of the gradient's dtype and device; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [N, C * PH * PW, H, W]
        Of the gradient's kind, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`ps_roi_pool`.

    Notes
    -----
    No atomics: a pixel owns its sum, boxes ascending, so the bits are the same on every run, thread count, GPU and
    backend. Boxes have no gradient. It is that of the forward; torchvision's has
    bins that reach the last row and column, where its forward has none. May be called from any number of threads.
    """
    return _backward(grad_output, boxes, input_shape, spatial_scale, None, out, stream)
