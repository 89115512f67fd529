# SPDX-License-Identifier: Apache-2.0
"""grid_sample of volumes as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness.case import (
    FORWARD,
    NO_SLOWER,
    TWICE_AS_FAST,
    Case,
    FrameworkCall,
    Part,
    Row,
    no_cliff,
    on_cpu,
    us,
)
from benchmarks.harness.draw import Draw
from pybaracuda import (
    GridSample3dBackwardDescriptor,
    GridSample3dBackwardPlan,
    GridSample3dDescriptor,
    GridSample3dPlan,
)
from verify.definitions import grid_sample_3d as definitions
from verify.dtypes import Array, dtype_of

# What is held against float64: so many channels of one volume and, for the grid's gradient, so many of its samples.
_CHANNELS, _SAMPLES = 2, 512

C = TypeVar("C", bound="_GridSample3d")


def smooth_grid(n: int, size: tuple[int, int, int], rng: np.random.Generator) -> Array:
    """A rotation about z by a fifth, a little shrinking and shift, and a wave of a hundredth; each volume's own."""
    axes = [(2 * np.arange(extent) + 1) / extent - 1 for extent in size]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    grid = np.empty((n, *size, 3))
    for volume in grid:
        angle, scale, phase = rng.uniform(0.18, 0.22), rng.uniform(0.93, 0.97), rng.uniform(0, 2 * np.pi)
        shift = rng.uniform(-0.04, 0.04, 3)
        volume[..., 0] = scale * (np.cos(angle) * x + np.sin(angle) * y) + shift[0]
        volume[..., 1] = scale * (np.cos(angle) * y - np.sin(angle) * x) + shift[1]
        volume[..., 2] = scale * z + shift[2] + 0.01 * np.sin(7 * x + phase)
    return grid


@dataclass(frozen=True, kw_only=True)
class _GridSample3d(Case):
    """`kind` of grid: "smooth" (see smooth_grid) or "random" (uniform in [-1, 1]); as many samples as voxels."""

    n: int
    c: int
    d: int
    h: int
    w: int
    kind: str = "smooth"
    mode: str = "bilinear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    @property
    def text(self) -> str:
        options = [self.mode] * (self.mode != "bilinear") + [self.padding_mode] * (self.padding_mode != "zeros")
        return " ".join((f"{self.n}x{self.c}x{self.d}x{self.h}x{self.w}", self.kind, *options))

    @property
    def _rule(self) -> dict[str, Any]:
        """The options that descriptors and definitions take."""
        return {name: getattr(self, name) for name in ("mode", "padding_mode", "align_corners")}

    @property
    def _numbers(self) -> tuple[int, int, bool]:
        """The same as PyTorch's operators take them."""
        modes, paddings = ("bilinear", "nearest"), ("zeros", "border", "reflection")
        return modes.index(self.mode), paddings.index(self.padding_mode), self.align_corners

    @property
    def _coordinates(self) -> str:
        return "f64" if self.element == "f64" else "f32"

    @property
    def _size(self) -> tuple[int, int, int]:
        return (self.d, self.h, self.w)

    @property
    def _volume_shape(self) -> tuple[int, ...]:
        return (self.n, self.c, *self._size)

    @property
    def _grid_shape(self) -> tuple[int, ...]:
        return (self.n, *self._size, 3)

    def _sizes(self) -> tuple[Any, ...]:
        """What both descriptors begin with."""
        return (self.n, self.c, *self._size, *self._size, self.element)

    def _torch_grid(self, given: Mapping[str, Any]) -> tuple[str, Any]:
        """The grid in the volume's dtype, which PyTorch wants, a 16-bit one too; and what to call that."""
        grid = given["grid"].to(given["input"].dtype)
        return "PyTorch" if grid.dtype == given["grid"].dtype else "PyTorch, 16-bit grid", grid

    def _draw_grid(self, draw: Draw) -> Array:
        random = self.kind == "random"
        grid = draw.rng.uniform(-1, 1, self._grid_shape) if random else smooth_grid(self.n, self._size, draw.rng)
        return grid.astype(dtype_of(self._coordinates))

    def unread(self, inputs: Mapping[str, Array]) -> int:
        grids = inputs["grid"]
        seen = sum(definitions.voxels_read(grid[None], self._size, grids.dtype, **self._rule) for grid in grids)
        return (self.n * self.d * self.h * self.w - seen) * self.c * inputs["input"].itemsize

    def _small(self: C) -> C:
        return replace(self, n=2, c=min(self.c, 5), d=5, h=9, w=10)


