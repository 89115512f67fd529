# SPDX-License-Identifier: Apache-2.0
"""grid_sample: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._dtypes import FLOATS
from ._errors import UnsupportedError, shown
from ._plan import Plan

__all__ = [
    "GridSampleBackwardDescriptor",
    "GridSampleBackwardPlan",
    "GridSampleDescriptor",
    "GridSamplePlan",
    "grid_sample",
    "grid_sample_backward",
]

_MODES = ("bilinear", "nearest", "bicubic")
_PADDING_MODES = ("zeros", "border", "reflection")


@dataclass(frozen=True, slots=True)
class _GridSampleProblem(Descriptor):
    """What both directions of grid_sample are described by."""

    n: int
    c: int
    ih: int
    iw: int
    oh: int
    ow: int
    element: str = "f32"

    @property
    def input_h(self) -> int:
        """The ABI's name for `ih`."""
        return self.ih

    @property
    def input_w(self) -> int:
        """The ABI's name for `iw`."""
        return self.iw

    @property
    def output_h(self) -> int:
        """The ABI's name for `oh`."""
        return self.oh

    @property
    def output_w(self) -> int:
        """The ABI's name for `ow`."""
        return self.ow


@dataclass(frozen=True, slots=True)
class GridSampleDescriptor(_GridSampleProblem):
    """A 2-D grid_sample problem: bilinear, zeros outside, align_corners false.

    Parameters
    ----------
    n, c : int
        Images and channels.
    ih, iw : int
        Rows and columns of the input.
    oh, ow : int
        Rows and columns of the output.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input and output. The grid is f64 for f64, else f32.
    """

    operator: ClassVar[str] = "grid_sample_2d"


@dataclass(frozen=True, slots=True)
class GridSampleBackwardDescriptor(_GridSampleProblem):
    """The gradients of grid_sample; the fields are those of :class:`GridSampleDescriptor`."""

    operator: ClassVar[str] = "grid_sample_2d_backward"


class GridSamplePlan(Plan):
    """Tensors ``input`` [n, c, ih, iw], ``grid`` [n, oh, ow, 2], ``output`` [n, c, oh, ow]."""

    __slots__ = ()
    descriptor_type = GridSampleDescriptor
    category = "image"
    layout = "nchw"


class GridSampleBackwardPlan(Plan):
    """Tensors ``grad_output``, ``input``, ``grid``, ``grad_input`` and ``grad_grid``."""

    __slots__ = ()
    descriptor_type = GridSampleBackwardDescriptor
    category = "image"
    layout = "nchw"


def check_options(mode: str, padding_mode: str, align_corners: bool) -> None:
    """Refuse what is not wired yet, and what no framework has."""
    for name, value, known, wired in (
        ("mode", mode, _MODES, "bilinear"),
        ("padding_mode", padding_mode, _PADDING_MODES, "zeros"),
    ):
        if not isinstance(value, str):
            raise ValueError(f"{name} is {shown(value)}; wanted one of {', '.join(map(repr, known))}")
        if value == wired:
            continue
        if value in known:
            raise UnsupportedError(f"{name} {value!r} is not wired yet; wanted {wired!r}")
        raise ValueError(f"{name} is {shown(value)}; wanted one of {', '.join(map(repr, known))}")
    if _call.flag("align_corners", align_corners):
        raise UnsupportedError("align_corners True is not wired yet; wanted False")


