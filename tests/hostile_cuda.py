# SPDX-License-Identifier: Apache-2.0
"""Hostile uses of the CUDA library, each a program of its own: python3 tests/hostile_cuda.py CASE [ARGUMENT...]

Run by test_cuda_hostile.py, since most of them leave a process that CUDA no longer serves. A case says what it sees
and raises what it does not accept; one that reached its end prints "done" as its last line.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

# Behind an installed package, so that a script finds this tree's when there is none.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import canaries
import numpy as np
from canaries import laid_out
from cuda_driver import CAPTURE_MODE_THREAD_LOCAL, Graph, Stream, driver

import pybaracuda
from pybaracuda._check import content, vectors
from pybaracuda._check.abi_calls import Launch, Library, Symbol, Values, completed, numel, span, symbols
from pybaracuda._check.cases import Case, cases_of
from pybaracuda._check.runs import Bench, sizes_of
from pybaracuda._check.vectors import hashed
from verify.memory.arena import FILLS
from verify.memory.blocks import DeviceMemory, HostMemory, Memory, memory_for

# Before the parent's own limit, so that a case that hangs says where.
SECONDS_TO_HANG = float(os.environ.get("BARACUDA_HOSTILE_SECONDS", "100"))
# The driver API's numbers.
OUT_OF_MEMORY = 2
CAPTURE_MODE_GLOBAL = 0
ALLOCATION_NODE = 10

# fault() writes to an address that nobody has, spin() ends after some nanoseconds. The driver compiles them.
KERNELS = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry fault() {
  .reg .u64 %a;
  .reg .u32 %v;
  mov.u64 %a, 64;
  mov.u32 %v, 1;
  st.global.u32 [%a], %v;
  ret;
}
.visible .entry spin(.param .u64 nanoseconds) {
  .reg .u64 %t<4>;
  .reg .pred %p;
  ld.param.u64 %t0, [nanoseconds];
  mov.u64 %t1, %globaltimer;
again:
  mov.u64 %t2, %globaltimer;
  sub.u64 %t3, %t2, %t1;
  setp.lt.u64 %p, %t3, %t0;
  @%p bra again;
  ret;
}
"""


def say(*words: Any) -> None:
    print(*words, flush=True)


@cache
def library(backend: str = "cuda") -> Library:
    return Library(backend)


@cache
def symbol_called(name: str) -> Symbol:
    return next(symbol for symbol in symbols() if symbol.name == name)


def typical(name: str = "roi_align_backward_f32") -> Case:
    """The first fixed case of a symbol; the one of this symbol needs scratch."""
    return cases_of(symbol_called(name))[0]


def one_of_each_operator() -> Iterator[Case]:
    """The first case of every operator's first variant."""
    seen: set[str] = set()
    for symbol in symbols():
        if symbol.operator.name not in seen:
            seen.add(symbol.operator.name)
            yield cases_of(symbol)[0]


def placed_on_device(case: Case, layout: str = "loose", memory: Memory | None = None) -> Bench:
    placed = laid_out(case, library(), memory or memory_for("cuda", canaries.CAPACITY), layout)
    placed.write(FILLS[0])
    return placed


def assert_right(placed: Bench) -> None:
    assert hashed(placed.results()) == vectors.committed()[placed.case.name], f"{placed.case.name}: other bits"


def assert_healthy(stream: Stream | None = None) -> None:
    """A call on the device still answers the committed bits."""
    driver().enter()
    stream = stream or Stream()
    placed = placed_on_device(typical())
    placed.run(stream.handle)
    stream.synchronize()
    assert_right(placed)
    say("the device's results are right")


def assert_host_healthy() -> None:
    case = typical()
    placed = laid_out(case, library("cpu"), HostMemory(canaries.CAPACITY))
    placed.write(FILLS[0])
    placed.run()
    assert_right(placed)
    say("the CPU library's results are right")


def assert_refused(status: int, *words: str) -> str:
    """The last call answered 5 and its text has these words."""
    text = library().last_error()
    say("status", status, text)
    assert status == 5, f"status {status}"
    assert text, "no text"
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"
    return text


