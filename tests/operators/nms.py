# SPDX-License-Identifier: Apache-2.0
"""The record of non-maximum suppression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from place import available
from tolerance import assert_same_bits

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.definitions import nms as definitions

from .record import (
    KIB,
    Arrays,
    Baseline,
    Call,
    Empty,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    coordinates_of,
    size_between,
)

_CLASSES: Values = {"num_boxes": 5, "num_class_ids": 5, "iou_threshold": 0.5}
IN_ORDER = Baseline(
    values={"num_boxes": 5, "iou_thresh": 0.5},
    empties=(Empty("num_boxes-0", {"num_boxes": 0}),),
    # Four times 2^31 - 1 boxes of 8 bytes fit in 63 bits.
    overflows=(),
    larger={"num_boxes": 1500},
)
WITH_SCORES = Baseline(
    values=_CLASSES,
    empties=(Empty("num_boxes-0", {"num_boxes": 0, "num_class_ids": 0}),),
    overflows=(),
    faults={
        "fewer-classes": ({"num_class_ids": 4}, "num_class_ids"),
        "more-classes": ({"num_class_ids": 6}, "num_class_ids"),
    },
    larger={"num_boxes": 1500, "num_class_ids": 1500},
)


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    num_boxes = size_between(rng, 1, 2**31 - 1)
    threshold = {"iou_thresh": 0.5, "iou_threshold": 0.5}
    return {"num_boxes": num_boxes, "num_class_ids": num_boxes * int(rng.integers(2)), **threshold}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's: so many bytes a box, counters, and on CUDA the overlaps of a block."""
    boxes, is_wide = values["num_boxes"], symbol.variant.types["T"] == "f64"
    has_scores = symbol.operator.name != "nms"
    if backend == "cpu":
        each = (160 if is_wide else 96) if has_scores else (128 if is_wide else 64)
        return 1, each * boxes + 256 * KIB
    each = (128 if is_wide else 80) if has_scores else (80 if is_wide else 48)
    return 1, each * boxes + min(boxes, 8192) * KIB + KIB


def some_boxes(count: int, dtype: Any) -> Any:
    """Rows in quarters, most of which overlap others."""
    numbers = np.arange(2 * count).reshape(count, 2)
    low = numbers * 37 % 23 / 4
    return np.concatenate([low, low + (numbers * 11 % 17 + 1) / 4], axis=1).astype(dtype)


