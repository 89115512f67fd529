# SPDX-License-Identifier: Apache-2.0
"""Losses of classification in JAX, with their derivatives; what they compute is in the array functions.

Operands are [N, C, D] and [N, D] here, whatever axes an image has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax.numpy as jnp

from .._arrays import HOST
from .._call import Prepared, check_shape, flag, whole
from ..nll_loss import elements_shape, prepare, prepare_backward, reduction_of, smoothing_of
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents
from ._primitive import array_of, call, run

__all__ = ["cross_entropy", "nll_loss"]

_LOGITS, _ELEMENTS, _WEIGHT, _ONE = ("n", "c", "d"), ("n", "d"), ("c",), ("one",)


@dataclass(frozen=True)
class _Options:
    """What all operators of a loss know: by logits where `label_smoothing` is a number."""

    ignore_index: int
    reduction: str
    label_smoothing: float | None

    @property
    def name(self) -> str:
        """What messages call the loss."""
        return "nll_loss" if self.label_smoothing is None else "cross_entropy"

    @property
    def losses(self) -> tuple[str, ...]:
        """The axes of the result."""
        return _ELEMENTS if self.reduction == "none" else ()

    @property
    def split(self) -> frozenset[str]:
        """The axes along which nothing is added."""
        return frozenset(self.losses)


class _OfLosses(KernelOperation):
    """An operator of a loss; problems with a sum or weights of their own stay apart."""

    options: _Options

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.options.name

    @property
    def folds(self) -> bool:  # type: ignore[override]
        return False


@dataclass(frozen=True)
class _Losses(_OfLosses):
    """The losses, or the loss, of (input, target) and weights, with the sums that the gradient needs.

    Those have no derivative: that of the loss accounts for them.
    """

    options: _Options

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), target, *weight = specs
        options = self.options
        return prepare(
            HOST, shape, dtype, target, weight[0] if weight else None, options.ignore_index, options.reduction,
            options.label_smoothing, True,
        )  # fmt: skip

    def axes(self, *specs: Spec) -> Axes:
        operands = (_LOGITS, _ELEMENTS, _WEIGHT)[: len(specs)]
        sums = (_ONE, _ONE) if self.options.label_smoothing is None else (_ELEMENTS, _ONE, _ONE)
        # How many targets were dropped is a sum in every case.
        return Axes(operands, (self.options.losses, *sums), frozenset(), frozenset())

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        nothing = [None] * (len(outputs) - 1)
        if tangents[0] is None:
            return [None, *nothing]
        input, target, *weight = operands
        if self.options.label_smoothing is None:
            given = [target, *weight, outputs[1]]
        else:
            given = [input, target, *weight, *outputs[1:3]]
        return [call(_Slope(self.options), tangents[0], *given)[0], *nothing]


@dataclass(frozen=True)
class _Slope(Operation):
    """How the result moves with (a tangent of the input, and what _Gradient has behind its first operand)."""

    options: _Options

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.options.name

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        (shape, dtype) = specs[0]
        return (((shape[0], shape[2]) if self.options.losses else (), dtype),)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        tangent, *given = operands
        if self.options.label_smoothing is None:
            return call(_Losses(self.options), tangent, *given[:-1])[:1]
        n, _, d = tangent.shape
        ones = jnp.ones((n, d) if self.options.losses else (), tangent.dtype)
        (slopes,) = call(_Gradient(self.options, tuple(tangent.shape)), ones, *given)
        wide = jnp.promote_types(tangent.dtype, jnp.float32)
        axis = 1 if self.options.losses else None
        return [(slopes.astype(wide) * tangent.astype(wide)).sum(axis).astype(tangent.dtype)]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        moved, *others = tangents
        found = None if moved is None else call(self, moved, *operands[1:])[0]
        if self.options.label_smoothing is None or others[0] is None:
            return [found]
        # The slope along a tangent moves with the logits as the gradient does, of which it is a product.
        tangent, input, *given = operands
        n, _, d = tangent.shape
        ones = jnp.ones((n, d) if self.options.losses else (), tangent.dtype)
        (bent,) = call(_Curvature(self.options), others[0], ones, input, *given)
        axis = 1 if self.options.losses else None
        more = (bent * tangent).sum(axis)
        return [more if found is None else found + more]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        shape, _ = operands[0]
        return [call(_Gradient(self.options, shape), cotangents[0], *operands[1:])[0], *[None] * (len(operands) - 1)]


@dataclass(frozen=True)
class _Gradient(_OfLosses):
    """The gradient of the input by (grad_output, target, weight, total_weight), of which the third may be missing.

    By logits it is that by (grad_output, input, target, weight, log_sum_exp, total_weight).
    """

    options: _Options
    input_shape: tuple[int, ...]

    def prepare(self, *specs: Spec) -> Prepared:
        options = self.options
        if options.label_smoothing is None:
            gradient, target, *weight, total = specs
            of_logits = None
        else:
            gradient, logits, target, *weight, sums, total = specs
            of_logits = (logits[1], sums, options.label_smoothing)
        return prepare_backward(
            HOST, self.input_shape, gradient, target, weight[0] if weight else None, total, options.ignore_index,
            options.reduction, of_logits,
        )  # fmt: skip

    def axes(self, *specs: Spec) -> Axes:
        operands: tuple[tuple[str, ...], ...]
        if self.options.label_smoothing is None:
            operands = (self.options.losses, _ELEMENTS, *[_WEIGHT] * (len(specs) - 3), _ONE)
        else:
            weight = [_WEIGHT] * (len(specs) - 5)
            operands = (self.options.losses, _LOGITS, _ELEMENTS, *weight, _ELEMENTS, _ONE)
        return Axes(operands, (_LOGITS,), frozenset(_ELEMENTS), self.options.split)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        found = None if tangents[0] is None else call(self, tangents[0], *operands[1:])[0]
        if self.options.label_smoothing is None or tangents[1] is None:
            return [jnp.zeros_like(outputs[0]) if found is None else found]
        (bent,) = call(_Curvature(self.options), tangents[1], *operands)
        return [bent if found is None else found + bent]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return [call(_Slope(self.options), cotangents[0], *operands[1:])[0], *[None] * (len(operands) - 1)]


@dataclass(frozen=True)
class _Curvature(Operation):
    """How the gradient of a cross entropy moves with (a tangent of the input, and the operands of _Gradient).

    Linear in the first, and its own transpose.
    """

    options: _Options

    name = "cross_entropy"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return (specs[0],)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        tangent, grad_output, input, target, *weight, log_sum_exp, total_weight = operands
        options, classes = self.options, input.shape[1]
        assert options.label_smoothing is not None
        wide = log_sum_exp.dtype
        counts = (target >= 0) & (target < classes) & (target != options.ignore_index)
        weights = weight[0].astype(wide) if weight else jnp.ones(classes, wide)
        scale = (1 - options.label_smoothing) * weights[jnp.where(counts, target, 0)]
        scale = (scale + options.label_smoothing / max(classes, 1) * weights.sum()) * grad_output.astype(wide)
        scale = scale / total_weight[0] if options.reduction == "mean" else scale
        share = jnp.exp(input.astype(wide) - log_sum_exp[:, None])
        moved = tangent.astype(wide)
        bent = scale[:, None] * share * (moved - (share * moved).sum(1, keepdims=True))
        return [jnp.where(counts[:, None], bent, 0).astype(tangent.dtype)]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        if any(each is not None for each in tangents[2:]):
            raise NotImplementedError("cross_entropy has no third derivative")
        tangent, grad_output, *given = operands
        parts = []
        if tangents[0] is not None:
            parts.append(call(self, tangents[0], grad_output, *given)[0])
        if tangents[1] is not None:
            parts.append(call(self, tangent, tangents[1], *given)[0])
        return [sum(parts[1:], start=parts[0]) if parts else None]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        if wanted[0]:
            return [call(self, cotangents[0], *operands[1:])[0], *[None] * (len(operands) - 1)]
        raise NotImplementedError("cross_entropy has no third derivative")


def _run(
    input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float | None, sums: bool
) -> Any:
    logits, named = array_of(input), array_of(target)
    elements = elements_shape("input", logits.shape)
    check_shape("target", named.shape, elements)
    n, c, d = (1, *logits.shape, 1) if logits.ndim == 1 else (*logits.shape[:2], prod(logits.shape[2:]))
    options = _Options(whole("ignore_index", ignore_index), reduction_of(reduction), label_smoothing)
    operands = [logits.reshape(n, c, d), named.reshape(n, d), *([] if weight is None else [array_of(weight)])]
    found = run(_Losses(options), *operands)
    results = [each.reshape(elements) if each.shape == (n, d) else each for each in found]
    return tuple(results) if flag("return_sums", sums) else results[0]


def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    return_sums: bool = False,
) -> Any:
    """Take the negative log-likelihood of target classes, as ``torch.nn.functional.nll_loss`` does.

    Parameters
    ----------
    input : array, [C], [N, C] or [N, C, ...]
        Logarithms of the classes' probabilities in float32, float64, float16 or bfloat16.
    target : array, [], [N] or [N, ...]
        The class of each element in int32, int64 or a narrower integer.
    weight : array, [C], optional
        A weight for each class in the input's dtype; it has no gradient.
    ignore_index : int
        The target of elements that do not count; it need not be a class.
    reduction : {"mean", "sum", "none"}
    return_sums : bool
        Whether to answer also `total_weight` and `num_dropped`, as ``pybaracuda.nll_loss`` does.

    Returns
    -------
    array, [], or of the target's shape
        Of the input's dtype; with `return_sums` a tuple.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.nll_loss``, when it is traced.

    Notes
    -----
    A target that is no class is dropped. Linear, so derivatives of every order and both modes exist; the gradient is
    that of ``pybaracuda.nll_loss_backward``, bit for bit. Under jax.vmap problems run one after the other.
    """
    return _run(input, target, weight, ignore_index, reduction, None, return_sums)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    return_sums: bool = False,
) -> Any:
    """Take the cross entropy between logits and target classes, as ``torch.nn.functional.cross_entropy`` does.

    Parameters
    ----------
    input : array, [C], [N, C] or [N, C, ...]
        Logits of the classes in float32, float64, float16 or bfloat16.
    target, weight, ignore_index, reduction
        As :func:`nll_loss` takes them; targets are classes, not probabilities.
    label_smoothing : float
        Share of the target, from 0 to 1, that all classes have alike.
    return_sums : bool
        Whether to answer also `log_sum_exp`, `total_weight` and `num_dropped`, as ``pybaracuda.cross_entropy`` does.

    Returns
    -------
    array, [], or of the target's shape
        Of the input's dtype; with `return_sums` a tuple, of which the others have no derivatives.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.cross_entropy``, when it is traced.

    Notes
    -----
    A target that is no class is dropped. Both modes; the gradient is that of ``pybaracuda.cross_entropy_backward``, bit
    for bit. Second derivatives exist, by JAX's arithmetic; third ones raise NotImplementedError. Under jax.vmap
    problems run one after the other.
    """
    return _run(input, target, weight, ignore_index, reduction, smoothing_of(label_smoothing), return_sums)
