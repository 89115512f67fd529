# SPDX-License-Identifier: Apache-2.0
"""grid_sample of volumes and its gradients against the float64 definition; PyTorch beside both."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import GridCase, integers, normal
from place import Place
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import UNIT_ROUNDOFF, Sum
from verify.definitions import grid_sample_3d as oracle
from verify.dtypes import DTYPES, Array, coordinate_dtype

Rule = dict[str, Any]
RULES: list[Rule] = [
    {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    for mode in ("bilinear", "nearest")
    for padding_mode in ("zeros", "border", "reflection")
    for align_corners in (False, True)
]
PLAIN = RULES[0]
RULE = pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(str(value) for value in rule.values()))
NAN, INF = float("nan"), float("inf")


def random_case(
    rng: np.random.Generator,
    dtype: Any,
    shape: tuple[int, ...] = (2, 3, 4, 6, 7),
    samples: tuple[int, ...] = (3, 5, 4),
    reach: float = 1.4,
) -> GridCase:
    """Coordinates all over the input and as far beyond as `reach` says."""
    return GridCase(
        normal(rng, shape, dtype),
        rng.uniform(-reach, reach, (shape[0], *samples, 3)).astype(coordinate_dtype(dtype)),
        normal(rng, (*shape[:2], *samples), dtype),
    )


def lattice_case(
    rng: np.random.Generator,
    dtype: Any,
    align_corners: bool,
    shape: tuple[int, ...],
    samples: tuple[int, ...] = (2, 3, 4),
) -> GridCase:
    """Small integers at positions that are quarters or eighths, around and beyond the volume: all of it is exact."""
    positions = [rng.integers(-8, 4 * extent + 8, (shape[0], *samples)) / 4 for extent in reversed(shape[2:])]
    coordinates = []
    for position, extent in zip(positions, reversed(shape[2:]), strict=True):
        if align_corners:
            coordinates.append(2 * position / (extent - 1) - 1 if extent > 1 else position)
        else:
            coordinates.append((2 * position + 1) / extent - 1)
    grid = np.stack(coordinates, axis=-1)
    return GridCase(
        integers(rng, shape, dtype, 1),
        grid.astype(coordinate_dtype(dtype)),
        integers(rng, (*shape[:2], *samples), dtype, 1),
    )


def ruled(place: Place, case: GridCase, rule: Rule, input: Any = None) -> tuple[Array, Array, Array]:
    """The library's output and gradients; either gradient alone has the bits that it has beside the other.

    ``input`` replaces the case's by an equal array of another layout.
    """
    arrays = (case.grad_output, case.input if input is None else input, case.grid)
    shapes = [(case.input.shape, case.input.dtype), (case.grid.shape, case.grid.dtype)]
    output_shape = [((*case.input.shape[:2], *case.grid.shape[1:4]), case.input.dtype)]
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


def defined(case: GridCase, rule: Rule) -> tuple[Sum, Sum, Sum]:
    options: Rule = {**rule, "coordinate_dtype": coordinate_dtype(case.input.dtype)}
    of_input, of_grid = oracle.grid_sample_3d_backward(case.grad_output, case.input, case.grid, **options)
    return oracle.grid_sample_3d(case.input, case.grid, **options), of_input, of_grid


def check(place: Place, case: GridCase, rule: Rule = PLAIN) -> tuple[Array, Array, Array]:
    """All three results lie within the derived bound; answers the library's."""
    results = ruled(place, case, rule)
    for result, expected in zip(results, defined(case, rule), strict=True):
        assert_within(result, expected)
    return results


def test_a_position_billions_of_reflections_away(place: Place) -> None:
    """By hand: the image is mirrored every 4 pixels, and x = 2^33 + 6.25 is 0.75 in a mirrored one, nearest to 1."""
    input, grid = np.arange(4.0).reshape(1, 1, 1, 1, 4), np.zeros((1, 1, 1, 1, 3))
    grid[..., 0] = (2 * (2.0**33 + 6.25) + 1) / 4 - 1
    sample = partial(pybaracuda.grid_sample, mode="nearest", padding_mode="reflection", align_corners=False)
    assert place.run(sample, input, grid, outputs=[((1, 1, 1, 1, 1), input.dtype)])[0].item() == 1


@RULE
@pytest.mark.parametrize("reach", [1.0, 4.0, 1000.0])
def test_random_grids(place: Place, dtype: Any, rng: np.random.Generator, rule: Rule, reach: float) -> None:
    for shape in ((2, 3, 4, 6, 7), (1, 1, 1, 1, 9), (2, 2, 9, 1, 1), (1, 5, 3, 17, 9)):
        check(place, random_case(rng, dtype, shape, reach=reach), rule)


