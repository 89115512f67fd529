# SPDX-License-Identifier: Apache-2.0
"""Maximum unpooling: descriptors, plans and array functions; nothing about another operator."""

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
from ._windows import axes_of, extent_fields, extents_of, whole_numbers

__all__ = [
    "MaxUnpoolBackwardDescriptor",
    "MaxUnpoolBackwardPlan",
    "MaxUnpoolDescriptor",
    "MaxUnpoolPlan",
    "max_unpool",
    "max_unpool_backward",
]


@dataclass(frozen=True, slots=True)
class MaxUnpoolDescriptor(Descriptor):
    """A maximum unpooling, in three dimensions; fewer are extents of 1.

    Parameters
    ----------
    n, c, d, h, w : int
        Extents of the input: images, channels, depth, rows, columns.
    output_d, output_h, output_w : int
        Extents of a plane of the output.
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

    operator: ClassVar[str] = "max_unpool"


@dataclass(frozen=True, slots=True)
class MaxUnpoolBackwardDescriptor(MaxUnpoolDescriptor):
    """The gradient of maximum unpooling; the fields are those of :class:`MaxUnpoolDescriptor`."""

    operator: ClassVar[str] = "max_unpool_backward"


class MaxUnpoolPlan(Plan):
    """Tensors ``input`` and ``indices`` [n, c, d, h, w], in int64, and ``output``.

    The last is [n, c, output_d, output_h, output_w].
    """

    __slots__ = ()
    sums = False
    moves = True
    descriptor_type = MaxUnpoolDescriptor
    category = "image"
    layout = "nchw"


class MaxUnpoolBackwardPlan(Plan):
    """Tensors ``grad_output`` [n, c, output_d, output_h, output_w], ``indices`` and ``grad_input`` [n, c, d, h, w]."""

    __slots__ = ()
    sums = False
    moves = True
    descriptor_type = MaxUnpoolBackwardDescriptor
    category = "image"
    layout = "nchw"


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    input_shape: tuple[int, ...],
    dtype: str,
    indices_shape: tuple[int, ...],
    indices_dtype: str,
    output_size: tuple[int, ...],
) -> Prepared:
    element = _call.element_of("input", dtype)
    _call.element_of("indices", indices_dtype, ("i64",))
    axes = len(output_size)
    extents = extents_of("input", input_shape, axes)
    _call.check_shape("indices", indices_shape, input_shape)
    descriptor = MaxUnpoolDescriptor(**extent_fields(extents, output_size), element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output((*input_shape[:-axes], *output_size), element, element)])


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare_backward(
    device: int,
    grad_shape: tuple[int, ...],
    dtype: str,
    indices_shape: tuple[int, ...],
    indices_dtype: str,
    axes: int,
) -> Prepared:
    element = _call.element_of("grad_output", dtype)
    _call.element_of("indices", indices_dtype, ("i64",))
    extents = extents_of("indices", indices_shape, axes)
    _call.check_rank("grad_output", grad_shape, f"{len(indices_shape)} axes, as indices has", len(indices_shape))
    size = grad_shape[-axes:]
    _call.check_shape("grad_output", grad_shape, (*indices_shape[:-axes], *size))
    descriptor = MaxUnpoolBackwardDescriptor(**extent_fields(extents, size), element=element)
    kernel = _call.kernel_for(descriptor, device)
    return Prepared(kernel, [Output(indices_shape, element, element)])


def max_unpool(
    input: Any,
    indices: Any,
    output_size: int | Sequence[int],
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Put elements where indices say, as ``torch.nn.functional.max_unpool1d`` to ``max_unpool3d`` do.

    Parameters
    ----------
    input : array, [N, C, L], [N, C, H, W] or [N, C, D, H, W], or without N
        What :func:`max_pool` answered, or anything of that shape, in float32, float64, float16 or bfloat16.
    indices : array
        Of the input's shape: each element's place in its plane of the output, in row-major order, int64.
    output_size : int or sequence of int
        Extents of a plane of the output, outermost first.
    axes : {1, 2, 3}, optional
        How many axes are unpooled, from the last one; None is as many as `output_size` has, and for an int as many as
        the input has beyond two.
    out : array, optional
        Dense array of the input's dtype and device that receives the result; fully overwritten. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the input's framework.

    Returns
    -------
    array
        Of the input's kind, dtype and device; `out` if given. torch tensors come back without a gradient function.

    Raises
    ------
    TypeError
        If an argument is no array or has a dtype that is never unpooled.
    ValueError
        If shapes do not fit, or `out` cannot be written.
    InvalidProblemError
        If a number is out of its range.

    Notes
    -----
    Places that no index names are 0. Of several elements of one place the last in row-major order stays; an element
    whose index is out of range is dropped. Bits are moved; the same inputs give the same bits on every run, thread
    count, GPU and backend. May be called from any number of threads.
    """
    first = read("input", input, stream)
    places = read("indices", indices, stream, first)
    size = whole_numbers("output_size", axes_of("output_size", output_size, first.shape, axes))
    prepared = prepare(first.device, first.shape, first.dtype, places.shape, places.dtype, size)
    return prepared.launch((first, places), (out,), stream)[0]


def max_unpool_backward(
    grad_output: Any,
    indices: Any,
    *,
    axes: int | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Compute the gradient of :func:`max_unpool` with respect to its input, as PyTorch defines it.

    Parameters
    ----------
    grad_output : array
        Gradient of the output in float32, float64, float16 or bfloat16.
    indices : array
        The forward call's, int64.
    axes : {1, 2, 3}, optional
        How many axes were unpooled, from the last one; None is as many as the indices have beyond two.
    out : array, optional
        Dense array of the gradient's dtype and device; fully overwritten, whatever it held. Not for JAX.
    stream : int or object with ``__cuda_stream__``, optional
        CUDA only; None means the current stream of the gradient's framework.

    Returns
    -------
    array
        Of the gradient's kind, dtype and device, of the indices' shape; `out` if given.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As :func:`max_unpool`.

    Notes
    -----
    Every element takes the gradient of its place, those that did not stay there too; 0 if its index is out of range.
    May be called from any number of threads.
    """
    first = read("grad_output", grad_output, stream)
    places = read("indices", indices, stream, first)
    unpooled = len(axes_of("indices", 1, places.shape, axes))
    prepared = prepare_backward(first.device, first.shape, first.dtype, places.shape, places.dtype, unpooled)
    return prepared.launch((first, places), (out,), stream)[0]
