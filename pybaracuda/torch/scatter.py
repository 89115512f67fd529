# SPDX-License-Identifier: Apache-2.0
"""The functions of torch_scatter, by their names and with their arguments, on this library's kernels.

A program that says ``from torch_scatter import scatter, segment_csr`` runs with ``from pybaracuda.torch.scatter import
scatter, segment_csr``: the same bits on every run, thread count, GPU and backend, and second derivatives wherever the
functions of :mod:`pybaracuda.torch` have them. What else is different:

- An index out of range is dropped, and gathers 0. Theirs is undefined, and not looked at on CUDA.
- A maximum or minimum takes NaN for the largest or smallest value (theirs skips it) and infinities for values, and its
  first row wins a tie on every device.
- Where a mean is one of integers it is the floor of the quotient, in `segment_csr`, too, and its sum does not overflow.
- `scatter_std` divides by the count alone, not by that plus 1e-6, and its gradient is 0 where a segment does not vary.
- `scatter_logsumexp` keeps infinities and NaN; `eps` is taken and not needed.
- A gradient flows into `out`, too.

Integers of 8 and 16 bits and bool are computed as int32 and cut to their type; float16 and bfloat16 are summed in
float32 and rounded once. Complex tensors can be summed, averaged and gathered. A number of segments that is not given,
by `dim_size` or `out`, is the largest index and 1: asking for that waits for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .._errors import shown
from . import _segment_functions as _segments
from ._documentation import documented_of_tensors
from ._route import WIDE_FLOATS, widened_floats
from ._scatter_rows import ByIds, ByOffsets, moved

__all__ = [
    "gather_coo",
    "gather_csr",
    "scatter",
    "scatter_add",
    "scatter_log_softmax",
    "scatter_logsumexp",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_mul",
    "scatter_softmax",
    "scatter_std",
    "scatter_sum",
    "segment_add_coo",
    "segment_add_csr",
    "segment_coo",
    "segment_csr",
    "segment_max_coo",
    "segment_max_csr",
    "segment_mean_coo",
    "segment_mean_csr",
    "segment_min_coo",
    "segment_min_csr",
    "segment_sum_coo",
    "segment_sum_csr",
]

F = TypeVar("F", bound=Callable[..., Any])
# In which type the kernels compute what they do not take.
_WIDE_INTEGERS = {
    torch.bool: torch.int32,
    torch.int8: torch.int32,
    torch.uint8: torch.int32,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
}
_FUNCTIONS = {
    "sum": _segments.segment_sum,
    "mean": _segments.segment_mean,
    "mul": _segments.segment_prod,
    "max": _segments.segment_max,
    "min": _segments.segment_min,
}

_INDEX = "Tensor: Segment of each row: integers. One axis, along `dim`; or the first axes of `src`, up to `dim`."
_SORTED = (
    "Tensor: Segment of each row: integers that never descend along its last axis, which is the one that is reduced; "
    "the axes before it are those of `src`, or 1."
)
_INDPTR = (
    "Tensor: Along its last axis, which is the one that is reduced: first row of each segment, then the end of the "
    "last; the axes before it are those of `src`, or 1."
)
_TEXTS = {
    "index": _INDEX,
    "indptr": _INDPTR,
    "dim": "int: The axis of `src` that is indexed.",
    "out": "Tensor, optional: Takes part with what it holds, receives the result in place and is returned.",
    "dim_size": "int, optional: Segments.",
    "eps": "float: Not needed: the sum that theirs adds it to is 1 at least.",
    "unbiased": "bool: Whether to divide by a segment's rows less one (at least 1) or by all.",
}
_NUMBERS = "Tensor: Floats, integers or bool."
_SUMMED = "Tensor: Floats, integers, bool or complex."
_FLOATS = "Tensor: float32, float64, float16 or bfloat16."
_REDUCED = "Tensor: Like `src`, with a row for each segment along the indexed axis, of its dtype and device."
_WITH_ARG = (
    "(Tensor, Tensor): The values, 0 for a segment without rows, and the place of each along the indexed axis, in "
    "int64: the extent of that axis for a segment without rows, and where `out` stays."
)


def _documented(*, returns: str, src: str, **texts: str) -> Callable[[F], F]:
    """Complete a docstring with what these functions have in common."""

    def complete(function: F) -> F:
        return documented_of_tensors(returns=returns, **{**_TEXTS, "src": src, **texts})(function)

    return complete


def _axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _by_ids(src: Any, index: Any, dim: int, out: Any, dim_size: int | None, is_sorted: bool = False) -> ByIds:
    """Answer the segment problem, of as many segments as the caller says or the index names."""
    axis = _axis(dim, src.dim())
    if out is not None:
        _check_out(src, out, axis)
        size = out.shape[axis]
    elif dim_size is not None:
        size = dim_size
    else:
        size = int(index.max()) + 1 if index.numel() else 0
    return ByIds(src.shape, index, axis, size, is_sorted)


def _check_out(src: Any, out: Any, axis: int) -> None:
    if out.dtype != src.dtype:
        raise TypeError(f"out has dtype {out.dtype}; wanted {src.dtype}")
    wanted = list(src.shape)
    if out.dim() == src.dim() and 0 <= axis < src.dim():
        wanted[axis] = out.shape[axis]
    if list(out.shape) != wanted:
        raise ValueError(f"out has shape {tuple(out.shape)}; wanted that of src but for dim: {tuple(wanted)}")


def _computed(tensor: Any, into: Any) -> Any:
    """Answer a tensor in the type in which a kernel computes it; a sum is not rounded before it is added to `into`."""
    wide = _WIDE_INTEGERS.get(tensor.dtype)
    if wide is None and into is not None:
        wide = WIDE_FLOATS.get(tensor.dtype)
    return tensor if wide is None else tensor.to(wide)


def _kept(held: Any) -> Any:
    """Answer what `out` held for an operation that needs it again for its gradient, after `out` was written."""
    return held.clone()


def _finished(result: Any, src: Any, out: Any) -> Any:
    return result.to(src.dtype) if out is None else out.copy_(result)


def _as_real(tensor: Any) -> Any:
    return torch.view_as_real(tensor.resolve_conj())


def _complex(function: Any, src: Any, index: Any, axis: int, out: Any, **options: Any) -> Any:
    """Reduce the real and the imaginary parts."""
    into = None if out is None else _as_real(out).clone()
    found = torch.view_as_complex(function(_as_real(src), index, axis, into, **options).contiguous())
    return found if out is None else out.copy_(found)


def _sum(src: Any, index: Any, dim: int, out: Any, dim_size: int | None, is_sorted: bool = False) -> Any:
    if src.is_complex():
        return _complex(_sum, src, index, _axis(dim, src.dim()), out, dim_size=dim_size, is_sorted=is_sorted)
    problem = _by_ids(src, index, dim, out, dim_size, is_sorted)
    rows = problem.rows(_computed(src, out))
    total = problem.of_segments(problem.reduced(_segments.segment_sum, rows))
    return _finished(total if out is None else total + _computed(out, out), src, out)


def _mean(src: Any, index: Any, dim: int, out: Any, dim_size: int | None, is_sorted: bool = False) -> Any:
    if src.is_complex():
        return _complex(_mean, src, index, _axis(dim, src.dim()), out, dim_size=dim_size, is_sorted=is_sorted)
    _check_mean(src)
    problem = _by_ids(src, index, dim, out, dim_size, is_sorted)
    if src.is_floating_point() and out is None:
        return problem.of_segments(problem.reduced(_segments.segment_mean, problem.rows(src)))
    wide = _computed(src, out) if src.is_floating_point() else src.to(torch.int64)
    total = problem.of_segments(problem.reduced(_segments.segment_sum, problem.rows(wide)))
    if out is not None:
        total = total + out.to(total.dtype)
    return _finished(_quotient(total, problem.counts()), src, out)


def _check_mean(src: Any) -> None:
    if src.dtype == torch.bool:
        raise TypeError("src has dtype torch.bool, which has no mean")


def _quotient(total: Any, counts: Any) -> Any:
    counts = counts.clamp(min=1)
    if total.is_floating_point():
        return total / counts.to(total.dtype)
    return torch.div(total, counts, rounding_mode="floor")


def _extreme(
    operation: str, src: Any, index: Any, dim: int, out: Any, dim_size: int | None, is_sorted: bool = False
) -> tuple[Any, Any]:
    problem = _by_ids(src, index, dim, out, dim_size, is_sorted)
    rows = problem.rows(_computed(src, None))
    options = {"return_arg": True, "empty_value": 0 if out is None else None}
    found, arg = problem.reduced(_FUNCTIONS[operation], rows, **options)
    values, places = problem.of_segments(found), problem.positions(arg)
    if out is None:
        return values.to(src.dtype), places
    held = _computed(out, None)
    better = values > held if operation == "max" else values < held
    if values.is_floating_point():
        better = better | values.isnan()
    places = torch.where(better, places, src.shape[_axis(dim, src.dim())])
    return out.copy_(torch.where(better, values, held)), places


@_documented(src=_SUMMED, returns=_REDUCED)
def scatter_sum(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> Any:
    """Sum the rows of each segment; `out` is added to the sum. bool answers whether one is true."""
    return _sum(src, index, dim, out, dim_size)


@_documented(src=_SUMMED, returns=_REDUCED)
def scatter_add(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> Any:
    """Sum the rows of each segment: :func:`scatter_sum` by another name."""
    return _sum(src, index, dim, out, dim_size)


@_documented(src=_NUMBERS, returns=_REDUCED)
def scatter_mul(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> Any:
    """Multiply the rows of each segment, and `out`; 1 for a segment without rows."""
    problem = _by_ids(src, index, dim, out, dim_size)
    rows = problem.rows(_computed(src, out))
    found = problem.of_segments(problem.reduced(_segments.segment_prod, rows))
    return _finished(found if out is None else found * _kept(_computed(out, out)), src, out)


@_documented(src="Tensor: Floats, integers or complex.", returns=_REDUCED)
def scatter_mean(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> Any:
    """Average the rows of each segment; `out` is added to their sum before that is divided by their number."""
    return _mean(src, index, dim, out, dim_size)


@_documented(src=_NUMBERS, returns=_WITH_ARG)
def scatter_min(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> tuple[Any, Any]:
    """Take the minimum over the rows of each segment, and what `out` holds."""
    return _extreme("min", src, index, dim, out, dim_size)


@_documented(src=_NUMBERS, returns=_WITH_ARG)
def scatter_max(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None) -> tuple[Any, Any]:
    """Take the maximum over the rows of each segment, and what `out` holds."""
    return _extreme("max", src, index, dim, out, dim_size)


@_documented(
    src=_NUMBERS, reduce='{"sum", "add", "mul", "mean", "min", "max"}: What ``scatter_...`` does.', returns=_REDUCED
)
def scatter(
    src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None, reduce: str = "sum"
) -> Any:
    """Reduce the rows of each segment; minimum and maximum without places."""
    if reduce in ("min", "max"):
        return _extreme(reduce, src, index, dim, out, dim_size)[0]
    known = {"sum": scatter_sum, "add": scatter_sum, "mul": scatter_mul, "mean": scatter_mean}
    return _known(known, reduce)(src, index, dim, out, dim_size)


def _known(functions: dict[str, Any], reduce: str) -> Any:
    if not isinstance(reduce, str) or reduce not in functions:
        raise ValueError(f"reduce is {shown(reduce)}; wanted one of {', '.join((*functions, 'min', 'max'))}")
    return functions[reduce]


def _floats(name: str, src: Any) -> Any:
    """Refuse what has no exponential, and answer 16 bits in float32."""
    if not src.is_floating_point():
        raise ValueError(f"{name} takes floats; src has dtype {src.dtype}")
    return widened_floats(src)


@_documented(
    src="Tensor: Floats, or integers, which are converted to PyTorch's default dtype.",
    out="Tensor, optional: The sums of squares are added to it in place; it is not returned.",
    returns=_REDUCED,
)
def scatter_std(
    src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None, unbiased: bool = True
) -> Any:
    """Take the standard deviation of the rows of each segment: 0 for one without rows."""
    if not src.is_floating_point():
        src = src.to(torch.get_default_dtype())
    problem = _by_ids(src, index, dim, out, dim_size)
    rows = problem.rows(_floats("scatter_std", src))
    difference = rows - problem.gathered(problem.reduced(_segments.segment_mean, rows))
    total = problem.of_segments(problem.reduced(_segments.segment_sum, difference * difference))
    if out is not None:
        total = total + out.to(total.dtype)
        out.copy_(total)
    counts = problem.counts()
    variance = _quotient(total, counts - 1 if unbiased else counts)
    # A root has no derivative at 0, the deviation takes 0 for it.
    varies = variance > 0
    return torch.where(varies, torch.where(varies, variance, 1).sqrt(), variance).to(src.dtype)


@_documented(src=_FLOATS, returns=_REDUCED)
def scatter_logsumexp(
    src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: int | None = None, eps: float = 1e-12
) -> Any:
    """Take the logarithm of the sum of exponentials of each segment's rows, and of `out`; 0 for one without rows."""
    rows = _floats("scatter_logsumexp", src)
    problem = _by_ids(src, index, dim, out, dim_size)
    options = {"empty_value": 0 if out is None else None}
    found = problem.of_segments(problem.reduced(_segments.segment_logsumexp, problem.rows(rows), **options))
    return _finished(found if out is None else torch.logaddexp(found, _kept(out.to(found.dtype))), src, out)


