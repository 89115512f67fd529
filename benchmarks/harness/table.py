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

# Large enough for every core of the CPU library.
WARM_UP: Case = DequantizeBackward(shape=(8, 64, 128, 128), axis=1)
