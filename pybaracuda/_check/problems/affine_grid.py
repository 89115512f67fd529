# SPDX-License-Identifier: Apache-2.0
"""The problems of affine_grid_2d, affine_grid_2d_ex, affine_grid_3d and their gradients."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import Maker, plain, special, subnormal, wide
from ..problem import Family, Problem


def _values(n: int, output_h: int, output_w: int) -> Values:
    return {"n": n, "output_h": output_h, "output_w": output_w}


_WIDE: dict[str, Maker] = {"theta": plain, "grad_grid": wide}
_PROBLEMS = [
    Problem("typical", "three maps of 13 x 17", _values(3, 13, 17), _WIDE),
    Problem("one-sample", "1 x 1", _values(2, 1, 1), _WIDE),
    *(
        Problem(f"list-of-{h * w}", f"{h} x {w} samples: sums of {h * w} terms", _values(1, h, w), _WIDE)
        for h, w in ((15, 17), (16, 16), (257, 1), (1, 512), (19, 27))
    ),
    Problem("parallel", "enough work for several threads", _values(4, 150, 130), _WIDE),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _values(8, 5, 7),
            {"theta": special, "grad_grid": special}),
    Problem("subnormal", "subnormal data alone", _values(2, 9, 31), {"theta": subnormal, "grad_grid": subnormal}),
]  # fmt: skip

# One-sample has axes of one sample, whose centre is at 0.
_ALIGNED = [problem._replace(values={**problem.values, "align_corners": 1}) for problem in _PROBLEMS]
_EX_PROBLEMS = [
    *_ALIGNED,
    Problem("edges", "the same positions as without options", {**_values(3, 13, 17), "align_corners": 0}, _WIDE),
]


def _volumes(n: int, output_d: int, output_h: int, output_w: int, align_corners: int) -> Values:
    return {**_values(n, output_h, output_w), "output_d": output_d, "align_corners": align_corners}


_3D_PROBLEMS = [
    *(
        Problem(f"typical{'-aligned' * aligned}", "three maps of 5 x 7 x 9", _volumes(3, 5, 7, 9, aligned), _WIDE)
        for aligned in (0, 1)
    ),
    Problem("one-sample", "1 x 1 x 1, at 0", _volumes(2, 1, 1, 1, 1), _WIDE),
    *(
        Problem(f"list-of-{d * h * w}", f"{d} x {h} x {w} samples: sums of {d * h * w} terms",
                _volumes(1, d, h, w, 0), _WIDE)
        for d, h, w in ((5, 3, 17), (4, 8, 8), (257, 1, 1), (1, 2, 256), (3, 9, 19))
    ),
    Problem("parallel", "enough work for several threads", _volumes(4, 27, 28, 26, 1), _WIDE),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _volumes(8, 3, 5, 7, 0),
            {"theta": special, "grad_grid": special}),
    Problem("subnormal", "subnormal data alone", _volumes(2, 3, 3, 31, 0),
            {"theta": subnormal, "grad_grid": subnormal}),
]  # fmt: skip

FAMILY = Family(
    {
        "affine_grid": _PROBLEMS,
        "affine_grid_2d_ex": _EX_PROBLEMS,
        "affine_grid_2d_ex_backward": _EX_PROBLEMS,
        "affine_grid_3d": _3D_PROBLEMS,
        "affine_grid_3d_backward": _3D_PROBLEMS,
    }
)
