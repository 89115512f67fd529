# SPDX-License-Identifier: Apache-2.0
"""Order statistics along an axis: their definitions to the bit on every path, and PyTorch's values beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from large_problems import PIECE, Batch, Calls, Operand, few_and_large, pieces, repeated, whole
from lattice import integers, normal
from place import Place, available
from tolerance import assert_same_bits

import pybaracuda
from verify.definitions import order as oracle
from verify.dtypes import DTYPES, Array

NAMES = ("kthvalue", "median", "nanmedian", "mode")
NAME = pytest.mark.parametrize("name", NAMES)
DTYPE = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
# One before and one past what lanes, a warp, a block and its shared memory hold, and what a part of a long row has.
LENGTHS = (1, 2, 3, 31, 32, 33, 255, 257, 511, 513, 2047, 2049, 8191, 8193, 12287, 12289, 32769)


def run(place: Place, name: str, x: Array, k: int = 1, dim: int = 1, keepdim: bool = False) -> list[Array]:
    shape = list(x.shape)
    if keepdim and shape:
        shape[dim] = 1
    elif shape:
        del shape[dim]
    options: dict[str, Any] = {"dim": dim, "keepdim": keepdim}
    if name == "kthvalue":
        options["k"] = k
    outputs: list[Any] = [(tuple(shape), x.dtype), (tuple(shape), np.int64)]
    return list(place.run(getattr(pybaracuda, name), x, outputs=outputs, **options))


def defined(name: str, x: Array, k: int) -> tuple[Array, Array]:
    found: tuple[Array, Array] = getattr(oracle, name)(x, *((k,) if name == "kthvalue" else ()))
    return found


def hold(place: Place, name: str, x: Array, k: int) -> None:
    for found, expected in zip(run(place, name, x, k), defined(name, x, k), strict=True):
        assert_same_bits(found, expected)


def with_specials(rng: np.random.Generator, x: Array) -> Array:
    """NaNs, infinities and zeros of both signs in one place of eight."""
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]).astype(x.dtype)
    at = rng.integers(0, x.size, max(x.size // 8, 1))
    x.reshape(-1)[at] = rng.choice(special, at.size)
    return x


@NAME
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_around_every_threshold(place: Place, name: str, length: int, rng: np.random.Generator) -> None:
    for shape in ((2, length, 1), (1, length, 3)):
        hold(place, name, normal(rng, shape, np.float32), int(rng.integers(1, length + 1)))
        hold(place, name, integers(rng, shape, np.float64), int(rng.integers(1, length + 1)))


@NAME
@DTYPE
def test_random_data_of_every_dtype(place: Place, name: str, dtype: Any, rng: np.random.Generator) -> None:
    for shape in ((3, 700, 1), (2, 140, 70), (50, 9, 1), (7, 1, 5), (1, 20_000, 1)):
        hold(place, name, normal(rng, shape, dtype), int(rng.integers(1, shape[1] + 1)))
        hold(place, name, with_specials(rng, normal(rng, shape, dtype)), int(rng.integers(1, shape[1] + 1)))
        few = np.round(normal(rng, shape, np.float64) * 2).astype(dtype)
        hold(place, name, with_specials(rng, few), int(rng.integers(1, shape[1] + 1)))


@NAME
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8, np.uint8])
def test_integers(place: Place, name: str, dtype: Any, rng: np.random.Generator) -> None:
    limits = np.iinfo(dtype)
    for shape in ((3, 700, 1), (40, 5, 3), (1, 40_000, 1)):
        x = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        x.reshape(-1)[rng.integers(0, x.size, x.size // 8)] = limits.min
        hold(place, name, x, int(rng.integers(1, shape[1] + 1)))


@pytest.mark.parametrize("length", [7, 40, 20_000])
def test_every_rank(place: Place, length: int, rng: np.random.Generator) -> None:
    x = normal(rng, (1, length, 1), np.float32)
    ranks = np.unique(np.linspace(1, length, min(length, 20)).astype(np.int64))
    found = [float(run(place, "kthvalue", x, int(k))[0][0, 0]) for k in ranks]
    assert found == np.sort(x.ravel())[ranks - 1].tolist()


@NAME
@pytest.mark.parametrize("value", [0.0, -3.0, np.nan])
@pytest.mark.parametrize("length", [5, 300, 20_000, 70_000])
def test_equal_elements_answer_the_first(place: Place, name: str, length: int, value: float) -> None:
    x = np.full((2, length, 1), value, np.float32)
    values, indices = run(place, name, x, length)
    assert not indices.any()
    assert np.array_equal(values, x[:, 0], equal_nan=True)


def test_infinities_and_nans(place: Place) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([2.0, nan, -inf, inf, 2.0, nan], np.float32).reshape(1, -1, 1)
    assert [int(run(place, "kthvalue", x, k)[1][0, 0]) for k in range(1, 7)] == [2, 0, 0, 3, 1, 1]
    assert int(run(place, "median", x)[1][0, 0]) == 1
    assert int(run(place, "nanmedian", x)[1][0, 0]) == 0
    assert int(run(place, "mode", x)[1][0, 0]) == 0
    # A NaN is equal to nothing, so that it is no more frequent than any number.
    assert int(run(place, "mode", np.array([nan, nan, 5.0, 4.0]).reshape(1, -1, 1))[1][0, 0]) == 3


def test_zeros_of_both_signs_are_equal(place: Place) -> None:
    for length in (6, 300, 20_000):
        x = np.full((1, length, 1), 7.0, np.float32)
        x[0, :3, 0] = -0.0, 0.0, -0.0
        values, indices = run(place, "kthvalue", x, 3)
        assert (values[0, 0], indices[0, 0], np.signbit(values[0, 0])) == (0, 0, True)
    assert np.signbit(run(place, "mode", np.array([1.0, -0.0, 2.0, 0.0]).reshape(1, -1, 1))[0])


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_every_axis(place: Place, keepdim: bool, dim: int, rng: np.random.Generator) -> None:
    x = normal(rng, (5, 6, 7), np.float64)
    length = x.shape[dim]
    found = run(place, "kthvalue", x, 2, dim, keepdim)[0]
    assert np.array_equal(found, np.sort(x, dim).take([1] if keepdim else 1, dim))
    strided = x.transpose(2, 0, 1)
    middle = np.sort(strided, dim).take((strided.shape[dim] - 1) // 2, dim)
    assert np.array_equal(run(place, "median", strided, 1, dim)[0], middle)
    assert length == found.size or found.ndim == 2 + keepdim


def test_a_single_number_is_a_row(place: Place) -> None:
    for name in NAMES:
        values, indices = run(place, name, np.array(3.0), 1, 0)
        assert (values, indices) == (3.0, 0)


@DTYPE
def test_gradients_go_to_their_elements(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    for shape in ((3, 700, 1), (2, 5, 33), (4, 1, 3)):
        g = with_specials(rng, normal(rng, (shape[0], shape[2]), dtype))
        indices = rng.integers(-2, shape[1] + 2, g.shape)
        (found,) = place.run(
            pybaracuda.value_selecting_reduction_backward, g, indices, outputs=[(shape, g.dtype)], input_shape=shape,
            dim=1,
        )  # fmt: skip
        assert_same_bits(found, oracle.value_selecting_reduction_backward(g, indices, shape[1]))


def test_the_gradient_is_the_adjoint(place: Place, rng: np.random.Generator) -> None:
    x, g = integers(rng, (3, 40, 2), np.float64), integers(rng, (3, 2), np.float64)
    values, indices = run(place, "median", x)
    (slopes,) = place.run(
        pybaracuda.value_selecting_reduction_backward, g, indices, outputs=[(x.shape, g.dtype)], input_shape=x.shape,
        dim=1,
    )  # fmt: skip
    assert (values * g).sum() == (x * slopes).sum()


@few_and_large
def test_rows_of_more_than_2_31_elements(is_large: bool, place: Place) -> None:
    length = pieces(is_large) * PIECE
    x = repeated(place, np.full((1, PIECE, 1), 7, np.uint8), pieces(is_large), 1)
    x[0, -3:-1, 0] = 3
    x[0, -1, 0] = 9
    # The first of equal elements answers; the last rank is a number past 2^31 too.
    cases: list[tuple[str, tuple[int, ...], list[int]]] = [
        ("kthvalue", (1,), [3, length - 3]),
        ("kthvalue", (3,), [7, 0]),
        ("kthvalue", (length - 1,), [7, 0]),
        ("kthvalue", (length,), [9, length - 1]),
        ("median", (), [7, 0]),
    ]
    for name, k, wanted in cases:
        out = tuple(place.poisoned((1, 1), dtype, 0xFF) for dtype in (np.uint8, np.int64))
        getattr(pybaracuda, name)(x, *k, dim=1, out=out)
        assert [int(place.numpy(each)[0, 0]) for each in out] == wanted


@NAME
@few_and_large
def test_more_than_2_31_elements_in_rows(is_large: bool, place: Place, name: str, rng: np.random.Generator) -> None:
    def answered(calls: Calls, rows: Any) -> None:
        calls(getattr(pybaracuda, name), rows, *((20,) if name == "kthvalue" else ()), dim=1)

    batch = Batch([Operand((40, 1), whole(0, 9, np.uint8))], 40, answered)
    batch.check(place, batch.repeats if is_large else 3, rng)


@pytest.mark.skipif(not available("torch"), reason="no torch")
@NAME
def test_pytorch_has_the_same_values(name: str, rng: np.random.Generator) -> None:
    import torch

    for shape, dim in (((4, 50), 1), ((3, 9, 5), 1), ((9000,), 0), ((2, 70), -1)):
        x = with_specials(rng, np.round(normal(rng, shape, np.float64) * 4) / 4)
        if name == "mode":
            # Of NaNs PyTorch's own results differ by dtype.
            x = np.nan_to_num(x)
        k = int(rng.integers(1, shape[dim] + 1))
        given = (k,) if name == "kthvalue" else ()
        values, indices = getattr(pybaracuda, name)(x, *given, dim=dim)
        wanted = getattr(torch, name)(torch.from_numpy(x), *given, dim=dim)
        assert np.array_equal(values, wanted[0].numpy(), equal_nan=True)
        picked = np.take_along_axis(x, np.expand_dims(indices, dim), dim).squeeze(dim)
        assert np.array_equal(picked, values, equal_nan=True)
        assert (indices <= wanted[1].numpy()).all()
