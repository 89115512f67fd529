# SPDX-License-Identifier: Apache-2.0
"""Order statistics and histograms of tensors: functions with gradients, and PyTorch's operators through install()."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch_calls import Hits, messages

import pybaracuda
import pybaracuda.torch
from pybaracuda.torch._route import ROUTES

NAMES = ("kthvalue", "median", "nanmedian", "mode")
NAME = pytest.mark.parametrize("name", NAMES)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    pybaracuda.torch.uninstall()


def ranked(name: str, *others: Any) -> tuple[Any, ...]:
    return (3, *others) if name == "kthvalue" else others


def drawn(device: str, dtype: Any, *shape: int) -> Any:
    """Numbers of which most are there several times."""
    return (torch.randint(-6, 6, shape, device=device) / 4).to(dtype)


@FLOAT
@NAME
@pytest.mark.parametrize("keepdim", [False, True])
def test_functions_have_the_array_functions_bits(keepdim: bool, name: str, device: str, dtype: Any) -> None:
    x = drawn(device, dtype, 3, 140, 2).requires_grad_()
    options = ranked(name, 1, keepdim)
    values, indices = getattr(pybaracuda.torch, name)(x, *options)
    wanted = getattr(pybaracuda, name)(x.detach(), *options)
    assert torch.equal(values, wanted[0])
    assert torch.equal(indices, wanted[1])
    g = torch.randn(values.shape, device=device).to(dtype)
    (gradient,) = torch.autograd.grad(values, x, g)
    assert torch.equal(gradient, pybaracuda.value_selecting_reduction_backward(g, indices, x.shape, 1, keepdim))


@NAME
@pytest.mark.parametrize("keepdim", [False, True])
def test_derivatives_are_differences(keepdim: bool, name: str, device: str) -> None:
    function, options = getattr(pybaracuda.torch, name), ranked(name, -1, keepdim)
    x = (torch.randperm(24, device=device).double().reshape(2, 12) / 8 - 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: function(x, *options)[0], x)
    assert torch.autograd.gradgradcheck(lambda x: function(x, *options)[0].square(), x)
    number = torch.tensor(2.0, dtype=torch.float64, device=device, requires_grad=True)
    (slope,) = torch.autograd.grad(function(number, *ranked(name, 0, keepdim)[-2:])[0] if name != "kthvalue" else
                                   function(number, 1, 0, keepdim)[0], number)  # fmt: skip
    assert slope == 1


@FLOAT
@NAME
def test_installed_calls_answer_as_the_functions_do(name: str, device: str, dtype: Any) -> None:
    x = drawn(device, dtype, 4, 50, 3).requires_grad_()
    for dim, keepdim in ((1, False), (-1, True), (0, False)):
        options = ranked(name, dim, keepdim)
        with pybaracuda.torch.install(devices=device):
            found = getattr(torch, name)(x, *options)
            (gradient,) = torch.autograd.grad(found.values.sum(), x)
        values, indices = getattr(pybaracuda.torch, name)(x, *options)
        assert torch.equal(found.values, values)
        assert torch.equal(found.indices, indices)
        (slopes,) = torch.autograd.grad(values.sum(), x)
        assert torch.equal(gradient, slopes)


@NAME
def test_dtypes_without_kernels(name: str, device: str) -> None:
    """16-bit integers, and bools, of which PyTorch has the most frequent one alone."""
    for dtype in (torch.int16, torch.bool) if name == "mode" else (torch.int16,):
        drawn_numbers = torch.randint(-7, 7, (4, 301, 3), device=device)
        x = (drawn_numbers * 4681 if dtype == torch.int16 else drawn_numbers > 1).to(dtype)  # up to either end
        assert x.dtype == torch.bool or x.min() == -(2**15) + 1
        options = ranked(name, 1)
        values, indices = getattr(pybaracuda, name)(x.int(), *options)
        out = torch.empty_like(values, dtype=dtype), torch.empty_like(indices)
        operators = [operator for operator, route in ROUTES.items() if route.group == name]
        assert len(operators) == 2
        with pybaracuda.torch.install(devices=device), Hits(*operators):
            found = getattr(torch, name)(x, *options)
            getattr(torch, name)(x, *options, out=out)
        for each in (tuple(found), out):
            assert each[0].dtype == dtype
            assert torch.equal(each[0], values.to(dtype))
            assert torch.equal(each[1], indices)
        plain = getattr(torch, name)(x, *options)  # the places of equals may be others
        # Of several values that are as frequent as each other PyTorch's kernel for CUDA takes any.
        assert torch.equal(found[0], plain[0]) or (name == "mode" and device == "cuda")


@NAME
def test_outputs_that_are_given(name: str, device: str) -> None:
    x = drawn(device, torch.float32, 5, 9)
    options = ranked(name, 1)
    wanted = getattr(pybaracuda, name)(x, *options)
    for shape in ((5,), (0,)):
        out = torch.empty(shape, device=device), torch.empty(shape, dtype=torch.int64, device=device)
        with pybaracuda.torch.install(devices=device):
            getattr(torch, name)(x, *options, out=out)
        assert torch.equal(out[0], wanted[0])
        if shape == (5,):
            assert torch.equal(out[1], wanted[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bounds", [(0, 0), (-1, 0.5), (2, 2)])
def test_installed_counts_are_the_array_functions(bounds: tuple[float, float], device: str, dtype: Any) -> None:
    x = torch.randn(9000, device=device).to(dtype)
    plain = torch.histc(x, 50, *bounds)
    with pybaracuda.torch.install(devices=device):
        found = torch.histc(x, 50, *bounds)
        into = torch.empty(50, dtype=dtype, device=device)
        torch.histc(x, 50, *bounds, out=into)
    assert torch.equal(found, pybaracuda.histc(x, 50, *bounds))
    assert torch.equal(found, pybaracuda.torch.histc(x, 50, *bounds))
    assert torch.equal(found, into)
    assert torch.equal(found, plain)


def test_errors_stay_pytorchs(device: str) -> None:
    x = torch.randn(3, 4, device=device)
    calls = (
        lambda: torch.kthvalue(x, 5),
        lambda: torch.kthvalue(x, 0),
        lambda: torch.median(x, 2),
        lambda: torch.mode(x, -3),
        lambda: torch.nanmedian(x[:, :0], 1),
        lambda: torch.histc(x, 0),
        lambda: torch.histc(x, 4, 2, 1),
        lambda: torch.histc(x, 4, 0, float("inf")),
        lambda: torch.histc(x / 0, 4),
    )
    for call in calls:
        plain, installed = messages(call, (RuntimeError, IndexError), device)
        assert plain.partition("[")[0] == installed.partition("[")[0]


def test_deterministic_algorithms_are_allowed(on_cuda: str) -> None:
    x = torch.randn(8, 300, device=on_cuda, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        with pybaracuda.torch.install(devices=on_cuda):
            total = sum(getattr(torch, name)(x, *ranked(name, 1)).values.sum() for name in NAMES)
            total.backward()
            counts = torch.histc(x.detach(), 10, -1, 1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.isfinite(x.grad).all()
    assert torch.equal(counts, pybaracuda.histc(x.detach(), 10, -1, 1))


@pytest.mark.parametrize("call", [
    lambda x: torch.median(x, 1), lambda x: torch.nanmedian(x, 0), lambda x: torch.mode(x), lambda x: torch.histc(x, 5),
])  # fmt: skip
def test_tracers_do_not_refuse_what_is_ours_under_the_flag(call: Any) -> None:
    """On tensors without values, which say that they are a GPU's."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from pybaracuda.torch._tracing import route_tracer

    torch.use_deterministic_algorithms(True)
    try:
        with FakeTensorMode():
            x, bools = torch.empty(3, 4, device="cuda"), torch.empty(3, 4, dtype=torch.bool, device="cuda")
            for routes in ((), tuple(ROUTES.values())):
                route_tracer(routes)
                if routes:
                    found = call(x)
                    assert (found[0] if isinstance(found, tuple) else found).device.type == "cuda"
                else:
                    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
                        call(x)
                with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
                    torch.median(bools, 1)
                assert torch.are_deterministic_algorithms_enabled()
    finally:
        route_tracer(())
        torch.use_deterministic_algorithms(False)


def test_routes_are_on_cuda_by_default() -> None:
    """In these tests they are on the CPU, too, as the variable that conftest.py sets asks for."""
    operators = ("aten::kthvalue", "aten::median.dim", "aten::nanmedian.dim", "aten::mode", "aten::histc")
    assert all(ROUTES[each].conditions.endswith("on CUDA") for each in operators)
    assert ROUTES["aten::kthvalue"].refusal(torch.zeros(3, dtype=torch.bool), 1) == "dtype torch.bool"
    assert ROUTES["aten::histc"].refusal(torch.zeros(3, dtype=torch.float16)) == "dtype torch.float16"
