# SPDX-License-Identifier: Apache-2.0
"""Deformable convolution in JAX: our sampling with its derivatives, and JAX's products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from .._arrays import HOST
from .._call import Prepared
from .._windows import Windows
from ..deform_im2col import prepare, prepare_backward, prepare_offset_backward, windows_of_kernel
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents
from ._primitive import array_of, call, run

__all__ = ["deform_conv2d", "deform_im2col"]

_IMAGES, _COLUMNS = ("n", "c", "h", "w"), ("n", "k", "s")
_OFFSETS, _MASKS = ("n", "m", "p", "q"), ("n", "t", "p", "q")


def _moves(specs: Sequence[Spec]) -> tuple[Spec, Spec | None]:
    """Answer what the checks want of offsets and mask, which is there or not."""
    return specs[0], specs[1] if len(specs) > 1 else None


def _names(first: Sequence[tuple[str, ...]], operands: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Name the axes of operands that end with offsets and perhaps a mask."""
    return (*first, *(_OFFSETS, _MASKS)[: len(operands) - len(first)])


_IMAGES_ALONE = frozenset("n")


@dataclass(frozen=True)
class _Columns(KernelOperation):
    """The columns of (input, offset), or of (input, offset, mask); linear in the input."""

    windows: Windows

    name = "deform_im2col"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare(HOST, *specs[0], self.windows, *_moves(specs[1:]))

    def axes(self, *specs: Spec) -> Axes:
        # An image's channels and taps are one axis of its columns.
        return Axes(_names((_IMAGES,), specs), (_COLUMNS,), _IMAGES_ALONE, _IMAGES_ALONE)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        of_input, *of_moves = tangents
        if all(each is None for each in of_moves):
            return call(self, of_input, *operands[1:])
        given = [jnp.zeros_like(x) if dx is None else dx for dx, x in zip(tangents, operands, strict=True)]
        return call(_ColumnsTangent(self.windows), *given, *operands)

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        shape = operands[0][0]
        return (
            call(_ByInput(self.windows, shape[1:]), cotangents[0], *operands[1:])[0],
            *(None for _ in operands[1:]),
        )


