# SPDX-License-Identifier: Apache-2.0
"""Copies of rows by an index as benchmark cases; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, Part, Row, on_cpu, us
from benchmarks.harness.draw import Draw
from pybaracuda import IndexCopyDescriptor, IndexCopyPlan
from verify.bounds import exact
from verify.definitions import index_copy as definitions
from verify.dtypes import Array


@dataclass(frozen=True, kw_only=True)
class IndexCopy(Case):
    """Rows of a source whose places are equally likely, or a permutation's."""

    length: int
    n: int
    inner: int
    outer: int = 1
    permuted: bool = False

    plan_type = IndexCopyPlan

    @property
    def text(self) -> str:
        rows = f"{self.n:,} of {self.length:,} rows of {self.inner:,}"
        tables = f", {self.outer} tables" if self.outer > 1 else ""
        return rows + tables + (", each once" if self.permuted else "")

    def descriptor(self) -> IndexCopyDescriptor:
        return IndexCopyDescriptor(self.outer, self.length, self.n, self.inner, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        index = (
            draw.rng.permutation(self.length)[: self.n] if self.permuted else draw.rng.integers(0, self.length, self.n)
        )
        return {
            "input": draw.normal((self.outer, self.length, self.inner), self.element),
            "index": index,
            "source": draw.normal((self.outer, self.n, self.inner), self.element),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": ((self.outer, self.length, self.inner), self.element)}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        """Rows of input that others take the place of, and rows of source that others come after."""
        # One of either for each row of source.
        return self.n * self.outer * self.inner * inputs["input"].dtype.itemsize

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        table = int(draw.rng.integers(self.outer))
        expected = definitions.index_copy(inputs["input"][table][None], inputs["index"], inputs["source"][table][None])
        return [Part(0, lambda output: output[table][None], exact(expected))]

    @property
    def parts_text(self) -> str:
        return f"1 of {self.outer} tables"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        # Which of several rows of one place stays is open there on CUDA.
        if not self.permuted and given["input"].is_cuda:
            return {}
        return {"torch": lambda: (torch.index_copy(given["input"], 1, given["index"], given["source"]),)}

    def small(self) -> Case:
        return replace(self, length=40, n=25, inner=min(self.inner, 8), outer=min(self.outer, 2))


# ---- rows

ORDER = 76

_ROWS: dict[str, Any] = dict(length=100_000, n=100_000, inner=64)
_CACHE: dict[str, Any] = dict(outer=256, length=4096, n=1, inner=128, permuted=True)

CUDA = (
    Row(IndexCopy(**_ROWS, permuted=True), limits=(*us(30), *NO_SLOWER), headline=True),
    Row(IndexCopy(**_ROWS, permuted=True, element="f16"), limits=NO_SLOWER),
    Row(IndexCopy(**_ROWS), limits=us(30)),
    Row(IndexCopy(length=1 << 20, n=1 << 20, inner=1, permuted=True), limits=NO_SLOWER),
    Row(IndexCopy(**_CACHE, element="f16"), limits=NO_SLOWER),
)

CPU = (
    on_cpu(IndexCopy(**_ROWS, permuted=True), NO_SLOWER),
    on_cpu(IndexCopy(length=1 << 20, n=1 << 20, inner=1), NO_SLOWER),
)