@_documented(src=_FLOATS, returns="Tensor: Of the shape, dtype and device of `src`.")
def scatter_softmax(src: Any, index: Any, dim: int = -1, dim_size: int | None = None) -> Any:
    """Take the softmax over the rows of each segment."""
    _floats("scatter_softmax", src)
    problem = _by_ids(src, index, dim, None, dim_size)
    return problem.of_rows(problem.reduced(_segments.segment_softmax, problem.rows(src)))


@_documented(src=_FLOATS, returns="Tensor: Of the shape, dtype and device of `src`.")
def scatter_log_softmax(src: Any, index: Any, dim: int = -1, eps: float = 1e-12, dim_size: int | None = None) -> Any:
    """Take the logarithm of the softmax over the rows of each segment."""
    wide = _floats("scatter_log_softmax", src)
    problem = _by_ids(src, index, dim, None, dim_size)
    rows = problem.rows(wide)
    largest = problem.reduced(_segments.segment_max, rows.detach(), empty_value=0)
    # Near the largest a difference is exact; from an infinite one nothing is subtracted.
    rows = rows - problem.gathered(torch.where(largest.isfinite(), largest, 0))
    result = rows - problem.gathered(problem.reduced(_segments.segment_logsumexp, rows, empty_value=0))
    return problem.of_rows(result).to(src.dtype)


