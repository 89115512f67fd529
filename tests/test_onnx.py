# SPDX-License-Identifier: Apache-2.0
"""Sampling, interpolation, pooling and suppression beside ONNX's reference evaluator; it has no gradients.

tests/test_peers.py has the other operators that ONNX knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import peers
import pytest
from lattice import normal
from tolerance import assert_exact

import pybaracuda
from verify.definitions import interpolate as resizing
from verify.dtypes import UNIT_ROUNDOFF, Array

F64 = np.dtype(np.float64)
SIZES = {1: (7,), 2: (5, 8), 3: (3, 4, 6)}


def assert_close(ours: Array, theirs: Array, bound: Any) -> None:
    """Equal up to what two float64 formulas of the same positions, weights and sums can differ by."""
    assert ours.shape == theirs.shape
    assert (np.abs(ours - theirs) <= bound).all(), np.abs(ours - theirs).max()


MODES = {
    "nearest": dict(mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric"),
    "nearest-exact": dict(
        mode="nearest", nearest_mode="round_prefer_ceil", coordinate_transformation_mode="half_pixel"
    ),
    "linear": dict(mode="linear", coordinate_transformation_mode="half_pixel"),
    "linear, corners": dict(mode="linear", coordinate_transformation_mode="align_corners"),
    "bicubic": dict(mode="cubic", cubic_coeff_a=-0.75, coordinate_transformation_mode="half_pixel"),
    "bicubic, corners": dict(mode="cubic", cubic_coeff_a=-0.75, coordinate_transformation_mode="align_corners"),
}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", MODES)
def test_interpolate(rng: np.random.Generator, kind: str, axes: int) -> None:
    """Every mode by size. An output of one pixel with corners kept is the first pixel here, as in PyTorch."""
    mode, corners = kind.partition(",")[0], kind.endswith("corners")
    if mode == "bicubic" and axes != 2:
        return  # as in PyTorch
    name = {1: "linear", 2: "bilinear", 3: "trilinear"}[axes] if mode == "linear" else mode
    for factors in ((2, 2, 2), (3, 2, 4), (1.5, 0.75, 1.75), (0.5, 0.4, 0.7)):
        image = normal(rng, (1, 2, *SIZES[axes]), F64)
        size = tuple(max(int(extent * factor), 2) for extent, factor in zip(SIZES[axes], factors, strict=False))
        theirs = peers.onnx_node("Resize", [image, None, None, np.array([1, 2, *size])], 19, **MODES[kind])
        ours = pybaracuda.interpolate(
            image, size, mode=name, align_corners=None if mode.startswith("nearest") else corners
        )
        if mode.startswith("nearest"):
            # Positions of ours are float32 for every dtype: as PyTorch's.
            if not _has_ties(image.shape[2:], size, mode):
                assert_exact(ours, theirs)
            continue
        definition = {"linear": "linear", "bicubic": "cubic"}[mode]
        expected = resizing.interpolate(image, size, definition, corners, None)
        # Positions differ by some roundings of the extent, in ONNX of a float32 scale, cubic weights of float32s;
        # values by as much times a slope of twice the largest on each axis, and other axes' weights of less than 1.5.
        scales = [outer / inner for outer, inner in zip(size, SIZES[axes], strict=True)]
        is_narrow = mode == "bicubic" or any(np.float32(scale) != scale for scale in scales)
        moved = 4 * UNIT_ROUNDOFF["float32" if is_narrow else "float64"] * max(SIZES[axes])
        moved *= axes * 3 * np.abs(image).max()
        assert_close(ours, theirs, 2 * expected.bound(F64) + moved)


# Of an axis; ONNX has them in float32. Both sides take the whole part of an extent times its scale for a size.
SCALES = (0.4, 0.5, 0.7, 1.0, 1.3, 1.5, 2.0, 2.75, 3.0)


def _drawn_scales(rng: np.random.Generator, sizes: tuple[int, ...]) -> tuple[list[float], tuple[int, ...]]:
    """Scales of axes and the sizes that they make; where a scale keeps an extent it is 1, since linear modes here, as
    PyTorch's, copy along an axis that keeps its extent whatever its scale is."""
    while True:
        scales = [float(np.float32(each)) for each in rng.choice(SCALES, len(sizes))]
        made = tuple(int(extent * scale) for extent, scale in zip(sizes, scales, strict=True))
        if all(b and (a != b or scale == 1) for a, b, scale in zip(sizes, made, scales, strict=True)):
            return scales, made


