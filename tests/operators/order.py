# SPDX-License-Identifier: Apache-2.0
"""The record of order statistics along an axis and of their gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import order as definitions
from verify.dtypes import Array

from .record import (
    INT64_MAX,
    KIB,
    Arrays,
    Baseline,
    Call,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    ceil_div,
    numbers,
    size_between,
    zero,
)

_SELECTIONS = ("kthvalue", "median", "nanmedian")
_FORWARD = (*_SELECTIONS, "mode")
_BACKWARD = "value_selecting_reduction_backward"

_OVERFLOWS: tuple[Values, ...] = (
    {"outer": 2**40, "length": 2**30, "inner": 1},
    {"outer": 2**32, "length": 2**16, "inner": 2**16},  # 2^64 elements: a wrapped product is 0
    {"outer": 1, "length": 2**31, "inner": 2**63 - 1},
)
_SELECTION = Baseline(
    values={"outer": 2, "length": 5, "inner": 3},
    empties=zero("outer", "inner"),
    overflows=_OVERFLOWS,
    larger={"outer": 1, "length": 70_001, "inner": 2},
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    length = size_between(rng, 1, 200_000)
    drawn: Values = {
        "outer": size_between(rng, 1, 200),
        "length": length,
        "inner": size_between(rng, 1, 100) if rng.integers(2) else 1,
    }
    return {**drawn, "k": int(rng.integers(1, length + 1))} if symbol.operator.name == "kthvalue" else drawn


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's."""
    rows, length, name = values["outer"] * values["inner"], values["length"], symbol.operator.name
    is_wide = symbol.variant.types["T"] in ("f64", "i64")
    if name == _BACKWARD:
        return 0, 0
    if name in _SELECTIONS:
        is_long = length > (6144 if is_wide else 12288)
        return 0, 256 * KIB if backend == "cpu" else 2112 * rows * is_long
    if backend == "cpu":
        is_long = length > (8192 if is_wide else 16384)
        return 0, 192 * KIB + (16 if is_wide else 8) * length * min(rows, 16) * is_long
    if length <= (3400 if is_wide else 5000):
        return 0, 0
    at_once = max(1, min(rows, ceil_div(2**25, length)))
    return 0, at_once * ((18 if is_wide else 12) * length + 96)


_SHAPE = (3, 4, 5)


def calls(dtype: Any) -> dict[str, Call]:
    """Along the middle axis."""
    x = numbers(_SHAPE, dtype)
    found = {name: Call(getattr(pybaracuda, name), {"input": x}, {"dim": 1}, 2) for name in _SELECTIONS[1:]}
    found["mode"] = Call(pybaracuda.mode, {"input": x}, {"dim": -2, "keepdim": False}, 2)
    found["kthvalue"] = Call(pybaracuda.kthvalue, {"input": x}, {"k": 3, "dim": 1}, 2)
    arrays = {"grad_output": numbers((3, 5), dtype), "indices": np.arange(15).reshape(3, 5) % 4}
    found[_BACKWARD] = Call(pybaracuda.value_selecting_reduction_backward, arrays, {"input_shape": _SHAPE, "dim": 1})
    return found


_PREFIXES = {
    "kthvalue": "Kthvalue",
    "median": "Median",
    "nanmedian": "Nanmedian",
    "mode": "Mode",
    _BACKWARD: "ValueSelectingReductionBackward",
}


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    found = {}
    for name, prefix in _PREFIXES.items():
        has_rank = name == "kthvalue"
        is_backward = name == _BACKWARD
        found[name] = PlanCase(
            getattr(pybaracuda, f"{prefix}Plan"),
            getattr(pybaracuda, f"{prefix}Descriptor")(*_SHAPE, *((3,) if has_rank else ()), element),
            name,
            ("grad_output", "indices") if is_backward else ("input",),
            ("grad_input",) if is_backward else ("output", "indices"),
            ("outer", "length", "inner", *(("k",) if has_rank else ()), "element"),
            "i64",
        )
    return found


def _check(a: Arrays, expected: tuple[Array, Array]) -> None:
    assert_same_bits(a.output, expected[0])
    assert_same_bits(a.indices, expected[1])


