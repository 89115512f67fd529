# SPDX-License-Identifier: Apache-2.0
"""Segment operations beside PyTorch's and JAX's on shared inputs, and each place where they differ on purpose."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import pybaracuda
from verify.dtypes import Array

REDUCTIONS = ("sum", "mean", "max", "min", "prod")
TORCH_NAMES = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}


NAN, INF = np.nan, np.inf


class Case(NamedTuple):
    """Rows with an id in range each, and a gradient for every segment."""

    rows: Array
    ids: Array
    count: int
    gradient: Array

    @property
    def trailing(self) -> tuple[int, ...]:
        return self.rows.shape[1:]

    @property
    def in_order(self) -> Case:
        return self._replace(ids=np.sort(self.ids))

    @property
    def offsets(self) -> Array:
        """Of ids in order."""
        return np.searchsorted(self.ids, np.arange(self.count + 1))

    def index(self, torch: Any) -> Any:
        """The ids as torch's scatter wants them."""
        ones = (1,) * len(self.trailing)
        return torch.from_numpy(self.ids).reshape(-1, *ones).expand(self.rows.shape)


def case_of(rng: np.random.Generator, kind: str) -> Case:
    """Finite numbers without ties unless the kind says so; segment 4 of 9 has no rows."""
    shape = {"line": (200,), "volumes": (90, 2, 3), "one row": (1, 3), "no rows": (0, 3)}.get(kind, (200, 3))
    ids = rng.integers(0, 9, shape[0])
    ids[ids == 4] = 5
    rows = rng.uniform(0.5, 1.5, shape)
    if kind == "ties":
        rows = rng.choice([-1.0, -0.0, 0.0, 1.0, 2.0], shape)
    elif kind == "infinite":
        rows = rng.choice([-INF, INF, 1.5, -2.0], shape, p=[0.1, 0.1, 0.4, 0.4])
    elif kind == "nan":
        rows[rng.random(shape) < 0.05] = NAN
    elif kind == "zeros":
        rows[rng.random(shape) < 0.06] = 0.0
    return Case(rows, ids, 9, rng.standard_normal((9, *shape[1:])))


FINITE = ("random", "line", "volumes", "one row", "no rows", "zeros")
KINDS = (*FINITE, "ties", "infinite", "nan")
KIND = pytest.mark.parametrize("kind", KINDS)
IDENTITY = {"sum": 0.0, "mean": 0.0, "max": -INF, "min": INF, "prod": 1.0}


def ours(reduce: str, case: Case) -> tuple[Array, Array]:
    """The result and its gradient; a tie's is shared, as PyTorch and JAX do."""
    output = getattr(pybaracuda, f"segment_{reduce}")(case.rows, case.ids, case.count)
    backward = getattr(pybaracuda, f"segment_{reduce}_backward")
    if reduce in ("sum", "mean"):
        return output, backward(case.gradient, case.ids)
    if reduce == "prod":
        return output, backward(case.gradient, case.rows, output, case.ids)
    return output, backward(case.gradient, case.rows, case.ids, ties="even")


def assert_agree(found: Array, expected: Array, reduce: str) -> None:
    """Selections to the number, sums and products within what another order of 200 float64 terms may change."""
    if reduce in ("max", "min"):
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@KIND
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_torch_scatter_reduce_agrees(torch: Any, rng: np.random.Generator, kind: str, reduce: str) -> None:
    case = case_of(rng, kind)
    source = torch.from_numpy(case.rows).requires_grad_()
    target = torch.full((case.count, *case.trailing), IDENTITY[reduce], dtype=torch.float64)
    name = TORCH_NAMES[reduce]
    expected = target.scatter_reduce(0, case.index(torch), source, name, include_self=False)
    with np.errstate(invalid="ignore"):
        output, grad_input = ours(reduce, case)
    assert_agree(output, expected.detach().numpy(), reduce)
    if kind in FINITE or kind == "ties" or reduce in ("sum", "mean"):
        expected.backward(torch.from_numpy(case.gradient))
        np.testing.assert_allclose(grad_input, source.grad.numpy(), rtol=1e-12, atol=1e-14)


