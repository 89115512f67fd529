# SPDX-License-Identifier: Apache-2.0
"""The windows of pooling as callers write them, and as the C functions take them; no operator is named here."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from . import _call
from ._errors import InvalidProblemError, shown

__all__ = [
    "Windows",
    "adaptive_bins",
    "axes_of",
    "extent_fields",
    "extents_of",
    "kernel_fields",
    "whole_numbers",
    "windows_of",
]

_AXES = ("d", "h", "w")
_MOST_AXES = len(_AXES)
# C takes 32 bits.
_END = 2**31


class Windows(NamedTuple):
    """Fixed windows over the last axes: of each axis its kernel, stride, padding and dilation."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool

    @property
    def axes(self) -> int:
        """How many axes are pooled."""
        return len(self.kernel)

    def bins(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Answer how many windows there are along each axis of an input."""
        lowest = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
        for (name, low), numbers in zip(lowest.items(), self[:4], strict=True):
            if not low <= min(numbers) <= max(numbers) < _END:
                raise InvalidProblemError(f"{name} is {shown(numbers)}; wanted {low}..{_END - 1}")
        return tuple(
            _bins(*each, self.ceil_mode)
            for each in zip(shape[-self.axes :], self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )

    def fields(self, extents: tuple[int, ...], bins: tuple[int, ...]) -> dict[str, int]:
        """Answer a descriptor's fields from `n` to `padding_w`."""
        return {
            **extent_fields(extents, bins),
            **kernel_fields(self.kernel),
            **_by_axis("stride", self.stride, 1),
            **_by_axis("padding", self.padding, 0),
        }

    def dilated_fields(self, extents: tuple[int, ...], bins: tuple[int, ...]) -> dict[str, int]:
        """Answer a descriptor's fields from `n` to `dilation_w`."""
        return {**self.fields(extents, bins), **_by_axis("dilation", self.dilation, 1)}


def _by_axis(name: str, numbers: tuple[int, ...], other: int) -> dict[str, int]:
    """Answer a field for each axis; `other` is for those that are not pooled."""
    three = (*(other,) * (len(_AXES) - len(numbers)), *numbers)
    return {f"{name}_{axis}": number for axis, number in zip(_AXES, three, strict=True)}


def extent_fields(extents: tuple[int, ...], bins: tuple[int, ...]) -> dict[str, int]:
    """Answer a descriptor's fields from `n` to `output_w`."""
    return {**dict(zip(("n", "c", *_AXES), extents, strict=True)), **_by_axis("output", bins, 1)}


def kernel_fields(kernel: tuple[int, ...]) -> dict[str, int]:
    """Answer a descriptor's fields from `kernel_d` to `kernel_w`."""
    return _by_axis("kernel", kernel, 1)


def _bins(extent: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Answer how many windows there are along an axis, as torch counts them."""
    rest = extent + 2 * padding - dilation * (kernel - 1) - 1
    bins = (rest + stride - 1 if ceil_mode else rest) // stride + 1
    # The last one must begin in the input or in the padding before it.
    if ceil_mode and (bins - 1) * stride >= extent + padding:
        bins -= 1
    return max(bins, 0)


def axes_of(name: str, value: Any, shape: tuple[int, ...], axes: int | None = None) -> tuple[Any, ...]:
    """Answer an argument's number, or None, for each pooled axis; one for all of them is repeated."""
    if axes is not None:
        axes = _call.whole("axes", axes)
        if not 1 <= axes <= _MOST_AXES:
            raise ValueError(f"axes is {axes}; wanted 1, 2 or 3")
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        numbers = tuple(None if each is None else _call.whole(name, each) for each in value)
        if axes is not None and len(numbers) == 1:
            return numbers * axes
        if len(numbers) not in range(1, _MOST_AXES + 1) or (axes is not None and len(numbers) != axes):
            wanted = "1 to 3" if axes is None else f"{axes}, as axes or kernel_size says"
            raise ValueError(f"{name} has {len(numbers)} entries; wanted {wanted}")
        return numbers
    number = None if value is None else _call.whole(name, value)
    pooled = len(shape) - 2 if axes is None else axes
    if not 1 <= pooled <= _MOST_AXES:
        raise ValueError(f"the input has shape {shape}; wanted 3 to 5 axes where {name} is one number and axes is None")
    return (number,) * pooled


def windows_of(
    shape: tuple[int, ...],
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any,
    axes: int | None,
) -> Windows:
    """Read the arguments that say which windows there are."""
    kernel = axes_of("kernel_size", kernel_size, shape, axes)
    pooled = len(kernel)
    return Windows(
        whole_numbers("kernel_size", kernel),
        whole_numbers("stride", kernel if stride is None else axes_of("stride", stride, shape, pooled)),
        whole_numbers("padding", axes_of("padding", padding, shape, pooled)),
        whole_numbers("dilation", axes_of("dilation", dilation, shape, pooled)),
        _call.flag("ceil_mode", ceil_mode),
    )


def whole_numbers(name: str, numbers: tuple[int | None, ...]) -> tuple[int, ...]:
    """Answer the numbers, none of which may be None."""
    if None in numbers:
        raise TypeError(f"{name}: wanted an int, got None")
    return tuple(number for number in numbers if number is not None)


def adaptive_bins(shape: tuple[int, ...], output_size: tuple[int | None, ...]) -> tuple[int, ...]:
    """Answer how many windows there are along each axis; None is as many as there are elements."""
    last = shape[-len(output_size) :]
    return tuple(extent if size is None else size for extent, size in zip(last, output_size, strict=True))


def extents_of(name: str, shape: tuple[int, ...], axes: int) -> tuple[int, ...]:
    """Answer `n`, `c`, `d`, `h` and `w`; axes before the channels are images, and need not be there."""
    if len(shape) < axes + 1:
        raise ValueError(f"{name} has shape {shape}; wanted channels and {axes} more axes, after any others")
    *images, channels = shape[:-axes]
    return (prod(images), channels, *(1,) * (_MOST_AXES - axes), *shape[-axes:])
