# SPDX-License-Identifier: Apache-2.0
"""dequantize_per_channel and its gradient, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, HostArray, Operator, Parameter, Scalar, Tensor, Variant

_PAIRS = tuple(
    Variant(f"{token}_{quantized}", {"T": token, "Q": quantized})
    for token in ("f32", "f16", "bf16", "f64")
    for quantized in ("s8", "u8")
)
_CHANNEL_SCALARS: tuple[Parameter, ...] = (
    Scalar("numel", "i64", "elements; the product of shape", low=0),
    HostArray("shape", "i32", "4", "extents, outermost first, lower ranks padded with 1", low=0),
    Scalar("axis", "i32", "the channel axis within shape", low=0, high=3),
)

ORDER = 60
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="dequantize_per_channel",
        family="dequantize",
        summary="output = (input - zero_point[channel]) * scale[channel], one multiplication, one rounding.",
        parameters=(
            *_CHANNEL_SCALARS,
            Tensor("input", "input", "Q", ("shape",), "quantized values"),
            Tensor("scale", "input", "T", ("shape[axis]",), "scale of each channel"),
            Tensor("zero_point", "input", "i32", ("shape[axis]",), "zero point of each channel"),
            Tensor("output", "output", "T", ("shape",), "every element is written"),
        ),
        variants=_PAIRS,
        empty="No elements: success, nothing to write.",
        bad_data="scale and zero_point are data: NaN, infinity and zero pass through.",
        workspace="None.",
        determinism=BIT_STABLE,
        source="ONNX DequantizeLinear (opset 21), axis form; torch.dequantize of a per-channel tensor.",
    ),
    Operator(
        name="dequantize_per_channel_backward",
        family="dequantize",
        summary="Gradient of dequantize_per_channel with respect to its input: grad_output * scale[channel].",
        parameters=(
            *_CHANNEL_SCALARS,
            Tensor("scale", "input", "T", ("shape[axis]",), "scale of each channel"),
            Tensor("grad_output", "input", "T", ("shape",), "gradient of the dequantized values"),
            Tensor("grad_input", "output", "T", ("shape",), "every element is written"),
        ),
        variants=FLOATS,
        empty="No elements: success, nothing to write.",
        bad_data="scale is data: NaN, infinity and zero pass through.",
        workspace="None.",
        determinism=BIT_STABLE,
        source="ONNX DequantizeLinear (opset 21), axis form; its derivative.",
        overlap="grad_input may be grad_output itself; status 2 if it shares an element otherwise.",
    ),
)
