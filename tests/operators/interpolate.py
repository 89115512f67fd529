# SPDX-License-Identifier: Apache-2.0
"""The record of interpolation and of its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import interpolate as definitions
from verify.dtypes import bits

from .record import (
    INT32_MAX,
    KIB,
    Arrays,
    Baseline,
    Call,
    Empty,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    numbers,
    size_between,
    zero,
)

_IMAGE: Values = {"n": 2, "c": 3, "input_h": 4, "input_w": 5, "output_h": 7, "output_w": 6}
_VOLUME: Values = {**_IMAGE, "input_d": 2, "output_d": 3}
_OVERFLOWS: tuple[Values, ...] = (
    {"n": INT32_MAX, "c": INT32_MAX, "input_h": INT32_MAX},
    {"n": 2**21, "c": 2**21, "output_h": 2**21, "output_w": 2},  # 2^64 elements: a wrapped product is 0
    {"n": INT32_MAX, "c": INT32_MAX, "output_w": INT32_MAX},
)
_NAMES = (
    "interpolate_bilinear_2d", "interpolate_bilinear_2d_backward", "upsample_nearest_2d_fw", "upsample_nearest_2d_bw",
    "interpolate_ex", "interpolate_ex_backward",
)  # fmt: skip


def _baseline(values: Values, faults: Mapping[str, tuple[Values, str]]) -> Baseline:
    axes = [name.removeprefix("input_") for name in values if name.startswith("input_")]
    nothing = {
        f"nothing-to-interpolate-{axis}": ({f"input_{axis}": 0}, f"input_{axis}") for axis in axes
    }  # fmt: skip
    return Baseline(
        values=values,
        empties=(
            *zero("n", "c", *(f"output_{axis}" for axis in axes)),
            *(Empty(f"{axis}-0-both", {f"input_{axis}": 0, f"output_{axis}": 0}) for axis in axes),
        ),
        overflows=_OVERFLOWS,
        faults={**nothing, **faults},
        larger={"c": 3, "input_h": 40, "input_w": 70, "output_h": 45, "output_w": 300},
    )


_BILINEAR = _baseline({**_IMAGE, "align_corners": 0, "scale_h_factor": 0.0, "scale_w_factor": 0.0}, {})
_EX = _baseline(
    {**_VOLUME, "mode": 2, "align_corners": 0, "scale_d": 0.0, "scale_h": 0.0, "scale_w": 0.0},
    {
        "corners-of-nearest": ({"mode": 0, "align_corners": 1}, "options->align_corners"),
        "depth-of-cubic": ({"mode": 3, "input_d": 2, "output_d": 1}, "input_d"),
        "new-depth-of-cubic": ({"mode": 3, "input_d": 1, "output_d": 3}, "output_d"),
        "depth-of-antialias": ({"mode": 4, "input_d": 2, "output_d": 1}, "input_d"),
        "corners-of-nearest-exact": ({"mode": 1, "align_corners": 1}, "options->align_corners"),
    },
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    names = [scalar.name for scalar in symbol.scalars if scalar.name.startswith(("input", "output"))]
    values: Values = {"n": size_between(rng, 1, 64), "c": size_between(rng, 1, 4096)}
    values |= {name: size_between(rng, 1, 3000) for name in names}
    options: Values = {"mode": int(rng.integers(0, len(definitions.MODES))), "align_corners": 0}
    if options["mode"] >= 3 and "input_d" in values:
        values |= {"input_d": 1, "output_d": 1}
    options |= {scalar.name: 0.0 for scalar in symbol.scalars if scalar.name.startswith("scale")}
    return {**values, **{scalar.name: options[scalar.name] for scalar in symbol.scalars if scalar.name in options}}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: the calling thread's arrays on the CPU, nothing on CUDA; the antialiased modes' tables besides."""
    arrays = (1, 160 * KIB) if backend == "cpu" else (0, 0)
    if values.get("mode", 0) < 4:
        return arrays
    wide = 8 if symbol.name.endswith("f64") else 4
    radius, least, most = values["mode"] - 3, arrays[0] + 1, arrays[1] + 8 * 64
    for axis in "hw":
        input, output = values[f"input_{axis}"], values[f"output_{axis}"]
        # A filter has 2 ceil(support) + 1 pixels, an input pixel as many filters and some more; each its ends, too, and
        # an output pixel its total.
        pixels = 2 * radius * max(input, output) + (8 + 2 * radius) * (input + output)
        most += pixels * wide + 8 * (input + output)
    return least, most


