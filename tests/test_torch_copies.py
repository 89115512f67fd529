# SPDX-License-Identifier: Apache-2.0
"""Rows and elements that are put by an index through install(): PyTorch's own results on the CPU, the last writer's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch_calls import Hits, ours, same

import pybaracuda
import pybaracuda.torch
from pybaracuda.torch import _copies, _native, _puts

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.bool, torch.uint8, torch.int16, torch.int64, torch.complex64, torch.complex128)
DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()
    torch.use_deterministic_algorithms(False)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = torch.float32) -> Any:
    """On the CPU, whose results are what others are held against."""
    return torch.from_numpy(rng.integers(0, 100, shape)).to(dtype)


def indices(rng: np.random.Generator, below: int, *shape: int, low: int = 0) -> Any:
    return torch.from_numpy(rng.integers(low, below, shape))


def layouts(tensor: Any) -> list[Any]:
    """The same values dense, with its axes the other way round in memory, and with gaps."""
    backwards = list(range(tensor.dim()))[::-1]
    transposed = tensor.permute(backwards).contiguous().permute(backwards)
    gaps = torch.zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]), dtype=tensor.dtype, device=tensor.device)
    gaps[..., ::2] = tensor
    return [tensor, transposed, gaps[..., ::2]]


def check(call: Callable[..., Any], operator: str, device: str, *tensors: Any) -> None:
    """A call of ours has the bits and the strides of PyTorch's own on the CPU, and those that it has twice."""
    before = torch.are_deterministic_algorithms_enabled()
    # Without the flag threads share the writers of `index_put`; with it there is no `put_`.
    torch.use_deterministic_algorithms(operator != "aten::put_")
    wanted = call(*tensors)
    torch.use_deterministic_algorithms(before)
    placed = [each.to(device) for each in tensors]
    with pybaracuda.torch.install(devices=device), Hits(operator):
        found = call(*placed)
        assert same(found, call(*placed))
    assert same(found.cpu(), wanted)
    assert found.stride() == wanted.stride()


def in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """The call on a copy in each layout; what it answers is the copy."""

    def call(given: Any, *others: Any) -> Any:
        results = []
        for copy in layouts(given.clone()):
            assert function(copy, *others) is copy
            results.append(copy)
        assert all(same(each, results[0]) for each in results)
        return results[0]

    return call


def recorded(monkeypatch: pytest.MonkeyPatch, step: str, *callers: Any) -> list[bool]:
    """A list of what a step of the bridge answers from now on to these modules."""
    done: list[bool] = []

    def run(*given: Any, **options: Any) -> bool:
        done.append(getattr(_native, step)(*given, **options))
        return done[-1]

    for caller in callers:
        monkeypatch.setattr(caller, step, run)
    return done


