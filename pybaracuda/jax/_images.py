# SPDX-License-Identifier: Apache-2.0
"""Sampling of images in JAX, with its derivatives; what it computes is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from .. import _call
from .._arrays import HOST
from .._call import Prepared
from ..affine_grid import check_size
from ..affine_grid import prepare as prepare_affine_grid
from ..affine_grid import prepare_backward as prepare_affine_grid_backward
from ..grid_sample import check_options
from ..grid_sample import prepare as prepare_grid_sample
from ..grid_sample import prepare_backward as prepare_grid_sample_backward
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents, zeros
from ._primitive import array_of, call, run, spec_of

__all__ = ["affine_grid", "grid_sample"]

_IMAGES = ("n", "c", "h", "w")
_POSITIONS = ("n", "p", "q", "t")
_SAMPLES = ("n", "c", "p", "q")


@dataclass(frozen=True)
class _GridSample(KernelOperation):
    """Samples of (input, grid); linear in the input."""

    name = "grid_sample"

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), (grid_shape, grid_dtype) = specs
        return prepare_grid_sample(HOST, shape, dtype, grid_shape, grid_dtype)

    def axes(self, *specs: Spec) -> Axes:
        # The gradient of the grid is a sum over the channels.
        return Axes((_IMAGES, _POSITIONS), (_SAMPLES,), frozenset("nc"), frozenset("n"))

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        of_input, of_grid = tangents
        if of_grid is None:
            return call(self, of_input, operands[1])
        if of_input is None:
            of_input = jnp.zeros_like(operands[0])
        return call(_GridSampleTangent(), of_input, of_grid, *operands)

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        # The values of the input play no part in its gradient.
        return call(_GridSampleBackward(), cotangents[0], zeros(operands[0]), operands[1])[0], None


@dataclass(frozen=True)
class _GridSampleTangent(Operation):
    """The derivative by both, of (their tangents, input, grid)."""

    name = "grid_sample"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return _GridSample().results(*specs[2:])

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        of_input, of_grid, input, grid = operands
        n, c = input.shape[:2]
        # Images of one channel each, so that the gradient of the grid is the derivative of their samples.
        images = input.reshape((n * c, 1, *input.shape[2:]))
        grids = jnp.broadcast_to(grid[:, None], (n, c, *grid.shape[1:])).reshape((n * c, *grid.shape[1:]))
        ones = jnp.ones((n * c, 1, *grid.shape[1:3]), input.dtype)
        slopes = call(_GridSampleBackward(), ones, images, grids)[1].reshape((n, c, *grid.shape[1:]))
        along = (slopes * of_grid[:, None]).sum(-1).astype(input.dtype)
        return [call(_GridSample(), of_input, grid)[0] + along]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        of_input, of_grid = call(_GridSampleBackward(), cotangents[0], *operands[2:])
        return of_input if wanted[0] else None, of_grid if wanted[1] else None, None, None


@dataclass(frozen=True)
class _GridSampleBackward(KernelOperation):
    """The gradients by (grad_output, input, grid)."""

    name = "the gradient of grid_sample"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_grid_sample_backward(HOST, *(each for spec in specs for each in spec))

    def axes(self, *specs: Spec) -> Axes:
        only_images = frozenset("n")
        return Axes((_SAMPLES, _IMAGES, _POSITIONS), (_IMAGES, _POSITIONS), only_images, only_images)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        of_output, of_input, of_grid = tangents
        if of_input is None and of_grid is None:
            return call(self, of_output, *operands[1:])
        pairs = zip(tangents, operands, strict=True)
        given = [jnp.zeros_like(operand) if tangent is None else tangent for tangent, operand in pairs]
        return call(_GridSampleBackwardTangent(of_grid is not None), *given, *operands)

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        _, input, grid = operands
        return _transposed_gradient(cotangents, input, grid), None, None


def _transposed_gradient(cotangents: Tangents, input: Any, grid: Any) -> Any:
    """Answer the cotangent of grad_output: the derivative of the samples along the cotangents of the gradients."""
    of_input, of_grid = cotangents
    if of_grid is None:
        return call(_GridSample(), of_input, grid)[0]
    if of_input is None:
        of_input = jnp.zeros_like(input)
    return call(_GridSampleTangent(), of_input, of_grid, input, grid)[0]


@dataclass(frozen=True)
class _GridSampleBackwardTangent(Operation):
    """The derivative of the gradients, of (tangents of grad_output, input and grid; these)."""

    moves_grid: bool

    name = "the second derivative of grid_sample"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return _GridSampleBackward().results(*specs[3:])

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        of_output, of_input, _, grad_output, input, grid = operands
        if self.moves_grid:
            raise NotImplementedError("grid_sample has no second derivative by its grid in forward mode")
        # The gradient of the input does not depend on the input, that of the grid is linear in it.
        of_gradients = call(_GridSampleBackward(), of_output, input, grid)
        more = call(_GridSampleBackward(), grad_output, of_input, grid)[1]
        return of_gradients[0], of_gradients[1] + more

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        grad_output, input, grid = operands[3:]
        of_input, of_grid = cotangents
        if of_grid is not None and any(wanted[1:3]):
            raise NotImplementedError("grid_sample has no second derivative through the gradient of its grid")
        results: list[Any] = [None] * 6
        if wanted[0]:
            results[0] = _transposed_gradient(cotangents, input, grid)
        if wanted[2]:
            # By the grid, grad_input is what samples of the cotangent are.
            results[2] = call(_GridSampleBackward(), grad_output, of_input, grid)[1]
        return results


def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
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

    Returns
    -------
    array, [N, C, oh, ow]
        Of the input's dtype.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        As ``pybaracuda.grid_sample``, when it is traced.

    Notes
    -----
    The gradients are those of ``pybaracuda.grid_sample_backward``, bit for bit. Forward mode works, too; the second
    derivative exists through the gradient of the input alone.
    """
    check_options(mode, padding_mode, align_corners)
    return run(_GridSample(), array_of(input), array_of(grid))[0]


