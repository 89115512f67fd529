# SPDX-License-Identifier: Apache-2.0
"""Pooling through install(): the array functions' bits, eager and compiled, in both memory formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.nn import functional
from torch_calls import all_ours, same

import pybaracuda
import pybaracuda.torch
from pybaracuda._arrays.torch import TorchAdapter

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FIXED: dict[str, Any] = {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False}

GAPS: dict[str, Any] = {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True}


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not (pybaracuda.backend_available("cuda") and torch.cuda.is_available()):
        pytest.skip("no CUDA")
    return str(request.param)


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()


def pooling(name: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """PyTorch's call, and ours for its output and for its gradient."""
    axes = int(name[-2])
    function = getattr(functional, name)
    if name == "adaptive_max_pool2d":
        return (
            lambda x: function(x, 3),
            lambda x: pybaracuda.adaptive_max_pool(x, 3),
            lambda g, x: pybaracuda.adaptive_max_pool_backward(g, pybaracuda.adaptive_max_pool(x, 3, True)[1], x.shape),
        )
    if name.startswith("max"):
        return (
            lambda x: function(x, **GAPS),
            lambda x: pybaracuda.max_pool(x, **GAPS, axes=axes),
            lambda g, x: pybaracuda.max_pool_backward(
                g, pybaracuda.max_pool(x, **GAPS, return_indices=True, axes=axes)[1], x.shape, **GAPS, axes=axes
            ),
        )
    if name.startswith("adaptive"):
        return (
            lambda x: function(x, 3),
            lambda x: pybaracuda.adaptive_avg_pool(x, 3, axes=axes),
            lambda g, x: pybaracuda.adaptive_avg_pool_backward(g, x.shape, axes=axes),
        )
    return (
        lambda x: function(x, **FIXED),
        lambda x: pybaracuda.avg_pool(x, **FIXED, axes=axes),
        lambda g, x: pybaracuda.avg_pool_backward(g, x.shape, **FIXED, axes=axes),
    )


NAMES = (
    *("avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool2d"),
)


def drawn(name: str, device: str, dtype: Any) -> Any:
    return torch.randn(2, 3, *(7, 8, 9)[3 - int(name[-2]) :], device=device).to(dtype)


def with_gradient(call: Callable[[Any], Any], image: Any) -> tuple[Any, Any, Any]:
    """Output, a gradient of it and that of the image."""
    leaf = image.detach().requires_grad_()
    output = call(leaf)
    weights = torch.linspace(-1, 2, output.numel(), device=image.device).to(image.dtype).reshape(output.shape)
    (gradient,) = torch.autograd.grad(output, leaf, weights)
    return output.detach(), weights, gradient


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", NAMES)
def test_installed_calls_have_the_array_functions_bits(name: str, device: str, dtype: Any) -> None:
    theirs, forward, backward = pooling(name)
    image = drawn(name, device, dtype)
    with pybaracuda.torch.install(devices=device):
        output, weights, gradient = with_gradient(theirs, image)
    assert torch.equal(output, forward(image))
    assert torch.equal(gradient, backward(weights, image))


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_program_has_the_eager_bits(name: str, device: str) -> None:
    theirs = pooling(name)[0]
    image = drawn(name, device, torch.float32)
    with pybaracuda.torch.install(devices=device):
        eager = with_gradient(theirs, image)
        compiled = with_gradient(torch.compile(theirs, fullgraph=True), image)
    for one, other in zip(eager, compiled, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["avg_pool2d", "adaptive_avg_pool2d", "max_pool2d", "adaptive_max_pool2d"])