def launch(kernel: str, stream: Stream, nanoseconds: int | None = None) -> None:
    """Enqueues one of KERNELS, somebody else's as far as the library knows."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver().call("cuModuleLoadData", ctypes.byref(module), KERNELS)
    driver().call("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
    parameters = None
    if nanoseconds is not None:
        value = ctypes.c_uint64(nanoseconds)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    one = ctypes.c_uint(1)
    handle = ctypes.c_void_p(stream.handle)
    driver().call("cuLaunchKernel", function, one, one, one, one, one, one, ctypes.c_uint(0), handle, parameters, None)


def synchronized(stream: Stream) -> int:
    """Waits for a stream; answers CUDA's status."""
    status = driver().status("cuStreamSynchronize", ctypes.c_void_p(stream.handle))
    say("the stream ends with", status, driver().error_name(status))
    return status


# ---- handles that are none


def _bad_stream(kind: str) -> int:
    """A stream's handle that must not be used any more, or never was one; the library has been used before."""
    assert_healthy()
    if kind == "never-made":
        return 0xDEAD0
    if kind == "destroyed":
        stream = Stream()
        stream.call("cuStreamDestroy_v2")
        return stream.handle
    context = ctypes.c_void_p()
    driver().call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    stream = Stream()
    driver().call("cuCtxDestroy_v2", context)
    driver().enter()
    return stream.handle


def bad_stream_in_the_driver(kind: str) -> None:
    """What the driver alone makes of it, asked as the library asks."""
    handle = _bad_stream(kind)
    context = ctypes.c_void_p()
    say("calling")
    status = driver().status("cuStreamGetCtx", ctypes.c_void_p(handle), ctypes.byref(context))
    say("cuStreamGetCtx answered", status, driver().error_name(status))


def bad_stream(kind: str) -> None:
    handle = _bad_stream(kind)
    placed = placed_on_device(typical())
    say("calling")
    status = placed.status(handle)
    say("answered", status)
    if status:
        assert_refused(status)
    assert_healthy()


# ---- addresses that are none


def bad_address(kind: str) -> None:
    """An input that is in host memory, freed, or nowhere: CUDA finds out while the kernel runs, if at all."""
    stream = Stream()
    assert_healthy(stream)
    placed = placed_on_device(typical())
    name = next(tensor.name for tensor in placed.case.symbol.tensors if tensor.role == "input")
    content = placed.case.inputs[name]
    address = 0x7000_0000_0000
    if kind == "host":
        address = content.ctypes.data
    elif kind == "freed":
        memory = DeviceMemory(64 << 20)
        address = memory.address
        memory.free()
    status = placed.status(stream.handle, {name: address})
    say("status", status, library().last_error())
    assert status in (0, 5)
    if synchronized(stream) == 0 and status == 0:
        # Memory that this GPU can reach all the same: by the system's page tables, or since the driver kept it.
        if kind == "host":
            assert_right(placed)
        assert_healthy()
    else:
        for _ in range(3):
            assert_refused(placed.status(stream.handle))
    assert_host_healthy()


# ---- no device


