# SPDX-License-Identifier: Apache-2.0
"""The fuzzer finds what it is for: planted faults must be reported with their seeds, found cases must stay mended."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pybaracuda
from tools.fuzzing import abi, call, draw, execute, judge, model
from tools.fuzzing.memory import PAGE, DeviceMemory

ROOT = Path(__file__).resolve().parent.parent
REGRESSIONS = Path(__file__).parent / "vectors" / "fuzz_regressions.json"
PLANTED = "affine_grid_2d_f32"
SEED = 20
# What the fuzzer says about each fault of tests/native/planted_call.c, in the order of its numbers.
FAULTS = {
    "wrong-status": r"run answers 2 \(''\), wanted 0",
    "unwritten": r"grid: element \d+ is not written",
    "past-end": r"run: beside grid was written|ended by SIGSEGV",
    "before-start": r"run: beside grid was written|ended by SIGSEGV",
    "wrong-bit": r"grid of run differs in 1 of \d+ elements",
    "input-written": r"run: theta was written",
    "failure-writes": r"run or run_packed: grid was written by a call that failed",
    "crash": r"the process was ended by SIGABRT",
    "hang": r"the process did not come back from it in 5 s",
    "wrong-check": r"can_implement answers 2 \(''\), wanted 0",
}


@cache
def executor(backend: str) -> execute.Executor:
    library = abi.Library(Path(pybaracuda.library_path(backend)))
    side = execute.side_of(library)
    on_host = abi.Library(Path(pybaracuda.library_path("cpu")))
    return execute.Executor(side, side._replace(library=on_host) if backend == "cpu" else execute.side_of(on_host))


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "fuzz.py"), *arguments],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def compiler() -> str:
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    assert found, "no C compiler, with which the library was built"
    return found.split()[-1]


@pytest.fixture
def shim(request: pytest.FixtureRequest, tmp_path: Path, compiler: str) -> Path:
    """A library with one planted fault, all else from the real one."""
    real = Path(pybaracuda.library_path("cpu"))
    # Under the name that the linker writes into the shim, whichever it is.
    for name in (real.name, f"{real.name}.0"):
        (tmp_path / name).symlink_to(real)
    library = tmp_path / "libplanted.so"
    number = list(FAULTS).index(str(request.param)) + 1
    command = [compiler, "-shared", "-fPIC", "-O1", f"-DPLANTED={number}", "-o", str(library)]
    command += [str(ROOT / "tests" / "native" / "planted_call.c"), "-Wl,--no-as-needed", str(real)]
    subprocess.run([*command, f"-Wl,-rpath,{tmp_path}", "-ldl"], check=True)
    return library


@pytest.mark.parametrize(("shim", "said"), FAULTS.items(), ids=FAULTS, indirect=["shim"])
def test_planted_fault_is_found_with_its_seed(shim: Path, said: str) -> None:
    real = str(pybaracuda.library_path("cpu"))
    options = ["--lib", str(shim), "--against", real, "--hang", "5" if "5 s" in said else "120"]
    result = fuzz(*options, "--only", f"^{PLANTED}$", "--seed", str(SEED), "--calls", "120000", "--findings", "1")
    assert result.returncode == 1, result.stdout + result.stderr
    assert re.search(said, result.stdout), result.stdout
    found = re.search(rf"FOUND {PLANTED}, --reproduce ({SEED}:\d+)", result.stdout)
    assert found, result.stdout
    # The same call alone.
    again = fuzz(*options, "--reproduce", found[1])
    assert again.returncode == 1
    assert re.search(said, again.stdout), again.stdout


def test_differing_bits_of_the_other_library_are_found(tmp_path: Path, compiler: str) -> None:
    """Both entries of the library agree; the one that it is compared with does not."""
    runner = executor("cpu")
    other = runner.other
    assert other is not None
    real = other.library.functions(abi.by_name()[PLANTED])

    class Wrong(abi.Library):
        def functions(self, symbol: abi.Symbol) -> abi.Functions:
            return real._replace(run=wrong)

    def wrong(*arguments: Any) -> int:
        status = int(real.run(*arguments))
        if arguments[4]:
            first = abi.C_TYPES["b8"].from_address(arguments[4])
            first.value ^= 1
        return status

    library = Wrong(other.library.path)
    changed = execute.Executor(runner.side, runner.side._replace(library=library))
    found = [finding.what for number in numbers_of(PLANTED, 30) for finding in drawn(changed, number).findings]
    assert found
    assert all(what.startswith("grid differs in 1 of ") for what in found)


def numbers_of(name: str, count: int) -> list[int]:
    """The numbers of the first calls of a symbol."""
    first = next(number for number, symbol in enumerate(abi.symbols()) if symbol.name == name)
    return [first + turn * len(abi.symbols()) for turn in range(count)]


def drawn(runner: execute.Executor, number: int) -> execute.Outcome:
    found = draw.call_of(SEED, number, runner.streams)
    return runner.run(found.call, found.judged)


def test_calls_are_a_function_of_seed_and_number(backend: str) -> None:
    streams = executor(backend).streams
    for number in range(0, 3 * len(abi.symbols()), 7):
        one, two = (draw.call_of(SEED, number, streams).call for _ in range(2))
        # As text, in which a NaN equals itself.
        assert call.to_json(one) == call.to_json(two)
        assert call.to_json(call.from_json(call.to_json(one))) == call.to_json(one)
    assert call.to_json(draw.call_of(SEED, 0, streams).call) != call.to_json(draw.call_of(SEED + 1, 0, streams).call)


def test_every_symbol_succeeds_is_refused_and_is_compared(backend: str) -> None:
    """What is drawn is neither all wrong nor all right, for any symbol; and the library passes."""
    runner = executor(backend)
    for symbol in abi.symbols():
        outcomes: list[execute.Outcome] = []
        # What a call is depends on how many symbols there are, too: some have to wait long for what they lack.
        for number in numbers_of(symbol.name, 240):
            succeeds = any(outcome.status == model.OK and outcome.compared for outcome in outcomes)
            if len(outcomes) >= 24 and succeeds and any(outcome.status != model.OK for outcome in outcomes):
                break
            outcomes.append(drawn(runner, number))
            assert not outcomes[-1].findings, f"{symbol.name}: {outcomes[-1].findings}"
        assert any(outcome.status == model.OK and outcome.compared for outcome in outcomes), symbol.name
        assert any(outcome.status != model.OK for outcome in outcomes), symbol.name


class HostDriver:
    """As much of the CUDA driver as memory needs, in host memory that NumPy holds."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 0  # contexts and waiting

    def cuMemAlloc_v2(self, pointer: Any, size: Any) -> int:  # noqa: N802
        block = np.full(size.value + 16, 0xEE, np.uint8)
        self.kept.append(block)
        pointer._obj.value = int(block.ctypes.data) + -int(block.ctypes.data) % 16
        return 0

    def cuMemcpyHtoD_v2(self, there: Any, host: Any, size: Any) -> int:  # noqa: N802
        ctypes.memmove(there.value, host.value, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, host: Any, there: Any, size: Any) -> int:  # noqa: N802
        ctypes.memmove(host.value, there.value, size.value)
        return 0


