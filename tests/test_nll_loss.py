# SPDX-License-Identifier: Apache-2.0
"""Losses of classification and their gradients: the definition's bounds, sums of one order, PyTorch beside them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lattice import integers, normal
from place import Place, available
from tolerance import assert_exact, assert_same_bits, assert_within

import pybaracuda
from verify.definitions import nll_loss as oracle
from verify.dtypes import DTYPES, Array, coordinate_dtype

REDUCTIONS = ("none", "mean", "sum")


class LossCase(NamedTuple):
    """Logits, or log-probabilities, of [N, C, ...] with targets and what else a loss has."""

    input: Array
    target: Array
    weight: Array | None = None
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    @property
    def options(self) -> tuple[Any, ...]:
        return self.weight, self.ignore_index, self.reduction

    @property
    def flat(self) -> tuple[Array, Array]:
        """As [N, C, D] and [N, D]."""
        n, c = self.input.shape[:2]
        return self.input.reshape(n, c, -1 if self.input.size else 0), self.target.reshape(n, -1 if n else 0)


def loss_case(
    rng: np.random.Generator,
    dtype: Any,
    shape: tuple[int, ...],
    *,
    weighted: bool = False,
    ignored: float = 0.125,
    scale: float = 4.0,
    index: Any = np.int64,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> LossCase:
    """Normal logits and any classes."""
    target = rng.integers(0, max(shape[1], 1), (shape[0], *shape[2:]))
    target[rng.random(target.shape) < ignored] = -100
    weight = rng.uniform(0.25, 2.0, shape[1]).astype(dtype) if weighted else None
    logits = (scale * rng.standard_normal(shape)).astype(dtype)
    return LossCase(logits, target.astype(index), weight, -100, reduction, label_smoothing)


class Answers(NamedTuple):
    """Everything that the four functions answer for a case."""

    entropy: Array
    log_sum_exp: Array
    total_weight: Array
    num_dropped: Array
    entropy_grad: Array
    loss: Array
    loss_grad: Array


def answers(place: Place, case: LossCase, gradient: Array) -> Answers:
    p = pybaracuda
    wide, per_element = coordinate_dtype(case.input.dtype), case.target.shape
    shape = per_element if case.reduction == "none" else ()
    element, index = case.input.dtype, case.target.dtype
    sums = [((1,), wide), ((1,), index)]
    losses = [(shape, element)]

    def weighted(function: Any, *arrays: Any, outputs: Any, **options: Any) -> list[Array]:
        rest = (case.ignore_index, case.reduction)
        if case.weight is None:
            return place.run(lambda *a, **k: function(*a, None, *rest, **options, **k), *arrays, outputs=outputs)
        return place.run(
            lambda *a, **k: function(*a[:-1], a[-1], *rest, **options, **k), *arrays, case.weight, outputs=outputs
        )

    smoothing, every = {"label_smoothing": case.label_smoothing}, {"return_sums": True}
    entropy = weighted(
        p.cross_entropy, case.input, case.target, outputs=[*losses, (per_element, wide), *sums], **smoothing, **every
    )
    entropy_grad = weighted(
        p.cross_entropy_backward, gradient, case.input, case.target, entropy[1], entropy[2],
        outputs=[(case.input.shape, element)], **smoothing,
    )  # fmt: skip
    loss = weighted(p.nll_loss, case.input, case.target, outputs=[*losses, *sums], **every)
    loss_grad = weighted(
        lambda grad, target, total, *rest, **k: p.nll_loss_backward(grad, target, total, case.input.shape, *rest, **k),
        gradient, case.target, loss[1], outputs=[(case.input.shape, element)],
    )  # fmt: skip
    assert_same_bits(loss[1], entropy[2])
    assert_same_bits(loss[2], entropy[3])
    counts = (each.reshape(()) for each in entropy[2:])
    return Answers(*entropy[:2], *counts, *entropy_grad, loss[0], *loss_grad)


def upstream(rng: np.random.Generator, case: LossCase) -> Array:
    """A gradient of the result."""
    return normal(rng, case.target.shape if case.reduction == "none" else (), case.input.dtype)


def check(place: Place, case: LossCase, gradient: Array) -> Answers:
    """Everything is within the definition's bounds."""
    found = answers(place, case, gradient)
    logits, target = case.flat
    shape = (logits.shape[0], logits.shape[2]) if case.reduction == "none" else (1, 1)
    entropy = oracle.cross_entropy(logits, target, *case.options, case.label_smoothing)
    assert entropy.log_sum_exp is not None
    assert_within(found.entropy.reshape(shape), entropy.output)
    assert_within(found.log_sum_exp.reshape(target.shape), entropy.log_sum_exp)
    assert_within(found.total_weight.reshape(1), entropy.total_weight)
    assert int(found.num_dropped) == entropy.num_dropped
    loss = oracle.nll_loss(logits, target, *case.options)
    assert_within(found.loss.reshape(shape), loss.output)
    of_loss = oracle.nll_loss_backward(gradient.reshape(shape), logits.shape, target, *case.options, found.total_weight)
    assert_within(found.loss_grad.reshape(logits.shape), of_loss)
    of_entropy = oracle.cross_entropy_backward(
        gradient.reshape(shape), logits, target, *case.options, case.label_smoothing,
        found.log_sum_exp.reshape(target.shape), found.total_weight,
    )  # fmt: skip
    assert_within(found.entropy_grad.reshape(logits.shape), of_entropy)
    return found


