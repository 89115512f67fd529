# SPDX-License-Identifier: Apache-2.0
"""Position-sensitive pooling and its gradients against their definitions, and roi_align's bits beside them."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
import pytest
from bad_boxes import ANY_BOXES, BAD_BATCH, INF, NAN
from hypothesis import given
from hypothesis import strategies as st
from lattice import ODD_SCALE, integers, normal, random_boxes
from place import Place, available
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import Sum
from verify.definitions import ps_roi as oracle
from verify.dtypes import Array, coordinate_dtype

KINDS = ("align", "pool")
KIND = pytest.mark.parametrize("kind", KINDS)


class PsCase(NamedTuple):
    """A problem with its gradient; `sampling_ratio` counts for samples alone."""

    input: Array
    boxes: Array
    output_size: tuple[int, int]
    grad_output: Array
    spatial_scale: float = 1.0
    sampling_ratio: int = 2

    def options(self, kind: str) -> dict[str, Any]:
        ratio = {"sampling_ratio": self.sampling_ratio} if kind == "align" else {}
        return {"spatial_scale": self.spatial_scale, **ratio}

    def definition(self, kind: str) -> dict[str, Any]:
        """What the definitions take: the C argument is a float, for float64 data too."""
        scale = float(np.float32(self.spatial_scale))
        return {**self.options(kind), "spatial_scale": scale, "coordinate_dtype": self.boxes.dtype}


def random_case(
    rng: np.random.Generator,
    dtype: Any,
    boxes: Any = None,
    *,
    spatial_scale: float = ODD_SCALE,
    maps: tuple[int, int, int] = (2, 9, 11),
    channels: int = 2,
    bins: tuple[int, int] = (3, 2),
    num_rois: int = 15,
    sampling_ratio: int = 2,
    draw: Any = normal,
) -> PsCase:
    """Boxes of any place and size around the images, some of them reversed."""
    shape = (maps[0], channels * bins[0] * bins[1], *maps[1:])
    if boxes is None:
        boxes = random_boxes(rng, dtype, shape, spatial_scale, num_rois)
    rows = np.asarray(boxes, np.float64).reshape(-1, 5).astype(coordinate_dtype(dtype))
    gradient = draw(rng, (len(rows), channels, *bins), dtype)
    return PsCase(draw(rng, shape, dtype), rows, bins, gradient, spatial_scale, sampling_ratio)


def forward(place: Place, kind: str, case: PsCase, input: Any = None) -> Array:
    return place.run(
        getattr(pybaracuda, f"ps_roi_{kind}"),
        case.input if input is None else input,
        case.boxes,
        case.output_size,
        outputs=[(case.grad_output.shape, case.input.dtype)],
        **case.options(kind),
    )[0]


def backward(place: Place, kind: str, case: PsCase, grad_output: Any = None) -> Array:
    return place.run(
        getattr(pybaracuda, f"ps_roi_{kind}_backward"),
        case.grad_output if grad_output is None else grad_output,
        case.boxes,
        case.input.shape,
        outputs=[(case.input.shape, case.input.dtype)],
        **case.options(kind),
    )[0]


def expected(kind: str, case: PsCase) -> tuple[Sum, Sum]:
    options = case.definition(kind)
    function, gradient = getattr(oracle, f"ps_roi_{kind}"), getattr(oracle, f"ps_roi_{kind}_backward")
    return (
        function(case.input, case.boxes, case.output_size, **options),
        gradient(case.grad_output, case.boxes, case.input.shape, **options),
    )


def check(place: Place, kind: str, case: PsCase) -> tuple[Array, Array]:
    """Both directions lie within the derived bound; answers the library's results."""
    output, grad_input = forward(place, kind, case), backward(place, kind, case)
    of_output, of_input = expected(kind, case)
    assert_within(output, of_output)
    assert_within(grad_input, of_input)
    return output, grad_input


@KIND
@pytest.mark.parametrize("scale", [1.0, 0.5, ODD_SCALE, 1 / 3])
@pytest.mark.parametrize("sampling_ratio", [1, 2, -1])
def test_random_boxes(
    place: Place, dtype: Any, rng: np.random.Generator, kind: str, scale: float, sampling_ratio: int
) -> None:
    check(place, kind, random_case(rng, dtype, spatial_scale=scale, sampling_ratio=sampling_ratio))


@KIND
@pytest.mark.parametrize("bins", [(1, 1), (7, 7), (1, 9), (33, 1)])
def test_bins_and_maps_of_any_shape(
    place: Place, wide_dtype: Any, rng: np.random.Generator, kind: str, bins: tuple[int, int]
) -> None:
    check(place, kind, random_case(rng, wide_dtype, bins=bins, channels=1, maps=(1, 20, 17)))


@KIND
@pytest.mark.parametrize("extent", [(1, 1), (1, 40), (40, 1), (64, 64), (64, 65), (90, 100), (2, 5000)])
def test_maps_around_every_band(
    place: Place, wide_dtype: Any, rng: np.random.Generator, kind: str, extent: tuple[int, int]
) -> None:
    check(place, kind, random_case(rng, wide_dtype, bins=(2, 1), channels=1, maps=(1, *extent), num_rois=40))


