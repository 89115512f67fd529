# SPDX-License-Identifier: Apache-2.0
"""Frameworks' arrays made from NumPy's and read again; a framework is imported where its arrays are first wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from verify.dtypes import DTYPES, Array
from verify.memory.driver import driver


class NumpyArrays:
    """Host memory: NumPy's own arrays.

    Attributes
    ----------
    backend : str
        Whose functions can be called on the arrays.
    source : str
        Who makes them.
    dtypes : tuple of str
        The tokens of the float dtypes that there are arrays of.
    """

    backend = "cpu"
    source = "NumPy"
    dtypes: tuple[str, ...] = tuple(DTYPES)

    def put(self, values: Array) -> Any:
        """A dense array with these values, which shares no memory with them."""
        return np.array(values, order="C")

    def get(self, array: Any) -> Array:
        """The values as a NumPy array."""
        return np.asarray(array)

    def owns(self, value: Any) -> bool:
        """Whether a value is an array of this kind."""
        return type(value) is np.ndarray

    def pointer(self, array: Any) -> int:
        """The address of the first element."""
        return int(array.ctypes.data)

    def permuted(self, array: Any, axes: Sequence[int]) -> Any:
        """A view with the axes in another order."""
        return array.transpose(*axes)

    def broadcast(self, array: Any, shape: Sequence[int]) -> Any:
        """A view that repeats the array, with strides of 0."""
        return np.broadcast_to(array, tuple(shape))

    def synchronize(self) -> None:
        """Wait until everything enqueued is done."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy one array onto another; enqueued like a call."""
        np.copyto(target, source)

    def poisoned(self, shape: Sequence[int], dtype: Any, byte: int) -> Any:
        """An array whose every byte is ``byte``, so that an element which is not written shows."""
        raw = np.full(math.prod(shape) * np.dtype(dtype).itemsize, byte, np.uint8)
        return self.put(raw.view(dtype).reshape(tuple(shape)))


class TorchArrays(NumpyArrays):
    """PyTorch's tensors; the only ones on a GPU with bfloat16."""

    source = "torch"

    def __init__(self, device: str = "cuda") -> None:
        import torch

        self._torch, self._device = torch, device
        self.backend = "cuda" if device == "cuda" else "cpu"

    def put(self, values: Array) -> Any:
        dense = np.array(values, order="C")
        if dense.dtype.name == "bfloat16":  # torch does not know ml_dtypes' type; the bits are the same
            tensor = self._torch.from_numpy(dense.view(np.int16)).view(self._torch.bfloat16)
        else:
            tensor = self._torch.from_numpy(dense)
        return tensor.reshape(values.shape).to(self._device)

    def get(self, array: Any) -> Array:
        host = array.detach().cpu().contiguous()
        if host.dtype == self._torch.bfloat16:
            return np.asarray(host.view(self._torch.int16).numpy().view(DTYPES["bf16"]))
        return np.asarray(host.numpy())

    def owns(self, value: Any) -> bool:
        return type(value) is self._torch.Tensor and value.device.type == self._device

    def pointer(self, array: Any) -> int:
        return int(array.data_ptr())

    def permuted(self, array: Any, axes: Sequence[int]) -> Any:
        return array.permute(*axes)

    def broadcast(self, array: Any, shape: Sequence[int]) -> Any:
        return array.expand(*shape)

    def synchronize(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def copy(self, target: Any, source: Any) -> None:
        target.copy_(source)


class CupyArrays(NumpyArrays):
    """CuPy's arrays; it has no bfloat16."""

    backend = "cuda"
    source = "CuPy"
    dtypes = ("f32", "f64", "f16")

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy

    def put(self, values: Array) -> Any:
        return self._cupy.asarray(np.asarray(values, order="C"))

    def get(self, array: Any) -> Array:
        return np.asarray(self._cupy.asnumpy(array))

    def owns(self, value: Any) -> bool:
        return type(value) is self._cupy.ndarray

    def pointer(self, array: Any) -> int:
        return int(array.data.ptr)

    def broadcast(self, array: Any, shape: Sequence[int]) -> Any:
        return self._cupy.broadcast_to(array, tuple(shape))

    def synchronize(self) -> None:
        self._cupy.cuda.get_current_stream().synchronize()

    def copy(self, target: Any, source: Any) -> None:
        self._cupy.copyto(target, source)


class CudaCoreArrays(NumpyArrays):
    """cuda.core's views of its own buffers, on the stream that is used where a framework has no current one."""

    backend = "cuda"
    source = "cuda.core"
    dtypes = ("f32", "f64", "f16")

    def __init__(self) -> None:
        from cuda.core import Device
        from cuda.core.utils import StridedMemoryView

        self._view = StridedMemoryView
        self._device = Device()
        self._device.set_current()
        self._stream = self._device.default_stream

    def put(self, values: Array) -> Any:
        dense = np.asarray(values, order="C")
        buffer = self._device.memory_resource.allocate(max(dense.nbytes, 1), stream=self._stream)
        self._stream.sync()
        driver().call("cuMemcpyHtoD_v2", int(buffer.handle), dense.ctypes.data, dense.nbytes)
        return self._view.from_buffer(buffer, shape=dense.shape, dtype=dense.dtype)

    def get(self, array: Any) -> Array:
        result = np.empty(array.shape, array.dtype)
        self._stream.sync()
        driver().call("cuMemcpyDtoH_v2", result.ctypes.data, int(array.ptr), result.nbytes)
        return result

    def owns(self, value: Any) -> bool:
        return type(value) is self._view

    def pointer(self, array: Any) -> int:
        return int(array.ptr)

    def synchronize(self) -> None:
        self._stream.sync()

    def copy(self, target: Any, source: Any) -> None:
        count = math.prod(source.shape) * source.dtype.itemsize
        driver().call("cuMemcpyDtoDAsync_v2", int(target.ptr), int(source.ptr), count, int(self._stream.handle))


# Tried in this order.
_ON_A_GPU: tuple[type[NumpyArrays], ...] = (CupyArrays, TorchArrays, CudaCoreArrays)


def device_arrays() -> NumpyArrays | None:
    """The first kind whose arrays can be made on this machine's GPU."""
    for kind in _ON_A_GPU:
        try:
            arrays = kind()
            arrays.get(arrays.put(np.zeros(1, np.float32)))
        except (ImportError, AssertionError, RuntimeError, OSError):
            continue  # not installed, or without CUDA: torch asserts then, CuPy and cuda.core raise RuntimeErrors
        return arrays
    return None
