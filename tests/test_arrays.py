# SPDX-License-Identifier: Apache-2.0
"""Array functions and frameworks: every kind of array in, the same kind out, `out=`, layouts, conversions, streams.

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
from frameworks import CUDA_FRAMEWORKS, HOST_FRAMEWORKS, DLPackExporters, Framework, framework_of, jax_in_float64, knows
from function_cases import DTYPE, FUNCTION, Case, cases, listed, numbers
from place import DTYPES, available
from tolerance import Array, assert_canonical_nans, assert_same_bits

import pybaracuda

BF16 = DTYPES["bf16"]


@pytest.fixture(params=[*HOST_FRAMEWORKS, *CUDA_FRAMEWORKS])
def framework(request: pytest.FixtureRequest) -> Framework:
    name = str(request.param)
    if name in CUDA_FRAMEWORKS and not pybaracuda.backend_available("cuda"):
        pytest.skip("no CUDA")
    if name in ("torch", "torch-cuda") and not available("torch"):
        pytest.skip("no torch")
    return framework_of(name)


def placed(framework: Framework, case: Case) -> dict[str, Any]:
    return {name: framework.make(values) for name, values in case.arrays.items()}


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
    if values.dtype != BF16:
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


def test_strided_device_views_are_copied(backend: str) -> None:
    if backend == "cpu":
        return
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


# ---- conversions


@pytest.mark.parametrize("token", ["f16", "bf16"])
def test_narrow_coordinates_are_widened_and_their_gradients_narrowed(framework: Framework, token: str) -> None:
    narrow = DTYPES[token]
    if not knows(framework, narrow) or framework.name in ("cuda.core", "cuda-array-interface"):
        return
    for name, argument in (
        ("roi_align", "boxes"),
        ("roi_align_backward", "boxes"),
        ("grid_sample", "grid"),
        ("grid_sample_backward", "grid"),
        ("affine_grid", "theta"),
        ("affine_grid_backward", "grad_grid"),
        ("dequantize_per_channel_backward", "scale"),
    ):
        for dtype in (narrow, np.dtype(np.float32), np.dtype(np.float64)):
            if "scale" in argument and dtype == narrow:
                continue
            case = cases(dtype)[name]
            rounded = case.arrays[argument].astype(narrow)
            wide = np.float64 if dtype == np.float64 and not name.startswith("affine") else np.float32
            expected = listed(case(**{argument: rounded.astype(wide)}))
            arrays = placed(framework, case)
            results = listed(case(**{**arrays, argument: framework.make(rounded)}))
            if name == "grid_sample_backward":
                expected[1] = expected[1].astype(narrow)
            if name.startswith("affine_grid"):
                expected[0] = expected[0].astype(narrow)
            for result, wanted in zip(results, expected, strict=True):
                assert_same_bits(framework.values(result), wanted)


def test_a_narrowed_gradient_goes_into_out() -> None:
    case = cases()["grid_sample_backward"]
    grid = case.arrays["grid"].astype(np.float16)
    expected = case(grid=grid)
    outs = tuple(np.full_like(each, 9) for each in expected)
    results = case(grid=grid, out=outs)
    for result, out, wanted in zip(results, outs, expected, strict=True):
        assert result is out
        assert_same_bits(out, wanted)
    with pytest.raises(TypeError, match=r"out\[1\] has dtype float32; wanted float16"):
        case(grid=grid, out=(None, np.empty(grid.shape, np.float32)))


@pytest.mark.parametrize("token", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nan_in_a_narrowed_result_is_the_canonical_one(framework: Framework, token: str, bad: float) -> None:
    """Every framework's own converter makes another NaN."""
    narrow = DTYPES[token]
    if not knows(framework, narrow) or framework.name in ("cuda.core", "cuda-array-interface"):
        return
    names = {"affine_grid": "theta", "affine_grid_backward": "grad_grid", "grid_sample_backward": "grid"}
    if token == "f32":
        names = {"grid_sample_backward": "grid"}  # float64 data with a float32 grid
    for name, argument in names.items():
        case = cases(np.float64 if token == "f32" else np.float32)[name]
        given = {**case.arrays, argument: case.arrays[argument].astype(narrow)}
        spoiled = "grad_output" if name == "grid_sample_backward" else argument
        # Enough of them for a vectorised converter; half, since an infinite sum of both signs is a NaN too.
        given[spoiled] = given[spoiled].copy()
        given[spoiled].reshape(-1)[::2] = bad
        with np.errstate(all="ignore"):
            expected = listed(case(**given))
        assert expected[-1].dtype == narrow
        assert np.isnan(expected[-1]).sum() > 2
        assert_canonical_nans(expected[-1])
        arrays = {each: framework.make(values) for each, values in given.items()}
        for result, wanted in zip(listed(case(**arrays)), expected, strict=True):
            assert_same_bits(framework.values(result), wanted)
        if framework.takes_out and not isinstance(framework, DLPackExporters):
            outs = [framework.poisoned(wanted) for wanted in expected]
            case(out=tuple(outs) if case.outputs > 1 else outs[0], **arrays)
            for out, wanted in zip(outs, expected, strict=True):
                assert_same_bits(framework.values(out), wanted)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integer_ids_and_zero_points_of_any_width(framework: Framework, dtype: Any) -> None:
    for name, argument in (
        ("unsorted_segment_max", "segment_ids"),
        ("unsorted_segment_max_backward", "segment_ids"),
        ("dequantize_per_channel", "zero_point"),
    ):
        if argument == "zero_point" and dtype in (np.uint32, np.uint64):
            continue
        if framework.name in ("cuda.core", "cuda-array-interface") and dtype not in (np.int32, np.int64):
            continue
        if framework.name in ("cuda.core", "cuda-array-interface") and argument == "zero_point" and dtype != np.int32:
            continue
        case = cases()[name]
        values = np.abs(case.arrays[argument]).astype(dtype)
        expected = case(**{argument: values.astype(np.int32)})
        arrays = placed(framework, case)
        assert_same_bits(framework.values(case(**{**arrays, argument: framework.make(values)})), expected)


