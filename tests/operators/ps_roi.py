# SPDX-License-Identifier: Apache-2.0
"""The record of position-sensitive pooling and its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from place import available
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import ps_roi as definitions

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

NAMES = ("ps_roi_align", "ps_roi_align_backward", "ps_roi_pool", "ps_roi_pool_backward")
POOL_VALUES: Values = {
    "n": 2, "c": 3, "h": 5, "w": 6, "num_rois": 4, "pooled_h": 2, "pooled_w": 3, "spatial_scale": 0.5,
}  # fmt: skip


def baseline(name: str) -> Baseline:
    """Both kinds differ in the sampling ratio, and in tables of the boxes."""
    samples = "align" in name
    more: Values = {"num_rois": INT32_MAX, "c": 1, "h": 4096, "w": 4096, "pooled_h": 4096, "pooled_w": 4096, "n": 1}
    return Baseline(
        values={**POOL_VALUES, "sampling_ratio": 2} if samples else POOL_VALUES,
        empties=zero("n", "c", "h", "w", "num_rois"),
        overflows=(
            {"n": INT32_MAX, "c": INT32_MAX, "h": INT32_MAX, "w": INT32_MAX},
            {"n": 2**16, "c": 2**16, "h": 2**16, "w": 2**16},  # 2^64 elements and more: a wrapped product
        ),
        larger={"h": 19, "w": 67, "c": 5, "num_rois": 70},
        more_scratch_than_memory=more if samples else None,
    )


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    values: Values = {
        "n": size_between(rng, 1, 64),
        "c": size_between(rng, 1, 100),
        "h": size_between(rng, 1, 5000),
        "w": size_between(rng, 1, 5000),
        "num_rois": size_between(rng, 1, 10000),
        "pooled_h": size_between(rng, 1, 30),
        "pooled_w": size_between(rng, 1, 30),
        "spatial_scale": 0.25,
    }
    return {**values, "sampling_ratio": 2} if "align" in symbol.operator.name else values


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: weights of the boxes, and on the CPU their order and sums; none backward on CUDA."""
    samples, backward = "align" in symbol.operator.name, symbol.operator.name.endswith("_backward")
    if backend == "cuda" and backward:
        return 0, 0
    most = 0
    if samples:
        bins = values["pooled_h"] + values["pooled_w"]
        most += values["num_rois"] * (256 + 2 * compute_bytes(symbol) * (values["h"] + values["w"] + 10 * bins)) + KIB
    if backend == "cpu" and backward:
        most += 4 * (values["num_rois"] + values["n"]) + KIB
        if symbol.variant.types["T"] in ("f16", "bf16"):
            names = ("n", "c", "pooled_h", "pooled_w", "h", "w")
            most += 4 * int(np.prod([values[name] for name in names], dtype=object))
    return 1 if most else 0, most


BOXES = [[0, 0.5, 1, 5, 4], [1, 1, 0, 3, 6], [1, -2, -2, 9, 9]]


