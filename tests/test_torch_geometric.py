# SPDX-License-Identifier: Apache-2.0
"""torch_geometric's scatter, segment and softmax on this library's kernels, held to torch's own sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.autograd import gradcheck, gradgradcheck

from pybaracuda.torch import geometric, segment_csr, segment_sum

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
SIZE, ROWS = 5, 20
DIM = pytest.mark.parametrize("dim", [0, 1, -1])
REDUCTIONS = ("sum", "add", "mean", "mul", "min", "max", "amin", "amax", "any")


def drawn(rng: np.random.Generator, dim: int, device: str, dtype: Any = torch.float64) -> tuple[Any, Any]:
    """Rows along an axis of which no two are equal, and their segments: the third has none, all others have some."""
    shape = [3, 4, 2]
    shape[dim] = ROWS
    steps = rng.permutation(int(np.prod(shape))).reshape(shape)
    values = torch.tensor(0.5 + steps / steps.size, dtype=dtype, device=device)
    ids = rng.permutation([0, 1, 3, 4, *rng.choice([0, 1, 3, 4], ROWS - 4)])
    return values, torch.tensor(ids, device=device)


def of_torch(src: Any, index: Any, dim: int, reduce: str) -> Any:
    """Each segment's rows, reduced by torch."""
    found = []
    for segment in range(SIZE):
        rows = src.movedim(dim, 0)[index == segment]
        if not len(rows):
            found.append(torch.full_like(src.movedim(dim, 0)[0], int(reduce == "mul")))
        elif reduce in ("min", "amin", "max", "amax"):
            found.append(rows.amin(0) if "min" in reduce else rows.amax(0))
        else:
            found.append({"sum": rows.sum, "add": rows.sum, "mean": rows.mean, "mul": rows.prod}[reduce](0))
    return torch.stack(found).movedim(0, dim)


def close(found: Any, wanted: Any, terms: int = ROWS) -> bool:
    """Whether numbers in [0.5, 1.5), up to 20 of them, were reduced with an error of a few roundings each."""
    wide = torch.finfo(torch.float64 if found.dtype == torch.float64 else torch.float32).eps
    bound = terms * wide * wanted.abs() + torch.finfo(found.dtype).eps * wanted.abs()
    return bool(((found.double() - wanted).abs() <= bound).all())


