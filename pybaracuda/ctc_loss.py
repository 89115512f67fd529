# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import IndexedDescriptor
from ._errors import InvalidProblemError
from ._plan import Plan

__all__ = [
    "CtcLossBackwardDescriptor",
    "CtcLossBackwardPlan",
    "CtcLossDescriptor",
    "CtcLossPlan",
    "ctc_loss",
    "ctc_loss_backward",
]

# What targets and lengths may be; those narrower than the kernel's are converted by a copy.
_INTEGERS = ("i32", "i64", "s8", "u8", "s16", "u16")


@dataclass(frozen=True, slots=True)
class CtcLossDescriptor(IndexedDescriptor):
    """A connectionist temporal classification.

    Parameters
    ----------
    t, n, c : int
        Time steps, sequences, classes.
    target_rows, target_columns : int
        Extents of the targets: a row for each sequence, or one row in which they stand one behind another.
    num_states : int
        Twice the number of labels that a target may have, and 1.
    blank : int
        The class that is no label.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of log_probs and their gradient.
    index_element : {"i32", "i64"}
        Dtype of targets and lengths.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    t: int
    n: int
    c: int
    target_rows: int
    target_columns: int
    num_states: int
    blank: int = 0
    element: str = "f32"
    index_element: str = "i64"

    operator: ClassVar[str] = "ctc_loss"


@dataclass(frozen=True, slots=True)
class CtcLossBackwardDescriptor(CtcLossDescriptor):
    """The gradient of a connectionist temporal classification.

    The other fields are those of :class:`CtcLossDescriptor`.

    Parameters
    ----------
    zero_infinity : int
        1 if the gradient of an infinite loss is 0, else 0.
    """

    zero_infinity: int = 0

    operator: ClassVar[str] = "ctc_loss_backward"


class CtcLossPlan(Plan):
    """Tensors ``log_probs`` [t, n, c], ``targets``, ``input_lengths`` [n], ``target_lengths`` [n], and two outputs.

    ``neg_log_likelihood`` [n] and ``log_alpha`` [n, t, num_states] in the dtype of sums; ``targets`` is
    [target_rows, target_columns].
    """

    __slots__ = ()
    descriptor_type = CtcLossDescriptor
    category = "loss"


class CtcLossBackwardPlan(Plan):
    """Tensors ``grad_output`` [n], those of :class:`CtcLossPlan` and ``grad_log_probs`` [t, n, c]."""

    __slots__ = ()
    descriptor_type = CtcLossBackwardDescriptor
    category = "loss"


# An operand as far as it is checked before a call: shape and dtype.
Given = tuple[tuple[int, ...], str]


def wide_of(element: str) -> str:
    """Name the dtype of sums."""
    return "f64" if element == "f64" else "f32"


def states_of(targets: tuple[int, ...], max_target_length: int | None) -> int:
    """Answer how many states a target of those has at most."""
    if max_target_length is None:
        if len(targets) != 2:
            raise ValueError("max_target_length is None; wanted a number, since the targets stand one behind another")
        max_target_length = targets[1]
    if not 0 <= max_target_length < 2**30:
        raise InvalidProblemError(f"max_target_length is {max_target_length}; wanted 0..{2**30 - 1}")
    return 2 * max_target_length + 1


def _fields(
    log_probs: Given, targets: Given, input_lengths: Given, target_lengths: Given, blank: int
) -> tuple[dict[str, Any], tuple[str | None, ...]]:
    """Check what both directions take; answer a descriptor's fields and what the integers are converted to."""
    element = _call.element_of("log_probs", log_probs[1])
    _call.check_rank("log_probs", log_probs[0], "[T, N, C]", 3)
    t, n, c = log_probs[0]
    integers = {"targets": targets, "input_lengths": input_lengths, "target_lengths": target_lengths}
    for name, (_, dtype) in integers.items():
        _call.element_of(name, dtype, _INTEGERS)
    for name in ("input_lengths", "target_lengths"):
        _call.check_shape(name, integers[name][0], (n,))
    if len(targets[0]) == 2:
        _call.check_shape("targets", targets[0], (n, targets[0][1]))
        rows, columns = targets[0]
    else:
        _call.check_rank("targets", targets[0], "[N, S] or [sum of the target_lengths]", 1)
        # Of one sequence there is no difference.
        rows, columns = 1, targets[0][0]
    if not 0 <= blank < max(c, 1):
        raise InvalidProblemError(f"blank is {blank}; wanted a class, 0..{c - 1}")
    index_element = "i64" if any(dtype == "i64" for _, dtype in integers.values()) else "i32"
    casts = tuple(None if dtype == index_element else index_element for _, dtype in integers.values())
    fields = {
        "t": t, "n": n, "c": c, "target_rows": rows, "target_columns": columns, "blank": blank, "element": element,
        "index_element": index_element,
    }  # fmt: skip
    return fields, casts


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    log_probs: Given,
    targets: Given,
    input_lengths: Given,
    target_lengths: Given,
    blank: int,
    max_target_length: int | None,
    all_wanted: bool,
) -> Prepared:
    """Prepare a forward call."""
    fields, casts = _fields(log_probs, targets, input_lengths, target_lengths, blank)
    num_states = states_of(targets[0], max_target_length)
    descriptor = CtcLossDescriptor(**fields, num_states=num_states)
    wide, (t, n, _) = wide_of(descriptor.element), log_probs[0]
    outputs = [Output((n,), wide, wide), Output((n, t, num_states), wide, wide, wanted=all_wanted)]
    return Prepared(_call.kernel_for(descriptor, device), outputs, casts=(None, *casts))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_output: Given,
    log_probs: Given,
    targets: Given,
    input_lengths: Given,
    target_lengths: Given,
    neg_log_likelihood: Given,
    log_alpha: Given,
    blank: int,
    zero_infinity: bool,
) -> Prepared:
    """Prepare a gradient."""
    fields, casts = _fields(log_probs, targets, input_lengths, target_lengths, blank)
    _call.check_rank("log_alpha", log_alpha[0], "[N, T, 2 L + 1]", 3)
    num_states = log_alpha[0][2]
    descriptor = CtcLossBackwardDescriptor(**fields, num_states=num_states, zero_infinity=int(zero_infinity))
    wide, (t, n, _) = wide_of(descriptor.element), log_probs[0]
    _call.check_shape("log_alpha", log_alpha[0], (n, t, num_states))
    for name, (shape, dtype) in {"grad_output": grad_output, "neg_log_likelihood": neg_log_likelihood}.items():
        _call.check_shape(name, shape, (n,))
        _call.element_of(name, dtype, (wide,))
    _call.element_of("log_alpha", log_alpha[1], (wide,))
    output = Output(log_probs[0], descriptor.element, descriptor.element)
    return Prepared(_call.kernel_for(descriptor, device), [output], casts=(None, None, *casts, None, None), primary=1)


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    *,
    max_target_length: int | None = None,
    return_log_alpha: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take the connectionist temporal classification loss of each sequence.

    As ``torch.nn.functional.ctc_loss`` does with ``reduction="none"``.

    Parameters
    ----------
    log_probs : array, [T, N, C]
        Logarithms of the classes' probabilities in float32, float64, float16 or bfloat16.
    targets : array, [N, S], or one axis
        Classes of the labels in int32 or int64, a row for each sequence or one target behind another; narrower
        integers are converted by a copy.
    input_lengths, target_lengths : array, [N]
        Time steps of each sequence and labels of each target, on the device of `log_probs`.
    blank : int
        The class that is no label.
    max_target_length : int, optional
        The most labels that a target may have. None is S; targets that stand one behind another do not say it.
    return_log_alpha : bool
        Whether to answer also what :func:`ctc_loss_backward` needs.
    out : array, optional
        Dense array that receives the result, with `return_log_alpha` a tuple of two, or None in place of one. Not for
        JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the framework of `log_probs`.

    Returns
    -------
    neg_log_likelihood : array, [N]
        Of the kind and device of `log_probs`, in float32, for float64 in float64; infinite where a target has no
        alignment with its sequence.
    log_alpha : array, [N, T, 2 max_target_length + 1]
        With `return_log_alpha`: logarithms of the probabilities of all beginnings of alignments, in the same dtype.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that is never taken.
    ValueError
        If shapes do not fit, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range.

    Notes
    -----
    A sequence with a length or a label that is out of range has the loss NaN, and no memory is read by it. float16 and
    bfloat16 are computed in float32. The same inputs give the same bits on every run, thread count, GPU and backend.
    Strided arrays are copied first. May be called from any number of threads.
    """
    all_wanted = _call.flag("return_log_alpha", return_log_alpha)
    first = read("log_probs", log_probs, stream)
    operands = (
        first,
        read("targets", targets, stream, first),
        read("input_lengths", input_lengths, stream, first),
        read("target_lengths", target_lengths, stream, first),
    )
    given = [(each.shape, each.dtype) for each in operands]
    most = None if max_target_length is None else _call.whole("max_target_length", max_target_length)
    prepared = prepare(first.device, *given, _call.whole("blank", blank), most, all_wanted)
    if not all_wanted:
        return prepared.launch(operands, (out, None), stream)[0]
    outs = _call.outs_of(out, ("neg_log_likelihood", "log_alpha"))
    return tuple(prepared.launch(operands, outs, stream))


def ctc_loss_backward(
    grad_output: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    neg_log_likelihood: Any,
    log_alpha: Any,
    blank: int = 0,
    zero_infinity: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`ctc_loss` with respect to `log_probs`, as PyTorch defines it.

    Parameters
    ----------
    grad_output : array, [N]
        Gradient of the losses in their dtype.
    log_probs, targets, input_lengths, target_lengths, blank
        The forward call's.
    neg_log_likelihood, log_alpha : array
        What the forward call answered.
    zero_infinity : bool
        Whether the gradient of an infinite loss is 0.
    out : array, optional
        Dense array of the shape, dtype and device of `log_probs`; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the framework of `log_probs`.

    Returns
    -------
    array, [T, N, C]
        Of the kind, dtype and device of `log_probs`; `out` if given. 0 at time steps that a sequence does not have.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`ctc_loss`.

    Notes
    -----
    It is that of `log_probs` which are logarithms of a softmax. A sequence with a length or a label that is out of
    range has the gradient NaN, and so has one whose loss is not finite. Bit-stable on every run, thread count, GPU and
    backend. May be called from any number of threads.
    """
    first = read("log_probs", log_probs, stream)
    others = {
        "targets": targets, "input_lengths": input_lengths, "target_lengths": target_lengths,
        "neg_log_likelihood": neg_log_likelihood, "log_alpha": log_alpha,
    }  # fmt: skip
    operands = (
        read("grad_output", grad_output, stream, first),
        first,
        *(read(name, array, stream, first) for name, array in others.items()),
    )
    given = [(each.shape, each.dtype) for each in operands]
    zero = _call.flag("zero_infinity", zero_infinity)
    prepared = prepare_backward(first.device, *given, _call.whole("blank", blank), zero)
    return prepared.launch(operands, (out,), stream)[0]
