# SPDX-License-Identifier: Apache-2.0
"""Float64 definitions that results of the demo and the benchmark are held against; NumPy only, nothing of the library
may be imported.

Each walks samples or rows and scatters, where the kernels gather, so that the two cannot share a mistake. Sampling
positions are formed in the coordinates' own dtype, step by step as the header states them, because floor() and the
border tests hang on their last bit; everything after a position is float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Half the distance from 1 to the next number, and the smallest positive number, of every float type by its name.
_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}


class Expected(NamedTuple):
    """What an output must be: a float64 value per element, and what bounds the error of a correct kernel.

    `magnitude` is the sum of the terms' absolute values; `roundings` is how many roundings can stand between a term and
    the result, None where the result must be the value itself rounded once.
    """

    value: Array
    magnitude: Array | None = None
    roundings: Array | int | None = None

    def bound(self, dtype: Any) -> Array:
        """Largest error that a correct kernel can make: n u / (1 - n u) of the magnitude (Higham 2002, lemma 3.1)."""
        name = np.dtype(dtype).name
        if self.roundings is None or self.magnitude is None:
            return np.zeros(self.value.shape)
        wide = "float64" if name == "float64" else "float32"  # 16-bit types are summed in float32
        bound = np.zeros(self.value.shape)
        for unit in (_UNIT[wide], _UNIT["float64"]):  # the kernel's sum, and the one here
            bound = bound + self.roundings * unit / (1 - self.roundings * unit) * self.magnitude
        bound = bound + self.roundings * _SMALLEST[wide]
        if name != wide:  # one more rounding, at the store
            bound = bound + _UNIT[name] * (np.abs(self.value) + bound) + _SMALLEST[name]
        return bound

    def rounded(self, dtype: Any) -> Array:
        """The value as float64, rounded to `dtype` where the result must be exact."""
        if self.roundings is not None:
            return self.value
        return np.asarray(self.value.astype(dtype).astype(np.float64))


class _Scatter:
    """Adds terms into a flat float64 output, with their absolute values and their number."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.value, self.magnitude, self.terms = np.zeros(size), np.zeros(size), np.zeros(size)

    def add(self, targets: Array, terms: Array) -> None:
        self.value += np.bincount(targets, terms, self.size)
        self.magnitude += np.bincount(targets, np.abs(terms), self.size)
        self.terms += np.bincount(targets, minlength=self.size)

    def expected(self, shape: tuple[int, ...], per_term: int, extra: int) -> Expected:
        """Every term takes part in at most `terms` additions; `per_term` of them, and `extra` roundings besides."""
        roundings = per_term * self.terms + extra
        return Expected(self.value.reshape(shape), self.magnitude.reshape(shape), roundings.reshape(shape))


# ---------------------------------------------------------------------------------------------------------- grid_sample


class _Corner(NamedTuple):
    """One of the four pixels around every sample that has them: where, its weight, and the weight's slopes."""

    samples: Array
    pixels: Array
    weight: Array
    slope_x: Array
    slope_y: Array


def _corners(grid: Array, height: int, width: int) -> Iterator[_Corner]:
    """The corners of every sample of one image's grid [OH, OW, 2]; a corner outside the image does not exist."""
    one, two = grid.dtype.type(1), grid.dtype.type(2)
    flat = grid.reshape(-1, 2)
    x = ((flat[:, 0] + one) * grid.dtype.type(width) - one) / two
    y = ((flat[:, 1] + one) * grid.dtype.type(height) - one) / two
    left, top = np.floor(x), np.floor(y)
    right_part, low_part = (x - left).astype(np.float64), (y - top).astype(np.float64)
    for row, weight_y, sign_y in ((top, 1 - low_part, -1.0), (top + 1, low_part, 1.0)):
        for column, weight_x, sign_x in ((left, 1 - right_part, -1.0), (left + 1, right_part, 1.0)):
            (kept,) = np.nonzero((row >= 0) & (row < height) & (column >= 0) & (column < width))
            yield _Corner(
                kept,
                (row[kept] * width + column[kept]).astype(np.int64),
                (weight_y * weight_x)[kept],
                (sign_x * width / 2 * weight_y)[kept],
                (sign_y * height / 2 * weight_x)[kept],
            )


