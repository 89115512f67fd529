# SPDX-License-Identifier: Apache-2.0
"""Runs the fixed cases of bits_cases.py under one configuration of a backend and hashes every output.

As a program it does so in a fresh process and prints JSON, because an instruction set and a thread count are chosen
once a process: python tests/bits_run.py BACKEND [--caller ftz] [--layout loose]
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

# At the end: an installed pybaracuda comes before the source tree's.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import bits_cases
from bits_cases import Case
from raw_abi import Launch, Library, span
from splitmix import Array

import pybaracuda
from verify.memory.arena import CANARY, FILLS, Arena
from verify.memory.blocks import Memory, memory_for

HERE = Path(__file__).resolve().parent
VECTORS = HERE / "vectors" / "bits.json"
CAPACITY = 1 << 25

# Case -> output -> SHA-256 of its elements in row-major order, little-endian.
Hashes = dict[str, dict[str, str]]


class Configuration(NamedTuple):
    """How the library is run. Nothing here may show in the bits."""

    name: str
    backend: str
    environment: Mapping[str, str] = MappingProxyType({})
    caller: str = "plain"  # "ftz": the calling thread flushes subnormals and rounds up
    layout: str = "tight"  # "loose": addresses aligned to the element alone, own scratch, other bytes in the outputs


def cpu_isas() -> list[str]:
    """The instruction sets that BARACUDA_CPU_ISA can choose on this machine, the narrowest first."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["portable"]
    flags = set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split())
            break
    found = ["portable"]
    if {"avx2", "fma", "f16c"} <= flags:
        found.append("avx2")
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
            found.append("avx512")
    return found


def configurations(backend: str) -> list[Configuration]:
    """Every configuration that must answer the same bits on this machine."""
    if backend == "cuda":
        return [Configuration("cuda", "cuda"), Configuration("cuda-loose", "cuda", layout="loose")]
    found = [Configuration(f"cpu-{isa}", "cpu", {"BARACUDA_CPU_ISA": isa}) for isa in cpu_isas()]
    widest = {"BARACUDA_CPU_ISA": cpu_isas()[-1]}
    for threads in (1, 2, 3, 8):
        found.append(Configuration(f"cpu-threads-{threads}", "cpu", {**widest, "BARACUDA_NUM_THREADS": str(threads)}))
    for isa in cpu_isas():
        found.append(Configuration(f"cpu-{isa}-ftz", "cpu", {"BARACUDA_CPU_ISA": isa}, caller="ftz"))
    found.append(Configuration("cpu-loose", "cpu", {**widest, "BARACUDA_NUM_THREADS": "3"}, layout="loose"))
    return found


class CallerMode:
    """The calling thread's SSE mode through libm's own functions: no compiler is needed to change it."""

    # x86-64's fenv_t: 28 bytes of x87 state, then MXCSR. Flush to zero, denormals are zero, round upwards.
    FENV_BYTES = 32
    FLUSHING = 0x8040 | 0x4000

    def __init__(self) -> None:
        self._libm = ctypes.CDLL("libm.so.6")

    def _environment(self) -> bytes:
        buffer = ctypes.create_string_buffer(self.FENV_BYTES)
        assert self._libm.fegetenv(buffer) == 0
        return buffer.raw

    def _mode(self) -> int:
        return int.from_bytes(self._environment()[28:], "little") & 0xFFC0  # without the sticky exception flags

    @contextmanager
    def flushing(self) -> Iterator[None]:
        before = self._environment()
        mode = int.from_bytes(before[28:], "little") | self.FLUSHING
        assert self._libm.fesetenv(ctypes.create_string_buffer(before[:28] + mode.to_bytes(4, "little"), 32)) == 0
        entered = self._mode()
        try:
            smallest = 5e-324
            assert smallest * 1.0 == 0.0, "the mode did not take effect"
            yield
            assert self._mode() == entered, "the library changed its caller's float mode"
        finally:
            self._libm.fesetenv(ctypes.create_string_buffer(before, 32))


@contextmanager
def as_is() -> Iterator[None]:
    yield


def sizes_of(case: Case) -> dict[str, int]:
    return {t.name: span(t, case.values).elements * case.symbol.element_bytes(t) for t in case.symbol.tensors}


