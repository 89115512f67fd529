# SPDX-License-Identifier: Apache-2.0
"""Hostile uses of the CUDA library: each answers with a status and a text, or is a limit that docs/gpu_limits.md names.

Nothing hangs. Each case of hostile_cuda.py runs in a process of its own, because few leave one that CUDA still serves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

import pybaracuda
from pybaracuda import _machine

HERE = Path(__file__).resolve().parent
SECONDS = 120
NOTHING: Mapping[str, str] = MappingProxyType({})
# Deaths that may follow from a handle that is none.
CRASHES = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)

pytestmark = pytest.mark.usefixtures("on_cuda")


class Ended(NamedTuple):
    """How a process ended: its exit status (minus a signal's number; None where it had to be killed), all it said."""

    status: int | None
    text: str

    @property
    def done(self) -> bool:
        return self.status == 0 and self.text.rstrip().endswith("done")


def run(*command: str, environment: Mapping[str, str] = NOTHING, seconds: float = SECONDS) -> Ended:
    """Runs a program of this folder; the whole session that it leads is killed when its time is over."""
    paths = os.pathsep.join([str(Path(pybaracuda.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, "PYTHONPATH": paths, "BARACUDA_HOSTILE_SECONDS": str(seconds - 20), **environment}
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [sys.executable, str(HERE / command[0]), *command[1:]],
            **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT},
            env=given,
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            # A process that even a signal does not end must not keep the others waiting.
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                print("the process cannot be killed")
        log.seek(0)
        text = log.read().decode(errors="replace")
    # So that a log tells what happened, also of cases that pass.
    print(f"---- {' '.join(command)} ended with {status}\n{text}")
    return Ended(status, text)


def case(name: str, *arguments: str, environment: Mapping[str, str] = NOTHING) -> Ended:
    ended = run("hostile_cuda.py", name, *arguments, environment=environment)
    assert ended.status is not None, f"{name} hangs"
    return ended


def assert_done(name: str, *arguments: str, environment: Mapping[str, str] = NOTHING) -> None:
    ended = case(name, *arguments, environment=environment)
    assert ended.done, f"{name} {arguments} ended with {ended.status}\n{ended.text}"


@pytest.fixture
def two_gpus() -> None:
    if _machine.device_count() < 2:
        pytest.skip("fewer than two GPUs")


@pytest.mark.parametrize("kind", ["destroyed", "context-destroyed", "never-made"])
def test_a_stream_that_is_none_is_refused_unless_the_driver_dies_of_it(kind: str) -> None:
    """A limit: the driver follows the handle into memory that was freed, and what lies there now decides.

    What the driver makes of the handle alone stands in the log, but not even that repeats.
    """
    case("bad_stream_in_the_driver", kind)
    ended = case("bad_stream", kind)
    assert ended.done or ended.status in CRASHES, ended
    if not ended.done:
        assert "calling" in ended.text
        assert "answered" not in ended.text


@pytest.mark.parametrize("kind", ["host", "freed", "nowhere"])
def test_an_address_that_is_none(kind: str) -> None:
    assert_done("bad_address", kind)


def test_no_device_is_visible() -> None:
    assert_done("no_device", environment={"CUDA_VISIBLE_DEVICES": ""})


def test_a_forked_child_has_the_cpu_library_alone() -> None:
    assert_done("fork", "at-once")


def test_a_forked_child_that_ends_by_the_interpreter_ends_as_with_the_driver_alone() -> None:
    """A limit: handlers that CUDA registered for the end of the process run in the child, too."""
    alone = case("fork_in_the_driver")
    ended = case("fork", "by-the-interpreter")
    assert ended.done or "the child hangs" in alone.text, (alone, ended)


@pytest.mark.parametrize(
    "name",
    [
        "fork_before_use",
        "scratch_that_does_not_fit",
        "pending_errors",
        "failed_capture",
        "other_context",
        "host_function",
        "sizes_side_by_side",
    ],
)
def test_hostile(name: str) -> None:
    assert_done(name)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_sticky_error_of_another_kernel(when: str) -> None:
    assert_done("sticky_error", when)


def test_a_device_that_is_reset() -> None:
    """A limit: the library goes on, refuses, or the driver ends the process; it never hangs or gives other bits."""
    ended = case("reset_device")
    assert ended.done or (ended.status in CRASHES and "\nreset\n" in ended.text), ended


@pytest.mark.parametrize(
    "environment",
    [{"CUDA_LAUNCH_BLOCKING": "1"}, {"CUDA_MODULE_LOADING": "LAZY"}, {"CUDA_MODULE_LOADING": "EAGER"}],
    ids=["blocking", "lazy", "eager"],
)
@pytest.mark.parametrize("name", ["sweep", "capture"])
def test_modes_of_cuda(name: str, environment: dict[str, str]) -> None:
    assert_done(name, environment=environment)


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("a return", 0),
        ("sys.exit", 7),
        ("os._exit", 7),
        ("an exception", 1),
        ("SIGTERM", -signal.SIGTERM),
        ("while a kernel runs", 0),
        ("while capturing", 0),
        ("after forks", 0),
    ],
)
def test_a_process_that_ends_while_calls_are_running(how: str, status: int) -> None:
    for _ in range(3):
        ended = case("end", how)
        assert ended.status == status, ended
        assert f"ending: {how}" in ended.text


@pytest.mark.parametrize(
    ("threads", "streams", "lanes"), [(8, 16, 4), (64, 16, 1)], ids=["many-under-way", "64-threads-on-16-streams"]
)
def test_random_calls(threads: int, streams: int, lanes: int) -> None:
    options = ("--seconds", "20", "--threads", str(threads), "--streams", str(streams), "--lanes", str(lanes))
    ended = run("random_cuda_calls.py", *options, seconds=240)
    assert ended.status == 0, ended.text


# ---- two GPUs


@pytest.mark.parametrize(
    "name",
    [
        "both_devices",
        "a_pool_for_each_device",
        "events_across_devices",
        "stream_of_another_device",
        "tensors_of_both_devices",
    ],
)
def test_two_gpus(name: str, two_gpus: None) -> None:
    assert_done(name)


def test_random_calls_on_two_gpus(two_gpus: None) -> None:
    ended = run("random_cuda_calls.py", "--seconds", "20", "--devices", "2", seconds=240)
    assert ended.status == 0, ended.text


# ---- all memory of a GPU


@pytest.mark.full_device
@pytest.mark.parametrize(
    "name",
    ["less_and_less_memory", "first_calls_on_a_full_device", "a_process_that_starts_on_a_full_device"],
)
def test_a_full_device(name: str) -> None:
    assert_done(name)
