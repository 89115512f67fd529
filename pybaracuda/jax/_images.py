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
from .._interpolant import TAP_RULE, Interpolant
from .._sampling import PLAIN, Rule, check_options
from ..affine_grid import check_size
from ..affine_grid import prepare as prepare_affine_grid
from ..affine_grid import prepare_backward as prepare_affine_grid_backward
from ..affine_grid import shapes as affine_grid_shapes
from ..grid_sample import prepare as prepare_grid_sample
from ..grid_sample import prepare_backward as prepare_grid_sample_backward
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents, zeros
from ._primitive import array_of, call, run, spec_of

__all__ = ["affine_grid", "grid_sample"]


def _names(rank: int) -> tuple[tuple[str, ...], ...]:
    """Names of the axes of images or volumes, of positions and of samples."""
    inputs, outputs = ("d", "h", "w")[5 - rank :], ("o", "p", "q")[5 - rank :]
    return ("n", "c", *inputs), ("n", *outputs, "t"), ("n", "c", *outputs)


@dataclass(frozen=True)
class _GridSample(KernelOperation):
    """Samples of (input, grid); linear in the input."""

    rule: Rule = PLAIN

    name = "grid_sample"

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), (grid_shape, grid_dtype) = specs
        return prepare_grid_sample(HOST, shape, dtype, grid_shape, grid_dtype, self.rule)

    def axes(self, *specs: Spec) -> Axes:
        images, positions, samples = _names(len(specs[0][0]))
        # The gradient of the grid is a sum over the channels.
        return Axes((images, positions), (samples,), frozenset("nc"), frozenset("n"))

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        of_input, of_grid = tangents
        if of_grid is None:
            return call(self, of_input, operands[1])
        if of_input is None:
            of_input = jnp.zeros_like(operands[0])
        return call(_GridSampleTangent(self.rule), of_input, of_grid, *operands)

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        # The values of the input play no part in its gradient.
        return call(_GridSampleBackward(self.rule), cotangents[0], zeros(operands[0]), operands[1])[0], None


@dataclass(frozen=True)
class _GridSampleTangent(Operation):
    """The derivative by both, of (their tangents, input, grid)."""

    rule: Rule

    name = "grid_sample"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return _GridSample(self.rule).results(*specs[2:])

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        of_input, of_grid, input, grid = operands
        n, c = input.shape[:2]
        # Images of one channel each, so that the gradient of the grid is the derivative of their samples.
        images = input.reshape((n * c, 1, *input.shape[2:]))
        grids = jnp.broadcast_to(grid[:, None], (n, c, *grid.shape[1:])).reshape((n * c, *grid.shape[1:]))
        ones = jnp.ones((n * c, 1, *grid.shape[1:-1]), input.dtype)
        slopes = call(_GridSampleBackward(self.rule), ones, images, grids)[1].reshape((n, c, *grid.shape[1:]))
        along = (slopes * of_grid[:, None]).sum(-1).astype(input.dtype)
        return [call(_GridSample(self.rule), of_input, grid)[0] + along]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        of_input, of_grid, input, grid = operands
        given = [
            jnp.zeros_like(operand) if each is None else each for each, operand in zip(tangents, operands, strict=True)
        ]
        found = call(self, given[0], given[1], input, grid)[0]
        if tangents[2] is not None:
            found = found + _along(given[2], grid, of_grid, self.rule)
        if tangents[3] is not None:
            found = found + call(self, jnp.zeros_like(input), given[3], of_input, grid)[0]
            found = found + _curvature(input, grid, of_grid, given[3], self.rule)
        return (found,)

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        of_input, of_grid = call(_GridSampleBackward(self.rule), cotangents[0], *operands[2:])
        return of_input if wanted[0] else None, of_grid if wanted[1] else None, None, None


@dataclass(frozen=True)
class _GridSampleBackward(KernelOperation):
    """The gradients by (grad_output, input, grid)."""

    rule: Rule = PLAIN

    name = "the gradient of grid_sample"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_grid_sample_backward(HOST, *(each for spec in specs for each in spec), self.rule)

    def axes(self, *specs: Spec) -> Axes:
        images, positions, samples = _names(len(specs[1][0]))
        only_images = frozenset("n")
        return Axes((samples, images, positions), (images, positions), only_images, only_images)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        of_output, of_input, of_grid = tangents
        if of_input is None and of_grid is None:
            return call(self, of_output, *operands[1:])
        pairs = zip(tangents, operands, strict=True)
        given = [jnp.zeros_like(operand) if tangent is None else tangent for tangent, operand in pairs]
        return call(_GridSampleBackwardTangent(of_grid is not None, self.rule), *given, *operands)

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        _, input, grid = operands
        return _transposed_gradient(cotangents, input, grid, self.rule), None, None


