# SPDX-License-Identifier: Apache-2.0
"""Maximum pooling and unpooling in JAX, with their derivatives; what they compute is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._arrays import HOST
from .._call import Prepared, flag
from .._windows import Windows, adaptive_bins, axes_of, extents_of, whole_numbers, windows_of
from ..fractional_max_pool import fractional_windows
from ..fractional_max_pool import prepare as prepare_fractional
from ..fractional_max_pool import prepare_backward as prepare_fractional_backward
from ..max_pool import prepare, prepare_adaptive, prepare_adaptive_backward, prepare_backward
from ..max_unpool import prepare as prepare_unpool
from ..max_unpool import prepare_backward as prepare_unpool_backward
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents
from ._primitive import array_of, call, in_64_bits, run

__all__ = ["adaptive_max_pool", "fractional_max_pool", "max_pool", "max_unpool"]

_LARGEST_INT32 = 2**31 - 1


def _to_dtype(indices: Any, dtype: str) -> Any:
    """Convert to int64 or from it, also where a program has no other 64-bit numbers."""
    with in_64_bits():
        return jax.lax.convert_element_type(indices, dtype)


def _given(indices: Any) -> Any:
    """Answer a caller's indices as the C functions take them."""
    array = array_of(indices)
    if array.dtype not in (jnp.int32, jnp.int64):
        raise TypeError(f"indices has dtype {array.dtype}; wanted int32 or int64")
    return _to_dtype(array, "int64")


def answered(indices: Any, plane: int) -> Any:
    """Answer the C functions' indices as a program has integers: in int64 if it has that."""
    if jax.config.jax_enable_x64:
        return indices
    if plane > _LARGEST_INT32:
        raise OverflowError(f"indices of planes of {plane} elements need JAX's 64-bit mode")
    return _to_dtype(indices, "int32")


def _axes(shape: tuple[int, ...], pooled: int) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
    """Name the axes of the input and of the output, and those of both that are not pooled."""
    planes = tuple(f"n{axis}" for axis in range(len(shape) - pooled))
    inner, outer = ((*planes, *(f"{side}{axis}" for axis in range(pooled))) for side in "io")
    return inner, outer, frozenset(planes)


class _Placed(NamedTuple):
    """Windows that samples place: the extents of one, and how many there are along each axis."""

    kernel: tuple[int, ...]
    bins: tuple[int, ...]


# Fixed ones, those that samples place, or how many divide each axis.
_Windows = Windows | _Placed | tuple[int, ...]


@dataclass(frozen=True)
class _Pool(KernelOperation):
    """The maxima of (input), and their indices."""

    windows: Windows | tuple[int, ...]

    name = "max_pool"

    @property
    def pooled(self) -> int:
        return self.windows.axes if isinstance(self.windows, Windows) else len(self.windows)

    def prepare(self, *specs: Spec) -> Prepared:
        ((shape, dtype),) = specs
        if isinstance(self.windows, Windows):
            return prepare(HOST, shape, dtype, self.windows, True)
        return prepare_adaptive(HOST, shape, dtype, self.windows, True)

    def axes(self, *specs: Spec) -> Axes:
        inner, outer, planes = _axes(specs[0][0], self.pooled)
        return Axes((inner,), (outer, outer), planes, planes)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        # An element's place does not move with its value.
        extents = tuple(operands[0].shape[-self.pooled :])
        return call(_Selected(extents, self.windows), tangents[0], outputs[1])[0], None


@dataclass(frozen=True)
class _FractionalPool(KernelOperation):
    """The maxima of (input, random_samples), and their indices."""

    windows: _Placed

    name = "fractional_max_pool"

    @property
    def pooled(self) -> int:
        return len(self.windows.kernel)

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_fractional(HOST, *(each for spec in specs for each in spec), *self.windows, True)

    def axes(self, *specs: Spec) -> Axes:
        inner, outer, planes = _axes(specs[0][0], self.pooled)
        samples = (*inner[: -self.pooled], "samples")
        return Axes((inner, samples), (outer, outer), planes, planes)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        # An element's place does not move with its value, and a window's not with its sample but by whole elements.
        if tangents[0] is None:
            return None, None
        extents = tuple(operands[0].shape[-self.pooled :])
        return call(_Selected(extents, self.windows), tangents[0], outputs[1])[0], None


