# SPDX-License-Identifier: Apache-2.0
"""Descriptors and plans of every operator: fields, selection, sizes, tensors by name, bound calls, the cache."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from function_cases import DTYPE, cases
from operators import RECORDS
from plan_cases import plan_cases, tensors_of
from tolerance import assert_same_bits

import pybaracuda
from pybaracuda import PlanPreference, _abi, _plan
from pybaracuda._check.abi_calls import Library, Symbol
from verify.dtypes import DTYPES

CPU = PlanPreference(prefer_backend="cpu")
INVALID = pybaracuda.InvalidProblemError
UNSUPPORTED = pybaracuda.UnsupportedError
OPERATOR = pytest.mark.parametrize("name", list(plan_cases()))


def test_every_operator_has_a_plan() -> None:
    # The generic plans are tested operator by operator in the family's own file.
    families = {family for record in RECORDS if record.has_generic_plans for family in record.families}
    generic = {name for name, operator in _abi.OPERATORS.items() if operator.family in families}
    tested = set(plan_cases())
    assert sorted(tested) == sorted(name for name in _abi.OPERATORS if name not in generic - tested)
    for name, case in plan_cases().items():
        assert case.descriptor.operator == name
        assert case.plan.descriptor_type is type(case.descriptor)


# ---- descriptors


@OPERATOR
def test_descriptors_are_frozen_values(name: str) -> None:
    case = plan_cases()[name]
    again = plan_cases()[name].descriptor
    assert case.descriptor == again
    assert hash(case.descriptor) == hash(again)
    assert case.descriptor is not again
    names = [field.name for field in dataclasses.fields(case.descriptor)]
    assert set(case.fields) <= set(names)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(case.descriptor, names[0], 1)
    assert pickle.loads(pickle.dumps(case.descriptor)) == case.descriptor
    first = dataclasses.fields(case.descriptor)[0]
    with pytest.raises(TypeError, match=first.name):
        dataclasses.replace(case.descriptor, **{first.name: "seven"})


def test_descriptors_know_the_shapes_that_follow() -> None:
    descriptor = pybaracuda.PadBackwardDescriptor([2, 3], np.array([1, 0]), (0, 4))
    assert descriptor.input_shape == (2, 3)
    assert descriptor.pad_low == (1, 0)
    assert descriptor.output_shape == descriptor.dy_shape == (3, 7)
    assert descriptor.grad_output_strides == (7, 1)
    channel = pybaracuda.DequantizePerChannelDescriptor((5, 6), 1)
    assert (channel.shape, channel.rank, channel.numel) == ((5, 6, 1, 1), 2, 30)


@pytest.mark.parametrize(("make", "error", "text"), [each for record in RECORDS for each in record.bad_descriptors])
def test_bad_descriptors(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


# ---- selection


@OPERATOR
def test_selection_is_cached_by_value(name: str) -> None:
    case = plan_cases()[name]
    plan = case.plan.select(case.descriptor)
    assert case.plan.select(plan_cases()[name].descriptor) is plan
    assert case.plan.select(case.descriptor, preference=PlanPreference()) is plan
    assert case.plan.select(case.descriptor, preference=CPU) is not plan
    assert plan.backend == "cpu"
    assert plan.descriptor == case.descriptor
    assert plan.can_implement() is True


def test_the_cache_is_bounded() -> None:
    most = _plan._build.cache_info().maxsize
    assert most is not None
    for height in range(most + 50):
        pybaracuda.RoiAlignPlan.select(pybaracuda.RoiAlignDescriptor(1, 1, height, 1, 0, 1, 1))
    assert _plan._build.cache_info().currsize == most


def test_a_plan_is_told_apart_by_the_sign_of_its_value() -> None:
    plus, minus = (pybaracuda.PadDescriptor((1,), (1,), (0,), value=value) for value in (0.0, -0.0))
    assert plus == minus
    first, second = pybaracuda.PadPlan.select(plus), pybaracuda.PadPlan.select(minus)
    assert first is not second
    for plan, sign in ((first, False), (second, True)):
        output = np.ones(2, np.float32)
        plan.run(input=np.ones(1, np.float32), output=output)
        assert np.signbit(output[0]) == sign


def test_plans_cannot_be_made_or_changed_by_hand() -> None:
    with pytest.raises(TypeError, match="select"):
        pybaracuda.RoiAlignPlan()
    case = plan_cases()["roi_align"]
    plan = case.plan.select(case.descriptor)
    for name in ("backend", "workspace_size", "other"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(plan, name, 1)
    with pytest.raises(TypeError, match="wanted a RoiAlignDescriptor, got a RoiAlignBackwardDescriptor"):
        case.plan.select(plan_cases()["roi_align_backward"].descriptor)


@pytest.mark.parametrize(("descriptor", "error", "text"), [each for record in RECORDS for each in record.bad_problems])
def test_bad_problems_are_refused_at_selection(descriptor: Any, error: type[Exception], text: str) -> None:
    plans = {case.plan.descriptor_type: case.plan for case in plan_cases().values()}
    for _ in range(2):
        with pytest.raises(error, match=text):
            plans[type(descriptor)].select(descriptor)


def test_preferences() -> None:
    case = plan_cases()["roi_align_backward"]
    needed = case.plan.select(case.descriptor).workspace_size
    assert needed > 0
    within = PlanPreference(max_workspace_bytes=needed, allow_sm90a=False)
    assert case.plan.select(case.descriptor, preference=within).preference == within
    with pytest.raises(UNSUPPORTED, match=f"needs {needed} bytes of workspace.*allows {needed - 1}"):
        case.plan.select(case.descriptor, preference=PlanPreference(max_workspace_bytes=needed - 1))
    with pytest.raises(ValueError, match="stream: the CPU backend"):
        case.plan.select(case.descriptor, stream=0, preference=CPU)
    with pytest.raises(ValueError, match="rocm"):
        case.plan.select(case.descriptor, preference=PlanPreference(prefer_backend="rocm"))


def test_a_stream_asks_for_cuda() -> None:
    case = plan_cases()["roi_align"]
    if "library is not installed" in (pybaracuda.backend_problem("cuda") or ""):
        with pytest.raises(pybaracuda.BackendUnavailableError, match="the cuda library is not installed"):
            case.plan.select(case.descriptor, stream=0)
        return
    plan = case.plan.select(case.descriptor, stream=0)
    assert plan.backend == "cuda"
    assert plan is case.plan.select(case.descriptor, stream=7)


# ---- what a plan says about itself


@OPERATOR
@DTYPE
def test_sizes_are_the_librarys(backend: str, name: str, token: str) -> None:
    case = plan_cases(token)[name]
    plan = case.plan.select(case.descriptor, preference=PlanPreference(prefer_backend=backend))
    operator = _abi.OPERATORS[name]
    symbol = Symbol(operator, operator.variants[case.descriptor.variant])
    values: dict[str, Any] = {}
    for parameter in operator.parameters:
        if isinstance(parameter, _abi.Options):
            values |= {
                field.name: getattr(case.descriptor, f"option_{field.name}")
                for field in symbol.fields
                if isinstance(field, _abi.Scalar)  # what pointers point to needs no workspace
            }
        elif not isinstance(parameter, _abi.Tensor):
            value = getattr(case.descriptor, parameter.name)
            values[parameter.name] = list(value) if isinstance(value, tuple) else value
    assert plan.workspace_size == Library(backend).workspace_size(symbol, values)
    call = cases(DTYPES[token])[case.function]
    named, _, _ = tensors_of(case, call)
    for spec in plan.tensors:
        array = named[spec.name]
        assert spec.numel == array.size
        assert spec.nbytes == array.nbytes
        assert spec.is_output == (spec.name in case.outputs)
        assert spec.is_dense


@OPERATOR
@DTYPE
def test_skus_and_guarantees(name: str, token: str) -> None:
    case = plan_cases(token)[name]
    sku = case.plan.select(case.descriptor).sku
    assert sku.op == name
    assert sku.backend == "cpu"
    assert sku.arch in ("x86_64-avx512", "x86_64-avx2", "x86_64-portable")
    assert sku.element == case.descriptor.element
    assert sku.aux_element == case.aux_element
    assert sku.epilogue == "none"
    guarantee = sku.precision_guarantee
    assert guarantee.bit_stable_on_same_hardware
    assert guarantee.deterministic
    assert guarantee.accumulator in ("none", "f64" if token == "f64" else "f32")
    assert guarantee.math_precision in ("exact", "f64" if token == "f64" else "f32")
    assert hash(sku) == hash(case.plan.select(case.descriptor).sku)


def test_a_cuda_sku_names_the_device(on_cuda: str) -> None:
    case = plan_cases()["roi_align"]
    sku = case.plan.select(case.descriptor, preference=PlanPreference(prefer_backend="cuda")).sku
    assert sku.arch.startswith("sm_")
    assert sku.backend == "cuda"


# ---- running


@OPERATOR
@DTYPE
def test_runs_on_arrays_raw_pointers_and_with_a_workspace(name: str, token: str) -> None:
    case = plan_cases(token)[name]
    call = cases(DTYPES[token])[case.function]
    plan = case.plan.select(case.descriptor)
    scratch = np.zeros(plan.workspace_size + 16, np.uint8)
    start = -scratch.ctypes.data % 16
    workspaces: list[Any] = [None, (scratch.ctypes.data + start, plan.workspace_size)]
    if plan.workspace_size:
        workspaces.append(scratch[start : start + plan.workspace_size])
    for workspace in workspaces:
        for raw in (False, True):
            named, outputs, expected = tensors_of(case, call)
            given = {n: (a.ctypes.data, a.nbytes) for n, a in named.items()} if raw else named
            assert plan.can_implement(**given) is True
            assert plan.run(workspace=workspace, **given) is None
            for output, wanted in zip(outputs, expected, strict=True):
                assert_same_bits(output, wanted)


def test_runs_on_every_frameworks_arrays(torch: Any) -> None:
    import jax

    case = plan_cases()["roi_align"]
    named, (output,), (expected,) = tensors_of(case, cases()["roi_align"])
    plan = case.plan.select(case.descriptor)
    plan.run(
        input=jax.device_put(named["input"], jax.devices("cpu")[0]), rois=torch.from_numpy(named["rois"]), output=output
    )
    assert_same_bits(output, expected)


@OPERATOR
def test_runs_on_device_memory(on_cuda: str, name: str) -> None:
    import cupy
    from cuda.core import Device

    case = plan_cases()[name]
    plan = case.plan.select(case.descriptor, preference=PlanPreference(prefer_backend="cuda"))
    named, _, expected = tensors_of(case, cases()[case.function])
    device = Device()
    device.set_current()
    stream = device.create_stream()
    on_device = {n: cupy.asarray(a) for n, a in named.items()}
    buffers = {}
    for n, a in on_device.items():
        buffers[n] = device.memory_resource.allocate(max(a.nbytes, 1), stream=stream)
        stream.sync()
        cupy.cuda.runtime.memcpy(int(buffers[n].handle), a.data.ptr, a.nbytes, 3)
    cupy.cuda.Device().synchronize()
    scratch = cupy.empty(max(plan.workspace_size, 1), cupy.uint8)
    workspace = scratch[: plan.workspace_size] if plan.workspace_size else None
    raw = {n: (a.data.ptr, a.nbytes) for n, a in on_device.items()}
    for given in (on_device, raw, buffers):
        for each in (None, stream):
            plan.run(stream=each, workspace=workspace, **given)
            plan.bind(stream=each, **given)()
            device.sync()
            for output, wanted in zip(case.outputs, expected, strict=True):
                found = on_device[output]
                if given is buffers:
                    found = cupy.empty_like(found)
                    cupy.cuda.runtime.memcpy(found.data.ptr, int(buffers[output].handle), found.nbytes, 3)
                assert_same_bits(cupy.asnumpy(found), wanted)
                on_device[output].fill(0)
    with pytest.raises(ValueError, match="in host memory, the plan runs on cuda"):
        plan.run(**named)
    with pytest.raises(ValueError, match="is in cuda:0, the plan runs on cpu"):
        case.plan.select(case.descriptor).run(**on_device)


@OPERATOR
def test_a_short_tensor_is_refused_in_elements(name: str) -> None:
    case = plan_cases()[name]
    plan = case.plan.select(case.descriptor)
    for spec in plan.tensors:
        named, outputs, _ = tensors_of(case, cases()[case.function])
        before = [output.copy() for output in outputs]
        array = named[spec.name]
        short = np.zeros(spec.numel - 1, array.dtype)
        for given in (short, (short.ctypes.data, short.nbytes), (short.ctypes.data, short.nbytes + array.itemsize - 1)):
            for method in (plan.run, plan.bind, plan.can_implement):
                with pytest.raises(pybaracuda.BufferTooSmallError, match=f"{spec.name} has") as caught:
                    method(**{**named, spec.name: given})
                assert (caught.value.needed, caught.value.got) == (spec.numel, spec.numel - 1)
        for output, untouched in zip(outputs, before, strict=True):
            assert_same_bits(output, untouched)


def test_a_larger_flat_buffer_will_do() -> None:
    case = plan_cases()["roi_align"]
    named, (output,), (expected,) = tensors_of(case, cases()["roi_align"])
    flat = np.concatenate([named["input"].ravel(), np.zeros(9, np.float32)])
    case.plan.select(case.descriptor).run(**{**named, "input": flat})
    assert_same_bits(output, expected)


def test_bad_tensors() -> None:
    case = plan_cases()["roi_align"]
    plan = case.plan.select(case.descriptor)
    named, _, _ = tensors_of(case, cases()["roi_align"])
    frozen = named["output"].copy()
    frozen.flags.writeable = False
    for replaced, error, text in (
        ({"input": named["input"].astype(np.float64)}, TypeError, "input has dtype float64; wanted float32"),
        ({"rois": named["rois"].astype(np.float16)}, TypeError, "rois has dtype float16"),
        ({"output": frozen}, ValueError, "output: the array is read-only"),
        ({"input": np.asfortranarray(named["input"])}, ValueError, "input: the array is not dense"),
        ({"input": [1.0]}, TypeError, "input: wanted an array"),
        ({"extra": named["input"]}, TypeError, "unknown extra"),
    ):
        for method in (plan.run, plan.bind, plan.can_implement):
            with pytest.raises(error, match=text):
                method(**{**named, **replaced})
    missing = {name: array for name, array in named.items() if name != "rois"}
    with pytest.raises(TypeError, match="missing rois; wanted input, rois, output"):
        plan.run(**missing)
    with pytest.raises(TypeError, match="missing rois; unknown boxes"):
        plan.run(**missing, boxes=named["rois"])
    with pytest.raises(ValueError, match="stream: the CPU backend"):
        plan.run(stream=0, **named)


def test_workspaces_that_do_not_fit() -> None:
    case = plan_cases()["roi_align_backward"]
    plan = case.plan.select(case.descriptor)
    named, (output,), _ = tensors_of(case, cases()["roi_align_backward"])
    before = output.copy()
    scratch = np.zeros(plan.workspace_size + 32, np.uint8)
    start = -scratch.ctypes.data % 16
    short = (scratch.ctypes.data + start, plan.workspace_size - 1)
    for workspace in (short, scratch[start : start + plan.workspace_size - 1]):
        for call in (lambda w: plan.run(workspace=w, **named), lambda w: plan.bind(workspace=w, **named)()):
            with pytest.raises(pybaracuda.WorkspaceTooSmallError, match="workspace has") as caught:
                call(workspace)
            assert (caught.value.needed, caught.value.got) == (plan.workspace_size, plan.workspace_size - 1)
    with pytest.raises(pybaracuda.MisalignedOperandError, match="workspace is at"):
        plan.run(workspace=(scratch.ctypes.data + start + 1, plan.workspace_size), **named)
    with pytest.raises(INVALID, match="workspace is NULL"):
        plan.run(workspace=(0, plan.workspace_size), **named)
    assert_same_bits(output, before)


def test_bound_calls_see_new_contents() -> None:
    case = plan_cases()["roi_align"]
    named, (output,), (expected,) = tensors_of(case, cases()["roi_align"])
    bound = case.plan.select(case.descriptor).bind(**named)
    assert bound.plan is case.plan.select(case.descriptor)
    for factor in (1, 2, -4):
        output.fill(np.nan)
        assert bound() is None
        assert_same_bits(output, expected)
        # A power of two: products stay exact.
        named["input"] *= np.float32(2)
        expected = expected * np.float32(2)
        del factor


def test_bound_calls_keep_their_arrays() -> None:
    case = plan_cases()["pad_constant"]
    named, (output,), (expected,) = tensors_of(case, cases()["pad"])
    bound = case.plan.select(case.descriptor).bind(input=named["input"].copy(), output=output)
    trash = [np.full_like(named["input"], 9) for _ in range(50)]
    bound()
    assert_same_bits(output, expected)
    del trash


def test_strided_plans() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    descriptor = pybaracuda.PadDescriptor((4, 3), (1, 0), (0, 2), value=7, input_strides=(1, 4), output_strides=(1, 5))
    plan = pybaracuda.PadPlan.select(descriptor)
    output = np.zeros((5, 5), np.float32).T
    plan.run(input=values.T, output=output)
    assert_same_bits(np.ascontiguousarray(output), np.pad(values.T, ((1, 0), (0, 2)), constant_values=7))
    raw = np.zeros(25, np.float32)
    plan.run(input=(values.ctypes.data, values.nbytes), output=(raw.ctypes.data, raw.nbytes))
    assert_same_bits(raw.reshape(5, 5).T.copy(), np.ascontiguousarray(output))
    with pytest.raises(ValueError, match=r"input has shape \(4, 3\) and strides \(3, 1\)"):
        plan.run(input=np.ascontiguousarray(values.T), output=output)
    with pytest.raises(pybaracuda.BufferTooSmallError) as caught:
        plan.run(input=(values.ctypes.data, values.nbytes - 1), output=output)
    assert (caught.value.needed, caught.value.got) == (12, 11)