@KIND
@pytest.mark.parametrize("num_rois", [1, 31, 32, 33, 257, 1000])
def test_boxes_around_every_batch(place: Place, dtype: Any, rng: np.random.Generator, kind: str, num_rois: int) -> None:
    check(place, kind, random_case(rng, dtype, bins=(1, 2), channels=1, maps=(1, 5, 6), num_rois=num_rois))


@KIND
@pytest.mark.parametrize("channels", [12, 13, 25])
def test_channels_around_a_tile(place: Place, dtype: Any, rng: np.random.Generator, kind: str, channels: int) -> None:
    # A block of the CUDA backward has at most 12 channels.
    check(place, kind, random_case(rng, dtype, bins=(2, 1), channels=channels, maps=(2, 30, 45), num_rois=40))


@pytest.mark.parametrize("sampling_ratio", [7, 8, 9, 255, 256, 257])
def test_samples_around_what_is_looked_at_one_by_one(
    place: Place, wide_dtype: Any, rng: np.random.Generator, sampling_ratio: int
) -> None:
    # The CUDA backward finds the pixels of up to 8 samples, and the weights of up to 256, without bisection. The
    # definition adds sample by sample.
    num_rois = 15 if sampling_ratio < 10 else 4
    check(place, "align", random_case(rng, wide_dtype, num_rois=num_rois, sampling_ratio=sampling_ratio))


@pytest.mark.parametrize("sampling_ratio", [2, -1])
def test_samples_have_roi_aligns_bits(place: Place, dtype: Any, rng: np.random.Generator, sampling_ratio: int) -> None:
    case = random_case(rng, dtype, sampling_ratio=sampling_ratio)
    output, grad_input = forward(place, "align", case), backward(place, "align", case)
    options = {**case.options("align"), "aligned": True}
    whole = pybaracuda.roi_align(case.input, case.boxes, case.output_size, **options)
    maps = np.arange(case.input.shape[1]).reshape(-1, *case.output_size)
    rows, columns = np.indices(case.output_size)
    assert_same_bits(output, whole[:, maps, rows, columns])
    # Of each map the gradient of one bin: in one block of boxes the same sum.
    alone = np.zeros((len(case.boxes), case.input.shape[1], *case.output_size), case.input.dtype)
    alone[:, maps, rows, columns] = case.grad_output
    assert_same_bits(grad_input, pybaracuda.roi_align_backward(alone, case.boxes, case.input.shape, **options))


@KIND
def test_adjoint_identity_is_exact_on_the_lattice(
    place: Place, wide_dtype: Any, rng: np.random.Generator, kind: str
) -> None:
    low = rng.integers(-4, 10, (20, 2))
    # Bins of one, two or four pixels a side, whose divisors are powers of two, when they lie in the image.
    size = 2 ** rng.integers(1, 4, (20, 2))
    offset = 0.5 if kind == "align" else 0
    boxes = np.concatenate([rng.integers(0, 2, (20, 1)), low + offset, low + size + offset], 1)
    inside = (boxes[:, 1:3] >= 0).all(1) & (boxes[:, 3] <= 15) & (boxes[:, 4] <= 15)
    case = random_case(
        rng, wide_dtype, boxes[inside] if kind == "pool" else boxes, bins=(2, 2), maps=(2, 17, 17), spatial_scale=1.0,
        draw=integers,
    )  # fmt: skip
    output, grad_input = forward(place, kind, case), backward(place, kind, case)
    of_output, of_input = expected(kind, case)
    assert_exact(output, of_output)
    assert_exact(grad_input, of_input)
    assert np.sum(output.astype(np.float64) * case.grad_output) == np.sum(case.input * grad_input.astype(np.float64))


BAD_CORNERS = [
    [NAN, 1, 4, 4], [1, NAN, 4, 4], [1, 1, NAN, 4], [1, 1, 4, NAN], [-INF, 0, 4, 4], [0, 0, INF, 4],
    [-INF, -INF, INF, INF], [-1e30, -1e30, 1e30, 1e30], [-3e38, 0, 3e38, 4], [1e30, 1e30, 2e30, 2e30],
    [0, 0, 1e10, 1e10], [-1e10, -1e10, 5, 5], [5, 6, 1, 2], [6, 1, 2, 5], [3, 3, 3, 3], [3, 1, 3, 6],
    [1e-40, 1e-40, 4, 4], [-5, -5, -1, -1], [20, 20, 30, 30],
]  # fmt: skip


@KIND
@pytest.mark.parametrize("sampling_ratio", [2, -1])
def test_bad_boxes(place: Place, dtype: Any, rng: np.random.Generator, kind: str, sampling_ratio: int) -> None:
    rows = [[batch, 1, 1, 5, 4] for batch in BAD_BATCH] + [[1, *corners] for corners in BAD_CORNERS]
    rows += [[0, 1.5, 0.75, 6, 5.5]]
    case = random_case(rng, dtype, rows, spatial_scale=1.0, sampling_ratio=sampling_ratio)
    output, grad_input = check(place, kind, case)
    assert np.isfinite(output.astype(np.float64)).all()
    assert np.isfinite(grad_input.astype(np.float64)).all()


