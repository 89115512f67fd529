# SPDX-License-Identifier: Apache-2.0
"""Makes a call of a library and judges everything that can be seen of it: status, words, memory, bits."""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pybaracuda._check.runs import CallerMode, CallerModeChangedError
from tools.fuzzing import content, draw, model
from tools.fuzzing.abi import ENTRY_CODES, Bits128, Functions, Library, Symbol, by_name
from tools.fuzzing.call import Call
from tools.fuzzing.families import family_of
from tools.fuzzing.judge import POISONS, Report, check_answer, check_results, where
from tools.fuzzing.memory import PAGE, DeviceMemory, GuardedRegion, HostMemory
from tools.fuzzing.model import OK, Problem, Span, Verdict

NOWHERE = 0x1001  # an address that no call may touch, and aligned to no element wider than a byte
MOST_TENSORS = 10


class Side(NamedTuple):
    """A library and the memory that its pointers reach."""

    library: Library
    memory: HostMemory | DeviceMemory

    @property
    def takes_streams(self) -> bool:
        return self.library.backend == "cuda"


def side_of(library: Library) -> Side:
    """Regions for the tensors and, last, the workspace."""
    kind = DeviceMemory if library.backend == "cuda" else HostMemory
    return Side(library, kind(MOST_TENSORS + 1, draw.MOST_BYTES + 2 * PAGE))


class Finding(NamedTuple):
    """One broken promise."""

    what: str


class Outcome(NamedTuple):
    """What became of a call: the status of run, how many C functions were called, what is wrong."""

    status: int
    entered: int
    findings: list[Finding]
    compared: bool = False


class _Given(NamedTuple):
    """Arguments as they are passed: in call order for each C function."""

    run: list[Any]
    parameters: list[Any]
    block: bytes


