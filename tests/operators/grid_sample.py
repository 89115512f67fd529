# SPDX-License-Identifier: Apache-2.0
"""The record of grid_sample_2d and its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import grid_sample as definitions

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

BASELINE = Baseline(
    values={"n": 2, "c": 3, "input_h": 4, "input_w": 5, "output_h": 3, "output_w": 2},
    empties=zero("n", "c", "input_h", "input_w", "output_h", "output_w"),
    overflows=(
        {"n": INT32_MAX, "c": INT32_MAX, "input_h": INT32_MAX},
        {"n": INT32_MAX, "output_h": INT32_MAX, "output_w": INT32_MAX},
        {"n": 2**16, "c": 2**16, "input_h": 2**16, "input_w": 2**16},
        {"n": 2**21, "output_h": 2**21, "output_w": 2**21},  # with 2 coordinates 2^64 elements
    ),
    larger={"input_h": 9, "input_w": 33, "output_h": 17, "output_w": 40},
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    return {
        "n": size_between(rng, 1, 1000),
        "c": size_between(rng, 1, 4096),
        "input_h": size_between(rng, 1, 5000),
        "input_w": size_between(rng, 1, 5000),
        "output_h": size_between(rng, 1, 5000),
        "output_w": size_between(rng, 1, 5000),
    }


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's two; every problem here has so few samples an image that 32 bits count them."""
    if not symbol.operator.name.endswith("_backward"):
        return 0, 0
    wide = compute_bytes(symbol) == 8
    samples, h, w = values["output_h"] * values["output_w"], values["input_h"], values["input_w"]
    if backend == "cuda":
        tiles = values["n"] * ceil_div(h, 8) * ceil_div(w, 32)
        most = values["n"] * (64 if wide else 48) * samples + 15 * 256 * tiles + KIB
        return 1, most if tiles * ceil_div(values["c"], 64) <= INT32_MAX else 2 * most
    per_sample, pixels = 120 if wide else 104, 128 * ceil_div(h, 8) * ceil_div(w, 16)
    return 1, per_sample * max(samples, 65536) + 5 * max(pixels, 65536) + 128 * KIB


def calls(dtype: Any) -> dict[str, Call]:
    """Samples in and around two images."""
    image = numbers((2, 3, 6, 7), dtype)
    grid = np.tanh(numbers((2, 4, 5, 2), coordinates_of(dtype)) / 8)
    gradient = numbers((2, 3, 4, 5), dtype)
    return {
        "grid_sample": Call(pybaracuda.grid_sample, {"input": image, "grid": grid}, {}),
        "grid_sample_backward": Call(
            pybaracuda.grid_sample_backward, {"grad_output": gradient, "input": image, "grid": grid}, {}, 2
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    names = ("n", "c", "ih", "iw", "oh", "ow", "element")
    coordinates = "f64" if element == "f64" else "f32"
    return {
        "grid_sample_2d": PlanCase(
            pybaracuda.GridSamplePlan,
            pybaracuda.GridSampleDescriptor(2, 3, 6, 7, 4, 5, element),
            "grid_sample",
            ("input", "grid"),
            ("output",),
            names,
            coordinates,
        ),
        "grid_sample_2d_backward": PlanCase(
            pybaracuda.GridSampleBackwardPlan,
            pybaracuda.GridSampleBackwardDescriptor(2, 3, 6, 7, 4, 5, element),
            "grid_sample_backward",
            ("grad_output", "input", "grid"),
            ("grad_input", "grad_grid"),
            names,
            coordinates,
        ),
    }


def check_forward(a: Arrays) -> None:
    assert_within(a.output, definitions.grid_sample_2d(a.input, a.grid, coordinate_dtype=a.grid.dtype))


def check_backward(a: Arrays) -> None:
    expected = definitions.grid_sample_2d_backward(a.grad_output, a.input, a.grid, coordinate_dtype=a.grid.dtype)
    assert_within(a.grad_input, expected[0])
    # The sum of g * v * w over taps: with an infinite g it is an infinity where g is taken out of the sum, and a NaN
    # where it is not. No rule of ours says which, so an element that is not finite has to be not finite, and no more.
    value = expected[1].value
    got = a.grad_grid.astype(np.float64)
    value = np.where(np.isfinite(value) | np.isfinite(got), value, got)
    assert_within(a.grad_grid, expected[1]._replace(value=value))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays in float64 that would be narrowed silently, and a grid of fewer images."""
    grid = calls["grid_sample"].arrays["grid"]
    text = "grid has dtype float64; wanted float32"
    yield Refusal("grid_sample", {"grid": grid.astype(np.float64)}, TypeError, text)
    gradient = calls["grid_sample_backward"].arrays["grad_output"].astype(np.float64)
    text = "grad_output has dtype float64; wanted float32, the dtype"
    yield Refusal("grid_sample_backward", {"grad_output": gradient}, TypeError, text)
    yield Refusal("grid_sample", {"grid": grid[:1]}, ValueError, "grid has shape .*input has 2 images")


UNSUPPORTED = pybaracuda.UnsupportedError

RECORD = Record(
    families=("grid_sample",),
    baselines={"grid_sample_2d": BASELINE, "grid_sample_2d_backward": BASELINE},
    checks={"grid_sample_2d": check_forward, "grid_sample_2d_backward": check_backward},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "grid_sample": "input grid mode padding_mode align_corners",
        "grid_sample_backward": "grad_output input grid mode padding_mode align_corners",
    },
    calls=calls,
    plans=plans,
    floats_only={"grid_sample": ("input", "grid"), "grid_sample_backward": ("grad_output", "input", "grid")},
    bad_arrays=bad_arrays,
    bad_options=(
        ("grid_sample", "mode", "nearest", UNSUPPORTED, "mode 'nearest'"),
        ("grid_sample", "mode", "bicubic", UNSUPPORTED, "mode 'bicubic'"),
        ("grid_sample", "mode", "cubic", ValueError, "mode is 'cubic'"),
        ("grid_sample", "padding_mode", "border", UNSUPPORTED, "padding_mode 'border'"),
        ("grid_sample", "padding_mode", "reflection", UNSUPPORTED, "padding_mode 'reflection'"),
        ("grid_sample", "padding_mode", 3, ValueError, "padding_mode is 3"),
        ("grid_sample", "align_corners", True, UNSUPPORTED, "align_corners True"),
        ("grid_sample_backward", "mode", "nearest", UNSUPPORTED, "mode 'nearest'"),
    ),
    narrow={"grid_sample": Narrow("grid"), "grid_sample_backward": Narrow("grid", narrows=True)},
)
