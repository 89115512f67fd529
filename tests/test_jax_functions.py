# SPDX-License-Identifier: Apache-2.0
"""The functions of pybaracuda.jax: the array functions' bits, under jit, vmap and in gradients; derivatives."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax_cases
import ml_dtypes
import numpy as np
import pytest
import skip_policy
from jax_cases import CASES, FLOATS, WITHOUT_GRADIENT, arrays_of, drawn, fixed, wide
from tolerance import assert_same_bits

import pybaracuda
import pybaracuda.jax

CASE = pytest.mark.parametrize("name", CASES)
DTYPE = pytest.mark.parametrize("token", FLOATS)


@pytest.fixture(params=skip_policy.backends(), autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Runs a test on each kind of device that JAX has."""
    if request.param == "cuda":
        if not pybaracuda.backend_available("cuda"):
            pytest.skip("no CUDA")
        if jax.default_backend() != "gpu":
            pytest.skip("no CUDA")
    with jax.default_device(jax.devices("cpu" if request.param == "cpu" else "gpu")[0]):
        yield request.param


def assert_all_same(actual: Any, expected: Any) -> None:
    pairs = zip(arrays_of(actual), arrays_of(expected), strict=True)
    for one, other in pairs:
        assert_same_bits(one, other)


def cotangent(rng: np.random.Generator, output: Any) -> Any:
    return rng.standard_normal(output.shape).astype(output.dtype)


