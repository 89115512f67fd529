# SPDX-License-Identifier: Apache-2.0
"""index_copy: the definition's bits on every path, several writers of one row, and PyTorch's own result on the CPU."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattice import any_bits, integers, normal
from place import Place, available
from tolerance import assert_same_bits

import pybaracuda
from verify.definitions import index_copy as oracle
from verify.dtypes import Array

# (outer, length, n, inner): around a warp, a block and a batch of blocks, a piece of a row; the last ones have more
# entries than CUDA compares, and fill several blocks.
SHAPES = [
    (1, 1, 1, 1),
    (1, 40, 31, 16),
    (1, 40, 33, 15),
    (3, 7, 65, 9),
    (2, 300, 20, 1),
    (1, 3, 4, 1023),
    (1, 3, 4, 4099),
    (70, 5, 6, 4),
    (1, 2000, 2880, 1),
    (1, 2000, 2881, 1),
    (1, 3000, 2900, 4),
    (2, 50, 3000, 3),
    (300, 40, 200, 2),
]


def tables(input: Array, dim: int) -> Array:
    """As [outer, length, inner]."""
    axis = dim % input.ndim
    return input.reshape(int(np.prod(input.shape[:axis])), input.shape[axis], int(np.prod(input.shape[axis + 1 :])))


def check(place: Place, input: Array, index: Array, source: Array, dim: int = 1) -> Array:
    """The definition's bits out of place, and in place."""
    expected = oracle.index_copy(tables(input, dim), index, tables(source, dim)).reshape(input.shape)
    found = place.run(pybaracuda.index_copy, input, dim, index, source, outputs=[(input.shape, input.dtype)])[0]
    assert_same_bits(found, expected)
    mine = place.array(input.copy())
    answered = pybaracuda.index_copy(mine, dim, place.array(index), place.array(source), out=mine)
    assert place.pointer(answered) == place.pointer(mine)
    assert_same_bits(place.numpy(mine), expected)
    return found


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_definition(
    place: Place, dtype: np.dtype[Any], index: Any, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    outer, length, n, inner = shape
    named = rng.integers(-1, length + 1, n).astype(index)
    check(place, any_bits(rng, (outer, length, inner), dtype), named, any_bits(rng, (outer, n, inner), dtype))


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint16, np.int32, np.uint64, np.complex64, np.complex128], ids=str
)
def test_any_dtype_is_moved(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    input, source = (rng.integers(0, 2, (3, n, 7)).astype(dtype) for n in (11, 20))
    check(place, input, rng.integers(0, 11, 20), source)


def test_rows_are_known(place: Place, dtype: np.dtype[Any]) -> None:
    """By hand: the last of a row stays, what is out of range is dropped, the rest is input's."""
    input = np.array([[1, 2], [3, 4], [5, 6], [7, 8]]).astype(dtype)
    source = -np.array([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]).astype(dtype)
    found = check(place, input, np.array([2, 0, 2, 4, -1]), source, 0)
    assert found.astype(np.float64).tolist() == [[-3, -4], [3, 4], [-5, -6], [7, 8]]
    found = check(place, input, np.array([1, 1]), source[:4], 1)
    assert found.astype(np.float64).tolist() == [[1, -2], [3, -4], [5, -6], [7, -8]]


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -4])
def test_every_axis(place: Place, dim: int, rng: np.random.Generator) -> None:
    shape = [4, 5, 6, 7]
    rows = list(shape)
    rows[dim] = 9
    index = rng.integers(0, shape[dim], 9)
    check(place, normal(rng, tuple(shape), np.float32), index, normal(rng, tuple(rows), np.float32), dim)


