# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operators that reach the C library without Python: that they do, with the route's bits and errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.nn import functional

import pybaracuda
import pybaracuda.torch
from pybaracuda.torch import _native
from tools import check_exports, commands

Tensors = list[Any]
# By operator: how its arguments are made, how it is called, and in which dtypes its kernel takes it.
COORDINATES = ("float32", "float64")
FLOATS = (*COORDINATES, "float16", "bfloat16")
Make = Callable[[np.random.Generator, Any, str], tuple[Any, ...]]


def fresh(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, device: str) -> Any:
    return torch.from_numpy(rng.uniform(-2, 2, shape)).to(dtype).to(device)


def boxes(rng: np.random.Generator, dtype: Any, device: str) -> Any:
    corners = rng.uniform(0, 6, (7, 2))
    made = np.concatenate([rng.integers(0, 2, (7, 1)), corners, corners + rng.uniform(0, 5, (7, 2))], axis=1)
    return torch.from_numpy(made).to(dtype).to(device)


def grid_arguments(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (2, 3, 5, 7), dtype, device), fresh(rng, (2, 4, 6, 2), dtype, device), 0, 0, False)


def grid_gradient(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (2, 3, 4, 6), dtype, device), *grid_arguments(rng, dtype, device), [True, True])


def theta_gradient(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (2, 5, 7, 2), dtype, device), [2, 3, 5, 7], False)


def roi_arguments(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (2, 3, 9, 11), dtype, device), boxes(rng, dtype, device), 0.75, 3, 2, 2, True)


def roi_gradient(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (7, 3, 3, 2), dtype, device), boxes(rng, dtype, device), 0.75, 3, 2, 2, 3, 9, 11, 2, True)


def pool_arguments(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (2, 3, 9, 11), dtype, device), boxes(rng, dtype, device), 0.75, 3, 2)