def pixels_sampled(grid: Array, height: int, width: int) -> int:
    """How many pixels of an image the grid reads."""
    seen = np.zeros(height * width, bool)
    for corner in _corners(grid, height, width):
        seen[corner.pixels] = True
    return int(seen.sum())


def grid_sample(image: Array, grid: Array) -> Expected:
    """[C, OH, OW] from an image [C, H, W] and a grid [OH, OW, 2]; bilinear, zeros outside."""
    channels, height, width = image.shape
    rows, columns, _ = grid.shape
    planes = image.astype(np.float64).reshape(channels, -1)
    total = _Scatter(channels * rows * columns)
    for corner in _corners(grid, height, width):
        for channel in range(channels):
            total.add(channel * rows * columns + corner.samples, corner.weight * planes[channel, corner.pixels])
    # Besides the additions: 1 - fraction on two axes, the product of the weights, and the product with the value.
    return total.expected((channels, rows, columns), 1, 4)


def grid_sample_backward_input(grad_output: Array, grid: Array, height: int, width: int) -> Expected:
    """The gradient with respect to an image [C, height, width]."""
    channels = len(grad_output)
    gradient = grad_output.astype(np.float64).reshape(channels, -1)
    total = _Scatter(channels * height * width)
    for corner in _corners(grid, height, width):
        for channel in range(channels):
            total.add(channel * height * width + corner.pixels, corner.weight * gradient[channel, corner.samples])
    # The four of the forward, and the partial sum that a long list's last terms are in.
    return total.expected((channels, height, width), 1, 5)


def grid_sample_backward_grid(grad_output: Array, image: Array, grid: Array) -> Expected:
    """The gradient with respect to the grid."""
    channels, height, width = image.shape
    rows, columns, _ = grid.shape
    planes = image.astype(np.float64).reshape(channels, -1)
    gradient = grad_output.astype(np.float64).reshape(channels, -1)
    total = _Scatter(rows * columns * 2)
    for corner in _corners(grid, height, width):
        for channel in range(channels):
            product = gradient[channel, corner.samples] * planes[channel, corner.pixels]
            total.add(2 * corner.samples, product * corner.slope_x)
            total.add(2 * corner.samples + 1, product * corner.slope_y)
    # 1 - fraction, a difference, the products with gradient, weight and half the extent, and a partial sum.
    return total.expected(grid.shape, 1, 6)


def grid_sample_backward(grad_output: Array, image: Array, grid: Array) -> tuple[Expected, Expected]:
    """The gradients with respect to the image and to the grid."""
    _, height, width = image.shape
    return (
        grid_sample_backward_input(grad_output, grid, height, width),
        grid_sample_backward_grid(grad_output, image, grid),
    )


# ---------------------------------------------------------------------------------------------------------- affine_grid


def _centres(extent: int, dtype: Any) -> Array:
    number = np.dtype(dtype).type
    centres = (2 * np.arange(extent) + 1).astype(dtype) / number(extent) - number(1)
    return np.asarray(centres.astype(np.float64))


def affine_grid(theta: Array, height: int, width: int) -> Expected:
    """[H, W, 2] of (x, y) from theta [2, 3]."""
    x, y = np.meshgrid(_centres(width, theta.dtype), _centres(height, theta.dtype))
    terms = np.stack([x, y, np.ones_like(x)], axis=-1)[:, :, None, :] * theta.astype(np.float64)
    return Expected(terms.sum(axis=-1), np.abs(terms).sum(axis=-1), 4)  # two products and two sums, fused or not


