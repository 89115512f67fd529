# SPDX-License-Identifier: Apache-2.0
"""Indices out of range on a GPU: kernels drop them, and how many there were is kept on the device until asked for.

Nothing here waits for the device but `check_indices`. A call counts with two launches: a quotient for each entry, which
is 0 exactly where the entry names a row, and the number of those that are not. Counts of one stream are written one
beside the other, and added up by a third launch once in a few hundred calls, so that no two streams ever share a word.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from . import _native

__all__ = ["GraphCounts", "StreamCounts", "check_indices", "note", "note_dropped"]

# Counts are float64, in which PyTorch can count what is not 0 in one launch; exact below 2**53.
_DTYPE = torch.float64
# How many calls of a stream are counted before they are added up.
_PAGE = 256
# How many captured calls there is room for at once; each keeps its place, since its graph may be replayed at any time.
_GRAPH_PAGE = 4096


def _quotients(ids: Any, extent: int) -> Any:
    """Answer for each entry what is 0 exactly if it lies in [0, extent)."""
    if extent > torch.iinfo(ids.dtype).max:
        ids = ids.to(torch.int64)
    found = torch.empty_like(ids, dtype=_DTYPE)
    return torch.floor_divide(ids, extent, out=found)


class StreamCounts:
    """The calls of one stream, which come after one another; host threads may share it.

    Parameters
    ----------
    memory : Tensor, [2, page]
        In float64, of any content: in turn, a page is filled and the other one takes its sum.
    """

    def __init__(self, memory: Any) -> None:
        self._pages = memory.unbind()
        self._places = [page.unbind() for page in self._pages]
        self._page = 0
        self._used = 0
        self._lock = threading.Lock()

    def count(self, ids: Any, extent: int) -> None:
        """Count the entries that name no row of `extent`."""
        self._write(lambda place: torch.linalg.vector_norm(_quotients(ids, extent), 0, out=place))

    def add(self, dropped: Any) -> None:
        """Count what a kernel has counted already."""
        self._write(lambda place: place.copy_(dropped))

    def _write(self, write: Callable[[Any], Any]) -> None:
        # Held until everything is launched: a place must be written before its page is added up.
        with self._lock:
            places = self._places[self._page]
            if self._used == len(places):
                full = self._pages[self._page]
                self._page = 1 - self._page
                places = self._places[self._page]
                torch.sum(full, 0, out=places[0])
                self._used = 1
            write(places[self._used])
            self._used += 1

    def take(self, wait: Callable[[], None]) -> int:
        """Answer the count and begin anew; `wait` returns when the device has done what was launched."""
        with self._lock:
            wait()
            found = int(self._pages[self._page][: self._used].sum())
            self._used = 0
            return found


class GraphCounts:
    """The captured calls of one device: each adds to a place of its own, in whichever stream its graph is replayed.

    A graph never runs beside itself, so that no two additions to a place meet.
    """

    def __init__(self) -> None:
        self._pages: list[Any] = []
        self._places: list[Any] = []
        self._seen = 0
        self._lock = threading.Lock()

    def provide(self, make: Callable[[], Any]) -> None:
        """See to it that there is room; `make` answers a page of zeros, which must not be captured."""
        if 2 * len(self._places) < _GRAPH_PAGE:
            with self._lock:
                page = make()
                self._pages.append(page)
                self._places.extend(page.unbind())

    def count(self, ids: Any, extent: int) -> bool:
        """Count the entries that name no row of `extent` whenever this is replayed; False if there is no room."""
        return self._add(lambda: torch.linalg.vector_norm(_quotients(ids, extent), 0))

    def add(self, dropped: Any) -> bool:
        """Count what a kernel counts whenever this is replayed; False if there is no room."""
        return self._add(lambda: dropped)

    def _add(self, counted: Callable[[], Any]) -> bool:
        with self._lock:
            if not self._places:
                return False
            place = self._places.pop()
        place.add_(counted())
        return True

    def take(self, wait: Callable[[], None]) -> int:
        """Answer what was counted since this was last asked. A replay at the same time is counted now or then."""
        with self._lock:
            wait()
            total = sum(int(page.sum()) for page in self._pages)
            found, self._seen = total - self._seen, total
            return found


_lock = threading.Lock()
# By device and stream, and by device.
_streams: dict[tuple[int, int], StreamCounts] = {}
_graphs: dict[int, GraphCounts] = {}


def _memory(device: Any, size: int) -> Any:
    """Answer memory of a GPU that belongs to no pool of a graph, for the current stream, of any content."""

    def allocate() -> Any:
        # Not by torch.empty, which fills what it answers where determinism is asked for.
        storage = torch.UntypedStorage(size * _DTYPE.itemsize, device=device)
        return torch.empty(0, dtype=_DTYPE, device=device).set_(storage, 0, (size,))

    # While it warms up, a compiled program's memory comes from a graph's pool, which is laid out anew later. That holds
    # for the thread or the stream; another thread is on the default stream, and in no mode of PyTorch's either.
    with ThreadPoolExecutor(1) as another:
        found = another.submit(allocate).result()
    torch.cuda.current_stream(device).wait_stream(torch.cuda.default_stream(device))
    return found


# A microsecond less than an object of the current stream.
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _stream(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream if _raw_stream is None else _raw_stream(device))


def note(ids: Any, extent: int) -> None:
    """Count the entries of an index on a GPU that name no row of `extent`, which is at least 1."""
    _note(ids.device, lambda counts: counts.count(ids, extent))


def note_dropped(dropped: Any) -> None:
    """Count the entries that a kernel on a GPU has counted itself, in a tensor of one element."""
    _note(dropped.device, lambda counts: counts.add(dropped.reshape(())))


def _note(device: Any, count: Callable[[Any], bool | None]) -> None:
    """Count what was done on a device."""
    if device.type != "cuda":
        return
    if device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            _note(device, count)
        return
    graphs = _graphs.get(device.index)
    if torch.cuda.is_current_stream_capturing():
        if graphs is None or not count(graphs):
            warnings.warn(
                "an index was captured in a CUDA graph that pybaracuda.torch.check_indices() will know nothing of: "
                "there is no counter with room for it. Call the operator once before the capture.",
                RuntimeWarning,
                stacklevel=3,
            )
        return
    key = (device.index, _stream(device.index))
    counts = _streams.get(key)
    if counts is None or graphs is None:
        with _lock:
            graphs = _graphs.setdefault(device.index, GraphCounts())
            counts = _streams.get(key)
            if counts is None:
                counts = _streams[key] = StreamCounts(_memory(device, 2 * _PAGE).reshape(2, _PAGE))
    graphs.provide(lambda: _memory(device, _GRAPH_PAGE).zero_())
    count(counts)


def check_indices() -> None:
    """Raise IndexError if an operator that was taken over has dropped an index since this was last asked.

    Waits for every GPU on which such operators ran. On the CPU an index out of range is PyTorch's own error at once.

    Raises
    ------
    IndexError
        With how many entries were dropped, by device.

    Notes
    -----
    Exact for any number of streams and threads, and for CUDA graphs: each replay counts. A graph's calls need room that
    exists before its capture, which the first call outside of one makes; a captured call without says so by a
    RuntimeWarning, and its indices are dropped without being counted.
    """
    with _lock:
        counts: list[tuple[int, Any]] = [(device, each) for (device, _), each in _streams.items()]
        counts.extend(_graphs.items())
    found: dict[int, int] = {}
    for device, each in counts:
        dropped = each.take(lambda device=device: torch.cuda.synchronize(device))
        found[device] = found.get(device, 0) + dropped
    for index, dropped in _native.take_dropped().items():
        found[index] = found.get(index, 0) + dropped
    said = [f"{count} on cuda:{device}" for device, count in sorted(found.items()) if count]
    if said:
        raise IndexError(f"indices out of range were dropped: {', '.join(said)}")
