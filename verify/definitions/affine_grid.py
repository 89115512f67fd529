# SPDX-License-Identifier: Apache-2.0
"""affine_grid in 2D and its gradient, written as one product per output coordinate.

Source: torch.nn.functional.affine_grid; the base coordinate is formed in closed form here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.bounds import Roundings, Sum, additions
from verify.dtypes import Array, in_float64

# affine_grid: two fused multiply-adds, or two products and two sums: the three terms pay for all but one.
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


def affine_grid_2d(
    theta: Any,
    size: tuple[int, int, int, int],
    align_corners: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """[N, H, W, 2] of (x, y) from theta [N, 2, 3] and size (N, C, H, W)."""
    matrices = in_float64(theta)
    n, _, h, w = size
    x = np.broadcast_to(base_coordinates(w, align_corners, coordinate_dtype)[None, :], (h, w))
    y = np.broadcast_to(base_coordinates(h, align_corners, coordinate_dtype)[:, None], (h, w))
    value, magnitude = np.zeros((n, h, w, 2)), np.zeros((n, h, w, 2))
    with np.errstate(all="ignore"):
        for image in range(n):
            for row in range(2):
                t0, t1, t2 = matrices[image, row]
                # From t2 on, so that the sign of a zero sum is that of the fused form.
                value[image, ..., row] = (t2 + t0 * x) + t1 * y
                magnitude[image, ..., row] = abs(t2) + abs(t0 * x) + abs(t1 * y)
    return Sum.of((value, magnitude, np.full((n, h, w, 2), 3)), AFFINE_GRID)


def affine_grid_2d_backward(
    grad_grid: Any,
    size: tuple[int, int, int, int],
    align_corners: bool = False,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient [N, 2, 3] with respect to theta."""
    gradient = in_float64(grad_grid)
    n, _, h, w = size
    x = base_coordinates(w, align_corners, coordinate_dtype)
    y = base_coordinates(h, align_corners, coordinate_dtype)
    factors = (np.tile(x, h), np.repeat(y, w), np.ones(h * w))
    value, magnitude = np.zeros((n, 2, 3)), np.zeros((n, 2, 3))
    with np.errstate(all="ignore"):
        for image in range(n):
            for row in range(2):
                per_pixel = gradient[image, ..., row].ravel()
                for column, factor in enumerate(factors):
                    value[image, row, column] = np.sum(per_pixel * factor)
                    magnitude[image, row, column] = np.sum(np.abs(per_pixel * factor))
    terms = np.full((n, 2, 3), h * w)
    # Beside the additions, the product.
    return Sum(value, magnitude, terms, additions(terms) + 1, own=terms + 1)
