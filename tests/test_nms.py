# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression against its definition: which boxes are kept, in which order, to the bit."""

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
from place import Place, available
from tolerance import assert_same_bits

import pybaracuda
from verify.definitions import nms as oracle
from verify.dtypes import DTYPES, Array, coordinate_dtype, in_float64

NAN, INF = float("nan"), float("inf")


class NmsCase(NamedTuple):
    """Boxes with scores, and with the class of each, or all of one."""

    boxes: Array
    scores: Array
    iou_threshold: float = 0.5
    idxs: Array | None = None


def random_boxes(rng: np.random.Generator, count: int, dtype: Any, side: float = 20.0) -> Array:
    """Boxes in an image of 100 x 100, up to `side` wide."""
    low = rng.uniform(0, 100, (count, 2))
    return np.concatenate([low, low + rng.uniform(0, side, (count, 2))], axis=1).astype(dtype)


def random_case(
    rng: np.random.Generator, dtype: Any, count: int = 200, threshold: float = 0.5, classes: int = 0, side: float = 20.0
) -> NmsCase:
    idxs = rng.integers(0, classes, count) if classes else None
    return NmsCase(random_boxes(rng, count, dtype, side), rng.random(count).astype(dtype), threshold, idxs)


def expected(case: NmsCase) -> Array:
    compute = coordinate_dtype(case.boxes.dtype)
    return oracle.nms(case.boxes, case.scores, case.iou_threshold, case.idxs, compute)


def run(place: Place, case: NmsCase, layout: Any = lambda array: array) -> Array:
    """The library's indices, once mask, count and padding are seen to say the same."""
    count, idxs = len(case.boxes), case.idxs
    index = np.dtype(np.int32) if idxs is None else idxs.dtype
    arrays = [layout(case.boxes), layout(case.scores)] + ([] if idxs is None else [layout(idxs)])
    keep, kept, mask = place.run(
        pybaracuda.nms if idxs is None else pybaracuda.batched_nms,
        *arrays,
        case.iou_threshold,
        outputs=[((count,), index), ((1,), np.int32), ((count,), np.uint8)],
        return_mask=True,
    )
    found = keep[: int(kept[0])]
    assert_same_bits(keep, oracle.padded(found, count, index))
    assert_same_bits(mask, oracle.mask_of(found, count))
    return found


def check(place: Place, case: NmsCase) -> Array:
    keep = expected(case)
    assert_same_bits(run(place, case).astype(np.int64), keep)
    return keep


def run_sorted(place: Place, boxes: Array, threshold: float) -> Array:
    """The indices of the boxes that are kept when they are taken as they stand."""
    mask, count = place.run(
        pybaracuda.nms_sorted, boxes, threshold, outputs=[((len(boxes),), np.uint8), ((1,), np.int32)]
    )
    keep = np.flatnonzero(mask)
    assert set(np.unique(mask)) <= {0, 1}
    assert int(count[0]) == len(keep)
    return keep


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("classes", [0, 1, 7])
def test_random_boxes(place: Place, dtype: Any, rng: np.random.Generator, threshold: float, classes: int) -> None:
    keep = check(place, random_case(rng, dtype, 900, threshold, classes, 60.0))
    assert 0 < len(keep) < 900


def test_three_boxes_by_hand(place: Place, dtype: Any) -> None:
    # The second and the first share 3 of 5, the third and the first 1 of 7, the third and the second 2 of 6.
    boxes = np.array([[0, 0, 4, 1], [1, 0, 5, 1], [3, 0, 7, 1]]).astype(dtype)
    scores = np.array([0.25, 0.5, 0.125]).astype(dtype)
    for threshold, keep in ((0.25, [1]), (0.375, [1, 2]), (0.625, [1, 0, 2])):
        assert_same_bits(run(place, NmsCase(boxes, scores, threshold)), np.array(keep, np.int32))
    idxs = np.array([5, 5, -3])
    assert_same_bits(run(place, NmsCase(boxes, scores, 0.25, idxs)), np.array([1, 2], np.int64))
    assert_same_bits(run_sorted(place, boxes, 0.375), np.array([0, 2]))


