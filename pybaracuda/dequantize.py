# SPDX-License-Identifier: Apache-2.0
"""Dequantization: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._abi import OPERATORS
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._dtypes import FLOATS
from ._errors import InvalidProblemError
from ._plan import Plan

__all__ = [
    "DequantizePerChannelBackwardDescriptor",
    "DequantizePerChannelBackwardPlan",
    "DequantizePerChannelDescriptor",
    "DequantizePerChannelPlan",
    "dequantize_per_channel",
    "dequantize_per_channel_backward",
]

_MOST_AXES = 4
_QUANTIZED = tuple(dict.fromkeys(each.types["Q"] for each in OPERATORS["dequantize_per_channel"].variants.values()))
# Quantized types that ONNX and torch have and that are not wired yet.
_NOT_YET = tuple(each for each in ("s16", "u16", "i32") if each not in _QUANTIZED)
# What zero points of a dtype are converted to; None is native.
_ZERO_POINT_CASTS = {"i32": None, "s8": "i32", "u8": "i32", "s16": "i32", "u16": "i32", "i64": "i32"}


@dataclass(frozen=True, slots=True)
class _DequantizeProblem(Descriptor):
    """What both directions of a per-channel dequantization are described by."""

    shape: tuple[int, ...]
    axis: int
    input_element: str = "s8"
    output_element: str = "f32"
    rank: int | None = None

    def __post_init__(self) -> None:
        given = len(tuple(self.shape))
        Descriptor.__post_init__(self)
        if not 1 <= given <= _MOST_AXES:
            raise InvalidProblemError(f"{self.operator}: shape has {given} entries; wanted 1 to {_MOST_AXES}")
        object.__setattr__(self, "shape", self.shape + (1,) * (_MOST_AXES - given))
        if self.rank is None:
            object.__setattr__(self, "rank", given)
        elif not 1 <= self.rank <= _MOST_AXES or any(extent != 1 for extent in self.shape[self.rank :]):
            raise InvalidProblemError(f"{self.operator}: rank is {self.rank}; the shape is {self.shape}")
        elif not 0 <= self.axis < self.rank:
            raise InvalidProblemError(f"{self.operator}: axis is {self.axis}; wanted 0..{self.rank - 1}")

    @property
    def element(self) -> str:
        """Dtype token of the dequantized values."""
        return self.output_element

    @property
    def aux_element(self) -> str:
        """Dtype token of the quantized values."""
        return self.input_element

    @property
    def numel(self) -> int:
        """Elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class DequantizePerChannelDescriptor(_DequantizeProblem):
    """A per-channel dequantization.

    Parameters
    ----------
    shape : tuple of int
        One to four extents, outermost first; kept with 1s behind to four.
    axis : int
        The channel axis, not negative.
    input_element : {"s8", "u8"}
        Dtype of the quantized values.
    output_element : {"f32", "f64", "f16", "bf16"}
        Dtype of the scales and of the result.
    rank : int, optional
        Axes of `shape` that count; the length of `shape` if left out.
    """

    operator: ClassVar[str] = "dequantize_per_channel"

    @property
    def variant(self) -> str:
        """The dtype suffix of the C functions."""
        return f"{self.output_element}_{self.input_element}"


@dataclass(frozen=True, slots=True)
class DequantizePerChannelBackwardDescriptor(_DequantizeProblem):
    """The gradient with respect to the quantized values, in `output_element`; the fields are those of
    :class:`DequantizePerChannelDescriptor`, of which `input_element` does not change the code that runs.
    """

    operator: ClassVar[str] = "dequantize_per_channel_backward"


class DequantizePerChannelPlan(Plan):
    """Tensors ``input`` [shape], ``scale`` and ``zero_point`` [shape[axis]], ``output`` [shape]."""

    __slots__ = ()
    descriptor_type = DequantizePerChannelDescriptor
    category = "quantize"
    sums = False


class DequantizePerChannelBackwardPlan(Plan):
    """Tensors ``scale`` [shape[axis]], ``grad_output`` [shape] and ``grad_input`` [shape]."""

    __slots__ = ()
    descriptor_type = DequantizePerChannelBackwardDescriptor
    category = "quantize"
    sums = False


def check_axis(name: str, shape: tuple[int, ...], axis: int) -> int:
    rank = len(shape)
    if not -rank <= axis < rank:
        raise ValueError(f"axis is {axis}; {name} has {rank} axes")
    return axis % rank


