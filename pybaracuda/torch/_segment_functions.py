# SPDX-License-Identifier: Apache-2.0
"""Segment operations on tensors, with gradients; what they compute and the order of it is in the array functions.

A reduction and the spreading of a segment's row over its rows are each other's derivatives, so those of every order
exist where an operation is made of them.
"""

from __future__ import annotations

from typing import Any

import torch

from ..segment.csr import check_reduce
from ..segment.documentation import FLOAT_ROWS, NUMBER_ROWS
from ..segment.gradients import selection_backward
from ..segment.operation import form_of, run
from ..segment.reductions import with_arg
from ._documentation import documented_of_tensors
from ._opaque import Differentiable, define

__all__ = [
    "gather_csr",
    "gather_rows",
    "segment_csr",
    "segment_gather",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_softmax",
    "segment_sum",
]

_PER_SEGMENT = "Tensor, [num_segments, ...]: Of the input's dtype and device."
_PER_ROW = "Tensor, [N, ...]: Of the input's dtype and device. Dropped rows are 0."
# Ids that are not converted to int32.
_WIDE_IDS = (torch.int64, torch.uint32, torch.uint64)


def _per_segment(rows: Any, num_segments: int) -> Any:
    return rows.new_empty((num_segments, *rows.shape[1:]))


