# SPDX-License-Identifier: Apache-2.0
"""What an index names of a tensor, rows or elements, as segments of one problem; no operator is here.

An index of rows has one entry for each row: it has one axis, or is expanded over the others, which its strides say
without a look at its values. Rows along another axis than the first are moved to the front, which copies. Of another
index every entry is the place of an element, which is a row of one; along a short last axis its sums are the weighted
counts of each row, in an order of their own.

A complex number is a pair of floats: a row of n is a row of 2 n floats, and an element a row of two. So no sum depends
on how a device multiplies complex numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import torch

from ..bincount import bincount, is_few
from ..segment import segment_sum
from ._bad_indices import note
from ._distinct import Distinct
from ._native import places
from ._route import ANOTHER_AXIS, CPU_ALWAYS, NARROW_INTEGERS, SIXTEEN_BITS, WIDE_FLOATS

__all__ = [
    "DTYPES",
    "INDICES",
    "Bins",
    "Elements",
    "Named",
    "Rows",
    "add_into",
    "are_bins",
    "axis_of",
    "covered",
    "from_begin",
    "has_all_lines",
    "in_range",
    "is_readable",
    "parts",
    "refusal_of",
    "refusal_of_alpha",
    "refusal_of_sizes",
    "rows_named",
    "slow_on_cpu",
    "sum_with",
    "whole",
    "widened",
]

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_NARROW = (torch.int8, torch.uint8, torch.int16, torch.bool)
_SUMMED = (*_FLOATS, torch.int32, torch.int64, *_NARROW, torch.complex64, torch.complex128)
INDICES = (torch.int32, torch.int64)
# In which type a finished sum waits for what is added to it. Floats are rounded once; of integers the lowest bits are
# the same in every width, so that a wide sum cut off is the narrow one that wraps around.
_WIDE = {**WIDE_FLOATS, **dict.fromkeys(_NARROW, torch.int32)}
# How many entries, columns and rows a kernel counts.
_MOST = _MOST_ROWS = 2**31 - 1

DTYPES = "float32, float64, float16, bfloat16, complex64, complex128, int8, uint8, int16, int32, int64, bool"


def axis_of(dim: int, rank: int) -> int:
    """Answer an axis that may count from the end as one from the begin."""
    return dim + rank if dim < 0 else dim


def is_readable(index: Any) -> bool:
    """Tell whether values can be looked at without waiting for a GPU, and are there: a compiler's tensors have none."""
    return index.device.type == "cpu" and type(index) is torch.Tensor


def in_range(index: Any, extent: int, least: int = 0) -> bool:
    """Tell whether every entry names a row, as far as that can be seen: on the CPU, where PyTorch looks, too.

    `least` is minus the extent where entries may count from the end.
    """
    if not is_readable(index) or not index.numel():
        return True
    low, high = torch.aminmax(index)
    return int(low) >= least and int(high) < extent


def from_begin(index: Any, extent: int) -> Any:
    """Answer entries that may count from the end as those from the begin."""
    if extent > torch.iinfo(index.dtype).max:
        index = index.to(torch.int64)
    return torch.where(index < 0, index + extent, index)


def refusal_of(self: Any, index: Any, source: Any) -> str:
    """Say what every one of these operators refuses."""
    if self.dtype not in _SUMMED or source.dtype != self.dtype:
        return f"dtypes {self.dtype}, {source.dtype}"
    if index.dtype not in INDICES:
        return f"an index of {index.dtype}"
    if not self.numel() or not source.numel() or not index.numel():
        return "an empty tensor"
    return ""


def refusal_of_alpha(dtype: Any, alpha: Any) -> str:
    """Say why PyTorch refuses, or reads in its own way, what sums of a dtype are multiplied by."""
    if isinstance(alpha, complex):
        if not dtype.is_complex:
            return "alpha of another type"
        return refusal_of_alpha(dtype.to_real(), alpha.real) or refusal_of_alpha(dtype.to_real(), alpha.imag)
    if dtype.is_floating_point or dtype.is_complex:
        is_beyond = isinstance(alpha, int | float) and torch.finfo(dtype).max < abs(alpha) < inf
    elif isinstance(alpha, float):
        return "alpha of another type"
    else:
        # PyTorch takes the negative numbers of an unsigned type, and reads any number as a bool.
        info = None if dtype == torch.bool or not isinstance(alpha, int) else torch.iinfo(dtype)
        is_beyond = info is not None and not (info.min or -info.max) <= alpha <= info.max
    return "alpha out of range" if is_beyond else ""


def refusal_of_sizes(self: Any, extent: int, entries: int, is_sum: bool) -> str:
    """Say what no kernel counts: into more rows there are only sums, of those rows alone that entries name."""
    columns = parts(self).numel() // extent
    is_beyond = max(entries, columns) > _MOST or (extent > _MOST_ROWS and not is_sum)
    return "more than 2^31 - 1 rows, columns or entries" if is_beyond else ""


