# SPDX-License-Identifier: Apache-2.0
"""Models that are trained twice on these operators end with the same weights: a spatial transformer, a graph attention
network.

With flax and optax where they are installed, and with layers and an optimizer written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import skip_policy
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax as bj

NUM_STEPS = 25
Loss = Callable[[Any, Any], Any]
# Without flax there is no such model; that is no skip.
WAYS = ["own", *(["flax"] if find_spec("flax") and find_spec("optax") else [])]
WAY = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(params=skip_policy.backends(), autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "cuda" and not (pybaracuda.backend_available("cuda") and jax.default_backend() == "gpu"):
        pytest.skip("no CUDA")
    with jax.default_device(jax.devices("cpu" if request.param == "cpu" else "gpu")[0]):
        yield request.param


class Model(NamedTuple):
    """Dense layers by names: `apply(weights, name, x)`; `state(weights)` begins a training, of which `update(state,
    gradients)` is a step and `weights_of(state)` the weights."""

    weights: Any
    apply: Callable[[Any, str, Any], Any]
    state: Callable[[Any], Any]
    update: Callable[[Any, Any], Any]
    weights_of: Callable[[Any], Any]


def own_model(rng: np.random.Generator, sizes: dict[str, tuple[int, int]], rate: float) -> Model:
    weights = {
        name: {"kernel": (rng.standard_normal(size) / np.sqrt(size[0])).astype(np.float32), "bias": np.zeros(size[1])}
        for name, size in sizes.items()
    }

    def adam(state: Any, gradients: Any) -> Any:
        weights, means, squares, count = state
        count = count + 1
        means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
        squares = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, squares, gradients)

        def moved(weight: Any, m: Any, s: Any) -> Any:
            return weight - rate * (m / (1 - 0.9**count)) / (jnp.sqrt(s / (1 - 0.999**count)) + 1e-8)

        return jax.tree.map(moved, weights, means, squares), means, squares, count

    def first(weights: Any) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, weights)
        return weights, zeros, zeros, jnp.zeros(())

    def apply(weights: Any, name: str, x: Any) -> Any:
        return x @ weights[name]["kernel"] + weights[name]["bias"]

    return Model(jax.tree.map(jnp.float32, weights), apply, first, adam, lambda state: state[0])


def flax_model(rng: np.random.Generator, sizes: dict[str, tuple[int, int]], rate: float) -> Model:
    import optax
    from flax import linen
    from flax.training.train_state import TrainState

    class Layers(linen.Module):
        @linen.compact
        def __call__(self, x: Any, name: str) -> Any:
            return linen.Dense(sizes[name][1], name=name)(x)

    module = Layers()
    key = jax.random.key(int(rng.integers(2**31)))
    weights: dict[str, Any] = {}
    for name, (width, _) in sizes.items():
        weights |= module.init(key, jnp.zeros((1, width)), name)["params"]

    def first(weights: Any) -> Any:
        return TrainState.create(apply_fn=module.apply, params=weights, tx=optax.adam(rate))

    def apply(weights: Any, name: str, x: Any) -> Any:
        return module.apply({"params": weights}, x, name)

    return Model(
        weights, apply, first, lambda state, grads: state.apply_gradients(grads=grads), lambda state: state.params
    )


def model_of(way: str, rng: np.random.Generator, sizes: dict[str, tuple[int, int]], rate: float = 0.02) -> Model:
    return (flax_model if way == "flax" else own_model)(rng, sizes, rate)


def trained(model: Model, loss: Loss, batches: Any) -> tuple[Any, Any]:
    """The weights after all steps, and what the loss was at each."""

    def step(state: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(model.weights_of(state), batch)
        return model.update(state, gradients), value

    state, values = jax.jit(lambda s, b: jax.lax.scan(step, s, b))(model.state(model.weights), batches)
    return model.weights_of(state), values


def assert_trained_twice(model: Model, loss: Loss, batches: Any) -> None:
    results = []
    for _ in range(2):
        jax.clear_caches()  # compiled anew
        results.append(trained(model, loss, batches))
    values = np.asarray(results[0][1])
    assert np.isfinite(values).all()
    assert values[-5:].mean() < 0.7 * values[:5].mean()
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        assert_same_bits(np.asarray(one), np.asarray(other))


@WAY
def test_spatial_transformer(way: str, rng: np.random.Generator) -> None:
    """Images that are shifted by a network until they look like one of which they are shifted copies."""
    y, x = np.mgrid[-1:1:24j, -1:1:24j].astype(np.float32)
    target = np.exp(-8 * (x**2 + y**2)) * np.sign(np.sin(6 * x))
    shifts = rng.uniform(-0.4, 0.4, (NUM_STEPS, 8, 2, 1, 1)).astype(np.float32)
    moved_x, moved_y = x + shifts[:, :, 0], y + shifts[:, :, 1]
    images = (np.exp(-8 * (moved_x**2 + moved_y**2)) * np.sign(np.sin(6 * moved_x)))[:, :, None].astype(np.float32)
    start = np.array([1, 0, 0, 0, 1, 0], np.float32)
    model = model_of(way, rng, {"in": (24 * 24, 32), "out": (32, 6)}, rate=0.003)
    # The first maps are close to the identity.
    weights = model.weights | {"out": jax.tree.map(lambda each: 0.01 * each, model.weights["out"])}
    model = model._replace(weights=weights)

    def loss(weights: Any, batch: Any) -> Any:
        hidden = jnp.tanh(model.apply(weights, "in", batch.reshape(len(batch), -1)))
        theta = (model.apply(weights, "out", hidden) + start).reshape(-1, 2, 3)
        padded = bj.pad(batch, (0, 0, 4, 4), (0, 0, 4, 4), "replicate")
        aligned = bj.grid_sample(padded, bj.affine_grid(theta, (len(batch), 1, 24, 24)) * (24 / 32))
        return jnp.mean((aligned[:, 0] - target) ** 2)

    assert_trained_twice(model, loss, images)


@WAY
def test_graph_attention_network(way: str, rng: np.random.Generator) -> None:
    """Nodes that learn, from noisy neighbours, to which of four groups they belong."""
    num_nodes, num_edges, width = 120, 900, 16
    groups = rng.integers(0, 4, num_nodes)
    # Most edges stay in a group.
    ends = rng.integers(0, num_nodes, (num_edges * 6, 2))
    is_kept = (groups[ends[:, 0]] == groups[ends[:, 1]]) | (rng.random(len(ends)) < 0.1)
    source, into = ends[is_kept][:num_edges].T.astype(np.int32)
    features = (np.eye(4)[groups] + rng.standard_normal((num_nodes, 4))).astype(np.float32)
    model = model_of(way, rng, {"in": (4, width), "score": (2 * width, 2), "out": (2 * width, 4)})
    noise = 0.3 * rng.standard_normal((NUM_STEPS, num_nodes, 4)).astype(np.float32)

    def loss(weights: Any, noise: Any) -> Any:
        nodes = model.apply(weights, "in", features + noise)
        rows = bj.segment_gather(nodes, source)
        pairs = jnp.concatenate([rows, bj.segment_gather(nodes, into)], 1)
        attention = bj.segment_softmax(jax.nn.leaky_relu(model.apply(weights, "score", pairs)), into, num_nodes)
        messages = (attention[:, :, None] * rows[:, None]).reshape(len(rows), -1)
        heads = bj.segment_sum(messages, into, num_nodes)
        peaks = bj.segment_max(rows, into, num_nodes, empty_value=0)
        logits = model.apply(weights, "out", jnp.tanh(heads)) + 0.1 * peaks[:, :4]
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(num_nodes), groups])

    assert_trained_twice(model, loss, noise)
