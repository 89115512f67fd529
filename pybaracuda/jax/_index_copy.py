# SPDX-License-Identifier: Apache-2.0
"""Copies of rows by an index in JAX, with their derivatives; what they compute is in the array function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arrays import HOST
from .._call import Prepared, whole
from .._errors import InvalidProblemError
from ..index_copy import prepare
from ._operation import Axes, KernelOperation, Spec, Tangents, Unfold
from ._primitive import array_of, call, filled, in_64_bits, run
from ._segments import index_of

__all__ = ["index_copy"]

_MOST_IN_32_BITS = 2**31 - 1
# What two factors of 32 bits make; no array with elements comes near it.
_MOST_ROWS = _MOST_IN_32_BITS**2


@dataclass(frozen=True)
class _IndexCopy(KernelOperation):
    """The rows of (input, index, source) along an axis, counted from the last one: linear in input and source."""

    dim: int

    name = "index_copy"

    def prepare(self, *specs: Spec) -> Prepared:
        input, index, source = specs
        return prepare(HOST, input, self.dim, index, source)

    def reused(self, *specs: Spec) -> int | None:
        # In place the rows alone are moved, and all of the input in a copy that XLA may have to make before: with many
        # rows that is more than one pass over everything.
        (input, _), ((n,), _), _ = specs
        return 0 if 2 * n <= input[self.dim] else None

    def axes(self, *specs: Spec) -> Axes:
        names = [f"a{axis}" for axis in range(len(specs[0][0]))]
        names[self.dim] = "n"
        source = tuple(names)
        names[self.dim] = "rows"
        # Along the other axes nothing meets, also in the derivatives.
        split = frozenset(names) - {"rows"}
        return Axes((tuple(names), ("n",), source), (tuple(names),), split, split)

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        # Each problem has rows of its own along the axis; what names none of these shall not name another problem's.
        input, index, source = operands
        length, before = input.shape[self.dim], input.ndim - 1 + self.dim
        if size * length > _MOST_ROWS:
            raise InvalidProblemError(f"vmap: {size} times {length} rows; wanted at most {_MOST_ROWS}")
        with in_64_bits():
            if size * length > np.iinfo(index.dtype).max:
                index = jax.lax.convert_element_type(index, np.int64)
            zero, rows, none = (filled(index.shape, each, index.dtype) for each in (0, length, -1))
            starts = jax.lax.broadcasted_iota(index.dtype, index.shape, 0) * rows
            index = jnp.where((index >= zero) & (index < rows), index + starts, none).reshape(-1)

        def joined(array: Any) -> Any:
            array = jnp.moveaxis(array, 0, before)
            rows = size * array.shape[before + 1]
            return array.reshape((*array.shape[:before], rows, *array.shape[before + 2 :]))

        def unfold(results: Sequence[Any]) -> list[Any]:
            shape = results[0].shape
            apart = results[0].reshape((*shape[:before], size, length, *shape[before + 1 :]))
            return [jnp.moveaxis(apart, before, 0)]

        return self, [joined(input), index, joined(source)], unfold

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        input, _, source = tangents
        input, source = (
            filled(operand.shape, 0, operand.dtype) if tangent is None else tangent
            for tangent, operand in ((input, operands[0]), (source, operands[2]))
        )
        return call(self, input, operands[1], source)

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        (cotangent,), index = cotangents, operands[1]
        rows = list(cotangent.shape)
        rows[self.dim] = index.shape[0]
        nothing = filled(tuple(rows), 0, cotangent.dtype)
        by_input = call(self, cotangent, index, nothing)[0] if wanted[0] else None
        if not wanted[2]:
            return [by_input, None, None]
        # No place holds two rows and no row that stayed is at two places, so the way back is a copy by an index, too.
        stayed = _row_at_each_place(index, cotangent.shape[self.dim])
        return [by_input, None, call(self, nothing, stayed, cotangent)[0]]


def _row_at_each_place(index: Any, length: int) -> Any:
    """Answer the number of the row that stays at each place, -1 where none is put."""
    (n,) = index.shape
    dtype = np.int32 if n <= _MOST_IN_32_BITS else np.int64
    with in_64_bits():
        nobody, numbers = filled((length,), -1, dtype), jax.lax.iota(dtype, n)
    return call(_IndexCopy(-1), nobody, index, numbers)[0]


def index_copy(input: Any, dim: int, index: Any, source: Any) -> Any:
    """Put rows where an index says; of several rows of one place the last stays, which ``.at[].set`` leaves open.

    Parameters
    ----------
    input : array
        Of any dtype of 1, 2, 4, 8 or 16 bytes, with one axis or more.
    dim : int
        The axis along which rows stand; may count from the end.
    index : array, [N]
        The place of each row of the source, of any integer dtype.
    source : array
        The rows: of the input's dtype and shape, but N along the axis.

    Returns
    -------
    array
        Of the input's shape and dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.index_copy``, when it is traced.

    Notes
    -----
    A row whose index is negative or past the end is dropped. Linear in the input and the source, so derivatives of
    every order and both modes exist: the gradient of a place goes to the row that stayed there, or to the input's where
    none was put. Bits are moved, in the gradients, too. Under jax.vmap problems are rows of one. An input that nothing
    else reads, as a scan's carry or a donated argument, is written in place where rows are for half of the places or
    fewer.
    """
    array, entries, rows, axis = array_of(input), array_of(index), array_of(source), whole("dim", dim)
    if 0 <= axis < array.ndim:
        # So that it stays when others come in front; one that is not there is refused by its own name.
        axis -= array.ndim
    if entries.dtype == jnp.uint32 and -array.ndim <= axis < 0 and array.shape[axis] > _MOST_IN_32_BITS:
        with in_64_bits():
            entries = jax.lax.convert_element_type(entries, np.int64)
    return run(_IndexCopy(axis), array, index_of(entries), rows)[0]
