# SPDX-License-Identifier: Apache-2.0
"""More than 2^31 elements: what becomes of an image among so many is what becomes of it among a few.

Batches come first, then rows as long as that, and sums over everything.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from large_problems import (
    DIFFERENT,
    PIECE,
    Batch,
    Calls,
    Operand,
    assert_repeated,
    few_and_large,
    fractions,
    log_probabilities,
    normal,
    pieces,
    poisoned,
    repeated,
    shape_of,
    uniform,
    whole,
)
from place import Place
from tolerance import assert_same_bits

import pybaracuda


def averaged(kernel_size: int, stride: int, calls: Calls, images: Any) -> None:
    output = calls(pybaracuda.avg_pool, images, kernel_size, stride, 1)
    calls(pybaracuda.avg_pool_backward, output, shape_of(images), kernel_size, stride, 1)


def averaged_adaptively(calls: Calls, images: Any) -> None:
    output = calls(pybaracuda.adaptive_avg_pool, images, 7, axes=2)
    calls(pybaracuda.adaptive_avg_pool_backward, output, shape_of(images), axes=2)


def maxima(kernel_size: int, stride: int, padding: int, calls: Calls, images: Any) -> None:
    output, indices = calls(pybaracuda.max_pool, images, kernel_size, stride, padding, return_indices=True)
    calls(pybaracuda.max_pool_backward, output, indices, shape_of(images), kernel_size, stride, padding)


def maxima_adaptively(calls: Calls, images: Any) -> None:
    output, indices = calls(pybaracuda.adaptive_max_pool, images, 7, True, axes=2)
    calls(pybaracuda.adaptive_max_pool_backward, output, indices, shape_of(images), axes=2)


def placed_maxima(calls: Calls, images: Any, samples: Any) -> None:
    output, indices = calls(pybaracuda.fractional_max_pool, images, 2, (64, 64), samples, True)
    calls(pybaracuda.fractional_max_pool_backward, output, indices, shape_of(images), 2)


def unpooled(extents: tuple[int, int], calls: Calls, images: Any, indices: Any) -> None:
    calls(pybaracuda.max_unpool, images, indices, extents)


def picked(calls: Calls, grad_output: Any, indices: Any) -> None:
    calls(pybaracuda.max_unpool_backward, grad_output, indices, axes=2)


def resized(mode: str, scale: float, antialias: bool, calls: Calls, images: Any) -> None:
    output = calls(pybaracuda.interpolate, images, None, scale, mode, antialias=antialias)
    calls(pybaracuda.interpolate_backward, output, shape_of(images), scale, mode, antialias=antialias)


def shuffled(factor: int, calls: Calls, images: Any) -> None:
    calls(pybaracuda.pixel_unshuffle, calls(pybaracuda.pixel_shuffle, images, factor), factor)


def sampled(mode: str, calls: Calls, images: Any, grid: Any) -> None:
    output = calls(pybaracuda.grid_sample, images, grid, mode, "border")
    calls(pybaracuda.grid_sample_backward, output, images, grid, mode, "border")


def mapped(extents: tuple[int, ...], calls: Calls, theta: Any) -> None:
    size = (shape_of(theta)[0], 1, *extents)
    calls(pybaracuda.affine_grid_backward, calls(pybaracuda.affine_grid, theta, size), size)


def aligned(bins: int, sampling_ratio: int, corners: list[list[float]], calls: Calls, images: Any) -> None:
    options = (1.0, sampling_ratio)
    boxes = calls.boxes(*corners)
    output = calls(pybaracuda.roi_align, images, boxes, bins, *options)
    calls(pybaracuda.roi_align_backward, output, boxes, shape_of(images), *options)
    calls(pybaracuda.roi_align_boxes_backward, output, images, boxes, *options)


def aligned_on_levels(calls: Calls, fine: Any, coarse: Any) -> None:
    # Boxes of at least 16 x 16 belong to the coarse maps.
    options = ((1.0, 0.5), 1, False, 0, 16, 1)
    boxes = calls.boxes(*CORNERS)
    output = calls(pybaracuda.roi_align_levels, (fine, coarse), boxes, 32, *options)
    calls(pybaracuda.roi_align_levels_backward, output, boxes, (shape_of(fine), shape_of(coarse)), *options)


def aligned_in_volumes(calls: Calls, volumes: Any) -> None:
    boxes = calls.boxes([1, 2, 0, 14, 15, 13], [0, 3, 2, 6, 9, 15], [4, 1, 1, 15, 12, 8])
    output = calls(pybaracuda.roi_align_3d, volumes, boxes, 16, 1.0, 1)
    calls(pybaracuda.roi_align_3d_backward, output, boxes, shape_of(volumes), 1.0, 1)


def pooled(calls: Calls, images: Any) -> None:
    boxes = calls.boxes(*WIDE_CORNERS)
    output, argmax = calls(pybaracuda.roi_pool, images, boxes, 7, return_argmax=True)
    calls(pybaracuda.roi_pool_backward, output, boxes, argmax, shape_of(images))


def aligned_by_place(calls: Calls, images: Any) -> None:
    boxes = calls.boxes(*WIDE_CORNERS)
    output = calls(pybaracuda.ps_roi_align, images, boxes, 8, 1.0, 2)
    calls(pybaracuda.ps_roi_align_backward, output, boxes, shape_of(images), 1.0, 2)


def pooled_by_place(calls: Calls, images: Any) -> None:
    boxes = calls.boxes(*WIDE_CORNERS)
    output = calls(pybaracuda.ps_roi_pool, images, boxes, 8)
    calls(pybaracuda.ps_roi_pool_backward, output, boxes, shape_of(images))


def deformed(calls: Calls, images: Any, offset: Any) -> None:
    columns = calls(pybaracuda.deform_im2col, images, offset, 3, 1, 1)
    calls(pybaracuda.deform_im2col_backward, columns, offset, shape_of(images), 3, 1, 1)
    calls(pybaracuda.deform_im2col_offset_backward, columns, images, offset, 3, 1, 1)


def scanned(name: str, calls: Calls, images: Any) -> None:
    function, backward = getattr(pybaracuda, name), getattr(pybaracuda, f"{name}_backward", None)
    for dim, reverse in ((-1, False), (1, True)):
        output = calls(function, images, dim, reverse=reverse)
        if backward is not None:
            calls(backward, images, images, output, dim, reverse=reverse)


def extrema(name: str, calls: Calls, images: Any) -> None:
    for dim, reverse in ((-1, False), (1, True)):
        values, indices = calls(getattr(pybaracuda, name), images, dim, reverse=reverse)
        calls(pybaracuda.cummaxmin_backward, values, indices, dim, reverse=reverse)
        del values, indices  # the next ones take as much memory


def put(calls: Calls, images: Any, others: Any) -> None:
    """Of every third image nobody takes the place."""
    numbers = np.arange(shape_of(images)[0])
    index = calls.place.array(np.where(numbers % DIFFERENT == 1, -1, numbers))
    calls(pybaracuda.index_copy, images, 0, index, others)


def bagged(mode: str, calls: Calls, table: Any) -> None:
    """Of every three bags of two positions each, in three rows of the table."""
    rows = calls.shifted([0, 2, 1, 1, 2, 0], DIFFERENT)
    offsets = calls.shifted([0, 2, 4], 2 * DIFFERENT)
    weights = calls.shifted([1, -0.5, 2, 0.25, -1, 3], 0, np.float16) if mode == "sum" else None
    counted = [0, DIFFERENT, 0, DIFFERENT] if mode == "max" else [0, DIFFERENT, 0]
    output, bag_ids, bag_sizes, *arg = calls(
        pybaracuda.embedding_bag, rows, table, offsets, mode, weights, return_bags=True, steps=counted
    )
    given = {"mean": {"bag_sizes": bag_sizes}, "sum": {"per_sample_weights": weights}, "max": {"arg": (*arg, None)[0]}}
    calls(pybaracuda.embedding_bag_backward, output, rows, bag_ids, shape_of(table)[0], mode, **given[mode])
    if mode == "sum":
        calls(pybaracuda.embedding_bag_weights_backward, output, table, rows, bag_ids)


def classified(calls: Calls, images: Any, target: Any) -> None:
    class_weights = calls.place.array(np.linspace(0.5, 2, shape_of(images)[1]).astype(np.float16))
    last = {"weight": class_weights, "reduction": "none"}
    output, total_weight, _ = calls(
        pybaracuda.nll_loss, images, target, **last, return_sums=True, along=[0, None, None]
    )
    calls(pybaracuda.nll_loss_backward, output, target, total_weight, shape_of(images), **last)


def classified_by_logits(calls: Calls, images: Any, target: Any) -> None:
    output, log_sum_exp, total_weight, _ = calls(
        pybaracuda.cross_entropy, images, target, reduction="none", return_sums=True, along=[0, 0, None, None]
    )
    calls(pybaracuda.cross_entropy_backward, output, images, target, log_sum_exp, total_weight, reduction="none")


def transcribed(calls: Calls, log_probs: Any, targets: Any) -> None:
    steps, labels = shape_of(log_probs)[0], shape_of(targets)[1]
    input_lengths = calls.shifted([steps, steps - 3, steps - 1], 0)
    given = (log_probs, targets, input_lengths, calls.shifted([labels, labels - 1, labels // 2], 0))
    losses, log_alpha = calls(pybaracuda.ctc_loss, *given, return_log_alpha=True)
    calls(pybaracuda.ctc_loss_backward, losses, *given, losses, log_alpha, along=[1])


def counted(calls: Calls, bins: Any, weights: Any) -> None:
    calls(pybaracuda.bincount, bins, weights, 100)


CORNERS = [[1, 2, 11, 12], [0, 5, 28, 31], [3, 1, 23, 21]]
WIDE_CORNERS = [[5, 7, 90, 101], [0, 20, 64, 127], [33, 3, 120, 40]]
IMAGES, FEW = Operand((64, 128, 128), normal), Operand((64, 64, 64), normal)
VOLUMES, SIGNALS = Operand((16, 32, 32, 64), normal), Operand((64, 2**14), normal)
WIDE, SMALL, PIXELS = Operand((4, 512, 512), normal), Operand((64, 32, 32), normal), 64 * 128 * 128
BATCHES = {
    "avg_pool": Batch([IMAGES], PIXELS, partial(averaged, 3, 2)),
    "avg_pool-1d": Batch([SIGNALS], PIXELS, partial(averaged, 3, 1)),
    "avg_pool-3d": Batch([VOLUMES], PIXELS, partial(averaged, 3, 1)),
    "adaptive_avg_pool": Batch([IMAGES], PIXELS, averaged_adaptively),
    "max_pool": Batch([IMAGES], PIXELS, partial(maxima, 2, 2, 0)),
    # As many indices as elements.
    "max_pool-1d": Batch([SIGNALS], PIXELS, partial(maxima, 3, 1, 1)),
    "max_pool-3d": Batch([VOLUMES], PIXELS, partial(maxima, 3, 2, 1)),
    "adaptive_max_pool": Batch([IMAGES], PIXELS, maxima_adaptively),
    "max_unpool": Batch([FEW, Operand(FEW.shape, whole(0, 128 * 128))], PIXELS, partial(unpooled, (128, 128))),
    # Planes of so many elements and places that who stays in a place is found in global memory.
    "max_unpool-wide": Batch([WIDE, Operand(WIDE.shape, whole(0, 256 * 256))], PIXELS, partial(unpooled, (256, 256))),
    "max_unpool-backward": Batch([IMAGES, Operand(IMAGES.shape, whole(0, 128 * 128))], PIXELS, picked),
    "fractional_max_pool": Batch([IMAGES, Operand((64, 2), fractions)], PIXELS, placed_maxima),
    **{
        f"interpolate-{mode}": Batch([FEW], PIXELS, partial(resized, mode, 2.0, False))
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
    },
    "interpolate-linear": Batch([Operand((64, 2**13), normal)], PIXELS, partial(resized, "linear", 2.0, False)),
    "interpolate-trilinear": Batch([VOLUMES], 8 * PIXELS, partial(resized, "trilinear", 2.0, False)),
    "interpolate-antialias": Batch([IMAGES], PIXELS, partial(resized, "bilinear", 0.5, True)),
    "interpolate-bicubic-antialias": Batch([IMAGES], PIXELS, partial(resized, "bicubic", 0.5, True)),
    "pixel_shuffle": Batch([IMAGES], PIXELS, partial(shuffled, 2)),
    # A factor that no vector of 16 bytes is made for.
    "pixel_shuffle-3": Batch([Operand((63, 128, 128), normal)], 63 * 128 * 128, partial(shuffled, 3)),
    **{
        f"grid_sample-{mode}": Batch([IMAGES, Operand((128, 128, 2), uniform)], PIXELS, partial(sampled, mode))
        for mode in ("bilinear", "nearest", "bicubic")
    },
    "grid_sample_3d": Batch([VOLUMES, Operand((32, 32, 64, 3), uniform)], PIXELS, partial(sampled, "bilinear")),
    # More than 2^32 elements, and more than 2^31.
    "affine_grid": Batch([Operand((2, 3), uniform)], 256 * 256, partial(mapped, (256, 256))),
    "affine_grid-3d": Batch([Operand((3, 4), uniform)], 32 * 64 * 64 * 3, partial(mapped, (32, 64, 64))),
    "roi_align": Batch([IMAGES], PIXELS, partial(aligned, 7, 2, WIDE_CORNERS)),
    # As many elements of the bins as of the images, here and in the two below.
    "roi_align-bins": Batch([SMALL], 64 * 32 * 32, partial(aligned, 32, 1, CORNERS)),
    "roi_align_levels": Batch([SMALL, Operand((64, 16, 16), normal)], 64 * 32 * 32, aligned_on_levels),
    "roi_align_3d": Batch([Operand((16, 16, 16, 16), normal)], 16 * 16 * 16 * 16, aligned_in_volumes),
    "roi_pool": Batch([IMAGES], PIXELS, pooled),
    "ps_roi_align": Batch([IMAGES], PIXELS, aligned_by_place),
    "ps_roi_pool": Batch([IMAGES], PIXELS, pooled_by_place),
    "deform_im2col": Batch(
        [Operand((16, 64, 64), normal), Operand((18, 64, 64), uniform)], 9 * 16 * 64 * 64, deformed
    ),
    **{name: Batch([IMAGES], PIXELS, partial(scanned, name)) for name in ("cumsum", "cumprod", "logcumsumexp")},
    **{name: Batch([IMAGES], PIXELS, partial(extrema, name)) for name in ("cummax", "cummin")},
    "index_copy": Batch([IMAGES, IMAGES], PIXELS, put),
    **{
        f"embedding_bag-{mode}": Batch([Operand((512,), normal)], 512, partial(bagged, mode))
        for mode in ("sum", "mean", "max")
    },
    "nll_loss": Batch([Operand((1024,), normal), Operand((), whole(0, 1024))], 1024, classified),
    "nll_loss-planes": Batch(
        [Operand((8, 2**16), normal), Operand((2**16,), whole(0, 8))], 8 * 2**16, classified
    ),
    "cross_entropy": Batch([Operand((1024,), normal), Operand((), whole(0, 1024))], 1024, classified_by_logits),
    "ctc_loss": Batch(
        [Operand((64, 512), log_probabilities, axis=1), Operand((16,), whole(1, 512))], 64 * 512, transcribed
    ),
    # As many beginnings of alignments; log_probs are few.
    "ctc_loss-alignments": Batch(
        [Operand((144, 8), log_probabilities, axis=1), Operand((64,), whole(1, 8))], 144 * 129, transcribed
    ),
    "bincount": Batch(
        [Operand((2**16,), whole(0, 100, np.int32)), Operand((2**16,), normal)], 2**16, counted
    ),
}  # fmt: skip


@few_and_large
@pytest.mark.parametrize("name", BATCHES)
def test_images_of_a_batch(name: str, is_large: bool, place: Place, rng: np.random.Generator) -> None:
    batch = BATCHES[name]
    batch.check(place, batch.repeats if is_large else 3, rng)


@few_and_large
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("columns", [1, 2])
def test_scans_that_come_back_to_where_they_began(
    columns: int, name: str, is_large: bool, place: Place, rng: np.random.Generator
) -> None:
    """Each piece of a row adds up to 0, or multiplies to 1, and every number on the way is held exactly."""
    if name == "cumsum":
        half = rng.integers(-3, 4, PIECE)
        piece = np.concatenate([half, 0 - half])
    else:
        piece = rng.choice([[2, 0.5], [-1, -1], [0.25, 4], [1, 1]], PIECE).ravel()
    piece = np.stack([np.roll(piece, 2 * number) for number in range(columns)], axis=1).astype(np.float16)
    repeats = pieces(is_large) // (2 * columns) + 1
    row = repeated(place, piece, repeats)
    for reverse in (False, True):
        order = slice(None, None, -1 if reverse else 1)
        wanted = getattr(np, name)(piece[order].astype(np.float64), axis=0)[order].astype(np.float16)
        out = repeated(place, Place().poisoned(piece.shape, np.float16, 0xFF), repeats)
        getattr(pybaracuda, name)(row, 0, reverse=reverse, out=out)
        assert_repeated(place, out, wanted)


@few_and_large
def test_the_largest_of_one_row(is_large: bool, place: Place) -> None:
    repeats = pieces(is_large)
    row = repeated(place, np.zeros((1, PIECE), np.int8), repeats, 1)
    row[0, -5] = 1
    values, indices = (poisoned(place, (1, repeats * PIECE), dtype) for dtype in (np.int8, np.int64))
    pybaracuda.cummax(row, 1, out=(values, indices))
    last = repeats * PIECE - 8
    assert place.numpy(values[0, -8:]).tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert place.numpy(indices[0, -8:]).tolist() == [last, last + 1, last + 2, *[last + 3] * 5]
    # Of equal elements the last one wins.
    assert_repeated(place, values[:, :-PIECE], np.zeros((1, PIECE), np.int8), 1)
    assert_repeated(place, indices[:, :-PIECE], np.arange(PIECE)[None], 1, PIECE)
    ones = np.ones((1, PIECE), np.float16)
    slopes = poisoned(place, (1, repeats * PIECE), np.float16)
    pybaracuda.cummaxmin_backward(repeated(place, ones, repeats, 1), indices, 1, out=slopes)
    assert place.numpy(slopes[0, -8:]).tolist() == [1, 1, 1, 5, 0, 0, 0, 0]
    assert_repeated(place, slopes[:, :-PIECE], ones, 1)


@few_and_large
def test_logarithms_of_sums_in_one_row(is_large: bool, place: Place) -> None:
    repeats = pieces(is_large)
    row = repeated(place, np.full((1, PIECE), -np.inf, np.float16), repeats, 1)
    row[0, 0] = row[0, -5] = 0
    out = poisoned(place, (1, repeats * PIECE), np.float16)
    pybaracuda.logcumsumexp(row, 1, out=out)
    two = float(np.log(2).astype(np.float16))
    assert place.numpy(out[0, -8:]).tolist() == [0, 0, 0, two, two, two, two, two]
    assert_repeated(place, out[:, :-PIECE], np.zeros((1, PIECE), np.float16), 1)


@few_and_large
def test_bins_of_one_row(is_large: bool, place: Place, rng: np.random.Generator) -> None:
    repeats, num_bins = pieces(is_large), 100
    bins = rng.integers(0, num_bins - 1, PIECE, np.int32)
    weights = rng.integers(-3, 4, PIECE, np.int32)
    weights[-1] = 2
    entries = repeated(place, bins, repeats)
    # The last entry alone names the last bin.
    entries[-1] = num_bins - 1
    out, extent = (place.poisoned(shape, dtype, 0xFF) for shape, dtype in (((num_bins,), np.int32), ((1,), np.int64)))
    pybaracuda.bincount(entries, repeated(place, weights, repeats), num_bins, return_extent=True, out=(out, extent))
    wanted = np.bincount(bins, weights, num_bins) * repeats
    wanted[bins[-1]] -= 2
    wanted[num_bins - 1] += 2
    assert_same_bits(place.numpy(out), wanted.astype(np.int32))
    assert place.numpy(extent).tolist() == [num_bins]


@few_and_large
def test_a_sum_of_losses(is_large: bool, place: Place) -> None:
    repeats = pieces(is_large)
    log_probs = repeated(place, np.zeros(PIECE, np.float16), repeats)
    log_probs[-5:] = -1
    target = repeated(place, np.zeros(PIECE, np.int32), repeats)
    target[-2:] = 7  # no class
    # There may be no more than 2^31 - 1 rows.
    log_probs, target = log_probs.reshape(repeats, 1, PIECE), target.reshape(repeats, PIECE)
    sums: list[tuple[tuple[int, ...], Any]] = [((), np.float16), ((1,), np.float32), ((1,), np.int32)]
    outs = tuple(place.poisoned(shape, dtype, 0xFF) for shape, dtype in sums)
    pybaracuda.nll_loss(log_probs, target, reduction="sum", return_sums=True, out=outs)
    # Halves are added up exactly but for the last sum, which is rounded.
    wanted = [[3], [float(np.float32(repeats * PIECE - 2))], [2]]
    assert [place.numpy(each).ravel().tolist() for each in outs] == wanted


@pytest.mark.parametrize("at", [(0, 3), (1, 40), (2, 119)])
def test_one_wrong_element_is_found(at: tuple[int, int], place: Place) -> None:
    piece = np.arange(30, dtype=np.int32).reshape(3, 10)
    for step in (0, 30):
        row = np.concatenate([piece + time * step for time in range(12)], axis=1)
        assert_repeated(place, place.array(row), piece, 1, step)
        row[at] += 1
        with pytest.raises(AssertionError):
            assert_repeated(place, place.array(row), piece, 1, step)
