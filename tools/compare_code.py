# SPDX-License-Identifier: Apache-2.0
"""Compares the machine code of two builds, function by function: for changes that must not change any.

    python3 tools/compare_code.py [--rename PATTERN REPLACEMENT]... [--merged PATTERN]... OLD NEW

OLD and NEW are two builds of one library or of one object, or two files of PTX, which is quicker to make. Kernels are
compared by their instructions, constants, registers and shared memory in every architecture that the file has code for,
PTX by its text, functions of the processor by their disassembly without addresses. Names are compared as a program's
text has them, so code may move from file to file; each --rename is a regular expression that turns a name of OLD into
NEW's. Code that matches a --merged pattern may be in one of the two files alone. What compilers and linkers add to
every library is left out.

ptxas does not promise one order of instructions: it is seen to order some kernels differently when it compiles the same
text again. A kernel of the same instructions in another order is listed and counts as a difference; whether it is one,
two builds of one text tell.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# nvcc names the namespace without a name after a file and its contents, with the length in front.
_UNNAMED = re.compile(r"(\d+)_GLOBAL__N_")
_FILE = re.compile(r"_INTERNAL_\w+::")
_CLONE = re.compile(r"\.(constprop|isra|part|cold|lto_priv)(\.\d+)*")
_REGISTERS_KERNELS = re.compile(r"__sti____|__cuda(?:Un)?[Rr]egister|__nv_cuda|_GLOBAL__sub_I_|_GLOBAL__sub_D_")
# What the linker adds to every library: it jumps elsewhere, or runs before and after everything.
_OF_LINKER = re.compile(
    r".*@plt(?:\.\w+)?|\.plt.*|_init|_fini|(?:de)?register_tm_clones|__do_global_dtors_aux|frame_dummy"
)
_FILLS = re.compile(r"(?:(?:data16|cs|ds) )*(?:nop[wl]?\b.*|xchg +%ax,%ax)")


@dataclass(frozen=True)
class Code:
    """What one function is: `exact` changes with anything in it, `unordered` not with the order of instructions."""

    exact: str
    unordered: str


# Of each name the codes of all functions that have it, sorted: clones and copies share a name.
Codes = dict[str, list[Code]]


@dataclass
class Comparison:
    """How the functions of two files compare, by name."""

    equal: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    only_old: list[str] = field(default_factory=list)
    only_new: list[str] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        return bool(self.equal) and not (self.reordered or self.different or self.only_old or self.only_new)


def compare(old: Codes, new: Codes, merged: Iterable[str] = ()) -> Comparison:
    """Compare by name; functions whose name matches a pattern of `merged` may exist in one of the two alone."""
    result = Comparison()
    patterns = [re.compile(pattern) for pattern in merged]
    for name in sorted(old.keys() | new.keys()):
        ours, theirs = old.get(name), new.get(name)
        if ours is None or theirs is None:
            if not any(pattern.search(name) for pattern in patterns):
                (result.only_new if ours is None else result.only_old).append(name)
        elif ours == theirs:
            result.equal.append(name)
        elif sorted(code.unordered for code in ours) == sorted(code.unordered for code in theirs):
            result.reordered.append(name)
        else:
            result.different.append(name)
    return result


def _run(command: list[str], stdin: str | None = None, cwd: Path | None = None) -> str:
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, errors="replace", cwd=cwd)
    if result.returncode != 0:
        sys.exit(f"error: {command[0]} failed: {result.stderr.strip()[-2000:]}")
    return result.stdout


def find_cuobjdump() -> str:
    """cuobjdump from PATH, beside nvcc, or PyPI's package in the running environment."""
    nvcc = shutil.which("nvcc")
    places = [str(Path(nvcc).resolve().parent.parent)] if nvcc else []
    spec = importlib.util.find_spec("nvidia")
    places += [str(Path(place) / "cu13") for place in (spec.submodule_search_locations or [])] if spec else []
    candidates = [shutil.which("cuobjdump"), *(str(Path(place) / "bin" / "cuobjdump") for place in places)]
    found = next((tool for tool in candidates if tool and os.access(tool, os.X_OK)), None)
    if found is None:
        sys.exit("error: reading kernels needs cuobjdump: pip install nvidia-cuda-cuobjdump")
    return found


def without_file_names(symbol: str) -> str:
    """A mangled name whose namespaces without a name are all called alike."""
    parts, position = [], 0
    while found := _UNNAMED.search(symbol, position):
        parts += [symbol[position : found.start()], "12_GLOBAL__N_1"]
        position = found.end(1) + int(found.group(1))
    return "".join(parts) + symbol[position:]


