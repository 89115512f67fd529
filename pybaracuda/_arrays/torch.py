# SPDX-License-Identifier: Apache-2.0
"""torch tensors on the CPU and on CUDA devices. Nothing about autograd belongs here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from math import inf, nan
from typing import Any

import numpy as np

from .._dtypes import DTYPE_NAMES, numpy_dtype
from .._float_environment import DefaultFloatEnvironment
from .interface import HOST, Adapter, Operand, fill_boxes

__all__ = ["TorchAdapter", "adapter", "check_type"]


def check_type(name: str, kind: Any) -> None:
    """Refuse tensor classes whose memory is not what it looks like (FakeTensor, DTensor and the like)."""
    if kind.__torch_dispatch__ is not sys.modules["torch"].Tensor.__torch_dispatch__:
        raise TypeError(f"{name}: a {kind.__name__} has no plain memory; pass a torch.Tensor")


class TorchAdapter(Adapter):
    """Reads tensors through their own attributes, which is several times faster than DLPack."""

    kind = "torch"

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self._torch = torch
        named = ((token, getattr(torch, name, None)) for token, name in DTYPE_NAMES.items())
        self._dtypes: dict[str, Any] = {token: dtype for token, dtype in named if dtype is not None}
        self._tokens: dict[Any, str] = {dtype: token for token, dtype in self._dtypes.items()}
        self._strided = torch.strided
        # What torch's own compiled code calls; the public spellings build a Stream object first, or ask whether CUDA is
        # ready.
        self._raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._device: Any = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)

    def read(self, name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
        if array.layout is not self._strided:
            raise TypeError(f"{name}: the tensor's layout is {array.layout}; wanted a dense one (torch.strided)")
        dtype = array.dtype
        if array.is_neg() or (dtype.is_complex and array.is_conj()):
            raise TypeError(
                f"{name}: the tensor has its conjugate or negative bit set; pass resolve_conj(), resolve_neg()"
            )
        if array.is_cuda:
            device = array.get_device()
        elif array.is_cpu:
            device = HOST
        else:
            raise ValueError(f"{name}: the tensor is on device {array.device}; wanted cpu or cuda")
        token = self._tokens.get(dtype) or str(dtype).removeprefix("torch.")
        strides = None if array.is_contiguous() else array.stride()
        try:
            pointer = array.data_ptr()
        except RuntimeError:
            pointer = 0
        if not pointer and array.numel():
            raise TypeError(
                f"{name}: the tensor has no memory of its own; call this function outside torch.func transforms, on "
                "plain tensors"
            )
        return Operand(name, array, self, pointer, tuple(array.shape), strides, token, device, False)

    def empty(self, like: Operand, shape: tuple[int, ...], dtype: str, stream: int) -> tuple[int, Any]:
        if dtype != like.dtype:
            array = like.array.new_empty(shape, dtype=self._dtypes[dtype])
        elif shape == like.shape and like.strides is None:
            array = self._torch.empty_like(like.array)  # a third faster
        else:
            array = like.array.new_empty(shape)
        return array.data_ptr(), array

    def scratch(self, like: Operand, size: int, stream: int) -> tuple[tuple[int, int], Any]:
        # torch's allocator hands memory that is given back to later work of the same stream alone, counts it among the
        # program's, and knows the private pools of graphs.
        memory = self._torch.empty(size, dtype=self._torch.uint8, device=like.array.device)
        return (memory.data_ptr(), size), memory

    def check_output(self, operand: Operand) -> None:
        if operand.array.requires_grad:
            raise ValueError(f"{operand.name}: the tensor requires grad; pass {operand.name}.detach()")

    def written(self, operand: Operand) -> None:
        # So that autograd notices a tensor that it saved and that has changed since.
        if not operand.array.is_inference():
            self._torch.autograd.graph.increment_version(operand.array)

    def contiguous(self, operand: Operand, stream: int) -> Operand:
        return self.read(operand.name, operand.array.detach().contiguous())

    def cast(self, operand: Operand, dtype: str, stream: int) -> Operand:
        return self.read(operand.name, self._converted(operand.array.detach(), dtype))

    def _converted(self, array: Any, dtype: str) -> Any:
        """Copy into a dense tensor of another dtype.

        On the host NumPy converts between the wide floats, whose subnormal numbers a processor may flush: torch's
        worker threads keep the mode of the thread that started them, whatever its mode has become.
        """
        torch = self._torch
        if array.is_cpu and "f64" in (dtype, self._tokens.get(array.dtype)):
            if array.dtype == torch.bfloat16:
                array = array.float()
            if array.dtype.is_floating_point:
                step = numpy_dtype("f32" if dtype == "bf16" else dtype)
                with np.errstate(over="ignore", invalid="ignore"), DefaultFloatEnvironment():
                    array = torch.from_numpy(array.numpy().astype(step, order="C"))
        return array.to(self._dtypes[dtype], memory_format=torch.contiguous_format)

    def narrow(self, wide: Operand, dtype: str, target: Operand | None, stream: int) -> Any:
        array = self._converted(wide.array, dtype)
        if target is not None:
            array = target.array.copy_(array)
        # torch's converters make a NaN of all ones: without the sign on CUDA, with it on the CPU in bfloat16.
        return self._torch.nan_to_num_(array, nan=nan, posinf=inf, neginf=-inf)

    def renumbered(
        self, operand: Operand, dtype: str, bound: int, step: int, target: Operand | None, stream: int
    ) -> Any:
        torch = self._torch
        numbers = operand.array.to(self._dtypes[dtype], memory_format=torch.contiguous_format)
        shape = (numbers.shape[0], *(1,) * (numbers.dim() - 1))
        starts = (torch.arange(shape[0], device=numbers.device) * step).to(numbers.dtype).reshape(shape)
        found = torch.where((numbers >= 0) & (numbers < bound), numbers + starts, -1)
        return found.contiguous() if target is None else target.array.copy_(found)

    def join_boxes(self, boxes: Sequence[Any], dtype: str) -> Any:
        rows = self._torch.empty(
            (sum(map(len, boxes)), 1 + boxes[0].shape[1]), dtype=self._dtypes[dtype], device=boxes[0].device
        )
        return fill_boxes(rows, [self._converted(each.detach(), dtype) for each in boxes])

    def current_stream(self, device: int) -> int:
        if self._raw_stream is not None:
            return int(self._raw_stream(device))
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def scope(self, device: int, stream: int | None) -> AbstractContextManager[Any] | None:
        cuda = self._torch.cuda
        if stream is not None and stream != self.current_stream(device):
            external = cuda.ExternalStream(stream, device=device) if stream else cuda.default_stream(device)
            return cuda.stream(external)  # type: ignore[no-any-return]
        return None if self._device() == device else cuda.device(device)


@lru_cache(maxsize=1)
def adapter() -> TorchAdapter:
    """Answer the one adapter; torch is imported, since a tensor was met."""
    return TorchAdapter()
