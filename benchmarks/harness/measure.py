# SPDX-License-Identifier: Apache-2.0
"""Checks and times one row: ours, its twin, a plain copy and every peer, in turns. No operator is named here."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pybaracuda import BackendUnavailableError, BaracudaError, UnsupportedError
from pybaracuda._plan import Plan
from verify.dtypes import Array
from verify.judge import compare
from verify.memory.blocks import POISONS
from verify.memory.tensors import Tensor, same_bits

from . import contenders
from .case import Case, Part, Row
from .contenders import Contender, Framework, MissingError, RawLibrary, first_line
from .draw import Draw
from .place import Place, enough
from .results import Contestant, RowResult, Timing, summary

# Runs after the first whose outputs must have its bits, for ours and for peers.
_OUR_REPEATS, _PEER_REPEATS = 5, 3
# Where a call is timed in batches: batches, how long one should last, and calls in one.
_BATCHES, _BATCH_SECONDS = 11, 0.02
_FEWEST_CALLS, _MOST_CALLS = 4, 40
# An error that no rounding explains: NaN poison that was added to, say.
_WRONG = 0.5


@dataclass
class Setting:
    """What all rows of a run share."""

    place: Place
    frameworks: Sequence[Framework]
    libraries: Sequence[RawLibrary]
    copy_rate: float
    repeat: int
    single: RawLibrary | None = None
    step: Callable[[str], None] = field(default=lambda what: None)


@dataclass
class _Row:
    """One row at work."""

    setting: Setting
    case: Case
    inputs: dict[str, Array]
    tensors: dict[str, Tensor]
    parts: list[Part]

    @property
    def outputs(self) -> list[Tensor]:
        return [self.tensors[name] for name in self.case.outputs()]

    def run_once(self, contender: Contender, poison: int) -> list[Tensor | None]:
        for output in self.outputs:
            self.setting.place.fill(output, poison)
        contender.run()
        self.setting.place.wait()
        return contender.results()

    def is_own(self, result: Tensor | None) -> bool:
        """Whether a result lies in memory that was poisoned."""
        return result is not None and result.pointer in [output.pointer for output in self.outputs]

    def check(self, contender: Contender, repeats: int) -> tuple[Contestant, list[Array | None]]:
        """Run it several times; answer what is known of it but for its time, and its first outputs."""
        place = self.setting.place
        results = self.run_once(contender, POISONS[0])
        first = [None if each is None else place.get(each) for each in results]

        def again(poison: int) -> bool:
            fresh = self.run_once(contender, poison)
            pairs = zip(fresh, first, strict=True)
            return all(new is None or old is None or place.same(new, old) for new, old in pairs)

        stable = all([again(POISONS[0]) for _ in range(repeats)])
        # The bits after another poison say whether all was written, unless they change anyway.
        written = again(POISONS[1]) if stable and any(map(self.is_own, results)) else None
        error, of_bound = errors(self.parts, first)
        return Contestant(contender.name, None, contender.note, stable, written, error, of_bound), first


def errors(parts: Sequence[Part], outputs: Sequence[Array | None]) -> tuple[float | None, float | None]:
    """The largest error over the largest value, and the largest part that an error is of its bound; None unchecked."""
    error = of_bound = None
    for output, take, expected in parts:
        array = outputs[output]
        if array is None:
            continue
        found = compare(take(array), expected)
        error = max(error or 0.0, found.relative_error)
        of_bound = max(of_bound or 0.0, found.of_bound)
    return error, of_bound


def _moved(case: Case, inputs: dict[str, Array], outputs: Sequence[Tensor]) -> int:
    """Bytes that must be read and written."""
    read = sum(array.nbytes for array in inputs.values()) - case.unread(inputs)
    return read + sum(output.nbytes for output in outputs)


def _batched(batch: Callable[[int], None], less: Callable[[int], None]) -> list[float]:
    """Seconds of one run: batches with it and without it in turns, by the host's clock, and their differences."""

    def seconds(each: Callable[[int], None], calls: int) -> float:
        start = time.perf_counter()
        each(calls)
        return (time.perf_counter() - start) / calls

    for each in (batch, less):
        each(1)
    one = seconds(batch, 1)
    # Of calls that last as long as a batch should, one is a batch.
    calls = 1 if one > _BATCH_SECONDS else max(_FEWEST_CALLS, min(_MOST_CALLS, int(_BATCH_SECONDS / one)))
    found: list[float] = []
    while len(found) < _BATCHES and not enough([calls * each for each in found]):
        found.append(max(seconds(batch, calls) - seconds(less, calls), 0.0))
    return found


def _time_together(place: Place, found: Sequence[tuple[Contender, Contestant]], copy: Any, repeat: int) -> Timing:
    """Fill in every contestant's timing; answer the copy's."""
    single = [(contender, contestant) for contender, contestant in found if contender.batch is None]
    calls: list[Callable[[], Any]] = [copy]
    for contender, _ in single:
        calls += [contender.run] if contender.less is None else [contender.run, contender.less]
    seconds = iter(place.times(calls, repeat))
    copy_timing = summary(next(seconds))
    for contender, contestant in single:
        own = next(seconds)
        contestant.timing = summary(own if contender.less is None else _less(own, next(seconds)))
    for contender, contestant in found:
        if contender.batch is not None and contender.less_batch is not None:
            contestant.timing = summary(_batched(contender.batch, contender.less_batch))
    return copy_timing


def _less(whole: Sequence[float], part: Sequence[float]) -> list[float]:
    middle = float(np.median(part))
    return [max(each - middle, 0.0) for each in whole]


