# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of programs on this library's kernels: a replay with other data has the array functions' bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.nn import functional
from torch_calls import all_ours, waiting_is_an_error, warmed_up

import pybaracuda
import pybaracuda.torch

BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
DTYPE = pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16],
    ids=lambda dtype: str(dtype).removeprefix("torch."),
)
NUM_SEGMENTS = 40
# What PyTorch's list of pads, which begins with the last axis, is for each axis.
PADS, LOW, HIGH = (3, 2, 1, 4), (0, 0, 1, 3), (0, 0, 4, 2)
OPERATORS = (
    *("aten::grid_sampler_2d", "aten::grid_sampler_2d_backward", "aten::index_add"),
    *("aten::replication_pad2d", "aten::replication_pad2d_backward"),
)


@pytest.fixture
def device(on_cuda: str) -> Iterator[str]:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA")
    yield on_cuda
    pybaracuda.torch.uninstall()


class Data(NamedTuple):
    """What a step is computed from; names last, the others floats."""

    image: Any
    grid: Any
    edges: Any
    rows: Any
    of_sampled: Any
    of_padded: Any
    of_total: Any
    names: Any


def fresh(rng: np.random.Generator, dtype: Any, device: str) -> Data:
    shapes = ((2, 3, 13, 14), (2, 8, 9, 2), (2, 3, 5, 6), (700, 5), (2, 3, 8, 9), (2, 3, 10, 11), (NUM_SEGMENTS, 5))
    floats = [torch.from_numpy(rng.standard_normal(shape)).to(dtype).to(device) for shape in shapes]
    floats[1] *= 0.7
    return Data(*floats, torch.from_numpy(rng.integers(0, NUM_SEGMENTS, 700)).to(device))


def step(data: Data) -> tuple[Any, ...]:
    """Results and gradients of a program of PyTorch's operators."""
    leaves = [each.detach().requires_grad_() for each in data[:4]]
    image, grid, edges, rows = leaves
    results = (
        functional.grid_sample(image, grid, align_corners=False),
        functional.pad(edges, PADS, mode="replicate"),
        torch.zeros(NUM_SEGMENTS, 5, dtype=rows.dtype, device=rows.device).index_add(0, data.names, rows),
    )
    grads = torch.autograd.grad(results, leaves, data[4:7])
    return (*(each.detach() for each in results), *grads)


def expected(data: Data) -> tuple[Any, ...]:
    """The same of the array functions."""
    wide = data.grid if data.grid.dtype == torch.float64 else data.grid.float()
    of_image, of_grid = pybaracuda.grid_sample_backward(data.of_sampled, data.image, wide)
    return (
        pybaracuda.grid_sample(data.image, wide),
        pybaracuda.pad(data.edges, LOW, HIGH, mode="replicate"),
        pybaracuda.segment_sum(data.rows, data.names, NUM_SEGMENTS),
        of_image,
        of_grid.to(data.grid.dtype),
        pybaracuda.pad_backward(data.of_padded, LOW, HIGH, mode="replicate"),
        pybaracuda.segment_gather(data.of_total, data.names),
    )


def assert_same_bits(actual: Any, wanted: Any) -> None:
    assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
    width = BITS[actual.element_size()]
    assert torch.equal(actual.contiguous().view(width), wanted.contiguous().view(width))


@DTYPE
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_captured_step_has_the_array_functions_bits(
    deterministic: bool, dtype: Any, device: str, rng: np.random.Generator
) -> None:
    static = fresh(rng, dtype, device)
    graph = torch.cuda.CUDAGraph()
    with pybaracuda.torch.install(deterministic=deterministic):
        warmed_up(lambda: step(static))
        before = all_ours("cuda")
        with torch.cuda.graph(graph):
            found = step(static)
        after = all_ours("cuda")
    for operator in OPERATORS:
        assert after[operator] > before[operator], f"{operator} was not ours: {pybaracuda.torch.report()}"
    # The kernels stay in the graph, whatever is installed.
    for _ in range(3):
        data = fresh(rng, dtype, device)
        for mine, other in zip(static, data, strict=True):
            mine.copy_(other)
        for each in found:
            each.fill_(torch.nan)
        graph.replay()
        for one, wanted in zip(found, expected(data), strict=True):
            assert_same_bits(one, wanted)
    pybaracuda.torch.check_indices()


def test_a_graph_of_several_steps_and_two_at_once(device: str, rng: np.random.Generator) -> None:
    """Scratch of one graph is none of the other's, though both run at once."""
    statics = [fresh(rng, torch.float32, device) for _ in range(2)]
    graphs, found = [], []
    with pybaracuda.torch.install():
        warmed_up(lambda: step(statics[0]))
        for static in statics:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found.append([step(static) for _ in range(3)])
            graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(5):
        data = [fresh(rng, torch.float32, device) for _ in statics]
        for static, other in zip(statics, data, strict=True):
            for mine, each in zip(static, other, strict=True):
                mine.copy_(each)
        torch.cuda.synchronize()
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        for steps, other in zip(found, data, strict=True):
            wanted = expected(other)
            for results in steps:
                for one, each in zip(results, wanted, strict=True):
                    assert_same_bits(one, each)