SHAPES: list[tuple[int, ...]] = [(37, 10), (5, 1), (4, 700), (2, 21, 19), (3, 40, 7, 9), (1, 6, 2, 3, 4)]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_data(
    place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, ...], reduction: str
) -> None:
    for weighted, smoothing in ((False, 0.0), (True, 0.0), (False, 0.1), (True, 0.75)):
        case = loss_case(
            rng, dtype, shape, weighted=weighted, reduction=reduction, label_smoothing=smoothing,
            index=(np.int32, np.int64)[weighted],
        )  # fmt: skip
        check(place, case, upstream(rng, case))


def test_one_example(place: Place, dtype: Any) -> None:
    """By hand: what does not count, weights, and the sum that the mean is divided by."""
    probabilities = np.array([[-1, -2, -3], [-4, -5, -6], [-7, -8, -9]]).astype(dtype)
    weight = np.array([1, 2, 4]).astype(dtype)
    target = np.array([1, -100, 2])
    arrays = [place.array(each) for each in (probabilities, target, weight)]
    mean, total, dropped = pybaracuda.nll_loss(*arrays, return_sums=True)
    assert float(place.numpy(mean)) == float(np.array((2 * 2 + 4 * 9) / 6).astype(dtype))
    assert (place.numpy(total).tolist(), place.numpy(dropped).tolist()) == ([6], [0])
    each = place.numpy(pybaracuda.nll_loss(*arrays, reduction="none"))
    assert each.astype(np.float64).tolist() == [4, 0, 36]
    gradient = place.array(np.array(3).astype(dtype))
    slopes = pybaracuda.nll_loss_backward(gradient, arrays[1], total, (3, 3), arrays[2])
    assert place.numpy(slopes).astype(np.float64).tolist() == [[0, -1, 0], [0, 0, 0], [0, 0, -2]]


