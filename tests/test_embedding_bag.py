# SPDX-License-Identifier: Apache-2.0
"""Bags of embeddings and their gradients: the definition's bounds, the order of sums, PyTorch beside them."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
import pytest
from lattice import any_bits, integers, normal
from place import Place, available
from tolerance import assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.definitions import embedding_bag as oracle
from verify.dtypes import DTYPES, Array

MODES = ("sum", "mean", "max")
MODE = pytest.mark.parametrize("mode", MODES)


class BagCase(NamedTuple):
    """A table, positions in bags, and what else a call has."""

    weight: Array
    indices: Array
    offsets: Array
    mode: str
    weights: Array | None = None
    padding_idx: int | None = None
    by_frequency: bool = False

    @property
    def padding(self) -> int:
        return -1 if self.padding_idx is None else self.padding_idx % max(len(self.weight), 1)


def bag_case(
    rng: np.random.Generator,
    dtype: Any,
    mode: str,
    sizes: tuple[int, int, int, int] = (60, 9, 13, 7),
    *,
    weighted: bool = False,
    padding_idx: int | None = None,
    by_frequency: bool = False,
    exact: bool = False,
    index: Any = np.int64,
) -> BagCase:
    """Positions, bags, rows and columns; some bags are empty."""
    count, bags, rows, columns = sizes
    make = integers if exact else normal
    offsets = np.sort(rng.integers(0, count + 1, bags))
    offsets[:1] = 0
    weights = make(rng, (count,), dtype) if weighted else None
    indices = rng.integers(0, max(rows, 1), count)
    return BagCase(
        make(rng, (rows, columns), dtype), indices.astype(index), offsets.astype(index), mode, weights, padding_idx,
        by_frequency,
    )  # fmt: skip


class Answers(NamedTuple):
    """Everything that the functions answer for a case."""

    output: Array
    ids: Array
    sizes: Array
    arg: Array | None
    grad_weight: Array
    grad_weights: Array


def answers(place: Place, case: BagCase, gradient: Array) -> Answers:
    p = pybaracuda
    count, bags, columns = len(case.indices), len(case.offsets), case.weight.shape[1]
    index, element = case.indices.dtype, case.weight.dtype
    outputs: list[tuple[tuple[int, ...], Any]] = [((bags, columns), element), ((count,), index), ((bags,), index)]
    if case.mode == "max":
        outputs.append(((bags, columns), index))
    weights = [] if case.weights is None else [case.weights]
    operands = (case.indices, case.weight, case.offsets, *weights)

    def forward(i: Any, w: Any, o: Any, *s: Any, **options: Any) -> Any:
        return p.embedding_bag(i, w, o, case.mode, *s, padding_idx=case.padding_idx, **options)

    def with_bags(*given: Any, **options: Any) -> Any:
        return forward(*given, return_bags=True, **options)

    output, ids, sizes, *arg = place.run(with_bags, *operands, outputs=outputs)
    # Who does not ask which bags there are gets the same.
    assert_same_bits(place.run(forward, *operands, outputs=outputs[:1])[0], output)
    more = {"sum": [], "mean": [sizes], "max": arg}[case.mode]
    names = [*{"sum": [], "mean": ["bag_sizes"], "max": ["arg"]}[case.mode], *["per_sample_weights"] * len(weights)]

    def backward(g: Any, i: Any, b: Any, *rest: Any, **options: Any) -> Any:
        given = dict(zip(names, rest, strict=True))
        return p.embedding_bag_backward(
            g, i, b, len(case.weight), case.mode, **given, padding_idx=case.padding_idx,
            scale_grad_by_freq=case.by_frequency, **options,
        )  # fmt: skip

    (of_weight,) = place.run(
        backward, gradient, case.indices, ids, *more, *weights, outputs=[(case.weight.shape, element)]
    )
    (of_weights,) = place.run(
        lambda g, w, i, b, **k: p.embedding_bag_weights_backward(g, w, i, b, case.padding_idx, **k),
        gradient, case.weight, case.indices, ids, outputs=[((count,), element)],
    )  # fmt: skip
    return Answers(output, ids, sizes, arg[0] if arg else None, of_weight, of_weights)


def check(place: Place, case: BagCase, gradient: Array) -> Answers:
    """Everything is within the definition's bounds, and what moves has the definition's bits."""
    found = answers(place, case, gradient)
    rows = len(case.weight)
    if case.mode == "max":
        output, arg, bags = oracle.embedding_bag_max(case.weight, case.indices, case.offsets, case.padding)
        assert_same_bits(found.output, output)
        assert found.arg is not None
        assert_same_bits(found.arg, arg.astype(case.indices.dtype))
        expected = oracle.embedding_bag_max_backward(gradient, case.indices, found.ids, found.arg, rows, case.padding)
    else:
        is_mean = case.mode == "mean"
        sums, bags = oracle.embedding_bag(case.weight, case.indices, case.offsets, case.weights, is_mean, case.padding)
        assert_within(found.output, sums)
        expected = oracle.embedding_bag_backward(
            gradient, case.indices, found.ids, rows, case.padding, found.sizes if is_mean else None, case.weights,
            case.by_frequency,
        )  # fmt: skip
    assert_same_bits(found.ids, bags.ids.astype(case.indices.dtype))
    assert_same_bits(found.sizes, bags.sizes.astype(case.indices.dtype))
    assert_within(found.grad_weight, expected)
    assert_within(
        found.grad_weights,
        oracle.embedding_bag_weights_backward(gradient, case.weight, case.indices, found.ids, case.padding),
    )
    return found


def upstream(rng: np.random.Generator, case: BagCase, exact: bool = False) -> Array:
    shape = len(case.offsets), case.weight.shape[1]
    return (integers if exact else normal)(rng, shape, case.weight.dtype)


# Positions, bags, rows, columns: around the pieces of 256, the strands of 128, blocks of columns and a sort's tiles.
SIZES = [
    (60, 9, 13, 7), (1, 1, 1, 1), (5, 3, 2, 4), (256, 1, 3, 5), (257, 1, 3, 5), (700, 2, 1, 33), (40, 130, 300, 64),
    (300, 40, 7, 127), (300, 40, 7, 128), (90, 10, 7, 129), (64, 8, 5, 257), (2000, 300, 400, 16),
]  # fmt: skip


@MODE
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_random_data(
    place: Place, dtype: Any, rng: np.random.Generator, mode: str, sizes: tuple[int, int, int, int]
) -> None:
    for turn, padding_idx in enumerate((None, 0, -1)):
        case = bag_case(
            rng, dtype, mode, sizes, weighted=mode == "sum" and turn > 0, padding_idx=padding_idx,
            by_frequency=mode != "max" and turn == 2, index=(np.int64, np.int32)[turn % 2],
        )  # fmt: skip
        check(place, case, upstream(rng, case))


@MODE
def test_exact_on_the_lattice(place: Place, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    """Sums of small integers are exact in any order; sizes of a mean are powers of two."""
    case = bag_case(rng, dtype, mode, (32, 8, 9, 6), weighted=mode == "sum", exact=True)
    case = case._replace(offsets=np.arange(0, 32, 4))
    gradient = upstream(rng, case, exact=True)
    found = check(place, case, gradient)
    table, ids = case.weight.astype(np.float64), np.arange(32) // 4
    terms = table[case.indices].reshape(8, 4, 6)
    factors = np.ones(32) if case.weights is None else case.weights.astype(np.float64)
    if mode == "max":
        assert_exact(found.output, terms.max(1))
        return
    factors = factors / (4 if mode == "mean" else 1)
    assert_exact(found.output, (terms * factors.reshape(8, 4, 1)).sum(1))
    slopes = np.zeros(table.shape)
    np.add.at(slopes, case.indices, gradient.astype(np.float64)[ids] * factors[:, None])
    assert_exact(found.grad_weight, slopes)
    assert_exact(found.grad_weights, (gradient.astype(np.float64)[ids] * table[case.indices]).sum(1))


def test_the_adjoint_identity(place: Place, rng: np.random.Generator) -> None:
    """<g, f(w)> is <f'(g), w>, and by weights the same number: in float64, to the roundings of some 1e3 terms."""
    for mode in ("sum", "mean"):
        case = bag_case(rng, np.float64, mode, (300, 20, 30, 12), weighted=mode == "sum", padding_idx=4)
        gradient = upstream(rng, case)
        found = answers(place, case, gradient)
        forward = float((gradient * found.output).sum())
        bound = 4e3 * 2.0**-53 * float(np.abs(gradient).sum() * np.abs(case.weight).max() * 60)
        assert abs(forward - float((found.grad_weight * case.weight).sum())) <= bound
        if case.weights is not None:
            assert abs(forward - float((found.grad_weights * case.weights).sum())) <= bound


