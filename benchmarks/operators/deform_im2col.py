# SPDX-License-Identifier: Apache-2.0
"""The sampling of deformable convolution as benchmark cases, and its gradients; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness.case import NO_SLOWER, TWICE_AS_FAST, Case, FrameworkCall, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import (
    DeformIm2colBackwardDescriptor,
    DeformIm2colBackwardPlan,
    DeformIm2colDescriptor,
    DeformIm2colOffsetBackwardDescriptor,
    DeformIm2colOffsetBackwardPlan,
    DeformIm2colPlan,
)
from verify.definitions import deform_im2col as definitions
from verify.dtypes import Array, dtype_of

# What is held against float64: so many channels of one image, and of gradients to samples so many rows of positions.
_CHANNELS, _ROWS = 2, 4


@dataclass(frozen=True, kw_only=True)
class _Deform(Case):
    """A kernel of `taps` x `taps` with masks on every pixel, all channels in one group; offsets of some pixels."""

    n: int
    c: int
    h: int
    w: int
    taps: int = 3

    @property
    def text(self) -> str:
        return f"{self.n}x{self.c}x{self.h}x{self.w} {self.taps}x{self.taps}"

    @property
    def _moves(self) -> str:
        """The dtype of offsets and masks."""
        return "f64" if self.element == "f64" else "f32"

    @property
    def _images(self) -> tuple[int, ...]:
        return (self.n, self.c, self.h, self.w)

    @property
    def _columns(self) -> tuple[int, ...]:
        return (self.n, self.c * self.taps**2, self.h * self.w)

    @property
    def _offsets(self) -> tuple[int, ...]:
        return (self.n, 2 * self.taps**2, self.h, self.w)

    @property
    def _masks(self) -> tuple[int, ...]:
        return (self.n, self.taps**2, self.h, self.w)

    @property
    def _fields(self) -> dict[str, Any]:
        taps, padding = self.taps, self.taps // 2
        sizes = {"n": self.n, "offset_groups": 1, "c": self.c, "h": self.h, "w": self.w}
        window = {"kernel_h": taps, "kernel_w": taps, "padding_h": padding, "padding_w": padding}
        return {**sizes, "output_h": self.h, "output_w": self.w, **window, "has_mask": 1, "element": self.element}

    def _window(self, first_row: int = 0) -> definitions.Window:
        """The kernel's; `first_row` is that of the positions that are asked for."""
        padding = self.taps // 2
        return definitions.Window((self.taps, self.taps), padding=(padding - first_row, padding))

    def _draw_moves(self, draw: Draw) -> dict[str, Array]:
        wide = dtype_of(self._moves)
        return {
            "offset": (2 * draw.rng.standard_normal(self._offsets)).astype(wide),
            "mask": draw.rng.uniform(0, 1, self._masks).astype(wide),
        }

    def _small(self) -> dict[str, Any]:
        return {"n": 2, "c": min(self.c, 5), "h": 7, "w": 6}

    def _torch_grid(self, torch: Any, given: Mapping[str, Any]) -> tuple[Any, Any]:
        """The same positions as grid_sample takes them, made once, and the masks beside what it answers."""
        offset, padding = given["offset"], self.taps // 2
        moves = offset.reshape(self.n, self.taps, self.taps, 2, self.h, self.w)
        places = [torch.arange(extent, device=offset.device) - padding for extent in (self.taps, self.h, self.w)]
        tap, row, column = places[0] + padding, places[1], places[2]
        y = moves[:, :, :, 0] + row[:, None] + tap[:, None, None, None]
        x = moves[:, :, :, 1] + column + tap[:, None, None]
        grid = torch.stack([2 * x / (self.w - 1) - 1, 2 * y / (self.h - 1) - 1], dim=-1)
        shape = (self.n, self.taps**2 * self.h, self.w)
        return grid.reshape(*shape, 2).contiguous(), given["mask"].reshape(self.n, 1, *shape[1:])


