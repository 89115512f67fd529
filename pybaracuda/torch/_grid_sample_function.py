# SPDX-License-Identifier: Apache-2.0
"""grid_sample on tensors, with derivatives of every order in both modes; what it computes is in the array function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .._interpolant import TAP_RULE, Interpolant
from .._sampling import Rule
from ..grid_sample import grid_sample as sample
from ..grid_sample import grid_sample_backward
from ._opaque import Differentiable, define

__all__ = ["grid_sample"]


def _run_grid_sample(input: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> Any:
    return sample(input, grid, mode, padding_mode, align_corners)


def _fake_grid_sample(input: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> Any:
    return input.new_empty((*input.shape[:2], *grid.shape[1:-1]))


_grid_sample = define(
    "grid_sample(Tensor input, Tensor grid, str mode, str padding_mode, bool align_corners) -> Tensor",
    _run_grid_sample,
    _fake_grid_sample,
    lambda *args: _samples(*args),
)


def _run_grid_sample_backward(
    grad_output: Any,
    input: Any,
    grid: Any,
    mode: str,
    padding_mode: str,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> Any:
    found = grid_sample_backward(grad_output, input, grid, mode, padding_mode, align_corners, tuple(output_mask))
    # An operator answers tensors: one of no elements where there is none.
    return tuple(like.new_empty(0) if each is None else each for each, like in zip(found, (input, grid), strict=True))


def _fake_grid_sample_backward(
    grad_output: Any,
    input: Any,
    grid: Any,
    mode: str,
    padding_mode: str,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> Any:
    return tuple(
        torch.empty_like(each, memory_format=torch.contiguous_format) if wanted else each.new_empty(0)
        for each, wanted in zip((input, grid), output_mask, strict=True)
    )


_grid_sample_backward = define(
    "grid_sample_backward(Tensor grad_output, Tensor input, Tensor grid, str mode, str padding_mode, "
    "bool align_corners, bool[2] output_mask) -> (Tensor, Tensor)",
    _run_grid_sample_backward,
    _fake_grid_sample_backward,
    lambda *args: _gradients(*args),
)


class _GridSample(Differentiable):
    """Linear in the input, not in the grid."""

    @staticmethod
    def forward(input: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> Any:
        return _grid_sample(input, grid, mode, padding_mode, align_corners)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, grid, *ctx.options = inputs
        ctx.save_for_backward(input, grid)
        ctx.save_for_forward(input, grid)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        mask = list(ctx.needs_input_grad[:2])
        found = _gradients(grad_output, *ctx.saved_tensors, *ctx.options, mask)
        of_input, of_grid = (each if wanted else None for each, wanted in zip(found, mask, strict=True))
        return of_input, of_grid, None, None, None


class _GridSampleBackward(Differentiable):
    """Both gradients, or either; the other one has no elements."""

    @staticmethod
    def forward(
        grad_output: Any,
        input: Any,
        grid: Any,
        mode: str,
        padding_mode: str,
        align_corners: bool,
        output_mask: Sequence[bool],
    ) -> Any:
        return _grid_sample_backward(grad_output, input, grid, mode, padding_mode, align_corners, output_mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.save_for_forward(*inputs[:3])
        *rule, ctx.mask = inputs[3:]
        ctx.rule = tuple(rule)

    @staticmethod
    def backward(ctx: Any, of_input: Any, of_grid: Any) -> Any:
        given, needs = ctx.saved_tensors, ctx.needs_input_grad
        asked = zip((of_input, of_grid), ctx.mask, strict=True)
        # What was not computed has no cotangent.
        of_input, of_grid = (each if wanted else None for each, wanted in asked)
        grad_output, input, grid, of_input, of_grid = _widened(*given, of_input, of_grid)
        found: list[Any] = [None, None, None]
        if needs[0] and (of_input is not None or of_grid is not None):
            held = Interpolant(torch, grid.detach(), input.shape[2:], ctx.rule[1], ctx.rule[2]).held
            found[0] = held(_moved_samples(input, grid, of_input, of_grid, ctx.rule))
        if needs[1] and of_grid is not None:
            found[1] = _moved_input_gradient(grad_output, input, grid, of_grid, ctx.rule)
        if needs[2]:
            found[2] = _moved_grid_gradient(grad_output, input, grid, of_input, of_grid, ctx.rule)
        narrowed = (None if each is None else each.to(like.dtype) for each, like in zip(found, given, strict=True))
        return *narrowed, None, None, None, None


# Compilers take no function that has a rule for forward mode; these have one beside.


class _GridSampleBothModes(_GridSample):
    """The samples outside of compiled programs."""

    @staticmethod
    def jvp(ctx: Any, of_input: Any, of_grid: Any, *options: Any) -> Any:
        input, grid = ctx.saved_tensors
        return _moved_samples(input, grid, of_input, of_grid, tuple(ctx.options))


class _GridSampleBackwardBothModes(_GridSampleBackward):
    """The gradients outside of compiled programs."""

    @staticmethod
    def jvp(ctx: Any, of_output: Any, of_input: Any, of_grid: Any, *options: Any) -> Any:
        given = ctx.saved_tensors
        grad_output, input, grid, of_output, of_input, of_grid = _widened(*given, of_output, of_input, of_grid)
        found: list[Any] = [torch.zeros_like(input), torch.zeros_like(grid)]
        if of_output is not None:
            found = list(_gradients(of_output, input, grid, *ctx.rule, [True, True]))
        if of_grid is not None:
            found[0] = found[0] + _moved_input_gradient(grad_output, input, grid, of_grid, ctx.rule)
        if of_input is not None or of_grid is not None:
            found[1] = found[1] + _moved_grid_gradient(grad_output, input, grid, of_input, of_grid, ctx.rule)
        return tuple(
            each.to(like.dtype) if wanted else each.new_zeros(0, dtype=like.dtype)
            for each, like, wanted in zip(found, given[1:], ctx.mask, strict=True)
        )


def _samples(*args: Any) -> Any:
    return (_GridSample if torch.compiler.is_compiling() else _GridSampleBothModes).apply(*args)


def _gradients(*args: Any) -> Any:
    return (_GridSampleBackward if torch.compiler.is_compiling() else _GridSampleBackwardBothModes).apply(*args)


# What derivatives of the samples and of the gradients are made of. Names follow a direction `of_...` in which an
# operand moves.


def _widened(*tensors: Any) -> Iterator[Any]:
    """Answer tensors in float64 if the first one is, else in float32: sums are rounded once, at the end."""
    wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    return (None if each is None else each.to(wide) for each in tensors)


def _check_order(mode: str) -> None:
    if mode == "bicubic":
        raise NotImplementedError("grid_sample of mode bicubic has no second derivative through its grid")


def _moved_samples(input: Any, grid: Any, of_input: Any, of_grid: Any, rule: Rule) -> Any:
    """Answer how the samples move with the input and the grid; either may rest."""
    found = None
    if of_input is not None or of_grid is None:
        found = _samples(torch.zeros_like(input) if of_input is None else of_input, grid, *rule)
    if of_grid is None:
        return found
    n, c = input.shape[:2]
    # Images of one channel each, so that the gradient of the grid is the derivative of their samples.
    images = input.reshape(n * c, 1, *input.shape[2:])
    grids = grid[:, None].expand(n, c, *grid.shape[1:]).reshape(n * c, *grid.shape[1:])
    ones = input.new_ones((n * c, 1, *grid.shape[1:-1]))
    slopes = _gradients(ones, images, grids, *rule, [False, True])[1]
    along = (slopes.reshape(n, c, *grid.shape[1:]) * of_grid[:, None]).sum(-1).to(input.dtype)
    return along if found is None else found + along


def _moved_input_gradient(grad_output: Any, input: Any, grid: Any, of_grid: Any, rule: Rule) -> Any:
    """Answer how the gradient of the input moves with the grid: what its taps' weights do."""
    mode, padding_mode, align_corners = rule
    _check_order(mode)
    found = torch.zeros_like(input)
    if mode == "nearest" or not input.numel():
        return found
    interpolant = Interpolant(torch, grid, input.shape[2:], padding_mode, align_corners)
    for tap in interpolant.taps:
        weight = interpolant.slope(tap, of_grid)[:, None]
        moved = torch.where(weight == 0, 0.0, grad_output * weight)
        # The values of the input play no part.
        place = interpolant.positions(tap).detach()
        found = found + _gradients(moved, input.detach(), place, *TAP_RULE, [True, False])[0]
    return found


