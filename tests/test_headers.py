# SPDX-License-Identifier: Apache-2.0
"""Every native header includes what it needs, so that files may include headers in any order.

Each is compiled alone, to the end of its syntax: headers of the host with the C++ compiler, those of CUDA with nvcc's
front end, as it reads device code, where there is an nvcc. Templates are parsed but not instantiated.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"
INCLUDES = [f"-I{ROOT / 'include'}", f"-I{NATIVE}"]
HOST = sorted(path.relative_to(NATIVE).as_posix() for path in NATIVE.rglob("*.h"))
DEVICE = sorted(path.relative_to(NATIVE).as_posix() for path in NATIVE.rglob("*.cuh"))


def errors_of(command: list[str], header: str, source: Path) -> str:
    """What the compiler says of a file that includes nothing but the header."""
    source.write_text(f'#include "{header}"\n')
    found = subprocess.run([*command, *INCLUDES, str(source)], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else f"{header}: {found.stderr.strip()[:2000]}"


def all_errors(command: list[str], headers: list[str], folder: Path, suffix: str) -> list[str]:
    sources = [folder / f"{number}{suffix}" for number in range(len(headers))]
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:
        found = threads.map(lambda each: errors_of(command, *each), zip(headers, sources, strict=True))
        return [said for said in found if said]


def host_command() -> list[str]:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler, with which the library was built"
    # The headers of CPU kernels are compiled once per instruction set, each time into a namespace of its own.
    return [*compiler.split(), "-std=c++17", "-fsyntax-only", "-DBARACUDA_CPU_ISA_NAMESPACE=portable"]


def test_every_header_of_the_host_compiles_alone(tmp_path: Path) -> None:
    assert len(HOST) > 50
    assert all_errors(host_command(), HOST, tmp_path, ".cc") == []


def test_every_header_of_cuda_compiles_alone(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no CUDA")
    assert len(DEVICE) > 50
    options = ["-std=c++17", "-arch=sm_90", "--expt-relaxed-constexpr", "-ptx", "-fdevice-syntax-only"]
    assert all_errors([nvcc, *options, "-o", os.devnull], DEVICE, tmp_path, ".cu") == []


def test_a_header_that_lacks_an_include_is_found(tmp_path: Path) -> None:
    (tmp_path / "lacking.h").write_text("#pragma once\ninline int32_t three() { return 3; }\n")
    command = [*host_command(), f"-I{tmp_path}"]
    found = all_errors(command, ["lacking.h", "core/status.h"], tmp_path, ".cc")
    assert len(found) == 1
    assert found[0].startswith("lacking.h: ")
    assert "int32_t" in found[0]
