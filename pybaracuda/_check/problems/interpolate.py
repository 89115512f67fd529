# SPDX-License-Identifier: Apache-2.0
"""The problems of interpolation in every mode, and of its gradients."""

from __future__ import annotations

from collections.abc import Sequence

from ..abi_calls import Values
from ..content import Maker, any_bits, special, subnormal, underflowing, wide
from ..problem import TENTH, Family, Problem

_WIDE: dict[str, Maker] = {"input": wide, "grad_output": wide}
_SPECIAL: dict[str, Maker] = {"input": any_bits, "grad_output": special}
_UNDERFLOWING: dict[str, Maker] = {"input": underflowing, "grad_output": underflowing}
_SUBNORMAL: dict[str, Maker] = {"input": subnormal, "grad_output": subnormal}

# Name, what is special, (n, c), extents of the input and of the output.
_IMAGES: list[tuple[str, str, tuple[int, int], tuple[int, int], tuple[int, int], dict[str, Maker]]] = [
    ("double", "every extent doubled", (2, 5), (12, 16), (24, 32), _WIDE),
    ("odd", "up and down by no whole factor", (3, 3), (17, 23), (29, 11), _WIDE),
    ("shrink", "some pixels are nobody's", (1, 4), (40, 37), (7, 9), _WIDE),
    ("one-pixel", "a plane's only pixel is all of the output", (2, 3), (1, 1), (9, 270), _WIDE),
    ("long-lists", "more than 256 terms an axis: sums are cut", (1, 2), (2, 3), (515, 1030), _WIDE),
    ("copy", "equal extents", (2, 2), (7, 9), (7, 9), _SPECIAL),
    ("borders", "one past every block, vector and warp", (1, 3), (9, 545), (18, 1089), _WIDE),
    ("special", "NaN payloads, infinities, zeros of both signs and subnormals", (1, 2), (6, 11), (12, 22), _SPECIAL),
    ("subnormal", "subnormal data alone", (1, 3), (6, 7), (9, 14), _SUBNORMAL),
    ("underflow", "sums that are zeros of either sign on the way", (1, 3), (3, 20), (3, 40), _UNDERFLOWING),
    ("parallel", "enough work for several threads", (4, 8), (50, 60), (100, 120), _WIDE),
]


def _images(**more: int | float) -> list[Problem]:
    return [
        Problem(name, text, {**_of_images(images, inner, outer), **more}, makers)
        for name, text, images, inner, outer, makers in _IMAGES
    ]


def _of_images(images: tuple[int, int], inner: tuple[int, int], outer: tuple[int, int]) -> Values:
    names = ("n", "c", "input_h", "input_w", "output_h", "output_w")
    return dict(zip(names, (*images, *inner, *outer), strict=True))


def _named(problems: Sequence[Problem], suffix: str, only: tuple[str, ...]) -> list[Problem]:
    return [each._replace(name=f"{each.name}-{suffix}") for each in problems if each.name in only]


_BILINEAR = [
    *_images(align_corners=0, scale_h_factor=0.0, scale_w_factor=0.0),
    *_named(
        _images(align_corners=1, scale_h_factor=0.0, scale_w_factor=0.0),
        "corners",
        ("double", "odd", "shrink", "one-pixel", "long-lists", "special", "parallel"),
    ),
    *_named(
        _images(align_corners=0, scale_h_factor=1.7, scale_w_factor=TENTH), "by-scale", ("double", "odd", "shrink")
    ),
]


