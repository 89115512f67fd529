# SPDX-License-Identifier: Apache-2.0
"""grid_sample and grid_sample_backward against the float64 oracle; frameworks are compared in test_peers.py."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import (
    GridCase,
    integers,
    lattice_grid_case,
    lattice_ruled_grid_case,
    normal,
    normalised,
    random_grid_case,
)
from place import Place
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Launch, Library, Values, extents, symbols
from verify.bounds import Sum
from verify.definitions import grid_sample as oracle
from verify.dtypes import DTYPES, Array, coordinate_dtype


def forward(place: Place, case: GridCase, input: Any = None, grid: Any = None) -> Array:
    """The library's output; ``input`` and ``grid`` replace the case's by equal arrays of another layout."""
    shape = (*case.input.shape[:2], *case.grid.shape[1:3])
    return place.run(
        pybaracuda.grid_sample,
        case.input if input is None else input,
        case.grid if grid is None else grid,
        outputs=[(shape, case.input.dtype)],
    )[0]


def backward(
    place: Place, case: GridCase, grad_output: Any = None, input: Any = None, grid: Any = None
) -> tuple[Array, Array]:
    """The library's gradients to input and grid."""
    grad_input, grad_grid = place.run(
        pybaracuda.grid_sample_backward,
        case.grad_output if grad_output is None else grad_output,
        case.input if input is None else input,
        case.grid if grid is None else grid,
        outputs=[(case.input.shape, case.input.dtype), (case.grid.shape, case.grid.dtype)],
    )
    return grad_input, grad_grid


def oracle_forward(case: GridCase) -> Sum:
    return oracle.grid_sample_2d(case.input, case.grid, coordinate_dtype=coordinate_dtype(case.input.dtype))


def oracle_backward(case: GridCase) -> tuple[Sum, Sum]:
    compute = coordinate_dtype(case.input.dtype)
    return oracle.grid_sample_2d_backward(case.grad_output, case.input, case.grid, coordinate_dtype=compute)


def check_close(place: Place, case: GridCase) -> tuple[Array, Array, Array]:
    """All three results lie within the derived bound; answers the library's."""
    output = forward(place, case)
    grad_input, grad_grid = backward(place, case)
    expected_input, expected_grid = oracle_backward(case)
    assert_within(output, oracle_forward(case))
    assert_within(grad_input, expected_input)
    assert_within(grad_grid, expected_grid)
    return output, grad_input, grad_grid


def check_exact(place: Place, case: GridCase) -> None:
    grad_input, grad_grid = backward(place, case)
    expected_input, expected_grid = oracle_backward(case)
    assert_exact(forward(place, case), oracle_forward(case))
    assert_exact(grad_input, expected_input)
    assert_exact(grad_grid, expected_grid)


LATTICE_SHAPES = pytest.mark.parametrize(
    "shape", [(2, 3, 4, 8), (1, 1, 1, 1), (1, 5, 16, 2)], ids=["4x8", "1x1", "16x2"]
)


@LATTICE_SHAPES
def test_lattice_is_exact(place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, int, int, int]) -> None:
    check_exact(place, lattice_grid_case(rng, dtype, shape))


@LATTICE_SHAPES
def test_adjoint_identity_is_exact_on_the_lattice(
    place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, int, int, int]
) -> None:
    # Values of -1, 0, 1 and weights in 16ths: an output needs 5 bits and a pixel's sum, with at most
    # 4 x 3 samples of weight at most 1, 8 bits, so that even bfloat16 holds every result.
    case = lattice_grid_case(rng, dtype, shape, (4, 3), limit=1)
    output, grad_input = forward(place, case), backward(place, case)[0]
    in_output = np.sum(output.astype(np.float64) * case.grad_output.astype(np.float64))
    in_input = np.sum(case.input.astype(np.float64) * grad_input.astype(np.float64))
    assert in_output == in_input


def test_sampling_its_own_pixels_is_the_identity(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    image = normal(rng, (2, 3, 4, 8), dtype)
    y, x = np.meshgrid(normalised(np.arange(4), 4), normalised(np.arange(8), 8), indexing="ij")
    grid = np.broadcast_to(np.stack([x, y], axis=-1), (2, 4, 8, 2)).astype(coordinate_dtype(dtype))
    case = GridCase(image, grid, image)
    assert_same_bits(forward(place, case), image)
    assert_same_bits(backward(place, case)[0], image)


@pytest.mark.parametrize("shape", [(2, 3, 6, 7), (1, 1, 1, 9), (3, 2, 9, 1), (1, 4, 33, 17)])
def test_random_grid_is_within_the_bound(
    place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, int, int, int]
) -> None:
    check_close(place, random_grid_case(rng, dtype, shape))


