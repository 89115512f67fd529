# SPDX-License-Identifier: Apache-2.0
"""Random calls of the CUDA library from many threads on shared streams, every result compared with the CPU library's.

    python3 tests/random_cuda_calls.py --seconds 600

Problems, data, stream, current device and whether a workspace is given or the library takes its own scratch are drawn.
Every thread has several calls under way at once. One call in twenty is one that must fail, and say why.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import NamedTuple

# Behind an installed package, so that a script finds this tree's when there is none.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import bad_data
import canaries
import numpy as np
from canaries import laid_out
from cuda_driver import Stream, driver

from pybaracuda._check import cases, vectors
from pybaracuda._check.abi_calls import STATUS, Library, symbols
from pybaracuda._check.cases import Case
from pybaracuda._check.runs import Bench, sizes_of
from pybaracuda._check.vectors import hashed
from verify.memory.arena import FILLS
from verify.memory.blocks import Bytes, memory_for

SHARE_THAT_FAILS = 0.05
# Beyond the time it was given, a run may take so long for the calls under way.
SECONDS_TO_END = 60


class Way(NamedTuple):
    """A stream and the number of its device."""

    device: int
    stream: Stream


class StreamMemory:
    """A block of a device's memory that is written and read in the order of a stream, chosen before each use."""

    def __init__(self, device: int, capacity: int) -> None:
        self.capacity = capacity
        self.device = device
        self.stream: Stream | None = None
        address = ctypes.c_uint64()
        driver(device).enter()
        driver().call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(capacity))
        self.address = address.value

    def _copy(self, name: str, *arguments: object) -> Stream:
        assert self.stream is not None
        driver(self.device).enter()
        driver().call(name, *arguments, ctypes.c_void_p(self.stream.handle))
        return self.stream

    def write(self, image: Bytes) -> None:
        source = ctypes.c_void_p(image.ctypes.data)
        self._copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(self.address), source, ctypes.c_size_t(image.size))

    def read(self, count: int) -> Bytes:
        image = np.empty(count, np.uint8)
        target = ctypes.c_void_p(image.ctypes.data)
        self._copy("cuMemcpyDtoHAsync_v2", target, ctypes.c_uint64(self.address), ctypes.c_size_t(count)).synchronize()
        return image

    def free(self) -> None:
        driver(self.device).enter()
        driver().call("cuMemFree_v2", ctypes.c_uint64(self.address))


