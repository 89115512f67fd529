# SPDX-License-Identifier: Apache-2.0
"""What pybaracuda.jax answers as indices of maxima, and of places to put them back to."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax_cases import FLOATS, wide
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax as bj

DTYPE = pytest.mark.parametrize("token", list(FLOATS))


def assert_all_same(actual: Any, expected: Any) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert_same_bits(np.asarray(one), other)


@DTYPE
def test_indices_of_maxima_are_those_of_the_array_functions(token: str, rng: np.random.Generator) -> None:
    dtype = FLOATS[token]
    x = rng.integers(-3, 3, (2, 3, 9, 10)).astype(dtype)
    with wide(dtype):
        samples = (rng.integers(0, 16, (2, 3, 2)) / 16).astype(dtype)
        for function, arguments in (
            ("max_pool", (3, 2, 1, 1, True)),
            ("adaptive_max_pool", ((4, 3),)),
            ("fractional_max_pool", (2, (5, 6), samples)),
        ):
            ours = jax.jit(lambda x: getattr(bj, function)(x, *arguments, return_indices=True))(x)  # noqa: B023
            output, indices = getattr(pybaracuda, function)(x, *arguments, return_indices=True)
            # A program without 64-bit numbers gets int32.
            width = np.int64 if jax.config.jax_enable_x64 else np.int32
            assert_all_same(ours, (output, indices.astype(width)))
            assert_same_bits(np.asarray(getattr(bj, function)(x, *arguments)), output)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_maxima_are_put_back(index: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 8, 10)).astype(np.float32)

    @jax.jit
    def through(x: Any) -> Any:
        output, indices = bj.max_pool(x, 2, return_indices=True)
        return bj.max_unpool(output, indices, (8, 10))

    kept = through(x)
    assert_same_bits(np.asarray(kept), np.where(np.asarray(kept) == 0, 0, x).astype(np.float32))
    assert (np.count_nonzero(kept, axis=(2, 3)) == 20).all()
    # Out of range, also beyond int32, is dropped; of two the last stays.
    places = np.array([[[[0, 3, 3, -1, 4, 2**31 - 1]]]], index)
    values = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 1, 6)
    assert np.asarray(bj.max_unpool(values, places, (2, 2))).ravel().tolist() == [1, 0, 0, 3]
    with pytest.raises(TypeError, match="indices has dtype float32; wanted int32 or int64"):
        bj.max_unpool(values, places.astype(np.float32), (2, 2))


def test_wrong_arguments_are_refused_as_by_the_array_functions(rng: np.random.Generator) -> None:
    x, samples = rng.standard_normal((1, 1, 40, 4)).astype(np.float32), np.zeros((1, 1, 2), np.float32)
    for call in (
        lambda m: m.max_pool(x, 3, padding=2),
        lambda m: m.max_pool(x, 3, return_indices="yes"),
        lambda m: m.max_unpool(x, np.zeros((1, 1, 3, 4), np.int64), (80, 8)),
        lambda m: m.fractional_max_pool(x, 2, (40, 2), samples),
        lambda m: m.fractional_max_pool(x, 2, 2, samples[:, :0]),
        lambda m: m.fractional_max_pool(x, 2, 2, samples[..., :1]),
        lambda m: m.fractional_max_pool(x, 2, 2, samples.astype(np.float16)),
    ):
        with pytest.raises((TypeError, ValueError, pybaracuda.InvalidProblemError)) as expected:
            call(pybaracuda)
        with pytest.raises((TypeError, ValueError, pybaracuda.InvalidProblemError)) as found:
            call(bj)
        assert type(found.value) is type(expected.value)
