# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA driver and its devices. Loads no library of ours."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache

from . import _forking

__all__ = [
    "cuda_arch",
    "cuda_problem",
    "current_device",
    "device_count",
    "device_name",
    "device_scope",
    "on_device",
    "synchronize",
]

# The oldest CUDA version whose driver runs the CUDA library; driver 580 is the first of it.
_NEEDED_CUDA = (13, 0)
# The handles of the legacy and the per-thread default stream: every device has these.
_DEFAULT_STREAMS = (0, 1, 2)
_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    with _forking.first_use():
        return ctypes.CDLL("libcuda.so.1")


def _error_text(code: int) -> str:
    name = ctypes.c_char_p()
    _driver().cuGetErrorName(code, ctypes.byref(name))
    return (name.value or b"error").decode() + f" ({code})"


def cuda_problem() -> str | None:
    """Say in one sentence why no CUDA device can be used, or answer None when one can."""
    try:
        driver = _driver()
    except OSError:
        return "no NVIDIA driver is installed (libcuda.so.1 was not found)"
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return "the NVIDIA driver does not answer"
    found = (version.value // 1000, version.value % 1000 // 10)
    if found < _NEEDED_CUDA:
        return (
            f"the NVIDIA driver is too old: it supports CUDA {found[0]}.{found[1]}, "
            f"and CUDA {_NEEDED_CUDA[0]}.{_NEEDED_CUDA[1]} (driver 580) is needed"
        )
    if code := driver.cuInit(0):
        return f"the NVIDIA driver cannot start: {_error_text(code)}"
    count = ctypes.c_int()
    if code := driver.cuDeviceGetCount(ctypes.byref(count)):
        return f"the NVIDIA driver cannot count its devices: {_error_text(code)}"
    return None if count.value > 0 else "the NVIDIA driver sees no device"


def device_name(index: int = 0) -> str:
    """Name a CUDA device as its driver does. `cuda_problem()` must have answered None."""
    name = ctypes.create_string_buffer(256)
    code = _driver().cuDeviceGetName(name, len(name), _device(index))
    return _error_text(code) if code else name.value.decode(errors="replace")


def cuda_arch(index: int | None = None) -> str:
    """Name the architecture of a device, such as sm_90; None means the current device."""
    parts = []
    for attribute in (_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR):
        value = ctypes.c_int()
        _driver().cuDeviceGetAttribute(ctypes.byref(value), attribute, _device(index))
        parts.append(value.value)
    return f"sm_{parts[0]}{parts[1]}"


def current_device() -> int | None:
    """Answer the device whose context is current on this thread, None if there is none."""
    handle = ctypes.c_int()
    # CUdevice handles are the devices' numbers.
    return handle.value if _driver().cuCtxGetDevice(ctypes.byref(handle)) == 0 else None


def _device(index: int | None) -> int:
    handle = ctypes.c_int()
    _driver().cuDeviceGet(ctypes.byref(handle), (current_device() or 0) if index is None else index)
    return handle.value


@lru_cache(maxsize=1)
def device_count() -> int:
    """Count the CUDA devices. `cuda_problem()` must have answered None, or a context must exist."""
    count = ctypes.c_int()
    _driver().cuDeviceGetCount(ctypes.byref(count))
    return count.value


@contextmanager
def on_device(index: int) -> Iterator[None]:
    """Make a device's primary context current, the one that runtime libraries use, and restore the caller's."""
    driver = _driver()
    context = ctypes.c_void_p()
    if code := driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), index):
        raise RuntimeError(f"CUDA device {index} cannot be used: {_error_text(code)}")
    try:
        if code := driver.cuCtxPushCurrent_v2(context):
            raise RuntimeError(f"CUDA device {index} cannot be made current: {_error_text(code)}")
        try:
            yield
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(index)


def device_scope(device: int, stream: int) -> AbstractContextManager[None] | None:
    """Answer what makes `device` current where a stream does not say so itself and there are several; else None."""
    return on_device(device) if stream in _DEFAULT_STREAMS and device_count() > 1 else None


def synchronize(stream: int) -> None:
    """Wait on the host until everything enqueued on a stream is done."""
    if code := _driver().cuStreamSynchronize(ctypes.c_void_p(stream)):
        raise RuntimeError(f"waiting for stream {stream:#x} failed: {_error_text(code)}")
