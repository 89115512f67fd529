# SPDX-License-Identifier: Apache-2.0
"""deform_conv2d in JAX: our columns and their gradients, JAX's products, every operand's gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from place import available

if not available("jax"):
    pytest.skip("no JAX", allow_module_level=True)

import jax
import jax.numpy as jnp
from jax_cases import wide

import pybaracuda
import pybaracuda.jax

WINDOW = ((2, 1), (1, 2), (1, 2))
GROUPS = pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 1), (2, 4)])
MASKED = pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])


def operands(rng: np.random.Generator, groups: int, offset_groups: int, masked: bool) -> list[Any]:
    """Images of 5 x 4 pixels, kernels of 3 x 2: input, offset, weight, bias, mask."""
    moves = [(3, count * offset_groups * 6, 3, 6) for count in (2, 1)]
    found = [rng.standard_normal(shape) for shape in ((3, 4, 5, 4), moves[0], (6, 4 // groups, 3, 2), (6,))]
    return [*found, rng.uniform(0, 1, moves[1]) if masked else None]


def call(input: Any, offset: Any, weight: Any, bias: Any, mask: Any) -> Any:
    return pybaracuda.jax.deform_conv2d(input, offset, weight, bias, *WINDOW, mask)


@GROUPS
@MASKED
def test_results_and_gradients(rng: np.random.Generator, groups: int, offset_groups: int, masked: bool) -> None:
    """Those of the array functions' columns and of NumPy's products, in float64."""
    given = operands(rng, groups, offset_groups, masked)
    input, offset, weight, bias, mask = given
    window = ((3, 2), *WINDOW, mask)
    columns = pybaracuda.deform_im2col(input, offset, *window)
    flat = weight.reshape(groups, 6 // groups, -1)
    by_group = columns.reshape(3, groups, flat.shape[2], -1)
    gradient = rng.standard_normal((3, 6, 3, 6))
    of_products = gradient.reshape(3, groups, 6 // groups, -1)
    by_columns = (flat.swapaxes(1, 2) @ of_products).reshape(columns.shape)
    by_moves = pybaracuda.deform_im2col_offset_backward(by_columns, input, offset, *window)
    wanted = [
        pybaracuda.deform_im2col_backward(by_columns, offset, input.shape, *window),
        by_moves[0] if masked else by_moves,
        (of_products @ by_group.swapaxes(2, 3)).sum(0).reshape(weight.shape),
        gradient.sum((0, 2, 3)),
        *([by_moves[1]] if masked else []),
    ]
    with wide(np.float64):
        output, pull = jax.jit(lambda *x: jax.vjp(call, *x))(*given)
        found = [each for each in pull(jnp.asarray(gradient)) if each is not None]
        expected = (flat @ by_group).reshape(output.shape) + bias.reshape(-1, 1, 1)
        np.testing.assert_allclose(output, expected, rtol=1e-12, atol=1e-12)
        assert len(found) == len(wanted)
        for one, two in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


@MASKED
def test_vmap_is_a_loop(rng: np.random.Generator, masked: bool) -> None:
    several = [operands(rng, 2, 2, masked) for _ in range(3)]
    stacked = [None if each[0] is None else np.stack(each) for each in zip(*several, strict=True)]
    with wide(np.float64):
        found = jax.jit(jax.vmap(call))(*stacked)
        for one, given in zip(found, several, strict=True):
            np.testing.assert_allclose(one, call(*given), rtol=1e-12, atol=1e-12)


def test_forward_mode_is_the_reverse_modes_adjoint(rng: np.random.Generator) -> None:
    given, moved = (operands(rng, 2, 2, True) for _ in range(2))
    with wide(np.float64):
        output, along = jax.jvp(call, tuple(given), tuple(moved))
        back = jax.vjp(call, *given)[1](output)
        sums = (sum(float(jnp.vdot(one, two)) for one, two in zip(back, moved, strict=True)), jnp.vdot(output, along))
    np.testing.assert_allclose(*sums, rtol=1e-10)


def test_second_derivatives_exist_by_the_input_alone(rng: np.random.Generator) -> None:
    given = operands(rng, 1, 1, True)
    with wide(np.float64):

        def energy(input: Any, offset: Any) -> Any:
            return (call(input, offset, *given[2:]) ** 2).sum()

        of_input = jax.grad(lambda input: (jax.grad(energy)(input, given[1]) ** 2).sum())(given[0])
        assert np.isfinite(of_input).all()
        with pytest.raises(NotImplementedError, match="no second derivative"):
            jax.grad(lambda offset: (jax.grad(energy)(given[0], offset) ** 2).sum())(given[1])


@pytest.mark.parametrize(
    ("place", "shape", "text"),
    [(2, (6, 3, 3, 2), "weight has shape"), (2, (6, 4, 3), "weight has shape"), (1, (3, 11, 3, 6), "offset has shape")],
)
def test_shapes_that_do_not_fit(rng: np.random.Generator, place: int, shape: tuple[int, ...], text: str) -> None:
    given = [None if each is None else each.astype(np.float32) for each in operands(rng, 1, 1, True)]
    given[place] = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match=text):
        call(*given)
    with pytest.raises(TypeError, match="weight has dtype"):
        call(*given[:2], np.zeros((6, 4, 3, 2), np.float16), *given[3:]) if place == 2 else call(
            given[0].astype(np.float16), *given[1:]
        )
