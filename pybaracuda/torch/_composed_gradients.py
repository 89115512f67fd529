# SPDX-License-Identifier: Apache-2.0
"""Routes of gradients that PyTorch composes of several operators; ours are written at once.

They stand where autograd sees the composition. Their indices come from the forward, which has looked at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..order import reduced_shape, value_selecting_reduction_backward
from ..scan import cummaxmin_backward, cumprod_backward
from ._named import INDICES, Bins, are_bins, axis_of, rows_named
from ._route import is_plain, of_floats, route

__all__: list[str] = []

_FEW = "float32, float64, float16, bfloat16; by element along the last axis, of up to 4096 elements"
_ANY_FLOAT = "float32, float64, float16, bfloat16"
_OPTIONS: dict[str, Any] = {"devices": ("cuda",), "compiled": False, "level": "Autograd"}


def _of_gradient(grad: Any, *others: Any) -> str:
    """Say what is wrong with a gradient that is computed above autograd's level, where compilers trace as well."""
    if not is_plain(grad):
        return "a traced call"
    if torch.is_grad_enabled() and grad.requires_grad:
        return "a gradient that is differentiated again"
    if refused := of_floats(grad):
        return refused
    if grad.layout != torch.strided or any(each.device != grad.device for each in others):
        return "operands of another kind"
    return "" if all(each.numel() for each in (grad, *others)) else "an empty tensor"


def _of_indices(grad: Any, self: Any, indices: Any) -> str:
    """Say that of a gradient of elements of a tensor that indices name."""
    if indices.dtype not in INDICES:
        return "operands of another kind"
    return of_floats(grad, self) or _of_gradient(grad, self, indices)


def _gather_refusal(grad: Any, self: Any, dim: int, index: Any, sparse_grad: bool) -> str:
    if sparse_grad:
        return "a sparse gradient"
    if not self.dim() or index.dim() != self.dim() or grad.shape != index.shape:
        return "an operand of another rank"
    axis = axis_of(dim, self.dim())
    if not are_bins(self, axis, index) or rows_named(self, axis, index) is not None:
        return "not by element along a short last axis"
    return _of_indices(grad, self, index)


@route("aten::gather_backward", _gather_refusal, _FEW, group="gather", **_OPTIONS)
def _gather_backward(grad: Any, self: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    return Bins(self, axis_of(dim, self.dim()), index, is_checked=True).total(grad.detach())


def _extremum_refusal(grad: Any, input: Any, indices: Any, dim: int) -> str:
    if not input.dim() or grad.shape != input.shape or indices.shape != input.shape:
        return "an operand of another rank"
    return _of_indices(grad, input, indices)


@route("aten::cummaxmin_backward", _extremum_refusal, _ANY_FLOAT, group="cummax", **_OPTIONS)
def _extremum_backward(grad: Any, input: Any, indices: Any, dim: int) -> Any:
    return cummaxmin_backward(grad.detach(), indices, dim)


def _product_refusal(grad: Any, input: Any, dim: int, output: Any) -> str:
    if not input.dim() or grad.shape != input.shape or output.shape != input.shape:
        return "an operand of another rank"
    # The others are linear in the gradient; this one has derivatives by the input, whatever asks for it.
    if torch.is_grad_enabled() and (input.requires_grad or output.requires_grad):
        return "a gradient that is differentiated again"
    return of_floats(grad, input, output) or _of_gradient(grad, input, output)


@route("aten::cumprod_backward", _product_refusal, _ANY_FLOAT, group="cumprod", **_OPTIONS)
def _product_backward(grad: Any, input: Any, dim: int, output: Any) -> Any:
    return cumprod_backward(grad.detach(), input.detach(), output.detach(), dim)


def _selected_refusal(grad: Any, dim: int, indices: Any, sizes: Sequence[int], keepdim: bool) -> str:
    if not sizes or grad.shape != indices.shape:
        return "an operand of another rank"
    axis = axis_of(dim, len(sizes))
    # Of torch.sort and torch.topk a row has several.
    if tuple(grad.shape) != reduced_shape(tuple(sizes), axis, keepdim):
        return "rows of several elements"
    return "operands of another kind" if indices.dtype != torch.int64 else _of_gradient(grad, indices)


@route(
    "aten::value_selecting_reduction_backward",
    _selected_refusal,
    f"{_ANY_FLOAT}; of one element in each row",
    **_OPTIONS,
)
def _selected_backward(grad: Any, dim: int, indices: Any, sizes: Sequence[int], keepdim: bool) -> Any:
    return value_selecting_reduction_backward(grad.detach(), indices, tuple(sizes), dim, keepdim)
