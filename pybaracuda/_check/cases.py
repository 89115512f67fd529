# SPDX-License-Identifier: Apache-2.0
"""The fixed problems whose output bits are committed in bits.txt: what they are and their input bytes.

A change of a case changes its hash; add cases instead. What a family's problems are stands in its file of problems/.
Seeds are the CRC-32 of "case/tensor", what tensors hold is made in content.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from .. import _abi
from .abi_calls import Symbol, Values, completed, numel, places, span, symbols
from .content import plain
from .problem import SUBNORMAL, Problem
from .problems import of_operator
from .splitmix import Array


class Case(NamedTuple):
    """One problem of one symbol; `inputs` are bytes, gaps between strides included."""

    name: str
    description: str
    symbol: Symbol
    values: Values
    inputs: dict[str, Array]

    def elements(self, tensor: _abi.Tensor, content: Array) -> Array:
        """The bytes of a tensor's elements in row-major order, out of the bytes of its span."""
        if tensor.strides is None:
            return np.ravel(content)
        width = self.symbol.element_bytes(tensor)
        return np.ravel(content.reshape(-1, width)[places(tensor, self.values)])


def _values(symbol: Symbol, problem: Problem) -> Values:
    """The problem's values that this operator takes."""
    names = {s.name for s in symbol.scalars} | {a.name for a in symbol.host_arrays}
    chosen: Values = {name: value for name, value in problem.values.items() if name in names}
    family, _ = of_operator(symbol.operator.name, symbol.operator.family)
    element = symbol.variant.types.get("T", "")
    for name, by_dtype in family.elements.items():
        if name in names | {field.name for field in symbol.fields}:
            chosen[name] = problem.values.get(name, by_dtype[element])
            if problem.subnormal:
                chosen[name] = SUBNORMAL.get(element, chosen[name])
    return completed(symbol, chosen)


def case(symbol: Symbol, problem: Problem) -> Case:
    name = name_of(symbol, problem)
    values = _values(symbol, problem)
    family, _ = of_operator(symbol.operator.name, symbol.operator.family)
    inputs = {}
    for tensor in symbol.tensors:
        if tensor.role == "input":
            seed = zlib.crc32(f"{name}/{tensor.name}".encode())
            element = symbol.dtype(tensor) if tensor.dtype == "T" else None
            named = problem.makers.get(tensor.name, plain)
            maker = family.maker(symbol.operator.name, tensor.name, element, named)
            content = maker(seed, span(tensor, values).elements, symbol.dtype(tensor), values)
            assert content.nbytes == span(tensor, values).elements * symbol.element_bytes(tensor), (name, tensor.name)
            inputs[tensor.name] = content
    return Case(name, problem.description, symbol, values, inputs)


def problems_of(symbol: Symbol) -> list[Problem]:
    """A symbol's problems."""
    operator = symbol.operator
    _, problems = of_operator(operator.name, operator.family)
    of_integers = symbol.variant.types.get("T") in ("i32", "i64", "s8", "u8")
    return [
        problem
        for problem in problems
        if not any(part in operator.name for part in problem.without) and not (of_integers and problem.floats_only)
    ]


def cases_of(symbol: Symbol) -> list[Case]:
    """A symbol's cases, one of each problem."""
    return [case(symbol, problem) for problem in problems_of(symbol)]


def cases(first: int = 0, step: int = 1) -> Iterator[Case]:
    """Every case, in the order of the ABI table, or every `step`th from the `first` on, whose inputs alone are made."""
    pairs = ((symbol, problem) for symbol in symbols() for problem in problems_of(symbol))
    for symbol, problem in islice(pairs, first, None, step):
        yield case(symbol, problem)


def _sampled() -> Iterator[tuple[Symbol, Problem]]:
    # Symbols of a family that have the same problems.
    groups: dict[tuple[str, ...], list[Symbol]] = {}
    for symbol in symbols():
        names = (problem.name for problem in problems_of(symbol))
        groups.setdefault((symbol.operator.family, *names), []).append(symbol)
    for group in groups.values():
        for turn, symbol in enumerate(group):
            problems = problems_of(symbol)
            for problem in problems[turn % len(problems) :: len(group)]:
                yield symbol, problem


def sample() -> Iterator[Case]:
    """A case of every operator and dtype, and of every problem: the symbols of a family take its problems in turns."""
    for symbol, problem in _sampled():
        yield case(symbol, problem)


def name_of(symbol: Symbol, problem: Problem) -> str:
    return f"{symbol.name}/{problem.name}"


def names() -> list[str]:
    """What every case is called; its inputs are not made."""
    return [name_of(symbol, problem) for symbol in symbols() for problem in problems_of(symbol)]


def sample_names() -> list[str]:
    """What the cases of the sample are called."""
    return [name_of(symbol, problem) for symbol, problem in _sampled()]


def description_of(name: str) -> str:
    """What a case is for; nothing if there is none of this name."""
    for symbol in symbols():
        for problem in problems_of(symbol) if name.startswith(f"{symbol.name}/") else []:
            if name_of(symbol, problem) == name:
                return problem.description
    return ""


def output_elements(found: Case) -> int:
    return sum(numel(tensor, found.values) for tensor in found.symbol.outputs)
