# SPDX-License-Identifier: Apache-2.0
"""The record of average pooling, by fixed and by adaptive windows, and of its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import avg_pool as definitions

from .record import (
    INT32_MAX,
    KIB,
    Arrays,
    Baseline,
    Call,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    numbers,
    size_between,
    zero,
)

_AXES = ("d", "h", "w")
_EXTENTS: Values = {"n": 2, "c": 3, "d": 4, "h": 5, "w": 6, "output_d": 2, "output_h": 3, "output_w": 3}
_WINDOWS: Values = {
    "kernel_d": 3, "kernel_h": 2, "kernel_w": 3, "stride_d": 2, "stride_h": 2, "stride_w": 2, "padding_d": 1,
    "padding_h": 1, "padding_w": 1, "count_include_pad": 1, "divisor_override": 0,
}  # fmt: skip
_FAULTS: dict[str, tuple[Values, str]] = {
    "windows-behind-d": ({"output_d": 4}, "output_d"),
    "windows-behind-h": ({"output_h": 4}, "output_h"),
    "windows-behind-w": ({"output_w": 5}, "output_w"),
    "wide-padding": ({"padding_w": 2}, "padding_w"),
    "wide-input": ({"w": INT32_MAX}, "w"),
    "kernel-of-2^31": ({"kernel_d": 2**11, "kernel_h": 2**10, "kernel_w": 2**10}, "kernel_d"),
    "kernel-past-int64": ({"kernel_d": INT32_MAX, "kernel_h": INT32_MAX, "kernel_w": INT32_MAX}, "kernel_w"),
}
_OVERFLOWS: tuple[Values, ...] = (
    {"n": INT32_MAX, "c": INT32_MAX, "d": 2**10},
    {"n": 2**21, "c": 2**21, "d": 2**10, "h": 2**12},  # 2^64 elements and more: a wrapped product may be small
    {"n": INT32_MAX, "c": INT32_MAX},
)


def _baseline(windows: Values, backward: bool) -> Baseline:
    adaptive = not windows
    # An empty axis may have any windows; a full one without windows leaves a gradient of zeros.
    names = ("n", "c", *_AXES, *(f"output_{axis}" for axis in _AXES))
    larger: Values = {"h": 35, "w": 70, "c": 9, "output_h": 17, "output_w": 35}
    return Baseline(
        values={**_EXTENTS, **windows},
        empties=zero(*names),
        overflows=(*_OVERFLOWS, {"n": 2**20, "c": 2**20, "output_d": 2**20, "output_h": 2**20}) if adaptive
        else _OVERFLOWS,
        faults={} if adaptive else _FAULTS,
        larger=larger,
    )  # fmt: skip


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    values: Values = {"n": size_between(rng, 1, 64), "c": size_between(rng, 1, 1024)}
    for axis in _AXES:
        extent = size_between(rng, 1, 300)
        values |= {axis: extent, f"output_{axis}": size_between(rng, 1, extent)}
        if not symbol.operator.name.startswith("adaptive"):
            values |= {f"kernel_{axis}": size_between(rng, 1, 40), f"stride_{axis}": 1, f"padding_{axis}": 0}
    if not symbol.operator.name.startswith("adaptive"):
        values |= {"count_include_pad": 1, "divisor_override": 0}
    return values


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: rows of sums on the CPU."""
    return (1, 132 * KIB) if backend == "cpu" else (0, 0)


_CALL: dict[str, Any] = {"kernel_size": (3, 2), "stride": 2, "padding": 1, "count_include_pad": False}
_SHAPE = (2, 3, 6, 7)


