# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification in JAX, with its derivative; what it computes is in the array functions.

Targets have a row for each sequence here, whatever a caller gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from .._arrays import HOST
from .._call import Prepared, check_rank, flag, whole
from .._errors import shown
from ..ctc_loss import prepare, prepare_backward, states_of
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents, Unfold, merged, parted
from ._primitive import array_of, call, run

__all__ = ["ctc_loss"]

_REDUCTIONS = ("none", "mean", "sum")
_CLASSES, _LABELS, _EACH, _STATES = ("t", "n", "c"), ("n", "s"), ("n",), ("n", "t", "m")
_SEQUENCES = frozenset("n")


def _folded_classes(array: Any) -> Any:
    """Make sequences of one problem of those of several, whose time steps come first."""
    size, t, n, c = array.shape
    return jnp.moveaxis(array, 0, 1).reshape((t, size * n, c))


@dataclass(frozen=True)
class _Losses(KernelOperation):
    """The losses of (log_probs, targets, input_lengths, target_lengths), and the alphas, which have no derivative."""

    blank: int
    zero_infinity: bool
    most: int

    name = "ctc_loss"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare(HOST, *specs, self.blank, self.most, True)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_CLASSES, _LABELS, _EACH, _EACH), (_EACH, _STATES), _SEQUENCES, _SEQUENCES)

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        log_probs, *others = operands
        arrays = [_folded_classes(log_probs), *map(merged, others)]
        return self, arrays, lambda results: [parted(size, each) for each in results]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        if tangents[0] is None:
            return None, None
        slope = _Slope(self.blank, self.zero_infinity)
        return call(slope, tangents[0], *operands, *outputs)[0], None


@dataclass(frozen=True)
class _Slope(Operation):
    """How losses move with (a tangent of log_probs, and what _Gradient has behind its first operand)."""

    blank: int
    zero_infinity: bool

    name = "ctc_loss"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return (specs[5],)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        tangent, *given = operands
        losses = given[4]
        (slopes,) = call(_Gradient(self.blank, self.zero_infinity), jnp.ones_like(losses), *given)
        return [(slopes.astype(losses.dtype) * tangent.astype(losses.dtype)).sum((0, 2))]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        moved, *others = tangents
        if any(each is not None for each in others):
            raise NotImplementedError("ctc_loss has no second derivative")
        return [None if moved is None else call(self, moved, *operands[1:])[0]]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        gradient = _Gradient(self.blank, self.zero_infinity)
        return call(gradient, cotangents[0], *operands[1:])[0], *(None for _ in operands[1:])


@dataclass(frozen=True)
class _Gradient(KernelOperation):
    """The gradient, of (that of the losses; operands and results of _Losses); it is linear in the first."""

    blank: int
    zero_infinity: bool

    name = "ctc_loss"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_backward(HOST, *specs, self.blank, self.zero_infinity)

    def axes(self, *specs: Spec) -> Axes:
        operands = (_EACH, _CLASSES, _LABELS, _EACH, _EACH, _EACH, _STATES)
        return Axes(operands, (_CLASSES,), _SEQUENCES, _SEQUENCES)

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        gradient, log_probs, *others = operands
        _, t, n, c = log_probs.shape
        arrays = [merged(gradient), _folded_classes(log_probs), *map(merged, others)]
        return self, arrays, lambda results: [jnp.moveaxis(results[0].reshape((t, size, n, c)), 1, 0)]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        moved, *others = tangents
        if any(each is not None for each in others):
            raise NotImplementedError("ctc_loss has no second derivative")
        return [None if moved is None else call(self, moved, *operands[1:])[0]]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        slope = _Slope(self.blank, self.zero_infinity)
        return call(slope, cotangents[0], *operands[1:])[0], *(None for _ in operands[1:])


def _rows(targets: Any, target_lengths: Any, most: int) -> Any:
    """Give each sequence a row of its own; what lies behind all targets is no class."""
    lengths = jnp.maximum(target_lengths, 0)
    places = (jnp.cumsum(lengths) - lengths)[:, None] + jnp.arange(most)
    return jnp.take(targets, places, mode="fill", fill_value=-1)


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    *,
    reduction: str = "none",
    zero_infinity: bool = False,
    max_target_length: int | None = None,
) -> Any:
    """Take the connectionist temporal classification loss of each sequence, their sum or their mean.

    Parameters
    ----------
    log_probs : array, [T, N, C]
        Logarithms of the classes' probabilities in float32, float64, float16 or bfloat16.
    targets : array, [N, S], or one axis
        Classes of the labels, a row for each sequence or one target behind another.
    input_lengths, target_lengths : array, [N]
        Time steps of each sequence and labels of each target.
    blank : int
        The class that is no label.
    reduction : {"none", "mean", "sum"}
        The mean is that of losses over the lengths of their targets, as PyTorch's.
    zero_infinity : bool
        Whether infinite losses and their gradients are 0.
    max_target_length : int, optional
        The most labels that a target may have. None is S; targets that stand one behind another do not say it.

    Returns
    -------
    array, [N], or []
        In float32, for float64 in float64.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.ctc_loss``, when it is traced.

    Notes
    -----
    The gradient is that of ``pybaracuda.ctc_loss_backward``, bit for bit: that of logarithms of a softmax. First
    derivatives exist in both modes; second ones raise NotImplementedError.
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction is {shown(reduction)}; wanted one of {', '.join(_REDUCTIONS)}")
    zero = flag("zero_infinity", zero_infinity)
    image, labels, counts = array_of(log_probs), array_of(targets), array_of(target_lengths)
    most = None if max_target_length is None else whole("max_target_length", max_target_length)
    most = states_of(tuple(labels.shape), most) // 2
    if labels.ndim != 2:
        check_rank("targets", tuple(labels.shape), "[N, S] or [sum of the target_lengths]", 1)
        labels = _rows(labels, counts, most)
    operation = _Losses(whole("blank", blank), zero, most)
    losses = run(operation, image, labels, array_of(input_lengths), counts)[0]
    if zero:
        losses = jnp.where(losses == jnp.inf, 0.0, losses).astype(losses.dtype)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return (losses / jnp.maximum(counts, 1).astype(losses.dtype)).mean()