def test_order_of_long_bags_and_rows(place: Place) -> None:
    """The header's pieces of 256: a large term in the first piece swallows what comes behind it there, not later."""
    count = 600
    weight = np.array([[1.0], [2.0**24]], np.float32)
    indices = np.zeros(count, np.int64)
    indices[0] = 1
    offsets, ids = np.zeros(1, np.int64), np.zeros(count, np.int64)
    (output,) = place.run(lambda *a, **k: pybaracuda.embedding_bag(*a, "sum", **k), indices, weight, offsets,
                          outputs=[((1, 1), np.float32)])  # fmt: skip
    # 2^24 + 1 is a tie that goes to the even 2^24; the pieces of 256 and 88 ones arrive whole.
    assert output[0, 0] == 2.0**24 + 256 + 88
    gradient = np.ones((count, 1), np.float32)
    gradient[0] = 2.0**24
    bags = np.arange(count)
    (slopes,) = place.run(
        lambda *a, **k: pybaracuda.embedding_bag_backward(*a, 1, "sum", **k), gradient, ids, bags,
        outputs=[((1, 1), np.float32)],
    )  # fmt: skip
    assert slopes[0, 0] == 2.0**24 + 256 + 88


def test_strands_of_products(place: Place) -> None:
    """Strand s has the columns s, s + 128 and so on: 2^24 swallows the ones of its own strand alone."""
    columns = 3 * 128
    gradient, weight = np.ones((1, columns), np.float32), np.ones((1, columns), np.float32)
    weight[0, 0] = 2.0**24
    zero = np.zeros(1, np.int64)
    (found,) = place.run(pybaracuda.embedding_bag_weights_backward, gradient, weight, zero, zero,
                         outputs=[((1,), np.float32)])  # fmt: skip
    # Its strand keeps 2^24; each other one has 3, an odd number, and what joins it is 3 * 64, 3 * 32 and so on: even
    # sums but the last, 3, which is a tie that goes up to 4 from 2^24 + 378.
    assert found[0] == 2.0**24 + 378 + 4


