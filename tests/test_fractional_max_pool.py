# SPDX-License-Identifier: Apache-2.0
"""fractional_max_pool and its gradient: windows and maxima to the bit, sums within their bound, and PyTorch beside."""

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
from verify.definitions import fractional_max_pool as oracle
from verify.dtypes import DTYPES, Array, bits, coordinate_dtype

NAN, INF = float("nan"), float("inf")


class PoolCase(NamedTuple):
    """A pooling of the last axes of its input, as many as a plane has samples, with its gradient."""

    input: Array
    random_samples: Array
    kernel: tuple[int, ...]
    bins: tuple[int, ...]
    grad_output: Array


def drawn_samples(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Numbers in [0, 1): also in 16 bits, where the largest ones would be rounded to 1."""
    samples = rng.random(shape).astype(dtype)
    return np.where(samples.astype(np.float64) < 1, samples, dtype.type(0))


def pool_case(
    rng: np.random.Generator,
    dtype: Any,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    bins: tuple[int, ...],
    images: tuple[int, ...] = (2, 3),
    make: Any = normal,
) -> PoolCase:
    samples = drawn_samples(rng, (*images, len(extents)), np.dtype(dtype))
    image, gradient = make(rng, (*images, *extents), dtype), make(rng, (*images, *bins), dtype)
    return PoolCase(image, samples, kernel, bins, gradient)


def forward(place: Place, case: PoolCase, input: Any = None, samples: Any = None) -> tuple[Array, Array]:
    """The library's output and indices; the last arguments replace the case's by equal arrays of another layout."""
    image = case.input if input is None else input
    outputs = [(case.grad_output.shape, case.input.dtype), (case.grad_output.shape, np.int64)]
    output, indices = place.run(
        pybaracuda.fractional_max_pool, image, case.kernel, case.bins,
        case.random_samples if samples is None else samples, outputs=outputs, return_indices=True,
    )  # fmt: skip
    return output, indices


def backward(place: Place, case: PoolCase, indices: Any, grad_output: Any = None) -> Array:
    gradient = case.grad_output if grad_output is None else grad_output
    outputs, shape = [(case.input.shape, case.input.dtype)], case.input.shape
    function = pybaracuda.fractional_max_pool_backward
    return place.run(function, gradient, indices, shape, case.kernel, outputs=outputs)[0]


def in_five(array: Array, axes: int) -> Array:
    """As [N, C, D, H, W]."""
    *images, channels = array.shape[: array.ndim - axes]
    count = int(np.prod(images, dtype=np.int64))
    return array.reshape(count, channels, *(1,) * (3 - axes), *array.shape[array.ndim - axes :])


def three(numbers: tuple[int, ...]) -> tuple[int, int, int]:
    d, h, w = (1,) * (3 - len(numbers)) + numbers
    return d, h, w


def oracle_forward(case: PoolCase) -> tuple[Array, Array]:
    axes = len(case.bins)
    image = in_five(case.input, axes)
    samples = case.random_samples.reshape(*image.shape[:2], axes)
    output, indices = oracle.fractional_max_pool(image, samples, three(case.kernel), three(case.bins))
    return output.reshape(case.grad_output.shape), indices.reshape(case.grad_output.shape)


def oracle_backward(case: PoolCase, indices: Array) -> Sum:
    axes = len(case.bins)
    shape = in_five(case.input, axes).shape
    gradient, named = in_five(case.grad_output, axes), in_five(indices, axes)
    found = oracle.fractional_max_pool_backward(gradient, named, shape, three(case.kernel))
    return found.map(lambda part: part.reshape(case.input.shape))


def check(place: Place, case: PoolCase) -> tuple[Array, Array, Array]:
    """Maxima to the bit, sums within their bound; the library's results."""
    output, indices = forward(place, case)
    expected, named = oracle_forward(case)
    assert_same_bits(indices, named)
    assert_same_bits(output, expected)
    grad_input = backward(place, case, indices)
    assert_within(grad_input, oracle_backward(case, indices))
    return output, indices, grad_input


def all_of(case: PoolCase, indices: Array) -> Array:
    """The gradient without any bound on where a window may be: each window's goes to the element that it names."""
    axes = len(case.bins)
    image, named = in_five(case.input, axes), in_five(indices, axes)
    total = np.zeros((*image.shape[:2], int(np.prod(image.shape[2:]))))
    planes = np.indices(image.shape[:2]).reshape(2, -1)
    for n, c in planes.T:
        np.add.at(total[n, c], named[n, c].ravel(), in_five(case.grad_output, axes)[n, c].astype(np.float64).ravel())
    return total.reshape(case.input.shape)


CASES: list[tuple[tuple[int, ...], ...]] = [
    ((9, 14), (2, 3), (5, 7)),
    ((12, 16), (2, 2), (6, 8)),
    ((9, 14), (3, 2), (7, 13)),  # a window at every place
    ((9, 14), (9, 2), (1, 6)),
    ((5, 6, 9), (2, 2, 2), (3, 4, 6)),
    ((5, 6, 9), (1, 3, 4), (5, 1, 3)),
]


@pytest.mark.parametrize(("extents", "kernel", "bins"), CASES)
def test_windows(
    place: Place,
    dtype: Any,
    rng: np.random.Generator,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    bins: tuple[int, ...],
) -> None:
    check(place, pool_case(rng, dtype, extents, kernel, bins))


def test_windows_are_known(place: Place, dtype: Any) -> None:
    """By hand: where three windows of two elements begin among eight, 3 apart on average, and whose number is which."""
    image = np.arange(80).reshape(1, 1, 10, 8).astype(dtype)

    def begins(width: float, height: float) -> tuple[list[int], list[int]]:
        samples = np.array([[[width, height]]]).astype(dtype)
        _, indices = pybaracuda.fractional_max_pool(
            place.array(image), 2, (4, 3), place.array(samples), return_indices=True
        )
        # Numbers ascend: a window's last element wins.
        found = place.numpy(indices)[0, 0]
        return (found[0] % 8 - 1).tolist(), (found[:, 0] // 8 - 1).tolist()

    # (8 - 2) / 2 is 3 along the width, (10 - 2) / 3 along the height.
    assert begins(0, 0) == ([0, 3, 6], [0, 2, 5, 8])
    assert begins(0.5, 0) == ([0, 3, 6], [0, 2, 5, 8])
    assert begins(0, 0.5) == ([0, 3, 6], [0, 3, 5, 8])
    assert begins(0.25, 0.75) == ([0, 3, 6], [0, 2, 5, 8])


def test_backward_is_the_exact_adjoint(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    # Small integers: every sum is exact in 8 bits.
    for sizes in (((6, 9), (3, 2), (3, 6)), ((5, 8, 4), (2, 3, 1), (3, 5, 2))):
        case = pool_case(rng, dtype, *sizes, images=(1, 1), make=integers)
        output, indices, grad_input = check(place, case)
        assert_exact(grad_input, oracle_backward(case, indices))
        in_output = np.sum(output.astype(np.float64) * case.grad_output.astype(np.float64))
        in_input = np.sum(case.input.astype(np.float64) * grad_input.astype(np.float64))
        assert in_output == in_input


def test_gradient_is_the_difference_quotient(place: Place, rng: np.random.Generator) -> None:
    """Maxima are linear as long as the same elements win: steps below half of what numbers differ by."""
    dtype = DTYPES["f64"]
    case = pool_case(rng, dtype, (6, 7), (3, 2), (3, 5), images=(1, 2))
    image = rng.permutation(84).reshape(case.input.shape).astype(dtype)
    gradient = rng.integers(-4, 5, case.grad_output.shape).astype(dtype)
    case = case._replace(input=image, grad_output=gradient)
    grad_input = check(place, case)[2]
    step = 0.25
    for at in np.ndindex(*image.shape):
        moved = []
        for sign in (1, -1):
            other = image.copy()
            other[at] += sign * step
            moved.append(np.sum(forward(place, case._replace(input=other))[0] * gradient))
        assert (moved[0] - moved[1]) / (2 * step) == grad_input[at]


def test_sums_are_the_headers_to_the_bit(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    """Whatever indices name within their spans: windows ascending in row-major order."""
    case = pool_case(rng, dtype, (3, 5, 8), (2, 3, 4), (2, 3, 4), images=(1, 2))
    compute = coordinate_dtype(dtype).type
    axes = [oracle.spans(*sizes) for sizes in zip((3, 5, 8), case.bins, case.kernel, strict=True)]
    indices = np.zeros(case.grad_output.shape, np.int64)
    sums = np.zeros(case.input.shape, compute).reshape(2, -1)
    for plane in range(2):
        for o in np.ndindex(*case.bins):
            d, h, w = (int(rng.choice(list(axis[i]))) for axis, i in zip(axes, o, strict=True))
            index = (d * 5 + h) * 8 + w
            indices[0, plane][o] = index
            sums[plane, index] = compute(sums[plane, index] + compute(case.grad_output[0, plane][o]))
    assert_same_bits(backward(place, case, indices), sums.reshape(case.input.shape).astype(dtype))


@pytest.mark.parametrize("extents", [(1, 1, 2100), (1, 70, 65), (7, 30, 530)])
def test_sums_of_several_tiles_are_the_headers_to_the_bit(
    place: Place, dtype: Any, rng: np.random.Generator, extents: tuple[int, int, int]
) -> None:
    """Of planes that a block has a part of, and windows that name elements of its neighbours."""
    bins = tuple(max(extent * 2 // 5, 1) for extent in extents)
    case = pool_case(rng, dtype, extents, tuple(min(extent, 2) for extent in extents), bins, images=(1, 2))
    windows = [oracle.spans(*axis) for axis in zip(extents, case.bins, case.kernel, strict=True)]
    indices = indices_in_windows(windows, extents, case.grad_output.shape, rng)
    sums = sums_in_order(indices, case.grad_output, math.prod(extents), coordinate_dtype(dtype).type)
    assert_same_bits(backward(place, case, indices), sums.reshape(case.input.shape).astype(dtype))


def test_bad_indices_contribute_nothing(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = pool_case(rng, dtype, (4, 5, 8), (2, 3, 2), (2, 3, 5))
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


BAD_SAMPLES = [1.0, 1.5, 2.0, -0.25, -3.0, 2.0**15, -(2.0**15), 1e30, -1e30, INF, -INF, NAN]


@pytest.mark.parametrize("sample", BAD_SAMPLES)
def test_bad_samples_never_leave_the_input(place: Place, dtype: Any, rng: np.random.Generator, sample: float) -> None:
    with np.errstate(over="ignore"):
        for sizes in (((9, 14), (2, 3), (5, 7)), ((5, 6, 9), (2, 2, 2), (3, 4, 6))):
            case = pool_case(rng, dtype, *sizes)
            samples = np.where(rng.random(case.random_samples.shape) < 0.5, case.random_samples, dtype.type(sample))
            check(place, case._replace(random_samples=samples))


@given(
    seed=st.integers(0, 2**32 - 1),
    extent=st.one_of(st.integers(1, 60), st.integers(2**20, 2**31 - 1)),
    part=st.floats(0, 1),
    places=st.floats(0, 1),
    is_wide=st.booleans(),
)
def test_spans_hold_every_window(seed: int, extent: int, part: float, places: float, is_wide: bool) -> None:
    """Of any extents: no sample in [0, 1] begins a window outside of what the gradient takes for its span."""
    rng = np.random.default_rng(seed)
    compute = np.float64 if is_wide else np.float32
    kernel = 1 + int(part**4 * (extent - 1))
    most = extent - kernel + 1
    bins = 1 + int(places * (most - 1))
    slack, gaps = extent - kernel, bins - 1
    if gaps == 0:
        return
    samples = np.concatenate([rng.random(40), rng.integers(0, 65, 40) / 64, [0, 1, np.nextafter(1, 0)]]).astype(compute)
    windows = np.concatenate([rng.integers(0, gaps, 40), [0, gaps - 1]])
    alpha = compute(slack) / compute(gaps)
    for sample in samples:
        start = ((windows.astype(compute) + sample) * alpha).astype(np.int64) - int(sample * alpha)
        for o, begin in zip(windows.tolist(), np.clip(start, 0, slack).tolist(), strict=True):
            reach = 1 + slack * gaps // 2**20
            assert (o * slack - reach) // gaps <= begin
            assert begin + kernel - 1 <= (o * slack + reach) // gaps + kernel


def test_bits_are_moved(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    for sizes in (((9, 14), (2, 3), (5, 9)), ((4, 40), (1, 1), (4, 40))):
        case = pool_case(rng, dtype, *sizes, make=any_bits)
        output, indices = forward(place, case)
        expected, named = oracle_forward(case)
        assert_same_bits(indices, named)
        assert_same_bits(output, expected)
    few = rng.choice([-1.0, -0.0, 0.0], (2, 3, 9, 14)).astype(dtype)
    case = pool_case(rng, dtype, (9, 14), (3, 2), (6, 10))
    check(place, case._replace(input=few))
    check(place, case._replace(input=np.full_like(few, -INF)))


def test_gradients_that_are_no_numbers(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = pool_case(rng, dtype, (9, 14), (3, 2), (7, 12))
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
    samples = np.zeros((1, 1, 2), dtype)
    case = PoolCase(
        tiny.view(dtype).reshape(1, 1, 1, 4), samples, (1, 2), (1, 3), tiny[:3].view(dtype).reshape(1, 1, 1, 3)
    )
    assert bits(forward(place, case)[0]).ravel().tolist() == [2, 3, 6]
    assert bits(backward(place, case, np.array([[[[1, 1, 3]]]]))).ravel().tolist() == [0, 3, 0, 3]


@pytest.mark.parametrize(
    ("shape", "bins"), [((0, 3, 5, 4), (3, 2)), ((2, 0, 5, 4), (3, 2)), ((2, 3, 5, 4), (0, 2)), ((2, 3, 0, 4), (0, 2))],
    ids=["no-images", "no-channels", "no-windows", "no-elements"],
)  # fmt: skip
def test_empty_problems(place: Place, dtype: Any, shape: tuple[int, ...], bins: tuple[int, ...]) -> None:
    samples = np.zeros((*shape[:2], 2), dtype)
    case = PoolCase(np.ones(shape, dtype), samples, (1, 2), bins, np.ones((*shape[:2], *bins), dtype))
    check(place, case)


@pytest.mark.parametrize("width", [2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 127, 129, 1023, 1024, 1025, 2100])
def test_sizes_around_every_threshold(place: Place, dtype: Any, rng: np.random.Generator, width: int) -> None:
    """Vectors, warps and blocks, and the windows that the CPU keeps at a time."""
    check(place, pool_case(rng, dtype, (3, width), (2, 1), (2, width), images=(1, 2)))
    check(place, pool_case(rng, dtype, (4, width), (2, 2), (2, max(width // 2, 1)), images=(1, 1)))
    check(place, pool_case(rng, dtype, (2, 3, width), (1, 2, 2), (2, 2, max(width * 2 // 3, 1)), images=(1, 1)))


def test_images_need_not_be_there(place: Place, rng: np.random.Generator) -> None:
    case = pool_case(rng, np.float32, (9, 14), (3, 2), (5, 8), images=(5,))
    output, indices, grad_input = check(place, case)
    several = PoolCase(
        case.input[None, None], case.random_samples[None, None], case.kernel, case.bins, case.grad_output[None, None]
    )
    assert_same_bits(forward(place, several)[0][0, 0], output)
    assert_same_bits(backward(place, several, indices[None, None])[0, 0], grad_input)
    # As PyTorch has them: samples of one image, of an input without images.
    assert_same_bits(forward(place, case, samples=case.random_samples[None])[0], output)


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = pool_case(rng, dtype, (9, 14), (3, 2), (5, 8))
    output, indices, grad_input = check(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(forward(place, case, layout(case.input), layout(case.random_samples))[0], output)
        assert_same_bits(backward(place, case, layout(indices), layout(case.grad_output)), grad_input)


def test_large_batch(place: Place, rng: np.random.Generator) -> None:
    """More planes than a launch grid has in its second and third dimension: the bits of two smaller calls."""
    case = pool_case(rng, np.float32, (3, 4), (2, 2), (2, 3), images=(65_537, 2))
    output, indices = forward(place, case)
    grad_input = backward(place, case, indices)
    for part in (slice(40_000), slice(40_000, None)):
        alone = case._replace(
            input=case.input[part], random_samples=case.random_samples[part], grad_output=case.grad_output[part]
        )
        assert_same_bits(output[part], forward(place, alone)[0])
        assert_same_bits(grad_input[part], backward(place, alone, indices[part]))


SIZES = st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(0, 12))


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    sizes=st.lists(SIZES, min_size=2, max_size=3),
    images=st.tuples(st.integers(0, 2), st.integers(0, 3)),
)
def test_any_windows(seed: int, name: str, sizes: list[tuple[int, int, int]], images: tuple[int, int]) -> None:
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    kernel, bins, more = (tuple(each) for each in zip(*sizes, strict=True))
    extents = tuple(k + m - 1 + e for k, m, e in zip(kernel, bins, more, strict=True))
    case = pool_case(rng, dtype, extents, kernel, bins, images)
    _, indices, grad_input = check(Place(), case)
    # No index of a forward's is dropped.
    assert oracle_backward(case, indices).terms.sum() == indices.size
    if name in ("f32", "f64"):
        np.testing.assert_allclose(grad_input, all_of(case, indices), rtol=1e-4, atol=1e-4)


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
    image, samples = rng.standard_normal((2, 40, 30, 144)).astype(dtype), (rng.random((2, 40, 2)) * 0.99).astype(dtype)
    output, indices = pybaracuda.fractional_max_pool(image, (2, 3), (14, 70), samples, True)
    gradient = pybaracuda.fractional_max_pool_backward(output, indices, image.shape, (2, 3))
    for each in (output, indices, gradient):
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


def torch_results(case: PoolCase) -> tuple[Array, Array, Array]:
    """PyTorch's output, indices and gradient on the host."""
    torch = importlib.import_module("torch")
    image, samples = torch.from_numpy(case.input).requires_grad_(), torch.from_numpy(case.random_samples)
    function = getattr(torch.nn.functional, f"fractional_max_pool{len(case.bins)}d")
    output, indices = function(image, case.kernel, case.bins, return_indices=True, _random_samples=samples)
    (gradient,) = torch.autograd.grad(output, image, torch.from_numpy(case.grad_output))
    return output.detach().numpy(), indices.numpy(), gradient.numpy()


# Without PyTorch there is no such comparison.
if available("torch"):

    @pytest.mark.parametrize("name", ["f32", "f64"])
    def test_pytorch_agrees_on_the_host(rng: np.random.Generator, name: str) -> None:
        for _ in range(300):
            axes = int(rng.integers(2, 4))
            kernel, bins = (tuple(int(k) for k in rng.integers(1, most, axes)) for most in (5, (16, 8)[axes - 2]))
            # In three dimensions PyTorch refuses a window at every place.
            more = rng.integers(axes - 2, 20 // axes, axes)
            extents = tuple(int(k + m - 1 + e) for k, m, e in zip(kernel, bins, more, strict=True))
            case = pool_case(rng, DTYPES[name], extents, kernel, bins, (1, 2), (normal, integers, any_bits)[_ % 3])
            case = case._replace(grad_output=normal(rng, case.grad_output.shape, DTYPES[name]))
            output, indices, gradient = torch_results(case)
            ours, named, _ = check(Place(), case)
            assert_same_bits(ours, output)
            assert_same_bits(named, indices)
            assert_within(gradient, oracle_backward(case, indices))

    def test_pytorch_places_long_rows_alike(rng: np.random.Generator) -> None:
        """Where samples and alpha are rounded most: thousands of windows, in f32."""
        for extent, kernel, bins in ((100_003, 2, 61_003), (65_537, 5, 32_768), (30_000, 2, 10_000)):
            case = pool_case(rng, DTYPES["f32"], (2, extent), (2, kernel), (1, bins), (1, 1))
            _, indices, gradient = torch_results(case)
            named = forward(Place(), case)[1]
            assert_same_bits(named, indices)
            assert_within(gradient, oracle_backward(case, named))
