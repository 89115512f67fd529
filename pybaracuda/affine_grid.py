# SPDX-License-Identifier: Apache-2.0
"""affine_grid: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._plan import Plan

__all__ = [
    "AffineGrid3dBackwardDescriptor",
    "AffineGrid3dBackwardPlan",
    "AffineGrid3dDescriptor",
    "AffineGrid3dPlan",
    "AffineGridBackwardDescriptor",
    "AffineGridBackwardPlan",
    "AffineGridDescriptor",
    "AffineGridPlan",
    "affine_grid",
    "affine_grid_backward",
]


@dataclass(frozen=True, slots=True)
class _AffineGridProblem(Descriptor):
    """What both directions of affine_grid are described by."""

    n: int
    oh: int
    ow: int
    element: str = "f32"
    align_corners: bool = False

    _suffix: ClassVar[str] = ""

    @property
    def operator(self) -> str:  # type: ignore[override]
        """The C operator's name: aligned corners are an option of another one."""
        return f"affine_grid_2d{'_ex' if self.align_corners else ''}{self._suffix}"

    @property
    def option_align_corners(self) -> int:
        """Whether corners are aligned, as a number."""
        return int(self.align_corners)

    @property
    def output_h(self) -> int:
        """The ABI's name for `oh`."""
        return self.oh

    @property
    def output_w(self) -> int:
        """The ABI's name for `ow`."""
        return self.ow


@dataclass(frozen=True, slots=True)
class AffineGridDescriptor(_AffineGridProblem):
    """A 2-D affine_grid problem.

    Parameters
    ----------
    n : int
        Maps.
    oh, ow : int
        Rows and columns of the grid.
    element : {"f32", "f64"}
        Dtype of theta and grid.
    align_corners : bool
        Whether -1 and 1 are the centres of the outermost samples or, as by default, their outer edges.
    """


@dataclass(frozen=True, slots=True)
class AffineGridBackwardDescriptor(_AffineGridProblem):
    """The gradient of affine_grid; the fields are those of :class:`AffineGridDescriptor`."""

    _suffix: ClassVar[str] = "_backward"


@dataclass(frozen=True, slots=True)
class _AffineGrid3dProblem(Descriptor):
    """What both directions of affine_grid of volumes are described by."""

    n: int
    od: int
    oh: int
    ow: int
    element: str = "f32"
    align_corners: bool = False

    @property
    def option_align_corners(self) -> int:
        """Whether corners are aligned, as a number."""
        return int(self.align_corners)

    @property
    def output_d(self) -> int:
        """The ABI's name for `od`."""
        return self.od

    @property
    def output_h(self) -> int:
        """The ABI's name for `oh`."""
        return self.oh

    @property
    def output_w(self) -> int:
        """The ABI's name for `ow`."""
        return self.ow


@dataclass(frozen=True, slots=True)
class AffineGrid3dDescriptor(_AffineGrid3dProblem):
    """An affine_grid problem of volumes.

    Parameters
    ----------
    n : int
        Maps.
    od, oh, ow : int
        Planes, rows and columns of the grid.
    element : {"f32", "f64"}
        Dtype of theta and grid.
    align_corners : bool
        Whether -1 and 1 are the centres of the outermost samples or, as by default, their outer edges.
    """

    operator: ClassVar[str] = "affine_grid_3d"


@dataclass(frozen=True, slots=True)
class AffineGrid3dBackwardDescriptor(_AffineGrid3dProblem):
    """The gradient of affine_grid of volumes; the fields are those of :class:`AffineGrid3dDescriptor`."""

    operator: ClassVar[str] = "affine_grid_3d_backward"


class AffineGridPlan(Plan):
    """Tensors ``theta`` [n, 2, 3] and ``grid`` [n, oh, ow, 2]."""

    __slots__ = ()
    descriptor_type = AffineGridDescriptor
    category = "image"
    sums = False


class AffineGridBackwardPlan(Plan):
    """Tensors ``grad_grid`` [n, oh, ow, 2] and ``grad_theta`` [n, 2, 3]."""

    __slots__ = ()
    descriptor_type = AffineGridBackwardDescriptor
    category = "image"


class AffineGrid3dPlan(Plan):
    """Tensors ``theta`` [n, 3, 4] and ``grid`` [n, od, oh, ow, 3]."""

    __slots__ = ()
    descriptor_type = AffineGrid3dDescriptor
    category = "image"
    sums = False


class AffineGrid3dBackwardPlan(Plan):
    """Tensors ``grad_grid`` [n, od, oh, ow, 3] and ``grad_theta`` [n, 3, 4]."""

    __slots__ = ()
    descriptor_type = AffineGrid3dBackwardDescriptor
    category = "image"


def check_size(size: tuple[int, ...]) -> tuple[int, ...]:
    if len(size) not in (4, 5):
        raise ValueError(f"size is {size}; wanted (N, C, H, W) or (N, C, D, H, W)")
    return size


