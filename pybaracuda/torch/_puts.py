# SPDX-License-Identifier: Apache-2.0
"""Routes of the operators that put values where several indices together, or places of elements, say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ._bad_indices import note
from ._copies import MOVED, put, put_into, refusal_of_moves
from ._named import (
    DTYPES,
    Elements,
    Named,
    Rows,
    add_into,
    from_begin,
    in_range,
    parts,
    refusal_of,
    refusal_of_sizes,
    sum_with,
    whole,
)
from ._native import places, put_last
from ._route import CPU_ALWAYS, route

__all__: list[str] = []


def _given(indices: Sequence[Any]) -> dict[int, Any]:
    """Answer the indices that there are, by their axis."""
    return {axis: index for axis, index in enumerate(indices) if index is not None}


def _is_one_block(axes: Sequence[int]) -> bool:
    """Tell whether indexed axes follow one another: the entries' own axes then take their place, else the first one."""
    return list(axes) == list(range(axes[0], axes[-1] + 1))


def _put_shape(self: Any, axes: Sequence[int], entries: Sequence[int]) -> list[int]:
    """Answer the shape that values are broadcast to; `entries` is that of the indices."""
    before = self.shape[: axes[0]] if _is_one_block(axes) else ()
    others = [extent for axis, extent in enumerate(self.shape) if axis not in axes]
    return [*before, *entries, *others[len(before) :]]


def _entries(indices: Iterable[Any]) -> tuple[int, ...] | None:
    """Answer the shape of several indices together; None if they do not fit."""
    try:
        return tuple(torch.broadcast_shapes(*(index.shape for index in indices)))
    except RuntimeError:
        return None


def _theirs_without_sums(self: Any, values: Any) -> str:
    """Say which calls that add nothing up are PyTorch's whatever their indices."""
    if isinstance(self, FakeTensor):
        # A compiler's code writes where the tensor lies, and copies it for an operator that it cannot look into.
        return "accumulate=False in a compiled program"
    if self.device.type == "cpu" and not CPU_ALWAYS:
        return "accumulate=False on the CPU"
    # Whichever comes last.
    return "one value for all" if values.numel() == 1 else ""


