# SPDX-License-Identifier: Apache-2.0
"""Average pooling, by fixed and by adaptive windows, and its gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, INT32_MAX, Operator, Parameter, Scalar, Tensor, extent

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
        Scalar(f"kernel_{axis}", "i32", f"a window's extent along {axis}; the three multiply to at most 2^31 - 1",
               low=1, high=INT32_MAX)
        for axis in _AXES
    ),
    *(Scalar(f"stride_{axis}", "i32", f"from one window to the next along {axis}", low=1, high=INT32_MAX)
      for axis in _AXES),
    *(
        Scalar(f"padding_{axis}", "i32",
               f"zeros on either side along {axis}; at most kernel_{axis} / 2, and {axis} + 2 padding_{axis} at most "
               "2^31 - 1", low=0, high=2**30 - 1)
        for axis in _AXES
    ),
    Scalar("count_include_pad", "i32", "1: the divisor counts padding; 0: elements of input alone", low=0, high=1),
    Scalar("divisor_override", "i64", "the divisor of every window, of any sign; 0: what the window counts"),
)  # fmt: skip
_INPUT = ("n", "c", "d", "h", "w")
_OUTPUT = ("n", "c", "output_d", "output_h", "output_w")
_FORWARD_TENSORS = (
    Tensor("input", "input", "T", _INPUT, "feature maps"),
    Tensor("output", "output", "T", _OUTPUT, "one mean per window"),
)
_BACKWARD_TENSORS = (
    Tensor("grad_output", "input", "T", _OUTPUT, "gradient of the means"),
    Tensor("grad_input", "output", "T", _INPUT, "every element is written, also the zeros"),
)
_EMPTY = "An empty output: success, nothing to write. An empty input: output is 0."
_EMPTY_GRADIENT = "An empty grad_input: success, nothing to write. An empty grad_output: grad_input is 0."
_BAD_DATA = "NaN and infinity pass through."
_FORWARD_ORDER = (
    "First a window's elements are added along d, then those sums along h, then those along w, each list ascending "
    "and, of more than 256, in partial sums of 256, added ascending; then comes the division."
)
_BACKWARD_ORDER = (
    "An element owns its sum of the quotients of the windows that hold it: first along d, then those sums along h, "
    "then those along w, each list ascending and, of more than 256, in partial sums of 256, added ascending."
)

ORDER = 71
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="avg_pool",
        family="avg_pool",
        summary=(
            "Means over windows: on each axis window o has the places [o stride - padding, o stride - padding + kernel)"
            "; output is the sum of those in input, divided by divisor_override or else by how many they are: of those "
            "in the padded input, with count_include_pad = 0 of those in input. Every window must begin before the "
            "input's end: (output - 1) stride - padding < extent."
        ),
        parameters=(*_EXTENTS, *_WINDOWS, *_FORWARD_TENSORS),
        variants=FLOATS,
        empty=_EMPTY,
        bad_data=_BAD_DATA,
        workspace="On the CPU at most 132 KiB, on CUDA none.",
        determinism=BIT_STABLE + _FORWARD_ORDER,
        source="torch.nn.functional.avg_pool1d, avg_pool2d and avg_pool3d (2.13).",
    ),
    Operator(
        name="avg_pool_backward",
        family="avg_pool",
        summary=(
            "Gradient of avg_pool with respect to its input: grad_input is the sum, over the windows that hold the "
            "element, of grad_output divided by the window's divisor."
        ),
        parameters=(*_EXTENTS, *_WINDOWS, *_BACKWARD_TENSORS),
        variants=FLOATS,
        empty=_EMPTY_GRADIENT,
        bad_data=_BAD_DATA,
        workspace="On the CPU at most 132 KiB, on CUDA none.",
        determinism=BIT_STABLE + _BACKWARD_ORDER,
        source="torch.nn.functional.avg_pool1d, avg_pool2d and avg_pool3d (2.13).",
    ),
    Operator(
        name="adaptive_avg_pool",
        family="avg_pool",
        summary=(
            "Means over windows that divide the input: on each axis window o of m has of n places those in "
            "[floor(o n / m), ceil((o + 1) n / m)); output is their sum, divided by how many they are."
        ),
        parameters=(*_EXTENTS, *_FORWARD_TENSORS),
        variants=FLOATS,
        empty=_EMPTY,
        bad_data=_BAD_DATA,
        workspace="On the CPU at most 132 KiB, on CUDA none.",
        determinism=BIT_STABLE + _FORWARD_ORDER,
        source="torch.nn.functional.adaptive_avg_pool1d, adaptive_avg_pool2d and adaptive_avg_pool3d (2.13).",
    ),
    Operator(
        name="adaptive_avg_pool_backward",
        family="avg_pool",
        summary=(
            "Gradient of adaptive_avg_pool with respect to its input: grad_input is the sum, over the windows that "
            "hold the element, of grad_output divided by how many places the window has."
        ),
        parameters=(*_EXTENTS, *_BACKWARD_TENSORS),
        variants=FLOATS,
        empty=_EMPTY_GRADIENT,
        bad_data=_BAD_DATA,
        workspace="On the CPU at most 132 KiB, on CUDA none.",
        determinism=BIT_STABLE + _BACKWARD_ORDER,
        source="torch.nn.functional.adaptive_avg_pool1d, adaptive_avg_pool2d and adaptive_avg_pool3d (2.13).",
    ),
)
