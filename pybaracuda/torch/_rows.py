# SPDX-License-Identifier: Apache-2.0
"""Routes of the operators that add or reduce whole rows by an index: a segment reduction each.

An index of rows has one entry for each row: it has one axis, or is expanded over the others, which its strides say
without a look at its values. Rows along another axis than the first are moved to the front, which copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import Any

import torch

from ..segment import (
    segment_csr,
    segment_csr_backward,
    segment_max,
    segment_min,
    segment_prod,
    segment_sum,
)
from ._bad_indices import note
from ._route import ANOTHER_AXIS, CPU_ALWAYS, SIXTEEN_BITS, of_floats, route

__all__: list[str] = []

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SUMMED = (*_FLOATS, torch.int32, torch.int64)
_INDICES = (torch.int32, torch.int64)
# In which type a finished sum waits for what is added to it, so that it is rounded once.
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_REDUCTIONS = {"sum": segment_sum, "prod": segment_prod, "amax": segment_max, "amin": segment_min}

_BY_ROWS = "an index of rows: one axis, or expanded over the others; float32, float64, float16, bfloat16, int32, int64"
_ADDED = f"{_BY_ROWS}; on the CPU along the first axis, not in 16 bits"


def _axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _is_readable(index: Any) -> bool:
    """Tell whether values can be looked at without waiting for a GPU, and are there: a compiler's tensors have none."""
    return index.device.type == "cpu" and type(index) is torch.Tensor


def in_range(index: Any, extent: int) -> bool:
    """Tell whether every entry names a row, as far as that can be seen: on the CPU, where PyTorch looks, too."""
    if not _is_readable(index) or not index.numel():
        return True
    least, most = torch.aminmax(index)
    return int(least) >= 0 and int(most) < extent


def _refused(self: Any, index: Any, source: Any) -> str:
    """Say what every one of these operators refuses."""
    if self.dtype not in _SUMMED or source.dtype != self.dtype:
        return f"dtypes {self.dtype}, {source.dtype}"
    if index.dtype not in _INDICES:
        return f"an index of {index.dtype}"
    if not self.numel() or not source.numel() or not index.numel():
        return "an empty tensor"
    return ""


def _slow_on_cpu(self: Any, axis: int) -> str:
    """Say why PyTorch's own kernel is faster: ours has rows moved to the front and 16 bits widened, by copies."""
    if CPU_ALWAYS or self.device.type != "cpu":
        return ""
    if self.dtype in _WIDE:
        return SIXTEEN_BITS
    return "" if all(extent == 1 for extent in self.shape[:axis]) else ANOTHER_AXIS


def _front(tensor: Any, axis: int) -> Any:
    """Answer a tensor as rows along an axis."""
    moved = tensor.movedim(axis, 0) if axis else tensor
    return moved.reshape(moved.shape[0], -1)


def _back(rows: Any, axis: int, like: Any) -> Any:
    """Answer rows as a tensor of the shape of another one; the opposite of :func:`_front`."""
    shape = list(like.shape)
    first = shape.pop(axis)
    moved = rows.reshape(first, *shape)
    return moved.movedim(0, axis) if axis else moved


def _as(self: Any, result: Any) -> Any:
    """Answer a result in the layout that PyTorch gives a copy of self."""
    return result.contiguous() if self.is_contiguous() else torch.empty_like(self).copy_(result)


def _wide(tensor: Any) -> Any:
    wide = _WIDE.get(tensor.dtype)
    return tensor if wide is None else tensor.to(wide)


def _total(self: Any, axis: int, ids: Any, source: Any, alpha: Any) -> Any:
    """Answer alpha * the sum of the rows of each entry, in the dtype of sums."""
    note(ids, self.shape[axis])
    total = segment_sum(_front(_wide(source), axis), ids, self.shape[axis])
    return _back(total if alpha == 1 else total * alpha, axis, self)