def _moved_grid_gradient(grad_output: Any, input: Any, grid: Any, of_input: Any, of_grid: Any, rule: Rule) -> Any:
    """Answer how the gradient of the grid moves with the input, in which it is linear, and with the grid."""
    found = torch.zeros_like(grid)
    if of_input is not None:
        found = _gradients(grad_output, of_input, grid, *rule, [False, True])[1]
    mode, padding_mode, align_corners = rule
    if of_grid is None or mode == "nearest" or not input.numel():
        return found
    _check_order(mode)
    interpolant = Interpolant(torch, grid, input.shape[2:], padding_mode, align_corners)
    total = torch.zeros_like(grid)
    for tap in interpolant.taps:
        pixels = _samples(input, interpolant.positions(tap).detach(), *TAP_RULE)
        product = (grad_output * pixels).sum(1)[..., None]
        total = total + product * interpolant.gradient_of_slope(tap, of_grid)
    return found + interpolant.settled(total)


def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Any:
    """Sample images or volumes at a grid of positions, as ``torch.nn.functional.grid_sample`` does.

    Parameters
    ----------
    input : Tensor, [N, C, H, W] or [N, C, D, H, W]
        Images or volumes in float32, float64, float16 or bfloat16.
    grid : Tensor, [N, oh, ow, 2] or [N, od, oh, ow, 3]
        Positions (x, y) or (x, y, z) in [-1, 1]. float64 for float64 input, else float32; narrower floats are widened
        by a copy.
    mode : {"bilinear", "nearest", "bicubic"}
        "bilinear" is trilinear for volumes, which have no "bicubic".
    padding_mode : {"zeros", "border", "reflection"}
    align_corners : bool
        Whether -1 and 1 are the centres of the corner pixels or, as by default, their outer edges.

    Returns
    -------
    Tensor, [N, C, oh, ow] or [N, C, od, oh, ow]
        Of the input's dtype and device.

    Raises
    ------
    UnsupportedError, TypeError, ValueError
        As ``pybaracuda.grid_sample``.

    Notes
    -----
    The gradients are those of ``pybaracuda.grid_sample_backward``, bit for bit: the same bits on every run, thread
    count, GPU and backend. Derivatives of every order exist, in reverse and in forward mode; those beyond the first are
    these kernels and arithmetic of PyTorch's between them, without atomics.
    """
    return _samples(input, grid, mode, padding_mode, align_corners)
