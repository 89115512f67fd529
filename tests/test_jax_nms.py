# SPDX-License-Identifier: Apache-2.0
"""nms, batched_nms and nms_sorted in pybaracuda.jax: the array functions' results, under vmap in one call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import FLOATS, wide
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax as bj

DTYPE = pytest.mark.parametrize("token", list(FLOATS))


def drawn_boxes(rng: np.random.Generator, dtype: Any, *lead: int) -> tuple[Any, Any]:
    corners = rng.uniform(0, 10, (*lead, 40, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.5, 6, (*lead, 40, 2))], -1).astype(dtype)
    return boxes, rng.choice([-1, 0.25, 0.5, 3], (*lead, 40)).astype(dtype)


def assert_all_same(actual: Any, expected: Any) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert_same_bits(np.asarray(one), other)


@DTYPE
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_suppression_is_that_of_the_array_functions(token: str, index: Any, rng: np.random.Generator) -> None:
    dtype = FLOATS[token]
    boxes, scores = drawn_boxes(rng, dtype)
    classes = rng.integers(-1, 2, 40).astype(index)
    with wide(dtype):
        if index is np.int64 and not jax.config.jax_enable_x64:
            classes = classes.astype(np.int32)  # which JAX makes of them
        for return_mask in (False, True):
            ours = jax.jit(lambda b, s: bj.nms(b, s, 0.3, return_mask=return_mask))(boxes, scores)  # noqa: B023
            assert_all_same(ours, pybaracuda.nms(boxes, scores, 0.3, return_mask=return_mask))
            ours = bj.batched_nms(boxes, scores, classes, 0.3, return_mask=return_mask)
            assert_all_same(ours, pybaracuda.batched_nms(boxes, scores, classes, 0.3, return_mask=return_mask))
        assert_all_same(jax.jit(bj.nms_sorted, static_argnums=1)(boxes, 0.3), pybaracuda.nms_sorted(boxes, 0.3))


@pytest.mark.parametrize("problems", [0, 1, 5])
def test_vmap_of_suppression_has_the_bits_of_a_loop(problems: int, rng: np.random.Generator) -> None:
    boxes, scores = drawn_boxes(rng, np.float32, problems)
    run = jax.jit(jax.vmap(lambda b, s: (*bj.nms(b, s, 0.3, return_mask=True), *bj.nms_sorted(b, 0.3))))
    found = run(boxes, scores)
    assert all(each.shape[0] == problems for each in found)
    for i in range(problems):
        each = pybaracuda.nms(boxes[i], scores[i], 0.3, return_mask=True)
        assert_all_same([part[i] for part in found], (*each, *pybaracuda.nms_sorted(boxes[i], 0.3)))


def test_what_is_kept_has_no_derivative(rng: np.random.Generator) -> None:
    """A loss of the kept boxes moves these alone; which are kept does not move."""
    boxes, scores = drawn_boxes(rng, np.float32)

    def loss(boxes: Any, scores: Any) -> Any:
        mask = bj.nms(boxes, scores, 0.3, return_mask=True)[2]
        return (boxes.sum(1) * scores * mask).sum()

    mask = pybaracuda.nms(boxes, scores, 0.3, return_mask=True)[2]
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))(boxes, scores)
    np.testing.assert_array_equal(gradients[0], np.broadcast_to((scores * mask)[:, None], (40, 4)))
    np.testing.assert_allclose(gradients[1], boxes.sum(1) * mask, rtol=1e-6)
    moved = jax.jvp(lambda b: bj.nms(b, scores, 0.3), (boxes,), (boxes,))[1]
    assert all(each.dtype == jax.dtypes.float0 for each in moved)


def suppressed(boxes: Any, scores: Any, classes: Any, module: Any) -> tuple[Any, ...]:
    """What all three keep of one problem."""
    return (
        *module.nms(boxes, scores, 0.3, return_mask=True),
        *module.batched_nms(boxes, scores, classes, 0.3, return_mask=True),
        *module.nms_sorted(boxes, 0.3),
    )


@DTYPE
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_vmap_keeps_what_single_problems_keep(token: str, index: Any, rng: np.random.Generator) -> None:
    """Classes of any integers, the same in several images; ties, zeros of both signs, infinite and missing scores."""
    dtype = FLOATS[token]
    boxes, scores = drawn_boxes(rng, dtype, 3, 4)
    scores[0] = rng.choice([-0.0, 0.0, np.inf, -np.inf, np.nan], scores[0].shape).astype(dtype)
    boxes[1, 1, ::5] = np.nan
    limits = np.iinfo(index)
    with wide(dtype if index is np.int32 else np.float64):
        classes = rng.choice([limits.min, -1, 0, 1, limits.max], (3, 4, 40)).astype(index)
        found = jax.jit(jax.vmap(jax.vmap(lambda *x: suppressed(*x, bj))))(boxes, scores, classes)
        for at in np.ndindex(3, 4):
            expected = suppressed(boxes[at], scores[at], classes[at], pybaracuda)
            assert_all_same([part[at] for part in found], expected)


def test_vmap_over_some_of_the_arguments(rng: np.random.Generator) -> None:
    boxes, scores = drawn_boxes(rng, np.float32, 4)
    classes = rng.integers(0, 3, (40, 4)).astype(np.int32)
    found = jax.vmap(lambda s, i: bj.batched_nms(boxes[0], s, i, 0.3), in_axes=(0, 1))(scores, classes)
    for i in range(4):
        expected = pybaracuda.batched_nms(boxes[0], scores[i], np.ascontiguousarray(classes[:, i]), 0.3)
        assert_all_same([part[i] for part in found], expected)


def test_vmap_is_one_call_and_no_loop(rng: np.random.Generator) -> None:
    boxes, scores = drawn_boxes(rng, np.float32, 7)
    classes = rng.integers(0, 3, (7, 40)).astype(np.int32)
    for call, operands in (
        (lambda b, s: bj.nms(b, s, 0.3), (boxes, scores)),
        (lambda b, s, i: bj.batched_nms(b, s, i, 0.3), (boxes, scores, classes)),
        (lambda b: bj.nms_sorted(b, 0.3), (boxes,)),
    ):
        text = jax.jit(jax.vmap(call)).lower(*operands).as_text()
        assert text.count(f"@{bj.TARGET}") + text.count(f'"{bj.TARGET}"') == 1
        assert "stablehlo.while" not in text


def test_wrong_arguments_are_refused_as_by_the_array_functions(rng: np.random.Generator) -> None:
    boxes, scores = drawn_boxes(rng, np.float32)
    for call in (
        lambda m: m.nms(boxes[:, :3], scores, 0.5),
        lambda m: m.nms(boxes, scores[:-1], 0.5),
        lambda m: m.batched_nms(boxes, scores, np.zeros(3, np.int32), 0.5),
        lambda m: m.nms(boxes, scores, "0.5"),
    ):
        with pytest.raises((TypeError, ValueError, pybaracuda.InvalidProblemError)) as expected:
            call(pybaracuda)
        with pytest.raises((TypeError, ValueError, pybaracuda.InvalidProblemError)) as found:
            call(bj)
        assert type(found.value) is type(expected.value)


def test_no_boxes() -> None:
    keep, count = bj.nms(jnp.zeros((0, 4)), jnp.zeros(0), 0.5)
    assert keep.shape == (0,)
    assert np.asarray(count).tolist() == [0]
    for call in (lambda b, s: bj.nms(b, s, 0.5), lambda b, s: bj.batched_nms(b, s, jnp.zeros(0, jnp.int32), 0.5)):
        keep, count = jax.vmap(call)(jnp.zeros((3, 0, 4)), jnp.zeros((3, 0)))
        assert (keep.shape, np.asarray(count).tolist()) == ((3, 0), [[0]] * 3)