@_documented(src=_SUMMED, index=_SORTED, returns=_REDUCED)
def segment_sum_coo(src: Any, index: Any, out: Any = None, dim_size: int | None = None) -> Any:
    """Sum the rows of each segment; `out` is added to the sum."""
    return _sum(src, index, index.dim() - 1, out, dim_size, is_sorted=True)


@_documented(src=_SUMMED, index=_SORTED, returns=_REDUCED)
def segment_add_coo(src: Any, index: Any, out: Any = None, dim_size: int | None = None) -> Any:
    """Sum the rows of each segment: :func:`segment_sum_coo` by another name."""
    return _sum(src, index, index.dim() - 1, out, dim_size, is_sorted=True)


@_documented(src="Tensor: Floats, integers or complex.", index=_SORTED, returns=_REDUCED)
def segment_mean_coo(src: Any, index: Any, out: Any = None, dim_size: int | None = None) -> Any:
    """Average the rows of each segment; `out` is added to their sum before that is divided by their number."""
    return _mean(src, index, index.dim() - 1, out, dim_size, is_sorted=True)


@_documented(src=_NUMBERS, index=_SORTED, returns=_WITH_ARG)
def segment_min_coo(src: Any, index: Any, out: Any = None, dim_size: int | None = None) -> tuple[Any, Any]:
    """Take the minimum over the rows of each segment, and what `out` holds."""
    return _extreme("min", src, index, index.dim() - 1, out, dim_size, is_sorted=True)


