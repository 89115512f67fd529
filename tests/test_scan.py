# SPDX-License-Identifier: Apache-2.0
"""Scans along an axis: exact on small integers, within the definition's bound, and PyTorch's results beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lattice import integers, normal
from place import Place, available
from tolerance import assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.definitions import scan as oracle
from verify.dtypes import DTYPES, Array

SCANS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
INDEXED = ("cummax", "cummin")
DTYPE = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
# One past and one before what is scanned at a time: four elements, 32, a block of 128, a tile of 8192, two of them.
LENGTHS = (1, 4, 5, 31, 33, 127, 128, 129, 513, 8191, 8192, 8193, 16385)


def run(place: Place, name: str, *arrays: Array, dim: int = 1, reverse: bool = False) -> tuple[Array, ...]:
    outputs: list[tuple[tuple[int, ...], Any]] = [(arrays[0].shape, arrays[0].dtype)]
    if name in INDEXED:
        outputs.append((arrays[0].shape, np.int64))
    found = place.run(getattr(pybaracuda, name), *arrays, outputs=outputs, dim=dim, reverse=reverse)
    return tuple(found)


def factors(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Numbers near 1, whose products stay in range."""
    return (1 + rng.uniform(-1, 1, shape) / 64).astype(dtype)


def defined(name: str, arrays: tuple[Array, ...], reverse: bool, places: Array | None = None) -> Any:
    if name in INDEXED:
        return oracle.cummax(arrays[0], reverse, name == "cummin")
    if name in ("cumprod_backward", "logcumsumexp_backward"):
        return getattr(oracle, name)(*arrays, reverse, places)
    return getattr(oracle, name)(*arrays, reverse)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("inner", [1, 3, 33])
def test_sums_of_small_integers_are_exact(place: Place, inner: int, reverse: bool, rng: np.random.Generator) -> None:
    x = integers(rng, (2, 8195 if inner < 33 else 300, inner), np.float32)
    assert_exact(run(place, "cumsum", x, reverse=reverse)[0], oracle.cumsum(x, reverse))


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_the_sum_the_other_way_is_the_adjoint(place: Place, reverse: bool, rng: np.random.Generator) -> None:
    x, g = (integers(rng, (3, 700, 2), np.float64) for _ in range(2))
    forward, backward = run(place, "cumsum", x, reverse=reverse)[0], run(place, "cumsum", g, reverse=not reverse)[0]
    assert (forward * g).sum() == (x * backward).sum()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SCANS)
def test_lengths_around_every_threshold(place: Place, name: str, length: int, rng: np.random.Generator) -> None:
    for shape in ((2, length, 1), (1, length, 2)):
        x = factors(rng, shape, np.float32) if name == "cumprod" else normal(rng, shape, np.float32)
        reverse = bool(rng.integers(2))
        found = run(place, name, x, reverse=reverse)
        expected = defined(name, (x,), reverse)
        if name in INDEXED:
            for one, other in zip(found, expected, strict=True):
                assert_same_bits(one, other)
        else:
            assert_within(found[0], expected)


@DTYPE
@pytest.mark.parametrize("name", SCANS)
def test_random_data_of_every_dtype(place: Place, name: str, dtype: Any, rng: np.random.Generator) -> None:
    for shape in ((3, 700, 1), (2, 140, 70), (50, 9, 1), (7, 1, 5)):
        x = (factors if name == "cumprod" else normal)(rng, shape, dtype)
        reverse = bool(rng.integers(2))
        found, expected = run(place, name, x, reverse=reverse), defined(name, (x,), reverse)
        if name in INDEXED:
            for one, other in zip(found, expected, strict=True):
                assert_same_bits(one, other)
        else:
            assert_within(found[0], expected)


@DTYPE
@pytest.mark.parametrize("name", ["cumprod_backward", "logcumsumexp_backward"])
def test_gradients_of_every_dtype(place: Place, name: str, dtype: Any, rng: np.random.Generator) -> None:
    for shape in ((2, 600, 1), (1, 140, 40), (1, 8200, 1)):
        x = (factors if name == "cumprod_backward" else normal)(rng, shape, dtype)
        reverse = bool(rng.integers(2))
        y = run(place, name.removesuffix("_backward"), x, reverse=reverse)[0]
        arrays = (normal(rng, shape, dtype), x, y)
        places = np.unique(rng.integers(0, shape[1], 60))
        found = run(place, name, *arrays, reverse=reverse)[0][:, places]
        assert_within(np.ascontiguousarray(found), defined(name, arrays, reverse, places))


