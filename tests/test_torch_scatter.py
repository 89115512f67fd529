# SPDX-License-Identifier: Apache-2.0
"""torch_scatter's functions: each beside loops in float64, for every way to place an index, dtype and `out`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.autograd import gradcheck, gradgradcheck

from pybaracuda.torch import scatter as ours

SIZE = 4
REDUCE = pytest.mark.parametrize("reduce", ["sum", "mul", "mean", "min", "max"])
SEGMENT_REDUCE = pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max"])

# Shapes of a tensor and of its index, and the axis: along one axis, over columns, in batches, both, and empty.
PLACES = {
    "1d": ((6,), (6,), -1),
    "first": ((6, 3), (6,), 0),
    "last": ((2, 6), (6,), -1),
    "middle": ((2, 6, 3), (6,), 1),
    "batches": ((2, 6, 3), (2, 6), 1),
    "batches-without-columns": ((2, 6), (2, 6), 1),
    "two-batches": ((2, 3, 6), (2, 3, 6), -1),
    "column-before": ((3, 6, 2), (1, 6), 1),
    "column-between": ((2, 3, 6, 2), (2, 1, 6), 2),
    "full-rank": ((6, 2, 3), (6, 1, 1), 0),
    "one-entry": ((6, 3), (1, 1), 0),
    "by-element": ((6, 3), (6, 3), 0),
    "by-element-of-batches": ((2, 6, 3), (2, 6, 3), 1),
    "column-first": ((2, 6, 2, 3), (1, 6, 1, 3), 1),
    "no-rows": ((2, 0, 3), (0,), 1),
    "no-columns": ((6, 0), (6,), 0),
    "no-batches": ((0, 6), (0, 6), 1),
}
PLACE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
INTEGER = pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: str(dtype).removeprefix("torch."))


def name_of(reduce: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(ours, f"scatter_{reduce}")
    return function


def spread(index: Any, shape: Sequence[int], axis: int) -> Any:
    """An index of the tensor's shape, as NumPy's."""
    values = index.cpu().numpy()
    if values.ndim == 1:
        values = values.reshape([1] * axis + [-1])
    values = values.reshape(*values.shape, *[1] * (len(shape) - values.ndim))
    return np.broadcast_to(values, shape)


def groups_of(src: Any, index: Any, axis: int, size: int) -> dict[tuple[int, ...], list[tuple[Any, int]]]:
    """Values and their places along the axis, by where they go."""
    shape = list(src.shape)
    shape[axis] = size
    found: dict[tuple[int, ...], list[tuple[Any, int]]] = {place: [] for place in np.ndindex(*shape)}
    values = src.detach().cpu().numpy()
    for place in np.ndindex(*src.shape):
        target = int(index[place])
        if 0 <= target < size:
            found[(*place[:axis], target, *place[axis + 1 :])].append((values[place], place[axis]))
    return found


def expected(reduce: str, src: Any, index: Any, axis: int, size: int, out: Any = None) -> tuple[Any, Any]:
    """Answers values and places by loops; the definition is torch_scatter's."""
    shape = list(src.shape)
    shape[axis] = size
    values = np.zeros(shape, src.detach().cpu().numpy().dtype)
    places = np.full(shape, src.shape[axis])
    for place, members in groups_of(src, index, axis, size).items():
        held = None if out is None else out[place]
        terms = [value for value, _ in members]
        if reduce in ("sum", "mean"):
            total = sum(terms) + (0 if held is None else held)
            if reduce == "mean":
                count = max(len(terms), 1)
                total = total // count if values.dtype.kind in "iu" else total / count
            values[place] = total
        elif reduce == "mul":
            values[place] = np.prod(terms) * (1 if held is None else held)
        else:
            sign = 1 if reduce == "max" else -1
            best = None if held is None else (held, src.shape[axis])
            for value, at in members:
                if best is None or sign * value > sign * best[0]:
                    best = (value, at)
            values[place], places[place] = (0, src.shape[axis]) if best is None else best
    return values, places


def drawn(
    rng: np.random.Generator, place: tuple[Sequence[int], Sequence[int], int], device: str, low: int = 0
) -> tuple[Any, Any, int]:
    """A tensor, an index into SIZE segments of which one is empty, and the axis."""
    shape, index_shape, dim = place
    src = torch.tensor(rng.standard_normal(shape), device=device)
    index = torch.tensor(rng.choice([each for each in range(low, SIZE) if each != 1], index_shape), device=device)
    return src, index, dim


