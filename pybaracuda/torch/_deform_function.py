# SPDX-License-Identifier: Apache-2.0
"""Deformable convolution of tensors, with gradients, and its route: our sampling, and PyTorch's products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .._call import extent_pair
from ..deform_im2col import deform_im2col, deform_im2col_backward, deform_im2col_offset_backward
from ._opaque import Differentiable, define
from ._route import of_floats, route

__all__ = ["deform_conv2d"]

# Bytes of columns at a time, in images; one image's are made whole.
_MOST_COLUMNS = 1 << 28

_Pair = Sequence[int]


def _groups(input: Any, weight: Any) -> int:
    """Answer the groups of a convolution, whose weights say how many channels each has."""
    if input.dim() != 4:
        raise ValueError(f"input has shape {tuple(input.shape)}; wanted [N, C, H, W]")
    if weight.dim() != 4 or min(weight.shape) < 1:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; wanted [OC, C / groups, KH, KW]")
    if weight.dtype != input.dtype:
        raise TypeError(f"weight has dtype {weight.dtype}; wanted {input.dtype}, the dtype of input")
    groups, rest = divmod(input.shape[1], weight.shape[1])
    if rest or groups < 1 or weight.shape[0] % groups:
        raise ValueError(f"weight has shape {tuple(weight.shape)}, which does not fit {input.shape[1]} channels")
    return int(groups)


def _pieces(input: Any, offset: Any, weight: Any) -> Iterator[slice]:
    """Answer as many images at a time as their columns may have bytes; at least one."""
    samples = weight.shape[2] * weight.shape[3] * offset.shape[2] * offset.shape[3]
    each = max(input.shape[1] * samples * input.element_size(), 1)
    count = max(_MOST_COLUMNS // each, 1)
    for first in range(0, input.shape[0], count):
        yield slice(first, first + count)


def _without_autocast(tensor: Any) -> Any:
    """Let products have the dtype of their operands, as the answer's shape was told."""
    return torch.autocast(tensor.device.type, enabled=False)


