# SPDX-License-Identifier: Apache-2.0
"""Every row of the benchmark through PyTorch, smaller: equal bits over runs, streams, graph replays and devices.

What an operator computes, and which calls of it are ours, is tested in other files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from place import available
from skip_policy import backends

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch_calls import all_ours, waiting_is_an_error, warmed_up
from torch_problems import torchvision_or_none

import pybaracuda.torch
from benchmarks.pytorch.rows import ROWS, Build, Data, Row

# PyTorch says of every compressed sparse tensor that they are in beta state.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")

# On the CPU, where no order depends on who comes first, only what is left unwritten could differ.
RUNS = {"cpu": 10, "cuda": 100}
STREAMS, ROUNDS = 4, 3
# About 20 ms of a GPU's clock, in which the host lines up most calls of all streams.
CYCLES_BEFORE = 40_000_000
# Of one input or output; the largest of today has 6.6 million.
MOST_ELEMENTS = 1 << 23

# Rows whose call looks at values of the device from the host: it has to wait, and no graph can capture it. Without an
# installation PyTorch waits in each of them, too.
WAITS = {
    "histc 16,777,216 into 256": "without a range it is that of the data, from which the bins' width follows",
    "bincount 16,777,216 weights into 1,000": "how many bins there are is told by the largest entry",
    "torchvision nms of 6,000 boxes": "how many boxes are kept is the size of the result",
}

# Rows of which a part is PyTorch's arithmetic, which need not have the same bits on two kinds of devices.
THEIRS = {
    "affine_grid 16x512x512": ("output", "PyTorch's product of matrices; the gradient is ours"),
    "affine_grid 4x96x96x96": ("output", "PyTorch's product of matrices; the gradient is ours"),
    "cross_entropy of 8x21x512x512": ("all", "PyTorch's log_softmax, before our nll_loss"),
    "logcumsumexp 4096x4096": ("gradients", "PyTorch's formula, with its logarithms and exponentials"),
    "histc 16,777,216 into 256": ("gradients", "PyTorch's sum over the bins that one number was added to"),
    "histc 16,777,216 into 256, of +-4": ("gradients", "PyTorch's sum over the bins that one number was added to"),
    "torchvision nms of 6,000 boxes": ("gradients", "PyTorch's sum over the boxes that one factor was for"),
    "torchvision deform_conv2d 3x3, 2x64x100x152": ("all", "PyTorch's products of our columns with the weights"),
    "torchvision deform_conv2d 3x3, masks, 2x256x50x76": ("all", "PyTorch's products of our columns with the weights"),
}


# Without torchvision there are no such rows; that is no skip.
HAS_TORCHVISION = torchvision_or_none() is not None
HERE = [row for row in ROWS if not row.needs or HAS_TORCHVISION]


def of_rows(rows: list[Row]) -> Any:
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.name)


def of_rows_on_cuda(rows: list[Row]) -> Any:
    """One row where there may be no GPU and is none: that a test is skipped needs to be said once."""
    return of_rows(rows if "cuda" in backends() else rows[:1])


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    """Once for all tests here: to come and go takes a tenth of a second."""
    with pybaracuda.torch.install():
        yield


@pytest.fixture
def data_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


# ---- a row's call


def smaller_extent(extent: int) -> int:
    """A long extent or count to the power of 0.7, so that sums are still cut, and shared among many blocks.

    A multiple of 4: pixels with so many channels are whole vectors of 16 bytes, which channels last are taken in, and
    what is put back from maxima over two places is as large as it was.
    """
    if extent == 490:
        return 98  # maps for the 7 x 7 bins of position-sensitive regions
    return extent if extent <= 32 else 4 * round(extent**0.7 / 4)


def smaller(build: Any) -> Build:
    """A row's problem with smaller sizes, which are the numbers among what its build was given by position."""

    def changed(value: Any) -> Any:
        if isinstance(value, partial):
            return smaller(value)
        if isinstance(value, tuple):
            return tuple(changed(each) for each in value)
        return smaller_extent(value) if type(value) is int else value

    return partial(build.func, *(changed(each) for each in build.args), **build.keywords)


class HostData(Data):
    """Random tensors on a device that are drawn on the host, so that every device has the same ones."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__(torch, device, seed)
        self._host = Data(torch, "cpu", seed)

    def normal(self, *shape: int) -> Any:
        return self._host.normal(*shape).to(self.device)

    def ids(self, count: int, below: int) -> Any:
        return self._host.ids(count, below).to(self.device)

    def power_law_ids(self, count: int, below: int) -> Any:
        return self._host.power_law_ids(count, below).to(self.device)


class Call(NamedTuple):
    """A row's function of tensors, these, and the gradient that its output is given.

    `is_named` says whether the function is one of ours that stands in PyTorch's place, which no installation counts.
    """

    function: Callable[..., Any]
    inputs: list[Any]
    weights: Any
    is_named: bool

    def results(self) -> list[Any]:
        """The output and the gradients of a fresh run."""
        leaves = [each.detach().requires_grad_() for each in self.inputs]
        output = self.function(*leaves)
        gradients = torch.autograd.grad(output, leaves, self.weights)
        return [values(each.detach()) for each in (output, *gradients)]

    def copies(self) -> Call:
        """The same with tensors of its own."""
        return self._replace(inputs=[each.clone() for each in self.inputs], weights=self.weights.clone())

    def take(self, other: Call) -> None:
        """Take over another call's values, where the own ones lie."""
        for mine, their in zip((*self.inputs, self.weights), (*other.inputs, other.weights), strict=True):
            values(mine).copy_(values(their))


