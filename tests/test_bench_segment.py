# SPDX-License-Identifier: Apache-2.0
"""The benchmark's segment cases: what they draw, and how peers that no test machine has are called."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.harness import contenders, measure
from benchmarks.harness.case import Row
from benchmarks.harness.draw import Draw
from benchmarks.harness.place import Place
from benchmarks.operators.segment import data
from benchmarks.operators.segment import peers as segment_peers
from benchmarks.operators.segment.case import FORMS, Segment
from benchmarks.operators.segment.data import draw_ids
from verify.definitions.segment import DEFINITIONS

SMALL: dict[str, Any] = dict(rows=200, columns=3, segments=30)


def test_power_law_ids_are_zipfs(rng: np.random.Generator) -> None:
    rows, segments = 200_000, 1000
    counts = np.sort(np.bincount(draw_ids("power law", rows, segments, rng), minlength=segments))[::-1]
    shares = 1 / np.arange(1, segments + 1) / np.sum(1 / np.arange(1, segments + 1))
    # Five standard deviations of a binomial count.
    for rank in (0, 1, 9):
        assert abs(counts[rank] - rows * shares[rank]) < 5 * np.sqrt(rows * shares[rank])
    half = np.bincount(draw_ids("half", rows, segments, rng))
    assert abs(half.max() - rows / 2) < 5 * np.sqrt(rows / 4) + rows / segments * 5
    assert len(np.unique(draw_ids("all", rows, segments, rng))) == 1
    few = np.unique(draw_ids("64", rows, segments, rng))
    assert len(few) == 64
    assert few[-1] - few[0] > 64


def test_factors_multiply_to_moderate_products() -> None:
    rows = 100_000
    factors = data.factors(Draw(), (rows, 8), "f32").astype(np.float64)
    assert 0.45 < np.mean(factors < 0) < 0.55
    # Logarithms of products of all rows have a standard deviation of 5.
    assert np.abs(np.log(np.abs(factors)).sum(axis=0)).max() < 8 * 5


def test_drawn_rows_belong_to_their_segments(rng: np.random.Generator) -> None:
    ids = draw_ids("power law", 500, 90, rng)
    arg = data.draw_arg(Draw(), 4, ids, 90)
    filled = np.isin(np.arange(90), ids)
    assert (arg[~filled] == -1).all()
    assert (ids[arg[filled]] == np.flatnonzero(filled)[:, None]).all()


def test_forward_answers_are_drawn_as_they_would_be(rng: np.random.Generator) -> None:
    """What gradients are given in place of a forward call's output."""
    ids, rows = draw_ids("power law", 300, 40, rng), rng.standard_normal((300, 3))
    products, sums = data.product_of(rows, ids, 40), data.logsumexp_of(rows, ids, 40)
    parts = data.draw_softmax(Draw(), (300, 3), "f64", ids, 40)
    for segment in range(40):
        mine = ids == segment
        np.testing.assert_allclose(products[segment], np.prod(rows[mine], axis=0), rtol=1e-12)
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(sums[segment], np.log(np.exp(rows[mine]).sum(axis=0)), rtol=1e-12)
        np.testing.assert_allclose(parts[mine].sum(axis=0), float(mine.any()), rtol=1e-12)


# ---- JAX


def test_cases_of_one_problem_share_what_jax_compiles() -> None:
    one, other, third = (
        Segment(operation=operation, rows=9, columns=2, segments=4, ids=ids).jax_call(jax)
        for operation, ids in (("max_backward", "uniform"), ("max_backward", "all"), ("min_backward", "all"))
    )
    assert one is not None
    assert other is not None
    assert third is not None
    assert (one.function, one.less) == (other.function, other.less)
    assert third.function is not one.function


# ---- torch_scatter

# A stand-in with the signatures of torch_scatter 2.1, written in PyTorch's own functions.
NAMES = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


