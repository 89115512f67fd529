# SPDX-License-Identifier: Apache-2.0
"""Descriptors and plans of segment operations, and what the C operators are called; no arrays."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import _abi
from .._descriptor import Descriptor
from .._errors import InvalidProblemError, UnsupportedError, shown
from .._float_environment import DefaultFloatEnvironment
from .._plan import Plan

__all__ = [
    "FORMS",
    "REDUCTIONS",
    "SegmentDescriptor",
    "SegmentPlan",
    "SegmentSelectionDescriptor",
    "SegmentSelectionPlan",
    "UnsortedSegmentMaxBackwardDescriptor",
    "UnsortedSegmentMaxBackwardPlan",
    "UnsortedSegmentMaxDescriptor",
    "UnsortedSegmentMaxPlan",
    "operator_name",
    "plan_of",
]

# How rows name their segments, and how the operators of each form begin.
FORMS = {"unsorted": "unsorted_segment", "sorted": "segment", "csr": "segment_csr"}
# What answers a value for each segment, in the order of the C options' numbers.
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "max_with_arg", "min_with_arg")
# What only copies bits.
_MOVES = frozenset(
    (
        *("max", "min", "max_with_arg", "min_with_arg"),
        *("max_backward", "min_backward", "max_with_arg_backward", "min_with_arg_backward"),
        *("sum_backward", "gather"),
    )
)


def operator_name(operation: str, form: str) -> str:
    """Name the C functions of an operation, without their dtypes."""
    if not isinstance(form, str) or form not in FORMS:
        raise InvalidProblemError(f"segment: form is {shown(form)}; wanted one of {', '.join(FORMS)}")
    name = f"{FORMS[form]}_{operation}"
    if operation == "gather":
        # The gradient of a sum under another name; only ids in any order have an operator for it.
        name = "segment_gather" if form == "unsorted" else f"{FORMS[form]}_sum_backward"
    if name not in _abi.OPERATORS:
        raise UnsupportedError(f"segment: there is no operation {operation!r} of {form} segments")
    return name


class _Indexed(Descriptor):
    """What follows from the dtype of an index."""

    __slots__ = ()
    index_element: str

    @property
    def aux_element(self) -> str:
        """Dtype token of the ids or offsets."""
        return self.index_element

    @property
    def variant(self) -> str:
        """The dtype suffix of the C functions."""
        return self.element if self.index_element == "i32" else f"{self.index_element}idx_{self.element}"


@dataclass(frozen=True, slots=True)
class _SegmentMaximum(_Indexed):
    """What both directions of a segment maximum are described by."""

    num_inputs: int
    embedding_dim: int
    num_segments: int
    element: str = "f32"
    index_element: str = "i32"


@dataclass(frozen=True, slots=True)
class UnsortedSegmentMaxDescriptor(_SegmentMaximum):
    """A segment maximum.

    Parameters
    ----------
    num_inputs : int
        Rows of the input.
    embedding_dim : int
        Columns.
    num_segments : int
        Rows of the output.
    element : {"f32", "f64", "f16", "bf16"}
    index_element : {"i32", "i64"}
        Dtype of the ids.
    """

    operator: ClassVar[str] = "unsorted_segment_max"


@dataclass(frozen=True, slots=True)
class UnsortedSegmentMaxBackwardDescriptor(_SegmentMaximum):
    """The gradient of a segment maximum; the fields are those of :class:`UnsortedSegmentMaxDescriptor`."""

    operator: ClassVar[str] = "unsorted_segment_max_backward"


class UnsortedSegmentMaxPlan(Plan):
    """Tensors ``input`` [num_inputs, embedding_dim], ``segment_ids`` [num_inputs], ``output``."""

    __slots__ = ()
    descriptor_type = UnsortedSegmentMaxDescriptor
    category = "segment"
    sums = False
    moves = True


class UnsortedSegmentMaxBackwardPlan(Plan):
    """Tensors ``grad_output`` [num_segments, embedding_dim], ``input``, ``segment_ids`` and ``grad_input``."""

    __slots__ = ()
    descriptor_type = UnsortedSegmentMaxBackwardDescriptor
    category = "segment"
    sums = False
    moves = True


@dataclass(frozen=True, slots=True)
class _Segments(_Indexed):
    """What every segment operator is described by."""

    operation: str
    num_rows: int
    embedding_dim: int
    num_segments: int
    form: str = "unsorted"
    element: str = "f32"
    index_element: str = "i32"
    empty_value: float | int | None = None

    def __post_init__(self) -> None:
        Descriptor.__post_init__(self)
        if self.empty_value is not None:
            object.__setattr__(self, "empty_value", self._held(self.empty_value))

    def _held(self, value: float | int) -> float | int:
        """Convert the value of segments without rows to a number that the element's type can take."""
        if self.operation not in REDUCTIONS:
            raise InvalidProblemError(
                f"segment: empty_value is {shown(value)}; {self.operation} has no value of a segment"
            )
        try:
            with DefaultFloatEnvironment():
                if self.element not in ("i32", "i64"):
                    return float(value)
                if value == int(value):
                    return int(value)
        except (ValueError, OverflowError):
            pass  # NaN and infinity are no integers, and an integer may be no float
        raise InvalidProblemError(f"segment: empty_value is {shown(value)}, which {self.element} cannot hold")

    # Not a dataclass field: it follows from the others.
    @property
    def operator(self) -> str:  # type: ignore[override]
        """Name of the C functions without their dtypes."""
        name = operator_name(self.operation, self.form)
        return name if self.empty_value is None else "segment_ex"

    @property
    def num_inputs(self) -> int:
        """The rows, by the name that they have beside ids."""
        return self.num_rows

    @property
    def option_reduce(self) -> int:
        """The reduction's number."""
        return REDUCTIONS.index(self.operation)

    @property
    def option_form(self) -> int:
        """The form's number."""
        return list(FORMS).index(self.form)

    @property
    def option_empty_value(self) -> float | int | None:
        """The value."""
        return self.empty_value

    @property
    def absent_tensors(self) -> frozenset[str]:
        """The rows that hold values: segment_ex has them, whether they are asked for or not."""
        asked = self.empty_value is None or self.operation.endswith("_with_arg")
        return frozenset() if asked else frozenset({"arg"})

    @property
    def cache_key(self) -> bytes | int | None:
        """The value's bits: 0.0 and -0.0 are equal."""
        return struct.pack("d", self.empty_value) if isinstance(self.empty_value, float) else self.empty_value

    def tensor_shape(self, tensor: _abi.Tensor) -> tuple[int, ...]:
        """Answer a tensor's shape; what the table says of segment_ex is more than an expression of extents."""
        if tensor.name == "index":
            return (self.num_segments + 1 if self.form == "csr" else self.num_rows,)
        if tensor.name == "arg":
            return (self.num_segments, self.embedding_dim)
        return Descriptor.tensor_shape(self, tensor)


