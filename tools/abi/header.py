# SPDX-License-Identifier: Apache-2.0
"""Writes the C header: the contract of every operator, then its prototypes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tools.abi.c_names import PREFIX, VERBS, abi_hash, option_field, option_structs, symbol, verb_parameters, wrap_list
from tools.abi.model import HostArray, Operator, Options, Scalar, Tensor
from tools.abi.spec import DTYPES, LIBRARY_FUNCTIONS, STATUS_CODES


def _option_struct(options: Options) -> str:
    """The C declaration of a struct of options."""
    fields = [("size_t size;", f"sizeof({PREFIX}{options.struct})")]
    for field in options.fields:
        text = _scalar_text(field) if isinstance(field, Scalar) else f"{field.name} (host pointer): {field.doc}"
        fields.append((option_field(field), text))
    lines = [f"/* {options.doc} */", f"typedef struct {PREFIX}{options.struct} {{"]
    for declaration, text in fields:
        lines += [*(f"  {line}" for line in textwrap.wrap(f"/* {text}. */", 112)), f"  {declaration}"]
    return "\n".join([*lines, f"}} {PREFIX}{options.struct};", "", ""])


def _shape_text(tensor: Tensor) -> str:
    return f"[{', '.join(tensor.shape)}]"


def _dtype_text(tensor: Tensor) -> str:
    if tensor.dtype in DTYPES:
        return tensor.dtype
    if tensor.dtype == "T":
        return "the element type"
    if tensor.dtype == "C":
        return "f64 for f64, else f32"
    if tensor.dtype == "Q":
        return "the quantized type"
    return "i64 for _i64idx, else i32"


def _scalar_text(parameter: Scalar) -> str:
    if parameter.low is None and parameter.high is None:
        return f"{parameter.name}: {parameter.doc}"
    low = "" if parameter.low is None else f"{parameter.low} <= "
    high = "" if parameter.high is None or parameter.high == 2**31 - 1 else f" <= {parameter.high}"
    return f"{low}{parameter.name}{high}: {parameter.doc}"


def _documentation(operator: Operator) -> list[str]:
    """The contract of an operator, in the fixed order of the project's style."""
    entries = [f"{operator.name}: {', '.join(v.token for v in operator.variants)}", "", operator.summary, ""]
    for parameter in operator.parameters:
        match parameter:
            case Tensor():
                layout = "dense" if parameter.strides is None else "strided"
                entries.append(
                    f"{parameter.name} ({parameter.role}): {layout} {_shape_text(parameter)}, "
                    f"{_dtype_text(parameter)}; {parameter.doc}."
                )
            case HostArray():
                entries.append(f"{parameter.name} (host array of {parameter.length}): {parameter.doc}.")
            case Options():
                entries.append(f"{parameter.name} (host struct): {parameter.doc}")
            case Scalar():
                entries.append(_scalar_text(parameter) + ".")
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


def _comment_block(lines: list[str]) -> str:
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"


def header(operators: Sequence[Operator]) -> str:
    """The text of include/baracuda_kernels.h."""
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
 *   _workspace_size  bytes of scratch that _run wants, the same on every device; 0 when none or when the problem is
 *                    invalid.
 *   _run_packed      _run with its arguments laid out one after the other as a C struct would hold them.
 *
 * Workspace: given at least _workspace_size bytes, 16-byte aligned, _run allocates nothing. NULL with 0 bytes: scratch
 * comes from the library's own stream-ordered pool (CUDA) or the heap (CPU). NULL with bytes: status 2. Too small: 4.
 * Shapes, strides, pads and options are in host memory, read before the call returns. Strides count elements.
 * A struct of options begins with its own size, so that it can grow: fields past the caller's size are 0, and fields
 * that the library does not know must be 0 (else status 2).
 * Checks run in one order: null host arrays, scalars, overflow, elements of an output in one place, success if every
 * output is empty, null pointers, alignment, overlap of operands, workspace, stream, launch. Places are
 * compared exactly, gaps between strides left out. Strides so irregular that a comparison would take more than 65,536
 * trials are refused as if places met; it takes three incommensurable strides at least.
 * Alignment: a tensor begins at a multiple of its element's size: 1 for s8, u8 and b8; 2 for f16, bf16 and b16; 4 for
 * f32, i32 and b32; 8 for f64, i64 and b64, and also for b128, whose elements are two words of 8.
 * Stack: no function of the CPU library needs more than 32 KiB of its caller's stack; its own threads bring theirs.
 * Float modes: the calling thread's rounding, flush-to-zero and denormals-are-zero modes (x86-64) are set aside while a
 * function computes on the host, and restored on return.
 * Loading: CUDA loads a kernel when a process first runs it, and may then wait for what the device is doing;
 * CUDA_MODULE_LOADING=EAGER in the environment loads all kernels at the start.
 * Thread-safety: every function may be called from any number of threads at once. The error text is per thread.
 * Left to the caller on CUDA: CUDA itself may end the process where a stream was destroyed or never was one, and it
 * finds out that the stream's device cannot reach an address only while the kernel runs. After that, as after any
 * kernel that failed in the same context, every call answers 5. So does every call in a child that was forked after
 * CUDA was used. Functions that CUDA runs on the host (cuLaunchHostFunc) must not call this library.
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
        f"#define BARACUDA_KERNELS_ABI_HASH UINT64_C(0x{abi_hash(operators):016x})\n\n",
        "/* Status codes. */\nenum {\n",
    ]
    for name, value, text in STATUS_CODES:
        comma = "," if value != STATUS_CODES[-1][1] else ""
        out.append(f"  /* {text} */\n  BARACUDA_KERNELS_{name} = {value}{comma}\n")
    out.append("};\n\n")
    out.append(
        "/* The bit pattern of an element of 16 bytes, as it lies in memory. */\n"
        "typedef struct baracuda_kernels_bits128 {\n  uint64_t low;\n  uint64_t high;\n} baracuda_kernels_bits128;\n\n"
    )
    for result, name, arguments, text in LIBRARY_FUNCTIONS:
        out.append(_comment_block(textwrap.wrap(text, 112)))
        out.append(f"BARACUDA_KERNELS_API {result} {PREFIX}{name}({arguments});\n\n")
    for options in option_structs(operators):
        out.append(_option_struct(options))
    for operator in operators:
        out.append(_comment_block(_documentation(operator)))
        for variant in operator.variants:
            for verb in VERBS:
                result, parameters = verb_parameters(operator, variant, verb)
                head = f"BARACUDA_KERNELS_API {result} {symbol(operator, variant, verb)}("
                out.append("\n".join(wrap_list(head, parameters, ");", 118)) + "\n")
        out.append("\n")
    out.append("#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
    return "".join(out)
