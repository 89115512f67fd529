# SPDX-License-Identifier: Apache-2.0
"""Writes pybaracuda/_abi.py: the table as Python data, in the types of pybaracuda/_abi_types.py."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tools.abi.c_names import abi_hash, scalar_ctype
from tools.abi.model import HostArray, Operator, Options, Parameter, Scalar, Tensor, Variant
from tools.abi.spec import DTYPES, STATUS_CODES

STRUCT_CODES = {
    "i32": "i", "i64": "q", "f32": "f", "f64": "d",
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "u128": "QQ",
}  # fmt: skip

_COLUMNS = 120


def _tuple(items: Sequence[str]) -> str:
    """A tuple of strings, with the comma that makes one entry a tuple."""
    return "(" + ", ".join(f'"{item}"' for item in items) + ("," if len(items) == 1 else "") + ")"


def _parameter(parameter: Parameter) -> str:
    """A parameter as a Python expression, which may take several lines."""
    p = parameter
    match p:
        case Scalar():
            return f'Scalar("{p.name}", "{p.ctype}", {p.low}, {p.high}, {p.finite})'
        case HostArray():
            return f'HostArray("{p.name}", "{p.ctype}", "{p.length}", {p.low})'
        case Options():
            codes = "".join(STRUCT_CODES[f.ctype] if isinstance(f, Scalar) else "P" for f in p.fields)
            # A tuple of one field stands in one line, as the formatter has it.
            fields = "".join(f"    {_parameter(f)},\n" for f in p.fields)
            listed = f"({_parameter(p.fields[0])},)" if len(p.fields) == 1 else f"(\n{fields})"
            text = f'"{p.name}",\n"{p.struct}",\n{listed},\n"@N{codes}0P",\n'
            return f"Options(\n{textwrap.indent(text, '    ')})"
        case Tensor():
            strides = "None" if p.strides is None else f'"{p.strides}"'
            entries = (f'"{p.name}"', f'"{p.role}"', f'"{p.dtype}"', _tuple(p.shape), strides)
            text = f"Tensor({', '.join(entries)})"
            # A line of a tuple's entry: indented, and with a comma behind it.
            return text if len(text) <= _COLUMNS - 5 else "Tensor(\n" + "".join(f"    {e},\n" for e in entries) + ")"


def _parameters(operator: Operator) -> str:
    return textwrap.indent("".join(f"{_parameter(p)},\n" for p in operator.parameters), "    ")


def block_codes(operator: Operator, variant: Variant) -> list[str]:
    """The `struct` codes of the parameters of a symbol's block, in call order; the workspace and stream come behind."""
    return [STRUCT_CODES[scalar_ctype(p, variant)] if isinstance(p, Scalar) else "P" for p in operator.parameters]


def _variants(operator: Operator) -> str:
    def row(variant: Variant) -> str:
        codes = block_codes(operator, variant)
        types = ", ".join(f'"{letter}": "{token}"' for letter, token in variant.types.items())
        return f'    "{variant.token}": Variant("{variant.token}", {{{types}}}, "@{"".join(codes)}PNP"),\n'

    return "".join(map(row, operator.variants))


def python_tables(operators: Sequence[Operator]) -> Iterator[str]:
    """The parts of the file. Parameters and variants that several operators have stand once, called after the first."""
    yield '''# SPDX-License-Identifier: Apache-2.0
"""The ABI as Python data: every operator, its parameters in call order, its variants and the packed block's layout."""

from __future__ import annotations

from ._abi_types import HostArray, Operator, Options, Scalar, Tensor, Variant

__all__ = [
    "ABI_HASH",
    "DTYPE_BYTES",
    "OPERATORS",
    "STATUS_NAMES",
    "HostArray",
    "Operator",
    "Options",
    "Scalar",
    "Tensor",
    "Variant",
]

'''
    yield f"ABI_HASH = 0x{abi_hash(operators):016X}\n\n"
    yield "STATUS_NAMES: dict[int, str] = {\n"
    yield from (f'    {value}: "{name}",\n' for name, value, _ in STATUS_CODES)
    yield "}\n\nDTYPE_BYTES: dict[str, int] = {\n"
    yield from (f'    "{name}": {dtype.nbytes},\n' for name, dtype in DTYPES.items())
    yield "}\n"
    named: dict[str, str] = {}
    rows = []
    for operator in operators:
        parameters, variants = _parameters(operator), _variants(operator)
        if parameters not in named:
            named[parameters] = f"_{operator.name.upper()}_PARAMETERS"
            yield f"\n{named[parameters]} = (\n{parameters})\n"
        if variants not in named:
            named[variants] = f"_{operator.name.upper()}_VARIANTS"
            yield f"\n{named[variants]} = {{\n{variants}}}\n"
        entries = [f'"{operator.name}"', f'"{operator.family}"', named[parameters], named[variants]]
        if operator.after_workspace:
            entries.append(_tuple(operator.after_workspace))
        rows.append(f'    "{operator.name}": Operator(\n' + "".join(f"        {e},\n" for e in entries) + "    ),\n")
    yield "\nOPERATORS: dict[str, Operator] = {\n" + "".join(rows) + "}\n"