def _interpolant(input: Any, grid: Any, rule: Rule) -> Interpolant | None:
    """Answer the taps whose weights move with the grid, if any do."""
    mode, padding_mode, align_corners = rule
    if mode == "bicubic":
        raise NotImplementedError("grid_sample of mode bicubic has no second derivative through its grid")
    if mode == "nearest" or not input.size:
        return None
    return Interpolant(jnp, grid, input.shape[2:], padding_mode, align_corners)


def _wide(dtype: Any) -> Any:
    """Answer in which dtype sums of a few terms are kept: they are rounded once, at the end."""
    return jnp.promote_types(dtype, jnp.float32)


def _along(input: Any, grid: Any, of_grid: Any, rule: Rule) -> Any:
    """Answer how the samples move with the grid, in which the input is linear for JAX, too."""
    found = jnp.zeros((*input.shape[:2], *grid.shape[1:-1]), _wide(input.dtype))
    interpolant = _interpolant(input, grid, rule)
    if interpolant is None:
        return found.astype(input.dtype)
    for tap in interpolant.taps:
        pixels = call(_GridSample(TAP_RULE), input, interpolant.positions(tap))[0]
        weight = interpolant.slope(tap, of_grid)[:, None]
        found = found + jnp.where(weight == 0, 0.0, pixels * weight)
    return found.astype(input.dtype)


def _curvature(input: Any, grid: Any, first: Any, second: Any, rule: Rule) -> Any:
    """Answer how the samples' derivative along one direction of the grid moves along another one."""
    found = jnp.zeros((*input.shape[:2], *grid.shape[1:-1]), _wide(input.dtype))
    interpolant = _interpolant(input, grid, rule)
    if interpolant is None:
        return found.astype(input.dtype)
    for tap in interpolant.taps:
        pixels = call(_GridSample(TAP_RULE), input, interpolant.positions(tap))[0]
        weights = interpolant.gradient_of_slope(tap, first)[:, None]
        # Linear in the second direction for JAX, too, which may be asked for its transpose.
        moved = jnp.where(weights == 0, 0.0, pixels[..., None] * weights)
        found = found + (moved * second[:, None]).sum(-1)
    return found.astype(input.dtype)


def _moved_input_gradient(grad_output: Any, input: Any, grid: Any, of_grid: Any, rule: Rule) -> Any:
    """Answer how the gradient of the input moves with the grid: what its taps' weights do."""
    found = jnp.zeros(input.shape, _wide(input.dtype))
    interpolant = _interpolant(input, grid, rule)
    if interpolant is None:
        return found.astype(input.dtype)
    for tap in interpolant.taps:
        weight = interpolant.slope(tap, of_grid)[:, None]
        moved = jnp.where(weight == 0, 0.0, grad_output * weight)
        # The values of the input play no part.
        place = interpolant.positions(tap)
        found = found + call(_GridSampleBackward(TAP_RULE), moved, jnp.zeros(input.shape, moved.dtype), place)[0]
    return found.astype(input.dtype)


def _moved_grid_gradient(grad_output: Any, input: Any, grid: Any, of_grid: Any, rule: Rule) -> Any:
    """Answer how the gradient of the grid moves with the grid."""
    found = jnp.zeros_like(grid)
    interpolant = _interpolant(input, grid, rule)
    if interpolant is None:
        return found
    for tap in interpolant.taps:
        pixels = call(_GridSample(TAP_RULE), input, interpolant.positions(tap))[0]
        product = (grad_output.astype(grid.dtype) * pixels).sum(1)[..., None]
        found = found + product * interpolant.gradient_of_slope(tap, of_grid)
    return interpolant.settled(found)


def _transposed_gradient(cotangents: Tangents, input: Any, grid: Any, rule: Rule) -> Any:
    """Answer the cotangent of grad_output: the derivative of the samples along the cotangents of the gradients."""
    of_input, of_grid = cotangents
    held = Interpolant(jnp, grid, input.shape[2:], rule[1], rule[2]).held
    if of_grid is None:
        return held(call(_GridSample(rule), of_input, grid)[0])
    if of_input is None:
        of_input = jnp.zeros_like(input)
    return held(call(_GridSampleTangent(rule), of_input, of_grid, input, grid)[0])


