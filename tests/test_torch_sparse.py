# SPDX-License-Identifier: Apache-2.0
"""Products of compressed sparse matrices through PyTorch: what install() takes, what it answers, what it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.nn import functional

import pybaracuda
import pybaracuda.torch

# PyTorch says of every compressed sparse tensor that they are in beta state.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
INDEX = pytest.mark.parametrize(
    "index", [torch.int64, torch.int32], ids=lambda dtype: str(dtype).removeprefix("torch.")
)
ROWS, COLUMNS, WIDTH = 23, 700, 5


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()


def drawn(device: str, dtype: Any, index: Any = torch.int64) -> tuple[Any, Any]:
    """A matrix with an empty row and one of more than 256 values, and a dense one."""
    whole = torch.randn(ROWS, COLUMNS, device=device) * (torch.rand(ROWS, COLUMNS, device=device) < 0.1)
    whole[4], whole[7] = 0, torch.randn(COLUMNS, device=device)
    csr = whole.to_sparse_csr()
    sparse = torch.sparse_csr_tensor(
        csr.crow_indices().to(index),
        csr.col_indices().to(index),
        csr.values().to(dtype),
        csr.shape,
        check_invariants=True,
    )
    return sparse, torch.randn(COLUMNS, WIDTH, device=device).to(dtype)


def ours(device: str) -> dict[str, int]:
    return {line.operator: line.ours for line in pybaracuda.torch.report().lines if line.device == device}


def assert_near(found: Any, left: Any, right: Any, dtype: Any) -> None:
    """Hold a product against float64's: as many roundings as terms in the sums' type, and one to the result's."""
    left, right = left.double(), right.double()
    bound = torch.finfo(dtype).eps
    of_sums = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    # float64 itself is held against sums of its own, which may round as often.
    terms = 2 * left.shape[1] + 4
    wanted, size = left @ right, left.abs() @ right.abs()
    assert found.dtype == dtype
    assert (found.double() - wanted).abs().le(bound * wanted.abs() + terms * of_sums * size + 1e-7).all()


@FLOAT
@INDEX
def test_products_have_the_bags_bits(index: Any, dtype: Any, device: str) -> None:
    sparse, dense = drawn(device, dtype, index)
    begins, places, values = sparse.crow_indices(), sparse.col_indices(), sparse.values()
    before = ours(device)
    with pybaracuda.torch.install(devices=device):
        found = torch.sparse.mm(sparse, dense)
        same = (sparse @ dense, torch.mm(sparse, dense), torch.sparse.addmm(torch.zeros_like(found), sparse, dense))
    wanted = pybaracuda.embedding_bag(places, dense, begins, "sum", values, include_last_offset=True)
    assert torch.equal(found, wanted)
    assert all(torch.equal(each, found) for each in same)
    assert found.is_contiguous()
    assert_near(found, sparse.to_dense(), dense, dtype)
    after = ours(device)
    assert after["aten::addmm"] - before.get("aten::addmm", 0) == 2
    assert after["aten::mm"] - before.get("aten::mm", 0) == 2


@FLOAT
def test_the_transposed_matrix_is_csc(dtype: Any, device: str) -> None:
    sparse, _ = drawn(device, dtype)
    dense = torch.randn(ROWS, WIDTH, device=device).to(dtype)
    with pybaracuda.torch.install(devices=device):
        found = torch.mm(sparse.t(), dense)
    assert sparse.t().layout == torch.sparse_csc
    assert_near(found, sparse.to_dense().t(), dense, dtype)


@FLOAT
@pytest.mark.parametrize("transposed", [False, True], ids=["csr", "csc"])
def test_a_dense_matrix_may_stand_at_the_left(transposed: bool, dtype: Any, device: str) -> None:
    sparse, _ = drawn(device, dtype)
    right = sparse.t() if transposed else sparse
    dense = torch.randn(WIDTH, right.shape[0], device=device).to(dtype)
    before = ours(device).get("aten::mm", 0)
    with pybaracuda.torch.install(devices=device):
        found = torch.mm(dense, right)
        linear = functional.linear(dense, sparse) if transposed else found
    assert ours(device)["aten::mm"] - before == 1 + transposed
    assert_near(found, dense, right.to_dense(), dtype)
    assert torch.equal(linear, found)
    assert found.is_contiguous()


@FLOAT
@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (WIDTH,), (1, 1), ()], ids=str)
def test_sums_are_rounded_once(shape: tuple[int, ...], dtype: Any, device: str) -> None:
    sparse, dense = drawn(device, dtype)
    added = torch.randn(shape, device=device).to(dtype)
    with pybaracuda.torch.install(devices=device):
        found = torch.addmm(added, sparse, dense, beta=0.5, alpha=-2)
        without = torch.addmm(torch.full_like(added, torch.nan), sparse, dense, beta=0, alpha=3)
    # What is added is a term more: beta times it, of a value 1.
    whole = torch.cat([-2 * sparse.to_dense().double(), torch.full((ROWS, 1), 0.5, device=device).double()], 1)
    terms = torch.cat([dense.double(), torch.ones(1, WIDTH, device=device).double()])
    wide = added.double().expand(ROWS, WIDTH)
    wanted = whole[:, :-1] @ terms[:-1] + 0.5 * wide
    size = whole[:, :-1].abs() @ terms[:-1].abs() + 0.5 * wide.abs()
    of_sums = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    error = (found.double() - wanted).abs()
    assert error.le(torch.finfo(dtype).eps * wanted.abs() + (2 * COLUMNS + 8) * of_sums * size + 1e-7).all()
    assert_near(without, 3 * sparse.to_dense().double(), dense, dtype)