@_documented(src=_NUMBERS, index=_SORTED, returns=_WITH_ARG)
def segment_max_coo(src: Any, index: Any, out: Any = None, dim_size: int | None = None) -> tuple[Any, Any]:
    """Take the maximum over the rows of each segment, and what `out` holds."""
    return _extreme("max", src, index, index.dim() - 1, out, dim_size, is_sorted=True)


@_documented(
    src=_NUMBERS,
    index=_SORTED,
    reduce='{"sum", "add", "mean", "min", "max"}: What ``segment_..._coo`` does.',
    returns=_REDUCED,
)
def segment_coo(src: Any, index: Any, out: Any = None, dim_size: int | None = None, reduce: str = "sum") -> Any:
    """Reduce the rows of each segment; minimum and maximum without places."""
    if reduce in ("min", "max"):
        return _extreme(reduce, src, index, index.dim() - 1, out, dim_size, is_sorted=True)[0]
    known = {"sum": segment_sum_coo, "add": segment_sum_coo, "mean": segment_mean_coo}
    return _known(known, reduce)(src, index, out, dim_size)


@_documented(
    src="Tensor: Of any dtype; a row for each segment along the last axis of `index`.",
    index=_SORTED,
    out="Tensor, optional: Overwritten and returned.",
    returns="Tensor: Like `src`, with a row for each entry of the index.",
)
def gather_coo(src: Any, index: Any, out: Any = None) -> Any:
    """Answer each row's segment; bits are copied."""
    axis = index.dim() - 1

    def gather(tensor: Any) -> Any:
        shape = list(tensor.shape)
        shape[axis] = index.shape[axis]
        problem = ByIds(shape, index, axis, tensor.shape[axis], is_sorted=True)
        return problem.of_rows(problem.gathered(problem.segments(tensor)))

    return _gathered(gather, src, out, axis)


