# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression in JAX, which has no derivative; what it computes is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arrays import HOST
from .._call import Prepared, flag, number
from ..nms import prepare, prepare_sorted
from ._operation import Axes, KernelOperation, Spec, Tangents, Unfold, merged
from ._primitive import array_of, run

__all__ = ["batched_nms", "nms", "nms_sorted"]

_BOXES = ("k", "four")


def _images(size: int, boxes: int) -> Any:
    """Answer of boxes that stand image after image which one each is of."""
    return jnp.repeat(jnp.arange(size, dtype=jnp.int32), boxes)


def _classes(images: Any, idxs: Any) -> Any:
    """Number the classes of every image: boxes have one number if image and class are the same."""
    sorted_images, sorted_idxs, places = jax.lax.sort(
        (images, idxs, jnp.arange(len(images), dtype=jnp.int32)), num_keys=2, is_stable=True
    )
    begins = (sorted_images[1:] != sorted_images[:-1]) | (sorted_idxs[1:] != sorted_idxs[:-1])
    numbers = jnp.cumsum(jnp.concatenate([jnp.zeros(1, bool), begins]), dtype=idxs.dtype)
    return jnp.zeros_like(idxs).at[places].set(numbers, unique_indices=True)


def _kept_of_each(keep: Any, counts: Any, boxes: int) -> Any:
    """Answer the kept boxes of each image, its own numbers first to last, then -1, of those of all images."""
    size = len(counts)
    # Boxes of one image stay in their order; -1 comes last.
    _, sorted_keep = jax.lax.sort((jnp.where(keep < 0, size, keep // boxes), keep), num_keys=1, is_stable=True)
    begins = jnp.cumsum(counts) - counts
    column = jnp.arange(boxes, dtype=counts.dtype)
    found = sorted_keep[jnp.minimum(begins[:, None] + column, len(keep) - 1)]
    first = jnp.arange(size, dtype=keep.dtype)[:, None] * boxes
    return jnp.where(column < counts[:, None], found - first, -1)


@dataclass(frozen=True)
class _Suppression(KernelOperation):
    """What is kept of (boxes, scores, class ids), how many, and as a mask; ids are empty where there are no classes."""

    iou_threshold: float

    name = "nms"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare(HOST, *(each for spec in specs for each in spec), self.iou_threshold, True)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BOXES, ("k",), ("ids",)), (("k",), ("one",), ("k",)), frozenset(), frozenset())

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        # Boxes of two images meet as little as those of two classes.
        boxes, scores, idxs = operands
        number = boxes.shape[1]
        images = _images(size, number)
        classes = _classes(images, merged(idxs)) if idxs.shape[1] else images.astype(idxs.dtype)

        def unfold(results: Sequence[Any]) -> Sequence[Any]:
            mask = results[2].reshape((size, number))
            counts = mask.sum(axis=1, dtype=jnp.int32)
            keep = _kept_of_each(results[0], counts, number) if number else results[0].reshape((size, 0))
            return [keep, counts[:, None], mask]

        return self, [merged(boxes), merged(scores), classes], unfold

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return None, None, None


@dataclass(frozen=True)
class _SortedSuppression(KernelOperation):
    """What is kept of (boxes) as a mask, and how many."""

    iou_threshold: float

    name = "nms_sorted"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_sorted(HOST, *specs[0], self.iou_threshold)

    def axes(self, *specs: Spec) -> Axes:
        return Axes((_BOXES,), (("k",), ("one",)), frozenset(), frozenset())

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        # Equal scores leave boxes in their order, and the threshold is that of a C function without scores.
        (boxes,) = operands
        number = boxes.shape[1]
        arrays = [merged(boxes), jnp.zeros(size * number, boxes.dtype), _images(size, number)]

        def unfold(results: Sequence[Any]) -> Sequence[Any]:
            mask = results[2].reshape((size, number))
            return [mask, mask.sum(axis=1, dtype=jnp.int32)[:, None]]

        return _Suppression(float(np.float32(self.iou_threshold))), arrays, unfold

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return None, None


def _suppressed(boxes: Any, scores: Any, idxs: Any, iou_threshold: Any, return_mask: Any) -> tuple[Any, ...]:
    wants_mask = flag("return_mask", return_mask)
    operation = _Suppression(number("iou_threshold", iou_threshold))
    return run(operation, array_of(boxes), array_of(scores), idxs)[: 3 if wants_mask else 2]


def nms(boxes: Any, scores: Any, iou_threshold: float, *, return_mask: bool = False) -> Any:
    """Keep of boxes that overlap the one with the highest score, as ``torchvision.ops.nms`` does.

    Parameters
    ----------
    boxes : array, [N, 4]
        Rows (x1, y1, x2, y2) in float32, float64, float16 or bfloat16.
    scores : array, [N]
        In the dtype of `boxes`; larger is better.
    iou_threshold : float
        A box goes if its intersection over union with a kept box of a higher score is larger.
    return_mask : bool
        Whether to answer also a mask of what is kept.

    Returns
    -------
    keep : array, [N]
        Indices of the kept boxes in int32, the highest score first, equal scores by index; then -1.
    count : array, [1]
        How many boxes are kept, in int32.
    keep_mask : array, [N]
        With `return_mask`: 1 for a box that is kept, else 0, in uint8.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.nms``, when it is traced.

    Notes
    -----
    Nothing is differentiable. Under vmap all mapped problems are one call.
    """
    return _suppressed(boxes, scores, jnp.zeros((0,), jnp.int32), iou_threshold, return_mask)


def batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float, *, return_mask: bool = False) -> Any:
    """Keep of boxes of one class that overlap the one with the highest score, as ``torchvision.ops.batched_nms``.

    Parameters
    ----------
    boxes, scores, iou_threshold, return_mask
        As in :func:`nms`.
    idxs : array, [N]
        The class of each box in int32 or int64, any integers: boxes of two classes never suppress each other.

    Returns
    -------
    keep, count, keep_mask
        As :func:`nms` answers them, `keep` in the dtype of `idxs`: over all classes, the highest score first.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.batched_nms``, when it is traced.

    Notes
    -----
    As for :func:`nms`.
    """
    classes = array_of(idxs)
    if classes.shape != jnp.shape(scores):
        raise ValueError(f"idxs has shape {classes.shape}; wanted {jnp.shape(scores)}")
    return _suppressed(boxes, scores, classes, iou_threshold, return_mask)


def nms_sorted(boxes: Any, iou_threshold: float) -> Any:
    """Keep of boxes that overlap the first one: :func:`nms` of boxes that stand in descending order of their scores.

    Parameters
    ----------
    boxes : array, [N, 4]
        Rows (x1, y1, x2, y2) in float32, float64, float16 or bfloat16, the best box first.
    iou_threshold : float
        As in :func:`nms`; rounded to float32, for float64 boxes too.

    Returns
    -------
    keep_mask : array, [N]
        1 for a box that is kept, else 0, in uint8.
    count : array, [1]
        How many boxes are kept, in int32.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.nms_sorted``, when it is traced.

    Notes
    -----
    As for :func:`nms`.
    """
    return run(_SortedSuppression(number("iou_threshold", iou_threshold)), array_of(boxes))
