# SPDX-License-Identifier: Apache-2.0
"""Many threads at once, forked children, and another framework's threads in the same process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from function_cases import cases, listed
from place import available
from tolerance import assert_same_bits

import pybaracuda

THREADS = 8
CALLS = 2000


def in_threads(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run `work` in threads that start together; a failure in any of them is raised here."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def guarded(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_never_see_each_others_messages() -> None:
    raw = pybaracuda.raw("cpu")
    can_implement = raw.baracuda_kernels_roi_align_f32_can_implement
    last_error = raw.baracuda_kernels_last_error

    def work(number: int) -> None:
        for turn in range(CALLS):
            wrong = -1 - number * CALLS - turn
            assert can_implement(1, wrong, 1, 1, 1, 1, 1, 1.0, 0, 0, None, None, None) == 2
            text = last_error().decode()
            assert text == f"roi_align_f32: c is {wrong}; wanted at least 0"
            assert can_implement(1, 1, 1, 1, 1, 1, 1, 1.0, 0, 0, None, None, None) == 0
            assert last_error() == b""

    in_threads(work)


def test_exceptions_carry_their_own_threads_text() -> None:
    scratch = np.zeros(16, np.float32)
    base = scratch.ctypes.data
    plan = pybaracuda.RoiAlignPlan.select(pybaracuda.RoiAlignDescriptor(1, 1, 1, 1, 1, 1, 1, 1.0, 1, True))

    def work(number: int) -> None:
        rois = np.zeros((1, 5), np.float32)
        output = np.zeros(1, np.float32)
        good = {"input": (base, 4), "rois": (rois.ctypes.data, 20), "output": (output.ctypes.data, 4)}
        names = list(good)
        for turn in range(CALLS):
            name = names[(number + turn) % 3]
            offset = 1 + (number + turn) % 3
            address = good[name][0] + offset
            with pytest.raises(pybaracuda.MisalignedOperandError) as caught:
                plan.run(**{**good, name: (address, good[name][1])})
            assert f"{name} is at {address:#x};" in str(caught.value)
            plan.run(**good)

    in_threads(work)


@pytest.mark.parametrize("name", list(cases()))
def test_the_same_function_from_many_threads(name: str) -> None:
    case = cases()[name]
    expected = listed(case())

    def work(number: int) -> None:
        for _ in range(50):
            for result, wanted in zip(listed(case()), expected, strict=True):
                assert_same_bits(result, wanted)

    in_threads(work)


def test_one_plan_and_one_bound_call_each_from_many_threads() -> None:
    # Large enough for the thread pool to split it, so that callers meet there too.
    input = np.arange(2 * 8 * 64 * 64, dtype=np.float32).reshape(2, 8, 64, 64) % 251
    boxes = np.array([[i % 2, i % 40, i % 30, i % 40 + 20, i % 30 + 25] for i in range(64)], np.float32)
    expected = pybaracuda.roi_align(input, boxes, 7, sampling_ratio=2)
    descriptor = pybaracuda.RoiAlignDescriptor(2, 8, 64, 64, 64, 7, 7, 1.0, 2, False)
    plan = pybaracuda.RoiAlignPlan.select(descriptor)

    def work(number: int) -> None:
        output = np.empty_like(expected)
        bound = plan.bind(input=input, rois=boxes, output=output)
        for turn in range(30):
            output.fill(turn)
            bound() if turn % 2 else plan.run(input=input, rois=boxes, output=output)
            assert_same_bits(output, expected)

    in_threads(work)


def test_selection_from_many_threads() -> None:
    def work(number: int) -> None:
        for size in range(200):
            plan = pybaracuda.RoiAlignPlan.select(pybaracuda.RoiAlignDescriptor(1, 1, 7, size, 1, 1, 1))
            assert plan.descriptor.w == size

    in_threads(work)


def run_script(script: str, *arguments: str) -> None:
    """Run a script in a fresh interpreter, which must end well within a minute."""
    root = Path(pybaracuda.__file__).parents[1]
    code = f"import sys; sys.path.insert(0, {str(root)!r})\n" + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "done", done.stdout + done.stderr


JOB = """
import os, threading
import numpy as np
import pybaracuda

# Large enough for the thread pool.
values = np.arange(4 * 16 * 64 * 64, dtype=np.float32).reshape(4, 16, 64, 64) % 251
boxes = np.array([[i % 4, i % 40, i % 30, i % 40 + 20, i % 30 + 25] for i in range(64)], np.float32)
def job():
    return pybaracuda.roi_align(values, boxes, 7, sampling_ratio=2).tobytes()
"""


def test_the_first_call_from_many_threads() -> None:
    run_script(
        JOB
        + """
start = threading.Barrier(8)
results = []
def work():
    start.wait()
    results.append(job())
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(results) == 8 and len(set(results)) == 1
print("done")
"""
    )


def test_a_forked_child_of_a_used_process() -> None:
    run_script(
        JOB
        + """
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
expected = job()
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if job() == expected and job() == expected else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert job() == expected
with multiprocessing.get_context("fork").Pool(3) as pool:
    assert pool.starmap(job, [()] * 9) == [expected] * 9
# A grandchild, of a child that has used the library.
child = os.fork()
if child == 0:
    ok = job() == expected
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(0 if job() == expected else 3)
    os._exit(0 if ok and os.waitpid(grandchild, 0)[1] == 0 else 3)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""
    )