@dataclass(frozen=True)
class _GridSampleBackwardTangent(Operation):
    """The derivative of the gradients, of (tangents of grad_output, input and grid; these)."""

    moves_grid: bool
    rule: Rule

    name = "the second derivative of grid_sample"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return _GridSampleBackward(self.rule).results(*specs[3:])

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        of_output, of_input, of_grid, grad_output, input, grid = operands
        # The gradient of the input does not depend on the input, that of the grid is linear in it.
        by_input, by_grid = call(_GridSampleBackward(self.rule), of_output, input, grid)
        by_grid = by_grid + call(_GridSampleBackward(self.rule), grad_output, of_input, grid)[1]
        if self.moves_grid:
            by_input = by_input + _moved_input_gradient(grad_output, input, grid, of_grid, self.rule)
            by_grid = by_grid + _moved_grid_gradient(grad_output, input, grid, of_grid, self.rule)
        return by_input, by_grid

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        grad_output, input, grid = operands[3:]
        of_input, of_grid = cotangents
        results: list[Any] = [None] * 6
        if wanted[0]:
            results[0] = _transposed_gradient(cotangents, input, grid, self.rule)
        if wanted[1] and of_grid is not None:
            results[1] = _moved_input_gradient(grad_output, input, grid, of_grid, self.rule)
        if wanted[2]:
            found = None
            if of_input is not None:
                # By the grid, grad_input is what samples of the cotangent are.
                found = call(_GridSampleBackward(self.rule), grad_output, of_input, grid)[1]
            if of_grid is not None:
                moved = _moved_grid_gradient(grad_output, input, grid, of_grid, self.rule)
                found = moved if found is None else found + moved
            results[2] = found
        return results


def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
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
    align_corners : bool
        Whether -1 and 1 are the centres of the corner pixels or, as by default, their outer edges.

    Returns
    -------
    array, [N, C, oh, ow] or [N, C, od, oh, ow]
        Of the input's dtype.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        As ``pybaracuda.grid_sample``, when it is traced.

    Notes
    -----
    The gradients are those of ``pybaracuda.grid_sample_backward``, bit for bit. Forward mode works, too, and second
    derivatives exist in both modes; those are these kernels and arithmetic of XLA's between them.
    """
    check_options(mode, padding_mode, align_corners)
    rule = (mode, padding_mode, bool(align_corners))
    return run(_GridSample(rule), array_of(input), array_of(grid))[0]


@dataclass(frozen=True)
class _AffineGrid(KernelOperation):
    """The grid of theta, or with `backward` the gradient of it: each other's transposes."""

    extents: tuple[int, ...]  # of the grid
    align_corners: bool
    backward: bool = False

    name = "affine_grid"

    def prepare(self, *specs: Spec) -> Prepared:
        ((shape, dtype),) = specs
        prepare = prepare_affine_grid_backward if self.backward else prepare_affine_grid
        return prepare(HOST, shape, dtype, (shape[0], 1, *self.extents), self.align_corners)

    def axes(self, *specs: Spec) -> Axes:
        maps, grids = ("n", "i", "j"), ("n", *"dhw"[-len(self.extents) :], "t")
        operand, result = (grids, maps) if self.backward else (maps, grids)
        return Axes((operand,), (result,), frozenset("n"), frozenset("n"))

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_AffineGrid(self.extents, self.align_corners, not self.backward), cotangents[0])


def affine_grid(theta: Any, size: Sequence[int], align_corners: bool = False) -> Any:
    """Make the sampling grid of affine maps, as ``torch.nn.functional.affine_grid`` does.

    Parameters
    ----------
    theta : array, [N, 2, 3] or [N, 3, 4]
        Affine maps in float32 or float64; float16 and bfloat16 are widened to float32 by a copy.
    size : sequence of 4 or 5 int
        Shape (N, C, H, W) of the image or (N, C, D, H, W) of the volume to sample; C does not matter.
    align_corners : bool
        Whether -1 and 1 are the centres of the outermost samples or, as by default, their outer edges.

    Returns
    -------
    array, [N, H, W, 2] or [N, D, H, W, 3]
        Positions (x, y) or (x, y, z) in theta's dtype.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.affine_grid``, when it is traced.

    Notes
    -----
    Linear, so derivatives of every order and both modes exist. The gradient is that of
    ``pybaracuda.affine_grid_backward``, bit for bit.
    """
    extents = check_size(_call.whole_tuple("size", size))
    theta = array_of(theta)
    shape, _ = spec_of(theta)
    _call.check_shape("theta", shape, affine_grid_shapes(extents)[0])
    return run(_AffineGrid(extents[2:], _call.flag("align_corners", align_corners)), theta)[0]
