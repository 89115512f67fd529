# SPDX-License-Identifier: Apache-2.0
"""The gradient of roi_align's boxes against its definition, and that against differences of the forward's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bad_boxes import ANY_BOXES, BAD_BATCH, INF, NAN
from hypothesis import given
from hypothesis import strategies as st
from lattice import ODD_SCALE, RoiCase, normal, random_roi_case
from place import Place
from tolerance import assert_canonical_nans, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import Sum
from verify.definitions import roi_align as oracle
from verify.dtypes import Array, coordinate_dtype

SAMPLING = pytest.mark.parametrize("sampling_ratio", [1, 2, 3, -1], ids=["sr1", "sr2", "sr3", "adaptive"])
ALIGNED = pytest.mark.parametrize("aligned", [False, True], ids=["classic", "aligned"])


def gradient(place: Place, case: RoiCase) -> Array:
    return place.run(
        pybaracuda.roi_align_boxes_backward,
        case.grad_output,
        case.input,
        case.boxes,
        outputs=[(case.boxes.shape, case.boxes.dtype)],
        **case.options,
    )[0]


def expected(case: RoiCase) -> Sum:
    options = {**case.options, "spatial_scale": float(np.float32(case.options["spatial_scale"]))}
    return oracle.roi_align_boxes_backward(
        case.grad_output, case.input, case.boxes, **options, coordinate_dtype=case.boxes.dtype
    )


def check(place: Place, case: RoiCase) -> Array:
    found = gradient(place, case)
    assert_within(found, expected(case))
    assert not np.any(found[:, 0])
    return found


def with_boxes(case: RoiCase, boxes: Any) -> RoiCase:
    rows = np.asarray(boxes, np.float64).reshape(-1, 5).astype(coordinate_dtype(case.input.dtype))
    return case._replace(boxes=rows, grad_output=np.resize(case.grad_output, (len(rows), *case.grad_output.shape[1:])))


@SAMPLING
@ALIGNED
@pytest.mark.parametrize("scale", [1.0, ODD_SCALE, -0.5])
def test_random_boxes(
    place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool, scale: float
) -> None:
    # Of adaptive samples a quarter of the boxes has some; a few of those would be left by chance.
    found = check(place, random_roi_case(rng, dtype, sampling_ratio, aligned, scale, num_rois=60))
    assert np.any(found[:, 1:])


@SAMPLING
@ALIGNED
def test_definition_is_the_forwards_derivative(rng: np.random.Generator, sampling_ratio: int, aligned: bool) -> None:
    """On an image that is one bilinear function: no sample passes a kink."""
    h, w, scale = 13, 15, 0.5
    y, x = np.indices((h, w)) / 8
    functions = np.stack([x, y, x * y, np.ones_like(x)])
    image = np.einsum("ncf,fhw->nchw", rng.standard_normal((2, 3, 4)), functions)
    low = rng.uniform(1, 4, (6, 2))
    # At least one pixel a side, and all samples between pixels; the number of adaptive ones changes nowhere near.
    rows = np.concatenate([rng.integers(0, 2, (6, 1)), low / scale, (low + rng.uniform(2.1, 5.9, (6, 2))) / scale], 1)
    size, options = (2, 3), {"spatial_scale": scale, "sampling_ratio": sampling_ratio, "aligned": aligned}
    grad = rng.standard_normal((6, 3, *size))
    found = oracle.roi_align_boxes_backward(grad, image, rows, **options).value
    step = 2.0**-10
    for column in range(1, 5):
        moved = np.zeros_like(rows)
        moved[:, column] = step
        ends = [oracle.roi_align(image, rows + sign * moved, size, **options).value for sign in (1, -1)]
        # The value is a polynomial of degree 2 in a corner: the central difference has no error but rounding's.
        differences = ((ends[0] - ends[1]) * grad).sum((1, 2, 3)) / (2 * step)
        np.testing.assert_allclose(found[:, column], differences, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("channels", [1, 7, 8, 9, 33])
@pytest.mark.parametrize("bins", [(1, 1), (7, 7), (1, 33), (40, 1)])
def test_channels_and_bins_around_every_lane(
    place: Place, wide_dtype: Any, rng: np.random.Generator, channels: int, bins: tuple[int, int]
) -> None:
    check(place, random_roi_case(rng, wide_dtype, 2, True, 1.0, (2, channels, 9, 11), bins, 5))


@ALIGNED
@pytest.mark.parametrize("sampling_ratio", [2, -1])
def test_bad_boxes(place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool) -> None:
    corners = [
        [NAN, 1, 4, 4], [1, 1, 4, NAN], [-INF, 0, 4, 4], [0, 0, INF, 4], [-1e30, -1e30, 1e30, 1e30], [0, 0, 1e10, 1e10],
        [5, 6, 1, 2], [3, 3, 3, 3], [3, 3, 3.5, 3.25], [3, 3, 4, 4], [-5, -5, -1, -1], [20, 20, 30, 30], [-1, -1, 0, 0],
        [-3, -2, 20, 30],
    ]  # fmt: skip
    rows = [[batch, 1, 1, 5, 4] for batch in BAD_BATCH] + [[1, *each] for each in corners]
    case = with_boxes(random_roi_case(rng, dtype, sampling_ratio, aligned, 1.0), rows)
    assert np.isfinite(check(place, case)).all()


@given(boxes=ANY_BOXES, seed=st.integers(0, 2**32 - 1), sampling_ratio=st.sampled_from([0, 1, 2]))
def test_any_boxes(backend: str, place: Place, boxes: list[tuple[float, ...]], seed: int, sampling_ratio: int) -> None:
    rng = np.random.default_rng(seed)
    check(place, with_boxes(random_roi_case(rng, np.float32, sampling_ratio, False, 1.0, (3, 2, 7, 8), (2, 2)), boxes))


@pytest.mark.parametrize("extent", [(1, 1), (1, 9), (9, 1), (2, 2)])
def test_maps_of_a_pixel(place: Place, wide_dtype: Any, rng: np.random.Generator, extent: tuple[int, int]) -> None:
    """On an axis of one pixel nothing moves."""
    found = check(place, random_roi_case(rng, wide_dtype, 2, True, 1.0, (1, 2, *extent), (2, 2)))
    for axis, size in ((0, extent[1]), (1, extent[0])):
        assert size > 1 or not np.any(found[:, [1 + axis, 3 + axis]])


def test_what_is_not_finite_stays_in_its_box(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = with_boxes(
        random_roi_case(rng, dtype, 2, True, 1.0, (2, 3, 9, 11), (2, 2)),
        [[0, 1, 1, 4, 4], [1, 0, 0, 3, 3], [1, 5, 5, 8, 8]],
    )
    image, grads = case.input.copy(), case.grad_output.copy()
    image[1, :, 7, 7] = NAN
    grads[0, 1] = INF
    found = gradient(place, case._replace(input=image, grad_output=grads))
    assert_canonical_nans(found)
    clean = gradient(place, case)
    assert_same_bits(found[1], clean[1])
    assert np.isnan(found[2, 1:]).all()
    assert not np.isfinite(found[0, 1:]).any()


def test_a_pixel_of_weight_0_does_not_exist(place: Place, wide_dtype: Any, rng: np.random.Generator) -> None:
    """Samples on a row of pixels do not read the next for their slope along x."""
    case = with_boxes(
        random_roi_case(rng, wide_dtype, 1, True, 1.0, (1, 1, 4, 9), (1, 1)), [[0, 2.75, -0.5, 4.75, 0.5]]
    )
    image = case.input.copy()
    image[0, 0, 1] = INF
    found, clean = gradient(place, case._replace(input=image)), gradient(place, case)
    assert np.isfinite(found).all()
    assert_same_bits(found, clean)
    assert np.any(found[:, [1, 3]])


def test_empty_problems(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_roi_case(rng, dtype, 2, True)
    for shape in ((2, 0, 9, 11), (2, 3, 0, 11), (0, 3, 9, 11)):
        given = normal(rng, (len(case.boxes), shape[1], *case.output_size), dtype)
        empty = case._replace(input=normal(rng, shape, dtype), grad_output=given)
        assert_same_bits(gradient(place, empty), np.zeros_like(case.boxes))
    nothing = with_boxes(case, np.zeros((0, 5)))
    assert gradient(place, nothing).shape == (0, 5)
