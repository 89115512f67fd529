# SPDX-License-Identifier: Apache-2.0
"""Thousands of drawn problems beside PyTorch's CPU kernels: samples, unpooling, grids and pads, with their gradients.

A test draws the problems of one rule, some ordinary and some at an edge: no images, an axis of one element, images that
are one in memory. Both results are held against the float64 definition. Pools and interpolation have theirs in
test_avg_pool.py, test_max_pool.py and test_interpolate.py, regions in test_torch_regions.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import peers
import pytest
from lattice import any_bits, integers, normal
from place import available
from tolerance import assert_same_bits
from torch_problems import assert_both, chance, draw, problem

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.nn import functional

import pybaracuda
from verify.bounds import Sum
from verify.definitions import affine_grid as affine_oracle
from verify.definitions import grid_sample as image_oracle
from verify.definitions import grid_sample_3d as volume_oracle
from verify.definitions import max_unpool as unpool_oracle
from verify.definitions import pad as pad_oracle
from verify.dtypes import UNIT_ROUNDOFF, Array

F64 = np.dtype(np.float64)
UNIT = UNIT_ROUNDOFF["float64"]

# --- grid_sample ------------------------------------------------------------------------------------------------------

RULES = [
    (axes, mode, padding_mode, align_corners)
    for axes, mode in [(2, "bilinear"), (2, "nearest"), (2, "bicubic"), (3, "bilinear"), (3, "nearest")]
    for padding_mode in ("zeros", "border", "reflection")
    for align_corners in (False, True)
]
# Powers of two, one more and one less than these, and an axis of one pixel.
EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 16)


class GridProblem(NamedTuple):
    """Arrays of which the first two may hold one image for all of the batch."""

    input: Array
    grid: Array
    grad_output: Array
    is_exact: bool = False  # on the lattice
    has_kinks: bool = False  # samples lie where a gradient by the grid jumps, as far as rounding lets them

    @property
    def axes(self) -> int:
        return self.input.ndim - 2

    def expanded(self) -> tuple[Array, Array]:
        """Input and grid with the whole batch, in the memory of what they hold."""
        n = len(self.grad_output)
        return np.broadcast_to(self.input, (n, *self.input.shape[1:])), np.broadcast_to(
            self.grid, (n, *self.grid.shape[1:])
        )


def between(rng: np.random.Generator, extent: int, shape: tuple[int, ...], reach: int) -> Array:
    """Positions at least 1/20 of a pixel from every place where a rule has a kink or a jump.

    These are pixels, for linear weights and for what is clipped, and half-way between them, for the nearest pixel and
    for reflections. A gradient has two values there, and which of them, or which pixel, a position's last bit decides.
    """
    return rng.integers(-2 * reach, 2 * (extent + reach), shape) / 2 + rng.uniform(0.05, 0.45, shape)


def coordinate(position: Array, extent: int, align_corners: bool) -> Array:
    """Of a position, up to rounding; an image of one pixel that is aligned at its corners has one position."""
    if align_corners:
        return position if extent == 1 else 2 * position / (extent - 1) - 1
    return (2 * position + 1) / extent - 1


def grid_problem(rng: np.random.Generator, axes: int, mode: str, padding_mode: str, align_corners: bool) -> GridProblem:
    n, c = draw(rng, (1, 1, 2, 3), 1)[0], draw(rng, (1, 2, 3, 5), 1)[0]
    extents, samples = draw(rng, EXTENTS[: 10 if axes == 2 else 8], axes), draw(rng, (1, 2, 3, 5), axes)
    if chance(rng, 0.05):
        n, c, samples = ((0, c, samples), (n, 0, samples), (n, c, (0, *samples[1:])))[rng.integers(3)]
    images = (1 if n and chance(rng, 0.25) else n, 1 if n and chance(rng, 0.25) else n)
    input, grad_output = normal(rng, (images[0], c, *extents), F64), normal(rng, (n, c, *samples), F64)
    shape = (images[1], *samples)
    kind = rng.choice(["lattice", "between", "borders", "not finite"], p=[0.3, 0.4, 0.2, 0.1])
    if kind == "lattice":
        # Coordinates that give positions in 64ths, and every weight, product and sum as a float64 without rounding: the
        # corners of pixels and of the image among them. What a gradient is where it jumps is then decided, and ATen's
        # choice is the definition's. Far outside means 2^31 images away, of volumes 2^21: PyTorch counts reflections of
        # volumes in an int, which 2^31 of them overflow.
        step, far = int(rng.choice([4, 32])), 2 ** int(rng.choice([0, 0, 10, 30 if axes == 2 else 20]))
        grid = rng.integers(-5 * step * far, 5 * step * far + 1, (*shape, axes)) / step
        limit = 1 if mode == "bicubic" else 2
        whole = (integers(rng, each.shape, F64, limit) for each in (input, grad_output))
        return GridProblem(next(whole), grid, next(whole), is_exact=True)
    if kind == "not finite":
        # Only where weights are not 0, which PyTorch multiplies with: docs/differences.md. So nothing is clipped.
        extents = tuple(max(extent, 2) for extent in extents)
        input = normal(rng, (images[0], c, *extents), F64)
        input = np.where(rng.random(input.shape) < 0.1, rng.choice([np.nan, np.inf, -np.inf], input.shape), input)
    reach = {"between": int(rng.choice([1, 1, 4, 1000])), "borders": 2, "not finite": 0}[kind]
    if kind == "not finite" and padding_mode == "zeros":
        reach = 2
    coordinates = []
    for extent in reversed(extents):
        if kind == "borders":
            # Pixels and, but for the nearest one, which jumps there, the corners between them.
            steps = 1 if mode == "nearest" else 2
            position = rng.integers(-steps * reach, steps * (extent + reach), shape) / steps
        else:
            inner = extent - (1 if reach == 0 else 0)
            position = between(rng, inner, shape, reach)
        coordinates.append(coordinate(position, extent, align_corners))
    return GridProblem(
        input, np.stack(coordinates, axis=-1), grad_output, has_kinks=kind == "borders" and mode == "bilinear"
    )


def torchs_samples(given: GridProblem, rule: tuple[str, str, bool]) -> tuple[Array, Array, Array]:
    """PyTorch's output and gradients; images that are one in memory are expanded."""
    n = len(given.grad_output)
    leaves = [torch.from_numpy(array).requires_grad_() for array in (given.input, given.grid)]
    image, grid = (leaf.expand(n, *leaf.shape[1:]) for leaf in leaves)
    output = functional.grid_sample(image, grid, *rule)
    gradients = torch.autograd.grad(output, (image, grid), torch.from_numpy(given.grad_output))
    found = (output.detach().numpy(), *(each.numpy() for each in gradients))
    return found[0], found[1], found[2]


