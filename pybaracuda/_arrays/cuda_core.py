# SPDX-License-Identifier: Apache-2.0
"""cuda.core's StridedMemoryView, on the host and on CUDA devices. Nothing about another framework belongs here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from math import prod
from typing import Any

import numpy as np

from .. import _machine
from .._dtypes import dtype_name, numpy_dtype, numpy_token
from .._errors import BackendUnavailableError
from .._forking import first_use
from .._strided_copy import copy_strided
from .interface import HOST, Adapter, Operand, dense_strides
from .numpy import NUMPY

__all__ = ["CUDA_KINDS", "HOST_KINDS", "VIEW", "ViewAdapter", "cuda_core", "host_array"]

# DLPack's device types.
HOST_KINDS = (1, 3)  # kDLCPU, kDLCUDAHost
CUDA_KINDS = (2, 13)  # kDLCUDA, kDLCUDAManaged


def cuda_core(name: str) -> Any:
    """Import cuda.core, which device memory of this kind needs; `name` is the argument's."""
    try:
        with first_use():
            import cuda.core
            import cuda.core.utils
    except ImportError:
        raise BackendUnavailableError(
            f"{name}: device memory of this kind needs cuda-core: pip install pybaracuda[cuda]"
        ) from None
    return cuda.core


class _HostMemory:
    """Host memory with a shape, as NumPy takes it; keeps its owner alive."""

    def __init__(self, owner: Any, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], width: int) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (pointer, bool(owner.readonly)),
            "shape": shape,
            "strides": tuple(stride * width for stride in strides),
            "typestr": f"|V{width}",
        }


def host_array(view: Any) -> Any:
    """Look at a host StridedMemoryView through NumPy, without a copy and in every dtype."""
    strides = view.strides
    shape = tuple(view.shape)
    memory = _HostMemory(
        view, view.ptr, shape, dense_strides(shape) if strides is None else strides, view.dtype.itemsize
    )
    return np.asarray(memory).view(view.dtype)


def _as_view(array: Any, name: str) -> Any:
    """Wrap a NumPy array that was made here."""
    if numpy_token(array.dtype) == "bf16":
        raise TypeError(f"{name}: NumPy cannot export bfloat16, so no view of host memory can be made; pass out=")
    return cuda_core(name).utils.StridedMemoryView.from_dlpack(array, stream_ptr=-1)


class ViewAdapter(Adapter):
    """Reads StridedMemoryViews; the caller has ordered them with the stream in use."""

    kind = "cuda.core"

    def read(self, name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
        kind, device = array.__dlpack_device__()
        if kind in HOST_KINDS:
            host = NUMPY.read(name, host_array(array))
            host.array, host.adapter = array, self
            return host
        if kind not in CUDA_KINDS:
            raise ValueError(f"{name}: the memory is on a device of DLPack type {kind}; wanted host memory or CUDA")
        if array.dtype is None:
            raise TypeError(f"{name}: the StridedMemoryView has no dtype; give one to StridedMemoryView.from_buffer")
        shape = tuple(array.shape)
        strides = None if array.strides is None else tuple(array.strides)
        if strides is not None:
            steps = zip(shape, strides, dense_strides(shape), strict=True)
            if 0 in shape or all(extent == 1 or stride == dense for extent, stride, dense in steps):
                strides = None
        token = numpy_token(array.dtype)
        return Operand(name, array, self, int(array.ptr), shape, strides, token, device, bool(array.readonly))

    def empty(self, like: Operand, shape: tuple[int, ...], dtype: str, stream: int) -> tuple[int, Any]:
        core = cuda_core(like.name)
        if like.device == HOST:
            pointer, array = NUMPY.empty(like, shape, dtype, stream)
            return pointer, _as_view(array, like.name)
        wanted = numpy_dtype(dtype)
        ordered = core.Stream.from_handle(stream) if stream else core.LEGACY_DEFAULT_STREAM
        buffer = core.Device(like.device).memory_resource.allocate(
            max(prod(shape) * wanted.itemsize, 1), stream=ordered
        )
        view = core.utils.StridedMemoryView.from_buffer(buffer, shape, dense_strides(shape), dtype=wanted)
        return int(view.ptr), view

    def contiguous(self, operand: Operand, stream: int) -> Operand:
        if operand.device == HOST:
            return NUMPY.read(operand.name, np.ascontiguousarray(host_array(operand.array)))
        pointer, copy = self.empty(operand, operand.shape, operand.dtype, stream)
        width = operand.array.dtype.itemsize
        copy_strided("cuda", width, operand.shape, operand.element_strides(), operand.pointer, pointer, stream)
        return self.read(operand.name, copy)

    def cast(self, operand: Operand, dtype: str, stream: int) -> Operand:
        if operand.device == HOST:
            cast = NUMPY.cast(NUMPY.read(operand.name, host_array(operand.array)), dtype, stream)
            return self.read(operand.name, _as_view(cast.array, operand.name))
        raise TypeError(
            f"{operand.name}: cuda.core cannot convert {dtype_name(operand.dtype)} to {dtype_name(dtype)}; "
            f"pass {dtype_name(dtype)}"
        )

    def narrow(self, wide: Operand, dtype: str, target: Operand | None, stream: int) -> Any:
        if target is None or target.device != HOST:
            return self.cast(wide, dtype, stream).array
        host = NUMPY.read(target.name, host_array(target.array))
        NUMPY.narrow(NUMPY.read(wide.name, host_array(wide.array)), dtype, host, stream)
        return target.array

    def renumbered(
        self, operand: Operand, dtype: str, bound: int, step: int, target: Operand | None, stream: int
    ) -> Any:
        if operand.device != HOST:
            return super().renumbered(operand, dtype, bound, step, target, stream)
        host = NUMPY.read(operand.name, host_array(operand.array))
        into = None if target is None else NUMPY.read(target.name, host_array(target.array))
        found = NUMPY.renumbered(host, dtype, bound, step, into, stream)
        return _as_view(found, operand.name) if target is None else target.array

    def scope(self, device: int, stream: int | None) -> AbstractContextManager[Any] | None:
        return _on_device(device)


@contextmanager
def _on_device(device: int) -> Iterator[None]:
    """Make a device current, and known to cuda.core as such, which its allocations want; then restore the caller's."""
    with _machine.on_device(device):
        cuda_core("stream").Device(device).set_current()
        yield


VIEW = ViewAdapter()
