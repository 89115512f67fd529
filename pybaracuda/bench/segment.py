# SPDX-License-Identifier: Apache-2.0
"""Segment reductions as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ..demo import reference
from ..segment import (
    UnsortedSegmentMaxBackwardDescriptor,
    UnsortedSegmentMaxBackwardPlan,
    UnsortedSegmentMaxDescriptor,
    UnsortedSegmentMaxPlan,
)
from .case import Case, FrameworkCall, JaxCall, Part
from .draw import Array, Draw

# So many columns are held against their definition.
_COLUMNS = 2

C = TypeVar("C", bound="_SegmentMax")


def draw_ids(kind: str, rows: int, segments: int, rng: np.random.Generator) -> Array:
    """Segment ids: "uniform"; "power law" (Zipf, exponent 1, the hot ids anywhere); "half" or "all" rows on one id."""
    if kind == "power law":
        shares = np.cumsum(1 / np.arange(1, segments + 1))
        ranks = np.searchsorted(shares, rng.uniform(0, shares[-1], rows))
        ids = rng.permutation(segments)[np.minimum(ranks, segments - 1)]
    else:
        ids = rng.integers(0, segments, rows)
        share = {"uniform": 0.0, "half": 0.5, "all": 1.0}[kind]
        ids[rng.uniform(0, 1, rows) < share] = rng.integers(segments)
    return ids.astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class _SegmentMax(Case):
    """`rows` x `columns` values in `segments` segments; `ids` as in draw_ids."""

    rows: int
    columns: int
    segments: int
    ids: str = "uniform"

    @property
    def text(self) -> str:
        ids = f"{self.ids} on one id" if self.ids in ("half", "all") else f"{self.ids} ids"
        return f"{self.rows:,} x {self.columns}, {self.segments:,} segments, {ids}"

    @property
    def parts_text(self) -> str:
        return f"{_COLUMNS} of {self.columns} columns"

    def _small(self: C) -> C:
        return replace(self, rows=200, columns=3, segments=30)


@dataclass(frozen=True, kw_only=True)
class SegmentMax(_SegmentMax):
    """Forward."""

    plan_type = UnsortedSegmentMaxPlan

    def descriptor(self) -> UnsortedSegmentMaxDescriptor:
        return UnsortedSegmentMaxDescriptor(self.rows, self.columns, self.segments, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "input": draw.normal((self.rows, self.columns), self.element),
            "segment_ids": draw_ids(self.ids, self.rows, self.segments, draw.rng),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": ((self.segments, self.columns), self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        columns = draw.some(_COLUMNS, self.columns)
        expected = reference.unsorted_segment_max(inputs["input"][:, columns], inputs["segment_ids"], self.segments)
        return [Part(0, lambda output: output[:, columns], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        rows, out, ids = given["input"], given["output"], given["segment_ids"].long()
        wide = ids[:, None].expand(-1, self.columns)
        return {
            "PyTorch scatter_reduce": lambda: (out.fill_(-torch.inf).scatter_reduce_(0, wide, rows, "amax"),),
            "PyTorch index_reduce": lambda: (out.fill_(-torch.inf).index_reduce_(0, ids, rows, "amax"),),
        }

    def cupy_calls(self, cupy: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        import cupyx

        def scatter() -> tuple[Any, ...]:
            given["output"].fill(-cupy.inf)
            cupyx.scatter_max(given["output"], given["segment_ids"], given["input"])
            return (given["output"],)

        return {"CuPy": scatter}

    def jax_call(self, jax: Any) -> JaxCall | None:
        return JaxCall(lambda rows, ids: jax.ops.segment_max(rows, ids, self.segments), ("input", "segment_ids"))

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class SegmentMaxBackward(_SegmentMax):
    """Backward. Peers split the gradient of ties, of which 16-bit values have some; their error then says so."""

    plan_type = UnsortedSegmentMaxBackwardPlan

    def descriptor(self) -> UnsortedSegmentMaxBackwardDescriptor:
        return UnsortedSegmentMaxBackwardDescriptor(self.rows, self.columns, self.segments, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "grad_output": draw.normal((self.segments, self.columns), self.element),
            "input": draw.normal((self.rows, self.columns), self.element),
            "segment_ids": draw_ids(self.ids, self.rows, self.segments, draw.rng),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": ((self.rows, self.columns), self.element)}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        """The gradients of segments without rows."""
        used = np.zeros(self.segments, bool)
        used[inputs["segment_ids"]] = True
        return int((~used).sum()) * self.columns * inputs["grad_output"].itemsize

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        columns = draw.some(_COLUMNS, self.columns)
        expected = reference.unsorted_segment_max_backward(
            inputs["grad_output"][:, columns], inputs["input"][:, columns], inputs["segment_ids"]
        )
        return [Part(0, lambda output: output[:, columns], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        rows = given["input"].detach().requires_grad_()
        ids, gradient = given["segment_ids"].long(), given["grad_output"]
        wide = ids[:, None].expand(-1, self.columns)

        def backward(largest: Any) -> FrameworkCall:
            return lambda: torch.autograd.grad(largest, rows, gradient, retain_graph=True)

        empty = torch.full_like(gradient, -torch.inf)
        return {
            "PyTorch scatter_reduce": backward(empty.scatter_reduce(0, wide, rows, "amax")),
            "PyTorch index_reduce": backward(empty.index_reduce(0, ids, rows, "amax")),
        }

    def jax_call(self, jax: Any) -> JaxCall | None:
        def forward(gradient: Any, rows: Any, ids: Any) -> Any:
            return jax.ops.segment_max(rows, ids, self.segments)

        def both(gradient: Any, rows: Any, ids: Any) -> Any:
            return jax.vjp(lambda rows: forward(gradient, rows, ids), rows)[1](gradient)[0]

        return JaxCall(both, ("grad_output", "input", "segment_ids"), forward, "forward and vjp, less forward")

    def small(self) -> Case:
        return self._small()
