# SPDX-License-Identifier: Apache-2.0
"""Order statistics and histograms in JAX: places, axes that stay, mapped calls; gradients are with those of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from place import available

if not available("jax"):
    pytest.skip("no jax", allow_module_level=True)

import jax
import jax.numpy as jnp
from jax_cases import wide
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax as bj

NAMES = ("kthvalue", "median", "nanmedian", "mode")


def ranked(name: str, *others: Any) -> tuple[Any, ...]:
    return (2, *others) if name == "kthvalue" else others


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keepdim", [False, True])
def test_values_and_places(keepdim: bool, name: str, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    x = np.round(rng.standard_normal((3, 50, 4)) * 2).astype(dtype)
    with wide(dtype):
        for dim in (0, 1, -1):
            options = ranked(name, dim, keepdim)
            found = jax.jit(lambda x, options=options: getattr(bj, name)(x, *options))(x)
            wanted = getattr(pybaracuda, name)(x, *options)
            assert_same_bits(np.asarray(found[0]), wanted[0])
            assert np.array_equal(np.asarray(found[1]), wanted[1])
            assert found[1].dtype == (np.int64 if np.dtype(dtype) == np.float64 else np.int32)


@pytest.mark.parametrize("name", NAMES)
def test_mapped_calls_are_one(name: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 3, 40)).astype(np.float32)
    for axis in (0, 2):
        found = jax.vmap(lambda x: getattr(bj, name)(x, *ranked(name, 0)), axis)(x)
        wanted = [getattr(pybaracuda, name)(np.take(x, i, axis), *ranked(name, 0)) for i in range(x.shape[axis])]
        for one, other in zip(found, zip(*wanted, strict=True), strict=True):
            assert np.array_equal(np.asarray(one), np.stack(other))


def test_a_single_number_is_a_row() -> None:
    for name in NAMES:
        options = (1, 0, True) if name == "kthvalue" else (0, True)
        values, indices = getattr(bj, name)(3.0, *options)
        assert (values.shape, indices.shape, float(values), int(indices)) == ((), (), 3.0, 0)


def test_forward_mode_takes_the_places(rng: np.random.Generator) -> None:
    x, moved = (rng.standard_normal((4, 30)).astype(np.float32) for _ in range(2))
    values, along = jax.jvp(lambda x: bj.median(x)[0], (x,), (moved,))
    places = pybaracuda.median(x)[1][:, None]
    assert_same_bits(np.asarray(along), np.take_along_axis(moved, places, 1)[:, 0])
    assert_same_bits(np.asarray(values), np.take_along_axis(x, places, 1)[:, 0])


def test_counts(dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    x = rng.standard_normal((7, 90)).astype(dtype)
    with wide(dtype):
        for options in ((20,), (9, -1.0, 0.5)):
            found = jax.jit(lambda x, options=options: bj.histc(x, *options))(x)
            assert_same_bits(np.asarray(found), pybaracuda.histc(x, *options))
        mapped = np.asarray(jax.vmap(lambda x: bj.histc(x, 9, -1.0, 0.5))(x))
        assert_same_bits(mapped, np.stack([pybaracuda.histc(row, 9, -1.0, 0.5) for row in x]))


def test_counts_have_no_slope(rng: np.random.Generator) -> None:
    x = rng.standard_normal(50).astype(np.float32)
    slope = jax.grad(lambda x: jnp.sum(bj.histc(x, 5) * jnp.arange(5.0)) + x[0])(x)
    assert np.asarray(slope).tolist() == [1.0] + [0.0] * 49


def test_mistakes_are_said_when_a_program_is_traced() -> None:
    x = jnp.ones((3, 4))
    for call, error, message in (
        (lambda x: bj.kthvalue(x, 5), pybaracuda.InvalidProblemError, "k is 5; wanted 1..4"),
        (lambda x: bj.median(x, 2), ValueError, "dim is 2; wanted -2..1"),
        (lambda x: bj.mode(x, 0, 2), TypeError, "keepdim: wanted a bool"),
        (lambda x: bj.histc(x, 0), ValueError, "bins is 0"),
        (lambda x: bj.histc(x.astype(int)), TypeError, "input has dtype int32"),
    ):
        with pytest.raises(error, match=message):
            jax.jit(call)(x)
