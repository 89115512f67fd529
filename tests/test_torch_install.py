# SPDX-License-Identifier: Apache-2.0
"""install(): what it changes and puts back, operators of rows beside float64, transforms, threads, whole programs."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch_calls import Hits, fresh, ours, same

import pybaracuda
import pybaracuda.torch
from pybaracuda.torch._route import ROUTES

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
REDUCTIONS = ("sum", "mean", "prod", "amax", "amin")


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()
    torch.use_deterministic_algorithms(False)


def check_rows(
    call: Callable[..., Any], operator: str, tensors: list[Any], dtype: Any, terms: int, magnitude: float
) -> None:
    """Hold a call on `tensors` to the same call of PyTorch's in float64.

    A sum of n terms of at most m is off by n * n * m units at most (each addition rounds a partial sum of at most
    n * m), and then rounded to `dtype`.
    """
    exact = call(*(each.double() if each.is_floating_point() else each for each in tensors))
    with pybaracuda.torch.install(), Hits(operator):
        found = call(*tensors)
    again = call
    assert found.dtype == dtype
    wide = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    bound = terms * terms * magnitude * wide + torch.finfo(dtype).eps * exact.abs()
    assert bool(((found.double() - exact).abs() <= bound).all())
    with pybaracuda.torch.install():
        assert same(again(*tensors), found)


@FLOAT
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("form", ["index_add", "index_add_", "index_add.out"])
@pytest.mark.parametrize("alpha", [1, -0.3])
def test_index_add(dim: int, form: str, alpha: float, dtype: Any, device: str, rng: np.random.Generator) -> None:
    shape = [4, 5, 6]
    extent = shape[dim]
    index = torch.from_numpy(rng.integers(0, extent, 40)).to(device)
    rows = shape.copy()
    rows[dim] = 40
    given, source = fresh(rng, tuple(shape), dtype, device), fresh(rng, tuple(rows), dtype, device)

    def call(given: Any, source: Any) -> Any:
        if form == "index_add":
            return torch.index_add(given, dim, index, source, alpha=alpha)
        if form == "index_add_":
            return given.clone().index_add_(dim, index, source, alpha=alpha)
        return torch.index_add(given, dim, index, source, alpha=alpha, out=torch.full_like(given, 7))

    check_rows(call, f"aten::{form}", [given, source], dtype, 42, 8.0)


@FLOAT
@pytest.mark.parametrize(("reduce", "same_as"), [("add", "sum"), ("multiply", "prod")])
@pytest.mark.parametrize("by_element", [False, True])
def test_scatter_with_a_reduction(
    reduce: str, same_as: str, by_element: bool, dtype: Any, device: str, rng: np.random.Generator
) -> None:
    """The sums and products of scatter_reduce, to the bit; whole numbers, whose sums are exact, as PyTorch's."""
    index = torch.from_numpy(rng.integers(0, 5, (30, 7) if by_element else (30, 1))).to(device).expand(30, 7)
    given, source = fresh(rng, (5, 7), dtype, device), 1 + fresh(rng, (30, 7), dtype, device) / 8
    whole = [torch.from_numpy(rng.integers(-9, 9, shape)).to(device) for shape in ((5, 7), (30, 7))]
    wanted = whole[0].scatter(0, index, whole[1], reduce=reduce)
    with pybaracuda.torch.install(devices=device), Hits("aten::scatter.reduce", "aten::scatter_.reduce"):
        found = given.scatter(0, index, source, reduce=reduce)
        assert same(given.scatter_reduce(0, index, source, same_as), found)
        assert same(given.clone().scatter_(0, index, source, reduce=reduce), found)
        assert torch.equal(whole[0].scatter(0, index, whole[1], reduce=reduce), wanted)
        assert torch.equal(whole[0].clone().scatter_(0, index, whole[1], reduce=reduce), wanted)


