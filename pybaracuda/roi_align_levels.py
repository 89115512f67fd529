# SPDX-License-Identifier: Apache-2.0
"""RoIAlign on several feature maps: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import frexp
from typing import Any, ClassVar

from . import _call
from ._arrays import Operand, read
from ._boxes import check_boxes, check_images, read_boxes
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor, exact_float
from ._errors import InvalidProblemError, shown
from ._plan import Plan
from .roi_align import sampling_options

__all__ = [
    "MOST_LEVELS",
    "RoiAlignLevelsBackwardDescriptor",
    "RoiAlignLevelsBackwardPlan",
    "RoiAlignLevelsDescriptor",
    "RoiAlignLevelsPlan",
    "roi_align_levels",
    "roi_align_levels_backward",
]

# The C functions have an argument for each of so many maps.
MOST_LEVELS = 8


@dataclass(frozen=True, slots=True)
class _RoiAlignLevelsProblem(Descriptor):
    """What both directions are described by."""

    n: int
    c: int
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    spatial_scales: tuple[float, ...]
    num_rois: int
    pooled_h: int
    pooled_w: int
    sampling_ratio: int = 0
    aligned: bool = False
    k_min: int = 2
    canonical_level: int = 4
    canonical_scale: float = 224.0
    element: str = "f32"

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        if self.sampling_ratio < 0:
            raise InvalidProblemError(
                f"{self.operator}: sampling_ratio is {self.sampling_ratio}; wanted 0 (adaptive) or more"
            )
        if not len(self.heights) == len(self.widths) == len(self.spatial_scales):
            raise InvalidProblemError(
                f"{self.operator}: heights has {len(self.heights)} entries, widths {len(self.widths)}, spatial_scales "
                f"{len(self.spatial_scales)}; wanted one of each for every map"
            )
        # -0.0 is the same problem as 0.0.
        object.__setattr__(self, "spatial_scales", tuple(scale + 0.0 for scale in self.spatial_scales))
        object.__setattr__(self, "canonical_scale", self.canonical_scale + 0.0)

    @property
    def num_levels(self) -> int:
        """How many maps there are."""
        return len(self.heights)

    @property
    def absent_tensors(self) -> frozenset[str]:
        """Those of the maps that this problem has not."""
        maps = "grad_input" if self.operator.endswith("_backward") else "input"
        return frozenset(f"{maps}_{level}" for level in range(self.num_levels, MOST_LEVELS))


@dataclass(frozen=True, slots=True)
class RoiAlignLevelsDescriptor(_RoiAlignLevelsProblem):
    """A RoIAlign problem on several feature maps.

    Parameters
    ----------
    n, c : int
        Images and channels, the same in every map.
    heights, widths : sequence of int
        Rows and columns of each map, of which there are at most 8.
    spatial_scales : sequence of float
        Each map's pixels per unit of the boxes; finite, rounded to float32.
    num_rois : int
        Boxes.
    pooled_h, pooled_w : int
        Bins along y and x.
    sampling_ratio : int
        Samples per bin and axis; 0 is adaptive. Negative values are refused.
    aligned : bool
        Whether boxes are shifted by half a pixel.
    k_min, canonical_level : int
        What the first map is called among the levels, and the level of a box of the canonical scale; -64 to 64.
    canonical_scale : float
        In units of the boxes; finite, rounded to float32.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of maps and output. Boxes are f64 for f64, else f32.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    InvalidProblemError
        If `sampling_ratio` is negative, or `heights`, `widths` and `spatial_scales` are of several lengths.
    """

    operator: ClassVar[str] = "roi_align_levels"


@dataclass(frozen=True, slots=True)
class RoiAlignLevelsBackwardDescriptor(_RoiAlignLevelsProblem):
    """The gradients by the maps; the fields are those of :class:`RoiAlignLevelsDescriptor`."""

    operator: ClassVar[str] = "roi_align_levels_backward"


class RoiAlignLevelsPlan(Plan):
    """Tensors ``input_0``, ``input_1``, ... [n, c, heights[i], widths[i]], ``rois`` [num_rois, 5] and ``output``."""

    __slots__ = ()
    descriptor_type = RoiAlignLevelsDescriptor
    category = "image"
    layout = "nchw"


class RoiAlignLevelsBackwardPlan(Plan):
    """Tensors ``grad_output`` [num_rois, c, pooled_h, pooled_w], ``rois``, ``grad_input_0``, ``grad_input_1``, ..."""

    __slots__ = ()
    descriptor_type = RoiAlignLevelsBackwardDescriptor
    category = "image"
    layout = "nchw"


def level_options(
    spatial_scales: Sequence[float], sampling_ratio: int, aligned: bool, k_min: int | None, canonical: tuple[Any, Any]
) -> tuple[tuple[float, ...], int, bool, int, int, float]:
    """Convert what says how boxes are sampled and which maps they belong to; `canonical` is a scale and its level."""
    try:
        scales = tuple(exact_float("spatial_scales", each) + 0.0 for each in spatial_scales)
    except TypeError:
        raise TypeError(f"spatial_scales: wanted a sequence of numbers, got {shown(spatial_scales)}") from None
    _, ratio, is_aligned = sampling_options(1.0, sampling_ratio, aligned)
    scale, level = canonical
    return (
        scales,
        ratio,
        is_aligned,
        _first_level(scales) if k_min is None else _call.whole("k_min", k_min),
        _call.whole("canonical_level", level),
        _call.number("canonical_scale", scale),
    )


def _first_level(scales: tuple[float, ...]) -> int:
    """Answer the level of a map whose scale is a power of two, as torchvision does."""
    fraction, exponent = frexp(scales[0]) if scales else (0.5, 1)
    if fraction != 0.5:
        raise InvalidProblemError(f"spatial_scales begins with {scales[0]}, which is no power of two: say k_min")
    return 1 - exponent


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    pooled: tuple[int, int],
    options: tuple[tuple[float, ...], int, bool, int, int, float],
) -> Prepared:
    for number, shape in enumerate(shapes):
        _call.check_rank(f"inputs[{number}]", shape, "[N, C, H, W]", 4)
        if shape[:2] != shapes[0][:2]:
            raise ValueError(f"inputs[{number}] has shape {shape}; wanted {shapes[0][:2]} as inputs[0] has, then H, W")
    element = _call.element_of("inputs[0]", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element)
    descriptor = RoiAlignLevelsDescriptor(**_fields(shapes, boxes_shape[0], pooled, options), element=element)
    output = Output((boxes_shape[0], shapes[0][1], *pooled), element, element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [output], casts=(*(None for _ in shapes), cast))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    boxes_shape: tuple[int, ...],
    boxes_dtype: str,
    shapes: tuple[tuple[int, ...], ...],
    options: tuple[tuple[float, ...], int, bool, int, int, float],
) -> Prepared:
    _call.check_rank("grad_output", grad_shape, "[K, C, pooled_h, pooled_w]", 4)
    element = _call.element_of("grad_output", dtype)
    cast = check_boxes(boxes_shape, boxes_dtype, element)
    _check_count("input_shapes", len(shapes))
    for number, shape in enumerate(shapes):
        if len(shape) != 4 or shape[:2] != shapes[0][:2]:
            raise ValueError(f"input_shapes[{number}] is {shape}; wanted (N, C, H, W), N and C as in input_shapes[0]")
    _call.check_shape("grad_output", grad_shape, (boxes_shape[0], shapes[0][1], *grad_shape[2:]))
    pooled = (grad_shape[2], grad_shape[3])
    descriptor = RoiAlignLevelsBackwardDescriptor(**_fields(shapes, boxes_shape[0], pooled, options), element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(shape, element, element) for shape in shapes], casts=(None, cast))


def _fields(
    shapes: tuple[tuple[int, ...], ...],
    num_rois: int,
    pooled: tuple[int, int],
    options: tuple[tuple[float, ...], int, bool, int, int, float],
) -> dict[str, Any]:
    """Answer a descriptor's fields but for the last."""
    scales, ratio, aligned, k_min, canonical_level, canonical_scale = options
    if len(scales) != len(shapes):
        raise ValueError(f"spatial_scales has {len(scales)} entries; wanted one for each of {len(shapes)} maps")
    return {
        "n": shapes[0][0],
        "c": shapes[0][1],
        "heights": tuple(shape[2] for shape in shapes),
        "widths": tuple(shape[3] for shape in shapes),
        "spatial_scales": scales,
        "num_rois": num_rois,
        "pooled_h": pooled[0],
        "pooled_w": pooled[1],
        "sampling_ratio": ratio,
        "aligned": aligned,
        "k_min": k_min,
        "canonical_level": canonical_level,
        "canonical_scale": canonical_scale,
    }