@pytest.mark.parametrize("channels", [63, 64, 65, 130, 200])
def test_many_channels(place: Place, dtype: Any, rng: np.random.Generator, channels: int) -> None:
    # The gradient to the grid is cut every 64 channels.
    check_close(place, random_grid_case(rng, dtype, (1, channels, 4, 5), (3, 3)))
    check_exact(place, lattice_grid_case(rng, dtype, (1, channels, 4, 8), (3, 3)))


# On an image of 40 x 33 pixels.
DENSITY = pytest.mark.parametrize(
    "samples",
    [(4, 9), (33, 40), (46, 46), (90, 100), (180, 100)],
    ids=["sparse", "even", "dense", "in parts", "crowded"],
)


@pytest.mark.parametrize("channels", [3, 4, 5, 17])
@DENSITY
def test_any_density_of_samples(
    place: Place, dtype: Any, rng: np.random.Generator, samples: tuple[int, int], channels: int
) -> None:
    # CUDA lists a tile's samples in one of several ways, by how many they are, and has its own way for few channels.
    check_close(place, random_grid_case(rng, dtype, (1, channels, 40, 33), samples))


@pytest.mark.parametrize("samples", [512, 513, 769, 3072, 3073])
def test_many_samples_in_one_tile(place: Place, dtype: Any, rng: np.random.Generator, samples: int) -> None:
    # CUDA sums a tile of 32 x 8 pixels by several blocks where one has no room for its samples, up to a number; more
    # than 64 channels have owners that take turns. Half of the samples lie in a quarter of the image.
    case = random_grid_case(rng, dtype, (1, 130, 8, 32), (1, samples))
    grid = np.where(rng.random((1, 1, samples, 1)) < 1 / 2, case.grid / 2 - 0.4, case.grid)
    check_close(place, case._replace(grid=grid.astype(case.grid.dtype)))


@pytest.mark.parametrize("channels", [4, 5, 17])
def test_neighbours(place: Place, dtype: Any, rng: np.random.Generator, channels: int) -> None:
    # A turned image, whose samples CUDA reads where they lie; those of the other tests have their neighbours elsewhere.
    case = random_grid_case(rng, dtype, (2, channels, 40, 70), (50, 60))
    y, x = np.meshgrid(np.linspace(-1, 1, 50), np.linspace(-1, 1, 60), indexing="ij")
    turned = np.stack([0.9 * x + 0.3 * y, 0.9 * y - 0.3 * x], axis=-1)
    check_close(place, case._replace(grid=np.stack([turned, turned / 2]).astype(case.grid.dtype)))


@pytest.mark.parametrize(
    ("shape", "samples"),
    [((3, 250, 9, 14), (3, 11)), ((50, 17, 8, 8), (9, 13)), ((9, 100, 25, 31), (20, 30)), ((1, 5, 64, 64), (7, 50))],
    ids=["odd planes", "even planes", "larger planes", "scattered"],
)
def test_forward_from_many_small_images_and_from_scattered_places(
    place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, int, int, int], samples: tuple[int, int]
) -> None:
    # CUDA samples small images in shared memory if there are enough of them, and reads scattered taps in pairs.
    case = random_grid_case(rng, dtype, shape, samples)
    assert_within(forward(place, case), oracle_forward(case))
    # An infinity in every eighth pixel: only the samples that weigh one have it.
    image = np.where(rng.random(shape) < 1 / 8, INF, case.input.astype(np.float64)).astype(dtype)
    spoilt = GridCase(image, case.grid, case.grad_output)
    assert_within(forward(place, spoilt), oracle_forward(spoilt))


@pytest.mark.parametrize("samples", [255, 256, 257, 600, 1100])
def test_many_samples_on_one_pixel(place: Place, dtype: Any, rng: np.random.Generator, samples: int) -> None:
    # A pixel's list is cut every 256 samples.
    case = random_grid_case(rng, dtype, (1, 2, 5, 6), (1, samples))
    tight = 0.4 + rng.uniform(0, 0.02, case.grid.shape)
    case = case._replace(grid=tight.astype(case.grid.dtype))
    assert oracle_backward(case)[0].terms.max() >= samples
    check_close(place, case)
    exact = lattice_grid_case(rng, dtype, (1, 2, 4, 4), (1, samples))
    one_place = np.broadcast_to(exact.grid[:, :, :1], exact.grid.shape).copy()
    check_exact(place, exact._replace(grid=one_place))


