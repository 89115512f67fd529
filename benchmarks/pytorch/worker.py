# SPDX-License-Identifier: Apache-2.0
"""A process that makes rows' calls in PyTorch's ways or in ours, never in both, and answers what they took.

PyTorch's process never loads `pybaracuda.torch`; in ours an installation comes and goes with each row. Tasks come as
lines of JSON on the standard input, answers go as such lines to the standard output.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import Any, NamedTuple

import torch

import pybaracuda
from benchmarks.harness import host_cost
from benchmarks.harness.device import DevicePlace
from benchmarks.harness.place import Place
from benchmarks.harness.results import summary

from .results import HostResult, Run
from .rows import ROWS, Data, Problem, Row

_RUNS = 6


class Work(NamedTuple):
    """What a worker was started for: "pytorch", "ours" or "python" (the route of ours in Python alone)."""

    role: str
    device: str
    repeat: int
    seed: int
    small: bool


@contextmanager
def _flag() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def has_native_route() -> bool:
    """Whether `install` lets one choose between a native route and the one in Python."""
    import pybaracuda.torch

    return "native" in inspect.signature(pybaracuda.torch.install).parameters


def _install(role: str, deterministic: bool) -> AbstractContextManager[Any]:
    import pybaracuda.torch

    options: dict[str, Any] = {"native": False} if role == "python" and has_native_route() else {}
    return pybaracuda.torch.install(deterministic=deterministic, **options)


def _ways(role: str, compiled: bool) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """How this process makes a row's calls."""
    if role == "pytorch":
        return {"pytorch_compiled": nullcontext} if compiled else {"pytorch": nullcontext, "flag": _flag}
    if compiled:
        return {"ours_compiled": lambda: _install(role, True)}
    return {"ours": lambda: _install(role, False), "ours_flag": lambda: _install(role, True)}


def _counts() -> tuple[Counter[str], Counter[str]]:
    """Calls of ours so far by operator, and those left to PyTorch by operator and reason."""
    if "pybaracuda.torch" not in sys.modules:
        return Counter(), Counter()
    lines = pybaracuda.torch.report().lines
    left: Counter[str] = Counter()
    for line in lines:  # one for each kind of device
        for reason, count in line.fallbacks.items():
            left[f"{line.operator}: {reason}"] += count
    taken: Counter[str] = Counter()
    for line in lines:
        taken[line.operator] += line.ours
    return taken, left


class _Calls:
    """A problem's forward and backward, ready to be made again and again."""

    def __init__(self, problem: Problem, function: Callable[..., Any], seed: int) -> None:
        self.forward: Callable[[], Any] = lambda: function(*problem.leaves)
        before = _counts()
        self.output = self.forward()
        middle = _counts()
        leaves = problem.leaves
        # Random numbers: sums of round ones would have the same bits in any order. They lie as the output does.
        weights = Data(torch, leaves[0].device.type, seed).normal(*self.output.shape)
        self.weights = torch.empty_like(self.output).copy_(weights)
        self.backward: Callable[[], Any] = lambda: torch.autograd.grad(
            self.output, leaves, self.weights, retain_graph=True
        )
        self.gradients = self.backward()
        after = _counts()
        self.taken = {"forward": sorted(middle[0] - before[0]), "backward": sorted(after[0] - middle[0])}
        self.left = sorted(after[1] - before[1])

    def results(self) -> list[Any]:
        """Output and gradients of a fresh run."""
        self.output = self.forward()
        return [self.output.detach(), *map(_values, self.backward())]


def _values(tensor: Any) -> Any:
    """The values of a sparse matrix, which stand where its leaf's do; another tensor as it is."""
    return tensor.values() if tensor.layout == torch.sparse_csr else tensor


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether all bits are the same; those of a NaN count."""
    return all(
        torch.equal(mine.contiguous().view(torch.int32), their.contiguous().view(torch.int32))
        for mine, their in zip(one, other, strict=True)
    )


def _difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest difference over the largest finite result; infinities that are the same do not differ."""
    worst = 0.0
    for mine, their in zip(found, expected, strict=True):
        off = torch.where(mine == their, 0, (mine - their).abs())
        largest = torch.where(their.isfinite(), their.abs(), 0).max().clamp_min(1e-30)
        worst = max(worst, float(off.max() / largest))
    return worst


