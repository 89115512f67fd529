# SPDX-License-Identifier: Apache-2.0
"""What an index names of a tensor, rows or elements, as segments of one problem; no operator is here.

An index of rows has one entry for each row: it has one axis, or is expanded over the others, which its strides say
without a look at its values. Rows along another axis than the first are moved to the front, which copies. Of another
index every entry is the place of an element, which is a row of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from ..segment import segment_sum
from ._bad_indices import note
from ._native import places
from ._route import ANOTHER_AXIS, CPU_ALWAYS, SIXTEEN_BITS

__all__ = [
    "DTYPES",
    "FLOATS",
    "INDICES",
    "Elements",
    "Named",
    "Rows",
    "add_into",
    "axis_of",
    "from_begin",
    "in_range",
    "is_readable",
    "refusal_of",
    "rows_named",
    "slow_on_cpu",
    "sum_with",
    "widened",
]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SUMMED = (*FLOATS, torch.int32, torch.int64)
INDICES = (torch.int32, torch.int64)
# In which type a finished sum waits for what is added to it, so that it is rounded once.
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}

DTYPES = "float32, float64, float16, bfloat16, int32, int64"


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


def slow_on_cpu(self: Any, axis: int) -> str:
    """Say why PyTorch's own kernel is faster: ours has rows moved to the front and 16 bits widened, by copies."""
    if CPU_ALWAYS or self.device.type != "cpu":
        return ""
    if self.dtype in _WIDE:
        return SIXTEEN_BITS
    return "" if all(extent == 1 for extent in self.shape[:axis]) else ANOTHER_AXIS


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
        self.ids, self.extent = places.reshape(-1), like.numel()

    @classmethod
    def along(cls, like: Any, axis: int, index: Any) -> Elements:
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


Named = Rows | Elements


def widened(tensor: Any) -> Any:
    """Answer a tensor in the type in which its sums wait for what is added to them."""
    wide = _WIDE.get(tensor.dtype)
    return tensor if wide is None else tensor.to(wide)


def _total(named: Named, source: Any, alpha: Any) -> Any:
    """Answer alpha * the sum of what each entry names, in the dtype of sums."""
    total = segment_sum(named.rows(widened(source)), named.ids, named.extent)
    return named.tensor(total if alpha == 1 else total * alpha)


def sum_with(self: Any, named: Named, source: Any, alpha: Any = 1) -> Any:
    """Answer self + alpha * the sum of what each entry names, rounded to self's dtype once."""
    return torch.add(widened(self), _total(named, source, alpha)).to(self.dtype)


def add_into(out: Any, self: Any, named: Named, source: Any, alpha: Any = 1) -> Any:
    """Make `out`, which may be `self`, what :func:`sum_with` answers."""
    if self.dtype in _WIDE:
        return out.copy_(sum_with(self, named, source, alpha))
    return torch.add(self, _total(named, source, alpha), out=out)


def _row_index(index: Any, axis: int) -> Any | None:
    """Answer the entries of an index that is the same for a whole row, or None if its strides do not say so."""
    for position, (extent, stride) in enumerate(zip(index.shape, index.stride(), strict=True)):
        if position != axis and extent != 1 and stride != 0:
            return None
    for position in reversed(range(index.dim())):
        if position != axis:
            index = index.select(position, 0)
    return index


def rows_named(self: Any, axis: int, index: Any) -> Any | None:
    """Answer the rows that an index of a scatter names, or None if it names elements."""
    is_whole = all(position == axis or extent == self.shape[position] for position, extent in enumerate(index.shape))
    return _row_index(index, axis) if is_whole else None


def _counts(ids: Any, extent: int) -> Any:
    """Answer how many entries name each row; torch.bincount would wait for the largest of them."""
    return segment_sum(torch.ones((ids.shape[0], 1), dtype=torch.int32, device=ids.device), ids, extent)
