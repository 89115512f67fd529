# SPDX-License-Identifier: Apache-2.0
"""Weighted counts in JAX: the array function's bits under its transformations."""

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
from lattice import integers, normal
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax as bj

# Few bins, and more than the operator takes.
BINS = (30, 5000)


@pytest.mark.parametrize("num_bins", BINS)
@pytest.mark.parametrize("index", [np.int8, np.int32, np.uint32, np.int64])
def test_counts_have_the_array_functions_bits(
    num_bins: int, index: Any, dtype: np.dtype[Any], rng: np.random.Generator
) -> None:
    entries = rng.integers(0 if index == np.uint32 else -2, 33, 900).astype(index)
    weights = normal(rng, (900,), dtype)
    with wide(np.int64):
        found = jax.jit(lambda *arrays: bj.bincount(*arrays, num_bins))(entries, weights)
        assert_same_bits(np.asarray(found), pybaracuda.bincount(entries, weights, num_bins))


@pytest.mark.parametrize("num_bins", BINS)
def test_the_gradient_gathers(num_bins: int, rng: np.random.Generator) -> None:
    entries = rng.integers(-2, 33, 900).astype(np.int32)
    weights, upstream = normal(rng, (900,), np.float32), normal(rng, (num_bins,), np.float32)
    expected = pybaracuda.segment_gather(upstream, entries)
    slopes = jax.jit(jax.grad(lambda w: (bj.bincount(entries, w, num_bins) * upstream).sum()))(weights)
    assert_same_bits(np.asarray(slopes), expected)
    # Linear: along a tangent it is the count of that.
    _, along = jax.jvp(lambda w: bj.bincount(entries, w, num_bins), (weights,), (2 * weights,))
    assert_same_bits(np.asarray(along), pybaracuda.bincount(entries, 2 * weights, num_bins))
    # And the gradient's own gradient is one again.
    _, pull = jax.vjp(jax.grad(lambda w: (bj.bincount(entries, w, num_bins) ** 2).sum() / 2), weights)
    (second,) = pull(weights)
    assert_same_bits(np.asarray(second), pybaracuda.segment_gather(np.asarray(along) / 2, entries))


@pytest.mark.parametrize("num_bins", BINS)
def test_mapped_calls(num_bins: int, rng: np.random.Generator) -> None:
    entries, weights = rng.integers(0, 30, (3, 200)).astype(np.int32), normal(rng, (3, 200), np.float32)
    found = jax.jit(jax.vmap(lambda *arrays: bj.bincount(*arrays, num_bins)))(entries, weights)
    for i in range(3):
        assert_same_bits(np.asarray(found[i]), pybaracuda.bincount(entries[i], weights[i], num_bins))
    shared = jax.vmap(lambda w: bj.bincount(entries[0], w, num_bins))(weights)
    assert_same_bits(np.asarray(shared[1]), pybaracuda.bincount(entries[0], weights[1], num_bins))


def test_rows_along_the_last_axis(rng: np.random.Generator) -> None:
    entries = rng.integers(-1, 13, (2, 3, 50)).astype(np.int32)
    weights, upstream = normal(rng, (2, 3, 50), np.float32), normal(rng, (2, 3, 12), np.float32)

    def loss(weights: Any) -> Any:
        return (bj.bincount(entries, weights, 12) * upstream).sum()

    assert_same_bits(np.asarray(bj.bincount(entries, weights, 12)), pybaracuda.bincount(entries, weights, 12))
    slopes = np.asarray(jax.jit(jax.grad(loss))(weights))
    for axes in np.ndindex(2, 3):
        assert_same_bits(slopes[axes], pybaracuda.segment_gather(upstream[axes], entries[axes]))


def test_jax_has_the_same_counts(rng: np.random.Generator) -> None:
    entries, weights = rng.integers(0, 30, 900).astype(np.int32), integers(rng, (900,), np.float32)
    theirs = jnp.bincount(entries, weights, length=30)
    assert_same_bits(np.asarray(bj.bincount(entries, weights, 30)), np.asarray(theirs))


@pytest.mark.parametrize("num_bins", BINS)
def test_what_does_not_fit_is_refused(num_bins: int) -> None:
    entries, weights = jnp.zeros(4, jnp.int32), jnp.ones(4)
    with pytest.raises(ValueError, match=r"weights has shape \(3,\); wanted \(4,\)"):
        bj.bincount(entries, weights[:3], num_bins)
    with pytest.raises(ValueError, match=r"weights has shape \(4,\); wanted \(2, 2\)"):
        bj.bincount(entries.reshape(2, 2), weights, num_bins)
    with pytest.raises(TypeError, match="input has dtype float32"):
        bj.bincount(weights, weights, num_bins)
    with pytest.raises(pybaracuda.InvalidProblemError, match="num_bins is -1"):
        bj.bincount(entries, weights, -1)
