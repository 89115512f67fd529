# SPDX-License-Identifier: Apache-2.0
"""Every function of pybaracuda.jax beside the array function, with the gradient that the array functions compute."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np

NUM_SEGMENTS = 6
NUM_ROWS = 40
FLOATS: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}


def wide(dtype: Any) -> AbstractContextManager[Any]:
    """JAX's 64-bit mode where a dtype needs it."""
    if np.dtype(dtype).itemsize < 8:
        return nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


def wide_for_indices(name: str) -> AbstractContextManager[Any]:
    """JAX's 64-bit mode for a case with indices where older JAXs need it under `disable_jit`: see docs/jax.md."""
    pools = ("max_pool", "adaptive_max_pool", "fractional_max_pool", "max_unpool")
    has_indices = name.startswith((*pools, "cummax", "cummin", "kthvalue", "median", "nanmedian", "mode"))
    return wide(np.int64) if has_indices and jax.__version_info__ < (0, 5) else nullcontext()


def fixed(rng: np.random.Generator) -> SimpleNamespace:
    """What has no gradient: boxes, ids, offsets, quantized values."""
    ids = rng.integers(-1, NUM_SEGMENTS + 1, NUM_ROWS).astype(np.int32)
    corners = rng.uniform(-1, 8, (5, 4)).astype(np.float32)
    corners[0] = [*rng.uniform(0, 1, 2), *rng.uniform(2, 3, 2)]  # one that is on the map, and not reversed
    low = rng.uniform(-1, 6, (5, 3))
    low[0] = rng.uniform(0, 1, 3)  # as above
    boxes_3d = np.concatenate([[[0], [1], [1], [7], [0]], low, low + rng.uniform(1, 4, (5, 3))], 1)
    return SimpleNamespace(
        boxes=np.concatenate([np.array([[0], [1], [1], [7], [0]], np.float32), corners], 1),
        boxes_3d=boxes_3d.astype(np.float32),
        ids=ids,
        sorted_ids=np.sort(ids),
        offsets=np.sort(rng.integers(0, NUM_ROWS + 1, NUM_SEGMENTS + 1)).astype(np.int32),
        quantized=rng.integers(-128, 128, (3, 4, 5)).astype(np.int8),
        # Every element of a plane of 4 x 5 has a place of its own in one of 8 x 10.
        places=np.argsort(rng.random((2, 3, 80)), axis=-1)[:, :, :20].reshape(2, 3, 4, 5),
        # Sixteenths, which every dtype holds.
        samples=rng.integers(0, 16, (2, 3, 2)) / 16,
        samples_3d=rng.integers(0, 16, (2, 3, 3)) / 16,
        zero_point=rng.integers(-9, 9, 4).astype(np.int32),
        # Rows of a table of five, one of them none, in bags of which one is empty.
        words=rng.integers(0, 6, 12).astype(np.int32),
        begins=np.array([0, 4, 4, 7], np.int32),
        bag_ids=np.repeat([0, 2, 3], [4, 3, 5]).astype(np.int32),
        # One of them is ignored.
        targets=rng.integers(-1, 4, (3, 5)).astype(np.int32),
        weights=np.array([0.5, 1.25, 2.0, 0.75]),
    )


class Case(NamedTuple):
    """`call(m, d, *x)` runs the function of module m on what has a gradient, `backward(m, d, g, y, *x)` the array
    functions' gradients of it."""

    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Any]
    backward: Callable[..., Any] | None
    # Whether forward mode is linear in x: then J(x) x is the function without its constants.
    is_linear: bool = False


def _gradient_of_scales(m: Any, d: Any, g: Any, y: Any, scale: Any) -> Any:
    """A sum over each channel in row-major order, of products in the sums' own dtype."""
    sums = np.float64 if scale.dtype == np.float64 else np.float32
    steps = np.moveaxis(d.quantized, 1, -1).astype(np.int32) - d.zero_point
    rows = (steps.astype(sums) * np.moveaxis(g, 1, -1).astype(sums)).reshape(-1, 4)
    return m.segment_sum(rows, np.zeros(len(rows), np.int32), 1, indices_are_sorted=True)[0].astype(scale.dtype)