def test_borders(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    compute = coordinate_dtype(dtype)
    h, w = 4, 8
    one = np.array(1, compute)
    steps = []
    for extent in (w, h):
        edges = normalised(np.array([-5, -1, -0.5, 0, 0.5, extent - 1, extent - 0.5, extent, extent + 5]), extent)
        edges = edges.astype(compute)
        steps.append(np.concatenate([np.nextafter(edges, -9 * one), edges, np.nextafter(edges, 9 * one)]))
    x, y = np.meshgrid(*steps)
    grid = np.stack([x, y], axis=-1)[None]
    case = GridCase(normal(rng, (1, 2, h, w), dtype), grid, normal(rng, (1, 2, *grid.shape[1:3]), dtype))
    check_close(place, case)


NAN, INF = float("nan"), float("inf")
BAD_COORDINATES = [NAN, INF, -INF, 1e20, -1e20, 3e38, -3e38, 2.0**31, -(2.0**31), 2.0**63, 1e-40, 0.1]


def test_bad_coordinates(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    x, y = np.meshgrid(BAD_COORDINATES, BAD_COORDINATES)
    compute = coordinate_dtype(dtype)
    grid = np.stack([x, y], axis=-1)[None].astype(compute)
    case = GridCase(normal(rng, (1, 3, 5, 4), dtype), grid, normal(rng, (1, 3, *x.shape), dtype))
    output, grad_input, grad_grid = check_close(place, case)
    missing = np.isnan(x) | np.isnan(y)
    outside = ~missing & (~np.isfinite(x) | ~np.isfinite(y) | (np.abs(x) > 3) | (np.abs(y) > 3))
    assert np.isnan(output[0][:, missing]).all()
    assert_same_bits(output[0][:, outside], np.zeros((3, outside.sum()), dtype))
    assert_same_bits(grad_grid[0][missing | outside], np.zeros(((missing | outside).sum(), 2), compute))
    assert np.isfinite(grad_input.astype(np.float64)).all()


def test_nan_coordinates_alone_leave_the_gradient_zero(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_grid_case(rng, dtype)
    case = case._replace(grid=np.full_like(case.grid, NAN))
    grad_input, grad_grid = backward(place, case)
    assert_same_bits(grad_input, np.zeros_like(case.input))
    assert_same_bits(grad_grid, np.zeros_like(case.grid))
    output = forward(place, case)
    assert np.isnan(output).all()
    assert_canonical_nans(output)


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_nonfinite_values_stay_where_they_have_weight(
    place: Place, dtype: Any, rng: np.random.Generator, bad: float
) -> None:
    # On the lattice a quarter of the samples lies on a pixel's row or column, where neighbours weigh exactly 0.
    case = lattice_grid_case(rng, dtype, (2, 2, 4, 8), (6, 6))
    image, gradient = case.input.copy(), case.grad_output.copy()
    image[0, 0, 2, 3] = bad
    gradient[1, 1, 3, 3] = gradient[1, 0, 0, 5] = bad
    assert_exact(forward(place, case._replace(input=image)), oracle_forward(case._replace(input=image)))
    # One at a time, so that which infinities meet does not depend on how a term is factored.
    bad_gradient = case._replace(grad_output=gradient)
    assert_exact(backward(place, bad_gradient)[0], oracle_backward(bad_gradient)[0])
    grad_grid = backward(place, bad_gradient)[1]
    touched = ~np.isfinite(gradient.astype(np.float64)).all(axis=1)
    assert_same_bits(grad_grid[~touched], backward(place, case)[1][~touched])
    assert_canonical_nans(grad_grid)
    bad_image = case._replace(input=image, grad_output=np.ones_like(gradient))
    assert_exact(backward(place, bad_image)[1], oracle_backward(bad_image)[1])


@pytest.mark.parametrize(("x", "y"), [(2.0, 1.0), (2.0, 1.5), (2.5, 1.0), (0.0, 0.0), (3.0, 3.0), (-1.0, 2.0)])
@pytest.mark.parametrize("bad", [INF, NAN])
def test_weights_of_zero_do_not_leak(place: Place, dtype: Any, x: float, y: float, bad: float) -> None:
    grid = np.array([normalised(np.array(x), 4), normalised(np.array(y), 4)]).reshape(1, 1, 1, 2)
    ones = GridCase(np.ones((1, 1, 4, 4), dtype), grid.astype(coordinate_dtype(dtype)), np.ones((1, 1, 1, 1), dtype))
    weighted = backward(place, ones)[0] != 0
    # Everything bad but the pixels that the sample sees: output as if nothing were.
    image = np.where(weighted, dtype.type(1), dtype.type(bad))
    assert_same_bits(forward(place, ones._replace(input=image)), forward(place, ones))
    # A bad gradient reaches these pixels and no other.
    gradient = np.full((1, 1, 1, 1), bad, dtype)
    grad_input = backward(place, ones._replace(grad_output=gradient))[0]
    assert_same_bits(grad_input != 0, weighted)
    # Slope in x needs a row's weight only, and the other way round: the oracle knows which taps those are.
    one_sided = ones._replace(input=image)
    assert_exact(backward(place, one_sided)[1], oracle_backward(one_sided)[1])


def test_opposite_infinities_make_the_canonical_nan(place: Place, dtype: Any) -> None:
    image = np.zeros((1, 1, 1, 2), dtype)
    image[0, 0, 0] = [INF, -INF]
    grid = np.zeros((1, 1, 2, 2), coordinate_dtype(dtype))
    gradient = np.array([INF, -INF]).reshape(1, 1, 1, 2).astype(dtype)
    output = forward(place, GridCase(image, grid, gradient))
    assert np.isnan(output).all()
    assert_canonical_nans(output)
    grad_input, grad_grid = backward(place, GridCase(np.ones_like(image), grid, gradient))
    assert np.isnan(grad_input).all()
    assert_canonical_nans(grad_input)
    assert_canonical_nans(grad_grid)


@pytest.mark.parametrize(
    ("shape", "output_size"),
    [
        ((0, 3, 4, 5), (2, 2)),
        ((2, 0, 4, 5), (2, 2)),
        ((2, 3, 0, 5), (2, 2)),
        ((2, 3, 4, 0), (2, 2)),
        ((2, 3, 4, 5), (0, 2)),
        ((2, 3, 4, 5), (2, 0)),
        ((0, 0, 0, 0), (0, 0)),
    ],
    ids=["no-images", "no-channels", "no-rows", "no-columns", "no-output-rows", "no-output-columns", "nothing"],
)
def test_empty_problems_write_zeros(
    place: Place, dtype: Any, shape: tuple[int, int, int, int], output_size: tuple[int, int]
) -> None:
    n, c, _, _ = shape
    grid = np.full((n, *output_size, 2), 0.25, coordinate_dtype(dtype))
    case = GridCase(np.ones(shape, dtype), grid, np.ones((n, c, *output_size), dtype))
    # Only an output of an empty input or of no channels has elements here, and they are 0.
    assert_same_bits(forward(place, case), np.zeros_like(case.grad_output))
    grad_input, grad_grid = backward(place, case)
    assert_same_bits(grad_input, np.zeros_like(case.input))
    assert_same_bits(grad_grid, np.zeros_like(grid))


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_grid_case(rng, dtype)
    output, gradients = forward(place, case), backward(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        grid = layout(case.grid)
        assert_same_bits(forward(place, case, layout(case.input), grid), output)
        again = backward(place, case, layout(case.grad_output), layout(case.input), grid)
        for one, two in zip(gradients, again, strict=True):
            assert_same_bits(two, one)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_sixteen_bit_grids_are_widened(backend: str, rng: np.random.Generator, name: str) -> None:
    from place import place_for

    dtype = DTYPES[name]
    place = place_for(backend, dtype)
    if place is None:
        pytest.skip("no torch")
    case = lattice_grid_case(rng, dtype)
    narrow = case._replace(grid=case.grid.astype(dtype))
    assert (narrow.grid == case.grid).all()
    assert_same_bits(forward(place, narrow), forward(place, case))
    grad_input, grad_grid = backward(place, narrow)
    wide_input, wide_grid = backward(place, case)
    assert_same_bits(grad_input, wide_input)
    # The gradient to a 16-bit grid comes back in 16 bits, rounded once.
    assert_same_bits(grad_grid, wide_grid.astype(dtype))


def test_float32_grid_of_sixteen_bit_input_has_a_float32_gradient(place: Place, dtype: Any) -> None:
    case = random_grid_case(np.random.default_rng(0), dtype)
    _, grad_grid = pybaracuda.grid_sample_backward(
        place.array(case.grad_output), place.array(case.input), place.array(case.grid)
    )
    assert place.numpy(grad_grid).dtype == coordinate_dtype(dtype)


@pytest.mark.parametrize("channels", [1, 5])
def test_large_batch(place: Place, rng: np.random.Generator, channels: int) -> None:
    """More images than a launch grid has in its second and third dimension: the bits of two smaller calls."""
    count, first = 65_537, 40_000
    case = random_grid_case(rng, np.float32, (count, channels, 2, 3), (1, 4))
    whole = (forward(place, case), *backward(place, case))
    for part in (slice(first), slice(first, count)):
        alone = GridCase(*(array[part] for array in case))
        for one, two in zip(whole, (forward(place, alone), *backward(place, alone)), strict=True):
            assert_same_bits(one[part], two)


COORDINATES = st.one_of(
    st.floats(-1.5, 1.5, width=32),
    st.sampled_from([-1.0, 0.0, -0.0, 1.0, 0.25, NAN, INF, -INF, 1e20, -3e38, 2.0**31, 1e-40]),
)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    channels=st.integers(0, 4),
    h=st.integers(1, 9),
    w=st.integers(1, 9),
    samples=st.lists(st.tuples(COORDINATES, COORDINATES), max_size=8),
)
def test_any_coordinates(
    seed: int, name: str, channels: int, h: int, w: int, samples: list[tuple[float, float]]
) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    grid = np.array(samples).reshape(1, 1, -1, 2).astype(coordinate_dtype(dtype))
    case = GridCase(normal(rng, (1, channels, h, w), dtype), grid, normal(rng, (1, channels, 1, len(samples)), dtype))
    check_close(Place(), case)


@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(list(DTYPES)), data=st.data())
def test_any_lattice_problem_is_exact(seed: int, name: str, data: st.DataObject) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    extents = st.sampled_from([1, 2, 4, 8, 16])
    shape = (data.draw(st.integers(1, 3)), data.draw(st.integers(0, 5)), data.draw(extents), data.draw(extents))
    case = lattice_grid_case(rng, dtype, shape, (data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))))
    check_exact(Place(), case._replace(grad_output=integers(rng, case.grad_output.shape, dtype, 1)))


