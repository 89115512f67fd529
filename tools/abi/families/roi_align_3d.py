# SPDX-License-Identifier: Apache-2.0
"""roi_align of volumes and its gradient, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, Operator, Parameter, Scalar, Tensor, extent

_SCALARS: tuple[Parameter, ...] = (
    extent("n", "volumes in the batch"),
    extent("c", "channels"),
    extent("d", "input depth in voxels"),
    extent("h", "input height in voxels"),
    extent("w", "input width in voxels"),
    extent("num_rois", "boxes"),
    extent("pooled_d", "bins along z"),
    extent("pooled_h", "bins along y"),
    extent("pooled_w", "bins along x"),
    Scalar("spatial_scale", "f32", "input voxels per unit of the boxes, on every axis; finite", finite=True),
    Scalar(
        "sampling_ratio",
        "i32",
        "samples per bin and axis; 0 or negative: adaptive, ceil(box extent / bins)",
        high=2**20,
    ),
    Scalar("aligned", "i32", "1: boxes are shifted by half a voxel; 0: they are at least 1 x 1 x 1", low=0, high=1),
)
_VOLUMES = ("n", "c", "d", "h", "w")
_BINS = ("num_rois", "c", "pooled_d", "pooled_h", "pooled_w")
_ROIS = Tensor(
    "rois", "input", "C", ("num_rois", "7"), "rows (batch index, x1, y1, z1, x2, y2, z2), scaled by spatial_scale"
)
_BAD_DATA = (
    "A box whose batch index, truncated, lies outside [0, n), whose scaled corner or extent is not finite, or whose "
    "adaptive sample count passes 2^20 on an axis contributes nothing. A sample outside [-1, d] x [-1, h] x [-1, w] "
    "counts as 0."
)
_SOURCE = (
    "torchvision.ops.roi_align (0.26) with a third axis, by the same rules axis by axis; torchvision has none. Sums "
    "are kept in f32 (f64 for f64)."
)
# What _workspace_size answers at most; tests/test_workspace.py holds both libraries to it.
_TABLES = (
    "Tables of the boxes' weights: for each box at most 384 bytes and 8 (f64: 16) for each of d + h + w + 10 "
    "(pooled_d + pooled_h + pooled_w)"
)
_ROUNDING = (
    " Positions are rounded to the boxes' type; a voxel's weight in a bin is the product of one weight an axis, which "
    "are roi_align's."
)

# Beside the poolings of two dimensions.
ORDER = 18

OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="roi_align_3d",
        family="roi_align_3d",
        summary="Average of trilinear samples in every bin of every box of volumes: roi_align with a third axis.",
        parameters=(
            *_SCALARS,
            Tensor("input", "input", "T", _VOLUMES, "volumes"),
            _ROIS,
            Tensor("output", "output", "T", _BINS, "one value per bin"),
        ),
        variants=IMAGE_FLOATS,
        empty="Zero boxes, channels or bins: success, nothing to write. d = 0, h = 0 or w = 0: output is 0.",
        bad_data=_BAD_DATA,
        workspace=f"{_TABLES}.",
        determinism=BIT_STABLE
        + "Rows ascending inside, then planes ascending, columns ascending outside, each a chain of fma."
        + _ROUNDING,
        source=_SOURCE,
    ),
    Operator(
        name="roi_align_3d_backward",
        family="roi_align_3d",
        summary="Gradient of roi_align_3d with respect to its input.",
        parameters=(
            *_SCALARS,
            Tensor("grad_output", "input", "T", _BINS, "gradient of the bins"),
            _ROIS,
            Tensor("grad_input", "output", "T", _VOLUMES, "every element is written, also the zeros"),
        ),
        variants=IMAGE_FLOATS,
        empty="Zero boxes or bins: grad_input is all zeros. An empty grad_input: success, nothing to write.",
        bad_data=_BAD_DATA,
        workspace=f"{_TABLES}. On the CPU also 4 a box and an image and 65 KiB (f64: 129).",
        determinism=BIT_STABLE
        + "A voxel owns its sum: boxes ascending in blocks fixed by the shapes, then pw, then pd, then ph."
        + _ROUNDING,
        source=_SOURCE,
    ),
)