def defined_samples(given: GridProblem, rule: tuple[str, str, bool]) -> tuple[Sum, Sum, Sum]:
    image, grid = given.expanded()
    if given.axes == 3:
        of_volume = volume_oracle.grid_sample_3d_backward_input(given.grad_output, grid, image.shape[2:], *rule)
        of_grid = volume_oracle.grid_sample_3d_backward_grid(given.grad_output, image, grid, *rule)
        return volume_oracle.grid_sample_3d(image, grid, *rule), of_volume, of_grid
    of_image = image_oracle.grid_sample_2d_backward_input(given.grad_output, grid, image.shape[2:], *rule)
    of_grid = image_oracle.grid_sample_2d_backward_grid(given.grad_output, image, grid, *rule)
    return image_oracle.grid_sample_2d(image, grid, *rule), of_image, of_grid


# PyTorch's cubic weights are polynomials of a distance x by Horner's rule, which for a degree d is off by at most 2 d
# roundings of the sum of its terms' absolute values. Of Keys' kernel with a = -3/4 these sums are 3/4 x^3 + 15/4 x^2 +
# 6 x + 3 at the two outer pixels, whose distances are 1 + t and 2 - t, at most 49.5 together, and 5/4 x^3 + 9/4 x^2 + 1
# at the two inner ones, at most 5.5. Of its derivative they are 9/4 x^2 + 15/2 x + 6 and 15/4 x^2 + 9/2 x, at most
# 45.75 and 8.25 together. A distance of at most 2 is rounded, too: that is twice the slopes' sum of 3, or the
# curvatures' of 12.
CUBIC_WEIGHTS = (6 * (49.5 + 5.5) + 2 * 3) * UNIT
CUBIC_SLOPES = (4 * (45.75 + 8.25) + 2 * 12) * UNIT
# The absolute values of an axis' cubic weights add up to at most 11/8, of its slopes to 3, of its curvatures to 12.
CUBIC = (11 / 8, 3.0, 12.0)
# Linear ones are 1 and 2, and have no curvature.
LINEAR = (1.0, 2.0, 0.0)


