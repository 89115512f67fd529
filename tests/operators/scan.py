# SPDX-License-Identifier: Apache-2.0
"""The record of scans along an axis and of their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.bounds import Sum
from verify.definitions import scan as definitions
from verify.dtypes import Array

from .record import (
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

_SCANS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
_GRADIENTS = ("cumprod_backward", "logcumsumexp_backward", "cummaxmin_backward")
_SELECTING = ("cummax", "cummin")
_IN_PLACE = ("cumsum", "cumprod", "logcumsumexp")
_TILE = 8192
_BLOCK = 128

_BASELINE = Baseline(
    values={"outer": 2, "length": 5, "inner": 3, "reverse": 0},
    empties=zero("outer", "length", "inner"),
    overflows=(
        {"outer": 2**40, "length": 2**30, "inner": 1},
        {"outer": 2**32, "length": 2**16, "inner": 2**16},  # 2^64 elements: a wrapped product is 0
        {"outer": 1, "length": 2**63 - 1, "inner": 2**63 - 1},
    ),
    larger={"outer": 1, "length": _TILE + 3, "inner": 2},
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    inner = size_between(rng, 1, 100) if rng.integers(2) else 1
    return {
        "outer": size_between(rng, 1, 200),
        "length": size_between(rng, 1, 200_000),
        "inner": inner,
        "reverse": int(rng.integers(2)),
    }


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's."""
    rows, tiles = values["outer"] * values["inner"], ceil_div(values["length"], _TILE)
    if backend == "cuda" and values["inner"] > 1:
        blocks = ceil_div(values["length"], _BLOCK)
        return 0, 24 * rows * (blocks + tiles) + 64 if blocks > 1 else 0
    return 0, (24 if backend == "cpu" else 96) * rows * tiles + 64 if tiles > 1 else 0


_SHAPE = (3, 4, 5)


def calls(dtype: Any) -> dict[str, Call]:
    """Along the middle axis."""
    x = numbers(_SHAPE, dtype)
    indices = np.broadcast_to(np.array([0, 1, 1, 3])[:, None], _SHAPE).copy()
    found = {
        name: Call(getattr(pybaracuda, name), {"input": x}, {"dim": 1}, 2 if name in _SELECTING else 1)
        for name in _SCANS
    }
    for name in _GRADIENTS[:2]:
        arrays = {"grad_output": numbers(_SHAPE, dtype), "input": x / 4, "output": x / 4}
        found[name] = Call(getattr(pybaracuda, name), {k: v.astype(dtype) for k, v in arrays.items()}, {"dim": 1})
    found["cummaxmin_backward"] = Call(
        pybaracuda.cummaxmin_backward, {"grad_output": x, "indices": indices}, {"dim": -2}
    )
    return found


_PREFIXES = {
    "cumsum": "Cumsum",
    "cumprod": "Cumprod",
    "cumprod_backward": "CumprodBackward",
    "logcumsumexp": "Logcumsumexp",
    "logcumsumexp_backward": "LogcumsumexpBackward",
    "cummax": "Cummax",
    "cummin": "Cummin",
    "cummaxmin_backward": "CummaxminBackward",
}


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    found = {}
    for name, prefix in _PREFIXES.items():
        inputs, outputs = ("input",), ("output",)
        if name in _GRADIENTS:
            inputs, outputs = ("grad_output", "input", "output"), ("grad_input",)  # type: ignore[assignment]
        has_indices = name in _SELECTING
        if has_indices:
            outputs = ("output", "indices")  # type: ignore[assignment]
        if name == "cummaxmin_backward":
            inputs = ("grad_output", "indices")  # type: ignore[assignment]
        found[name] = PlanCase(
            getattr(pybaracuda, f"{prefix}Plan"),
            getattr(pybaracuda, f"{prefix}Descriptor")(3, 4, 5, 0, element),
            name,
            inputs,
            outputs,
            ("outer", "length", "inner", "reverse", "element"),
            "i64" if has_indices or name == "cummaxmin_backward" else "none",
        )
    return found


# So many places of a long row are held against a definition that goes over the whole row for each.
_PLACES = 40


def _held(found: Array, define: Any, reverse: bool) -> None:
    length = found.shape[1]
    places = np.unique(np.linspace(0, length - 1, min(length, _PLACES)).astype(np.int64))
    assert_within(np.ascontiguousarray(found[:, places]), define(places))


def check_sum(a: Arrays) -> None:
    reverse = bool(a.values["reverse"])
    if a.input.dtype.kind == "i":
        assert_same_bits(a.output, definitions.cumsum_of_integers(a.input, reverse))
    else:
        assert_within(a.output, definitions.cumsum(a.input, reverse))


