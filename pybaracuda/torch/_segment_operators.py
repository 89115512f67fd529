# SPDX-License-Identifier: Apache-2.0
"""Operators of segments and their derivatives, for every way in which rows name their segments.

A reduction and the spreading of a segment's row over its rows are each other's derivatives, so those of every order
exist where an operation is made of them.
"""

from __future__ import annotations

from typing import Any

import torch

from ..segment.gradients import selection_backward
from ..segment.operation import run
from ._opaque import Differentiable, define

__all__ = ["gather_rows", "reduced", "selected", "softmax"]

# Ids that are not converted to int32.
_WIDE_IDS = (torch.int64, torch.uint32, torch.uint64)


def _per_segment(rows: Any, num_segments: int) -> Any:
    return rows.new_empty((num_segments, *rows.shape[1:]))


def _run_reduce(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
    return run(operation, form, (input, index), num_segments=num_segments, empty_value=empty_value)


def _fake_reduce(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
    return _per_segment(input, num_segments)


def reduced(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any) -> Any:
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
    reduced,
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
    """The gradient of a product: a segment's, times the product of its other rows."""

    @staticmethod
    def forward(grad_output: Any, input: Any, output: Any, index: Any, operation: str, form: str) -> Any:
        return _reduce_backward(grad_output, input, output, index, operation, form)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_output, input, products, index, ctx.operation, ctx.form = inputs
        ctx.save_for_backward(grad_output, input, products, index)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad_output, input, products, index = ctx.saved_tensors
        ones = torch.ones_like(products)
        factors = _ProdBackward.apply(ones, input, products.detach(), index, ctx.operation, ctx.form)
        of_grad = _sum(factors * grad, index, ctx.form, products.shape[0])
        of_input = None
        if ctx.needs_input_grad[1]:
            of_input = _ProdCurvature.apply(grad, grad_output, input, index, ctx.form)
        # The derivative by the output is part of that by the input.
        return of_grad, of_input, None, None, None, None


class _ProdCurvature(Differentiable):
    """The derivative of a product's gradient by the rows: for each, the products without it and one other row."""

    @staticmethod
    def forward(grad: Any, grad_output: Any, input: Any, index: Any, form: str) -> Any:
        wide = torch.float64 if input.dtype == torch.float64 else torch.float32
        num_segments, num_rows = grad_output.shape[0], input.shape[0]

        def of_segment(rows: Any, operation: str = "sum") -> Any:
            return _spread(_reduce(rows, index, operation, form, num_segments, None), index, "gather", form, num_rows)

        rows, weights = input.to(wide), grad.to(wide)
        is_zero = rows == 0
        divisors = torch.where(is_zero, 1, rows)
        # Zeros are left out of the products and of the quotients; how many there are says which terms are not 0.
        product = of_segment(divisors, "prod")
        zeros = of_segment(is_zero.to(wide))
        quotients = torch.where(is_zero, 0, weights / divisors)
        of_zeros = torch.where(is_zero, weights, 0)
        others, other_zeros = of_segment(quotients) - quotients, of_segment(of_zeros) - of_zeros
        left = torch.where(is_zero, zeros - 1, zeros)
        terms = product / divisors * torch.where(left == 0, others, torch.where(left == 1, other_zeros, 0))
        scale = _spread(grad_output.to(wide), index, "gather", form, num_rows)
        is_in_one = _spread(torch.ones_like(grad_output, dtype=wide), index, "gather", form, num_rows) != 0
        return torch.where(is_in_one, terms * scale, 0).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise NotImplementedError("segment_prod has no third derivative by its rows")


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


def selected(input: Any, index: Any, operation: str, form: str, num_segments: int, empty_value: Any, ties: str) -> Any:
    """Call a maximum or minimum, also ``_with_arg``, with its derivative; `ties` says who takes the gradient of one."""
    # Refuses what is no way to treat ties.
    selection_backward(operation, input, None, ties)
    function = _Select if operation.endswith("_with_arg") else _Extreme
    return function.apply(input, index, operation, form, num_segments, empty_value, ties)


def softmax(input: Any, index: Any, form: str, num_segments: int) -> Any:
    """Call the softmax with its derivative."""
    return _Softmax.apply(input, index, form, num_segments)
