# SPDX-License-Identifier: Apache-2.0
"""Turns a descriptor into C arguments and into the constant parts of the block that `_run_packed` takes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _abi
from ._descriptor import Descriptor, exact_float
from ._dtypes import CTYPES, INTEGER_LIMITS, STRUCT_CODES, Bits128
from ._errors import InvalidProblemError, shown
from ._float_environment import DefaultFloatEnvironment
from ._library import value_ctype

__all__ = ["PackedProblem", "pack_problem"]

# Floats as their bits: `struct` would round again at every call, in whatever float mode the caller's thread is then.
# Pointers as unsigned integers, which a negative one is not.
_AS_INTEGERS = str.maketrans("fdP", "IQQ")


class PackedProblem(NamedTuple):
    """A problem as C takes it.

    `block(pointers, scratch, stream)` packs a call, `scratch` being a workspace's address and bytes. `arguments` are
    those of the `_can_implement` function, `sizes` those of `_workspace_size`; with `kept` they own what the block
    points to.
    """

    block: Callable[[Sequence[int], tuple[int, int], int], bytes]
    arguments: tuple[Any, ...]
    sizes: tuple[Any, ...]
    kept: tuple[Any, ...]


def pack_problem(operator: _abi.Operator, variant: _abi.Variant, descriptor: Descriptor) -> PackedProblem:
    """Convert a descriptor's attributes, found by the names of the ABI table."""
    with DefaultFloatEnvironment():
        return _packed(operator, variant, descriptor)


def _packed(operator: _abi.Operator, variant: _abi.Variant, descriptor: Descriptor) -> PackedProblem:
    arguments: list[Any] = []
    sizes: list[Any] = []
    before: list[Any] = []
    # What stands among and behind the tensors' pointers, by its place there; the pointers have None.
    behind: list[Any] = []
    kept: list[Any] = []
    for parameter in operator.parameters:
        if isinstance(parameter, _abi.Tensor):
            arguments.append(None)
            behind.append(0 if parameter.name in descriptor.absent_tensors else None)
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
            packed = _scalar(operator.name, parameter, ctype, getattr(descriptor, parameter.name))
            value = packed[0]
            if ctype == "b128":
                value = Bits128(*packed)
            elif ctype in ("f32", "f64"):
                value = CTYPES[ctype].from_buffer_copy(struct.pack(f"@{STRUCT_CODES[ctype]}", value))
        (behind if None in arguments else before).extend(packed)
        arguments.append(value)
        if parameter.name != "value":
            sizes.append(value)
    codes = variant.block_format[1:].translate(_AS_INTEGERS)
    # "0P" pads the prefix to the alignment at which the first pointer stands.
    prefix = struct.pack(f"@{codes[: len(before)]}0P", *before)
    tail = struct.Struct(f"@{codes[len(before) :]}")
    block = _block_packer(prefix, tail.pack, tuple(behind))
    return PackedProblem(block, tuple(arguments), tuple(sizes), tuple(kept))


def _block_packer(
    prefix: bytes, pack: Callable[..., bytes], behind: tuple[Any, ...]
) -> Callable[[Sequence[int], tuple[int, int], int], bytes]:
    """Make the function that every call goes through; a closure, which finds its parts sooner than a method."""
    num_pointers = behind.count(None)
    constants = behind[num_pointers:]
    if None in constants:
        places = [place for place, value in enumerate(behind) if value is None]

        def block(pointers: Sequence[int], scratch: tuple[int, int], stream: int) -> bytes:
            values = list(behind)
            for place, pointer in zip(places, pointers, strict=True):
                values[place] = pointer
            return prefix + pack(*values, *scratch, stream)

    elif constants:

        def block(pointers: Sequence[int], scratch: tuple[int, int], stream: int) -> bytes:
            return prefix + pack(*pointers, *constants, *scratch, stream)

    else:

        def block(pointers: Sequence[int], scratch: tuple[int, int], stream: int) -> bytes:
            return prefix + pack(*pointers, *scratch, stream)

    return block


