# SPDX-License-Identifier: Apache-2.0
"""Gradients that PyTorch composes, of gather, scans and order statistics, and scatter_add along a short last axis."""

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
from pybaracuda.torch import _route

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
# Elements of the last axis: few, and more than weighted counts have bins.
FEW, MANY = 40, 5000


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()


@pytest.fixture(params=["cuda", "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    """A device on which gradients by element are ours."""
    found = str(request.param)
    if found == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA")
    if found == "cpu" and not _route.CPU_ALWAYS:
        return "cpu, left alone"
    return found


def place_of(device: str) -> str:
    return device.partition(",")[0]


def ours(device: str) -> dict[str, int]:
    return {line.operator: line.ours for line in pybaracuda.torch.report().lines if line.device == place_of(device)}


def assert_taken(device: str, operator: str, before: dict[str, int], times: int) -> None:
    """A call was ours, where such calls are."""
    wanted = 0 if "left alone" in device else times
    assert ours(device).get(operator, 0) - before.get(operator, 0) == wanted


@FLOAT
@pytest.mark.parametrize("shape", [(7, 90), (3, 4, 90, 1), (90,)], ids=str)
def test_the_gradient_of_gather_adds_in_the_order_of_a_weighted_count(device: str, shape: Any, dtype: Any) -> None:
    place, axis = place_of(device), shape.index(90)
    extents = [FEW if extent == 90 else extent for extent in shape]
    given = torch.randn(extents, device=place).to(dtype).requires_grad_()
    index = torch.randint(0, FEW, shape, device=place)
    upstream = torch.randn(shape, device=place).to(dtype)
    pybaracuda.torch.install()
    before = ours(device)
    given.gather(axis, index).backward(upstream)
    # Along one axis every index is one of rows, which are added as segments.
    assert_taken(device, "aten::gather_backward", before, 1 if len(shape) > 1 else 0)
    if "left alone" not in device and len(shape) > 1:
        expected = pybaracuda.bincount(index.reshape(-1, 90), upstream.reshape(-1, 90), FEW)
        assert torch.equal(given.grad.reshape(-1, FEW), expected)
    wide = torch.zeros(extents, device=place, dtype=torch.float64).scatter_add_(axis, index, upstream.double())
    sizes = torch.zeros(extents, device=place, dtype=torch.float64)
    magnitude = sizes.clone().scatter_add_(axis, index, upstream.double().abs())
    terms = sizes.scatter_add_(axis, index, torch.ones_like(upstream, dtype=torch.float64))
    eps = torch.finfo(torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype).eps
    bound = terms * eps * magnitude + torch.finfo(dtype).eps * wide.abs()
    assert ((given.grad.double() - wide).abs() <= bound).all()


@pytest.mark.parametrize(
    ("extents", "shape", "axis"), [((6, MANY), (6, 90), 1), ((6, FEW, 2), (6, 90, 2), 1), ((6, FEW), (5, 90), 1)]
)
def test_other_gathers_are_sums_as_before(device: str, extents: Any, shape: Any, axis: int) -> None:
    place = place_of(device)
    given = torch.randn(extents, device=place, requires_grad=True)
    index = torch.randint(0, extents[axis], shape, device=place)
    upstream = torch.randn(shape, device=place)
    pybaracuda.torch.install()
    before = ours(device)
    given.gather(axis, index).backward(upstream)
    assert_taken(device, "aten::gather_backward", before, 0)
    expected = torch.zeros(extents, device=place, dtype=torch.float64).scatter_add_(axis, index, upstream.double())
    torch.testing.assert_close(given.grad.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize("in_place", [False, True])
def test_scatter_add_along_a_short_last_axis_is_a_weighted_count(device: str, in_place: bool, dtype: Any) -> None:
    place = place_of(device)
    given = torch.randint(-90, 90, (7, FEW), device=place).to(dtype)
    index, source = (
        torch.randint(0, FEW, (7, 90), device=place),
        torch.randint(-90, 90, (7, 95), device=place).to(dtype),
    )
    wide = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.int8: torch.int32}.get(dtype, dtype)
    if dtype.is_floating_point:
        source = (source.double() / 7).to(dtype)
    expected = pybaracuda.bincount(index, source[:, :90].to(wide), FEW)
    expected = (given.to(wide) + expected).to(dtype)
    pybaracuda.torch.install()
    name = "aten::scatter_add_" if in_place else "aten::scatter_add"
    before = ours(device)
    found = given.clone().scatter_add_(1, index, source) if in_place else given.scatter_add(1, index, source)
    assert_taken(device, name, before, 1)
    if "left alone" in device:
        torch.testing.assert_close(found, expected)
    else:
        assert torch.equal(found, expected)
        assert torch.equal(given.scatter_reduce(1, index, source, "sum"), expected)


@FLOAT
@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradients_of_running_extrema_are_scans(device: str, name: str, dim: int, dtype: Any) -> None:
    place = place_of(device)
    given = torch.randn(60, 50, device=place).to(dtype).requires_grad_()
    upstream = torch.randn(60, 50, device=place).to(dtype)
    pybaracuda.torch.install()
    before = ours(device)
    values, indices = getattr(given, name)(dim)
    values.backward(upstream)
    assert_taken(device, "aten::cummaxmin_backward", before, 1)
    if "left alone" not in device:
        assert torch.equal(given.grad, pybaracuda.cummaxmin_backward(upstream, indices, dim))
    wide = torch.zeros(60, 50, device=place, dtype=torch.float64).scatter_add_(dim, indices, upstream.double())
    assert ((given.grad.double() - wide).abs() <= 60 * torch.finfo(dtype).eps * upstream.double().abs().sum()).all()


@FLOAT
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_the_gradient_of_running_products_divides_by_nothing(device: str, dim: int, zeros: int, dtype: Any) -> None:
    place = place_of(device)
    given = (1 + torch.rand(6, 9, device=place) / 8).to(dtype)
    given[:zeros, :zeros] = 0
    leaf, upstream = given.clone().requires_grad_(), torch.randn(6, 9, device=place).to(dtype)
    pybaracuda.torch.install()
    before = ours(device)
    output = leaf.cumprod(dim)
    output.backward(upstream)
    assert_taken(device, "aten::cumprod_backward", before, 1)
    if "left alone" not in device:
        assert torch.equal(leaf.grad, pybaracuda.cumprod_backward(upstream, given, output.detach(), dim))
    # Each product without one of its factors, and how large its terms are together.
    wide, terms = given.double().movedim(dim, -1), upstream.double().movedim(dim, -1)
    expected, magnitude = torch.zeros_like(wide), torch.zeros_like(wide)
    for place_in_row in range(wide.shape[-1]):
        others = wide.clone()
        others[..., place_in_row] = 1
        products = others.cumprod(-1)[..., place_in_row:]
        expected[..., place_in_row] = (products * terms[..., place_in_row:]).sum(-1)
        magnitude[..., place_in_row] = (products * terms[..., place_in_row:]).abs().sum(-1)
    eps = torch.finfo(torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype).eps
    found = leaf.grad.double().movedim(dim, -1)
    # The output is rounded to its dtype before the gradient takes it.
    bound = (2 * wide.shape[-1] * eps + 2 * torch.finfo(dtype).eps) * magnitude
    assert ((found - expected).abs() <= bound + torch.finfo(dtype).tiny).all()


@FLOAT
@pytest.mark.parametrize("name", ["kthvalue", "median", "nanmedian", "mode", "max", "min"])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_gradients_of_order_statistics_are_written_at_once(
    device: str, name: str, dim: int, keepdim: bool, dtype: Any
) -> None:
    place = place_of(device)
    given = torch.randn(5, 7, 4, device=place).to(dtype).requires_grad_()
    pybaracuda.torch.install()
    before = ours(device)
    values, indices = getattr(given, name)(*((2,) if name == "kthvalue" else ()), dim, keepdim=keepdim)
    upstream = torch.randn(values.shape, device=place).to(dtype)
    values.backward(upstream)
    assert_taken(device, "aten::value_selecting_reduction_backward", before, 1)
    kept = (indices, upstream) if keepdim else (indices.unsqueeze(dim), upstream.unsqueeze(dim))
    assert torch.equal(given.grad, torch.zeros_like(given).scatter_(dim, *kept))


@pytest.mark.parametrize("name", ["sort", "topk"])
def test_gradients_of_several_elements_of_a_row_stay_pytorchs(device: str, name: str) -> None:
    given = torch.randn(5, 7, device=place_of(device), requires_grad=True)
    pybaracuda.torch.install()
    before = ours(device)
    values, indices = given.sort(1) if name == "sort" else given.topk(3, 1)
    upstream = torch.randn_like(values)
    values.backward(upstream)
    assert_taken(device, "aten::value_selecting_reduction_backward", before, 0)
    assert torch.equal(given.grad, torch.zeros_like(given).scatter_(1, indices, upstream))


@pytest.mark.parametrize("name", ["cummax", "gather", "cumprod", "median"])
def test_second_derivatives_are_still_there(device: str, name: str) -> None:
    place = place_of(device)
    given = torch.randn(5, 30, device=place, dtype=torch.float64, requires_grad=True)
    index = torch.randint(0, 30, (5, 70), device=place)

    def function(x: Any) -> Any:
        if name == "cumprod":
            return x[:, :6].cumprod(1)
        return x.gather(1, index) if name == "gather" else getattr(x, name)(1)[0]

    pybaracuda.torch.install()
    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, given)


@pytest.mark.parametrize("name", ["cumprod", "cummax"])
def test_second_derivatives_of_a_gradient_that_nothing_flows_into(device: str, name: str) -> None:
    """What a sum hands back has no gradient of its own, but the gradient of products depends on the input."""
    given = torch.rand(5, 6, device=place_of(device), dtype=torch.float64) + 0.5

    def curvature() -> Any:
        leaf = given.clone().requires_grad_()
        found = leaf.cumprod(1) if name == "cumprod" else leaf.cummax(1)[0]
        (gradient,) = torch.autograd.grad(found.sum(), leaf, create_graph=True)
        return torch.autograd.grad((gradient * leaf).sum(), leaf)[0]

    expected = curvature()
    with pybaracuda.torch.install():
        torch.testing.assert_close(curvature(), expected)


def test_functional_transforms_and_inference(device: str) -> None:
    place = place_of(device)
    given = torch.randn(4, 5, 30, device=place)
    pybaracuda.torch.install()

    def loss(x: Any) -> Any:
        return (x.cummax(1)[0] ** 2).sum()

    mapped = torch.func.vmap(torch.func.grad(loss))(given)
    for one, expected in zip(given, mapped, strict=True):
        leaf = one.clone().requires_grad_()
        loss(leaf).backward()
        torch.testing.assert_close(leaf.grad, expected)
    values, indices = given.cummax(2)
    with torch.inference_mode():
        found = torch.ops.aten.cummaxmin_backward(values, given, indices, 2)
    torch.testing.assert_close(found, torch.zeros_like(given).scatter_add_(2, indices, values))


def test_compiled_programs_have_pytorchs_composition(device: str) -> None:
    place = place_of(device)
    index = torch.randint(0, 30, (5, 70), device=place)
    pybaracuda.torch.install()
    step = torch.compile(lambda x: (x.gather(1, index) ** 2).sum(), backend="aot_eager")
    given = torch.randn(5, 30, device=place, requires_grad=True)
    step(given).backward()
    leaf = given.detach().clone().requires_grad_()
    (leaf.gather(1, index) ** 2).sum().backward()
    torch.testing.assert_close(given.grad, leaf.grad)
