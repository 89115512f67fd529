# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification in JAX: the array functions' bits under its transformations."""

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

BLANK = 2


def drawn(rng: np.random.Generator, dtype: Any = np.float32) -> tuple[Any, ...]:
    """Four sequences of up to nine steps, of which one has no alignment."""
    logits = rng.standard_normal((9, 4, 6))
    log_probs = (logits - np.log(np.exp(logits).sum(2, keepdims=True))).astype(dtype)
    targets = rng.integers(3, 6, (4, 3)).astype(np.int32)
    return log_probs, targets, np.array([9, 8, 2, 5], np.int32), np.array([3, 2, 3, 0], np.int32)


def expected(case: tuple[Any, ...], gradient: Any, zero: bool = True) -> tuple[Any, Any]:
    sums = pybaracuda.ctc_loss(*case, BLANK, return_log_alpha=True)
    return sums[0], pybaracuda.ctc_loss_backward(gradient, *case, *sums, BLANK, zero)


@pytest.mark.parametrize("joined", [False, True])
def test_losses_and_gradients_have_the_array_functions_bits(
    joined: bool, dtype: np.dtype[Any], rng: np.random.Generator
) -> None:
    case = drawn(rng, dtype)
    given, options = case, {}
    if joined:
        rows = np.concatenate([row[:count] for row, count in zip(case[1], case[3], strict=True)])
        given, options = (case[0], rows, *case[2:]), {"max_target_length": 3}
    weights = np.array([1, -2, 0.5, 3], np.float64 if dtype == np.float64 else np.float32)
    losses, slopes = expected(case, weights)

    def loss(log_probs: Any) -> Any:
        return (bj.ctc_loss(log_probs, *given[1:], BLANK, zero_infinity=True, **options) * weights).sum()

    with wide(dtype):
        found = jax.jit(lambda *arrays: bj.ctc_loss(*arrays, BLANK, **options))(*given)
        assert_same_bits(np.asarray(found), losses)
        assert_same_bits(np.asarray(jax.jit(jax.grad(loss))(case[0])), slopes)


def test_mapped_calls_are_one(rng: np.random.Generator) -> None:
    cases = [drawn(rng) for _ in range(3)]
    stacked = [np.stack(each) for each in zip(*cases, strict=True)]
    ones = np.ones(4, np.float32)
    results = [expected(case, ones) for case in cases]

    def losses(*arrays: Any) -> Any:
        return bj.ctc_loss(*arrays, BLANK, zero_infinity=True)

    found = jax.jit(jax.vmap(losses))(*stacked)
    slopes = jax.jit(jax.vmap(jax.grad(lambda *arrays: losses(*arrays).sum())))(*stacked)
    for i, (values, gradient) in enumerate(results):
        assert_same_bits(np.asarray(found[i]), np.where(values == np.inf, np.float32(0), values))
        assert_same_bits(np.asarray(slopes[i]), gradient)


def test_forward_mode_is_the_gradients_product(rng: np.random.Generator) -> None:
    case = drawn(rng)
    moved = rng.standard_normal(case[0].shape).astype(np.float32)
    _, slopes = expected(case, np.ones(4, np.float32))
    _, along = jax.jvp(lambda x: bj.ctc_loss(x, *case[1:], BLANK, zero_infinity=True), (case[0],), (moved,))
    products = slopes.astype(np.float64) * moved
    # 54 terms, each rounded once, and their sum in any order.
    bound = 60 * 2.0**-24 * np.abs(products).sum((0, 2))
    assert (np.abs(np.asarray(along) - products.sum((0, 2))) <= bound).all()


def test_reductions(rng: np.random.Generator) -> None:
    case = drawn(rng)
    losses = np.asarray(bj.ctc_loss(*case, BLANK, zero_infinity=True)).astype(np.float64)
    total = bj.ctc_loss(*case, BLANK, reduction="sum", zero_infinity=True)
    mean = bj.ctc_loss(*case, BLANK, reduction="mean", zero_infinity=True)
    np.testing.assert_allclose(total, losses.sum(), rtol=4 * 2.0**-24)
    np.testing.assert_allclose(mean, (losses / np.maximum(case[3], 1)).mean(), rtol=6 * 2.0**-24)
    with pytest.raises(ValueError, match="reduction is 'max'; wanted one of none, mean, sum"):
        bj.ctc_loss(*case, BLANK, reduction="max")


def test_no_second_derivative(rng: np.random.Generator) -> None:
    case = drawn(rng)
    loss = lambda x: bj.ctc_loss(x, *case[1:], BLANK, reduction="sum", zero_infinity=True)  # noqa: E731
    with pytest.raises(NotImplementedError, match="no second derivative"):
        jax.grad(lambda x: jnp.sum(jax.grad(loss)(x) ** 2))(case[0])
