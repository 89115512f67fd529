# SPDX-License-Identifier: Apache-2.0
"""C, C++, CUDA and Rust programs built with what `python -m pybaracuda config` prints, as their authors would.

The package is the one under test, or the one that is installed for the interpreter BARACUDA_TEST_INTERPRETER: so an
installed wheel is tested with the tools of another environment.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pybaracuda
from tools import check_exports

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(pybaracuda.__file__).parent
NATIVE = ROOT / "tests" / "native"
INTERPRETER = os.environ.get("BARACUDA_TEST_INTERPRETER", "")
# A program that starts only because of where somebody else's variables point proves nothing.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "LIBRARY_PATH")}
NAMES = {"cpu": "baracuda_kernels_cpu", "cuda": "baracuda_kernels"}


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """What a command prints; the test fails with its output if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def ask(*options: str, package: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m pybaracuda config` for the package under test, or for the one in another folder."""
    variables = {} if INTERPRETER and package is None else {"PYTHONPATH": str(package or PACKAGE.parent)}
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [INTERPRETER or sys.executable, "-m", "pybaracuda", "config", *options],
        capture_output=True,
        text=True,
        cwd="/",  # not the source tree, which would come before what is installed
        env={**environment, **variables},
        timeout=60,
        check=False,
    )


def config(*options: str, package: Path | None = None) -> list[str]:
    """The lines that it prints."""
    done = ask(*options, package=package)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def words(*options: str, package: Path | None = None) -> list[str]:
    """The compiler's arguments that a shell makes of its lines."""
    return shlex.split(" ".join(config(*options, package=package)))


def compiler(*names: str) -> str:
    found = next((path for path in map(shutil.which, names) if path), None)
    assert found is not None, f"one of {names} is needed, as to build the library"
    return found


def installed_backends() -> list[str]:
    return [backend for backend in NAMES if ask("--libs", "--backend", backend).returncode == 0]


# ---- what it prints


def test_each_option_is_a_line_in_the_order_given() -> None:
    flags, libraries, folder = (config(option)[0] for option in ("--cflags", "--libs", "--cmake-dir"))
    assert config("--cflags", "--libs", "--cmake-dir") == [flags, libraries, folder]
    assert config("--cmake-dir", "--libs", "--cflags") == [folder, libraries, flags]
    assert config("--libs", "--backend", "cpu") == [libraries]
    (include,) = shlex.split(flags)
    assert (Path(include.removeprefix("-I")) / "baracuda_kernels.h").is_file()
    search, library, *rpath = shlex.split(libraries)
    assert library == "-lbaracuda_kernels_cpu"
    assert (Path(search.removeprefix("-L")) / "libbaracuda_kernels_cpu.so").is_file()
    assert rpath == ["-Xlinker", "-rpath", "-Xlinker", search.removeprefix("-L")]
    assert (Path(folder) / "baracuda_kernelsConfig.cmake").is_file()
    if INTERPRETER:
        assert str(ROOT) not in flags + libraries + folder, "this is the source package, not the installed one"


def test_the_other_backend_or_why_not() -> None:
    done = ask("--libs", "--backend", "cuda")
    if "cuda" in installed_backends():
        assert shlex.split(done.stdout)[1] == "-lbaracuda_kernels"
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert "error: the cuda library is not installed" in done.stderr
        assert "BARACUDA_CUDA=ON" in done.stderr


@pytest.mark.parametrize("options", [[], ["--backend", "cpu"], ["--libs", "--backend", "rocm"], ["--prefix"]], ids=str)
def test_a_wrong_option_says_how_to_call_it(options: list[str]) -> None:
    done = ask(*options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: python -m pybaracuda config" in done.stderr


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    # Links to the modules alone: neither lib nor include beside them.
    package = tmp_path / "pybaracuda"
    for path in PACKAGE.rglob("*.py"):
        link = package / path.relative_to(PACKAGE)
        link.parent.mkdir(exist_ok=True, parents=True)
        link.symlink_to(path)
    for option, missing in (
        ("--cflags", "include/baracuda_kernels.h"),
        ("--libs", "lib/libbaracuda_kernels_cpu.so"),
        ("--cmake-dir", "lib/cmake/baracuda_kernels/baracuda_kernelsConfig.cmake"),
    ):
        done = ask(option, package=tmp_path)
        assert (done.returncode, done.stdout) == (1, ""), option
        (sentence,) = done.stderr.splitlines()
        assert sentence.startswith("error: ")
        assert str(package / missing) in sentence
    # Nothing is printed of what is there when something else is not: a shell would use the half.
    (package / "include").symlink_to(PACKAGE / "include")
    done = ask("--cflags", "--libs", package=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")


def test_each_library_is_found_by_its_own_name() -> None:
    # A wheel holds no links: what a linked program asks for has to be the file's name.
    for backend in installed_backends():
        path = Path(words("--libs", "--backend", backend)[0].removeprefix("-L")) / f"lib{NAMES[backend]}.so"
        table = run(compiler("readelf"), "-d", "-W", path, folder=Path("/"))
        assert check_exports.soname(table) == path.name
        assert not path.is_symlink()


# ---- what programs make of it


def test_the_readmes_two_lines(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- tests/native/example.c -->\n```c\n(.*?)```\n\n((?: {4}\S[^\n]*\n)+)", readme, re.DOTALL)
    assert shown is not None, "the README shows no commands after its C program"
    source, lines = shown.groups()
    (tmp_path / "example.c").write_text(source)
    # `python` is the interpreter that has the package, which a link gives a path without blanks, as most have.
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(INTERPRETER or sys.executable)} "$@"\n')
    python.chmod(0o755)
    variables = {"PATH": f"{python.parent}:{ENVIRONMENT['PATH']}"}
    if not INTERPRETER:
        (tmp_path / "pybaracuda").symlink_to(PACKAGE)
        variables["PYTHONPATH"] = str(tmp_path)
    assert len(lines.splitlines()) == 2
    assert run("sh", "-e", "-c", lines, folder=tmp_path, **variables) == "0 10 20\n"


@pytest.mark.parametrize("suffix", ["c", "cc"])
@pytest.mark.parametrize("first", ["source", "flags"])
def test_a_program_starts_from_any_folder(suffix: str, first: str, tmp_path: Path) -> None:
    source = tmp_path / f"example.{suffix}"
    shutil.copy(NATIVE / "example.c", source)
    program = compiler("cc", "gcc") if suffix == "c" else compiler("c++", "g++")
    # As many build systems do, compiled first; then the library before or after the object that asks for it.
    run(program, "-Wall", "-Wextra", "-Werror", *words("--cflags"), "-c", source, "-o", "example.o", folder=tmp_path)
    flags = words("--libs")
    order = ["example.o", *flags] if first == "source" else ["-Wl,--no-as-needed", *flags, "example.o"]
    run(program, *order, "-o", "program", folder=tmp_path)
    assert run(tmp_path / "program", folder=Path("/")) == "0 10 20\n"


def test_every_symbol_of_each_library_links(tmp_path: Path) -> None:
    for backend in installed_backends():
        flags = words("--cflags", "--libs", "--backend", backend)
        run(compiler("cc", "gcc"), NATIVE / "every_symbol.c", *flags, "-o", backend, folder=tmp_path)
        assert "functions linked" in run(tmp_path / backend, folder=Path("/"))
        needed = check_exports.needed_libraries(run(compiler("readelf"), "-d", "-W", backend, folder=tmp_path))
        assert f"lib{NAMES[backend]}.so" in needed


@pytest.mark.parametrize("variable", ["baracuda_kernels_DIR", "baracuda_kernels_ROOT", "CMAKE_PREFIX_PATH"])
def test_a_cmake_project(variable: str, tmp_path: Path) -> None:
    found = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}")
    assert found is not None, "CMake is needed, as to build the library"
    (folder,) = config("--cmake-dir")
    with_cuda = "ON" if "cuda" in installed_backends() else "OFF"
    options = [f"-D{variable}={folder}", f"-DWITH_CUDA={with_cuda}", "-DCMAKE_BUILD_TYPE=Debug"]
    run(found, "-S", NATIVE / "consumer", "-B", "build", *options, folder=tmp_path)
    run(found, "--build", "build", folder=tmp_path)
    assert run(tmp_path / "build" / "consumer", folder=Path("/")) == "0 10 20\n"


def test_a_rust_program(tmp_path: Path) -> None:
    home = Path(ENVIRONMENT.get("HOME", "/"))
    rustc = shutil.which("rustc", path=f"{ENVIRONMENT['PATH']}:{home / '.cargo' / 'bin'}")
    # A toolchain manager's stub without a toolchain is no rustc either.
    if rustc is None or subprocess.run([rustc, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no rustc")
    flags = [f"-Clink-arg={word}" for word in words("--libs")]
    run(rustc, "--edition=2021", "-Dwarnings", NATIVE / "consumer.rs", *flags, "-o", "program", folder=tmp_path)
    assert run(tmp_path / "program", folder=Path("/")) == "ok\n"


def test_a_folder_with_a_hard_name(tmp_path: Path) -> None:
    # Blanks, a comma (which cuts what follows -Wl) and quotes, read by xargs as the command's help says.
    folder = tmp_path / "my program's  files, \u00e9 & more"
    folder.mkdir()
    (folder / "pybaracuda").symlink_to(Path(words("--libs")[0].removeprefix("-L")).parent)
    printed = "\n".join(config("--cflags", "--libs", package=folder))
    assert shlex.split(printed)[-1] == str(folder / "pybaracuda" / "lib")
    (tmp_path / "flags.txt").write_text(printed)
    line = f'xargs {compiler("cc", "gcc")} "$1" -o example <flags.txt'
    run("sh", "-c", line, "sh", NATIVE / "example.c", folder=tmp_path)
    assert run(tmp_path / "example", folder=Path("/")) == "0 10 20\n"
    (cmake,) = config("--cmake-dir", package=folder)
    assert cmake == str(folder / "pybaracuda" / "lib" / "cmake" / "baracuda_kernels")
