# SPDX-License-Identifier: Apache-2.0
"""Finds, loads and checks the two C libraries and sets every signature; no operator is named here."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import _abi, _forking, _interrupt, _machine
from ._dtypes import CTYPES, Bits128
from ._elf import file_fault
from ._errors import BackendUnavailableError, from_status

__all__ = [
    "Bits128",
    "Library",
    "backend_available",
    "backend_problem",
    "cmake_dir",
    "handler_path",
    "include_dir",
    "last_path",
    "library_path",
    "load",
    "package_version",
    "raw",
    "symbol_name",
    "value_ctype",
]

PREFIX = "baracuda_kernels_"
_FILES = {"cpu": "libbaracuda_kernels_cpu.so", "cuda": "libbaracuda_kernels.so"}
_HANDLERS = "libbaracuda_xla.so"


_LIBRARY_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "last_error": (ctypes.c_char_p, []),
    "last_path": (ctypes.c_char_p, []),
    "version": (ctypes.c_char_p, []),
    "abi_hash": (ctypes.c_uint64, []),
    "backend_name": (ctypes.c_char_p, []),
    "cpu_threads": (ctypes.c_int32, []),
    "cpu_isa": (ctypes.c_char_p, []),
    "set_interrupt_check": (None, [ctypes.c_void_p, ctypes.c_void_p]),
}
_INTERNAL = 5


def symbol_name(operator: _abi.Operator, variant: _abi.Variant, verb: str) -> str:
    """Spell the C name of one function."""
    return f"{PREFIX}{operator.name}_{variant.token}_{verb}"


def value_ctype(parameter: _abi.Scalar, variant: _abi.Variant) -> str:
    """Resolve VALUE, the element's own type, to a dtype token."""
    return variant.types["T"] if parameter.ctype == "VALUE" else parameter.ctype


def _signature(operator: _abi.Operator, variant: _abi.Variant, verb: str) -> tuple[Any, list[Any]]:
    if verb == "run_packed":
        return ctypes.c_int32, [ctypes.c_void_p]
    types: list[Any] = []
    workspace = [ctypes.c_void_p, ctypes.c_size_t]
    for parameter in operator.parameters:
        if isinstance(parameter, _abi.Scalar):
            if parameter.name != "value" or verb != "workspace_size":
                types.append(CTYPES[value_ctype(parameter, variant)])
        elif isinstance(parameter, _abi.HostArray):
            types.append(ctypes.POINTER(CTYPES[parameter.ctype]))
        elif isinstance(parameter, _abi.Options) or verb != "workspace_size":
            types.append(ctypes.c_void_p)
    if verb == "run":
        types = [*operator.in_call_order(types, workspace), ctypes.c_void_p]
    elif verb == "can_implement" and operator.after_workspace:
        types = operator.in_call_order(types, workspace)
    return (ctypes.c_size_t if verb == "workspace_size" else ctypes.c_int32), types


def _every_signature() -> Iterator[tuple[str, Any, list[Any]]]:
    for operator in _abi.OPERATORS.values():
        for variant in operator.variants.values():
            for verb in ("run", "can_implement", "workspace_size", "run_packed"):
                yield symbol_name(operator, variant, verb), *_signature(operator, variant, verb)


def _checked_backend(backend: str) -> str:
    if backend not in _FILES:
        raise ValueError(f"backend is {backend!r}; wanted 'cpu' or 'cuda'")
    return backend


def _find(folder: str, name: str) -> Path | None:
    # Every entry of the package's path: an editable install keeps what CMake installed beside another one.
    for entry in sys.modules[__package__].__path__:
        path = Path(entry) / folder / name
        if path.exists():
            return path
    return None


def package_version() -> str:
    """Say which version of the package this is. A source tree has no metadata: its library knows."""
    with _forking.first_use():
        from importlib import metadata

    try:
        return metadata.version("pybaracuda")
    except metadata.PackageNotFoundError:
        return load("cpu").version


def library_path(backend: str) -> Path:
    """Find the file of a C library, to load it from another language; `python -m pybaracuda config` links it.

    Parameters
    ----------
    backend : {"cpu", "cuda"}

    Returns
    -------
    pathlib.Path

    Raises
    ------
    BackendUnavailableError
        If this installation does not hold it.
    """
    name = _FILES[_checked_backend(backend)]
    path = _find("lib", name)
    if path is None:
        hint = "the package was built without CUDA; build it with BARACUDA_CUDA=ON" if backend == "cuda" else ""
        expected = Path(__file__).parent / "lib" / name
        raise BackendUnavailableError(
            f"the {backend} library is not installed: {expected} does not exist" + (f" ({hint})" if hint else "")
        )
    return path