@dataclass(frozen=True)
class _Selected(Operation):
    """The elements of (a tangent of the input, indices) that the windows hold, linear in the first."""

    extents: tuple[int, ...]
    windows: _Windows

    name = "max_pool"

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return ((specs[1][0], specs[0][1]),)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        tangent, indices = operands
        return [_taken(tangent, indices, len(self.extents))]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_PoolBackward(self.extents, self.windows), cotangents[0], operands[1])[0], None


def _taken(values: Any, indices: Any, pooled: int) -> Any:
    """The elements that indices name; 0 for those that name none."""
    lead, plane = values.shape[:-pooled], prod(values.shape[-pooled:])
    if not plane:
        return jnp.zeros(indices.shape, values.dtype)
    if plane <= _LARGEST_INT32:
        # What does not fit names no element, and neither does -1. No constant of 64 bits is compared with, since older
        # JAXs make 32 of them in a program that has no other such numbers.
        narrow = _to_dtype(indices, "int32")
        indices = jnp.where(jax.lax.eq(_to_dtype(narrow, "int64"), indices), narrow, -1)
    places = indices.reshape((*lead, -1))
    is_inside = (places >= 0) & (places < plane)
    found = jnp.take_along_axis(values.reshape((*lead, plane)), jnp.where(is_inside, places, 0), axis=-1)
    return jnp.where(is_inside, found, jnp.zeros((), values.dtype)).reshape(indices.shape)


@dataclass(frozen=True)
class _PoolBackward(KernelOperation):
    """The gradient of the input by (grad_output, indices), linear in the first."""

    extents: tuple[int, ...]
    windows: _Windows

    name = "the gradient of max_pool"

    def prepare(self, *specs: Spec) -> Prepared:
        (shape, dtype), (indices_shape, indices_dtype) = specs
        pooled = len(self.extents)
        input_shape = (*shape[:-pooled], *self.extents)
        given = (HOST, shape, dtype, indices_shape, indices_dtype, input_shape)
        if isinstance(self.windows, Windows):
            return prepare_backward(*given, self.windows)
        if isinstance(self.windows, _Placed):
            return prepare_fractional_backward(*given, self.windows.kernel)
        return prepare_adaptive_backward(*given, pooled)

    def axes(self, *specs: Spec) -> Axes:
        inner, outer, planes = _axes(specs[0][0], len(self.extents))
        return Axes((outer, outer), (inner,), planes, planes)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_Selected(self.extents, self.windows), cotangents[0], operands[1])[0], None


@dataclass(frozen=True)
class _Unpool(KernelOperation):
    """The elements of (input, indices) at their places, linear in the first."""

    size: tuple[int, ...]

    name = "max_unpool"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_unpool(HOST, *(each for spec in specs for each in spec), self.size)

    def axes(self, *specs: Spec) -> Axes:
        inner, outer, planes = _axes(specs[0][0], len(self.size))
        return Axes((inner, inner), (outer,), planes, planes)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_UnpoolBackward(self.size), cotangents[0], operands[1])[0], None


@dataclass(frozen=True)
class _UnpoolBackward(KernelOperation):
    """The elements of (grad_output, indices) at the places that indices name, linear in the first."""

    size: tuple[int, ...]

    name = "the gradient of max_unpool"

    def prepare(self, *specs: Spec) -> Prepared:
        return prepare_unpool_backward(HOST, *(each for spec in specs for each in spec), len(self.size))

    def axes(self, *specs: Spec) -> Axes:
        inner, outer, planes = _axes(specs[1][0], len(self.size))
        return Axes((outer, inner), (inner,), planes, planes)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_Unpool(self.size), cotangents[0], operands[1])[0], None


