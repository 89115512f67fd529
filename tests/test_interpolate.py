# SPDX-License-Identifier: Apache-2.0
"""interpolate and interpolate_backward against their definitions, and beside PyTorch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from channels_last import as_volumes
from lattice import integers, normal
from place import Place
from tolerance import assert_exact, assert_same_bits, assert_within

import pybaracuda
from pybaracuda._check.abi_calls import STATUS, Launch, Library, symbols
from verify.bounds import Sum
from verify.definitions import interpolate as oracle
from verify.dtypes import UNIT_ROUNDOFF, Array, bits, in_float64

INF = float("inf")
NEAREST = ("nearest", "nearest-exact")
# For images alone.
OF_IMAGES = ("cubic", *oracle.ANTIALIASED)
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class ResizeCase(NamedTuple):
    """An interpolation with its gradient; the mode is the definition's name of it."""

    input: Array
    grad_output: Array
    mode: str
    align_corners: bool = False
    scales: tuple[float, ...] | None = None

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(self.grad_output.shape[2:])

    @property
    def options(self) -> dict[str, Any]:
        """What both array functions take, with torch's name of the mode."""
        if self.mode in NEAREST:
            return {"mode": self.mode}
        kind, _, antialias = self.mode.partition("-")
        names = {"linear": LINEAR[len(self.size)], "cubic": "bicubic"}
        return {"mode": names[kind], "align_corners": self.align_corners, "antialias": bool(antialias)}


def random_case(
    rng: np.random.Generator,
    dtype: Any,
    mode: str,
    sizes: tuple[int, ...],
    size: tuple[int, ...] | None = None,
    scales: tuple[float, ...] | None = None,
    align_corners: bool = False,
    images: tuple[int, int] = (2, 3),
) -> ResizeCase:
    """Ordinary data, by size or by scale."""
    if size is None:
        assert scales is not None
        size = tuple(int(extent * scale) for extent, scale in zip(sizes, scales, strict=True))
    input, gradient = normal(rng, (*images, *sizes), dtype), normal(rng, (*images, *size), dtype)
    return ResizeCase(input, gradient, mode, align_corners and mode not in NEAREST, scales)


def forward(place: Place, case: ResizeCase, input: Any = None) -> Array:
    """The library's output; `input` replaces the case's by an equal array of another layout."""
    given: dict[str, Any] = {"size": case.size} if case.scales is None else {"scale_factor": case.scales}
    return place.run(
        pybaracuda.interpolate,
        case.input if input is None else input,
        outputs=[(case.grad_output.shape, case.input.dtype)],
        **given,
        **case.options,
    )[0]


def backward(place: Place, case: ResizeCase, grad_output: Any = None) -> Array:
    return place.run(
        pybaracuda.interpolate_backward,
        case.grad_output if grad_output is None else grad_output,
        case.input.shape,
        outputs=[(case.input.shape, case.input.dtype)],
        scale_factor=case.scales,
        **case.options,
    )[0]


def oracle_backward(case: ResizeCase) -> Sum:
    sizes = case.input.shape[2:]
    return oracle.interpolate_backward(case.grad_output, sizes, case.mode, case.align_corners, case.scales)


def check(place: Place, case: ResizeCase) -> tuple[Array, Array]:
    """Moves are the definition's to the bit, sums within their bounds; answers the library's results."""
    output = forward(place, case)
    if case.mode not in NEAREST:
        assert_within(output, oracle.interpolate(case.input, case.size, case.mode, case.align_corners, case.scales))
    else:
        moved = oracle.interpolate_moves(bits(case.input), case.size, case.mode, case.scales)
        assert_same_bits(bits(output), moved)
    grad_input = backward(place, case)
    assert_within(grad_input, oracle_backward(case))
    return output, grad_input


MODE = pytest.mark.parametrize("mode", oracle.MODES)


@MODE
@pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "corners"])
def test_random_sizes(place: Place, dtype: Any, rng: np.random.Generator, mode: str, align_corners: bool) -> None:
    for _ in range(12):
        rank = 2 if mode in OF_IMAGES else int(rng.integers(1, 4))
        most = {1: 300, 2: 40, 3: 14}[rank]
        sizes, size = (tuple(int(each) for each in rng.integers(1, most, rank)) for _ in range(2))
        check(place, random_case(rng, dtype, mode, sizes, size, align_corners=align_corners))


