# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples of every operator that install() takes over: results, gradients, errors, second derivatives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.utils import _pytree
from torch_calls import all_ours, messages
from torch_samples import (
    ANSWERED,
    CANCELLING,
    COARSE,
    DTYPES,
    LACKING,
    OTHER_PLACES,
    TAKEN,
    called,
    offered,
    operators,
    samples,
)

import pybaracuda
import pybaracuda.torch

DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
NAME = pytest.mark.parametrize("name", list(TAKEN))
# Samples of an operator whose derivatives are compared, and elements of their tensors.
MANY_DERIVATIVES = 30
MOST_DIFFERENTIATED = 20000
# PyTorch has one only where its function is composed of others.
WITHOUT_SECOND_DERIVATIVE = frozenset({"nn.functional.ctc_loss"})


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()


def hold_places(name: str, sample: Any, ours: list[Any], plain: list[Any]) -> None:
    """Values are PyTorch's, indices as low or lower, and a gradient's numbers the same at these places."""
    has_places = len(ours) > 1 and ours[1].dtype == torch.int64 and ours[1].shape == ours[0].shape
    # Of values that occur equally often PyTorch's CUDA kernel answers any.
    is_any_mode = name == "mode" and ours[0].is_cuda
    if is_any_mode:
        assert bool((ours[0] <= plain[0]).all())
        assert torch.equal(occurrences(sample, ours[0]), occurrences(sample, plain[0]))
    for number, (one, other) in enumerate(zip(ours, plain, strict=True)):
        assert (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
        if is_any_mode and number <= 1:
            continue
        if number == 1 and has_places:
            assert bool((one <= other).all())
        elif number > 0:
            assert torch.equal(one.flatten().sort().values, other.flatten().sort().values)
        else:
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def occurrences(sample: Any, values: Any) -> Any:
    """How often each row of a sample of mode has the value that was answered for it."""
    dim, keeps = (*sample.args, *(-1, False)[len(sample.args) :])
    rows = sample.input.detach().reshape(sample.input.shape or (1,))
    rows, answered = rows.movedim(dim, -1), values if sample.input.dim() else values.reshape(1)
    answered = answered.movedim(dim, -1) if keeps or not sample.input.dim() else answered.unsqueeze(-1)
    return (rows == answered).sum(-1)


def hold_form(sample: Any, one: Any, other: Any) -> None:
    """A tensor's dtype, shape, device and strides are the other's."""
    assert (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
    # The stride of an axis of one element means nothing.
    strides = [
        (mine, theirs)
        for mine, theirs, extent in zip(one.stride(), other.stride(), one.shape, strict=True)
        if extent > 1
    ]
    assert not one.numel() or all(mine == theirs for mine, theirs in strides), (sample, strides)


def results_of_pytorch(name: str, dtype: Any, device: str, sample: Any) -> list[Any] | None:
    """Outputs and gradients of PyTorch's own kernels; None where it is known to lack one."""
    try:
        return called(operators()[name].op, sample)
    except NotImplementedError:
        if (name, dtype, device) not in LACKING:
            raise
        return None


@NAME
@DTYPE
def test_results_and_gradients_are_pytorchs(name: str, dtype: Any, device: str, rng: np.random.Generator) -> None:
    info = operators()[name]
    if dtype not in info.supported_dtypes(device):
        return
    for sample in samples(name, device, dtype, rng):
        plain = results_of_pytorch(name, dtype, device, sample)
        is_rounded = dtype.is_floating_point or dtype.is_complex
        reference = called(info.op, sample, torch.float64) if is_rounded else plain
        with pybaracuda.torch.install(devices=device):
            ours = called(info.op, sample)
        assert len(ours) == len(reference)
        if name in OTHER_PLACES:
            hold_places(name, sample, ours, plain)
            continue
        for one, other, exact in zip(ours, plain or [None] * len(ours), reference, strict=True):
            if other is not None:
                hold_form(sample, one, other)
            if one.is_complex():
                one, other, exact = (torch.stack([each.real, each.imag]) for each in (one, other, exact))
            if not one.is_floating_point():
                assert torch.equal(one, exact if other is None else other)
            if other is not None and torch.equal(one, other):
                continue
            # As far from float64 as PyTorch's own result, which computes some positions and sums in 16 bits, or as a
            # few roundings of the largest number; in float64 what they are held against has as many of its own.
            off = 0.0 if other is None or not one.numel() else (other.double() - exact).abs().nan_to_num(0, 0, 0).max()
            largest = exact.abs().nan_to_num(0, 0, 0).max() if one.numel() else 0.0
            if name in CANCELLING:
                # No sum has larger terms than the input and the weights, of which none is above 10, make of it.
                largest = max(largest, 10 * sample.input.detach().double().abs().sum())
            roundings = COARSE.get((name, dtype), 32 if dtype == torch.float64 else 16)
            bound = float(2 * off + roundings * torch.finfo(dtype).eps * largest)
            torch.testing.assert_close(one.double(), exact.to(one.dtype).double(), rtol=0, atol=bound, equal_nan=True)


@NAME
def test_our_kernels_did_the_samples(name: str, device: str, rng: np.random.Generator) -> None:
    info = operators()[name]
    dtype = torch.float32 if torch.float32 in info.supported_dtypes(device) else torch.int64
    before = all_ours(device)
    with pybaracuda.torch.install(devices=device):
        for sample in samples(name, device, dtype, rng):
            called(info.op, sample)
    after = all_ours(device)
    for operator in TAKEN[name]:
        assert after.get(operator, 0) > before.get(operator, 0), f"{operator} was never ours"


@NAME
def test_errors_are_pytorchs(name: str, device: str) -> None:
    info = operators()[name]
    if info.error_inputs_func is None:
        return
    for case in info.error_inputs(device):
        sample = case.sample_input
        if any(part in case.error_regex for part in ANSWERED.get(name, ())):
            with pybaracuda.torch.install(devices=device):
                ours = info.op(sample.input, *sample.args, **sample.kwargs)
            of_cpu = info.op(sample.input.cpu(), *sample.args, **sample.kwargs)
            for one, other in zip(ours, of_cpu, strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0, equal_nan=True)
            continue
        call = partial(info.op, sample.input, *sample.args, **sample.kwargs)
        plain, installed = messages(call, case.error_type, device)
        assert plain == installed


def differentiated(info: Any, sample: Any) -> tuple[Any, tuple[Any, ...]]:
    """A sample's call as a function of the tensors that need gradients, wherever they stand among its arguments."""
    values, form = _pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor) and value.requires_grad]

    def call(*given: Any) -> Any:
        replaced = dict(zip(places, given, strict=True))
        first, arguments, options = _pytree.tree_unflatten(
            [replaced.get(i, value) for i, value in enumerate(values)], form
        )
        # Some derivatives are right where numbers are what they ought to be, as logarithms of probabilities.
        return info.gradcheck_wrapper(info.op, first, *arguments, **options)

    return call, tuple(values[place] for place in places)