@dataclass(frozen=True)
class _AffineGrid(KernelOperation):
    """The grid of theta, or with `backward` the gradient of it: each other's transposes."""

    h: int
    w: int
    backward: bool = False

    name = "affine_grid"

    def prepare(self, *specs: Spec) -> Prepared:
        ((shape, dtype),) = specs
        prepare = prepare_affine_grid_backward if self.backward else prepare_affine_grid
        return prepare(HOST, shape, dtype, (shape[0], 1, self.h, self.w))

    def axes(self, *specs: Spec) -> Axes:
        maps, grids = ("n", "i", "j"), ("n", "h", "w", "t")
        operand, result = (grids, maps) if self.backward else (maps, grids)
        return Axes((operand,), (result,), frozenset("n"), frozenset("n"))

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_AffineGrid(self.h, self.w, not self.backward), cotangents[0])


def affine_grid(theta: Any, size: Sequence[int], align_corners: bool = False) -> Any:
    """Make the sampling grid of affine maps, as ``torch.nn.functional.affine_grid`` does.

    Parameters
    ----------
    theta : array, [N, 2, 3]
        Affine maps in float32 or float64; float16 and bfloat16 are widened to float32 by a copy.
    size : (int, int, int, int)
        Shape (N, C, H, W) of the image to sample; C does not matter.
    align_corners : {False}

    Returns
    -------
    array, [N, H, W, 2]
        Positions (x, y) in theta's dtype.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        As ``pybaracuda.affine_grid``, when it is traced.

    Notes
    -----
    Linear, so derivatives of every order and both modes exist. The gradient is that of
    ``pybaracuda.affine_grid_backward``, bit for bit.
    """
    n, _, h, w = check_size(_call.whole_tuple("size", size), align_corners)
    theta = array_of(theta)
    shape, _ = spec_of(theta)
    _call.check_shape("theta", shape, (n, 2, 3))
    return run(_AffineGrid(h, w), theta)[0]