def _gathered(gather: Any, src: Any, out: Any, axis: int) -> Any:
    if out is not None:
        _check_out(src, out, axis)
    found = moved(gather, src)
    return found if out is None else out.copy_(found)


_OVERWRITTEN = "Tensor, optional: Overwritten and returned."


def _sum_csr(src: Any, indptr: Any, out: Any) -> Any:
    if src.is_complex():
        found = torch.view_as_complex(_sum_csr(_as_real(src), indptr, None).contiguous())
        return _finished(found, src, out)
    problem = ByOffsets(src.shape, indptr)
    return _finished(problem.of_segments(problem.reduced("sum", problem.rows(_computed(src, None)))), src, out)


def _mean_csr(src: Any, indptr: Any, out: Any) -> Any:
    if src.is_complex():
        found = torch.view_as_complex(_mean_csr(_as_real(src), indptr, None).contiguous())
        return _finished(found, src, out)
    _check_mean(src)
    problem = ByOffsets(src.shape, indptr)
    if src.is_floating_point():
        return _finished(problem.of_segments(problem.reduced("mean", problem.rows(src))), src, out)
    total = problem.of_segments(problem.reduced("sum", problem.rows(src.to(torch.int64))))
    return _finished(_quotient(total, problem.counts()), src, out)


def _extreme_csr(operation: str, src: Any, indptr: Any, out: Any) -> tuple[Any, Any]:
    problem = ByOffsets(src.shape, indptr)
    rows = problem.rows(_computed(src, None))
    found, arg = problem.reduced(operation, rows, return_arg=True, empty_value=0)
    return _finished(problem.of_segments(found), src, out), problem.positions(arg)


