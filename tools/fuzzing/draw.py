# SPDX-License-Identifier: Apache-2.0
"""Draws calls: a problem that is valid, then perhaps some things that are wrong with it.

A call is a function of the seed, its number and the ABI table; what a family's problems look like stands in its file of
tools/fuzzing/families, where the table does not say it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tools.fuzzing import model
from tools.fuzzing.abi import INTEGER_LIMITS, Symbol, symbols
from tools.fuzzing.call import Alias, Call, Content, Placed, Values, Workspace
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.families import family_of

INT32_MAX = 2**31 - 1
# How scratch is given to a call in which nothing is wrong with it.
WORKSPACES = ("none", "exact", "exact", "exact", "larger", "frozen")
HOSTILE_I32 = (-1, 0, 1, 2, 3, 8, 9, 255, 256, 2**16, 2**20, 2**20 + 1, 2**24, 2**30, INT32_MAX - 256, INT32_MAX - 255,
               INT32_MAX - 1, INT32_MAX, -(2**31), -(2**31) + 1, -(2**16))  # fmt: skip
HOSTILE_I64 = (*HOSTILE_I32, 2**31, 2**32, 2**32 + 1, -(2**32), 2**61, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1)
HOSTILE_F32 = (math.inf, -math.inf, math.nan, 1e-40, -1e-40, 0.0, -0.0, 3e38, -3e38, 1e-30)
# What a tensor or two may take, and what scratch a call may need: a problem that needs more is only asked about.
MOST_BYTES = 1 << 22
MOST_SCRATCH = 1 << 25
# What a call may do: a second or two, where sanitizers watch code that is not optimised.
MOST_STEPS = 1 << 26


def _held(number: int, ctype: str) -> int:
    """What an integer type can hold."""
    low, high = INTEGER_LIMITS[ctype]
    return min(max(number, low), high)


class _Faults:
    """What can be wrong with a call; each method spoils one thing, or happens to spoil nothing."""

    def __init__(self, draw: Drawer, symbol: Symbol, values: Values) -> None:
        self.draw, self.symbol, self.values = draw, symbol, values
        self.options_size: int | None = symbol.options_bytes
        self.options_beyond = 0
        self.null: set[str] = set()
        self.astray: dict[str, int] = {}
        self.workspace: str | None = None
        self.stream = 0
        self.alias: tuple[str, str] | None = None

    def scalar(self) -> None:
        draw = self.draw
        scalars = [*self.symbol.scalars, *(field.scalar for field in self.symbol.fields if field.scalar is not None)]
        scalar = draw.choice(scalars)
        if scalar.ctype == "VALUE":
            return
        if scalar.ctype in ("f32", "f64"):
            self.values[scalar.name] = draw.choice(HOSTILE_F32)
            return
        near = [scalar.low - 1] if scalar.low is not None else []
        if scalar.high is not None and scalar.high < INTEGER_LIMITS[scalar.ctype][1]:
            near.append(scalar.high + 1)
        if scalar.name.endswith("numel"):
            near += [self.values[scalar.name] - 1, self.values[scalar.name] + 1]
        if near and draw.below(2):
            self.values[scalar.name] = draw.choice(near)
        else:
            self.values[scalar.name] = draw.choice(HOSTILE_I32 if scalar.ctype == "i32" else HOSTILE_I64)
        self.values[scalar.name] = _held(self.values[scalar.name], scalar.ctype)
        self._fit_arrays(scalar.name)

    def _fit_arrays(self, length: str) -> None:
        """An array has as many entries as a scalar says, where that is a number of entries."""
        count = self.values[length]
        for array in self.symbol.host_arrays:
            entries = self.values[array.name]
            if array.length == length and entries is not None and 0 <= count <= 8:
                self.values[array.name] = (entries + [1] * 8)[:count]

    def several_scalars(self) -> None:
        """Extents whose products pass 63 bits."""
        for _ in range(3):
            self.scalar()

    def host_array(self) -> None:
        draw, arrays = self.draw, self.symbol.host_arrays
        if not arrays:
            return self.scalar()
        array = draw.choice(arrays)
        entries = self.values[array.name]
        if draw.below(4) == 0 or not entries:
            self.values[array.name] = None
            return None
        entries = self.values[array.name] = list(entries)
        if array.ctype not in INTEGER_LIMITS:
            entries[draw.below(len(entries))] = draw.choice(HOSTILE_F32)
            return None
        hostile = HOSTILE_I32 if array.ctype == "i32" else HOSTILE_I64
        for _ in range(draw.choice((1, 1, 1, 3))):
            place = draw.below(len(entries))
            change = draw.below(3)
            if change == 0:
                entries[place] = draw.choice(hostile)
            elif change == 1:
                entries[place] = draw.below(13) - 6
            else:
                entries[place] = _held(entries[place] + draw.choice((-1, 1)), array.ctype)
        return None

    def options(self) -> None:
        draw, symbol = self.draw, self.symbol
        if symbol.options is None:
            return self.scalar()
        # A size within the pointer at the end would be half a pointer.
        pointer = symbol.fields[-1].offset
        self.options_size = draw.choice((None, 0, 4, 7, 8, 12, pointer, symbol.options_bytes, 32, 64))
        self.options_beyond = draw.choice((0, 0, 0x5A))
        return None

    def null_pointer(self) -> None:
        self.null.add(self.draw.choice(self.symbol.tensors).name)

    def misaligned_pointer(self) -> None:
        tensor = self.draw.choice(self.symbol.tensors)
        self.astray[tensor.name] = 1 + self.draw.below(max(tensor.element_bytes, 2))

    def bad_workspace(self) -> None:
        self.workspace = self.draw.choice(("null", "short", "misaligned"))

    def bad_stream(self) -> None:
        self.stream = self.draw.choice((1, 64, 2**47, 2**64 - 1))

    def shared(self) -> None:
        output, other = self.draw.choice(self.symbol.outputs), self.draw.choice(self.symbol.tensors)
        if output is not other:
            self.alias = (output.name, other.name)

    KINDS = (scalar, scalar, scalar, several_scalars, host_array, host_array, host_array, options, null_pointer,
             misaligned_pointer, bad_workspace, bad_stream, shared)  # fmt: skip


def symbol_of(number: int) -> Symbol:
    """Every symbol comes in turn."""
    every = symbols()
    return every[number % len(every)]


class Drawn(NamedTuple):
    """A call, and what was found out about its problem on the way."""

    call: Call
    judged: model.Problem


def call_of(seed: int, number: int, streams: int) -> Drawn:
    """The call of that number, with one of so many streams; 0: none but NULL is right, and wrong ones come too."""
    draw = Drawer(seed, number)
    symbol = symbol_of(number)
    wrongs = draw.choice((0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3))
    family = family_of(symbol.operator.family)
    values = family.values(draw, symbol, draw.one_in(family.one_large_in))
    faults = _Faults(draw, symbol, values)
    for _ in range(wrongs):
        draw.choice(_Faults.KINDS)(faults)
    if streams:
        faults.stream = draw.below(streams)
    call = Call(symbol.name, values, {}, {}, stream=faults.stream, options_size=faults.options_size,
                options_beyond=faults.options_beyond, flushes=draw.below(4) == 0)  # fmt: skip
    judged = model.problem(symbol, call)
    spans = judged.spans
    places, contents = {}, {}
    is_long = family.steps(symbol, values) > MOST_STEPS
    for tensor in symbol.tensors:
        span = spans.get(tensor.name, model.EMPTY)
        places[tensor.name] = _place(draw, tensor.element_bytes, faults.astray.get(tensor.name, 0))
        # What is too large for the memory is not there: the call must then be refused before it looks.
        # So is what a stride of 0 repeats too often, which costs time instead, and all of a call that takes too long.
        if is_long or tensor.name in faults.null or max(span.bytes, span.elements * tensor.element_bytes) > MOST_BYTES:
            places[tensor.name] = Placed("null")
        if not tensor.is_output:
            contents[tensor.name] = Content(family.kind(draw, symbol, tensor.name, values), draw.below(4096))
    call = call._replace(
        places=places, contents=contents, alias=_alias(draw, faults, spans),
        workspace=Workspace(faults.workspace or draw.choice(WORKSPACES), draw.choice(("end", "end", "start"))),
    )  # fmt: skip
    return Drawn(call, judged)


def _place(draw: Drawer, width: int, astray: int) -> Placed:
    where = draw.below(4)
    if astray:
        return Placed("end" if where < 2 else "start", astray)
    if where == 3:
        return Placed("end", width * (1 + draw.below(16)))
    return Placed("end" if where < 2 else "start", 0)


def _alias(draw: Drawer, faults: _Faults, spans: dict[str, model.Span]) -> Alias | None:
    if faults.alias is None or not spans:
        return None
    output, other = faults.alias
    reach = spans[other].bytes
    if reach == 0 or spans[output].bytes + reach > MOST_BYTES:
        return None
    if draw.below(2):
        return Alias(output, other, 0)
    return Alias(output, other, draw.below(-(-reach // 16)) * 16)
