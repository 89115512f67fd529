# SPDX-License-Identifier: Apache-2.0
"""What the primitive asks of an operator: results, folding of mapped axes, derivatives, axes that may be split.

No operator is named here. Objects of these classes are a primitive's parameter: frozen, equal by value, hashable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from .._call import Prepared
from .._dtypes import numpy_dtype

__all__ = [
    "Axes",
    "KernelOperation",
    "Operation",
    "Spec",
    "Tangents",
    "Unfold",
    "merged",
    "parted",
    "zeros",
]

# Shape and dtype's token of an operand or result.
Spec = tuple[tuple[int, ...], str]
# None where a tangent or cotangent is 0.
Tangents = Sequence[Any]
# Makes the results of several problems of the results of the one that they were made to.
Unfold = Callable[[Sequence[Any]], Sequence[Any]]


class Axes(NamedTuple):
    """The axes of operands and results by names, of which equal ones are of one size.

    Along those of `split` the devices may share the work and keep the bits of one device: nothing is added along them.
    Along those of `split_forever` also in the derivatives, which are then taken device by device, too.
    """

    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]
    split: frozenset[str]
    split_forever: frozenset[str]


class Operation:
    """An operator with its options, made up of others, or a C function's (`KernelOperation`).

    Its methods see no mapped axes.
    """

    name: str

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        """Check operands and answer what comes out."""
        raise NotImplementedError

    def evaluate(self, *operands: Any) -> Sequence[Any]:
        """Compute the results by other operators."""
        raise NotImplementedError(f"{self.name} cannot be computed")

    def jvp(self, operands: Sequence[Any], tangents: Tangents, outputs: Sequence[Any]) -> Tangents:
        """Answer the outputs' tangents."""
        raise NotImplementedError(f"{self.name} has no derivative")

    def transpose(self, cotangents: Tangents, operands: Sequence[Any], wanted: Sequence[bool]) -> Tangents:
        """Answer the cotangents of those operands that are `wanted`, of which `operands` has specs, no values."""
        raise NotImplementedError(f"{self.name} has no transpose")


class KernelOperation(Operation):
    """An operator that one C function computes.

    Attributes
    ----------
    folds : bool
        Whether equal problems become one; if not, they are done one after the other.
    """

    folds: bool = True

    def prepare(self, *specs: Spec) -> Prepared:
        """Check operands; answer the kernel, the conversions before it and the outputs."""
        raise NotImplementedError

    def results(self, *specs: Spec) -> tuple[Spec, ...]:
        return tuple((output.shape, output.given) for output in self.prepare(*specs).outputs)

    def reused(self, *specs: Spec) -> int | None:
        """Answer the operand whose memory the first result takes; where others read it, XLA makes a copy before."""
        return None

    def axes(self, *specs: Spec) -> Axes:
        """Name the axes."""
        raise NotImplementedError

    def fold(self, size: int, operands: Sequence[Any]) -> tuple[KernelOperation, Sequence[Any], Unfold]:
        """Make one problem of `size` equal ones, whose operands stand one behind the other on a first axis.

        Answers its operator and operands, and what makes the results of it.
        """
        return self, [merged(each) for each in operands], lambda results: [parted(size, each) for each in results]


def merged(array: Any) -> Any:
    """Make one axis of the first two."""
    return array.reshape((array.shape[0] * array.shape[1], *array.shape[2:]))


def parted(size: int, array: Any) -> Any:
    """Make two axes of the first one."""
    return array.reshape((size, array.shape[0] // size, *array.shape[1:]))


def zeros(spec: Spec) -> Any:
    """Make an operand that nothing depends on."""
    return jnp.zeros(spec[0], numpy_dtype(spec[1]))