def affine_grid_backward(grad_grid: Array) -> Expected:
    """[2, 3] from the gradient [H, W, 2] of a grid."""
    height, width, _ = grad_grid.shape
    x, y = np.meshgrid(_centres(width, grad_grid.dtype), _centres(height, grad_grid.dtype))
    factors = np.stack([x, y, np.ones_like(x)]).reshape(3, -1)
    gradient = grad_grid.astype(np.float64).reshape(-1, 2)
    # The header cuts the sum into partial sums of 256 samples: a term meets the additions of one of them and those of
    # the partial sums. Besides, the product.
    terms = 256 + -(-height * width // 256) + 1
    return Expected((factors @ gradient).T, (np.abs(factors) @ np.abs(gradient)).T, terms)


# ------------------------------------------------------------------------------------------------------------ roi_align


class _AxisTaps(NamedTuple):
    """Every (bin, pixel, weight) of one box on one axis, sample by sample."""

    bins: Array
    pixels: Array
    weights: Array


def _axis_taps(low: Any, high: Any, bins: int, extent: int, sampling_ratio: int, aligned: bool) -> _AxisTaps:
    number = type(low)
    offset = number(0.5) if aligned else number(0)
    start = low - offset
    length = (high - offset) - start
    if not aligned:
        length = max(length, number(1))
    size = length / number(bins)
    count = sampling_ratio if sampling_ratio > 0 else max(int(np.ceil(size)), 0)
    bin_of, sample = (part.ravel() for part in np.indices((bins, count)))
    position = (start + bin_of.astype(number) * size) + (sample.astype(number) + number(0.5)) * size / number(count)
    (kept,) = np.nonzero((position >= -1) & (position <= extent))
    bin_of, position = bin_of[kept], np.maximum(position[kept], number(0))
    first = np.minimum(np.floor(position).astype(np.int64), extent - 1)
    part = np.where(first == extent - 1, 0.0, (position - first).astype(np.float64))
    second = np.minimum(first + 1, extent - 1)
    return _AxisTaps(
        np.concatenate([bin_of, bin_of]),
        np.concatenate([first, second]),
        np.concatenate([(1 - part), part]) / count,
    )


def _box_taps(
    box: Array, output_size: tuple[int, int], height: int, width: int, sampling_ratio: int, aligned: bool
) -> tuple[Array, Array, Array]:
    """Bin, pixel and weight of every pair of taps of one box (image, x1, y1, x2, y2)."""
    across = _axis_taps(box[1], box[3], output_size[1], width, sampling_ratio, aligned)
    down = _axis_taps(box[2], box[4], output_size[0], height, sampling_ratio, aligned)
    bins = (down.bins[:, None] * output_size[1] + across.bins).ravel()
    pixels = (down.pixels[:, None] * width + across.pixels).ravel()
    weights = (down.weights[:, None] * across.weights).ravel()
    kept = weights != 0
    return bins[kept], pixels[kept], weights[kept]


def pixels_averaged(
    boxes: Array, output_size: tuple[int, int], height: int, width: int, sampling_ratio: int, aligned: bool
) -> int:
    """How many pixels of an image its boxes read."""
    seen = np.zeros((height, width), bool)
    for box in boxes:
        across = _axis_taps(box[1], box[3], output_size[1], width, sampling_ratio, aligned)
        down = _axis_taps(box[2], box[4], output_size[0], height, sampling_ratio, aligned)
        rows, columns = np.unique(down.pixels[down.weights != 0]), np.unique(across.pixels[across.weights != 0])
        seen[np.ix_(rows, columns)] = True
    return int(seen.sum())


# A kernel may merge the taps of one row and of one column first; a term then meets the additions of two shorter chains
# and of the sum over bins or pixels, twice the terms in all at most. Besides: 1 - fraction, the divisor and its product
# on each of two axes, the product with the value, and the merge itself.
_ROI_PER_TERM, _ROI_EXTRA = 2, 8


def roi_align(image: Array, boxes: Array, output_size: tuple[int, int], sampling_ratio: int, aligned: bool) -> Expected:
    """[K, C, PH, PW] from one image [C, H, W] and boxes [K, 5]."""
    channels, height, width = image.shape
    planes = image.astype(np.float64).reshape(channels, -1)
    bin_count = output_size[0] * output_size[1]
    total = _Scatter(len(boxes) * channels * bin_count)
    for index, box in enumerate(boxes):
        bins, pixels, weights = _box_taps(box, output_size, height, width, sampling_ratio, aligned)
        for channel in range(channels):
            total.add((index * channels + channel) * bin_count + bins, weights * planes[channel, pixels])
    return total.expected((len(boxes), channels, *output_size), _ROI_PER_TERM, _ROI_EXTRA)


def roi_align_backward(
    grad_output: Array, boxes: Array, height: int, width: int, sampling_ratio: int, aligned: bool
) -> Expected:
    """The gradient [C, H, W] with respect to the image."""
    _, channels, *output_size = grad_output.shape
    gradient = grad_output.astype(np.float64).reshape(len(boxes), channels, -1)
    total = _Scatter(channels * height * width)
    for index, box in enumerate(boxes):
        size = (output_size[0], output_size[1])
        bins, pixels, weights = _box_taps(box, size, height, width, sampling_ratio, aligned)
        for channel in range(channels):
            total.add(channel * height * width + pixels, weights * gradient[index, channel, bins])
    return total.expected((channels, height, width), _ROI_PER_TERM, _ROI_EXTRA)


# -------------------------------------------------------------------------------------------------------- moves, scales


def unsorted_segment_max(rows: Array, ids: Array, num_segments: int) -> Expected:
    """[S, D]: the largest row of every segment; -infinity where a segment has none."""
    result = np.full((num_segments, rows.shape[1]), -np.inf)
    np.maximum.at(result, ids, rows.astype(np.float64))
    return Expected(result)


def unsorted_segment_max_backward(grad_output: Array, rows: Array, ids: Array) -> Expected:
    """[N, D]: each segment's gradient at the first row that holds the maximum."""
    values, gradient = rows.astype(np.float64), grad_output.astype(np.float64)
    holds = values == unsorted_segment_max(rows, ids, len(grad_output)).value[ids]
    result = np.zeros(rows.shape)
    for column in range(rows.shape[1]):
        (holders,) = np.nonzero(holds[:, column])
        segments, first = np.unique(ids[holders], return_index=True)
        result[holders[first], column] = gradient[segments, column]
    return Expected(result)


_NUMPY_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap",
                "symmetric": "symmetric"}  # fmt: skip