def test_an_overlap_that_equals_the_threshold_suppresses_nothing(place: Place, dtype: Any) -> None:
    boxes = np.array([[0, 0, 2, 1], [0, 0, 1, 1]]).astype(dtype)
    scores = np.array([1, 0]).astype(dtype)
    for threshold in (0.5, np.nextafter(0.5, 0), np.nextafter(0.5, 1)):
        keep = run(place, NmsCase(boxes, scores, float(threshold)))
        assert len(keep) == (1 if threshold < 0.5 else 2)


def test_the_threshold_is_not_rounded_to_the_overlaps_type(place: Place, wide_dtype: Any) -> None:
    # A third of an area, as each type rounds it; thresholds on both sides of it that float32 does not tell apart.
    boxes = np.array([[0, 0, 3, 1], [0, 0, 1, 1]]).astype(wide_dtype)
    scores = np.array([1, 0]).astype(wide_dtype)
    third = float(wide_dtype.type(1) / wide_dtype.type(3))
    for threshold in (third, np.nextafter(third, 0), np.nextafter(third, 1), np.nextafter(np.float32(third), 0)):
        keep = check(place, NmsCase(boxes, scores, float(threshold)))
        assert len(keep) == (1 if third > threshold else 2)
    # The frozen function takes the threshold in float32.
    rounded = float(np.float32(np.nextafter(third, 0)))
    assert len(run_sorted(place, boxes, float(np.nextafter(third, 0)))) == (1 if third > rounded else 2)


def test_decisions_are_those_of_exact_arithmetic_where_they_are_clear(
    place: Place, wide_dtype: Any, rng: np.random.Generator
) -> None:
    """The definition in float64 decides alike unless an overlap is within the roundings of the threshold.

    With u = eps / 2: sides round once, areas are within 3 u, their sum is at most twice the union and within 4 u, the
    union within 8 u + 3 u + u of itself, the quotient, at most 1, within 3 u + 12 u + u; 17 u pays for their products.
    """
    case = random_case(rng, wide_dtype, 400, 0.4, side=50.0)
    doubt = 17 * float(np.finfo(wide_dtype).eps) / 2
    # In float64 the definition itself rounds as much.
    unclear = np.abs(oracle.margins(case.boxes, case.iou_threshold)) <= 2 * doubt
    chosen = ~unclear.any(axis=1)
    case = case._replace(boxes=case.boxes[chosen], scores=case.scores[chosen])
    assert len(case.boxes) > 300
    wide = oracle.nms(in_float64(case.boxes), in_float64(case.scores), case.iou_threshold)
    assert_same_bits(run(place, case).astype(np.int64), wide)


@pytest.mark.parametrize("threshold", [-INF, -1.0, -1e-50, -0.0, 0.0, 1e-50, 1.0, 2.0, 1e300, INF, NAN])
def test_any_threshold_is_one(place: Place, dtype: Any, rng: np.random.Generator, threshold: float) -> None:
    case = random_case(rng, dtype, 150, threshold, side=40.0)
    case.boxes[::7] = case.boxes[1::7][: len(case.boxes[::7])]
    case.boxes[::11, 2:] = case.boxes[::11, :2]
    keep = check(place, case)
    if not threshold < 1:
        assert len(keep) == 150


def test_equal_scores_come_by_index(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 500, 0.3, side=30.0)
    case = case._replace(scores=rng.choice([0.0, -0.0, 1.0], 500).astype(dtype))
    check(place, case)
    same = case._replace(scores=np.full(500, 0.5, np.float64).astype(dtype))
    keep = check(place, same)
    assert (np.diff(keep) > 0).all()
    assert_same_bits(run_sorted(place, same.boxes, 0.25), expected(same._replace(iou_threshold=0.25)))


