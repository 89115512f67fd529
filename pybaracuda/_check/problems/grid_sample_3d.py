# SPDX-License-Identifier: Apache-2.0
"""The problems of grid_sample_3d and its gradients."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import Maker, bad_positions, centre, far_positions, on_pixels, positions, special, subnormal, wide
from ..problem import Family, Problem

_MODES, _PADDINGS = ("bilinear", "nearest"), ("zeros", "border", "reflection")


def _problem(
    name: str,
    description: str,
    batch: tuple[int, int],
    input: tuple[int, int, int],
    output: tuple[int, int, int],
    makers: dict[str, Maker],
    mode: int = 0,
    padding: int = 0,
    aligns: int = 0,
    gradients: int = 0,
    shares: int = 0,
) -> Problem:
    values: Values = dict(zip(("n", "c"), batch, strict=True))
    values |= dict(zip(("input_d", "input_h", "input_w"), input, strict=True))
    values |= dict(zip(("output_d", "output_h", "output_w"), output, strict=True))
    values |= {"mode": mode, "padding_mode": padding, "align_corners": aligns, "gradients": gradients}
    values["shares_input"] = shares
    return Problem(name, description, values, makers)


_WIDE: dict[str, Maker] = {"input": wide, "grad_output": wide}
_FAR: dict[str, Maker] = {"grid": far_positions, **_WIDE}
_NEAR: dict[str, Maker] = {"grid": positions, **_WIDE}
_SPECIAL: dict[str, Maker] = {"grid": bad_positions, "input": special, "grad_output": special}
_PROBLEMS = [
    _problem("typical", "two volumes, samples in and around them", (2, 3), (6, 7, 9), (5, 8, 6), {"grid": positions}),
    *(
        _problem(f"{mode}-{padding}{'-aligned' if aligns else ''}", f"{mode} samples, outside is {padding}", (2, 3),
                 (5, 9, 7), (6, 4, 7), _FAR, _MODES.index(mode), _PADDINGS.index(padding), aligns)
        for mode in _MODES for padding in _PADDINGS for aligns in (0, 1)
    ),
    *(
        _problem(f"on-voxels-{_PADDINGS[padding]}-{_MODES[mode]}", "eighths: borders, ties, weights of 0",
                 (1, 5), (2, 8, 4), (3, 11, 3), {"grid": on_pixels}, mode, padding, padding % 2)
        for mode in (0, 1) for padding in (0, 1, 2)
    ),
    _problem("one-voxel", "a volume of one voxel, of which nothing moves", (1, 2), (1, 1, 1), (1, 1, 257), _FAR, 0, 1,
             1),
    *(
        _problem(f"list-of-{count}", f"one voxel with exactly {count} terms", (1, 2), (1, 1, 1), (1, 1, count),
                 {"grid": centre, **_WIDE})
        for count in (255, 256, 257, 513)
    ),
    _problem("crowded", "2,744 samples on 2 x 3 x 2 voxels: a list of more than 2,048", (1, 2), (2, 3, 2), (14, 14, 14),
             _NEAR),
    _problem("tiles", "voxels one past a tile on each axis", (1, 9), (5, 9, 17), (9, 10, 11), _NEAR),
    *(
        _problem(f"channels-{count}", f"{count} channels: the grid's gradient is cut every 64", (1, count), (2, 4, 5),
                 (3, 2, 7), _NEAR)
        for count in (63, 64, 65, 130)
    ),
    _problem("parallel", "enough work for several threads", (2, 12), (12, 14, 18), (16, 17, 15), _FAR, 0, 2, 1),
    *(
        _problem(f"special-{_PADDINGS[padding]}", "NaN payloads, infinities, zeros and subnormals in data and grid",
                 (2, 2), (4, 7, 5), (3, 12, 4), _SPECIAL, 0, padding, 1 - padding // 2)
        for padding in (0, 1, 2)
    ),
    _problem("special-nearest", "the same where the nearest voxel is taken", (2, 2), (4, 7, 5), (3, 12, 4), _SPECIAL, 1,
             1),
    _problem("subnormal", "subnormal data alone", (1, 3), (3, 5, 4), (3, 6, 5),
             {"grid": far_positions, "input": subnormal, "grad_output": subnormal}, 0, 2),
    _problem("of-input-alone", "the gradient to the input alone", (2, 6), (5, 9, 7), (6, 4, 7), _FAR, gradients=1),
    _problem("of-grid-alone", "the gradient to the grid alone", (2, 6), (5, 9, 7), (6, 4, 7), _FAR, gradients=2),
    *(
        _problem(f"shared-{mode}", f"{mode} samples of one volume at three grids", (3, 9), (5, 9, 7), (6, 4, 7), _FAR,
                 _MODES.index(mode), shares=1)
        for mode in _MODES
    ),
    _problem("shared-of-grid-alone", "the same, and the gradient to the grids alone", (3, 70), (5, 9, 7), (6, 4, 7),
             _FAR, gradients=2, shares=1),
    _problem("of-grid-alone-130", "the same of 130 channels", (1, 130), (4, 3, 5), (3, 5, 7), _FAR, gradients=2),
]  # fmt: skip

FAMILY = Family({"grid_sample_3d": _PROBLEMS})
