# SPDX-License-Identifier: Apache-2.0
"""How many indices out of range kernels have dropped: every one, from any streams, threads and CUDA graphs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import pybaracuda
import pybaracuda.torch
from pybaracuda.torch import _bad_indices
from pybaracuda.torch._bad_indices import GraphCounts, StreamCounts, check_indices

EXTENT = 7


@pytest.fixture
def cuda(on_cuda: str) -> Iterator[str]:
    """A GPU that this torch can use, with the kernels installed and nothing counted yet."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA")
    dropped()
    with pybaracuda.torch.install():
        yield on_cuda
    dropped()


def dropped() -> int:
    """What is counted on the only GPU in use."""
    try:
        check_indices()
    except IndexError as error:
        return int(str(error).split(": ")[1].split(" on ")[0])
    return 0


def ids_of(rng: np.random.Generator, bad: int, dtype: Any = torch.int64, device: str = "cpu") -> Any:
    """50 ids, of which so many are out of range, at either end and far from it."""
    info = torch.iinfo(dtype)
    ids = rng.integers(0, EXTENT, 50)
    ids[rng.permutation(50)[:bad]] = rng.choice([-1, EXTENT, -EXTENT, info.min, info.max, EXTENT + 1], bad)
    return torch.tensor(ids, dtype=dtype, device=device)


def nothing() -> None:
    """The CPU has done at once what it was asked for."""


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("page", [2, 3, 5])
@pytest.mark.parametrize("calls", [0, 1, 2, 3, 4, 9, 31])
def test_every_call_of_a_stream_is_counted(calls: int, page: int, dtype: Any, rng: np.random.Generator) -> None:
    counts = StreamCounts(torch.full((2, page), torch.nan, dtype=torch.float64))
    for _ in range(3):
        numbers = [int(each) for each in rng.integers(0, 51, calls)]
        for bad in numbers:
            counts.count(ids_of(rng, bad, dtype), EXTENT)
        assert counts.take(nothing) == sum(numbers)
    assert counts.take(nothing) == 0


@pytest.mark.parametrize(
    ("ids", "extent", "bad"),
    [
        (torch.tensor([-1, 0, 2**31 - 1, -(2**31)], dtype=torch.int32), 2**31 - 1, 3),
        (torch.tensor([-1, 0, 2**31 - 1, -(2**31)], dtype=torch.int32), 2**31, 2),
        (torch.tensor([-1, 0, 2**31 - 1, -(2**31)], dtype=torch.int32), 2**40, 2),
        (torch.tensor([-1, 0, 2**63 - 1, -(2**63), 2**62]), 2**63 - 1, 3),
        (torch.tensor([0, 0, 1, 0]), 1, 1),
        (torch.tensor([0, 9, 1, 9, 2, 9])[::2], 3, 0),
        (torch.tensor([3]).expand(40), 3, 40),
        (torch.tensor([-5]), 3, 1),
        (torch.tensor([], dtype=torch.int64), 3, 0),
    ],
)
def test_extents_at_the_ends_of_the_integers(ids: Any, extent: int, bad: int) -> None:
    counts = StreamCounts(torch.full((2, 4), torch.nan, dtype=torch.float64))
    counts.count(ids, extent)
    assert counts.take(nothing) == bad
    graphs = GraphCounts()
    graphs.provide(lambda: torch.zeros(2, dtype=torch.float64))
    assert graphs.count(ids, extent)
    assert graphs.take(nothing) == bad


def test_a_stream_that_threads_share(rng: np.random.Generator) -> None:
    counts = StreamCounts(torch.full((2, 3), torch.nan, dtype=torch.float64))
    given = [[(ids_of(rng, int(bad)), int(bad)) for bad in rng.integers(0, 51, 40)] for _ in range(4)]
    taken: list[int] = []

    def count(calls: list[Any]) -> None:
        for ids, _ in calls:
            counts.count(ids, EXTENT)

    threads = [threading.Thread(target=count, args=(calls,)) for calls in given]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken.append(counts.take(nothing))
    for thread in threads:
        thread.join(60)
    assert sum(taken) + counts.take(nothing) == sum(bad for calls in given for _, bad in calls)


