# SPDX-License-Identifier: Apache-2.0
"""The record of dequantize_per_channel and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_exact

import pybaracuda
from verify.definitions import dequantize as definitions

from .record import (
    INT32_MAX,
    INT64_MAX,
    Arrays,
    Baseline,
    Call,
    Empty,
    Integers,
    Narrow,
    PlanCase,
    Record,
    Refusal,
    numbers,
)

BASELINE = Baseline(
    values={"shape": [2, 3, 1, 4], "axis": 1},
    empties=tuple(Empty(f"shape[{axis}]-0", {"shape": [0 if i == axis else 2 for i in range(4)]}) for axis in range(4)),
    overflows=(
        {"shape": [2**16, 2**16, 2**16, 2**16], "numel": 0},
        {"shape": [INT32_MAX] * 4, "numel": INT64_MAX},
    ),
    larger={"shape": [3, 5, 7, 11]},
)


def calls(dtype: Any) -> dict[str, Call]:
    """Three channels in the middle."""
    scale = np.array([0.5, 2, 0.75], dtype)
    return {
        "dequantize_per_channel": Call(
            pybaracuda.dequantize_per_channel,
            {
                "input": (np.arange(24) * 11 - 120).astype(np.int8).reshape(2, 3, 4),
                "scale": scale,
                "zero_point": np.array([-3, 0, 7], np.int32),
            },
            {"axis": 1},
        ),
        "dequantize_per_channel_backward": Call(
            pybaracuda.dequantize_per_channel_backward,
            {"grad_output": numbers((2, 3, 4), dtype), "scale": scale},
            {"axis": 1},
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    names = ("shape", "rank", "axis", "input_element", "output_element")
    return {
        "dequantize_per_channel": PlanCase(
            pybaracuda.DequantizePerChannelPlan,
            pybaracuda.DequantizePerChannelDescriptor((2, 3, 4), 1, "s8", element),
            "dequantize_per_channel",
            ("input", "scale", "zero_point"),
            ("output",),
            names,
            "s8",
        ),
        "dequantize_per_channel_backward": PlanCase(
            pybaracuda.DequantizePerChannelBackwardPlan,
            pybaracuda.DequantizePerChannelBackwardDescriptor((2, 3, 4), 1, output_element=element),
            "dequantize_per_channel_backward",
            ("grad_output", "scale"),
            ("grad_input",),
            names,
            "s8",
        ),
    }


def check_forward(a: Arrays) -> None:
    assert_exact(a.output, definitions.dequantize_per_channel(a.input, a.scale, a.zero_point, a.values["axis"]))


def check_backward(a: Arrays) -> None:
    assert_exact(a.grad_input, definitions.dequantize_per_channel_backward(a.grad_output, a.scale, a.values["axis"]))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Dtypes that the operator has no variant for, or would narrow silently."""
    forward, backward = "dequantize_per_channel", "dequantize_per_channel_backward"
    for dtype, error in ((np.int16, pybaracuda.UnsupportedError), (np.float32, TypeError), (np.bool_, TypeError)):
        yield Refusal(forward, {"input": np.zeros((2, 3, 4), dtype)}, error, "input has dtype")
    yield Refusal(forward, {"zero_point": np.zeros(3, np.float32)}, TypeError, "zero_point has dtype")
    wide = calls[backward].arrays["scale"].astype(np.float64)
    yield Refusal(backward, {"scale": wide}, TypeError, "scale has dtype float64; wanted float32")


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.DequantizePerChannelDescriptor

RECORD = Record(
    families=("dequantize",),
    baselines={
        "dequantize_per_channel": BASELINE,
        "dequantize_per_channel_backward": BASELINE._replace(in_place="grad_output"),
    },
    checks={"dequantize_per_channel": check_forward, "dequantize_per_channel_backward": check_backward},
    functions={
        "dequantize_per_channel": "input scale zero_point axis",
        "dequantize_per_channel_backward": "grad_output scale axis",
    },
    calls=calls,
    plans=plans,
    floats_only={
        "dequantize_per_channel": ("scale",),
        "dequantize_per_channel_backward": ("grad_output", "scale"),
    },
    bad_arrays=bad_arrays,
    bad_options=(
        ("dequantize_per_channel", "axis", 3, ValueError, "axis is 3; input has 3 axes"),
        ("dequantize_per_channel", "axis", -4, ValueError, "axis is -4"),
        ("dequantize_per_channel", "axis", 0, ValueError, "scale has shape"),
        ("dequantize_per_channel_backward", "axis", 2, ValueError, "scale has shape"),
    ),
    any_rank={"dequantize_per_channel": ("input",), "dequantize_per_channel_backward": ("grad_output",)},
    bad_descriptors=(
        (lambda: DESCRIPTOR((), 0), INVALID, "shape has 0"),
        (lambda: DESCRIPTOR((1,) * 5, 0), INVALID, "shape has 5"),
        (lambda: DESCRIPTOR((2, 3), 1, rank=1), INVALID, "rank is"),
    ),
    bad_problems=(
        (DESCRIPTOR((2, 3), 4), INVALID, "axis is 4"),
        (DESCRIPTOR((2, 3), 1, "i32"), pybaracuda.UnsupportedError, "no variant f32_i32"),
    ),
    narrow={"dequantize_per_channel_backward": Narrow("scale", is_datas=True)},
    integers={"dequantize_per_channel": Integers("zero_point", (np.uint32, np.uint64), (np.int32,))},
)
