# SPDX-License-Identifier: Apache-2.0
"""Interpolation to another size and its gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, Operator, Options, Parameter, Scalar, Tensor, extent

_EXTENTS_2D: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels"),
    extent("input_h", "input height in pixels"),
    extent("input_w", "input width in pixels"),
    extent("output_h", "output height in pixels"),
    extent("output_w", "output width in pixels"),
)
_EXTENTS_3D: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels"),
    extent("input_d", "input depth in pixels; 1, as output_d, for images of fewer axes"),
    extent("input_h", "input height in pixels; 1, as output_h, for signals"),
    extent("input_w", "input width in pixels"),
    extent("output_d", "output depth in pixels"),
    extent("output_h", "output height in pixels"),
    extent("output_w", "output width in pixels"),
)
_MODE_NAMES = ("nearest", "nearest-exact", "linear", "cubic", "linear antialiased", "cubic antialiased")


def _scale(name: str, axis: str) -> Scalar:
    return Scalar(
        name, "f64",
        f"output pixels per input pixel along {axis}, finite; 0 or less: the quotient of the extents. Not read with "
        "align_corners", finite=True,
    )  # fmt: skip


_CORNERS = Scalar(
    "align_corners", "i32", "1: the centres of the corner pixels are kept; 0: their outer corners", low=0, high=1
)
_OPTIONS = Options(
    "options",
    "interpolate_options",
    (
        Scalar(
            "mode", "i32", ", ".join(f"{number} {name}" for number, name in enumerate(_MODE_NAMES)), low=0,
            high=len(_MODE_NAMES) - 1,
        ),
        Scalar(
            "align_corners", "i32", "as in interpolate_bilinear_2d; 0 in modes nearest and nearest-exact", low=0,
            high=1,
        ),
        _scale("scale_d", "the depth"),
        _scale("scale_h", "the height"),
        _scale("scale_w", "the width"),
    ),
    "How interpolate_ex interpolates.",
)  # fmt: skip

_LINEAR = (
    "On each axis output pixel o lies at s (o + 1/2) - 1/2, at least 0, in input pixels, where s = 1 / scale or else "
    "input extent / output extent; with align_corners at o (input extent - 1) / (output extent - 1). It is the sum of "
    "the pixels on both sides, weighted by 1 less their distance; beyond the last pixel it is that pixel. On an axis "
    "of equal extents it is pixel o"
)
_NEAREST = "output[o] is input[min(floor(s o), input extent - 1)] on each axis, s = input extent / output extent"
_CUBIC = (
    "Cubic is for images: with the position as in the linear mode, but not raised to 0, output pixel o is the sum of "
    "four pixels of each axis, from the one before that at or below it on, by Keys' weights with a = -3/4 of their "
    "distances; a pixel beyond an edge is the edge pixel, with the sum of their weights"
)
_ANTIALIAS = (
    "The antialiased modes are for images: output pixel o of an axis has its centre at s (o + 1/2), in input pixels "
    "from the first one's outer edge, with align_corners too, and is the weighted mean of the pixels whose centres lie "
    "under a filter there: a triangle that reaches 1 pixel to either side, or Keys' cubic with a = -1/2 that reaches "
    "2, both s times as wide where s > 1. Weights are divided by their sum; where that is 0 there is no pixel, and o "
    "is 0"
)
_EMPTY = "An input axis without pixels: status 2, unless output is empty too."
_ARITHMETIC = "s, positions and weights are f32, for f64 data f64 (in the nearest modes f32 too)."
_SUMS = (
    BIT_STABLE
    + "Every pixel owns its sum: first along the depth, then of these along the height, then of these along the "
    "width, each by fma from 0 in ascending order of output, in partial sums of 256 pixels. "
)
_ORDER_ANTIALIASED = (
    "In the antialiased modes a sum goes along the height first and then along the width, each by fma from 0 in "
    "ascending order, not cut. "
)
_ORDER = BIT_STABLE + "Pixels are combined along the width, then along the height, then along the depth. "
_TORCH = "torch.nn.functional.interpolate (2.13)"
_WORKSPACE = "On the CPU 128 KiB. On CUDA none."
_WORKSPACE_EX = (
    "On the CPU 128 KiB, on CUDA none; in the antialiased modes a table of the weights of both axes besides, about as "
    "many as pixels under all filters of an axis."
)


def _tensors(extents: tuple[Parameter, ...]) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Input and output, and their gradients in the order of the backward call."""
    names = [each.name for each in extents]
    axes = (len(names) - 2) // 2
    inner, outer = ("n", "c", *names[2 : 2 + axes]), ("n", "c", *names[2 + axes :])
    return (
        (
            Tensor("input", "input", "T", inner, "images"),
            Tensor("output", "output", "T", outer, "images of the other size; every element is written"),
        ),
        (
            Tensor("grad_output", "input", "T", outer, "gradient of the output"),
            Tensor("grad_input", "output", "T", inner, "every element is written, also the zeros"),
        ),
    )