def handler_path() -> Path:
    """Find the file of the handlers through which XLA's programs call the C libraries."""
    path = _find("lib", _HANDLERS)
    if path is None:
        expected = Path(__file__).parent / "lib" / _HANDLERS
        raise BackendUnavailableError(f"the library of XLA's handlers is not installed: {expected} does not exist")
    return path


def include_dir() -> Path:
    """Find the folder that holds ``baracuda_kernels.h``, for a compiler.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    FileNotFoundError
        If this installation does not hold it.
    """
    return _found_folder("the C header", "include", "baracuda_kernels.h")


def cmake_dir() -> Path:
    """Find the folder of the CMake package, for ``baracuda_kernels_DIR`` or ``CMAKE_PREFIX_PATH``.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    FileNotFoundError
        If this installation does not hold it.
    """
    return _found_folder("the CMake package", "lib/cmake/baracuda_kernels", "baracuda_kernelsConfig.cmake")


def _found_folder(what: str, folder: str, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise FileNotFoundError(f"{what} is not installed: {Path(__file__).parent / folder / name} does not exist")
    return path.parent


def _open(path: Path, backend: str) -> ctypes.CDLL:
    """Load a library into its own namespace; refuse a damaged one, another backend's, one of another ABI table."""
    if fault := file_fault(path):
        raise BackendUnavailableError(f"the {backend} library does not load: {path} {fault}; install the package again")
    try:
        native = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise BackendUnavailableError(f"the {backend} library does not load: {error}") from error
    # First what tells a build apart: another one may lack any of the others.
    for name in ("backend_name", "abi_hash"):
        _declare(native, name, path)
    held = getattr(native, PREFIX + "backend_name")().decode(errors="replace")
    if held != backend:
        raise BackendUnavailableError(
            f"{path} holds the {held} library, and the {backend} library belongs there: install the package again"
        )
    found = int(getattr(native, PREFIX + "abi_hash")())
    if found != _abi.ABI_HASH:
        raise BackendUnavailableError(
            f"{path} has ABI hash {found:#018x}, and this package needs {_abi.ABI_HASH:#018x}: "
            "library and package come from different builds; install both again"
        )
    for name in _LIBRARY_FUNCTIONS:
        _declare(native, name, path)
    return native


def _declare(native: ctypes.CDLL, name: str, path: Path) -> None:
    """Set the signature of one of the library's own functions."""
    try:
        function = getattr(native, PREFIX + name)
    except AttributeError as error:
        raise BackendUnavailableError(f"{path} is not a baracuda_kernels library: {error}") from error
    function.restype, function.argtypes = _LIBRARY_FUNCTIONS[name]


class Library:
    """One loaded C library. Immutable; its functions may be called from any thread."""

    __slots__ = ("_functions", "_last_error", "_native", "backend", "path")

    def __init__(self, backend: str, path: Path) -> None:
        self.backend = backend
        self.path = path
        self._native = _open(path, backend)
        self._last_error = getattr(self._native, PREFIX + "last_error")
        self._functions: dict[str, Callable[..., int]] = {}

    @property
    def handle(self) -> int:
        """What the loader calls the library, for code that looks its functions up."""
        return int(self._native._handle)

    def function(self, operator: _abi.Operator, variant: _abi.Variant, verb: str) -> Callable[..., int]:
        """Answer one C function with its signature set."""
        symbol = symbol_name(operator, variant, verb)
        function = self._functions.get(symbol)
        if function is None:
            try:
                native = getattr(self._native, symbol)
            except AttributeError:
                raise BackendUnavailableError(f"{self.path} has no function {symbol}") from None
            native.restype, native.argtypes = _signature(operator, variant, verb)
            function = self._functions.setdefault(symbol, native)
        return function

    def has(self, operator: _abi.Operator, variant: _abi.Variant) -> bool:
        """Tell whether the library holds an operator in one dtype."""
        return hasattr(self._native, symbol_name(operator, variant, "run"))

    def error(self, status: int, symbol: str, *, needed: int = 0, got: int = 0) -> BaseException:
        """Turn a failed call's status into its exception. Call it on the thread that failed, before any other call."""
        if status == _INTERNAL and (interruption := _interruption(self._native)) is not None:
            return interruption
        text = (self._last_error() or b"").decode(errors="replace")
        return from_status(status, symbol, text, needed=needed, got=got)

    @property
    def native(self) -> ctypes.CDLL:
        """The library as ctypes has it."""
        return self._native

    @property
    def version(self) -> str:
        """The library's own version."""
        return str(getattr(self._native, PREFIX + "version")().decode())

    @property
    def cpu_threads(self) -> int:
        """How many threads a call may use."""
        return int(getattr(self._native, PREFIX + "cpu_threads")())

    @property
    def cpu_isa(self) -> str:
        """The instruction set of its code on the CPU: avx512, avx2 or portable."""
        return str(getattr(self._native, PREFIX + "cpu_isa")().decode())

    @property
    def last_path(self) -> str:
        """Which of its operator's paths the calling thread's latest successful call took."""
        return str(getattr(self._native, PREFIX + "last_path")().decode())

    def watch_signals(self) -> None:
        """Let signal handlers that raise end long calls on this thread, if it is the one that runs them."""
        _interrupt.watch_signals(getattr(self._native, PREFIX + "set_interrupt_check"))


def _interruption(native: ctypes.CDLL) -> BaseException | None:
    """Answer the exception that ended this thread's latest call, which failed with status 5; None if another cause."""
    text: bytes = getattr(native, PREFIX + "last_error")()
    return _interrupt.take_exception() if b": interrupted " in text else None


_loaded: dict[str, Library] = {}


def load(backend: str) -> Library:
    """Load a backend's library on first use and answer it.

    Raises
    ------
    BackendUnavailableError
        If the file is missing, does not load or has another ABI.
    """
    library = _loaded.get(backend)
    if library is None:
        with _forking.first_use():
            library = _loaded.get(backend)
            if library is None:
                library = _loaded[backend] = Library(backend, library_path(backend))
    if backend == "cpu":
        library.watch_signals()
    return library


@lru_cache(maxsize=2)
def raw(backend: str = "cpu") -> ctypes.CDLL:
    """Load a C library with ctypes, every function's ``restype`` and ``argtypes`` set from the ABI table.

    Data pointers, workspaces, streams, options and packed blocks are ``c_void_p``; shapes, strides and pads are
    ``POINTER(c_int32)`` or ``POINTER(c_int64)``; statuses are ``c_int32``. Statuses are returned, not raised;
    ``baracuda_kernels_last_error()`` has this thread's text. What is raised is the exception of a signal handler that
    ended a long call.

    Parameters
    ----------
    backend : {"cpu", "cuda"}

    Returns
    -------
    ctypes.CDLL
        The same object at every call.

    Raises
    ------
    BackendUnavailableError
        If the library is missing, does not load or has another ABI.
    """

    def raise_interruption(status: int, function: Any, arguments: Any) -> int:
        if status == _INTERNAL and (interruption := _interruption(native)) is not None:
            raise interruption
        return status

    with _forking.first_use():
        native = _open(library_path(backend), backend)
    for symbol, result, types in _every_signature():
        # A library without a symbol still serves the others; that none is missing is proven where libraries are built.
        function = getattr(native, symbol, None)
        if function is not None:
            function.restype, function.argtypes = result, types
            if symbol.endswith(("_run", "_run_packed")):
                function.errcheck = raise_interruption
    return native


def last_path(backend: str) -> str:
    """Say which of its operator's paths the calling thread's latest successful call took.

    An operator may have several ways of doing a call, its paths, of which a backend takes the first that can do the
    problem at hand: the tables at the heads of ``native/ops/<family>``'s dispatch files name them and say which calls
    take them. Names and choices may change from version to version, and no result depends on them.

    Parameters
    ----------
    backend : {"cpu", "cuda"}
        The library that did the call.

    Returns
    -------
    str
        The path's name, such as ``"tiles"``; empty where the call had nothing to write, and before any call. Of a call
        that is cut into several launches, the last one's.

    Raises
    ------
    BackendUnavailableError
        If this installation does not hold the library.
    """
    return load(_checked_backend(backend)).last_path


def backend_problem(backend: str) -> str | None:
    """Say in one sentence why a backend cannot run here, or answer None when it can.

    Parameters
    ----------
    backend : {"cpu", "cuda"}
        Asking about ``"cuda"`` starts the driver in this process.

    Returns
    -------
    str or None
    """
    try:
        load(_checked_backend(backend))
    except BackendUnavailableError as error:
        return error.detail
    return _machine.cuda_problem() if backend == "cuda" else None


def backend_available(backend: str) -> bool:
    """Tell whether a backend's library is here and, for ``"cuda"``, a driver and a device that it can use.

    Parameters
    ----------
    backend : {"cpu", "cuda"}
        As for :func:`backend_problem`, which says why not.

    Returns
    -------
    bool
    """
    return backend_problem(backend) is None
