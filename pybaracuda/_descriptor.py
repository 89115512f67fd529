# SPDX-License-Identifier: Apache-2.0
"""The values that describe a problem, a choice of code and its promises. Nothing here calls the library."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod
from operator import index
from typing import Any, ClassVar

import numpy as np

from . import _abi
from ._errors import shown
from ._float_environment import DefaultFloatEnvironment

__all__ = [
    "Descriptor",
    "IndexedDescriptor",
    "PlanPreference",
    "PrecisionGuarantee",
    "Sku",
    "exact_float",
    "whole_or_float",
]


@dataclass(frozen=True)
class PrecisionGuarantee:
    """What a plan promises about its arithmetic.

    Attributes
    ----------
    math_precision : str
        Dtype token in which products are formed; "exact" where bits are moved.
    accumulator : str
        Dtype token in which sums are kept; "none" without sums.
    bit_stable_on_same_hardware : bool
        Same inputs, same bits, from run to run. Ours hold across hardware and backends too.
    deterministic : bool
        No result depends on the order in which threads happen to run.
    """

    math_precision: str
    accumulator: str
    bit_stable_on_same_hardware: bool = True
    deterministic: bool = True


@dataclass(frozen=True)
class Sku:
    """Which piece of code a plan runs.

    Attributes
    ----------
    category, op : str
        The operator and its group.
    element, aux_element : str
        Dtype tokens of the main data and of coordinates, ids or quantized values ("none" without any).
    layout, epilogue : str
    arch : str
        The architecture whose code runs: sm_90, or x86_64-avx512, x86_64-avx2, x86_64-portable.
    backend : str
        "cpu" or "cuda".
    precision_guarantee : PrecisionGuarantee
    """

    category: str
    op: str
    element: str
    aux_element: str
    layout: str
    epilogue: str
    arch: str
    backend: str
    precision_guarantee: PrecisionGuarantee


@dataclass(frozen=True)
class PlanPreference:
    """What the caller wants of a plan.

    Attributes
    ----------
    max_workspace_bytes : int or None
        A plan that wants more workspace is refused with UnsupportedError.
    allow_sm90a : bool
        Whether code for that one architecture may run. No operator has such code yet.
    prefer_backend : {None, "cpu", "cuda"}
        None: CUDA if ``Plan.select`` is given a stream, else the CPU.
    """

    max_workspace_bytes: int | None = None
    allow_sm90a: bool = True
    prefer_backend: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = _checked(field.name, str(field.type), getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        if self.prefer_backend not in (None, "cpu", "cuda"):
            raise ValueError(f"prefer_backend is {shown(self.prefer_backend)}; wanted None, 'cpu' or 'cuda'")


def exact_float(name: str, value: Any) -> float:
    """Convert a real number to float, whatever the thread does with subnormal numbers."""
    if type(value) is float:
        return value
    if type(value) is int and -(1 << 53) <= value <= 1 << 53:
        return float(value)  # exact in every mode
    # float() would parse text, drop an imaginary part with a warning, and take arrays of one element.
    if not isinstance(value, str | bytes | bytearray | complex | np.complexfloating) and not getattr(value, "ndim", 0):
        try:
            with DefaultFloatEnvironment():
                return float(value)
        except OverflowError:
            raise ValueError(f"{name} is {shown(value)}; no float is as large") from None
        except (TypeError, ValueError, RuntimeError):
            pass
    raise TypeError(f"{name}: wanted a number, got {type(value).__name__}")


def whole_or_float(name: str, value: Any) -> float | int:
    """Convert a real number without losing the last digits of a large integer."""
    try:
        return index(value)
    except TypeError:
        return exact_float(name, value)


def _checked(name: str, annotation: str, value: Any) -> Any:
    """Convert one descriptor field to its type, or raise TypeError."""
    if value is None and annotation.endswith(" | None"):
        return None
    try:
        if annotation.startswith("int"):
            return index(value)
        if annotation.startswith("float"):
            return whole_or_float(name, value) if annotation.startswith("float | int") else exact_float(name, value)
        if annotation == "bool":
            if value is True or value is False or (isinstance(value, np.bool_ | int) and int(value) in (0, 1)):
                return bool(value)
            raise TypeError
        if annotation.startswith("str"):
            if isinstance(value, str):
                return value
            raise TypeError
        if annotation == "tuple[float, ...]":
            return tuple(exact_float(name, each) for each in value)
        return tuple(index(each) for each in value)
    except TypeError:
        wanted = annotation.replace("tuple[int, ...]", "a sequence of int")
        wanted = wanted.replace("tuple[float, ...]", "a sequence of float")
        raise TypeError(f"{name}: wanted {wanted}, got {shown(value)}") from None


class Descriptor:
    """Base of every problem description: frozen, hashable, checked for types when made.

    A subclass is a frozen dataclass with one attribute or property for every scalar and host array of its operator;
    values are checked against the ABI's ranges by the C library when a plan is selected.
    """

    __slots__ = ()
    operator: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            value = _checked(field.name, str(field.type), getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    @property
    def variant(self) -> str:
        """The dtype suffix of the C functions."""
        return str(self.element)

    @property
    def element(self) -> str:
        """Dtype token of the main data."""
        raise NotImplementedError

    @property
    def aux_element(self) -> str:
        """Dtype token of coordinates, ids or quantized values; "none" without any."""
        variant = _abi.OPERATORS[self.operator].variants.get(self.variant)
        types = {} if variant is None else variant.types
        others = [token for letter, token in types.items() if letter != "T"]
        return others[0] if "T" in types and others else "none"

    @property
    def absent_tensors(self) -> frozenset[str]:
        """Tensors of the operator that this problem has not: passed as NULL."""
        return frozenset()

    @property
    def cache_key(self) -> Any:
        """What tells apart two descriptors that compare equal but differ in bits, such as a value of 0.0 and -0.0."""
        return None

    def tensor_shape(self, tensor: _abi.Tensor) -> tuple[int, ...]:
        """Answer a tensor's shape from the expressions of the ABI table."""
        shape: list[int] = []
        for expression in tensor.shape:
            shape += self._extents(expression)
        return tuple(shape)

    def _extents(self, expression: str) -> tuple[int, ...]:
        """Evaluate `5`, `name`, `name * name`, `name + 1`, `array`, `array[name]` or `array + array`.

        Also `array[5] if name > 5 else 0`, whose array has `name` entries.
        """
        if expression.isdecimal():
            return (int(expression),)
        if expression.endswith(" else 0"):
            array, entry = expression.partition("] ")[0].split("[")
            entries = getattr(self, array)
            return (entries[int(entry)] if int(entry) < len(entries) else 0,)
        if " * " in expression:
            return (prod(getattr(self, name) for name in expression.split(" * ")),)
        if " + " in expression:
            left, right = expression.split(" + ")
            if right.isdecimal():
                return (getattr(self, left) + int(right),)
            return tuple(a + b for a, b in zip(getattr(self, left), getattr(self, right), strict=True))
        if expression.endswith("]"):
            array, entry = expression[:-1].split("[")
            return (getattr(self, array)[getattr(self, entry)],)
        value = getattr(self, expression)
        return value if isinstance(value, tuple) else (value,)


class IndexedDescriptor(Descriptor):
    """A problem whose indices have a dtype of their own, i32 or i64, which the C functions' names tell apart."""

    __slots__ = ()
    index_element: str

    @property
    def variant(self) -> str:
        """The dtype suffix of the C functions."""
        return f"i64idx_{self.element}" if self.index_element == "i64" else str(self.element)
