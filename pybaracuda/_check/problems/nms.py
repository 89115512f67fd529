# SPDX-License-Identifier: Apache-2.0
"""The problems of non-maximum suppression."""

from __future__ import annotations

import math

import numpy as np

from .. import content
from ..abi_calls import Values
from ..content import any_bits, special, subnormal, tied
from ..problem import TENTH, Family, Problem
from ..splitmix import Array, encoded, integers


def _values(num_boxes: int, threshold: float, num_class_ids: int = 0) -> Values:
    return {
        "num_boxes": num_boxes,
        "num_class_ids": num_class_ids,
        "iou_thresh": threshold,
        "iou_threshold": threshold,
    }


def _rows(seed: int, count: int, most: int) -> Array:
    """Boxes [count / 4, 4] with corners in halves, at most `most` / 2 wide, on a map of 64 x 64.

    No corner reaches 128, from which on bf16 does not hold halves.
    """
    rows = count // 4
    low = integers(seed, 2 * rows, 0, 127).reshape(rows, 2) * 0.5
    return np.concatenate([low, low + integers(seed ^ 1, 2 * rows, 1, most).reshape(rows, 2) * 0.5], axis=1)


def _boxes(most: int) -> content.Maker:
    def make(seed: int, count: int, token: str, values: Values) -> Array:
        return encoded(_rows(seed, count, most).ravel(), token)

    return make


_SMALL, _LARGE = _boxes(16), _boxes(100)


def _chain(seed: int, count: int, token: str, values: Values) -> Array:
    """Each box overlaps the one before and the one after it by a third, in the order in which they stand."""
    rows = count // 4
    left = np.arange(rows) % 128.0
    return encoded(np.stack([left, np.zeros(rows), left + 2, np.ones(rows)], axis=1).ravel(), token)


def _odd_boxes(seed: int, count: int, token: str, values: Values) -> Array:
    """Reversed and empty boxes, infinite, far and NaN corners between good boxes."""
    content_ = _rows(seed, count, 50)
    bad = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, -8.0, 2.0**15, -(2.0**15)])
    drawn = bad[integers(seed ^ 2, content_.size, 0, len(bad) - 1)].reshape(content_.shape)
    chosen = integers(seed ^ 3, content_.size, 0, 5).reshape(content_.shape) == 0
    content_[chosen] = drawn[chosen]
    reversed_ = integers(seed ^ 4, len(content_), 0, 4) == 0
    content_[reversed_] = content_[reversed_][:, [2, 3, 0, 1]]
    return encoded(content_.ravel(), token)


def _few_classes(seed: int, count: int, token: str, values: Values) -> Array:
    return encoded(integers(seed, count, 0, 4), token)


def _far_classes(seed: int, count: int, token: str, values: Values) -> Array:
    """Integers that 32 bits and float64 do not tell apart, where the type holds them."""
    far = [0, -1, 2**31 - 1, -(2**31)] if token == "i32" else [2**53, 2**53 + 1, 2**32, 0, -(2**63), 2**63 - 1]
    return encoded(np.array(far)[integers(seed, count, 0, len(far) - 1)], token)


_PROBLEMS = [
    Problem("typical", "boxes of one class that overlap here and there", _values(300, 0.5), {"boxes": _SMALL}),
    Problem("classes", "five classes", _values(300, TENTH, 300), {"boxes": _LARGE, "class_ids": _few_classes}),
    Problem("far-classes", "classes that only integers tell apart", _values(130, 0.0, 130),
            {"boxes": _LARGE, "class_ids": _far_classes}),
    Problem("ties", "four scores, zeros of both signs: by index", _values(513, 0.25),
            {"boxes": _SMALL, "scores": tied}),
    Problem("chain", "what is kept hangs on every box before it; equal scores", _values(700, 0.25),
            {"boxes": _chain, "scores": lambda seed, count, token, values: encoded(np.ones(count), token)}),
    Problem("words", "one past every word, step, chunk and tile", _values(1025, 0.75), {"boxes": _LARGE}),
    Problem("all-kept", "nothing exceeds a threshold of 1", _values(600, 1.0), {"boxes": _LARGE}),
    Problem("one-kept", "everything but the best box exceeds a negative threshold", _values(600, -1.0),
            {"boxes": _LARGE}),
    Problem("special", "NaN, infinities, reversed and empty boxes; scores of any bits", _values(400, 0.125),
            {"boxes": _odd_boxes, "scores": any_bits}),
    Problem("any-boxes", "boxes of any bits, at a threshold that is NaN", _values(90, math.nan, 90),
            {"boxes": special, "class_ids": _few_classes}),
    Problem("subnormal", "subnormal boxes and scores", _values(150, 0.5), {"boxes": subnormal, "scores": subnormal}),
    Problem("parallel", "more than a block of boxes, enough work for several threads", _values(8700, 0.375),
            {"boxes": _LARGE}),
]  # fmt: skip


def _with_class_ids(problem: Problem) -> Problem:
    """Also where there are none, whose maker makes no byte."""
    return problem._replace(makers={"class_ids": _few_classes, **problem.makers})


FAMILY = Family({"nms": [_with_class_ids(problem) for problem in _PROBLEMS]})
