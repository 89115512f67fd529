# SPDX-License-Identifier: Apache-2.0
"""The record of maximum unpooling and of its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import max_unpool as definitions

from .record import (
    INT32_MAX,
    Arrays,
    Baseline,
    Call,
    Empty,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    numbers,
    size_between,
)

_AXES = ("d", "h", "w")
_OUTPUT_AXES = tuple(f"output_{axis}" for axis in _AXES)
_EXTENTS: Values = {"n": 2, "c": 3, "d": 2, "h": 3, "w": 3, "output_d": 4, "output_h": 5, "output_w": 6}
_BASELINE = Baseline(
    values=_EXTENTS,
    empties=tuple(Empty(f"{name}-0", {name: 0}, 0.0) for name in _EXTENTS),
    overflows=(
        {"n": INT32_MAX, "c": INT32_MAX, "d": 2**10},
        {"n": 2**21, "c": 2**21, "d": 2**10, "h": 2**12},  # 2^64 elements and more: a wrapped product may be small
        {"n": INT32_MAX, "c": INT32_MAX},
        {"n": 2**20, "c": 2**20, "output_d": 2**20, "output_h": 2**20},
    ),
    faults={},
    larger={"h": 35, "w": 70, "c": 2, "output_h": 170, "output_w": 140},
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    values: Values = {"n": size_between(rng, 1, 64), "c": size_between(rng, 1, 1024)}
    return values | {name: size_between(rng, 1, 300) for name in (*_AXES, *_OUTPUT_AXES)}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: a winner for each place, on CUDA."""
    if backend == "cpu" or symbol.operator.name.endswith("_backward"):
        return 0, 0
    places = values["n"] * values["c"] * values["output_d"] * values["output_h"] * values["output_w"]
    return 0, 8 * places + 15


_SHAPE = (2, 3, 3, 4)


def calls(dtype: Any) -> dict[str, Call]:
    """Two images with three channels."""
    # Places of a plane of 42, some of them twice, and one outside on either side.
    indices = (np.arange(72) * 5 % 44 - 1).astype(np.int64).reshape(_SHAPE)
    indices[0, 0, 0] = 7
    return {
        "max_unpool": Call(
            pybaracuda.max_unpool, {"input": numbers(_SHAPE, dtype), "indices": indices}, {"output_size": (6, 7)}
        ),
        "max_unpool_backward": Call(
            pybaracuda.max_unpool_backward, {"grad_output": numbers((2, 3, 6, 7), dtype), "indices": indices}, {}
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    extents, names = (2, 3, 1, 3, 4, 1, 6, 7), (*_EXTENTS, "element")
    p = pybaracuda
    return {
        "max_unpool": PlanCase(
            p.MaxUnpoolPlan, p.MaxUnpoolDescriptor(*extents, element), "max_unpool", ("input", "indices"), ("output",),
            names, "i64",
        ),
        "max_unpool_backward": PlanCase(
            p.MaxUnpoolBackwardPlan, p.MaxUnpoolBackwardDescriptor(*extents, element), "max_unpool_backward",
            ("grad_output", "indices"), ("grad_input",), names, "i64",
        ),
    }  # fmt: skip


def check(a: Arrays) -> None:
    d, h, w = a.extents(*_OUTPUT_AXES)
    assert_same_bits(a.output, definitions.max_unpool(a.input, a.indices, (d, h, w)))


def check_backward(a: Arrays) -> None:
    assert_same_bits(a.grad_input, definitions.max_unpool_backward(a.grad_output, a.indices))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes."""
    yield Refusal("max_unpool", {"input": numbers((3, 4))}, ValueError, r"input has shape \(3, 4\); wanted channels")
    yield Refusal("max_unpool_backward", {"grad_output": numbers((2, 4, 6, 7))}, ValueError, "grad_output has shape")
    yield Refusal("max_unpool_backward", {"grad_output": numbers((2, 6, 7))}, ValueError, "grad_output has shape")
    for name in ("max_unpool", "max_unpool_backward"):
        indices = calls[name].arrays["indices"]
        yield Refusal(name, {"indices": indices[:1]}, ValueError, "has shape")
        yield Refusal(name, {"indices": indices.astype(np.int32)}, TypeError, "indices has dtype int32; wanted int64")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.MaxUnpoolDescriptor
_FLAT = (1, 1, 1, 1, 4, 1, 1, 8)

RECORD = Record(
    families=("max_unpool",),
    baselines={"max_unpool": _BASELINE, "max_unpool_backward": _BASELINE},
    checks={"max_unpool": check, "max_unpool_backward": check_backward},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "max_unpool": "input indices output_size axes",
        "max_unpool_backward": "grad_output indices axes",
    },
    calls=calls,
    plans=plans,
    floats_only={"max_unpool": ("input",), "max_unpool_backward": ("grad_output",)},
    bad_arrays=bad_arrays,
    bad_options=(
        ("max_unpool", "output_size", (1, 2, 3, 4), ValueError, "output_size has 4 entries"),
        ("max_unpool", "output_size", -1, INVALID, "output_h is -1"),
        ("max_unpool", "output_size", (2, None), TypeError, "output_size: wanted an int, got None"),
        ("max_unpool", "output_size", "2", TypeError, "output_size: wanted an int"),
        ("max_unpool", "axes", 4, ValueError, "axes is 4; wanted 1, 2 or 3"),
        ("max_unpool_backward", "axes", 0, ValueError, "axes is 0; wanted 1, 2 or 3"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, *_FLAT[1:]), TypeError, "n: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1, *_FLAT[2:]), INVALID, "c is -1; wanted"),
        (DESCRIPTOR(*_FLAT, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    not_in_jax=frozenset({"max_unpool", "max_unpool_backward"}),
)
