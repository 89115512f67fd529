# SPDX-License-Identifier: Apache-2.0
"""Every object with `__dlpack__` or `__cuda_array_interface__` whose framework has no file of its own.

cuda.core is imported only when such an object lives on a device, or holds what NumPy does not know.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .cuda_core import CUDA_KINDS, HOST_KINDS, VIEW, cuda_core, host_array
from .interface import HOST, Adapter, Operand, stream_handle
from .numpy import NUMPY

__all__ = ["GENERIC", "GenericAdapter"]

# How __dlpack__ spells the legacy default stream.
_DLPACK_LEGACY_STREAM = 1


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
        return host_array(cuda.core.utils.StridedMemoryView.from_dlpack(array, stream_ptr=-1))
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError):
        raise TypeError(f"{name}: this {type(array).__name__} cannot be imported from host memory ({reason})") from None


class GenericAdapter(Adapter):
    """Imports any other producer: host memory as a NumPy array, device memory as a StridedMemoryView.

    The producer is told our stream, so that it orders its own work before ours.
    """

    kind = "DLPack"

    def read(self, name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
        if not hasattr(array, "__dlpack_device__"):
            views = cuda_core(name).utils.StridedMemoryView
            view = views.from_cuda_array_interface(array, stream_ptr=self._consumer(stream, like))
            return VIEW.read(name, view)
        kind, _ = array.__dlpack_device__()
        if kind in HOST_KINDS:
            try:
                return NUMPY.read(name, np.from_dlpack(array))
            except (BufferError, RuntimeError, TypeError) as error:
                return NUMPY.read(name, _refused_by_numpy(name, array, error))
        if kind not in CUDA_KINDS:
            raise ValueError(f"{name}: the array is on a device of DLPack type {kind}; wanted host memory or CUDA")
        views = cuda_core(name).utils.StridedMemoryView
        return VIEW.read(name, views.from_dlpack(array, stream_ptr=self._consumer(stream, like)))

    @staticmethod
    def _consumer(stream: Any, like: Operand | None) -> int:
        if stream is not None:
            handle = stream_handle(stream)
        else:
            handle = like.adapter.current_stream(like.device) if like is not None and like.device != HOST else 0
        return handle or _DLPACK_LEGACY_STREAM


GENERIC = GenericAdapter()