@DTYPE
@pytest.mark.parametrize("name", INDEXED)
def test_gradients_of_extremes(place: Place, name: str, dtype: Any, rng: np.random.Generator) -> None:
    for shape in ((2, 600, 1), (1, 140, 40), (1, 8200, 1)):
        x, g = np.round(normal(rng, shape, np.float64) * 2).astype(dtype), normal(rng, shape, dtype)
        reverse = bool(rng.integers(2))
        indices = run(place, name, x, reverse=reverse)[1]
        found = run(place, "cummaxmin_backward", g, indices, reverse=reverse)[0]
        assert_within(found, oracle.cummaxmin_backward(g, indices, reverse))
        # Every gradient goes to the element that its index names.
        total = np.zeros(shape)
        np.add.at(total, (np.arange(shape[0])[:, None, None], indices, np.arange(shape[2])), g.astype(np.float64))
        assert np.allclose(found.astype(np.float64), total, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_integers_wrap_around(place: Place, name: str, dtype: Any, rng: np.random.Generator) -> None:
    limits = np.iinfo(dtype)
    for shape in ((2, 8200, 1), (2, 150, 33)):
        x = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        for reverse in (False, True):
            define = getattr(oracle, f"{name}_of_integers")
            assert_same_bits(run(place, name, x, reverse=reverse)[0], define(x, reverse))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("name", INDEXED)
def test_extremes_of_integers(place: Place, name: str, dtype: Any, rng: np.random.Generator) -> None:
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, (3, 300, 2), dtype=dtype, endpoint=True)
    for found, expected in zip(run(place, name, x), defined(name, (x,), False), strict=True):
        assert_same_bits(found, expected)


def test_sums_of_what_is_not_negative_never_descend(place: Place, rng: np.random.Generator) -> None:
    for shape in ((1, 40_000, 1), (1, 9000, 3)):
        x = (rng.random(shape) ** 20).astype(np.float32)
        for reverse in (False, True):
            sums = run(place, "cumsum", x, reverse=reverse)[0]
            steps = np.diff(sums[:, ::-1] if reverse else sums, axis=1)
            assert (steps >= 0).all()


def test_a_row_has_its_bits_wherever_it_stands(place: Place, rng: np.random.Generator) -> None:
    row = normal(rng, (1, 8500, 1), np.float32)
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        alone = run(place, name, row)[0]
        assert_same_bits(run(place, name, np.ascontiguousarray(np.repeat(row, 3, 0)))[0][1:2], alone)
        columns = np.ascontiguousarray(np.repeat(row, 5, 2))
        assert_same_bits(np.ascontiguousarray(run(place, name, columns)[0][:, :, 3:4]), alone)
        backwards = np.ascontiguousarray(row[:, ::-1])
        assert_same_bits(np.ascontiguousarray(run(place, name, backwards, reverse=True)[0][:, ::-1]), alone)


@pytest.mark.parametrize("zeros", [(), (0,), (5,), (5, 9), (0, 130, 131)])
def test_products_gradient_with_zeros(place: Place, zeros: tuple[int, ...], rng: np.random.Generator) -> None:
    x = factors(rng, (2, 300, 1), np.float64)
    x[0, list(zeros)] = 0
    g = normal(rng, x.shape, np.float64)
    y = run(place, "cumprod", x)[0]
    found = run(place, "cumprod_backward", g, x, y)[0]
    assert_within(found, oracle.cumprod_backward(g, x, y))
    if available("torch"):
        import torch

        leaf = torch.from_numpy(x).requires_grad_()
        (wanted,) = torch.autograd.grad(torch.cumprod(leaf, 1), leaf, torch.from_numpy(g))
        assert np.allclose(found, wanted.numpy(), rtol=1e-11, atol=1e-11)


