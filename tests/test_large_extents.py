# SPDX-License-Identifier: Apache-2.0
"""One extent within a step of 2^31: loops over it in steps end where it ends.

Nearly everything is 0, and what is not stands at the end of the extent, so that a few numbers say what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from large_problems import PIECE, assert_equal, few_and_large, parts, poisoned, shape_of, wound
from place import Place
from tolerance import assert_same_bits

import pybaracuda

# What is worth looking at before an extent's end: more than any step.
END = 512
F32 = np.float32


def extent_of(is_large: bool) -> int:
    return 2**31 - 1 if is_large else 2 * PIECE + 1


def sparse(place: Place, shape: tuple[int, ...], values: Mapping[int, float], rest: float = 0) -> Any:
    """An array of f16 with these values at these places, numbered in the order of memory; from the end if negative."""
    array = wound(place, np.full(PIECE, rest, np.float16), shape)
    flat = array.reshape(-1)
    for at, value in values.items():
        flat[at] = value
    return array


def assert_sparse(place: Place, found: Any, values: Mapping[int, float]) -> None:
    """The array has these values at these places, which become 0, and 0 at all others."""
    flat = found.reshape(-1)
    for at, value in values.items():
        assert place.numpy(flat[at : at + 1 or None]).tolist() == [value], at
        flat[at] = 0
    for part in parts(shape_of(flat)[0], 1):
        assert bool((flat[part] == 0).all()), f"from {part.start} on"


def boxes_of(place: Place, *row: float) -> Any:
    return place.array(np.array([row], F32))


def pixels_at_the_end(extent: int, start: float, stop: float, samples: int) -> list[int]:
    """The pixels of a bin with so many samples, all of which lie where f32 has whole numbers alone, or further on."""
    size = F32(stop) - F32(start)
    positions = [F32(start) + (F32(i) + F32(0.5)) * size / F32(samples) for i in range(samples)]
    return [min(int(position), extent - 1) for position in positions]


def bins_at_the_end(bins: int) -> list[int]:
    """The last bins, of a box that ends in the first pixel, of which the one sample is visible there; from the end.

    Near 2^31 numbers in f32 are so far apart that several bins have the same.
    """
    length = F32(0) - F32(-bins)
    numbers = np.arange(bins - END, bins)
    positions = (F32(-bins) + numbers.astype(F32) * (length / F32(bins))) + F32(0.5)
    return [int(number) - bins for number in numbers[(positions >= -1) & (positions <= 1)]]


@few_and_large
def test_classes_of_an_image(is_large: bool, place: Place) -> None:
    """Two elements, so that they are an image's, each with two classes that are equal and far above all others."""
    classes = extent_of(is_large)
    shape = (1, classes, 2)
    # Of element 0 the first class and the last but one; of element 1 the first and the last.
    logits = sparse(place, shape, {0: 0, 1: 0, -4: 0, -1: 0}, -60000)
    target = place.array(np.array([[classes - 2, classes - 1]], np.int32))
    sums: list[tuple[tuple[int, ...], Any]] = [((1, 2), np.float16), ((1, 2), F32), ((1,), F32), ((1,), np.int32)]
    outs = tuple(place.poisoned(extents, dtype, 0xFF) for extents, dtype in sums)
    pybaracuda.cross_entropy(logits, target, reduction="none", return_sums=True, out=outs)
    losses, log_sum_exp = (place.numpy(each) for each in outs[:2])
    assert_same_bits(losses, np.full((1, 2), np.log(2), np.float16))
    np.testing.assert_allclose(log_sum_exp, np.log(2), rtol=1e-6)
    ones = place.array(np.ones((1, 2), np.float16))
    slopes = poisoned(place, shape, np.float16)
    pybaracuda.cross_entropy_backward(ones, logits, target, outs[1], outs[2], reduction="none", out=slopes)
    assert_sparse(place, slopes, {0: 0.5, 1: 0.5, -4: -0.5, -1: -0.5})
    del logits
    slopes = poisoned(place, shape, np.float16)
    pybaracuda.nll_loss_backward(ones, target, outs[2], shape, reduction="none", out=slopes)
    assert_sparse(place, slopes, {-4: -1, -1: -1})


@few_and_large
def test_channels_of_a_sample(is_large: bool, place: Place) -> None:
    channels = extent_of(is_large)
    # The right pixels alone are not 0: those of the first channel and of the last ones.
    images = sparse(place, (1, channels, 2, 2), {1: 1, 3: 1, -7: 2, -5: 2, -3: 4, -1: 4})
    gradients = sparse(place, (1, channels, 1, 1), {}, 1)
    grid = place.array(np.zeros((1, 1, 1, 2), F32))
    _, slopes = pybaracuda.grid_sample_backward(gradients, images, grid, output_mask=(False, True))
    assert place.numpy(slopes).ravel().tolist() == [7, 0]