def _gradient_of_bags(mode: str, m: Any, d: Any, g: Any, y: Any, x: Any) -> Any:
    _, ids, sizes, *arg = m.embedding_bag(d.words, x, d.begins, mode, padding_idx=1, return_bags=True)
    given = {"mean": {"bag_sizes": sizes}, "max": {"arg": arg[0] if arg else None}}.get(mode, {})
    return m.embedding_bag_backward(g, d.words, ids, 5, mode, **given, padding_idx=1)


def gradient_of_copied_rows(g: Any, dim: int, index: Any, n: int) -> Any:
    """The gradient of a place goes to the last row that stands there by the index, of n; the others have none."""
    found = np.zeros((*g.shape[:dim], n, *g.shape[dim + 1 :]), g.dtype)
    rows, places = np.moveaxis(found, dim, 0), np.moveaxis(g, dim, 0)
    for place in range(g.shape[dim]):
        rows[np.flatnonzero(index == place)[-1:]] = places[place]
    return found


def _gradient_of_copies(m: Any, d: Any, g: Any, y: Any, x: Any, source: Any) -> Any:
    by_input = m.index_copy(g, 1, d.ids, np.zeros(source.shape, source.dtype))
    return by_input, gradient_of_copied_rows(g, 1, d.ids, NUM_ROWS)


def _padding(mode: str, low: Any, high: Any) -> Case:
    value = 2.5 if mode == "constant" else 0
    return Case(
        ((3, 4, 5),),
        lambda m, d, x: m.pad(x, low, high, mode, value),
        lambda m, d, g, y, x: m.pad_backward(g, low, high, mode),
    )


def _by_ids(operation: str, is_sorted: bool) -> Case:
    options = {"indices_are_sorted": True} if is_sorted else {}

    def ids(d: Any) -> Any:
        return d.sorted_ids if is_sorted else d.ids

    def backward(m: Any, d: Any, g: Any, y: Any, x: Any) -> Any:
        function = getattr(m, f"segment_{operation}_backward")
        if operation in ("sum", "mean"):
            return function(g, ids(d), **options)
        if operation in ("max", "min"):
            return function(g, x, ids(d), ties="even", **options)
        if operation == "softmax":
            return function(g, y, ids(d), NUM_SEGMENTS, **options)
        return function(g, x, y, ids(d), **options)

    return Case(
        ((NUM_ROWS, 3, 2),),
        lambda m, d, x: getattr(m, f"segment_{operation}")(x, ids(d), NUM_SEGMENTS, **options),
        backward,
        operation in ("sum", "mean"),
    )


def _by_offsets(reduce: str) -> Case:
    def backward(m: Any, d: Any, g: Any, y: Any, x: Any) -> Any:
        given: dict[str, Any] = {}
        if reduce in ("sum", "mean"):
            given["num_rows"] = NUM_ROWS
        elif reduce != "softmax":
            given["input"] = x
        if reduce in ("prod", "logsumexp", "softmax"):
            given["output"] = y
        if reduce in ("max", "min"):
            given["ties"] = "even"
        return m.segment_csr_backward(g, d.offsets, reduce, **given)

    return Case(
        ((NUM_ROWS, 3),),
        lambda m, d, x: m.segment_csr(x, d.offsets, reduce),
        backward,
        reduce in ("sum", "mean"),
    )


_SELECTED = ("max", "min")
_OPERATIONS = ("sum", "mean", *_SELECTED, "prod", "logsumexp", "softmax")

# These have tests of their own.
WITHOUT_GRADIENT = {"batched_nms", "histc", "nms", "nms_sorted"}
_KERNEL: Any = ((3, 2), (1, 2), (1, 0), 1)


def _deformed(masked: bool) -> Case:
    """Two groups of offsets."""
    moves = ((2, 24, 5, 3), (2, 12, 5, 3))[: 2 if masked else 1]

    def backward(m: Any, d: Any, g: Any, y: Any, x: Any, offset: Any, *mask: Any) -> Any:
        by_moves = m.deform_im2col_offset_backward(g, x, offset, *_KERNEL, *mask)
        by_input = m.deform_im2col_backward(g, offset, x.shape, *_KERNEL, *mask)
        return (by_input, *by_moves) if mask else (by_input, by_moves)

    return Case(
        ((2, 4, 5, 6), *moves),
        lambda m, d, x, offset, *mask: m.deform_im2col(x, offset, *_KERNEL, *mask),
        backward,
    )


