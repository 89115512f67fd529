# SPDX-License-Identifier: Apache-2.0
"""The record of roi_pool and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from place import available
from tolerance import assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import roi_pool as definitions

from .record import (
    INT32_MAX,
    KIB,
    MIB,
    Arrays,
    Baseline,
    Call,
    Empty,
    Narrow,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    compute_bytes,
    coordinates_of,
    numbers,
    size_between,
)

_SIZES: Values = {"n": 2, "c": 3, "h": 5, "w": 6, "num_rois": 4, "pooled_h": 2, "pooled_w": 3}
# h w stays below 2^31, which is a rule of its own.
_OVERFLOWS: tuple[Values, ...] = (
    {"n": INT32_MAX, "c": INT32_MAX, "h": 2**15, "w": 2**15},
    {"n": 2**17, "c": 2**17, "h": 2**15, "w": 2**15},  # 2^64 elements: a wrapped product is 0
    {"num_rois": INT32_MAX, "pooled_h": INT32_MAX, "pooled_w": INT32_MAX},
    {"num_rois": 2**21, "c": 2**21, "pooled_h": 2**21, "pooled_w": 2},  # 2^64 elements
)
_FAULTS: dict[str, tuple[Values, str]] = {
    "plane-of-2^31-pixels": ({"h": 2**16, "w": 2**15}, "h"),
    "plane-past-int64": ({"h": INT32_MAX, "w": INT32_MAX}, "w"),
}


def _baseline(scale: Values, **fills: float) -> Baseline:
    return Baseline(
        values={**_SIZES, **scale},
        empties=tuple(Empty(f"{name}-0", {name: 0}, 0.0, fills) for name in _SIZES),
        overflows=_OVERFLOWS,
        faults=_FAULTS,
        larger={"h": 19, "w": 67, "c": 37, "num_rois": 9, "pooled_h": 5, "pooled_w": 7},
    )


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    return {
        "n": size_between(rng, 1, 64),
        "c": size_between(rng, 1, 4096),
        "h": size_between(rng, 1, 5000),
        "w": size_between(rng, 1, 5000),
        "num_rois": size_between(rng, 1, 10000),
        "pooled_h": size_between(rng, 1, 100),
        "pooled_w": size_between(rng, 1, 100),
        "spatial_scale": 0.25,
    }


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: none forward; lists or bounds of the boxes, and copies of the gradient."""
    if not symbol.operator.name.endswith("_backward"):
        return 0, 0
    compute, boxes = compute_bytes(symbol), values["num_rois"]
    gradient = compute * values["n"] * values["c"] * values["h"] * values["w"]
    if backend == "cpu":
        copies = 2 if symbol.variant.token in ("f16", "bf16") else 1
        return 1, 4 * (boxes + values["n"]) + copies * gradient + KIB
    tables = 4 * boxes + 8 * boxes * values["c"]
    return 1, tables + (128 if compute == 8 else 64) * MIB + KIB


