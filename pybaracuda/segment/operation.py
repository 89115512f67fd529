# SPDX-License-Identifier: Apache-2.0
"""How the array functions of this package call an operator: arrays in the order of the C arguments, checked by name."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .. import _call
from .._abi import OPERATORS, Tensor
from .._arrays import HOST, Operand, read
from .._call import MOST_COMBINATIONS, Output, Prepared
from .._dtypes import FLOATS, INDEX_CASTS
from .._errors import shown
from .batches import BatchPrepared, check_batch
from .lengths import offsets_of
from .plans import operator_name, plan_of

__all__ = ["form_of", "inputs_of", "key_of", "outputs_of", "prepare", "rows_of", "run"]

_INTEGERS = ("s8", "u8", "s16", "u16", "i32", "u32", "i64", "u64")

# Shapes and dtypes by the names of arrays.
_Arrays = Mapping[str, tuple[tuple[int, ...], str]]


def form_of(indices_are_sorted: Any) -> str:
    """Name the form of ids that may be promised to be in order."""
    return "sorted" if _call.flag("indices_are_sorted", indices_are_sorted) else "unsorted"


class _Operator(NamedTuple):
    """What the ABI table says of an operator's tensors."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    index_name: str
    # Those with a row for each row, not for each segment.
    by_rows: frozenset[str]
    # Whose dtype and columns the others must have.
    leading: str
    # Whether nothing but the largest id can say how many segments there are.
    ids_count: bool
    elements: tuple[str, ...]


@cache
def _operator(operation: str, form: str) -> _Operator:
    table = OPERATORS[operator_name(operation, form)]
    tensors = [parameter for parameter in table.parameters if isinstance(parameter, Tensor)]
    renamed = {"grad_output": "input", "grad_input": "output"} if operation == "gather" else {}
    names = {tensor.name: renamed.get(tensor.name, tensor.name) for tensor in tensors}
    inputs = tuple(names[tensor.name] for tensor in tensors if tensor.role == "input")
    elements = {variant.types["T"] for variant in table.variants.values()}
    index_name = "offsets" if form == "csr" else "segment_ids"
    by_rows = frozenset(
        names[each.name] for each in tensors if len(each.shape) == 2 and each.shape[0] != "num_segments"
    )
    return _Operator(
        inputs,
        tuple(names[tensor.name] for tensor in tensors if tensor.role == "output"),
        index_name,
        by_rows,
        next((name for name in ("input", "output") if name in inputs), inputs[0]),
        form != "csr" and by_rows.issuperset(set(inputs) - {index_name}),
        tuple(token for token in (*FLOATS, "i32", "i64") if token in elements),
    )


def inputs_of(operation: str, form: str) -> tuple[str, ...]:
    """Name the arrays that an operation takes, in the order of the C arguments."""
    return _operator(operation, form).inputs


def outputs_of(operation: str, form: str) -> tuple[str, ...]:
    """Name what an operation answers, in the order of the C arguments."""
    return _operator(operation, form).outputs


def rows_of(operation: str, form: str) -> frozenset[str]:
    """Name the arrays of an operation that have a row for each row, not for each segment."""
    return _operator(operation, form).by_rows


def _counted(ids: Operand) -> int | None:
    """Answer one more than the largest id; None of ids that :func:`prepare` refuses."""
    if ids.dtype not in INDEX_CASTS or len(ids.shape) not in (1, 2):
        return None
    if 0 in ids.shape:
        return 0
    if ids.device == HOST:
        array = ids.array if hasattr(ids.array, "__array__") else np.from_dlpack(ids.array)
        return max(int(np.max(np.asarray(array))) + 1, 0)
    if not hasattr(ids.array, "max"):
        raise TypeError(f"num_segments: wanted an int, since {type(ids.array).__name__} has no max to look at the ids")
    return max(int(ids.array.max()) + 1, 0)