def calls(dtype: Any) -> dict[str, Call]:
    """Two images, signals and volumes, in every mode."""
    image, signal, volume = (2, 3, 4, 5), (2, 3, 7), (1, 2, 3, 4, 5)
    forward, backward = pybaracuda.interpolate, pybaracuda.interpolate_backward
    bilinear: dict[str, Any] = {"mode": "bilinear", "align_corners": True}
    linear: dict[str, Any] = {"mode": "linear", "scale_factor": 1.5}
    return {
        "interpolate": Call(forward, {"input": numbers(image, dtype)}, {"size": (7, 6), **bilinear}),
        "interpolate_backward": Call(
            backward, {"grad_output": numbers((2, 3, 7, 6), dtype)}, {"input_shape": image, **bilinear}
        ),
        "interpolate_nearest": Call(forward, {"input": numbers(image, dtype)}, {"size": (7, 6)}),
        "interpolate_nearest_backward": Call(
            backward, {"grad_output": numbers((2, 3, 7, 6), dtype)}, {"input_shape": image}
        ),
        "interpolate_cubic": Call(forward, {"input": numbers(image, dtype)}, {"size": (7, 6), "mode": "bicubic"}),
        "interpolate_cubic_backward": Call(
            backward, {"grad_output": numbers((2, 3, 7, 6), dtype)}, {"input_shape": image, "mode": "bicubic"}
        ),
        "interpolate_antialias": Call(
            forward, {"input": numbers(image, dtype)}, {"size": (3, 6), "mode": "bicubic", "antialias": True}
        ),
        "interpolate_antialias_backward": Call(
            backward, {"grad_output": numbers((2, 3, 3, 6), dtype)},
            {"input_shape": image, "mode": "bicubic", "antialias": True},
        ),
        "interpolate_area": Call(forward, {"input": numbers(volume, dtype)}, {"size": (2, 4, 7), "mode": "area"}),
        "interpolate_area_backward": Call(
            backward, {"grad_output": numbers((1, 2, 2, 4, 7), dtype)}, {"input_shape": volume, "mode": "area"}
        ),
        "interpolate_signal": Call(forward, {"input": numbers(signal, dtype)}, linear),
        "interpolate_signal_backward": Call(
            backward, {"grad_output": numbers((2, 3, 10), dtype)}, {"input_shape": signal, **linear}
        ),
        "interpolate_volume": Call(
            forward, {"input": numbers(volume, dtype)}, {"size": (5, 4, 9), "mode": "nearest-exact"}
        ),
        "interpolate_volume_backward": Call(
            backward, {"grad_output": numbers((1, 2, 5, 4, 9), dtype)},
            {"input_shape": volume, "mode": "nearest-exact"},
        ),
    }  # fmt: skip


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    forward, backward = pybaracuda.InterpolateDescriptor, pybaracuda.InterpolateBackwardDescriptor
    fields = ("n", "c", "input_size", "output_size", "mode", "align_corners", "element")

    def both(function: str, names: tuple[str, str], *problem: Any, **options: Any) -> dict[str, PlanCase]:
        return {
            names[0]: PlanCase(
                pybaracuda.InterpolatePlan, forward(*problem, **options, element=element), function,
                ("input",), ("output",), fields,
            ),
            names[1]: PlanCase(
                pybaracuda.InterpolateBackwardPlan, backward(*problem, **options, element=element),
                f"{function}_backward", ("grad_output",), ("grad_input",), fields,
            ),
        }  # fmt: skip

    return {
        **both("interpolate", (_NAMES[0], _NAMES[1]), 2, 3, (4, 5), (7, 6), "linear", True),
        **both("interpolate_cubic", (_NAMES[4], _NAMES[5]), 2, 3, (4, 5), (7, 6), "cubic"),
        **both("interpolate_antialias", (_NAMES[4], _NAMES[5]), 2, 3, (4, 5), (3, 6), "cubic-antialias"),
        **both("interpolate_nearest", (_NAMES[2], _NAMES[3]), 2, 3, (4, 5), (7, 6)),
        **both("interpolate_signal", (_NAMES[4], _NAMES[5]), 2, 3, (7,), (10,), "linear", scale_w=1.5),
    }


