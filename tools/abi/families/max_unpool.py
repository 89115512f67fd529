# SPDX-License-Identifier: Apache-2.0
"""Maximum unpooling and its gradient, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, Operator, Parameter, Tensor, Variant, extent

_EXTENTS: tuple[Parameter, ...] = (
    extent("n", "images in the batch"),
    extent("c", "channels"),
    extent("d", "maxima along the depth; 1 for unpooling in two dimensions"),
    extent("h", "maxima along the height; 1 for unpooling in one dimension"),
    extent("w", "maxima along the width"),
    extent("output_d", "output depth"),
    extent("output_h", "output height"),
    extent("output_w", "output width"),
)
_INPUT = ("n", "c", "d", "h", "w")
_OUTPUT = ("n", "c", "output_d", "output_h", "output_w")
_VARIANTS = tuple(Variant(variant.token, {**variant.types, "I": "i64"}) for variant in FLOATS)
_BAD_INDICES = "An index that is negative or not less than output_d output_h output_w"
_SOURCE = "torch.nn.functional.max_unpool1d, max_unpool2d and max_unpool3d (2.13)."

ORDER = 73
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="max_unpool",
        family="max_unpool",
        summary=(
            "Puts each element where its index says in its plane of output, whose other elements are 0. Of several "
            "with one index the last in row-major order stays."
        ),
        parameters=(
            *_EXTENTS,
            Tensor("input", "input", "T", _INPUT, "what max_pool answered, or anything of that shape"),
            Tensor("indices", "input", "I", _INPUT, "(z output_h + y) output_w + x of the element's place"),
            Tensor("output", "output", "T", _OUTPUT, "every element is written, also the zeros"),
        ),
        variants=_VARIANTS,
        empty="An empty output: success, nothing to write. An empty input: output is 0.",
        bad_data=_BAD_INDICES + " is dropped with its element.",
        workspace="On the CPU none, on CUDA at most 8 bytes for each element of output, and 15 more.",
        determinism=BIT_STABLE + "Bits are moved, a NaN's and a zero's sign too.",
        source=_SOURCE,
    ),
    Operator(
        name="max_unpool_backward",
        family="max_unpool",
        summary=(
            "Gradient of max_unpool with respect to its input: every element takes that of its place in grad_output, "
            "those that did not stay too."
        ),
        parameters=(
            *_EXTENTS,
            Tensor("grad_output", "input", "T", _OUTPUT, "gradient of the output"),
            Tensor("indices", "input", "I", _INPUT, "the forward's"),
            Tensor("grad_input", "output", "T", _INPUT, "every element is written"),
        ),
        variants=_VARIANTS,
        empty="An empty grad_input: success, nothing to write. An empty grad_output: grad_input is 0.",
        bad_data=_BAD_INDICES + " has the gradient 0.",
        workspace="None.",
        determinism=BIT_STABLE + "Bits are moved.",
        source=_SOURCE,
    ),
)
