# SPDX-License-Identifier: Apache-2.0
"""The problems of the sampling of deformable convolution and of its gradients."""

from __future__ import annotations

import numpy as np

from ..abi_calls import Values
from ..content import Maker, special, subnormal, wide
from ..problem import Family, Problem
from ..splitmix import Array, encoded, integers, numbers


def _moves(seed: int, count: int, token: str, values: Values) -> Array:
    """Offsets of up to three pixels."""
    return encoded(numbers(seed, count, "f32", -3.0, 3.0), token)


def _halves(seed: int, count: int, token: str, values: Values) -> Array:
    """Halves from -4 to 4: samples on pixels, on borders and half-way, where weights are exactly 0 or 1/2."""
    return encoded(integers(seed, count, -8, 8) / 2, token)


def _centred(seed: int, count: int, token: str, values: Values) -> Array:
    """Offsets that move every tap of a kernel of one row to the first pixel."""
    half = count // 2
    return encoded(np.stack([np.zeros(half), -np.arange(half)], axis=1).ravel(), token)


def _bad_moves(seed: int, count: int, token: str, values: Values) -> Array:
    """Offsets with NaN, infinite, huge and subnormal ones among them."""
    bad = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**31, -(2.0**31), 1e-40, -0.0, -1.0], np.float32)
    content = numbers(seed, count, "f32", -3.0, 3.0).astype(np.float32)
    content[::7] = bad[integers(seed ^ 1, count, 0, len(bad) - 1)][::7]
    return encoded(content, token)


def _shares(seed: int, count: int, token: str, values: Values) -> Array:
    """Masks in [0, 1), every ninth of them 0."""
    content = numbers(seed, count, "f32", 0.0, 1.0).astype(np.float32)
    content[::9] = 0
    return encoded(content, token)


def _bad_shares(seed: int, count: int, token: str, values: Values) -> Array:
    """Masks with NaN, infinities and zeros of both signs among them."""
    bad = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40], np.float32)
    content = numbers(seed, count, "f32", -1.0, 1.0).astype(np.float32)
    content[::11] = bad[integers(seed ^ 1, count, 0, len(bad) - 1)][::11]
    return encoded(content, token)


def _problem(
    name: str,
    description: str,
    input: tuple[int, int, int, int, int],
    output: tuple[int, int],
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    mask: bool = True,
    makers: dict[str, Maker] | None = None,
) -> Problem:
    values: Values = dict(zip(("n", "offset_groups", "c", "h", "w"), input, strict=True))
    given = {"output": output, "kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    for field, pair in given.items():
        values |= {f"{field}_h": pair[0], f"{field}_w": pair[1]}
    values["has_mask"] = int(mask)
    every: dict[str, Maker] = {"offset": _moves, "mask": _shares, "input": wide, "grad_columns": wide}
    return Problem(name, description, values, {**every, **(makers or {})})


_SPECIAL: dict[str, Maker] = {"input": special, "grad_columns": special}
_PROBLEMS = [
    _problem("typical", "two images, two groups, a kernel of 3 x 3, masks", (2, 2, 3, 9, 11), (9, 11)),
    _problem("without-mask", "the same without a mask", (2, 2, 3, 9, 11), (9, 11), mask=False),
    _problem("strided", "another stride, padding and dilation on each axis", (2, 1, 5, 17, 19), (7, 19), (3, 2), (2, 1),
             (1, 2), (2, 4)),
    _problem("halves", "samples on pixels and half-way, weights of 0", (1, 2, 4, 8, 7), (8, 7),
             makers={"offset": _halves}),
    _problem("pointwise", "a kernel of one tap", (3, 1, 9, 5, 33), (5, 33), (1, 1), padding=(0, 0)),
    _problem("outside", "positions far beyond the image", (1, 1, 2, 4, 5), (20, 18), padding=(7, 6)),
    *(
        _problem(f"list-of-{count}", f"a pixel with exactly {count} terms", (1, 1, 3, 1, 1), (1, 1), (1, count),
                 padding=(0, 0), makers={"offset": _centred})
        for count in (32, 33, 64, 65, 255, 256, 257, 513)
    ),
    _problem("crowded", "1,296 samples on 2 x 3 pixels: lists of many partial sums", (1, 2, 2, 2, 3), (12, 12),
             padding=(6, 6)),
    *(
        _problem(f"channels-{count}", f"{count} channels: sums by offset are cut every 64", (1, 1, count, 5, 6), (5, 6),
                 (1, 3), padding=(0, 1))
        for count in (15, 16, 17, 63, 64, 65, 130, 300)
    ),
    _problem("parallel", "enough work for several threads", (2, 2, 12, 24, 26), (24, 26)),
    _problem("special", "NaN payloads, infinities, zeros and subnormals in data, offsets and masks", (2, 1, 3, 8, 9),
             (8, 9), makers={"offset": _bad_moves, "mask": _bad_shares, **_SPECIAL}),
    _problem("special-without-mask", "the same without a mask", (2, 1, 3, 8, 9), (8, 9), mask=False,
             makers={"offset": _bad_moves, **_SPECIAL}),
    _problem("subnormal", "subnormal data alone", (1, 1, 3, 6, 5), (6, 5),
             makers={"input": subnormal, "grad_columns": subnormal}),
]  # fmt: skip


FAMILY = Family({"deform_im2col": _PROBLEMS})
