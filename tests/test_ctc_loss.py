# SPDX-License-Identifier: Apache-2.0
"""ctc_loss and its gradient: the definition's within bounds, all alignments counted, and PyTorch beside them."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from place import Place
from tolerance import assert_canonical_nans, assert_same_bits, assert_within

import pybaracuda
from verify.definitions import ctc_loss as oracle
from verify.dtypes import DTYPES, Array, in_float64


def wide_of(dtype: Any) -> Any:
    return np.float64 if np.dtype(dtype) == np.float64 else np.float32


class Case(NamedTuple):
    """Sequences with their targets; `most` is how many labels a target may have."""

    log_probs: Array
    targets: Array
    input_lengths: Array
    target_lengths: Array
    blank: int
    most: int

    @property
    def integers(self) -> tuple[Array, Array, Array]:
        return self.targets, self.input_lengths, self.target_lengths


def case_of(
    rng: np.random.Generator,
    dtype: Any,
    extents: tuple[int, int, int],
    most: int,
    *,
    joined: bool = False,
    classes: int | None = None,
    index: Any = np.int64,
) -> Case:
    """Logarithms of a softmax; labels are any of the first `classes`."""
    t, n, c = extents
    logits = rng.standard_normal(extents) * 2
    log_probs = (logits - np.log(np.exp(logits).sum(2, keepdims=True))).astype(dtype)
    targets = rng.integers(0, classes or c, (n, most)).astype(index)
    steps, labels = rng.integers(t // 2, t + 1, n).astype(index), rng.integers(0, most + 1, n).astype(index)
    steps[:1], labels[:1] = t, most
    if joined:
        targets = np.concatenate([row[:count] for row, count in zip(targets, labels, strict=True)])
    return Case(log_probs, targets, steps, labels, int(rng.integers(c)), most)


def forward(place: Place, case: Case) -> tuple[Array, Array]:
    t, n, _ = case.log_probs.shape
    wide = wide_of(case.log_probs.dtype)
    outputs = [((n,), wide), ((n, t, 2 * case.most + 1), wide)]
    found = place.run(
        pybaracuda.ctc_loss, case.log_probs, *case.integers, case.blank, outputs=outputs,
        max_target_length=case.most, return_log_alpha=True,
    )  # fmt: skip
    return found[0], found[1]


def backward(place: Place, case: Case, gradient: Array, sums: tuple[Array, Array], zero: bool = False) -> Array:
    outputs = [(case.log_probs.shape, case.log_probs.dtype)]
    return place.run(
        pybaracuda.ctc_loss_backward, gradient, case.log_probs, *case.integers, *sums, case.blank, zero,
        outputs=outputs,
    )[0]  # fmt: skip


def assert_right(place: Place, case: Case, rng: np.random.Generator) -> None:
    """Both directions against the definition, the gradient from what the forward call answered."""
    rows = case.targets if case.targets.ndim == 2 else case.targets[None]
    integers = (rows, case.input_lengths, case.target_lengths)
    sums = forward(place, case)
    expected = oracle.ctc_loss(case.log_probs, *integers, 2 * case.most + 1, case.blank)
    assert_within(sums[0], expected.neg_log_likelihood)
    assert_within(sums[1], expected.log_alpha)
    gradient = rng.standard_normal(sums[0].shape).astype(sums[0].dtype)
    for zero in (False, True):
        found = backward(place, case, gradient, sums, zero)
        wanted = oracle.ctc_loss_backward(gradient, case.log_probs, *integers, *sums, case.blank, zero)
        assert_within(found, wanted)


# Around a warp's lanes of states, strands of blanks, a tile of the CPU's, a block's threads, and steps on their way.
SIZES = [
    ((1, 1, 1), 0), ((1, 2, 3), 1), ((3, 2, 2), 1), ((4, 3, 5), 2), ((5, 3, 5), 2), ((9, 2, 31), 4), ((40, 3, 32), 15),
    ((41, 2, 33), 16), ((70, 2, 40), 31), ((70, 2, 6), 32), ((71, 3, 6), 33), ((130, 2, 3), 64),
]  # fmt: skip


@pytest.mark.parametrize(("extents", "most"), SIZES, ids=str)
def test_random_data_is_within_the_bound(place: Place, dtype: Any, extents: tuple[int, int, int], most: int) -> None:
    rng = np.random.default_rng(most)
    for joined in (False, True):
        assert_right(place, case_of(rng, dtype, extents, most, joined=joined), rng)


@pytest.mark.parametrize("most", [511, 512, 600])
def test_more_states_than_a_block_has_threads(place: Place, most: int) -> None:
    rng = np.random.default_rng(most)
    assert_right(place, case_of(rng, np.float32, (3, 2, 30), most), rng)


def test_thousands_of_steps(place: Place) -> None:
    rng = np.random.default_rng(0)
    assert_right(place, case_of(rng, np.float64, (5003, 2, 5), 7), rng)


def test_labels_that_repeat_and_labels_that_are_the_blank(place: Place, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    case = case_of(rng, dtype, (60, 4, 4), 20, classes=2)
    for blank in range(3):
        assert_right(place, case._replace(blank=blank), rng)


def test_classes_without_probability(place: Place, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    case = case_of(rng, dtype, (20, 6, 5), 4)
    case.log_probs[rng.random(case.log_probs.shape) < 0.2] = -np.inf
    assert_right(place, case, rng)


def collapsed(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def test_every_alignment_counts_once() -> None:
    """The definition, and so the kernel, against the sum over all paths that collapse to the target."""
    rng = np.random.default_rng(3)
    case = case_of(rng, np.float64, (5, 4, 3), 3)
    case = case._replace(targets=(case.targets + case.blank + 1) % 3)
    case.targets[case.targets == case.blank] = (case.blank + 1) % 3
    losses, _ = forward(Place(), case)
    probabilities = np.exp(case.log_probs)
    for i, loss in enumerate(losses):
        target = tuple(int(label) for label in case.targets[i, : case.target_lengths[i]])
        total = sum(
            np.prod([probabilities[t, i, label] for t, label in enumerate(path)])
            for path in itertools.product(range(3), repeat=int(case.input_lengths[i]))
            if collapsed(path, case.blank) == target
        )
        # Some 3^5 products of five factors.
        np.testing.assert_allclose(np.exp(-loss), total, rtol=300 * np.finfo(np.float64).eps, atol=0)


def test_the_gradient_is_that_of_logits() -> None:
    """Central differences of the loss after a softmax, whose derivative PyTorch's formula contains."""
    rng = np.random.default_rng(4)
    place = Place()
    case = case_of(rng, np.float64, (7, 2, 4), 2, classes=3)._replace(blank=3)
    gradient = np.array([1.0, -0.75])
    found = backward(place, case, gradient, forward(place, case))
    logits, step = case.log_probs.copy(), 2.0**-14
    for at in np.ndindex(*logits.shape):
        losses = []
        for sign in (1, -1):
            moved = logits.copy()
            moved[at] += sign * step
            moved -= np.log(np.exp(moved).sum(2, keepdims=True))
            losses.append(forward(place, case._replace(log_probs=moved))[0] @ gradient)
        # The third derivative is below 1: the difference is off by step^2 / 6, and by the losses' roundings.
        assert abs((losses[0] - losses[1]) / (2 * step) - found[at]) < step**2


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_bad_sequences_are_nan_and_leave_the_others_alone(place: Place, index: Any) -> None:
    rng = np.random.default_rng(5)
    case = case_of(rng, np.float32, (8, 9, 5), 3, index=index)
    sums = forward(place, case)
    ones = np.ones(9, np.float32)
    gradient = backward(place, case, ones, sums)
    largest = np.iinfo(index).max
    bad = case._replace(
        targets=case.targets.copy(), input_lengths=case.input_lengths.copy(), target_lengths=case.target_lengths.copy()
    )
    bad.input_lengths[:3] = (9, -1, largest)
    bad.target_lengths[3:6] = (4, -1, largest)
    bad.target_lengths[6:8] = 2
    bad.targets[6:8, 1] = (5, -1)
    found = forward(place, bad)
    assert_same_bits(found[0][8:], sums[0][8:])
    assert_same_bits(found[1][8:], sums[1][8:])
    assert np.isnan(found[0][:8]).all()
    assert (found[1][:8] == -np.inf).all()
    assert_canonical_nans(found[0])
    there = backward(place, bad, ones, found, True)
    assert_same_bits(there[:, 8:], gradient[:, 8:])
    assert np.isnan(there[:, :8]).all()
    # A label behind a target's end is not looked at.
    bad.target_lengths[6:8] = 1
    assert np.isfinite(forward(place, bad)[0][6:8]).all()


