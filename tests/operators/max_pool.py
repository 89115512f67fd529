# SPDX-License-Identifier: Apache-2.0
"""The record of maximum pooling, by fixed and by adaptive windows, and of its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import max_pool as definitions

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
)

_AXES = ("d", "h", "w")
_EXTENTS: Values = {"n": 2, "c": 3, "d": 4, "h": 5, "w": 6, "output_d": 2, "output_h": 3, "output_w": 3}
_WINDOWS: Values = {
    "kernel_d": 3, "kernel_h": 2, "kernel_w": 3, "stride_d": 2, "stride_h": 2, "stride_w": 2, "padding_d": 1,
    "padding_h": 1, "padding_w": 1, "dilation_d": 1, "dilation_h": 1, "dilation_w": 1,
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


_MANY_WINDOWS: Values = {"n": 2**20, "c": 2**20, "output_d": 2**20, "output_h": 2**20}


def _baseline(windows: Values, backward: bool) -> Baseline:
    names = ("n", "c", *_AXES, *(f"output_{axis}" for axis in _AXES))
    larger: Values = {"h": 35, "w": 70, "c": 9, "output_h": 17, "output_w": 35}
    # What a window without elements has; a gradient is then all zeros.
    fill, fills = (0.0, {}) if backward else (float("-inf"), {"indices": -1.0})
    return Baseline(
        values={**_EXTENTS, **windows},
        empties=tuple(Empty(f"{name}-0", {name: 0}, fill, fills) for name in names),
        overflows=_OVERFLOWS if windows else (*_OVERFLOWS, _MANY_WINDOWS),
        faults=_FAULTS if windows else {},
        larger=larger,
    )


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    values: Values = {"n": size_between(rng, 1, 64), "c": size_between(rng, 1, 1024)}
    for axis in _AXES:
        extent = size_between(rng, 1, 300)
        values |= {axis: extent, f"output_{axis}": size_between(rng, 1, extent)}
        if not symbol.operator.name.startswith("adaptive"):
            values |= {f"kernel_{axis}": size_between(rng, 1, 40), f"stride_{axis}": 1, f"padding_{axis}": 0}
            values[f"dilation_{axis}"] = 1
    return values


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: rows of maxima, or an f32 copy of the gradient, on the CPU."""
    if backend == "cuda":
        return 0, 0
    if not symbol.operator.name.endswith("_backward"):
        return 1, 36 * KIB
    if symbol.variant.token not in ("f16", "bf16"):
        return 0, 0
    gradient = 4 * values["n"] * values["c"] * values["d"] * values["h"] * values["w"]
    return gradient, gradient + 16


_CALL: dict[str, Any] = {"kernel_size": (3, 2), "stride": 2, "padding": 1, "dilation": (1, 2)}
_SHAPE = (2, 3, 6, 7)


