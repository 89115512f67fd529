# SPDX-License-Identifier: Apache-2.0
"""Writes native/abi: the arguments of each operator as one C++ block, and the macros that stamp its C functions.

Operators with the same parameters share a block and the text of their functions.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tools.abi.c_names import C_TYPES, PREFIX, declare, verb_parameters, wrap_list
from tools.abi.model import Operator, Scalar, Tensor, Variant
from tools.abi.spec import DTYPES

# The workspace of a block for `_can_implement`, which ignores it where it has one.
_ASKED = ("workspace", "workspace_bytes")
_NONE = ("nullptr", "0")


def _takes_value(operator: Operator) -> bool:
    return any(isinstance(p, Scalar) and p.ctype == "VALUE" for p in operator.parameters)


def _fields(operator: Operator) -> tuple[str, ...]:
    """The members of the struct that _run_packed reads."""
    fields = [
        "Value value" if isinstance(p, Scalar) and p.ctype == "VALUE" else declare(p, operator.variants[0])
        for p in operator.parameters
    ]
    return (*fields, "void* workspace", "size_t workspace_bytes", "void* stream")


def alike(operators: Sequence[Operator]) -> list[list[Operator]]:
    """The operators in groups with the same parameters, each called after its first."""
    groups: dict[tuple[str, ...], list[Operator]] = {}
    for operator in operators:
        groups.setdefault(_fields(operator), []).append(operator)
    return list(groups.values())


def by_folder(operators: Sequence[Operator]) -> dict[str, list[Operator]]:
    """The operators of each folder of native/ops."""
    folders: dict[str, list[Operator]] = {}
    for operator in operators:
        folders.setdefault(operator.folder, []).append(operator)
    return folders


def macro_name(operator: Operator) -> str:
    """An operator's name within a macro's."""
    return operator.name.upper()


def _camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _struct_name(operator: Operator) -> str:
    return _camel_case(operator.name) + "Arguments"


def macro(lines: list[str]) -> str:
    """The lines of one definition, continued at the longest one's end."""
    width = min(max(map(len, lines[:-1]), default=0) + 1, 118)
    return "\n".join([*(f"{line:<{width}}\\" for line in lines[:-1]), lines[-1]]) + "\n"


def _roles(operator: Operator, operators: Sequence[Operator]) -> list[str]:
    """What a block says of every tensor that some operator of its folder has: constants of type Role."""
    roles = {tensor.name: f"k{tensor.role.capitalize()}" for tensor in operator.tensors}
    names = dict.fromkeys(tensor.name for each in operators for tensor in each.tensors)
    return [f"static constexpr Role k{_camel_case(name)} = Role::{roles.get(name, 'kNone')}" for name in names]


def _block(operator: Operator, operators: Sequence[Operator]) -> str:
    template = "template <typename Value>\n" if _takes_value(operator) else ""
    lines = "".join(f"  {line};\n" for line in (*_fields(operator), *_roles(operator, operators)))
    return f"{template}struct {_struct_name(operator)} {{\n{lines}}};\n"


def _functions(operator: Operator) -> str:
    """The macro that defines the four functions of one symbol, for this operator and those like it."""
    has_value = _takes_value(operator)

    def function(verb: str, arguments: list[str]) -> list[str]:
        result, parameters = verb_parameters(operator, operator.variants[0], verb)
        if has_value:
            parameters = ["VALUE value" if p.endswith(" value") else p for p in parameters]
        return [
            *wrap_list(f"  {result} {PREFIX}##NAME##_##TOKEN##_{verb}(", parameters, ") {", 116),
            *wrap_list(f'    return ::baracuda::{verb}<__VA_ARGS__>(#NAME "_" #TOKEN, {{', arguments, "});", 116),
            "  }",
        ]

    names = [p.name for p in operator.parameters]
    to_check = [
        f"const_cast<void*>({p.name})" if isinstance(p, Tensor) and p.role == "output" else p.name
        for p in operator.parameters
    ]
    to_size = [
        "nullptr" if isinstance(p, Tensor) else "{}" if p.name == "value" else p.name for p in operator.parameters
    ]
    value = ", VALUE" if has_value else ""
    return macro([
        f"#define BARACUDA_STAMP_LIKE_{macro_name(operator)}(NAME, TOKEN{value}, ...)",
        *function("run", [*names, "workspace", "workspace_bytes", "stream"]),
        *function("can_implement", [*to_check, *(_ASKED if operator.after_workspace else _NONE), "nullptr"]),
        *function("workspace_size", [*to_size, "nullptr", "0", "nullptr"]),
        f"  int32_t {PREFIX}##NAME##_##TOKEN##_run_packed(const void* arguments) {{",
        '    return ::baracuda::run_packed<__VA_ARGS__>(#NAME "_" #TOKEN, arguments);',
        "  }",
    ])  # fmt: skip


