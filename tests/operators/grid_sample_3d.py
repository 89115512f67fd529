# SPDX-License-Identifier: Apache-2.0
"""The record of grid_sample_3d and its gradients, which the array functions of grid_sample run for volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import grid_sample_3d as definitions

from .grid_sample import images_of
from .record import (
    INT32_MAX,
    KIB,
    Arrays,
    Baseline,
    Call,
    Narrow,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    ceil_div,
    compute_bytes,
    coordinates_of,
    numbers,
    size_between,
    zero,
)

INPUT, OUTPUT = ("input_d", "input_h", "input_w"), ("output_d", "output_h", "output_w")
RULE = {"mode": 0, "padding_mode": 0, "align_corners": 0, "gradients": 0, "shares_input": 0}
BASELINE = Baseline(
    values={
        **{"n": 2, "c": 3, "input_d": 2, "input_h": 4, "input_w": 5, "output_d": 2, "output_h": 3, "output_w": 2},
        **RULE,
    },
    empties=zero("n", "c", *INPUT, *OUTPUT),
    overflows=(
        {"n": INT32_MAX, "c": INT32_MAX, "input_h": INT32_MAX},
        dict.fromkeys(INPUT, INT32_MAX),
        dict.fromkeys(OUTPUT, INT32_MAX),
        {"n": 2**16, "c": 2**16, "input_d": 2**11, "input_h": 2**11, "input_w": 2**10},
        {"n": 2**21, "output_d": 2**10, "output_h": 2**16, "output_w": 2**16},  # with 3 coordinates beyond 2^64 bytes
    ),
    faults={
        "nothing-at-the-border": ({"input_h": 0, "padding_mode": 1}, "input_h"),
        "nothing-to-reflect": ({"input_d": 0, "padding_mode": 2}, "input_d"),
    },
    larger={"input_d": 5, "input_h": 9, "input_w": 17, "output_d": 6, "output_h": 7, "output_w": 20},
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    sizes: Values = {"n": size_between(rng, 1, 100), "c": size_between(rng, 1, 1024)}
    sizes |= {name: size_between(rng, 1, 300) for name in (*INPUT, *OUTPUT)}
    return sizes | {name: int(rng.integers(most)) for name, most in zip(RULE, (2, 3, 2, 3, 2), strict=True)}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's two; every problem here has so few samples a volume that 32 bits count their taps."""
    if not symbol.operator.name.endswith("_backward") or values["gradients"] == 2:
        return 0, 0
    wide = compute_bytes(symbol) == 8
    d, h, w = (values[name] for name in INPUT)
    samples = values["output_d"] * values["output_h"] * values["output_w"]
    if backend == "cuda":
        voxels = values["n"] * ceil_div(d, 4) * ceil_div(h, 8) * ceil_div(w, 8) * 256
        chunks = ceil_div(values["c"], 64) if values["c"] > 64 and values["gradients"] == 0 else 0
        most = values["n"] * samples * (68 + (24 if wide else 12) * chunks) + voxels + KIB
        if values["mode"] == 1:
            by_voxels = values["n"] * (13 * samples + 8 * d * h * w) + 128 * max(values["n"] * samples, 65536) + KIB
            # More than 31 bits count take the tiles.
            return 1, max(most, by_voxels) if max(values["n"] * samples, voxels) > INT32_MAX else by_voxels
        return 1, most
    return 1, (208 if wide else 152) * samples + 4 * d * h * w + KIB


# What the calls of every test are made with.
REFLECTED: dict[str, Any] = {"mode": "bilinear", "padding_mode": "reflection", "align_corners": True}