def _run_reduce(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
    return run(operation, form, (input, index), num_segments=num_segments, empty_value=empty_value)


def _fake_reduce(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
    return _per_segment(input, num_segments)


def _reduced(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
    """Call a reduction with its derivative."""
    if operation in ("max", "min"):
        return _Extreme.apply(input, index, operation, form, num_segments, empty_value, "first")
    function = {"prod": _Prod, "logsumexp": _Logsumexp}.get(operation, _Sum)
    return function.apply(input, index, operation, form, num_segments, empty_value)


_reduce = define(
    "segment_reduce(Tensor input, Tensor index, str operation, str form, SymInt num_segments, Scalar? empty_value)"
    " -> Tensor",
    _run_reduce,
    _fake_reduce,
    _reduced,
)


def _fake_select(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
    dtype = torch.int64 if index.dtype in _WIDE_IDS else torch.int32
    found = _per_segment(input, num_segments)
    return found, torch.empty_like(found, dtype=dtype)


# A maximum or minimum and the rows that hold it.
_select = define(
    "segment_select(Tensor input, Tensor index, str operation, str form, SymInt num_segments, Scalar? empty_value)"
    " -> (Tensor, Tensor)",
    _run_reduce,
    _fake_select,
    lambda *args: _Select.apply(*args, "first"),
)


def _run_spread(grad_output: Any, index: Any, operation: str, form: str, num_rows: int) -> Any:
    return run(operation, form, (grad_output, index), num_rows=num_rows)


def _fake_spread(grad_output: Any, index: Any, operation: str, form: str, num_rows: int) -> Any:
    return grad_output.new_empty((num_rows, *grad_output.shape[1:]))


_spread = define(
    "segment_spread(Tensor grad_output, Tensor index, str operation, str form, SymInt num_rows) -> Tensor",
    _run_spread,
    _fake_spread,
    lambda *args: _Spread.apply(*args),
)


def _run_selection_backward(grad_output: Any, rows: Any, index: Any, operation: str, form: str, num_rows: int) -> Any:
    return run(operation, form, (grad_output, rows, index), num_rows=num_rows)


def _fake_selection_backward(grad_output: Any, rows: Any, index: Any, operation: str, form: str, num_rows: int) -> Any:
    return grad_output.new_empty((num_rows, *grad_output.shape[1:]))


# `rows` is the input, or which row holds each segment's value.
_selection_backward = define(
    "segment_selection_backward(Tensor grad_output, Tensor rows, Tensor index, str operation, str form, "
    "SymInt num_rows) -> Tensor",
    _run_selection_backward,
    _fake_selection_backward,
    lambda *args: _SelectionBackward.apply(*args),
)


def _run_reduce_backward(grad_output: Any, input: Any, output: Any, index: Any, operation: str, form: str) -> Any:
    return run(operation, form, (grad_output, input, output, index))


def _fake_reduce_backward(grad_output: Any, input: Any, output: Any, index: Any, operation: str, form: str) -> Any:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def _reduced_backward(grad_output: Any, input: Any, output: Any, index: Any, operation: str, form: str) -> Any:
    function = _ProdBackward if operation == "prod_backward" else _LogsumexpBackward
    return function.apply(grad_output, input, output, index, operation, form)


_reduce_backward = define(
    "segment_reduce_backward(Tensor grad_output, Tensor input, Tensor output, Tensor index, str operation, str form)"
    " -> Tensor",
    _run_reduce_backward,
    _fake_reduce_backward,
    _reduced_backward,
)


def _run_softmax(input: Any, index: Any, form: str, num_segments: int) -> Any:
    return run("softmax", form, (input, index), num_segments=num_segments)


def _fake_softmax(input: Any, index: Any, form: str, num_segments: int) -> Any:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


_softmax = define(
    "segment_softmax(Tensor input, Tensor index, str form, SymInt num_segments) -> Tensor",
    _run_softmax,
    _fake_softmax,
    lambda *args: _Softmax.apply(*args),
)


def _run_softmax_backward(grad_output: Any, output: Any, index: Any, form: str, num_segments: int) -> Any:
    return run("softmax_backward", form, (grad_output, output, index), num_segments=num_segments)


def _fake_softmax_backward(grad_output: Any, output: Any, index: Any, form: str, num_segments: int) -> Any:
    return torch.empty_like(output, memory_format=torch.contiguous_format)


_softmax_backward = define(
    "segment_softmax_backward(Tensor grad_output, Tensor output, Tensor index, str form, SymInt num_segments)"
    " -> Tensor",
    _run_softmax_backward,
    _fake_softmax_backward,
    lambda *args: _SoftmaxBackward.apply(*args),
)


class _Sum(Differentiable):
    """A sum or mean."""

    @staticmethod
    def forward(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
        return _reduce(input, index, operation, form, num_segments, empty_value)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, index, ctx.operation, ctx.form, _, _ = inputs
        ctx.save_for_backward(index)
        ctx.num_rows = input.shape[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        (index,) = ctx.saved_tensors
        grad = _Spread.apply(grad_output, index, f"{ctx.operation}_backward", ctx.form, ctx.num_rows)
        return grad, None, None, None, None, None


class _Spread(Differentiable):
    """The gradient of a sum or mean, or the gather: their adjoint."""

    @staticmethod
    def forward(grad_output: Any, index: Any, operation: str, form: str, num_rows: int) -> Any:
        return _spread(grad_output, index, operation, form, num_rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, index, operation, ctx.form, _ = inputs
        ctx.save_for_backward(index)
        ctx.operation = "mean" if operation == "mean_backward" else "sum"
        ctx.num_segments = grad_output.shape[0]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (index,) = ctx.saved_tensors
        return _Sum.apply(grad, index, ctx.operation, ctx.form, ctx.num_segments, None), None, None, None, None


def _sum(rows: Any, index: Any, form: str, num_segments: int) -> Any:
    return _Sum.apply(rows, index, "sum", form, num_segments, None)


def gather_rows(input: Any, index: Any, form: str, num_rows: int) -> Any:
    """Answer each row's segment; `form` says how the rows name theirs."""
    return _Spread.apply(input, index, "gather", form, num_rows)


def _masked(mask: Any, grad: Any) -> Any:
    """Answer the product, 0 where the mask is, whatever the gradient holds there."""
    return torch.where(mask != 0, mask * grad, torch.zeros_like(grad))


class _Extreme(Differentiable):
    """A maximum or minimum."""

    @staticmethod
    def forward(
        input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any, ties: str
    ) -> Any:
        return _reduce(input, index, operation, form, num_segments, empty_value)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, index, operation, ctx.form, _, _, ties = inputs
        ctx.save_for_backward(input, index)
        ctx.operation, _ = selection_backward(operation, input, None, ties)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        input, index = ctx.saved_tensors
        rows = input.detach()
        grad = _SelectionBackward.apply(grad_output, rows, index, ctx.operation, ctx.form, input.shape[0])
        return grad, None, None, None, None, None, None


class _Select(Differentiable):
    """A maximum or minimum and the rows that hold it."""

    @staticmethod
    def forward(
        input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any, ties: str
    ) -> Any:
        return _select(input, index, operation, form, num_segments, empty_value)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, index, operation, ctx.form, _, _, ties = inputs
        _, arg = output
        ctx.mark_non_differentiable(arg)
        ctx.operation, rows = selection_backward(
            operation.removesuffix("_with_arg"), input, None if ties == "even" else arg, ties
        )
        ctx.save_for_backward(rows, index)
        ctx.num_rows = input.shape[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Any, _: Any) -> Any:
        rows, index = ctx.saved_tensors
        grad = _SelectionBackward.apply(grad_output, rows.detach(), index, ctx.operation, ctx.form, ctx.num_rows)
        return grad, None, None, None, None, None, None


class _SelectionBackward(Differentiable):
    """The gradient of a maximum or minimum: linear in what comes from the segments, and constant in the rows."""

    @staticmethod
    def forward(grad_output: Any, rows: Any, index: Any, operation: str, form: str, num_rows: int) -> Any:
        return _selection_backward(grad_output, rows, index, operation, form, num_rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, rows, index, *ctx.options = inputs
        ctx.save_for_backward(rows, index)
        ctx.shape = tuple(grad_output.shape)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        rows, index = ctx.saved_tensors
        ones = grad.new_ones(ctx.shape)
        mask = _SelectionBackward.apply(ones, rows.detach(), index, *ctx.options)
        found = _sum(_masked(mask, grad), index, ctx.options[1], ctx.shape[0])
        return found, None, None, None, None, None


class _Prod(Differentiable):
    """A product."""

    @staticmethod
    def forward(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
        return _reduce(input, index, operation, form, num_segments, empty_value)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, index, _, ctx.form, _, _ = inputs
        ctx.save_for_backward(input, output, index)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        input, output, index = ctx.saved_tensors
        grad = _ProdBackward.apply(grad_output, input, output.detach(), index, "prod_backward", ctx.form)
        return grad, None, None, None, None, None


class _ProdBackward(Differentiable):
    """The gradient of a product; linear in what comes from the segments, without a derivative by the rows."""

    @staticmethod
    def forward(grad_output: Any, input: Any, output: Any, index: Any, operation: str, form: str) -> Any:
        return _reduce_backward(grad_output, input, output, index, operation, form)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, input, products, index, ctx.operation, ctx.form = inputs
        ctx.save_for_backward(input, products, index)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if ctx.needs_input_grad[1]:
            raise NotImplementedError("segment_prod has no second derivative yet")
        input, products, index = ctx.saved_tensors
        ones = torch.ones_like(products)
        factors = _ProdBackward.apply(ones, input, products, index, ctx.operation, ctx.form)
        return _sum(factors * grad, index, ctx.form, products.shape[0]), None, None, None, None, None


class _Logsumexp(Differentiable):
    """A logarithm of a sum of exponentials."""

    @staticmethod
    def forward(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
        return _reduce(input, index, operation, form, num_segments, empty_value)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        input, index, _, ctx.form, _, _ = inputs
        ctx.save_for_backward(input, output, index)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        input, output, index = ctx.saved_tensors
        # The derivative by the output is part of that by the input.
        grad = _LogsumexpBackward.apply(grad_output, input, output.detach(), index, "logsumexp_backward", ctx.form)
        return grad, None, None, None, None, None


class _LogsumexpBackward(Differentiable):
    """The gradient of a logsumexp: a segment's, times the softmax of its rows."""

    @staticmethod
    def forward(grad_output: Any, input: Any, output: Any, index: Any, operation: str, form: str) -> Any:
        return _reduce_backward(grad_output, input, output, index, operation, form)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, input, _, index, _, ctx.form = inputs
        ctx.save_for_backward(grad_output, input, index)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad_output, input, index = ctx.saved_tensors
        num_segments, num_rows = grad_output.shape[0], input.shape[0]
        share = _Softmax.apply(input, index, ctx.form, num_segments)
        weighted = _sum(share * grad, index, ctx.form, num_segments)
        inner = grad - gather_rows(weighted, index, ctx.form, num_rows)
        of_input = share * gather_rows(grad_output, index, ctx.form, num_rows) * inner
        return weighted, of_input, None, None, None, None


class _Softmax(Differentiable):
    """A softmax."""

    @staticmethod
    def forward(input: Any, index: Any, form: str, num_segments: int) -> Any:
        return _softmax(input, index, form, num_segments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, index, ctx.form, ctx.num_segments = inputs
        ctx.save_for_backward(output, index)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        output, index = ctx.saved_tensors
        grad = _SoftmaxBackward.apply(grad_output, output, index, ctx.form, ctx.num_segments)
        return grad, None, None, None


class _SoftmaxBackward(Differentiable):
    """The gradient of a softmax, which is its own adjoint in what comes from the rows."""

    @staticmethod
    def forward(grad_output: Any, output: Any, index: Any, form: str, num_segments: int) -> Any:
        return _softmax_backward(grad_output, output, index, form, num_segments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, shares, index, ctx.form, ctx.num_segments = inputs
        ctx.save_for_backward(grad_output, shares, index)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad_output, shares, index = ctx.saved_tensors
        form, num_segments, num_rows = ctx.form, ctx.num_segments, grad.shape[0]
        of_grad = _SoftmaxBackward.apply(grad, shares, index, form, num_segments)
        inner = gather_rows(_sum(shares * grad_output, index, form, num_segments), index, form, num_rows)
        outer = gather_rows(_sum(shares * grad, index, form, num_segments), index, form, num_rows)
        return of_grad, grad * (grad_output - inner) - grad_output * outer, None, None, None


def _segments(
    operation: str,
    input: Any,
    index: Any,
    form: str,
    num_segments: int,
    empty_value: Any,
    return_arg: bool = False,
    ties: str = "first",
) -> Any:
    """Call an operation with its derivative, the selections as the caller wants them."""
    if operation not in ("max", "min"):
        return _reduced(input, index, operation, form, num_segments, empty_value)
    # Refuses what is no way to treat ties.
    selection_backward(operation, input, None, ties)
    name = with_arg(operation, return_arg)
    function = _Extreme if name == operation else _Select
    return function.apply(input, index, name, form, num_segments, empty_value, ties)


@documented_of_tensors(input=NUMBER_ROWS, returns=_PER_SEGMENT)
def segment_sum(
    input: Any, segment_ids: Any, num_segments: int, *, indices_are_sorted: bool = False, empty_value: Any = None
) -> Any:
    """Sum the rows of each segment, as ``jax.ops.segment_sum`` does.

    A segment without rows is 0. float16 and bfloat16 are summed in float32; integers wrap around. Derivatives of every
    order.
    """
    return _segments("sum", input, segment_ids, form_of(indices_are_sorted), num_segments, empty_value)


@documented_of_tensors(input=FLOAT_ROWS, returns=_PER_SEGMENT)
def segment_mean(
    input: Any, segment_ids: Any, num_segments: int, *, indices_are_sorted: bool = False, empty_value: Any = None
) -> Any:
    """Average the rows of each segment.

    A segment without rows is 0. The divisor is an integer count. Derivatives of every order.
    """
    return _segments("mean", input, segment_ids, form_of(indices_are_sorted), num_segments, empty_value)


@documented_of_tensors(input=NUMBER_ROWS, returns=_PER_SEGMENT + " With `return_arg`, that and the rows.")
def segment_max(
    input: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    return_arg: bool = False,
    ties: str = "first",
) -> Any:
    """Take the maximum over the rows of each segment, as ``jax.ops.segment_max`` does.

    A segment without rows is -infinity, or the lowest integer. NaN is larger than every number, -0 equals +0, and among
    equals the first row wins; the winner's bits are copied. Derivatives of every order; the second by the rows is 0.
    """
    form = form_of(indices_are_sorted)
    return _segments("max", input, segment_ids, form, num_segments, empty_value, return_arg, ties)


@documented_of_tensors(input=NUMBER_ROWS, returns=_PER_SEGMENT + " With `return_arg`, that and the rows.")
def segment_min(
    input: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    indices_are_sorted: bool = False,
    empty_value: Any = None,
    return_arg: bool = False,
    ties: str = "first",
) -> Any:
    """Take the minimum over the rows of each segment, as ``jax.ops.segment_min`` does.

    A segment without rows is infinity, or the highest integer. NaN is smaller than every number, -0 equals +0, and
    among equals the first row wins; the winner's bits are copied. Derivatives of every order; the second by the rows is
    0.
    """
    form = form_of(indices_are_sorted)
    return _segments("min", input, segment_ids, form, num_segments, empty_value, return_arg, ties)


@documented_of_tensors(input=NUMBER_ROWS, returns=_PER_SEGMENT)
def segment_prod(
    input: Any, segment_ids: Any, num_segments: int, *, indices_are_sorted: bool = False, empty_value: Any = None
) -> Any:
    """Multiply the rows of each segment, as ``jax.ops.segment_prod`` does.

    A segment without rows is 1. float16 and bfloat16 are multiplied in float32; integers wrap around. The gradient is
    right where rows are 0, too; a second derivative by the rows raises NotImplementedError.
    """
    return _segments("prod", input, segment_ids, form_of(indices_are_sorted), num_segments, empty_value)


@documented_of_tensors(input=FLOAT_ROWS, returns=_PER_SEGMENT)
def segment_logsumexp(
    input: Any, segment_ids: Any, num_segments: int, *, indices_are_sorted: bool = False, empty_value: Any = None
) -> Any:
    """Take the logarithm of the sum of exponentials of each segment's rows.

    A segment without rows is -infinity. Derivatives of every order.
    """
    return _segments("logsumexp", input, segment_ids, form_of(indices_are_sorted), num_segments, empty_value)


@documented_of_tensors(input=FLOAT_ROWS, returns=_PER_ROW)
def segment_softmax(input: Any, segment_ids: Any, num_segments: int, *, indices_are_sorted: bool = False) -> Any:
    """Take the softmax over the rows of each segment.

    Where the largest value of a segment is infinite, the rows that hold it share 1 equally. Derivatives of every order.
    """
    return _Softmax.apply(input, segment_ids, form_of(indices_are_sorted), num_segments)


@documented_of_tensors(
    input="array, [num_segments, ...]: A row for each segment, in float32, float64, float16 or bfloat16.",
    returns=_PER_ROW,
)
def segment_gather(input: Any, segment_ids: Any) -> Any:
    """Answer each row's segment: ``input[segment_ids]``, whose gradient is :func:`segment_sum`.

    Bits are copied. Derivatives of every order.
    """
    return gather_rows(input, segment_ids, "unsorted", segment_ids.shape[0])


@documented_of_tensors(
    input=NUMBER_ROWS + " Integers for sum, max, min and prod.",
    reduce='{"sum", "mean", "max", "min", "prod", "logsumexp", "softmax"}: What :func:`segment_sum` and the like do.',
    returns="Tensor, [num_segments, ...], for softmax [N, ...]: Of the input's dtype and device. With `return_arg`, "
    "that and the rows.",
)
def segment_csr(
    input: Any,
    offsets: Any,
    reduce: str = "sum",
    *,
    empty_value: Any = None,
    return_arg: bool = False,
    ties: str = "first",
) -> Any:
    """Reduce consecutive rows; derivatives as :func:`segment_sum` and the like have them.

    :mod:`pybaracuda.torch.scatter` has the function of torch_scatter's name and arguments.
    """
    check_reduce(reduce, return_arg)
    num_segments = max(offsets.shape[0] - 1, 0)
    if reduce == "softmax":
        if empty_value is not None:
            raise ValueError("empty_value: softmax has no value of a segment")
        return _Softmax.apply(input, offsets, "csr", num_segments)
    return _segments(reduce, input, offsets, "csr", num_segments, empty_value, return_arg, ties)


@documented_of_tensors(
    input="array, [num_segments, ...]: A row for each segment, in float32, float64, float16 or bfloat16.",
    num_rows="int: Rows of the result.",
    returns=_PER_ROW,
)
def gather_csr(input: Any, offsets: Any, num_rows: int) -> Any:
    """Repeat each segment's row as often as the segment has rows; the gradient is the sum of :func:`segment_csr`.

    Bits are copied. Derivatives of every order.
    """
    return gather_rows(input, offsets, "csr", num_rows)