def run(
    operation: str,
    form: str,
    arrays: Sequence[Any],
    *,
    num_segments: Any = None,
    num_rows: Any = None,
    empty_value: Any = None,
    lengths: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Run an operation on its inputs, in the order of the C arguments.

    With `lengths` these stand in the place of offsets. Ids of two axes are those of a batch.
    """
    operator = _operator(operation, form)
    first = read(operator.inputs[0], arrays[0], stream)
    operands = [first]
    place = operator.inputs.index(operator.index_name)
    for position, array in enumerate(arrays[1:], 1):
        if lengths and position == place:
            operands.append(offsets_of(array, first, stream))
        else:
            operands.append(read(operator.inputs[position], array, stream, first))
    batched = form != "csr" and len(operands[place].shape) == 2
    if num_segments is None and operator.ids_count:
        num_segments = _counted(operands[place])
    prepared = prepare(
        first.device,
        operation,
        form,
        None if num_segments is None else _call.whole("num_segments", num_segments),
        None if num_rows is None else _call.whole("num_rows", num_rows),
        None if empty_value is None else key_of(_call.real("empty_value", empty_value)),
        tuple([operand.shape for operand in operands]),
        tuple([operand.dtype for operand in operands]),
        batched,
    )
    if len(operator.outputs) == 1:
        return prepared.launch(tuple(operands), (out,), stream)[0]
    outs = _call.outs_of(out, operator.outputs, "a pair ")
    return tuple(prepared.launch(tuple(operands), outs, stream))


def key_of(value: float | int) -> bytes | int:
    """Answer what tells apart values that are equal but differ in bits, and NaNs, which are not equal, not at all."""
    return value if isinstance(value, int) else struct.pack("d", value)


@lru_cache(maxsize=MOST_COMBINATIONS)
def prepare(
    device: int,
    operation: str,
    form: str,
    num_segments: int | None,
    num_rows: int | None,
    empty_value: bytes | int | None,
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, ...],
    batched: bool = False,
) -> Prepared:
    """Check the arrays; answer the kernel. Of a batch it is that of all entries, whose ids must be numbered so."""
    operator = _operator(operation, form)
    arrays = dict(zip(operator.inputs, zip(shapes, dtypes, strict=True), strict=True))
    element = _call.element_of(operator.leading, arrays[operator.leading][1], operator.elements, _INTEGERS)
    shape, dtype = arrays[operator.index_name]
    _call.element_of(operator.index_name, dtype, tuple(INDEX_CASTS))
    if not batched:
        _call.check_rank(operator.index_name, shape, "[num_segments + 1]" if form == "csr" else "[N] or [B, N]", 1)
    cast = INDEX_CASTS[dtype]
    index = cast or dtype
    if form == "csr":
        if not shape[0]:
            raise ValueError("offsets has shape (0,); wanted [num_segments + 1]")
        num_segments = shape[0] - 1
    _check_elements(operator, arrays, element, index)
    batch = shape[:1] if batched else ()
    num_segments, num_rows, columns = _extents(operator, form, arrays, batch, num_segments, num_rows)
    if num_rows is None:
        raise ValueError(f"num_rows: {operation} of offsets needs it")
    if num_segments is None or num_segments < 0:
        raise ValueError(f"num_segments is {shown(num_segments)}; wanted at least 0")
    _, descriptor_type = plan_of(operation)
    empty = struct.unpack("d", empty_value)[0] if isinstance(empty_value, bytes) else empty_value
    outputs = []
    for name in operator.outputs:
        token = index if name == "arg" else element
        extent = num_rows if name in operator.by_rows else num_segments
        outputs.append(Output((*batch, extent, *columns), token, token))
    if batched:
        size = shape[0]
        check_batch(size, num_rows, num_segments)
        # Ids out of range become -1, in the middle of others: an order is none any more.
        form = "unsorted"
        descriptor = descriptor_type(
            operation, size * num_rows, prod(columns), size * num_segments, form, element, index, empty
        )
        kernel = _call.kernel_for(descriptor, device)
        return BatchPrepared(kernel, outputs, operator.inputs, index, num_rows, num_segments)
    descriptor = descriptor_type(operation, num_rows, prod(columns), num_segments, form, element, index, empty)
    casts = tuple(cast if name == operator.index_name else None for name in operator.inputs)
    return Prepared(_call.kernel_for(descriptor, device), outputs, casts=casts)


def _check_elements(operator: _Operator, arrays: _Arrays, element: str, index: str) -> None:
    """Refuse arrays of another dtype than the leading one's, and rows of another than the ids'."""
    for name in operator.inputs:
        if name == "arg":
            _call.element_of(name, arrays[name][1], (index,), why=f", the dtype of {operator.index_name}")
        elif name != operator.index_name:
            _call.element_of(name, arrays[name][1], (element,), why=f", the dtype of {operator.leading}")


def _extents(
    operator: _Operator,
    form: str,
    arrays: _Arrays,
    batch: tuple[int, ...],
    num_segments: int | None,
    num_rows: int | None,
) -> tuple[int | None, int | None, tuple[int, ...]]:
    """Answer how many segments and rows there are, in each entry of a batch, and columns; refuse other shapes."""
    leading, axis = operator.leading, len(batch)
    named = arrays[operator.index_name][0]
    by_rows = [name for name in (leading, *operator.inputs) if name in operator.by_rows and name in arrays]
    if form != "csr":
        # Each id names a row: of the first array that has rows, where one has.
        with_rows = (arrays[name][0] for name in by_rows)
        num_rows = next((shape[axis] for shape in with_rows if len(shape) > axis), named[axis])
    columns: tuple[int, ...] = ()
    for name in (leading, *(each for each in operator.inputs if each not in (leading, operator.index_name))):
        shape = arrays[name][0]
        if len(shape) <= axis:
            extent = "N" if name in operator.by_rows else "num_segments"
            raise ValueError(f"{name} has shape {shape}; wanted [{'B, ' * axis}{extent}, ...]")
        if name == leading:
            columns = shape[axis + 1 :]
        if name in operator.by_rows:
            num_rows = shape[axis] if num_rows is None else num_rows
            _call.check_shape(name, shape, (*batch, num_rows, *columns))
        else:
            num_segments = shape[axis] if num_segments is None else num_segments
            _call.check_shape(name, shape, (*batch, num_segments, *columns))
    if form != "csr" and named[axis] != num_rows:
        wanted = (*batch, num_rows)
        raise ValueError(f"{operator.index_name} has shape {named}; wanted {wanted}, one for each row of {by_rows[0]}")
    return num_segments, num_rows, columns