@dataclass(frozen=True, kw_only=True)
class GridSample3d(_GridSample3d):
    """Forward."""

    plan_type = GridSample3dPlan

    def descriptor(self) -> GridSample3dDescriptor:
        return GridSample3dDescriptor(*self._sizes(), **self._rule)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self._volume_shape, self.element), "grid": self._draw_grid(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self._volume_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        volume, channels = int(draw.rng.integers(self.n)), draw.some(_CHANNELS, self.c)
        grid = inputs["grid"][volume : volume + 1]
        expected = definitions.grid_sample_3d(
            inputs["input"][volume, channels][None], grid, **self._rule, coordinate_dtype=grid.dtype
        )
        return [Part(0, lambda output: output[volume, channels], expected)]

    @property
    def parts_text(self) -> str:
        return f"{_CHANNELS} of {self.c} channels of one volume"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        function, (name, grid) = torch.ops.aten.grid_sampler_3d, self._torch_grid(given)
        return {name: lambda: (function(given["input"], grid, *self._numbers),)}

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class GridSample3dBackward(_GridSample3d):
    """Backward, both gradients."""

    plan_type = GridSample3dBackwardPlan

    def unread(self, inputs: Mapping[str, Array]) -> int:
        # The nearest voxel stays the same where a position moves: no gradient depends on the volume.
        return inputs["input"].nbytes if self.mode == "nearest" else super().unread(inputs)

    def descriptor(self) -> GridSample3dBackwardDescriptor:
        return GridSample3dBackwardDescriptor(*self._sizes(), **self._rule)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "grad_output": draw.normal(self._volume_shape, self.element),
            "input": draw.normal(self._volume_shape, self.element),
            "grid": self._draw_grid(draw),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self._volume_shape, self.element), "grad_grid": (self._grid_shape, self._coordinates)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        volume, channels = int(draw.rng.integers(self.n)), draw.some(_CHANNELS, self.c)
        gradient, grid = inputs["grad_output"][volume], inputs["grid"][volume]
        samples = draw.some(_SAMPLES, self.d * self.h * self.w)
        options: dict[str, Any] = {**self._rule, "coordinate_dtype": grid.dtype}
        of_volume = definitions.grid_sample_3d_backward_input(
            gradient[channels][None], grid[None], self._size, **options
        )
        of_grid = definitions.grid_sample_3d_backward_grid(
            gradient.reshape(1, self.c, 1, 1, -1)[..., samples],
            inputs["input"][volume : volume + 1],
            grid.reshape(1, 1, 1, -1, 3)[:, :, :, samples],
            **options,
        )
        return [
            Part(0, lambda output: output[volume, channels], of_volume),
            Part(1, lambda output: output[volume].reshape(1, 1, -1, 3)[:, :, samples], of_grid),
        ]

    @property
    def parts_text(self) -> str:
        return f"of one volume {_CHANNELS} of {self.c} channels, and the grid's gradient at {_SAMPLES} samples"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        function, (name, grid) = torch.ops.aten.grid_sampler_3d_backward, self._torch_grid(given)
        both = [True, True]
        return {name: lambda: function(given["grad_output"], given["input"], grid, *self._numbers, both)}

    def small(self) -> Case:
        return self._small()


# ---- rows

ORDER = 25

_VOLUME: dict[str, Any] = dict(n=1, c=32, d=64, h=64, w=64)
_SMALL: dict[str, Any] = dict(n=4, c=8, d=24, h=24, w=24)
# A deformation field that moves a scan of one channel.
_SCAN: dict[str, Any] = dict(n=1, c=1, d=160, h=192, w=160)
# Other paddings within a twentieth of zeros, and no slower than a peer.
_AS_ZEROS = (*no_cliff(GridSample3dBackward(**_VOLUME, kind="random"), 1.05), *NO_SLOWER)

CUDA = (
    Row(GridSample3dBackward(**_VOLUME, kind="random"), limits=us(400)),
    Row(GridSample3dBackward(**_VOLUME), limits=NO_SLOWER),
    Row(GridSample3dBackward(**_VOLUME, element="f16"), limits=NO_SLOWER),
    Row(GridSample3dBackward(**_VOLUME, element="f64"), limits=NO_SLOWER),
    Row(GridSample3dBackward(**_VOLUME, kind="random", padding_mode="border"), limits=_AS_ZEROS),
    Row(GridSample3dBackward(**_VOLUME, kind="random", padding_mode="reflection"), limits=_AS_ZEROS),
    Row(GridSample3dBackward(**_VOLUME, kind="random", mode="nearest"), limits=us(80)),
    Row(GridSample3dBackward(**_SMALL), limits=NO_SLOWER),
    Row(GridSample3dBackward(**_SCAN), limits=NO_SLOWER),
    Row(GridSample3d(**_VOLUME, kind="random"), limits=FORWARD),
    Row(GridSample3d(**_VOLUME), limits=FORWARD),
    Row(GridSample3d(**_VOLUME, element="f16"), limits=FORWARD),
    Row(GridSample3d(**_VOLUME, kind="random", mode="nearest"), limits=FORWARD),
    Row(GridSample3d(**_SMALL), limits=FORWARD),
    Row(GridSample3d(**_SCAN, padding_mode="border"), limits=FORWARD),
)

_CPU_VOLUME: dict[str, Any] = dict(n=1, c=16, d=32, h=32, w=32)

CPU = (
    on_cpu(GridSample3dBackward(**_CPU_VOLUME), TWICE_AS_FAST),
    on_cpu(GridSample3dBackward(**_CPU_VOLUME, kind="random"), TWICE_AS_FAST),
    on_cpu(GridSample3dBackward(**_CPU_VOLUME, mode="nearest", padding_mode="border"), TWICE_AS_FAST),
    on_cpu(GridSample3d(**_CPU_VOLUME), NO_SLOWER),
    on_cpu(GridSample3d(**_CPU_VOLUME, kind="random", padding_mode="reflection"), NO_SLOWER),
)