def slow_on_cpu(self: Any, axis: int) -> str:
    """Say why PyTorch's own kernel is faster: ours has rows moved to the front and few bits widened, by copies."""
    if CPU_ALWAYS or self.device.type != "cpu":
        return ""
    if self.dtype in _WIDE:
        return SIXTEEN_BITS if self.dtype.is_floating_point else NARROW_INTEGERS
    return "" if all(extent == 1 for extent in self.shape[:axis]) else ANOTHER_AXIS


def parts(tensor: Any) -> Any:
    """Answer a complex tensor as floats, with an axis of two behind the others; another tensor as it is."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def whole(found: Any, dtype: Any) -> Any:
    """Answer what :func:`parts` would take apart, or rounded or cut off to a dtype of one part."""
    return torch.view_as_complex(found) if dtype.is_complex else found.to(dtype)


def has_all_lines(like: Any, axis: int, index: Any) -> bool:
    """Tell whether an index along an axis has entries in every line of a tensor, and in no other."""
    return bool(index.shape[:axis] == like.shape[:axis] and index.shape[axis + 1 :] == like.shape[axis + 1 :])


class Rows:
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
        self._shape, self._axes = parts(like).shape, axes
        self._at = axes[0] if at is None else at
        self.ids, self.extent = ids, prod(like.shape[each] for each in axes)
        note(ids, self.extent)

    def rows(self, source: Any) -> Any:
        """Answer a tensor that has a row for each id."""
        source = parts(source)
        moved = source.movedim(self._at, 0) if self._at else source
        return moved.reshape(moved.shape[0], -1)

    def tensor(self, rows: Any) -> Any:
        """Answer what there is a row of for each segment as a tensor of the shape of `like`, in parts."""
        order = self._order()
        moved = rows.reshape([self._shape[each] for each in order])
        return moved if order == sorted(order) else moved.permute([order.index(each) for each in range(len(order))])

    def counts(self) -> Any:
        """Answer how many ids name each segment, as a tensor that broadcasts to `like`."""
        shape = [extent if each in self._axes else 1 for each, extent in enumerate(self._shape)]
        return _counts(self.ids, self.extent).reshape(shape)

    def view(self, tensor: Any) -> tuple[Any, list[int]]:
        """Answer a tensor of the shape of `like` with the rows' axes in front, where it lies, and their extents."""
        return parts(tensor).permute(self._order()), [self._shape[each] for each in self._axes]

    def _order(self) -> list[int]:
        return [*self._axes, *(each for each in range(len(self._shape)) if each not in self._axes)]


class Elements:
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
        self._shape, self._width = parts(like).shape, 2 if like.is_complex() else 1
        self.ids, self.extent = places.reshape(-1), like.numel()

    @classmethod
    def along(cls, like: Any, axis: int, index: Any) -> Elements:
        """Answer the elements that an index of the tensor's rank names, as torch.scatter does."""
        extent = like.shape[axis]
        if has_all_lines(like, axis, index):
            columns = prod(like.shape[axis + 1 :])
            found = places(index, index.shape[axis], columns, extent, wraps=False)
            if found is not None:
                return cls(like, found)
        note(index, extent)
        if like.numel() > torch.iinfo(index.dtype).max:
            index = index.to(torch.int64)
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
        """Answer a tensor that has an element for each id, as rows of one, or of two parts."""
        return parts(source).reshape(-1, self._width)

    def tensor(self, rows: Any) -> Any:
        """Answer what there is an element of for each segment as a tensor of the shape of `like`, in parts."""
        return rows.reshape(self._shape)

    def counts(self) -> Any:
        """Answer how many ids name each segment, as a tensor that broadcasts to the parts of `like`."""
        shape = (*self._like.shape, *[1] * (len(self._shape) - self._like.dim()))
        return _counts(self.ids, self.extent).reshape(shape)

    def view(self, tensor: Any) -> tuple[Any, list[int]]:
        """Answer a tensor of the shape of `like` in parts, where it lies, and the extents of its own axes."""
        return parts(tensor), list(self._like.shape)


def are_bins(like: Any, axis: int, index: Any) -> bool:
    """Tell whether an index names elements along the last axis, few, with entries for each row of all other axes."""
    if like.is_complex() or not is_few(like.shape[axis]) or any(extent != 1 for extent in like.shape[axis + 1 :]):
        return False
    return has_all_lines(like, axis, index)