@FLOAT
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("reduce", "include_self"), list(product(REDUCTIONS, [True, False])))
def test_scatter_reduce(
    reduce: str, include_self: bool, dim: int, dtype: Any, device: str, rng: np.random.Generator
) -> None:
    # Most rows go to some of the segments, and one gets none.
    names = torch.from_numpy(rng.integers(0, 6, 30)).to(device)
    given, source = fresh(rng, (7, 9), dtype, device), 1 + fresh(rng, (30, 9), dtype, device) / 8
    if dim:
        given, source = given.T, source.T
    index = names[:, None].expand(30, 9) if dim == 0 else names.expand(9, 30)

    def call(given: Any, source: Any) -> Any:
        return given.scatter_reduce(dim, index, source, reduce, include_self=include_self)

    check_rows(call, "aten::scatter_reduce.two", [given, source], dtype, 31, 8.0 if reduce != "prod" else 300.0)

    def in_place(given: Any, source: Any) -> Any:
        return given.clone().scatter_reduce_(dim, index, source, reduce, include_self=include_self)

    with pybaracuda.torch.install(), Hits("aten::scatter_reduce_.two"):
        assert same(in_place(given, source), call(given, source))


@FLOAT
def test_scatter_add_and_gathers_gradient(dtype: Any, device: str, rng: np.random.Generator) -> None:
    names = torch.from_numpy(rng.integers(0, 5, 30)).to(device)
    index = names[:, None].expand(30, 8)
    given, source = fresh(rng, (5, 8), dtype, device), fresh(rng, (34, 8), dtype, device)
    check_rows(lambda a, b: a.scatter_add(0, index, b), "aten::scatter_add", [given, source], dtype, 31, 8.0)
    check_rows(lambda a, b: a.clone().scatter_add_(0, index, b), "aten::scatter_add_", [given, source], dtype, 31, 8.0)

    def gradient(given: Any, weights: Any) -> Any:
        leaf = given.clone().requires_grad_()
        (leaf.gather(0, index) * weights).sum().backward()
        return leaf.grad

    check_rows(gradient, "aten::scatter_add_", [given, source[:30]], dtype, 31, 8.0)


@FLOAT
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_an_index_that_differs_by_element(dim: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    given, source = fresh(rng, (4, 5, 6), dtype, device), 1 + fresh(rng, (31, 32, 33), dtype, device) / 8
    covered = [3, 4, 5]  # not all of what there is
    covered[dim] = 30
    index = torch.from_numpy(rng.integers(0, given.shape[dim], covered)).to(device)
    check_rows(lambda a, b: a.scatter_add(dim, index, b), "aten::scatter_add", [given, source], dtype, 31, 8.0)
    check_rows(
        lambda a, b: a.clone().scatter_add_(dim, index, b), "aten::scatter_add_", [given, source], dtype, 31, 8.0
    )
    for reduce, include_self in product(REDUCTIONS, (True, False)):

        def reduced(given: Any, source: Any, reduce: str = reduce, include_self: bool = include_self) -> Any:
            return given.scatter_reduce(dim, index, source, reduce, include_self=include_self)

        magnitude = 8.0 if reduce != "prod" else 300.0
        check_rows(reduced, "aten::scatter_reduce.two", [given, source], dtype, 31, magnitude)

    def gradient(given: Any, weights: Any) -> Any:
        leaf = given.clone().requires_grad_()
        (leaf.gather(dim, index) * weights[tuple(map(slice, covered))]).sum().backward()
        return leaf.grad

    check_rows(gradient, "aten::scatter_add_", [given, source], dtype, 31, 8.0)


def test_elements_of_another_layout_and_of_integers(device: str, rng: np.random.Generator) -> None:
    given = torch.from_numpy(rng.integers(-9, 9, (5, 7))).to(device).t()
    source = torch.from_numpy(rng.integers(-9, 9, (40, 5))).to(device)
    index = torch.from_numpy(rng.integers(0, 7, (40, 5))).to(device)
    wanted = given.scatter_add(0, index, source)
    with pybaracuda.torch.install(), Hits("aten::scatter_add"):
        found = given.scatter_add(0, index, source)
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride()


@FLOAT
@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (0, 2), (0, 1, 2), (1, 3)])
def test_index_put_of_several_axes(axes: tuple[int, ...], dtype: Any, device: str, rng: np.random.Generator) -> None:
    shape = (3, 4, 5, 2)
    given = fresh(rng, shape, dtype, device)
    named: list[Any] = [None] * 4
    for position, axis in enumerate(axes):
        # Of one row or one column of entries, as broadcasting takes them.
        entries = (6, 1) if position == 0 else (1, 5)
        named[axis] = torch.from_numpy(rng.integers(-shape[axis], shape[axis], entries)).to(device)
    while named[-1] is None:
        named.pop()
    values = torch.ops.aten.index(given, named)
    values = fresh(rng, tuple(values.shape), dtype, device)

    def call(given: Any, values: Any) -> Any:
        return torch.ops.aten.index_put(given, named, values, True)

    check_rows(call, "aten::index_put", [given, values], dtype, 31, 8.0)
    narrow = values[..., :1] if values.dim() > 2 else values.reshape(-1)[:1].reshape(())
    check_rows(call, "aten::index_put", [given, narrow], dtype, 31, 8.0)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64])