@RULE
def test_the_lattice_is_exact(place: Place, dtype: Any, rng: np.random.Generator, rule: Rule) -> None:
    extents = (3, 5, 9) if rule["align_corners"] else (2, 4, 8)
    for shape in ((2, 3, *extents), (1, 1, 1, 1, 1), (1, 5, extents[2], 1, extents[0])):
        case = lattice_case(rng, dtype, rule["align_corners"], shape)
        results = ruled(place, case, rule)
        for result, expected in zip(results, defined(case, rule), strict=True):
            # A product of three weights in quarters has more bits than 16-bit numbers hold.
            (assert_exact if result.itemsize > 2 else assert_within)(result, expected)
        output, grad_input, _ = results
        if output.itemsize > 2:
            in_output = np.sum(output.astype(np.float64) * case.grad_output.astype(np.float64))
            assert in_output == np.sum(case.input.astype(np.float64) * grad_input.astype(np.float64))


def test_sampling_its_own_voxels_is_the_identity(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    volume = normal(rng, (2, 3, 2, 4, 8), dtype)
    axes = [(2 * np.arange(extent) + 1) / extent - 1 for extent in (2, 4, 8)]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    grid = np.broadcast_to(np.stack([x, y, z], axis=-1), (2, 2, 4, 8, 3)).astype(coordinate_dtype(dtype))
    output, grad_input, _ = ruled(place, GridCase(volume, grid, volume), PLAIN)
    assert_same_bits(output, volume)
    assert_same_bits(grad_input, volume)


@pytest.mark.parametrize("channels", [7, 8, 9, 17, 63, 64, 65, 130])
def test_many_channels(place: Place, dtype: Any, rng: np.random.Generator, channels: int) -> None:
    # CUDA takes eight at a time; the gradient to the grid is cut every 64.
    check(place, random_case(rng, dtype, (1, channels, 3, 4, 5), (2, 3, 3)))
    check(place, random_case(rng, dtype, (1, channels, 2, 3, 9), (1, 3, 7), 3), RULES[4])


@pytest.mark.parametrize(
    "shape", [(3, 7, 7), (4, 8, 8), (5, 9, 9), (8, 16, 16), (9, 17, 17)], ids=lambda shape: "x".join(map(str, shape))
)
def test_volumes_around_a_tile(place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, int, int]) -> None:
    # CUDA's tiles are 4 x 8 x 8 voxels.
    for rule in (PLAIN, RULES[3], RULES[4], RULES[6]):
        check(place, random_case(rng, dtype, (2, 3, *shape), (7, 9, 11), 1.2), rule)


@pytest.mark.parametrize("samples", [256, 257, 512, 513, 640, 641, 2048, 2049, 5000])
def test_many_samples_in_one_tile(place: Place, dtype: Any, rng: np.random.Generator, samples: int) -> None:
    # CUDA stages 512 samples of a tile, or of one channel 640, and sorts 2,048 in shared memory.
    check(place, random_case(rng, dtype, (1, 3, 3, 4, 5), (1, 1, samples), 1.0))
    # Consecutive samples far apart: those of a tile are no run.
    case = random_case(rng, dtype, (1, 2, 5, 9, 9), (2, 1, samples), 1.0)
    check(place, case, RULES[2])
    # One channel sorts up to 16 contributions of a voxel in registers.
    check(place, random_case(rng, dtype, (1, 1, 8, 9, 10), (1, 1, samples), 1.1))
    check(place, random_case(rng, dtype, (1, 1, 2, 8, 8), (1, 1, samples), 1.0), RULES[4])


def test_one_channel_of_samples_far_apart(place: Place, rng: np.random.Generator) -> None:
    # On CUDA 19 bits of a sample's number go into its contributions; those of one tile here need 20.
    case = random_case(rng, np.float32, (1, 1, 8, 8, 8), (1, 750, 1000), 1.0)
    case.grid[:, :, 1:-1] = 9
    case.grid[:, 0, :-100] = 9
    case.grid[:, 0, -100:] /= 4
    check(place, case)


