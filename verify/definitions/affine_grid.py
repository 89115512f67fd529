# SPDX-License-Identifier: Apache-2.0
"""affine_grid in two and three dimensions and its gradient, written as one product per output coordinate.

Source: torch.nn.functional.affine_grid; the base coordinate is formed in closed form here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.bounds import Roundings, Sum, additions
from verify.dtypes import Array, in_float64

# affine_grid: a fused multiply-add an axis, or a product and a sum each: the terms, one more, pay for all but one.
AFFINE_GRID = Roundings(1, 1)


def base_coordinates(extent: int, align_corners: bool, coordinate_dtype: Any) -> Array:
    """Normalised pixel centres (or, with align_corners, corners) in float64, computed in coordinate_dtype."""
    compute = np.dtype(coordinate_dtype).type
    index = np.arange(extent)
    if not align_corners:
        base = (2 * index + 1).astype(compute) / compute(extent) - compute(1)
    elif extent == 1:
        base = np.zeros(1, compute)
    else:
        base = (2 * index).astype(compute) / compute(extent - 1) - compute(1)
    return np.asarray(base, np.float64)


def _grids(size: tuple[int, ...], align_corners: bool, coordinate_dtype: Any) -> list[Array]:
    """The base coordinates x, y, ... of every sample, each of the grid's extents."""
    extents = size[2:]
    return [
        np.broadcast_to(
            base_coordinates(extents[axis], align_corners, coordinate_dtype).reshape(
                [-1 if other == axis else 1 for other in range(len(extents))]
            ),
            extents,
        )
        for axis in reversed(range(len(extents)))
    ]


def affine_grid(
    theta: Any, size: tuple[int, ...], align_corners: bool = False, coordinate_dtype: Any = np.float64
) -> Sum:
    """[N, H, W, 2] of (x, y) from theta [N, 2, 3] and size (N, C, H, W); of volumes one axis more."""
    matrices = in_float64(theta)
    n, _, *extents = size
    axes = len(extents)
    shape = (n, *extents, axes)
    grids = _grids(size, align_corners, coordinate_dtype)
    value, magnitude = np.zeros(shape), np.zeros(shape)
    with np.errstate(all="ignore"):
        for image in range(n):
            for row in range(axes):
                *factors, shift = matrices[image, row]
                # From the shift on, so that the sign of a zero sum is that of the fused form.
                total, size_of_terms = np.full(extents, shift), np.full(extents, abs(shift))
                for factor, base in zip(factors, grids, strict=True):
                    total = total + factor * base
                    size_of_terms = size_of_terms + abs(factor * base)
                value[image, ..., row], magnitude[image, ..., row] = total, size_of_terms
    return Sum.of((value, magnitude, np.full(shape, axes + 1)), AFFINE_GRID)


def affine_grid_backward(
    grad_grid: Any, size: tuple[int, ...], align_corners: bool = False, coordinate_dtype: Any = np.float64
) -> Sum:
    """The gradient [N, 2, 3] with respect to theta; of volumes [N, 3, 4]."""
    gradient = in_float64(grad_grid)
    n, _, *extents = size
    axes, samples = len(extents), int(np.prod(extents))
    shape = (n, axes, axes + 1)
    factors = [*(base.ravel() for base in _grids(size, align_corners, coordinate_dtype)), np.ones(samples)]
    value, magnitude = np.zeros(shape), np.zeros(shape)
    with np.errstate(all="ignore"):
        for image in range(n):
            for row in range(axes):
                per_sample = gradient[image, ..., row].ravel()
                for column, factor in enumerate(factors):
                    value[image, row, column] = np.sum(per_sample * factor)
                    magnitude[image, row, column] = np.sum(np.abs(per_sample * factor))
    terms = np.full(shape, samples)
    # Beside the additions, the product.
    return Sum(value, magnitude, terms, additions(terms) + 1, own=terms + 1)
