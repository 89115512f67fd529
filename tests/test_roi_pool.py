# SPDX-License-Identifier: Apache-2.0
"""roi_pool and roi_pool_backward against their definitions: elements and argmax to the bit, sums within their bound."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from bad_boxes import ANY_BOXES, BAD_BATCH, INF, NAN
from hypothesis import given
from hypothesis import strategies as st
from lattice import ODD_SCALE, integers, normal, random_boxes
from place import Place, available
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import Sum
from verify.definitions import roi_pool as oracle
from verify.dtypes import DTYPES, Array, bits, coordinate_dtype, in_float64


class PoolCase(NamedTuple):
    """A roi_pool problem with its gradient."""

    input: Array
    boxes: Array
    output_size: tuple[int, int]
    grad_output: Array
    spatial_scale: float = 1.0


def random_case(
    rng: np.random.Generator,
    dtype: Any,
    spatial_scale: float = ODD_SCALE,
    shape: tuple[int, int, int, int] = (2, 3, 9, 11),
    output_size: tuple[int, int] = (3, 2),
    num_rois: int = 15,
) -> PoolCase:
    """Boxes of any place and size around the image, some of them reversed."""
    boxes = random_boxes(rng, dtype, shape, spatial_scale, num_rois)
    return PoolCase(
        normal(rng, shape, dtype),
        boxes,
        output_size,
        normal(rng, (num_rois, shape[1], *output_size), dtype),
        spatial_scale,
    )


def with_boxes(case: PoolCase, rows: Any) -> PoolCase:
    """The same image under other boxes, with a gradient repeated or cut to fit them."""
    boxes = np.asarray(rows, np.float64).astype(coordinate_dtype(case.input.dtype)).reshape(-1, 5)
    gradient = np.resize(case.grad_output, (len(boxes), *case.grad_output.shape[1:]))
    return case._replace(boxes=boxes, grad_output=gradient)


def forward(place: Place, case: PoolCase, input: Any = None, boxes: Any = None) -> tuple[Array, Array]:
    """The library's output and argmax; ``input`` and ``boxes`` replace the case's by equal arrays of another layout."""
    output, argmax = place.run(
        pybaracuda.roi_pool,
        case.input if input is None else input,
        case.boxes if boxes is None else boxes,
        case.output_size,
        outputs=[(case.grad_output.shape, case.input.dtype), (case.grad_output.shape, np.int32)],
        spatial_scale=case.spatial_scale,
        return_argmax=True,
    )
    return output, argmax


def backward(place: Place, case: PoolCase, argmax: Any, grad_output: Any = None, boxes: Any = None) -> Array:
    return place.run(
        pybaracuda.roi_pool_backward,
        case.grad_output if grad_output is None else grad_output,
        case.boxes if boxes is None else boxes,
        argmax,
        case.input.shape,
        outputs=[(case.input.shape, case.input.dtype)],
    )[0]


def oracle_forward(case: PoolCase) -> tuple[Array, Array]:
    # The C argument is a float, for float64 data too.
    scale = float(np.float32(case.spatial_scale))
    compute = coordinate_dtype(case.input.dtype)
    return oracle.roi_pool(case.input, case.boxes, case.output_size, scale, coordinate_dtype=compute)


def oracle_backward(case: PoolCase, argmax: Array) -> Sum:
    return oracle.roi_pool_backward(case.grad_output, case.boxes, argmax, case.input.shape)


def check(place: Place, case: PoolCase) -> tuple[Array, Array, Array]:
    """The forward is the definition's to the bit, the backward within its bound; answers the library's results."""
    output, argmax = forward(place, case)
    expected, pixels = oracle_forward(case)
    assert_same_bits(argmax, pixels)
    assert_same_bits(output, expected)
    grad_input = backward(place, case, argmax)
    assert_within(grad_input, oracle_backward(case, argmax))
    return output, argmax, grad_input


@pytest.mark.parametrize("scale", [1.0, 0.5, ODD_SCALE, 1 / 3])
@pytest.mark.parametrize("output_size", [(1, 1), (3, 2), (7, 7)], ids=["1x1", "3x2", "7x7"])
def test_random_boxes(
    place: Place, dtype: Any, rng: np.random.Generator, scale: float, output_size: tuple[int, int]
) -> None:
    _, argmax, _ = check(place, random_case(rng, dtype, scale, output_size=output_size, num_rois=40))
    assert (argmax >= 0).any()
    assert (argmax == -1).any()


def test_backward_is_the_exact_adjoint(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    # Small integers, few enough boxes that every sum stays exact in 8 bits.
    case = random_case(rng, dtype, 1.0, num_rois=12)
    case = case._replace(
        input=integers(rng, case.input.shape, dtype), grad_output=integers(rng, case.grad_output.shape, dtype)
    )
    output, argmax, grad_input = check(place, case)
    assert_exact(grad_input, oracle_backward(case, argmax))
    in_output = np.sum(output.astype(np.float64) * case.grad_output.astype(np.float64))
    in_input = np.sum(case.input.astype(np.float64) * grad_input.astype(np.float64))
    assert in_output == in_input


def test_a_pooled_map_is_known(place: Place, dtype: Any) -> None:
    """By hand: bins round outwards and share pixels, and the last pixel belongs to the box."""
    image = np.arange(16).reshape(1, 1, 4, 4).astype(dtype)
    boxes = np.array([[0, 0, 0, 2, 2], [0, 1, 1, 1, 1], [0, 3, 3, 9, 9]]).astype(coordinate_dtype(dtype))
    case = PoolCase(image, boxes, (2, 2), np.ones((3, 1, 2, 2), dtype))
    output, argmax = forward(place, case)
    # 3 x 3 pixels in bins of 1.5: [0, 2) and [1, 3). One pixel in bins of 0.5: all four have it. Then 7 x 7 pixels of
    # which the image has the first.
    pixels = np.array([[5, 6, 9, 10], [5, 5, 5, 5], [15, -1, -1, -1]]).reshape(3, 1, 2, 2)
    assert_same_bits(argmax, pixels.astype(np.int32))
    assert_same_bits(output, np.maximum(pixels, 0).astype(dtype))
    expected = np.zeros(16)
    expected[[5, 6, 9, 10, 15]] = [5, 1, 1, 1, 1]
    assert_same_bits(backward(place, case, argmax), expected.reshape(1, 1, 4, 4).astype(dtype))


@pytest.mark.parametrize("corner", [0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 2.4999998, 8388607.5, 8388609.0])
def test_corners_are_rounded_halves_away_from_zero(place: Place, wide_dtype: Any, corner: float) -> None:
    image = np.arange(35).reshape(1, 1, 5, 7).astype(wide_dtype)
    rows = [[0, corner, corner, corner + 1, corner + 1], [0, -corner, 0, corner, 3], [0, 0, corner, 3, corner + 2]]
    check(place, with_boxes(PoolCase(image, np.zeros((0, 5)), (2, 3), np.ones((1, 1, 2, 3), wide_dtype)), rows))


BAD_CORNERS = [
    [NAN, 1, 4, 4],
    [1, NAN, 4, 4],
    [1, 1, NAN, 4],
    [1, 1, 4, NAN],
    [-INF, 0, 4, 4],
    [0, 0, INF, 4],
    [0, INF, 4, INF],
    [-INF, -INF, INF, INF],
    [-1e30, -1e30, 1e30, 1e30],
    [-3e38, 0, 3e38, 4],  # finite corners, but the width overflows float32
    [0, -3e38, 4, 3e38],
    [1e30, 1e30, 2e30, 2e30],
    [-2e30, -2e30, -1e30, -1e30],
    [0, 0, 1e10, 1e10],
    [-1e10, -1e10, 5, 5],
    [0, 0, 3.4e38, 3.4e38],
    [2147483520, 0, 2147483647, 4],
    [0, -2147483648, 4, 2147483648],
    [5, 6, 1, 2],  # reversed: one pixel
    [6, 1, 2, 5],
    [3, 3, 3, 3],
    [1e-40, 1e-40, 4, 4],
]


@pytest.mark.parametrize("scale", [1.0, 0.5, -1.0, 0.0], ids=["s1", "s0.5", "s-1", "s0"])
def test_bad_boxes_are_what_the_definition_says(
    place: Place, dtype: Any, rng: np.random.Generator, scale: float
) -> None:
    case = random_case(rng, dtype, 1.0, (2, 3, 7, 8), (2, 3))._replace(spatial_scale=scale)
    rows = [[batch, 1, 1, 5, 4] for batch in BAD_BATCH]
    rows += [[1, *corners] for corners in BAD_CORNERS]
    rows += [[0, 1.5, 0.75, 6, 5.5]]  # and a good one among them
    output, argmax, grad_input = check(place, with_boxes(case, rows))
    # A batch index that is none gives no pixel; truncated to one it does, and so does the good box, unless mirrored.
    assert (argmax[:10] == -1).all()
    assert (argmax[[10, 11, 12, -1]] >= 0).any(axis=(1, 2, 3)).all() == (scale >= 0)
    assert np.isfinite(output.astype(np.float64)).all()
    assert np.isfinite(grad_input.astype(np.float64)).all()


def test_bad_argmax_contributes_nothing(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 1.0, (3, 4, 5, 7), (2, 2), 30)
    case.boxes[::5, 0] = [-1, 3, NAN, INF, 1e30, 2]
    argmax = rng.integers(0, 35, case.grad_output.shape).astype(np.int32)
    argmax[rng.random(argmax.shape) < 0.5] = -1
    for position, bad in enumerate([35, 36, 2**31 - 1, -(2**31), -2, -35]):
        argmax.reshape(-1)[position :: 17 + position] = bad
    grad_input = backward(place, case, argmax)
    assert_within(grad_input, oracle_backward(case, argmax))
    # Nobody's: what the bins without a pixel hold is never read into a sum.
    nobodys = (argmax < 0) | (argmax >= 35)
    gradient = np.where(nobodys, dtype.type(NAN), case.grad_output).astype(dtype)
    assert_same_bits(backward(place, case, argmax, gradient), grad_input)


def test_of_the_boxes_the_backward_reads_the_image_alone(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 1.0)
    _, argmax, grad_input = check(place, case)
    other = case.boxes.copy()
    other[:, 1:] = NAN
    assert_same_bits(backward(place, case, argmax, boxes=other), grad_input)


def test_the_first_of_equals_wins(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 1.0, (2, 3, 12, 40), (2, 2), 40)
    # Few values, so that most bins have ties; zeros of both signs are equal.
    image = rng.choice([-1.0, -0.0, 0.0], case.input.shape).astype(dtype)
    output, _, _ = check(place, case._replace(input=image))
    assert np.signbit(output[output == 0].astype(np.float64)).any()


def special_elements(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Bit patterns of every kind: NaNs with payloads, quiet and signalling, infinities, subnormals, zeros."""
    width = dtype.itemsize * 8
    infinity = int(bits(np.array([INF], dtype))[0])
    sign = 1 << (width - 1)
    patterns = [
        infinity, infinity | sign, infinity + 1, infinity + 3 | sign, (1 << width) - 1, sign - 1, 1, 2, sign | 1, 0,
        sign, infinity >> 1, infinity >> 1 | sign,
    ]  # fmt: skip
    unsigned = bits(np.zeros(1, dtype)).dtype
    return np.array(patterns, np.uint64).astype(unsigned)[rng.integers(0, len(patterns), shape)].view(dtype)