def test_joined_targets_behind_a_bad_length(place: Place) -> None:
    """A negative length takes no place; one that does not fit leaves none for those behind it."""
    rng = np.random.default_rng(6)
    case = case_of(rng, np.float32, (8, 4, 5), 3)
    rows = np.concatenate([case.targets[0], case.targets[2], case.targets[3]])
    labels = np.array([3, -1, 3, 3])
    joined = case._replace(targets=rows, target_lengths=labels)
    padded = case._replace(target_lengths=labels)
    for one, other in zip(forward(place, joined), forward(place, padded), strict=True):
        assert_same_bits(one, other)
    too_long = joined._replace(target_lengths=np.array([3, 2**62, 2, 2]))
    assert np.isnan(forward(place, too_long)[0][1:]).all()


@pytest.mark.parametrize("sequences", [1023, 1024, 1025, 2049])
def test_joined_targets_of_many_sequences(place: Place, sequences: int) -> None:
    rng = np.random.default_rng(sequences)
    case = case_of(rng, np.float32, (2, sequences, 3), 2, joined=True, index=np.int32)
    case.target_lengths[5], case.input_lengths[7] = -1, -1  # what these have is left for those behind them
    assert_right(place, case, rng)


def test_a_finite_loss_without_an_alignment_is_not_believed(place: Place) -> None:
    """Otherwise hostile losses would have labels linked whose pairs no number of time steps bounds."""
    rng = np.random.default_rng(8)
    case = case_of(rng, np.float32, (4, 3, 5), 4)
    case.target_lengths[:], case.input_lengths[:] = 4, (4, 3, 0)
    sums = rng.standard_normal(3).astype(np.float32), rng.standard_normal((3, 4, 9)).astype(np.float32)
    ones = np.ones(3, np.float32)
    for zero in (False, True):
        found = backward(place, case, ones, sums, zero)
        wanted = oracle.ctc_loss_backward(ones, case.log_probs, *case.integers, *sums, case.blank, zero)
        assert_within(found, wanted)
        assert np.isfinite(found[:, 0]).all()
        assert np.isnan(found[:3, 1]).all()
        assert not found[3, 1].any()
        assert not found[:, 2].any()