def check(found: Any, wanted: tuple[Any, Any], reduce: str) -> None:
    values = found
    if reduce in ("min", "max"):
        values, places = found
        assert places.dtype == torch.int64
        np.testing.assert_array_equal(places.cpu().numpy(), wanted[1])
        np.testing.assert_array_equal(values.detach().cpu().numpy(), wanted[0])
    else:
        np.testing.assert_allclose(values.detach().cpu().numpy(), wanted[0], rtol=1e-13, atol=1e-13)


@REDUCE
@PLACE
def test_scatter(
    place: tuple[Sequence[int], Sequence[int], int], reduce: str, device: str, rng: np.random.Generator
) -> None:
    src, index, dim = drawn(rng, place, device)
    axis = dim % src.dim()
    wanted = expected(reduce, src, spread(index, src.shape, axis), axis, SIZE)
    found = name_of(reduce)(src, index, dim, dim_size=SIZE)
    check(found, wanted, reduce)
    values = found[0] if reduce in ("min", "max") else found
    assert torch.equal(ours.scatter(src, index, dim, dim_size=SIZE, reduce=reduce), values)
    if reduce == "sum":
        assert torch.equal(ours.scatter_add(src, index, dim, dim_size=SIZE), values)
        assert torch.equal(ours.scatter(src, index, dim, dim_size=SIZE, reduce="add"), values)


@REDUCE
@PLACE
def test_scatter_into(
    place: tuple[Sequence[int], Sequence[int], int], reduce: str, device: str, rng: np.random.Generator
) -> None:
    src, index, dim = drawn(rng, place, device)
    axis = dim % src.dim()
    shape = list(src.shape)
    shape[axis] = SIZE
    out = torch.tensor(rng.standard_normal(shape), device=device)
    wanted = expected(reduce, src, spread(index, src.shape, axis), axis, SIZE, out.cpu().numpy().copy())
    found = name_of(reduce)(src, index, dim, out)
    check(found, wanted, reduce)
    assert (found[0] if reduce in ("min", "max") else found) is out


@REDUCE
def test_segments_are_as_many_as_the_index_names(reduce: str, device: str, rng: np.random.Generator) -> None:
    src, index, dim = drawn(rng, PLACES["batches"], device)
    index[0, 0] = 6
    found = ours.scatter(src, index, dim, reduce=reduce)
    assert found.shape == (2, 7, 3)
    assert torch.equal(found, ours.scatter(src, index, dim, dim_size=7, reduce=reduce))
    assert ours.scatter(src[:, :0], index[:, :0], dim, reduce=reduce).shape == (2, 0, 3)


@REDUCE
def test_an_index_out_of_range_is_dropped(reduce: str, device: str, rng: np.random.Generator) -> None:
    for place in ("first", "batches", "two-batches"):
        src, index, dim = drawn(rng, PLACES[place], device, low=-2)
        index.view(-1)[::4] = SIZE + 1
        axis = dim % src.dim()
        wanted = expected(reduce, src, spread(index, src.shape, axis), axis, SIZE)
        check(name_of(reduce)(src, index, dim, dim_size=SIZE), wanted, reduce)


@REDUCE
def test_strides_change_nothing(reduce: str, device: str, rng: np.random.Generator) -> None:
    src, index, dim = drawn(rng, PLACES["batches"], device)
    wanted = ours.scatter(src, index, dim, dim_size=SIZE, reduce=reduce)
    strided = src.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert torch.equal(ours.scatter(strided, index.T.contiguous().T, dim, dim_size=SIZE, reduce=reduce), wanted)
    out = torch.zeros_like(wanted).permute(2, 1, 0).contiguous().permute(2, 1, 0)
    into = wanted.clone().zero_()
    assert ours.scatter(src, index, dim, out, reduce=reduce) is out
    assert torch.equal(out, ours.scatter(src, index, dim, into, reduce=reduce))
    expanded = index[:, :, None].expand(2, 6, 3)
    assert torch.equal(ours.scatter(src, expanded, dim, dim_size=SIZE, reduce=reduce), wanted)
    assert torch.equal(ours.scatter(src, index.to(torch.int32), dim, dim_size=SIZE, reduce=reduce), wanted)


