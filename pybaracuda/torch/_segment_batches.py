# SPDX-License-Identifier: Apache-2.0
"""Segments of a batch as those of one problem, and offsets out of lengths, in operations that PyTorch can record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._call import check_rank
from ..segment.batches import check_batch

__all__ = ["numbered_ids", "of_batch", "offsets_of"]

# As the array functions convert ids.
_ID_CASTS = {
    torch.int8: torch.int32,
    torch.uint8: torch.int32,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.int32: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
    torch.int64: torch.int64,
}


def _starts(numbers: Any, step: int) -> Any:
    """Answer where each entry's numbers begin, to be added to them."""
    entries = torch.arange(numbers.shape[0], dtype=numbers.dtype, device=numbers.device)
    return (entries * step).reshape(-1, *[1] * (numbers.dim() - 1))


def numbered_ids(ids: Any, num_segments: int) -> Any:
    """Number the segments of all entries, [B, N] within each, in turn; an id out of range stays out of all."""
    return torch.where((ids >= 0) & (ids < num_segments), ids + _starts(ids, num_segments), -1)


def _own_rows(arg: Any, num_rows: int) -> Any:
    """Number the rows that a maximum answered within their entry."""
    return torch.where(arg >= 0, arg - _starts(arg, num_rows), -1)


def of_batch(
    function: Callable[[Any, Any, int], Any],
    input: Any,
    ids: Any,
    num_segments: int,
    *,
    of_rows: bool = True,
    by_rows: bool = False,
) -> Any:
    """Call a function of rows or segments, ids in any order and a number of segments once for all entries.

    A pair that it answers is values and the rows that hold them.
    """
    if ids.dtype not in _ID_CASTS:
        raise TypeError(f"segment_ids has dtype {ids.dtype}; wanted integers")
    size, num_rows = ids.shape
    extent = num_rows if of_rows else num_segments
    if input.dim() < 2 or tuple(input.shape[:2]) != (size, extent):
        names = "the rows of input" if of_rows else "the batch of input"
        raise ValueError(
            f"segment_ids has shape {tuple(ids.shape)}, input {tuple(input.shape)}; wanted [B, N] beside {names}"
        )
    check_batch(size, num_rows, num_segments)
    columns = input.shape[2:]
    numbered = numbered_ids(ids.to(_ID_CASTS[ids.dtype]), num_segments).reshape(-1)
    found = function(input.reshape(size * extent, *columns), numbered, size * num_segments)
    shape = (size, num_rows if by_rows else num_segments, *columns)
    if isinstance(found, tuple):
        return found[0].reshape(shape), _own_rows(found[1].reshape(shape), num_rows)
    return found.reshape(shape)


def offsets_of(lengths: Any) -> Any:
    """Answer the offsets of segments that lie one behind the other."""
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"lengths has dtype {lengths.dtype}; wanted int32 or int64")
    check_rank("lengths", tuple(lengths.shape), "[num_segments]", 1)
    return torch.nn.functional.pad(torch.cumsum(lengths, 0, dtype=lengths.dtype), (1, 0))
