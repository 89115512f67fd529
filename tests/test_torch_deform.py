# SPDX-License-Identifier: Apache-2.0
"""deform_conv2d through PyTorch: our sampling's bits, PyTorch's products, every gradient; torchvision's route."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch

import pybaracuda
import pybaracuda.torch
from pybaracuda.torch import _deform_function
from pybaracuda.torch._route import ROUTES

STRIDE, PADDING, DILATION = (2, 1), (1, 2), (1, 2)
WINDOW = (STRIDE, PADDING, DILATION)
GROUPS = pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 1), (2, 4)])
MASKED = pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])


class Operands(NamedTuple):
    """What deform_conv2d is called with; all of them take a gradient."""

    input: Any
    offset: Any
    weight: Any
    bias: Any
    mask: Any

    def given(self) -> list[Any]:
        return [each for each in self if each is not None]

    def call(self, *operands: Any) -> Any:
        """The convolution of these operands, or of others in their places."""
        left = list(operands or self.given())
        full = [None if each is None else left.pop(0) for each in self]
        return pybaracuda.torch.deform_conv2d(*full[:4], *WINDOW, full[4])

    def leaves(self) -> Operands:
        return Operands(*(None if each is None else each.detach().clone().requires_grad_() for each in self))


def operands(
    rng: np.random.Generator,
    device: str,
    groups: int = 1,
    offset_groups: int = 1,
    masked: bool = True,
    dtype: Any = torch.float64,
    n: int = 3,
    channels: int = 4,
) -> Operands:
    """Images of 5 x 4 pixels, kernels of 3 x 2; offsets with fractions far from 0 and 1."""
    taps, size = 6, (3, 6)

    def tensor(values: Any, to: Any = dtype) -> Any:
        return torch.tensor(values, dtype=to, device=device).requires_grad_()

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    moves = (n, 2 * offset_groups * taps, *size)
    offset = rng.integers(-2, 3, moves) + rng.uniform(0.25, 0.75, moves)
    mask = rng.uniform(0, 1, (n, offset_groups * taps, *size))
    return Operands(
        tensor(rng.standard_normal((n, channels, 5, 4))),
        tensor(offset, wide),
        tensor(rng.standard_normal((6, channels // groups, 3, 2))),
        tensor(rng.standard_normal(6)),
        tensor(mask, wide) if masked else None,
    )


def composed(given: Operands) -> Any:
    """The same of PyTorch's own operators: grid_sample at pixels' coordinates, a product with masks, matmul."""
    (n, channels, h, w), (oc, each, kh, kw) = given.input.shape, given.weight.shape
    oh, ow = given.offset.shape[2:]
    offset_groups = given.offset.shape[1] // (2 * kh * kw)
    moves = given.offset.reshape(n, offset_groups, kh, kw, 2, oh, ow)
    device = given.input.device
    i, j, oy, ox = (torch.arange(extent, device=device) for extent in (kh, kw, oh, ow))
    y = moves[..., 0, :, :] + (i * DILATION[0])[:, None, None, None] + (oy * STRIDE[0] - PADDING[0])[:, None]
    x = moves[..., 1, :, :] + (j * DILATION[1])[:, None, None] + (ox * STRIDE[1] - PADDING[1])
    grid = torch.stack([2 * x / (w - 1) - 1, 2 * y / (h - 1) - 1], -1).reshape(n * offset_groups, -1, ow, 2)
    images = given.input.reshape(n * offset_groups, -1, h, w)
    columns = torch.nn.functional.grid_sample(images, grid, align_corners=True)
    columns = columns.reshape(n, offset_groups, -1, kh * kw, oh * ow)
    if given.mask is not None:
        columns = columns * given.mask.reshape(n, offset_groups, 1, kh * kw, oh * ow)
    groups = channels // each
    flat = given.weight.reshape(groups, oc // groups, -1)
    output = torch.matmul(flat, columns.reshape(n, groups, flat.shape[2], -1)).reshape(n, oc, oh, ow)
    return output + given.bias.reshape(-1, 1, 1)


@GROUPS
@MASKED
def test_it_is_the_composition_of_pytorchs_operators(
    rng: np.random.Generator, device: str, groups: int, offset_groups: int, masked: bool
) -> None:
    given = operands(rng, device, groups, offset_groups, masked)
    ours, theirs = given.call(), composed(given)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    gradient = torch.tensor(rng.standard_normal(tuple(ours.shape)), device=device)
    for one, two in zip(
        torch.autograd.grad(ours, given.given(), gradient),
        torch.autograd.grad(theirs, given.given(), gradient),
        strict=True,
    ):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@MASKED
def test_the_sampling_has_the_array_functions_bits(
    rng: np.random.Generator, device: str, dtype: Any, masked: bool
) -> None:
    """With a weight of ones and zeros that picks columns, products are exact."""
    given = operands(rng, device, masked=masked, dtype=dtype)
    picks = torch.eye(24, dtype=dtype, device=device).reshape(24, 4, 3, 2)
    given = given._replace(weight=picks.requires_grad_(), bias=None)
    output = given.call()
    window = ((3, 2), *WINDOW)
    mask = None if given.mask is None else given.mask.detach()
    input, offset = given.input.detach(), given.offset.detach()
    columns = pybaracuda.deform_im2col(input, offset, *window, mask)
    assert torch.equal(output.detach().reshape(columns.shape), columns)
    gradient = torch.tensor(rng.standard_normal(tuple(output.shape)), dtype=dtype, device=device)
    moved = [given.input, given.offset] + ([given.mask] if masked else [])
    found = torch.autograd.grad(output, moved, gradient)
    flat = gradient.reshape(columns.shape)
    by_offset = pybaracuda.deform_im2col_offset_backward(flat, input, offset, *window, mask)
    wanted = [pybaracuda.deform_im2col_backward(flat, offset, tuple(input.shape), *window, mask)]
    wanted += list(by_offset) if masked else [by_offset]
    for one, two in zip(found, wanted, strict=True):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)


def test_gradients_that_nobody_asks_for_are_none(rng: np.random.Generator, device: str) -> None:
    whole = operands(rng, device, 2, 2)
    gradient = torch.tensor(rng.standard_normal(tuple(whole.call().shape)), device=device)
    every = torch.autograd.grad(whole.call(), whole.given(), gradient)
    for number in range(len(whole)):
        alone = Operands(*(each.detach() for each in whole))
        alone[number].requires_grad_()
        alone.call().backward(gradient)
        assert torch.equal(alone[number].grad, every[number])
        assert all(each.grad is None for place, each in enumerate(alone) if place != number)


def test_images_in_pieces(rng: np.random.Generator, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many images' columns there is room for; the sum of the weights' gradient alone may round otherwise."""
    given = operands(rng, device, 2, 2, n=5)
    whole = given.call()
    gradient = torch.tensor(rng.standard_normal(tuple(whole.shape)), device=device)
    wanted = torch.autograd.grad(whole, given.given(), gradient)
    bytes_of_an_image = 4 * 6 * 3 * 6 * 8
    for room in (1, 2 * bytes_of_an_image):
        monkeypatch.setattr(_deform_function, "_MOST_COLUMNS", room)
        output = given.call()
        torch.testing.assert_close(output, whole, rtol=1e-13, atol=1e-13)
        found = torch.autograd.grad(output, given.given(), gradient)
        for one, two in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def test_numerical_gradients(rng: np.random.Generator, device: str) -> None:
    given = operands(rng, device, 2, 2, n=1)
    assert torch.autograd.gradcheck(given.call, given.given(), fast_mode=True)


