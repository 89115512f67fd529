# SPDX-License-Identifier: Apache-2.0
"""Operations on rows that belong to segments, as JAX's primitive has them, with their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from .._arrays import HOST
from .._call import Prepared
from .._errors import InvalidProblemError
from ..segment.operation import inputs_of, outputs_of, prepare, rows_of
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents, Unfold, merged, parted
from ._primitive import call

__all__ = ["Segments"]

_MOST_SEGMENTS = 2**31 - 1


@dataclass(frozen=True)
class Segments(KernelOperation):
    """An operation of one of the three forms on its inputs in the order of the C arguments.

    `empty_value` is as ``segment.operation.key_of`` spells it; `ties` says who takes the gradient of a maximum's.
    """

    operation: str
    form: str
    num_segments: int
    num_rows: int
    empty_value: bytes | int | None = None
    ties: str = "even"

    @property
    def name(self) -> str:  # type: ignore[override]
        """What messages call it."""
        return f"segment_{self.operation}"

    @property
    def inputs(self) -> tuple[str, ...]:
        return inputs_of(self.operation, self.form)

    def prepare(self, *specs: Spec) -> Prepared:
        shapes, dtypes = zip(*specs, strict=True)
        return prepare(
            HOST, self.operation, self.form, self.num_segments, self.num_rows, self.empty_value, shapes, dtypes
        )

    def axes(self, *specs: Spec) -> Axes:
        inputs = self.inputs
        columns = tuple(f"c{axis}" for axis in range(len(specs[0][0]) - 1))
        by_rows = rows_of(self.operation, self.form)

        def names(name: str) -> tuple[str, ...]:
            if name == "offsets":
                return ("o",)
            if name == "segment_ids":
                return ("r",)
            return ("r" if name in by_rows else "s", *columns)

        results = tuple(names(name) for name in outputs_of(self.operation, self.form))
        # No column meets another.
        return Axes(tuple(map(names, inputs)), results, frozenset(columns), frozenset(columns))

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        return _fold_offsets(self, size, operands) if self.form == "csr" else _fold_ids(self, size, operands)

    def like(self, operation: str) -> Segments:
        """Answer another operation on the same rows and segments."""
        return replace(self, operation=operation, empty_value=None)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        index = operands[-1]
        if self.operation in ("sum", "mean", "sum_backward", "mean_backward", "gather"):
            return call(replace(self, empty_value=None), tangents[0], index)
        if self.operation in ("max", "min", "prod", "logsumexp", "max_with_arg", "min_with_arg"):
            return self._tangent_of_reduction(operands, tangents[0], outputs)
        if self.operation == "softmax":
            return call(self.like("softmax_backward"), tangents[0], outputs[0], index)
        return self._tangent_of_gradient(operands, tangents)

    def _tangent_of_reduction(self, operands: Sequence[Any], tangent: Any, outputs: Sequence[Any]) -> Tangents:
        input, index = operands
        operation = self.operation.removesuffix("_with_arg")
        if operation in ("prod", "logsumexp"):
            return call(_Weighted(self.like(f"{operation}_backward")), tangent, input, outputs[0], index)
        if self.ties == "even":
            backward, rows = f"{operation}_even_backward", input
        elif self.operation == operation:
            backward, rows = f"{operation}_backward", input
        else:
            backward, rows = f"{operation}_with_arg_backward", outputs[1]
        (found,) = call(_Weighted(self.like(backward)), tangent, rows, index)
        # Which row it is does not move with its value.
        return [found, None][: len(outputs)]

    def _tangent_of_gradient(self, operands: Sequence[Any], tangents: Tangents) -> Tangents:
        """Answer the second derivative: of the gradient, by what it is linear in and by what it is taken at."""
        first, *others, index = operands
        of_first, *of_others, _ = tangents
        found = None if of_first is None else call(self, of_first, *others, index)[0]
        if not any(each is not None for each in of_others) or self.operation.startswith(("max", "min")):
            # A maximum's stays where it is for rows close by.
            return [jnp.zeros_like(_first_result(self, operands)) if found is None else found]
        pairs = zip(of_others, others, strict=True)
        moved = [jnp.zeros_like(each) if tangent is None else tangent for tangent, each in pairs]
        if self.operation == "softmax_backward":
            more = self._of_softmax(first, others[0], moved[0], index)
        elif self.operation == "logsumexp_backward":
            (share,) = call(self, jnp.ones_like(first), *others, index)
            inner = moved[0] - self._gathered(moved[1], index)
            more = self._gathered(first, index) * share * inner
        else:
            raise NotImplementedError(f"{self.name.removesuffix('_backward')} has no second derivative")
        return [more if found is None else found + more]

    def _of_softmax(self, grad_output: Any, output: Any, moved: Any, index: Any) -> Any:
        inner = self._gathered(self._summed(output * grad_output, index), index)
        return moved * (grad_output - inner) - output * self._gathered(self._summed(moved * grad_output, index), index)

    def _summed(self, rows: Any, index: Any) -> Any:
        return call(self.like("sum"), rows, index)[0]

    def _gathered(self, segments: Any, index: Any) -> Any:
        return call(self.like("sum_backward"), segments, index)[0]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        (cotangent, *_) = cotangents
        _, *others, index = operands
        nothing = [None] * (len(operands) - 1)
        transposed = {
            "sum": "sum_backward",
            "mean": "mean_backward",
            "gather": "sum",
            "sum_backward": "sum",
            "mean_backward": "mean",
            "softmax_backward": "softmax_backward",
        }.get(self.operation)
        if transposed is None:
            # The gradient of a reduction to one value, which weighs the rows.
            return [call(_Weighted(self), cotangent, *others, index)[0], *nothing]
        return [call(self.like(transposed), cotangent, *others, index)[0], *nothing]


def _first_result(operation: Segments, operands: Sequence[Any]) -> Any:
    """Answer an array of the shape and dtype of a gradient, which are those of the rows."""
    return jnp.zeros((operation.num_rows, *operands[0].shape[1:]), operands[0].dtype)


@dataclass(frozen=True)
class _Weighted(Operation):
    """The adjoint of a reduction's gradient: sums of rows by the weights with which the gradient spreads a segment's.

    Of (rows; what the gradient takes behind grad_output).
    """

    gradient: Segments

    @property
    def name(self) -> str:  # type: ignore[override]
        """What messages call it."""
        return self.gradient.name.removesuffix("_backward")

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        shape, dtype = specs[0]
        return (((self.gradient.num_segments, *shape[1:]), dtype),)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        rows, *others = operands
        ones = jnp.ones((self.gradient.num_segments, *rows.shape[1:]), rows.dtype)
        (weights,) = call(self.gradient, ones, *others)
        # A row without weight adds nothing, whatever it holds.
        weighted = jnp.where(weights != 0, weights * rows, jnp.zeros((), rows.dtype))
        return call(self.gradient.like("sum"), weighted, others[-1])

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        if any(each is not None for each in tangents[1:-1]):
            raise NotImplementedError(f"{self.name} has no second derivative in forward mode")
        return call(self, tangents[0], *operands[1:])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return [call(self.gradient, cotangents[0], *operands[1:])[0], *[None] * (len(operands) - 1)]


# One problem of several equal ones.


def _check_size(size: int, num_segments: int) -> None:
    if size * num_segments > _MOST_SEGMENTS:
        raise InvalidProblemError(f"vmap: {size} times {num_segments} segments; wanted at most {_MOST_SEGMENTS}")


def _starts(size: int, step: int, dtype: Any, axes: int) -> Any:
    """Answer where each problem's rows or segments begin, to be added to numbers of `axes` axes."""
    return (jnp.arange(size, dtype=dtype) * step).reshape((size, *(1,) * (axes - 1)))


