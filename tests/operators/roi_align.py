# SPDX-License-Identifier: Apache-2.0
"""The record of roi_align and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from place import available
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import roi_align as definitions

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
    values={
        "n": 2, "c": 3, "h": 5, "w": 6, "num_rois": 4, "pooled_h": 2, "pooled_w": 3,
        "spatial_scale": 0.5, "sampling_ratio": 2, "aligned": 1,
    },
    empties=zero("n", "c", "h", "w", "num_rois", "pooled_h", "pooled_w"),
    overflows=(
        {"n": INT32_MAX, "c": INT32_MAX, "h": INT32_MAX, "w": INT32_MAX},
        {"n": 2**16, "c": 2**16, "h": 2**16, "w": 2**16},  # 2^64 elements: a wrapped product is 0
        {"num_rois": INT32_MAX, "pooled_h": INT32_MAX, "pooled_w": INT32_MAX},
        {"num_rois": 2**21, "c": 2**21, "pooled_h": 2**21, "pooled_w": 2},  # 2^64 elements
    ),
    larger={"h": 19, "w": 67, "c": 17, "num_rois": 9},
    more_scratch_than_memory={
        "num_rois": INT32_MAX, "c": 1, "h": 4096, "w": 4096, "pooled_h": 4096, "pooled_w": 4096,
    },
)  # fmt: skip


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
        "sampling_ratio": 2,
        "aligned": 0,
    }


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: weights of the boxes, and what the backend keeps beside them."""
    compute, backward = compute_bytes(symbol), symbol.operator.name.endswith("_backward")
    bins = values["pooled_h"] + values["pooled_w"]
    most = values["num_rois"] * (256 + 2 * compute * (values["h"] + values["w"] + 10 * bins)) + KIB
    if backend == "cpu":
        return 1, most + (4 * values["n"] + (128 if compute == 8 else 64) * KIB if backward else 0)
    if not backward:
        return 1, most + values["num_rois"] * (6 if compute == 8 else 4) * KIB
    tiles = values["n"] * ceil_div(values["h"], 14) * ceil_div(values["w"], 16)
    most += 16 * tiles + min(tiles * 4 * ceil_div(values["num_rois"], 32), 64 * MIB)
    return 1, most + (128 if compute == 8 else 64) * MIB


