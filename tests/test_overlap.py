# SPDX-License-Identifier: Apache-2.0
"""Outputs that share memory: with themselves, with inputs, with each other; who refuses them, and who may not.

The rule of C is held against lists of places; the array functions follow it as far as the kernel sees the arrays.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import function_cases
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from tolerance import assert_same_bits

import pybaracuda
from pybaracuda import _call
from pybaracuda._arrays import Operand
from pybaracuda._arrays.numpy import NUMPY
from pybaracuda._check.abi_calls import STATUS, Launch, Library, Symbol, Values, completed, symbols
from verify.memory.blocks import memory_for

SYMBOLS = {symbol.name: symbol for symbol in symbols()}
EXTENTS = (1, 1, 2, 2, 3, 4, 5, 7)


def places_of(shape: list[int], strides: list[int]) -> list[int]:
    """Where every element stands, in elements from the first."""
    return [
        sum(i * stride for i, stride in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, shape))
    ]


def drawn_layout(rng: np.random.Generator, rank: int) -> tuple[list[int], list[int]]:
    """Extents and strides: sliced and transposed dense memory, or anything; some of both overlap."""
    shape = [int(rng.choice(EXTENTS)) for _ in range(rank)]
    if rng.random() < 0.5:
        strides = [int(stride) for stride in rng.integers(-40, 41, rank)]
    else:
        step, strides = 1, [0] * rank
        for axis in rng.permutation(rank):
            strides[axis] = step * int(rng.choice([-1, 1]))
            step = max(step * shape[axis] + int(rng.integers(-2, 3)), 0)
    return shape, strides


def pad_problem(symbol: Symbol, shape: list[int], source: list[int], destination: list[int]) -> Values:
    """A pad without pads, forward or backward."""
    rank = len(shape)
    names = ("input_strides", "output_strides")
    if symbol.operator.name.endswith("backward"):
        names = ("grad_output_strides", "grad_input_strides")
    values: Values = {"rank": rank, "input_shape": shape, "output_shape": shape, "pad_low": [0] * rank, "value": 0}
    return completed(symbol, {**values, names[0]: source, names[1]: destination, "mode": 0})


@pytest.mark.parametrize("name", ["pad_constant_b8", "pad_reflect_b8", "pad_ex_b8", "pad_circular_backward_f32"])
def test_a_written_layout_is_refused_exactly_when_two_elements_share_a_place(
    backend: str, name: str, rng: np.random.Generator
) -> None:
    library, symbol = Library(backend), SYMBOLS[name]
    seen = {True: 0, False: 0}
    for _ in range(1500):
        shape, strides = drawn_layout(rng, int(rng.integers(1, 6)))
        places = places_of(shape, strides)
        shared = len(set(places)) < len(places)
        seen[shared] += 1
        values = pad_problem(symbol, shape, [0] * len(shape), strides)
        status = library.can_implement(symbol, values)
        assert status == (STATUS["INVALID_PROBLEM"] if shared else 0), (shape, strides, library.last_error())
        if shared:
            assert "_strides give two elements of" in library.last_error()
        assert library.workspace_size(symbol, values) == 0
    assert min(seen.values()) > 200


def test_two_large_axes_share_a_place_exactly_at_their_common_multiple(backend: str) -> None:
    """Steps of a along one axis and of b along the other first meet at lcm(a, b)."""
    library, symbol = Library(backend), SYMBOLS["pad_constant_b8"]
    most = 2**31 - 1
    seen = set()
    for extents in ([most, most], [2**20, 2**20 + 3], [2, 2**30], [3, 2]):
        for a, b in ([most, 1], [most - 1, 1], [most, most - 2], [2**20 + 2, 2**20 - 1], [2**32, 4], [-(2**61), 2**61]):
            if (extents[0] - 1) * abs(a) + (extents[1] - 1) * abs(b) >= 2**63 - 1:
                continue
            meet = math.lcm(a, b)
            shared = meet // abs(a) < extents[0] and meet // abs(b) < extents[1]
            seen.add(shared)
            status = library.can_implement(symbol, pad_problem(symbol, extents, [0, 0], [a, b]))
            assert (status != 0) == shared, (extents, a, b, library.last_error())
    assert seen == {True, False}


def test_a_tensor_without_elements_may_have_any_strides(backend: str) -> None:
    library, symbol = Library(backend), SYMBOLS["pad_constant_b8"]
    assert library.can_implement(symbol, pad_problem(symbol, [4, 0, 4], [0] * 3, [0, 1, 0])) == 0


def test_a_layout_that_is_no_ones_ends_in_words_and_soon(backend: str) -> None:
    """Eight strides of one size without a common divisor: the search is given up, and the layout is refused."""
    library, symbol = Library(backend), SYMBOLS["pad_constant_b8"]
    strides = [2**44 + prime for prime in (3, 17, 41, 89, 173, 331, 661, 1297)]
    values = pad_problem(symbol, [60] * 8, [0] * 8, strides)
    start = time.perf_counter()
    assert library.can_implement(symbol, values) == STATUS["INVALID_PROBLEM"]
    assert time.perf_counter() - start < 2
    assert "too irregular" in library.last_error() or "the same place" in library.last_error()


def test_a_source_and_a_destination_are_refused_exactly_when_they_share_a_byte(
    backend: str, rng: np.random.Generator
) -> None:
    library = Library(backend)
    memory = memory_for(backend, 1 << 18)
    memory.write(np.zeros(1 << 18, np.uint8))
    middle = memory.address + (1 << 17)
    seen = {True: 0, False: 0}
    names = {"pad_constant_b8": 1, "pad_replicate_b32": 4, "pad_ex_b128": 16, "pad_symmetric_backward_f64": 8}
    for count, (name, width) in itertools.product(range(800), names.items()):
        symbol = SYMBOLS[name]
        shape, source = drawn_layout(rng, int(rng.integers(1, 4)))
        strides = source if count % 4 == 0 else [int(stride) for stride in rng.permutation(source)]
        written = places_of(shape, strides)
        if len(set(written)) < len(written):
            continue
        # Interleaved, or near; elements of 16 bytes also half an element apart.
        step = 8 if width == 16 else width
        offset = int(rng.integers(-6, 7)) * step
        read = {place * width + byte for place in places_of(shape, source) for byte in range(width)}
        shared = any(place * width + offset + byte in read for place in written for byte in range(width))
        pointers = dict(zip([tensor.name for tensor in symbol.tensors], (middle, middle + offset), strict=True))
        status = library.run(symbol, pad_problem(symbol, shape, source, strides), Launch(pointers))
        if status == STATUS["MISALIGNED_OPERAND"]:
            assert offset % width != 0
            continue
        seen[shared] += 1
        assert status == (STATUS["INVALID_PROBLEM"] if shared else 0), (name, shape, source, strides, offset)
        if shared:
            assert " shares memory with " in library.last_error()
    memory.free()
    assert min(seen.values()) > 200


# ---- what the array functions and the plans make of it


@pytest.mark.parametrize("function", ["pad", "pad_backward"])
def test_an_out_whose_own_elements_overlap_is_refused(function: str) -> None:
    call = getattr(pybaracuda, function)
    values = np.arange(300 * 200, dtype=np.float32).reshape(300, 200)
    memory = np.zeros(values.size, np.float32)
    for strides in ((4, 4), (0, 4), (400, 4), (8, 12), (-4, 4)):
        out = as_strided(memory[50_000 if min(strides) < 0 else 0 :], values.shape, strides)
        with pytest.raises(pybaracuda.InvalidProblemError, match=r"out has strides .* the same place"):
            call(values, 0, 0, out=out)
        assert not memory.any()
    # Irregular, and every element in its own place.
    out = as_strided(memory, (3, 2), (8, 12))
    assert (call(values[:3, :2], 0, 0, out=out) == values[:3, :2]).all()
    # Of another shape than the result: that is what is wrong.
    with pytest.raises(ValueError, match="out has shape"):
        call(values, 0, 0, out=as_strided(memory, (3, 3), (4, 4)))


def test_interleaved_views_are_no_overlap_and_views_that_meet_are(torch: Any) -> None:
    for make in (lambda values: values, torch.from_numpy):
        memory = make(np.arange(24, dtype=np.float32))
        expected = memory[::2].tolist()
        pybaracuda.pad(memory[::2], 0, 0, out=memory[1::2])
        assert memory[1::2].tolist() == expected
        with pytest.raises(ValueError, match="out shares memory with input"):
            pybaracuda.pad(memory[:16:2], 0, 0, out=memory[8:16])
        with pytest.raises(ValueError, match="out shares memory with input"):
            pybaracuda.pad(memory[:12], 0, 0, out=memory[:12])
        assert memory[1::2].tolist() == expected


def test_an_input_that_is_converted_first_may_lie_under_the_output() -> None:
    """The kernel sees a copy, made before it runs."""
    memory = np.zeros(64, np.float32)
    rows = memory[:40].reshape(10, 4)[::2]
    rows[...] = np.arange(20).reshape(5, 4)
    ids = np.array([0, 2, 0, 1, 1], np.int32)
    expected = pybaracuda.segment_sum(rows.copy(), ids, 3)
    result = pybaracuda.segment_sum(rows, ids, 3, out=memory[:12].reshape(3, 4))
    assert_same_bits(result, expected)


def test_an_output_that_is_rounded_afterwards_may_be_the_input() -> None:
    """A 16-bit grid is widened, and its gradient narrowed: the kernel works on other memory than the caller's."""
    case = function_cases.cases(np.float16)["grid_sample_backward"]
    grid = case.arrays["grid"].astype(np.float16)
    image, gradient = case(grid=grid.copy())
    results = case(grid=grid, out=(None, grid))
    assert results[1] is grid
    assert_same_bits(results[0], image)
    assert_same_bits(grid, gradient)
    # Two outputs never share, rounded or not.
    both = np.zeros(max(image.size, gradient.size), np.float16)
    outs = (both[: image.size].reshape(image.shape), both[: gradient.size].reshape(gradient.shape))
    with pytest.raises(ValueError, match=r"out\[1\] shares memory with out\[0\]"):
        case(grid=grid, out=outs)


