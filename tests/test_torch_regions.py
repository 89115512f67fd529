# SPDX-License-Identifier: Apache-2.0
"""Hundreds of drawn problems of each operator of boxes and of deform_conv2d beside torchvision's CPU kernels.

Boxes are ordinary, empty, reversed, tiny, huge and outside; what both sides mean alike is compared, and where
docs/differences.md has another rule here, that rule. Problems of other kernels of PyTorch's are in
test_torch_problems.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import peers
import pytest
from lattice import RoiCase, integers, normal
from place import available
from tolerance import assert_same_bits
from torch_problems import assert_both, chance, draw, problem, torchvision_or_none

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch

import pybaracuda
import pybaracuda.torch
from verify.bounds import Sum
from verify.definitions import deform_im2col as deform_oracle
from verify.definitions import nms as nms_oracle
from verify.definitions import ps_roi as ps_oracle
from verify.definitions import roi_align as align_oracle
from verify.definitions import roi_pool as pool_oracle
from verify.dtypes import Array

F64 = np.dtype(np.float64)
PROBLEMS = 50

torchvision = torchvision_or_none()
if torchvision is None:
    pytest.skip("no usable torchvision", allow_module_level=True)

# --- boxes ------------------------------------------------------------------------------------------------------------

EXTENTS = (1, 2, 3, 5, 8, 13)
# The operators here round a scale to float32, torchvision's do not: docs/differences.md.
SCALES = (1.0, 0.5, 0.25, 2.0, float(np.float32(0.1)), float(np.float32(1 / 3)))


def boxes_of(rng: np.random.Generator, n: int, size: tuple[int, int], scale: float) -> Array:
    """Rows of the image's number and corners, each of a kind of its own."""
    count = int(rng.integers(0, 13))
    extents = np.array([size[1], size[0]] * 2)
    corners = rng.uniform(-0.3, 1.3, (count, 4)) * extents
    # A scale that is a power of two keeps these exact: pixels and half-way between them, a sample on the last place
    # that counts and beside it.
    whole = rng.integers(-4, 2 * extents.max() + 5, (count, 4)) / 2
    kinds = rng.integers(0, 8, count)
    for row, kind in zip(corners, kinds, strict=True):
        if kind == 1:  # empty along an axis or two
            row[2:] = np.where(rng.random(2) < 0.7, row[:2], row[2:])
        elif kind == 2:
            row[2:] = row[:2] + rng.uniform(0, 1e-3, 2)
        elif kind == 3:
            row[:] = row.reshape(2, 2)[::-1].ravel()
        elif kind == 4:
            row[:] += np.tile(rng.choice([-3, 3], 2), 2) * extents
        elif kind == 5:
            row[:] = [*(-2 * extents[:2]), *(3 * extents[:2])] * rng.uniform(0.5, 1, 4)
    on_pixels = (kinds >= 6) & (np.log2(scale) % 1 == 0)
    corners[on_pixels] = whole[on_pixels]
    return np.concatenate([rng.integers(0, n, (count, 1)), corners / scale], axis=1)


def maps_of(rng: np.random.Generator, channels: int) -> tuple[Array, float]:
    """Maps, of small integers with many equal ones now and then, and the scale of their boxes."""
    shape = (*draw(rng, (1, 2, 3), 1), channels, *draw(rng, EXTENTS, 2))
    return (integers if chance(rng, 0.3) else normal)(rng, shape, F64), float(rng.choice(SCALES))


def torchs(
    function: Any, maps: Array, boxes: Array, grad_output: Array | None, *arguments: Any
) -> tuple[Array, Array | None]:
    """torchvision's output, and its gradient by the maps if one of the output is given."""
    image = torch.from_numpy(maps).requires_grad_()
    output = function(image, torch.from_numpy(boxes), *arguments)
    if grad_output is None:
        return output.detach().numpy(), None
    (gradient,) = torch.autograd.grad(output, image, torch.from_numpy(grad_output))
    return output.detach().numpy(), gradient.numpy()


# More cases than are run of every test: CI takes a share of them, by tests/share.py.
PARTS = pytest.mark.parametrize("part", range(6))