def torch_scatter(torch: Any) -> ModuleType:
    def scatter(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: Any = None, reduce: str = "sum") -> Any:
        assert (dim, index.dtype) == (0, torch.int64)
        wide = index[:, None].expand_as(src)
        if out is None:
            empty = {"max": -np.inf, "min": np.inf}.get(reduce, 0.0)
            out = torch.full((dim_size, src.shape[1]), empty, dtype=src.dtype)
            return out.scatter_reduce(0, wide, src, NAMES[reduce], include_self=reduce != "mean")
        # As there: what is in `out` counts.
        return out.scatter_reduce_(0, wide, src, NAMES[reduce], include_self=reduce != "mean")

    def segment_coo(src: Any, index: Any, out: Any = None, dim_size: Any = None, reduce: str = "sum") -> Any:
        assert (index.diff() >= 0).all()
        return scatter(src, index, 0, out, dim_size, reduce)

    def segment_csr(src: Any, indptr: Any, out: Any = None, reduce: str = "sum") -> Any:
        index = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
        return segment_coo(src, index, out, len(indptr) - 1, reduce)

    def pairs(function: Callable[..., Any], reduce: str) -> Callable[..., Any]:
        return lambda *arguments, **named: (function(*arguments, **named, reduce=reduce), None)

    def gather_coo(src: Any, index: Any, out: Any = None) -> Any:
        return torch.index_select(src, 0, index, out=out)

    def gather_csr(src: Any, indptr: Any, out: Any = None) -> Any:
        return out.copy_(torch.repeat_interleave(src, indptr.diff(), 0))

    def parts(src: Any, index: Any, dim_size: int) -> tuple[Any, Any, Any]:
        largest = scatter(src, index, 0, None, dim_size, "max")
        terms = (src - largest[index]).exp()
        return largest, terms, scatter(terms, index, 0, None, dim_size)

    def scatter_logsumexp(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: Any = None) -> Any:
        largest, _, sums = parts(src, index, dim_size)
        return largest + sums.log()

    def scatter_softmax(src: Any, index: Any, dim: int = -1, dim_size: Any = None) -> Any:
        _, terms, sums = parts(src, index, dim_size)
        return terms / sums[index]

    module = ModuleType("torch_scatter")
    module.__spec__ = ModuleSpec("torch_scatter", None)
    for function in (scatter, segment_coo, segment_csr, gather_coo, gather_csr, scatter_logsumexp, scatter_softmax):
        setattr(module, function.__name__, function)
    for reduce in ("max", "min"):
        setattr(module, f"scatter_{reduce}", pairs(scatter, reduce))
        setattr(module, f"segment_{reduce}_coo", pairs(segment_coo, reduce))
        setattr(module, f"segment_{reduce}_csr", pairs(segment_csr, reduce))
    return module


def in_torch_scatter(form: str, operation: str) -> bool:
    """Its products are PyTorch's; exponentials are of unsorted ids alone; gradients of extremes take known rows."""
    name = operation.removesuffix("_backward")
    if name in ("gather", "prod") or operation in ("max_backward", "min_backward") or name.endswith("_even"):
        return False
    return name not in ("logsumexp", "softmax") or (form == "unsorted" and operation == name)


@pytest.mark.parametrize(
    ("form", "operation"),
    [(form, name) for form in FORMS for name in DEFINITIONS if name != "gather" or form == "unsorted"],
)
def test_torch_scatter_is_called_right(torch: Any, monkeypatch: pytest.MonkeyPatch, form: str, operation: str) -> None:
    monkeypatch.setitem(sys.modules, "torch_scatter", torch_scatter(torch))
    assert importlib.util.find_spec("torch_scatter") is not None
    case = Segment(operation=operation, form=form, **SMALL)
    setting = measure.Setting(Place(), [contenders.Torch(Place())], (), 1e9, 1)
    found = measure.measure(Row(case, "cpu"), setting, Draw())
    peers = [peer for peer in found.peers if peer.name == "torch_scatter"]
    assert len(peers) == in_torch_scatter(form, operation)
    for peer in peers:
        assert peer.timing is not None, peer.note
        assert peer.error is not None
        assert peer.error < 1e-4


def test_torch_scatter_is_left_out_where_it_would_fault(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_scatter", torch_scatter(torch))
    for rows, peers in ((2**21 - 1, {"torch_scatter"}), (2**21, set())):
        # One value or id in memory, however many there are.
        values, output = (torch.zeros(1, 1).expand(count, 1024) for count in (rows, 2))
        given = {"input": values, "segment_ids": torch.zeros(1, dtype=torch.int64).expand(rows), "output": output}
        calls = segment_peers.torch_calls(torch, given, "max", "unsorted", rows, 2)
        assert calls.keys() - {"PyTorch scatter_reduce", "PyTorch index_reduce"} == peers


def test_torch_scatter_that_does_not_load_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise OSError("undefined symbol")

    monkeypatch.setattr(segment_peers, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(segment_peers, "import_module", broken)
    assert segment_peers._torch_scatter() is None


# ---- CuPy


class FakeCupy:
    """NumPy under CuPy's names, as far as the segment cases call it."""

    @staticmethod
    def take(values: Any, ids: Any, axis: int, out: Any) -> None:
        np.take(values, ids, axis, out=out)


@pytest.mark.parametrize("operation", ["sum", "max", "min", "sum_backward", "gather"])
def test_cupy_is_called_right(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    cupyx = ModuleType("cupyx")
    cupyx.scatter_add, cupyx.scatter_max, cupyx.scatter_min = np.add.at, np.maximum.at, np.minimum.at  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupyx", cupyx)
    case, draw = Segment(operation=operation, **SMALL), Draw()
    inputs = case.inputs(draw)
    given = inputs | {name: np.full(shape, np.nan, np.float32) for name, (shape, _) in case.outputs().items()}
    (call,) = case.cupy_calls(FakeCupy, given).values()
    error, _ = measure.errors(case.parts(inputs, draw), [np.asarray(each) for each in call()])
    assert error is not None
    assert error < 1e-5
    assert not Segment(operation=operation, form="csr", **SMALL).cupy_calls(FakeCupy, {})