def _options(symbol_values: Mapping[str, Any], mode: str | None, rank: int) -> dict[str, Any]:
    """What the definition takes beside arrays and sizes."""
    names = {
        2: ("scale_h_factor", "scale_w_factor"),
        3: ("scale_d", "scale_h", "scale_w"),
    }[rank]
    return {
        "mode": definitions.MODES[symbol_values["mode"]] if mode is None else mode,
        "scales": [symbol_values.get(name, 0.0) for name in names],
    }


def check_forward(a: Arrays, mode: str | None = None) -> None:
    rank = a.input.ndim - 2
    options = _options(a.values, mode, rank)
    size = a.output.shape[2:]
    if options["mode"] not in ("nearest", "nearest-exact"):
        aligned = bool(a.values["align_corners"])
        assert_within(a.output, definitions.interpolate(a.input, size, align_corners=aligned, **options))
    else:
        assert_same_bits(bits(a.output), definitions.interpolate_moves(bits(a.input), size, **options))


def check_backward(a: Arrays, mode: str | None = None) -> None:
    size = a.grad_input.shape[2:]
    options = _options(a.values, mode, len(size))
    aligned = bool(a.values.get("align_corners", 0))
    expected = definitions.interpolate_backward(a.grad_output, size, align_corners=aligned, **options)
    assert_within(a.grad_input, expected)


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes."""
    flat = numbers((2, 3))
    yield Refusal("interpolate", {"input": flat}, ValueError, r"input has shape \(2, 3\); wanted \[N, C, W\]")
    yield Refusal("interpolate", {"input": numbers((2, 3, 4))}, ValueError, r"wanted \[N, C, H, W\] for mode 'bilin")
    yield Refusal("interpolate_backward", {"grad_output": flat}, ValueError, r"grad_output has shape \(2, 3\)")
    other = numbers((2, 4, 7, 6))
    yield Refusal("interpolate_backward", {"grad_output": other}, ValueError, r"grad_output has shape \(2, 4, 7, 6\)")


INVALID, UNSUPPORTED = pybaracuda.InvalidProblemError, pybaracuda.UnsupportedError
DESCRIPTOR = pybaracuda.InterpolateDescriptor

RECORD = Record(
    families=("interpolate",),
    baselines={
        "interpolate_bilinear_2d": _BILINEAR,
        "interpolate_bilinear_2d_backward": _BILINEAR,
        "upsample_nearest_2d_fw": _baseline(_IMAGE, {}),
        "upsample_nearest_2d_bw": _baseline(_IMAGE, {}),
        "interpolate_ex": _EX,
        "interpolate_ex_backward": _EX,
    },
    checks={
        "interpolate_bilinear_2d": lambda a: check_forward(a, "linear"),
        "interpolate_bilinear_2d_backward": lambda a: check_backward(a, "linear"),
        "upsample_nearest_2d_fw": lambda a: check_forward(a, "nearest"),
        "upsample_nearest_2d_bw": lambda a: check_backward(a, "nearest"),
        "interpolate_ex": check_forward,
        "interpolate_ex_backward": check_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "interpolate": "input size scale_factor mode align_corners recompute_scale_factor antialias",
        "interpolate_backward": "grad_output input_shape scale_factor mode align_corners antialias",
    },
    calls=calls,
    plans=plans,
    floats_only={"interpolate": ("input",), "interpolate_backward": ("grad_output",)},
    bad_arrays=bad_arrays,
    any_rank={"interpolate_nearest": ("input",)},
    bad_options=(
        ("interpolate", "size", (1, 2, 3), ValueError, "size has 3 entries; the array has 2 axes"),
        ("interpolate", "size", (1, -2), INVALID, "output_w is -2"),
        ("interpolate", "size", 1.5, TypeError, "size: wanted an int"),
        ("interpolate", "size", None, ValueError, "size and scale_factor: wanted one of them"),
        ("interpolate", "scale_factor", 2, ValueError, "size and scale_factor: wanted one of them"),
        (
            "interpolate",
            "mode",
            "linear",
            ValueError,
            "input has shape (2, 3, 4, 5); wanted [N, C, W] for mode 'linear'",
        ),
        ("interpolate", "mode", "cubic", ValueError, "mode is 'cubic'; wanted one of 'nearest'"),
        (
            "interpolate_signal",
            "mode",
            "bicubic",
            ValueError,
            "input has shape (2, 3, 7); wanted [N, C, H, W] for mode 'bicubic'",
        ),
        ("interpolate", "mode", "area", ValueError, "align_corners is True in mode 'area'; wanted None"),
        (
            "interpolate_nearest",
            "antialias",
            True,
            ValueError,
            "antialias is True in mode 'nearest'; wanted 'bilinear'",
        ),
        ("interpolate_signal", "antialias", True, ValueError, "antialias is True in mode 'linear'; wanted 'bilinear'"),
        ("interpolate_area", "antialias", True, ValueError, "antialias is True in mode 'area'; wanted 'bilinear'"),
        ("interpolate_area", "align_corners", False, ValueError, "align_corners is False in mode 'area'; wanted None"),
        ("interpolate_area", "size", (2, -4, 7), INVALID, "output_h is -4"),
        ("interpolate_area_backward", "input_shape", (1, 2, 3, 4, 6, 2), ValueError, "wanted 6 axes"),
        ("interpolate", "antialias", "yes", TypeError, "antialias: wanted a bool"),
        ("interpolate", "align_corners", "yes", TypeError, "align_corners: wanted a bool"),
        ("interpolate", "recompute_scale_factor", True, ValueError, "recompute_scale_factor: there is no"),
        ("interpolate_nearest", "align_corners", True, ValueError, "align_corners is True in mode 'nearest'"),
        ("interpolate_signal", "scale_factor", "2", TypeError, "scale_factor: wanted a number"),
        ("interpolate_signal", "scale_factor", (1.5, 2.0), ValueError, "scale_factor has 2 entries"),
        ("interpolate_signal", "scale_factor", -1.5, INVALID, "scale_factor is -1.5; wanted finite numbers above 0"),
        ("interpolate_signal", "scale_factor", float("nan"), INVALID, "scale_factor is nan"),
        ("interpolate_signal", "scale_factor", 1e300, INVALID, "scale_factor is 1e+300; wanted extents of at most"),
        (
            "interpolate_backward",
            "input_shape",
            (2, 3, 4),
            ValueError,
            "grad_output has shape (2, 3, 7, 6); wanted 3 axes",
        ),
        ("interpolate_backward", "input_shape", (2, 3, 0, 5), INVALID, "input_h is 0; wanted a pixel"),
        ("interpolate_backward", "input_shape", (2, 3, -4, 5), INVALID, "input_h is -4"),
    ),
    bad_descriptors=(
        (lambda: DESCRIPTOR(1.0, 1, (1,), (1,)), TypeError, "n: wanted int"),
        (lambda: DESCRIPTOR(1, 1, (1, 1), (1,)), INVALID, "output_size has 1 entries; wanted 2"),
        (lambda: DESCRIPTOR(1, 1, (), ()), INVALID, "input_size has 0 entries; wanted 1 to 3"),
        (lambda: DESCRIPTOR(1, 1, (1,), (1,), "bilinear"), ValueError, "mode is 'bilinear'"),
        (lambda: DESCRIPTOR(1, 1, (1,), (1,), scale_w="2"), TypeError, "scale_w: wanted float"),
    ),
    bad_problems=(
        (DESCRIPTOR(1, -1, (1, 1), (1, 1)), INVALID, "c is -1; wanted"),
        (DESCRIPTOR(1, 1, (0, 1), (1, 1), "linear"), INVALID, "input_h is 0; wanted a pixel"),
        (DESCRIPTOR(1, 1, (2, 1, 1), (1, 1, 1), "cubic"), INVALID, "input_d is 2 in mode 3; wanted 1"),
        (DESCRIPTOR(1, 1, (1,), (1,), "nearest", True), INVALID, "options->align_corners is 1 in mode 0"),
        (DESCRIPTOR(1, 1, (1, 1), (1, 1), element="s8"), UNSUPPORTED, "no variant s8"),
    ),
    not_in_jax=frozenset(_NAMES),
)
