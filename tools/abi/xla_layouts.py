# SPDX-License-Identifier: Apache-2.0
"""Writes native/xla/symbols.h: where the arguments of each symbol lie, for the handler of XLA's custom calls."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

from tools.abi.model import HostArray, Operator, Scalar, Variant
from tools.abi.python_tables import STRUCT_CODES, block_codes
from tools.abi.spec import DTYPES

# XLA's dtypes by the names that native/xla/ffi.h gives them; tokens that are not here stand for any of their width.
_XLA = {"f32": "kF32", "f64": "kF64", "f16": "kF16", "bf16": "kBF16", "i32": "kS32", "i64": "kS64",
        "s8": "kS8", "u8": "kU8"}  # fmt: skip
_ENTRY_BYTES = {"i32": 4, "i64": 8, "f32": 4}
# What native/xla/layout.h calls the elements of tensors that have the same dtype in every variant.
_OWN_ELEMENTS = {"i32": 3, "u8": 4, "i64": 5}


def _offsets(codes: Sequence[str]) -> list[int]:
    """Where the fields of a C struct stand, and its end."""
    # "0x" pads to the alignment of x. Of "QQ" the first decides.
    starts = [struct.calcsize(f"@{''.join(codes[:i])}0{code[0]}") for i, code in enumerate(codes)]
    return [*starts, struct.calcsize("@" + "".join(codes))]


def _extent(expression: str, at: dict[str, int], arrays: Sequence[HostArray], operator: Operator) -> str:
    """One extent of a tensor's shape as an Extent."""
    numbers = {array.name: number for number, array in enumerate(arrays)}
    scalars = {scalar.name: scalar.ctype for scalar in operator.scalars}

    def extent(kind: str, first: int, other: int = 0) -> str:
        return f"{{{kind}, {first}, {other}}}"

    if expression.isdecimal():
        return extent("kNumber", int(expression))
    if expression in numbers:
        return extent("kArray", numbers[expression], -1)
    if expression in {scalar.name for scalar in operator.scalars if (scalar.low, scalar.high) == (0, 1)}:
        return extent("kWhether", at[expression])
    if expression in scalars:
        return extent("kInt32" if scalars[expression] == "i32" else "kInt64", at[expression])
    if (found := re.fullmatch(r"(\w+)\[(\w+)\]", expression)) and scalars[found[2]] == "i32":
        return extent("kEntry", numbers[found[1]], at[found[2]])
    if (found := re.fullmatch(r"(\w+) \+ (\w+)", expression)) and found[1] in numbers:
        return extent("kArray", numbers[found[1]], numbers[found[2]])
    if (found := re.fullmatch(r"(\w+) \+ (\d+)", expression)) and scalars[found[1]] == "i32":
        return extent("kInt32", at[found[1]], int(found[2]))
    if found := re.fullmatch(r"(\w+)((?: \* (\w+)){1,2})", expression):
        factors = {scalars[each] for each in (found[1], found[3])}
        if factors == {"i32"} and set(found[2].split()) == {"*", found[3]}:
            kind = "kProduct" if found[2].count("*") == 1 else "kBySquare"
            return extent(kind, at[found[1]], at[found[3]])
    found = re.fullmatch(r"(\w+)\[(\d+)\] if (\w+) > \2 else 0", expression)
    if found and arrays[numbers[found[1]]].length == found[3]:
        return extent("kIfEntry", numbers[found[1]], int(found[2]))
    if expression == "num_segments + 1 if form == 2 else num_rows":
        return extent("kIndex", at["num_segments"], at["num_rows"])
    if expression == "num_segments if reduce >= 6 else 0":
        return extent("kRowsOfArg", at["num_segments"])
    if found := re.fullmatch(r"(\w+) if (\w+) == 0 else 1", expression):
        return extent("kUnlessReduced", at[found[1]], at[found[2]])
    if found := re.fullmatch(r"(\w+) if gradients != [12] else 0", expression):
        return extent("kInt32", at[found[1]])  # programs ask for both
    if found := re.fullmatch(r"1 if shares_input == 1 else (\w+)", expression):
        return extent("kInt32", at[found[1]])  # arrays of programs have no strides: an input for each
    raise ValueError(f"{operator.name}: the extent {expression!r} has no form in native/xla/layout.h")


