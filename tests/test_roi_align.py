# SPDX-License-Identifier: Apache-2.0
"""roi_align and roi_align_backward against the float64 oracle; frameworks are compared in test_peers.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bad_boxes import ANY_BOXES, BAD_BATCH, INF, NAN
from hypothesis import given
from hypothesis import strategies as st
from lattice import RoiCase, lattice_roi_case, normal, random_roi_case
from place import Place
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import Sum
from verify.definitions import roi_align as oracle
from verify.dtypes import DTYPES, Array, coordinate_dtype

SAMPLING = pytest.mark.parametrize("sampling_ratio", [1, 2, 4, -1], ids=["sr1", "sr2", "sr4", "adaptive"])
ALIGNED = pytest.mark.parametrize("aligned", [False, True], ids=["classic", "aligned"])

FULL = {"spatial_scale": 1.0, "sampling_ratio": 2, "aligned": False}


def forward(place: Place, case: RoiCase, input: Any = None, boxes: Any = None) -> Array:
    """The library's output; ``input`` and ``boxes`` replace the case's by equal arrays of another layout."""
    shape = (len(case.boxes), case.input.shape[1], *case.output_size)
    return place.run(
        pybaracuda.roi_align,
        case.input if input is None else input,
        case.boxes if boxes is None else boxes,
        case.output_size,
        outputs=[(shape, case.input.dtype)],
        **case.options,
    )[0]


def backward(place: Place, case: RoiCase, grad_output: Any = None, boxes: Any = None) -> Array:
    return place.run(
        pybaracuda.roi_align_backward,
        case.grad_output if grad_output is None else grad_output,
        case.boxes if boxes is None else boxes,
        case.input.shape,
        outputs=[(case.input.shape, case.input.dtype)],
        **case.options,
    )[0]


def oracle_forward(case: RoiCase) -> Sum:
    compute = coordinate_dtype(case.input.dtype)
    return oracle.roi_align(case.input, case.boxes, case.output_size, **case.options, coordinate_dtype=compute)


def oracle_backward(case: RoiCase) -> Sum:
    compute = coordinate_dtype(case.input.dtype)
    return oracle.roi_align_backward(
        case.grad_output, case.boxes, case.input.shape, **case.options, coordinate_dtype=compute
    )


def check_close(place: Place, case: RoiCase) -> tuple[Array, Array]:
    """Both directions lie within the derived bound; answers the library's results."""
    output, grad_input = forward(place, case), backward(place, case)
    assert_within(output, oracle_forward(case))
    assert_within(grad_input, oracle_backward(case))
    return output, grad_input


def with_boxes(case: RoiCase, boxes: Any, **options: Any) -> RoiCase:
    """The same image under other boxes, with a gradient repeated or cut to fit them."""
    rows = np.asarray(boxes, np.float64).astype(coordinate_dtype(case.input.dtype))
    gradient = np.resize(case.grad_output, (len(rows), *case.grad_output.shape[1:]))
    return case._replace(boxes=rows, grad_output=gradient, options={**case.options, **options})


@SAMPLING
@ALIGNED
def test_lattice_is_exact(
    place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool
) -> None:
    case = lattice_roi_case(rng, dtype, sampling_ratio, aligned)
    assert_exact(forward(place, case), oracle_forward(case))
    assert_exact(backward(place, case), oracle_backward(case))


@SAMPLING
@ALIGNED
def test_adjoint_identity_is_exact_on_the_lattice(
    place: Place, wide_dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool
) -> None:
    case = lattice_roi_case(rng, wide_dtype, sampling_ratio, aligned, spatial_scale=0.5)
    output, grad_input = forward(place, case), backward(place, case)
    in_output = np.sum(output.astype(np.float64) * case.grad_output)
    in_input = np.sum(case.input * grad_input.astype(np.float64))
    assert in_output == in_input


def test_adjoint_identity_is_exact_in_half_precision(backend: str, place: Place, rng: np.random.Generator) -> None:
    # Values of -1, 0, 1 and weights in 64ths: sums below 32 fit float16's 11 bits, and few boxes keep them there.
    case = lattice_roi_case(rng, np.float16, 2, False, num_rois=4, limit=1)
    output, grad_input = (each.astype(np.float64) for each in (forward(place, case), backward(place, case)))
    assert np.sum(output * case.grad_output) == np.sum(case.input * grad_input)


