# SPDX-License-Identifier: Apache-2.0
"""Calls of the functions of segments, the plans that have their own class, and arrays that are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import pybaracuda

from ..record import Call, PlanCase, Refusal, numbers


def calls(dtype: Any) -> dict[str, Call]:
    """Seven rows in four segments, one of them empty; two rows are dropped."""
    rows, segments = numbers((7, 5), dtype), numbers((4, 5), dtype)
    small = (rows / 8).astype(dtype)
    ids, offsets = np.array([1, 0, 3, 1, 7, -1, 0], np.int32), np.array([1, 3, 3, 5, 6], np.int32)
    holders = np.array([[1], [0], [-1], [2]], np.int32).repeat(5, 1)
    of_ids, of_offsets = {"segment_ids": ids}, {"offsets": offsets}
    count = {"num_segments": 4}
    found = {
        f"segment_{reduce}": Call(getattr(pybaracuda, f"segment_{reduce}"), {"input": rows, **of_ids}, count)
        for reduce in ("sum", "mean", "max", "min", "prod", "logsumexp", "softmax")
    }
    for reduce in ("sum", "mean"):
        backward = getattr(pybaracuda, f"segment_{reduce}_backward")
        found[f"segment_{reduce}_backward"] = Call(backward, {"grad_output": segments, **of_ids}, {})
    for reduce in ("max", "min"):
        found[f"segment_{reduce}_with_arg"] = found[f"segment_{reduce}"]._replace(
            options={**count, "return_arg": True}, outputs=2
        )
        backward = getattr(pybaracuda, f"segment_{reduce}_backward")
        given = {"grad_output": segments, "input": rows, **of_ids}
        found[f"segment_{reduce}_backward"] = Call(backward, given, {})
        found[f"segment_{reduce}_even_backward"] = Call(backward, given, {"ties": "even"})
        given = {"grad_output": segments, "arg": holders, **of_ids}
        found[f"segment_{reduce}_with_arg_backward"] = Call(backward, given, {"input": None})
    for reduce in ("prod", "logsumexp"):
        backward = getattr(pybaracuda, f"segment_{reduce}_backward")
        given = {"grad_output": segments, "input": small, "output": segments, **of_ids}
        found[f"segment_{reduce}_backward"] = Call(backward, given, {})
    return {
        **found,
        "segment_softmax_backward": Call(
            pybaracuda.segment_softmax_backward, {"grad_output": rows, "output": small, **of_ids}, count
        ),
        "segment_gather": Call(pybaracuda.segment_gather, {"input": segments, **of_ids}, {}),
        "segment_sum_sorted": Call(
            pybaracuda.segment_sum,
            {"input": rows, "segment_ids": np.sort(ids)},
            {**count, "indices_are_sorted": True},
        ),
        "segment_csr": Call(pybaracuda.segment_csr, {"input": rows, **of_offsets}, {"reduce": "mean"}),
        "segment_csr_with_arg": Call(
            pybaracuda.segment_csr, {"input": rows, **of_offsets}, {"reduce": "min", "return_arg": True}, 2
        ),
        "segment_csr_backward": Call(
            pybaracuda.segment_csr_backward,
            {"grad_output": segments, "input": rows, **of_offsets},
            {"reduce": "max"},
        ),
        "segment_sum_empty_value": found["segment_sum"]._replace(options={**count, "empty_value": -1.5}),
        "segment_max_with_arg_empty_value": found["segment_max_with_arg"]._replace(
            options={**count, "return_arg": True, "empty_value": 0}
        ),
        "segment_csr_empty_value": Call(
            pybaracuda.segment_csr, {"input": rows, **of_offsets}, {"reduce": "logsumexp", "empty_value": 2}
        ),
        "gather_csr": Call(pybaracuda.gather_csr, {"input": segments, **of_offsets}, {"num_rows": 7}),
        "unsorted_segment_max": Call(pybaracuda.unsorted_segment_max, {"input": rows, **of_ids}, count),
        "unsorted_segment_max_backward": Call(
            pybaracuda.unsorted_segment_max_backward, {"grad_output": segments, "input": rows, **of_ids}, {}
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem; the generic plans have a test of their own."""
    fields = ("num_inputs", "embedding_dim", "num_segments", "element")
    return {
        "unsorted_segment_max": PlanCase(
            pybaracuda.UnsortedSegmentMaxPlan,
            pybaracuda.UnsortedSegmentMaxDescriptor(7, 5, 4, element),
            "unsorted_segment_max",
            ("input", "segment_ids"),
            ("output",),
            fields,
            "i32",
        ),
        "unsorted_segment_max_backward": PlanCase(
            pybaracuda.UnsortedSegmentMaxBackwardPlan,
            pybaracuda.UnsortedSegmentMaxBackwardDescriptor(7, 5, 4, element),
            "unsorted_segment_max_backward",
            ("grad_output", "input", "segment_ids"),
            ("grad_input",),
            fields,
            "i32",
        ),
    }


# Where no other array says which rank it is.
ANY_RANK = {name: ("input", "grad_output") for name, call in calls(np.float32).items() if len(call.arrays) == 2}


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """An index that is none, data that the operator has no variant for, and arrays of other sizes."""
    for name, call in calls.items():
        arrays = call.arrays
        index = "segment_ids" if "segment_ids" in arrays else "offsets"
        for dtype in (np.float32, np.bool_):
            yield Refusal(name, {index: arrays[index].astype(dtype)}, TypeError, f"{index} has dtype .*wanted int")
        leading = next(argument for argument in ("input", "output", "grad_output") if argument in arrays)
        # What exists for int32 as well, does not for int16.
        of_integers = re.fullmatch(r".*segment_((sum|max|min|prod).*(?<!backward)|csr_with_arg)", name)
        values = arrays[leading].astype(np.int16 if of_integers else np.int32)
        yield Refusal(name, {leading: values}, pybaracuda.UnsupportedError, f"{leading} has dtype .* not wired yet")
    for name in ("segment_prod_backward", "segment_softmax_backward", "segment_max_with_arg_backward"):
        arrays = calls[name].arrays
        others = [argument for argument in arrays if argument not in ("segment_ids", "input")]
        for argument in others[:2]:
            yield Refusal(name, {argument: arrays[argument][:-1]}, ValueError, "has shape")
    name = "unsorted_segment_max_backward"
    values = calls[name].arrays["grad_output"].astype(np.float64)
    yield Refusal(name, {"grad_output": values}, TypeError, "grad_output has dtype float64; wanted float32, the dtype")
