# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression of tensors; what it computes is in the array functions. Nothing here has a gradient."""

from __future__ import annotations

from typing import Any

import torch

from ..nms import suppress
from ._opaque import define

__all__ = ["batched_nms", "kept_indices", "nms"]


def kept_indices(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
    """Answer the indices of what is kept, as many as there are; the host waits for their number."""
    keep, count = suppress(boxes, scores, idxs, iou_threshold, has_idxs=idxs is not None, index="i64")
    return keep.narrow(0, 0, int(count.item()))


def _fake_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
    return boxes.new_empty([torch.library.get_ctx().new_dynamic_size()], dtype=torch.int64)


def _below_autograd(*args: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return _nms(*args)


_nms = define(
    "nms(Tensor boxes, Tensor scores, Tensor? idxs, float iou_threshold) -> Tensor",
    kept_indices,
    _fake_nms,
    _below_autograd,
)


def nms(boxes: Any, scores: Any, iou_threshold: float) -> Any:
    """Keep of boxes that overlap the one with the highest score, as ``torchvision.ops.nms`` does.

    Parameters
    ----------
    boxes : Tensor, [N, 4]
        Rows (x1, y1, x2, y2) in float32, float64, float16 or bfloat16.
    scores : Tensor, [N]
        In the dtype of `boxes`; larger is better.
    iou_threshold : float
        A box goes if its intersection over union with a kept box of a higher score is larger.

    Returns
    -------
    Tensor, [K]
        Indices of the kept boxes in int64, the highest score first, equal scores by index.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.nms``.

    Notes
    -----
    The shape depends on the data, so the host waits for the count, and a compiled program has a size that it does not
    know; ``pybaracuda.nms`` answers indices and count without waiting. The same indices on every run, thread count, GPU
    and backend. There is no gradient, and no rule for vmap.
    """
    return _nms(boxes, scores, None, iou_threshold)


def batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
    """Keep of boxes of one class that overlap the one with the highest score, as ``torchvision.ops.batched_nms``.

    Parameters
    ----------
    boxes, scores, iou_threshold
        As in :func:`nms`.
    idxs : Tensor, [N]
        The class of each box in any integer dtype: boxes of two classes never suppress each other.

    Returns
    -------
    Tensor, [K]
        Indices of the kept boxes over all classes in int64, the highest score first, equal scores by index.

    Raises
    ------
    TypeError, ValueError
        As :func:`nms`.

    Notes
    -----
    Classes are compared as integers: coordinates are not moved apart, which would round them. The rest as for
    :func:`nms`.
    """
    if not idxs.is_floating_point() and idxs.dtype != torch.int64:
        idxs = idxs.to(torch.int64)
    return _nms(boxes, scores, idxs, iou_threshold)