def _index_put_refusal(
    self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> str:
    if not accumulate and (refused := _theirs_without_sums(self, values)):
        return refused
    given = _given(indices)
    if not given:
        return "no index"
    if any(tensor.device != self.device for tensor in (values, *given.values())):
        return "operands on several devices"
    for index in given.values():
        if refused := (refusal_of if accumulate else refusal_of_moves)(self, index, values):
            return refused
    axes, entries = list(given), _entries(given.values())
    if entries is None:
        return "shapes that do not fit"
    wanted, found = _put_shape(self, axes, entries), list(values.shape)
    if len(found) > len(wanted) or any(
        extent not in (1, full) for extent, full in zip(reversed(found), reversed(wanted), strict=False)
    ):
        return "shapes that do not fit"
    if refused := refusal_of_sizes(self, prod(self.shape[axis] for axis in axes), prod(entries), is_sum=accumulate):
        return refused
    for axis, index in given.items():
        extent = self.shape[axis]
        if not in_range(index, extent, -extent):
            return "an index out of range"
    return ""


_PUT = (
    f"indices of any rank; with accumulate=True {DTYPES}; else, on CUDA and not in compiled programs, {MOVED}, and of "
    "several values for one place the last one is kept"
)


def _put(self: Any, indices: Sequence[Any], values: Any) -> tuple[Named, Any]:
    """Answer the rows that the indices name together, and what is added to them."""
    given = _given(indices)
    axes, entries = list(given), _entries(given.values())
    assert entries is not None
    ids: Any = None
    for axis, index in given.items():
        extent = self.shape[axis]
        ids_along = from_begin(index, extent)
        if ids is None:
            ids = ids_along
            continue
        is_row = (ids >= 0) & (ids_along >= 0) & (ids_along < extent)
        ids = torch.where(is_row, ids.to(torch.int64) * extent + ids_along, -1)
    ids = ids.expand(entries).reshape(-1)
    values = values.expand(_put_shape(self, axes, entries))
    at = axes[0] if _is_one_block(axes) else 0
    shape = [*values.shape[:at], ids.shape[0], *values.shape[at + len(entries) :]]
    return Rows(self, axes, ids, at), values.reshape(shape)


def _one_axis(self: Any, axes: Sequence[int], extent: int) -> list[int]:
    """Answer the shape of a tensor whose indexed axes, which follow one another, are one of this extent."""
    return [*self.shape[: axes[0]], extent, *self.shape[axes[-1] + 1 :]]


def _copied(self: Any, indices: Sequence[Any], values: Any) -> Any:
    """Answer a tensor in which the last value for a place stands there."""
    named, source = _put(self, indices, values)
    axes = list(_given(indices))
    if _is_one_block(axes):
        return put(self.reshape(_one_axis(self, axes, named.extent)), axes[0], named.ids, source).reshape(self.shape)
    moved = self.permute([*axes, *(axis for axis in range(self.dim()) if axis not in axes)])
    found = put(moved.reshape(named.extent, -1), 0, named.ids, source.reshape(source.shape[0], -1))
    return whole(named.tensor(parts(found)), self.dtype)


def _copied_into(self: Any, indices: Sequence[Any], values: Any) -> Any:
    """Put values where the indices say; where indexed axes are one in memory, nothing else is written."""
    axes = list(_given(indices))
    if len(axes) == 1 or (_is_one_block(axes) and self.is_contiguous()):
        named, source = _put(self, indices, values)
        put_into(self if len(axes) == 1 else self.view(_one_axis(self, axes, named.extent)), axes[0], named.ids, source)
        return self
    return self.copy_(_copied(self, indices, values))


@route("aten::index_put", _index_put_refusal, _PUT)
def _index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    found = sum_with(self, *_put(self, indices, values)) if accumulate else _copied(self, indices, values)
    # In the layout that PyTorch gives a copy of self.
    return found.contiguous() if self.is_contiguous() else torch.empty_like(self).copy_(found)


@route("aten::_index_put_impl_", _index_put_refusal, _PUT, group="index_put")
def _index_put_impl_(
    self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> Any:
    if not accumulate:
        return _copied_into(self, indices, values)
    return add_into(self, self, *_put(self, indices, values))


def _put_refusal(self: Any, index: Any, source: Any, accumulate: bool = False) -> str:
    if refused := (refusal_of if accumulate else refusal_of_moves)(self, index, source):
        return refused
    if index.dtype != torch.int64 or source.numel() != index.numel():
        return "an index of torch.int32" if index.dtype != torch.int64 else "shapes that do not fit"
    extent = self.numel()
    if refused := refusal_of_sizes(self, extent, index.numel(), is_sum=accumulate):
        return refused
    return "" if in_range(index, extent, -extent) else "an index out of range"


@route(
    "aten::put_",
    _put_refusal,
    f"with accumulate=True {DTYPES}; else {MOVED}, and of several values for one place the last one is kept",
    devices=("cuda",),
    compiled=False,
)
def _put_in_place(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    index, source = index.reshape(-1), source.reshape(-1)
    is_dense = self.is_contiguous()
    if is_dense and not accumulate and put_last(self.view(-1), 0, index, source, wraps=True):
        return self
    found = places(index, index.numel(), 1, self.numel(), wraps=True)
    if found is None:
        found = from_begin(index, self.numel())
        note(found, self.numel())
    named = Elements(self, found)
    if accumulate:
        return add_into(self, self, named, source)
    if not is_dense:
        return self.copy_(put(self.reshape(-1), 0, named.ids, source).reshape(self.shape))
    put_into(self.view(-1), 0, named.ids, source)
    return self
