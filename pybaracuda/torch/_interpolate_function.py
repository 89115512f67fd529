# SPDX-License-Identifier: Apache-2.0
"""Interpolation of tensors, with gradients; what it computes is in the array function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..interpolate import resize, resize_backward, resolved
from ._opaque import Differentiable, define

__all__ = ["interpolate"]


def _run(input: Any, size: Sequence[int], scales: Sequence[float], mode: str, align_corners: bool) -> Any:
    return resize(input, tuple(size), tuple(scales), mode, align_corners)


def _fake(input: Any, size: Sequence[int], scales: Sequence[float], mode: str, align_corners: bool) -> Any:
    return input.new_empty([*input.shape[:2], *size])


_interpolate = define(
    "interpolate(Tensor input, SymInt[] size, float[] scales, str mode, bool align_corners) -> Tensor",
    _run,
    _fake,
    lambda *args: Interpolate.apply(*args),
)


def _run_backward(
    grad_output: Any, input_shape: Sequence[int], scales: Sequence[float], mode: str, align_corners: bool
) -> Any:
    return resize_backward(grad_output, tuple(input_shape), tuple(scales), mode, align_corners)


def _fake_backward(
    grad_output: Any, input_shape: Sequence[int], scales: Sequence[float], mode: str, align_corners: bool
) -> Any:
    return grad_output.new_empty(input_shape)


_interpolate_backward = define(
    "interpolate_backward(Tensor grad_output, SymInt[] input_shape, float[] scales, str mode, bool align_corners) "
    "-> Tensor",
    _run_backward,
    _fake_backward,
    lambda *args: _InterpolateBackward.apply(*args),
)


class Interpolate(Differentiable):
    """Linear; the mode is the descriptor's, and scales may be none."""

    @staticmethod
    def forward(input: Any, size: Sequence[int], scales: Sequence[float], mode: str, align_corners: bool) -> Any:
        return _interpolate(input, size, scales, mode, align_corners)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, _, *ctx.options = inputs
        ctx.shape = tuple(input.shape)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return _InterpolateBackward.apply(grad_output, ctx.shape, *ctx.options), None, None, None, None


class _InterpolateBackward(Differentiable):
    """The adjoint."""

    @staticmethod
    def forward(
        grad_output: Any, input_shape: Sequence[int], scales: Sequence[float], mode: str, align_corners: bool
    ) -> Any:
        return _interpolate_backward(grad_output, input_shape, scales, mode, align_corners)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, _, *ctx.options = inputs
        ctx.size = tuple(grad_output.shape[2:])

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return Interpolate.apply(grad, ctx.size, *ctx.options), None, None, None, None


def interpolate(
    input: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Bring images, signals or volumes to another size, as ``torch.nn.functional.interpolate`` does.

    Parameters
    ----------
    input : Tensor, [N, C, W], [N, C, H, W] or [N, C, D, H, W]
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

    Returns
    -------
    Tensor, [N, C, *size]
        Of the input's dtype and device, contiguous.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.interpolate``.

    Notes
    -----
    Derivatives of every order exist. The gradient is that of ``pybaracuda.interpolate_backward``, bit for bit: the same
    bits on every run, thread count, GPU and backend.
    """
    options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    return Interpolate.apply(input, *resolved(tuple(input.shape), *options))