def calls(dtype: Any) -> dict[str, Call]:
    """Twelve boxes, of one class and of several."""
    boxes = some_boxes(12, dtype)
    scores = (np.arange(12) * 5 % 8 / 8).astype(dtype)
    threshold = {"iou_threshold": 0.25}
    plain = Call(pybaracuda.nms, {"boxes": boxes, "scores": scores}, threshold, 2)
    idxs = (np.arange(12) % 3).astype(np.int64)
    batched = Call(pybaracuda.batched_nms, {"boxes": boxes, "scores": scores, "idxs": idxs}, threshold, 2)
    return {
        "nms": plain,
        "nms_with_mask": plain._replace(options={**threshold, "return_mask": True}, outputs=3),
        "batched_nms": batched,
        "batched_nms_with_mask": batched._replace(
            arrays={**batched.arrays, "idxs": idxs.astype(np.int32)},
            options={**threshold, "return_mask": True},
            outputs=3,
        ),
        "nms_sorted": Call(pybaracuda.nms_sorted, {"boxes": boxes}, threshold, 2),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    return {
        "nms": PlanCase(
            pybaracuda.NmsPlan,
            pybaracuda.NmsDescriptor(12, 0.25, element),
            "nms_sorted",
            ("boxes",),
            ("keep_mask", "count"),
            ("num_boxes", "iou_thresh", "element"),
        ),
        "nms_with_scores": PlanCase(
            pybaracuda.NmsWithScoresPlan,
            pybaracuda.NmsWithScoresDescriptor(12, 12, 0.25, element),
            "batched_nms_with_mask",
            ("boxes", "scores", "class_ids"),
            ("keep", "count", "keep_mask"),
            ("num_boxes", "num_class_ids", "iou_threshold", "element", "index_element"),
            "i32",
        ),
    }


def check_in_order(a: Arrays) -> None:
    # The C argument is a float, for float64 boxes too.
    threshold = float(np.float32(a.values["iou_thresh"]))
    keep = definitions.nms(a.boxes, None, threshold, dtype=coordinates_of(a.boxes.dtype))
    assert_same_bits(a.keep_mask, definitions.mask_of(keep, len(a.boxes)))
    assert_same_bits(a.count, np.array([len(keep)], np.int32))


def check_with_scores(a: Arrays) -> None:
    class_ids = a.class_ids if len(a.class_ids) else None
    keep = definitions.nms(a.boxes, a.scores, a.values["iou_threshold"], class_ids, dtype=coordinates_of(a.boxes.dtype))
    assert_same_bits(a.keep, definitions.padded(keep, len(a.boxes), a.keep.dtype))
    assert_same_bits(a.count, np.array([len(keep)], np.int32))
    assert_same_bits(a.keep_mask, definitions.mask_of(keep, len(a.boxes)))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Arrays of other shapes and dtypes."""
    arrays = calls["batched_nms"].arrays
    for name in ("nms", "batched_nms", "nms_sorted"):
        text = r"boxes has shape \(12, 3\); wanted \[N, 4\]"
        yield Refusal(name, {"boxes": arrays["boxes"][:, :3].copy()}, ValueError, text)
    yield Refusal("nms", {"scores": arrays["scores"][:11].copy()}, ValueError, r"scores has shape \(11,\)")
    wide = arrays["scores"].astype(np.float64)
    yield Refusal("nms", {"scores": wide}, TypeError, "scores has dtype float64; wanted float32")
    yield Refusal("batched_nms", {"idxs": arrays["idxs"][:11].copy()}, ValueError, r"idxs has shape \(11,\)")
    small = arrays["idxs"].astype(np.int8)
    yield Refusal("batched_nms", {"idxs": small}, TypeError, "idxs has dtype int8; wanted int32 or int64")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.NmsWithScoresDescriptor

RECORD = Record(
    families=("nms",),
    baselines={"nms": IN_ORDER, "nms_with_scores": WITH_SCORES},
    checks={"nms": check_in_order, "nms_with_scores": check_with_scores},
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "nms": "boxes scores iou_threshold return_mask",
        "batched_nms": "boxes scores idxs iou_threshold return_mask",
        "nms_sorted": "boxes iou_threshold",
    },
    calls=calls,
    plans=plans,
    floats_only={"nms": ("boxes", "scores"), "batched_nms": ("boxes", "scores"), "nms_sorted": ("boxes",)},
    bad_arrays=bad_arrays,
    bad_options=(
        ("nms", "iou_threshold", "0.5", TypeError, "iou_threshold: wanted a number"),
        ("nms", "return_mask", "yes", TypeError, "return_mask: wanted a bool"),
        ("batched_nms", "iou_threshold", None, TypeError, "iou_threshold: wanted a number"),
        ("nms_sorted", "iou_threshold", None, TypeError, "iou_threshold: wanted a number"),
    ),
    bad_descriptors=(
        (lambda: DESCRIPTOR(1.0, 1, 0.5), TypeError, "num_boxes: wanted int"),
        (lambda: DESCRIPTOR(1, 1, "0.5"), TypeError, "iou_threshold: wanted float"),
    ),
    bad_problems=(
        (DESCRIPTOR(-1, 0, 0.5), INVALID, "num_boxes is -1; wanted"),
        (DESCRIPTOR(3, 2, 0.5), INVALID, "num_class_ids is 2; wanted 0 or num_boxes, which is 3"),
        (DESCRIPTOR(3, 3, 0.5, "s8"), pybaracuda.UnsupportedError, "no variant s8"),
        (pybaracuda.NmsDescriptor(-1, 0.5), INVALID, "num_boxes is -1; wanted"),
    ),
    not_in_torch=frozenset({"nms"} if available("torchvision") else {"nms", "nms_with_scores"}),
    not_in_jax=frozenset({"nms", "nms_with_scores"}),
)
