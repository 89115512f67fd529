# SPDX-License-Identifier: Apache-2.0
"""What the ABI's table is made of in Python: parameters, variants, operators. No operator is named here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Scalar(NamedTuple):
    """A scalar argument; `ctype` is i32, i64, f32, f64 or VALUE (the element's own type, or its bits)."""

    name: str
    ctype: str
    low: int | None
    high: int | None
    finite: bool


class HostArray(NamedTuple):
    """A host array argument of `length` entries (a scalar's name or a number)."""

    name: str
    ctype: str
    length: str
    low: int | None


class Options(NamedTuple):
    """A pointer to a host struct that begins with its size; `format` is its `struct` format."""

    name: str
    struct: str
    fields: tuple[Scalar | HostArray, ...]
    format: str


class Tensor(NamedTuple):
    """A data pointer; `dtype` is a dtype token or a key of the variant's types, `shape` its extents as expressions."""

    name: str
    role: str
    dtype: str
    shape: tuple[str, ...]
    strides: str | None


class Variant(NamedTuple):
    """One dtype instance: the symbol's suffix, its types, and the `struct` format of the packed argument block."""

    token: str
    types: dict[str, str]
    block_format: str


class Operator(NamedTuple):
    """One operator: the symbols that differ in their dtypes alone."""

    name: str
    family: str
    parameters: tuple[Scalar | HostArray | Options | Tensor, ...]
    variants: dict[str, Variant]
    after_workspace: tuple[str, ...] = ()

    def in_call_order(self, arguments: Sequence[Any], workspace: Sequence[Any] = ()) -> list[Any]:
        """Put one argument for each parameter in the order of ``_run``, or of ``_can_implement`` where it differs.

        `workspace` is what stands for the workspace and its bytes; what comes after these are the scalars that a
        frozen signature has there.
        """
        after = [p.name in self.after_workspace for p in self.parameters]
        before = [each for each, is_after in zip(arguments, after, strict=True) if not is_after]
        return [*before, *workspace, *(each for each, is_after in zip(arguments, after, strict=True) if is_after)]