@pytest.mark.parametrize("shape", [(64, 5), (4, 3, 16), (1, 2, 512)], ids=str)
def test_lattice(place: Place, dtype: Any, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    """Small integers are added exactly; the gradient is the exact adjoint, and with a cross entropy's sums to 0."""
    logits = integers(rng, shape, dtype)
    target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    weight = np.array([1, 2, 4, 0, 1][: shape[1]]).astype(dtype)
    case = LossCase(logits, target, weight, reduction="sum")
    gradient = np.array(2).astype(dtype)
    found = answers(place, case, gradient)
    flat, named = case.flat
    assert_exact(found.loss.reshape(1, 1), oracle.nll_loss(flat, named, *case.options).output)
    in_output = float(found.loss) * float(gradient)
    assert in_output == np.sum(logits.astype(np.float64) * found.loss_grad.astype(np.float64))
    # Logits that are all alike have the same share, and the logarithm of how many there are.
    alike = case._replace(input=np.zeros((3, 4, *shape[2:])).astype(dtype), target=np.zeros((3, *shape[2:]), np.int64))
    found = answers(place, alike._replace(weight=None), gradient)
    shares = found.entropy_grad.astype(np.float64)
    assert (shares[:, 1:] == 0.5).all()
    assert (shares[:, 0] == -1.5).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_gradient_is_that_of_differences(place: Place, rng: np.random.Generator, smoothing: float) -> None:
    case = loss_case(rng, np.float64, (3, 5, 4), weighted=True, scale=1.0, label_smoothing=smoothing)
    found = answers(place, case, np.array(1.0))
    step = 2.0**-20
    for at in [(0, 0, 0), (1, 4, 2), (2, 3, 3)]:
        sides = []
        for sign in (-1, 1):
            moved = case.input.copy()
            moved[at] += sign * step
            sides.append(float(answers(place, case._replace(input=moved), np.array(1.0)).entropy))
        slope = (sides[1] - sides[0]) / (2 * step)
        # A central difference is off by step^2 / 6 of the third derivative, below 1, and 2^-52 / step by roundings.
        assert abs(slope - found.entropy_grad[at]) < step**2 + 8 * 2.0**-52 / step


def test_bad_targets_are_dropped(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    """They count as if ignored, are counted, and read nothing; what stands for them is not looked at."""
    for shape in ((40, 6), (3, 6, 50)):
        case = loss_case(rng, dtype, shape, weighted=True)
        wrong = rng.random(case.target.shape) < 0.4
        bad = np.array([-1, 6, 2**63 - 1, -(2**63), 2**32, 2**32 + 3, -99])
        case.target[wrong] = rng.choice(bad, int(wrong.sum()))
        logits = np.moveaxis(case.input, 1, -1)
        logits[wrong | (case.target == -100)] = np.nan
        case = case._replace(input=np.ascontiguousarray(np.moveaxis(logits, -1, 1)))
        for reduction in REDUCTIONS:
            each = case._replace(reduction=reduction)
            found = answers(place, each, upstream(rng, each))
            assert int(found.num_dropped) == int(wrong.sum())
            ignored = each._replace(target=np.where(wrong, -100, case.target))
            again = answers(place, ignored, upstream(np.random.default_rng(1), ignored))
            assert_same_bits(found.entropy, again.entropy)
            assert_same_bits(found.loss, again.loss)
            assert np.isfinite(found.entropy.astype(np.float64)).all()
            assert not np.moveaxis(found.entropy_grad, 1, -1)[wrong].any()


def test_any_index_may_be_ignored(place: Place, rng: np.random.Generator) -> None:
    """A class, or what is none; a target that is no class and is not to be ignored is dropped."""
    target = np.array([0, 1, 2, 255, -7, -100])
    logits = normal(rng, (6, 3), np.float32)
    for ignore_index, dropped in ((255, 2), (-100, 2), (-7, 2), (1, 3), (2**63 - 1, 3), (-(2**63), 3)):
        case = LossCase(logits, target, None, ignore_index)
        found = check(place, case, np.array(1, np.float32))
        assert int(found.num_dropped) == dropped
        assert float(found.total_weight) == (2 if ignore_index == 1 else 3)


def test_nothing_that_counts(place: Place, dtype: Any) -> None:
    """A mean is NaN, a sum 0, and gradients are 0."""
    for shape in ((4, 3), (2, 3, 5), (0, 3), (2, 3, 0), (0, 0), (5, 0)):
        target = np.full((shape[0], *shape[2:]), -100)
        for reduction, wanted in (("mean", np.nan), ("sum", 0.0)):
            case = LossCase(np.full(shape, np.inf).astype(dtype), target, reduction=reduction)
            found = answers(place, case, np.array(1).astype(dtype))
            assert_exact(found.entropy, np.array(wanted))
            assert_exact(found.loss, np.array(wanted))
            assert_exact(found.entropy_grad, np.zeros(shape))
            assert_exact(found.loss_grad, np.zeros(shape))


def test_infinite_logits(place: Place, dtype: Any) -> None:
    """A class of negative infinity has no share; one of positive infinity, and a row of nothing else, is NaN."""
    inf = np.inf
    rows = np.array([[0, 0, -inf], [0, inf, 1], [-inf, -inf, -inf], [1, np.nan, 0]])
    target, gradient = np.array([0, 0, 1, 2]), np.ones(4)
    for shape in ((4, 3), (4, 3, 2)):
        logits = np.broadcast_to(rows.reshape(4, 3, *(1,) * (len(shape) - 2)), shape).astype(dtype)
        named = np.broadcast_to(target.reshape(4, *(1,) * (len(shape) - 2)), (4, *shape[2:])).copy()
        case = LossCase(np.ascontiguousarray(logits), named, reduction="none")
        found = answers(
            place, case, np.broadcast_to(gradient.reshape(4, *(1,) * (len(shape) - 2)), named.shape).astype(dtype)
        )
        values = found.entropy.astype(np.float64).reshape(4, -1)
        assert abs(values[0] - np.log(2)).max() < 2.0**-8
        assert np.isnan(values[1:]).all()
        slopes = found.entropy_grad.astype(np.float64).reshape(4, 3, -1)
        assert np.abs(slopes[0] - np.array([[-0.5], [0.5], [0]])).max() < 2.0**-8
        assert np.isnan(slopes[1:]).all()
    # A class whose weight is 0 has no part in smoothed labels.
    smoothed = LossCase(rows[:1].astype(dtype), target[:1], np.array([1, 1, 0]).astype(dtype), label_smoothing=0.5)
    assert np.isfinite(float(answers(place, smoothed, np.array(1).astype(dtype)).entropy))
    weighed = smoothed._replace(weight=np.array([1, 1, 1]).astype(dtype))
    assert float(answers(place, weighed, np.array(1).astype(dtype)).entropy) == inf


def in_pairs(values: Array) -> Any:
    """The sum of a tree whose every node has two neighbours, in the values' own dtype."""
    while len(values) > 1:
        rest = values[len(values) // 2 * 2 :]
        values = np.concatenate([values[0 : len(values) // 2 * 2 : 2] + values[1::2], rest])
    return values[0]


@pytest.mark.parametrize("count", [1, 2, 3, 31, 33, 255, 256, 257, 8191, 8193, 20001])
def test_sums_are_in_pairs(place: Place, rng: np.random.Generator, count: int) -> None:
    """Of losses and of weights, on both sides of every size that one thread, warp or block adds."""
    for name, shape in (("f32", (count, 2)), ("f64", (1, 2, count))):
        case = loss_case(rng, DTYPES[name], shape, weighted=True, ignored=0.0, reduction="none")
        each = answers(place, case, upstream(rng, case))
        summed = case._replace(reduction="sum")
        found = answers(place, summed, np.array(1, DTYPES[name]))
        assert case.weight is not None
        assert_same_bits(found.loss, np.array(in_pairs(each.loss.ravel())))
        assert_same_bits(found.entropy, np.array(in_pairs(each.entropy.ravel())))
        assert_same_bits(found.total_weight, np.array(in_pairs(case.weight[case.target.ravel()])))
        mean = answers(place, case._replace(reduction="mean"), np.array(1, DTYPES[name]))
        assert_same_bits(mean.loss, np.array(found.loss / found.total_weight))


@pytest.mark.parametrize("classes", [2, 15, 16, 17, 31, 32, 33, 64, 65, 511, 512, 513, 4096, 4097])
def test_classes_around_every_threshold(place: Place, rng: np.random.Generator, classes: int) -> None:
    """Rows that share a warp, have one, or a block; pieces of both cuts; vectors and what is none."""
    for shape, smoothing in (((5, classes), 0.0), ((2, classes, 3), 0.0), ((2, classes, 4), 0.1), ((3, classes), 0.1)):
        case = loss_case(rng, np.float32, shape, weighted=True, label_smoothing=smoothing)
        check(place, case, upstream(rng, case))


@pytest.mark.parametrize("extent", [1, 2, 8, 127, 128, 129, 255, 256, 257, 1000])
def test_extents_around_every_threshold(place: Place, dtype: Any, rng: np.random.Generator, extent: int) -> None:
    case = loss_case(rng, dtype, (3, 5, extent), weighted=True)
    check(place, case, upstream(rng, case))


def test_very_many_classes(place: Place, rng: np.random.Generator) -> None:
    """More than are joined at once."""
    case = loss_case(rng, np.float32, (2, 2**19 + 700), ignored=0.0, scale=1.0)
    check(place, case, upstream(rng, case))


def test_large_sums_of_exponentials_keep_their_digits(place: Place, rng: np.random.Generator) -> None:
    """Losses do not lose what the logits have in common; gradients do as log_sum_exp is rounded, as the bound says."""
    case = loss_case(rng, np.float32, (50, 9), ignored=0.0, reduction="none")
    case = case._replace(input=np.rint(case.input * 64) / np.float32(64))
    far = case._replace(input=case.input + np.float32(4096))
    near, moved = (answers(place, each, np.ones(50, np.float32)) for each in (case, far))
    assert_same_bits(near.entropy, moved.entropy)
    check(place, far, np.ones(50, np.float32))


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = loss_case(rng, dtype, (3, 6, 8), weighted=True)
    gradient = upstream(rng, case)
    wanted = answers(place, case, gradient)
    for layout in (place.transposed, place.every_second, place.misaligned):
        logits, target = layout(case.input), layout(case.target)
        entropy = pybaracuda.cross_entropy(logits, target, place.array(case.weight))
        assert_same_bits(place.numpy(entropy), wanted.entropy)
        sums = place.array(wanted.log_sum_exp), place.array(wanted.total_weight)
        slopes = pybaracuda.cross_entropy_backward(
            place.array(gradient), logits, target, *sums, place.array(case.weight)
        )
        assert_same_bits(place.numpy(slopes), wanted.entropy_grad)


@pytest.mark.parametrize("dtype_of_targets", [np.int8, np.uint8, np.int16, np.uint16, np.int32])
def test_targets_of_any_width(place: Place, rng: np.random.Generator, dtype_of_targets: Any) -> None:
    case = loss_case(rng, np.float32, (20, 7), ignored=0.0)
    wanted = place.numpy(pybaracuda.cross_entropy(place.array(case.input), place.array(case.target)))
    narrow = place.array(case.target.astype(dtype_of_targets))
    assert_same_bits(place.numpy(pybaracuda.cross_entropy(place.array(case.input), narrow)), wanted)


def test_one_row_without_an_axis(place: Place, rng: np.random.Generator) -> None:
    """Logits of one element: [C] and a target of no axis."""
    logits, target = normal(rng, (9,), np.float32), np.array(4)
    alone = place.numpy(pybaracuda.cross_entropy(place.array(logits), place.array(target), reduction="none"))
    row = place.numpy(pybaracuda.cross_entropy(place.array(logits[None]), place.array(target[None]), reduction="none"))
    assert alone.shape == ()
    assert_same_bits(alone.reshape(1), row)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(list(DTYPES)),
    shape=st.tuples(st.integers(0, 5), st.integers(1, 40), st.integers(0, 9)),
    reduction=st.sampled_from(REDUCTIONS),
    weighted=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_any_problem(
    seed: int, name: str, shape: tuple[int, int, int], reduction: str, weighted: bool, smoothing: float
) -> None:
    rng = np.random.default_rng(seed)
    case = loss_case(rng, DTYPES[name], shape, weighted=weighted, reduction=reduction, label_smoothing=smoothing)
    check(Place(), case, upstream(rng, case))


ENVIRONMENTS = [
    {"BARACUDA_NUM_THREADS": threads, "BARACUDA_CPU_ISA": isa}
    for threads, isa in (("1", "portable"), ("3", "portable"), ("2", "avx2"), ("5", "avx512"))
]
HASHES = """
import hashlib
import numpy as np
import pybaracuda as p
from verify.dtypes import DTYPES
digest = hashlib.sha256()
rng = np.random.default_rng(7)
for shape in ((2, 21, 40, 50), (900, 33), (40, 5000)):
    for dtype in DTYPES.values():
        logits = (3 * rng.standard_normal(shape)).astype(dtype)
        target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
        weight = rng.random(shape[1]).astype(dtype)
        loss, sums, total, _ = p.cross_entropy(logits, target, weight, label_smoothing=0.1, return_sums=True)
        slopes = p.cross_entropy_backward(loss, logits, target, sums, total, weight, label_smoothing=0.1)
        for each in (loss, sums, total, slopes, p.nll_loss(logits, target, weight)):
            digest.update(np.asarray(each).tobytes())
print(digest.hexdigest())
"""


def test_threads_and_instruction_sets_do_not_change_bits() -> None:
    found = set()
    for variables in ENVIRONMENTS:
        environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", HASHES]
        found.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1


# Without PyTorch there is no such comparison.
if available("torch"):

    @pytest.mark.parametrize("name", ["f32", "f64"])
    def test_pytorch_agrees_on_the_host(rng: np.random.Generator, name: str) -> None:
        torch = importlib.import_module("torch")
        functional = torch.nn.functional
        # Both are off by some unit roundoffs of sums of up to a hundred terms of up to 20.
        most = {"f32": 2.0**-12, "f64": 2.0**-41}[name]
        for _ in range(120):
            shape = (int(rng.integers(1, 6)), int(rng.integers(1, 70)), *rng.integers(1, 5, rng.integers(3)))
            case = loss_case(
                rng, DTYPES[name], tuple(map(int, shape)), weighted=bool(rng.integers(2)),
                reduction=REDUCTIONS[rng.integers(3)], label_smoothing=float(rng.choice([0.0, 0.1, 1.0])),
            )  # fmt: skip
            logits = torch.from_numpy(case.input).requires_grad_()
            weight = None if case.weight is None else torch.from_numpy(case.weight)
            target = torch.from_numpy(case.target)
            options = {"weight": weight, "reduction": case.reduction}
            theirs = functional.cross_entropy(logits, target, **options, label_smoothing=case.label_smoothing)
            gradient = torch.from_numpy(upstream(rng, case))
            (slopes,) = torch.autograd.grad(theirs, logits, gradient)
            loss = functional.nll_loss(logits, target, **options)
            (of_loss,) = torch.autograd.grad(loss, logits, gradient)
            ours = check(Place(), case, gradient.numpy())
            for one, other in (
                (ours.entropy, theirs), (ours.entropy_grad, slopes), (ours.loss, loss), (ours.loss_grad, of_loss),
            ):  # fmt: skip
                np.testing.assert_allclose(one, other.detach().numpy(), rtol=most, atol=most)


def test_nearly_every_sum_of_two_exponentials_has_the_host_s_logarithm(place: Place) -> None:
    """Of the float32 numbers from 1 to 2, which are all mantissas that a logarithm can meet."""
    wanted_sums = 1 + np.arange(1, (1 << 23) + 1, dtype=np.float64) * 2.0**-23
    logits = np.zeros((wanted_sums.size, 2), np.float32)
    logits[:, 1] = np.log(wanted_sums - 1)
    reached = np.unique((1 + np.exp(logits[:, 1].astype(np.float64))).astype(np.float32))
    assert reached.size > 0.99 * wanted_sums.size
    target = np.zeros(len(logits), np.int32)
    on_host = pybaracuda.cross_entropy(logits, target, reduction="none")
    found = pybaracuda.cross_entropy(place.array(logits), place.array(target), reduction="none")
    assert_same_bits(place.numpy(found), on_host)
    # exp, the sum, log and the difference of logits: each errs by less than one unit of a number of at most 2.
    exact = np.log1p(np.exp(logits[:, 1].astype(np.float64)))
    assert np.abs(on_host - exact).max() < 4 * 2.0**-23
