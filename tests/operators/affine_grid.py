# SPDX-License-Identifier: Apache-2.0
"""The record of affine_grid_2d and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import affine_grid as definitions

from .record import (
    INT32_MAX,
    Arrays,
    Baseline,
    Call,
    Narrow,
    PlanCase,
    Record,
    Scratch,
    ceil_div,
    compute_bytes,
    coordinates_of,
    numbers,
    size_between,
    zero,
)

BASELINE = Baseline(
    values={"n": 2, "output_h": 3, "output_w": 4},
    empties=zero("n", "output_h", "output_w"),
    overflows=(
        {"n": INT32_MAX, "output_h": INT32_MAX, "output_w": INT32_MAX},
        {"n": 2**21, "output_h": 2**21, "output_w": 2**21},
    ),
    larger={"output_h": 33, "output_w": 17},
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    n, h, w = size_between(rng, 1, 1000), size_between(rng, 1, 5000), size_between(rng, 1, 5000)
    return {"n": n, "output_h": h, "output_w": w}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The partial sums, to the byte."""
    if not symbol.operator.name.endswith("_backward"):
        return 0, 0
    partials = 6 * values["n"] * ceil_div(values["output_h"] * values["output_w"], 256) * compute_bytes(symbol)
    exactly = ceil_div(partials, 16) * 16
    return exactly, exactly


def calls(dtype: Any) -> dict[str, Call]:
    """Two maps."""
    wide = coordinates_of(dtype)
    size = {"size": (2, 3, 4, 5)}
    return {
        "affine_grid": Call(pybaracuda.affine_grid, {"theta": numbers((2, 2, 3), wide)}, size),
        "affine_grid_backward": Call(pybaracuda.affine_grid_backward, {"grad_grid": numbers((2, 4, 5, 2), wide)}, size),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    wide = "f64" if element == "f64" else "f32"
    names = ("n", "oh", "ow", "element")
    return {
        "affine_grid_2d": PlanCase(
            pybaracuda.AffineGridPlan,
            pybaracuda.AffineGridDescriptor(2, 4, 5, wide),
            "affine_grid",
            ("theta",),
            ("grid",),
            names,
        ),
        "affine_grid_2d_backward": PlanCase(
            pybaracuda.AffineGridBackwardPlan,
            pybaracuda.AffineGridBackwardDescriptor(2, 4, 5, wide),
            "affine_grid_backward",
            ("grad_grid",),
            ("grad_theta",),
            names,
        ),
    }


def _size(a: Arrays) -> tuple[int, int, int, int]:
    n, height, width = a.extents("n", "output_h", "output_w")
    return n, 1, height, width


def check_forward(a: Arrays) -> None:
    assert_within(a.grid, definitions.affine_grid_2d(a.theta, _size(a), coordinate_dtype=a.theta.dtype))


def check_backward(a: Arrays) -> None:
    expected = definitions.affine_grid_2d_backward(a.grad_grid, _size(a), coordinate_dtype=a.grad_grid.dtype)
    assert_within(a.grad_theta, expected)


RECORD = Record(
    families=("affine_grid",),
    baselines={"affine_grid_2d": BASELINE, "affine_grid_2d_backward": BASELINE},
    checks={"affine_grid_2d": check_forward, "affine_grid_2d_backward": check_backward},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={"affine_grid": "theta size align_corners", "affine_grid_backward": "grad_grid size align_corners"},
    calls=calls,
    plans=plans,
    floats_only={"affine_grid": ("theta",), "affine_grid_backward": ("grad_grid",)},
    bad_options=(
        ("affine_grid", "size", (2, 3, 4, 5, 6), pybaracuda.UnsupportedError, "3-D affine_grid"),
        ("affine_grid", "size", (2, 3, 4), ValueError, "size is"),
        ("affine_grid", "size", (3, 3, 4, 5), ValueError, "theta has shape"),
        ("affine_grid", "size", (2, 3, -4, 5), pybaracuda.InvalidProblemError, "output_h is -4"),
        ("affine_grid", "align_corners", True, pybaracuda.UnsupportedError, "align_corners True"),
        ("affine_grid_backward", "size", (2, 3, 4, 6), ValueError, "grad_grid has shape"),
    ),
    narrow={
        "affine_grid": Narrow("theta", narrows=True, alone=True),
        "affine_grid_backward": Narrow("grad_grid", narrows=True, alone=True),
    },
    not_in_jax=frozenset({"affine_grid_2d", "affine_grid_2d_backward"}),
)
