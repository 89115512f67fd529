# SPDX-License-Identifier: Apache-2.0
"""Position-sensitive pooling of boxes, by samples and by averages, and the gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, INT32_MAX, Operator, Parameter, Scalar, Tensor, extent

_EXTENTS: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels of the output; the input has one of them for each bin"),
    extent("h", "input height in pixels"),
    extent("w", "input width in pixels"),
    extent("num_rois", "boxes"),
    Scalar("pooled_h", "i32", "bins along y", low=1, high=INT32_MAX),
    Scalar("pooled_w", "i32", "bins along x", low=1, high=INT32_MAX),
    Scalar("spatial_scale", "f32", "input pixels per unit of the boxes; finite", finite=True),
)
_RATIO = Scalar(
    "sampling_ratio", "i32", "samples per bin and axis; 0 or negative: adaptive, ceil(box extent / bins)", high=2**20
)
_BINS = ("num_rois", "c", "pooled_h", "pooled_w")
_MAPS = ("n", "c", "pooled_h", "pooled_w", "h", "w")
_ROIS = Tensor("rois", "input", "C", ("num_rois", "5"), "rows (batch index, x1, y1, x2, y2), scaled by spatial_scale")
_INPUT = Tensor("input", "input", "T", _MAPS, "feature maps, one for each channel and bin")
_OUTPUT = Tensor("output", "output", "T", _BINS, "one value per bin")
_GRAD_OUTPUT = Tensor("grad_output", "input", "T", _BINS, "gradient of the bins")
_GRAD_INPUT = Tensor("grad_input", "output", "T", _MAPS, "every element is written, also the zeros")

_ALIGN_BAD = (
    "A box whose batch index, truncated, lies outside [0, n), whose scaled corner, width or height is not finite, or "
    "whose adaptive sample count is not in 1 to 2^20 on an axis contributes nothing. A sample outside [-1, h] x "
    "[-1, w] counts as 0."
)
_POOL_BAD = (
    "A box whose batch index, truncated, lies outside [0, n), or whose scaled corner, width or height is not finite, "
    "contributes nothing."
)
_ALIGN_SOURCE = (
    "torchvision.ops.ps_roi_align (0.26); Li et al., Light-Head R-CNN, 2017. Differs: bad boxes never read out of "
    "bounds, a box without samples is 0; sums are kept in f32 (f64 for f64)."
)
_POOL_SOURCE = (
    "torchvision.ops.ps_roi_pool (0.26); Dai et al., R-FCN, 2016. Differs: bad boxes never read out of bounds; the "
    "gradient is that of the forward, whose bins end before the last row and column; sums in f32 (f64 for f64)."
)
_AVERAGE = (
    "On each axis a box goes from start = round(low spatial_scale) to end = round(high spatial_scale), halves away "
    "from zero; with e = max(end - start, 1) / bins, bin b has the pixels [start + floor(b e), start + "
    "ceil((b + 1) e)), both ends clipped to [0, extent - 1]."
)
_WEIGHTS = (
    "of the boxes' weights: for each box at most 256 bytes and 8 (f64: 16) for each of h + w + 10 (pooled_h + pooled_w)"
)
_LISTS = "On the CPU 4 bytes a box and an image and, for the 16-bit types, an f32 copy of grad_input"

# Beside roi_pool.
ORDER = 16

OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="ps_roi_align",
        family="ps_roi",
        summary="Average of bilinear samples in every bin of every box, each bin from a feature map of its own: "
        "output[r, c, ph, pw] is what roi_align with aligned 1 has there for input[:, c, ph, pw].",
        parameters=(*_EXTENTS, _RATIO, _INPUT, _ROIS, _OUTPUT),
        variants=IMAGE_FLOATS,
        empty="Zero boxes or channels: success, nothing to write. n = 0, h = 0 or w = 0: output is 0.",
        bad_data=_ALIGN_BAD,
        workspace=f"Tables {_WEIGHTS}.",
        determinism=BIT_STABLE
        + "Rows ascending inside, columns ascending outside, each a chain of fma: roi_align's bits.",
        source=_ALIGN_SOURCE,
    ),
    Operator(
        name="ps_roi_align_backward",
        family="ps_roi",
        summary="Gradient of ps_roi_align with respect to its input.",
        parameters=(*_EXTENTS, _RATIO, _GRAD_OUTPUT, _ROIS, _GRAD_INPUT),
        variants=IMAGE_FLOATS,
        empty="Zero boxes: grad_input is all zeros. An empty grad_input: success, nothing to write.",
        bad_data=_ALIGN_BAD,
        workspace=f"{_LISTS}, and tables {_WEIGHTS}. On CUDA none.",
        determinism=BIT_STABLE
        + "A pixel owns its sum, a chain of fma over the boxes, ascending: the row's weight times the bin's gradient, "
        "rounded, times the column's.",
        source=_ALIGN_SOURCE,
    ),
    Operator(
        name="ps_roi_pool",
        family="ps_roi",
        summary="Average of the pixels in every bin of every box, each bin from a feature map of its own: output[r, c, "
        "ph, pw] is the mean of input[image, c, ph, pw] over the bin, 0 without pixels. " + _AVERAGE,
        parameters=(*_EXTENTS, _INPUT, _ROIS, _OUTPUT),
        variants=IMAGE_FLOATS,
        empty="Zero boxes or channels: success, nothing to write. n = 0, h = 0 or w = 0: output is 0.",
        bad_data=_POOL_BAD,
        workspace="None.",
        determinism=BIT_STABLE + "Pixels are added in row-major order, the sum is divided by their number.",
        source=_POOL_SOURCE,
    ),
    Operator(
        name="ps_roi_pool_backward",
        family="ps_roi",
        summary="Gradient of ps_roi_pool with respect to its input. " + _AVERAGE,
        parameters=(*_EXTENTS, _GRAD_OUTPUT, _ROIS, _GRAD_INPUT),
        variants=IMAGE_FLOATS,
        empty="Zero boxes: grad_input is all zeros. An empty grad_input: success, nothing to write.",
        bad_data=_POOL_BAD,
        workspace=f"{_LISTS}.",
        determinism=BIT_STABLE + "A pixel owns its sum: the bins' gradients divided by their pixels, boxes ascending.",
        source=_POOL_SOURCE,
    ),
)
