# SPDX-License-Identifier: Apache-2.0
"""Writes all that repeats the ABI table: the C header, the C++ argument blocks, the Python tables, the link test.

python3 tools/abi/generate.py            write the files
python3 tools/abi/generate.py --check    fail if a file is missing, edited by hand or out of date
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.abi.model import HostArray, Operator, Options, Parameter, Scalar, Tensor, Variant  # noqa: E402
from tools.abi.spec import DTYPE_BYTES, OPERATORS, STATUS_CODES, VERSION_OF_LAYOUT  # noqa: E402

PREFIX = "baracuda_kernels_"
C_TYPES = {
    "i32": "int32_t", "i64": "int64_t", "f32": "float", "f64": "double",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "u128": "baracuda_kernels_bits128",
}  # fmt: skip
ELEMENT_VALUE_CTYPE = {
    "f32": "f32", "f64": "f64", "f16": "u16", "bf16": "u16",
    "b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64", "b128": "u128",
}  # fmt: skip
CPP_ELEMENTS = {
    "f32": "float", "f64": "double", "f16": "Half", "bf16": "Bfloat16",
    "s8": "int8_t", "u8": "uint8_t", "i32": "int32_t", "i64": "int64_t",
}  # fmt: skip
SEAL = "seal-sha256: "

LIBRARY_FUNCTIONS: tuple[tuple[str, str, str], ...] = (
    (
        "const char*",
        "last_error",
        "Why the calling thread's most recent call failed: operator, argument, value found, value wanted. Empty after "
        "a success. Valid until the thread's next call; never NULL.",
    ),
    ("const char*", "version", 'The library\'s version, "major.minor.patch".'),
    (
        "uint64_t",
        "abi_hash",
        "A hash over every prototype below; equal to BARACUDA_KERNELS_ABI_HASH of the header it was built with.",
    ),
    ("const char*", "backend_name", '"cuda" or "cpu".'),
)


def scalar_ctype(parameter: Scalar, variant: Variant) -> str:
    return ELEMENT_VALUE_CTYPE[variant.types["T"]] if parameter.ctype == "VALUE" else parameter.ctype


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


LAUNCH_PARAMETERS = ("void* workspace", "size_t workspace_bytes", "void* stream")


def verb_parameters(operator: Operator, variant: Variant, verb: str) -> tuple[str, list[str]]:
    """Return type and parameter declarations of one verb's function."""
    if verb == "run":
        return "int32_t", [*(declare(p, variant) for p in operator.parameters), *LAUNCH_PARAMETERS]
    if verb == "can_implement":
        return "int32_t", [declare(p, variant, const_outputs=True) for p in operator.parameters]
    if verb == "workspace_size":
        kept = [p for p in operator.parameters if not isinstance(p, Tensor) and p.name != "value"]
        return "size_t", [declare(p, variant) for p in kept]
    return "int32_t", ["const void* arguments"]


VERBS = ("run", "can_implement", "workspace_size", "run_packed")


def symbol(operator: Operator, variant: Variant, verb: str) -> str:
    return f"{PREFIX}{operator.name}_{variant.token}_{verb}"


def option_structs() -> list[Options]:
    """Every struct of options once, in the order of first use."""
    return list({o.struct: o for operator in OPERATORS for o in operator.options}.values())


def option_field(field: Scalar | HostArray) -> str:
    return f"{C_TYPES[field.ctype]} {field.name};" if isinstance(field, Scalar) else f"const void* {field.name};"


def option_struct(options: Options) -> str:
    """The C declaration of a struct of options."""
    fields = [("size_t size;", f"sizeof({PREFIX}{options.struct})")]
    for field in options.fields:
        text = scalar_text(field) if isinstance(field, Scalar) else f"{field.name} (host pointer): {field.doc}"
        fields.append((option_field(field), text))
    lines = [f"/* {options.doc} */", f"typedef struct {PREFIX}{options.struct} {{"]
    for declaration, text in fields:
        lines += [*(f"  {line}" for line in textwrap.wrap(f"/* {text}. */", 112)), f"  {declaration}"]
    return "\n".join([*lines, f"}} {PREFIX}{options.struct};", "", ""])