# --- every mode, padding and alignment -------------------------------------------------------------------------------

Rule = dict[str, Any]
RULES: list[Rule] = [
    {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    for mode in ("bilinear", "nearest", "bicubic")
    for padding_mode in ("zeros", "border", "reflection")
    for align_corners in (False, True)
]
RULE = pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(str(value) for value in rule.values()))


def ruled(place: Place, case: GridCase, rule: Rule, input: Any = None) -> tuple[Array, Array, Array]:
    """The library's output and gradients; either gradient alone has the bits that it has beside the other.

    ``input`` replaces the case's by an equal array of another layout.
    """
    arrays = (case.grad_output, case.input if input is None else input, case.grid)
    shapes = [(case.input.shape, case.input.dtype), (case.grid.shape, case.grid.dtype)]
    output_shape = [((*case.input.shape[:2], *case.grid.shape[1:3]), case.input.dtype)]
    (output,) = place.run(partial(pybaracuda.grid_sample, **rule), *arrays[1:], outputs=output_shape)
    both = place.run(partial(pybaracuda.grid_sample_backward, **rule), *arrays, outputs=shapes)
    given = [array if place.owns(array) else place.array(array) for array in arrays]
    of_input, nothing = pybaracuda.grid_sample_backward(*given, **rule, output_mask=(True, False))
    assert nothing is None
    nothing, of_grid = pybaracuda.grid_sample_backward(*given, **rule, output_mask=(False, True))
    assert nothing is None
    assert_same_bits(place.numpy(of_input), both[0])
    assert_same_bits(place.numpy(of_grid), both[1])
    return output, both[0], both[1]


