# SPDX-License-Identifier: Apache-2.0
"""roi_pool and its gradient, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, Operator, Parameter, Scalar, Tensor, extent

_EXTENTS: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels"),
    extent("h", "input height in pixels"),
    extent("w", "input width in pixels; h w at most 2^31 - 1"),
    extent("num_rois", "boxes"),
    extent("pooled_h", "bins along y"),
    extent("pooled_w", "bins along x"),
)
_BINS = ("num_rois", "c", "pooled_h", "pooled_w")
_SOURCE = (
    "torchvision.ops.roi_pool (0.26); Girshick, Fast R-CNN, 2015. Differs: a NaN wins, a bin of -inf alone has a "
    "maximum; bad boxes and bad argmax never read or write out of bounds; sums are kept in f32 (f64 for f64)."
)

# Beside roi_align.
ORDER = 15

OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="roi_pool",
        family="roi_pool",
        summary=(
            "Maximum of the pixels in every bin of every box, and where it is: output[r, c, ph, pw] is the largest "
            "input[image, c, y, x] with y in the bin's rows and x in its columns. On each axis a box goes from start = "
            "round(low spatial_scale) to last = round(high spatial_scale), halves away from zero; with e = max(last - "
            "start + 1, 1) / bins, bin b has the pixels [start + floor(b e), start + ceil((b + 1) e)) that are in the "
            "image."
        ),
        parameters=(
            *_EXTENTS,
            Scalar("spatial_scale", "f32", "input pixels per unit of the boxes; finite", finite=True),
            Tensor("input", "input", "T", ("n", "c", "h", "w"), "feature maps"),
            Tensor(
                "rois", "input", "C", ("num_rois", "5"), "rows (batch index, x1, y1, x2, y2), scaled by spatial_scale"
            ),
            Tensor("output", "output", "T", _BINS, "one value per bin; 0 for a bin without pixels"),
            Tensor(
                "argmax", "output", "i32", _BINS, "y w + x of the pixel that output holds; -1 for a bin without pixels"
            ),
        ),
        variants=IMAGE_FLOATS,
        empty="Zero boxes, channels or bins: success, nothing to write. n = 0, h = 0 or w = 0: output is 0, argmax -1.",
        bad_data=(
            "A box whose batch index, truncated, lies outside [0, n), or whose scaled corner, width or height is not "
            "finite, has no pixels. The first NaN of a bin is its maximum."
        ),
        workspace="None.",
        determinism=BIT_STABLE
        + "The first of equal pixels in row-major order wins; its bits are moved, a NaN's and a zero's sign too.",
        source=_SOURCE,
    ),
    Operator(
        name="roi_pool_backward",
        family="roi_pool",
        summary=(
            "Gradient of roi_pool with respect to its input: grad_input[n, c, y, x] = sum of grad_output[r, c, ph, pw] "
            "over the bins of image n's boxes with argmax[r, c, ph, pw] = y w + x."
        ),
        parameters=(
            *_EXTENTS,
            Tensor("grad_output", "input", "T", _BINS, "gradient of the bins"),
            Tensor("rois", "input", "C", ("num_rois", "5"), "the forward's; the batch index alone is read"),
            Tensor("argmax", "input", "i32", _BINS, "the forward's"),
            Tensor("grad_input", "output", "T", ("n", "c", "h", "w"), "every element is written, also the zeros"),
        ),
        variants=IMAGE_FLOATS,
        empty="Zero boxes or bins: grad_input is all zeros. An empty grad_input: success, nothing to write.",
        bad_data=(
            "A box whose batch index, truncated, lies outside [0, n), and a bin whose argmax lies outside [0, h w), "
            "contribute nothing."
        ),
        workspace=(
            "On the CPU 4 bytes a box and an image and, for the 16-bit types, an f32 copy of grad_input; on CUDA 4 "
            "for each box and 8 for each channel of each box. Where the sum over boxes is cut into blocks, also an f32 "
            "(f64: f64) copy of grad_input, on CUDA one for each block (at most 64 MiB together, f64: 128)."
        ),
        determinism=BIT_STABLE
        + "A pixel owns its sum: boxes ascending in blocks fixed by the shapes, then the bins in row-major order; the "
        "blocks' sums ascending.",
        source=_SOURCE,
    ),
)
