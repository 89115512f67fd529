# SPDX-License-Identifier: Apache-2.0
"""Interpolation to another size: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor, PrecisionGuarantee
from ._errors import InvalidProblemError, shown
from ._plan import Plan
from .avg_pool import prepare_adaptive, prepare_adaptive_backward

__all__ = [
    "InterpolateBackwardDescriptor",
    "InterpolateBackwardPlan",
    "InterpolateDescriptor",
    "InterpolatePlan",
    "interpolate",
    "interpolate_backward",
]

# In the order of the C options' numbers.
_MODES = ("nearest", "nearest-exact", "linear", "cubic", "linear-antialias", "cubic-antialias")
# Those that torch calls the same with antialias=True.
_ANTIALIASED = {"linear": "linear-antialias", "cubic": "cubic-antialias"}
# The names that the linear mode has by the number of axes.
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
_WANTED = {1: "[N, C, W]", 2: "[N, C, H, W]", 3: "[N, C, D, H, W]"}
_AXES = ("d", "h", "w")


@dataclass(frozen=True, slots=True)
class _InterpolateProblem(Descriptor):
    """What both directions are described by."""

    n: int
    c: int
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    mode: str = "nearest"
    align_corners: bool = False
    scale_d: float = 0.0
    scale_h: float = 0.0
    scale_w: float = 0.0
    element: str = "f32"

    # What the direction adds to the C operators' names.
    _direction: ClassVar[int] = 0

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        if self.mode not in _MODES:
            raise ValueError(f"mode is {shown(self.mode)}; wanted one of {', '.join(map(repr, _MODES))}")
        if not 1 <= self.rank <= 3:
            raise InvalidProblemError(f"{self.operator}: input_size has {self.rank} entries; wanted 1 to 3")
        if len(self.output_size) != self.rank:
            raise InvalidProblemError(
                f"{self.operator}: output_size has {len(self.output_size)} entries; wanted {self.rank}"
            )
        for axis in _AXES:
            # -0.0 is the same problem as 0.0.
            object.__setattr__(self, f"scale_{axis}", getattr(self, f"scale_{axis}") + 0.0)

    @property
    def rank(self) -> int:
        """Axes besides n and c."""
        return len(self.input_size)

    @property
    def operator(self) -> str:  # type: ignore[override]
        """The C operator's name: two of the problems have one of their own."""
        names = ("interpolate_ex", "interpolate_ex_backward")
        if self.rank == 2 and self.mode == "linear":
            names = ("interpolate_bilinear_2d", "interpolate_bilinear_2d_backward")
        elif self.rank == 2 and self.mode == "nearest" and not self.align_corners and not self._has_scales:
            names = ("upsample_nearest_2d_fw", "upsample_nearest_2d_bw")
        return names[self._direction]

    @property
    def _has_scales(self) -> bool:
        return any(getattr(self, f"scale_{axis}") != 0.0 for axis in _AXES)

    def _extent(self, sizes: tuple[int, ...], axis: int) -> int:
        """Answer one of depth, height and width, counted from the last; an axis that is not there has 1."""
        return sizes[-axis] if axis <= len(sizes) else 1

    @property
    def input_d(self) -> int:
        """Depth of the input, 1 where it has none."""
        return self._extent(self.input_size, 3)

    @property
    def input_h(self) -> int:
        """Height of the input, 1 where it has none."""
        return self._extent(self.input_size, 2)

    @property
    def input_w(self) -> int:
        """Width of the input."""
        return self._extent(self.input_size, 1)

    @property
    def output_d(self) -> int:
        """Depth of the output, 1 where it has none."""
        return self._extent(self.output_size, 3)

    @property
    def output_h(self) -> int:
        """Height of the output, 1 where it has none."""
        return self._extent(self.output_size, 2)

    @property
    def output_w(self) -> int:
        """Width of the output."""
        return self._extent(self.output_size, 1)

    @property
    def scale_h_factor(self) -> float:
        """What interpolate_bilinear_2d calls `scale_h`."""
        return self.scale_h

    @property
    def scale_w_factor(self) -> float:
        """What interpolate_bilinear_2d calls `scale_w`."""
        return self.scale_w

    @property
    def option_mode(self) -> int:
        """The mode's number."""
        return _MODES.index(self.mode)

    @property
    def option_align_corners(self) -> bool:
        """Whether corners are aligned."""
        return self.align_corners

    @property
    def option_scale_d(self) -> float:
        """The scale along the depth."""
        return self.scale_d

    @property
    def option_scale_h(self) -> float:
        """The scale along the height."""
        return self.scale_h

    @property
    def option_scale_w(self) -> float:
        """The scale along the width."""
        return self.scale_w

    def tensor_shape(self, tensor: Any) -> tuple[int, ...]:
        """Answer a tensor's shape, which has the axes that there are."""
        inner = tensor.name in ("input", "grad_input")
        return (self.n, self.c, *(self.input_size if inner else self.output_size))