@MODE
def test_ties_nan_and_nothing(place: Place, mode: str) -> None:
    """By hand: the first of equals holds a maximum, NaN wins, an empty bag is 0 and holds nothing."""
    weight = np.array([[0.0, 1.0], [-0.0, 1.0], [np.nan, 0.5]], np.float32)
    indices, offsets = np.array([1, 0, 0, 2, 2]), np.array([0, 2, 2, 5])
    case = BagCase(weight, indices, offsets, mode, padding_idx=None)
    gradient = np.array([[1, 2], [4, 8], [16, 32], [64, 128]], np.float32)
    found = check(place, case, gradient)
    assert not found.output[1].any()
    assert not found.output[3].any()
    assert found.sizes.tolist() == [2, 0, 3, 0]
    assert np.isnan(found.output[2, 0])
    if mode == "max":
        assert found.arg is not None
        assert found.arg.tolist() == [[1, 1], [-1, -1], [2, 0], [-1, -1]]
        assert np.signbit(found.output[0, 0])
        # Row 2 stands twice in the third bag and gets its gradient once.
        assert found.grad_weight.tolist() == [[0, 32], [1, 2], [16, 0]]


@MODE
def test_bad_indices_take_no_part(place: Place, dtype: Any, rng: np.random.Generator, mode: str) -> None:
    """As if they were not there, whatever stands in the padding row."""
    case = bag_case(rng, dtype, mode, (90, 12, 11, 6), padding_idx=3)
    bad = np.array([-1, 11, -(2**62), 2**40, 3])
    indices = case.indices.copy()
    indices[::3] = bad[rng.integers(0, len(bad), 30)]
    weight = case.weight.copy()
    weight[3] = np.nan
    case = case._replace(indices=indices, weight=weight)
    gradient = upstream(rng, case)
    found = check(place, case, gradient)
    assert not np.isnan(found.output.astype(np.float64)).any()
    assert not found.grad_weight[3].any()
    assert not found.grad_weights[(indices < 0) | (indices >= 11) | (indices == 3)].any()
    kept = (indices >= 0) & (indices < 11) & (indices != 3)
    before = np.concatenate([[0], np.cumsum(kept)])
    less = case._replace(indices=indices[kept], offsets=before[case.offsets], padding_idx=None)
    without = answers(place, less, gradient)
    assert_same_bits(found.output, without.output)
    assert_same_bits(found.grad_weight, without.grad_weight)


