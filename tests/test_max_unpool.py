# SPDX-License-Identifier: Apache-2.0
"""max_unpool and its gradient: the definition's bits, and PyTorch's where no place is named twice."""

from __future__ import annotations

import importlib
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
from tolerance import assert_same_bits

import pybaracuda
from verify.definitions import max_unpool as oracle
from verify.dtypes import DTYPES, Array


class UnpoolCase(NamedTuple):
    """An unpooling of the last axes, with its gradient."""

    input: Array
    indices: Array
    output_size: tuple[int, ...]
    grad_output: Array


def unpool_case(
    rng: np.random.Generator,
    dtype: Any,
    extents: tuple[int, ...],
    output_size: tuple[int, ...],
    images: tuple[int, ...] = (2, 3),
    make: Any = normal,
    *,
    distinct: bool = False,
) -> UnpoolCase:
    """Any places of a plane, one before and one behind it; `distinct` ones are all inside."""
    shape, plane = (*images, *extents), int(np.prod(output_size))
    if distinct:
        count = int(np.prod(extents))
        planes = [rng.permutation(plane)[:count] for _ in range(int(np.prod(images)))]
        indices = np.concatenate(planes).reshape(shape)
    else:
        indices = rng.integers(-1, plane + 1, shape)
    return UnpoolCase(make(rng, shape, dtype), indices, output_size, make(rng, (*images, *output_size), dtype))


def forward(place: Place, case: UnpoolCase, input: Any = None, indices: Any = None) -> Array:
    """The library's output; `input` and `indices` replace the case's by equal arrays of another layout."""
    image, named = case.input if input is None else input, case.indices if indices is None else indices
    outputs = [(case.grad_output.shape, case.input.dtype)]
    return place.run(pybaracuda.max_unpool, image, named, case.output_size, outputs=outputs)[0]


def backward(place: Place, case: UnpoolCase, grad_output: Any = None, indices: Any = None) -> Array:
    gradient, named = (
        case.grad_output if grad_output is None else grad_output,
        case.indices if indices is None else indices,
    )
    outputs, axes = [(case.input.shape, case.input.dtype)], len(case.output_size)
    return place.run(pybaracuda.max_unpool_backward, gradient, named, outputs=outputs, axes=axes)[0]


def in_five(array: Array, axes: int) -> Array:
    """As [N, C, D, H, W]."""
    *images, channels = array.shape[: array.ndim - axes]
    count = int(np.prod(images, dtype=np.int64))
    return array.reshape(count, channels, *(1,) * (3 - axes), *array.shape[array.ndim - axes :])


def check(place: Place, case: UnpoolCase) -> tuple[Array, Array]:
    """Both directions are the definition's to the bit."""
    axes = len(case.output_size)
    d, h, w = (*(1,) * (3 - axes), *case.output_size)
    expected = oracle.max_unpool(in_five(case.input, axes), in_five(case.indices, axes), (d, h, w))
    output, grad_input = forward(place, case), backward(place, case)
    assert_same_bits(output, expected.reshape(case.grad_output.shape))
    gradient = oracle.max_unpool_backward(in_five(case.grad_output, axes), in_five(case.indices, axes))
    assert_same_bits(grad_input, gradient.reshape(case.input.shape))
    return output, grad_input


SIZES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((23,), (46,)),
    ((7, 9), (14, 18)),
    ((7, 9), (3, 2)),
    ((3, 5, 4), (6, 10, 8)),
    ((2, 30, 31), (4, 60, 70)),
    ((9, 130), (1, 1)),
]


@pytest.mark.parametrize("make", [normal, any_bits], ids=["numbers", "bits"])
@pytest.mark.parametrize(("extents", "output_size"), SIZES)
def test_definition(
    place: Place,
    dtype: Any,
    rng: np.random.Generator,
    extents: tuple[int, ...],
    output_size: tuple[int, ...],
    make: Any,
) -> None:
    check(place, unpool_case(rng, dtype, extents, output_size, make=make))


def test_places_are_known(place: Place, dtype: Any) -> None:
    """By hand: the last of a place stays, what is out of range is dropped, the rest is 0."""
    image = np.array([[[3, 1, -2, 5, 4]]]).astype(dtype)
    indices = np.array([[[1, 3, 1, 6, -1]]])
    output = pybaracuda.max_unpool(place.array(image), place.array(indices), 6)
    assert place.numpy(output).astype(np.float64).tolist() == [[[0, -2, 0, 1, 0, 0]]]
    gradient = np.array([[[1, 2, 3, 4, 5, 6]]]).astype(dtype)
    grad_input = pybaracuda.max_unpool_backward(place.array(gradient), place.array(indices))
    assert place.numpy(grad_input).astype(np.float64).tolist() == [[[2, 4, 2, 0, 0]]]


