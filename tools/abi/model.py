# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of the ABI table: what a parameter, an operator and a variant are. No operator is named here."""

from __future__ import annotations

from dataclasses import dataclass, field

INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Scalar:
    """A scalar passed by value. `low` and `high` are the inclusive range that status 2 guards; None means unbounded."""

    name: str
    ctype: str  # i32 i64 f32 f64, or VALUE: the element's own C type (16-bit types as their bit pattern)
    doc: str
    low: int | None = None
    high: int | None = None
    finite: bool = False


@dataclass(frozen=True)
class HostArray:
    """A host array read before the call returns. `length` is a scalar's name or a number; `low` bounds every entry."""

    name: str
    ctype: str
    length: str
    doc: str
    low: int | None = None


@dataclass(frozen=True)
class Tensor:
    """A data pointer. `dtype` is a dtype token or a key of the variant's `types`.

    `shape` lists extents as expressions over scalars; a strided tensor names its stride array in `strides` and its
    extents in `shape` as one host expression such as "input_shape". `numel` is the element count as an expression.
    """

    name: str
    role: str  # "input" or "output"
    dtype: str
    shape: tuple[str, ...]
    doc: str
    strides: str | None = None


@dataclass(frozen=True)
class Options:
    """A pointer to a host struct that may grow: its first field, `size`, is the caller's size of it in bytes.

    A field that is a HostArray is a pointer to one element; its `doc` says what NULL means.
    """

    name: str
    struct: str  # the C type is baracuda_kernels_<struct>
    fields: tuple[Scalar | HostArray, ...]
    doc: str


Parameter = Scalar | HostArray | Options | Tensor


@dataclass(frozen=True)
class Variant:
    """One dtype instance of an operator: `token` is the symbol's suffix, `types` what its letters stand for."""

    token: str
    types: dict[str, str] = field(hash=False)


@dataclass(frozen=True)
class Operator:
    """One operator family of symbols: `baracuda_kernels_<name>_<variant token>_<verb>`."""

    name: str
    family: str
    summary: str
    parameters: tuple[Parameter, ...]
    variants: tuple[Variant, ...]
    empty: str
    bad_data: str
    workspace: str
    determinism: str
    source: str
    overlap: str = "Inputs and outputs must not overlap."
    # The file of native/abi that holds the argument block; None: one of the operator's own.
    block_file: str | None = None

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        return tuple(p for p in self.parameters if isinstance(p, Scalar))

    @property
    def host_arrays(self) -> tuple[HostArray, ...]:
        return tuple(p for p in self.parameters if isinstance(p, HostArray))

    @property
    def options(self) -> tuple[Options, ...]:
        return tuple(p for p in self.parameters if isinstance(p, Options))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(p for p in self.parameters if isinstance(p, Tensor))
