# SPDX-License-Identifier: Apache-2.0
"""Padding as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness.case import COPY, FORWARD, NEAR_COPY, Case, FrameworkCall, JaxCall, Limit, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda import PadBackwardDescriptor, PadBackwardPlan, PadDescriptor, PadPlan
from verify.bounds import exact
from verify.definitions import pad as definitions
from verify.dtypes import Array, dtype_of

# So many of the arrays over the padded axes are held against their definition.
_PLANES = 4
_NUMPY_MODES = {
    "constant": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
    "symmetric": "symmetric",
}
# Dtypes of an element that is known by its width alone.
_HELD_AS = {"b8": "u8", "b32": "i32"}
_VALUE = 0.5
_BITS = 3

C = TypeVar("C", bound="_Pad")


@dataclass(frozen=True, kw_only=True)
class _Pad(Case):
    """The last `axes` axes of an array of `shape` get `width` elements before and `after` behind, else as many.

    A negative number cuts off.
    """

    shape: tuple[int, ...]
    width: int
    after: int | None = None
    axes: int = 2
    mode: str = "constant"

    @property
    def text(self) -> str:
        # An operator of its own has these, for every mode.
        widths = f"{self.width}" if self.after is None else f"{self.width} and {self.after}, {self.mode}"
        axes = "" if self.axes == 2 else f", {self.axes} axes"
        return f"{'x'.join(map(str, self.shape))} pad {widths}{axes}"

    @property
    def _widths(self) -> tuple[int, int]:
        return self.width, self.width if self.after is None else self.after

    @property
    def _low(self) -> tuple[int, ...]:
        return (0,) * (len(self.shape) - self.axes) + (self._widths[0],) * self.axes

    @property
    def _high(self) -> tuple[int, ...]:
        return (0,) * (len(self.shape) - self.axes) + (self._widths[1],) * self.axes

    @property
    def _padded_shape(self) -> tuple[int, ...]:
        return tuple(map(sum, zip(self.shape, self._low, self._high, strict=True)))

    @property
    def _kept(self) -> int:
        """How many elements are not cut off."""
        cut = [min(low, 0) + min(high, 0) for low, high in zip(self._low, self._high, strict=True)]
        return math.prod(map(sum, zip(self.shape, cut, strict=True)))

    @property
    def _array_element(self) -> str:
        return _HELD_AS.get(self.element, self.element)

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

    def _plane_pads(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Before and behind each axis of what `_planes` answers."""
        low, high = self._widths
        return (0, *[low] * self.axes), (0, *[high] * self.axes)

    def _torch_pads(self, sign: int = 1) -> list[int]:
        return [sign * width for width in self._widths] * self.axes

    def _inner(self, padded: Any) -> Any:
        """What of a padded array was there before."""
        return padded[tuple([..., *[slice(self.width, -self.width)] * self.axes])]

    def _jax_pad(self, jax: Any, values: Any, value: Any) -> Any:
        pads = list(zip(self._low, self._high, strict=True))
        if self.mode != "constant":
            return jax.numpy.pad(values, pads, _NUMPY_MODES[self.mode])
        # jax.numpy.pad takes no negative widths, and is this one otherwise.
        constant = jax.numpy.asarray(value, values.dtype)
        return jax.lax.pad(values, constant, [(low, high, 0) for low, high in pads])

    def _small(self: C) -> C:
        lead = (2,) * (len(self.shape) - self.axes)
        return replace(self, shape=(*lead, *range(7, 7 + self.axes)))