def slack_of(given: GridProblem, mode: str) -> tuple[float, float, float]:
    """By how much PyTorch's output and gradients may differ: its positions and cubic weights are other formulas.

    A position takes at most three roundings there and three here, of numbers no larger than (|g| + 1) extent.
    """
    if mode == "nearest":
        return 0.0, 0.0, 0.0
    weights, slopes, curvatures = CUBIC if mode == "bicubic" else LINEAR
    extent = max(given.input.shape[2:])
    position = 6 * UNIT * (np.abs(given.grid).max() + 1) * extent
    value, gradient = (np.abs(each[np.isfinite(each)]).max(initial=0) for each in (given.input, given.grad_output))
    own, own_slope = (CUBIC_WEIGHTS, CUBIC_SLOPES) if mode == "bicubic" else (0.0, 0.0)
    off, off_slope = slopes * position + own, curvatures * position + own_slope
    # A sample's weights change along one axis beside the weights of the others.
    of_weights = given.axes * off * weights ** (given.axes - 1)
    others = (given.axes - 1) * off * weights ** max(given.axes - 2, 0)
    of_slopes = off_slope * weights ** (given.axes - 1) + slopes * others
    samples, channels = int(np.prod(given.grid.shape[1:-1])), given.input.shape[1]
    return (
        float(value * of_weights),
        float(samples * gradient * of_weights),
        float(extent / 2 * channels * gradient * value * of_slopes),
    )


@pytest.mark.parametrize(("axes", "mode", "padding_mode", "align_corners"), RULES)
def test_grid_sample(seed: list[int], axes: int, mode: str, padding_mode: str, align_corners: bool) -> None:
    rule = (mode, padding_mode, align_corners)
    for number in range(80 if axes == 2 else 100):
        with problem(seed, number) as rng:
            given = grid_problem(rng, axes, *rule)
            image, grid = given.expanded()
            output = pybaracuda.grid_sample(image, grid, *rule)
            of_input, of_grid = pybaracuda.grid_sample_backward(given.grad_output, image, grid, *rule)
            theirs = torchs_samples(given, rule)
            if given.is_exact or not output.size:
                for mine, other in zip((output, of_input, of_grid), theirs, strict=True):
                    np.testing.assert_array_equal(mine, other)
            if not output.size:
                continue
            expected = defined_samples(given, rule)
            if given.is_exact:
                for mine, wanted in zip((output, of_input, of_grid), expected, strict=True):
                    np.testing.assert_array_equal(mine, wanted.value)
                continue
            slack = slack_of(given, mode)
            assert_both(output, theirs[0], expected[0], slack[0])
            assert_both(of_input, theirs[1], expected[1], slack[1])
            # Of a pixel that is not finite PyTorch's gradient by the grid has a product with 0.
            is_left_out = given.has_kinks or not np.isfinite(given.input).all()
            assert_both(of_grid, theirs[2], expected[2], np.inf if is_left_out else slack[2])


