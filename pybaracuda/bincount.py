# SPDX-License-Identifier: Apache-2.0
"""Weighted counts, of one row or many: descriptors, plans, array function. Of many bins it is a sum of segments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor, IndexedDescriptor
from ._dtypes import INDEX_CASTS
from ._errors import InvalidProblemError, shown
from ._plan import Plan
from .segment.plans import SegmentDescriptor

__all__ = ["BincountDescriptor", "BincountPlan", "BincountRowsDescriptor", "BincountRowsPlan", "bincount"]

# The operator's; of more bins a table of sums does not fit into what is near a warp of a GPU.
MOST_BINS = 4096
_MOST_SEGMENTS = 2**31 - 1
_ELEMENTS = ("f32", "f64", "f16", "bf16", "i32", "i64")


@dataclass(frozen=True, slots=True)
class BincountDescriptor(IndexedDescriptor):
    """A weighted count.

    Parameters
    ----------
    n : int
        Entries.
    num_bins : int
        Bins, at most 4096.
    element : {"f32", "f64", "f16", "bf16", "i32", "i64"}
        Dtype of weights and sums.
    index_element : {"i32", "i64"}
        Dtype of the entries.
    wants_extent : int
        1: how many bins the entries name is answered, too; 0: it is not.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    n: int
    num_bins: int
    element: str = "f32"
    index_element: str = "i64"
    wants_extent: int = 0

    operator: ClassVar[str] = "bincount"

    @property
    def absent_tensors(self) -> frozenset[str]:
        """The extent, where nobody wants it."""
        return frozenset() if self.wants_extent else frozenset({"extent"})


class BincountPlan(Plan):
    """Tensors ``input`` [n], ``weights`` [n], ``output`` [num_bins] and, where it is wanted, ``extent`` [1]."""

    __slots__ = ()
    descriptor_type = BincountDescriptor
    category = "segment"


@dataclass(frozen=True, slots=True)
class BincountRowsDescriptor(IndexedDescriptor):
    """A weighted count of each of several rows of entries.

    Parameters
    ----------
    rows : int
        Rows.
    n : int
        Entries of a row.
    num_bins : int
        Bins of a row, at most 4096.
    element : {"f32", "f64", "f16", "bf16", "i32", "i64"}
        Dtype of weights and sums.
    index_element : {"i32", "i64"}
        Dtype of the entries.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    rows: int
    n: int
    num_bins: int
    element: str = "f32"
    index_element: str = "i64"

    operator: ClassVar[str] = "bincount_rows"


class BincountRowsPlan(Plan):
    """Tensors ``input`` [rows, n], ``weights`` [rows, n], ``output`` [rows, num_bins]."""

    __slots__ = ()
    descriptor_type = BincountRowsDescriptor
    category = "segment"


# Shape and dtype of an operand.
Given = tuple[tuple[int, ...], str]


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(device: int, entries: Given, weights: Given, num_bins: int, wants_extent: bool = False) -> Prepared:
    """Prepare a call, of many bins as a sum of segments of one column, whose operands stand the other way."""
    _call.element_of("input", entries[1], tuple(INDEX_CASTS))
    element = _call.element_of("weights", weights[1], _ELEMENTS)
    if not entries[0]:
        raise ValueError("input has shape (); wanted [..., N]")
    _call.check_shape("weights", weights[0], entries[0])
    if not 0 <= num_bins <= _MOST_SEGMENTS:
        raise InvalidProblemError(f"num_bins is {shown(num_bins)}; wanted 0..{_MOST_SEGMENTS}")
    if wants_extent and (len(entries[0]) > 1 or not is_few(num_bins)):
        raise InvalidProblemError(f"return_extent: wanted one row of entries and num_bins in 0..{MOST_BINS}")
    cast = INDEX_CASTS[entries[1]]
    index, (*axes, n) = cast or entries[1], entries[0]
    outputs = [Output((*axes, num_bins), element, element)]
    descriptor: Descriptor
    if is_few(num_bins):
        if axes:
            descriptor = BincountRowsDescriptor(prod(axes), n, num_bins, element, index)
        else:
            descriptor = BincountDescriptor(n, num_bins, element, index, int(wants_extent))
            outputs += [Output((1,), "i64", "i64")] if wants_extent else []
        return Prepared(_call.kernel_for(descriptor, device), outputs, casts=(cast, None))
    if axes:
        raise InvalidProblemError(f"num_bins is {num_bins}; wanted 0..{MOST_BINS} for several rows of entries")
    descriptor = SegmentDescriptor("sum", n, 1, num_bins, "unsorted", element, index)
    return Prepared(_call.kernel_for(descriptor, device), outputs, casts=(None, cast), primary=1)


def is_few(num_bins: int) -> bool:
    """Tell whether the operator takes so many bins; of more it is a sum of segments."""
    return num_bins <= MOST_BINS


def bincount(
    input: Any, weights: Any, num_bins: int, *, return_extent: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Add weights by bin, as ``torch.bincount`` does with weights.

    Parameters
    ----------
    input : array, [..., N]
        The bin of each entry in int32 or int64; other integers are converted by a copy.
    weights : array, [..., N]
        What each entry adds, in float32, float64, float16, bfloat16, int32 or int64.
    num_bins : int
        How many bins there are; where `input` has more than one axis, at most 4096.
    return_extent : bool
        Whether to answer also how many bins the entries name; of one axis and at most 4096 bins.
    out : array, optional
        Dense array that receives the sums, with `return_extent` a tuple of two; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    output : array, [..., num_bins]
        What each row of entries adds up to. Of the input's kind and device and the weights' dtype; `out` if given.
    extent : array, [1]
        With `return_extent`, in int64: one more than the largest entry, 0 without entries, -1 if one is negative. Where
        it is at most `num_bins` no entry was dropped.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that is never taken.
    ValueError
        If shapes do not fit, or `out` cannot be written.
    InvalidProblemError
        If `num_bins` is negative or more than there may be, or `return_extent` is asked of several rows or of more than
        4096 bins.

    Notes
    -----
    An entry outside [0, num_bins) is dropped. float16 and bfloat16 are added in float32 and rounded once; integers wrap
    around. The gradient with respect to the weights is :func:`segment_gather`.

    Every row of entries, along the last axis, has sums of its own: they are what ``torch.scatter_add`` adds to zeros
    along that axis. Up to 4096 bins a row's entries are cut into blocks of 4096, and 64 blocks are a group; a block's
    weights, a group's blocks and the groups are added in ascending order, each from 0. More bins are added as
    :func:`segment_sum` adds rows. So the same inputs give the same bits on every run, thread count, GPU and backend.
    Strided arrays are copied first. May be called from any number of threads.
    """
    entries = read("input", input, stream)
    added = read("weights", weights, stream, entries)
    count, wants_extent = _call.whole("num_bins", num_bins), _call.flag("return_extent", return_extent)
    given = (entries.shape, entries.dtype), (added.shape, added.dtype)
    prepared = prepare(entries.device, *given, count, wants_extent)
    operands = (entries, added) if is_few(count) else (added, entries)
    if not wants_extent:
        return prepared.launch(operands, (out,), stream)[0]
    return tuple(prepared.launch(operands, _call.outs_of(out, ("output", "extent")), stream))