def _is_misread(scales: Sequence[float], size: tuple[int, ...]) -> bool:
    """Whether a position is a whole number but for a rounding: of such the evaluator may weigh one window's pixels with
    the next one's weights, since it finds them by two sums of which one loses that rounding."""
    for scale, extent in zip(scales, size, strict=True):
        places = (np.arange(extent) + 0.5) / scale - 0.5
        apart = np.abs(places - np.rint(places))
        if ((apart != 0) & (apart < 1e-9)).any():
            return True
    return False


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", [kind for kind in MODES if not kind.endswith("corners")])
def test_interpolate_by_scales(rng: np.random.Generator, kind: str, axes: int) -> None:
    """With corners kept a scale does not matter here; in the evaluator it makes a size that may be no whole number."""
    if kind == "bicubic" and axes != 2:
        return  # as in PyTorch
    name = {1: "linear", 2: "bilinear", 3: "trilinear"}[axes] if kind == "linear" else kind
    compared = 0
    while compared < 20:
        sizes = tuple(int(each) for each in rng.integers(2, 9, axes))
        scales, size = _drawn_scales(rng, sizes)
        # Positions of ours are float32 for every dtype in the nearest modes: as PyTorch's.
        if _is_misread(scales, size) or (kind.startswith("nearest") and _has_ties(sizes, size, kind, scales)):
            continue
        compared += 1
        image = normal(rng, (1, 2, *sizes), F64)
        theirs = peers.onnx_node("Resize", [image, None, np.array([1, 1, *scales], np.float32)], 19, **MODES[kind])
        ours = pybaracuda.interpolate(image, scale_factor=scales, mode=name)
        assert ours.shape[2:] == size
        if kind.startswith("nearest"):
            assert_exact(ours, theirs)
            continue
        expected = resizing.interpolate(image, size, {"bicubic": "cubic"}.get(kind, kind), False, scales)
        # A quotient by the scale or a product with its inverse, and a sum: three roundings each of numbers of at most
        # the extent and 1/2. The evaluator's cubic weights are polynomials in float32, of some 8 roundings of at most
        # 5. A value changes by that times a slope of twice the largest on each axis, and other axes' weights of less
        # than 1.5.
        moved = 6 * (max(sizes) + 0.5) * UNIT_ROUNDOFF["float64"]
        if kind == "bicubic":
            moved += 8 * 5 * UNIT_ROUNDOFF["float32"]
        assert_close(ours, theirs, 2 * expected.bound(F64) + axes * 3 * moved * np.abs(image).max())


# PyTorch's filters leave out what is outside and divide by the sum of the others, Keys' kernel has a = -1/2 there.
ANTIALIASED = {
    "bilinear": dict(mode="linear", antialias=1, exclude_outside=1, coordinate_transformation_mode="half_pixel"),
    "bicubic": dict(
        mode="cubic", antialias=1, exclude_outside=1, cubic_coeff_a=-0.5, coordinate_transformation_mode="half_pixel"
    ),
}