@SAMPLING
@ALIGNED
def test_random_boxes_are_within_the_bound(
    place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool
) -> None:
    # Many are reversed, cross a border or lie outside.
    check_close(place, random_roi_case(rng, dtype, sampling_ratio, aligned))


@pytest.mark.parametrize("scale", [0.1, 1 / 3, 0.7])
def test_scale_is_rounded_to_float32(place: Place, wide_dtype: Any, rng: np.random.Generator, scale: float) -> None:
    # For float64 data too: the C argument is a float, and that value is the definition.
    given = random_roi_case(rng, wide_dtype, 2, False, scale)
    rounded = given._replace(options={**given.options, "spatial_scale": float(np.float32(scale))})
    assert_within(forward(place, given), oracle_forward(rounded))
    assert_within(backward(place, given), oracle_backward(rounded))


@ALIGNED
@pytest.mark.parametrize("sampling_ratio", [2, -1], ids=["sr2", "adaptive"])
def test_borders(place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool) -> None:
    h, w = 5, 6
    case = random_roi_case(rng, dtype, sampling_ratio, aligned, 1.0, (1, 2, h, w), (2, 2))
    spacing = float(np.finfo(coordinate_dtype(dtype)).eps)
    # One-pixel bins whose samples land on and on either side of every border, in x, in y and in both.
    offset = 0.5 if aligned else 0.0
    rows = []
    for extent, axis in ((w, 0), (h, 1)):
        for edge in (
            -5,
            -1 - spacing,
            -1,
            -1 + spacing,
            -0.5,
            0,
            0.5,
            extent - 1,
            extent,
            extent * (1 + spacing),
            extent + 5,
        ):
            low = [0.25, 0.25]
            low[axis] = edge - 0.25
            rows.append([0, *low, low[0] + 1, low[1] + 1])
            rows.append([0, low[0] - 0.25, low[1] - 0.25, low[0] + 1.75, low[1] + 1.75])
            rows.append([0, edge - 0.25, edge - 0.25, edge + 0.75, edge + 0.75])
    boxes = np.array(rows)
    boxes[:, 1:] += offset
    check_close(place, with_boxes(case, boxes))


BAD_CORNERS = [
    [NAN, 1, 4, 4],
    [1, NAN, 4, 4],
    [1, 1, NAN, 4],
    [1, 1, 4, NAN],
    [-INF, 0, 4, 4],
    [0, 0, INF, 4],
    [0, INF, 4, INF],
    [-INF, -INF, INF, INF],
    [-1e30, -1e30, 1e30, 1e30],
    [-3e38, 0, 3e38, 4],  # finite corners, but the width overflows float32
    [1e30, 1e30, 2e30, 2e30],
    [0, 0, 1e10, 1e10],
    [-1e10, -1e10, 5, 5],
    [0, 0, 3e5, 5],
    [5, 6, 1, 2],  # reversed
    [6, 1, 2, 5],
    [3, 3, 3, 3],  # no area
    [3, 1, 3, 6],
    [1e-40, 1e-40, 4, 4],
    [1e-3, 1e-3, 1e-3, 1e-3],
]


@ALIGNED
@pytest.mark.parametrize("sampling_ratio", [2, 3, -1], ids=["sr2", "sr3", "adaptive"])
def test_bad_boxes_contribute_what_the_oracle_says(
    place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool
) -> None:
    case = random_roi_case(rng, dtype, sampling_ratio, aligned, 1.0, (2, 3, 7, 8), (2, 3))
    rows = [[batch, 1, 1, 5, 4] for batch in BAD_BATCH]
    rows += [[1, *corners] for corners in BAD_CORNERS]
    rows += [[0, 1.5, 0.75, 6, 5.5]]  # and a good one among them
    output, grad_input = check_close(place, with_boxes(case, rows))
    assert np.isfinite(output.astype(np.float64)).all()
    assert np.isfinite(grad_input.astype(np.float64)).all()


@pytest.mark.parametrize("bin_size", [2**20 - 1, 2**20, 2**20 + 1])
def test_adaptive_count_limit(place: Place, wide_dtype: Any, rng: np.random.Generator, bin_size: int) -> None:
    case = random_roi_case(rng, wide_dtype, -1, True, 1.0, (1, 1, 4, 4), (1, 1))
    # Very many samples, nearly all outside: they have to be found by arithmetic, and be the same ones.
    rows = [[0, -7.25, 0.5, bin_size - 7.25, 3.5], [0, 0.5, 100.25 - bin_size, 3.5, 100.25]]
    output, _ = check_close(place, with_boxes(case, rows))
    assert (output != 0).all() == (bin_size <= 2**20)


