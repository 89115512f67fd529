# SPDX-License-Identifier: Apache-2.0
"""Losses of classification: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _abi, _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor, IndexedDescriptor
from ._errors import InvalidProblemError, shown
from ._plan import Plan

__all__ = [
    "CrossEntropyBackwardDescriptor",
    "CrossEntropyBackwardPlan",
    "CrossEntropyDescriptor",
    "CrossEntropyPlan",
    "NllLossBackwardDescriptor",
    "NllLossBackwardPlan",
    "NllLossDescriptor",
    "NllLossPlan",
    "cross_entropy",
    "cross_entropy_backward",
    "nll_loss",
    "nll_loss_backward",
]

REDUCTIONS = ("none", "mean", "sum")
# What targets of a dtype are converted to; None is native.
_TARGET_CASTS = {"i32": None, "i64": None, "s8": "i32", "u8": "i32", "s16": "i32", "u16": "i32"}


@dataclass(frozen=True, slots=True)
class NllLossDescriptor(IndexedDescriptor):
    """A negative log-likelihood of target classes.

    Parameters
    ----------
    n, c, d : int
        Rows or images, classes, elements of an image; 1 for rows.
    has_weight : int
        1 if classes have weights, else 0.
    ignore_index : int
        The target of elements that do not count; any.
    reduction : int
        0 none, 1 mean, 2 sum.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input, weights and losses.
    index_element : {"i32", "i64"}
        Dtype of the targets.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    n: int
    c: int
    d: int
    has_weight: int = 0
    ignore_index: int = -100
    reduction: int = 1
    element: str = "f32"
    index_element: str = "i64"

    operator: ClassVar[str] = "nll_loss"

    @property
    def absent_tensors(self) -> frozenset[str]:
        """The weights, where there are none."""
        return frozenset() if self.has_weight else frozenset({"weight"})

    def tensor_shape(self, tensor: _abi.Tensor) -> tuple[int, ...]:
        """Answer a tensor's shape; those of losses and weights are more than expressions of extents."""
        if tensor.name in ("output", "grad_output"):
            return (self.n, self.d) if self.reduction == 0 else (1, 1)
        return Descriptor.tensor_shape(self, tensor)


@dataclass(frozen=True, slots=True)
class NllLossBackwardDescriptor(NllLossDescriptor):
    """The gradient of a negative log-likelihood; the fields are those of :class:`NllLossDescriptor`."""

    operator: ClassVar[str] = "nll_loss_backward"


@dataclass(frozen=True, slots=True)
class CrossEntropyDescriptor(NllLossDescriptor):
    """A cross entropy between logits and target classes.

    The other fields are those of :class:`NllLossDescriptor`.

    Parameters
    ----------
    label_smoothing : float
        Share of the target that all classes have alike; finite.
    """

    label_smoothing: float = 0.0

    operator: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        # -0.0 is the same problem as 0.0.
        object.__setattr__(self, "label_smoothing", self.label_smoothing + 0.0)


@dataclass(frozen=True, slots=True)
class CrossEntropyBackwardDescriptor(CrossEntropyDescriptor):
    """The gradient of a cross entropy; the fields are those of :class:`CrossEntropyDescriptor`."""

    operator: ClassVar[str] = "cross_entropy_backward"


class NllLossPlan(Plan):
    """Tensors ``input`` [n, c, d], ``target`` [n, d], ``weight`` [1, c], and three outputs.

    ``output`` [n, d], or [1, 1] with a reduction, ``total_weight`` [1] in the dtype of sums, ``num_dropped`` [1] in the
    dtype of the targets.
    """

    __slots__ = ()
    descriptor_type = NllLossDescriptor
    category = "loss"


class NllLossBackwardPlan(Plan):
    """Tensors ``grad_output``, ``target`` [n, d], ``weight`` [1, c], ``total_weight`` [1], ``grad_input`` [n, c, d]."""

    __slots__ = ()
    descriptor_type = NllLossBackwardDescriptor
    category = "loss"
    sums = False


class CrossEntropyPlan(Plan):
    """Tensors ``input`` [n, c, d], ``target`` [n, d], ``weight`` [1, c], and four outputs.

    Those of :class:`NllLossPlan` and, behind ``output``, ``log_sum_exp`` [n, d] in the dtype of sums.
    """

    __slots__ = ()
    descriptor_type = CrossEntropyDescriptor
    category = "loss"


