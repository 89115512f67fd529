# SPDX-License-Identifier: Apache-2.0
"""Routes of the operators that put rows or elements by an index, of which the last of several stays.

On the CPU PyTorch's own kernels put one after another, which is the same. A compiler's code for them is its own: it
writes where the tensor lies, and an operator that it cannot look into would have all of it copied.
"""

from __future__ import annotations

from typing import Any

import torch

from ..index_copy import index_copy
from ._bad_indices import note
from ._named import INDICES, Elements, axis_of, covered, has_all_lines, in_range, refusal_of_sizes, rows_named
from ._native import put_in_lines, put_last
from ._route import route

__all__ = ["MOVED", "put", "put_into", "refusal_of_moves"]

_DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool),
)
MOVED = "any dtype of 1, 2, 4, 8 or 16 bytes"
_CONDITIONS = f"{MOVED}; on CUDA"


def refusal_of_moves(self: Any, index: Any, source: Any) -> str:
    """Say what every one of these operators refuses."""
    if self.dtype not in _DTYPES or source.dtype != self.dtype:
        return f"dtypes {self.dtype}, {source.dtype}"
    if index.dtype not in INDICES:
        return f"an index of {index.dtype}"
    if any(tensor.device != self.device for tensor in (index, source)):
        return "operands on several devices"
    if not self.numel() or not source.numel() or not index.numel():
        return "an empty tensor"
    if any(torch._C._is_alias_of(self, tensor) for tensor in (index, source)):
        return "operands that share memory"
    return ""


def _order_of(self: Any) -> list[int]:
    """Answer the axes from the one whose elements are the farthest apart on."""
    return sorted(range(self.dim()), key=lambda axis: self.stride(axis), reverse=True)


def put(self: Any, axis: int, index: Any, source: Any) -> Any:
    """Answer a tensor whose rows along an axis are those of source where the index says, dense in row-major order."""
    return index_copy(self, axis, index, source)


def put_into(self: Any, axis: int, index: Any, source: Any) -> Any:
    """Put rows along an axis into a tensor; where its elements are dense in any order of the axes, nothing else."""
    order = _order_of(self)
    # Autograd is above us, and its tensors are written as others are.
    dense = self.detach().permute(order)
    if dense.is_contiguous():
        index_copy(dense, order.index(axis), index, source.permute(order), out=dense)
        return self
    return self.copy_(put(self, axis, index, source))


def _index_copy_refusal(self: Any, dim: int, index: Any, source: Any) -> str:
    rank = self.dim()
    if rank < 1 or source.dim() != rank or index.dim() != 1 or not -rank <= dim < rank:
        return "an operand of another rank"
    axis = axis_of(dim, rank)
    if list(source.shape) != [*self.shape[:axis], index.shape[0], *self.shape[axis + 1 :]]:
        return "shapes that do not fit"
    if index.dtype != torch.int64:
        return f"an index of {index.dtype}"
    refused = refusal_of_moves(self, index, source)
    # A table of who writes each of so many rows would be as large as they are.
    refused = refused or refusal_of_sizes(self, self.shape[axis], index.shape[0], is_sum=False)
    return refused or ("" if in_range(index, self.shape[axis]) else "an index out of range")


def _index_copy_out_refusal(self: Any, dim: int, index: Any, source: Any, *, out: Any) -> str:
    if out.shape != self.shape or out.dtype != self.dtype or out.device != self.device:
        return "an output of another shape, dtype or device"
    return _index_copy_refusal(self, dim, index, source)


@route("aten::index_copy", _index_copy_refusal, _CONDITIONS, devices=("cuda",), compiled=False)
def _index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    axis = axis_of(dim, self.dim())
    note(index, self.shape[axis])
    return put(self, axis, index, source)


@route("aten::index_copy_", _index_copy_refusal, _CONDITIONS, group="index_copy", devices=("cuda",), compiled=False)
def _index_copy_in_place(self: Any, dim: int, index: Any, source: Any) -> Any:
    axis = axis_of(dim, self.dim())
    note(index, self.shape[axis])
    return put_into(self, axis, index, source)


@route(
    "aten::index_copy.out",
    _index_copy_out_refusal,
    _CONDITIONS,
    group="index_copy",
    devices=("cuda",),
    compiled=False,
)
def _index_copy_out(self: Any, dim: int, index: Any, source: Any, *, out: Any) -> Any:
    return out.copy_(_index_copy(self, dim, index, source))


def _scatter_refusal(self: Any, dim: int, index: Any, src: Any) -> str:
    rank = self.dim()
    if rank < 1 or index.dim() != rank or src.dim() != rank or not -rank <= dim < rank:
        return "an operand of another rank"
    axis = axis_of(dim, rank)
    for position, extent in enumerate(index.shape):
        if extent > src.shape[position] or (position != axis and extent > self.shape[position]):
            return "shapes that do not fit"
    refused = refusal_of_moves(self, index, src)
    refused = refused or refusal_of_sizes(self, self.numel(), index.numel(), is_sum=False)
    return refused or ("" if in_range(index, self.shape[axis]) else "an index out of range")


def _scatter_out_refusal(self: Any, dim: int, index: Any, src: Any, *, out: Any) -> str:
    if out.shape != self.shape or out.dtype != self.dtype or out.device != self.device:
        return "an output of another shape, dtype or device"
    return _scatter_refusal(self, dim, index, src)


@route("aten::scatter.src", _scatter_refusal, _CONDITIONS, devices=("cuda",), compiled=False)
def _scatter(self: Any, dim: int, index: Any, src: Any) -> Any:
    axis, source = axis_of(dim, self.dim()), covered(index, src)
    ids = rows_named(self, axis, index)
    if ids is not None:
        note(ids, self.shape[axis])
        return put(self, axis, ids, source)
    named = Elements.along(self, axis, index)
    return put(self.reshape(-1), 0, named.ids, source.reshape(-1)).reshape(self.shape)


@route("aten::scatter_.src", _scatter_refusal, _CONDITIONS, group="scatter", devices=("cuda",), compiled=False)
def _scatter_in_place(self: Any, dim: int, index: Any, src: Any) -> Any:
    axis, source = axis_of(dim, self.dim()), covered(index, src)
    ids = rows_named(self, axis, index)
    if ids is not None:
        note(ids, self.shape[axis])
        return put_into(self, axis, ids, source)
    if not self.is_contiguous():
        return self.copy_(_scatter(self, dim, index, src))
    if has_all_lines(self, axis, index):
        # With one entry for each line nobody names an element twice: so gradients of order statistics are written.
        if index.shape[axis] == 1 and put_in_lines(self, axis, index, source):
            return self
        if put_last(self, axis, index, source, wraps=False):
            return self
    put_into(self.view(-1), 0, Elements.along(self, axis, index).ids, source.reshape(-1))
    return self


@route("aten::scatter.src_out", _scatter_out_refusal, _CONDITIONS, group="scatter", devices=("cuda",), compiled=False)
def _scatter_out(self: Any, dim: int, index: Any, src: Any, *, out: Any) -> Any:
    return out.copy_(_scatter(self, dim, index, src))
