# SPDX-License-Identifier: Apache-2.0
"""Scans of tensors: the functions with gradients, and PyTorch's operators through install()."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch

import pybaracuda
import pybaracuda.torch

SCANS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not (pybaracuda.backend_available("cuda") and torch.cuda.is_available()):
        pytest.skip("no CUDA")
    return str(request.param)


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()


def first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


def drawn(device: str, dtype: Any, *shape: int) -> Any:
    """Numbers whose products stay in range; some of them are equal."""
    return (1 + torch.randint(-20, 20, shape, device=device) / 64).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", SCANS)
def test_functions_have_the_array_functions_bits(name: str, device: str, dtype: Any) -> None:
    x = drawn(device, dtype, 3, 140, 2).requires_grad_()
    for reverse in (False, True):
        found = getattr(pybaracuda.torch, name)(x, 1, reverse=reverse)
        wanted = getattr(pybaracuda, name)(x.detach(), 1, reverse=reverse)
        assert torch.equal(first(found), first(wanted))
        g = torch.randn(x.shape, device=device).to(dtype)
        (gradient,) = torch.autograd.grad(first(found), x, g)
        if name == "cumsum":
            expected = pybaracuda.cumsum(g, 1, reverse=not reverse)
        elif name in ("cummax", "cummin"):
            assert torch.equal(found[1], wanted[1])
            expected = pybaracuda.cummaxmin_backward(g, wanted[1], 1, reverse=reverse)
        else:
            expected = getattr(pybaracuda, f"{name}_backward")(g, x.detach(), wanted, 1, reverse=reverse)
        assert torch.equal(gradient, expected)


@pytest.mark.parametrize("name", SCANS)
def test_derivatives_are_differences(name: str, device: str) -> None:
    function = getattr(pybaracuda.torch, name)
    x = (torch.randperm(24, device=device).double().reshape(2, 12) / 8 - 1).requires_grad_()
    for reverse in (False, True):

        def values(x: Any, reverse: bool = reverse) -> Any:
            return first(function(x, -1, reverse=reverse))

        assert torch.autograd.gradcheck(values, x)
        assert torch.autograd.gradgradcheck(values, x)


def test_second_derivative_of_products_with_a_zero(device: str) -> None:
    x = torch.tensor([0.5, 0.0, 2.0, -1.5], dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: pybaracuda.torch.cumprod(x, 0), x)
    assert torch.autograd.gradgradcheck(lambda x: pybaracuda.torch.cumprod(x, 0), x)


@pytest.mark.parametrize("name", SCANS)
def test_functions_under_vmap_and_in_compiled_programs(name: str, device: str) -> None:
    function = getattr(pybaracuda.torch, name)
    x = drawn(device, torch.float32, 3, 5, 150)
    together = torch.vmap(lambda row: first(function(row, -1)))(x)
    assert torch.equal(together, first(function(x, -1)))

    def loss(x: Any) -> Any:
        return (first(function(x, -1)) ** 2).sum()

    eager, compiled = x.clone().requires_grad_(), x.clone().requires_grad_()
    loss(eager).backward()
    torch._dynamo.reset()  # what other parameters compiled counts as the same code
    torch.compile(loss, fullgraph=True)(compiled).backward()
    assert torch.equal(eager.grad, compiled.grad)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", SCANS)
def test_installed_calls_have_the_array_functions_bits(name: str, device: str, dtype: Any) -> None:
    x = drawn(device, dtype, 3, 140, 4)
    with pybaracuda.torch.install(devices=device):
        for dim in (0, 1, -1):
            found = getattr(torch, name)(x, dim)
            wanted = getattr(pybaracuda, name)(x, dim)
            pairs = zip(found, wanted, strict=True) if name in ("cummax", "cummin") else [(found, wanted)]
            assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_installed_dtypes_and_variants(name: str, device: str) -> None:
    x = torch.randint(-3, 4, (5, 200), device=device)
    plain = getattr(torch, name)
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool):
        given = x.to(dtype)
        wanted = plain(given, 1)
        with pybaracuda.torch.install(devices=device):
            found = plain(given, 1)
        assert (found.dtype, found.tolist()) == (wanted.dtype, wanted.tolist())
    half = drawn(device, torch.float16, 5, 200)
    with pybaracuda.torch.install(devices=device):
        assert torch.equal(plain(half, 1, dtype=torch.float32), getattr(pybaracuda, name)(half.float(), 1))
        wanted = getattr(pybaracuda, name)(half, 0)
        out = torch.empty_like(half)
        assert torch.equal(plain(half, 0, out=out), wanted)
        assert torch.equal(out, wanted)
        for given in (half.clone(), half.t().contiguous().t()):
            assert getattr(given, f"{name}_")(0) is given
            assert torch.equal(given, wanted)


def test_the_gradient_of_an_installed_sum_is_the_sum_the_other_way(device: str) -> None:
    x = torch.randn(3, 700, device=device, requires_grad=True)
    g = torch.randn(3, 700, device=device)
    with pybaracuda.torch.install(devices=device):
        (gradient,) = torch.autograd.grad(torch.cumsum(x, 1), x, g)
    assert torch.equal(gradient, pybaracuda.cumsum(g, 1, reverse=True))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_a_compiled_program_has_the_eager_bits(name: str, device: str) -> None:
    x = drawn(device, torch.float32, 4, 300)
    function = getattr(torch, name)
    with pybaracuda.torch.install(devices=device):
        assert torch.equal(torch.compile(lambda x: function(x, 1), fullgraph=True)(x), function(x, 1))


def test_what_pytorch_refuses_it_still_refuses(device: str) -> None:
    x = torch.zeros(2, 3, device=device)
    with pybaracuda.torch.install(devices=device):
        with pytest.raises(IndexError, match="Dimension out of range"):
            torch.cumsum(x, 2)
        with pytest.raises(RuntimeError, match=r"dtype|type"):
            x.to(torch.int32).cumsum_(0, dtype=torch.float64)
        assert torch.cumsum(x.to(torch.complex64), 1).dtype == torch.complex64
        assert torch.cumsum(x[:0], 1).shape == (0, 3)


def test_the_flag_for_determinism_refuses_nothing(device: str) -> None:
    x = torch.randn(20_000, device=device)
    before = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(True)
        with pybaracuda.torch.install(devices=device):
            assert torch.equal(torch.cumsum(x, 0), pybaracuda.cumsum(x, 0))
    finally:
        torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize("name", ["cumsum_", "cumprod_"])
def test_a_scan_in_place_of_what_has_a_gradient(name: str, device: str) -> None:
    leaf = (drawn(device, torch.float32, 128, 600) / 100 + 1).requires_grad_()
    gradients = []
    for is_in_place in (False, True):
        with pybaracuda.torch.install(devices=device):
            once = leaf * 1
            found = getattr(once, name)(1) if is_in_place else getattr(once, name.removesuffix("_"))(1)
            (gradient,) = torch.autograd.grad((found * found.detach()).sum(), leaf)
        gradients.append(gradient)
    assert torch.equal(*gradients)
