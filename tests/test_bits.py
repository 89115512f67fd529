# SPDX-License-Identifier: Apache-2.0
"""The committed bits: every configuration reproduces them, and the same cases pass the float64 oracle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import canaries
import pytest
from canaries import CAPACITY, laid_out
from operators import RECORDS, joined
from operators.record import Arrays, Check
from share import part_of_bits

from pybaracuda import _abi
from pybaracuda._check import cases, children, vectors
from pybaracuda._check.abi_calls import Library, symbols
from pybaracuda._check.runs import Configuration, cpu_configurations, cuda_configurations, outputs, sizes_of
from verify.memory.arena import FILLS, Arena
from verify.memory.blocks import Memory, memory_for


def differences_of(configuration: Configuration, part: tuple[int, int]) -> list[str]:
    """What a configuration's bits differ in from the committed ones, of every so many cases from one on."""
    first, step = part
    names = cases.names()
    left_out = {*names} - {*names[first::step]}
    expected = {name: hashes for name, hashes in vectors.committed().items() if name not in left_out}
    return vectors.differences(children.run_in_child(configuration, "canaries", part), expected)


# Where a run takes a part of the problems, configurations that follow each other take other parts of them.
CPU_CONFIGURATIONS = cpu_configurations()


@pytest.mark.every_case
@pytest.mark.parametrize("number", range(len(CPU_CONFIGURATIONS)), ids=[found.name for found in CPU_CONFIGURATIONS])
def test_cpu_reproduces_the_committed_bits(number: int, seed: list[int]) -> None:
    said = differences_of(CPU_CONFIGURATIONS[number], part_of_bits(seed[0] + number))
    assert not said, "\n" + "\n".join(said)


@pytest.mark.parametrize("configuration", cuda_configurations(), ids=lambda found: found.name)
def test_cuda_reproduces_the_committed_bits(configuration: Configuration, seed: list[int]) -> None:
    import pybaracuda

    if not pybaracuda.backend_available("cuda"):
        pytest.skip("no CUDA")
    said = differences_of(configuration, part_of_bits(seed[0]))
    assert not said, "\n" + "\n".join(said)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize(("source", "destination"), [(0, 0), (0, 8), (8, 0), (8, 8)])
def test_words_of_16_bytes_lie_at_any_multiple_of_8(backend: str, source: int, destination: int) -> None:
    import pybaracuda

    if not pybaracuda.backend_available(backend):
        pytest.skip("no CUDA")
    library, memory = Library(backend), memory_for(backend, canaries.CAPACITY)
    committed, count = vectors.committed(), 0
    for case in (case for symbol in symbols() if symbol.variant.token == "b128" for case in cases.cases_of(symbol)):
        offsets = {t.name: source if t.role == "input" else destination for t in case.symbol.tensors}
        arena = Arena(memory, {**sizes_of(case), "workspace": 0}, offsets)
        bench = canaries.CanaryBench(case, library, arena, 0)
        bench.write(FILLS[0])
        bench.run()
        assert vectors.hashed(bench.results()) == committed[case.name], case.name
        count += 1
    memory.free()
    assert count > 100


def test_every_variant_has_several_cases() -> None:
    names = cases.names()
    assert len(names) == len(set(names))
    for operator in _abi.OPERATORS.values():
        for token in operator.variants:
            assert sum(name.startswith(f"{operator.name}_{token}/") for name in names) >= 5, (operator.name, token)


def test_a_part_is_every_so_many_cases() -> None:
    assert [case.name for case in cases.cases(5, 397)] == cases.names()[5::397]


CHECKS: dict[str, Check] = joined(record.checks for record in RECORDS)


@cache
def _library() -> tuple[Library, Memory]:
    return Library("cpu"), memory_for("cpu", CAPACITY)


@pytest.mark.parametrize("operator", _abi.OPERATORS.values(), ids=lambda operator: operator.name)
def test_the_same_cases_pass_the_oracle(operator: _abi.Operator) -> None:
    """On the CPU, whose bits are everyone's: what is committed is right, not only repeatable."""
    assert operator.name in CHECKS, f"no check: add one to the record of {operator.family} in tests/operators"
    library, memory = _library()
    wrong: list[str] = []
    for symbol in symbols():
        # The inputs of another operator's cases are not made.
        for case in cases.cases_of(symbol) if symbol.operator is operator else ():
            results = outputs(laid_out(case, library, memory), Configuration("oracle", "cpu", "the oracle"))
            try:
                CHECKS[operator.name](Arrays(case, results))
            except AssertionError as error:
                wrong.append(f"{case.name}: {error}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_differences_are_found() -> None:
    """The comparison itself: a flipped, a missing and a left-over hash are each said."""
    good: vectors.Hashes = {"a": {"x": "1"}, "b": {"x": "2"}}
    assert vectors.differences(good, good) == []
    changes: Sequence[vectors.Hashes] = (
        {"a": {"x": "1"}, "b": {"x": "3"}},
        {"a": {"x": "1"}},
        {**good, "c": {"x": "4"}},
    )
    for expected in changes:
        assert len(vectors.differences(good, expected)) == 1
