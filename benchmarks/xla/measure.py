# SPDX-License-Identifier: Apache-2.0
"""Measures JAX programs: whole ones, one operator among many, calls from Python, kernels in a call."""

from __future__ import annotations

import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .rows import Row, gradient

__all__ = ["from_python", "in_executables", "launches", "measured", "waiting"]

_NUM_REPEATS = 7
# Of calls in one measurement of a kernel, and of a program of the host's.
_KERNEL_SECONDS = 0.15
_HOST_CALLS = 1000
# A call that takes so long is measured once.
_LONG_SECONDS = 1.0
# Operators in one executable.
LOOP_LENGTH = 1000
# Operators in the program that shows whether a call waits for the device.
_CHAIN_LENGTH = 40


def _seconds(call: Callable[[], Any], number: int) -> float:
    """Seconds of one call of many that are enqueued behind each other."""
    import jax

    start = time.perf_counter()
    for _ in range(number):
        last = call()
    jax.block_until_ready(last)
    return (time.perf_counter() - start) / number


def _in_turns(calls: Mapping[str, Callable[[], Any]], number: int) -> dict[str, float]:
    """Microseconds of the fastest of several measurements of each call, taken in turns: what others do on the machine
    then meets all of them."""
    for call in calls.values():
        _seconds(call, 2)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_NUM_REPEATS):
        for name, call in calls.items():
            found[name].append(_seconds(call, number))
    return {name: min(seconds) * 1e6 for name, seconds in found.items()}


def _kernel_microseconds(call: Callable[[], Any]) -> float:
    """Microseconds of one call of a program that keeps the device busy."""
    _seconds(call, 1)
    once = _seconds(call, 1)
    if once > _LONG_SECONDS:
        return once * 1e6
    number = max(3, int(_KERNEL_SECONDS / max(once, 1e-6)))
    return statistics.median(_seconds(call, number) for _ in range(_NUM_REPEATS)) * 1e6


def _bits_of(call: Callable[[], Any]) -> bytes:
    import jax
    import numpy as np

    return b"".join(np.asarray(each).tobytes() for each in jax.tree.leaves(call()))


def measured(row: Row, who: str) -> dict[str, Any]:
    """A row's time, by ours or XLA's way, and whether repeats had the same bits; or why there is none."""
    import jax
    import numpy as np

    arrays = [jax.device_put(each) for each in row.arrays(np.random.default_rng(0))]
    jitted = jax.jit(row.ours if who == "ours" else row.xla)

    def call() -> Any:
        return jitted(*arrays)

    try:
        us = _kernel_microseconds(call)
        repeats = 2 if us > _LONG_SECONDS * 1e6 else 5
        return {"us": us, "same_bits": len({_bits_of(call) for _ in range(repeats)}) == 1}
    except Exception as error:  # out of memory, or an operator that XLA does not do so
        return {"us": None, "note": f"{type(error).__name__}: {str(error)[:200]}"}


def in_executables(rng: Any) -> dict[str, float]:
    """Microseconds of one operator among a thousand in one executable, on 4 x 4 images."""
    import jax
    import jax.numpy as jnp

    import pybaracuda.jax as bj

    x = jnp.asarray(rng.standard_normal((1, 1, 4, 4)).astype("float32"))
    grid = jnp.asarray(rng.uniform(-1, 1, (1, 4, 4, 2)).astype("float32"))
    rows, ids = jnp.asarray(rng.standard_normal((4, 4)).astype("float32")), jnp.arange(4)
    bodies: dict[str, tuple[Any, Callable[..., Any]]] = {
        "x * c": (x, lambda y: y * 0.999),
        "grid_sample": (x, lambda y: bj.grid_sample(y, grid)),
        "pad": (x, lambda y: bj.pad(y, (0, 0, 1, 0), (0, 0, -1, 0), "replicate")),
        "segment_sum": (rows, lambda y: bj.segment_sum(y, ids, 4)),
        "jax.ops.segment_sum": (rows, lambda y: jax.ops.segment_sum(y, ids, 4)),
    }
    runs: dict[str, Callable[[], Any]] = {}
    for name, (start, body) in bodies.items():

        def loop(y: Any, body: Callable[..., Any] = body) -> Any:
            return jax.lax.fori_loop(0, LOOP_LENGTH, lambda _, z: body(z), y)

        runs[name] = partial(jax.jit(loop), start)
    return {name: us / LOOP_LENGTH for name, us in _in_turns(runs, 3).items()}


