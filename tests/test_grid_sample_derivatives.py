# SPDX-License-Identifier: Apache-2.0
"""grid_sample's second derivatives and forward mode in PyTorch and JAX, against gathers that PyTorch derives.

First derivatives and the bits stand in test_torch_functions.py and test_jax_functions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch_samples import samples

import pybaracuda.torch

RULES = list(product(("zeros", "border", "reflection"), (False, True)))
RULE = pytest.mark.parametrize(("padding_mode", "align_corners"), RULES, ids=[f"{p}-{int(a)}" for p, a in RULES])
AXES = pytest.mark.parametrize("axes", [2, 3], ids=["images", "volumes"])
Sample = Callable[[Any, Any], Any]


def gathered(input: Any, grid: Any, padding_mode: str, align_corners: bool) -> Any:
    """Linear samples, of one gather for each tap, for coordinates that are finite."""
    extents = input.shape[2:]
    places = []
    for axis, extent in enumerate(extents):
        x = grid[..., len(extents) - 1 - axis]
        position = (x + 1) / 2 * (extent - 1) if align_corners else ((x + 1) * extent - 1) / 2
        if padding_mode == "reflection":
            low, high = (0, extent - 1) if align_corners else (-0.5, extent - 0.5)
            turns = torch.floor((position - low) / (high - low)).detach() if high > low else torch.zeros_like(position)
            odd = turns.remainder(2) == 1
            position = torch.where(odd, high - (position - low - turns * (high - low)), position - turns * (high - low))
        if padding_mode != "zeros":
            position = torch.where((position <= 0) | (position >= extent - 1), position.detach(), position)
            position = position.clamp(0, extent - 1)
        places.append((torch.floor(position).detach(), position))
    flat, total = input.flatten(2), 0.0
    for tap in product((0, 1), repeat=len(extents)):
        weight, index, inside = 1.0, 0, True
        for (low, position), side, extent in zip(places, tap, extents, strict=True):
            pixel = low + side
            weight = weight * (position - low if side else 1 - (position - low))
            inside = inside & (pixel >= 0) & (pixel < extent)
            index = index * extent + pixel.clamp(0, extent - 1).long()
        picked = flat.gather(2, index.flatten(1)[:, None].expand(-1, flat.shape[1], -1))
        shape = (*flat.shape[:2], *grid.shape[1:-1])
        total = total + picked.reshape(shape) * torch.where(inside, weight, 0.0)[:, None]
    return total


def drawn(rng: np.random.Generator, axes: int, samples: int = 12) -> tuple[Any, Any, Any, Any]:
    """Images, positions in and around them, a gradient of the samples and a direction of both."""
    extents, counts = (5, 4, 3)[:axes], (samples // 4, 4, 1)[:axes]
    input = torch.from_numpy(rng.standard_normal((2, 3, *extents)))
    grid = torch.from_numpy(rng.uniform(-1.6, 1.6, (2, *counts, axes)))
    weights = torch.from_numpy(rng.standard_normal((2, 3, *counts)))
    return input, grid, weights, [torch.from_numpy(rng.standard_normal(each.shape)) for each in (input, grid)]


def second(sample: Sample, input: Any, grid: Any, weights: Any, along: Any) -> list[Any]:
    """Gradients by input, grid and weights of the gradient along a direction."""
    leaves = [each.detach().clone().requires_grad_() for each in (input, grid, weights)]
    loss = (sample(leaves[0], leaves[1]).pow(2) * leaves[2]).sum()
    first = torch.autograd.grad(loss, leaves[:2], create_graph=True)
    return list(torch.autograd.grad(sum((a * b).sum() for a, b in zip(first, along, strict=True)), leaves))


def assert_close(found: Any, wanted: Any) -> None:
    # float64, sums of some hundred products of numbers near 1.
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-11, atol=1e-11)


@RULE
@AXES
def test_second_derivatives_are_those_of_gathers(
    rng: np.random.Generator, axes: int, padding_mode: str, align_corners: bool
) -> None:
    rule = (padding_mode, align_corners)
    given = drawn(rng, axes)
    wanted = second(lambda x, g: gathered(x, g, *rule), *given)
    found = second(lambda x, g: pybaracuda.torch.grid_sample(x, g, "bilinear", *rule), *given)
    for mine, other in zip(found, wanted, strict=True):
        assert_close(mine, other)


@RULE
@AXES
def test_forward_mode_is_that_of_gathers(
    rng: np.random.Generator, axes: int, padding_mode: str, align_corners: bool
) -> None:
    rule = (padding_mode, align_corners)
    input, grid, weights, along = drawn(rng, axes)

    def sample(x: Any, g: Any) -> Any:
        return pybaracuda.torch.grid_sample(x, g, "bilinear", *rule)

    def plain(x: Any, g: Any) -> Any:
        return gathered(x, g, *rule)

    for moved in (along, [along[0], torch.zeros_like(grid)], [torch.zeros_like(input), along[1]]):
        found, wanted = (torch.func.jvp(each, (input, grid), tuple(moved)) for each in (sample, plain))
        for mine, other in zip(found, wanted, strict=True):
            assert_close(mine, other)
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(*pair) for pair in zip((input, grid), along, strict=True)]
        tangent = torch.autograd.forward_ad.unpack_dual(sample(*duals)).tangent
    assert_close(tangent, torch.func.jvp(plain, (input, grid), tuple(along))[1])

    def slope(of: Sample) -> Any:
        return torch.func.grad(lambda x, g: (of(x, g).pow(2) * weights).sum(), (0, 1))

    found, wanted = (torch.func.jvp(slope(each), (input, grid), tuple(along))[1] for each in (sample, plain))
    for mine, other in zip(found, wanted, strict=True):
        assert_close(mine, other)


@RULE
@AXES
def test_second_derivatives_in_jax_are_those_in_pytorch(
    rng: np.random.Generator, axes: int, padding_mode: str, align_corners: bool
) -> None:
    if not available("jax"):
        pytest.skip("no jax")
    import jax

    import pybaracuda.jax
    from pybaracuda.jax._primitive import in_64_bits

    rule = ("bilinear", padding_mode, align_corners)
    given = drawn(rng, axes)
    wanted = second(lambda x, g: pybaracuda.torch.grid_sample(x, g, *rule), *given)
    with in_64_bits():
        input, grid, weights = (each.numpy() for each in given[:3])
        along = [each.numpy() for each in given[3]]

        def loss(x: Any, g: Any, w: Any) -> Any:
            return (pybaracuda.jax.grid_sample(x, g, *rule) ** 2 * w).sum()

        def moved(x: Any, g: Any, w: Any) -> Any:
            first = jax.grad(loss, (0, 1))(x, g, w)
            return sum((a * b).sum() for a, b in zip(first, along, strict=True))

        def moved_forward(x: Any, g: Any, w: Any) -> Any:
            return jax.jvp(lambda x, g: loss(x, g, w), (x, g), tuple(along))[1]

        for function in (moved, moved_forward):
            found = jax.jit(jax.grad(function, (0, 1, 2)))(input, grid, weights)
            for mine, other in zip(found, wanted, strict=True):
                assert_close(mine, other)
        _, forward = jax.jit(
            lambda x, g: jax.jvp(lambda *given: jax.grad(loss, (0, 1))(*given, weights), (x, g), tuple(along))
        )(input, grid)
        for mine, other in zip(forward, wanted[:2], strict=True):
            assert_close(mine, other)
        curved = jax.jvp(lambda x, g: moved_forward(x, g, weights), (input, grid), tuple(along))[1]
        assert_close(curved, sum((a * b).sum() for a, b in zip(wanted, given[3], strict=False)))


@AXES
def test_third_derivative_is_that_of_gathers(rng: np.random.Generator, axes: int) -> None:
    input, grid, weights, along = drawn(rng, axes, 4)

    def third(sample: Sample) -> list[Any]:
        leaves = [each.clone().requires_grad_() for each in (input, grid)]
        loss = (sample(*leaves).pow(3) * weights).sum()
        for _ in range(2):
            found = torch.autograd.grad(loss, leaves, create_graph=True)
            loss = sum((a * b).sum() for a, b in zip(found, along, strict=True))
        return list(torch.autograd.grad(loss, leaves))

    rule = ("reflection", False)
    wanted = third(lambda x, g: gathered(x, g, *rule))
    for mine, other in zip(third(lambda x, g: pybaracuda.torch.grid_sample(x, g, "bilinear", *rule)), wanted,
                           strict=True):  # fmt: skip
        assert_close(mine, other)


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@AXES
def test_a_sample_without_a_place_moves_nothing(
    rng: np.random.Generator, axes: int, mode: str, padding_mode: str
) -> None:
    """NaN coordinates, and those far outside: the other samples' second derivatives are as if there were none."""
    input, grid, weights, along = drawn(rng, axes)
    bad = grid.clone()
    bad[0, 0, 0, ..., 0] = float("nan")
    bad[1, 1, 2, ..., axes - 1] = 1e30
    is_bad = (bad != grid).any(-1)[:, None]

    def found(at: Any) -> list[Any]:
        def sample(x: Any, g: Any) -> Any:
            samples = pybaracuda.torch.grid_sample(x, g, mode, padding_mode)
            return torch.where(is_bad, 0.0, samples)

        return second(sample, input, at, weights, along)

    with_bad, without = found(bad), found(torch.where(is_bad.squeeze(1)[..., None], 9e9, grid))
    for mine in with_bad:
        assert torch.isfinite(mine).all()
    if padding_mode == "zeros":
        for mine, other in zip(with_bad, without, strict=True):
            assert_close(mine, other)


