# SPDX-License-Identifier: Apache-2.0
"""Sums into tensors of more rows than a kernel counts: the bits of others, in place, and what stays PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch_calls import Hits, fresh, same

import pybaracuda.torch
from pybaracuda.torch import _named
from pybaracuda.torch._distinct import Distinct
from pybaracuda.torch._route import ROUTES

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int8, torch.int64)
FAR = 2**31 + 5


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("extent", [1, 7, 10**12])
def test_distinct_rows(extent: int, index: Any, device: str, rng: np.random.Generator) -> None:
    high = min(extent, 2**31 - 1)
    pools = [rng.integers(0, high, 9), np.array([-1, -(2**31)]), np.concatenate([rng.integers(0, high, 5), [-1]])]
    if extent < 10**12:
        pools.append(np.array([extent, 0, extent + 1]))
    for pool in pools:
        for count in (1, 2, 50):
            ids = rng.choice(pool, count)
            found = Distinct(torch.from_numpy(ids).to(device, index), extent)
            rows = np.unique(ids[(ids >= 0) & (ids < extent)])
            is_row = (ids >= 0) & (ids < extent)
            ranks = np.where(is_row, np.searchsorted(rows, ids), -1)
            assert found.ranks.tolist() == ranks.tolist()
            assert bool(found.is_any) == bool(rows.size)
            wanted = rows[np.minimum(np.arange(count), rows.size - 1)] if rows.size else np.zeros(count, int)
            assert found.rows.tolist() == wanted.tolist()
            if rows.size:
                assert found.sums.tolist() == np.minimum(np.arange(count), rows.size - 1).tolist()


def test_places_along_axes(rng: np.random.Generator) -> None:
    for extents in ([9], [4, 5], [3, 1, 7, 2]):
        ids = torch.from_numpy(rng.integers(0, np.prod(extents), 20))
        found = Distinct(ids, int(np.prod(extents)))
        wanted = np.unravel_index(found.rows.numpy(), extents)
        assert [each.tolist() for each in found.places(extents)] == [each.tolist() for each in wanted]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, device: str) -> Any:
    if dtype.is_complex:
        parts = fresh(rng, (*shape, 2), dtype.to_real(), device)
        return torch.view_as_complex(parts)
    if dtype.is_floating_point:
        return fresh(rng, shape, dtype, device)
    return torch.from_numpy(rng.integers(-100, 100, shape)).to(device, dtype)


def calls(rng: np.random.Generator, dtype: Any, device: str) -> list[tuple[str, Any]]:
    """Every sum by an index, of tensors that lie in several ways; so many terms that their order shows."""
    entries = 2000

    def ids(*shape: int, low: int = 0, high: int = 9) -> Any:
        return torch.from_numpy(rng.integers(low, high, shape)).to(device)

    table, rows = drawn(rng, (9, 3), dtype, device), drawn(rng, (entries, 3), dtype, device)
    turned, columns = drawn(rng, (3, 9), dtype, device).t(), drawn(rng, (3, entries), dtype, device)
    volume = drawn(rng, (4, 9, 3), dtype, device)
    slices = drawn(rng, (4, entries, 3), dtype, device)
    few, pieces = drawn(rng, (entries, 4), dtype, device), drawn(rng, (entries, 9), dtype, device)
    flat = drawn(rng, (entries,), dtype, device)
    names, places, signed = ids(entries), ids(entries, 3), ids(entries, low=-9)
    axis, far = ids(entries, high=4), ids(entries, low=-27, high=27)
    alpha = 1j - 2 if dtype.is_complex else 3
    put = torch.ops.aten.index_put
    return [
        ("index_add", lambda: table.index_add(0, names, rows)),
        ("index_add", lambda: table.index_add(0, names.int(), rows, alpha=alpha)),
        ("index_add", lambda: turned.index_add(0, names, rows)),
        ("index_add", lambda: volume.index_add(1, names, slices)),
        ("index_add_", lambda: turned.clone().index_add_(0, names, rows, alpha=alpha)),
        ("index_add_", lambda: volume.clone()[1].index_add_(0, names, rows)),
        ("index_add.out", lambda: torch.index_add(table, 0, names, rows, out=torch.full_like(table, 5))),
        ("scatter_add", lambda: table.scatter_add(0, places, rows)),
        ("scatter_add", lambda: table.scatter_add(0, names[:, None].expand(-1, 3), rows)),
        ("scatter_add_", lambda: turned.clone().scatter_add_(0, places, rows)),
        ("scatter_add", lambda: turned.t().scatter_add(1, names.expand(3, entries), columns)),
        ("scatter_reduce.two", lambda: table.scatter_reduce(0, places, rows, "sum")),
        ("index_put", lambda: put(table, [signed], rows, True)),
        ("index_put", lambda: put(volume, [axis, signed], rows, True)),
        ("index_put", lambda: put(volume, [None, signed, axis % 3], few.t(), True)),
        ("index_put", lambda: put(volume, [axis, None, signed % 3], pieces, True)),
        ("index_put", lambda: put(volume, [axis, signed, axis % 3], flat, True)),
        ("_index_put_impl_", lambda: torch.ops.aten.index_put_(volume.clone(), [axis, signed], rows, True)),
        ("put_", lambda: turned.clone().put_(far, flat, accumulate=True)),
        ("put_", lambda: table.clone().put_(far, flat, accumulate=True)),
    ]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_bits_are_those_of_fewer_rows(
    dtype: Any, deterministic: bool, device: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for operator, call in calls(rng, dtype, device):
        with pybaracuda.torch.install(native=False, deterministic=deterministic), Hits(f"aten::{operator}"):
            wanted = call()
            with monkeypatch.context() as patch:
                patch.setattr(_named, "_MOST_ROWS", 3)
                found = call()
        assert same(found, wanted), operator
        assert found.stride() == wanted.stride()


def test_other_rows_keep_their_bits(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = torch.tensor([-0.0, 1.0, -0.0, torch.nan], device=device)
    bits = given.view(torch.int32).tolist()
    monkeypatch.setattr(_named, "_MOST_ROWS", 3)
    run = ROUTES["aten::index_add_"].run
    for ids in ([1], [-1, 4, -7], [1, 9, 1]):
        held = given.clone()
        rows = torch.full((len(ids),), torch.inf, device=device)
        run(held, 0, torch.tensor(ids, device=device), rows, alpha=1)
        assert held[1] == (torch.inf if 1 in ids else 1)
        left = held.view(torch.int32).tolist()
        assert [left[each] for each in (0, 2, 3)] == [bits[each] for each in (0, 2, 3)]
    if device != "cpu":
        with pytest.raises(IndexError, match="4 on cuda"):
            pybaracuda.torch.check_indices()


class Sizes(TorchDispatchMode):
    """The storages of what operators answer."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[int, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                self.bytes[storage.data_ptr()] = max(self.bytes.get(storage.data_ptr(), 0), storage.nbytes())
        return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64, torch.int8])
