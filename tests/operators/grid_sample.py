# SPDX-License-Identifier: Apache-2.0
"""The record of grid_sample_2d, grid_sample_2d_ex and their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import grid_sample as definitions
from verify.dtypes import Array

from .record import (
    INT32_MAX,
    KIB,
    MIB,
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
EX_BASELINE = Baseline(
    values={**BASELINE.values, "mode": 0, "padding_mode": 0, "align_corners": 0, "gradients": 0, "shares_input": 0},
    empties=BASELINE.empties,
    overflows=BASELINE.overflows,
    faults={
        "nothing-at-the-border": ({"input_h": 0, "padding_mode": 1}, "input_h"),
        "nothing-to-reflect": ({"input_w": 0, "padding_mode": 2}, "input_w"),
    },
    larger=BASELINE.larger,
)


OPTIONS = ("mode", "padding_mode", "align_corners", "gradients", "shares_input")


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    sizes: Values = {
        "n": size_between(rng, 1, 1000),
        "c": size_between(rng, 1, 4096),
        "input_h": size_between(rng, 1, 5000),
        "input_w": size_between(rng, 1, 5000),
        "output_h": size_between(rng, 1, 5000),
        "output_w": size_between(rng, 1, 5000),
    }
    if symbol.options is not None:
        sizes |= {name: int(rng.integers(most)) for name, most in zip(OPTIONS, (3, 3, 2, 3, 2), strict=True)}
    return sizes


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's two; every problem here has so few samples an image that 32 bits count them."""
    is_cubic = values.get("mode") == 2
    has_none = values.get("gradients") == 2 and not (is_cubic and backend == "cuda")
    if not symbol.operator.name.endswith("_backward") or has_none:
        return 0, 0
    wide = compute_bytes(symbol) == 8
    samples, h, w = values["output_h"] * values["output_w"], values["input_h"], values["input_w"]
    if is_cubic:
        if backend == "cuda":
            every = values["n"] * samples
            most = 33 * every + (512 if wide else 256) * max(every, 65536)
            return 0, most + 64 * values["n"] * ceil_div(h, 8) * ceil_div(w, 8) + KIB
        return 0, (368 if wide else 264) * samples + 4 * h * w + KIB
    if backend == "cuda":
        tiles = values["n"] * ceil_div(h, 8) * ceil_div(w, 32)
        gradient = next(tensor for tensor in symbol.tensors if tensor.name == "grad_output")
        laid = 16 * ceil_div(values["c"] * symbol.element_bytes(gradient), 16) * values["n"] * samples
        staged = 49 * 256 * tiles + (laid if laid <= 512 * MIB else 0)
        crowded = values["n"] * (64 if wide else 48) * samples + 5 * 256 * tiles
        most = max(staged, crowded) + KIB
        return 1, most if 2 * tiles * ceil_div(values["c"], 64) <= INT32_MAX else 2 * most
    per_sample, pixels = 120 if wide else 104, 128 * ceil_div(h, 8) * ceil_div(w, 16)
    return 1, per_sample * max(samples, 65536) + 5 * max(pixels, 65536) + 128 * KIB


# What the operators with options are called with.
REFLECTED: dict[str, Any] = {"mode": "bilinear", "padding_mode": "reflection", "align_corners": True}


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
        "grid_sample_ex": Call(pybaracuda.grid_sample, {"input": image, "grid": grid}, {**REFLECTED}),
        "grid_sample_ex_backward": Call(
            pybaracuda.grid_sample_backward,
            {"grad_output": gradient, "input": image, "grid": grid},
            {**REFLECTED},
            2,
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
        "grid_sample_2d_ex": PlanCase(
            pybaracuda.GridSamplePlan,
            pybaracuda.GridSampleDescriptor(2, 3, 6, 7, 4, 5, element, **REFLECTED),
            "grid_sample_ex",
            ("input", "grid"),
            ("output",),
            (*names, *REFLECTED),
            coordinates,
        ),
        "grid_sample_2d_ex_backward": PlanCase(
            pybaracuda.GridSampleBackwardPlan,
            pybaracuda.GridSampleBackwardDescriptor(2, 3, 6, 7, 4, 5, element, **REFLECTED),
            "grid_sample_ex_backward",
            ("grad_output", "input", "grid"),
            ("grad_input", "grad_grid"),
            (*names, *REFLECTED, "gradients"),
            coordinates,
        ),
    }