@pytest.mark.parametrize("by_scales", [False, True], ids=["sizes", "scales"])
@pytest.mark.parametrize("mode", list(ANTIALIASED))
def test_antialiased(rng: np.random.Generator, mode: str, by_scales: bool) -> None:
    """Smaller and larger; with corners kept PyTorch's positions, which are ours, are no rule of ONNX's."""
    compared = 0
    while compared < 40:
        height, width = sizes = (int(rng.integers(2, 24)), int(rng.integers(2, 24)))
        image = normal(rng, (1, 2, *sizes), F64)
        if by_scales:
            scales, size = _drawn_scales(rng, sizes)
            given: list[Any] = [np.array([1, 1, *scales], np.float32)]
            options: dict[str, Any] = {"scale_factor": scales}
        else:
            size = (int(rng.integers(1, 24)), int(rng.integers(1, 24)))
            scales = [b / a for a, b in zip(sizes, size, strict=True)]
            given, options = [None, np.array([1, 2, *size])], {"size": size}
        if _is_misread(scales, size):
            continue
        compared += 1
        ours = pybaracuda.interpolate(image, **options, mode=mode, antialias=True)
        theirs = peers.onnx_node("Resize", [image, None, *given], 19, **ANTIALIASED[mode])
        definition = {"bilinear": "linear-antialias", "bicubic": "cubic-antialias"}[mode]
        expected = resizing.interpolate(image, size, definition, False, scales if by_scales else None)
        # A centre of at most the extent and the support may be off by two roundings, a distance by three of at most as
        # much, and the filter's slope is at most 1 for the triangle and 1.4 for the cubic; before the division weights
        # add up to at least about 1/4 of their absolute values' sum. A polynomial has some 8 roundings of at most 5 and
        # the sum of the weights as many as there are, in the evaluator of float32s where they are cubic. All that here
        # and there, on two axes, of the largest value.
        moved = 5 * (3 * (height + width) + 8) * 1.4 * UNIT_ROUNDOFF["float64"]
        most = 4 * max(1.0, *(1 / scale for scale in scales)) + 2
        moved += (8 * 5 + most) * UNIT_ROUNDOFF["float32" if mode == "bicubic" else "float64"]
        assert_close(ours, theirs, 2 * expected.bound(F64) + 4 * 2 * 2 * moved * np.abs(image).max())


def _has_ties(inner: tuple[int, ...], outer: tuple[int, ...], mode: str, scales: Sequence[float] | None = None) -> bool:
    """Whether an output pixel lies on a pixel's edge, where formulas that round differently may part."""
    steps = [b / a for a, b in zip(inner, outer, strict=True)] if scales is None else scales
    for size, step in zip(outer, steps, strict=True):
        if step % 1 == 0:
            continue
        places = (np.arange(size) + (0.5 if mode == "nearest-exact" else 0)) / step
        if (np.abs(places - np.rint(places)) < 1e-4)[1:].any():
            return True
    return False


GRIDS = [(2, mode) for mode in ("bilinear", "nearest", "bicubic")] + [(3, mode) for mode in ("bilinear", "nearest")]


@pytest.mark.parametrize(("axes", "mode"), GRIDS)
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "centres"])
def test_grid_sample(rng: np.random.Generator, axes: int, mode: str, padding_mode: str, align_corners: bool) -> None:
    image = normal(rng, (2, 2, *SIZES[axes]), np.dtype(np.float32))
    grid = rng.uniform(-1.6, 1.6, (2, *SIZES[axes][:-1], 3, axes)).astype(np.float32)
    if (mode, padding_mode) == ("bicubic", "border"):
        return  # its evaluator moves the sample to the border, PyTorch (and ONNX's text) each pixel
    attributes = {"mode": {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode), "padding_mode": padding_mode}
    theirs = peers.onnx_node("GridSample", [image, grid], 20, align_corners=int(align_corners), **attributes)
    ours = pybaracuda.grid_sample(image, grid, mode, padding_mode, align_corners)
    # Both round positions to float32: a few units of (|g| + 1) extent, of pixels whose values differ by twice the
    # largest along each axis. A nearest sample within that of the middle may be the pixel beside.
    slack = 16 * UNIT_ROUNDOFF["float32"] * 2.6 * 2 * max(SIZES[axes])
    if mode == "nearest":
        assert np.mean(ours != theirs) < 0.01
        return
    assert_close(ours, theirs, 2 * axes * np.abs(image).max() * (slack + 16 * UNIT_ROUNDOFF["float32"]))


