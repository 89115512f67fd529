# SPDX-License-Identifier: Apache-2.0
"""The sampling of deformable convolution and its gradients against the float64 definition; torchvision beside both."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import integers, normal
from place import Place, available
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import Sum
from verify.definitions import deform_im2col as oracle
from verify.definitions.deform_im2col import Window
from verify.dtypes import DTYPES, UNIT_ROUNDOFF, Array, coordinate_dtype

NAN, INF = float("nan"), float("inf")
SAME = Window((3, 3), padding=(1, 1))
WINDOWS = {
    "3x3": SAME,
    "strided": Window((3, 2), (2, 1), (1, 2), (2, 3)),
    "one tap": Window((1, 1)),
    "wide": Window((1, 5), (1, 3), (0, 4), (1, 2)),
}
WINDOW = pytest.mark.parametrize("window", WINDOWS.values(), ids=list(WINDOWS))


class DeformCase(NamedTuple):
    """A problem with its gradient; `mask` may be None."""

    input: Array
    offset: Array
    mask: Array | None
    grad_columns: Array
    window: Window

    @property
    def options(self) -> dict[str, Any]:
        return self.window._asdict()


def positions(shape: tuple[int, ...], window: Window) -> tuple[int, int]:
    """How many positions the kernel has on images of this shape."""
    found = [
        (extent + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
        for extent, taps, stride, padding, dilation in zip(shape[2:], *window, strict=True)
    ]
    return found[0], found[1]


def case_of(
    rng: np.random.Generator,
    dtype: Any,
    shape: tuple[int, int, int, int] = (2, 4, 9, 11),
    window: Window = SAME,
    groups: int = 2,
    has_mask: bool = True,
    reach: float = 3.0,
) -> DeformCase:
    """Offsets of up to `reach` pixels, masks of any sign."""
    wide, taps, size = coordinate_dtype(dtype), int(np.prod(window.kernel_size)), positions(shape, window)
    offset = rng.uniform(-reach, reach, (shape[0], 2 * groups * taps, *size)).astype(wide)
    mask = rng.uniform(-1, 1, (shape[0], groups * taps, *size)).astype(wide) if has_mask else None
    gradient = normal(rng, (shape[0], shape[1] * taps, size[0] * size[1]), dtype)
    return DeformCase(normal(rng, shape, dtype), offset, mask, gradient, window)


def lattice_case(rng: np.random.Generator, dtype: Any, *args: Any, **options: Any) -> DeformCase:
    """Small integers, offsets in quarters and masks in halves: all of it is exact."""
    case = case_of(rng, dtype, *args, **options)
    return case._replace(
        input=integers(rng, case.input.shape, dtype),
        offset=(rng.integers(-12, 13, case.offset.shape) / 4).astype(case.offset.dtype),
        mask=None if case.mask is None else (rng.integers(-2, 3, case.mask.shape) / 2).astype(case.mask.dtype),
        grad_columns=integers(rng, case.grad_columns.shape, dtype),
    )


def forward(place: Place, case: DeformCase) -> Array:
    return place.run(
        pybaracuda.deform_im2col,
        case.input,
        case.offset,
        mask=None if case.mask is None else place.array(case.mask),
        outputs=[(case.grad_columns.shape, case.input.dtype)],
        **case.options,
    )[0]


def ruled(place: Place, case: DeformCase) -> list[Array]:
    """The library's columns, and its gradients by input, by offset and, with a mask, by mask."""
    masks = [] if case.mask is None else [case.mask]

    def columns(input: Any, offset: Any, *mask: Any, **options: Any) -> Any:
        return pybaracuda.deform_im2col(input, offset, **case.options, mask=(*mask, None)[0], **options)

    def by_input(gradient: Any, offset: Any, *mask: Any, **options: Any) -> Any:
        return pybaracuda.deform_im2col_backward(
            gradient, offset, case.input.shape, **case.options, mask=(*mask, None)[0], **options
        )

    def by_offset(gradient: Any, input: Any, offset: Any, *mask: Any, **options: Any) -> Any:
        return pybaracuda.deform_im2col_offset_backward(
            gradient, input, offset, **case.options, mask=(*mask, None)[0], **options
        )

    image, gradient = case.input, case.grad_columns
    like_input, like_columns = (image.shape, image.dtype), (gradient.shape, gradient.dtype)
    moves = [(array.shape, array.dtype) for array in (case.offset, *masks)]
    return [
        *place.run(columns, image, case.offset, *masks, outputs=[like_columns]),
        *place.run(by_input, gradient, case.offset, *masks, outputs=[like_input]),
        *place.run(by_offset, gradient, image, case.offset, *masks, outputs=moves),
    ]


