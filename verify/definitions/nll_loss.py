# SPDX-License-Identifier: Apache-2.0
"""Losses of classification and their gradients, class by class over whole arrays.

Source: torch.nn.functional.nll_loss and cross_entropy. An input here is [N, C, D], a target [N, D].

How far a kernel may be off is counted in unit roundoffs of its sums, first for each element; a result's Sum then has
that as its magnitude, with one rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from verify.bounds import EXPONENTIAL, LOGARITHM, Sum
from verify.dtypes import Array, in_float64

# Of the cuts in the header: classes of a piece are added in at most so many steps. An image's 32; a row's 16 in a
# strand and five among strands.
_IMAGE_PIECE, _IMAGE_STEPS = 32, 32
_ROW_PIECE, _ROW_STEPS = 512, 16 + 5
_ROW_GROUP = 1024
# f32's smallest number in its unit roundoffs.
_SMALLEST = 2.0 ** (24 - 149)


class Losses(NamedTuple):
    """What a forward call answers: the losses or the loss, and the rest."""

    output: Sum
    total_weight: Sum
    num_dropped: int
    log_sum_exp: Sum | None = None


def _pairs(count: int) -> int:
    """How many additions a term of so many meets where neighbours are added until one is left."""
    return max(count - 1, 0).bit_length()


class _Elements:
    """Which elements count, their classes and the weights of these; arrays of an element's own are [N, D]."""

    def __init__(self, input_shape: tuple[int, ...], target: Any, weight: Any, ignore_index: int) -> None:
        named = np.asarray(target).astype(np.int64)
        classes = input_shape[1]
        is_class = (named >= 0) & (named < classes)
        self.counts = is_class & (named != ignore_index)
        self.dropped = int((~is_class & (named != ignore_index)).sum())
        self.target = np.where(self.counts, named, 0)
        self.weights = np.ones(classes) if weight is None else in_float64(weight).reshape(classes)
        self.weight = np.where(self.counts, self.weights[self.target], 0.0) if classes else np.zeros(named.shape)

    def of_target(self, values: Array) -> Array:
        """What stands in [N, C, D] for each element's class, 0 where it has none."""
        if not values.shape[1]:
            return np.zeros(self.counts.shape)
        return np.where(self.counts, np.take_along_axis(values, self.target[:, None], 1)[:, 0], 0.0)


def _sum(value: Array, errors: Array) -> Sum:
    """A Sum from a value and unit roundoffs; where there are none it is exact."""
    value, errors = np.asarray(value, np.float64), np.asarray(errors, np.float64)
    return Sum(value, errors, np.ones(value.shape, np.int64), (errors > 0).astype(np.float64))


def _reduced(of: _Elements, losses: Array, errors: Array, reduction: str) -> tuple[Sum, Sum]:
    """The result and the sum of weights."""
    nothing = _sum(np.zeros(1), np.zeros(1))
    if reduction == "none":
        return _sum(losses, errors), nothing
    depth = _pairs(losses.size)
    with np.errstate(all="ignore"):
        total, size = of.weight.sum(), np.abs(of.weight).sum()
        loss, magnitude = losses.sum(), (errors + depth * np.abs(losses)).sum()
        if reduction == "mean":
            # The quotient of both, each with its own roundings, rounded itself; weights of both signs cancel.
            off = (magnitude + np.abs(loss) * (1 + depth * size / np.abs(total))) / np.abs(total)
            loss, magnitude = loss / total, off
    return _sum(loss.reshape(1, 1), magnitude.reshape(1, 1)), _sum(total.reshape(1), (depth * size).reshape(1))


