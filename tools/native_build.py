# SPDX-License-Identifier: Apache-2.0
"""The native build: compilers, CMake's configuration, the build, and its installation into the source package."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools.commands import ROOT, SetupError, build_root, job_count, log_path, run_logged, say, shown
from tools.cuda_choice import Cuda
from tools.private_environment import Environment

# Variables that CMake reads when it configures: a change in one of them means configuring again.
_CONFIGURE_VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDACXX", "CUDAFLAGS", "CUDAHOSTCXX")


class CompilerError(SetupError):
    """This machine has no compiler that can build the native library."""


def native_folder(name: str = "native") -> Path:
    """The folder of a native build below the build folder; an absolute path stands for itself."""
    return build_root() / name


def check_compiler() -> None:
    """Raise CompilerError unless a C and a C++17 compiler work."""
    advice = "(on Debian and Ubuntu: apt install g++; on Fedora: dnf install gcc-c++), or name one in CXX."
    chosen = os.environ.get("CXX")
    names = [shlex.split(chosen)] if chosen else [["c++"], ["g++"], ["clang++"]]
    usable = [name for name in names if shutil.which(name[0])]
    if not usable:
        raise CompilerError(f"No C++ compiler found: install one with C++17 {advice}")
    program = (
        "#include <optional>\n#include <string>\nint main() { return std::optional<std::string>().has_value(); }\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [*usable[0], "-std=c++17", "-x", "c++", "-", "-o", str(Path(folder) / "probe")]
        result = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reason = next((line for line in result.stderr.splitlines() if "error" in line), "it does not run")
        raise CompilerError(f"{usable[0][0]} cannot build a C++17 program ({reason.strip()}): install g++ {advice}")
    if not os.environ.get("CC") and not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        raise CompilerError(
            "No C compiler found: install gcc (on Debian and Ubuntu: apt install gcc), or name one in CC."
        )


def _configure_arguments(environment: Environment, folder: Path, cuda: Cuda, definitions: Sequence[str]) -> list[str]:
    # From the environment, as what is built of CUDA is: README's commands have no options for checks.
    avx512 = os.environ.get("BARACUDA_AVX512", "ON")
    return [
        environment.program("cmake"),
        *("-S", str(ROOT), "-B", str(folder), "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={environment.program('ninja')}",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DBARACUDA_AVX512={avx512}",
        *cuda.definitions,
        *definitions,
    ]


def configuration_record(folder: Path) -> Path:
    """The file in a native build that says how it was configured; without it the next set-up configures again."""
    return folder / "pybaracuda-configure.json"


def configure(environment: Environment, folder: Path, cuda: Cuda, definitions: Sequence[str] = ()) -> None:
    """Configure the native build in `folder`; nothing happens when it was configured in the same way before.

    Ninja itself runs CMake again when a CMake file changed.
    """
    arguments = _configure_arguments(environment, folder, cuda, definitions)
    record = configuration_record(folder)
    variables = {name: os.environ[name] for name in _CONFIGURE_VARIABLES if name in os.environ}
    text = json.dumps({"arguments": arguments, "variables": variables}, indent=1) + "\n"
    if record.is_file() and record.read_text(encoding="utf-8") == text and (folder / "build.ninja").is_file():
        return
    check_compiler()
    say(f"configuring {shown(folder)}")
    # A cache made by other arguments would keep their answers. Objects stay: Ninja compares the commands.
    (folder / "CMakeCache.txt").unlink(missing_ok=True)
    shutil.rmtree(folder / "CMakeFiles" / "CMakeScratch", ignore_errors=True)
    for stale in folder.glob("CMakeFiles/[0-9]*"):
        shutil.rmtree(stale, ignore_errors=True)
    record.unlink(missing_ok=True)
    run_logged(
        arguments, log_path(f"configure-{folder.name}"), "CMake could not configure the build", environment.environ()
    )
    record.write_text(text, encoding="utf-8")


# Ninja's line for a step that ended, such as "[3/47] Building CXX object CMakeFiles/kernels.dir/native/x.cc.o".
_NINJA_LINE = re.compile(r"\[(\d+)/(\d+)\] (.*)")
_NINJA_OBJECT = re.compile(r"Building \w+ object (?:\S*/)?CMakeFiles/([^/]+)\.dir/(\S+?)\.o")


def described(line: str) -> str:
    """What a line of Ninja's says to somebody who waits: how many steps of how many, and which ended last."""
    found = _NINJA_LINE.match(line)
    if found is None:
        return ""
    done, total, what = found.groups()
    compiled = _NINJA_OBJECT.fullmatch(what)
    if compiled:
        what = f"compiled {compiled.group(2)} for {compiled.group(1)}"
    return f"{done} of {total}: {what}"


def build(environment: Environment, folder: Path, targets: Sequence[str] = ()) -> None:
    """Build the configured folder; incremental, and silent when nothing was to be done."""
    command = [environment.program("cmake"), "--build", str(folder), "--parallel", str(job_count())]
    if targets:
        command += ["--target", *targets]
    log = log_path(f"build-{folder.name}")
    start = time.monotonic()
    run_logged(command, log, "The native build failed", environment.environ(), describe=described)
    if "no work to do" not in log.read_text(encoding="utf-8", errors="replace"):
        say(f"built {shown(folder)} in {time.monotonic() - start:.0f} s")


def install_component(environment: Environment, folder: Path, prefix: Path) -> None:
    """Put the package's libraries, header and CMake package below `prefix`, as the wheel has them."""
    run_logged(
        [environment.program("cmake"), "--install", str(folder), "--component", "pybaracuda", "--prefix", str(prefix)],
        log_path(f"install-{folder.name}"),
        "Installing the native libraries into the package failed",
        environment.environ(),
    )
    # What this build does not make must not stay behind from an earlier one: CMake's package names every build type's.
    manifest = folder / "install_manifest_pybaracuda.txt"
    fresh = {Path(line).resolve() for line in manifest.read_text(encoding="utf-8").splitlines()}
    for path in (prefix / "pybaracuda" / "lib").rglob("*baracuda_*"):
        if not path.is_dir() and path.resolve() not in fresh:
            path.unlink()


def link_source_package(environment: Environment) -> None:
    """Make `import pybaracuda` in the private environment mean this source tree."""
    link = environment.site_packages / "pybaracuda-source.pth"
    text = f"{ROOT}\n"
    if not link.is_file() or link.read_text(encoding="utf-8") != text:
        link.write_text(text, encoding="utf-8")
