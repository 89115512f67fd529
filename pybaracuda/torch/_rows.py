# SPDX-License-Identifier: Apache-2.0
"""Routes of the operators that add or reduce rows or elements by an index: a segment reduction each.

An index of rows has one entry for each row: it has one axis, or is expanded over the others, which its strides say
without a look at its values. Rows along another axis than the first are moved to the front, which copies. Of another
index every entry is the place of an element, which is a row of one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from math import nan, prod
from typing import Any

import torch

from ..bincount import bincount
from ..segment import (
    segment_csr,
    segment_csr_backward,
    segment_max,
    segment_mean,
    segment_min,
    segment_prod,
    segment_sum,
)
from ._bad_indices import note
from ._native import places
from ._route import ANOTHER_AXIS, BY_ELEMENT, CPU_ALWAYS, SIXTEEN_BITS, of_floats, route

__all__ = ["in_range", "rows_named"]

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SUMMED = (*_FLOATS, torch.int32, torch.int64)
_INDICES = (torch.int32, torch.int64)
# In which type a finished sum waits for what is added to it, so that it is rounded once.
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_REDUCTIONS = {"sum": segment_sum, "prod": segment_prod, "amax": segment_max, "amin": segment_min}

_DTYPES = "float32, float64, float16, bfloat16, int32, int64"
_ADDED = f"{_DTYPES}; on the CPU an index of rows (one axis, or expanded over the others), the first, not in 16 bits"


def _axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _is_readable(index: Any) -> bool:
    """Tell whether values can be looked at without waiting for a GPU, and are there: a compiler's tensors have none."""
    return index.device.type == "cpu" and type(index) is torch.Tensor


def in_range(index: Any, extent: int, least: int = 0) -> bool:
    """Tell whether every entry names a row, as far as that can be seen: on the CPU, where PyTorch looks, too.

    `least` is minus the extent where entries may count from the end.
    """
    if not _is_readable(index) or not index.numel():
        return True
    low, high = torch.aminmax(index)
    return int(low) >= least and int(high) < extent


def _from_begin(index: Any, extent: int) -> Any:
    """Answer entries that may count from the end as those from the begin."""
    return torch.where(index < 0, index + extent, index)


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


class _Rows:
    """An index of rows of a tensor, along one of its axes or several: a segment for each row.

    Parameters
    ----------
    like : Tensor
        What is added to.
    axes : sequence of int
        Not negative, ascending. Rows are counted in row-major order.
    ids : Tensor
        With one axis. What names no row is dropped, and counted on a GPU.
    at : int, optional
        The axis along which tensors have an entry for each id; by default the first one of `axes`.
    """

    def __init__(self, like: Any, axes: Sequence[int], ids: Any, at: int | None = None) -> None:
        self._shape, self._axes = like.shape, axes
        self._at = axes[0] if at is None else at
        self.ids, self.extent = ids, prod(like.shape[each] for each in axes)
        note(ids, self.extent)

    def rows(self, source: Any) -> Any:
        """Answer a tensor that has a row for each id."""
        moved = source.movedim(self._at, 0) if self._at else source
        return moved.reshape(moved.shape[0], -1)

    def tensor(self, rows: Any) -> Any:
        """Answer what there is a row of for each segment as a tensor of the shape of `like`."""
        order = [*self._axes, *(each for each in range(len(self._shape)) if each not in self._axes)]
        moved = rows.reshape([self._shape[each] for each in order])
        return moved if order == sorted(order) else moved.permute([order.index(each) for each in range(len(order))])

    def counts(self) -> Any:
        """Answer how many ids name each segment, as a tensor that broadcasts to `like`."""
        shape = [extent if each in self._axes else 1 for each, extent in enumerate(self._shape)]
        return _counts(self.ids, self.extent).reshape(shape)


