# SPDX-License-Identifier: Apache-2.0
"""Copies of rows by an index: descriptor, plan and array function; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import IndexedDescriptor
from ._dtypes import FLOATS, INDEX_CASTS, dtype_name, item_bytes
from ._plan import Plan

__all__ = ["IndexCopyDescriptor", "IndexCopyPlan", "index_copy"]


@dataclass(frozen=True, slots=True)
class IndexCopyDescriptor(IndexedDescriptor):
    """A copy of rows by an index.

    Parameters
    ----------
    outer, length, inner : int
        Elements of the input before the axis, along it and behind it.
    n : int
        Rows of the source along the axis.
    element : {"f32", "f64", "f16", "bf16", "b8", "b16", "b32", "b64", "b128"}
        Dtype, or a width: bits are moved.
    index_element : {"i32", "i64"}
        Dtype of the index.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    outer: int
    length: int
    n: int
    inner: int
    element: str = "f32"
    index_element: str = "i64"

    operator: ClassVar[str] = "index_copy"


class IndexCopyPlan(Plan):
    """Tensors ``input`` and ``output`` [outer, length, inner], ``index`` [n] and ``source`` [outer, n, inner].

    ``output`` may be ``input``.
    """

    __slots__ = ()
    sums = False
    moves = True
    descriptor_type = IndexCopyDescriptor
    category = "segment"


# Shape and dtype of an operand.
Given = tuple[tuple[int, ...], str]


def _element(dtype: str) -> str:
    """Answer the token under which a dtype is moved: its own, or its width."""
    if dtype in FLOATS:
        return dtype
    nbytes = item_bytes(dtype)
    if nbytes is None:
        raise TypeError(f"input has dtype {dtype_name(dtype)}; wanted a number or bool of 1, 2, 4, 8 or 16 bytes")
    return f"b{8 * nbytes}"


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(device: int, input: Given, dim: int, index: Given, source: Given) -> Prepared:
    (shape, dtype), (entries, index_dtype) = input, index
    element = _element(dtype)
    _call.element_of("index", index_dtype, tuple(INDEX_CASTS))
    if source[1] != dtype:
        raise TypeError(f"source has dtype {dtype_name(source[1])}; wanted {dtype_name(dtype)}")
    if not shape:
        raise ValueError("input has shape (); wanted at least one axis")
    axis = _call.axis_of(shape, dim)
    _call.check_rank("index", entries, "[N]", 1)
    before, behind = shape[:axis], shape[axis + 1 :]
    _call.check_shape("source", source[0], (*before, *entries, *behind))
    cast = INDEX_CASTS[index_dtype]
    descriptor = IndexCopyDescriptor(prod(before), shape[axis], entries[0], prod(behind), element, cast or index_dtype)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(shape, dtype, dtype)], casts=(None, cast, None), in_place=0)


def index_copy(input: Any, dim: int, index: Any, source: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Put rows where an index says, as ``torch.index_copy`` does; of several rows of one place the last stays.

    Parameters
    ----------
    input : array
        Of any dtype of 1, 2, 4, 8 or 16 bytes, with one axis or more.
    dim : int
        The axis along which rows stand; may count from the end.
    index : array, [N]
        The place of each row of the source, int32 or int64; other integers are converted by a copy.
    source : array
        The rows: of the input's dtype and shape, but N along the axis.
    out : array, optional
        Dense array that receives the result. It may be `input`: then places that nobody names are not touched. Not for
        JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, shape, dtype and device; `out` if given. torch tensors come back without a gradient
        function.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that is never taken.
    ValueError
        If shapes do not fit, or `out` cannot be written.

    Notes
    -----
    A row whose index is negative or past the end is dropped. Bits are moved; the same inputs give the same bits on
    every run, thread count, GPU and backend. May be called from any number of threads.
    """
    first = read("input", input, stream)
    entries = read("index", index, stream, first)
    rows = read("source", source, stream, first)
    prepared = prepare(
        first.device,
        (first.shape, first.dtype),
        _call.whole("dim", dim),
        (entries.shape, entries.dtype),
        (rows.shape, rows.dtype),
    )
    return prepared.launch((first, entries, rows), (out,), stream)[0]
