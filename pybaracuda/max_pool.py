# SPDX-License-Identifier: Apache-2.0
"""Maximum pooling: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from . import _call
from ._arrays import Operand, read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._plan import Plan
from ._windows import Windows, adaptive_bins, axes_of, extent_fields, extents_of, windows_of

__all__ = [
    "AdaptiveMaxPoolBackwardDescriptor",
    "AdaptiveMaxPoolBackwardPlan",
    "AdaptiveMaxPoolDescriptor",
    "AdaptiveMaxPoolPlan",
    "MaxPoolBackwardDescriptor",
    "MaxPoolBackwardPlan",
    "MaxPoolDescriptor",
    "MaxPoolPlan",
    "adaptive_max_pool",
    "adaptive_max_pool_backward",
    "max_pool",
    "max_pool_backward",
]


@dataclass(frozen=True, slots=True)
class MaxPoolDescriptor(Descriptor):
    """A maximum pooling by fixed windows, in three dimensions; fewer are extents of 1 with kernels of 1.

    Parameters
    ----------
    n, c, d, h, w : int
        Extents of the input: images, channels, depth, rows, columns.
    output_d, output_h, output_w : int
        Windows along each axis; the last one must begin before the input's end.
    kernel_d, kernel_h, kernel_w : int
        Extents of a window.
    stride_d, stride_h, stride_w : int
        From one window to the next.
    padding_d, padding_h, padding_w : int
        Places on either side that never win, at most half of what a window spans.
    dilation_d, dilation_h, dilation_w : int
        From one place of a window to the next.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input and output.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    n: int
    c: int
    d: int
    h: int
    w: int
    output_d: int
    output_h: int
    output_w: int
    kernel_d: int
    kernel_h: int
    kernel_w: int
    stride_d: int
    stride_h: int
    stride_w: int
    padding_d: int = 0
    padding_h: int = 0
    padding_w: int = 0
    dilation_d: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    element: str = "f32"

    operator: ClassVar[str] = "max_pool"


@dataclass(frozen=True, slots=True)
class MaxPoolBackwardDescriptor(MaxPoolDescriptor):
    """The gradient of maximum pooling by fixed windows; the fields are those of :class:`MaxPoolDescriptor`."""

    operator: ClassVar[str] = "max_pool_backward"


@dataclass(frozen=True, slots=True)
class AdaptiveMaxPoolDescriptor(Descriptor):
    """A maximum pooling by windows that divide the input, in three dimensions; fewer are extents of 1.

    Parameters
    ----------
    n, c, d, h, w : int
        Extents of the input: images, channels, depth, rows, columns.
    output_d, output_h, output_w : int
        Windows along each axis.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input and output.

    Raises
    ------
    TypeError
        If a field has the wrong type.
    """

    n: int
    c: int
    d: int
    h: int
    w: int
    output_d: int
    output_h: int
    output_w: int
    element: str = "f32"

    operator: ClassVar[str] = "adaptive_max_pool"


@dataclass(frozen=True, slots=True)
class AdaptiveMaxPoolBackwardDescriptor(AdaptiveMaxPoolDescriptor):
    """The gradient of adaptive maximum pooling; the fields are those of :class:`AdaptiveMaxPoolDescriptor`."""

    operator: ClassVar[str] = "adaptive_max_pool_backward"


class MaxPoolPlan(Plan):
    """Tensors ``input`` [n, c, d, h, w], ``output`` and ``indices``.

    The last two are [n, c, output_d, output_h, output_w], ``indices`` in int64.
    """

    __slots__ = ()
    sums = False
    moves = True
    descriptor_type = MaxPoolDescriptor
    category = "image"
    layout = "nchw"


class MaxPoolBackwardPlan(Plan):
    """Tensors ``grad_output`` [n, c, output_d, output_h, output_w], ``indices`` and ``grad_input`` [n, c, d, h, w]."""

    __slots__ = ()
    descriptor_type = MaxPoolBackwardDescriptor
    category = "image"
    layout = "nchw"


class AdaptiveMaxPoolPlan(Plan):
    """Tensors ``input`` [n, c, d, h, w], ``output`` and ``indices``.

    The last two are [n, c, output_d, output_h, output_w], ``indices`` in int64.
    """

    __slots__ = ()
    sums = False
    moves = True
    descriptor_type = AdaptiveMaxPoolDescriptor
    category = "image"
    layout = "nchw"