class _Elements:
    """An index of single elements of a tensor: a segment for each element, in row-major order.

    Parameters
    ----------
    like : Tensor
        What is added to.
    places : Tensor
        Of elements, or negative: those are dropped.
    """

    def __init__(self, like: Any, places: Any) -> None:
        self._like = like
        self.ids, self.extent = places.reshape(-1), like.numel()

    @classmethod
    def along(cls, like: Any, axis: int, index: Any) -> _Elements:
        """Answer the elements that an index of the tensor's rank names, as torch.scatter does."""
        extent = like.shape[axis]
        if index.shape[:axis] == like.shape[:axis] and index.shape[axis + 1 :] == like.shape[axis + 1 :]:
            columns = prod(like.shape[axis + 1 :])
            found = places(index, index.shape[axis], columns, extent, wraps=False)
            if found is not None:
                return cls(like, found)
        note(index, extent)
        strides = [prod(like.shape[position + 1 :]) for position in range(like.dim())]
        start = index.new_zeros((), dtype=torch.int64)
        for position, count in enumerate(index.shape):
            if position != axis and count > 1:
                shape = [1] * index.dim()
                shape[position] = count
                start = start + torch.arange(count, device=index.device).mul_(strides[position]).reshape(shape)
        named = torch.add(start, index, alpha=strides[axis])
        return cls(like, torch.where((index >= 0) & (index < extent), named, -1))

    def rows(self, source: Any) -> Any:
        """Answer a tensor that has an element for each id, as rows of one."""
        return source.reshape(-1, 1)

    def tensor(self, rows: Any) -> Any:
        """Answer what there is a row of one for each segment as a tensor of the shape of `like`."""
        return rows.reshape(self._like.shape)

    def counts(self) -> Any:
        """Answer how many ids name each segment, as a tensor of the shape of `like`."""
        return _counts(self.ids, self.extent).reshape(self._like.shape)


_Named = _Rows | _Elements


def _wide(tensor: Any) -> Any:
    wide = _WIDE.get(tensor.dtype)
    return tensor if wide is None else tensor.to(wide)


def _total(named: _Named, source: Any, alpha: Any) -> Any:
    """Answer alpha * the sum of what each entry names, in the dtype of sums."""
    total = segment_sum(named.rows(_wide(source)), named.ids, named.extent)
    return named.tensor(total if alpha == 1 else total * alpha)


def _added(self: Any, named: _Named, source: Any, alpha: Any = 1) -> Any:
    """Answer self + alpha * the sum of what each entry names, rounded to self's dtype once."""
    return torch.add(_wide(self), _total(named, source, alpha)).to(self.dtype)


def _add_into(out: Any, self: Any, named: _Named, source: Any, alpha: Any = 1) -> Any:
    """Make `out`, which may be `self`, what :func:`_added` answers."""
    if self.dtype in _WIDE:
        return out.copy_(_added(self, named, source, alpha))
    return torch.add(self, _total(named, source, alpha), out=out)


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
    return _added(self, _Rows(self, [_axis(dim, self.dim())], index), source, alpha).contiguous()