@REDUCE
@INTEGER
def test_integers(reduce: str, dtype: Any, device: str, rng: np.random.Generator) -> None:
    low = 0 if dtype == torch.uint8 else -11
    for place in ("first", "batches"):
        shape, index_shape, dim = PLACES[place]
        src = torch.tensor(rng.integers(low, 12, shape), device=device).to(dtype)
        index = torch.tensor(rng.choice([0, 2, 3], index_shape), device=device)
        out_shape = [SIZE if at == dim else extent for at, extent in enumerate(shape)]
        out = torch.tensor(rng.integers(max(low, -2), 3, out_shape), device=device).to(dtype)
        held = out.cpu().numpy().astype(np.int64)
        wide = spread(index, shape, dim)
        for into in (None, held):
            values, places = expected(reduce, src.to(torch.int64), wide, dim, SIZE, into)
            found = name_of(reduce)(src, index, dim, out if into is not None else None, SIZE)
            if reduce in ("min", "max"):
                found, arg = found
                np.testing.assert_array_equal(arg.cpu().numpy(), places)
            assert found.dtype == dtype
            # What is too large wraps around.
            np.testing.assert_array_equal(found.cpu().numpy(), values.astype(found.cpu().numpy().dtype))


def test_a_mean_of_integers_does_not_overflow(device: str) -> None:
    for dtype in INTEGERS:
        top = torch.iinfo(dtype).max if dtype != torch.int64 else 2**61
        src = torch.full((3,), top, dtype=dtype, device=device)
        index = torch.zeros(3, dtype=torch.int64, device=device)
        assert ours.scatter_mean(src, index, dim_size=2).tolist() == [top, 0]
        assert ours.segment_mean_csr(src, torch.tensor([0, 3, 3], device=device)).tolist() == [top, 0]
    odd = torch.tensor([-3, 0], dtype=torch.int32, device=device)
    assert ours.scatter_mean(odd, torch.zeros(2, dtype=torch.int64, device=device)).tolist() == [-2]


def test_bool(device: str) -> None:
    src = torch.tensor([True, False, False, True, True], device=device)
    index = torch.tensor([0, 0, 1, 3, 3], device=device)
    assert ours.scatter_sum(src, index).tolist() == [True, False, False, True]
    assert ours.scatter_mul(src, index).tolist() == [False, False, True, True]
    assert ours.scatter_max(src, index)[0].tolist() == [True, False, False, True]
    assert ours.scatter_min(src, index)[1].tolist() == [1, 2, 5, 3]
    out = torch.tensor([False, True, True, False], device=device)
    assert ours.scatter_sum(src, index, out=out).tolist() == [True, True, True, True]
    for function in (ours.scatter_mean, ours.segment_mean_coo):
        with pytest.raises(TypeError, match="no mean"):
            function(src, index)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_are_rounded_once(dtype: Any, device: str, rng: np.random.Generator) -> None:
    src = torch.tensor(rng.standard_normal((300, 2)), device=device).to(dtype)
    index = torch.tensor(rng.integers(0, SIZE, 300), device=device)
    out = torch.tensor(rng.standard_normal((SIZE, 2)), device=device).to(dtype)
    for reduce in ("sum", "mean"):
        for into in (None, out.clone()):
            held = None if into is None else into.double().cpu().numpy()
            wanted, _ = expected(reduce, src.double(), spread(index, src.shape, 0), 0, SIZE, held)
            found = name_of(reduce)(src, index, 0, into, SIZE)
            assert found.dtype == dtype
            unit = torch.finfo(dtype).eps
            # Half a unit of the result and what float32 loses in 76 terms.
            bound = 0.5 * unit * np.abs(wanted) + 1e-5
            assert bool((np.abs(found.double().cpu().numpy() - wanted) <= bound).all())


