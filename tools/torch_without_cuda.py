# SPDX-License-Identifier: Apache-2.0
"""Installs an older PyTorch of PyPI for tests on the CPU, without NVIDIA's packages.

PyPI's builds for Linux want three gigabytes of CUDA libraries when they are imported, although nothing on a machine
without a GPU calls them. Here libraries of the same names stand for them: each function that PyTorch asks for answers
that there is no device.
"""

import argparse
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

# What torch's metadata asks for beside NVIDIA's packages, and triton, which only a GPU needs.
_DEPENDENCIES = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing_extensions")
_NVIDIAS = re.compile(r"lib(cu|nccl|nv)")
_THEIR_FUNCTIONS = re.compile(r"(cu|nccl|nvshmem)")
# cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE.
_NO_DEVICE = 100


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def missing_libraries(folder: Path) -> dict[str, dict[str, set[str]]]:
    """NVIDIA's libraries that those of a folder need: their functions by version, "" for those without one."""
    present = {path.name for path in folder.glob("*.so*")}
    needed: set[str] = set()
    versions: dict[str, set[str]] = defaultdict(set)
    functions: dict[str, set[str]] = defaultdict(set)
    defined: set[str] = set()
    for name in present:
        _, _, references = (text := output("objdump", "-p", str(folder / name))).partition("Version References:")
        needed.update(re.findall(r"NEEDED\s+(\S+)", text))
        for library, found in re.findall(r"required from (\S+):\n((?:\s+0x.*\n)+)", references):
            versions[library].update(line.split()[-1] for line in found.splitlines())
        for line in output("nm", "-D", str(folder / name)).splitlines():
            kind, symbol = line.split()[-2:]
            function, _, version = symbol.partition("@")
            if kind not in "Uw":
                defined.add(function)
            elif version or _THEIR_FUNCTIONS.match(function):
                functions[version].add(function)
    functions[""] -= defined
    missing = sorted(name for name in needed - present if _NVIDIAS.match(name))
    made = {name: {version: functions[version] for version in versions[name]} for name in missing}
    # A function without a version is found in whichever library has it.
    made[missing[0]][""] = functions[""]
    return made


def make_library(path: Path, functions: dict[str, set[str]]) -> None:
    """Make a library whose functions, by version, answer that there is no device."""
    names = {name for each in functions.values() for name in each}
    source = "".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in sorted(names))
    versioned = {version: "; ".join(sorted(names)) for version, names in functions.items() if version and names}
    nodes = [f"{version} {{ {names}; }};\n" for version, names in versioned.items()]
    with tempfile.NamedTemporaryFile("w", suffix=".map") as script:
        script.write("".join(nodes))
        script.flush()
        options = [f"-Wl,--version-script={script.name}"] if nodes else []
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-w",
            f"-Wl,-soname,{path.name}",
            *options,
            "-x",
            "c",
            "-",
            "-o",
            str(path),
        ]
        subprocess.run(command, input=source, text=True, check=True)


def install(arguments: Iterable[str]) -> None:
    """Install packages into the running interpreter's environment, without a cache of wheels this large."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-cache-dir"]
    subprocess.run([*command, *arguments], check=True)


def main() -> None:
    """Install a version of torch, and other packages, into the environment that runs this."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("packages", nargs="*")
    options = parser.parse_args()
    if sys.prefix == sys.base_prefix:
        parser.error("this belongs into a virtual environment of its own")
    install([*_DEPENDENCIES, *options.packages])
    install(["--no-deps", f"torch=={options.version}"])
    folder = Path(sysconfig.get_path("purelib")) / "torch" / "lib"
    for name, functions in missing_libraries(folder).items():
        make_library(folder / name, functions)


if __name__ == "__main__":
    main()