def prototypes() -> Iterator[str]:
    for options in option_structs():
        yield f"{PREFIX}{options.struct} {{ size_t size; {' '.join(map(option_field, options.fields))} }}"
    for result, name, _ in LIBRARY_FUNCTIONS:
        yield f"{result} {PREFIX}{name}(void)"
    for operator in OPERATORS:
        for variant in operator.variants:
            for verb in VERBS:
                result, parameters = verb_parameters(operator, variant, verb)
                yield f"{result} {symbol(operator, variant, verb)}({', '.join(parameters)})"


def abi_hash() -> int:
    text = "\n".join([f"layout {VERSION_OF_LAYOUT}", *(f"{n}={v}" for n, v, _ in STATUS_CODES), *prototypes()])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def shape_text(tensor: Tensor) -> str:
    return f"[{', '.join(tensor.shape)}]"


def dtype_text(operator: Operator, tensor: Tensor) -> str:
    if tensor.dtype in DTYPE_BYTES:
        return tensor.dtype
    if tensor.dtype == "T":
        return "the element type"
    if tensor.dtype == "C":
        return "f64 for f64, else f32"
    if tensor.dtype == "Q":
        return "the quantized type"
    return "i64 for _i64idx, else i32"


def scalar_text(parameter: Scalar) -> str:
    if parameter.low is None and parameter.high is None:
        return f"{parameter.name}: {parameter.doc}"
    low = "" if parameter.low is None else f"{parameter.low} <= "
    high = "" if parameter.high is None or parameter.high == 2**31 - 1 else f" <= {parameter.high}"
    return f"{low}{parameter.name}{high}: {parameter.doc}"


def documentation(operator: Operator) -> list[str]:
    """The contract of a family, in the fixed order of the project's style."""
    entries = [operator.summary, ""]
    for parameter in operator.parameters:
        match parameter:
            case Tensor():
                layout = "dense" if parameter.strides is None else "strided"
                entries.append(
                    f"{parameter.name} ({parameter.role}): {layout} {shape_text(parameter)}, "
                    f"{dtype_text(operator, parameter)}; {parameter.doc}."
                )
            case HostArray():
                entries.append(f"{parameter.name} (host array of {parameter.length}): {parameter.doc}.")
            case Options():
                entries.append(f"{parameter.name} (host struct): {parameter.doc}")
            case Scalar():
                entries.append(scalar_text(parameter) + ".")
    entries += [
        "",
        f"Empty: {operator.empty}",
        f"Bad data: {operator.bad_data}",
        f"Overlap: {operator.overlap}",
        f"Workspace: {operator.workspace}",
        f"Determinism: {operator.determinism}",
        f"Source: {operator.source}",
    ]
    lines: list[str] = []
    for entry in entries:
        lines += textwrap.wrap(entry, 112, subsequent_indent="  ") if entry else [""]
    return lines


def comment_block(lines: list[str]) -> str:
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"


