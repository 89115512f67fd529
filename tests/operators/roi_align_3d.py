# SPDX-License-Identifier: Apache-2.0
"""The record of roi_align of volumes and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import roi_align_3d as definitions

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
    compute_bytes,
    coordinates_of,
    numbers,
    size_between,
    zero,
)

NAMES = ("roi_align_3d", "roi_align_3d_backward")
BASELINE = Baseline(
    values={
        "n": 2, "c": 3, "d": 4, "h": 5, "w": 6, "num_rois": 4, "pooled_d": 2, "pooled_h": 2, "pooled_w": 3,
        "spatial_scale": 0.5, "sampling_ratio": 2, "aligned": 1,
    },
    empties=zero("n", "c", "d", "h", "w", "num_rois", "pooled_d", "pooled_h", "pooled_w"),
    overflows=(
        {"n": INT32_MAX, "c": INT32_MAX, "d": INT32_MAX, "h": INT32_MAX, "w": INT32_MAX},
        {"n": 2**16, "c": 2**16, "d": 2**16, "h": 2**8, "w": 2**8},  # 2^64 elements: a wrapped product is 0
        {"num_rois": INT32_MAX, "pooled_d": INT32_MAX, "pooled_h": INT32_MAX, "pooled_w": INT32_MAX},
    ),
    larger={"d": 9, "h": 19, "w": 67, "c": 17, "num_rois": 9},
    more_scratch_than_memory={
        "num_rois": INT32_MAX, "c": 1, "d": 4096, "h": 64, "w": 4096, "pooled_d": 4096, "pooled_h": 1, "pooled_w": 4096,
    },
)  # fmt: skip


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    return {
        "n": size_between(rng, 1, 64),
        "c": size_between(rng, 1, 500),
        "d": size_between(rng, 1, 500),
        "h": size_between(rng, 1, 1000),
        "w": size_between(rng, 1, 5000),
        "num_rois": size_between(rng, 1, 10000),
        "pooled_d": size_between(rng, 1, 30),
        "pooled_h": size_between(rng, 1, 30),
        "pooled_w": size_between(rng, 1, 100),
        "spatial_scale": 0.25,
        "sampling_ratio": 2,
        "aligned": 0,
    }


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: weights of the boxes, and on the CPU their order and a tile's sums."""
    compute, backward = compute_bytes(symbol), symbol.operator.name.endswith("_backward")
    bins = values["pooled_d"] + values["pooled_h"] + values["pooled_w"]
    extents = values["d"] + values["h"] + values["w"]
    most = values["num_rois"] * (384 + 2 * compute * (extents + 10 * bins)) + KIB
    if backend == "cpu" and backward:
        most += 4 * (values["num_rois"] + values["n"]) + (129 if compute == 8 else 65) * KIB
    return 1, most


