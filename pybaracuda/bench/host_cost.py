# SPDX-License-Identifier: Apache-2.0
"""What a call costs on the host beside the kernel: bound calls, plans and array functions on tiny problems."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pybaracuda

from .._descriptor import PlanPreference
from .contenders import Framework, Torch
from .grid_sample import smooth_grid
from .place import Place
from .results import HostResult, summary

_BATCHES, _CALLS = 25, 200
# Five tensors, two of them outputs: the most that any operator has.
_N, _C, _H, _W = 1, 1, 4, 4
# Microseconds beyond the kernel that each way to call may cost.
_BOUND_LIMIT, _RUN_LIMIT, _NUMPY_LIMIT, _TORCH_LIMIT = 2.0, 4.0, 10.0, 12.0


def _samples(call: Callable[[], Any], wait: Callable[[], None]) -> list[float]:
    """Seconds of one call in each batch; the queue of a device is emptied between batches, outside the clock."""
    found = []
    for _ in range(_BATCHES + 1):
        wait()
        start = time.perf_counter()
        for _ in range(_CALLS):
            call()
        found.append((time.perf_counter() - start) / _CALLS)
    return found[1:]  # the first one warms up


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
        preference=PlanPreference(prefer_backend=place.backend),
    )
    tensors = {name: place.put(array) for name, array in arrays.items()}
    tensors |= {spec.name: place.empty(spec.shape, spec.dtype) for spec in plan.tensors if spec.is_output}
    raw = {name: (tensor.pointer, tensor.nbytes) for name, tensor in tensors.items()}
    bound = plan.bind(**raw)
    function, block = plan._function, bound._block

    def result(name: str, call: Callable[[], Any], limit: float | None, note: str = "") -> HostResult:
        # Both in turns, since the machine changes its speed.
        timed, bare = _samples(call, place.wait), _samples(lambda: function(block), place.wait)
        return HostResult(name, summary(timed), summary(bare).us, limit, note)

    yield result("plan.bind(...), called again", bound, _BOUND_LIMIT)
    yield result("plan.run(...) with raw pointers", lambda: plan.run(**raw), _RUN_LIMIT)
    yield result("plan.bind(...) itself with raw pointers", lambda: plan.bind(**raw), None, "runs nothing")
    if place.backend == "cpu":
        call = pybaracuda.grid_sample_backward
        yield result("array function on NumPy arrays", lambda: call(*arrays.values()), _NUMPY_LIMIT)
    torch = next((each for each in frameworks if isinstance(each, Torch)), None)
    if torch is not None:
        yield from _with_torch(place, torch, result, arrays)
    place.wait()
    place.release()


def _with_torch(place: Place, framework: Torch, result: Callable[..., HostResult], arrays: Any) -> Iterator[HostResult]:
    torch = framework.module
    device = "cuda" if place.backend == "cuda" else "cpu"
    given = [torch.from_numpy(array).to(device) for array in arrays.values()]
    call = pybaracuda.grid_sample_backward
    yield result("array function on torch tensors", lambda: call(*given), _TORCH_LIMIT)
    eager, both = torch.ops.aten.grid_sampler_2d_backward, [True, True]
    note = "PyTorch's own eager call of the same operator, whole"
    yield result("torch grid_sampler_2d_backward", lambda: eager(*given, 0, 0, False, both), None, note)
