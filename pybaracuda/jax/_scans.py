# SPDX-License-Identifier: Apache-2.0
"""Scans along an axis in JAX, with their derivatives; what they compute is in the array functions.

Their tangents are scans of JAX's own; the transposes of these are the kernels of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from .. import _call
from .._arrays import HOST
from .._call import Prepared
from ..scan import prepare, prepare_backward
from ._maxima import answered
from ._operation import Axes, KernelOperation, Operation, Spec, Tangents, Unfold
from ._primitive import array_of, call, run

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]


@dataclass(frozen=True)
class _Along:
    """An axis, counted from the last one so that it stays when others come in front, and the way along it."""

    name: str
    dim: int
    reverse: bool

    def named_axes(self, specs: Sequence[Spec], results: int) -> Axes:
        rank = len(specs[0][0])
        names = tuple(f"n{axis}" for axis in range(rank))
        split = frozenset(names) - {names[self.dim]}
        return Axes((names,) * len(specs), (names,) * results, split, split)


class _Kernel(_Along, KernelOperation):
    """A C function of operands that all have one shape."""

    outputs = 1

    def prepare(self, *specs: Spec) -> Prepared:
        if len(specs) == 1:
            return prepare(self.name, HOST, *specs[0], self.dim, self.reverse)
        shapes, dtypes = (tuple(each) for each in zip(*specs, strict=True))
        return prepare_backward(self.name, HOST, shapes, dtypes, self.dim, self.reverse)

    def axes(self, *specs: Spec) -> Axes:
        return self.named_axes(specs, self.outputs)

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        # Problems that stand one behind the other are one problem of one axis more.
        return self, operands, lambda results: results


class _Sum(_Kernel):
    """Linear; the transpose goes the other way."""

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_Sum(self.name, self.dim, not self.reverse), cotangents[0])


class _Curved(_Kernel):
    """A product, or a logarithm of a sum."""

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        tangent = _Tangent(self.name, self.dim, self.reverse)
        return call(tangent, tangents[0], operands[0], outputs[0])


class _Gradient(_Kernel):
    """The gradient by (grad_output, input, output), linear in the first."""

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        if all(each is None for each in tangents[1:]):
            return call(self, tangents[0], *operands[1:])
        return [_tangent_of(self._composed, operands, tangents)]

    def _composed(self, gradient: Any, input: Any, output: Any) -> Any:
        """What the kernel computes, by JAX's own operators."""
        axis, back = gradient.ndim + self.dim, not self.reverse
        if self.name == "cumprod_backward":
            factor, share = _before(input, axis, back, 1.0), _before(output, axis, self.reverse, 1.0)
        else:
            factor = jnp.exp(output - _before(output, axis, back, jnp.inf))
            share = jnp.where(input == -jnp.inf, 0.0, jnp.exp(input - output))
        return share * _recurrence(factor, gradient, axis, back)

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        tangent = _Tangent(self.name.removesuffix("_backward"), self.dim, self.reverse)
        return call(tangent, cotangents[0], *operands[1:])[0], None, None


class _Tangent(_Along, Operation):
    """The tangent of an output by (that of the input, input, output), linear in the first.

    Of an element it is a factor times that of the one before it, and a share of the input's own.
    """

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return (specs[0],)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        tangent, input, output = operands
        axis = tangent.ndim + self.dim
        before = _before(output, axis, self.reverse, 1.0 if self.name == "cumprod" else -jnp.inf)
        if self.name == "cumprod":
            factor, share = input, before
        else:
            factor, share = (jnp.where(each == -jnp.inf, 0.0, jnp.exp(each - output)) for each in (before, input))
        return [_recurrence(factor, (share * tangent).astype(tangent.dtype), axis, self.reverse)]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        if all(each is None for each in tangents[1:]):
            return call(self, tangents[0], *operands[1:])
        return [_tangent_of(lambda *each: self.evaluate(*each)[0], operands, tangents)]

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        gradient = _Gradient(f"{self.name}_backward", self.dim, self.reverse)
        return call(gradient, cotangents[0], *operands[1:])[0], None, None


def _tangent_of(function: Callable[..., Any], operands: Sequence[Any], tangents: Tangents) -> Any:
    given = [
        jnp.zeros_like(operand) if tangent is None else tangent
        for operand, tangent in zip(operands, tangents, strict=True)
    ]
    return jax.jvp(function, tuple(operands), tuple(given))[1]


