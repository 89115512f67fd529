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
from ._errors import UnsupportedError
from ._plan import Plan

__all__ = [
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
    """A 2-D affine_grid problem, align_corners false.

    Parameters
    ----------
    n : int
        Maps.
    oh, ow : int
        Rows and columns of the grid.
    element : {"f32", "f64"}
        Dtype of theta and grid.
    """

    operator: ClassVar[str] = "affine_grid_2d"


@dataclass(frozen=True, slots=True)
class AffineGridBackwardDescriptor(_AffineGridProblem):
    """The gradient of affine_grid; the fields are those of :class:`AffineGridDescriptor`."""

    operator: ClassVar[str] = "affine_grid_2d_backward"


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


def check_size(size: tuple[int, ...], align_corners: bool) -> tuple[int, ...]:
    if len(size) == 5:
        raise UnsupportedError(f"size is {size}: a 3-D affine_grid is not wired yet; wanted (N, C, H, W)")
    if len(size) != 4:
        raise ValueError(f"size is {size}; wanted (N, C, H, W)")
    if _call.flag("align_corners", align_corners):
        raise UnsupportedError("align_corners True is not wired yet; wanted False")
    return size


def _compute(dtype: str) -> tuple[str, str | None]:
    """Answer in which dtype to compute and to what an operand must be widened for it."""
    element = "f64" if dtype == "f64" else "f32"
    return element, None if dtype == element else element


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(device: int, shape: tuple[int, ...], dtype: str, size: tuple[int, ...]) -> Prepared:
    n, _, h, w = size
    element, cast = _compute(_call.element_of("theta", dtype))
    _call.check_shape("theta", shape, (n, 2, 3))
    kernel = _call.kernel_for(AffineGridDescriptor(n, h, w, element), device)
    return Prepared(kernel, [Output((n, h, w, 2), element, dtype)], casts=(cast,))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(device: int, shape: tuple[int, ...], dtype: str, size: tuple[int, ...]) -> Prepared:
    n, _, h, w = size
    element, cast = _compute(_call.element_of("grad_grid", dtype))
    _call.check_shape("grad_grid", shape, (n, h, w, 2))
    kernel = _call.kernel_for(AffineGridBackwardDescriptor(n, h, w, element), device)
    return Prepared(kernel, [Output((n, 2, 3), element, dtype)], casts=(cast,))


def affine_grid(
    theta: Any, size: Sequence[int], align_corners: bool = False, *, out: Any = None, stream: Any = None
) -> Any:
    """Make the sampling grid of affine maps, as ``torch.nn.functional.affine_grid`` does.

    Parameters
    ----------
    theta : array, [N, 2, 3]
        Affine maps in float32 or float64, rows (x, y), columns (x, y, 1). float16 and bfloat16 are widened to float32
        by a copy.
    size : (int, int, int, int)
        Shape (N, C, H, W) of the image to sample; C does not matter.
    align_corners : {False}
    out : array, [N, H, W, 2], optional
        Dense array of the result's dtype and theta's device. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of theta's framework.

    Returns
    -------
    array, [N, H, W, 2]
        Positions (x, y), in [-1, 1] where theta is the identity, in theta's dtype. A 16-bit grid is computed in float32
        and rounded once; give theta in float32 for positions finer than 16 bits hold.

    Raises
    ------
    UnsupportedError
        For `align_corners` and for a 5-entry `size` (3-D).
    TypeError, ValueError
        If theta has another dtype or shape, or `out` cannot be written.

    Notes
    -----
    Computed as fma(t1, y, fma(t0, x, t2)) with x = (2 j + 1) / W - 1, so the last bit may differ from torch's.
    Bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.

    Defined by torch 2.11, align_corners False; Jaderberg et al., Spatial Transformer Networks, 2015.
    """
    maps = read("theta", theta, stream)
    extents = check_size(_call.whole_tuple("size", size), align_corners)
    return prepare(maps.device, maps.shape, maps.dtype, extents).launch((maps,), (out,), stream)[0]


def affine_grid_backward(
    grad_grid: Any, size: Sequence[int], align_corners: bool = False, *, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`affine_grid` with respect to theta: a sum over the grid.

    Parameters
    ----------
    grad_grid : array, [N, H, W, 2]
        Gradient of the positions in float32 or float64; float16 and bfloat16 are widened to float32 by a copy.
    size, align_corners
        As in the forward call.
    out : array, [N, 2, 3], optional
        Dense array of the gradient's dtype and device; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, [N, 2, 3]
        In the dtype of `grad_grid`; a 16-bit result is summed in float32 and rounded once.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        As :func:`affine_grid`.

    Notes
    -----
    Samples ascending in partial sums of 256: the same bits on every run, thread count, GPU and backend. May be called
    from any number of threads.
    """
    gradient = read("grad_grid", grad_grid, stream)
    extents = check_size(_call.whole_tuple("size", size), align_corners)
    prepared = prepare_backward(gradient.device, gradient.shape, gradient.dtype, extents)
    return prepared.launch((gradient,), (out,), stream)[0]
