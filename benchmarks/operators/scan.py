# SPDX-License-Identifier: Apache-2.0
"""Scans along an axis as benchmark cases, both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import pybaracuda
from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, JaxCall, Limit, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from pybaracuda._dtypes import numpy_dtype
from verify.bounds import Sum, exact
from verify.definitions import scan as definitions
from verify.dtypes import Array

# What is held against the definition: so many rows, and of gradients so many places of them.
_ROWS = 2
_PLACES = 20


@dataclass(frozen=True, kw_only=True)
class Scan(Case):
    """Along the middle axis of outer x length x inner; `name` is the array function's, which has no gradient's."""

    name: str
    outer: int = 1
    length: int
    inner: int = 1

    @property
    def text(self) -> str:
        return f"{self.outer}x{self.length:,}x{self.inner}"

    @property
    def _shape(self) -> tuple[int, int, int]:
        return (self.outer, self.length, self.inner)

    def descriptor(self) -> Any:
        kind = getattr(pybaracuda, f"{_CLASSES[self.name]}Descriptor")
        return kind(*self._shape, 0, self.element)

    def plan(self, backend: str) -> Any:
        preference = pybaracuda.PlanPreference(prefer_backend=backend)
        return getattr(pybaracuda, f"{_CLASSES[self.name]}Plan").select(self.descriptor(), preference=preference)

    def _drawn(self, draw: Draw) -> Array:
        if self.element in ("i32", "i64"):
            return draw.rng.integers(-100, 100, self._shape).astype(numpy_dtype(self.element))
        values = draw.normal(self._shape, self.element)
        if not self.name.startswith("cumprod"):
            return values
        # Long products of anything else would leave the range.
        return (1 + values.astype(np.float32) * 2**-10).astype(values.dtype)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        x = self._drawn(draw)
        if not self.name.endswith("_backward"):
            return {"input": x}
        gradient = draw.normal(self._shape, self.element)
        if self.name == "cummaxmin_backward":
            return {"grad_output": gradient, "indices": pybaracuda.cummax(x, 1)[1]}
        output = getattr(pybaracuda, self.name.removesuffix("_backward"))(x, 1)
        return {"grad_output": gradient, "input": x, "output": output}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        if self.name.endswith("_backward"):
            return {"grad_input": (self._shape, self.element)}
        found: dict[str, tuple[tuple[int, ...], str]] = {"output": (self._shape, self.element)}
        return {**found, "indices": (self._shape, "i64")} if self.name in ("cummax", "cummin") else found

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        outer = int(draw.rng.integers(self.outer))
        inner = draw.some(_ROWS, self.inner)
        places = np.unique(draw.rng.integers(0, self.length, _PLACES))

        def rows(array: Array) -> Array:
            return np.ascontiguousarray(array[outer : outer + 1][:, :, inner])

        given = [rows(array) for array in inputs.values()]
        if self.name in ("cummax", "cummin"):
            found = definitions.cummax(given[0], False, self.name == "cummin")
            return [Part(number, rows, exact(each)) for number, each in enumerate(found)]
        if self.name == "cummaxmin_backward":
            return [Part(0, rows, definitions.cummaxmin_backward(given[0], given[1]))]
        if self.name.endswith("_backward"):
            expected: Sum = getattr(definitions, self.name)(*given, False, places)
            return [Part(0, lambda gradient: np.ascontiguousarray(rows(gradient)[:, places]), expected)]
        if self.element in ("i32", "i64"):
            return [Part(0, rows, exact(definitions.cumsum_of_integers(given[0])))]
        return [Part(0, rows, getattr(definitions, self.name)(given[0]))]

    @property
    def parts_text(self) -> str:
        return f"{min(_ROWS, self.inner)} of {self.outer * self.inner} rows"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        if self.name == "cumprod_backward":
            function = torch.ops.aten.cumprod_backward
            return {"PyTorch": lambda: (function(given["grad_output"], given["input"], 1, given["output"]),)}
        if self.name == "cummaxmin_backward":
            gradient, indices = given["grad_output"], given["indices"]
            return {"PyTorch": lambda: (torch.zeros_like(gradient).scatter_add_(1, indices, gradient),)}
        if self.name.endswith("_backward"):
            return {}
        values, out = given["input"], given["output"]
        function = getattr(torch, self.name)
        if self.name in ("cummax", "cummin"):
            return {"PyTorch": lambda: tuple(function(values, 1, out=(out, given["indices"])))}
        if self.element in ("i32", "i64"):
            return {"PyTorch": lambda: (function(values, 1, dtype=values.dtype, out=out),)}
        return {"PyTorch": lambda: (function(values, 1, out=out),)}

    def jax_call(self, jax: Any) -> JaxCall | None:
        names = {"cumsum": "cumsum", "cumprod": "cumprod", "logcumsumexp": "cumlogsumexp"}
        if self.name not in names:
            return None
        function = getattr(jax.lax, names[self.name])
        return JaxCall(lambda values: function(values, 1), ("input",))

    def small(self) -> Case:
        return replace(self, outer=min(self.outer, 2), length=300, inner=min(self.inner, 3))


_CLASSES = {
    "cumsum": "Cumsum",
    "cumprod": "Cumprod",
    "cumprod_backward": "CumprodBackward",
    "logcumsumexp": "Logcumsumexp",
    "logcumsumexp_backward": "LogcumsumexpBackward",
    "cummax": "Cummax",
    "cummin": "Cummin",
    "cummaxmin_backward": "CummaxminBackward",
}

# ---- rows

ORDER = 120

_LONG: dict[str, Any] = dict(length=1 << 24)
_SQUARE: dict[str, Any] = dict(outer=4096, length=4096)
_COLUMNS: dict[str, Any] = dict(length=4096, inner=4096)
_AS_COPY = (Limit("copy", 1.3),)

CUDA = (
    Row(Scan(name="cumsum", **_LONG), limits=_AS_COPY, headline=True),
    Row(Scan(name="cumsum", **_LONG, element="f16"), limits=NO_SLOWER),
    Row(Scan(name="cumsum", **_LONG, element="f64"), limits=NO_SLOWER),
    Row(Scan(name="cumsum", **_LONG, element="i64"), limits=NO_SLOWER),
    Row(Scan(name="cumsum", **_SQUARE), limits=NO_SLOWER),
    Row(Scan(name="cumsum", **_COLUMNS), limits=NO_SLOWER),
    Row(Scan(name="cumsum", outer=1 << 20, length=16), limits=NO_SLOWER),
    Row(Scan(name="cumsum", outer=4, length=1 << 20, inner=4), limits=NO_SLOWER),
    Row(Scan(name="cumprod", **_SQUARE), limits=NO_SLOWER),
    Row(Scan(name="cumprod_backward", **_SQUARE), limits=NO_SLOWER),
    Row(Scan(name="logcumsumexp", **_LONG), limits=NO_SLOWER),
    Row(Scan(name="logcumsumexp", **_SQUARE), limits=NO_SLOWER),
    Row(Scan(name="logcumsumexp_backward", **_SQUARE)),
    Row(Scan(name="cummax", **_LONG), limits=NO_SLOWER),
    Row(Scan(name="cummax", **_SQUARE), limits=NO_SLOWER),
    Row(Scan(name="cummin", **_SQUARE), limits=NO_SLOWER),
    Row(Scan(name="cummaxmin_backward", **_SQUARE), limits=NO_SLOWER),
)

CPU = (
    on_cpu(Scan(name="cumsum", length=1 << 22), NO_SLOWER),
    on_cpu(Scan(name="cumsum", length=2048, inner=2048), NO_SLOWER),
    on_cpu(Scan(name="cummax", length=2048, inner=2048), NO_SLOWER),
    on_cpu(Scan(name="cummin", length=2048, inner=2048), NO_SLOWER),
    on_cpu(Scan(name="cummaxmin_backward", length=2048, inner=2048), NO_SLOWER),
    on_cpu(Scan(name="cumprod", length=2048, inner=2048), NO_SLOWER),
    on_cpu(Scan(name="cumprod_backward", length=2048, inner=2048), NO_SLOWER),
    on_cpu(Scan(name="logcumsumexp", outer=2048, length=2048), NO_SLOWER),
    on_cpu(Scan(name="logcumsumexp_backward", outer=2048, length=2048)),
)
