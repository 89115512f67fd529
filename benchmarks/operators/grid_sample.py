# SPDX-License-Identifier: Apache-2.0
"""grid_sample in two dimensions as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness.case import (
    FORWARD,
    NO_SLOWER,
    TWICE_AS_FAST,
    Case,
    FrameworkCall,
    JaxCall,
    Limit,
    Part,
    Row,
    no_cliff,
    on_cpu,
    us,
)
from benchmarks.harness.draw import Draw
from pybaracuda import (
    GridSampleBackwardDescriptor,
    GridSampleBackwardPlan,
    GridSampleDescriptor,
    GridSamplePlan,
)
from verify.definitions import grid_sample as definitions
from verify.dtypes import Array, dtype_of

# What is held against float64: so many channels of one image and, for the grid's gradient, so many of its samples.
_CHANNELS, _SAMPLES = 2, 512

C = TypeVar("C", bound="_GridSample")


def smooth_grid(n: int, rows: int, columns: int, rng: np.random.Generator) -> Array:
    """A rotation by a fifth, a little shrinking and shift, and a wave of a hundredth of the image; each image's own."""
    x, y = ((2 * np.arange(extent) + 1) / extent - 1 for extent in (columns, rows))
    y = y[:, None]
    grid = np.empty((n, rows, columns, 2))
    for image in grid:
        angle, size = rng.uniform(0.18, 0.22), rng.uniform(0.93, 0.97)
        shift_x, shift_y = rng.uniform(-0.04, 0.04, 2)
        phase_x, phase_y = rng.uniform(0, 2 * np.pi, 2)
        image[..., 0] = size * (np.cos(angle) * x + np.sin(angle) * y) + shift_x
        image[..., 1] = size * (np.cos(angle) * y - np.sin(angle) * x) + shift_y
        wave_x, wave_y = np.sin(7 * image[..., 1] + phase_x), np.sin(7 * image[..., 0] + phase_y)
        image[..., 0] += 0.01 * wave_x
        image[..., 1] += 0.01 * wave_y
    return grid


@dataclass(frozen=True, kw_only=True)
class _GridSample(Case):
    """`kind` of grid: "smooth" (see smooth_grid), "random" (uniform in [-1, 1]) or "one point" (all on one place)."""

    n: int
    c: int
    ih: int
    iw: int
    oh: int
    ow: int
    kind: str = "smooth"
    mode: str = "bilinear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    @property
    def text(self) -> str:
        samples = "" if (self.oh, self.ow) == (self.ih, self.iw) else f" from {self.n}x{self.oh}x{self.ow}"
        options = [self.mode] * (self.mode != "bilinear") + [self.padding_mode] * (self.padding_mode != "zeros")
        options += ["aligned"] * self.align_corners
        return " ".join((f"{self.n}x{self.c}x{self.ih}x{self.iw}{samples}", self.kind, *options))

    @property
    def _rule(self) -> dict[str, Any]:
        """The options that descriptors and definitions take."""
        return {name: getattr(self, name) for name in ("mode", "padding_mode", "align_corners")}

    @property
    def _is_plain(self) -> bool:
        """Whether map_coordinates does it."""
        return self._numbers == (0, 0, False)

    @property
    def _numbers(self) -> tuple[int, int, bool]:
        """The same as PyTorch's operators take them."""
        modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
        return modes.index(self.mode), paddings.index(self.padding_mode), self.align_corners

    @property
    def _coordinates(self) -> str:
        return "f64" if self.element == "f64" else "f32"

    @property
    def _image_shape(self) -> tuple[int, ...]:
        return (self.n, self.c, self.ih, self.iw)

    @property
    def _sample_shape(self) -> tuple[int, ...]:
        return (self.n, self.c, self.oh, self.ow)

    @property
    def _grid_shape(self) -> tuple[int, ...]:
        return (self.n, self.oh, self.ow, 2)

    def _fields(self) -> dict[str, Any]:
        """What both descriptors are made of."""
        return {name: getattr(self, name) for name in ("n", "c", "ih", "iw", "oh", "ow", "element")} | self._rule

    def _torch_grid(self, given: Mapping[str, Any]) -> tuple[str, Any]:
        """The grid in the image's dtype, which PyTorch wants, a 16-bit one too; and what to call that."""
        grid = given["grid"].to(given["input"].dtype)
        return "PyTorch" if grid.dtype == given["grid"].dtype else "PyTorch, 16-bit grid", grid

    def _draw_grid(self, draw: Draw) -> Array:
        if self.kind == "smooth":
            grid = smooth_grid(self.n, self.oh, self.ow, draw.rng)
        elif self.kind == "random":
            grid = draw.rng.uniform(-1, 1, self._grid_shape)
        else:
            grid = np.broadcast_to(draw.rng.uniform(-0.5, 0.5, 2), self._grid_shape)
        return grid.astype(dtype_of(self._coordinates))

    def unread(self, inputs: Mapping[str, Array]) -> int:
        grids, size = inputs["grid"], (self.ih, self.iw)
        seen = sum(definitions.pixels_read(grid[None], size, grids.dtype, **self._rule) for grid in grids)
        return (self.n * self.ih * self.iw - seen) * self.c * inputs["input"].itemsize

    def _small(self: C) -> C:
        return replace(self, n=2, c=min(self.c, 5), ih=9, iw=14, oh=7, ow=11)

    @staticmethod
    def _jax_sample(jax: Any) -> Callable[[Any, Any], Any]:
        from jax.scipy.ndimage import map_coordinates

        def sample(image: Any, grid: Any) -> Any:
            height, width = image.shape[2:]
            x = ((grid[..., 0] + 1) * width - 1) / 2
            y = ((grid[..., 1] + 1) * height - 1) / 2

            def one(plane: Any, y: Any, x: Any) -> Any:
                return map_coordinates(plane, [y, x], order=1, mode="constant")

            return jax.vmap(lambda planes, y, x: jax.vmap(one, (0, None, None))(planes, y, x))(image, y, x)

        return sample


