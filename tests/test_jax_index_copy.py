# SPDX-License-Identifier: Apache-2.0
"""index_copy in JAX: any dtype, index and axis, mapped calls, derivatives; more of its bits are with those of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from place import available

if not available("jax"):
    pytest.skip("no jax", allow_module_level=True)

import jax
import jax.numpy as jnp
import ml_dtypes
from jax.test_util import check_grads
from jax_cases import gradient_of_copied_rows, wide
from lattice import any_bits, normal
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax as bj
from verify.definitions import index_copy as oracle

INDICES = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
BYTES = (np.int8, np.uint8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
DTYPES = (
    *(*BYTES, np.bool_, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    *(ml_dtypes.bfloat16, np.float16, np.float32, np.float64, np.complex64, np.complex128),
)
SHAPE = (3, 6, 5)


def rows_of(shape: tuple[int, ...], dim: int, n: int) -> tuple[int, ...]:
    """The shape of n rows along an axis."""
    axis = dim % len(shape)
    return (*shape[:axis], n, *shape[axis + 1 :])


def bytes_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Every kind of number, as far as arrays hold them: random bytes."""
    if np.dtype(dtype) == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(size), np.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize("moved", DTYPES, ids=lambda dtype: dtype.__name__)
def test_any_dtype_is_moved_along_every_axis(moved: Any, rng: np.random.Generator) -> None:
    with wide(np.int64):
        for dim in (0, 1, 2, -3, -1):
            index = rng.integers(-1, SHAPE[dim] + 1, 9)
            input, source = (bytes_of(rng, shape, moved) for shape in (SHAPE, rows_of(SHAPE, dim, 9)))
            found = jax.jit(bj.index_copy, static_argnums=1)(input, dim, index, source)
            assert found.dtype == moved
            assert np.asarray(found).tobytes() == pybaracuda.index_copy(input, dim, index, source).tobytes()
            table, rows = (np.moveaxis(each, dim, 0)[None] for each in (input, source))
            expected = oracle.index_copy(table, index, rows)[0]
            assert np.moveaxis(np.asarray(found), dim, 0).tobytes() == expected.tobytes()