def test_one_place_for_all(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    """Every element of a plane names one place, in planes of every path: the last one stays."""
    for extents, size in (((7, 9), (5, 6)), ((40, 50), (100, 130)), ((130, 150), (200, 170)), ((260, 260), (140, 140))):
        case = unpool_case(rng, dtype, extents, size, (2, 2))
        named = case._replace(indices=np.full_like(case.indices, 17))
        output = check(place, named)[0].reshape(4, -1)
        assert_same_bits(output[:, 17], case.input.reshape(4, -1)[:, -1])


def test_backward_is_the_exact_adjoint(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    """Where no place is named twice; else PyTorch gives a gradient to those, too, that did not stay."""
    case = unpool_case(rng, dtype, (6, 9), (12, 20), make=integers, distinct=True)
    output, grad_input = check(place, case)
    in_output = np.sum(output.astype(np.float64) * case.grad_output.astype(np.float64))
    in_input = np.sum(case.input.astype(np.float64) * grad_input.astype(np.float64))
    assert in_output == in_input
    assert grad_input.any()


def test_bad_indices_are_dropped(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = unpool_case(rng, dtype, (4, 5, 8), (5, 7, 9))
    plane = 5 * 7 * 9
    bad = np.array([plane, -1, 2**63 - 1, -(2**63), 2**32, 2**32 + 5, -plane, 2**31])
    is_bad = rng.random(case.indices.shape) < 0.5
    case.indices[is_bad] = rng.choice(bad, int(is_bad.sum()))
    output, _ = check(place, case)
    assert output.any()
    nothing = case._replace(indices=np.full_like(case.indices, plane))
    output, grad_input = check(place, nothing)
    assert not output.any()
    assert not grad_input.any()


def test_what_max_pool_took_comes_back(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    image = normal(rng, (2, 3, 8, 12), dtype)
    output, indices = pybaracuda.max_pool(place.array(image), 2, return_indices=True)
    back = place.numpy(pybaracuda.max_unpool(output, indices, (8, 12)))
    kept = back.astype(np.float64) != 0
    assert kept.sum() == place.numpy(output).size
    assert_same_bits(back[kept], image[kept])


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)], ids=["no-images", "no-channels", "no-elements"])
def test_empty_problems(place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, int, int]) -> None:
    for size in (0, 4):
        check(place, unpool_case(rng, dtype, shape[2:], (size,), shape[:2]))
    check(place, unpool_case(rng, dtype, (5,), (0,), shape[:2]))


@pytest.mark.parametrize("width", [1, 2, 31, 33, 511, 513, 1364, 1366, 4095, 4096, 4097, 16384, 16385, 32768, 32769])
def test_sizes_around_every_threshold(place: Place, rng: np.random.Generator, width: int) -> None:
    """Blocks of several planes, of one, and of a part of one; winners in memory where elements are many."""
    check(place, unpool_case(rng, np.float32, (3, 50), (1, width), (3, 2)))
    check(place, unpool_case(rng, np.float32, (6, 5000), (1, width), (1, 2)))
    # Numbers of 16 bits and of more.
    for elements in (65535, 65536):
        check(place, unpool_case(rng, np.float32, (elements,), (width,), (1, 2)))


@pytest.mark.parametrize("width", [8, 12, 4104, 16392, 36872])
def test_vectors_of_output(place: Place, dtype: Any, rng: np.random.Generator, width: int) -> None:
    """Planes whose blocks do and do not begin at 16 bytes, with fewer and more elements than are asked for at once."""
    for elements in (7, 4095, 4097):
        check(place, unpool_case(rng, dtype, (elements,), (width,), (2, 2)))
        check(place, unpool_case(rng, dtype, (elements,), (width + 1,), (1, 2)))


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = unpool_case(rng, dtype, (7, 9), (14, 18))
    output, grad_input = check(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(forward(place, case, layout(case.input), layout(case.indices)), output)
        assert_same_bits(backward(place, case, layout(case.grad_output), layout(case.indices)), grad_input)


def test_large_batch(place: Place, rng: np.random.Generator) -> None:
    """More planes than a launch grid has in its second and third dimension: the bits of two smaller calls."""
    case = unpool_case(rng, np.float32, (2, 2), (3, 4), (65_537, 2))
    output, grad_input = forward(place, case), backward(place, case)
    for part in (slice(40_000), slice(40_000, None)):
        alone = UnpoolCase(case.input[part], case.indices[part], case.output_size, case.grad_output[part])
        assert_same_bits(output[part], forward(place, alone))
        assert_same_bits(grad_input[part], backward(place, alone))
    check(place, UnpoolCase(case.input[-9:], case.indices[-9:], case.output_size, case.grad_output[-9:]))


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 14)), min_size=1, max_size=3),
    images=st.tuples(st.integers(0, 2), st.integers(0, 3)),
)
def test_any_sizes(seed: int, name: str, sizes: list[tuple[int, int]], images: tuple[int, int]) -> None:
    extents, output_size = (tuple(each) for each in zip(*sizes, strict=True))
    check(Place(), unpool_case(np.random.default_rng(seed), DTYPES[name], extents, output_size, images))


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
indices = rng.integers(-1, 60 * 90 + 1, (2, 40, 30, 44))
for dtype in DTYPES.values():
    output = pybaracuda.max_unpool(rng.standard_normal(indices.shape).astype(dtype), indices, (60, 90))
    for each in (output, pybaracuda.max_unpool_backward(output, indices)):
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


# Without PyTorch there is no such comparison.
if available("torch"):

    @pytest.mark.parametrize("name", ["f32", "f64"])
    def test_pytorch_agrees_on_the_host(rng: np.random.Generator, name: str) -> None:
        """Indices of their own: which of two elements stays, PyTorch's threads decide."""
        torch = importlib.import_module("torch")
        for _ in range(100):
            axes = int(rng.integers(1, 4))
            extents = tuple(int(n) for n in rng.integers(1, 9, axes))
            make = (normal, any_bits)[rng.integers(2)]
            case = unpool_case(rng, DTYPES[name], extents, tuple(2 * n for n in extents), make=make, distinct=True)
            gradient = normal(rng, case.grad_output.shape, DTYPES[name])
            image = torch.from_numpy(case.input).requires_grad_()
            function = getattr(torch.nn.functional, f"max_unpool{axes}d")
            output = function(image, torch.from_numpy(case.indices), 2)
            (theirs,) = torch.autograd.grad(output, image, torch.from_numpy(gradient))
            ours = check(Place(), case._replace(grad_output=gradient))
            assert_same_bits(ours[0], output.detach().numpy())
            assert_same_bits(ours[1], theirs.numpy())
