# SPDX-License-Identifier: Apache-2.0
"""affine_grid in two dimensions as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from benchmarks.harness.case import Case, FrameworkCall, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import (
    AffineGridBackwardDescriptor,
    AffineGridBackwardPlan,
    AffineGridDescriptor,
    AffineGridPlan,
)
from verify.definitions import affine_grid as definitions
from verify.dtypes import Array

C = TypeVar("C", bound="_AffineGrid")


@dataclass(frozen=True, kw_only=True)
class _AffineGrid(Case):
    """`n` maps on a grid of `rows` x `columns`."""

    n: int
    rows: int
    columns: int

    @property
    def text(self) -> str:
        return f"{self.n}x{self.rows}x{self.columns}"

    @property
    def parts_text(self) -> str:
        return "one map"

    @property
    def _theta_shape(self) -> tuple[int, ...]:
        return (self.n, 2, 3)

    @property
    def _grid_shape(self) -> tuple[int, ...]:
        return (self.n, self.rows, self.columns, 2)

    @property
    def _size(self) -> list[int]:
        return [self.n, 1, self.rows, self.columns]

    @property
    def _one_map(self) -> tuple[int, int, int, int]:
        return (1, 1, self.rows, self.columns)

    def _small(self: C) -> C:
        return replace(self, n=2, rows=9, columns=40)


@dataclass(frozen=True, kw_only=True)
class AffineGrid(_AffineGrid):
    """Forward."""

    plan_type = AffineGridPlan

    def descriptor(self) -> AffineGridDescriptor:
        return AffineGridDescriptor(self.n, self.rows, self.columns, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"theta": draw.normal(self._theta_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grid": (self._grid_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(draw.rng.integers(self.n))
        theta = inputs["theta"][image : image + 1]
        expected = definitions.affine_grid_2d(theta, self._one_map, coordinate_dtype=theta.dtype)
        return [Part(0, lambda grid: grid[image], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        function = torch.ops.aten.affine_grid_generator
        return {"PyTorch": lambda: (function(given["theta"], self._size, False),)}

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class AffineGridBackward(_AffineGrid):
    """Backward."""

    plan_type = AffineGridBackwardPlan

    def descriptor(self) -> AffineGridBackwardDescriptor:
        return AffineGridBackwardDescriptor(self.n, self.rows, self.columns, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_grid": draw.normal(self._grid_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_theta": (self._theta_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(draw.rng.integers(self.n))
        gradient = inputs["grad_grid"][image : image + 1]
        expected = definitions.affine_grid_2d_backward(gradient, self._one_map, coordinate_dtype=gradient.dtype)
        return [Part(0, lambda theta: theta[image], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        theta = torch.zeros_like(given["grad_theta"]).requires_grad_()
        grid = torch.nn.functional.affine_grid(theta, self._size, align_corners=False)
        return {"PyTorch": lambda: torch.autograd.grad(grid, theta, given["grad_grid"], retain_graph=True)}

    def small(self) -> Case:
        return self._small()


# ---- rows

ORDER = 60

CUDA = (
    Row(AffineGridBackward(n=8, rows=512, columns=512)),
    Row(AffineGrid(n=8, rows=512, columns=512)),
)


CPU = (
    on_cpu(AffineGridBackward(n=8, rows=128, columns=128)),
    on_cpu(AffineGrid(n=8, rows=128, columns=128)),
)
