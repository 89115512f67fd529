# SPDX-License-Identifier: Apache-2.0
"""Dequantisation per channel as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness.case import COPY, FORWARD, NEAR_COPY, NO_SLOWER, Case, FrameworkCall, JaxCall, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import (
    DequantizePerChannelBackwardDescriptor,
    DequantizePerChannelBackwardPlan,
    DequantizePerChannelDescriptor,
    DequantizePerChannelPlan,
)
from verify.definitions import dequantize as definitions
from verify.dtypes import Array, dtype_of

# So many channels are held against their definition.
_CHANNELS = 4

C = TypeVar("C", bound="_Dequantize")


@dataclass(frozen=True, kw_only=True)
class _Dequantize(Case):
    """An array of `shape` with a scale for each index along `axis`."""

    shape: tuple[int, ...]
    axis: int

    @property
    def text(self) -> str:
        return f"{'x'.join(map(str, self.shape))} axis {self.axis}"

    @property
    def parts_text(self) -> str:
        return f"{_CHANNELS} of {self.shape[self.axis]} channels"

    def _draw_scale(self, draw: Draw) -> Array:
        return draw.rng.uniform(0.01, 1, self.shape[self.axis]).astype(dtype_of(self.element))

    def _channels(self, values: Array, chosen: Array) -> Array:
        """The chosen channels, the channel axis first."""
        return np.moveaxis(np.take(values, chosen, self.axis), self.axis, 0)

    def _along(self, per_channel: Any) -> Any:
        """A vector that has one entry for every channel, so shaped that it broadcasts."""
        return per_channel.reshape([-1 if axis == self.axis else 1 for axis in range(len(self.shape))])

    def _small(self: C) -> C:
        return replace(self, shape=tuple(range(3, 3 + len(self.shape))))


@dataclass(frozen=True, kw_only=True)
class Dequantize(_Dequantize):
    """Forward, from int8."""

    plan_type = DequantizePerChannelPlan

    def descriptor(self) -> DequantizePerChannelDescriptor:
        return DequantizePerChannelDescriptor(self.shape, self.axis, "s8", self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {
            "input": draw.rng.integers(-128, 128, self.shape, np.int8),
            "scale": self._draw_scale(draw),
            "zero_point": draw.rng.integers(-128, 128, self.shape[self.axis], np.int32),
        }

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self.shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        chosen = draw.some(_CHANNELS, self.shape[self.axis])
        expected = definitions.dequantize_per_channel(
            self._channels(inputs["input"], chosen), inputs["scale"][chosen], inputs["zero_point"][chosen], 0
        )
        return [Part(0, lambda output: self._channels(output, chosen), expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        values, out = given["input"], given["output"]
        scale, zero = self._along(given["scale"]), self._along(given["zero_point"])
        return {"PyTorch": lambda: (torch.sub(values, zero, out=out).mul_(scale),)}

    def cupy_calls(self, cupy: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        kernel = cupy.ElementwiseKernel(
            "int8 q, T scale, int32 zero", "T x", "x = static_cast<T>(q - zero) * scale", "bench_dequantize"
        )
        values, out = given["input"], given["output"]
        scale, zero = self._along(given["scale"]), self._along(given["zero_point"])
        return {"CuPy": lambda: (kernel(values, scale, zero, out),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        def forward(values: Any, scale: Any, zero: Any) -> Any:
            return (values.astype(zero.dtype) - self._along(zero)).astype(scale.dtype) * self._along(scale)

        return JaxCall(forward, ("input", "scale", "zero_point"))

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class DequantizeBackward(_Dequantize):
    """Backward."""

    plan_type = DequantizePerChannelBackwardPlan

    def descriptor(self) -> DequantizePerChannelBackwardDescriptor:
        return DequantizePerChannelBackwardDescriptor(self.shape, self.axis, output_element=self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self.shape, self.element), "scale": self._draw_scale(draw)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.shape, self.element)}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        chosen = draw.some(_CHANNELS, self.shape[self.axis])
        expected = definitions.dequantize_per_channel_backward(
            self._channels(inputs["grad_output"], chosen), inputs["scale"][chosen], 0
        )
        return [Part(0, lambda output: self._channels(output, chosen), expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        gradient, scale, out = given["grad_output"], self._along(given["scale"]), given["grad_input"]
        return {"PyTorch": lambda: (torch.mul(gradient, scale, out=out),)}

    def cupy_calls(self, cupy: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        gradient, scale, out = given["grad_output"], self._along(given["scale"]), given["grad_input"]
        return {"CuPy": lambda: (cupy.multiply(gradient, scale, out=out),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        return JaxCall(lambda gradient, scale: gradient * self._along(scale), ("grad_output", "scale"))

    def small(self) -> Case:
        return self._small()


# ---- rows

ORDER = 50

_ACTIVATIONS: dict[str, Any] = dict(shape=(32, 256, 128, 128), axis=1)
_WEIGHTS: dict[str, Any] = dict(shape=(8192, 8192), axis=0)
_LAST_AXIS: dict[str, Any] = dict(shape=(8192, 8192), axis=1)

CUDA = (
    Row(DequantizeBackward(**_ACTIVATIONS), limits=COPY, headline=True),
    Row(DequantizeBackward(**_ACTIVATIONS, element="bf16"), limits=COPY, headline=True),
    Row(DequantizeBackward(**_WEIGHTS, element="f16"), limits=COPY, headline=True),
    Row(DequantizeBackward(**_LAST_AXIS), limits=COPY, headline=True),
    Row(Dequantize(**_ACTIVATIONS), limits=FORWARD),
    Row(Dequantize(**_ACTIVATIONS, element="bf16"), limits=FORWARD, headline=True),
    Row(Dequantize(**_WEIGHTS, element="f16"), limits=FORWARD),
    Row(Dequantize(**_LAST_AXIS), limits=FORWARD),
)

_CPU_ACTIVATIONS: dict[str, Any] = dict(shape=(8, 64, 128, 128), axis=1)

CPU = (
    on_cpu(DequantizeBackward(**_CPU_ACTIVATIONS), NEAR_COPY),
    on_cpu(DequantizeBackward(**_CPU_ACTIVATIONS, element="bf16"), NEAR_COPY),
    on_cpu(Dequantize(**_CPU_ACTIVATIONS), NO_SLOWER),
)
