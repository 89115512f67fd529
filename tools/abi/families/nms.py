# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression, of boxes in the order of their scores and in any order, as the ABI states it."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, Operator, Scalar, Tensor, Variant, extent

_TOKENS = ("f32", "f64", "f16", "bf16")
_NUM_BOXES = extent("num_boxes", "boxes")
_COUNT = Tensor("count", "output", "i32", ("1",), "how many boxes are kept")
_RULE = (
    "A box is kept unless an earlier kept box overlaps it: inter / (area_a + area_b - inter) > {threshold}, where "
    "inter is max(0, min(x2) - max(x1)) max(0, min(y2) - max(y1)) and an area is (x2 - x1) (y2 - y1)."
)
_BAD_DATA = (
    "Boxes are data: a box with a NaN is kept and suppresses nothing; reversed, empty and infinite boxes have the "
    "areas that the formula gives them, and a quotient that is NaN, 0 / 0 say, suppresses nothing. {more}"
)
_EMPTY = "No boxes: count is 0."
_ARITHMETIC = (
    "The quotient is formed in f32 (f64 for f64), every operation rounded once, and compared with the threshold "
    "exactly. No atomics on floats."
)
_SOURCE = "torchvision.ops.{function} (0.26), on the CPU."

# Beside the poolings of boxes.
ORDER = 17

OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="nms",
        family="nms",
        summary="Non-maximum suppression of boxes that stand in descending order of their scores. "
        + _RULE.format(threshold="iou_thresh"),
        parameters=(
            _NUM_BOXES,
            Scalar("iou_thresh", "f32", "overlap above which a box is suppressed; any number, NaN suppresses nothing"),
            Tensor("boxes", "input", "T", ("num_boxes", "4"), "rows (x1, y1, x2, y2), the best box first"),
            Tensor("keep_mask", "output", "u8", ("num_boxes",), "1 for a box that is kept, 0 for another"),
            _COUNT,
        ),
        variants=tuple(Variant(token, {"T": token}) for token in _TOKENS),
        empty=_EMPTY,
        bad_data=_BAD_DATA.format(more="").strip(),
        workspace="On the CPU 64 bytes a box and 256 KiB (f64: 128 bytes, 256 KiB). On CUDA 48 bytes a box (f64: 80), "
        "and 1 KiB for each of the first 8192 boxes.",
        determinism=BIT_STABLE + _ARITHMETIC,
        source=_SOURCE.format(function="nms"),
    ),
    Operator(
        name="nms_with_scores",
        family="nms",
        summary="Non-maximum suppression of boxes in any order, in descending order of their scores, equal ones by "
        "index; with class_ids of the boxes of each class alone. " + _RULE.format(threshold="iou_threshold"),
        parameters=(
            _NUM_BOXES,
            Scalar("num_class_ids", "i32", "num_boxes, or 0: all boxes are of one class", low=0, high=2**31 - 1),
            Scalar(
                "iou_threshold", "f64", "overlap above which a box is suppressed; any number, NaN suppresses nothing"
            ),
            Tensor("boxes", "input", "T", ("num_boxes", "4"), "rows (x1, y1, x2, y2)"),
            Tensor("scores", "input", "T", ("num_boxes",), "larger is better; NaN is larger than every number"),
            Tensor("class_ids", "input", "I", ("num_class_ids",), "any integers; boxes of two never meet"),
            Tensor("keep", "output", "I", ("num_boxes",), "indices of the kept boxes, the best first, then -1"),
            _COUNT,
            Tensor("keep_mask", "output", "u8", ("num_boxes",), "1 for a box that is kept, 0 for another"),
        ),
        variants=tuple(
            Variant(infix + token, {"T": token, "I": index})
            for infix, index in (("", "i32"), ("i64idx_", "i64"))
            for token in _TOKENS
        ),
        empty=_EMPTY,
        bad_data=_BAD_DATA.format(more="NaN scores come first, by index; -0 equals 0."),
        workspace="On the CPU 96 bytes a box and 256 KiB (f64: 160 bytes, 256 KiB). On CUDA 80 bytes a box (f64: 128), "
        "and 1 KiB for each of the first 8192 boxes.",
        determinism=BIT_STABLE + _ARITHMETIC,
        source=_SOURCE.format(function="nms and batched_nms") + " Differs: classes are compared as integers; moving "
        "each to a place of its own, as batched_nms does for many boxes, rounds coordinates.",
    ),
)