def test_complex(device: str, rng: np.random.Generator) -> None:
    for place in ("first", "batches", "two-batches"):
        real, index, dim = drawn(rng, PLACES[place], device)
        src = torch.complex(real, torch.tensor(rng.standard_normal(real.shape), device=device)).requires_grad_()
        axis = dim % src.dim()
        for reduce in ("sum", "mean"):
            wanted, _ = expected(reduce, src, spread(index, src.shape, axis), axis, SIZE)
            found = ours.scatter(src, index, dim, dim_size=SIZE, reduce=reduce)
            np.testing.assert_allclose(found.detach().cpu().numpy(), wanted, rtol=1e-13, atol=1e-13)
            out = found.detach().clone()
            assert ours.scatter(src.detach(), index, dim, out, reduce=reduce) is out
            again, _ = expected(reduce, src, spread(index, src.shape, axis), axis, SIZE, found.detach().cpu().numpy())
            np.testing.assert_allclose(out.cpu().numpy(), again, rtol=1e-13, atol=1e-13)
        assert gradcheck(lambda x, index=index, dim=dim: ours.scatter_sum(x, index, dim, dim_size=SIZE), (src,))


def test_a_conjugate_view_is_written_through(device: str) -> None:
    held = torch.tensor([1 + 2j, 3 - 1j], device=device)
    src = torch.tensor([1j, 2j, 4j], device=device)
    index = torch.tensor([0, 0, 1], device=device)
    assert ours.scatter_sum(src.conj(), index, out=held.conj()).tolist() == [1 - 5j, 3 - 3j]
    assert held.tolist() == [1 + 5j, 3 + 3j]


def test_nan_and_infinity(device: str) -> None:
    nan, inf = float("nan"), float("inf")
    src = torch.tensor([1.0, nan, -inf, -inf, 2.0], device=device)
    index = torch.tensor([0, 0, 1, 1, 2], device=device)
    values, places = ours.scatter_max(src, index)
    assert values.isnan().tolist() == [True, False, False]
    assert values[1:].tolist() == [-inf, 2.0]
    assert places.tolist() == [1, 2, 4]
    out = torch.tensor([5.0, 7.0, 1.0], device=device)
    values, places = ours.scatter_max(src, index, out=out)
    assert values.isnan().tolist() == [True, False, False]
    assert values[1:].tolist() == [7.0, 2.0]
    assert places.tolist() == [1, 5, 4]


def test_a_tie_goes_to_the_first(device: str) -> None:
    src = torch.tensor([3.0, 1.0, 3.0, 1.0], device=device, requires_grad=True)
    index = torch.tensor([0, 0, 0, 0], device=device)
    for function, place in ((ours.scatter_max, 0), (ours.scatter_min, 1)):
        values, places = function(src, index)
        assert places.tolist() == [place]
        (grad,) = torch.autograd.grad(values.sum(), src)
        assert grad.tolist() == [float(at == place) for at in range(4)]


@pytest.mark.parametrize("unbiased", [True, False])
@PLACE
def test_standard_deviation(
    place: tuple[Sequence[int], Sequence[int], int], unbiased: bool, device: str, rng: np.random.Generator
) -> None:
    src, index, dim = drawn(rng, place, device)
    axis = dim % src.dim()
    groups = groups_of(src, spread(index, src.shape, axis), axis, SIZE)
    found = ours.scatter_std(src, index, dim, dim_size=SIZE, unbiased=unbiased)
    out = torch.ones_like(found)
    into = ours.scatter_std(src, index, dim, out, unbiased=unbiased)
    assert found.shape[axis] == SIZE
    for at, members in groups.items():
        values = np.array([value for value, _ in members])
        squares = np.sum((values - values.mean()) ** 2) if len(values) else 0.0
        count = max(len(values) - unbiased, 1)
        assert float(found[at]) == pytest.approx(np.sqrt(squares / count), abs=1e-12)
        assert float(out[at]) == pytest.approx(1 + squares, abs=1e-12)
        assert float(into[at]) == pytest.approx(np.sqrt((1 + squares) / count), abs=1e-12)


def test_standard_deviation_of_integers_and_16_bits(device: str) -> None:
    index = torch.tensor([0, 0, 2], device=device)
    found = ours.scatter_std(torch.tensor([1, 4, 7], device=device), index)
    assert found.dtype == torch.get_default_dtype()
    assert found.tolist() == pytest.approx([4.5**0.5, 0, 0])
    half = ours.scatter_std(torch.tensor([300.0, -300.0, 1], device=device).half(), index)
    assert half.dtype == torch.float16
    assert float(half[0]) == pytest.approx(180000**0.5, rel=1e-3)