@DTYPE
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_copy(dim: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    shape = [4, 5, 6]
    index = indices(rng, shape[dim], 40)
    rows = shape.copy()
    rows[dim] = 40
    given, source = drawn(rng, tuple(shape), dtype), drawn(rng, tuple(rows), dtype)
    for one in layouts(given):
        for other in layouts(source):
            check(lambda a, b, c: torch.index_copy(a, dim, b, c), "aten::index_copy", device, one, index, other)
    put = in_place(lambda a, b, c: a.index_copy_(dim, b, c))
    check(put, "aten::index_copy_", device, given, index, source)

    def into(given: Any, index: Any, source: Any) -> Any:
        return torch.index_copy(given, dim, index, source, out=torch.full_like(given, 1))

    check(into, "aten::index_copy.out", device, given, index, source)


@DTYPE
@pytest.mark.parametrize("dim", [0, 1])
def test_scatter_of_rows(dim: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    names = indices(rng, 6, 30)
    given, source = drawn(rng, (6, 9), dtype), drawn(rng, (33, 9), dtype)
    index = names[:, None].expand(30, 9)
    if dim:
        given, source, index = given.T, source.T, index.T

    def scatter(given: Any, names: Any, source: Any) -> Any:
        index = names[:, None].expand(30, 9)
        return given.scatter(dim, index.T if dim else index, source)

    check(scatter, "aten::scatter.src", device, given, names, source)

    def put(given: Any, names: Any, source: Any) -> Any:
        index = names[:, None].expand(30, 9)
        return given.scatter_(dim, index.T if dim else index, source)

    check(in_place(put), "aten::scatter_.src", device, given, names, source)


@DTYPE
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scatter_of_elements(dim: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    given, source = drawn(rng, (4, 5, 6), dtype), drawn(rng, (31, 32, 33), dtype)
    covered = [3, 4, 5]  # not all of what there is
    covered[dim] = 30
    index = indices(rng, given.shape[dim], *covered)
    check(lambda a, b, c: a.scatter(dim, b, c), "aten::scatter.src", device, given, index, source)
    check(in_place(lambda a, b, c: a.scatter_(dim, b, c)), "aten::scatter_.src", device, given, index, source)

    def into(given: Any, index: Any, source: Any) -> Any:
        return torch.scatter(given, dim, index, source, out=torch.full_like(given, 1))

    check(into, "aten::scatter.src_out", device, given, index, source)


@DTYPE
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scatter_of_one_element_in_each_line(
    dim: int, dtype: Any, device: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = recorded(monkeypatch, "put_in_lines", _copies)
    extents = [4, 50, 6]
    lines = extents.copy()
    lines[dim] = 1
    given, source = drawn(rng, tuple(extents), dtype), drawn(rng, tuple(lines), dtype)
    index = torch.from_numpy(rng.integers(0, extents[dim], lines))
    put = in_place(lambda a, b, c: a.scatter_(dim, b, c))
    for each in layouts(source):
        check(put, "aten::scatter_.src", device, given, index, each)
    # Tensors of the CPU are no GPU's; there is no bridge where its library was not built.
    assert set(done) == {device == "cuda" and not _native.problem()}


@DTYPE
@pytest.mark.parametrize("axes", [(0,), (1,), (3,), (0, 1), (1, 2), (0, 2), (0, 1, 2), (1, 3)])
def test_index_put(axes: tuple[int, ...], dtype: Any, device: str, rng: np.random.Generator) -> None:
    shape = (3, 4, 5, 2)
    given = drawn(rng, shape, dtype)
    # Of one row or one column of entries, as broadcasting takes them; negative ones count from the end.
    entries = [indices(rng, shape[axis], *((6, 1) if at == 0 else (1, 5)), low=-shape[axis])
               for at, axis in enumerate(axes)]  # fmt: skip

    def named(entries: Any) -> list[Any]:
        found: list[Any] = [None] * (axes[-1] + 1)
        for axis, each in zip(axes, entries, strict=True):
            found[axis] = each
        return found

    values = drawn(rng, tuple(torch.ops.aten.index(given, named(entries)).shape), dtype)
    for each in (values, values[..., :1]):

        def call(given: Any, values: Any, *entries: Any) -> Any:
            return torch.ops.aten.index_put(given, named(entries), values)

        def put(given: Any, values: Any, *entries: Any) -> Any:
            return torch.ops.aten.index_put_(given, named(entries), values)

        check(call, "aten::index_put", device, given, each, *entries)
        check(in_place(put), "aten::_index_put_impl_", device, given, each, *entries)


@DTYPE
def test_put(dtype: Any, device: str, rng: np.random.Generator) -> None:
    given, index = drawn(rng, (5, 6), dtype), indices(rng, 30, 10, 4, low=-30)
    source = drawn(rng, (40,), dtype)
    check(in_place(lambda a, b, c: a.put_(b, c)), "aten::put_", device, given, index, source)


def last_put(given: Any, places: Any, source: Any) -> Any:
    """Elements put one after another where flat places say, which NumPy promises and PyTorch's threads do not keep."""
    writers = np.full(given.numel(), -1)
    writers[places.numpy().reshape(-1)] = np.arange(places.numel())
    found = torch.from_numpy(writers)
    put = torch.where(found < 0, given.reshape(-1), source.reshape(-1)[found.clamp(min=0)])
    return put.reshape(given.shape)


@DTYPE
def test_the_last_of_many_elements(
    dtype: Any, device: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everywhere, to one place alone, and along an axis; of fewer entries than half the elements, too."""
    done = recorded(monkeypatch, "put_last", _copies, _puts)

    def check_put(operator: str, put: Callable[..., Any], index: Any, source: Any, places: Any) -> None:
        placed = [each.clone().to(device) for each in (given, index, source)]
        with pybaracuda.torch.install(devices=device), Hits(operator):
            found = put(*placed)
        assert same(found.cpu(), last_put(given, places, source))

    given, source = drawn(rng, (70, 100), dtype), drawn(rng, (9000,), dtype)
    for index in (indices(rng, 7000, 9000, low=-7000), torch.full((9000,), -7)):
        check_put("aten::put_", lambda a, b, c: a.put_(b, c), index, source, index)
    down, along = indices(rng, 70, 90, 100), indices(rng, 100, 70, 130)
    columns, rows = torch.arange(100), torch.arange(70)[:, None]
    for dim, index, places in ((0, down, down * 100 + columns), (1, along, rows * 100 + along)):
        values = drawn(rng, tuple(index.shape), dtype)
        check_put("aten::scatter_.src", lambda a, b, c, dim=dim: a.scatter_(dim, b, c), index, values, places)
    is_here = device == "cuda" and not _native.problem() and dtype.itemsize <= 4
    assert set(done) == {is_here}
    few = indices(rng, 7000, 3499)
    check_put("aten::put_", lambda a, b, c: a.put_(b, c), few, source[:3499], few)
    assert not done[-1]


def test_elements_that_there_are_not_are_dropped(on_cuda: str, rng: np.random.Generator) -> None:
    given, source = drawn(rng, (7, 10)), drawn(rng, (100,))
    index = indices(rng, 70, 100)
    index[[3, 50, 99]] = torch.tensor([70, -71, 2**40])
    is_inside = (index >= -70) & (index < 70)
    wanted = given.clone().put_(index[is_inside], source[is_inside])
    with pybaracuda.torch.install():
        pybaracuda.torch.check_indices()
        found = given.to(on_cuda).put_(index.to(on_cuda), source.to(on_cuda))
        with pytest.raises(IndexError, match="3 "):
            pybaracuda.torch.check_indices()
    assert same(found.cpu(), wanted)


def test_many_writers(device: str, rng: np.random.Generator) -> None:
    """More rows than the kernel for few takes, and elements."""
    given, source = drawn(rng, (50, 3)), drawn(rng, (5000, 3))
    check(
        lambda a, b, c: torch.index_copy(a, 0, b, c), "aten::index_copy", device, given, indices(rng, 50, 5000), source
    )
    index = indices(rng, 50, 5000, 3)
    check(lambda a, b, c: a.scatter(0, b, c), "aten::scatter.src", device, given, index, source)
    put = in_place(lambda a, b, c: a.index_put_((b,), c))
    check(put, "aten::_index_put_impl_", device, given, index[:, 0].contiguous(), source)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_gradients_are_pytorchs(dtype: Any, device: str, rng: np.random.Generator) -> None:
    """Of in-place calls on tensors of a graph, too; each row is named at most once, for which PyTorch's are right."""
    given, source, weights = (drawn(rng, shape, dtype).to(device) for shape in ((6, 7), (4, 7), (6, 7)))
    index = torch.from_numpy(rng.permutation(6)[:4]).to(device)
    calls: dict[str, Callable[[Any, Any], Any]] = {
        "aten::index_copy": lambda a, b: a.index_copy(0, index, b),
        "aten::index_copy_": lambda a, b: (a * 2).index_copy_(0, index, b),
        "aten::scatter.src": lambda a, b: a.scatter(0, index[:, None].expand(4, 7), b),
        "aten::scatter_.src": lambda a, b: (a * 2).scatter_(0, index[:, None].expand(4, 7).contiguous(), b),
        "aten::_index_put_impl_": lambda a, b: (a * 2).index_put_((index,), b),
        "aten::put_": lambda a, b: (a * 2).put_(index, b[:, 0]),
    }

    def gradients(call: Callable[[Any, Any], Any]) -> tuple[Any, ...]:
        leaves = given.clone().requires_grad_(), source.clone().requires_grad_()
        return torch.autograd.grad(call(*leaves), leaves, weights)

    for operator, call in calls.items():
        wanted = gradients(call)
        with pybaracuda.torch.install(devices=device), Hits(operator):
            found = gradients(call)
        assert all(same(one, other) for one, other in zip(found, wanted, strict=True))


def test_derivatives_are_differences(device: str, rng: np.random.Generator) -> None:
    given, source = (torch.from_numpy(rng.standard_normal((n, 3))).to(device).requires_grad_() for n in (5, 4))
    index = torch.tensor([3, 0, 4, 1], device=device)
    with pybaracuda.torch.install(devices=device), Hits("aten::index_copy", "aten::scatter.src"):
        assert torch.autograd.gradcheck(lambda a, b: a.index_copy(0, index, b), (given, source))
        assert torch.autograd.gradgradcheck(lambda a, b: a.index_copy(0, index, b), (given, source))
        rows = index[:, None].expand(4, 3)
        assert torch.autograd.gradcheck(lambda a, b: a.scatter(0, rows, b), (given, source))


def test_the_deterministic_flag_changes_nothing(device: str, rng: np.random.Generator) -> None:
    given, index, source = drawn(rng, (5, 6)), indices(rng, 5, 40), drawn(rng, (40, 6))
    torch.use_deterministic_algorithms(True)
    check(lambda a, b, c: torch.index_copy(a, 0, b, c), "aten::index_copy", device, given, index, source)
    put = in_place(lambda a, b, c: a.put_(b, c[:, 0]))
    check(put, "aten::put_", device, given, index, source)


def test_what_is_pytorchs(device: str) -> None:
    """One value for all, which may come in any order; masks; operands of one memory; what it refuses."""
    given, index = torch.zeros(4, 3, device=device), torch.tensor([1, 1, 3], device=device)
    with pybaracuda.torch.install(devices=device):
        before = ours("aten::_index_put_impl_"), ours("aten::index_copy_")
        given[index] = 5.0
        given[given > 6] = 7.0
        with pytest.raises(RuntimeError, match="unsupported operation"):
            given.index_copy_(0, index[:1], given[:1])
        with pytest.raises(RuntimeError, match="long tensor for index"):
            given.index_copy_(0, index.int(), torch.ones(3, 3, device=device))
        with pytest.raises((RuntimeError, IndexError)):
            given.index_copy_(0, index, torch.ones(2, 3, device=device))
        assert (ours("aten::_index_put_impl_"), ours("aten::index_copy_")) == before
    assert given.sum(1).tolist() == [0, 15, 0, 15]
    if device == "cpu":
        with pybaracuda.torch.install(), pytest.raises(IndexError, match=r"out of (range|bounds)"):
            given.index_copy_(0, index + 2, torch.ones(3, 3))


def test_indices_out_of_range_are_dropped_on_a_gpu(device: str) -> None:
    if device == "cpu":
        return
    given, index = torch.zeros(4, 3, device=device), torch.tensor([1, 9, -1], device=device)
    with pybaracuda.torch.install(devices=device):
        found = given.index_copy(0, index, torch.ones(3, 3, device=device))
        with pytest.raises(IndexError, match="2"):
            pybaracuda.torch.check_indices()
    assert found.sum(1).tolist() == [0, 3, 0, 0]


def test_compiled_programs_keep_the_compilers_code(device: str, rng: np.random.Generator) -> None:
    """It writes where the tensor lies; rows that are named once have the same bits."""
    given, source = drawn(rng, (9, 4)).to(device), drawn(rng, (5, 4)).to(device)
    index = torch.from_numpy(rng.permutation(9)[:5]).to(device)

    def program(given: Any, index: Any, source: Any) -> Any:
        first = torch.index_copy(given, 0, index, source) + 1
        first[index] = source * 2
        return first.scatter(0, index[:, None].expand(5, 4), source) * 3

    wanted = program(given, index, source)
    with pybaracuda.torch.install(devices=device):
        torch._dynamo.reset()
        assert torch.equal(torch.compile(program, fullgraph=True)(given, index, source), wanted)
