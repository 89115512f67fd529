# SPDX-License-Identifier: Apache-2.0
"""Average pooling: descriptors, plans and array functions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from . import _call
from ._arrays import read
from ._call import MOST_COMBINATIONS, Output, Prepared
from ._descriptor import Descriptor
from ._plan import Plan
from ._windows import Windows, adaptive_bins, axes_of, extent_fields, extents_of, windows_of

__all__ = [
    "AdaptiveAvgPoolBackwardDescriptor",
    "AdaptiveAvgPoolBackwardPlan",
    "AdaptiveAvgPoolDescriptor",
    "AdaptiveAvgPoolPlan",
    "AvgPoolBackwardDescriptor",
    "AvgPoolBackwardPlan",
    "AvgPoolDescriptor",
    "AvgPoolPlan",
    "adaptive_avg_pool",
    "adaptive_avg_pool_backward",
    "avg_pool",
    "avg_pool_backward",
]


@dataclass(frozen=True, slots=True)
class AvgPoolDescriptor(Descriptor):
    """An average pooling by fixed windows, in three dimensions; fewer are extents of 1 with kernels of 1.

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
        Zeros on either side, at most half a window.
    count_include_pad : int
        1: the divisor counts padding; 0: it counts elements of the input alone.
    divisor_override : int
        The divisor of every window; 0 is what the window counts.
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
    count_include_pad: int = 1
    divisor_override: int = 0
    element: str = "f32"

    operator: ClassVar[str] = "avg_pool"


@dataclass(frozen=True, slots=True)
class AvgPoolBackwardDescriptor(AvgPoolDescriptor):
    """The gradient of average pooling by fixed windows; the fields are those of :class:`AvgPoolDescriptor`."""

    operator: ClassVar[str] = "avg_pool_backward"


@dataclass(frozen=True, slots=True)
class AdaptiveAvgPoolDescriptor(Descriptor):
    """An average pooling by windows that divide the input, in three dimensions; fewer are extents of 1.

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

    operator: ClassVar[str] = "adaptive_avg_pool"


@dataclass(frozen=True, slots=True)
class AdaptiveAvgPoolBackwardDescriptor(AdaptiveAvgPoolDescriptor):
    """The gradient of adaptive average pooling; the fields are those of :class:`AdaptiveAvgPoolDescriptor`."""

    operator: ClassVar[str] = "adaptive_avg_pool_backward"


class AvgPoolPlan(Plan):
    """Tensors ``input`` [n, c, d, h, w] and ``output`` [n, c, output_d, output_h, output_w]."""

    __slots__ = ()
    descriptor_type = AvgPoolDescriptor
    category = "image"
    layout = "nchw"


class AvgPoolBackwardPlan(Plan):
    """Tensors ``grad_output`` [n, c, output_d, output_h, output_w] and ``grad_input`` [n, c, d, h, w]."""

    __slots__ = ()
    descriptor_type = AvgPoolBackwardDescriptor
    category = "image"
    layout = "nchw"


class AdaptiveAvgPoolPlan(Plan):
    """Tensors ``input`` [n, c, d, h, w] and ``output`` [n, c, output_d, output_h, output_w]."""

    __slots__ = ()
    descriptor_type = AdaptiveAvgPoolDescriptor
    category = "image"
    layout = "nchw"


class AdaptiveAvgPoolBackwardPlan(Plan):
    """Tensors ``grad_output`` [n, c, output_d, output_h, output_w] and ``grad_input`` [n, c, d, h, w]."""

    __slots__ = ()
    descriptor_type = AdaptiveAvgPoolBackwardDescriptor
    category = "image"
    layout = "nchw"


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    input_shape: tuple[int, ...],
    dtype: str,
    windows: Windows,
    count_include_pad: bool,
    divisor: int,
) -> Prepared:
    element = _call.element_of("input", dtype)
    extents = extents_of("input", input_shape, windows.axes)
    bins = windows.bins(input_shape)
    fields = windows.fields(extents, bins)
    descriptor = AvgPoolDescriptor(
        **fields, count_include_pad=int(count_include_pad), divisor_override=divisor, element=element
    )
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output((*input_shape[: -windows.axes], *bins), element, element)])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    input_shape: tuple[int, ...],
    windows: Windows,
    count_include_pad: bool,
    divisor: int,
) -> Prepared:
    element = _call.element_of("grad_output", dtype)
    extents = extents_of("input_shape", input_shape, windows.axes)
    bins = windows.bins(input_shape)
    _call.check_shape("grad_output", grad_shape, (*input_shape[: -windows.axes], *bins))
    fields = windows.fields(extents, bins)
    descriptor = AvgPoolBackwardDescriptor(
        **fields, count_include_pad=int(count_include_pad), divisor_override=divisor, element=element
    )
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(input_shape, element, element)])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_adaptive(
    device: int, input_shape: tuple[int, ...], dtype: str, output_size: tuple[int | None, ...]
) -> Prepared:
    element = _call.element_of("input", dtype)
    axes = len(output_size)
    extents = extents_of("input", input_shape, axes)
    bins = adaptive_bins(input_shape, output_size)
    descriptor = AdaptiveAvgPoolDescriptor(**extent_fields(extents, bins), element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output((*input_shape[:-axes], *bins), element, element)])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_adaptive_backward(
    device: int, grad_shape: tuple[int, ...], dtype: str, input_shape: tuple[int, ...], axes: int
) -> Prepared:
    element = _call.element_of("grad_output", dtype)
    extents = extents_of("input_shape", input_shape, axes)
    _call.check_rank("grad_output", grad_shape, f"{len(input_shape)} axes, as input_shape has", len(input_shape))
    bins = grad_shape[-axes:]
    _call.check_shape("grad_output", grad_shape, (*input_shape[:-axes], *bins))
    descriptor = AdaptiveAvgPoolBackwardDescriptor(**extent_fields(extents, bins), element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(input_shape, element, element)])


def divisor_of(value: int | None) -> int:
    """What C takes, which knows 0 as none."""
    if value is None:
        return 0
    divisor = _call.whole("divisor_override", value)
    if divisor == 0:
        raise ValueError("divisor_override is 0; wanted another number or None")
    return divisor


def avg_pool(
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take means over windows, as ``torch.nn.functional.avg_pool1d``, ``avg_pool2d`` and ``avg_pool3d`` do.

    Parameters
    ----------
    input : array, [N, C, L], [N, C, H, W] or [N, C, D, H, W], or without N
        Feature maps in float32, float64, float16 or bfloat16.
    kernel_size : int or sequence of int
        Extents of a window, outermost axis first.
    stride : int or sequence of int, optional
        From one window to the next; None is `kernel_size`.
    padding : int or sequence of int
        Zeros on either side, at most half of a window.
    ceil_mode : bool
        Whether the windows' number is rounded up; a window that would begin behind the input is left out.
    count_include_pad : bool
        Whether a window's divisor counts padding.
    divisor_override : int, optional
        The divisor of every window instead.
    axes : {1, 2, 3}, optional
        How many axes are pooled, from the last one; None is as many as `kernel_size` has, and for an int as many as
        the input has beyond two.
    out : array, optional
        Dense array of the input's dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

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
    Sums are kept in float32 (float64 for float64) and rounded once. First each column of a window is added, then the
    columns, long lists of either in partial sums of 256, so the bits are the same on every run, thread count, GPU and
    backend. Strided arrays are copied first. May be called from any number of threads.
    """
    first = read("input", input, stream)
    windows = windows_of(first.shape, kernel_size, stride, padding, 1, ceil_mode, axes)
    include = _call.flag("count_include_pad", count_include_pad)
    prepared = prepare(first.device, first.shape, first.dtype, windows, include, divisor_of(divisor_override))
    return prepared.launch((first,), (out,), stream)[0]