class Sampler(torch.nn.Module):
    """Samples its own image and adds up what it saw by names."""

    def __init__(self) -> None:
        super().__init__()
        self.image = torch.nn.Parameter(torch.zeros(1, 5, 13, 14))

    def forward(self, grid: Any, names: Any) -> Any:
        rows = functional.grid_sample(self.image, grid, align_corners=False).flatten(2)[0].T
        return torch.zeros(NUM_SEGMENTS, 5, device=rows.device).index_add(0, names, rows)


def drawn(rng: np.random.Generator, device: str) -> tuple[Any, Any]:
    grid = torch.from_numpy(rng.uniform(-1.1, 1.1, (1, 20, 21, 2))).float().to(device)
    return grid, torch.from_numpy(rng.integers(0, NUM_SEGMENTS, 420)).to(device)


def trained(net: Any, call: Callable[..., Any], batches: list[tuple[Any, Any]], image: Any) -> list[Any]:
    """Results, gradients and images of steps that begin with an image."""
    with torch.no_grad():
        net.image.copy_(image)
    found = []
    for batch in batches:
        torch.compiler.cudagraph_mark_step_begin()
        net.image.grad = None
        result = call(*batch)
        result.backward(torch.full_like(result, 0.25) * result.detach())
        found.extend([result.detach().clone(), net.image.grad.clone()])
        with torch.no_grad():
            net.image.sub_(net.image.grad)
        found.append(net.image.detach().clone())
    return found


def test_graphed_callables_train_as_the_eager_program(device: str, rng: np.random.Generator) -> None:
    net = Sampler().to(device)
    image = torch.from_numpy(rng.standard_normal((1, 5, 13, 14))).float().to(device)
    batches = [drawn(rng, device) for _ in range(4)]
    with pybaracuda.torch.install():
        wanted = trained(net, net, batches, image)
        graphed = torch.cuda.make_graphed_callables(Sampler().to(device), drawn(rng, device))
        before = all_ours("cuda")
        found = trained(graphed, graphed, batches, image)
        # Nothing is called any more; the graph's kernels run.
        assert all_ours("cuda") == before
    for one, other in zip(found, wanted, strict=True):
        assert_same_bits(one, other)


def test_reduced_overhead_has_the_eager_bits(device: str, rng: np.random.Generator) -> None:
    from torch._dynamo.utils import counters

    net = Sampler().to(device)
    image = torch.from_numpy(rng.standard_normal((1, 5, 13, 14))).float().to(device)
    batches = [drawn(rng, device) for _ in range(6)]
    counters.clear()
    with pybaracuda.torch.install():
        wanted = trained(net, net, batches, image)
        before = all_ours("cuda")
        compiled = torch.compile(net, mode="reduce-overhead", fullgraph=True)
        found = trained(net, compiled, batches, image)
        after = all_ours("cuda")
        for operator in ("aten::grid_sampler_2d", "aten::grid_sampler_2d_backward", "aten::index_add"):
            # The first calls warm up and are captured, the others are replays.
            assert before[operator] < after[operator] < before[operator] + len(batches), after
        assert not counters["inductor"]["cudagraph_skips"], counters
        for one, other in zip(found, wanted, strict=True):
            assert_same_bits(one, other)
        pybaracuda.torch.check_indices()
        # What a replay drops is counted as an eager call's is. Forward only: PyTorch's gradient would stop the process.
        grid, names = batches[0]
        names[:3] = torch.tensor([-1, NUM_SEGMENTS, 10**9], device=device)
        before = all_ours("cuda")
        with torch.no_grad():
            for _ in range(6):
                torch.compiler.cudagraph_mark_step_begin()
                compiled(grid, names)
        assert all_ours("cuda")["aten::index_add"] < before["aten::index_add"] + 6
        with pytest.raises(IndexError, match="18 on cuda"):
            pybaracuda.torch.check_indices()


def test_lengths_of_the_host_are_written_by_the_graph(device: str) -> None:
    """What is captured has them, whatever becomes of the memory that they were in; and nothing waits for them."""
    torch.manual_seed(0)
    scores, targets = torch.randn(30, 4, 9, device=device), torch.randint(1, 9, (4, 6), device=device)
    lengths = [30, 30, 12, 25], [6, 0, 3, 3]

    def call() -> tuple[Any, Any]:
        log_probs = scores.log_softmax(2).requires_grad_()
        losses = pybaracuda.torch.ctc_loss(log_probs, targets, *lengths, reduction="none")
        return losses, torch.autograd.grad(losses.sum(), log_probs)[0]

    warmed_up(call)
    torch.cuda.synchronize()
    with waiting_is_an_error():
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call()
    for _ in range(2):
        scores.copy_(torch.randn_like(scores))
        graph.replay()
        for one, wanted in zip(found, call(), strict=True):
            assert_same_bits(one, wanted)
