# SPDX-License-Identifier: Apache-2.0
"""Plans, bound calls and descriptors as frozen objects: nothing changes them; they copy, compare, hash and pickle."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import weakref
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest
from function_cases import cases
from plan_cases import plan_cases, tensors_of
from tolerance import assert_same_bits

import pybaracuda
from pybaracuda import _plan

CASE = pytest.mark.parametrize("name", list(plan_cases()))
CPU = pybaracuda.PlanPreference(prefer_backend="cpu")


def plan_of(name: str) -> Any:
    case = plan_cases()[name]
    return case.plan.select(case.descriptor)


def bound() -> Any:
    plan = pybaracuda.PadPlan.select(pybaracuda.PadDescriptor((3,), (1,), (1,)))
    return plan.bind(input=np.ones(3, np.float32), output=np.zeros(5, np.float32))


def slots_of(kind: type) -> list[str]:
    return [slot for each in kind.__mro__ for slot in getattr(each, "__slots__", ()) if slot != "__weakref__"]


@CASE
def test_nothing_of_a_plan_can_be_set_or_deleted(name: str) -> None:
    plan = plan_of(name)
    for slot in [*slots_of(type(plan)), "other"]:
        with pytest.raises(AttributeError, match=f"Plan is immutable: {slot} cannot be deleted"):
            delattr(plan, slot)
        with pytest.raises(AttributeError, match=f"Plan is immutable: {slot} cannot be set"):
            setattr(plan, slot, None)
    assert plan.can_implement()


def test_nothing_of_a_kernel_can_be_set_or_deleted() -> None:
    kernel = plan_of("pad_constant").kernel
    for slot in [*slots_of(type(kernel)), "other"]:
        with pytest.raises(AttributeError, match=f"Kernel is immutable: {slot} cannot be deleted"):
            delattr(kernel, slot)
        with pytest.raises(AttributeError, match=f"Kernel is immutable: {slot} cannot be set"):
            setattr(kernel, slot, None)
    kernel.check()
    assert copy.deepcopy(kernel) is kernel


def test_nothing_of_a_bound_call_can_be_set_or_deleted() -> None:
    call = bound()
    for slot in [*slots_of(type(call)), "other"]:
        with pytest.raises(AttributeError, match=f"BoundCall is immutable: {slot} cannot be deleted"):
            delattr(call, slot)
        with pytest.raises(AttributeError, match=f"BoundCall is immutable: {slot} cannot be set"):
            setattr(call, slot, None)
    call()
    assert copy.copy(call) is call
    assert copy.deepcopy(call) is call
    assert weakref.ref(call)() is call
    with pytest.raises(TypeError, match="pickle its plan"):
        pickle.dumps(call)


@CASE
def test_plans_and_descriptors_copy_and_pickle(name: str) -> None:
    plan, descriptor = plan_of(name), plan_cases()[name].descriptor
    assert copy.copy(plan) is plan
    assert copy.deepcopy(plan) is plan
    assert copy.deepcopy({"plans": [plan]})["plans"][0] is plan
    assert weakref.ref(plan)() is plan
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(plan, protocol)) is plan
        again = pickle.loads(pickle.dumps(descriptor, protocol))
        assert again == descriptor
        assert hash(again) == hash(descriptor)
        assert repr(again) == repr(descriptor)
    assert copy.deepcopy(descriptor) == copy.copy(descriptor) == descriptor
    with pytest.raises(FrozenInstanceError):
        delattr(descriptor, fields(descriptor)[0].name)
    for value in (CPU, plan.sku, plan.precision_guarantee, plan.tensors):
        assert pickle.loads(pickle.dumps(value)) == value


def test_plans_are_equal_to_the_bit_and_hash_alike() -> None:
    def select(value: float, preference: Any = None, element: str = "f32") -> Any:
        descriptor = pybaracuda.PadDescriptor((3,), (1,), (1,), value=value, element=element)
        return pybaracuda.PadPlan.select(descriptor, preference=preference)

    variants = [select(0.0), select(-0.0), select(float("nan")), select(0.0, CPU), select(0.0, None, "f64")]
    variants.append(plan_of("pad_constant"))
    _plan._build.cache_clear()
    again = [select(0.0), select(-0.0), select(float("nan")), select(0.0, CPU), select(0.0, None, "f64")]
    again.append(plan_of("pad_constant"))
    for i, one in enumerate(variants):
        for j, other in enumerate(again):
            assert one is not other
            assert (one == other) == (i == j)
        assert hash(one) == hash(again[i])
        assert one != one.descriptor
    assert len({*variants, *again}) == len(variants)


def _run_in_child(payload: bytes, arrays: dict[str, Any], wanted: str) -> Any:
    plan = pickle.loads(payload)
    outputs = {spec.name: np.empty(spec.shape, arrays[wanted].dtype) for spec in plan.tensors if spec.is_output}
    plan.run(**{**arrays, **outputs})
    return outputs[wanted], hash(plan) == hash(type(plan).select(plan.descriptor)), os.getpid()


def test_a_plan_runs_in_a_process_that_it_was_sent_to() -> None:
    case = plan_cases()["roi_align"]
    tensors, _, expected = tensors_of(case, cases()["roi_align"])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result, same, process = pool.apply(_run_in_child, (pickle.dumps(plan_of("roi_align")), tensors, "output"))
    assert_same_bits(result, expected[0])
    assert same
    assert process != os.getpid()


def test_a_plan_of_a_backend_that_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = pickle.dumps(plan_of("roi_align"))
    _plan._build.cache_clear()

    def missing(backend: str) -> Any:
        raise pybaracuda.BackendUnavailableError(f"the {backend} library is not installed")

    monkeypatch.setattr("pybaracuda._library.load", missing)
    with pytest.raises(pybaracuda.BackendUnavailableError, match="the cpu library is not installed"):
        pickle.loads(payload)
