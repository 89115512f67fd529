# SPDX-License-Identifier: Apache-2.0
"""Padding: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from . import _call
from ._abi import DTYPE_BYTES
from ._arrays import Operand, dense_strides, read
from ._call import FLOATS, MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._errors import InvalidProblemError, UnsupportedError
from ._plan import Plan

__all__ = ["PadBackwardDescriptor", "PadBackwardPlan", "PadDescriptor", "PadPlan", "pad", "pad_backward"]

# Modes that torch or NumPy have; only the first is wired.
_MODES = ("constant", "reflect", "replicate", "circular", "symmetric")
# Dtypes that padding takes elsewhere; bytes are only moved, so they will come.
_NOT_YET = ("s8", "u8", "s16", "u16", "i32", "u32", "i64", "u64", "bool", "complex64", "complex128")


def _check_mode(mode: str) -> None:
    if mode == "constant":
        return
    if mode in _MODES:
        raise UnsupportedError(f"mode {mode!r} is not wired yet; wanted 'constant'")
    raise ValueError(f"mode is {mode!r}; wanted one of {', '.join(map(repr, _MODES))}")


def _fill_strides(descriptor: Any, name: str, shape: tuple[int, ...]) -> None:
    strides = getattr(descriptor, name)
    if strides is None:
        object.__setattr__(descriptor, name, dense_strides(shape))
    elif len(strides) != len(shape):
        raise InvalidProblemError(f"{descriptor.operator}: {name} has {len(strides)} entries; wanted {len(shape)}")


def _check_axes(descriptor: Any) -> None:
    _check_mode(descriptor.mode)
    for name in ("pad_low", "pad_high"):
        if len(getattr(descriptor, name)) != len(descriptor.input_shape):
            raise InvalidProblemError(
                f"{descriptor.operator}: {name} has {len(getattr(descriptor, name))} entries; "
                f"wanted {len(descriptor.input_shape)}"
            )
    for extent, high in zip(descriptor.output_shape, descriptor.pad_high, strict=True):
        # The C library takes the output's extents, not pad_high.
        if high < 0 or extent < 0:
            raise InvalidProblemError(f"{descriptor.operator}: pad_high is {descriptor.pad_high}; wanted at least 0")


@dataclass(frozen=True, slots=True)
class PadDescriptor(Descriptor):
    """A padding problem.

    Parameters
    ----------
    input_shape : tuple of int
        Extents of the input, up to 8 axes.
    pad_low, pad_high : tuple of int
        Elements before and after the input on each axis; not negative (the array function crops).
    mode : {"constant"}
    value : float
        What the padding holds, rounded to the element.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype; only its width and the value depend on it.
    input_strides, output_strides : tuple of int, optional
        In elements; None is dense. No output stride may be 0 where the extent is above 1.
    """

    operator: ClassVar[str] = "pad_constant"
    input_shape: tuple[int, ...]
    pad_low: tuple[int, ...]
    pad_high: tuple[int, ...]
    mode: str = "constant"
    value: float = 0.0
    element: str = "f32"
    input_strides: tuple[int, ...] | None = None
    output_strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        _check_axes(self)
        _fill_strides(self, "input_strides", self.input_shape)
        _fill_strides(self, "output_strides", self.output_shape)

    @property
    def rank(self) -> int:
        """Axes."""
        return len(self.input_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Extents of the padded tensor."""
        return _padded(self.input_shape, self.pad_low, self.pad_high)

    @property
    def output_numel(self) -> int:
        """Elements of the padded tensor."""
        return prod(self.output_shape)

    @property
    def cache_key(self) -> bytes:
        """The value's bits: 0.0 and -0.0 are equal, and their padding is not."""
        return struct.pack("d", self.value)