class AdaptiveMaxPoolBackwardPlan(Plan):
    """Tensors ``grad_output`` [n, c, output_d, output_h, output_w], ``indices`` and ``grad_input`` [n, c, d, h, w]."""

    __slots__ = ()
    descriptor_type = AdaptiveMaxPoolBackwardDescriptor
    category = "image"
    layout = "nchw"


def outputs_of(shape: tuple[int, ...], element: str, return_indices: bool) -> list[Output]:
    return [Output(shape, element, element), Output(shape, "i64", "i64", wanted=return_indices)]


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(device: int, input_shape: tuple[int, ...], dtype: str, windows: Windows, return_indices: bool) -> Prepared:
    element = _call.element_of("input", dtype)
    extents = extents_of("input", input_shape, windows.axes)
    bins = windows.bins(input_shape)
    descriptor = MaxPoolDescriptor(**windows.dilated_fields(extents, bins), element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, outputs_of((*input_shape[: -windows.axes], *bins), element, return_indices))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    indices_shape: tuple[int, ...],
    indices_dtype: str,
    input_shape: tuple[int, ...],
    windows: Windows,
) -> Prepared:
    element = _call.element_of("grad_output", dtype)
    _call.element_of("indices", indices_dtype, ("i64",))
    extents = extents_of("input_shape", input_shape, windows.axes)
    bins = windows.bins(input_shape)
    _call.check_shape("grad_output", grad_shape, (*input_shape[: -windows.axes], *bins))
    _call.check_shape("indices", indices_shape, grad_shape)
    descriptor = MaxPoolBackwardDescriptor(**windows.dilated_fields(extents, bins), element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(input_shape, element, element)])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_adaptive(
    device: int, input_shape: tuple[int, ...], dtype: str, output_size: tuple[int | None, ...], return_indices: bool
) -> Prepared:
    element = _call.element_of("input", dtype)
    axes = len(output_size)
    extents = extents_of("input", input_shape, axes)
    bins = adaptive_bins(input_shape, output_size)
    descriptor = AdaptiveMaxPoolDescriptor(**extent_fields(extents, bins), element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, outputs_of((*input_shape[:-axes], *bins), element, return_indices))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_adaptive_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    indices_shape: tuple[int, ...],
    indices_dtype: str,
    input_shape: tuple[int, ...],
    axes: int,
) -> Prepared:
    element = _call.element_of("grad_output", dtype)
    _call.element_of("indices", indices_dtype, ("i64",))
    extents = extents_of("input_shape", input_shape, axes)
    _call.check_rank("grad_output", grad_shape, f"{len(input_shape)} axes, as input_shape has", len(input_shape))
    bins = grad_shape[-axes:]
    _call.check_shape("grad_output", grad_shape, (*input_shape[:-axes], *bins))
    _call.check_shape("indices", indices_shape, grad_shape)
    descriptor = AdaptiveMaxPoolBackwardDescriptor(**extent_fields(extents, bins), element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(input_shape, element, element)])


def launched(prepared: Prepared, operands: tuple[Operand, ...], out: Any, stream: Any, return_indices: bool) -> Any:
    """Answer the output alone, or with the indices."""
    if not return_indices:
        return prepared.launch(operands, (out, None), stream)[0]
    outs = _call.outs_of(out, ("output", "indices"), "a pair ")
    return tuple(prepared.launch(operands, outs, stream))