def _never_reached(case: Case, values: Values) -> dict[str, int]:
    """Addresses for a call that is refused before it touches them; no two tensors share a byte."""
    addresses, address = {}, 4096
    for tensor in case.symbol.tensors:
        addresses[tensor.name] = address
        address += -(-numel(tensor, values) * case.symbol.element_bytes(tensor) // 4096) * 4096
    return addresses


def no_device() -> None:
    """Run with no device visible."""
    assert not pybaracuda.backend_available("cuda")
    say(pybaracuda.backend_problem("cuda"))
    case = typical()
    pointers = _never_reached(case, case.values)
    for workspace_bytes in (0, library().workspace_size(case.symbol, case.values)):
        for stream in (0, 1, 2):
            given = Launch(pointers, 4096 if workspace_bytes else 0, workspace_bytes, stream)
            assert_refused(library().run(case.symbol, case.values, given), "cudaErrorNoDevice")
    assert library().can_implement(case.symbol, case.values) == 0
    assert library().workspace_size(case.symbol, case.values) > 0
    try:
        _ = pybaracuda.RoiAlignPlan.select(
            pybaracuda.RoiAlignDescriptor(1, 1, 4, 4, 1, 2, 2),
            preference=pybaracuda.PlanPreference(prefer_backend="cuda"),
        ).sku
    except pybaracuda.BackendUnavailableError as error:
        say("BackendUnavailableError:", error)
    else:
        raise AssertionError("a plan for CUDA says what would run")
    assert_host_healthy()


# ---- forks


def _in_a_child(work: Callable[[], None], leave: Callable[[int], Any] = os._exit) -> None:
    """Does the work in a forked child, which must end in time and well."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            say("in the child:", repr(error))
            os._exit(3)
        sys.stdout.flush()
        leave(0)
    for _ in range(200):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0, f"the child ended with {status}"
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def fork(leave: str) -> None:
    """In the child the CPU library works and CUDA, which was initialised before, is refused."""
    stream = Stream()
    assert_healthy(stream)
    placed = placed_on_device(typical())

    def child() -> None:
        assert_host_healthy()
        for handle in (stream.handle, 0):
            assert_refused(placed.status(handle))
        assert_host_healthy()

    for _ in range(3):
        _in_a_child(child, os._exit if leave == "at-once" else sys.exit)
    assert_healthy(stream)


def fork_in_the_driver() -> None:
    """A child that ends by the interpreter, as for the library, in a process that has used the driver alone."""
    memory = DeviceMemory(1 << 20)
    memory.write(np.zeros(1 << 20, np.uint8))
    _in_a_child(lambda: None, sys.exit)


def fork_before_use() -> None:
    """A library that was loaded and not yet used serves both."""
    library()
    library("cpu")
    _in_a_child(assert_healthy)
    assert_healthy()


# ---- memory


def _too_large(case: Case) -> tuple[Values, int]:
    """A problem with so many boxes that its scratch is larger than any device; and its bytes."""
    large = {"n": 1, "c": 1, "h": 2**15, "w": 2**15, "pooled_h": 2**10, "pooled_w": 2**10}
    for exponent in range(10, 31):
        values: Values = {**case.values, **large, "num_rois": 2**exponent}
        wanted = library().workspace_size(case.symbol, values)
        if wanted > 2**40:
            return values, wanted
    raise AssertionError(f"{case.name} never wants much scratch")


def scratch_that_does_not_fit() -> None:
    stream = Stream()
    assert_healthy(stream)
    case = typical()
    values, wanted = _too_large(case)
    pointers = _never_reached(case, values)
    for handle in (stream.handle, 0):
        text = assert_refused(
            library().run(case.symbol, values, Launch(pointers, stream=handle)), str(wanted), "bytes free"
        )
        free = int(text.partition("device 0 has ")[2].split()[0])
        total = ctypes.c_size_t()
        driver().call("cuMemGetInfo_v2", ctypes.byref(ctypes.c_size_t()), ctypes.byref(total))
        assert 0 < free <= total.value, (free, total.value)
        assert_healthy(stream)
    # While the stream is captured nothing is allocated yet, and nobody may ask how much is free.
    statuses: list[int] = []
    given = Launch(pointers, stream=stream.handle)
    with suppress(AssertionError, RuntimeError):
        Graph(stream, lambda: statuses.append(library().run(case.symbol, values, given)))
    say("captured:", statuses, library().last_error())
    assert statuses[0] in (0, 5)
    assert_healthy(Stream())


def _filled() -> list[tuple[int, int]]:
    """All memory of the device, as (address, bytes), the small pieces last."""
    held = []
    for size in (1 << 30, 1 << 28, 1 << 26, 1 << 24, 1 << 22, 1 << 21):
        while True:
            address = ctypes.c_uint64()
            status = driver().status("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            if status == OUT_OF_MEMORY:
                break
            assert status == 0, driver().error_name(status)
            held.append((address.value, size))
    free = ctypes.c_size_t()
    driver().call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(ctypes.c_size_t()))
    say(f"{sum(size for _, size in held)} bytes held, {free.value} bytes free")
    return held


def _give_back(held: list[tuple[int, int]], wanted: int) -> None:
    """Frees the smallest pieces until so many bytes are free."""
    given = 0
    while held and given < wanted:
        address, size = held.pop()
        driver().call("cuMemFree_v2", ctypes.c_uint64(address))
        given += size


def _sum_of_zeros(rows: int, stream: Stream, ids: int, data: int, output: int) -> int:
    """A sum of zeros over segments; large enough to want much scratch. All memory but the output's holds zeros."""
    symbol = symbol_called("unsorted_segment_sum_f32")
    values = completed(symbol, {"num_inputs": rows, "embedding_dim": 1, "num_segments": 1 << 16})
    pointers = {"input": data, "segment_ids": ids, "output": output}
    driver().call("cuMemsetD8_v2", ctypes.c_uint64(output), ctypes.c_ubyte(0xA5), ctypes.c_size_t(4 << 16))
    status = library().run(symbol, values, Launch(pointers, stream=stream.handle))
    text = library().last_error()
    stream.synchronize()
    result = np.empty(1 << 16, np.uint32)
    driver().call(
        "cuMemcpyDtoH_v2", ctypes.c_void_p(result.ctypes.data), ctypes.c_uint64(output), ctypes.c_size_t(result.nbytes)
    )
    if status == 0:
        assert not result.any(), f"{rows} rows: the sums of zeros are not zeros"
    else:
        assert status == 5, (status, text)
        wanted = library().workspace_size(symbol, values)
        assert "memory" in text, text
        assert "scratch" not in text or f"wanted {wanted} bytes" in text, text
        if "scratch" in text:
            assert (result == 0xA5A5A5A5).all(), "a call that failed for want of scratch wrote"
    return status


def less_and_less_memory() -> None:
    """Calls with scratch of many sizes while the device has less and less memory for it; then more again."""
    stream = Stream()
    sizes = [1 << exponent for exponent in range(16, 27)]
    most = 4 * sizes[-1]
    zeros, output = DeviceMemory(most), DeviceMemory(4 << 16)
    driver().call("cuMemsetD8_v2", ctypes.c_uint64(zeros.address), ctypes.c_ubyte(0), ctypes.c_size_t(most))
    call = partial(_sum_of_zeros, stream=stream, ids=zeros.address, data=zeros.address, output=output.address)
    assert call(sizes[0]) == 0
    held = _filled()
    seen: dict[int, list[int]] = {}
    for room in (0, 2 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20, 2 << 30):
        _give_back(held, room)
        seen[room] = [call(rows) for rows in sizes]
        say(f"{room} bytes given back: {seen[room]}; {library().last_error()}")
    assert 5 in seen[0], "memory never ran out"
    _give_back(held, 1 << 60)
    assert [call(rows) for rows in sizes] == [0] * len(sizes)
    assert_healthy(stream)


def first_calls_on_a_full_device() -> None:
    """No kernel is loaded yet and none may fit; what failed for want of memory works when there is some."""
    stream = Stream()
    memory = DeviceMemory(canaries.CAPACITY)
    found = list(one_of_each_operator())
    held = _filled()
    refused: set[str] = set()
    for case in found:
        placed = placed_on_device(case, "loose", memory)
        status = placed.status(stream.handle)
        if status:
            text = assert_refused(status)
            refused.add(case.name)
            # Once a kernel did not fit, the driver may say of the next one that it does not know why.
            assert "memory" in text or "cudaErrorUnknown" in text, text
        assert synchronized(stream) == 0
        if not status:
            assert_right(placed)
    say(f"{len(refused)} of {len(found)} first calls failed")
    _give_back(held, 1 << 60)
    lost = 0
    for case in found:
        placed = placed_on_device(case, "loose", memory)
        status = placed.status(stream.handle)
        if status:
            # Of a kernel that did not fit it may go on to say that for as long as the process lives:
            # docs/gpu_limits.md.
            assert "cudaErrorUnknown" in assert_refused(status)
            assert case.name in refused
            lost += 1
        else:
            assert_right(placed)
    say(f"{lost} of them fail still")
    assert lost < len(refused), "no kernel was loaded once there was memory"


def a_process_that_starts_on_a_full_device() -> None:
    """Its first calls fail, for not even a context fits; its later ones work."""
    held = _filled()
    command = [sys.executable, __file__, "starts_on_a_full_device"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line in child.stdout:
            say("  child:", line.rstrip())
            if line.startswith("full"):
                _give_back(held, 1 << 60)
                child.stdin.write("go on\n")
                child.stdin.flush()
        assert child.wait(60) == 0


def starts_on_a_full_device() -> None:
    """The other process of the case above: no context of its own before its calls have failed."""
    case = typical()
    pointers = _never_reached(case, case.values)
    for stream in (0, 1, 2):
        assert_refused(library().run(case.symbol, case.values, Launch(pointers, stream=stream)))
    say("full")
    sys.stdin.readline()
    assert_healthy()


# ---- errors of others


def sticky_error(when: str) -> None:
    """Somebody else's kernel has broken the context, before our calls or while they are enqueued."""
    stream = Stream()
    assert_healthy(stream)
    placed = [placed_on_device(typical(), layout) for layout in ("tight", "loose")]
    launch("fault", stream)
    if when == "before":
        assert synchronized(stream) != 0
    statuses = [each.status(stream.handle) for each in placed for _ in range(20)]
    say(statuses, library().last_error())
    assert set(statuses) <= ({5} if when == "before" else {0, 5})
    assert synchronized(stream) != 0
    for each in placed:
        for handle in (stream.handle, 0):
            assert_refused(each.status(handle), "illegal")
    assert_host_healthy()


def pending_errors() -> None:
    """An error that waits in another runtime of the process is left to its owner; ours never shows there."""
    from cuda.bindings import runtime

    placed = placed_on_device(typical())
    (error,) = runtime.cudaSetDevice(1000)
    assert int(error) != 0
    assert placed.status(0) == 0, library().last_error()
    (pending,) = runtime.cudaPeekAtLastError()
    say("their pending error after our call:", pending)
    assert pending == error
    runtime.cudaGetLastError()
    case = typical()
    values, _ = _too_large(case)
    pointers = _never_reached(case, values)
    assert_refused(library().run(case.symbol, values, Launch(pointers)))
    (pending,) = runtime.cudaPeekAtLastError()
    say("their pending error after our failure:", pending)
    assert int(pending) == 0
    assert_healthy()


def failed_capture() -> None:
    """A capture that was spoilt refuses further calls; the stream serves again when it has ended."""
    stream = Stream()
    assert_healthy(stream)
    for layout in ("tight", "loose"):
        placed = placed_on_device(typical(), layout)
        stream.call("cuStreamBeginCapture_v2", CAPTURE_MODE_GLOBAL)
        placed.run(stream.handle)
        spoilt = driver().status("cuStreamSynchronize", ctypes.c_void_p(stream.handle))
        assert spoilt != 0
        assert_refused(placed.status(stream.handle), "apture")
        graph = ctypes.c_void_p()
        ended = driver().status("cuStreamEndCapture", ctypes.c_void_p(stream.handle), ctypes.byref(graph))
        say("the capture ends with", driver().error_name(ended))
        assert ended != 0
        assert_healthy(stream)
        # The legacy stream would have to wait for the stream that is captured.
        stream.call("cuStreamBeginCapture_v2", CAPTURE_MODE_GLOBAL)
        assert_refused(placed.status(0), "apture")
        ended = driver().status("cuStreamEndCapture", ctypes.c_void_p(stream.handle), ctypes.byref(graph))
        say("the capture ends with", driver().error_name(ended))
        assert_healthy(stream)


def other_context() -> None:
    """A context that is not the device's primary one: its memory, its streams, its default stream; twice."""
    assert_healthy()
    for turn in range(2):
        context = ctypes.c_void_p()
        driver().call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
        stream = Stream()
        address = ctypes.c_uint64()
        driver().call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(canaries.CAPACITY))
        for case in one_of_each_operator():
            for layout, handle in (("tight", stream.handle), ("loose", stream.handle), ("loose", 0)):
                memory = _Lent(address.value)
                placed = laid_out(case, library(), memory, layout)
                placed.write(FILLS[0])
                placed.run(handle)
                driver().call("cuCtxSynchronize")
                assert driver().current_context() == context.value, "another context is current after the call"
                assert_right(placed)
        say(f"turn {turn}: all results are right")
        driver().call("cuCtxDestroy_v2", context)
        assert_healthy()


class _Lent:
    """Device memory in whatever context is current."""

    def __init__(self, address: int) -> None:
        self.address, self.capacity = address, canaries.CAPACITY

    def write(self, image: Any) -> None:
        source = ctypes.c_void_p(image.ctypes.data)
        driver().call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), source, ctypes.c_size_t(image.size))

    def read(self, count: int) -> Any:
        image = np.empty(count, np.uint8)
        target = ctypes.c_void_p(image.ctypes.data)
        driver().call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(self.address), ctypes.c_size_t(count))
        return image

    def free(self) -> None:
        driver().call("cuMemFree_v2", ctypes.c_uint64(self.address))


