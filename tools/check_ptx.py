# SPDX-License-Identifier: Apache-2.0
"""Checks in PTX that no kernel works atomically on floating-point numbers, and names those that compare and swap.

    python3 tools/check_ptx.py [--allow-cas FILE] FILE...

Each FILE is PTX text, a library (read with cuobjdump), or a compile_commands.json, whose .cu files are compiled to
PTX again with the same flags. Float atomics make a sum depend on the order of threads; so does a compare-and-swap loop
that adds floats, which no reader of PTX can tell from a harmless one. Hence every kernel with a compare-and-swap must
be named in the FILE of --allow-cas: one name per line, with its namespace if wanted, then a # and the reason.
"""

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Every PTX instruction that reads, changes and writes memory in one step, with its dotted modifiers.
_INSTRUCTION = re.compile(r"(?<![\w.%$@])((?:atom|red|multimem|cp\.reduce)(?:\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*)+)")
_FUNCTION = re.compile(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([A-Za-z_$%][\w$]*)")
_FLOAT = re.compile(r"(?:acc::)?(?:b?f16(?:x2)?|t?f32(?:x2)?|f64|e\dm\d(?:x\d)?)")


@dataclass(frozen=True)
class Finding:
    """One instruction of interest and the function that holds it."""

    function: str
    instruction: str


@dataclass(frozen=True)
class Report:
    """What one piece of PTX holds: its functions, its float atomics and its compare-and-swaps."""

    functions: tuple[str, ...]
    float_atomics: tuple[Finding, ...]
    swaps: tuple[Finding, ...]


def is_float_atomic(instruction: str) -> bool:
    """Whether an atomic or reduction works on floating-point numbers, or may (a tensor copy hides its type)."""
    parts = instruction.split(".")
    if instruction.startswith("cp.reduce") and "tensor" in parts:
        return True
    return any(_FLOAT.fullmatch(part) for part in parts)


def inspect(ptx: str) -> Report:
    """Find the functions, float atomics and compare-and-swaps in PTX text."""
    text = re.sub(r"/\*.*?\*/", " ", ptx, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    starts = [(match.start(), match.group(1)) for match in _FUNCTION.finditer(text)]
    floats, swaps = [], []
    position = 0
    for match in _INSTRUCTION.finditer(text):
        while position < len(starts) and starts[position][0] < match.start():
            position += 1
        function = starts[position - 1][1] if position else "(outside any function)"
        instruction = match.group(1)
        if is_float_atomic(instruction):
            floats.append(Finding(function, instruction))
        if "cas" in instruction.split("."):
            swaps.append(Finding(function, instruction))
    return Report(tuple(dict.fromkeys(name for _, name in starts)), tuple(floats), tuple(swaps))


def qualified_name(symbol: str) -> list[str]:
    """A mangled symbol's function and the namespaces around it, outermost first; unnamed ones are left out."""
    parts, rest = [], symbol.removeprefix("_Z").removeprefix("N")
    while found := re.match(r"\d+", rest):
        # The Itanium mangling writes a name behind its length: what follows may begin with digits, too.
        end = found.end() + int(found.group())
        parts.append(rest[found.end() : end])
        rest = rest[end:]
    return [part for part in parts if not part.startswith("_GLOBAL__N_")]


def names_function(allowed: str, symbol: str) -> bool:
    """Whether a mangled symbol has the name `allowed`, such as roi_align::count, or count alone."""
    wanted = allowed.split("::")
    return symbol == allowed or qualified_name(symbol)[-len(wanted) :] == wanted


def allowed_names(text: str) -> list[str]:
    """The names in an allow-list file."""
    return [name for name in (line.split("#")[0].strip() for line in text.splitlines()) if name]


# ------------------------------------------------------------------------------------------------ where PTX comes from


def _run(command: list[str], cwd: str | None = None) -> str:
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=cwd, check=False)
    if result.returncode != 0:
        sys.exit(f"error: {shlex.join(command)} failed: {result.stderr.strip()[-2000:]}")
    return result.stdout


def find_cuobjdump() -> str | None:
    """cuobjdump from PATH, the CUDA toolkit, or PyPI's package in the running environment."""
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    places.append(str(Path(nvcc).resolve().parent.parent) if nvcc else None)
    spec = importlib.util.find_spec("nvidia")
    places += [str(Path(place) / "cu13") for place in (spec.submodule_search_locations or [])] if spec else []
    candidates = [shutil.which("cuobjdump"), *(str(Path(place) / "bin" / "cuobjdump") for place in places if place)]
    return next((found for found in candidates if found and os.access(found, os.X_OK)), None)


def compile_to_ptx(database: Path) -> Iterator[tuple[str, str]]:
    """The PTX of every .cu file in a compile_commands.json, as (file, text)."""
    for entry in json.loads(database.read_text(encoding="utf-8")):
        if not entry["file"].endswith(".cu"):
            continue
        command = entry.get("arguments") or shlex.split(entry["command"])
        with tempfile.TemporaryDirectory() as folder:
            output = str(Path(folder) / "out.ptx")
            kept: list[str] = []
            architectures: set[str] = set()
            skip = False
            for word in command:
                if skip:
                    skip = False
                elif word in ("-o", "-MF", "-MT", "-MQ"):
                    skip = True
                elif word in ("-c", "-dc", "-MD", "-MMD") or word.startswith("--compress-mode"):
                    continue
                elif "arch=compute_" in word:
                    architectures.update(re.findall(r"arch=compute_(\d+[af]?)", word))
                else:
                    kept.append(word)
            kept = [word for word in kept if word not in ("-gencode", "--generate-code")]
            # The newest architecture of the build is the one that it embeds as PTX.
            newest = max(architectures or {"90"}, key=lambda name: int(name.rstrip("af")))
            _run([*kept, "--ptx", f"-arch=compute_{newest}", "-o", output], cwd=entry["directory"])
            yield entry["file"], Path(output).read_text(encoding="utf-8", errors="replace")


def read_ptx(path: Path) -> Iterator[tuple[str, str]]:
    """The PTX that a file holds or leads to, as (where, text)."""
    if path.suffix == ".json":
        yield from compile_to_ptx(path)
    elif path.suffix == ".ptx":
        yield str(path), path.read_text(encoding="utf-8", errors="replace")
    else:
        tool = find_cuobjdump()
        if tool is None:
            sys.exit(f"error: reading {path} needs cuobjdump; give the build's compile_commands.json instead")
        yield str(path), _run([tool, "--dump-ptx", str(path)])


def main(arguments: list[str]) -> int:
    """Check everything given; 1 if something is wrong or nothing was there to check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allow-cas", type=Path, metavar="FILE", help="the kernels that may compare and swap")
    parser.add_argument("file", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    allowed = allowed_names(options.allow_cas.read_text(encoding="utf-8")) if options.allow_cas else []
    functions, unused, wrong = 0, set(allowed), False
    for path in options.file:
        for where, text in read_ptx(path):
            report = inspect(text)
            functions += len(report.functions)
            for finding in report.float_atomics:
                print(f"{where}: {finding.function}: float atomic {finding.instruction}", file=sys.stderr)
                wrong = True
            for function in dict.fromkeys(finding.function for finding in report.swaps):
                matching = [name for name in allowed if names_function(name, function)]
                unused.difference_update(matching)
                print(f"{where}: {function}: compare-and-swap{'' if matching else ' that --allow-cas does not name'}")
                wrong = wrong or not matching
    for name in sorted(unused):
        print(f"{options.allow_cas}: {name} has no compare-and-swap: remove the line", file=sys.stderr)
    if functions == 0:
        print("error: there is no PTX function in what was given, so nothing was checked", file=sys.stderr)
        return 1
    print(f"{functions} PTX functions checked: {'see above' if wrong or unused else 'no float atomics'}")
    return 1 if wrong or unused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