@_documented(src=_SUMMED, out=_OVERWRITTEN, returns=_REDUCED)
def segment_sum_csr(src: Any, indptr: Any, out: Any = None) -> Any:
    """Sum consecutive rows."""
    return _sum_csr(src, indptr, out)


@_documented(src=_SUMMED, out=_OVERWRITTEN, returns=_REDUCED)
def segment_add_csr(src: Any, indptr: Any, out: Any = None) -> Any:
    """Sum consecutive rows: :func:`segment_sum_csr` by another name."""
    return _sum_csr(src, indptr, out)


@_documented(src="Tensor: Floats, integers or complex.", out=_OVERWRITTEN, returns=_REDUCED)
def segment_mean_csr(src: Any, indptr: Any, out: Any = None) -> Any:
    """Average consecutive rows."""
    return _mean_csr(src, indptr, out)


@_documented(src=_NUMBERS, out=_OVERWRITTEN, returns=_WITH_ARG)
def segment_min_csr(src: Any, indptr: Any, out: Any = None) -> tuple[Any, Any]:
    """Take the minimum over consecutive rows."""
    return _extreme_csr("min", src, indptr, out)


@_documented(src=_NUMBERS, out=_OVERWRITTEN, returns=_WITH_ARG)
def segment_max_csr(src: Any, indptr: Any, out: Any = None) -> tuple[Any, Any]:
    """Take the maximum over consecutive rows."""
    return _extreme_csr("max", src, indptr, out)


@_documented(
    src=_NUMBERS,
    out=_OVERWRITTEN,
    reduce='{"sum", "add", "mean", "min", "max"}: What ``segment_..._csr`` does.',
    returns=_REDUCED,
)
def segment_csr(src: Any, indptr: Any, out: Any = None, reduce: str = "sum") -> Any:
    """Reduce consecutive rows; minimum and maximum without places."""
    if reduce in ("min", "max"):
        return _extreme_csr(reduce, src, indptr, out)[0]
    known = {"sum": segment_sum_csr, "add": segment_sum_csr, "mean": segment_mean_csr}
    return _known(known, reduce)(src, indptr, out)


@_documented(
    src="Tensor: Of any dtype; a row for each segment along the last axis of `indptr`.",
    out="Tensor, optional: Overwritten and returned; it says how many rows there are.",
    returns="Tensor: Like `src`, with as many rows as the last of `indptr` says, which waits for a GPU, or `out` has.",
)
def gather_csr(src: Any, indptr: Any, out: Any = None) -> Any:
    """Repeat each segment's row as often as the segment has rows; bits are copied."""
    axis = indptr.dim() - 1
    if out is not None:
        extent = out.shape[axis]
    else:
        extent = int(indptr.reshape(-1)[-1]) if indptr.numel() and src.numel() else 0

    def gather(tensor: Any) -> Any:
        shape = list(tensor.shape)
        shape[axis] = extent
        problem = ByOffsets(shape, indptr)
        if tensor.shape[axis] != problem.size:
            raise ValueError(f"src has {tensor.shape[axis]} segments; indptr has {problem.size}")
        return problem.gathered(tensor)

    return _gathered(gather, src, out, axis)