def _check_operands(
    name: str, shape: tuple[int, ...], dtype: str, grid_shape: tuple[int, ...], grid_dtype: str
) -> tuple[str, str | None]:
    """Check an image operand and the grid; answer the element type and the grid's conversion."""
    element = _call.element_of(name, dtype)
    if len(shape) == 5 and len(grid_shape) == 5:
        raise UnsupportedError(f"{name} has shape {shape}: 5-D (volumetric) grid_sample is not wired yet; wanted 4-D")
    _call.check_rank(name, shape, "[N, C, H, W]", 4)
    if len(grid_shape) != 4 or grid_shape[3] != 2:
        raise ValueError(f"grid has shape {grid_shape}; wanted [N, H, W, 2]")
    if grid_shape[0] != shape[0]:
        raise ValueError(f"grid has shape {grid_shape}; {name} has {shape[0]} images")
    _call.element_of("grid", grid_dtype, FLOATS)
    return element, _call.wider("grid", grid_dtype, "f64" if element == "f64" else "f32")


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(device: int, shape: tuple[int, ...], dtype: str, grid_shape: tuple[int, ...], grid_dtype: str) -> Prepared:
    element, cast = _check_operands("input", shape, dtype, grid_shape, grid_dtype)
    n, c, ih, iw = shape
    _, oh, ow, _ = grid_shape
    kernel = _call.kernel_for(GridSampleDescriptor(n, c, ih, iw, oh, ow, element), device)
    return Prepared(kernel, [Output((n, c, oh, ow), element, element)], casts=(None, cast))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    grad_dtype: str,
    shape: tuple[int, ...],
    dtype: str,
    grid_shape: tuple[int, ...],
    grid_dtype: str,
) -> Prepared:
    element, cast = _check_operands("input", shape, dtype, grid_shape, grid_dtype)
    _call.element_of("grad_output", grad_dtype, (element,), why=", the dtype of input")
    n, c, ih, iw = shape
    _, oh, ow, _ = grid_shape
    _call.check_shape("grad_output", grad_shape, (n, c, oh, ow))
    descriptor = GridSampleBackwardDescriptor(n, c, ih, iw, oh, ow, element)
    kernel = _call.kernel_for(descriptor, device)
    outputs = [Output(shape, element, element), Output(grid_shape, cast or grid_dtype, grid_dtype)]
    return Prepared(kernel, outputs, casts=(None, None, cast))


def grid_sample(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Sample images at a grid of positions, as ``torch.nn.functional.grid_sample`` does.

    Parameters
    ----------
    input : array, [N, C, H, W]
        Images in float32, float64, float16 or bfloat16.
    grid : array, [N, oh, ow, 2]
        Positions (x, y) in [-1, 1], where -1 and 1 are the outer edges of the corner pixels. float64 for float64 input,
        else float32; narrower floats are widened by a copy.
    mode : {"bilinear"}
    padding_mode : {"zeros"}
    align_corners : {False}
        Other values that torch has raise UnsupportedError.
    out : array, [N, C, oh, ow], optional
        Dense array of the input's dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [N, C, oh, ow]
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

    Raises
    ------
    UnsupportedError
        For a mode, padding or corner convention that is not wired yet, and for 5-D input.
    TypeError
        If an argument is no array or has a dtype that grid_sample never takes.
    ValueError
        If shapes do not fit, arrays are on different devices, or `out` cannot be written.

    Notes
    -----
    A position outside gives 0, an infinite one too; a NaN position gives NaN. Strided arrays are copied first.
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.

    Defined by torch 2.11; Jaderberg et al., Spatial Transformer Networks, 2015.
    """
    check_options(mode, padding_mode, align_corners)
    first = read("input", input, stream)
    positions = read("grid", grid, stream, first)
    prepared = prepare(first.device, first.shape, first.dtype, positions.shape, positions.dtype)
    return prepared.launch((first, positions), (out,), stream)[0]


def grid_sample_backward(
    grad_output: Any,
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    *,
    out: Sequence[Any] | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Compute the gradients of :func:`grid_sample` with respect to its input and its grid.

    Parameters
    ----------
    grad_output : array, [N, C, oh, ow]
        Gradient of the samples, in the dtype of `input`.
    input, grid, mode, padding_mode, align_corners
        As in the forward call.
    out : (array or None, array or None), optional
        Dense arrays for the two gradients, in the dtypes of `input` and `grid`; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    grad_input : array, [N, C, H, W]
        In the dtype of `input`.
    grad_grid : array, [N, oh, ow, 2]
        In the dtype of `grid`: computed as wide as the grid was widened, then rounded once.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        As :func:`grid_sample`.

    Notes
    -----
    No atomics: a pixel owns its sum, so the bits are the same on every run, thread count, GPU and backend. The gradient
    at a NaN position is dropped and its grad_grid is 0. May be called from any number of threads.
    """
    check_options(mode, padding_mode, align_corners)
    first = read("grad_output", grad_output, stream)
    images = read("input", input, stream, first)
    positions = read("grid", grid, stream, first)
    prepared = prepare_backward(
        first.device, first.shape, first.dtype, images.shape, images.dtype, positions.shape, positions.dtype
    )
    if out is None:
        outs: Sequence[Any] = (None, None)
    elif isinstance(out, tuple | list) and len(out) == 2:
        outs = out
    else:
        raise TypeError("out: wanted a pair (grad_input, grad_grid)")
    grad_input, grad_grid = prepared.launch((first, images, positions), outs, stream)
    return grad_input, grad_grid