def test_no_pixels_have_no_second_derivative() -> None:
    given = (torch.zeros(1, 2, 0, 4).double(), torch.zeros(1, 2, 3, 2).double(), torch.ones(1, 2, 2, 3).double())
    along = [torch.ones_like(each) for each in given[:2]]
    for each in second(pybaracuda.torch.grid_sample, *given, along):
        assert not each.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_second_derivatives_in_narrow_dtypes_are_near_the_wide_ones(rng: np.random.Generator, dtype: Any) -> None:
    given = drawn(rng, 2)
    narrow = [each.to(dtype) for each in given[:3]]
    along = [each.to(dtype) for each in given[3]]
    found = second(pybaracuda.torch.grid_sample, *narrow, along)
    wanted = second(
        pybaracuda.torch.grid_sample, *(each.double() for each in narrow), [each.double() for each in along]
    )
    # PyTorch squares and weighs the samples in the narrow dtype: some ten roundings of the largest element.
    unit = torch.finfo(dtype).eps
    for mine, other in zip(found, wanted, strict=True):
        assert mine.dtype == dtype
        assert float((mine.double() - other).abs().max()) <= 32 * unit * float(other.abs().max())


def test_pytorchs_samples_twice(rng: np.random.Generator) -> None:
    """Of PyTorch's own sample inputs the linear ones with finite positions."""
    count = 0
    for sample in samples("nn.functional.grid_sample", "cpu", torch.float64, rng):
        (grid,), options = sample.args, sample.kwargs
        if options["mode"] != "bilinear":
            continue
        rule = (options["padding_mode"], bool(options["align_corners"]))
        weights = torch.from_numpy(rng.standard_normal((*sample.input.shape[:2], *grid.shape[1:-1])))
        along = [torch.from_numpy(rng.standard_normal(each.shape)) for each in (sample.input, grid)]
        given = (sample.input, grid, weights, along)
        found = second(lambda x, g, rule=rule: pybaracuda.torch.grid_sample(x, g, "bilinear", *rule), *given)
        wanted = second(lambda x, g, rule=rule: gathered(x, g, *rule), *given)
        for mine, other in zip(found, wanted, strict=True):
            size = max(1.0, float(other.abs().max()))
            assert float((mine - other).abs().max()) <= 1e-10 * size
        count += 1
    assert count
