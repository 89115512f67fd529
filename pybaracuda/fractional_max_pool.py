# SPDX-License-Identifier: Apache-2.0
"""Fractional maximum pooling: descriptors, plans and array functions; nothing about another operator."""

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
from ._windows import axes_of, extent_fields, extents_of, kernel_fields, whole_numbers
from .max_pool import launched, outputs_of

__all__ = [
    "FractionalMaxPoolBackwardDescriptor",
    "FractionalMaxPoolBackwardPlan",
    "FractionalMaxPoolDescriptor",
    "FractionalMaxPoolPlan",
    "fractional_max_pool",
    "fractional_max_pool_backward",
]

_FEWEST_AXES = 2


@dataclass(frozen=True, slots=True)
class FractionalMaxPoolDescriptor(Descriptor):
    """A fractional maximum pooling, in three dimensions; of two, depth, windows and kernel along it are 1.

    Parameters
    ----------
    n, c, d, h, w : int
        Extents of the input: images, channels, depth, rows, columns.
    output_d, output_h, output_w : int
        Windows along each axis, at most as many as there are places for one.
    kernel_d, kernel_h, kernel_w : int
        Extents of a window.
    num_samples : {2, 3}
        Samples of a plane: of width and height, or of depth, height and width.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of input, samples and output.

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
    num_samples: int
    element: str = "f32"

    operator: ClassVar[str] = "fractional_max_pool"


@dataclass(frozen=True, slots=True)
class FractionalMaxPoolBackwardDescriptor(Descriptor):
    """The gradient of fractional maximum pooling, which needs no samples.

    Parameters
    ----------
    n, c, d, h, w, output_d, output_h, output_w, kernel_d, kernel_h, kernel_w : int
        Those of :class:`FractionalMaxPoolDescriptor`.
    element : {"f32", "f64", "f16", "bf16"}
        Dtype of both gradients.

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
    element: str = "f32"

    operator: ClassVar[str] = "fractional_max_pool_backward"


class FractionalMaxPoolPlan(Plan):
    """Tensors ``input`` [n, c, d, h, w], ``random_samples`` [n, c, num_samples], ``output`` and ``indices``.

    The last two are [n, c, output_d, output_h, output_w], ``indices`` in int64.
    """

    __slots__ = ()
    sums = False
    moves = True
    descriptor_type = FractionalMaxPoolDescriptor
    category = "image"
    layout = "nchw"


class FractionalMaxPoolBackwardPlan(Plan):
    """Tensors ``grad_output`` [n, c, output_d, output_h, output_w], ``indices`` and ``grad_input`` [n, c, d, h, w]."""

    __slots__ = ()
    descriptor_type = FractionalMaxPoolBackwardDescriptor
    category = "image"
    layout = "nchw"


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    input_shape: tuple[int, ...],
    dtype: str,
    samples_shape: tuple[int, ...],
    samples_dtype: str,
    kernel: tuple[int, ...],
    output_size: tuple[int, ...],
    return_indices: bool,
) -> Prepared:
    element = _call.element_of("input", dtype)
    _call.element_of("random_samples", samples_dtype, (element,))
    axes = len(kernel)
    extents = extents_of("input", input_shape, axes)
    planes = input_shape[:-axes]
    # PyTorch's samples have images also where the input has none.
    wanted = (1, *planes, axes) if len(samples_shape) == 3 and len(planes) == 1 else (*planes, axes)
    _call.check_shape("random_samples", samples_shape, wanted)
    fields = {**extent_fields(extents, output_size), **kernel_fields(kernel)}
    descriptor = FractionalMaxPoolDescriptor(**fields, num_samples=axes, element=element)
    kernel_of_call = _call.kernel_for(descriptor, device)
    return Prepared(kernel_of_call, outputs_of((*planes, *output_size), element, return_indices))


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    indices_shape: tuple[int, ...],
    indices_dtype: str,
    input_shape: tuple[int, ...],
    kernel: tuple[int, ...],
) -> Prepared:
    element = _call.element_of("grad_output", dtype)
    _call.element_of("indices", indices_dtype, ("i64",))
    axes = len(kernel)
    extents = extents_of("input_shape", input_shape, axes)
    _call.check_rank("grad_output", grad_shape, f"{len(input_shape)} axes, as input_shape has", len(input_shape))
    bins = grad_shape[-axes:]
    _call.check_shape("grad_output", grad_shape, (*input_shape[:-axes], *bins))
    _call.check_shape("indices", indices_shape, grad_shape)
    fields = {**extent_fields(extents, bins), **kernel_fields(kernel)}
    descriptor = FractionalMaxPoolBackwardDescriptor(**fields, element=element)
    return Prepared(_call.kernel_for(descriptor, device), [Output(input_shape, element, element)])


