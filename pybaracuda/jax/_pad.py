# SPDX-License-Identifier: Apache-2.0
"""Padding in JAX, with its derivatives; what it computes is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from .._arrays import HOST
from .._call import Prepared
from .._dtypes import item_bytes
from ..pad import check_mode, pads_of, value_key
from ..pad import prepare as prepare_pad
from ..pad import prepare_backward as prepare_pad_backward
from ._operation import Axes, KernelOperation, Spec, Tangents, Unfold, merged, parted
from ._primitive import array_of, call, run, spec_of

__all__ = ["pad"]

# The C functions' limit.
_MOST_AXES = 8


@dataclass(frozen=True)
class _Pad(KernelOperation):
    """A padded array, or with `backward` the gradient of one: linear and each other's transposes, but for the value."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    mode: str
    value: bytes | int = 0
    backward: bool = False

    name = "pad"

    def prepare(self, *specs: Spec) -> Prepared:
        ((shape, dtype),) = specs
        if self.backward:
            return prepare_pad_backward(HOST, shape, None, dtype, self.low, self.high, self.mode, None)
        return prepare_pad(HOST, shape, None, dtype, self.low, self.high, self.mode, self.value, None)

    def axes(self, *specs: Spec) -> Axes:
        pairs = list(zip(self.low, self.high, strict=True))
        kept = [f"a{axis}" if pads == (0, 0) else "" for axis, pads in enumerate(pairs)]
        operand, result = (tuple(name or f"{side}{axis}" for axis, name in enumerate(kept)) for side in "io")
        split = frozenset(filter(None, kept))
        return Axes((operand,), (result,), split, split)

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        if len(self.low) == _MOST_AXES and (self.low[0], self.high[0]) == (0, 0):
            return self, [merged(operands[0])], lambda results: [parted(size, each) for each in results]
        folded = replace(self, low=(0, *self.low), high=(0, *self.high))
        return folded, operands, lambda results: results

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(replace(self, value=0), tangents[0])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        transposed = replace(self, value=0, backward=not self.backward)
        (cotangent,) = cotangents
        if not jnp.issubdtype(cotangent.dtype, jnp.complexfloating):
            return call(transposed, cotangent)
        # Forward also complex numbers are moved; their gradients are sums of each part.
        parts = (call(transposed, part)[0] for part in (jnp.real(cotangent), jnp.imag(cotangent)))
        return [jax.lax.complex(*parts)]


def pad(
    input: Any,
    pad_low: int | Sequence[int],
    pad_high: int | Sequence[int],
    mode: str = "constant",
    value: Any = 0,
) -> Any:
    """Add elements before and after an array's axes, or cut them off.

    Parameters
    ----------
    input : array
        Up to 8 axes (7 under vmap, unless the first has no pads), of any number type or bool.
    pad_low, pad_high : int or sequence of int
        Elements to add before and after each axis, first axis first, as ``jax.numpy.pad`` has them; an int is for every
        axis. Any width: wider than the array too. A negative number cuts off that many, before anything is added.
    mode : {"constant", "reflect", "replicate", "circular", "symmetric"}
        As ``pybaracuda.pad`` has them.
    value : number
        What mode constant adds, rounded to a float or complex dtype; integers and bool must hold it.

    Returns
    -------
    array
        Of the input's dtype, extents input + pad_low + pad_high.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.pad``, when it is traced.

    Notes
    -----
    Derivatives of every order and both modes exist for floats and complex numbers. The gradient is that of
    ``pybaracuda.pad_backward``, bit for bit.
    """
    check_mode(mode)
    array = array_of(input)
    rank, (_, dtype) = array.ndim, spec_of(array)
    key = value_key(value, dtype) if mode == "constant" and item_bytes(dtype) is not None else 0
    operation = _Pad(pads_of("pad_low", pad_low, rank), pads_of("pad_high", pad_high, rank), mode, key)
    return run(operation, array)[0]