@PARTS
@pytest.mark.parametrize("aligned", [False, True], ids=["classic", "aligned"])
def test_roi_align(seed: list[int], aligned: bool, part: int) -> None:
    """A reversed box that is aligned and sampled adaptively is turned: torchvision throws an exception."""
    for number in range(PROBLEMS):
        with problem(seed, number) as rng:
            maps, scale = maps_of(rng, draw(rng, (1, 2, 3), 1)[0])
            boxes, bins = boxes_of(rng, len(maps), maps.shape[2:], scale), draw(rng, (1, 2, 3, 4), 2)
            grad_output = normal(rng, (len(boxes), maps.shape[1], *bins), F64)
            options: dict[str, Any] = {"spatial_scale": scale, "sampling_ratio": draw(rng, (-1, 0, 1, 2, 3), 1)[0]}
            options["aligned"] = aligned
            case = peers.roi_case("torchvision", RoiCase(maps, boxes, (bins[0], bins[1]), grad_output, options))
            output, gradient = torchs(torchvision.ops.roi_align, maps, case.boxes, grad_output, bins, *options.values())
            ours = pybaracuda.roi_align(maps, case.boxes, bins, **options)
            assert_both(ours, output, align_oracle.roi_align(maps, case.boxes, case.output_size, **options))
            ours = pybaracuda.roi_align_backward(grad_output, case.boxes, maps.shape, **options)
            assert gradient is not None
            expected = align_oracle.roi_align_backward(grad_output, case.boxes, maps.shape, **options)
            assert_both(ours, gradient, expected)
            if case.boxes is not boxes:
                # As it was given it has no samples here.
                ours = pybaracuda.roi_align(maps, boxes, bins, **options)
                assert not ours[(boxes[:, 3:] <= boxes[:, 1:3]).any(axis=1)].any()


@PARTS
def test_roi_pool(seed: list[int], part: int) -> None:
    """The same maxima, of equal ones the first, so that its gradient goes where ours goes."""
    for number in range(PROBLEMS):
        with problem(seed, number) as rng:
            maps, scale = maps_of(rng, draw(rng, (1, 2, 3), 1)[0])
            boxes, bins = boxes_of(rng, len(maps), maps.shape[2:], scale), draw(rng, (1, 2, 3, 4), 2)
            grad_output = normal(rng, (len(boxes), maps.shape[1], *bins), F64)
            output, gradient = torchs(torchvision.ops.roi_pool, maps, boxes, grad_output, bins, scale)
            ours, argmax = pybaracuda.roi_pool(maps, boxes, bins, scale, return_argmax=True)
            wanted = pool_oracle.roi_pool(maps, boxes, (bins[0], bins[1]), scale)
            # torchvision's empty bins are zeros, too.
            assert_same_bits(ours, output)
            assert_same_bits(ours, wanted[0])
            assert_same_bits(argmax, wanted[1])
            assert gradient is not None
            back = pybaracuda.roi_pool_backward(grad_output, boxes, argmax, maps.shape)
            assert_both(back, gradient, pool_oracle.roi_pool_backward(grad_output, boxes, argmax, maps.shape))


@PARTS
def test_ps_roi_align(seed: list[int], part: int) -> None:
    """A box without samples is 0 here and the quotient of two zeros there; it has no gradient in either."""
    for number in range(PROBLEMS):
        with problem(seed, number) as rng:
            bins, channels = draw(rng, (1, 2, 3), 2), draw(rng, (1, 2), 1)[0]
            maps, scale = maps_of(rng, channels * bins[0] * bins[1])
            boxes, ratio = boxes_of(rng, len(maps), maps.shape[2:], scale), draw(rng, (-1, 0, 1, 2, 3), 1)[0]
            grad_output = normal(rng, (len(boxes), channels, *bins), F64)
            output, gradient = torchs(torchvision.ops.ps_roi_align, maps, boxes, grad_output, bins, scale, ratio)
            if ratio <= 0:
                corners = boxes[:, 1:] * scale - 0.5
                has_none = (corners[:, 2:] - corners[:, :2] <= 0).any(axis=1)
                assert not np.nan_to_num(output[has_none]).any()
                output[has_none] = 0
            expected = ps_oracle.ps_roi_align(maps, boxes, (bins[0], bins[1]), scale, ratio)
            assert_both(pybaracuda.ps_roi_align(maps, boxes, bins, scale, ratio), output, expected)
            assert gradient is not None
            ours = pybaracuda.ps_roi_align_backward(grad_output, boxes, maps.shape, scale, ratio)
            expected = ps_oracle.ps_roi_align_backward(grad_output, boxes, maps.shape, scale, ratio)
            assert_both(ours, gradient, expected)


