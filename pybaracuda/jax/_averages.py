# SPDX-License-Identifier: Apache-2.0
"""Average pooling in JAX, with its derivatives; what it computes is in the array functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import _call
from .._arrays import HOST
from .._call import Prepared
from .._windows import Windows, adaptive_bins, axes_of, extents_of, windows_of
from ..avg_pool import divisor_of, prepare, prepare_adaptive, prepare_adaptive_backward, prepare_backward
from ._operation import Axes, KernelOperation, Spec, Tangents
from ._primitive import array_of, call, run

__all__ = ["adaptive_avg_pool", "avg_pool"]


@dataclass(frozen=True)
class _Means(KernelOperation):
    """Means over windows, or with `backward` the gradient of them: each other's transposes.

    `extents` are those of the pooled axes of the input.
    """

    extents: tuple[int, ...]
    backward: bool

    def input_shape(self, grad_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*grad_shape[: -len(self.extents)], *self.extents)

    def axes(self, *specs: Spec) -> Axes:
        ((shape, _),) = specs
        pooled = len(self.extents)
        planes = tuple(f"n{axis}" for axis in range(len(shape) - pooled))
        operand, result = ((*planes, *(f"{side}{axis}" for axis in range(pooled))) for side in "io")
        split = frozenset(planes)
        return Axes((operand,), (result,), split, split)

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(replace(self, backward=not self.backward), cotangents[0])


@dataclass(frozen=True)
class _AvgPool(_Means):
    windows: Windows
    count_include_pad: bool
    divisor: int

    name = "avg_pool"

    def prepare(self, *specs: Spec) -> Prepared:
        ((shape, dtype),) = specs
        options = (self.windows, self.count_include_pad, self.divisor)
        if self.backward:
            return prepare_backward(HOST, shape, dtype, self.input_shape(shape), *options)
        return prepare(HOST, shape, dtype, *options)


@dataclass(frozen=True)
class _AdaptiveAvgPool(_Means):
    bins: tuple[int, ...]

    name = "adaptive_avg_pool"

    def prepare(self, *specs: Spec) -> Prepared:
        ((shape, dtype),) = specs
        if self.backward:
            return prepare_adaptive_backward(HOST, shape, dtype, self.input_shape(shape), len(self.bins))
        return prepare_adaptive(HOST, shape, dtype, self.bins)


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

    Returns
    -------
    array
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.avg_pool``, when it is traced.

    Notes
    -----
    Linear, so derivatives of every order and both modes exist; the gradient is that of
    ``pybaracuda.avg_pool_backward``, bit for bit.
    """
    array = array_of(input)
    windows = windows_of(array.shape, kernel_size, stride, padding, 1, ceil_mode, axes)
    extents_of("input", array.shape, windows.axes)
    include = _call.flag("count_include_pad", count_include_pad)
    operation = _AvgPool(array.shape[-windows.axes :], False, windows, include, divisor_of(divisor_override))
    return run(operation, array)[0]


def adaptive_avg_pool(input: Any, output_size: int | Sequence[int | None] | None, *, axes: int | None = None) -> Any:
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

    Returns
    -------
    array
        Of the input's dtype.

    Raises
    ------
    TypeError, ValueError, InvalidProblemError
        As ``pybaracuda.adaptive_avg_pool``, when it is traced.

    Notes
    -----
    Linear, so derivatives of every order and both modes exist; the gradient is that of
    ``pybaracuda.adaptive_avg_pool_backward``, bit for bit.
    """
    array = array_of(input)
    size = axes_of("output_size", output_size, array.shape, axes)
    extents_of("input", array.shape, len(size))
    operation = _AdaptiveAvgPool(array.shape[-len(size) :], False, adaptive_bins(array.shape, size))
    return run(operation, array)[0]
