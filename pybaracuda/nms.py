# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from . import _call
from ._arrays import Operand, read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor, IndexedDescriptor
from ._plan import Plan

__all__ = [
    "NmsDescriptor",
    "NmsPlan",
    "NmsWithScoresDescriptor",
    "NmsWithScoresPlan",
    "batched_nms",
    "nms",
    "nms_sorted",
]

_INDICES = ("i32", "i64")


@dataclass(frozen=True, slots=True)
class NmsDescriptor(Descriptor):
    """Non-maximum suppression of boxes that stand in descending order of their scores.

    Parameters
    ----------
    num_boxes : int
        Boxes.
    iou_thresh : float
        Overlap above which a box is suppressed, rounded to float32; any number, NaN suppresses nothing.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of the boxes.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    num_boxes: int
    iou_thresh: float
    element: str = "f32"

    operator: ClassVar[str] = "nms"

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        # -0.0 is the same problem as 0.0.
        object.__setattr__(self, "iou_thresh", self.iou_thresh + 0.0)


@dataclass(frozen=True, slots=True)
class NmsWithScoresDescriptor(IndexedDescriptor):
    """Non-maximum suppression of boxes in any order, in descending order of their scores.

    Parameters
    ----------
    num_boxes : int
        Boxes.
    num_class_ids : int
        `num_boxes`, or 0: all boxes are of one class.
    iou_threshold : float
        Overlap above which a box is suppressed; any number, NaN suppresses nothing.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of boxes and scores.
    index_element : {"i32", "i64"}
        Dtype of class ids and of the indices of what is kept.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    num_boxes: int
    num_class_ids: int
    iou_threshold: float
    element: str = "f32"
    index_element: str = "i32"

    operator: ClassVar[str] = "nms_with_scores"

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        object.__setattr__(self, "iou_threshold", self.iou_threshold + 0.0)


class NmsPlan(Plan):
    """Tensors ``boxes`` [num_boxes, 4], ``keep_mask`` [num_boxes] in uint8 and ``count`` [1] in int32."""

    __slots__ = ()
    descriptor_type = NmsDescriptor
    category = "image"
    sums = False


class NmsWithScoresPlan(Plan):
    """Tensors ``boxes`` [num_boxes, 4], ``scores`` [num_boxes] and ``class_ids`` [num_class_ids], and three outputs.

    ``keep`` [num_boxes] in the dtype of the class ids, ``count`` [1] in int32 and ``keep_mask`` [num_boxes] in uint8.
    """

    __slots__ = ()
    descriptor_type = NmsWithScoresDescriptor
    category = "image"
    sums = False


def _check_boxes(shape: tuple[int, ...]) -> int:
    """Answer how many boxes there are."""
    if len(shape) != 2 or shape[1] != 4:
        raise ValueError(f"boxes has shape {shape}; wanted [N, 4]")
    return shape[0]


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_sorted(device: int, shape: tuple[int, ...], dtype: str, iou_threshold: float) -> Prepared:
    num_boxes = _check_boxes(shape)
    element = _call.element_of("boxes", dtype)
    kernel = _call.kernel_for(NmsDescriptor(num_boxes, iou_threshold, element), device)
    return Prepared(kernel, [Output((num_boxes,), "u8", "u8"), Output((1,), "i32", "i32")])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    shape: tuple[int, ...],
    dtype: str,
    scores_shape: tuple[int, ...],
    scores_dtype: str,
    idxs_shape: tuple[int, ...],
    index: str,
    iou_threshold: float,
    return_mask: bool,
) -> Prepared:
    """Prepare a call with class ids, or, where `idxs_shape` is that of no element, with none."""
    num_boxes = _check_boxes(shape)
    element = _call.element_of("boxes", dtype)
    _call.check_shape("scores", scores_shape, (num_boxes,))
    _call.element_of("scores", scores_dtype, (element,))
    _call.element_of("idxs", index, _INDICES)
    if idxs_shape != (0,):
        _call.check_shape("idxs", idxs_shape, (num_boxes,))
    descriptor = NmsWithScoresDescriptor(num_boxes, idxs_shape[0], iou_threshold, element, index)
    outputs = [
        Output((num_boxes,), index, index),
        Output((1,), "i32", "i32"),
        Output((num_boxes,), "u8", "u8", wanted=return_mask),
    ]
    return Prepared(_call.kernel_for(descriptor, device), outputs)


