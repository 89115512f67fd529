# SPDX-License-Identifier: Apache-2.0
"""roi_align, of one map and of several, and their gradients, as the ABI states them."""

from __future__ import annotations

from dataclasses import replace

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, HostArray, Operator, Parameter, Scalar, Tensor, extent

_SAMPLING_RATIO = Scalar(
    "sampling_ratio", "i32", "samples per bin and axis; 0 or negative: adaptive, ceil(box extent / bins)", high=2**20
)
_ALIGNED = Scalar("aligned", "i32", "1: boxes are shifted by half a pixel; 0: they are at least 1 x 1", low=0, high=1)
_SCALARS: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels"),
    extent("h", "input height in pixels"),
    extent("w", "input width in pixels"),
    extent("num_rois", "boxes"),
    extent("pooled_h", "bins along y"),
    extent("pooled_w", "bins along x"),
    Scalar("spatial_scale", "f32", "input pixels per unit of the boxes; finite", finite=True),
    _SAMPLING_RATIO,
    _ALIGNED,
)
# Every sample is taken by itself.
_FEW_SAMPLES = replace(_SAMPLING_RATIO, high=1024)
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

# As many maps as a pyramid has at most; a call without some of them passes NULL for these.
MOST_LEVELS = 8
_LEVEL_SCALARS: tuple[Parameter, ...] = (
    Scalar("num_levels", "i32", "feature maps", low=1, high=MOST_LEVELS),
    extent("n", "images in the batch"),
    extent("c", "channels"),
    HostArray("heights", "i32", "num_levels", "each map's height in pixels", low=0),
    HostArray("widths", "i32", "num_levels", "each map's width in pixels", low=0),
    HostArray("spatial_scales", "f32", "num_levels", "each map's pixels per unit of the boxes; finite"),
    extent("num_rois", "boxes"),
    extent("pooled_h", "bins along y"),
    extent("pooled_w", "bins along x"),
    _SAMPLING_RATIO,
    _ALIGNED,
    Scalar("k_min", "i32", "what the first map is called among the levels of a pyramid", low=-64, high=64),
    Scalar("canonical_level", "i32", "the level of a box of canonical_scale x canonical_scale", low=-64, high=64),
    Scalar("canonical_scale", "f32", "in units of the boxes; finite", finite=True),
)


def _maps(name: str, role: str, doc: str) -> tuple[Tensor, ...]:
    """A tensor for each map; those from num_levels on have no elements."""
    return tuple(
        Tensor(f"{name}_{level}", role, "T", ("n", "c", _of_level("heights", level), _of_level("widths", level)), doc)
        for level in range(MOST_LEVELS)
    )


def _of_level(extents: str, level: int) -> str:
    return f"{extents}[{level}] if num_levels > {level} else 0"


_LEVEL_RULE = (
    "A box of area a = (x2 - x1) (y2 - y1), computed in the boxes' type, belongs to map l, the largest below "
    "num_levels for which a >= canonical_scale^2 4^(k_min + l - canonical_level - 10^-6), compared in f64; to map 0 if "
    "there is none. This is floor(canonical_level + log2(sqrt(a) / canonical_scale) + 10^-6), clamped, without its "
    "roundings."
)
_LEVEL_BAD_DATA = "A box whose area is negative or NaN contributes nothing. " + _BAD_DATA
_LEVEL_SOURCE = (
    "torchvision.ops.MultiScaleRoIAlign (0.26); Lin et al., Feature Pyramid Networks, 2017, (1). Differs: areas "
    "within 2^-18 of a threshold, where torchvision rounds a logarithm; and as roi_align."
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
    Operator(
        name="roi_align_boxes_backward",
        family="roi_align",
        summary=(
            "Gradient of roi_align with respect to its boxes, row by row: 0 for the batch index, then x1, y1, x2, y2. "
            "A sample's value moves with its position between pixels; the number of samples does not change."
        ),
        parameters=(
            *(_FEW_SAMPLES if each is _SAMPLING_RATIO else each for each in _SCALARS),
            Tensor("grad_output", "input", "T", ("num_rois", "c", "pooled_h", "pooled_w"), "gradient of the bins"),
            Tensor("input", "input", "T", ("n", "c", "h", "w"), "feature maps"),
            _ROIS,
            Tensor("grad_rois", "output", "C", ("num_rois", "5"), "every element is written, also the zeros"),
        ),
        variants=IMAGE_FLOATS,
        empty="Zero boxes: success, nothing to write. No channels, bins or pixels: grad_rois is all zeros.",
        bad_data=_BAD_DATA
        + " A sample at or before pixel 0 of an axis, or at or behind the last, does not move along it. Pixels of "
        "weight 0 do not exist, so that 0 times infinity cannot leak.",
        workspace="None.",
        determinism=BIT_STABLE
        + "A box owns its sums, of 8 x 32 lanes: lane (i, j) has every eighth channel from i on, and of the box's "
        "samples, row-major, every 32nd from j on. Lanes are added in halves over j, then ascending over i.",
        source="The derivative of torchvision.ops.roi_align (0.26), which has none; He et al., Mask R-CNN, 2017.",
    ),
    Operator(
        name="roi_align_levels",
        family="roi_align",
        summary="roi_align of every box on one of several maps of the same images, chosen by the box's area. "
        + _LEVEL_RULE,
        parameters=(
            *_LEVEL_SCALARS,
            *_maps("input", "input", "a feature map; NULL where there is no such map"),
            Tensor("rois", "input", "C", ("num_rois", "5"), "rows (batch index, x1, y1, x2, y2), scaled by the map's"),
            Tensor("output", "output", "T", ("num_rois", "c", "pooled_h", "pooled_w"), "in the order of the boxes"),
        ),
        variants=IMAGE_FLOATS,
        empty="Zero boxes, channels or bins: success, nothing to write. A box of a map without pixels: 0.",
        bad_data=_LEVEL_BAD_DATA,
        workspace=f"{_TABLES} of the largest map's h and w; on CUDA 4 KiB (f64: 6 KiB) more.",
        determinism=BIT_STABLE + "A box has the bits that roi_align gives it on its map.",
        source=_LEVEL_SOURCE,
    ),
    Operator(
        name="roi_align_levels_backward",
        family="roi_align",
        summary="Gradients of roi_align_levels with respect to its maps. " + _LEVEL_RULE,
        parameters=(
            *_LEVEL_SCALARS,
            Tensor("grad_output", "input", "T", ("num_rois", "c", "pooled_h", "pooled_w"), "gradient of the bins"),
            Tensor("rois", "input", "C", ("num_rois", "5"), "rows (batch index, x1, y1, x2, y2), scaled by the map's"),
            *_maps("grad_input", "output", "every element is written, also the zeros; NULL where there is no such map"),
        ),
        variants=IMAGE_FLOATS,
        empty="Zero boxes or bins: every gradient is all zeros. An empty map: success, nothing to write.",
        bad_data=_LEVEL_BAD_DATA,
        workspace="As much as roi_align_backward needs for the map that needs most; on CUDA for every map, one behind "
        "the other, and 20 (f64: 40) a box for each map.",
        determinism=BIT_STABLE
        + "A map has the bits that roi_align_backward gives it for all boxes, where those of other maps name no image.",
        source=_LEVEL_SOURCE,
    ),
)
