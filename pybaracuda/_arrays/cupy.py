# SPDX-License-Identifier: Apache-2.0
"""CuPy arrays, on CUDA devices. Nothing about another framework belongs here."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

from .._dtypes import CANONICAL_NANS, numpy_dtype, numpy_token
from .interface import Adapter, Operand, element_strides, fill_boxes, numbered_entries

__all__ = ["CupyAdapter", "adapter"]


class _Handle:
    """A raw stream handle that speaks the stream protocol."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


class CupyAdapter(Adapter):
    """Reads CuPy's own attributes."""

    kind = "CuPy"

    def __init__(self) -> None:
        self._cupy: Any = sys.modules["cupy"]

    def read(self, name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
        shape = array.shape
        dtype = array.dtype
        dense = array.flags.c_contiguous
        strides = None if dense else element_strides(name, shape, array.strides, dtype.itemsize)
        return Operand(name, array, self, array.data.ptr, shape, strides, numpy_token(dtype), array.device.id, False)

    def empty(self, like: Operand, shape: tuple[int, ...], dtype: str, stream: int) -> tuple[int, Any]:
        array = self._cupy.empty(shape, numpy_dtype(dtype))
        return array.data.ptr, array

    def contiguous(self, operand: Operand, stream: int) -> Operand:
        return self.read(operand.name, self._cupy.ascontiguousarray(operand.array))

    def cast(self, operand: Operand, dtype: str, stream: int) -> Operand:
        return self.read(operand.name, operand.array.astype(numpy_dtype(dtype), order="C"))

    def narrow(self, wide: Operand, dtype: str, target: Operand | None, stream: int) -> Any:
        array = self._cupy.empty(wide.shape, numpy_dtype(dtype)) if target is None else target.array
        self._cupy.copyto(array, wide.array, casting="unsafe")
        # CUDA's converters make NaNs without a sign and with every other bit set. As integers NaNs without a sign are
        # the largest patterns of all, the canonical one the smallest quiet one of them.
        patterns = array.view(f"i{array.itemsize}")
        self._cupy.minimum(patterns, patterns.dtype.type(CANONICAL_NANS[dtype]), out=patterns)
        return array

    def renumbered(
        self, operand: Operand, dtype: str, bound: int, step: int, target: Operand | None, stream: int
    ) -> Any:
        numbers = operand.array.astype(numpy_dtype(dtype), copy=False)
        found = numbered_entries(self._cupy, numbers, bound, step)
        if target is None:
            return self._cupy.ascontiguousarray(found)
        self._cupy.copyto(target.array, found)
        return target.array

    def join_boxes(self, boxes: Sequence[Any], dtype: str) -> Any:
        rows = self._cupy.empty((sum(map(len, boxes)), 1 + boxes[0].shape[1]), numpy_dtype(dtype))
        return fill_boxes(rows, boxes)

    def current_stream(self, device: int) -> int:
        return int(self._cupy.cuda.get_current_stream(device).ptr)

    def scope(self, device: int, stream: int | None) -> AbstractContextManager[Any] | None:
        if self._cupy.cuda.runtime.getDevice() == device and stream in (None, self.current_stream(device)):
            return None
        return self._entered(device, self.current_stream(device) if stream is None else stream)

    @contextmanager
    def _entered(self, device: int, stream: int) -> Iterator[None]:
        cuda = self._cupy.cuda
        with cuda.Device(device):
            if stream == 0:
                entered = cuda.Stream.null
            elif hasattr(cuda.Stream, "from_external"):
                entered = cuda.Stream.from_external(_Handle(stream))
            else:
                entered = cuda.ExternalStream(stream, device)
            with entered:
                yield


@lru_cache(maxsize=1)
def adapter() -> CupyAdapter:
    """Answer the one adapter; CuPy is imported, since an array of it was met."""
    return CupyAdapter()
