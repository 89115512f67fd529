# SPDX-License-Identifier: Apache-2.0
"""The problems of bags of embeddings and of their gradients."""

from __future__ import annotations

import numpy as np

from ..abi_calls import Values
from ..content import INT32_MAX, INT32_MIN, Maker, any_bits, near_one, special, subnormal, tied, wide
from ..problem import Family, Problem
from ..splitmix import Array, encoded, integers


def _count(values: Values, name: str) -> int:
    found = values[name]
    assert isinstance(found, int)
    return found


def _indices(seed: int, count: int, token: str, values: Values) -> Array:
    return encoded(integers(seed, count, 0, _count(values, "num_embeddings") - 1), token)


def _popular(seed: int, count: int, token: str, values: Values) -> Array:
    """Nine positions of ten name one row in the middle."""
    drawn = integers(seed, count, 0, _count(values, "num_embeddings") - 1)
    drawn[integers(seed ^ 1, count, 0, 9) > 0] = _count(values, "num_embeddings") // 2
    return encoded(drawn, token)


def _bad(seed: int, count: int, token: str, low: int, high: int) -> Array:
    """Numbers from low up to high, every third one far outside."""
    bad = [-1, high + 1, INT32_MIN, INT32_MAX] + ([-(2**63), 2**63 - 1, 2**32, 2**32 + 1] if token == "i64" else [])
    drawn = integers(seed, count, low, high)
    drawn[::3] = np.array(bad)[integers(seed ^ 1, count, 0, len(bad) - 1)][::3]
    return encoded(drawn, token)


def _bad_indices(seed: int, count: int, token: str, values: Values) -> Array:
    return _bad(seed, count, token, 0, _count(values, "num_embeddings") - 1)


def _offsets(seed: int, count: int, token: str, values: Values) -> Array:
    """Ascending from 0 on, as callers give them; some bags are empty."""
    drawn = np.sort(integers(seed, count, 0, _count(values, "num_indices")))
    drawn[:1] = 0
    return encoded(drawn, token)


