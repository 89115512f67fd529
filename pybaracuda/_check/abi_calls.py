# SPDX-License-Identifier: Apache-2.0
"""Calls of the C ABI by argument name, from the generated tables alone; no operator is named here."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from .. import _abi
from .._library import Bits128, raw

# A scalar's number, a host array's entries, None for a host array that is NULL.
Value = int | float | list[int] | None
Values = dict[str, Value]

STATUS = {name: code for code, name in _abi.STATUS_NAMES.items()}
C_SCALARS: dict[str, Any] = {
    "i": ctypes.c_int32,
    "q": ctypes.c_int64,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
    "H": ctypes.c_uint16,
    "B": ctypes.c_uint8,
    "I": ctypes.c_uint32,
    "Q": ctypes.c_uint64,
}
# How one element lies in memory; the types that are not in C are their bits.
ELEMENT_CODES = {
    "f32": "f", "f64": "d", "f16": "H", "bf16": "H", "i32": "i", "i64": "q", "b8": "B", "b16": "H", "b32": "I",
    "b64": "Q",
}  # fmt: skip
C_ENTRIES: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}


class Symbol(NamedTuple):
    """One dtype instance of an operator: four C functions."""

    operator: _abi.Operator
    variant: _abi.Variant

    @property
    def name(self) -> str:
        """As error texts spell it."""
        return f"{self.operator.name}_{self.variant.token}"

    @property
    def options(self) -> _abi.Options | None:
        """The struct of options, if there is one. Its fields are values like the others."""
        return next((p for p in self.operator.parameters if isinstance(p, _abi.Options)), None)

    @property
    def fields(self) -> list[_abi.Scalar | _abi.HostArray]:
        return list(self.options.fields) if self.options else []

    @property
    def scalars(self) -> list[_abi.Scalar]:
        return [p for p in (*self.operator.parameters, *self.fields) if isinstance(p, _abi.Scalar)]

    @property
    def host_arrays(self) -> list[_abi.HostArray]:
        return [p for p in self.operator.parameters if isinstance(p, _abi.HostArray)]

    @property
    def tensors(self) -> list[_abi.Tensor]:
        return [p for p in self.operator.parameters if isinstance(p, _abi.Tensor)]

    @property
    def outputs(self) -> list[_abi.Tensor]:
        return [tensor for tensor in self.tensors if tensor.role == "output"]

    def dtype(self, tensor: _abi.Tensor) -> str:
        """A tensor's dtype token in this variant."""
        return self.variant.types.get(tensor.dtype, tensor.dtype)

    def alignment(self, tensor: _abi.Tensor) -> int:
        """Of an element's address: its size, but 8 for elements of 16 bytes."""
        return min(self.element_bytes(tensor), 8)

    def element_bytes(self, tensor: _abi.Tensor) -> int:
        return _abi.DTYPE_BYTES[self.dtype(tensor)]

    def dtype_of_value(self, parameter: Any) -> str:
        """The dtype token of a scalar that is an element, else its C type."""
        return self.variant.types["T"] if parameter.ctype == "VALUE" else str(parameter.ctype)

    def code(self, parameter: Any) -> str:
        """The `struct` code of one parameter in the packed block."""
        return self.variant.block_format[1 + self.operator.parameters.index(parameter)]


def element_memory(token: str, number: int | float) -> bytes:
    """One element as it lies in memory; types that are not in C are given as their bits."""
    if token == "b128":
        return int(number).to_bytes(16, "little")
    return struct.pack("<" + ELEMENT_CODES[token], number)


class OptionValues(NamedTuple):
    """What a struct of options may have that its fields do not say: NULL, another size, something behind its end."""

    is_null: bool = False
    size: int | None = None
    beyond: int = 0


PLAIN_OPTIONS = OptionValues()


def option_memory(symbol: Symbol, values: Mapping[str, Any], given: OptionValues) -> Any:
    """The struct of options in memory that also holds what it points to."""
    assert symbol.options is not None
    head = struct.calcsize(symbol.options.format)
    memory = (ctypes.c_uint64 * 32)()
    ctypes.memset(memory, given.beyond, ctypes.sizeof(memory))
    fields: list[Any] = [head if given.size is None else given.size]
    for field in symbol.options.fields:
        number = values.get(field.name)
        if isinstance(field, _abi.Scalar):
            fields.append(number)
        elif number is None:
            fields.append(0)
        else:
            place = ctypes.addressof(memory) + ctypes.sizeof(memory) - 16
            element = element_memory(symbol.variant.types["T"], number)
            ctypes.memmove(place, element, len(element))
            fields.append(place)
    ctypes.memmove(memory, struct.pack(symbol.options.format, *fields), head)
    return memory


def symbols() -> list[Symbol]:
    """Every symbol of the ABI, in the spec's order."""
    return [Symbol(operator, variant) for operator in _abi.OPERATORS.values() for variant in operator.variants.values()]


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<extent>", "eval")


def extents(tensor: _abi.Tensor, values: Mapping[str, Value]) -> list[int]:
    """A tensor's extents: its expressions over the scalars and host arrays."""
    found: list[int] = []
    names: dict[str, Any] = {}
    for expression in tensor.shape:
        # Most are a scalar's name, and a check asks for some hundred thousand.
        alone = values.get(expression)
        if isinstance(alone, int):
            found.append(alone)
            continue
        names = names or {name: np.array(v, object) if isinstance(v, list) else v for name, v in values.items()}
        extent = eval(_compiled(expression), {"__builtins__": {}}, names)
        found += [int(each) for each in np.ravel(extent)] if isinstance(extent, np.ndarray) else [int(extent)]
    return found


def numel(tensor: _abi.Tensor, values: Mapping[str, Value]) -> int:
    return math.prod(extents(tensor, values))


