# SPDX-License-Identifier: Apache-2.0
"""Scratch is what the header says: each family's bound, as its record has it, on random problems of every size.

Nothing is run and no device is needed; that a workspace of this size suffices is tested with the operators.
"""

from __future__ import annotations

import numpy as np
import pytest
from contract_cases import baseline
from operators import RECORDS
from operators.record import MIB

import pybaracuda
from pybaracuda._check.abi_calls import Library, Symbol, Values, completed, symbols


@pytest.fixture(params=["cpu", "cuda"])
def library(request: pytest.FixtureRequest) -> Library:
    try:
        return Library(request.param)
    except pybaracuda.BackendUnavailableError:
        pytest.skip("no CUDA")


SCRATCH = {family: record.scratch for record in RECORDS for family in record.families}


@pytest.mark.parametrize("symbol", symbols(), ids=lambda symbol: symbol.name)
def test_scratch_is_what_the_header_says(library: Library, rng: np.random.Generator, symbol: Symbol) -> None:
    scratch = SCRATCH[symbol.operator.family]
    if scratch is None:
        for sizes in (baseline(symbol).values, {**baseline(symbol).values, **(baseline(symbol).larger or {})}):
            assert library.workspace_size(symbol, completed(symbol, sizes)) == 0
        return
    for _ in range(scratch.problems):
        values = scratch.draw(rng, symbol)
        assert library.can_implement(symbol, values) == 0 or "overflow" in library.last_error()
        least, most = scratch.bounds(symbol, library.backend, values)
        assert least <= library.workspace_size(symbol, values) <= most, values


def test_roi_align_backward_on_the_finest_maps_of_a_pyramid(library: Library) -> None:
    """The first row of the benchmark: boxes' tables and a bit a tile, beside planes of 124 MB."""
    sizes = {"n": 2, "c": 256, "h": 200, "w": 304, "num_rois": 1024, "pooled_h": 7, "pooled_w": 7}
    for symbol in symbols():
        if symbol.name in ("roi_align_backward_f32", "roi_align_backward_f16", "roi_align_backward_bf16"):
            given: Values = {**sizes, "spatial_scale": 0.25, "sampling_ratio": 2, "aligned": 0}
            assert library.workspace_size(symbol, given) < 4 * MIB
