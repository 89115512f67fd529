# SPDX-License-Identifier: Apache-2.0
"""PyTorch's upsampling through install(): the array functions' bits, eager, compiled and where determinism is asked."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no torch")

from torch.nn import functional  # noqa: E402
from torch_calls import Hits, fresh, same  # noqa: E402

import pybaracuda  # noqa: E402
import pybaracuda.torch  # noqa: E402
from pybaracuda._arrays.torch import TorchAdapter  # noqa: E402
from pybaracuda.torch._route import ROUTES  # noqa: E402

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# Mode, sizes, the operator and where it is ours.
CASES = {
    "linear": ((2, 3, 9), "upsample_linear1d", ("cuda",)),
    "bilinear": ((2, 3, 5, 6), "upsample_bilinear2d", ("cpu", "cuda")),
    "trilinear": ((1, 2, 3, 4, 5), "upsample_trilinear3d", ("cpu", "cuda")),
    "bicubic": ((2, 3, 5, 6), "upsample_bicubic2d", ("cpu", "cuda")),
    "bilinear antialiased": ((2, 3, 5, 6), "_upsample_bilinear2d_aa", ("cpu", "cuda")),
    "bicubic antialiased": ((2, 3, 5, 6), "_upsample_bicubic2d_aa", ("cpu", "cuda")),
    "nearest": ((2, 3, 5, 6), "upsample_nearest2d", ("cuda",)),
    "nearest-exact": ((1, 2, 3, 4, 5), "_upsample_nearest_exact3d", ("cuda",)),
}
CASE = pytest.mark.parametrize("mode", CASES)


def named(mode: str) -> dict[str, Any]:
    """The arguments that say it."""
    name, _, antialiased = mode.partition(" ")
    return {"mode": name, **({"antialias": True} if antialiased else {})}


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not (pybaracuda.backend_available("cuda") and torch.cuda.is_available()):
        pytest.skip("no CUDA")
    return str(request.param)


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()


def is_ours(mode: str, device: str) -> bool:
    return device in ROUTES[f"aten::{CASES[mode][1]}"].devices


@CASE
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_bits_are_the_array_functions(mode: str, dtype: Any, device: str, rng: np.random.Generator) -> None:
    if not is_ours(mode, device):
        return
    shape, operator, _ = CASES[mode]
    by_factor, by_size = {"scale_factor": 1.5}, {"size": tuple(2 * each for each in shape[2:])}
    corners = [None] if mode.startswith("nearest") else [False, True]
    for given in (by_factor, by_size):
        for align_corners in corners:
            image = fresh(rng, shape, dtype, device).requires_grad_()
            with pybaracuda.torch.install(), Hits(f"aten::{operator}", f"aten::{operator}_backward"):
                output = functional.interpolate(image, **named(mode), align_corners=align_corners, **given)
                gradient = fresh(rng, tuple(output.shape), dtype, device)
                output.backward(gradient)
            options = {**named(mode), "align_corners": align_corners}
            assert same(output, pybaracuda.interpolate(image.detach(), **given, **options))
            factor = given.get("scale_factor")
            assert same(image.grad, pybaracuda.interpolate_backward(gradient, shape, factor, **options))


@CASE
def test_the_memory_format_is_pytorchs(mode: str, device: str, rng: np.random.Generator) -> None:
    shape = CASES[mode][0]
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(shape), torch.contiguous_format)
    image = fresh(rng, shape, torch.float32, device).contiguous(memory_format=layout)
    plain = functional.interpolate(image, scale_factor=2, **named(mode))
    with pybaracuda.torch.install():
        found = functional.interpolate(image, scale_factor=2, **named(mode))
    assert found.stride() == plain.stride()
    if mode.startswith("nearest"):
        assert same(found, plain)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "nearest-exact"])
def test_channels_last_are_resized_in_place(
    mode: str, dtype: Any, device: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    corners = [False, True] if mode == "bilinear" else [None]
    for given in ({"scale_factor": (1.5, 0.7)}, {"size": (11, 4)}):
        for align_corners in corners:
            image = fresh(rng, (2, 8, 7, 6), dtype, device)  # enough channels for whole vectors
            options = {"mode": mode, "align_corners": align_corners}
            output = pybaracuda.interpolate(image, **given, **options)
            weights = fresh(rng, tuple(output.shape), dtype, device)
            factor = given.get("scale_factor")
            gradient = pybaracuda.interpolate_backward(weights, tuple(image.shape), factor, **options)
            image, weights = (each.contiguous(memory_format=torch.channels_last) for each in (image, weights))
            leaf = image.requires_grad_()
            operator = f"aten::{'_' if 'exact' in mode else ''}upsample_{mode.replace('-', '_')}2d"
            is_route = device in ROUTES[operator].devices
            with monkeypatch.context() as patched, pybaracuda.torch.install(), Hits(*[operator] * is_route):
                patched.setattr(TorchAdapter, "contiguous", lambda *_: pytest.fail("an operand was copied"))
                found = functional.interpolate(leaf, **given, **options)
                (of_leaf,) = torch.autograd.grad(found, leaf, weights)
            if is_route:
                assert same(found, output)
                assert same(of_leaf, gradient)
                assert found.is_contiguous(memory_format=torch.channels_last)
                assert of_leaf.is_contiguous(memory_format=torch.channels_last)


@CASE
def test_compiled_programs_have_the_same_bits(mode: str, device: str, rng: np.random.Generator) -> None:
    image = fresh(rng, CASES[mode][0], torch.float32, device).requires_grad_()

    def step(image: Any) -> Any:
        return functional.interpolate(image, scale_factor=2.0, **named(mode))

    with pybaracuda.torch.install():
        eager = step(image)
        gradient = fresh(rng, tuple(eager.shape), torch.float32, device)
        (of_eager,) = torch.autograd.grad(eager, image, gradient)
        compiled = torch.compile(step, fullgraph=True)(image)
        (of_compiled,) = torch.autograd.grad(compiled, image, gradient)
        if is_ours(mode, device):
            assert same(compiled, eager)
            assert same(of_compiled, of_eager)
    # And PyTorch's own code again, once nothing is installed.
    vectors = getattr(torch.ops.aten, CASES[mode][1]).vec.py_kernels
    assert not any(each.__module__.startswith("pybaracuda") for each in vectors.values())


def test_area_goes_through_adaptive_pooling(device: str, rng: np.random.Generator) -> None:
    for shape, size in (((2, 3, 9), (4,)), ((2, 3, 260, 170), (100, 130)), ((1, 2, 40, 50, 60), (9, 40, 30))):
        axes = len(size)
        image = fresh(rng, shape, torch.float32, device).requires_grad_()
        operator = f"aten::_adaptive_avg_pool{max(axes, 2)}d"
        taken = (operator, f"{operator}_backward") if axes > 1 else ()
        with pybaracuda.torch.install(), Hits(*taken):
            output = functional.interpolate(image, size, mode="area")
            gradient = fresh(rng, tuple(output.shape), torch.float32, device)
            output.backward(gradient)
        if taken:
            assert same(output, pybaracuda.interpolate(image.detach(), size, mode="area"))
            assert same(image.grad, pybaracuda.interpolate_backward(gradient, shape, mode="area"))


@pytest.mark.parametrize("mode", ["bilinear", "trilinear"])
def test_what_goes_around_the_kernels_is_led_back(mode: str, device: str, rng: np.random.Generator) -> None:
    """In deterministic mode PyTorch calls this function on CUDA, whose gradient takes seventy times as long."""
    shape, operator, _ = CASES[mode]
    image = fresh(rng, shape, torch.float32, device).requires_grad_()
    factors = [2.0] * (len(shape) - 2)
    decompositions = sys.modules["torch._decomp.decompositions"]
    saved = decompositions._upsample_linear_vec
    with pybaracuda.torch.install(deterministic=True), Hits(f"aten::{operator}", f"aten::{operator}_backward"):
        assert decompositions._upsample_linear_vec is not saved
        assert torch.are_deterministic_algorithms_enabled()
        around = decompositions._upsample_linear_vec(image, None, False, factors)
        around.sum().backward()
        assert same(around, functional.interpolate(image, scale_factor=factors, mode=mode))
        # Of what the kernels do not take PyTorch's function makes what it made before, if anything.
        whole = torch.ones(shape, dtype=torch.int32, device=device)
        results: list[Any] = [torch.zeros(())] * 2
        for i, function in enumerate((saved, decompositions._upsample_linear_vec)):
            with contextlib.suppress(RuntimeError):
                results[i] = function(whole, None, False, factors)
        assert same(*results)
    assert decompositions._upsample_linear_vec is saved


def test_partial_scales_are_read_in_their_places(device: str, rng: np.random.Generator) -> None:
    image = fresh(rng, (1, 2, 5, 6), torch.float32, device)
    upsample = torch.ops.aten.upsample_bilinear2d
    plain = [upsample(image, [9, 8], False, 1.9, None), upsample(image, [9, 8], False, None, 1.4)]
    with pybaracuda.torch.install(), Hits("aten::upsample_bilinear2d"):
        found = [upsample(image, [9, 8], False, 1.9, None), upsample(image, [9, 8], False, None, 1.4)]
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other)


def test_nearest_is_pytorchs_on_cuda_to_the_bit(device: str, rng: np.random.Generator) -> None:
    """By factors, and by sizes of every remainder; on the CPU PyTorch's own formulas part for nearest-exact."""
    modes = ("nearest", "nearest-exact") if device == "cuda" else ("nearest",)
    for mode in modes:
        for size in range(1, 120, 7):
            for wanted in range(1, 300, 13):
                signal = fresh(rng, (1, 1, size), torch.float32, device)
                plain = functional.interpolate(signal, wanted, mode=mode)
                assert same(pybaracuda.interpolate(signal, wanted, mode=mode), plain), (mode, size, wanted)