@dataclass(frozen=True, slots=True)
class SegmentDescriptor(_Segments):
    """A segment operation that computes.

    Parameters
    ----------
    operation : str
        sum, mean, prod, logsumexp or softmax, or one of them and ``_backward``; max_even_backward, min_even_backward.
    num_rows, embedding_dim, num_segments : int
    form : {"unsorted", "sorted", "csr"}
        Ids in any order, ids that never descend, or offsets.
    element : str
        f32, f64, f16, bf16; for sum and prod also i32 and i64.
    index_element : {"i32", "i64"}
        Dtype of the ids or offsets.
    empty_value : float or int, optional
        For reductions: what a segment without rows is, rounded to the element; integers must hold it. None is the
        reduction's own. The index is then called ``index``, for all forms.
    """


@dataclass(frozen=True, slots=True)
class SegmentSelectionDescriptor(_Segments):
    """A segment operation that only moves bits: max, min, either and ``_with_arg``, their backward, gather.

    The other fields are those of :class:`SegmentDescriptor`; integers go for max and min, either and ``_with_arg``.
    """


class SegmentPlan(Plan):
    """The tensors' names are those of the C functions, in their order."""

    __slots__ = ()
    descriptor_type = SegmentDescriptor
    category = "segment"


class SegmentSelectionPlan(Plan):
    """The tensors' names are those of the C functions, in their order."""

    __slots__ = ()
    descriptor_type = SegmentSelectionDescriptor
    category = "segment"
    sums = False
    moves = True


def plan_of(operation: str) -> tuple[type[Plan], type[Any]]:
    """Answer an operation's plan and descriptor."""
    if operation in _MOVES:
        return SegmentSelectionPlan, SegmentSelectionDescriptor
    return SegmentPlan, SegmentDescriptor
