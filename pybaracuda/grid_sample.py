# SPDX-License-Identifier: Apache-2.0
"""grid_sample: its array functions, and descriptors and plans of images; those of volumes: grid_sample_3d.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from . import _abi, _call
from ._arrays import one_of_batch, read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._dtypes import FLOATS
from ._errors import shown
from ._plan import Plan
from ._sampling import PLAIN, Rule, Sampling, check_gradients, check_options
from .grid_sample_3d import GridSample3dBackwardDescriptor, GridSample3dDescriptor

__all__ = [
    "GridSampleBackwardDescriptor",
    "GridSampleBackwardPlan",
    "GridSampleDescriptor",
    "GridSamplePlan",
    "grid_sample",
    "grid_sample_backward",
]


@dataclass(frozen=True, slots=True)
class _GridSampleProblem(Sampling, Descriptor):
    """What both directions of grid_sample are described by."""

    n: int
    c: int
    ih: int
    iw: int
    oh: int
    ow: int
    element: str = "f32"
    mode: str = "bilinear"
    padding_mode: str = "zeros"
    align_corners: bool = False
    shares_input: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        check_options(self.mode, self.padding_mode, self.align_corners)

    @property
    def _is_plain(self) -> bool:
        """Whether the operator without options does it."""
        is_first = self.mode == "bilinear" and self.padding_mode == "zeros" and not self.align_corners
        return is_first and not self.shares_input

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

    def tensor_shape(self, tensor: _abi.Tensor) -> tuple[int, ...]:
        """Answer a tensor's shape; what the table says of the input is more than an expression of extents."""
        if tensor.name == "input":
            return (1 if self.shares_input else self.n, self.c, self.ih, self.iw)
        return Descriptor.tensor_shape(self, tensor)


@dataclass(frozen=True, slots=True)
class GridSampleDescriptor(_GridSampleProblem):
    """A 2-D grid_sample problem.

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
    mode : {"bilinear", "nearest", "bicubic"}
    padding_mode : {"zeros", "border", "reflection"}
    align_corners : bool
    shares_input : bool
        Whether the input is one image, [1, c, ih, iw], of which the samples of all n are taken.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    ValueError
        If there is no such mode.
    UnsupportedError
        If a mode is not wired yet.
    """

    @property
    def operator(self) -> str:  # type: ignore[override]
        """The C operator's name: modes other than the first have one together."""
        return "grid_sample_2d" if self._is_plain else "grid_sample_2d_ex"


@dataclass(frozen=True, slots=True)
class GridSampleBackwardDescriptor(_GridSampleProblem):
    """The gradients of grid_sample.

    Parameters
    ----------
    n, c, ih, iw, oh, ow, element, mode, padding_mode, align_corners, shares_input
        As in :class:`GridSampleDescriptor`. The gradient of an input that is shared has n images, of which nothing is
        added up.
    gradients : {"both", "input", "grid"}
        Which gradients are computed.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As :class:`GridSampleDescriptor`.
    """

    gradients: str = "both"

    def __post_init__(self) -> None:
        _GridSampleProblem.__post_init__(self)
        check_gradients(self.gradients)

    @property
    def operator(self) -> str:  # type: ignore[override]
        """The C operator's name: modes other than the first, and either gradient alone, have one together."""
        is_plain = self._is_plain and self.gradients == "both"
        return "grid_sample_2d_backward" if is_plain else "grid_sample_2d_ex_backward"

    def tensor_shape(self, tensor: _abi.Tensor) -> tuple[int, ...]:
        """Answer a tensor's shape; what the table says of the gradients is more than an expression of extents."""
        if tensor.name == "grad_input":
            return (self.n, self.c, self.ih, self.iw)
        if tensor.name == "grad_grid":
            return (self.n, self.oh, self.ow, 2)
        return _GridSampleProblem.tensor_shape(self, tensor)


class GridSamplePlan(Plan):
    """Tensors ``input`` [n or 1, c, ih, iw], ``grid`` [n, oh, ow, 2], ``output`` [n, c, oh, ow]."""

    __slots__ = ()
    descriptor_type = GridSampleDescriptor
    category = "image"
    layout = "nchw"


