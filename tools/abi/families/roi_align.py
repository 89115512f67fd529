# SPDX-License-Identifier: Apache-2.0
"""roi_align and its gradient, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, Operator, Parameter, Scalar, Tensor, extent

_SCALARS: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels"),
    extent("h", "input height in pixels"),
    extent("w", "input width in pixels"),
    extent("num_rois", "boxes"),
    extent("pooled_h", "bins along y"),
    extent("pooled_w", "bins along x"),
    Scalar("spatial_scale", "f32", "input pixels per unit of the boxes; finite", finite=True),
    Scalar(
        "sampling_ratio",
        "i32",
        "samples per bin and axis; 0 or negative: adaptive, ceil(box extent / bins)",
        high=2**20,
    ),
    Scalar("aligned", "i32", "1: boxes are shifted by half a pixel; 0: they are at least 1 x 1", low=0, high=1),
)
_ROIS = Tensor("rois", "input", "C", ("num_rois", "5"), "rows (batch index, x1, y1, x2, y2), scaled by spatial_scale")
_BAD_DATA = (
    "A box whose batch index, truncated, lies outside [0, n), whose scaled corner, width or height is not finite, or "
    "whose adaptive sample count passes 2^20 on an axis contributes nothing. A sample outside [-1, h] x [-1, w] counts "
    "as 0."
)
_SOURCE = (
    "torchvision.ops.roi_align (0.26); He et al., Mask R-CNN, 2017. Differs: bad boxes never read out of bounds; "
    "sums are kept in f32 (f64 for f64)."
)
# Rounding, beside the sums': derived and tested in tests/test_roi_align.py.
_ROUNDING = (
    " Positions are rounded to the boxes' type. A pixel's weight in a bin is a sum over the samples near it, ascending "
    "in partial sums of 256, divided by their number: with s samples an axis it is off by at most "
    "min(s, 256) + ceil(s / 256) + 3 units of 2^-24 (f64: 2^-53) of itself."
)
# What _workspace_size answers at most; tests/test_workspace.py holds both libraries to it.
_TABLES = (
    "Tables of the boxes' weights: for each box at most 256 bytes and 8 (f64: 16) for each of h + w + 10 (pooled_h + "
    "pooled_w)"
)

ORDER = 10
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="roi_align",
        family="roi_align",
        summary=(
            "Average of bilinear samples in every bin of every box: output[r, c] = A X B^T with per-axis weights A, B "
            "(torchvision's definition, factored)."
        ),
        parameters=(
            *_SCALARS,
            Tensor("input", "input", "T", ("n", "c", "h", "w"), "feature maps"),
            _ROIS,
            Tensor("output", "output", "T", ("num_rois", "c", "pooled_h", "pooled_w"), "one value per bin"),
        ),
        variants=IMAGE_FLOATS,
        empty="Zero boxes, channels or bins: success, nothing to write. h = 0 or w = 0: output is 0.",
        bad_data=_BAD_DATA,
        workspace=f"{_TABLES}; on CUDA 4 KiB (f64: 6 KiB) more.",
        determinism=BIT_STABLE + "Rows ascending inside, columns ascending outside, each a chain of fma." + _ROUNDING,
        source=_SOURCE,
    ),
    Operator(
        name="roi_align_backward",
        family="roi_align",
        summary="Gradient of roi_align with respect to its input: grad_input = sum over boxes of A^T G B.",
        parameters=(
            *_SCALARS,
            Tensor("grad_output", "input", "T", ("num_rois", "c", "pooled_h", "pooled_w"), "gradient of the bins"),
            _ROIS,
            Tensor("grad_input", "output", "T", ("n", "c", "h", "w"), "every element is written, also the zeros"),
        ),
        variants=IMAGE_FLOATS,
        empty="Zero boxes or bins: grad_input is all zeros. An empty grad_input: success, nothing to write.",
        bad_data=_BAD_DATA,
        workspace=f"{_TABLES}. On the CPU also 4 an image and 64 KiB (f64: 128). On CUDA also 16 for each tile of "
        "14 x 16 pixels and a bit for each box on it (at most 64 MiB together) and, where the sum over boxes is cut "
        "into blocks, an f32 (f64: f64) copy of grad_input for each block (at most 64 MiB, f64: 128).",
        determinism=BIT_STABLE
        + "A pixel owns its sum: boxes ascending in blocks fixed by the shapes, then pw, then ph."
        + _ROUNDING,
        source=_SOURCE,
    ),
)