@dataclass(frozen=True, slots=True)
class InterpolateDescriptor(_InterpolateProblem):
    """An interpolation to another size.

    Parameters
    ----------
    n, c : int
        Images and channels.
    input_size, output_size : tuple of int
        Extents of the other one to three axes, in the order depth, height, width.
    mode : {"nearest", "nearest-exact", "linear", "cubic", "linear-antialias", "cubic-antialias"}
        Linear is bilinear or trilinear where there are two axes or three; cubic is bicubic, for two, as the
        antialiased ones are.
    align_corners : bool
        Not in the nearest modes: whether the centres of the corner pixels are kept, instead of their outer corners.
    scale_d, scale_h, scale_w : float
        Output pixels per input pixel; 0 stands for the quotient of the extents. Not read with `align_corners`.
    element : {"f32", "f64", "f16", "bf16"}

    Raises
    ------
    TypeError
        If a field has the wrong type.
    ValueError
        If there is no such mode.
    InvalidProblemError
        If there are not one to three axes, or not as many of the output.
    """


@dataclass(frozen=True, slots=True)
class InterpolateBackwardDescriptor(_InterpolateProblem):
    """The gradient of an interpolation; fields and errors are those of :class:`InterpolateDescriptor`."""

    _direction: ClassVar[int] = 1


class InterpolatePlan(Plan):
    """Tensors ``input`` [n, c, *input_size] and ``output`` [n, c, *output_size]."""

    __slots__ = ()
    descriptor_type = InterpolateDescriptor
    category = "image"
    layout = "nchw"

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """What the plan promises about its arithmetic: in the nearest modes there is none."""
        if self.descriptor.mode in ("nearest", "nearest-exact"):
            return PrecisionGuarantee(math_precision="exact", accumulator="none")
        return super().precision_guarantee


class InterpolateBackwardPlan(Plan):
    """Tensors ``grad_output`` [n, c, *output_size] and ``grad_input`` [n, c, *input_size]."""

    __slots__ = ()
    descriptor_type = InterpolateBackwardDescriptor
    category = "image"
    layout = "nchw"


def _mode_of(mode: Any, name: str, shape: tuple[int, ...], antialias: bool) -> str:
    """Answer the C mode for torch's name of it, or "area", which must be one for the array's rank."""
    rank = _rank_of(name, shape)
    if not isinstance(mode, str):
        raise TypeError(f"mode: wanted a string, got {shown(mode)}")
    kind = _plain_mode_of(mode, name, shape, rank)
    if not antialias:
        return kind
    if rank != 2 or kind not in _ANTIALIASED:
        raise ValueError(f"antialias is True in mode {mode!r}; wanted 'bilinear' or 'bicubic'")
    return _ANTIALIASED[kind]


def _plain_mode_of(mode: str, name: str, shape: tuple[int, ...], rank: int) -> str:
    if mode in ("nearest", "nearest-exact", "area"):
        return mode
    if mode == _LINEAR[rank]:
        return "linear"
    if mode == "bicubic":
        if rank != 2:
            raise ValueError(f"{name} has shape {shape}; wanted {_WANTED[2]} for mode 'bicubic'")
        return "cubic"
    for other, linear in _LINEAR.items():
        if mode == linear:
            raise ValueError(f"{name} has shape {shape}; wanted {_WANTED[other]} for mode {mode!r}")
    names = ("nearest", "nearest-exact", "area", _LINEAR[rank], *(("bicubic",) if rank == 2 else ()))
    raise ValueError(f"mode is {shown(mode)}; wanted one of {', '.join(map(repr, names))}")


def _rank_of(name: str, shape: tuple[int, ...]) -> int:
    if 3 <= len(shape) <= 5:
        return len(shape) - 2
    raise ValueError(f"{name} has shape {shape}; wanted {', '.join(_WANTED.values())}")


def _per_axis(name: str, value: Any, rank: int) -> tuple[Any, ...]:
    """Answer one number for each axis, from one for all or a sequence."""
    if not hasattr(value, "__len__"):
        return (value,) * rank
    if isinstance(value, (str, bytes)) or getattr(value, "ndim", 1) != 1:
        raise TypeError(f"{name}: wanted a number or a sequence of numbers, got {shown(value)}")
    if len(value) != rank:
        raise ValueError(f"{name} has {len(value)} entries; the array has {rank} axes behind N and C")
    return tuple(value)


