# SPDX-License-Identifier: Apache-2.0
"""affine_grid and affine_grid_backward against the float64 oracle; frameworks are compared in test_peers.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import integers, lattice_theta, normal
from place import Place
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import Sum
from verify.definitions import affine_grid as oracle
from verify.dtypes import DTYPES, Array, coordinate_dtype, rounded

Size = tuple[int, int, int, int]


def forward(place: Place, theta: Any, size: Size, dtype: Any) -> Array:
    n, _, h, w = size
    return place.run(pybaracuda.affine_grid, theta, size, outputs=[((n, h, w, 2), dtype)])[0]


def backward(place: Place, grad_grid: Any, size: Size, dtype: Any) -> Array:
    return place.run(pybaracuda.affine_grid_backward, grad_grid, size, outputs=[((size[0], 2, 3), dtype)])[0]


def oracle_forward(theta: Array, size: Size) -> Sum:
    return oracle.affine_grid_2d(theta, size, coordinate_dtype=coordinate_dtype(theta.dtype))


def oracle_backward(grad_grid: Array, size: Size) -> Sum:
    return oracle.affine_grid_2d_backward(grad_grid, size, coordinate_dtype=coordinate_dtype(grad_grid.dtype))


def check_close(place: Place, theta: Array, grad_grid: Array, size: Size) -> tuple[Array, Array]:
    """Both results lie within the derived bound; answers the library's."""
    grid, grad_theta = forward(place, theta, size, theta.dtype), backward(place, grad_grid, size, grad_grid.dtype)
    assert_within(grid, oracle_forward(theta, size))
    assert_within(grad_theta, oracle_backward(grad_grid, size))
    return grid, grad_theta


LATTICE_SIZES = pytest.mark.parametrize("size", [(2, 3, 4, 8), (1, 1, 1, 1), (3, 1, 16, 2), (1, 1, 32, 32)])


@LATTICE_SIZES
def test_lattice_is_exact(place: Place, dtype: Any, rng: np.random.Generator, size: Size) -> None:
    n, _, h, w = size
    theta = lattice_theta(rng, n, dtype)
    assert_exact(forward(place, theta, size, dtype), oracle_forward(theta, size))
    grad_grid = integers(rng, (n, h, w, 2), dtype)
    assert_exact(backward(place, grad_grid, size, dtype), oracle_backward(grad_grid, size))


@LATTICE_SIZES
def test_adjoint_identity_is_exact_on_the_lattice(
    place: Place, wide_dtype: Any, rng: np.random.Generator, size: Size
) -> None:
    n, _, h, w = size
    theta, grad_grid = lattice_theta(rng, n, wide_dtype), integers(rng, (n, h, w, 2), wide_dtype)
    grid = forward(place, theta, size, wide_dtype).astype(np.float64)
    grad_theta = backward(place, grad_grid, size, wide_dtype).astype(np.float64)
    assert np.sum(grid * grad_grid) == np.sum(theta * grad_theta)


@pytest.mark.parametrize("size", [(2, 3, 5, 7), (1, 1, 1, 9), (3, 2, 9, 1), (2, 1, 3, 127)])
def test_random_theta_is_within_the_bound(place: Place, dtype: Any, rng: np.random.Generator, size: Size) -> None:
    n, _, h, w = size
    check_close(place, normal(rng, (n, 2, 3), dtype), normal(rng, (n, h, w, 2), dtype), size)


@pytest.mark.parametrize(("h", "w"), [(15, 17), (16, 16), (1, 257), (23, 23), (40, 41)])
def test_long_sums(place: Place, dtype: Any, rng: np.random.Generator, h: int, w: int) -> None:
    # 255, 256, 257 and more pixels: the sum over the grid is cut every 256.
    size = (2, 1, h, w)
    check_close(place, normal(rng, (2, 2, 3), dtype), normal(rng, (2, h, w, 2), dtype), size)


