# SPDX-License-Identifier: Apache-2.0
"""Bags of embeddings as benchmark cases, forward and the gradients; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, Part, Row, on_cpu, us
from benchmarks.harness.draw import Draw
from pybaracuda import (
    EmbeddingBagBackwardDescriptor,
    EmbeddingBagBackwardPlan,
    EmbeddingBagDescriptor,
    EmbeddingBagMaxBackwardDescriptor,
    EmbeddingBagMaxBackwardPlan,
    EmbeddingBagMaxDescriptor,
    EmbeddingBagMaxPlan,
    EmbeddingBagPlan,
    EmbeddingBagWeightsBackwardDescriptor,
    EmbeddingBagWeightsBackwardPlan,
)
from verify.bounds import exact
from verify.definitions import embedding_bag as definitions
from verify.dtypes import Array

# What is held against the definition: so many columns.
_COLUMNS = 4
_TORCH_MODES = {"sum": 0, "mean": 1, "max": 2}


@dataclass(frozen=True, kw_only=True)
class _Bags(Case):
    """Bags of 4 to 10 positions that name any rows of a table."""

    rows: int
    columns: int
    positions: int
    mode: str = "sum"

    @property
    def text(self) -> str:
        return f"{self.mode} {self.positions} of {self.rows}x{self.columns}"

    def _offsets(self) -> Array:
        """The same in every run, since a plan knows how many there are."""
        lengths = np.random.default_rng(7).integers(4, 11, self.positions // 4 + 1)
        begins = np.concatenate([[0], np.cumsum(lengths)])
        return begins[begins < self.positions]

    @property
    def _bags(self) -> int:
        return len(self._offsets())

    def _fields(self) -> dict[str, Any]:
        return {
            "num_indices": self.positions,
            "num_bags": self._bags,
            "num_embeddings": self.rows,
            "embedding_dim": self.columns,
            "element": self.element,
        }

    def _indices(self, draw: Draw) -> Array:
        return draw.rng.integers(0, self.rows, self.positions)

    def _table(self, draw: Draw) -> Array:
        return draw.normal((self.rows, self.columns), self.element)

    def _described(self) -> tuple[Array, Array]:
        ids = np.searchsorted(self._offsets(), np.arange(self.positions), side="right") - 1
        return ids, np.bincount(ids, minlength=self._bags)

    def _chosen(self, draw: Draw) -> Array:
        return draw.some(min(_COLUMNS, self.columns), self.columns)

    def small(self) -> Case:
        return replace(self, rows=9, columns=6, positions=40)

    @property
    def parts_text(self) -> str:
        return f"{_COLUMNS} columns"


@dataclass(frozen=True, kw_only=True)
class EmbeddingBag(_Bags):
    """Forward."""

    @property
    def plan_type(self) -> Any:  # type: ignore[override]
        return EmbeddingBagMaxPlan if self.mode == "max" else EmbeddingBagPlan

    def descriptor(self) -> EmbeddingBagMaxDescriptor:
        if self.mode == "max":
            return EmbeddingBagMaxDescriptor(**self._fields())
        return EmbeddingBagDescriptor(**self._fields(), mean=int(self.mode == "mean"))

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"weight": self._table(draw), "indices": self._indices(draw), "offsets": self._offsets()}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        bags = (self._bags, self.columns)
        found = {
            "output": (bags, self.element),
            "bag_ids": ((self.positions,), "i64"),
            "bag_sizes": ((self._bags,), "i64"),
        }
        return {**found, "arg": (bags, "i64")} if self.mode == "max" else found

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        columns = self._chosen(draw)
        table = inputs["weight"][:, columns]
        rest = inputs["indices"], inputs["offsets"]
        if self.mode == "max":
            values = table[inputs["indices"]]
            expected = np.maximum.reduceat(values, inputs["offsets"])
            return [Part(0, lambda output: output[:, columns], exact(expected))]
        found, _ = definitions.embedding_bag(table, *rest, None, self.mode == "mean", -1)
        return [Part(0, lambda output: output[:, columns], found)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        tensors = given["weight"], given["indices"], given["offsets"]
        return {"torch": lambda: torch._embedding_bag(*tensors, False, _TORCH_MODES[self.mode])}


@dataclass(frozen=True, kw_only=True)
class EmbeddingBagBackward(_Bags):
    """By the table."""

    @property
    def plan_type(self) -> Any:  # type: ignore[override]
        return EmbeddingBagMaxBackwardPlan if self.mode == "max" else EmbeddingBagBackwardPlan

    def descriptor(self) -> EmbeddingBagMaxDescriptor:
        if self.mode == "max":
            return EmbeddingBagMaxBackwardDescriptor(**self._fields())
        return EmbeddingBagBackwardDescriptor(**self._fields(), mean=int(self.mode == "mean"))

    def inputs(self, draw: Draw) -> dict[str, Array]:
        ids, sizes = self._described()
        indices = self._indices(draw)
        found = {
            "grad_output": draw.normal((self._bags, self.columns), self.element),
            "indices": indices,
            "bag_ids": ids,
        }
        if self.mode == "mean":
            return {**found, "bag_sizes": sizes[None]}
        if self.mode == "max":
            # Of each bag any of its positions.
            place = (
                self._offsets()[:, None] + draw.rng.integers(0, 1 << 30, (self._bags, self.columns)) % sizes[:, None]
            )
            return {**found, "arg": indices[place]}
        return found

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_weight": ((self.rows, self.columns), self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        columns = self._chosen(draw)
        gradient = inputs["grad_output"][:, columns]
        named = inputs["indices"], inputs["bag_ids"]
        if self.mode == "max":
            arg = inputs["arg"][:, columns]
            expected = definitions.embedding_bag_max_backward(gradient, *named, arg, self.rows, -1)
        else:
            sizes = inputs["bag_sizes"][0] if self.mode == "mean" else None
            expected = definitions.embedding_bag_backward(gradient, *named, self.rows, -1, sizes)
        return [Part(0, lambda slopes: slopes[:, columns], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        _, sizes = self._described()
        bag_sizes = torch.as_tensor(sizes, device=given["indices"].device)
        arg = given["arg"] if self.mode == "max" else given["indices"][:0]
        tensors = given["grad_output"], given["indices"], given["bag_ids"], bag_sizes, arg
        call = torch.ops.aten._embedding_bag_dense_backward
        return {"torch": lambda: (call(*tensors, self.rows, False, _TORCH_MODES[self.mode], None),)}


@dataclass(frozen=True, kw_only=True)
class EmbeddingBagWeightsBackward(_Bags):
    """By the weights of positions."""

    plan_type = EmbeddingBagWeightsBackwardPlan

    def descriptor(self) -> EmbeddingBagWeightsBackwardDescriptor:
        return EmbeddingBagWeightsBackwardDescriptor(**self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "grad_output": draw.normal((self._bags, self.columns), self.element),
            "weight": self._table(draw),
            "indices": self._indices(draw),
            "bag_ids": self._described()[0],
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_weights": ((self.positions,), self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        expected = definitions.embedding_bag_weights_backward(**inputs, padding_idx=-1)
        return [Part(0, lambda slopes: slopes, expected)]

    @property
    def parts_text(self) -> str:
        return "all"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        offsets = torch.as_tensor(self._offsets(), device=given["indices"].device)
        tensors = given["grad_output"], given["weight"], given["indices"], offsets, given["bag_ids"]
        call = torch.ops.aten._embedding_bag_per_sample_weights_backward
        return {"torch": lambda: (call(*tensors, 0),)}


# ---- rows

ORDER = 57

_TYPICAL: dict[str, Any] = dict(rows=50_000, columns=128, positions=200_000)
_MODES = ("sum", "mean", "max")
# PyTorch's atomics take 48 us of this one, and have another result every time.
_OF_MAXIMA = us(75)

CUDA = (
    *(Row(EmbeddingBag(**_TYPICAL, mode=mode), limits=NO_SLOWER, headline=mode == "sum") for mode in _MODES),
    *(
        Row(EmbeddingBagBackward(**_TYPICAL, mode=mode), limits=_OF_MAXIMA if mode == "max" else NO_SLOWER)
        for mode in _MODES
    ),
    Row(EmbeddingBagWeightsBackward(**_TYPICAL), limits=NO_SLOWER),
)

CPU = (
    *(on_cpu(EmbeddingBag(**_TYPICAL, mode=mode)) for mode in _MODES),
    *(on_cpu(EmbeddingBagBackward(**_TYPICAL, mode=mode)) for mode in _MODES),
    on_cpu(EmbeddingBagWeightsBackward(**_TYPICAL)),
)