def _pair(
    names: tuple[str, str],
    extents: tuple[Parameter, ...],
    options: tuple[Parameter, ...],
    summary: str,
    source: str,
    after_workspace: tuple[str, ...] = (),
    moves: bool = False,
    workspace: str = _WORKSPACE,
    order: str = "",
) -> tuple[Operator, Operator]:
    """The two directions of an interpolation."""
    forward, backward = _tensors(extents)
    return (
        Operator(
            name=names[0],
            family="interpolate",
            summary=summary,
            parameters=(*extents, *options, *forward),
            variants=FLOATS,
            empty=f"An empty output: success, nothing to write. {_EMPTY}",
            bad_data="None: bits are moved."
            if moves
            else "A pixel of weight 0 does not exist, so 0 times infinity cannot leak; else NaN and infinity pass.",
            workspace=workspace,
            determinism=(BIT_STABLE if moves else _ORDER) + order + _ARITHMETIC,
            source=source,
            after_workspace=after_workspace,
        ),
        Operator(
            name=names[1],
            family="interpolate",
            summary=f"Gradient of {names[0]} with respect to its input: its exact adjoint.",
            parameters=(*extents, *options, *backward),
            variants=FLOATS,
            empty=f"An empty output: grad_input is all zeros. An empty grad_input: success. {_EMPTY}",
            bad_data="A pixel of weight 0 does not exist; else NaN and infinity pass.",
            workspace=workspace,
            determinism=_SUMS + order + _ARITHMETIC,
            source=source,
            after_workspace=after_workspace,
        ),
    )


# Behind padding, which it is near to in kind.
ORDER = 45

OPERATORS: tuple[Operator, ...] = (
    *_pair(
        ("interpolate_bilinear_2d", "interpolate_bilinear_2d_backward"),
        _EXTENTS_2D,
        (_CORNERS, _scale("scale_h_factor", "the height"), _scale("scale_w_factor", "the width")),
        f"Images of another size, bilinear. {_LINEAR}.",
        f"{_TORCH}, mode bilinear, with scale_factor or, where that is 0, size.",
        after_workspace=("align_corners", "scale_h_factor", "scale_w_factor"),
    ),
    *_pair(
        ("upsample_nearest_2d_fw", "upsample_nearest_2d_bw"),
        _EXTENTS_2D,
        (),
        f"Images of another size, the nearest pixel: {_NEAREST}.",
        f"{_TORCH}, mode nearest, with size.",
        moves=True,
    ),
    *_pair(
        ("interpolate_ex", "interpolate_ex_backward"),
        _EXTENTS_3D,
        (_OPTIONS,),
        "Volumes, images or signals of another size. Mode 2, linear: as interpolate_bilinear_2d, on every axis. Mode "
        f"0, nearest: {_NEAREST} or 1 / scale. Mode 1, nearest-exact: s (o + 1/2) in place of s o. In both elements "
        f"are moved. Mode 3, cubic, for an input_d and an output_d of 1, else status 2: "
        f"{_CUBIC}. Modes 4 and 5, linear and cubic antialiased: {_ANTIALIAS}.",
        f"{_TORCH}, modes nearest, nearest-exact, linear, bilinear, trilinear and bicubic, the images' with antialias.",
        workspace=_WORKSPACE_EX,
        order=_ORDER_ANTIALIASED,
    ),
)
