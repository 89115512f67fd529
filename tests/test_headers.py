# SPDX-License-Identifier: Apache-2.0
"""Every native header includes what it needs, so that files may include headers in any order.

Each is compiled alone, to the end of its syntax: headers of the host with the C++ compiler, those of CUDA with nvcc's
front end, as it reads device code, where there is an nvcc. Templates are parsed but not instantiated.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"
INCLUDES = [f"-I{ROOT / 'include'}", f"-I{NATIVE}"]
HOST = sorted(path.relative_to(NATIVE).as_posix() for path in NATIVE.rglob("*.h"))
DEVICE = sorted(path.relative_to(NATIVE).as_posix() for path in NATIVE.rglob("*.cuh"))


def error_of(command: list[str], header: str, source: Path) -> str:
    """What the compiler says of a file that includes nothing but the header; nothing if it takes it."""
    source.write_text(f'#include "{header}"\n')
    found = subprocess.run([*command, *INCLUDES, str(source)], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else found.stderr.strip()[:2000] or f"exit code {found.returncode}"


def host_command() -> list[str]:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler, with which the library was built"
    # The headers of CPU kernels are compiled once per instruction set, each time into a namespace of its own.
    return [*compiler.split(), "-std=c++17", "-fsyntax-only", "-DBARACUDA_CPU_ISA_NAMESPACE=portable"]


def test_there_are_headers() -> None:
    assert min(len(HOST), len(DEVICE)) > 50


@pytest.mark.parametrize("header", HOST)
def test_a_header_of_the_host_compiles_alone(header: str, tmp_path: Path) -> None:
    assert error_of(host_command(), header, tmp_path / "alone.cc") == ""


@pytest.mark.parametrize("header", DEVICE)
def test_a_header_of_cuda_compiles_alone(header: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no CUDA")
    options = ["-std=c++17", "-arch=sm_90", "--expt-relaxed-constexpr", "-ptx", "-fdevice-syntax-only"]
    assert error_of([nvcc, *options, "-o", os.devnull], header, tmp_path / "alone.cu") == ""


def test_a_header_that_lacks_an_include_is_found(tmp_path: Path) -> None:
    (tmp_path / "lacking.h").write_text("#pragma once\ninline int32_t three() { return 3; }\n")
    command = [*host_command(), f"-I{tmp_path}"]
    assert "int32_t" in error_of(command, "lacking.h", tmp_path / "alone.cc")
    assert error_of(command, "core/status.h", tmp_path / "alone.cc") == ""
