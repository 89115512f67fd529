# SPDX-License-Identifier: Apache-2.0
"""Scratch is what the header says: each family's bound there, written again, on random problems of every size.

Nothing is run and no device is needed; that a workspace of this size suffices is tested with the operators.
"""

from __future__ import annotations

import numpy as np
import pytest

import pybaracuda
from pybaracuda._check.abi_calls import Library, Symbol, Values, symbols

KIB, MIB = 2**10, 2**20
INT32_MAX = 2**31 - 1
PROBLEMS = 300


@pytest.fixture(params=["cpu", "cuda"])
def library(request: pytest.FixtureRequest) -> Library:
    try:
        return Library(request.param)
    except pybaracuda.BackendUnavailableError:
        pytest.skip("no CUDA")


def of_family(*names: str) -> list[Symbol]:
    found = [symbol for symbol in symbols() if symbol.operator.family in names]
    assert found
    return found


def size_between(rng: np.random.Generator, low: int, high: int) -> int:
    """Any order of magnitude is as likely."""
    return min(high, int(np.exp(rng.uniform(np.log(low), np.log(high + 1)))))


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def compute_bytes(symbol: Symbol) -> int:
    """Of a coordinate, a weight and a partial sum."""
    return 8 if symbol.variant.types["C"] == "f64" else 4


# Gradients of which a row's needs no other row.
OF_ONE_ROW = ("_sum_backward", "_max_with_arg_backward", "_min_with_arg_backward", "_logsumexp_backward")


def segment_bound(symbol: Symbol, values: Values) -> int:
    operator, rows, segments = symbol.operator, values.get("num_inputs", values.get("num_rows")), values["num_segments"]
    columns = values["embedding_dim"]
    assert isinstance(rows, int)
    assert isinstance(segments, int)
    assert isinstance(columns, int)
    if operator.name.endswith(OF_ONE_ROW) or operator.name in ("segment_gather", "segment_csr_mean_backward"):
        return 0
    if operator.name.endswith("_mean_backward"):
        return 4 * segments + 15
    in_any_order = operator.family == "segment" and not (operator.name == "segment_ex" and values["form"] != 0)
    most = (18 * rows + 64 * KIB if in_any_order else 8 * rows + 128) + 4 * segments
    element = symbol.variant.types["T"]
    part = (16 if element in ("f64", "i64") else 8) * columns
    if rows > 256:
        most += 2 * ceil_div(rows, 256) * part
    selects = "_max" in operator.name or "_min" in operator.name or operator.name == "segment_ex"
    if rows > 32 and (selects or element in ("i32", "i64")):
        most += min(2 * ceil_div(rows, 32) * part, 16 * MIB + 16 * rows)
    return most