def test_nans_infinities_and_subnormals_are_moved_unchanged(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 1.0, (2, 4, 20, 24), (7, 5), 30)
    image = special_elements(rng, case.input.shape, dtype)
    # Half of the planes without a NaN, so that other elements win too.
    finite = np.where(np.isnan(in_float64(image[:, :2])), dtype.type(-INF), image[:, :2])
    image[:, :2] = finite
    output, argmax = forward(place, case._replace(input=image))
    expected, pixels = oracle_forward(case._replace(input=image))
    assert_same_bits(argmax, pixels)
    assert_same_bits(output, expected)
    patterns = bits(output)[np.isnan(in_float64(output))]
    assert len(np.unique(patterns)) > 2


@pytest.mark.parametrize("value", [-INF, -np.finfo(np.float32).max], ids=["-inf", "lowest"])
def test_a_bin_of_the_lowest_values_has_a_maximum(place: Place, wide_dtype: Any, value: float) -> None:
    # torchvision answers -FLT_MAX and no pixel for a bin of -inf alone.
    image = np.full((1, 1, 4, 4), value, wide_dtype)
    case = PoolCase(image, np.array([[0, 0, 0, 3, 3]], wide_dtype), (2, 2), np.ones((1, 1, 2, 2), wide_dtype))
    output, argmax = forward(place, case)
    assert_same_bits(output, np.full((1, 1, 2, 2), value, wide_dtype))
    assert argmax.ravel().tolist() == [0, 2, 8, 10]


