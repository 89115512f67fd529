# SPDX-License-Identifier: Apache-2.0
"""Bags of embeddings through PyTorch: what install() takes and answers, and what the function has of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

import pybaracuda
import pybaracuda.torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLOAT = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: str(dtype).removeprefix("torch."))
MODES = ("sum", "mean", "max")
MODE = pytest.mark.parametrize("mode", MODES)
OFFSETS = [0, 4, 4, 9, 30]


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()


def drawn(device: str, dtype: Any, index: Any = torch.int64) -> tuple[Any, Any, Any]:
    """A table of ten rows, forty positions in five bags, weights."""
    table = torch.randn(10, 6, device=device).to(dtype).requires_grad_()
    indices = torch.randint(0, 10, (40,), device=device, dtype=index)
    return table, indices, torch.rand(40, device=device).to(dtype)


@FLOAT
@MODE
def test_installed_calls_have_the_array_functions_bits(mode: str, dtype: Any, device: str) -> None:
    table, indices, weights = drawn(device, dtype)
    offsets = torch.tensor(OFFSETS, device=device)
    given = weights.requires_grad_() if mode == "sum" else None
    with pybaracuda.torch.install(devices=device):
        output = functional.embedding_bag(indices, table, offsets, mode=mode, per_sample_weights=given, padding_idx=3)
        upstream = torch.randn_like(output)
        slopes = torch.autograd.grad(output, [table, *([] if given is None else [given])], upstream)
        detached = None if given is None else given.detach()
        alone = functional.embedding_bag(
            indices, table.detach(), offsets, mode=mode, per_sample_weights=detached, padding_idx=3
        )
    found, ids, sizes, *arg = pybaracuda.embedding_bag(
        indices, table.detach(), offsets, mode, detached, padding_idx=3, return_bags=True
    )
    assert torch.equal(output, found)
    assert torch.equal(alone, found)
    wanted = pybaracuda.embedding_bag_backward(
        upstream, indices, ids, 10, mode, sizes, arg[0] if arg else None, detached, 3
    )
    assert torch.equal(slopes[0], wanted)
    if given is not None:
        of_weights = pybaracuda.embedding_bag_weights_backward(upstream, table.detach(), indices, ids, 3)
        assert torch.equal(slopes[1], of_weights)
    lines = {line.operator: line.ours for line in pybaracuda.torch.report().lines if line.device == device}
    taken = ["aten::_embedding_bag", "aten::_embedding_bag_forward_only", "aten::_embedding_bag_dense_backward"]
    if given is not None:
        taken.append("aten::_embedding_bag_per_sample_weights_backward")
    assert all(lines[each] for each in taken)


@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
@MODE
def test_answers_are_pytorchs(mode: str, index: Any, device: str) -> None:
    """Shapes, dtypes and what is empty: of the kernel that was there, and what a compiler is promised."""
    table, indices, _ = drawn(device, torch.float32, index)
    table = table.detach()
    for last in (False, True):
        offsets = torch.tensor([*OFFSETS, *([40] if last else [])], device=device, dtype=index)
        for padding_idx in (-1, 3):
            for operator in (torch.ops.aten._embedding_bag, torch.ops.aten._embedding_bag_forward_only):
                options = (False, MODES.index(mode), False, None, last, padding_idx)
                theirs = operator(table, indices, offsets, *options)
                with pybaracuda.torch.install(devices=device):
                    ours = operator(table, indices, offsets, *options)
                for one, other in zip(ours, theirs, strict=True):
                    assert (one.shape, one.dtype) == (other.shape, other.dtype)
                torch.testing.assert_close(ours[0], theirs[0])
                assert torch.equal(ours[1], theirs[1])
                if device == "cpu":
                    # On CUDA PyTorch leaves what its gradient does not read as it was.
                    assert torch.equal(ours[2][: len(OFFSETS)], theirs[2][: len(OFFSETS)])
                    assert torch.equal(ours[3], theirs[3])


@MODE
def test_what_is_pytorchs_on_the_cpu(mode: str) -> None:
    """Its own errors, and calls that it refuses."""
    table, indices, weights = drawn("cpu", torch.float32)
    offsets = torch.tensor(OFFSETS)
    with pybaracuda.torch.install(devices="cpu"):
        for bad in (-1, 10):
            wrong = indices.clone()
            wrong[7] = bad
            with pytest.raises(RuntimeError):
                functional.embedding_bag(wrong, table, offsets, mode=mode)
        with pytest.raises(RuntimeError, match=r"offsets\[0\] has to be 0"):
            functional.embedding_bag(indices, table, offsets + 1, mode=mode)
        if mode != "sum":
            with pytest.raises(NotImplementedError, match="per_sample_weights"):
                functional.embedding_bag(indices, table, offsets, mode=mode, per_sample_weights=weights)


def test_bad_indices_are_counted_on_a_gpu() -> None:
    if not (pybaracuda.backend_available("cuda") and torch.cuda.is_available()):
        pytest.skip("no CUDA")
    table, indices, _ = drawn("cuda", torch.float32)
    indices[:3] = torch.tensor([-1, 10, 2**40], device="cuda")
    offsets = torch.tensor(OFFSETS, device="cuda")
    pybaracuda.torch.check_indices()
    with pybaracuda.torch.install(devices="cuda", deterministic=True):
        for mode in MODES:
            functional.embedding_bag(indices, table, offsets, mode=mode).sum().backward()
    with pytest.raises(IndexError, match="dropped: 9 on cuda:0"):
        pybaracuda.torch.check_indices()
    pybaracuda.torch.embedding_bag(indices, table, offsets)
    with pytest.raises(IndexError, match="dropped: 3 on cuda:0"):
        pybaracuda.torch.check_indices()


@FLOAT
@pytest.mark.parametrize("padding_idx", [None, 2])
def test_gradient_of_an_embedding_by_frequency(padding_idx: int | None, dtype: Any, device: str) -> None:
    table, indices, _ = drawn(device, dtype)
    exact = table.detach().double().requires_grad_()
    options = {"padding_idx": padding_idx, "scale_grad_by_freq": True}
    upstream = torch.randn(40, 6, device=device).to(dtype)
    with pybaracuda.torch.install(devices=device):
        functional.embedding(indices, table, **options).backward(upstream)
    functional.embedding(indices.cpu(), exact.cpu(), **options).backward(upstream.double().cpu())
    ids = indices if padding_idx is None else torch.where(indices == padding_idx, -1, indices)
    assert torch.equal(table.grad, pybaracuda.segment_mean(upstream, ids, 10))
    # Some ten terms of a few units, and a rounding to the dtype.
    bound = 64 * torch.finfo(dtype).eps
    assert exact.grad is not None
    torch.testing.assert_close(table.grad.double(), exact.grad.to(device), rtol=0, atol=bound)


@MODE
def test_function(mode: str, device: str) -> None:
    """The array function's bits, forward and backward, of one axis and of two; derivatives of derivatives."""
    table, indices, weights = drawn(device, torch.float64)
    offsets = torch.tensor(OFFSETS, device=device)
    weighted = [weights.requires_grad_()] if mode == "sum" else []

    def call(table: Any, *weights: Any) -> Any:
        return pybaracuda.torch.embedding_bag(
            indices, table, offsets, mode, *weights, padding_idx=3, scale_grad_by_freq=mode == "mean"
        )

    detached = [each.detach() for each in weighted]
    output = call(table, *weighted)
    assert torch.equal(output, pybaracuda.embedding_bag(indices, table.detach(), offsets, mode, *detached,
                                                        padding_idx=3))  # fmt: skip
    if mode != "mean":
        assert gradcheck(call, (table, *weighted))
        assert gradgradcheck(call, (table, *weighted))
    else:
        # By frequency it is no derivative of the forward; its own derivatives are.
        upstream = torch.randn_like(output).requires_grad_()

        def slope(upstream: Any) -> Any:
            return torch.autograd.grad(call(table), table, upstream, create_graph=True)[0]

        assert gradcheck(slope, (upstream,))
    rows = pybaracuda.torch.embedding_bag(indices.reshape(8, 5), table, mode=mode, include_last_offset=False)
    begins = torch.arange(0, 40, 5, device=device)
    assert torch.equal(rows, pybaracuda.torch.embedding_bag(indices, table, begins, mode))
    ends = torch.tensor([*OFFSETS, 40], device=device)
    assert torch.equal(
        pybaracuda.torch.embedding_bag(indices, table, ends, mode, include_last_offset=True),
        pybaracuda.torch.embedding_bag(indices, table, offsets, mode),
    )


