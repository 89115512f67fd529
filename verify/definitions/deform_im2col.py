# SPDX-License-Identifier: Apache-2.0
"""The sampling of deformable convolution, its adjoint, and its gradients by offset and mask, corner by corner.

Sources: Dai et al., Deformable Convolutional Networks, 2017; Zhu et al., Deformable ConvNets v2, 2019; torchvision's
deform_conv2d, whose layouts these are. A sample that has no place, because an offset is NaN, is 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from verify.bounds import Roundings, Sum
from verify.definitions.sums import Accumulator
from verify.dtypes import Array, in_float64

# 1 - fraction on two axes, the product of two weights, that with the mask, and the product with the value.
COLUMNS = Roundings(1, 5)
# The same 5, and the last partial sum: the terms pay for the others.
INPUT = Roundings(1, 6)
# A channel's corners are added first, which is an addition more for each of up to four of them; then 1 - fraction on
# two axes, their product, those with the value, with the gradient and with the mask, and the last partial sum.
OFFSET = Roundings(1, 7 + 4)


class Window(NamedTuple):
    """How the kernel lies on the image, in y and in x."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)


class _Corner(NamedTuple):
    """One corner of every sample [N, G, taps, OH, OW]; numbers are float64."""

    pixel: Array  # int64, in its image; any value where it does not exist
    weight: Array
    by_y: Array  # the weight's derivatives
    by_x: Array
    exists: Array  # within the image, and of a weight that is not 0 in the coordinates' own dtype
    slopes: tuple[Array, Array]  # the same of the derivatives

    def reshaped(self, shape: tuple[int, ...]) -> _Corner:
        """The same with the taps of a kernel as one axis."""
        pixel, weight, by_y, by_x, exists = (part.reshape(shape) for part in self[:5])
        return _Corner(pixel, weight, by_y, by_x, exists, (self[5][0].reshape(shape), self[5][1].reshape(shape)))


class _Axis(NamedTuple):
    """One of two pixels beside every sample on one axis."""

    pixel: Array
    weight: Array  # in the coordinates' own dtype
    slope: int
    exists: Array


def _axis(moved: Array, tap: Array, position: Array, window: tuple[int, int, int], extent: int) -> list[_Axis]:
    """The two pixels beside tap * dilation + position * stride - padding + moved, rounded twice."""
    stride, padding, dilation = window
    place = (position.astype(np.int64) * stride - padding + tap.astype(np.int64) * dilation).astype(moved.dtype)
    at = place + moved
    low = np.floor(at)
    fraction = at - low
    found = []
    for pixel, weight, slope in ((low, moved.dtype.type(1) - fraction, -1), (low + moved.dtype.type(1), fraction, 1)):
        inside = (low >= -1) & (low < extent) & (pixel >= 0) & (pixel < extent)  # false for NaN
        found.append(_Axis(np.where(inside, pixel, 0).astype(np.int64), weight, slope, inside))
    return found


