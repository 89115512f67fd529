# SPDX-License-Identifier: Apache-2.0
"""Routes of reductions of consecutive rows, whose lengths or offsets are given, and of their gradient."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import torch

from ..segment import segment_csr, segment_csr_backward
from ._named import INDICES, is_readable, widened
from ._route import of_floats, route

__all__: list[str] = []


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
    if axis != 0 or given.dim() != 1 or given.dtype not in INDICES:
        return "an axis other than the first"
    if offsets is None and not unsafe and is_readable(given):
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
    found = segment_csr(widened(data), starts, "sum" if reduce == "mean" else reduce)
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
