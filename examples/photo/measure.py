# SPDX-License-Identifier: Apache-2.0
"""Runs one operator on one set of arrays and says how wrong, how fast and how repeatable it was."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from verify.bounds import Sum
from verify.dtypes import Array
from verify.judge import compare
from verify.memory.blocks import POISONS

from .memory import Memory, host

# Runs whose outputs must have the same bits.
RUNS = 5


class Input(NamedTuple):
    """An array that an operator reads. Repeated along `axis` it makes a larger problem of the same kind; None: it need
    not be. `used` is the part of it that must be read.
    """

    array: Array
    axis: int | None = None
    used: float = 1.0


class Output(NamedTuple):
    """What an operator writes, all of it; `axis` as in Input."""

    shape: tuple[int, ...]
    dtype: Any
    axis: int | None = None

    def repeated(self, times: int) -> tuple[int, ...]:
        """Its shape in a problem that is so many times as large."""
        return tuple(extent * times if axis == self.axis else extent for axis, extent in enumerate(self.shape))


@dataclass(frozen=True)
class Case:
    """A call of one operator: `call` takes the inputs and `out=`, `expected` gives one Sum per output.

    `shape` is a text with {n} for the extent that grows when the problem is repeated; `n` is that extent once.
    """

    operator: str
    dtype: str
    shape: str
    n: int
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    call: Callable[..., Any]
    expected: Callable[[], tuple[Sum, ...]]

    def repeated_inputs(self, times: int) -> list[Array]:
        """The inputs of a problem that is so many times as large."""
        return [each.array if each.axis is None else _repeated(each.array, each.axis, times) for each in self.inputs]

    def bytes_to_move(self, times: int) -> int:
        """Every input element that is used and every output element, once."""
        read = [int(each.array.nbytes * each.used) * (1 if each.axis is None else times) for each in self.inputs]
        written = [math.prod(each.repeated(times)) * int(np.dtype(each.dtype).itemsize) for each in self.outputs]
        return sum([*read, *written])


def _repeated(array: Array, axis: int, times: int) -> Array:
    return np.concatenate([array] * times, axis=axis)


class Verdict(NamedTuple):
    """Whether a result is right. `of_bound` is the largest error as a part of what a correct kernel may be off by."""

    error: float
    of_bound: float
    exact: bool
    same_bits: bool

    @property
    def kept(self) -> bool:
        """Whether it is within its bound and the same bits every time."""
        return self.of_bound <= 1 and self.same_bits


class Row(NamedTuple):
    """One line of the table; `shape` is that of the timed problem."""

    operator: str
    dtype: str
    backend: str
    shape: str
    verdict: Verdict
    seconds: float
    bytes_per_second: float
    copy_share: float


def _run(case: Case, memory: Memory) -> tuple[list[Array], str]:
    """The outputs of one call into poisoned memory, and the hash of their bytes."""
    given = tuple(memory.arrays.poisoned(each.shape, each.dtype, POISONS[0]) for each in case.outputs)
    case.call(*(memory.put(each.array) for each in case.inputs), out=given if len(given) > 1 else given[0])
    results = [memory.get(array) for array in given]
    return results, hashlib.sha256(b"".join(array.tobytes() for array in results)).hexdigest()


def verify(case: Case, memory: Memory) -> Verdict:
    """Run the case several times and hold it against its definition."""
    first, digest = _run(case, memory)
    digests = {digest, *(_run(case, memory)[1] for _ in range(RUNS - 1))}
    if memory.backend != "cpu":
        digests.add(_run(case, host())[1])  # the CPU library must give the GPU's bits
    expected = case.expected()
    found = [compare(result, wanted) for result, wanted in zip(first, expected, strict=True)]
    return Verdict(
        error=max(each.largest_error for each in found),
        of_bound=max(each.of_bound for each in found),
        exact=not any(each.roundings.any() for each in expected),
        same_bits=len(digests) == 1,
    )


def measure(case: Case, memory: Memory, copy_seconds: dict[int, float]) -> Row:
    """One row; `copy_seconds` remembers the copies that were timed, by their bytes."""
    verdict = verify(case, memory)
    times = memory.repeats
    placed = [memory.put(array) for array in case.repeated_inputs(times)]
    given = tuple(memory.arrays.poisoned(each.repeated(times), each.dtype, POISONS[0]) for each in case.outputs)
    out = given if len(given) > 1 else given[0]
    seconds = memory.seconds(lambda: case.call(*placed, out=out))
    moved = case.bytes_to_move(times)
    if moved not in copy_seconds:
        copy_seconds[moved] = memory.copy_seconds(moved)
    return Row(
        operator=case.operator,
        dtype=case.dtype,
        backend=memory.backend,
        shape=case.shape.format(n=case.n * times),
        verdict=verdict,
        seconds=seconds,
        bytes_per_second=moved / seconds,
        copy_share=copy_seconds[moved] / seconds,
    )