def check_product(a: Arrays) -> None:
    reverse = bool(a.values["reverse"])
    if a.input.dtype.kind == "i":
        assert_same_bits(a.output, definitions.cumprod_of_integers(a.input, reverse))
    else:
        assert_within(a.output, definitions.cumprod(a.input, reverse))


def check_logarithm(a: Arrays) -> None:
    assert_within(a.output, definitions.logcumsumexp(a.input, bool(a.values["reverse"])))


def check_product_gradient(a: Arrays) -> None:
    reverse = bool(a.values["reverse"])

    def define(places: Array) -> Sum:
        return definitions.cumprod_backward(a.grad_output, a.input, a.output, reverse, places)

    _held(a.grad_input, define, reverse)


def check_logarithm_gradient(a: Arrays) -> None:
    reverse = bool(a.values["reverse"])

    def define(places: Array) -> Sum:
        return definitions.logcumsumexp_backward(a.grad_output, a.input, a.output, reverse, places)

    _held(a.grad_input, define, reverse)


def _check_extremum(a: Arrays, smallest: bool) -> None:
    output, indices = definitions.cummax(a.input, bool(a.values["reverse"]), smallest)
    assert_same_bits(a.output, output)
    assert_same_bits(a.indices, indices)


def check_maximum(a: Arrays) -> None:
    _check_extremum(a, False)


def check_minimum(a: Arrays) -> None:
    _check_extremum(a, True)


def check_extremum_gradient(a: Arrays) -> None:
    assert_within(a.grad_input, definitions.cummaxmin_backward(a.grad_output, a.indices, bool(a.values["reverse"])))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Data that an operator has no variant for, and arrays of other shapes."""
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        yield Refusal(name, {"input": np.zeros(_SHAPE, np.int16)}, TypeError, "input has dtype int16; wanted float32")
    for name in ("cumprod_backward", "logcumsumexp_backward"):
        for argument in ("input", "output"):
            yield Refusal(name, {argument: numbers((3, 4, 4))}, ValueError, f"{argument} has shape")
            other = numbers(_SHAPE, np.float64 if calls[name].arrays[argument].dtype != np.float64 else np.float32)
            yield Refusal(name, {argument: other}, TypeError, f"{argument} has dtype")
    indices = calls["cummaxmin_backward"].arrays["indices"]
    yield Refusal("cummaxmin_backward", {"indices": indices[:1]}, ValueError, "indices has shape")
    yield Refusal("cummaxmin_backward", {"indices": indices.astype(np.int32)}, TypeError, "wanted int64")


DESCRIPTOR = pybaracuda.CumsumDescriptor
INVALID = pybaracuda.InvalidProblemError

RECORD = Record(
    families=("scan",),
    baselines={
        name: _BASELINE._replace(in_place="input" if name in _IN_PLACE else "") for name in (*_SCANS, *_GRADIENTS)
    },
    checks={
        "cumsum": check_sum,
        "cumprod": check_product,
        "cumprod_backward": check_product_gradient,
        "logcumsumexp": check_logarithm,
        "logcumsumexp_backward": check_logarithm_gradient,
        "cummax": check_maximum,
        "cummin": check_minimum,
        "cummaxmin_backward": check_extremum_gradient,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        **{name: "input dim reverse" for name in _SCANS},
        "cumprod_backward": "grad_output input output dim reverse",
        "logcumsumexp_backward": "grad_output input output dim reverse",
        "cummaxmin_backward": "grad_output indices dim reverse",
    },
    calls=calls,
    plans=plans,
    floats_only={
        "logcumsumexp": ("input",),
        "cumprod_backward": ("grad_output",),
        "logcumsumexp_backward": ("grad_output",),
        "cummaxmin_backward": ("grad_output",),
    },
    bad_arrays=bad_arrays,
    bad_options=(
        ("cumsum", "dim", 3, ValueError, "dim is 3; wanted -3..2"),
        ("cummax", "dim", -4, ValueError, "dim is -4; wanted -3..2"),
        ("cumprod", "dim", 1.0, TypeError, "dim: wanted an int"),
        ("logcumsumexp", "reverse", 2, TypeError, "reverse: wanted a bool"),
        ("cummaxmin_backward", "dim", 3, ValueError, "dim is 3"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, 2, 3), TypeError, "outer: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1, 1), INVALID, "length is -1; wanted"),
        (DESCRIPTOR(1, 1, 1, 2), INVALID, "reverse is 2; wanted"),
        (DESCRIPTOR(1, 1, 1, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    any_rank={name: ("input",) for name in _SCANS} | {"cummaxmin_backward": ("grad_output",)},
    not_in_torch=frozenset({"logcumsumexp_backward"}),
    not_in_jax=frozenset({*_GRADIENTS, *_SELECTING}),
)
