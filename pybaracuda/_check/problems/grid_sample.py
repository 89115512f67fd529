# SPDX-License-Identifier: Apache-2.0
"""The problems of grid_sample_2d and its gradients."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import bad_positions, centre, on_pixels, positions, special, subnormal, wide
from ..problem import Family, Problem


def _values(n: int, c: int, input_h: int, input_w: int, output_h: int, output_w: int) -> Values:
    return {"n": n, "c": c, "input_h": input_h, "input_w": input_w, "output_h": output_h, "output_w": output_w}


_PROBLEMS = [
    Problem("typical", "two images, samples in and around them", _values(2, 3, 16, 18, 13, 17), {"grid": positions}),
    Problem("on-pixels", "coordinates in eighths: weights of exactly 0, 1/2 and 1", _values(1, 5, 8, 4, 11, 3),
            {"grid": on_pixels}),
    Problem("crowded", "728 samples on 3 x 3 pixels: lists of more than 256 terms", _values(2, 2, 3, 3, 28, 26),
            {"grid": positions, "input": wide, "grad_output": wide}),
    *(
        Problem(f"list-of-{count}", f"one pixel with exactly {count} terms", _values(1, 2, 1, 1, 1, count),
                {"grid": centre, "input": wide, "grad_output": wide})
        for count in (255, 256, 257, 512, 513)
    ),
    *(
        Problem(f"channels-{count}", f"{count} channels: the grid's gradient is cut every 64",
                _values(1, count, 4, 5, 3, 7), {"grid": positions, "input": wide, "grad_output": wide})
        for count in (63, 64, 65, 130)
    ),
    Problem("parallel", "enough work for several threads", _values(2, 12, 48, 50, 70, 66), {"grid": positions}),
    Problem("special", "NaN payloads, infinities, zeros and subnormals in data and grid", _values(2, 2, 7, 9, 12, 11),
            {"grid": bad_positions, "input": special, "grad_output": special}),
    Problem("subnormal", "subnormal data alone", _values(1, 3, 5, 5, 6, 7),
            {"grid": positions, "input": subnormal, "grad_output": subnormal}),
]  # fmt: skip

FAMILY = Family({"grid_sample": _PROBLEMS})