def header() -> str:
    out = [
        """/*
 * The C ABI of baracuda_kernels, the same for the CUDA and the CPU library. Plain C99; no other header of the project
 * is needed to call it.
 *
 * Every operator has, for each dtype token, four functions:
 *   _run             does the work. Data pointers are device pointers in the CUDA library, host pointers in the CPU
 *                    one. Enqueued on `stream` (a CUstream or cudaStream_t; NULL is the legacy default stream) without
 *                    any synchronisation; on the CPU library the work is done on return and stream must be NULL
 *                    (else 3).
 *   _can_implement   the same checks without pointers, workspace and stream: the status that _run would answer. Data
 *                    pointers are ignored.
 *   _workspace_size  bytes of scratch that _run wants; 0 when none or when the problem is invalid.
 *   _run_packed      _run with its arguments laid out one after the other as a C struct would hold them.
 *
 * Workspace: given at least _workspace_size bytes, 16-byte aligned, _run allocates nothing. NULL with 0 bytes: scratch
 * comes from the library's own stream-ordered pool (CUDA) or the heap (CPU). NULL with bytes: status 2. Too small: 4.
 * Shapes, strides, pads and options are in host memory, read before the call returns. Strides count elements.
 * A struct of options begins with its own size, so that it can grow: fields past the caller's size are 0, and fields
 * that the library does not know must be 0 (else status 2).
 * Checks run in one order: null host arrays, scalars, overflow, success if every output is empty, null pointers,
 * alignment to the element, workspace, stream, launch.
 * Thread-safety: every function may be called from any number of threads at once. The error text is per thread.
 * Outputs are fully overwritten. A NaN made by arithmetic is the one canonical quiet NaN.
 */
#ifndef BARACUDA_KERNELS_H
#define BARACUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define BARACUDA_KERNELS_API
#else
#define BARACUDA_KERNELS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

""",
        f"#define BARACUDA_KERNELS_ABI_HASH UINT64_C(0x{abi_hash():016x})\n\n",
        "/* Status codes. */\nenum {\n",
    ]
    for name, value, text in STATUS_CODES:
        comma = "," if value != STATUS_CODES[-1][1] else ""
        out.append(f"  BARACUDA_KERNELS_{name} = {value}{comma} /* {text} */\n")
    out.append("};\n\n")
    out.append(
        "/* The bit pattern of an element of 16 bytes, as it lies in memory. */\n"
        "typedef struct baracuda_kernels_bits128 {\n  uint64_t low;\n  uint64_t high;\n} baracuda_kernels_bits128;\n\n"
    )
    for result, name, text in LIBRARY_FUNCTIONS:
        out.append(comment_block(textwrap.wrap(text, 112)))
        out.append(f"BARACUDA_KERNELS_API {result} {PREFIX}{name}(void);\n\n")
    for options in option_structs():
        out.append(option_struct(options))
    for operator in OPERATORS:
        tokens = ", ".join(v.token for v in operator.variants)
        out.append(comment_block([f"{operator.name}: {tokens}", "", *documentation(operator)]))
        for variant in operator.variants:
            for verb in VERBS:
                result, parameters = verb_parameters(operator, variant, verb)
                head = f"BARACUDA_KERNELS_API {result} {symbol(operator, variant, verb)}("
                out.append("\n".join(wrap_list(head, parameters, ");", 118)) + "\n")
        out.append("\n")
    out.append("#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
    return "".join(out)


def wrap_list(head: str, items: list[str], tail: str, width: int) -> list[str]:
    """`head item, item, ... tail` as lines that break only between items."""
    lines = [head]
    for index, item in enumerate(items):
        piece = item + (", " if index + 1 < len(items) else tail)
        if len(lines[-1]) + len(piece.rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("      ")
        lines[-1] += piece
    return lines


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def argument_block(operator: Operator) -> str:
    """One operator's part of a C++ file: the struct that _run_packed reads, the macro that stamps its functions."""
    struct_name = f"{camel(operator.name)}Arguments"
    has_value = any(p.name == "value" for p in operator.parameters)
    fields = []
    for parameter in operator.parameters:
        if isinstance(parameter, Scalar) and parameter.ctype == "VALUE":
            fields.append("Value value;")
        else:
            fields.append(declare(parameter, operator.variants[0]) + ";")
    fields += ["void* workspace;", "size_t workspace_bytes;", "void* stream;"]
    template = "template <typename Value>\n" if has_value else ""
    names = [p.name for p in operator.parameters]
    size_names = [n if not isinstance(p, Tensor) and n != "value" else ("{}" if n == "value" else "nullptr")
                  for n, p in zip(names, operator.parameters, strict=True)]  # fmt: skip
    macro = f"BARACUDA_STAMP_{operator.name.upper()}"
    can_names = [
        f"const_cast<void*>({p.name})" if isinstance(p, Tensor) and p.role == "output" else p.name
        for p in operator.parameters
    ]

    def signature(verb: str) -> list[str]:
        _, parameters = verb_parameters(operator, operator.variants[0], verb)
        return ["VALUE value" if has_value and p == "float value" else p for p in parameters]

    def function(verb: str, callee: str, arguments: list[str]) -> list[str]:
        result, _ = verb_parameters(operator, operator.variants[0], verb)
        head = f"  {result} {PREFIX}{operator.name}_##TOKEN##_{verb}("
        call = f"    return ::baracuda::{callee}<OP>({name}, "
        return [
            *wrap_list(head, signature(verb), ") {", 116),
            *wrap_list(call + "{", arguments, "});", 116),
            "  }",
        ]

    values = ", VALUE" if has_value else ""
    name = f'"{operator.name}_" #TOKEN'
    lines = [f"#define {macro}(TOKEN{values}, OP)"]
    lines += function("run", "run", [*names, "workspace", "workspace_bytes", "stream"])
    lines += function("can_implement", "can_implement", [*can_names, "nullptr", "0", "nullptr"])
    lines += function("workspace_size", "workspace_size", [*size_names, "nullptr", "0", "nullptr"])
    lines += [
        f"  int32_t {PREFIX}{operator.name}_##TOKEN##_run_packed(const void* arguments) {{",
        f"    return ::baracuda::run<OP>({name}, *static_cast<const OP::Arguments*>(arguments));",
        "  }",
    ]
    width = max(len(line) for line in lines) + 1
    stamped = "\n".join(f"{line:<{min(width, 118)}}\\" for line in lines[:-1]) + "\n" + lines[-1]
    indented = "\n".join(f"  {f}" for f in fields)
    return f"""
namespace baracuda {{

{template}struct {struct_name} {{
{indented}
}};

}}  // namespace baracuda

{stamped}
"""


def python_entry(parameter: Scalar | HostArray) -> str:
    """A scalar or host array as a Python expression."""
    if isinstance(parameter, Scalar):
        found = f"{parameter.low}, {parameter.high}, {parameter.finite}"
        return f'Scalar("{parameter.name}", "{parameter.ctype}", {found})'
    return f'HostArray("{parameter.name}", "{parameter.ctype}", "{parameter.length}", {parameter.low})'


def block_file(operators: list[Operator]) -> str:
    """The C++ file of the operators whose argument blocks share one."""
    what = operators[0].name if len(operators) == 1 else f"the operators of family {operators[0].family}"
    return f"""// The arguments of {what} as one block, and the macro that stamps its C functions for a dtype.
#pragma once

#include <cstddef>
#include <cstdint>

#include "baracuda_kernels.h"
#include "core/entry.h"
{"".join(argument_block(operator) for operator in operators)}"""


def python_tables() -> str:
    struct_codes = {
        "i32": "i", "i64": "q", "f32": "f", "f64": "d",
        "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "u128": "QQ",
    }  # fmt: skip
    out = [
        '''# SPDX-License-Identifier: Apache-2.0
"""The ABI as Python data: every operator, its parameters in call order, its variants and the packed block's layout."""

from __future__ import annotations

from typing import NamedTuple


class Scalar(NamedTuple):
    """A scalar argument; `ctype` is i32, i64, f32, f64 or VALUE (the element's own type, or its bits)."""

    name: str
    ctype: str
    low: int | None
    high: int | None
    finite: bool


class HostArray(NamedTuple):
    """A host array argument of `length` entries (a scalar's name or a number)."""

    name: str
    ctype: str
    length: str
    low: int | None


class Options(NamedTuple):
    """A pointer to a host struct that begins with its size; `format` is its `struct` format."""

    name: str
    struct: str
    fields: tuple[Scalar | HostArray, ...]
    format: str


class Tensor(NamedTuple):
    """A data pointer; `dtype` is a dtype token or a key of the variant's types, `shape` its extents as expressions."""

    name: str
    role: str
    dtype: str
    shape: tuple[str, ...]
    strides: str | None


class Variant(NamedTuple):
    """One dtype instance: the symbol's suffix, its types, and the `struct` format of the packed argument block."""

    token: str
    types: dict[str, str]
    block_format: str


class Operator(NamedTuple):
    """One operator family."""

    name: str
    family: str
    parameters: tuple[Scalar | HostArray | Options | Tensor, ...]
    variants: dict[str, Variant]


''',
        f"ABI_HASH = 0x{abi_hash():016X}\n\n",
        "STATUS_NAMES: dict[int, str] = {\n",
        *(f'    {value}: "{name}",\n' for name, value, _ in STATUS_CODES),
        "}\n\n",
        "DTYPE_BYTES: dict[str, int] = {\n",
        *(f'    "{name}": {size},\n' for name, size in DTYPE_BYTES.items()),
        "}\n\n",
        "OPERATORS: dict[str, Operator] = {\n",
    ]
    for operator in OPERATORS:
        out.append(f'    "{operator.name}": Operator(\n        "{operator.name}",\n')
        out.append(f'        "{operator.family}",\n        (\n')
        for p in operator.parameters:
            match p:
                case Scalar() | HostArray():
                    out.append(f"            {python_entry(p)},\n")
                case Options():
                    codes = [struct_codes[f.ctype] if isinstance(f, Scalar) else "P" for f in p.fields]
                    fields = "".join(f"    {python_entry(f)},\n" for f in p.fields)
                    text = f'"{p.name}",\n"{p.struct}",\n(\n{fields}),\n"@N{"".join(codes)}0P",\n'
                    out.append(f"            Options(\n{textwrap.indent(text, ' ' * 16)}            ),\n")
                case Tensor():
                    shape = ", ".join(f'"{s}"' for s in p.shape) + ("," if len(p.shape) == 1 else "")
                    strides = "None" if p.strides is None else f'"{p.strides}"'
                    out.append(f'            Tensor("{p.name}", "{p.role}", "{p.dtype}", ({shape}), {strides}),\n')
        out.append("        ),\n        {\n")
        for variant in operator.variants:
            codes = [
                struct_codes[scalar_ctype(p, variant)] if isinstance(p, Scalar) else "P" for p in operator.parameters
            ]
            types = "{" + ", ".join(f'"{k}": "{v}"' for k, v in variant.types.items()) + "}"
            out.append(f'            "{variant.token}": Variant("{variant.token}", {types}, "@{"".join(codes)}PNP"),\n')
        out.append("        },\n    ),\n")
    out.append("}\n")
    return "".join(out)


def link_test() -> str:
    names = [f"{PREFIX}{name}" for _, name, _ in LIBRARY_FUNCTIONS]
    names += [symbol(o, v, verb) for o in OPERATORS for v in o.variants for verb in VERBS]
    rows = "".join(f"    (void (*)(void)){name},\n" for name in names)
    return f"""/* Takes the address of every function that the header declares: a missing one fails to link. */
#include "baracuda_kernels.h"

#include <stdio.h>

typedef void (*function)(void);

static const function functions[] = {{
{rows}}};

int main(void) {{
  size_t count = sizeof functions / sizeof functions[0];
  for (size_t i = 0; i < count; ++i) {{
    if (functions[i] == NULL) return 1;
  }}
  if (baracuda_kernels_abi_hash() != BARACUDA_KERNELS_ABI_HASH) return 2;
  printf("%zu functions linked\\n", count);
  return 0;
}}
"""


def generated_files() -> dict[Path, str]:
    """Every generated file's path and sealed text."""
    bodies: dict[Path, tuple[str, str]] = {
        ROOT / "include/baracuda_kernels.h": ("//", header()),
        ROOT / "pybaracuda/_abi.py": ("#", python_tables()),
        ROOT / "tests/native/every_symbol.c": ("//", link_test()),
    }
    files: dict[str, list[Operator]] = {}
    for operator in OPERATORS:
        files.setdefault(operator.block_file or operator.name, []).append(operator)
    for name, operators in files.items():
        bodies[ROOT / f"native/abi/{name}.h"] = ("//", block_file(operators))
    return {path: seal(mark, body) for path, (mark, body) in bodies.items()}


def seal(mark: str, body: str) -> str:
    """Puts first the hash of everything after it, so that an edit by hand shows, then the notice.

    C files carry the SPDX line here; C99 has // comments."""
    spdx = "" if body.startswith("# SPDX") else f"{mark} SPDX-License-Identifier: Apache-2.0\n"
    notice = f"{mark} Generated by tools/abi/generate.py from tools/abi/spec.py; do not edit.\n"
    text = f"{notice}{spdx}{body}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{mark} {SEAL}{digest}\n{text}"


def seal_problem(path: Path) -> str | None:
    """Why a file's seal does not hold, or None."""
    first, _, rest = path.read_text().partition("\n")
    if SEAL not in first:
        return f"{path.relative_to(ROOT)}: no seal line"
    if first.split(SEAL)[1].strip() != hashlib.sha256(rest.encode()).hexdigest():
        return f"{path.relative_to(ROOT)}: edited by hand (its seal does not match its text)"
    return None


def check() -> list[str]:
    """Every reason why the generated files are not what the spec says."""
    problems = []
    expected = generated_files()
    for path, text in expected.items():
        if not path.exists():
            problems.append(f"{path.relative_to(ROOT)}: missing")
            continue
        problem = seal_problem(path)
        if problem is None and path.read_text() != text:
            problem = f"{path.relative_to(ROOT)}: out of date"
        if problem is not None:
            problems.append(problem)
    strays = {p for p in (ROOT / "native/abi").glob("*.h") if p not in expected}
    problems += [f"{p.relative_to(ROOT)}: not in the spec" for p in sorted(strays)]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of write")
    if parser.parse_args().check:
        problems = check()
        print("\n".join(problems) if problems else "generated files are fresh")
        return 1 if problems else 0
    for path, text in generated_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
