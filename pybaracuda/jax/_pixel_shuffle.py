# SPDX-License-Identifier: Apache-2.0
"""pixel_shuffle and pixel_unshuffle in JAX, each the other's derivative; what they move is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import _call
from .._arrays import HOST
from .._call import Prepared
from ..pixel_shuffle import prepare, prepare_unshuffle
from ._operation import Axes, KernelOperation, Spec, Tangents
from ._primitive import array_of, call, run

__all__ = ["pixel_shuffle", "pixel_unshuffle"]


@dataclass(frozen=True)
class _PixelShuffle(KernelOperation):
    """Channels become pixels, or with `undo` pixels become channels: each other's transposes."""

    factor: int
    undo: bool = False

    name = "pixel_shuffle"

    def prepare(self, *specs: Spec) -> Prepared:
        ((shape, dtype),) = specs
        return (prepare_unshuffle if self.undo else prepare)(HOST, shape, dtype, self.factor)

    def axes(self, *specs: Spec) -> Axes:
        ((shape, _),) = specs
        batch = tuple(f"n{axis}" for axis in range(len(shape) - 3))
        split = frozenset(batch)
        return Axes(((*batch, "c", "h", "w"),), ((*batch, "k", "y", "x"),), split, split)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_PixelShuffle(self.factor, not self.undo), cotangents[0])


def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """Turn channels into pixels, as ``torch.nn.functional.pixel_shuffle`` does.

    Parameters
    ----------
    input : array, [..., C * upscale_factor**2, H, W]
        Images in float32, float64, float16 or bfloat16, any number of axes before the channels.
    upscale_factor : int
        How many times as high and as wide the result is; positive.

    Returns
    -------
    array, [..., C, H * upscale_factor, W * upscale_factor]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.pixel_shuffle``, when it is traced.

    Notes
    -----
    Linear, so derivatives of every order and both modes exist; the gradient is :func:`pixel_unshuffle`.
    """
    return run(_PixelShuffle(_call.whole("upscale_factor", upscale_factor)), array_of(input))[0]


def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """Turn pixels into channels, as ``torch.nn.functional.pixel_unshuffle`` does: undo :func:`pixel_shuffle`.

    Parameters
    ----------
    input : array, [..., C, H * downscale_factor, W * downscale_factor]
        Images in float32, float64, float16 or bfloat16, any number of axes before the channels.
    downscale_factor : int
        How many times as high and as wide the input is as the result; positive.

    Returns
    -------
    array, [..., C * downscale_factor**2, H, W]
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.pixel_unshuffle``, when it is traced.

    Notes
    -----
    Linear, so derivatives of every order and both modes exist; the gradient is :func:`pixel_shuffle`.
    """
    return run(_PixelShuffle(_call.whole("downscale_factor", downscale_factor), undo=True), array_of(input))[0]
