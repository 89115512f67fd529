# SPDX-License-Identifier: Apache-2.0
"""roi_align of volumes and its gradient against the definition, and roi_align's results beside them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from bad_boxes import BAD_BATCH, INF, NAN
from hypothesis import given
from hypothesis import strategies as st
from lattice import LATTICE_BINS, ODD_SCALE, integers, normal
from place import Place
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import Sum
from verify.definitions import roi_align as flat
from verify.definitions import roi_align_3d as oracle
from verify.dtypes import Array, coordinate_dtype

SAMPLING = pytest.mark.parametrize("sampling_ratio", [1, 2, -1], ids=["sr1", "sr2", "adaptive"])
ALIGNED = pytest.mark.parametrize("aligned", [False, True], ids=["classic", "aligned"])

Axes = tuple[int, int, int]


class Case(NamedTuple):
    """A problem with its gradient; ``options`` are the functions' keyword arguments."""

    input: Array
    boxes: Array
    output_size: Axes
    grad_output: Array
    options: dict[str, Any]


def random_case(
    rng: np.random.Generator,
    dtype: Any,
    boxes: Any = None,
    *,
    n: int = 2,
    channels: int = 3,
    volume: Axes = (5, 7, 9),
    bins: Axes = (2, 3, 2),
    num_rois: int = 11,
    spatial_scale: float = ODD_SCALE,
    sampling_ratio: int = 2,
    aligned: bool = True,
    draw: Any = normal,
) -> Case:
    """Boxes of any place and size around the volumes, some of them reversed."""
    if boxes is None:
        corners = rng.uniform(-0.3, 1.3, (num_rois, 6)) * (np.array([*volume[::-1]] * 2) / spatial_scale)
        boxes = np.concatenate([rng.integers(0, n, (num_rois, 1)), corners], 1)
    rows = np.asarray(boxes, np.float64).reshape(-1, 7).astype(coordinate_dtype(dtype))
    return Case(
        draw(rng, (n, channels, *volume), dtype),
        rows,
        bins,
        draw(rng, (len(rows), channels, *bins), dtype),
        {"spatial_scale": spatial_scale, "sampling_ratio": sampling_ratio, "aligned": aligned},
    )


def lattice_case(
    rng: np.random.Generator, dtype: Any, sampling_ratio: int, aligned: bool, limit: int = 2, num_rois: int = 9
) -> Case:
    """Boxes inside, across and beyond the borders, whose samples lie on quarters: all weights are multiples of 2^-9."""
    volume, bins, scale = (6, 8, 9), (2, 2, 3), 0.5
    sizes = np.array(LATTICE_BINS[sampling_ratio])
    if not aligned:
        # Otherwise the minimum size of 1 changes the bin.
        sizes = sizes[sizes * min(bins) >= 1]
    extents, counts = np.array(volume[::-1]), np.array(bins[::-1])
    low = rng.integers(-8, 4 * extents + 4, (num_rois, 3)) / 4
    high = low + rng.choice(sizes, (num_rois, 3)) * counts
    corners = (np.concatenate([low, high], 1) + (0.5 if aligned else 0.0)) / scale
    boxes = np.concatenate([rng.integers(0, 2, (num_rois, 1)), corners], 1)
    case = random_case(
        rng, dtype, boxes, channels=2, volume=volume, bins=bins, spatial_scale=scale, sampling_ratio=sampling_ratio,
        aligned=aligned,
    )  # fmt: skip
    return case._replace(
        input=integers(rng, case.input.shape, dtype, limit),
        grad_output=integers(rng, case.grad_output.shape, dtype, limit),
    )


def forward(place: Place, case: Case, input: Any = None) -> Array:
    return place.run(
        pybaracuda.roi_align_3d,
        case.input if input is None else input,
        case.boxes,
        case.output_size,
        outputs=[(case.grad_output.shape, case.input.dtype)],
        **case.options,
    )[0]


def backward(place: Place, case: Case, grad_output: Any = None) -> Array:
    return place.run(
        pybaracuda.roi_align_3d_backward,
        case.grad_output if grad_output is None else grad_output,
        case.boxes,
        case.input.shape,
        outputs=[(case.input.shape, case.input.dtype)],
        **case.options,
    )[0]


def expected(case: Case) -> tuple[Sum, Sum]:
    # The C argument is a float, for float64 data too.
    scale = float(np.float32(case.options["spatial_scale"]))
    options = {**case.options, "spatial_scale": scale, "coordinate_dtype": case.boxes.dtype}
    shape: Any = case.input.shape
    return (
        oracle.roi_align_3d(case.input, case.boxes, case.output_size, **options),
        oracle.roi_align_3d_backward(case.grad_output, case.boxes, shape, **options),
    )


def check(place: Place, case: Case) -> tuple[Array, Array]:
    """Both directions lie within the derived bound; answers the library's results."""
    output, grad_input = forward(place, case), backward(place, case)
    of_output, of_input = expected(case)
    assert_within(output, of_output)
    assert_within(grad_input, of_input)
    return output, grad_input


