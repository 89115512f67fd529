# SPDX-License-Identifier: Apache-2.0
"""The record of affine_grid_2d, affine_grid_2d_ex, affine_grid_3d and their gradients."""

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
EX_BASELINE = BASELINE._replace(values={**BASELINE.values, "align_corners": 1})
BASELINE_3D = Baseline(
    values={"n": 2, "output_d": 3, "output_h": 2, "output_w": 4, "align_corners": 1},
    empties=zero("n", "output_d", "output_h", "output_w"),
    overflows=(
        {"n": INT32_MAX, "output_d": INT32_MAX, "output_h": INT32_MAX, "output_w": INT32_MAX},
        {"n": 2**16, "output_d": 2**16, "output_h": 2**16, "output_w": 2**16},
    ),
    larger={"output_d": 5, "output_h": 9, "output_w": 13},
)
BASELINES = {
    **{name: BASELINE for name in ("affine_grid_2d", "affine_grid_2d_backward")},
    **{name: EX_BASELINE for name in ("affine_grid_2d_ex", "affine_grid_2d_ex_backward")},
    **{name: BASELINE_3D for name in ("affine_grid_3d", "affine_grid_3d_backward")},
}


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    n, h, w = size_between(rng, 1, 1000), size_between(rng, 1, 5000), size_between(rng, 1, 5000)
    sizes: Values = {"n": n, "output_h": h, "output_w": w}
    if symbol.operator.name.startswith("affine_grid_3d"):
        sizes["output_d"] = size_between(rng, 1, 500)
    return sizes if symbol.options is None else {**sizes, "align_corners": int(rng.integers(2))}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The partial sums, to the byte."""
    if not symbol.operator.name.endswith("_backward"):
        return 0, 0
    samples = values.get("output_d", 1) * values["output_h"] * values["output_w"]
    partials = (12 if "output_d" in values else 6) * values["n"] * ceil_div(samples, 256) * compute_bytes(symbol)
    exactly = ceil_div(partials, 16) * 16
    return exactly, exactly


def calls(dtype: Any) -> dict[str, Call]:
    """Two maps."""
    wide = coordinates_of(dtype)
    size = {"size": (2, 3, 4, 5)}
    return {
        "affine_grid": Call(pybaracuda.affine_grid, {"theta": numbers((2, 2, 3), wide)}, size),
        "affine_grid_backward": Call(pybaracuda.affine_grid_backward, {"grad_grid": numbers((2, 4, 5, 2), wide)}, size),
        "affine_grid_ex": Call(
            pybaracuda.affine_grid, {"theta": numbers((2, 2, 3), wide)}, {**size, "align_corners": True}
        ),
        "affine_grid_ex_backward": Call(
            pybaracuda.affine_grid_backward,
            {"grad_grid": numbers((2, 4, 5, 2), wide)},
            {**size, "align_corners": True},
        ),
        "affine_grid_3d": Call(pybaracuda.affine_grid, {"theta": numbers((2, 3, 4), wide)}, {"size": (2, 3, 3, 4, 5)}),
        "affine_grid_3d_backward": Call(
            pybaracuda.affine_grid_backward, {"grad_grid": numbers((2, 3, 4, 5, 3), wide)}, {"size": (2, 3, 3, 4, 5)}
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    wide = "f64" if element == "f64" else "f32"
    names = ("n", "oh", "ow", "element")
    names_3d = ("n", "od", "oh", "ow", "element", "align_corners")
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
        "affine_grid_2d_ex": PlanCase(
            pybaracuda.AffineGridPlan,
            pybaracuda.AffineGridDescriptor(2, 4, 5, wide, align_corners=True),
            "affine_grid_ex",
            ("theta",),
            ("grid",),
            (*names, "align_corners"),
        ),
        "affine_grid_2d_ex_backward": PlanCase(
            pybaracuda.AffineGridBackwardPlan,
            pybaracuda.AffineGridBackwardDescriptor(2, 4, 5, wide, align_corners=True),
            "affine_grid_ex_backward",
            ("grad_grid",),
            ("grad_theta",),
            (*names, "align_corners"),
        ),
        "affine_grid_3d": PlanCase(
            pybaracuda.AffineGrid3dPlan,
            pybaracuda.AffineGrid3dDescriptor(2, 3, 4, 5, wide),
            "affine_grid_3d",
            ("theta",),
            ("grid",),
            names_3d,
        ),
        "affine_grid_3d_backward": PlanCase(
            pybaracuda.AffineGrid3dBackwardPlan,
            pybaracuda.AffineGrid3dBackwardDescriptor(2, 3, 4, 5, wide),
            "affine_grid_3d_backward",
            ("grad_grid",),
            ("grad_theta",),
            names_3d,
        ),
    }


def _size(a: Arrays) -> tuple[int, ...]:
    axes = ("output_d", "output_h", "output_w") if "output_d" in a.values else ("output_h", "output_w")
    n, *extents = a.extents("n", *axes)
    return n, 1, *extents


def _is_aligned(a: Arrays) -> bool:
    return bool(a.values.get("align_corners", 0))


def check_forward(a: Arrays) -> None:
    assert_within(a.grid, definitions.affine_grid(a.theta, _size(a), _is_aligned(a), a.theta.dtype))


def check_backward(a: Arrays) -> None:
    expected = definitions.affine_grid_backward(a.grad_grid, _size(a), _is_aligned(a), a.grad_grid.dtype)
    assert_within(a.grad_theta, expected)


RECORD = Record(
    families=("affine_grid",),
    baselines=BASELINES,
    checks={
        "affine_grid_2d": check_forward,
        "affine_grid_2d_backward": check_backward,
        "affine_grid_2d_ex": check_forward,
        "affine_grid_2d_ex_backward": check_backward,
        "affine_grid_3d": check_forward,
        "affine_grid_3d_backward": check_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={"affine_grid": "theta size align_corners", "affine_grid_backward": "grad_grid size align_corners"},
    calls=calls,
    plans=plans,
    floats_only={
        **{name: ("theta",) for name in ("affine_grid", "affine_grid_ex", "affine_grid_3d")},
        **{
            name: ("grad_grid",)
            for name in ("affine_grid_backward", "affine_grid_ex_backward", "affine_grid_3d_backward")
        },
    },
    bad_options=(
        ("affine_grid", "size", (2, 3, 4, 5, 6), ValueError, "theta has shape"),
        ("affine_grid", "size", (2, 3, 4, 5, 6, 7), ValueError, "size is"),
        ("affine_grid_3d", "size", (2, 3, 4, 5), ValueError, "theta has shape"),
        ("affine_grid_3d", "size", (2, 3, -3, 4, 5), pybaracuda.InvalidProblemError, "output_d is -3"),
        ("affine_grid", "size", (2, 3, 4), ValueError, "size is"),
        ("affine_grid", "size", (3, 3, 4, 5), ValueError, "theta has shape"),
        ("affine_grid", "size", (2, 3, -4, 5), pybaracuda.InvalidProblemError, "output_h is -4"),
        ("affine_grid", "align_corners", "yes", TypeError, "align_corners: wanted a bool"),
        ("affine_grid_backward", "size", (2, 3, 4, 6), ValueError, "grad_grid has shape"),
    ),
    narrow={
        "affine_grid": Narrow("theta", narrows=True, alone=True),
        "affine_grid_backward": Narrow("grad_grid", narrows=True, alone=True),
        "affine_grid_ex": Narrow("theta", narrows=True, alone=True),
        "affine_grid_ex_backward": Narrow("grad_grid", narrows=True, alone=True),
        "affine_grid_3d": Narrow("theta", narrows=True, alone=True),
        "affine_grid_3d_backward": Narrow("grad_grid", narrows=True, alone=True),
    },
    not_in_jax=frozenset(BASELINES),
)