@FLOAT
@DIM
@pytest.mark.parametrize("reduce", [each for each in REDUCTIONS if each != "any"])
def test_scatter(reduce: str, dim: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    src, index = drawn(rng, dim, device, dtype)
    found = geometric.scatter(src, index, dim, reduce=reduce)
    wanted = of_torch(src.double(), index, dim, reduce)
    assert (found.dtype, found.shape) == (dtype, wanted.shape)
    assert close(found, wanted)
    assert torch.equal(geometric.scatter(src, index.int(), dim, SIZE + 2, reduce).narrow(dim, 0, SIZE), found)


@DIM
@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float64])
def test_any_is_the_last_row(dim: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    src, index = drawn(rng, dim, device)
    src = (src * 100).to(dtype)
    index[rng.integers(0, ROWS)] = SIZE + 3
    found = geometric.scatter(src, index, dim, SIZE, "any")
    assert found.dtype == dtype
    for segment in range(SIZE):
        rows = src.movedim(dim, 0)[index == segment]
        wanted = rows[-1] if len(rows) else torch.zeros_like(src.movedim(dim, 0)[0])
        assert torch.equal(found.movedim(dim, 0)[segment], wanted)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers(dtype: Any, device: str, rng: np.random.Generator) -> None:
    index = drawn(rng, 0, device)[1]
    src = torch.tensor(rng.integers(0, 12, (ROWS, 3)), device=device).to(dtype)
    for reduce in ("sum", "mul", "min", "amax"):
        found = geometric.scatter(src, index, reduce=reduce)
        assert found.dtype == dtype
        assert torch.equal(found, of_torch(src.long(), index, 0, reduce).to(dtype))
    mean = geometric.scatter(src, index, reduce="mean")
    # Whole numbers below 2**24: only the quotient is rounded.
    assert torch.equal(mean, of_torch(src.double(), index, 0, "mean").float())
    columns = geometric.scatter(src.T, index, 1, reduce="mean")
    assert torch.equal(columns, mean.T)


def test_bits_are_the_functions(device: str, rng: np.random.Generator) -> None:
    src, index = drawn(rng, 0, device, torch.float32)
    assert torch.equal(geometric.scatter(src, index), segment_sum(src, index, SIZE))
    ptr = torch.tensor([0, 3, 3, 11, 12, ROWS], device=device)
    assert torch.equal(geometric.segment(src, ptr), segment_csr(src, ptr, "sum"))
    assert torch.equal(geometric.softmax(src, ptr=ptr), segment_csr(src, ptr, "softmax"))


@FLOAT
@pytest.mark.parametrize("reduce", ["sum", "add", "mean", "mul", "min", "max"])
def test_segment(reduce: str, dtype: Any, device: str, rng: np.random.Generator) -> None:
    src, _ = drawn(rng, 0, device, dtype)
    lengths = torch.tensor([3, 6, 0, 1, 10], device=device)
    ptr = torch.tensor([0, 3, 9, 9, 10, ROWS], device=device)
    index = torch.arange(SIZE, device=device).repeat_interleave(lengths)
    found = geometric.segment(src, ptr, reduce)
    assert found.dtype == dtype
    assert close(found, of_torch(src.double(), index, 0, reduce))
    # Along the second axis of two equal batches.
    both = geometric.segment(torch.stack([src, src]), ptr.reshape(1, -1), reduce)
    assert torch.equal(both, torch.stack([found, found]))


def test_products_of_narrow_integers_wrap(device: str) -> None:
    src = torch.tensor([[100], [3], [7]], dtype=torch.int8, device=device)
    found = geometric.segment(src, torch.tensor([0, 2, 2, 3], device=device), "mul")
    assert found.tolist() == [[300 - 256], [1], [7]]
    assert found.dtype == torch.int8


@FLOAT
@DIM
def test_softmax(dim: int, dtype: Any, device: str, rng: np.random.Generator) -> None:
    src, index = drawn(rng, dim, device, dtype)
    src = src * 30
    index, _ = index.sort()
    wanted = torch.zeros_like(src, dtype=torch.float64)
    for segment in range(SIZE):
        chosen = (index == segment).nonzero()[:, 0]
        wanted.index_copy_(dim, chosen, src.double().index_select(dim, chosen).softmax(dim))
    ptr = torch.cat([index.new_zeros(1), torch.bincount(index, minlength=SIZE).cumsum(0)])
    for found in (
        geometric.softmax(src, index, dim=dim),
        geometric.softmax(src, index, None, SIZE + 3, dim),
        geometric.softmax(src, ptr=ptr, dim=dim),
        geometric.softmax(src, index.flip(0), ptr, dim=dim),
    ):
        assert found.dtype == dtype
        # The difference from the largest, of at most 30, is rounded before its exponential is taken.
        wide = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
        bound = (30 + 2 * ROWS) * wide * wanted + torch.finfo(dtype).eps * wanted + torch.finfo(dtype).tiny
        assert bool(((found.double() - wanted).abs() <= bound).all())


CALLS: dict[str, Callable[..., Any]] = {
    **{
        each: lambda src, index, ptr, each=each: geometric.scatter(src, index, 1, reduce=each)
        for each in REDUCTIONS
        if each not in ("add", "amin", "amax")
    },
    "segment": lambda src, index, ptr: geometric.segment(src, ptr[None], "mul"),
    "softmax": lambda src, index, ptr: geometric.softmax(src, index, dim=1),
    "softmax-ptr": lambda src, index, ptr: geometric.softmax(src, ptr=ptr, dim=1),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_derivatives(name: str, device: str, rng: np.random.Generator) -> None:
    src = torch.tensor(rng.permutation(24).reshape(2, 6, 2) / 10 + 0.2, device=device, requires_grad=True)
    index = torch.tensor(rng.permutation([0, 0, 1, 1, 1, 3]), device=device)
    ptr = torch.tensor([0, 2, 2, 5, 6], device=device)
    assert gradcheck(lambda x: CALLS[name](x, index, ptr), (src,))
    assert gradgradcheck(lambda x: CALLS[name](x, index, ptr), (src,))


def test_ties_share_the_gradient(device: str) -> None:
    src = torch.tensor([[2.0], [2.0], [1.0], [2.0], [5.0]], device=device, requires_grad=True)
    index = torch.tensor([0, 0, 0, 0, 1], device=device)
    (grad,) = torch.autograd.grad(geometric.scatter(src, index, reduce="max").sum(), src)
    torch.testing.assert_close(grad[:, 0], torch.tensor([1 / 3, 1 / 3, 0, 1 / 3, 1], device=device))


def test_nothing_to_reduce(device: str) -> None:
    src, index = torch.zeros(0, 3, device=device), torch.zeros(0, dtype=torch.int64, device=device)
    for reduce in REDUCTIONS:
        assert geometric.scatter(src, index, reduce=reduce).shape == (0, 3)
        assert geometric.scatter(src, index, dim_size=2, reduce=reduce).tolist() == [[float(reduce == "mul")] * 3] * 2
    assert geometric.softmax(src, index).shape == (0, 3)


def test_bad_arguments(device: str) -> None:
    src, index = torch.zeros(4, 3, device=device), torch.zeros(4, dtype=torch.int64, device=device)
    with pytest.raises(ValueError, match="index has 2 axes"):
        geometric.scatter(src, index[:, None])
    with pytest.raises(ValueError, match="dim is 2; src has 2 axes"):
        geometric.scatter(src, index, 2)
    with pytest.raises(ValueError, match="reduce is 'median'"):
        geometric.scatter(src, index, reduce="median")
    with pytest.raises(RuntimeError, match="expand"):
        geometric.scatter(src, index[:3])
    with pytest.raises(ValueError, match="reduce is 'median'"):
        geometric.segment(src, index, "median")
    with pytest.raises(NotImplementedError, match="needs index or ptr"):
        geometric.softmax(src)
    with pytest.raises(ValueError, match="ptr has 2 axes"):
        geometric.softmax(src, ptr=index[None])
    for options in ({"index": index}, {"ptr": index}):
        with pytest.raises(ValueError, match="floats"):
            geometric.softmax(src.int(), **options)