class CrossEntropyBackwardPlan(Plan):
    """Tensors ``grad_output``, ``input`` [n, c, d], ``target`` [n, d], ``weight`` [1, c], and three more.

    ``log_sum_exp`` [n, d] and ``total_weight`` [1] of the forward call, ``grad_input`` [n, c, d].
    """

    __slots__ = ()
    descriptor_type = CrossEntropyBackwardDescriptor
    category = "loss"


# An operand as far as it is checked before a call: shape and dtype, or None where there is no such operand.
Given = tuple[tuple[int, ...], str] | None


def wide_of(element: str) -> str:
    """Name the dtype of sums."""
    return "f64" if element == "f64" else "f32"


def elements_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Answer the shape of the targets of an input: without the axis of the classes."""
    if not shape:
        raise ValueError(f"{name} has shape (); wanted [C], [N, C] or [N, C, ...]")
    return () if len(shape) == 1 else (shape[0], *shape[2:])


def _fields(
    name: str, shape: tuple[int, ...], element: str, target: tuple[tuple[int, ...], str], weight: Given
) -> tuple[dict[str, Any], str | None]:
    """Check targets and weights; answer a descriptor's fields and what the targets are converted to."""
    elements = elements_shape(name, shape)
    _call.check_shape("target", target[0], elements)
    _call.element_of("target", target[1], tuple(_TARGET_CASTS))
    n, c, d = (1, shape[0], 1) if len(shape) == 1 else (shape[0], shape[1], prod(shape[2:]))
    if weight is not None:
        _call.check_shape("weight", weight[0], (c,))
        _call.element_of("weight", weight[1], (element,), why=f", the dtype of {name}")
    cast = _TARGET_CASTS[target[1]]
    fields = {
        "n": n, "c": c, "d": d, "has_weight": int(weight is not None), "element": element,
        "index_element": cast or target[1],
    }  # fmt: skip
    return fields, cast


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    shape: tuple[int, ...],
    dtype: str,
    target: tuple[tuple[int, ...], str],
    weight: Given,
    ignore_index: int,
    reduction: str,
    label_smoothing: float | None,
    all_wanted: bool,
) -> Prepared:
    """Prepare a forward call, by logits where `label_smoothing` is a number."""
    element = _call.element_of("input", dtype)
    fields, cast = _fields("input", shape, element, target, weight)
    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": REDUCTIONS.index(reduction)}
    wide, elements = wide_of(element), elements_shape("input", shape)
    descriptor: NllLossDescriptor
    outputs = [Output(elements if reduction == "none" else (), element, element)]
    if label_smoothing is None:
        descriptor = NllLossDescriptor(**fields, **options)
    else:
        descriptor = CrossEntropyDescriptor(**fields, **options, label_smoothing=label_smoothing)
        outputs.append(Output(elements, wide, wide, wanted=all_wanted))
    outputs.append(Output((1,), wide, wide, wanted=all_wanted))
    outputs.append(Output((1,), descriptor.index_element, descriptor.index_element, wanted=all_wanted))
    casts = (None, cast) if weight is None else (None, cast, None)
    return Prepared(_call.kernel_for(descriptor, device), outputs, casts=casts)


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    shape: tuple[int, ...],
    grad_output: tuple[tuple[int, ...], str],
    target: tuple[tuple[int, ...], str],
    weight: Given,
    total_weight: tuple[tuple[int, ...], str],
    ignore_index: int,
    reduction: str,
    of_logits: tuple[str, tuple[tuple[int, ...], str], float] | None,
) -> Prepared:
    """Prepare a gradient; `of_logits` has the logits' dtype, the sums of exponentials and the smoothing."""
    element = _call.element_of("grad_output", grad_output[1])
    if of_logits is not None:
        _call.element_of("input", of_logits[0], (element,), why=", the dtype of grad_output")
    fields, cast = _fields("input", shape, element, target, weight)
    wide, elements = wide_of(element), elements_shape("input", shape)
    _call.check_shape("grad_output", grad_output[0], elements if reduction == "none" else ())
    if total_weight[0]:
        _call.check_shape("total_weight", total_weight[0], (1,))
    _call.element_of("total_weight", total_weight[1], (wide,))
    options: dict[str, Any] = {"ignore_index": ignore_index, "reduction": REDUCTIONS.index(reduction)}
    descriptor: NllLossDescriptor
    weights: tuple[str | None, ...] = () if weight is None else (None,)
    if of_logits is None:
        descriptor = NllLossBackwardDescriptor(**fields, **options)
        casts: tuple[str | None, ...] = (None, cast, *weights, None)
    else:
        _, log_sum_exp, label_smoothing = of_logits
        _call.check_shape("log_sum_exp", log_sum_exp[0], elements)
        _call.element_of("log_sum_exp", log_sum_exp[1], (wide,))
        descriptor = CrossEntropyBackwardDescriptor(**fields, **options, label_smoothing=label_smoothing)
        casts = (None, None, cast, *weights, None, None)
    return Prepared(_call.kernel_for(descriptor, device), [Output(shape, element, element)], casts=casts)


