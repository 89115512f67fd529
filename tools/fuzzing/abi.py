# SPDX-License-Identifier: Apache-2.0
"""Every symbol of the ABI table, prepared once so that calls of it are quick; no operator is named here."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import struct
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pybaracuda import _abi
from tools.fuzzing.call import Values

C_TYPES: dict[str, Any] = {
    "i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float, "f64": ctypes.c_double,
    "f16": ctypes.c_uint16, "bf16": ctypes.c_uint16, "b8": ctypes.c_uint8, "b16": ctypes.c_uint16,
    "b32": ctypes.c_uint32, "b64": ctypes.c_uint64,
}  # fmt: skip
INTEGER_LIMITS = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}
ENTRY_CODES = {"i32": "i", "i64": "q", "f32": "f"}
# The verbs of a symbol's four functions.
VERBS = ("run", "can_implement", "workspace_size", "run_packed")


class Bits128(ctypes.Structure):
    """An element of 16 bytes."""

    _fields_ = (("low", ctypes.c_uint64), ("high", ctypes.c_uint64))


class Entries(list[int]):
    """A host array's entries; in a shape, arrays are added entry by entry."""

    def __add__(self, other: Any) -> Entries:  # type: ignore[override]
        return Entries(one + two for one, two in zip(self, other, strict=True))


def is_product(count: int, shape: list[int]) -> bool:
    """Whether a count is the product of the extents, or the product is too large to be any count."""
    product = math.prod(shape)
    return count == product or product > INTEGER_LIMITS["i64"][1]


class Tensor(NamedTuple):
    """A data pointer with what follows from the variant."""

    name: str
    is_output: bool
    token: str
    element_bytes: int
    shape: tuple[Any, ...]  # compiled expressions
    strides: str | None


class Field(NamedTuple):
    """A field of the options after their size: where it stands in the struct, and whether it is a pointer."""

    name: str
    offset: int
    is_pointer: bool
    scalar: _abi.Scalar | None


class Symbol:
    """One dtype instance of an operator."""

    def __init__(self, operator: _abi.Operator, variant: _abi.Variant) -> None:
        self.operator, self.variant = operator, variant
        self.name = f"{operator.name}_{variant.token}"
        self.prefix = f"{self.name}: "
        self.parameters = operator.parameters
        self.options = next((p for p in self.parameters if isinstance(p, _abi.Options)), None)
        self.scalars = [p for p in self.parameters if isinstance(p, _abi.Scalar)]
        self.host_arrays = [p for p in self.parameters if isinstance(p, _abi.HostArray)]
        self.tensors = [self._tensor(p) for p in self.parameters if isinstance(p, _abi.Tensor)]
        self.inputs = [tensor for tensor in self.tensors if not tensor.is_output]
        self.outputs = [tensor for tensor in self.tensors if tensor.is_output]
        self.fields = self._fields()
        self.options_bytes = struct.calcsize(self.options.format) if self.options else 0
        self.element = variant.types.get("T", variant.types.get("C", ""))
        # What workspace_size takes of the parameters.
        self.sizing = [
            place for place, p in enumerate(self.parameters) if not isinstance(p, _abi.Tensor) and p.name != "value"
        ]
        self.block = struct.Struct(variant.block_format)

    def _tensor(self, parameter: _abi.Tensor) -> Tensor:
        token = self.variant.types.get(parameter.dtype, parameter.dtype)
        shape = tuple(compile(expression, expression, "eval") for expression in parameter.shape)
        return Tensor(
            parameter.name, parameter.role == "output", token, _abi.DTYPE_BYTES[token], shape, parameter.strides
        )

    def _fields(self) -> list[Field]:
        if self.options is None:
            return []
        # Past "@N": a code for each field, then perhaps "0P", which stands for what fills the struct up.
        codes, found = self.options.format[2:], []
        for index, field in enumerate(self.options.fields):
            offset = struct.calcsize("@N" + codes[: index + 1]) - struct.calcsize("@" + codes[index])
            is_pointer = isinstance(field, _abi.HostArray)
            if is_pointer:
                offset = struct.calcsize("@N" + codes[:index] + "0P")
            found.append(Field(field.name, offset, is_pointer, field if isinstance(field, _abi.Scalar) else None))
        return found

    def value_type(self, scalar: _abi.Scalar) -> str:
        """A dtype token; VALUE is the element's own."""
        return self.variant.types["T"] if scalar.ctype == "VALUE" else scalar.ctype

    def argument_types(self, verb: str) -> list[Any]:
        """Every pointer is an address."""
        if verb == "run_packed":
            return [ctypes.c_void_p]
        types: list[Any] = []
        workspace = [ctypes.c_void_p, ctypes.c_size_t]
        for parameter in self.parameters:
            if isinstance(parameter, _abi.Scalar):
                token = self.value_type(parameter)
                if parameter.name != "value" or verb != "workspace_size":
                    types.append(Bits128 if token == "b128" else C_TYPES[token])
            elif not isinstance(parameter, _abi.Tensor) or verb != "workspace_size":
                types.append(ctypes.c_void_p)
        if verb == "run":
            return [*self.operator.in_call_order(types, workspace), ctypes.c_void_p]
        if verb == "can_implement" and self.operator.after_workspace:
            return self.operator.in_call_order(types, workspace)
        return types

    def extents(self, tensor: Tensor, values: Mapping[str, Any]) -> list[int]:
        """A tensor's extents, from the scalars and host arrays."""
        found: list[int] = []
        for expression in tensor.shape:
            extent = eval(expression, _NO_BUILTINS, values)
            if isinstance(extent, int):
                found.append(extent)
            else:
                found += extent
        return found


