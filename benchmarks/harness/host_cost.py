# SPDX-License-Identifier: Apache-2.0
"""What a call costs on the host beside the kernel: bound calls, plans and array functions on tiny problems."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import pybaracuda
from benchmarks.operators.grid_sample import smooth_grid

from .contenders import Framework, Torch
from .place import Place
from .results import HostResult, summary

# A batch is short enough not to fill a device's queue, where the host would wait.
_BATCHES, _CALLS = 101, 20
# Five tensors, two of them outputs: the most that any operator has.
_N, _C, _H, _W = 1, 1, 4, 4
# Microseconds beyond the kernel that each way to call may cost.
_BOUND_LIMIT, _RUN_LIMIT, _NUMPY_LIMIT, _TORCH_LIMIT = 2.0, 4.0, 10.0, 12.0


def samples(calls: Sequence[Callable[[], Any]], wait: Callable[[], None]) -> list[list[float]]:
    """Seconds of one call in each batch, in turns; a device's queue is emptied between batches, outside the clock."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(_BATCHES + 1):
        for call, seconds in zip(calls, found, strict=True):
            wait()
            start = time.perf_counter()
            for _ in range(_CALLS):
                call()
            seconds.append((time.perf_counter() - start) / _CALLS)
    return [seconds[1:] for seconds in found]  # the first one warms up


def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng()
    image = (_N, _C, _H, _W)
    return {
        "grad_output": rng.standard_normal(image, np.float32),
        "input": rng.standard_normal(image, np.float32),
        "grid": smooth_grid(_N, _H, _W, rng).astype(np.float32),
    }


def measure(place: Place, frameworks: list[Framework]) -> Iterator[HostResult]:
    """Each way to call grid_sample_2d_backward; "bare" is the C function with its packed block through ctypes alone."""
    arrays = _arrays()
    plan = pybaracuda.GridSampleBackwardPlan.select(
        pybaracuda.GridSampleBackwardDescriptor(_N, _C, _H, _W, _H, _W),
        preference=pybaracuda.PlanPreference(prefer_backend=place.backend),
    )
    tensors = {name: place.put(array) for name, array in arrays.items()}
    tensors |= {spec.name: place.empty(spec.shape, spec.dtype) for spec in plan.tensors if spec.is_output}
    raw = {name: (tensor.pointer, tensor.nbytes) for name, tensor in tensors.items()}
    bound = plan.bind(**raw)
    function, block = plan.kernel.function, bound._block

    def result(name: str, call: Callable[[], Any], limit: float) -> HostResult:
        timed, bare = samples([call, lambda: function(block)], place.wait)
        return HostResult(name, summary(timed), summary(bare).us, limit)

    def alone(name: str, call: Callable[[], Any], note: str) -> HostResult:
        (timed,) = samples([call], place.wait)
        return HostResult(name, summary(timed), note=note)

    yield result("plan.bind(...), called again", bound, _BOUND_LIMIT)
    yield result("plan.run(...) with raw pointers", lambda: plan.run(**raw), _RUN_LIMIT)
    yield alone("plan.bind(...) itself with raw pointers", lambda: plan.bind(**raw), "runs nothing")
    if place.backend == "cpu":
        call = pybaracuda.grid_sample_backward
        yield result("array function on NumPy arrays", lambda: call(*arrays.values()), _NUMPY_LIMIT)
    torch = next((each for each in frameworks if isinstance(each, Torch)), None)
    if torch is not None:
        given = [torch.module.from_numpy(array).to(place.backend) for array in arrays.values()]
        ours, eager = pybaracuda.grid_sample_backward, torch.module.ops.aten.grid_sampler_2d_backward
        yield result("array function on torch tensors", lambda: ours(*given), _TORCH_LIMIT)
        options = (0, 0, False, [True, True])
        yield alone("torch grid_sampler_2d_backward", lambda: eager(*given, *options), "PyTorch's own eager call")
    place.wait()
    place.release()