class Bins:
    """An index of elements along the last axis of a tensor, each of whose rows has sums of its own: for sums alone.

    Parameters
    ----------
    like : Tensor
        What is added to.
    axis : int
        Not negative; axes behind it have one element.
    index : Tensor
        Such that :func:`are_bins`. What names no element is dropped, and counted on a GPU.
    is_checked : bool
        Whether the forward has looked at the index.
    """

    def __init__(self, like: Any, axis: int, index: Any, is_checked: bool = False) -> None:
        self._shape, self._axis, self._index = like.shape, axis, index
        if not is_checked:
            note(index, like.shape[axis])

    def total(self, source: Any) -> Any:
        """Answer the sum of what each entry names, as a tensor of the shape of `like`."""
        rows, extent = self._shape[: self._axis].numel(), self._shape[self._axis]
        index, added = (each.reshape(rows, self._index.shape[self._axis]) for each in (self._index, source))
        return bincount(index, added, extent).reshape(self._shape)


Named = Rows | Elements


def widened(tensor: Any) -> Any:
    """Answer a tensor in the type in which its sums wait for what is added to them."""
    wide = _WIDE.get(tensor.dtype)
    return tensor if wide is None else tensor.to(wide)


def _times(total: Any, alpha: Any, dtype: Any) -> Any:
    """Answer sums of a dtype times a number; both are in parts if it is complex, and each product is rounded."""
    if dtype == torch.bool:
        alpha = int(bool(alpha))
    if isinstance(alpha, complex):
        if alpha.imag:
            real, imaginary = total.unbind(-1)
            both = real * alpha.real - imaginary * alpha.imag, real * alpha.imag + imaginary * alpha.real
            return torch.stack(both, -1)
        alpha = alpha.real
    return total if alpha == 1 else total * alpha


def _total(named: Named | Bins, source: Any, alpha: Any) -> Any:
    """Answer alpha * the sum of what each entry names, in the dtype of sums, and in parts."""
    wide = widened(source)
    if isinstance(named, Bins):
        total = named.total(wide)
    else:
        total = named.tensor(segment_sum(named.rows(wide), named.ids, named.extent))
    return _times(total, alpha, source.dtype)


def _add_to_named(out: Any, named: Named, source: Any, alpha: Any) -> Any:
    """Add to what entries name of a tensor and leave the rest alone: for tensors of more rows than a kernel counts."""
    found = Distinct(named.ids, named.extent)
    sums = segment_sum(named.rows(widened(source)), found.ranks, found.ranks.shape[0])
    view, extents = named.view(out)
    places = found.places(extents)
    if len(extents) > 1 and view.is_contiguous():
        view, places = view.view(named.extent, *view.shape[len(extents) :]), [found.rows]
    before = torch.ops.aten.index(view, places)
    total = _times(sums[found.sums].reshape(before.shape), alpha, source.dtype)
    added = torch.where(found.is_any, widened(before) + total, widened(before)).to(before.dtype)
    if len(places) == 1:
        view.index_copy_(0, places[0], added)
    else:
        view.index_put_(tuple(places), added)
    return out


def sum_with(self: Any, named: Named | Bins, source: Any, alpha: Any = 1) -> Any:
    """Answer self + alpha * the sum of what each entry names, rounded to self's dtype once."""
    if not isinstance(named, Bins) and named.extent > _MOST_ROWS:
        return _add_to_named(self.clone(memory_format=torch.contiguous_format), named, source, alpha)
    return whole(torch.add(widened(parts(self)), _total(named, source, alpha)), self.dtype)


def add_into(out: Any, self: Any, named: Named | Bins, source: Any, alpha: Any = 1) -> Any:
    """Make `out`, which may be `self`, what :func:`sum_with` answers."""
    if not isinstance(named, Bins) and named.extent > _MOST_ROWS:
        return _add_to_named(out if out is self else out.copy_(self), named, source, alpha)
    if self.dtype in _WIDE:
        return out.copy_(sum_with(self, named, source, alpha))
    torch.add(parts(self), _total(named, source, alpha), out=parts(out))
    return out


def _row_index(index: Any, axis: int) -> Any | None:
    """Answer the entries of an index that is the same for a whole row, or None if its strides do not say so."""
    for position, (extent, stride) in enumerate(zip(index.shape, index.stride(), strict=True)):
        if position != axis and extent != 1 and stride != 0:
            return None
    for position in reversed(range(index.dim())):
        if position != axis:
            index = index.select(position, 0)
    return index


def covered(index: Any, src: Any) -> Any:
    """Answer the part of a scatter's source that its index covers."""
    for position, extent in enumerate(index.shape):
        if extent != src.shape[position]:
            src = src.narrow(position, 0, extent)
    return src


def rows_named(self: Any, axis: int, index: Any) -> Any | None:
    """Answer the rows that an index of a scatter names, or None if it names elements."""
    is_whole = all(position == axis or extent == self.shape[position] for position, extent in enumerate(index.shape))
    return _row_index(index, axis) if is_whole else None


def _counts(ids: Any, extent: int) -> Any:
    """Answer how many entries name each row; torch.bincount would wait for the largest of them."""
    return segment_sum(torch.ones((ids.shape[0], 1), dtype=torch.int32, device=ids.device), ids, extent)
