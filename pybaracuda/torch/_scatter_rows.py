# SPDX-License-Identifier: Apache-2.0
"""How a tensor with an index of one of its axes becomes the rows of one segment problem, and comes back.

Axes along which the index differs, but for the indexed one, are batches: the segments of each follow on those of the
one before. All other axes are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from ._segment_batches import numbered_ids
from ._segment_functions import gather_csr, segment_csr, segment_sum
from ._segment_operators import gather_rows

__all__ = ["ByIds", "ByOffsets", "moved"]


class _Layout:
    """The order of axes in which a tensor is rows: batches, the indexed axis, columns."""

    def __init__(self, shape: Sequence[int], axis: int, batches: Sequence[int]) -> None:
        columns = [each for each in range(len(shape)) if each != axis and each not in batches]
        self.order = [*batches, axis, *columns]
        self.back = [self.order.index(each) for each in range(len(shape))]
        self.batches = [shape[each] for each in batches]
        self.columns = [shape[each] for each in columns]
        self.num_batches = prod(self.batches)

    def batched(self, tensor: Any, extent: int) -> Any:
        """Answer a tensor with this many entries along the indexed axis as [batch, entry, columns...]."""
        return tensor.permute(self.order).reshape(self.num_batches, extent, *self.columns)

    def restored(self, rows: Any, extent: int, columns: bool = True) -> Any:
        """Answer rows as a tensor; without columns, of which there is then one."""
        shape = self.columns if columns else [1] * len(self.columns)
        return rows.reshape(*self.batches, extent, *shape).permute(self.back)


def _check_index(name: str, index: Any) -> None:
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise TypeError(f"{name} has dtype {index.dtype}; wanted integers")


def _varies(index: Any, axis: int) -> bool:
    """Tell whether an index may differ along one of its axes; its strides say so without a look at it."""
    return bool(index.shape[axis] != 1 and index.stride(axis) != 0)


def _without_columns(index: Any, kept: Sequence[int]) -> Any:
    """Answer an index along these of its axes, at the first place of the others."""
    if not index.numel():
        return index.new_zeros([index.shape[each] for each in kept])
    for each in reversed(range(index.dim())):
        if each not in kept:
            index = index.select(each, 0)
    return index


class ByIds:
    """Rows that name their segments.

    Parameters
    ----------
    shape : sequence of int
        Of the tensor whose rows they are.
    index : Tensor
        Of the tensor's rank or less: with one axis, along `axis`, else along the first ones.
    axis : int
        Not negative.
    size : int
        Segments.
    is_sorted : bool
        A promise that ids never descend.
    """

    def __init__(self, shape: Sequence[int], index: Any, axis: int, size: int, is_sorted: bool = False) -> None:
        _check_index("index", index)
        rank = len(shape)
        if not 0 <= axis < rank:
            raise IndexError(f"dim is {axis}; the tensor has {rank} axes")
        if index.dim() == 1:
            index = index.reshape([1] * axis + [-1])
        index = index.reshape(*index.shape, *[1] * (rank - index.dim()))
        index.expand(list(shape))  # PyTorch says what is wrong with the shapes.
        batches = [each for each in range(rank) if each != axis and _varies(index, each)]
        self._layout = layout = _Layout(shape, axis, batches)
        self._extent = shape[axis]
        self._size = size
        ids = _without_columns(index, [*batches, axis]).movedim(sum(each < axis for each in batches), -1)
        ids = ids.expand(*layout.batches, self._extent)
        self._num_segments = layout.num_batches * size
        if layout.num_batches != 1:
            # One id out of range must not reach into the next batch.
            ids = numbered_ids(ids.reshape(layout.num_batches, self._extent).to(torch.int64), size)
        self._ids = ids.reshape(-1)
        # What is out of range is in no order any more.
        self._is_sorted = is_sorted and layout.num_batches == 1

    def rows(self, tensor: Any) -> Any:
        """Answer a tensor's rows."""
        return self._layout.batched(tensor, self._extent).flatten(0, 1)

    def of_rows(self, rows: Any) -> Any:
        """Answer rows as a tensor of the shape that they came from."""
        return self._layout.restored(rows, self._extent)

    def of_segments(self, rows: Any) -> Any:
        """Answer what there is a row of for each segment as a tensor."""
        return self._layout.restored(rows, self._size)

    def reduced(self, function: Callable[..., Any], rows: Any, **options: Any) -> Any:
        """Call a segment function."""
        return function(rows, self._ids, self._num_segments, indices_are_sorted=self._is_sorted, **options)

    def gathered(self, rows: Any) -> Any:
        """Answer each row's segment."""
        form = "sorted" if self._is_sorted else "unsorted"
        return gather_rows(rows, self._ids, form, self._ids.shape[0])

    def segments(self, tensor: Any) -> Any:
        """Answer the rows of a tensor that has one for each segment."""
        return self._layout.batched(tensor, self._size).flatten(0, 1)

    def counts(self) -> Any:
        """Answer how many rows each segment has, as a tensor that broadcasts to the others."""
        ones = torch.ones(self._ids.shape[0], dtype=torch.int64, device=self._ids.device)
        return self._layout.restored(self.reduced(segment_sum, ones), self._size, columns=False)

    def positions(self, arg: Any) -> Any:
        """Answer places along the axis instead of rows; its extent for segments without rows."""
        return self.of_segments(_positions(arg, self._extent))


