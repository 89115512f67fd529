# SPDX-License-Identifier: Apache-2.0
"""grid_sample_2d and its gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, Operator, Parameter, Tensor, extent

_SCALARS: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels"),
    extent("input_h", "input height in pixels"),
    extent("input_w", "input width in pixels"),
    extent("output_h", "output height in samples"),
    extent("output_w", "output width in samples"),
)
_GRID = Tensor(
    "grid",
    "input",
    "C",
    ("n", "output_h", "output_w", "2"),
    "sampling positions (x, y) in [-1, 1], where -1 and 1 are the outer edges of the corner pixels",
)
_BAD_DATA = (
    "An infinite or far coordinate is outside: it gives 0 and takes no gradient. A NaN coordinate gives a NaN output; "
    "its gradient is dropped and its grad_grid is 0. A tap of weight 0 does not exist, so 0 times infinity cannot leak."
)
_SOURCE = (
    "torch.nn.functional.grid_sample (2.11), mode bilinear, padding_mode zeros, align_corners false; Jaderberg et al., "
    "Spatial Transformer Networks, 2015."
)

ORDER = 20
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="grid_sample_2d",
        family="grid_sample",
        summary="Bilinear samples of input at the grid's positions: output[n, c, i, j] = input[n, c] at grid[n, i, j].",
        parameters=(
            *_SCALARS,
            Tensor("input", "input", "T", ("n", "c", "input_h", "input_w"), "images"),
            _GRID,
            Tensor("output", "output", "T", ("n", "c", "output_h", "output_w"), "samples"),
        ),
        variants=IMAGE_FLOATS,
        empty="An empty output: success. input_h = 0 or input_w = 0: output is 0 (NaN at NaN coordinates).",
        bad_data=_BAD_DATA,
        workspace="None.",
        determinism=BIT_STABLE + "Taps in order (y0 x0), (y0 x1), (y1 x0), (y1 x1).",
        source=_SOURCE,
    ),
    Operator(
        name="grid_sample_2d_backward",
        family="grid_sample",
        summary="Gradients of grid_sample_2d with respect to its input and to its grid.",
        parameters=(
            *_SCALARS,
            Tensor("grad_output", "input", "T", ("n", "c", "output_h", "output_w"), "gradient of the samples"),
            Tensor("input", "input", "T", ("n", "c", "input_h", "input_w"), "images of the forward call"),
            _GRID,
            Tensor("grad_input", "output", "T", ("n", "c", "input_h", "input_w"), "every element is written"),
            Tensor("grad_grid", "output", "C", ("n", "output_h", "output_w", "2"), "every element is written"),
        ),
        variants=IMAGE_FLOATS,
        empty="No samples: grad_input is all zeros. c = 0: grad_grid is all zeros.",
        bad_data=_BAD_DATA,
        # At most; tests/test_workspace.py holds both libraries to it.
        workspace="On CUDA 48 bytes a sample (f64: 64) and 15 a pixel of the images, rounded up to tiles of 32 x 8. "
        "On the CPU 104 bytes a sample (f64: 120) and 5 a pixel, rounded up to tiles of 16 x 8, of one "
        "image, or of as many as have 65,536 samples and pixels, and 128 KiB. Twice that where 32 bits do not count an "
        "image's samples; on CUDA also where they do not count all images' tiles for every 64 channels. "
        "Never of the order of n times c.",
        determinism=BIT_STABLE
        + "A pixel owns its sum: samples ascending, taps in order, partial sums of 256 terms; grad_grid sums channels "
        "ascending in partial sums of 64.",
        source=_SOURCE,
    ),
)
