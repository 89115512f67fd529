# SPDX-License-Identifier: Apache-2.0
"""Dequantization per channel and its gradient in float64.

For 8-bit values and zero points below 2^15 both products are exact in float64 for f16, bf16 and f32,
and are the single float64 operation itself for f64, so rounding them once gives the expected bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.bounds import Sum, exact
from verify.dtypes import Array, in_float64


def _along(per_channel: Any, axis: int, rank: int) -> Array:
    """One number a channel, so shaped that it broadcasts over the other axes."""
    return in_float64(per_channel).reshape([-1 if each == axis % rank else 1 for each in range(rank)])


def dequantize_per_channel(input: Any, scale: Any, zero_point: Any, axis: int) -> Sum:
    """(input - zero_point) * scale, with one scale and zero point for each index along ``axis``."""
    quantized = in_float64(input)
    scales, zeros = (_along(each, axis, quantized.ndim) for each in (scale, zero_point))
    with np.errstate(all="ignore"):
        return exact((quantized - zeros) * scales)


def dequantize_per_channel_backward(grad_output: Any, scale: Any, axis: int) -> Sum:
    """grad_output * scale of the channel."""
    gradient = in_float64(grad_output)
    with np.errstate(all="ignore"):
        return exact(gradient * _along(scale, axis, gradient.ndim))