def ruled_oracle(case: GridCase, rule: Rule) -> tuple[Sum, Sum, Sum]:
    compute = coordinate_dtype(case.input.dtype)
    of_input, of_grid = oracle.grid_sample_2d_backward(
        case.grad_output, case.input, case.grid, **rule, coordinate_dtype=compute
    )
    return oracle.grid_sample_2d(case.input, case.grid, **rule, coordinate_dtype=compute), of_input, of_grid


def check_ruled(place: Place, case: GridCase, rule: Rule) -> tuple[Array, Array, Array]:
    results = ruled(place, case, rule)
    for result, expected in zip(results, ruled_oracle(case, rule), strict=True):
        assert_within(result, expected)
    return results


def farther(case: GridCase, times: float) -> GridCase:
    return case._replace(grid=(case.grid * case.grid.dtype.type(times)).astype(case.grid.dtype))


# Extents of three or five images and of their samples, so that CUDA takes each of its paths.
SHARED = pytest.mark.parametrize(
    ("shape", "samples"),
    [((3, 2, 4, 5), (3, 5)), ((3, 130, 40, 33), (4, 9)), ((3, 17, 40, 33), (90, 100)), ((5, 250, 9, 14), (9, 13))],
    ids=["few channels", "few samples", "many samples", "many small images"],
)