@SAMPLING
@ALIGNED
def test_random_boxes(place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool) -> None:
    check(place, random_case(rng, dtype, sampling_ratio=sampling_ratio, aligned=aligned))


@SAMPLING
@ALIGNED
def test_lattice_is_exact_and_the_adjoint_identity_holds(
    place: Place, wide_dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool
) -> None:
    case = lattice_case(rng, wide_dtype, sampling_ratio, aligned)
    output, grad_input = forward(place, case), backward(place, case)
    of_output, of_input = expected(case)
    assert_exact(output, of_output)
    assert_exact(grad_input, of_input)
    assert np.any(output)
    assert np.sum(output.astype(np.float64) * case.grad_output) == np.sum(case.input * grad_input.astype(np.float64))


@pytest.mark.parametrize("bins", [(1, 1, 1), (9, 8, 2), (1, 1, 33), (2, 17, 1), (18, 1, 9)])
def test_bins_around_every_pass(place: Place, wide_dtype: Any, rng: np.random.Generator, bins: Axes) -> None:
    check(place, random_case(rng, wide_dtype, bins=bins, channels=1, num_rois=4))


@pytest.mark.parametrize(
    "volume", [(1, 1, 1), (4, 4, 16), (5, 5, 17), (2, 8, 32), (3, 9, 33), (1, 40, 1), (40, 1, 1), (1, 2, 300)]
)
def test_volumes_around_every_tile(place: Place, wide_dtype: Any, rng: np.random.Generator, volume: Axes) -> None:
    check(place, random_case(rng, wide_dtype, volume=volume, channels=2, num_rois=6, spatial_scale=1.0))


@pytest.mark.parametrize("channels", [1, 3, 4, 5, 8, 9, 16, 17, 33])
def test_channels_around_every_block(place: Place, wide_dtype: Any, rng: np.random.Generator, channels: int) -> None:
    check(place, random_case(rng, wide_dtype, channels=channels, num_rois=3, volume=(3, 4, 5)))


@pytest.mark.parametrize("num_rois", [1, 32, 63, 65, 257, 600])
def test_boxes_around_every_block(place: Place, dtype: Any, rng: np.random.Generator, num_rois: int) -> None:
    check(place, random_case(rng, dtype, num_rois=num_rois, volume=(3, 4, 5), bins=(1, 2, 1), channels=1))


def test_a_line_longer_than_the_table_holds(place: Place, wide_dtype: Any, rng: np.random.Generator) -> None:
    """A bin of more than 4096 columns has no weights in a table."""
    boxes = [[0, -3, 0, 0, 5200, 2, 2], [0, 100, 0, 0, 4300, 1, 2]]
    volume, bins = (2, 2, 5200), (1, 1, 1)
    check(
        place,
        random_case(
            rng, wide_dtype, boxes, n=1, channels=1, volume=volume, bins=bins, spatial_scale=1.0, sampling_ratio=-1
        ),
    )


@pytest.mark.parametrize("sampling_ratio", [2, -1])
def test_a_volume_of_one_plane_is_a_map(
    place: Place, wide_dtype: Any, rng: np.random.Generator, sampling_ratio: int
) -> None:
    """With every sample on the plane the third axis weighs 1: the values of roi_align."""
    case = random_case(rng, wide_dtype, volume=(1, 9, 11), bins=(1, 3, 2), sampling_ratio=sampling_ratio)
    rows = case.boxes.copy()
    # From z 0 to 1, which is less than a sample's reach beyond the plane.
    rows[:, 3], rows[:, 6] = 0, 1 / case.options["spatial_scale"]
    case = case._replace(boxes=rows)
    maps = rows[:, [0, 1, 2, 4, 5]]
    options = {**case.options, "coordinate_dtype": rows.dtype}
    of_maps = flat.roi_align(case.input[:, :, 0], maps, case.output_size[1:], **options)
    assert_within(forward(place, case)[:, :, 0], of_maps)
    shape: Any = (*case.input.shape[:2], *case.input.shape[3:])
    of_gradient = flat.roi_align_backward(case.grad_output[:, :, 0], maps, shape, **options)
    assert_within(backward(place, case)[:, :, 0], of_gradient)


@pytest.mark.parametrize("swap", [(2, 4), (3, 4)], ids=["x-and-z", "x-and-y"])
def test_axes_are_alike(place: Place, rng: np.random.Generator, swap: tuple[int, int]) -> None:
    """On the lattice, where no order of a sum matters, exchanged axes give exchanged results."""
    case = lattice_case(rng, np.float32, 2, True)
    order = list(range(5))
    order[swap[0]], order[swap[1]] = order[swap[1]], order[swap[0]]
    # Column 1 of a row is x, axis 4 of a volume.
    columns = [0, *(5 - order[axis] for axis in (4, 3, 2)), *(8 - order[axis] for axis in (4, 3, 2))]
    bins: Any = tuple(case.output_size[each - 2] for each in order[2:])
    swapped = Case(
        np.ascontiguousarray(case.input.transpose(order)),
        np.ascontiguousarray(case.boxes[:, columns]),
        bins,
        np.ascontiguousarray(case.grad_output.transpose(order)),
        case.options,
    )
    assert_same_bits(forward(place, swapped), np.ascontiguousarray(forward(place, case).transpose(order)))
    assert_same_bits(backward(place, swapped), np.ascontiguousarray(backward(place, case).transpose(order)))


