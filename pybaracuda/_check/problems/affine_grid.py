# SPDX-License-Identifier: Apache-2.0
"""The problems of affine_grid_2d and its gradient."""

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

FAMILY = Family({"affine_grid": _PROBLEMS})