@MODE
def test_random_scales(place: Place, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    for _ in range(12):
        rank = 2 if mode in OF_IMAGES else int(rng.integers(1, 4))
        most = {1: 300, 2: 40, 3: 14}[rank]
        sizes = tuple(int(each) for each in rng.integers(4, most, rank))
        scales = tuple(float(each) for each in rng.choice([2.0, 0.5, 1 / 3, 1.7, 3.0, 0.9], rank))
        check(place, random_case(rng, dtype, mode, sizes, scales=scales))


@MODE
@pytest.mark.parametrize(
    ("sizes", "size"),
    [
        # One past the CPU's blocks of 1,088 columns and of 512 pixels, and past CUDA's windows of 1,024.
        ((3, 544), (6, 1088)), ((3, 545), (6, 1090)), ((2, 512), (3, 1023)), ((2, 513), (2, 1025)),
        ((2, 257), (2, 513)),
        # Nine output pixels and eight for a pixel, where the CPU's ways of adding part.
        ((4, 40), (16, 160)), ((4, 40), (16, 180)), ((4, 40), (12, 120)),
        # Partial sums of 256: exactly one, one more, several.
        ((1, 3), (128, 384)), ((1, 1), (256, 256)), ((1, 1), (257, 257)), ((2, 2), (900, 777)),
        # A pixel whose output pixels are more than a block.
        ((1, 1), (2, 3000)), ((2, 2), (2, 4100)), ((1, 3), (1, 7000)),
        # Planes of one row, one column and one pixel; nothing to do on one of the axes.
        ((1, 70), (1, 140)), ((70, 1), (140, 1)), ((1, 1), (1, 1)), ((9, 20), (9, 40)), ((9, 20), (18, 20)),
        # More than four rows of a pass, and many pixels that nobody has.
        ((2, 6), (11, 6)), ((700, 9), (5, 3)), ((5, 2100), (3, 7)),
        # CUDA's antialiased gradient in registers: windows of 4 and 6 output columns and one less, steps
        # around 1.875, rows that are no whole vectors, and strips of 32 rows and one more.
        ((8, 8), (4, 4)), ((8, 6), (4, 3)), ((9, 12), (5, 6)), ((9, 10), (5, 5)), ((7, 60), (7, 32)),
        ((7, 60), (7, 33)), ((33, 99), (17, 50)), ((66, 40), (31, 9)), ((40, 40), (40, 39)),
        # CUDA's cubic gradient: nine output columns of a pixel and ten; more rows of a strip than it has weights of.
        ((5, 40), (10, 89)), ((5, 40), (10, 90)), ((5, 40), (10, 92)), ((50, 12), (140, 24)),
    ],
    ids=str,
)  # fmt: skip
def test_sizes_around_every_threshold(
    place: Place, rng: np.random.Generator, mode: str, sizes: tuple[int, int], size: tuple[int, int]
) -> None:
    for dtype in (np.float32, np.float16):
        for align_corners in (False, True):
            check(place, random_case(rng, dtype, mode, sizes, size, align_corners=align_corners, images=(1, 2)))


@MODE
def test_many_planes_and_enough_work_for_threads(place: Place, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    check(place, random_case(rng, dtype, mode, (16, 24), (32, 48), images=(5, 41)))
    check(place, random_case(rng, dtype, mode, (12, 70), (24, 800), images=(3, 5)))
    if mode in OF_IMAGES:
        return
    check(place, random_case(rng, dtype, mode, (6, 10, 12), (12, 20, 24), images=(3, 5)))
    check(place, random_case(rng, dtype, mode, (4000,), (8000,), images=(3, 7)))


@pytest.mark.parametrize("wide", [np.float32, np.float64], ids=["f32", "f64"])
def test_cubic_backward_is_the_exact_adjoint(place: Place, wide: Any, rng: np.random.Generator) -> None:
    """By factors that are powers of two: weights are multiples of 2^-12, and sums of small integers fit into f32."""
    for sizes, size in (((5, 7), (10, 14)), ((8, 12), (4, 6)), ((3, 2), (6, 4)), ((1, 9), (2, 9)), ((4, 4), (8, 2))):
        case = random_case(rng, wide, "cubic", sizes, size)
        case = case._replace(
            input=integers(rng, case.input.shape, wide, 1), grad_output=integers(rng, case.grad_output.shape, wide, 1)
        )
        output, grad_input = check(place, case)
        assert_exact(output, oracle.interpolate(case.input, size, "cubic"))
        assert_exact(grad_input, oracle_backward(case))
        assert np.sum(in_float64(output) * in_float64(case.grad_output)) == np.sum(
            in_float64(case.input) * in_float64(grad_input)
        )


def test_a_cubic_row_is_known(place: Place, dtype: Any) -> None:
    """By hand: weights at a quarter are -27, 225, 67 and -9 of 256; a pixel beyond an edge is the edge's."""
    row = np.array([[[[0, 0, 1, 0, 0, 0]]]]).astype(dtype)
    case = ResizeCase(row, np.ones((1, 1, 1, 12)).astype(dtype), "cubic")
    expected = [each / 256 for each in (0, -9, -27, 67, 225, 225, 67, -27, -9, 0, 0, 0)]
    assert in_float64(forward(place, case)).ravel().tolist() == expected
    # Weights at the first output pixel, three quarters on from pixel -1, whose pixels -2 and -1 are pixel 0.
    edge = ResizeCase(np.array([[[[1, 0, 0, 0, 0, 0]]]]).astype(dtype), row, "cubic")._replace(
        grad_output=np.array([[[[1] + [0] * 11]]]).astype(dtype)
    )
    first = float(in_float64(forward(place, edge)).ravel()[0])
    assert first == in_float64(np.array((-9 + 67 + 225) / 256).astype(dtype))
    assert in_float64(backward(place, edge)).ravel().tolist() == [first, -27 / 256, 0, 0, 0, 0]


@pytest.mark.parametrize("wide", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("mode", OF_IMAGES)
@pytest.mark.parametrize(("sizes", "size"), [((12, 24), (6, 12)), ((9, 21), (5, 11)), ((12, 12), (24, 24))], ids=str)
def test_an_infinite_gradient_reaches_those_with_a_weight_alone(
    place: Place, wide: Any, mode: str, sizes: tuple[int, int], size: tuple[int, int]
) -> None:
    """A pixel that an output pixel has no weight for must not have its infinity, not even as a NaN."""
    image, one = np.zeros((1, 2, *sizes)).astype(wide), np.zeros((1, 2, *size)).astype(wide)
    for row, column in ((0, 0), (2, 5), (size[0] - 1, size[1] - 1)):
        one[...] = 0
        one[0, 1, row, column] = 1
        found = in_float64(backward(place, ResizeCase(image, one, mode)))
        one[0, 1, row, column] = INF
        infinite = in_float64(backward(place, ResizeCase(image, one, mode)))
        assert np.array_equal(np.isinf(infinite), found != 0)
        assert not np.isnan(infinite).any()


def test_cubic_data_that_is_not_finite_reaches_its_neighbours_alone(place: Place, dtype: Any) -> None:
    """Weights of pixels at a whole distance are 0: with corners kept every other output pixel is one input pixel."""
    image = np.zeros((1, 1, 1, 9)).astype(dtype)
    image[0, 0, 0, 4] = INF
    output = in_float64(forward(place, ResizeCase(image, np.zeros((1, 1, 1, 17)).astype(dtype), "cubic", True))).ravel()
    assert np.flatnonzero(~np.isfinite(output)).tolist() == [5, 7, 8, 9, 11]
    gradient = np.zeros((1, 1, 1, 17)).astype(dtype)
    gradient[0, 0, 0, 8] = INF
    found = in_float64(backward(place, ResizeCase(image, gradient, "cubic", True))).ravel()
    assert found.tolist() == [0, 0, 0, 0, INF, 0, 0, 0, 0]


def test_bicubic_is_pytorchs_within_the_rounding_of_positions(torch: Any, rng: np.random.Generator) -> None:
    """As for linear; a weight's derivative is at most 3/2, and those of a pixel's taps add up to at most 4."""
    for _ in range(300):
        sizes = tuple(int(each) for each in rng.choice([1, 2, 3, 5, 8, 11, 16, 23], 2))
        size = tuple(int(each) for each in rng.choice([1, 2, 3, 4, 7, 16, 22, 33, 46], 2))
        scales = tuple(float(each) for each in rng.choice([1.5, 2.0, 2.5, 3.0, 1.2999], 2))
        by_scale = bool(rng.integers(0, 2))
        case = random_case(
            rng, np.float32, "cubic", sizes, None if by_scale else size, scales if by_scale else None,
            bool(rng.integers(0, 2)),
        )  # fmt: skip
        output, grad_input = _resized(torch, case)
        ours = check(Place(), case)
        expected = oracle.interpolate(case.input, case.size, "cubic", case.align_corners, case.scales)
        sums = oracle_backward(case)
        # Positions are off by three roundings, a weight's own are doubled for PyTorch's other order; each axis
        # multiplies the other one's weights, whose absolute values add up to less than 3/2.
        moved = 3 * UNIT_ROUNDOFF["float32"] * sum(case.input.shape[2:]) * 4 * 1.5
        cancelled = 24 * UNIT_ROUNDOFF["float32"] * 2 * 4 * 1.5
        most = np.abs(case.input).max()
        apart = np.abs(in_float64(output) - in_float64(ours[0]))
        assert (apart <= 2 * expected.bound(np.float32) + (moved + cancelled) * most).all()
        if by_scale and case.size == case.input.shape[2:]:
            continue  # PyTorch's gradient is a copy there, although its forward is none
        most = np.abs(case.grad_output).max() * sums.terms.max()
        apart = np.abs(in_float64(grad_input) - in_float64(ours[1]))
        assert (apart <= 2 * sums.bound(np.float32) + (moved + cancelled) * most).all()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "cubic"])
@pytest.mark.parametrize("factor", [1, 2, 3, 4, 7])
def test_no_gradient_is_negative_zero(place: Place, mode: str, factor: int, rng: np.random.Generator) -> None:
    """A part of the smallest number may be -0 once it is rounded; on which path must not show."""
    smallest = np.finfo(np.float32).smallest_subnormal
    for width in (1, 2, 3, 4, 8, 20, 33):
        case = random_case(rng, np.float32, mode, (3, width), (3 * factor, width * factor))
        grad_output = np.full(case.grad_output.shape, -0.0, np.float32)
        grad_output[rng.random(grad_output.shape) < 0.02] = -smallest
        grad_input = backward(place, case._replace(grad_output=grad_output))
        assert not (np.signbit(grad_input) & (grad_input == 0)).any()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_backward_is_the_exact_adjoint(place: Place, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    """By factors that are powers of two weights are multiples of a power of two, and every sum is exact."""
    for sizes, size in (((5, 7), (10, 14)), ((8, 12), (4, 6)), ((3, 5, 4), (6, 10, 4)), ((9,), (18,))):
        case = random_case(rng, dtype, mode, sizes, size)
        case = case._replace(
            input=integers(rng, case.input.shape, dtype, 1), grad_output=integers(rng, case.grad_output.shape, dtype, 1)
        )
        output, grad_input = check(place, case)
        if dtype == "bfloat16" and len(sizes) == 3:
            continue  # three weights of two bits and a sum do not fit into 8 bits
        assert_exact(grad_input, oracle_backward(case))
        assert np.sum(in_float64(output) * in_float64(case.grad_output)) == np.sum(
            in_float64(case.input) * in_float64(grad_input)
        )


@pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "corners"])
def test_a_signal_is_known(place: Place, dtype: Any, align_corners: bool) -> None:
    """By hand."""
    signal = np.array([[[0, 4, 8]]]).astype(dtype)
    case = ResizeCase(signal, np.ones((1, 1, 5)).astype(dtype), "linear", align_corners)
    if align_corners:
        assert in_float64(forward(place, case)).ravel().tolist() == [0, 2, 4, 6, 8]
        assert in_float64(backward(place, case)).ravel().tolist() == [1.5, 2, 1.5]
    doubled = ResizeCase(signal, np.ones((1, 1, 6)).astype(dtype), "linear")
    assert in_float64(forward(place, doubled)).ravel().tolist() == [0, 1, 3, 5, 7, 8]
    assert in_float64(backward(place, doubled)).ravel().tolist() == [2, 2, 2]
    nearest = ResizeCase(signal, np.arange(5).reshape(1, 1, 5).astype(dtype), "nearest")
    assert in_float64(forward(place, nearest)).ravel().tolist() == [0, 0, 4, 4, 8]
    assert in_float64(backward(place, nearest)).ravel().tolist() == [1, 5, 4]