@dataclass(frozen=True, kw_only=True)
class DeformIm2col(_Deform):
    """Forward."""

    plan_type = DeformIm2colPlan

    def descriptor(self) -> DeformIm2colDescriptor:
        return DeformIm2colDescriptor(**self._fields)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self._images, self.element), **self._draw_moves(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"columns": (self._columns, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image, channels = int(draw.rng.integers(self.n)), draw.some(_CHANNELS, self.c)
        offset, mask = inputs["offset"][image][None], inputs["mask"][image][None]
        expected = definitions.deform_im2col(
            inputs["input"][image, channels][None], offset, self._window(), mask, offset.dtype
        )
        shape = (self.c, self.taps**2, -1)
        return [
            Part(
                0,
                lambda columns: columns[image].reshape(shape)[channels],
                expected.map(lambda part: part.reshape(len(channels), *shape[1:])),
            )
        ]

    @property
    def parts_text(self) -> str:
        return f"{_CHANNELS} of {self.c} channels of one image"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        if self.element in ("f16", "bf16"):
            return {}  # positions of 16 bits
        grid, mask = self._torch_grid(torch, given)
        sample = torch.ops.aten.grid_sampler_2d
        name = "PyTorch's grid_sample, a grid given"
        return {name: lambda: ((sample(given["input"], grid, 0, 0, True) * mask).reshape(self._columns),)}

    def small(self) -> Case:
        return replace(self, **self._small())


@dataclass(frozen=True, kw_only=True)
class DeformIm2colBackward(_Deform):
    """By input."""

    plan_type = DeformIm2colBackwardPlan

    def descriptor(self) -> DeformIm2colBackwardDescriptor:
        return DeformIm2colBackwardDescriptor(**self._fields)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_columns": draw.normal(self._columns, self.element), **self._draw_moves(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self._images, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image, channels = int(draw.rng.integers(self.n)), draw.some(_CHANNELS, self.c)
        offset, mask = inputs["offset"][image][None], inputs["mask"][image][None]
        gradient = inputs["grad_columns"][image].reshape(self.c, -1)[channels]
        expected = definitions.deform_im2col_backward(
            gradient, offset, (1, len(channels), self.h, self.w), self._window(), mask, offset.dtype
        )
        return [Part(0, lambda gradients: gradients[image, channels], expected.map(lambda part: part[0]))]

    @property
    def parts_text(self) -> str:
        return f"{_CHANNELS} of {self.c} channels of one image"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        if self.element in ("f16", "bf16"):
            return {}
        grid, mask = self._torch_grid(torch, given)
        gradients = given["grad_columns"].reshape(self.n, self.c, *grid.shape[1:3])
        images = torch.zeros(self._images, dtype=gradients.dtype, device=gradients.device)
        backward, alone = torch.ops.aten.grid_sampler_2d_backward, [True, False]
        name = "PyTorch's grid_sample backward, a grid given"
        return {name: lambda: backward(gradients * mask, images, grid, 0, 0, True, alone)[:1]}

    def small(self) -> Case:
        return replace(self, **self._small())


@dataclass(frozen=True, kw_only=True)
class DeformIm2colOffsetBackward(_Deform):
    """By offset and mask."""

    plan_type = DeformIm2colOffsetBackwardPlan

    def descriptor(self) -> DeformIm2colOffsetBackwardDescriptor:
        return DeformIm2colOffsetBackwardDescriptor(**self._fields)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "grad_columns": draw.normal(self._columns, self.element),
            "input": draw.normal(self._images, self.element),
            **self._draw_moves(draw),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_offset": (self._offsets, self._moves), "grad_mask": (self._masks, self._moves)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image, first = int(draw.rng.integers(self.n)), int(draw.rng.integers(max(self.h - _ROWS, 1)))
        rows = slice(first, first + _ROWS)
        offset, mask = inputs["offset"][image, :, rows][None], inputs["mask"][image, :, rows][None]
        gradient = inputs["grad_columns"][image].reshape(-1, self.h, self.w)[:, rows]
        by_offset, by_mask = definitions.deform_im2col_offset_backward(
            gradient, inputs["input"][image][None], offset, self._window(first), mask, offset.dtype
        )
        return [
            Part(0, lambda gradients: gradients[image, :, rows], by_offset.map(lambda part: part[0])),
            Part(1, lambda gradients: gradients[image, :, rows], by_mask.map(lambda part: part[0])),
        ]

    @property
    def parts_text(self) -> str:
        return f"{_ROWS} of {self.h} rows of positions of one image"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        """Of the positions alone: the gradient to the mask would be a sampling more."""
        if self.element in ("f16", "bf16"):
            return {}
        grid, mask = self._torch_grid(torch, given)
        gradients = given["grad_columns"].reshape(self.n, self.c, *grid.shape[1:3])
        backward, alone = torch.ops.aten.grid_sampler_2d_backward, [False, True]
        scale = torch.tensor([2 / (self.w - 1), 2 / (self.h - 1)], dtype=grid.dtype, device=grid.device)
        by_place = mask.reshape(*grid.shape[:3], 1) * scale

        def by_offset() -> tuple[Any, None]:
            slopes = backward(gradients, given["input"], grid, 0, 0, True, alone)[1] * by_place
            slopes = slopes.reshape(self.n, self.taps**2, self.h, self.w, 2).flip(-1)
            return slopes.permute(0, 1, 4, 2, 3).reshape(self._offsets), None

        return {"PyTorch's grid_sample backward, a grid given, without the mask's": by_offset}

    def small(self) -> Case:
        return replace(self, **self._small())


# ---- rows

ORDER = 26

# The stages of a detector's backbone, and of a classifier's.
_C2: dict[str, Any] = dict(n=2, c=64, h=100, w=152)
_C4: dict[str, Any] = dict(n=2, c=256, h=50, w=76)
_WIDE: dict[str, Any] = dict(n=4, c=128, h=128, w=128)
_SMALL: dict[str, Any] = dict(n=8, c=64, h=56, w=56)

CUDA = tuple(
    Row(kind(**sizes, element=element), limits=NO_SLOWER, headline=sizes is _C2 and kind is not DeformIm2col)
    for kind in (DeformIm2colBackward, DeformIm2colOffsetBackward, DeformIm2col)
    for sizes, element in ((_C2, "f32"), (_C4, "f32"), (_WIDE, "f32"), (_SMALL, "f32"), (_C2, "f16"), (_C2, "f64"))
)

_CPU_STAGE: dict[str, Any] = dict(n=2, c=64, h=28, w=28)

CPU = (
    on_cpu(DeformIm2colBackward(**_CPU_STAGE), TWICE_AS_FAST),
    on_cpu(DeformIm2colOffsetBackward(**_CPU_STAGE), NO_SLOWER),
    on_cpu(DeformIm2col(**_CPU_STAGE), NO_SLOWER),
)