class GridSampleBackwardPlan(Plan):
    """Tensors ``grad_output``, ``input``, ``grid`` and, where they are computed, ``grad_input`` and ``grad_grid``."""

    __slots__ = ()
    descriptor_type = GridSampleBackwardDescriptor
    category = "image"
    layout = "nchw"


# What a text says of the shapes of images and of volumes.
_LAYOUTS = {4: ("[N, C, H, W]", "[N, H, W, 2]"), 5: ("[N, C, D, H, W]", "[N, D, H, W, 3]")}


def _check_operands(
    name: str, shape: tuple[int, ...], dtype: str, grid_shape: tuple[int, ...], grid_dtype: str
) -> tuple[str, str | None]:
    """Check an image or volume operand and the grid; answer the element type and the grid's conversion."""
    element = _call.element_of(name, dtype)
    if len(shape) not in _LAYOUTS:
        _call.check_rank(name, shape, "[N, C, H, W] or [N, C, D, H, W]", 4)
    axes = len(shape) - 2
    if len(grid_shape) != axes + 2 or grid_shape[-1] != axes:
        raise ValueError(f"grid has shape {grid_shape}; wanted {_LAYOUTS[len(shape)][1]}")
    if grid_shape[0] != shape[0]:
        raise ValueError(f"grid has shape {grid_shape}; {name} has {shape[0]} images")
    _call.element_of("grid", grid_dtype, FLOATS)
    return element, _call.wider("grid", grid_dtype, "f64" if element == "f64" else "f32")


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    shape: tuple[int, ...],
    dtype: str,
    grid_shape: tuple[int, ...],
    grid_dtype: str,
    rule: Rule = PLAIN,
    shares_input: bool = False,
) -> Prepared:
    element, cast = _check_operands("input", shape, dtype, grid_shape, grid_dtype)
    described: Any = GridSampleDescriptor if len(shape) == 4 else GridSample3dDescriptor
    descriptor = described(*shape, *grid_shape[1:-1], element, *rule, shares_input=shares_input)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output((*shape[:2], *grid_shape[1:-1]), element, element)], casts=(None, cast))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    grad_dtype: str,
    shape: tuple[int, ...],
    dtype: str,
    grid_shape: tuple[int, ...],
    grid_dtype: str,
    rule: Rule = PLAIN,
    gradients: str = "both",
    shares_input: bool = False,
) -> Prepared:
    element, cast = _check_operands("input", shape, dtype, grid_shape, grid_dtype)
    _call.element_of("grad_output", grad_dtype, (element,), why=", the dtype of input")
    _call.check_shape("grad_output", grad_shape, (*shape[:2], *grid_shape[1:-1]))
    described: Any = GridSampleBackwardDescriptor if len(shape) == 4 else GridSample3dBackwardDescriptor
    descriptor = described(*shape, *grid_shape[1:-1], element, *rule, gradients, shares_input=shares_input)
    kernel = _call.kernel_for(descriptor, device)
    of_input, of_grid = Output(shape, element, element), Output(grid_shape, cast or grid_dtype, grid_dtype)
    outputs = {"both": [of_input, of_grid], "input": [of_input], "grid": [of_grid]}
    return Prepared(kernel, outputs[gradients], casts=(None, None, cast))


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
    """Sample images or volumes at a grid of positions, as ``torch.nn.functional.grid_sample`` does.

    Parameters
    ----------
    input : array, [N, C, H, W] or [N, C, D, H, W]
        Images or volumes in float32, float64, float16 or bfloat16.
    grid : array, [N, oh, ow, 2] or [N, od, oh, ow, 3]
        Positions (x, y) or (x, y, z) in [-1, 1]. float64 for float64 input, else float32; narrower floats are widened
        by a copy.
    mode : {"bilinear", "nearest", "bicubic"}
        "bilinear" is trilinear for volumes, which have no "bicubic".
    padding_mode : {"zeros", "border", "reflection"}
        What lies outside: zeros, the pixel at the border, or the image reflected.
    align_corners : bool
        Whether -1 and 1 are the centres of the corner pixels or, as by default, their outer edges; reflection is there.
    out : array, [N, C, oh, ow] or [N, C, od, oh, ow], optional
        Dense array of the input's dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array, [N, C, oh, ow] or [N, C, od, oh, ow]
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

    Raises
    ------
    UnsupportedError
        For a mode that is not wired yet.
    InvalidProblemError
        If the input has no pixel and the padding needs one.
    TypeError
        If an argument is no array or has a dtype that grid_sample never takes.
    ValueError
        If shapes do not fit, arrays are on different devices, or `out` cannot be written.

    Notes
    -----
    With zeros a position outside gives 0, an infinite one too; an infinite one is the border's pixel with border and
    NaN with reflection. A NaN position gives NaN. Strided arrays are copied first, except for one image or volume that
    is broadcast along N (``numpy.broadcast_to``, ``torch.Tensor.expand``), which is read where it lies.
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.

    Defined by torch 2.11; Jaderberg et al., Spatial Transformer Networks, 2015.
    """
    check_options(mode, padding_mode, align_corners)
    first = read("input", input, stream)
    positions = read("grid", grid, stream, first)
    rule = (mode, padding_mode, bool(align_corners))
    one = one_of_batch(first)
    shares_input = one is not first
    prepared = prepare(first.device, first.shape, first.dtype, positions.shape, positions.dtype, rule, shares_input)
    return prepared.launch((one, positions), (out,), stream)[0]


