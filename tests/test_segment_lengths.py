# SPDX-License-Identifier: Apache-2.0
"""Segments by their lengths: what offsets give, through every kind of array, and what bad lengths come to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import Framework
from function_cases import listed
from lattice import normal
from tolerance import assert_same_bits, assert_within

import pybaracuda
from verify.definitions import segment as oracle
from verify.dtypes import Array

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")
REDUCTION = pytest.mark.parametrize("reduce", REDUCTIONS)
INDEX = pytest.mark.parametrize("index", [np.int32, np.int64], ids=["i32", "i64"])
LENGTHS = np.array([3, 0, 300, 1, 0])


def offsets_of(lengths: Array) -> Array:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(lengths.dtype)


@REDUCTION
@INDEX
def test_they_are_offsets(framework: Framework, reduce: str, index: Any, rng: np.random.Generator) -> None:
    # Two rows more than the lengths say.
    lengths, x = LENGTHS.astype(index), normal(rng, (306, 3), np.float32)
    options = {"return_arg": True} if reduce in ("max", "min") else {}
    found = pybaracuda.segment_csr(framework.make(x), reduce=reduce, lengths=framework.make(lengths), **options)
    wanted = pybaracuda.segment_csr(x, offsets_of(lengths), reduce, **options)
    for one, other in zip(listed(found), listed(wanted), strict=True):
        assert_same_bits(framework.values(one), other)
    if reduce in ("sum", "mean", "prod", "logsumexp"):
        ids = np.concatenate([np.repeat(np.arange(5), LENGTHS), [-1, -1]])
        assert_within(listed(wanted)[0], getattr(oracle, f"segment_{reduce}")(x, ids, 5))


@pytest.mark.parametrize("reduce", [*REDUCTIONS, "gather"])
@INDEX
def test_gradients(framework: Framework, reduce: str, index: Any, rng: np.random.Generator) -> None:
    lengths, x = LENGTHS.astype(index), normal(rng, (306, 3), np.float64)
    g = normal(rng, x.shape if reduce == "softmax" else (5, 3), np.float64)
    named = framework.make(lengths)
    if reduce == "gather":
        found = pybaracuda.gather_csr(framework.make(g), num_rows=306, lengths=named)
        assert_same_bits(framework.values(found), pybaracuda.gather_csr(g, offsets_of(lengths), 306))
        return
    arrays = {"input": x} if reduce in ("max", "min", "prod", "logsumexp") else {}
    if reduce in ("logsumexp", "softmax"):
        arrays["output"] = pybaracuda.segment_csr(x, offsets_of(lengths), reduce)
    options = {"num_rows": 306} if reduce in ("sum", "mean") else {}
    made = {name: framework.make(each) for name, each in arrays.items()}
    backward = pybaracuda.segment_csr_backward
    found = backward(framework.make(g), reduce=reduce, lengths=named, **made, **options)
    assert_same_bits(framework.values(found), backward(g, offsets_of(lengths), reduce, **arrays, **options))


@REDUCTION
@INDEX
@pytest.mark.parametrize(
    "lengths",
    [[-3, 5, 2], [5, -9, 20], [2**31 - 1, 2**31 - 1, 7], [-(2**31), 1, 1], [0, 0, 100], []],
    ids=["negative", "descending", "wrapping", "lowest", "beyond", "none"],
)
def test_bad_lengths_are_bad_offsets(reduce: str, index: Any, lengths: list[int]) -> None:
    """Nothing is read or written elsewhere: the kernels clamp offsets. Sums wrap around in the lengths' dtype."""
    named, x = np.array(lengths, index), np.arange(24, dtype=np.float32).reshape(12, 2)
    offsets = np.concatenate([[0], np.cumsum(named, dtype=index)]).astype(index)
    found = pybaracuda.segment_csr(x, reduce=reduce, lengths=named)
    assert_same_bits(found, pybaracuda.segment_csr(x, offsets, reduce))
    assert len(found) == (12 if reduce == "softmax" else len(lengths))


def test_sums_beyond_the_rows_and_below() -> None:
    x = np.arange(1, 7, dtype=np.float64)
    assert pybaracuda.segment_csr(x, lengths=np.array([2, 100])).tolist() == [3, 18]
    assert pybaracuda.segment_csr(x, lengths=np.array([4, 100, 100])).tolist() == [10, 11, 0]
    assert pybaracuda.segment_csr(x, lengths=np.array([1, 2])).tolist() == [1, 5]
    gradient = pybaracuda.segment_csr_backward(np.array([7.0, 8.0]), lengths=np.array([1, 2]), num_rows=6)
    assert gradient.tolist() == [7, 8, 8, 0, 0, 0]


def test_strided_lengths_and_an_output() -> None:
    x, lengths = np.arange(6.0), np.array([1, 9, 2, 9, 3, 9])[::2]
    out = np.full(3, 99.0)
    assert pybaracuda.segment_csr(x, lengths=lengths, empty_value=1, out=out) is out
    assert out.tolist() == [0, 3, 12]


def test_what_is_refused() -> None:
    x, lengths = np.ones((3, 2)), np.array([1, 2])
    for function in (pybaracuda.segment_csr, pybaracuda.gather_csr):
        with pytest.raises(TypeError, match="lengths: wanted None beside offsets"):
            function(x, lengths, lengths=lengths)
        with pytest.raises(TypeError, match=r"offsets: wanted an array \(or lengths instead\), got NoneType"):
            function(x)
    with pytest.raises(TypeError, match="lengths has dtype uint8; wanted int32 or int64"):
        pybaracuda.segment_csr(x, lengths=lengths.astype(np.uint8))
    with pytest.raises(ValueError, match=r"lengths has shape \(1, 2\); wanted \[num_segments\]"):
        pybaracuda.segment_csr(x, lengths=lengths[None])
    with pytest.raises(ValueError, match="num_rows: gather of offsets needs it"):
        pybaracuda.gather_csr(x[:2], lengths=lengths)
    with pytest.raises(ValueError, match="stream: input is in host memory"):
        pybaracuda.segment_csr(x, lengths=lengths, stream=0)