def suppress(
    boxes: Any,
    scores: Any,
    idxs: Any,
    iou_threshold: float,
    *,
    has_idxs: bool,
    return_mask: bool = False,
    out: Any = None,
    stream: Any = None,
    index: str = "i32",
) -> tuple[Any, ...]:
    """Run with class ids, whose dtype the indices get, or with none and indices of `index`."""
    wants_mask = _call.flag("return_mask", return_mask)
    first = read("boxes", boxes, stream)
    second = read("scores", scores, stream, first)
    if not has_idxs:
        # Of no dtype, so that no output is made like it.
        classes = Operand("idxs", None, first.adapter, 0, (0,), None, "none", first.device, False)
    else:
        classes = read("idxs", idxs, stream, first)
        index = classes.dtype
        _call.check_shape("idxs", classes.shape, second.shape)
    prepared = prepare(
        first.device,
        first.shape,
        first.dtype,
        second.shape,
        second.dtype,
        classes.shape,
        index,
        _call.number("iou_threshold", iou_threshold),
        wants_mask,
    )
    names = ("keep", "count", "keep_mask")[: 3 if wants_mask else 2]
    outs = _call.outs_of(out, names)
    return tuple(prepared.launch((first, second, classes), (*outs, None)[:3], stream)[: len(names)])


def nms(
    boxes: Any, scores: Any, iou_threshold: float, *, return_mask: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Keep of boxes that overlap the one with the highest score, as ``torchvision.ops.nms`` does.

    Parameters
    ----------
    boxes : array, [N, 4]
        Rows (x1, y1, x2, y2) in float32, float64, float16 or bfloat16.
    scores : array, [N]
        In the dtype of `boxes`; larger is better.
    iou_threshold : float
        A box goes if its intersection over union with a kept box of a higher score is larger. Any number; NaN
        suppresses nothing.
    return_mask : bool
        Whether to answer also a mask of what is kept.
    out : (array, array), optional
        Dense arrays, or None, that receive the results, with `return_mask` three; on the device of `boxes`. Not for
        JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the boxes' framework.

    Returns
    -------
    keep : array, [N]
        Indices of the kept boxes in int32, the highest score first, equal scores by index; then -1.
    count : array, [1]
        How many boxes are kept, in int32. It stays on the device: ``keep[: int(count[0])]`` waits for it.
    keep_mask : array, [N]
        With `return_mask`: 1 for a box that is kept, else 0, in uint8.

    Raises
    ------
    TypeError
        If an argument is no array or has a wrong dtype.
    ValueError
        If shapes do not fit, arrays are on different devices, or `out` cannot be written.

    Notes
    -----
    The overlap is formed in float32 (float64 for float64), every operation rounded once, and compared with the
    threshold exactly. A box with a NaN is kept and suppresses nothing; two boxes without area suppress nothing, since
    0 / 0 is NaN; reversed and infinite boxes have the area that (x2 - x1) (y2 - y1) gives them. NaN scores come first,
    and -0 equals 0. Nothing is differentiable.

    Strided arrays are copied first. Bit-stable: the same inputs give the same bits on every run, thread count, GPU and
    backend. On CUDA the host waits for nothing, so calls can be captured into a graph. May be called from any number of
    threads.

    Defined by torchvision 0.26 on the CPU.
    """
    return suppress(boxes, scores, None, iou_threshold, has_idxs=False, return_mask=return_mask, out=out, stream=stream)


def batched_nms(
    boxes: Any,
    scores: Any,
    idxs: Any,
    iou_threshold: float,
    *,
    return_mask: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Keep of boxes of one class that overlap the one with the highest score, as ``torchvision.ops.batched_nms``.

    Parameters
    ----------
    boxes, scores, iou_threshold, return_mask, out, stream
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
        As :func:`nms`.

    Notes
    -----
    Classes are compared as integers: coordinates are not moved apart, which would round them. The rest as for
    :func:`nms`. May be called from any number of threads.
    """
    return suppress(boxes, scores, idxs, iou_threshold, has_idxs=True, return_mask=return_mask, out=out, stream=stream)


def nms_sorted(boxes: Any, iou_threshold: float, *, out: Any = None, stream: Any = None) -> Any:
    """Keep of boxes that overlap the first one: :func:`nms` of boxes that stand in descending order of their scores.

    Parameters
    ----------
    boxes : array, [N, 4]
        Rows (x1, y1, x2, y2) in float32, float64, float16 or bfloat16, the best box first.
    iou_threshold : float
        As in :func:`nms`; rounded to float32, for float64 boxes too.
    out : (array, array), optional
        Dense arrays, or None, that receive the results, on the device of `boxes`. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the boxes' framework.

    Returns
    -------
    keep_mask : array, [N]
        1 for a box that is kept, else 0, in uint8.
    count : array, [1]
        How many boxes are kept, in int32.

    Raises
    ------
    TypeError, ValueError
        As :func:`nms`.

    Notes
    -----
    As for :func:`nms`. May be called from any number of threads.
    """
    first = read("boxes", boxes, stream)
    prepared = prepare_sorted(first.device, first.shape, first.dtype, _call.number("iou_threshold", iou_threshold))
    return tuple(prepared.launch((first,), _call.outs_of(out, ("keep_mask", "count")), stream))
