# SPDX-License-Identifier: Apache-2.0
"""The contract test's table: every fault that follows from the spec and from the operators' baseline problems.

No operator is named here: baselines stand in the records of tests/operators, the rest is read off the generated tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from operators import RECORDS, joined
from operators.record import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, NOTHING, Baseline

from pybaracuda import _abi
from pybaracuda._check.abi_calls import (
    PLAIN_OPTIONS,
    STATUS,
    OptionValues,
    Symbol,
    Value,
    Values,
    completed,
    numel,
    span,
)

INTEGER_LIMITS = {"i32": (INT32_MIN, INT32_MAX), "i64": (INT64_MIN, INT64_MAX)}
WORKSPACE_ALIGNMENT = 16


BASELINES: dict[str, Baseline] = joined(record.baselines for record in RECORDS)


def baseline(symbol: Symbol) -> Baseline:
    name, family = symbol.operator.name, symbol.operator.family
    if name not in BASELINES:
        raise AssertionError(f"{name} has no baseline problem: add one to the record of {family} in tests/operators")
    return BASELINES[name]


def valid_values(symbol: Symbol) -> Values:
    return completed(symbol, baseline(symbol).values)


class Stage(IntEnum):
    """The fixed order of checks. Between SHARED_PLACE and NULL a call with nothing to write succeeds."""

    HOST_ARRAY = 0
    SCALAR = 1
    OVERFLOW = 2
    SHARED_PLACE = 3
    NULL = 4
    ALIGNMENT = 5
    OVERLAP = 6
    WORKSPACE_NULL = 7
    WORKSPACE_ALIGNMENT = 8
    WORKSPACE_SIZE = 9
    STREAM = 10


# The last stage that needs no pointer, workspace or stream: what can_implement sees.
LAST_STAGE_OF_THE_PROBLEM = Stage.SHARED_PLACE


class Fault(NamedTuple):
    """One thing wrong with a valid call, and what the library must say about it."""

    name: str
    stage: Stage
    status: int
    says: tuple[str, ...]
    values: Mapping[str, Value] = NOTHING
    null: tuple[str, ...] = ()
    misaligned: tuple[str, ...] = ()
    # Tensors that stand where another one does: name -> the other's name.
    moved: Mapping[str, str] = NOTHING
    workspace: frozenset[str] = frozenset()  # of "null" (with bytes), "misaligned", "short"
    stream: int = 0
    options: OptionValues = PLAIN_OPTIONS


def _wrong_value(name: str, argument: str, found: object, values: Values) -> Fault:
    return Fault(name, Stage.SCALAR, STATUS["INVALID_PROBLEM"], (argument, str(found), "wanted"), values)


def _scalar_faults(symbol: Symbol, valid: Values) -> Iterator[Fault]:
    for scalar in symbol.scalars:
        smallest, largest = INTEGER_LIMITS.get(scalar.ctype, (0, 0))
        wrong: list[int | float] = []
        if scalar.low is not None:
            wrong += [scalar.low - 1, smallest]
        if scalar.high is not None and scalar.high < largest:
            wrong += [scalar.high + 1, largest]
        for number in wrong:
            yield _wrong_value(f"{scalar.name}={number}", scalar.name, number, {scalar.name: number})
        if scalar.finite:
            for number, text in ((math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan")):
                yield _wrong_value(f"{scalar.name}={text}", scalar.name, text, {scalar.name: number})
        if scalar.name.endswith("numel"):
            right = valid[scalar.name]
            assert isinstance(right, int)
            for number in (0, right - 1, right + 1, INT64_MAX):
                fault = _wrong_value(f"{scalar.name}={number}", scalar.name, number, {scalar.name: number})
                yield fault._replace(says=(*fault.says, str(right)))


def _host_array_faults(symbol: Symbol, valid: Values) -> Iterator[Fault]:
    for array in symbol.host_arrays:
        yield Fault(
            f"{array.name}=NULL", Stage.HOST_ARRAY, STATUS["INVALID_PROBLEM"],
            (array.name, "NULL", "wanted"), {array.name: None},
        )  # fmt: skip
        if array.low is None:
            continue
        entries = valid[array.name]
        assert isinstance(entries, list)
        for index in range(len(entries)):
            for number in (array.low - 1, INT32_MIN):
                changed = [number if i == index else entry for i, entry in enumerate(entries)]
                yield _wrong_value(f"{array.name}[{index}]={number}", array.name, number, {array.name: changed})


def _option_faults(symbol: Symbol) -> Iterator[Fault]:
    if symbol.options is None:
        return
    name = symbol.options.name
    yield Fault(
        f"{name}=NULL", Stage.HOST_ARRAY, STATUS["INVALID_PROBLEM"], (name, "NULL", "wanted"),
        options=OptionValues(is_null=True),
    )  # fmt: skip
    # Too small for the size itself, and larger than the library knows with something in what it does not know.
    for given in (OptionValues(size=0), OptionValues(size=4), OptionValues(size=64, beyond=0x5A)):
        yield Fault(
            f"{name}-size={given.size}", Stage.SCALAR, STATUS["INVALID_PROBLEM"], (name, str(given.size), "wanted"),
            options=given,
        )  # fmt: skip


def _changes(symbol: Symbol, changes: Values) -> Values:
    """The changes with everything that follows from them, to be laid over valid values."""
    values = completed(symbol, {**baseline(symbol).values, **changes})
    return {name: value for name, value in values.items() if name not in baseline(symbol).values or name in changes}


def _bytes(symbol: Symbol, tensor: _abi.Tensor, values: Values) -> int:
    return max(numel(tensor, values), span(tensor, values).elements) * symbol.element_bytes(tensor)


def _overflow_faults(symbol: Symbol, valid: Values) -> Iterator[Fault]:
    for index, changes in enumerate(baseline(symbol).overflows):
        # Element counts follow the extents, as far as an int64 can.
        values = _changes(symbol, changes)
        everything = {**valid, **values}
        for scalar in symbol.scalars:
            number = values.get(scalar.name)
            if scalar.name.endswith("numel") and isinstance(number, int):
                values[scalar.name] = min(number, INT64_MAX)
        large = [t.name for t in symbol.tensors if _bytes(symbol, t, everything) > INT64_MAX]
        if large:
            text = large[0] if len(large) == 1 else ""
            yield Fault(f"overflow-{index}", Stage.OVERFLOW, STATUS["INVALID_PROBLEM"], (text, "2^63"), values)


def _pointer_faults(symbol: Symbol) -> Iterator[Fault]:
    for tensor in symbol.tensors:
        yield Fault(
            f"{tensor.name}=NULL", Stage.NULL, STATUS["INVALID_PROBLEM"],
            (tensor.name, "NULL", "wanted"), null=(tensor.name,),
        )  # fmt: skip
    for tensor in symbol.tensors:
        if symbol.element_bytes(tensor) > 1:
            yield Fault(
                f"{tensor.name}+1-byte", Stage.ALIGNMENT, STATUS["MISALIGNED_OPERAND"],
                (tensor.name, "0x", "wanted", f"{symbol.alignment(tensor)} bytes"), misaligned=(tensor.name,),
            )  # fmt: skip


def _overlap_faults(symbol: Symbol) -> Iterator[Fault]:
    """Every output on every other operand's memory, but for an elementwise operator's output on its input."""
    for output in symbol.outputs:
        for other in symbol.tensors:
            if other is output or other.name == baseline(symbol).in_place:
                continue
            names = (output.name, other.name)
            yield Fault(
                f"{output.name}-on-{other.name}", Stage.OVERLAP, STATUS["INVALID_PROBLEM"],
                (*names, "shares memory with", "wanted"), moved={output.name: other.name},
            )  # fmt: skip


def _launch_faults(backend: str, workspace_bytes: int, least: int | None) -> Iterator[Fault]:
    yield Fault(
        "workspace=NULL-with-bytes", Stage.WORKSPACE_NULL, STATUS["INVALID_PROBLEM"],
        ("workspace", "NULL", "workspace_bytes", "wanted"), workspace=frozenset({"null"}),
    )  # fmt: skip
    yield Fault(
        "workspace+1-byte", Stage.WORKSPACE_ALIGNMENT, STATUS["MISALIGNED_OPERAND"],
        ("workspace", "0x", "wanted", f"{WORKSPACE_ALIGNMENT} bytes"), workspace=frozenset({"misaligned"}),
    )  # fmt: skip
    if workspace_bytes > 0 and (least is None or workspace_bytes <= least):
        yield Fault(
            "workspace-1-byte-short", Stage.WORKSPACE_SIZE, STATUS["WORKSPACE_TOO_SMALL"],
            ("workspace", str(workspace_bytes - 1), "wanted", str(workspace_bytes)), workspace=frozenset({"short"}),
        )  # fmt: skip
    if backend == "cpu":
        # CUDA cannot know a wrong stream from a right one.
        yield Fault("stream=64", Stage.STREAM, STATUS["UNSUPPORTED"], ("stream", "0x40", "NULL"), stream=64)


def faults(symbol: Symbol, backend: str, workspace_bytes: int) -> list[Fault]:
    """Every single fault of a symbol, the earliest stage first."""
    valid = valid_values(symbol)
    found = [
        *_host_array_faults(symbol, valid),
        *_option_faults(symbol),
        *_scalar_faults(symbol, valid),
        *(
            Fault(name, Stage.SCALAR, STATUS["INVALID_PROBLEM"], (argument, "wanted"), _changes(symbol, values))
            for name, (values, argument) in baseline(symbol).faults.items()
        ),
        *_overflow_faults(symbol, valid),
        *(
            Fault(name, Stage.SHARED_PLACE, STATUS["INVALID_PROBLEM"], (argument, "wanted"), _changes(symbol, values))
            for name, (values, argument) in baseline(symbol).shared_places.items()
        ),
        *_pointer_faults(symbol),
        *_overlap_faults(symbol),
        *_launch_faults(backend, workspace_bytes, baseline(symbol).least_workspace),
    ]
    return sorted(found, key=lambda fault: fault.stage)


def combined(earlier: Fault, later: Fault) -> Fault:
    """A call with both faults; the earlier one must win, also where both are about the same argument."""
    return earlier._replace(
        name=f"{earlier.name} and {later.name}",
        values={**later.values, **earlier.values},
        null=earlier.null + later.null,
        misaligned=earlier.misaligned + later.misaligned,
        moved={**later.moved, **earlier.moved},
        workspace=earlier.workspace | later.workspace,
        stream=earlier.stream or later.stream,
        options=earlier.options if earlier.options != PLAIN_OPTIONS else later.options,
    )


def pairs(found: list[Fault]) -> Iterator[Fault]:
    """Two faults of different stages at once: the last fault of every stage with the first of every later one.

    Last and first, so that an implementation that goes argument by argument instead of check by check fails.
    """
    stages: dict[Stage, list[Fault]] = {}
    for fault in found:
        stages.setdefault(fault.stage, []).append(fault)
    for earlier in stages:
        for later in stages:
            if earlier < later:
                yield combined(stages[earlier][-1], stages[later][0])
