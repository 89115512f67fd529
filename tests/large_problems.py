# SPDX-License-Identifier: Apache-2.0
"""Arrays that repeat a few images or numbers until there are more than 2^31 elements, and calls of them; no tests.

Nothing of that size is on the host: it is repeated and compared where the place has its arrays.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from place import Place
from tolerance import assert_same_bits

from verify.dtypes import Array
from verify.memory.blocks import POISONS

# Images that differ: a batch repeats them, so that what becomes of each of them is known from a batch of these alone.
DIFFERENT = 3
# What is compared at once, in elements: each takes some bytes more.
PART = 2**28
# Numbers that are repeated where there are no images; no multiple of what a kernel may cut rows into.
PIECE = 4099


def few_and_large(test: Callable[..., None]) -> Any:
    """The test is made with ``is_large`` and, so that a mistake in it shows without a GPU, with a few repetitions.

    What it had goes back to the GPU: frameworks would keep it from the process beside this one.
    """

    @functools.wraps(test)
    def released(*arguments: Any, **named: Any) -> None:
        try:
            test(*arguments, **named)
        finally:
            if "cupy" in sys.modules:
                sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
            if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
                sys.modules["torch"].cuda.empty_cache()

    both = [False, pytest.param(True, marks=pytest.mark.large)]
    return pytest.mark.parametrize("is_large", both, ids=["few", "large"])(released)


def pieces(is_large: bool) -> int:
    """How often a piece of numbers is repeated."""
    return 2**31 // PIECE + 1 if is_large else 21


def shape_of(array: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in array.shape)


def repeated(place: Place, values: Array, repeats: int, axis: int = 0) -> Any:
    """These values so many times one after another along an axis; copied by the place, where it has its arrays."""
    before, after = values.shape[:axis], values.shape[axis:]
    flat = np.ascontiguousarray(values).reshape(math.prod(before), 1, math.prod(after))
    every = place.broadcast(flat, (flat.shape[0], repeats, flat.shape[2]))
    return every.reshape(*before, repeats * after[0], *after[1:])


def wound(place: Place, piece: Array, shape: Sequence[int]) -> Any:
    """An array whose elements, in the order of memory, are a piece's again and again, so that its rows differ."""
    count = math.prod(shape)
    return repeated(place, piece, count // piece.size + 1)[:count].reshape(*shape)


def poisoned(place: Place, shape: Sequence[int], dtype: Any) -> Any:
    """An output of any size; an element that is not written shows."""
    return wound(place, Place().poisoned((PIECE,), dtype, POISONS[0]), shape)


def parts(rows: int, elements: int) -> Iterator[slice]:
    """What is compared at once of so many rows of so many elements."""
    step = max(1, PART // elements)
    return (slice(start, start + step) for start in range(0, rows, step))


def assert_equal(found: Any, wanted: Any) -> None:
    """Two arrays of a place are equal, which zeros of different signs are too."""
    assert shape_of(found) == shape_of(wanted)
    for part in parts(shape_of(found)[0], math.prod(shape_of(found)[1:])):
        assert bool((found[part] == wanted[part]).all()), f"rows {part.start} to {part.stop}"


def assert_repeated(place: Place, found: Any, wanted: Array, axis: int = 0, step: int = 0) -> None:
    """Along an axis there is again and again what is wanted, each time with numbers that are larger by a step.

    The first, a middle and the last time it is that to the bit; all times it is equal, which only zeros' signs pass.
    """
    before, after = wanted.shape[:axis], wanted.shape[axis:]
    repeats = shape_of(found)[axis] // after[0]
    assert shape_of(found) == (*before, repeats * after[0], *after[1:])
    every = found.reshape(math.prod(before), repeats, math.prod(after))
    for time in sorted({0, repeats // 2, repeats - 1}):
        mine = np.ascontiguousarray(place.numpy(every[:, time])).reshape(wanted.shape)
        assert_same_bits(mine, wanted + time * step if step else wanted)
    known = place.array(np.ascontiguousarray(wanted).reshape(math.prod(before), 1, math.prod(after)))
    for times in parts(repeats, wanted.size):
        part = every[:, times]
        if step:
            larger = np.arange(times.start, times.start + shape_of(part)[1]) * step
            part = part - place.array(larger.astype(wanted.dtype).reshape(1, -1, 1))
        assert bool((part == known).all()), f"one of the repetitions from {times.start} on differs"


class Calls:
    """Makes a batch's calls for the images that differ alone, and keeps their results."""

    def __init__(self, place: Place, repeats: int = 1) -> None:
        self.place, self.repeats = place, repeats
        self.results: list[tuple[Array, ...]] = []

    def __call__(
        self,
        function: Any,
        *arguments: Any,
        along: Sequence[int | None] = (),
        steps: Sequence[int] = (),
        **options: Any,
    ) -> Any:
        """Call a function whose results have images along these axes (else along the first; None: they have none).

        Numbers that count over the whole batch are larger by a step from one repetition to the next.
        """
        found = function(*arguments, **options)
        self.results.append(tuple(self.place.numpy(each) for each in (found if isinstance(found, tuple) else (found,))))
        return found

    def shifted(self, values: Any, step: Any, dtype: Any = np.int32) -> Any:
        """An array with values for each image, larger by a step from one repetition to the next; made on the host."""
        values = np.asarray(values)
        larger = np.arange(self.repeats).reshape(-1, *(1 for _ in values.shape)) * np.asarray(step)
        return self.place.array((values + larger).astype(dtype).reshape(-1, *values.shape[1:]))

    def boxes(self, *corners: Sequence[float]) -> Any:
        """A box for each image."""
        values = [[number, *corners[number % len(corners)]] for number in range(DIFFERENT)]
        return self.shifted(values, [DIFFERENT, *(0 for _ in corners[0])], np.float32)


class RepeatedCalls(Calls):
    """Makes a batch's calls for all repetitions; every result is held at once against that of the images alone."""

    def __init__(self, place: Place, repeats: int, known: Calls) -> None:
        super().__init__(place, repeats)
        self.wanted: Iterator[tuple[Array, ...]] = iter(known.results)

    def __call__(
        self,
        function: Any,
        *arguments: Any,
        along: Sequence[int | None] = (),
        steps: Sequence[int] = (),
        **options: Any,
    ) -> Any:
        wanted = next(self.wanted)
        along = along or [0 for _ in wanted]
        poison = [Place().poisoned(each.shape, each.dtype, POISONS[0]) for each in wanted]
        outs = tuple(
            self.place.array(each) if axis is None else repeated(self.place, each, self.repeats, axis)
            for each, axis in zip(poison, along, strict=True)
        )
        function(*arguments, out=outs if len(outs) > 1 else outs[0], **options)
        for each, values, axis, step in zip(outs, wanted, along, steps or [0 for _ in wanted], strict=True):
            if axis is None:
                assert_same_bits(self.place.numpy(each), values)
            else:
                assert_repeated(self.place, each, values, axis, step)
        return outs if len(outs) > 1 else outs[0]


Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


class Operand(NamedTuple):
    """An operand that has one entry for each image: how one is drawn, and along which axis they are."""

    shape: tuple[int, ...]
    draw: Draw
    axis: int = 0


class Batch(NamedTuple):
    """Operands, how many elements the array that shall have more than 2^31 has for each image, and the calls."""

    operands: Sequence[Operand]
    elements: int
    run: Callable[..., None]

    @property
    def repeats(self) -> int:
        """How often the images are repeated for more than 2^31 elements."""
        return 2**31 // (DIFFERENT * self.elements) + 1

    def check(self, place: Place, repeats: int, rng: np.random.Generator) -> None:
        """Every image of the repeated ones becomes what it becomes on the CPU among the few."""
        few = [
            each.draw(rng, (*each.shape[: each.axis], DIFFERENT, *each.shape[each.axis :])) for each in self.operands
        ]
        known = Calls(Place())
        self.run(known, *few)
        calls = RepeatedCalls(place, repeats, known)
        operands = zip(few, self.operands, strict=True)
        self.run(calls, *(repeated(place, values, repeats, operand.axis) for values, operand in operands))
        assert next(calls.wanted, None) is None


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape, np.float32).astype(np.float16)


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.random(shape, np.float32) * np.float32(2.2) - np.float32(1.1)


def fractions(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 16, shape).astype(np.float16) / 16


def log_probabilities(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return normal(rng, shape) - np.float16(5)


def whole(low: int, high: int, dtype: Any = np.int64) -> Draw:
    return lambda rng, shape: rng.integers(low, high, shape, dtype)
