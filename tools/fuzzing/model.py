# SPDX-License-Identifier: Apache-2.0
"""What the contract says about a call: which status, which arguments its message may name. No library is asked.

Written from the header's words and the ABI table, not from the code that it judges. The checks run in one order, stage
by stage; where several arguments fail in one stage, the message may name any of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tools.fuzzing.abi import Entries, Symbol, Tensor, completed
from tools.fuzzing.call import Call
from tools.fuzzing.families import family_of

OK, MISALIGNED, INVALID, UNSUPPORTED, TOO_SMALL = range(5)
INT64_MAX = 2**63 - 1
WORKSPACE_ALIGNMENT = 16


class Span(NamedTuple):
    """A tensor's memory: bytes from its lowest element to its highest, gaps included, and where element 0 stands."""

    shape: list[int]
    strides: list[int] | None  # in bytes; None is dense
    bytes: int
    first: int
    elements: int


EMPTY = Span([0], None, 0, 0, 0)


class Verdict(NamedTuple):
    """The status a call must answer and what its text must say one of."""

    status: int
    names: frozenset[str] = frozenset()
    # Whether the problem alone is at fault, so that can_implement answers the same.
    of_problem: bool = False
    # Tensors whose strides may be too irregular to compare: a call that names one may be refused as if places met.
    irregular: frozenset[str] = frozenset()


PASSED = Verdict(OK)


def refused(names: Iterator[str] | set[str], of_problem: bool = True, status: int = INVALID) -> Verdict:
    return Verdict(status, frozenset(names), of_problem)


class Problem(NamedTuple):
    """A call's scalars and shapes, judged: `spans` are there when they hold."""

    verdict: Verdict
    values: Mapping[str, Any]
    spans: dict[str, Span]
    is_empty: bool = False


def seen_values(symbol: Symbol, call: Call) -> dict[str, Any]:
    """The values as the library sees them: fields of the options that lie past the caller's size are 0."""
    values = completed(call.values)
    if symbol.options is not None and call.options_size is not None:
        for field in symbol.fields:
            if field.offset >= call.options_size:
                values[field.name] = None if field.is_pointer else 0
    return values


def problem(symbol: Symbol, call: Call) -> Problem:
    """The stages that need no data pointer, in order."""
    values = seen_values(symbol, call)
    missing = {array.name for array in symbol.host_arrays if values[array.name] is None}
    if missing and values.get("rank") == 0:
        # Without entries there is nothing to point to.
        values |= dict.fromkeys(missing, Entries())
        missing = set()
    if symbol.options is not None and call.options_size is None:
        missing.add(symbol.options.name)
    if missing:
        return Problem(refused(missing), values, {})
    wrong = _scalar_faults(symbol, call, values)
    if wrong:
        return Problem(refused(wrong), values, {})
    spans: dict[str, Span] = {}
    large = set()
    for tensor in symbol.tensors:
        found = _span(symbol, tensor, values)
        if found is None:
            large.add(tensor.name)
        else:
            spans[tensor.name] = found
    if large:
        return Problem(refused(large), values, {})
    return Problem(PASSED, values, spans, all(spans[t.name].elements == 0 for t in symbol.outputs))


def _scalar_faults(symbol: Symbol, call: Call, values: Mapping[str, Any]) -> set[str]:
    wrong = set()
    if symbol.options is not None:
        size = call.options_size
        assert size is not None
        if size < struct.calcsize("@N") or (size > symbol.options_bytes and call.options_beyond != 0):
            return {"options->size"}
        for field in symbol.fields:
            if field.scalar is not None and not _in_range(field.scalar, values[field.name]):
                wrong.add(f"options->{field.name}")
        wrong |= family_of(symbol.operator.family).options_faults(symbol, values)
    for scalar in symbol.scalars:
        if not _in_range(scalar, values[scalar.name]):
            wrong.add(scalar.name)
    rank = values.get("rank")
    for array in symbol.host_arrays:
        entries = values[array.name] or []
        if array.low is not None and (rank is None or 0 <= rank <= 8) and any(entry < array.low for entry in entries):
            wrong.add(array.name)
        # Real numbers in an array are finite, in every operator.
        if array.ctype == "f32" and not all(map(math.isfinite, entries)):
            wrong.add(array.name)
    if wrong:
        return wrong
    # What the table cannot say: how arguments go together.
    return family_of(symbol.operator.family).faults(symbol, values)


def _in_range(scalar: Any, value: Any) -> bool:
    if scalar.finite and not math.isfinite(value):
        return False
    return (scalar.low is None or value >= scalar.low) and (scalar.high is None or value <= scalar.high)


def _span(symbol: Symbol, tensor: Tensor, values: Mapping[str, Any]) -> Span | None:
    """None if its bytes pass 63 bits."""
    shape = symbol.extents(tensor, values)
    elements = math.prod(shape)
    width = tensor.element_bytes
    if elements == 0:
        return EMPTY
    if tensor.strides is None:
        return Span(shape, None, elements * width, 0, elements) if elements * width <= INT64_MAX else None
    strides = values[tensor.strides]
    below = above = 0
    for extent, stride in zip(shape, strides, strict=True):
        if stride < 0:
            below -= (extent - 1) * stride
        else:
            above += (extent - 1) * stride
    if max((below + above + 1), elements) * width > INT64_MAX:
        return None
    # A step that is never taken may be any.
    steps = [width * stride if n > 1 else width for n, stride in zip(shape, strides, strict=True)]
    return Span(shape, steps, (below + above + 1) * width, below * width, elements)


