# SPDX-License-Identifier: Apache-2.0
"""The record of pixel_shuffle and pixel_unshuffle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_same_bits

import pybaracuda
from verify.definitions import pixel_shuffle as definitions

from .record import INT32_MAX, Arrays, Baseline, Call, PlanCase, Record, Refusal, numbers, zero


def _baseline(factor: str) -> Baseline:
    return Baseline(
        values={"n": 2, "c": 3, "h": 2, "w": 4, factor: 2},
        empties=zero("n", "c", "h", "w"),
        overflows=(
            {"n": INT32_MAX, "c": INT32_MAX, "h": INT32_MAX, "w": INT32_MAX},
            {"n": 1, "c": 1, "h": 4, "w": 4, factor: INT32_MAX},
        ),
        larger={"h": 9, "w": 33},
    )


def calls(dtype: Any) -> dict[str, Call]:
    """Two images."""
    return {
        "pixel_shuffle": Call(
            pybaracuda.pixel_shuffle, {"input": numbers((2, 12, 3, 4), dtype)}, {"upscale_factor": 2}
        ),
        "pixel_unshuffle": Call(
            pybaracuda.pixel_unshuffle, {"input": numbers((2, 3, 6, 8), dtype)}, {"downscale_factor": 2}
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    names = ("n", "c", "h", "w")
    return {
        "pixel_shuffle": PlanCase(
            pybaracuda.PixelShufflePlan,
            pybaracuda.PixelShuffleDescriptor(2, 3, 3, 4, 2, element),
            "pixel_shuffle",
            ("input",),
            ("output",),
            (*names, "upscale_factor", "element"),
        ),
        "pixel_unshuffle": PlanCase(
            pybaracuda.PixelUnshufflePlan,
            pybaracuda.PixelUnshuffleDescriptor(2, 3, 3, 4, 2, element),
            "pixel_unshuffle",
            ("input",),
            ("output",),
            (*names, "downscale_factor", "element"),
        ),
    }


def check_shuffle(a: Arrays) -> None:
    assert_same_bits(a.output, definitions.pixel_shuffle(a.input, a.values["upscale_factor"]))


def check_unshuffle(a: Arrays) -> None:
    assert_same_bits(a.output, definitions.pixel_unshuffle(a.input, a.values["downscale_factor"]))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Shapes that cannot be cut."""
    yield Refusal("pixel_shuffle", {"input": np.zeros((2, 6, 3, 4), np.float32)}, ValueError, "6 channels; wanted")
    yield Refusal("pixel_shuffle", {"input": np.zeros((12, 3), np.float32)}, ValueError, "wanted at least")
    yield Refusal("pixel_unshuffle", {"input": np.zeros((2, 3, 5, 8), np.float32)}, ValueError, "5 x 8 pixels")
    yield Refusal("pixel_unshuffle", {"input": np.zeros((6, 8), np.float32)}, ValueError, "wanted at least")


RECORD = Record(
    families=("pixel_shuffle",),
    baselines={"pixel_shuffle": _baseline("upscale_factor"), "pixel_unshuffle": _baseline("downscale_factor")},
    checks={"pixel_shuffle": check_shuffle, "pixel_unshuffle": check_unshuffle},
    functions={"pixel_shuffle": "input upscale_factor", "pixel_unshuffle": "input downscale_factor"},
    calls=calls,
    plans=plans,
    floats_only={"pixel_shuffle": ("input",), "pixel_unshuffle": ("input",)},
    bad_arrays=bad_arrays,
    bad_options=(
        ("pixel_shuffle", "upscale_factor", 0, ValueError, "upscale_factor is 0"),
        ("pixel_shuffle", "upscale_factor", -2, ValueError, "upscale_factor is -2"),
        ("pixel_unshuffle", "downscale_factor", 0, ValueError, "downscale_factor is 0"),
        ("pixel_unshuffle", "downscale_factor", 5, ValueError, "multiples of downscale_factor 5"),
    ),
    any_rank={"pixel_shuffle": ("input",), "pixel_unshuffle": ("input",)},
)