@pytest.mark.parametrize("size", [(2, 3, 5, 7), (1, 1, 1, 1), (1, 1, 64, 3)])
def test_identity_theta_gives_pixel_centres(place: Place, wide_dtype: Any, size: Size) -> None:
    n, _, h, w = size
    theta = np.broadcast_to(np.array([[1.0, 0, 0], [0, 1, 0]]), (n, 2, 3)).astype(wide_dtype)
    grid = forward(place, theta, size, wide_dtype)
    for axis, extent in ((0, w), (1, h)):
        base = oracle.base_coordinates(extent, False, wide_dtype)
        expected = base[None, None, :] if axis == 0 else base[None, :, None]
        assert_same_bits(grid[..., axis], rounded(np.broadcast_to(expected, (n, h, w)), wide_dtype))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_nonfinite_theta_stays_in_its_coordinate(
    place: Place, dtype: Any, rng: np.random.Generator, bad: float
) -> None:
    size = (2, 1, 3, 3)
    theta, grad_grid = lattice_theta(rng, 2, dtype), integers(rng, (2, 3, 3, 2), dtype)
    with np.errstate(over="ignore"):
        theta[0, 1, 0] = bad
        grad_grid[1, 2, 0, 1] = bad
    grid, grad_theta = check_close(place, theta, grad_grid, size)
    assert np.isfinite(grid[1].astype(np.float64)).all()
    assert np.isfinite(grid[0, ..., 0].astype(np.float64)).all()
    assert np.isfinite(grad_theta[0].astype(np.float64)).all()
    assert np.isfinite(grad_theta[1, 0].astype(np.float64)).all()
    assert_canonical_nans(grid)
    assert_canonical_nans(grad_theta)


@pytest.mark.parametrize(
    "size",
    [(0, 3, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0), (2, 0, 4, 8), (0, 0, 0, 0)],
    ids=["no-images", "no-rows", "no-columns", "no-channels", "nothing"],
)
def test_empty_problems(place: Place, dtype: Any, size: Size) -> None:
    n, _, h, w = size
    theta, grad_grid = np.ones((n, 2, 3), dtype), np.ones((n, h, w, 2), dtype)
    assert_exact(forward(place, theta, size, dtype), oracle_forward(theta, size))
    # A sum over no pixels is 0, and it is written.
    assert_exact(backward(place, grad_grid, size, dtype), oracle_backward(grad_grid, size))


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    size = (2, 1, 5, 6)
    theta, grad_grid = normal(rng, (2, 2, 3), dtype), normal(rng, (2, 5, 6, 2), dtype)
    grid, grad_theta = forward(place, theta, size, dtype), backward(place, grad_grid, size, dtype)
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(forward(place, layout(theta), size, dtype), grid)
        assert_same_bits(backward(place, layout(grad_grid), size, dtype), grad_theta)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    n=st.integers(0, 3),
    h=st.integers(0, 20),
    w=st.integers(0, 20),
    magnitude=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_any_size(seed: int, name: str, n: int, h: int, w: int, magnitude: float) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    theta = (magnitude * rng.standard_normal((n, 2, 3))).astype(dtype)
    check_close(Place(), theta, normal(rng, (n, h, w, 2), dtype), (n, 1, h, w))


def test_large_batch(place: Place, wide_dtype: Any, rng: np.random.Generator) -> None:
    """More maps than a launch grid has in its second and third dimension: the bits of two smaller calls."""
    count, first = 65_537, 40_000
    theta, gradient = normal(rng, (count, 2, 3), wide_dtype), normal(rng, (count, 1, 3, 2), wide_dtype)
    grid, grad_theta = (
        forward(place, theta, (count, 1, 1, 3), wide_dtype),
        backward(place, gradient, (count, 1, 1, 3), wide_dtype),
    )
    for part in (slice(first), slice(first, count)):
        size = (len(theta[part]), 1, 1, 3)
        assert_same_bits(grid[part], forward(place, theta[part], size, wide_dtype))
        assert_same_bits(grad_theta[part], backward(place, gradient[part], size, wide_dtype))