_NO_BUILTINS: dict[str, Any] = {"__builtins__": {}}


@cache
def symbols() -> list[Symbol]:
    """Every symbol, in the table's order."""
    return [Symbol(operator, variant) for operator in _abi.OPERATORS.values() for variant in operator.variants.values()]


@cache
def by_name() -> dict[str, Symbol]:
    return {symbol.name: symbol for symbol in symbols()}


class Functions(NamedTuple):
    """A symbol's C functions, in the order of VERBS."""

    run: Any
    can_implement: Any
    workspace_size: Any
    run_packed: Any


class Library:
    """A C library by its path, with every signature set when a symbol is first called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._native = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        self._functions: dict[str, Functions] = {}
        last_error = self._native.baracuda_kernels_last_error
        last_error.restype, last_error.argtypes = ctypes.c_char_p, []
        self._last_error = last_error
        backend_name = self._native.baracuda_kernels_backend_name
        backend_name.restype, backend_name.argtypes = ctypes.c_char_p, []
        self.backend: str = backend_name().decode()
        abi_hash = self._native.baracuda_kernels_abi_hash
        abi_hash.restype, abi_hash.argtypes = ctypes.c_uint64, []
        if abi_hash() != _abi.ABI_HASH:
            raise SystemExit(f"{path} was built from another ABI table than this source tree's")

    def functions(self, symbol: Symbol) -> Functions:
        found = self._functions.get(symbol.name)
        if found is None:
            each = []
            for verb in VERBS:
                function = getattr(self._native, f"baracuda_kernels_{symbol.name}_{verb}")
                function.restype = ctypes.c_size_t if verb == "workspace_size" else ctypes.c_int32
                function.argtypes = symbol.argument_types(verb)
                each.append(function)
            found = self._functions[symbol.name] = Functions(*each)
        return found

    def last_error(self) -> str:
        return bytes(self._last_error()).decode()


def second_library(path: Path, isa: str, threads: int) -> Library:
    """The same CPU library once more in this process, with an instruction set and a thread count of its own.

    It reads both variables once: at its load or in its first call, which is made here.
    """
    wanted = {"BARACUDA_CPU_ISA": isa, "BARACUDA_NUM_THREADS": str(threads)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        with tempfile.TemporaryDirectory() as folder:
            # Another file: the loader answers the library that it has for a file that it knows.
            copy = Path(folder) / f"libbaracuda_kernels_{isa}.so"
            shutil.copy(path, copy)
            library = Library(copy)
        _wake(library)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return library


def _wake(library: Library) -> None:
    """A call that is large enough for the pool of threads to start."""
    rows = 1 << 19
    memory = (ctypes.c_float * (2 * rows))()
    symbol = by_name()["pad_replicate_f32"]
    shape, low, strides = (ctypes.c_int32 * 1)(rows), (ctypes.c_int32 * 1)(0), (ctypes.c_int64 * 1)(1)
    address = ctypes.addressof
    status = library.functions(symbol).run(
        rows, 1, address(shape), address(shape), address(low), address(strides), address(strides), address(memory),
        address(memory) + 4 * rows, None, 0, None,
    )  # fmt: skip
    if status != 0:
        raise SystemExit(f"{library.path} answers {status}: {library.last_error()}")


def completed(values: Values) -> Values:
    """The values as a shape's expressions take them."""
    return {name: Entries(value) if isinstance(value, list) else value for name, value in values.items()}
