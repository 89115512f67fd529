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
from ._library import value_ctype

__all__ = ["PackedProblem", "pack_problem"]

_LIMITS = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}
_HOST_TYPES: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64}


class PackedProblem(NamedTuple):
    """A problem as C takes it.

    A call's block is `prefix + pack(*pointers, *constants, workspace, workspace_bytes, stream)`. `arguments` are those
    of the `_can_implement` function, `sizes` those of `_workspace_size`; they own the host arrays that the prefix
    points to.
    """

    prefix: bytes
    pack: Callable[..., bytes]
    constants: tuple[Any, ...]
    arguments: tuple[Any, ...]
    sizes: tuple[Any, ...]


def pack_problem(operator: _abi.Operator, variant: _abi.Variant, descriptor: Descriptor) -> PackedProblem:
    """Convert a descriptor's attributes, found by the names of the ABI table."""
    arguments: list[Any] = []
    sizes: list[Any] = []
    before: list[Any] = []
    constants: list[Any] = []
    for parameter in operator.parameters:
        if isinstance(parameter, _abi.Tensor):
            arguments.append(None)
            continue
        value = getattr(descriptor, parameter.name)
        if isinstance(parameter, _abi.HostArray):
            value = _host_array(operator.name, parameter, value)
            packed = ctypes.addressof(value)
        else:
            value = packed = _scalar(operator.name, parameter.name, value_ctype(parameter, variant), value)
        (constants if None in arguments else before).append(packed)
        arguments.append(value)
        if parameter.name != "value":
            sizes.append(value)
    codes = variant.block_format[1:]
    # "0P" pads the prefix to the alignment at which the first pointer stands.
    prefix = struct.pack(f"@{codes[: len(before)]}0P", *before)
    tail = struct.Struct(f"@{codes[len(before) :]}")
    return PackedProblem(prefix, tail.pack, tuple(constants), tuple(arguments), tuple(sizes))


def _scalar(operator: str, name: str, ctype: str, value: Any) -> Any:
    """Convert a scalar to what `struct` and ctypes take for its C type; both would cut an integer silently."""
    if ctype in _LIMITS:
        low, high = _LIMITS[ctype]
        if not low <= value <= high:
            raise InvalidProblemError(f"{operator}: {name} is {value}; wanted {low}..{high}")
        return int(value)
    if ctype == "f64":
        return float(value)
    with np.errstate(over="ignore"):
        narrow = np.float16(value) if ctype == "f16" else np.float32(value)
    if ctype == "f32":
        return float(narrow)
    if ctype == "f16":
        return int(narrow.view(np.uint16))
    # bf16: round to nearest even on the upper half of the f32 bits; a NaN keeps its sign and becomes quiet.
    bits = int(narrow.view(np.uint32))
    if value != value:
        return bits >> 16 | 0x0040
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _host_array(operator: str, parameter: _abi.HostArray, values: tuple[int, ...]) -> Any:
    low, high = _LIMITS[parameter.ctype]
    for value in values:
        if not low <= value <= high:
            raise InvalidProblemError(f"{operator}: {parameter.name} holds {value}; wanted {low}..{high}")
    return (_HOST_TYPES[parameter.ctype] * max(len(values), 1))(*values)
