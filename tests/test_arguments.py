# SPDX-License-Identifier: Apache-2.0
"""What array functions refuse, naming the argument: kinds, dtypes, shapes, options, outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from function_cases import FUNCTION, cases, listed, numbers
from tolerance import assert_same_bits

import pybaracuda
from verify.dtypes import Array


class Refusal(NamedTuple):
    """A call that must fail: which arguments are replaced, the class and what its text says."""

    name: str
    replaced: dict[str, Any]
    error: type[Exception]
    text: str


def takes_any_rank(name: str, argument: str, arrays: dict[str, Array]) -> bool:
    """Dequantization does, and what is done with segments where no other array says which rank it is."""
    of_segments = len(arrays) == 2 and not arrays.keys().isdisjoint({"segment_ids", "offsets"})
    return argument in ("input", "grad_output") and (name.startswith("dequantize") or of_segments)


def _refusals() -> Iterator[Refusal]:
    dims = {name: case.arrays for name, case in cases().items()}
    for name, arrays in dims.items():
        for argument, values in arrays.items():
            yield Refusal(
                name, {argument: values.tolist()}, TypeError, rf"{argument}(\[0\])?: wanted an array .* got list"
            )
            if argument != "arg":  # None is its default
                yield Refusal(name, {argument: None}, TypeError, f"{argument}: wanted an array .* got NoneType")
            yield Refusal(name, {argument: 3.0}, TypeError, f"{argument}: wanted an array .* got float")
            masked = np.ma.masked_array(values, values == 0)
            yield Refusal(name, {argument: masked}, TypeError, f"{argument}: a masked array")
            if values.dtype.itemsize > 1:
                swapped = values.astype(values.dtype.newbyteorder(">"))
                yield Refusal(name, {argument: swapped}, TypeError, f"{argument} has dtype .* foreign byte order")
            yield Refusal(name, {argument: values.astype(object)}, TypeError, f"{argument} has dtype object")
            if not name.startswith("pad"):
                if not takes_any_rank(name, argument, arrays):
                    yield Refusal(name, {argument: values[..., None]}, ValueError, "has shape")
                yield Refusal(
                    name, {argument: values.astype(np.complex64)}, TypeError, f"{argument} has dtype complex64"
                )
            elif name.endswith("backward"):
                for dtype in (np.int32, np.uint8, np.bool_, np.complex64):
                    yield Refusal(
                        name, {argument: values.astype(dtype)}, TypeError, f"{argument} has dtype .*; wanted float"
                    )
            else:
                yield Refusal(name, {argument: values.astype("m8[s]")}, TypeError, f"{argument} has dtype timedelta64")
    integers = {
        "roi_align": ("input", "boxes"),
        "roi_align_backward": ("grad_output", "boxes"),
        "grid_sample": ("input", "grid"),
        "grid_sample_backward": ("grad_output", "input", "grid"),
        "affine_grid": ("theta",),
        "affine_grid_backward": ("grad_grid",),
        "dequantize_per_channel": ("scale",),
        "dequantize_per_channel_backward": ("grad_output", "scale"),
        "unsorted_segment_max_backward": ("grad_output",),
    }
    for name, arguments in integers.items():
        for argument in arguments:
            values = np.zeros(dims[name][argument].shape, np.int32)
            yield Refusal(name, {argument: values}, TypeError, f"{argument} has dtype int32; wanted float")
    for name in (name for name, arrays in dims.items() if "segment_ids" in arrays or "offsets" in arrays):
        arrays = dims[name]
        index = "segment_ids" if "segment_ids" in arrays else "offsets"
        for dtype in (np.float32, np.bool_):
            given = arrays[index].astype(dtype)
            yield Refusal(name, {index: given}, TypeError, f"{index} has dtype .*wanted int")
        leading = next(argument for argument in ("input", "output", "grad_output") if argument in arrays)
        # What exists for int32 as well, does not for int16.
        of_integers = re.fullmatch(r".*segment_((sum|max|min|prod).*(?<!backward)|csr_with_arg)", name)
        values = arrays[leading].astype(np.int16 if of_integers else np.int32)
        yield Refusal(name, {leading: values}, pybaracuda.UnsupportedError, f"{leading} has dtype .* not wired yet")
    for name in ("segment_prod_backward", "segment_softmax_backward", "segment_max_with_arg_backward"):
        arrays = dims[name]
        others = [argument for argument in arrays if argument not in ("segment_ids", "input")]
        for argument in others[:2]:
            yield Refusal(name, {argument: arrays[argument][:-1]}, ValueError, "has shape")
    for dtype, error in ((np.int16, pybaracuda.UnsupportedError), (np.float32, TypeError), (np.bool_, TypeError)):
        values = np.zeros((2, 3, 4), dtype)
        yield Refusal("dequantize_per_channel", {"input": values}, error, "input has dtype")
    yield Refusal("dequantize_per_channel", {"zero_point": np.zeros(3, np.float32)}, TypeError, "zero_point has dtype")
    # A wider dtype than the operator works in would be narrowed silently.
    for name, argument in (
        ("roi_align", "boxes"),
        ("grid_sample", "grid"),
        ("dequantize_per_channel_backward", "scale"),
    ):
        values = dims[name][argument].astype(np.float64)
        yield Refusal(name, {argument: values}, TypeError, f"{argument} has dtype float64; wanted float32")
    for name in ("grid_sample_backward", "unsorted_segment_max_backward"):
        values = dims[name]["grad_output"].astype(np.float64)
        yield Refusal(
            name, {"grad_output": values}, TypeError, "grad_output has dtype float64; wanted float32, the dtype"
        )
    image, grid = dims["grid_sample"]["input"], dims["grid_sample"]["grid"]
    yield Refusal("grid_sample", {"grid": grid[:1]}, ValueError, "grid has shape .*input has 2 images")
    yield Refusal("roi_align", {"input": image[0]}, ValueError, r"input has shape \(3, 6, 7\); wanted \[N, C, H, W\]")
    yield Refusal("roi_align_backward", {"grad_output": numbers((4, 3, 2, 3))}, ValueError, "grad_output has shape")


REFUSALS = list(_refusals())


@pytest.mark.parametrize(
    "refusal", REFUSALS, ids=[f"{r.name}-{'-'.join(r.replaced)}-{i}" for i, r in enumerate(REFUSALS)]
)
def test_bad_arrays(refusal: Refusal) -> None:
    case = cases()[refusal.name]
    with pytest.raises(refusal.error, match=refusal.text):
        case(**refusal.replaced)


@pytest.mark.parametrize(
    ("name", "option", "value", "error", "text"),
    [
        ("roi_align", "output_size", (1, 2, 3), ValueError, "output_size has 3 entries"),
        ("roi_align", "output_size", 2.0, TypeError, "output_size: wanted an int"),
        ("roi_align", "output_size", (2, "3"), TypeError, "output_size: wanted an int"),
        ("roi_align", "output_size", -1, pybaracuda.InvalidProblemError, "pooled_h is -1"),
        ("roi_align", "output_size", 2**31, pybaracuda.InvalidProblemError, "pooled_h is 2147483648"),
        ("roi_align", "spatial_scale", "1", TypeError, "spatial_scale: wanted a number"),
        ("roi_align", "spatial_scale", float("nan"), pybaracuda.InvalidProblemError, "spatial_scale is"),
        ("roi_align", "spatial_scale", 1e300, pybaracuda.InvalidProblemError, "spatial_scale is inf"),
        ("roi_align", "sampling_ratio", 2.5, TypeError, "sampling_ratio: wanted an int"),
        ("roi_align", "sampling_ratio", 2**20 + 1, pybaracuda.InvalidProblemError, "sampling_ratio is 1048577"),
        ("roi_align", "aligned", "yes", TypeError, "aligned: wanted a bool"),
        ("roi_align_backward", "input_shape", (2, 3, 6), ValueError, "input_shape is"),
        ("roi_align_backward", "input_shape", 5, TypeError, "input_shape: wanted a sequence of int"),
        ("roi_align_backward", "input_shape", (2, 4, 6, 7), ValueError, "grad_output has shape"),
        ("roi_align_backward", "input_shape", (2, 3, -6, 7), pybaracuda.InvalidProblemError, "h is -6"),
        ("grid_sample", "mode", "nearest", pybaracuda.UnsupportedError, "mode 'nearest'"),
        ("grid_sample", "mode", "bicubic", pybaracuda.UnsupportedError, "mode 'bicubic'"),
        ("grid_sample", "mode", "cubic", ValueError, "mode is 'cubic'"),
        ("grid_sample", "padding_mode", "border", pybaracuda.UnsupportedError, "padding_mode 'border'"),
        ("grid_sample", "padding_mode", "reflection", pybaracuda.UnsupportedError, "padding_mode 'reflection'"),
        ("grid_sample", "padding_mode", 3, ValueError, "padding_mode is 3"),
        ("grid_sample", "align_corners", True, pybaracuda.UnsupportedError, "align_corners True"),
        ("grid_sample_backward", "mode", "nearest", pybaracuda.UnsupportedError, "mode 'nearest'"),
        ("affine_grid", "size", (2, 3, 4, 5, 6), pybaracuda.UnsupportedError, "3-D affine_grid"),
        ("affine_grid", "size", (2, 3, 4), ValueError, "size is"),
        ("affine_grid", "size", (3, 3, 4, 5), ValueError, "theta has shape"),
        ("affine_grid", "size", (2, 3, -4, 5), pybaracuda.InvalidProblemError, "output_h is -4"),
        ("affine_grid", "align_corners", True, pybaracuda.UnsupportedError, "align_corners True"),
        ("affine_grid_backward", "size", (2, 3, 4, 6), ValueError, "grad_grid has shape"),
        ("pad", "mode", "edge", ValueError, "mode is 'edge'"),
        ("pad", "value", "1", TypeError, "value: wanted a number"),
        (
            "pad_circular",
            "pad_low",
            (-4, 0, 0, 0),
            pybaracuda.InvalidProblemError,
            "crop below 0 elements",
        ),
        ("pad", "pad_low", (1, 2), ValueError, "pad_low has 2 entries; the array has 4 axes"),
        ("pad", "pad_high", (1, 2, 3, 0.5), TypeError, "pad_high: wanted an int or a sequence of int"),
        ("pad", "pad_high", 0.5, TypeError, "pad_high: wanted an int or a sequence of int"),
        ("pad_backward", "pad_low", (9, 9, 9, 9), pybaracuda.InvalidProblemError, "grad_output has shape"),
        ("unsorted_segment_max", "num_segments", -1, ValueError, "num_segments is -1"),
        ("unsorted_segment_max", "num_segments", 2.0, TypeError, "num_segments: wanted an int"),
        ("unsorted_segment_max", "num_segments", 2**31, pybaracuda.InvalidProblemError, "num_segments is"),
        ("segment_sum", "indices_are_sorted", "yes", TypeError, "indices_are_sorted: wanted a bool"),
        ("segment_sum", "empty_value", "0", TypeError, "empty_value: wanted a number"),
        ("segment_softmax", "num_segments", -1, ValueError, "num_segments is -1"),
        ("segment_max", "return_arg", None, TypeError, "return_arg: wanted a bool"),
        ("segment_max_backward", "ties", "last", ValueError, "ties is 'last'"),
        ("segment_csr", "reduce", "median", ValueError, "reduce is 'median'"),
        ("segment_csr", "return_arg", True, ValueError, "return_arg: mean has no rows"),
        ("segment_csr_backward", "num_rows", 8, ValueError, "input has shape (7, 5); wanted (8, 5)"),
        ("gather_csr", "num_rows", 2.0, TypeError, "num_rows: wanted an int"),
        ("gather_csr", "num_rows", -1, pybaracuda.InvalidProblemError, "num_rows is -1"),
        ("dequantize_per_channel", "axis", 3, ValueError, "axis is 3; input has 3 axes"),
        ("dequantize_per_channel", "axis", -4, ValueError, "axis is -4"),
        ("dequantize_per_channel", "axis", 0, ValueError, "scale has shape"),
        ("dequantize_per_channel_backward", "axis", 2, ValueError, "scale has shape"),
    ],
)
def test_bad_options(name: str, option: str, value: Any, error: type[Exception], text: str) -> None:
    case = cases()[name]
    # Twice, and after a success: nothing may be remembered from either.
    case()
    for _ in range(2):
        with pytest.raises(error, match=re.escape(text)):
            case._replace(options={**case.options, option: value})()


def test_volumes_are_not_wired_yet() -> None:
    with pytest.raises(pybaracuda.UnsupportedError, match="5-D"):
        pybaracuda.grid_sample(np.zeros((1, 1, 2, 2, 2), np.float32), np.zeros((1, 2, 2, 2, 3), np.float32))


def test_more_than_eight_axes() -> None:
    with pytest.raises(pybaracuda.InvalidProblemError, match="rank is 9"):
        pybaracuda.pad(np.zeros((1,) * 9, np.float32), 1, 1)


@FUNCTION
def test_bad_outputs(name: str) -> None:
    case = cases()[name]
    expected = listed(case())
    label = r"out\[0\]" if case.outputs > 1 else "out"

    def attempt(out: Any, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=label + text):
            case(out=(out, None) if case.outputs > 1 else out)

    first = expected[0]
    attempt(first.astype(np.float64), TypeError, " has dtype float64; wanted float32")
    attempt(np.zeros((1, *first.shape), first.dtype), ValueError, " has shape")
    attempt(first.tolist(), TypeError, ": wanted an array")
    frozen = first.copy()
    frozen.flags.writeable = False
    attempt(frozen, ValueError, ": the array is read-only")
    attempt(jnp.asarray(first), TypeError, ": JAX arrays are immutable")
    if not name.startswith("pad"):
        attempt(
            np.asfortranarray(np.zeros((*first.shape[:-1], first.shape[-1] * 2), first.dtype)[..., ::2]),
            ValueError,
            ": the array is not contiguous",
        )


@FUNCTION
def test_an_output_may_not_share_memory_with_an_input(name: str) -> None:
    case = cases()[name]
    expected = listed(case())
    first = expected[0]
    for argument, values in case.arrays.items():
        # One block of memory: the input, and an output that starts at its last byte's element.
        block = np.zeros(values.nbytes + first.nbytes, np.uint8)
        shared = block[: values.nbytes].view(values.dtype).reshape(values.shape)
        shared[...] = values
        start = (values.nbytes - 1) // first.itemsize * first.itemsize
        overlapping = block[start : start + first.nbytes].view(first.dtype).reshape(first.shape)
        beside = block[values.nbytes :]
        if beside.ctypes.data % first.itemsize == 0:
            touching = beside.view(first.dtype).reshape(first.shape)
            outs = (touching, None) if case.outputs > 1 else touching
            assert_same_bits(listed(case(**{argument: shared}, out=outs))[0], first)
        shared[...] = values
        with pytest.raises(ValueError, match=f"shares memory with {argument}"):
            case(**{argument: shared}, out=(overlapping, None) if case.outputs > 1 else overlapping)


def test_two_outputs_may_not_share_memory() -> None:
    case = cases()["grid_sample_backward"]
    grad_input, grad_grid = case()
    block = np.zeros(grad_input.size + grad_grid.size, np.float32)
    first = block[: grad_input.size].reshape(grad_input.shape)
    with pytest.raises(ValueError, match=r"out\[1\] shares memory with out\[0\]"):
        case(out=(first, block[grad_input.size - 1 : -1].reshape(grad_grid.shape)))
    second = block[grad_input.size :].reshape(grad_grid.shape)
    results = case(out=(first, second))
    assert results[0] is first
    assert results[1] is second
    assert_same_bits(first, grad_input)
    assert_same_bits(second, grad_grid)


def test_an_elementwise_gradient_may_be_computed_in_place() -> None:
    case = cases()["dequantize_per_channel_backward"]
    gradient = case.arrays["grad_output"].copy()
    expected = case()
    assert case(grad_output=gradient, out=gradient) is gradient
    assert_same_bits(gradient, expected)


@pytest.mark.parametrize(
    ("boxes", "error", "text"),
    [
        ([np.zeros((2, 5), np.float32)], ValueError, r"boxes\[0\] has shape \(2, 5\); wanted \[L, 4\]"),
        ([np.zeros((2, 4), np.int32)], TypeError, r"boxes\[0\] has dtype int32"),
        ([np.zeros((2, 4), np.float64)], TypeError, "boxes has dtype float64"),
        ([np.zeros((2, 4), np.float32)] * 3, ValueError, "boxes holds 3 arrays; input has 2 images"),
        ([[0, 0, 1, 1]], TypeError, r"boxes\[0\]: wanted an array"),
    ],
    ids=["columns", "integers", "double", "too many", "nested list"],
)
def test_bad_lists_of_boxes(boxes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pybaracuda.roi_align(numbers((2, 3, 6, 7)), boxes, 2)