def test_a_pixel_of_weight_0_does_not_exist(place: Place, dtype: Any) -> None:
    image = np.full((1, 1, 3, 3), INF).astype(dtype)
    image[0, 0, 1, 1] = 2
    # With corners kept the middle of 5 x 5 is the middle of 3 x 3, with nothing of its neighbours.
    gradient = np.full((1, 1, 5, 5), INF).astype(dtype)
    gradient[0, 0, 1:4, 1:4] = 0
    case = ResizeCase(image, gradient, "linear", align_corners=True)
    output, grad_input = check(place, case)
    assert float(output[0, 0, 2, 2]) == 2
    assert float(grad_input[0, 0, 1, 1]) == 0
    # A copy of every pixel, whatever stands beside it.
    copied = ResizeCase(image, image, "linear")
    assert_same_bits(forward(place, copied), image)


@MODE
def test_a_gradient_that_underflows_is_0(place: Place, rng: np.random.Generator, mode: str) -> None:
    """Not -0, on any path: sums of products that round to -0 are added to 0."""
    for wide in (np.float32, np.float64):
        for sizes, size in (
            ((2, 9), (4, 18)),
            ((1, 9), (1, 18)),
            ((3, 3), (40, 40)),
            ((2, 9), (900, 18)),
            ((9, 7), (4, 5)),
        ):
            case = random_case(rng, wide, mode, sizes, size, images=(1, 2))
            chosen = rng.integers(0, 3, case.grad_output.shape) == 0
            gradient = np.where(chosen, -np.finfo(wide).smallest_subnormal, -0.0).astype(wide)
            found = backward(place, case._replace(grad_output=gradient))
            assert not np.signbit(found[found == 0]).any()