def shapes(size: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Answer the shapes of theta and of the grid."""
    n, _, *extents = size
    axes = len(extents)
    return (n, axes, axes + 1), (n, *extents, axes)


def _compute(dtype: str) -> tuple[str, str | None]:
    """Answer in which dtype to compute and to what an operand must be widened for it."""
    element = "f64" if dtype == "f64" else "f32"
    return element, None if dtype == element else element


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int, shape: tuple[int, ...], dtype: str, size: tuple[int, ...], align_corners: bool = False
) -> Prepared:
    n, _, *extents = size
    element, cast = _compute(_call.element_of("theta", dtype))
    maps, grid = shapes(size)
    _call.check_shape("theta", shape, maps)
    descriptor: type[Descriptor] = AffineGridDescriptor if len(extents) == 2 else AffineGrid3dDescriptor
    kernel = _call.kernel_for(descriptor(n, *extents, element, align_corners), device)  # type: ignore[call-arg]
    return Prepared(kernel, [Output(grid, element, dtype)], casts=(cast,))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int, shape: tuple[int, ...], dtype: str, size: tuple[int, ...], align_corners: bool = False
) -> Prepared:
    n, _, *extents = size
    element, cast = _compute(_call.element_of("grad_grid", dtype))
    maps, grid = shapes(size)
    _call.check_shape("grad_grid", shape, grid)
    descriptor: type[Descriptor] = AffineGridBackwardDescriptor if len(extents) == 2 else AffineGrid3dBackwardDescriptor
    kernel = _call.kernel_for(descriptor(n, *extents, element, align_corners), device)  # type: ignore[call-arg]
    return Prepared(kernel, [Output(maps, element, dtype)], casts=(cast,))


def affine_grid(
    theta: Any, size: Sequence[int], align_corners: bool = False, *, out: Any = None, stream: Any = None
) -> Any:
    """Make the sampling grid of affine maps, as ``torch.nn.functional.affine_grid`` does.

    Parameters
    ----------
    theta : array, [N, 2, 3] or [N, 3, 4]
        Affine maps in float32 or float64, rows (x, y), columns (x, y, 1), of volumes (x, y, z) and (x, y, z, 1).
        float16 and bfloat16 are widened to float32 by a copy.
    size : sequence of 4 or 5 int
        Shape (N, C, H, W) of the image or (N, C, D, H, W) of the volume to sample; C does not matter.
    align_corners : bool
        Whether -1 and 1 are the centres of the outermost samples or, as by default, their outer edges.
    out : array, [N, H, W, 2] or [N, D, H, W, 3], optional
        Dense array of the result's dtype and theta's device. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of theta's framework.

    Returns
    -------
    array, [N, H, W, 2] or [N, D, H, W, 3]
        Positions (x, y) or (x, y, z), in [-1, 1] where theta is the identity, in theta's dtype. A 16-bit
        grid is computed in float32 and rounded once; give theta in float32 for positions finer than 16 bits hold.

    Raises
    ------
    TypeError, ValueError
        If theta has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    Computed as fma(t1, y, fma(t0, x, t2)) with x = (2 j + 1) / W - 1, or 2 j / (W - 1) - 1 with aligned corners
    (0 for W = 1), of volumes fma(t2, z, fma(t1, y, fma(t0, x, t3))); so the last bit may differ from torch's.
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.

    Defined by torch 2.11; Jaderberg et al., Spatial Transformer Networks, 2015.
    """
    maps = read("theta", theta, stream)
    extents = check_size(_call.whole_tuple("size", size))
    prepared = prepare(maps.device, maps.shape, maps.dtype, extents, _call.flag("align_corners", align_corners))
    return prepared.launch((maps,), (out,), stream)[0]


def affine_grid_backward(
    grad_grid: Any, size: Sequence[int], align_corners: bool = False, *, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`affine_grid` with respect to theta: a sum over the grid.

    Parameters
    ----------
    grad_grid : array, [N, H, W, 2] or [N, D, H, W, 3]
        Gradient of the positions in float32 or float64; float16 and bfloat16 are widened to float32 by a copy.
    size, align_corners
        As in the forward call.
    out : array, [N, 2, 3] or [N, 3, 4], optional
        Dense array of the gradient's dtype and device; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [N, 2, 3] or [N, 3, 4]
        In the dtype of `grad_grid`; a 16-bit result is summed in float32 and rounded once.

    Raises
    ------
    TypeError, ValueError
        As :func:`affine_grid`.

    Notes
    -----
    Samples ascending in partial sums of 256: the same bits on every run, thread count, GPU and backend. May be called
    from any number of threads.
    """
    gradient = read("grad_grid", grad_grid, stream)
    extents = check_size(_call.whole_tuple("size", size))
    is_aligned = _call.flag("align_corners", align_corners)
    prepared = prepare_backward(gradient.device, gradient.shape, gradient.dtype, extents, is_aligned)
    return prepared.launch((gradient,), (out,), stream)[0]
