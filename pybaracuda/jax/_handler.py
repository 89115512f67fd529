# SPDX-License-Identifier: Apache-2.0
"""Makes XLA know this library: loads the handlers and registers them for both platforms, once, at import."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from .. import _library
from .._errors import BackendUnavailableError

try:
    from jax import ffi
except ImportError:  # before 0.5
    from jax.extend import ffi

__all__ = ["OWN_SCRATCH", "TARGET", "TARGETS", "ffi", "handler_path"]

# The order in which the handlers count backends: what XLA calls each, and the handler of calls without a workspace.
_PLATFORMS = {"cpu": ("cpu", "baracuda_xla_cpu"), "cuda": ("CUDA", "baracuda_xla_cuda_own_scratch")}


def handler_path() -> Path:
    """Find the handlers' file."""
    return _library.handler_path()


def _open() -> ctypes.CDLL:
    path = handler_path()
    try:
        native = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        native.baracuda_xla_protocol.restype = ctypes.c_int32
        native.baracuda_xla_attach.restype = ctypes.c_char_p
        native.baracuda_xla_attach.argtypes = [ctypes.c_int32, ctypes.c_void_p]
    except (OSError, AttributeError) as error:
        raise BackendUnavailableError(f"the library of XLA's handlers does not load: {error}") from error
    return native


def _attach(native: ctypes.CDLL, number: int, backend: str) -> None:
    """Give the handlers a backend's library; without CUDA's, what runs on a GPU says that it is not there."""
    try:
        library = _library.load(backend)
    except BackendUnavailableError:
        if backend == "cpu":
            raise
        return
    if fault := native.baracuda_xla_attach(number, library.handle):
        raise BackendUnavailableError(f"the handlers do not take {library.path}: {fault.decode()}; install both again")


def _registered() -> tuple[str, str]:
    """Register the handlers and answer the names under which programs call them: with a workspace, and without."""
    native = _open()
    # Programs outlive processes: what another protocol wrote must find no handler, not one that misreads it.
    target = f"pybaracuda_v{native.baracuda_xla_protocol()}"
    targets = target, f"{target}_own_scratch"
    for number, (backend, (platform, without_workspace)) in enumerate(_PLATFORMS.items()):
        _attach(native, number, backend)
        for name, symbol in zip(targets, (f"baracuda_xla_{backend}", without_workspace), strict=True):
            handler: Any = getattr(native, symbol)
            ffi.register_ffi_target(name, ffi.pycapsule(handler), platform=platform)
    return targets


TARGETS = _registered()
TARGET, OWN_SCRATCH = TARGETS
