# SPDX-License-Identifier: Apache-2.0
"""Library files that are damaged or in the wrong place, each opened in a process of its own: a sentence, no crash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pybaracuda
from pybaracuda import _library

PACKAGE = Path(pybaracuda.__file__).parent
NAMES = {"cpu": "libbaracuda_kernels_cpu.so", "cuda": "libbaracuda_kernels.so"}

# Asks every way to a library for the one that lies in the folder given, and prints what each refuses it with.
OPEN = """
import sys
import pybaracuda
backend, folder = sys.argv[1:]
pybaracuda.__path__ = [folder, *pybaracuda.__path__]
assert str(pybaracuda.library_path(backend)).startswith(folder)
for function in (pybaracuda.raw, pybaracuda._library.load):
    try:
        function(backend)
    except pybaracuda.BackendUnavailableError as error:
        print(error)
    else:
        print("opened")
print(pybaracuda.backend_problem(backend))
"""


def answers(folder: Path, backend: str = "cpu") -> list[str]:
    """What a fresh process says of the library below a folder: raw's error, load's and backend_problem's."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", OPEN, backend, str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"the process ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def library_file(folder: Path, backend: str = "cpu") -> Path:
    """Where a package in this folder has its library; the file is the test's to make."""
    path = folder / "lib" / NAMES[backend]
    path.parent.mkdir()
    return path


SIZE = pybaracuda.library_path("cpu").stat().st_size


@pytest.mark.parametrize(
    "size",
    [0, 10, 63, 64, 200, 4096, SIZE // 8, SIZE // 2, SIZE - 4096, SIZE - 1],
    ids=lambda size: f"{size}-bytes" if size < SIZE // 8 else f"without-{SIZE - size}-bytes",
)
def test_a_truncated_library_is_named(size: int, tmp_path: Path) -> None:
    path = library_file(tmp_path)
    with pybaracuda.library_path("cpu").open("rb") as whole:
        path.write_bytes(whole.read(size))
    for sentence in answers(tmp_path):
        assert sentence.startswith(f"the cpu library does not load: {path} is truncated"), sentence
        assert f"{size} bytes" in sentence
        assert "install the package again" in sentence


def test_a_whole_library_opens_from_another_place(tmp_path: Path) -> None:
    shutil.copy(pybaracuda.library_path("cpu"), library_file(tmp_path))
    assert answers(tmp_path) == ["opened", "opened", "None"]


@pytest.mark.parametrize("tool", [["strip"], ["strip", "--strip-unneeded"], ["objcopy", "--strip-debug"]], ids=" ".join)
def test_a_stripped_library_is_whole(tool: list[str], tmp_path: Path) -> None:
    path = library_file(tmp_path)
    shutil.copy(pybaracuda.library_path("cpu"), path)
    subprocess.run([*tool, str(path)], check=True)
    assert path.stat().st_size < SIZE
    assert answers(tmp_path) == ["opened", "opened", "None"]


@pytest.mark.parametrize("content", ["text", "zeros", "folder", "fifo"])
def test_what_is_no_library_is_named(content: str, tmp_path: Path) -> None:
    path = library_file(tmp_path)
    if content == "text":
        path.write_text("This is no library.\n" * 1000)
    elif content == "zeros":
        path.write_bytes(bytes(100_000))
    elif content == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)  # opening it would wait for a writer
    kind = "is no ELF file" if content in ("text", "zeros") else "is no regular file"
    for sentence in answers(tmp_path):
        assert sentence == f"the cpu library does not load: {path} {kind}; install the package again"


def test_a_library_of_another_machine_is_refused(tmp_path: Path) -> None:
    path = library_file(tmp_path)
    content = bytearray(pybaracuda.library_path("cpu").read_bytes())
    content[18] ^= 1  # the machine that it was made for
    path.write_bytes(content)
    for sentence in answers(tmp_path):
        assert sentence.startswith("the cpu library does not load: ")


def test_the_cpu_library_under_the_name_of_the_cuda_library_is_refused(tmp_path: Path) -> None:
    path = library_file(tmp_path, "cuda")
    shutil.copy(pybaracuda.library_path("cpu"), path)
    for sentence in answers(tmp_path, "cuda"):
        assert sentence == (
            f"{path} holds the cpu library, and the cuda library belongs there: install the package again"
        )


def test_the_cuda_library_under_the_name_of_the_cpu_library_is_refused(tmp_path: Path) -> None:
    path = library_file(tmp_path)
    problem = pybaracuda.backend_problem("cuda") or ""
    if "library is not installed" in problem:
        # One that answers as it does; only its four library-wide functions are asked.
        compiler = next(found for found in map(shutil.which, ("cc", "gcc", "c++", "g++")) if found)
        (tmp_path / "stub.c").write_text(
            "#include <stdint.h>\n"
            'const char* baracuda_kernels_last_error(void) { return ""; }\n'
            'const char* baracuda_kernels_version(void) { return "0.0.0"; }\n'
            'const char* baracuda_kernels_backend_name(void) { return "cuda"; }\n'
            f"uint64_t baracuda_kernels_abi_hash(void) {{ return UINT64_C({_library._abi.ABI_HASH}); }}\n"
        )
        subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", tmp_path / "stub.c", "-o", path], check=True)
    else:
        shutil.copy(pybaracuda.library_path("cuda"), path)
    for sentence in answers(tmp_path):
        assert sentence == (
            f"{path} holds the cuda library, and the cpu library belongs there: install the package again"
        )
