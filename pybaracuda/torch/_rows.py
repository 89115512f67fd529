# SPDX-License-Identifier: Apache-2.0
"""Routes of the operators that add or reduce rows or elements by an index: a segment reduction each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..segment import segment_max, segment_min, segment_prod, segment_sum
from ._named import (
    DTYPES,
    Bins,
    Elements,
    Named,
    Rows,
    add_into,
    are_bins,
    axis_of,
    covered,
    in_range,
    parts,
    refusal_of,
    refusal_of_alpha,
    refusal_of_sizes,
    rows_named,
    slow_on_cpu,
    sum_with,
    whole,
    widened,
)
from ._route import BY_ELEMENT, CPU_ALWAYS, route

__all__: list[str] = []

_REDUCTIONS = {"sum": segment_sum, "prod": segment_prod, "amax": segment_max, "amin": segment_min}
_INDEX_REDUCTIONS = ("mean", "prod", "amax", "amin")
_ON_CPU = "on the CPU an index of rows (one axis, or expanded over the others), the first, not of fewer than 32 bits"
_ADDED = f"{DTYPES}; {_ON_CPU}"
_REDUCED = f"{DTYPES}, of complex numbers sums and means, of bools no means; {_ON_CPU}"
_REDUCED_ROWS = f"float32, float64, float16, bfloat16, int8, uint8, int16, int32, int64; {_ON_CPU}"


def _index_refusal(self: Any, dim: int, index: Any, source: Any, is_sum: bool) -> str:
    """Say what every operator refuses whose index names rows along one axis, without a look at the values."""
    if self.dim() < 1 or source.dim() != self.dim() or index.dim() != 1:
        return "an operand of another rank"
    axis = axis_of(dim, self.dim())
    wanted = list(self.shape)
    wanted[axis : axis + 1] = [index.shape[0]]
    if list(source.shape) != wanted:
        return "shapes that do not fit"
    refused = (
        refusal_of(self, index, source)
        or refusal_of_sizes(self, self.shape[axis], index.shape[0], is_sum)
        or slow_on_cpu(self, axis)
    )
    return refused or ("" if in_range(index, self.shape[axis]) else "an index out of range")


def _index_add_refusal(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> str:
    return refusal_of_alpha(self.dtype, alpha) or _index_refusal(self, dim, index, source, is_sum=True)


@route("aten::index_add", _index_add_refusal, _ADDED)
def _index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return sum_with(self, Rows(self, [axis_of(dim, self.dim())], index), source, alpha).contiguous()


@route("aten::index_add_", _index_add_refusal, _ADDED, group="index_add")
def _index_add_in_place(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return add_into(self, self, Rows(self, [axis_of(dim, self.dim())], index), source, alpha)


def _index_add_out_refusal(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, out: Any) -> str:
    if out.shape != self.shape or out.dtype != self.dtype:
        return "an output of another shape or dtype"
    return _index_add_refusal(self, dim, index, source, alpha=alpha)


@route("aten::index_add.out", _index_add_out_refusal, _ADDED, group="index_add")
def _index_add_out(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, out: Any) -> Any:
    return add_into(out, self, Rows(self, [axis_of(dim, self.dim())], index), source, alpha)


def _scatter_refusal(self: Any, dim: int, index: Any, src: Any, is_sum: bool = True) -> str:
    rank = self.dim()
    if rank < 1 or index.dim() != rank or src.dim() != rank:
        return "an operand of another rank"
    axis = axis_of(dim, rank)
    for position in range(rank):
        if index.shape[position] > src.shape[position]:
            return "shapes that do not fit"
        if position != axis and index.shape[position] > self.shape[position]:
            return "shapes that do not fit"
    if refused := refusal_of(self, index, src):
        return refused
    ids = rows_named(self, axis, index)
    extent, entries = (self.numel(), index.numel()) if ids is None else (self.shape[axis], ids.shape[0])
    refused = refusal_of_sizes(self, extent, entries, is_sum)
    refused = refused or (_theirs_on_cpu(self) if ids is None else slow_on_cpu(self, axis))
    return refused or ("" if in_range(index if ids is None else ids, self.shape[axis]) else "an index out of range")


def _theirs_on_cpu(self: Any) -> str:
    """Say why elements are PyTorch's to add there: its kernel adds them one after another, without a sort."""
    return "" if CPU_ALWAYS or self.device.type != "cpu" else BY_ELEMENT


def _named_by(self: Any, axis: int, index: Any) -> Named:
    ids = rows_named(self, axis, index)
    return Elements.along(self, axis, index) if ids is None else Rows(self, [axis], ids)


def _added_by(self: Any, axis: int, index: Any) -> Named | Bins:
    """Answer what an index names for a sum, for which elements of a short last axis need no sort."""
    ids = rows_named(self, axis, index)
    if ids is not None:
        return Rows(self, [axis], ids)
    return Bins(self, axis, index) if are_bins(self, axis, index) else Elements.along(self, axis, index)


@route("aten::scatter_add", _scatter_refusal, _ADDED)
def _scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    return sum_with(self, _added_by(self, axis_of(dim, self.dim()), index), covered(index, src)).contiguous()


