# SPDX-License-Identifier: Apache-2.0
"""Every C symbol against its contract: what is refused, in which order, with which words, and what is left alone.

The cases follow from the generated tables and the records of tests/operators; no operator is named here.
"""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import contract_cases as cases
import numpy as np
import pytest
from contract_cases import Fault, Stage
from operators.record import INT64_MAX, Empty

from pybaracuda import _abi
from pybaracuda._check.abi_calls import (
    Launch,
    Library,
    OptionValues,
    Symbol,
    Values,
    completed,
    numel,
    places,
    span,
    symbols,
)
from pybaracuda._check.splitmix import encoded
from verify.memory.arena import FILLS, Arena
from verify.memory.blocks import Bytes, Memory, memory_for

CAPACITY = 1 << 20
NOWHERE = 0x1001  # an address that no call may touch, and misaligned for every dtype wider than a byte
ENTRIES = ("run", "run_packed")

SYMBOLS = pytest.mark.parametrize("symbol", symbols(), ids=lambda symbol: symbol.name)


@cache
def library_for(backend: str) -> Library:
    return Library(backend)


@cache
def memory_of(backend: str) -> Memory:
    return memory_for(backend, CAPACITY)


class Bench:
    """A symbol's valid problem laid out in memory, and calls of it with changes."""

    def __init__(self, backend: str, symbol: Symbol, values: Values) -> None:
        self.library = library_for(backend)
        self.memory = memory_of(backend)
        self.symbol = symbol
        self.values = values
        self.workspace_bytes = self.library.workspace_size(symbol, values)

    def arena(self, misaligned: tuple[str, ...] = (), fill: int = FILLS[0]) -> Arena:
        """Inputs hold small numbers, outputs and the workspace the fill."""
        tensors = self.symbol.tensors
        sizes = {t.name: span(t, self.values).elements * self.symbol.element_bytes(t) for t in tensors}
        # Room for a vector even where nothing is needed: a workspace that is given may have any size.
        sizes["workspace"] = max(self.workspace_bytes, cases.WORKSPACE_ALIGNMENT)
        arena = Arena(self.memory, sizes, {name: 1 for name in misaligned})
        for tensor in tensors:
            if tensor.role == "input":
                numbers = np.arange(span(tensor, self.values).elements) % 3
                arena.put(tensor.name, encoded(numbers, self.symbol.dtype(tensor)))
            else:
                arena.fill(tensor.name, fill)
        arena.fill("workspace", fill)
        return arena

    def pointers(self, arena: Arena) -> dict[str, int]:
        found = {}
        for tensor in self.symbol.tensors:
            first = span(tensor, self.values).first * self.symbol.element_bytes(tensor)
            found[tensor.name] = arena.address(tensor.name) + first
        return found

    def enter(self, entry: str, values: Values, launch: Launch) -> tuple[int, str]:
        status = getattr(self.library, entry)(self.symbol, values, launch)
        return status, self.library.last_error()

    def outputs(self, arena: Arena, image: Bytes) -> dict[str, bytes]:
        """The bytes of every output's elements; a gap between strides must have kept what it held."""
        found = {}
        for tensor in self.symbol.outputs:
            content, before = arena.part(image, tensor.name), arena.part(arena.image, tensor.name)
            mask = self.element_bytes_mask(tensor)
            assert (content[~mask] == before[~mask]).all(), f"{tensor.name}: a gap between rows was written"
            assert tensor.strides is None or not mask.size or not mask.all(), "the problem has no gaps to watch"
            found[tensor.name] = content[mask].tobytes()
        return found

    def element_bytes_mask(self, tensor: _abi.Tensor) -> Bytes:
        """For every byte of a tensor's span, whether an element holds it."""
        elements = np.zeros(span(tensor, self.values).elements, bool)
        elements[places(tensor, self.values)] = True
        return np.repeat(elements, self.symbol.element_bytes(tensor))


class Failure(NamedTuple):
    """One broken promise; collected, so that a run shows all of them."""

    case: str
    what: str


def report(failures: list[Failure]) -> None:
    assert not failures, "\n" + "\n".join(f"{case}: {what}" for case, what in failures)


def bench_for(backend: str, symbol: Symbol) -> Bench:
    return Bench(backend, symbol, cases.valid_values(symbol))


