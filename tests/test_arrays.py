# SPDX-License-Identifier: Apache-2.0
"""Array functions and frameworks: every kind of array in, the same kind out, `out=`, layouts, and what is special.

NumPy's results are the reference here; whether they are right is tested with the operators.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from frameworks import DLPackExporters, Framework, jax_in_float64, knows, placed
from function_cases import DTYPE, FUNCTION, cases, listed
from operators.record import numbers
from tolerance import assert_same_bits

import pybaracuda
from verify.dtypes import DTYPES, Array

BF16 = DTYPES["bf16"]


# ---- the same kind, the same bits


@FUNCTION
@DTYPE
def test_every_framework_gets_its_own_kind_and_the_same_bits(framework: Framework, name: str, token: str) -> None:
    if not knows(framework, DTYPES[token]):
        return
    case = cases(DTYPES[token])[name]
    arrays = placed(framework, case)
    results = listed(case(**arrays))
    expected = listed(case())
    assert len(results) == len(expected) == case.outputs
    for result, wanted in zip(results, expected, strict=True):
        assert framework.owns(result)
        assert_same_bits(framework.values(result), wanted)
    for array, values in zip(arrays.values(), case.arrays.values(), strict=True):
        assert_same_bits(framework.values(array), values)


@FUNCTION
def test_out_is_the_output(framework: Framework, name: str) -> None:
    case = cases()[name]
    arrays = placed(framework, case)
    expected = listed(case())
    outs = [framework.poisoned(wanted) if framework.takes_out else wanted.copy() for wanted in expected]
    given = tuple(outs) if case.outputs > 1 else outs[0]
    if not framework.takes_out:
        with pytest.raises(TypeError, match=r"out.*immutable"):
            case(out=given, **arrays)
        return
    if isinstance(framework, DLPackExporters):
        # What NumPy imports is read-only where the producer does not say otherwise; ours says so through NumPy.
        given = tuple(out.array for out in outs) if case.outputs > 1 else outs[0].array
    pointers = [framework.pointer(out) for out in outs]
    results = listed(case(out=given, **arrays))
    for result, out, pointer, wanted in zip(results, listed(given), pointers, expected, strict=True):
        assert result is out
        assert framework.pointer(result) == pointer
        assert_same_bits(framework.values(result), wanted)


def test_out_may_be_given_for_one_gradient_of_two() -> None:
    case = cases()["grid_sample_backward"]
    expected = case()
    for position in range(2):
        target = np.full_like(expected[position], 99)
        outs = [None, None]
        outs[position] = target
        results = case(out=tuple(outs))
        assert results[position] is target
        for result, wanted in zip(results, expected, strict=True):
            assert_same_bits(result, wanted)
    with pytest.raises(TypeError, match="out: wanted a pair"):
        case(out=expected[0])


def test_frameworks_on_one_device_may_be_mixed(torch: Any) -> None:
    case = cases()["roi_align"]
    tensor = torch.from_numpy(case.arrays["input"])
    result = case(input=tensor)
    assert type(result) is torch.Tensor
    assert_same_bits(result.numpy(), case())
    target = np.empty_like(case())
    assert case(input=tensor, out=target) is target
    assert_same_bits(target, case())


# ---- strides, alignment, read-only


def layouts(values: Array) -> Iterator[tuple[str, Array]]:
    """Equal arrays in other layouts."""
    yield "fortran", np.asfortranarray(values)
    wide = np.zeros((*values.shape[:-1], values.shape[-1] * 2 + 1), values.dtype)
    wide[..., 1::2] = values
    yield "every second", wide[..., 1::2]
    yield "reversed", values[::-1].copy()[::-1]
    # A field of one element is dense memory that is not aligned, which the C functions refuse.
    if values.dtype != BF16 and values.size > 1:
        fields = np.zeros(values.shape, np.dtype([("tag", np.uint8), ("value", values.dtype)]))
        fields["value"] = values
        yield "field", fields["value"]
    readonly = values.copy()
    readonly.flags.writeable = False
    yield "read-only", readonly


@FUNCTION
@pytest.mark.parametrize("token", ["f32", "bf16"])
def test_numpy_inputs_of_any_layout(name: str, token: str) -> None:
    case = cases(DTYPES[token])[name]
    expected = listed(case())
    for argument, values in case.arrays.items():
        for layout, array in layouts(values):
            results = listed(case(**{argument: array}))
            for result, wanted in zip(results, expected, strict=True):
                assert_same_bits(result, wanted), (argument, layout)


@FUNCTION
def test_torch_inputs_of_any_layout(torch: Any, name: str) -> None:
    case = cases()[name]
    expected = listed(case())
    for argument, values in case.arrays.items():
        backwards = tuple(range(values.ndim))[::-1]
        strided = torch.from_numpy(values.transpose(backwards).copy()).permute(*backwards)
        arrays = {each: torch.from_numpy(array) for each, array in case.arrays.items()}
        results = listed(case(**{**arrays, argument: strided}))
        for result, wanted in zip(results, expected, strict=True):
            assert_same_bits(result.numpy(), wanted)


def test_strided_device_views_are_copied(on_cuda: str) -> None:
    import cupy
    from cuda.core.utils import StridedMemoryView

    for name in ("roi_align", "unsorted_segment_max_backward"):
        case = cases()[name]
        arrays = {}
        for argument, values in case.arrays.items():
            transposed = cupy.asarray(np.ascontiguousarray(values.T)).T
            arrays[argument] = StridedMemoryView.from_any_interface(transposed, stream_ptr=-1)
        assert_same_bits(cupy.asnumpy(cupy.from_dlpack(case(**arrays))), case())


def test_an_unaligned_array_is_refused_by_the_library() -> None:
    case = cases()["roi_align"]
    values = case.arrays["input"]
    unaligned = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:].view(np.float32).reshape(values.shape)
    with pytest.raises(pybaracuda.MisalignedOperandError, match="input is at"):
        case(input=unaligned)


def test_memory_mapped_and_subclassed_arrays(tmp_path: Any) -> None:
    case = cases()["roi_align"]
    values = case.arrays["input"]
    path = tmp_path / "input.bin"
    values.tofile(path)
    mapped = np.memmap(path, values.dtype, "r", shape=values.shape)
    result = case(input=mapped)
    assert type(result) is np.ndarray
    assert_same_bits(result, case())


def test_pad_may_write_strided_outputs() -> None:
    for name in ("pad", "pad_backward"):
        case = cases()[name]
        expected = case()
        target = np.full(expected.shape[::-1], 99, expected.dtype).T
        assert case(out=target) is target
        assert_same_bits(np.ascontiguousarray(target), expected)
        spread = np.full((*expected.shape[:-1], expected.shape[-1] * 2), 99, expected.dtype)
        case(out=spread[..., ::2])
        assert_same_bits(np.ascontiguousarray(spread[..., ::2]), expected)
        assert (spread[..., 1::2] == 99).all()


# ---- what is special about one framework


def test_torch_tensors_that_require_grad(torch: Any) -> None:
    case = cases()["roi_align"]
    tensor = torch.from_numpy(case.arrays["input"].copy()).requires_grad_()
    result = case(input=tensor)
    assert not result.requires_grad
    assert_same_bits(result.numpy(), case())
    parameter = torch.nn.Parameter(torch.from_numpy(case.arrays["input"].copy()))
    strided = torch.from_numpy(case.arrays["input"].transpose(3, 2, 1, 0).copy()).requires_grad_().permute(3, 2, 1, 0)
    for each in (parameter, strided):
        result = case(input=each)
        assert type(result) is torch.Tensor
        assert not result.requires_grad
        assert_same_bits(result.numpy(), case())
    target = torch.empty(result.shape, requires_grad=True)
    with pytest.raises(ValueError, match="out: the tensor requires grad"):
        case(input=tensor, out=target)


def test_torch_notices_that_out_was_written(torch: Any) -> None:
    case = cases()["roi_align"]
    target = torch.ones(3, 3, 2, 3)
    weight = torch.ones(3, 3, 2, 3, requires_grad=True)
    loss = (weight * target).sum()
    case(out=target)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_torch_tensors_without_plain_memory(torch: Any) -> None:
    case = cases()["roi_align"]
    dense = torch.from_numpy(case.arrays["input"])
    with pytest.raises(TypeError, match="input: the tensor's layout is"):
        case(input=dense.to_sparse())
    with pytest.raises(ValueError, match="input: the tensor is on device meta"):
        case(input=dense.to("meta"))
    conjugate = torch.zeros(2, 3, 6, 7, dtype=torch.complex64).conj()
    with pytest.raises(TypeError, match=r"input: .*conjugate"):
        case(input=conjugate)
    with pytest.raises(TypeError, match=r"input: .*negative bit"):
        case(input=conjugate.imag)
    with pytest.raises(TypeError, match="input has dtype complex64"):
        case(input=torch.zeros(2, 3, 6, 7, dtype=torch.complex64))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(2, 3, 6, 7)
    with pytest.raises(TypeError, match="input: a FakeTensor has no plain memory"):
        case(input=fake)


def test_jax_tracers_are_refused() -> None:
    case = cases()["roi_align"]
    for transform in (jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())):
        with pytest.raises(TypeError, match=r"input: a JAX tracer has no data; use pybaracuda\.jax"):
            transform(lambda x: case(input=x))(jnp.asarray(case.arrays["input"]))


def test_jax_results_are_usable_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    from pybaracuda._arrays.jax import JaxAdapter

    addresses = []
    empty = JaxAdapter.empty

    def recorded(*arguments: Any) -> Any:
        pointer, memory = empty(*arguments)
        addresses.append(pointer)
        return pointer, memory

    monkeypatch.setattr(JaxAdapter, "empty", recorded)
    for dtype in DTYPES.values():
        case = cases(dtype)["roi_align"]
        with jax_in_float64():
            arrays = {name: jax.device_put(values, jax.devices("cpu")[0]) for name, values in case.arrays.items()}
        # 64-bit arrays keep their dtype also where JAX's 64-bit mode is off.
        result = case(**arrays)
        assert result.unsafe_buffer_pointer() == addresses[-1]
        assert result.dtype == dtype
        assert_same_bits(np.asarray(result), case())
        assert float((result.astype(jnp.float32) * 2).sum()) == pytest.approx(
            float(2 * case().astype(np.float32).sum())
        )


def test_a_deleted_jax_array_is_refused() -> None:
    case = cases()["roi_align"]
    array = jnp.asarray(case.arrays["input"])
    array.delete()
    with pytest.raises(ValueError, match=r"input: .*deleted"):
        case(input=array)


def test_a_class_made_on_the_fly_is_recognised_once_each() -> None:
    from pybaracuda._arrays import recognition

    case = cases()["affine_grid"]
    for number in range(600):
        subclass = type(f"Array{number}", (np.ndarray,), {})
        case(theta=case.arrays["theta"].view(subclass))
    assert len(recognition._ADAPTERS) <= 256


def test_results_outlive_their_inputs() -> None:
    kept = []
    for _ in range(100):
        case = cases()["pad"]
        kept.append((case(), case))
    for result, case in kept:
        assert_same_bits(result, case())


def test_empty_arrays() -> None:
    none = np.zeros((0, 5), np.float32)
    assert pybaracuda.roi_align(numbers((2, 3, 6, 7)), none, 2).shape == (0, 3, 2, 2)
    gradient = pybaracuda.roi_align_backward(np.zeros((0, 3, 2, 2), np.float32), none, (2, 3, 6, 7))
    assert gradient.shape == (2, 3, 6, 7)
    assert not gradient.any()
    assert pybaracuda.pad(np.zeros((0, 2), np.float32), (1, 0), (1, 0), value=3).tolist() == [[3, 3], [3, 3]]
    assert pybaracuda.unsorted_segment_max(np.zeros((0, 2), np.float32), np.zeros(0, np.int32), 2).tolist() == [
        [-np.inf, -np.inf],
        [-np.inf, -np.inf],
    ]
    empty = pybaracuda.dequantize_per_channel(
        np.zeros((2, 0), np.int8), np.zeros(0, np.float32), np.zeros(0, np.int32), 1
    )
    assert empty.shape == (2, 0)


def test_dequantize_of_many_axes() -> None:
    values = (np.arange(2 * 3 * 2 * 2 * 3 * 2) % 256 - 128).astype(np.int8).reshape(2, 3, 2, 2, 3, 2)
    for axis in range(-6, 6):
        count = values.shape[axis]
        scale, zero = np.arange(1, count + 1, dtype=np.float32) / 4, np.arange(count, dtype=np.int32)
        shape = [1] * 6
        shape[axis] = count
        wanted = (values - zero.reshape(shape)).astype(np.float32) * scale.reshape(shape)
        assert_same_bits(pybaracuda.dequantize_per_channel(values, scale, zero, axis), wanted)
        gradient = pybaracuda.dequantize_per_channel_backward(wanted, scale, axis)
        assert_same_bits(gradient, wanted * scale.reshape(shape))


def test_pointers_are_the_arrays_own() -> None:
    # What the fast way to an address answers, for every NumPy dtype that has it.
    from pybaracuda import _arrays, _dtypes

    for token, name in _dtypes.DTYPE_NAMES.items():
        array = np.zeros(3, BF16 if token == "bf16" else name)
        for each in (array, array[1:], np.zeros(0, array.dtype)):
            operand = _arrays.read("array", each)
            assert operand.dtype == token
            assert operand.pointer == each.ctypes.data
            assert not operand.read_only
    assert ctypes.sizeof(ctypes.c_void_p) == 8