@pytest.mark.parametrize("samples", [255, 256, 257, 600, 1100])
def test_many_samples_on_one_voxel(place: Place, dtype: Any, rng: np.random.Generator, samples: int) -> None:
    # A voxel's list is cut every 256 samples.
    case = random_case(rng, dtype, (1, 2, 3, 5, 6), (1, 1, samples))
    tight = (0.4 + rng.uniform(0, 0.02, case.grid.shape)).astype(case.grid.dtype)
    case = case._replace(grid=tight)
    assert defined(case, PLAIN)[1].terms.max() >= samples
    check(place, case)
    exact = lattice_case(rng, dtype, False, (1, 2, 2, 4, 4), (1, 1, samples))
    one_place = exact._replace(grid=np.broadcast_to(exact.grid[:, :, :, :1], exact.grid.shape).copy())
    for result, expected in zip(ruled(place, one_place, PLAIN), defined(one_place, PLAIN), strict=True):
        (assert_exact if result.itemsize > 2 else assert_within)(result, expected)


@pytest.mark.parametrize("samples", [15, 16, 17, 255, 256, 257, 600, 9000])
def test_many_nearest_samples_on_one_voxel(place: Place, dtype: Any, rng: np.random.Generator, samples: int) -> None:
    # On CUDA a lane sorts lists of 16, a warp those of 256, and a block longer ones, which it adds in chunks of 256.
    rule: Rule = {"mode": "nearest", "padding_mode": "border", "align_corners": False}
    case = random_case(rng, dtype, (1, 2, 3, 5, 6), (1, 1, samples))
    case.grid[:, :, :, ::2] = 0.4
    assert defined(case, rule)[1].terms.max() >= samples // 2
    check(place, case, rule)
    check(place, case._replace(grid=np.full_like(case.grid, 9)), rule)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 33, 64, 65])
def test_nearest_samples_of_many_channels(place: Place, dtype: Any, rng: np.random.Generator, channels: int) -> None:
    # CUDA lays up to 16, 32 or 64 channels of a sample side by side, 64 samples at a time, and adds up to 512 voxels.
    rule: Rule = {"mode": "nearest", "padding_mode": "zeros", "align_corners": True}
    check(place, random_case(rng, dtype, (2, channels, 3, 5, 9), (1, 5, 13), 1.1), rule)
    check(place, random_case(rng, dtype, (1, channels, 9, 10, 13), (2, 3, 32), 1.1), rule)


BAD_COORDINATES = [NAN, INF, -INF, 1e20, -3e38, 2.0**31, 1e-40, 0.1, 1.0, -1.0]


@RULE
def test_bad_coordinates(place: Place, dtype: Any, rng: np.random.Generator, rule: Rule) -> None:
    for shape in ((1, 2, 3, 5, 4), (1, 2, 1, 1, 1)):
        x, y, z = np.meshgrid(BAD_COORDINATES, BAD_COORDINATES, BAD_COORDINATES)
        grid = np.stack([x, y, z], axis=-1)[None].astype(coordinate_dtype(dtype))
        gradient = normal(rng, (*shape[:2], *x.shape), dtype)
        output, grad_input, grad_grid = check(place, GridCase(normal(rng, shape, dtype), grid, gradient), rule)
        missing = np.isnan(x) | np.isnan(y) | np.isnan(z)
        if rule["padding_mode"] == "reflection":
            missing |= np.isinf(x) | np.isinf(y) | np.isinf(z)
        else:
            assert np.isfinite(output[0][:, ~missing].astype(np.float64)).all()
        assert np.isnan(output[0][:, missing]).all()
        assert_canonical_nans(output)
        assert_same_bits(grad_grid[0][missing], np.zeros_like(grad_grid[0][missing]))
        assert np.isfinite(grad_input.astype(np.float64)).all()


@RULE
@pytest.mark.parametrize("bad", [INF, NAN])
def test_nothing_leaks_where_a_position_stays(place: Place, dtype: Any, rule: Rule, bad: float) -> None:
    # Far to the right, half-way between two rows and planes: x moves nothing, but in a reflection.
    grid = np.array([[51.0, 0.0, 0.0]]).reshape(1, 1, 1, 1, 3).astype(coordinate_dtype(dtype))
    case = GridCase(np.full((1, 1, 4, 4, 4), bad, dtype), grid, np.ones((1, 1, 1, 1, 1), dtype))
    *_, grad_grid = ruled(place, case, rule)
    assert_exact(grad_grid, defined(case, rule)[2])
    if rule["mode"] == "nearest" or rule["padding_mode"] != "reflection":
        assert_same_bits(grad_grid[..., 0], np.zeros_like(grad_grid[..., 0]))