@dataclass(frozen=True, slots=True)
class PadBackwardDescriptor(Descriptor):
    """The gradient of padding.

    Parameters
    ----------
    input_shape : tuple of int
        Extents of the forward call's input, which are those of grad_input.
    pad_low, pad_high : tuple of int
        As in the forward call; not negative.
    mode : {"constant"}
    element : {"f32", "f64", "f16", "bf16"}
    grad_output_strides, grad_input_strides : tuple of int, optional
        In elements; None is dense.
    """

    operator: ClassVar[str] = "pad_constant_backward"
    input_shape: tuple[int, ...]
    pad_low: tuple[int, ...]
    pad_high: tuple[int, ...]
    mode: str = "constant"
    element: str = "f32"
    grad_output_strides: tuple[int, ...] | None = None
    grad_input_strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        _check_axes(self)
        _fill_strides(self, "grad_output_strides", self.output_shape)
        _fill_strides(self, "grad_input_strides", self.input_shape)

    @property
    def rank(self) -> int:
        """Axes."""
        return len(self.input_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Extents of the padded tensor, which are those of grad_output."""
        return _padded(self.input_shape, self.pad_low, self.pad_high)

    @property
    def dy_shape(self) -> tuple[int, ...]:
        """The same as `output_shape`, under the name that the Rust crate gives it."""
        return self.output_shape

    @property
    def input_numel(self) -> int:
        """Elements of grad_input."""
        return prod(self.input_shape)

    def tensor_shape(self, tensor: Any) -> tuple[int, ...]:
        """Answer a tensor's shape; grad_output is the whole padded tensor, though its end is never read."""
        return self.output_shape if tensor.name == "grad_output" else self.input_shape


def _padded(shape: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sum(each) for each in zip(shape, low, high, strict=True))


class PadPlan(Plan):
    """Tensors ``input`` [input_shape] and ``output`` [output_shape]."""

    __slots__ = ()
    descriptor_type = PadDescriptor
    category = "pad"
    layout = "strided"
    sums = False
    moves = True


class PadBackwardPlan(Plan):
    """Tensors ``grad_output`` [output_shape] and ``grad_input`` [input_shape]."""

    __slots__ = ()
    descriptor_type = PadBackwardDescriptor
    category = "pad"
    layout = "strided"
    sums = False
    moves = True


def _pads(name: str, value: Any, rank: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (_call.whole(name, value),) * rank
    pads = _call.whole_tuple(name, value)
    if len(pads) != rank:
        raise ValueError(f"{name} has {len(pads)} entries; the array has {rank} axes")
    return pads


class _Crop:
    """The part of an operand that negative pads leave, and the pads that remain."""

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...]
    ) -> None:
        self.shape = _padded(shape, tuple(min(each, 0) for each in low), tuple(min(each, 0) for each in high))
        if any(extent < 0 for extent in self.shape):
            raise InvalidProblemError(
                f"pad_low {low} and pad_high {high} crop below 0 elements: the array has shape {shape}"
            )
        self.low = tuple(max(each, 0) for each in low)
        self.high = tuple(max(each, 0) for each in high)
        # A crop to nothing reads nothing, wherever it would start.
        skipped = sum(-min(each, 0) * stride for each, stride in zip(low, strides, strict=True))
        self.offset = skipped if 0 not in self.shape else 0


@lru_cache(maxsize=MOST_COMBINATIONS)
def _prepare(
    name: str,
    device: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: str,
    low: tuple[int, ...],
    high: tuple[int, ...],
    value: bytes,
    out_strides: tuple[int, ...] | None,
) -> Prepared:
    element = _call.element_of(name, dtype, FLOATS, _NOT_YET)
    steps = dense_strides(shape) if strides is None else strides
    crop = _Crop(shape, steps, low, high)
    descriptor = PadDescriptor(
        crop.shape,
        crop.low,
        crop.high,
        value=struct.unpack("d", value)[0],
        element=element,
        input_strides=steps,
        output_strides=out_strides,
    )
    plan = _call.prepare(PadPlan, descriptor, device)
    output = Output(descriptor.output_shape, element, element)
    return Prepared(plan, [output], strided=True, offset=crop.offset * DTYPE_BYTES[element])


@lru_cache(maxsize=MOST_COMBINATIONS)
def _prepare_backward(
    device: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: str,
    low: tuple[int, ...],
    high: tuple[int, ...],
    out_strides: tuple[int, ...] | None,
) -> Prepared:
    element = _call.element_of("grad_output", dtype, FLOATS, _NOT_YET)
    input_shape = _padded(shape, tuple(-each for each in low), tuple(-each for each in high))
    if any(extent < 0 for extent in input_shape):
        raise InvalidProblemError(
            f"grad_output has shape {shape}, smaller than pad_low {low} and pad_high {high} together"
        )
    descriptor = PadBackwardDescriptor(
        input_shape, low, high, element=element, grad_output_strides=strides, grad_input_strides=out_strides
    )
    plan = _call.prepare(PadBackwardPlan, descriptor, device)
    return Prepared(plan, [Output(input_shape, element, element)], strided=True)