def _options(
    operator: str, parameter: _abi.Options, variant: _abi.Variant, descriptor: Descriptor, kept: list[Any]
) -> Any:
    """Lay out a struct of options from the descriptor's `option_<field>`; what it points to is added to `kept`."""
    fields: list[Any] = [struct.calcsize(parameter.format)]
    for field in parameter.fields:
        value = getattr(descriptor, f"option_{field.name}")
        if isinstance(field, _abi.Scalar):
            fields += _scalar(operator, field, field.ctype, value)
        elif value is None:
            fields.append(0)
        else:
            element = variant.types["T"]
            kept.append(_memory(struct.pack(STRUCT_CODES[element], *_scalar(operator, field, element, value))))
            fields.append(ctypes.addressof(kept[-1]))
    return _memory(struct.pack(parameter.format.translate(_AS_INTEGERS), *fields))


def _memory(content: bytes) -> Any:
    """Memory that holds the bytes, aligned for any type."""
    words = (ctypes.c_uint64 * (len(content) // 8 + 1))()
    ctypes.memmove(words, content, len(content))
    return words


def _scalar(operator: str, parameter: _abi.Scalar | _abi.HostArray, ctype: str, value: Any) -> tuple[Any, ...]:
    """Convert a scalar to what `struct` takes, floats to their bits; it would cut an integer silently."""
    name = parameter.name
    if ctype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[ctype]
        if not low <= value <= high:
            wanted = _range(ctype, parameter)
            raise InvalidProblemError(f"{operator}: {name} is {shown(value)}; wanted {wanted}")
        return (int(value),)
    if ctype.startswith("b") and ctype != "bf16":
        bits = int(ctype[1:])
        if not 0 <= value < 1 << bits or value != int(value):
            raise InvalidProblemError(f"{operator}: {name} is {shown(value)}; wanted the bit pattern of {bits} bits")
        pattern = int(value)
        return (pattern,) if bits <= 64 else (pattern & (1 << 64) - 1, pattern >> 64)
    try:
        return (_float_bits(ctype, exact_float(name, value)),)
    except ValueError as error:
        raise InvalidProblemError(f"{operator}: {error}") from None


def _range(ctype: str, parameter: _abi.Scalar | _abi.HostArray) -> str:
    """Spell the numbers that a parameter takes: what its type holds, and what the ABI table says."""
    low, high = INTEGER_LIMITS[ctype]
    most = parameter.high if isinstance(parameter, _abi.Scalar) else None
    return f"{low if parameter.low is None else parameter.low}..{high if most is None else most}"


def _float_bits(ctype: str, value: float) -> int:
    """Round to a float type and answer the bits."""
    if ctype == "f64":
        return int.from_bytes(struct.pack("<d", value), "little")
    with np.errstate(over="ignore"):
        narrow = np.float16(value) if ctype == "f16" else np.float32(value)
    if ctype == "f16":
        return int(narrow.view(np.uint16))
    bits = int(narrow.view(np.uint32))
    if ctype == "f32":
        return bits
    # bf16: round to nearest even on the upper half of the f32 bits; a NaN keeps its sign and becomes quiet. Where
    # rounding to f32 made a tie, the value itself lies on one side of it.
    if value != value:
        return bits >> 16 | 0x0040
    if bits & 0xFFFF == 0x8000 and float(narrow) != value:
        bits += 1 if abs(value) > abs(float(narrow)) else -1
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _host_array(operator: str, parameter: _abi.HostArray, values: tuple[Any, ...]) -> Any:
    kind = CTYPES[parameter.ctype] * max(len(values), 1)
    if parameter.ctype not in INTEGER_LIMITS:
        bits = [_float_bits(parameter.ctype, value) for value in values] or [0]
        return kind.from_buffer_copy(struct.pack(f"@{len(bits)}I", *bits))
    low, high = INTEGER_LIMITS[parameter.ctype]
    for value in values:
        if not low <= value <= high:
            wanted = _range(parameter.ctype, parameter)
            raise InvalidProblemError(f"{operator}: {parameter.name} holds {shown(value)}; wanted {wanted}")
    return kind(*values)