@dataclass(frozen=True, kw_only=True)
class Pad(_Pad):
    """Forward."""

    plan_type = PadPlan

    @property
    def _value(self) -> float | int:
        return _BITS if self.element in _HELD_AS else _VALUE

    def descriptor(self) -> PadDescriptor:
        return PadDescriptor(self.shape, self._low, self._high, self.mode, self._value, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        if self.element not in _HELD_AS:
            return {"input": draw.normal(self.shape, self.element)}
        dtype = dtype_of(self._array_element)
        limits = np.iinfo(dtype)
        return {"input": draw.rng.integers(limits.min, limits.max, self.shape, dtype, endpoint=True)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"output": (self._padded_shape, self._array_element)}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        return (math.prod(self.shape) - self._kept) * inputs["input"].itemsize

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        planes = draw.some(_PLANES, self._lead)
        values = self._planes(inputs["input"])[planes]
        expected = exact(definitions.pad(values, *self._plane_pads(), self.mode, self._value))
        return [Part(0, lambda output: self._planes(output)[planes], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        if self.mode == "symmetric":
            return {}
        function, pads = torch.nn.functional.pad, self._torch_pads()
        value = self._value if self.mode == "constant" else None
        return {"PyTorch": lambda: (function(given["input"], pads, self.mode, value),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        return JaxCall(lambda values: self._jax_pad(jax, values, self._value), ("input",))

    def small(self) -> Case:
        return self._small()


@dataclass(frozen=True, kw_only=True)
class PadBackward(_Pad):
    """Backward."""

    plan_type = PadBackwardPlan

    def descriptor(self) -> PadBackwardDescriptor:
        return PadBackwardDescriptor(self.shape, self._low, self._high, self.mode, self.element)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        return {"grad_output": draw.normal(self._padded_shape, self.element)}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {"grad_input": (self.shape, self.element)}

    def unread(self, inputs: Mapping[str, Array]) -> int:
        if self.mode != "constant":
            return 0
        return (math.prod(self._padded_shape) - self._kept) * inputs["grad_output"].itemsize

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        planes = draw.some(_PLANES, self._lead)
        gradient = self._planes(inputs["grad_output"])[planes]
        expected = definitions.pad_backward(gradient, *self._plane_pads(), self.mode)
        return [Part(0, lambda output: self._planes(output)[planes], expected)]

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        gradient, out = given["grad_output"], given["grad_input"]
        if self.mode == "symmetric":
            return {}
        if min(self._widths) < 0:
            # What autograd calls.
            return {"PyTorch": lambda: (torch.constant_pad_nd(gradient, self._torch_pads(-1)),)}
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
        if self.mode != "constant" or min(self._widths) < 0:
            return {}
        out, inner = given["grad_input"], self._inner(given["grad_output"])

        def copy() -> tuple[Any, ...]:
            cupy.copyto(out, inner)
            return (out,)

        return {"CuPy": copy}

    def jax_call(self, jax: Any) -> JaxCall | None:
        def backward(gradient: Any) -> Any:
            zeros = jax.numpy.zeros(self.shape, gradient.dtype)
            return jax.vjp(lambda values: self._jax_pad(jax, values, 0), zeros)[1](gradient)[0]

        name = "jax.lax.pad" if self.mode == "constant" else "jax.numpy.pad"
        return JaxCall(backward, ("grad_output",), note=f"vjp of {name}")

    def small(self) -> Case:
        return self._small()


# ---- rows

ORDER = 30

# Pure copies of small planes, copies that add at the edges, and those of small planes.
_SMALL_COPY = (Limit("copy", 1.2),)
_FOLD_COPY = (Limit("copy", 1.06),)
_SMALL_FOLD_COPY = (Limit("copy", 1.3),)

_IMAGES: dict[str, Any] = dict(shape=(8, 64, 512, 512), width=3)
_SMALL_PLANES: dict[str, Any] = dict(shape=(256, 512, 14, 14), width=1)
_VOLUMES: dict[str, Any] = dict(shape=(4, 32, 32, 64, 128), width=1, axes=3)
# Feature maps of a network's last and first stage, and images a quarter as large.
_LAST_STAGE: dict[str, Any] = dict(shape=(128, 512, 7, 7), width=1)
_FIRST_STAGE: dict[str, Any] = dict(shape=(16, 64, 56, 56), width=1)
_QUARTER_IMAGES: dict[str, Any] = dict(shape=(8, 64, 256, 256), width=3)
# Moved by a few pixels, as augmentation does; and 8-bit pictures, which it works on.
_SHIFTED: dict[str, Any] = dict(shape=(8, 64, 256, 256), width=-3, after=3)
_PICTURES: dict[str, Any] = dict(shape=(256, 3, 224, 224), width=4, element="b8")
# Those whose gradient adds up.
_FOLDS = ("reflect", "replicate", "circular", "symmetric")

CUDA = (
    Row(PadBackward(**_IMAGES), limits=COPY, headline=True),
    Row(PadBackward(**_IMAGES, element="f16"), limits=COPY),
    Row(PadBackward(**_SMALL_PLANES, element="bf16"), limits=_SMALL_COPY, headline=True),
    Row(PadBackward(**_VOLUMES, element="f64"), limits=COPY),
    *(Row(PadBackward(**_IMAGES, mode=mode), limits=_FOLD_COPY, headline=True) for mode in _FOLDS),
    *(Row(PadBackward(**_LAST_STAGE, mode=mode), limits=_SMALL_FOLD_COPY) for mode in _FOLDS),
    *(Row(PadBackward(**_FIRST_STAGE, mode=mode), limits=_SMALL_FOLD_COPY) for mode in _FOLDS),
    Row(PadBackward(**_SHIFTED)),
    Row(Pad(**_IMAGES)),
    Row(Pad(**_SMALL_PLANES, element="bf16")),
    *(Row(Pad(**_QUARTER_IMAGES, mode=mode), limits=FORWARD) for mode in _FOLDS),
    Row(Pad(**_SHIFTED)),
    Row(Pad(**_PICTURES), limits=FORWARD),
)

_CPU_IMAGES: dict[str, Any] = dict(shape=(8, 32, 128, 128), width=1)
_CPU_SHIFTED: dict[str, Any] = dict(shape=(8, 32, 128, 128), width=-3, after=3)
_THRICE_PYTORCH = (Limit("peer", 1 / 3, "PyTorch"),)

CPU = (
    on_cpu(PadBackward(**_CPU_IMAGES), NEAR_COPY),
    on_cpu(PadBackward(**_CPU_IMAGES, element="bf16"), NEAR_COPY),
    on_cpu(PadBackward(**_CPU_IMAGES, mode="reflect"), _THRICE_PYTORCH),
    on_cpu(PadBackward(**_CPU_IMAGES, mode="replicate"), _THRICE_PYTORCH),
    on_cpu(PadBackward(**_CPU_IMAGES, mode="circular"), (Limit("peer", 1 / 8, "PyTorch"),)),
    on_cpu(PadBackward(**_CPU_IMAGES, mode="symmetric")),
    on_cpu(PadBackward(**_CPU_SHIFTED)),
    *(on_cpu(Pad(**_CPU_IMAGES, mode=mode)) for mode in ("constant", *_FOLDS)),
    on_cpu(Pad(**_CPU_SHIFTED)),
    on_cpu(Pad(**_CPU_IMAGES, element="b8")),
    on_cpu(Pad(**_CPU_IMAGES, element="b32")),
)
