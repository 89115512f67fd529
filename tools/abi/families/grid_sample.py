# SPDX-License-Identifier: Apache-2.0
"""grid_sample_2d, grid_sample_2d_ex and their gradients, as the ABI states them."""

from __future__ import annotations

from dataclasses import replace

from tools.abi.model import BIT_STABLE, IMAGE_FLOATS, Operator, Options, Parameter, Scalar, Tensor, extent

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

_IMAGES = ("n", "c", "input_h", "input_w")
_SAMPLES = ("n", "c", "output_h", "output_w")
_FORWARD: tuple[Tensor, ...] = (
    Tensor("input", "input", "T", _IMAGES, "images"),
    _GRID,
    Tensor("output", "output", "T", _SAMPLES, "samples"),
)
_OPERANDS: tuple[Tensor, ...] = (
    Tensor("grad_output", "input", "T", _SAMPLES, "gradient of the samples"),
    Tensor("input", "input", "T", _IMAGES, "images of the forward call"),
    _GRID,
)
# At most; tests/test_workspace.py holds both libraries to it.
_SCRATCH = (
    "On CUDA the larger of two, and 1 KiB: 49 bytes a pixel of the images, rounded up to tiles of 32 x 8, and as many "
    "as grad_output has with its channels filled up to 16 bytes, where that is at most 512 MiB; or 48 bytes a sample "
    "(f64: 64) and 5 a pixel. "
    "On the CPU 104 bytes a sample (f64: 120) and 5 a pixel, rounded up to tiles of 16 x 8, of one "
    "image, or of as many as have 65,536 samples and pixels, and 128 KiB. Twice that where 32 bits do not count an "
    "image's samples; on CUDA also where they do not count twice all images' tiles for every 64 channels."
)
_CUBIC_SCRATCH = (
    "Mode bicubic: on CUDA 33 bytes a sample, 256 more (f64: 512) of at least 65,536 samples, and 1 a pixel, rounded "
    "up to tiles of 8 x 8, also for grad_grid alone; on the CPU 264 bytes a sample (f64: 368) and 4 a pixel of one "
    "image; 1 KiB, and about half as much again where 32 bits do not count an image's taps."
)
_SUMS = (
    "A pixel owns its sum: samples ascending, taps in order, partial sums of 256 terms; grad_grid sums channels "
    "ascending in partial sums of 64."
)

# ---- samples that follow a rule

OPTIONS = Options(
    "options",
    "grid_sample_options",
    (
        Scalar("mode", "i32", "0 bilinear, 1 nearest (ties to even), 2 bicubic (images alone)", low=0, high=2),
        Scalar("padding_mode", "i32", "what lies outside: 0 zeros, 1 border, 2 reflection", low=0, high=2),
        Scalar("align_corners", "i32", "-1 and 1 are the corner pixels': 0 outer edges, 1 centres", low=0, high=1),
        Scalar(
            "gradients",
            "i32",
            "of the backward: 0 both, 1 grad_input alone, 2 grad_grid alone; the other one may be NULL and is not "
            "written",
            low=0,
            high=2,
        ),
        Scalar(
            "shares_input",
            "i32",
            "1: input is one image or volume, of which all samples are taken; grad_input has a gradient for each of n",
            low=0,
            high=1,
        ),
    ),
    "How a coordinate becomes pixels, and which tensors there are. All zeros: as the operator without options.",
)
# The first extent of an input that may be shared.
INPUTS = "1 if shares_input == 1 else n"
_EX_GRID = Tensor("grid", "input", "C", _GRID.shape, "sampling positions (x, y); -1 and 1 as align_corners says")
_EX_BAD_DATA = (
    "A NaN coordinate gives a NaN output; its gradient is dropped and its grad_grid is 0. An infinite coordinate is "
    "outside (zeros), at the border (border), or as a NaN (reflection). Finite ones follow the rule, however far they "
    "are, unless their position overflows, which is infinite. A tap of weight 0 does not exist, and where a position "
    "does not move with its coordinate grad_grid is 0, so that 0 times infinity cannot leak. Padding moves each tap of "
    "a bicubic sample, several of which may fall on one pixel, and not the sample itself."
)
_EX_EMPTY = "input_h = 0 or input_w = 0: padding modes other than zeros are status 2."
_EX_SOURCE = (
    "torch.nn.functional.grid_sample (2.11). Differs: bad coordinates; torch gives the border's pixel, or reads "
    "anywhere."
)


def _ex(tensors: tuple[Tensor, ...]) -> tuple[Parameter, ...]:
    """The parameters, options before the tensors, of which the input may be shared."""

    def ruled(tensor: Tensor) -> Tensor:
        if tensor.name == "input":
            return replace(tensor, shape=(INPUTS, *tensor.shape[1:]))
        return _EX_GRID if tensor is _GRID else tensor

    return (*_SCALARS, OPTIONS, *map(ruled, tensors))


ORDER = 20
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="grid_sample_2d",
        family="grid_sample",
        summary="Bilinear samples of input at the grid's positions: output[n, c, i, j] = input[n, c] at grid[n, i, j].",
        parameters=(*_SCALARS, *_FORWARD),
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
            *_OPERANDS,
            Tensor("grad_input", "output", "T", _IMAGES, "every element is written"),
            Tensor("grad_grid", "output", "C", _GRID.shape, "every element is written"),
        ),
        variants=IMAGE_FLOATS,
        empty="No samples: grad_input is all zeros. c = 0: grad_grid is all zeros.",
        bad_data=_BAD_DATA,
        workspace=_SCRATCH,
        determinism=BIT_STABLE + _SUMS,
        source=_SOURCE,
    ),
    Operator(
        name="grid_sample_2d_ex",
        family="grid_sample",
        summary="Samples of input at the grid's positions: grid_sample_2d in every mode.",
        parameters=_ex(_FORWARD),
        variants=IMAGE_FLOATS,
        empty=f"An empty output: success. Zeros outside: as grid_sample_2d. {_EX_EMPTY}",
        bad_data=_EX_BAD_DATA,
        workspace="None.",
        determinism=BIT_STABLE + "Taps in order (y0 x0), (y0 x1), (y1 x0), (y1 x1), 16 of bicubic samples row by row.",
        source=_EX_SOURCE,
    ),
    Operator(
        name="grid_sample_2d_ex_backward",
        family="grid_sample",
        summary="Gradients of grid_sample_2d_ex with respect to its input, its grid, or both.",
        parameters=(
            *_ex(_OPERANDS),
            Tensor(
                "grad_input",
                "output",
                "T",
                ("n if gradients != 2 else 0", *_IMAGES[1:]),
                "every element is written, unless gradients is 2",
            ),
            Tensor(
                "grad_grid",
                "output",
                "C",
                ("n if gradients != 1 else 0", *_GRID.shape[1:]),
                "every element is written, unless gradients is 1",
            ),
        ),
        variants=IMAGE_FLOATS,
        empty=f"No samples: grad_input is all zeros. c = 0: grad_grid is all zeros. {_EX_EMPTY}",
        bad_data=_EX_BAD_DATA,
        workspace=f"grad_grid alone: none, but on CUDA in mode bicubic. Else: {_SCRATCH} {_CUBIC_SCRATCH}",
        determinism=BIT_STABLE + _SUMS + " Either gradient alone has the bits that it has beside the other. Mode "
        "nearest: grad_grid is 0.",
        source=_EX_SOURCE,
    ),
)
