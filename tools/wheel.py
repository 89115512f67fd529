# SPDX-License-Identifier: Apache-2.0
"""Builds the one wheel for every Python 3 with both libraries in it, repairs its tag, and checks what came out."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tools import check_exports, commands, cuda_choice, environment, native_build, private_environment

# glibc 2.34 is the newest that the wheel may ask for; every distribution that a CUDA 13 driver supports has it.
NEWEST_GLIBC = (2, 34)

# What the package holds beside its own modules: a wheel is the library and the proof of its bits, not what verifies and
# measures it in the project.
PACKAGE_FOLDERS = ("_arrays", "_check", "include", "jax", "lib", "segment", "torch")

# Every library with the header that says what it exports. Those of the frameworks the package alone uses: their headers
# are not installed.
_KERNELS_HEADER = "include/baracuda_kernels.h"
LIBRARIES = {
    "libbaracuda_kernels.so": _KERNELS_HEADER,
    "libbaracuda_kernels_cpu.so": _KERNELS_HEADER,
    "libbaracuda_torch.so": "native/pytorch/bridge.h",
    "libbaracuda_xla.so": "native/xla/handler.h",
}

# What find_package(baracuda_kernels) reads. The last one's name is that of the build type.
CMAKE_FILES = ("Config", "ConfigVersion", "_targets", "_targets-release")


def release_architectures() -> str:
    """The release preset's CUDA architectures, which thus stand in one place."""
    presets = json.loads((commands.ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
    release = next(preset for preset in presets["configurePresets"] if preset["name"] == "release")
    return str(release["cacheVariables"]["CMAKE_CUDA_ARCHITECTURES"])


def recorded_definitions(folder: Path) -> dict[str, str]:
    """The CMake definitions that tools/environment.py gave a native build, so that reusing it changes nothing."""
    record = native_build.configuration_record(folder)
    if not record.is_file():
        raise commands.SetupError(f"{folder} is no build of tools/environment.py: there is nothing to reuse.")
    arguments = json.loads(record.read_text(encoding="utf-8"))["arguments"]
    pairs = (argument[2:].split("=", 1) for argument in arguments if argument.startswith("-D") and "=" in argument)
    return {"BARACUDA_TESTS": "ON", **{name.split(":")[0]: value for name, value in pairs}}


def build(private: private_environment.Environment, folder: Path, definitions: dict[str, str], output: Path) -> Path:
    """Build the wheel with scikit-build-core in `folder`; its tag still names this machine's Linux."""
    command = [private.python, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-w", str(output)]
    command += ["--config-settings=build-dir=" + str(folder)]
    for name, value in definitions.items():
        command += [f"--config-settings=cmake.define.{name}={value}"]
    environ = private.environ()
    # One switch for CMake and pip: the overrides in pyproject.toml must not see another value than CMake.
    environ["BARACUDA_CUDA"] = definitions["BARACUDA_CUDA"]
    environ["CMAKE_BUILD_PARALLEL_LEVEL"] = str(commands.job_count())
    commands.run_logged(command, commands.log_path("wheel"), "The wheel could not be built", environ)
    return next(output.glob("pybaracuda-*.whl"))


def repair(private: private_environment.Environment, wheel: Path, output: Path) -> Path:
    """Give the wheel the manylinux tag that its libraries allow."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        commands.run_logged(
            [private.python, "-m", "auditwheel", "repair", str(wheel), "-w", folder],
            commands.log_path("auditwheel"),
            "auditwheel could not repair the wheel",
            private.environ(),
        )
        repaired = next(Path(folder).glob("*.whl"))
        for older in output.glob("pybaracuda-*.whl"):
            older.unlink()
        return Path(shutil.move(repaired, output / repaired.name))


def tag_faults(name: str) -> list[str]:
    """What is wrong with a wheel's file name, a sentence each."""
    parts = name.removesuffix(".whl").split("-")
    if parts[-3:-1] != ["py3", "none"]:
        return [f"the tag is {'-'.join(parts[-3:])}, not py3-none-manylinux"]
    levels = re.findall(r"manylinux_(\d+)_(\d+)_x86_64", parts[-1])
    if not levels:
        return [f"the platform {parts[-1]} is not manylinux for x86_64"]
    if min((int(major), int(minor)) for major, minor in levels) > NEWEST_GLIBC:
        return [f"the platform {parts[-1]} needs a newer glibc than {NEWEST_GLIBC[0]}.{NEWEST_GLIBC[1]}"]
    return []


def content_faults(wheel: Path) -> list[str]:
    """What is wrong with a wheel's files, a sentence each: libraries, header, metadata, things that do not belong."""
    faults = []
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        libraries = [name for name in names if ".so" in Path(name).name]
        wanted = [f"pybaracuda/lib/{name}" for name in LIBRARIES]
        faults += [f"{name} is missing" for name in wanted if name not in libraries]
        faults += [f"{name} is one library too many" for name in libraries if name not in wanted]
        header = f"pybaracuda/{_KERNELS_HEADER}"
        package = [f"pybaracuda/lib/cmake/baracuda_kernels/baracuda_kernels{end}.cmake" for end in CMAKE_FILES]
        modules = ("pybaracuda/py.typed", "pybaracuda/__init__.py", "pybaracuda/_check/bits.txt")
        for name in (header, *package, *modules):
            if names.count(name) != 1:
                faults.append(f"{name} is in it {names.count(name)} times")
        for name in names:
            top = name.split("/")[0]
            if top != "pybaracuda" and not top.endswith((".dist-info", ".libs")):
                faults.append(f"{name} does not belong in it")
            folders = name.split("/")[1:-1]
            if top == "pybaracuda" and folders and folders[0] not in PACKAGE_FOLDERS:
                faults.append(f"{name} does not belong in it")
            if "__pycache__" in name or top.endswith(".libs"):
                faults.append(f"{name} does not belong in it")
        if faults:
            return faults
        for name in libraries:
            of_library = LIBRARIES[Path(name).name]
            is_installed = of_library == _KERNELS_HEADER
            text = archive.read(header).decode() if is_installed else (commands.ROOT / of_library).read_text()
            declared = check_exports.header_functions(text)
            path = archive.extract(name, folder)
            exported = check_exports.exported_symbols(_output("nm", "-D", "--defined-only", path))
            dynamic = _output("readelf", "-d", "-W", path)
            needed = check_exports.needed_libraries(dynamic)
            found = check_exports.differences(declared, exported, needed)
            found += check_exports.name_faults(Path(name).name, dynamic)
            faults += [f"{name}: {fault}" for fault in found]
    return faults


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(arguments: list[str]) -> int:
    """Build, repair and check; the wheel ends up in dist/."""
    parser = argparse.ArgumentParser(description="Build the wheel into dist/.")
    parser.add_argument("--cuda-architectures", metavar="LIST", help="for CMake, as 80-real;90 (default: release's)")
    parser.add_argument("--build-dir", metavar="DIR", help="native build folder to reuse with its own settings")
    parser.add_argument("--reuse", action="store_true", help="reuse the native build that the other tools made")
    parser.add_argument("--output", type=Path, default=commands.ROOT / "dist", help="folder for the wheel")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    with environment.exclusive():
        private = private_environment.create_environment()
        private_environment.install_sets(private, [*private_environment.BASE_SETS, "wheel"])
        if options.reuse or options.build_dir:
            folder = native_build.native_folder(options.build_dir or "native")
            definitions = recorded_definitions(folder)
            if options.cuda_architectures:
                definitions["CMAKE_CUDA_ARCHITECTURES"] = options.cuda_architectures
            if definitions["BARACUDA_CUDA"] != "ON":
                raise commands.SetupError(
                    f"{folder} has no CUDA library, and the wheel holds both: build it with BARACUDA_CUDA=ON."
                )
            # The wheel's build writes its own entries into CMake's cache: the next set-up has to configure again.
            native_build.configuration_record(folder).unlink()
        else:
            folder = native_build.native_folder("wheel")
            cuda = cuda_choice.choose_cuda(private, "ON", options.cuda_architectures or release_architectures())
            commands.say(cuda.summary)
            definitions = dict(entry.removeprefix("-D").split("=", 1) for entry in cuda.definitions)
        with tempfile.TemporaryDirectory() as scratch:
            wheel = repair(private, build(private, folder, definitions, Path(scratch)), options.output)
    faults = tag_faults(wheel.name) + content_faults(wheel)
    for fault in faults:
        print(f"{wheel.name}: {fault}", file=sys.stderr)
    commands.say(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB, {time.monotonic() - start:.0f} s)")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(commands.guarded(main))
