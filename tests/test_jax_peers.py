# SPDX-License-Identifier: Apache-2.0
"""pybaracuda.jax beside JAX's own: the cases that jax.ops documents, and random problems, values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import wide

import pybaracuda.jax as bj


@pytest.fixture(autouse=True)
def on_the_cpu() -> Any:
    with jax.default_device(jax.devices("cpu")[0]):
        yield


# ---- the examples of jax.ops' documentation

DOCUMENTED = {
    "segment_sum": ([0, 1, 2, 3, 4], [0, 0, 1, 1, 2], [1, 5, 4]),
    "segment_prod": ([0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], [0, 6, 20]),
    "segment_max": ([0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], [1, 3, 5]),
    "segment_min": ([0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], [0, 2, 4]),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_examples(name: str) -> None:
    data, ids, expected = (jnp.array(each) for each in DOCUMENTED[name])
    function = getattr(bj, name)
    np.testing.assert_array_equal(getattr(jax.ops, name)(data, ids), expected)
    np.testing.assert_array_equal(function(data, ids), expected)
    np.testing.assert_array_equal(jax.jit(function, static_argnums=2)(data, ids, 3), expected)
    np.testing.assert_array_equal(
        jax.jit(function, static_argnames="num_segments")(data, ids, num_segments=3), expected
    )


def rows_and_ids(mode: Any, num_segments: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Integers, and ids in order as far as a call takes them."""
    data = rng.integers(-9, 9, (20, 2)).astype(np.int32)
    inside = mode == "promise_in_bounds" or num_segments is None
    if inside and num_segments == 0:
        # The one promise that no id keeps.
        data = data[:0]
    high = num_segments if inside and num_segments else 6
    return data, np.sort(rng.integers(0 if inside else -2, high, len(data))).astype(np.int32)


@pytest.mark.parametrize("name", DOCUMENTED)
@pytest.mark.parametrize("mode", [None, "drop", "fill", "clip", "promise_in_bounds", "enum"])
def test_arguments_of_jax_ops(name: str, mode: Any, rng: np.random.Generator) -> None:
    given = jax.lax.GatherScatterMode.CLIP if mode == "enum" else mode

    def results(module: Any, problem: Any, num_segments: Any) -> list[Any]:
        function = getattr(module, name)
        return [function(*problem, num_segments, is_sorted, False, None, given) for is_sorted in (False, True)]

    def bucketed(problem: Any, num_segments: Any) -> Any:
        return getattr(bj, name)(*problem, num_segments, bucket_size=4, unique_indices=False, mode=given)

    # One program for all of them: compiling is what takes time here.
    counts = (0, 1, 4, 9)
    problems = [rows_and_ids(mode, each, rng) for each in counts]
    program = jax.jit(
        lambda problems: [
            (results(bj, each, count), results(jax.ops, each, count), bucketed(each, count))
            for each, count in zip(problems, counts, strict=True)
        ]
    )
    problem = rows_and_ids(mode, None, rng)
    without_count = (results(bj, problem, None), results(jax.ops, problem, None), bucketed(problem, None))
    for ours, theirs, in_buckets in (*program(problems), without_count):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(in_buckets, ours[0])


# ---- random problems


def value_and_gradients(function: Callable[..., Any], weights: Any, *x: Any) -> list[Any]:
    def loss(*x: Any) -> Any:
        output = function(*x)
        return jnp.sum(jnp.where(jnp.isfinite(output), output, 0) * weights), output

    gradients, output = jax.grad(loss, tuple(range(len(x))), has_aux=True)(*x)
    return [output, *gradients]


def both(ours: Callable[..., Any], theirs: Callable[..., Any], *x: Any) -> Any:
    """Lists of two functions' results, from one program, since compiling is what takes time here."""
    return jax.jit(lambda *x: (ours(*x), theirs(*x)))(*x)


def compared(ours: Callable[..., Any], theirs: Callable[..., Any], weights: Any, *x: Any) -> None:
    """Values and gradients of two functions are close."""
    assert_close(
        *both(*(lambda w, *x, each=each: value_and_gradients(each, w, *x) for each in (ours, theirs)), weights, *x)
    )