def subnormal(arrays: list[Any]) -> list[Any]:
    """The arrays scaled so that most of their elements, and of sums and products of them, are subnormal numbers."""
    found = []
    for array in arrays:
        info = ml_dtypes.finfo(array.dtype)
        # Halfway down to the smallest number, in an exact step.
        scaled = array.astype(np.float64) * 2.0 ** (info.minexp - info.nmant // 2)
        # NumPy makes a number of an array without an axis.
        found.append(np.asarray(scaled, array.dtype))
    return found


@CASE
@DTYPE
def test_results_and_gradients_have_the_bits_of_the_array_functions(
    name: str, token: str, rng: np.random.Generator
) -> None:
    case, d, dtype = CASES[name], fixed(rng), FLOATS[token]
    inputs = drawn(case, rng, dtype)
    expected = case.call(pybaracuda, d, *inputs)
    assert case.backward is not None
    with wide(dtype):
        assert_all_same(case.call(pybaracuda.jax, d, *inputs), expected)

        def function(*x: Any) -> Any:
            return case.call(pybaracuda.jax, d, *x)

        grad = cotangent(rng, expected)
        jitted = jax.jit(lambda g, *x: (function(*x), jax.vjp(function, *x)[1](g)))
        # The same program on subnormal numbers: XLA's threads take them as 0, the C functions do not. A grid's
        # coordinates and offsets stay where they are, since all subnormal ones are one place.
        tiny = [*subnormal(inputs[:1]), *inputs[1:]] if name.startswith(("grid", "deform")) else subnormal(inputs)
        problems = ((grad, inputs, expected), (*subnormal([grad]), tiny, case.call(pybaracuda, d, *tiny)))
        for g, x, y in problems:
            output, gradients = jitted(g, *x)
            assert_all_same(output, y)
            if name == "dequantize_per_channel" and g is not grad:
                # Products with scales' cotangents are XLA's, which takes them as 0.
                continue
            assert_all_same(gradients, case.backward(pybaracuda, d, g, y, *x))
    if name.startswith(("pad", "roi", "grid", "segment_max", "segment_min", "segment_gather", "index_copy")):
        sizes = np.abs(arrays_of(problems[1][2])[0].astype(np.float64))
        assert ((sizes > 0) & (sizes < float(ml_dtypes.finfo(dtype).tiny))).any()


@CASE
def test_vmap_is_one_call_with_the_bits_of_a_loop(name: str, rng: np.random.Generator) -> None:
    case, d = CASES[name], fixed(rng)
    problems = [drawn(case, rng, np.float32) for _ in range(6)]
    outputs = [case.call(pybaracuda, d, *each) for each in problems]
    grads = [cotangent(rng, each) for each in outputs]
    stacked = [np.stack(each).reshape((2, 3, *each[0].shape)) for each in zip(*problems, strict=True)]

    def function(*x: Any) -> Any:
        return case.call(pybaracuda.jax, d, *x)

    def gradient(g: Any, *x: Any) -> Any:
        return jax.vjp(function, *x)[1](g)

    def number_of_calls(run: Any, *x: Any) -> int:
        return str(jax.jit(run).lower(*x).as_text()).count("custom_call @pybaracuda")

    forward = jax.jit(jax.vmap(jax.vmap(function))).lower(*stacked).compile()
    assert forward.as_text().count('custom_call_target="pybaracuda') == 1
    result = np.asarray(forward(*stacked))
    assert_same_bits(result.reshape((6, *outputs[0].shape)), np.stack(outputs))
    assert case.backward is not None
    wanted = [
        arrays_of(case.backward(pybaracuda, d, *each))
        for each in [(g, y, *x) for g, y, x in zip(grads, outputs, problems, strict=True)]
    ]
    stacked_grads = np.stack(grads).reshape((2, 3, *grads[0].shape))
    of_gradients = jax.vmap(jax.vmap(gradient))
    once = number_of_calls(gradient, grads[0], *problems[0])
    assert number_of_calls(of_gradients, stacked_grads, *stacked) == once > 0

    # The other order of the two.
    def gradient_of_mapped(g: Any, *x: Any) -> Any:
        return jax.vjp(jax.vmap(jax.vmap(function)), *x)[1](g)

    # In one program, since compiling is what takes time here.
    both = jax.jit(lambda *x: (of_gradients(*x), gradient_of_mapped(*x)))
    for found in both(stacked_grads, *stacked):
        for position, each in enumerate(arrays_of(found)):
            assert_same_bits(each.reshape((6, *each.shape[2:])), np.stack([one[position] for one in wanted]))


@CASE
def test_vmap_over_no_problems_has_no_results(name: str, rng: np.random.Generator) -> None:
    case, d = CASES[name], fixed(rng)
    inputs = drawn(case, rng, np.float32)
    output = case.call(pybaracuda, d, *inputs)

    def function(*x: Any) -> Any:
        return case.call(pybaracuda.jax, d, *x)

    def run(g: Any, *x: Any) -> Any:
        return function(*x), jax.vjp(function, *x)[1](g), jax.jvp(function, x, x)[1]

    nothing = [np.zeros((3, 0, *each.shape), each.dtype) for each in (output, *inputs)]
    found, gradients, moved = jax.jit(jax.vmap(jax.vmap(run)))(*nothing)
    for one, like in zip((found, *gradients, moved), (*nothing, nothing[0]), strict=True):
        assert one.shape == like.shape
        assert one.dtype == like.dtype


def mapped_indices(name: str, d: Any, rng: np.random.Generator) -> list[Any]:
    """Boxes, ids or offsets of four problems."""
    if "roi" in name:
        boxes = d.boxes_3d if "3d" in name else d.boxes
        moved = [boxes + np.array([0, *rng.uniform(-1, 1, boxes.shape[1] - 1)], np.float32) for _ in range(3)]
        return [boxes, *moved]
    if "csr" in name:
        return [d.offsets, *(np.sort(rng.integers(0, 41, 7)).astype(np.int32) for _ in range(3))]
    others = [rng.integers(-2, 8, 40).astype(np.int32) for _ in range(3)]
    return [d.sorted_ids, *map(np.sort, others)] if "sorted" in name else [d.ids, *others]


WITH_INDICES = ("ps_roi", "roi", "segment", "gather", "index_copy")


@pytest.mark.parametrize("name", [each for each in CASES if each.startswith(WITH_INDICES)])
def test_mapped_boxes_ids_and_offsets_are_each_problems_own(name: str, rng: np.random.Generator) -> None:
    case, d = CASES[name], fixed(rng)
    field = "boxes_3d" if "3d" in name else "boxes" if "roi" in name else "offsets" if "csr" in name else "ids"
    field = f"sorted_{field}" if "-sorted" in name else field
    indices = mapped_indices(name, d, rng)
    problems = [drawn(case, rng, np.float32) for _ in indices]

    def with_index(index: Any) -> Any:
        return type(d)(**{**vars(d), field: index})

    outputs = [case.call(pybaracuda, with_index(i), *x) for i, x in zip(indices, problems, strict=True)]
    grads = [cotangent(rng, each) for each in outputs]

    def function(index: Any, x: Any, g: Any) -> Any:
        output, pull = jax.vjp(lambda *y: case.call(pybaracuda.jax, with_index(index), *y), *x)
        return output, pull(g)

    stacked = [np.stack(each) for each in zip(*problems, strict=True)]
    found, gradients = jax.jit(jax.vmap(function))(np.stack(indices), stacked, np.stack(grads))
    assert_same_bits(np.asarray(found), np.stack(outputs))
    assert case.backward is not None
    wanted = [
        arrays_of(case.backward(pybaracuda, with_index(i), g, y, *x))
        for i, g, y, x in zip(indices, grads, outputs, problems, strict=True)
    ]
    for gradient, each in zip(gradients, zip(*wanted, strict=True), strict=True):
        assert_same_bits(np.asarray(gradient), np.stack(each))


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("form", ["unsorted", "sorted", "csr"])
def test_rows_that_hold_a_maximum(reduce: str, form: str, rng: np.random.Generator) -> None:
    d = fixed(rng)
    rows = rng.integers(0, 3, (2, 40, 3)).astype(np.float32)

    def call(m: Any, x: Any, **options: Any) -> Any:
        if form == "csr":
            return m.segment_csr(x, d.offsets, reduce, return_arg=True, **options)
        ids = d.sorted_ids if form == "sorted" else d.ids
        return getattr(m, f"segment_{reduce}")(
            x, ids, 6, indices_are_sorted=form == "sorted", return_arg=True, **options
        )

    expected = [call(pybaracuda, each) for each in rows]
    assert_all_same(call(pybaracuda.jax, rows[0]), expected[0])
    mapped = jax.vmap(lambda x: call(pybaracuda.jax, x))(rows)
    assert_all_same(mapped, [np.stack(each) for each in zip(*expected, strict=True)])
    grad = cotangent(rng, expected[0][0])

    def first(x: Any) -> Any:
        return jax.vjp(lambda y: call(pybaracuda.jax, y, ties="first")[0], x)[1](grad)[0]

    if form == "csr":
        wanted = [pybaracuda.segment_csr_backward(grad, d.offsets, reduce, input=each) for each in rows]
    else:
        backward = getattr(pybaracuda, f"segment_{reduce}_backward")
        ids = d.sorted_ids if form == "sorted" else d.ids
        wanted = [backward(grad, each, ids, indices_are_sorted=form == "sorted") for each in rows]
    assert_all_same(jax.vmap(first)(rows), np.stack(wanted))


@CASE
def test_forward_mode_and_reverse_mode_are_adjoint(name: str, rng: np.random.Generator) -> None:
    case, d = CASES[name], fixed(rng)
    with wide(np.float64):
        inputs = [jnp.asarray(each) for each in drawn(case, rng, np.float64)]
        tangents = [jnp.asarray(rng.standard_normal(each.shape)) for each in inputs]

        def function(*x: Any) -> Any:
            return case.call(pybaracuda.jax, d, *x)

        def run(inputs: Any, tangents: Any, grad: Any) -> Any:
            again = jax.jvp(function, inputs, inputs)[1] if case.is_linear else None
            linear = jax.linearize(function, *inputs)[1](*tangents)
            return *jax.jvp(function, inputs, tangents), linear, jax.vjp(function, *inputs)[1](grad), again

        grad = jnp.asarray(cotangent(rng, case.call(pybaracuda, d, *map(np.asarray, inputs))))
        # In one program, since compiling is what takes time here.
        output, moved, linear, pulled, again = jax.jit(run)(inputs, tangents, grad)
        np.testing.assert_array_equal(np.asarray(moved), np.asarray(linear))
        left = float(jnp.sum(moved * grad))
        products = [one * other for one, other in zip(pulled, tangents, strict=True)]
        right = float(sum(jnp.sum(each) for each in products))
        size = float(jnp.sum(jnp.abs(moved * grad))) + float(sum(jnp.sum(jnp.abs(each)) for each in products))
        # Sums of at most some thousand products in float64, of operators whose results lose a few digits.
        assert abs(left - right) <= 1e-12 * max(size, 1.0)
        assert np.abs(np.asarray(moved)).max() > 0
        if case.is_linear:
            assert_same_bits(np.asarray(again), np.asarray(output))


# Those whose gradient has a derivative by what it is taken at.
TWICE = [each for each in CASES if not each.startswith(("deform", "segment_prod", "segment_csr-prod"))]


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives_are_those_of_the_gradient(name: str, rng: np.random.Generator) -> None:
    case, d = CASES[name], fixed(rng)
    with wide(np.float64):
        # By the first input alone.
        x, *rest = (jnp.asarray(each) for each in drawn(case, rng, np.float64))
        weights = jnp.asarray(rng.standard_normal(case.call(pybaracuda, d, *map(np.asarray, (x, *rest))).shape))
        direction = jnp.asarray(rng.standard_normal(x.shape))

        def loss(y: Any) -> Any:
            output = case.call(pybaracuda.jax, d, y, *rest)
            return jnp.sum(jnp.where(jnp.isfinite(output), jnp.sin(output), 0) * weights)

        gradient = jax.grad(loss)
        step = 1e-6  # dequantize multiplies by up to 255, and a fourth derivative by the fourth power of that
        is_linear = case.is_linear or name.startswith("pad")

        def run(x: Any) -> Any:
            _, forward = jax.jvp(gradient, (x,), (direction,))
            backward = jax.grad(lambda y: jnp.sum(gradient(y) * direction))(x)
            # All directions at once: vmap over derivatives in forward mode of those in reverse mode.
            hessian = jax.hessian(loss)(x).reshape(x.size, x.size) if is_linear else None
            return forward, backward, hessian, [gradient(x + each * direction) for each in (step, -step)]

        forward, backward, hessian, (above, below) = jax.jit(run)(x)
        # Central differences: off by step^2 / 6 times a fourth derivative, and by 1e-16 / step of rounding.
        measured = (above - below) / (2 * step)
        np.testing.assert_allclose(forward, measured, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(backward, measured, rtol=1e-5, atol=1e-6)
        if hessian is not None:
            along = np.asarray(hessian) @ np.asarray(direction).ravel()
            # In float64, sums of some hundred products in other orders.
            np.testing.assert_allclose(along, np.ravel(forward), rtol=1e-9, atol=1e-9)


def test_second_derivatives_that_do_not_exist_say_so(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((40, 2)).astype(np.float32)
    ids = fixed(rng).ids
    with pytest.raises(NotImplementedError, match="segment_prod has no second derivative"):
        jax.eval_shape(jax.hessian(lambda y: jnp.sum(pybaracuda.jax.segment_prod(y, ids, 6))), rows)


def test_hessian_of_grid_sample_by_its_input(rng: np.random.Generator) -> None:
    """Of a sum of squares of A x it is 2 A' A, in both orders of the modes."""
    with wide(np.float64):
        x, grid = rng.standard_normal((1, 2, 3, 4)), rng.uniform(-1.1, 1.1, (1, 5, 3, 2))
        direction = rng.standard_normal(x.shape)

        def loss(y: Any) -> Any:
            return jnp.sum(pybaracuda.jax.grid_sample(y, grid) ** 2)

        def slope(y: Any) -> Any:
            return jax.grad(lambda g: jnp.sum(pybaracuda.jax.grid_sample(y, g) ** 2))(grid)

        def run(x: Any) -> Any:
            jacobian = jax.jacfwd(lambda y: pybaracuda.jax.grid_sample(y, grid))(x)
            hessians = [outer(jax.grad(loss))(x).reshape(24, 24) for outer in (jax.jacfwd, jax.jacrev)]
            _, moved = jax.jvp(slope, (x,), (direction,))
            return jacobian.reshape(30, 24), hessians, moved, slope(x + direction), slope(x - direction)

        jacobian, hessians, moved, above, below = jax.jit(run)(x)
        for hessian in hessians:
            np.testing.assert_allclose(hessian, 2 * jacobian.T @ jacobian, rtol=1e-12, atol=1e-12)
        # How the gradient of the grid moves with the input, by the input's own direction: a quadratic form, of which
        # the difference over any step is exact but for rounding.
        np.testing.assert_allclose(moved, (above - below) / 2, rtol=1e-10, atol=1e-10)


def test_second_derivative_of_grid_sample_by_its_grid_through_the_gradient_of_the_input(
    rng: np.random.Generator,
) -> None:
    with wide(np.float64):
        x, grid = (jnp.asarray(each) for each in drawn(CASES["grid_sample"], rng, np.float64))
        direction = jnp.asarray(rng.standard_normal(x.shape))
        weights = jnp.asarray(rng.standard_normal((2, 3, 4, 5)))

        def slope(g: Any) -> Any:
            gradient = jax.grad(lambda y: jnp.sum(pybaracuda.jax.grid_sample(y, g) * weights))(x)
            return jnp.sum(gradient * direction)

        # The same number: samples of the direction, weighted.
        wanted = jax.grad(lambda g: jnp.sum(pybaracuda.jax.grid_sample(direction, g) * weights))(grid)
        np.testing.assert_allclose(jax.jit(jax.grad(slope))(grid), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["grid_sample", "affine_grid"])
@pytest.mark.parametrize("token", ["f16", "bf16"])
def test_gradients_that_are_narrowed_have_the_one_nan(name: str, token: str, rng: np.random.Generator) -> None:
    case, d, dtype = CASES[name], fixed(rng), FLOATS[token]
    inputs = drawn(case, rng, dtype)
    inputs[0].flat[3] = np.nan
    inputs[0].flat[5] = np.inf
    output = case.call(pybaracuda, d, *inputs)
    grad = cotangent(rng, output)
    grad.flat[::7] = -np.nan
    assert case.backward is not None
    wanted = arrays_of(case.backward(pybaracuda, d, grad, output, *inputs))
    assert any(np.isnan(each.astype(np.float32)).any() for each in wanted)
    pulled = jax.jit(lambda g, *x: jax.vjp(lambda *y: case.call(pybaracuda.jax, d, *y), *x)[1](g))(grad, *inputs)
    assert_all_same(pulled, wanted)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.bool_, np.complex64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_any_number_can_be_padded(dtype: Any, mode: str, rng: np.random.Generator) -> None:
    array = rng.integers(0, 2, (3, 4)).astype(dtype)
    value = 1 if mode == "constant" else 0
    expected = pybaracuda.pad(array, 2, (1, 0), mode, value)
    assert_same_bits(np.asarray(pybaracuda.jax.pad(array, 2, (1, 0), mode, value)), expected)
    assert_same_bits(
        np.asarray(jax.vmap(lambda x: pybaracuda.jax.pad(x, 2, 0, mode, value))(array[None]))[0],
        pybaracuda.pad(array, 2, 0, mode, value),
    )


def test_complex_numbers_are_padded_with_gradients(rng: np.random.Generator) -> None:
    array = (rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))).astype(np.complex64)
    grad = (rng.standard_normal((6, 4)) + 1j * rng.standard_normal((6, 4))).astype(np.complex64)
    (pulled,) = jax.vjp(lambda x: pybaracuda.jax.pad(x, (2, 0), (1, 0), "reflect"), array)[1](grad)
    for part in ("real", "imag"):
        wanted = pybaracuda.pad_backward(np.ascontiguousarray(getattr(grad, part)), (2, 0), (1, 0), "reflect")
        assert_same_bits(np.asarray(getattr(pulled, part)), wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=["i32", "i64"])
@pytest.mark.parametrize("operation", ["sum", "max", "min", "prod"])
def test_integers_by_every_kind_of_ids(dtype: Any, operation: str, rng: np.random.Generator) -> None:
    rows = rng.integers(-9, 9, (40, 2)).astype(dtype)
    name = f"segment_{operation}"
    kinds = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
    for kind in kinds:
        ids = rng.integers(0, 8, 40).astype(kind)
        if kind is np.uint32:
            ids[:3] = 2**32 - 1
        with wide(np.int64):
            result = getattr(pybaracuda.jax, name)(rows, ids, 6)
        assert_same_bits(np.asarray(result), getattr(pybaracuda, name)(rows, ids, 6))


def test_offsets_in_uint32_are_clamped_as_the_array_functions_do(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((9, 2)).astype(np.float32)
    offsets = np.array([0, 3, 5, 2**32 - 1], np.uint32)
    assert_same_bits(np.asarray(pybaracuda.jax.segment_csr(rows, offsets)), pybaracuda.segment_csr(rows, offsets))


@pytest.mark.parametrize(("boxes", "count"), [([], 0), ([(2, 4), (0, 4)], 2), ([(1, 4), (3, 4)], 4)])
def test_boxes_of_each_image(boxes: list[tuple[int, int]], count: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 8, 9)).astype(np.float32)
    each = [rng.uniform(0, 8, shape).astype(np.float32) for shape in boxes]
    result = pybaracuda.jax.roi_align(x, each, 3)
    assert result.shape == (count, 3, 3, 3)
    assert_same_bits(np.asarray(result), pybaracuda.roi_align(x, each, 3))
    assert_all_same(
        pybaracuda.jax.roi_pool(x, each, 3, return_argmax=True), pybaracuda.roi_pool(x, each, 3, return_argmax=True)
    )


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)])
def test_empty_arrays(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x = np.zeros(shape, np.float32)
    grid = rng.uniform(-1, 1, (shape[0], 3, 3, 2)).astype(np.float32)
    assert_same_bits(np.asarray(pybaracuda.jax.grid_sample(x, grid)), pybaracuda.grid_sample(x, grid))
    assert_same_bits(np.asarray(pybaracuda.jax.pad(x, 1, 1)), pybaracuda.pad(x, 1, 1))
    ids = np.zeros(shape[0], np.int32)
    for operation in ("sum", "max", "softmax", "logsumexp"):
        name = f"segment_{operation}"
        result = getattr(pybaracuda.jax, name)(x, ids, 3)
        assert_same_bits(np.asarray(result), getattr(pybaracuda, name)(x, ids, 3))
        (pulled,) = jax.vjp(lambda y: getattr(pybaracuda.jax, name)(y, ids, 3), x)[1](jnp.ones_like(result))  # noqa: B023
        assert pulled.shape == shape
        assert not np.asarray(pulled).any() or operation == "sum"


@CASE
def test_arguments_are_those_of_the_array_functions(name: str) -> None:
    function = name.split("-")[0].removesuffix("_constant")
    function = "pad" if function.startswith("pad") else function
    ours = inspect.signature(getattr(pybaracuda.jax, function)).parameters
    theirs = inspect.signature(getattr(pybaracuda, function)).parameters
    renamed = {"input": "data"} if "data" in ours else {}
    assert {renamed.get(each, each) for each in theirs} - {"out", "stream"} <= set(ours)
    added = {"unique_indices", "bucket_size", "mode", "ties"} if renamed or "csr" in name else set()
    added |= {"boxes_gradient"} if function == "roi_align" else set()
    assert set(ours) <= {renamed.get(each, each) for each in theirs} | added
    for each, parameter in theirs.items():
        if each in ours and each not in ("num_segments", "ties"):
            assert ours[each].default == parameter.default


def test_every_public_function_has_a_case() -> None:
    covered = {each.split("-")[0] for each in CASES}
    functions = {each for each in pybaracuda.jax.__all__ if callable(getattr(pybaracuda.jax, each))}
    functions -= {"deform_conv2d"}  # which no array function is; it has a test of its own
    functions -= {"bincount", "ctc_loss"}  # tests/test_jax_bincount.py, tests/test_jax_ctc.py
    assert {"pad" if each.startswith("pad_") else each for each in covered} == functions - WITHOUT_GRADIENT


def test_every_operator_of_the_array_functions_is_here() -> None:
    functions = {each for each in pybaracuda.__all__ if "out" in _parameters(getattr(pybaracuda, each))}
    operators = {each for each in functions if not each.endswith("_backward")}
    # An older name of segment_max.
    assert operators - {"unsorted_segment_max"} == set(pybaracuda.jax.__all__) - {
        "TARGET",
        "TARGETS",
        "deform_conv2d",
    }


def _parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) if inspect.isfunction(function) else set()