@pytest.mark.parametrize("size", [1e3, 1e4, 12345.678, 1e5])
def test_huge_adaptive_boxes(place: Place, dtype: Any, rng: np.random.Generator, size: float) -> None:
    case = random_roi_case(rng, dtype, -1, False, 1.0, (1, 2, 5, 6), (2, 2))
    low = rng.uniform(-size, 0, (3, 2))
    boxes = np.concatenate([np.zeros((3, 1)), low, low + size], axis=1)
    check_close(place, with_boxes(case, boxes))


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_nonfinite_gradient_stays_where_it_has_weight(
    place: Place, dtype: Any, rng: np.random.Generator, bad: float
) -> None:
    case = lattice_roi_case(rng, dtype, 2, False, 1.0, (1, 2, 8, 8), (2, 2), num_rois=6)
    # Samples exactly on pixels: the neighbours' weights are exactly 0 there, and 0 * inf must not appear.
    on_pixels = [0.0, 1.5, 2.5, 5.5, 6.5]
    case = with_boxes(case, np.concatenate([[on_pixels], case.boxes]))
    gradient = case.grad_output.copy()
    gradient[0, 0, 0, 0] = gradient[3, 1, 1, 1] = bad
    case = case._replace(grad_output=gradient)
    expected = oracle_backward(case)
    actual = backward(place, case)
    assert_exact(actual, expected)
    assert np.isfinite(expected.value).sum() > expected.value.size // 2


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_nonfinite_input_stays_where_it_has_weight(
    place: Place, dtype: Any, rng: np.random.Generator, bad: float
) -> None:
    case = lattice_roi_case(rng, dtype, 2, False, 1.0, (1, 2, 8, 8), (2, 2), num_rois=6)
    case = with_boxes(case, np.concatenate([[[0.0, 1.5, 2.5, 5.5, 6.5]], case.boxes]))
    image = case.input.copy()
    image[0, 0, 4, 3] = image[0, 1, 7, 7] = bad
    case = case._replace(input=image)
    assert_exact(forward(place, case), oracle_forward(case))


def test_opposite_infinities_make_the_canonical_nan(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = lattice_roi_case(rng, dtype, 2, False, 1.0, (1, 1, 4, 4), (1, 1), num_rois=2)
    case = with_boxes(case, [[0, 0.25, 0.25, 2.25, 2.25]] * 2)
    gradient = np.array([np.inf, -np.inf]).reshape(2, 1, 1, 1).astype(dtype)
    actual = backward(place, case._replace(grad_output=gradient))
    assert np.isnan(actual).any()
    assert_canonical_nans(actual)
    # A NaN that arrives with a payload leaves as the canonical one: it went through arithmetic.
    payload = np.full((2, 1, 1, 1), 0xFF, np.uint8).repeat(dtype.itemsize, axis=3).view(dtype)
    actual = backward(place, case._replace(grad_output=payload))
    assert np.isnan(actual).any()
    assert_canonical_nans(actual)


@pytest.mark.parametrize(
    ("shape", "num_rois"),
    [((2, 3, 4, 5), 0), ((0, 3, 4, 5), 3), ((2, 0, 4, 5), 3), ((2, 3, 0, 5), 3), ((2, 3, 4, 0), 3), ((0, 0, 0, 0), 0)],
    ids=["no-boxes", "no-images", "no-channels", "no-rows", "no-columns", "nothing"],
)
@pytest.mark.parametrize("sampling_ratio", [2, -1], ids=["sr2", "adaptive"])
def test_empty_problems_write_zeros(
    place: Place, dtype: Any, shape: tuple[int, int, int, int], num_rois: int, sampling_ratio: int
) -> None:
    boxes = np.tile([0.0, 0.5, 0.5, 3.0, 2.5], (num_rois, 1)).astype(coordinate_dtype(dtype))
    case = RoiCase(
        np.ones(shape, dtype),
        boxes,
        (2, 3),
        np.ones((num_rois, shape[1], 2, 3), dtype),
        {**FULL, "sampling_ratio": sampling_ratio},
    )
    assert_same_bits(forward(place, case), np.zeros((num_rois, shape[1], 2, 3), dtype))
    assert_same_bits(backward(place, case), np.zeros(shape, dtype))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 2, 1, 6), (3, 2, 6, 1)])