BAD_CORNERS = [
    [NAN, 1, 1, 4, 4, 4], [1, 1, NAN, 4, 4, 4], [1, 1, 1, 4, 4, NAN], [-INF, 0, 0, 4, 4, 4], [0, 0, 0, 4, 4, INF],
    [-INF, -INF, -INF, INF, INF, INF], [-1e30, -1e30, -1e30, 1e30, 1e30, 1e30], [0, 0, -3e38, 4, 4, 3e38],
    [1e30, 1e30, 1e30, 2e30, 2e30, 2e30], [0, 0, 0, 4, 4, 1e10], [5, 6, 4, 1, 2, 1], [1, 2, 4, 5, 6, 1],
    [3, 3, 3, 3, 3, 3], [1, 1, 3, 4, 4, 3], [1e-40, 1e-40, 1e-40, 4, 4, 4], [-5, -5, -5, -1, -1, -1],
    [20, 20, 20, 30, 30, 30], [-1, -1, -1, 0, 0, 0],
]  # fmt: skip


@ALIGNED
@pytest.mark.parametrize("sampling_ratio", [2, -1])
def test_bad_boxes(place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool) -> None:
    rows = [[batch, 1, 1, 1, 5, 4, 4] for batch in BAD_BATCH] + [[1, *corners] for corners in BAD_CORNERS]
    rows += [[0, 1.5, 0.75, 0.5, 6, 5.5, 4]]
    case = random_case(rng, dtype, rows, spatial_scale=1.0, sampling_ratio=sampling_ratio, aligned=aligned)
    output, grad_input = check(place, case)
    assert np.isfinite(output.astype(np.float64)).all()
    assert np.isfinite(grad_input.astype(np.float64)).all()


_COORDINATES = st.one_of(st.floats(-8, 16, width=32), st.sampled_from([-1.0, 0.0, 0.5, 5.0, 7.0, NAN, INF, 1e30]))


@given(
    boxes=st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 1.0, NAN]), *[_COORDINATES] * 6), max_size=4),
    seed=st.integers(0, 2**32 - 1),
    sampling_ratio=st.sampled_from([0, 1, 3]),
)
def test_any_boxes(backend: str, place: Place, boxes: list[tuple[float, ...]], seed: int, sampling_ratio: int) -> None:
    rng = np.random.default_rng(seed)
    check(place, random_case(rng, np.float32, boxes, spatial_scale=1.0, channels=1, sampling_ratio=sampling_ratio))


def test_what_is_not_finite_stays_where_it_is(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    rows = [[0, 1, 1, 1, 4, 4, 4], [0, 1, 1, 1, 4, 4, 4], [1, 0, 0, 0, 6, 6, 4]]
    case = random_case(rng, dtype, rows, spatial_scale=1.0)
    volumes, gradient = case.input.copy(), case.grad_output.copy()
    volumes[0, :, 2, 2, 2], volumes[1, :, 3, 3, 3] = NAN, INF
    gradient[0, 0, 0, 0], gradient[2, 1, 1] = NAN, -INF
    output, grad_input = forward(place, case, volumes), backward(place, case, gradient)
    assert_canonical_nans(output)
    assert_canonical_nans(grad_input)
    of_output, of_input = expected(case._replace(input=volumes, grad_output=gradient))
    assert_within(output, of_output)
    assert_within(grad_input, of_input)


def test_without_boxes_the_gradient_is_zeros(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, np.zeros((0, 7)))
    assert forward(place, case).shape == (0, 3, 2, 3, 2)
    assert_same_bits(backward(place, case), np.zeros_like(case.input))


def test_list_of_boxes_per_volume(rng: np.random.Generator) -> None:
    case = random_case(rng, np.float32, spatial_scale=1.0)
    rows = case.boxes[np.argsort(case.boxes[:, 0], kind="stable")]
    parts = [rows[rows[:, 0] == volume, 1:] for volume in range(2)]
    whole = pybaracuda.roi_align_3d(case.input, rows, case.output_size)
    assert_same_bits(pybaracuda.roi_align_3d(case.input, parts, case.output_size), whole)
    assert pybaracuda.roi_align_3d(case.input, [], 2).shape == (0, 3, 2, 2, 2)
    with pytest.raises(ValueError, match=r"boxes\[0\] has shape \(\d+, 7\); wanted \[L, 6\]"):
        pybaracuda.roi_align_3d(case.input, [rows], 2)


def test_a_scale_is_rounded_to_float32(rng: np.random.Generator) -> None:
    case = random_case(rng, np.float64, spatial_scale=1 / 3)
    rounded = pybaracuda.roi_align_3d(case.input, case.boxes, case.output_size, float(np.float32(1 / 3)))
    assert_same_bits(pybaracuda.roi_align_3d(case.input, case.boxes, case.output_size, 1 / 3), rounded)