class Long(NamedTuple):
    """Ids and offsets of one problem."""

    ids: Any
    sorted_ids: Any
    offsets: Any


LONG_SUMS = [each for each in CASES if each.startswith(("segment", "gather")) and "empty" not in each]


@pytest.mark.parametrize("name", LONG_SUMS)
def test_mapped_sums_are_cut_where_single_ones_are(name: str, rng: np.random.Generator) -> None:
    """Sums of more terms than a partial sum has, which begin at any row of the call that all problems make."""
    case, num_rows = CASES[name], 3001
    lengths = (num_rows, *case.shapes[0][1:]) if case.shapes[0][0] == 40 else case.shapes[0]
    inputs = rng.standard_normal((3, *lengths)).astype(np.float32)
    indices = [rng.integers(-1, 7, num_rows).astype(np.int32) for _ in inputs]
    offsets = [np.sort(rng.integers(0, num_rows, 7)).astype(np.int32) for _ in inputs]

    def of(position: int) -> Any:
        ids = indices[position]
        return Long(ids, np.sort(ids), offsets[position])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax_cases, "NUM_ROWS", num_rows)
        outputs = [case.call(pybaracuda, of(i), x) for i, x in enumerate(inputs)]
        grads = [cotangent(rng, each) for each in outputs]
        assert case.backward is not None
        wanted = [case.backward(pybaracuda, of(i), grads[i], outputs[i], x) for i, x in enumerate(inputs)]

        def function(ids: Any, sorted_ids: Any, offsets: Any, x: Any, g: Any) -> Any:
            output, pull = jax.vjp(lambda y: case.call(pybaracuda.jax, Long(ids, sorted_ids, offsets), y), x)
            return output, pull(g)[0]

        stacked = [np.stack(each) for each in (indices, [np.sort(each) for each in indices], offsets)]
        found, gradients = jax.jit(jax.vmap(function))(*stacked, inputs, np.stack(grads))
    assert_same_bits(np.asarray(found), np.stack(outputs))
    assert_same_bits(np.asarray(gradients), np.stack(wanted))


