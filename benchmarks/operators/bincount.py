# SPDX-License-Identifier: Apache-2.0
"""Weighted counts as benchmark cases; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, JaxCall, Part, Row, on_cpu, us
from benchmarks.harness.draw import Draw
from pybaracuda import BincountDescriptor, BincountPlan
from verify.definitions import bincount as definitions
from verify.dtypes import Array


@dataclass(frozen=True, kw_only=True)
class Bincount(Case):
    """Normal weights of entries that are equally likely to name each bin."""

    entries: int
    bins: int

    plan_type = BincountPlan

    @property
    def text(self) -> str:
        return f"{self.entries:,} into {self.bins:,}"

    def descriptor(self) -> BincountDescriptor:
        return BincountDescriptor(self.entries, self.bins, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "input": draw.rng.integers(0, self.bins, self.entries),
            "weights": draw.normal((self.entries,), self.element),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": ((self.bins,), self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        expected = definitions.bincount(inputs["input"], inputs["weights"], self.bins)
        return [Part(0, lambda output: output, expected)]

    @property
    def parts_text(self) -> str:
        return "all"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        return {"torch": lambda: (torch.bincount(given["input"], given["weights"], self.bins),)}

    def cupy_calls(self, cupy: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        return {"cupy": lambda: (cupy.bincount(given["input"], given["weights"], self.bins),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        def count(entries: Any, weights: Any) -> Any:
            return jax.numpy.bincount(entries, weights, length=self.bins)

        return JaxCall(count, ("input", "weights"))

    def small(self) -> Case:
        return replace(self, entries=5000, bins=min(self.bins, 40))


# ---- rows

ORDER = 45

CUDA = (
    Row(Bincount(entries=1 << 24, bins=1000), limits=(*us(110), *NO_SLOWER), headline=True),
    Row(Bincount(entries=1 << 24, bins=16), limits=NO_SLOWER),
    Row(Bincount(entries=1 << 20, bins=4096), limits=NO_SLOWER),
)

CPU = (
    on_cpu(Bincount(entries=1 << 22, bins=1000), NO_SLOWER),
    on_cpu(Bincount(entries=1 << 22, bins=16), NO_SLOWER),
    on_cpu(Bincount(entries=1 << 20, bins=4096), NO_SLOWER),
)
