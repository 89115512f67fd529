# SPDX-License-Identifier: Apache-2.0
"""Padding as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ..demo import reference
from ..pad import PadBackwardDescriptor, PadBackwardPlan, PadDescriptor, PadPlan
from .case import Case, FrameworkCall, JaxCall, Part
from .draw import Array, Draw

# So many of the arrays over the padded axes are held against their definition.
_PLANES = 4
# Our names of the modes in NumPy and JAX.
_NUMPY_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_VALUE = 0.5

C = TypeVar("C", bound="_Pad")


@dataclass(frozen=True, kw_only=True)
class _Pad(Case):
    """The last `axes` axes of an array of `shape` get `width` elements on either side."""

    shape: tuple[int, ...]
    width: int
    axes: int = 2
    mode: str = "constant"

    @property
    def text(self) -> str:
        axes = "" if self.axes == 2 else f", {self.axes} axes"
        return f"{'x'.join(map(str, self.shape))} pad {self.width}{axes}"

    @property
    def _pads(self) -> tuple[int, ...]:
        return (0,) * (len(self.shape) - self.axes) + (self.width,) * self.axes

    @property
    def _padded_shape(self) -> tuple[int, ...]:
        return tuple(extent + 2 * width for extent, width in zip(self.shape, self._pads, strict=True))

    @property
    def _lead(self) -> int:
        """How many arrays over the padded axes there are."""
        return math.prod(self.shape[: -self.axes])

    @property
    def parts_text(self) -> str:
        return f"{_PLANES} of {self._lead} arrays over the padded axes"

    def _planes(self, values: Array) -> Array:
        """The arrays over the padded axes, one after the other."""
        return values.reshape(-1, *values.shape[-self.axes :])

    def _torch_pads(self) -> list[int]:
        return [self.width] * (2 * self.axes)

    def _inner(self, padded: Any) -> Any:
        """What of a padded array was there before."""
        return padded[tuple([..., *[slice(self.width, -self.width)] * self.axes])]

    def _small(self: C) -> C:
        lead = (2,) * (len(self.shape) - self.axes)
        return replace(self, shape=(*lead, *range(7, 7 + self.axes)))


@dataclass(frozen=True, kw_only=True)
class Pad(_Pad):
    """Forward."""

    plan_type = PadPlan

    @property
    def operator(self) -> str:
        return f"pad_{self.mode}"

    def descriptor(self) -> PadDescriptor:
        return PadDescriptor(self.shape, self._pads, self._pads, self.mode, _VALUE, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"input": draw.normal(self.shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self._padded_shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        if self.mode != "constant":
            return []
        planes, width = draw.some(_PLANES, self._lead), (0, *[self.width] * self.axes)
        values = self._planes(inputs["input"])[planes]
        expected = reference.pad(values, width, width, _VALUE)
        return [Part(0, lambda output: self._planes(output)[planes], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        function, pads = torch.nn.functional.pad, self._torch_pads()
        value = _VALUE if self.mode == "constant" else None
        return {"PyTorch": lambda: (function(given["input"], pads, self.mode, value),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        pads, mode = [(width, width) for width in self._pads], _NUMPY_MODES[self.mode]
        options = {"constant_values": _VALUE} if self.mode == "constant" else {}
        return JaxCall(lambda values: jax.numpy.pad(values, pads, mode, **options), ("input",))

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class PadBackward(_Pad):
    """Backward."""

    plan_type = PadBackwardPlan

    @property
    def operator(self) -> str:
        return f"pad_{self.mode}_backward"

    def descriptor(self) -> PadBackwardDescriptor:
        return PadBackwardDescriptor(self.shape, self._pads, self._pads, self.mode, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self._padded_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.shape, self.element)}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        if self.mode != "constant":
            return 0
        return (math.prod(self._padded_shape) - math.prod(self.shape)) * inputs["grad_output"].itemsize

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        planes, width = draw.some(_PLANES, self._lead), (0, *[self.width] * self.axes)
        gradient = self._planes(inputs["grad_output"])[planes]
        if self.mode == "constant":
            expected = reference.pad_backward(gradient, width, width)
        else:
            expected = self._folded(gradient)
        return [Part(0, lambda output: self._planes(output)[planes], expected)]

    def _folded(self, gradient: Array) -> reference.Expected:
        """Every gradient element added to the element that its place was filled from, which numpy.pad knows."""
        inner = self.shape[-self.axes :]
        places = np.arange(math.prod(inner)).reshape(inner)
        source = np.pad(places, self.width, _NUMPY_MODES[self.mode]).ravel()  # type: ignore[call-overload]
        flat = gradient.astype(np.float64).reshape(len(gradient), -1)
        value, magnitude = (np.stack([np.bincount(source, each) for each in part]) for part in (flat, np.abs(flat)))
        # Where one element arrives it is moved; of several, each meets at most so many additions, and a partial sum.
        terms = np.bincount(source)
        roundings = np.broadcast_to(np.where(terms > 1, terms + 1, 0), value.shape)
        shape = (len(gradient), *inner)
        return reference.Expected(value.reshape(shape), magnitude.reshape(shape), roundings.reshape(shape))

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        gradient, out = given["grad_output"], given["grad_input"]
        if self.mode == "constant":
            inner = self._inner(gradient)
            return {"PyTorch": lambda: (out.copy_(inner),)}
        source = torch.empty_like(out).requires_grad_()
        if self.mode == "circular":
            padded = torch.nn.functional.pad(source, self._torch_pads(), "circular")
            return {"PyTorch": lambda: torch.autograd.grad(padded, source, gradient, retain_graph=True)}
        kind = {"reflect": "reflection", "replicate": "replication"}[self.mode]
        function = getattr(torch.ops.aten, f"{kind}_pad{self.axes}d_backward").grad_input
        plain = source.detach()
        return {"PyTorch": lambda: (function(gradient, plain, self._torch_pads(), grad_input=out),)}

    def cupy_calls(self, cupy: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        if self.mode != "constant":
            return {}
        out, inner = given["grad_input"], self._inner(given["grad_output"])

        def copy() -> tuple[Any, ...]:
            cupy.copyto(out, inner)
            return (out,)

        return {"CuPy": copy}

    def jax_call(self, jax: Any) -> JaxCall | None:
        pads, mode = [(width, width) for width in self._pads], _NUMPY_MODES[self.mode]

        def backward(gradient: Any) -> Any:
            zeros = jax.numpy.zeros(self.shape, gradient.dtype)
            return jax.vjp(lambda values: jax.numpy.pad(values, pads, mode), zeros)[1](gradient)[0]

        return JaxCall(backward, ("grad_output",), note="vjp of jax.numpy.pad")

    def small(self) -> Case:
        return self._small()