@SHARED
@pytest.mark.parametrize(
    "rule", [RULES[0], RULES[5], RULES[8], RULES[14]], ids=lambda rule: "-".join(str(value) for value in rule.values())
)
def test_an_input_that_all_share_gives_the_bits_of_its_copies(
    place: Place,
    dtype: Any,
    rng: np.random.Generator,
    rule: Rule,
    shape: tuple[int, int, int, int],
    samples: tuple[int, int],
) -> None:
    case = farther(random_grid_case(rng, dtype, shape, samples), 1.3)
    case = case._replace(input=np.repeat(case.input[:1], len(case.input), axis=0))
    shared = place.broadcast(case.input[:1], shape)
    for one, other in zip(ruled(place, case, rule, shared), ruled(place, case, rule), strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_an_input_that_all_share_is_read_where_it_lies(place: Place, rng: np.random.Generator, mode: str) -> None:
    # Copies would take 4 TiB, of bicubic samples 128 GiB: the tiles of their gradient's scratch are an eighth of the
    # images that they cover. The samples are those of one image that has as many.
    count = 2**15 if mode == "bicubic" else 2**20
    image, gradient = normal(rng, (1, 1, 1024, 1024), np.float32), normal(rng, (count, 1, 1, 1), np.float32)
    grid = rng.uniform(-1.1, 1.1, (count, 1, 1, 2)).astype(np.float32)
    rule = {"mode": mode, "padding_mode": "reflection"}
    one, many = place.array(grid.reshape(1, count, 1, 2)), place.array(grid)
    shared = place.broadcast(image, (count, *image.shape[1:]))
    expected = pybaracuda.grid_sample(place.array(image), one, **rule)
    found = pybaracuda.grid_sample(shared, many, **rule)
    assert_same_bits(place.numpy(found).ravel(), place.numpy(expected).ravel())
    given = place.array(gradient.reshape(1, 1, count, 1)), place.array(image), one
    _, expected = pybaracuda.grid_sample_backward(*given, **rule, output_mask=(False, True))
    _, found = pybaracuda.grid_sample_backward(place.array(gradient), shared, many, **rule, output_mask=(False, True))
    assert_same_bits(place.numpy(found).ravel(), place.numpy(expected).ravel())


def test_an_input_that_all_share_counts_once() -> None:
    # 2^24 gradients of 2^41 bytes are too many, one image of as many bytes is not.
    sizes = (2**24, 8, 2**28, 2**8, 1, 1)
    pybaracuda.GridSamplePlan.select(pybaracuda.GridSampleDescriptor(*sizes, shares_input=True))
    described = pybaracuda.GridSampleBackwardDescriptor
    pybaracuda.GridSampleBackwardPlan.select(described(*sizes, gradients="grid", shares_input=True))
    with pytest.raises(pybaracuda.InvalidProblemError, match="grad_input is too large"):
        pybaracuda.GridSampleBackwardPlan.select(described(*sizes, shares_input=True))
    with pytest.raises(pybaracuda.InvalidProblemError, match="input is too large"):
        pybaracuda.GridSamplePlan.select(pybaracuda.GridSampleDescriptor(*sizes))


def test_other_inputs_with_a_repeated_axis_are_copied(place: Place, rng: np.random.Generator) -> None:
    case = random_grid_case(rng, np.float32, (3, 4, 6, 7))
    repeated = case._replace(input=np.repeat(case.input[:, :1], 4, axis=1))
    assert_same_bits(
        forward(place, repeated, place.broadcast(case.input[:, :1], case.input.shape)), forward(place, repeated)
    )
    # The one image is not row-major.
    turned = np.repeat(case.input[:1].transpose(0, 1, 3, 2), 3, axis=0)
    input = place.permuted(place.broadcast(case.input[:1], case.input.shape), (0, 1, 3, 2))
    assert_same_bits(forward(place, case, input), forward(place, case._replace(input=turned)))


@RULE
@pytest.mark.parametrize("times", [1.0, 4.0, 1000.0])
def test_random_grid_in_every_mode(
    place: Place, dtype: Any, rng: np.random.Generator, rule: Rule, times: float
) -> None:
    for shape in ((2, 3, 6, 7), (1, 1, 1, 9), (3, 2, 9, 1), (1, 5, 33, 17)):
        check_ruled(place, farther(random_grid_case(rng, dtype, shape), times), rule)


@RULE
def test_the_lattice_in_every_mode_is_exact(place: Place, dtype: Any, rng: np.random.Generator, rule: Rule) -> None:
    for shape in ((2, 3, 4, 8), (1, 1, 1, 1), (1, 5, 2, 16)):
        case = lattice_ruled_grid_case(rng, dtype, rule["align_corners"], shape, limit=1)
        output, grad_input, _ = results = ruled(place, case, rule)
        for result, expected in zip(results, ruled_oracle(case, rule), strict=True):
            # A product of two weights in 64ths has more bits than 16-bit numbers hold, bicubic ones, in 2048ths, have
            # more than float32 does.
            holds = result.itemsize > (4 if rule["mode"] == "bicubic" else 2) and np.dtype(dtype).itemsize > 2
            (assert_exact if holds else assert_within)(result, expected)
        if output.itemsize <= (4 if rule["mode"] == "bicubic" else 2):
            continue
        in_output = np.sum(output.astype(np.float64) * case.grad_output.astype(np.float64))
        assert in_output == np.sum(case.input.astype(np.float64) * grad_input.astype(np.float64))


@RULE
@pytest.mark.parametrize("channels", [3, 4, 5, 65, 130])
def test_many_channels_in_every_mode(
    place: Place, dtype: Any, rng: np.random.Generator, rule: Rule, channels: int
) -> None:
    check_ruled(place, farther(random_grid_case(rng, dtype, (1, channels, 4, 5), (3, 3)), 3), rule)


@pytest.mark.parametrize("rule", RULES[2:8], ids=lambda rule: "-".join(str(v) for v in rule.values()))
@pytest.mark.parametrize("channels", [3, 17])
@DENSITY
def test_any_density_in_other_modes(
    place: Place, dtype: Any, rng: np.random.Generator, samples: tuple[int, int], channels: int, rule: Rule
) -> None:
    check_ruled(place, farther(random_grid_case(rng, dtype, (1, channels, 40, 33), samples), 2), rule)


@pytest.mark.parametrize("rule", RULES[2:8], ids=lambda rule: "-".join(str(v) for v in rule.values()))
def test_many_small_images_in_other_modes(place: Place, dtype: Any, rng: np.random.Generator, rule: Rule) -> None:
    # CUDA samples them in shared memory if there are enough of them.
    check_ruled(place, farther(random_grid_case(rng, dtype, (50, 17, 8, 8), (9, 13)), 3), rule)


CUBIC = pytest.mark.parametrize("rule", RULES[12:], ids=lambda rule: "-".join(str(v) for v in list(rule.values())[1:]))


@CUBIC
@pytest.mark.parametrize(("channels", "samples"), [(2, 170), (5, 193), (9, 600), (70, 190)])
def test_bicubic_samples_that_crowd_a_tile(
    place: Place, dtype: Any, rng: np.random.Generator, rule: Rule, channels: int, samples: int
) -> None:
    # CUDA stages 192 samples of a tile at a time and 2,560 contributions (f64: 1,536), gives a block 176 samples of
    # which it sums the gradients to the grid, and sorts more than 512 by another kernel.
    check_ruled(place, farther(random_grid_case(rng, dtype, (1, channels, 9, 10), (1, samples)), 0.4), rule)


@CUBIC
def test_bicubic_positions_without_halves(place: Place, dtype: Any, rng: np.random.Generator, rule: Rule) -> None:
    # A sample's four pixels may be the same, or two apart.
    case = random_grid_case(rng, dtype, (1, 3, 11, 13), (4, 16))
    digits = np.finfo(case.grid.dtype).nmant
    large = 2.0 ** rng.uniform(digits - 1, digits + 4, case.grid.shape) / np.array([13, 11])
    case = case._replace(grid=np.copysign(large, case.grid).astype(case.grid.dtype))
    check_ruled(place, case, rule)


@RULE
def test_bad_coordinates_in_every_mode(place: Place, dtype: Any, rng: np.random.Generator, rule: Rule) -> None:
    compute = coordinate_dtype(dtype)
    for shape in ((1, 3, 5, 4), (1, 2, 1, 1), (1, 1, 1, 6)):
        x, y = np.meshgrid([*BAD_COORDINATES, 1, -1, 0.75], [*BAD_COORDINATES, 1, -1, 0.75])
        grid = np.stack([x, y], axis=-1)[None].astype(compute)
        gradient = normal(rng, (*shape[:2], *x.shape), dtype)
        output, grad_input, grad_grid = check_ruled(place, GridCase(normal(rng, shape, dtype), grid, gradient), rule)
        missing = np.isnan(x) | np.isnan(y)
        if rule["padding_mode"] == "reflection":
            missing |= np.isinf(x) | np.isinf(y)
        assert np.isnan(output[0][:, missing]).all()
        assert_canonical_nans(output)
        assert_same_bits(grad_grid[0][missing], np.zeros_like(grad_grid[0][missing]))
        assert np.isfinite(grad_input.astype(np.float64)).all()
        if rule["padding_mode"] != "reflection":
            assert np.isfinite(output[0][:, ~missing].astype(np.float64)).all()


@RULE
@pytest.mark.parametrize("bad", [INF, NAN])
def test_nothing_leaks_where_a_position_stays(place: Place, dtype: Any, rule: Rule, bad: float) -> None:
    # Far to the right, half-way between two rows: x moves nothing, but in a reflection.
    grid = np.array([[51.0, 0.0]]).reshape(1, 1, 1, 2).astype(coordinate_dtype(dtype))
    case = GridCase(np.full((1, 1, 4, 4), bad, dtype), grid, np.ones((1, 1, 1, 1), dtype))
    *_, grad_grid = ruled(place, case, rule)
    assert_exact(grad_grid, ruled_oracle(case, rule)[2])
    # The pixel at the border is four taps of a bicubic sample, whose slopes cancel.
    if rule["mode"] == "nearest" or (rule["padding_mode"] != "reflection" and rule["mode"] != "bicubic"):
        assert_same_bits(grad_grid[..., 0], np.zeros_like(grad_grid[..., 0]))


def test_the_plain_rule_has_the_bits_of_the_operator_without_options(
    place: Place, dtype: Any, rng: np.random.Generator
) -> None:
    """The array functions never ask the operators with options for it."""
    library = Library(place.backend)
    case = random_grid_case(rng, dtype, (2, 5, 9, 7), (6, 11))
    tensors = dict(zip(("input", "grid", "grad_output"), map(place.array, case), strict=True))
    n, c, h, w = case.input.shape
    values: Values = {"n": n, "c": c, "input_h": h, "input_w": w, "output_h": 6, "output_w": 11}
    values |= {"mode": 0, "padding_mode": 0, "align_corners": 0, "gradients": 0, "shares_input": 0}
    found = []
    for symbol in symbols():
        if symbol.operator.family != "grid_sample" or DTYPES[symbol.variant.token] != np.dtype(dtype):
            continue
        written = {
            tensor.name: place.poisoned(extents(tensor, values), DTYPES[symbol.dtype(tensor)], 0xFF)
            for tensor in symbol.outputs
        }
        pointers = {name: place.pointer(array) for name, array in {**tensors, **written}.items()}
        assert library.run(symbol, values, Launch(pointers)) == 0
        found.append([place.numpy(array) for array in written.values()])
    plain, plain_backward, ruled_forward, ruled_backward = found
    for one, two in zip(plain + plain_backward, ruled_forward + ruled_backward, strict=True):
        assert_same_bits(two, one)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    rule=st.sampled_from(RULES),
    h=st.integers(1, 9),
    w=st.integers(1, 9),
    samples=st.lists(st.tuples(COORDINATES, COORDINATES), max_size=8),
)
def test_any_coordinates_in_every_mode(
    seed: int, name: str, rule: Rule, h: int, w: int, samples: list[tuple[float, float]]
) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    grid = np.array(samples).reshape(1, 1, -1, 2).astype(coordinate_dtype(dtype))
    case = GridCase(normal(rng, (1, 2, h, w), dtype), grid, normal(rng, (1, 2, 1, len(samples)), dtype))
    check_ruled(Place(), case, rule)