def reduction_of(value: Any) -> str:
    """Check the name of a reduction."""
    if not isinstance(value, str) or value not in REDUCTIONS:
        raise ValueError(f"reduction is {shown(value)}; wanted one of {', '.join(REDUCTIONS)}")
    return value


def smoothing_of(value: Any) -> float:
    """Check a share of smoothed labels."""
    number = _call.number("label_smoothing", value)
    if 0.0 <= number <= 1.0:
        return number
    raise InvalidProblemError(f"label_smoothing is {shown(value)}; wanted 0..1")


def _forward(
    input: Any,
    target: Any,
    weight: Any,
    ignore_index: Any,
    reduction: Any,
    label_smoothing: float | None,
    return_sums: Any,
    out: Any,
    stream: Any,
) -> Any:
    names: tuple[str, ...] = ("output", "total_weight", "num_dropped")
    if label_smoothing is not None:
        names = ("output", "log_sum_exp", "total_weight", "num_dropped")
    all_wanted = _call.flag("return_sums", return_sums)
    first = read("input", input, stream)
    operands = [first, read("target", target, stream, first)]
    if weight is not None:
        operands.append(read("weight", weight, stream, first))
    prepared = prepare(
        first.device,
        first.shape,
        first.dtype,
        (operands[1].shape, operands[1].dtype),
        None if weight is None else (operands[2].shape, operands[2].dtype),
        _call.whole("ignore_index", ignore_index),
        reduction_of(reduction),
        label_smoothing,
        all_wanted,
    )
    if not all_wanted:
        return prepared.launch(tuple(operands), (out, *(None,) * (len(names) - 1)), stream)[0]
    return tuple(prepared.launch(tuple(operands), _call.outs_of(out, names), stream))


def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    return_sums: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the negative log-likelihood of target classes, as ``torch.nn.functional.nll_loss`` does.

    Parameters
    ----------
    input : array, [C], [N, C] or [N, C, ...]
        Logarithms of the classes' probabilities in float32, float64, float16 or bfloat16.
    target : array, [], [N] or [N, ...]
        The class of each element in int32 or int64; narrower integers are converted by a copy.
    weight : array, [C], optional
        A weight for each class in the input's dtype.
    ignore_index : int
        The target of elements that do not count; it need not be a class.
    reduction : {"mean", "sum", "none"}
        The sum over all elements, divided by the sum of their classes' weights or not, or one loss for each.
    return_sums : bool
        Whether to answer also what :func:`nll_loss_backward` needs, and how many targets were dropped.
    out : array, optional
        Dense array that receives the result, with `return_sums` a tuple of three, or None in place of one. Not for
        JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    output : array, [], or of the target's shape
        Of the input's kind, dtype and device.
    total_weight : array, [1]
        With `return_sums`: the sum of the weights of the elements' classes in float32, for float64 in float64; 0
        without a reduction.
    num_dropped : array, [1]
        With `return_sums`: how many targets are neither `ignore_index` nor a class, in the target's dtype.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that is never taken.
    ValueError
        If shapes do not fit, `reduction` is none, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range.

    Notes
    -----
    An element whose target is no class is dropped: it does not count, and no memory is read by it. A mean of nothing is
    NaN, a sum 0. float16 and bfloat16 are summed in float32.

    Elements are added in pairs, in row-major order: the sum of 2^k elements whose first one's number is a multiple of
    2^k is the sum of its two halves. So the same inputs give the same bits on every run, thread count, GPU and backend.
    Strided arrays are copied first. May be called from any number of threads.
    """
    return _forward(input, target, weight, ignore_index, reduction, None, return_sums, out, stream)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    return_sums: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the cross entropy between logits and target classes, as ``torch.nn.functional.cross_entropy`` does.

    Parameters
    ----------
    input : array, [C], [N, C] or [N, C, ...]
        Logits of the classes in float32, float64, float16 or bfloat16. They are read once.
    target, weight, ignore_index, reduction
        As :func:`nll_loss` takes them; targets are classes, not probabilities.
    label_smoothing : float
        Share of the target, from 0 to 1, that all classes have alike.
    return_sums : bool
        Whether to answer also what :func:`cross_entropy_backward` needs, and how many targets were dropped.
    out : array, optional
        Dense array that receives the result, with `return_sums` a tuple of four, or None in place of one. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    output : array, [], or of the target's shape
        Of the input's kind, dtype and device.
    log_sum_exp : array, of the target's shape
        With `return_sums`: the logarithm of the sum of each element's exponentials in float32, for float64 in float64;
        0 for an element that does not count.
    total_weight, num_dropped
        As :func:`nll_loss` answers them.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`nll_loss`.

    Notes
    -----
    As :func:`nll_loss`. Logits of 16 bits are not rounded again before the loss. What stands in the input for an
    element that does not count is not looked at. Exponentials and logarithms err by less than one unit in the last
    place and have the same bits everywhere. May be called from any number of threads.
    """
    smoothing = smoothing_of(label_smoothing)
    return _forward(input, target, weight, ignore_index, reduction, smoothing, return_sums, out, stream)