def launch_of(bench: Bench, arena: Arena, fault: Fault) -> Launch:
    pointers = bench.pointers(arena)
    for name, other in fault.moved.items():
        pointers[name] = pointers[other] + (name in fault.misaligned and other not in fault.misaligned)
    pointers |= dict.fromkeys(fault.null, 0)
    if not fault.workspace:
        return Launch(pointers, stream=fault.stream, options=fault.options)
    count = bench.workspace_bytes - ("short" in fault.workspace)
    if "null" in fault.workspace:
        return Launch(pointers, 0, max(count, 1), fault.stream, fault.options)
    address = arena.address("workspace") + ("misaligned" in fault.workspace)
    return Launch(pointers, address, count, fault.stream, fault.options)


def check_fault(bench: Bench, fault: Fault) -> Iterator[Failure]:
    """Runs one faulty call through every entry and yields what is not as promised."""
    values = {**bench.values, **fault.values}
    of_problem = fault.stage <= cases.LAST_STAGE_OF_THE_PROBLEM
    for entry in ENTRIES:
        arena = bench.arena(fault.misaligned)
        arena.write()
        status, text = bench.enter(entry, values, launch_of(bench, arena, fault))
        case = f"{entry}, {fault.name}"
        if status != fault.status:
            yield Failure(case, f"status {status}, wanted {fault.status} ({text!r})")
        if not text.startswith(f"{bench.symbol.name}: "):
            yield Failure(case, f"the text does not begin with the symbol: {text!r}")
        for part in fault.says:
            if part not in text:
                yield Failure(case, f"the text does not say {part!r}: {text!r}")
        changed = arena.changed_regions(arena.read())
        if changed:
            yield Failure(case, f"memory was written: {sorted(changed)}")
    # The problem alone: the same status and words, whatever the pointers; a good problem has no words.
    for pointers in ({}, dict.fromkeys((t.name for t in bench.symbol.tensors), NOWHERE)):
        status = bench.library.can_implement(bench.symbol, values, pointers or None, fault.options)
        said = bench.library.last_error()
        if (status, said) != ((fault.status, text) if of_problem else (0, "")):
            yield Failure(f"can_implement, {fault.name}", f"status {status}, {said!r}; run said {text!r}")
    wanted = 0 if of_problem else bench.workspace_bytes
    size = bench.library.workspace_size(bench.symbol, values, fault.options)
    if size != wanted:
        yield Failure(f"workspace_size, {fault.name}", f"{size}, wanted {wanted}")


def test_every_operator_has_a_baseline() -> None:
    missing = sorted(set(_abi.OPERATORS) - set(cases.BASELINES))
    assert not missing, f"tests/operators: add a baseline to the records of: {', '.join(missing)}"
    strays = sorted(set(cases.BASELINES) - set(_abi.OPERATORS))
    assert not strays, f"not in the ABI: {', '.join(strays)}"


@pytest.mark.parametrize("operator", _abi.OPERATORS.values(), ids=lambda operator: operator.name)
def test_every_extent_has_an_empty_problem_and_a_fault(operator: _abi.Operator) -> None:
    """The tables derive from the spec; this says that nothing in it fell through."""
    symbol = Symbol(operator, next(iter(operator.variants.values())))
    sizes = {s.name for s in symbol.scalars if (s.low, s.high) == (0, cases.INT32_MAX)}
    emptied = {name for empty in cases.baseline(symbol).empties for name, value in empty.values.items() if value == 0}
    assert sizes <= emptied
    found = cases.faults(symbol, "cpu", 16)
    touched = {name for fault in found for name in fault.values}
    free = {s.name for s in symbol.scalars if (s.low, s.high, s.finite) == (None, None, False)}
    assert ({s.name for s in symbol.scalars} | {a.name for a in symbol.host_arrays}) - touched <= free
    absent = set() if symbol.host_arrays else {Stage.HOST_ARRAY}
    if all(output.strides is None for output in symbol.outputs):
        absent.add(Stage.SHARED_PLACE)
    if cases.baseline(symbol).in_place is not None and len(symbol.tensors) == 2:
        absent.add(Stage.OVERLAP)
    largest: Values = {
        scalar.name: INT64_MAX if scalar.high is None else scalar.high
        for scalar in symbol.scalars
        if scalar.high is not None or scalar.ctype == "i64"
    }
    if not symbol.host_arrays and all(span(t, largest).elements * 16 < 2**63 for t in symbol.tensors):
        absent.add(Stage.OVERFLOW)
    assert {fault.stage for fault in found} >= set(Stage) - absent


