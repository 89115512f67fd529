# SPDX-License-Identifier: Apache-2.0
"""The command line: `python -m pybaracuda info`, `config` and `check`. What they show is made elsewhere."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata

import pybaracuda

from . import _abi, _library, _machine
from ._check import report
from ._output import run_to_reader

_PACKAGES = ("numpy", "ml_dtypes", "cuda-python", "cuda-core", "torch", "jax", "cupy")


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _backend_lines(backend: str) -> list[str]:
    """Say where a backend's library is, and whether and on what it runs."""
    try:
        library = _library.load(backend)
    except pybaracuda.BackendUnavailableError as error:
        return [f"{backend}: not available: {error}"]
    lines = [f"{backend}: {library.path}", f"  library version {library.version}, ABI hash {_abi.ABI_HASH:#018x}"]
    if backend == "cpu":
        lines.append(f"  available: {library.cpu_isa} code, up to {library.cpu_threads} threads")
        text = os.environ.get("BARACUDA_NUM_THREADS", "")
        if text and text.lstrip("0") != str(library.cpu_threads):
            lines.append(
                f"  BARACUDA_NUM_THREADS is {text!r}, which is not what is used; wanted digits alone, 1 to 256"
            )
    elif problem := _library.backend_problem(backend):
        lines.append(f"  not available: {problem}")
    else:
        lines.append(f"  available: {_machine.device_name()}, {_machine.cuda_arch()}")
    return lines


def _jax_line() -> str:
    """Say which JAX programs can call the libraries, and through what; JAX is not imported."""
    try:
        path = _library.handler_path()
    except pybaracuda.BackendUnavailableError as error:
        return f"jax: not available: {error}"
    version = _version_of("jax")
    return f"jax: {path}\n  " + ("not available: JAX is not installed" if version == "not installed" else "available")


def _operator_table() -> list[str]:
    """List every operator with its dtypes and the libraries that hold it."""
    libraries: dict[str, _library.Library | None] = {}
    for backend in ("cpu", "cuda"):
        try:
            libraries[backend] = _library.load(backend)
        except pybaracuda.BackendUnavailableError:
            libraries[backend] = None
    rows = [("operator", "dtype", *libraries)]
    for operator in _abi.OPERATORS.values():
        for variant in operator.variants.values():
            marks = [
                "yes" if library is not None and library.has(operator, variant) else "-"
                for library in libraries.values()
            ]
            rows.append((operator.name, variant.token, *marks))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def info() -> int:
    """Print versions, libraries, devices and every operator."""
    try:
        version = pybaracuda.__version__
    except pybaracuda.BackendUnavailableError:
        version = "of unknown version (neither installed nor built)"
    print(f"pybaracuda {version}, Python {platform.python_version()}, {platform.platform()}")
    print(", ".join(f"{package} {_version_of(package)}" for package in _PACKAGES))
    print()
    for backend in ("cpu", "cuda"):
        print("\n".join(_backend_lines(backend)))
    print(_jax_line())
    print()
    print("\n".join(_operator_table()))
    print()
    print('Which of its paths an operator took in this thread\'s latest call: pybaracuda.last_path("cpu" or "cuda")')
    print("Whether all bits are the committed ones on this machine: python -m pybaracuda check [--quick]")
    return 0


def _cflags(_backend: str) -> str:
    return shlex.join([f"-I{pybaracuda.include_dir()}"])


def _libs(backend: str) -> str:
    path = pybaracuda.library_path(backend)
    folder = str(path.parent)
    # -Xlinker and not -Wl: nvcc knows it too, and no comma in the path cuts it.
    return shlex.join([f"-L{folder}", f"-l{path.stem.removeprefix('lib')}", "-Xlinker", "-rpath", "-Xlinker", folder])


def _cmake_dir(_backend: str) -> str:
    return str(pybaracuda.cmake_dir())


_CONFIG = {
    "--cflags": (_cflags, "where the header is"),
    "--libs": (_libs, "the library, where it is, and for the linked program where to find it when it starts"),
    "--cmake-dir": (_cmake_dir, "the folder of the CMake package, for baracuda_kernels_DIR"),
}


def config(arguments: Sequence[str]) -> int:
    """Print what a compiler or CMake needs to build a program with the C library of this installation."""
    parser = argparse.ArgumentParser(
        prog="python -m pybaracuda config",
        description="What a program needs to use the C library of this installation: a line for each option, as given.",
        epilog="Where a path has blanks the flags are quoted, and xargs reads them: "
        "python -m pybaracuda config --cflags --libs | xargs cc example.c -o example. "
        "The folder for CMake is printed as it is.",
    )
    for option, (line, text) in _CONFIG.items():
        parser.add_argument(option, dest="lines", action="append_const", const=line, help=text)
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu", help="the library to link (default: cpu)")
    options = parser.parse_args(arguments)
    if not options.lines:
        parser.error(f"wanted at least one of {', '.join(_CONFIG)}")
    try:
        lines = [line(options.backend) for line in options.lines]
    except (pybaracuda.BackendUnavailableError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and answer the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m pybaracuda", description="Gradient kernels, the same bits everywhere."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, libraries, devices, every operator by dtype and backend")
    # It parses its own options, --help too.
    commands.add_parser("config", help="flags for compilers, the linker and CMake", add_help=False)
    check = commands.add_parser("check", help="prove on this machine that the bits are the committed ones")
    check.add_argument("--quick", action="store_true", help="a sample of every operator and dtype, in a few seconds")
    check.add_argument("--backend", choices=("cpu", "cuda"), help="this one alone (default: all that are here)")
    options, rest = parser.parse_known_args(arguments)
    if options.command == "config":
        return config(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command == "check":
        return report.main(options.quick, options.backend)
    return info()


if __name__ == "__main__":
    sys.exit(run_to_reader(main))
