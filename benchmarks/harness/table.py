# SPDX-License-Identifier: Apache-2.0
"""Every row of the benchmark, as the families of benchmarks/operators have them; no row is written here."""

from __future__ import annotations

from benchmarks.operators import families
from benchmarks.operators.dequantize import DequantizeBackward

from .case import Case, Row

ROWS: tuple[Row, ...] = (
    *(row for family in families() for row in family.CUDA),
    *(row for family in families() for row in family.CPU),
)

# The README's six, measured on a GPU: of every family that all others take atomics or a copy for, its plainest problem.
README_ROWS = (
    "roi_align bw f32 N2 C256 200x304, 1024 boxes 16..224 px at 1/4, 7x7 sr 2",
    "grid_sample_2d bw f32 4x64x256x256 smooth",
    "unsorted_segment_max bw f32 1,000,000 x 64, 100,000 segments, uniform ids",
    "unsorted_segment_sum fw f32 1,000,000 x 64, 100,000 segments, power law ids",
    "pad_reflect bw f32 8x64x512x512 pad 3",
    "dequantize_per_channel bw f32 32x256x128x128 axis 1",
)

# Large enough for every core of the CPU library.
WARM_UP: Case = DequantizeBackward(shape=(8, 64, 128, 128), axis=1)