def _positions(arg: Any, extent: int) -> Any:
    arg = arg.to(torch.int64)
    return torch.where(arg < 0, extent, arg % max(extent, 1))


class ByOffsets:
    """Consecutive rows, segment after segment, along the last axis that the offsets have.

    Parameters
    ----------
    shape : sequence of int
        Of the tensor whose rows they are.
    offsets : Tensor
        Along the first axes of the tensor.
    """

    def __init__(self, shape: Sequence[int], offsets: Any) -> None:
        _check_index("indptr", offsets)
        axis = offsets.dim() - 1
        if not 0 <= axis < len(shape):
            raise ValueError(f"indptr has {axis + 1} axes; the tensor has {len(shape)}")
        if not offsets.shape[axis]:
            offsets = offsets.new_zeros([*offsets.shape[:axis], 1])
        offsets.expand(*shape[:axis], offsets.shape[axis])  # PyTorch says what is wrong with the shapes.
        batches = [each for each in range(axis) if _varies(offsets, each)]
        self._layout = layout = _Layout(shape, axis, batches)
        self._extent = shape[axis]
        self.size = offsets.shape[axis] - 1
        starts = _without_columns(offsets, [*batches, axis])
        if layout.num_batches != 1:
            # After each batch comes a segment of no interest: from its end to the next one's begin.
            starts = starts.reshape(layout.num_batches, self.size + 1).to(torch.int64).clamp(0, self._extent)
            starts = starts + torch.arange(layout.num_batches, device=starts.device)[:, None] * self._extent
            starts = torch.cat([starts.reshape(-1), starts.reshape(-1)[-1:]])
            if not layout.num_batches:
                starts = starts.new_zeros(1)
        self._starts = starts.reshape(-1)

    def rows(self, tensor: Any) -> Any:
        """Answer a tensor's rows."""
        return self._layout.batched(tensor, self._extent).flatten(0, 1)

    def of_rows(self, rows: Any) -> Any:
        """Answer rows as a tensor of the shape that they came from."""
        return self._layout.restored(rows, self._extent)

    def _of_segments(self, rows: Any) -> Any:
        if self._layout.num_batches != 1:
            rows = rows.reshape(self._layout.num_batches, self.size + 1, *rows.shape[1:])[:, : self.size]
        return rows

    def of_segments(self, rows: Any) -> Any:
        """Answer what there is a row of for each segment as a tensor."""
        return self._layout.restored(self._of_segments(rows), self.size)

    def reduced(self, operation: str, rows: Any, **options: Any) -> Any:
        """Call a reduction of segments."""
        return segment_csr(rows, self._starts, operation, **options)

    def gathered(self, tensor: Any) -> Any:
        """Repeat the segments' rows of a tensor."""
        layout = self._layout
        rows = layout.batched(tensor, self.size)
        if layout.num_batches != 1:
            rows = torch.cat([rows, rows.new_zeros(layout.num_batches, 1, *layout.columns)], 1)
        found = gather_csr(rows.flatten(0, 1), self._starts, layout.num_batches * self._extent)
        return layout.restored(found, self._extent)

    def counts(self) -> Any:
        """Answer how many rows each segment has, as a tensor that broadcasts to the others."""
        ones = torch.ones(self._layout.num_batches * self._extent, dtype=torch.int64, device=self._starts.device)
        return self._layout.restored(self._of_segments(self.reduced("sum", ones)), self.size, columns=False)

    def positions(self, arg: Any) -> Any:
        """Answer places along the axis instead of rows; its extent for segments without rows."""
        return self.of_segments(_positions(arg, self._extent))


# Floats whose bits hold those of an integer.
_CARRIERS = {2: torch.float16, 4: torch.float32, 8: torch.float64}
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def moved(gather: Callable[[Any], Any], tensor: Any) -> Any:
    """Gather the rows of a tensor of any dtype, bit for bit; the kernels take floats.

    `gather` must take tensors with one more axis at their end.
    """
    if tensor.is_complex():
        return torch.view_as_complex(moved(gather, torch.view_as_real(tensor.resolve_conj())).contiguous())
    if tensor.dtype in _FLOATS:
        return gather(tensor)
    if tensor.element_size() == 1:
        return moved(gather, tensor.view(torch.uint8).to(torch.int16)).to(torch.uint8).view(tensor.dtype)
    return gather(tensor.view(_CARRIERS[tensor.element_size()])).view(tensor.dtype)