def _corners(offset: Any, window: Window, size: tuple[int, int], coordinate_dtype: Any) -> list[_Corner]:
    """The four corners, y before x."""
    moved = np.asarray(offset).astype(coordinate_dtype)
    n, channels, oh, ow = moved.shape
    kh, kw = window.kernel_size
    moved = moved.reshape(n, channels // (2 * kh * kw), kh, kw, 2, oh, ow)
    shape = (*moved.shape[:4], oh, ow)
    _, _, tap_y, tap_x, y, x = np.indices(shape, sparse=True)
    rules = list(zip(window.stride, window.padding, window.dilation, strict=True))
    corners = []
    with np.errstate(all="ignore"):
        down = _axis(moved[:, :, :, :, 0], tap_y, y, rules[0], size[0])
        across = _axis(moved[:, :, :, :, 1], tap_x, x, rules[1], size[1])
        for row in down:
            for column in across:
                inside = row.exists & column.exists
                wide_y, wide_x = row.weight.astype(np.float64), column.weight.astype(np.float64)
                corner = _Corner(
                    row.pixel * size[1] + column.pixel,
                    wide_y * wide_x,
                    row.slope * wide_x,
                    column.slope * wide_y,
                    inside & (row.weight * column.weight != 0),
                    (inside & (wide_x != 0), inside & (wide_y != 0)),
                )
                corners.append(corner.reshaped((*shape[:2], kh * kw, oh, ow)))
    return corners


def _masks(mask: Any, corner: _Corner, coordinate_dtype: Any) -> tuple[Array, Array]:
    """The mask [N, G, taps, OH, OW] in float64, ones without one, and where a corner's weight times it is not 0."""
    if mask is None:
        return np.ones(corner.weight.shape), corner.exists
    given = np.asarray(mask).astype(coordinate_dtype).reshape(corner.weight.shape)
    with np.errstate(all="ignore"):
        return given.astype(np.float64), corner.exists & (corner.weight.astype(coordinate_dtype) * given != 0)


def _by_group(image: Any, groups: int) -> Array:
    """[N, C, ...] as [N G, C / G, the rest]."""
    wide = in_float64(image)
    n, c = wide.shape[:2]
    return wide.reshape(n * groups, c // max(groups, 1), -1)


def _samples(corner: _Corner, taken: Array) -> tuple[Array, Array, Array]:
    """The group and the number in its group of each sample, and the pixel of its corner."""
    samples = max(int(np.prod(corner.weight.shape[2:])), 1)
    (flat,) = np.nonzero(taken.ravel())
    return flat // samples, flat % samples, corner.pixel.ravel()[flat]


def deform_im2col(input: Any, offset: Any, window: Window, mask: Any = None, coordinate_dtype: Any = np.float64) -> Sum:
    """[N, C kh kw, OH OW] from input [N, C, H, W], offset [N, G kh kw 2, OH, OW] and mask [N, G kh kw, OH, OW]."""
    n, c, h, w = np.shape(input)
    corners = _corners(offset, window, (h, w), coordinate_dtype)
    _, groups, taps, oh, ow = corners[0].weight.shape
    pixels, samples = _by_group(input, groups), taps * oh * ow
    total = Accumulator(n * groups * samples, pixels.shape[1])
    with np.errstate(all="ignore"):
        for corner in corners:
            factor, exists = _masks(mask, corner, coordinate_dtype)
            group, sample, pixel = _samples(corner, exists)
            weight = (corner.weight * factor)[exists]
            total.add(group * samples + sample, weight[:, None] * pixels[group, :, pixel])
    per_group = (n, groups, samples, pixels.shape[1])
    shape = (n, c * taps, oh * ow)
    return total.result(COLUMNS).map(lambda part: np.moveaxis(part.reshape(per_group), 3, 2).reshape(shape))


def deform_im2col_backward(
    grad_columns: Any,
    offset: Any,
    input_shape: tuple[int, int, int, int],
    window: Window,
    mask: Any = None,
    coordinate_dtype: Any = np.float64,
) -> Sum:
    """The gradient with respect to the input."""
    n, c, h, w = input_shape
    corners = _corners(offset, window, (h, w), coordinate_dtype)
    groups = corners[0].weight.shape[1]
    gradients = _by_group(np.reshape(grad_columns, (n, c, -1)), groups)
    total = Accumulator(n * groups * h * w, gradients.shape[1])
    with np.errstate(all="ignore"):
        for corner in corners:
            factor, exists = _masks(mask, corner, coordinate_dtype)
            group, sample, pixel = _samples(corner, exists)
            weight = (corner.weight * factor)[exists]
            total.add(group * h * w + pixel, weight[:, None] * gradients[group, :, sample])
    per_group = (n, groups, h * w, gradients.shape[1])
    return total.result(INPUT).map(lambda part: np.moveaxis(part.reshape(per_group), 3, 2).reshape(input_shape))


def deform_im2col_offset_backward(
    grad_columns: Any, input: Any, offset: Any, window: Window, mask: Any = None, coordinate_dtype: Any = np.float64
) -> tuple[Sum, Sum]:
    """The gradients with respect to the offsets and to the mask, also where there is none."""
    n, c, h, w = np.shape(input)
    corners = _corners(offset, window, (h, w), coordinate_dtype)
    shape = corners[0].weight.shape
    _, groups, taps, oh, ow = shape
    samples = taps * oh * ow
    pixels = _by_group(input, groups)
    gradients = _by_group(np.reshape(grad_columns, (n, c, -1)), groups)
    channels = pixels.shape[1]
    sums = [Accumulator(n * groups * samples, 1) for _ in range(3)]
    with np.errstate(all="ignore"):
        for corner in corners:
            parts = (
                (corner.weight, corner.exists),
                (corner.by_y, corner.slopes[0]),
                (corner.by_x, corner.slopes[1]),
            )
            for total, (weight, exists) in zip(sums, parts, strict=True):
                group, sample, pixel = _samples(corner, exists)
                terms = gradients[group, :, sample] * pixels[group, :, pixel] * weight[exists][:, None]
                total.add(np.repeat(group * samples + sample, channels), terms.reshape(-1, 1))
        factor = _masks(mask, corners[0], coordinate_dtype)[0].ravel()
        by_axis = []
        for total in sums[1:]:
            value, magnitude, terms = (part[:, 0] for part in total.parts)
            is_none = (factor == 0) | (terms == 0)
            by_axis.append(
                (
                    np.where(is_none, 0, factor * value),
                    np.where(is_none, 0, np.abs(factor) * magnitude),
                    terms,
                )
            )
    whole = [np.stack([part.reshape(shape) for part in pair], axis=3) for pair in zip(*by_axis, strict=True)]
    by_offset = Sum.of((whole[0], whole[1], whole[2]), OFFSET).map(lambda part: part.reshape(np.shape(offset)))
    by_mask = sums[0].result(OFFSET).map(lambda part: part.reshape(n, groups * taps, oh, ow))
    return by_offset, by_mask
