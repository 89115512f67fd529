# SPDX-License-Identifier: Apache-2.0
"""The record of padding in every mode and of its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from pad_gradients import assert_pad_gradient
from tolerance import assert_same_bits

import pybaracuda
from pybaracuda._check.abi_calls import Values, dense_strides
from verify.definitions import pad as definitions
from verify.definitions.pad import MODES
from verify.dtypes import Array, bits

from .record import INT32_MAX, INT64_MAX, Arrays, Baseline, Call, Check, Empty, PlanCase, Record, numbers

# The modes that repeat the array; calls are named after the C operators.
REPEATING = MODES[1:]
VALUE = 3

# ---- the contract


def baseline(forward: bool, mode: str = "constant") -> Baseline:
    """Mode "ex" takes pads of both signs, and the mode as an option."""
    says_output = forward or mode != "constant"

    def shapes(input_shape: list[int], pad_low: list[int], output: list[int]) -> Values:
        found: Values = {"rank": len(input_shape), "input_shape": input_shape, "pad_low": pad_low}
        if says_output:
            found["output_shape"] = output
        if forward:
            return {**found, "input_strides": spaced(input_shape), "output_strides": spaced(output)}
        return {**found, "grad_output_strides": spaced(output), "grad_input_strides": spaced(input_shape)}

    def spaced(shape: list[int]) -> list[int]:
        """Row-major with two elements between rows, which nobody may write."""
        wide = dense_strides([*shape[:-1], shape[-1] + 2]) if shape else []
        return [min(stride, INT64_MAX) for stride in wide]

    huge = [2**16, 2**16, 2**16, 2**16]
    tall = [INT32_MAX] * 8
    strides = "output_strides" if forward else "grad_input_strides"
    faults: dict[str, tuple[Values, str]] = {
        "rank-0-numel-0": (shapes([], [], []) | {("output_numel" if forward else "input_numel"): 0}, "numel"),
        "rank-0-numel-2": (shapes([], [], []) | {("output_numel" if forward else "input_numel"): 2}, "numel"),
    }
    if says_output and mode != "ex":
        faults["output-smaller-than-input"] = (shapes([2, 2, 5], [1, 0, 1], [4, 1, 6]), "output_shape")
        faults["output-smaller-by-the-pad"] = (shapes([2, 2, 5], [1, 2, 1], [4, 3, 6]), "output_shape")
        faults["sum-past-int32"] = (shapes([2, 2, 5], [0, INT32_MAX, 0], [4, 3, 6]), "output_shape")
    if mode not in ("constant", "ex"):
        faults["nothing-to-repeat"] = (shapes([2, 0, 5], [1, 0, 1], [4, 3, 6]), "input_shape")
    if mode == "ex":
        faults["cropped-below-0"] = (shapes([2, 2, 5], [1, -1, 1], [4, 0, 6]) | {"pad_low": [1, -3, 1]}, "pad_low")
        faults["nothing-to-repeat"] = (shapes([2, 2, 5], [1, -2, 1], [4, 3, 6]) | {"mode": 3}, "input_shape")
    values = shapes([2, 2, 5], [1, 0, 1], [4, 3, 6])
    if forward and mode in ("constant", "ex"):
        values["value"] = VALUE
    if mode == "ex":
        values["mode"] = 0
    return Baseline(
        values=values,
        empties=(
            *(
                (Empty("input-0", shapes([2, 0, 5], [1, 0, 1], [4, 3, 6]), VALUE if forward else 0.0),)
                if mode in ("constant", "ex")
                else ()
            ),
            Empty("output-0", shapes([2, 0, 5], [1, 0, 1], [4, 0, 6])),
            Empty("every-extent-0", shapes([0, 0], [0, 0], [0, 0])),
        ),
        overflows=(
            shapes(huge, [0] * 4, huge),  # 2^64 elements
            shapes(tall, [0] * 8, tall),
            {"input_strides" if forward else "grad_output_strides": [2**62, 5, 1]},
            {strides: [2**62, 6, 1]},
        ),
        faults=faults,
        shared_places={
            "written-stride-0": ({strides: [24, 0, 1]}, strides),
            "written-strides-that-meet": ({strides: [24, 2, 1]}, strides),
        },
        larger=shapes([30, 7, 50], [2, 1, 0], [33, 8, 61]),
    )


BASELINES = {
    **{f"pad_{mode}": baseline(forward=True, mode=mode) for mode in (*MODES, "ex")},
    **{f"pad_{mode}_backward": baseline(forward=False, mode=mode) for mode in (*MODES, "ex")},
}

# ---- calls and plans

PADS = {"pad_low": (0, 1, 2, 0), "pad_high": (1, 0, 1, 3)}
CROPS = {"pad_low": (0, 1, -2, 0), "pad_high": (1, -1, 1, 3)}


def calls(dtype: Any) -> dict[str, Call]:
    """Two images, in every mode and with pads of both signs."""
    image = {"input": numbers((2, 3, 6, 7), dtype)}
    gradient = {"grad_output": numbers((3, 4, 9, 10), dtype)}
    cropped = {"grad_output": numbers((3, 3, 5, 10), dtype)}
    forward, backward = pybaracuda.pad, pybaracuda.pad_backward
    return {
        "pad": Call(forward, image, {**PADS, "value": -1.5}),
        "pad_backward": Call(backward, gradient, {**PADS}),
        **{f"pad_{mode}": Call(forward, image, {**PADS, "mode": mode}) for mode in REPEATING},
        **{f"pad_{mode}_backward": Call(backward, gradient, {**PADS, "mode": mode}) for mode in REPEATING},
        "pad_ex": Call(forward, image, {**CROPS, "value": -1.5}),
        "pad_ex_backward": Call(backward, cropped, {**CROPS, "mode": "circular"}),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problems."""
    shape, fields = (2, 3, 6, 7), ("mode", "input_shape", "pad_low", "pad_high", "element")

    def forward(function: str, pads: dict[str, tuple[int, ...]], **options: Any) -> PlanCase:
        descriptor = pybaracuda.PadDescriptor(shape, **pads, **options, element=element)
        return PlanCase(pybaracuda.PadPlan, descriptor, function, ("input",), ("output",), fields)

    def backward(function: str, pads: dict[str, tuple[int, ...]], **options: Any) -> PlanCase:
        descriptor = pybaracuda.PadBackwardDescriptor(shape, **pads, **options, element=element)
        return PlanCase(pybaracuda.PadBackwardPlan, descriptor, function, ("grad_output",), ("grad_input",), fields)

    return {
        "pad_constant": forward("pad", PADS, value=-1.5),
        "pad_constant_backward": backward("pad_backward", PADS),
        **{f"pad_{mode}": forward(f"pad_{mode}", PADS, mode=mode) for mode in REPEATING},
        **{f"pad_{mode}_backward": backward(f"pad_{mode}_backward", PADS, mode=mode) for mode in REPEATING},
        "pad_ex": forward("pad_ex", CROPS, value=-1.5),
        "pad_ex_backward": backward("pad_ex_backward", CROPS, mode="circular"),
    }