def test_infinities_and_nans(place: Place) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([-inf, -inf, 1.0, -inf, 2.0, inf, 0.0, nan, 1.0], np.float32).reshape(1, -1, 1)
    first = np.log1p(np.exp(np.float64(-1))) + 2
    wanted = np.array([-inf, -inf, 1, 1, first, inf, inf, nan, nan])
    assert np.allclose(run(place, "logcumsumexp", x)[0].ravel(), wanted, equal_nan=True)
    assert run(place, "cummax", x)[1].ravel().tolist() == [0, 1, 2, 2, 4, 5, 5, 7, 7]
    assert run(place, "cummin", x)[1].ravel().tolist() == [0, 1, 1, 3, 3, 3, 3, 7, 7]
    sums = run(place, "cumsum", x)[0].ravel()
    assert np.array_equal(sums, [-inf, -inf, -inf, -inf, -inf, nan, nan, nan, nan], equal_nan=True)
    masked = np.array([-inf, 0.0, -inf, 1.0]).reshape(1, -1, 1)
    y = run(place, "logcumsumexp", masked)[0]
    gradient = run(place, "logcumsumexp_backward", np.ones_like(masked), masked, y)[0].ravel()
    share = 1 / (1 + np.e)
    assert np.allclose(gradient, [0, 1 + 1 + share, 0, 1 - share])


def test_logarithms_are_exact_where_one_term_counts(place: Place) -> None:
    x = np.array([0.1, 200.3, -500.0, 200.2999, 1e30, -1e30], np.float32).reshape(1, -1, 1)
    found = run(place, "logcumsumexp", x)[0].ravel()
    assert found[0] == x[0, 0, 0]
    assert found[4] == found[5] == np.float32(1e30)
    assert found[1] == found[2] == np.float32(200.3)


def test_zeros_have_a_positive_sign(place: Place) -> None:
    x = np.full((1, 5, 1), -0.0, np.float32)
    assert not np.signbit(run(place, "cumsum", x)[0]).any()
    assert np.signbit(run(place, "cumprod", x)[0]).tolist() == [[[True], [False], [True], [False], [True]]]
    assert np.signbit(run(place, "cummax", x)[0]).all()


def test_any_indices_are_compared_alone(place: Place, rng: np.random.Generator) -> None:
    g = normal(rng, (2, 300, 3), np.float32)
    indices = rng.integers(-(2**62), 2**62, g.shape)
    assert not run(place, "cummaxmin_backward", g, indices)[0].any()
    indices = rng.integers(-3, 303, g.shape)
    assert_within(run(place, "cummaxmin_backward", g, indices)[0], oracle.cummaxmin_backward(g, indices))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_every_axis(place: Place, dim: int, rng: np.random.Generator) -> None:
    x = normal(rng, (5, 6, 7), np.float64)
    found = run(place, "cumsum", x, dim=dim)[0]
    assert np.allclose(found, np.cumsum(x, dim), rtol=1e-12, atol=1e-12)
    strided = x.transpose(2, 0, 1)
    assert np.allclose(run(place, "cumsum", strided, dim=dim)[0], np.cumsum(strided, dim), rtol=1e-12, atol=1e-12)


def test_a_single_number_is_a_row(place: Place) -> None:
    assert run(place, "cumsum", np.array(3.0), dim=0)[0] == 3.0
    values, indices = run(place, "cummax", np.array(3.0), dim=-1)
    assert (values, indices) == (3.0, 0)


def test_output_may_be_the_input(rng: np.random.Generator) -> None:
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        for shape in ((2, 8300), (3, 40, 5)):
            x = factors(rng, shape, np.float32)
            wanted = getattr(pybaracuda, name)(x, 1)
            assert getattr(pybaracuda, name)(x, 1, out=x) is x
            assert_same_bits(x, wanted)


@pytest.mark.skipif(not available("torch"), reason="no torch")
@pytest.mark.parametrize("name", SCANS)
def test_pytorch_answers_the_same(name: str, rng: np.random.Generator) -> None:
    import torch

    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])
    for shape, dim in (((4, 50), 1), ((3, 9, 5), 1), ((9000,), 0)):
        x = factors(rng, shape, np.float64) if name == "cumprod" else np.round(normal(rng, shape, np.float64) * 4) / 4
        if name in INDEXED:
            x.flat[rng.integers(0, x.size, 20)] = rng.choice(special, 20)
        found, wanted = getattr(pybaracuda, name)(x, dim), getattr(torch, name)(torch.from_numpy(x), dim)
        if name in INDEXED:
            assert np.array_equal(found[0], wanted[0].numpy(), equal_nan=True)
            assert np.array_equal(found[1], wanted[1].numpy())
        else:
            assert np.allclose(found, wanted.numpy(), rtol=1e-11, atol=1e-11)
