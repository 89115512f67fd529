# SPDX-License-Identifier: Apache-2.0
"""The record of bags of embeddings and of their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import embedding_bag as definitions

from .record import (
    INT32_MAX,
    KIB,
    MIB,
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
)

NAMES = (
    "embedding_bag",
    "embedding_bag_max",
    "embedding_bag_backward",
    "embedding_bag_max_backward",
    "embedding_bag_weights_backward",
)
_EXTENTS: Values = {"num_indices": 7, "num_bags": 3, "num_embeddings": 5, "embedding_dim": 4}
_OPTIONS: dict[str, Values] = {
    "embedding_bag": {"mean": 1, "has_per_sample_weights": 1, "wants_bags": 1},
    "embedding_bag_backward": {"mean": 1, "has_per_sample_weights": 1, "scale_grad_by_freq": 1},
}
_MOST = INT32_MAX - 256


def _baseline(name: str) -> Baseline:
    is_forward = not name.endswith("_backward")
    arg = {"arg": -1.0} if name == "embedding_bag_max" else {}
    # Without bags positions are of none; what has no table or columns has no positions either, which would have bags.
    none = {"bag_ids": -1.0} if is_forward else {}
    empties = [
        Empty("num_indices-0", {"num_indices": 0}, fills=arg),
        Empty("num_bags-0", {"num_bags": 0}, fills=none),
        Empty("nothing", {"num_indices": 0, "num_bags": 0}),
        Empty("num_embeddings-0", {"num_embeddings": 0, "num_indices": 0}, fills=arg),
    ]
    none_to_describe: Values = {"num_indices": 0} if is_forward else {}
    empties.append(Empty("embedding_dim-0", {"embedding_dim": 0, **none_to_describe}))
    return Baseline(
        values={**_EXTENTS, "padding_idx": -1, **_OPTIONS.get(name, {})},
        empties=tuple(empties),
        overflows=(
            {"num_bags": INT32_MAX, "embedding_dim": INT32_MAX},
            {"num_embeddings": INT32_MAX, "embedding_dim": INT32_MAX},
        ),
        larger={"num_indices": 700, "num_bags": 4, "num_embeddings": 3, "embedding_dim": 40},
    )


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    sizes: Values = {
        "num_indices": size_between(rng, 1, _MOST),
        "num_bags": size_between(rng, 1, INT32_MAX),
        "num_embeddings": size_between(rng, 1, INT32_MAX),
        "embedding_dim": size_between(rng, 1, 4096),
        "padding_idx": -1,
    }
    flags = (*_OPTIONS["embedding_bag_backward"], "wants_bags")
    return {**sizes, **{name: int(rng.integers(2)) for name in flags}}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: an order of the positions, and partial results of bags or rows that are cut."""
    name, count, columns = symbol.operator.name, values["num_indices"], values["embedding_dim"]
    if name == "embedding_bag_weights_backward":
        return 0, 0
    parts = 2 * ceil_div(count, 256) * 12 * columns if count > 256 else 0
    if not name.endswith("_backward"):
        most = count + 128 + parts
        if name == "embedding_bag" and values["mean"] and not values["wants_bags"]:
            most += 4 * values["num_bags"] + 16
        if name == "embedding_bag_max" and count > 32:
            most += min(2 * ceil_div(count, 32) * 12 * columns, 16 * MIB + 16 * count)
        return 0, most
    most = 34 * count + 4 * values["num_embeddings"] + 64 * KIB + parts
    if name == "embedding_bag_max_backward" and backend == "cuda":
        most += 8 * count * ceil_div(columns, 32)
    return 0, most


_INDICES = np.array([1, 4, 0, 4, 3, 2, 4], np.int64)
_OFFSETS = np.array([0, 3, 3], np.int64)
_IDS = np.array([0, 0, 0, 2, 2, 2, 2], np.int64)
_SIZES = np.array([2, 1, 4], np.int64)