def _added(self: Any, axis: int, ids: Any, source: Any, alpha: Any) -> Any:
    """Answer self + alpha * the sum of the rows of each entry, rounded to self's dtype once."""
    return torch.add(_wide(self), _total(self, axis, ids, source, alpha)).to(self.dtype)


def _add_into(out: Any, self: Any, axis: int, ids: Any, source: Any, alpha: Any) -> Any:
    """Make `out`, which may be `self`, what :func:`_added` answers."""
    if self.dtype in _WIDE:
        return out.copy_(_added(self, axis, ids, source, alpha))
    return torch.add(self, _total(self, axis, ids, source, alpha), out=out)


def _index_add_refusal(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> str:
    if self.dim() < 1 or source.dim() != self.dim() or index.dim() != 1:
        return "an operand of another rank"
    axis = _axis(dim, self.dim())
    wanted = list(self.shape)
    wanted[axis : axis + 1] = [index.shape[0]]
    if list(source.shape) != wanted:
        return "shapes that do not fit"
    if isinstance(alpha, float) and not self.dtype.is_floating_point:
        return "alpha of another type"
    refused = _refused(self, index, source) or _slow_on_cpu(self, axis)
    return refused or ("" if in_range(index, self.shape[axis]) else "an index out of range")


@route("aten::index_add", _index_add_refusal, _ADDED)
def _index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return _as(self, _added(self, _axis(dim, self.dim()), index, source, alpha))


@route("aten::index_add_", _index_add_refusal, _ADDED, group="index_add")
def _index_add_in_place(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return _add_into(self, self, _axis(dim, self.dim()), index, source, alpha)


def _index_add_out_refusal(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, out: Any) -> str:
    if out.shape != self.shape or out.dtype != self.dtype:
        return "an output of another shape or dtype"
    return _index_add_refusal(self, dim, index, source, alpha=alpha)


@route("aten::index_add.out", _index_add_out_refusal, _ADDED, group="index_add")
def _index_add_out(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, out: Any) -> Any:
    return _add_into(out, self, _axis(dim, self.dim()), index, source, alpha)


def _row_index(index: Any, axis: int) -> Any | None:
    """Answer the entries of an index that is the same for a whole row, or None if its strides do not say so."""
    for position, (extent, stride) in enumerate(zip(index.shape, index.stride(), strict=True)):
        if position != axis and extent != 1 and stride != 0:
            return None
    for position in reversed(range(index.dim())):
        if position != axis:
            index = index.select(position, 0)
    return index


def _scatter_refusal(self: Any, dim: int, index: Any, src: Any) -> str:
    rank = self.dim()
    if rank < 1 or index.dim() != rank or src.dim() != rank:
        return "an operand of another rank"
    axis = _axis(dim, rank)
    for position in range(rank):
        if index.shape[position] > src.shape[position]:
            return "shapes that do not fit"
        if position != axis and index.shape[position] != self.shape[position]:
            return "an index of a part of the rows"
    refused = _refused(self, index, src) or _slow_on_cpu(self, axis)
    if refused:
        return refused
    ids = _row_index(index, axis)
    if ids is None:
        return "an index that differs by element"
    return "" if in_range(ids, self.shape[axis]) else "an index out of range"


def _rows_of(index: Any, src: Any) -> Any:
    """Answer the part of the source that an index covers."""
    for position, extent in enumerate(index.shape):
        if extent != src.shape[position]:
            src = src.narrow(position, 0, extent)
    return src


@route("aten::scatter_add", _scatter_refusal, _ADDED)
def _scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    axis = _axis(dim, self.dim())
    return _as(self, _added(self, axis, _row_index(index, axis), _rows_of(index, src), 1))


@route("aten::scatter_add_", _scatter_refusal, _ADDED, group="scatter_add")
def _scatter_add_in_place(self: Any, dim: int, index: Any, src: Any) -> Any:
    axis = _axis(dim, self.dim())
    return _add_into(self, self, axis, _row_index(index, axis), _rows_of(index, src), 1)


def _scatter_reduce_refusal(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> str:
    if reduce not in ("sum", "mean", "prod", "amax", "amin"):
        return f"reduce={reduce!r}"
    if reduce == "mean" and self.dtype not in _FLOATS:
        return "a mean of integers"
    return _scatter_refusal(self, dim, index, src)


def _counts(ids: Any, extent: int) -> Any:
    """Answer how many entries name each row."""
    if ids.device.type == "cpu":
        return torch.bincount(ids, minlength=extent)
    # On a GPU bincount would wait for the largest entry.
    return segment_sum(torch.ones((ids.shape[0], 1), dtype=torch.int32, device=ids.device), ids, extent)


def _scatter_reduced(self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    """Answer what `self` becomes: it takes part once, last; without it rows that no entry names keep it."""
    axis = _axis(dim, self.dim())
    ids = _row_index(index, axis)
    extent = self.shape[axis]
    note(ids, extent)
    rows = _front(_wide(_rows_of(index, src)), axis)
    found = _back(_REDUCTIONS.get(reduce, segment_sum)(rows, ids, extent), axis, self)
    given = _wide(self)
    count: Any = None
    if reduce == "mean" or not include_self:
        shape = [1] * self.dim()
        shape[axis] = extent
        count = _counts(ids, extent).reshape(shape)
    if include_self:
        if reduce == "prod":
            found = given * found
        elif reduce in ("amax", "amin"):
            found = (torch.maximum if reduce == "amax" else torch.minimum)(given, found)
        else:
            found = given + found
    if reduce == "mean":
        found = found / (count + 1 if include_self else count.clamp(min=1)).to(found.dtype)
    if not include_self:
        found = torch.where(count > 0, found, given)
    return found.to(self.dtype)


@route("aten::scatter_reduce.two", _scatter_reduce_refusal, _ADDED)
def _scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    return _as(self, _scatter_reduced(self, dim, index, src, reduce, include_self))


@route("aten::scatter_reduce_.two", _scatter_reduce_refusal, _ADDED, group="scatter_reduce")
def _scatter_reduce_in_place(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    return self.copy_(_scatter_reduced(self, dim, index, src, reduce, include_self))


def _named(indices: Sequence[Any]) -> tuple[int, Any] | None:
    """Answer the only index there is and its axis, or None if there are others or none."""
    given = [(position, index) for position, index in enumerate(indices) if index is not None]
    return given[0] if len(given) == 1 else None


def _index_put_refusal(
    self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> str:
    if not accumulate:
        return "accumulate=False"
    named = _named(indices)
    if named is None:
        return "several indices"
    axis, index = named
    if index.device != self.device or values.device != self.device:
        return "operands on several devices"
    if refused := _refused(self, index, values):
        return refused
    wanted = [*self.shape[:axis], *index.shape, *self.shape[axis + 1 :]]
    given = list(values.shape)
    if len(given) > len(wanted) or any(
        extent not in (1, full) for extent, full in zip(reversed(given), reversed(wanted), strict=False)
    ):
        return "shapes that do not fit"
    extent = self.shape[axis]
    return "" if in_range(index + extent * (index < 0), extent) else "an index out of range"


_PUT = f"accumulate=True, one index, of any rank; {_BY_ROWS}"


def _put(self: Any, indices: Sequence[Any], values: Any) -> tuple[int, Any, Any]:
    """Answer the axis that is added along, its ids and the rows."""
    named = _named(indices)
    assert named is not None
    axis, index = named
    ids = index.reshape(-1)
    ids = torch.where(ids < 0, ids + self.shape[axis], ids)
    before, after = self.shape[:axis], self.shape[axis + 1 :]
    # Lists, since there may be no axis at all.
    return axis, ids, values.expand([*before, *index.shape, *after]).reshape([*before, ids.shape[0], *after])


@route("aten::index_put", _index_put_refusal, _PUT)
def _index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    return _as(self, _added(self, *_put(self, indices, values), 1))


@route("aten::_index_put_impl_", _index_put_refusal, _PUT, group="index_put")
def _index_put_impl_(
    self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> Any:
    return _add_into(self, self, *_put(self, indices, values), 1)


def _embedding_refusal(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> str:
    if scale_grad_by_freq:
        return "scale_grad_by_freq=True"
    if indices.dtype not in _INDICES:
        return f"an index of {indices.dtype}"
    if not grad_output.numel() or not num_weights:
        return "an empty tensor"
    return of_floats(grad_output) or ("" if in_range(indices, num_weights) else "an index out of range")


@route(
    "aten::embedding_dense_backward",
    _embedding_refusal,
    "scale_grad_by_freq=False; float32, float64, float16, bfloat16",
)
def _embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    ids = indices.reshape(-1)
    note(ids, num_weights)
    if padding_idx >= 0:
        ids = torch.where(ids == padding_idx, -1, ids)
    return segment_sum(grad_output.reshape(ids.shape[0], -1), ids, num_weights)


def _offsets(lengths: Any, offsets: Any) -> Any:
    if offsets is not None:
        return offsets
    found = torch.zeros(lengths.shape[0] + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=found[1:])
    return found


# What becomes of a reduction and the value that it begins with.
_REDUCED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": torch.add,
    "mean": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "prod": torch.mul,
}


def _segments_refusal(
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> str:
    given = lengths if offsets is None else offsets
    if reduce not in _REDUCED or indices is not None or given is None:
        return "indices, or another reduction"
    if axis != 0 or given.dim() != 1 or given.dtype not in _INDICES:
        return "an axis other than the first"
    if offsets is None and not unsafe and _is_readable(given):
        least = int(given.min()) if given.numel() else 0
        if least < 0 or int(given.sum()) != data.shape[0]:
            return "lengths that do not fit"
    return of_floats(data) or ("" if data.numel() and given.numel() else "an empty tensor")


@route(
    "aten::segment_reduce",
    _segments_refusal,
    "lengths or offsets of one axis, the first; float32, float64, float16, bfloat16",
)
def _segment_reduce(
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    starts = _offsets(lengths, offsets)
    if initial is None:
        # torch's mean of nothing is NaN.
        return segment_csr(data, starts, reduce, empty_value=nan if reduce == "mean" else None)
    found = segment_csr(_wide(data), starts, "sum" if reduce == "mean" else reduce)
    found = _REDUCED[reduce](found, torch.full((), initial, dtype=found.dtype, device=found.device))
    if reduce == "mean":
        lengths = (starts[1:] - starts[:-1]).clamp(min=1)
        found = found / lengths.reshape(-1, *[1] * (found.dim() - 1)).to(found.dtype)
    return found.to(data.dtype)


def _segments_backward_refusal(
    grad: Any,
    output: Any,
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    offsets: Any = None,
    axis: int = 0,
    initial: Any = None,
) -> str:
    return _segments_refusal(
        data, reduce, lengths=lengths, offsets=offsets, axis=axis, unsafe=True, initial=initial
    ) or of_floats(data, grad, output)


@route(
    "aten::_segment_reduce_backward",
    _segments_backward_refusal,
    "as the forward; equal parts to ties",
    group="segment_reduce",
)
def _segment_reduce_backward(
    grad: Any,
    output: Any,
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    offsets: Any = None,
    axis: int = 0,
    initial: Any = None,
) -> Any:
    starts = _offsets(lengths, offsets)
    if reduce in ("sum", "mean"):
        return segment_csr_backward(grad, starts, reduce, num_rows=data.shape[0])
    if initial is not None:
        # What the rows gave without the value that the reduction began with.
        of_rows = segment_csr(data, starts, reduce)
        if reduce == "prod":
            grad, output = grad * initial, of_rows
        else:
            grad = torch.where(of_rows == output, grad, 0)
    if reduce == "prod":
        return segment_csr_backward(grad, starts, reduce, input=data, output=output)
    return segment_csr_backward(grad, starts, reduce, input=data, ties="even")
