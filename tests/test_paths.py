# SPDX-License-Identifier: Apache-2.0
"""Which path a call took, as the library says it: known problems of every family take the paths that are made for them.

The problems are the smallest that tell paths apart; what calls a path is for stands at the head of its family's
dispatch file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pybaracuda
from pybaracuda import _library

Make = Callable[[Any], Any]
Pad = int | tuple[int, int]
IDS = np.array([2, 0, 2, 1, 0], np.int32)
MANY_IDS = np.arange(1 << 18, dtype=np.int32) % 140_000


def ones(*shape: int, dtype: Any = np.float32) -> Any:
    return np.ones(shape, dtype)


def boxes(count: int = 1) -> Any:
    return np.tile(np.array([[0, 4, 4, 40, 36]], np.float32), (count, 1))


def roi_backward(side: int, count: int = 1) -> Make:
    return lambda place: pybaracuda.roi_align_backward(
        place(ones(count, 4, side, side)), place(boxes(count)), (1, 4, 64, 64), sampling_ratio=2
    )


def roi_forward(side: int) -> Make:
    return lambda place: pybaracuda.roi_align(place(ones(1, 4, 64, 64)), place(boxes()), (side, side))


def roi_pool_backward(channels: int, side: int = 7, count: int = 1) -> Make:
    return lambda place: pybaracuda.roi_pool_backward(
        place(ones(count, channels, side, side)),
        place(boxes(count)),
        place(np.zeros((count, channels, side, side), np.int32)),
        (1, channels, 64, 64),
    )


def grid_backward(channels: int, size: int = 16, samples: int = 32) -> Make:
    return lambda place: pybaracuda.grid_sample_backward(
        place(ones(1, channels, samples, samples)),
        place(ones(1, channels, size, size)),
        place(np.zeros((1, samples, samples, 2), np.float32)),
    )


def volume_backward(mask: tuple[bool, bool], samples: int = 4) -> Make:
    return lambda place: pybaracuda.grid_sample_backward(
        place(ones(1, 3, samples, 4, 4)),
        place(ones(1, 3, 5, 9, 9)),
        place(np.zeros((1, samples, 4, 4, 3), np.float32)),
        output_mask=mask,
    )


def nearest_volume_backward(place: Any) -> Any:
    grid = np.zeros((1, 4, 4, 4, 3), np.float32)
    arrays = (ones(1, 3, 4, 4, 4), ones(1, 3, 5, 9, 9), grid)
    return pybaracuda.grid_sample_backward(*map(place, arrays), mode="nearest")


def volume_forward(place: Any) -> Any:
    return pybaracuda.grid_sample(place(ones(1, 3, 4, 4, 4)), place(np.zeros((1, 2, 2, 2, 3), np.float32)))


def grid_forward(channels: int, dtype: Any = np.float32) -> Make:
    return lambda place: pybaracuda.grid_sample(
        place(ones(1, channels, 16, 16, dtype=dtype)), place(np.zeros((1, 8, 8, 2), dtype))
    )


def pad(shape: tuple[int, ...], pads: tuple[Pad, Pad], mode: str = "constant", dtype: Any = np.float32) -> Make:
    return lambda place: pybaracuda.pad(place(ones(*shape, dtype=dtype)), *pads, mode=mode)


def pad_backward(shape: tuple[int, ...], pads: tuple[Pad, Pad], mode: str) -> Make:
    return lambda place: pybaracuda.pad_backward(place(ones(*shape)), *pads, mode=mode)


def mean(*shape: int) -> Make:
    return lambda place: pybaracuda.avg_pool(place(ones(*shape)), 2)


def mean_backward(width: int, kernel: int = 2) -> Make:
    bins = width // kernel
    return lambda place: pybaracuda.avg_pool_backward(place(ones(1, 1, bins)), (1, 1, width), kernel)


def max_backward(width: int, kernel: int = 2, stride: int = 2) -> Make:
    bins = (1, 1, max((width - kernel) // stride + 1, 0))
    return lambda place: pybaracuda.max_pool_backward(
        place(ones(*bins)), place(np.zeros(bins, np.int64)), (1, 1, width), kernel, stride
    )


def placed(width: int, bins: int) -> Make:
    samples = np.full((1, 1, 2), 0.5, np.float32)
    return lambda place: pybaracuda.fractional_max_pool(place(ones(1, 1, 4, width)), 2, (2, bins), place(samples))


def placed_backward(width: int, bins: int, kernel: int = 2) -> Make:
    shape = (1, 1, 2, bins)
    return lambda place: pybaracuda.fractional_max_pool_backward(
        place(ones(*shape)), place(np.zeros(shape, np.int64)), (1, 1, 4, width), (2, kernel)
    )


def unpooled(elements: int, places: int) -> Make:
    shape = (1, 1, elements)
    return lambda place: pybaracuda.max_unpool(place(ones(*shape)), place(np.zeros(shape, np.int64)), places)


def unpool_backward(elements: int, places: int) -> Make:
    return lambda place: pybaracuda.max_unpool_backward(
        place(ones(1, 1, places)), place(np.zeros((1, 1, elements), np.int64))
    )


def labelled(labels: int) -> Make:
    integers = (np.zeros((1, labels), np.int64), np.array([2]), np.array([labels]))
    return lambda place: pybaracuda.ctc_loss(place(ones(2, 1, 3)), *map(place, integers), 1)


def label_gradient(labels: int) -> Make:
    integers = (np.zeros((1, labels), np.int64), np.array([2]), np.array([labels]))
    sums = ones(1), ones(1, 2, 2 * labels + 1)
    return lambda place: pybaracuda.ctc_loss_backward(
        place(ones(1)), place(ones(2, 1, 3)), *map(place, (*integers, *sums)), 1
    )


def weighed(entries: int) -> Make:
    return lambda place: pybaracuda.bincount(place(np.zeros(entries, np.int64)), place(ones(entries)), 3)


def copied(rows: int, in_place: bool = False) -> Make:
    def make(place: Any) -> Any:
        input, source = place(ones(5, 2)), place(ones(rows, 2))
        index = place(np.zeros(rows, np.int64))
        return pybaracuda.index_copy(input, 0, index, source, out=input if in_place else None)

    return make


def dequantize(inner: int) -> Make:
    return lambda place: pybaracuda.dequantize_per_channel(
        place(ones(2, 8, inner, dtype=np.int8)), place(ones(8)), place(ones(8, dtype=np.int32)), 1
    )


def deform(place: Any) -> Any:
    arrays = ones(1, 4, 8, 8), np.zeros((1, 2, 8, 8), np.float32)
    return pybaracuda.deform_im2col(*map(place, arrays), 1)


def deform_backward(place: Any) -> Any:
    arrays = ones(1, 4, 64), np.zeros((1, 2, 8, 8), np.float32)
    return pybaracuda.deform_im2col_backward(*map(place, arrays), (1, 4, 8, 8), 1)


def deform_offset_backward(channels: int, stride: int = 1) -> Make:
    """One tap at every `stride`-th pixel of 8 x 8."""
    side = 8 // stride
    arrays = ones(1, channels, side**2), ones(1, channels, 8, 8), np.zeros((1, 2, side, side), np.float32)
    return lambda place: pybaracuda.deform_im2col_offset_backward(*map(place, arrays), 1, stride)


def segment_sum(ids: Any, segments: int = 3, **options: Any) -> Make:
    return lambda place: pybaracuda.segment_sum(place(ones(5, 3)), place(ids), segments, **options)


def selected(name: str, length: int, dtype: Any = np.float32) -> Make:
    rank = (1,) if name == "kthvalue" else ()
    return lambda place: getattr(pybaracuda, name)(place(ones(2, length, dtype=dtype)), *rank)


def selected_gradient(place: Any) -> Any:
    places = place(np.zeros(3, np.int64))
    return pybaracuda.value_selecting_reduction_backward(place(ones(3)), places, (3, 5))


def counted(bins: int) -> Make:
    return lambda place: pybaracuda.histc(place(ones(9)), bins)


CPU = {
    "roi_align": (roi_forward(7), "bins"),
    "roi_align_backward": (roi_backward(7), "tiles"),
    "roi_align_backward, no boxes": (roi_backward(7, 0), "zeros"),
    "roi_pool_backward": (roi_pool_backward(8), "planes"),
    "roi_pool_backward, no boxes": (roi_pool_backward(8, count=0), "zeros"),
    "grid_sample": (grid_forward(3), "samples"),
    "grid_sample_backward, 3 channels": (grid_backward(3), "narrow tiles"),
    "grid_sample_backward, 4 channels": (grid_backward(4), "narrow tiles"),
    "grid_sample_backward, 5 channels": (grid_backward(5), "tiles"),
    "grid_sample_backward, no samples": (grid_backward(3, samples=0), "zeros"),
    "grid_sample of volumes": (volume_forward, "samples"),
    "grid_sample_backward of volumes": (volume_backward((True, True)), "lists"),
    "grid_sample_backward of volumes, of the grid": (volume_backward((False, True)), "slopes"),
    "grid_sample_backward of volumes, no samples": (volume_backward((True, True), 0), "zeros"),
    "affine_grid": (lambda place: pybaracuda.affine_grid(place(ones(1, 2, 3)), (1, 1, 4, 4)), "rows"),
    "affine_grid_backward": (
        lambda place: pybaracuda.affine_grid_backward(place(ones(1, 4, 4, 2)), (1, 1, 4, 4)),
        "chunks",
    ),
    "affine_grid of volumes": (
        lambda place: pybaracuda.affine_grid(place(ones(1, 3, 4)), (1, 1, 2, 4, 4)),
        "rows",
    ),
    "affine_grid_backward of volumes": (
        lambda place: pybaracuda.affine_grid_backward(place(ones(1, 2, 4, 4, 3)), (1, 1, 2, 4, 4)),
        "chunks",
    ),
    "pad": (pad((4, 8), (1, 1)), "dense rows"),
    "pad, large": (pad((6, 1 << 20), (1, 1)), "streamed rows"),
    "pad, strided": (
        lambda place: pybaracuda.pad(place(ones(4, 8))[:, ::2], 1, 1),
        "strided rows",
    ),
    "pad_backward": (pad_backward((8, 12), (2, 2), "reflect"), "dense rows"),
    "avg_pool": (mean(1, 2, 4, 6), "rows"),
    "avg_pool_backward": (mean_backward(8), "kept"),
    "adaptive_avg_pool_backward, windows that overlap": (
        lambda place: pybaracuda.adaptive_avg_pool_backward(place(ones(1, 1, 8)), (1, 1, 4), axes=1),
        "rows",
    ),
    "max_pool": (lambda place: pybaracuda.max_pool(place(ones(1, 2, 4, 6)), 2), "columns"),
    "max_pool, far apart": (lambda place: pybaracuda.max_pool(place(ones(1, 2, 64)), 2, 17), "windows"),
    "adaptive_max_pool": (lambda place: pybaracuda.adaptive_max_pool(place(ones(1, 2, 4, 6)), 2), "columns"),
    "max_pool_backward": (max_backward(8), "planes"),
    "max_pool_backward, no windows": (max_backward(1), "zeros"),
    "fractional_max_pool": (placed(16, 8), "places"),
    "fractional_max_pool, far apart": (placed(160, 8), "windows"),
    "fractional_max_pool_backward": (placed_backward(16, 8), "planes"),
    "fractional_max_pool_backward, no windows": (placed_backward(16, 0), "zeros"),
    "max_unpool": (unpooled(100, 200), "planes"),
    "max_unpool_backward": (unpool_backward(100, 200), "elements"),
    "ctc_loss": (labelled(3), "sequences"),
    "ctc_loss_backward": (label_gradient(3), "sequences"),
    "kthvalue": (selected("kthvalue", 32768), "rows"),
    "kthvalue, long rows": (selected("kthvalue", 32769), "long rows"),
    "median, long rows": (selected("median", 16385, np.float64), "long rows"),
    "mode": (selected("mode", 16384), "rows"),
    "mode, long rows": (selected("mode", 16385), "long rows"),
    "value_selecting_reduction_backward": (selected_gradient, "rows"),
    "histc": (counted(100), "parts"),
    "bincount": (weighed(5), "blocks"),
    "bincount, more than a block": (weighed(4097), "groups"),
    "index_copy": (copied(3), "rows"),
    "index_copy in place": (copied(3, True), "rows"),
    "dequantize, long runs": (dequantize(256), "runs"),
    "dequantize, short runs": (dequantize(255), "blocks"),
    "dequantize, runs of one": (dequantize(1), "channels"),
    "segment_sum": (segment_sum(IDS), "list"),
    "segment_sum, sorted ids": (segment_sum(np.sort(IDS), indices_are_sorted=True), "presorted"),
    "segment_sum_backward": (
        lambda place: pybaracuda.segment_sum_backward(place(ones(3, 3)), place(IDS)),
        "map",
    ),
}

CUDA = {
    "roi_align": (roi_forward(7), "windows"),
    "roi_align, 33 bins a side": (roi_forward(33), "columns"),
    "roi_align_backward": (roi_backward(7), "tiles"),  # of compute capability 9.0 and above
    "roi_align_backward, 17 bins a side": (roi_backward(17), "pixels"),
    "roi_pool_backward": (roi_pool_backward(8), "tiles"),
    "roi_pool_backward, few channels": (roi_pool_backward(7), "bands of few"),
    "roi_pool_backward, an even number of bins": (roi_pool_backward(8, 6), "bands of few"),
    "roi_pool_backward, no boxes": (roi_pool_backward(8, count=0), "zeros"),
    "grid_sample, f64": (grid_forward(64, np.float64), "samples"),
    "grid_sample_backward, 3 channels": (grid_backward(3), "narrow tiles"),
    "grid_sample_backward, no samples": (grid_backward(3, samples=0), "zeros"),
    "grid_sample of volumes": (volume_forward, "samples"),
    "grid_sample_backward of volumes": (volume_backward((True, True)), "tiles"),
    "grid_sample_backward of volumes, nearest": (nearest_volume_backward, "nearest"),
    "grid_sample_backward of volumes, of the grid": (volume_backward((False, True)), "slopes"),
    "deform_im2col": (deform, "samples"),
    "deform_im2col_backward": (deform_backward, "lists"),
    "deform_im2col_offset_backward": (deform_offset_backward(4), "laid slopes"),
    "deform_im2col_offset_backward, 3 channels": (deform_offset_backward(3), "slopes"),
    "deform_im2col_offset_backward, few samples": (deform_offset_backward(4, 4), "slopes"),
    "affine_grid": (CPU["affine_grid"][0], "narrow index"),
    "affine_grid_backward": (CPU["affine_grid_backward"][0], "chunks"),
    "affine_grid of volumes": (CPU["affine_grid of volumes"][0], "narrow index"),
    "affine_grid_backward of volumes": (CPU["affine_grid_backward of volumes"][0], "chunks"),
    "pad, short rows": (pad((64, 6), ((0, 1), (0, 1))), "short rows"),
    "pad, filled": (pad((64, 1021), ((0, 1), (0, 2))), "filled rows"),
    "pad, folded": (pad((64, 1021), ((0, 1), (0, 2)), "reflect"), "folded rows"),
    "avg_pool": (mean(1, 2, 4, 6), "small windows"),
    "avg_pool, wider windows": (lambda place: pybaracuda.avg_pool(place(ones(1, 1, 8)), 4), "rows"),
    "avg_pool, long windows": (lambda place: pybaracuda.avg_pool(place(ones(1, 1, 300)), 300), "elements"),
    "adaptive_avg_pool": (lambda place: pybaracuda.adaptive_avg_pool(place(ones(1, 16, 16)), (2, 2)), "tall windows"),
    "avg_pool_backward": (mean_backward(8), "strips"),
    "avg_pool_backward, odd rows": (mean_backward(9), "rows"),
    "avg_pool_backward, one window": (mean_backward(8, 8), "single windows"),
    "avg_pool_backward, three by two": (
        lambda place: pybaracuda.avg_pool_backward(place(ones(1, 1, 2, 3)), (1, 1, 5, 8), 3, 2),
        "halving",
    ),
    "adaptive_avg_pool_backward": (
        lambda place: pybaracuda.adaptive_avg_pool_backward(place(ones(1, 2, 2)), (1, 16, 16), axes=2),
        "equal rows",
    ),
    "max_pool": (lambda place: pybaracuda.max_pool(place(ones(1, 2, 4, 6)), 2), "small windows"),
    "max_pool, wider windows": (lambda place: pybaracuda.max_pool(place(ones(1, 1, 8)), 4), "few windows"),
    "adaptive_max_pool": (lambda place: pybaracuda.adaptive_max_pool(place(ones(1, 16, 16)), (2, 2)), "tall windows"),
    "max_pool_backward": (max_backward(8), "tiles"),
    "max_pool_backward, odd rows": (max_backward(9), "tiles"),
    "max_pool_backward, three by two": (
        lambda place: pybaracuda.max_pool_backward(
            place(ones(1, 1, 2, 3)), place(np.zeros((1, 1, 2, 3), np.int64)), (1, 1, 5, 8), 3, 2
        ),
        "halving",
    ),
    "max_pool_backward, windows everywhere": (max_backward(8, 3, 1), "strips"),
    "max_pool_backward, wide windows everywhere": (max_backward(32, 9, 1), "vectors"),
    "max_pool_backward, odd rows of them": (max_backward(33, 9, 1), "few elements"),
    "max_pool_backward, no windows": (max_backward(1), "zeros"),
    "fractional_max_pool": (placed(16, 8), "few windows"),
    "fractional_max_pool_backward": (placed_backward(16, 8), "tiles"),
    "fractional_max_pool_backward, odd rows": (placed_backward(17, 8), "tiles"),
    "fractional_max_pool_backward, wide windows": (placed_backward(64, 25, 40), "vectors"),
    "fractional_max_pool_backward, odd rows of them": (placed_backward(65, 26, 40), "few elements"),
    "fractional_max_pool_backward, no windows": (placed_backward(16, 0), "zeros"),
    "max_unpool": (unpooled(100, 200), "blocks"),
    "max_unpool, large planes": (unpooled(100, 200_000), "blocks"),
    "max_unpool, many elements": (unpooled(70_000, 40_000), "few winners"),
    "max_unpool, no elements": (unpooled(0, 9), "zeros"),
    "max_unpool_backward": (unpool_backward(100, 200), "few elements"),
    "max_unpool_backward, no places": (unpool_backward(100, 0), "zeros"),
    "ctc_loss": (labelled(511), "few states"),
    "ctc_loss, long targets": (labelled(512), "many states"),
    "ctc_loss_backward": (label_gradient(511), "few states"),
    "ctc_loss_backward, long targets": (label_gradient(512), "many states"),
    "kthvalue": (selected("kthvalue", 32), "short rows"),
    "kthvalue, rows": (selected("kthvalue", 33), "rows"),
    "median, rows": (selected("median", 12_288), "rows"),
    # Of no device has a block so much shared memory.
    "nanmedian, long rows": (selected("nanmedian", 65_536), "long rows"),
    "mode": (selected("mode", 32), "short rows"),
    "mode, rows": (selected("mode", 5000), "rows"),
    "mode, long rows": (selected("mode", 32_768), "long rows"),
    "value_selecting_reduction_backward": (selected_gradient, "scatter"),
    "histc": (counted(12_288), "blocks"),
    "histc, many bins": (counted(12_289), "bins"),
    "bincount": (weighed(4096), "one block"),
    "bincount, more than a block": (weighed(4097), "one group"),
    "bincount, more than a group": (weighed(262_145), "groups"),
    "index_copy": (copied(2880), "few entries"),
    "index_copy in place": (copied(2880, True), "few entries"),
    "index_copy, many rows": (copied(2881), "merged"),
    "index_copy, many rows in place": (copied(2881, True), "in place"),
    "dequantize, runs": (dequantize(256), "two channels a vector"),
    "dequantize, short runs": (dequantize(2), "any channels"),
    "segment_sum": (segment_sum(IDS), "list"),
    "segment_sum of elements": (
        lambda place: pybaracuda.segment_sum(place(ones(1 << 18, 1)), place(MANY_IDS), 140_000),
        "elements",
    ),
    "segment_sum, sorted ids": (segment_sum(np.sort(IDS), indices_are_sorted=True), "presorted"),
    "segment_sum_backward": (CPU["segment_sum_backward"][0], "map"),
    "segment_max": (lambda place: pybaracuda.segment_max(place(ones(5, 3)), place(IDS), 3), "table"),
}


@pytest.mark.parametrize("name", list(CPU))
def test_known_problems_take_their_path_on_the_cpu(name: str) -> None:
    call, path = CPU[name]
    call(np.asarray)
    assert pybaracuda.last_path("cpu") == path


@pytest.mark.parametrize("name", list(CUDA))
def test_known_problems_take_their_path_on_a_gpu(name: str) -> None:
    if _library.backend_problem("cuda"):
        pytest.skip("no CUDA")
    torch = pytest.importorskip("torch", reason="no torch")
    call, path = CUDA[name]
    if name == "roi_align_backward" and torch.cuda.get_device_capability() < (9, 0):
        path = "pixels"
    call(lambda array: torch.from_numpy(np.ascontiguousarray(array)).cuda())
    assert pybaracuda.last_path("cuda") == path


def test_what_a_thread_has_not_called_it_is_not_told() -> None:
    CPU["segment_sum"][0](np.asarray)
    seen: list[str] = []

    def other() -> None:
        seen.append(pybaracuda.last_path("cpu"))
        CPU["pad"][0](np.asarray)
        seen.append(pybaracuda.last_path("cpu"))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == ["", "dense rows"]
    assert pybaracuda.last_path("cpu") == "list"


def test_calls_that_do_nothing_take_no_path_and_calls_that_fail_leave_the_last() -> None:
    call = CPU["segment_sum"][0]
    call(np.asarray)
    with pytest.raises(pybaracuda.InvalidProblemError):
        pybaracuda.roi_align(ones(1, 1, 4, 4), boxes(), (-1, 1))
    library = pybaracuda.raw("cpu")
    assert library.baracuda_kernels_roi_align_f32_run(*[-1] * 7, 1.0, 2, 1, None, None, None, None, 0, None) == 2
    assert library.baracuda_kernels_roi_align_f32_workspace_size(1, 1, 4, 4, 1, 1, 1, 1.0, 2, 1) > 0
    assert pybaracuda.last_path("cpu") == "list"
    assert pybaracuda.roi_align(ones(1, 1, 4, 4), boxes(0), (1, 1)).size == 0
    assert pybaracuda.last_path("cpu") == ""


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(ValueError, match="backend is 'tpu'"):
        pybaracuda.last_path("tpu")