def fractional_windows(
    input_shape: tuple[int, ...], kernel_size: Any, output_size: Any, samples_shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Answer a window's extents and how many there are, for as many axes as a plane has samples."""
    axes = samples_shape[-1] if samples_shape else 0
    if axes not in (2, 3):
        raise ValueError(f"random_samples has shape {samples_shape}; wanted 2 or 3 numbers for each plane")
    kernel = axes_of("kernel_size", kernel_size, input_shape, axes)
    size = axes_of("output_size", output_size, input_shape, axes)
    return whole_numbers("kernel_size", kernel), whole_numbers("output_size", size)


def fractional_max_pool(
    input: Any,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int],
    random_samples: Any,
    return_indices: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Take maxima over windows placed at random, as ``torch.nn.functional.fractional_max_pool2d`` and ``3d`` do.

    Parameters
    ----------
    input : array, [N, C, H, W] or [N, C, D, H, W], or without N
        Feature maps in float32, float64, float16 or bfloat16.
    kernel_size : int or sequence of int
        Extents of a window, outermost first.
    output_size : int or sequence of int
        Windows along each axis, at most the input's extent - the window's + 1.
    random_samples : array, [N, C, 2] or [N, C, 3]
        Numbers in [0, 1) of the input's dtype, in PyTorch's order: two are for width and height, three for depth,
        height and width. They say how many axes are pooled.
    return_indices : bool
        Whether to answer also which element each window holds: its number in the pooled axes in row-major order, in
        int64.
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
    On an axis of n elements window o of m begins at trunc((o + s) alpha) - trunc(s alpha), alpha = (n - kernel) /
    (m - 1), and the last one at n - kernel; that is computed in float32, in float64 for float64. A window that a sample
    outside of [0, 1) would place outside of the input is moved to its nearer end. Which element wins is as in
    :func:`max_pool`. Bit-stable: the same inputs give the same bits on every run, thread count, GPU and backend. May be
    called from any number of threads.
    """
    wants_indices = _call.flag("return_indices", return_indices)
    first = read("input", input, stream)
    samples = read("random_samples", random_samples, stream, first)
    kernel, size = fractional_windows(first.shape, kernel_size, output_size, samples.shape)
    prepared = prepare(
        first.device, first.shape, first.dtype, samples.shape, samples.dtype, kernel, size, wants_indices
    )
    return launched(prepared, (first, samples), out, stream, wants_indices)


def fractional_max_pool_backward(
    grad_output: Any,
    indices: Any,
    input_shape: Sequence[int],
    kernel_size: int | Sequence[int],
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`fractional_max_pool` with respect to its input.

    Parameters
    ----------
    grad_output : array
        Gradient of the maxima in float32, float64, float16 or bfloat16; its last axes say how many windows there are.
    indices : array
        What the forward call answered, int64.
    input_shape : sequence of int
        Shape of the forward call's input.
    kernel_size : int or sequence of int
        The forward call's.
    axes : {2, 3}, optional
        How many axes were pooled, from the last one; None is as many as `kernel_size` has, and for an int as many as
        the input has beyond two.
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
        As :func:`fractional_max_pool`.

    Notes
    -----
    An index that no sample in [0, 1] gives its window contributes nothing; samples are not asked for, as PyTorch's
    gradient does not have them. No atomics: an element owns its sum, its windows ascending in row-major order, so the
    bits are the same on every run, thread count, GPU and backend. Sums are kept in float32 (float64 for float64). May
    be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    places = read("indices", indices, stream, first)
    shape = _call.whole_tuple("input_shape", input_shape)
    kernel = whole_numbers("kernel_size", axes_of("kernel_size", kernel_size, shape, axes))
    if len(kernel) < _FEWEST_AXES:
        raise ValueError("kernel_size has 1 entry; wanted 2 or 3")
    prepared = prepare_backward(first.device, first.shape, first.dtype, places.shape, places.dtype, shape, kernel)
    return prepared.launch((first, places), (out,), stream)[0]