WINDOWS = [  # kernel_size, stride, padding
    (2, 2, 0),
    (3, 2, 1),
    (3, 1, 0),
    (2, 3, 1),
]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("kernel", "stride", "padding"), WINDOWS)
@pytest.mark.parametrize("count_include_pad", [False, True], ids=["inside", "padded"])
@pytest.mark.parametrize("ceil_mode", [False, True], ids=["whole", "ceil"])
def test_avg_pool(
    rng: np.random.Generator,
    axes: int,
    kernel: int,
    stride: int,
    padding: int,
    count_include_pad: bool,
    ceil_mode: bool,
) -> None:
    """In ceil mode where the last window passes the end by one element at most: of more the evaluator puts half in
    front, which moves every window; ONNX's text has all of it behind."""
    attributes: dict[str, Any] = dict(kernel_shape=[kernel] * axes, strides=[stride] * axes, pads=[padding] * 2 * axes)
    attributes |= dict(count_include_pad=int(count_include_pad), ceil_mode=int(ceil_mode))
    options = dict(ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    for longer in range(stride):
        sizes = tuple(extent + longer for extent in SIZES[axes])
        if ceil_mode and any((kernel - extent - 2 * padding) % stride > 1 for extent in sizes):
            continue
        image = normal(rng, (2, 3, *sizes), F64)
        theirs = peers.onnx_node("AveragePool", [image], 19, **attributes)
        ours = pybaracuda.avg_pool(image, kernel, stride, padding, **options, axes=axes)
        assert_close(ours, theirs, 2 * (kernel**axes + 1) * UNIT_ROUNDOFF["float64"] * np.abs(image).max())


def test_global_average_pool_is_adaptive(rng: np.random.Generator) -> None:
    image = normal(rng, (2, 3, 5, 8), F64)
    ours = pybaracuda.adaptive_avg_pool(image, (1, 1))
    assert_close(
        ours, peers.onnx_node("GlobalAveragePool", [image], 1), 2 * 41 * UNIT_ROUNDOFF["float64"] * np.abs(image).max()
    )


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("kernel", "stride", "padding"), WINDOWS)
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("ceil_mode", [False, True], ids=["whole", "ceil"])
def test_max_pool(
    rng: np.random.Generator, axes: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> None:
    """Values, and of equal ones the index of the first."""
    attributes: dict[str, Any] = dict(kernel_shape=[kernel] * axes, strides=[stride] * axes, pads=[padding] * 2 * axes)
    attributes |= dict(dilations=[dilation] * axes, ceil_mode=int(ceil_mode))
    for longer in range(stride):
        sizes = tuple(extent + 3 + longer for extent in SIZES[axes])
        image = rng.integers(0, 9, (2, 3, *sizes)).astype(F64)
        output, indices = pybaracuda.max_pool(
            image, kernel, stride, padding, dilation, ceil_mode=ceil_mode, return_indices=True, axes=axes
        )
        if stride == dilation == 1:
            # The evaluator takes another path there, which finds an element of a window by the output's extents.
            assert_exact(output, peers.onnx_node("MaxPool", [image], 12, **attributes))
            assert_exact(
                np.take_along_axis(image.reshape(2, 3, -1), indices.reshape(2, 3, -1), 2).reshape(output.shape), output
            )
            continue
        theirs, through = _with_indices(image, **attributes)
        assert_exact(output, theirs)
        # ONNX counts an index through the whole tensor, this library within a plane.
        np.testing.assert_array_equal(indices, through - (np.arange(6) * np.prod(sizes)).reshape(2, 3, *[1] * axes))


def _with_indices(image: Array, **attributes: Any) -> tuple[Array, Array]:
    """MaxPool's two outputs."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    node = onnx.helper.make_node("MaxPool", ["image"], ["output", "indices"], **attributes)
    output, indices = ReferenceEvaluator(node).run(None, {"image": image})
    return np.asarray(output), np.asarray(indices)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_max_unpool(rng: np.random.Generator, axes: int) -> None:
    sizes = tuple(2 * extent for extent in SIZES[axes])
    image = rng.permutation(6 * int(np.prod(sizes))).reshape(2, 3, *sizes).astype(F64)
    pooled, indices = pybaracuda.max_pool(image, 2, return_indices=True, axes=axes)
    plane = int(np.prod(sizes))
    # ONNX counts an index through the whole tensor, this library within a plane.
    through = indices + (np.arange(6) * plane).reshape(2, 3, *[1] * axes)
    attributes = dict(kernel_shape=[2] * axes, strides=[2] * axes)
    theirs = peers.onnx_node("MaxUnpool", [pooled, through], 11, **attributes)
    assert_exact(pybaracuda.max_unpool(pooled, indices, sizes, axes=axes), theirs)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.9])
def test_nms_of_classes(rng: np.random.Generator, threshold: float) -> None:
    """A box has a score for each class in ONNX, and a class of its own in torchvision and here."""
    boxes, classes = 60, 3
    corners = rng.uniform(0, 10, (boxes, 2))
    rois = np.concatenate([corners, corners + rng.uniform(0.5, 6, (boxes, 2))], 1).astype(np.float32)
    scores = rng.permutation(boxes).astype(np.float32) / boxes + 0.5
    ids = rng.integers(0, classes, boxes)
    of_class = np.where(ids == np.arange(classes)[:, None], scores, 0).astype(np.float32)
    limits = [np.array([boxes]), np.array([threshold], np.float32), np.array([0.25], np.float32)]
    theirs = peers.onnx_node("NonMaxSuppression", [rois[None], of_class[None], *limits], 11)
    indices, count = pybaracuda.batched_nms(rois, scores, ids, threshold)
    kept = indices[: int(count[0])]
    assert sorted(theirs[:, 2]) == sorted(kept)
    for label in range(classes):
        assert_exact(kept[ids[kept] == label], theirs[theirs[:, 1] == label, 2])


@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 1), (1, 2), (2, 4)])
@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
def test_deform_conv(rng: np.random.Generator, groups: int, offset_groups: int, masked: bool) -> None:
    """Our columns times the weights; the padding at both ends is the same."""
    image, weight = normal(rng, (2, 4, 6, 5), F64), normal(rng, (6, 4 // groups, 3, 2), F64)
    stride, padding, dilation = (2, 1), (1, 2), (1, 2)
    size = (3, 7)
    offset = rng.uniform(-2, 2, (2, 2 * offset_groups * 6, *size))
    mask = rng.uniform(0, 1, (2, offset_groups * 6, *size)) if masked else None
    theirs = peers.onnx_node(
        "DeformConv",
        [image, weight, offset, None, mask],
        19,
        dilations=list(dilation),
        group=groups,
        offset_group=offset_groups,
        pads=[*padding, *padding],
        strides=list(stride),
    )
    columns = pybaracuda.deform_im2col(image, offset, (3, 2), stride, padding, dilation, mask)
    ours = weight.reshape(groups, 6 // groups, -1) @ columns.reshape(2, groups, 24 // groups, -1)
    # Positions of theirs go through coordinates of -1 to 1 in float32: some roundings of a few extents, along two axes;
    # the sum has as many terms as a weight has numbers.
    slack = 16 * UNIT_ROUNDOFF["float32"] * 12 * 2 * 2 * np.abs(image).max() * np.abs(weight).max() * 24
    assert_close(ours.reshape(theirs.shape), theirs, slack)