def test_huge_unsigned_ids_are_dropped() -> None:
    case = cases()["unsorted_segment_max"]
    ids = np.array([1, 2**64 - 1, 3, 1, 2**63, 2**32 + 1, 0], np.uint64)
    expected = case(segment_ids=np.array([1, -1, 3, 1, -1, -1, 0]))
    assert_same_bits(case(segment_ids=ids), expected)


def test_segment_max_of_any_rank() -> None:
    rows = numbers((7, 2, 3))
    ids = np.array([1, 0, 3, 1, 7, -1, 0])
    result = pybaracuda.unsorted_segment_max(rows, ids, 4)
    assert_same_bits(result, pybaracuda.unsorted_segment_max(rows.reshape(7, 6), ids, 4).reshape(4, 2, 3))
    line = pybaracuda.unsorted_segment_max(rows[:, 0, 0], ids, 4)
    assert_same_bits(line, np.ascontiguousarray(result[:, 0, 0]))
    gradient = pybaracuda.unsorted_segment_max_backward(numbers((4, 2, 3)), rows, ids)
    assert gradient.shape == rows.shape


def test_float64_takes_the_scale_in_float32() -> None:
    case = cases(np.float64)["roi_align"]
    scale = 0.1
    result = pybaracuda.roi_align(**case.arrays, output_size=2, spatial_scale=scale)
    rounded = pybaracuda.roi_align(**case.arrays, output_size=2, spatial_scale=float(np.float32(scale)))
    assert_same_bits(result, rounded)


# ---- boxes by image


def test_boxes_may_come_one_array_per_image(framework: Framework) -> None:
    if framework.name in ("cuda.core", "cuda-array-interface", "dlpack"):
        return
    per_image = [numbers((3, 4)) / 4, np.zeros((0, 4), np.float32), numbers((2, 4)) / 3]
    joined = np.concatenate([np.insert(each, 0, index, axis=1) for index, each in enumerate(per_image)])
    image = numbers((3, 2, 6, 7))
    options: dict[str, Any] = {"output_size": 2, "sampling_ratio": 2}
    expected = pybaracuda.roi_align(image, joined.astype(np.float32), **options)
    for kind in (list, tuple):
        boxes = kind(framework.make(each) for each in per_image)
        result = pybaracuda.roi_align(framework.make(image), boxes, **options)
        assert framework.owns(result)
        assert_same_bits(framework.values(result), expected)
        gradient = pybaracuda.roi_align_backward(framework.make(expected), boxes, image.shape, sampling_ratio=2)
        wanted = pybaracuda.roi_align_backward(expected, joined.astype(np.float32), image.shape, sampling_ratio=2)
        assert_same_bits(framework.values(gradient), wanted)
    empty = pybaracuda.roi_align(framework.make(image), [], **options)
    assert framework.values(empty).shape == (0, 2, 2, 2)


