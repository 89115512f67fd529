# SPDX-License-Identifier: Apache-2.0
"""What the record of a family holds, and what records are written with; no family is named here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pybaracuda._check.abi_calls import Symbol, Values, element_memory, extents
from pybaracuda._check.cases import Case
from verify.dtypes import Array, dtype_of

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
KIB, MIB = 2**10, 2**20

NOTHING: Mapping[str, Any] = MappingProxyType({})

# ---- the C functions' contract


class Empty(NamedTuple):
    """A problem with a zero extent that must succeed. `fill` is what every element of a non-empty output then is."""

    name: str
    values: Values
    fill: float = 0.0
    # Outputs that are filled with something else, by name.
    fills: Mapping[str, float] = NOTHING


class Baseline(NamedTuple):
    """What the spec cannot say about an operator: a small valid problem, and problems that are special to it."""

    values: Values
    empties: tuple[Empty, ...]
    # Extents whose products pass 2^63; those that a dtype still holds are left out there.
    overflows: tuple[Values, ...]
    # Other wrong scalars and arrays: name -> values, and the argument that the text must name.
    faults: Mapping[str, tuple[Values, str]] = NOTHING
    # Strides of outputs that put two elements in one place: name -> values, and the argument that the text must name.
    shared_places: Mapping[str, tuple[Values, str]] = NOTHING
    # Extents on which more than one tile, block of channels and chunk of a long sum is in play.
    larger: Values | None = None
    # Bytes from which a workspace that is too small is taken for none, as frozen callers need.
    least_workspace: int | None = None
    # Extents whose scratch passes 2^46 bytes, which is more than a process can address; None where none is needed.
    more_scratch_than_memory: Values | None = None
    # The input that the output may be itself.
    in_place: str = ""


def zero(*names: str, fill: float = 0.0) -> tuple[Empty, ...]:
    """An empty problem for each of these extents."""
    return tuple(Empty(f"{name}-0", {name: 0}, fill) for name in names)


class Scratch(NamedTuple):
    """The header's bound on a family's workspace, written again."""

    # Sizes of any order of magnitude.
    draw: Callable[[np.random.Generator, Symbol], Values]
    # The least and the most bytes, of a symbol on a backend.
    bounds: Callable[[Symbol, str, Mapping[str, Any]], tuple[int, int]]
    problems: int = 300


def size_between(rng: np.random.Generator, low: int, high: int) -> int:
    """Any order of magnitude is as likely."""
    return min(high, int(np.exp(rng.uniform(np.log(low), np.log(high + 1)))))


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


def compute_bytes(symbol: Symbol) -> int:
    """Of a coordinate, a weight and a partial sum."""
    return 8 if symbol.variant.types["C"] == "f64" else 4


# ---- array functions and plans


class Call(NamedTuple):
    """A call of an array function: its arrays by name, in call order, then other arguments; how many it answers.

    Arrays called `name[0]`, `name[1]` and so on are one argument, a list.
    """

    function: Callable[..., Any]
    arrays: dict[str, Array]
    options: dict[str, Any]
    outputs: int = 1

    def __call__(self, out: Any = None, stream: Any = None, **replaced: Any) -> Any:
        given: dict[str, Any] = {}
        for name, array in {**self.arrays, **replaced}.items():
            keyword, bracket, _ = name.partition("[")
            if bracket:
                given.setdefault(keyword, []).append(array)
            else:
                given[keyword] = array
        return self.function(**given, **self.options, out=out, stream=stream)


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Distinct small numbers in quarters, some negative."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7919 % 97 - 40) / 4).reshape(shape).astype(dtype)


def coordinates_of(dtype: Any) -> Any:
    """The coordinates' dtype for data of this one."""
    return np.float64 if np.dtype(dtype) == np.float64 else np.float32


class PlanCase(NamedTuple):
    """A plan of the problem of a call; `function` is the call's name."""

    plan: type[Any]
    descriptor: Any
    function: str
    # The plan's tensor names for the function's arrays, and for its outputs, in the function's order.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fields: tuple[str, ...]
    # What the SKU calls the dtype of the other input.
    aux_element: str = "none"


class Refusal(NamedTuple):
    """A call that must fail: which arrays are replaced, the class and what its text says."""

    name: str
    replaced: dict[str, Any]
    error: type[Exception]
    text: str


# A call's name, an option, its bad value, the class of the error and what its text says.
BadOption = tuple[str, str, Any, type[Exception], str]


