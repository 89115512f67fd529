# SPDX-License-Identifier: Apache-2.0
"""Batches of more than 2^31 elements: what becomes of an image among them is what becomes of it in a small batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from place import Place
from tolerance import assert_same_bits

import pybaracuda
from verify.dtypes import Array

# Images that differ; a batch repeats them, so that its last ones stand in the small batch, too.
DIFFERENT = 3


class Operand(NamedTuple):
    """An operand that has one entry for each image: how one is drawn."""

    shape: tuple[int, ...]
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape, np.float32).astype(np.float16)


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.random(shape, np.float32) * np.float32(2.2) - np.float32(1.1)


def fractions(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 16, shape).astype(np.float16) / 16


def classes(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 1024, shape)


Run = Callable[[Place, Sequence[Any]], Sequence[Any]]


class Batch(NamedTuple):
    """Operands, how many images are more than 2^31 elements, and the calls: their results have an entry an image."""

    operands: Sequence[Operand]
    count: int
    run: Run


def shape_of(array: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in array.shape)


def averaged(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    output = pybaracuda.avg_pool(given[0], 3, 2, 1)
    return output, pybaracuda.avg_pool_backward(output, shape_of(given[0]), 3, 2, 1)


def averaged_adaptively(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    output = pybaracuda.adaptive_avg_pool(given[0], 7, axes=2)
    return output, pybaracuda.adaptive_avg_pool_backward(output, shape_of(given[0]), axes=2)


def maxima(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    output, indices = pybaracuda.max_pool(given[0], 2, return_indices=True)
    gradient = pybaracuda.max_pool_backward(output, indices, shape_of(given[0]), 2)
    return output, indices, gradient, pybaracuda.max_unpool(output, indices, (128, 128))


def placed_maxima(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    output, indices = pybaracuda.fractional_max_pool(given[0], 2, (64, 64), given[1], True)
    return output, pybaracuda.fractional_max_pool_backward(output, indices, shape_of(given[0]), 2)


def resized(mode: str, antialias: bool, place: Place, given: Sequence[Any]) -> Sequence[Any]:
    scale = 0.5 if antialias else 2.0
    output = pybaracuda.interpolate(given[0], None, scale, mode, antialias=antialias)
    back = pybaracuda.interpolate_backward(output, shape_of(given[0]), scale, mode, antialias=antialias)
    return output, back


def sampled(mode: str, place: Place, given: Sequence[Any]) -> Sequence[Any]:
    output = pybaracuda.grid_sample(*given, mode, "border")
    return output, *pybaracuda.grid_sample_backward(output, *given, mode, "border")


def one_box_each(place: Place, images: Any) -> Any:
    numbers = np.arange(shape_of(images)[0], dtype=np.float32)
    boxes = np.tile(np.array([0, 5, 7, 90, 101], np.float32), (len(numbers), 1))
    boxes[:, 0] = numbers
    return place.array(boxes)


def aligned(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    boxes = one_box_each(place, given[0])
    output = pybaracuda.roi_align(given[0], boxes, 7, 1.0, 2)
    return output, pybaracuda.roi_align_backward(output, boxes, shape_of(given[0]), 1.0, 2)


def pooled(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    boxes = one_box_each(place, given[0])
    output, argmax = pybaracuda.roi_pool(given[0], boxes, 7, return_argmax=True)
    return output, pybaracuda.roi_pool_backward(output, boxes, argmax, shape_of(given[0]))


def aligned_by_place(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    boxes = one_box_each(place, given[0])
    output = pybaracuda.ps_roi_align(given[0], boxes, 8, 1.0, 2)
    return output, pybaracuda.ps_roi_align_backward(output, boxes, shape_of(given[0]), 1.0, 2)


def deformed(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    image, offset = given
    columns = pybaracuda.deform_im2col(image, offset, 3, 1, 1)
    of_image = pybaracuda.deform_im2col_backward(columns, offset, shape_of(image), 3, 1, 1)
    of_offset = pybaracuda.deform_im2col_offset_backward(columns, image, offset, 3, 1, 1)
    return columns, of_image, *(of_offset if isinstance(of_offset, tuple) else (of_offset,))


def summed(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    return pybaracuda.cumsum(given[0], -1), pybaracuda.cumsum(given[0], 1, reverse=True)


def put(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    """Of every third image nobody takes the place."""
    numbers = np.arange(shape_of(given[0])[0])
    index = place.array(np.where(numbers % DIFFERENT == 1, -1, numbers))
    return (pybaracuda.index_copy(given[0], 0, index, given[1]),)


def classified(place: Place, given: Sequence[Any]) -> Sequence[Any]:
    return (pybaracuda.cross_entropy(*given, reduction="none"),)


IMAGES, FEW = Operand((64, 128, 128), normal), Operand((64, 64, 64), normal)
MANY = 2**31 // (64 * 128 * 128) + DIFFERENT
BATCHES = {
    "avg_pool": Batch([IMAGES], MANY, averaged),
    "adaptive_avg_pool": Batch([IMAGES], MANY, averaged_adaptively),
    "max_pool": Batch([IMAGES], MANY, maxima),
    "fractional_max_pool": Batch([IMAGES, Operand((64, 2), fractions)], MANY, placed_maxima),
    **{
        f"interpolate-{mode}": Batch([FEW], MANY, partial(resized, mode, False))
        for mode in ("nearest", "bilinear", "bicubic")
    },
    "interpolate-antialias": Batch([IMAGES], MANY, partial(resized, "bilinear", True)),
    **{
        f"grid_sample-{mode}": Batch([IMAGES, Operand((128, 128, 2), uniform)], MANY, partial(sampled, mode))
        for mode in ("bilinear", "nearest", "bicubic")
    },
    "grid_sample_3d": Batch(
        [Operand((16, 32, 32, 64), normal), Operand((32, 32, 64, 3), uniform)], MANY, partial(sampled, "bilinear")
    ),
    "roi_align": Batch([IMAGES], MANY, aligned),
    "roi_pool": Batch([IMAGES], MANY, pooled),
    "ps_roi_align": Batch([IMAGES], MANY, aligned_by_place),
    "deform_im2col": Batch(
        [Operand((16, 64, 64), normal), Operand((18, 64, 64), uniform)],
        2**31 // (9 * 16 * 64 * 64) + DIFFERENT,
        deformed,
    ),
    "cumsum": Batch([IMAGES], MANY, summed),
    "index_copy": Batch([IMAGES, IMAGES], MANY, put),
    "cross_entropy": Batch([Operand((1024,), normal), Operand((), classes)], 2**21 + DIFFERENT, classified),
}


@pytest.mark.large
@pytest.mark.parametrize("name", BATCHES)
def test_images_of_a_large_batch(name: str, place: Place, rng: np.random.Generator) -> None:
    batch = BATCHES[name]
    small = [operand.draw(rng, (DIFFERENT, *operand.shape)) for operand in batch.operands]
    expected = [place.numpy(result) for result in batch.run(place, [place.array(each) for each in small])]
    repeated = (np.arange(batch.count) % DIFFERENT for _ in small)
    found = batch.run(place, [place.array(each[order]) for each, order in zip(small, repeated, strict=True)])
    for result, wanted in zip(found, expected, strict=True):
        images = place.numpy(result)
        assert len(images) == batch.count
        for at in (0, 1, batch.count // 2, batch.count - 2, batch.count - 1):
            assert_same_bits(images[at], wanted[at % DIFFERENT])