def calls(dtype: Any) -> dict[str, Call]:
    """Three boxes on two images."""
    boxes = np.array(BOXES, coordinates_of(dtype))
    forward = {"input": numbers((2, 12, 6, 7), dtype), "boxes": boxes}
    backward = {"grad_output": numbers((3, 2, 2, 3), dtype), "boxes": boxes}
    shape = {"input_shape": (2, 12, 6, 7), "spatial_scale": 0.5}
    size = {"output_size": (2, 3), "spatial_scale": 0.5}
    return {
        "ps_roi_align": Call(pybaracuda.ps_roi_align, forward, {**size, "sampling_ratio": 2}),
        "ps_roi_align_backward": Call(pybaracuda.ps_roi_align_backward, backward, {**shape, "sampling_ratio": 2}),
        "ps_roi_pool": Call(pybaracuda.ps_roi_pool, forward, size),
        "ps_roi_pool_backward": Call(pybaracuda.ps_roi_pool_backward, backward, shape),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    sizes = (2, 2, 6, 7, 3, 2, 3)
    names = ("n", "c", "h", "w", "num_rois", "pooled_h", "pooled_w", "spatial_scale", "element")
    coordinates = "f64" if element == "f64" else "f32"
    kinds: dict[str, tuple[Any, Any]] = {
        "ps_roi_align": (pybaracuda.PsRoiAlignPlan, pybaracuda.PsRoiAlignDescriptor),
        "ps_roi_align_backward": (pybaracuda.PsRoiAlignBackwardPlan, pybaracuda.PsRoiAlignBackwardDescriptor),
        "ps_roi_pool": (pybaracuda.PsRoiPoolPlan, pybaracuda.PsRoiPoolDescriptor),
        "ps_roi_pool_backward": (pybaracuda.PsRoiPoolBackwardPlan, pybaracuda.PsRoiPoolBackwardDescriptor),
    }
    found = {}
    for name, (plan, descriptor) in kinds.items():
        more = {"sampling_ratio": 2} if "align" in name else {}
        tensors = ("grad_output", "grad_input") if name.endswith("_backward") else ("input", "output")
        found[name] = PlanCase(
            plan,
            descriptor(*sizes, 0.5, element, **more),
            name,
            (tensors[0], "rois"),
            (tensors[1],),
            (*names, *more),
            coordinates,
        )
    return found


def _options(a: Arrays) -> dict[str, Any]:
    return {"spatial_scale": a.values["spatial_scale"], "coordinate_dtype": a.rois.dtype}


def _maps(array: Any) -> Any:
    """[n, c, pooled_h, pooled_w, h, w] as the definitions have it."""
    return array.reshape(array.shape[0], -1, *array.shape[4:])


def check_align(a: Arrays) -> None:
    size: Any = a.extents("pooled_h", "pooled_w")
    ratio = a.values["sampling_ratio"]
    assert_within(a.output, definitions.ps_roi_align(_maps(a.input), a.rois, size, sampling_ratio=ratio, **_options(a)))


def check_align_backward(a: Arrays) -> None:
    found, ratio = _maps(a.grad_input), a.values["sampling_ratio"]
    expected = definitions.ps_roi_align_backward(
        a.grad_output, a.rois, found.shape, sampling_ratio=ratio, **_options(a)
    )
    assert_within(found, expected)


def check_pool(a: Arrays) -> None:
    size: Any = a.extents("pooled_h", "pooled_w")
    assert_within(a.output, definitions.ps_roi_pool(_maps(a.input), a.rois, size, **_options(a)))


def check_pool_backward(a: Arrays) -> None:
    found = _maps(a.grad_input)
    assert_within(found, definitions.ps_roi_pool_backward(a.grad_output, a.rois, found.shape, **_options(a)))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Boxes that would be narrowed silently, and arrays of other shapes."""
    for name in NAMES:
        boxes = calls[name].arrays["boxes"].astype(np.float64)
        yield Refusal(name, {"boxes": boxes}, TypeError, "boxes has dtype float64; wanted float32")
        if name.endswith("_backward"):
            yield Refusal(name, {"grad_output": numbers((4, 2, 2, 3))}, ValueError, "grad_output has shape")
        else:
            text = "input has 13 channels; wanted a multiple of 2 x 3 bins"
            yield Refusal(name, {"input": numbers((2, 13, 6, 7))}, ValueError, text)


INVALID = pybaracuda.InvalidProblemError
ALIGN, POOL = pybaracuda.PsRoiAlignDescriptor, pybaracuda.PsRoiPoolDescriptor

RECORD = Record(
    families=("ps_roi",),
    baselines={name: baseline(name) for name in NAMES},
    checks={
        "ps_roi_align": check_align,
        "ps_roi_align_backward": check_align_backward,
        "ps_roi_pool": check_pool,
        "ps_roi_pool_backward": check_pool_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "ps_roi_align": "input boxes output_size spatial_scale sampling_ratio",
        "ps_roi_align_backward": "grad_output boxes input_shape spatial_scale sampling_ratio",
        "ps_roi_pool": "input boxes output_size spatial_scale",
        "ps_roi_pool_backward": "grad_output boxes input_shape spatial_scale",
    },
    calls=calls,
    plans=plans,
    floats_only={name: ("grad_output" if name.endswith("_backward") else "input", "boxes") for name in NAMES},
    bad_arrays=bad_arrays,
    bad_options=(
        *((name, "output_size", (1, 2, 3), ValueError, "output_size has 3 entries") for name in NAMES[::2]),
        *(
            (name, "output_size", (2, 0), INVALID, "output_size is (2, 0); wanted at least 1 bin")
            for name in NAMES[::2]
        ),
        *((name, "spatial_scale", "1", TypeError, "spatial_scale: wanted a number") for name in NAMES),
        *((name, "spatial_scale", float("nan"), INVALID, "spatial_scale is") for name in NAMES),
        *((name, "input_shape", (2, 12, 6), ValueError, "input_shape is") for name in NAMES[1::2]),
        *((name, "input_shape", 5, TypeError, "input_shape: wanted a sequence of int") for name in NAMES[1::2]),
        *((name, "input_shape", (2, 13, 6, 7), ValueError, "input_shape has 13 channels") for name in NAMES[1::2]),
        *((name, "input_shape", (2, 18, 6, 7), ValueError, "grad_output has shape") for name in NAMES[1::2]),
        *((name, "input_shape", (2, 12, -6, 7), INVALID, "h is -6") for name in NAMES[1::2]),
        *((name, "sampling_ratio", 2.5, TypeError, "sampling_ratio: wanted an int") for name in NAMES[:2]),
        *((name, "sampling_ratio", 2**20 + 1, INVALID, "sampling_ratio is 1048577") for name in NAMES[:2]),
    ),
    bad_descriptors=(
        (lambda: ALIGN(1, 1, 1, 1, 1, 1, 1, sampling_ratio=-1), INVALID, "sampling_ratio is -1"),
        (lambda: POOL(1.0, 1, 1, 1, 1, 1, 1), TypeError, "n: wanted int"),
        (lambda: POOL(1, 1, 1, 1, 1, 1, 1, "2"), TypeError, "spatial_scale: wanted float"),
    ),
    bad_problems=(
        (POOL(1, -1, 1, 1, 1, 1, 1), INVALID, "c is -1; wanted"),
        (POOL(1, 1, 1, 1, 1, 0, 1), INVALID, "pooled_h is 0; wanted 1"),
        (ALIGN(1, 1, 1, 1, 1, 1, 1, 1e39), INVALID, "spatial_scale is inf"),
        (ALIGN(*[2**31 - 1] * 7), INVALID, "overflow"),
        (POOL(1, 1, 1, 1, 1, 1, 1, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    narrow={name: Narrow("boxes") for name in NAMES},
    not_in_torch=frozenset() if available("torchvision") else frozenset(NAMES),
    not_in_jax=frozenset(NAMES),
)
