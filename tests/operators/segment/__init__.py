# SPDX-License-Identifier: Apache-2.0
"""The record of segments in three forms of an index, of their gradients and of the gather."""

from __future__ import annotations

import pybaracuda
from pybaracuda import _abi

from ..record import Integers, Record, Scratch
from .calls import ANY_RANK, bad_arrays, calls, plans
from .checks import CHECKS
from .contract import BASELINES, draw_sizes, scratch_bounds

FAMILIES = ("segment", "segment_sorted", "segment_csr")
OPERATORS = [operator.name for operator in _abi.OPERATORS.values() if operator.family in FAMILIES]
# torch.segment_reduce has no exponentials and no rows of extremes, and gives all of a negative gradient to every tie.
NOT_IN_TORCH = (
    *("logsumexp", "logsumexp_backward", "softmax", "softmax_backward"),
    *(f"{name}_{ending}" for name in ("max", "min") for ending in ("with_arg", "even_backward")),
)
INVALID = pybaracuda.InvalidProblemError

RECORD = Record(
    families=FAMILIES,
    baselines=BASELINES,
    checks=CHECKS,
    scratch=Scratch(draw_sizes, scratch_bounds, problems=30),
    functions={
        "gather_csr": "input offsets num_rows lengths",
        "segment_csr": "input offsets reduce lengths empty_value return_arg",
        "segment_csr_backward": "grad_output offsets reduce lengths num_rows input output arg ties",
        "segment_gather": "input segment_ids",
        "segment_logsumexp": "input segment_ids num_segments indices_are_sorted empty_value",
        "segment_logsumexp_backward": "grad_output input output segment_ids indices_are_sorted",
        "segment_max": "input segment_ids num_segments indices_are_sorted empty_value return_arg",
        "segment_max_backward": "grad_output input segment_ids arg ties indices_are_sorted",
        "segment_mean": "input segment_ids num_segments indices_are_sorted empty_value",
        "segment_mean_backward": "grad_output segment_ids indices_are_sorted",
        "segment_min": "input segment_ids num_segments indices_are_sorted empty_value return_arg",
        "segment_min_backward": "grad_output input segment_ids arg ties indices_are_sorted",
        "segment_prod": "input segment_ids num_segments indices_are_sorted empty_value",
        "segment_prod_backward": "grad_output input output segment_ids indices_are_sorted",
        "segment_softmax": "input segment_ids num_segments indices_are_sorted",
        "segment_softmax_backward": "grad_output output segment_ids num_segments indices_are_sorted",
        "segment_sum": "input segment_ids num_segments indices_are_sorted empty_value",
        "segment_sum_backward": "grad_output segment_ids indices_are_sorted",
        "unsorted_segment_max": "input segment_ids num_segments",
        "unsorted_segment_max_backward": "grad_output input segment_ids",
    },
    calls=calls,
    plans=plans,
    has_generic_plans=True,
    floats_only={"unsorted_segment_max_backward": ("grad_output",)},
    bad_arrays=bad_arrays,
    bad_options=(
        ("unsorted_segment_max", "num_segments", -1, ValueError, "num_segments is -1"),
        ("unsorted_segment_max", "num_segments", 2.0, TypeError, "num_segments: wanted an int"),
        ("unsorted_segment_max", "num_segments", 2**31, INVALID, "num_segments is"),
        ("segment_sum", "indices_are_sorted", "yes", TypeError, "indices_are_sorted: wanted a bool"),
        ("segment_sum", "empty_value", "0", TypeError, "empty_value: wanted a number"),
        ("segment_softmax", "num_segments", -1, ValueError, "num_segments is -1"),
        ("segment_max", "return_arg", None, TypeError, "return_arg: wanted a bool"),
        ("segment_max_backward", "ties", "last", ValueError, "ties is 'last'"),
        ("segment_csr", "reduce", "median", ValueError, "reduce is 'median'"),
        ("segment_csr", "return_arg", True, ValueError, "return_arg: mean has no rows"),
        ("segment_csr_backward", "num_rows", 8, ValueError, "input has shape (7, 5); wanted (8, 5)"),
        ("gather_csr", "num_rows", 2.0, TypeError, "num_rows: wanted an int"),
        ("gather_csr", "num_rows", -1, INVALID, "num_rows is -1"),
    ),
    any_rank=ANY_RANK,
    integers={
        "unsorted_segment_max": Integers("segment_ids"),
        "unsorted_segment_max_backward": Integers("segment_ids"),
    },
    not_in_torch=frozenset(f"segment_csr_{name}" for name in NOT_IN_TORCH),
    not_in_jax=frozenset(
        name
        for name in OPERATORS
        if name.startswith(("segment_ex", "segment_csr")) or "with_arg" in name or name.endswith("prod_backward")
    ),
)