# Runs of writers, writers in turn, a warp's last lane and the next one's first, and all of one row.
@pytest.mark.parametrize("n", [33, 2000, 5000])
@pytest.mark.parametrize("inner", [1, 3, 8])
def test_the_last_of_several_writers_stays(place: Place, n: int, inner: int, rng: np.random.Generator) -> None:
    numbers = np.arange(n)
    input, source = normal(rng, (1, n, inner), np.float32), normal(rng, (1, n, inner), np.float32)
    for index in (numbers // 7, numbers % 7, (numbers + 1) // 32, numbers * 0 + 5, n - 1 - numbers // 2):
        found = check(place, input, index, source)
        for row in np.unique(index):
            assert_same_bits(found[:, row], source[:, np.flatnonzero(index == row)[-1]])


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("n", [60, 6000])
def test_bad_entries_are_dropped(place: Place, index: Any, n: int, rng: np.random.Generator) -> None:
    limits = np.iinfo(index)
    bad = [-1, 40, limits.min, limits.max, *([2**32, 2**32 + 3, -(2**32)] if index == np.int64 else [])]
    entries = rng.integers(0, 40, n).astype(index)
    entries[n // 2 :] = rng.choice(bad, n - n // 2).astype(index)
    input, source = normal(rng, (1, 40, 5), np.float32), normal(rng, (1, n, 5), np.float32)
    # The last writers are all bad: those before them stay.
    found = check(place, input, entries, source)
    assert_same_bits(found, check(place, input, entries[: n // 2], source[:, : n // 2]))


def test_nothing_named_is_input(place: Place, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    input = any_bits(rng, (3, 5, 4), dtype)
    none = np.zeros(0, np.int64)
    assert_same_bits(check(place, input, none, np.zeros((3, 0, 4), dtype)), input)
    assert_same_bits(check(place, input, np.full(7, 5), any_bits(rng, (3, 7, 4), dtype)), input)
    assert check(place, np.zeros((0, 5, 4), dtype), np.array([1]), np.zeros((0, 1, 4), dtype)).size == 0
    assert check(place, np.zeros((3, 0, 4), dtype), np.array([1]), np.zeros((3, 1, 4), dtype)).size == 0
    assert check(place, np.zeros((3, 5, 0), dtype), np.array([1]), np.zeros((3, 1, 0), dtype)).size == 0


@pytest.mark.parametrize("n", [40, 4000])
@pytest.mark.parametrize("inner", [1, 2, 3, 4, 8, 12])
def test_any_alignment(place: Place, n: int, inner: int, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    """Words of every width that rows consist of, and operands that stand one element past a vector."""
    input, index = any_bits(rng, (1, 90, inner), dtype), rng.integers(0, 90, n)
    source = any_bits(rng, (1, n, inner), dtype)
    expected = oracle.index_copy(input, index, source)
    for first, rows in ((place.misaligned(input), place.array(source)), (place.array(input), place.misaligned(source))):
        found = pybaracuda.index_copy(first, 1, place.array(index), rows)
        assert_same_bits(place.numpy(found), expected)


def test_views_are_copied_first(place: Place, rng: np.random.Generator) -> None:
    input, source = normal(rng, (6, 5, 4), np.float32), normal(rng, (6, 9, 4), np.float32)
    index = rng.integers(0, 5, 9)
    expected = pybaracuda.index_copy(input, 1, index, source)
    found = pybaracuda.index_copy(place.transposed(input), 1, place.every_second(index), place.every_second(source))
    assert_same_bits(place.numpy(found), expected)


def test_output_may_be_input_and_nothing_else(rng: np.random.Generator) -> None:
    memory = normal(rng, (9, 4), np.float32)
    index, source = np.array([1, 1]), normal(rng, (2, 4), np.float32)
    with pytest.raises(ValueError, match="out shares memory with input"):
        pybaracuda.index_copy(memory[:8], 0, index, source, out=memory[1:])
    with pytest.raises(ValueError, match="out shares memory with source"):
        pybaracuda.index_copy(np.zeros((8, 4), np.float32), 0, index, memory[7:], out=memory[:8])
    kept = memory.copy()
    pybaracuda.index_copy(memory, 0, index, source, out=memory)
    kept[1] = source[1]
    assert_same_bits(memory, kept)


def test_gather_is_the_adjoint(place: Place, rng: np.random.Generator) -> None:
    """Of a row that has writers its gradient is the last one's; of others input's."""
    index = rng.integers(0, 30, 50)
    input, source, upstream = (integers(rng, (1, n, 6), np.float64) for n in (30, 50, 30))
    found = check(place, input, index, source)
    last = np.array([i for i in range(50) if index[i] not in index[i + 1 :]])
    kept = np.setdiff1d(np.arange(30), index)
    slopes = (upstream[:, kept] * input[:, kept]).sum() + (upstream[:, index[last]] * source[:, last]).sum()
    assert (found * upstream).sum() == slopes


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_small_problem(data: Any) -> None:
    outer, length, n, inner = (data.draw(st.integers(0, most)) for most in (4, 9, 70, 9))
    index = np.array(data.draw(st.lists(st.integers(-2, length + 1), min_size=n, max_size=n)), np.int64)
    input = np.arange(outer * length * inner, dtype=np.int32).reshape(outer, length, inner)
    source = -1 - np.arange(outer * n * inner, dtype=np.int32).reshape(outer, n, inner)
    assert_same_bits(pybaracuda.index_copy(input, 1, index, source), oracle.index_copy(input, index, source))


ENVIRONMENTS = [
    {"BARACUDA_NUM_THREADS": threads, "BARACUDA_CPU_ISA": isa}
    for threads, isa in (("1", "portable"), ("3", "portable"), ("2", "avx2"), ("7", "avx512"))
]
HASHES = """
import hashlib
import numpy as np
import pybaracuda
digest = hashlib.sha256()
rng = np.random.default_rng(7)
for outer, length, n, inner in ((1, 900, 3000, 100), (2, 20_000, 70_000, 1), (50, 30, 40, 90)):
    index = rng.integers(-1, length + 1, n)
    input, source = (rng.standard_normal((outer, rows, inner)) for rows in (length, n))
    digest.update(pybaracuda.index_copy(input, 1, index, source).tobytes())
    pybaracuda.index_copy(input, 1, index, source, out=input)
    digest.update(input.tobytes())
print(digest.hexdigest())
"""


def test_threads_and_instruction_sets_do_not_change_bits() -> None:
    found = set()
    for variables in ENVIRONMENTS:
        environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", HASHES]
        found.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1


@pytest.mark.skipif(not available("torch"), reason="no torch")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_torch_has_the_same_rows_on_the_cpu(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    """Its kernel there goes through the index in order."""
    torch = importlib.import_module("torch")
    outer, length, n, inner = shape
    arrays = normal(rng, (outer, length, inner), np.float32), normal(rng, (outer, n, inner), np.float32)
    input, source = map(torch.from_numpy, arrays)
    index = torch.from_numpy(rng.integers(0, length, n))
    found = pybaracuda.index_copy(input, 1, index, source)
    assert_same_bits(found.numpy(), torch.index_copy(input, 1, index, source).numpy())