# ---- the committed bits


def _high(padded: Array, low: Sequence[int], unpadded: Array) -> list[int]:
    return [out - before - extent for out, before, extent in zip(padded.shape, low, unpadded.shape, strict=True)]


def check_forward(mode: str, a: Arrays) -> None:
    low, patterns = a.values["pad_low"], bits(a.input)
    pattern = a.pattern(a.values.get("value", 0), patterns)
    assert_same_bits(bits(a.output), definitions.pad(patterns, low, _high(a.output, low, a.input), mode, pattern))


def check_backward(mode: str, a: Arrays) -> None:
    low = a.values["pad_low"]
    assert_pad_gradient(a.grad_input, a.grad_output, low, _high(a.grad_output, low, a.grad_input), mode)


CHECKS: dict[str, Check] = {
    **{f"pad_{mode}": partial(check_forward, mode) for mode in MODES},
    **{f"pad_{mode}_backward": partial(check_backward, mode) for mode in MODES},
    "pad_ex": lambda a: check_forward(MODES[a.values["mode"]], a),
    "pad_ex_backward": lambda a: check_backward(MODES[a.values["mode"]], a),
}

# ---- refusals


def refused_dtypes(function: str) -> tuple[tuple[Any, str], ...]:
    """Padding moves elements of any dtype that NumPy computes with; its gradient is one of floats."""
    if function.endswith("backward"):
        return tuple((dtype, "has dtype .*; wanted float") for dtype in (np.int32, np.uint8, np.bool_, np.complex64))
    return (("m8[s]", "has dtype timedelta64"),)


INVALID = pybaracuda.InvalidProblemError
DESCRIPTOR = pybaracuda.PadDescriptor
NAMES = list(calls(np.float32))

RECORD = Record(
    families=("pad",),
    baselines=BASELINES,
    checks=CHECKS,
    functions={"pad": "input pad_low pad_high mode value", "pad_backward": "grad_output pad_low pad_high mode"},
    calls=calls,
    plans=plans,
    refused_dtypes=refused_dtypes,
    any_rank={name: ("input", "grad_output") for name in NAMES},
    takes_strided_outputs=True,
    bad_options=(
        ("pad", "mode", "edge", ValueError, "mode is 'edge'"),
        ("pad", "value", "1", TypeError, "value: wanted a number"),
        ("pad_circular", "pad_low", (-4, 0, 0, 0), INVALID, "crop below 0 elements"),
        ("pad", "pad_low", (1, 2), ValueError, "pad_low has 2 entries; the array has 4 axes"),
        ("pad", "pad_high", (1, 2, 3, 0.5), TypeError, "pad_high: wanted an int or a sequence of int"),
        ("pad", "pad_high", 0.5, TypeError, "pad_high: wanted an int or a sequence of int"),
        ("pad_backward", "pad_low", (9, 9, 9, 9), INVALID, "grad_output has shape"),
    ),
    bad_descriptors=(
        (lambda: DESCRIPTOR(3, (1,), (1,)), TypeError, "input_shape: wanted a sequence of int"),
        (lambda: DESCRIPTOR((3,), (1, 1), (1,)), INVALID, "pad_low has 2 entries"),
        (lambda: DESCRIPTOR((3,), (-2,), (-2,)), INVALID, "crop below 0 elements"),
        (lambda: DESCRIPTOR((3,), (1,), (1,), "edge"), ValueError, "mode is 'edge'"),
        (lambda: DESCRIPTOR((3,), (1,), (1,), input_strides=(1, 1)), INVALID, "input_strides has 2"),
    ),
    bad_problems=(
        (DESCRIPTOR((1,), (2**31,), (0,)), INVALID, "output_shape holds"),
        (DESCRIPTOR((1,) * 9, (0,) * 9, (0,) * 9), INVALID, "rank is 9"),
        (DESCRIPTOR((3,), (1,), (0,), value=256, element="b8"), INVALID, "bit pattern of 8 bits"),
        (DESCRIPTOR((3,), (1,), (0,), value=0.5, element="b32"), INVALID, "bit pattern of 32 bits"),
        (DESCRIPTOR((0,), (1,), (0,), "reflect"), INVALID, "wanted an element to repeat"),
        (DESCRIPTOR((3,), (1,), (0,), output_strides=(0,)), INVALID, "output_strides"),
    ),
    not_in_torch=frozenset({"pad_symmetric", "pad_symmetric_backward"}),
)
