# SPDX-License-Identifier: Apache-2.0
"""Turns a descriptor into C arguments and into the constant parts of the block that `_run_packed` takes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import _abi
from ._descriptor import Descriptor
from ._errors import InvalidProblemError
from ._library import Bits128, value_ctype

__all__ = ["PackedProblem", "pack_problem"]

_LIMITS = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}
_HOST_TYPES: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64}
# The `struct` code of one element where it is passed by its address.
_ELEMENT_CODES = {"f32": "f", "f64": "d", "f16": "H", "bf16": "H", "i32": "i", "i64": "q",
                  "b8": "B", "b16": "H", "b32": "I", "b64": "Q", "b128": "QQ"}  # fmt: skip


class PackedProblem(NamedTuple):
    """A problem as C takes it.

    A call's block is `prefix + pack(*pointers, *constants, workspace, workspace_bytes, stream)`. `arguments` are those
    of the `_can_implement` function, `sizes` those of `_workspace_size`; with `kept` they own what the prefix points
    to.
    """

    prefix: bytes
    pack: Callable[..., bytes]
    constants: tuple[Any, ...]
    arguments: tuple[Any, ...]
    sizes: tuple[Any, ...]
    kept: tuple[Any, ...]


def pack_problem(operator: _abi.Operator, variant: _abi.Variant, descriptor: Descriptor) -> PackedProblem:
    """Convert a descriptor's attributes, found by the names of the ABI table."""
    arguments: list[Any] = []
    sizes: list[Any] = []
    before: list[Any] = []
    constants: list[Any] = []
    kept: list[Any] = []
    for parameter in operator.parameters:
        if isinstance(parameter, _abi.Tensor):
            arguments.append(None)
            if parameter.name in descriptor.absent_tensors:
                constants.append(0)
            continue
        value: Any
        packed: tuple[Any, ...]
        if isinstance(parameter, _abi.HostArray):
            value = _host_array(operator.name, parameter, getattr(descriptor, parameter.name))
            packed = (ctypes.addressof(value),)
        elif isinstance(parameter, _abi.Options):
            value = _options(operator.name, parameter, variant, descriptor, kept)
            packed = (ctypes.addressof(value),)
        else:
            ctype = value_ctype(parameter, variant)
            packed = _scalar(operator.name, parameter.name, ctype, getattr(descriptor, parameter.name))
            value = Bits128(*packed) if ctype == "b128" else packed[0]
        (constants if None in arguments else before).extend(packed)
        arguments.append(value)
        if parameter.name != "value":
            sizes.append(value)
    codes = variant.block_format[1:]
    # "0P" pads the prefix to the alignment at which the first pointer stands.
    prefix = struct.pack(f"@{codes[: len(before)]}0P", *before)
    tail = struct.Struct(f"@{codes[len(before) :]}")
    return PackedProblem(prefix, tail.pack, tuple(constants), tuple(arguments), tuple(sizes), tuple(kept))


def _options(
    operator: str, parameter: _abi.Options, variant: _abi.Variant, descriptor: Descriptor, kept: list[Any]
) -> Any:
    """Lay out a struct of options from the descriptor's `option_<field>`; what it points to is added to `kept`."""
    fields: list[Any] = [struct.calcsize(parameter.format)]
    for field in parameter.fields:
        value = getattr(descriptor, f"option_{field.name}")
        if isinstance(field, _abi.Scalar):
            fields += _scalar(operator, field.name, field.ctype, value)
        elif value is None:
            fields.append(0)
        else:
            element = variant.types["T"]
            kept.append(_memory(struct.pack(_ELEMENT_CODES[element], *_scalar(operator, field.name, element, value))))
            fields.append(ctypes.addressof(kept[-1]))
    return _memory(struct.pack(parameter.format, *fields))


def _memory(content: bytes) -> Any:
    """Memory that holds the bytes, aligned for any type."""
    words = (ctypes.c_uint64 * (len(content) // 8 + 1))()
    ctypes.memmove(words, content, len(content))
    return words


def _scalar(operator: str, name: str, ctype: str, value: Any) -> tuple[Any, ...]:
    """Convert a scalar to what `struct` takes for its C type; an integer would be cut silently."""
    if ctype in _LIMITS:
        low, high = _LIMITS[ctype]
        if not low <= value <= high:
            raise InvalidProblemError(f"{operator}: {name} is {value}; wanted {low}..{high}")
        return (int(value),)
    if ctype.startswith("b") and ctype != "bf16":
        bits = int(ctype[1:])
        if not 0 <= value < 1 << bits or value != int(value):
            raise InvalidProblemError(f"{operator}: {name} is {value}; wanted the bit pattern of {bits} bits")
        pattern = int(value)
        return (pattern,) if bits <= 64 else (pattern & (1 << 64) - 1, pattern >> 64)
    return (_float(ctype, value),)


def _float(ctype: str, value: Any) -> Any:
    """Round to a float type; the 16-bit ones are passed as their bits."""
    if ctype == "f64":
        return float(value)
    with np.errstate(over="ignore"):
        narrow = np.float16(value) if ctype == "f16" else np.float32(value)
    if ctype == "f32":
        return float(narrow)
    if ctype == "f16":
        return int(narrow.view(np.uint16))
    # bf16: round to nearest even on the upper half of the f32 bits; a NaN keeps its sign and becomes quiet. Where
    # rounding to f32 made a tie, the value itself lies on one side of it.
    bits = int(narrow.view(np.uint32))
    if value != value:
        return bits >> 16 | 0x0040
    if bits & 0xFFFF == 0x8000 and float(narrow) != value:
        bits += 1 if abs(value) > abs(float(narrow)) else -1
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _host_array(operator: str, parameter: _abi.HostArray, values: tuple[int, ...]) -> Any:
    low, high = _LIMITS[parameter.ctype]
    for value in values:
        if not low <= value <= high:
            raise InvalidProblemError(f"{operator}: {parameter.name} holds {value}; wanted {low}..{high}")
    return (_HOST_TYPES[parameter.ctype] * max(len(values), 1))(*values)