def test_nothing_of_the_tensors_size_is_made(
    dtype: Any, device: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_named, "_MOST_ROWS", 3)
    given = drawn(rng, (500_000, 3), dtype, device)
    ids = torch.from_numpy(rng.integers(0, 500_000, 20)).to(device)
    rows = drawn(rng, (20, 3), dtype, device)
    for name, arguments in (
        ("index_add_", (given, 0, ids, rows)),
        ("scatter_add_", (given, 0, ids[:, None].expand(20, 3), rows)),
        ("scatter_add_", (given, 0, torch.stack([ids, ids, ids], 1), rows)),
        ("_index_put_impl_", (given, [ids, ids % 3], rows[:, 0], True)),
        ("put_", (given, ids, rows[:, 0], True)),
    ):
        with Sizes() as sizes:
            assert ROUTES[f"aten::{name}"].run(*arguments) is given
        others = {place: size for place, size in sizes.bytes.items() if place != given.untyped_storage().data_ptr()}
        assert others
        # On a GPU scratch and the counters of bad indices take some kilobytes.
        assert max(others.values()) < given.untyped_storage().nbytes() / 2, name


def test_more_than_2_to_the_31_rows(device: str) -> None:
    """On the CPU no page is touched but those that are named."""
    given = torch.empty(FAR, dtype=torch.int8, device=device)
    places = [0, 5, 2**31 - 1, 2**31, FAR - 1]
    index = torch.tensor(places, device=device)
    ids = torch.tensor([FAR - 1, 5, FAR - 1, 2**31, 0], device=device)
    ones = torch.tensor([1, 2, 4, 8, 16], dtype=torch.int8, device=device)
    for operator, call, times in (
        ("index_add_", lambda: given.index_add_(0, ids, ones, alpha=-2), -2),
        ("scatter_add_", lambda: given.scatter_add_(0, ids, ones), 1),
        ("_index_put_impl_", lambda: given.index_put_((ids - FAR,), ones, accumulate=True), 1),
        ("put_", lambda: given.put_(ids - FAR, ones, accumulate=True), 1),
    ):
        given.index_fill_(0, index, 3)
        with pybaracuda.torch.install(), Hits(f"aten::{operator}"):
            assert call() is given
        assert given[index].tolist() == [3 + times * each for each in (16, 2, 0, 8, 5)]
    pybaracuda.torch.check_indices()


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("scatter_reduce.two", ("amax",)),
        ("scatter_reduce.two", ("mean",)),
        ("scatter_reduce_.two", ("sum", False)),
        ("index_reduce", ("prod",)),
        ("put_", (False,)),
    ],
)
def test_other_reductions_of_so_many_rows_are_pytorchs(operator: str, arguments: tuple[Any, ...]) -> None:
    def refusal(extent: int) -> str:
        given, ids = torch.empty(extent, device="meta"), torch.empty(4, dtype=torch.int64, device="meta")
        source = torch.empty(4, device="meta")
        if operator == "put_":
            return ROUTES["aten::put_"].refusal(given, ids, source, *arguments)
        options = {"include_self": False} if len(arguments) > 1 else {}
        return ROUTES[f"aten::{operator}"].refusal(given, 0, ids, source, arguments[0], **options)

    assert refusal(2**31 - 1) == ""
    assert refusal(2**31) == "more than 2^31 - 1 rows, columns or entries"


def test_rows_and_indices_that_no_kernel_counts_are_pytorchs() -> None:
    refusal = ROUTES["aten::index_add"].refusal
    ids = torch.empty(4, dtype=torch.int64, device="meta")
    for columns, dtype, is_left in ((2**31 - 1, torch.float32, False), (2**31, torch.float32, True),
                                    (2**30, torch.complex64, True), (2**30 - 1, torch.complex64, False)):  # fmt: skip
        given, rows = (torch.empty(count, columns, dtype=dtype, device="meta") for count in (3, 4))
        assert bool(refusal(given, 0, ids, rows)) == is_left
    for entries, is_left in ((2**31 - 1, False), (2**31, True)):
        ids, source = torch.empty(entries, dtype=torch.int64, device="meta"), torch.empty(entries, device="meta")
        assert bool(refusal(torch.empty(5, device="meta"), 0, ids, source)) == is_left
