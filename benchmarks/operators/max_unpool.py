# SPDX-License-Identifier: Apache-2.0
"""Maximum unpooling as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.case import NO_SLOWER, TWICE_AS_FAST, Case, FrameworkCall, Limit, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import (
    MaxUnpoolBackwardDescriptor,
    MaxUnpoolBackwardPlan,
    MaxUnpoolDescriptor,
    MaxUnpoolPlan,
)
from verify.bounds import exact
from verify.definitions import max_unpool as definitions
from verify.dtypes import Array

# What is held against the definition: so many planes.
_PLANES = 2


@dataclass(frozen=True, kw_only=True)
class _Unpool(Case):
    """To twice as many places on the axes in `extents`, of which there are up to three."""

    n: int
    c: int
    extents: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"N{self.n} C{self.c} {'x'.join(map(str, self.extents))} -> twice as many"

    @property
    def _input_shape(self) -> tuple[int, ...]:
        return (self.n, self.c, *(1,) * (3 - len(self.extents)), *self.extents)

    @property
    def _output_size(self) -> tuple[int, int, int]:
        d, h, w = (*(1,) * (3 - len(self.extents)), *(2 * extent for extent in self.extents))
        return d, h, w

    @property
    def _output_shape(self) -> tuple[int, ...]:
        return (self.n, self.c, *self._output_size)

    def _fields(self) -> tuple[Any, ...]:
        return (*self._input_shape, *self._output_size, self.element)

    def _flat(self, tensor: Any) -> Any:
        """Without the axes that are not unpooled, as PyTorch takes it."""
        return tensor.view(*tensor.shape[:2], *tensor.shape[5 - len(self.extents) :])

    def _indices(self, draw: Draw) -> Array:
        """Of each window of two places a side, any place."""
        axes = len(self.extents)
        index = np.zeros(self._input_shape, np.int64)
        for axis in range(3 - axes, 3):
            shape = [1] * 5
            shape[2 + axis] = -1
            first = 2 * np.arange(self._input_shape[2 + axis]).reshape(shape)
            drawn = (draw.rng.random(self._input_shape, np.float32) < 0.5).astype(np.int64)
            index = index * self._output_size[axis] + first + drawn
        return index

    def small(self) -> Case:
        return replace(self, n=2, c=3, extents=(4, 5, 6)[: len(self.extents)])

    @property
    def parts_text(self) -> str:
        return f"{_PLANES} of {self.n * self.c} planes"


@dataclass(frozen=True, kw_only=True)
class MaxUnpool(_Unpool):
    """Forward."""

    plan_type = MaxUnpoolPlan

    def descriptor(self) -> MaxUnpoolDescriptor:
        return MaxUnpoolDescriptor(*self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self._input_shape, self.element), "indices": self._indices(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self._output_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        channels, image = draw.some(_PLANES, self.c), int(draw.rng.integers(self.n))
        elements, indices = (inputs[name][image, channels][None] for name in ("input", "indices"))
        expected = definitions.max_unpool(elements, indices, self._output_size)
        return [Part(0, lambda output: output[image, channels][None], exact(expected))]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        image, indices = self._flat(given["input"]), self._flat(given["indices"])
        function = getattr(torch.nn.functional, f"max_unpool{len(self.extents)}d")
        return {"torch": lambda: (function(image, indices, 2),)}


@dataclass(frozen=True, kw_only=True)
class MaxUnpoolBackward(_Unpool):
    """Backward."""

    plan_type = MaxUnpoolBackwardPlan

    def descriptor(self) -> MaxUnpoolBackwardDescriptor:
        return MaxUnpoolBackwardDescriptor(*self._fields())

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self._output_shape, self.element), "indices": self._indices(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self._input_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        channels, image = draw.some(_PLANES, self.c), int(draw.rng.integers(self.n))
        gradient, indices = (inputs[name][image, channels][None] for name in ("grad_output", "indices"))
        expected = definitions.max_unpool_backward(gradient, indices)
        return [Part(0, lambda gradient: gradient[image, channels][None], exact(expected))]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        gradient, indices = given["grad_output"].flatten(2), given["indices"].flatten(2)
        # What PyTorch's derivative is.
        return {"torch": lambda: (gradient.gather(2, indices).view(self._input_shape),)}


# ---- rows

ORDER = 73

_BACKWARD = (Limit("light", 1.6), Limit("peer", 1.0))

_MAP: dict[str, Any] = dict(n=16, c=64, extents=(64, 64))
_VOLUME: dict[str, Any] = dict(n=2, c=32, extents=(16, 32, 32))
_LINE: dict[str, Any] = dict(n=16, c=64, extents=(8192,))

CUDA = (
    Row(MaxUnpool(**_MAP), limits=NO_SLOWER, headline=True),
    Row(MaxUnpool(**_MAP, element="f16"), limits=NO_SLOWER),
    Row(MaxUnpool(**_VOLUME), limits=NO_SLOWER),
    Row(MaxUnpool(**_LINE), limits=NO_SLOWER),
    Row(MaxUnpoolBackward(**_MAP), limits=_BACKWARD),
    Row(MaxUnpoolBackward(**_VOLUME), limits=_BACKWARD),
)

CPU = (
    on_cpu(MaxUnpool(n=4, c=64, extents=(64, 64)), TWICE_AS_FAST),
    on_cpu(MaxUnpoolBackward(n=4, c=64, extents=(64, 64)), NO_SLOWER),
)
