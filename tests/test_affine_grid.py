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

Size = tuple[int, ...]


def theta_shape(size: Size) -> tuple[int, int, int]:
    return size[0], len(size) - 2, len(size) - 1


def grid_shape(size: Size) -> tuple[int, ...]:
    return (size[0], *size[2:], len(size) - 2)


def forward(place: Place, theta: Any, size: Size, dtype: Any, align_corners: bool = False) -> Array:
    return place.run(pybaracuda.affine_grid, theta, size, align_corners, outputs=[(grid_shape(size), dtype)])[0]


def backward(place: Place, grad_grid: Any, size: Size, dtype: Any, align_corners: bool = False) -> Array:
    outputs = [(theta_shape(size), dtype)]
    return place.run(pybaracuda.affine_grid_backward, grad_grid, size, align_corners, outputs=outputs)[0]


def oracle_forward(theta: Array, size: Size, align_corners: bool = False) -> Sum:
    return oracle.affine_grid(theta, size, align_corners, coordinate_dtype(theta.dtype))


def oracle_backward(grad_grid: Array, size: Size, align_corners: bool = False) -> Sum:
    return oracle.affine_grid_backward(grad_grid, size, align_corners, coordinate_dtype(grad_grid.dtype))


def check_close(
    place: Place, theta: Array, grad_grid: Array, size: Size, align_corners: bool = False
) -> tuple[Array, Array]:
    """Both results lie within the derived bound; answers the library's."""
    grid = forward(place, theta, size, theta.dtype, align_corners)
    grad_theta = backward(place, grad_grid, size, grad_grid.dtype, align_corners)
    assert_within(grid, oracle_forward(theta, size, align_corners))
    assert_within(grad_theta, oracle_backward(grad_grid, size, align_corners))
    return grid, grad_theta


LATTICE_SIZES = pytest.mark.parametrize(
    "size", [(2, 3, 4, 8), (1, 1, 1, 1), (3, 1, 16, 2), (1, 1, 32, 32), (2, 1, 4, 2, 8), (1, 1, 1, 1, 1)]
)


@LATTICE_SIZES
def test_lattice_is_exact(place: Place, dtype: Any, rng: np.random.Generator, size: Size) -> None:
    theta = lattice_theta(rng, size[0], dtype, len(size) - 2)
    assert_exact(forward(place, theta, size, dtype), oracle_forward(theta, size))
    grad_grid = integers(rng, grid_shape(size), dtype)
    assert_exact(backward(place, grad_grid, size, dtype), oracle_backward(grad_grid, size))


@LATTICE_SIZES
def test_adjoint_identity_is_exact_on_the_lattice(
    place: Place, wide_dtype: Any, rng: np.random.Generator, size: Size
) -> None:
    theta = lattice_theta(rng, size[0], wide_dtype, len(size) - 2)
    grad_grid = integers(rng, grid_shape(size), wide_dtype)
    grid = forward(place, theta, size, wide_dtype).astype(np.float64)
    grad_theta = backward(place, grad_grid, size, wide_dtype).astype(np.float64)
    assert np.sum(grid * grad_grid) == np.sum(theta * grad_theta)


ALIGN = pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "centres"])


@ALIGN
@pytest.mark.parametrize(
    "size", [(2, 3, 5, 7), (1, 1, 1, 9), (3, 2, 9, 1), (2, 1, 3, 127), (2, 1, 3, 5, 7), (3, 2, 9, 1, 1)]
)
def test_random_theta_is_within_the_bound(
    place: Place, dtype: Any, rng: np.random.Generator, size: Size, align_corners: bool
) -> None:
    check_close(place, normal(rng, theta_shape(size), dtype), normal(rng, grid_shape(size), dtype), size, align_corners)


@ALIGN
@pytest.mark.parametrize(
    "extents", [(15, 17), (16, 16), (1, 257), (23, 23), (40, 41), (5, 3, 17), (4, 8, 8), (257, 1, 1), (9, 8, 11)]
)
def test_long_sums(
    place: Place, dtype: Any, rng: np.random.Generator, extents: tuple[int, ...], align_corners: bool
) -> None:
    # 255, 256, 257 and more samples: the sum over the grid is cut every 256.
    size = (2, 1, *extents)
    check_close(place, normal(rng, theta_shape(size), dtype), normal(rng, grid_shape(size), dtype), size, align_corners)


