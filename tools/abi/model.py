# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of the ABI table: what a parameter, an operator and a variant are, and what many operators say.

No operator is named here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Dtype:
    """What an element is: its bytes, its type in C++, and the integer as whose bits a C function passes it, if any."""

    nbytes: int
    element: str
    bits: str = ""


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

    `shape` lists extents as expressions over scalars. A strided tensor names its stride array in `strides` and has one
    expression for all its extents, such as "input_shape".
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
    """One operator, whose symbols are `baracuda_kernels_<name>_<variant token>_<verb>`.

    The order of `parameters` is frozen: it is the order of the C arguments.
    """

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
    overlap: str = "Status 2 if an output shares an element with another operand."
    # The folder of native/ops and the file of native/abi; empty: called as the family.
    folder: str = ""
    # Frozen signatures in which scalars come between the workspace and the stream: these, in `_run` and, without the
    # stream, in `_can_implement`. Everywhere else they stand in their places among the parameters.
    after_workspace: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", self.folder or self.family)

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

    @property
    def parts(self) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
        """The parameters before the workspace in a frozen signature, and those after it."""
        after = {p.name: p for p in self.parameters if p.name in self.after_workspace}
        before = tuple(p for p in self.parameters if p.name not in after)
        return before, tuple(after[name] for name in self.after_workspace)


def extent(name: str, doc: str) -> Scalar:
    """A size that is checked to be at least 0."""
    return Scalar(name, "i32", doc, low=0, high=INT32_MAX)


FLOATS = tuple(Variant(token, {"T": token}) for token in ("f32", "f16", "bf16", "f64"))

# C is the coordinate type, f32 for the 16-bit types because coordinates do not fit in 16 bits.
IMAGE_FLOATS = tuple(
    Variant(token, {"T": token, "C": coordinate})
    for token, coordinate in (("f32", "f32"), ("f64", "f64"), ("f16", "f32"), ("bf16", "f32"))
)

BIT_STABLE = (
    "Bit-stable: the same inputs give the same bits on every run, stream, thread count, GPU model and backend. "
)
