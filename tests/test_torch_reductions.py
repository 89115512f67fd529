# SPDX-License-Identifier: Apache-2.0
"""Reductions by an index in every dtype that PyTorch has them in, beside PyTorch's own on the CPU.

Integers and bools are the same to the bit. Complex numbers are pairs of floats, and have the bits that these have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from place import available

if not available("torch"):
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch.autograd import gradcheck
from torch_calls import Hits, ours, same

import pybaracuda.torch

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def named(*dtypes: Any) -> Any:
    return pytest.mark.parametrize("dtype", dtypes, ids=lambda dtype: str(dtype).removeprefix("torch."))


EXTENT = 6
# Shapes of what is added to and of what is added, and the axis; the first with so many terms that all integers wrap.
SHAPES = {
    "vector": ((EXTENT,), (900,), 0),
    "rows": ((EXTENT, 5), (40, 5), 0),
    "columns": ((3, EXTENT, 2), (3, 30, 2), 1),
    "last": ((4, EXTENT), (4, 31), -1),
    "one": ((1, 3), (1, 3), 0),
}
SHAPE = pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    yield
    pybaracuda.torch.uninstall()
    torch.use_deterministic_algorithms(False)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Whatever a dtype holds, integers from end to end, with ties among them."""
    if dtype == torch.bool:
        return torch.from_numpy(rng.random(shape) < 0.3)
    if dtype.is_complex:
        return torch.from_numpy(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).to(dtype)
    if dtype.is_floating_point:
        return torch.from_numpy(rng.standard_normal(shape)).to(dtype)
    info = torch.iinfo(dtype)
    few = rng.integers(info.min, info.max, 40, endpoint=True, dtype=str(dtype).removeprefix("torch."))
    return torch.from_numpy(rng.choice(few, shape))


class Case:
    """Tensors on the CPU, an index of rows that leaves some out, and the same one by elements."""

    def __init__(self, rng: np.random.Generator, shapes: Any, dtype: Any) -> None:
        given, source, self.dim = shapes
        self.given, self.source = drawn(rng, given, dtype), drawn(rng, source, dtype)
        extent = given[self.dim]
        self.ids = torch.from_numpy(rng.choice([each for each in range(extent) if each != 2], source[self.dim]))
        self.places = torch.from_numpy(rng.integers(0, extent, source))
        shape = [1] * len(source)
        shape[self.dim] = -1
        self.expanded = self.ids.reshape(shape).expand(source)

    def on(self, device: str) -> Case:
        moved = object.__new__(Case)
        moved.dim = self.dim
        for name in ("given", "source", "ids", "places"):
            setattr(moved, name, getattr(self, name).to(device))
        shape = [1] * moved.source.dim()
        shape[moved.dim] = -1
        moved.expanded = moved.ids.reshape(shape).expand(moved.source.shape)
        return moved

    def named_by(self, axis: int, ids: Any) -> list[Any]:
        return [None] * (axis % self.given.dim()) + [ids]


Call = Callable[[Case], Any]
# What adds, by the operator that it reaches.
SUMS: list[tuple[str, Call]] = [
    ("aten::index_add", lambda case: case.given.index_add(case.dim, case.ids, case.source)),
    ("aten::index_add_", lambda case: case.given.clone().index_add_(case.dim, case.ids, case.source)),
    (
        "aten::index_add.out",
        lambda case: torch.index_add(
            case.given, case.dim, case.ids, case.source, out=torch.empty_like(case.given).fill_(1)
        ),
    ),
    ("aten::scatter_add", lambda case: case.given.scatter_add(case.dim, case.expanded, case.source)),
    ("aten::scatter_add", lambda case: case.given.scatter_add(case.dim, case.places, case.source)),
    ("aten::scatter_add_", lambda case: case.given.clone().scatter_add_(case.dim, case.places, case.source)),
    (
        "aten::index_put",
        lambda case: torch.ops.aten.index_put(case.given, case.named_by(case.dim, case.ids), case.source, True),
    ),
    (
        "aten::_index_put_impl_",
        lambda case: torch.ops.aten.index_put_(
            case.given.clone(), case.named_by(case.dim, case.ids), case.source, True
        ),
    ),
    (
        "aten::put_",
        lambda case: case.given.clone().put_(case.places % case.given.numel() - 1, case.source, accumulate=True),
    ),
]