def _before(array: Any, axis: int, reverse: bool, first: float) -> Any:
    """The elements before each along the scan."""
    pads: list[tuple[int, int, int]] = [(0, 0, 0)] * array.ndim
    pads[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    return jax.lax.pad(array, jnp.asarray(first, array.dtype), pads)


def _recurrence(factor: Any, term: Any, axis: int, reverse: bool) -> Any:
    """Each term and a factor times what comes before it along the scan."""

    def join(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
        return a[0] * b[0], b[0] * a[1] + b[1]

    return jax.lax.associative_scan(join, (factor.astype(term.dtype), term), reverse=reverse, axis=axis)[1]


class _Extremum(_Kernel):
    """The maxima or minima of (input), and their indices."""

    outputs = 2

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        # An element's place does not move with its value.
        selected = _Selected(self.name, self.dim, self.reverse)
        return call(selected, tangents[0], outputs[1])[0], None


class _Selected(_Along, Operation):
    """The elements of (a tangent of the input, indices) that are the extremes, linear in the first."""

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return (specs[0],)

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        tangent, indices = operands
        axis = tangent.ndim + self.dim
        return [jnp.take_along_axis(tangent, answered(indices, tangent.shape[axis]), axis=axis)]

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        gradient = _ExtremumGradient("cummaxmin_backward", self.dim, self.reverse)
        return call(gradient, cotangents[0], operands[1])[0], None


class _ExtremumGradient(_Kernel):
    """The gradient by (grad_output, indices), linear in the first."""

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        return call(self, tangents[0], operands[1])

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        return call(_Selected("cummax", self.dim, self.reverse), cotangents[0], operands[1])[0], None


def _scanned(make: Callable[[str, int, bool], _Kernel], operator: str, input: Any, dim: Any, reverse: Any) -> Any:
    array = array_of(input)
    axis = _call.axis_of(array.shape, _call.whole("dim", dim)) - max(array.ndim, 1)
    operation = make(operator, axis, _call.flag("reverse", reverse))
    if array.ndim:
        return run(operation, array)
    # A single number is a row.
    return tuple(each.reshape(()) for each in run(operation, array.reshape(1)))


def cumsum(input: Any, dim: int, *, reverse: bool = False) -> Any:
    """Sum up to each element along an axis, as ``jax.lax.cumsum`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int32 or int64; integers wrap around.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    array
        Of the input's shape and dtype.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.cumsum``, when it is traced.

    Notes
    -----
    Linear, so derivatives of every order and both modes exist; the gradient is the sum the other way.
    """
    return _scanned(_Sum, "cumsum", input, dim, reverse)[0]


def cumprod(input: Any, dim: int, *, reverse: bool = False) -> Any:
    """Multiply up to each element along an axis, as ``jax.lax.cumprod`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int32 or int64; integers wrap around.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    array
        Of the input's shape and dtype.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.cumprod``, when it is traced.

    Notes
    -----
    The gradient is that of ``pybaracuda.cumprod_backward``, bit for bit, and right with any number of zeros.
    Derivatives of every order and both modes exist; those of higher order are JAX's own.
    """
    return _scanned(_Curved, "cumprod", input, dim, reverse)[0]


def logcumsumexp(input: Any, dim: int, *, reverse: bool = False) -> Any:
    """Take logarithms of the sums of exponentials up to each element, as ``jax.lax.cumlogsumexp`` does.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16 or bfloat16.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    array
        Of the input's shape and dtype.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.logcumsumexp``, when it is traced.

    Notes
    -----
    The gradient is that of ``pybaracuda.logcumsumexp_backward``, bit for bit. Derivatives of every order and both
    modes exist; those of higher order are JAX's own.
    """
    return _scanned(_Curved, "logcumsumexp", input, dim, reverse)[0]


def _extremes(operator: str, input: Any, dim: Any, reverse: Any) -> tuple[Any, Any]:
    values, indices = _scanned(_Extremum, operator, input, dim, reverse)
    return values, answered(indices, values.shape[dim] if values.ndim else 1)


def cummax(input: Any, dim: int, *, reverse: bool = False) -> tuple[Any, Any]:
    """Find the largest element up to each one along an axis, and where it is; ``jax.lax.cummax`` answers the first.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    values, indices : array
        Of the input's shape; indices in int64 in JAX's 64-bit mode, else in int32.

    Raises
    ------
    TypeError, ValueError
        As ``pybaracuda.cummax``, when it is traced.
    OverflowError
        If the axis has more than 2**31 - 1 elements outside of JAX's 64-bit mode.

    Notes
    -----
    Of equal elements the last along the scan wins. Derivatives of every order and both modes exist, in which the
    indices stay the same; the gradient is that of ``pybaracuda.cummaxmin_backward``, bit for bit.
    """
    return _extremes("cummax", input, dim, reverse)


def cummin(input: Any, dim: int, *, reverse: bool = False) -> tuple[Any, Any]:
    """Find the smallest element up to each one along an axis, and where it is; ``jax.lax.cummin`` answers the first.

    Parameters
    ----------
    input : array
        Numbers in float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
    dim : int
        The axis, negative from the last one.
    reverse : bool
        Whether to go from the axis's end to its begin.

    Returns
    -------
    values, indices : array
        Of the input's shape; indices in int64 in JAX's 64-bit mode, else in int32.

    Raises
    ------
    TypeError, ValueError, OverflowError
        As :func:`cummax`.

    Notes
    -----
    As of :func:`cummax`.
    """
    return _extremes("cummin", input, dim, reverse)