@pytest.mark.parametrize("position", [(2.0, 1.0, 0.0), (2.0, 1.5, 3.0), (2.5, 1.0, 1.5), (-1.0, 2.0, 2.0)])
@pytest.mark.parametrize("bad", [INF, NAN])
def test_weights_of_zero_do_not_leak(
    place: Place, dtype: Any, position: tuple[float, float, float], bad: float
) -> None:
    grid = ((2 * np.array(position) + 1) / 4 - 1).reshape(1, 1, 1, 1, 3).astype(coordinate_dtype(dtype))
    ones = GridCase(np.ones((1, 1, 4, 4, 4), dtype), grid, np.ones((1, 1, 1, 1, 1), dtype))
    output, grad_input, _ = ruled(place, ones, PLAIN)
    weighted = grad_input != 0
    # Everything bad but the voxels that the sample sees: output as if nothing were.
    one_sided = ones._replace(input=np.where(weighted, dtype.type(1), dtype.type(bad)))
    again, _, grad_grid = ruled(place, one_sided, PLAIN)
    assert_same_bits(again, output)
    assert_exact(grad_grid, defined(one_sided, PLAIN)[2])
    # A bad gradient reaches these voxels and no other.
    _, spread, _ = ruled(place, ones._replace(grad_output=np.full_like(ones.grad_output, bad)), PLAIN)
    assert_same_bits(spread != 0, weighted)


@pytest.mark.parametrize(
    ("shape", "samples"),
    [
        ((0, 3, 2, 4, 5), (2, 2, 2)),
        ((2, 0, 2, 4, 5), (2, 2, 2)),
        ((2, 3, 0, 4, 5), (2, 2, 2)),
        ((2, 3, 2, 4, 0), (2, 2, 2)),
        ((2, 3, 2, 4, 5), (0, 2, 2)),
        ((2, 3, 2, 4, 5), (2, 2, 0)),
        ((0, 0, 0, 0, 0), (0, 0, 0)),
    ],
    ids=["no-volumes", "no-channels", "no-planes", "no-columns", "no-output-planes", "no-output-columns", "nothing"],
)
def test_empty_problems_write_zeros(
    place: Place, dtype: Any, shape: tuple[int, ...], samples: tuple[int, int, int]
) -> None:
    n, c = shape[:2]
    grid = np.full((n, *samples, 3), 0.25, coordinate_dtype(dtype))
    case = GridCase(np.ones(shape, dtype), grid, np.ones((n, c, *samples), dtype))
    output, grad_input, grad_grid = ruled(place, case, PLAIN)
    # Only an output of an empty input or of no channels has elements here, and they are 0.
    assert_same_bits(output, np.zeros_like(case.grad_output))
    assert_same_bits(grad_input, np.zeros_like(case.input))
    assert_same_bits(grad_grid, np.zeros_like(grid))


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype)
    output, *gradients = ruled(place, case, PLAIN)
    for layout in (place.transposed, place.every_second, place.misaligned):
        input, grid = layout(case.input), layout(case.grid)
        assert_same_bits(place.numpy(pybaracuda.grid_sample(input, grid)), output)
        again = pybaracuda.grid_sample_backward(layout(case.grad_output), input, grid)
        for one, two in zip(gradients, again, strict=True):
            assert_same_bits(place.numpy(two), one)


