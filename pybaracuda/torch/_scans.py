# SPDX-License-Identifier: Apache-2.0
"""Routes of scans along an axis. Most of their gradients PyTorch makes of scans and of flips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import scan
from ._route import CPU_ALWAYS, FEW_ELEMENTS, of_floats, route

__all__: list[str] = []

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SUMMED = (*_FLOATS, torch.int32, torch.int64)
_COMPARED = (*_SUMMED, torch.int8, torch.uint8)
# What PyTorch makes of other integers, and of bool, before it adds or multiplies them.
_WIDENED = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.bool)

# Below these, on the CPU, a call of Python's or the begin of each row is most of the time.
_FEW = 1 << 16
_SHORT = 128
_DENSE_ROWS = "dense rows on the CPU"
_ON_CPU = "on the CPU 65,536 elements and more, in rows of 128 and more or side by side"


def _of_tensor(self: Any, dim: int) -> str:
    """Say what is wrong with a tensor that is scanned."""
    rank = max(self.dim(), 1)
    if not -rank <= dim < rank or not self.numel():
        return "an empty tensor" if -rank <= dim < rank else "arguments that PyTorch refuses"
    if self.device.type == "cuda" or CPU_ALWAYS:
        return ""
    is_few = self.numel() < _FEW or (_is_dense(self, dim) and self.shape[dim] < _SHORT)
    return FEW_ELEMENTS if is_few else ""


def _is_dense(self: Any, dim: int) -> bool:
    return self.dim() < 2 or dim in (-1, self.dim() - 1) or all(each == 1 for each in self.shape[dim:][1:])


def _summed_dtype(self: Any, dtype: Any) -> Any:
    """Answer the dtype that PyTorch adds or multiplies in."""
    return dtype or (torch.int64 if self.dtype in _WIDENED else self.dtype)


def _summed_refusal(self: Any, dim: int, *, dtype: Any = None, out: Any = None) -> str:
    wanted = _summed_dtype(self, dtype if out is None else out.dtype)
    if wanted not in _SUMMED or (self.dtype not in _WIDENED and self.dtype not in _SUMMED):
        return f"dtype {wanted if self.dtype in _SUMMED else self.dtype}"
    return _of_tensor(self, dim)


def _as_input(self: Any, result: Any) -> Any:
    """Answer a result in the layout that PyTorch gives it."""
    return result if self.is_contiguous() else torch.empty_like(self, dtype=result.dtype).copy_(result)


def _enter_summed(name: str) -> None:
    function: Callable[..., Any] = getattr(scan, name)
    conditions = f"float32, float64, float16, bfloat16, int32, int64, and what PyTorch widens to these; {_ON_CPU}"

    def run(self: Any, dim: int, *, dtype: Any = None) -> Any:
        return _as_input(self, function(self.to(_summed_dtype(self, dtype)), dim))

    def in_place_refusal(self: Any, dim: int, *, dtype: Any = None) -> str:
        if dtype not in (None, self.dtype) or self.dtype not in _SUMMED:
            return f"dtype {dtype or self.dtype}"
        return _of_tensor(self, dim)

    def in_place(self: Any, dim: int, *, dtype: Any = None) -> Any:
        if self.is_contiguous():
            # Autograd is above us, and its tensors are written as others are.
            function(self, dim, out=self.detach())
            return self
        return self.copy_(function(self, dim))

    def out_refusal(self: Any, dim: int, *, dtype: Any = None, out: Any) -> str:
        if out.shape != self.shape or (dtype is not None and dtype != out.dtype):
            return "an output of another shape or dtype"
        return _summed_refusal(self, dim, out=out)

    def into(self: Any, dim: int, *, dtype: Any = None, out: Any) -> Any:
        return out.copy_(function(self.to(out.dtype), dim))

    route(f"aten::{name}", _summed_refusal, conditions)(run)
    route(f"aten::{name}_", in_place_refusal, conditions, group=name)(in_place)
    route(f"aten::{name}.out", out_refusal, conditions, group=name)(into)


def _logarithm_refusal(self: Any, dim: int, *, out: Any = None) -> str:
    if out is not None and (out.shape != self.shape or out.dtype != self.dtype):
        return "an output of another shape or dtype"
    return of_floats(self) or _of_tensor(self, dim)


# Compilers see PyTorch's composition of these, for which they have a scan of their own on CUDA.
_OF_FLOATS = f"float32, float64, float16, bfloat16; {_ON_CPU}; not in programs compiled for CUDA"


@route("aten::_logcumsumexp", _logarithm_refusal, _OF_FLOATS, group="logcumsumexp")
def _logcumsumexp(self: Any, dim: int) -> Any:
    return _as_input(self, scan.logcumsumexp(self, dim))


@route("aten::_logcumsumexp.out", _logarithm_refusal, _OF_FLOATS, group="logcumsumexp")
def _logcumsumexp_into(self: Any, dim: int, *, out: Any) -> Any:
    return out.copy_(scan.logcumsumexp(self, dim))


def _enter_extremum(name: str) -> None:
    function: Callable[..., Any] = getattr(scan, name)

    def refusal(self: Any, values: Any, indices: Any, dim: int) -> str:
        if self.dtype not in _COMPARED or values.dtype != self.dtype or indices.dtype != torch.int64:
            return f"dtype {self.dtype}"
        if values.shape != self.shape or indices.shape != self.shape:
            return "an output of another shape or dtype"
        found = _of_tensor(self, dim)
        if not found and self.device.type == "cpu" and not CPU_ALWAYS and _is_dense(self, dim):
            return _DENSE_ROWS
        return found

    def run(self: Any, values: Any, indices: Any, dim: int) -> None:
        if values.is_contiguous() and indices.is_contiguous():
            function(self, dim, out=(values, indices))
            return
        for to, found in zip((values, indices), function(self, dim), strict=True):
            to.copy_(found)

    conditions = f"float32, float64, float16, bfloat16, int8, uint8, int32, int64; {_ON_CPU}, not along the last axis"
    route(f"aten::_{name}_helper", refusal, conditions, group=name, compiled=False)(run)


for _name in ("cumsum", "cumprod"):
    _enter_summed(_name)
for _name in ("cummax", "cummin"):
    _enter_extremum(_name)