def calls(dtype: Any) -> dict[str, Call]:
    """Three boxes on two images, with and without the pixels."""
    boxes = np.array([[0, 0.5, 1, 5, 4], [1, 1, 0, 3, 6], [1, -2, -2, 9, 9]], coordinates_of(dtype))
    forward = Call(
        pybaracuda.roi_pool,
        {"input": numbers((2, 3, 6, 7), dtype), "boxes": boxes},
        {"output_size": (2, 3), "spatial_scale": 0.5},
    )
    # Places in a plane of 42 pixels, and one outside on either side.
    argmax = (np.arange(54) * 5 % 44 - 1).astype(np.int32).reshape(3, 3, 2, 3)
    return {
        "roi_pool": forward,
        "roi_pool_with_argmax": forward._replace(options={**forward.options, "return_argmax": True}, outputs=2),
        "roi_pool_backward": Call(
            pybaracuda.roi_pool_backward,
            {"grad_output": numbers((3, 3, 2, 3), dtype), "boxes": boxes, "argmax": argmax},
            {"input_shape": (2, 3, 6, 7)},
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    sizes = (2, 3, 6, 7, 3, 2, 3)
    names = (*_SIZES, "spatial_scale", "element")
    coordinates = "f64" if element == "f64" else "f32"
    return {
        "roi_pool": PlanCase(
            pybaracuda.RoiPoolPlan,
            pybaracuda.RoiPoolDescriptor(*sizes, 0.5, element),
            "roi_pool_with_argmax",
            ("input", "rois"),
            ("output", "argmax"),
            names,
            coordinates,
        ),
        "roi_pool_backward": PlanCase(
            pybaracuda.RoiPoolBackwardPlan,
            pybaracuda.RoiPoolBackwardDescriptor(*sizes, element),
            "roi_pool_backward",
            ("grad_output", "rois", "argmax"),
            ("grad_input",),
            tuple(name for name in names if name != "spatial_scale"),
            coordinates,
        ),
    }


def check_forward(a: Arrays) -> None:
    size: Any = a.extents("pooled_h", "pooled_w")
    output, argmax = definitions.roi_pool(a.input, a.rois, size, a.values["spatial_scale"], a.rois.dtype)
    assert_same_bits(a.argmax, argmax)
    assert_same_bits(a.output, output)


def check_backward(a: Arrays) -> None:
    shape: Any = a.extents("n", "c", "h", "w")
    assert_within(a.grad_input, definitions.roi_pool_backward(a.grad_output, a.rois, a.argmax, shape))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Boxes that would be narrowed silently, and arrays of other shapes."""
    arrays = calls["roi_pool"].arrays
    text = "boxes has dtype float64; wanted float32"
    yield Refusal("roi_pool", {"boxes": arrays["boxes"].astype(np.float64)}, TypeError, text)
    text = r"input has shape \(3, 6, 7\); wanted \[N, C, H, W\]"
    yield Refusal("roi_pool", {"input": arrays["input"][0]}, ValueError, text)
    wrong = numbers((4, 3, 2, 3))
    yield Refusal("roi_pool_backward", {"grad_output": wrong}, ValueError, "grad_output has shape")
    yield Refusal("roi_pool_backward", {"argmax": wrong.astype(np.int32)}, ValueError, "argmax has shape")
    wide = calls["roi_pool_backward"].arrays["argmax"].astype(np.int64)
    yield Refusal("roi_pool_backward", {"argmax": wide}, TypeError, "argmax has dtype int64; wanted int32")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.RoiPoolDescriptor

RECORD = Record(
    families=("roi_pool",),
    baselines={"roi_pool": _baseline({"spatial_scale": 0.5}, argmax=-1.0), "roi_pool_backward": _baseline({})},
    checks={"roi_pool": check_forward, "roi_pool_backward": check_backward},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "roi_pool": "input boxes output_size spatial_scale return_argmax",
        "roi_pool_backward": "grad_output boxes argmax input_shape",
    },
    calls=calls,
    plans=plans,
    floats_only={"roi_pool": ("input", "boxes"), "roi_pool_backward": ("grad_output", "boxes")},
    bad_arrays=bad_arrays,
    bad_options=(
        ("roi_pool", "output_size", (1, 2, 3), ValueError, "output_size has 3 entries"),
        ("roi_pool", "output_size", -1, INVALID, "pooled_h is -1"),
        ("roi_pool", "spatial_scale", "1", TypeError, "spatial_scale: wanted a number"),
        ("roi_pool", "spatial_scale", float("nan"), INVALID, "spatial_scale is"),
        ("roi_pool", "return_argmax", "yes", TypeError, "return_argmax: wanted a bool"),
        ("roi_pool_backward", "input_shape", (2, 3, 6), ValueError, "input_shape is"),
        ("roi_pool_backward", "input_shape", (2, 4, 6, 7), ValueError, "grad_output has shape"),
        ("roi_pool_backward", "input_shape", (2, 3, -6, 7), INVALID, "h is -6"),
        ("roi_pool_backward", "input_shape", (2, 3, 2**16, 2**15), INVALID, "h w is 2147483648 pixels"),
    ),
    bad_descriptors=(
        (lambda: DESCRIPTOR(1.0, 1, 1, 1, 1, 1, 1), TypeError, "n: wanted int"),
        (lambda: DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, "2"), TypeError, "spatial_scale: wanted float"),
    ),
    bad_problems=(
        (DESCRIPTOR(1, -1, 1, 1, 1, 1, 1), INVALID, "c is -1; wanted"),
        (DESCRIPTOR(1, 1, 2**16, 2**16, 1, 1, 1), INVALID, "h w is 4294967296 pixels"),
        (DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    narrow={"roi_pool": Narrow("boxes"), "roi_pool_backward": Narrow("boxes")},
    not_in_torch=frozenset() if available("torchvision") else frozenset({"roi_pool", "roi_pool_backward"}),
    not_in_jax=frozenset({"roi_pool", "roi_pool_backward"}),
)