def test_subnormal_gradients_are_added(place: Place, dtype: Any) -> None:
    tiny = bits(np.zeros(3, dtype))
    tiny[:] = [1, 2, 3]
    gradient = np.tile(tiny.view(dtype), 4).reshape(12, 1, 1, 1)
    boxes = np.zeros((12, 5), coordinate_dtype(dtype))
    case = PoolCase(np.ones((1, 1, 1, 1), dtype), boxes, (1, 1), gradient)
    grad_input = backward(place, case, np.zeros((12, 1, 1, 1), np.int32))
    assert int(bits(grad_input).ravel()[0]) == 24


def test_gradients_that_are_no_numbers(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 1.0, (2, 3, 5, 6), (2, 2), 40)
    _, argmax = forward(place, case)
    gradient = case.grad_output.copy()
    gradient.reshape(-1)[::7] = dtype.type(INF)
    gradient.reshape(-1)[::11] = dtype.type(-INF)
    payload = np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)[0]
    gradient.reshape(-1)[::13] = payload
    case = case._replace(grad_output=gradient)
    grad_input = backward(place, case, argmax)
    assert_canonical_nans(grad_input)
    assert_within(grad_input, oracle_backward(case, argmax))
    values = grad_input.astype(np.float64)
    for kind in (np.isnan, np.isinf, np.isfinite):
        assert kind(values).any()


