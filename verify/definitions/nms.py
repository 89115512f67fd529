# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression as torchvision does it on the CPU: one box after the other, in the order of the scores.

Source: torchvision.ops.nms and batched_nms (0.26), csrc/ops/cpu/nms_kernel.cpp. What a box suppresses is decided by the
sign of a difference, so no bound on roundings would tell a right decision from a wrong one: the quotient is formed here
in the type that a kernel forms it in, each operation rounded once, as torchvision does, and decisions must be equal.
`margins` says how near to the threshold they were, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.dtypes import Array, in_float64


def _ordered(scores: Any) -> Array:
    """Indices in descending order of the scores, NaN first, equal ones as they come."""
    values = in_float64(scores)
    missing = np.isnan(values)
    return np.lexsort((-np.where(missing, 0.0, values), ~missing))


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of a box with others, in their dtype."""
    zero = others.dtype.type(0)
    # Where a NaN is, the area is one, and so is the quotient.
    width = np.maximum(np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0]), zero)
    height = np.maximum(np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1]), zero)
    inter = width * height
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    return np.asarray(inter / (area + areas - inter))


def nms(boxes: Any, scores: Any, iou_threshold: float, class_ids: Any = None, dtype: Any = np.float64) -> Array:
    """Indices of what is kept of boxes [N, 4], the highest score first; without scores the boxes are in order.

    `dtype` is the type in which overlaps are formed. A frozen symbol takes its threshold in float32: round it before.
    """
    values = np.asarray(boxes).astype(dtype).reshape(-1, 4)
    count = len(values)
    order = np.arange(count) if scores is None else _ordered(scores)
    classes = np.zeros(count, np.int64) if class_ids is None else np.asarray(class_ids)
    open_ = np.ones(count, bool)
    keep = []
    with np.errstate(all="ignore"):
        while len(order):
            first, rest = order[0], order[1:]
            keep.append(first)
            # An overlap is compared with the threshold as it is, not rounded to the overlap's type.
            overlaps = _overlaps(values[first], values[rest]).astype(np.float64)
            struck = (overlaps > iou_threshold) & (classes[rest] == classes[first])
            open_[rest[struck]] = False
            order = rest[open_[rest]]
    return np.array(keep, np.int64)


def margins(boxes: Any, iou_threshold: float) -> Array:
    """[N, N] differences of all boxes' overlaps in float64 and the threshold."""
    values = in_float64(boxes).reshape(-1, 4)
    with np.errstate(all="ignore"):
        return np.array([_overlaps(box, values) - iou_threshold for box in values]).reshape(len(values), len(values))


def mask_of(keep: Array, count: int) -> Array:
    """1 for each index that is kept, in uint8."""
    mask = np.zeros(count, np.uint8)
    mask[keep] = 1
    return mask


def padded(keep: Array, count: int, dtype: Any) -> Array:
    """The indices, then -1 up to `count`."""
    found = np.full(count, -1, dtype)
    found[: len(keep)] = keep
    return found