CASES: dict[str, Case] = {
    "deform_im2col": _deformed(True),
    "deform_im2col-without-mask": _deformed(False),
    "grid_sample": Case(
        ((2, 3, 6, 7), (2, 4, 5, 2)),
        lambda m, d, x, grid: m.grid_sample(x, grid),
        lambda m, d, g, y, x, grid: m.grid_sample_backward(g, x, grid),
    ),
    "grid_sample-reflection": Case(
        ((2, 3, 6, 7), (2, 4, 5, 2)),
        lambda m, d, x, grid: m.grid_sample(x, grid, "bilinear", "reflection", True),
        lambda m, d, g, y, x, grid: m.grid_sample_backward(g, x, grid, "bilinear", "reflection", True),
    ),
    "grid_sample-nearest": Case(
        ((2, 3, 6, 7), (2, 4, 5, 2)),
        lambda m, d, x, grid: m.grid_sample(x, grid, "nearest", "border"),
        lambda m, d, g, y, x, grid: m.grid_sample_backward(g, x, grid, "nearest", "border"),
    ),
    "grid_sample-volumes": Case(
        ((2, 3, 4, 6, 7), (2, 3, 4, 5, 3)),
        lambda m, d, x, grid: m.grid_sample(x, grid, "bilinear", "reflection"),
        lambda m, d, g, y, x, grid: m.grid_sample_backward(g, x, grid, "bilinear", "reflection"),
    ),
    "affine_grid": Case(
        ((2, 2, 3),),
        lambda m, d, x: m.affine_grid(x, (2, 1, 4, 5)),
        lambda m, d, g, y, x: m.affine_grid_backward(g, (2, 1, 4, 5)),
        is_linear=True,
    ),
    "grid_sample-bicubic": Case(
        ((2, 3, 5, 6), (2, 4, 5, 2)),
        lambda m, d, x, grid: m.grid_sample(x, grid, "bicubic", "reflection"),
        lambda m, d, g, y, x, grid: m.grid_sample_backward(g, x, grid, "bicubic", "reflection"),
    ),
    "affine_grid-volumes": Case(
        ((2, 3, 4),),
        lambda m, d, x: m.affine_grid(x, (2, 1, 3, 4, 5), True),
        lambda m, d, g, y, x: m.affine_grid_backward(g, (2, 1, 3, 4, 5), True),
        is_linear=True,
    ),
    "pixel_shuffle": Case(
        ((2, 8, 3, 4),),
        lambda m, d, x: m.pixel_shuffle(x, 2),
        lambda m, d, g, y, x: m.pixel_unshuffle(g, 2),
        is_linear=True,
    ),
    "pixel_unshuffle": Case(
        ((2, 3, 4, 6),),
        lambda m, d, x: m.pixel_unshuffle(x, 2),
        lambda m, d, g, y, x: m.pixel_shuffle(g, 2),
        is_linear=True,
    ),
    "cumsum": Case(
        ((2, 150, 3),),
        lambda m, d, x: m.cumsum(x, 1, reverse=True),
        lambda m, d, g, y, x: m.cumsum(g, 1),
        is_linear=True,
    ),
    "cumprod": Case(
        ((5, 6),),
        lambda m, d, x: m.cumprod(x, 0),
        lambda m, d, g, y, x: m.cumprod_backward(g, x, y, 0),
    ),
    "logcumsumexp": Case(
        ((4, 140),),
        lambda m, d, x: m.logcumsumexp(x, -1),
        lambda m, d, g, y, x: m.logcumsumexp_backward(g, x, y, -1),
    ),
    "cummax": Case(
        ((2, 40, 3),),
        lambda m, d, x: m.cummax(x, 1)[0],
        lambda m, d, g, y, x: m.cummaxmin_backward(g, m.cummax(x, 1)[1], 1),
    ),
    "cummin": Case(
        ((2, 40),),
        lambda m, d, x: m.cummin(x, 0, reverse=True)[0],
        lambda m, d, g, y, x: m.cummaxmin_backward(g, m.cummin(x, 0, reverse=True)[1], 0, reverse=True),
    ),
    "kthvalue": Case(
        ((2, 40, 3),),
        lambda m, d, x: m.kthvalue(x, 17, 1)[0],
        lambda m, d, g, y, x: m.value_selecting_reduction_backward(g, m.kthvalue(x, 17, 1)[1], x.shape, 1),
    ),
    "median": Case(
        ((5, 9),),
        lambda m, d, x: m.median(x, -1, True)[0],
        lambda m, d, g, y, x: m.value_selecting_reduction_backward(g, m.median(x, -1, True)[1], x.shape, -1, True),
    ),
    "nanmedian": Case(
        ((4, 40),),
        lambda m, d, x: m.nanmedian(x, 0)[0],
        lambda m, d, g, y, x: m.value_selecting_reduction_backward(g, m.nanmedian(x, 0)[1], x.shape, 0),
    ),
    "mode": Case(
        ((3, 7, 2),),
        lambda m, d, x: m.mode(x, -2)[0],
        lambda m, d, g, y, x: m.value_selecting_reduction_backward(g, m.mode(x, -2)[1], x.shape, -2),
    ),
    "avg_pool": Case(
        ((2, 3, 7, 8),),
        lambda m, d, x: m.avg_pool(x, (3, 2), 2, 1, True, False),
        lambda m, d, g, y, x: m.avg_pool_backward(g, x.shape, (3, 2), 2, 1, True, False),
        is_linear=True,
    ),
    "avg_pool-volumes": Case(
        ((3, 4, 5, 6),),
        lambda m, d, x: m.avg_pool(x, 2, axes=3),
        lambda m, d, g, y, x: m.avg_pool_backward(g, x.shape, 2, axes=3),
        is_linear=True,
    ),
    "adaptive_avg_pool": Case(
        ((2, 3, 7, 8),),
        lambda m, d, x: m.adaptive_avg_pool(x, (None, 3)),
        lambda m, d, g, y, x: m.adaptive_avg_pool_backward(g, x.shape, axes=2),
        is_linear=True,
    ),
    "interpolate": Case(
        ((2, 3, 5, 6),),
        lambda m, d, x: m.interpolate(x, (7, 11), mode="bilinear", align_corners=True),
        lambda m, d, g, y, x: m.interpolate_backward(g, x.shape, mode="bilinear", align_corners=True),
        is_linear=True,
    ),
    "interpolate-signals": Case(
        ((2, 3, 9),),
        lambda m, d, x: m.interpolate(x, scale_factor=1.7),
        lambda m, d, g, y, x: m.interpolate_backward(g, x.shape, scale_factor=1.7),
        is_linear=True,
    ),
    "interpolate-bicubic": Case(
        ((2, 3, 5, 6),),
        lambda m, d, x: m.interpolate(x, (3, 13), mode="bicubic"),
        lambda m, d, g, y, x: m.interpolate_backward(g, x.shape, mode="bicubic"),
        is_linear=True,
    ),
    "max_pool": Case(
        ((2, 3, 8, 9),),
        lambda m, d, x: m.max_pool(x, (3, 2), (2, 1), 1, ceil_mode=True),
        lambda m, d, g, y, x: m.max_pool_backward(
            g,
            m.max_pool(x, (3, 2), (2, 1), 1, ceil_mode=True, return_indices=True)[1],
            x.shape,
            (3, 2),
            (2, 1),
            1,
            ceil_mode=True,
        ),
    ),
    "max_pool-signals": Case(
        ((3, 20),),
        lambda m, d, x: m.max_pool(x, 3, 2, dilation=2, axes=1),
        lambda m, d, g, y, x: m.max_pool_backward(
            g, m.max_pool(x, 3, 2, dilation=2, return_indices=True, axes=1)[1], x.shape, 3, 2, dilation=2, axes=1
        ),
    ),
    "adaptive_max_pool": Case(
        ((2, 3, 4, 5, 7),),
        lambda m, d, x: m.adaptive_max_pool(x, (2, None, 3)),
        lambda m, d, g, y, x: m.adaptive_max_pool_backward(
            g, m.adaptive_max_pool(x, (2, None, 3), return_indices=True)[1], x.shape
        ),
    ),
    "fractional_max_pool": Case(
        ((2, 3, 9, 10),),
        lambda m, d, x: m.fractional_max_pool(x, (3, 2), (4, 5), d.samples.astype(x.dtype)),
        lambda m, d, g, y, x: m.fractional_max_pool_backward(
            g,
            m.fractional_max_pool(x, (3, 2), (4, 5), d.samples.astype(x.dtype), return_indices=True)[1],
            x.shape,
            (3, 2),
        ),
    ),
    "fractional_max_pool-volumes": Case(
        ((2, 3, 5, 6, 7),),
        lambda m, d, x: m.fractional_max_pool(x, 2, (3, 3, 5), d.samples_3d.astype(x.dtype)),
        lambda m, d, g, y, x: m.fractional_max_pool_backward(
            g, m.fractional_max_pool(x, 2, (3, 3, 5), d.samples_3d.astype(x.dtype), return_indices=True)[1], x.shape, 2
        ),
    ),
    "cross_entropy": Case(
        ((3, 4, 5),),
        lambda m, d, x: m.cross_entropy(x, d.targets, d.weights.astype(x.dtype), -1, "mean", 0.25),
        lambda m, d, g, y, x: m.cross_entropy_backward(
            g,
            x,
            d.targets,
            *m.cross_entropy(x, d.targets, d.weights.astype(x.dtype), -1, "mean", 0.25, return_sums=True)[1:3],
            d.weights.astype(x.dtype),
            -1,
            "mean",
            0.25,
        ),
    ),
    "cross_entropy-unreduced": Case(
        ((3, 4, 5),),
        lambda m, d, x: m.cross_entropy(x, d.targets, None, -1, "none"),
        lambda m, d, g, y, x: m.cross_entropy_backward(
            g, x, d.targets, *m.cross_entropy(x, d.targets, None, -1, "none", return_sums=True)[1:3], None, -1, "none"
        ),
    ),
    "nll_loss": Case(
        ((3, 4, 5),),
        lambda m, d, x: m.nll_loss(x, d.targets, d.weights.astype(x.dtype), -1),
        lambda m, d, g, y, x: m.nll_loss_backward(
            g,
            d.targets,
            m.nll_loss(x, d.targets, d.weights.astype(x.dtype), -1, return_sums=True)[1],
            x.shape,
            d.weights.astype(x.dtype),
            -1,
        ),
        is_linear=True,
    ),
    **{
        f"embedding_bag-{mode}": Case(
            ((5, 3),),
            partial(lambda mode, m, d, x: m.embedding_bag(d.words, x, d.begins, mode, padding_idx=1), mode),
            partial(_gradient_of_bags, mode),
            is_linear=mode != "max",
        )
        for mode in ("sum", "mean", "max")
    },
    "embedding_bag-weighted": Case(
        ((5, 3), (12,)),
        lambda m, d, x, w: m.embedding_bag(d.words, x, d.begins, "sum", w),
        lambda m, d, g, y, x, w: (
            m.embedding_bag_backward(g, d.words, d.bag_ids, 5, "sum", per_sample_weights=w),
            m.embedding_bag_weights_backward(g, x, d.words, d.bag_ids),
        ),
    ),
    "max_unpool": Case(
        ((2, 3, 4, 5),),
        lambda m, d, x: m.max_unpool(x, d.places, (8, 10)),
        lambda m, d, g, y, x: m.max_unpool_backward(g, d.places),
        is_linear=True,
    ),
    "index_copy": Case(
        ((2, NUM_SEGMENTS + 3, 3), (2, NUM_ROWS, 3)),
        lambda m, d, x, source: m.index_copy(x, 1, d.ids, source),
        _gradient_of_copies,
        is_linear=True,
    ),
    "interpolate-antialias": Case(
        ((2, 3, 8, 6),),
        lambda m, d, x: m.interpolate(x, (3, 7), mode="bicubic", antialias=True),
        lambda m, d, g, y, x: m.interpolate_backward(g, x.shape, mode="bicubic", antialias=True),
        is_linear=True,
    ),
    "interpolate-area": Case(
        ((2, 3, 4, 5, 6),),
        lambda m, d, x: m.interpolate(x, scale_factor=(0.5, 1.5, 0.7), mode="area"),
        lambda m, d, g, y, x: m.interpolate_backward(g, x.shape, mode="area"),
        is_linear=True,
    ),
    "affine_grid-aligned": Case(
        ((2, 2, 3),),
        lambda m, d, x: m.affine_grid(x, (2, 1, 4, 5), True),
        lambda m, d, g, y, x: m.affine_grid_backward(g, (2, 1, 4, 5), True),
        is_linear=True,
    ),
    "roi_align": Case(
        ((2, 3, 8, 9),),
        lambda m, d, x: m.roi_align(x, d.boxes, (3, 2), 1.0, 2, True),
        lambda m, d, g, y, x: m.roi_align_backward(g, d.boxes, x.shape, 1.0, 2, True),
        is_linear=True,
    ),
    "roi_align_3d": Case(
        ((2, 3, 4, 6, 7),),
        lambda m, d, x: m.roi_align_3d(x, d.boxes_3d, (2, 3, 2), 1.0, 2, True),
        lambda m, d, g, y, x: m.roi_align_3d_backward(g, d.boxes_3d, x.shape, 1.0, 2, True),
        is_linear=True,
    ),
    "roi_align_levels": Case(
        ((2, 3, 8, 9), (2, 3, 4, 5)),
        lambda m, d, x, y: m.roi_align_levels([x, y], d.boxes, (3, 2), (1.0, 0.5), 2, True, 4, 2.0),
        lambda m, d, g, out, x, y: m.roi_align_levels_backward(
            g, d.boxes, [x.shape, y.shape], (1.0, 0.5), 2, True, 4, 2.0
        ),
        is_linear=True,
    ),
    "ps_roi_align": Case(
        ((2, 12, 8, 9),),
        lambda m, d, x: m.ps_roi_align(x, d.boxes, (3, 2), 1.0, 2),
        lambda m, d, g, y, x: m.ps_roi_align_backward(g, d.boxes, x.shape, 1.0, 2),
        is_linear=True,
    ),
    "ps_roi_pool": Case(
        ((2, 12, 8, 9),),
        lambda m, d, x: m.ps_roi_pool(x, d.boxes, (3, 2)),
        lambda m, d, g, y, x: m.ps_roi_pool_backward(g, d.boxes, x.shape),
        is_linear=True,
    ),
    "roi_pool": Case(
        ((2, 3, 8, 9),),
        lambda m, d, x: m.roi_pool(x, d.boxes, (3, 2)),
        lambda m, d, g, y, x: m.roi_pool_backward(
            g, d.boxes, m.roi_pool(x, d.boxes, (3, 2), return_argmax=True)[1], x.shape
        ),
        is_linear=True,
    ),
    **{f"pad_{mode}": _padding(mode, (1, 0, 7), (0, 2, 3)) for mode in ("constant", "reflect", "replicate")},
    **{f"pad_{mode}": _padding(mode, (1, 0, 7), (0, 2, 3)) for mode in ("circular", "symmetric")},
    "pad_crop": _padding("reflect", (-1, 2, 0), (1, -2, 3)),
    "pad_crop_constant": _padding("constant", (-1, 2, 0), (1, -2, 3)),
    "dequantize_per_channel": Case(
        ((4,),),
        lambda m, d, scale: m.dequantize_per_channel(d.quantized, scale, d.zero_point, 1),
        _gradient_of_scales,
        is_linear=True,
    ),
    **{f"segment_{operation}": _by_ids(operation, False) for operation in _OPERATIONS},
    **{f"segment_{operation}-sorted": _by_ids(operation, True) for operation in _OPERATIONS},
    **{f"segment_csr-{operation}": _by_offsets(operation) for operation in _OPERATIONS},
    "segment_max-empty_value": Case(
        ((NUM_ROWS, 2),),
        lambda m, d, x: m.segment_max(x, d.ids, NUM_SEGMENTS + 2, empty_value=-3.5),
        lambda m, d, g, y, x: m.segment_max_backward(g, x, d.ids, ties="even"),
    ),
    "segment_gather": Case(
        ((NUM_SEGMENTS, 3),),
        lambda m, d, x: m.segment_gather(x, d.ids),
        lambda m, d, g, y, x: m.segment_sum(g, d.ids, NUM_SEGMENTS),
        is_linear=True,
    ),
    "gather_csr": Case(
        ((NUM_SEGMENTS, 3),),
        lambda m, d, x: m.gather_csr(x, d.offsets, NUM_ROWS),
        lambda m, d, g, y, x: m.segment_csr(g, d.offsets),
        is_linear=True,
    ),
}


def drawn(case: Case, rng: np.random.Generator, dtype: Any) -> list[Any]:
    """What the case takes the gradient of; coordinates of a grid lie around the image."""
    return [rng.uniform(-1.3, 1.3, shape).astype(dtype) for shape in case.shapes]


def arrays_of(results: Any) -> list[Any]:
    """The arrays of a result, as NumPy's."""
    return [np.asarray(each) for each in (results if isinstance(results, tuple | list) else [results])]