def _pooled(operation: _Pool | _FractionalPool, return_indices: bool, *arrays: Any) -> Any:
    output, indices = run(operation, *arrays)
    if not return_indices:
        return output
    return output, answered(indices, prod(arrays[0].shape[-operation.pooled :]))


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
        Whether to answer also which element each window holds: its number in the pooled axes in row-major order; -1
        for a window without elements. int64 in JAX's 64-bit mode, else int32.
    axes : {1, 2, 3}, optional
        How many axes are pooled, from the last one; None is as many as `kernel_size` has, and for an int as many as
        the input has beyond two.

    Returns
    -------
    array
        Of the input's dtype; with `return_indices`, that and the indices.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.max_pool``, when it is traced.
    OverflowError
        For indices that int32 cannot hold outside of JAX's 64-bit mode.

    Notes
    -----
    Derivatives of every order and both modes exist; the gradient is that of ``pybaracuda.max_pool_backward``, bit for
    bit: a window's goes to the element that won.
    """
    wants_indices = flag("return_indices", return_indices)
    array = array_of(input)
    windows = windows_of(array.shape, kernel_size, stride, padding, dilation, ceil_mode, axes)
    extents_of("input", array.shape, windows.axes)
    return _pooled(_Pool(windows), wants_indices, array)


def adaptive_max_pool(
    input: Any,
    output_size: int | Sequence[int | None] | None,
    return_indices: bool = False,
    *,
    axes: int | None = None,
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

    Returns
    -------
    array
        As of :func:`max_pool`.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError, OverflowError
        As :func:`max_pool`.

    Notes
    -----
    Derivatives of every order and both modes exist; the gradient is that of
    ``pybaracuda.adaptive_max_pool_backward``, bit for bit.
    """
    wants_indices = flag("return_indices", return_indices)
    array = array_of(input)
    size = axes_of("output_size", output_size, array.shape, axes)
    extents_of("input", array.shape, len(size))
    return _pooled(_Pool(adaptive_bins(array.shape, size)), wants_indices, array)


def fractional_max_pool(
    input: Any,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int],
    random_samples: Any,
    return_indices: bool = False,
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
        Numbers in [0, 1) of the input's dtype, such as ``jax.random.uniform`` draws: two for width and height, three
        for depth, height and width.
    return_indices : bool
        As of :func:`max_pool`.

    Returns
    -------
    array
        As of :func:`max_pool`.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.fractional_max_pool``, when it is traced.
    OverflowError
        As :func:`max_pool`.

    Notes
    -----
    Derivatives of every order and both modes exist; the gradient is that of
    ``pybaracuda.fractional_max_pool_backward``, bit for bit. Samples have none.
    """
    wants_indices = flag("return_indices", return_indices)
    array, samples = array_of(input), array_of(random_samples)
    kernel, size = fractional_windows(array.shape, kernel_size, output_size, samples.shape)
    extents_of("input", array.shape, len(kernel))
    return _pooled(_FractionalPool(_Placed(kernel, size)), wants_indices, array, jax.lax.stop_gradient(samples))


def max_unpool(input: Any, indices: Any, output_size: int | Sequence[int], *, axes: int | None = None) -> Any:
    """Put elements where indices say, as ``torch.nn.functional.max_unpool1d`` to ``max_unpool3d`` do.

    Parameters
    ----------
    input : array, [N, C, L], [N, C, H, W] or [N, C, D, H, W], or without N
        Elements in float32, float64, float16 or bfloat16.
    indices : array, of the input's shape
        Where each goes: a number in the result's last axes in row-major order, int32 or int64.
    output_size : int or sequence of int
        Extents of the result's last axes.
    axes : {1, 2, 3}, optional
        How many axes are unpooled, from the last one; None is as many as `output_size` has, and for an int as many as
        the input has beyond two.

    Returns
    -------
    array
        Of the input's dtype; 0 where no index points.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.max_unpool``, when it is traced.

    Notes
    -----
    Of elements with one place the last in row-major order stays; an index out of range is dropped. The gradient is that
    of ``pybaracuda.max_unpool_backward``, bit for bit, which is PyTorch's: an element has its place's, also one that
    did not stay. Derivatives of every order and both modes exist, exact where no place is named twice.
    """
    array, places = array_of(input), _given(indices)
    size = whole_numbers("output_size", axes_of("output_size", output_size, array.shape, axes))
    return run(_Unpool(size), array, places)[0]
