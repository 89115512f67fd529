# SPDX-License-Identifier: Apache-2.0
"""Writes a problem into a program: the block that `_run_packed` takes and all that it points to, without an address.

native/xla/handler.cc reads it. The order is block, host arrays, options, their value; each begins at a multiple of 8.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

from .._abi import DTYPE_BYTES, HostArray, Options, Scalar, Tensor, Variant
from .._kernel import NO_SCRATCH, Kernel

__all__ = ["arguments_of", "symbol_of"]

_WORD = 8
_VALUE_BYTES = 16
# Stands where an options struct points to a value.
_HAS_VALUE = 1


def symbol_of(kernel: Kernel) -> str:
    """Name the C functions of a problem as a program does."""
    return f"{kernel.operator.name}_{kernel.variant.token}"


def arguments_of(kernel: Kernel) -> Any:
    """Answer the bytes of a problem."""
    operator, variant = kernel.operator, kernel.variant
    values = {parameter.name: value for parameter, value in zip(operator.parameters, kernel.arguments, strict=True)}
    # All that calls have in common: without tensors, scratch and stream.
    num_pointers = sum(isinstance(each, Tensor) for each in operator.parameters) - len(kernel.absent_tensors)
    block = bytearray(kernel.block([0] * num_pointers, NO_SCRATCH, 0))
    behind = bytearray()
    codes = variant.block_format[1:]
    number = 0
    for parameter in operator.parameters:
        at = struct.calcsize(f"@{codes[:number]}0{codes[number]}")
        number += 2 if isinstance(parameter, Scalar) and codes[number : number + 2] == "QQ" else 1
        if isinstance(parameter, HostArray):
            length = int(parameter.length) if parameter.length.isdecimal() else int(values[parameter.length])
            behind += _whole_words(bytes(values[parameter.name])[: length * DTYPE_BYTES[parameter.ctype]])
        elif isinstance(parameter, Options):
            behind += _options(parameter, values[parameter.name], variant)
        else:
            continue
        block[at : at + _WORD] = bytes(_WORD)
    return np.frombuffer(_whole_words(bytes(block)) + bytes(behind), np.uint8)


def _whole_words(content: bytes) -> bytes:
    return content + bytes(-len(content) % _WORD)


def _options(parameter: Options, memory: Any, variant: Variant) -> bytes:
    """Answer a struct of options, and the value to which it ends with a pointer, if it has one."""
    content = ctypes.string_at(memory, struct.calcsize(parameter.format))
    if not isinstance(parameter.fields[-1], HostArray):
        return _whole_words(content) + bytes(_VALUE_BYTES)
    (address,) = struct.unpack_from("@P", content, len(content) - _WORD)
    if not address:
        return content + bytes(_VALUE_BYTES)
    value = ctypes.string_at(address, DTYPE_BYTES[variant.types["T"]])
    return content[:-_WORD] + struct.pack("@P", _HAS_VALUE) + value.ljust(_VALUE_BYTES, b"\0")