def scattered(reduce: str, include_self: bool, by_element: bool, in_place: bool) -> Call:
    def call(case: Case) -> Any:
        index = case.places if by_element else case.expanded
        if in_place:
            return case.given.clone().scatter_reduce_(case.dim, index, case.source, reduce, include_self=include_self)
        return case.given.scatter_reduce(case.dim, index, case.source, reduce, include_self=include_self)

    return call


def indexed(reduce: str, include_self: bool, in_place: bool) -> Call:
    def call(case: Case) -> Any:
        given = case.given.clone() if in_place else case.given
        function = given.index_reduce_ if in_place else given.index_reduce
        return function(case.dim, case.ids, case.source, reduce, include_self=include_self)

    return call


def reductions(dtype: Any) -> list[tuple[str, Call]]:
    """Every call that reduces, also those that PyTorch refuses."""
    found = []
    for reduce, include_self, in_place in product(REDUCTIONS, (True, False), (True, False)):
        end = "_" * in_place
        for by_element in (True, False):
            call = scattered(reduce, include_self, by_element, in_place)
            found.append((f"aten::scatter_reduce{end}.two", call))
        if reduce != "sum":
            found.append((f"aten::index_reduce{end}", indexed(reduce, include_self, in_place)))
    return found


def outcome(call: Callable[[], Any]) -> tuple[Any, str]:
    """What a call answers, or PyTorch's error."""
    try:
        return call(), ""
    except RuntimeError as error:  # NotImplementedError is one
        return None, f"{type(error).__name__}: {error}"


@named(*INTEGERS, torch.bool)
@SHAPE
def test_integers_are_pytorchs(shapes: Any, dtype: Any, device: str, rng: np.random.Generator) -> None:
    case = Case(rng, shapes, dtype)
    moved = case.on(device)
    for operator, call in [*SUMS, *reductions(dtype)]:
        wanted, error = outcome(lambda call=call: call(case))
        if error:
            # What PyTorch does not do stays its own error.
            before = ours(operator)
            with pybaracuda.torch.install():
                assert outcome(lambda call=call: call(case)) == (None, error)
            assert ours(operator) == before
            continue
        # PyTorch reduces bools by index_reduce on the CPU alone, and there not those of a vector.
        is_left = dtype == torch.bool and "index_reduce" in operator
        if is_left and device != "cpu":
            continue
        with pybaracuda.torch.install(), Hits(*[] if is_left else [operator]):
            found = call(moved)
        assert same(found.cpu(), wanted), operator
        assert found.stride() == wanted.stride()


@named(*INTEGERS)
@pytest.mark.parametrize("include_self", [True, False])
def test_a_mean_rounds_down_and_counts_wrap_around(include_self: bool, dtype: Any, device: str) -> None:
    ids, negative = torch.tensor([0, 0, 0, 1, 1]), dtype != torch.uint8
    source = torch.tensor([-1, -1, 0, 3, 4] if negative else [1, 1, 0, 3, 4], dtype=dtype)
    given = torch.tensor([0, 0, 7], dtype=dtype)
    # As many entries as make a narrow count 0, and one more and less.
    calls = [(ids, source)]
    for entries in (127, 128, 255, 256, 257, 511, 512):
        calls.append((torch.ones(entries, dtype=torch.int64), torch.full((entries,), 3, dtype=dtype)))
    for index, values in calls:
        wanted = given.scatter_reduce(0, index, values, "mean", include_self=include_self)
        moved = given.to(device), index.to(device), values.to(device)
        with pybaracuda.torch.install(), Hits("aten::scatter_reduce.two", "aten::index_reduce"):
            found = moved[0].scatter_reduce(0, moved[1], moved[2], "mean", include_self=include_self)
            again = moved[0].index_reduce(0, moved[1], moved[2], "mean", include_self=include_self)
        assert same(found.cpu(), wanted), (dtype, index.numel())
        assert same(again, found)
    if negative and not include_self:
        assert given.scatter_reduce(0, ids, source, "mean", include_self=False).tolist() == [-1, 3, 7]