class Caller:
    """What one thread does: draws, calls, compares."""

    def __init__(self, seed: list[int], lanes: int, ways: list[Way], devices: int) -> None:
        self._random = np.random.default_rng(seed)
        self._ways = ways
        self._devices = devices
        self._on_device, self._on_host = Library("cuda"), Library("cpu")
        self._symbols = symbols()
        self._committed = vectors.committed()
        self._host = memory_for("cpu", canaries.CAPACITY)
        self._lanes = [[StreamMemory(device, canaries.CAPACITY) for device in range(devices)] for _ in range(lanes)]
        self.calls = 0
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def _drawn(self) -> Case:
        """A fixed case, the same with its data moved on, or bad data."""
        symbol = self._symbols[self._random.integers(len(self._symbols))]
        kind = self._random.integers(4)
        if kind == 0:
            mix = bad_data.MIXES[self._random.integers(len(bad_data.MIXES))]
            return bad_data.case(symbol, mix, bad_data.SIZES[self._random.integers(len(bad_data.SIZES))])
        problems = cases.problems_of(symbol)
        chosen = cases.case(symbol, problems[self._random.integers(len(problems))])
        if kind == 1:
            return chosen
        inputs = {}
        for tensor in symbol.tensors:
            if tensor.role == "input":
                rows = chosen.inputs[tensor.name].reshape(-1, symbol.element_bytes(tensor))
                by = int(self._random.integers(max(len(rows), 1)))
                inputs[tensor.name] = np.roll(rows, by, axis=0).ravel()
        return chosen._replace(name=f"{chosen.name} (moved)", inputs=inputs)

    def _expected(self, case: Case) -> dict[str, str]:
        if case.name in self._committed:
            return self._committed[case.name]
        placed = laid_out(case, self._on_host, self._host)
        placed.write(FILLS[0])
        placed.run()
        return hashed(placed.results())

    def _check_a_failure(self, placed: Bench, stream: int) -> None:
        """A call that must fail, say why, and leave everything as it is."""
        tensor = placed.case.symbol.outputs[0].name
        status, text = placed.status(stream, {tensor: 0}), self._on_device.last_error()
        self.counts["failures"] += 1
        if status != STATUS["INVALID_PROBLEM"] or tensor not in text:
            self.wrong.append(f"{placed.case.name}: {tensor}=NULL answered {status}, {text!r}")

    def turn(self) -> None:
        """One call in each lane, then all results."""
        placed: list[tuple[Bench, str]] = []
        for lane in self._lanes:
            case = self._drawn()
            way = self._ways[self._random.integers(len(self._ways))]
            memory = lane[way.device]
            memory.stream = way.stream
            layout = ("tight", "loose")[self._random.integers(2)]
            bench = laid_out(case, self._on_device, memory, layout)
            bench.write(FILLS[self._random.integers(2)])
            # Any device may be current: the stream says where the work is done.
            driver(int(self._random.integers(self._devices))).enter()
            before = driver().current_context()
            if self._random.random() < SHARE_THAT_FAILS and any(
                sizes_of(case)[tensor.name] for tensor in case.symbol.outputs[:1]
            ):
                self._check_a_failure(bench, way.stream.handle)
            for _ in range(self._random.integers(1, 9)):
                bench.run(way.stream.handle)
                self.calls += 1
            if driver().current_context() != before:
                self.wrong.append(f"{case.name}: another context is current after the call")
            self.counts[layout] += 1
            self.counts[f"device {way.device}"] += 1
            placed.append((bench, f"{case.name} ({layout}, device {way.device})"))
        for bench, name in placed:
            if hashed(bench.results()) != self._expected(bench.case):
                self.wrong.append(f"{name}: other bits than the CPU library's")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--streams", type=int, default=16, help="of each device, shared by all threads")
    parser.add_argument("--lanes", type=int, default=4, help="calls that a thread has under way")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    # The references; a pool for every calling thread would be too many.
    os.environ.setdefault("BARACUDA_NUM_THREADS", "1")
    faulthandler.enable()
    # A call that never returns ends the process, with a line of where every thread was.
    faulthandler.dump_traceback_later(options.seconds + SECONDS_TO_END + options.threads, exit=True)
    ways = []
    for device in range(options.devices):
        driver(device).enter()
        ways += [Way(device, Stream()) for _ in range(options.streams)]
    callers: list[Caller] = []
    stop = threading.Event()
    start = time.monotonic()

    def work(number: int) -> None:
        try:
            driver().enter()
            caller = Caller([seed, number], options.lanes, ways, options.devices)
            callers.append(caller)
            while not stop.is_set() and time.monotonic() - start < options.seconds:
                caller.turn()
                if caller.wrong:
                    stop.set()
        except BaseException:
            traceback.print_exc()
            failed.append(number)
            stop.set()

    failed: list[int] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrong = [sentence for caller in callers for sentence in caller.wrong]
    counts = sum((caller.counts for caller in callers), Counter())
    for sentence in wrong[:10]:
        print(sentence)
    calls = sum(caller.calls for caller in callers)
    print(
        f"{calls} calls in {time.monotonic() - start:.0f} s from {options.threads} threads on {len(ways)} streams of "
        f"{options.devices} devices ({dict(sorted(counts.items()))}): {len(wrong)} wrong, {len(failed)} threads failed",
        flush=True,
    )
    return 1 if wrong or failed or not calls else 0


if __name__ == "__main__":
    sys.exit(main())