@pytest.mark.parametrize("token", ["f16", "bf16"])
def test_an_image_index_is_exact_whatever_the_boxes_dtype(token: str) -> None:
    # 257 is the first integer that bfloat16 rounds, 2049 the first that float16 does.
    count = 2050
    image = np.arange(count, dtype=np.float32).reshape(count, 1, 1, 1)
    boxes = [np.zeros((0, 4), DTYPES[token]) for _ in range(count)]
    boxes[257] = boxes[2049] = np.array([[0, 0, 1, 1]], DTYPES[token])
    result = pybaracuda.roi_align(image, boxes, 1, sampling_ratio=1)
    assert result.ravel().tolist() == [257, 2049]


# ---- pads


def numpy_pad(values: Array, low: tuple[int, ...], high: tuple[int, ...], value: float) -> Array:
    """Crop by negative pads, then pad."""
    part = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(values.shape, low, high, strict=True))
    widths = [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]
    return np.pad(values[part], widths, constant_values=np.array(value).astype(values.dtype))


PADS = [((-1, 2), (1, -2)), ((-2, -1), (-1, -1)), ((0, -5), (0, 3)), ((3, 0), (-4, 0)), ((-4, 0), (6, 0))]


@pytest.mark.parametrize(("low", "high"), PADS, ids=str)
@DTYPE
def test_negative_pads_crop_first(low: tuple[int, ...], high: tuple[int, ...], token: str) -> None:
    values = numbers((4, 5), DTYPES[token])
    for array in (values, np.asfortranarray(values), values[::-1], values[:, ::-1]):
        result = pybaracuda.pad(array, low, high, value=2.5)
        assert_same_bits(result, numpy_pad(array, low, high, 2.5))
    # <pad(x), g> = <x, pad_backward(g)>, exactly: these are small integers over 4.
    wide = values.astype(np.float64)
    output = pybaracuda.pad(wide, low, high)
    grad_output = numbers(output.shape, np.float64)
    grad_input = pybaracuda.pad_backward(grad_output, low, high)
    assert grad_input.shape == wide.shape
    assert np.sum(output * grad_output) == np.sum(wide * grad_input)


def test_one_pad_for_every_axis_and_no_axis_at_all() -> None:
    values = numbers((2, 3))
    assert_same_bits(pybaracuda.pad(values, 1, 2), numpy_pad(values, (1, 1), (2, 2), 0))
    assert_same_bits(pybaracuda.pad(np.float32([[4]]).reshape(()), (), ()), np.array(4, np.float32))
    assert pybaracuda.pad_backward(np.array(4, np.float32), (), ()) == 4


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, -1e40, float("inf"), float("nan"), 0.1, 65520.0, 1 + 2**-9])
@DTYPE
def test_the_padding_value_is_rounded_to_the_dtype(value: float, token: str) -> None:
    dtype = DTYPES[token]
    result = pybaracuda.pad(np.zeros(1, dtype), 1, 0, value=value)
    with np.errstate(over="ignore"):
        # As torch does: through float32 to bfloat16.
        wanted = np.float32(value).astype(dtype) if token == "bf16" else np.array(value).astype(dtype)
    if np.isnan(value):
        assert np.isnan(result[0])
    else:
        assert_same_bits(result[:1], np.array([wanted], dtype))


def test_the_sign_of_a_zero_value_is_not_lost_in_a_cache() -> None:
    values = np.ones(1, np.float32)
    for value in (0.0, -0.0, 0.0, -0.0):
        assert np.signbit(pybaracuda.pad(values, 1, 0, value=value)[0]) == np.signbit(value)


@pytest.mark.parametrize(
    ("low", "high"), [((-5, 0), (0, 0)), ((-3, 0), (-2, 0)), ((0, 0), (3, -6)), ((-6, 0), (9, 0))], ids=str
)
def test_cropping_more_than_there_is(low: tuple[int, ...], high: tuple[int, ...]) -> None:
    with pytest.raises(pybaracuda.InvalidProblemError, match="crop below 0"):
        pybaracuda.pad(numbers((4, 5)), low, high)


