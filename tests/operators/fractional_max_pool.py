# SPDX-License-Identifier: Apache-2.0
"""The record of fractional maximum pooling and of its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import fractional_max_pool as definitions

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
_WINDOWS: Values = {
    "n": 2, "c": 3, "d": 4, "h": 5, "w": 6, "output_d": 2, "output_h": 3, "output_w": 3,
    "kernel_d": 2, "kernel_h": 2, "kernel_w": 3,
}  # fmt: skip
_FAULTS: dict[str, tuple[Values, str]] = {
    "windows-without-room-d": ({"output_d": 4}, "output_d"),
    "windows-without-room-h": ({"output_h": 5}, "output_h"),
    "windows-without-room-w": ({"output_w": 5}, "output_w"),
    "window-larger-than-input": ({"kernel_w": 7, "output_w": 1}, "output_w"),
    "no-input": ({"d": 0}, "output_d"),
    "kernel-of-2^31": (
        {"kernel_d": 2**11, "kernel_h": 2**10, "kernel_w": 2**10, "output_d": 0, "output_h": 0, "output_w": 0},
        "kernel_d",
    ),
    "kernel-past-int64": (
        {**{f"kernel_{axis}": INT32_MAX for axis in _AXES}, **{f"output_{axis}": 0 for axis in _AXES}}, "kernel_w",
    ),
}  # fmt: skip
_OVERFLOWS: tuple[Values, ...] = (
    {"n": INT32_MAX, "c": INT32_MAX, "d": 2**10},
    {"n": 2**21, "c": 2**21, "d": 2**10, "h": 2**12},  # 2^64 elements and more: a wrapped product may be small
    {"n": INT32_MAX, "c": INT32_MAX},
)


def _baseline(more: Values) -> Baseline:
    windows = tuple(f"output_{axis}" for axis in _AXES)
    return Baseline(
        values={**_WINDOWS, **more},
        empties=(
            *(Empty(f"{name}-0", {name: 0}, 0.0) for name in ("n", "c", *windows)),
            Empty("nothing", {axis: 0 for axis in _AXES} | dict.fromkeys(windows, 0), 0.0),
        ),
        overflows=_OVERFLOWS,
        faults=_FAULTS,
        larger={"n": 1, "c": 1, "h": 9, "w": 1300, "output_h": 4, "output_w": 1100},
    )


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    values: Values = {"n": size_between(rng, 1, 64), "c": size_between(rng, 1, 1024)}
    if not symbol.operator.name.endswith("_backward"):
        values["num_samples"] = int(rng.integers(2, 4))
    for axis in _AXES:
        kernel, bins = size_between(rng, 1, 40), size_between(rng, 1, 200)
        values |= {f"kernel_{axis}": kernel, f"output_{axis}": bins}
        values[axis] = kernel + bins - 1 + size_between(rng, 1, 100)
    return values


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: rows of maxima, or an f32 copy of the gradient, on the CPU."""
    if backend == "cuda":
        return 0, 0
    if not symbol.operator.name.endswith("_backward"):
        return 1, 24 * KIB
    if symbol.variant.token not in ("f16", "bf16"):
        return 0, 0
    gradient = 4 * values["n"] * values["c"] * values["d"] * values["h"] * values["w"]
    return gradient, gradient + 16


_SHAPE = (2, 3, 6, 7)
_CALL: dict[str, Any] = {"kernel_size": (3, 2), "output_size": (3, 4)}