# --- max_unpool -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_max_unpool(seed: list[int], axes: int, name: str) -> None:
    """Of windows as pooling has them: those that overlap may name a place twice, but then with one value."""
    dtype = np.dtype({"f32": np.float32, "f64": np.float64}[name])
    for number in range(180):
        with problem(seed, number) as rng:
            extents = draw(rng, (1, 1, 2, 3, 4, 5)[: 7 - axes], axes)
            kernel, stride = draw(rng, (1, 2, 3), axes), draw(rng, (1, 2, 3), axes)
            whole = tuple((extent - 1) * s + k for extent, k, s in zip(extents, kernel, stride, strict=True))
            padding = tuple(int(rng.integers(0, min(k, w - 1) // 2 + 1)) for k, w in zip(kernel, whole, strict=True))
            # PyTorch takes sizes less than a stride from that which it finds by itself.
            size = tuple(
                max(w - 2 * p + int(rng.integers(1 - s, s)), 1) for w, p, s in zip(whole, padding, stride, strict=True)
            )
            images = ((int(rng.integers(1, 4)),), (0, 2), draw(rng, (1, 2, 3), 2))[rng.choice(3, p=[0.2, 0.05, 0.75])]
            plane, count = int(np.prod(size)), int(np.prod(extents))
            make = (normal, any_bits)[rng.integers(2)]
            places, grad_output = make(rng, (*images, plane), dtype), make(rng, (*images, *size), dtype)
            is_distinct = count <= plane and chance(rng, 0.7)
            planes = [
                rng.permutation(plane)[:count] if is_distinct else rng.integers(0, plane, count)
                for _ in range(int(np.prod(images)))
            ]
            indices = np.array(planes, np.int64).reshape(*images, count)
            input = np.take_along_axis(places, indices, -1).reshape(*images, *extents)
            indices = indices.reshape(input.shape)
            image = torch.from_numpy(input).requires_grad_()
            function = getattr(functional, f"max_unpool{axes}d")
            output = function(image, torch.from_numpy(indices), kernel, stride, padding, size)
            (gradient,) = torch.autograd.grad(output, image, torch.from_numpy(grad_output))
            ours = pybaracuda.max_unpool(input, indices, size, axes=axes)
            back = pybaracuda.max_unpool_backward(grad_output, indices, axes=axes)
            assert_same_bits(ours, output.detach().numpy())
            assert_same_bits(back, gradient.numpy())
            # The definition has images, channels and three axes.
            lead = (int(np.prod(images[:-1], dtype=int)), images[-1], *(1,) * (3 - axes))
            named, wide = indices.reshape(*lead, *extents), (*(1,) * (3 - axes), *size)
            defined = unpool_oracle.max_unpool(input.reshape(named.shape), named, (wide[0], wide[1], wide[2]))
            assert_same_bits(ours, defined.reshape(ours.shape))
            defined = unpool_oracle.max_unpool_backward(grad_output.reshape(*lead, *size), named)
            assert_same_bits(back, defined.reshape(back.shape))


# --- affine_grid ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid behavior has changed")
@pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "centres"])
@pytest.mark.parametrize("axes", [2, 3])
def test_affine_grid(seed: list[int], axes: int, align_corners: bool) -> None:
    for number in range(270):
        with problem(seed, number) as rng:
            n = draw(rng, (1, 1, 2, 5), 1)[0]
            size = (n, draw(rng, (1, 3), 1)[0], *draw(rng, (1, 2, 3, 4, 5, 8, 17, 33)[: 8 if axes == 2 else 6], axes))
            matrices = normal(rng, (1 if chance(rng, 0.2) else n, axes, axes + 1), F64)
            # From a millionth of the image to a million of it, with rows of zeros now and then.
            matrices *= 10.0 ** int(rng.choice([0, 0, 0, -6, 6]))
            matrices[rng.random(matrices.shape) < 0.1] = 0
            gradient = normal(rng, (n, *size[2:], axes), F64)
            theta = np.broadcast_to(matrices, (n, axes, axes + 1))
            leaf = torch.from_numpy(matrices).requires_grad_().expand(theta.shape)
            grid = functional.affine_grid(leaf, list(size), align_corners=align_corners)
            (of_theta,) = torch.autograd.grad(grid, leaf, torch.from_numpy(gradient))
            # A base coordinate of PyTorch's is another formula; each is a factor of one element of a row.
            base = peers.base_slack(F64)
            ours = pybaracuda.affine_grid(theta, size, align_corners)
            expected = affine_oracle.affine_grid(theta, size, align_corners)
            rows = np.abs(theta[:, :, :-1]).sum(axis=2).reshape(n, *(1,) * axes, axes)
            assert_both(ours, grid.detach().numpy(), expected, base * rows)
            ours = pybaracuda.affine_grid_backward(gradient, size, align_corners)
            expected = affine_oracle.affine_grid_backward(gradient, size, align_corners)
            columns = np.abs(gradient).sum(axis=tuple(range(1, axes + 1)))[:, :, None]
            assert_both(ours, of_theta.numpy(), expected, base * columns)


# --- pad --------------------------------------------------------------------------------------------------------------


def pads_of(rng: np.random.Generator, mode: str, extent: int) -> tuple[int, int]:
    """Pads of an axis that PyTorch takes, and means as this library does: docs/differences.md."""
    while True:
        low, high = (int(each) for each in rng.integers(-extent, extent + 4, 2))
        kept = extent + min(low, 0) + min(high, 0)
        # A reflection is narrower than what is left, where PyTorch would reach into what was cut off; a wave around is
        # no wider than it. There has to be an element to repeat.
        widest = {"constant": extent + 4, "replicate": extent + 4, "reflect": kept - 1, "circular": kept}[mode]
        if kept >= (0 if mode == "constant" else 1) and max(low, high) <= widest and extent + low + high >= 0:
            return low, high


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(seed: list[int], mode: str, axes: int) -> None:
    """Elements of any bits are moved; a gradient is a sum where one of them stands several times."""
    for number in range(100):
        with problem(seed, number) as rng:
            before = 2 if mode == "circular" or chance(rng, 0.7) else 1
            images = draw(rng, (1, 2, 3), before)
            if before == 2 and chance(rng, 0.05):
                images = (0, images[1])
            extents = draw(rng, (0, 1, 2, 3, 4, 6) if mode == "constant" else (1, 1, 2, 3, 4, 6), axes)
            low, high = zip(*[pads_of(rng, mode, extent) for extent in extents], strict=True)
            low, high = ((0,) * before + each for each in (low, high))
            input = any_bits(rng, (*images, *extents), F64)
            value = float(rng.choice([0.0, -0.0, 1.5, np.inf, np.nan])) if mode == "constant" else 0.0
            image = torch.from_numpy(input).requires_grad_()
            widths = [width for pair in reversed(list(zip(low[before:], high[before:], strict=True))) for width in pair]
            output = functional.pad(image, widths, mode, value if mode == "constant" else None)
            gradient = normal(rng, output.shape, F64)
            (of_input,) = torch.autograd.grad(output, image, torch.from_numpy(gradient))
            ours = pybaracuda.pad(input, low, high, mode, value)
            assert_same_bits(ours, output.detach().numpy())
            assert_same_bits(ours, pad_oracle.pad(input, low, high, mode, value))
            ours = pybaracuda.pad_backward(gradient, low, high, mode)
            assert_both(ours, of_input.numpy(), pad_oracle.pad_backward(gradient, low, high, mode))
