# SPDX-License-Identifier: Apache-2.0
"""Every scalar argument of every function with every wrong kind of value, and every raw tensor of every plan.

Nothing but the documented exceptions may come, and the text names the argument.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from function_cases import FUNCTION, cases
from plan_cases import plan_cases

import pybaracuda

BAD: dict[str, Any] = {
    "None": None,
    "complex": 1j,
    "complex64": np.complex64(1j),
    "huge": 10**400,
    "-huge": -(10**400),
    "2**31": 2**31,
    "2**63": 2**63,
    "too many digits": 10**5000,
    "text": "x",
    "bytes": b"1",
    "nan": float("nan"),
    "inf": float("inf"),
    "array": np.ones((2, 2)),
    "array of one": np.ones(1),
    "list": [1, [2]],
    "list of huge": [10**5000] * 4,
    "dict": {},
    "object": object(),
}
# What a function takes although it stands above: None is no stream, no value, the index's own count of rows.
# Padding, empty segments, thresholds and a mean's divisor may be any number; ids past the last segment may be many.
# None is also one more than the largest id, a stride that is the window's extent, a window's own divisor, as many
# windows as elements, as many axes as there are, and what a scale_factor stands for or stands in for.
TAKE_MUCH = ("value", "empty_value", "num_segments", "num_rows", "pad_low", "pad_high", "spatial_scale",
             "divisor_override", "iou_threshold", "ignore_index")  # fmt: skip
MAY_BE_NONE = {"out", "stream", "empty_value", "num_segments", "num_rows", "arg", "input", "stride",
               "divisor_override", "output_size", "axes", "size", "scale_factor", "weight", "padding_idx",
               "per_sample_weights", "max_target_length"}  # fmt: skip
# Taken where a function has a meaning for it: a scale of a gradient, whose extents are given, may be any number above
# 0, as may that of boxes; one axis takes a sequence of one; no word on corners is torch's default of interpolate.
TAKEN = {("scale_factor", "2**31"), ("scale_factor", "2**63"), ("scale_factor", "array of one"),
         ("canonical_scale", "2**31"), ("canonical_scale", "2**63"), ("k_min", "None"),
         ("max", "2**31"), ("max", "2**63"), ("align_corners", "None"), ("recompute_scale_factor", "None")}  # fmt: skip
# Good values all the same, whose call would take 24 GiB: 8 for the bins of the output, 16 for counts.
TOO_LARGE_TO_CALL = {("bins", "2**31")}


def scalars_of(name: str) -> list[str]:
    case = cases()[name]
    arrays = {array.partition("[")[0] for array in case.arrays}
    return [each for each in inspect.signature(case.function).parameters if each not in {*arrays, "out"}]


@FUNCTION
@pytest.mark.parametrize("bad", list(BAD))
def test_a_wrong_scalar_is_refused_by_its_name(name: str, bad: str) -> None:
    case = cases()[name]
    value = BAD[bad]
    for argument in scalars_of(name):
        if value is None and argument in MAY_BE_NONE:
            continue
        if argument in ("input", "arg", "output", "mask", "lengths", "per_sample_weights", "bag_sizes"):
            continue  # arrays that this case leaves out; wrong arrays are another test's
        if (argument, bad) in TOO_LARGE_TO_CALL:
            continue
        try:
            result = (
                case(stream=value)
                if argument == "stream"
                else case._replace(options={**case.options, argument: value})()
            )
        except (TypeError, ValueError, pybaracuda.UnsupportedError) as error:
            names = {argument, *({"size", "n", "h", "w"} if argument in ("output_size", "input_shape", "size") else ())}
            if argument == "kernel_size":
                names.add("kernel_h is")  # the first of them
            if argument == "num_rows":
                names.add("input has shape")  # which the count is held against
            text = str(error)
            assert any(each in text for each in names), (argument, text)
            assert len(text) < 400, text
            assert "digits" not in text, text
        else:
            assert argument in TAKE_MUCH or (argument, bad) in TAKEN, argument
            assert result is not None


@pytest.mark.parametrize("element", ["f32", "b8", "i64"])
@pytest.mark.parametrize("bad", list(BAD))
def test_a_wrong_padding_value_is_refused_by_its_name(element: str, bad: str) -> None:
    array = np.ones(3, {"f32": np.float32, "b8": np.uint8, "i64": np.int64}[element])
    if element == "f32" and bad in ("nan", "inf", "2**31", "2**63"):
        pybaracuda.pad(array, 1, 1, value=BAD[bad])
        return
    if element == "i64" and bad == "2**31":
        pybaracuda.pad(array, 1, 1, value=BAD[bad])
        return
    with pytest.raises((TypeError, ValueError), match="value"):
        pybaracuda.pad(array, 1, 1, value=BAD[bad])


PAIRS: dict[str, Any] = {
    "None": (None, 1 << 20),
    "negative": (-4096, 1 << 20),
    "huge": (1 << 64, 1 << 20),
    "text": ("4096", 1 << 20),
    "float": (4096.0, 1 << 20),
    "no bytes": (4096, None),
    "text for bytes": (4096, "1048576"),
    "float for bytes": (4096, 1e6),
    "nan bytes": (4096, float("nan")),
    "negative bytes": (4096, -(1 << 20)),
    "one": (4096,),
    "three": (4096, 1 << 20, 0),
    "none": (),
}


@pytest.mark.parametrize("name", list(plan_cases()))
@pytest.mark.parametrize("bad", list(PAIRS))
def test_a_wrong_raw_tensor_is_refused_by_its_name(name: str, bad: str) -> None:
    case = plan_cases()[name]
    plan = case.plan.select(case.descriptor)
    good = {spec.name: ((place + 1) << 40, spec.nbytes) for place, spec in enumerate(plan.tensors)}
    for spec in plan.tensors:
        for call in (plan.bind, plan.run, plan.can_implement):
            with pytest.raises((TypeError, ValueError), match=f"^{spec.name}"):
                call(**{**good, spec.name: PAIRS[bad]})
    with pytest.raises((TypeError, ValueError), match="workspace"):
        plan.bind(workspace=PAIRS[bad], **good)


def test_wrong_preferences_are_refused_by_their_field() -> None:
    wrong = {
        "max_workspace_bytes": ("x", 1j, 1.5, [1]),
        "allow_sm90a": (None, "x", 2, 10**5000, [1]),
        "prefer_backend": (1, "x", 10**5000, ["cpu"]),
    }
    for field, values in wrong.items():
        for value in values:
            with pytest.raises((TypeError, ValueError), match=field):
                pybaracuda.PlanPreference(**{field: value})
    with pytest.raises(TypeError, match="preference: wanted a PlanPreference"):
        pybaracuda.PadPlan.select(pybaracuda.PadDescriptor((3,), (1,), (1,)), preference="cpu")  # type: ignore[arg-type]


def test_limits_are_those_of_the_argument() -> None:
    rows, ids = np.ones((3, 2), np.float32), np.zeros(3, np.int32)
    with pytest.raises(pybaracuda.InvalidProblemError, match=r"num_segments is 2147483648; wanted 0\.\.2147483647"):
        pybaracuda.segment_sum(rows, ids, 2**31)
    with pytest.raises(pybaracuda.InvalidProblemError, match=r"sampling_ratio is 2147483648; wanted .*\.\.1048576"):
        pybaracuda.roi_align(np.ones((1, 1, 4, 4), np.float32), np.ones((1, 5), np.float32), 1, 1.0, 2**31)


def test_rows_that_do_not_match_are_the_ids_fault() -> None:
    rows = np.ones((5, 2), np.float32)
    with pytest.raises(ValueError, match=r"segment_ids has shape \(3,\); wanted \(5,\), one for each row of input"):
        pybaracuda.segment_sum(rows, np.zeros(3, np.int32), 2)
    with pytest.raises(ValueError, match=r"segment_ids has shape \(3,\); wanted \(5,\), one for each row of input"):
        pybaracuda.segment_max_backward(np.ones((2, 2), np.float32), rows, np.zeros(3, np.int32))
    with pytest.raises(ValueError, match=r"grad_output has shape \(4, 2\); wanted \(5, 2\)|output has shape \(5, 2\)"):
        pybaracuda.segment_softmax_backward(rows[:4], rows, np.zeros(5, np.int32), 2)


def test_a_host_object_that_numpy_does_not_import_is_not_called_device_memory(torch: Any) -> None:
    class Exporter:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("not today")

    with pytest.raises(TypeError, match=r"input: .*Exporter.* from host memory \(not today\)"):
        pybaracuda.pad(Exporter(torch.ones(3)), 1, 1)


def test_tensors_inside_transforms_are_refused_in_words(torch: Any) -> None:
    transforms = (
        lambda call: torch.func.grad(call)(torch.ones(3)),
        lambda call: torch.func.vmap(call)(torch.ones(3, 2)),
        lambda call: torch.func.jvp(call, (torch.ones(3),), (torch.ones(3),)),
        lambda call: torch.func.functionalize(call)(torch.ones(3)),
    )
    for transform in transforms:
        with pytest.raises(TypeError, match=r"input: the tensor has no memory .* outside torch.func transforms"):
            transform(lambda tensor: pybaracuda.pad(tensor, 1, 1).sum())