def assert_close(ours: list[Any], theirs: list[Any]) -> None:
    """In float64: sums of some dozen products, taken in two orders."""
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["segment_sum", "segment_max", "segment_min"])
@pytest.mark.parametrize("has_ties", [False, True])
def test_segments_and_their_gradients_are_those_of_jax_ops(name: str, has_ties: bool, rng: np.random.Generator) -> None:
    with wide(np.float64):
        rows = rng.integers(0, 3, (60, 2)).astype(np.float64) if has_ties else rng.standard_normal((60, 2))
        ids = rng.integers(-2, 9, 60)
        weights = rng.standard_normal((7, 2))

        def calls(module: Any) -> Callable[..., Any]:
            return lambda x: getattr(module, name)(x, ids, 7)

        compared(calls(bj), calls(jax.ops), weights, rows)


def mean(x: Any, ids: Any, count: int) -> Any:
    ones = jax.ops.segment_sum(jnp.ones(x.shape[0]), ids, count)
    return jax.ops.segment_sum(x, ids, count) / jnp.maximum(ones, 1)[:, None]


def logsumexp(x: Any, ids: Any, count: int) -> Any:
    most = jax.lax.stop_gradient(jax.ops.segment_max(x, ids, count))
    return jnp.log(jax.ops.segment_sum(jnp.exp(x - most[ids]), ids, count)) + most


def softmax(x: Any, ids: Any, count: int) -> Any:
    return jnp.exp(x - logsumexp(x, ids, count)[ids])


def product(x: Any, ids: Any, count: int) -> Any:
    belongs = ids[None, :] == jnp.arange(count)[:, None]
    return jnp.prod(jnp.where(belongs[:, :, None], x[None], 1), 1)


@pytest.mark.parametrize("definition", [mean, logsumexp, softmax, product])
def test_segments_that_jax_ops_lacks_are_their_definitions(
    definition: Callable[..., Any], rng: np.random.Generator
) -> None:
    name = {"product": "prod"}.get(definition.__name__, definition.__name__)
    with wide(np.float64):
        rows = rng.standard_normal((30, 2))
        # Every segment has a row: the definitions above have no value for one without.
        ids = rng.permutation(np.concatenate([np.arange(5), rng.integers(0, 5, 25)]))
        weights = rng.standard_normal((30 if name == "softmax" else 5, 2))
        compared(lambda x: getattr(bj, f"segment_{name}")(x, ids, 5), lambda x: definition(x, ids, 5), weights, rows)


MODES = {
    "constant": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
    "symmetric": "symmetric",
}


@pytest.mark.parametrize("mode", MODES)
def test_padding_and_its_gradient_are_those_of_jax_numpy(mode: str, rng: np.random.Generator) -> None:
    with wide(np.float64):
        arrays, weights, pads = [], [], []
        for _ in range(5):
            shape = tuple(rng.integers(3, 6, 2))
            pads.append([(int(low), int(high)) for low, high in rng.integers(0, 9, (2, 2))])
            arrays.append(rng.standard_normal(shape))
            weights.append(rng.standard_normal([n + a + b for n, (a, b) in zip(shape, pads[-1], strict=True)]))

        def every(pad: Any) -> Any:
            def found(weights: Any, arrays: Any) -> Any:
                problems = zip(pads, weights, arrays, strict=True)
                return [one for p, w, x in problems for one in value_and_gradients(lambda y, p=p: pad(y, p), w, x)]

            return found

        ours = every(lambda x, p: bj.pad(x, *zip(*p, strict=True), mode))
        assert_close(*both(ours, every(lambda x, p: jnp.pad(x, p, MODES[mode])), weights, arrays))


