# SPDX-License-Identifier: Apache-2.0
"""Signals during long CPU calls: a handler that raises ends the call, whichever way it was made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pybaracuda

# A call of many seconds, three ways, and one of a few milliseconds.
CALLS = """
import os, signal, sys, threading, time
import numpy as np
import pybaracuda

# A shell that starts a program in the background may have it ignore interrupts, and Python then leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
CHANNELS, SIDE, MANY = 16, 512, 60000
values = np.arange(CHANNELS * SIDE * SIDE, dtype=np.float32).reshape(1, CHANNELS, SIDE, SIDE) % 251
boxes = np.tile(np.array([[0, 1, 2, SIDE - 1, SIDE - 3]], np.float32), (MANY, 1))
output = np.empty((MANY, CHANNELS, 7, 7), np.float32)
plan = pybaracuda.RoiAlignPlan.select(pybaracuda.RoiAlignDescriptor(1, CHANNELS, SIDE, SIDE, MANY, 7, 7, 1.0, 2, False))
tensors = {"input": values, "rois": boxes, "output": output}
bound = plan.bind(**tensors)
raw = pybaracuda.raw("cpu")
def raw_run():
    return raw.baracuda_kernels_roi_align_f32_run(1, CHANNELS, SIDE, SIDE, MANY, 7, 7, 1.0, 2, 0, values.ctypes.data,
        boxes.ctypes.data, output.ctypes.data, None, 0, None)
WAYS = {
    "function": lambda: pybaracuda.roi_align(values, boxes, 7, sampling_ratio=2, out=output),
    "plan": lambda: plan.run(**tensors),
    "bound": bound,
    "raw": raw_run,
}
def few():
    return pybaracuda.roi_align(values, boxes[:3], 7, sampling_ratio=2).tobytes()
def send(after, number=signal.SIGINT):
    threading.Timer(after, os.kill, (os.getpid(), number)).start()
def interrupted(call, error):
    began = time.monotonic()
    try:
        call()
    except error as caught:
        return time.monotonic() - began, caught
    raise AssertionError("it was not interrupted")
expected = few()
"""


def run_script(script: str, *arguments: str, **environment: str) -> None:
    """Run a script after CALLS in a fresh interpreter. It must say "done" and nothing on its error stream."""
    variables = {**os.environ, "PYTHONPATH": str(Path(pybaracuda.__file__).parents[1]), **environment}
    done = subprocess.run(
        # From 3.12 on Python warns of any fork beside threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", CALLS + script, *arguments],
        capture_output=True,
        text=True,
        env=variables,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("way", ["function", "plan", "bound", "raw"])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_an_interrupt_ends_a_long_call(way: str, threads: str) -> None:
    run_script(
        """
for _ in range(2):
    send(0.5)
    took, error = interrupted(WAYS[sys.argv[1]], KeyboardInterrupt)
    assert took < 3, took
    assert few() == expected
print("done")
""",
        way,
        BARACUDA_NUM_THREADS=threads,
    )


def test_whatever_a_handler_raises_arrives_and_other_handlers_only_run() -> None:
    run_script(
        """
class Expired(Exception): pass
calls = []
def expire(number, frame):
    # A handler may use the library.
    assert few() == expected
    raise Expired("late")
signal.signal(signal.SIGALRM, expire)
signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(few() == expected))
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
send(0.3, signal.SIGUSR1)
send(0.8, signal.SIGALRM)
took, error = interrupted(WAYS["function"], Expired)
assert error.args == ("late",) and took < 3 and calls == [True], (error, took, calls)
send(0.3, signal.SIGTERM)
took, error = interrupted(WAYS["function"], SystemExit)
assert error.code == 7
assert few() == expected
print("done")
"""
    )


def test_a_call_of_another_thread_goes_on() -> None:
    run_script(
        """
boxes = boxes[:3000]
results = []
def work():
    results.append(pybaracuda.roi_align(values, boxes, 7, sampling_ratio=2)[::1000].tobytes())
work()
send(0.2)
threading.Thread(target=work).start()
took, error = interrupted(lambda: time.sleep(60), KeyboardInterrupt)
while len(results) < 2: time.sleep(0.01)
assert took < 3 and results[0] == results[1]
print("done")
"""
    )


def test_a_library_that_another_thread_loaded_answers_the_main_thread() -> None:
    # The first plan that the main thread selects sets its check.
    script = CALLS.partition("import pybaracuda\n")
    other = "threading.Thread(target=lambda: pybaracuda.backend_available('cpu')).start()\n"
    code = f"{script[0]}import pybaracuda\n{other}time.sleep(0.2)\n{script[2]}"
    code += 'send(0.5)\nassert interrupted(WAYS["bound"], KeyboardInterrupt)[0] < 3\nprint("done")\n'
    variables = {**os.environ, "PYTHONPATH": str(Path(pybaracuda.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_forked_child_answers_too() -> None:
    run_script(
        """
child = os.fork()
if child == 0:
    send(0.5)
    took, error = interrupted(WAYS["plan"], KeyboardInterrupt)
    os._exit(0 if took < 3 and few() == expected else 3)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""
    )