@pytest.mark.parametrize(
    "symbol", of_family("segment", "segment_sorted", "segment_csr"), ids=lambda symbol: symbol.name
)
def test_segments(library: Library, rng: np.random.Generator, symbol: Symbol) -> None:
    rows_name = symbol.scalars[0].name
    for _ in range(PROBLEMS // 10):
        values: Values = {
            rows_name: size_between(rng, 1, INT32_MAX - 256),
            "embedding_dim": size_between(rng, 1, 4096),
            "num_segments": size_between(rng, 1, INT32_MAX),
            "form": int(rng.integers(3)),
            "reduce": int(rng.choice([0, 2, 3, 4, 6, 7])),
            "empty_value": 0,
        }
        assert library.can_implement(symbol, values) == 0 or "overflow" in library.last_error()
        assert library.workspace_size(symbol, values) <= segment_bound(symbol, values), values


def grid_sample_bound(symbol: Symbol, backend: str, values: dict[str, int]) -> int:
    """The header's two; every problem here has so few samples an image that 32 bits count them."""
    wide = compute_bytes(symbol) == 8
    samples, h, w = values["output_h"] * values["output_w"], values["input_h"], values["input_w"]
    if backend == "cuda":
        tiles = values["n"] * ceil_div(h, 8) * ceil_div(w, 32)
        most = values["n"] * (64 if wide else 48) * samples + 15 * 256 * tiles + KIB
        return most if tiles * ceil_div(values["c"], 64) <= INT32_MAX else 2 * most
    per_sample, pixels = 120 if wide else 104, 128 * ceil_div(h, 8) * ceil_div(w, 16)
    return per_sample * max(samples, 65536) + 5 * max(pixels, 65536) + 128 * KIB


@pytest.mark.parametrize("symbol", of_family("grid_sample"), ids=lambda symbol: symbol.name)
def test_grid_sample(library: Library, rng: np.random.Generator, symbol: Symbol) -> None:
    for _ in range(PROBLEMS):
        values = {
            "n": size_between(rng, 1, 1000),
            "c": size_between(rng, 1, 4096),
            "input_h": size_between(rng, 1, 5000),
            "input_w": size_between(rng, 1, 5000),
            "output_h": size_between(rng, 1, 5000),
            "output_w": size_between(rng, 1, 5000),
        }
        given: Values = dict(values)
        found = library.workspace_size(symbol, given)
        if symbol.operator.name.endswith("_backward"):
            assert 0 < found <= grid_sample_bound(symbol, library.backend, values), values
        else:
            assert found == 0


def roi_align_bound(symbol: Symbol, backend: str, values: dict[str, int]) -> int:
    compute, backward = compute_bytes(symbol), symbol.operator.name.endswith("_backward")
    bins = values["pooled_h"] + values["pooled_w"]
    most = values["num_rois"] * (256 + 2 * compute * (values["h"] + values["w"] + 10 * bins)) + KIB
    if backend == "cpu":
        return most + (4 * values["n"] + (128 if compute == 8 else 64) * KIB if backward else 0)
    if not backward:
        return most + values["num_rois"] * (6 if compute == 8 else 4) * KIB
    tiles = values["n"] * ceil_div(values["h"], 14) * ceil_div(values["w"], 16)
    most += 16 * tiles + min(tiles * 4 * ceil_div(values["num_rois"], 32), 64 * MIB)
    return most + (128 if compute == 8 else 64) * MIB


ROI_PROBLEM = {"spatial_scale": 0.25, "sampling_ratio": 2, "aligned": 0}


@pytest.mark.parametrize("symbol", of_family("roi_align"), ids=lambda symbol: symbol.name)
def test_roi_align(library: Library, rng: np.random.Generator, symbol: Symbol) -> None:
    for _ in range(PROBLEMS):
        values = {
            "n": size_between(rng, 1, 64),
            "c": size_between(rng, 1, 4096),
            "h": size_between(rng, 1, 5000),
            "w": size_between(rng, 1, 5000),
            "num_rois": size_between(rng, 1, 10000),
            "pooled_h": size_between(rng, 1, 100),
            "pooled_w": size_between(rng, 1, 100),
        }
        given: Values = {**values, **ROI_PROBLEM}
        found = library.workspace_size(symbol, given)
        assert 0 < found <= roi_align_bound(symbol, library.backend, values), values


def test_roi_align_backward_on_the_finest_maps_of_a_pyramid(library: Library) -> None:
    """The first row of the benchmark: boxes' tables and a bit a tile, beside planes of 124 MB."""
    sizes = {"n": 2, "c": 256, "h": 200, "w": 304, "num_rois": 1024, "pooled_h": 7, "pooled_w": 7}
    for symbol in of_family("roi_align"):
        if symbol.name in ("roi_align_backward_f32", "roi_align_backward_f16", "roi_align_backward_bf16"):
            given: Values = {**sizes, **ROI_PROBLEM}
            assert library.workspace_size(symbol, given) < 4 * MIB


@pytest.mark.parametrize("symbol", of_family("affine_grid"), ids=lambda symbol: symbol.name)
def test_affine_grid(library: Library, rng: np.random.Generator, symbol: Symbol) -> None:
    for _ in range(PROBLEMS):
        n, h, w = size_between(rng, 1, 1000), size_between(rng, 1, 5000), size_between(rng, 1, 5000)
        given: Values = {"n": n, "output_h": h, "output_w": w}
        found = library.workspace_size(symbol, given)
        backward = symbol.operator.name.endswith("_backward")
        partials = 6 * n * ceil_div(h * w, 256) * compute_bytes(symbol)
        assert found == (ceil_div(partials, 16) * 16 if backward else 0)