def rule_of(a: Arrays) -> dict[str, Any]:
    """The options of a case as the definition takes them; a case without any is bilinear, zeros outside."""
    return {
        "mode": ("bilinear", "nearest", "bicubic")[a.values.get("mode", 0)],
        "padding_mode": ("zeros", "border", "reflection")[a.values.get("padding_mode", 0)],
        "align_corners": bool(a.values.get("align_corners", 0)),
        "coordinate_dtype": a.grid.dtype,
    }


def images_of(a: Arrays) -> Array:
    """The input with an image or volume for each entry of the batch, also where it has one for all of them."""
    return np.broadcast_to(a.input, (a.values["n"], *a.input.shape[1:]))


def check_forward(a: Arrays) -> None:
    assert_within(a.output, definitions.grid_sample_2d(images_of(a), a.grid, **rule_of(a)))


def check_backward(a: Arrays) -> None:
    expected = definitions.grid_sample_2d_backward(a.grad_output, images_of(a), a.grid, **rule_of(a))
    gradients = a.values.get("gradients", 0)
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
    baselines={
        "grid_sample_2d": BASELINE,
        "grid_sample_2d_backward": BASELINE,
        "grid_sample_2d_ex": EX_BASELINE,
        "grid_sample_2d_ex_backward": EX_BASELINE,
    },
    checks={
        "grid_sample_2d": check_forward,
        "grid_sample_2d_backward": check_backward,
        "grid_sample_2d_ex": check_forward,
        "grid_sample_2d_ex_backward": check_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "grid_sample": "input grid mode padding_mode align_corners",
        "grid_sample_backward": "grad_output input grid mode padding_mode align_corners output_mask",
    },
    calls=calls,
    plans=plans,
    floats_only={
        **{name: ("input", "grid") for name in ("grid_sample", "grid_sample_ex")},
        **{name: ("grad_output", "input", "grid") for name in ("grid_sample_backward", "grid_sample_ex_backward")},
    },
    bad_arrays=bad_arrays,
    bad_options=(
        ("grid_sample", "mode", "cubic", ValueError, "mode is 'cubic'"),
        ("grid_sample", "padding_mode", "wrap", ValueError, "padding_mode is 'wrap'"),
        ("grid_sample", "padding_mode", 3, ValueError, "padding_mode is 3"),
        ("grid_sample", "align_corners", 2, TypeError, "align_corners: wanted a bool"),
        ("grid_sample_backward", "mode", "cubic", ValueError, "mode is 'cubic'"),
        ("grid_sample_backward", "output_mask", (False, False), ValueError, "wanted at least one gradient"),
        ("grid_sample_backward", "output_mask", True, TypeError, "output_mask: wanted a pair of bool"),
    ),
    bad_descriptors=(
        (lambda: pybaracuda.GridSampleDescriptor(1, 1, 2, 2, 1, 1, mode="cubic"), ValueError, "mode is 'cubic'"),
        (
            lambda: pybaracuda.GridSampleBackwardDescriptor(1, 1, 2, 2, 1, 1, gradients="none"),
            ValueError,
            "gradients is 'none'",
        ),
    ),
    bad_problems=(
        (
            pybaracuda.GridSampleDescriptor(1, 1, 0, 2, 1, 1, padding_mode="border"),
            pybaracuda.InvalidProblemError,
            "wanted a pixel that can be at the border",
        ),
    ),
    narrow={
        "grid_sample": Narrow("grid"),
        "grid_sample_backward": Narrow("grid", narrows=True),
        "grid_sample_ex": Narrow("grid"),
        "grid_sample_ex_backward": Narrow("grid", narrows=True),
    },
    # map_coordinates has neither border nor nearest pixels as PyTorch has them.
    not_in_jax=frozenset({"grid_sample_2d_ex", "grid_sample_2d_ex_backward"}),
)
