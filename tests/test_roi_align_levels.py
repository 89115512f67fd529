# SPDX-License-Identifier: Apache-2.0
"""roi_align on several maps: the boxes' maps, roi_align's bits on them, float64 beside it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from bad_boxes import ANY_BOXES, BAD_BATCH, INF, NAN
from hypothesis import given
from hypothesis import strategies as st
from lattice import integers, normal
from place import Place, available
from tolerance import assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.definitions import roi_align as oracle
from verify.dtypes import Array, coordinate_dtype


class LevelsCase(NamedTuple):
    """A problem on maps that halve from level to level."""

    inputs: list[Array]
    boxes: Array
    output_size: tuple[int, int]
    grad_output: Array
    scales: tuple[float, ...]
    options: dict[str, Any]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [each.shape for each in self.inputs]

    @property
    def levels(self) -> Array:
        """The map of each box, by the definition."""
        rule = (self.options["k_min"], self.options["canonical_scale"], self.options["canonical_level"])
        return oracle.levels_of(self.boxes, len(self.inputs), *rule, self.boxes.dtype)


def random_case(
    rng: np.random.Generator,
    dtype: Any,
    num_levels: int = 4,
    boxes: Any = None,
    *,
    extent: tuple[int, int] = (40, 48),
    channels: int = 3,
    num_rois: int = 40,
    bins: tuple[int, int] = (2, 3),
    sampling_ratio: int = 2,
    aligned: bool = True,
    draw: Any = normal,
) -> LevelsCase:
    """Boxes of every size on two images, some of them reversed or outside."""
    compute = coordinate_dtype(dtype)
    shapes = [(2, channels, max(extent[0] >> level, 1), max(extent[1] >> level, 1)) for level in range(num_levels)]
    if boxes is None:
        size = np.exp(rng.uniform(np.log(2), np.log(160), (num_rois, 2))) * rng.choice(
            [1, 1, 1, 1, 1, -1], (num_rois, 2)
        )
        # Each of the first five maps has one of these.
        size[:5] = np.array([20, 30, 60, 120, 240])[:, None]
        low = rng.uniform(-10, 150, (num_rois, 2))
        boxes = np.concatenate([rng.integers(0, 2, (num_rois, 1)), low, low + size], 1)
    rows = np.asarray(boxes, np.float64).reshape(-1, 5).astype(compute)
    return LevelsCase(
        [draw(rng, shape, dtype) for shape in shapes],
        rows,
        bins,
        draw(rng, (len(rows), channels, *bins), dtype),
        tuple(0.25 / 2**level for level in range(num_levels)),
        {
            "sampling_ratio": sampling_ratio,
            "aligned": aligned,
            "k_min": 2,
            "canonical_scale": 50.0,
            "canonical_level": 4,
        },
    )


def forward(place: Place, case: LevelsCase) -> Array:
    def call(*arrays: Any, out: Any = None, **options: Any) -> Any:
        *maps, boxes = arrays
        return pybaracuda.roi_align_levels(maps, boxes, case.output_size, case.scales, out=out, **options)

    shape = (len(case.boxes), case.inputs[0].shape[1], *case.output_size)
    return place.run(call, *case.inputs, case.boxes, outputs=[(shape, case.inputs[0].dtype)], **case.options)[0]


def backward(place: Place, case: LevelsCase) -> list[Array]:
    def call(grad_output: Any, boxes: Any, out: Any = None, **options: Any) -> Any:
        outs = out if len(case.inputs) > 1 or out is None else [out]
        found = pybaracuda.roi_align_levels_backward(grad_output, boxes, case.shapes, case.scales, out=outs, **options)
        return found if len(case.inputs) > 1 else found[0]

    outputs = [(shape, case.grad_output.dtype) for shape in case.shapes]
    return list(place.run(call, case.grad_output, case.boxes, outputs=outputs, **case.options))


def sampling(case: LevelsCase) -> dict[str, Any]:
    return {name: case.options[name] for name in ("sampling_ratio", "aligned")}


def of_level(case: LevelsCase, level: int) -> Array:
    """The boxes, of which those of other maps name no image."""
    rows = case.boxes.copy()
    rows[case.levels != level, 0] = -1
    return rows


def check(place: Place, case: LevelsCase) -> None:
    """Bits are roi_align's, map by map, and lie within the definition's bound."""
    output, gradients = forward(place, case), backward(place, case)
    levels = case.levels
    expected = np.zeros_like(output)
    for level, (image, scale) in enumerate(zip(case.inputs, case.scales, strict=True)):
        options = {"spatial_scale": scale, **sampling(case)}
        mine = levels == level
        alone = pybaracuda.roi_align(image, case.boxes, case.output_size, **options)
        expected[mine] = alone[mine]
        rows = of_level(case, level)
        assert_same_bits(
            gradients[level], pybaracuda.roi_align_backward(case.grad_output, rows, image.shape, **options)
        )
    assert_same_bits(output, expected)
    given = {**sampling(case), "coordinate_dtype": case.boxes.dtype}
    assert_within(
        output, oracle.roi_align_levels(case.inputs, case.boxes, case.output_size, case.scales, levels, **given)
    )
    wanted = oracle.roi_align_levels_backward(case.grad_output, case.boxes, case.shapes, case.scales, levels, **given)
    for gradient, each in zip(gradients, wanted, strict=True):
        assert_within(gradient, each)


@pytest.mark.parametrize("num_levels", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("aligned", [False, True], ids=["classic", "aligned"])
def test_bits_are_those_of_each_map_alone(
    place: Place, dtype: Any, rng: np.random.Generator, num_levels: int, aligned: bool
) -> None:
    case = random_case(rng, dtype, num_levels, aligned=aligned, sampling_ratio=int(rng.integers(-1, 3)))
    assert set(range(min(num_levels, 5))) <= set(case.levels)
    check(place, case)


@pytest.mark.parametrize("bins", [(1, 1), (7, 7), (14, 14), (3, 17), (33, 2)])
def test_bins_of_every_path(place: Place, dtype: Any, rng: np.random.Generator, bins: tuple[int, int]) -> None:
    check(place, random_case(rng, dtype, 3, bins=bins, channels=4, num_rois=12))


@pytest.mark.parametrize("channels", [1, 16, 17, 31, 32, 33, 65])
def test_channels_around_every_block(place: Place, wide_dtype: Any, rng: np.random.Generator, channels: int) -> None:
    check(place, random_case(rng, wide_dtype, 3, channels=channels, num_rois=9, bins=(7, 7)))


def test_many_boxes_are_summed_in_blocks(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    check(place, random_case(rng, dtype, 3, extent=(12, 10), num_rois=400, channels=2))


def test_rows_that_are_aligned_for_no_copy(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    # Maps of 45, 22, 11 and 5 columns: each has another alignment.
    check(place, random_case(rng, dtype, 4, extent=(33, 45), bins=(7, 7)))


def test_adjoint_identity_is_exact_on_the_lattice(place: Place, wide_dtype: Any, rng: np.random.Generator) -> None:
    low = rng.integers(-8, 150, (20, 2))
    size = 2 ** rng.integers(2, 8, (20, 2))
    boxes = np.concatenate([rng.integers(0, 2, (20, 1)), low, low + size], 1)
    case = random_case(rng, wide_dtype, 4, boxes, bins=(2, 2), aligned=False, draw=integers)
    output, gradients = forward(place, case), backward(place, case)
    of_output = np.sum(output.astype(np.float64) * case.grad_output)
    of_inputs = sum(np.sum(x * g.astype(np.float64)) for x, g in zip(case.inputs, gradients, strict=True))
    assert of_output == of_inputs
    given = {**sampling(case), "coordinate_dtype": case.boxes.dtype}
    assert_exact(output, oracle.roi_align_levels(case.inputs, case.boxes, (2, 2), case.scales, case.levels, **given))


BAD_CORNERS = [
    [NAN, 1, 4, 4], [1, NAN, 4, 4], [1, 1, NAN, 4], [1, 1, 4, NAN], [-INF, 0, 4, 4], [0, 0, INF, 4],
    [-INF, -INF, INF, INF], [-1e30, -1e30, 1e30, 1e30], [-3e38, 0, 3e38, 4], [1e30, 1e30, 2e30, 2e30],
    [50, 60, 10, 20], [60, 10, 20, 50], [30, 30, 30, 30], [30, 10, 30, 60], [1e-40, 1e-40, 4, 4],
]  # fmt: skip


@pytest.mark.parametrize("sampling_ratio", [2, -1], ids=["sr2", "adaptive"])
@pytest.mark.parametrize("aligned", [False, True], ids=["classic", "aligned"])
def test_bad_boxes(place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int, aligned: bool) -> None:
    rows = [[batch, 10, 10, 50, 40] for batch in BAD_BATCH]
    rows += [[1, *corners] for corners in BAD_CORNERS] + [[0, 15, 7.5, 60, 55]]
    case = random_case(rng, dtype, 3, rows, sampling_ratio=sampling_ratio, aligned=aligned)
    check(place, case)
    # A box that is reversed on one axis has a negative area, and no map.
    reversed_once = len(BAD_BATCH) + BAD_CORNERS.index([60, 10, 20, 50])
    assert case.levels[reversed_once] == -1
    assert_same_bits(forward(place, case)[reversed_once], np.zeros_like(case.grad_output[0]))


@given(boxes=ANY_BOXES, seed=st.integers(0, 2**32 - 1))
def test_any_boxes(backend: str, place: Place, boxes: list[tuple[float, ...]], seed: int) -> None:
    case = random_case(np.random.default_rng(seed), np.float32, 3, boxes, extent=(8, 9), channels=1)
    check(place, case)


def test_a_map_without_pixels(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 4)
    empty = case.inputs[1][:, :, :0]
    case = case._replace(inputs=[case.inputs[0], empty, *case.inputs[2:]])
    assert (case.levels == 1).any()
    output, gradients = forward(place, case), backward(place, case)
    assert_same_bits(output[case.levels == 1], np.zeros_like(output[case.levels == 1]))
    assert gradients[1].shape == empty.shape
    check(place, case)


def test_without_boxes_gradients_are_zeros(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 3, np.zeros((0, 5)))
    assert forward(place, case).shape == (0, 3, 2, 3)
    for gradient in backward(place, case):
        assert_same_bits(gradient, np.zeros_like(gradient))


def area_boxes(areas: Any, dtype: Any) -> Array:
    """Boxes with a side of 1 whose area is exactly this."""
    areas = np.asarray(areas, dtype)
    rows = np.zeros((len(areas), 5), dtype)
    rows[:, 3], rows[:, 4] = areas, 1
    return rows


def chosen(place: Place, boxes: Array, num_levels: int, **rule: Any) -> Array:
    """The maps that the library takes: each is 1 more than the one before."""
    maps = [np.full((1, 1, 1, 1), level + 1, boxes.dtype) for level in range(num_levels)]

    def call(*arrays: Any, out: Any = None) -> Any:
        *inputs, rows = arrays
        # Every box is scaled to one pixel.
        return pybaracuda.roi_align_levels(inputs, rows, 1, [0.0] * num_levels, 1, False, out=out, **rule)

    outputs = [((len(boxes), 1, 1, 1), boxes.dtype)]
    return place.run(call, *maps, boxes, outputs=outputs)[0].ravel() - 1


def test_a_box_of_the_canonical_size_has_the_canonical_level(place: Place, wide_dtype: Any) -> None:
    sizes = np.array([1, 55, 56, 57, 111, 112, 113, 223, 224, 225, 447, 448, 449, 1000, 1e6])
    rows = np.zeros((len(sizes), 5), wide_dtype)
    rows[:, 3] = rows[:, 4] = sizes
    found = chosen(place, rows, 4, k_min=2)
    assert_same_bits(found, np.array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3], wide_dtype))


def test_a_level_begins_at_the_threshold_itself(place: Place, wide_dtype: Any) -> None:
    """Of the areas beside a threshold, the first that is not below it has the level."""
    for level in range(1, 8):
        threshold = 50.0**2 * 4.0 ** (2 + level - 4) * 2.0**-2e-6
        area = wide_dtype.type(threshold)
        below = area if float(area) < threshold else np.nextafter(area, wide_dtype.type(0))
        above = np.nextafter(below, wide_dtype.type(INF))
        # Two roundings of the threshold may stand between the neighbours of a float64.
        areas = [below * (1 - 2.0**-50), above * (1 + 2.0**-50)] if wide_dtype == np.float64 else [below, above]
        found = chosen(place, area_boxes(areas, wide_dtype), 8, k_min=2, canonical_scale=50.0)
        assert_same_bits(found, np.array([level - 1, level], wide_dtype))


def test_levels_are_clamped_and_may_be_any(place: Place, wide_dtype: Any, rng: np.random.Generator) -> None:
    areas = np.exp(rng.uniform(-20, 30, 500)).astype(wide_dtype)
    boxes = area_boxes(areas, wide_dtype)
    for k_min, canonical_level in ((2, 4), (-64, 64), (64, -64), (0, 0), (5, 4)):
        found = chosen(place, boxes, 5, k_min=k_min, canonical_scale=7.0, canonical_level=canonical_level)
        wanted = oracle.levels_of(boxes, 5, k_min, 7.0, canonical_level, wide_dtype)
        assert_same_bits(found, wanted.astype(wide_dtype))


if available("torch"):

    def test_levels_are_torchvisions_but_near_a_threshold(place: Place, rng: np.random.Generator) -> None:
        """Its LevelMapper's own steps in float32, by PyTorch: they round a logarithm."""
        import torch

        corners = rng.uniform(0, 700, (200_000, 2)).astype(np.float32)
        sizes = np.exp(rng.uniform(np.log(2), np.log(1300), (200_000, 2))).astype(np.float32)
        whole = rng.integers(1, 900, (100_000, 4)).astype(np.float32)
        whole[:, 2:] += whole[:, :2]
        corners = np.concatenate([np.concatenate([corners, corners + sizes], 1), whole])
        boxes = torch.from_numpy(corners)
        sides = torch.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
        levels = torch.floor(4 + torch.log2(sides / 224) + torch.tensor(1e-6, dtype=sides.dtype))
        theirs = (torch.clamp(levels, min=2, max=5).to(torch.int64) - 2).numpy()
        rows = np.concatenate([np.zeros((len(corners), 1), np.float32), corners], 1)
        areas = ((rows[:, 3] - rows[:, 1]) * (rows[:, 4] - rows[:, 2])).astype(np.float64)
        distances = [abs(areas / (224.0**2 * 4.0 ** (level - 4)) - 1) for level in (3, 4, 5)]
        near = np.min(distances, 0) < 2.0**-18
        ours = chosen(place, rows, 4, k_min=2)
        assert_same_bits(ours[~near], theirs[~near].astype(np.float32))
        # Boxes with corners at whole pixels are near none but at the threshold itself, where both agree.
        assert_same_bits(ours[200_000:], theirs[200_000:].astype(np.float32))


