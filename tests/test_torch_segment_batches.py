# SPDX-License-Identifier: Apache-2.0
"""Ids of a batch and lengths in pybaracuda.torch: a loop's bits, forward and backward, and derivatives."""

from __future__ import annotations

from typing import Any

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.autograd import gradcheck, gradgradcheck

import pybaracuda
import pybaracuda.torch

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")
REDUCTION = pytest.mark.parametrize("reduce", REDUCTIONS)
DTYPE = pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
COUNT = 4


def reduction(reduce: str) -> Any:
    return getattr(pybaracuda.torch, f"segment_{reduce}")


def drawn(device: str, dtype: Any = torch.int64) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(-1, COUNT + 1, (3, 10), generator=generator)
    ids[0] = torch.where(ids[0] == 2, 1, ids[0])
    rows = torch.randn(3, 10, 2, generator=generator, dtype=torch.float64)
    return rows.to(device).requires_grad_(), ids.to(device, dtype)


@REDUCTION
@DTYPE
def test_a_loop_has_the_same_bits(device: str, reduce: str, dtype: Any) -> None:
    rows, ids = drawn(device, dtype)
    found = reduction(reduce)(rows, ids, COUNT)
    wanted = torch.stack([reduction(reduce)(*each, COUNT) for each in zip(rows, ids, strict=True)])
    assert torch.equal(found, wanted)
    upstream = torch.randn_like(found)
    slopes = [torch.autograd.grad(each, rows, upstream)[0] for each in (found, wanted)]
    assert torch.equal(*slopes)
    assert torch.equal(found, getattr(pybaracuda, f"segment_{reduce}")(rows.detach(), ids, COUNT))
    assert torch.equal(torch.vmap(lambda x, i: reduction(reduce)(x, i, COUNT))(rows[None], ids[None])[0], found)


@pytest.mark.parametrize("reduce", ["max", "min"])
@DTYPE
def test_rows_of_maxima(device: str, reduce: str, dtype: Any) -> None:
    rows, ids = drawn(device, dtype)
    found, arg = reduction(reduce)(rows, ids, COUNT, return_arg=True)
    pairs = [reduction(reduce)(*each, COUNT, return_arg=True) for each in zip(rows, ids, strict=True)]
    assert torch.equal(arg, torch.stack([each[1] for each in pairs]))
    assert arg.dtype == pairs[0][1].dtype
    slopes = [torch.autograd.grad(each.sum(), rows)[0] for each in (found, torch.stack([each[0] for each in pairs]))]
    assert torch.equal(*slopes)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "logsumexp", "softmax"])
def test_derivatives(device: str, reduce: str) -> None:
    rows, ids = drawn(device)
    # One segment has no rows, and differences of infinities are no numbers.
    options = {"empty_value": 0} if reduce == "logsumexp" else {}
    assert gradcheck(lambda x: reduction(reduce)(x, ids, COUNT, **options), rows)
    assert gradgradcheck(lambda x: reduction(reduce)(x, ids, COUNT, **options), rows)


def test_a_gather(device: str) -> None:
    _, ids = drawn(device)
    segments = torch.randn(3, COUNT, 2, device=device, requires_grad=True)
    found = pybaracuda.torch.segment_gather(segments, ids)
    wanted = torch.stack([pybaracuda.torch.segment_gather(*each) for each in zip(segments, ids, strict=True)])
    assert torch.equal(found, wanted)
    slopes = [torch.autograd.grad(each.sum(), segments)[0] for each in (found, wanted)]
    assert torch.equal(*slopes)


@REDUCTION
@pytest.mark.parametrize("shape", [(0, 5, 2), (2, 0, 2), (0, 0, 2)], ids=str)
def test_nothing(device: str, reduce: str, shape: tuple[int, ...]) -> None:
    ids = torch.zeros(shape[:2], dtype=torch.int64, device=device)
    found = reduction(reduce)(torch.ones(shape, device=device), ids, COUNT)
    assert found.shape == (shape if reduce == "softmax" else (shape[0], COUNT, 2))
    assert reduction(reduce)(torch.ones(shape, device=device), ids).shape[0] == shape[0]


def test_what_is_refused(device: str) -> None:
    rows, ids = drawn(device)
    with pytest.raises(ValueError, match=r"segment_ids has shape \(3, 9\), input \(3, 10, 2\)"):
        pybaracuda.torch.segment_sum(rows, ids[:, :9], COUNT)
    with pytest.raises(ValueError, match="beside the batch of input"):
        pybaracuda.torch.segment_gather(rows[:2], ids)
    with pytest.raises(TypeError, match=r"segment_ids has dtype torch\.float32; wanted integers"):
        pybaracuda.torch.segment_sum(rows, ids.float(), COUNT)
    with pytest.raises(pybaracuda.InvalidProblemError, match="a batch of 3 with 1073741824 segments"):
        pybaracuda.torch.segment_sum(rows, ids, 2**30)
    starts = torch.tensor([2, 1], device=device)
    with pytest.raises(TypeError, match=r"lengths has dtype torch\.uint8"):
        pybaracuda.torch.segment_csr(rows[0], lengths=starts.to(torch.uint8))
    with pytest.raises(ValueError, match="lengths has shape"):
        pybaracuda.torch.segment_csr(rows[0], lengths=starts[None])
    with pytest.raises(TypeError, match="lengths: wanted None beside offsets"):
        pybaracuda.torch.segment_csr(rows[0], starts, lengths=starts)
    with pytest.raises(TypeError, match="num_rows: wanted an int"):
        pybaracuda.torch.gather_csr(rows[0, :2], lengths=starts)


@REDUCTION
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_lengths(device: str, reduce: str, dtype: Any) -> None:
    rows = drawn(device)[0][0].detach().requires_grad_()
    lengths = torch.tensor([3, 0, 5], dtype=dtype, device=device)
    offsets = torch.tensor([0, 3, 3, 8], dtype=dtype, device=device)
    found = pybaracuda.torch.segment_csr(rows, reduce=reduce, lengths=lengths)
    wanted = pybaracuda.torch.segment_csr(rows, offsets, reduce)
    assert torch.equal(found, wanted)
    slopes = [torch.autograd.grad(each.sum(), rows)[0] for each in (found, wanted)]
    assert torch.equal(*slopes)
    segments = torch.randn(3, 2, device=device)
    spread = pybaracuda.torch.gather_csr(segments, num_rows=10, lengths=lengths)
    assert torch.equal(spread, pybaracuda.torch.gather_csr(segments, offsets, 10))
