# SPDX-License-Identifier: Apache-2.0
"""How the table is spelled in C: types, declarations, symbols, prototypes and the hash over them. Writes no file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from tools.abi.model import HostArray, Operator, Options, Parameter, Scalar, Tensor, Variant
from tools.abi.spec import DTYPES, LIBRARY_FUNCTIONS, STATUS_CODES, VERSION_OF_LAYOUT

PREFIX = "baracuda_kernels_"
C_TYPES = {
    "i32": "int32_t", "i64": "int64_t", "f32": "float", "f64": "double",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "u128": "baracuda_kernels_bits128",
}  # fmt: skip
VERBS = ("run", "can_implement", "workspace_size", "run_packed")
_WORKSPACE = ("void* workspace", "size_t workspace_bytes")
_STREAM = "void* stream"


def scalar_ctype(parameter: Scalar, variant: Variant) -> str:
    """The key of C_TYPES for a scalar."""
    if parameter.ctype != "VALUE":
        return parameter.ctype
    return DTYPES[variant.types["T"]].bits or variant.types["T"]


def declare(parameter: Parameter, variant: Variant, *, const_outputs: bool = False) -> str:
    """The C declaration of one parameter."""
    match parameter:
        case Scalar():
            return f"{C_TYPES[scalar_ctype(parameter, variant)]} {parameter.name}"
        case HostArray():
            return f"const {C_TYPES[parameter.ctype]}* {parameter.name}"
        case Options():
            return f"const {PREFIX}{parameter.struct}* {parameter.name}"
        case Tensor():
            const = "const " if parameter.role == "input" or const_outputs else ""
            return f"{const}void* {parameter.name}"


def verb_parameters(operator: Operator, variant: Variant, verb: str) -> tuple[str, list[str]]:
    """Return type and parameter declarations of one verb's function."""
    before, after = operator.parts
    if verb == "run":
        return "int32_t", [
            *(declare(p, variant) for p in before), *_WORKSPACE, *(declare(p, variant) for p in after), _STREAM
        ]  # fmt: skip
    if verb == "can_implement":
        declared = [declare(p, variant, const_outputs=True) for p in before]
        return "int32_t", [*declared, *_WORKSPACE, *(declare(p, variant) for p in after)] if after else declared
    if verb == "workspace_size":
        kept = [p for p in operator.parameters if not isinstance(p, Tensor) and p.name != "value"]
        return "size_t", [declare(p, variant) for p in kept]
    return "int32_t", ["const void* arguments"]


def symbol(operator: Operator, variant: Variant, verb: str) -> str:
    """The name of one C function."""
    return f"{PREFIX}{operator.name}_{variant.token}_{verb}"


def option_structs(operators: Sequence[Operator]) -> list[Options]:
    """Every struct of options once, in the order of first use."""
    return list({o.struct: o for operator in operators for o in operator.options}.values())


def option_field(field: Scalar | HostArray) -> str:
    """The declaration of one field of a struct of options."""
    return f"{C_TYPES[field.ctype]} {field.name};" if isinstance(field, Scalar) else f"const void* {field.name};"


def prototypes(operators: Sequence[Operator]) -> Iterator[str]:
    """Every struct of options and every function, as the hash reads them."""
    for options in option_structs(operators):
        yield f"{PREFIX}{options.struct} {{ size_t size; {' '.join(map(option_field, options.fields))} }}"
    for result, name, arguments, _ in LIBRARY_FUNCTIONS:
        yield f"{result} {PREFIX}{name}({arguments})"
    for operator in operators:
        for variant in operator.variants:
            for verb in VERBS:
                result, parameters = verb_parameters(operator, variant, verb)
                yield f"{result} {symbol(operator, variant, verb)}({', '.join(parameters)})"


def abi_hash(operators: Sequence[Operator]) -> int:
    """What tells one ABI from another: a hash over status codes and prototypes."""
    statuses = [f"{name}={value}" for name, value, _ in STATUS_CODES]
    text = "\n".join([f"layout {VERSION_OF_LAYOUT}", *statuses, *prototypes(operators)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def wrap_list(head: str, items: list[str], tail: str, width: int, between: str = ", ") -> list[str]:
    """`head item, item, ... tail` as lines that break only between items."""
    lines = [head]
    for index, item in enumerate(items):
        piece = item + (between if index + 1 < len(items) else tail)
        if len(lines[-1]) + len(piece.rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("      ")
        lines[-1] += piece
    return lines