def test_k_min_follows_from_the_first_scale(rng: np.random.Generator) -> None:
    case = random_case(rng, np.float32)
    given = pybaracuda.roi_align_levels(case.inputs, case.boxes, (2, 3), case.scales, **case.options)
    options = {name: value for name, value in case.options.items() if name != "k_min"}
    assert_same_bits(pybaracuda.roi_align_levels(case.inputs, case.boxes, (2, 3), case.scales, **options), given)
    gradients = pybaracuda.roi_align_levels_backward(case.grad_output, case.boxes, case.shapes, case.scales, **options)
    wanted = pybaracuda.roi_align_levels_backward(
        case.grad_output, case.boxes, case.shapes, case.scales, **case.options
    )
    for gradient, each in zip(gradients, wanted, strict=True):
        assert_same_bits(gradient, each)


def test_list_of_boxes_per_image(rng: np.random.Generator) -> None:
    case = random_case(rng, np.float32)
    rows = case.boxes[np.argsort(case.boxes[:, 0], kind="stable")]
    parts = [rows[rows[:, 0] == image, 1:] for image in range(2)]
    joined = pybaracuda.roi_align_levels(case.inputs, rows, 2, case.scales)
    assert_same_bits(pybaracuda.roi_align_levels(case.inputs, parts, 2, case.scales), joined)