def reset_device() -> None:
    """The device's primary context is torn down under the library."""
    stream = Stream()
    assert_healthy(stream)
    driver().call("cuDevicePrimaryCtxReset_v2", 0)
    say("reset")
    # The context that was current is gone, and a new one has to be asked for.
    context = ctypes.c_void_p()
    driver().call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    driver().call("cuCtxSetCurrent", context)
    say("entered")
    memory = DeviceMemory(canaries.CAPACITY)
    placed = laid_out(typical(), library(), memory, "loose")
    placed.write(FILLS[0])
    new = Stream()
    for _ in range(3):
        status = placed.status(new.handle)
        say("status", status, library().last_error())
        if status:
            assert_refused(status)
        else:
            new.synchronize()
            assert_right(placed)
    assert_host_healthy()


def host_function() -> None:
    """A call from a function that CUDA runs on the host, where no CUDA call is allowed."""
    stream, other = Stream(), Stream()
    assert_healthy(stream)
    placed = placed_on_device(typical())
    seen: list[tuple[int, str]] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def called(_: Any) -> None:
        seen.append((placed.status(other.handle), library().last_error()))

    stream.call("cuLaunchHostFunc", called, None)
    stream.synchronize()
    say(seen)
    assert seen
    assert seen[0][0] in (0, 5)
    assert seen[0][0] == 0 or seen[0][1]
    assert_healthy(stream)