def test_infinite_losses(place: Place) -> None:
    """Without an alignment the loss is infinite; its gradient is NaN, or 0 if one asks for that."""
    rng = np.random.default_rng(7)
    case = case_of(rng, np.float32, (3, 2, 5), 3)._replace(blank=4)
    case.targets[:] = 1
    case.target_lengths[:], case.input_lengths[:] = 3, (3, 2)
    sums = forward(place, case)
    assert (sums[0] == np.inf).all()
    ones = np.ones(2, np.float32)
    lost = backward(place, case, ones, sums)
    assert np.isnan(lost[:, 0]).all()
    assert np.isnan(lost[:2, 1]).all()
    assert (lost[2, 1] == 0).all()
    assert not backward(place, case, ones, sums, True).any()


@pytest.mark.parametrize("joined", [False, True])
def test_pytorch_answers_the_same_within_both_bounds(wide_dtype: Any, joined: bool) -> None:
    """PyTorch rounds as often as the kernel, and so is as far from the definition at most."""
    torch, dtype = pytest.importorskip("torch"), wide_dtype
    rng = np.random.default_rng(9)
    case = case_of(rng, dtype, (60, 6, 9), 12, joined=joined, classes=8)._replace(blank=8)
    sums = forward(Place(), case)
    log_probs = torch.from_numpy(case.log_probs)
    lengths = case.input_lengths.tolist(), case.target_lengths.tolist()
    losses, _ = torch._ctc_loss(log_probs, torch.from_numpy(case.targets), *lengths, 8, False)
    rows = case.targets if case.targets.ndim == 2 else case.targets[None]
    expected = oracle.ctc_loss(case.log_probs, rows, *case.integers[1:], 2 * case.most + 1, 8)
    bounds = expected.neg_log_likelihood.bound(np.dtype(dtype))
    assert (np.abs(in_float64(losses.numpy()) - in_float64(sums[0])) <= 2 * bounds).all()
    gradient = np.ones(6, dtype)
    found = backward(Place(), case, gradient, sums)
    theirs = torch.ops.aten._ctc_loss_backward(
        torch.from_numpy(gradient), log_probs, torch.from_numpy(case.targets), *lengths,
        torch.from_numpy(sums[0]), torch.from_numpy(sums[1]), 8, False,
    )  # fmt: skip
    wanted = oracle.ctc_loss_backward(gradient, case.log_probs, rows, *case.integers[1:], *sums, 8, False)
    # PyTorch takes the logarithm of each class's sum, whose roundings are those of the loss once more.
    bounds = wanted.bound(np.dtype(dtype)) + 2 * bounds.max()
    assert (np.abs(in_float64(theirs.numpy()) - in_float64(found)) <= 2 * bounds).all()


def test_sixteen_bits_are_computed_in_float32() -> None:
    rng = np.random.default_rng(10)
    place = Place()
    for dtype in (DTYPES["f16"], DTYPES["bf16"]):
        case = case_of(rng, dtype, (30, 3, 6), 8)
        wide = case._replace(log_probs=case.log_probs.astype(np.float32))
        sums = forward(place, case)
        for one, other in zip(sums, forward(place, wide), strict=True):
            assert_same_bits(one, other)
        ones = np.ones(3, np.float32)
        assert_same_bits(backward(place, case, ones, sums), backward(place, wide, ones, sums).astype(dtype))