class Bench:
    """One case laid out in memory, to be called any number of times."""

    def __init__(self, case: Case, library: Library, arena: Arena, workspace_bytes: int) -> None:
        self.case = case
        self.workspace_bytes = workspace_bytes
        self._library = library
        self._arena = arena
        pointers = {}
        for tensor in case.symbol.tensors:
            first = span(tensor, case.values).first * case.symbol.element_bytes(tensor)
            pointers[tensor.name] = arena.address(tensor.name) + first
        self._launch = Launch(pointers, arena.address("workspace") if workspace_bytes else 0, workspace_bytes)

    def write(self, fill: int, inputs: Mapping[str, Array] | None = None, fill_workspace: bool = True) -> None:
        """Puts the inputs in place (the case's own unless others are given), the fill everywhere else."""
        for tensor in self.case.symbol.tensors:
            if tensor.role == "input":
                self._arena.put(tensor.name, (inputs or self.case.inputs)[tensor.name])
            else:
                self._arena.fill(tensor.name, fill)
        if fill_workspace:
            self._arena.fill("workspace", fill)
        self._arena.write()

    def status(self, stream: int = 0, elsewhere: Mapping[str, int] = MappingProxyType({})) -> int:
        """Calls the function, with other addresses for some tensors, and answers its status."""
        pointers = {**self._launch.pointers, **elsewhere}
        launch = self._launch._replace(stream=stream, pointers=pointers)
        return self._library.run(self.case.symbol, self.case.values, launch)

    def run(self, stream: int = 0, caller: str = "plain") -> None:
        call = self._library.prepared(self.case.symbol, self.case.values, self._launch._replace(stream=stream))
        with CallerMode().flushing() if caller == "ftz" else as_is():
            status = call()
        assert status == 0, f"{self.case.name}: status {status}, {self._library.last_error()}"

    def results(self) -> dict[str, bytes]:
        """The bytes of every output's elements. Nothing else may have been written."""
        image = self._arena.read()
        written = {tensor.name for tensor in self.case.symbol.outputs} | {"workspace"}
        changed = self._arena.changed_regions(image) - written
        assert not changed, f"{self.case.name}: {sorted(changed)} changed (canary {CANARY:#x})"
        parts = {tensor: self._arena.part(image, tensor.name) for tensor in self.case.symbol.outputs}
        return {tensor.name: self.case.elements(tensor, part).tobytes() for tensor, part in parts.items()}


def laid_out(case: Case, library: Library, memory: Memory, layout: str = "tight") -> Bench:
    """The case in one memory, canaries around every tensor; the layouts are Configuration's."""
    loose = layout == "loose"
    workspace_bytes = 0 if loose else library.workspace_size(case.symbol, case.values)
    offsets = {t.name: case.symbol.alignment(t) for t in case.symbol.tensors} if loose else {}
    arena = Arena(memory, {**sizes_of(case), "workspace": workspace_bytes}, offsets)
    return Bench(case, library, arena, workspace_bytes)


def outputs(case: Case, library: Library, memory: Memory, configuration: Configuration) -> dict[str, bytes]:
    """Runs one case; answers the bytes of every output's elements. Nothing else may have been written."""
    bench = laid_out(case, library, memory, configuration.layout)
    bench.write(FILLS[configuration.layout == "loose"])
    bench.run(caller=configuration.caller)
    return bench.results()


def hashed(results: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in results.items()}


def run(configuration: Configuration) -> Hashes:
    """Every case in this process; the environment must already be the configuration's."""
    library = Library(configuration.backend)
    memory = memory_for(configuration.backend, CAPACITY)
    found: Hashes = {}
    for case in bits_cases.cases():
        found[case.name] = hashed(outputs(case, library, memory, configuration))
    return found


def run_in_child(configuration: Configuration) -> Hashes:
    """Every case in a fresh process that sees the same pybaracuda."""
    package = str(Path(pybaracuda.__file__).resolve().parent.parent)
    paths = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.run(
        [
            *(sys.executable, str(HERE / "bits_run.py"), configuration.backend),
            *("--caller", configuration.caller, "--layout", configuration.layout),
        ],
        env={**os.environ, **configuration.environment, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        raise AssertionError(f"{configuration.name}: {child.stderr.strip()}")
    hashes: Hashes = json.loads(child.stdout)
    return hashes


def differences(found: Hashes, expected: Hashes) -> list[str]:
    """A sentence for every case that is missing, left over or has other bits."""
    said = [f"{name}: not among the committed cases" for name in found if name not in expected]
    said += [f"{name}: committed, but no longer a case" for name in expected if name not in found]
    for name in found:
        for output in sorted(found[name]) if name in expected else []:
            wanted = expected[name].get(output, "nothing")
            if found[name][output] != wanted:
                said.append(f"{name}: {output} is {found[name][output][:12]}, committed {wanted[:12]}")
    return said


def committed() -> Hashes:
    entries = json.loads(VECTORS.read_text())["cases"]
    return {entry["case"]: entry["sha256"] for entry in entries}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=["cpu", "cuda"])
    parser.add_argument("--caller", choices=["plain", "ftz"], default="plain")
    parser.add_argument("--layout", choices=["tight", "loose"], default="tight")
    options = parser.parse_args()
    print(json.dumps(run(Configuration("this", options.backend, {}, options.caller, options.layout))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
