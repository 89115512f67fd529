# SPDX-License-Identifier: Apache-2.0
"""The record of copies of rows by an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import index_copy as definitions
from verify.dtypes import bits

from .record import (
    INT64_MAX,
    Arrays,
    Baseline,
    Call,
    Integers,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    numbers,
    size_between,
    zero,
)

_BASELINE = Baseline(
    values={"outer": 2, "length": 5, "n": 4, "inner": 3},
    empties=zero("outer", "length", "inner"),
    overflows=(
        {"outer": 2**32, "length": 2**16, "inner": 2**16},  # 2^64 elements: a wrapped product is 0
        {"n": INT64_MAX},
        {"outer": 2**21, "n": 2**21, "inner": 2**21},
        {"length": INT64_MAX, "inner": INT64_MAX},
    ),
    larger={"outer": 1, "length": 700, "n": 3100, "inner": 3},
    in_place="input",
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    return {
        "outer": size_between(rng, 1, 100),
        "length": size_between(rng, 1, 10**9),
        "n": size_between(rng, 1, 10**9),
        "inner": size_between(rng, 1, 1000),
    }


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's."""
    return 0, 0 if backend == "cpu" else 8 * values["length"] + 15


_SHAPE = (3, 6, 5)


def calls(dtype: Any) -> dict[str, Call]:
    """Along the middle axis and along the first: rows that two name, and entries on either side of the rows."""
    index = np.array([4, 0, -1, 4, 6, 2])
    source = -numbers(_SHAPE, dtype)
    arrays = {"input": numbers(_SHAPE, dtype), "index": index, "source": source}
    first = {**arrays, "index": np.array([2, 0, 2, 1]), "source": -numbers((4, 6, 5), dtype)}
    return {
        "index_copy": Call(pybaracuda.index_copy, arrays, {"dim": 1}),
        "index_copy_first": Call(pybaracuda.index_copy, first, {"dim": -3}),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the first of them."""
    return {
        "index_copy": PlanCase(
            pybaracuda.IndexCopyPlan, pybaracuda.IndexCopyDescriptor(3, 6, 6, 5, element, "i64"), "index_copy",
            ("input", "index", "source"), ("output",), ("outer", "length", "n", "inner", "element", "index_element"),
            "i64",
        )
    }  # fmt: skip


def check(a: Arrays) -> None:
    found = definitions.index_copy(bits(a.input), a.index, bits(a.source))
    assert_same_bits(bits(a.output), found)


def refused_dtypes(function: str) -> tuple[tuple[Any, str], ...]:
    """Elements of any dtype that NumPy computes with are moved."""
    return (("m8[s]", "has dtype timedelta64"),)


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes and dtypes."""
    arrays = calls["index_copy"].arrays
    name, source = "index_copy", arrays["source"]
    yield Refusal(name, {"source": source[:, 1:]}, ValueError, r"source has shape \(3, 5, 5\); wanted \(3, 6, 5\)")
    yield Refusal(name, {"source": source[0]}, ValueError, r"source has shape \(6, 5\); wanted \(3, 6, 5\)")
    other = source.astype(np.float64 if source.dtype != np.float64 else np.float32)
    yield Refusal(name, {"source": other}, TypeError, "source has dtype float.*; wanted")
    yield Refusal(name, {"index": arrays["index"].reshape(2, 3)}, ValueError, r"index has shape \(2, 3\); wanted \[N\]")
    floats = arrays["index"].astype(np.float32)
    yield Refusal(name, {"index": floats}, TypeError, "index has dtype float32; wanted int32")
    one = np.zeros((), source.dtype)
    yield Refusal(name, {"input": one, "source": one}, ValueError, r"input has shape \(\); wanted at least one axis")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.IndexCopyDescriptor
_INDEX = Integers("index")

RECORD = Record(
    families=("index_copy",),
    baselines={"index_copy": _BASELINE},
    checks={"index_copy": check},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={"index_copy": "input dim index source"},
    calls=calls,
    plans=plans,
    refused_dtypes=refused_dtypes,
    bad_arrays=bad_arrays,
    bad_options=(
        ("index_copy", "dim", 3, ValueError, "dim is 3; wanted -3..2"),
        ("index_copy", "dim", -4, ValueError, "dim is -4; wanted -3..2"),
        ("index_copy", "dim", 1.0, TypeError, "dim: wanted an int"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, 2, 3, 4), TypeError, "outer: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1, 1, 1), INVALID, "length is -1; wanted"),
        (DESCRIPTOR(1, 1, 2**62, 1), INVALID, "index is too large"),
        (DESCRIPTOR(1, 1, 1, 1, "s8"), pybaracuda.UnsupportedError, "no variant i64idx_s8"),
    ),
    integers={"index_copy": _INDEX, "index_copy_first": _INDEX},
    not_in_jax=frozenset({"index_copy"}),
)