def _among_all(size: int, numbers: Any, most: int) -> Any:
    """Answer what each problem's rows or segments are called among those of all; -1 for those that it does not have."""
    is_own = (numbers >= 0) & (numbers < most)
    return jnp.where(is_own, numbers + _starts(size, most, numbers.dtype, numbers.ndim), -1)


def _fold_args(operation: Segments, size: int, names: Sequence[str], operands: Sequence[Any]) -> list[Any]:
    """Let the operands that name rows name those of all problems."""
    return [
        _among_all(size, array, operation.num_rows) if name == "arg" else array
        for name, array in zip(names, operands, strict=True)
    ]


def _own_rows(operation: Segments, size: int, name: str, array: Any) -> Any:
    """Let a result that names rows of all problems name each problem's own."""
    if name != "arg":
        return array
    return jnp.where(array >= 0, array - _starts(size, operation.num_rows, array.dtype, array.ndim), -1)


def _fold_ids(operation: Segments, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
    """Give each problem segments of its own. Ids out of range would break an order, so that none is promised."""
    num_segments = operation.num_segments
    _check_size(size, num_segments)
    *arrays, index = _fold_args(operation, size, operation.inputs, operands)
    index = _among_all(size, index, num_segments)
    folded = replace(
        operation,
        form="unsorted",
        operation=operation.operation,
        num_segments=size * num_segments,
        num_rows=size * operation.num_rows,
    )
    names = outputs_of(operation.operation, operation.form)

    def unfold(results: Sequence[Any]) -> list[Any]:
        return [_own_rows(operation, size, name, parted(size, each)) for name, each in zip(names, results, strict=True)]

    return folded, [merged(each) for each in (*arrays, index)], unfold


def _fold_offsets(
    operation: Segments, size: int, operands: Sequence[Any]
) -> tuple[KernelOperation, Sequence[Any], Unfold]:
    """Put the offsets of all problems behind each other; between two lies a segment more, of rows that none covers."""
    num_segments, num_rows = operation.num_segments, operation.num_rows
    _check_size(size, num_segments + 1)
    *arrays, offsets = _fold_args(operation, size, operation.inputs, operands)
    by_rows = rows_of(operation.operation, operation.form)
    offsets = jnp.clip(offsets, 0, num_rows)
    row = jnp.arange(num_rows, dtype=offsets.dtype)[None]
    is_covered = (row >= offsets[:, :1]) & (row < offsets[:, -1:])
    moved = (offsets + _starts(size, num_rows, offsets.dtype, 2)).reshape(-1)
    every = jnp.concatenate([moved, jnp.full((1,), size * num_rows, offsets.dtype)])
    folded = replace(operation, num_segments=size * (num_segments + 1), num_rows=size * num_rows)
    inputs = []
    for name, array in zip(operation.inputs, arrays, strict=False):
        if name not in by_rows:
            array = jnp.pad(array, [(0, 0), (0, 1), *[(0, 0)] * (array.ndim - 2)])
        inputs.append(merged(array))
    names = outputs_of(operation.operation, operation.form)

    def unfold(results: Sequence[Any]) -> list[Any]:
        found = []
        for name, result in zip(names, results, strict=True):
            each = parted(size, result)
            if name in by_rows:
                mask = is_covered.reshape((size, num_rows, *(1,) * (each.ndim - 2)))
                each = jnp.where(mask, each, jnp.zeros((), each.dtype))
            else:
                each = _own_rows(operation, size, name, each[:, :num_segments])
            found.append(each)
        return found

    return folded, [*inputs, every], unfold
