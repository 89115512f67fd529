# SPDX-License-Identifier: Apache-2.0
"""Interpolation in JAX, with its derivatives; what it computes is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._arrays import HOST
from .._call import Prepared
from ..interpolate import prepare, prepare_backward, resolved
from ._operation import Axes, KernelOperation, Spec, Tangents
from ._primitive import array_of, call, run

__all__ = ["interpolate"]


@dataclass(frozen=True)
class _Interpolate(KernelOperation):
    """Images of another size, or with `backward` the gradient of them: each other's transposes."""

    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    scales: tuple[float, ...]
    mode: str
    align_corners: bool
    backward: bool = False

    name = "interpolate"

    def prepare(self, *specs: Spec) -> Prepared:
        ((shape, dtype),) = specs
        options = (self.scales, self.mode, self.align_corners)
        if self.backward:
            return prepare_backward(HOST, shape, dtype, (*shape[:2], *self.input_size), *options)
        return prepare(HOST, shape, dtype, self.output_size, *options)

    def axes(self, *specs: Spec) -> Axes:
        rank = len(self.input_size)
        operand, result = (("n", "c", *(f"{side}{axis}" for axis in range(rank))) for side in "io")
        split = frozenset("nc")
        return Axes((operand,), (result,), split, split)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(replace(self, backward=not self.backward), cotangents[0])


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
    input : array, [N, C, W], [N, C, H, W] or [N, C, D, H, W]
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
    array, [N, C, *size]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.interpolate``, when it is traced.

    Notes
    -----
    Linear, so derivatives of every order and both modes exist; the gradient is that of
    ``pybaracuda.interpolate_backward``, bit for bit.
    """
    array = array_of(input)
    options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    extents, scales, kind, aligned = resolved(array.shape, *options)
    return run(_Interpolate(array.shape[2:], extents, scales, kind, aligned), array)[0]