# ---- many threads


def _images(channels: int, side: int, seed: int) -> Case:
    """grid_sample of images that a block holds as a whole: the larger the image, the more shared memory it asks for."""
    symbol = symbol_called("grid_sample_2d_f32")
    names = ("n", "c", "input_h", "input_w", "output_h", "output_w")
    values = completed(symbol, dict(zip(names, (10, channels, side, side, side, side), strict=True)))
    inputs = {}
    for tensor in symbol.tensors:
        if tensor.role == "input":
            maker = content.positions if tensor.name == "grid" else content.plain
            inputs[tensor.name] = maker(seed, span(tensor, values).elements, symbol.dtype(tensor), values)
    return Case(f"images of {side} x {side}", "", symbol, values, inputs)


def sizes_side_by_side() -> None:
    """Threads that launch one kernel with different amounts of shared memory do not disturb each other."""
    found = [_images(64, side, side) for side in (16, 24, 40, 56)]
    expected = []
    for case in found:
        on_host = laid_out(case, library("cpu"), HostMemory(canaries.CAPACITY))
        on_host.write(FILLS[0])
        on_host.run()
        expected.append(on_host.results())
    failed: list[str] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        case = found[number % len(found)]
        try:
            driver().enter()
            stream = Stream()
            placed = placed_on_device(case)
            start.wait()
            for turn in range(2000):
                status = placed.status(stream.handle)
                if status:
                    failed.append(f"{case.name}, turn {turn}: {status} {library().last_error()}")
                    break
            stream.synchronize()
            if placed.results() != expected[number % len(found)]:
                failed.append(f"{case.name}: other bits than the CPU library's")
        except BaseException as error:
            failed.append(f"{case.name}: {error!r}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


# ---- modes


def sweep() -> None:
    """Calls with a workspace and without, for environments in which CUDA behaves differently."""
    say({name: value for name, value in os.environ.items() if name.startswith("CUDA_")})
    stream = Stream()
    memory = DeviceMemory(canaries.CAPACITY)
    count = 0
    for symbol in symbols()[::5]:
        case = cases_of(symbol)[0]
        for layout in ("tight", "loose"):
            placed = placed_on_device(case, layout, memory)
            placed.run(stream.handle)
            stream.synchronize()
            assert_right(placed)
            count += 1
    say(f"{count} calls are right")


def capture() -> None:
    """A capture works or is refused; where CUDA waits for every launch it may be refused."""
    stream = Stream()
    assert_healthy(stream)
    for layout in ("tight", "loose"):
        placed = placed_on_device(typical(), layout)
        statuses: list[int] = []
        graph = None
        try:
            graph = Graph(stream, lambda placed=placed, seen=statuses: seen.append(placed.status(stream.handle)))
        except (AssertionError, RuntimeError) as error:
            say("the capture fails:", error)
        if statuses == [0] and graph is not None:
            graph.replay()
            assert_right(placed)
            say("the graph's results are right")
        else:
            assert_refused(statuses[0])
        assert_healthy(stream)


# ---- ends


def end(how: str) -> None:
    """The process ends in some way while other threads call and kernels run."""
    started = [threading.Event() for _ in range(4)]

    def work(number: int) -> None:
        driver().enter()
        stream = Stream()
        placed = placed_on_device(typical(), ("tight", "loose")[number % 2])
        for turn in range(sys.maxsize):
            placed.run(stream.handle)
            if turn == 50:
                started[number].set()
            if turn % 64 == 63:
                stream.synchronize()  # or the work to do would grow without end

    for number in range(len(started)):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    for event in started:
        assert event.wait(60)
    if how == "while a kernel runs":
        stream = Stream()
        launch("spin", stream, 3 * 10**9)
        placed = placed_on_device(typical())
        for _ in range(50):
            placed.run(stream.handle)
    elif how == "while capturing":
        stream = Stream()
        placed = placed_on_device(typical())
        stream.call("cuStreamBeginCapture_v2", CAPTURE_MODE_THREAD_LOCAL)
        placed.run(stream.handle)
    elif how == "after forks":
        for _ in range(5):
            _in_a_child(assert_host_healthy)
    say("ending:", how)
    if how == "sys.exit":
        sys.exit(7)
    if how == "os._exit":
        os._exit(7)
    if how == "an exception":
        raise RuntimeError("the end")
    if how == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)