def _volume(
    mode: int,
    inner: tuple[int, int, int],
    outer: tuple[int, int, int],
    images: tuple[int, int] = (1, 3),
    align_corners: int = 0,
    scales: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> Values:
    extents = ("n", "c", "input_d", "input_h", "input_w", "output_d", "output_h", "output_w")
    values: Values = dict(zip(extents, (*images, *inner, *outer), strict=True))
    options = dict(zip(("scale_d", "scale_h", "scale_w"), scales, strict=True))
    return {**values, "mode": mode, "align_corners": align_corners, **options}


_EX = [
    Problem(f"{name}-{mode_name}", f"mode {mode_name}: {text}", _volume(mode, inner, outer, **more), makers)
    for mode, mode_name in enumerate(("nearest", "nearest-exact", "linear"))
    for name, text, inner, outer, more, makers in (
        ("volume", "a volume up on every axis", (3, 5, 7), (6, 11, 14), {"images": (2, 3)}, _WIDE),
        ("mixed", "up, down and as it is", (9, 6, 17), (4, 6, 40), {}, _WIDE),
        ("signal", "signals", (1, 1, 700), (1, 1, 1500), {"images": (3, 2)}, _WIDE),
        ("by-scale", "by scales that extents do not have", (5, 6, 7), (7, 9, 7), {"scales": (1.5, 1.7, 1.1)}, _WIDE),
        ("far-scales", "scales that are 0 and infinite as steps", (3, 4, 5), (4, 5, 6),
         {"scales": (1e300, 1e-300, 1e-45)}, _WIDE),
        ("deep", "more than 256 terms along the depth", (1, 2, 3), (520, 3, 4), {}, _WIDE),
        ("special", "NaN payloads, infinities and zeros", (2, 3, 9), (5, 6, 13), {}, _SPECIAL),
        ("subnormal", "subnormal data alone", (2, 3, 9), (4, 5, 13), {}, _SUBNORMAL),
        ("doubled", "twice the width, NaN payloads, infinities and zeros", (3, 4, 12), (6, 9, 24), {}, _SPECIAL),
        ("quadrupled", "four times the width, subnormal data", (2, 5, 6), (8, 20, 24), {}, _SUBNORMAL),
        ("doubled-signals", "signals of twice the width", (1, 1, 40), (1, 1, 80), {"images": (3, 9)}, _WIDE),
        ("parallel", "enough work for several threads", (8, 30, 40), (16, 60, 80), {"images": (2, 2)}, _WIDE),
    )
] + [
    Problem(
        f"{name}-cubic", f"mode cubic: {text}", _volume(3, (1, *inner), (1, *outer), images=images),
        # Partial sums of the largest numbers overflow, since weights add up to more than 1 in magnitude.
        {**makers, "input": special} if name == "special" else makers,
    )
    for name, text, images, inner, outer, makers in _IMAGES
] + [
    Problem(
        f"{name}-{kind}-antialias", f"{kind}, antialiased: {text}",
        _volume(mode, (1, *inner), (1, *outer), images=images),
        {**makers, "input": special} if name == "special" and kind == "cubic" else makers,
    )
    for mode, kind in ((4, "linear"), (5, "cubic"))
    for name, text, images, inner, outer, makers in (
        *_IMAGES, ("far-down", "more pixels under a filter than a chunk has", (1, 3), (70, 1300), (9, 5), _WIDE),
    )
] + [
    Problem(
        f"{name}-{kind}-antialias", f"{kind}, antialiased, {text}",
        _volume(mode, (1, *inner), (1, *outer), align_corners=aligned, scales=(0.0, *scales)), _WIDE,
    )
    for mode, kind in ((4, "linear"), (5, "cubic"))
    for name, text, inner, outer, aligned, scales in (
        ("corners", "corners are kept", (15, 30), (6, 11), 1, (0.0, 0.0)),
        ("by-scale", "by scales that extents do not have", (6, 7), (9, 7), 0, (1.7, TENTH)),
        ("far-scales", "scales that are 0 and infinite as steps", (9, 7), (9, 7), 0, (1e300, 1e-45)),
        ("far-below", "a step without end", (9, 7), (9, 7), 0, (1e-300, 1e-320)),
    )
] + [
    Problem("cubic-corners", "corners are kept", _volume(3, (1, 15, 7), (1, 6, 21), align_corners=1), _WIDE),
    Problem(
        "cubic-by-scale", "by scales that extents do not have",
        _volume(3, (1, 6, 7), (1, 9, 7), scales=(0.0, 1.7, TENTH)), _WIDE,
    ),
    Problem(
        "cubic-far-scales", "scales that are 0 and infinite as steps",
        _volume(3, (1, 9, 7), (1, 9, 7), scales=(0.0, 1e300, 1e-45)), _WIDE,
    ),
    Problem("corners", "corners are kept", _volume(2, (3, 5, 7), (6, 1, 14), align_corners=1), _WIDE),
    Problem("corners-down", "kept, fewer pixels", _volume(2, (9, 15, 7), (6, 4, 3), align_corners=1), _WIDE),
]  # fmt: skip

FAMILY = Family(
    {
        "interpolate_bilinear_2d": _BILINEAR,
        "interpolate_bilinear_2d_backward": _BILINEAR,
        "upsample_nearest_2d_fw": _images(),
        "upsample_nearest_2d_bw": _images(),
        "interpolate_ex": _EX,
        "interpolate_ex_backward": _EX,
    }
)
