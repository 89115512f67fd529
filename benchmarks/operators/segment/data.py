# SPDX-License-Identifier: Apache-2.0
"""Inputs of the segment operations: ids, rows, and what a forward call might have answered; no framework, no checks."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.harness.draw import Draw
from verify.dtypes import Array, dtype_of

# How many segments have rows where few do.
_FEW = 64
# The standard deviation of the logarithm of a product over all rows: far from any dtype's limits.
_PRODUCT_DEVIATION = 5.0


def draw_ids(kind: str, rows: int, segments: int, rng: np.random.Generator) -> Array:
    """Segment ids: "uniform"; "power law" (Zipf, exponent 1, the hot ids anywhere); "half" or "all" rows on one id;
    "64", all on 64 ids that lie anywhere.
    """
    if kind == "power law":
        shares = np.cumsum(1 / np.arange(1, segments + 1))
        ranks = np.searchsorted(shares, rng.uniform(0, shares[-1], rows))
        ids = rng.permutation(segments)[np.minimum(ranks, segments - 1)]
    elif kind == "64":
        ids = rng.choice(rng.choice(segments, min(_FEW, segments), replace=False), rows)
    else:
        ids = rng.integers(0, segments, rows)
        share = {"uniform": 0.0, "half": 0.5, "all": 1.0}[kind]
        ids[rng.uniform(0, 1, rows) < share] = rng.integers(segments)
    return ids.astype(np.int32)


def offsets_of(ids: Array, segments: int) -> Array:
    """Where each segment of ascending ids begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.bincount(ids, minlength=segments))])


def factors(draw: Draw, shape: tuple[int, ...], element: str) -> Array:
    """Numbers of both signs whose products stay in range, over all rows too; none is 0."""
    normal = draw.normal(shape, element)
    size = np.abs(normal)
    # Centred, so that logarithms of products do not drift: a normal number's magnitude has mean sqrt(2 / pi) and
    # variance 1 - 2 / pi.
    size -= size.dtype.type(math.sqrt(2 / math.pi))
    size *= size.dtype.type(_PRODUCT_DEVIATION / math.sqrt((1 - 2 / math.pi) * max(shape[0], 1)))
    return np.copysign(np.exp(size, out=size), normal)


def with_ties(draw: Draw, shape: tuple[int, ...], element: str) -> Array:
    """Quarters of integers, so that several rows of a segment hold its extreme."""
    values = draw.normal(shape, element)
    values *= values.dtype.type(4)
    np.rint(values, out=values)
    values *= values.dtype.type(0.25)
    return values


def _fold(function: np.ufunc, rows: Array, ids: Array, segments: int, empty: float) -> Array:
    order = np.argsort(ids, kind="stable")
    used, starts = np.unique(ids[order], return_index=True)
    result = np.full((segments, rows.shape[1]), empty, rows.dtype)
    result[used] = function.reduceat(rows[order], starts, axis=0)
    return result


def _wide(rows: Array) -> Array:
    return rows if rows.dtype.itemsize >= 4 else rows.astype(np.float32)


def product_of(rows: Array, ids: Array, segments: int) -> Array:
    """What the product's forward call answers, but for rounding."""
    return _fold(np.multiply, _wide(rows), ids, segments, 1.0).astype(rows.dtype)


def logsumexp_of(rows: Array, ids: Array, segments: int) -> Array:
    """What the forward call answers of moderate numbers, but for rounding."""
    with np.errstate(divide="ignore"):
        return np.log(_fold(np.add, np.exp(_wide(rows)), ids, segments, 0.0)).astype(rows.dtype)


def draw_softmax(draw: Draw, shape: tuple[int, ...], element: str, ids: Array, segments: int) -> Array:
    """What the softmax's forward call answers of normal numbers, but for rounding."""
    terms = np.exp(_wide(draw.normal(shape, element)))
    terms /= _fold(np.add, terms, ids, segments, 1.0)[ids]
    return terms.astype(dtype_of(element))


def draw_arg(draw: Draw, columns: int, ids: Array, segments: int) -> Array:
    """Any row of its segment for every column; -1 for a segment without rows."""
    count = np.bincount(ids, minlength=segments)[:, None]
    begin = np.cumsum(count, axis=0) - count
    rank = begin + (draw.rng.random((segments, columns)) * count).astype(np.int64)
    return np.where(count > 0, np.argsort(ids, kind="stable")[np.minimum(rank, len(ids) - 1)], -1)