def reason(error: BaseException) -> str:
    """Why a call cannot be made, in a few words."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    found = re.match(r"(.+?) does not have a deterministic implementation", text)
    return f"raises ({found[1]})" if found else text


class Worker:
    """Makes rows' calls where one place's clock times them."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._weights_seed = work.seed + 1
        self._place = DevicePlace() if work.device == "cuda" else Place()
        torch.utils.deterministic.fill_uninitialized_memory = False
        # A backward pass that is made again needs its buffers again.
        config: Any = importlib.import_module("torch._functorch.config")
        config.donated_buffer = False

    def _problem(self, row: Row, tiny: bool) -> Problem:
        return (row.tiny if tiny else row.build)(Data(torch, self._work.device, self._work.seed))

    def host(self, row: Row) -> HostResult:
        """The host's cost of a tiny call in the way that this process is for."""
        role = self._work.role
        way = "native" if role == "ours" and has_native_route() else "pytorch" if role == "pytorch" else "python"
        result = HostResult(row.host)
        try:
            problem = self._problem(row, True)
            with nullcontext() if role == "pytorch" else _install(role, False):
                calls = _Calls(problem, problem.function, self._weights_seed)

                def both() -> None:
                    torch.autograd.grad(calls.forward(), problem.leaves, calls.weights)

                if role != "pytorch" and not any(calls.taken.values()):
                    raise RuntimeError(f"no call was ours: {'; '.join(calls.left)}")
                forward, whole = host_cost.samples([calls.forward, both], self._place.wait)
        except Exception as error:  # whatever one row raises, the others are measured
            result.notes[way] = reason(error)
            return result
        result.forward[way], result.both[way] = summary(forward), summary(whole)
        return result

    def rows(self, row: Row, compiled: bool) -> dict[str, Run]:
        """A row's calls in the ways that this process is for."""
        found = {}
        problem = self._problem(row, self._work.small)
        expected = None
        if self._work.role != "pytorch" and not compiled:
            expected = _Calls(problem, problem.function, self._weights_seed).results()
        for name, context in _ways(self._work.role, compiled).items():
            try:
                with context():
                    found[name] = self._run(row, problem, compiled, expected)
            except Exception as error:  # whatever one row raises, the others are measured
                found[name] = Run(note=reason(error))
        del problem, expected
        gc.collect()
        if self._work.device == "cuda":
            torch.cuda.empty_cache()
        return found

    def _run(self, row: Row, problem: Problem, compiled: bool, expected: list[Any] | None) -> Run:
        function = problem.function if self._work.role == "pytorch" else problem.ours or problem.function
        eager: list[Any] | None = None
        if compiled:
            if self._work.role != "pytorch":
                eager = _Calls(problem, function, self._weights_seed).results()
            torch._dynamo.reset()
            function = torch.compile(function, dynamic=False)
        calls = _Calls(problem, function, self._weights_seed)
        first = calls.results()
        stable = all([_same(calls.results(), first) for _ in range(_RUNS - 1)])
        run = Run(same_bits=stable, taken=calls.taken, left=calls.left)
        if function is problem.ours:
            run.taken = {direction: ["pybaracuda.torch"] for direction in ("forward", "backward")}
        if expected is not None:
            count = 1 if row.other_gradient else len(expected)
            run.difference = _difference(first[:count], expected[:count])
        if eager is not None:
            is_ours = run.taken["backward"] and not row.formula
            pairs = [*([0] if run.taken["forward"] else []), *(range(1, len(first)) if is_ours else [])]
            run.as_eager = _same([first[each] for each in pairs], [eager[each] for each in pairs])
        del first, eager
        forward, backward = self._place.times([calls.forward, calls.backward], self._work.repeat)
        run.forward, run.backward = summary(forward), summary(backward)
        return run


def main(text: str) -> int:
    """Work off what the standard input asks for; `text` is a Work as JSON."""
    worker = Worker(Work(**json.loads(text)))
    # What libraries print is not an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        task = json.loads(line)
        row = next(row for row in ROWS if row.name == task["row"])
        if task["section"] == "host":
            answer: Any = asdict(worker.host(row))
        else:
            answer = {name: asdict(run) for name, run in worker.rows(row, task["section"] == "compiled").items()}
        print(json.dumps(answer), file=answers, flush=True)
    return 0