def test_refusals_of_the_function() -> None:
    table, indices, weights = drawn("cpu", torch.float32)
    bag = pybaracuda.torch.embedding_bag
    offsets = torch.tensor(OFFSETS)
    with pytest.raises(ValueError, match="offsets is None"):
        bag(indices, table)
    with pytest.raises(ValueError, match="offsets: input has two axes"):
        bag(indices.reshape(8, 5), table, offsets)
    with pytest.raises(ValueError, match="scale_grad_by_freq: mode is 'max'"):
        bag(indices, table, offsets, "max", scale_grad_by_freq=True)
    with pytest.raises(ValueError, match="per_sample_weights: mode is 'mean'"):
        bag(indices, table, offsets, "mean", weights)
    with pytest.raises(ValueError, match="mode is 'median'"):
        bag(indices, table, offsets, "median")
    with pytest.raises(ValueError, match="padding_idx is 10"):
        bag(indices, table, offsets, padding_idx=10)


@MODE
def test_compiled_programs_have_the_eager_bits(mode: str, device: str) -> None:
    table, indices, _ = drawn(device, torch.float32)
    offsets = torch.tensor(OFFSETS, device=device)

    def program(table: Any, function: Any) -> Any:
        return function(indices, table, offsets, mode=mode).square()

    for function in (functional.embedding_bag, pybaracuda.torch.embedding_bag):
        with pybaracuda.torch.install(devices=device):
            eager = program(table, function)
            compiled = torch.compile(program, backend="aot_eager")(table, function)
            upstream = torch.ones_like(eager)
            slopes = [torch.autograd.grad(each, table, upstream)[0] for each in (eager, compiled)]
        assert torch.equal(eager, compiled)
        assert torch.equal(*slopes)