@named(*INTEGERS, torch.bool, *FLOATS, *COMPLEX)
def test_alpha_is_what_pytorch_makes_of_it(dtype: Any, device: str, rng: np.random.Generator) -> None:
    case = Case(rng, SHAPES["rows"], dtype)
    moved = case.on(device)

    def call(case: Case, alpha: Any) -> Any:
        return case.given.index_add(case.dim, case.ids, case.source, alpha=alpha)

    for alpha in (0, 1, 3, -2, True, False, 0.5, 2.0, 1j, -127, -128, -129, 256, 2**15, -(2**31), 2**31, 1e39, 7e4):
        wanted, error = outcome(lambda alpha=alpha: call(case, alpha))
        if error:
            with pybaracuda.torch.install():
                assert outcome(lambda alpha=alpha: call(case, alpha)) == (None, error)
            continue
        with pybaracuda.torch.install():
            found = call(moved, alpha)
        if dtype.is_complex or dtype.is_floating_point:
            if abs(alpha) > 256:
                continue  # 16 bits are soon infinite
            # A term's magnitude is below 8, of 41 terms: each addition rounds a partial sum, both here and there.
            eps = torch.finfo(dtype).eps
            scale = max(abs(alpha), 1) * 8.0
            assert found.dtype == wanted.dtype
            assert bool(((found.cpu() - wanted).abs() <= 2 * 41 * 41 * scale * eps).all()), alpha
        else:
            assert same(found.cpu(), wanted), alpha


def test_what_pytorch_refuses_of_a_dtype_is_its_own_error(device: str) -> None:
    given, ids = torch.zeros(3, dtype=torch.complex64, device=device), torch.tensor([0, 1], device=device)
    source = torch.ones(2, dtype=torch.complex64, device=device)
    for reduce in ("amax", "amin"):
        with pybaracuda.torch.install(), pytest.raises((NotImplementedError, RuntimeError)):
            given.scatter_reduce(0, ids, source, reduce)
    flags = given.real.bool(), source.real.bool()
    with pybaracuda.torch.install(), pytest.raises((NotImplementedError, RuntimeError)):
        flags[0].scatter_reduce(0, ids, flags[1], "mean")
    with pybaracuda.torch.install(), pytest.raises(RuntimeError, match=r"put_\(\): Expected a long tensor"):
        given.put_(ids.int(), source, accumulate=True)


def pairs(case: Case) -> Case:
    """The same problem in floats, with an axis more."""
    found = object.__new__(Case)
    found.given, found.source = torch.view_as_real(case.given), torch.view_as_real(case.source)
    found.dim, found.ids = case.dim % case.given.dim(), case.ids
    found.places = case.places[..., None].expand(*case.places.shape, 2)
    found.expanded = case.expanded[..., None].expand(*case.expanded.shape, 2)
    return found