def avg_pool_backward(
    grad_output: Any,
    input_shape: Sequence[int],
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`avg_pool` with respect to its input.

    Parameters
    ----------
    grad_output : array
        Gradient of the means in float32, float64, float16 or bfloat16.
    input_shape : sequence of int
        Shape of the forward call's input.
    kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, axes
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
        As :func:`avg_pool`.

    Notes
    -----
    No atomics: an element owns the sum over the windows that hold it, in the forward's order, so the bits are the same
    on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    shape = _call.whole_tuple("input_shape", input_shape)
    windows = windows_of(shape, kernel_size, stride, padding, 1, ceil_mode, axes)
    include = _call.flag("count_include_pad", count_include_pad)
    divisor = divisor_of(divisor_override)
    prepared = prepare_backward(first.device, first.shape, first.dtype, shape, windows, include, divisor)
    return prepared.launch((first,), (out,), stream)[0]


def adaptive_avg_pool(
    input: Any,
    output_size: int | Sequence[int | None] | None,
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take means over windows that divide the input, as ``torch.nn.functional.adaptive_avg_pool1d`` to ``3d`` do.

    Parameters
    ----------
    input : array, [N, C, L], [N, C, H, W] or [N, C, D, H, W], or without N
        Feature maps in float32, float64, float16 or bfloat16.
    output_size : int, None or sequence of int or None
        Windows along each axis; None is as many as the input has elements.
    axes : {1, 2, 3}, optional
        How many axes are pooled, from the last one; None is as many as `output_size` has, and for an int as many as the
        input has beyond two.
    out : array, optional
        Dense array of the input's dtype and device that receives the result. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`avg_pool`.

    Notes
    -----
    Window o of m has of n elements those in [floor(o n / m), ceil((o + 1) n / m)). Sums are those of :func:`avg_pool`.
    May be called from any number of threads.
    """
    first = read("input", input, stream)
    size = axes_of("output_size", output_size, first.shape, axes)
    return prepare_adaptive(first.device, first.shape, first.dtype, size).launch((first,), (out,), stream)[0]


def adaptive_avg_pool_backward(
    grad_output: Any,
    input_shape: Sequence[int],
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`adaptive_avg_pool` with respect to its input.

    Parameters
    ----------
    grad_output : array
        Gradient of the means in float32, float64, float16 or bfloat16; its last axes say how many windows there are.
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
        As :func:`avg_pool`.

    Notes
    -----
    No atomics: an element owns the sum over the windows that hold it, in the forward's order, so the bits are the same
    on every run, thread count, GPU and backend. May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    shape = _call.whole_tuple("input_shape", input_shape)
    pooled = len(axes_of("input_shape", 1, shape, axes))
    prepared = prepare_adaptive_backward(first.device, first.shape, first.dtype, shape, pooled)
    return prepared.launch((first,), (out,), stream)[0]
