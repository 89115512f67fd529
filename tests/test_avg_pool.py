# SPDX-License-Identifier: Apache-2.0
"""avg_pool, adaptive_avg_pool and their gradients against their definitions, the header's order, and PyTorch."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from channels_last import as_volumes
from hypothesis import given
from hypothesis import strategies as st
from lattice import integers, normal
from place import Place, available
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import Sum
from verify.definitions import avg_pool as oracle
from verify.dtypes import DTYPES, Array, bits, coordinate_dtype

NAN, INF = float("nan"), float("inf")


class PoolCase(NamedTuple):
    """A pooling of `axes` axes with its gradient; without a kernel its windows are adaptive, `bins` of them."""

    input: Array
    bins: tuple[int, ...]
    grad_output: Array
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Of the functions for fixed windows."""
        return {
            "kernel_size": self.kernel, "stride": self.stride, "padding": self.padding, "ceil_mode": self.ceil_mode,
            "count_include_pad": self.count_include_pad, "divisor_override": self.divisor_override,
        }  # fmt: skip


def fixed_bins(extent: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> int:
    """How many windows torch has: the last of the rounded up ones begins within the input or its left padding."""
    rest = extent + 2 * padding - kernel
    if rest < 0 and not ceil_mode:
        return 0
    bins = (-(-rest // stride) if ceil_mode else rest // stride) + 1
    return max(bins - (ceil_mode and (bins - 1) * stride >= extent + padding), 0)


def fixed_case(
    rng: np.random.Generator,
    dtype: Any,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    images: tuple[int, ...] = (2, 3),
    make: Any = normal,
    **options: Any,
) -> PoolCase:
    ceil_mode = options.get("ceil_mode", False)
    bins = tuple(fixed_bins(*each, ceil_mode) for each in zip(extents, kernel, stride, padding, strict=True))
    gradient = make(rng, (*images, *bins), dtype)
    return PoolCase(make(rng, (*images, *extents), dtype), bins, gradient, kernel, stride, padding, **options)


def adaptive_case(
    rng: np.random.Generator,
    dtype: Any,
    extents: tuple[int, ...],
    bins: tuple[int, ...],
    images: tuple[int, ...] = (2, 3),
    make: Any = normal,
) -> PoolCase:
    return PoolCase(make(rng, (*images, *extents), dtype), bins, make(rng, (*images, *bins), dtype))


def forward(place: Place, case: PoolCase, input: Any = None) -> Array:
    """The library's output; ``input`` replaces the case's by an equal array of another layout."""
    image = case.input if input is None else input
    outputs = [(case.grad_output.shape, case.input.dtype)]
    if not case.kernel:
        return place.run(pybaracuda.adaptive_avg_pool, image, case.bins, outputs=outputs)[0]
    return place.run(pybaracuda.avg_pool, image, outputs=outputs, **case.options)[0]


def backward(place: Place, case: PoolCase, grad_output: Any = None) -> Array:
    gradient = case.grad_output if grad_output is None else grad_output
    outputs, shape = [(case.input.shape, case.input.dtype)], case.input.shape
    if not case.kernel:
        axes = len(case.bins)
        function = pybaracuda.adaptive_avg_pool_backward
        return place.run(function, gradient, shape, outputs=outputs, axes=axes)[0]
    return place.run(pybaracuda.avg_pool_backward, gradient, shape, outputs=outputs, **case.options)[0]


def axes_of(case: PoolCase) -> oracle.Axes:
    """The definition's windows, on three axes."""
    one = [oracle.Window(range(1), 1)]
    found = []
    for axis, bins in enumerate(case.bins):
        extent = case.input.shape[axis - len(case.bins)]
        if not case.kernel:
            found.append(oracle.adaptive_windows(extent, bins))
            continue
        sizes = case.kernel[axis], case.stride[axis], case.padding[axis]
        found.append(oracle.fixed_windows(extent, bins, *sizes, case.count_include_pad))
    d, h, w = [one] * (3 - len(found)) + found
    return d, h, w


def in_five(array: Array, axes: int) -> Array:
    """As [N, C, D, H, W]."""
    *images, channels = array.shape[: array.ndim - axes]
    count = int(np.prod(images, dtype=np.int64))
    return array.reshape(count, channels, *(1,) * (3 - axes), *array.shape[array.ndim - axes :])


def oracle_forward(case: PoolCase) -> Sum:
    image = in_five(case.input, len(case.bins))
    found = oracle.avg_pool(image, axes_of(case), case.divisor_override or 0)
    return found.map(lambda part: part.reshape(case.grad_output.shape))


def oracle_backward(case: PoolCase) -> Sum:
    axes = len(case.bins)
    gradient, shape = in_five(case.grad_output, axes), in_five(case.input, axes).shape
    found = oracle.avg_pool_backward(gradient, shape, axes_of(case), case.divisor_override or 0)
    return found.map(lambda part: part.reshape(case.input.shape))


def check(place: Place, case: PoolCase) -> tuple[Array, Array]:
    """Both directions are within their bounds; answers the library's results."""
    output, grad_input = forward(place, case), backward(place, case)
    assert_within(output, oracle_forward(case))
    assert_within(grad_input, oracle_backward(case))
    return output, grad_input


FIXED: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((23,), (3,), (2,), (1,)),
    ((9, 14), (3, 2), (2, 1), (1, 1)),
    ((12, 16), (2, 2), (2, 2), (0, 0)),
    ((7, 7), (7, 7), (1, 1), (0, 0)),
    ((5, 6, 9), (3, 3, 3), (2, 2, 2), (1, 1, 1)),
    ((5, 6, 9), (2, 1, 4), (3, 2, 5), (1, 0, 2)),
]
ADAPTIVE: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((23,), (7,)),
    ((9, 14), (3, 7)),
    ((9, 14), (1, 1)),
    ((5, 6), (8, 13)),
    ((5, 6, 9), (2, 4, 7)),
]


@pytest.mark.parametrize("ceil_mode", [False, True], ids=["floor", "ceil"])
@pytest.mark.parametrize("count_include_pad", [False, True], ids=["inner", "padded"])
@pytest.mark.parametrize("divisor_override", [None, 5, -3])
@pytest.mark.parametrize(("extents", "kernel", "stride", "padding"), FIXED)
def test_fixed_windows(
    place: Place,
    dtype: Any,
    rng: np.random.Generator,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> None:
    check(
        place,
        fixed_case(
            rng, dtype, extents, kernel, stride, padding, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
            divisor_override=divisor_override,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("extents", "bins"), ADAPTIVE)
def test_adaptive_windows(
    place: Place, dtype: Any, rng: np.random.Generator, extents: tuple[int, ...], bins: tuple[int, ...]
) -> None:
    check(place, adaptive_case(rng, dtype, extents, bins))


def test_means_are_known(place: Place, dtype: Any) -> None:
    """By hand: what each window counts, and the window that ceil_mode leaves out."""
    image = np.arange(5).reshape(1, 1, 5).astype(dtype)
    place_input = place.array(image)

    def mean(*options: Any) -> list[float]:
        found = place.numpy(pybaracuda.avg_pool(place_input, *options)).astype(np.float64)
        return list(found.ravel())

    assert mean(2) == [0.5, 2.5]
    assert mean(2, 2, 0, True) == [0.5, 2.5, 4.0]
    # 0, (0 + 1), then (1 + 2) and so on, over two places whether padded or not.
    assert mean(2, 1, 1) == [0.0, 0.5, 1.5, 2.5, 3.5, 2.0]
    assert mean(2, 1, 1, False, False) == [0.0, 0.5, 1.5, 2.5, 3.5, 4.0]
    assert mean(2, 1, 1, False, False, 4) == [0.0, 0.25, 0.75, 1.25, 1.75, 1.0]
    # Five places padded to seven: windows from -1, 2 and 5, the last of which begins behind the input.
    assert mean(2, 3, 1, True) == [0.0, 2.5]
    adaptive = pybaracuda.adaptive_avg_pool(place_input, 2)
    # [0, 3) and [2, 5).
    assert_same_bits(place.numpy(adaptive), np.array([[[1.0, 3.0]]]).astype(dtype))


def test_backward_is_the_exact_adjoint(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    # Small integers, and divisors that are powers of two: every sum is exact in 8 bits.
    cases = [
        fixed_case(rng, dtype, (6, 9), (2, 2), (1, 2), (1, 0), (1, 1), integers),
        fixed_case(rng, dtype, (4, 4, 6), (2, 2, 2), (2, 2, 1), (0, 0, 1), (1, 1), integers, divisor_override=8),
        adaptive_case(rng, dtype, (8, 4), (4, 8), (1, 1), integers),
    ]
    for case in cases:
        output, grad_input = check(place, case)
        assert_exact(output, oracle_forward(case))
        assert_exact(grad_input, oracle_backward(case))
        in_output = np.sum(output.astype(np.float64) * case.grad_output.astype(np.float64))
        in_input = np.sum(case.input.astype(np.float64) * grad_input.astype(np.float64))
        assert in_output == in_input


def total(terms: list[Any], compute: Any) -> Any:
    """A list as the header adds it: in partial sums of 256."""
    result = compute(0)
    for first in range(0, len(terms), 256):
        partial = compute(0)
        for term in terms[first : first + 256]:
            partial = compute(partial + term)
        result = compute(result + partial)
    return result


def in_order(terms: Array, compute: Any) -> Any:
    """The sum of a box [D, H, W] as the header adds it."""
    columns = [
        total([total(list(terms[:, h, w]), compute) for h in range(terms.shape[1])], compute)
        for w in range(terms.shape[2])
    ]
    return total(columns, compute)


@pytest.mark.parametrize(
    ("extents", "kernel", "stride"),
    [((4, 5, 9), (3, 2, 4), (1, 2, 3)), ((1, 1, 1400), (1, 1, 600), (1, 1, 7)), ((1, 300, 3), (1, 290, 2), (1, 1, 1)),
     ((280, 1, 3), (270, 1, 2), (1, 1, 1)), ((1, 2, 5000), (1, 2, 4999), (1, 1, 1)),
     ((21, 25, 264), (3, 3, 3), (2, 2, 2))],
)  # fmt: skip
def test_sums_are_the_headers_to_the_bit(
    place: Place, dtype: Any, rng: np.random.Generator, extents: Any, kernel: Any, stride: Any
) -> None:
    case = fixed_case(rng, dtype, extents, kernel, stride, (0, 0, 0), (1, 1))
    compute = coordinate_dtype(dtype).type
    divisor = compute(np.prod(kernel))
    image, gradient = case.input[0, 0].astype(compute), case.grad_output[0, 0].astype(compute) / divisor
    output, grad_input = forward(place, case), backward(place, case)
    for o in np.ndindex(case.bins) if np.prod(case.bins) < 40 else [(0, 0, 0), (0, 0, 1), case.bins]:
        at = tuple(min(each, bins - 1) for each, bins in zip(o, case.bins, strict=True))
        box = tuple(slice(i * s, i * s + k) for i, s, k in zip(at, stride, kernel, strict=True))
        expected = np.array(in_order(image[box], compute) / divisor).astype(dtype)
        assert_same_bits(output[0, 0][at].reshape(1), expected.reshape(1))
    for i in [tuple(rng.integers(0, extents)) for _ in range(12)]:
        ranges = [
            slice(max(0, -((k - 1 - at) // s)), min(at // s + 1, bins))
            for at, s, k, bins in zip(i, stride, kernel, case.bins, strict=True)
        ]
        expected = np.array(in_order(gradient[tuple(ranges)], compute)).astype(dtype)
        assert_same_bits(grad_input[0, 0][i].reshape(1), expected.reshape(1))


def test_numbers_that_are_none_pass_through(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = fixed_case(rng, dtype, (9, 14), (3, 2), (2, 1), (1, 1))
    payload = np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)[0]
    for array in (case.input, case.grad_output):
        array.reshape(-1)[::17] = dtype.type(INF)
        array.reshape(-1)[::23] = dtype.type(-INF)
        array.reshape(-1)[::29] = payload
    for found in check(place, case):
        assert_canonical_nans(found)
        values = found.astype(np.float64)
        for kind in (np.isnan, np.isinf, np.isfinite):
            assert kind(values).any()


def test_subnormal_numbers_are_kept(place: Place, dtype: Any) -> None:
    tiny = bits(np.zeros(4, dtype))
    tiny[:] = [1, 2, 3, 6]
    case = PoolCase(
        tiny.view(dtype).reshape(1, 1, 4), (2,), tiny[:2].view(dtype).reshape(1, 1, 2), (2,), (2,), (0,),
        divisor_override=1,
    )  # fmt: skip
    assert bits(forward(place, case)).ravel().tolist() == [3, 9]
    assert bits(backward(place, case)).ravel().tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("shape", "kernel"), [((0, 3, 5), 2), ((2, 0, 5), 2), ((2, 3, 0), 2), ((2, 3, 2), 3), ((2, 0, 0), 1)],
    ids=["no-images", "no-channels", "no-elements", "larger-window", "nothing"],
)  # fmt: skip
def test_empty_problems(place: Place, dtype: Any, shape: tuple[int, int, int], kernel: int) -> None:
    image = np.ones(shape, dtype)
    bins = fixed_bins(shape[2], kernel, 1, 0, False)
    case = PoolCase(image, (bins,), np.ones((*shape[:2], bins), dtype), (kernel,), (1,), (0,))
    assert_same_bits(forward(place, case), np.ones(case.grad_output.shape, dtype))
    assert_same_bits(backward(place, case), np.zeros(shape, dtype))
    for number in (0, 3):
        adaptive = PoolCase(image, (number,), np.ones((*shape[:2], number), dtype))
        output = forward(place, adaptive)
        assert_same_bits(output, np.full(output.shape, float(shape[2] > 0)).astype(dtype))
        check(place, adaptive)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 127, 129, 2047, 2048, 2049, 4100])
def test_sizes_around_every_threshold(place: Place, dtype: Any, rng: np.random.Generator, width: int) -> None:
    """Vectors, warps and tiles of columns, and the rows of sums that the CPU keeps."""
    check(place, fixed_case(rng, dtype, (3, width), (2, 3), (1, 2), (1, 1), (1, 2)))
    check(place, fixed_case(rng, dtype, (3, width), (2, 2), (2, 2), (0, 0), (1, 2), ceil_mode=True))
    check(place, adaptive_case(rng, dtype, (3, width), (2, max(width // 3, 1)), (1, 2)))
    check(place, adaptive_case(rng, dtype, (3, width), (2, width + 3), (1, 1)))


@pytest.mark.parametrize("width", [4, 16, 40, 1032, 2056])
def test_strips_of_rows(place: Place, dtype: Any, rng: np.random.Generator, width: int) -> None:
    """Rows of whole vectors of 16 bytes, in every alignment of windows, with divisors that do and do not differ."""
    for kernel, stride, padding in ((2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0), (9, 1, 4)):
        axes = (kernel,) * 2, (stride,) * 2, (padding,) * 2
        check(place, fixed_case(rng, dtype, (5, width), *axes, (1, 2), ceil_mode=True))
    check(place, fixed_case(rng, dtype, (5, width), (3, 3), (2, 2), (1, 1), (1, 2), count_include_pad=False))
    for bins in (1, 3, width // 2 + 1, width, width + 1):
        check(place, adaptive_case(rng, dtype, (3, width), (2, bins), (1, 2)))


def test_several_rows_of_strips(place: Place, rng: np.random.Generator) -> None:
    """So many rows that a thread has several and shares what they have in common: the bits of two smaller calls."""
    case = fixed_case(rng, np.float32, (1637, 32), (3, 3), (2, 2), (1, 1), (64,), count_include_pad=False)
    grad_input = backward(place, case)
    for part in (slice(32), slice(32, None)):
        alone = case._replace(input=case.input[part], grad_output=case.grad_output[part])
        assert_same_bits(grad_input[part], backward(place, alone))


@pytest.mark.parametrize("extents", [(3, 3, 16), (6, 9, 24), (5, 8, 64)])
def test_volumes_of_strips(place: Place, dtype: Any, rng: np.random.Generator, extents: tuple[int, int, int]) -> None:
    for kernel, stride, padding in ((2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1)):
        check(place, fixed_case(rng, dtype, extents, (kernel,) * 3, (stride,) * 3, (padding,) * 3))
    check(place, adaptive_case(rng, dtype, extents, (2, 2, 7)))
    check(place, adaptive_case(rng, dtype, extents, (1, 1, 1)))


@pytest.mark.parametrize("extents", [(1, 5, 4), (1, 41, 260), (4, 9, 264), (5, 40, 28)])
def test_halving_windows(place: Place, dtype: Any, rng: np.random.Generator, extents: tuple[int, int, int]) -> None:
    """Windows of three elements at every second one, in one and in several tiles, along d those or single ones."""
    for kernel, stride in (((3, 3, 3), (2, 2, 2)), ((1, 3, 3), (1, 2, 2))):
        for padding in ((0, 0, 1), (kernel[0] // 2, 1, 0)):
            if extents[0] + 2 * padding[0] < kernel[0]:
                continue
            check(place, fixed_case(rng, dtype, extents, kernel, stride, padding, (1, 2), ceil_mode=True))
            options: dict[str, Any] = {"count_include_pad": False, "divisor_override": -7 if padding[2] else None}
            check(place, fixed_case(rng, dtype, extents, kernel, stride, padding, (1, 2), **options))


@pytest.mark.parametrize("extents", [(1, 16, 8), (1, 300, 16), (9, 40, 24), (2, 33, 520)])
def test_equal_rows(place: Place, dtype: Any, rng: np.random.Generator, extents: tuple[int, int, int]) -> None:
    """Windows so far apart that rows repeat, in one and in several tiles, with and without overlaps."""
    for bins in ((1, 2, 2), (2, 5, 7), (2, 3, 1)):
        check(place, adaptive_case(rng, dtype, extents, bins, (1, 2)))
    kernel, stride = (2, 9, 3), (2, 8, 2)
    check(place, fixed_case(rng, dtype, extents, kernel, stride, (1, 4, 1), (1, 2), count_include_pad=False))


@pytest.mark.parametrize("rows", [7, 8, 33, 64])
def test_tall_windows(place: Place, dtype: Any, rng: np.random.Generator, rows: int) -> None:
    """Windows whose rows a block shares, from 8 rows on, up to what shared memory holds; more planes than one."""
    check(place, adaptive_case(rng, dtype, (rows, 128), (1, 7)))
    check(place, adaptive_case(rng, dtype, (2 * rows, 48), (3, 1)))
    check(place, fixed_case(rng, dtype, (rows, 16), (rows, 5), (3, 3), (rows // 2, 2), count_include_pad=False))
    check(place, adaptive_case(rng, dtype, (4, rows, 16), (2, 2, 3)))


@pytest.mark.parametrize("numel", [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 49])
def test_planes_of_one_window(place: Place, dtype: Any, rng: np.random.Generator, numel: int) -> None:
    """Planes shorter and longer than 16 bytes, which begin anywhere in them."""
    for planes in (1, 2, 3, 300):
        check(place, adaptive_case(rng, dtype, (1, numel), (1, 1), (planes,)))
    check(place, fixed_case(rng, dtype, (numel,), (numel + 2,), (1,), (1,), divisor_override=None))


@pytest.mark.parametrize("divisor", [3, 7, 27, 4095, 4096, 4097, 2**24 + 1])
def test_quotients_of_every_size(place: Place, dtype: Any, rng: np.random.Generator, divisor: int) -> None:
    """Division by a number that all windows share has the quotient's bits, of tiny and of infinite terms, too."""
    with np.errstate(over="ignore"):
        gradient = np.ldexp(rng.standard_normal((1, 64, 8)), rng.integers(-152, 129, (64, 8))).astype(dtype)
        compute = coordinate_dtype(dtype).type
        # As a sum of one term, which is never -0.
        expected = (gradient.astype(compute) / compute(divisor) + compute(0)).astype(dtype)
    case = PoolCase(np.zeros((1, 64, 16), dtype), (64, 8), gradient, (1, 2), (1, 2), (0, 0), divisor_override=divisor)
    assert_same_bits(backward(place, case), np.repeat(expected, 2, axis=2))


def test_images_need_not_be_there(place: Place, rng: np.random.Generator) -> None:
    case = fixed_case(rng, np.float32, (9, 14), (3, 2), (2, 1), (1, 1), (5,))
    output, grad_input = check(place, case)
    several = case._replace(input=case.input[None, None], grad_output=case.grad_output[None, None])
    assert_same_bits(forward(place, several)[0, 0], output)
    assert_same_bits(backward(place, several)[0, 0], grad_input)


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = fixed_case(rng, dtype, (9, 14), (3, 2), (2, 1), (1, 1))
    output, grad_input = check(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(forward(place, case, layout(case.input)), output)
        assert_same_bits(backward(place, case, layout(case.grad_output)), grad_input)


@pytest.mark.parametrize("channels", [1, 5, 16, 40])
@pytest.mark.parametrize("is_adaptive", [False, True])
def test_channels_as_a_third_axis_change_no_bits(
    place: Place, dtype: Any, rng: np.random.Generator, is_adaptive: bool, channels: int
) -> None:
    """What lets PyTorch's images with channels last be pooled where they lie."""
    images = (2, channels)
    if is_adaptive:
        case = adaptive_case(rng, dtype, (19, 33), (4, 7), images)
    else:
        options = {"count_include_pad": False, "ceil_mode": True}
        case = fixed_case(rng, dtype, (19, 33), (3, 3), (2, 2), (1, 1), images, **options)
    infinite = np.where(rng.random(case.input.shape) < 1 / 50, INF, case.input.astype(np.float64))
    case = case._replace(input=infinite.astype(dtype))
    volumes = case._replace(
        input=as_volumes(case.input),
        grad_output=as_volumes(case.grad_output),
        bins=(*case.bins, channels),
        kernel=(*case.kernel, 1) if case.kernel else (),
        stride=(*case.stride, 1) if case.kernel else (),
        padding=(*case.padding, 0) if case.kernel else (),
    )
    assert_same_bits(forward(place, volumes), as_volumes(forward(place, case)))
    assert_same_bits(backward(place, volumes), as_volumes(backward(place, case)))


def test_large_batch(place: Place, rng: np.random.Generator) -> None:
    """More planes than a launch grid has in its second and third dimension: the bits of two smaller calls."""
    case = fixed_case(rng, np.float32, (3, 4), (2, 2), (1, 1), (0, 0), (65_537, 2))
    output, grad_input = check(place, case)
    for part in (slice(40_000), slice(40_000, None)):
        alone = case._replace(input=case.input[part], grad_output=case.grad_output[part])
        assert_same_bits(output[part], forward(place, alone))
        assert_same_bits(grad_input[part], backward(place, alone))


EXTENT = st.integers(0, 12)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    sizes=st.lists(
        st.tuples(EXTENT, st.integers(1, 6), st.integers(1, 5), st.integers(0, 3), st.integers(0, 14)),
        min_size=1, max_size=3,
    ),
    images=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    ceil_mode=st.booleans(),
    count_include_pad=st.booleans(),
    divisor_override=st.sampled_from([None, None, 1, -7, 2**40]),
)  # fmt: skip
def test_any_windows(
    seed: int,
    name: str,
    sizes: list[tuple[int, int, int, int, int]],
    images: tuple[int, int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    extents, kernel, stride, padding, bins = (tuple(each) for each in zip(*sizes, strict=True))
    padding = tuple(min(p, k // 2) for p, k in zip(padding, kernel, strict=True))
    case = fixed_case(
        rng, dtype, extents, kernel, stride, padding, images, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, divisor_override=divisor_override,
    )  # fmt: skip
    check(Place(), case)
    check(Place(), adaptive_case(rng, dtype, extents, bins, images))


ENVIRONMENTS = [
    {"BARACUDA_NUM_THREADS": threads, "BARACUDA_CPU_ISA": isa}
    for threads, isa in (("1", "portable"), ("3", "portable"), ("2", "avx2"), ("5", "avx512"))
]
HASHES = """
import hashlib
import numpy as np
import pybaracuda
from verify.dtypes import DTYPES
digest = hashlib.sha256()
rng = np.random.default_rng(7)
for dtype in DTYPES.values():
    image = rng.standard_normal((2, 40, 30, 144)).astype(dtype)
    output = pybaracuda.avg_pool(image, (3, 5), 2, (1, 2), count_include_pad=False)
    adaptive = pybaracuda.adaptive_avg_pool(image, (7, 50))
    for each in (
        output, pybaracuda.avg_pool_backward(output, image.shape, (3, 5), 2, (1, 2), count_include_pad=False),
        adaptive, pybaracuda.adaptive_avg_pool_backward(adaptive, image.shape),
    ):
        digest.update(each.tobytes())
print(digest.hexdigest())
"""


def test_threads_and_instruction_sets_do_not_change_bits() -> None:
    found = set()
    for variables in ENVIRONMENTS:
        environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", HASHES]
        found.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1


def torch_results(case: PoolCase) -> tuple[Array, Array] | None:
    """PyTorch's output and gradient on the host; None where it refuses the problem."""
    torch = importlib.import_module("torch")
    axes = len(case.bins)
    image = torch.from_numpy(case.input).requires_grad_()
    if not case.kernel:
        output = getattr(torch.nn.functional, f"adaptive_avg_pool{axes}d")(image, case.bins)
    else:
        options = dict(case.options)
        if axes == 1:
            del options["divisor_override"]
        try:
            output = getattr(torch.nn.functional, f"avg_pool{axes}d")(image, **options)
        except RuntimeError:
            return None
    (gradient,) = torch.autograd.grad(output, image, torch.from_numpy(case.grad_output))
    return output.detach().numpy(), gradient.numpy()


# Without PyTorch there is no such comparison.
if available("torch"):

    @pytest.mark.parametrize("name", ["f32", "f64"])
    def test_pytorch_agrees_on_the_host(rng: np.random.Generator, name: str) -> None:
        compared = 0
        for _ in range(300):
            axes = int(rng.integers(1, 4))
            extents = tuple(int(n) for n in rng.integers(1, (40, 14, 9)[axes - 1], axes))
            kernel = tuple(int(k) for k in rng.integers(1, 6, axes))
            stride = tuple(int(s) for s in rng.integers(1, 7, axes))
            padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
            case = fixed_case(
                rng, DTYPES[name], extents, kernel, stride, padding, ceil_mode=bool(rng.integers(2)),
                count_include_pad=bool(rng.integers(2)),
                divisor_override=[None, 3, -2][rng.integers(3)] if axes > 1 else None,
            )  # fmt: skip
            bins = tuple(int(b) for b in rng.integers(1, 12, axes))
            for each in (case, adaptive_case(rng, DTYPES[name], extents, bins)):
                theirs = torch_results(each)
                if theirs is None:
                    continue
                compared += 1
                assert_within(theirs[0], oracle_forward(each))
                assert_within(theirs[1], oracle_backward(each))
                check(Place(), each)
        assert compared > 400