@PLACE
def test_logarithms_of_sums(
    place: tuple[Sequence[int], Sequence[int], int], device: str, rng: np.random.Generator
) -> None:
    src, index, dim = drawn(rng, place, device)
    src = src * 30
    axis = dim % src.dim()
    groups = groups_of(src, spread(index, src.shape, axis), axis, SIZE)
    found = ours.scatter_logsumexp(src, index, dim, dim_size=SIZE)
    out = torch.tensor(rng.standard_normal(found.shape), device=device)
    held = out.clone()
    assert ours.scatter_logsumexp(src, index, dim, out) is out
    shares = ours.scatter_softmax(src, index, dim, dim_size=SIZE)
    logarithms = ours.scatter_log_softmax(src, index, dim, dim_size=SIZE)
    assert shares.shape == logarithms.shape == src.shape
    for at, members in groups.items():
        values = [value for value, _ in members]
        assert float(found[at]) == pytest.approx(np.logaddexp.reduce(values) if values else 0.0, abs=1e-12)
        assert float(out[at]) == pytest.approx(np.logaddexp.reduce([*values, float(held[at])]), abs=1e-12)
        for value, row in members:
            wanted = value - np.logaddexp.reduce(values)
            source = (*at[:axis], row, *at[axis + 1 :])
            assert float(logarithms[source]) == pytest.approx(wanted, rel=1e-12, abs=1e-12)
            assert float(shares[source]) == pytest.approx(np.exp(wanted), rel=1e-11)


def test_logarithms_are_accurate_for_large_values(device: str) -> None:
    src = torch.tensor([1e6, 1e6 + 1, -float("inf")], device=device)
    index = torch.zeros(3, dtype=torch.int64, device=device)
    found = ours.scatter_log_softmax(src, index)
    torch.testing.assert_close(found, torch.log_softmax(src, 0), rtol=1e-6, atol=0)
    half = ours.scatter_log_softmax(torch.tensor([900.0, 903], device=device).half(), index[:2])
    torch.testing.assert_close(half, torch.log_softmax(torch.tensor([0.0, 3], device=device), 0).half())


@pytest.mark.parametrize("name", ["scatter_softmax", "scatter_log_softmax", "scatter_logsumexp"])
def test_exponentials_take_floats(name: str, device: str) -> None:
    with pytest.raises(ValueError, match=f"{name} takes floats"):
        getattr(ours, name)(torch.tensor([1, 2], device=device), torch.tensor([0, 0], device=device))


# Shapes of a tensor and of sorted ids, whose last axis is reduced.
SORTED = {
    "1d": ((6,), (6,)),
    "columns": ((6, 3), (6,)),
    "batches": ((2, 6, 3), (2, 6)),
    "two-batches": ((2, 3, 6), (2, 3, 6)),
    "same-in-all": ((2, 6, 3), (1, 6)),
    "column-between": ((2, 3, 6), (2, 1, 6)),
    "no-rows": ((2, 0, 3), (2, 0)),
    "no-columns": ((6, 0), (6,)),
    "no-batches": ((0, 6), (0, 6)),
    "no-columns-before": ((0, 6), (1, 6)),
}
SORTED_PLACE = pytest.mark.parametrize("place", SORTED.values(), ids=SORTED.keys())


def drawn_sorted(
    rng: np.random.Generator, place: tuple[Sequence[int], Sequence[int]], device: str
) -> tuple[Any, Any, Any, int]:
    """A tensor, ids that never descend, the offsets that say the same, and the axis."""
    shape, index_shape = place
    src = torch.tensor(rng.standard_normal(shape), device=device)
    ids = np.sort(rng.choice([0, 2, 3], index_shape), -1)
    counts = np.stack([(ids == each).sum(-1) for each in range(SIZE)], -1)
    starts = np.concatenate([np.zeros((*index_shape[:-1], 1), int), counts.cumsum(-1)], -1)
    index = torch.tensor(ids, device=device)
    return src, index, torch.tensor(starts, device=device).reshape(*index_shape[:-1], SIZE + 1), index.dim() - 1