def check_gradient(a: Arrays) -> None:
    length = a.values["length"]
    assert_same_bits(a.grad_input, definitions.value_selecting_reduction_backward(a.grad_output, a.indices, length))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Data that an operator has no variant for, and arrays of other shapes."""
    for name in _FORWARD:
        yield Refusal(name, {"input": np.zeros(_SHAPE, np.int16)}, TypeError, "input has dtype int16; wanted float32")
    arrays = calls[_BACKWARD].arrays
    yield Refusal(_BACKWARD, {"indices": arrays["indices"][:1]}, ValueError, "indices has shape")
    yield Refusal(_BACKWARD, {"indices": arrays["indices"].astype(np.int32)}, TypeError, "wanted int64")
    yield Refusal(_BACKWARD, {"grad_output": arrays["grad_output"][:, :4]}, ValueError, "grad_output has shape")


KTHVALUE, MEDIAN = pybaracuda.KthvalueDescriptor, pybaracuda.MedianDescriptor
INVALID = pybaracuda.InvalidProblemError

RECORD = Record(
    families=("order",),
    baselines={
        "kthvalue": _SELECTION._replace(
            values={**_SELECTION.values, "k": 4},
            faults={"k-above": ({"k": 2**40}, "k")},
            larger={**(_SELECTION.larger or {}), "k": 50_000},
        ),
        "median": _SELECTION,
        "nanmedian": _SELECTION,
        "mode": _SELECTION,
        _BACKWARD: _SELECTION._replace(empties=zero("outer", "length", "inner")),
    },
    checks={
        "kthvalue": lambda a: _check(a, definitions.kthvalue(a.input, a.values["k"])),
        "median": lambda a: _check(a, definitions.median(a.input)),
        "nanmedian": lambda a: _check(a, definitions.nanmedian(a.input)),
        "mode": lambda a: _check(a, definitions.mode(a.input)),
        _BACKWARD: check_gradient,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "kthvalue": "input k dim keepdim",
        "median": "input dim keepdim",
        "nanmedian": "input dim keepdim",
        "mode": "input dim keepdim",
        _BACKWARD: "grad_output indices input_shape dim keepdim",
    },
    calls=calls,
    plans=plans,
    floats_only={_BACKWARD: ("grad_output",)},
    bad_arrays=bad_arrays,
    bad_options=(
        ("kthvalue", "dim", 3, ValueError, "dim is 3; wanted -3..2"),
        ("median", "dim", -4, ValueError, "dim is -4; wanted -3..2"),
        ("nanmedian", "dim", 1.0, TypeError, "dim: wanted an int"),
        ("mode", "keepdim", 2, TypeError, "keepdim: wanted a bool"),
        ("kthvalue", "k", 0, INVALID, "k is 0; wanted 1.."),
        ("kthvalue", "k", 5, INVALID, "k is 5; wanted 1..4"),
        ("kthvalue", "k", 2**63, ValueError, "k is 9223372036854775808"),
        (_BACKWARD, "input_shape", (3, 4, 6), ValueError, "grad_output has shape"),
        (_BACKWARD, "input_shape", (3, -4, 5), ValueError, "wanted extents of at least 0"),
    ),
    bad_descriptors=(
        (lambda: MEDIAN(1.0, 2, 3), TypeError, "outer: wanted int"),
        (lambda: KTHVALUE(1, 2, 3, 0.5), TypeError, "k: wanted int"),
    ),
    bad_problems=(
        (MEDIAN(1, 0, 1), INVALID, f"length is 0; wanted 1..{INT64_MAX}"),
        (KTHVALUE(1, 3, 1, 4), INVALID, "k is 4; wanted 1..3"),
        (pybaracuda.ModeDescriptor(1, 2**32, 1), INVALID, "length is 4294967296; wanted"),
        (MEDIAN(1, 1, 1, "s4"), pybaracuda.UnsupportedError, "no variant s4"),
    ),
    any_rank={name: ("input",) for name in _FORWARD},
    not_in_jax=frozenset({*_FORWARD, _BACKWARD}),
)