@route("aten::scatter_add_", _scatter_refusal, _ADDED, group="scatter_add")
def _scatter_add_in_place(self: Any, dim: int, index: Any, src: Any) -> Any:
    return add_into(self, self, _added_by(self, axis_of(dim, self.dim()), index), covered(index, src))


def _of_reduction(self: Any, reduce: str, known: Sequence[str]) -> str:
    """Say what is wrong with a reduction, of which an operator knows these for floats and integers."""
    if reduce not in known:
        return f"reduce={reduce!r}"
    # PyTorch has no others; complex products are left to it.
    if self.dtype.is_complex and reduce not in ("sum", "mean"):
        return f"reduce={reduce!r} of {self.dtype}"
    return f"reduce={reduce!r} of {self.dtype}" if self.dtype == torch.bool and reduce == "mean" else ""


def _is_sum(reduce: str, include_self: bool) -> bool:
    return reduce == "sum" and include_self


def _scatter_reduce_refusal(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> str:
    refused = _of_reduction(self, reduce, ("sum", *_INDEX_REDUCTIONS))
    return refused or _scatter_refusal(self, dim, index, src, _is_sum(reduce, include_self))


def _mean(total: Any, count: Any, dtype: Any) -> Any:
    """Divide sums of a dtype by counts, of which some may be 0; those of integers as PyTorch does."""
    if total.is_floating_point():
        return total / count.clamp(min=1).to(total.dtype)
    # Sums and counts wrap around in the dtype, and the quotient is rounded down.
    total, count = total.to(dtype), count.to(dtype)
    return torch.div(total, torch.where(count == 0, 1, count), rounding_mode="floor")


def _reduced(self: Any, named: Named, source: Any, reduce: str, include_self: bool) -> Any:
    """Answer what `self` becomes: it takes part once, last; without it what no entry names keeps it."""
    rows = named.rows(widened(source))
    found = named.tensor(_REDUCTIONS.get(reduce, segment_sum)(rows, named.ids, named.extent))
    given = widened(parts(self))
    count: Any = named.counts() if reduce == "mean" or not include_self else None
    if include_self:
        if reduce == "prod":
            found = given * found
        elif reduce in ("amax", "amin"):
            found = (torch.maximum if reduce == "amax" else torch.minimum)(given, found)
        else:
            found = given + found
    if reduce == "mean":
        found = _mean(found, count + 1 if include_self else count, self.dtype)
    if not include_self:
        found = torch.where(count > 0, found, given)
    return whole(found, self.dtype)


def _scatter_reduced(self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    axis, rows = axis_of(dim, self.dim()), covered(index, src)
    if _is_sum(reduce, include_self):
        return sum_with(self, _added_by(self, axis, index), rows)
    return _reduced(self, _named_by(self, axis, index), rows, reduce, include_self)


@route("aten::scatter_reduce.two", _scatter_reduce_refusal, _REDUCED)
def _scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    return _scatter_reduced(self, dim, index, src, reduce, include_self).contiguous()


@route("aten::scatter_reduce_.two", _scatter_reduce_refusal, _REDUCED, group="scatter_reduce")
def _scatter_reduce_in_place(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    return self.copy_(_scatter_reduced(self, dim, index, src, reduce, include_self))


# What scatter calls its reductions, which self takes part in.
_OF_SCATTER = {"add": "sum", "multiply": "prod"}


def _scatter_with_reduction_refusal(self: Any, dim: int, index: Any, src: Any, *, reduce: str) -> str:
    known = _OF_SCATTER.get(reduce)
    return f"reduce={reduce!r}" if known is None else _scatter_reduce_refusal(self, dim, index, src, known)


@route("aten::scatter.reduce", _scatter_with_reduction_refusal, _REDUCED, group="scatter_reduce")
def _scatter_with_reduction(self: Any, dim: int, index: Any, src: Any, *, reduce: str) -> Any:
    return _scatter_reduced(self, dim, index, src, _OF_SCATTER[reduce], True).contiguous()


@route("aten::scatter_.reduce", _scatter_with_reduction_refusal, _REDUCED, group="scatter_reduce")
def _scatter_with_reduction_in_place(self: Any, dim: int, index: Any, src: Any, *, reduce: str) -> Any:
    return self.copy_(_scatter_reduced(self, dim, index, src, _OF_SCATTER[reduce], True))


def _index_reduce_refusal(
    self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> str:
    if self.dtype.is_complex or self.dtype == torch.bool:
        return f"dtype {self.dtype}"
    return _of_reduction(self, reduce, _INDEX_REDUCTIONS) or _index_refusal(self, dim, index, source, is_sum=False)


def _index_reduced(self: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool) -> Any:
    return _reduced(self, Rows(self, [axis_of(dim, self.dim())], index), source, reduce, include_self)


@route("aten::index_reduce", _index_reduce_refusal, _REDUCED_ROWS)
def _index_reduce(self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    return _index_reduced(self, dim, index, source, reduce, include_self).contiguous()


@route("aten::index_reduce_", _index_reduce_refusal, _REDUCED_ROWS, group="index_reduce")
def _index_reduce_in_place(
    self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    return self.copy_(_index_reduced(self, dim, index, source, reduce, include_self))