def calls(dtype: Any) -> dict[str, Call]:
    """Seven positions in three bags, the middle one of which is empty."""
    p = pybaracuda
    forward = {"input": _INDICES, "weight": numbers((5, 4), dtype), "offsets": _OFFSETS}
    weighted = {**forward, "per_sample_weights": (np.arange(7) / 4 + 0.5).astype(dtype)}
    backward = {"grad_output": numbers((3, 4), dtype), "input": _INDICES, "bag_ids": _IDS}
    arg = np.array([[1, 4, 0, 1], [-1] * 4, [4, 3, 2, 4]], np.int64)
    table = {"num_embeddings": 5}
    return {
        "embedding_bag": Call(p.embedding_bag, forward, {"mode": "mean", "padding_idx": 0}),
        "embedding_bag_weighted": Call(p.embedding_bag, weighted, {"mode": "sum"}),
        "embedding_bag_with_bags": Call(p.embedding_bag, weighted, {"mode": "sum", "return_bags": True}, 3),
        "embedding_bag_last_offset": Call(
            p.embedding_bag,
            {**forward, "offsets": np.array([0, 3, 3, 7], np.int64)},
            {"mode": "sum", "include_last_offset": True},
        ),
        "embedding_bag_max": Call(p.embedding_bag, forward, {"mode": "max"}),
        "embedding_bag_max_with_bags": Call(p.embedding_bag, forward, {"mode": "max", "return_bags": True}, 4),
        "embedding_bag_backward": Call(
            p.embedding_bag_backward, {**backward, "bag_sizes": _SIZES}, {**table, "mode": "mean", "padding_idx": 1}
        ),
        "embedding_bag_weighted_backward": Call(
            p.embedding_bag_backward,
            {**backward, "per_sample_weights": weighted["per_sample_weights"]},
            {**table, "mode": "sum", "scale_grad_by_freq": True},
        ),
        "embedding_bag_max_backward": Call(
            p.embedding_bag_backward, {**backward, "arg": arg}, {**table, "mode": "max"}
        ),
        "embedding_bag_weights_backward": Call(
            p.embedding_bag_weights_backward,
            {
                "grad_output": backward["grad_output"],
                "weight": forward["weight"],
                "input": _INDICES,
                "bag_ids": _IDS,
            },
            {"padding_idx": 2},
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    fields = ("num_indices", "num_bags", "num_embeddings", "embedding_dim", "padding_idx", "element", "index_element")
    extents = (7, 3, 5, 4)
    p = pybaracuda
    flags = ("mean", "has_per_sample_weights")
    return {
        "embedding_bag": PlanCase(
            p.EmbeddingBagPlan, p.EmbeddingBagDescriptor(*extents, -1, element, "i64", 0, 1),
            "embedding_bag_with_bags", ("indices", "weight", "offsets", "per_sample_weights"),
            ("output", "bag_ids", "bag_sizes"), (*fields, *flags, "wants_bags"), "i64",
        ),
        "embedding_bag_max": PlanCase(
            p.EmbeddingBagMaxPlan, p.EmbeddingBagMaxDescriptor(*extents, -1, element, "i64"),
            "embedding_bag_max_with_bags", ("indices", "weight", "offsets"),
            ("output", "bag_ids", "bag_sizes", "arg"), fields, "i64",
        ),
        "embedding_bag_backward": PlanCase(
            p.EmbeddingBagBackwardPlan, p.EmbeddingBagBackwardDescriptor(*extents, 1, element, "i64", 1),
            "embedding_bag_backward", ("grad_output", "indices", "bag_ids", "bag_sizes"), ("grad_weight",),
            (*fields, *flags, "scale_grad_by_freq"), "i64",
        ),
        "embedding_bag_max_backward": PlanCase(
            p.EmbeddingBagMaxBackwardPlan, p.EmbeddingBagMaxBackwardDescriptor(*extents, -1, element, "i64"),
            "embedding_bag_max_backward", ("grad_output", "indices", "bag_ids", "arg"), ("grad_weight",), fields,
            "i64",
        ),
        "embedding_bag_weights_backward": PlanCase(
            p.EmbeddingBagWeightsBackwardPlan, p.EmbeddingBagWeightsBackwardDescriptor(*extents, 2, element, "i64"),
            "embedding_bag_weights_backward", ("grad_output", "weight", "indices", "bag_ids"), ("grad_weights",),
            fields, "i64",
        ),
    }  # fmt: skip


def _check_bags(a: Arrays, expected: definitions.Bags) -> None:
    assert_same_bits(a.bag_ids.ravel(), expected.ids.astype(a.bag_ids.dtype))
    assert_same_bits(a.bag_sizes.ravel(), expected.sizes.astype(a.bag_sizes.dtype))


def check(a: Arrays) -> None:
    mean, weighted, padding = a.extents("mean", "has_per_sample_weights", "padding_idx")
    weights = a.per_sample_weights[0] if weighted else None
    expected, bags = definitions.embedding_bag(a.weight, a.indices, a.offsets, weights, bool(mean), padding)
    assert_within(a.output, expected)
    if a.values["wants_bags"]:
        _check_bags(a, bags)


def check_max(a: Arrays) -> None:
    output, arg, bags = definitions.embedding_bag_max(a.weight, a.indices, a.offsets, a.values["padding_idx"])
    assert_same_bits(a.output, output)
    assert_same_bits(a.arg, arg.astype(a.arg.dtype))
    _check_bags(a, bags)


def check_backward(a: Arrays) -> None:
    mean, weighted, frequency = a.extents("mean", "has_per_sample_weights", "scale_grad_by_freq")
    expected = definitions.embedding_bag_backward(
        a.grad_output,
        a.indices,
        a.bag_ids,
        *a.extents("num_embeddings", "padding_idx"),
        a.bag_sizes[0] if mean else None,
        a.per_sample_weights[0] if weighted else None,
        bool(frequency),
    )
    assert_within(a.grad_weight, expected)


def check_max_backward(a: Arrays) -> None:
    sizes = a.extents("num_embeddings", "padding_idx")
    expected = definitions.embedding_bag_max_backward(a.grad_output, a.indices, a.bag_ids, a.arg, *sizes)
    assert_within(a.grad_weight, expected)


def check_weights_backward(a: Arrays) -> None:
    expected = definitions.embedding_bag_weights_backward(
        a.grad_output, a.weight, a.indices, a.bag_ids, a.values["padding_idx"]
    )
    assert_within(a.grad_weights, expected)


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes and dtypes."""
    for name, call in calls.items():
        floats = call.arrays["input"].astype(np.float32)
        yield Refusal(name, {"input": floats}, TypeError, "input has dtype float32; wanted int32")
    weights = calls["embedding_bag_weighted"].arrays["per_sample_weights"]
    for name in ("embedding_bag_weighted", "embedding_bag_weighted_backward"):
        yield Refusal(name, {"per_sample_weights": weights[1:]}, ValueError, r"per_sample_weights has shape \(6,\)")
        wide = weights.astype(np.float64)
        yield Refusal(name, {"per_sample_weights": wide}, TypeError, "per_sample_weights has dtype float64; wanted")
    yield Refusal("embedding_bag", {"offsets": _OFFSETS.astype(np.float64)}, TypeError, "offsets has dtype float64")
    yield Refusal("embedding_bag", {"per_sample_weights": weights}, ValueError, "per_sample_weights: mode is 'mean'")
    yield Refusal("embedding_bag_last_offset", {"offsets": _OFFSETS[:0]}, ValueError, "wanted the last offset")
    yield Refusal("embedding_bag_backward", {"bag_sizes": _SIZES[1:]}, ValueError, r"bag_sizes has shape \(2,\)")
    yield Refusal("embedding_bag_max_backward", {"arg": _IDS}, ValueError, "arg has shape")
    for name in ("embedding_bag_backward", "embedding_bag_weights_backward"):
        yield Refusal(name, {"bag_ids": _IDS[1:]}, ValueError, r"bag_ids has shape \(6,\); wanted \(7,\)")
    narrow = numbers((5, 3))
    yield Refusal("embedding_bag_weights_backward", {"weight": narrow}, ValueError, r"wanted \(5, 4\)")
    wide = numbers((5, 4), np.float64)
    yield Refusal("embedding_bag_weights_backward", {"weight": wide}, TypeError, "weight has dtype float64; wanted")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.EmbeddingBagDescriptor
# Offsets beside it have 64 bits, and all of them one dtype.
_INPUT = Integers("input", (np.uint32, np.uint64), (np.int64,))

RECORD = Record(
    families=("embedding_bag",),
    baselines={name: _baseline(name) for name in NAMES},
    checks={
        "embedding_bag": check,
        "embedding_bag_max": check_max,
        "embedding_bag_backward": check_backward,
        "embedding_bag_max_backward": check_max_backward,
        "embedding_bag_weights_backward": check_weights_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "embedding_bag": ("input weight offsets mode per_sample_weights include_last_offset padding_idx return_bags"),
        "embedding_bag_backward": (
            "grad_output input bag_ids num_embeddings mode bag_sizes arg per_sample_weights padding_idx "
            "scale_grad_by_freq"
        ),
        "embedding_bag_weights_backward": "grad_output weight input bag_ids padding_idx",
    },
    calls=calls,
    plans=plans,
    floats_only={
        "embedding_bag": ("weight",),
        "embedding_bag_backward": ("grad_output",),
        "embedding_bag_weights_backward": ("grad_output",),
    },
    bad_arrays=bad_arrays,
    bad_options=(
        ("embedding_bag", "mode", "median", ValueError, "mode is 'median'; wanted one of sum, mean, max"),
        ("embedding_bag", "padding_idx", 5, ValueError, "padding_idx is 5; wanted a row of 5"),
        ("embedding_bag", "padding_idx", 0.5, TypeError, "padding_idx: wanted an int"),
        ("embedding_bag", "return_bags", "yes", TypeError, "return_bags: wanted a bool"),
        ("embedding_bag", "include_last_offset", "yes", TypeError, "include_last_offset: wanted a bool"),
        ("embedding_bag_backward", "num_embeddings", -1, ValueError, "num_embeddings is -1"),
        ("embedding_bag_max_backward", "scale_grad_by_freq", True, ValueError, "scale_grad_by_freq: mode is 'max'"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, 1, 1, 1), TypeError, "num_indices: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1, 1, 1), INVALID, "num_bags is -1; wanted"),
        (DESCRIPTOR(1, 1, 1, 1, mean=2), INVALID, "mean is 2; wanted"),
        (DESCRIPTOR(2**31, 1, 1, 1), INVALID, "num_indices is 2147483648; wanted"),
        (DESCRIPTOR(1, 1, 1, 1, element="s8"), pybaracuda.UnsupportedError, "no variant i64idx_s8"),
    ),
    integers={name: _INPUT for name in ("embedding_bag", "embedding_bag_backward", "embedding_bag_weights_backward")},
    not_in_jax=frozenset(NAMES),
)