def test_offsets_out_of_range_and_order(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    for mode in MODES:
        for offsets in ([-5, 3, 900], [4, 4, 9], [20, 20, 20], [5, 2, 9], [0, 2**40, 7]):
            case = bag_case(rng, dtype, mode, (20, 3, 6, 5))._replace(offsets=np.array(offsets))
            check(place, case, upstream(rng, case))


def test_any_bits_are_moved(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    """Maxima are elements of the table, NaN payloads included."""
    case = bag_case(rng, dtype, "max", (300, 50, 40, 9))
    case = case._replace(weight=any_bits(rng, (40, 9), dtype))
    output, arg, _ = oracle.embedding_bag_max(case.weight, case.indices, case.offsets, -1)
    found = place.run(
        lambda *a, **k: pybaracuda.embedding_bag(*a, "max", return_bags=True, **k), case.indices, case.weight,
        case.offsets, outputs=[((50, 9), case.weight.dtype), ((300,), np.int64), ((50,), np.int64),
                               ((50, 9), np.int64)],
    )  # fmt: skip
    assert_same_bits(found[0], output)
    assert_same_bits(found[3], arg)


def test_duplicates_by_the_thousand(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    """One row that most positions name, in many bags and in one."""
    for mode in MODES:
        for bags in (1, 700):
            case = bag_case(rng, dtype, mode, (6000, bags, 5, 20), padding_idx=2)
            indices = case.indices.copy()
            indices[rng.random(6000) < 0.9] = 4
            case = case._replace(indices=indices)
            check(place, case, upstream(rng, case))


def test_embedding_is_bags_of_one(place: Place, rng: np.random.Generator) -> None:
    """Its gradient is that of segments: sums, and means where it is divided by counts."""
    indices, gradient = rng.integers(0, 9, 400), normal(rng, (400, 24), np.float32)
    ids = np.arange(400)
    for by_frequency, reduce in ((False, pybaracuda.segment_sum), (True, pybaracuda.segment_mean)):
        (found,) = place.run(
            lambda *a, by=by_frequency, **k: pybaracuda.embedding_bag_backward(
                *a, 9, "sum", scale_grad_by_freq=by, **k
            ),
            gradient, indices, ids, outputs=[((9, 24), np.float32)],
        )  # fmt: skip
        assert_same_bits(found, reduce(gradient, indices, 9))


@MODE
@pytest.mark.skipif(not available("torch"), reason="no torch")
def test_pytorch(place: Place, rng: np.random.Generator, mode: str) -> None:
    """PyTorch's own kernels on the CPU in float64, a few roundings apart."""
    torch: Any = importlib.import_module("torch")
    functional: Any = importlib.import_module("torch.nn.functional")
    for padding_idx, frequency in ((None, False), (3, mode != "max")):
        case = bag_case(
            rng, np.float64, mode, (500, 60, 17, 11), weighted=mode == "sum" and padding_idx is None,
            padding_idx=padding_idx, by_frequency=frequency,
        )  # fmt: skip
        gradient = upstream(rng, case)
        found = check(place, case, gradient)
        table = torch.tensor(case.weight, requires_grad=True)
        weights = None if case.weights is None else torch.tensor(case.weights, requires_grad=True)
        output = functional.embedding_bag(
            torch.tensor(case.indices), table, torch.tensor(case.offsets), mode=mode, per_sample_weights=weights,
            padding_idx=padding_idx,
        )  # fmt: skip
        output.backward(torch.tensor(gradient))
        slopes = table.grad.numpy()
        if frequency:
            # PyTorch's kernel for the CPU divides by the counts of other rows.
            slopes = slopes / np.bincount(case.indices, minlength=17)[:, None]
        # Of up to some hundred terms of a few units, in two orders.
        options = {"rtol": 0, "atol": 500 * 2.0**-52 * 100}
        np.testing.assert_allclose(found.output, output.detach().numpy(), **options)
        np.testing.assert_allclose(found.grad_weight, slopes, **options)
        if weights is not None:
            np.testing.assert_allclose(found.grad_weights, weights.grad.numpy(), **options)


def test_empty_problems(place: Place) -> None:
    for sizes in ((0, 3, 5, 4), (6, 0, 5, 4), (0, 3, 0, 4), (6, 3, 5, 0), (0, 0, 0, 0)):
        count, bags, rows, columns = sizes
        for mode in MODES:
            weight = np.ones((rows, columns), np.float32)
            case = BagCase(weight, np.zeros(count, np.int64), np.zeros(bags, np.int64), mode)
            found = answers(place, case, np.ones((bags, columns), np.float32))
            assert found.ids.tolist() == [bags - 1] * count
            assert found.sizes.tolist() == [0] * (bags - 1) + [count] * (bags > 0)
            assert not found.grad_weights.any() or columns


def test_dtypes_of_indices() -> None:
    """Narrow ones are converted, and one of 64 bits makes all of them."""
    weight = np.ones((3, 2), np.float32)
    for index, offset, wanted in ((np.uint8, np.int32, np.int32), (np.int16, np.int64, np.int64)):
        _, ids, sizes = pybaracuda.embedding_bag(
            np.zeros(3, index), weight, np.zeros(2, offset), "sum", return_bags=True
        )
        assert ids.dtype == sizes.dtype == wanted


def test_paths(place: Place, rng: np.random.Generator) -> None:
    names = {"sum": ("bags", "list"), "max": ("bags", "list")}
    for mode, (forward, backward) in names.items():
        case = bag_case(rng, DTYPES["f32"], mode)
        output = pybaracuda.embedding_bag(*(place.array(each) for each in case[1::-1]), place.array(case.offsets), mode,
                                          return_bags=True)  # fmt: skip
        assert pybaracuda.last_path(place.backend) == forward
        arg = output[3] if mode == "max" else None
        gradient = place.array(upstream(rng, case))
        pybaracuda.embedding_bag_backward(gradient, place.array(case.indices), output[1], 13, mode, arg=arg)
        assert pybaracuda.last_path(place.backend) == backward
        pybaracuda.embedding_bag_weights_backward(
            gradient, place.array(case.weight), place.array(case.indices), output[1]
        )
        assert pybaracuda.last_path(place.backend) == "products"