def calls(dtype: Any) -> dict[str, Call]:
    """Three boxes on two images."""
    boxes = np.array([[0, 0.5, 1, 5, 4], [1, 1, 0, 3, 6], [1, -2, -2, 9, 9]], coordinates_of(dtype))
    options = {"spatial_scale": 0.5, "sampling_ratio": 2, "aligned": True}
    return {
        "roi_align": Call(
            pybaracuda.roi_align,
            {"input": numbers((2, 3, 6, 7), dtype), "boxes": boxes},
            {"output_size": (2, 3), **options},
        ),
        "roi_align_backward": Call(
            pybaracuda.roi_align_backward,
            {"grad_output": numbers((3, 3, 2, 3), dtype), "boxes": boxes},
            {"input_shape": (2, 3, 6, 7), **options},
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    sizes = (2, 3, 6, 7, 3, 2, 3)
    options: dict[str, Any] = {"spatial_scale": 0.5, "sampling_ratio": 2, "aligned": True, "element": element}
    names = ("n", "c", "h", "w", "num_rois", "pooled_h", "pooled_w", *options)
    coordinates = "f64" if element == "f64" else "f32"
    return {
        "roi_align": PlanCase(
            pybaracuda.RoiAlignPlan,
            pybaracuda.RoiAlignDescriptor(*sizes, **options),
            "roi_align",
            ("input", "rois"),
            ("output",),
            names,
            coordinates,
        ),
        "roi_align_backward": PlanCase(
            pybaracuda.RoiAlignBackwardPlan,
            pybaracuda.RoiAlignBackwardDescriptor(*sizes, **options),
            "roi_align_backward",
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
    size: Any = a.extents("pooled_h", "pooled_w")
    assert_within(a.output, definitions.roi_align(a.input, a.rois, size, **_options(a)))


def check_backward(a: Arrays) -> None:
    shape: Any = a.extents("n", "c", "h", "w")
    assert_within(a.grad_input, definitions.roi_align_backward(a.grad_output, a.rois, shape, **_options(a)))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Boxes that would be narrowed silently, and arrays of other shapes."""
    arrays = calls["roi_align"].arrays
    text = "boxes has dtype float64; wanted float32"
    yield Refusal("roi_align", {"boxes": arrays["boxes"].astype(np.float64)}, TypeError, text)
    text = r"input has shape \(3, 6, 7\); wanted \[N, C, H, W\]"
    yield Refusal("roi_align", {"input": arrays["input"][0]}, ValueError, text)
    wrong = numbers((4, 3, 2, 3))
    yield Refusal("roi_align_backward", {"grad_output": wrong}, ValueError, "grad_output has shape")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.RoiAlignDescriptor

RECORD = Record(
    families=("roi_align",),
    baselines={"roi_align": BASELINE, "roi_align_backward": BASELINE},
    checks={"roi_align": check_forward, "roi_align_backward": check_backward},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "roi_align": "input boxes output_size spatial_scale sampling_ratio aligned",
        "roi_align_backward": "grad_output boxes input_shape spatial_scale sampling_ratio aligned",
    },
    calls=calls,
    plans=plans,
    floats_only={"roi_align": ("input", "boxes"), "roi_align_backward": ("grad_output", "boxes")},
    bad_arrays=bad_arrays,
    bad_options=(
        ("roi_align", "output_size", (1, 2, 3), ValueError, "output_size has 3 entries"),
        ("roi_align", "output_size", 2.0, TypeError, "output_size: wanted an int"),
        ("roi_align", "output_size", (2, "3"), TypeError, "output_size: wanted an int"),
        ("roi_align", "output_size", -1, INVALID, "pooled_h is -1"),
        ("roi_align", "output_size", 2**31, INVALID, "pooled_h is 2147483648"),
        ("roi_align", "spatial_scale", "1", TypeError, "spatial_scale: wanted a number"),
        ("roi_align", "spatial_scale", float("nan"), INVALID, "spatial_scale is"),
        ("roi_align", "spatial_scale", 1e300, INVALID, "spatial_scale is inf"),
        ("roi_align", "sampling_ratio", 2.5, TypeError, "sampling_ratio: wanted an int"),
        ("roi_align", "sampling_ratio", 2**20 + 1, INVALID, "sampling_ratio is 1048577"),
        ("roi_align", "aligned", "yes", TypeError, "aligned: wanted a bool"),
        ("roi_align_backward", "input_shape", (2, 3, 6), ValueError, "input_shape is"),
        ("roi_align_backward", "input_shape", 5, TypeError, "input_shape: wanted a sequence of int"),
        ("roi_align_backward", "input_shape", (2, 4, 6, 7), ValueError, "grad_output has shape"),
        ("roi_align_backward", "input_shape", (2, 3, -6, 7), INVALID, "h is -6"),
    ),
    bad_descriptors=(
        (lambda: DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, sampling_ratio=-1), INVALID, "sampling_ratio is -1"),
        (lambda: DESCRIPTOR(1.0, 1, 1, 1, 1, 1, 1), TypeError, "n: wanted int"),
        (lambda: DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, "2"), TypeError, "spatial_scale: wanted float"),
        (lambda: DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, aligned=2), TypeError, "aligned: wanted bool"),
        (lambda: DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, element=np.float32), TypeError, "element: wanted str"),
    ),
    bad_problems=(
        (DESCRIPTOR(1, -1, 1, 1, 1, 1, 1), INVALID, "c is -1; wanted"),
        (DESCRIPTOR(1, 2**31, 1, 1, 1, 1, 1), INVALID, "c is 2147483648"),
        (DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, 1e39), INVALID, "spatial_scale is inf"),
        (DESCRIPTOR(*[2**31 - 1] * 7), INVALID, "overflow"),
        (DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    narrow={"roi_align": Narrow("boxes"), "roi_align_backward": Narrow("boxes")},
    not_in_torch=frozenset() if available("torchvision") else frozenset({"roi_align", "roi_align_backward"}),
    not_in_jax=frozenset({"roi_align", "roi_align_backward"}),
)
