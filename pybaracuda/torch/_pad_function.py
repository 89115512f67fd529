# SPDX-License-Identifier: Apache-2.0
"""Padding of tensors, with gradients; what it computes is in the array function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..pad import pad as pad_array
from ..pad import pad_backward
from ._opaque import Differentiable, define

__all__ = ["pad"]


def _run_pad(input: Any, low: Sequence[int], high: Sequence[int], mode: str, value: Any) -> Any:
    return pad_array(input, tuple(low), tuple(high), mode, value)


def _fake_pad(input: Any, low: Sequence[int], high: Sequence[int], mode: str, value: Any) -> Any:
    return input.new_empty([extent + a + b for extent, a, b in zip(input.shape, low, high, strict=True)])


_pad = define(
    "pad(Tensor input, SymInt[] pad_low, SymInt[] pad_high, str mode, Scalar value) -> Tensor",
    _run_pad,
    _fake_pad,
    lambda *args: _Pad.apply(*args),
)


def _run_pad_backward(grad_output: Any, low: Sequence[int], high: Sequence[int], mode: str) -> Any:
    return pad_backward(grad_output, tuple(low), tuple(high), mode)


def _fake_pad_backward(grad_output: Any, low: Sequence[int], high: Sequence[int], mode: str) -> Any:
    shape = [extent - a - b for extent, a, b in zip(grad_output.shape, low, high, strict=True)]
    return grad_output.new_empty(shape)


_pad_backward = define(
    "pad_backward(Tensor grad_output, SymInt[] pad_low, SymInt[] pad_high, str mode) -> Tensor",
    _run_pad_backward,
    _fake_pad_backward,
    lambda *args: _PadBackward.apply(*args),
)


class _Pad(Differentiable):
    """Linear, but for a constant that is not 0."""

    @staticmethod
    def forward(input: Any, low: Sequence[int], high: Sequence[int], mode: str, value: Any) -> Any:
        return _pad(input, low, high, mode, value)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.low, ctx.high, ctx.mode, _ = inputs

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        low, high = ctx.low, ctx.high
        if not grad_output.is_complex():
            return _PadBackward.apply(grad_output, low, high, ctx.mode), None, None, None, None
        # The real and the imaginary part, which stand beside each other.
        parts = torch.view_as_real(grad_output.resolve_conj())
        grad = _PadBackward.apply(parts, (*low, 0), (*high, 0), ctx.mode)
        return torch.view_as_complex(grad), None, None, None, None


class _PadBackward(Differentiable):
    """The adjoint of padding with zeros, or of another mode."""

    @staticmethod
    def forward(grad_output: Any, low: Sequence[int], high: Sequence[int], mode: str) -> Any:
        return _pad_backward(grad_output, low, high, mode)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, *ctx.options = inputs

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _Pad.apply(grad, *ctx.options, 0), None, None, None


def _pads(pads: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Answer one number for each axis."""
    return tuple(pads) if hasattr(pads, "__iter__") else (pads,) * rank


def pad(
    input: Any,
    pad_low: int | Sequence[int],
    pad_high: int | Sequence[int],
    mode: str = "constant",
    value: Any = 0,
) -> Any:
    """Add elements before and after a tensor's axes, or cut them off.

    Parameters
    ----------
    input : Tensor
        Up to 8 axes, of any number type or bool. Its strides are used as they are, no copy is made.
    pad_low, pad_high : int or sequence of int
        Elements to add before and after each axis, first axis first (the other order than
        ``torch.nn.functional.pad``'s); an int is for every axis. Any width: wider than the tensor too. A negative
        number cuts off that many, before anything is added.
    mode : {"constant", "reflect", "replicate", "circular", "symmetric"}
        As ``pybaracuda.pad`` has them.
    value : number
        What mode constant adds, rounded to a float or complex dtype; integers and bool must hold it.

    Returns
    -------
    Tensor
        Of the input's dtype and device, extents input + pad_low + pad_high.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.pad``.

    Notes
    -----
    Derivatives of every order exist for floats and complex64 and complex128 (of these for up to 7 axes). The gradient
    is that of ``pybaracuda.pad_backward``, bit for bit: the same bits on every run, thread count, GPU and backend.
    """
    rank = input.dim()
    return _Pad.apply(input, _pads(pad_low, rank), _pads(pad_high, rank), mode, value)