def pool_gradient(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    pixels = torch.from_numpy(rng.integers(-1, 99, (7, 3, 3, 2)).astype(np.int32)).to(device)
    return (fresh(rng, (7, 3, 3, 2), dtype, device), boxes(rng, dtype, device), pixels, 0.75, 3, 2, 2, 3, 9, 11)


def pad_arguments(axes: int, is_gradient: bool) -> Make:
    shape, pads = (2, 3, 6, 5, 4)[: axes + 2], [1, 2, 3, 0, 2, 1][: 2 * axes]
    padded = list(shape)
    for axis in range(axes):
        padded[-1 - axis] += pads[2 * axis] + pads[2 * axis + 1]

    def make(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
        given = fresh(rng, shape, dtype, device)
        return (fresh(rng, tuple(padded), dtype, device), given, pads) if is_gradient else (given, pads)

    return make


CASES: dict[str, tuple[Make, tuple[str, ...]]] = {
    "aten::grid_sampler_2d": (grid_arguments, COORDINATES),
    "aten::grid_sampler_2d_backward": (grid_gradient, COORDINATES),
    "aten::affine_grid_generator_backward": (theta_gradient, COORDINATES),
    "torchvision::roi_align": (roi_arguments, COORDINATES),
    "torchvision::_roi_align_backward": (roi_gradient, COORDINATES),
    "torchvision::roi_pool": (pool_arguments, COORDINATES),
    "torchvision::_roi_pool_backward": (pool_gradient, COORDINATES),
}
for _axes in (1, 2, 3):
    for _kind in ("reflection", "replication"):
        CASES[f"aten::{_kind}_pad{_axes}d"] = (pad_arguments(_axes, False), FLOATS)
        CASES[f"aten::{_kind}_pad{_axes}d_backward"] = (pad_arguments(_axes, True), FLOATS)
# Before torch 2.10 there is no interface that these kernels could use: then the same calls go through Python.
HAS_INTERFACE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 10)
TOO_OLD = f"calls go through Python, since torch {torch.__version__} has no torch_list_size; 2.10 or newer has"
HERE = [name for name in CASES if name.startswith("aten::") or available("torchvision")]


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    if available("torchvision"):
        import torchvision.ops  # noqa: F401  (registers the operators)
    yield
    pybaracuda.torch.uninstall()


def call(operator: str, arguments: tuple[Any, ...]) -> list[Any]:
    namespace, _, name = operator.partition("::")
    found = getattr(getattr(torch.ops, namespace), name)(*arguments)
    return list(found) if isinstance(found, tuple) else [found]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(
        (a is None and b is None) or (a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


def test_this_pytorch_has_what_it_needs() -> None:
    if HAS_INTERFACE:
        assert _native.problem() == ""
        assert set(CASES) == set(_native.operators())
    else:
        assert _native.problem() == TOO_OLD
        assert _native.operators() == ()


@pytest.mark.parametrize("operator", HERE)
@pytest.mark.parametrize("dtype", FLOATS)
def test_calls_go_without_python(operator: str, dtype: str, device: str, rng: np.random.Generator) -> None:
    make, taken = CASES[operator]
    if operator.startswith("aten::affine") and dtype not in COORDINATES:
        return  # PyTorch's own
    arguments = make(rng, getattr(torch, dtype), device)
    with pybaracuda.torch.install(native=False):
        before = _native.taken(operator, device)
        expected = call(operator, arguments)
        assert _native.taken(operator, device) == before
    with pybaracuda.torch.install():
        call(operator, arguments)  # loads the C library, if nothing has
        before, lines = _native.taken(operator, device), ours(operator, device)
        assert same(call(operator, arguments), expected)
        assert _native.taken(operator, device) - before == (HAS_INTERFACE and dtype in taken)
        assert ours(operator, device) == lines + 1


def ours(operator: str, device: str) -> int:
    found = [line for line in pybaracuda.torch.report().lines if (line.operator, line.device) == (operator, device)]
    return sum(line.ours for line in found)


@pytest.mark.parametrize("operator", HERE)
def test_other_strides(operator: str, device: str, rng: np.random.Generator) -> None:
    # A gradient that is one number for all, and tensors whose axes lie the other way round.
    made = CASES[operator][0](rng, torch.float32, device)
    for changed in (
        lambda tensor: tensor.transpose(0, 1).contiguous().transpose(0, 1),
        lambda tensor: tensor.flatten()[:1].reshape([1] * tensor.dim()).expand(tensor.shape),
    ):
        given = tuple(changed(each) if isinstance(each, torch.Tensor) else each for each in made)
        with pybaracuda.torch.install(native=False):
            expected = call(operator, given)
        with pybaracuda.torch.install():
            assert same(call(operator, given), expected)


def test_a_gradient_that_nobody_wants(device: str, rng: np.random.Generator) -> None:
    *arguments, _ = grid_gradient(rng, torch.float32, device)
    with pybaracuda.torch.install():
        both = call("aten::grid_sampler_2d_backward", (*arguments, [True, True]))
        before = _native.taken("aten::grid_sampler_2d_backward", device)
        nothing, of_grid = call("aten::grid_sampler_2d_backward", (*arguments, [False, True]))
        assert _native.taken("aten::grid_sampler_2d_backward", device) == before + HAS_INTERFACE
    assert nothing is None
    assert torch.equal(of_grid, both[1])


def test_through_autograd(device: str, rng: np.random.Generator) -> None:
    image = fresh(rng, (2, 3, 5, 7), torch.float32, device).requires_grad_()
    grid = fresh(rng, (2, 4, 6, 2), torch.float32, device).requires_grad_()

    def gradients() -> list[Any]:
        padded = functional.pad(functional.grid_sample(image, grid, align_corners=False), (1, 2, 2, 1), mode="reflect")
        return list(torch.autograd.grad(padded.square().sum(), (image, grid)))

    with pybaracuda.torch.install(native=False):
        expected = gradients()
    operators = [f"aten::{name}{end}" for name in ("grid_sampler_2d", "reflection_pad2d") for end in ("", "_backward")]
    with pybaracuda.torch.install():
        gradients()
        before = [_native.taken(name, device) for name in operators]
        assert same(gradients(), expected)
        assert [_native.taken(name, device) for name in operators] == [count + HAS_INTERFACE for count in before]


def test_one_installation_without_it_holds_for_all(rng: np.random.Generator) -> None:
    operator = "aten::reflection_pad1d"
    arguments = CASES[operator][0](rng, torch.float32, "cpu")

    def went() -> int:
        before = _native.taken(operator, "cpu")
        call(operator, arguments)
        return _native.taken(operator, "cpu") - before

    with pybaracuda.torch.install():
        went()
        assert went() == HAS_INTERFACE
        with pybaracuda.torch.install(native=False):
            assert went() == 0
        assert went() == HAS_INTERFACE
    assert went() == 0


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: functional.pad(x, (9, 9, 9, 9), mode="reflect"), "Padding size should be less than"),
        (lambda x: functional.grid_sample(x, torch.zeros(3, 1, 1, 2)), "expected grid and input to have same batch"),
        (lambda x: torch.ops.aten.replication_pad2d(x, [1, 1]), "padding size is expected to be 4"),
    ],
)
def test_errors_are_pytorchs(native: bool, function: Callable[[Any], Any], text: str) -> None:
    with pybaracuda.torch.install(native=native), pytest.raises(RuntimeError, match=text):
        function(torch.ones(2, 3, 4, 5))


def test_exports_are_what_the_package_calls() -> None:
    declared = check_exports.header_functions((commands.ROOT / "native/pytorch/bridge.h").read_text())
    assert {f"baracuda_torch_{name}" for name in _native.SIGNATURES} == declared


PROGRAM = """
import torch, pybaracuda.torch
from pybaracuda.torch import _native
{before}
print(_native.problem())
x = torch.rand(1, 1, 3, 4)
expected = torch.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect")
pybaracuda.torch.install()
for _ in range(2):
    assert torch.equal(torch.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"), expected)
print(sum(line.ours for line in pybaracuda.torch.report().lines), _native.taken("aten::reflection_pad2d", "cpu"))
"""


def run(before: str = "", **environ: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)],
        env=os.environ | {"PYTHONPATH": str(Path(pybaracuda.__file__).parent.parent)} | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_switch() -> None:
    assert run() == (["", "2 1"] if HAS_INTERFACE else [TOO_OLD, "2 0"])
    assert run(PYBARACUDA_TORCH_NATIVE="0") == ["PYBARACUDA_TORCH_NATIVE=0", "2 0"]


def test_without_the_library_the_routes_serve() -> None:
    problem, counts = run("import pathlib; _native._PATH = pathlib.Path('/nowhere/libbaracuda_torch.so')")
    assert "/nowhere/libbaracuda_torch.so" in problem
    assert counts == "2 0"
