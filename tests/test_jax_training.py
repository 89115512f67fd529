# SPDX-License-Identifier: Apache-2.0
"""Models that are trained twice on these operators end with the same weights: a spatial transformer, a graph attention
network.

With optax's Adam where optax is installed, else with one written here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax as bj

NUM_STEPS = 25
Loss = Callable[[Any, Any], Any]


@pytest.fixture(params=["cpu", "cuda"], autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "cuda" and not (pybaracuda.backend_available("cuda") and jax.default_backend() == "gpu"):
        pytest.skip("no CUDA")
    with jax.default_device(jax.devices("cpu" if request.param == "cpu" else "gpu")[0]):
        yield request.param


def adam(rate: float) -> tuple[Callable[[Any], Any], Callable[[Any, Any, Any], tuple[Any, Any]]]:
    """What begins an optimizer's state, and what makes of gradients, state and weights the next two."""
    if importlib.util.find_spec("optax"):
        import optax

        optimizer = optax.adam(rate)

        def update(gradients: Any, state: Any, weights: Any) -> tuple[Any, Any]:
            changes, state = optimizer.update(gradients, state, weights)
            return optax.apply_updates(weights, changes), state

        return optimizer.init, update

    def first(weights: Any) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, weights)
        return zeros, zeros, jnp.zeros(())

    def next_of(gradients: Any, state: Any, weights: Any) -> tuple[Any, Any]:
        means, squares, count = state
        count = count + 1
        means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
        squares = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, squares, gradients)

        def moved(weight: Any, m: Any, s: Any) -> Any:
            return weight - rate * (m / (1 - 0.9**count)) / (jnp.sqrt(s / (1 - 0.999**count)) + 1e-8)

        return jax.tree.map(moved, weights, means, squares), (means, squares, count)

    return first, next_of


def trained(loss: Loss, weights: Any, batches: Any, rate: float = 0.02) -> tuple[Any, Any]:
    """The weights after all steps, and what the loss was at each."""
    first, update = adam(rate)

    def step(carry: Any, batch: Any) -> Any:
        weights, state = carry
        value, gradients = jax.value_and_grad(loss)(weights, batch)
        return update(gradients, state, weights), value

    (weights, _), values = jax.jit(lambda w, s, b: jax.lax.scan(step, (w, s), b))(weights, first(weights), batches)
    return weights, values


def assert_trained_twice(loss: Loss, weights: Any, batches: Any, rate: float = 0.02) -> None:
    results = []
    for _ in range(2):
        jax.clear_caches()  # compiled anew
        results.append(trained(loss, weights, batches, rate))
    values = np.asarray(results[0][1])
    assert np.isfinite(values).all()
    assert values[-5:].mean() < 0.7 * values[:5].mean()
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        assert_same_bits(np.asarray(one), np.asarray(other))


def dense(rng: np.random.Generator, inputs: int, outputs: int) -> Any:
    return (rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)


def test_spatial_transformer(rng: np.random.Generator) -> None:
    """Images that are shifted by a network until they look like one of which they are shifted copies."""
    y, x = np.mgrid[-1:1:24j, -1:1:24j].astype(np.float32)
    target = np.exp(-8 * (x**2 + y**2)) * np.sign(np.sin(6 * x))
    shifts = rng.uniform(-0.4, 0.4, (NUM_STEPS, 8, 2, 1, 1)).astype(np.float32)
    moved_x, moved_y = x + shifts[:, :, 0], y + shifts[:, :, 1]
    images = (np.exp(-8 * (moved_x**2 + moved_y**2)) * np.sign(np.sin(6 * moved_x)))[:, :, None].astype(np.float32)
    start = np.array([1, 0, 0, 0, 1, 0], np.float32)
    weights = {"in": dense(rng, 24 * 24, 32), "out": 0.01 * dense(rng, 32, 6), "start": start}

    def loss(weights: Any, batch: Any) -> Any:
        hidden = jnp.tanh(batch.reshape(len(batch), -1) @ weights["in"])
        theta = (hidden @ weights["out"] + weights["start"]).reshape(-1, 2, 3)
        padded = bj.pad(batch, (0, 0, 4, 4), (0, 0, 4, 4), "replicate")
        aligned = bj.grid_sample(padded, bj.affine_grid(theta, (len(batch), 1, 24, 24)) * (24 / 32))
        return jnp.mean((aligned[:, 0] - target) ** 2)

    assert_trained_twice(loss, weights, images, rate=0.003)


def test_graph_attention_network(rng: np.random.Generator) -> None:
    """Nodes that learn, from noisy neighbours, to which of four groups they belong."""
    num_nodes, num_edges, width = 120, 900, 16
    groups = rng.integers(0, 4, num_nodes)
    # Most edges stay in a group.
    ends = rng.integers(0, num_nodes, (num_edges * 6, 2))
    is_kept = (groups[ends[:, 0]] == groups[ends[:, 1]]) | (rng.random(len(ends)) < 0.1)
    source, into = ends[is_kept][:num_edges].T.astype(np.int32)
    features = (np.eye(4)[groups] + rng.standard_normal((num_nodes, 4))).astype(np.float32)
    weights = {
        "in": dense(rng, 4, width),
        "score": dense(rng, 2 * width, 2),
        "out": dense(rng, 2 * width, 4),
    }
    noise = 0.3 * rng.standard_normal((NUM_STEPS, num_nodes, 4)).astype(np.float32)

    def loss(weights: Any, noise: Any) -> Any:
        nodes = (features + noise) @ weights["in"]
        rows = bj.segment_gather(nodes, source)
        pairs = jnp.concatenate([rows, bj.segment_gather(nodes, into)], 1)
        attention = bj.segment_softmax(jax.nn.leaky_relu(pairs @ weights["score"]), into, num_nodes)
        messages = (attention[:, :, None] * rows[:, None]).reshape(len(rows), -1)
        heads = bj.segment_sum(messages, into, num_nodes)
        peaks = bj.segment_max(rows, into, num_nodes, empty_value=0)
        logits = jnp.tanh(heads) @ weights["out"] + 0.1 * peaks[:, :4]
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(num_nodes), groups])

    assert_trained_twice(loss, weights, noise)
