# SPDX-License-Identifier: Apache-2.0
"""The record of histograms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_exact

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import histc as definitions

from .record import Arrays, Baseline, Call, Empty, PlanCase, Record, Refusal, Scratch, numbers, size_between


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    return {"num_elements": size_between(rng, 1, 10**9), "bins": size_between(rng, 1, 10**6), "min": 0.0, "max": 1.0}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's."""
    num_elements, bins = values["num_elements"], values["bins"]
    if backend == "cuda":
        return 0, 8 * bins + 64
    parts = max(1, min(32, num_elements // max(32768, bins)))
    return 0, 8 * bins * parts + 1104


_SHAPE = (6, 7)


def calls(dtype: Any) -> dict[str, Call]:
    """A few bins of a part of the data."""
    return {"histc": Call(pybaracuda.histc, {"input": numbers(_SHAPE, dtype)}, {"bins": 5, "min": -4.0, "max": 6.0})}


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    descriptor = pybaracuda.HistcDescriptor(42, 5, -4.0, 6.0, element)
    fields = ("num_elements", "bins", "min", "max", "element")
    return {"histc": PlanCase(pybaracuda.HistcPlan, descriptor, "histc", ("input",), ("output",), fields)}


def check(a: Arrays) -> None:
    bins, low, high = a.extents("bins", "min", "max")
    assert_exact(a.output, definitions.histc(a.input, bins, low, high).astype(np.float64))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Data that has no variant."""
    yield Refusal("histc", {"input": np.zeros(_SHAPE, np.int32)}, TypeError, "input has dtype int32; wanted float32")


DESCRIPTOR = pybaracuda.HistcDescriptor
INVALID = pybaracuda.InvalidProblemError

RECORD = Record(
    families=("histc",),
    baselines={
        "histc": Baseline(
            values={"num_elements": 11, "bins": 4, "min": -1.0, "max": 1.0},
            empties=(
                Empty("num_elements-0", {"num_elements": 0}),
                Empty("of-data-0", {"num_elements": 0, "min": 0.0, "max": 0.0}),
                Empty("bins-0", {"bins": 0}),
            ),
            overflows=({"num_elements": 2**63 - 1}, {"bins": 2**62}),
            faults={
                "reversed": ({"min": 1.0, "max": -1.0}, "max"),
                "infinite-range": ({"min": -1.7e308, "max": 1.7e308}, "max"),
            },
            larger={"num_elements": 70_001, "bins": 130, "min": 0.0, "max": 0.0},
        )
    },
    checks={"histc": check},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={"histc": "input bins min max"},
    calls=calls,
    plans=plans,
    floats_only={"histc": ("input",)},
    bad_arrays=bad_arrays,
    bad_options=(
        ("histc", "bins", 0, ValueError, "bins is 0; wanted at least 1"),
        ("histc", "bins", 1.5, TypeError, "bins: wanted an int"),
        ("histc", "max", -5.0, INVALID, "max is -5; wanted at least min"),
        ("histc", "min", float("nan"), INVALID, "min is nan; wanted a finite number"),
        ("histc", "max", "1", TypeError, "max: wanted a number"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, 2), TypeError, "num_elements: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1), INVALID, "bins is -1; wanted"),
        (DESCRIPTOR(1, 4, 0.0, 3e38), INVALID, "wanted a range of which bins times are finite"),
        (DESCRIPTOR(1, 4, element="i32"), pybaracuda.UnsupportedError, "no variant i32"),
    ),
    any_rank={"histc": ("input",)},
    not_in_jax=frozenset({"histc"}),
)