def calls(dtype: Any) -> dict[str, Call]:
    """Two images with three channels, by fixed and by adaptive windows."""
    image, gradient = numbers(_SHAPE, dtype), numbers((2, 3, 3, 4), dtype)
    # Elements of a plane of 42, and one outside on either side.
    indices = (np.arange(72) * 5 % 44 - 1).astype(np.int64).reshape(2, 3, 3, 4)
    gradients = {"grad_output": gradient, "indices": indices}
    return {
        "max_pool": Call(pybaracuda.max_pool, {"input": image}, _CALL),
        "max_pool_with_indices": Call(
            pybaracuda.max_pool, {"input": image}, {**_CALL, "return_indices": True}, outputs=2
        ),
        "adaptive_max_pool_with_indices": Call(
            pybaracuda.adaptive_max_pool, {"input": image}, {"output_size": (3, 4), "return_indices": True}, outputs=2
        ),
        "max_pool_backward": Call(pybaracuda.max_pool_backward, gradients, {"input_shape": _SHAPE, **_CALL}),
        "adaptive_max_pool": Call(pybaracuda.adaptive_max_pool, {"input": image}, {"output_size": (3, 4)}),
        "adaptive_max_pool_backward": Call(pybaracuda.adaptive_max_pool_backward, gradients, {"input_shape": _SHAPE}),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    extents = (2, 3, 1, 6, 7, 1, 3, 4)
    windows = (1, 3, 2, 1, 2, 2, 0, 1, 1, 1, 1, 2)
    names = tuple(_EXTENTS)
    fixed, adaptive = (*names, *_WINDOWS, "element"), (*names, "element")
    forward, backward = (("input",), ("output", "indices")), (("grad_output", "indices"), ("grad_input",))
    p = pybaracuda
    return {
        "max_pool": PlanCase(
            p.MaxPoolPlan, p.MaxPoolDescriptor(*extents, *windows, element), "max_pool_with_indices", *forward, fixed,
            "i64",
        ),
        "max_pool_backward": PlanCase(
            p.MaxPoolBackwardPlan, p.MaxPoolBackwardDescriptor(*extents, *windows, element), "max_pool_backward",
            *backward, fixed, "i64",
        ),
        "adaptive_max_pool": PlanCase(
            p.AdaptiveMaxPoolPlan, p.AdaptiveMaxPoolDescriptor(*extents, element), "adaptive_max_pool_with_indices",
            *forward, adaptive, "i64",
        ),
        "adaptive_max_pool_backward": PlanCase(
            p.AdaptiveMaxPoolBackwardPlan, p.AdaptiveMaxPoolBackwardDescriptor(*extents, element),
            "adaptive_max_pool_backward", *backward, adaptive, "i64",
        ),
    }  # fmt: skip


def fixed_axes(
    values: Mapping[str, Any], of_axis: Callable[..., list[range]] = definitions.fixed_windows
) -> definitions.Axes:
    """The windows of a C problem, or their spans."""
    found = [
        of_axis(
            values[axis], values[f"output_{axis}"], values[f"kernel_{axis}"], values[f"stride_{axis}"],
            values[f"padding_{axis}"], values[f"dilation_{axis}"],
        )
        for axis in _AXES
    ]  # fmt: skip
    return found[0], found[1], found[2]


def adaptive_axes(values: Mapping[str, Any]) -> definitions.Axes:
    """The windows of an adaptive C problem."""
    found = [definitions.adaptive_windows(values[axis], values[f"output_{axis}"]) for axis in _AXES]
    return found[0], found[1], found[2]


def check_fixed(a: Arrays) -> None:
    output, indices = definitions.max_pool(a.input, fixed_axes(a.values))
    assert_same_bits(a.indices, indices)
    assert_same_bits(a.output, output)


def check_fixed_backward(a: Arrays) -> None:
    shape, spans = a.extents("n", "c", *_AXES), fixed_axes(a.values, definitions.fixed_spans)
    assert_within(a.grad_input, definitions.max_pool_backward(a.grad_output, a.indices, shape, spans))


def check_adaptive(a: Arrays) -> None:
    output, indices = definitions.max_pool(a.input, adaptive_axes(a.values))
    assert_same_bits(a.indices, indices)
    assert_same_bits(a.output, output)


def check_adaptive_backward(a: Arrays) -> None:
    shape, axes = a.extents("n", "c", *_AXES), adaptive_axes(a.values)
    assert_within(a.grad_input, definitions.max_pool_backward(a.grad_output, a.indices, shape, axes))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes."""
    yield Refusal("max_pool", {"input": numbers((6, 7))}, ValueError, r"input has shape \(6, 7\); wanted channels")
    yield Refusal("max_pool_backward", {"grad_output": numbers((2, 3, 3, 3))}, ValueError, "grad_output has shape")
    yield Refusal("adaptive_max_pool", {"input": numbers((6, 7))}, ValueError, "input has shape")
    wrong = numbers((2, 4, 3, 4))
    yield Refusal("adaptive_max_pool_backward", {"grad_output": wrong}, ValueError, "grad_output has shape")
    for name in ("max_pool_backward", "adaptive_max_pool_backward"):
        indices = calls[name].arrays["indices"]
        yield Refusal(name, {"indices": indices[:1]}, ValueError, "indices has shape")
        yield Refusal(name, {"indices": indices.astype(np.int32)}, TypeError, "indices has dtype int32; wanted int64")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.MaxPoolDescriptor
_FLAT = (1, 1, 1, 1, 4, 1, 1, 2, 1, 1, 2, 1, 1, 2)

RECORD = Record(
    families=("max_pool",),
    baselines={
        "max_pool": _baseline(_WINDOWS, False),
        "max_pool_backward": _baseline(_WINDOWS, True),
        "adaptive_max_pool": _baseline({}, False),
        "adaptive_max_pool_backward": _baseline({}, True),
    },
    checks={
        "max_pool": check_fixed,
        "max_pool_backward": check_fixed_backward,
        "adaptive_max_pool": check_adaptive,
        "adaptive_max_pool_backward": check_adaptive_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "max_pool": "input kernel_size stride padding dilation ceil_mode return_indices axes",
        "max_pool_backward": "grad_output indices input_shape kernel_size stride padding dilation ceil_mode axes",
        "adaptive_max_pool": "input output_size return_indices axes",
        "adaptive_max_pool_backward": "grad_output indices input_shape axes",
    },
    calls=calls,
    plans=plans,
    floats_only={
        "max_pool": ("input",),
        "max_pool_backward": ("grad_output",),
        "adaptive_max_pool": ("input",),
        "adaptive_max_pool_backward": ("grad_output",),
    },
    bad_arrays=bad_arrays,
    # Any axes may stand before the channels.
    any_rank={
        name: ("input",)
        for name in ("max_pool", "max_pool_with_indices", "adaptive_max_pool", "adaptive_max_pool_with_indices")
    },
    bad_options=(
        ("max_pool", "kernel_size", (1, 2, 3, 4), ValueError, "kernel_size has 4 entries"),
        ("max_pool", "kernel_size", 0, INVALID, "kernel_size is (0, 0)"),
        ("max_pool", "kernel_size", "2", TypeError, "kernel_size: wanted an int"),
        ("max_pool", "kernel_size", (2, None), TypeError, "kernel_size: wanted an int, got None"),
        ("max_pool", "stride", 0, INVALID, "stride is"),
        ("max_pool", "stride", (1, 2, 3), ValueError, "stride has 3 entries"),
        ("max_pool", "padding", -1, INVALID, "padding is"),
        ("max_pool", "padding", 2, INVALID, "padding_h is 2; wanted at most half"),
        ("max_pool", "ceil_mode", "yes", TypeError, "ceil_mode: wanted a bool"),
        ("max_pool", "dilation", 0, INVALID, "dilation is"),
        ("max_pool", "return_indices", "yes", TypeError, "return_indices: wanted a bool"),
        ("max_pool", "axes", 4, ValueError, "axes is 4; wanted 1, 2 or 3"),
        ("max_pool_backward", "input_shape", (2, 3, 6), ValueError, "grad_output has shape"),
        ("max_pool_backward", "input_shape", (6, 7), ValueError, "input_shape has shape"),
        ("adaptive_max_pool", "output_size", (1, 2, 3, 4), ValueError, "output_size has 4 entries"),
        ("adaptive_max_pool", "output_size", -1, INVALID, "output_h is -1"),
        ("adaptive_max_pool_backward", "input_shape", (2, 3), ValueError, "wanted 3 to 5 axes"),
        ("adaptive_max_pool_backward", "input_shape", (2, 3, -6, 7), INVALID, "h is -6"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, *_FLAT[1:]), TypeError, "n: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1, *_FLAT[2:]), INVALID, "c is -1; wanted"),
        (DESCRIPTOR(*_FLAT, padding_w=2), INVALID, "padding_w is 2; wanted at most half of what a window spans, 1"),
        (DESCRIPTOR(*_FLAT, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    not_in_jax=frozenset({"max_pool", "max_pool_backward", "adaptive_max_pool", "adaptive_max_pool_backward"}),
)