def test_mapped_samples_that_crowd_have_the_bits_of_single_ones(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 2, 3, 4, 4)).astype(np.float32)
    grid = rng.uniform(-1, 1, (3, 2, 70, 70, 2)).astype(np.float32)
    grad = rng.standard_normal((3, 2, 3, 70, 70)).astype(np.float32)
    found = jax.vmap(lambda g, *y: jax.vjp(pybaracuda.jax.grid_sample, *y)[1](g))(grad, x, grid)
    wanted = [pybaracuda.grid_sample_backward(*each) for each in zip(grad, x, grid, strict=True)]
    assert_all_same(found, [np.stack(each) for each in zip(*wanted, strict=True)])
    # Every element of the input occurs a thousand times.
    wide_grad = rng.standard_normal((3, 2, 2, 4004)).astype(np.float32)
    (pulled,) = jax.vmap(
        lambda g: jax.vjp(lambda y: pybaracuda.jax.pad(y, (0, 0, 0), (0, 0, 4000), "circular"), x[0, 0, :2, :2])[1](
            g.reshape(2, 2, 4004)
        )
    )(wide_grad)
    wanted = [pybaracuda.pad_backward(each, (0, 0, 0), (0, 0, 4000), "circular") for each in wide_grad]
    assert_same_bits(np.asarray(pulled), np.stack(wanted))


