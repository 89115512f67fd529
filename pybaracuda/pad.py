# SPDX-License-Identifier: Apache-2.0
"""Padding: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

import numpy as np

from . import _call
from ._arrays import Operand, dense_strides, read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor, PrecisionGuarantee, exact_float
from ._dtypes import FLOATS, dtype_name, item_bytes, numpy_dtype
from ._errors import InvalidProblemError, shown
from ._float_environment import DefaultFloatEnvironment
from ._plan import Plan

__all__ = ["PadBackwardDescriptor", "PadBackwardPlan", "PadDescriptor", "PadPlan", "pad", "pad_backward"]

# In the order of the C options' numbers.
_MODES = ("constant", "reflect", "replicate", "circular", "symmetric")


def check_mode(mode: str) -> None:
    if not isinstance(mode, str) or mode not in _MODES:
        raise ValueError(f"mode is {shown(mode)}; wanted one of {', '.join(map(repr, _MODES))}")


@dataclass(frozen=True, slots=True)
class _PadProblem(Descriptor):
    """What both directions of padding are described by."""

    input_shape: tuple[int, ...]
    pad_low: tuple[int, ...]
    pad_high: tuple[int, ...]
    mode: str = "constant"

    _suffix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        check_mode(self.mode)
        for name in ("pad_low", "pad_high"):
            self._check_length(name, getattr(self, name))
        # Also in C, where pad_high and so the reason is not known.
        axes = zip(self.input_shape, self.pad_low, self.pad_high, strict=True)
        if any(extent + min(low, 0) + min(high, 0) < 0 for extent, low, high in axes):
            raise InvalidProblemError(
                f"{self.operator}: pad_low {self.pad_low} and pad_high {self.pad_high} crop below 0 elements of "
                f"input_shape {self.input_shape}"
            )

    def _check_length(self, name: str, value: tuple[int, ...]) -> None:
        if len(value) != self.rank:
            raise InvalidProblemError(f"{self.operator}: {name} has {len(value)} entries; wanted {self.rank}")

    def _fill_strides(self, name: str, shape: tuple[int, ...]) -> None:
        """Spell dense strides out, and check the length of given ones."""
        strides = getattr(self, name)
        if strides is None:
            object.__setattr__(self, name, dense_strides(shape))
        else:
            self._check_length(name, strides)

    @property
    def operator(self) -> str:  # type: ignore[override]
        """The C operator's name: each mode has its own, and those take no negative pads."""
        name = "ex" if min((*self.pad_low, *self.pad_high), default=0) < 0 else self.mode
        return f"pad_{name}{self._suffix}"

    @property
    def rank(self) -> int:
        """Axes."""
        return len(self.input_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Extents of the padded tensor."""
        return _padded(self.input_shape, self.pad_low, self.pad_high)

    @property
    def option_mode(self) -> int:
        """The mode's number."""
        return _MODES.index(self.mode)


@dataclass(frozen=True, slots=True)
class PadDescriptor(_PadProblem):
    """A padding problem.

    Parameters
    ----------
    input_shape : tuple of int
        Extents of the input, up to 8 axes.
    pad_low, pad_high : tuple of int
        Elements before and after the input on each axis; a negative number cuts off that many first.
    mode : {"constant", "reflect", "replicate", "circular", "symmetric"}
    value : float or int
        What constant padding holds, rounded to the element; for b8 to b128 the bit pattern as an int.
    element : {"f32", "f64", "f16", "bf16", "b8", "b16", "b32", "b64", "b128"}
        Dtype, or a width: only the value depends on more.
    input_strides, output_strides : tuple of int, optional
        In elements; None is dense. No two elements of the output may be in one place.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    ValueError
        If there is no such mode.
    InvalidProblemError
        If lengths differ, or pads cut off more than there is.
    """

    value: float | int = 0.0
    element: str = "f32"
    input_strides: tuple[int, ...] | None = None
    output_strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _PadProblem.__post_init__(self)
        self._fill_strides("input_strides", self.input_shape)
        self._fill_strides("output_strides", self.output_shape)

    @property
    def output_numel(self) -> int:
        """Elements of the padded tensor."""
        return prod(self.output_shape)

    @property
    def option_value(self) -> float | int:
        """The value."""
        return self.value

    @property
    def cache_key(self) -> bytes | int:
        """The value's bits: 0.0 and -0.0 are equal, and their padding is not."""
        return self.value if isinstance(self.value, int) else struct.pack("d", self.value)


@dataclass(frozen=True, slots=True)
class PadBackwardDescriptor(_PadProblem):
    """The gradient of padding.

    Parameters
    ----------
    input_shape : tuple of int
        Extents of the forward call's input, which are those of grad_input.
    pad_low, pad_high, mode
        As in the forward call.
    element : {"f32", "f64", "f16", "bf16"}
    grad_output_strides, grad_input_strides : tuple of int, optional
        In elements; None is dense. No two elements of grad_input may be in one place.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :class:`PadDescriptor`.
    """

    element: str = "f32"
    grad_output_strides: tuple[int, ...] | None = None
    grad_input_strides: tuple[int, ...] | None = None

    _suffix: ClassVar[str] = "_backward"

    def __post_init__(self) -> None:
        _PadProblem.__post_init__(self)
        self._fill_strides("grad_output_strides", self.output_shape)
        self._fill_strides("grad_input_strides", self.input_shape)

    @property
    def dy_shape(self) -> tuple[int, ...]:
        """The same as `output_shape`, under the name that the Rust crate gives it."""
        return self.output_shape

    @property
    def input_numel(self) -> int:
        """Elements of grad_input."""
        return prod(self.input_shape)

    @property
    def option_value(self) -> None:
        """No value takes part in the gradient."""
        return None

    def tensor_shape(self, tensor: Any) -> tuple[int, ...]:
        """Answer a tensor's shape; grad_output is the whole padded tensor, though its end may never be read."""
        return self.output_shape if tensor.name == "grad_output" else self.input_shape


def _padded(shape: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sum(each) for each in zip(shape, low, high, strict=True))


def _cropped(shape: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent - before - after for extent, before, after in zip(shape, low, high, strict=True))


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

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """What the plan promises about its arithmetic: in mode constant there is none."""
        if self.descriptor.mode == "constant":
            return PrecisionGuarantee(math_precision="exact", accumulator="none")
        return super().precision_guarantee


def pads_of(name: str, value: Any, rank: int) -> tuple[int, ...]:
    if type(value) is int or (hasattr(value, "__index__") and not getattr(value, "ndim", 0)):
        return (_call.whole(name, value),) * rank
    try:
        pads = _call.whole_tuple(name, value)
    except TypeError:
        raise TypeError(f"{name}: wanted an int or a sequence of int, got {shown(value)}") from None
    if len(pads) != rank:
        raise ValueError(f"{name} has {len(pads)} entries; the array has {rank} axes")
    return pads


def _check_pads(**pads: tuple[int, ...]) -> None:
    """Refuse what C has no room for, before it shows in the sums of extents and pads."""
    for name, value in pads.items():
        if any(not -(2**31) <= each < 2**31 for each in value):
            raise InvalidProblemError(f"{name} is {shown(value)}; wanted {-(2**31)}..{2**31 - 1}")


def _element(name: str, dtype: str) -> str:
    """Answer the token under which a dtype is moved: its own, or its width."""
    if dtype in FLOATS:
        return dtype
    nbytes = item_bytes(dtype)
    if nbytes is None:
        raise TypeError(f"{name} has dtype {dtype_name(dtype)}; wanted a number or bool of 1, 2, 4, 8 or 16 bytes")
    return f"b{8 * nbytes}"


def _pattern(value: Any, dtype: str) -> int:
    """Convert the padding value to the bits of a dtype that has no C type of its own."""
    with np.errstate(over="ignore", invalid="ignore"), DefaultFloatEnvironment():
        try:
            given, wanted = np.asarray(value), numpy_dtype(dtype)
            if given.dtype.kind == "c" and wanted.kind != "c":
                raise TypeError  # the imaginary part would be dropped with a warning
            held = given.astype(wanted)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise TypeError(f"value: wanted a number for {dtype_name(dtype)}, got {shown(value)}") from None
        if held.shape != () or value is None:
            raise TypeError(f"value: wanted a number, got {shown(value)}")
        if held.dtype.kind in "iub" and held.item() != value:
            raise ValueError(f"value is {shown(value)}, which {dtype_name(dtype)} cannot hold")
        return int.from_bytes(held.tobytes(), "little")


def value_key(value: Any, dtype: str) -> bytes | int:
    """Answer what tells two padding values of a dtype apart, and what the descriptor's value is made of."""
    if isinstance(value, str | bytes):
        raise TypeError(f"value: wanted a number, got {type(value).__name__}")
    if dtype in FLOATS:
        return struct.pack("d", exact_float("value", value))
    return _pattern(value, dtype)


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: str,
    low: tuple[int, ...],
    high: tuple[int, ...],
    mode: str,
    value: bytes | int,
    out_strides: tuple[int, ...] | None,
) -> Prepared:
    _check_pads(pad_low=low, pad_high=high)
    descriptor = PadDescriptor(
        shape,
        low,
        high,
        mode,
        value if isinstance(value, int) else struct.unpack("d", value)[0],
        _element("input", dtype),
        input_strides=strides,
        output_strides=out_strides,
    )
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(descriptor.output_shape, dtype, dtype)], strided=True)


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: str,
    low: tuple[int, ...],
    high: tuple[int, ...],
    mode: str,
    out_strides: tuple[int, ...] | None,
) -> Prepared:
    _check_pads(pad_low=low, pad_high=high)
    element = _call.element_of("grad_output", dtype, FLOATS)
    input_shape = _cropped(shape, low, high)
    if any(extent < 0 for extent in input_shape):
        raise InvalidProblemError(
            f"grad_output has shape {shape}, smaller than pad_low {low} and pad_high {high} together"
        )
    descriptor = PadBackwardDescriptor(
        input_shape, low, high, mode, element, grad_output_strides=strides, grad_input_strides=out_strides
    )
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(input_shape, element, element)], strided=True)