@pytest.mark.parametrize("accumulate", [True, False])
def test_put(accumulate: bool, dtype: Any, device: str, rng: np.random.Generator) -> None:
    given = torch.from_numpy(rng.integers(-5, 5, (5, 6))).to(device, dtype).t()
    index = torch.from_numpy(rng.integers(-30, 30, (10, 4))).to(device)
    source = torch.from_numpy(rng.integers(-5, 5, 40)).to(device, dtype)
    # One after another, in the order of the entries.
    flat = given.reshape(-1).tolist()
    for place, value in zip(index.reshape(-1).tolist(), source.tolist(), strict=True):
        flat[place] = value + (flat[place] if accumulate else 0)
    with pybaracuda.torch.install(), Hits("aten::put_"):
        found = given.clone().put_(index, source, accumulate)
    assert found.stride() == given.stride()
    assert found.reshape(-1).tolist() == flat


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
@pytest.mark.parametrize("minlength", [0, 12, 4096, 4097])
def test_bincount_with_weights(minlength: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    ids = torch.from_numpy(rng.integers(0, 9, 500)).to(device)
    weights = torch.from_numpy(rng.integers(-9, 9, 500)).to(device, dtype)
    wanted = torch.bincount(ids.cpu(), weights.cpu(), minlength)
    with pybaracuda.torch.install(), Hits("aten::bincount"):
        found = torch.bincount(ids, weights, minlength)
    assert found.dtype == wanted.dtype
    assert torch.equal(found.cpu(), wanted)


def test_bincount_of_more_or_fewer_bins_than_the_last_time(device: str, rng: np.random.Generator) -> None:
    weights = torch.from_numpy(rng.integers(-9, 9, 500)).to(device, torch.float32)
    with pybaracuda.torch.install():
        for bins in (9, 300, 10, 5000, 5000, 40, 4096, 256, 257):
            ids = torch.from_numpy(rng.integers(0, bins, 500)).to(device)
            ids[17] = bins - 1
            found = torch.bincount(ids, weights)
            assert torch.equal(found.cpu(), torch.bincount(ids.cpu(), weights.cpu()))
            assert found.is_contiguous()
            assert not found._is_view()


def test_bincount_of_a_negative_entry_is_pytorchs(device: str) -> None:
    ids = torch.tensor([3, -1, 2], device=device)
    weights = torch.ones(3, device=device)
    with pybaracuda.torch.install():
        with pytest.raises(RuntimeError, match="non-negative") as caught:
            torch.bincount(ids, weights)
        # Nothing of ours stands in the way of PyTorch's own error.
        assert caught.value.__context__ is None
        found = torch.bincount(ids[::2], weights[::2])
    assert found.tolist() == [0, 0, 1, 1]


@FLOAT
@pytest.mark.parametrize("shape", [(20,), (4, 5)])
@pytest.mark.parametrize("axis", [0, 1])
def test_index_put(axis: int, shape: tuple[int, ...], dtype: Any, device: str, rng: np.random.Generator) -> None:
    index = torch.from_numpy(rng.integers(-6, 6, shape)).to(device)
    given = fresh(rng, (6, 6, 3), dtype, device)
    values = fresh(rng, (*shape, 6, 3) if axis == 0 else (6, *shape, 3), dtype, device)
    indices = (index,) if axis == 0 else (slice(None), index)

    named = [None] * axis + [index]

    def call(given: Any, values: Any) -> Any:
        return torch.ops.aten.index_put(given, named, values, True)

    def in_place(given: Any, values: Any) -> Any:
        return torch.ops.aten.index_put_(given.clone(), named, values, True)

    check_rows(call, "aten::index_put", [given, values], dtype, 21, 8.0)
    check_rows(in_place, "aten::_index_put_impl_", [given, values], dtype, 21, 8.0)

    def gradient(given: Any, weights: Any) -> Any:
        leaf = given.clone().requires_grad_()
        (leaf[indices] * weights).sum().backward()
        return leaf.grad

    check_rows(gradient, "aten::_index_put_impl_", [given, values], dtype, 21, 8.0)


def test_an_index_without_axes_into_a_vector(device: str) -> None:
    with pybaracuda.torch.install(), Hits("aten::_index_put_impl_"):
        vector = torch.ones(4, device=device)
        vector.index_put_((torch.tensor(-3, device=device),), torch.tensor(2.0, device=device), accumulate=True)
    assert vector.tolist() == [1, 3, 1, 1]


@FLOAT
@pytest.mark.parametrize("padding_idx", [None, 2])
def test_embedding(padding_idx: int | None, dtype: Any, device: str, rng: np.random.Generator) -> None:
    index = torch.from_numpy(rng.integers(0, 5, (6, 7))).to(device)
    table, weights = fresh(rng, (5, 8), dtype, device), fresh(rng, (6, 7, 8), dtype, device)

    def gradient(table: Any, weights: Any) -> Any:
        leaf = table.clone().requires_grad_()
        (functional.embedding(index, leaf, padding_idx=padding_idx) * weights).sum().backward()
        return leaf.grad

    check_rows(gradient, "aten::embedding_dense_backward", [table, weights], dtype, 42, 8.0)


@FLOAT
def test_bits_are_the_array_functions(dtype: Any, device: str, rng: np.random.Generator) -> None:
    coordinates = dtype if dtype == torch.float64 else torch.float32
    image = fresh(rng, (2, 3, 13, 14), dtype, device)
    grid = fresh(rng, (2, 8, 9, 2), dtype, device) * 0.7
    rows = fresh(rng, (700, 5), dtype, device)
    ids = torch.from_numpy(rng.integers(0, 3, 700)).to(device)
    with pybaracuda.torch.install(), Hits("aten::grid_sampler_2d_backward", "aten::index_add"):
        leaves = [image.clone().requires_grad_(), grid.clone().requires_grad_()]
        sampled = functional.grid_sample(*leaves, align_corners=False)
        weights = fresh(rng, tuple(sampled.shape), dtype, device)
        sampled.backward(weights)
        total = torch.zeros((3, 5), dtype=dtype, device=device).index_add(0, ids, rows)
        padded = image.clone().requires_grad_()
        edges = functional.pad(padded, (3, 2, 1, 4), "reflect")
        edge_weights = fresh(rng, tuple(edges.shape), dtype, device)
        edges.backward(edge_weights)
    wide = grid.to(coordinates)
    assert same(sampled.detach(), pybaracuda.grid_sample(image, wide))
    of_image, of_grid = pybaracuda.grid_sample_backward(weights, image, wide)
    assert same(leaves[0].grad, of_image)
    assert same(leaves[1].grad, of_grid.to(dtype))
    assert same(total, pybaracuda.segment_sum(rows, ids, 3))
    low, high = (0, 0, 1, 3), (0, 0, 4, 2)
    assert same(padded.grad, pybaracuda.pad_backward(edge_weights, low, high, mode="reflect"))


def test_an_index_out_of_range_is_pytorchs_error_on_the_cpu() -> None:
    rows = torch.ones(3, 2)
    with pybaracuda.torch.install(), pytest.raises((IndexError, RuntimeError), match="index"):
        torch.zeros(2, 2).index_add(0, torch.tensor([0, 2, 1]), rows)


def test_an_index_out_of_range_is_counted_on_a_gpu(device: str) -> None:
    if device == "cpu":
        pybaracuda.torch.check_indices()
        return
    index = torch.tensor([0, 2, -1, 1], device=device)
    with pybaracuda.torch.install():
        total = torch.zeros(2, 2, device=device).index_add(0, index, torch.ones(4, 2, device=device))
    assert total.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(IndexError, match="2 on cuda"):
        pybaracuda.torch.check_indices()
    pybaracuda.torch.check_indices()


def used() -> bool:
    """Whether a call goes to our kernels now."""
    before = ours("aten::index_add")
    torch.zeros(2, 1).index_add(0, torch.tensor([0, 1]), torch.ones(2, 1))
    return ours("aten::index_add") > before


def test_installations_nest_and_end_by_themselves() -> None:
    assert not used()
    outer = pybaracuda.torch.install()
    with pybaracuda.torch.install(ops=["index_add"]):
        assert used()
    assert used()
    with pybaracuda.torch.install(ops="index_add") as inner:
        outer.remove()
        outer.remove()
        assert used()
        assert inner.operators == ("aten::index_add", "aten::index_add.out", "aten::index_add_")
    assert not used()
    pybaracuda.torch.install()
    pybaracuda.torch.install(exclude=["index_add"])
    pybaracuda.torch.uninstall()
    assert not used()
    with pybaracuda.torch.install(exclude="index_add"):
        assert not used()


def test_unknown_names_change_nothing() -> None:
    with pytest.raises(ValueError, match="no operator index_sub"):
        pybaracuda.torch.install(ops=["index_sub", "index_add"])
    with pytest.raises(ValueError, match="'tpu'"):
        pybaracuda.torch.install(devices=["tpu"])
    assert not used()


def test_importing_installs_nothing() -> None:
    code = (
        "import pybaracuda.torch as t, torch; torch.zeros(2, 1).index_add(0, torch.tensor([0]), torch.ones(1, 1));"
        "assert not t.report().lines, t.report()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_kernel_below_that_goes_away() -> None:
    library = torch.library.Library("aten", "IMPL", "CPU")
    original = torch.library.get_kernel("aten::index_add", "CPU")
    # Versions of torch before 2.13 want to be told that an earlier test's kernel is replaced.
    allowed = {"allow_override": True} if "allow_override" in inspect.signature(library.impl).parameters else {}

    def hand_on(keys: Any, *arguments: Any, **options: Any) -> Any:
        return original.call_boxed(keys, *arguments, **options)

    library.impl("index_add", hand_on, "CPU", with_keyset=True, **allowed)
    index, rows = torch.tensor([0, 1]), torch.ones(2, 1, dtype=torch.int16)
    with pybaracuda.torch.install():
        library._destroy()
        # int16 is none of ours, so that the call goes to what is below.
        assert torch.zeros(2, 1, dtype=torch.int16).index_add(0, index, rows).tolist() == [[1], [1]]
        assert torch.zeros(2, 1, dtype=torch.int16).index_add(0, index, rows).tolist() == [[1], [1]]


def test_determinism_is_set_and_set_back() -> None:
    before = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    torch.backends.cudnn.benchmark = True
    with pybaracuda.torch.install(deterministic=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.benchmark
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == before
    torch.backends.cudnn.benchmark = False


def test_what_goes_around_the_kernels_is_led_back() -> None:
    decompositions = __import__("torch._decomp.decompositions", fromlist=["_"])
    saved = decompositions._replication_pad
    row = torch.arange(6.0).reshape(1, 2, 3)
    with pybaracuda.torch.install(), Hits("aten::replication_pad1d"):
        assert decompositions._replication_pad is not saved
        assert same(decompositions._replication_pad(row, [2, 1]), functional.pad(row, (2, 1), mode="replicate"))
        assert same(decompositions._replication_pad(row, [-1, 1]), saved(row, [-1, 1]))
    assert decompositions._replication_pad is saved


def test_transforms(device: str, rng: np.random.Generator) -> None:
    image, grid = fresh(rng, (1, 2, 5, 6), torch.float64, device), fresh(rng, (1, 3, 4, 2), torch.float64, device) / 2
    index = torch.tensor([0, 2, 2, 1], device=device)
    rows = fresh(rng, (4, 3), torch.float64, device)

    def sample(image: Any) -> Any:
        return functional.grid_sample(image, grid, align_corners=False).square().sum()

    def add(rows: Any) -> Any:
        return torch.zeros(3, 3, dtype=rows.dtype, device=device).index_add(0, index, rows).square().sum()

    def everything() -> list[Any]:
        images, many = torch.stack([image, 2 * image]), torch.stack([rows, -rows, 3 * rows])
        with torch.inference_mode():
            sampled = sample(image).clone()
        return [
            sampled,
            torch.vmap(sample)(images),
            torch.func.grad(sample)(image),
            torch.vmap(torch.func.grad(sample))(images),
            torch.vmap(add)(many),
            torch.vmap(torch.func.grad(add))(many),
            torch.func.jacrev(lambda x: functional.pad(x, (2, 1), "reflect"))(rows[None]),
            torch.func.hessian(add)(rows),
        ]

    plain = everything()
    with (
        pybaracuda.torch.install(),
        Hits("aten::grid_sampler_2d", "aten::grid_sampler_2d_backward", "aten::index_add"),
    ):
        found = everything()
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_autocast_and_export(device: str, rng: np.random.Generator) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(2, 2, 3, padding=1)

        def forward(self, image: Any, grid: Any) -> Any:
            return functional.grid_sample(self.layer(image), grid, align_corners=False)

    net = Net().to(device)
    image, grid = fresh(rng, (1, 2, 8, 8), torch.float32, device), fresh(rng, (1, 4, 4, 2), torch.float32, device) / 2
    with pybaracuda.torch.install(), Hits("aten::grid_sampler_2d"):
        expected = net(image, grid)
        exported = torch.export.export(net, (image, grid))
        assert same(exported.module()(image, grid), expected)
        table = torch.export.default_decompositions()
        table.update(pybaracuda.torch.decompositions())
        lowered = exported.run_decompositions(table)
        assert "pybaracuda.aten_grid_sampler_2d" in str(lowered.graph)
        assert same(lowered.module()(image, grid), expected)
        with torch.autocast(device, dtype=torch.bfloat16):
            net(image, grid).float().sum().backward()
    assert net.layer.weight.grad is not None


def test_threads_install_while_others_compute(rng: np.random.Generator) -> None:
    index, rows = torch.from_numpy(rng.integers(0, 50, 500)), torch.from_numpy(rng.integers(-9, 9, (500, 3))).float()
    expected = torch.zeros(50, 3).index_add(0, index, rows)
    wrong: list[Any] = []
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            # Whole numbers: every order of the sum gives the same bits.
            if not torch.equal(torch.zeros(50, 3).index_add(0, index, rows), expected):
                wrong.append("sum")

    def change() -> None:
        try:
            for _ in range(20):
                with pybaracuda.torch.install(ops=["index_add", "scatter_add"]):
                    pass
        except Exception as error:
            wrong.append(error)

    computing = [threading.Thread(target=compute) for _ in range(3)]
    changing = [threading.Thread(target=change) for _ in range(3)]
    for thread in computing + changing:
        thread.start()
    for thread in changing:
        thread.join(120)
    stop.set()
    for thread in computing:
        thread.join(120)
    assert not wrong
    assert not used()


def test_compiled_programs_have_the_same_bits(device: str, rng: np.random.Generator) -> None:
    index = torch.from_numpy(rng.integers(0, 20, 50)).to(device)

    def step(image: Any, grid: Any, rows: Any) -> Any:
        added = torch.zeros(20, 7, device=device).index_add(0, index, rows)
        mean = torch.zeros(20, 7, device=device).scatter_reduce(0, index[:, None].expand(-1, 7), rows, "mean")
        return (
            functional.grid_sample(image, grid, align_corners=False),
            functional.pad(image, (2, 1, 1, 1), "reflect"),
            added,
            mean,
            rows[index % 9],
            functional.embedding(index, rows),
        )

    def gradients(function: Callable[..., Any]) -> list[Any]:
        leaves = [each.clone().requires_grad_() for each in tensors]
        results = function(*leaves)
        torch.autograd.backward(results, [torch.ones_like(each) * 0.75 for each in results])
        return [*results, *(each.grad for each in leaves)]

    tensors = [
        fresh(rng, (2, 3, 16, 17), torch.float32, device),
        fresh(rng, (2, 9, 8, 2), torch.float32, device) * 0.6,
        fresh(rng, (50, 7), torch.float32, device),
    ]
    with pybaracuda.torch.install():
        eager = gradients(step)
        operators = ("aten::grid_sampler_2d_backward", "aten::index_add", "aten::scatter_reduce.two")
        with Hits(*operators, "aten::embedding_dense_backward", "aten::reflection_pad2d_backward"):
            compiled = gradients(torch.compile(step, fullgraph=True))
    for one, other in zip(compiled, eager, strict=True):
        assert same(one, other)


@FLOAT
def test_samples_that_are_cudnns(dtype: Any, device: str, rng: np.random.Generator) -> None:
    """Bilinear ones with zeros around and aligned corners go to another operator on CUDA, whose gradient is refused."""
    image, grid = fresh(rng, (2, 3, 9, 11), dtype, device), fresh(rng, (2, 8, 7, 2), dtype, device) * 0.7
    weights = fresh(rng, (2, 3, 8, 7), dtype, device)
    forward, backward = ROUTES["aten::cudnn_grid_sampler"], ROUTES["aten::cudnn_grid_sampler_backward"]
    assert forward.refusal(image, grid) == backward.refusal(image, grid, weights) == ""
    wanted = [forward.run(image, grid), *backward.run(image, grid, weights)]

    def step(image: Any, grid: Any) -> Any:
        return functional.grid_sample(image, grid, align_corners=True)

    # cuDNN has no bfloat16 here.
    is_cudnns = device == "cuda" and torch.backends.cudnn.is_available() and dtype != torch.bfloat16
    name = "aten::cudnn_grid_sampler" if is_cudnns else "aten::grid_sampler_2d"
    torch.use_deterministic_algorithms(True)
    for way in (step, torch.compile(step, fullgraph=True)):
        leaves = image.clone().requires_grad_(), grid.clone().requires_grad_()
        seen = (name, f"{name}_backward") if way is step else ()
        with pybaracuda.torch.install(), Hits(*seen):
            output = way(*leaves)
            gradients = torch.autograd.grad(output, leaves, weights)
        for one, other in zip((output, *gradients), wanted, strict=True):
            assert same(one, other)


def test_a_compiler_leaves_the_inside_of_kernels_alone(device: str) -> None:
    """Behind a graph's end an operator is called as in an eager program, and Dynamo sees its kernel's Python."""
    ids = torch.randint(0, 50, (3000,), device=device)
    weights = torch.randn(3000, device=device, dtype=torch.float64)
    scores = torch.randn(40, 64, 30, device=device).log_softmax(2)
    targets = torch.randint(1, 30, (64, 5), device=device)

    def program() -> Any:
        torch._dynamo.graph_break()
        counts = torch.bincount(ids, weights)
        losses = functional.ctc_loss(scores, targets, [40] * 64, [5] * 64)
        direct = pybaracuda.torch.segment_sum(weights.reshape(-1, 1), ids, 50)
        return counts, losses, direct

    # Without the bridge, so that every operator is Python's.
    with pybaracuda.torch.install(native=False), Hits("aten::ctc_loss.IntList"):
        expected = program()
        torch._dynamo.utils.counters.clear()
        found = torch.compile(program)()
    for one, wanted in zip(found, expected, strict=True):
        assert same(one, wanted)
    frames = torch._dynamo.utils.counters["frames"]
    # The program, and what is left of it behind each of three ends: the one here and two outputs of unknown extents.
    assert 0 < frames["total"] <= 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_compiler_counts_the_rows_of_a_mean_once(dim: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    """PyTorch's gradient of a mean adds ones to each row's columns; equal columns are added up as one."""
    shape = [6, 7, 8]
    column = [1, 1, 1]
    column[dim] = shape[dim]
    wide = list(shape)
    wide[dim] = 300
    order = [1, 1, 1]
    order[dim] = 300
    index = torch.from_numpy(rng.integers(0, shape[dim], order)).to(device).expand(wide)
    given = torch.from_numpy(rng.integers(-9, 9, wide)).to(device, dtype)

    def count(index: Any, given: Any) -> Any:
        start = torch.full(shape, 2, dtype=dtype, device=device)
        return start.scatter_add(dim, index, torch.full(wide, 1, dtype=dtype, device=device))

    def add(index: Any, given: Any) -> Any:
        start = torch.full(shape, 2, dtype=dtype, device=device)
        return start.scatter_add(dim, index, given)

    for function, added in ((count, column), (add, shape)):
        with pybaracuda.torch.install():
            table = pybaracuda.torch.decompositions()
            program = make_fx(function, decomposition_table=table, tracing_mode="fake")(index, given)
            found = program(index, given)
        nodes = [node for node in program.graph.nodes if "pybaracuda" in str(node.target)]
        assert [list(node.meta["val"].shape) for node in nodes] == [added]
        assert same(found, function(index, given))


def test_a_compiled_gradient_keeps_its_promised_strides(device: str, rng: np.random.Generator) -> None:
    """PyTorch's own gradient of affine_grid is a transposed tensor, ours is not."""
    theta = fresh(rng, (2, 2, 3), torch.float32, device).requires_grad_()
    weights = fresh(rng, (2, 6, 5, 2), torch.float32, device)

    def gradient(grid: Callable[..., Any]) -> Any:
        return torch.autograd.grad(grid(theta), theta, weights)[0]

    def grid(theta: Any) -> Any:
        return functional.affine_grid(theta, [2, 1, 6, 5], align_corners=False)

    gradient(torch.compile(grid, fullgraph=True))
    with pybaracuda.torch.install(), Hits("aten::affine_grid_generator_backward"):
        eager = gradient(grid)
        with Hits("aten::affine_grid_generator_backward"):
            assert same(gradient(torch.compile(grid, fullgraph=True)), eager)


@pytest.mark.parametrize("compiled", [True, False])
def test_what_our_kernel_leaves_of_a_composite_operator_compiles(
    compiled: bool, device: str, rng: np.random.Generator
) -> None:
    """PyTorch composes the gradient of affine_grid of operators that write in place; while and after we are there."""
    # 16 bits are PyTorch's own.
    dtypes = (torch.float32, torch.bfloat16)
    leaves = {dtype: fresh(rng, (2, 3, 4), dtype, device).requires_grad_() for dtype in dtypes}
    weights = {dtype: fresh(rng, (2, 4, 6, 5, 3), dtype, device) for dtype in dtypes}

    def gradient(dtype: Any, is_compiled: bool) -> Any:
        def grid(theta: Any) -> Any:
            return functional.affine_grid(theta, [2, 1, 4, 6, 5], align_corners=False)

        function = torch.compile(grid, fullgraph=True) if is_compiled else grid
        return torch.autograd.grad(function(leaves[dtype]), leaves[dtype], weights[dtype])[0]

    plain = gradient(torch.bfloat16, False)
    with pybaracuda.torch.install(compile=compiled):
        assert same(gradient(torch.bfloat16, True), plain)
    before = ours("aten::affine_grid_generator_backward")
    assert same(gradient(torch.bfloat16, True), plain)
    assert torch.allclose(gradient(torch.float32, True), gradient(torch.float32, False), rtol=1e-5, atol=1e-5)
    assert ours("aten::affine_grid_generator_backward") == before


PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, item):
        import pybaracuda.torch
        torch.zeros(2, 1).index_add(0, torch.tensor([0, 1]), torch.ones(2, 1))
        return sum(line.ours for line in pybaracuda.torch.report().lines)

if __name__ == "__main__":
    method = sys.argv[1]
    counts = [int(each) for each in DataLoader(Rows(), num_workers=1, multiprocessing_context=method)]
    print(counts, torch.are_deterministic_algorithms_enabled(), torch.initial_seed(), sys.argv[1:])
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("as_module", [False, True])
def test_an_unchanged_program(method: str, as_module: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    name = ["-m", "program"] if as_module else ["program.py"]
    command = [sys.executable, "-m", "pybaracuda.torch", "--deterministic", "--seed", "7", "--report", *name, method]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(pybaracuda.__file__).parents[1]), str(tmp_path)])}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    counts, rest = done.stdout.strip().split("] ")
    assert rest == f"True 7 ['{method}']"
    # A spawned worker learns of it when it imports torch, from the installed package's entry point.
    if method == "fork" or any("pybaracuda" in each.value for each in entry_points(group="torch.backends")):
        assert all(int(each) > 0 for each in counts.strip("[").split(",")), done.stdout
    assert done.stderr.count("operator ") <= 1


