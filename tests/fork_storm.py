# SPDX-License-Identifier: Apache-2.0
"""Forks at random moments of import, first call, start of the pool and running calls; every child must work.

python3 tests/fork_storm.py [--forks 10000] [--seed N] [--jobs 2]

A zygote that has loaded NumPy, and nothing of the package, forks worlds. In each world threads import the package, make
their first calls and go on calling, while the main thread and another one fork children. A child makes calls of several
operators, must find the bits of an undisturbed process, and may not outlast its alarm; one that does prints where it
stands. The forks begin when the package's own handlers are in place: while Python's import system is still looking for
the package, a forked child would hang in Python itself, as with any other module.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
# Seconds for a child's few milliseconds of work, on machines with much else to do.
PATIENCE = 30
FORKS_IN_A_WORLD = 16
CALLING_THREADS = 2

Job = Callable[[Any], bytes]

# Large enough for the pool, and small.
VALUES = np.arange(2 * 8 * 64 * 64, dtype=np.float32).reshape(2, 8, 64, 64) % 251
BOXES = np.array([[i % 2, i % 40, i % 30, i % 40 + 20, i % 30 + 25] for i in range(32)], np.float32)
IDS = np.arange(2 * 8 * 64, dtype=np.int32) % 37


def roi_align(package: Any) -> bytes:
    return bytes(package.roi_align(VALUES, BOXES, 7, sampling_ratio=2).tobytes())


def pad(package: Any) -> bytes:
    return bytes(package.pad(VALUES, (0, 1, 2, 3), (0, 0, 3, 4), mode="reflect").tobytes())


def segment_sum(package: Any) -> bytes:
    return bytes(package.segment_sum(VALUES.reshape(-1, 64), IDS, 37).tobytes())


def raw_call(package: Any) -> bytes:
    theta = np.array([[0.5, 0.1, 0.2, -0.3, 1.5, 0.1]], np.float32)
    grid = np.empty((1, 200, 200, 2), np.float32)
    raw = package.raw("cpu")
    run = raw.baracuda_kernels_affine_grid_2d_f32_run
    if run(1, 200, 200, theta.ctypes.data, grid.ctypes.data, None, 0, None) != 0:
        raise AssertionError(raw.baracuda_kernels_last_error())
    return grid.tobytes()


def message(package: Any) -> bytes:
    try:
        package.RoiAlignPlan.select(package.RoiAlignDescriptor(1, -5, 1, 1, 1, 1, 1))
    except package.InvalidProblemError as error:
        return str(error).encode()
    return b""


JOBS: tuple[Job, ...] = (roi_align, pad, segment_sum, raw_call, message)


def ends_well(child: int) -> bool:
    """Wait for a forked process."""
    return os.waitpid(child, 0)[1] == 0


def forked(work: Callable[[], None], *, is_leaf: bool = False) -> int:
    """Run `work` in a forked child that ends with 0 when it returns, and not later than its alarm."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        # The alarm prints where every thread stands, then ends the process. Not faulthandler's own watchdog: it is a
        # thread with locks, which children of this child would find taken.
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(PATIENCE if is_leaf else 2 * PATIENCE)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def package_is_guarded() -> bool:
    return hasattr(sys.modules.get("pybaracuda._forking"), "GUARDS_FORKS")


class World:
    """One process in which the package is imported and used for the first time."""

    def __init__(self, seed: int, forks: int, expected: tuple[bytes, ...]) -> None:
        self.random = random.Random(seed)
        self.forks = forks
        self.expected = expected
        self.stop = False
        self.imported = threading.Event()
        self.failures = 0

    def check(self, package: Any, order: list[int]) -> None:
        for number in order:
            if JOBS[number](package) != self.expected[number]:
                raise AssertionError(f"{JOBS[number].__name__} gave other bits in process {os.getpid()}")

    def import_and_call(self, order: list[int]) -> None:
        try:
            package = importlib.import_module("pybaracuda")
            self.imported.set()
            while not self.stop:
                self.check(package, order)
        except BaseException:
            traceback.print_exc()
            self.failures += 1
            self.imported.set()

    def child(self, order: list[int]) -> Callable[[], None]:
        return lambda: self.check(importlib.import_module("pybaracuda"), order)

    def fork_children(self, pauses: list[float], orders: list[list[int]]) -> None:
        while not package_is_guarded() and not self.imported.is_set():
            time.sleep(0)
        children = []
        for pause, order in zip(pauses, orders, strict=True):
            if pause > 0:
                time.sleep(pause)
            children.append(forked(self.child(order), is_leaf=True))
        self.failures += sum(not ends_well(child) for child in children)

    def order(self) -> list[int]:
        return self.random.sample(range(len(JOBS)), len(JOBS))

    def run(self) -> None:
        calling = [threading.Thread(target=self.import_and_call, args=(self.order(),)) for _ in range(CALLING_THREADS)]
        half = self.forks // 2
        plans = []
        longest = self.random.choice((0.0, 0.0005, 0.003, 0.01))
        for count in (half, self.forks - half):
            pauses = [self.random.uniform(0, longest) for _ in range(count)]
            plans.append((pauses, [self.order() for _ in range(count)]))
        second = threading.Thread(target=self.fork_children, args=plans[1])
        for thread in (*calling, second):
            thread.start()
        self.fork_children(*plans[0])
        second.join()
        self.stop = True
        for thread in calling:
            thread.join()
        if self.failures:
            raise AssertionError(f"{self.failures} failures in a world")


def zygote(seed: int, forks: int) -> int:
    """Run worlds one after the other until they have forked so many children; answer how many worlds failed."""
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.path.insert(0, str(PACKAGE_FOLDER))
    reader, writer = os.pipe()
    first = forked(lambda: pass_on(writer, importlib.import_module("pybaracuda")))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        sizes = [int(pipe.readline()) for _ in JOBS]
        expected = tuple(pipe.read(size) for size in sizes)
    if not ends_well(first):
        return 1
    failed = world = 0
    while forks > 0:
        count = min(forks, FORKS_IN_A_WORLD)
        if not ends_well(forked(World(seed * 1_000_003 + world, count, expected).run)):
            failed += 1
            print(f"world {world} of seed {seed} failed", file=sys.stderr, flush=True)
        forks -= count
        world += 1
    return failed


def pass_on(writer: int, package: Any) -> None:
    """Write what every job answers here."""
    results = [job(package) for job in JOBS]
    with os.fdopen(writer, "wb") as pipe:
        for result in results:
            pipe.write(b"%d\n" % len(result))
        pipe.write(b"".join(results))


def main(arguments: list[str]) -> int:
    """Run the storm and answer 1 if any child failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=2, help="zygotes at a time")
    parser.add_argument("--zygote", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    if options.zygote:
        failed = zygote(seed, options.forks)
        if failed == 0:
            print(f"{options.forks} forks, 0 failures")
        return min(failed, 1)
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    shares = [options.forks // options.jobs + (i < options.forks % options.jobs) for i in range(options.jobs)]
    command = [sys.executable, str(Path(__file__).resolve()), "--zygote"]
    running = [
        subprocess.Popen([*command, "--forks", str(share), "--seed", str(seed + number)])
        for number, share in enumerate(shares)
    ]
    failed = sum(process.wait() != 0 for process in running)
    print(f"{options.forks} forks, {failed} zygotes failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