def values(tensor: Any) -> Any:
    """The values of a sparse matrix, which stand where its input's do; another tensor as it is."""
    return tensor.values() if tensor.layout == torch.sparse_csr else tensor


def inputs_of(row: Row, device: str, seed: int) -> list[Any]:
    """Made on the host: some are results of a logarithm or an exponential, which devices round in their own ways."""
    return [leaf.detach().to(device) for leaf in smaller(row.build)(HostData("cpu", seed)).leaves]


def drawn(row: Row, device: str, seed: int) -> Call:
    problem = smaller(row.build)(HostData(device, seed))
    function, inputs = problem.ours or problem.function, inputs_of(row, device, seed)
    with torch.no_grad():
        output = function(*inputs)
    assert max(values(each).numel() for each in (output, *inputs)) <= MOST_ELEMENTS, "sizes that are not made smaller"
    weights = HostData(device, seed + 1).normal(*output.shape)
    return Call(function, inputs, torch.empty_like(output).copy_(weights), problem.ours is not None)


# ---- what is said of calls


def same(found: list[Any], expected: list[Any]) -> Any:
    """For each result whether all bits are the same, those of a NaN too; on the device, so that nobody waits."""
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype, other.dtype) == (other.shape, torch.float32, torch.float32)
    pairs = zip(found, expected, strict=True)
    return torch.stack([(one.view(torch.int32) == other.view(torch.int32)).all() for one, other in pairs])


def poison(results: list[Any], run: int) -> None:
    """Fill memory of the results' sizes and let go of it: what the next run leaves unwritten is not the last one's.

    Twice as much as there is of results, since scratch of the same size may come first.
    """
    value = torch.nan if run % 2 else 1.0
    blocks = [torch.full_like(each, value) for each in (*results, *results)]
    del blocks


def differing_runs(run: Callable[[], list[Any]], count: int) -> list[int]:
    """Which of so many runs have other bits than the first one."""
    first = run()
    found = []
    for number in range(1, count):
        poison(first, number)
        found.append(same(run(), first).all())
    return [number for number, is_same in enumerate(torch.stack(found).tolist(), 1) if not is_same]


# ---- the tests


def test_the_exceptions_are_rows() -> None:
    names = {row.name for row in ROWS}
    assert names >= WAITS.keys()
    assert names >= THEIRS.keys()


@of_rows(HERE)
def test_runs_repeat(row: Row, device: str, data_seed: int) -> None:
    call = drawn(row, device, data_seed)
    before = sum(all_ours(device).values())
    assert not differing_runs(call.results, RUNS[device])
    assert call.is_named or sum(all_ours(device).values()) >= before + RUNS[device]


def test_an_element_that_nobody_writes_is_seen(device: str) -> None:
    """The control of the test above."""

    def unwritten() -> list[Any]:
        found = torch.empty(50_000, device=device)
        found[:-1] = 0
        return [found]

    assert differing_runs(unwritten, RUNS[device])


@of_rows_on_cuda(HERE)
def test_streams_at_once_have_the_same_bits(row: Row, on_cuda: str, data_seed: int) -> None:
    call = drawn(row, on_cuda, data_seed)
    expected = call.results()
    streams = [torch.cuda.Stream() for _ in range(STREAMS)]
    copies = [call.copies() for _ in streams]
    torch.cuda.synchronize()
    # The streams begin together, when the default one has slept.
    torch.cuda._sleep(CYCLES_BEFORE)
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    found = []
    for _ in range(ROUNDS):
        for stream, each in zip(streams, copies, strict=True):
            with torch.cuda.stream(stream):
                found.append(each.results())
    torch.cuda.synchronize()
    for results in found:
        assert same(results, expected).all()


@of_rows_on_cuda([row for row in HERE if row.name not in WAITS])
def test_a_call_waits_for_nothing_and_replays(row: Row, on_cuda: str, data_seed: int) -> None:
    call = drawn(row, on_cuda, data_seed)
    warmed_up(call.results)
    call.results()  # the current stream's counters have their room, too
    # Before the capture, since PyTorch's allocator does not recover from one that CUDA refuses.
    with waiting_is_an_error():
        call.results()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call.results()
    for step in (2, 4):
        # A gradient that is handed on is the weights themselves: they are written after the poison.
        for each in found:
            each.fill_(torch.nan)
        weights = HostData(on_cuda, data_seed + step + 1).normal(*call.weights.shape)
        call.take(call._replace(inputs=inputs_of(row, on_cuda, data_seed + step), weights=weights))
        graph.replay()
        assert same(found, call.results()).all()


@of_rows_on_cuda([row for row in HERE if row.name in WAITS])
def test_what_is_said_to_wait_does(row: Row, on_cuda: str, data_seed: int) -> None:
    """A row that waits no longer can be captured, and is to be taken from the list.

    A capture itself is not tried: one that CUDA refuses would spoil those of the tests that come after it.
    """
    call = drawn(row, on_cuda, data_seed)
    warmed_up(call.results)
    call.results()  # the current stream's counters have their room, too
    with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"), waiting_is_an_error():
        call.results()


@of_rows_on_cuda([row for row in HERE if THEIRS.get(row.name, ("",))[0] != "all"])
def test_cuda_has_the_bits_of_the_cpu(row: Row, on_cuda: str, data_seed: int) -> None:
    left_out, _ = THEIRS.get(row.name, ("", ""))
    ours = slice(1 if left_out == "output" else 0, 1 if left_out == "gradients" else None)
    expected, found = (drawn(row, device, data_seed).results()[ours] for device in ("cpu", on_cuda))
    assert same([each.cpu() for each in found], expected).tolist() == [True] * len(expected)
