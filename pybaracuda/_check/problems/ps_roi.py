# SPDX-License-Identifier: Apache-2.0
"""The problems of position-sensitive pooling and its gradients."""

from __future__ import annotations

import numpy as np

from ..abi_calls import Values
from ..content import bad_boxes, boxes, far_boxes, special, subnormal, wide
from ..problem import TENTH, Family, Problem


def _values(image: tuple[int, int, int, int], num_rois: int, bins: tuple[int, int], scale: float, ratio: int) -> Values:
    extents: Values = dict(zip(("n", "c", "h", "w", "pooled_h", "pooled_w"), image + bins, strict=True))
    return {**extents, "num_rois": num_rois, "spatial_scale": scale, "sampling_ratio": ratio}


_PROBLEMS = [
    Problem(
        "typical", "two images, 3 x 3 bins, two samples a bin and axis",
        _values((2, 3, 20, 30), 24, (3, 3), 0.25, 2),
        {"rois": boxes},
    ),
    Problem(
        "adaptive", "odd sizes, an adaptive sample count, a scale that no binary fraction holds",
        _values((3, 2, 17, 19), 11, (2, 3), TENTH, -1),
        {"rois": boxes},
    ),
    Problem(
        "many-boxes", "700 boxes over an 8 x 9 map: hundreds of terms a pixel",
        _values((1, 2, 8, 9), 700, (1, 2), 1.0, 1),
        {"rois": boxes, "input": wide, "grad_output": wide},
    ),
    Problem(
        "large-map", "a 70 x 90 map: more pixels than a warp's sums",
        _values((1, 1, 70, 90), 40, (2, 1), 0.5, 2),
        {"rois": boxes},
    ),
    Problem(
        "one-bin", "one bin, 9 channels, a column of pixels",
        _values((2, 9, 33, 1), 33, (1, 1), 0.5, 0),
        {"rois": boxes},
    ),
    Problem(
        "special", "NaN payloads, infinities, zeros of both signs and subnormals in the data; bad boxes",
        _values((1, 2, 9, 11), 40, (2, 2), 1.0, 2),
        {"rois": bad_boxes, "input": special, "grad_output": special},
    ),
    Problem(
        "subnormal", "subnormal data alone",
        _values((1, 3, 6, 7), 9, (2, 2), 1.0, 3),
        {"rois": boxes, "input": subnormal, "grad_output": subnormal},
    ),
    Problem(
        "subnormal-scale", "a scale that is subnormal, and boxes far enough for it to matter",
        _values((2, 2, 6, 7), 19, (2, 1), float(np.float32(1e-40)), 3),
        {"rois": far_boxes},
    ),
]  # fmt: skip

FAMILY = Family({"ps_roi": _PROBLEMS})
