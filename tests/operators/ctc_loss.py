# SPDX-License-Identifier: Apache-2.0
"""The record of connectionist temporal classification and of its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import ctc_loss as definitions

from .record import (
    INT32_MAX,
    Arrays,
    Baseline,
    Call,
    Empty,
    Integers,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    compute_bytes,
    coordinates_of,
    numbers,
    size_between,
)

NAMES = ("ctc_loss", "ctc_loss_backward")
_VALUES: Values = {"t": 6, "n": 3, "c": 5, "target_rows": 3, "target_columns": 2, "num_states": 5, "blank": 1}


def _baseline(name: str) -> Baseline:
    """Of one sequence lengths and labels are 0; without classes or states every sequence is bad."""
    backward = name.endswith("_backward")
    bad: Mapping[str, float] = {} if backward else {"neg_log_likelihood": np.nan, "log_alpha": -np.inf}
    one: Values = {"n": 1, "target_rows": 1}
    empties = (
        Empty("n-0", {"n": 0, "target_rows": 0}),
        Empty("t-0", {"t": 0, **one}),
        Empty("c-0", {"c": 0, "blank": 0}, fills=bad),
        Empty("target_columns-0", {"target_columns": 0, **one}, fills={} if backward else {"log_alpha": -np.inf}),
        Empty("num_states-0", {"num_states": 0}, np.nan, bad),
    )
    return Baseline(
        values={**_VALUES, **({"zero_infinity": 1} if backward else {})},
        empties=empties,
        overflows=(
            {"t": INT32_MAX, "n": INT32_MAX, "c": 4, "target_rows": INT32_MAX},
            {"n": INT32_MAX, "target_rows": INT32_MAX, "target_columns": INT32_MAX},
            {"t": 2**21, "n": 2**21, "target_rows": 2**21, "num_states": 2**22},  # 2^64 elements: a wrapped product
        ),
        faults={"target_rows": ({"target_rows": 2}, "target_rows")},
        larger={"t": 40, "n": 9, "target_rows": 9, "c": 70, "target_columns": 520, "num_states": 1041},
        more_scratch_than_memory={"t": 2, "n": 2**20, "target_rows": 1, "c": 1, "blank": 0, "num_states": 2**27}
        if backward
        else None,
    )


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    n, labels = size_between(rng, 1, 10**4), size_between(rng, 1, 10**4) - 1
    return {
        "t": size_between(rng, 1, 10**4), "n": n, "c": size_between(rng, 1, 10**5), "blank": 0,
        "target_rows": int(rng.choice([1, n])), "target_columns": labels, "num_states": 2 * labels + 1,
        "zero_infinity": 0,
    }  # fmt: skip


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's; each array may be 16 bytes longer than what stands in it."""
    t, n, states, wide = values["t"], values["n"], values["num_states"], compute_bytes(symbol)
    is_joined = values["target_rows"] != n
    of_joined = 8 * n if is_joined and (backend == "cpu" or n > 1024) else 0
    if not symbol.operator.name.endswith("_backward"):
        return of_joined, of_joined + 15 * (of_joined > 0)
    if backend == "cpu":
        return of_joined, of_joined + n * states * (22 if wide == 8 else 12) + 64
    return of_joined, of_joined + n * (t * states * wide + 2 * states + 16) + 64


_SHAPE = (6, 3, 5)