@pytest.mark.parametrize(
    "size", [(2, 3, 5, 9), (1, 1, 1, 1), (3, 1, 17, 2), (1, 1, 33, 1), (2, 1, 3, 5, 9), (1, 1, 1, 1, 5)]
)
def test_aligned_corners_are_exact_on_the_lattice(
    place: Place, wide_dtype: Any, rng: np.random.Generator, size: Size
) -> None:
    # One sample more than a power of two: the base coordinates are exact.
    axes, extents = len(size) - 2, size[2:]
    theta = lattice_theta(rng, size[0], wide_dtype, axes)
    grad_grid = integers(rng, grid_shape(size), wide_dtype)
    grid = forward(place, theta, size, wide_dtype, True)
    grad_theta = backward(place, grad_grid, size, wide_dtype, True)
    assert_exact(grid, oracle_forward(theta, size, True))
    assert_exact(grad_theta, oracle_backward(grad_grid, size, True))
    assert np.sum(grid.astype(np.float64) * grad_grid) == np.sum(theta * grad_theta.astype(np.float64))
    # The corner samples of the identity are the corners, a lone one the middle.
    identity = np.broadcast_to(np.eye(axes, axes + 1), theta_shape(size)).astype(wide_dtype)
    corners = forward(place, identity, size, wide_dtype, True)[0].reshape(-1, axes)
    assert corners[0].tolist() == [-1.0 if extent > 1 else 0.0 for extent in reversed(extents)]
    assert corners[-1].tolist() == [1.0 if extent > 1 else 0.0 for extent in reversed(extents)]


@pytest.mark.parametrize("size", [(2, 3, 5, 7), (1, 1, 1, 1), (1, 1, 64, 3), (2, 1, 3, 5, 7)])
def test_identity_theta_gives_pixel_centres(place: Place, wide_dtype: Any, size: Size) -> None:
    axes, extents = len(size) - 2, size[2:]
    theta = np.broadcast_to(np.eye(axes, axes + 1), theta_shape(size)).astype(wide_dtype)
    grid = forward(place, theta, size, wide_dtype)
    for axis, extent in enumerate(extents):
        base = oracle.base_coordinates(extent, False, wide_dtype).reshape([-1] + [1] * (axes - 1 - axis))
        # The last axis comes first in a position.
        expected = rounded(np.broadcast_to(base, (size[0], *extents)), wide_dtype)
        assert_same_bits(grid[..., axes - 1 - axis], expected)


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
    [(0, 3, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0), (2, 0, 4, 8), (0, 0, 0, 0), (2, 1, 0, 4, 5), (0, 1, 3, 4, 5)],
    ids=["no-images", "no-rows", "no-columns", "no-channels", "nothing", "no-planes", "no-volumes"],
)
def test_empty_problems(place: Place, dtype: Any, size: Size) -> None:
    theta, grad_grid = np.ones(theta_shape(size), dtype), np.ones(grid_shape(size), dtype)
    assert_exact(forward(place, theta, size, dtype), oracle_forward(theta, size))
    # A sum over no pixels is 0, and it is written.
    assert_exact(backward(place, grad_grid, size, dtype), oracle_backward(grad_grid, size))


@pytest.mark.parametrize("size", [(2, 1, 5, 6), (2, 1, 3, 5, 6)], ids=["images", "volumes"])
def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator, size: Size) -> None:
    theta, grad_grid = normal(rng, theta_shape(size), dtype), normal(rng, grid_shape(size), dtype)
    grid, grad_theta = forward(place, theta, size, dtype), backward(place, grad_grid, size, dtype)
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(forward(place, layout(theta), size, dtype), grid)
        assert_same_bits(backward(place, layout(grad_grid), size, dtype), grad_theta)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    n=st.integers(0, 3),
    extents=st.lists(st.integers(0, 20), min_size=2, max_size=3),
    magnitude=st.sampled_from([1e-3, 1.0, 1e3]),
    align_corners=st.booleans(),
)
def test_any_size(seed: int, name: str, n: int, extents: list[int], magnitude: float, align_corners: bool) -> None:
    rng, dtype, size = np.random.default_rng(seed), DTYPES[name], (n, 1, *extents)
    theta = (magnitude * rng.standard_normal(theta_shape(size))).astype(dtype)
    check_close(Place(), theta, normal(rng, grid_shape(size), dtype), size, align_corners)


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