@named(*COMPLEX)
@SHAPE
def test_complex_sums_are_those_of_their_parts(shapes: Any, dtype: Any, device: str, rng: np.random.Generator) -> None:
    case = Case(rng, shapes, dtype).on(device)
    for operator, call in SUMS:
        wanted = call(case)
        with pybaracuda.torch.install(), Hits(operator):
            found = call(case)
        assert found.dtype == dtype
        assert found.stride() == wanted.stride()
        largest = case.source.abs().max() + case.given.abs().max()
        terms = case.source.numel() + 1
        assert bool(((found - wanted).abs() <= 2 * terms * terms * largest * torch.finfo(dtype).eps).all()), operator
        if operator != "aten::put_":
            with pybaracuda.torch.install():
                of_parts = call(pairs(case))
            assert torch.equal(torch.view_as_real(found), of_parts), operator
    for reduce, include_self, by_element in product(("sum", "mean"), (True, False), (True, False)):
        call = scattered(reduce, include_self, by_element, False)
        with pybaracuda.torch.install(), Hits("aten::scatter_reduce.two"):
            found, of_parts = call(case), call(pairs(case))
            into = scattered(reduce, include_self, by_element, True)(case)
        assert torch.equal(torch.view_as_real(found), of_parts)
        assert same(into, found)
        # On CUDA PyTorch has no complex reductions.
        wanted = call(case.on("cpu")).to(device)
        assert bool(((found - wanted).abs() <= 2 * terms * terms * largest * torch.finfo(dtype).eps).all())
    if device != "cpu":
        return
    # PyTorch has complex products on the CPU.
    left = ours("aten::scatter_reduce.two")
    with pybaracuda.torch.install():
        assert same(scattered("prod", True, False, False)(case), scattered("prod", True, False, False)(case))
    assert ours("aten::scatter_reduce.two") == left


@named(*COMPLEX)
def test_complex_alpha_is_two_rounded_products(dtype: Any, device: str, rng: np.random.Generator) -> None:
    case = Case(rng, SHAPES["columns"], dtype).on(device)
    alpha = complex(*rng.standard_normal(2))
    with pybaracuda.torch.install():
        total = torch.view_as_real(torch.zeros_like(case.given).index_add(1, case.ids, case.source))
        found = case.given.index_add(1, case.ids, case.source, alpha=alpha)
        real = case.given.index_add(1, case.ids, case.source, alpha=complex(alpha.real))
        same_real = case.given.index_add(1, case.ids, case.source, alpha=alpha.real)
    parts = total.cpu().numpy()
    one, other = parts.dtype.type(alpha.real), parts.dtype.type(alpha.imag)
    product_parts = parts[..., 0] * one - parts[..., 1] * other, parts[..., 0] * other + parts[..., 1] * one
    wanted = torch.view_as_real(case.given.cpu()).numpy() + np.stack(product_parts, -1)
    np.testing.assert_array_equal(torch.view_as_real(found.cpu()).numpy(), wanted)
    assert same(real, same_real)


def test_an_infinite_part_leaves_the_other_alone(device: str) -> None:
    given = torch.zeros(2, dtype=torch.complex64, device=device)
    source = torch.tensor([complex(1, float("inf")), 2j], device=device)
    ids = torch.tensor([0, 0], device=device)
    with pybaracuda.torch.install():
        for alpha in (1, 2.0):
            found = torch.view_as_real(given.index_add(0, ids, source, alpha=alpha))
            assert found[0].tolist() == [alpha, float("inf")]


def test_conjugate_and_negative_views(device: str) -> None:
    """PyTorch resolves what is read, and writes through what is written."""
    held = torch.tensor([1 + 2j, 3 - 1j], device=device)
    source = torch.tensor([1j, 2j, 4j], device=device)
    ids = torch.tensor([0, 0, 1], device=device)
    wanted = [1 - 5j, 3 - 3j]
    with pybaracuda.torch.install():
        for operator, call in (
            ("index_add", lambda a, b: a.index_add(0, ids, b)),
            ("scatter_add", lambda a, b: a.scatter_add(0, ids, b)),
            ("scatter_reduce.two", lambda a, b: a.scatter_reduce(0, ids, b, "sum")),
            ("index_put", lambda a, b: a.index_put((ids,), b, accumulate=True)),
            ("put_", lambda a, b: a.clone().put_(ids, b, accumulate=True)),
        ):
            with Hits(f"aten::{operator}"):
                assert call(held.conj(), source.conj()).tolist() == wanted
            assert call(held.conj().resolve_conj(), source.conj()).tolist() == wanted
        into = held.clone()
        into.conj().index_add_(0, ids, source.conj())
        assert into.tolist() == [1 + 5j, 3 + 3j]
        into = held.clone()
        into.conj().put_(ids, source, accumulate=True)
        assert into.tolist() == [1 - 1j, 3 - 5j]
        # The imaginary part of a conjugate is a negative view.
        parts = held.clone()
        assert parts.conj().imag.is_neg()
        parts.conj().imag.index_add_(0, ids, source.conj().imag)
        assert parts.tolist() == [1 + 5j, 3 + 3j]
        assert torch.index_add(held, 0, ids, source.conj(), alpha=1j).tolist() == [4 + 2j, 7 - 1j]