def test_scores_of_any_kind_have_an_order(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    scores = np.frombuffer(rng.bytes(600 * dtype.itemsize), f"u{dtype.itemsize}").copy().view(dtype)
    scores[::9], scores[1::9], scores[2::9] = NAN, INF, -INF
    scores[3::9], scores[4::9] = 0.0, -0.0
    # Boxes apart from each other: all are kept, so the order is all that there is.
    corners = np.stack([np.arange(600) % 25, np.arange(600) // 25], axis=1) * 2
    boxes = np.concatenate([corners, corners + 1], axis=1).astype(dtype)
    keep = check(place, NmsCase(boxes, scores))
    assert len(keep) == 600
    assert np.isnan(in_float64(scores[keep[:66]])).all()


BAD_BOXES = [
    [NAN, 0, 4, 4], [0, NAN, 4, 4], [0, 0, NAN, 4], [0, 0, 4, NAN], [NAN, NAN, NAN, NAN],
    [-INF, 0, 4, 4], [0, 0, INF, 4], [-INF, -INF, INF, INF], [INF, INF, INF, INF], [-INF, 0, -INF, 4],
    [INF, 0, -INF, 4], [0, 0, INF, 0], [-INF, 0, INF, 4],
    [0, 0, 0, 0], [1, 1, 1, 3], [2, 2, 5, 2], [-0.0, -0.0, 0.0, 0.0],
    [4, 4, 0, 0], [4, 0, 0, 4], [3, 1, 1, 2], [-1e30, -1e30, 1e30, 1e30], [-3e38, 0, 3e38, 4],
    [0, 0, 1e-40, 1e-40], [0, 0, 1e-20, 1e-20], [1e20, 1e20, 3e20, 3e20],
]  # fmt: skip


@pytest.mark.parametrize("threshold", [-0.5, 0.0, 0.3, 1.0, NAN])
def test_bad_boxes_are_what_the_definition_says(
    place: Place, dtype: Any, rng: np.random.Generator, threshold: float
) -> None:
    with np.errstate(over="ignore"):
        bad = np.array(BAD_BOXES).astype(dtype)
    boxes = np.concatenate([bad, rng.integers(-1, 6, (60, 4)).astype(dtype), bad])
    case = NmsCase(boxes, rng.permutation(len(boxes)).astype(dtype), threshold)
    keep = check(place, case)
    missing = np.flatnonzero(np.isnan(in_float64(boxes)).any(axis=1))
    assert set(missing) <= set(keep), "a box with a NaN is kept"
    without = case._replace(boxes=np.delete(boxes, missing, axis=0), scores=np.delete(case.scores, missing))
    others = np.delete(np.arange(len(boxes)), missing)
    assert set(others[expected(without)]) == set(keep) - set(missing), "a box with a NaN suppresses nothing"
    check(place, case._replace(idxs=rng.integers(0, 2, len(boxes)).astype(np.int32)))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_classes_never_meet(place: Place, dtype: Any, rng: np.random.Generator, index: Any) -> None:
    limits = np.iinfo(index)
    classes = np.array([0, -1, limits.min, limits.max, limits.max - 1, 2**31 - 1, -(2**31)], index)
    if index == np.int64:
        # Alike in 32 bits, and in float64.
        classes = np.concatenate([classes, np.array([2**32, 2**53, 2**53 + 1], index)])
    case = random_case(rng, dtype, 400, 0.2, side=80.0)
    case = case._replace(idxs=classes[rng.integers(0, len(classes), 400)])
    keep = check(place, case)
    # Each class alone keeps the same.
    for each in np.unique(case.idxs):
        here = np.flatnonzero(case.idxs == each)
        alone = run(place, NmsCase(case.boxes[here], case.scores[here], 0.2))
        assert_same_bits(keep[case.idxs[keep] == each], here[alone])


@pytest.mark.parametrize(
    "count", [1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513, 1023, 1024, 1025, 4097]
)
@pytest.mark.parametrize("side", [5.0, 100.0], ids=["few-overlap", "many-overlap"])
def test_sizes_around_every_word_step_and_tile(
    place: Place, wide_dtype: Any, rng: np.random.Generator, count: int, side: float
) -> None:
    case = random_case(rng, wide_dtype, count, 0.3, side=side)
    check(place, case)
    assert_same_bits(
        run_sorted(place, case.boxes, 0.25),
        expected(case._replace(scores=-np.arange(count).astype(wide_dtype), iou_threshold=0.25)),
    )


def test_classes_of_many_sizes(place: Place, wide_dtype: Any, rng: np.random.Generator) -> None:
    """On the CPU a class is a task of its own, or goes in chunks of 256 boxes if it has more than 1,024."""
    sizes = (1, 2, 255, 256, 257, 1023, 1024, 1025, 1281)
    classes = rng.permutation(np.repeat(np.arange(len(sizes), dtype=np.int32) - 4, sizes))
    check(place, random_case(rng, wide_dtype, len(classes), 0.3, side=15.0)._replace(idxs=classes))


@pytest.mark.parametrize("count", [8191, 8192, 8193, 16384, 20000])
@pytest.mark.parametrize("classes", [0, 3])
def test_more_than_a_block(place: Place, rng: np.random.Generator, count: int, classes: int) -> None:
    # On CUDA 8192 boxes are a block; a later block has to feel what an earlier one keeps.
    check(place, random_case(rng, np.dtype(np.float32), count, 0.3, classes, 12.0))


def test_a_chain_is_followed_to_its_end(place: Place, dtype: Any) -> None:
    # Each box overlaps its neighbours by a third: every second one goes, and only since the one before it stays.
    count = 257 if dtype.itemsize == 2 else 9000
    left = np.arange(count, dtype=np.float64) if dtype.itemsize > 2 else np.arange(count) * 0.25
    width = left[1] * 2
    boxes = np.stack([left, np.zeros(count), left + width, np.ones(count)], axis=1).astype(dtype)
    if dtype == DTYPES["bf16"]:
        boxes, count = boxes[:128], 128  # from 32 on steps are wider
    keep = run_sorted(place, boxes, 0.25)
    assert_same_bits(keep, np.arange(0, count, 2))
    scores = np.arange(count, 0, -1).astype(np.float32).astype(dtype)
    if dtype.itemsize > 2:
        assert_same_bits(run(place, NmsCase(boxes, scores, 0.25)), np.arange(0, count, 2).astype(np.int32))


def test_layout_does_not_change_bits(place: Place, dtype: Any, rng: np.random.Generator) -> None:
    case = random_case(rng, dtype, 100, 0.2, 3, 40.0)
    keep = check(place, case)
    for layout in (place.transposed, place.every_second, place.misaligned):
        assert_same_bits(run(place, case, layout).astype(np.int64), keep)


def test_without_boxes_nothing_is_kept(place: Place, dtype: Any) -> None:
    for idxs in (None, np.zeros(0, np.int64), np.zeros(0, np.int32)):
        keep = run(place, NmsCase(np.zeros((0, 4), dtype), np.zeros(0, dtype), 0.5, idxs))
        assert keep.shape == (0,)
    assert run_sorted(place, np.zeros((0, 4), dtype), 0.5).shape == (0,)


def test_wrong_arguments_are_named(backend: str, place: Place) -> None:
    boxes, scores = place.array(np.zeros((3, 4), np.float32)), place.array(np.zeros(3, np.float32))
    short = place.array(np.zeros(2, np.int32))
    with pytest.raises(ValueError, match=r"^out\[0\] has shape"):
        pybaracuda.nms(boxes, scores, 0.5, out=(short, None))
    with pytest.raises(TypeError, match=r"^out: wanted \(keep, count\)"):
        pybaracuda.nms(boxes, scores, 0.5, out=short)
    with pytest.raises(TypeError, match=r"^out: wanted \(keep, count, keep_mask\)"):
        pybaracuda.nms(boxes, scores, 0.5, return_mask=True, out=(None, None))
    with pytest.raises(TypeError, match=r"^out: wanted \(keep_mask, count\)"):
        pybaracuda.nms_sorted(boxes, 0.5, out=short)
    with pytest.raises(TypeError, match="idxs has dtype float32; wanted int32 or int64"):
        pybaracuda.batched_nms(boxes, scores, scores, 0.5)


COORDINATES = st.one_of(
    st.integers(-3, 6).map(float),
    st.sampled_from([-0.0, 0.5, NAN, INF, -INF, 1e30, -1e30, 3.0e38, 1e-40]),
)


@given(
    name=st.sampled_from(list(DTYPES)),
    rows=st.lists(
        st.tuples(COORDINATES, COORDINATES, COORDINATES, COORDINATES, COORDINATES, st.integers(-1, 1)), max_size=12
    ),
    threshold=st.sampled_from([0.5, 0.0, -1.0, 0.25, 1 / 3, 1.0, NAN]),
    has_classes=st.booleans(),
)
def test_any_boxes(name: str, rows: list[tuple[float, ...]], threshold: float, has_classes: bool) -> None:
    with np.errstate(over="ignore"):
        table = np.array(rows).reshape(-1, 6)
        numbers = table[:, :5].astype(DTYPES[name])
    idxs = table[:, 5].astype(np.int64) if has_classes else None
    check(Place(), NmsCase(numbers[:, :4].copy(), numbers[:, 4].copy(), threshold, idxs))


ENVIRONMENTS = [
    {"BARACUDA_NUM_THREADS": threads, "BARACUDA_CPU_ISA": isa}
    for threads, isa in (("1", "portable"), ("3", "portable"), ("2", "avx2"), ("5", "avx512"))
]
HASHES = """
import hashlib, sys
import numpy as np
import pybaracuda
from verify.dtypes import DTYPES
digest = hashlib.sha256()
rng = np.random.default_rng(7)
for dtype in DTYPES.values():
    low = rng.uniform(0, 100, (3000, 2))
    boxes = np.concatenate([low, low + rng.uniform(0, 12, (3000, 2))], 1).astype(dtype)
    scores, idxs = rng.random(3000).astype(dtype), rng.integers(0, 3, 3000)
    for found in (pybaracuda.nms(boxes, scores, 0.3), pybaracuda.batched_nms(boxes, scores, idxs, 0.3)):
        for each in found:
            digest.update(each.tobytes())
print(digest.hexdigest())
"""


def test_threads_and_instruction_sets_do_not_change_bits() -> None:
    found = set()
    for variables in ENVIRONMENTS:
        environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", HASHES]
        found.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1


# Without torchvision there is no such comparison.
if available("torchvision"):

    @pytest.mark.parametrize("name", ["f32", "f64"])
    @pytest.mark.parametrize("side", [5.0, 40.0])
    def test_torchvision_agrees_on_the_host(rng: np.random.Generator, name: str, side: float) -> None:
        torch, torchvision = importlib.import_module("torch"), importlib.import_module("torchvision")
        case = random_case(rng, DTYPES[name], 700, 0.3, 3, side)
        case.scores[::5] = case.scores[1::5]
        case.boxes[::50, 0], case.boxes[1::50, 2], case.scores[2::50] = NAN, INF, NAN
        case.boxes[3::50] = case.boxes[3::50, [2, 3, 0, 1]]
        boxes, scores = torch.from_numpy(case.boxes), torch.from_numpy(case.scores)
        plain = case._replace(idxs=None)
        theirs = torchvision.ops.nms(boxes, scores, 0.3)
        assert_same_bits(run(Place(), plain).astype(np.int64), theirs.numpy())
        # Their own way without moved coordinates; it orders equal scores anew, and by what it does not say.
        finite = np.isfinite(case.boxes).all(axis=1) & np.isfinite(case.scores)
        distinct = case._replace(
            boxes=case.boxes[finite],
            scores=rng.permutation(finite.sum()).astype(case.scores.dtype),
            idxs=case.idxs[finite],
        )
        theirs = torchvision.ops.boxes._batched_nms_vanilla(
            *map(torch.from_numpy, (distinct.boxes, distinct.scores, distinct.idxs)), 0.3
        )
        assert_same_bits(run(Place(), distinct), theirs.numpy())