@INDEX
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_are_ours(dtype: Any, index: Any, device: str) -> None:
    sparse, dense = drawn(device, dtype, index)
    sparse.requires_grad_()
    dense.requires_grad_()
    before = ours(device)
    with pybaracuda.torch.install(devices=device):
        output = torch.sparse.mm(sparse, dense)
        upstream = torch.randn_like(output)
        of_sparse, of_dense = torch.autograd.grad(output, [sparse, dense], upstream)
    after = ours(device)
    for operator, calls in {"aten::sparse_sampled_addmm": 1, "aten::mm": 1, "aten::addmm": 1}.items():
        assert after[operator] - before.get(operator, 0) == calls, operator
    matrix = sparse.detach()
    begins, places, values = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    rows = torch.repeat_interleave(torch.arange(ROWS, device=device, dtype=index), (begins[1:] - begins[:-1]))
    wanted = pybaracuda.embedding_bag_backward(upstream, places, rows, COLUMNS, "sum", None, None, values)
    assert torch.equal(of_dense, wanted)
    wanted = pybaracuda.embedding_bag_weights_backward(upstream, dense.detach(), places, rows)
    assert torch.equal(of_sparse.values(), wanted)
    assert torch.equal(of_sparse.col_indices().long(), places.long())
    assert_near(of_dense.detach(), matrix.to_dense().t(), upstream, dtype)
    whole = (upstream.double() @ dense.detach().double().t())[rows.long(), places.long()]
    assert torch.allclose(of_sparse.values().double(), whole, rtol=4 * WIDTH * torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_sampled_product_keeps_what_it_is_added_to(dtype: Any, device: str) -> None:
    sparse, _ = drawn(device, dtype)
    left, right = torch.randn(ROWS, WIDTH, device=device), torch.randn(WIDTH, COLUMNS, device=device)
    left, right = left.to(dtype), right.to(dtype)
    with pybaracuda.torch.install(devices=device):
        found = torch.sparse.sampled_addmm(sparse, left, right, beta=0.5, alpha=2)
        alone = torch.sparse.sampled_addmm(sparse, left, right, beta=0)
    rows = torch.repeat_interleave(torch.arange(ROWS, device=device), sparse.crow_indices().diff())
    product = (left.double() @ right.double())[rows, sparse.col_indices()]
    size = (left.double().abs() @ right.double().abs())[rows, sparse.col_indices()]
    bound = (2 * WIDTH + 8) * torch.finfo(dtype).eps
    kept = 0.5 * sparse.values().double()
    assert (alone.values().double() - product).abs().le(bound * size).all()
    assert (found.values().double() - (2 * product + kept)).abs().le(bound * (2 * size + kept.abs())).all()


def test_the_same_bits_as_often_as_one_asks(device: str) -> None:
    sparse, dense = drawn(device, torch.float32)
    with pybaracuda.torch.install(devices=device):
        first = torch.sparse.mm(sparse, dense)
        assert all(torch.equal(torch.sparse.mm(sparse, dense), first) for _ in range(100))


def test_what_is_not_ours_goes_to_pytorch_with_its_errors(device: str) -> None:
    sparse, dense = drawn(device, torch.float32)
    empty = torch.sparse_csr_tensor([0, 0, 0], [], [], (2, COLUMNS), device=device)
    before = ours(device)
    with pybaracuda.torch.install(devices=device):
        assert torch.equal(torch.sparse.mm(empty, dense), torch.zeros(2, WIDTH, device=device))
        assert torch.equal(torch.mm(dense.t(), dense), dense.t() @ dense)
        with pytest.raises(RuntimeError):
            torch.sparse.mm(sparse, dense[1:])
        with pytest.raises(RuntimeError):
            torch.sparse.mm(sparse, dense.double())
    assert {name: calls for name, calls in ours(device).items() if name.startswith(("aten::mm", "aten::addmm"))} == {
        name: calls for name, calls in before.items() if name.startswith(("aten::mm", "aten::addmm"))
    }


def test_where_pytorch_is_left_alone(device: str) -> None:
    sparse, dense = drawn(device, torch.float32)
    before = ours(device).get("aten::addmm", 0)
    with pybaracuda.torch.install(exclude=["sparse_mm"], devices=device):
        torch.sparse.mm(sparse, dense)
    assert ours(device).get("aten::addmm", 0) == before


def test_compiled_programs_call_the_kernel(device: str) -> None:
    sparse, dense = drawn(device, torch.float32)
    before = ours(device).get("aten::addmm", 0)
    with pybaracuda.torch.install(devices=device):
        program = torch.compile(lambda matrix, columns: torch.sparse.mm(matrix, columns) * 2, backend="aot_eager")
        assert torch.equal(program(sparse, dense), torch.sparse.mm(sparse, dense) * 2)
    assert ours(device)["aten::addmm"] - before == 2