@NAME
def test_gradients_of_gradients(name: str, device: str, rng: np.random.Generator) -> None:
    info = operators()[name]
    if not info.supports_autograd:
        return
    torch.manual_seed(0)  # a difference across an edge between two pixels would not be a derivative
    with pybaracuda.torch.install(devices=device):
        found = []
        for sample in offered(name, device, torch.float64, rng):
            call, given = differentiated(info, sample)
            # Where a place is named twice, PyTorch's gradient of an unpooling is not its derivative.
            unpooled = re.search(r"max_unpool(\d)d", name)
            if unpooled and any(
                plane.unique().numel() < plane.numel() for plane in sample.args[0].flatten(0, -1 - int(unpooled[1]))
            ):
                continue
            if given and all(0 < each.numel() <= MOST_DIFFERENTIATED for each in given):
                found.append((call, given))
        assert found
        # Derivatives are compared along random directions (the fast mode), not element by element, which takes two
        # calls each; and some of the samples are enough, in turns.
        for call, given in found[:: -(-len(found) // MANY_DERIVATIVES)]:
            assert torch.autograd.gradcheck(call, given, fast_mode=True)
            if info.supports_gradgrad and name not in WITHOUT_SECOND_DERIVATIVE:
                assert torch.autograd.gradgradcheck(call, given, fast_mode=True)
