# SPDX-License-Identifier: Apache-2.0
"""Dequantization in JAX, with a gradient for the scales; what it computes is in the array function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .._arrays import HOST
from .._call import Prepared, whole
from ..dequantize import check_axis, prepare
from ._operation import Axes, KernelOperation, Spec, Tangents, Unfold
from ._primitive import array_of, call, run
from ._rows import Segments

__all__ = ["dequantize_per_channel"]


@dataclass(frozen=True)
class _Dequantize(KernelOperation):
    """Floats of (input, scale, zero_point), linear in the scales; `axis` is not negative."""

    axis: int

    name = "dequantize_per_channel"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare(HOST, *(each for spec in specs for each in spec), self.axis)

    def axes(self, *specs: Spec) -> Axes:
        every = tuple(f"a{axis}" for axis in range(len(specs[0][0])))
        channel = (every[self.axis],)
        return Axes((every, channel, channel), (every,), frozenset(every), frozenset(every))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        # All problems' channels on one axis.
        input, scale, zero_point = operands
        together = jnp.moveaxis(input, 0, self.axis)
        shape = together.shape
        channels = shape[self.axis] * shape[self.axis + 1]
        one = together.reshape((*shape[: self.axis], channels, *shape[self.axis + 2 :]))

        def unfold(results: Sequence[Any]) -> list[Any]:
            return [jnp.moveaxis(each.reshape(shape), self.axis, 0) for each in results]

        return self, [one, scale.reshape(-1), zero_point.reshape(-1)], unfold

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, operands[0], tangents[1], operands[2])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        input, _, zero_point = operands
        return None, _gradient_of_scales(self.axis, input, zero_point, cotangents[0]), None


@partial(jax.jit, static_argnums=0, inline=True)
def _gradient_of_scales(axis: int, input: Any, zero_point: Any, grad_output: Any) -> Any:
    """Sum the products of steps and cotangents over each channel."""
    wide = jnp.float64 if grad_output.dtype == jnp.float64 else jnp.float32
    steps = jnp.moveaxis(input, axis, -1).astype(jnp.int32)
    steps = steps - jnp.broadcast_to(zero_point.astype(jnp.int32), steps.shape)
    # A row for each element of a channel, all in one segment, whose sum has one order on every device.
    rows = steps.astype(wide) * jnp.moveaxis(grad_output, axis, -1).astype(wide)
    rows = rows.reshape(-1, zero_point.shape[0]) if rows.size else rows.reshape(0, zero_point.shape[0])
    ids = jnp.zeros(rows.shape[0], jnp.int32)
    (total,) = call(Segments("sum", "sorted", 1, rows.shape[0]), rows, ids)
    return total[0].astype(grad_output.dtype)


def dequantize_per_channel(input: Any, scale: Any, zero_point: Any, axis: int) -> Any:
    """Turn integers into floats with one scale and zero point per channel, as ONNX DequantizeLinear does.

    Parameters
    ----------
    input : array
        Quantized values in int8 or uint8, at least one axis.
    scale : array, [input.shape[axis]]
        Scale of each channel in float32, float64, float16 or bfloat16.
    zero_point : array, [input.shape[axis]]
        Zero point of each channel in int32; narrower integers are widened by a copy. int64 is converted by a copy, in
        which a value outside int32 wraps.
    axis : int
        The channel axis; negative counts from the end.

    Returns
    -------
    array
        (input - zero_point) * scale, rounded once, in the scale's dtype.

    Raises
    ------
    UnsupportedError, TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.dequantize_per_channel``, when it is traced.

    Notes
    -----
    Integers have no gradient. The scales have one, of every order and in both modes: a sum over each channel's elements
    in row-major order, in float32 for 16-bit scales.
    """
    values = array_of(input)
    channel = check_axis("input", values.shape, whole("axis", axis))
    return run(_Dequantize(channel), values, array_of(scale), array_of(zero_point))[0]