@pytest.mark.parametrize(
    ("shape", "num_rois"),
    [((2, 3, 4, 5), 0), ((0, 3, 4, 5), 3), ((2, 0, 4, 5), 3), ((2, 3, 0, 5), 3), ((2, 3, 4, 0), 3), ((0, 0, 0, 0), 0)],
    ids=["no-boxes", "no-images", "no-channels", "no-rows", "no-columns", "nothing"],
)
@pytest.mark.parametrize("output_size", [(2, 3), (0, 3), (2, 0)], ids=["2x3", "0x3", "2x0"])
def test_empty_problems(
    place: Place, dtype: Any, shape: tuple[int, int, int, int], num_rois: int, output_size: tuple[int, int]
) -> None:
    boxes = np.tile([0.0, 0.5, 0.5, 3.0, 2.5], (num_rois, 1)).astype(coordinate_dtype(dtype))
    pooled = (num_rois, shape[1], *output_size)
    case = PoolCase(np.ones(shape, dtype), boxes, output_size, np.ones(pooled, dtype))
    output, argmax = forward(place, case)
    if 0 not in shape:
        assert_same_bits(output, np.ones(pooled, dtype))
    else:
        assert_same_bits(output, np.zeros(pooled, dtype))
        assert_same_bits(argmax, np.full(pooled, -1, np.int32))
    # Whatever the pixels are called, there is none, or no bin.
    if num_rois == 0 or 0 in shape or 0 in output_size:
        assert_same_bits(backward(place, case, np.zeros(pooled, np.int32)), np.zeros(shape, dtype))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 2, 1, 6), (3, 2, 6, 1)])