def test_device_memory_is_a_copy_between_canaries() -> None:
    """The CPU library on memory that goes through a driver's copies gives no finding; a write beside it is one."""
    runner = executor("cpu")
    driver = HostDriver()
    memory = DeviceMemory(execute.MOST_TENSORS + 1, draw.MOST_BYTES + 2 * PAGE, driver)
    library = abi.Library(runner.side.library.path)
    staged = execute.Executor(execute.Side(library, memory), runner.side)
    compared = 0
    for number in range(2000, 2000 + len(abi.symbols())):
        found = draw.call_of(SEED, number, 0)
        outcome = staged.run(found.call, found.judged)
        assert not outcome.findings, f"{SEED}:{number}: {outcome.findings}"
        compared += outcome.compared
    assert compared > 100
    functions = library.functions(abi.by_name()[PLANTED])

    def beside(*arguments: Any) -> int:
        status = int(functions.run(*arguments))
        ctypes.c_uint8.from_address(arguments[4] - 1).value = 0
        return status

    library._functions[PLANTED] = functions._replace(run=beside)
    good = [draw.call_of(SEED, number, 0) for number in numbers_of(PLANTED, 40)]
    said = [
        finding.what
        for each in good
        if each.judged.verdict.status == model.OK
        and not each.judged.is_empty
        and each.call.places["grid"].at != "null"
        and each.call.alias is None
        for finding in staged.run(each.call, each.judged).findings
    ]
    assert said
    assert all("beside grid was written" in what for what in said), said


def test_model_knows_outputs_that_overlap_themselves() -> None:
    def span(shape: list[int], strides: list[int]) -> model.Span:
        return model.Span(shape, strides, 0, 0, math.prod(shape))

    assert not model.overlaps_itself(span([3, 4], [4, 1]))
    assert not model.overlaps_itself(span([4, 3], [1, 4]))
    assert not model.overlaps_itself(span([2, 3], [-5, 2]))
    assert not model.overlaps_itself(span([2, 2], [3, 2]))  # 0, 2, 3, 5: steps that are no multiples
    assert model.overlaps_itself(span([3, 4], [2, 1]))
    assert model.overlaps_itself(span([3, 3], [2, 4]))
    assert model.overlaps_itself(span([2, 1], [0, 7]))


def test_model_allows_the_refusal_of_irregular_strides_and_of_no_others() -> None:
    def span(*strides: int) -> model.Span:
        return model.Span([60] * len(strides), list(strides), 0, 0, 60 ** len(strides))

    assert model.may_be_too_irregular(span(6, 10, 15))
    assert model.may_be_too_irregular(span(6, 10), span(-15))
    assert not model.may_be_too_irregular(span(3600, 60, 1))
    assert not model.may_be_too_irregular(span(6, 10, 30, 0))
    assert not model.may_be_too_irregular(model.Span([60, 1, 60], [6, 10, 15], 0, 0, 3600))

    symbol = abi.by_name()["pad_constant_b8"]

    def findings(verdict: model.Verdict, status: int, text: str) -> list[str]:
        found: list[str] = []
        judge.check_answer(found.append, "run", symbol, verdict, status, text)
        return found

    text = f"{symbol.prefix}output_strides are too irregular to tell whether two elements of output share a place"
    irregular = model.Verdict(model.OK, irregular=frozenset({"output"}))
    assert findings(irregular, model.INVALID, text) == []
    assert findings(irregular, model.INVALID, f"{symbol.prefix}output is NULL") != []
    assert findings(model.PASSED, model.INVALID, text) != []


def regressions() -> list[dict[str, Any]]:
    return list(json.loads(REGRESSIONS.read_text())["cases"])


@pytest.mark.parametrize("case", regressions(), ids=lambda case: case["name"])
def test_regression(backend: str, case: dict[str, Any]) -> None:
    found = call.from_json(json.dumps(case["call"]))
    outcome = executor(backend).run(found)
    assert [finding.what for finding in outcome.findings] == []
    assert outcome.status == case["status"]
