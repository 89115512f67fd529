# SPDX-License-Identifier: Apache-2.0
"""affine_grid in two and three dimensions as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from benchmarks.harness.case import Case, FrameworkCall, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import (
    AffineGrid3dBackwardDescriptor,
    AffineGrid3dBackwardPlan,
    AffineGrid3dDescriptor,
    AffineGrid3dPlan,
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
    """`n` maps on a grid of `rows` x `columns`; a volume has `planes` of them, an image says 0."""

    n: int
    planes: int = 0
    rows: int
    columns: int
    align_corners: bool = False

    @property
    def text(self) -> str:
        return "x".join(map(str, (self.n, *self._extents))) + " aligned" * self.align_corners

    @property
    def parts_text(self) -> str:
        return "one map"

    @property
    def _extents(self) -> tuple[int, ...]:
        return (self.planes, self.rows, self.columns) if self.planes else (self.rows, self.columns)

    @property
    def _theta_shape(self) -> tuple[int, ...]:
        axes = len(self._extents)
        return (self.n, axes, axes + 1)

    @property
    def _grid_shape(self) -> tuple[int, ...]:
        return (self.n, *self._extents, len(self._extents))

    @property
    def _size(self) -> list[int]:
        return [self.n, 1, *self._extents]

    @property
    def _one_map(self) -> tuple[int, ...]:
        return (1, 1, *self._extents)

    def _small(self: C) -> C:
        return replace(self, n=2, planes=min(self.planes, 3), rows=9, columns=40)


@dataclass(frozen=True, kw_only=True)
class AffineGrid(_AffineGrid):
    """Forward."""

    plan_type = AffineGridPlan

    def descriptor(self) -> AffineGridDescriptor:
        return AffineGridDescriptor(self.n, self.rows, self.columns, self.element, self.align_corners)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"theta": draw.normal(self._theta_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grid": (self._grid_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(draw.rng.integers(self.n))
        theta = inputs["theta"][image : image + 1]
        expected = definitions.affine_grid(theta, self._one_map, self.align_corners, theta.dtype)
        return [Part(0, lambda grid: grid[image], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        function = torch.ops.aten.affine_grid_generator
        return {"PyTorch": lambda: (function(given["theta"], self._size, self.align_corners),)}

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class AffineGridBackward(_AffineGrid):
    """Backward."""

    plan_type = AffineGridBackwardPlan

    def descriptor(self) -> AffineGridBackwardDescriptor:
        return AffineGridBackwardDescriptor(self.n, self.rows, self.columns, self.element, self.align_corners)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_grid": draw.normal(self._grid_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_theta": (self._theta_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image = int(draw.rng.integers(self.n))
        gradient = inputs["grad_grid"][image : image + 1]
        expected = definitions.affine_grid_backward(gradient, self._one_map, self.align_corners, gradient.dtype)
        return [Part(0, lambda theta: theta[image], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        theta = torch.zeros_like(given["grad_theta"]).requires_grad_()
        grid = torch.nn.functional.affine_grid(theta, self._size, align_corners=self.align_corners)
        return {"PyTorch": lambda: torch.autograd.grad(grid, theta, given["grad_grid"], retain_graph=True)}

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class AffineGrid3d(AffineGrid):
    """Forward, of volumes."""

    plan_type = AffineGrid3dPlan  # type: ignore[assignment]

    def descriptor(self) -> AffineGrid3dDescriptor:  # type: ignore[override]
        return AffineGrid3dDescriptor(self.n, self.planes, self.rows, self.columns, self.element, self.align_corners)


@dataclass(frozen=True, kw_only=True)
class AffineGrid3dBackward(AffineGridBackward):
    """Backward, of volumes."""

    plan_type = AffineGrid3dBackwardPlan  # type: ignore[assignment]

    def descriptor(self) -> AffineGrid3dBackwardDescriptor:  # type: ignore[override]
        return AffineGrid3dBackwardDescriptor(
            self.n, self.planes, self.rows, self.columns, self.element, self.align_corners
        )


# ---- rows

ORDER = 60

CUDA = (
    Row(AffineGridBackward(n=8, rows=512, columns=512)),
    Row(AffineGrid(n=8, rows=512, columns=512)),
    Row(AffineGridBackward(n=8, rows=512, columns=512, align_corners=True)),
    Row(AffineGrid(n=8, rows=512, columns=512, align_corners=True)),
    Row(AffineGrid3dBackward(n=4, planes=96, rows=96, columns=96)),
    Row(AffineGrid3d(n=4, planes=96, rows=96, columns=96)),
)


CPU = (
    on_cpu(AffineGridBackward(n=8, rows=128, columns=128)),
    on_cpu(AffineGrid(n=8, rows=128, columns=128)),
    on_cpu(AffineGridBackward(n=8, rows=128, columns=128, align_corners=True)),
    on_cpu(AffineGrid(n=8, rows=128, columns=128, align_corners=True)),
    on_cpu(AffineGrid3dBackward(n=4, planes=32, rows=32, columns=32)),
    on_cpu(AffineGrid3d(n=4, planes=32, rows=32, columns=32)),
)