@given(boxes=ANY_BOXES, seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(KINDS))
def test_any_boxes(backend: str, place: Place, boxes: list[tuple[float, ...]], seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    check(place, kind, random_case(rng, np.float32, boxes, spatial_scale=1.0, maps=(3, 7, 8), bins=(2, 2), channels=1))


def test_bins_by_averages_end_before_the_last_row_and_column(place: Place, wide_dtype: Any) -> None:
    """As torchvision's do; its gradient has bins that reach them, ours that of the forward."""
    image = np.arange(25, dtype=wide_dtype).reshape(1, 1, 5, 5)
    boxes = np.array([[0, 0, 0, 5, 5], [0, 4, 4, 5, 5], [0, 3, 3, 5, 5]], wide_dtype)
    case = PsCase(image, boxes, (1, 1), np.ones((3, 1, 1, 1), wide_dtype))
    output, grad_input = forward(place, "pool", case), backward(place, "pool", case)
    assert_same_bits(output.ravel(), np.array([image[0, 0, :4, :4].mean(), 0, image[0, 0, 3, 3]], wide_dtype))
    wanted = np.zeros_like(image)
    wanted[0, 0, :4, :4] = 1 / 16
    wanted[0, 0, 3, 3] += 1
    assert_same_bits(grad_input, wanted)


@KIND
def test_what_is_not_finite_stays_where_it_is(place: Place, dtype: Any, rng: np.random.Generator, kind: str) -> None:
    case = random_case(rng, dtype, [[0, 1, 1, 4, 4], [0, 1, 1, 4, 4], [1, 0, 0, 6, 6]], spatial_scale=1.0)
    image, gradient = case.input.copy(), case.grad_output.copy()
    image[0, :, 2, 2], image[1, :, 3, 3] = NAN, INF
    gradient[0, 0], gradient[2, 1] = NAN, -INF
    output = forward(place, kind, case, image)
    grad_input = backward(place, kind, case, gradient)
    assert_canonical_nans(output)
    assert_canonical_nans(grad_input)
    of_output, of_input = expected(kind, case._replace(input=image, grad_output=gradient))
    assert_within(output, of_output)
    assert_within(grad_input, of_input)


@KIND
def test_without_boxes_the_gradient_is_zeros(place: Place, dtype: Any, rng: np.random.Generator, kind: str) -> None:
    case = random_case(rng, dtype, np.zeros((0, 5)))
    assert forward(place, kind, case).shape == (0, 2, 3, 2)
    assert_same_bits(backward(place, kind, case), np.zeros_like(case.input))


@KIND
def test_list_of_boxes_per_image(rng: np.random.Generator, kind: str) -> None:
    case = random_case(rng, np.float32, spatial_scale=1.0)
    rows = case.boxes[np.argsort(case.boxes[:, 0], kind="stable")]
    parts = [rows[rows[:, 0] == image, 1:] for image in range(2)]
    function = getattr(pybaracuda, f"ps_roi_{kind}")
    assert_same_bits(function(case.input, parts, case.output_size), function(case.input, rows, case.output_size))


@KIND
def test_a_scale_is_rounded_to_float32(rng: np.random.Generator, kind: str) -> None:
    case = random_case(rng, np.float64, spatial_scale=1 / 3)
    function = getattr(pybaracuda, f"ps_roi_{kind}")
    rounded = function(case.input, case.boxes, case.output_size, float(np.float32(1 / 3)))
    assert_same_bits(function(case.input, case.boxes, case.output_size, 1 / 3), rounded)


# Without torchvision there is no such comparison.
if available("torchvision"):

    @KIND
    def test_torchvision_agrees_on_the_host(rng: np.random.Generator, kind: str) -> None:
        """Forward; of the gradients that by samples: torchvision's by averages is no derivative of its forward."""
        torch, torchvision = importlib.import_module("torch"), importlib.import_module("torchvision")
        boxes = random_case(rng, np.float64, spatial_scale=0.25).boxes
        good = boxes[(boxes[:, 3:] > boxes[:, 1:3]).all(1)]
        case = random_case(rng, np.float64, good, spatial_scale=0.25)
        image = torch.from_numpy(case.input).requires_grad_()
        theirs = getattr(torchvision.ops, f"ps_roi_{kind}")(
            image, torch.from_numpy(case.boxes), case.output_size, **case.options(kind)
        )
        function = getattr(pybaracuda, f"ps_roi_{kind}")
        ours = function(case.input, case.boxes, case.output_size, **case.options(kind))
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-12, atol=1e-12)
        if kind == "align":
            (gradient,) = torch.autograd.grad(theirs, image, torch.from_numpy(case.grad_output))
            mine = pybaracuda.ps_roi_align_backward(
                case.grad_output, case.boxes, case.input.shape, **case.options(kind)
            )
            np.testing.assert_allclose(mine, gradient.numpy(), rtol=1e-12, atol=1e-12)
