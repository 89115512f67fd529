# SPDX-License-Identifier: Apache-2.0
"""Maximum pooling with indices, by fixed and by adaptive windows, and its gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, INT32_MAX, Operator, Parameter, Scalar, Tensor, Variant, extent

_EXTENTS: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels"),
    extent("d", "input depth; 1 for pooling in two dimensions"),
    extent("h", "input height; 1 for pooling in one dimension"),
    extent("w", "input width"),
    extent("output_d", "windows along the depth"),
    extent("output_h", "windows along the height"),
    extent("output_w", "windows along the width"),
)
_AXES = ("d", "h", "w")
_WINDOWS: tuple[Parameter, ...] = (
    *(
        Scalar(f"kernel_{axis}", "i32", f"a window's places along {axis}; the three multiply to at most 2^31 - 1",
               low=1, high=INT32_MAX)
        for axis in _AXES
    ),
    *(Scalar(f"stride_{axis}", "i32", f"from one window to the next along {axis}", low=1, high=INT32_MAX)
      for axis in _AXES),
    *(
        Scalar(f"padding_{axis}", "i32",
               f"places beyond either end of {axis}, which never win; at most half of what a window spans, and {axis} "
               f"+ 2 padding_{axis} at most 2^31 - 1", low=0, high=2**30 - 1)
        for axis in _AXES
    ),
    *(Scalar(f"dilation_{axis}", "i32", f"from one place of a window to the next along {axis}", low=1, high=INT32_MAX)
      for axis in _AXES),
)  # fmt: skip
_INPUT = ("n", "c", "d", "h", "w")
_OUTPUT = ("n", "c", "output_d", "output_h", "output_w")
_VARIANTS = tuple(Variant(variant.token, {**variant.types, "I": "i64"}) for variant in FLOATS)
_FORWARD_TENSORS = (
    Tensor("input", "input", "T", _INPUT, "feature maps"),
    Tensor("output", "output", "T", _OUTPUT, "one maximum per window; -infinity for a window without elements"),
    Tensor(
        "indices", "output", "I", _OUTPUT,
        "(z h + y) w + x of the element of its plane that output holds; -1 for a window without elements",
    ),
)  # fmt: skip
_BACKWARD_TENSORS = (
    Tensor("grad_output", "input", "T", _OUTPUT, "gradient of the maxima"),
    Tensor("indices", "input", "I", _OUTPUT, "the forward's"),
    Tensor("grad_input", "output", "T", _INPUT, "every element is written, also the zeros"),
)
_EMPTY = "An empty output: success, nothing to write. An empty input: output is -infinity, indices -1."
_EMPTY_GRADIENT = "An empty grad_input: success, nothing to write. An empty grad_output: grad_input is 0."
_WINNER = (
    BIT_STABLE
    + "The first of equal elements in row-major order wins, and the last NaN before all of them; its bits are moved, a "
    "NaN's and a zero's sign too."
)
_SUMS = BIT_STABLE + "An element owns its sum: its windows ascending in row-major order."
_BAD_INDICES = "An index that lies outside of what its window spans contributes nothing."
_BACKWARD_WORKSPACE = "On the CPU and for the 16-bit types an f32 copy of grad_input, else none."

ORDER = 72
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="max_pool",
        family="max_pool",
        summary=(
            "Maxima over windows, and where they are: on each axis window o has the places o stride - padding + k "
            "dilation, k < kernel, that are in input. Every window must begin before the input's end: (output - 1) "
            "stride - padding < extent."
        ),
        parameters=(*_EXTENTS, *_WINDOWS, *_FORWARD_TENSORS),
        variants=_VARIANTS,
        empty=_EMPTY,
        bad_data="A NaN is larger than every number.",
        workspace="On the CPU at most 36 KiB, on CUDA none.",
        determinism=_WINNER,
        source="torch.nn.functional.max_pool1d, max_pool2d and max_pool3d (2.13).",
    ),
    Operator(
        name="max_pool_backward",
        family="max_pool",
        summary=(
            "Gradient of max_pool with respect to its input: grad_input is the sum of grad_output over the windows "
            "whose index names the element."
        ),
        parameters=(*_EXTENTS, *_WINDOWS, *_BACKWARD_TENSORS),
        variants=_VARIANTS,
        empty=_EMPTY_GRADIENT,
        bad_data=_BAD_INDICES,
        workspace=_BACKWARD_WORKSPACE,
        determinism=_SUMS,
        source="torch.nn.functional.max_pool1d, max_pool2d and max_pool3d (2.13).",
    ),
    Operator(
        name="adaptive_max_pool",
        family="max_pool",
        summary=(
            "Maxima over windows that divide the input, and where they are: on each axis window o of m has of n places "
            "those in [floor(o n / m), ceil((o + 1) n / m))."
        ),
        parameters=(*_EXTENTS, *_FORWARD_TENSORS),
        variants=_VARIANTS,
        empty=_EMPTY,
        bad_data="A NaN is larger than every number.",
        workspace="On the CPU at most 36 KiB, on CUDA none.",
        determinism=_WINNER,
        source="torch.nn.functional.adaptive_max_pool1d, adaptive_max_pool2d and adaptive_max_pool3d (2.13).",
    ),
    Operator(
        name="adaptive_max_pool_backward",
        family="max_pool",
        summary=(
            "Gradient of adaptive_max_pool with respect to its input: grad_input is the sum of grad_output over the "
            "windows whose index names the element."
        ),
        parameters=(*_EXTENTS, *_BACKWARD_TENSORS),
        variants=_VARIANTS,
        empty=_EMPTY_GRADIENT,
        bad_data=_BAD_INDICES,
        workspace=_BACKWARD_WORKSPACE,
        determinism=_SUMS,
        source="torch.nn.functional.adaptive_max_pool1d, adaptive_max_pool2d and adaptive_max_pool3d (2.13).",
    ),
)