def nll_loss(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> Losses:
    """A loss is the negative product of weight and log-probability: one rounding, none without weights."""
    values = in_float64(input)
    of = _Elements(values.shape, target, weight, ignore_index)
    with np.errstate(all="ignore"):
        losses = np.where(of.counts, -(of.weight * of.of_target(values)), 0.0)
    errors = np.zeros(losses.shape) if weight is None else np.abs(losses)
    output, total = _reduced(of, losses, errors, reduction)
    return Losses(output, total, of.dropped)


def nll_loss_backward(
    grad_output: Any, input_shape: tuple[int, ...], target: Any, weight: Any, ignore_index: int, reduction: str,
    total_weight: Any,
) -> Sum:  # fmt: skip
    """The class's element is the negative product of weight and gradient, for a mean a quotient."""
    of = _Elements(input_shape, target, weight, ignore_index)
    with np.errstate(all="ignore"):
        slope = -of.weight * _gradient(of, grad_output, reduction, total_weight)
    found, errors = np.zeros(input_shape), np.zeros(input_shape)
    if input_shape[1]:
        rounded = (weight is not None) + (reduction == "mean")
        for array, each in ((found, slope), (errors, np.abs(slope) * rounded)):
            np.put_along_axis(array, of.target[:, None], np.where(of.counts, each, 0.0)[:, None], 1)
    return _sum(found, errors)


def _gradient(of: _Elements, grad_output: Any, reduction: str, total_weight: Any) -> Array:
    """The gradient of each element's loss, 0 for one that does not count."""
    gradient = in_float64(grad_output)
    if reduction != "none":
        gradient = np.broadcast_to(gradient.reshape(()), of.counts.shape)
    with np.errstate(all="ignore"):
        if reduction == "mean":
            gradient = gradient / in_float64(total_weight).reshape(())
    return np.asarray(np.where(of.counts, gradient, 0.0))


class _Exponentials:
    """The exponentials of an input relative to the largest logit of each element, and how far sums of them are off."""

    def __init__(self, values: Array) -> None:
        n, classes, d = values.shape
        with np.errstate(all="ignore"):
            # A largest logit that is no number makes everything NaN.
            self.largest = values.max(1) if classes else np.zeros((n, d))
            self.largest = np.where(np.isfinite(self.largest), self.largest, np.nan)
            self.below = self.largest[:, None] - values
            terms = np.exp(-self.below)
            total = terms.sum(1)
            self.log_sum = np.log(total) if classes else self.largest
            # A difference is rounded, in up to two parts for a piece that is joined: as far as its exponential is off.
            shift = np.where(terms > 0, terms * self.below, 0.0).sum(1) / total if classes else self.largest
        if d > 1:
            pieces = -(-classes // _IMAGE_PIECE)
            self.steps = _IMAGE_STEPS + (EXPONENTIAL + 1) * pieces
        else:
            pieces = -(-classes // _ROW_PIECE)
            groups = -(-pieces // _ROW_GROUP)
            self.steps = _ROW_STEPS + (EXPONENTIAL + 1) * (1 + groups) + min(pieces, _ROW_GROUP) / 32 + 5
        # Additions, the exponential itself, and what is cut off at e^-80.
        self.errors = self.steps + EXPONENTIAL + 1 + 2 * shift + LOGARITHM * self.log_sum


def cross_entropy(
    input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float = 0.0
) -> Losses:
    """Each loss from the logarithm of its sum of exponentials, which is one of the results."""
    values = in_float64(input)
    of = _Elements(values.shape, target, weight, ignore_index)
    of_exp = _Exponentials(values)
    classes = values.shape[1]
    with np.errstate(all="ignore"):
        below = of.of_target(of_exp.below)
        own = of_exp.log_sum + below
        losses, errors = of.weight * own, np.abs(of.weight) * (of_exp.errors + 2 * (of_exp.log_sum + 2 * below))
        if label_smoothing:
            weights = of.weights[None, :, None]
            sizes = np.abs(weights)
            # A class of weight 0 is not there.
            gaps = np.where(weights == 0, 0.0, of_exp.below)
            every = (weights * (gaps + of_exp.log_sum[:, None])).sum(1)
            size = (sizes * (gaps + of_exp.log_sum[:, None])).sum(1)
            off = sizes.sum() * of_exp.errors + (of_exp.steps + 4) * size
            share, alone = label_smoothing / classes if classes else 0.0, 1 - label_smoothing
            errors = abs(alone) * (errors + 2 * np.abs(losses)) + abs(share) * (off + 2 * size)
            losses = alone * losses + share * every
            errors = errors + np.abs(losses)
        losses, errors = np.where(of.counts, losses, 0.0), np.where(of.counts, errors, 0.0)
        found = np.where(of.counts, of_exp.largest + of_exp.log_sum, 0.0)
        off = np.where(of.counts, of_exp.errors + np.abs(found), 0.0)
    output, total = _reduced(of, losses, errors, reduction)
    return Losses(output, total, of.dropped, _sum(found, off))


def cross_entropy_backward(
    grad_output: Any, input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float,
    log_sum_exp: Any, total_weight: Any,
) -> Sum:  # fmt: skip
    """Probabilities from the sums of exponentials that are given, times their scale, less what a class has besides."""
    values = in_float64(input)
    classes = values.shape[1]
    of = _Elements(values.shape, target, weight, ignore_index)
    gradient = _gradient(of, grad_output, reduction, total_weight)
    with np.errstate(all="ignore"):
        distance = values - in_float64(log_sum_exp)[:, None]
        share = np.exp(distance)
        named = (np.arange(classes)[None, :, None] == of.target[:, None]) & of.counts[:, None]
        each = label_smoothing / classes if classes else 0.0
        of_target = (1 - label_smoothing) * of.weight * gradient
        of_weight = each * gradient
        scale = of_target + (of_weight * of.weights.sum() if label_smoothing else 0.0)
        size = np.abs(of_target)
        beside = np.where(named, of_target[:, None], 0.0)
        beside_size = np.abs(beside)
        if label_smoothing:
            size = size + np.abs(of_weight) * np.abs(of.weights).sum()
            weighed = of_weight[:, None] * of.weights[None, :, None]
            beside, beside_size = beside + weighed, beside_size + np.abs(weighed)
        found = scale[:, None] * share - beside
        # Scale and the rest: quotient, weight, share of the target and its own rounding, fma; the sum of weights. Then
        # the exponential, whose argument is rounded, and the last fma.
        steps = 6 + (_pairs(classes) if label_smoothing else 0)
        exponential = np.where(share > 0, np.abs(distance), 0.0) + EXPONENTIAL + 1
        errors = size[:, None] * share * (steps + exponential) + 6 * beside_size + np.abs(found)
        # A probability below the smallest number of f32 is 0 there: the scale may make more of it than that number.
        errors = errors + size[:, None] * _SMALLEST
        counts = np.broadcast_to(of.counts[:, None], found.shape)
        return _sum(np.where(counts, found, 0.0), np.where(counts, errors, 0.0))
