# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operators that reach the C library without Python: that they do, with the route's bits and errors."""

from __future__ import annotations

import inspect
import itertools
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
from torch.multiprocessing.reductions import StorageWeakRef
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


def volume_arguments(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (2, 3, 4, 5, 7), dtype, device), fresh(rng, (2, 3, 4, 6, 3), dtype, device), 0, 0, False)


def volume_gradient(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (2, 3, 3, 4, 6), dtype, device), *volume_arguments(rng, dtype, device), [True, True])


def theta_gradient(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (2, 5, 7, 2), dtype, device), [2, 3, 5, 7], False)


def volume_theta_gradient(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (fresh(rng, (2, 4, 5, 7, 3), dtype, device), [2, 3, 4, 5, 7], True)


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


def rows_index(rng: np.random.Generator, shape: tuple[int, ...], rows: int, device: str) -> Any:
    entries = torch.from_numpy(rng.integers(0, rows, shape[0])).to(device)
    return entries.reshape(-1, *[1] * (len(shape) - 1)).expand(shape)


def scatter_arguments(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    index = rows_index(rng, (9, 3, 2), 5, device)
    return (fresh(rng, (5, 3, 2), dtype, device), 0, index, fresh(rng, (9, 3, 2), dtype, device))


def embedding_gradient(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    indices = torch.from_numpy(rng.integers(0, 5, (3, 4))).to(device)
    return (fresh(rng, (3, 4, 6), dtype, device), indices, 5, 2, False)


def reduce_arguments(rng: np.random.Generator, dtype: Any, device: str) -> tuple[Any, ...]:
    return (*scatter_arguments(rng, dtype, device), "mean")


CASES: dict[str, tuple[Make, tuple[str, ...]]] = {
    "aten::embedding_dense_backward": (embedding_gradient, FLOATS),
    "aten::scatter_add": (scatter_arguments, FLOATS),
    "aten::scatter_add_": (scatter_arguments, FLOATS),
    "aten::scatter_reduce.two": (reduce_arguments, FLOATS),
    "aten::scatter_reduce_.two": (reduce_arguments, FLOATS),
    "aten::grid_sampler_2d": (grid_arguments, COORDINATES),
    "aten::grid_sampler_2d_backward": (grid_gradient, COORDINATES),
    "aten::grid_sampler_3d": (volume_arguments, COORDINATES),
    "aten::grid_sampler_3d_backward": (volume_gradient, COORDINATES),
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
SCATTERS = ["aten::scatter_add", "aten::scatter_add_", "aten::scatter_reduce.two", "aten::scatter_reduce_.two"]
BY_ROWS = ["aten::embedding_dense_backward", *SCATTERS]
REDUCTIONS = ("sum", "mean", "prod", "amax", "amin")
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


def call(operator: str, arguments: tuple[Any, ...], **options: Any) -> list[Any]:
    namespace, _, name = operator.partition("::")
    packet, _, overload = name.partition(".")
    function = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    if not is_in_place(operator):
        found = function(*arguments, **options)
        return list(found) if isinstance(found, tuple) else [found]
    changed = arguments[0].clone()
    assert function(changed, *arguments[1:], **options) is changed
    return [changed]


def is_in_place(operator: str) -> bool:
    return operator.partition("::")[2].partition(".")[0].endswith("_")


def same(one: list[Any], other: list[Any]) -> bool:
    return all(
        (a is None and b is None) or (a.dtype == b.dtype and a.stride() == b.stride() and equal_bits(a, b))
        for a, b in zip(one, other, strict=True)
    )


def equal_bits(one: Any, other: Any) -> bool:
    # A NaN is one whatever its sign and payload.
    if one.is_floating_point():
        one, other = (torch.where(each.isnan(), torch.nan, each).contiguous() for each in (one, other))
        one, other = (
            each.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[each.element_size()]) for each in (one, other)
        )
    return torch.equal(one, other)


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


@pytest.mark.parametrize("dtype", COORDINATES)
def test_gradients_of_maps_of_volumes_go_without_python(dtype: str, device: str, rng: np.random.Generator) -> None:
    operator = "aten::affine_grid_generator_backward"
    arguments = volume_theta_gradient(rng, getattr(torch, dtype), device)
    with pybaracuda.torch.install(native=False):
        expected = call(operator, arguments)
    with pybaracuda.torch.install():
        call(operator, arguments)  # loads the C library, if nothing has
        before = _native.taken(operator, device)
        assert same(call(operator, arguments), expected)
        assert _native.taken(operator, device) - before == HAS_INTERFACE


@pytest.mark.parametrize("operator", HERE)
def test_other_strides(operator: str, device: str, rng: np.random.Generator) -> None:
    # A gradient that is one number for all, and tensors whose axes lie the other way round.
    made = CASES[operator][0](rng, torch.float32, device)
    for changed in (
        lambda tensor: tensor.transpose(0, 1).contiguous().transpose(0, 1),
        lambda tensor: tensor.flatten()[:1].reshape([1] * tensor.dim()).expand(tensor.shape),
    ):
        given = tuple(changed(each) if isinstance(each, torch.Tensor) else each for each in made)
        if is_in_place(operator):
            given = (made[0], *given[1:])
        with pybaracuda.torch.install(native=False):
            expected = call(operator, given)
        with pybaracuda.torch.install():
            assert same(call(operator, given), expected)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize(("axes", "mode"), [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1)])
def test_grid_sample_in_every_mode(
    device: str, rng: np.random.Generator, axes: int, mode: int, padding: int, align_corners: bool
) -> None:
    grad, image, grid, *_ = (grid_gradient if axes == 2 else volume_gradient)(rng, torch.float32, device)
    rule = (mode, padding, align_corners)
    names = ("bilinear", "nearest", "bicubic")[mode], ("zeros", "border", "reflection")[padding], align_corners
    calls = [(f"aten::grid_sampler_{axes}d", (image, grid * 2, *rule))]
    calls += [
        (f"aten::grid_sampler_{axes}d_backward", (grad, image, grid * 2, *rule, mask))
        for mask in ([True, True], [True, False], [False, True])
    ]
    of_input, of_grid = pybaracuda.grid_sample_backward(grad, image, grid * 2, *names)
    expected = [[pybaracuda.grid_sample(image, grid * 2, *names)], *([[of_input, of_grid]] * 2), [None, of_grid]]
    for (operator, arguments), wanted in zip(calls, expected, strict=True):
        with pybaracuda.torch.install(native=False):
            assert same(call(operator, arguments), wanted)
        with pybaracuda.torch.install():
            before = _native.taken(operator, device)
            assert same(call(operator, arguments), wanted)
            assert _native.taken(operator, device) == before + HAS_INTERFACE


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("axes", [2, 3])
def test_a_batch_of_one_input_is_read_where_it_lies(
    device: str, rng: np.random.Generator, axes: int, native: bool
) -> None:
    # A million copies would take 4 TiB. Their samples are those of one input that has as many.
    count, sizes = 2**20, (1, 1, 1024, 1024) if axes == 2 else (1, 1, 64, 128, 128)
    one = fresh(rng, sizes, torch.float32, device)
    grid = fresh(rng, (count, *[1] * axes, axes), torch.float32, device)
    grad = fresh(rng, (count, *[1] * (axes + 1)), torch.float32, device)
    flat, flat_grad = grid.reshape(1, count, *[1] * (axes - 1), axes), grad.reshape(1, 1, count, *[1] * (axes - 1))
    rule = (0, 2, False)
    with pybaracuda.torch.install(native=native):
        for operator, mine, other in (
            (f"aten::grid_sampler_{axes}d", (one.expand(count, *sizes[1:]), grid), (one, flat)),
            (
                f"aten::grid_sampler_{axes}d_backward",
                (grad, one.expand(count, *sizes[1:]), grid),
                (flat_grad, one, flat),
            ),
        ):
            rest = (*rule, [False, True]) if operator.endswith("backward") else rule
            expected = call(operator, (*other, *rest))[-1]
            before = _native.taken(operator, device)
            found = call(operator, (*mine, *rest))[-1]
            assert _native.taken(operator, device) == before + (native and HAS_INTERFACE)
            assert torch.equal(found.flatten(), expected.flatten())


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


def of_edges(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, device: str) -> Any:
    """Answer numbers of many sizes, among them both zeros, infinities and NaN."""
    made = rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 12, shape)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, -65504.0])
    return torch.from_numpy(np.where(rng.random(shape) < 0.2, rng.choice(edges, shape), made)).to(dtype).to(device)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("operator", ["aten::scatter_add", "aten::scatter_add_"])
