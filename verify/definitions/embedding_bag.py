# SPDX-License-Identifier: Apache-2.0
"""Embedding bags and their gradients, scattered position by position; maxima move bits.

Of ``indices`` those outside [0, num_embeddings) and ``padding_idx`` take no part; ``padding_idx`` may be no row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from verify.bounds import PARTIAL_SUM, Sum, additions
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, in_float64


class Bags(NamedTuple):
    """Where positions belong: the bag of each, -1 for none, how many of each bag take part, and which do."""

    ids: Array
    sizes: Array
    taking: Array


def bags_of(indices: Any, offsets: Any, num_embeddings: int, padding_idx: int) -> Bags:
    """Bags that begin at ``offsets``, which may lie outside [0, N]; where they descend every bag is empty."""
    rows, begins = np.asarray(indices), np.asarray(offsets, np.int64)
    ids = np.full(len(rows), -1, np.int64)
    if not (begins[1:] < begins[:-1]).any():
        for bag, begin in enumerate(np.clip(begins, 0, len(rows))):
            ids[begin:] = bag
    taking = (ids >= 0) & (rows >= 0) & (rows < num_embeddings) & (rows != padding_idx)
    return Bags(ids, np.bincount(ids[taking], minlength=len(begins)), taking)


def embedding_bag(
    weight: Any, indices: Any, offsets: Any, per_sample_weights: Any, mean: bool, padding_idx: int
) -> tuple[Sum, Bags]:
    """[B, D] sums, or means; a position's weight is 1 without weights.

    A term meets the additions of its piece and of the pieces, each by one fma where it is weighted; a mean is divided
    once. Pieces are cut by positions, of which some take no part, and what those add is nothing. Here also the product
    is rounded.
    """
    table, bags = in_float64(weight), bags_of(indices, offsets, len(np.asarray(weight)), padding_idx)
    rows, ids = np.asarray(indices)[bags.taking], bags.ids[bags.taking]
    terms = table[rows]
    with np.errstate(invalid="ignore", over="ignore"):
        if per_sample_weights is not None:
            terms = terms * in_float64(per_sample_weights)[bags.taking][:, None]
        found = Accumulator(len(bags.sizes), table.shape[1])
        found.add(ids, terms)
        value, magnitude, counts = found.parts
        lengths = np.bincount(bags.ids[bags.ids >= 0], minlength=len(bags.sizes))[:, None]
        roundings = np.minimum(counts, PARTIAL_SUM) + -(-lengths // PARTIAL_SUM)
        if mean:
            divisor = np.maximum(bags.sizes, 1)[:, None]
            value, magnitude, roundings = value / divisor, magnitude / divisor, roundings + 1
    return Sum(value, magnitude, counts, np.where(counts > 0, roundings, 0), own=counts + 2), bags


def embedding_bag_max(weight: Any, indices: Any, offsets: Any, padding_idx: int) -> tuple[Array, Array, Bags]:
    """[B, D] in the table's dtype, the winners' own bits, and the rows that hold them; 0 and -1 of an empty bag.

    NaN beats every number, the first NaN beats a later one, -0 equals +0, and among equals the first position wins.
    """
    table = np.asarray(weight)
    values, bags = in_float64(table), bags_of(indices, offsets, len(np.asarray(weight)), padding_idx)
    shape = (len(bags.sizes), table.shape[1])
    output, arg = np.zeros(shape, table.dtype), np.full(shape, -1, np.int64)
    columns = np.arange(shape[1])
    for bag in np.flatnonzero(bags.sizes):
        rows = np.asarray(indices)[bags.taking & (bags.ids == bag)]
        candidates = values[rows]
        nan = np.isnan(candidates)
        place = np.where(nan.any(0), nan.argmax(0), np.where(nan, -np.inf, candidates).argmax(0))
        arg[bag] = rows[place]
        output[bag] = table[arg[bag], columns]
    return output, arg, bags


class _Positions:
    """The positions that take part in a gradient, in their order: their rows, bags and places."""

    def __init__(self, indices: Any, bag_ids: Any, num_embeddings: int, num_bags: int, padding_idx: int) -> None:
        rows, ids = np.asarray(indices), np.asarray(bag_ids)
        taking = (ids >= 0) & (ids < num_bags) & (rows >= 0) & (rows < num_embeddings) & (rows != padding_idx)
        self.places = np.flatnonzero(taking)
        self.rows, self.bags = rows[taking], ids[taking]
        self.count = np.bincount(self.rows, minlength=num_embeddings)[:, None]


def embedding_bag_backward(
    grad_output: Any,
    indices: Any,
    bag_ids: Any,
    num_embeddings: int,
    padding_idx: int,
    bag_sizes: Any = None,
    per_sample_weights: Any = None,
    by_frequency: bool = False,
) -> Sum:
    """[E, D]: of every position its bag's gradient times its factor.

    Besides the additions, each by one fma: the factor of a mean, and the division by the number of positions. Here also
    the product is rounded.
    """
    gradient = in_float64(grad_output)
    of = _Positions(indices, bag_ids, num_embeddings, len(gradient), padding_idx)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        factors = np.ones(len(of.places))
        if per_sample_weights is not None:
            factors = in_float64(per_sample_weights)[of.places]
        if bag_sizes is not None:
            factors = factors / np.asarray(bag_sizes)[of.bags]
        found = Accumulator(num_embeddings, gradient.shape[1])
        found.add(of.rows, gradient[of.bags] * factors[:, None])
        value, magnitude, counts = found.parts
        if by_frequency:
            value, magnitude = value / np.maximum(of.count, 1), magnitude / np.maximum(of.count, 1)
    besides = int(bag_sizes is not None) + int(by_frequency)
    roundings = np.where(counts > 0, additions(counts) + besides, 0)
    return Sum(value, magnitude, counts, roundings, own=counts + 3)


def embedding_bag_max_backward(
    grad_output: Any, indices: Any, bag_ids: Any, arg: Any, num_embeddings: int, padding_idx: int
) -> Sum:
    """[E, D]: each bag's gradient to the row that holds its maximum, once.

    A position counts unless the one before it among those of its row is of the same bag.
    """
    gradient = in_float64(grad_output)
    of = _Positions(indices, bag_ids, num_embeddings, len(gradient), padding_idx)
    order = np.argsort(of.rows, kind="stable")
    rows, bags = of.rows[order], of.bags[order]
    first = np.ones(len(rows), bool)
    first[1:] = (rows[1:] != rows[:-1]) | (bags[1:] != bags[:-1])
    rows, bags = rows[first], bags[first]
    holds = np.asarray(arg)[bags] == rows[:, None]
    found = Accumulator(num_embeddings, gradient.shape[1])
    found.add(rows, np.where(holds, gradient[bags], 0.0))
    counts = np.broadcast_to(of.count, found.value.shape)
    return Sum(found.value, found.magnitude, counts, np.where(counts > 0, additions(counts), 0), own=counts)


def embedding_bag_weights_backward(grad_output: Any, weight: Any, indices: Any, bag_ids: Any, padding_idx: int) -> Sum:
    """[N]: the product of a position's row and its bag's gradient; 0 of a position that takes no part.

    A term meets the additions of its strand, each by one fma, and those that join up to 128 strands.
    """
    gradient, table = in_float64(grad_output), in_float64(weight)
    of = _Positions(indices, bag_ids, len(table), len(gradient), padding_idx)
    columns = table.shape[1]
    strands = min(128, max(4, 1 << max(columns - 1, 0).bit_length()))
    value, magnitude = np.zeros(len(np.asarray(indices))), np.zeros(len(np.asarray(indices)))
    with np.errstate(invalid="ignore", over="ignore"):
        terms = gradient[of.bags] * table[of.rows]
        value[of.places], magnitude[of.places] = terms.sum(1), np.abs(terms).sum(1)
    roundings = np.zeros(value.shape, np.int64)
    roundings[of.places] = -(-columns // strands) + strands.bit_length() - 1
    return Sum(value, magnitude, np.where(roundings > 0, columns, 0), roundings, own=np.full(value.shape, columns + 1))