@MODE
def test_strided_arrays_are_copied(place: Place, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    case = random_case(rng, dtype, mode, (5, 6), (9, 7))
    output, grad_input = check(place, case)
    assert_same_bits(forward(place, case, place.transposed(case.input)), output)
    assert_same_bits(backward(place, case, place.transposed(case.grad_output)), grad_input)


@pytest.mark.parametrize("channels", [1, 5, 16])
@pytest.mark.parametrize(
    ("mode", "align_corners"), [("nearest", False), ("nearest-exact", False), ("linear", False), ("linear", True)]
)
def test_channels_as_a_third_axis_change_no_bits(
    place: Place, dtype: Any, rng: np.random.Generator, mode: str, align_corners: bool, channels: int
) -> None:
    """What lets PyTorch's images with channels last be resized where they lie."""
    for size, scales in (((13, 40), None), (None, (1.7, 0.6))):
        case = random_case(rng, dtype, mode, (9, 21), size, scales, align_corners, (2, channels))
        infinite = np.where(rng.random(case.input.shape) < 1 / 50, INF, case.input.astype(np.float64))
        case = case._replace(input=infinite.astype(dtype))
        volumes = case._replace(
            input=as_volumes(case.input),
            grad_output=as_volumes(case.grad_output),
            scales=None if case.scales is None else (*case.scales, 1.0),
        )
        assert_same_bits(forward(place, volumes), as_volumes(forward(place, case)))
        assert_same_bits(backward(place, volumes), as_volumes(backward(place, case)))


def test_the_frozen_functions_are_the_extended_one(rng: np.random.Generator) -> None:
    """The same problem through either symbol has the same bits; scalars behind the workspace arrive."""
    library = Library("cpu")
    by_name = {symbol.name: symbol for symbol in symbols()}
    input = normal(rng, (2, 3, 9, 11), np.float32)
    images = {"n": 2, "c": 3, "input_h": 9, "input_w": 11, "output_h": 17, "output_w": 8}
    extended = {**images, "input_d": 1, "output_d": 1, "scale_d": 0.0}
    for aligned, scale_h, scale_w in ((0, 0.0, 0.0), (1, 0.0, 0.0), (0, 1.9, 0.0), (0, 0.0, 0.75), (1, 1.9, 0.75)):
        results = []
        for name, values in (
            ("interpolate_bilinear_2d_f32",
             {**images, "align_corners": aligned, "scale_h_factor": scale_h, "scale_w_factor": scale_w}),
            ("interpolate_ex_f32",
             {**extended, "mode": 2, "align_corners": aligned, "scale_h": scale_h, "scale_w": scale_w}),
        ):  # fmt: skip
            output = np.full((2, 3, 17, 8), np.nan, np.float32)
            pointers = {"input": input.ctypes.data, "output": output.ctypes.data}
            assert library.run(by_name[name], values, Launch(pointers)) == STATUS["OK"]
            results.append(output)
        assert_same_bits(*results)
        scales = None if aligned else (scale_h, scale_w)
        assert_within(results[0], oracle.interpolate(input, (17, 8), "linear", bool(aligned), scales))


# ---- antialiased

ANTIALIASED = pytest.mark.parametrize("mode", list(oracle.ANTIALIASED))


@ANTIALIASED
@pytest.mark.parametrize(
    ("sizes", "size"),
    [
        # One past CUDA's tiles of 16 rows and 64 columns, and of 8; more planes than a tile has.
        ((33, 130), (16, 64)), ((33, 130), (17, 65)), ((40, 9), (20, 9)), ((9, 9), (1, 1)), ((9, 9), (1, 9)),
        # A window that fills its chunk of 4 columns for one and 16 more, and one that does not fit; of a tile of 8.
        ((2, 264), (2, 64)), ((2, 272), (2, 64)), ((2, 280), (2, 64)), ((2, 48), (2, 8)), ((2, 52), (2, 8)),
        # One past the CPU's chunks of 512 columns, blocks of 256 and 16 or 8 rows; filters of more pixels than those.
        ((2, 512), (2, 9)), ((2, 513), (2, 9)), ((5, 257), (5, 256)), ((5, 256), (5, 257)), ((20, 3), (9, 3)),
        ((3, 1100), (3, 2)), ((900, 3), (2, 3)),
    ],
    ids=str,
)  # fmt: skip
def test_sizes_around_the_tiles_of_antialiasing(
    place: Place, rng: np.random.Generator, mode: str, sizes: tuple[int, int], size: tuple[int, int]
) -> None:
    for inner, outer in ((sizes, size), (size, sizes)):
        for dtype in (np.float32, np.float64, np.float16):
            check(place, random_case(rng, dtype, mode, inner, outer, images=(3, 1)))
            check(place, random_case(rng, dtype, mode, inner, outer, align_corners=True, images=(1, 2)))


@ANTIALIASED
@pytest.mark.parametrize("align_corners", [False, True], ids=["edges", "corners"])
def test_antialiased_backward_is_the_exact_adjoint(
    place: Place, dtype: Any, rng: np.random.Generator, mode: str, align_corners: bool
) -> None:
    """Of one pixel alone an output is its weights' product, rounded once as in the gradient: the same matrix."""
    for _ in range(4):
        sizes, size = (tuple(int(each) for each in rng.integers(1, 9, 2)) for _ in range(2))
        inner, outer = int(np.prod(sizes)), int(np.prod(size))
        pixels = np.eye(inner).reshape(inner, 1, *sizes).astype(dtype)
        gradients = np.eye(outer).reshape(outer, 1, *size).astype(dtype)
        # All pixels at once, as images of one.
        forwards = ResizeCase(pixels, np.zeros((inner, 1, *size)).astype(dtype), mode, align_corners)
        backwards = ResizeCase(np.zeros((outer, 1, *sizes)).astype(dtype), gradients, mode, align_corners)
        matrix = in_float64(forward(place, forwards)).reshape(inner, outer)
        assert_same_bits(in_float64(backward(place, backwards)).reshape(outer, inner), matrix.T.copy())
        assert np.abs(matrix).sum() > 0


@pytest.mark.parametrize("wide", [np.float32, np.float64], ids=["f32", "f64"])
@ANTIALIASED
def test_antialiased_sums_are_exact_on_the_lattice(
    place: Place, wide: Any, rng: np.random.Generator, mode: str
) -> None:
    """Inside, by powers of two, weights are few bits: a border of zeros as wide as the filter leaves them alone."""
    # Products of two cubic weights of quarters of a pixel and their sums have more bits than f32.
    for factor in (2,) if wide == np.float32 and mode.startswith("cubic") else (2, 4):
        image = np.zeros((2, 2, 16 * factor, 16 * factor))
        inside = slice(4 * factor, 12 * factor)
        image[:, :, inside, inside] = integers(rng, (2, 2, 8 * factor, 8 * factor), np.float64, 2)
        gradient = np.zeros((2, 2, 16, 16))
        gradient[:, :, 4:12, 4:12] = integers(rng, (2, 2, 8, 8), np.float64, 2)
        case = ResizeCase(image.astype(wide), gradient.astype(wide), mode)
        output, grad_input = check(place, case)
        assert np.any(output)
        assert_exact(output, oracle.interpolate(case.input, case.size, mode)._replace(roundings=np.zeros(output.shape)))
        assert_exact(grad_input, oracle_backward(case)._replace(roundings=np.zeros(grad_input.shape)))
        assert np.sum(output.astype(np.float64) * gradient) == np.sum(image * grad_input.astype(np.float64))


def test_an_antialiased_row_is_known(place: Place, dtype: Any) -> None:
    """By hand: halved, a triangle weighs pixels by 1, 3, 3 and 1 of 8; at an edge by 3, 3 and 1 of 7."""
    row = np.array([[[[8, 0, 0, 16, 0, 0, 0, 7]]]]).astype(dtype)
    case = ResizeCase(row, np.array([[[[7, 8, 8, 0]]]]).astype(dtype), "linear-antialias")
    found = in_float64(forward(place, case)).ravel()
    assert found[1:].tolist() == [6, 2, 3]
    # The edge's weights are rounded.
    assert abs(found[0] - 24 / 7) <= 2 * UNIT_ROUNDOFF[np.dtype(dtype).name] * 24 / 7
    assert in_float64(backward(place, case)).ravel().tolist() == [3, 4, 4, 4, 4, 3, 1, 0]


@ANTIALIASED
def test_antialiased_to_the_same_size_is_a_copy(place: Place, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    image = normal(rng, (2, 3, 9, 70), dtype)
    case = ResizeCase(image, image, mode)
    assert_same_bits(forward(place, case), image)
    assert_same_bits(backward(place, case), image)


@ANTIALIASED
def test_a_filter_without_a_pixel_is_0(place: Place, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    """By a scale that the extents do not have: beyond the last pixel and half a filter there is nothing."""
    image, gradient = normal(rng, (1, 2, 5, 6), dtype), normal(rng, (1, 2, 40, 33), dtype)
    scales = (0.5, 1.0)
    output = resized(place, image, (40, 33), scales, mode)
    assert_within(output, oracle.interpolate(image, (40, 33), mode, False, scales))
    assert not in_float64(output)[:, :, 5:].any()
    assert not in_float64(output)[..., 9:].any()
    assert in_float64(output)[:, :, :2, :6].any()
    found = resized(place, gradient, (5, 6), scales, mode, backward=True)
    assert_within(found, oracle.interpolate_backward(gradient, (5, 6), mode, False, scales))


def resized(
    place: Place, values: Array, size: tuple[int, int], scales: tuple[float, float], mode: str, backward: bool = False
) -> Array:
    """A call of the C function itself, on the CPU, which takes extents and scales that say different things."""
    library = Library("cpu")
    by_name = {symbol.name: symbol for symbol in symbols()}
    dtype = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}[values.dtype.name]
    symbol = by_name[f"interpolate_ex{'_backward' if backward else ''}_{dtype}"]
    n, c, *here = values.shape
    inner, outer = (size, here) if backward else (here, size)
    scalars = {
        "n": n, "c": c, "input_d": 1, "input_h": inner[0], "input_w": inner[1], "output_d": 1, "output_h": outer[0],
        "output_w": outer[1], "mode": oracle.MODES.index(mode), "align_corners": 0, "scale_d": 0.0,
        "scale_h": scales[0], "scale_w": scales[1],
    }  # fmt: skip
    found = np.full((n, c, *size), np.nan).astype(values.dtype)
    names = ("grad_output", "grad_input") if backward else ("input", "output")
    pointers = {names[0]: values.ctypes.data, names[1]: found.ctypes.data}
    assert library.run(symbol, scalars, Launch(pointers)) == STATUS["OK"]
    return found


# ---- area


def test_area_is_adaptive_average_pooling(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    """To the bit, in one dimension to three, by size and by factor."""
    for sizes, size in (((9,), (4,)), ((9, 7), (4, 10)), ((5, 6, 7), (2, 6, 3))):
        image, gradient = normal(rng, (2, 3, *sizes), dtype), normal(rng, (2, 3, *size), dtype)
        found = pybaracuda.interpolate(image, size, mode="area")
        assert_same_bits(found, pybaracuda.adaptive_avg_pool(image, size))
        back = pybaracuda.interpolate_backward(gradient, image.shape, mode="area")
        assert_same_bits(back, pybaracuda.adaptive_avg_pool_backward(gradient, image.shape, axes=len(sizes)))
    half = pybaracuda.interpolate(image, scale_factor=0.5, mode="area")
    assert_same_bits(half, pybaracuda.adaptive_avg_pool(image, (2, 3, 3)))


# ---- beside PyTorch on the CPU


def _torch_case(rng: np.random.Generator, dtype: Any, mode: str) -> ResizeCase:
    rank = int(rng.integers(1, 4))
    sizes = tuple(int(each) for each in rng.choice([1, 2, 3, 5, 8, 11, 16, 23], rank))
    aligned = bool(rng.integers(0, 2))
    if rng.integers(0, 2):
        size = tuple(int(each) for each in rng.choice([1, 2, 3, 4, 7, 16, 22, 33, 46], rank))
        return random_case(rng, dtype, mode, sizes, size, align_corners=aligned)
    scales = tuple(float(each) for each in rng.choice([1.0, 1.5, 2.0, 2.5, 3.0, 1.2999], rank))
    return random_case(rng, dtype, mode, sizes, scales=scales, align_corners=aligned)


def _resized(torch: Any, case: ResizeCase) -> tuple[Array, Array]:
    """PyTorch's output and gradient."""
    input = torch.from_numpy(case.input).requires_grad_()
    options = {**case.options, "size": case.size if case.scales is None else None, "scale_factor": case.scales}
    output = torch.nn.functional.interpolate(input, **options)
    output.backward(torch.from_numpy(case.grad_output))
    return output.detach().numpy(), input.grad.numpy()


def _is_the_forwards(case: ResizeCase) -> bool:
    """Whether PyTorch's CPU code has one rule for all: for extents that are equal or doubled, and a scale that says
    otherwise, its two-dimensional forward and all its gradients go by the extents."""
    if case.scales is None:
        return True
    axes = zip(case.input.shape[2:], case.size, case.scales, strict=True)
    return all((a != b or scale == 1) and (2 * a != b or scale == 2) for a, b, scale in axes)


def test_nearest_is_pytorchs_to_the_bit(torch: Any, rng: np.random.Generator) -> None:
    for _ in range(400):
        case = _torch_case(rng, np.float32, "nearest")
        if not _is_the_forwards(case):
            continue
        output, grad_input = _resized(torch, case)
        assert_same_bits(forward(Place(), case), output)
        expected = oracle_backward(case)
        assert_within(backward(Place(), case), expected)
        # PyTorch's sums are in another order, and as long.
        assert (np.abs(in_float64(grad_input) - expected.value) <= 2 * expected.bound(np.float32)).all()


def _has_a_tie(case: ResizeCase) -> bool:
    """Whether an output pixel lies within a rounding or two of a pixel's edge, where formulas may part."""
    scales = case.scales or (0.0,) * len(case.size)
    for input, output, scale in zip(case.input.shape[2:], case.size, scales, strict=True):
        step = 1 / scale if scale > 0 else input / output
        positions = (np.arange(output) + 0.5) * step
        if (np.abs(positions - np.rint(positions)) <= 4 * UNIT_ROUNDOFF["float32"] * (positions + 1)).any():
            return True
    return False


def test_nearest_exact_is_pytorchs_where_no_pixel_is_on_an_edge(torch: Any, rng: np.random.Generator) -> None:
    compared = 0
    for _ in range(400):
        case = _torch_case(rng, np.float32, "nearest-exact")
        if not _has_a_tie(case):
            assert_same_bits(forward(Place(), case), _resized(torch, case)[0])
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_linear_is_pytorchs_within_the_rounding_of_positions(torch: Any, dtype: Any, rng: np.random.Generator) -> None:
    """PyTorch may round a position once more, and it takes a position's whole part in float32: its weights are off by
    at most three roundings of a float32 position of at most the extent, and the weights of a pixel add up to 1."""
    position = {np.float32: 3 * UNIT_ROUNDOFF["float32"], np.float64: UNIT_ROUNDOFF["float32"]}[dtype]
    for _ in range(400):
        case = _torch_case(rng, dtype, "linear")
        output, grad_input = _resized(torch, case)
        ours = forward(Place(), case)
        expected = oracle.interpolate(case.input, case.size, "linear", case.align_corners, case.scales)
        # Each axis moves weight of at most this between two pixels, each at most the largest in magnitude.
        moved = 2 * position * sum(case.input.shape[2:])
        most = np.abs(case.input).max()
        assert (np.abs(in_float64(output) - in_float64(ours)) <= 2 * expected.bound(dtype) + moved * most).all()
        sums = oracle_backward(case)
        # A pixel's terms, each with a weight that is off so much.
        most = np.abs(case.grad_output).max() * sums.terms.max()
        ours = backward(Place(), case)
        assert (np.abs(in_float64(grad_input) - in_float64(ours)) <= 2 * sums.bound(dtype) + moved * most).all()


@ANTIALIASED
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_antialiased_is_pytorchs(torch: Any, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    """Positions and distances are the same formulas, which PyTorch's compilers may contract; weights are polynomials of
    them there, each of few more roundings than in factors."""
    unit = UNIT_ROUNDOFF[np.dtype(dtype).name]
    compared = 0
    for _ in range(250):
        sizes, size = (tuple(int(each) for each in rng.choice([1, 2, 3, 5, 8, 11, 16, 23, 46], 2)) for _ in range(2))
        scales = tuple(float(each) for each in rng.choice([0.3, 0.5, 0.7, 1.5, 2.0, 1.2999], 2))
        by_scale = bool(rng.integers(0, 2))
        if by_scale and any(int(extent * scale) in (0, extent) for extent, scale in zip(sizes, scales, strict=True)):
            continue  # nothing, or extents that PyTorch's forward copies whatever the scale, and its gradient does not
        case = random_case(
            rng, dtype, mode, sizes, None if by_scale else size, scales if by_scale else None, bool(rng.integers(0, 2))
        )
        output, grad_input = _resized(torch, case)
        compared += 1
        ours = forward(Place(), case), backward(Place(), case)
        expected = oracle.interpolate(case.input, case.size, mode, case.align_corners, case.scales)
        sums = oracle_backward(case)
        # A centre of at most the extent and the support may be off by two roundings, a distance by three of at most
        # as much, and the filter's slope is at most 1 for the triangle and 1.4 for the cubic; before the division
        # weights add up to at least about 1/4 of their absolute values' sum where extents and scales agree. A
        # polynomial's roundings are absolute: some 8 of at most 5.
        moved = 4 * 2 * (5 * sum(3 * extent + 4 for extent in case.input.shape[2:]) * 1.4 + 2 * 8 * 5) * unit
        if case.size[1] > 1 or case.size[0] == sizes[0]:
            # PyTorch's forward to one column, in as many rows or more, has its first row in all of them.
            terms = np.abs(in_float64(case.input)).max() * 4
            apart = np.abs(in_float64(output) - in_float64(ours[0]))
            assert (apart <= 2 * expected.bound(dtype) + moved * terms).all()
        most = np.abs(in_float64(case.grad_output)).max() * sums.terms.max()
        apart = np.abs(in_float64(grad_input) - in_float64(ours[1]))
        assert (apart <= 2 * sums.bound(dtype) + moved * most).all()
    assert compared > 100


def test_area_is_pytorchs(torch: Any, rng: np.random.Generator) -> None:
    for rank in (1, 2, 3):
        for _ in range(20):
            sizes, size = (tuple(int(each) for each in rng.integers(1, 12, rank)) for _ in range(2))
            image = torch.from_numpy(normal(rng, (2, 3, *sizes), np.float64)).requires_grad_()
            gradient = normal(rng, (2, 3, *size), np.float64)
            output = torch.nn.functional.interpolate(image, size, mode="area")
            output.backward(torch.from_numpy(gradient))
            ours = pybaracuda.interpolate(image.detach().numpy(), size, mode="area")
            back = pybaracuda.interpolate_backward(gradient, tuple(image.shape), mode="area")
            # A window has at most 12^3 elements, and an element as many windows: that many roundings of the largest.
            for one, other, values in ((output.detach(), ours, image.detach()), (image.grad, back, gradient)):
                bound = 2 * 12**rank * 2.0**-53 * float(abs(values).max()) * (12**rank if values is gradient else 1)
                assert float(abs(one.numpy() - other).max()) <= bound