@pytest.mark.parametrize("name", ["roi_align", "roi_pool"])
def test_mapped_gradients_of_many_boxes_are_one_call_s(name: str, rng: np.random.Generator) -> None:
    """Sums over more than 64 boxes may be cut elsewhere than a loop's: where those of all images and boxes are."""
    x = rng.standard_normal((2, 1, 2, 20, 20)).astype(np.float32)
    corners = rng.uniform(0, 12, (2, 300, 2))
    boxes = np.concatenate([np.zeros((2, 300, 1)), corners, corners + rng.uniform(1, 7, (2, 300, 2))], 2)
    boxes = boxes.astype(np.float32)
    grad = rng.standard_normal((2, 300, 2, 3, 3)).astype(np.float32)
    function = getattr(pybaracuda.jax, name)
    found = jax.vmap(lambda g, y, b: jax.vjp(lambda z: function(z, b, 3), y)[1](g)[0])(grad, x, boxes)
    every = boxes.copy()
    every[1, :, 0] = 1
    images, rows, grads = x.reshape(2, 2, 20, 20), every.reshape(600, 5), grad.reshape(600, 2, 3, 3)
    if name == "roi_align":
        wanted = pybaracuda.roi_align_backward(grads, rows, images.shape)
    else:
        argmax = pybaracuda.roi_pool(images, rows, 3, return_argmax=True)[1]
        wanted = pybaracuda.roi_pool_backward(grads, rows, argmax, images.shape)
    assert_same_bits(np.asarray(found).reshape(2, 2, 20, 20), wanted)


