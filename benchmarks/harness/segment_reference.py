# SPDX-License-Identifier: Apache-2.0
"""Float64 definitions of the segment operations, by the names that they have in a descriptor; NumPy only, nothing of
the library may be imported.

Each scatters over rows in their own order, where the kernels gather a segment's sorted rows. Every row has a segment.
Arguments are columns in float64, under the names of the C functions' tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..demo.reference import Array, Expected

# The header's: so many rows of a segment are summed before their sum is added to the segment's.
_PIECE = 256


class Segments:
    """Which segment each row has.

    Attributes
    ----------
    ids : array, [N]
    number : int
        Segments.
    count : array, [number, 1]
        Rows of each.
    chain : array, [number, 1]
        How many roundings a term of a segment's sum can meet.
    """

    def __init__(self, ids: Array, number: int, in_float64: bool) -> None:
        self.ids, self.number = ids, number
        self.count = np.bincount(ids, minlength=number)[:, None]
        # In the kernel the additions of one piece and of the pieces, and one that stands for those here, in float64 and
        # one after the other: a part of 2^-29 of a rounding each. For float64 itself they are what counts.
        pieces = np.minimum(self.count, _PIECE) + -(-self.count // _PIECE)
        self.chain = self.count + 1 if in_float64 else pieces + 1

    def total(self, values: Array) -> Array:
        """[number, D] sums."""
        columns = [np.bincount(self.ids, column, self.number) for column in values.T]
        return np.stack(columns, axis=1)

    def fold(self, function: np.ufunc, values: Array, empty: float) -> Array:
        """[number, D] of another associative function than the sum."""
        result = np.full((values.shape[1], self.number), empty)
        for column, target in zip(np.ascontiguousarray(values.T), result, strict=True):
            function.at(target, self.ids, column)
        return np.ascontiguousarray(result.T)

    def product(self, values: Array) -> Array:
        """[number, D] products."""
        return self.fold(np.multiply, values, 1.0)

    def holder(self, values: Array, extreme: Array) -> Array:
        """[number, D]: the first row that holds each extreme, -1 without rows."""
        result = np.full(extreme.shape, -1)
        holds = values == extreme[self.ids]
        for column in range(values.shape[1]):
            (rows,) = np.nonzero(holds[:, column])
            segments, first = np.unique(self.ids[rows], return_index=True)
            result[segments, column] = rows[first]
        return result


def _extreme(of: Segments, values: Array, smallest: bool) -> Array:
    return of.fold(np.minimum, values, np.inf) if smallest else of.fold(np.maximum, values, -np.inf)


# ---- reductions


def _sum(of: Segments, input: Array) -> list[Expected]:
    return [Expected(of.total(input), of.total(np.abs(input)), np.broadcast_to(of.chain, (of.number, input.shape[1])))]


def _mean(of: Segments, input: Array) -> list[Expected]:
    ((value, magnitude, roundings),) = _sum(of, input)
    count = np.maximum(of.count, 1)
    # Besides the sum, the division.
    return [Expected(value / count, np.asarray(magnitude) / count, np.asarray(roundings) + 1)]


def _prod(of: Segments, input: Array) -> list[Expected]:
    value = of.product(input)
    return [Expected(value, np.abs(value), np.broadcast_to(of.chain, value.shape))]


def _select(smallest: bool, with_arg: bool) -> Callable[..., list[Expected]]:
    def definition(of: Segments, input: Array) -> list[Expected]:
        extreme = _extreme(of, input, smallest)
        found = [Expected(extreme)]
        return [*found, Expected(of.holder(input, extreme).astype(np.float64))] if with_arg else found

    return definition


class _Exponentials:
    """The exponentials of a segment's rows relative to its largest, their sum, and the sum's relative error.

    The error is in roundings. A term meets an exponential, its argument's rounding and an addition for each row of its
    chain: an exponential is within 1.02 roundings, and the arguments of all of them, each off by a rounding of itself,
    add up to the distance from the largest value, at most `reach`.
    """

    def __init__(self, of: Segments, values: Array) -> None:
        self.largest = _extreme(of, values, smallest=False)
        self.relative = values - self.largest[of.ids]
        self.terms = np.exp(self.relative)
        self.sum = of.total(self.terms)
        self.reach = -of.fold(np.minimum, self.relative, 0.0)
        self.error = 2.02 * of.chain + self.reach


def _logsumexp(of: Segments, input: Array) -> list[Expected]:
    parts = _Exponentials(of, input)
    filled = of.count[:, 0] > 0
    value = np.full(parts.sum.shape, -np.inf)
    logarithm = np.log(parts.sum[filled])
    value[filled] = parts.largest[filled] + logarithm
    # The sum's relative error is an absolute one of its logarithm, which has 1.02 roundings itself; one of the result.
    roundings = np.zeros(value.shape)
    roundings[filled] = parts.error[filled] + 1.02 * np.abs(logarithm) + np.abs(value[filled])
    return [Expected(value, np.ones(value.shape), roundings)]


def _softmax(of: Segments, input: Array) -> list[Expected]:
    parts = _Exponentials(of, input)
    value = parts.terms / parts.sum[of.ids]
    # The sum's error, the exponential's and that of its argument, and the division.
    return [Expected(value, value, parts.error[of.ids] - parts.relative + 2.02)]


# ---- gradients


def _gather(of: Segments, input: Array) -> list[Expected]:
    return [Expected(input[of.ids])]


def _sum_backward(of: Segments, grad_output: Array) -> list[Expected]:
    return [Expected(grad_output[of.ids])]


def _mean_backward(of: Segments, grad_output: Array) -> list[Expected]:
    value = (grad_output / np.maximum(of.count, 1))[of.ids]
    return [Expected(value, np.abs(value), 1)]


def _select_backward(smallest: bool) -> Callable[..., list[Expected]]:
    def definition(of: Segments, grad_output: Array, input: Array) -> list[Expected]:
        return _with_arg_backward(of, grad_output, of.holder(input, _extreme(of, input, smallest)))

    return definition


def _with_arg_backward(of: Segments, grad_output: Array, arg: Array) -> list[Expected]:
    result = np.zeros((len(of.ids), arg.shape[1]))
    segments, columns = np.nonzero(arg >= 0)
    result[arg[segments, columns].astype(np.int64), columns] = grad_output[segments, columns]
    return [Expected(result)]


def _even_backward(smallest: bool) -> Callable[..., list[Expected]]:
    def definition(of: Segments, grad_output: Array, input: Array) -> list[Expected]:
        holds = input == _extreme(of, input, smallest)[of.ids]
        value = np.where(holds, (grad_output / np.maximum(of.total(holds), 1))[of.ids], 0.0)
        return [Expected(value, np.abs(value), 1)]

    return definition


def _prod_backward(of: Segments, grad_output: Array, input: Array, output: Array) -> list[Expected]:
    # No row is 0 here. Besides the product, a division and a product.
    value = (grad_output * of.product(input))[of.ids] / input
    return [Expected(value, np.abs(value), np.broadcast_to(of.chain[of.ids] + 2, value.shape))]


def _logsumexp_backward(of: Segments, grad_output: Array, input: Array, output: Array) -> list[Expected]:
    relative = input - output[of.ids]
    value = grad_output[of.ids] * np.exp(relative)
    # The difference, the exponential and the product.
    return [Expected(value, np.abs(value), np.abs(relative) + 2.02)]


def _softmax_backward(of: Segments, grad_output: Array, output: Array) -> list[Expected]:
    products = output * grad_output
    value = output * (grad_output - of.total(products)[of.ids])
    magnitude = np.abs(output) * (np.abs(grad_output) + of.total(np.abs(products))[of.ids])
    # Besides the sum: a product in it, the difference and the product with it.
    return [Expected(value, magnitude, np.broadcast_to(of.chain[of.ids] + 3, value.shape))]


# What a definition answers is the operation's outputs in order.
DEFINITIONS: dict[str, Callable[..., list[Expected]]] = {
    "sum": _sum,
    "mean": _mean,
    "max": _select(smallest=False, with_arg=False),
    "min": _select(smallest=True, with_arg=False),
    "prod": _prod,
    "logsumexp": _logsumexp,
    "max_with_arg": _select(smallest=False, with_arg=True),
    "min_with_arg": _select(smallest=True, with_arg=True),
    "softmax": _softmax,
    "sum_backward": _sum_backward,
    "mean_backward": _mean_backward,
    "max_backward": _select_backward(smallest=False),
    "min_backward": _select_backward(smallest=True),
    "max_even_backward": _even_backward(smallest=False),
    "min_even_backward": _even_backward(smallest=True),
    "max_with_arg_backward": _with_arg_backward,
    "min_with_arg_backward": _with_arg_backward,
    "prod_backward": _prod_backward,
    "logsumexp_backward": _logsumexp_backward,
    "softmax_backward": _softmax_backward,
    "gather": _gather,
}


def define(operation: str, of: Segments, columns: dict[str, Any]) -> list[Expected]:
    """What an operation's outputs must be."""
    return DEFINITIONS[operation](of, **columns)
