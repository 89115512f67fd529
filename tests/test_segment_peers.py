# SPDX-License-Identifier: Apache-2.0
"""Segment operations beside PyTorch's and JAX's on shared inputs, and each place where they differ on purpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle.sums import Array

import pybaracuda

REDUCTIONS = ("sum", "mean", "max", "min", "prod")
TORCH_NAMES = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}


def problem(rng: np.random.Generator) -> tuple[Array, Array, int, Array]:
    """Rows without ties, ids in range, one empty segment."""
    ids = rng.integers(0, 9, 200)
    ids[ids == 4] = 5
    return rng.uniform(0.5, 1.5, (200, 3)), ids, 9, rng.standard_normal((9, 3))


def ours(reduce: str, rows: Array, ids: Array, count: int, gradient: Array) -> tuple[Array, Array]:
    output = getattr(pybaracuda, f"segment_{reduce}")(rows, ids, count)
    backward = getattr(pybaracuda, f"segment_{reduce}_backward")
    if reduce in ("sum", "mean"):
        return output, backward(gradient, ids)
    if reduce == "prod":
        return output, backward(gradient, rows, output, ids)
    return output, backward(gradient, rows, ids)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_torch_scatter_reduce_agrees(torch: Any, rng: np.random.Generator, reduce: str) -> None:
    rows, ids, count, gradient = problem(rng)
    source = torch.from_numpy(rows).requires_grad_()
    index = torch.from_numpy(ids)[:, None].expand(-1, 3)
    initial = {"max": -np.inf, "min": np.inf, "prod": 1.0}.get(reduce, 0.0)
    target = torch.full((count, 3), initial, dtype=torch.float64)
    expected = target.scatter_reduce(0, index, source, TORCH_NAMES[reduce], include_self=False)
    expected.backward(torch.from_numpy(gradient))
    output, grad_input = ours(reduce, rows, ids, count, gradient)
    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=1e-13)
    np.testing.assert_allclose(grad_input, source.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_torch_segment_reduce_agrees(torch: Any, rng: np.random.Generator, reduce: str) -> None:
    rows, ids, count, gradient = problem(rng)
    order = np.sort(ids)
    offsets = np.searchsorted(order, np.arange(count + 1))
    source = torch.from_numpy(rows).requires_grad_()
    expected = torch.segment_reduce(source, reduce, offsets=torch.from_numpy(offsets), axis=0)
    output = pybaracuda.segment_csr(rows, offsets, reduce)
    filled = np.diff(offsets) > 0
    np.testing.assert_allclose(output[filled], expected.detach().numpy()[filled], rtol=1e-13)
    expected.backward(torch.from_numpy(np.abs(gradient)))
    grad_input = pybaracuda.segment_csr_backward(
        np.abs(gradient), offsets, reduce, num_rows=200, input=rows, output=output
    )
    np.testing.assert_allclose(grad_input, source.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("reduce", ["sum", "max", "min", "prod"])
def test_jax_agrees(rng: np.random.Generator, reduce: str) -> None:
    import jax
    import peers

    rows, ids, count, gradient = problem(rng)
    ids[::17] = -1  # JAX drops what lies outside, as we do
    with peers._jax_in_float64():
        function = getattr(jax.ops, f"segment_{reduce}")
        # JAX wraps negative ids around before it drops; one past the end is dropped by both.
        shared = np.where(ids < 0, count, ids)
        expected = np.asarray(function(rows, shared, count))
        expected_gradient = None
        if reduce != "prod":  # JAX 0.10 has no gradient of a product over segments
            _, vjp = jax.vjp(lambda x: function(x, shared, count), jax.numpy.asarray(rows))
            expected_gradient = np.asarray(vjp(jax.numpy.asarray(gradient))[0])
    output, grad_input = ours(reduce, rows, ids, count, gradient)
    np.testing.assert_allclose(output, expected, rtol=1e-13)
    if expected_gradient is not None:
        np.testing.assert_allclose(grad_input, expected_gradient, rtol=1e-12)


@pytest.mark.parametrize("reduce", ["logsumexp", "softmax"])
def test_torch_exponentials_agree(torch: Any, rng: np.random.Generator, reduce: str) -> None:
    rows, ids, count, gradient = problem(rng)
    source = torch.from_numpy(rows).requires_grad_()
    output = getattr(pybaracuda, f"segment_{reduce}")(rows, ids, count)
    parts = [torch.from_numpy(np.flatnonzero(ids == segment)) for segment in range(count)]
    loss = torch.zeros((), dtype=torch.float64)
    upstream = rng.standard_normal(rows.shape) if reduce == "softmax" else gradient
    for segment, mine in enumerate(parts):
        if len(mine) == 0:
            continue
        if reduce == "softmax":
            value = torch.softmax(source[mine], 0)
            np.testing.assert_allclose(output[mine.numpy()], value.detach().numpy(), rtol=1e-13)
            loss = loss + (value * torch.from_numpy(upstream)[mine]).sum()
        else:
            value = torch.logsumexp(source[mine], 0)
            np.testing.assert_allclose(output[segment], value.detach().numpy(), rtol=1e-13)
            loss = loss + (value * torch.from_numpy(upstream[segment])).sum()
    loss.backward()
    if reduce == "softmax":
        grad_input = pybaracuda.segment_softmax_backward(upstream, output, ids, count)
    else:
        grad_input = pybaracuda.segment_logsumexp_backward(upstream, rows, output, ids)
    np.testing.assert_allclose(grad_input, source.grad.numpy(), rtol=1e-10, atol=1e-14)


# ---- where they differ (docs/differences.md)


def test_even_ties_are_those_of_torch_segment_reduce_for_a_positive_gradient(torch: Any) -> None:
    rows, offsets = np.array([[2.0], [2.0], [1.0]]), np.array([0, 3])
    source = torch.from_numpy(rows).requires_grad_()
    torch.segment_reduce(source, "max", offsets=torch.from_numpy(offsets), axis=0).backward(torch.ones(1, 1).double())
    even = pybaracuda.segment_csr_backward(np.ones((1, 1)), offsets, "max", input=rows, ties="even")
    np.testing.assert_array_equal(even, source.grad.numpy())
    # A negative gradient goes to every tie in full there (recorded, not asserted); ours adds up to the gradient.
    negative = pybaracuda.segment_csr_backward(-np.ones((1, 1)), offsets, "max", input=rows, ties="even")
    assert negative.ravel().tolist() == [-0.5, -0.5, 0]


def test_a_value_for_segments_without_rows_takes_part_in_no_other(torch: Any) -> None:
    rows, offsets = np.array([[1.0], [2.0]]), np.array([0, 2, 2])
    tensors = {"data": torch.from_numpy(rows), "offsets": torch.from_numpy(offsets), "axis": 0}
    for reduce, mine, theirs in (("sum", 3, 8), ("mean", 1.5, 4), ("max", 2, 5), ("min", 1, 1), ("prod", 2, 10)):
        assert torch.segment_reduce(reduce=reduce, initial=5, **tensors).ravel().tolist() == [theirs, 5]
        assert pybaracuda.segment_csr(rows, offsets, reduce, empty_value=5).ravel().tolist() == [mine, 5]
    # scatter_reduce leaves what stood there.
    target, index = torch.full((2, 1), 5.0).double(), torch.zeros(2, 1, dtype=torch.int64)
    kept = target.scatter_reduce(0, index, tensors["data"], "amax", include_self=False)
    ours = pybaracuda.segment_max(rows, np.zeros(2, np.int64), 2, empty_value=5)
    np.testing.assert_array_equal(ours, kept.numpy())


@pytest.mark.parametrize("reduce", ["sum", "max", "min", "prod"])
def test_segments_without_rows_are_jaxs_without_a_value(reduce: str) -> None:
    import jax

    rows, ids = np.ones((1, 2), np.float32), np.zeros(1, np.int32)
    expected = np.asarray(getattr(jax.ops, f"segment_{reduce}")(rows, ids, 3))
    np.testing.assert_array_equal(getattr(pybaracuda, f"segment_{reduce}")(rows, ids, 3), expected)


def test_empty_mean_is_zero(torch: Any) -> None:
    rows, offsets = np.ones((1, 1), np.float32), np.array([0, 0, 1])
    theirs = torch.segment_reduce(torch.from_numpy(rows), "mean", offsets=torch.from_numpy(offsets), axis=0)
    assert theirs.isnan().ravel().tolist() == [True, False]
    assert pybaracuda.segment_csr(np.ones((1, 1), np.float32), np.array([0, 0, 1]), "mean").ravel().tolist() == [0, 1]


def test_prod_gradient_at_one_zero_is_the_other_rows_product() -> None:
    rows = np.array([[0.0], [3.0], [4.0]])
    gradient = pybaracuda.segment_prod_backward(np.ones((1, 1)), rows, np.zeros((1, 1)), np.zeros(3, np.int64))
    assert gradient.ravel().tolist() == [12, 0, 0]


def test_descending_ids_that_were_called_sorted_drop_every_row() -> None:
    rows = np.ones((3, 1), np.float32)
    output = pybaracuda.segment_sum(rows, np.array([1, 0, 1], np.int32), 2, indices_are_sorted=True)
    assert not output.any()
    assert not pybaracuda.segment_csr(rows, np.array([2, 0, 3]), "sum").any()