def _pad_places(shape: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...], mode: str) -> Array:
    """For every padded element the flat index of its source, -1 without one. Negative pads crop first; for pads that
    are narrower than the array NumPy's modes mean the same as ours.
    """
    places = np.arange(np.prod(shape)).reshape(shape)
    cropped = places[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(shape, low, high, strict=True))]
    widths = [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]
    fill = {"constant_values": -1} if mode == "constant" else {}
    return np.asarray(np.pad(cropped, widths, _NUMPY_MODES[mode], **fill))  # type: ignore[call-overload]


def pad(
    image: Array, low: tuple[int, ...], high: tuple[int, ...], value: float = 0.0, mode: str = "constant"
) -> Expected:
    """Every padded element taken from its place; `value` where there is none."""
    places = _pad_places(image.shape, low, high, mode)
    result = image.reshape(-1)[places].astype(np.float64)
    result[places < 0] = np.asarray(value).astype(image.dtype).astype(np.float64)
    return Expected(result)


def pad_backward(grad_output: Array, low: tuple[int, ...], high: tuple[int, ...], mode: str = "constant") -> Expected:
    """Every gradient element added to its place; what was cropped away gets 0."""
    shape = tuple(n - a - b for n, a, b in zip(grad_output.shape, low, high, strict=True))
    places = _pad_places(shape, low, high, mode)
    inside = places >= 0
    to, terms, size = places[inside], grad_output[inside].astype(np.float64), int(np.prod(shape))

    def added(weights: Array | None) -> Array:
        return np.bincount(to, weights, size).reshape(shape)

    # As many additions as terms, and one of a partial sum.
    return Expected(added(terms), added(np.abs(terms)), added(None) + 1)


def dequantize_per_channel(quantized: Array, scale: Array, zero_point: Array) -> Expected:
    """(q - zero point) * scale along the first axis; the product of 8-bit values is exact in float64."""
    along = (-1, *[1] * (quantized.ndim - 1))
    steps = quantized.astype(np.float64) - zero_point.astype(np.float64).reshape(along)
    return Expected(steps * scale.astype(np.float64).reshape(along))


def dequantize_per_channel_backward(grad_output: Array, scale: Array) -> Expected:
    """grad_output * scale along the first axis."""
    along = (-1, *[1] * (grad_output.ndim - 1))
    return Expected(grad_output.astype(np.float64) * scale.astype(np.float64).reshape(along))
