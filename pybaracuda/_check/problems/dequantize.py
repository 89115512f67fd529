# SPDX-License-Identifier: Apache-2.0
"""The problems of dequantize_per_channel and its gradient."""

from __future__ import annotations

from ..content import Maker, far_zero_points, plain, scales, special, subnormal, subnormal_singles, zero_points
from ..problem import Family, Problem

_MAKERS: dict[str, Maker] = {"scale": scales, "zero_point": zero_points}
_PROBLEMS = [
    *(
        Problem(f"axis-{axis}", f"channels along axis {axis}", {"shape": [3, 5, 7, 11], "axis": axis}, _MAKERS)
        for axis in range(4)
    ),
    Problem("one-channel", "a single channel of odd length", {"shape": [1, 1, 1, 259], "axis": 1}, _MAKERS),
    Problem("special", "scales that are zero, subnormal, infinite or NaN", {"shape": [2, 40, 1, 33], "axis": 1},
            {"scale": special, "zero_point": zero_points, "grad_output": special}),
    Problem("far-zero-points", "zero points up to 2^15", {"shape": [2, 40, 1, 33], "axis": 1},
            {"scale": scales, "zero_point": far_zero_points}),
    Problem("parallel", "enough work for several threads", {"shape": [4, 33, 40, 41], "axis": 1}, _MAKERS),
    Problem("subnormal", "products that are subnormal", {"shape": [1, 20, 1, 31], "axis": 1},
            {"scale": subnormal, "zero_point": zero_points, "grad_output": plain}),
    Problem("subnormal-scale", "scales that are subnormal in f32, also where they are f64",
            {"shape": [2, 20, 1, 31], "axis": 1}, {"scale": subnormal_singles, "zero_point": zero_points}),
]  # fmt: skip

FAMILY = Family({"dequantize": _PROBLEMS})
