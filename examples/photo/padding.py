# SPDX-License-Identifier: Apache-2.0
"""Puts the photo on a white card, cropping one side, and sends the gradient of the card's roughness back to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import pybaracuda
from verify.bounds import exact
from verify.definitions import pad as definitions
from verify.dtypes import DTYPES, Array

from .checks import Check, equal
from .measure import Case, Input, Output
from .memory import Memory

VALUE = 1.0
# Parts of the photo's height by which the card is larger at the top, left, bottom and right; a negative part crops.
_TOP, _LEFT, _BOTTOM, _RIGHT = 0.05, 0.05, 0.18, -0.06


@dataclass
class Padding:
    """The padded photo, the gradient that arrives at it, and what of that reaches the photo."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    padded: Array
    grad_output: Array
    gradient: Array

    def checks(self) -> list[Check]:
        """The gradient is a copy: its bits are those of the part of grad_output that the photo was moved to."""
        expected = definitions.pad_backward(self.grad_output, self.low, self.high).value
        wrong = int((self.gradient.astype(np.float64) != expected).sum())
        return [equal("pad: elements of the gradient that are not a plain copy", wrong, 0)]


def _roughness_gradient(planes: Array) -> Array:
    """Gradient of half the sum of the squared differences between neighbours."""
    gradient = np.zeros_like(planes)
    for axis in (1, 2):
        difference = np.diff(planes, axis=axis)
        gradient -= np.diff(difference, axis=axis, prepend=0, append=0)
    return gradient


def run(photo: Array, memory: Memory) -> Padding:
    """Pad, measure the roughness, go back."""
    height = photo.shape[1]
    low = (0, round(_TOP * height), round(_LEFT * height))
    high = (0, round(_BOTTOM * height), round(_RIGHT * height))
    padded = memory.get(pybaracuda.pad(memory.put(photo), low, high, "constant", VALUE))
    grad_output = _roughness_gradient(padded)
    gradient = memory.get(pybaracuda.pad_backward(memory.put(grad_output), low, high))
    return Padding(low, high, padded, grad_output, gradient)


def cases(job: Padding, photo: Array, dtype: str) -> list[Case]:
    """Every operator on the job's arrays: `pad_ex` as the job has it, the modes with what is cut off added instead."""
    added = tuple(map(abs, job.high))
    found = []
    for mode in definitions.MODES:
        found += _both(f"pad_{mode}", mode, job.low, added, photo, dtype)
    return found + _both("pad_ex", "constant", job.low, job.high, photo, dtype)


def _both(
    operator: str, mode: str, low: tuple[int, ...], high: tuple[int, ...], photo: Array, dtype: str
) -> list[Case]:
    """Both directions of one operator."""
    number = DTYPES[dtype]
    image = photo.astype(number)
    grad_output = _roughness_gradient(pybaracuda.pad(photo, low, high, mode, VALUE)).astype(number)
    (channels, *inner), (_, *outer) = image.shape, grad_output.shape
    shape = " to ".join(" x ".join(["{n}", *map(str, extents)]) for extents in (inner, outer))
    kept = math.prod(n + min(a, 0) + min(b, 0) for n, a, b in zip(image.shape, low, high, strict=True))
    used = kept if mode == "constant" else grad_output.size
    return [
        Case(
            operator,
            dtype,
            shape,
            channels,
            (Input(image, 0, kept / image.size),),
            (Output(grad_output.shape, number, 0),),
            lambda image, out: pybaracuda.pad(image, low, high, mode, VALUE, out=out),
            lambda: (exact(definitions.pad(image, low, high, mode, VALUE)),),
        ),
        Case(
            f"{operator}_backward",
            dtype,
            shape,
            channels,
            (Input(grad_output, 0, used / grad_output.size),),
            (Output(image.shape, number, 0),),
            lambda gradient, out: pybaracuda.pad_backward(gradient, low, high, mode, out=out),
            lambda: (definitions.pad_backward(grad_output, low, high, mode),),
        ),
    ]