def calls(dtype: Any) -> dict[str, Call]:
    """Two images with three channels."""
    samples = (np.arange(12).reshape(2, 3, 2) * 5 % 16 / 16).astype(dtype)
    given = {"input": numbers(_SHAPE, dtype), "random_samples": samples}
    # Elements of a plane of 42, and one outside on either side.
    indices = (np.arange(72) * 5 % 44 - 1).astype(np.int64).reshape(2, 3, 3, 4)
    gradients = {"grad_output": numbers((2, 3, 3, 4), dtype), "indices": indices}
    return {
        "fractional_max_pool": Call(pybaracuda.fractional_max_pool, given, _CALL),
        "fractional_max_pool_with_indices": Call(
            pybaracuda.fractional_max_pool, given, {**_CALL, "return_indices": True}, outputs=2
        ),
        "fractional_max_pool_backward": Call(
            pybaracuda.fractional_max_pool_backward, gradients, {"input_shape": _SHAPE, "kernel_size": (3, 2)}
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    sizes = (2, 3, 1, 6, 7, 1, 3, 4, 1, 3, 2)
    p = pybaracuda
    return {
        "fractional_max_pool": PlanCase(
            p.FractionalMaxPoolPlan, p.FractionalMaxPoolDescriptor(*sizes, 2, element),
            "fractional_max_pool_with_indices", ("input", "random_samples"), ("output", "indices"),
            (*_WINDOWS, "num_samples", "element"), "i64",
        ),
        "fractional_max_pool_backward": PlanCase(
            p.FractionalMaxPoolBackwardPlan, p.FractionalMaxPoolBackwardDescriptor(*sizes, element),
            "fractional_max_pool_backward", ("grad_output", "indices"), ("grad_input",), (*_WINDOWS, "element"), "i64",
        ),
    }  # fmt: skip


def _three(values: Mapping[str, Any], name: str) -> tuple[int, int, int]:
    return values[f"{name}_d"], values[f"{name}_h"], values[f"{name}_w"]


def check(a: Arrays) -> None:
    output, indices = definitions.fractional_max_pool(
        a.input, a.random_samples, _three(a.values, "kernel"), _three(a.values, "output")
    )
    assert_same_bits(a.indices, indices)
    assert_same_bits(a.output, output)


def check_backward(a: Arrays) -> None:
    shape = a.extents("n", "c", *_AXES)
    expected = definitions.fractional_max_pool_backward(a.grad_output, a.indices, shape, _three(a.values, "kernel"))
    assert_within(a.grad_input, expected)


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes and dtypes."""
    name = "fractional_max_pool"
    yield Refusal(name, {"input": numbers((6, 7))}, ValueError, r"input has shape \(6, 7\); wanted channels")
    samples = calls[name].arrays["random_samples"]
    yield Refusal(name, {"random_samples": samples[:1]}, ValueError, "random_samples has shape")
    yield Refusal(name, {"random_samples": samples[..., :1]}, ValueError, "wanted 2 or 3 numbers for each plane")
    other = np.float32 if samples.dtype == np.float64 else np.float64
    yield Refusal(name, {"random_samples": samples.astype(other)}, TypeError, "random_samples has dtype")
    name = "fractional_max_pool_backward"
    yield Refusal(name, {"grad_output": numbers((2, 4, 3, 4))}, ValueError, "grad_output has shape")
    yield Refusal(name, {"grad_output": numbers((3, 3, 4))}, ValueError, "grad_output has shape")
    indices = calls[name].arrays["indices"]
    yield Refusal(name, {"indices": indices[:1]}, ValueError, "indices has shape")
    yield Refusal(name, {"indices": indices.astype(np.int32)}, TypeError, "indices has dtype int32; wanted int64")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.FractionalMaxPoolDescriptor
_FLAT = (1, 1, 1, 1, 4, 1, 1, 2, 1, 1, 2, 2)

RECORD = Record(
    families=("fractional_max_pool",),
    baselines={
        "fractional_max_pool": _baseline({"num_samples": 3}),
        "fractional_max_pool_backward": _baseline({}),
    },
    checks={"fractional_max_pool": check, "fractional_max_pool_backward": check_backward},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "fractional_max_pool": "input kernel_size output_size random_samples return_indices",
        "fractional_max_pool_backward": "grad_output indices input_shape kernel_size axes",
    },
    calls=calls,
    plans=plans,
    floats_only={"fractional_max_pool": ("input",), "fractional_max_pool_backward": ("grad_output",)},
    bad_arrays=bad_arrays,
    bad_options=(
        ("fractional_max_pool", "kernel_size", (1, 2, 3), ValueError, "kernel_size has 3 entries"),
        ("fractional_max_pool", "kernel_size", 0, INVALID, "kernel_h is 0"),
        ("fractional_max_pool", "kernel_size", "2", TypeError, "kernel_size: wanted an int"),
        ("fractional_max_pool", "kernel_size", (2, None), TypeError, "kernel_size: wanted an int, got None"),
        ("fractional_max_pool", "output_size", (1, 2, 3), ValueError, "output_size has 3 entries"),
        ("fractional_max_pool", "output_size", -1, INVALID, "output_h is -1"),
        ("fractional_max_pool", "output_size", 5, INVALID, "output_h is 5; wanted at most 4, h - kernel_h + 1"),
        ("fractional_max_pool", "return_indices", "yes", TypeError, "return_indices: wanted a bool"),
        ("fractional_max_pool_backward", "kernel_size", (3,), ValueError, "kernel_size has 1 entry; wanted 2 or 3"),
        ("fractional_max_pool_backward", "kernel_size", (5, 2), INVALID, "output_h is 3; wanted at most 2"),
        ("fractional_max_pool_backward", "input_shape", (2, 3, 6), ValueError, "grad_output has shape"),
        ("fractional_max_pool_backward", "input_shape", (2, 3, -6, 7), INVALID, "h is -6"),
        ("fractional_max_pool_backward", "axes", 4, ValueError, "axes is 4; wanted 1, 2 or 3"),
    ),
    bad_descriptors=((lambda: DESCRIPTOR(1.0, *_FLAT[1:]), TypeError, "n: wanted int"),),
    bad_problems=(
        (DESCRIPTOR(1, -1, *_FLAT[2:]), INVALID, "c is -1; wanted"),
        (DESCRIPTOR(*_FLAT[:-1], 1), INVALID, "num_samples is 1; wanted 2..3"),
        (DESCRIPTOR(*_FLAT[:7], 4, *_FLAT[8:]), INVALID, "output_w is 4; wanted at most 3"),
        (DESCRIPTOR(*_FLAT, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    not_in_jax=frozenset({"fractional_max_pool", "fractional_max_pool_backward"}),
)
