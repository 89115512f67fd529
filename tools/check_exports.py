# SPDX-License-Identifier: Apache-2.0
"""Checks that a built library exports just the header's functions, needs only system libraries, bears its file's name.

python3 tools/check_exports.py include/baracuda_kernels.h LIBRARY...
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

# What any glibc system with a C++ runtime has; librt, libpthread and libdl are separate files on an old glibc.
ALLOWED_NEEDED = re.compile(
    r"lib(c|m|rt|dl|pthread)\.so\.\d+|libstdc\+\+\.so\.6|libgcc_s\.so\.1|ld-linux[\w-]*\.so\.\d+"
)

_FUNCTION = re.compile(r"\b(baracuda_(?:kernels|torch|xla)_\w+)\s*\(")


def header_functions(text: str) -> set[str]:
    """The names of the functions that a C header declares."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", " ", text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", " ", text, flags=re.MULTILINE)
    return set(_FUNCTION.findall(text))


def exported_symbols(nm_output: str) -> set[str]:
    """The names in the output of `nm -D --defined-only`, without versions and without version nodes."""
    names: set[str] = set()
    for line in nm_output.splitlines():
        fields = line.split()
        if len(fields) >= 3 and fields[-2] != "A":  # a version node is the one absolute symbol that a linker makes
            names.add(fields[-1].split("@")[0])
    return names


def needed_libraries(readelf_output: str) -> list[str]:
    """The NEEDED entries in the output of `readelf -d`."""
    return re.findall(r"\(NEEDED\)[^\[]*\[([^\]]+)\]", readelf_output)


def soname(readelf_output: str) -> str | None:
    """The SONAME in the output of `readelf -d`."""
    found = re.search(r"\(SONAME\)[^\[]*\[([^\]]+)\]", readelf_output)
    return found[1] if found else None


def name_faults(file_name: str, readelf_output: str) -> list[str]:
    """What is wrong with a library's SONAME, which programs linked with it ask for: only the file is installed."""
    found = soname(readelf_output)
    return [] if found == file_name else [f"its SONAME is {found}, and a linked program finds only {file_name}"]


def differences(declared: set[str], exported: set[str], needed: Iterable[str]) -> list[str]:
    """Everything wrong with one library, a sentence each."""
    found = [f"declared but not exported: {name}" for name in sorted(declared - exported)]
    found += [f"exported but not declared: {name}" for name in sorted(exported - declared)]
    found += [f"needs {name}, which a plain system lacks" for name in needed if not ALLOWED_NEEDED.fullmatch(name)]
    return found


def _output(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"error: {' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def main(arguments: list[str]) -> int:
    """Check every library given; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("header", type=Path)
    parser.add_argument("library", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    declared = header_functions(options.header.read_text(encoding="utf-8"))
    if not declared:
        print(f"error: {options.header} declares no function of ours", file=sys.stderr)
        return 1
    wrong = False
    for library in options.library:
        exported = exported_symbols(_output("nm", "-D", "--defined-only", str(library)))
        dynamic = _output("readelf", "-d", "-W", str(library))
        needed = needed_libraries(dynamic)
        found = differences(declared, exported, needed) + name_faults(library.name, dynamic)
        for sentence in found:
            print(f"{library}: {sentence}", file=sys.stderr)
        wrong = wrong or bool(found)
        print(f"{library}: {len(exported)} exported functions, needs {', '.join(needed) or 'nothing'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
