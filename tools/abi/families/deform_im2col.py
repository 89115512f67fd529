# SPDX-License-Identifier: Apache-2.0
"""The sampling of deformable convolution and its gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, INT32_MAX, Operator, Parameter, Scalar, Tensor, extent

_SCALARS: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("offset_groups", "groups of channels that share offsets and mask"),
    extent("c", "channels of one such group; the input has offset_groups c"),
    extent("h", "input height in pixels"),
    extent("w", "input width in pixels"),
    extent("output_h", "output height in positions of the kernel"),
    extent("output_w", "output width in positions of the kernel"),
    Scalar("kernel_h", "i32", "taps of the kernel along y", low=1, high=INT32_MAX),
    Scalar("kernel_w", "i32", "taps of the kernel along x", low=1, high=INT32_MAX),
    Scalar("stride_h", "i32", "pixels from one position to the next along y", low=1, high=INT32_MAX),
    Scalar("stride_w", "i32", "pixels from one position to the next along x", low=1, high=INT32_MAX),
    Scalar("padding_h", "i32", "pixels before the image at which the first position begins, along y", low=0,
           high=2**30 - 1),
    Scalar("padding_w", "i32", "pixels before the image at which the first position begins, along x", low=0,
           high=2**30 - 1),
    Scalar("dilation_h", "i32", "pixels from one tap to the next along y", low=1, high=INT32_MAX),
    Scalar("dilation_w", "i32", "pixels from one tap to the next along x", low=1, high=INT32_MAX),
    Scalar("has_mask", "i32", "1: every sample is multiplied by its number in mask; 0: there is no mask", low=0,
           high=1),
)  # fmt: skip
_TAPS = "kernel_h * kernel_w"
_INPUT = ("n", "offset_groups", "c", "h", "w")
_OFFSET = ("n", "offset_groups", _TAPS, "2", "output_h", "output_w")
_MASK = ("n", "has_mask", "offset_groups", _TAPS, "output_h", "output_w")
_COLUMNS = ("n", "offset_groups", "c", _TAPS, "output_h", "output_w")
_IMAGES = Tensor("input", "input", "T", _INPUT, "feature maps")
_OFFSETS = Tensor("offset", "input", "C", _OFFSET, "where each sample lies from its tap, in pixels: y, then x")
_MASKS = Tensor("mask", "input", "C", _MASK, "one number for each sample; not looked at without a mask")
_GRADIENT = Tensor("grad_columns", "input", "T", _COLUMNS, "gradient of the columns")

_RULE = (
    "Tap (i, j) at position (oy, ox) samples its group's channels at y = (oy stride_h - padding_h + i dilation_h) + "
    "offset and x likewise: 0 unless -1 < y < h and -1 < x < w, else bilinear, a corner outside of the image being 0."
)
_BAD_DATA = (
    "A sample whose y or x is NaN, infinite or outside is 0, whatever its mask, and so are its gradients. A corner "
    "whose weight, times the mask, is 0 does not exist; a mask of 0 makes a sample's grad_offset 0: so 0 times "
    "infinity cannot leak."
)
_SOURCE = (
    "torchvision.ops.deform_conv2d (0.26), deformable_im2col; Dai et al., Deformable Convolutional Networks, 2017; "
    "Zhu et al., Deformable ConvNets v2, 2019. Differs: NaN offsets, with which torchvision reads out of bounds; "
    "offsets and sums of 16-bit types in f32."
)
_LISTS_CPU = (
    "On the CPU for one image and group 4 bytes a pixel and 112 (f64: 144) a sample, and 1 KiB; twice that where 32 "
    "bits do not count the corners of a group's samples"
)
_LISTS_CUDA = (
    "On CUDA 48 bytes (f64: 80) a sample and 24 a pixel of every image and group, and 1 KiB; twice that where 31 "
    "bits do not count the corners of a group's samples. And for what is laid out of grad_columns at a time 20 MiB, or "
    "32 bytes a sample of one image and group where that is more"
)
_LAID_INPUT = (
    "None on the CPU. On CUDA at most twice the bytes of the input, whose channels it lays side by side; none where a "
    "group's have less than 16 bytes, or samples are fewer than a quarter of the pixels."
)

# Beside grid_sample_3d, whose samples these are in two dimensions.
ORDER = 26

OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="deform_im2col",
        family="deform_im2col",
        summary=f"Samples of a deformable convolution as columns, by which its weights are multiplied. {_RULE}",
        parameters=(
            *_SCALARS,
            _IMAGES,
            _OFFSETS,
            _MASKS,
            Tensor("columns", "output", "T", _COLUMNS, "one value for each channel, tap and position"),
        ),
        variants=IMAGE_FLOATS,
        empty="An empty columns: success, nothing to write. h = 0 or w = 0: columns is 0.",
        bad_data=_BAD_DATA,
        workspace="None.",
        determinism=BIT_STABLE
        + "A chain of fma over the corners (y0 x0), (y0 x1), (y1 x0), (y1 x1); a weight is y x, rounded, times the "
        "mask, rounded.",
        source=_SOURCE,
    ),
    Operator(
        name="deform_im2col_backward",
        family="deform_im2col",
        summary=f"Gradient of deform_im2col with respect to its input. {_RULE}",
        parameters=(
            *_SCALARS,
            _GRADIENT,
            _OFFSETS,
            _MASKS,
            Tensor("grad_input", "output", "T", _INPUT, "every element is written, also the zeros"),
        ),
        variants=IMAGE_FLOATS,
        empty="No samples: grad_input is all zeros. An empty grad_input: success, nothing to write.",
        bad_data=_BAD_DATA,
        workspace=f"{_LISTS_CPU}. {_LISTS_CUDA}.",
        determinism=BIT_STABLE
        + "A pixel owns its sum, a chain of fma over the samples that reach it, tap by tap and, in a tap, positions in "
        "row-major order, in partial sums of 256 terms, added ascending.",
        source=_SOURCE,
    ),
    Operator(
        name="deform_im2col_offset_backward",
        family="deform_im2col",
        summary=f"Gradients of deform_im2col with respect to its offsets and its mask. {_RULE}",
        parameters=(
            *_SCALARS,
            _GRADIENT,
            _IMAGES,
            _OFFSETS,
            _MASKS,
            Tensor("grad_offset", "output", "C", _OFFSET, "every element is written"),
            Tensor("grad_mask", "output", "C", _MASK, "every element is written; none without a mask"),
        ),
        variants=IMAGE_FLOATS,
        empty="c = 0, h = 0 or w = 0: grad_offset and grad_mask are all zeros.",
        bad_data=_BAD_DATA,
        workspace=_LAID_INPUT,
        determinism=BIT_STABLE
        + "Each is one sum over the group's channels, ascending, in partial sums of 64, added ascending: of a "
        "channel's gradient times its chain of fma over the corners. grad_offset is multiplied by the mask at the end. "
        "Where y or x is a whole number the derivative is that to its right.",
        source=_SOURCE,
    ),
)
