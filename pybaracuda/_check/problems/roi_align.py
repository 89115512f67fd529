# SPDX-License-Identifier: Apache-2.0
"""The problems of roi_align and its gradient."""

from __future__ import annotations

import numpy as np

from ..abi_calls import Values
from ..content import bad_boxes, boxes, far_boxes, special, subnormal, wide
from ..problem import TENTH, Family, Problem


def _values(
    image: tuple[int, int, int, int], num_rois: int, bins: tuple[int, int], scale: float, ratio: int, aligned: int
) -> Values:
    extents_: Values = dict(zip(("n", "c", "h", "w", "pooled_h", "pooled_w"), image + bins, strict=True))
    return {**extents_, "num_rois": num_rois, "spatial_scale": scale, "sampling_ratio": ratio, "aligned": aligned}


_PROBLEMS = [
    Problem(
        "typical", "two images, 7 x 7 bins, two samples a bin and axis",
        _values((2, 5, 20, 30), 24, (7, 7), 0.25, 2, 1),
        {"rois": boxes},
    ),
    Problem(
        "adaptive", "odd sizes, an adaptive sample count, a scale that no binary fraction holds",
        _values((3, 3, 17, 19), 11, (3, 5), TENTH, -1, 0),
        {"rois": boxes},
    ),
    Problem(
        "small-map", "200 boxes on an 8 x 9 map: the sum over boxes is cut into 4 blocks",
        _values((1, 2, 8, 9), 200, (2, 3), 1.0, 1, 0),
        {"rois": boxes, "input": wide, "grad_output": wide},
    ),
    Problem(
        "many-boxes", "700 boxes over a 4 x 4 map: blocks of many boxes, hundreds of terms a pixel",
        _values((1, 1, 4, 4), 700, (1, 2), 0.5, 2, 1),
        {"rois": boxes, "input": wide, "grad_output": wide},
    ),
    Problem(
        "borders", "65 channels and a 17 x 65 map, one past every tile and channel block; two blocks of boxes",
        _values((1, 65, 17, 65), 70, (2, 2), 0.5, 0, 1),
        {"rois": boxes},
    ),
    Problem(
        "special", "NaN payloads, infinities, zeros of both signs and subnormals in the data; bad boxes",
        _values((1, 2, 9, 11), 40, (2, 2), 1.0, 2, 0),
        {"rois": bad_boxes, "input": special, "grad_output": special},
    ),
    Problem(
        "subnormal", "subnormal data alone",
        _values((1, 3, 6, 7), 9, (2, 2), 1.0, 3, 1),
        {"rois": boxes, "input": subnormal, "grad_output": subnormal},
    ),
    Problem(
        "subnormal-scale", "a scale that is subnormal, and boxes far enough for it to matter",
        _values((2, 3, 6, 7), 19, (2, 3), float(np.float32(1e-40)), 3, 0),
        {"rois": far_boxes},
    ),
]  # fmt: skip

FAMILY = Family({"roi_align": _PROBLEMS})
