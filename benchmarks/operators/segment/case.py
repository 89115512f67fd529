# SPDX-License-Identifier: Apache-2.0
"""Segment operations as benchmark cases, in three forms and both directions; nothing about another operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness.case import Case, FrameworkCall, JaxCall, Part
from benchmarks.harness.draw import Draw
from pybaracuda import (
    PlanPreference,
    SegmentDescriptor,
    SegmentPlan,
    SegmentSelectionDescriptor,
    SegmentSelectionPlan,
    _abi,
)
from pybaracuda._plan import Plan
from verify.definitions.segment import DEFINITIONS
from verify.dtypes import Array, dtype_of

from . import data, peers

FORMS = ("unsorted", "sorted", "csr")
# So many columns are held against their definition.
_COLUMNS = 2
# What --rows is matched with for ids that are not spread over all segments.
_IDS_TEXT = {"half": "half on one id", "all": "all on one id", "64": "64 ids"}
_SELECTIONS = ("sum_backward", "gather")
# What the operators call the tensor that names the rows' segments.
_INDICES = ("segment_ids", "offsets", "index")


@dataclass(frozen=True, kw_only=True)
class Segment(Case):
    """An operation, by its descriptor's name, on `rows` x `columns` values in `segments` segments.

    `ids` as in draw_ids; they are sorted for the forms that want that. `index` is the dtype of ids or offsets,
    `empty_value` what a segment without rows shall be.
    """

    operation: str
    rows: int
    columns: int
    segments: int
    form: str = "unsorted"
    ids: str = "uniform"
    index: str = "i32"
    empty_value: float | None = None

    @property
    def _selects(self) -> bool:
        """Whether it moves bits, and so has another plan than those that compute."""
        of_extremes = self.operation.startswith(("max", "min")) and "even" not in self.operation
        return of_extremes or self.operation in _SELECTIONS

    @property
    def operator(self) -> str:
        return str(self.descriptor().operator)

    @property
    def text(self) -> str:
        ids = _IDS_TEXT.get(self.ids, f"{self.ids} ids")
        wide = "" if self.index == "i32" else f", {self.index}"
        empty = "" if self.empty_value is None else f", {self.operation} or {self.empty_value:g}"
        return f"{self.rows:,} x {self.columns}, {self.segments:,} segments, {ids}{wide}{empty}"

    def descriptor(self) -> SegmentDescriptor | SegmentSelectionDescriptor:
        kind = SegmentSelectionDescriptor if self._selects else SegmentDescriptor
        return kind(
            self.operation,
            self.rows,
            self.columns,
            self.segments,
            self.form,
            self.element,
            index_element=self.index,
            empty_value=self.empty_value,
        )

    def plan(self, backend: str) -> Plan:
        kind = SegmentSelectionPlan if self._selects else SegmentPlan
        return kind.select(self.descriptor(), preference=PlanPreference(prefer_backend=backend))

    def _tensors(self, role: str) -> Iterator[tuple[_abi.Tensor, tuple[int, ...], str]]:
        """The operator's inputs or outputs with their shapes and dtype tokens."""
        descriptor = self.descriptor()
        operator = _abi.OPERATORS[descriptor.operator]
        types = operator.variants[descriptor.variant].types
        for tensor in operator.parameters:
            if isinstance(tensor, _abi.Tensor) and tensor.role == role and tensor.name not in descriptor.absent_tensors:
                yield tensor, descriptor.tensor_shape(tensor), types.get(tensor.dtype, tensor.dtype)

    def inputs(self, draw: Draw) -> dict[str, Array]:
        ids = data.draw_ids(self.ids, self.rows, self.segments, draw.rng)
        if self.form != "unsorted":
            ids.sort()
        found: dict[str, Array] = {}
        for tensor, shape, element in self._tensors("input"):
            array = self._draw(tensor.name, shape, draw, ids, found)
            found[tensor.name] = np.ascontiguousarray(array, dtype_of(element))
        return found

    def _draw(self, name: str, shape: tuple[int, ...], draw: Draw, ids: Array, drawn: Mapping[str, Array]) -> Array:
        if name in _INDICES:
            return data.offsets_of(ids, self.segments) if self.form == "csr" else ids
        if name == "arg":
            return data.draw_arg(draw, self.columns, ids, self.segments)
        if name == "output":
            if self.operation == "softmax_backward":
                return data.draw_softmax(draw, shape, self.element, ids, self.segments)
            answer = data.product_of if self.operation == "prod_backward" else data.logsumexp_of
            return answer(drawn["input"], ids, self.segments)
        if name == "input" and self.operation.startswith("prod"):
            return data.factors(draw, shape, self.element)
        if name == "input" and "even" in self.operation:
            return data.with_ties(draw, shape, self.element)
        return draw.normal(shape, self.element)

    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {tensor.name: (shape, element) for tensor, shape, element in self._tensors("output")}

    def _ids_in(self, inputs: Mapping[str, Array]) -> Array:
        (index,) = (inputs[name] for name in _INDICES if name in inputs)
        return np.repeat(np.arange(self.segments), np.diff(index)) if self.form == "csr" else index

    def unread(self, inputs: Mapping[str, Array]) -> int:
        """What is there for segments without rows; and a product, which its gradient does not need."""
        filled = np.count_nonzero(np.bincount(self._ids_in(inputs), minlength=self.segments))
        unused = self.segments - int(filled)
        total = 0
        for tensor, _, _ in self._tensors("input"):
            array = inputs[tensor.name]
            if self.operation == "prod_backward" and tensor.name == "output":
                total += array.nbytes
            elif tensor.shape[0] == "num_segments":
                total += unused * self.columns * array.itemsize
        return total

    def parts(self, inputs: Mapping[str, Array], draw: Draw) -> list[Part]:
        columns = draw.some(_COLUMNS, self.columns)
        known = {name: array[:, columns] for name, array in inputs.items() if array.ndim == 2}
        ids = self._ids_in(inputs)
        expected = DEFINITIONS[self.operation](known, ids, self.segments)
        if self.empty_value is not None:
            filled = np.bincount(ids, minlength=self.segments)[:, None] > 0
            expected = [each._replace(value=np.where(filled, each.value, self.empty_value)) for each in expected]
        return [Part(number, lambda output: output[:, columns], each) for number, each in enumerate(expected)]

    @property
    def parts_text(self) -> str:
        return f"{_COLUMNS} of {self.columns} columns"

    def torch_calls(self, torch: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        if self.empty_value is not None:
            return peers.torch_calls_with_empty(given, self.operation, self.empty_value)
        return peers.torch_calls(torch, given, self.operation, self.form, self.rows, self.segments)

    def cupy_calls(self, cupy: Any, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        if self.empty_value is not None:
            return {}
        return peers.cupy_calls(cupy, given, self.operation, self.form)

    def jax_call(self, jax: Any) -> JaxCall | None:
        if self.empty_value is not None:
            return None
        return peers.jax_call(jax, self.operation, self.form, self.segments)

    def small(self) -> Case:
        return replace(self, rows=200, columns=3, segments=30)