def test_scattered_rows_are_the_routes(operator: str, dtype: str, device: str, rng: np.random.Generator) -> None:
    for rank, zeros in itertools.product((1, 2, 3), (False, True)):
        shape = tuple(int(each) for each in rng.integers(1, 7, rank))
        count = int(rng.integers(1, 600))
        given = of_edges(rng, shape, getattr(torch, dtype), device)
        if zeros:
            given = torch.copysign(torch.zeros_like(given), given)
        # The source may have more rows than the index names, and lie in memory in any order.
        source = of_edges(rng, (count + 3, *shape[1:]), getattr(torch, dtype), device)
        if zeros:
            source = torch.copysign(torch.zeros_like(source), source)
        if rank > 1:
            source = source.transpose(0, 1).contiguous().transpose(0, 1)
        index = rows_index(rng, (count, *shape[1:]), shape[0], device)
        for dim in (0, -rank):
            arguments = (given, dim, index, source)
            with pybaracuda.torch.install(native=False):
                expected = call(operator, arguments)
            with pybaracuda.torch.install():
                before = _native.taken(operator, device)
                assert same(call(operator, arguments), expected)
                assert _native.taken(operator, device) == before + HAS_INTERFACE


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_reduced_rows_are_the_routes(reduce: str, dtype: str, device: str, rng: np.random.Generator) -> None:
    # Few rows and many: some are named by nobody, once and often, and a pack of elements lies in one row or in several.
    for operator, columns, count in itertools.product(SCATTERS[2:], ((), (3,), (2, 4)), (1, 4, 30, 700)):
        given = of_edges(rng, (6, *columns), getattr(torch, dtype), device)
        source = of_edges(rng, (count, *columns), getattr(torch, dtype), device)
        if reduce == "prod":
            source = torch.where(source.abs() > 2, source.sign(), source)
        index = rows_index(rng, (count, *columns), 6, device)
        for include_self in (True, False):
            arguments = (given, 0, index, source, reduce)
            with pybaracuda.torch.install(native=False):
                expected = call(operator, arguments, include_self=include_self)
            with pybaracuda.torch.install():
                before = _native.taken(operator, device)
                assert same(call(operator, arguments, include_self=include_self), expected)
                assert _native.taken(operator, device) == before + HAS_INTERFACE


