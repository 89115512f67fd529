# SPDX-License-Identifier: Apache-2.0
"""Weighted counts, of one row and of many, as benchmark cases; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, JaxCall, Part, Row, on_cpu, us
from benchmarks.harness.draw import Draw
from pybaracuda import BincountDescriptor, BincountPlan, BincountRowsDescriptor, BincountRowsPlan
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


@dataclass(frozen=True, kw_only=True)
class BincountRows(Case):
    """As many entries in each row, equally likely to name each of its bins: the gradient of a gather along an axis."""

    rows: int
    entries: int
    bins: int

    plan_type = BincountRowsPlan

    @property
    def text(self) -> str:
        return f"{self.rows:,} x {self.entries:,} into {self.bins:,} each"

    def descriptor(self) -> BincountRowsDescriptor:
        return BincountRowsDescriptor(self.rows, self.entries, self.bins, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        shape = (self.rows, self.entries)
        return {"input": draw.rng.integers(0, self.bins, shape), "weights": draw.normal(shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": ((self.rows, self.bins), self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        row = int(draw.rng.integers(self.rows))
        expected = definitions.bincount(inputs["input"][row], inputs["weights"][row], self.bins)
        return [Part(0, lambda output: output[row], expected)]

    @property
    def parts_text(self) -> str:
        return "a row"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        output = given["output"]
        return {"torch": lambda: (output.zero_().scatter_add_(1, given["input"], given["weights"]),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        def count(entries: Any, weights: Any) -> Any:
            return jax.numpy.bincount(entries, weights, length=self.bins)

        return JaxCall(jax.vmap(count), ("input", "weights"))

    def small(self) -> Case:
        return replace(self, rows=7, entries=50, bins=min(self.bins, 20))


# ---- rows

ORDER = 45

CUDA = (
    Row(Bincount(entries=1 << 24, bins=1000), limits=(*us(110), *NO_SLOWER), headline=True),
    Row(Bincount(entries=1 << 24, bins=16), limits=NO_SLOWER),
    Row(Bincount(entries=1 << 20, bins=4096), limits=NO_SLOWER),
    Row(BincountRows(rows=4096, entries=4096, bins=1024), limits=NO_SLOWER, headline=True),
    Row(BincountRows(rows=4096, entries=4096, bins=4096), limits=NO_SLOWER),
    Row(BincountRows(rows=1_000_000, entries=16, bins=8), limits=NO_SLOWER),
)

CPU = (
    on_cpu(Bincount(entries=1 << 22, bins=1000), NO_SLOWER),
    on_cpu(Bincount(entries=1 << 22, bins=16), NO_SLOWER),
    on_cpu(Bincount(entries=1 << 20, bins=4096), NO_SLOWER),
    on_cpu(BincountRows(rows=512, entries=4096, bins=1024), NO_SLOWER),
)