def defined(case: DeformCase) -> list[Sum]:
    wide = case.offset.dtype
    by_offset, by_mask = oracle.deform_im2col_offset_backward(
        case.grad_columns, case.input, case.offset, case.window, case.mask, wide
    )
    shape: Any = case.input.shape
    return [
        oracle.deform_im2col(case.input, case.offset, case.window, case.mask, wide),
        oracle.deform_im2col_backward(case.grad_columns, case.offset, shape, case.window, case.mask, wide),
        by_offset,
        *([] if case.mask is None else [by_mask]),
    ]


def check(place: Place, case: DeformCase) -> list[Array]:
    """Every result lies within the derived bound; answers the library's."""
    results = ruled(place, case)
    for result, expected in zip(results, defined(case), strict=True):
        assert_within(result, expected)
    return results


@WINDOW
@pytest.mark.parametrize("has_mask", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize("reach", [0.9, 3.0, 100.0])
def test_random_offsets(
    place: Place, dtype: Any, rng: np.random.Generator, window: Window, has_mask: bool, reach: float
) -> None:
    for shape, groups in (((2, 4, 9, 11), 2), ((1, 3, 5, 33), 1), ((3, 3, 8, 7), 3)):
        check(place, case_of(rng, dtype, shape, window, groups, has_mask, reach))


@WINDOW
@pytest.mark.parametrize("has_mask", [False, True], ids=["no mask", "mask"])
def test_the_lattice_is_exact(
    place: Place, dtype: Any, rng: np.random.Generator, window: Window, has_mask: bool
) -> None:
    for shape, groups in (((2, 4, 9, 11), 2), ((1, 66, 5, 7), 1), ((1, 2, 5, 33), 2)):
        case = lattice_case(rng, dtype, shape, window, groups, has_mask)
        results = ruled(place, case)
        for result, expected in zip(results, defined(case), strict=True):
            assert_exact(result, expected)
        if dtype.itemsize > 2:
            in_columns = np.sum(results[0].astype(np.float64) * case.grad_columns.astype(np.float64))
            assert in_columns == np.sum(case.input.astype(np.float64) * results[1].astype(np.float64))


@WINDOW
def test_without_offsets_it_is_a_convolutions_columns(
    place: Place, dtype: Any, rng: np.random.Generator, window: Window
) -> None:
    case = case_of(rng, dtype, window=window, groups=1, has_mask=False)
    case = case._replace(offset=np.zeros_like(case.offset))
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = window
    padded = np.pad(case.input, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    oh, ow = positions(case.input.shape, window)
    taps = [
        padded[:, :, i * dh : i * dh + (oh - 1) * sh + 1 : sh, j * dw : j * dw + (ow - 1) * sw + 1 : sw]
        for i in range(kh)
        for j in range(kw)
    ]
    wanted = np.stack(taps, axis=2).reshape(case.grad_columns.shape)
    assert_same_bits(ruled(place, case)[0], wanted)


@WINDOW
def test_finite_differences(rng: np.random.Generator, window: Window) -> None:
    """Between pixels a value is linear in each of y, x and mask: differences have nothing but roundings."""
    case = case_of(rng, DTYPES["f64"], window=window)
    assert case.mask is not None
    offset = np.floor(case.offset) + rng.uniform(0.25, 0.75, case.offset.shape)
    case = case._replace(offset=offset)
    _, _, by_offset, by_mask = ruled(Place(), case)
    n, taps = case.input.shape[0], int(np.prod(window.kernel_size))
    size = positions(case.input.shape, window)
    groups = case.mask.shape[1] // taps
    per_channel = (n, groups, -1, taps, *size)
    step = 2.0**-6

    def difference(**moved: tuple[Array, Array]) -> Array:
        """By what all samples move: each channel's, times its gradient, added over the group's channels."""
        ends = [forward(Place(), case._replace(**{name: pair[end] for name, pair in moved.items()})) for end in (0, 1)]
        slopes = (ends[1] - ends[0]) / (2 * step) * case.grad_columns
        return slopes.reshape(per_channel).sum(axis=2)

    # Some ten roundings of values and weights, each of at most the largest value, over the step.
    slack = 20 * UNIT_ROUNDOFF["float64"] * np.abs(case.input).max() * np.abs(case.grad_columns).max() / step
    slack *= 2 * case.input.shape[1]
    for axis in (0, 1):
        along = np.zeros((n, groups, taps, 2, *size))
        along[:, :, :, axis] = step
        along = along.reshape(offset.shape)
        found = by_offset.reshape(n, groups, taps, 2, *size)[:, :, :, axis]
        assert (np.abs(difference(offset=(offset - along, offset + along)) - found) <= slack).all()
    found = by_mask.reshape(n, groups, taps, *size)
    assert (np.abs(difference(mask=(case.mask - step, case.mask + step)) - found) <= slack).all()


@pytest.mark.parametrize("channels", [1, 15, 16, 17, 63, 64, 65, 128, 130, 260, 520])
def test_many_channels(place: Place, dtype: Any, rng: np.random.Generator, channels: int) -> None:
    # CUDA lays out 16 bytes to a line of them; sums by offset are cut every 64, of which CUDA forms up to four side by
    # side.
    check(place, case_of(rng, dtype, (1, channels, 4, 5), Window((1, 3), padding=(0, 1)), 1))


def test_few_samples_of_many_pixels(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    """CUDA does not lay out what is hardly read."""
    check(place, case_of(rng, dtype, (2, 9, 17, 19), Window((2, 1), (5, 6), (1, 0)), 1))


def test_columns_that_are_laid_out_in_pieces(place: Place, rng: np.random.Generator) -> None:
    """On CUDA 20 MiB of them at a time: here a quarter."""
    check(place, case_of(rng, DTYPES["f32"], (2, 20, 120, 160), SAME, 1))


@pytest.mark.parametrize("count", [31, 32, 33, 64, 65, 255, 256, 257, 513, 2049, 5000])
def test_many_samples_on_one_pixel(place: Place, dtype: Any, rng: np.random.Generator, count: int) -> None:
    # A warp sorts lists of 32, 64 and 256; sums are cut every 256.
    wide = coordinate_dtype(dtype)
    to_first = np.stack([np.zeros(count), -np.arange(count)], axis=1).reshape(1, -1, 1, 1)
    window, image = Window((1, count)), (1, 2, 1, count)
    case = case_of(rng, dtype, image, window, 1)._replace(offset=to_first.astype(wide))
    assert defined(case)[1].terms.max() == count
    check(place, case)
    exact = lattice_case(rng, dtype, image, window, 1)._replace(offset=to_first.astype(wide))
    for result, expected in zip(ruled(place, exact), defined(exact), strict=True):
        assert_exact(result, expected)
    # Half-way between the first two pixels, of two groups.
    half = (to_first + np.tile([0, 0.5], count).reshape(to_first.shape)).astype(wide)
    both = lattice_case(rng, dtype, image, window, 2)._replace(offset=np.concatenate([half, half], axis=1))
    for result, expected in zip(ruled(place, both), defined(both), strict=True):
        assert_exact(result, expected)


BAD_OFFSETS = [NAN, INF, -INF, 1e20, -3e38, 2.0**31, -(2.0**31), 1e-40, -1.0, -2.0, 4.0, 5.0, 0.25]


@pytest.mark.parametrize("has_mask", [False, True], ids=["no mask", "mask"])
def test_bad_offsets(place: Place, dtype: Any, rng: np.random.Generator, has_mask: bool) -> None:
    wide = coordinate_dtype(dtype)
    side = len(BAD_OFFSETS)
    for shape in ((1, 3, 5, 4), (1, 2, 1, 1)):
        window = Window((1, side * side), padding=(0, side * side))
        case = case_of(rng, dtype, shape, window, 1, has_mask)
        size = positions(shape, window)
        y, x = (each.ravel() for each in np.meshgrid(BAD_OFFSETS, BAD_OFFSETS))
        # A tap for each pair of bad offsets, which count from column 0 wherever the tap lies.
        column = np.arange(side * side)[:, None] - side * side + np.arange(size[1])
        with np.errstate(invalid="ignore"):
            moves = np.stack([np.broadcast_to(y[:, None], column.shape), x[:, None] - column], axis=1)
        offset = np.repeat(moves[None, :, :, None], size[0], axis=3).reshape(case.offset.shape).astype(wide)
        case = case._replace(offset=offset)
        results = check(place, case)
        for result in results:
            assert np.isfinite(result.astype(np.float64)).all()
        nowhere = ~np.isfinite(offset.reshape(side * side, 2, -1)).all(axis=1)
        columns = results[0].reshape(shape[1], side * side, -1)
        assert_same_bits(columns[:, nowhere], np.zeros_like(columns[:, nowhere]))
        # Nothing of a sample without a place leaks, whatever is there.
        gradients = case.grad_columns.reshape(columns.shape).copy()
        gradients[:, nowhere] = NAN
        mask = None
        if case.mask is not None:
            mask = case.mask.reshape(side * side, -1).copy()
            mask[nowhere] = INF
            mask = mask.reshape(case.mask.shape)
        again = ruled(place, case._replace(grad_columns=gradients.reshape(case.grad_columns.shape), mask=mask))
        for one, two in zip(results, again, strict=True):
            assert_same_bits(two, one)


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_weights_of_zero_do_not_leak(place: Place, dtype: Any, bad: float) -> None:
    """A sample on a pixel reads that one alone, and one of mask 0 none; a bad gradient reaches no other pixel."""
    wide = coordinate_dtype(dtype)
    image = np.full((1, 1, 3, 3), bad, dtype)
    image[0, 0, 1, 1] = 2
    offset = np.ones((1, 2, 1, 1), wide)
    window = Window((1, 1), (3, 3))
    case = DeformCase(image, offset, np.ones((1, 1, 1, 1), wide), np.ones((1, 1, 1), dtype), window)
    columns, grad_input, _, grad_mask = ruled(place, case)
    assert columns.item() == 2
    assert grad_mask.item() == 2
    assert grad_input[0, 0, 1, 1] == 1
    assert np.count_nonzero(grad_input) == 1
    masked = case._replace(mask=np.zeros((1, 1, 1, 1), wide), grad_columns=np.full((1, 1, 1), bad, dtype))
    columns, grad_input, grad_offset, _ = ruled(place, masked)
    for result in (columns, grad_input, grad_offset):
        assert_same_bits(result, np.zeros_like(result))


def test_derivatives_on_pixels_are_those_to_the_right(place: Place, dtype: Any) -> None:
    wide = coordinate_dtype(dtype)
    image = np.array([[[[1, 4, 9], [25, 36, 49]]]], dtype)
    # One position; its offsets put it in turn on each column from -1 to 3.
    for x, slope in ((-1, 1), (0, 3), (1, 5), (2, -9), (3, 0)):
        offset = np.array([0, x], wide).reshape(1, 2, 1, 1)
        case = DeformCase(image, offset, None, np.ones((1, 1, 1), dtype), Window((1, 1), (2, 3)))
        assert ruled(place, case)[2].ravel()[1] == slope


@pytest.mark.parametrize(
    ("shape", "window", "groups"),
    [
        ((0, 4, 5, 6), SAME, 2),
        ((2, 0, 5, 6), SAME, 2),
        ((2, 4, 0, 6), SAME._replace(padding=(2, 1)), 2),
        ((2, 4, 5, 0), SAME._replace(padding=(1, 2)), 1),
    ],
    ids=["no images", "no channels", "no rows", "no columns"],
)
def test_empty_problems_write_zeros(
    place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, int, int, int], window: Window, groups: int
) -> None:
    case = case_of(rng, dtype, shape, window, groups)
    assert case.mask is not None
    for mask in (case.mask, np.full_like(case.mask, INF)):
        for result in ruled(place, case._replace(mask=mask)):
            assert_same_bits(result, np.zeros_like(result))


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = case_of(rng, dtype)
    columns, grad_input, grad_offset, grad_mask = ruled(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        input, offset, gradient = layout(case.input), layout(case.offset), layout(case.grad_columns)
        options = {**case.options, "mask": layout(case.mask)}
        assert_same_bits(place.numpy(pybaracuda.deform_im2col(input, offset, **options)), columns)
        found = pybaracuda.deform_im2col_backward(gradient, offset, case.input.shape, **options)
        assert_same_bits(place.numpy(found), grad_input)
        found = pybaracuda.deform_im2col_offset_backward(gradient, input, offset, **options)
        assert_same_bits(place.numpy(found[0]), grad_offset)
        assert_same_bits(place.numpy(found[1]), grad_mask)


def test_a_batch_in_pieces_has_its_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = case_of(rng, dtype, (5, 4, 9, 11))
    whole = ruled(place, case)
    for part in (slice(2), slice(2, 5)):
        assert case.mask is not None
        arrays = (case.input[part], case.offset[part], case.mask[part], case.grad_columns[part])
        for one, two in zip(whole, ruled(place, DeformCase(*arrays, case.window)), strict=True):
            assert_same_bits(one[part], two)


def test_a_mask_of_ones_is_no_mask(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = case_of(rng, dtype)
    assert case.mask is not None
    ones = ruled(place, case._replace(mask=np.ones_like(case.mask)))[:3]
    for one, two in zip(ones, ruled(place, case._replace(mask=None)), strict=True):
        assert_same_bits(one, two)


def test_nans_are_canonical(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = case_of(rng, dtype)
    case.input[0, 0, 3:] = INF
    case.input[0, 1, 3:] = -NAN
    case.grad_columns[0, :5] = -INF
    assert case.mask is not None
    case.mask[0, 0] = NAN
    for result in ruled(place, case):
        assert_canonical_nans(result)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    extents=st.tuples(st.integers(1, 6), st.integers(1, 7)),
    channels=st.integers(1, 5),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(2, 4), st.integers(2, 4)),
    offsets=st.lists(
        st.one_of(st.floats(-8, 8, width=32), st.sampled_from([-1.0, 0.0, 0.25, 4.0, NAN, INF, 1e20])), min_size=1
    ),
    has_mask=st.booleans(),
)
def test_any_offsets(
    seed: int,
    name: str,
    extents: tuple[int, int],
    channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    offsets: list[float],
    has_mask: bool,
) -> None:
    rng, window = np.random.default_rng(seed), Window(kernel, stride, padding)
    case = case_of(rng, DTYPES[name], (1, channels, *extents), window, 1, has_mask)
    drawn = rng.choice(np.array(offsets), case.offset.shape).astype(case.offset.dtype)
    check(Place(), case._replace(offset=drawn))


# Without torchvision there is no such comparison.
if available("torchvision"):

    @WINDOW
    @pytest.mark.parametrize("has_mask", [False, True], ids=["no mask", "mask"])
    def test_torchvision_agrees_on_the_host(rng: np.random.Generator, window: Window, has_mask: bool) -> None:
        """Convolutions by random weights, and their gradients."""
        torch, torchvision = importlib.import_module("torch"), importlib.import_module("torchvision")
        case = case_of(rng, DTYPES["f64"], window=window, has_mask=has_mask)
        weight = rng.standard_normal((5, case.input.shape[1], *window.kernel_size))
        given_ = [case.input, case.offset] + ([] if case.mask is None else [case.mask])
        tensors = [torch.from_numpy(array).requires_grad_() for array in given_]
        theirs = torchvision.ops.deform_conv2d(
            tensors[0], tensors[1], torch.from_numpy(weight), None, window.stride, window.padding, window.dilation,
            tensors[2] if has_mask else None,
        )  # fmt: skip
        flat = weight.reshape(5, -1)
        ours = (flat @ forward(Place(), case)).reshape(tuple(theirs.shape))
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-11, atol=1e-11)
        gradient = rng.standard_normal(tuple(theirs.shape))
        found = torch.autograd.grad(theirs, tensors, torch.from_numpy(gradient))
        mine = case._replace(grad_columns=flat.T @ gradient.reshape(gradient.shape[0], 5, -1))
        for one, two in zip(ruled(Place(), mine)[1:], found, strict=True):
            np.testing.assert_allclose(one, two.numpy(), rtol=1e-11, atol=1e-11)