def test_an_unknown_reduction_is_pytorchs_error(rng: np.random.Generator) -> None:
    arguments = (*scatter_arguments(rng, torch.float32, "cpu"), "median")
    expected = refused("aten::scatter_reduce.two", arguments)
    assert "reduce argument must be" in expected
    with pybaracuda.torch.install():
        assert refused("aten::scatter_reduce.two", arguments) == expected


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_embeddings_are_the_routes(dtype: str, device: str, rng: np.random.Generator) -> None:
    operator = "aten::embedding_dense_backward"
    for shape, padding in itertools.product(((), (700,), (6, 7), (3, 1, 5)), (-1, 0, 4, 9)):
        indices = torch.from_numpy(rng.integers(0, 5, shape)).to(device)
        arguments = (of_edges(rng, (*shape, 3), getattr(torch, dtype), device), indices, 5, padding, False)
        with pybaracuda.torch.install(native=False):
            expected = call(operator, arguments)
        with pybaracuda.torch.install():
            before = _native.taken(operator, device)
            assert same(call(operator, arguments), expected)
            assert _native.taken(operator, device) == before + HAS_INTERFACE


def test_no_kernel_takes_a_list_of_tensors() -> None:
    # On its way to one PyTorch empties the list, which autograd's formulas go on to use.
    for operator in HERE:
        (schema,) = [
            each
            for each in torch._C._jit_get_all_schemas()
            if f"{each.name}.{each.overload_name}".strip(".") == operator
        ]
        assert not any("Tensor" in str(each.type) and "List" in str(each.type) for each in schema.arguments), operator
    rows, values = torch.ones(5, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    index = torch.tensor([3, 1])
    with pybaracuda.torch.install():
        put = rows.index_put((index,), values)
        of_rows, of_values = torch.autograd.grad(put.sum(), (rows, values))
    assert of_rows.sum(1).tolist() == [3, 0, 3, 0, 3]
    assert of_values.tolist() == [[1, 1, 1]] * 2


def gradient_of_gather(rng: np.random.Generator, device: str) -> list[Any]:
    table = fresh(rng, (5, 3), torch.float32, device).requires_grad_()
    taken = table.gather(0, rows_index(rng, (9, 3), 5, device))
    return list(torch.autograd.grad(taken.square().sum(), table))


def gradient_of_embedding(rng: np.random.Generator, device: str) -> list[Any]:
    table = fresh(rng, (5, 3), torch.float32, device).requires_grad_()
    indices = torch.from_numpy(rng.integers(0, 5, (2, 9))).to(device)
    return list(torch.autograd.grad(functional.embedding(indices, table, 1).square().sum(), table))


@pytest.mark.parametrize(
    ("operator", "gradient"),
    [
        ("aten::scatter_add_", gradient_of_gather),
        ("aten::embedding_dense_backward", gradient_of_embedding),
    ],
)
def test_gradients_by_rows(
    operator: str, gradient: Callable[[np.random.Generator, str], list[Any]], device: str, seed: list[int]
) -> None:
    with pybaracuda.torch.install(native=False):
        expected = gradient(np.random.default_rng(seed), device)
    with pybaracuda.torch.install():
        before = _native.taken(operator, device)
        assert same(gradient(np.random.default_rng(seed), device), expected)
        assert _native.taken(operator, device) == before + HAS_INTERFACE


def test_what_the_kernels_of_rows_leave_to_the_routes(rng: np.random.Generator) -> None:
    given, _, index, source = scatter_arguments(rng, torch.float32, "cpu")
    by_element = torch.from_numpy(rng.integers(0, 5, (9, 3, 2)))
    whole, part = fresh(rng, (7, 9, 3), torch.float32, "cpu"), fresh(rng, (5, 3, 3), torch.float32, "cpu")
    along = torch.from_numpy(rng.integers(0, 9, 4)).reshape(1, 4, 1).expand(7, 4, 3)
    cases: dict[str, tuple[Any, ...]] = {
        "by element": (given, 0, by_element, source),
        "by element, entries side by side": (
            given,
            0,
            by_element.permute(2, 1, 0).contiguous().permute(2, 1, 0),
            source,
        ),
        "every second entry": (given, 0, rows_index(rng, (18, 3, 2), 5, "cpu")[::2], source),
        "another axis": (whole, 1, along, fresh(rng, (7, 4, 3), torch.float32, "cpu")),
        "a part of the rows": (part, 0, index[:, :, :1].expand(9, 3, 1), part[:, :, :1].expand(5, 3, 1)[[0] * 9]),
        "32 bits": (given, 0, index.int(), source),
        "integers": (given.int(), 0, index, source.int()),
        "nothing": (given, 0, index[:0], source),
        "many": (fresh(rng, (2**16 + 1, 1), torch.float32, "cpu"), 0, index[:, 0, :1], source[:, 0, :1]),
    }
    operator = "aten::scatter_add"
    with pybaracuda.torch.install():
        call(operator, (given, 0, index, source))
        before = _native.taken(operator, "cpu")
        call(operator, (given, 0, index, source))
        assert _native.taken(operator, "cpu") == before + HAS_INTERFACE
    for name, arguments in cases.items():
        expected = refused(operator, arguments)
        with pybaracuda.torch.install():
            before = _native.taken(operator, "cpu")
            found = refused(operator, arguments)
            assert _native.taken(operator, "cpu") == before, name
        if isinstance(expected, str):
            assert found == expected, name
        else:
            assert ((found[0].double() - expected[0].double()).abs() <= twice_rounded(arguments)).all(), name


def twice_rounded(arguments: tuple[Any, ...]) -> Any:
    """Bound what two sums of a call's entries, each rounded to float32 after every addition in an order of its own,
    can differ by: n additions are off by at most n u / (1 - n u) of the sum of magnitudes (Higham, 2002, 4.2).
    """
    given, dim, index, source = arguments
    roundoffs = index.shape[dim] * 2**-24
    magnitudes = call("aten::scatter_add", (given.abs().double(), dim, index, source.abs().double()))[0]
    return 2 * roundoffs / (1 - roundoffs) * magnitudes


def refused(operator: str, arguments: tuple[Any, ...]) -> Any:
    """Answer what a call answers, or the type and the text of what it raises."""
    try:
        return call(operator, arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_arguments_live_no_longer_than_their_calls(device: str, rng: np.random.Generator) -> None:
    def storages(operator: str, arguments: tuple[Any, ...]) -> list[StorageWeakRef]:
        results = call(operator, arguments)
        tensors = [each for each in [*arguments, *results] if isinstance(each, torch.Tensor)]
        return [StorageWeakRef(each.untyped_storage()) for each in tensors]

    with pybaracuda.torch.install():
        for operator in BY_ROWS:
            for dtype in (torch.float32, torch.float16, torch.int32):
                if dtype == torch.int32 and ("embedding" in operator or "reduce" in operator):
                    continue  # PyTorch has none, and means of integers are another's
                made = CASES[operator][0]
                before = _native.taken(operator, device)
                held = [storages(operator, made(rng, dtype, device)) for _ in range(2)]
                assert (_native.taken(operator, device) > before) == (HAS_INTERFACE and dtype != torch.int32)
                assert all(each.expired() for once in held for each in once), operator


@pytest.mark.parametrize("operator", SCATTERS)
def test_an_index_out_of_range_on_the_cpu_is_pytorchs(operator: str, rng: np.random.Generator) -> None:
    given, dim, index, *rest = CASES[operator][0](rng, torch.float32, "cpu")
    for entry in (-1, 5, 2**62):
        wrong = index.clone()
        wrong[3] = entry
        wrong = wrong[:, :1, :1].contiguous().expand(9, 3, 2)
        expected = refused(operator, (given, dim, wrong, *rest))
        assert "out of bounds" in expected
        for native in (True, False):
            with pybaracuda.torch.install(native=native):
                assert refused(operator, (given, dim, wrong, *rest)) == expected


class OwnError(ValueError):
    """What a kernel of somebody else raises."""


@pytest.mark.parametrize(
    "error",
    [IndexError("an index"), OwnError("“of its own”"), torch.OutOfMemoryError("no memory"), KeyboardInterrupt()],
)
@pytest.mark.parametrize("backward", [False, True])
def test_what_is_raised_below_is_raised(
    error: BaseException, backward: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "reflection_pad1d_backward" if backward else "reflection_pad1d"
    library = torch.library.Library("aten", "IMPL", "CPU")

    def fail(*_: Any) -> Any:
        raise error

    options = {"allow_override": True} if "allow_override" in inspect.signature(library.impl).parameters else {}
    library.impl(name, fail, "CPU", **options)
    row = torch.ones(1, 4, dtype=torch.complex64, requires_grad=backward)
    try:
        with pybaracuda.torch.install():
            capfd.readouterr()
            with pytest.raises(type(error)) as caught:
                functional.pad(row, (1, 0), "reflect").abs().sum().backward()
            assert capfd.readouterr().err == ""
    finally:
        library._destroy()
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)


@pytest.fixture
def cuda() -> str:
    if not (pybaracuda.backend_available("cuda") and torch.cuda.is_available()):
        pytest.skip("no CUDA")
    return "cuda"


def with_wrong_entries(
    operator: str, arguments: tuple[Any, ...], rng: np.random.Generator
) -> tuple[tuple[Any, ...], int]:
    """Answer arguments with some entries that name no row, and how many."""
    place = next(i for i, each in enumerate(arguments) if getattr(each, "dtype", None) == torch.int64)
    index = arguments[place]
    entries = index.select(-1, 0).select(-1, 0).clone() if index.dim() == 3 else index.clone()
    is_wrong = rng.random(tuple(entries.shape)) < 0.4
    wrong = rng.choice(np.array([-6, -9, 5, 2**31, 2**62, -(2**63)]), is_wrong.shape)
    chosen = torch.from_numpy(is_wrong).to(entries.device)
    entries = torch.where(chosen, torch.from_numpy(wrong).to(entries.device), entries)
    if index.dim() == 3:
        entries = entries[:, None, None].expand(index.shape)
    return (*arguments[:place], entries, *arguments[place + 1 :]), int(is_wrong.sum())


def assert_dropped(count: int) -> None:
    if count:
        with pytest.raises(IndexError, match=f"dropped: {count} on cuda"):
            pybaracuda.torch.check_indices()
    pybaracuda.torch.check_indices()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("operator", BY_ROWS)
def test_indices_out_of_range_are_dropped_and_counted(
    operator: str, dtype: str, cuda: str, rng: np.random.Generator
) -> None:
    made = CASES[operator][0](rng, getattr(torch, dtype), cuda)
    with pybaracuda.torch.install():
        call(operator, made)
        assert_dropped(0)
    wanted = []
    total = 0
    for _ in range(5):
        arguments, wrong = with_wrong_entries(operator, made, rng)
        with pybaracuda.torch.install(native=False):
            wanted.append((arguments, call(operator, arguments)))
            assert_dropped(wrong)
        total += wrong
    with pybaracuda.torch.install():
        for arguments, expected in wanted:
            before = _native.taken(operator, cuda)
            # Of any stream.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found = call(operator, arguments)
            torch.cuda.current_stream().wait_stream(stream)
            assert same(found, expected)
            assert _native.taken(operator, cuda) == before + HAS_INTERFACE
    assert_dropped(total)


@pytest.mark.parametrize("operator", BY_ROWS)
def test_each_replay_of_a_graph_counts(operator: str, cuda: str, rng: np.random.Generator) -> None:
    arguments, wrong = with_wrong_entries(operator, CASES[operator][0](rng, torch.float32, cuda), rng)
    with pybaracuda.torch.install():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                expected = call(operator, arguments)
        torch.cuda.current_stream().wait_stream(side)
        assert_dropped(2 * wrong)
        graph = torch.cuda.CUDAGraph()
        before = _native.taken(operator, cuda)
        with torch.cuda.graph(graph):
            found = call(operator, arguments)
        assert _native.taken(operator, cuda) == before + HAS_INTERFACE
    assert_dropped(0)
    for _ in range(3):
        for each in found:
            each.fill_(torch.nan)
        graph.replay()
        assert same(found, expected)
    assert_dropped(3 * wrong)


def test_rows_that_fill_many_blocks(cuda: str, rng: np.random.Generator) -> None:
    # Widths that are no multiple of what a thread takes at once, too.
    for dtype, columns in itertools.product(FLOATS, (63, 64)):
        given = of_edges(rng, (3000, columns), getattr(torch, dtype), cuda)
        source = of_edges(rng, (200_000, columns), getattr(torch, dtype), cuda)
        index = rows_index(rng, (200_000, columns), 3000, cuda)
        for operator in SCATTERS:
            arguments = (given, 0, index, source, *(["mean"] if "reduce" in operator else []))
            with pybaracuda.torch.install(native=False):
                expected = call(operator, arguments)
            with pybaracuda.torch.install():
                before = _native.taken(operator, cuda)
                assert same(call(operator, arguments), expected)
                assert _native.taken(operator, cuda) == before + HAS_INTERFACE


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