class Executor:
    """Runs calls on one side and compares results with another's."""

    def __init__(self, side: Side, other: Side | None) -> None:
        self.side, self.other = side, other
        self.streams = len(side.memory.streams)
        # Host arrays, the struct of options and the element it points to: each ends where a page does.
        self._arrays = [GuardedRegion(PAGE) for _ in range(8)]
        self._block = (ctypes.c_char * 256)()
        self._block_address = ctypes.addressof(self._block)
        self._mode = CallerMode() if platform.machine() == "x86_64" else None
        self._noise = np.random.default_rng(1).integers(0, 256, draw.MOST_BYTES, np.uint8)
        self._rubbish = int(self._noise.ctypes.data)

    # ---- arguments

    def _problem_arguments(self, symbol: Symbol, call: Call) -> list[tuple[str, Any]]:
        """Every parameter but the tensors, with host arrays and options laid out: (name, value or address)."""
        found: list[tuple[str, Any]] = []
        regions = iter(self._arrays)
        for parameter in symbol.parameters:
            name = parameter.name
            if parameter is symbol.options:
                found.append((name, self._options(symbol, call, regions)))
            elif name in call.values:
                value = call.values[name]
                if isinstance(value, list):
                    memory = struct.pack(f"{len(value)}{ENTRY_CODES[parameter.ctype]}", *value)  # type: ignore[union-attr]
                    region = next(regions)
                    value = region.hold(len(memory), "end", 0)
                    region.put(memory)
                found.append((name, value))
            else:
                found.append((name, None))  # a tensor, or a host array that is NULL
        return found

    def _options(self, symbol: Symbol, call: Call, regions: Iterator[GuardedRegion]) -> int | None:
        size = call.options_size
        if size is None:
            return None
        known = bytearray(symbol.options_bytes)
        struct.pack_into("@N", known, 0, size)
        for field in symbol.fields:
            value = call.values.get(field.name)
            if field.scalar is not None:
                struct.pack_into("@d" if field.scalar.ctype == "f64" else "@i", known, field.offset, value)
            elif value is not None:
                width = content.WIDTHS[symbol.element]
                region = next(regions)
                struct.pack_into("@P", known, field.offset, region.hold(width, "end", 0))
                region.put(int(value).to_bytes(width, "little"))
        memory = bytes(known) + bytes([call.options_beyond]) * max(size - len(known), 0)
        memory = memory[: max(size, struct.calcsize("@N"))]
        region = next(regions)
        # An odd size may not move the struct off its alignment.
        address = region.hold(len(memory), "end", -len(memory) % 8)
        region.put(memory)
        return address

    def _given(
        self, symbol: Symbol, arguments: list[tuple[str, Any]], pointers: dict[str, int], tail: tuple[int, int, int]
    ) -> _Given:
        plain: list[Any] = []
        run: list[Any] = []
        for name, value in arguments:
            if name in pointers:
                value = pointers[name]
            elif name == "value" and symbol.element == "b128":
                low, high = value & 2**64 - 1, value >> 64
                plain += [low, high]
                run.append(Bits128(low, high))
                continue
            plain.append(0 if value is None else value)
            run.append(value)
        *workspace, stream = tail
        ordered = symbol.operator.in_call_order(run, workspace)
        return _Given([*ordered, stream], run, symbol.block.pack(*plain, *tail))

    # ---- memory

    def _hold(self, side: Side, symbol: Symbol, call: Call, spans: dict[str, Span]) -> dict[str, int]:
        """Choose where every tensor stands; answers the pointers."""
        pointers = {}
        for region, tensor in zip(side.memory.regions, symbol.tensors, strict=False):
            place, span = call.places[tensor.name], spans.get(tensor.name, model.EMPTY)
            if place.at == "null":
                region.release()
                pointers[tensor.name] = 0
            else:
                pointers[tensor.name] = region.hold(span.bytes, place.at, place.shift) + span.first
        return pointers

    def _join(self, side: Side, symbol: Symbol, call: Call, spans: dict[str, Span], pointers: dict[str, int]) -> None:
        """Two tensors in one region: the output has no region of its own."""
        assert call.alias is not None
        output, other, shift = call.alias
        if call.places[output].at == "null" or call.places[other].at == "null":
            return
        names = [tensor.name for tensor in symbol.tensors]
        region = side.memory.regions[names.index(other)]
        size = max(spans[other].bytes, shift + spans[output].bytes)
        base = region.hold(size, "end", -size % 16)
        pointers[other] = base + spans[other].first
        pointers[output] = base + shift + spans[output].first
        side.memory.regions[names.index(output)].release()

    def _fill(self, side: Side, symbol: Symbol, images: dict[str, bytes], poison: bytes) -> None:
        """Inputs get their elements, outputs poison."""
        for region, tensor in zip(side.memory.regions, symbol.tensors, strict=False):
            if region.after > region.before:
                size = region.stop - region.start
                image = images.get(tensor.name, b"")
                if len(image) != size:  # an output, or an input with an output behind it
                    image += poison * (size - len(image))
                region.put(image)

    def _harm(self, side: Side, symbol: Symbol, shared: str | None, failed: bool) -> list[str]:
        """What was written although it may not be: beside a region, an input, and by a failed call anything."""
        found = []
        for region, tensor in zip(side.memory.regions, symbol.tensors, strict=False):
            if failed or not (tensor.is_output or tensor.name == shared):
                if not region.is_untouched():
                    what = (
                        f"{tensor.name} was written" if region.canaries_live() else f"beside {tensor.name} was written"
                    )
                    found.append(what + (" by a call that failed" if failed else ""))
            elif not region.canaries_live():
                found.append(f"beside {tensor.name} was written")
        if not side.memory.regions[-1].canaries_live():
            found.append("beside the workspace was written")
        return found

    def _elements(self, region: GuardedRegion, span: Span, width: int, poison: bytes) -> tuple[bytes, bool]:
        """An output's elements in row-major order, and whether the gaps between them kept the poison."""
        if span.strides is None:
            return region.get(), True
        view: Any = np.ndarray(
            span.shape, f"V{width}", region.bytes, region.start + span.first, span.strides
        )  # fmt: skip
        found = view.tobytes()
        view[...] = np.frombuffer(poison * width, f"V{width}")[0]
        return found, region.get() == poison * (region.stop - region.start)

    def _workspace(self, side: Side, call: Call, needed: int, values: Any) -> tuple[int, int]:
        """Address and bytes, as the call's kind says; what is there is rubbish."""
        region = side.memory.regions[-1]
        region.release()
        kind = call.workspace.kind
        if kind == "none" or (kind != "null" and needed > draw.MOST_BYTES):
            return 0, 0
        if kind == "null":
            return 0, max(needed, 1)
        size = needed
        if kind == "larger":
            size = min(needed + 48, draw.MOST_BYTES)
        elif kind == "short":
            size = max(needed - 1, 0)
        elif kind == "frozen":
            size = min(4 * max(values.get("num_segments", 0), 0), draw.MOST_BYTES)
        # It ends at the guard where its alignment allows that.
        shift = -size % model.WORKSPACE_ALIGNMENT if call.workspace.at == "end" else 0
        address = region.hold(size, call.workspace.at, shift)
        region.put_from(self._rubbish, size)
        return address + (1 if kind == "misaligned" else 0), size

    # ---- the call

    def run(self, call: Call, judged: Problem | None = None) -> Outcome:
        """Make one call through every C function and judge it."""
        symbol = by_name()[call.symbol]
        side = self.side
        functions, library = side.library.functions(symbol), side.library
        judged = judged or model.problem(symbol, call)
        if judged.verdict.status == OK and not judged.is_empty:
            judged = judged._replace(verdict=model.self_overlap(symbol, judged))
        findings: list[Finding] = []

        def report(what: str) -> None:
            findings.append(Finding(what))

        arguments = self._problem_arguments(symbol, call)
        spans = judged.spans if judged.verdict.status == OK else {}
        pointers = self._hold(side, symbol, call, spans)
        if call.alias is not None and spans:
            self._join(side, symbol, call, spans, pointers)

        # What needs no pointer: can_implement ignores them.
        problem = self._given(symbol, arguments, dict.fromkeys(pointers, NOWHERE), (0, 0, 0))
        asked = problem.run[:-1] if symbol.operator.after_workspace else problem.parameters
        status = functions.can_implement(*asked)
        text = library.last_error()
        check_answer(report, "can_implement", symbol, judged.verdict, status, text)
        needed = functions.workspace_size(*[problem.parameters[place] for place in symbol.sizing])
        if judged.verdict.status != OK and needed != 0:
            report(f"workspace_size answers {needed} for a problem that is refused")

        workspace = self._workspace(side, call, needed, judged.values)
        stream = side.memory.stream(call.stream) if side.takes_streams else call.stream
        verdict = model.launch(symbol, judged, pointers, workspace, needed, stream, side.takes_streams)
        if verdict.status == OK and needed > draw.MOST_SCRATCH and workspace[0] == 0:
            return Outcome(OK, 2, findings)  # not worth the time
        images = self._images(symbol, call, judged)
        given = self._given(symbol, arguments, pointers, (*workspace, stream))
        if verdict.status != OK or judged.is_empty:
            said = self._refused(report, symbol, given, images, verdict)
            if verdict.of_problem and said != text:
                report(f"run says {said!r}, can_implement {text!r}")
            return Outcome(verdict.status, 4, findings)
        found = []
        for verb, poison in zip(("run", "run_packed"), POISONS, strict=True):
            self._fill(side, symbol, images, poison)
            side.memory.upload()
            status = self._enter(report, verb, symbol, functions, given, call.flushes)
            said = library.last_error()
            side.memory.download()
            check_answer(report, verb, symbol, verdict, status, said)
            shared = call.alias.other if call.alias is not None else None
            for what in self._harm(side, symbol, shared, status != OK):
                report(f"{verb}: {what}")
            if status == OK and call.alias is None:
                found.append(self._results(report, verb, side, symbol, judged, poison))
        if len(found) < 2:
            return Outcome(status, 4, findings)
        unspecified = self._is_unspecified(symbol, call, judged, images)
        check_results(report, symbol, found[0], found[1], unspecified)
        if self.other is not None and not unspecified:
            other = self._elsewhere(report, self.other, symbol, call, judged, arguments, pointers, images)
            for output, mine, theirs in zip(symbol.outputs, found[0], other, strict=True):
                if mine != theirs:
                    report(f"{output.name} differs {where(mine, theirs, output.element_bytes)} from "
                           f"{self.other.library.path.name}")  # fmt: skip
        return Outcome(status, 4, findings, not unspecified)

    def _enter(
        self, report: Report, verb: str, symbol: Symbol, functions: Functions, given: _Given, flushes: bool = False
    ) -> int:
        if verb == "run_packed":
            ctypes.memmove(self._block_address, given.block, len(given.block))
            return int(functions.run_packed(self._block_address))
        if not flushes or self._mode is None:
            return int(functions.run(*given.run))
        # In that mode ctypes itself would turn a small float into 0.
        types = symbol.argument_types("run")
        passed = [
            kind(value) if isinstance(value, float) else value for kind, value in zip(types, given.run, strict=True)
        ]
        status = OK
        try:
            with self._mode.flushing():
                status = functions.run(*passed)
        except CallerModeChangedError:
            report("run changes the caller's float mode")
        return int(status)

    def _refused(
        self, report: Report, symbol: Symbol, given: _Given, images: dict[str, bytes], verdict: Verdict
    ) -> str:
        """A call that must fail, or has nothing to write: nothing may change. Answers what run says."""
        side = self.side
        self._fill(side, symbol, images, POISONS[0])
        side.memory.upload()
        texts = []
        for verb in ("run", "run_packed"):
            status = self._enter(report, verb, symbol, side.library.functions(symbol), given)
            texts.append(side.library.last_error())
            check_answer(report, verb, symbol, verdict, status, texts[-1])
        if texts[0] != texts[1]:
            report(f"run says {texts[0]!r}, run_packed {texts[1]!r}")
        side.memory.download()
        for what in self._harm(side, symbol, None, True):
            report(f"run or run_packed: {what}")
        return texts[0]

    def _images(self, symbol: Symbol, call: Call, judged: Problem) -> dict[str, bytes]:
        if judged.verdict.status != OK or judged.is_empty:
            return {}
        return {
            tensor.name: content.elements(
                tensor.token,
                call.contents[tensor.name],
                judged.spans[tensor.name].bytes // tensor.element_bytes,
                family_of(symbol.operator.family).limit(symbol, tensor.name, dict(judged.values)),
            )
            for tensor in symbol.inputs
            if call.places[tensor.name].at != "null"
        }

    def _is_unspecified(self, symbol: Symbol, call: Call, judged: Problem, images: dict[str, bytes]) -> bool:
        for tensor in symbol.inputs:
            if tensor.name in ("segment_ids", "offsets", "index"):
                return content.is_unspecified(
                    symbol.operator.family,
                    judged.values,
                    call.contents[tensor.name],
                    images.get(tensor.name, b""),
                    tensor.token,
                )
        return False

    def _results(
        self, report: Report, verb: str, side: Side, symbol: Symbol, judged: Problem, poison: bytes
    ) -> list[bytes]:
        results = []
        for region, tensor in zip(side.memory.regions, symbol.tensors, strict=False):
            if tensor.is_output:
                span = judged.spans[tensor.name]
                if span.elements == 0:
                    results.append(b"")
                    continue
                elements, kept = self._elements(region, span, tensor.element_bytes, poison)
                results.append(elements)
                if not kept:
                    report(f"{verb}: a gap between the elements of {tensor.name} was written")
        return results

    def _elsewhere(
        self, report: Report, other: Side, symbol: Symbol, call: Call, judged: Problem,
        arguments: list[tuple[str, Any]], pointers: dict[str, int], images: dict[str, bytes],
    ) -> list[bytes]:  # fmt: skip
        """The results of the other side, for which nothing is done but the work."""
        if other.memory is not self.side.memory:
            pointers = self._hold(other, symbol, call, judged.spans)
            self._fill(other, symbol, images, POISONS[0])
        else:
            for region, tensor in zip(other.memory.regions, symbol.tensors, strict=False):
                if tensor.is_output and region.after > region.before:
                    region.put(POISONS[0] * (region.stop - region.start))
        other.memory.upload()
        given = self._given(symbol, arguments, pointers, (0, 0, 0))
        status = other.library.functions(symbol).run(*given.run)
        other.memory.download()
        if status != OK:
            report(f"{other.library.path.name} answers {status}: {other.library.last_error()!r}")
        for what in self._harm(other, symbol, None, status != OK):
            report(f"{other.library.path.name}: {what}")
        return self._results(report, other.library.path.name, other, symbol, judged, POISONS[0])