@SEGMENT_REDUCE
@SORTED_PLACE
def test_sorted_ids_and_offsets(
    place: tuple[Sequence[int], Sequence[int]], reduce: str, device: str, rng: np.random.Generator
) -> None:
    src, index, starts, axis = drawn_sorted(rng, place, device)
    wide = spread(index.reshape(index.shape if index.dim() > 1 else [-1]), src.shape, axis)
    wanted = expected(reduce, src, wide, axis, SIZE)
    by_ids = getattr(ours, f"segment_{reduce}_coo")(src, index, dim_size=SIZE)
    by_offsets = getattr(ours, f"segment_{reduce}_csr")(src, starts)
    check(by_ids, wanted, reduce)
    check(by_offsets, wanted, reduce)
    values = by_ids[0] if reduce in ("min", "max") else by_ids
    assert torch.equal(ours.segment_coo(src, index, dim_size=SIZE, reduce=reduce), values)
    assert torch.equal(ours.segment_csr(src, starts, reduce=reduce), values)
    out = torch.tensor(rng.standard_normal(values.shape), device=device)
    held = out.cpu().numpy().copy()
    assert ours.segment_coo(src, index, out, reduce=reduce) is out
    check(
        (out, torch.tensor(wanted[1])) if reduce in ("min", "max") else out,
        (
            expected(reduce, src, wide, axis, SIZE, held)[0],
            wanted[1],
        ),
        reduce,
    )
    # Offsets say everything: what was there is gone.
    assert ours.segment_csr(src, starts, out, reduce) is out
    assert torch.equal(out, values)
    if reduce == "sum":
        assert torch.equal(ours.segment_add_coo(src, index, dim_size=SIZE), values)
        assert torch.equal(ours.segment_add_csr(src, starts), values)
        assert torch.equal(ours.segment_coo(src, index, dim_size=SIZE, reduce="add"), values)
        assert torch.equal(ours.segment_csr(src, starts, reduce="add"), values)


@SEGMENT_REDUCE
@INTEGER
def test_sorted_integers(reduce: str, dtype: Any, device: str, rng: np.random.Generator) -> None:
    real, index, starts, axis = drawn_sorted(rng, SORTED["batches"], device)
    src = (real * 40).abs().to(dtype) if dtype == torch.uint8 else (real * 40).to(dtype)
    values, places = expected(reduce, src.to(torch.int64), spread(index, src.shape, axis), axis, SIZE)
    for function, of in (
        (getattr(ours, f"segment_{reduce}_coo"), index),
        (getattr(ours, f"segment_{reduce}_csr"), starts),
    ):
        found = function(src, of)
        if reduce in ("min", "max"):
            found, arg = found
            np.testing.assert_array_equal(arg.cpu().numpy(), places[:, : found.shape[1]])
        assert found.dtype == dtype
        limited = values[:, : found.shape[1]].astype(found.cpu().numpy().dtype)
        np.testing.assert_array_equal(found.cpu().numpy(), limited)


CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
GATHERED = (
    *(torch.bool, torch.int8, torch.uint8, torch.float8_e4m3fn, torch.int16, torch.float16, torch.bfloat16),
    *(torch.int32, torch.float32, torch.int64, torch.float64, torch.complex64, torch.complex128),
)