def max_pool(
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take maxima over windows, as ``torch.nn.functional.max_pool1d``, ``max_pool2d`` and ``max_pool3d`` do.

    Parameters
    ----------
    input : array, [N, C, L], [N, C, H, W] or [N, C, D, H, W], or without N
        Feature maps in float32, float64, float16 or bfloat16.
    kernel_size : int or sequence of int
        Places of a window along each axis, outermost first.
    stride : int or sequence of int, optional
        From one window to the next; None is `kernel_size`.
    padding : int or sequence of int
        Places on either side that never win, at most half of what a window spans.
    dilation : int or sequence of int
        From one place of a window to the next.
    ceil_mode : bool
        Whether the windows' number is rounded up; a window that would begin behind the input is left out.
    return_indices : bool
        Whether to answer also which element each window holds, which :func:`max_pool_backward` needs: its number in
        the pooled axes in row-major order, int64; -1 for a window without elements.
    axes : {1, 2, 3}, optional
        How many axes are pooled, from the last one; None is as many as `kernel_size` has, and for an int as many as
        the input has beyond two.
    out : array, optional
        Dense array of the input's dtype and device that receives the result; with `return_indices` a pair of arrays or
        None, the second in int64. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, dtype and device; `out` if given. With `return_indices`, that and the indices. torch
        tensors come back without a gradient function.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that is never pooled.
    ValueError
        If shapes do not fit, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range.

    Notes
    -----
    NaN is larger than every number, and the last NaN of a window wins; -0 equals +0, and among equals the first in
    row-major order wins; the winner's bits are copied. A window without elements is -infinity. Strided arrays are
    copied first. Bit-stable: the same inputs give the same bits on every run, thread count, GPU and backend. May be
    called from any number of threads.
    """
    wants_indices = _call.flag("return_indices", return_indices)
    first = read("input", input, stream)
    windows = windows_of(first.shape, kernel_size, stride, padding, dilation, ceil_mode, axes)
    prepared = prepare(first.device, first.shape, first.dtype, windows, wants_indices)
    return launched(prepared, (first,), out, stream, wants_indices)


def max_pool_backward(
    grad_output: Any,
    indices: Any,
    input_shape: Sequence[int],
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`max_pool` with respect to its input.

    Parameters
    ----------
    grad_output : array
        Gradient of the maxima in float32, float64, float16 or bfloat16.
    indices : array
        What the forward call answered, int64.
    input_shape : sequence of int
        Shape of the forward call's input.
    kernel_size, stride, padding, dilation, ceil_mode, axes
        The forward call's.
    out : array, optional
        Dense array of the gradient's dtype and device; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        Of the gradient's kind, dtype and device, of the input's shape; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`max_pool`.

    Notes
    -----
    An index that lies outside of what its window spans contributes nothing. No atomics: an element owns its sum, its
    windows ascending in row-major order, so the bits are the same on every run, thread count, GPU and backend. Sums are
    kept in float32 (float64 for float64). May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    places = read("indices", indices, stream, first)
    shape = _call.whole_tuple("input_shape", input_shape)
    windows = windows_of(shape, kernel_size, stride, padding, dilation, ceil_mode, axes)
    prepared = prepare_backward(first.device, first.shape, first.dtype, places.shape, places.dtype, shape, windows)
    return prepared.launch((first, places), (out,), stream)[0]


def adaptive_max_pool(
    input: Any,
    output_size: int | Sequence[int | None] | None,
    return_indices: bool = False,
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take maxima over windows that divide the input, as ``torch.nn.functional.adaptive_max_pool1d`` to ``3d`` do.

    Parameters
    ----------
    input : array, [N, C, L], [N, C, H, W] or [N, C, D, H, W], or without N
        Feature maps in float32, float64, float16 or bfloat16.
    output_size : int, None or sequence of int or None
        Windows along each axis; None is as many as the input has elements.
    return_indices : bool
        As of :func:`max_pool`.
    axes : {1, 2, 3}, optional
        How many axes are pooled, from the last one; None is as many as `output_size` has, and for an int as many as the
        input has beyond two.
    out : array, optional
        As of :func:`max_pool`.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        As of :func:`max_pool`.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`max_pool`.

    Notes
    -----
    Window o of m has of n elements those in [floor(o n / m), ceil((o + 1) n / m)); which one wins is as in
    :func:`max_pool`. May be called from any number of threads.
    """
    wants_indices = _call.flag("return_indices", return_indices)
    first = read("input", input, stream)
    size = axes_of("output_size", output_size, first.shape, axes)
    prepared = prepare_adaptive(first.device, first.shape, first.dtype, size, wants_indices)
    return launched(prepared, (first,), out, stream, wants_indices)


def adaptive_max_pool_backward(
    grad_output: Any,
    indices: Any,
    input_shape: Sequence[int],
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`adaptive_max_pool` with respect to its input.

    Parameters
    ----------
    grad_output : array
        Gradient of the maxima in float32, float64, float16 or bfloat16; its last axes say how many windows there are.
    indices : array
        What the forward call answered, int64.
    input_shape : sequence of int
        Shape of the forward call's input.
    axes : {1, 2, 3}, optional
        How many axes were pooled, from the last one; None is as many as the input has beyond two.
    out : array, optional
        Dense array of the gradient's dtype and device; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        Of the gradient's kind, dtype and device, of the input's shape; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`max_pool`.

    Notes
    -----
    Sums and bad indices are those of :func:`max_pool_backward`. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    places = read("indices", indices, stream, first)
    shape = _call.whole_tuple("input_shape", input_shape)
    pooled = len(axes_of("input_shape", 1, shape, axes))
    prepared = prepare_adaptive_backward(
        first.device, first.shape, first.dtype, places.shape, places.dtype, shape, pooled
    )
    return prepared.launch((first, places), (out,), stream)[0]
