# SPDX-License-Identifier: Apache-2.0
"""Order statistics along an axis as benchmark cases, and their gradient; nothing about another operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import pybaracuda
from benchmarks.harness.case import NO_SLOWER, Case, FrameworkCall, Limit, Part, Row, on_cpu
from benchmarks.harness.draw import Draw
from verify.bounds import exact
from verify.definitions import order as definitions
from verify.dtypes import Array

# What is held against the definition: so many rows.
_ROWS = 4
_GRADIENT = "value_selecting_reduction_backward"


@dataclass(frozen=True, kw_only=True)
class Selection(Case):
    """Along the middle axis of outer x length x inner; `name` is the array function's, and a rank is the middle."""

    name: str
    outer: int = 1
    length: int
    inner: int = 1
    # Only so many values, where elements are counted.
    values: int = 0

    @property
    def text(self) -> str:
        return f"{self.outer}x{self.length:,}x{self.inner}" + (f" of {self.values} values" if self.values else "")

    @property
    def _shape(self) -> tuple[int, int, int]:
        return (self.outer, self.length, self.inner)

    @property
    def _selected(self) -> tuple[int, int]:
        return (self.outer, self.inner)

    @property
    def _rank(self) -> tuple[int, ...]:
        return ((self.length + 1) // 2,) if self.name == "kthvalue" else ()

    def descriptor(self) -> Any:
        return getattr(pybaracuda, f"{_CLASSES[self.name]}Descriptor")(*self._shape, *self._rank, self.element)

    def plan(self, backend: str) -> Any:
        preference = pybaracuda.PlanPreference(prefer_backend=backend)
        return getattr(pybaracuda, f"{_CLASSES[self.name]}Plan").select(self.descriptor(), preference=preference)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        if self.name == _GRADIENT:
            indices = draw.rng.integers(0, self.length, self._selected)
            return {"grad_output": draw.normal(self._selected, self.element), "indices": indices}
        x = draw.normal(self._shape, self.element)
        return {"input": draw.rng.integers(0, self.values, self._shape).astype(x.dtype) if self.values else x}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        if self.name == _GRADIENT:
            return {"grad_input": (self._shape, self.element)}
        return {"output": (self._selected, self.element), "indices": (self._selected, "i64")}

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        outer = int(draw.rng.integers(self.outer))
        inner = draw.some(_ROWS, self.inner)

        def rows(array: Array) -> Array:
            return np.ascontiguousarray(array[outer : outer + 1][..., inner])

        given = [rows(array) for array in inputs.values()]
        if self.name == _GRADIENT:
            gradient, indices = given
            expected = definitions.value_selecting_reduction_backward(gradient, indices, self.length)
            return [Part(0, rows, exact(expected))]
        found = getattr(definitions, self.name)(*given, *self._rank)
        return [Part(number, rows, exact(each)) for number, each in enumerate(found)]

    @property
    def parts_text(self) -> str:
        return f"{min(_ROWS, self.inner)} of {self.outer * self.inner} rows"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        if self.name == _GRADIENT:
            gradient, indices = given["grad_output"], given["indices"]
            backward = torch.ops.aten.value_selecting_reduction_backward
            return {"PyTorch": lambda: (backward(gradient, 1, indices, list(self._shape), False),)}
        # Of equal elements its place may be another one.
        function, rank = getattr(torch, self.name), self._rank
        return {"PyTorch": lambda: tuple(function(given["input"], *rank, 1))}

    def small(self) -> Case:
        return replace(self, outer=min(self.outer, 2), length=300, inner=min(self.inner, 3))


_CLASSES = {
    "kthvalue": "Kthvalue",
    "median": "Median",
    "nanmedian": "Nanmedian",
    "mode": "Mode",
    _GRADIENT: "ValueSelectingReductionBackward",
}

# ---- rows

ORDER = 130

_SQUARE: dict[str, Any] = dict(outer=4096, length=4096)
_COLUMNS: dict[str, Any] = dict(length=4096, inner=4096)
# A row of 4096 elements is read once: 22 us of memory. What is above is shared memory's.
_ROW_LIMITS = (*NO_SLOWER, Limit("light", 5))

CUDA = (
    Row(Selection(name="kthvalue", **_SQUARE), limits=_ROW_LIMITS, headline=True),
    Row(Selection(name="median", **_SQUARE), limits=_ROW_LIMITS),
    Row(Selection(name="nanmedian", **_SQUARE), limits=NO_SLOWER),
    Row(Selection(name="median", **_SQUARE, element="f16"), limits=NO_SLOWER),
    Row(Selection(name="median", **_SQUARE, element="f64"), limits=NO_SLOWER),
    Row(Selection(name="median", **_COLUMNS), limits=NO_SLOWER),
    Row(Selection(name="kthvalue", length=1 << 24), limits=NO_SLOWER),
    Row(Selection(name="kthvalue", outer=512, length=1 << 15), limits=NO_SLOWER),
    Row(Selection(name="median", outer=1 << 16, length=256), limits=NO_SLOWER),
    Row(Selection(name="median", outer=1 << 20, length=16), limits=NO_SLOWER),
    Row(Selection(name="mode", outer=4096, length=2048), limits=NO_SLOWER),
    Row(Selection(name="mode", outer=4096, length=2048, values=100), limits=NO_SLOWER),
    Row(Selection(name="mode", outer=1 << 20, length=16, values=5), limits=NO_SLOWER),
    Row(Selection(name="mode", length=1 << 22), limits=NO_SLOWER),
    Row(Selection(name="mode", length=1 << 22, values=100), limits=NO_SLOWER),
    Row(Selection(name=_GRADIENT, **_SQUARE), limits=NO_SLOWER),
)

CPU = (
    on_cpu(Selection(name="kthvalue", outer=1024, length=4096), NO_SLOWER),
    on_cpu(Selection(name="median", outer=1024, length=4096), NO_SLOWER),
    on_cpu(Selection(name="median", length=1024, inner=1024), NO_SLOWER),
    on_cpu(Selection(name="nanmedian", outer=1024, length=4096), NO_SLOWER),
    on_cpu(Selection(name="median", outer=1 << 16, length=16), NO_SLOWER),
    on_cpu(Selection(name="kthvalue", length=1 << 22), NO_SLOWER),
    on_cpu(Selection(name="mode", outer=1024, length=4096), NO_SLOWER),
    on_cpu(Selection(name=_GRADIENT, outer=1024, length=4096), NO_SLOWER),
)