def sampled(x: Any, grid: Any) -> Any:
    """Bilinear samples in plain JAX, zeros outside."""
    h, w = x.shape[2:]
    place = ((grid + 1) * jnp.array([w, h]) - 1) / 2
    low = jnp.floor(place)
    total = jnp.zeros((*x.shape[:2], *grid.shape[1:3]))
    for dy in (0, 1):
        for dx in (0, 1):
            at = low + jnp.array([dx, dy])
            weight = jnp.prod(1 - jnp.abs(place - at), -1)
            is_inside = (at[..., 0] >= 0) & (at[..., 0] < w) & (at[..., 1] >= 0) & (at[..., 1] < h)
            column, row = (jnp.clip(at[..., i], 0, n - 1).astype(int) for i, n in ((0, w), (1, h)))
            taps = jax.vmap(lambda image, r, c: image[:, r, c])(x, row, column)
            total = total + taps * jnp.where(is_inside, weight, 0)[:, None]
    return total


def test_samples_and_their_gradients_are_their_definition(rng: np.random.Generator) -> None:
    with wide(np.float64):
        x, grid = rng.standard_normal((2, 3, 5, 6)), rng.uniform(-1.3, 1.3, (2, 4, 7, 2))
        weights = rng.standard_normal((2, 3, 4, 7))
        tangents = rng.standard_normal(x.shape), rng.standard_normal(grid.shape)

        def every(function: Any) -> Any:
            def found(x: Any, grid: Any) -> Any:
                moved = jax.jvp(function, (x, grid), tangents)[1]
                return [*value_and_gradients(function, weights, x, grid), moved]

            return found

        assert_close(*both(every(bj.grid_sample), every(sampled), x, grid))


def test_grids_of_maps_are_their_definition(rng: np.random.Generator) -> None:
    def grids(theta: Any) -> Any:
        y, x = ((2 * jnp.arange(n) + 1) / n - 1 for n in (4, 5))
        base = jnp.stack([*reversed(jnp.meshgrid(y, x, indexing="ij")), jnp.ones((4, 5))], -1)
        return jnp.einsum("hwk,nik->nhwi", base, theta)

    with wide(np.float64):
        theta, weights = rng.standard_normal((3, 2, 3)), rng.standard_normal((3, 4, 5, 2))
        compared(lambda t: bj.affine_grid(t, (3, 1, 4, 5)), grids, weights, theta)


def averaged(x: Any, boxes: Any) -> Any:
    """RoIAlign in plain JAX: 2 x 2 bins, one sample each, aligned, boxes inside."""

    def one(box: Any) -> Any:
        image = jnp.asarray(x)[box[0].astype(int)]
        corner, size = box[1:3] - 0.5, box[3:5] - box[1:3]
        place = corner + size * (jnp.stack(jnp.meshgrid(jnp.arange(2), jnp.arange(2)), -1) + 0.5) / 2
        grid = (2 * place + 1) / jnp.array([x.shape[3], x.shape[2]]) - 1
        return sampled(image[None], grid[None])[0]

    return jax.vmap(one)(boxes)


def test_bins_and_their_gradient_are_their_definition(rng: np.random.Generator) -> None:
    with wide(np.float64):
        x = rng.standard_normal((2, 3, 9, 8))
        corners = rng.uniform(1, 3, (4, 2))
        boxes = np.concatenate([rng.integers(0, 2, (4, 1)), corners, corners + rng.uniform(1, 4, (4, 2))], 1)
        weights = rng.standard_normal((4, 3, 2, 2))
        compared(lambda y: bj.roi_align(y, boxes, 2, 1.0, 1, True), lambda y: averaged(y, boxes), weights, x)


def test_dequantization_and_the_gradient_of_its_scales_are_their_definition(rng: np.random.Generator) -> None:
    with wide(np.float64):
        values = rng.integers(-128, 128, (3, 4, 5)).astype(np.int8)
        scale, zero = rng.standard_normal(4), rng.integers(-9, 9, 4).astype(np.int32)
        weights = rng.standard_normal((3, 4, 5))
        compared(
            lambda s: bj.dequantize_per_channel(values, s, zero, 1),
            lambda s: (values.astype(np.float64) - zero[:, None]) * s[:, None],
            weights,
            scale,
        )