def test_a_call_counts_with_two_operators(rng: np.random.Generator) -> None:
    """What allocates or views launches nothing."""
    called: list[str] = []

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.append(str(function))
            return function(*args, **(kwargs or {}))

    counts = StreamCounts(torch.full((2, 3), torch.nan, dtype=torch.float64))
    ids = ids_of(rng, 3)
    with Calls():
        for _ in range(4):
            counts.count(ids, EXTENT)
    launched = [name for name in called if name.startswith(("aten.floor", "aten.linalg", "aten.sum"))]
    once = ["aten.floor_divide.out", "aten.linalg_vector_norm.out"]
    assert launched == [*once * 3, "aten.sum.IntList_out", *once]
    assert set(called) - set(launched) == {"aten.empty_like.default"}


def test_counting_in_inference_mode_and_out_of_it(rng: np.random.Generator) -> None:
    memory, page = torch.full((4,), torch.nan, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    graphs = GraphCounts()
    with torch.inference_mode():
        counts = StreamCounts(memory.reshape(2, 2))
        graphs.provide(page.zero_)
    for _ in range(2):
        with torch.inference_mode():
            counts.count(ids_of(rng, 3), EXTENT)
            assert graphs.count(ids_of(rng, 1), EXTENT)
        counts.count(ids_of(rng, 2), EXTENT)
        assert graphs.count(ids_of(rng, 6), EXTENT)
    with torch.inference_mode():
        assert counts.take(nothing) == 10
    assert graphs.take(nothing) == 14


def test_room_for_captured_calls(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bad_indices, "_GRAPH_PAGE", 4)
    made = []

    def make() -> Any:
        made.append(torch.zeros(4, dtype=torch.float64))
        return made[-1]

    graphs = GraphCounts()
    ids = ids_of(rng, 5)
    assert not graphs.count(ids, EXTENT)
    assert graphs.take(nothing) == 0
    graphs.provide(make)
    graphs.provide(make)
    assert len(made) == 1
    for _ in range(3):
        assert graphs.count(ids, EXTENT)
    assert graphs.take(nothing) == 15
    assert graphs.take(nothing) == 0
    # Before all room is gone there is more.
    graphs.provide(make)
    assert len(made) == 2
    for _ in range(5):
        assert graphs.count(ids, EXTENT)
    assert not graphs.count(ids, EXTENT)
    assert graphs.take(nothing) == 25
    # A replay adds to the places that its calls have.
    for page in made:
        page.mul_(2)
    assert graphs.take(nothing) == 40


def test_nothing_is_counted_on_the_cpu(rng: np.random.Generator) -> None:
    before = dict(_bad_indices._streams)
    _bad_indices.note(ids_of(rng, 9), EXTENT)
    assert before == _bad_indices._streams


class StandIn:
    """A GPU's streams and captures as far as `note` asks for them; ids on it are held by the CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # What tests of a GPU have left before.
        with suppress(IndexError):
            check_indices()
        self.device = self.stream = 0
        self.is_capturing = False
        self.waited: list[int] = []
        quotients = _bad_indices._quotients
        monkeypatch.setattr(_bad_indices, "_streams", {})
        monkeypatch.setattr(_bad_indices, "_graphs", {})
        monkeypatch.setattr(_bad_indices, "_quotients", lambda ids, extent: quotients(ids.held, extent))
        monkeypatch.setattr(
            _bad_indices, "_memory", lambda device, size: torch.full((size,), torch.nan, dtype=torch.float64)
        )
        monkeypatch.setattr(_bad_indices, "_stream", lambda device: self.stream)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.device)
        monkeypatch.setattr(torch.cuda, "device", self.entered)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.is_capturing)
        monkeypatch.setattr(torch.cuda, "synchronize", self.waited.append)
        # Native kernels may have counted on the GPUs that there are, which this stands in for.
        monkeypatch.setattr(_bad_indices._native, "take_dropped", dict)

    @contextmanager
    def entered(self, device: Any) -> Iterator[None]:
        before, self.device = self.device, device.index
        yield
        self.device = before

    def note(self, ids: Any, device: int = 0) -> None:
        _bad_indices.note(SimpleNamespace(device=torch.device("cuda", device), held=ids), EXTENT)


def test_each_stream_and_device_has_its_counts(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = StandIn(monkeypatch)
    check_indices()
    for _ in range(300):
        gpu.stream = int(rng.integers(0, 3))
        gpu.note(ids_of(rng, 1))
        gpu.note(ids_of(rng, 2), 1)
    assert set(_bad_indices._streams) == {(device, stream) for device in range(2) for stream in range(3)}
    assert gpu.device == 0
    with pytest.raises(IndexError, match=r"dropped: 300 on cuda:0, 600 on cuda:1$"):
        check_indices()
    # Every count is read after its device has done everything.
    assert sorted(gpu.waited) == [0] * 4 + [1] * 4
    check_indices()
    gpu.note(ids_of(rng, 0))
    check_indices()


def test_captures_count_where_there_is_room(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = StandIn(monkeypatch)
    gpu.is_capturing = True
    with pytest.warns(RuntimeWarning, match="Call the operator once before the capture"):
        gpu.note(ids_of(rng, 3))
    assert not _bad_indices._streams
    check_indices()
    gpu.is_capturing = False
    gpu.note(ids_of(rng, 1))
    gpu.is_capturing = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpu.note(ids_of(rng, 4))
        with pytest.raises(RuntimeWarning, match="no counter with room"):
            gpu.note(ids_of(rng, 5), 1)
    with pytest.raises(IndexError, match=r"dropped: 5 on cuda:0$"):
        check_indices()


def add(ids: Any) -> Any:
    return torch.zeros(EXTENT, 2, device=ids.device).index_add(0, ids, torch.ones(len(ids), 2, device=ids.device))


def test_many_calls_on_two_streams_at_once(cuda: str, rng: np.random.Generator) -> None:
    streams = [torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()]
    numbers = [[int(each) for each in rng.integers(0, 51, 600)] for _ in streams]
    given = [[ids_of(rng, bad, device=cuda) for bad in each] for each in numbers]
    torch.cuda.synchronize()

    def run(stream: Any, calls: list[Any]) -> None:
        with torch.cuda.stream(stream):
            for ids in calls:
                add(ids)

    threads = [threading.Thread(target=run, args=each) for each in zip(streams, given, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert dropped() == sum(map(sum, numbers))
    assert dropped() == 0


def test_asking_while_others_compute(cuda: str, rng: np.random.Generator) -> None:
    ids = ids_of(rng, 11, device=cuda)
    add(ids)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()

    def run() -> None:
        with torch.cuda.stream(stream):
            for _ in range(700):
                add(ids)

    thread = threading.Thread(target=run)
    thread.start()
    total = 0
    while thread.is_alive():
        total += dropped()
    thread.join(60)
    assert total + dropped() == 11 * 701


def captured(call: Callable[[], Any]) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def test_every_replay_is_counted(cuda: str, rng: np.random.Generator) -> None:
    ids = ids_of(rng, 4, device=cuda)
    add(ids)
    assert dropped() == 4

    def twice() -> None:
        add(ids)
        add(ids)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph, other = captured(twice), captured(lambda: add(ids))
    assert dropped() == 0
    # Two graphs at once, each in its stream.
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for _ in range(50):
        for stream, each in zip(streams, (graph, other), strict=True):
            with torch.cuda.stream(stream):
                each.replay()
    assert dropped() == 50 * 12
    ids.copy_(ids_of(rng, 9, device=cuda))
    graph.replay()
    add(ids)
    assert dropped() == 27
    del graph, other
    torch.cuda.empty_cache()
    add(ids)
    assert dropped() == 9


def test_a_capture_without_a_counter_says_so(
    cuda: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ids_of(rng, 4, device=cuda)
    add(ids)
    assert dropped() == 4
    monkeypatch.setattr(_bad_indices, "_graphs", {})
    with pytest.warns(RuntimeWarning, match="Call the operator once before the capture"):
        graph = captured(lambda: add(ids))
    graph.replay()
    assert dropped() == 0


@pytest.mark.parametrize("first", ["inference", "deterministic", "pool"])
def test_a_counter_outlives_what_it_was_made_in(
    first: str, cuda: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_bad_indices, "_streams", {})
    monkeypatch.setattr(_bad_indices, "_graphs", {})
    ids = ids_of(rng, 4, device=cuda)
    if first == "inference":
        with torch.inference_mode():
            add(ids)
    elif first == "deterministic":
        torch.use_deterministic_algorithms(True)
        try:
            add(ids)
        finally:
            torch.use_deterministic_algorithms(False)
    else:
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            add(ids)
        held = {block["address"] for segment in pool.snapshot() for block in segment["blocks"]}
        pages = [page for each in _bad_indices._streams.values() for page in each._pages]
        assert pages
        assert held
        assert not held & {page.untyped_storage().data_ptr() for page in pages}
        del pool
    add(ids)
    graph = captured(lambda: add(ids))
    graph.replay()
    assert dropped() == 12