@ALIGNED
def test_size_one_dimensions(
    place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, int, int, int], aligned: bool
) -> None:
    check_close(place, random_roi_case(rng, dtype, 2, aligned, 1.0, shape, (1, 1)))
    check_close(place, random_roi_case(rng, dtype, -1, aligned, 0.25, shape, (3, 1)))


@pytest.mark.parametrize("channels", [1, 63, 64, 65])
@pytest.mark.parametrize(("h", "w"), [(15, 17), (16, 16), (33, 31)])
def test_sizes_around_tile_edges(
    place: Place, wide_dtype: Any, rng: np.random.Generator, channels: int, h: int, w: int
) -> None:
    # Tiles are 16 rows high and 64 channels deep, on every backend.
    check_close(place, random_roi_case(rng, wide_dtype, 2, False, 0.5, (1, channels, h, w), (2, 2), 6))


@pytest.mark.parametrize("num_rois", [64, 65, 257, 700])
def test_many_boxes_on_one_pixel(place: Place, dtype: Any, rng: np.random.Generator, num_rois: int) -> None:
    # Above 64 boxes a small map is cut into blocks of boxes, and the lists are longer than any chunk.
    case = random_roi_case(rng, dtype, 2, True, 1.0, (1, 2, 4, 5), (1, 1), num_rois)
    low = rng.uniform(1, 2, (num_rois, 2))
    boxes = np.concatenate([np.zeros((num_rois, 1)), low, low + rng.uniform(0.5, 2, (num_rois, 2))], axis=1)
    case = with_boxes(case, boxes)
    assert oracle_backward(case).terms.max() > num_rois / 2
    check_close(place, case)
    lattice = lattice_roi_case(rng, dtype, 2, True, 1.0, (1, 2, 4, 5), (1, 1), num_rois)
    assert_exact(backward(place, lattice), oracle_backward(lattice))


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_roi_case(rng, dtype, 2, True, 0.25)
    output, grad_input = forward(place, case), backward(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        boxes = layout(case.boxes)
        assert_same_bits(forward(place, case, layout(case.input), boxes), output)
        assert_same_bits(backward(place, case, layout(case.grad_output), boxes), grad_input)


def test_sixteen_bit_boxes_are_widened(backend: str, place: Place, rng: np.random.Generator) -> None:
    case = lattice_roi_case(rng, np.float16, 2, False)
    narrow = case._replace(boxes=case.boxes.astype(np.float16))
    assert (narrow.boxes == case.boxes).all()
    assert_same_bits(forward(place, narrow), forward(place, case))
    assert_same_bits(backward(place, narrow), backward(place, case))


def test_list_of_boxes_per_image(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_roi_case(rng, dtype, 2, False, 1.0, (3, 2, 6, 6), (2, 2), 9)
    boxes = case.boxes[np.argsort(case.boxes[:, 0], kind="stable")]
    # The second image keeps no box.
    boxes = boxes[boxes[:, 0] != 1]
    case = with_boxes(case, boxes)
    listed = [place.array(np.ascontiguousarray(boxes[boxes[:, 0] == image, 1:])) for image in range(3)]
    output = pybaracuda.roi_align(place.array(case.input), listed, case.output_size, **case.options)
    assert_same_bits(place.numpy(output), forward(place, case))
    gradient = pybaracuda.roi_align_backward(place.array(case.grad_output), listed, case.input.shape, **case.options)
    assert_same_bits(place.numpy(gradient), backward(place, case))


def test_one_output_size_is_both(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_roi_case(rng, dtype, 2, False, 1.0, output_size=(3, 3))
    output = pybaracuda.roi_align(place.array(case.input), place.array(case.boxes), 3, **case.options)
    assert_same_bits(place.numpy(output), forward(place, case))


def test_defaults_are_torchvisions(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_roi_case(rng, dtype, -1, False, 1.0)
    output = pybaracuda.roi_align(place.array(case.input), place.array(case.boxes), case.output_size)
    assert_same_bits(place.numpy(output), forward(place, case))
    gradient = pybaracuda.roi_align_backward(place.array(case.grad_output), place.array(case.boxes), case.input.shape)
    assert_same_bits(place.numpy(gradient), backward(place, case))


def test_large_batch(place: Place, rng: np.random.Generator) -> None:
    """More images than a launch grid has in its second and third dimension: the bits of two smaller calls."""
    count, first, num_rois = 65_537, 40_000, 300
    case = random_roi_case(rng, np.float32, 2, False, 1.0, (count, 2, 3, 4), (1, 2), num_rois)
    case.boxes[:, 0] = np.sort(rng.integers(0, count, num_rois))
    case.boxes[-3:, 0] = count - 1
    output, grad_input = forward(place, case), backward(place, case)
    here = np.count_nonzero(case.boxes[:, 0] < first)
    for images, rois in ((slice(first), slice(here)), (slice(first, count), slice(here, num_rois))):
        boxes = case.boxes[rois] - np.array([images.start or 0, 0, 0, 0, 0], np.float32)
        alone = case._replace(input=case.input[images], boxes=boxes, grad_output=case.grad_output[rois])
        assert_same_bits(output[rois], forward(place, alone))
        assert_same_bits(grad_input[images], backward(place, alone))


def test_many_boxes(place: Place, rng: np.random.Generator) -> None:
    """More boxes than a launch grid has in its second and third dimension: on the lattice two smaller calls add up."""
    count, first = 65_537, 40_000
    case = lattice_roi_case(rng, np.float32, 2, False, 1.0, (2, 1, 8, 8), (1, 2), count, limit=1)
    output, grad_input = forward(place, case), backward(place, case).astype(np.float64)
    sums = np.zeros_like(grad_input)
    for part in (slice(first), slice(first, count)):
        alone = case._replace(boxes=case.boxes[part], grad_output=case.grad_output[part])
        assert_same_bits(output[part], forward(place, alone))
        sums += backward(place, alone)
    np.testing.assert_array_equal(grad_input, sums)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    shape=st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)),
    output_size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    rows=ANY_BOXES,
    scale=st.sampled_from([1.0, 0.5, 0.0625, float(np.float32(0.3))]),
    sampling_ratio=st.sampled_from([-1, 0, 1, 2, 3, 7]),
    aligned=st.booleans(),
)
def test_any_boxes(
    seed: int,
    name: str,
    shape: tuple[int, int, int, int],
    output_size: tuple[int, int],
    rows: list[tuple[float, ...]],
    scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    case = RoiCase(
        normal(rng, shape, dtype),
        np.array(rows).reshape(-1, 5).astype(coordinate_dtype(dtype)),
        output_size,
        normal(rng, (len(rows), shape[1], *output_size), dtype),
        {"spatial_scale": scale, "sampling_ratio": sampling_ratio, "aligned": aligned},
    )
    check_close(Place(), case)


@pytest.mark.parametrize("ratio", [1, 2, 3, 255, 256, 257, 1000, 2**12, 2**16 + 1, 2**20])
@pytest.mark.parametrize("box", [[0, 1, 1, 1.7, 2.3], [0, 3.3, 2.7, 20.1, 25.9], [0, 0.5, 0.5, 4.5, 4.5]])
def test_any_number_of_samples_is_within_the_header_s_bound(
    place: Place, wide_dtype: Any, rng: np.random.Generator, ratio: int, box: list[float]
) -> None:
    # Products of a row and a column factorise, as the weights do: a mean over the samples of each axis is the answer.
    size = 32
    compute = coordinate_dtype(wide_dtype)
    corners = np.array(box, compute)
    rows, columns = (1 + rng.random(size).astype(wide_dtype) for _ in range(2))
    image = np.multiply.outer(np.ones(size, wide_dtype), columns), np.multiply.outer(rows, np.ones(size, wide_dtype))

    def mean(values: Array, low: Any, high: Any) -> float:
        start = low - compute.type(0.5)
        length = (high - compute.type(0.5)) - start
        position = start + (np.arange(ratio, dtype=compute) + compute.type(0.5)) * length / compute.type(ratio)
        return float(np.interp(position.astype(np.float64), np.arange(size), values.astype(np.float64)).mean())

    expected = mean(columns, corners[1], corners[3]), mean(rows, corners[2], corners[4])
    # Two axes of weights as the header bounds them; a chain of fma over the rows and one over the columns.
    roundings = 2 * (min(ratio, 256) + -(-ratio // 256) + 3) + 2 * size
    unit = 2.0**-24 if compute == np.float32 else 2.0**-53
    boxes = place.array(corners[None])
    for plane, wanted in zip((*image, np.ones((size, size), wide_dtype)), (*expected, 1.0), strict=True):
        pooled = pybaracuda.roi_align(place.array(plane[None, None]), boxes, 1, sampling_ratio=ratio, aligned=True)
        found = float(place.numpy(pooled)[0, 0, 0, 0])
        # numpy's own mean of float64 is exact beside f32; of f64 its pairwise sum has at most 20 roundings.
        assert abs(found - wanted) <= (roundings + 20) * unit * wanted