# ---- two devices


def both_devices() -> None:
    """The same bits on both, on streams of both from a thread where either is current; nothing current changes."""
    streams, memories = [], []
    for number in range(2):
        driver(number).enter()
        streams.append(Stream())
        address = ctypes.c_uint64()
        driver().call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(canaries.CAPACITY))
        memories.append(_Lent(address.value))
    count = 0
    for symbol in symbols()[::3]:
        case = cases_of(symbol)[0]
        for number in range(2):
            for layout, current in (("tight", 0), ("loose", 1), ("loose", 0), ("default stream", number)):
                driver(number).enter()
                placed = laid_out(case, library(), memories[number], "tight" if layout == "tight" else "loose")
                placed.write(FILLS[0])
                driver().call("cuCtxSynchronize")
                driver(current).enter()
                before = driver().current_context()
                placed.run(0 if layout == "default stream" else streams[number].handle)
                assert driver().current_context() == before, f"{case.name}: another context is current after the call"
                driver(number).enter()
                driver().call("cuCtxSynchronize")
                assert_right(placed)
                count += 1
    say(f"{count} calls on two devices are right")


def a_pool_for_each_device() -> None:
    """Scratch comes from the device of the stream, whichever is current."""
    seen = []
    for number in range(2):
        for current in range(2):
            driver(number).enter()
            stream = Stream()
            address = ctypes.c_uint64()
            driver().call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(canaries.CAPACITY))
            placed = laid_out(typical(), library(), _Lent(address.value), "loose")
            placed.write(FILLS[0])
            stream.call("cuStreamBeginCapture_v2", CAPTURE_MODE_THREAD_LOCAL)
            driver(current).enter()
            placed.run(stream.handle)
            driver(number).enter()
            graph, count = ctypes.c_void_p(), ctypes.c_size_t(64)
            stream.call("cuStreamEndCapture", ctypes.byref(graph))
            nodes = (ctypes.c_void_p * 64)()
            driver().call("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
            for node in nodes[: count.value]:
                kind = ctypes.c_int()
                driver().call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
                if kind.value == ALLOCATION_NODE:
                    # Begins with the pool's properties: allocation type, handle types, location type, location id.
                    parameters = (ctypes.c_int * 64)()
                    driver().call("cuGraphMemAllocNodeGetParams", ctypes.c_void_p(node), parameters)
                    seen.append((number, parameters[3]))
    say("device of the stream, device of the scratch:", seen)
    assert seen == [(0, 0), (0, 0), (1, 1), (1, 1)]


def events_across_devices() -> None:
    """A result is made on one device, awaited by an event, copied to the other and used there."""
    case = typical()
    placed, streams = [], []
    for number in range(2):
        driver(number).enter()
        streams.append(Stream())
        address = ctypes.c_uint64()
        driver().call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(canaries.CAPACITY))
        placed.append(laid_out(case, library(), _Lent(address.value), "loose"))
        placed[number].write(FILLS[number])
        driver().call("cuCtxSynchronize")
    driver(0).enter()
    ready = ctypes.c_void_p()
    driver().call("cuEventCreate", ctypes.byref(ready), 2)
    launch("spin", streams[0], 200_000_000)
    placed[0].run(streams[0].handle)
    driver().call("cuEventRecord", ready, ctypes.c_void_p(streams[0].handle))
    driver(1).enter()
    streams[1].call("cuStreamWaitEvent", ready, 0)
    output = case.symbol.outputs[0].name
    source, target = (each._launch.pointers[output] for each in placed)
    size = sizes_of(case)[output]
    contexts = []
    for number in range(2):
        driver(number).enter()
        contexts.append(ctypes.c_void_p(driver().current_context()))
    driver().call(
        *("cuMemcpyPeerAsync", ctypes.c_uint64(target), contexts[1], ctypes.c_uint64(source), contexts[0]),
        *(ctypes.c_size_t(size), ctypes.c_void_p(streams[1].handle)),
    )
    streams[1].synchronize()
    assert_right(placed[1])
    # And calls of both, each waiting for the other's, with neither device's context the thread's own choice.
    for turn in range(20):
        driver(turn % 2).enter()
        placed[turn % 2].run(streams[turn % 2].handle)
    for number in range(2):
        driver(number).enter()
        streams[number].synchronize()
        assert_right(placed[number])