def _strides_of(out: Any, rank: int) -> tuple[int, ...] | None:
    """Answer an `out=` array's strides where they are not dense; its other properties are checked at the launch."""
    if out is None:
        return None
    target = read("out", out)
    return target.strides if len(target.shape) == rank else None


def _launch_pad(
    operand: Operand, low: tuple[int, ...], high: tuple[int, ...], value: float, out: Any, stream: Any
) -> Any:
    out_strides = _strides_of(out, len(operand.shape))
    prepared = _prepare(
        operand.name,
        operand.device,
        operand.shape,
        operand.strides,
        operand.dtype,
        low,
        high,
        struct.pack("d", value),
        out_strides,
    )
    return prepared.launch((operand,), (out,), stream)[0]


def pad(
    input: Any,
    pad_low: int | Sequence[int],
    pad_high: int | Sequence[int],
    mode: str = "constant",
    value: float = 0.0,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Add elements before and after an array's axes, or cut them off.

    Parameters
    ----------
    input : array
        Up to 8 axes, float32, float64, float16 or bfloat16. Its strides are used as they are, no copy is made.
    pad_low, pad_high : int or sequence of int
        Elements to add before and after each axis, first axis first; an int is for every axis. A negative number cuts
        off that many, before anything is added.
    mode : {"constant"}
    value : float
        What is added, rounded to the array's dtype.
    out : array, optional
        Array of the result's shape and the input's dtype and device; it may be strided. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, dtype and device, extents input + pad_low + pad_high; `out` if given.

    Raises
    ------
    UnsupportedError
        For a mode or dtype that is not wired yet (integers, bool, complex).
    TypeError, ValueError
        If an argument has the wrong type or length, or `out` cannot be written.
    InvalidProblemError
        If negative pads cut more than there is, or for more than 8 axes.

    Notes
    -----
    Elements are moved bit for bit, NaN payloads too. May be called from any number of threads.

    As ``torch.nn.functional.pad`` and ``numpy.pad`` in mode constant; the pads are in NumPy's order, not in torch's.
    """
    _check_mode(mode)
    operand = read("input", input, stream)
    rank = len(operand.shape)
    if isinstance(value, str | bytes):
        raise TypeError(f"value: wanted a number, got {type(value).__name__}")
    return _launch_pad(
        operand, _pads("pad_low", pad_low, rank), _pads("pad_high", pad_high, rank), float(value), out, stream
    )


def pad_backward(
    grad_output: Any,
    pad_low: int | Sequence[int],
    pad_high: int | Sequence[int],
    mode: str = "constant",
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`pad` with respect to its input.

    Parameters
    ----------
    grad_output : array
        Gradient of the padded array, up to 8 axes, float32, float64, float16 or bfloat16. Its strides are used as
        they are, no copy is made.
    pad_low, pad_high, mode
        As in the forward call.
    out : array, optional
        Array of the gradient's dtype and device and the forward input's shape; it may be strided. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        Extents grad_output - pad_low - pad_high; where the forward call cut elements off, their gradient is 0.

    Raises
    ------
    UnsupportedError, TypeError, ValueError, InvalidProblemError
        As :func:`pad`.

    Notes
    -----
    A copy, bit for bit. May be called from any number of threads.
    """
    _check_mode(mode)
    operand = read("grad_output", grad_output, stream)
    rank = len(operand.shape)
    low = _pads("pad_low", pad_low, rank)
    high = _pads("pad_high", pad_high, rank)
    if min(low, default=0) < 0 or min(high, default=0) < 0:
        # What the forward call cut off comes back as zeros, and what it added is cut off: padding by the negated pads.
        return _launch_pad(operand, tuple(-each for each in low), tuple(-each for each in high), 0.0, out, stream)
    prepared = _prepare_backward(
        operand.device,
        operand.shape,
        operand.strides,
        operand.dtype,
        low,
        high,
        _strides_of(out, rank),
    )
    return prepared.launch((operand,), (out,), stream)[0]
