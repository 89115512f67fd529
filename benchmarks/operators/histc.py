# SPDX-License-Identifier: Apache-2.0
"""Histograms as benchmark cases; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, Limit, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import HistcDescriptor, HistcPlan
from verify.bounds import exact
from verify.definitions import histc as definitions
from verify.dtypes import Array


@dataclass(frozen=True, kw_only=True)
class Histc(Case):
    """Standard normal numbers, in bins of the data's range or from -reach to reach."""

    count: int
    bins: int
    reach: float = 0.0

    plan_type = HistcPlan

    @property
    def text(self) -> str:
        return f"{self.count:,} into {self.bins:,}" + (f", of +-{self.reach:g}" if self.reach else "")

    def descriptor(self) -> HistcDescriptor:
        return HistcDescriptor(self.count, self.bins, -self.reach, self.reach, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal((self.count,), self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": ((self.bins,), self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        counts = definitions.histc(inputs["input"], self.bins, -self.reach, self.reach)
        return [Part(0, np.ascontiguousarray, exact(counts.astype(np.float64)))]

    @property
    def parts_text(self) -> str:
        return "all bins"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        if self.element in ("f16", "bf16"):
            return {}
        values, out = given["input"], given["output"]
        return {"PyTorch": lambda: (torch.histc(values, self.bins, -self.reach, self.reach, out=out),)}

    def small(self) -> Case:
        return replace(self, count=3000, bins=min(self.bins, 50))


# ---- rows

ORDER = 140

_MANY: dict[str, Any] = dict(count=1 << 24, bins=256)

CUDA = (
    Row(Histc(**_MANY), limits=NO_SLOWER, headline=True),
    Row(Histc(**_MANY, reach=4.0), limits=(*NO_SLOWER, Limit("light", 2.5))),
    Row(Histc(**_MANY, reach=4.0, element="f64"), limits=NO_SLOWER),
    Row(Histc(**_MANY, reach=4.0, element="f16")),
    Row(Histc(count=1 << 24, bins=4096, reach=4.0), limits=NO_SLOWER),
    Row(Histc(count=1 << 24, bins=1 << 16, reach=4.0), limits=NO_SLOWER),
)

CPU = (
    on_cpu(Histc(count=1 << 22, bins=256), NO_SLOWER),
    on_cpu(Histc(count=1 << 22, bins=256, reach=4.0), NO_SLOWER),
    on_cpu(Histc(count=1 << 22, bins=1 << 16, reach=4.0), NO_SLOWER),
)