@dataclass(frozen=True, kw_only=True)
class GridSample(_GridSample):
    """Forward."""

    plan_type = GridSamplePlan

    def descriptor(self) -> GridSampleDescriptor:
        return GridSampleDescriptor(**self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self._image_shape, self.element), "grid": self._draw_grid(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self._sample_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image, channels = int(draw.rng.integers(self.n)), draw.some(_CHANNELS, self.c)
        grid = inputs["grid"][image : image + 1]
        expected = definitions.grid_sample_2d(
            inputs["input"][image, channels][None], grid, **self._rule, coordinate_dtype=grid.dtype
        )
        return [Part(0, lambda output: output[image, channels], expected)]

    @property
    def parts_text(self) -> str:
        return f"{_CHANNELS} of {self.c} channels of one image"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        function, (name, grid) = torch.ops.aten.grid_sampler_2d, self._torch_grid(given)
        return {name: lambda: (function(given["input"], grid, *self._numbers),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        return JaxCall(self._jax_sample(jax), ("input", "grid")) if self._is_plain else None

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class GridSampleBackward(_GridSample):
    """Backward, both gradients."""

    plan_type = GridSampleBackwardPlan

    def unread(self, inputs: Mapping[str, Array]) -> int:
        # The nearest pixel stays the same where a position moves: no gradient depends on the image.
        return inputs["input"].nbytes if self.mode == "nearest" else super().unread(inputs)

    def descriptor(self) -> GridSampleBackwardDescriptor:
        return GridSampleBackwardDescriptor(**self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "grad_output": draw.normal(self._sample_shape, self.element),
            "input": draw.normal(self._image_shape, self.element),
            "grid": self._draw_grid(draw),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self._image_shape, self.element), "grad_grid": (self._grid_shape, self._coordinates)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        image, channels = int(draw.rng.integers(self.n)), draw.some(_CHANNELS, self.c)
        gradient, grid = inputs["grad_output"][image], inputs["grid"][image]
        samples = draw.some(_SAMPLES, self.oh * self.ow)
        of_image = definitions.grid_sample_2d_backward_input(
            gradient[channels][None], grid[None], (self.ih, self.iw), **self._rule, coordinate_dtype=grid.dtype
        )
        of_grid = definitions.grid_sample_2d_backward_grid(
            gradient.reshape(1, self.c, 1, -1)[..., samples],
            inputs["input"][image : image + 1],
            grid.reshape(1, 1, -1, 2)[:, :, samples],
            **self._rule,
            coordinate_dtype=grid.dtype,
        )
        return [
            Part(0, lambda output: output[image, channels], of_image),
            Part(1, lambda output: output[image].reshape(1, -1, 2)[:, samples], of_grid),
        ]

    @property
    def parts_text(self) -> str:
        return f"of one image {_CHANNELS} of {self.c} channels, and the grid's gradient at {_SAMPLES} samples"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        function, (name, grid) = torch.ops.aten.grid_sampler_2d_backward, self._torch_grid(given)
        both = [True, True]
        return {name: lambda: function(given["grad_output"], given["input"], grid, *self._numbers, both)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        if not self._is_plain:
            return None
        sample = self._jax_sample(jax)

        def backward(gradient: Any, image: Any, grid: Any) -> Any:
            return jax.vjp(sample, image, grid)[1](gradient)

        return JaxCall(backward, ("grad_output", "input", "grid"), note="vjp of map_coordinates")

    def small(self) -> Case:
        return self._small()


# ---- rows

ORDER = 20

_FLOW: dict[str, Any] = dict(n=4, c=64, ih=256, iw=256, oh=256, ow=256)
_RGB: dict[str, Any] = dict(n=8, c=3, ih=1024, iw=1024, oh=1024, ow=1024)
_DEEP: dict[str, Any] = dict(n=8, c=256, ih=64, iw=64, oh=64, ow=64)
# EG3D's three planes for four images, and Deformable DETR: 8 images by 8 heads, 300 queries by 4 points.
_TRI_PLANES: dict[str, Any] = dict(n=12, c=32, ih=256, iw=256, oh=1, ow=98304, kind="random")
_DETR: dict[str, Any] = dict(n=64, c=32, ih=100, iw=134, oh=300, ow=4, kind="random")
_ONE_POINT: dict[str, Any] = dict(n=8, c=64, ih=64, iw=64, oh=64, ow=64, kind="one point")


def _as_zeros(sizes: dict[str, Any], kind: str = "smooth") -> tuple[Limit, ...]:
    """Other paddings within a twentieth of zeros, and no slower than a peer."""
    return (*no_cliff(GridSampleBackward(**sizes, kind=kind), 1.05), *NO_SLOWER)


CUDA = (
    Row(GridSampleBackward(**_FLOW), limits=us(118), headline=True),
    Row(GridSampleBackward(**_FLOW, element="f16"), limits=us(85), headline=True),
    Row(GridSampleBackward(**_FLOW, element="bf16"), limits=NO_SLOWER),
    Row(GridSampleBackward(**_FLOW, element="f64"), limits=us(240)),
    Row(GridSampleBackward(**_FLOW, kind="random"), limits=us(195), headline=True),
    Row(GridSampleBackward(**_RGB), limits=us(450), headline=True),
    Row(GridSampleBackward(**_DEEP), limits=us(70), headline=True),
    Row(GridSampleBackward(**_DEEP, kind="random"), limits=NO_SLOWER),
    Row(GridSampleBackward(**_TRI_PLANES), limits=us(770), headline=True),
    Row(GridSampleBackward(**_DETR), limits=us(105), headline=True),
    Row(GridSampleBackward(**_ONE_POINT), limits=us(95), headline=True),
    # Border and reflection within a twentieth of zeros.
    Row(GridSampleBackward(**_FLOW, padding_mode="border"), limits=us(129)),
    Row(GridSampleBackward(**_FLOW, padding_mode="reflection"), limits=us(129)),
    Row(GridSampleBackward(**_FLOW, padding_mode="border", align_corners=True), limits=_as_zeros(_FLOW)),
    Row(GridSampleBackward(**_FLOW, kind="random", padding_mode="border"), limits=_as_zeros(_FLOW, "random")),
    Row(GridSampleBackward(**_FLOW, kind="random", padding_mode="reflection"), limits=_as_zeros(_FLOW, "random")),
    Row(GridSampleBackward(**_FLOW, mode="nearest"), limits=NO_SLOWER),
    Row(GridSampleBackward(**_FLOW, kind="random", mode="nearest"), limits=us(150)),
    Row(GridSampleBackward(**_FLOW, kind="random", mode="bicubic"), limits=us(1000)),
    Row(GridSampleBackward(**_FLOW, mode="bicubic"), limits=NO_SLOWER),
    Row(GridSampleBackward(**_RGB, padding_mode="reflection"), limits=_as_zeros(_RGB)),
    Row(GridSample(**_FLOW, padding_mode="border"), limits=FORWARD),
    Row(GridSample(**_FLOW, padding_mode="reflection"), limits=FORWARD),
    Row(GridSample(**_FLOW, mode="nearest"), limits=FORWARD),
    Row(GridSample(**_FLOW, kind="random", mode="bicubic"), limits=FORWARD),
    Row(GridSample(**_RGB, padding_mode="reflection"), limits=FORWARD),
    Row(GridSample(**_FLOW), limits=FORWARD, headline=True),
    Row(GridSample(**_FLOW, element="f16"), limits=FORWARD),
    Row(GridSample(**_FLOW, element="bf16"), limits=FORWARD),
    Row(GridSample(**_FLOW, element="f64"), limits=FORWARD),
    Row(GridSample(**_FLOW, kind="random"), limits=FORWARD),
    Row(GridSample(**_RGB), limits=FORWARD),
    Row(GridSample(**_DEEP), limits=FORWARD),
    Row(GridSample(**_TRI_PLANES), limits=FORWARD),
    Row(GridSample(**_DETR), limits=FORWARD),
    Row(GridSample(**_ONE_POINT), limits=FORWARD),
)

_CPU_FLOW: dict[str, Any] = dict(n=2, c=32, ih=128, iw=128, oh=128, ow=128)

CPU = (
    on_cpu(GridSampleBackward(**_CPU_FLOW), TWICE_AS_FAST),
    on_cpu(GridSampleBackward(**_CPU_FLOW, kind="random"), TWICE_AS_FAST),
    on_cpu(GridSampleBackward(**_CPU_FLOW, element="bf16"), TWICE_AS_FAST),
    on_cpu(GridSampleBackward(**_CPU_FLOW, padding_mode="reflection"), TWICE_AS_FAST),
    on_cpu(GridSampleBackward(**_CPU_FLOW, mode="nearest", padding_mode="border"), TWICE_AS_FAST),
    on_cpu(GridSampleBackward(**_CPU_FLOW, mode="bicubic"), TWICE_AS_FAST),
    on_cpu(GridSample(**_CPU_FLOW), NO_SLOWER),
    on_cpu(GridSample(**_CPU_FLOW, mode="bicubic"), NO_SLOWER),
    on_cpu(GridSample(**_CPU_FLOW, padding_mode="reflection"), NO_SLOWER),
    on_cpu(GridSample(**_CPU_FLOW, mode="nearest", padding_mode="border"), NO_SLOWER),
)