@route("aten::index_add_", _index_add_refusal, _ADDED, group="index_add")
def _index_add_in_place(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return _add_into(self, self, _Rows(self, [_axis(dim, self.dim())], index), source, alpha)


def _index_add_out_refusal(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, out: Any) -> str:
    if out.shape != self.shape or out.dtype != self.dtype:
        return "an output of another shape or dtype"
    return _index_add_refusal(self, dim, index, source, alpha=alpha)


@route("aten::index_add.out", _index_add_out_refusal, _ADDED, group="index_add")
def _index_add_out(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, out: Any) -> Any:
    return _add_into(out, self, _Rows(self, [_axis(dim, self.dim())], index), source, alpha)


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
        if position != axis and index.shape[position] > self.shape[position]:
            return "shapes that do not fit"
    if refused := _refused(self, index, src):
        return refused
    ids = rows_named(self, axis, index)
    refused = _theirs_on_cpu(self) if ids is None else _slow_on_cpu(self, axis)
    return refused or ("" if in_range(index if ids is None else ids, self.shape[axis]) else "an index out of range")


def rows_named(self: Any, axis: int, index: Any) -> Any | None:
    """Answer the rows that an index of a scatter names, or None if it names elements."""
    is_whole = all(position == axis or extent == self.shape[position] for position, extent in enumerate(index.shape))
    return _row_index(index, axis) if is_whole else None


def _theirs_on_cpu(self: Any) -> str:
    """Say why elements are PyTorch's to add there: its kernel adds them one after another, without a sort."""
    return "" if CPU_ALWAYS or self.device.type != "cpu" else BY_ELEMENT


def _named_by(self: Any, axis: int, index: Any) -> _Named:
    ids = rows_named(self, axis, index)
    return _Elements.along(self, axis, index) if ids is None else _Rows(self, [axis], ids)


def _rows_of(index: Any, src: Any) -> Any:
    """Answer the part of the source that an index covers."""
    for position, extent in enumerate(index.shape):
        if extent != src.shape[position]:
            src = src.narrow(position, 0, extent)
    return src


@route("aten::scatter_add", _scatter_refusal, _ADDED)
def _scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    return _added(self, _named_by(self, _axis(dim, self.dim()), index), _rows_of(index, src)).contiguous()


@route("aten::scatter_add_", _scatter_refusal, _ADDED, group="scatter_add")
def _scatter_add_in_place(self: Any, dim: int, index: Any, src: Any) -> Any:
    return _add_into(self, self, _named_by(self, _axis(dim, self.dim()), index), _rows_of(index, src))


def _scatter_reduce_refusal(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> str:
    if reduce not in ("sum", "mean", "prod", "amax", "amin"):
        return f"reduce={reduce!r}"
    if reduce == "mean" and self.dtype not in _FLOATS:
        return "a mean of integers"
    return _scatter_refusal(self, dim, index, src)


def _counts(ids: Any, extent: int) -> Any:
    """Answer how many entries name each row; torch.bincount would wait for the largest of them."""
    return segment_sum(torch.ones((ids.shape[0], 1), dtype=torch.int32, device=ids.device), ids, extent)


def _scatter_reduced(self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    """Answer what `self` becomes: it takes part once, last; without it what no entry names keeps it."""
    named = _named_by(self, _axis(dim, self.dim()), index)
    rows = named.rows(_wide(_rows_of(index, src)))
    found = named.tensor(_REDUCTIONS.get(reduce, segment_sum)(rows, named.ids, named.extent))
    given = _wide(self)
    count: Any = named.counts() if reduce == "mean" or not include_self else None
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
    return _scatter_reduced(self, dim, index, src, reduce, include_self).contiguous()


@route("aten::scatter_reduce_.two", _scatter_reduce_refusal, _ADDED, group="scatter_reduce")
def _scatter_reduce_in_place(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    return self.copy_(_scatter_reduced(self, dim, index, src, reduce, include_self))


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
        if refused := _refused(self, index, values):
            return refused
    axes, entries = list(given), _entries(given.values())
    if entries is None:
        return "shapes that do not fit"
    wanted, found = _put_shape(self, axes, entries), list(values.shape)
    if len(found) > len(wanted) or any(
        extent not in (1, full) for extent, full in zip(reversed(found), reversed(wanted), strict=False)
    ):
        return "shapes that do not fit"
    for axis, index in given.items():
        extent = self.shape[axis]
        if not in_range(index, extent, -extent):
            return "an index out of range"
    return ""


_PUT = f"accumulate=True, indices of any rank; {_DTYPES}"


def _put(self: Any, indices: Sequence[Any], values: Any) -> tuple[_Named, Any]:
    """Answer the rows that the indices name together, and what is added to them."""
    given = _given(indices)
    axes, entries = list(given), _entries(given.values())
    assert entries is not None
    ids: Any = None
    for axis, index in given.items():
        extent = self.shape[axis]
        ids_along = _from_begin(index, extent)
        if ids is None:
            ids = ids_along
            continue
        is_row = (ids >= 0) & (ids_along >= 0) & (ids_along < extent)
        ids = torch.where(is_row, ids.to(torch.int64) * extent + ids_along, -1)
    ids = ids.expand(entries).reshape(-1)
    values = values.expand(_put_shape(self, axes, entries))
    at = axes[0] if _is_one_block(axes) else 0
    shape = [*values.shape[:at], ids.shape[0], *values.shape[at + len(entries) :]]
    return _Rows(self, axes, ids, at), values.reshape(shape)


@route("aten::index_put", _index_put_refusal, _PUT)
def _index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    added = _added(self, *_put(self, indices, values))
    # In the layout that PyTorch gives a copy of self.
    return added.contiguous() if self.is_contiguous() else torch.empty_like(self).copy_(added)


@route("aten::_index_put_impl_", _index_put_refusal, _PUT, group="index_put")
def _index_put_impl_(
    self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> Any:
    return _add_into(self, self, *_put(self, indices, values))


def _put_refusal(self: Any, index: Any, source: Any, accumulate: bool = False) -> str:
    if not accumulate and self.dtype.is_complex:
        return f"dtype {self.dtype}"
    if refused := _refused(self, index, source):
        return refused
    if source.numel() != index.numel():
        return "shapes that do not fit"
    extent = self.numel()
    return "" if in_range(index, extent, -extent) else "an index out of range"


@route(
    "aten::put_",
    _put_refusal,
    f"{_DTYPES}; of several values for one place the last one is kept, or all are added",
    devices=("cuda",),
    compiled=False,
)
def _put_in_place(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    index, source = index.reshape(-1), source.reshape(-1)
    found = places(index, index.numel(), 1, self.numel(), wraps=True)
    if found is None:
        found = _from_begin(index, self.numel())
        note(found, self.numel())
    named = _Elements(self, found)
    if accumulate:
        return _add_into(self, self, named, source)
    order = torch.arange(index.shape[0], device=self.device)
    last = named.tensor(segment_max(named.rows(order), named.ids, named.extent))
    return self.copy_(torch.where(last < 0, self, source[last.clamp(min=0)]))


class _Looked(threading.local):
    """What a thread's refusal of a count saw of the entries, for the run of the same call, which comes next."""

    bounds: tuple[int, int] | None = None


_looked = _Looked()


def _bincount_refusal(self: Any, weights: Any = None, minlength: int = 0) -> str:
    # Without weights PyTorch counts by atomics of integers, which have one result.
    if weights is None:
        return "no weights"
    if self.dim() != 1 or weights.shape != self.shape or weights.device != self.device or minlength < 0:
        return "arguments that PyTorch refuses"
    if self.dtype not in _INDICES:
        return f"an index of {self.dtype}"
    if not self.numel():
        return "an empty tensor"
    # One look, which waits for the device, as PyTorch's own operator does twice.
    least, most = torch.stack(torch.aminmax(self)).tolist()
    _looked.bounds = least, most
    return "a negative entry" if least < 0 else ""


@route("aten::bincount", _bincount_refusal, "with weights; int32, int64", devices=("cuda",), compiled=False)
def _bincount(self: Any, weights: Any, minlength: int = 0) -> Any:
    assert _looked.bounds is not None
    (_, most), _looked.bounds = _looked.bounds, None
    summed = weights if weights.dtype == torch.float32 else weights.to(torch.float64)
    return bincount(self, summed, max(most + 1, minlength))


def _embedding_refusal(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> str:
    if indices.dtype not in _INDICES:
        return f"an index of {indices.dtype}"
    if not grad_output.numel() or not num_weights:
        return "an empty tensor"
    return of_floats(grad_output) or ("" if in_range(indices, num_weights) else "an index out of range")


@route(
    "aten::embedding_dense_backward",
    _embedding_refusal,
    "float32, float64, float16, bfloat16",
)
def _embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    ids = indices.reshape(-1)
    note(ids, num_weights)
    if padding_idx >= 0:
        ids = torch.where(ids == padding_idx, -1, ids)
    # A mean is what the sum is when it is divided by how many entries name a row.
    reduce = segment_mean if scale_grad_by_freq else segment_sum
    return reduce(grad_output.reshape(ids.shape[0], -1), ids, num_weights)


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