def test_places_are_compared_without_being_read() -> None:
    """As for device memory, whose addresses mean nothing to the host."""
    operands = [
        Operand(name, None, NUMPY, 1 << 40, (5, 7), strides, "f32", 0, False)
        for name, strides in (("out", (14, 2)), ("input", (14, 2)))
    ]
    with pytest.raises(ValueError, match="out shares memory with input"):
        _call._check_overlap(operands[0], operands[1:], None)
    operands[1].pointer += 4
    _call._check_overlap(operands[0], operands[1:], None)


def test_plans_refuse_what_the_functions_refuse() -> None:
    plan = pybaracuda.PadPlan.select(
        pybaracuda.PadDescriptor((6,), (0,), (0,), input_strides=(2,), output_strides=(2,))
    )
    memory = np.arange(13, dtype=np.float32)
    with pytest.raises(pybaracuda.InvalidProblemError, match="output shares memory with input"):
        plan.run(input=memory[:11:2], output=memory[2:13:2])
    address = memory.ctypes.data
    with pytest.raises(pybaracuda.InvalidProblemError, match="output shares memory with input"):
        plan.run(input=(address, 44), output=(address + 8, 44))
    plan.run(input=(address, 44), output=(address + 4, 44))
    assert (memory[:12:2] == memory[1:12:2]).all()


def test_an_elementwise_operator_works_in_place_and_only_there() -> None:
    gradient = np.arange(12, dtype=np.float32).reshape(3, 4)
    scale = np.array([2, 3, 4], np.float32)
    descriptor = pybaracuda.DequantizePerChannelBackwardDescriptor((3, 4), 0)
    plan = pybaracuda.DequantizePerChannelBackwardPlan.select(descriptor)
    expected = gradient * scale[:, None]
    memory = np.zeros(16, np.float32)
    memory[:12] = gradient.ravel()
    plan.run(scale=scale, grad_output=memory[:12].reshape(3, 4), grad_input=memory[:12].reshape(3, 4))
    assert (memory[:12] == expected.ravel()).all()
    for output in (memory[4:16], memory[1:13]):
        with pytest.raises(pybaracuda.InvalidProblemError, match="grad_input shares memory with grad_output"):
            plan.run(scale=scale, grad_output=memory[:12].reshape(3, 4), grad_input=output.reshape(3, 4))
    with pytest.raises(pybaracuda.InvalidProblemError, match="grad_input shares memory with scale"):
        plan.run(scale=memory[:3], grad_output=gradient, grad_input=memory[:12].reshape(3, 4))
