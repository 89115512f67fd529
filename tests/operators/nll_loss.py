# SPDX-License-Identifier: Apache-2.0
"""The record of losses of classification and of their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import nll_loss as definitions

from .record import (
    INT32_MAX,
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
    compute_bytes,
    coordinates_of,
    numbers,
    size_between,
)

NAMES = ("nll_loss", "nll_loss_backward", "cross_entropy", "cross_entropy_backward")
_SCALARS: Values = {"n": 3, "c": 5, "d": 4, "has_weight": 1, "ignore_index": -100, "reduction": 2}
_REDUCTIONS = ("none", "mean", "sum")


def _baseline(name: str) -> Baseline:
    """A sum, which is 0 where nothing is added."""
    smoothing: Values = {"label_smoothing": 0.0} if name.startswith("cross_entropy") else {}
    empties = [Empty("n-0", {"n": 0}), Empty("d-0", {"d": 0}), Empty("mean-of-nothing", {"n": 0, "reduction": 1})]
    if not name.endswith("_backward"):
        # A mean of nothing is NaN.
        empties[2] = empties[2]._replace(fills={"output": np.nan})
    # Without a class no target is one: of twelve, which are 0, 1 and 2 in turn, eight are not ignored.
    empties.append(Empty("c-0", {"c": 0, "ignore_index": 0}, fills={"num_dropped": 8}))
    return Baseline(
        values={**_SCALARS, **smoothing},
        empties=tuple(empties),
        overflows=(
            {"n": INT32_MAX, "c": INT32_MAX, "d": 4},
            {"n": INT32_MAX, "d": INT32_MAX},
            {"n": 2**21, "c": 2**21, "d": 2**22},  # 2^64 elements: a wrapped product
        ),
        larger={"n": 3, "c": 40, "d": 1100},
        more_scratch_than_memory={"n": INT32_MAX, "c": 1, "d": 2**24, "reduction": 2}
        if not name.endswith("_backward")
        else None,
    )


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    sizes: Values = {"n": size_between(rng, 1, 10**6), "c": size_between(rng, 1, 10**5), "d": 1}
    if rng.integers(2):
        sizes |= {"n": size_between(rng, 1, 100), "d": size_between(rng, 1, 10**6)}
    sizes |= {"has_weight": int(rng.integers(2)), "ignore_index": -100, "reduction": int(rng.integers(3))}
    return {**sizes, "label_smoothing": float(rng.choice([0.0, 0.1]))}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's."""
    if symbol.operator.name.endswith("_backward"):
        return 0, 16 * values["has_weight"] * symbol.operator.name.startswith("cross_entropy")
    elements = values["n"] * values["d"]
    by_row = values["d"] == 1 and symbol.operator.name == "cross_entropy"
    items = elements if by_row else ceil_div(elements, 256)
    each = 24 if compute_bytes(symbol) == 8 else 16
    room = 56 * KIB if by_row and backend == "cpu" else 0
    # What several blocks leave for another is within a part in 8192.
    return 0, items * each + ceil_div(items, 8192) * each + 192 + room


_SHAPE = (2, 5, 3, 4)
_TARGETS = (2, 3, 4)