@SYMBOLS
def test_valid_problem_writes_every_output_byte_and_nothing_else(backend: str, symbol: Symbol) -> None:
    bench = bench_for(backend, symbol)
    wrong = cases.faults(symbol, backend, 0)[0]
    results = []
    for entry in ENTRIES:
        for workspace in ("none", "exact", "larger"):
            for fill in FILLS:
                arena = bench.arena(fill=fill)
                arena.write()
                bench.library.can_implement(symbol, {**bench.values, **wrong.values}, options=wrong.options)
                assert bench.library.last_error() != ""
                launch = Launch(bench.pointers(arena))
                if workspace != "none":
                    count = bench.workspace_bytes
                    if workspace == "larger":
                        count = max(count, cases.WORKSPACE_ALIGNMENT)
                    launch = launch._replace(workspace=arena.address("workspace"), workspace_bytes=count)
                status, text = bench.enter(entry, bench.values, launch)
                assert (status, text) == (0, ""), f"{entry}, workspace {workspace}"
                image = arena.read()
                allowed = {tensor.name for tensor in symbol.outputs} | ({"workspace"} if launch.workspace else set())
                assert arena.changed_regions(image) <= allowed
                results.append(bench.outputs(arena, image))
    # Outputs that started from complementary fills and are equal were written to the last byte.
    assert all(result == results[0] for result in results)
    bench.library.can_implement(symbol, {**bench.values, **wrong.values}, options=wrong.options)
    assert bench.library.workspace_size(symbol, bench.values) == bench.workspace_bytes
    assert bench.library.last_error() == ""


@SYMBOLS
def test_fault_is_refused_in_words_and_writes_nothing(backend: str, symbol: Symbol) -> None:
    bench = bench_for(backend, symbol)
    found = cases.faults(symbol, backend, bench.workspace_bytes)
    report([failure for fault in found for failure in check_fault(bench, fault)])


@SYMBOLS
def test_earlier_check_wins(backend: str, symbol: Symbol) -> None:
    bench = bench_for(backend, symbol)
    found = cases.faults(symbol, backend, bench.workspace_bytes)
    report([failure for fault in cases.pairs(found) for failure in check_fault(bench, fault)])


def empty_problem(symbol: Symbol, empty: Empty) -> Values:
    return completed(symbol, {**cases.baseline(symbol).values, **empty.values})


def filled(symbol: Symbol, tensor: _abi.Tensor, number: float) -> bytes:
    """One element; a 16-bit padding value is its bit pattern, an infinite integer its type's limit."""
    token = symbol.dtype(tensor)
    if token in cases.INTEGER_LIMITS and math.isinf(number):
        return struct.pack({"i32": "<i", "i64": "<q"}[token], cases.INTEGER_LIMITS[token][number > 0])
    takes_value = any(p.ctype == "VALUE" for p in (*symbol.scalars, *symbol.fields))
    is_pattern = takes_value and token in ("f16", "bf16") and number != 0
    return struct.pack("<H", int(number)) if is_pattern else encoded(np.array([number]), token).tobytes()


def test_structs_of_options_may_grow(backend: str) -> None:
    """An older caller's struct is shorter, a newer one's longer with zeros: both mean the same."""
    for symbol in (symbol for symbol in symbols() if symbol.options is not None):
        library, values = library_for(backend), cases.valid_values(symbol)
        for given in (OptionValues(size=8), OptionValues(size=200), OptionValues(beyond=0x5A)):
            assert library.can_implement(symbol, values, options=given) == 0, (symbol.name, given)


def nothing_to_write(symbol: Symbol, values: Values) -> bool:
    return all(numel(tensor, values) == 0 for tensor in symbol.outputs)


@SYMBOLS
def test_empty_problem_succeeds(backend: str, symbol: Symbol) -> None:
    failures = []
    for empty in cases.baseline(symbol).empties:
        bench = Bench(backend, symbol, empty_problem(symbol, empty))
        # An empty tensor's pointer is never looked at: NULL, or an address that is no one's.
        for nobody in (0, NOWHERE):
            for entry in ENTRIES:
                arena = bench.arena()
                arena.write()
                hollow = {t.name for t in symbol.tensors if numel(t, bench.values) == 0}
                pointers = {n: nobody if n in hollow else p for n, p in bench.pointers(arena).items()}
                status, text = bench.enter(entry, bench.values, Launch(pointers))
                case = f"{entry}, {empty.name}, pointer {nobody:#x}"
                if (status, text) != (0, ""):
                    failures.append(Failure(case, f"status {status}, {text!r}"))
                    continue
                image = arena.read()
                if not arena.changed_regions(image) <= {tensor.name for tensor in symbol.outputs} - hollow:
                    failures.append(Failure(case, f"memory was written: {arena.changed_regions(image)}"))
                for tensor in symbol.outputs:
                    number = empty.fills.get(tensor.name, empty.fill)
                    expected = filled(symbol, tensor, number) * numel(tensor, bench.values)
                    if bench.outputs(arena, image)[tensor.name] != expected:
                        failures.append(Failure(case, f"{tensor.name} is not all {number}"))
        if bench.library.can_implement(symbol, bench.values) != 0:
            failures.append(Failure(f"can_implement, {empty.name}", bench.library.last_error()))
    report(failures)