def test_inputs_that_are_no_list_of_maps() -> None:
    boxes, one = np.zeros((1, 5), np.float32), np.zeros((1, 1, 2, 2), np.float32)
    with pytest.raises(TypeError, match="inputs: wanted a sequence of arrays, got ndarray"):
        pybaracuda.roi_align_levels(one, boxes, 1, (1.0,))
    with pytest.raises(ValueError, match="inputs has 0 entries; wanted 1 to 8"):
        pybaracuda.roi_align_levels([], boxes, 1, ())
    with pytest.raises(ValueError, match="inputs has 9 entries; wanted 1 to 8"):
        pybaracuda.roi_align_levels([one] * 9, boxes, 1, (1.0,) * 9)
    with pytest.raises(ValueError, match="boxes holds 2 arrays"):
        pybaracuda.roi_align_levels([one], [boxes[:, 1:]] * 2, 1, (1.0,))


def test_out_is_a_sequence_with_one_for_each_map(rng: np.random.Generator) -> None:
    case = random_case(rng, np.float32, 2)
    expected = backward_of(case)
    target = np.full_like(expected[1], NAN)
    found = backward_of(case, out=[None, target])
    assert found[1] is target
    for gradient, each in zip(found, expected, strict=True):
        assert_same_bits(gradient, each)
    with pytest.raises(TypeError, match="out: wanted a sequence of 2 arrays or None"):
        backward_of(case, out=target)


def backward_of(case: LevelsCase, **out: Any) -> Any:
    return pybaracuda.roi_align_levels_backward(
        case.grad_output, case.boxes, case.shapes, case.scales, **case.options, **out
    )
