# SPDX-License-Identifier: Apache-2.0
"""The plans of every operator, out of the records, for tests that run through all of them."""

from __future__ import annotations

import numpy as np
from function_cases import listed
from operators import RECORDS, joined
from operators.record import Call, PlanCase

from verify.dtypes import Array


def plan_cases(element: str = "f32") -> dict[str, PlanCase]:
    """The plans for data of a dtype, by operator."""
    return joined(record.plans(element) for record in RECORDS)


def tensors_of(case: PlanCase, call: Call) -> tuple[dict[str, Array], list[Array], list[Array]]:
    """All of a plan's tensors by name, the outputs among them, and what they must hold after a run."""
    expected = listed(call())
    outputs = [np.frombuffer(b"\xa5" * each.nbytes, each.dtype).reshape(each.shape).copy() for each in expected]
    named = dict(zip(case.inputs, call.arrays.values(), strict=True))
    named.update(zip(case.outputs, outputs, strict=True))
    return named, outputs, expected
