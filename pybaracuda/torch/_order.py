# SPDX-License-Identifier: Apache-2.0
"""Routes of order statistics with indices and of histograms, on CUDA alone: PyTorch's kernels for the CPU answer other
places among equals, and count in one order as it is.

Their gradients are routed in `_composed_gradients.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch

from .. import order
from ..histc import histc
from ._named import axis_of
from ._route import route

__all__: list[str] = []

_SELECTED = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64),
)
# Of dtypes without kernels: elements are compared and counted in one that has each of their values.
_WIDENED = {torch.int16: torch.int32, torch.bool: torch.uint8}
_COUNTED = (torch.float32, torch.float64)
# 32 bits count the elements of a row whose most frequent one is looked for.
_LONGEST = 2**32 - 1


def _conditions(dtypes: Sequence[Any]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes) + "; on CUDA"


def _refusal(self: Any, dim: int, k: int = 1, dtypes: Sequence[Any] = _SELECTED) -> str:
    rank = max(self.dim(), 1)
    if not -rank <= dim < rank or not self.numel():
        return "an empty tensor" if -rank <= dim < rank else "arguments that PyTorch refuses"
    length = self.shape[dim] if self.dim() else 1
    if not 1 <= k <= length:
        return "arguments that PyTorch refuses"
    if length > _LONGEST:
        return "rows of more than 2^32 elements"
    return "" if self.dtype in dtypes else f"dtype {self.dtype}"


def _into_refusal(
    self: Any, dim: int, keepdim: bool, values: Any, indices: Any, k: int = 1, dtypes: Sequence[Any] = _SELECTED
) -> str:
    if values.dtype != self.dtype or indices.dtype != torch.int64:
        return "an output of another shape or dtype"
    found = _refusal(self, dim, k, dtypes)
    if found:
        return found
    wanted = order.reduced_shape(tuple(self.shape), axis_of(dim, self.dim()), keepdim)
    fits = tuple(values.shape) == tuple(indices.shape) == wanted
    return "" if fits else "an output of another shape or dtype"


def _select(function: Callable[..., Any], self: Any, *options: Any) -> tuple[Any, Any]:
    values, indices = function(self.to(_WIDENED.get(self.dtype, self.dtype)), *options)
    return values.to(self.dtype), indices


def _write(outputs: tuple[Any, Any], found: tuple[Any, Any]) -> tuple[Any, Any]:
    for to, each in zip(outputs, found, strict=True):
        to.copy_(each)
    return outputs


def _kthvalue_refusal(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> str:
    return _refusal(self, dim, k)


@route("aten::kthvalue", _kthvalue_refusal, _conditions(_SELECTED), devices=("cuda",))
def _kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _select(order.kthvalue, self, k, dim, keepdim)


def _kthvalue_into_refusal(
    self: Any, k: int, dim: int = -1, keepdim: bool = False, *, values: Any, indices: Any
) -> str:
    return _into_refusal(self, dim, keepdim, values, indices, k)


@route("aten::kthvalue.values", _kthvalue_into_refusal, _conditions(_SELECTED), devices=("cuda",))
def _kthvalue_into(self: Any, k: int, dim: int = -1, keepdim: bool = False, *, values: Any, indices: Any) -> Any:
    return _write((values, indices), _select(order.kthvalue, self, k, dim, keepdim))


def _enter(name: str, overload: str, into: str, dtypes: Sequence[Any] = _SELECTED) -> None:
    function: Callable[..., Any] = getattr(order, name)

    def refusal(self: Any, dim: int = -1, keepdim: bool = False) -> str:
        return _refusal(self, dim, dtypes=dtypes)

    def run(self: Any, dim: int = -1, keepdim: bool = False) -> Any:
        return _select(function, self, dim, keepdim)

    def into_refusal(self: Any, dim: int = -1, keepdim: bool = False, *, values: Any, indices: Any) -> str:
        return _into_refusal(self, dim, keepdim, values, indices, dtypes=dtypes)

    def run_into(self: Any, dim: int = -1, keepdim: bool = False, *, values: Any, indices: Any) -> Any:
        return _write((values, indices), _select(function, self, dim, keepdim))

    conditions = _conditions(dtypes)
    route(f"aten::{name}{overload}", refusal, conditions, group=name, devices=("cuda",), refused_by_tracer=True)(run)
    route(f"aten::{name}{into}", into_refusal, conditions, group=name, devices=("cuda",))(run_into)


_enter("median", ".dim", ".dim_values")
_enter("nanmedian", ".dim", ".dim_values")
_enter("mode", "", ".values", dtypes=(*_SELECTED, torch.bool))


def _ends(self: Any, low: Any, high: Any) -> tuple[float, float]:
    """Answer a range as the elements' dtype has it."""
    if self.dtype == torch.float64:
        return float(low), float(high)
    with np.errstate(over="ignore"):
        return float(np.float32(low)), float(np.float32(high))


def _histc_refusal(self: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> str:
    if self.dtype not in _COUNTED:
        return f"dtype {self.dtype}"
    if not self.numel():
        return "an empty tensor"
    low, high = _ends(self, min, max)
    reach = _ends(self, 0, (high - low) * bins)[1] if isfinite(high - low) else high - low
    return "" if bins > 0 and low <= high and isfinite(reach) else "arguments that PyTorch refuses"


def _histc(self: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    low, high = _ends(self, min, max)
    if low == high:
        # PyTorch waits for the range, too, and refuses one that is not finite.
        low, high = torch.stack(torch.aminmax(self)).tolist()
        if not (isfinite(low) and isfinite(high)):
            place = "torch.histc: " if self.device.type == "cpu" else ""
            raise RuntimeError(f"{place}range of [{low}, {high}] is not finite")
    return histc(self, bins, low, high)


def _histc_into_refusal(self: Any, bins: int = 100, min: Any = 0, max: Any = 0, *, out: Any) -> str:
    if out.dtype != self.dtype or tuple(out.shape) != (bins,):
        return "an output of another shape or dtype"
    return _histc_refusal(self, bins, min, max)


def _histc_into(self: Any, bins: int = 100, min: Any = 0, max: Any = 0, *, out: Any) -> Any:
    return out.copy_(_histc(self, bins, min, max))


route("aten::histc", _histc_refusal, _conditions(_COUNTED), devices=("cuda",), refused_by_tracer=True)(_histc)
route("aten::histc.out", _histc_into_refusal, _conditions(_COUNTED), devices=("cuda",))(_histc_into)
