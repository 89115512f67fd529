# SPDX-License-Identifier: Apache-2.0
"""The problems of connectionist temporal classification and of its gradient."""

from __future__ import annotations

import math

from ..abi_calls import Values
from ..content import Maker, unit, wide
from ..problem import Family, Problem
from ..splitmix import Array, encoded, integers, numbers


def _whole(values: Values, name: str) -> int:
    number = values[name]
    assert isinstance(number, int)
    return number


def _between(low: float, high: float) -> Maker:
    """Numbers of a range."""

    def make(seed: int, count: int, token: str, values: Values) -> Array:
        return encoded(numbers(seed, count, "bf16", low, high), token)

    return make


def _masked(seed: int, count: int, token: str, values: Values) -> Array:
    """Log-probabilities of which every eighth is negative infinity."""
    content = numbers(seed, count, "bf16", -8.0, 0.0)
    content[integers(seed ^ 1, count, 0, 7) == 0] = -math.inf
    return encoded(content, token)


def _with_nans(seed: int, count: int, token: str, values: Values) -> Array:
    """Log-probabilities with a NaN in every 64 and negative infinities."""
    content = numbers(seed, count, "bf16", -8.0, 0.0)
    drawn = integers(seed ^ 1, count, 0, 63)
    content[drawn == 0] = math.nan
    content[drawn == 1] = -math.inf
    return encoded(content, token)


def _infinite_losses(seed: int, count: int, token: str, values: Values) -> Array:
    """Losses of which every third is infinite and every third NaN."""
    content = numbers(seed, count, "bf16", 20.0, 30.0)
    content[1::3] = math.inf
    content[2::3] = math.nan
    return encoded(content, token)


def _classes(seed: int, count: int, token: str, values: Values) -> Array:
    """Labels of all classes, the blank seldom."""
    return encoded(integers(seed, count, 0, _whole(values, "c") - 1), token)


def _few_classes(seed: int, count: int, token: str, values: Values) -> Array:
    """Labels of the last three classes alone, so that neighbours are often the same."""
    last = _whole(values, "c") - 1
    return encoded(integers(seed, count, max(last - 2, 0), last), token)


def _bad_classes(seed: int, count: int, token: str, values: Values) -> Array:
    """Labels of which one in 32 is no class."""
    classes = _whole(values, "c")
    bad = [-1, classes, -(2**31), 2**31 - 1] + ([-(2**63), 2**63 - 1, 2**32] if token == "i64" else [])
    drawn = integers(seed, count, 0, classes - 1)
    for place in range(5, count, 32):
        drawn[place] = bad[int(drawn[place]) % len(bad)]
    return encoded(drawn, token)


def _times(seed: int, count: int, token: str, values: Values) -> Array:
    """Lengths of the upper half, one of them all steps."""
    steps = _whole(values, "t")
    drawn = integers(seed, count, steps // 2, steps)
    drawn[:1] = steps
    return encoded(drawn, token)


def _labels(seed: int, count: int, token: str, values: Values) -> Array:
    """Numbers of labels, one of them the most that there may be."""
    most = (_whole(values, "num_states") - 1) // 2
    drawn = integers(seed, count, most // 2, most)
    if _whole(values, "target_rows") != count:  # joined: all of them must find room
        drawn = integers(seed, count, 0, min(most, _whole(values, "target_columns") // count))
    else:
        drawn[:1] = most
    return encoded(drawn, token)


def _any_lengths(seed: int, count: int, token: str, values: Values) -> Array:
    """Lengths of which one in three is out of range."""
    drawn = integers(seed, count, 0, 4)
    bad = [-1, 2**31 - 1, -(2**31)] + ([2**63 - 1, -(2**63), 2**32 + 1] if token == "i64" else [])
    for place in range(1, count, 3):
        drawn[place] = bad[place // 3 % len(bad)]
    return encoded(drawn, token)


_EVERY: dict[str, Maker] = {
    "log_probs": _between(-8.0, 0.0), "targets": _classes, "input_lengths": _times, "target_lengths": _labels,
    "grad_output": wide, "neg_log_likelihood": _between(20.0, 30.0), "log_alpha": _between(-40.0, -20.0),
}  # fmt: skip


def _problem(
    name: str,
    description: str,
    extents: tuple[int, int, int],
    labels: int,
    blank: int = 0,
    joined: int = 0,
    makers: dict[str, Maker] | None = None,
    zero_infinity: int = 0,
) -> Problem:
    t, n, c = extents
    values: Values = {"t": t, "n": n, "c": c, "target_rows": 1 if joined else n, "target_columns": joined or labels}
    values |= {"num_states": 2 * labels + 1, "blank": blank, "zero_infinity": zero_infinity}
    return Problem(name, description, values, {**_EVERY, **(makers or {})})


_PROBLEMS = [
    _problem("typical", "sequences of 40 steps, 20 classes", (40, 5, 20), 12),
    _problem("joined", "targets one behind another, the last class the blank", (33, 7, 11), 9, 10, 40),
    _problem("same-labels", "labels that repeat, of which the blank is one", (50, 3, 4), 17, 2, 0,
             {"targets": _few_classes}),
    _problem("one-step", "one step and one label", (1, 4, 3), 1),
    _problem("no-labels", "targets without labels", (9, 3, 5), 0, 4),
    _problem("masked", "classes without probability, a third of the losses infinite or NaN", (17, 9, 6), 4, 1, 0,
             {"log_probs": _masked, "neg_log_likelihood": _infinite_losses}, 1),
    _problem("nan", "NaN among the log-probabilities, and infinite losses", (19, 6, 33), 5, 0, 0,
             {"log_probs": _with_nans, "neg_log_likelihood": _infinite_losses}),
    _problem("bad-data", "lengths and labels out of range", (4, 13, 7), 4, 3, 0,
             {"targets": _bad_classes, "input_lengths": _any_lengths, "target_lengths": _any_lengths}),
    _problem("bad-joined", "the same of joined targets", (4, 11, 7), 4, 3, 20,
             {"input_lengths": _any_lengths, "target_lengths": _any_lengths}),
    _problem("strands", "more blanks than strands", (90, 2, 65), 34, 64, 0, {"grad_output": unit}),
    _problem("few-steps", "fewer time steps than labels, whose finite losses nobody answered", (3, 2, 40), 9),
    _problem("many-states", "more states than a block has threads", (560, 1, 40), 513),
    _problem("many-joined", "joined targets of more sequences than a block adds at once", (2, 2100, 3), 1, 0, 2100),
    _problem("parallel", "enough work for several threads", (65, 40, 9), 20),
]  # fmt: skip

FAMILY = Family({"ctc_loss": _PROBLEMS})