def _check_count(name: str, count: int) -> None:
    if not 1 <= count <= MOST_LEVELS:
        raise ValueError(f"{name} has {count} entries; wanted 1 to {MOST_LEVELS}")


def _read_maps(inputs: Any, stream: Any) -> list[Operand]:
    """Read the maps, which are of one dtype."""
    if not isinstance(inputs, list | tuple):
        raise TypeError(f"inputs: wanted a sequence of arrays, got {type(inputs).__name__}")
    _check_count("inputs", len(inputs))
    maps: list[Operand] = []
    for number, each in enumerate(inputs):
        maps.append(read(f"inputs[{number}]", each, stream, maps[0] if maps else None))
        _call.element_of(maps[-1].name, maps[-1].dtype)
        if maps[-1].dtype != maps[0].dtype:
            raise TypeError(f"inputs[{number}] has another dtype than inputs[0]")
    return maps


def roi_align_levels(
    inputs: Sequence[Any],
    boxes: Any | Sequence[Any],
    output_size: int | Sequence[int],
    spatial_scales: Sequence[float],
    sampling_ratio: int = -1,
    aligned: bool = False,
    k_min: int | None = None,
    canonical_scale: float = 224,
    canonical_level: int = 4,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Pool every box from one of several feature maps, as ``torchvision.ops.MultiScaleRoIAlign`` does.

    Parameters
    ----------
    inputs : sequence of 1 to 8 arrays, [N, C, H, W]
        Feature maps of the same images, the finest first, in float32, float64, float16 or bfloat16.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        As :func:`roi_align` takes them.
    output_size : int or (int, int)
        Bins along y and x.
    spatial_scales : sequence of float
        Each map's pixels per unit of the boxes. Rounded to float32, for float64 input too.
    sampling_ratio : int
        Samples per bin and axis, at most 2**20; 0 or less is adaptive, ceil(box extent / bins).
    aligned : bool
        Whether boxes are shifted by half a pixel; without it they are at least 1 x 1.
    k_min : int, optional
        What the first map is called among the levels; None means -log2(spatial_scales[0]), a power of two.
    canonical_scale, canonical_level : float and int
        A box of canonical_scale x canonical_scale belongs to the map of this level; one of four times the area to the
        next. Level -64 to 64.
    out : array, [K, C, *output_size], optional
        Dense array of the maps' dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the first map's framework.

    Returns
    -------
    array, [K, C, *output_size]
        In the order of the boxes, of the first map's kind, dtype and device; `out` if given. torch tensors come back
        without a gradient function.

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
    The map of a box is found where the boxes are: on CUDA the host does not wait. A box of area a belongs to the last
    map l with a >= canonical_scale**2 * 4**(k_min + l - canonical_level - 1e-6), compared in float64, else to the
    first; one whose area is negative or NaN gives 0. A box has the bits that :func:`roi_align` gives it on its map, and
    what is said there of bad boxes holds here. May be called from any number of threads.

    Defined by torchvision 0.26 and Lin et al., Feature Pyramid Networks, 2017.
    """
    maps = _read_maps(inputs, stream)
    rois = read_boxes(boxes, maps[0], stream)
    prepared = prepare(
        maps[0].device,
        tuple(each.shape for each in maps),
        maps[0].dtype,
        rois.shape,
        rois.dtype,
        _call.extent_pair("output_size", output_size),
        level_options(spatial_scales, sampling_ratio, aligned, k_min, (canonical_scale, canonical_level)),
    )
    check_images(boxes, "inputs[0]", maps[0].shape)
    return prepared.launch((*maps, rois), (out,), stream)[0]


def roi_align_levels_backward(
    grad_output: Any,
    boxes: Any | Sequence[Any],
    input_shapes: Sequence[Sequence[int]],
    spatial_scales: Sequence[float],
    sampling_ratio: int = -1,
    aligned: bool = False,
    k_min: int | None = None,
    canonical_scale: float = 224,
    canonical_level: int = 4,
    *,
    out: Any = None,
    stream: Any = None,
) -> tuple[Any, ...]:
    """Compute the gradients of :func:`roi_align_levels` with respect to its maps.

    Parameters
    ----------
    grad_output : array, [K, C, pooled_h, pooled_w]
        Gradient of the bins in float32, float64, float16 or bfloat16.
    boxes : array, [K, 5], or a sequence of arrays, [L, 4]
        The boxes of the forward call.
    input_shapes : sequence of (int, int, int, int)
        Shapes (N, C, H, W) of the forward call's maps.
    spatial_scales, sampling_ratio, aligned, k_min, canonical_scale, canonical_level
        As in the forward call.
    out : sequence of array or None, optional
        One for each map: a dense array of the gradient's dtype and device, fully overwritten, whatever it held, or
        None. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    tuple of array, [N, C, H, W]
        One for each map, of the gradient's kind, dtype and device; those of `out` where given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`roi_align_levels`.

    Notes
    -----
    No atomics: a pixel owns its sum. A map has the bits that :func:`roi_align_backward` gives it for all boxes, where
    those of other maps name no image. Boxes have no gradient. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    rois = read_boxes(boxes, first, stream)
    if not isinstance(input_shapes, list | tuple):
        raise TypeError(f"input_shapes: wanted a sequence of shapes, got {type(input_shapes).__name__}")
    shapes = tuple(_call.whole_tuple(f"input_shapes[{number}]", each) for number, each in enumerate(input_shapes))
    prepared = prepare_backward(
        first.device,
        first.shape,
        first.dtype,
        rois.shape,
        rois.dtype,
        shapes,
        level_options(spatial_scales, sampling_ratio, aligned, k_min, (canonical_scale, canonical_level)),
    )
    check_images(boxes, "input_shapes[0]", shapes[0])
    outs = (None,) * len(shapes) if out is None else out
    if not isinstance(outs, list | tuple) or len(outs) != len(shapes):
        raise TypeError(f"out: wanted a sequence of {len(shapes)} arrays or None")
    return tuple(prepared.launch((first, rois), outs, stream))
