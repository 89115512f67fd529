# SPDX-License-Identifier: Apache-2.0
"""Dequantization per channel and its gradient in float64, channel by channel.

For 8-bit values and zero points below 2^15 both products are exact in float64 for f16, bf16 and f32,
and are the single float64 operation itself for f64, so rounding them once gives the expected bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.sums import Array, in_float64


def dequantize_per_channel(input: Any, scale: Any, zero_point: Any, axis: int) -> Array:
    """(input - zero_point) * scale, with one scale and zero point for each index along ``axis``."""
    quantized, scales, zeros = in_float64(input), in_float64(scale), in_float64(zero_point)
    output = np.zeros(quantized.shape)
    with np.errstate(all="ignore"):
        for channel in range(quantized.shape[axis]):
            where = (slice(None),) * (axis % quantized.ndim) + (channel,)
            output[where] = (quantized[where] - zeros[channel]) * scales[channel]
    return output


def dequantize_per_channel_backward(grad_output: Any, scale: Any, axis: int) -> Array:
    """grad_output * scale of the channel."""
    gradient, scales = in_float64(grad_output), in_float64(scale)
    grad_input = np.zeros(gradient.shape)
    with np.errstate(all="ignore"):
        for channel in range(gradient.shape[axis]):
            where = (slice(None),) * (axis % gradient.ndim) + (channel,)
            grad_input[where] = gradient[where] * scales[channel]
    return grad_input