def _run(input: Any, offset: Any, weight: Any, mask: Any, stride: _Pair, padding: _Pair, dilation: _Pair) -> Any:
    groups = _groups(input, weight)
    window = tuple(weight.shape[2:]), tuple(stride), tuple(padding), tuple(dilation)
    flat = weight.reshape(groups, weight.shape[0] // groups, -1)
    outputs = []
    with _without_autocast(input):
        for images in _pieces(input, offset, weight):
            masks = None if mask is None else mask[images]
            columns = deform_im2col(input[images], offset[images], *window, masks)
            product = torch.matmul(flat, columns.reshape(columns.shape[0], *flat.shape[::2], -1))
            outputs.append(product.reshape(-1, weight.shape[0], *offset.shape[2:]))
    if not outputs:
        return _fake(input, offset, weight)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _fake(input: Any, offset: Any, weight: Any, *rest: Any) -> Any:
    return input.new_empty((input.shape[0], weight.shape[0], *offset.shape[2:]))


_deform_conv2d = define(
    "deform_conv2d(Tensor input, Tensor offset, Tensor weight, Tensor? mask, int[2] stride, int[2] padding, "
    "int[2] dilation) -> Tensor",
    _run,
    _fake,
    lambda *args: _DeformConv2d.apply(*args),
)


def _run_backward(
    grad_output: Any,
    input: Any,
    offset: Any,
    weight: Any,
    mask: Any,
    stride: _Pair,
    padding: _Pair,
    dilation: _Pair,
    output_mask: Sequence[bool],
) -> Any:
    of_input, of_offset, of_weight, of_mask = output_mask
    groups = _groups(input, weight)
    window = tuple(weight.shape[2:]), tuple(stride), tuple(padding), tuple(dilation)
    flat = weight.reshape(groups, weight.shape[0] // groups, -1)
    answers = _fake_backward(grad_output, input, offset, weight, mask, stride, padding, dilation, output_mask)
    grad_input, grad_offset, grad_weight, grad_mask = answers
    wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
    by_weight = torch.zeros(flat.shape, dtype=wide, device=weight.device)
    with _without_autocast(input):
        for images in _pieces(input, offset, weight):
            masks = None if mask is None else mask[images]
            moves = offset[images]
            gradient = grad_output[images].reshape(moves.shape[0], *flat.shape[:2], -1)
            if of_input or of_offset or of_mask:
                columns = torch.matmul(flat.transpose(1, 2), gradient)
                columns = columns.reshape(moves.shape[0], -1, columns.shape[-1])
            if of_input:
                grad_input[images] = deform_im2col_backward(columns, moves, tuple(input[images].shape), *window, masks)
            if of_offset or of_mask:
                found = deform_im2col_offset_backward(columns, input[images], moves, *window, masks)
                by_offset, by_mask = (found, None) if mask is None else found
                if of_offset:
                    grad_offset[images] = by_offset
                if of_mask and mask is not None:
                    grad_mask[images] = by_mask
            if of_weight:
                columns = deform_im2col(input[images], moves, *window, masks)
                columns = columns.reshape(moves.shape[0], *flat.shape[::2], -1)
                by_weight += torch.matmul(gradient, columns.transpose(2, 3)).sum(0, dtype=wide)
    if of_weight:
        grad_weight.copy_(by_weight.reshape(weight.shape))
    return answers


def _fake_backward(
    grad_output: Any, input: Any, offset: Any, weight: Any, mask: Any, *rest: Any
) -> tuple[Any, Any, Any, Any]:
    # An operator answers tensors: one of no elements where there is none.
    given = (input, offset, weight, input.new_empty(0) if mask is None else mask)
    grads = [
        torch.empty_like(each, memory_format=torch.contiguous_format) if wanted else each.new_empty(0)
        for each, wanted in zip(given, rest[-1], strict=True)
    ]
    return grads[0], grads[1], grads[2], grads[3]


_deform_conv2d_backward = define(
    "deform_conv2d_backward(Tensor grad_output, Tensor input, Tensor offset, Tensor weight, Tensor? mask, "
    "int[2] stride, int[2] padding, int[2] dilation, bool[4] output_mask) -> (Tensor, Tensor, Tensor, Tensor)",
    _run_backward,
    _fake_backward,
    lambda *args: _DeformConv2dBackward.apply(*args),
)


class _DeformConv2d(Differentiable):
    """Columns are made again for the gradient of the weights: nobody keeps them."""

    @staticmethod
    def forward(input: Any, offset: Any, weight: Any, mask: Any, stride: _Pair, padding: _Pair, dilation: _Pair) -> Any:
        return _deform_conv2d(input, offset, weight, mask, stride, padding, dilation)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, stride, padding, dilation = inputs
        ctx.save_for_backward(*tensors)
        ctx.window = stride, padding, dilation

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        wanted = list(ctx.needs_input_grad[:4])
        found = _DeformConv2dBackward.apply(grad_output, *ctx.saved_tensors, *ctx.window, wanted)
        answers = (each if asked else None for each, asked in zip(found, wanted, strict=True))
        return *answers, None, None, None


class _DeformConv2dBackward(Differentiable):
    """The gradients, which end here, as torchvision's do."""

    @staticmethod
    def forward(
        grad_output: Any,
        input: Any,
        offset: Any,
        weight: Any,
        mask: Any,
        stride: _Pair,
        padding: _Pair,
        dilation: _Pair,
        output_mask: Sequence[bool],
    ) -> Any:
        return _deform_conv2d_backward(grad_output, input, offset, weight, mask, stride, padding, dilation, output_mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("deform_conv2d has no second derivative")


def deform_conv2d(
    input: Any,
    offset: Any,
    weight: Any,
    bias: Any = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    mask: Any = None,
) -> Any:
    """Convolve at positions that offsets move, as ``torchvision.ops.deform_conv2d`` does.

    Parameters
    ----------
    input : Tensor, [N, C, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    offset : Tensor, [N, 2 * G * KH * KW, OH, OW]
        Where each sample lies from its tap, in pixels, y before x, for each of G groups of channels. float64 for
        float64 input, else float32; narrower floats are widened by a copy.
    weight : Tensor, [OC, C / groups, KH, KW]
        Of the input's dtype.
    bias : Tensor, [OC], optional
    stride, padding, dilation : int or (int, int)
        As convolutions have them.
    mask : Tensor, [N, G * KH * KW, OH, OW], optional
        A number by which each sample is multiplied (Deformable ConvNets v2); floats as for `offset`.

    Returns
    -------
    Tensor, [N, OC, OH, OW]
        Of the input's dtype and device.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.deform_im2col``, or if the weights do not fit.
    NotImplementedError
        In a second derivative; torchvision has none either.

    Notes
    -----
    All operands have gradients. The sampling, and its gradients of given columns, have the bits of
    ``pybaracuda.deform_im2col`` and its backwards: the same on every run, thread count, GPU and backend. The products
    with the weights are ``torch.matmul``'s, and so are their bits. Columns take at most 256 MiB, or one image's.
    """
    pairs = (
        extent_pair("stride", stride),
        extent_pair("padding", padding),
        extent_pair("dilation", dilation),
    )
    output = _DeformConv2d.apply(input, offset, weight, mask, *pairs)
    return output if bias is None else output + bias.reshape(-1, 1, 1)


def _refusal(input: Any, weight: Any, offset: Any, mask: Any, bias: Any, *numbers: Any) -> str:
    *window, groups, offset_groups, use_mask = numbers
    if not input.dim() == weight.dim() == offset.dim() == 4 or bias.shape != weight.shape[:1]:
        return "shapes that do not fit"
    taps = weight.shape[2] * weight.shape[3]
    if min(weight.shape) < 1 or input.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        return "shapes that do not fit"
    positions = [
        (input.shape[2 + axis] + 2 * window[2 + axis] - window[4 + axis] * (weight.shape[2 + axis] - 1) - 1)
        // max(window[axis], 1)
        + 1
        for axis in (0, 1)
    ]
    if min(window[:2] + window[4:]) < 1 or min(window[2:4]) < 0 or offset_groups < 1 or input.shape[1] % offset_groups:
        return "shapes that do not fit"
    if tuple(offset.shape) != (input.shape[0], 2 * offset_groups * taps, *positions):
        return "shapes that do not fit"
    if use_mask and tuple(mask.shape) != (input.shape[0], offset_groups * taps, *positions):
        return "shapes that do not fit"
    wrong = of_floats(input, weight, offset, bias, *([mask] if use_mask else []))
    return wrong or ("" if input.numel() and offset.numel() else "an empty tensor")


_CONDITIONS = "float32, float64, float16, bfloat16"


@route("torchvision::deform_conv2d", _refusal, _CONDITIONS)
def _torchvision_deform_conv2d(input: Any, weight: Any, offset: Any, mask: Any, bias: Any, *numbers: Any) -> Any:
    stride, padding, dilation = numbers[:2], numbers[2:4], numbers[4:6]
    output = _run(input, offset, weight, mask if numbers[-1] else None, stride, padding, dilation)
    return output + bias.reshape(-1, 1, 1)


def _backward_refusal(grad: Any, input: Any, weight: Any, offset: Any, *rest: Any) -> str:
    wrong = _refusal(input, weight, offset, *rest)
    if not wrong and tuple(grad.shape) != (input.shape[0], weight.shape[0], *offset.shape[2:]):
        return "shapes that do not fit"
    return wrong or of_floats(input, grad)


@route("torchvision::_deform_conv2d_backward", _backward_refusal, _CONDITIONS, group="deform_conv2d")
def _torchvision_deform_conv2d_backward(
    grad: Any, input: Any, weight: Any, offset: Any, mask: Any, bias: Any, *numbers: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """All five, whichever are asked for, as torchvision's operator answers them."""
    stride, padding, dilation, use_mask = numbers[:2], numbers[2:4], numbers[4:6], numbers[-1]
    masks = mask if use_mask else None
    found = _run_backward(
        grad, input, offset, weight, masks, stride, padding, dilation, [True, True, True, bool(use_mask)]
    )
    by_mask = found[3] if use_mask else torch.zeros_like(mask)
    return found[0], found[2], found[1], by_mask, grad.sum((0, 2, 3))
