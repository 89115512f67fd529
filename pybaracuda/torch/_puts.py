# SPDX-License-Identifier: Apache-2.0
"""Routes of the operators that put values where several indices together, or places of elements, say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import torch

from ..segment import segment_max
from ._bad_indices import note
from ._named import (
    DTYPES,
    Elements,
    Named,
    Rows,
    add_into,
    from_begin,
    in_range,
    refusal_of,
    refusal_of_sizes,
    sum_with,
)
from ._native import places
from ._route import route

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


def _index_put_refusal(
    self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> str:
    if not accumulate:
        return "accumulate=False"
    given = _given(indices)
    if not given:
        return "no index"
    if any(tensor.device != self.device for tensor in (values, *given.values())):
        return "operands on several devices"
    for index in given.values():
        if refused := refusal_of(self, index, values):
            return refused
    axes, entries = list(given), _entries(given.values())
    if entries is None:
        return "shapes that do not fit"
    wanted, found = _put_shape(self, axes, entries), list(values.shape)
    if len(found) > len(wanted) or any(
        extent not in (1, full) for extent, full in zip(reversed(found), reversed(wanted), strict=False)
    ):
        return "shapes that do not fit"
    if refused := refusal_of_sizes(self, prod(self.shape[axis] for axis in axes), prod(entries), is_sum=True):
        return refused
    for axis, index in given.items():
        extent = self.shape[axis]
        if not in_range(index, extent, -extent):
            return "an index out of range"
    return ""


_PUT = f"accumulate=True, indices of any rank; {DTYPES}"


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


@route("aten::index_put", _index_put_refusal, _PUT)
def _index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    added = sum_with(self, *_put(self, indices, values))
    # In the layout that PyTorch gives a copy of self.
    return added.contiguous() if self.is_contiguous() else torch.empty_like(self).copy_(added)


@route("aten::_index_put_impl_", _index_put_refusal, _PUT, group="index_put")
def _index_put_impl_(
    self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> Any:
    return add_into(self, self, *_put(self, indices, values))


def _put_refusal(self: Any, index: Any, source: Any, accumulate: bool = False) -> str:
    if refused := refusal_of(self, index, source):
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
    f"{DTYPES}; of several values for one place the last one is kept, or all are added",
    devices=("cuda",),
    compiled=False,
)
def _put_in_place(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    index, source = index.reshape(-1), source.reshape(-1)
    found = places(index, index.numel(), 1, self.numel(), wraps=True)
    if found is None:
        found = from_begin(index, self.numel())
        note(found, self.numel())
    named = Elements(self, found)
    if accumulate:
        return add_into(self, self, named, source)
    order = torch.arange(index.shape[0], device=self.device)
    last = segment_max(order.reshape(-1, 1), named.ids, named.extent).reshape(self.shape)
    return self.copy_(torch.where(last < 0, self, source[last.clamp(min=0)]))
