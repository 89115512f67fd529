# SPDX-License-Identifier: Apache-2.0
"""pixel_shuffle and pixel_unshuffle, as the ABI states them. Each is the other's gradient."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, INT32_MAX, Operator, Parameter, Scalar, Tensor, extent


def _extents(factor: str) -> tuple[Parameter, ...]:
    return (
        extent("n", "images in the batch"),
        extent("c", "channels of the image with more pixels"),
        extent("h", "height of the image with more channels, in pixels"),
        extent("w", "width of the image with more channels, in pixels"),
        Scalar(factor, "i32", "how many times as high and as wide one image is as the other", low=1, high=INT32_MAX),
    )


def _deep(factor: str) -> tuple[str, ...]:
    return ("n", f"c * {factor} * {factor}", "h", "w")


def _wide(factor: str) -> tuple[str, ...]:
    return ("n", "c", f"h * {factor}", f"w * {factor}")


_BAD_DATA = "Elements are moved as bits: NaN payloads and the signs of zeros stay."
_SOURCE = "Shi et al., Real-Time Single Image and Video Super-Resolution, 2016; "

# Beside pad.
ORDER = 35

OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="pixel_shuffle",
        family="pixel_shuffle",
        summary=(
            "Channels become pixels: with f = upscale_factor, output[n, c, h f + i, w f + j] is "
            "input[n, (c f + i) f + j, h, w]. Its gradient is pixel_unshuffle."
        ),
        parameters=(
            *_extents("upscale_factor"),
            Tensor("input", "input", "T", _deep("upscale_factor"), "images with more channels"),
            Tensor("output", "output", "T", _wide("upscale_factor"), "images with more pixels; every one is written"),
        ),
        variants=FLOATS,
        empty="No elements: success, nothing to write.",
        bad_data=_BAD_DATA,
        workspace="None.",
        determinism=BIT_STABLE,
        source=_SOURCE + "torch.nn.functional.pixel_shuffle (2.11).",
    ),
    Operator(
        name="pixel_unshuffle",
        family="pixel_shuffle",
        summary=(
            "Pixels become channels, the inverse of pixel_shuffle: with f = downscale_factor, "
            "output[n, (c f + i) f + j, h, w] is input[n, c, h f + i, w f + j]. Its gradient is pixel_shuffle."
        ),
        parameters=(
            *_extents("downscale_factor"),
            Tensor("input", "input", "T", _wide("downscale_factor"), "images with more pixels"),
            Tensor("output", "output", "T", _deep("downscale_factor"), "images with more channels; all are written"),
        ),
        variants=FLOATS,
        empty="No elements: success, nothing to write.",
        bad_data=_BAD_DATA,
        workspace="None.",
        determinism=BIT_STABLE,
        source=_SOURCE + "torch.nn.functional.pixel_unshuffle (2.11).",
    ),
)