@pytest.mark.parametrize("dtype", GATHERED, ids=lambda dtype: str(dtype).removeprefix("torch."))
@SORTED_PLACE
def test_gathers_of_any_dtype(
    place: tuple[Sequence[int], Sequence[int]], dtype: Any, device: str, rng: np.random.Generator
) -> None:
    src, index, starts, axis = drawn_sorted(rng, place, device)
    shape = list(src.shape)
    shape[axis] = SIZE
    # Any bits, those of NaN too, as integers, which nothing changes; a complex number is two of them.
    parts = 2 if dtype.is_complex else 1
    carrier = CARRIERS[torch.empty(0, dtype=dtype).element_size() // parts]
    limits = torch.iinfo(carrier)
    raw = rng.integers(limits.min, limits.max, (*shape, parts), endpoint=True)
    bits = torch.tensor(raw % 2 if dtype == torch.bool else raw, device=device).to(carrier)
    wide = torch.tensor(spread(index, src.shape, axis).copy(), device=device)
    wanted = torch.gather(bits, axis, wide[..., None].expand(*wide.shape, parts))
    if dtype.is_complex:
        floats = bits.view(dtype.to_real()).clone(memory_format=torch.contiguous_format)
        segments = torch.view_as_complex(floats)
    else:
        segments = bits[..., 0].view(dtype)
    for function, of in ((ours.gather_coo, index), (ours.gather_csr, starts)):
        out = torch.empty(src.shape, dtype=dtype, device=device)
        results = [function(segments, of, out)]
        assert results[0] is out
        if src.numel() or function is ours.gather_coo:
            results.append(function(segments, of))
        for found in results:
            assert found.dtype == dtype
            assert found.shape == src.shape
            halves = torch.view_as_real(found) if dtype.is_complex else found[..., None]
            assert torch.equal(halves.view(carrier), wanted)


DIFFERENTIABLE: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "sum": ((2, 6, 2), lambda x, index, starts: ours.scatter_sum(x, index, 1)),
    "sum-last": ((2, 3, 6), lambda x, index, starts: ours.scatter_sum(x, index[:, None], 2)),
    "mul": ((2, 6, 2), lambda x, index, starts: ours.scatter_mul(x, index, 1)),
    "mean": ((2, 6, 2), lambda x, index, starts: ours.scatter_mean(x, index, 1)),
    "max": ((2, 6, 2), lambda x, index, starts: ours.scatter_max(x, index, 1)[0]),
    "min": ((2, 6, 2), lambda x, index, starts: ours.scatter(x, index, 1, reduce="min")),
    "std": ((2, 6, 2), lambda x, index, starts: ours.scatter_std(x, index, 1)),
    "logsumexp": ((2, 6, 2), lambda x, index, starts: ours.scatter_logsumexp(x, index, 1)),
    "softmax": ((2, 6, 2), lambda x, index, starts: ours.scatter_softmax(x, index, 1)),
    "log_softmax": ((2, 6, 2), lambda x, index, starts: ours.scatter_log_softmax(x, index, 1)),
    "coo-mean": ((2, 6, 2), lambda x, index, starts: ours.segment_coo(x, index, reduce="mean")),
    "coo-max": ((2, 6, 2), lambda x, index, starts: ours.segment_coo(x, index, reduce="max")),
    "csr-sum": ((2, 6, 2), lambda x, index, starts: ours.segment_csr(x, starts)),
    "csr-mean": ((2, 6, 2), lambda x, index, starts: ours.segment_csr(x, starts, reduce="mean")),
    "csr-min": ((2, 6, 2), lambda x, index, starts: ours.segment_csr(x, starts, reduce="min")),
    "gather-coo": ((2, SIZE, 2), lambda x, index, starts: ours.gather_coo(x, index)),
    "gather-csr": ((2, SIZE, 2), lambda x, index, starts: ours.gather_csr(x, starts)),
}
DERIVATIVE = pytest.mark.parametrize("case", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE.keys())


def distinct(rng: np.random.Generator, shape: Sequence[int], device: str) -> Any:
    """Values so far from each other that finite differences do not change a maximum."""
    values = rng.permutation(int(np.prod(shape))).reshape(shape) / 10 - 1
    return torch.tensor(values, device=device, requires_grad=True)


@DERIVATIVE
def test_derivatives(case: tuple[tuple[int, ...], Callable[..., Any]], device: str, rng: np.random.Generator) -> None:
    shape, call = case
    _, index, starts, _ = drawn_sorted(rng, SORTED["batches"], device)
    src = distinct(rng, shape, device)
    assert gradcheck(lambda x: call(x, index, starts), (src,))
    assert gradgradcheck(lambda x: call(x, index, starts), (src,))


@pytest.mark.parametrize("name", ["sum", "mul", "mean", "min", "max", "logsumexp"])
def test_gradients_flow_into_out(name: str, device: str, rng: np.random.Generator) -> None:
    _, index, _, _ = drawn_sorted(rng, SORTED["columns"], device)
    src, held = distinct(rng, (6, 2), device), distinct(rng, (SIZE, 2), device)

    def into(src: Any, held: Any) -> Any:
        out = held.clone()
        found = getattr(ours, f"scatter_{name}")(src, index, 0, out)
        return found[0] if isinstance(found, tuple) else found

    with torch.no_grad():
        held -= 0.05  # no tie between the two
    assert gradcheck(into, (src, held))


