# SPDX-License-Identifier: Apache-2.0
"""Routes of gradients that PyTorch composes of zeros and of what is added to them; ours are written at once.

They stand where autograd sees the composition. Their indices come from the forward, which has looked at them.
"""

from __future__ import annotations

from typing import Any

import torch

from ..scan import cummaxmin_backward
from ._named import INDICES, Bins, are_bins, axis_of, rows_named
from ._route import of_floats, route

__all__: list[str] = []

_FEW = "float32, float64, float16, bfloat16; by element along the last axis, of up to 4096 elements"
_ANY_FLOAT = "float32, float64, float16, bfloat16"


def _of_gradient(grad: Any, self: Any, index: Any) -> str:
    """Say what is wrong with a gradient that is computed above autograd's level, where compilers trace as well."""
    if type(grad) is not torch.Tensor or torch._C._functorch.is_functorch_wrapped_tensor(grad):
        return "a traced call"
    if torch.is_grad_enabled() and grad.requires_grad:
        return "a gradient that is differentiated again"
    if refused := of_floats(grad, self):
        return refused
    if grad.layout != torch.strided or index.dtype not in INDICES or index.device != grad.device:
        return "operands of another kind"
    return "" if grad.numel() and self.numel() else "an empty tensor"


def _gather_refusal(grad: Any, self: Any, dim: int, index: Any, sparse_grad: bool) -> str:
    if sparse_grad:
        return "a sparse gradient"
    if not self.dim() or index.dim() != self.dim() or grad.shape != index.shape:
        return "an operand of another rank"
    axis = axis_of(dim, self.dim())
    if not are_bins(self, axis, index) or rows_named(self, axis, index) is not None:
        return "not by element along a short last axis"
    return _of_gradient(grad, self, index)


@route(
    "aten::gather_backward", _gather_refusal, _FEW, group="gather", devices=("cuda",), compiled=False, level="Autograd"
)
def _gather_backward(grad: Any, self: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    return Bins(self, axis_of(dim, self.dim()), index, is_checked=True).total(grad.detach())


def _extremum_refusal(grad: Any, input: Any, indices: Any, dim: int) -> str:
    if not input.dim() or grad.shape != input.shape or indices.shape != input.shape:
        return "an operand of another rank"
    return _of_gradient(grad, input, indices)


@route(
    "aten::cummaxmin_backward",
    _extremum_refusal,
    _ANY_FLOAT,
    group="cummax",
    devices=("cuda",),
    compiled=False,
    level="Autograd",
)
def _extremum_backward(grad: Any, input: Any, indices: Any, dim: int) -> Any:
    return cummaxmin_backward(grad.detach(), indices, dim)