class Narrow(NamedTuple):
    """An argument that may come in f16 or bf16 where the operator takes f32: it is widened by a copy."""

    argument: str
    # Whether the last result is narrowed to the argument's dtype.
    narrows: bool = False
    # Whether no other array says that the call is one in float64.
    alone: bool = False
    # Whether data in 16 bits takes it in 16 bits.
    is_datas: bool = False


class Integers(NamedTuple):
    """An argument that may come in any integer dtype."""

    argument: str
    # But these, whose numbers the operator's own dtype may not hold.
    but: tuple[Any, ...] = ()
    # The dtypes that raw device views may have, which are never converted.
    raw: tuple[Any, ...] = (np.int32, np.int64)


def not_complex(function: str) -> tuple[tuple[Any, str], ...]:
    """What every array refuses unless a family says more."""
    return ((np.complex64, "has dtype complex64"),)


# ---- the committed bits

# Elements that are no numbers, as what NumPy has of their width.
WORD_TYPES = {"b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "b128": np.complex128}


class Arrays:
    """A case's tensors as arrays, by name."""

    def __init__(self, case: Case, results: Mapping[str, bytes]) -> None:
        self.values: dict[str, Any] = dict(case.values)
        self.token = case.symbol.variant.types.get("T", "")
        self._arrays: dict[str, Array] = {}
        for tensor in case.symbol.tensors:
            if tensor.role == "input":
                content = case.elements(tensor, case.inputs[tensor.name])
            else:
                content = np.frombuffer(results[tensor.name], np.uint8).copy()
            token = case.symbol.dtype(tensor)
            decoded = content.view(WORD_TYPES[token] if token in WORD_TYPES else dtype_of(token))
            self._arrays[tensor.name] = decoded.reshape(extents(tensor, case.values))

    def __getattr__(self, name: str) -> Array:
        return self._arrays[name]

    def with_arrays(self, **arrays: Array) -> Arrays:
        """The same case with other arrays, and values of its own."""
        changed = object.__new__(Arrays)
        changed.values, changed.token = dict(self.values), self.token
        changed._arrays = {**self._arrays, **arrays}
        return changed

    def extents(self, *names: str) -> tuple[Any, ...]:
        """The values of these scalars."""
        return tuple(self.values[name] for name in names)

    def pattern(self, value: Any, like: Array) -> Any:
        """The bits of an argument that is an element, as elements of an array of bits."""
        return np.frombuffer(element_memory(self.token, value), like.dtype)[0]


Check = Callable[[Arrays], None]


# ---- the record


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """Everything that the tests of all operators have to know about one family."""

    # Its families in the ABI table.
    families: tuple[str, ...]

    # By operator: the contract's problem, and what holds a committed case against the float64 definition.
    baselines: Mapping[str, Baseline]
    checks: Mapping[str, Check]
    # The bound on the workspace; None if there never is one.
    scratch: Scratch | None = None

    # Public functions with their keywords, in order; ``out`` and ``stream`` follow in each.
    functions: Mapping[str, str]
    # One call, or several, of each of them on data of a dtype. Coordinates are float64 for float64 data, else float32.
    calls: Callable[[Any], Mapping[str, Call]]
    # By operator, for data of a dtype token.
    plans: Callable[[str], Mapping[str, PlanCase]]
    # Whether other operators have a plan in common, which the family's own test runs.
    has_generic_plans: bool = False

    # What calls refuse, by a call's name: arrays of integers for these arguments; any other wrong array or option.
    floats_only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused_dtypes: Callable[[str], tuple[tuple[Any, str], ...]] = not_complex
    bad_arrays: Callable[[Mapping[str, Call]], Iterable[Refusal]] = lambda calls: ()
    bad_options: tuple[BadOption, ...] = ()
    # Arguments that may have any number of axes, by call.
    any_rank: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Whether outputs may have any strides.
    takes_strided_outputs: bool = False
    # What descriptors refuse when they are made, and plans of a descriptor when they are selected.
    bad_descriptors: tuple[tuple[Callable[[], Any], type[Exception], str], ...] = ()
    bad_problems: tuple[tuple[Any, type[Exception], str], ...] = ()

    # What is converted, by call.
    narrow: Mapping[str, Narrow] = field(default_factory=dict)
    integers: Mapping[str, Integers] = field(default_factory=dict)

    # Operators that these frameworks do not have, or the benchmark does not call there.
    not_in_torch: frozenset[str] = frozenset()
    not_in_jax: frozenset[str] = frozenset()
