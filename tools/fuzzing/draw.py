# SPDX-License-Identifier: Apache-2.0
"""Draws calls: a problem that is valid, then perhaps some things that are wrong with it.

A call is a function of the seed, its number and the ABI table; a family's own sizes stand in `VALID`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from tools.fuzzing import content, model
from tools.fuzzing.abi import INTEGER_LIMITS, Symbol, symbols
from tools.fuzzing.call import Alias, Call, Content, Placed, Values, Workspace

INT32_MAX = 2**31 - 1
# Of the calls that are not wrong on purpose, one in so many is large enough for threads, tiles and cut sums.
LARGE = 64
# How scratch is given to a call in which nothing is wrong with it.
WORKSPACES = ("none", "exact", "exact", "exact", "larger", "frozen")
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17)
HOSTILE_I32 = (-1, 0, 1, 2, 3, 8, 9, 255, 256, 2**16, 2**20, 2**20 + 1, 2**24, 2**30, INT32_MAX - 256, INT32_MAX - 255,
               INT32_MAX - 1, INT32_MAX, -(2**31), -(2**31) + 1, -(2**16))  # fmt: skip
HOSTILE_I64 = (*HOSTILE_I32, 2**31, 2**32, 2**32 + 1, -(2**32), 2**61, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1)
HOSTILE_F32 = (math.inf, -math.inf, math.nan, 1e-40, -1e-40, 0.0, -0.0, 3e38, -3e38, 1e-30)
# What a tensor or two may take, and what scratch a call may need: a problem that needs more is only asked about.
MOST_BYTES = 1 << 22
MOST_SCRATCH = 1 << 25


class Drawer:
    """Randomness of one call."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = Random((seed << 44) + number)
        self.random = self.rng.random

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def one_in(self, count: int) -> bool:
        return self.random() * count < 1

    def choice(self, values: Any) -> Any:
        return values[int(self.random() * len(values))]

    def size(self, most: int = 17) -> int:
        """Small and often odd; one in some is 0."""
        found: int = SIZES[int(self.random() * len(SIZES))]
        return found if found <= most else int(self.random() * most) + 1

    def bits(self, count: int) -> int:
        return self.rng.getrandbits(count)