def readable_names(symbols: Iterable[str], renames: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """What each symbol is called in a program's text, renamed."""
    listed = sorted(set(symbols))
    plain = [_CLONE.sub(r".\1", without_file_names(symbol)) for symbol in listed]
    # The function that launches a kernel has the kernel's mangled name in its own.
    stubs = [re.sub(r"^.*?__device_stub_(_Z\w+?)(?:RN?K?\d.*|P.*)?$", r"\1", name) for name in plain]
    stubs = [name if "__device_stub_" in old else old for name, old in zip(stubs, plain, strict=True)]
    readable = _run(["c++filt"], stdin="\n".join(stubs) + "\n").split("\n")
    names = {}
    for symbol, old, name in zip(listed, plain, readable, strict=False):
        name = _FILE.sub("", name)
        for pattern, replacement in renames:
            name = re.sub(pattern, replacement, name)
        names[symbol] = f"launch of {name}" if "__device_stub_" in old else name
    return names


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


# --- kernels --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """One section of an ELF file: `info` is what its kind makes of it."""

    name: str
    data: bytes
    size: int
    info: int
    flags: int


def sections(elf: bytes) -> Iterator[Section]:
    """The sections of a 64-bit little-endian ELF file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        sys.exit("error: not a 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", elf, 40)
    entry_bytes, count, of_names = struct.unpack_from("<HHH", elf, 58)
    if count == 0:
        # More sections than the header can count: the first section says how many.
        (count,) = struct.unpack_from("<Q", elf, start + 32)
    if of_names == 0xFFFF:
        (of_names,) = struct.unpack_from("<I", elf, start + 40)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, start + i * entry_bytes) for i in range(count)]
    names_at = headers[of_names][4]
    for name, kind, flags, _, offset, size, _, info, _, _ in headers:
        begin = names_at + name
        no_bits = 8
        data = b"" if kind == no_bits else elf[offset : offset + size]
        yield Section(elf[begin : elf.index(b"\0", begin)].decode(), data, size, info, flags)


def kernels_of_cubin(cubin: bytes) -> dict[str, Code]:
    """The kernels of one architecture by their symbols."""
    found = list(sections(cubin))
    code: dict[str, Code] = {}
    others: dict[str, list[bytes]] = collections.defaultdict(list)
    for section in found:
        parted = re.fullmatch(r"\.nv\.(constant\d+|shared|local)\.(.+)", section.name)
        if parted:
            # The first bank of constants is where arguments arrive: only its size is the kernel's.
            data = b"" if parted[1] == "constant0" else section.data
            others[parted[2]] += [parted[1].encode(), section.size.to_bytes(8, "little"), data]
    for section in found:
        if section.name.startswith(".text."):
            symbol = section.name.removeprefix(".text.")
            registers = (section.info >> 24).to_bytes(1, "little") + section.flags.to_bytes(8, "little")
            words = [section.data[i : i + 8] for i in range(0, len(section.data), 16)]
            rest = others[symbol]
            # An instruction's second half has what depends on the order: which results it waits for.
            code[symbol] = Code(_digest([registers, section.data, *rest]), _digest([*rest, *sorted(words)]))
    return code


def kernels(path: Path) -> dict[str, list[Code]]:
    """The kernels of a library or an object by architecture and symbol."""
    found: dict[str, list[Code]] = collections.defaultdict(list)
    if b".nv_fatbin" not in path.read_bytes():
        return found
    with tempfile.TemporaryDirectory() as folder:
        _run([find_cuobjdump(), "-xelf", "all", str(path.resolve())], cwd=Path(folder))
        for cubin in sorted(Path(folder).glob("*.cubin")):
            architecture = cubin.name.split(".")[-2]
            for symbol, code in kernels_of_cubin(cubin.read_bytes()).items():
                found[f"{architecture} {symbol}"].append(code)
    return found


# Names and numbers of a line of PTX that other functions of the file change.
_PTX_NAME = re.compile(r"_Z\w+?(?=_param_\d+\b)|_Z\w+")
_PTX_NUMBERED = re.compile(r"(\$L__BB|__local_depot|callseq |prototype_)\d+")


def functions_of_ptx(text: str) -> dict[str, list[list[str]]]:
    """The lines of every function in PTX, by symbol; what stands outside of functions is under the empty name."""
    found: dict[str, list[list[str]]] = {"": [[]]}
    body = found[""][0]
    inside = False
    for line in text.split("\n"):
        head = re.match(r"(?:\.\w+ )*\.(?:entry|func)\b\s*(?:\(.*?\)\s*)?(\w+)", line)
        if head and not inside:
            body, inside = [], True
            found.setdefault(head.group(1), []).append(body)
        if line and not line.startswith("//"):
            body.append(_PTX_NUMBERED.sub(r"\1", line))
        if line == "}" or (inside and line.startswith(";")):
            body, inside = found[""][0], False
    found[""][0].sort()
    return found


def codes_of_ptx(path: Path, renames: list[tuple[str, str]]) -> Codes:
    """The functions of a file of PTX by their readable names."""
    texts = functions_of_ptx(path.read_text(encoding="utf-8"))
    symbols = {
        name for bodies in texts.values() for body in bodies for line in body for name in _PTX_NAME.findall(line)
    }
    names = {"": "(outside of functions)", **readable_names(symbols | texts.keys() - {""}, renames)}
    found: Codes = collections.defaultdict(list)
    for symbol, bodies in texts.items():
        for body in bodies:
            lines = [_PTX_NAME.sub(lambda name: names[name[0]], line).encode() for line in body]
            found[names[symbol]].append(Code(_digest(sorted(lines) if not symbol else lines), _digest(sorted(lines))))
    for same_name in found.values():
        same_name.sort(key=lambda code: code.exact)
    return found


# --- functions of the processor --------------------------------------------------------------------------------------


def _instruction(line: str) -> str:
    """A line of a disassembly without addresses; the names of symbols stay."""
    text = line.split("\t", 1)[1] if "\t" in line else line
    text, _, comment = text.partition(" # ")
    exact = re.search(r"<([^>+]+)>", comment)
    # Beside the counter of instructions stands how far away something is, which every other function changes.
    text = re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", text)
    text = re.sub(r"\b[0-9a-f]+ (<[^>]+>)", r"\1", text)
    return f"{text.strip()} {exact.group(0) if exact else ''}".strip()


def functions_of_disassembly(text: str) -> dict[str, list[list[str]]]:
    """The instructions of every function in what objdump -d prints, by symbol."""
    found: dict[str, list[list[str]]] = collections.defaultdict(list)
    body: list[str] = []
    for line in text.split("\n"):
        head = re.fullmatch(r"[0-9a-f]+ <(.+)>:", line)
        if head:
            body = []
            found[head.group(1)].append(body)
        elif line.startswith(" "):
            body.append(_instruction(line))
        elif line:
            body = []
    for bodies in found.values():
        for instructions in bodies:
            while instructions and _FILLS.fullmatch(instructions[-1]):
                instructions.pop()
    return found


def codes(path: Path, renames: list[tuple[str, str]]) -> tuple[Codes, Codes]:
    """The kernels and the functions of a file by their readable names."""
    by_architecture = kernels(path)
    texts = functions_of_disassembly(_run(["objdump", "-dw", "--no-show-raw-insn", str(path)]))
    mentioned = {symbol for bodies in texts.values() for body in bodies for line in body for symbol in _symbols(line)}
    names = readable_names({*(key.split(" ", 1)[1] for key in by_architecture), *texts, *mentioned}, renames)
    of_kernels: Codes = collections.defaultdict(list)
    for key, kernel_codes in by_architecture.items():
        architecture, symbol = key.split(" ", 1)
        of_kernels[f"{architecture} {names[symbol]}"] += kernel_codes
    functions: Codes = collections.defaultdict(list)
    for symbol, bodies in texts.items():
        if _REGISTERS_KERNELS.search(symbol) or _OF_LINKER.fullmatch(symbol):
            continue
        for body in bodies:
            lines = [_SYMBOL.sub(lambda found: f"<{names[found[1]]}", line).encode() for line in body]
            functions[names[symbol]].append(Code(_digest(lines), _digest(sorted(lines))))
    for found in (of_kernels, functions):
        for same_name in found.values():
            same_name.sort(key=lambda code: code.exact)
    return of_kernels, functions


_SYMBOL = re.compile(r"<([^>+@]+)")


def _symbols(line: str) -> list[str]:
    return _SYMBOL.findall(line)


def _print(what: str, found: Comparison) -> None:
    print(f"{what}: {len(found.equal)} equal", end="")
    lists = {
        "of the same instructions in another order": found.reordered,
        "different": found.different,
        "in OLD alone": found.only_old,
        "in NEW alone": found.only_new,
    }
    print("".join(f", {len(names)} {label}" for label, names in lists.items() if names))
    for label, names in lists.items():
        for name in names:
            print(f"  {label}: {name}")


def main(arguments: list[str]) -> int:
    """Compare two files; 1 if anything differs or there was nothing to compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rename", nargs=2, action="append", default=[], metavar=("PATTERN", "REPLACEMENT"))
    parser.add_argument("--merged", action="append", default=[], metavar="PATTERN")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    given = parser.parse_args(arguments)
    renames = [(pattern, replacement) for pattern, replacement in given.rename]
    if given.old.suffix == ".ptx":
        found = compare(codes_of_ptx(given.old, renames), codes_of_ptx(given.new, []), given.merged)
        _print("functions", found)
        return 0 if found.is_same else 1
    old_kernels, old_functions = codes(given.old, renames)
    new_kernels, new_functions = codes(given.new, [])
    same = True
    if old_kernels or new_kernels:
        found = compare(old_kernels, new_kernels, given.merged)
        _print("kernels", found)
        same = found.is_same
    found = compare(old_functions, new_functions, given.merged)
    _print("functions", found)
    return 0 if same and found.is_same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