FIRST = ["torch", "pybaracuda.torch", "pybaracuda.torch.scatter", "pybaracuda"]
OTHER_WISHES = ["", "0", "1;ops=;exclude=;deterministic=1;seed=5", "1;ops=nothing_of_the_kind"]


@pytest.mark.parametrize(("first", "wish"), [*[(first, "1") for first in FIRST], *[("torch", w) for w in OTHER_WISHES]])
def test_importing_torch_with_the_package_installed(first: str, wish: str, as_installed: dict[str, str]) -> None:
    code = (
        f"import {first}, torch, sys; torch.zeros(2, 1).index_add(0, torch.tensor([0]), torch.ones(1, 1));"
        "import pybaracuda.torch as t; print(sum(line.ours for line in t.report().lines))"
    )
    environ = {**as_installed, "PYBARACUDA_TORCH": wish}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    is_installed = wish.startswith("1") and "nothing" not in wish
    assert done.stdout.strip() == str(int(is_installed)), done.stderr
    assert ("nothing is installed: there is no operator" in done.stderr) == ("nothing" in wish)


def test_the_documents_table_is_the_registrys() -> None:
    command = [sys.executable, "-m", "pybaracuda.torch", "--list"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()
    page = (Path(__file__).parents[1] / "docs" / "pytorch.md").read_text("utf-8")
    table = page.partition("<!-- operators-begin -->\n")[2].partition("\n<!-- operators-end -->")[0]
    assert table == printed, "docs/pytorch.md: paste what `python -m pybaracuda.torch --list` prints"
