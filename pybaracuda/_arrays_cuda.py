# SPDX-License-Identifier: Apache-2.0
"""cuda.core's StridedMemoryView, and every other object with `__dlpack__` or `__cuda_array_interface__`.

cuda.core is imported only when such an object lives on a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from math import prod
from typing import Any

import numpy as np

from . import _machine
from ._arrays import HOST, Adapter, Operand, dense_strides, dtype_name, numpy_dtype, numpy_token, stream_handle
from ._arrays_numpy import NUMPY
from ._errors import BackendUnavailableError
from ._forking import first_use

__all__ = ["GENERIC", "VIEW", "GenericAdapter", "ViewAdapter"]

# DLPack's device types.
_HOST_KINDS = (1, 3)  # kDLCPU, kDLCUDAHost
_CUDA_KINDS = (2, 13)  # kDLCUDA, kDLCUDAManaged
# How __dlpack__ spells the legacy default stream.
_DLPACK_LEGACY_STREAM = 1
# Which pad kernel moves elements of a width.
_MOVERS = {2: "f16", 4: "f32", 8: "f64"}


def _core(name: str) -> Any:
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


def _host_array(view: Any) -> Any:
    """Look at a host StridedMemoryView through NumPy, without a copy and in every dtype."""
    strides = view.strides
    shape = tuple(view.shape)
    memory = _HostMemory(
        view, view.ptr, shape, dense_strides(shape) if strides is None else strides, view.dtype.itemsize
    )
    return np.asarray(memory).view(view.dtype)


def _refused_by_numpy(name: str, array: Any, reason: Exception) -> Any:
    """Import what NumPy does not, which is bfloat16: cuda.core knows it."""
    try:
        import cuda.core.utils
    except ImportError:
        raise TypeError(
            f"{name}: NumPy cannot import this {type(array).__name__} from host memory ({reason}); if it holds "
            "bfloat16, pip install pybaracuda[cuda] makes it known"
        ) from None
    try:
        return _host_array(cuda.core.utils.StridedMemoryView.from_dlpack(array, stream_ptr=-1))
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError):
        raise TypeError(f"{name}: this {type(array).__name__} cannot be imported from host memory ({reason})") from None


def _as_view(array: Any, name: str) -> Any:
    """Wrap a NumPy array that was made here."""
    if numpy_token(array.dtype) == "bf16":
        raise TypeError(f"{name}: NumPy cannot export bfloat16, so no view of host memory can be made; pass out=")
    return _core(name).utils.StridedMemoryView.from_dlpack(array, stream_ptr=-1)


class ViewAdapter(Adapter):
    """Reads StridedMemoryViews; the caller has ordered them with the stream in use."""

    kind = "cuda.core"

    def read(self, name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
        kind, device = array.__dlpack_device__()
        if kind in _HOST_KINDS:
            host = NUMPY.read(name, _host_array(array))
            host.array, host.adapter = array, self
            return host
        if kind not in _CUDA_KINDS:
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
        core = _core(like.name)
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
            return NUMPY.read(operand.name, np.ascontiguousarray(_host_array(operand.array)))
        from .pad import PadDescriptor, PadPlan

        width = operand.array.dtype.itemsize
        if width not in _MOVERS:
            raise ValueError(
                f"{operand.name}: a strided view of {width}-byte elements cannot be copied; pass a dense one"
            )
        pointer, copy = self.empty(operand, operand.shape, operand.dtype, stream)
        zeros = (0,) * len(operand.shape)
        descriptor = PadDescriptor(
            input_shape=operand.shape,
            pad_low=zeros,
            pad_high=zeros,
            element=_MOVERS[width],
            input_strides=operand.element_strides(),
        )
        low, high = operand.byte_range(width)
        PadPlan.select(descriptor, stream=stream).run(
            stream=stream,
            input=(operand.pointer, high - low),
            output=(pointer, prod(operand.shape) * width),
        )
        return self.read(operand.name, copy)

    def cast(self, operand: Operand, dtype: str, stream: int) -> Operand:
        if operand.device == HOST:
            cast = NUMPY.cast(NUMPY.read(operand.name, _host_array(operand.array)), dtype, stream)
            return self.read(operand.name, _as_view(cast.array, operand.name))
        raise TypeError(
            f"{operand.name}: cuda.core cannot convert {dtype_name(operand.dtype)} to {dtype_name(dtype)}; "
            f"pass {dtype_name(dtype)}"
        )

    def narrow(self, wide: Operand, dtype: str, target: Operand | None, stream: int) -> Any:
        if target is None or target.device != HOST:
            return self.cast(wide, dtype, stream).array
        host = NUMPY.read(target.name, _host_array(target.array))
        NUMPY.narrow(NUMPY.read(wide.name, _host_array(wide.array)), dtype, host, stream)
        return target.array

    def scope(self, device: int, stream: int | None) -> AbstractContextManager[Any] | None:
        return _on_device(device)


@contextmanager
def _on_device(device: int) -> Iterator[None]:
    """Make a device current, and known to cuda.core as such, which its allocations want; then restore the caller's."""
    with _machine.on_device(device):
        _core("stream").Device(device).set_current()
        yield


class GenericAdapter(Adapter):
    """Imports any other producer: host memory as a NumPy array, device memory as a StridedMemoryView.

    The producer is told our stream, so that it orders its own work before ours.
    """

    kind = "DLPack"

    def read(self, name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
        if not hasattr(array, "__dlpack_device__"):
            views = _core(name).utils.StridedMemoryView
            view = views.from_cuda_array_interface(array, stream_ptr=self._consumer(stream, like))
            return VIEW.read(name, view)
        kind, _ = array.__dlpack_device__()
        if kind in _HOST_KINDS:
            try:
                return NUMPY.read(name, np.from_dlpack(array))
            except (BufferError, RuntimeError, TypeError) as error:
                return NUMPY.read(name, _refused_by_numpy(name, array, error))
        if kind not in _CUDA_KINDS:
            raise ValueError(f"{name}: the array is on a device of DLPack type {kind}; wanted host memory or CUDA")
        views = _core(name).utils.StridedMemoryView
        return VIEW.read(name, views.from_dlpack(array, stream_ptr=self._consumer(stream, like)))

    @staticmethod
    def _consumer(stream: Any, like: Operand | None) -> int:
        if stream is not None:
            handle = stream_handle(stream)
        else:
            handle = like.adapter.current_stream(like.device) if like is not None and like.device != HOST else 0
        return handle or _DLPACK_LEGACY_STREAM


VIEW = ViewAdapter()
GENERIC = GenericAdapter()