# ---- streams


@FUNCTION
def test_host_arrays_take_no_stream(name: str) -> None:
    for stream in (0, 1, object()):
        with pytest.raises(ValueError, match=r"stream: .* host memory"):
            cases()[name](stream=stream)


def test_streams_of_every_kind(backend: str) -> None:
    if backend == "cpu":
        return
    import cupy
    from cuda.core import Device

    case = cases()["roi_align"]
    arrays = {name: cupy.asarray(values) for name, values in case.arrays.items()}
    cupy.cuda.Device().synchronize()
    expected = case()
    device = Device()
    device.set_current()
    ours = device.create_stream()
    theirs = cupy.cuda.Stream(non_blocking=True)
    for stream in (None, 0, 1, 2, int(ours.handle), ours, theirs):
        result = case(**arrays, stream=stream)
        cupy.cuda.Device().synchronize()
        assert_same_bits(cupy.asnumpy(result), expected)
    with theirs:
        result = case(**arrays)
        assert_same_bits(cupy.asnumpy(result), expected)
    for stream, error in (("0", TypeError), (1.5, TypeError), (True, TypeError), (-1, ValueError)):
        with pytest.raises(error, match="stream: "):
            case(**arrays, stream=stream)


def test_a_torch_stream_orders_conversions_too(backend: str, torch: Any) -> None:
    if backend == "cpu":
        return
    case = cases(np.float16)["grid_sample_backward"]
    expected = case(grid=case.arrays["grid"].astype(np.float16))
    tensors = {name: torch.from_numpy(values).cuda() for name, values in case.arrays.items()}
    tensors["grid"] = tensors["grid"].half()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for stream in (side, side.cuda_stream):
        results = case(**tensors, stream=stream)
        side.synchronize()
        for result, wanted in zip(results, expected, strict=True):
            assert_same_bits(result.cpu().numpy(), wanted)
    with torch.cuda.stream(side):
        results = case(**tensors)
    side.synchronize()
    for result, wanted in zip(results, expected, strict=True):
        assert_same_bits(result.cpu().numpy(), wanted)


def test_arrays_on_different_devices(backend: str, torch: Any) -> None:
    if backend == "cpu":
        return
    case = cases()["roi_align"]
    on_device = torch.from_numpy(case.arrays["input"]).cuda()
    with pytest.raises(ValueError, match="boxes is in host memory, input is on cuda:0"):
        case(input=on_device)
    with pytest.raises(ValueError, match="boxes is on cuda:0, input is in host memory"):
        case(boxes=torch.from_numpy(case.arrays["boxes"]).cuda())
    with pytest.raises(ValueError, match="out is on cuda:0, input is in host memory"):
        case(out=torch.empty(3, 3, 2, 3).cuda())


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
        with pytest.raises(TypeError, match="input: a JAX tracer has no data"):
            transform(lambda x: case(input=x))(jnp.asarray(case.arrays["input"]))


def test_jax_results_are_usable_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    from pybaracuda import _arrays_jax

    addresses = []
    empty = _arrays_jax.JaxAdapter.empty

    def recorded(*arguments: Any) -> Any:
        pointer, memory = empty(*arguments)
        addresses.append(pointer)
        return pointer, memory

    monkeypatch.setattr(_arrays_jax.JaxAdapter, "empty", recorded)
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
    from pybaracuda import _arrays

    case = cases()["affine_grid"]
    for number in range(600):
        subclass = type(f"Array{number}", (np.ndarray,), {})
        case(theta=case.arrays["theta"].view(subclass))
    assert len(_arrays._ADAPTERS) <= 256


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
    from pybaracuda import _arrays

    for token, name in _arrays.DTYPE_NAMES.items():
        array = np.zeros(3, BF16 if token == "bf16" else name)
        for each in (array, array[1:], np.zeros(0, array.dtype)):
            operand = _arrays.read("array", each)
            assert operand.dtype == token
            assert operand.pointer == each.ctypes.data
            assert not operand.read_only
    assert ctypes.sizeof(ctypes.c_void_p) == 8
