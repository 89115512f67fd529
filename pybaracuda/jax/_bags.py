# SPDX-License-Identifier: Apache-2.0
"""Bags of embeddings in JAX, with their derivatives; what they compute is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from .._arrays import HOST
from .._call import Prepared, flag, whole
from ..embedding_bag import mode_of, prepare, prepare_backward, prepare_weights_backward
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents
from ._primitive import array_of, call, run

__all__ = ["embedding_bag"]

_TABLE, _BAGS, _POSITIONS, _OF_BAGS = ("e", "d"), ("b", "d"), ("n",), ("b",)


class _OfBags(KernelOperation):
    """An operator of bags; problems with a table of their own stay apart."""

    name = "embedding_bag"
    folds = False


@dataclass(frozen=True)
class _Bags(_OfBags):
    """The bags of (table, indices, offsets) and weights, and what the gradients need: ids, sizes, rows of maxima."""

    mode: str
    padding_idx: int | None

    def prepare(self, *specs: Spec) -> Prepared:
        weight, input, offsets, *weights = specs
        given = weights[0] if weights else None
        return prepare(HOST, weight, input, offsets, given, self.mode, False, self.padding_idx, True)

    def axes(self, *specs: Spec) -> Axes:
        operands = (_TABLE, _POSITIONS, _OF_BAGS, _POSITIONS)[: len(specs)]
        arg = (_BAGS,) if self.mode == "max" else ()
        return Axes(operands, (_BAGS, _POSITIONS, _OF_BAGS, *arg), frozenset(), frozenset())

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        weight, input, offsets, *weights = operands
        _, ids, sizes, *arg = outputs
        nothing = [None] * (len(outputs) - 1)
        parts: list[Any] = []
        if tangents[0] is not None:
            if self.mode == "max":
                parts += call(_Held(self.padding_idx), tangents[0], input, ids, *arg)
            else:
                parts += call(_Slope(self), tangents[0], input, offsets, ids, sizes, *weights)
        if weights and tangents[3] is not None:
            parts += call(_Slope(self), weight, input, offsets, ids, sizes, tangents[3])
        return [sum(parts[1:], start=parts[0]) if parts else None, *nothing]


@dataclass(frozen=True)
class _Slope(Operation):
    """The bags alone, of sums and means: linear in the table, the first operand, and in weights, the last one."""

    bags: _Bags

    name = "embedding_bag"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        (_, columns), dtype = specs[0]
        return (((specs[2][0][0], columns), dtype),)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        weight, input, offsets, _, _, *weights = operands
        return call(self.bags, weight, input, offsets, *weights)[:1]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        weight, *given = operands
        parts = []
        if tangents[0] is not None:
            parts.append(call(self, tangents[0], *given)[0])
        if len(operands) > 5 and tangents[5] is not None:
            parts.append(call(self, weight, *given[:4], tangents[5])[0])
        return [sum(parts[1:], start=parts[0]) if parts else None]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        weight, input, _, ids, sizes, *weights = operands
        found: list[Any] = [None] * len(operands)
        mode, padding_idx = self.bags.mode, self.bags.padding_idx
        if wanted[0]:
            gradient = _Gradient(weight[0][0], mode, padding_idx)
            more = [sizes] if mode == "mean" else []
            (found[0],) = call(gradient, cotangents[0], input, ids, *more, *weights)
        else:
            (found[5],) = call(_WeightsGradient(padding_idx), cotangents[0], weight, input, ids)
        return found


@dataclass(frozen=True)
class _Held(Operation):
    """What the rows that hold maxima have in (a table, indices, bag ids, rows): linear in the table."""

    padding_idx: int | None

    name = "embedding_bag"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return ((specs[3][0], specs[0][1]),)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        weight, _, _, arg = operands
        held = jnp.take_along_axis(weight, jnp.maximum(arg, 0), 0)
        return [jnp.where(arg >= 0, held, jnp.zeros((), weight.dtype))]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return [None if tangents[0] is None else call(self, tangents[0], *operands[1:])[0]]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        gradient = _Gradient(operands[0][0][0], "max", self.padding_idx)
        return [call(gradient, cotangents[0], *operands[1:])[0], None, None, None]


@dataclass(frozen=True)
class _Gradient(_OfBags):
    """The gradient of the table by (grad_output, indices, bag ids), then sizes of means or rows of maxima, weights.

    Linear in the first and in weights.
    """

    num_embeddings: int
    mode: str
    padding_idx: int | None

    def _parts(self, operands: Sequence[Any]) -> tuple[Any, Any, Any, list[Any], list[Any]]:
        grad_output, input, ids, *more = operands
        count = int(self.mode != "sum")
        return grad_output, input, ids, more[:count], more[count:]

    def prepare(self, *specs: Spec) -> Prepared:
        grad_output, input, ids, more, weights = self._parts(specs)
        sizes, arg = (more[0] if self.mode == mode else None for mode in ("mean", "max"))
        given = weights[0] if weights else None
        return prepare_backward(
            HOST, grad_output, input, ids, sizes, arg, given, self.num_embeddings, self.mode, self.padding_idx, False
        )

    def axes(self, *specs: Spec) -> Axes:
        *_, more, weights = self._parts(specs)
        of_bags = [_OF_BAGS if self.mode == "mean" else _BAGS] * len(more)
        operands = (_BAGS, _POSITIONS, _POSITIONS, *of_bags, *[_POSITIONS] * len(weights))
        return Axes(operands, (_TABLE,), frozenset(), frozenset())

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        parts = []
        if tangents[0] is not None:
            parts.append(call(self, tangents[0], *operands[1:])[0])
        if self._parts(operands)[4] and tangents[-1] is not None:
            parts.append(call(self, *operands[:-1], tangents[-1])[0])
        return [sum(parts[1:], start=parts[0]) if parts else jnp.zeros_like(outputs[0])]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        grad_output, input, ids, more, weights = self._parts(operands)
        found: list[Any] = [None] * len(operands)
        if not wanted[0]:
            (found[-1],) = call(_WeightsGradient(self.padding_idx), grad_output, cotangents[0], input, ids)
        elif self.mode == "max":
            found[0] = call(_Held(self.padding_idx), cotangents[0], input, ids, *more)[0]
        else:
            offsets = _offsets_of(ids, grad_output[0][0])
            sizes = more[0] if more else offsets
            slope = _Slope(_Bags(self.mode, self.padding_idx))
            found[0] = call(slope, cotangents[0], input, offsets, ids, sizes, *weights)[0]
        return found


@dataclass(frozen=True)
class _WeightsGradient(_OfBags):
    """The gradient of weights by (grad_output, table, indices, bag ids): linear in the first two, one at a time."""

    padding_idx: int | None

    def prepare(self, *specs: Spec) -> Prepared:
        grad_output, weight, input, ids = specs
        return prepare_weights_backward(HOST, grad_output, weight, input, ids, self.padding_idx)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BAGS, _TABLE, _POSITIONS, _POSITIONS), (_POSITIONS,), frozenset(), frozenset())

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        grad_output, weight, *given = operands
        parts = []
        if tangents[0] is not None:
            parts.append(call(self, tangents[0], weight, *given)[0])
        if tangents[1] is not None:
            parts.append(call(self, grad_output, tangents[1], *given)[0])
        return [sum(parts[1:], start=parts[0]) if parts else jnp.zeros_like(outputs[0])]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        grad_output, weight, input, ids = operands
        if wanted[0]:
            offsets = _offsets_of(ids, grad_output[0][0])
            slope = _Slope(_Bags("sum", self.padding_idx))
            return [call(slope, weight, input, offsets, ids, offsets, cotangents[0])[0], None, None, None]
        gradient = _Gradient(weight[0][0], "sum", self.padding_idx)
        return [None, call(gradient, grad_output, input, ids, cotangents[0])[0], None, None]


def _offsets_of(ids: Any, count: int) -> Any:
    """Answer where so many bags begin whose positions ascend."""
    return jnp.searchsorted(ids, jnp.arange(count, dtype=ids.dtype)).astype(ids.dtype)


def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    *,
    return_bags: bool = False,
) -> Any:
    """Reduce bags of rows of a table, as ``torch.nn.functional.embedding_bag`` does.

    Parameters
    ----------
    input : array, [N]
        The row of each position in int32, int64 or a narrower integer, the bags one after another.
    weight : array, [E, D]
        The table in float32, float64, float16 or bfloat16.
    offsets : array, [B]
        Where each bag begins, never descending; it ends where the next one begins, the last one with `input`.
    mode : {"mean", "sum", "max"}
        What becomes of a bag.
    per_sample_weights : array, [N], optional
        A weight for each position in the table's dtype, for sums.
    include_last_offset : bool
        Whether `offsets` has one entry more, which is taken for N.
    padding_idx : int, optional
        The row that takes no part, negative from the last one.
    return_bags : bool
        Whether to answer also the bag of each position, the sizes of bags and, of maxima, the rows that hold them.

    Returns
    -------
    array, [B, D]
        Of the table's dtype; with `return_bags` a tuple, of which the others have no derivatives.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.embedding_bag``, when it is traced.

    Notes
    -----
    A position whose index is no row of the table takes no part. Derivatives of every order and both modes exist with
    respect to the table and to weights; gradients are those of ``pybaracuda.embedding_bag_backward`` and
    ``pybaracuda.embedding_bag_weights_backward``, bit for bit. Under jax.vmap problems run one after the other.
    """
    begins = array_of(offsets)
    if flag("include_last_offset", include_last_offset):
        if begins.ndim != 1 or not begins.shape[0]:
            raise ValueError(f"offsets has shape {begins.shape}; wanted the last offset, at least")
        begins = begins[:-1]
    padding = None if padding_idx is None else whole("padding_idx", padding_idx)
    weights = [] if per_sample_weights is None else [array_of(per_sample_weights)]
    found = run(_Bags(mode_of(mode), padding), array_of(weight), array_of(input), begins, *weights)
    return tuple(found) if flag("return_bags", return_bags) else found[0]