@few_and_large
def test_channels_of_a_box(is_large: bool, place: Place) -> None:
    """A sample halfway between two pixels, of which the right one is not 0."""
    channels = extent_of(is_large)
    images = sparse(place, (1, channels, 1, 2), {1: 1, -3: 2, -1: 4})
    gradients = sparse(place, (1, channels, 1, 1), {}, 1)
    found = pybaracuda.roi_align_boxes_backward(gradients, images, boxes_of(place, 0, 0, 0, 1, 1), 1.0, 1)
    assert place.numpy(found).tolist() == [[0, 3.5, 0, 3.5, 0]]


@few_and_large
@pytest.mark.parametrize("is_tall", [False, True], ids=["wide", "tall"])
def test_gradients_of_a_box_with_many_bins(is_tall: bool, is_large: bool, place: Place) -> None:
    """A bin is as long as a pixel, and the first one alone has its sample between two pixels."""
    bins = extent_of(is_large)
    corners = (0, 0, 0, 1, bins) if is_tall else (0, 0, 0, bins, 1)
    images = place.array(np.array([1, 3], np.float16).reshape((1, 1, 2, 1) if is_tall else (1, 1, 1, 2)))
    gradients = sparse(place, (1, 1, bins, 1) if is_tall else (1, 1, 1, bins), {0: 1})
    found = pybaracuda.roi_align_boxes_backward(gradients, images, boxes_of(place, *corners), 1.0, 1)
    before, after = F32(0.5) / F32(bins), (F32(bins - 1) + F32(0.5)) / F32(bins)
    wanted = np.zeros((1, 5), F32)
    wanted[0, [2, 4] if is_tall else [1, 3]] = F32(2) * after, F32(2) * before
    assert_same_bits(place.numpy(found), wanted)


@few_and_large
# Rows of an even number of columns are copied to shared memory, four bytes at a time.
@pytest.mark.parametrize("is_odd", [False, True], ids=["even", "odd"])
def test_columns_of_a_box(is_odd: bool, is_large: bool, place: Place) -> None:
    width = extent_of(is_large) - (not is_odd)
    start, stop = width + 1 + (not is_odd) - 256, width + 1 + (not is_odd)
    first, last = pixels_at_the_end(width, start, stop, 2)
    images = sparse(place, (1, 1, 1, width), {first - width: 2, last - width: 4})
    output = pybaracuda.roi_align(images, boxes_of(place, 0, start, 0, stop, 1), (2, 1), 1.0, 2)
    assert place.numpy(output).ravel().tolist() == [3, 3]


@few_and_large
def test_columns_of_a_box_in_a_volume(is_large: bool, place: Place) -> None:
    width = extent_of(is_large)
    first, last = pixels_at_the_end(width, width - 255, width + 1, 2)
    volumes = sparse(place, (1, 1, 1, 1, width), {first - width: 2, last - width: 4})
    boxes = boxes_of(place, 0, width - 255, 0, 0, width + 1, 1, 1)
    output = pybaracuda.roi_align_3d(volumes, boxes, (2, 1, 1), 1.0, 2)
    assert place.numpy(output).ravel().tolist() == [3, 3]


@few_and_large
@pytest.mark.parametrize("is_tall", [False, True], ids=["wide", "tall"])
def test_bins_of_a_box(is_tall: bool, is_large: bool, place: Place) -> None:
    bins = extent_of(is_large)
    visible = bins_at_the_end(bins)
    assert visible
    size, axis = ((bins, 1), 2) if is_tall else ((1, bins), 1)
    row = np.zeros((1, 5), F32)
    row[0, 1:] = [0, 0, 1, 1]
    row[0, [axis, axis + 2]] = -bins, 0
    boxes = place.array(row)
    # A warp has all bins, and of tall boxes a few at a time: a pass of them each would take many minutes.
    if not (is_tall and is_large):
        output = poisoned(place, (1, 1, *size), np.float16)
        images = place.array(np.full((1, 1, 1, 1), 5, np.float16))
        pybaracuda.roi_align(images, boxes, size, 1.0, 1, out=output)
        assert_sparse(place, output, dict.fromkeys(visible, 5))
        del output
    gradients = sparse(place, (1, 1, *size), dict.fromkeys(visible, 1))
    slopes = pybaracuda.roi_align_backward(gradients, boxes, (1, 1, 1, 1), 1.0, 1)
    assert place.numpy(slopes).ravel().tolist() == [len(visible)]


