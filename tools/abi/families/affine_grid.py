# SPDX-License-Identifier: Apache-2.0
"""affine_grid_2d, affine_grid_2d_ex, affine_grid_3d and their gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, Operator, Options, Scalar, Tensor, Variant, extent

_COORDINATES = (Variant("f32", {"C": "f32"}), Variant("f64", {"C": "f64"}))
_THETA = ("n", "2", "3")
_SIZES = (
    extent("n", "maps in the batch"),
    extent("output_h", "grid height in samples"),
    extent("output_w", "grid width in samples"),
)
_FORWARD = (
    Tensor("theta", "input", "C", _THETA, "affine maps, rows (x, y), columns (x, y, 1)"),
    Tensor("grid", "output", "C", ("n", "output_h", "output_w", "2"), "positions (x, y)"),
)
_BACKWARD = (
    Tensor("grad_grid", "input", "C", ("n", "output_h", "output_w", "2"), "gradient of the positions"),
    Tensor("grad_theta", "output", "C", _THETA, "every element is written"),
)
_OPTIONS = Options(
    "options",
    "affine_grid_options",
    (
        Scalar(
            "align_corners",
            "i32",
            "0: x_j = (2 j + 1) / w - 1; 1: x_j = 2 j / (w - 1) - 1, and 0 where w is 1",
            low=0,
            high=1,
        ),
    ),
    "Whether -1 and 1 are the outermost samples' outer edges or centres.",
)
_THETA_3D = ("n", "3", "4")
_GRID_3D = ("n", "output_d", "output_h", "output_w", "3")
_SIZES_3D = (
    _SIZES[0],
    extent("output_d", "grid depth in samples"),
    *_SIZES[1:],
)
_PARTIALS = "Six partial sums, of the element type, for every 256 samples of an image or part of them."
_CHUNKS = "Samples ascending in partial sums of 256 terms, partial sums ascending."

ORDER = 30
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="affine_grid_2d",
        family="affine_grid",
        summary="Sampling positions of an affine map: grid[n, i, j] = theta[n] (x_j, y_i, 1), x_j = (2 j + 1) / w - 1.",
        parameters=(*_SIZES, *_FORWARD),
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
        parameters=(*_SIZES, *_BACKWARD),
        variants=_COORDINATES,
        empty="No samples: grad_theta is all zeros. n = 0: success, nothing to write.",
        bad_data="grad_grid is data: NaN and infinity pass through.",
        workspace=_PARTIALS,
        determinism=BIT_STABLE + _CHUNKS,
        source="torch.nn.functional.affine_grid (2.11), align_corners false.",
    ),
    Operator(
        name="affine_grid_2d_ex",
        family="affine_grid",
        summary="affine_grid_2d with either meaning of -1 and 1.",
        parameters=(*_SIZES, _OPTIONS, *_FORWARD),
        variants=_COORDINATES,
        empty="An empty grid: success, nothing to write.",
        bad_data="theta is data: NaN and infinity pass through.",
        workspace="None.",
        determinism=BIT_STABLE + "fma(t1, y, fma(t0, x, t2)).",
        source="torch.nn.functional.affine_grid (2.11); its last bit may differ from ours.",
    ),
    Operator(
        name="affine_grid_2d_ex_backward",
        family="affine_grid",
        summary="Gradient of affine_grid_2d_ex with respect to theta: a sum over the grid's samples.",
        parameters=(*_SIZES, _OPTIONS, *_BACKWARD),
        variants=_COORDINATES,
        empty="No samples: grad_theta is all zeros. n = 0: success, nothing to write.",
        bad_data="grad_grid is data: NaN and infinity pass through.",
        workspace=_PARTIALS,
        determinism=BIT_STABLE + _CHUNKS,
        source="torch.nn.functional.affine_grid (2.11).",
    ),
    Operator(
        name="affine_grid_3d",
        family="affine_grid",
        summary="Sampling positions of an affine map of volumes: grid[n, k, i, j] = theta[n] (x_j, y_i, z_k, 1).",
        parameters=(
            *_SIZES_3D,
            _OPTIONS,
            Tensor("theta", "input", "C", _THETA_3D, "affine maps, rows (x, y, z), columns (x, y, z, 1)"),
            Tensor("grid", "output", "C", _GRID_3D, "positions (x, y, z)"),
        ),
        variants=_COORDINATES,
        empty="An empty grid: success, nothing to write.",
        bad_data="theta is data: NaN and infinity pass through.",
        workspace="None.",
        determinism=BIT_STABLE + "fma(t2, z, fma(t1, y, fma(t0, x, t3))).",
        source="torch.nn.functional.affine_grid (2.11) of five dimensions; its last bit may differ from ours.",
    ),
    Operator(
        name="affine_grid_3d_backward",
        family="affine_grid",
        summary="Gradient of affine_grid_3d with respect to theta: a sum over the grid's samples.",
        parameters=(
            *_SIZES_3D,
            _OPTIONS,
            Tensor("grad_grid", "input", "C", _GRID_3D, "gradient of the positions"),
            Tensor("grad_theta", "output", "C", _THETA_3D, "every element is written"),
        ),
        variants=_COORDINATES,
        empty="No samples: grad_theta is all zeros. n = 0: success, nothing to write.",
        bad_data="grad_grid is data: NaN and infinity pass through.",
        workspace="Twelve partial sums, of the element type, for every 256 samples of a volume or part of them.",
        determinism=BIT_STABLE + _CHUNKS,
        source="torch.nn.functional.affine_grid (2.11) of five dimensions.",
    ),
)