def calls(dtype: Any) -> dict[str, Call]:
    """Two images with three channels, by fixed and by adaptive windows."""
    image, gradient = numbers(_SHAPE, dtype), numbers((2, 3, 3, 4), dtype)
    return {
        "avg_pool": Call(pybaracuda.avg_pool, {"input": image}, _CALL),
        "avg_pool_backward": Call(
            pybaracuda.avg_pool_backward, {"grad_output": gradient}, {"input_shape": _SHAPE, **_CALL}
        ),
        "adaptive_avg_pool": Call(pybaracuda.adaptive_avg_pool, {"input": image}, {"output_size": (3, 4)}),
        "adaptive_avg_pool_backward": Call(
            pybaracuda.adaptive_avg_pool_backward, {"grad_output": gradient}, {"input_shape": _SHAPE}
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    extents = (2, 3, 1, 6, 7, 1, 3, 4)
    windows = (1, 3, 2, 1, 2, 2, 0, 1, 1, 0, 0)
    names = tuple(_EXTENTS)
    fixed, adaptive = (*names, *_WINDOWS, "element"), (*names, "element")
    forward, backward = (("input",), ("output",)), (("grad_output",), ("grad_input",))
    p = pybaracuda
    return {
        "avg_pool": PlanCase(
            p.AvgPoolPlan, p.AvgPoolDescriptor(*extents, *windows, element), "avg_pool", *forward, fixed
        ),
        "avg_pool_backward": PlanCase(
            p.AvgPoolBackwardPlan, p.AvgPoolBackwardDescriptor(*extents, *windows, element), "avg_pool_backward",
            *backward, fixed,
        ),
        "adaptive_avg_pool": PlanCase(
            p.AdaptiveAvgPoolPlan, p.AdaptiveAvgPoolDescriptor(*extents, element), "adaptive_avg_pool", *forward,
            adaptive,
        ),
        "adaptive_avg_pool_backward": PlanCase(
            p.AdaptiveAvgPoolBackwardPlan, p.AdaptiveAvgPoolBackwardDescriptor(*extents, element),
            "adaptive_avg_pool_backward", *backward, adaptive,
        ),
    }  # fmt: skip


def fixed_axes(values: Mapping[str, Any]) -> definitions.Axes:
    """The windows of a C problem."""
    found = [
        definitions.fixed_windows(
            values[axis], values[f"output_{axis}"], values[f"kernel_{axis}"], values[f"stride_{axis}"],
            values[f"padding_{axis}"], bool(values["count_include_pad"]),
        )
        for axis in _AXES
    ]  # fmt: skip
    return found[0], found[1], found[2]


def adaptive_axes(values: Mapping[str, Any]) -> definitions.Axes:
    """The windows of an adaptive C problem."""
    found = [definitions.adaptive_windows(values[axis], values[f"output_{axis}"]) for axis in _AXES]
    return found[0], found[1], found[2]


def check_fixed(a: Arrays) -> None:
    assert_within(a.output, definitions.avg_pool(a.input, fixed_axes(a.values), a.values["divisor_override"]))


def check_fixed_backward(a: Arrays) -> None:
    shape = a.extents("n", "c", *_AXES)
    axes, divisor = fixed_axes(a.values), a.values["divisor_override"]
    assert_within(a.grad_input, definitions.avg_pool_backward(a.grad_output, shape, axes, divisor))


def check_adaptive(a: Arrays) -> None:
    assert_within(a.output, definitions.avg_pool(a.input, adaptive_axes(a.values)))


def check_adaptive_backward(a: Arrays) -> None:
    shape = a.extents("n", "c", *_AXES)
    assert_within(a.grad_input, definitions.avg_pool_backward(a.grad_output, shape, adaptive_axes(a.values)))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes."""
    yield Refusal("avg_pool", {"input": numbers((6, 7))}, ValueError, r"input has shape \(6, 7\); wanted channels")
    yield Refusal("avg_pool_backward", {"grad_output": numbers((2, 3, 3, 3))}, ValueError, "grad_output has shape")
    yield Refusal("adaptive_avg_pool", {"input": numbers((6, 7))}, ValueError, "input has shape")
    wrong = numbers((2, 4, 3, 4))
    yield Refusal("adaptive_avg_pool_backward", {"grad_output": wrong}, ValueError, "grad_output has shape")
    yield Refusal("adaptive_avg_pool_backward", {"grad_output": wrong[0]}, ValueError, "grad_output has shape")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.AvgPoolDescriptor
_FLAT = (1, 1, 1, 1, 4, 1, 1, 2, 1, 1, 2, 1, 1, 2)

RECORD = Record(
    families=("avg_pool",),
    baselines={
        "avg_pool": _baseline(_WINDOWS, False),
        "avg_pool_backward": _baseline(_WINDOWS, True),
        "adaptive_avg_pool": _baseline({}, False),
        "adaptive_avg_pool_backward": _baseline({}, True),
    },
    checks={
        "avg_pool": check_fixed,
        "avg_pool_backward": check_fixed_backward,
        "adaptive_avg_pool": check_adaptive,
        "adaptive_avg_pool_backward": check_adaptive_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "avg_pool": "input kernel_size stride padding ceil_mode count_include_pad divisor_override axes",
        "avg_pool_backward": (
            "grad_output input_shape kernel_size stride padding ceil_mode count_include_pad divisor_override axes"
        ),
        "adaptive_avg_pool": "input output_size axes",
        "adaptive_avg_pool_backward": "grad_output input_shape axes",
    },
    calls=calls,
    plans=plans,
    floats_only={
        "avg_pool": ("input",),
        "avg_pool_backward": ("grad_output",),
        "adaptive_avg_pool": ("input",),
        "adaptive_avg_pool_backward": ("grad_output",),
    },
    bad_arrays=bad_arrays,
    # Any axes may stand before the channels.
    any_rank={"avg_pool": ("input",), "adaptive_avg_pool": ("input",)},
    bad_options=(
        ("avg_pool", "kernel_size", (1, 2, 3, 4), ValueError, "kernel_size has 4 entries"),
        ("avg_pool", "kernel_size", 0, INVALID, "kernel_size is (0, 0)"),
        ("avg_pool", "kernel_size", "2", TypeError, "kernel_size: wanted an int"),
        ("avg_pool", "kernel_size", (2, None), TypeError, "kernel_size: wanted an int, got None"),
        ("avg_pool", "stride", 0, INVALID, "stride is"),
        ("avg_pool", "stride", (1, 2, 3), ValueError, "stride has 3 entries"),
        ("avg_pool", "padding", -1, INVALID, "padding is"),
        ("avg_pool", "padding", 2, INVALID, "padding_h is 2; wanted at most half"),
        ("avg_pool", "ceil_mode", "yes", TypeError, "ceil_mode: wanted a bool"),
        ("avg_pool", "count_include_pad", "yes", TypeError, "count_include_pad: wanted a bool"),
        ("avg_pool", "divisor_override", 0, ValueError, "divisor_override is 0"),
        ("avg_pool", "divisor_override", 1.5, TypeError, "divisor_override: wanted an int"),
        ("avg_pool", "axes", 4, ValueError, "axes is 4; wanted 1, 2 or 3"),
        ("avg_pool_backward", "input_shape", (2, 3, 6), ValueError, "grad_output has shape"),
        ("avg_pool_backward", "input_shape", (6, 7), ValueError, "input_shape has shape"),
        ("adaptive_avg_pool", "output_size", (1, 2, 3, 4), ValueError, "output_size has 4 entries"),
        ("adaptive_avg_pool", "output_size", -1, INVALID, "output_h is -1"),
        ("adaptive_avg_pool_backward", "input_shape", (2, 3), ValueError, "wanted 3 to 5 axes"),
        ("adaptive_avg_pool_backward", "input_shape", (2, 3, -6, 7), INVALID, "h is -6"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, *_FLAT[1:]), TypeError, "n: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1, *_FLAT[2:]), INVALID, "c is -1; wanted"),
        (DESCRIPTOR(*_FLAT, padding_w=2), INVALID, "padding_w is 2; wanted at most half of what a window spans, 1"),
        (DESCRIPTOR(*_FLAT, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    not_in_jax=frozenset({"avg_pool", "avg_pool_backward", "adaptive_avg_pool", "adaptive_avg_pool_backward"}),
)