@PARTS
def test_ps_roi_pool(seed: list[int], part: int) -> None:
    """Gradients of boxes whose bins end before the last row and column: torchvision's forward ends all of them there,
    and its gradient does not."""
    for number in range(PROBLEMS):
        with problem(seed, number) as rng:
            bins, channels = draw(rng, (1, 2, 3), 2), draw(rng, (1, 2), 1)[0]
            maps, scale = maps_of(rng, channels * bins[0] * bins[1])
            boxes = boxes_of(rng, len(maps), maps.shape[2:], scale)
            output, _ = torchs(torchvision.ops.ps_roi_pool, maps, boxes, None, bins, scale)
            expected = ps_oracle.ps_roi_pool(maps, boxes, (bins[0], bins[1]), scale)
            assert_both(pybaracuda.ps_roi_pool(maps, boxes, bins, scale), output, expected)
            # A box ends where it is rounded to and is one pixel at least; its last bin, by a rounding, one pixel later.
            last = np.array([maps.shape[3], maps.shape[2]]) - 1
            ends = np.maximum(boxes[:, 3:] * scale, boxes[:, 1:3] * scale + 1)
            inner = boxes[(ends < last - 0.5).all(axis=1)]
            grad_output = normal(rng, (len(inner), channels, *bins), F64)
            _, gradient = torchs(torchvision.ops.ps_roi_pool, maps, inner, grad_output, bins, scale)
            assert gradient is not None
            ours = pybaracuda.ps_roi_pool_backward(grad_output, inner, maps.shape, scale)
            assert_both(ours, gradient, ps_oracle.ps_roi_pool_backward(grad_output, inner, maps.shape, scale))


# --- suppression ------------------------------------------------------------------------------------------------------


@PARTS
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_nms(seed: list[int], name: str, part: int) -> None:
    """What is kept, in its order; boxes and scores that are not numbers among them, and equal scores."""
    dtype = np.dtype({"f32": np.float32, "f64": np.float64}[name])
    for number in range(PROBLEMS):
        with problem(seed, number) as rng:
            count, side = draw(rng, (0, 1, 2, 9, 40, 80), 1)[0], float(rng.choice([2, 10, 100]))
            low = rng.uniform(0, 20, (count, 2))
            boxes = np.concatenate([low, low + rng.uniform(0, side, (count, 2))], axis=1)
            if chance(rng, 0.4):
                boxes = np.rint(boxes)  # with overlaps that are exactly a threshold, and boxes without an area
            scores = rng.integers(0, 9, count) / 8 if chance(rng, 0.4) else rng.random(count)
            kinds = rng.random(count) * (1 if chance(rng, 0.5) else np.inf)
            boxes[kinds < 0.1] = boxes[kinds < 0.1][:, [2, 3, 0, 1]]
            boxes[(kinds >= 0.1) & (kinds < 0.14), rng.integers(4)] = rng.choice([np.nan, np.inf, -np.inf])
            scores[(kinds >= 0.14) & (kinds < 0.18)] = rng.choice([np.nan, np.inf, -np.inf])
            boxes, scores = boxes.astype(dtype), scores.astype(dtype)
            threshold = float(np.float32(rng.choice([0.0, 0.25, 0.5, 0.3, 0.7, 1.0])))
            theirs = torchvision.ops.nms(torch.from_numpy(boxes), torch.from_numpy(scores), threshold).numpy()
            keep, kept = pybaracuda.nms(boxes, scores, threshold)
            assert_same_bits(keep[: int(kept[0])].astype(np.int64), theirs)
            assert_same_bits(theirs, nms_oracle.nms(boxes, scores, threshold, dtype=dtype))


# --- deformable convolution -------------------------------------------------------------------------------------------


def offsets_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """On pixels and between them, so that a derivative has two sides of which both take the right one, or anywhere."""
    reach = float(rng.choice([0.5, 3, 3, 3, 1000]))
    if chance(rng, 0.4):
        return rng.integers(-4 * int(max(reach, 1)), 4 * int(max(reach, 1)) + 1, shape) / 4
    return rng.uniform(-reach, reach, shape)


class Convolution(NamedTuple):
    """A problem; channels come in groups of the weight's and of the offset's."""

    image: Array
    offset: Array
    weight: Array
    bias: Array
    mask: Array | None
    grad_output: Array
    window: deform_oracle.Window

    @property
    def arrays(self) -> list[Array]:
        """What has a gradient."""
        return [each for each in self[:5] if each is not None]


