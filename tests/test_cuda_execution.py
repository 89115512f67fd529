# SPDX-License-Identifier: Apache-2.0
"""How the CUDA library runs: captured into graphs, on streams that are held back, on two streams at once.

Every symbol, through the C ABI and the driver. What the results are is judged by test_bits.py, whose committed hashes
are the reference here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial

import pytest
from canaries import CAPACITY, CanaryBench, laid_out
from cuda_driver import Gate, Graph, Stream, driver

import pybaracuda
from pybaracuda._check import vectors
from pybaracuda._check.abi_calls import Library, Symbol, symbols
from pybaracuda._check.cases import Case, cases_of, output_elements
from pybaracuda._check.splitmix import Array
from verify.memory.arena import FILLS
from verify.memory.blocks import Memory, memory_for

SYMBOLS = pytest.mark.parametrize("symbol", symbols(), ids=lambda symbol: symbol.name)
# A workspace is given, or there is none and operands are aligned to their elements alone.
LAYOUTS = pytest.mark.parametrize("layout", ["tight", "loose"], ids=["workspace", "own-scratch"])

# A call that only enqueues takes microseconds; what waits for a closed gate never ends.
SECONDS_TO_RETURN = 30.0
SECONDS_TO_SEE_A_WAIT = 0.5


if not pybaracuda.backend_available("cuda"):
    pytest.skip("no CUDA", allow_module_level=True)


@pytest.fixture(autouse=True)
def cuda() -> None:
    driver().enter()


@cache
def library(backend: str = "cuda") -> Library:
    return Library(backend)


@cache
def memory(number: int = 0, backend: str = "cuda") -> Memory:
    return memory_for(backend, CAPACITY)


@cache
def stream(number: int = 0) -> Stream:
    return Stream()


@cache
def gate() -> Gate:
    return Gate()


@cache
def helper() -> ThreadPoolExecutor:
    """One thread that makes the calls that might not return."""
    return ThreadPoolExecutor(1, initializer=driver().enter)


@cache
def committed() -> vectors.Hashes:
    return vectors.committed()


def bench(case: Case, layout: str, number: int = 0) -> CanaryBench:
    return laid_out(case, library(), memory(number), layout)


def needs_scratch(case: Case) -> bool:
    return library().workspace_size(case.symbol, case.values) > 0


def backwards(case: Case) -> dict[str, Array]:
    """Other inputs of the same problem: the elements of every input in reverse order."""
    inputs = {}
    for tensor in case.symbol.tensors:
        if tensor.role == "input":
            rows = case.inputs[tensor.name].reshape(-1, case.symbol.element_bytes(tensor))
            inputs[tensor.name] = rows[::-1].ravel()
    return inputs


def assert_committed(placed: CanaryBench) -> None:
    assert vectors.hashed(placed.results()) == committed()[placed.case.name], placed.case.name


# ---- graphs


@SYMBOLS
@LAYOUTS
def test_a_graph_allocates_nothing_beside_a_workspace_and_replays(symbol: Symbol, layout: str) -> None:
    """Without a workspace it has one allocation and its release, where the problem needs scratch at all."""
    for case in cases_of(symbol):
        placed = bench(case, layout)
        placed.write(FILLS[0])
        graph = Graph(stream(), partial(placed.run, stream().handle))
        nodes = graph.nodes()
        own = int(layout == "loose" and needs_scratch(case))
        assert (nodes["allocation"], nodes["free"]) == (own, own), (case.name, nodes)
        # Kernels and the clearing of scratch, and nothing that runs on the host or reads from it.
        assert set(nodes) <= {"kernel", "memset", "allocation", "free"}, (case.name, nodes)
        assert bool(nodes) == (output_elements(case) > 0), (case.name, nodes)
        for fill in FILLS:
            placed.write(fill)  # outputs and workspace
            graph.replay()
            assert_committed(placed)
        other = backwards(case)
        placed.write(FILLS[0], other)
        graph.replay()
        on_host = laid_out(case, library("cpu"), memory(0, "cpu"))
        on_host.write(FILLS[1], other)
        on_host.run()
        assert placed.results() == on_host.results(), f"{case.name} with other data"
        graph.destroy()


def test_some_problems_need_scratch() -> None:
    """Or the allocations counted above would prove nothing."""
    assert any(needs_scratch(case) for symbol in symbols() for case in cases_of(symbol))


def test_captures_need_no_warm_up() -> None:
    """In a fresh process, where the first call of all is captured and no kernel is loaded yet."""
    script = f"import sys; sys.path[:0] = {sys.path!r}; import test_cuda_execution as t; t.capture_cold()"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == [symbol.name for symbol in symbols()]


def capture_cold() -> None:
    """Captures the first case of every symbol, with scratch of its own; prints the symbols that replay their bits."""
    driver().enter()
    for symbol in symbols():
        placed = bench(cases_of(symbol)[0], "loose")
        graph = Graph(stream(), partial(placed.run, stream().handle))
        placed.write(FILLS[0])
        graph.replay()
        assert_committed(placed)
        print(symbol.name)


# ---- no hidden synchronisation


def returns(call: Callable[[], None], seconds: float = SECONDS_TO_RETURN) -> Future[None] | None:
    """Makes a call in another thread; answers its future, or None if it has not returned in time."""
    future = helper().submit(call)
    return future if wait([future], seconds).done else None


@SYMBOLS
@LAYOUTS
def test_a_blocked_stream_returns_control(symbol: Symbol, layout: str) -> None:
    for case in cases_of(symbol):
        placed = bench(case, layout)
        call = partial(placed.run, stream().handle)
        placed.write(FILLS[0])
        helper().submit(call).result()  # the warm-up: loads the kernels, fills the pool
        placed.write(FILLS[1])
        with gate().closed(stream()):
            returned = returns(call)
            held = stream().is_busy()
        assert returned is not None, f"{case.name} waits for its stream"
        returned.result()
        assert held, f"{case.name}: the gate held nothing back"
        stream().synchronize()
        assert_committed(placed)


@pytest.mark.parametrize("name", ["cuStreamSynchronize", "cuCtxSynchronize"])
def test_a_call_that_waits_is_seen(name: str) -> None:
    """The control of the test above."""
    waiting: Callable[[], None] = partial(stream().call, name) if "Stream" in name else partial(driver().call, name)
    with gate().closed(stream()):
        returned = returns(waiting, SECONDS_TO_SEE_A_WAIT)
    assert returned is None
    # Once the gate is open it ends.
    assert returns(waiting) is not None


# ---- the calling thread


def test_a_thread_without_a_context_gets_none() -> None:
    """The stream's context is made current for the call alone."""
    case = cases_of(symbols()[0])[0]
    placed = bench(case, "loose")
    placed.write(FILLS[0])
    seen: list[int] = []

    def call() -> None:
        seen.append(driver().current_context())
        placed.run(stream().handle)
        seen.append(driver().current_context())

    with ThreadPoolExecutor(1) as fresh:
        fresh.submit(call).result()
    assert seen == [0, 0]
    stream().synchronize()
    assert_committed(placed)


# ---- two streams


@SYMBOLS
@LAYOUTS
def test_two_streams_at_once_give_the_same_bits(symbol: Symbol, layout: str) -> None:
    """Neighbouring cases run beside each other, each three times, all let go at the same moment."""
    found = cases_of(symbol)
    for pair in zip(found, found[1:] + found[:1], strict=True):
        placed = [bench(case, layout, number) for number, case in enumerate(pair)]
        for number, each in enumerate(placed):
            helper().submit(each.run, stream(number).handle).result()  # loads the kernels, fills the pool
            stream(number).synchronize()
            each.write(FILLS[0])
        calls = 3 * [partial(each.run, stream(number).handle) for number, each in enumerate(placed)]
        with gate().closed(stream(0), stream(1)):
            returned = [returns(call) for call in calls]
        for call in returned:
            assert call is not None, f"a call of {symbol.name} waits for its stream"
            call.result()
        stream(0).synchronize()
        stream(1).synchronize()
        for each in placed:
            assert_committed(each)
