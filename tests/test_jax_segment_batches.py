# SPDX-License-Identifier: Apache-2.0
"""Ids of a batch and lengths in pybaracuda.jax: a loop's bits, under jit and in gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")
REDUCTION = pytest.mark.parametrize("reduce", REDUCTIONS)
COUNT = 4


def drawn(rng: np.random.Generator) -> tuple[Any, Any]:
    return rng.normal(size=(3, 10, 2)).astype(np.float32), rng.integers(-1, COUNT + 1, (3, 10), dtype=np.int32)


@REDUCTION
def test_a_loop_has_the_same_bits(reduce: str, rng: np.random.Generator) -> None:
    rows, ids = drawn(rng)
    function = getattr(pybaracuda.jax, f"segment_{reduce}")
    wanted = np.stack([getattr(pybaracuda, f"segment_{reduce}")(*each, COUNT) for each in zip(rows, ids, strict=True)])
    assert_same_bits(np.asarray(function(rows, ids, COUNT)), wanted)
    assert_same_bits(np.asarray(jax.jit(lambda x, i: function(x, i, COUNT))(rows, ids)), wanted)
    upstream = rng.normal(size=wanted.shape).astype(np.float32)
    (gradient,) = jax.vjp(lambda x: function(x, ids, COUNT), rows)[1](upstream)
    entries = zip(rows, ids, upstream, strict=True)
    one_by_one = [jax.vjp(lambda x, i=i: function(x, i, COUNT), x)[1](g)[0] for x, i, g in entries]
    assert_same_bits(np.asarray(gradient), np.stack([np.asarray(each) for each in one_by_one]))


def test_rows_of_maxima_counts_and_clipped_ids(rng: np.random.Generator) -> None:
    rows, ids = drawn(rng)
    ids[0, 0] = COUNT
    found = pybaracuda.jax.segment_max(rows, ids, return_arg=True)
    for one, other in zip(found, pybaracuda.segment_max(rows, ids, return_arg=True), strict=True):
        assert_same_bits(np.asarray(one), other)
    clipped = pybaracuda.jax.segment_sum(rows, ids, COUNT, mode="clip")
    assert_same_bits(np.asarray(clipped), pybaracuda.segment_sum(rows, np.clip(ids, 0, COUNT - 1), COUNT))


def test_a_gather(rng: np.random.Generator) -> None:
    _, ids = drawn(rng)
    segments = rng.normal(size=(3, COUNT, 2)).astype(np.float32)
    found = pybaracuda.jax.segment_gather(segments, ids)
    assert_same_bits(np.asarray(found), pybaracuda.segment_gather(segments, ids))


@REDUCTION
@pytest.mark.parametrize("shape", [(0, 5, 2), (2, 0, 2)], ids=str)
def test_nothing(reduce: str, shape: tuple[int, ...]) -> None:
    function = getattr(pybaracuda.jax, f"segment_{reduce}")
    found = function(jnp.ones(shape), jnp.zeros(shape[:2], jnp.int32), COUNT)
    assert found.shape == (shape if reduce == "softmax" else (shape[0], COUNT, 2))


def test_what_is_refused(rng: np.random.Generator) -> None:
    rows, ids = drawn(rng)
    with pytest.raises(ValueError, match=r"segment_ids has shape \(2, 10\); wanted \[N\] or \[B, N\]"):
        pybaracuda.jax.segment_sum(rows, ids[:2], COUNT)
    with pytest.raises(ValueError, match="segment_ids has shape"):
        pybaracuda.jax.segment_sum(rows, ids[:, :9], COUNT)
    with pytest.raises(pybaracuda.InvalidProblemError, match="3 times 1073741824 segments"):
        pybaracuda.jax.segment_sum(rows, ids, 2**30)
    with pytest.raises(TypeError, match="lengths has dtype uint8; wanted int32 or int64"):
        pybaracuda.jax.segment_csr(rows[0], lengths=np.array([1, 2], np.uint8))
    with pytest.raises(TypeError, match="lengths: wanted None beside offsets"):
        pybaracuda.jax.segment_csr(rows[0], np.array([1, 2]), lengths=np.array([1, 2]))
    with pytest.raises(TypeError, match="num_rows: wanted an int"):
        pybaracuda.jax.gather_csr(rows[0, :2], lengths=np.array([1, 2], np.int32))


@REDUCTION
@pytest.mark.parametrize("index", [np.int32, np.int64], ids=["i32", "i64"])
def test_lengths(reduce: str, index: Any, rng: np.random.Generator) -> None:
    rows, lengths = drawn(rng)[0][0], np.array([[3, 0, 5], [1, 1, 1]], index)
    wanted = [pybaracuda.segment_csr(rows, np.cumsum([0, *each]).astype(index), reduce) for each in lengths]

    def call(each: Any) -> Any:
        return pybaracuda.jax.segment_csr(rows, reduce=reduce, lengths=each)

    assert_same_bits(np.asarray(call(lengths[0])), wanted[0])
    assert_same_bits(np.asarray(jax.jit(jax.vmap(call))(lengths)), np.stack(wanted))
    spread = pybaracuda.jax.gather_csr(rows[:3], num_rows=10, lengths=lengths[0])
    assert_same_bits(np.asarray(spread), pybaracuda.gather_csr(rows[:3], np.array([0, 3, 3, 8]), 10))