def convolution(rng: np.random.Generator, has_mask: bool) -> Convolution:
    groups, offset_groups, times, per_group = (draw(rng, values, 1)[0] for values in ((1, 2), (1, 2), (1, 2), (1, 3)))
    channels, maps = groups * offset_groups * times, groups * per_group
    kernel, stride, dilation = (draw(rng, (1, 2, 3), 2) for _ in range(3))
    padding, wanted = draw(rng, (0, 1, 2), 2), draw(rng, (1, 2, 3, 4), 2)
    # An image on which a window lies at least once along each axis, and about as often as wanted.
    spans = [(k - 1) * d + 1 - 2 * p for k, d, p in zip(kernel, dilation, padding, strict=True)]
    height, width = (
        max((o - 1) * s + span, 1) + int(rng.integers(0, s)) for o, s, span in zip(wanted, stride, spans, strict=True)
    )
    size = tuple((e - span) // s + 1 for e, s, span in zip((height, width), stride, spans, strict=True))
    n, taps = draw(rng, (1, 2, 3), 1)[0], kernel[0] * kernel[1]
    return Convolution(
        normal(rng, (n, channels, height, width), F64),
        offsets_of(rng, (n, 2 * offset_groups * taps, *size)),
        normal(rng, (maps, channels // groups, *kernel), F64),
        normal(rng, (maps,), F64),
        normal(rng, (n, offset_groups * taps, *size), F64) if has_mask else None,
        normal(rng, (n, maps, *size), F64),
        deform_oracle.Window((kernel[0], kernel[1]), (stride[0], stride[1]), (padding[0], padding[1]),
                             (dilation[0], dilation[1])),
    )  # fmt: skip


def convolved(function: Any, given: Convolution) -> list[Array]:
    """The output, and the gradients by the image, the offset, the weight, the bias and the mask, if there is one."""
    leaves = [torch.from_numpy(array).requires_grad_() for array in given.arrays]
    mask = None if given.mask is None else leaves[4]
    output = function(*leaves[:4], given.window.stride, given.window.padding, given.window.dilation, mask)
    gradients = torch.autograd.grad(output, leaves, torch.from_numpy(given.grad_output))
    return [output.detach().numpy(), *(each.numpy() for each in gradients)]


def total(value: Array, magnitude: Array, terms: int, roundings: int) -> Sum:
    """A sum of products, in any order, whose factors have met so many roundings before, here as in a kernel."""
    met = np.full(value.shape, terms + 1 + roundings)
    return Sum(value, magnitude, np.full(value.shape, terms), met, met)


def defined_convolution(given: Convolution) -> list[Sum]:
    """As `convolved` has them: samples by their definition, and products of matrices, group by group."""
    n, maps, *size = given.grad_output.shape
    groups, places = given.image.shape[1] // given.weight.shape[1], size[0] * size[1]
    sampled = (given.offset, given.window, given.mask)
    columns = deform_oracle.deform_im2col(given.image, *sampled)
    values, sizes = (each.reshape(n, groups, -1, places) for each in columns[:2])
    of_columns = int(columns.roundings.max())
    weight, gradient = (
        given.weight.reshape(groups, maps // groups, -1),
        given.grad_output.reshape(n, groups, -1, places),
    )
    # The bias is one more term.
    bias = given.bias.reshape(groups, -1, 1)
    output = total(weight @ values + bias, np.abs(weight) @ sizes + np.abs(bias), weight.shape[2] + 1, of_columns).map(
        lambda part: part.reshape(given.grad_output.shape)
    )
    turned, sizes_turned = np.swapaxes(values, 2, 3), np.swapaxes(sizes, 2, 3)
    of_weight = total(
        (gradient @ turned).sum(axis=0), (np.abs(gradient) @ sizes_turned).sum(axis=0), n * places, of_columns
    ).map(lambda part: part.reshape(given.weight.shape))
    by_map = given.grad_output.sum(axis=(0, 2, 3)), np.abs(given.grad_output).sum(axis=(0, 2, 3))
    of_bias = total(*by_map, n * places, 0)
    # Gradients of the columns are sums, too; how large the terms of a gradient are follows from how large theirs are.
    back = np.swapaxes(weight, 1, 2)
    grads, bounds = ((a @ b).reshape(n, -1, places) for a, b in ((back, gradient), (np.abs(back), np.abs(gradient))))
    before = weight.shape[1] + 1
    pairs = [
        [
            deform_oracle.deform_im2col_backward(each, given.offset, given.image.shape, *sampled[1:])
            for each in (grads, bounds)
        ],
        *zip(
            *(deform_oracle.deform_im2col_offset_backward(each, given.image, *sampled) for each in (grads, bounds)),
            strict=True,
        ),
    ]
    of_image, of_offset, of_mask = (
        found._replace(magnitude=of_terms.magnitude, roundings=found.roundings + before, own=found.roundings + before)
        for found, of_terms in pairs
    )
    return [output, of_image, of_offset, of_weight, of_bias, *([] if given.mask is None else [of_mask])]


@PARTS
@pytest.mark.parametrize("has_mask", [False, True], ids=["no mask", "mask"])
def test_deform_conv2d(seed: list[int], has_mask: bool, part: int) -> None:
    for number in range(PROBLEMS):
        with problem(seed, number) as rng:
            given = convolution(rng, has_mask)
            ours, theirs = (
                convolved(function, given)
                for function in (pybaracuda.torch.deform_conv2d, torchvision.ops.deform_conv2d)
            )
            for mine, other, expected in zip(ours, theirs, defined_convolution(given), strict=True):
                assert_both(mine, other, expected)