def _scales_of(value: Any, rank: int) -> tuple[float, ...]:
    scales = tuple(_call.number("scale_factor", each) for each in _per_axis("scale_factor", value, rank))
    if all(0 < scale < float("inf") for scale in scales):
        return scales
    raise InvalidProblemError(f"scale_factor is {shown(value)}; wanted finite numbers above 0")


def output_size_of(
    sizes: tuple[int, ...], size: Any, scale_factor: Any, recompute_scale_factor: bool
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Answer the output's extents, and the scales that positions are formed with: none for sizes alone."""
    rank = len(sizes)
    if (size is None) == (scale_factor is None):
        raise ValueError("size and scale_factor: wanted one of them")
    if size is not None:
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor: there is no scale_factor to recompute beside size")
        return tuple(_call.whole("size", each) for each in _per_axis("size", size, rank)), ()
    scales = _scales_of(scale_factor, rank)
    products = [extent * scale for extent, scale in zip(sizes, scales, strict=True)]
    if max(products) >= 2**31:
        raise InvalidProblemError(f"scale_factor is {shown(scale_factor)}; wanted extents of at most {2**31 - 1}")
    return tuple(map(int, products)), () if recompute_scale_factor else scales


def corners_of(mode: str, align_corners: Any) -> bool:
    """Convert the argument, which may be None, and but for the linear and cubic modes must be."""
    if align_corners is None:
        return False
    aligned = _call.flag("align_corners", align_corners)
    if mode in ("nearest", "nearest-exact", "area"):
        raise ValueError(f"align_corners is {aligned} in mode {mode!r}; wanted None")
    return aligned


def resolved(
    shape: tuple[int, ...],
    size: Any,
    scale_factor: Any,
    mode: Any,
    align_corners: Any,
    recompute_scale_factor: Any,
    antialias: Any,
) -> tuple[tuple[int, ...], tuple[float, ...], str, bool]:
    """Answer the output's extents, scales, the C mode or "area", and whether corners are aligned."""
    kind = _mode_of(mode, "input", shape, _call.flag("antialias", antialias))
    aligned = corners_of(kind, align_corners)
    recompute = recompute_scale_factor is not None and _call.flag("recompute_scale_factor", recompute_scale_factor)
    return *output_size_of(shape[2:], size, scale_factor, recompute), kind, aligned


def _fields(scales: tuple[float, ...]) -> dict[str, float]:
    return dict(zip((f"scale_{axis}" for axis in _AXES[len(_AXES) - len(scales) :]), scales, strict=True))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    shape: tuple[int, ...],
    dtype: str,
    size: tuple[int, ...],
    scales: tuple[float, ...],
    mode: str,
    align_corners: bool,
) -> Prepared:
    if mode == "area":
        return prepare_adaptive(device, shape, dtype, size)
    element = _call.element_of("input", dtype)
    descriptor = InterpolateDescriptor(
        shape[0], shape[1], shape[2:], size, mode, align_corners, element=element, **_fields(scales)
    )
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output((*shape[:2], *size), element, element)])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    shape: tuple[int, ...],
    dtype: str,
    input_shape: tuple[int, ...],
    scales: tuple[float, ...],
    mode: str,
    align_corners: bool,
) -> Prepared:
    element = _call.element_of("grad_output", dtype)
    if len(input_shape) != len(shape):
        raise ValueError(f"grad_output has shape {shape}; wanted {len(input_shape)} axes, as input_shape has")
    _call.check_shape("grad_output", shape, (*input_shape[:2], *shape[2:]))
    if mode == "area":
        return prepare_adaptive_backward(device, shape, dtype, input_shape, len(shape) - 2)
    descriptor = InterpolateBackwardDescriptor(
        shape[0], shape[1], input_shape[2:], shape[2:], mode, align_corners, element=element, **_fields(scales)
    )
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(input_shape, element, element)])


def resize(input: Any, size: tuple[int, ...], scales: tuple[float, ...], mode: str, align_corners: bool) -> Any:
    """Interpolate to a size, with scales that may say otherwise, as frameworks' own operators ask for it.

    The mode is the descriptor's, or area; scales are one for each axis, 0 for none, or none at all.
    """
    first = read("input", input)
    prepared = prepare(first.device, first.shape, first.dtype, size, scales, mode, align_corners)
    return prepared.launch((first,), (None,), None)[0]