@KIND
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_torch_segment_reduce_agrees(torch: Any, rng: np.random.Generator, kind: str, reduce: str) -> None:
    case = case_of(rng, kind).in_order
    source = torch.from_numpy(case.rows).requires_grad_()
    offsets = torch.from_numpy(case.offsets)
    expected = torch.segment_reduce(source, reduce, offsets=offsets, axis=0)
    output = pybaracuda.segment_csr(case.rows, case.offsets, reduce)
    filled = np.diff(case.offsets) > 0
    assert_agree(output[filled], expected.detach().numpy()[filled], reduce)
    if kind in FINITE or kind == "ties" or reduce in ("sum", "mean"):
        gradient = np.abs(case.gradient)  # a negative one is given whole to every tie there
        expected.backward(torch.from_numpy(gradient))
        grad_input = pybaracuda.segment_csr_backward(
            gradient, case.offsets, reduce, num_rows=len(case.rows), input=case.rows, output=output, ties="even"
        )
        np.testing.assert_allclose(grad_input, source.grad.numpy(), rtol=1e-12, atol=1e-14)


@KIND
@pytest.mark.parametrize("reduce", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("in_order", [False, True], ids=["any order", "in order"])
def test_jax_agrees(rng: np.random.Generator, kind: str, reduce: str, in_order: bool) -> None:
    import jax
    import peers

    case = case_of(rng, kind)
    case.ids[::17] = 9  # both drop what lies past the end
    if in_order:
        case = case.in_order
    with peers._jax_in_float64():
        segments = getattr(jax.ops, f"segment_{reduce}")

        def function(rows: Any) -> Any:
            return segments(rows, case.ids, case.count, indices_are_sorted=in_order)

        expected = np.asarray(function(case.rows))
        expected_gradient = None
        # JAX 0.10 has no gradient of a product over segments, and none at NaN.
        if reduce == "sum" or (reduce != "prod" and kind != "nan"):
            _, vjp = jax.vjp(function, jax.numpy.asarray(case.rows))
            expected_gradient = np.asarray(vjp(jax.numpy.asarray(case.gradient))[0])
    with np.errstate(invalid="ignore"):
        output, grad_input = ours(reduce, case)
    assert_agree(output, expected, reduce)
    if expected_gradient is not None:
        np.testing.assert_allclose(grad_input, expected_gradient, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("integer", [np.int32, np.int64])
@pytest.mark.parametrize("reduce", ["sum", "max", "min", "prod"])
def test_integers_agree(torch: Any, rng: np.random.Generator, reduce: str, integer: Any) -> None:
    """Numbers of the whole range: sums and products wrap around everywhere."""
    import jax
    import peers

    limits = np.iinfo(integer)
    case = case_of(rng, "random")
    rows = rng.integers(limits.min, limits.max, case.rows.shape, dtype=integer, endpoint=True)
    output = getattr(pybaracuda, f"segment_{reduce}")(rows, case.ids, case.count)
    with peers._jax_in_float64():
        expected = np.asarray(getattr(jax.ops, f"segment_{reduce}")(rows, case.ids, case.count))
    np.testing.assert_array_equal(output, expected)
    empty = {"sum": 0, "prod": 1, "max": limits.min, "min": limits.max}[reduce]
    target = torch.full((case.count, 3), empty, dtype=torch.from_numpy(rows).dtype)
    index = case.index(torch)
    theirs = target.scatter_reduce(0, index, torch.from_numpy(rows), TORCH_NAMES[reduce], include_self=False)
    np.testing.assert_array_equal(output, theirs.numpy())


@pytest.mark.parametrize("kind", ["random", "ties", "infinite", "nan"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_selections_agree_in_every_dtype(
    torch: Any, dtype: Any, rng: np.random.Generator, kind: str, reduce: str
) -> None:
    import jax

    case = case_of(rng, kind)
    rows = case.rows.astype(dtype)
    output = getattr(pybaracuda, f"segment_{reduce}")(rows, case.ids, case.count).astype(np.float64)
    if np.dtype(dtype) != np.float64:  # that is tested above, where JAX is told to keep it
        expected = getattr(jax.ops, f"segment_{reduce}")(jax.numpy.asarray(rows), case.ids, case.count)
        np.testing.assert_array_equal(output, np.asarray(expected).astype(np.float64))
    # Every number of a narrow type is one of float32: torch is asked there, where it knows them all.
    wide = torch.from_numpy(rows.astype(np.float64 if np.dtype(dtype) == np.float64 else np.float32))
    target = torch.full((case.count, 3), IDENTITY[reduce], dtype=wide.dtype)
    theirs = target.scatter_reduce(0, case.index(torch), wide, TORCH_NAMES[reduce], include_self=False)
    np.testing.assert_array_equal(output, theirs.numpy().astype(np.float64))


@pytest.mark.parametrize("reduce", ["logsumexp", "softmax"])
def test_torch_exponentials_agree(torch: Any, rng: np.random.Generator, reduce: str) -> None:
    rows, ids, count, gradient = case_of(rng, "random")
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


def test_what_is_no_row_is_no_tie() -> None:
    """PyTorch 2.13 counts what stood in the target as a tie, though it was told to leave it out (recorded)."""
    rows, ids = np.full((2, 1), -INF), np.zeros(2, np.int64)
    even = pybaracuda.segment_max_backward(np.full((1, 1), 3.0), rows, ids, ties="even")
    assert even.ravel().tolist() == [1.5, 1.5]


def test_the_first_nan_takes_the_gradient() -> None:
    rows, ids = np.array([[1.0], [NAN], [NAN], [2.0]]), np.zeros(4, np.int64)
    gradient = np.full((1, 1), 3.0)
    assert pybaracuda.segment_max_backward(gradient, rows, ids).ravel().tolist() == [0, 3, 0, 0]
    assert pybaracuda.segment_max_backward(gradient, rows, ids, ties="even").ravel().tolist() == [0, 1.5, 1.5, 0]


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


def test_prod_gradient_does_not_read_the_output(rng: np.random.Generator) -> None:
    rows, ids = rng.uniform(0.5, 1.5, (30, 2)), rng.integers(0, 4, 30)
    gradient = rng.standard_normal((4, 2))
    expected = pybaracuda.segment_prod_backward(gradient, rows, pybaracuda.segment_prod(rows, ids, 4), ids)
    given = pybaracuda.segment_prod_backward(gradient, rows, np.full((4, 2), NAN), ids)
    np.testing.assert_array_equal(given, expected)


def test_largest_values_that_are_infinite_share_one(torch: Any) -> None:
    rows = np.array([[INF], [1.0], [INF]])
    assert torch.softmax(torch.from_numpy(rows), 0).isnan().all()
    parts = pybaracuda.segment_softmax(rows, np.zeros(3, np.int64), 1)
    assert parts.ravel().tolist() == [0.5, 0, 0.5]


def test_ids_outside_are_dropped(torch: Any) -> None:
    rows, ids = np.ones((3, 1)), np.array([0, 2, -1])
    for one in (2, -1):
        index = torch.tensor([[one]])
        with pytest.raises((RuntimeError, IndexError)):
            torch.zeros(2, 1).scatter_reduce(0, index, torch.ones(1, 1), "amax")
    assert pybaracuda.segment_max(rows, ids, 2).ravel().tolist() == [1, -INF]
    assert pybaracuda.segment_max_backward(np.ones((2, 1)), rows, ids).ravel().tolist() == [1, 0, 0]


def test_offsets_outside_are_clamped() -> None:
    rows, offsets = np.arange(1.0, 6).reshape(5, 1), np.array([-7, 2, 3, 99])
    assert pybaracuda.segment_csr(rows, offsets, "sum").ravel().tolist() == [3, 3, 9]
    # Rows before the first offset and behind the last belong to no segment.
    inner = np.array([1, 2, 4])
    assert pybaracuda.segment_csr(rows, inner, "sum").ravel().tolist() == [2, 7]
    gradient = pybaracuda.segment_csr_backward(np.array([[1.0], [2.0]]), inner, "sum", num_rows=5)
    assert gradient.ravel().tolist() == [0, 1, 2, 2, 0]


def test_descending_ids_that_were_called_sorted_drop_every_row() -> None:
    rows = np.ones((3, 1), np.float32)
    output = pybaracuda.segment_sum(rows, np.array([1, 0, 1], np.int32), 2, indices_are_sorted=True)
    assert not output.any()
    assert not pybaracuda.segment_csr(rows, np.array([2, 0, 3]), "sum").any()