def stream_of_another_device() -> None:
    """The operands are on device 0, the stream is device 1's: CUDA finds out while the kernel runs, if at all."""
    driver(1).enter()
    theirs = Stream()
    driver(0).enter()
    assert_healthy()
    placed = placed_on_device(typical())
    before = driver().current_context()
    status = placed.status(theirs.handle)
    say("status", status, library().last_error())
    assert status in (0, 5)
    assert driver().current_context() == before
    driver(1).enter()
    ended = synchronized(theirs)
    if ended:
        assert_refused(placed.status(theirs.handle))
    else:
        driver(0).enter()
        assert_right(placed)
    driver(0).enter()
    if ended:
        # Seen: CUDA then refuses device 0, too.
        assert_host_healthy()
    else:
        assert_healthy()


def tensors_of_both_devices() -> None:
    """Array functions on torch tensors of the device that is not current."""
    import torch
    from function_cases import cases, listed

    for name, case in cases().items():
        expected = listed(case())
        on = {key: torch.from_numpy(np.array(values)).cuda(1) for key, values in case.arrays.items()}
        assert torch.cuda.current_device() == 0
        results = listed(case(**on))
        assert torch.cuda.current_device() == 0, name
        side = torch.cuda.Stream(1)
        side.wait_stream(torch.cuda.current_stream(1))
        results += listed(case(**on, stream=side))
        side.synchronize()
        torch.cuda.synchronize(1)
        for result, wanted in zip(results, [*expected, *expected], strict=True):
            assert result.device.index == 1
            assert result.cpu().numpy().tobytes() == wanted.tobytes(), name
        first = next(iter(on))
        if len(on) > 1:
            try:
                case(**{**on, first: on[first].cuda(0)})
            except ValueError as error:
                say(name, "refuses tensors of two devices:", error)
            else:
                raise AssertionError(f"{name} took tensors of two devices")
    say("all results are right")


CASES: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        bad_stream_in_the_driver,
        bad_stream,
        bad_address,
        no_device,
        fork,
        fork_in_the_driver,
        fork_before_use,
        scratch_that_does_not_fit,
        less_and_less_memory,
        first_calls_on_a_full_device,
        a_process_that_starts_on_a_full_device,
        starts_on_a_full_device,
        sticky_error,
        pending_errors,
        failed_capture,
        other_context,
        reset_device,
        host_function,
        sizes_side_by_side,
        sweep,
        capture,
        end,
        both_devices,
        a_pool_for_each_device,
        events_across_devices,
        stream_of_another_device,
        tensors_of_both_devices,
    )
}
# These begin in a process that has no CUDA context.
WITHOUT_CONTEXT = (no_device, fork_before_use, starts_on_a_full_device)


def main(name: str, *arguments: str) -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(SECONDS_TO_HANG, exit=True)
    case = CASES[name]
    if case not in WITHOUT_CONTEXT:
        driver().enter()
    case(*arguments)
    faulthandler.cancel_dump_traceback_later()
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
