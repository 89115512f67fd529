# SPDX-License-Identifier: Apache-2.0
"""The record of roi_align, of one map and of several, and their gradients."""

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
    Empty,
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

MAPS = [5, 4, 3, 2, 2, 1, 1, 1]
# With every map that there may be, so that each of their pointers counts.
OF_LEVELS = Baseline(
    values={
        "num_levels": 8, "n": 2, "c": 3, "heights": MAPS, "widths": [6, 5, 3, 2, 1, 2, 1, 1],
        "spatial_scales": [0.5, 0.25, 0.125, 1.0, 0.5, 2.0, 1.0, -1.0], "num_rois": 9, "pooled_h": 2, "pooled_w": 3,
        "sampling_ratio": 2, "aligned": 1, "k_min": 2, "canonical_level": 4, "canonical_scale": 4.0,
    },
    empties=(*zero("n", "c", "num_rois", "pooled_h", "pooled_w"), Empty("heights-0", {"heights": [0] * 8})),
    overflows=(
        {"n": INT32_MAX, "c": INT32_MAX, "heights": [*MAPS[:7], INT32_MAX], "widths": [*MAPS[:7], INT32_MAX]},
        {"n": 2**16, "c": 2**16, "heights": [2**16, *MAPS[1:]], "widths": [2**16, *MAPS[1:]]},
        {"num_rois": INT32_MAX, "pooled_h": INT32_MAX, "pooled_w": INT32_MAX},
    ),
    faults={
        "spatial_scales[3]=inf": ({"spatial_scales": [1.0, 1.0, 1.0, float("inf"), *[1.0] * 4]}, "spatial_scales"),
        "spatial_scales[7]=nan": ({"spatial_scales": [*[1.0] * 7, float("nan")]}, "spatial_scales"),
    },
    larger={"heights": [19, 10, *MAPS[2:]], "widths": [67, 34, *MAPS[2:]], "c": 17, "num_rois": 29},
    more_scratch_than_memory={
        "num_rois": INT32_MAX, "c": 1, "heights": [4096] * 8, "widths": [4096] * 8, "pooled_h": 4096, "pooled_w": 4096,
    },
)  # fmt: skip


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    if "levels" in symbol.operator.name:
        maps = size_between(rng, 1, 8)
        return {
            "num_levels": maps,
            "n": size_between(rng, 1, 64),
            "c": size_between(rng, 1, 4096),
            "heights": [size_between(rng, 1, 5000) for _ in range(maps)],
            "widths": [size_between(rng, 1, 5000) for _ in range(maps)],
            "spatial_scales": [0.25] * maps,
            "num_rois": size_between(rng, 1, 10000),
            "pooled_h": size_between(rng, 1, 100),
            "pooled_w": size_between(rng, 1, 100),
            "sampling_ratio": 2,
            "aligned": 0,
            "k_min": 2,
            "canonical_level": 4,
            "canonical_scale": 224.0,
        }
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
    if "boxes" in symbol.operator.name:
        return 0, 0
    if "heights" not in values:
        return bounds_of_map(symbol, backend, values)
    if not symbol.operator.name.endswith("_backward"):
        return bounds_of_map(symbol, backend, {**values, "h": max(values["heights"]), "w": max(values["widths"])})
    maps = [
        bounds_of_map(symbol, backend, {**values, "h": h, "w": w})[1]
        for h, w in zip(values["heights"], values["widths"], strict=True)
    ]
    if backend == "cpu":
        return 1, max(maps)
    boxes = 5 * compute_bytes(symbol) * values["num_rois"] * values["num_levels"]
    return 1, sum(maps) + boxes + KIB