def _options(operator: Operator, at: dict[str, int]) -> str:
    if not operator.options:
        return "{-1, 0, 0}"
    (options,) = operator.options
    codes = ["N", *(STRUCT_CODES[each.ctype] if isinstance(each, Scalar) else "P" for each in options.fields)]
    offsets = _offsets(codes)
    if "P" not in codes:
        # Padded to its alignment, that of its size.
        return f"{{{at[options.name]}, {struct.calcsize('@' + ''.join(codes) + '0N')}, -1}}"
    if not isinstance(options.fields[-1], HostArray) or codes.count("P") != 1:
        raise ValueError(f"{operator.name}: native/xla/layout.h has options end with their one pointer")
    return f"{{{at[options.name]}, {offsets[-1]}, {offsets[-2]}}}"


def _layout(operator: Operator, variant: Variant) -> str:
    """A symbol's Layout, without its name."""
    codes = [*block_codes(operator, variant), "P", "N", "P"]
    *starts, end = _offsets(codes)
    at = {parameter.name: start for parameter, start in zip(operator.parameters, starts, strict=False)}
    letters = [letter for letter in variant.types]
    arrays, tensors = [], []
    for each in operator.host_arrays:
        length = (each.length, "false") if each.length.isdecimal() else (at[each.length], "true")
        arrays.append(f"{{{at[each.name]}, {_ENTRY_BYTES[each.ctype]}, {length[0]}, {length[1]}}}")
    names = [each.name for each in operator.host_arrays]
    for tensor in operator.tensors:
        if tensor.dtype not in letters and tensor.dtype not in _OWN_ELEMENTS:
            raise ValueError(f"{operator.name}: native/xla/layout.h has no element {tensor.dtype} for {tensor.name}")
        element = letters.index(tensor.dtype) if tensor.dtype in letters else _OWN_ELEMENTS[tensor.dtype]
        strides = -1 if tensor.strides is None else names.index(tensor.strides)
        extents = ", ".join(_extent(each, at, operator.host_arrays, operator) for each in tensor.shape)
        role = "true" if tensor.role == "output" else "false"
        tensors.append(
            f"{{{at[tensor.name]}, {role}, {element}, {strides}, {len(tensor.shape)},\n      {{{extents}}}}}"
        )
    host = f"{{{', '.join(arrays)}}}" if arrays else "{}"
    body = ",\n     ".join(tensors)
    return (
        f"{end}, {starts[len(operator.parameters)]}, {len(arrays)}, {len(tensors)},\n    {host},\n"
        f"    {_options(operator, at)},\n    {{{body}}},\n"
    )


def _element(token: str) -> str:
    return f"{{{DTYPES[token].nbytes}, {_XLA.get(token, 0)}}}"


def _camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def xla_layouts(operators: Sequence[Operator]) -> Iterator[str]:
    """The parts of the file. A layout that several symbols have stands once, called after the first."""
    yield """\
// Where the arguments of each symbol lie in its block. What the fields are: xla/layout.h.
#pragma once

#include "xla/ffi.h"
#include "xla/layout.h"

namespace baracuda::xla {
"""
    named: dict[str, str] = {}
    rows = []
    for operator in operators:
        for variant in operator.variants:
            layout = _layout(operator, variant)
            if layout not in named:
                name = f"k{_camel_case(operator.name)}"
                named[layout] = name if name not in named.values() else f"{name}{_camel_case(variant.token)}"
                yield f"\nconstexpr Layout {named[layout]} = {{\n    {layout}}};\n"
            elements = [_element(token) for token in variant.types.values()]
            symbol = f"{operator.name}_{variant.token}"
            rows.append((symbol, f'  {{"{symbol}", &{named[layout]}, {{{", ".join(elements)}}}}},\n'))
    yield "\n// Sorted by name.\nconstexpr Symbol kSymbols[] = {\n"
    yield from (row for _, row in sorted(rows))
    yield "};\n\n}  // namespace baracuda::xla\n"
