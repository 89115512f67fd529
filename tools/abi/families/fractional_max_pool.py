# SPDX-License-Identifier: Apache-2.0
"""Fractional maximum pooling with indices, and its gradient, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, INT32_MAX, Operator, Parameter, Scalar, Tensor, Variant, extent

_AXES = ("d", "h", "w")
_EXTENTS: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels"),
    extent("d", "input depth; 1 for pooling in two dimensions"),
    extent("h", "input height"),
    extent("w", "input width"),
    extent("output_d", "windows along the depth; at most d - kernel_d + 1"),
    extent("output_h", "windows along the height; at most h - kernel_h + 1"),
    extent("output_w", "windows along the width; at most w - kernel_w + 1"),
    *(
        Scalar(f"kernel_{axis}", "i32", f"a window's elements along {axis}; the three multiply to at most 2^31 - 1",
               low=1, high=INT32_MAX)
        for axis in _AXES
    ),
)  # fmt: skip
_INPUT = ("n", "c", "d", "h", "w")
_OUTPUT = ("n", "c", "output_d", "output_h", "output_w")
_VARIANTS = tuple(Variant(variant.token, {**variant.types, "I": "i64"}) for variant in FLOATS)
_SOURCE = (
    "torch.nn.functional.fractional_max_pool2d and fractional_max_pool3d (2.13), as its CUDA kernels compute them."
)

ORDER = 74
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="fractional_max_pool",
        family="fractional_max_pool",
        summary=(
            "Maxima over windows that a random number places, and where they are: on an axis of extent n, m windows of "
            "k elements and sample s, with alpha = (n - k) / (m - 1), window o begins at trunc((o + s) alpha) - "
            "trunc(s alpha), and the last one at n - k. Each operation is rounded to f32, for f64 to f64."
        ),
        parameters=(
            *_EXTENTS,
            Scalar("num_samples", "i32",
                   "2: random_samples has a number for the width, then one for the height, and the depth's is 0; "
                   "3: for depth, height and width", low=2, high=3),
            Tensor("input", "input", "T", _INPUT, "feature maps"),
            Tensor("random_samples", "input", "T", ("n", "c", "num_samples"), "numbers in [0, 1)"),
            Tensor("output", "output", "T", _OUTPUT, "one maximum per window"),
            Tensor("indices", "output", "I", _OUTPUT,
                   "(z h + y) w + x of the element of its plane that output holds"),
        ),
        variants=_VARIANTS,
        empty="An empty output: success, nothing to write.",
        bad_data=(
            "A NaN in input is larger than every number. A sample outside of [0, 1) is computed with; a window that "
            "would begin outside of [0, n - k] is moved to the nearer end. trunc() of a NaN is 0, and of what 32 bits "
            "do not hold the nearest number that they do."
        ),
        workspace="On the CPU at most 24 KiB, on CUDA none.",
        determinism=(
            BIT_STABLE
            + "The first of equal elements in row-major order wins, and the last NaN before all of them; its bits are "
            "moved, a NaN's and a zero's sign too."
        ),
        source=_SOURCE,
    ),
    Operator(
        name="fractional_max_pool_backward",
        family="fractional_max_pool",
        summary=(
            "Gradient of fractional_max_pool with respect to its input: grad_input is the sum of grad_output over the "
            "windows whose index names the element."
        ),
        parameters=(
            *_EXTENTS,
            Tensor("grad_output", "input", "T", _OUTPUT, "gradient of the maxima"),
            Tensor("indices", "input", "I", _OUTPUT, "the forward's"),
            Tensor("grad_input", "output", "T", _INPUT, "every element is written, also the zeros"),
        ),
        variants=_VARIANTS,
        empty="An empty grad_input: success, nothing to write. An empty grad_output: grad_input is 0.",
        bad_data=(
            "An index that no sample in [0, 1] gives its window contributes nothing: with a = n - k, b = m - 1 and r = "
            "1 + floor(a b / 2^20), window o of an axis may hold elements from floor((o a - r) / b) to floor((o a + r) "
            "/ b) + k, and an only one those from a on."
        ),
        workspace="On the CPU and for the 16-bit types an f32 copy of grad_input, else none.",
        determinism=BIT_STABLE + "An element owns its sum: its windows ascending in row-major order.",
        source=_SOURCE,
    ),
)  # fmt: skip
