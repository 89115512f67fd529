# SPDX-License-Identifier: Apache-2.0
"""pixel_shuffle and pixel_unshuffle against their definition and PyTorch's, to the bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from large_problems import Batch, Calls, Operand, few_and_large
from lattice import normal
from place import Place, available
from tolerance import assert_same_bits

import pybaracuda
from verify.definitions import pixel_shuffle as oracle
from verify.dtypes import Array

Shape = tuple[int, int, int, int]


def both(place: Place, deep: Array, factor: int) -> tuple[Array, Array]:
    """The wide image of a deep one, and the deep one of that."""
    n, channels, h, w = deep.shape
    wide_shape = (n, channels // factor**2, h * factor, w * factor)
    wide = place.run(pybaracuda.pixel_shuffle, deep, factor, outputs=[(wide_shape, deep.dtype)])[0]
    return wide, place.run(pybaracuda.pixel_unshuffle, wide, factor, outputs=[(deep.shape, deep.dtype)])[0]


def check(place: Place, deep: Array, factor: int) -> None:
    wide, back = both(place, deep, factor)
    expected = oracle.pixel_shuffle(deep, factor)
    assert_same_bits(wide, expected)
    assert_same_bits(back, oracle.pixel_unshuffle(expected, factor))
    # One undoes the other, which makes each the other's gradient.
    assert_same_bits(back, deep)


# Around a thread's 16 bytes, and factors with paths of their own.
@pytest.mark.parametrize("w", [1, 2, 3, 4, 7, 8, 9, 16, 33])
@pytest.mark.parametrize("factor", [1, 2, 3, 4, 5, 8, 9, 17])
def test_every_width(place: Place, dtype: Any, rng: np.random.Generator, factor: int, w: int) -> None:
    check(place, normal(rng, (2, 2 * factor**2, 3, w), dtype), factor)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 5, 1, 1), (1, 1, 257, 3), (1, 7, 1, 600), (2, 8, 64, 96)])
def test_shapes(place: Place, dtype: Any, rng: np.random.Generator, shape: Shape) -> None:
    n, c, h, w = shape
    check(place, normal(rng, (n, 4 * c, h, w), dtype), 2)


def test_bits_are_moved(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    patterns = rng.integers(0, 256, (2, 36, 4, 8, np.dtype(dtype).itemsize), np.uint8)
    deep = np.ascontiguousarray(patterns).view(dtype)[..., 0]
    for factor in (2, 3, 6):
        check(place, deep, factor)


@pytest.mark.parametrize("shape", [(0, 4, 2, 3), (2, 0, 2, 3), (2, 4, 0, 3), (2, 4, 2, 0)])
def test_empty_problems(place: Place, dtype: Any, shape: Shape) -> None:
    wide, back = both(place, np.zeros(shape, dtype), 2)
    assert wide.shape == (shape[0], shape[1] // 4, shape[2] * 2, shape[3] * 2)
    assert back.shape == shape


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1, 3)])
def test_any_number_of_leading_axes(place: Place, dtype: Any, rng: np.random.Generator, batch: tuple[int, ...]) -> None:
    deep = normal(rng, (*batch, 8, 3, 4), dtype)
    wide = place.run(pybaracuda.pixel_shuffle, deep, 2, outputs=[((*batch, 2, 6, 8), dtype)])[0]
    expected = oracle.pixel_shuffle(deep.reshape(-1, 8, 3, 4), 2)
    assert_same_bits(wide, expected.reshape(wide.shape))
    back = place.run(pybaracuda.pixel_unshuffle, wide, 2, outputs=[(deep.shape, dtype)])[0]
    assert_same_bits(back, deep)


def test_a_misaligned_image(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    # Not the path that moves 16 bytes at once.
    deep = normal(rng, (1, 8, 4, 17), dtype)
    shifted = place.misaligned(deep)
    assert_same_bits(place.numpy(pybaracuda.pixel_shuffle(shifted, 2)), oracle.pixel_shuffle(deep, 2))


@given(
    n=st.integers(1, 3),
    c=st.integers(1, 4),
    h=st.integers(1, 9),
    w=st.integers(1, 40),
    factor=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_problems(n: int, c: int, h: int, w: int, factor: int, seed: int) -> None:
    check(Place(), normal(np.random.default_rng(seed), (n, c * factor**2, h, w), np.float32), factor)


@few_and_large
def test_an_image_of_more_than_2_31_elements(is_large: bool, place: Place, rng: np.random.Generator) -> None:
    """Of one image rows are repeated: every row of the deep one becomes two of the wide one, wherever it is."""

    def shuffled(calls: Calls, deep: Any) -> None:
        wide = calls(pybaracuda.pixel_shuffle, deep, 2, along=[2])
        calls(pybaracuda.pixel_unshuffle, wide, 2, along=[2])

    # No rows of whole vectors.
    columns = 2**14 + 1
    rows = Operand((1, 4, columns), partial(normal, dtype=np.float16), axis=2)
    batch = Batch([rows], 4 * columns, shuffled)
    batch.check(place, batch.repeats if is_large else 3, rng)


@pytest.mark.skipif(not available("torch"), reason="no torch")
def test_pytorchs_results(place: Place, rng: np.random.Generator) -> None:
    import torch

    for _ in range(200):
        n, c, h, w, factor = (int(each) for each in rng.integers(1, [4, 4, 9, 20, 7]))
        deep = normal(rng, (n, c * factor**2, h, w), np.float32)
        wide, back = both(place, deep, factor)
        given = torch.from_numpy(deep)
        assert_same_bits(wide, torch.nn.functional.pixel_shuffle(given, factor).numpy())
        again = torch.from_numpy(wide)
        assert_same_bits(back, torch.nn.functional.pixel_unshuffle(again, factor).numpy())
