# SPDX-License-Identifier: Apache-2.0
"""The record of weighted counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import bincount as definitions

from .record import (
    INT64_MAX,
    KIB,
    Arrays,
    Baseline,
    Call,
    Empty,
    Integers,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    ceil_div,
    numbers,
    size_between,
    zero,
)

_BLOCK, _GROUP, _MOST_BINS = 4096, 64 * 4096, 4096

_BASELINE = Baseline(
    values={"n": 7, "num_bins": 5, "wants_extent": 1},
    empties=(*zero("n"), Empty("num_bins-0", {"num_bins": 0, "wants_extent": 0})),
    overflows=({"n": INT64_MAX}, {"n": 2**61}),
    larger={"n": _GROUP + _BLOCK + 33, "num_bins": 70},
    more_scratch_than_memory={"n": 2**55, "num_bins": _MOST_BINS},
)


_OF_ROWS = Baseline(
    values={"rows": 3, "n": 7, "num_bins": 5},
    empties=zero("rows", "n", "num_bins"),
    overflows=({"n": INT64_MAX}, {"rows": 2**40, "n": 2**21}, {"rows": 2**61, "n": 1}),
    larger={"rows": 2, "n": 2 * _BLOCK + 33, "num_bins": 70},
    more_scratch_than_memory={"rows": 2**15, "n": 2**40, "num_bins": _MOST_BINS},
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    values: Values = {"n": size_between(rng, 1, 10**8), "num_bins": size_between(rng, 1, _MOST_BINS)}
    of_rows = {"rows": size_between(rng, 1, 10**4)}
    return {**values, **({"wants_extent": 1} if symbol.operator.name == "bincount" else of_rows)}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's."""
    n, row = values["n"], values["num_bins"] * (8 if symbol.variant.types["T"] in ("f64", "i64") else 4)
    row *= values.get("rows", 1)
    groups, blocks = ceil_div(n, _GROUP), ceil_div(n, _BLOCK)
    if backend == "cpu":
        return 0, (row * groups + 15 if blocks > 1 else 0) + 33 * KIB
    return 0, row * (groups + blocks) + 30 if blocks > 1 else 0


def calls(dtype: Any) -> dict[str, Call]:
    """A few entries, into few bins and into more than a table has."""
    entries = np.arange(24) * 7 % 6 - 1
    arrays = {"input": entries, "weights": numbers((24,), dtype)}
    return {
        "bincount": Call(pybaracuda.bincount, arrays, {"num_bins": 5}),
        "bincount_with_extent": Call(pybaracuda.bincount, arrays, {"num_bins": 5, "return_extent": True}, 2),
        "bincount_of_rows": Call(pybaracuda.bincount, {k: v.reshape(4, 6) for k, v in arrays.items()}, {"num_bins": 5}),
        "bincount_of_many": Call(pybaracuda.bincount, arrays, {"num_bins": _MOST_BINS + 1}),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of one row and of several."""
    return {
        "bincount": PlanCase(
            pybaracuda.BincountPlan, pybaracuda.BincountDescriptor(24, 5, element, "i64", 1), "bincount_with_extent",
            ("input", "weights"), ("output", "extent"),
            ("n", "num_bins", "element", "index_element", "wants_extent"), "i64",
        ),
        "bincount_rows": PlanCase(
            pybaracuda.BincountRowsPlan, pybaracuda.BincountRowsDescriptor(4, 6, 5, element, "i64"), "bincount_of_rows",
            ("input", "weights"), ("output",), ("rows", "n", "num_bins", "element", "index_element"), "i64",
        ),
    }  # fmt: skip


def check(a: Arrays) -> None:
    bins = a.values["num_bins"]
    rows = a.values.get("rows", 1)
    shaped = (each.reshape(rows, -1) for each in (a.input, a.weights, a.output))
    for entries, weights, output in zip(*shaped, strict=True):
        if weights.dtype.kind == "i":
            assert_same_bits(output, definitions.bincount_of_integers(entries, weights, bins))
        else:
            assert_within(output, definitions.bincount(entries, weights, bins))
    if a.values.get("wants_extent"):
        assert a.extent.tolist() == [definitions.extent(a.input)]


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes and dtypes."""
    for name in ("bincount", "bincount_of_many"):
        arrays = calls[name].arrays
        short = arrays["weights"][1:]
        yield Refusal(name, {"weights": short}, ValueError, r"weights has shape \(23,\); wanted \(24,\)")
        yield Refusal(
            name, {"input": arrays["input"].reshape(4, 6)}, ValueError, r"weights has shape \(24,\); wanted \(4, 6\)"
        )
        floats = arrays["input"].astype(np.float32)
        yield Refusal(name, {"input": floats}, TypeError, "input has dtype float32; wanted int32")
        narrow = np.zeros(24, np.int16)
        yield Refusal(name, {"weights": narrow}, TypeError, "weights has dtype int16; wanted float32")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.BincountDescriptor
_INPUT = Integers("input")

RECORD = Record(
    families=("bincount",),
    baselines={"bincount": _BASELINE, "bincount_rows": _OF_ROWS},
    checks={"bincount": check, "bincount_rows": check},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={"bincount": "input weights num_bins return_extent"},
    calls=calls,
    plans=plans,
    bad_arrays=bad_arrays,
    bad_options=(
        ("bincount", "num_bins", -1, INVALID, "num_bins is -1; wanted 0..2147483647"),
        ("bincount", "num_bins", 2.0, TypeError, "num_bins: wanted an int"),
        ("bincount_of_rows", "num_bins", _MOST_BINS + 1, INVALID, "num_bins is 4097; wanted 0..4096 for several rows"),
        ("bincount", "return_extent", "yes", TypeError, "return_extent: wanted a bool"),
        ("bincount_of_rows", "return_extent", True, INVALID, "return_extent: wanted one row of entries"),
        ("bincount_of_many", "return_extent", True, INVALID, "return_extent: wanted one row of entries"),
        ("bincount_of_many", "num_bins", 2**31, INVALID, "num_bins is 2147483648; wanted"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, 2), TypeError, "n: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(-1, 2), INVALID, "n is -1; wanted"),
        (DESCRIPTOR(1, 1, wants_extent=2), INVALID, "wants_extent is 2; wanted"),
        (DESCRIPTOR(1, _MOST_BINS + 1), INVALID, "num_bins is 4097; wanted 0..4096"),
        (pybaracuda.BincountRowsDescriptor(-1, 1, 2), INVALID, "rows is -1; wanted"),
        (DESCRIPTOR(1, 1, "s8"), pybaracuda.UnsupportedError, "no variant i64idx_s8"),
    ),
    integers={"bincount": _INPUT, "bincount_of_rows": _INPUT, "bincount_of_many": _INPUT},
)