def test_size_one_dimensions(
    place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, int, int, int]
) -> None:
    check(place, random_case(rng, dtype, 1.0, shape, (1, 1)))
    check(place, random_case(rng, dtype, 0.25, shape, (3, 1)))


def check_any_pixels(place: Place, case: PoolCase, rng: np.random.Generator) -> None:
    """Where bins name any pixels, many of them the same one, the gradient is the header's sum to the bit."""
    pixels = case.input.shape[2] * case.input.shape[3]
    argmax = rng.integers(-1, pixels, case.grad_output.shape).astype(np.int32)
    argmax[rng.random(argmax.shape) < 0.3] = rng.integers(0, pixels)
    compute = np.float64 if case.grad_output.dtype == np.float64 else np.float32
    assert_exact(backward(place, case, argmax), in_order(case, argmax, compute).astype(np.float64))


@pytest.mark.parametrize("channels", [1, 3, 4, 5])
@pytest.mark.parametrize(("h", "w"), [(1, 255), (16, 16), (1, 257), (9, 1000)])
def test_sizes_around_band_edges(
    place: Place, dtype: Any, rng: np.random.Generator, channels: int, h: int, w: int
) -> None:
    # Bands of a small call's CUDA backward have 256 pixels; four channels are bounded together.
    case = random_case(rng, dtype, 1.0, (2, channels, h, w), (5, 5), 90)
    check_any_pixels(place, case, rng)


@pytest.mark.parametrize("w", [4095, 4096, 4097])
def test_full_bands(place: Place, wide_dtype: Any, rng: np.random.Generator, w: int) -> None:
    # So many planes have full bands, of 4096 pixels in f32 and 2048 in f64.
    check_any_pixels(place, random_case(rng, wide_dtype, 1.0, (1, 4100, 1, w), (2, 2), 3), rng)


@pytest.mark.parametrize(
    ("channels", "output_size"), [(7, (5, 5)), (8, (7, 7)), (16, (1, 3)), (17, (7, 1)), (20, (2, 3))]
)
@pytest.mark.parametrize(("h", "w"), [(1, 300), (5, 2), (33, 65)])
def test_sizes_around_tile_edges(
    place: Place, dtype: Any, rng: np.random.Generator, channels: int, output_size: tuple[int, int], h: int, w: int
) -> None:
    # The CUDA backward of eight channels or more, and of an odd number of bins, owns tiles of 16 channels.
    case = random_case(rng, dtype, 1.0, (2, channels, h, w), output_size, 21)
    check_any_pixels(place, case, rng)
    # Boxes of a forward, which meet few tiles.
    _, argmax = forward(place, case)
    compute = np.float64 if dtype == np.float64 else np.float32
    assert_exact(backward(place, case, argmax), in_order(case, argmax, compute).astype(np.float64))


@pytest.mark.parametrize("num_rois", [1023, 1025])
def test_boxes_around_the_list_of_a_tile(place: Place, rng: np.random.Generator, num_rois: int) -> None:
    # A tile lists 1024 boxes at a time. Planes so large that their boxes are not cut into blocks.
    case = random_case(rng, np.float32, 1.0, (1, 8, 20, 1700), (1, 3), num_rois)
    check_any_pixels(place, case, rng)


@pytest.mark.parametrize("output_size", [(1, 31), (4, 8), (3, 11), (16, 16), (1, 257), (19, 27)])
def test_bins_around_the_groups_of_a_warp(
    place: Place, dtype: Any, rng: np.random.Generator, output_size: tuple[int, int]
) -> None:
    # The CUDA backward looks at 32 bins at a time.
    check(place, random_case(rng, dtype, 1.0, (2, 3, 12, 35), output_size, 5))