def from_python(rng: Any) -> dict[str, float]:
    """Microseconds of one call on tiny arrays from Python, enqueued behind each other."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pybaracuda
    import pybaracuda.jax as bj

    host_x, host_grid = rng.standard_normal((1, 1, 4, 4)), rng.uniform(-1, 1, (1, 4, 4, 2))
    host = [np.asarray(each, np.float32) for each in (host_x, host_grid)]
    x, grid = map(jax.device_put, host)
    pads = ((0, 0), (0, 0), (1, 1), (1, 1))
    low = (0, 0, 1, 1)
    add = jax.jit(lambda y: y + 1)
    sample, pad = jax.jit(bj.grid_sample), jax.jit(lambda y: bj.pad(y, low, low, "reflect"))
    their_pad = jax.jit(lambda y: jnp.pad(y, pads, "reflect"))
    plan = pybaracuda.GridSamplePlan.select(pybaracuda.GridSampleDescriptor(1, 1, 4, 4, 4, 4))
    out = np.empty((1, 1, 4, 4), np.float32)
    bound = plan.bind(input=host[0], grid=host[1], output=out)
    calls: dict[str, Callable[[], Any]] = {
        "jitted x + 1": lambda: add(x),
        "jitted grid_sample": lambda: sample(x, grid),
        "jitted pad": lambda: pad(x),
        "jitted jnp.pad": lambda: their_pad(x),
        "pybaracuda.jax.grid_sample, not jitted": lambda: bj.grid_sample(x, grid),
        "pybaracuda.grid_sample on JAX arrays": lambda: pybaracuda.grid_sample(x, grid),
        "pybaracuda.grid_sample on NumPy arrays": lambda: pybaracuda.grid_sample(host[0], host[1]),
        "the bound C call, from Python": bound,
    }
    return _in_turns(calls, _HOST_CALLS)


def launches(rng: Any) -> dict[str, Any]:
    """Kernels of this library in one call, of a program and of the array function, from JAX's own profiler."""
    import jax
    import numpy as np

    import pybaracuda
    import pybaracuda.jax as bj

    x = jax.device_put(rng.standard_normal((4, 16, 128, 128)).astype("float32"))
    grid = jax.device_put(rng.uniform(-1, 1, (4, 128, 128, 2)).astype("float32"))
    rows = jax.device_put(rng.standard_normal((100_000, 32)).astype("float32"))
    ids = jax.device_put(rng.integers(0, 5000, 100_000).astype("int32"))
    boxes = jax.device_put(np.array([[0, 8, 9, 80, 90], [3, 1, 2, 60, 50]], np.float32))
    bins = jax.device_put(rng.standard_normal((2, 16, 7, 7)).astype("float32"))
    sums = jax.device_put(rng.standard_normal((5000, 32)).astype("float32"))
    low = (0, 0, 3, 3)
    # The function, its operands, and the array function that does the same.
    problems: dict[str, tuple[Callable[..., Any], list[Any], Callable[..., Any]]] = {
        "grid_sample": (bj.grid_sample, [x, grid], pybaracuda.grid_sample),
        "grid_sample_backward": (gradient(bj.grid_sample, 0, 1), [x, x, grid], pybaracuda.grid_sample_backward),
        "segment_sum": (
            lambda y, i: bj.segment_sum(y, i, 5000),
            [rows, ids],
            lambda y, i: pybaracuda.segment_sum(y, i, 5000),
        ),
        "segment_max_backward": (
            gradient(lambda y, i: bj.segment_max(y, i, 5000), 0),
            [sums, rows, ids],
            lambda g, y, i: pybaracuda.segment_max_backward(g, y, i, ties="even"),
        ),
        "roi_align_backward": (
            gradient(lambda y, b: bj.roi_align(y, b, 7), 0),
            [bins, x, boxes],
            lambda g, y, b: pybaracuda.roi_align_backward(g, b, y.shape),
        ),
        "pad_backward": (
            gradient(lambda y: bj.pad(y, low, low, "reflect"), 0),
            [jax.device_put(rng.standard_normal((4, 16, 134, 134)).astype("float32")), x],
            lambda g, y: pybaracuda.pad_backward(g, low, low, "reflect"),
        ),
    }
    found: dict[str, Any] = {}
    for name, (program, operands, function) in problems.items():
        counts = [_num_kernels(partial(call, *operands)) for call in (jax.jit(program), function)]
        found[name] = {"in a program": counts[0], "by the array function": counts[1]}
    return found


def _num_kernels(call: Callable[[], Any], repeats: int = 10) -> float | None:
    """How many kernels of this library run in one call; None where the profiler shows none."""
    import jax

    jax.block_until_ready(call())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(repeats):
                jax.block_until_ready(call())
        events: list[dict[str, Any]] = []
        for path in Path(folder).rglob("*.trace.json.gz"):
            with gzip.open(path) as file:
                events += json.load(file)["traceEvents"]
    names = {each["pid"]: each["args"]["name"] for each in events if each.get("name") == "process_name"}
    on_gpu = [each for each in events if each.get("ph") == "X" and "GPU" in names.get(each.get("pid"), "")]
    ours = [each for each in on_gpu if "baracuda" in json.dumps([each["name"], each.get("args", {})])]
    return len(ours) / repeats if ours else None


def waiting(rng: Any, shape: tuple[int, int, int, int] = (16, 64, 256, 256)) -> dict[str, float]:
    """Microseconds until a program of many operators returns, and until its results are there: the difference is what
    it did not wait for."""
    import jax

    import pybaracuda.jax as bj

    n, _, h, w = shape
    x = jax.device_put(rng.standard_normal(shape).astype("float32"))
    grid = jax.device_put(rng.uniform(-1, 1, (n, h, w, 2)).astype("float32"))

    def chain(x: Any, grid: Any) -> Any:
        for _ in range(_CHAIN_LENGTH):
            x = bj.grid_sample(x, grid)
        return x

    program = jax.jit(chain)
    jax.block_until_ready(program(x, grid))
    found = []
    for _ in range(_NUM_REPEATS):
        start = time.perf_counter()
        result = program(x, grid)
        returned = time.perf_counter() - start
        jax.block_until_ready(result)
        found.append({"returned": returned * 1e6, "done": (time.perf_counter() - start) * 1e6})
    return min(found, key=lambda each: each["returned"])