def nll_loss_backward(
    grad_output: Any,
    target: Any,
    total_weight: Any,
    input_shape: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`nll_loss` with respect to its input.

    Parameters
    ----------
    grad_output : array, [], or of the target's shape
        Gradient of the result in float32, float64, float16 or bfloat16.
    target : array
        The forward call's.
    total_weight : array, [1] or []
        What the forward call answered; its value is read for a mean alone.
    input_shape : sequence of int
        Shape of the forward's input.
    weight, ignore_index, reduction
        The forward call's.
    out : array, optional
        Dense array of the input's shape and the gradient's dtype and device; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, of `input_shape`
        Of the gradient's kind, dtype and device; `out` if given. 0 but for the targets' classes.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`nll_loss`.

    Notes
    -----
    Nothing is added; bit-stable on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    operands = [first, read("target", target, stream, first)]
    if weight is not None:
        operands.append(read("weight", weight, stream, first))
    operands.append(read("total_weight", total_weight, stream, first))
    prepared = prepare_backward(
        first.device,
        _call.whole_tuple("input_shape", input_shape),
        (first.shape, first.dtype),
        (operands[1].shape, operands[1].dtype),
        None if weight is None else (operands[2].shape, operands[2].dtype),
        (operands[-1].shape, operands[-1].dtype),
        _call.whole("ignore_index", ignore_index),
        reduction_of(reduction),
        None,
    )
    return prepared.launch(tuple(operands), (out,), stream)[0]


def cross_entropy_backward(
    grad_output: Any,
    input: Any,
    target: Any,
    log_sum_exp: Any,
    total_weight: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`cross_entropy` with respect to its input.

    Parameters
    ----------
    grad_output : array, [], or of the target's shape
        Gradient of the result in the input's dtype.
    input, target : array
        The forward call's.
    log_sum_exp, total_weight : array
        What the forward call answered; the value of `total_weight` is read for a mean alone.
    weight, ignore_index, reduction, label_smoothing
        The forward call's.
    out : array, optional
        Dense array of the input's shape, dtype and device; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array, of the input's shape
        Of the gradient's kind, dtype and device; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`cross_entropy`.

    Notes
    -----
    The logits are read once. Bit-stable on every run, thread count, GPU and backend. May be called from any number of
    threads.
    """
    first = read("grad_output", grad_output, stream)
    logits = read("input", input, stream, first)
    operands = [first, logits, read("target", target, stream, first)]
    if weight is not None:
        operands.append(read("weight", weight, stream, first))
    sums = read("log_sum_exp", log_sum_exp, stream, first), read("total_weight", total_weight, stream, first)
    operands.extend(sums)
    prepared = prepare_backward(
        first.device,
        logits.shape,
        (first.shape, first.dtype),
        (operands[2].shape, operands[2].dtype),
        None if weight is None else (operands[3].shape, operands[3].dtype),
        (sums[1].shape, sums[1].dtype),
        _call.whole("ignore_index", ignore_index),
        reduction_of(reduction),
        (logits.dtype, (sums[0].shape, sums[0].dtype), smoothing_of(label_smoothing)),
    )
    return prepared.launch(tuple(operands), (out,), stream)[0]