def test_the_deviation_of_equal_values_has_a_gradient(device: str) -> None:
    src = torch.tensor([2.0, 2.0, 5.0], device=device, requires_grad=True)
    found = ours.scatter_std(src, torch.tensor([0, 0, 1], device=device))
    (grad,) = torch.autograd.grad(found.sum(), src)
    assert grad.tolist() == [0.0, 0.0, 0.0]


@DERIVATIVE
def test_transforms(case: tuple[tuple[int, ...], Callable[..., Any]], device: str, rng: np.random.Generator) -> None:
    shape, call = case
    _, index, starts, _ = drawn_sorted(rng, SORTED["batches"], device)
    samples = torch.stack([distinct(rng, shape, device).detach() for _ in range(3)])
    found = torch.vmap(lambda x: call(x, index, starts))(samples)
    assert torch.equal(found, torch.stack([call(each, index, starts) for each in samples]))

    def loss(x: Any) -> Any:
        return call(x, index, starts).square().sum()

    grads = torch.vmap(torch.func.grad(loss))(samples)
    given = samples[0].clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(given), given)
    torch.testing.assert_close(grads[0], wanted, rtol=1e-14, atol=1e-14)
    jacobian = torch.func.jacrev(lambda x: call(x, index, starts))(samples[0])
    other = torch.autograd.functional.jacobian(lambda x: call(x, index, starts), samples[0])
    torch.testing.assert_close(jacobian, other, rtol=1e-14, atol=1e-14)


def test_compiled(device: str, rng: np.random.Generator) -> None:
    _, index, starts, _ = drawn_sorted(rng, SORTED["batches"], device)
    src = distinct(rng, (2, 6, 2), device)

    def program(x: Any, index: Any, starts: Any) -> Any:
        found = ours.scatter_mean(x, index, 1, dim_size=SIZE) + ours.scatter_max(x, index, 1, dim_size=SIZE)[0]
        found = found + ours.segment_csr(x, starts) + ours.scatter_std(x, index, 1, dim_size=SIZE)
        return ours.gather_coo(found, index) * ours.scatter_softmax(x, index, 1, dim_size=SIZE)

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(src, index, starts), program(src, index, starts))
    (mine,) = torch.autograd.grad(compiled(src, index, starts).square().sum(), src)
    (wanted,) = torch.autograd.grad(program(src, index, starts).square().sum(), src)
    torch.testing.assert_close(mine, wanted, rtol=1e-14, atol=1e-14)


def test_bad_arguments(device: str) -> None:
    src = torch.zeros(4, 3, device=device)
    index = torch.zeros(4, dtype=torch.int64, device=device)
    for function in (ours.scatter, ours.segment_coo, ours.segment_csr):
        with pytest.raises(ValueError, match="reduce is 'median'"):
            function(src, index, reduce="median")
    with pytest.raises(TypeError, match="out has dtype"):
        ours.scatter(src, index, 0, torch.zeros(2, 3, dtype=torch.float64, device=device))
    with pytest.raises(ValueError, match="out has shape"):
        ours.scatter(src, index, 0, torch.zeros(2, 4, device=device))
    with pytest.raises(RuntimeError, match="expand"):
        ours.scatter(src, index[:3], 0)
    for given in (index.double(), index.bool(), index.double()[None]):
        with pytest.raises(TypeError, match="index has dtype"):
            ours.scatter(src.expand(*given.shape[:-1], 4, 3), given, given.dim() - 1, dim_size=1)
    with pytest.raises(TypeError, match="indptr has dtype"):
        ours.segment_csr(src, index.double())
    with pytest.raises(IndexError, match="dim is 2"):
        ours.scatter(src, index, 2, dim_size=1)
    with pytest.raises(ValueError, match="src has 4 segments; indptr has 3"):
        ours.gather_csr(src, index)


@pytest.mark.parametrize("name", ours.__all__)
def test_documentation_names_every_argument(name: str) -> None:
    function = getattr(ours, name)
    text = inspect.getdoc(function) or ""
    assert all(f"{each} : " in text for each in inspect.signature(function).parameters)
    assert "array" not in text
