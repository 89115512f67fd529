# SPDX-License-Identifier: Apache-2.0
"""The contract test's table: one valid problem for every operator, and every fault that follows from the spec.

An operator adds its baseline here and nothing else; what can be read off the generated tables is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from pybaracuda import _abi
from pybaracuda._check.abi_calls import (
    PLAIN_OPTIONS,
    STATUS,
    OptionValues,
    Symbol,
    Value,
    Values,
    completed,
    dense_strides,
    numel,
    span,
)
from verify.definitions.pad import MODES as PAD_MODES

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INTEGER_LIMITS = {"i32": (INT32_MIN, INT32_MAX), "i64": (INT64_MIN, INT64_MAX)}
WORKSPACE_ALIGNMENT = 16


class Empty(NamedTuple):
    """A problem with a zero extent that must succeed. `fill` is what every element of a non-empty output then is."""

    name: str
    values: Values
    fill: float = 0.0
    # Outputs that are filled with something else, by name.
    fills: Mapping[str, float] = MappingProxyType({})


class Baseline(NamedTuple):
    """What the spec cannot say about an operator: a small valid problem, and problems that are special to it."""

    values: Values
    empties: tuple[Empty, ...]
    # Extents whose products pass 2^63; those that a dtype still holds are left out there.
    overflows: tuple[Values, ...]
    # Other wrong scalars and arrays: name -> values, and the argument that the text must name.
    faults: Mapping[str, tuple[Values, str]] = MappingProxyType({})
    # Strides of outputs that put two elements in one place: name -> values, and the argument that the text must name.
    shared_places: Mapping[str, tuple[Values, str]] = MappingProxyType({})
    # Extents on which more than one tile, block of channels and chunk of a long sum is in play.
    larger: Values | None = None
    # Bytes from which a workspace that is too small is taken for none, as frozen callers need.
    least_workspace: int | None = None
    # Extents whose scratch passes 2^46 bytes, which is more than a process can address; None where none is needed.
    more_scratch_than_memory: Values | None = None


def _zero(*names: str, fill: float = 0.0) -> tuple[Empty, ...]:
    return tuple(Empty(f"{name}-0", {name: 0}, fill) for name in names)


_ROI = Baseline(
    values={
        "n": 2, "c": 3, "h": 5, "w": 6, "num_rois": 4, "pooled_h": 2, "pooled_w": 3,
        "spatial_scale": 0.5, "sampling_ratio": 2, "aligned": 1,
    },
    empties=_zero("n", "c", "h", "w", "num_rois", "pooled_h", "pooled_w"),
    overflows=(
        {"n": INT32_MAX, "c": INT32_MAX, "h": INT32_MAX, "w": INT32_MAX},
        {"n": 2**16, "c": 2**16, "h": 2**16, "w": 2**16},  # 2^64 elements: a wrapped product is 0
        {"num_rois": INT32_MAX, "pooled_h": INT32_MAX, "pooled_w": INT32_MAX},
        {"num_rois": 2**21, "c": 2**21, "pooled_h": 2**21, "pooled_w": 2},  # 2^64 elements
    ),
    larger={"h": 19, "w": 67, "c": 17, "num_rois": 9},
    more_scratch_than_memory={
        "num_rois": INT32_MAX, "c": 1, "h": 4096, "w": 4096, "pooled_h": 4096, "pooled_w": 4096,
    },
)  # fmt: skip

_GRID = Baseline(
    values={"n": 2, "c": 3, "input_h": 4, "input_w": 5, "output_h": 3, "output_w": 2},
    empties=_zero("n", "c", "input_h", "input_w", "output_h", "output_w"),
    overflows=(
        {"n": INT32_MAX, "c": INT32_MAX, "input_h": INT32_MAX},
        {"n": INT32_MAX, "output_h": INT32_MAX, "output_w": INT32_MAX},
        {"n": 2**16, "c": 2**16, "input_h": 2**16, "input_w": 2**16},
        {"n": 2**21, "output_h": 2**21, "output_w": 2**21},  # with 2 coordinates 2^64 elements
    ),
    larger={"input_h": 9, "input_w": 33, "output_h": 17, "output_w": 40},
)

_AFFINE = Baseline(
    values={"n": 2, "output_h": 3, "output_w": 4},
    empties=_zero("n", "output_h", "output_w"),
    overflows=(
        {"n": INT32_MAX, "output_h": INT32_MAX, "output_w": INT32_MAX},
        {"n": 2**21, "output_h": 2**21, "output_w": 2**21},
    ),
    larger={"output_h": 33, "output_w": 17},
)

_PAD_VALUE = 3
_PAD_KINDS = (*PAD_MODES, "ex")


def _pad(forward: bool, mode: str = "constant") -> Baseline:
    """Mode "ex" takes pads of both signs, and the mode as an option."""
    says_output = forward or mode != "constant"

    def shapes(input_shape: list[int], pad_low: list[int], output: list[int]) -> Values:
        found: Values = {"rank": len(input_shape), "input_shape": input_shape, "pad_low": pad_low}
        if says_output:
            found["output_shape"] = output
        if forward:
            return {**found, "input_strides": spaced(input_shape), "output_strides": spaced(output)}
        return {**found, "grad_output_strides": spaced(output), "grad_input_strides": spaced(input_shape)}

    def spaced(shape: list[int]) -> list[int]:
        """Row-major with two elements between rows, which nobody may write."""
        wide = dense_strides([*shape[:-1], shape[-1] + 2]) if shape else []
        return [min(stride, INT64_MAX) for stride in wide]

    huge = [2**16, 2**16, 2**16, 2**16]
    tall = [INT32_MAX] * 8
    strides = "output_strides" if forward else "grad_input_strides"
    faults: dict[str, tuple[Values, str]] = {
        "rank-0-numel-0": (shapes([], [], []) | {("output_numel" if forward else "input_numel"): 0}, "numel"),
        "rank-0-numel-2": (shapes([], [], []) | {("output_numel" if forward else "input_numel"): 2}, "numel"),
    }
    if says_output and mode != "ex":
        faults["output-smaller-than-input"] = (shapes([2, 2, 5], [1, 0, 1], [4, 1, 6]), "output_shape")
        faults["output-smaller-by-the-pad"] = (shapes([2, 2, 5], [1, 2, 1], [4, 3, 6]), "output_shape")
        faults["sum-past-int32"] = (shapes([2, 2, 5], [0, INT32_MAX, 0], [4, 3, 6]), "output_shape")
    if mode not in ("constant", "ex"):
        faults["nothing-to-repeat"] = (shapes([2, 0, 5], [1, 0, 1], [4, 3, 6]), "input_shape")
    if mode == "ex":
        faults["cropped-below-0"] = (shapes([2, 2, 5], [1, -1, 1], [4, 0, 6]) | {"pad_low": [1, -3, 1]}, "pad_low")
        faults["nothing-to-repeat"] = (shapes([2, 2, 5], [1, -2, 1], [4, 3, 6]) | {"mode": 3}, "input_shape")
    values = shapes([2, 2, 5], [1, 0, 1], [4, 3, 6])
    if forward and mode in ("constant", "ex"):
        values["value"] = _PAD_VALUE
    if mode == "ex":
        values["mode"] = 0
    return Baseline(
        values=values,
        empties=(
            *(
                (Empty("input-0", shapes([2, 0, 5], [1, 0, 1], [4, 3, 6]), _PAD_VALUE if forward else 0.0),)
                if mode in ("constant", "ex")
                else ()
            ),
            Empty("output-0", shapes([2, 0, 5], [1, 0, 1], [4, 0, 6])),
            Empty("every-extent-0", shapes([0, 0], [0, 0], [0, 0])),
        ),
        overflows=(
            shapes(huge, [0] * 4, huge),  # 2^64 elements
            shapes(tall, [0] * 8, tall),
            {"input_strides" if forward else "grad_output_strides": [2**62, 5, 1]},
            {strides: [2**62, 6, 1]},
        ),
        faults=faults,
        shared_places={
            "written-stride-0": ({strides: [24, 0, 1]}, strides),
            "written-strides-that-meet": ({strides: [24, 2, 1]}, strides),
        },
        larger=shapes([30, 7, 50], [2, 1, 0], [33, 8, 61]),
    )


_SEGMENT: Values = {"num_inputs": 7, "embedding_dim": 3, "num_segments": 4}
# f16 and bf16 hold the largest extents: (2^31 - 1)^2 elements of 2 bytes.
_SEGMENT_OVERFLOWS: tuple[Values, ...] = (
    {"num_inputs": INT32_MAX - 256, "embedding_dim": INT32_MAX},
    {"num_segments": INT32_MAX, "embedding_dim": INT32_MAX},
)


def _segment(
    fill: float,
    csr: bool = False,
    arg: bool = False,
    least: int | None = None,
    options: Mapping[str, Value] = MappingProxyType({}),
) -> Baseline:
    rows = "num_rows" if csr else "num_inputs"

    def named(values: Values) -> Values:
        return {rows if name == "num_inputs" else name: value for name, value in values.items()}

    empties = tuple(
        Empty(f"{name}-0", {name: 0}, fill, {"arg": -1.0} if arg else {})
        for name in (rows, "embedding_dim", "num_segments")
    )
    larger: Values = {"num_inputs": 700, "embedding_dim": 9, "num_segments": 5}
    return Baseline(
        {**named(_SEGMENT), **options},
        empties,
        tuple(named(values) for values in _SEGMENT_OVERFLOWS),
        larger=named(larger),
        least_workspace=least,
    )


# What a segment without rows is; gradients of no segments are 0.
_SEGMENT_FILLS = {
    "sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0, "logsumexp": -math.inf, "softmax": 0.0,
    "max_with_arg": -math.inf, "min_with_arg": math.inf,
}  # fmt: skip
_SEGMENT_GRADIENTS = (*_SEGMENT_FILLS, "max_even", "min_even")
_SEGMENT_BASELINES = {
    f"{prefix}_{name}": _segment(
        _SEGMENT_FILLS.get(name, 0.0),
        prefix == "segment_csr",
        name.endswith("arg"),
        # 4 segments of 4 bytes
        16 if name.startswith("mean") and prefix != "segment_csr" else None,
    )
    for prefix in ("unsorted_segment", "segment", "segment_csr")
    for name in (*_SEGMENT_FILLS, *(f"{gradient}_backward" for gradient in _SEGMENT_GRADIENTS))
}

# Of the most arrays: a maximum and its rows.
_SEGMENT_EMPTY_VALUE = 3
_SEGMENT_EX = _segment(
    _SEGMENT_EMPTY_VALUE, True, True, options={"reduce": 6, "form": 0, "empty_value": _SEGMENT_EMPTY_VALUE}
)

_CHANNEL = Baseline(
    values={"shape": [2, 3, 1, 4], "axis": 1},
    empties=tuple(Empty(f"shape[{axis}]-0", {"shape": [0 if i == axis else 2 for i in range(4)]}) for axis in range(4)),
    overflows=(
        {"shape": [2**16, 2**16, 2**16, 2**16], "numel": 0},
        {"shape": [INT32_MAX] * 4, "numel": INT64_MAX},
    ),
    larger={"shape": [3, 5, 7, 11]},
)

BASELINES: dict[str, Baseline] = {
    "roi_align": _ROI,
    "roi_align_backward": _ROI,
    "grid_sample_2d": _GRID,
    "grid_sample_2d_backward": _GRID,
    "affine_grid_2d": _AFFINE,
    "affine_grid_2d_backward": _AFFINE,
    **{f"pad_{mode}": _pad(forward=True, mode=mode) for mode in _PAD_KINDS},
    **{f"pad_{mode}_backward": _pad(forward=False, mode=mode) for mode in _PAD_KINDS},
    **_SEGMENT_BASELINES,
    "segment_gather": _segment(fill=0.0),
    "segment_ex": _SEGMENT_EX,
    "dequantize_per_channel": _CHANNEL,
    "dequantize_per_channel_backward": _CHANNEL,
}


# The operators whose output may be an input itself, and that input.
IN_PLACE = {("dequantize_per_channel_backward", "grad_output")}


def baseline(symbol: Symbol) -> Baseline:
    if symbol.operator.name not in BASELINES:
        raise AssertionError(f"{symbol.operator.name} has no baseline problem in tests/contract_cases.py: add one")
    return BASELINES[symbol.operator.name]


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
    values: Mapping[str, Value] = MappingProxyType({})
    null: tuple[str, ...] = ()
    misaligned: tuple[str, ...] = ()
    # Tensors that stand where another one does: name -> the other's name.
    moved: Mapping[str, str] = MappingProxyType({})
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
            if other is output or (symbol.operator.name, other.name) in IN_PLACE:
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
