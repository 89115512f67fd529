# SPDX-License-Identifier: Apache-2.0
"""Finds the lost scales of an int8 copy of the photo by gradient descent through dequantize_per_channel.

The photo is cut into tiles; every tile and colour is a channel that was quantised to its own range. All scales start
equal. With scale = exp(t), the derivative of the loss by t is the sum over the channel of (q - zero point) times what
dequantize_per_channel_backward answers, gradient times scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import pybaracuda
from verify.definitions import dequantize as definitions
from verify.dtypes import DTYPES, Array

from .checks import Check, at_most
from .measure import Case, Input, Output
from .memory import Memory

_TILES = 8  # along each side: the photo's extents are multiples of 8
STEPS = 40
# Part of the way to the minimum of the channel's parabola that one step goes: small enough to watch.
_RATE = 0.25


@dataclass
class ScaleFit:
    """The int8 copy [channels, rows, columns], the best scales and the last, and root mean square errors.

    `rounding_error` is the error under the scales that the copy was made with.
    """

    quantized: Array
    zero_point: Array
    best_scale: Array
    scale: Array
    grad_output: Array
    before: Array
    after: Array
    errors: list[float] = field(default_factory=list)
    rounding_error: float = 0.0

    def checks(self) -> list[Check]:
        """The fit must reach the least squares, which are no worse than the scales that the copy was made with."""
        # A channel that is black all over says nothing about its scale.
        seen = (self.quantized != self.zero_point[:, None, None]).any(axis=(1, 2))
        off = float(np.abs(self.scale / self.best_scale - 1)[seen].max())
        left = self.errors[-1] / self.rounding_error
        return [
            at_most("int8 scales: error left, in parts of the first quantiser's", left, 1),
            at_most("int8 scales: farthest one off the least squares", 100 * off, 0.1, " %"),
        ]


def _channels(photo: Array) -> Array:
    """The photo's colours cut into tiles: [colours * tiles, rows, columns]."""
    colours, height, width = photo.shape
    rows, columns = height // _TILES, width // _TILES
    tiles = photo.reshape(colours, _TILES, rows, _TILES, columns).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(tiles).reshape(-1, rows, columns)


def _as_photo(channels: Array) -> Array:
    """The tiles put together again."""
    _, rows, columns = channels.shape
    tiles = channels.reshape(-1, _TILES, _TILES, rows, columns).transpose(0, 1, 3, 2, 4)
    return np.asarray(tiles.reshape(-1, _TILES * rows, _TILES * columns))


def _quantize(channels: Array) -> tuple[Array, Array, Array]:
    """int8 values, float32 scales and zero points; a channel's range is its own, from 0 so that black stays black."""
    scale = np.maximum(channels.max(axis=(1, 2)) / np.float32(255), np.float32(1e-6))
    zero_point = np.full(scale.shape, -128, np.int32)
    quantized = np.clip(np.rint(channels / scale[:, None, None]) + zero_point[:, None, None], -128, 127)
    return quantized.astype(np.int8), scale, zero_point


def run(photo: Array, memory: Memory, step: Callable[[], None]) -> ScaleFit:
    """Fit the scales and say how the error fell."""
    target = _channels(photo)
    quantized, true_scale, zero_point = _quantize(target)
    steps = quantized.astype(np.float32) - zero_point[:, None, None]
    placed, zeros = memory.put(quantized), memory.put(zero_point)
    # One scale for all channels, the mean of the true ones on a logarithmic axis.
    first = np.full_like(true_scale, math.exp(float(np.log(true_scale).mean())))
    logarithm = np.log(first.astype(np.float64))
    curvature = (steps.astype(np.float64) ** 2).sum(axis=(1, 2))  # of the loss by the scale

    def picture(scale: Array) -> Array:
        return memory.get(pybaracuda.dequantize_per_channel(placed, memory.put(scale), zeros, 0))

    errors: list[float] = []
    before = difference = picture(first)
    scale = first
    for _ in range(STEPS):
        difference = picture(scale) - target
        errors.append(_root_mean_square(difference))
        arriving = pybaracuda.dequantize_per_channel_backward(memory.put(difference), memory.put(scale), 0)
        gradient = (memory.get(arriving).astype(np.float64) * steps).sum(axis=(1, 2))
        logarithm -= _RATE * gradient / np.maximum(curvature * scale.astype(np.float64) ** 2, 1e-30)
        scale = np.exp(logarithm).astype(np.float32)
        step()
    after = picture(scale)
    errors.append(_root_mean_square(after - target))
    return ScaleFit(
        quantized=quantized,
        zero_point=zero_point,
        best_scale=(steps * target).sum(axis=(1, 2), dtype=np.float64) / np.maximum(curvature, 1),
        scale=scale,
        grad_output=difference,
        before=_as_photo(before),
        after=_as_photo(after),
        errors=errors,
        rounding_error=_root_mean_square(steps * true_scale[:, None, None] - target),
    )


def _root_mean_square(values: Array) -> float:
    return math.sqrt(float(np.mean(values.astype(np.float64) ** 2)))


def cases(job: ScaleFit, dtype: str) -> list[Case]:
    """Both operators on the job's arrays but for the zero points."""
    number = DTYPES[dtype]
    # Other zero points than the job's, which are all one number: a channel that takes another's would be seen.
    quantized, zero_point = job.quantized, np.arange(len(job.quantized), dtype=np.int32) % 256 - 128
    scale, grad_output = job.scale.astype(number), job.grad_output.astype(number)
    channels, *tile = quantized.shape
    shape = " x ".join(["{n}", *map(str, tile)])
    return [
        Case(
            "dequantize_per_channel",
            dtype,
            shape,
            channels,
            (Input(quantized, 0), Input(scale, 0), Input(zero_point, 0)),
            (Output(quantized.shape, number, 0),),
            lambda q, scale, zero, out: pybaracuda.dequantize_per_channel(q, scale, zero, 0, out=out),
            lambda: (definitions.dequantize_per_channel(quantized, scale, zero_point, 0),),
        ),
        Case(
            "dequantize_per_channel_backward",
            dtype,
            shape,
            channels,
            (Input(grad_output, 0), Input(scale, 0)),
            (Output(quantized.shape, number, 0),),
            lambda gradient, scale, out: pybaracuda.dequantize_per_channel_backward(gradient, scale, 0, out=out),
            lambda: (definitions.dequantize_per_channel_backward(grad_output, scale, 0),),
        ),
    ]