def _strides_of(out: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Answer the strides of an `out=` array of this shape where they are not dense; the launch checks the rest."""
    target: Operand = read("out", out)
    return target.strides if target.shape == shape else None


def _prepared_for(
    prepare: Callable[..., Prepared], problem: tuple[Any, ...], strides: tuple[int, ...] | None
) -> Prepared:
    """Prepare a problem whose output has `strides`; what is wrong with these alone is wrong with `out`."""
    if strides is None:
        return prepare(*problem, None)
    try:
        return prepare(*problem, strides)
    except InvalidProblemError as error:
        prepare(*problem, None)
        raise InvalidProblemError(f"out has strides {strides} in elements: {error.detail}") from None


def pad(
    input: Any,
    pad_low: int | Sequence[int],
    pad_high: int | Sequence[int],
    mode: str = "constant",
    value: Any = 0,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Add elements before and after an array's axes, or cut them off.

    Parameters
    ----------
    input : array
        Up to 8 axes, of any number type or bool. Its strides are used as they are, no copy is made.
    pad_low, pad_high : int or sequence of int
        Elements to add before and after each axis, first axis first; an int is for every axis. Any width: wider than
        the array too. A negative number cuts off that many, before anything is added.
    mode : {"constant", "reflect", "replicate", "circular", "symmetric"}
        What is added: a value; the array mirrored about its end elements (d c b | a b c d | c b a); the end elements
        (a a a | a b c d | d d d); the array again (b c d | a b c d | a b c); the array mirrored about its ends
        (c b a | a b c d | d c b).
    value : number
        What mode constant adds, rounded to a float or complex dtype; integers and bool must hold it.
    out : array, optional
        Array of the result's shape and the input's dtype and device; it may be strided, no two
        elements in one place. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, dtype and device, extents input + pad_low + pad_high; `out` if given.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or length, or `out` cannot be written.
    InvalidProblemError
        If negative pads cut more than there is, if a mode other than constant has no element to repeat, or for more
        than 8 axes.

    Notes
    -----
    Elements are moved bit for bit, NaN payloads too, so the bits are the same on every run, thread count, GPU and
    backend. May be called from any number of threads.

    Defined by ``numpy.pad`` (replicate is its edge, circular its wrap) and ``torch.nn.functional.pad`` for pads
    that these take; the pads are in NumPy's order, not in torch's. Where theirs differ: docs/differences.md.
    """
    check_mode(mode)
    operand = read("input", input, stream)
    rank = len(operand.shape)
    low, high = pads_of("pad_low", pad_low, rank), pads_of("pad_high", pad_high, rank)
    dtype = operand.dtype
    key = value_key(value, dtype) if mode == "constant" and item_bytes(dtype) is not None else 0
    problem = (operand.device, operand.shape, operand.strides, dtype, low, high, mode, key)
    if out is None:
        prepared = prepare(*problem, None)
    else:
        prepared = _prepared_for(prepare, problem, _strides_of(out, _padded(operand.shape, low, high)))
    return prepared.launch((operand,), (out,), stream)[0]


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
        Array of the gradient's dtype and device and the forward input's shape; it may be strided, no two
        elements in one place. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        Extents grad_output - pad_low - pad_high; where the forward call cut elements off, their gradient is 0.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`pad`.

    Notes
    -----
    The exact adjoint. An element that occurs once in the padded array has its gradient copied, bit for bit; where it
    occurs several times they are added, in ascending row-major order of the padded array, in partial sums of 256 (in
    float32 for 16-bit types): the same bits on every run, thread count, GPU and backend. May be called from any number
    of threads.
    """
    check_mode(mode)
    operand = read("grad_output", grad_output, stream)
    rank = len(operand.shape)
    low, high = pads_of("pad_low", pad_low, rank), pads_of("pad_high", pad_high, rank)
    problem = (operand.device, operand.shape, operand.strides, operand.dtype, low, high, mode)
    if out is None:
        prepared = prepare_backward(*problem, None)
    else:
        prepared = _prepared_for(prepare_backward, problem, _strides_of(out, _cropped(operand.shape, low, high)))
    return prepared.launch((operand,), (out,), stream)[0]
