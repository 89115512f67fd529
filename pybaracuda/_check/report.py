# SPDX-License-Identifier: Apache-2.0
"""The command `check`: which configurations it runs, how it compares them and what it prints."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from .. import _abi, _library, _machine
from .._errors import BackendUnavailableError
from . import cases, children, runs, vectors
from .progress import Progress
from .runs import Configuration
from .vectors import Hashes

EQUAL, DIFFERENT, NOT_RUN = 0, 1, 2

# Each child is a process that generates, runs and hashes; more at once would mostly wait for memory.
_MOST_CHILDREN = 8

_HOW_TO_REPORT = """\
Other bits than the committed ones are a bug of pybaracuda or a fault of this machine. Please report them to those who
maintain pybaracuda, with this whole output from its first line on: it names the versions, the driver, the devices and
the first case that differs. Say also whether a second run finds the same."""
_NOT_RUN = """\
Not everything could run. If that is not for this machine to mend (no memory, a device in use), please report it to
those who maintain pybaracuda, with this whole output from its first line on."""


class Result(NamedTuple):
    """What became of one configuration."""

    cases: int = 0
    differences: tuple[str, ...] = ()
    problem: str = ""


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def _driver_release() -> str:
    """The NVIDIA driver's own number, where its kernel module says it."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return "of unknown release"
    return next((word for word in words if word[:1].isdigit() and "." in word), "of unknown release")


def _library_line(backend: str) -> str:
    library = _library.load(backend)
    return f"{backend}: {library.path}, version {library.version}, ABI hash {_abi.ABI_HASH:#018x}"


def _about(backends: list[str], devices: list[str], cuda_problem: str | None) -> list[str]:
    lines = [
        f"pybaracuda {_library.package_version()}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{platform.platform()}"
    ]
    if "cpu" in backends:
        lines += [_library_line("cpu"), f"  {_cpu_model()}, {len(os.sched_getaffinity(0))} processors"]
    if devices:
        lines += [f"{_library_line('cuda')}, NVIDIA driver {_driver_release()}", *(f"  {each}" for each in devices)]
    elif cuda_problem:
        lines.append(f"cuda: not checked: {cuda_problem}")
    variables = {name: value for name, value in os.environ.items() if name.startswith(("BARACUDA_", "CUDA_"))}
    return lines + [f"{name}={value}" for name, value in sorted(variables.items())]


def _checked(
    configuration: Configuration, expected: Hashes, quick: bool, progress: Progress, turn: AbstractContextManager[Any]
) -> Result:
    """Run one configuration to its end, when it is its turn; a difference does not stop it."""
    found: Hashes = {}
    try:
        with turn:
            for name, hashes in children.found_in_child(configuration, quick):
                found[name] = hashes
                progress.step()
    except children.ChildError as error:
        return Result(len(found), tuple(_against(found, expected)), str(error))
    return Result(len(found), tuple(vectors.differences(found, expected)))


def _against(found: Hashes, expected: Hashes) -> list[str]:
    """The differences of the cases that were run."""
    return vectors.differences(found, {name: hashes for name, hashes in expected.items() if name in found})


def _sentence(result: Result) -> str:
    said = []
    if result.differences:
        first = result.differences[0]
        about = cases.description_of(first.partition(":")[0]) or "unknown"
        said.append(f"{len(result.differences)} OUTPUTS DIFFER, first {first} (the case: {about})")
    if result.problem:
        said.append(f"COULD NOT RUN to the end: {result.problem}")
    return "; ".join(said) or "all bits equal"


def check(quick: bool, backend: str | None) -> int:
    """Print what this machine is, a line for each configuration and what follows from them; answer the exit code."""
    start = time.monotonic()
    backends = ["cpu", "cuda"] if backend is None else [backend]
    cuda_problem = _library.backend_problem("cuda") if "cuda" in backends else None
    if backend is None or backend == "cpu":
        _library.load("cpu")
    elif cuda_problem:
        raise BackendUnavailableError(cuda_problem)
    count = _machine.device_count() if "cuda" in backends and not cuda_problem else 0
    devices = [f"cuda {index}: {_machine.device_name(index)}, {_machine.cuda_arch(index)}" for index in range(count)]
    print("\n".join(_about(backends, devices, cuda_problem)), flush=True)

    rows = [("cpu", each) for each in runs.cpu_configurations()] if "cpu" in backends else []
    rows += [(devices[index], each) for index in range(count) for each in runs.cuda_configurations(index)]
    names = cases.sample_names() if quick else cases.names()
    expected = vectors.committed()
    if quick:
        expected = {name: expected[name] for name in names if name in expected}
    what = "cases, a sample of every operator and dtype," if quick else "cases"
    print(f"{len(names)} {what} in {len(rows)} configurations\n", flush=True)

    progress = Progress(len(names) * len(rows))
    results: list[Result] = []
    width = max(len(f"{place}, {configuration.about}") for place, configuration in rows)
    pool = ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST_CHILDREN))
    futures: list[Future[Result]] = []
    # A GPU may be set to take one process at a time.
    turns: list[AbstractContextManager[Any]] = [threading.Lock() for _ in devices]
    try:
        for _, each in rows:
            turn = turns[each.device] if each.backend == "cuda" and turns else nullcontext()
            futures.append(pool.submit(_checked, each, expected, quick, progress, turn))
        for (place, configuration), future in zip(rows, futures, strict=True):
            results.append(future.result())
            title = f"{place}, {configuration.about}".ljust(width)
            progress.say(f"{title}  {results[-1].cases} cases: {_sentence(results[-1])}")
    finally:
        for future in futures:
            future.cancel()
        pool.shutdown()
        progress.close()

    total, seconds = sum(result.cases for result in results), time.monotonic() - start
    different = any(result.differences for result in results)
    failed = any(result.problem for result in results)
    print()
    if not different and not failed:
        print(f"All bits equal: {total} results of {len(rows)} configurations in {seconds:.0f} s.")
        return EQUAL
    print(_HOW_TO_REPORT if different else _NOT_RUN)
    return DIFFERENT if different else NOT_RUN


def main(quick: bool, backend: str | None) -> int:
    """Check and answer the exit code, also where nothing can be checked."""
    try:
        return check(quick, backend)
    except BackendUnavailableError as error:
        print(f"error: nothing could be checked: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
    return NOT_RUN
