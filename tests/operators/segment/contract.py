# SPDX-License-Identifier: Apache-2.0
"""Segments' baseline problems and the bound on their workspace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pybaracuda._check.abi_calls import Symbol, Value, Values

from ..record import INT32_MAX, KIB, MIB, NOTHING, Baseline, Empty, ceil_div, size_between

SIZES: Values = {"num_inputs": 7, "embedding_dim": 3, "num_segments": 4}
# f16 and bf16 hold the largest extents: (2^31 - 1)^2 elements of 2 bytes.
OVERFLOWS: tuple[Values, ...] = (
    {"num_inputs": INT32_MAX - 256, "embedding_dim": INT32_MAX},
    {"num_segments": INT32_MAX, "embedding_dim": INT32_MAX},
)


def baseline(
    fill: float,
    csr: bool = False,
    arg: bool = False,
    least: int | None = None,
    options: Mapping[str, Value] = NOTHING,
) -> Baseline:
    """`fill` is what a segment without rows is."""
    rows = "num_rows" if csr else "num_inputs"

    def named(values: Values) -> Values:
        return {rows if name == "num_inputs" else name: value for name, value in values.items()}

    empties = tuple(
        Empty(f"{name}-0", {name: 0}, fill, {"arg": -1.0} if arg else {})
        for name in (rows, "embedding_dim", "num_segments")
    )
    larger: Values = {"num_inputs": 700, "embedding_dim": 9, "num_segments": 5}
    return Baseline(
        {**named(SIZES), **options},
        empties,
        tuple(named(values) for values in OVERFLOWS),
        larger=named(larger),
        least_workspace=least,
    )


# What a segment without rows is; gradients of no segments are 0.
FILLS = {
    "sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0, "logsumexp": -math.inf, "softmax": 0.0,
    "max_with_arg": -math.inf, "min_with_arg": math.inf,
}  # fmt: skip
GRADIENTS = (*FILLS, "max_even", "min_even")
EMPTY_VALUE = 3

BASELINES = {
    **{
        f"{prefix}_{name}": baseline(
            FILLS.get(name, 0.0),
            prefix == "segment_csr",
            name.endswith("arg"),
            # 4 segments of 4 bytes
            16 if name.startswith("mean") and prefix != "segment_csr" else None,
        )
        for prefix in ("unsorted_segment", "segment", "segment_csr")
        for name in (*FILLS, *(f"{gradient}_backward" for gradient in GRADIENTS))
    },
    "segment_gather": baseline(fill=0.0),
    # Of the most arrays: a maximum and its rows.
    "segment_ex": baseline(
        EMPTY_VALUE, csr=True, arg=True, options={"reduce": 6, "form": 0, "empty_value": EMPTY_VALUE}
    ),
}

# Gradients of which a row's needs no other row; that of logsumexp where its output was not rounded to 16 bits.
OF_ONE_ROW = ("_sum_backward", "_max_with_arg_backward", "_min_with_arg_backward")


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    return {
        symbol.scalars[0].name: size_between(rng, 1, INT32_MAX - 256),
        "embedding_dim": size_between(rng, 1, 4096),
        "num_segments": size_between(rng, 1, INT32_MAX),
        "form": int(rng.integers(3)),
        "reduce": int(rng.choice([0, 2, 3, 4, 6, 7])),
        "empty_value": 0,
    }


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: an order of the rows, and partial results of segments that are cut."""
    operator, rows = symbol.operator, values[symbol.scalars[0].name]
    is_narrow = symbol.variant.types["T"] in ("f16", "bf16")
    if operator.name.endswith("_logsumexp_backward") and not is_narrow:
        return 0, 0
    if operator.name.endswith(OF_ONE_ROW) or operator.name in ("segment_gather", "segment_csr_mean_backward"):
        return 0, 0
    if operator.name.endswith("_mean_backward"):
        return 0, 4 * values["num_segments"] + 15
    in_any_order = operator.family == "segment" and not (operator.name == "segment_ex" and values["form"] != 0)
    most = (18 * rows + 64 * KIB if in_any_order else 8 * rows + 128) + 4 * values["num_segments"]
    element = symbol.variant.types["T"]
    part = (16 if element in ("f64", "i64") else 8) * values["embedding_dim"]
    if rows > 256:
        most += 2 * ceil_div(rows, 256) * part
    selects = "_max" in operator.name or "_min" in operator.name or operator.name == "segment_ex"
    if rows > 32 and (selects or element in ("i32", "i64")):
        most += min(2 * ceil_div(rows, 32) * part, 16 * MIB + 16 * rows)
    return 0, most