def our_plan(case: Case, backend: str) -> Plan | str:
    """The plan, or why there is none."""
    try:
        return case.plan(backend)
    except (UnsupportedError, BackendUnavailableError) as error:
        return f"not supported: {error}"


def _on_the_cpu(work: _Row) -> list[Array]:
    """The outputs of the CPU library on the same inputs, into poisoned memory."""
    host, case = Place(), work.case
    tensors = {name: host.put(array) for name, array in work.inputs.items()}
    for name, output in case.outputs().items():
        tensors[name] = host.empty(*output)
        host.fill(tensors[name], POISONS[1])
    contenders.ours(case, case.plan("cpu"), tensors).run()
    return [host.get(tensors[name]) for name in case.outputs()]


class _Line:
    """A row's contestants as they come in."""

    def __init__(self, work: _Row) -> None:
        self.work = work
        self.ready: list[tuple[Contender, Contestant]] = []
        self.missing: list[Contestant] = []

    def add(self, contender: Contender, repeats: int) -> tuple[Contestant, list[Array | None]] | None:
        """Check one contender and enter it; None if it cannot run."""
        try:
            contestant, outputs = self.work.check(contender, repeats)
        except Exception as problem:  # whatever a peer raises, the run goes on
            self.missing.append(Contestant(contender.name, None, first_line(problem)))
            return None
        self.ready.append((contender, contestant))
        return contestant, outputs

    def add_library(self, library: RawLibrary, plan: Plan) -> Contestant | None:
        """Another library; its outputs are zeroed, and that is timed, where it does not write all of them itself."""
        work = self.work
        try:
            contender = library.contender(work.case, plan, work.setting.place, work.tensors)
        except MissingError as problem:
            self.missing.append(Contestant(library.name, None, str(problem)))
            return None
        entered = self.add(contender, _PEER_REPEATS)
        if entered and contender.zeroing and not (entered[0].error is not None and entered[0].error < _WRONG):
            self.ready.pop()
            entered = self.add(contender.zeroing, _PEER_REPEATS)
        return entered[0] if entered else None


def measure(row: Row, setting: Setting, draw: Draw) -> RowResult:
    """Everything about one row. One that breaks is a wrong one, and the next has its turn."""
    try:
        return _measure(row, setting, draw)
    except (BaracudaError, RuntimeError, MemoryError) as problem:
        traceback.print_exc()
        ours, nothing = Contestant("pybaracuda", None, f"failed: {first_line(problem)}"), Timing(0.0, 0.0, 0.0, 0)
        about = (row.name, row.backend, row.case.operator, row.case.element, row.headline)
        return RowResult(*about, 0, 0.0, draw.entropy, "", ours, nothing, limits=list(row.limits))
    finally:
        for framework in setting.frameworks:
            framework.between_rows()
        setting.place.release()


def _measure(row: Row, setting: Setting, draw: Draw) -> RowResult:
    place, case = setting.place, row.case
    inputs = case.inputs(draw)
    tensors = {name: place.put(array) for name, array in inputs.items()}
    tensors |= {name: place.empty(*output) for name, output in case.outputs().items()}
    work = _Row(setting, case, inputs, tensors, case.parts(inputs, draw))
    moved = _moved(case, inputs, work.outputs)
    line = _Line(work)

    plan = our_plan(case, row.backend)
    our_contender: Contender | None = None
    first: list[Array | None] = []
    twin, twin_same, one_thread = "", None, None
    if isinstance(plan, str):
        our = Contestant("pybaracuda", None, plan)
    else:
        our_contender = contenders.ours(case, plan, tensors)
        our, first = work.check(our_contender, _OUR_REPEATS)
        line.ready.append((our_contender, our))
        if row.backend == "cuda":
            twin, results = "the CPU library", _on_the_cpu(work)
            twin_same = all(one is not None and same_bits(one, two) for one, two in zip(first, results, strict=True))
        elif setting.single is not None:
            twin = "one thread"
            contender = setting.single.contender(case, plan, place, tensors)
            one_thread, outputs = work.check(contender, 0)
            line.ready.append((contender, one_thread))
            pairs = zip(first, outputs, strict=True)
            twin_same = all(one is not None and two is not None and same_bits(one, two) for one, two in pairs)
        for library in setting.libraries:
            line.add_library(library, plan)
    for framework in setting.frameworks:
        for name, found in framework.contenders(case, tensors, inputs).items():
            if isinstance(found, str):
                line.missing.append(Contestant(name, None, found))
            else:
                line.add(found, _PEER_REPEATS)

    copy = _time_together(place, line.ready, place.copy(moved // 2), setting.repeat)
    if our_contender is not None:
        # What the timed runs left behind says nothing: peers write to the same memory. One more run does.
        last = work.run_once(our_contender, POISONS[0])
        kept = [new and old is not None and place.same(new, old) for new, old in zip(last, first, strict=True)]
        our.stable = bool(our.stable) and all(kept)
    return RowResult(
        name=row.name,
        backend=row.backend,
        operator=case.operator,
        element=case.element,
        headline=row.headline,
        bytes=moved,
        light_us=moved / setting.copy_rate * 1e6,
        entropy=draw.entropy,
        checked=case.parts_text if work.parts else "",
        ours=our,
        copy=copy,
        peers=[each for _, each in line.ready if each is not our and each is not one_thread] + line.missing,
        twin=twin,
        twin_same=twin_same,
        one_thread_us=one_thread.timing.us if one_thread and one_thread.timing else None,
        limits=list(row.limits),
    )