class Span(NamedTuple):
    """The elements that a tensor's memory holds, gaps included, and where its first element (all indices 0) stands."""

    elements: int
    first: int


def span(tensor: _abi.Tensor, values: Mapping[str, Value]) -> Span:
    shape = extents(tensor, values)
    if tensor.strides is None or math.prod(shape) == 0:
        return Span(math.prod(shape), 0)
    strides = values[tensor.strides]
    assert isinstance(strides, list)
    reaches = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    below = -sum(reach for reach in reaches if reach < 0)
    return Span(below + sum(reach for reach in reaches if reach > 0) + 1, below)


def places(tensor: _abi.Tensor, values: Mapping[str, Value]) -> Any:
    """Where every element stands within the span, in row-major order, as int64."""
    shape = extents(tensor, values)
    if tensor.strides is None or not shape:
        return np.arange(math.prod(shape))
    strides = values[tensor.strides]
    assert isinstance(strides, list)
    return span(tensor, values).first + np.array(strides, np.int64) @ np.indices(shape).reshape(len(shape), -1)


def dense_strides(shape: list[int]) -> list[int]:
    """Row-major strides; an extent of 0 counts as 1."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return strides


def completed(symbol: Symbol, values: Mapping[str, Value]) -> Values:
    """The values with what follows from them: dense strides, and element counts (every scalar called ...numel)."""
    result = dict(values)
    for tensor in symbol.tensors:
        if tensor.strides is not None and tensor.strides not in result:
            result[tensor.strides] = dense_strides(extents(tensor, result))
    for scalar in symbol.scalars:
        if scalar.name.endswith("numel") and scalar.name not in result:
            result[scalar.name] = numel(symbol.outputs[0], result)
    return result


class Launch(NamedTuple):
    """What a call takes beside the problem: an address for every tensor (0 is NULL), the workspace, the stream."""

    pointers: Mapping[str, int]
    workspace: int = 0
    workspace_bytes: int = 0
    stream: int = 0
    options: OptionValues = PLAIN_OPTIONS


class Library:
    """One backend's C functions."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.functions = raw(backend)

    def last_error(self) -> str:
        return bytes(self.functions.baracuda_kernels_last_error()).decode()

    def _function(self, symbol: Symbol, verb: str) -> Any:
        return getattr(self.functions, f"baracuda_kernels_{symbol.name}_{verb}")

    def _arguments(
        self,
        symbol: Symbol,
        values: Mapping[str, Value],
        pointers: Mapping[str, int] | None,
        options: OptionValues = PLAIN_OPTIONS,
    ) -> list[Any]:
        """The problem's arguments in call order; without `pointers` those that a workspace_size function takes."""
        arguments: list[Any] = []
        for parameter in symbol.operator.parameters:
            if isinstance(parameter, _abi.Tensor):
                if pointers is not None:
                    arguments.append(pointers[parameter.name] or None)
            elif isinstance(parameter, _abi.HostArray):
                entries = values[parameter.name]
                ctype = C_ENTRIES[parameter.ctype]
                arguments.append((ctype * len(entries))(*entries) if isinstance(entries, list) else None)
            elif isinstance(parameter, _abi.Options):
                arguments.append(None if options.is_null else option_memory(symbol, values, options))
            elif symbol.dtype_of_value(parameter) == "b128":
                number = values[parameter.name]
                assert isinstance(number, int)
                arguments += [Bits128(number & 2**64 - 1, number >> 64)] if pointers is not None else []
            elif pointers is not None or parameter.name != "value":
                arguments.append(C_SCALARS[symbol.code(parameter)](values[parameter.name]))
        return arguments

    def prepared(self, symbol: Symbol, values: Mapping[str, Value], launch: Launch) -> Callable[[], int]:
        """The call, all numbers in their C types already: what Python converts depends on the thread's float mode."""
        arguments = self._arguments(symbol, values, launch.pointers, launch.options)
        workspace = (launch.workspace or None, launch.workspace_bytes)
        ordered = symbol.operator.in_call_order(arguments, workspace)
        return partial(self._function(symbol, "run"), *ordered, launch.stream or None)

    def run(self, symbol: Symbol, values: Mapping[str, Value], launch: Launch) -> int:
        return self.prepared(symbol, values, launch)()

    def run_packed(self, symbol: Symbol, values: Mapping[str, Value], launch: Launch) -> int:
        plain: list[Any] = []
        kept: list[Any] = []  # what the block points to
        for argument in self._arguments(symbol, values, launch.pointers, launch.options):
            if isinstance(argument, ctypes.Array):
                kept.append(argument)
                plain.append(ctypes.addressof(argument))
            elif isinstance(argument, Bits128):
                plain += [argument.low, argument.high]
            else:
                plain.append(argument.value if isinstance(argument, ctypes._SimpleCData) else argument or 0)
        block = struct.pack(
            symbol.variant.block_format, *plain, launch.workspace, launch.workspace_bytes, launch.stream
        )
        return int(self._function(symbol, "run_packed")(block))

    def can_implement(
        self,
        symbol: Symbol,
        values: Mapping[str, Value],
        pointers: Mapping[str, int] | None = None,
        options: OptionValues = PLAIN_OPTIONS,
    ) -> int:
        addresses = pointers or {tensor.name: 0 for tensor in symbol.tensors}
        arguments = self._arguments(symbol, values, addresses, options)
        if symbol.operator.after_workspace:
            arguments = symbol.operator.in_call_order(arguments, (None, 0))
        return int(self._function(symbol, "can_implement")(*arguments))

    def workspace_size(self, symbol: Symbol, values: Mapping[str, Value], options: OptionValues = PLAIN_OPTIONS) -> int:
        return int(self._function(symbol, "workspace_size")(*self._arguments(symbol, values, None, options)))