def launch(
    symbol: Symbol,
    judged: Problem,
    pointers: Mapping[str, int],
    workspace: tuple[int, int],
    needed: int,
    stream: int,
    takes_streams: bool,
) -> Verdict:
    """The stages behind the problem's: pointers, workspace, stream. `needed` is what workspace_size answers."""
    found = _launched(symbol, judged, pointers, workspace, needed, stream, takes_streams)
    irregular = set(judged.verdict.irregular)
    for output in symbol.outputs:
        for other in symbol.tensors:
            spans = [judged.spans.get(tensor.name, EMPTY) for tensor in (output, other)]
            if other is not output and may_be_too_irregular(*spans):
                irregular |= {output.name, other.name}
    return found._replace(irregular=frozenset(irregular))


def _launched(
    symbol: Symbol,
    judged: Problem,
    pointers: Mapping[str, int],
    workspace: tuple[int, int],
    needed: int,
    stream: int,
    takes_streams: bool,
) -> Verdict:
    """Judge the stages one after the other."""
    if judged.verdict.status != OK or judged.is_empty:
        return judged.verdict
    spans = judged.spans
    null = {t.name for t in symbol.tensors if pointers[t.name] == 0 and spans[t.name].elements}
    if null:
        return refused(null, of_problem=False)
    astray = {t.name for t in symbol.tensors if spans[t.name].elements and pointers[t.name] % alignment(t)}
    if astray:
        return refused(astray, of_problem=False, status=MISALIGNED)
    shared = _shared(symbol, spans, pointers)
    if shared:
        return refused(shared, of_problem=False)
    address, size = workspace
    if address == 0 and size != 0:
        return refused({"workspace"}, of_problem=False)
    if address % WORKSPACE_ALIGNMENT:
        return refused({"workspace"}, of_problem=False, status=MISALIGNED)
    if address != 0 and size < needed and not _is_frozen(symbol, judged.values, size):
        return refused({"workspace"}, of_problem=False, status=TOO_SMALL)
    if stream != 0 and not takes_streams:
        return refused({"stream"}, of_problem=False, status=UNSUPPORTED)
    return PASSED


def alignment(tensor: Tensor) -> int:
    """Elements of 16 bytes are two words of 8."""
    return min(tensor.element_bytes, 8)


def _is_frozen(symbol: Symbol, values: Mapping[str, Any], size: int) -> bool:
    segments = values.get("num_segments", 0)
    return symbol.operator.name in family_of(symbol.operator.family).frozen_workspace and 0 < 4 * segments <= size


def overlaps_itself(span: Span) -> bool:
    """Whether two indices of a strided tensor are one element."""
    if span.strides is None or span.elements <= 1:
        return False
    steps = sorted((abs(stride), extent) for stride, extent in zip(span.strides, span.shape, strict=True) if extent > 1)
    reach = 0
    for stride, extent in steps:
        if stride <= reach:
            break
        reach += stride * (extent - 1)
    else:
        return False
    return len(np.unique(_places(span, 0))) < span.elements


def may_be_too_irregular(*spans: Span) -> bool:
    """Whether a comparison of places may be given up, which the header allows from three incommensurable strides on."""
    steps = {
        abs(stride)
        for span in spans
        for stride, extent in zip(span.strides or [], span.shape, strict=False)
        if extent > 1 and stride != 0
    }
    return sum(not any(step % other == 0 for other in steps - {step}) for step in steps) >= 3


def _places(span: Span, pointer: int) -> Any:
    """Where every element begins."""
    found = np.array([pointer], np.int64)
    for extent, stride in zip(span.shape, span.strides or [], strict=True):
        found = np.add.outer(found, np.arange(extent, dtype=np.int64) * stride).ravel()
    return found


def _bytes(span: Span, pointer: int, width: int) -> Any:
    """The addresses of every byte of every element."""
    if span.strides is None:
        return np.arange(pointer, pointer + span.bytes)
    return np.add.outer(_places(span, pointer), np.arange(width)).ravel()


def shares(symbol: Symbol, spans: Mapping[str, Span], pointers: Mapping[str, int], one: Tensor, two: Tensor) -> bool:
    """Whether a byte belongs to an element of both."""
    a, b = spans[one.name], spans[two.name]
    if not a.elements or not b.elements:
        return False
    starts = pointers[one.name] - a.first, pointers[two.name] - b.first
    if starts[0] + a.bytes <= starts[1] or starts[1] + b.bytes <= starts[0]:
        return False
    if a.strides is None and b.strides is None:
        return True
    return bool(
        np.isin(
            _bytes(a, pointers[one.name], one.element_bytes), _bytes(b, pointers[two.name], two.element_bytes)
        ).any()
    )


def is_in_place(
    symbol: Symbol, spans: Mapping[str, Span], pointers: Mapping[str, int], one: Tensor, two: Tensor
) -> bool:
    """Whether an output is an input itself, of an operator that allows this."""
    return (
        family_of(symbol.operator.family).in_place.get(symbol.operator.name) == two.name
        and pointers[one.name] == pointers[two.name]
        and spans[one.name] == spans[two.name]
    )


def _shared(symbol: Symbol, spans: Mapping[str, Span], pointers: Mapping[str, int]) -> set[str]:
    """The outputs that share an element with another operand, and these."""
    found = set()
    for output in symbol.outputs:
        for other in symbol.tensors:
            if other is output or is_in_place(symbol, spans, pointers, output, other):
                continue
            if shares(symbol, spans, pointers, output, other):
                found |= {output.name, other.name}
    return found


def self_overlap(symbol: Symbol, judged: Problem) -> Verdict:
    """What the rule about outputs that overlap themselves adds to the problem's verdict."""
    for output in symbol.outputs:
        if overlaps_itself(judged.spans[output.name]):
            return refused({output.name})
    irregular = {output.name for output in symbol.outputs if may_be_too_irregular(judged.spans[output.name])}
    return PASSED._replace(irregular=frozenset(irregular))