@named(torch.complex128)
def test_gradients_of_complex_gathers(dtype: Any, device: str, rng: np.random.Generator) -> None:
    table = drawn(rng, (5, 3), dtype).to(device).requires_grad_()
    ids = torch.from_numpy(rng.integers(0, 5, 12)).to(device)
    places = torch.from_numpy(rng.integers(0, 5, (4, 3))).to(device)
    for operator, call in (
        ("aten::index_add_", lambda x: x.index_select(0, ids)),
        ("aten::scatter_add_", lambda x: x.gather(0, places)),
        ("aten::_index_put_impl_", lambda x: x[ids]),
    ):
        with pybaracuda.torch.install(), Hits(operator):
            assert gradcheck(call, (table,))
            (found,) = torch.autograd.grad((call(table) * 1j).imag.sum(), table)
        (wanted,) = torch.autograd.grad((call(table) * 1j).imag.sum(), table)
        assert same(found, wanted)


@named(*COMPLEX, torch.int8, torch.bool)
def test_put_keeps_the_last_of_a_place(dtype: Any, device: str, rng: np.random.Generator) -> None:
    given, source = drawn(rng, (5, 6), dtype).t().to(device), drawn(rng, (40,), dtype).to(device)
    index = torch.from_numpy(rng.integers(-30, 30, 40)).to(device)
    flat = given.reshape(-1).tolist()
    for place, value in zip(index.tolist(), source.tolist(), strict=True):
        flat[place] = value
    with pybaracuda.torch.install(), Hits("aten::put_"):
        found = given.clone().put_(index, source)
    assert found.reshape(-1).tolist() == flat


@named(torch.int8, torch.bool, torch.complex64)
def test_empty_tensors_and_bad_entries(dtype: Any, device: str) -> None:
    given = torch.zeros(3, 2, device=device).to(dtype)
    none = torch.zeros(0, dtype=torch.int64, device=device)
    with pybaracuda.torch.install():
        assert same(given.index_add(0, none, given[:0]), given)
        bad = torch.tensor([0, 3, -1, 2], device=device)
        source = torch.ones(4, 2, device=device).to(dtype)
        if device == "cpu":
            with pytest.raises((IndexError, RuntimeError), match="index"):
                given.index_add(0, bad, source)
            return
        found = given.index_add(0, bad, source)
        assert found.real.tolist() == [[1, 1], [0, 0], [1, 1]]
        with pytest.raises(IndexError, match="2 on cuda"):
            pybaracuda.torch.check_indices()


@named(torch.int8, torch.complex64)
def test_compiled_programs_have_the_same_bits(dtype: Any, device: str, rng: np.random.Generator) -> None:
    case = Case(rng, SHAPES["rows"], dtype).on(device)

    def program(given: Any, ids: Any, source: Any) -> Any:
        return given.index_add(0, ids, source), given.scatter_add(0, ids[:, None].expand(-1, 5), source)

    with pybaracuda.torch.install():
        wanted = program(case.given, case.ids, case.source)
        torch._dynamo.reset()
        found = torch.compile(program, fullgraph=True, backend="aot_eager")(case.given, case.ids, case.source)
    assert all(same(one, other) for one, other in zip(found, wanted, strict=True))