def calls(dtype: Any) -> dict[str, Call]:
    """Three boxes on two volumes."""
    boxes = np.array([[0, 0.5, 1, 1, 5, 4, 6], [1, 1, 0, 2, 3, 6, 5], [1, -2, -2, -2, 9, 9, 9]], coordinates_of(dtype))
    options = {"spatial_scale": 0.5, "sampling_ratio": 2, "aligned": True}
    return {
        "roi_align_3d": Call(
            pybaracuda.roi_align_3d,
            {"input": numbers((2, 3, 4, 6, 7), dtype), "boxes": boxes},
            {"output_size": (2, 2, 3), **options},
        ),
        "roi_align_3d_backward": Call(
            pybaracuda.roi_align_3d_backward,
            {"grad_output": numbers((3, 3, 2, 2, 3), dtype), "boxes": boxes},
            {"input_shape": (2, 3, 4, 6, 7), **options},
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    sizes = (2, 3, 4, 6, 7, 3, 2, 2, 3)
    options: dict[str, Any] = {"spatial_scale": 0.5, "sampling_ratio": 2, "aligned": True, "element": element}
    names = ("n", "c", "d", "h", "w", "num_rois", "pooled_d", "pooled_h", "pooled_w", *options)
    coordinates = "f64" if element == "f64" else "f32"
    return {
        "roi_align_3d": PlanCase(
            pybaracuda.RoiAlign3dPlan,
            pybaracuda.RoiAlign3dDescriptor(*sizes, **options),
            "roi_align_3d",
            ("input", "rois"),
            ("output",),
            names,
            coordinates,
        ),
        "roi_align_3d_backward": PlanCase(
            pybaracuda.RoiAlign3dBackwardPlan,
            pybaracuda.RoiAlign3dBackwardDescriptor(*sizes, **options),
            "roi_align_3d_backward",
            ("grad_output", "rois"),
            ("grad_input",),
            names,
            coordinates,
        ),
    }


def _options(a: Arrays) -> dict[str, Any]:
    return {
        "spatial_scale": a.values["spatial_scale"],
        "sampling_ratio": a.values["sampling_ratio"],
        "aligned": bool(a.values["aligned"]),
        "coordinate_dtype": a.rois.dtype,
    }


def check_forward(a: Arrays) -> None:
    size: Any = a.extents("pooled_d", "pooled_h", "pooled_w")
    assert_within(a.output, definitions.roi_align_3d(a.input, a.rois, size, **_options(a)))


def check_backward(a: Arrays) -> None:
    shape: Any = a.grad_input.shape
    assert_within(a.grad_input, definitions.roi_align_3d_backward(a.grad_output, a.rois, shape, **_options(a)))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Boxes that would be narrowed silently, and arrays of other shapes."""
    for name in NAMES:
        boxes = calls[name].arrays["boxes"]
        yield Refusal(name, {"boxes": boxes.astype(np.float64)}, TypeError, "boxes has dtype float64; wanted float32")
        yield Refusal(name, {"boxes": boxes[:, :5].copy()}, ValueError, "boxes has shape")
    yield Refusal(NAMES[0], {"input": numbers((2, 3, 6, 7))}, ValueError, "input has shape")
    yield Refusal(NAMES[1], {"grad_output": numbers((4, 3, 2, 2, 3))}, ValueError, "grad_output has shape")


INVALID = pybaracuda.InvalidProblemError
FORWARD, BACKWARD = pybaracuda.RoiAlign3dDescriptor, pybaracuda.RoiAlign3dBackwardDescriptor

RECORD = Record(
    families=("roi_align_3d",),
    baselines=dict.fromkeys(NAMES, BASELINE),
    checks={"roi_align_3d": check_forward, "roi_align_3d_backward": check_backward},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "roi_align_3d": "input boxes output_size spatial_scale sampling_ratio aligned",
        "roi_align_3d_backward": "grad_output boxes input_shape spatial_scale sampling_ratio aligned",
    },
    calls=calls,
    plans=plans,
    floats_only={"roi_align_3d": ("input", "boxes"), "roi_align_3d_backward": ("grad_output", "boxes")},
    bad_arrays=bad_arrays,
    bad_options=(
        ("roi_align_3d", "output_size", (1, 2), ValueError, "output_size has 2 entries; wanted an int or a triple"),
        ("roi_align_3d", "output_size", (1, 2, -1), INVALID, "pooled_w is -1"),
        *((name, "spatial_scale", "1", TypeError, "spatial_scale: wanted a number") for name in NAMES),
        *((name, "spatial_scale", float("nan"), INVALID, "spatial_scale is") for name in NAMES),
        *((name, "sampling_ratio", 2.5, TypeError, "sampling_ratio: wanted an int") for name in NAMES),
        *((name, "sampling_ratio", 2**20 + 1, INVALID, "sampling_ratio is 1048577") for name in NAMES),
        *((name, "aligned", 2, TypeError, "aligned: wanted a bool") for name in NAMES),
        ("roi_align_3d_backward", "input_shape", (2, 3, 6, 7), ValueError, "input_shape is"),
        ("roi_align_3d_backward", "input_shape", 5, TypeError, "input_shape: wanted a sequence of int"),
        ("roi_align_3d_backward", "input_shape", (2, 4, 4, 6, 7), ValueError, "grad_output has shape"),
        ("roi_align_3d_backward", "input_shape", (2, 3, -4, 6, 7), INVALID, "d is -4"),
    ),
    bad_descriptors=(
        (lambda: FORWARD(*[1] * 9, sampling_ratio=-1), INVALID, "sampling_ratio is -1"),
        (lambda: FORWARD(1.0, *[1] * 8), TypeError, "n: wanted int"),
        (lambda: BACKWARD(*[1] * 9, "2"), TypeError, "spatial_scale: wanted float"),
        (lambda: BACKWARD(*[1] * 9, 1.0, 2, 2), TypeError, "aligned: wanted bool"),
    ),
    bad_problems=(
        (FORWARD(1, 1, -1, *[1] * 6), INVALID, "d is -1; wanted"),
        (BACKWARD(*[1] * 6, -2, 1, 1), INVALID, "pooled_d is -2; wanted"),
        (FORWARD(*[1] * 9, 1e39), INVALID, "spatial_scale is inf"),
        (FORWARD(*[2**31 - 1] * 9), INVALID, "overflow"),
        (FORWARD(*[1] * 9, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    narrow={name: Narrow("boxes") for name in NAMES},
    not_in_torch=frozenset(NAMES),
    not_in_jax=frozenset(NAMES),
)
