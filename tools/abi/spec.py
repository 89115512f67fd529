# SPDX-License-Identifier: Apache-2.0
"""The one table of the ABI: status codes, dtypes, the library's own functions, and every operator in its order.

Nothing but facts belongs here; what one family's operators are stands in its file of tools/abi/families. The generator
(tools/abi/generate.py) turns all of it into the header, the C++ argument blocks and the Python tables.
"""

from __future__ import annotations

from tools.abi.families import affine_grid, dequantize, grid_sample, pad, roi_align, segment
from tools.abi.model import Dtype, Operator

VERSION_OF_LAYOUT = 1

STATUS_CODES: tuple[tuple[str, int, str], ...] = (
    ("OK", 0, "success; the work is enqueued (CUDA) or done (CPU)"),
    ("MISALIGNED_OPERAND", 1, "a data pointer is not aligned to its element, or a workspace not to 16 bytes"),
    ("INVALID_PROBLEM", 2, "a scalar, shape or pointer that is wrong on every backend"),
    ("UNSUPPORTED", 3, "a valid problem that this backend does not do"),
    ("WORKSPACE_TOO_SMALL", 4, "the given workspace is smaller than the workspace_size function answers"),
    ("INTERNAL", 5, "a launch or allocation failed; on CUDA the text carries the runtime's own message"),
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

# The functions without arguments that belong to no operator: result, name, what it answers.
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

OPERATORS: tuple[Operator, ...] = (
    *roi_align.OPERATORS,
    *grid_sample.OPERATORS,
    *affine_grid.OPERATORS,
    *pad.OPERATORS,
    *segment.OPERATORS,
    *dequantize.OPERATORS,
)
