# SPDX-License-Identifier: Apache-2.0
"""Streams, captured graphs and a gate that holds streams back, straight from the driver; no operator is named here."""

from __future__ import annotations

import ctypes
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from verify.memory.driver import driver

# The driver API's numbers.
NOT_READY = 600
# No unsafe call from the capturing thread, which is the only one that the library calls CUDA in. The stricter mode of
# torch.cuda.graph lets a framework's own threads, which free memory when it suits them, spoil a capture.
CAPTURE_MODE_THREAD_LOCAL = 1
HOST_MEMORY_MAPPED = 2
WAIT_UNTIL_AT_LEAST = 0
NODE_KINDS = {0: "kernel", 1: "memcpy", 2: "memset", 3: "host", 10: "allocation", 11: "free"}


class Stream:
    """A stream as cudaStreamCreate makes it: the legacy default stream and it wait for each other.

    It belongs to the calling thread's context.
    """

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        driver().call("cuStreamCreate", ctypes.byref(self._handle), 0)

    @property
    def handle(self) -> int:
        assert self._handle.value is not None
        return self._handle.value

    def call(self, name: str, *arguments: Any) -> None:
        """A driver function that takes the stream first."""
        driver().call(name, self._handle, *arguments)

    def synchronize(self) -> None:
        self.call("cuStreamSynchronize")

    def is_busy(self) -> bool:
        status = driver().status("cuStreamQuery", self._handle)
        assert status in (0, NOT_READY), driver().error_name(status)
        return status == NOT_READY


class Gate:
    """Holds streams back: they wait until a word of host memory reaches a number."""

    def __init__(self) -> None:
        host, device = ctypes.c_void_p(), ctypes.c_uint64()
        driver().call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(64), HOST_MEMORY_MAPPED)
        driver().call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), host, 0)
        assert host.value is not None
        self._device = device
        self._word = ctypes.c_uint32.from_address(host.value)
        self._word.value = 0

    @contextmanager
    def closed(self, *streams: Stream) -> Iterator[None]:
        """What is enqueued on these streams inside the block starts when the block is left."""
        ticket = self._word.value + 1
        try:
            for stream in streams:
                stream.call("cuStreamWaitValue32_v2", self._device, ticket, WAIT_UNTIL_AT_LEAST)
            yield
        finally:
            self._word.value = ticket


class Graph:
    """What a stream captured while some work was enqueued on it."""

    def __init__(self, stream: Stream, work: Callable[[], None]) -> None:
        self._stream = stream
        self._graph, self._executable = ctypes.c_void_p(), ctypes.c_void_p()
        collected = gc.isenabled()
        gc.disable()  # an array that is collected now would free its memory into the capture
        stream.call("cuStreamBeginCapture_v2", CAPTURE_MODE_THREAD_LOCAL)
        try:
            work()
        finally:
            if collected:
                gc.enable()
            # Also after a failure: a stream left capturing would spoil every later test.
            stream.call("cuStreamEndCapture", ctypes.byref(self._graph))

    def nodes(self) -> Counter[str]:
        """How many nodes of each kind it has."""
        count = ctypes.c_size_t()
        kinds: Counter[str] = Counter()
        driver().call("cuGraphGetNodes", self._graph, None, ctypes.byref(count))
        if count.value == 0:
            return kinds  # the driver takes no array without entries
        nodes = (ctypes.c_void_p * count.value)()
        driver().call("cuGraphGetNodes", self._graph, nodes, ctypes.byref(count))
        for node in nodes:
            kind = ctypes.c_int()
            driver().call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
            kinds[NODE_KINDS.get(kind.value, f"kind {kind.value}")] += 1
        return kinds

    def replay(self) -> None:
        """Runs it once, to its end."""
        if self._executable.value is None:
            driver().call(
                "cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph, ctypes.c_ulonglong(0)
            )
        driver().call("cuGraphLaunch", self._executable, self._stream._handle)
        self._stream.synchronize()

    def destroy(self) -> None:
        if self._executable.value is not None:
            driver().call("cuGraphExecDestroy", self._executable)
        driver().call("cuGraphDestroy", self._graph)
