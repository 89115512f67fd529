# SPDX-License-Identifier: Apache-2.0
"""The one table of the ABI: status codes, dtypes, the library's own functions, and every operator in its order.

Nothing but facts belongs here; what one family's operators are stands in its file of tools/abi/families. The generator
(tools/abi/generate.py) turns all of it into the header, the C++ argument blocks and the Python tables.
"""

from __future__ import annotations

from tools.abi.families import all_operators
from tools.abi.model import Dtype, Operator

VERSION_OF_LAYOUT = 1

STATUS_CODES: tuple[tuple[str, int, str], ...] = (
    ("OK", 0, "success; the work is enqueued (CUDA) or done (CPU)"),
    ("MISALIGNED_OPERAND", 1, "a data pointer is not aligned as its element must be, or a workspace not to 16 bytes"),
    ("INVALID_PROBLEM", 2, "a scalar, shape or pointer that is wrong on every backend"),
    ("UNSUPPORTED", 3, "a valid problem that this backend does not do"),
    ("WORKSPACE_TOO_SMALL", 4, "the given workspace is smaller than the workspace_size function answers"),
    (
        "INTERNAL",
        5,
        "a launch or allocation failed, on CUDA with the runtime's own message, or the call was interrupted",
    ),
)

# Every dtype token.
DTYPES: dict[str, Dtype] = {
    "f16": Dtype(2, "Half", "u16"),
    "bf16": Dtype(2, "Bfloat16", "u16"),
    "f32": Dtype(4, "float"),
    "f64": Dtype(8, "double"),
    "s8": Dtype(1, "int8_t"),
    "u8": Dtype(1, "uint8_t"),
    "i32": Dtype(4, "int32_t"),
    "i64": Dtype(8, "int64_t"),
    "b8": Dtype(1, "uint8_t", "u8"),
    "b16": Dtype(2, "uint16_t", "u16"),
    "b32": Dtype(4, "uint32_t", "u32"),
    "b64": Dtype(8, "uint64_t", "u64"),
    "b128": Dtype(16, "baracuda_kernels_bits128", "u128"),
}

# The functions that belong to no operator: result, name, parameters, what it answers or does.
LIBRARY_FUNCTIONS: tuple[tuple[str, str, str, str], ...] = (
    (
        "const char*",
        "last_error",
        "void",
        "Why the calling thread's most recent call failed: operator, argument, value found, value wanted. Empty after "
        "a success. Valid until the thread's next call; never NULL.",
    ),
    (
        "const char*",
        "last_path",
        "void",
        "Which of an operator's paths, its ways of doing a call, the calling thread's most recent successful _run or "
        '_run_packed took: "tiles" or "pixels", say. "" where that call had nothing to write, and before any. Of a '
        "call that is cut into several launches, the last one's. Each backend has its own paths; what they are called "
        "and which calls take them may change from version to version, and no result depends on it: to be looked at, "
        "not to be decided by. Static storage, never NULL.",
    ),
    ("const char*", "version", "void", 'The library\'s version, "major.minor.patch".'),
    (
        "uint64_t",
        "abi_hash",
        "void",
        "A hash over every prototype below; equal to BARACUDA_KERNELS_ABI_HASH of the header it was built with.",
    ),
    ("const char*", "backend_name", "void", '"cuda" or "cpu".'),
    (
        "int32_t",
        "cpu_threads",
        "void",
        "How many threads a call may use, the calling one included; 1 in the CUDA library, whose calls enqueue and "
        "return. In the CPU library the number that the environment's BARACUDA_NUM_THREADS has when the first large "
        "call starts the threads: digits alone, and 256 for more than 256. Any other text, an empty one and 0 count "
        "as if it were not set: then it is the number of processors that the process may use, 256 at most. Before "
        "that call this answers what it would be now; a forked child starts threads of its own. Up to 7 threads beside "
        "the caller's are kept off its processor, on the others that it may use. No result depends on them.",
    ),
    (
        "const char*",
        "cpu_isa",
        "void",
        'Which instruction set the CPU library uses: "avx512", "avx2" or "portable", the best that the processor has '
        "and the environment's BARACUDA_CPU_ISA (one of these, an upper bound; any other text counts as if it were not "
        'set) allows when the library first asks. "portable" in the CUDA library, whose code for the CPU is made for '
        "every processor. Static storage, never NULL. No result depends on it.",
    ),
    (
        "void",
        "set_interrupt_check",
        "int32_t (*check)(void* context), void* context",
        "Sets what the calling thread's long calls ask whether they are to end early, and what they hand to it; NULL "
        "for nothing, as at first. A call of the CPU library that takes longer than 0.1 s then calls check(context) "
        "on the thread that made it, between parts of its work, about every 0.1 s; shorter calls never do. If it "
        "answers other than 0, the call ends as soon as the parts that other threads have begun are done, which is a "
        "matter of milliseconds unless one part is long in itself (a box of very many samples), with status 5 and a "
        'text that says "interrupted". Its outputs and workspace are then undefined; the next call works as ever. The '
        "check must return, and may call the library; such calls ask nothing. A signal handler that sets a flag and "
        "a check that answers the flag make Ctrl-C work. In the CUDA library, whose calls do not wait, this does "
        "nothing.",
    ),
)

OPERATORS: tuple[Operator, ...] = all_operators()