def test_boxes_of_roi_align_have_a_gradient_on_request(rng: np.random.Generator) -> None:
    (x,) = drawn(CASES["roi_align"], rng, np.float32)
    boxes, options = fixed(rng).boxes, (1.0, 2, True)
    wanted = pybaracuda.roi_align(x, boxes, (3, 2), *options)
    g = cotangent(rng, wanted)

    def pooled(x: Any, boxes: Any) -> Any:
        return pybaracuda.jax.roi_align(x, boxes, (3, 2), *options, boxes_gradient=True)

    def pulled(x: Any, boxes: Any, g: Any) -> Any:
        output, pull = jax.vjp(pooled, x, boxes)
        return output, *pull(g)

    of_boxes = pybaracuda.roi_align_boxes_backward(g, x, boxes, *options)
    assert np.any(of_boxes)
    results = (wanted, pybaracuda.roi_align_backward(g, boxes, x.shape, *options), of_boxes)
    for function in (pulled, jax.jit(pulled)):
        for found, each in zip(function(x, boxes, g), results, strict=True):
            assert_same_bits(np.asarray(found), each)
    # Of two problems in one call, whose boxes are each their own.
    stacked = jax.jit(jax.vmap(pulled))(np.stack([x, -x]), np.stack([boxes, boxes]), np.stack([g, g]))
    assert_same_bits(np.asarray(stacked[2]), np.stack([of_boxes, -of_boxes]) + 0.0)
    # Without the request they have none.
    plain = jax.grad(lambda boxes: jnp.sum(pybaracuda.jax.roi_align(x, boxes, (3, 2), *options)))(boxes)
    assert not np.any(np.asarray(plain))
    with pytest.raises(NotImplementedError, match="roi_align has no forward mode through its boxes"):
        jax.jvp(pooled, (x, boxes), (x, np.ones_like(boxes)))
    once = jax.grad(lambda boxes: jnp.sum(pooled(x, boxes)))
    with pytest.raises(NotImplementedError, match="the gradient of roi_align's boxes has no derivative"):
        jax.grad(lambda boxes: jnp.sum(once(boxes)))(boxes)