def test_channels_last_stays_so(name: str, device: str) -> None:
    theirs, forward, backward = pooling(name)
    image = drawn(name, device, torch.float32).contiguous(memory_format=torch.channels_last)
    with pybaracuda.torch.install(devices=device):
        output, weights, gradient = with_gradient(theirs, image)
    for found, expected in ((output, forward(image)), (gradient, backward(weights, image))):
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", ["avg_pool2d", "adaptive_avg_pool2d", "max_pool2d", "adaptive_max_pool2d"])
def test_channels_last_are_pooled_in_place(
    name: str, dtype: Any, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, forward, backward = pooling(name)
    # Enough channels for whole vectors.
    image = torch.randn(2, 8, 8, 9, device=device).to(dtype)
    image[0, :, :, 3:] = image[0, :, :, 3:].round()  # equal ones, of which the first is the maximum
    image[1, 2, 4, 4] = torch.inf
    weights = torch.randn_like(forward(image))
    expected = forward(image), backward(weights, image)
    image, weights = (each.contiguous(memory_format=torch.channels_last) for each in (image, weights))
    monkeypatch.setattr(TorchAdapter, "contiguous", lambda *_: pytest.fail("an operand was copied"))
    given = image.requires_grad_()
    with pybaracuda.torch.install(devices=device):
        before = all_ours(device)
        output = theirs(given)
        (gradient,) = torch.autograd.grad(output, given, weights)
        # Of CUDA's maxima, PyTorch's forward is the faster one.
        calls = 1 if (name, device) == ("max_pool2d", "cuda") else 2
        assert sum(all_ours(device).values()) == sum(before.values()) + calls
    for found, wanted in zip((output, gradient), expected, strict=True):
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert same(found, wanted)


NORMS = ("lp_pool1d", "lp_pool2d", "lp_pool3d")


def norms(name: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any], str]:
    """PyTorch's call, the same around our averages with our gradient, and the operator that it must come to."""
    axes = int(name[-2])

    class Averages(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, image: Any) -> Any:
            ctx.shape = image.shape
            return pybaracuda.avg_pool(image, 3, 2, 0, True, axes=axes)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return pybaracuda.avg_pool_backward(gradient, ctx.shape, 3, 2, 0, True, axes=axes)

    def ours(x: Any) -> Any:
        powers = Averages.apply(x.pow(2.0))
        return (torch.sign(powers) * functional.relu(torch.abs(powers))).mul(3**axes).pow(0.5)

    # PyTorch averages one axis as two.
    return lambda x: getattr(functional, name)(x, 2.0, 3, 2, True), ours, f"aten::avg_pool{max(axes, 2)}d"


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_windows_are_made_of_our_averages(name: str, device: str, dtype: Any) -> None:
    theirs, ours, operator = norms(name)
    # Sums of squares away from 0, where a root's derivative is infinite.
    image = drawn(name, device, dtype).abs() + 1
    with pybaracuda.torch.install(devices=device):
        before = all_ours(device)
        torch.use_deterministic_algorithms(True)
        try:
            found = [with_gradient(theirs, image) for _ in range(2)]
        finally:
            torch.use_deterministic_algorithms(False)
        after = all_ours(device)
    for each in (operator, f"{operator}_backward"):
        assert after[each] - before.get(each, 0) == 2
    for one, other, expected in zip(*found, with_gradient(ours, image), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, expected)
    # In 16 bits PyTorch rounds what it adds, and has no averages of volumes on the CPU.
    if dtype.itemsize > 2:
        for one, reference in zip(found[0], with_gradient(theirs, image), strict=True):
            torch.testing.assert_close(one, reference)


@pytest.mark.parametrize("name", NORMS)
def test_compiled_norms_repeat(name: str, device: str) -> None:
    theirs = norms(name)[0]
    image = drawn(name, device, torch.float32).abs() + 1
    with pybaracuda.torch.install(devices=device):
        eager = with_gradient(theirs, image)
        compiled = torch.compile(theirs, fullgraph=True)
        found = [with_gradient(compiled, image) for _ in range(2)]
    for one, other, reference in zip(*found, eager, strict=True):
        assert torch.equal(one, other)
        # Powers and roots are the compiler's.
        torch.testing.assert_close(one, reference)


PLACED = ("fractional_max_pool2d", "fractional_max_pool3d")


def placing(name: str, device: str, dtype: Any) -> tuple[Any, Any, dict[str, Any]]:
    """What is pooled, samples of one image more than it has, and how many windows."""
    axes = int(name[-2])
    samples = torch.randint(0, 16, (3, 3, axes), device=device).to(dtype) / 16
    return drawn(name, device, dtype), samples, {"kernel_size": 2, "output_size": (3, 4, 5)[3 - axes :]}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", PLACED)
