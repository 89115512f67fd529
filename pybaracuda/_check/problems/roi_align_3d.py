# SPDX-License-Identifier: Apache-2.0
"""The problems of roi_align of volumes and its gradient."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import bad_boxes_3d, boxes_3d, special, subnormal, wide
from ..problem import TENTH, Family, Problem

_Axes = tuple[int, int, int]


def _values(
    n: int, c: int, volume: _Axes, num_rois: int, bins: _Axes, scale: float, ratio: int, aligned: int
) -> Values:
    extents: Values = dict(zip(("d", "h", "w", "pooled_d", "pooled_h", "pooled_w"), volume + bins, strict=True))
    return {
        **extents, "n": n, "c": c, "num_rois": num_rois, "spatial_scale": scale, "sampling_ratio": ratio,
        "aligned": aligned,
    }  # fmt: skip


_PROBLEMS = [
    Problem(
        "typical", "two volumes, 3 x 3 x 3 bins, two samples a bin and axis",
        _values(2, 5, (9, 11, 21), 14, (3, 3, 3), 0.25, 2, 1),
        {"rois": boxes_3d},
    ),
    Problem(
        "adaptive", "odd sizes, an adaptive sample count, a scale that no binary fraction holds",
        _values(3, 3, (7, 9, 17), 11, (2, 3, 5), TENTH, -1, 0),
        {"rois": boxes_3d},
    ),
    Problem(
        "many-boxes", "500 boxes over a 5 x 6 x 7 volume: several blocks of boxes",
        _values(1, 2, (5, 6, 7), 500, (2, 1, 2), 1.0, 1, 1),
        {"rois": boxes_3d, "input": wide, "grad_output": wide},
    ),
    Problem(
        "long-rows", "rows of 150 voxels and 17 channels: more than a line's columns and a block's channels",
        _values(1, 17, (3, 5, 150), 9, (2, 2, 7), 0.5, 2, 1),
        {"rois": boxes_3d},
    ),
    Problem(
        "many-bins", "11 x 10 x 35 bins: several passes over each axis",
        _values(1, 1, (12, 13, 19), 3, (11, 10, 35), 1.0, 2, 0),
        {"rois": boxes_3d},
    ),
    Problem(
        "thin", "one voxel along two axes, one bin",
        _values(2, 9, (1, 33, 1), 13, (1, 1, 1), 0.5, 0, 1),
        {"rois": boxes_3d},
    ),
    Problem(
        "special", "NaN payloads, infinities, zeros of both signs and subnormals in the data; bad boxes",
        _values(1, 2, (5, 9, 11), 40, (2, 2, 2), 1.0, 2, 0),
        {"rois": bad_boxes_3d, "input": special, "grad_output": special},
    ),
    Problem(
        "subnormal", "subnormal data alone",
        _values(1, 3, (4, 6, 7), 9, (2, 2, 2), 1.0, 3, 1),
        {"rois": boxes_3d, "input": subnormal, "grad_output": subnormal},
    ),
]  # fmt: skip

FAMILY = Family({"roi_align_3d": _PROBLEMS})
