# SPDX-License-Identifier: Apache-2.0
"""`scatter`, `segment` and `softmax` of torch_geometric.utils, with their arguments, on this library's kernels.

A program that says ``from torch_geometric.utils import scatter, softmax`` runs with ``from pybaracuda.torch.geometric
import scatter, softmax``: the same bits on every run, thread count, GPU and backend, and derivatives as the functions
of :mod:`pybaracuda.torch` have them. What else is different:

- An index out of range is dropped. Theirs is an error on the CPU and ends the process on CUDA.
- ``scatter(reduce="any")`` takes each segment's last row, whose gradient that is. Theirs takes any row, another one in
  each run on CUDA, and gives the gradient to all.
- Tied rows share the gradient of a maximum or minimum in equal parts; theirs do where torch_scatter is not installed.
- `softmax` adds nothing to a sum, which is 1 at least.

A number of segments that is not given is the largest index and 1: asking for that waits for a GPU.
"""

from __future__ import annotations

from typing import Any

import torch

from .._errors import shown
from . import _segment_functions as _segments
from . import scatter as _scatter
from ._scatter_rows import ByIds, ByOffsets, moved
from ._segment_operators import gather_rows

__all__ = ["scatter", "segment", "softmax"]

_REDUCTIONS = ("sum", "add", "mean", "mul", "min", "max", "amin", "amax", "any")


def _axis(src: Any, dim: int) -> int:
    axis = dim + src.dim() if dim < 0 else dim
    if not 0 <= axis < src.dim():
        raise ValueError(f"dim is {dim}; src has {src.dim()} axes")
    return int(axis)


def _last(src: Any, index: Any, axis: int, size: int) -> Any:
    """Answer the last row of each segment, of any dtype."""
    problem = ByIds(src.shape, index, axis, size)
    numbers = torch.arange(index.shape[0], device=index.device)
    # -1 names no row, and what that gathers is 0.
    chosen = _segments.segment_max(numbers, index, size, empty_value=-1)
    return problem.of_segments(moved(lambda rows: gather_rows(rows, chosen, "unsorted", size), problem.rows(src)))


def _mean_of_integers(src: Any, index: Any, axis: int, size: int) -> Any:
    total = _scatter.scatter_sum(src.to(torch.int64), index, axis, dim_size=size)
    counts = _scatter.scatter_sum(torch.ones_like(index, dtype=torch.int64), index, 0, dim_size=size).clamp(min=1)
    return total / counts.reshape([-1] + [1] * (src.dim() - axis - 1))


def scatter(src: Any, index: Any, dim: int = 0, dim_size: int | None = None, reduce: str = "sum") -> Any:
    """Reduce the rows of each segment, as ``torch_geometric.utils.scatter`` does.

    Parameters
    ----------
    src : Tensor
        Floats, integers or bool; also complex for sum, mean and any, which takes every dtype.
    index : Tensor, [src.shape[dim]]
        Segment of each row: integers.
    dim : int
        The axis of `src` that is indexed.
    dim_size : int, optional
        Segments.
    reduce : {"sum", "add", "mean", "mul", "min", "max", "amin", "amax", "any"}

    Returns
    -------
    Tensor
        Like `src`, with a row for each segment along `dim`, of its dtype and device; a mean of integers is in PyTorch's
        default dtype. A segment without rows is 0, its product 1.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        For arguments that do not fit.
    """
    if index.dim() != 1:
        raise ValueError(f"index has {index.dim()} axes; wanted 1")
    if reduce not in _REDUCTIONS:
        raise ValueError(f"reduce is {shown(reduce)}; wanted one of {', '.join(_REDUCTIONS)}")
    axis = _axis(src, dim)
    size = dim_size if dim_size is not None else int(index.max()) + 1 if index.numel() else 0
    if reduce == "any":
        return _last(src, index, axis, size)
    if reduce == "mean" and not (src.is_floating_point() or src.is_complex()):
        return _mean_of_integers(src, index, axis, size)
    if reduce in ("min", "max", "amin", "amax") and src.is_floating_point():
        function = _segments.segment_max if reduce.endswith("max") else _segments.segment_min
        problem = ByIds(src.shape, index, axis, size)
        return problem.of_segments(problem.reduced(function, problem.rows(src), empty_value=0, ties="even"))
    spelled = {"amin": "min", "amax": "max"}.get(reduce, reduce)
    return _scatter.scatter(src, index, axis, dim_size=size, reduce=spelled)


def segment(src: Any, ptr: Any, reduce: str = "sum") -> Any:
    """Reduce consecutive rows, as ``torch_geometric.utils.segment`` does.

    Parameters
    ----------
    src : Tensor
        Floats, integers or bool; also complex for sum and mean.
    ptr : Tensor
        Along its last axis, which is the one that is reduced: first row of each segment, then the end of the last; the
        axes before it are those of `src`, or 1.
    reduce : {"sum", "add", "mean", "mul", "min", "max"}

    Returns
    -------
    Tensor
        Like `src`, with a row for each segment along the reduced axis, of its dtype and device. A segment without rows
        is 0, its product 1.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        For arguments that do not fit.
    """
    if reduce != "mul":
        return _scatter.segment_csr(src, ptr, reduce=reduce)
    problem = ByOffsets(src.shape, ptr)
    # Multiplied as int32, integers of 8 and 16 bits wrap around as their own products do.
    rows = src if src.is_floating_point() or src.dtype in (torch.int32, torch.int64) else src.to(torch.int32)
    return problem.of_segments(problem.reduced("prod", problem.rows(rows))).to(src.dtype)


def softmax(src: Any, index: Any = None, ptr: Any = None, num_nodes: int | None = None, dim: int = 0) -> Any:
    """Take the softmax over the rows of each segment, as ``torch_geometric.utils.softmax`` does.

    Parameters
    ----------
    src : Tensor
        float32, float64, float16 or bfloat16.
    index : Tensor, [src.shape[dim]], optional
        Segment of each row: integers. Not looked at if there is `ptr`.
    ptr : Tensor, [num_segments + 1], optional
        First row of each segment, then the end of the last.
    num_nodes : int, optional
        Segments that `index` may name.
    dim : int
        The axis of `src` that is indexed.

    Returns
    -------
    Tensor
        Of the shape, dtype and device of `src`. Rows of no segment are 0.

    Raises
    ------
    NotImplementedError
        Without `index` and `ptr`.
    TypeError, ValueError, RuntimeError
        For arguments that do not fit.
    """
    axis = _axis(src, dim)
    given = index if ptr is None else ptr
    if given is None:
        raise NotImplementedError("softmax needs index or ptr")
    if given.dim() != 1:
        raise ValueError(f"{'index' if ptr is None else 'ptr'} has {given.dim()} axes; wanted 1")
    if ptr is None:
        return _scatter.scatter_softmax(src, index, axis, dim_size=num_nodes)
    if not src.is_floating_point():
        raise ValueError(f"softmax takes floats; src has dtype {src.dtype}")
    problem = ByOffsets(src.shape, ptr.reshape([1] * axis + [-1]))
    return problem.of_rows(problem.reduced("softmax", problem.rows(src)))