@pytest.mark.parametrize(
    "rule", [RULES[0], RULES[5], RULES[8]], ids=lambda rule: "-".join(str(value) for value in rule.values())
)
@pytest.mark.parametrize("channels", [1, 5, 70])
def test_an_input_that_all_share_gives_the_bits_of_its_copies(
    place: Place, dtype: Any, rng: np.random.Generator, rule: Rule, channels: int
) -> None:
    shape = (3, channels, 5, 9, 17)
    case = random_case(rng, dtype, shape, (6, 7, 8))
    case = case._replace(input=np.repeat(case.input[:1], len(case.input), axis=0))
    shared = place.broadcast(case.input[:1], shape)
    for one, other in zip(ruled(place, case, rule, shared), ruled(place, case, rule), strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_an_input_that_all_share_is_read_where_it_lies(place: Place, rng: np.random.Generator, mode: str) -> None:
    # A million copies would take 4 TiB. Their samples are those of one volume that has as many.
    count = 2**20
    volume, gradient = normal(rng, (1, 1, 64, 128, 128), np.float32), normal(rng, (count, 1, 1, 1, 1), np.float32)
    grid = rng.uniform(-1.1, 1.1, (count, 1, 1, 1, 3)).astype(np.float32)
    rule = {"mode": mode, "padding_mode": "reflection"}
    one, many = place.array(grid.reshape(1, count, 1, 1, 3)), place.array(grid)
    shared = place.broadcast(volume, (count, *volume.shape[1:]))
    expected = pybaracuda.grid_sample(place.array(volume), one, **rule)
    found = pybaracuda.grid_sample(shared, many, **rule)
    assert_same_bits(place.numpy(found).ravel(), place.numpy(expected).ravel())
    given = place.array(gradient.reshape(1, 1, count, 1, 1)), place.array(volume), one
    _, expected = pybaracuda.grid_sample_backward(*given, **rule, output_mask=(False, True))
    _, found = pybaracuda.grid_sample_backward(place.array(gradient), shared, many, **rule, output_mask=(False, True))
    assert_same_bits(place.numpy(found).ravel(), place.numpy(expected).ravel())


@pytest.mark.parametrize("channels", [1, 5])
def test_large_batch(place: Place, rng: np.random.Generator, channels: int) -> None:
    """More volumes than a launch grid has in its second and third dimension: the bits of two smaller calls."""
    count, first = 65_537, 40_000
    case = random_case(rng, np.float32, (count, channels, 1, 2, 3), (1, 1, 3))
    whole = ruled(place, case, PLAIN)
    for part in (slice(first), slice(first, count)):
        alone = ruled(place, GridCase(*(array[part] for array in case)), PLAIN)
        for one, two in zip(whole, alone, strict=True):
            assert_same_bits(one[part], two)


@RULE
def test_a_volume_of_one_plane_has_the_values_of_its_image(
    place: Place, wide_dtype: Any, rng: np.random.Generator, rule: Rule
) -> None:
    """At z = 0 the plane weighs 1."""
    case = random_case(rng, wide_dtype, (2, 3, 1, 6, 7), (1, 5, 4), 3)
    case.grid[..., 2] = 0
    output, grad_input, grad_grid = ruled(place, case, rule)
    images = [place.array(np.ascontiguousarray(array[:, :, 0])) for array in (case.grad_output, case.input)]
    grid = place.array(np.ascontiguousarray(case.grid[:, 0, :, :, :2]))
    assert_same_bits(output[:, :, 0], place.numpy(pybaracuda.grid_sample(images[1], grid, **rule)))
    of_image, of_grid = pybaracuda.grid_sample_backward(*images, grid, **rule)
    assert_same_bits(grad_input[:, :, 0], place.numpy(of_image))
    assert_same_bits(grad_grid[:, 0, :, :, :2], place.numpy(of_grid))


@RULE
def test_beside_torch(torch: Any, rng: np.random.Generator, rule: Rule) -> None:
    """On the lattice to the bit; anywhere, a position of PyTorch's may differ in its last bits."""
    extents = (3, 5, 9) if rule["align_corners"] else (2, 4, 8)
    cases = [lattice_case(rng, np.float64, rule["align_corners"], (2, 2, *extents)) for _ in range(3)]
    cases += [random_case(rng, np.float64, (2, 3, 4, 6, 7), (5, 7, 9), 3) for _ in range(3)]
    for number, case in enumerate(cases):
        input, grid = (torch.from_numpy(array).requires_grad_() for array in case[:2])
        output = torch.nn.functional.grid_sample(input, grid, **rule)
        output.backward(torch.from_numpy(case.grad_output))
        # Three roundings each way of numbers no larger than (|g| + 1) extent move a position by at most so much, and a
        # weight by three times that; a result is a sum of values times weights, or times extent / 2.
        moved = 3 * 6 * UNIT_ROUNDOFF["float64"] * 4 * max(case.input.shape[2:])
        largest = np.abs(case.input).max() * np.abs(case.grad_output).max()
        for found, expected in zip((output.detach(), input.grad, grid.grad), defined(case, rule), strict=True):
            slack = expected.bound(np.float64)
            if number >= 3:
                slack = slack + moved * (expected.terms + 8) * max(largest, 1) * max(case.input.shape) ** 2
            else:
                slack = slack * (found.shape != expected.value.shape)
            assert (np.abs(found.numpy() - expected.value) <= slack).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    rule=st.sampled_from(RULES),
    extents=st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9)),
    channels=st.integers(1, 10),
    samples=st.lists(
        st.tuples(*[st.one_of(st.floats(-1.5, 1.5, width=32), st.sampled_from([-1.0, 0.0, 0.25, NAN, INF, 1e20]))] * 3),
        max_size=8,
    ),
)
def test_any_coordinates(
    seed: int,
    name: str,
    rule: Rule,
    extents: tuple[int, int, int],
    channels: int,
    samples: list[tuple[float, float, float]],
) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    grid = np.array(samples).reshape(1, 1, 1, -1, 3).astype(coordinate_dtype(dtype))
    gradient = normal(rng, (1, channels, 1, 1, len(samples)), dtype)
    check(Place(), GridCase(normal(rng, (1, channels, *extents), dtype), grid, gradient), rule)