def _holed_offsets(seed: int, count: int, token: str, values: Values) -> Array:
    """Ascending, some outside, with positions before the first one and bags without any."""
    indices = _count(values, "num_indices")
    drawn = np.sort(integers(seed, count, indices // 8, indices + 9))
    drawn[2::3] = drawn[1::3][: len(drawn[2::3])]
    return encoded(drawn, token)


def _descending(seed: int, count: int, token: str, values: Values) -> Array:
    """In no order."""
    return encoded(integers(seed, count, -3, _count(values, "num_indices")), token)


def _few_long(seed: int, count: int, token: str, values: Values) -> Array:
    """Nearly all positions are of one bag in the middle."""
    places = np.arange(count)
    return encoded(np.where(places <= count // 2, places, _count(values, "num_indices") - count + places), token)


def _ids(seed: int, count: int, token: str, values: Values) -> Array:
    """Bags that ascend, as forward calls answer them."""
    return encoded(np.sort(integers(seed, count, 0, _count(values, "num_bags") - 1)), token)


def _bad_ids(seed: int, count: int, token: str, values: Values) -> Array:
    return _bad(seed, count, token, 0, _count(values, "num_bags") - 1)


def _sizes(seed: int, count: int, token: str, values: Values) -> Array:
    return encoded(integers(seed, count, 1, 12), token)


def _any_sizes(seed: int, count: int, token: str, values: Values) -> Array:
    """Also none, which no position of a forward call has."""
    return encoded(integers(seed, count, 0, 2), token)


def _problem(
    name: str,
    description: str,
    extents: tuple[int, int, int, int],
    flags: tuple[int, int, int] = (0, 0, 0),
    padding_idx: int = -1,
    makers: dict[str, Maker] | None = None,
    *,
    wants_bags: bool = True,
) -> Problem:
    """`flags` are of a mean, of weights and of a gradient that is divided by counts."""
    values: Values = dict(zip(("num_indices", "num_bags", "num_embeddings", "embedding_dim"), extents, strict=True))
    values |= dict(zip(("mean", "has_per_sample_weights", "scale_grad_by_freq"), flags, strict=True))
    values |= {"padding_idx": padding_idx, "wants_bags": int(wants_bags)}
    every: dict[str, Maker] = {
        "indices": _indices, "offsets": _offsets, "bag_ids": _ids, "bag_sizes": _sizes, "arg": _indices,
        "grad_output": wide, "weight": wide, "per_sample_weights": near_one,
    }  # fmt: skip
    return Problem(name, description, values, {**every, **(makers or {})})


_PROBLEMS = [
    _problem("typical", "bags of some rows", (60, 9, 13, 7)),
    _problem("mean", "a mean, a row that takes no part", (90, 11, 17, 12), (1, 0, 0), 3),
    _problem("weighted", "weights of positions, gradients divided by counts", (75, 8, 10, 5), (0, 1, 1)),
    _problem("weighted-mean", "both", (75, 8, 10, 33), (1, 1, 1), 9),
    _problem("long-bag", "one bag of nearly all of 900 positions", (900, 5, 40, 9), (1, 0, 0), 7,
             {"offsets": _few_long}),
    _problem("long-weighted", "the same, weighted", (700, 6, 3, 70), (0, 1, 0), -1, {"offsets": _few_long},
             wants_bags=False),
    _problem("popular", "one row takes most of 1200 positions", (1200, 100, 7, 20), (0, 0, 0), 1,
             {"indices": _popular, "arg": _popular}),
    _problem("popular-mean", "the same, of a mean, divided by counts", (600, 50, 9, 65), (1, 0, 1), -1,
             {"indices": _popular, "arg": _popular}),
    _problem("sparse", "most rows and most bags have no position", (40, 130, 300, 34)),
    _problem("ties", "few distinct values, zeros of both signs", (200, 30, 12, 6), (0, 0, 0), 0,
             {"weight": tied, "grad_output": tied}),
    _problem("bad-indices", "indices and bags that there are not", (150, 12, 20, 4), (1, 1, 0), 2,
             {"indices": _bad_indices, "offsets": _holed_offsets, "bag_ids": _bad_ids, "arg": _bad_indices,
              "bag_sizes": _any_sizes}),
    _problem("descending", "offsets in no order", (50, 7, 9, 3), (1, 0, 0), -1,
             {"offsets": _descending, "bag_ids": _bad_ids}),
    _problem("descending-sums", "the same, and nobody asks which bags there are", (50, 7, 9, 3), (0, 1, 0), -1,
             {"offsets": _descending, "bag_ids": _bad_ids}, wants_bags=False),
    _problem("special", "NaN payloads, infinities, zeros and subnormals", (120, 20, 25, 8), (0, 1, 0), -1,
             {"weight": special, "grad_output": special, "per_sample_weights": special}, wants_bags=False),
    _problem("subnormal", "subnormal data", (60, 9, 11, 6), (1, 1, 1), -1,
             {"weight": subnormal, "grad_output": subnormal}, wants_bags=False),
    _problem("wide", "rows of more than one block of columns", (50, 6, 8, 300), (0, 1, 0), wants_bags=False),
    _problem("parallel", "enough work for several threads", (3000, 400, 500, 96), (1, 0, 0), wants_bags=False),
    _problem("tiles", "more positions than a block of a sort counts", (33000, 4000, 600, 3), (0, 0, 1), 5),
]  # fmt: skip

# Sums of the largest numbers pass the definition's.
_OF_MAXIMA = [
    *_PROBLEMS,
    _problem("any-bits", "the largest numbers, too", (100, 16, 19, 5), makers={"weight": any_bits}),
]

FAMILY = Family({"embedding_bag": _PROBLEMS, "embedding_bag_max": _OF_MAXIMA})
