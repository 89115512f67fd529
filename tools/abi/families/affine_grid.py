# SPDX-License-Identifier: Apache-2.0
"""affine_grid_2d and its gradient, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, Operator, Tensor, Variant, extent

_COORDINATES = (Variant("f32", {"C": "f32"}), Variant("f64", {"C": "f64"}))
_THETA = ("n", "2", "3")

ORDER = 30
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="affine_grid_2d",
        family="affine_grid",
        summary="Sampling positions of an affine map: grid[n, i, j] = theta[n] (x_j, y_i, 1), x_j = (2 j + 1) / w - 1.",
        parameters=(
            extent("n", "maps in the batch"),
            extent("output_h", "grid height in samples"),
            extent("output_w", "grid width in samples"),
            Tensor("theta", "input", "C", _THETA, "affine maps, rows (x, y), columns (x, y, 1)"),
            Tensor("grid", "output", "C", ("n", "output_h", "output_w", "2"), "positions (x, y)"),
        ),
        variants=_COORDINATES,
        empty="An empty grid: success, nothing to write.",
        bad_data="theta is data: NaN and infinity pass through.",
        workspace="None.",
        determinism=BIT_STABLE + "fma(t1, y, fma(t0, x, t2)).",
        source="torch.nn.functional.affine_grid (2.11), align_corners false; its last bit may differ from ours.",
    ),
    Operator(
        name="affine_grid_2d_backward",
        family="affine_grid",
        summary="Gradient of affine_grid_2d with respect to theta: a sum over the grid's samples.",
        parameters=(
            extent("n", "maps in the batch"),
            extent("output_h", "grid height in samples"),
            extent("output_w", "grid width in samples"),
            Tensor("grad_grid", "input", "C", ("n", "output_h", "output_w", "2"), "gradient of the positions"),
            Tensor("grad_theta", "output", "C", _THETA, "every element is written"),
        ),
        variants=_COORDINATES,
        empty="No samples: grad_theta is all zeros. n = 0: success, nothing to write.",
        bad_data="grad_grid is data: NaN and infinity pass through.",
        workspace="Six partial sums, of the element type, for every 256 samples of an image or part of them.",
        determinism=BIT_STABLE + "Samples ascending in partial sums of 256 terms, partial sums ascending.",
        source="torch.nn.functional.affine_grid (2.11), align_corners false.",
    ),
)