def test_a_fork_while_other_threads_are_calling() -> None:
    run_script(
        JOB
        + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
expected = job()
stop = False
def work():
    while not stop:
        assert job() == expected
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        os._exit(0 if job() == expected else 3)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for thread in threads: thread.join()
print("done")
"""
    )


def test_forks_at_random_moments() -> None:
    # By hand with --forks 10000.
    command = [sys.executable, str(Path(__file__).with_name("fork_storm.py")), "--forks", "256"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_call_waits_behind_the_guard_of_a_static() -> None:
    # Another thread may hold it as a child is forked, in which nobody would ever release it.
    path = str(pybaracuda.library_path("cpu"))
    listed = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True).stdout
    assert "malloc" in listed or "_Znwm" in listed
    assert "__cxa_guard" not in listed


def test_a_fork_waits_for_a_first_use() -> None:
    run_script(
        """
import os, threading, time, warnings
import pybaracuda
from pybaracuda import _forking
warnings.simplefilter("ignore", DeprecationWarning)
inside, ended = threading.Event(), []
def use():
    with _forking.first_use():
        inside.set()
        time.sleep(0.5)
        ended.append(True)
threading.Thread(target=use).start()
inside.wait()
child = os.fork()
if child == 0:
    with _forking.first_use():
        os._exit(0 if ended else 3)
assert os.waitpid(child, 0)[1] == 0
# The parent's lock is free again, also for a fork inside it.
with _forking.first_use():
    child = os.fork()
    if child == 0:
        thread = threading.Thread(target=lambda: pybaracuda.backend_available("cpu"))
        thread.start()
        thread.join()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
thread = threading.Thread(target=use)
thread.start()
thread.join()
assert ended == [True, True]
print("done")
"""
    )


def test_a_fork_whose_wait_would_never_end_goes_on() -> None:
    run_script(
        """
import os, threading, warnings
import pybaracuda
from pybaracuda import _forking
warnings.simplefilter("ignore", DeprecationWarning)
_forking._PATIENCE = 0.2
inside, leave = threading.Event(), threading.Event()
def use():
    with _forking.first_use():
        inside.set()
        leave.wait()
thread = threading.Thread(target=use)
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    os._exit(0 if pybaracuda.backend_available("cpu") else 3)
assert os.waitpid(child, 0)[1] == 0
leave.set()
thread.join()
assert pybaracuda.backend_available("cpu")
print("done")
"""
    )


def test_a_spawned_worker_raises_what_it_met(tmp_path: Path) -> None:
    run_script(
        JOB
        + """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
    try:
        pool.submit(pybaracuda.RoiAlignPlan.select, pybaracuda.RoiAlignDescriptor(1, -5, 1, 1, 1, 1, 1)).result()
    except pybaracuda.InvalidProblemError as error:
        assert error.status == 2 and "c is -5" in error.detail, error
        print("done")
"""
    )


@pytest.mark.parametrize("order", ["torch first", "torch second"])
def test_torchs_threads_in_the_same_process(order: str) -> None:
    if not available("torch"):
        pytest.skip("no torch")
    imports = "import torch\n" if order == "torch first" else ""
    run_script(
        imports
        + JOB
        + """
expected = job()
import torch
torch.set_num_threads(2)
matrix = torch.randn(200, 200)
product = matrix @ matrix
start = threading.Barrier(4)
failed = []
def work(number):
    start.wait()
    for _ in range(20):
        if number % 2:
            if not torch.equal(matrix @ matrix, product): failed.append("torch")
        elif job() != expected:
            failed.append("ours")
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
# torch's flag leaks into every thread's control register.
torch.set_flush_denormal(True)
assert job() == expected
# Made of bits, since NumPy would flush it too.
tiny = np.full((1, 1, 2, 2), 714, np.uint32).view(np.float32)
box = np.array([[0, 0, 0, 1, 1]], np.float32)
assert pybaracuda.roi_align(tiny, box, 1, sampling_ratio=1).view(np.uint32)[0, 0, 0, 0] != 0
print("done")
"""
    )


def test_the_interpreter_ends_while_the_pool_sleeps() -> None:
    run_script(JOB + "job()\nprint('done')\n")


def test_an_interrupted_thread_leaves_the_library_usable() -> None:
    # Daemon threads are cut down in the middle of a call at exit.
    run_script(
        JOB
        + """
def forever():
    while True: job()
for _ in range(3): threading.Thread(target=forever, daemon=True).start()
job()
print("done", flush=True)
"""
    )


def test_streams_from_many_threads(on_cuda: str) -> None:
    import cupy

    case = cases()["roi_align_backward"]
    expected: Any = case()
    arrays = {name: cupy.asarray(values) for name, values in case.arrays.items()}
    cupy.cuda.Device().synchronize()

    def work(number: int) -> None:
        stream = cupy.cuda.Stream(non_blocking=True)
        for _ in range(200):
            result = case(**arrays, stream=stream)
            stream.synchronize()
            assert_same_bits(cupy.asnumpy(result), expected)

    in_threads(work)


WORKERS = """
import json, os
import numpy as np
import pybaracuda

before = set(os.listdir("/proc/self/task"))
# Enough for the pool to start.
pybaracuda.pad(np.zeros((200, 1000), np.float32), (1, 1), (1, 1))
workers = set(os.listdir("/proc/self/task")) - before
print(json.dumps([sorted(os.sched_getaffinity(0)), [sorted(os.sched_getaffinity(int(each))) for each in workers]]))
"""


@pytest.mark.parametrize(("threads", "is_small"), [(2, True), (8, True), (9, False)])
def test_few_workers_keep_off_the_callers_processor(threads: int, is_small: bool) -> None:
    environment = {**os.environ, "BARACUDA_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", WORKERS], env=environment, check=True, capture_output=True, text=True
    ).stdout
    mine, workers = json.loads(printed)
    assert set(mine) == os.sched_getaffinity(0)
    assert len(workers) == threads - 1
    for each in workers:
        # Where there is one processor they have to share it.
        assert set(each) <= set(mine)
        assert len(each) == max(len(mine) - is_small, 1)