def resize_backward(
    grad_output: Any, shape: tuple[int, ...], scales: tuple[float, ...], mode: str, align_corners: bool
) -> Any:
    """Compute the gradient of :func:`resize` with respect to its input of this shape."""
    first = read("grad_output", grad_output)
    prepared = prepare_backward(first.device, first.shape, first.dtype, shape, scales, mode, align_corners)
    return prepared.launch((first,), (None,), None)[0]


def interpolate(
    input: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Bring images, signals or volumes to another size, as ``torch.nn.functional.interpolate`` does.

    Parameters
    ----------
    input : array, [N, C, W], [N, C, H, W] or [N, C, D, H, W]
        In float32, float64, float16 or bfloat16.
    size : int or sequence of int, optional
        Extents of the output behind N and C; an int is for every axis.
    scale_factor : float or sequence of float, optional
        Output pixels per input pixel, in place of `size`: extents are rounded down.
    mode : {"nearest", "nearest-exact", "area", "linear", "bilinear", "bicubic", "trilinear"}
        Linear is for three axes, bilinear and bicubic for four, trilinear for five.
    align_corners : bool, optional
        Linear modes and bicubic alone: whether the centres of the corner pixels are kept, instead of their outer
        corners.
    recompute_scale_factor : bool, optional
        Whether positions are formed with the quotient of the extents although `scale_factor` is given.
    antialias : bool
        Bilinear and bicubic alone: whether the filter is as wide as the pixels of an output that has fewer.
    out : array, [N, C, *size], optional
        Dense array of the input's dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [N, C, *size]
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that interpolation never takes.
    ValueError
        If shapes do not fit, the mode is not one for the number of axes, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range, or the input has no pixel to interpolate.

    Notes
    -----
    Output pixel o of an axis lies at s (o + 1/2) - 1/2 among the input's, at least at 0, where s is 1 / scale_factor or
    the quotient of the extents; with `align_corners` at o (W - 1) / (output W - 1). The linear modes weigh the pixels
    on both sides by their nearness; bicubic two on either side of each axis by Keys' kernel with a = -3/4, where a
    position may be below 0 and a pixel beyond an edge is the edge's; nearest takes pixel floor(s o), nearest-exact
    floor(s (o + 1/2)), moving bits. Antialiased, output pixel o is the weighted mean of the input pixels under a filter
    at s (o + 1/2) from the first one's outer corner: a triangle of 1 pixel to either side, or Keys' kernel of 2 with a
    = -1/2, s times as wide where s > 1. Area is :func:`adaptive_avg_pool` to the size. A pixel of weight 0 does not
    exist, so that 0 times infinity cannot leak.

    Strided arrays are copied first. Bit-stable: the same inputs give the same bits on every run, thread count, GPU and
    backend. May be called from any number of threads.

    Where PyTorch differs: docs/differences.md.
    """
    first = read("input", input, stream)
    options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    extents, scales, kind, aligned = resolved(first.shape, *options)
    prepared = prepare(first.device, first.shape, first.dtype, extents, scales, kind, aligned)
    return prepared.launch((first,), (out,), stream)[0]


def interpolate_backward(
    grad_output: Any,
    input_shape: Sequence[int],
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    antialias: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`interpolate` with respect to its input.

    Parameters
    ----------
    grad_output : array, [N, C, W], [N, C, H, W] or [N, C, D, H, W]
        Gradient of the output in float32, float64, float16 or bfloat16.
    input_shape : sequence of int
        Shape of the forward call's input.
    scale_factor : float or sequence of float, optional
        As in the forward call; None where that had a size, or recomputed its factor.
    mode, align_corners, antialias
        As in the forward call.
    out : array, `input_shape`, optional
        Dense array of the gradient's dtype and device; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, `input_shape`
        Of the gradient's kind, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`interpolate`.

    Notes
    -----
    The exact adjoint, with the forward's own positions and weights. No atomics: a pixel owns its sum, first along the
    depth, then along the height, then along the width, each in ascending order of the output in partial sums of 256
    (antialiased: not cut; area: as :func:`adaptive_avg_pool_backward`), so the bits are the same on every run, thread
    count, GPU and backend. Sums are kept in float32 (float64 for float64). May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    kind = _mode_of(mode, "grad_output", first.shape, _call.flag("antialias", antialias))
    aligned = corners_of(kind, align_corners)
    scales = () if scale_factor is None else _scales_of(scale_factor, len(first.shape) - 2)
    shape = _call.whole_tuple("input_shape", input_shape)
    prepared = prepare_backward(first.device, first.shape, first.dtype, shape, scales, kind, aligned)
    return prepared.launch((first,), (out,), stream)[0]