@few_and_large
@pytest.mark.parametrize("axis", ["x", "y", "z"])
def test_bins_of_a_box_in_a_volume(axis: str, is_large: bool, place: Place) -> None:
    bins = extent_of(is_large)
    visible = bins_at_the_end(bins)
    number = "xyz".index(axis)
    size = [1, 1, 1]
    size[2 - number] = bins
    row = np.zeros((1, 7), F32)
    row[0, 4:] = 1
    row[0, [1 + number, 4 + number]] = -bins, 0
    boxes = place.array(row)
    # As above.
    if not (axis == "y" and is_large):
        output = poisoned(place, (1, 1, *size), np.float16)
        volumes = place.array(np.full((1, 1, 1, 1, 1), 5, np.float16))
        pybaracuda.roi_align_3d(volumes, boxes, size, 1.0, 1, out=output)
        assert_sparse(place, output, dict.fromkeys(visible, 5))
        del output
    gradients = sparse(place, (1, 1, *size), dict.fromkeys(visible, 1))
    slopes = pybaracuda.roi_align_3d_backward(gradients, boxes, (1, 1, 1, 1, 1), 1.0, 1)
    assert place.numpy(slopes).ravel().tolist() == [len(visible)]


@few_and_large
@pytest.mark.parametrize("mode", ["nearest", "bicubic"])
def test_output_columns_of_one_pixel(mode: str, is_large: bool, place: Place) -> None:
    width = extent_of(is_large)
    gradients = sparse(place, (1, 1, 1, width), {0: 1, -2: 2, -1: 4})
    slopes = pybaracuda.interpolate_backward(gradients, (1, 1, 1, 1), mode=mode)
    assert place.numpy(slopes).ravel().tolist() == [7]


@few_and_large
def test_columns_of_an_antialiased_pixel(is_large: bool, place: Place) -> None:
    """The weights of an output pixel add up to 1: what is missing at the end would show."""
    width, pixels = (extent_of(True), 2**20) if is_large else (extent_of(False), 9)
    images = sparse(place, (1, 1, 1, width), {}, 1)
    output = pybaracuda.interpolate(images, (1, pixels), mode="bilinear", antialias=True)
    assert place.numpy(output).ravel().tolist() == [1] * pixels


@few_and_large
def test_columns_of_one_window(is_large: bool, place: Place) -> None:
    width = extent_of(is_large)
    # The sum is exact, and so is its quotient's rounding.
    images = sparse(place, (1, 1, width), {0: 16384, -2: 32768, -1: 16384})
    output = pybaracuda.adaptive_avg_pool(images, 1, axes=1)
    assert_same_bits(place.numpy(output).ravel(), np.array([F32(65536) / F32(width)]).astype(np.float16))


@few_and_large
def test_rows_of_windows(is_large: bool, place: Place) -> None:
    """Windows of one row each, for which gradients are copies."""
    height = extent_of(is_large)
    gradients = sparse(place, (1, 1, height, 1), {0: 1, -2: 2, -1: 4})
    slopes = poisoned(place, (1, 1, height, 1), np.float16)
    pybaracuda.avg_pool_backward(gradients, shape_of(slopes), 1, 1, axes=2, out=slopes)
    assert_sparse(place, slopes, {0: 1, -2: 2, -1: 4})


@few_and_large
def test_windows_of_a_row(is_large: bool, place: Place) -> None:
    """Windows of one element each, for which maxima and their gradients are copies."""
    width = extent_of(is_large)
    images = sparse(place, (1, 1, width), {0: 1, -2: 2, -1: 4})
    output = poisoned(place, (1, 1, width), np.float16)
    indices = poisoned(place, (1, 1, width), np.int64)
    pybaracuda.max_pool(images, 1, 1, axes=1, return_indices=True, out=(output, indices))
    assert_sparse(place, output, {0: 1, -2: 2, -1: 4})
    pybaracuda.max_pool_backward(images, indices, (1, 1, width), 1, 1, axes=1, out=output)
    assert_sparse(place, output, {0: 1, -2: 2, -1: 4})


@few_and_large
def test_fractional_windows_of_a_row(is_large: bool, place: Place) -> None:
    width = extent_of(is_large)
    images = sparse(place, (1, 1, 1, width), {}, 3)
    output = poisoned(place, (1, 1, 1, width), np.float16)
    samples = place.array(np.zeros((1, 1, 2), np.float16))
    pybaracuda.fractional_max_pool(images, 1, (1, width), samples, out=output)
    assert_equal(output, images)
