# SPDX-License-Identifier: Apache-2.0
"""The problems of roi_align, of one map and of several, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def _on_first_map(make: Callable[[int, int, str, Values], Any]) -> Callable[[int, int, str, Values], Any]:
    """Boxes as on one map, the first."""

    def made(seed: int, count: int, token: str, values: Values) -> Any:
        first = {"h": "heights", "w": "widths", "spatial_scale": "spatial_scales"}
        entries = {name: values[array] for name, array in first.items()}
        return make(seed, count, token, {**values, **{k: v[0] for k, v in entries.items() if isinstance(v, list)}})

    return made


def _levels(
    maps: tuple[int, int, list[int], list[int]],
    scale: float,
    num_rois: int,
    bins: tuple[int, int],
    ratio: int,
    aligned: int,
    canonical_scale: float,
) -> Values:
    """A pyramid whose second level is called 3, and each of whose scales is half of the one before."""
    n, c, heights, widths = maps
    return {
        "num_levels": len(heights), "n": n, "c": c, "heights": heights, "widths": widths,
        "spatial_scales": [scale / 2**level for level in range(len(heights))], "num_rois": num_rois,
        "pooled_h": bins[0], "pooled_w": bins[1], "sampling_ratio": ratio, "aligned": aligned, "k_min": 2,
        "canonical_level": 4, "canonical_scale": canonical_scale,
    }  # fmt: skip


_SPECIAL_MAPS = {f"input_{level}": special for level in range(8)}
_WIDE_MAPS = {f"input_{level}": wide for level in range(8)}
_SUBNORMAL_MAPS = {f"input_{level}": subnormal for level in range(8)}
_OF_LEVELS = [
    Problem(
        "pyramid", "two images, four maps each half of the one before, 7 x 7 bins, two samples a bin and axis",
        _levels((2, 5, [20, 10, 5, 3], [30, 15, 8, 4]), 0.25, 48, (7, 7), 2, 1, 30.0),
        {"rois": _on_first_map(boxes)},
    ),
    Problem(
        "adaptive-pyramid", "three maps of odd sizes, an adaptive sample count, scales that no binary fraction holds",
        _levels((1, 3, [17, 9, 4], [19, 10, 5]), TENTH, 31, (3, 5), -1, 0, 55.0),
        {"rois": _on_first_map(boxes)},
    ),
    Problem(
        "eight-maps", "as many maps as there may be, one of them without pixels, and one pixel in the last",
        _levels((1, 2, [40, 20, 10, 5, 3, 0, 1, 1], [30, 15, 8, 4, 2, 1, 1, 1]), 1.0, 90, (2, 3), 1, 0, 2.5),
        {"rois": _on_first_map(boxes), **_WIDE_MAPS, "grad_output": wide},
    ),
    Problem(
        "one-map", "one map, which has all boxes; 65 channels, one past every channel block",
        _levels((1, 65, [17], [65]), 0.5, 70, (2, 2), 0, 1, 224.0),
        {"rois": _on_first_map(boxes)},
    ),
    Problem(
        "blocks-of-boxes", "700 boxes over two small maps: sums are cut into blocks",
        _levels((1, 1, [8, 4], [8, 4]), 0.5, 700, (1, 2), 2, 1, 20.0),
        {"rois": _on_first_map(boxes), **_WIDE_MAPS, "grad_output": wide},
    ),
    Problem(
        "special-maps", "NaN payloads, infinities, zeros of both signs and subnormals in the data; bad boxes",
        _levels((1, 2, [9, 5, 3], [11, 6, 3]), 1.0, 40, (2, 2), 2, 0, 8.0),
        {"rois": _on_first_map(bad_boxes), **_SPECIAL_MAPS, "grad_output": special},
    ),
    Problem(
        "subnormal-maps", "subnormal data alone",
        _levels((1, 3, [6, 3], [7, 4]), 1.0, 19, (2, 2), 3, 1, 6.0),
        {"rois": _on_first_map(boxes), **_SUBNORMAL_MAPS, "grad_output": subnormal},
    ),
]  # fmt: skip

FAMILY = Family({"roi_align": _PROBLEMS, "roi_align_levels": _OF_LEVELS, "roi_align_levels_backward": _OF_LEVELS})
