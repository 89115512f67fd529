# SPDX-License-Identifier: Apache-2.0
"""RoIAlign of volumes: descriptors, plans and array functions; nothing about another operator."""

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
from .roi_align import sampling_options

__all__ = [
    "RoiAlign3dBackwardDescriptor",
    "RoiAlign3dBackwardPlan",
    "RoiAlign3dDescriptor",
    "RoiAlign3dPlan",
    "roi_align_3d",
    "roi_align_3d_backward",
]


# Of a box, beside its volume: x1, y1, z1, x2, y2, z2.
_CORNERS = 6


@dataclass(frozen=True, slots=True)
class _RoiAlign3dProblem(Descriptor):
    """What both directions of RoIAlign of volumes are described by."""

    n: int
    c: int
    d: int
    h: int
    w: int
    num_rois: int
    pooled_d: int
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
class RoiAlign3dDescriptor(_RoiAlign3dProblem):
    """A problem of RoIAlign of volumes.

    Parameters
    ----------
    n, c, d, h, w : int
        Extents of the input: volumes, channels, planes, rows, columns.
    num_rois : int
        Boxes.
    pooled_d, pooled_h, pooled_w : int
        Bins along z, y and x.
    spatial_scale : float
        Input voxels per unit of the boxes; finite, rounded to float32.
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive. Negative values are refused.
    aligned : bool
        Whether boxes are shifted by half a voxel.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input and output. Boxes are f64 for f64, else f32.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    InvalidProblemError
        If `sampling_ratio` is negative.
    """

    operator: ClassVar[str] = "roi_align_3d"


@dataclass(frozen=True, slots=True)
class RoiAlign3dBackwardDescriptor(_RoiAlign3dProblem):
    """The gradient of RoIAlign of volumes; the fields are those of :class:`RoiAlign3dDescriptor`."""

    operator: ClassVar[str] = "roi_align_3d_backward"


class RoiAlign3dPlan(Plan):
    """Tensors ``input`` [n, c, d, h, w], ``rois`` [num_rois, 7] and ``output``, the bins of each box."""

    __slots__ = ()
    descriptor_type = RoiAlign3dDescriptor
    category = "image"
    layout = "ncdhw"


class RoiAlign3dBackwardPlan(Plan):
    """Tensors ``grad_output``, the bins of each box, ``rois`` [num_rois, 7] and ``grad_input`` [n, c, d, h, w]."""

    __slots__ = ()
    descriptor_type = RoiAlign3dBackwardDescriptor
    category = "image"
    layout = "ncdhw"


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    input_shape: tuple[int, ...],
    dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    pooled: tuple[int, int, int],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Prepared:
    _call.check_rank("input", input_shape, "[N, C, D, H, W]", 5)
    element = _call.element_of("input", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element, _CORNERS)
    n, c, d, h, w = input_shape
    descriptor = RoiAlign3dDescriptor(
        n, c, d, h, w, boxes_shape[0], *pooled, spatial_scale, sampling_ratio, aligned, element
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
    _call.check_rank("grad_output", grad_shape, "[K, C, pooled_d, pooled_h, pooled_w]", 5)
    element = _call.element_of("grad_output", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element, _CORNERS)
    if len(input_shape) != 5:
        raise ValueError(f"input_shape is {input_shape}; wanted (N, C, D, H, W)")
    n, c, d, h, w = input_shape
    pooled_d, pooled_h, pooled_w = grad_shape[2:]
    _call.check_shape("grad_output", grad_shape, (boxes_shape[0], c, pooled_d, pooled_h, pooled_w))
    descriptor = RoiAlign3dBackwardDescriptor(
        n, c, d, h, w, boxes_shape[0], pooled_d, pooled_h, pooled_w, spatial_scale, sampling_ratio, aligned, element
    )
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(input_shape, element, element)], casts=(None, cast))


def roi_align_3d(
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
    """Average trilinear samples in every bin of every box: :func:`roi_align` of volumes, by its rules on each axis.

    Parameters
    ----------
    input : array, [N, C, D, H, W]
        Volumes in float32, float64, float16 or bfloat16.
    boxes : array, [K, 7], or a sequence of arrays, [L, 6]
        Rows (batch index, x1, y1, z1, x2, y2, z2) in voxels times 1 / `spatial_scale`, or one array of rows (x1, y1,
        z1, x2, y2, z2) per volume, which are joined by a copy. float64 for float64 input, else float32; narrower
        floats are widened by a copy.
    output_size : int or (int, int, int)
        Bins along z, y and x.
    spatial_scale : float
        Input voxels per unit of the boxes. Rounded to float32, for float64 input too.
    sampling_ratio : int
        Samples per bin and axis, at most 2**20; 0 or less is adaptive, ceil(box extent / bins).
    aligned : bool
        Whether boxes are shifted by half a voxel; without it they are at least 1 x 1 x 1.
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

    torchvision 0.26 defines what happens on an axis; it has no third. Sums are kept in float32 (float64 for float64).
    """
    first = read("input", input, stream)
    rois = read_boxes(boxes, first, stream, _CORNERS)
    prepared = prepare(
        first.device,
        first.shape,
        first.dtype,
        rois.shape,
        rois.dtype,
        _call.extent_triple("output_size", output_size),
        *sampling_options(spatial_scale, sampling_ratio, aligned),
    )
    check_images(boxes, "input", first.shape)
    return prepared.launch((first, rois), (out,), stream)[0]


def roi_align_3d_backward(
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
    """Compute the gradient of :func:`roi_align_3d` with respect to its input.

    Parameters
    ----------
    grad_output : array, [K, C, pooled_d, pooled_h, pooled_w]
        Gradient of the bins in float32, float64, float16 or bfloat16.
    boxes : array, [K, 7], or a sequence of arrays, [L, 6]
        The boxes of the forward call.
    input_shape : (int, int, int, int, int)
        Shape (N, C, D, H, W) of the forward call's input.
    spatial_scale, sampling_ratio, aligned
        As in the forward call.
    out : array, [N, C, D, H, W], optional
        Dense array of the gradient's dtype and device; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [N, C, D, H, W]
        Of the gradient's kind, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`roi_align_3d`.

    Notes
    -----
    No atomics: a voxel owns its sum, boxes ascending in blocks fixed by the shapes, so the bits are the same on every
    run, thread count, GPU and backend. Boxes have no gradient. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    rois = read_boxes(boxes, first, stream, _CORNERS)
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
