# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver through ctypes, so that memory and streams are had without any Python package for CUDA."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

Pointer = ctypes.c_uint64
_SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [ctypes.c_uint],
    "cuDeviceGet": [ctypes.POINTER(ctypes.c_int), ctypes.c_int],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int],
    "cuCtxGetCurrent": [ctypes.POINTER(ctypes.c_void_p)],
    "cuCtxSetCurrent": [ctypes.c_void_p],
    "cuCtxSynchronize": [],
    "cuMemAlloc_v2": [ctypes.POINTER(Pointer), ctypes.c_size_t],
    "cuMemFree_v2": [Pointer],
    "cuMemHostAlloc": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint],
    "cuMemcpyHtoD_v2": [Pointer, ctypes.c_void_p, ctypes.c_size_t],
    "cuMemcpyDtoH_v2": [ctypes.c_void_p, Pointer, ctypes.c_size_t],
    "cuMemcpyDtoDAsync_v2": [Pointer, Pointer, ctypes.c_size_t, ctypes.c_void_p],
    "cuMemsetD8Async": [Pointer, ctypes.c_uint8, ctypes.c_size_t, ctypes.c_void_p],
    "cuEventCreate": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint],
    "cuEventRecord": [ctypes.c_void_p, ctypes.c_void_p],
    "cuEventSynchronize": [ctypes.c_void_p],
    "cuEventElapsedTime": [ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_void_p],
}


class Driver:
    """The driver's functions and the primary context of one GPU, which the CUDA runtime uses, too.

    A function that is not listed above takes ctypes objects of the right types.
    """

    def __init__(self, number: int = 0) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        for name, types in _SIGNATURES.items():
            getattr(self._library, name).argtypes = types
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context
        self.enter()

    def enter(self) -> None:
        """Make the context the calling thread's."""
        self.call("cuCtxSetCurrent", self._context)

    def current_context(self) -> int:
        """The calling thread's context; 0 for none."""
        found = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(found))
        return found.value or 0

    def status(self, name: str, *arguments: Any) -> int:
        """What a function answers."""
        return int(getattr(self._library, name)(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """A function that must succeed; RuntimeError if it does not."""
        if status := self.status(name, *arguments):
            raise RuntimeError(f"{name} failed: {self.error_name(status)} ({status})")

    def error_name(self, status: int) -> str:
        """The driver's name of a status."""
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(status, ctypes.byref(text))
        return (text.value or b"unknown error").decode()


@cache
def driver(number: int = 0) -> Driver:
    """One object a GPU."""
    return Driver(number)
