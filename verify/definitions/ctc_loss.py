# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification and its gradient, in probabilities instead of logarithms.

Source: Graves et al., "Connectionist Temporal Classification", 2006, sections 3 and 4; what a bad sequence is and the
gradient of a softmax are torch.nn.functional.ctc_loss's. A probability here is a fraction times a power of two, which
no product of thousands of them leaves; a beta does not contain its own time step, as in the source's successors.

How far a kernel may be off is counted in unit roundoffs of its sums, and is a result's magnitude with one rounding. A
logarithm of a sum of exponentials is off by at most as much as the worst of its terms. On its own it is off by two
rounded differences d <= 0 as far as e^d passes them on, |d| e^d <= 1 / e each, by two exponentials' 2 roundings on at
most two thirds of the sum, by two additions, and by 2 roundings of a logarithm of at most log 3: less than 8. Then
the largest and the log-probability are added, two roundings of what comes out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from verify.bounds import Sum
from verify.dtypes import Array, in_float64

_LOG_2 = float(np.log(2.0))
_OF_A_SUM = 8.0


class Losses(NamedTuple):
    """What the forward call answers."""

    neg_log_likelihood: Sum
    log_alpha: Sum


class _Probabilities:
    """Fractions in [1/2, 1), or 0, of powers of two."""

    def __init__(self, fraction: Array, power: Array) -> None:
        self.fraction, shift = np.frexp(fraction)
        self.power = np.where(self.fraction == 0, 0, power + shift)

    def __getitem__(self, places: Any) -> _Probabilities:
        return _Probabilities(self.fraction[places], self.power[places])

    def __mul__(self, other: _Probabilities) -> _Probabilities:
        return _Probabilities(self.fraction * other.fraction, self.power + other.power)

    def log(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self.fraction) + self.power * _LOG_2


def _sum(terms: list[_Probabilities]) -> _Probabilities:
    """The sum, element by element; one that is 0 must not say how large the others are."""
    lowest = np.iinfo(np.int64).min // 2
    powers = [np.where(each.fraction == 0, lowest, each.power) for each in terms]
    most = np.maximum.reduce(powers)
    fractions = [np.ldexp(each.fraction, np.maximum(p - most, -5000)) for each, p in zip(terms, powers, strict=True)]
    return _Probabilities(np.add.reduce(fractions), most)


def _of_logarithms(values: Array) -> _Probabilities:
    """e^x of any x that is not positive infinity."""
    with np.errstate(invalid="ignore"):
        power = np.where(np.isfinite(values), np.floor(values / _LOG_2), 0.0)
        return _Probabilities(np.exp(values - power * _LOG_2), power.astype(np.int64))


class _Sequence(NamedTuple):
    """A good sequence: the classes of its states, and where one may be skipped to from two before it."""

    steps: int
    classes: Array
    skips: Array


def _sequences(
    shape: tuple[int, ...], targets: Any, input_lengths: Any, target_lengths: Any, num_states: int, blank: int
) -> list[_Sequence | None]:
    """Every sequence; None for a bad one."""
    t, n, c = shape
    rows = np.asarray(targets).astype(np.int64)
    columns, begin = rows.shape[1], 0
    found: list[_Sequence | None] = []
    for i in range(n):
        steps, labels = int(np.asarray(input_lengths)[i]), int(np.asarray(target_lengths)[i])
        first, row = (0, rows[i]) if rows.shape[0] == n else (begin, rows[0])
        begin += min(max(labels, 0), columns + 1)
        is_good = 0 <= steps <= t and labels >= 0 and 2 * labels + 1 <= num_states and first + labels <= columns
        target = row[first : first + labels] if is_good else row[:0]
        if not is_good or blank >= c or (target < 0).any() or (target >= c).any():
            found.append(None)
            continue
        classes = np.full(2 * labels + 1, blank)
        classes[1::2] = target
        skips = np.zeros(classes.size, bool)
        skips[3::2] = target[1:] != target[:-1]
        found.append(_Sequence(steps, classes, skips))
    return found


def _behind(values: Array, distance: int, fill: float) -> Array:
    """An array moved towards its end, without what falls out."""
    kept = values[: max(values.size - distance, 0)]
    return np.concatenate([np.full(values.size - kept.size, fill, values.dtype), kept])


def _reached(states: _Probabilities, skips: Array) -> _Probabilities:
    """The probability to be in each state one step later, before that step's class."""
    moved = [
        _Probabilities(_behind(states.fraction, distance, 0.0), _behind(states.power, distance, 0))
        for distance in (1, 2)
    ]
    skipped = _Probabilities(np.where(skips, moved[1].fraction, 0.0), moved[1].power)
    return _sum([states, moved[0], skipped])


