# SPDX-License-Identifier: Apache-2.0
"""max_pool, adaptive_max_pool and their gradients: maxima to the bit, sums within their bound, and PyTorch beside."""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import any_bits, integers, normal
from place import Place, available
from pool_gradients import indices_in_windows, sums_in_order
from tolerance import assert_canonical_nans, assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.bounds import Sum
from verify.definitions import max_pool as oracle
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
    dilation: tuple[int, ...] = ()
    ceil_mode: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Of the functions for fixed windows."""
        return {
            "kernel_size": self.kernel, "stride": self.stride, "padding": self.padding, "dilation": self.dilation,
            "ceil_mode": self.ceil_mode,
        }  # fmt: skip


def fixed_bins(extent: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """How many windows torch has: the last of the rounded up ones begins within the input or its left padding."""
    rest = extent + 2 * padding - (kernel - 1) * dilation - 1
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
    dilation: tuple[int, ...] = (),
    images: tuple[int, ...] = (2, 3),
    make: Any = normal,
    ceil_mode: bool = False,
) -> PoolCase:
    gaps = dilation or (1,) * len(extents)
    sizes = zip(extents, kernel, stride, padding, gaps, strict=True)
    bins = tuple(fixed_bins(*each, ceil_mode) for each in sizes)
    gradient = make(rng, (*images, *bins), dtype)
    return PoolCase(make(rng, (*images, *extents), dtype), bins, gradient, kernel, stride, padding, gaps, ceil_mode)


def adaptive_case(
    rng: np.random.Generator,
    dtype: Any,
    extents: tuple[int, ...],
    bins: tuple[int, ...],
    images: tuple[int, ...] = (2, 3),
    make: Any = normal,
) -> PoolCase:
    return PoolCase(make(rng, (*images, *extents), dtype), bins, make(rng, (*images, *bins), dtype))


def forward(place: Place, case: PoolCase, input: Any = None) -> tuple[Array, Array]:
    """The library's output and indices; ``input`` replaces the case's by an equal array of another layout."""
    image = case.input if input is None else input
    outputs = [(case.grad_output.shape, case.input.dtype), (case.grad_output.shape, np.int64)]
    if not case.kernel:
        function = pybaracuda.adaptive_max_pool
        output, indices = place.run(function, image, case.bins, outputs=outputs, return_indices=True)
    else:
        function = pybaracuda.max_pool
        output, indices = place.run(function, image, outputs=outputs, return_indices=True, **case.options)
    return output, indices


def backward(place: Place, case: PoolCase, indices: Any, grad_output: Any = None) -> Array:
    gradient = case.grad_output if grad_output is None else grad_output
    outputs, shape = [(case.input.shape, case.input.dtype)], case.input.shape
    if not case.kernel:
        function, axes = pybaracuda.adaptive_max_pool_backward, len(case.bins)
        return place.run(function, gradient, indices, shape, outputs=outputs, axes=axes)[0]
    return place.run(pybaracuda.max_pool_backward, gradient, indices, shape, outputs=outputs, **case.options)[0]


def axes_of(case: PoolCase) -> oracle.Axes:
    """The definition's windows, on three axes."""
    found = []
    for axis, bins in enumerate(case.bins):
        extent = case.input.shape[axis - len(case.bins)]
        if not case.kernel:
            found.append(oracle.adaptive_windows(extent, bins))
            continue
        sizes = case.kernel[axis], case.stride[axis], case.padding[axis], case.dilation[axis]
        found.append(oracle.fixed_windows(extent, bins, *sizes))
    d, h, w = [[range(1)]] * (3 - len(found)) + found
    return d, h, w


def in_five(array: Array, axes: int) -> Array:
    """As [N, C, D, H, W]."""
    *images, channels = array.shape[: array.ndim - axes]
    count = int(np.prod(images, dtype=np.int64))
    return array.reshape(count, channels, *(1,) * (3 - axes), *array.shape[array.ndim - axes :])