def calls(dtype: Any) -> dict[str, Call]:
    """Samples in and around two volumes."""
    arrays = {"input": numbers((2, 3, 4, 6, 7), dtype)}
    arrays["grid"] = np.tanh(numbers((2, 2, 4, 5, 3), coordinates_of(dtype)) / 8)
    gradient = {"grad_output": numbers((2, 3, 2, 4, 5), dtype)}
    return {
        "grid_sample_3d": Call(pybaracuda.grid_sample, arrays, {}),
        "grid_sample_3d_backward": Call(pybaracuda.grid_sample_backward, {**gradient, **arrays}, {}, 2),
        "grid_sample_3d_reflected": Call(pybaracuda.grid_sample, arrays, {**REFLECTED}),
        "grid_sample_3d_reflected_backward": Call(
            pybaracuda.grid_sample_backward, {**gradient, **arrays}, {**REFLECTED}, 2
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem, with options."""
    sizes = (2, 3, 4, 6, 7, 2, 4, 5, element)
    names = ("n", "c", "id", "ih", "iw", "od", "oh", "ow", "element", *REFLECTED)
    coordinates = "f64" if element == "f64" else "f32"
    return {
        "grid_sample_3d": PlanCase(
            pybaracuda.GridSample3dPlan,
            pybaracuda.GridSample3dDescriptor(*sizes, **REFLECTED),
            "grid_sample_3d_reflected",
            ("input", "grid"),
            ("output",),
            names,
            coordinates,
        ),
        "grid_sample_3d_backward": PlanCase(
            pybaracuda.GridSample3dBackwardPlan,
            pybaracuda.GridSample3dBackwardDescriptor(*sizes, **REFLECTED),
            "grid_sample_3d_reflected_backward",
            ("grad_output", "input", "grid"),
            ("grad_input", "grad_grid"),
            (*names, "gradients"),
            coordinates,
        ),
    }


def rule_of(a: Arrays) -> dict[str, Any]:
    """The options of a case as the definition takes them."""
    return {
        "mode": ("bilinear", "nearest")[a.values["mode"]],
        "padding_mode": ("zeros", "border", "reflection")[a.values["padding_mode"]],
        "align_corners": bool(a.values["align_corners"]),
        "coordinate_dtype": a.grid.dtype,
    }


def check_forward(a: Arrays) -> None:
    assert_within(a.output, definitions.grid_sample_3d(images_of(a), a.grid, **rule_of(a)))


def check_backward(a: Arrays) -> None:
    expected = definitions.grid_sample_3d_backward(a.grad_output, images_of(a), a.grid, **rule_of(a))
    gradients = a.values["gradients"]
    if gradients != 2:
        assert_within(a.grad_input, expected[0])
    if gradients == 1:
        return
    # The sum of g * v * w over taps: with an infinite g it is an infinity where g is taken out of the sum, and a NaN
    # where it is not. No rule of ours says which, so an element that is not finite has to be not finite, and no more.
    value = expected[1].value
    got = a.grad_grid.astype(np.float64)
    value = np.where(np.isfinite(value) | np.isfinite(got), value, got)
    assert_within(a.grad_grid, expected[1]._replace(value=value))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """A grid of images, one of fewer volumes, and a gradient of other samples."""
    grid = calls["grid_sample_3d"].arrays["grid"]
    text = "grid has shape .*wanted .N, D, H, W, 3."
    yield Refusal("grid_sample_3d", {"grid": grid[..., :2].copy()}, ValueError, text)
    yield Refusal("grid_sample_3d", {"grid": grid[:, 0].copy()}, ValueError, text)
    yield Refusal("grid_sample_3d", {"grid": grid[:1]}, ValueError, "grid has shape .*input has 2 images")
    gradient = calls["grid_sample_3d_backward"].arrays["grad_output"]
    yield Refusal("grid_sample_3d_backward", {"grad_output": gradient[:, :, 0]}, ValueError, "grad_output has shape")


UNSUPPORTED = pybaracuda.UnsupportedError

RECORD = Record(
    families=("grid_sample_3d",),
    baselines={"grid_sample_3d": BASELINE, "grid_sample_3d_backward": BASELINE},
    checks={"grid_sample_3d": check_forward, "grid_sample_3d_backward": check_backward},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "grid_sample": "input grid mode padding_mode align_corners",
        "grid_sample_backward": "grad_output input grid mode padding_mode align_corners output_mask",
    },
    calls=calls,
    plans=plans,
    floats_only={
        **{name: ("input", "grid") for name in ("grid_sample_3d", "grid_sample_3d_reflected")},
        **{
            name: ("grad_output", "input", "grid")
            for name in ("grid_sample_3d_backward", "grid_sample_3d_reflected_backward")
        },
    },
    bad_arrays=bad_arrays,
    bad_options=(
        ("grid_sample_3d", "mode", "bicubic", UNSUPPORTED, "mode 'bicubic'"),
        ("grid_sample_3d", "padding_mode", "wrap", ValueError, "padding_mode is 'wrap'"),
        ("grid_sample_3d_backward", "output_mask", (False, False), ValueError, "wanted at least one gradient"),
    ),
    bad_descriptors=(
        (
            lambda: pybaracuda.GridSample3dDescriptor(1, 1, 2, 2, 2, 1, 1, 1, mode="cubic"),
            ValueError,
            "mode is 'cubic'",
        ),
        (
            lambda: pybaracuda.GridSample3dBackwardDescriptor(1, 1, 2, 2, 2, 1, 1, 1, gradients="none"),
            ValueError,
            "gradients is 'none'",
        ),
    ),
    bad_problems=(
        (
            pybaracuda.GridSample3dDescriptor(1, 1, 0, 2, 2, 1, 1, 1, padding_mode="border"),
            pybaracuda.InvalidProblemError,
            "wanted a voxel that can be at the border",
        ),
    ),
    narrow={
        "grid_sample_3d": Narrow("grid"),
        "grid_sample_3d_backward": Narrow("grid", narrows=True),
        "grid_sample_3d_reflected": Narrow("grid"),
        "grid_sample_3d_reflected_backward": Narrow("grid", narrows=True),
    },
    not_in_jax=frozenset({"grid_sample_3d", "grid_sample_3d_backward"}),
)