@pytest.mark.parametrize("index", INDICES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("is_wide", [False, True], ids=["", "64-bit"])
def test_every_kind_of_index(index: Any, is_wide: bool, rng: np.random.Generator) -> None:
    limits, signed = np.iinfo(index), np.iinfo(index).min < 0
    bad = [6, limits.max, limits.min if signed else limits.max - 1, -1 if signed else 7]
    if np.dtype(index).itemsize == 8 and not is_wide:
        # JAX itself makes 32 bits of such numbers before they come to us.
        bad = [6, 7]
    entries = np.concatenate([rng.integers(0, 6, 20).astype(index), np.array(bad, index)])
    input, source = any_bits(rng, (2, 6, 3), np.float32), any_bits(rng, (2, len(entries), 3), np.float32)
    with wide(np.int64 if is_wide else np.int32):
        found = [each(input, 1, entries, source) for each in (bj.index_copy, jax.jit(bj.index_copy, static_argnums=1))]
    for each in found:
        assert_same_bits(np.asarray(each), pybaracuda.index_copy(input, 1, entries, source))


def test_rows_are_known() -> None:
    """By hand: the last of a place stays and has its gradient, what is out of range is dropped and has none."""
    input, source = jnp.arange(8.0).reshape(4, 2), -jnp.arange(1.0, 11).reshape(5, 2)
    index, weights = jnp.array([2, 0, 2, 4, -1]), jnp.array([[1.0, 2], [3, 4], [5, 6], [7, 8]])
    found = bj.index_copy(input, 0, index, source)
    assert found.tolist() == [[-3, -4], [2, 3], [-5, -6], [6, 7]]
    slopes = jax.grad(lambda x, s: (bj.index_copy(x, 0, index, s) * weights).sum(), (0, 1))(input, source)
    assert slopes[0].tolist() == [[0, 0], [3, 4], [0, 0], [7, 8]]
    assert slopes[1].tolist() == [[0, 0], [1, 2], [5, 6], [0, 0], [0, 0]]


# Which operands are mapped, and along which axes; the index is each problem's own, or one of all.
MAPPED = [(0, 0, 0), (0, None, 0), (None, 0, None), (2, 0, None), (None, 1, 3), (None, None, 1)]


@pytest.mark.parametrize("axes", MAPPED, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("moved", [np.float32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
def test_mapped_calls_are_each_problem_s_own(
    moved: Any, dim: int, axes: tuple[int | None, ...], rng: np.random.Generator
) -> None:
    shapes = (SHAPE, (8,), rows_of(SHAPE, dim, 8))
    input, index, source = (
        rng.integers(-3, SHAPE[dim] + 3, (4, *shape)).astype(np.int32)
        if position == 1
        else any_bits(rng, (4, *shape), moved)
        for position, shape in enumerate(shapes)
    )
    given = [
        each[0] if axis is None else np.moveaxis(each, 0, axis)
        for each, axis in zip((input, index, source), axes, strict=True)
    ]
    program = jax.jit(jax.vmap(lambda x, i, s: bj.index_copy(x, dim, i, s), axes)).lower(*given)
    assert program.as_text().count("custom_call @pybaracuda") == 1
    found = np.asarray(program.compile()(*given))
    for number in range(4):
        one = [each[0 if axis is None else number] for each, axis in zip((input, index, source), axes, strict=True)]
        assert_same_bits(found[number], pybaracuda.index_copy(one[0], dim, *one[1:]))


def test_mapped_twice_with_gradients(rng: np.random.Generator) -> None:
    input, source = normal(rng, (2, 3, *SHAPE), np.float32), normal(rng, (2, 3, 3, 8, 5), np.float32)
    index, upstream = rng.integers(-2, 8, (2, 3, 8)).astype(np.int32), normal(rng, (2, 3, *SHAPE), np.float32)

    def pulled(x: Any, i: Any, s: Any, g: Any) -> Any:
        return jax.vjp(lambda x, s: bj.index_copy(x, 1, i, s), x, s)[1](g)

    by_input, by_source = jax.jit(jax.vmap(jax.vmap(pulled)))(input, index, source, upstream)
    for place in np.ndindex(2, 3):
        nothing = np.zeros_like(source[place])
        assert_same_bits(np.asarray(by_input[place]), pybaracuda.index_copy(upstream[place], 1, index[place], nothing))
        wanted = gradient_of_copied_rows(upstream[place], 1, index[place], 8)
        assert_same_bits(np.asarray(by_source[place]), wanted)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_derivatives_of_both_modes_and_orders(dim: int, rng: np.random.Generator) -> None:
    index = np.array([1, 0, 1, 7, -1, 1])
    with wide(np.float64):
        x, s = normal(rng, (3, 4, 3), np.float64), normal(rng, rows_of((3, 4, 3), dim, 6), np.float64)
        check_grads(lambda x, s: jnp.sin(bj.index_copy(jnp.cos(x), dim, index, s * s)), (x, s), 2, ["fwd", "rev"])
        # Each operand alone, the other one a constant.
        check_grads(lambda x: bj.index_copy(x, dim, index, s) ** 2, (x,), 2, ["fwd", "rev"])
        check_grads(lambda s: bj.index_copy(x, dim, index, s) ** 2, (s,), 2, ["fwd", "rev"])


def test_tangents_are_copied(rng: np.random.Generator) -> None:
    index = np.array([1, 0, 1, 7, -1])
    x, s, along_x, along_s = (normal(rng, (n, 3), np.float32) for n in (4, 5, 4, 5))
    nothing, no_rows = np.zeros_like(x), np.zeros_like(s)
    for tangents, moved in (
        ((along_x, along_s), (along_x, along_s)),
        ((along_x, None), (along_x, no_rows)),
        ((None, along_s), (nothing, along_s)),
    ):
        given = [(primal, tangent) for primal, tangent in zip((x, s), tangents, strict=True) if tangent is not None]

        def function(*moving: Any, tangents: Any = tangents) -> Any:
            rest = iter(moving)
            operands = [each if t is None else next(rest) for each, t in zip((x, s), tangents, strict=True)]
            return bj.index_copy(operands[0], 0, index, operands[1])

        output, tangent = jax.jvp(function, *(tuple(each) for each in zip(*given, strict=True)))
        assert_same_bits(np.asarray(output), pybaracuda.index_copy(x, 0, index, s))
        assert_same_bits(np.asarray(tangent), pybaracuda.index_copy(moved[0], 0, index, moved[1]))


def test_complex_numbers_have_gradients(rng: np.random.Generator) -> None:
    x, s, g = (normal(rng, (n, 2), np.float32) + 1j * normal(rng, (n, 2), np.float32) for n in (4, 5, 4))
    index = np.array([1, 0, 1, 7, -1])
    by_input, by_source = jax.vjp(lambda x, s: bj.index_copy(x, 0, index, s), x, s)[1](g)
    assert_same_bits(np.asarray(by_input), pybaracuda.index_copy(g, 0, index, np.zeros_like(s)))
    assert_same_bits(np.asarray(by_source), gradient_of_copied_rows(g, 0, index, 5))


def test_integers_have_none_and_are_in_the_way_of_none(rng: np.random.Generator) -> None:
    table, rows = rng.integers(0, 9, (4, 3)).astype(np.int32), rng.integers(0, 9, (5, 3)).astype(np.int32)
    index, x = np.array([1, 0, 1, 7, -1]), normal(rng, (4, 3), np.float32)
    copied = pybaracuda.index_copy(table, 0, index, rows)
    slopes = jax.grad(lambda x: (x * bj.index_copy(table, 0, index, rows)).sum())(x)
    assert_same_bits(np.asarray(slopes), copied.astype(np.float32))
    nothing = tuple(np.zeros(each.shape, jax.dtypes.float0) for each in (table, rows))
    _, tangent = jax.jvp(lambda t, r: bj.index_copy(t, 0, index, r), (table, rows), nothing)
    assert tangent.dtype == jax.dtypes.float0
    # Tangents of indices, as JAX spells them.
    _, tangent = jax.jvp(lambda x, i: bj.index_copy(x, 0, i, x), (x, index[:4]), (x, np.zeros(4, jax.dtypes.float0)))
    assert_same_bits(np.asarray(tangent), pybaracuda.index_copy(x, 0, index[:4], x))


@pytest.mark.parametrize(("shape", "n"), [((3, 5, 4), 0), ((0, 5, 4), 3), ((3, 0, 4), 3), ((3, 5, 0), 3)], ids=str)
def test_nothing(shape: tuple[int, ...], n: int, rng: np.random.Generator) -> None:
    x, s, index = normal(rng, shape, np.float32), normal(rng, rows_of(shape, 1, n), np.float32), np.zeros(n, np.int32)

    def run(x: Any, i: Any, s: Any) -> Any:
        output, pull = jax.vjp(lambda x, s: bj.index_copy(x, 1, i, s), x, s)
        return output, *pull(output)

    wanted = pybaracuda.index_copy(x, 1, index, s)
    expected = (wanted, pybaracuda.index_copy(wanted, 1, index, s * 0), gradient_of_copied_rows(wanted, 1, index, n))
    for found, each in zip(jax.jit(run)(x, index, s), expected, strict=True):
        assert_same_bits(np.asarray(found), each)
    for found, each in zip(jax.vmap(run)(*(np.stack([y, y]) for y in (x, index, s))), expected, strict=True):
        assert_same_bits(np.asarray(found), np.stack([each, each]))


def test_a_cache_that_a_scan_fills(rng: np.random.Generator) -> None:
    """Each step puts a row of each sequence at a place of its own; the gradient goes back through all of them."""
    cache, rows = normal(rng, (3, 8, 4), np.float32), normal(rng, (10, 3, 1, 4), np.float32)
    places = rng.integers(-1, 9, (10, 3, 1)).astype(np.int32)

    def step(cache: Any, each: Any) -> Any:
        return jax.vmap(lambda c, i, s: bj.index_copy(c, 0, i, s))(cache, *each), None

    def filled(cache: Any, rows: Any) -> Any:
        return jax.lax.scan(step, cache, (places, rows))[0]

    output, pull = jax.vjp(jax.jit(filled), cache, rows)
    of_cache, of_rows = pull(output)
    for b in range(3):
        steps = np.ascontiguousarray(rows[:, b, 0])
        assert_same_bits(np.asarray(output[b]), pybaracuda.index_copy(cache[b], 0, places[:, b, 0], steps))
        assert_same_bits(np.asarray(of_rows[:, b, 0]), gradient_of_copied_rows(output[b], 0, places[:, b, 0], 10))
        nothing = np.zeros_like(steps)
        assert_same_bits(
            np.asarray(of_cache[b]), pybaracuda.index_copy(np.asarray(output[b]), 0, places[:, b, 0], nothing)
        )


@pytest.mark.parametrize("n", [3, 20])
def test_few_rows_are_put_in_place_where_nothing_else_reads_the_input(n: int, rng: np.random.Generator) -> None:
    x, s = normal(rng, (20, 64), np.float32), normal(rng, (n, 64), np.float32)
    index = rng.integers(-1, 21, n).astype(np.int32)
    expected = pybaracuda.index_copy(x, 0, index, s)
    # In memory of XLA's own: NumPy's, which device_put may take, cannot be donated.
    given = jax.device_put(x) * np.float32(1)
    # Read by others: before, in the same program, and after.
    found, twice = jax.jit(lambda x: (bj.index_copy(x, 0, index, s), x + x))(given)
    assert_same_bits(np.asarray(found), expected)
    assert_same_bits(np.asarray(twice), x + x)
    assert_same_bits(np.asarray(bj.index_copy(given, 0, index, s)), expected)
    assert_same_bits(np.asarray(given), x)

    def many(x: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda _, y: bj.index_copy(y, 0, index, s), x)

    program = jax.jit(many, donate_argnums=0).lower(given).compile()
    assert ("output_to_operand_aliasing" in program.as_text()) == (2 * n <= 20)
    place = given.unsafe_buffer_pointer()
    found = program(given)
    assert_same_bits(np.asarray(found), expected)
    if 2 * n <= 20:
        assert found.unsafe_buffer_pointer() == place


def test_jax_puts_the_same_rows_where_each_place_has_one(rng: np.random.Generator) -> None:
    index = np.concatenate([rng.permutation(20)[:12], [20, 99]]).astype(np.int32)
    x, s, g = normal(rng, (20, 3), np.float32), normal(rng, (14, 3), np.float32), normal(rng, (20, 3), np.float32)

    def both(x: Any, s: Any) -> Any:
        return bj.index_copy(x, 0, index, s), x.at[index].set(s, mode="drop")

    (ours, theirs), pull = jax.vjp(both, jnp.asarray(x), jnp.asarray(s))
    assert_same_bits(np.asarray(ours), np.asarray(theirs))
    for one, other in zip(pull((g, g * 0)), pull((g * 0, g)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_jax_counts_negative_indices_from_the_end(rng: np.random.Generator) -> None:
    x, s = normal(rng, (5, 2), np.float32), normal(rng, (1, 2), np.float32)
    assert_same_bits(np.asarray(jnp.asarray(x).at[np.array([-2])].set(s)[3]), s[0])
    assert_same_bits(np.asarray(bj.index_copy(x, 0, np.array([-2]), s)), x)


def test_more_rows_than_an_index_of_32_bits_names() -> None:
    """Of no elements, so that nothing is large but the numbers; read in the programs, which are not run."""

    def operands_of(function: Any, *arrays: tuple[tuple[int, ...], Any]) -> list[str]:
        text = jax.jit(function).lower(*(jax.ShapeDtypeStruct(*each) for each in arrays)).as_text()
        calls = [line for line in text.splitlines() if "custom_call @pybaracuda" in line]
        return [each.rpartition(": (")[2].split(") ->")[0] for each in calls]

    def copy(x: Any, i: Any, s: Any) -> Any:
        return bj.index_copy(x, 0, i, s)

    f32, i32 = np.float32, np.int32
    mapped = [((2, 2**30, 0), f32), ((2, 5), i32), ((2, 5, 0), f32)]
    assert operands_of(jax.vmap(copy), *mapped) == ["tensor<2147483648x0xf32>, tensor<10xi64>, tensor<10x0xf32>"]
    mapped[0] = ((2, 2**30 - 1, 0), f32)
    assert operands_of(jax.vmap(copy), *mapped) == ["tensor<2147483646x0xf32>, tensor<10xi32>, tensor<10x0xf32>"]
    found = operands_of(copy, ((2**32, 0), f32), ((5,), np.uint32), ((5, 0), f32))
    assert found == ["tensor<4294967296x0xf32>, tensor<5xi64>, tensor<5x0xf32>"]
    # Rows of a source that numbers of 32 bits do not count.
    pulled = operands_of(
        lambda x, i, s: jax.vjp(lambda s: copy(x, i, s), s)[1](x)[0], ((4,), f32), ((2**31,), i32), ((2**31,), f32)
    )
    assert pulled == [
        "tensor<4xi64>, tensor<2147483648xi32>, tensor<2147483648xi64>",
        "tensor<2147483648xf32>, tensor<4xi64>, tensor<4xf32>",
    ]
    with pytest.raises(pybaracuda.InvalidProblemError, match="vmap: 4611686018427387904 times 4 rows; wanted at most"):
        operands_of(
            jax.vmap(jax.vmap(copy)), *(((2**31, 2**31, *s), d) for s, d in (((4, 0), f32), ((5,), i32), ((5, 0), f32)))
        )


@pytest.mark.parametrize("length", [6, 2**30, 2**33 + 5])
def test_numbers_of_the_rows_of_all_problems(length: int) -> None:
    from pybaracuda.jax._index_copy import _IndexCopy

    places = [0, 5, length - 1, length, -1]
    entries = np.array([each if each < 2**31 else -7 for each in places], np.int32)

    program = jax.jit(lambda x, i, s: _IndexCopy(-2).fold(3, [x, i, s])[1][1])
    rows = [np.zeros((3, n, 0), np.float32) for n in (length, 5)]
    found = np.asarray(program(rows[0], np.stack([entries] * 3), rows[1]))
    wanted = [
        each + start if 0 <= each < length else -1 for start in (0, length, 2 * length) for each in entries.tolist()
    ]
    assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, i: bj.index_copy(x, 3, i, x), ValueError, "dim is 3; wanted -2..1"),
        (lambda x, i: bj.index_copy(x, 2, i, x), ValueError, "dim is 2; wanted -2..1"),
        (lambda x, i: bj.index_copy(x, -3, i, x), ValueError, "dim is -3; wanted -2..1"),
        (lambda x, i: bj.index_copy(x, 0.0, i, x), TypeError, "dim: wanted an int"),
        (lambda x, i: bj.index_copy(x, 1, i, x), ValueError, r"source has shape \(4, 3\); wanted \(4, 4\)"),
        (lambda x, i: bj.index_copy(x, 0, i, x[0]), ValueError, r"source has shape \(3,\); wanted \(4, 3\)"),
        (lambda x, i: bj.index_copy(x, 0, i, x.astype(int)), TypeError, "source has dtype int32; wanted float32"),
        (lambda x, i: bj.index_copy(x, 0, i.reshape(2, 2), x), ValueError, r"index has shape \(2, 2\); wanted \[N\]"),
        (lambda x, i: bj.index_copy(x, 0, i * 1.0, x), TypeError, "index has dtype float32; wanted int32"),
        (lambda x, i: bj.index_copy(x[0, 0], 0, i, x[0, 0]), ValueError, r"input has shape \(\); wanted at least one"),
        (lambda x, i: bj.index_copy(x[0, 0], 1, i, x[0, 0]), ValueError, r"input has shape \(\); wanted at least one"),
    ],
)
def test_mistakes_are_said_when_a_program_is_traced(call: Any, error: Any, message: str) -> None:
    x, i = jnp.ones((4, 3)), jnp.zeros(4, jnp.int32)
    for function, arrays in ((call, (x, i)), (jax.jit(call), (x, i)), (jax.vmap(call), (x[None], i[None]))):
        with pytest.raises(error, match=message):
            function(*arrays)
