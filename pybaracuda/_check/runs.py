# SPDX-License-Identifier: Apache-2.0
"""Runs the fixed cases of cases.py under one configuration of a backend and hashes every output.

Where tensors lie in memory is the caller's: the command `check` takes plain memory (memory.py), the project's tests
memory with canaries.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Protocol

from .. import _library
from .abi_calls import Launch, Library, span
from .cases import Case
from .splitmix import Array

# What a user reads of the loose layout.
LOOSE = "own scratch, least alignment"
# What fills outputs and scratch before a call; complements: no byte of a result equals both.
FILLS = (0xA5, 0x5A)


# Each includes those before it.
_ISAS = ("portable", "avx2", "avx512")
_ISA_VARIABLE = "BARACUDA_CPU_ISA"
_ASK_FOR_ISA = """
import ctypes, sys
answer = ctypes.CDLL(sys.argv[1]).baracuda_kernels_cpu_isa
answer.restype = ctypes.c_char_p
print(answer().decode())
"""


class Configuration(NamedTuple):
    """How the library is run. Nothing here may show in the bits."""

    name: str
    backend: str
    about: str
    environment: Mapping[str, str] = MappingProxyType({})
    caller: str = "plain"  # "ftz": the calling thread flushes subnormals and rounds up
    layout: str = "tight"  # "loose": addresses aligned to the element alone, own scratch, other bytes in the outputs
    device: int = 0  # which GPU


@lru_cache(maxsize=1)
def cpu_isas() -> list[str]:
    """The instruction sets that BARACUDA_CPU_ISA can choose here, as the library says, the narrowest first."""
    best = _library.load("cpu").cpu_isa
    if _ISA_VARIABLE in os.environ:
        # This process is bounded: another one is asked.
        command = [sys.executable, "-c", _ASK_FOR_ISA, str(_library.library_path("cpu"))]
        variables = {name: value for name, value in os.environ.items() if name != _ISA_VARIABLE}
        best = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.strip()
    return list(_ISAS[: _ISAS.index(best) + 1])


def cpu_configurations() -> list[Configuration]:
    """Every configuration of the CPU library that must answer the same bits on this machine."""
    isas = cpu_isas()
    found = [Configuration(f"cpu-{isa}", "cpu", f"{isa} code", {"BARACUDA_CPU_ISA": isa}) for isa in isas]
    widest = {"BARACUDA_CPU_ISA": isas[-1]}
    for threads in (1, 2, 3, 8):
        about = f"{isas[-1]} code, {threads} thread{'s'[: threads > 1]}"
        variables = {**widest, "BARACUDA_NUM_THREADS": str(threads)}
        found.append(Configuration(f"cpu-threads-{threads}", "cpu", about, variables))
    if platform.machine() in ("x86_64", "AMD64"):
        for isa in isas:
            about = f"{isa} code, the caller flushes subnormals to zero and rounds upwards"
            found.append(Configuration(f"cpu-{isa}-ftz", "cpu", about, {"BARACUDA_CPU_ISA": isa}, caller="ftz"))
    variables = {**widest, "BARACUDA_NUM_THREADS": "3"}
    found.append(Configuration("cpu-loose", "cpu", f"{isas[-1]} code, 3 threads, {LOOSE}", variables, layout="loose"))
    return found


def cuda_configurations(device: int = 0) -> list[Configuration]:
    """Every configuration of the CUDA library on one GPU."""
    name = f"cuda-{device}" if device else "cuda"
    return [
        Configuration(name, "cuda", "scratch given", device=device),
        Configuration(f"{name}-loose", "cuda", LOOSE, layout="loose", device=device),
    ]


class CallerModeChangedError(RuntimeError):
    """What ran in a caller's float mode did not leave it as it was."""


class CallerMode:
    """The calling thread's SSE mode through libm's own functions: no compiler is needed to change it."""

    # x86-64's fenv_t: 28 bytes of x87 state, then MXCSR. Flush to zero, denormals are zero, round upwards.
    FENV_BYTES = 32
    FLUSHING = 0x8040 | 0x4000

    def __init__(self) -> None:
        self._libm = ctypes.CDLL("libm.so.6")

    def _environment(self) -> bytes:
        buffer = ctypes.create_string_buffer(self.FENV_BYTES)
        if self._libm.fegetenv(buffer) != 0:
            raise RuntimeError("the float mode cannot be read")
        return buffer.raw

    def _mode(self) -> int:
        return int.from_bytes(self._environment()[28:], "little") & 0xFFC0  # without the sticky exception flags

    @contextmanager
    def flushing(self) -> Iterator[None]:
        before = self._environment()
        mode = int.from_bytes(before[28:], "little") | self.FLUSHING
        if self._libm.fesetenv(ctypes.create_string_buffer(before[:28] + mode.to_bytes(4, "little"), 32)) != 0:
            raise RuntimeError("the float mode cannot be changed")
        entered = self._mode()
        try:
            smallest = 5e-324
            if smallest * 1.0 != 0.0:
                raise RuntimeError("the float mode did not take effect")
            yield
            if self._mode() != entered:
                raise CallerModeChangedError("the library changed its caller's float mode")
        finally:
            self._libm.fesetenv(ctypes.create_string_buffer(before, 32))


@contextmanager
def as_is() -> Iterator[None]:
    yield


def sizes_of(case: Case) -> dict[str, int]:
    return {t.name: span(t, case.values).elements * case.symbol.element_bytes(t) for t in case.symbol.tensors}


class Regions(Protocol):
    """Named pieces of memory that a backend's functions reach, with an image of them on the host."""

    def address(self, name: str) -> int: ...

    def put(self, name: str, content: Array) -> None: ...

    def fill(self, name: str, byte: int) -> None: ...

    def write(self) -> None: ...

    def read(self) -> Array: ...

    def part(self, image: Array, name: str) -> Array: ...


class Layout(NamedTuple):
    """The bytes of every region of a case, and how far each begins past a 256-byte boundary (0 where not named)."""

    sizes: Mapping[str, int]
    offsets: Mapping[str, int]
    workspace_bytes: int


def layout_of(case: Case, library: Library, layout: str = "tight") -> Layout:
    """What a case needs; the layouts are Configuration's."""
    loose = layout == "loose"
    workspace_bytes = 0 if loose else library.workspace_size(case.symbol, case.values)
    offsets = {t.name: case.symbol.alignment(t) for t in case.symbol.tensors} if loose else {}
    return Layout({**sizes_of(case), "workspace": workspace_bytes}, offsets, workspace_bytes)


class Bench:
    """One case laid out in memory, to be called any number of times."""

    def __init__(self, case: Case, library: Library, arena: Regions, workspace_bytes: int) -> None:
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
        if status != 0:
            raise RuntimeError(f"{self.case.name}: status {status}, {self._library.last_error()}")

    def results(self) -> dict[str, bytes]:
        """The bytes of every output's elements."""
        return self.outputs_in(self._arena.read())

    def outputs_in(self, image: Array) -> dict[str, bytes]:
        """The bytes of every output's elements, out of an image of the memory."""
        parts = {tensor: self._arena.part(image, tensor.name) for tensor in self.case.symbol.outputs}
        return {tensor.name: self.case.elements(tensor, part).tobytes() for tensor, part in parts.items()}


def outputs(bench: Bench, configuration: Configuration) -> dict[str, bytes]:
    """Runs one case, laid out as the configuration says; answers the bytes of every output's elements."""
    bench.write(FILLS[configuration.layout == "loose"])
    bench.run(caller=configuration.caller)
    return bench.results()