def oracle_forward(case: PoolCase) -> tuple[Array, Array]:
    output, indices = oracle.max_pool(in_five(case.input, len(case.bins)), axes_of(case))
    return output.reshape(case.grad_output.shape), indices.reshape(case.grad_output.shape)


def oracle_backward(case: PoolCase, indices: Array) -> Sum:
    axes = len(case.bins)
    gradient, named = in_five(case.grad_output, axes), in_five(indices, axes)
    found = oracle.max_pool_backward(gradient, named, in_five(case.input, axes).shape, axes_of(case))
    return found.map(lambda part: part.reshape(case.input.shape))


def check(place: Place, case: PoolCase) -> tuple[Array, Array, Array]:
    """The forward is the definition's to the bit, the backward within its bound; answers the library's results."""
    output, indices = forward(place, case)
    expected, named = oracle_forward(case)
    assert_same_bits(indices, named)
    assert_same_bits(output, expected)
    grad_input = backward(place, case, indices)
    assert_within(grad_input, oracle_backward(case, indices))
    return output, indices, grad_input


FIXED: list[tuple[tuple[int, ...], ...]] = [
    ((23,), (3,), (2,), (1,), (1,)),
    ((9, 14), (3, 2), (2, 1), (1, 1), (1, 1)),
    ((12, 16), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((9, 14), (3, 2), (1, 2), (2, 1), (2, 3)),
    ((5, 6, 9), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1)),
    ((5, 6, 9), (2, 1, 4), (3, 2, 5), (1, 0, 2), (2, 1, 2)),
    ((1, 2, 9), (2, 2, 2), (1, 1, 1), (2, 1, 1), (3, 2, 1)),  # windows without elements
]
ADAPTIVE: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((23,), (7,)),
    ((9, 14), (3, 7)),
    ((9, 14), (1, 1)),
    ((5, 6), (8, 13)),
    ((5, 6, 9), (2, 4, 7)),
]


@pytest.mark.parametrize("ceil_mode", [False, True], ids=["floor", "ceil"])
@pytest.mark.parametrize("sizes", FIXED)
def test_fixed_windows(
    place: Place, dtype: Any, rng: np.random.Generator, sizes: tuple[tuple[int, ...], ...], ceil_mode: bool
) -> None:
    extents, kernel, stride, padding, dilation = sizes
    check(place, fixed_case(rng, dtype, extents, kernel, stride, padding, dilation, ceil_mode=ceil_mode))


@pytest.mark.parametrize(("extents", "bins"), ADAPTIVE)
def test_adaptive_windows(
    place: Place, dtype: Any, rng: np.random.Generator, extents: tuple[int, ...], bins: tuple[int, ...]
) -> None:
    check(place, adaptive_case(rng, dtype, extents, bins))


def test_maxima_are_known(place: Place, dtype: Any) -> None:
    """By hand: the window that ceil_mode leaves out, places with gaps between them, ties and NaNs."""
    image = np.array([[[3, 1, 3, 5, 2]]]).astype(dtype)

    def found(*options: Any, values: Array = image) -> list[list[float]]:
        answer = pybaracuda.max_pool(place.array(values), *options, return_indices=True)
        return [list(place.numpy(each).astype(np.float64).ravel()) for each in answer]

    assert found(2) == [[3, 5], [0, 3]]
    assert found(2, 2, 0, 1, True) == [[3, 5, 2], [0, 3, 4]]
    assert found(3, 1) == [[3, 5, 5], [0, 3, 3]]
    assert found(2, 1, 0, 2) == [[3, 5, 3], [0, 3, 2]]
    # Five places padded to seven: windows from -1, 2 and 5, the last of which begins behind the input.
    assert found(2, 3, 1, 1, True) == [[3, 5], [0, 3]]
    nans = np.array([[[NAN, 9, NAN, 5, 2]]]).astype(dtype)
    assert found(3, 2, values=nans)[1] == [2, 2]
    adaptive = pybaracuda.adaptive_max_pool(place.array(image), 2, True)
    assert [list(place.numpy(each).astype(np.float64).ravel()) for each in adaptive] == [[3, 5], [0, 3]]


