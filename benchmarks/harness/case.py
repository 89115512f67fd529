# SPDX-License-Identifier: Apache-2.0
"""What the benchmark has to know about one problem of one operator, and what a row is; no operator is named here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pybaracuda._descriptor import Descriptor, PlanPreference
from pybaracuda._plan import Plan
from verify.bounds import Sum
from verify.dtypes import Array

from .draw import Draw

# What runs an operator in a framework once. It answers the operator's outputs in order, None for one that it lacks.
FrameworkCall = Callable[[], Sequence[Any]]


class Part(NamedTuple):
    """A part of output number `output` whose float64 values are known; `take` cuts it out of the whole."""

    output: int
    take: Callable[[Array], Array]
    expected: Sum


class JaxCall(NamedTuple):
    """A function for jax.jit of the arrays named `inputs`, and a function of the same whose time is subtracted."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    less: Callable[..., Any] | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One problem. A subclass per operator says how inputs are made, what must move, what is right, and who else can.

    Arrays are named as the ABI names the operator's tensors.
    """

    element: str = "f32"
    plan_type: ClassVar[type[Plan]]

    @property
    def operator(self) -> str:
        """The operator's name in the ABI."""
        return str(self.descriptor().operator)

    @property
    def text(self) -> str:
        """The problem's sizes in words."""
        raise NotImplementedError

    def descriptor(self) -> Descriptor:
        """The problem as the library takes it; UnsupportedError if it does not."""
        raise NotImplementedError

    def plan(self, backend: str) -> Plan:
        """The library's plan; UnsupportedError or BackendUnavailableError if there is none."""
        return self.plan_type.select(self.descriptor(), preference=PlanPreference(prefer_backend=backend))

    def inputs(self, draw: Draw) -> dict[str, Array]:
        """Fresh inputs."""
        raise NotImplementedError

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype token of every output, in order."""
        raise NotImplementedError

    def unread(self, inputs: Mapping[str, Array]) -> int:
        """Bytes of the inputs that nobody has to read."""
        return 0

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        """Parts of the outputs, chosen at random, with their float64 values; none where no definition is at hand."""
        raise NotImplementedError

    @property
    def parts_text(self) -> str:
        """What `parts` covers, in words."""
        raise NotImplementedError

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        """How PyTorch, or what is built on it, does this, by name; `given` holds inputs and preallocated outputs."""
        return {}

    def cupy_calls(self, cupy: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        """As `torch_calls`, for CuPy."""
        return {}

    def jax_call(self, jax: Any) -> JaxCall | None:
        """How JAX does this."""
        return None

    def small(self) -> Case:
        """A problem of the same kind that takes no time, for tests."""
        raise NotImplementedError


@dataclass(frozen=True)
class Limit:
    """What a row's time should not exceed: `factor` times what `kind` names.

    Kinds: "us" (microseconds; only on a device whose name contains `of`), "copy" (a plain copy of as many bytes),
    "light" (those bytes at the measured copy rate), "peer" (the best peer in the same run, or the best of those whose
    names begin with `of`) and "row" (the row `of`).
    """

    kind: str
    factor: float
    of: str = ""

    @property
    def text(self) -> str:
        """The limit in words."""
        if self.kind == "us":
            return f"at most {self.factor:g} us"
        if self.kind == "peer" and self.of:
            return f"{1 / self.factor:g} times as fast as {self.of}"
        if self.kind == "peer" and self.factor == 1:
            return "no slower than the best peer"
        what = {"copy": "a plain copy", "light": "speed of light", "peer": "the best peer", "row": self.of}[self.kind]
        return f"at most {self.factor:g} x {what}"


@dataclass(frozen=True)
class Row:
    """One line of the benchmark: a case on a backend. Rows with `headline` are shown in the README."""

    case: Case
    backend: str = "cuda"
    limits: tuple[Limit, ...] = ()
    headline: bool = False

    @property
    def name(self) -> str:
        """What --rows is matched with; the same for the same case on another backend."""
        operator = self.case.operator
        direction = "bw" if operator.endswith("_backward") else "fw"
        return f"{operator.removesuffix('_backward')} {direction} {self.case.element} {self.case.text}"


def us(microseconds: float, device: str = "H100") -> tuple[Limit, ...]:
    """So many microseconds, on a device of this name alone."""
    return (Limit("us", microseconds, device),)


def no_cliff(case: Case, factor: float = 1.1) -> tuple[Limit, ...]:
    """Not much slower than another case."""
    return (Limit("row", factor, Row(case).name),)


def on_cpu(case: Case, limits: tuple[Limit, ...] = ()) -> Row:
    """A row of the CPU library. Those with a limit are shown in the README."""
    return Row(case, "cpu", limits, headline=bool(limits))


# What many operators keep: pure copies, forwards, what others do as well, and copies on a CPU, where a peer may be a
# copy, too.
COPY = (Limit("copy", 1.05),)
FORWARD = (Limit("peer", 1.0), Limit("light", 2.0))
NO_SLOWER = (Limit("peer", 1.0),)
# What peers do with scattered writes on a CPU, and some gradients that they add up by atomics on a GPU.
TWICE_AS_FAST = (Limit("peer", 0.5),)
NEAR_COPY = (Limit("light", 1 / 0.8), Limit("peer", 1.0))
