# SPDX-License-Identifier: Apache-2.0
"""The problems of grid_sample_2d, grid_sample_2d_ex and their gradients."""

from __future__ import annotations

from ..abi_calls import Values
from ..content import Maker, bad_positions, centre, far_positions, on_pixels, positions, special, subnormal, wide
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

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _ruled(
    name: str,
    description: str,
    sizes: Values,
    makers: dict[str, Maker],
    mode: int = 0,
    padding: int = 2,
    aligns: int = 0,
    gradients: int = 0,
    shares: int = 0,
) -> Problem:
    rule = {"mode": mode, "padding_mode": padding, "align_corners": aligns, "gradients": gradients}
    rule["shares_input"] = shares
    return Problem(name, description, {**sizes, **rule}, makers)


_FAR: dict[str, Maker] = {"grid": far_positions, "input": wide, "grad_output": wide}
_EX_PROBLEMS = [
    *(
        _ruled(f"{mode}-{padding}{'-aligned' if aligns else ''}", f"{mode} samples, outside is {padding}",
               _values(2, 3, 9, 7, 13, 11), _FAR, _MODES.index(mode), _PADDINGS.index(padding), aligns)
        for mode in _MODES for padding in _PADDINGS for aligns in (0, 1)
    ),
    *(
        _ruled(f"on-pixels-{_PADDINGS[padding]}-{_MODES[mode]}", "coordinates in eighths: borders, ties, weights of 0",
               _values(1, 5, 8, 4, 11, 3), {"grid": on_pixels}, mode, padding, padding % 2)
        for mode in (0, 1) for padding in (1, 2)
    ),
    _ruled("one-pixel", "an image of one pixel, of which nothing moves", _values(1, 2, 1, 1, 1, 257), _FAR, 0, 1, 1),
    _ruled("list-of-513", "one pixel with exactly 513 terms", _values(1, 2, 1, 1, 1, 513),
           {"grid": centre, "input": wide, "grad_output": wide}, 1),
    _ruled("crowded", "728 samples on 3 x 3 pixels: lists of more than 256 terms", _values(2, 2, 3, 3, 28, 26), _FAR),
    _ruled("channels-65", "65 channels: the grid's gradient is cut every 64", _values(1, 65, 4, 5, 3, 7), _FAR),
    _ruled("parallel", "enough work for several threads", _values(2, 12, 48, 50, 70, 66), _FAR, 0, 2, 1),
    *(
        _ruled(f"special-{_PADDINGS[padding]}", "NaN payloads, infinities, zeros and subnormals in data and grid",
               _values(2, 2, 7, 9, 12, 11), {"grid": bad_positions, "input": special, "grad_output": special},
               0, padding, 1 - padding // 2)
        for padding in (0, 1, 2)
    ),
    _ruled("special-nearest", "the same where the nearest pixel is taken", _values(2, 2, 7, 9, 12, 11),
           {"grid": bad_positions, "input": special, "grad_output": special}, 1, 1),
    *(
        _ruled(f"special-bicubic-{_PADDINGS[padding]}", "the same of bicubic samples", _values(2, 2, 7, 9, 12, 11),
               {"grid": bad_positions, "input": special, "grad_output": special}, 2, padding)
        for padding in (0, 1, 2)
    ),
    _ruled("on-pixels-bicubic", "coordinates in eighths: bicubic weights of exactly 0", _values(1, 5, 8, 4, 11, 3),
           {"grid": on_pixels}, 2, 1, 1),
    _ruled("crowded-bicubic", "lists of more than 256 bicubic terms", _values(2, 2, 3, 3, 28, 26), _FAR, 2, 1),
    _ruled("list-of-513-bicubic", "one pixel with 16 x 513 terms", _values(1, 2, 1, 1, 1, 513), _FAR, 2, 2),
    _ruled("parallel-bicubic", "bicubic work for several threads", _values(2, 70, 48, 50, 33, 66), _FAR, 2),
    _ruled("of-input-alone-bicubic", "the gradient to the input alone", _values(2, 6, 9, 7, 13, 11), _FAR, 2,
           gradients=1),
    _ruled("of-grid-alone-bicubic", "the gradient to the grid alone", _values(2, 130, 9, 7, 13, 11), _FAR, 2,
           gradients=2),
    _ruled("subnormal", "subnormal data alone", _values(1, 3, 5, 5, 6, 7),
           {"grid": far_positions, "input": subnormal, "grad_output": subnormal}),
    _ruled("of-input-alone", "the gradient to the input alone", _values(2, 6, 9, 7, 13, 11), _FAR, gradients=1),
    _ruled("of-grid-alone", "the gradient to the grid alone", _values(2, 6, 9, 7, 13, 11), _FAR, gradients=2),
    _ruled("of-grid-alone-130", "the same of 130 channels", _values(1, 130, 4, 5, 3, 47), _FAR, 0, 0, gradients=2),
    *(
        _ruled(f"shared-{mode}", f"{mode} samples of one image at three grids", _values(3, 9, 9, 7, 13, 11), _FAR,
               _MODES.index(mode), 0, shares=1)
        for mode in _MODES
    ),
    _ruled("shared-of-grid-alone", "the same, and the gradient to the grids alone", _values(3, 70, 9, 7, 13, 11), _FAR,
           gradients=2, shares=1),
    _ruled("shared-of-grid-alone-bicubic", "the same of bicubic samples", _values(3, 70, 9, 7, 13, 11), _FAR, 2,
           gradients=2, shares=1),
]  # fmt: skip

FAMILY = Family(
    {"grid_sample": _PROBLEMS, "grid_sample_2d_ex": _EX_PROBLEMS, "grid_sample_2d_ex_backward": _EX_PROBLEMS}
)
