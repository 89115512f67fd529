# SPDX-License-Identifier: Apache-2.0
"""The problems of losses of classification and of their gradients."""

from __future__ import annotations

import math

from ..abi_calls import Values
from ..content import Maker, near_one, special, subnormal, unit, wide
from ..problem import TENTH, Family, Problem
from ..splitmix import Array, encoded, integers, numbers


def _targets(seed: int, count: int, token: str, values: Values) -> Array:
    """Classes, one element in eight ignored."""
    classes, ignored = values["c"], values["ignore_index"]
    assert isinstance(classes, int)
    assert isinstance(ignored, int)
    drawn = integers(seed, count, 0, classes - 1)
    drawn[integers(seed ^ 1, count, 0, 7) == 0] = ignored
    return encoded(drawn, token)


def _bad_targets(seed: int, count: int, token: str, values: Values) -> Array:
    """Classes with every kind of target that is none between them."""
    classes = values["c"]
    assert isinstance(classes, int)
    bad = [-1, classes, -(2**31), 2**31 - 1] + ([-(2**63), 2**63 - 1, 2**32, 2**32 + 1] if token == "i64" else [])
    drawn = integers(seed, count, 0, classes - 1)
    for place in range(0, count, 3):
        drawn[place] = bad[int(drawn[place]) % len(bad)]
    return encoded(drawn, token)


def _logits(seed: int, count: int, token: str, values: Values) -> Array:
    """Logits in [-12, 12)."""
    return encoded(numbers(seed, count, "bf16", -12.0, 12.0), token)


def _far_logits(seed: int, count: int, token: str, values: Values) -> Array:
    """Logits so far apart that most exponentials vanish beside the largest."""
    return encoded(numbers(seed, count, "bf16", -512.0, 512.0), token)


def _sums(low: float, high: float) -> Maker:
    """What sums of exponentials of logits may be."""

    def make(seed: int, count: int, token: str, values: Values) -> Array:
        return encoded(numbers(seed, count, "f32", low, high), token)

    return make


def _masked_logits(seed: int, count: int, token: str, values: Values) -> Array:
    """Logits of which half are negative infinity."""
    content = numbers(seed, count, "bf16", -12.0, 12.0)
    content[integers(seed ^ 1, count, 0, 1) == 0] = -math.inf
    return encoded(content, token)


def _problem(
    name: str,
    description: str,
    extents: tuple[int, int, int],
    reduction: int,
    weighted: bool = False,
    smoothing: float = 0.0,
    ignore_index: int = -100,
    makers: dict[str, Maker] | None = None,
) -> Problem:
    values: Values = dict(zip(("n", "c", "d"), extents, strict=True))
    values |= {"has_weight": int(weighted), "ignore_index": ignore_index, "reduction": reduction}
    values["label_smoothing"] = smoothing
    every: dict[str, Maker] = {
        "input": _logits, "target": _targets, "weight": unit, "grad_output": wide,
        "log_sum_exp": _sums(12.0, 16.0), "total_weight": near_one,
    }  # fmt: skip
    return Problem(name, description, values, {**every, **(makers or {})})


_NONE, _MEAN, _SUM = range(3)
_PROBLEMS = [
    _problem("typical", "images of 21 classes, a mean of weights", (2, 21, 400), _MEAN, True),
    _problem("rows", "rows of ten classes, a mean", (300, 10, 1), _MEAN),
    _problem("smoothed", "images, labels that are smoothed, a sum", (2, 19, 77), _SUM, False, TENTH),
    _problem("smoothed-weights", "rows, labels that are smoothed, weights", (65, 33, 1), _MEAN, True, 0.25),
    _problem("unreduced", "a loss for each element; a class that is ignored", (3, 7, 65), _NONE, True, 0.0, 3),
    _problem("every-other", "every class has the same share", (2, 40, 1), _NONE, False, 1.0),
    _problem("pieces", "images of one class more than two pieces", (2, 65, 9), _MEAN, True, 0.125),
    _problem("row-pieces", "rows of one class more than a piece, and than a warp takes", (3, 4097, 1), _SUM, True,
             TENTH),
    _problem("vectors", "lines that are whole vectors", (2, 6, 64), _MEAN),
    _problem("row-vectors", "rows that are whole vectors", (9, 520, 1), _MEAN, False),
    _problem("one-class", "there is but one", (5, 1, 3), _SUM),
    _problem("bad-targets", "targets that are no class", (2, 5, 60), _MEAN, True, makers={"target": _bad_targets}),
    _problem("bad-rows", "rows with targets that are no class", (50, 5, 1), _NONE, makers={"target": _bad_targets}),
    _problem("all-ignored", "nothing counts: a mean is NaN", (4, 3, 5), _MEAN,
             makers={"target": lambda seed, count, token, values: encoded(integers(seed, count, -100, -100), token)}),
    _problem("far", "logits far apart", (2, 50, 31), _NONE,
             makers={"input": _far_logits, "log_sum_exp": _sums(512.0, 520.0)}),
    _problem("masked", "logits of negative infinity, in images", (2, 70, 33), _NONE, makers={"input": _masked_logits}),
    _problem("masked-rows", "the same in rows, smoothed", (6, 600, 1), _NONE, False, TENTH,
             makers={"input": _masked_logits}),
    _problem("special", "NaN, infinities and zeros of both signs among all data", (3, 4, 40), _NONE, True,
             makers={"input": special, "weight": near_one, "grad_output": special, "log_sum_exp": special}),
    _problem("special-rows", "the same in rows, a mean", (30, 4, 1), _MEAN,
             makers={"input": special, "grad_output": special, "total_weight": special}),
    _problem("subnormal", "subnormal data", (2, 6, 30), _SUM, True,
             makers={"input": subnormal, "weight": subnormal, "grad_output": subnormal}),
    _problem("parallel", "more elements than one block folds, enough work for several threads", (3, 5, 3001), _MEAN,
             True),
    _problem("parallel-rows", "rows that one block does not fold", (8300, 3, 1), _MEAN, True),
]  # fmt: skip

FAMILY = Family({"nll_loss": _PROBLEMS})
