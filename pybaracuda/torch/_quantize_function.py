# SPDX-License-Identifier: Apache-2.0
"""Dequantization of tensors, with a gradient for the scales; what it computes is in the array function."""

from __future__ import annotations

from typing import Any

import torch

from ..dequantize import dequantize_per_channel as dequantize
from ._opaque import Differentiable, define
from ._segment_functions import segment_sum

__all__ = ["dequantize_per_channel"]


def _run_dequantize(input: Any, scale: Any, zero_point: Any, axis: int) -> Any:
    return dequantize(input, scale, zero_point, axis)


def _fake_dequantize(input: Any, scale: Any, zero_point: Any, axis: int) -> Any:
    return torch.empty_like(input, dtype=scale.dtype, memory_format=torch.contiguous_format)


_dequantize = define(
    "dequantize_per_channel(Tensor input, Tensor scale, Tensor zero_point, int axis) -> Tensor",
    _run_dequantize,
    _fake_dequantize,
    lambda *args: _Dequantize.apply(*args),
)


class _Dequantize(Differentiable):
    """Linear in the scales."""

    @staticmethod
    def forward(input: Any, scale: Any, zero_point: Any, axis: int) -> Any:
        return _dequantize(input, scale, zero_point, axis)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, scale, zero_point, ctx.axis = inputs
        ctx.save_for_backward(input, zero_point)
        ctx.dtype = scale.dtype

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        input, zero_point = ctx.saved_tensors
        wide = torch.float64 if ctx.dtype == torch.float64 else torch.float32
        # A row for each element of a channel, all in one segment, whose sum has one order on every device.
        steps = input.movedim(ctx.axis, -1).to(torch.int64) - zero_point.to(torch.int32)
        rows = (steps.to(wide) * grad_output.movedim(ctx.axis, -1).to(wide)).reshape(-1, zero_point.shape[0])
        ids = torch.zeros(rows.shape[0], dtype=torch.int32, device=rows.device)
        grad = segment_sum(rows, ids, 1, indices_are_sorted=True)
        return None, grad[0].to(ctx.dtype), None, None


def dequantize_per_channel(input: Any, scale: Any, zero_point: Any, axis: int) -> Any:
    """Turn integers into floats with one scale and zero point per channel, as ONNX DequantizeLinear does.

    Parameters
    ----------
    input : Tensor
        Quantized values in int8 or uint8, at least one axis.
    scale : Tensor, [input.shape[axis]]
        Scale of each channel in float32, float64, float16 or bfloat16.
    zero_point : Tensor, [input.shape[axis]]
        Zero point of each channel in int32; narrower integers are widened by a copy. int64 is converted by a copy, in
        which a value outside int32 wraps.
    axis : int
        The channel axis; negative counts from the end.

    Returns
    -------
    Tensor
        (input - zero_point) * scale, rounded once, in the scale's dtype.

    Raises
    ------
    UnsupportedError, TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.dequantize_per_channel``.

    Notes
    -----
    Integers have no gradient; ``pybaracuda.dequantize_per_channel_backward`` is the one that they would have. The
    scales have one, of every order: a sum over each channel's elements in row-major order, in float32 for 16-bit
    scales. The same bits on every run, thread count, GPU and backend.
    """
    return _Dequantize.apply(input, scale, zero_point, axis)