def test_backward_is_the_exact_adjoint(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    # Small integers: every sum is exact in 8 bits.
    for case in (
        fixed_case(rng, dtype, (6, 9), (3, 2), (1, 2), (1, 0), images=(1, 1), make=integers),
        adaptive_case(rng, dtype, (8, 4), (4, 7), (1, 1), integers),
    ):
        output, indices, grad_input = check(place, case)
        assert_exact(grad_input, oracle_backward(case, indices))
        in_output = np.sum(output.astype(np.float64) * case.grad_output.astype(np.float64))
        in_input = np.sum(case.input.astype(np.float64) * grad_input.astype(np.float64))
        assert in_output == in_input


def test_sums_are_the_headers_to_the_bit(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    """Whatever indices name within their windows: windows ascending in row-major order."""
    case = fixed_case(rng, dtype, (3, 5, 6), (2, 3, 4), (1, 1, 1), (1, 1, 2), images=(1, 2))
    compute = coordinate_dtype(dtype).type
    axes = axes_of(case)
    indices = np.zeros(case.grad_output.shape, np.int64)
    sums = np.zeros(case.input.shape, compute).reshape(2, -1)
    for plane in range(2):
        for o in np.ndindex(*case.bins):
            d, h, w = (int(rng.choice(list(axis[i]))) for axis, i in zip(axes, o, strict=True))
            index = (d * 5 + h) * 6 + w
            indices[0, plane][o] = index
            sums[plane, index] = compute(sums[plane, index] + compute(case.grad_output[0, plane][o]))
    assert_same_bits(backward(place, case, indices), sums.reshape(case.input.shape).astype(dtype))


@pytest.mark.parametrize("extents", [(1, 1, 2100), (1, 70, 65), (7, 30, 530)])
def test_sums_of_several_tiles_are_the_headers_to_the_bit(
    place: Place, dtype: Any, rng: np.random.Generator, extents: tuple[int, int, int]
) -> None:
    """Of planes that a block has a part of, and windows that name elements of its neighbours."""
    case = fixed_case(rng, dtype, extents, (3, 3, 3), (2, 2, 2), (1, 1, 1), images=(1, 2))
    indices = indices_in_windows(axes_of(case), extents, case.grad_output.shape, rng)
    sums = sums_in_order(indices, case.grad_output, math.prod(extents), coordinate_dtype(dtype).type)
    assert_same_bits(backward(place, case, indices), sums.reshape(case.input.shape).astype(dtype))


def test_bad_indices_contribute_nothing(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = fixed_case(rng, dtype, (4, 5, 8), (2, 3, 2), (2, 1, 2), (1, 1, 0))
    good = forward(place, case)[1]
    indices = rng.integers(-2, 162, good.shape)
    for position, bad in enumerate([160, -1, 2**63 - 1, -(2**63), 2**32, -160]):
        indices.reshape(-1)[position :: 17 + position] = bad
    indices = np.where(rng.random(good.shape) < 0.5, good, indices)
    grad_input = backward(place, case, indices)
    assert_within(grad_input, oracle_backward(case, indices))
    # What nobody takes is never read into a sum.
    taken = oracle_backward(case._replace(grad_output=np.ones_like(case.grad_output)), indices).value.sum()
    assert 0 < taken < indices.size


def test_bits_are_moved(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    for extents, kernel in (((9, 14), (2, 3)), ((4, 40), (1, 1))):
        case = fixed_case(rng, dtype, extents, kernel, (1, 1), (0, 0), make=any_bits)
        output, indices = forward(place, case)
        expected, named = oracle_forward(case)
        assert_same_bits(indices, named)
        assert_same_bits(output, expected)
        assert_same_bits(forward(place, adaptive_case(rng, dtype, extents, extents)._replace(input=case.input))[0],
                         case.input)  # fmt: skip
    few = rng.choice([-1.0, -0.0, 0.0], (2, 3, 9, 14)).astype(dtype)
    check(place, fixed_case(rng, dtype, (9, 14), (3, 2), (1, 1), (1, 1))._replace(input=few))
    check(place, fixed_case(rng, dtype, (9, 14), (3, 2), (1, 1), (1, 1))._replace(input=np.full_like(few, -INF)))


def test_gradients_that_are_no_numbers(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = fixed_case(rng, dtype, (9, 14), (3, 2), (2, 1), (1, 1))
    payload = np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)[0]
    case.grad_output.reshape(-1)[::7] = dtype.type(INF)
    case.grad_output.reshape(-1)[::11] = dtype.type(-INF)
    case.grad_output.reshape(-1)[::13] = payload
    grad_input = check(place, case)[2]
    assert_canonical_nans(grad_input)
    values = grad_input.astype(np.float64)
    for kind in (np.isnan, np.isinf, np.isfinite):
        assert kind(values).any()


def test_subnormal_numbers_are_kept(place: Place, dtype: Any) -> None:
    tiny = bits(np.zeros(4, dtype))
    tiny[:] = [1, 2, 3, 6]
    case = PoolCase(
        tiny.view(dtype).reshape(1, 1, 4), (3,), tiny[:3].view(dtype).reshape(1, 1, 3), (2,), (1,), (0,), (1,)
    )
    assert bits(forward(place, case)[0]).ravel().tolist() == [2, 3, 6]
    assert bits(backward(place, case, np.array([[[1, 1, 3]]]))).ravel().tolist() == [0, 3, 0, 3]


@pytest.mark.parametrize(
    ("shape", "kernel"), [((0, 3, 5), 2), ((2, 0, 5), 2), ((2, 3, 0), 2), ((2, 3, 2), 3), ((2, 0, 0), 1)],
    ids=["no-images", "no-channels", "no-elements", "larger-window", "nothing"],
)  # fmt: skip
def test_empty_problems(place: Place, dtype: Any, shape: tuple[int, int, int], kernel: int) -> None:
    image = np.ones(shape, dtype)
    bins = fixed_bins(shape[2], kernel, 1, 0, 1, False)
    case = PoolCase(image, (bins,), np.ones((*shape[:2], bins), dtype), (kernel,), (1,), (0,), (1,))
    check(place, case)
    for number in (0, 3):
        check(place, PoolCase(image, (number,), np.ones((*shape[:2], number), dtype)))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 127, 129, 2047, 2048, 2049, 4100])
def test_sizes_around_every_threshold(place: Place, dtype: Any, rng: np.random.Generator, width: int) -> None:
    """Vectors, warps and blocks, and the windows that the CPU keeps at a time."""
    check(place, fixed_case(rng, dtype, (3, width), (2, 3), (1, 2), (1, 1), images=(1, 2)))
    check(place, fixed_case(rng, dtype, (3, width), (2, 2), (2, 1), (1, 1), images=(1, 1), ceil_mode=True))
    check(place, adaptive_case(rng, dtype, (3, width), (2, max(width // 3, 1)), (1, 2)))
    check(place, adaptive_case(rng, dtype, (3, width), (2, width + 3), (1, 1)))


@pytest.mark.parametrize("width", [4, 16, 40, 1032, 2056])
def test_strips_of_rows(place: Place, dtype: Any, rng: np.random.Generator, width: int) -> None:
    """Rows of whole vectors of 16 bytes, in every alignment of windows, with and without dilation."""
    for kernel, stride, padding in ((2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0), (9, 1, 4)):
        axes = (kernel,) * 2, (stride,) * 2, (padding,) * 2
        check(place, fixed_case(rng, dtype, (5, width), *axes, images=(1, 2), ceil_mode=True))
    check(place, fixed_case(rng, dtype, (5, width), (2, 3), (2, 2), (1, 0), (2, 2), images=(1, 2), ceil_mode=True))
    for bins in (1, 3, width // 2 + 1, width, width + 1):
        check(place, adaptive_case(rng, dtype, (3, width), (2, bins), (1, 2)))


def test_several_rows_of_strips(place: Place, rng: np.random.Generator) -> None:
    """So many rows that a thread has several of them: the bits of two smaller calls."""
    case = fixed_case(rng, np.float32, (1637, 32), (3, 3), (2, 2), (1, 1), images=(64,))
    output, indices = forward(place, case)
    grad_input = backward(place, case, indices)
    for part in (slice(32), slice(32, None)):
        alone = case._replace(input=case.input[part], grad_output=case.grad_output[part])
        found, named = forward(place, alone)
        assert_same_bits(output[part], found)
        assert_same_bits(indices[part], named)
        assert_same_bits(grad_input[part], backward(place, alone, named))


@pytest.mark.parametrize("extents", [(3, 3, 16), (6, 9, 24), (5, 8, 64)])
def test_volumes_of_strips(place: Place, dtype: Any, rng: np.random.Generator, extents: tuple[int, int, int]) -> None:
    for kernel, stride, padding in ((2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1)):
        check(place, fixed_case(rng, dtype, extents, (kernel,) * 3, (stride,) * 3, (padding,) * 3))
    check(place, adaptive_case(rng, dtype, extents, (2, 2, 7)))
    check(place, adaptive_case(rng, dtype, extents, (1, 1, 1)))


@pytest.mark.parametrize("rows", [7, 8, 33, 64])
def test_tall_windows(place: Place, dtype: Any, rng: np.random.Generator, rows: int) -> None:
    """Windows whose rows a block shares, with ties and NaNs in any of them, whose order their indices decide."""

    def few_values(rng: np.random.Generator, shape: Any, dtype: Any) -> Array:
        values = np.array([-np.inf, -1, -0.0, 0.0, 1, np.nan])
        return values[rng.choice(6, shape, p=[0.1, 0.3, 0.2, 0.2, 0.19, 0.01])].astype(dtype)

    for make in (normal, few_values):
        check(place, adaptive_case(rng, dtype, (rows, 128), (1, 7), make=make))
        check(place, adaptive_case(rng, dtype, (2 * rows, 48), (3, 1), make=make))
        check(place, fixed_case(rng, dtype, (rows, 16), (rows, 5), (3, 3), (rows // 2, 2), make=make))
        check(place, adaptive_case(rng, dtype, (4, rows, 16), (2, 2, 3), make=make))


def test_images_need_not_be_there(place: Place, rng: np.random.Generator) -> None:
    case = fixed_case(rng, np.float32, (9, 14), (3, 2), (2, 1), (1, 1), images=(5,))
    output, indices, grad_input = check(place, case)
    several = case._replace(input=case.input[None, None], grad_output=case.grad_output[None, None])
    assert_same_bits(forward(place, several)[0][0, 0], output)
    assert_same_bits(backward(place, several, indices[None, None])[0, 0], grad_input)


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = fixed_case(rng, dtype, (9, 14), (3, 2), (2, 1), (1, 1))
    output, indices, grad_input = check(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(forward(place, case, layout(case.input))[0], output)
        assert_same_bits(backward(place, case, layout(indices), layout(case.grad_output)), grad_input)


def test_large_batch(place: Place, rng: np.random.Generator) -> None:
    """More planes than a launch grid has in its second and third dimension: the bits of two smaller calls."""
    case = fixed_case(rng, np.float32, (3, 4), (2, 2), (1, 1), (0, 0), images=(65_537, 2))
    output, indices, grad_input = check(place, case)
    for part in (slice(40_000), slice(40_000, None)):
        alone = case._replace(input=case.input[part], grad_output=case.grad_output[part])
        assert_same_bits(output[part], forward(place, alone)[0])
        assert_same_bits(grad_input[part], backward(place, alone, indices[part]))


EXTENT = st.integers(0, 12)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    sizes=st.lists(
        st.tuples(EXTENT, *(st.integers(*each) for each in ((1, 6), (1, 5), (0, 3), (0, 14), (1, 3)))),
        min_size=1, max_size=3,
    ),
    images=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    ceil_mode=st.booleans(),
)  # fmt: skip
def test_any_windows(
    seed: int,
    name: str,
    sizes: list[tuple[int, int, int, int, int, int]],
    images: tuple[int, int],
    ceil_mode: bool,
) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    extents, kernel, stride, padding, bins, dilation = (tuple(each) for each in zip(*sizes, strict=True))
    padding = tuple(min(p, ((k - 1) * e + 1) // 2) for p, k, e in zip(padding, kernel, dilation, strict=True))
    check(Place(), fixed_case(rng, dtype, extents, kernel, stride, padding, dilation, images, ceil_mode=ceil_mode))
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
    output, indices = pybaracuda.max_pool(image, (3, 5), 2, (1, 2), return_indices=True)
    adaptive, named = pybaracuda.adaptive_max_pool(image, (7, 50), True)
    for each in (
        output, indices, pybaracuda.max_pool_backward(output, indices, image.shape, (3, 5), 2, (1, 2)),
        adaptive, named, pybaracuda.adaptive_max_pool_backward(adaptive, named, image.shape),
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


def torch_results(case: PoolCase) -> tuple[Array, Array, Array] | None:
    """PyTorch's output, indices and gradient on the host; None where it refuses the problem."""
    torch = importlib.import_module("torch")
    axes = len(case.bins)
    image = torch.from_numpy(case.input).requires_grad_()
    if not case.kernel:
        function = getattr(torch.nn.functional, f"adaptive_max_pool{axes}d")
        output, indices = function(image, case.bins, return_indices=True)
    else:
        try:
            function = getattr(torch.nn.functional, f"max_pool{axes}d")
            output, indices = function(image, return_indices=True, **case.options)
        except RuntimeError:
            return None
    (gradient,) = torch.autograd.grad(output, image, torch.from_numpy(case.grad_output))
    return output.detach().numpy(), indices.numpy(), gradient.numpy()


# Without PyTorch there is no such comparison.
if available("torch"):

    @pytest.mark.parametrize("name", ["f32", "f64"])
    def test_pytorch_agrees_on_the_host(rng: np.random.Generator, name: str) -> None:
        compared = 0
        for _ in range(300):
            axes = int(rng.integers(1, 4))
            extents = tuple(int(n) for n in rng.integers(3, (40, 14, 9)[axes - 1], axes))
            kernel = tuple(int(k) for k in rng.integers(1, 6, axes))
            stride = tuple(int(s) for s in rng.integers(1, 5, axes))
            dilation = tuple(int(e) for e in rng.integers(1, 4, axes))
            padding = tuple(
                int(rng.integers(0, ((k - 1) * e + 1) // 2 + 1)) for k, e in zip(kernel, dilation, strict=True)
            )
            make = (normal, integers, any_bits)[rng.integers(3)]
            case = fixed_case(
                rng, DTYPES[name], extents, kernel, stride, padding, dilation, ceil_mode=bool(rng.integers(2)),
                make=make,
            )  # fmt: skip
            gradient = normal(rng, case.grad_output.shape, DTYPES[name])
            bins = tuple(int(b) for b in rng.integers(1, 12, axes))
            for each in (case._replace(grad_output=gradient), adaptive_case(rng, DTYPES[name], extents, bins)):
                theirs = torch_results(each)
                if theirs is None:
                    continue
                compared += 1
                output, indices, _ = check(Place(), each)
                assert_same_bits(output, theirs[0])
                assert_same_bits(indices, theirs[1])
                assert_within(theirs[2], oracle_backward(each, indices))
        assert compared > 400


def test_a_long_axis_of_planes_without_elements_is_not_walked_along(place: Place) -> None:
    """No element is there to be looked for, however many places an axis has."""
    image = np.zeros((1, 1, 2**31 - 1, 0, 2), np.float32)
    (output,) = place.run(pybaracuda.adaptive_max_pool, image, (3, 2, 1), outputs=[((1, 1, 3, 2, 1), np.float32)])
    assert (output == -np.inf).all()