def test_installed_fractional_pooling_has_the_array_functions_bits(name: str, device: str, dtype: Any) -> None:
    function = getattr(functional, name)
    image, samples, sizes = placing(name, device, dtype)
    for pooled, places in ((image, samples), (image[0], samples[:1])):
        with pybaracuda.torch.install(devices=device):
            call = partial(function, **sizes, _random_samples=places)
            output, weights, gradient = with_gradient(call, pooled)
            indices = call(pooled, return_indices=True)[1]
        used = places[: len(pooled) if pooled is image else 1]
        expected, named = pybaracuda.fractional_max_pool(pooled, **sizes, random_samples=used, return_indices=True)
        assert torch.equal(output, expected)
        assert torch.equal(indices, named)
        backward = pybaracuda.fractional_max_pool_backward(weights, named, pooled.shape, (2,) * int(name[-2]))
        assert torch.equal(gradient, backward)


@pytest.mark.parametrize("name", PLACED)
def test_compiled_fractional_pooling_has_the_eager_bits(name: str, device: str) -> None:
    image, samples, sizes = placing(name, device, torch.float32)

    def theirs(x: Any) -> Any:
        return getattr(functional, name)(x, **sizes, _random_samples=samples)

    with pybaracuda.torch.install(devices=device):
        eager = with_gradient(theirs, image)
        compiled = with_gradient(torch.compile(theirs, fullgraph=True), image)
    for one, other in zip(eager, compiled, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", PLACED)
def test_fractional_pooling_is_taken_where_pytorch_refuses(name: str, on_cuda: str) -> None:
    image, samples, sizes = placing(name, on_cuda, torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            with_gradient(lambda x: getattr(functional, name)(x, **sizes, _random_samples=samples), image)
        with pybaracuda.torch.install(devices=on_cuda):
            with_gradient(lambda x: getattr(functional, name)(x, **sizes, _random_samples=samples), image)
    finally:
        torch.use_deterministic_algorithms(False)


UNPOOLED = ("max_unpool1d", "max_unpool2d", "max_unpool3d")


def unpooling(name: str, device: str, dtype: Any) -> tuple[Any, Any]:
    """What is unpooled, and places of which some are named twice."""
    axes = int(name[-2])
    image = torch.randn(2, 3, *(3, 4, 5)[3 - axes :], device=device).to(dtype)
    indices = torch.randint(0, 2**axes * image[0, 0].numel(), image.shape, device=device)
    indices[0, 0] = 1
    return image, indices


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", UNPOOLED)
def test_installed_unpooling_is_taken_where_pytorch_refuses(name: str, device: str, dtype: Any) -> None:
    function, axes = getattr(functional, name), int(name[-2])
    image, indices = unpooling(name, device, dtype)
    size = [2 * extent for extent in image.shape[-axes:]]
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            function(image, indices, 2)
        with pybaracuda.torch.install(devices=device):
            output, weights, gradient = with_gradient(lambda x: function(x, indices, 2), image)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(output, pybaracuda.max_unpool(image, indices, size, axes=axes))
    assert torch.equal(gradient, pybaracuda.max_unpool_backward(weights, indices, axes=axes))


@pytest.mark.parametrize("name", UNPOOLED)
def test_compiled_unpooling_has_the_eager_bits(name: str, device: str) -> None:
    image, indices = unpooling(name, device, torch.float32)

    def theirs(x: Any) -> Any:
        return getattr(functional, name)(x, indices, 2)

    with pybaracuda.torch.install(devices=device):
        eager = with_gradient(theirs, image)
        compiled = with_gradient(torch.compile(theirs), image)
    for one, other in zip(eager, compiled, strict=True):
        assert torch.equal(one, other)


def test_an_index_out_of_range_is_pytorchs_error_on_the_cpu() -> None:
    image, indices = unpooling("max_unpool2d", "cpu", torch.float32)
    indices[1, 1, 1, 1] = 80
    with pybaracuda.torch.install(devices="cpu"), pytest.raises(RuntimeError, match="invalid max index"):
        functional.max_unpool2d(image, indices, 2)
    assert pybaracuda.max_unpool(image, indices, (8, 10)).any()


def test_an_index_out_of_range_is_dropped_and_counted_on_cuda(on_cuda: str) -> None:
    image, indices = unpooling("max_unpool2d", on_cuda, torch.float32)
    indices[1, 1, 1, 1] = 80
    with pybaracuda.torch.install(devices=on_cuda):
        output = functional.max_unpool2d(image, indices, 2)
        assert torch.equal(output, pybaracuda.max_unpool(image, indices, (8, 10)))
        with pytest.raises(IndexError, match="1 on cuda"):
            pybaracuda.torch.check_indices()
