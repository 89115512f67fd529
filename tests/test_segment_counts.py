# SPDX-License-Identifier: Apache-2.0
"""How many segments there are, where the caller leaves it to the ids: one more than the largest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import Framework
from tolerance import assert_same_bits

import pybaracuda

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")
# These have no reduction of their own to look with.
WITHOUT_MAX = ("cuda.core", "cuda-array-interface")
IDS = [3, 0, 3, -1, 1, 0]


def reduced(name: str, *arguments: Any, **options: Any) -> Any:
    return getattr(pybaracuda, f"segment_{name}")(*arguments, **options)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint8], ids=["i32", "i64", "u8"])
def test_the_ids_say_it(framework: Framework, reduce: str, index: Any, rng: np.random.Generator) -> None:
    ids = np.array(IDS if index is not np.uint8 else np.abs(IDS), index)
    rows = rng.normal(size=(len(ids), 2)).astype(np.float32)
    placed = framework.make(rows), framework.make(ids)
    if framework.name in WITHOUT_MAX:
        with pytest.raises(TypeError, match="num_segments: wanted an int"):
            reduced(reduce, *placed)
        return
    assert_same_bits(framework.values(reduced(reduce, *placed)), reduced(reduce, rows, ids, 4))
    given = framework.values(reduced(reduce, *placed, None, indices_are_sorted=False))
    assert_same_bits(given, reduced(reduce, rows, ids, 4))


def test_gradients_and_rows_of_maxima() -> None:
    ids, rows = np.array(IDS), np.arange(12, dtype=np.float64).reshape(6, 2)
    found, arg = pybaracuda.segment_max(rows, ids, return_arg=True)
    assert found.shape == arg.shape == (4, 2)
    assert arg.tolist() == [[5, 5], [4, 4], [-1, -1], [2, 2]]
    assert pybaracuda.unsorted_segment_max(rows, ids).tolist() == found.tolist()
    output = pybaracuda.segment_softmax(rows, ids)
    wanted = pybaracuda.segment_softmax_backward(rows, output, ids, 4)
    assert pybaracuda.segment_softmax_backward(rows, output, ids).tolist() == wanted.tolist()


@pytest.mark.parametrize("ids", [[], [-1, -7]], ids=["none", "negative"])
def test_no_id_is_no_segment(ids: list[int]) -> None:
    found = pybaracuda.segment_sum(np.ones((len(ids), 3), np.float32), np.array(ids, np.int64))
    assert found.shape == (0, 3)


def test_wrong_ids_are_refused_by_their_name() -> None:
    rows = np.ones((2, 3), np.float32)
    with pytest.raises(TypeError, match="segment_ids has dtype float32"):
        pybaracuda.segment_sum(rows, np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=r"segment_ids has shape \(2, 1\)"):
        pybaracuda.segment_sum(rows, np.zeros((2, 1), np.int32))
    with pytest.raises(pybaracuda.InvalidProblemError, match="num_segments is 2147483648"):
        pybaracuda.segment_sum(rows, np.array([0, 2**31 - 1]))


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_through_pytorch(reduce: str, torch: Any, device: str) -> None:
    import pybaracuda.torch

    function = getattr(pybaracuda.torch, f"segment_{reduce}")
    rows = torch.randn(6, 2, device=device, requires_grad=True)
    ids = torch.tensor(IDS, device=device)
    found, wanted = function(rows, ids), function(rows, ids, 4)
    assert torch.equal(found, wanted)
    upstream = torch.randn_like(found)
    slopes = [torch.autograd.grad(each, rows, upstream)[0] for each in (found, wanted)]
    assert torch.equal(*slopes)
    assert function(rows[:0], ids[:0]).shape[0] == 0