def calls(dtype: Any) -> dict[str, Call]:
    """Three sequences of six steps and five classes."""
    wide = coordinates_of(dtype)
    p = pybaracuda
    forward = {
        "log_probs": numbers(_SHAPE, dtype) - np.array(15, dtype),
        "targets": np.array([[2, 2], [3, 4], [0, 1]]),
        "input_lengths": np.array([6, 5, 4]),
        "target_lengths": np.array([2, 1, 0]),
    }
    options = {"blank": 1}
    # The last place is no sequence's.
    joined = {**forward, "targets": np.array([2, 0, 3, 4])}
    sums = {
        "neg_log_likelihood": np.array([30, 40, 50], wide),
        "log_alpha": numbers((3, 6, 5), wide) - np.array(40, wide),
    }
    gradient = {"grad_output": np.array([1, 2, -0.5], wide)}
    return {
        "ctc_loss": Call(p.ctc_loss, forward, options),
        "ctc_loss_with_log_alpha": Call(p.ctc_loss, forward, {**options, "return_log_alpha": True}, 2),
        "ctc_loss_joined": Call(p.ctc_loss, joined, {**options, "max_target_length": 2}),
        "ctc_loss_backward": Call(p.ctc_loss_backward, {**gradient, **forward, **sums}, options),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    fields = (*_VALUES, "element", "index_element")
    values = (*_VALUES.values(), element, "i64")
    p = pybaracuda
    wide = "f64" if element == "f64" else "f32"
    inputs = ("log_probs", "targets", "input_lengths", "target_lengths")
    return {
        "ctc_loss": PlanCase(
            p.CtcLossPlan, p.CtcLossDescriptor(*values), "ctc_loss_with_log_alpha", inputs,
            ("neg_log_likelihood", "log_alpha"), fields, wide,
        ),
        "ctc_loss_backward": PlanCase(
            p.CtcLossBackwardPlan, p.CtcLossBackwardDescriptor(*values), "ctc_loss_backward",
            ("grad_output", *inputs, "neg_log_likelihood", "log_alpha"), ("grad_log_probs",),
            (*fields, "zero_infinity"), wide,
        ),
    }  # fmt: skip


def check(a: Arrays) -> None:
    num_states, blank = a.extents("num_states", "blank")
    expected = definitions.ctc_loss(a.log_probs, a.targets, a.input_lengths, a.target_lengths, num_states, blank)
    assert_within(a.neg_log_likelihood, expected.neg_log_likelihood)
    assert_within(a.log_alpha, expected.log_alpha)


def check_backward(a: Arrays) -> None:
    blank, zero_infinity = a.extents("blank", "zero_infinity")
    expected = definitions.ctc_loss_backward(
        a.grad_output, a.log_probs, a.targets, a.input_lengths, a.target_lengths, a.neg_log_likelihood, a.log_alpha,
        blank, bool(zero_infinity),
    )  # fmt: skip
    assert_within(a.grad_log_probs, expected)


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes and dtypes."""
    for name in NAMES:
        arrays = calls[name].arrays
        yield Refusal(name, {"log_probs": arrays["log_probs"][0]}, ValueError, r"log_probs has shape \(3, 5\); wanted")
        yield Refusal(name, {"targets": arrays["targets"][:2]}, ValueError, r"targets has shape \(2, 2\); wanted")
        yield Refusal(name, {"targets": arrays["targets"][None]}, ValueError, "targets has shape")
        yield Refusal(name, {"input_lengths": arrays["input_lengths"][:2]}, ValueError, "input_lengths has shape")
        floats = arrays["target_lengths"].astype(np.float32)
        yield Refusal(name, {"target_lengths": floats}, TypeError, "target_lengths has dtype float32; wanted int32")
    yield Refusal("ctc_loss", {"targets": np.zeros(3, np.int64)}, ValueError, "max_target_length is None; wanted")
    yield Refusal("ctc_loss_backward", {"log_alpha": np.zeros((3, 5, 5), np.float32)}, ValueError, "log_alpha has")
    narrow = np.ones(3, np.float16)
    yield Refusal("ctc_loss_backward", {"grad_output": narrow}, TypeError, "grad_output has dtype float16")
    yield Refusal("ctc_loss_backward", {"neg_log_likelihood": narrow}, TypeError, "neg_log_likelihood has dtype")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.CtcLossDescriptor
# Lengths beside them have 64 bits, and all of them one dtype.
_INTEGERS = Integers("targets", (np.uint32, np.uint64), (np.int64,))

RECORD = Record(
    families=("ctc_loss",),
    baselines={name: _baseline(name) for name in NAMES},
    checks={"ctc_loss": check, "ctc_loss_backward": check_backward},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "ctc_loss": "log_probs targets input_lengths target_lengths blank max_target_length return_log_alpha",
        "ctc_loss_backward": (
            "grad_output log_probs targets input_lengths target_lengths neg_log_likelihood log_alpha blank "
            "zero_infinity"
        ),
    },
    calls=calls,
    plans=plans,
    floats_only={"ctc_loss": ("log_probs",), "ctc_loss_backward": ("log_probs",)},
    bad_arrays=bad_arrays,
    bad_options=(
        ("ctc_loss", "blank", 5, INVALID, "blank is 5; wanted a class, 0..4"),
        ("ctc_loss", "blank", 0.5, TypeError, "blank: wanted an int"),
        ("ctc_loss", "max_target_length", -1, INVALID, "max_target_length is -1; wanted"),
        ("ctc_loss", "return_log_alpha", "yes", TypeError, "return_log_alpha: wanted a bool"),
        ("ctc_loss_backward", "zero_infinity", 2, TypeError, "zero_infinity: wanted a bool"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, 1, 1, 1, 1, 1), TypeError, "t: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1, 1, 1, 1, 1), INVALID, "n is -1; wanted"),
        (DESCRIPTOR(1, 3, 1, 2, 1, 1), INVALID, "target_rows is 2; wanted n, 3, or 1"),
        (DESCRIPTOR(1, 1, 1, 1, 1, 1, element="s8"), pybaracuda.UnsupportedError, "no variant i64idx_s8"),
    ),
    integers={name: _INTEGERS for name in NAMES},
    not_in_jax=frozenset(NAMES),
)