def _roi_align(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    values: Values = {
        "n": draw.size(3), "c": draw.size(9), "h": draw.size(), "w": draw.size(), "num_rois": draw.size(9),
        "pooled_h": draw.size(4), "pooled_w": draw.size(4),
        "spatial_scale": draw.choice((1.0, 1.0, 0.5, 0.25, 0.0625, -1.0, 3.7, 0.0)),
        "sampling_ratio": draw.choice((-1, 0, 0, 1, 2, 2, 3, 4)), "aligned": draw.below(2),
    }  # fmt: skip
    if large:
        values |= {"n": 2, "c": 1 + draw.below(70), "h": 1 + draw.below(70), "w": 1 + draw.below(70)}
        values |= {"num_rois": draw.below(150), "pooled_h": 1 + draw.below(7), "pooled_w": 1 + draw.below(7)}
    elif draw.one_in(200):
        values |= {"sampling_ratio": draw.choice((100, 1000, 4097)), "num_rois": draw.below(3)}
    return values


def _grid_sample(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    if large:
        sizes = [1 + draw.below(2), 1 + draw.below(70), *(1 + draw.below(90) for _ in range(4))]
    else:
        sizes = [draw.size(3), draw.size(9), *(draw.size() for _ in range(4))]
    return dict(zip(("n", "c", "input_h", "input_w", "output_h", "output_w"), sizes, strict=True))


def _affine_grid(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    most = 200 if large else 17
    return {"n": draw.size(4), "output_h": draw.size(most), "output_w": draw.size(most)}


def _segment(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    rows = draw.choice((0, 1, 2, 5, 7, 16, 33, 40))
    if large:
        rows = draw.choice((255, 256, 257, 300, 513, 700, 2000, 5000))
    elif draw.one_in(8):
        rows = 30 + draw.below(300)
    values: Values = {
        symbol.scalars[0].name: rows,
        "embedding_dim": draw.size(70 if large else 9),
        "num_segments": draw.choice((1, 3, 40, 700, 2000)) if large else draw.size(),
    }
    if symbol.options is not None:
        integers = symbol.element in ("i32", "i64")
        values |= {"reduce": draw.choice((0, 2, 3, 4, 6, 7) if integers else range(8)), "form": draw.below(3)}
        values["empty_value"] = draw.bits(8 * content.WIDTHS[symbol.element]) if draw.below(2) else None
    return values


def _dequantize(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    shape = [draw.size(40 if large else 7) for _ in range(4)]
    return {"shape": shape, "axis": draw.below(4), "numel": math.prod(shape)}


def _pad(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    forward = not symbol.operator.name.endswith("_backward")
    ex, constant = "_ex" in symbol.operator.name, "constant" in symbol.operator.name
    rank = draw.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 8))
    most = 60 if large else 6
    shape = [min(draw.size(most), most if axis < 3 else 3) for axis in range(rank)]
    mode = draw.below(5) if ex else (0 if constant else 1)
    widest = 3 if not draw.one_in(8) else 40
    low, high = [draw.below(widest) for _ in shape], [draw.below(widest) for _ in shape]
    if rank > 4:
        low, high = [each % 2 for each in low], [each % 2 for each in high]
    if ex and draw.below(2):
        low = [each - draw.below(4) for each in low]
        high = [each - draw.below(4) for each in high]
        low = [max(each, -n) for each, n in zip(low, shape, strict=True)]
        high = [max(each, -n - min(other, 0)) for each, other, n in zip(high, low, shape, strict=True)]
    output = [n + before + after for n, before, after in zip(shape, low, high, strict=True)]
    if mode != 0 and 0 not in output and not draw.one_in(8):
        # Something to repeat.
        low = [max(each, 0) for each in low]
        high = [max(each, 0) for each in high]
        shape = [max(n, 1) for n in shape]
        output = [n + before + after for n, before, after in zip(shape, low, high, strict=True)]
    values: Values = {"rank": rank, "input_shape": shape, "pad_low": low}
    if forward or not constant:
        values["output_shape"] = output
    padded = [n + before for n, before in zip(shape, low, strict=True)] if constant and not forward else output
    if forward:
        values |= {"output_numel": math.prod(output), "input_strides": _strides(draw, shape, True)}
        values["output_strides"] = _strides(draw, output, False)
    else:
        values |= {"input_numel": math.prod(shape), "grad_output_strides": _strides(draw, padded, True)}
        values["grad_input_strides"] = _strides(draw, shape, False)
    if ex:
        values |= {"mode": mode, "value": None}
        if draw.below(2):
            values["value"] = draw.bits(8 * content.WIDTHS[symbol.element])
    elif constant and forward:
        values["value"] = _element(draw, symbol)
    return values


def _element(draw: Drawer, symbol: Symbol) -> int | float:
    """A scalar that is an element: f32 and f64 are numbers, all else bits."""
    if symbol.element in ("f32", "f64"):
        return float(draw.choice((0.0, -0.0, 1.5, -3.0, 1e-42, math.inf, -math.inf, math.nan, 3e38)))
    return draw.bits(8 * content.WIDTHS[symbol.element])


def _strides(draw: Drawer, shape: list[int], is_read: bool) -> list[int]:
    """Row-major, with gaps, in another order of the axes, backwards; inputs also repeat."""
    kind = draw.below(8)
    order = list(range(len(shape)))
    if kind in (4, 5):
        draw.rng.shuffle(order)
    gap = 1 + draw.below(3) if kind in (3, 5) else 1
    strides, step = [0] * len(shape), gap
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
        if kind in (2, 3):
            step += draw.below(3)
    if kind in (5, 6):
        strides = [-each if draw.below(2) else each for each in strides]
    if kind == 7 and is_read:
        strides = [0 if draw.below(3) == 0 else each for each in strides]
    return strides


def _held(number: int, ctype: str) -> int:
    """What an integer type can hold."""
    low, high = INTEGER_LIMITS[ctype]
    return min(max(number, low), high)


VALID: dict[str, Callable[[Drawer, Symbol, bool], Values]] = {
    "roi_align": _roi_align,
    "grid_sample": _grid_sample,
    "affine_grid": _affine_grid,
    "segment": _segment,
    "segment_sorted": _segment,
    "segment_csr": _segment,
    "dequantize": _dequantize,
    "pad": _pad,
}


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
        if scalar.finite:
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
        if scalar.name == "rank":
            self._fit_arrays()

    def _fit_arrays(self) -> None:
        """An array has as many entries as the rank says, where it says a number of entries."""
        rank = self.values["rank"]
        if 0 <= rank <= 8:
            for array in self.symbol.host_arrays:
                entries = self.values[array.name]
                if entries is not None:
                    self.values[array.name] = (entries + [1] * 8)[:rank]

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
    large = draw.one_in(LARGE if symbol.operator.family.startswith("segment") else LARGE // 4)
    values = VALID[symbol.operator.family](draw, symbol, large)
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
    for tensor in symbol.tensors:
        span = spans.get(tensor.name, model.EMPTY)
        places[tensor.name] = _place(draw, tensor.element_bytes, faults.astray.get(tensor.name, 0))
        # What is too large for the memory is not there: the call must then be refused before it looks.
        # So is what a stride of 0 repeats too often, which costs time instead.
        if tensor.name in faults.null or max(span.bytes, span.elements * tensor.element_bytes) > MOST_BYTES:
            places[tensor.name] = Placed("null")
        if not tensor.is_output:
            contents[tensor.name] = Content(_kind(draw, symbol, tensor.name, tensor.token, values), draw.below(4096))
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


def _kind(draw: Drawer, symbol: Symbol, name: str, token: str, values: Values) -> str:
    if name == "rois":
        return str(draw.choice(content.BOX_KINDS))
    if name == "grid":
        return str(draw.choice(content.GRID_KINDS))
    if name == "offsets" or (name == "index" and values.get("form") == 2):
        return "offsets-" + str(draw.choice(content.OFFSET_KINDS))
    if name in ("segment_ids", "index"):
        sorted_ids = symbol.operator.family == "segment_sorted" or values.get("form") == 1
        if sorted_ids and draw.below(2):
            return "ids-sorted"
        return "ids-" + str(draw.choice(content.INDEX_KINDS))
    if name == "arg":
        return "ids-" + str(draw.choice(("random", "outside", "wild", "one")))
    return str(draw.choice(content.KINDS))


def limit_of(symbol: Symbol, name: str, values: Values) -> int:
    """What ids, offsets and rows stay below when they are good."""
    if name in ("segment_ids", "index") and values.get("form") != 2:
        return int(values["num_segments"])
    return int(values[symbol.scalars[0].name]) if name in ("offsets", "arg", "index") else 0
