# SPDX-License-Identifier: Apache-2.0
"""What an index by element adds up to along the last axis: weighted counts of each row, without a sort.

Here are also the routes of two gradients that PyTorch composes of zeros and of what is added to them: ours are written
at once. Their indices come from the forward, which has looked at them.
"""

from __future__ import annotations

from typing import Any

import torch

from ..bincount import bincount, is_few
from ..scan import cummaxmin_backward
from ._bad_indices import note
from ._named import FLOATS, INDICES, axis_of, rows_named
from ._route import route

__all__ = ["Bins", "are_bins"]

_FEW = "float32, float64, float16, bfloat16; by element along the last axis, of up to 4096 elements"
_ANY_FLOAT = "float32, float64, float16, bfloat16"


def are_bins(like: Any, axis: int, index: Any) -> bool:
    """Tell whether an index names elements along the last axis, an entry for each row of every other axis, of few."""
    if any(extent != 1 for extent in like.shape[axis + 1 :]) or not is_few(like.shape[axis]):
        return False
    return bool(index.shape[:axis] == like.shape[:axis] and index.shape[axis + 1 :] == like.shape[axis + 1 :])


class Bins:
    """An index of elements of a tensor along its last axis, for sums alone.

    Parameters
    ----------
    like : Tensor
        What is added to.
    axis : int
        Not negative; axes behind it have one element.
    index : Tensor
        What names no element is dropped, and counted on a GPU.
    """

    def __init__(self, like: Any, axis: int, index: Any) -> None:
        self._like, self._axis, self._index = like, axis, index
        note(index, like.shape[axis])

    def total(self, source: Any) -> Any:
        """Answer the sum of what each entry names, as a tensor of the shape of `like`."""
        return _added(source, self._index, self._like.shape, self._axis)


def _added(source: Any, index: Any, shape: Any, axis: int) -> Any:
    rows, extent = shape[:axis].numel(), shape[axis]
    entries = index.shape[axis]
    return bincount(index.reshape(rows, entries), source.reshape(rows, entries), extent).reshape(shape)


def _of_gradient(grad: Any, self: Any, index: Any) -> str:
    """Say what is wrong with a gradient that is computed above autograd's level, where compilers trace as well."""
    if type(grad) is not torch.Tensor or torch._C._functorch.is_functorch_wrapped_tensor(grad):
        return "a traced call"
    if torch.is_grad_enabled() and grad.requires_grad:
        return "a gradient that is differentiated again"
    if grad.dtype not in FLOATS or grad.dtype != self.dtype:
        return f"dtype {grad.dtype}"
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
    return _added(grad.detach(), index, self.shape, axis_of(dim, self.dim()))


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