def calls(dtype: Any) -> dict[str, Call]:
    """Two images of five classes, some elements ignored."""
    wide = coordinates_of(dtype)
    logits, targets = numbers(_SHAPE, dtype), (np.arange(24) * 7 % 6 - 1).reshape(_TARGETS)
    weight = (np.arange(5) / 4 + 0.5).astype(dtype)
    forward = {"input": logits, "target": targets, "weight": weight}
    # A loss for each element, since these arrays are also laid out otherwise, which one without axes cannot be.
    options: dict[str, Any] = {"ignore_index": -1, "reduction": "none"}
    smoothed = {**options, "label_smoothing": 0.125}
    p = pybaracuda
    total = np.array([12.5], wide)
    sums = {"log_sum_exp": np.abs(numbers(_TARGETS, wide)) + 20, "total_weight": total}
    gradient = numbers(_TARGETS, dtype)
    return {
        "nll_loss": Call(p.nll_loss, forward, options),
        "nll_loss_with_sums": Call(p.nll_loss, forward, {**options, "return_sums": True}, 3),
        "nll_loss_without_weights": Call(p.nll_loss, {"input": logits, "target": targets.astype(np.int32)}, options),
        "nll_loss_backward": Call(
            p.nll_loss_backward,
            {"grad_output": gradient, "target": targets, "total_weight": total, "weight": weight},
            {"input_shape": _SHAPE, **options},
        ),
        "cross_entropy": Call(p.cross_entropy, forward, smoothed),
        "cross_entropy_with_sums": Call(p.cross_entropy, forward, {**smoothed, "return_sums": True}, 4),
        "cross_entropy_without_weights": Call(p.cross_entropy, {"input": logits, "target": targets}, options),
        "cross_entropy_backward": Call(
            p.cross_entropy_backward,
            {"grad_output": gradient, "input": logits, "target": targets, **sums, "weight": weight},
            smoothed,
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    fields = ("n", "c", "d", "has_weight", "ignore_index", "reduction", "element", "index_element")
    values = (2, 5, 12, 1, -1, 0, element, "i64")
    p = pybaracuda
    wide = "f64" if element == "f64" else "f32"
    return {
        "nll_loss": PlanCase(
            p.NllLossPlan, p.NllLossDescriptor(*values), "nll_loss_with_sums", ("input", "target", "weight"),
            ("output", "total_weight", "num_dropped"), fields, wide,
        ),
        "nll_loss_backward": PlanCase(
            p.NllLossBackwardPlan, p.NllLossBackwardDescriptor(*values), "nll_loss_backward",
            ("grad_output", "target", "total_weight", "weight"), ("grad_input",), fields, wide,
        ),
        "cross_entropy": PlanCase(
            p.CrossEntropyPlan, p.CrossEntropyDescriptor(*values, 0.125), "cross_entropy_with_sums",
            ("input", "target", "weight"), ("output", "log_sum_exp", "total_weight", "num_dropped"),
            (*fields, "label_smoothing"), wide,
        ),
        "cross_entropy_backward": PlanCase(
            p.CrossEntropyBackwardPlan, p.CrossEntropyBackwardDescriptor(*values, 0.125), "cross_entropy_backward",
            ("grad_output", "input", "target", "log_sum_exp", "total_weight", "weight"), ("grad_input",),
            (*fields, "label_smoothing"), wide,
        ),
    }  # fmt: skip


def _options(a: Arrays) -> tuple[Any, int, str]:
    weight, ignore_index, reduction = a.extents("has_weight", "ignore_index", "reduction")
    return a.weight if weight else None, ignore_index, _REDUCTIONS[reduction]


def _check_losses(a: Arrays, expected: definitions.Losses) -> None:
    assert_within(a.output, expected.output)
    assert_within(a.total_weight, expected.total_weight)
    assert_same_bits(a.num_dropped, np.array([expected.num_dropped], a.num_dropped.dtype))
    if expected.log_sum_exp is not None:
        assert_within(a.log_sum_exp, expected.log_sum_exp)


def check(a: Arrays) -> None:
    _check_losses(a, definitions.nll_loss(a.input, a.target, *_options(a)))


def check_backward(a: Arrays) -> None:
    weight, ignore_index, reduction = _options(a)
    shape = a.extents("n", "c", "d")
    expected = definitions.nll_loss_backward(
        a.grad_output, shape, a.target, weight, ignore_index, reduction, a.total_weight
    )
    assert_within(a.grad_input, expected)


def check_entropy(a: Arrays) -> None:
    smoothing = a.values["label_smoothing"]
    _check_losses(a, definitions.cross_entropy(a.input, a.target, *_options(a), smoothing))


def check_entropy_backward(a: Arrays) -> None:
    expected = definitions.cross_entropy_backward(
        a.grad_output, a.input, a.target, *_options(a), a.values["label_smoothing"], a.log_sum_exp, a.total_weight
    )
    assert_within(a.grad_input, expected)


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes and dtypes."""
    for name in ("nll_loss", "cross_entropy"):
        arrays = calls[name].arrays
        yield Refusal(name, {"target": arrays["target"][:1]}, ValueError, r"target has shape \(1, 3, 4\)")
        yield Refusal(name, {"weight": arrays["weight"][:4]}, ValueError, r"weight has shape \(4,\); wanted \(5,\)")
        wide = arrays["weight"].astype(np.float64)
        yield Refusal(name, {"weight": wide}, TypeError, "weight has dtype float64; wanted float32")
        floats = arrays["target"].astype(np.float32)
        yield Refusal(name, {"target": floats}, TypeError, "target has dtype float32; wanted int32")
    yield Refusal("nll_loss_backward", {"total_weight": np.zeros(2, np.float32)}, ValueError, "total_weight has shape")
    yield Refusal("nll_loss_backward", {"grad_output": np.zeros(2, np.float32)}, ValueError, "grad_output has shape")
    narrow = np.ones(1, np.float16)
    yield Refusal("cross_entropy_backward", {"total_weight": narrow}, TypeError, "total_weight has dtype float16")
    yield Refusal(
        "cross_entropy_backward", {"grad_output": np.zeros(_TARGETS, np.float16)}, TypeError, "input has dtype float32"
    )
    short = np.zeros((2, 3), np.float32)
    yield Refusal("cross_entropy_backward", {"log_sum_exp": short}, ValueError, "log_sum_exp has shape")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.CrossEntropyDescriptor
_TARGET = Integers("target", (np.uint32, np.uint64))

RECORD = Record(
    families=("nll_loss",),
    baselines={name: _baseline(name) for name in NAMES},
    checks={
        "nll_loss": check,
        "nll_loss_backward": check_backward,
        "cross_entropy": check_entropy,
        "cross_entropy_backward": check_entropy_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "nll_loss": "input target weight ignore_index reduction return_sums",
        "nll_loss_backward": "grad_output target total_weight input_shape weight ignore_index reduction",
        "cross_entropy": "input target weight ignore_index reduction label_smoothing return_sums",
        "cross_entropy_backward": (
            "grad_output input target log_sum_exp total_weight weight ignore_index reduction label_smoothing"
        ),
    },
    calls=calls,
    plans=plans,
    floats_only={
        "nll_loss": ("input",),
        "nll_loss_backward": ("grad_output",),
        "cross_entropy": ("input",),
        "cross_entropy_backward": ("grad_output",),
    },
    bad_arrays=bad_arrays,
    any_rank={"nll_loss": ("input", "target"), "cross_entropy": ("input", "target")},
    bad_options=(
        ("nll_loss", "reduction", "max", ValueError, "reduction is 'max'; wanted one of none, mean, sum"),
        ("nll_loss", "ignore_index", 0.5, TypeError, "ignore_index: wanted an int"),
        ("nll_loss", "return_sums", "yes", TypeError, "return_sums: wanted a bool"),
        ("nll_loss_backward", "input_shape", "2", TypeError, "input_shape: wanted a sequence of int"),
        ("cross_entropy", "label_smoothing", 1.5, INVALID, "label_smoothing is 1.5; wanted 0..1"),
        ("cross_entropy", "label_smoothing", "0", TypeError, "label_smoothing: wanted a number"),
        ("cross_entropy_backward", "reduction", None, ValueError, "reduction is None; wanted"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, 1, 1), TypeError, "n: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1, 1), INVALID, "c is -1; wanted"),
        (DESCRIPTOR(1, 1, 1, 2), INVALID, "has_weight is 2; wanted"),
        (DESCRIPTOR(1, 1, 1, label_smoothing=float("nan")), INVALID, "label_smoothing is nan"),
        (DESCRIPTOR(1, 1, 1, element="s8"), pybaracuda.UnsupportedError, "no variant i64idx_s8"),
    ),
    integers={name: _TARGET for name in NAMES},
    not_in_jax=frozenset(NAMES),
)