@SYMBOLS
def test_nothing_to_write_comes_before_pointers_and_after_the_problem(backend: str, symbol: Symbol) -> None:
    failures = []
    valid = bench_for(backend, symbol)
    found = cases.faults(symbol, backend, valid.workspace_bytes)
    empties = [empty_problem(symbol, empty) for empty in cases.baseline(symbol).empties]
    written_nowhere = [values for values in empties if nothing_to_write(symbol, values)]
    # An output whose extents are numbers, a count, is written whatever the problem.
    assert written_nowhere or any(all(map(str.isdecimal, output.shape)) for output in symbol.outputs)
    for values in written_nowhere:
        bench = Bench(backend, symbol, values)
        late = [fault for fault in found if fault.stage > cases.LAST_STAGE_OF_THE_PROBLEM]
        for fault in late:
            arena = valid.arena(fault.misaligned)
            arena.write()
            status, text = bench.enter("run", values, launch_of(valid, arena, fault))
            if (status, text) != (0, ""):
                failures.append(Failure(f"nothing to write, {fault.name}", f"status {status}, {text!r}"))
            if arena.changed_regions(arena.read()):
                failures.append(Failure(f"nothing to write, {fault.name}", "memory was written"))
    # A wrong scalar in a problem that is empty for another reason is still wrong.
    for scalar in symbol.scalars:
        for values in written_nowhere:
            if scalar.low is None or values[scalar.name] == 0:
                continue
            wrong: Values = {**values, scalar.name: scalar.low - 1}
            status, text = valid.enter("run", wrong, Launch({t.name: 0 for t in symbol.tensors}))
            if status != 2 or scalar.name not in text:
                failures.append(Failure(f"empty and {scalar.name}={scalar.low - 1}", f"status {status}, {text!r}"))
    report(failures)


def test_library_functions(backend: str) -> None:
    functions = library_for(backend).functions
    assert functions.baracuda_kernels_backend_name().decode() == backend
    assert functions.baracuda_kernels_abi_hash() == _abi.ABI_HASH
    assert functions.baracuda_kernels_version().decode().count(".") == 2
    threads = functions.baracuda_kernels_cpu_threads()
    assert threads == 1 if backend == "cuda" else 1 <= threads <= 256
    functions.baracuda_kernels_set_interrupt_check(None, None)
    sets = ("portable", "avx2", "avx512") if backend == "cpu" else ("portable",)
    assert functions.baracuda_kernels_cpu_isa().decode() in sets


OUT_OF_MEMORY = """
import sys
sys.path[:0] = sys.argv[1:3]
import contract_cases as cases
from pybaracuda._check.abi_calls import Launch, Library, symbols, completed
library = Library("cpu")
for symbol in symbols():
    changes = cases.baseline(symbol).more_scratch_than_memory
    if changes is None:
        continue
    values = completed(symbol, {**cases.baseline(symbol).values, **changes})
    assert library.workspace_size(symbol, values) > 2**46, (symbol.name, library.workspace_size(symbol, values))
    # The addresses, far from each other, are never read: the scratch is asked for first.
    addresses = {tensor.name: 4096 + (place << 59) for place, tensor in enumerate(symbol.tensors)}
    status = library.run(symbol, values, Launch(addresses))
    assert status == 5, (symbol.name, status, library.last_error())
    text = library.last_error()
    assert text.startswith(symbol.name + ": ") and "memory" in text, text
    print(text)
"""


def test_scratch_that_no_machine_has_is_an_internal_error() -> None:
    # In a child: a sanitizer's allocator stops the process unless it is told not to.
    options = os.environ.get("ASAN_OPTIONS", "")
    environment = {**os.environ, "ASAN_OPTIONS": f"{options}:allocator_may_return_null=1"}
    paths = [str(Path(__file__).resolve().parent), str(Path(_abi.__file__).resolve().parent.parent)]
    result = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY, *paths], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) > 0