# By the mask of outputs: what is computed.
_GRADIENTS_OF_MASK = {(True, True): "both", (True, False): "input", (False, True): "grid"}


def _gradients_of(output_mask: Any) -> str | None:
    """Answer which gradients a mask asks for, None where none is."""
    if not isinstance(output_mask, tuple | list) or len(output_mask) != 2:
        raise TypeError(f"output_mask: wanted a pair of bool, got {shown(output_mask)}")
    of_input, of_grid = (_call.flag("output_mask", each) for each in output_mask)
    return _GRADIENTS_OF_MASK.get((of_input, of_grid))


def grid_sample_backward(
    grad_output: Any,
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    output_mask: Sequence[bool] = (True, True),
    *,
    out: Sequence[Any] | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Compute the gradients of :func:`grid_sample` with respect to its input and its grid.

    Parameters
    ----------
    grad_output : array, [N, C, oh, ow] or [N, C, od, oh, ow]
        Gradient of the samples, in the dtype of `input`.
    input, grid, mode, padding_mode, align_corners
        As in the forward call.
    output_mask : (bool, bool)
        Which of the two gradients are computed; the other one costs nothing and is None.
    out : (array or None, array or None), optional
        Dense arrays for the two gradients, in the dtypes of `input` and `grid`; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    grad_input : array, of the shape of `input`, or None
        In the dtype of `input`.
    grad_grid : array, of the shape of `grid`, or None
        In the dtype of `grid`: computed as wide as the grid was widened, then rounded once.

    Raises
    ------
    UnsupportedError, InvalidProblemError, TypeError, ValueError
        As :func:`grid_sample`; ValueError also if no gradient is asked for, or `out` has one that is not.

    Notes
    -----
    No atomics: a pixel owns its sum, so the bits are the same on every run, thread count, GPU and backend; either
    gradient alone has the bits that it has beside the other. The gradient at a NaN position is dropped and its
    grad_grid is 0, as it is where a position does not move with its coordinate: outside with border, always with
    nearest. May be called from any number of threads.
    """
    check_options(mode, padding_mode, align_corners)
    gradients = _gradients_of(output_mask)
    if gradients is None:
        raise ValueError("output_mask is (False, False); wanted at least one gradient")
    first = read("grad_output", grad_output, stream)
    images = read("input", input, stream, first)
    positions = read("grid", grid, stream, first)
    rule = (mode, padding_mode, bool(align_corners))
    one = one_of_batch(images)
    prepared = prepare_backward(
        first.device,
        first.shape,
        first.dtype,
        images.shape,
        images.dtype,
        positions.shape,
        positions.dtype,
        rule,
        gradients,
        one is not images,
    )
    outs = _call.outs_of(out, ("grad_input", "grad_grid"), "a pair ")
    if gradients == "both":
        grad_input, grad_grid = prepared.launch((first, one, positions), outs, stream)
        return grad_input, grad_grid
    place = 0 if gradients == "input" else 1
    if outs[1 - place] is not None:
        raise ValueError(f"out[{1 - place}]: output_mask does not ask for this gradient")
    (result,) = prepared.launch((first, one, positions), (outs[place],), stream)
    return (result, None) if gradients == "input" else (None, result)