def _at_most_four(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], int]:
    """Merge axes beside the channel axis where there are more than the C function takes."""
    if len(shape) <= _MOST_AXES:
        return shape, axis
    return (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 : -1]), shape[-1] if axis < len(shape) - 1 else 1), 1


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    shape: tuple[int, ...],
    dtype: str,
    scale_shape: tuple[int, ...],
    scale_dtype: str,
    zero_shape: tuple[int, ...],
    zero_dtype: str,
    axis: int,
) -> Prepared:
    quantized = _call.element_of("input", dtype, _QUANTIZED, _NOT_YET)
    element = _call.element_of("scale", scale_dtype)
    _call.element_of("zero_point", zero_dtype, tuple(_ZERO_POINT_CASTS))
    axis = check_axis("input", shape, axis)
    _call.check_shape("scale", scale_shape, (shape[axis],))
    _call.check_shape("zero_point", zero_shape, (shape[axis],))
    extents, channel = _at_most_four(shape, axis)
    descriptor = DequantizePerChannelDescriptor(extents, channel, quantized, element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(shape, element, element)], casts=(None, None, _ZERO_POINT_CASTS[zero_dtype]))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    shape: tuple[int, ...],
    dtype: str,
    scale_shape: tuple[int, ...],
    scale_dtype: str,
    axis: int,
) -> Prepared:
    element = _call.element_of("grad_output", dtype)
    _call.element_of("scale", scale_dtype, FLOATS)
    cast = _call.wider("scale", scale_dtype, element)
    axis = check_axis("grad_output", shape, axis)
    _call.check_shape("scale", scale_shape, (shape[axis],))
    extents, channel = _at_most_four(shape, axis)
    descriptor = DequantizePerChannelBackwardDescriptor(extents, channel, output_element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(shape, element, element)], casts=(cast, None), primary=1, in_place=1)


def dequantize_per_channel(
    input: Any, scale: Any, zero_point: Any, axis: int, *, out: Any = None, stream: Any = None
) -> Any:
    """Turn integers into floats with one scale and zero point per channel, as ONNX DequantizeLinear does.

    Parameters
    ----------
    input : array
        Quantized values in int8 or uint8, at least one axis.
    scale : array, [input.shape[axis]]
        Scale of each channel in float32, float64, float16 or bfloat16.
    zero_point : array, [input.shape[axis]]
        Zero point of each channel in int32; narrower integers are widened by a copy. int64 is converted by a copy, in
        which a value outside int32 wraps.
    axis : int
        The channel axis; negative counts from the end.
    out : array, optional
        Dense array of the input's shape and device in the scale's dtype. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        (input - zero_point) * scale, rounded once, in the scale's dtype; of the input's kind; `out` if given.

    Raises
    ------
    UnsupportedError
        For 16-bit and 32-bit quantized values, which are not wired yet.
    TypeError, ValueError
        If an argument has another dtype or shape, or `out` cannot be written.
    InvalidProblemError
        If an array of more than four axes has more than 2**31 - 1 elements on one side of the channel axis.

    Notes
    -----
    Strided arrays are copied first. Bit-stable on every run, thread count, GPU and backend. May be called from any
    number of threads.

    Defined by ONNX DequantizeLinear, opset 21, axis form.
    """
    values = read("input", input, stream)
    scales = read("scale", scale, stream, values)
    zeros = read("zero_point", zero_point, stream, values)
    prepared = prepare(
        values.device,
        values.shape,
        values.dtype,
        scales.shape,
        scales.dtype,
        zeros.shape,
        zeros.dtype,
        _call.whole("axis", axis),
    )
    return prepared.launch((values, scales, zeros), (out,), stream)[0]


def dequantize_per_channel_backward(
    grad_output: Any, scale: Any, axis: int, *, out: Any = None, stream: Any = None
) -> Any:
    """Compute the gradient of :func:`dequantize_per_channel` with respect to its input, as if that were real.

    Parameters
    ----------
    grad_output : array
        Gradient of the dequantized values in float32, float64, float16 or bfloat16, at least one axis.
    scale : array, [grad_output.shape[axis]]
        Scale of each channel in the gradient's dtype; a narrower float is widened by a copy.
    axis : int
        The channel axis; negative counts from the end.
    out : array, optional
        Dense array of the gradient's shape, dtype and device; it may be `grad_output` itself. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        grad_output * scale, rounded once; of the gradient's kind, shape and dtype; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`dequantize_per_channel`.

    Notes
    -----
    Strided arrays are copied first. Bit-stable on every run, thread count, GPU and backend. May be called from any
    number of threads.
    """
    gradient = read("grad_output", grad_output, stream)
    scales = read("scale", scale, stream, gradient)
    prepared = prepare_backward(
        gradient.device, gradient.shape, gradient.dtype, scales.shape, scales.dtype, _call.whole("axis", axis)
    )
    return prepared.launch((scales, gradient), (out,), stream)[0]
