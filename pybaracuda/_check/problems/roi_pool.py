# SPDX-License-Identifier: Apache-2.0
"""The problems of roi_pool and its gradient."""

from __future__ import annotations

import numpy as np

from .. import content
from ..abi_calls import Values
from ..content import any_bits, bad_boxes, far_boxes, special, subnormal, tied, wide
from ..problem import TENTH, Family, Problem
from ..splitmix import Array, encoded, integers


def _values(image: tuple[int, int, int, int], num_rois: int, bins: tuple[int, int], scale: float) -> Values:
    extents_: Values = dict(zip(("n", "c", "h", "w", "pooled_h", "pooled_w"), image + bins, strict=True))
    return {**extents_, "num_rois": num_rois, "spatial_scale": scale}


def _unscaled(maker: content.Maker) -> content.Maker:
    """The maker for both directions: the gradient has no scale, and of its boxes the image alone is read."""

    def make(seed: int, count: int, token: str, values: Values) -> Array:
        return maker(seed, count, token, {"spatial_scale": 1.0, **values})

    return make


_BOXES = _unscaled(content.boxes)


def _pixels(seed: int, count: int, token: str, values: Values) -> Array:
    """Places in a plane, and -1 and the first one behind it now and then."""
    height, width = values["h"], values["w"]
    assert isinstance(height, int)
    assert isinstance(width, int)
    return encoded(integers(seed, count, -1, height * width), token)


def _few_pixels(seed: int, count: int, token: str, values: Values) -> Array:
    """Four places of a plane, so that their sums are long."""
    return encoded(integers(seed, count, 0, 3), token)


_PROBLEMS = [
    Problem(
        "typical", "two images, 7 x 7 bins",
        _values((2, 5, 20, 30), 24, (7, 7), 0.25),
        {"rois": _BOXES, "argmax": _pixels},
    ),
    Problem(
        "odd", "odd sizes, a scale that no binary fraction holds",
        _values((3, 3, 17, 19), 11, (3, 5), TENTH),
        {"rois": _BOXES, "argmax": _pixels},
    ),
    Problem(
        "ties", "few distinct values, zeros of both signs: the first pixel wins",
        _values((1, 4, 12, 9), 17, (3, 3), 1.0),
        {"rois": _BOXES, "argmax": _pixels, "input": tied},
    ),
    Problem(
        "small-map", "200 boxes on an 8 x 9 map: the sum over boxes is cut into 4 blocks",
        _values((1, 2, 8, 9), 200, (2, 3), 1.0),
        {"rois": _BOXES, "argmax": _pixels, "input": wide, "grad_output": wide},
    ),
    Problem(
        "hot-pixels", "700 boxes that name four pixels: blocks of many boxes, hundreds of terms a pixel",
        _values((1, 1, 4, 4), 700, (1, 2), 0.5),
        {"rois": _BOXES, "argmax": _few_pixels, "input": wide, "grad_output": wide},
    ),
    Problem(
        "borders", "65 channels and a 17 x 65 map, one past every tile and channel block; 45 bins",
        _values((1, 65, 17, 65), 70, (5, 9), 0.5),
        {"rois": _BOXES, "argmax": _pixels},
    ),
    Problem(
        "special", "NaN payloads, infinities, zeros of both signs and subnormals in the data; bad boxes",
        _values((1, 2, 9, 11), 40, (2, 2), 1.0),
        {"rois": _unscaled(bad_boxes), "argmax": _pixels, "input": any_bits, "grad_output": special},
    ),
    Problem(
        "subnormal", "subnormal data alone",
        _values((1, 3, 6, 7), 9, (2, 2), 1.0),
        {"rois": _BOXES, "argmax": _pixels, "input": subnormal, "grad_output": subnormal},
    ),
    Problem(
        "subnormal-scale", "a scale that is subnormal, and boxes far enough for it to matter",
        _values((2, 3, 6, 7), 19, (2, 3), float(np.float32(1e-40))),
        {"rois": _unscaled(far_boxes), "argmax": _pixels},
    ),
    Problem(
        "parallel", "enough work for several threads",
        _values((2, 24, 60, 70), 60, (7, 7), 0.5),
        {"rois": _BOXES, "argmax": _pixels, "grad_output": wide},
    ),
]  # fmt: skip

FAMILY = Family({"roi_pool": _PROBLEMS})