@pytest.mark.parametrize("num_rois", [64, 65, 129, 257, 700])
def test_many_boxes_on_one_pixel(place: Place, dtype: Any, rng: np.random.Generator, num_rois: int) -> None:
    # Above 64 boxes a small map is cut into blocks of boxes, whose sums are added in order.
    case = random_case(rng, dtype, 1.0, (2, 2, 4, 5), (2, 2), num_rois)
    case.input[:, :, 1, 2] = 100
    case.boxes[:, 1:] = rng.uniform([0, 0, 2, 2], [2, 2, 4, 4], (num_rois, 4))
    case.boxes[:, 0] = rng.integers(0, 5, num_rois) // 4
    _, argmax, grad_input = check(place, case)
    assert oracle_backward(case, argmax).terms.max() > num_rois / 2
    compute = np.float64 if dtype == np.float64 else np.float32
    assert_exact(grad_input, in_order(case, argmax, compute).astype(np.float64))


def in_order(case: PoolCase, argmax: Array, compute: Any) -> Array:
    """The sum of the header, one addition after the other in the type in which it is made, before it is rounded."""
    n, c, h, w = case.input.shape
    num_rois = len(case.boxes)
    owners = n * -(-c // 64) * -(-h // 16) * -(-w // 16)
    blocks = max(1, min(-(-512 // owners), -(-num_rois // 64)))
    size = -(-num_rois // blocks)
    total = np.zeros((n, c, h * w), compute)
    for first in range(0, num_rois, size):
        partial = np.zeros_like(total)
        for r in range(first, min(first + size, num_rois)):
            image = int(case.boxes[r, 0])
            for channel in range(c):
                for pixel, gradient in zip(
                    argmax[r, channel].ravel(), case.grad_output[r, channel].ravel(), strict=True
                ):
                    if pixel >= 0:
                        partial[image, channel, pixel] += compute(gradient)
        total += partial
    return total.reshape(case.input.shape)


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 0.25)
    output, argmax, grad_input = check(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        boxes = layout(case.boxes)
        again = forward(place, case, layout(case.input), boxes)
        assert_same_bits(again[0], output)
        assert_same_bits(again[1], argmax)
        assert_same_bits(backward(place, case, layout(argmax), layout(case.grad_output), boxes), grad_input)


def test_without_argmax_the_output_is_the_same(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 0.25)
    output, _ = forward(place, case)
    alone = place.run(
        pybaracuda.roi_pool,
        case.input,
        case.boxes,
        case.output_size,
        outputs=[(output.shape, dtype)],
        spatial_scale=0.25,
    )
    assert_same_bits(alone[0], output)
    # Defaults are torchvision's.
    plain = forward(place, case._replace(spatial_scale=1.0))[0]
    given = pybaracuda.roi_pool(place.array(case.input), place.array(case.boxes), case.output_size)
    assert_same_bits(place.numpy(given), plain)


def test_sixteen_bit_boxes_are_widened(backend: str, place: Place, rng: np.random.Generator) -> None:
    case = random_case(rng, np.float16, 1.0)
    narrow = case.boxes.astype(np.float16)
    case = case._replace(boxes=narrow.astype(np.float32))
    output, argmax, grad_input = check(place, case)
    again = forward(place, case, boxes=narrow)
    assert_same_bits(again[0], output)
    assert_same_bits(again[1], argmax)
    assert_same_bits(backward(place, case, argmax, boxes=narrow), grad_input)


def test_list_of_boxes_per_image(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 1.0, (3, 2, 6, 6), (2, 2), 9)
    boxes = case.boxes[np.argsort(case.boxes[:, 0], kind="stable")]
    # The second image keeps no box.
    case = with_boxes(case, boxes[boxes[:, 0] != 1])
    output, argmax, grad_input = check(place, case)
    listed = [place.array(np.ascontiguousarray(case.boxes[case.boxes[:, 0] == image, 1:])) for image in range(3)]
    found = pybaracuda.roi_pool(place.array(case.input), listed, case.output_size, return_argmax=True)
    assert_same_bits(place.numpy(found[0]), output)
    assert_same_bits(place.numpy(found[1]), argmax)
    gradient = pybaracuda.roi_pool_backward(place.array(case.grad_output), listed, found[1], case.input.shape)
    assert_same_bits(place.numpy(gradient), grad_input)


def test_wrong_arguments_are_named(backend: str, place: Place) -> None:
    image, boxes = place.array(np.ones((1, 1, 4, 4), np.float32)), place.array(np.zeros((1, 5), np.float32))
    output, argmax = pybaracuda.roi_pool(image, boxes, 2, return_argmax=True)
    short = place.array(np.ones((1, 1, 2, 3), np.float32))
    with pytest.raises(ValueError, match=r"^out has shape"):
        pybaracuda.roi_pool(image, boxes, 2, out=short)
    with pytest.raises(ValueError, match=r"^out\[0\] has shape"):
        pybaracuda.roi_pool(image, boxes, 2, return_argmax=True, out=(short, None))
    with pytest.raises(TypeError, match=r"^out\[1\] has dtype float32; wanted int32"):
        pybaracuda.roi_pool(image, boxes, 2, return_argmax=True, out=(None, output))
    with pytest.raises(TypeError, match=r"^out: wanted a pair \(output, argmax\)"):
        pybaracuda.roi_pool(image, boxes, 2, return_argmax=True, out=output)
    with pytest.raises(TypeError, match="return_argmax: wanted a bool"):
        pybaracuda.roi_pool(image, boxes, 2, return_argmax="yes")
    with pytest.raises(TypeError, match="argmax has dtype float32; wanted int32"):
        pybaracuda.roi_pool_backward(output, boxes, output, (1, 1, 4, 4))
    with pytest.raises(ValueError, match="argmax has shape"):
        pybaracuda.roi_pool_backward(output, boxes, argmax[:, :, :1], (1, 1, 4, 4))
    with pytest.raises(ValueError, match="grad_output has shape"):
        pybaracuda.roi_pool_backward(output, boxes, argmax, (1, 2, 4, 4))


@pytest.mark.parametrize(("h", "w", "status"), [(2**31 - 1, 1, 0), (46341, 46341, 2), (2, 2**30, 2), (65536, 32767, 0)])
def test_a_plane_has_at_most_as_many_pixels_as_argmax_can_name(backend: str, h: int, w: int, status: int) -> None:
    preference = pybaracuda.PlanPreference(prefer_backend=backend)
    for plan, descriptor in (
        (pybaracuda.RoiPoolPlan, pybaracuda.RoiPoolDescriptor(1, 1, h, w, 1, 1, 1)),
        (pybaracuda.RoiPoolBackwardPlan, pybaracuda.RoiPoolBackwardDescriptor(1, 1, h, w, 1, 1, 1)),
    ):
        if status == 0:
            assert plan.select(descriptor, preference=preference).can_implement()
            continue
        with pytest.raises(pybaracuda.InvalidProblemError, match=f"h w is {h * w} pixels; wanted at most 2147483647"):
            plan.select(descriptor, preference=preference)


def test_large_batch(place: Place, rng: np.random.Generator) -> None:
    """More images than a launch grid has in its second and third dimension: the bits of two smaller calls."""
    count, first, num_rois = 65_537, 40_000, 300
    case = random_case(rng, np.float32, 1.0, (count, 2, 3, 4), (1, 2), num_rois)
    case.boxes[:, 0] = np.sort(rng.integers(0, count, num_rois))
    case.boxes[-3:, 0] = count - 1
    output, argmax = forward(place, case)
    grad_input = backward(place, case, argmax)
    here = np.count_nonzero(case.boxes[:, 0] < first)
    for images, rois in ((slice(first), slice(here)), (slice(first, count), slice(here, num_rois))):
        boxes = case.boxes[rois] - np.array([images.start or 0, 0, 0, 0, 0], np.float32)
        alone = case._replace(input=case.input[images], boxes=boxes, grad_output=case.grad_output[rois])
        assert_same_bits(output[rois], forward(place, alone)[0])
        assert_same_bits(grad_input[images], backward(place, alone, argmax[rois]))


def test_many_boxes(place: Place, rng: np.random.Generator) -> None:
    """More boxes than a launch grid has in its second and third dimension: of integers two smaller calls add up."""
    count, first = 65_537, 40_000
    case = random_case(rng, np.float32, 1.0, (2, 1, 8, 8), (1, 2), count)
    case = case._replace(grad_output=integers(rng, case.grad_output.shape, np.float32, 1))
    output, argmax = forward(place, case)
    grad_input = backward(place, case, argmax)
    sums = np.zeros(grad_input.shape)
    for part in (slice(first), slice(first, count)):
        alone = case._replace(boxes=case.boxes[part], grad_output=case.grad_output[part])
        assert_same_bits(output[part], forward(place, alone)[0])
        sums += backward(place, alone, argmax[part])
    np.testing.assert_array_equal(grad_input, sums)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    shape=st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)),
    output_size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    rows=ANY_BOXES,
    scale=st.sampled_from([1.0, 0.5, 0.0625, float(np.float32(0.3)), -0.5]),
)
def test_any_boxes(
    seed: int,
    name: str,
    shape: tuple[int, int, int, int],
    output_size: tuple[int, int],
    rows: list[tuple[float, ...]],
    scale: float,
) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    case = PoolCase(
        normal(rng, shape, dtype),
        np.array(rows).reshape(-1, 5).astype(coordinate_dtype(dtype)),
        output_size,
        normal(rng, (len(rows), shape[1], *output_size), dtype),
        scale,
    )
    check(Place(), case)


ENVIRONMENTS = [
    {"BARACUDA_NUM_THREADS": threads, "BARACUDA_CPU_ISA": isa}
    for threads, isa in (("1", "portable"), ("3", "portable"), ("2", "avx2"), ("5", "avx512"))
]
HASHES = """
import hashlib, sys
import numpy as np
import pybaracuda
from verify.dtypes import DTYPES
digest = hashlib.sha256()
rng = np.random.default_rng(7)
for dtype in DTYPES.values():
    image = rng.standard_normal((2, 40, 30, 44)).astype(dtype)
    corners = rng.uniform(-10, 55, (400, 4))
    boxes = np.concatenate([rng.integers(0, 2, (400, 1)), corners], 1)
    boxes = boxes.astype(np.float64 if dtype == np.float64 else np.float32)
    output, argmax = pybaracuda.roi_pool(image, boxes, (5, 4), 0.9, return_argmax=True)
    gradient = rng.standard_normal(output.shape).astype(dtype)
    for each in (output, argmax, pybaracuda.roi_pool_backward(gradient, boxes, argmax, image.shape)):
        digest.update(each.tobytes())
print(digest.hexdigest())
"""


def test_threads_and_instruction_sets_do_not_change_bits() -> None:
    found = set()
    for variables in ENVIRONMENTS:
        environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", HASHES]
        found.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1


# Without torchvision there is no such comparison.
if available("torchvision"):

    @pytest.mark.parametrize("name", ["f32", "f64"])
    def test_torchvision_agrees_on_the_host(rng: np.random.Generator, name: str) -> None:
        """Where every box is whole and every pixel a number: elsewhere docs/differences.md says what differs."""
        torch, torchvision = importlib.import_module("torch"), importlib.import_module("torchvision")
        case = random_case(rng, DTYPES[name], 0.25, (2, 3, 19, 23), (5, 4), 60)
        image = torch.from_numpy(case.input).requires_grad_()
        theirs = torchvision.ops.roi_pool(image, torch.from_numpy(case.boxes), case.output_size, 0.25)
        output, argmax = forward(Place(), case)
        assert_same_bits(output, theirs.detach().numpy())
        theirs.backward(torch.from_numpy(case.grad_output))
        expected = oracle_backward(case, argmax)
        assert_within(backward(Place(), case, argmax), expected)
        assert_within(image.grad.numpy(), expected)