def _instances(operator: Operator) -> list[str]:
    """For every variant its token and its instance of OP, a template over the types of the variant's letters."""

    def instance(variant: Variant) -> str:
        types = [DTYPES[token] for token in variant.types.values()]
        if not _takes_value(operator):
            return f"{variant.token}, OP<{', '.join(each.element for each in types)}>"
        # An element that C passes as bits is its bits here.
        passed = ", ".join(C_TYPES[each.bits] if each.bits else each.element for each in types)
        return f"{variant.token}, {passed}, OP<{passed}>"

    return [f"STAMP({instance(variant)})" for variant in operator.variants]


def _stamps(operator: Operator, like: Operator, instances_of: Operator) -> str:
    """The operator's own names for what it shares."""
    value = ", VALUE" if _takes_value(operator) else ""
    stamp, stamp_every = (f"BARACUDA_STAMP_{part}{macro_name(operator)}" for part in ("", "EVERY_"))
    one = f"  BARACUDA_STAMP_LIKE_{macro_name(like)}({operator.name}, TOKEN{value}, __VA_ARGS__)"
    every = f"  BARACUDA_INSTANCES_LIKE_{macro_name(instances_of)}({stamp}, OP)"
    return macro([f"#define {stamp}(TOKEN{value}, ...)", one]) + macro([f"#define {stamp_every}(OP)", every])


def block_file(folder: str, operators: Sequence[Operator]) -> Iterator[str]:
    """The parts of native/abi/<folder>.h."""
    about = (
        f"The arguments of the operators of native/ops/{folder} as blocks, and the macros that stamp their C "
        "functions: BARACUDA_STAMP_<OPERATOR>(token, Op) those of one dtype, BARACUDA_STAMP_EVERY_<OPERATOR>(Op) all "
        "of them, where Op is a template over the types of a dtype. What an Op is: core/entry.h. A block also says "
        "which of the tensors it has that the folder's operators have."
    )
    yield f"""\
{textwrap.fill(about, 120, initial_indent="// ", subsequent_indent="// ")}
#pragma once

#include <cstddef>
#include <cstdint>

#include "baracuda_kernels.h"
#include "core/dtype.h"
#include "core/entry.h"
#include "core/role.h"

namespace baracuda {{
"""
    groups = alike(operators)
    for group in groups:
        yield "\n" + _block(group[0], operators)
        yield from (f"using {_struct_name(other)} = {_struct_name(group[0])};\n" for other in group[1:])
    yield "\n}  // namespace baracuda\n"
    for group in groups:
        yield "\n" + _functions(group[0])
    sets: dict[tuple[str, ...], Operator] = {}
    for operator in operators:
        if sets.setdefault(tuple(_instances(operator)), operator) is operator:
            head = f"#define BARACUDA_INSTANCES_LIKE_{macro_name(operator)}(STAMP, OP)"
            yield "\n" + macro([head, *(f"  {line}" for line in _instances(operator))])
    yield "\n"
    like = {operator.name: group[0] for group in groups for operator in group}
    for operator in operators:
        yield _stamps(operator, like[operator.name], sets[tuple(_instances(operator))])
