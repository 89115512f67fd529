# SPDX-License-Identifier: Apache-2.0
"""How the weights of a sample's taps change with its position in grid_sample's linear modes: second derivatives.

Written for any framework with NumPy's names, which derives it further. A second derivative is made of samples of single
pixels, the taps, which are samples of mode nearest, and of these weights; no framework is named here, and no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

__all__ = ["TAP_RULE", "Interpolant"]

# The options of samples at the taps' positions.
TAP_RULE = ("nearest", "zeros", False)

# A pixel that no image has, and neither has its right neighbour.
_NOWHERE = -2.0


class _Axis(NamedTuple):
    """Samples on one axis: pixel `low` weighs 1 - fraction and the next one weighs fraction."""

    low: Any
    fraction: Any  # of the grid: what derives it finds `slope`
    slope: Any  # d(fraction) / d(coordinate); 0 where the sample does not move with it
    exists: Any  # whether either pixel does
    missing: Any  # whether there is no such place at all, and so no value: what NaN is


class Interpolant:
    """The taps of a grid's samples.

    Parameters
    ----------
    xp : module
        The framework's functions.
    grid : array, [N, ..., axes]
        In float32 or float64.
    extents : sequence of int
        Pixels on each axis of the images, depth or height first.
    padding_mode : {"zeros", "border", "reflection"}
    align_corners : bool
    """

    def __init__(self, xp: Any, grid: Any, extents: Sequence[int], padding_mode: str, align_corners: bool) -> None:
        self._xp = xp
        # The last axis comes first in a position.
        self._extents = tuple(reversed(extents))
        axes = [
            _axis(xp, grid[..., number], extent, padding_mode, align_corners)
            for number, extent in enumerate(self._extents)
        ]
        exists, self._missing = axes[0].exists, axes[0].missing
        for axis in axes[1:]:
            exists, self._missing = exists & axis.exists, self._missing | axis.missing
        # A sample without a tap has no derivative, whatever its other coordinates are.
        self._axes = [axis._replace(slope=xp.where(exists, axis.slope, 0.0)) for axis in axes]
        self.taps = tuple(product((0, 1), repeat=len(axes)))

    def positions(self, tap: Sequence[int]) -> Any:
        """Answer the grid of the pixels that a tap falls on, for samples by `TAP_RULE`."""
        centres = [
            (2 * (axis.low + side) + 1) / extent - 1
            for axis, side, extent in zip(self._axes, tap, self._extents, strict=True)
        ]
        return self._xp.stack(centres, -1)

    def slope(self, tap: Sequence[int], along: Any) -> Any:
        """Answer the derivative of a tap's weight along a direction of the grid."""
        steps = self._steps(tap)
        return sum(
            self._moved(along[..., number], step) * self._others(tap, {number}) for number, step in enumerate(steps)
        )

    def gradient_of_slope(self, tap: Sequence[int], along: Any) -> Any:
        """Answer the derivatives of `slope` by the grid. A weight is linear on each axis: only pairs of axes count."""
        steps = self._steps(tap)
        found = []
        for number, step in enumerate(steps):
            total = sum(
                self._moved(along[..., other], steps[other]) * self._others(tap, {number, other})
                for other in range(len(steps))
                if other != number
            )
            found.append(self._moved(total, step))
        return self._xp.stack(found, -1)

    def held(self, samples: Any) -> Any:
        """Answer samples [N, C, ...] with 0 where there is no such place, as their gradients know it."""
        return self._xp.where(self._missing[:, None], 0.0, samples)

    def settled(self, gradient: Any) -> Any:
        """Answer a gradient of the grid whose elements are 0 where nothing moves, also where a value is infinite."""
        slopes = self._xp.stack([axis.slope for axis in self._axes], -1)
        return self._xp.where(slopes == 0, 0.0, gradient)

    def _steps(self, tap: Sequence[int]) -> list[Any]:
        """Answer the derivative of a tap's weight on each axis by that coordinate."""
        return [axis.slope if side else -axis.slope for axis, side in zip(self._axes, tap, strict=True)]

    def _moved(self, along: Any, step: Any) -> Any:
        return self._xp.where(step == 0, 0.0, along * step)

    def _others(self, tap: Sequence[int], without: set[int]) -> Any:
        """Answer the product of a tap's weights on the axes but for some."""
        found: Any = 1.0
        for number, (axis, side) in enumerate(zip(self._axes, tap, strict=True)):
            if number not in without:
                found = found * (axis.fraction if side else 1 - axis.fraction)
        return found


def _axis(xp: Any, coordinate: Any, extent: int, padding_mode: str, align_corners: bool) -> _Axis:
    """Follow the kernels step by step; their comments say why."""
    last = extent - 1
    if align_corners:
        position = (coordinate + 1) / 2 * last
    else:
        position = ((coordinate + 1) * extent - 1) / 2
    slope = xp.zeros_like(coordinate) + (extent - int(align_corners)) / 2
    missing = coordinate != coordinate
    if padding_mode == "reflection":
        missing = missing | ~xp.isfinite(position)
    if padding_mode == "reflection":
        position, slope = _reflected(xp, position, slope, extent, align_corners)
    if padding_mode != "zeros":
        inside = (position > 0) & (position < last)
        slope = xp.where(inside, slope, 0.0)
        # What compares with NaN is false: it passes here, and ends below.
        position = xp.where(position <= 0, 0.0, xp.where(position >= last, float(last), position))
    low = xp.floor(position)
    exists = (low >= -1) & (low <= last)
    return _Axis(xp.where(exists, low, _NOWHERE), xp.where(exists, position - low, 0.0), slope, exists, missing)


def _reflected(xp: Any, position: Any, slope: Any, extent: int, align_corners: bool) -> tuple[Any, Any]:
    edge, span = (0.0, float(extent - 1)) if align_corners else (-0.5, float(extent))
    distance = position - edge
    if span == 0:
        # The one pixel's; a position that is NaN or infinite stays one.
        return xp.where(xp.isfinite(position), 0.0, position - position), xp.zeros_like(slope)
    slope = xp.where(distance < 0, -slope, slope)
    distance = xp.fmod(xp.where(distance < 0, -distance, distance), 2 * span)
    far = distance >= span
    return xp.where(far, 2 * span - distance, distance) + edge, xp.where(far, -slope, slope)