class _Walk:
    """The states of a sequence from step to step, and how far a kernel's logarithm of each may be off."""

    def __init__(self, count: int) -> None:
        start = np.zeros(count)
        start[0] = 1.0
        self.states = _Probabilities(start, np.zeros(count, np.int64))
        self.errors = np.zeros(count)

    def reach(self, skips: Array) -> _Probabilities:
        """Move on, before the class; with the errors of the states that each may come from."""
        possible = np.where(self.states.fraction > 0, self.errors, 0.0)
        skipped = np.where(skips, _behind(possible, 2, 0.0), 0.0)
        self.errors = np.maximum.reduce([possible, _behind(possible, 1, 0.0), skipped]) + _OF_A_SUM
        self.states = _reached(self.states, skips)
        return self.states

    def emit(self, log_probs: Array) -> Array:
        """Multiply by the probabilities of the states' classes; answer the logarithms."""
        before = self.states.log()
        self.states *= _of_logarithms(log_probs)
        logarithms = self.states.log()
        self.errors = self.errors + _size(before) + _size(logarithms)
        return logarithms


def _size(values: Array) -> Array:
    """Magnitudes of finite numbers, 0 for others."""
    return np.where(np.isfinite(values), np.abs(values), 0.0)


def _results(value: Array, errors: Array) -> Sum:
    """A result that is off by unit roundoffs; this definition's own are at most twice as many."""
    ones = np.ones(value.shape, np.int64)
    return Sum(value, errors, ones, ones.astype(np.float64), 2 * ones.astype(np.float64))


def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, num_states: int, blank: int
) -> Losses:
    """The losses, and the logarithms of the probabilities of all beginnings of alignments."""
    logarithms = in_float64(log_probs)
    t, n, _ = logarithms.shape
    losses, alphas = np.full(n, np.nan), np.full((n, t, num_states), -np.inf)
    loss_errors, alpha_errors = np.zeros(n), np.zeros(alphas.shape)
    sequences = _sequences(logarithms.shape, targets, input_lengths, target_lengths, num_states, blank)
    for i, sequence in enumerate(sequences):
        if sequence is None:
            continue
        count = sequence.classes.size
        walk = _Walk(count)
        for time in range(sequence.steps):
            walk.reach(sequence.skips)
            alphas[i, time, :count] = walk.emit(logarithms[time, i, sequence.classes])
            alpha_errors[i, time, :count] = walk.errors
        ends = walk.states[max(count - 2, 0) :]
        total = _sum([ends[k : k + 1] for k in range(ends.fraction.size)])
        losses[i] = -total.log()[0]
        loss_errors[i] = walk.errors[max(count - 2, 0) :].max() + _OF_A_SUM + 2 * _size(losses[i])
    return Losses(_results(losses + 0.0, loss_errors), _results(alphas, alpha_errors))


def ctc_loss_backward(
    grad_output: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    neg_log_likelihood: Any,
    log_alpha: Any,
    blank: int,
    zero_infinity: bool,
) -> Sum:
    """The gradient: with x the logarithm of a share of one state, off by those of beta and of three additions.

    An exponential passes an error on times itself, and more by less than a tenth where that is below a tenth; it errs
    by 2 roundings itself. A class's shares and strands are added in fewer steps than there are states and five. Then
    come the exponential of the log-probability, a difference and a product.
    """
    logarithms, alphas = in_float64(log_probs), in_float64(log_alpha)
    losses, gradients = in_float64(neg_log_likelihood), in_float64(grad_output)
    sequences = _sequences(logarithms.shape, targets, input_lengths, target_lengths, alphas.shape[2], blank)
    result, errors = np.zeros(logarithms.shape), np.zeros(logarithms.shape)
    for i, sequence in enumerate(sequences):
        if sequence is None:
            result[:, i] = np.nan
            continue
        is_possible = np.isfinite(losses[i]) and sequence.steps >= sequence.classes.size // 2
        if not is_possible:
            result[: sequence.steps, i] = 0.0 if zero_infinity and losses[i] == np.inf else np.nan
            continue
        classes, count = sequence.classes, sequence.classes.size
        # The skips of the reversed target, from a state to two behind it.
        walk, skips = _Walk(count), np.zeros(count, bool)
        skips[2:] = sequence.skips[::-1][:-2]
        for time in reversed(range(sequence.steps)):
            beta = walk.reach(skips).log()[::-1]
            of_states = logarithms[time, i, classes]
            walk.emit(of_states[::-1])
            alpha = alphas[i, time, :count]
            with np.errstate(invalid="ignore", over="ignore"):
                exponent = alpha + losses[i] + beta
                impossible = (of_states == -np.inf) & ~np.isnan(beta)
                share = np.where((alpha == -np.inf) | impossible, 0.0, np.exp(exponent))
                both = alpha + beta + of_states
                off = walk.errors[::-1] + _size(both) + _size(both + losses[i]) + _size(exponent)
                probabilities = np.exp(logarithms[time, i])
            shares, share_errors = np.zeros(probabilities.size), np.zeros(probabilities.size)
            np.add.at(shares, classes, share)
            np.add.at(share_errors, classes, share * (1.1 * off + 2 + count + 5))
            difference = probabilities - shares
            result[time, i] = difference * gradients[i]
            of_difference = share_errors + 2 * probabilities + np.abs(difference)
            errors[time, i] = np.abs(gradients[i]) * of_difference + np.abs(result[time, i])
    return _results(result, np.nan_to_num(errors, posinf=0.0))
