# SPDX-License-Identifier: Apache-2.0
"""Weighted counts in JAX, with the derivative by their weights; what they compute is in the array function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from .._arrays import HOST
from .._call import Prepared, whole
from ..bincount import is_few, prepare
from ._operation import Axes, KernelOperation, Spec, Tangents, Unfold
from ._primitive import array_of, call, run, spec_of
from ._rows import Segments
from ._segments import index_of

__all__ = ["bincount"]


@dataclass(frozen=True)
class _Bincount(KernelOperation):
    """The sums of (entries, weights) by bin, of few bins, for each row along the last axis."""

    num_bins: int

    name = "bincount"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare(HOST, *specs, self.num_bins)

    def axes(self, *specs: Spec) -> Axes:
        # Along the entries everything is added, and rows have nothing to do with each other.
        rows = tuple(f"row{axis}" for axis in range(len(specs[0][0]) - 1))
        return Axes(((*rows, "n"),) * 2, ((*rows, "bins"),), frozenset(rows), frozenset(rows))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        # Problems that stand one behind the other are one problem of one axis more.
        return self, operands, lambda results: results

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return [None if tangents[1] is None else call(self, operands[0], tangents[1])[0]]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        *rows, n = operands[0].shape

        def gathered(sums: Any, entries: Any) -> Any:
            return call(Segments("gather", "unsorted", self.num_bins, n), sums, entries)[0]

        for _ in rows:
            gathered = jax.vmap(gathered)
        return [None, gathered(cotangents[0], operands[0])]


def bincount(x: Any, weights: Any, length: int) -> Any:
    """Add weights by bin, as ``jax.numpy.bincount`` does with weights and a length.

    Parameters
    ----------
    x : array, [..., N]
        The bin of each entry, of any integer dtype.
    weights : array, [..., N]
        What each entry adds, in float32, float64, float16, bfloat16, int32 or int64.
    length : int
        How many bins there are; where `x` has more than one axis, at most 4096.

    Returns
    -------
    array, [..., length]
        What each row along the last axis adds up to. Of the weights' dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.bincount``, when it is traced.

    Notes
    -----
    An entry outside [0, length) is dropped, also a negative one, which ``jax.numpy.bincount`` takes for 0. Linear in
    the weights, so derivatives of every order and both modes exist; the gradient is ``pybaracuda.segment_gather``, bit
    for bit. Under jax.vmap problems are rows of one.
    """
    entries, added, count = index_of(x), array_of(weights), whole("length", length)
    if is_few(count):
        return run(_Bincount(count), entries, added)[0]
    # Where there is something wrong with the operands, it is said in the words of a count.
    prepare(HOST, spec_of(entries), spec_of(added), count)
    return run(Segments("sum", "unsorted", count, entries.shape[0]), added, entries)[0]