@dataclass(frozen=True)
class _ColumnsTangent(Operation):
    """The derivative by all, of (their tangents; input, offset and perhaps a mask)."""

    windows: Windows

    name = "deform_im2col"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return _Columns(self.windows).results(*specs[len(specs) // 2 :])

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        half = len(operands) // 2
        of_input, *of_moves = operands[:half]
        input, *moves = operands[half:]
        n, c, h, w = input.shape
        taps = self.windows.kernel[0] * self.windows.kernel[1]
        groups, size = moves[0].shape[1] // (2 * taps), moves[0].shape[2:]

        def by_channel(moved: Any) -> Any:
            """Repeat what a group's channels share, an image of one channel for each."""
            each = moved.reshape((n, groups, 1, -1, *size))
            return jnp.broadcast_to(each, (n, groups, c // groups, *each.shape[3:])).reshape((n * c, -1, *size))

        # Images of one channel each, so that the gradients of the moves are the derivatives of their columns.
        images, alone = input.reshape((n * c, 1, h, w)), [by_channel(each) for each in moves]
        ones = jnp.ones((n * c, taps, size[0] * size[1]), input.dtype)
        slopes = call(_ByMoves(self.windows), ones, images, *alone)
        along = (slopes[0] * by_channel(of_moves[0])).reshape((n * c, taps, 2, *size)).sum(2)
        if len(moves) > 1:
            along = along + slopes[1] * by_channel(of_moves[1])
        (columns,) = call(_Columns(self.windows), of_input, *moves)
        return [columns + along.reshape(columns.shape).astype(columns.dtype)]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        half = len(operands) // 2
        input, *moves = operands[half:]
        by_input = None
        if wanted[0]:
            (by_input,) = call(_ByInput(self.windows, input.shape[1:]), cotangents[0], *moves)
        by_moves: Sequence[Any] = (None,) * len(moves)
        if any(wanted[1:half]):
            by_moves = call(_ByMoves(self.windows), cotangents[0], input, *moves)
        return by_input, *by_moves, *(None,) * half


@dataclass(frozen=True)
class _ByInput(KernelOperation):
    """The gradient of the input by (grad_columns, offset and perhaps a mask), linear in the first."""

    windows: Windows
    shape: tuple[int, ...]  # of an image

    name = "the gradient of deform_im2col"

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), *moves = specs
        return prepare_backward(HOST, shape, dtype, (shape[0], *self.shape), self.windows, *_moves(moves))

    def axes(self, *specs: Spec) -> Axes:
        return Axes(_names((_COLUMNS,), specs), (_IMAGES,), _IMAGES_ALONE, _IMAGES_ALONE)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        if any(each is not None for each in tangents[1:]):
            raise NotImplementedError("deform_im2col has no second derivative by its offsets and its mask")
        return call(self, tangents[0], *operands[1:])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_Columns(self.windows), cotangents[0], *operands[1:])[0], *(None for _ in operands[1:])


@dataclass(frozen=True)
class _ByMoves(KernelOperation):
    """The gradients of the offsets and of the mask, if there is one, by (grad_columns, input, offset and mask)."""

    windows: Windows

    name = "the gradient of deform_im2col by its offsets"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_offset_backward(HOST, *specs[0], *specs[1], self.windows, *_moves(specs[2:]))

    def axes(self, *specs: Spec) -> Axes:
        names = _names((_COLUMNS, _IMAGES), specs)
        return Axes(names, names[2:], _IMAGES_ALONE, _IMAGES_ALONE)


def deform_im2col(
    input: Any,
    offset: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    mask: Any = None,
) -> Any:
    """Sample the columns of a deformable convolution, as ``torchvision.ops.deform_conv2d`` does inside.

    Parameters
    ----------
    input : array, [N, C, H, W]
        Feature maps in float32, float64, float16 or bfloat16.
    offset : array, [N, 2 * G * KH * KW, OH, OW]
        Where each sample lies from its tap, in pixels, y before x, for each of G groups of channels. float64 for
        float64 input, else float32; narrower floats are widened by a copy.
    kernel_size : int or (int, int)
        Taps KH and KW of the kernel.
    stride, padding, dilation : int or (int, int)
        As convolutions have them.
    mask : array, [N, G * KH * KW, OH, OW], optional
        A number by which each sample is multiplied; floats as for `offset`.

    Returns
    -------
    array, [N, C * KH * KW, OH * OW]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.deform_im2col``, when it is traced.

    Notes
    -----
    The gradients are those of ``pybaracuda.deform_im2col_backward`` and ``deform_im2col_offset_backward``, bit for bit.
    Forward mode works, too; second derivatives exist by the input alone.
    """
    windows = windows_of_kernel(kernel_size, stride, padding, dilation)
    moves = [array_of(each) for each in (offset, mask) if each is not None]
    return run(_Columns(windows), array_of(input), *moves)[0]


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
    input, offset, stride, padding, dilation, mask
        As :func:`deform_im2col` takes them.
    weight : array, [OC, C / groups, KH, KW]
        Of the input's dtype.
    bias : array, [OC], optional

    Returns
    -------
    array, [N, OC, OH, OW]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.deform_im2col``, or if the weights do not fit, when it is traced.

    Notes
    -----
    Columns are :func:`deform_im2col`'s, bit for bit, and so are their gradients; the products with the weights are
    JAX's, and so are their bits. All operands have derivatives.
    """
    image, weights = array_of(input), array_of(weight)
    if weights.ndim != 4 or min(weights.shape) < 1:
        raise ValueError(f"weight has shape {weights.shape}; wanted [OC, C / groups, KH, KW]")
    if weights.dtype != image.dtype:
        raise TypeError(f"weight has dtype {weights.dtype}; wanted {image.dtype}, the dtype of input")
    columns = deform_im2col(image, offset, weights.shape[2:], stride, padding, dilation, mask)
    groups, rest = divmod(image.shape[1], weights.shape[1])
    if rest or groups < 1 or weights.shape[0] % groups:
        raise ValueError(f"weight has shape {weights.shape}, which does not fit {image.shape[1]} channels")
    flat = weights.reshape((groups, weights.shape[0] // groups, -1))
    output = jnp.matmul(flat, columns.reshape((image.shape[0], groups, flat.shape[2], -1)))
    output = output.reshape((image.shape[0], weights.shape[0], *jnp.shape(offset)[2:]))
    return output if bias is None else output + jnp.reshape(bias, (-1, 1, 1))