def bounds_of_map(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """Those of one map."""
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
    levels = {"spatial_scales": (0.5, 0.25), "sampling_ratio": 2, "aligned": True, "canonical_scale": 24.0}
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
        "roi_align_boxes_backward": Call(
            pybaracuda.roi_align_boxes_backward,
            {"grad_output": numbers((3, 3, 2, 3), dtype), "input": numbers((2, 3, 6, 7), dtype), "boxes": boxes},
            options,
        ),
        "roi_align_levels": Call(
            pybaracuda.roi_align_levels,
            {"inputs[0]": numbers((2, 3, 6, 7), dtype), "inputs[1]": numbers((2, 3, 3, 4), dtype), "boxes": boxes},
            {"output_size": (2, 3), **levels},
        ),
        "roi_align_levels_backward": Call(
            pybaracuda.roi_align_levels_backward,
            {"grad_output": numbers((3, 3, 2, 3), dtype), "boxes": boxes},
            {"input_shapes": [(2, 3, 6, 7), (2, 3, 3, 4)], **levels},
            outputs=2,
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    sizes = (2, 3, 6, 7, 3, 2, 3)
    options: dict[str, Any] = {"spatial_scale": 0.5, "sampling_ratio": 2, "aligned": True, "element": element}
    names = ("n", "c", "h", "w", "num_rois", "pooled_h", "pooled_w", *options)
    coordinates = "f64" if element == "f64" else "f32"
    levels: Any = (2, 3, (6, 3), (7, 4), (0.5, 0.25), 3, 2, 3, 2, True, 1, 4, 24.0)
    level_names = (
        "n", "c", "heights", "widths", "spatial_scales", "num_rois", "pooled_h", "pooled_w", "sampling_ratio",
        "aligned", "k_min", "canonical_level", "canonical_scale", "element",
    )  # fmt: skip
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
        "roi_align_boxes_backward": PlanCase(
            pybaracuda.RoiAlignBoxesBackwardPlan,
            pybaracuda.RoiAlignBoxesBackwardDescriptor(*sizes, **options),
            "roi_align_boxes_backward",
            ("grad_output", "input", "rois"),
            ("grad_rois",),
            names,
            coordinates,
        ),
        "roi_align_levels": PlanCase(
            pybaracuda.RoiAlignLevelsPlan,
            pybaracuda.RoiAlignLevelsDescriptor(*levels, element),
            "roi_align_levels",
            ("input_0", "input_1", "rois"),
            ("output",),
            level_names,
            coordinates,
        ),
        "roi_align_levels_backward": PlanCase(
            pybaracuda.RoiAlignLevelsBackwardPlan,
            pybaracuda.RoiAlignLevelsBackwardDescriptor(*levels, element),
            "roi_align_levels_backward",
            ("grad_output", "rois"),
            ("grad_input_0", "grad_input_1"),
            level_names,
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


def check_boxes_backward(a: Arrays) -> None:
    assert_within(a.grad_rois, definitions.roi_align_boxes_backward(a.grad_output, a.input, a.rois, **_options(a)))


def _of_levels(a: Arrays) -> dict[str, Any]:
    """What the definitions of several maps take beside the arrays."""
    options = ("num_levels", "k_min", "canonical_scale", "canonical_level")
    rule: Any = {name: a.values[name] for name in options}
    return {
        "spatial_scales": a.values["spatial_scales"],
        "levels": definitions.levels_of(a.rois, **rule, coordinate_dtype=a.rois.dtype),
        "sampling_ratio": a.values["sampling_ratio"],
        "aligned": bool(a.values["aligned"]),
        "coordinate_dtype": a.rois.dtype,
    }


def check_levels(a: Arrays) -> None:
    size: Any = a.extents("pooled_h", "pooled_w")
    inputs = [getattr(a, f"input_{level}") for level in range(a.values["num_levels"])]
    assert_within(a.output, definitions.roi_align_levels(inputs, a.rois, size, **_of_levels(a)))


def check_levels_backward(a: Arrays) -> None:
    found = [getattr(a, f"grad_input_{level}") for level in range(a.values["num_levels"])]
    shapes = [each.shape for each in found]
    expected = definitions.roi_align_levels_backward(a.grad_output, a.rois, shapes, **_of_levels(a))
    for gradient, each in zip(found, expected, strict=True):
        assert_within(gradient, each)


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Boxes that would be narrowed silently, and arrays of other shapes."""
    arrays = calls["roi_align"].arrays
    text = "boxes has dtype float64; wanted float32"
    yield Refusal("roi_align", {"boxes": arrays["boxes"].astype(np.float64)}, TypeError, text)
    text = r"input has shape \(3, 6, 7\); wanted \[N, C, H, W\]"
    yield Refusal("roi_align", {"input": arrays["input"][0]}, ValueError, text)
    wrong = numbers((4, 3, 2, 3))
    yield Refusal("roi_align_boxes_backward", {"grad_output": wrong}, ValueError, "grad_output has shape")
    half_map = arrays["input"].astype(np.float16)
    yield Refusal("roi_align_boxes_backward", {"input": half_map}, TypeError, "input has dtype float16; wanted float32")
    yield Refusal("roi_align_backward", {"grad_output": wrong}, ValueError, "grad_output has shape")
    yield Refusal("roi_align_levels_backward", {"grad_output": wrong}, ValueError, "grad_output has shape")
    fewer = numbers((2, 2, 3, 4))
    yield Refusal("roi_align_levels", {"inputs[1]": fewer}, ValueError, r"inputs\[1\] has shape \(2, 2, 3, 4\); wanted")
    half = numbers((2, 3, 3, 4), np.float16)
    yield Refusal("roi_align_levels", {"inputs[1]": half}, TypeError, r"inputs\[1\] has another dtype than inputs\[0\]")


NAMES = ("roi_align", "roi_align_backward", "roi_align_boxes_backward", "roi_align_levels", "roi_align_levels_backward")
INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.RoiAlignDescriptor


def of_levels(**changes: Any) -> Any:
    """A descriptor of two maps, but for some fields."""
    fields: dict[str, Any] = {
        "n": 1, "c": 1, "heights": (2, 1), "widths": (2, 1), "spatial_scales": (1.0, 0.5), "num_rois": 1,
        "pooled_h": 1, "pooled_w": 1,
    }  # fmt: skip
    return pybaracuda.RoiAlignLevelsDescriptor(**{**fields, **changes})


RECORD = Record(
    families=("roi_align",),
    baselines={
        "roi_align": BASELINE,
        "roi_align_backward": BASELINE,
        "roi_align_boxes_backward": BASELINE._replace(more_scratch_than_memory=None),
        "roi_align_levels": OF_LEVELS,
        "roi_align_levels_backward": OF_LEVELS,
    },
    checks={
        "roi_align": check_forward,
        "roi_align_backward": check_backward,
        "roi_align_boxes_backward": check_boxes_backward,
        "roi_align_levels": check_levels,
        "roi_align_levels_backward": check_levels_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "roi_align": "input boxes output_size spatial_scale sampling_ratio aligned",
        "roi_align_backward": "grad_output boxes input_shape spatial_scale sampling_ratio aligned",
        "roi_align_boxes_backward": "grad_output input boxes spatial_scale sampling_ratio aligned",
        "roi_align_levels": "inputs boxes output_size spatial_scales sampling_ratio aligned k_min canonical_scale "
        "canonical_level",
        "roi_align_levels_backward": "grad_output boxes input_shapes spatial_scales sampling_ratio aligned k_min "
        "canonical_scale canonical_level",
    },
    calls=calls,
    plans=plans,
    floats_only={
        "roi_align": ("input", "boxes"),
        "roi_align_backward": ("grad_output", "boxes"),
        "roi_align_boxes_backward": ("grad_output", "input", "boxes"),
        "roi_align_levels": ("inputs[0]", "inputs[1]", "boxes"),
        "roi_align_levels_backward": ("grad_output", "boxes"),
    },
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
        ("roi_align_boxes_backward", "spatial_scale", float("nan"), INVALID, "spatial_scale is"),
        ("roi_align_boxes_backward", "sampling_ratio", 2.5, TypeError, "sampling_ratio: wanted an int"),
        ("roi_align_boxes_backward", "aligned", "yes", TypeError, "aligned: wanted a bool"),
        ("roi_align_levels", "spatial_scales", (0.5,), ValueError, "spatial_scales has 1 entries; wanted one for each"),
        ("roi_align_levels", "spatial_scales", 0.5, TypeError, "spatial_scales: wanted a sequence of numbers"),
        ("roi_align_levels", "spatial_scales", (0.5, "1"), TypeError, "spatial_scales: wanted a sequence of numbers"),
        ("roi_align_levels", "spatial_scales", (0.3, 0.25), INVALID, "spatial_scales begins with 0.3"),
        ("roi_align_levels", "spatial_scales", (0.5, 1e300), INVALID, "spatial_scales[1] is inf"),
        ("roi_align_levels", "k_min", 65, INVALID, "k_min is 65; wanted -64..64"),
        ("roi_align_levels", "k_min", 2.5, TypeError, "k_min: wanted an int"),
        ("roi_align_levels", "canonical_level", -65, INVALID, "canonical_level is -65"),
        ("roi_align_levels", "canonical_scale", float("nan"), INVALID, "canonical_scale is nan"),
        ("roi_align_levels", "sampling_ratio", 2**20 + 1, INVALID, "sampling_ratio is 1048577"),
        ("roi_align_levels_backward", "input_shapes", [], ValueError, "input_shapes has 0 entries; wanted 1 to 8"),
        ("roi_align_levels_backward", "input_shapes", [(2, 3, 6)], ValueError, "input_shapes[0] is (2, 3, 6)"),
        ("roi_align_levels_backward", "input_shapes", 5, TypeError, "input_shapes: wanted a sequence of shapes"),
        (
            "roi_align_levels_backward",
            "input_shapes",
            [(2, 3, 6, 7), (2, 3, -3, 4)],
            INVALID,
            "heights[1] is -3; wanted at least 0",
        ),
    ),
    bad_descriptors=(
        (lambda: DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, sampling_ratio=-1), INVALID, "sampling_ratio is -1"),
        (lambda: DESCRIPTOR(1.0, 1, 1, 1, 1, 1, 1), TypeError, "n: wanted int"),
        (lambda: DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, "2"), TypeError, "spatial_scale: wanted float"),
        (lambda: DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, aligned=2), TypeError, "aligned: wanted bool"),
        (lambda: DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, element=np.float32), TypeError, "element: wanted str"),
        (lambda: of_levels(sampling_ratio=-1), INVALID, "sampling_ratio is -1"),
        (lambda: of_levels(widths=(2,)), INVALID, "heights has 2 entries, widths 1, spatial_scales 2"),
        (lambda: of_levels(heights=(2.0, 1)), TypeError, "heights: wanted a sequence of int"),
        (lambda: of_levels(spatial_scales=(1.0, "2")), TypeError, "spatial_scales: wanted a sequence of float"),
    ),
    bad_problems=(
        (DESCRIPTOR(1, -1, 1, 1, 1, 1, 1), INVALID, "c is -1; wanted"),
        (of_levels(heights=(2, -1)), INVALID, "heights"),
        (of_levels(heights=(), widths=(), spatial_scales=()), INVALID, "num_levels is 0; wanted 1..8"),
        (of_levels(spatial_scales=(1.0, 1e39)), INVALID, "spatial_scales"),
        (DESCRIPTOR(1, 2**31, 1, 1, 1, 1, 1), INVALID, "c is 2147483648"),
        (DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, 1e39), INVALID, "spatial_scale is inf"),
        (DESCRIPTOR(*[2**31 - 1] * 7), INVALID, "overflow"),
        (DESCRIPTOR(1, 1, 1, 1, 1, 1, 1, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    narrow={
        "roi_align": Narrow("boxes"),
        "roi_align_backward": Narrow("boxes"),
        "roi_align_boxes_backward": Narrow("boxes"),
        "roi_align_levels": Narrow("boxes"),
        "roi_align_levels_backward": Narrow("boxes"),
    },
    not_in_torch=frozenset({"roi_align_boxes_backward"} if available("torchvision") else NAMES),
    not_in_jax=frozenset(NAMES),
)