def test_a_second_derivative_is_refused(rng: np.random.Generator, device: str) -> None:
    given = operands(rng, device)
    (gradient,) = torch.autograd.grad(given.call().square().sum(), given.input, create_graph=True)
    with pytest.raises(NotImplementedError, match="deform_conv2d has no second derivative"):
        torch.autograd.grad(gradient.sum(), given.input)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@MASKED
def test_compiled_programs_have_the_eager_bits(
    rng: np.random.Generator, device: str, dynamic: bool, masked: bool
) -> None:
    given = operands(rng, device, 2, 2, masked)
    torch.compiler.reset()
    compiled = torch.compile(given.call, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    eager, output = given.call(), compiled(*given.given())
    assert torch.equal(output, eager)
    gradient = torch.ones_like(eager)
    for one, two in zip(
        torch.autograd.grad(output, given.given(), gradient),
        torch.autograd.grad(eager, given.given(), gradient),
        strict=True,
    ):
        assert torch.equal(one, two)


def test_vmap_is_a_loop(rng: np.random.Generator, device: str) -> None:
    given = operands(rng, device)
    several = torch.stack([given.input.detach() * factor for factor in (1, 2, -1)])
    rest = [each.detach() for each in given.given()[1:]]
    found = torch.vmap(lambda input: given.call(input, *rest))(several)
    for one, input in zip(found, several, strict=True):
        assert torch.equal(one, given.call(input, *rest))


def test_autocast_leaves_it_alone(rng: np.random.Generator, device: str) -> None:
    given = operands(rng, device, dtype=torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        output = given.call()
    assert output.dtype == torch.float32
    assert torch.equal(output, given.call())


@pytest.mark.parametrize(
    ("place", "shape", "text"),
    [
        ("weight", (6, 3, 3, 2), "weight has shape"),
        ("weight", (6, 4, 3), "weight has shape"),
        ("offset", (3, 11, 3, 6), "offset has shape"),
        ("mask", (3, 6, 3, 5), "mask has shape"),
        ("input", (4, 5, 4), "input has shape"),
    ],
)
def test_shapes_that_do_not_fit(
    rng: np.random.Generator, device: str, place: str, shape: tuple[int, ...], text: str
) -> None:
    given = operands(rng, device)
    wrong = given._replace(**{place: torch.zeros(shape, dtype=torch.float64, device=device)})
    with pytest.raises(ValueError, match=text):
        wrong.call()


def test_without_images(device: str) -> None:
    empty = [torch.zeros(shape, device=device) for shape in ((0, 4, 5, 4), (0, 12, 3, 6), (6, 4, 3, 2))]
    leaves = [each.requires_grad_() for each in empty]
    output = pybaracuda.torch.deform_conv2d(*leaves, None, *WINDOW)
    assert output.shape == (0, 6, 3, 6)
    output.sum().backward()
    assert not leaves[2].grad.any()


@GROUPS
@MASKED
def test_the_route_answers_as_torchvisions_operators(
    rng: np.random.Generator, device: str, groups: int, offset_groups: int, masked: bool
) -> None:
    """Called as the dispatcher calls them, wherever torchvision is not installed, too."""
    given = operands(rng, device, groups, offset_groups, masked)
    forward, backward = (ROUTES[f"torchvision::{name}"] for name in ("deform_conv2d", "_deform_conv2d_backward"))
    # Without a mask torchvision's operator gets one of no meaning.
    mask = torch.zeros((3, 1), dtype=torch.float64, device=device) if given.mask is None else given.mask
    tensors = [each.detach() for each in (given.input, given.weight, given.offset, mask, given.bias)]
    numbers = (*STRIDE, *PADDING, *DILATION, groups, offset_groups, masked)
    output = given.call()
    assert forward.refusal(*tensors, *numbers) == ""
    assert torch.equal(forward.run(*tensors, *numbers), output)
    gradient = torch.tensor(rng.standard_normal(tuple(output.shape)), device=device)
    assert backward.refusal(gradient, *tensors, *numbers) == ""
    by_input, by_weight, by_offset, by_mask, by_bias = backward.run(gradient, *tensors, *numbers)
    found = [by_input, by_offset, by_weight, by_bias] + ([by_mask] if masked else [])
    for one, two in zip(found, torch.autograd.grad(output, given.given(), gradient), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-13, atol=1e-13)
    assert by_mask.shape == mask.shape


def test_what_the_route_leaves_to_torchvision(rng: np.random.Generator, device: str) -> None:
    given = operands(rng, device)
    forward = ROUTES["torchvision::deform_conv2d"]
    numbers = (*STRIDE, *PADDING, *DILATION, 1, 1, True)

    def refusal(**other: Any) -> str:
        all_ = given._replace(**other)
        return forward.refusal(all_.input, all_.weight, all_.offset, all_.mask, all_.bias, *numbers)

    assert refusal() == ""
    assert refusal(input=given.input.float()) == "operands of several dtypes"
    assert refusal(offset=given.offset[:, 2:]) == "shapes that do not fit"
    assert refusal(mask=given.mask[:, :, 1:]) == "shapes that do not fit"
    assert refusal(weight=given.weight[:, 1:]) == "shapes that do not fit"
    assert refusal(bias=given.bias[1:]) == "shapes that do not fit"
    empty = {"input": given.input[:0], "offset": given.offset[:0], "mask": given.mask[:0]}
    assert refusal(**empty) == "an empty tensor"
