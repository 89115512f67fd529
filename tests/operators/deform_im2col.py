# SPDX-License-Identifier: Apache-2.0
"""The record of the sampling of deformable convolution and of its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tolerance import assert_within

import pybaracuda
from pybaracuda._check.abi_calls import Symbol, Values
from verify.bounds import Sum
from verify.definitions import deform_im2col as definitions
from verify.dtypes import Array

from .record import (
    INT32_MAX,
    KIB,
    MIB,
    Arrays,
    Baseline,
    Call,
    Narrow,
    PlanCase,
    Record,
    Refusal,
    Scratch,
    compute_bytes,
    coordinates_of,
    numbers,
    size_between,
    zero,
)

NAMES = ("deform_im2col", "deform_im2col_backward", "deform_im2col_offset_backward")
VALUES: Values = {
    "n": 2, "offset_groups": 2, "c": 3, "h": 5, "w": 6, "output_h": 4, "output_w": 5, "kernel_h": 2, "kernel_w": 3,
    "stride_h": 1, "stride_w": 1, "padding_h": 0, "padding_w": 1, "dilation_h": 1, "dilation_w": 2, "has_mask": 1,
}  # fmt: skip
# More corners than a process can list.
ENDLESS: Values = {
    **dict.fromkeys(("n", "offset_groups", "c", "h", "w", "kernel_h", "kernel_w"), 1),
    **{"output_h": INT32_MAX, "output_w": 2**12, "has_mask": 0},
}


def baseline(name: str) -> Baseline:
    """All three have one problem."""
    return Baseline(
        values=VALUES,
        empties=zero("n", "offset_groups", "c", "h", "w", "output_h", "output_w"),
        overflows=(
            {"n": INT32_MAX, "c": INT32_MAX, "h": INT32_MAX},
            {"n": INT32_MAX, "output_h": INT32_MAX, "output_w": INT32_MAX},
            {"kernel_h": INT32_MAX, "kernel_w": INT32_MAX, "offset_groups": INT32_MAX},
            {"n": 2**16, "c": 2**16, "h": 2**16, "w": 2**16},  # 2^64 elements and more: a wrapped product
        ),
        larger={"h": 9, "w": 37, "c": 70, "output_h": 5, "output_w": 35},
        more_scratch_than_memory=ENDLESS if name == "deform_im2col_backward" else None,
    )


def draw_sizes(rng: np.random.Generator, symbol: Symbol) -> Values:
    """A problem of any order of magnitude."""
    most = {"n": 64, "offset_groups": 8, "c": 300, "h": 500, "w": 500, "output_h": 300, "output_w": 300}
    sizes: Values = {name: size_between(rng, 1, high) for name, high in most.items()}
    for axis in "hw":
        sizes |= {f"kernel_{axis}": size_between(rng, 1, 7), f"padding_{axis}": size_between(rng, 1, 9) - 1}
        sizes |= {f"{name}_{axis}": size_between(rng, 1, 9) for name in ("stride", "dilation")}
    return {**sizes, "has_mask": int(rng.integers(2))}


def scratch_bounds(symbol: Symbol, backend: str, values: Mapping[str, Any]) -> tuple[int, int]:
    """The header's; every problem here has so few samples a group that 31 bits count their corners."""
    wide = compute_bytes(symbol) == 8
    groups, pixels = values["n"] * values["offset_groups"], values["h"] * values["w"]
    samples = values["kernel_h"] * values["kernel_w"] * values["output_h"] * values["output_w"]
    if symbol.operator.name == "deform_im2col":
        return 0, 0
    if symbol.operator.name == "deform_im2col_offset_backward":
        input = next(tensor for tensor in symbol.tensors if tensor.name == "input")
        of_pixel = values["c"] * symbol.element_bytes(input)
        if backend == "cpu" or of_pixel < 16 or samples < pixels // 4:
            return 0, 0
        return groups * of_pixel * pixels, 2 * groups * of_pixel * pixels
    if backend == "cuda":
        lists = groups * (samples * (80 if wide else 48) + 24 * pixels) + KIB
        return 1, lists + max(20 * MIB, 32 * samples)
    return 1, (144 if wide else 112) * samples + 4 * pixels + KIB


# A kernel of 3 x 2 on two images of 5 x 6: 4 x 3 positions.
OPTIONS: dict[str, Any] = {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0), "dilation": (1, 1)}
SIZE = (5, 3)


def calls(dtype: Any) -> dict[str, Call]:
    """Two groups of offsets."""
    wide = coordinates_of(dtype)
    input = numbers((2, 4, 5, 6), dtype)
    moves = {"offset": numbers((2, 24, *SIZE), wide) / 16, "mask": np.abs(numbers((2, 12, *SIZE), wide)) / 16}
    gradient = numbers((2, 24, 15), dtype)
    shape = {"input_shape": (2, 4, 5, 6)}
    both = {"grad_columns": gradient, "input": input}
    return {
        "deform_im2col": Call(pybaracuda.deform_im2col, {"input": input, **moves}, OPTIONS),
        "deform_im2col_backward": Call(
            pybaracuda.deform_im2col_backward, {"grad_columns": gradient, **moves}, {**shape, **OPTIONS}
        ),
        "deform_im2col_offset_backward": Call(pybaracuda.deform_im2col_offset_backward, {**both, **moves}, OPTIONS, 2),
        "deform_im2col_without_mask": Call(
            pybaracuda.deform_im2col, {"input": input, "offset": moves["offset"]}, OPTIONS
        ),
        "deform_im2col_offset_backward_without_mask": Call(
            pybaracuda.deform_im2col_offset_backward, {**both, "offset": moves["offset"]}, OPTIONS
        ),
    }


def plans(element: str) -> dict[str, PlanCase]:
    """Of the same problem."""
    names = (*("n", "offset_groups", "c", "h", "w"), *(f"{each}_{axis}" for each in (
        "output", "kernel", "stride", "padding", "dilation") for axis in "hw"), "has_mask", "element")  # fmt: skip
    sizes = (2, 2, 2, 5, 6, *SIZE, 3, 2, 1, 2, 1, 0, 1, 1, 1, element)
    coordinates = "f64" if element == "f64" else "f32"
    return {
        "deform_im2col": PlanCase(
            pybaracuda.DeformIm2colPlan, pybaracuda.DeformIm2colDescriptor(*sizes), "deform_im2col",
            ("input", "offset", "mask"), ("columns",), names, coordinates,
        ),
        "deform_im2col_backward": PlanCase(
            pybaracuda.DeformIm2colBackwardPlan, pybaracuda.DeformIm2colBackwardDescriptor(*sizes),
            "deform_im2col_backward", ("grad_columns", "offset", "mask"), ("grad_input",), names, coordinates,
        ),
        "deform_im2col_offset_backward": PlanCase(
            pybaracuda.DeformIm2colOffsetBackwardPlan, pybaracuda.DeformIm2colOffsetBackwardDescriptor(*sizes),
            "deform_im2col_offset_backward", ("grad_columns", "input", "offset", "mask"),
            ("grad_offset", "grad_mask"), names, coordinates,
        ),
    }  # fmt: skip


def _window(a: Arrays) -> definitions.Window:
    pairs = (a.extents(f"{name}_h", f"{name}_w") for name in ("kernel", "stride", "padding", "dilation"))
    return definitions.Window(*pairs)


def _moves(a: Arrays) -> tuple[Array, Array | None]:
    """Offsets and mask as the definitions have them."""
    n, h, w = a.extents("n", "output_h", "output_w")
    return a.offset.reshape(n, -1, h, w), a.mask.reshape(n, -1, h, w) if a.values["has_mask"] else None


def _images(array: Any) -> Any:
    return array.reshape(array.shape[0], -1, *array.shape[3:])


def check_forward(a: Arrays) -> None:
    offset, mask = _moves(a)
    expected = definitions.deform_im2col(_images(a.input), offset, _window(a), mask, offset.dtype)
    assert_within(a.columns.reshape(expected.value.shape), expected)


def check_backward(a: Arrays) -> None:
    offset, mask = _moves(a)
    found = _images(a.grad_input)
    expected = definitions.deform_im2col_backward(a.grad_columns, offset, found.shape, _window(a), mask, offset.dtype)
    assert_within(found, expected)


def check_offset_backward(a: Arrays) -> None:
    offset, mask = _moves(a)
    expected = definitions.deform_im2col_offset_backward(
        a.grad_columns, _images(a.input), offset, _window(a), mask, offset.dtype
    )
    _assert_within_or_not_finite(a.grad_offset.reshape(offset.shape), expected[0])
    if mask is not None:
        _assert_within_or_not_finite(a.grad_mask.reshape(mask.shape), expected[1])


def _assert_within_or_not_finite(found: Array, expected: Sum) -> None:
    """The sum of g * v * w over corners: with an infinite g it is an infinity where g is taken out of the sum, and a
    NaN where it is not. No rule of ours says which, so an element that is not finite has to be not finite, and no more.
    """
    value = expected.value
    value = np.where(np.isfinite(value) | np.isfinite(found.astype(np.float64)), value, found.astype(np.float64))
    assert_within(found, expected._replace(value=value))


def bad_arrays(calls: Mapping[str, Call]) -> Iterator[Refusal]:
    """Offsets that would be narrowed silently, and arrays of other shapes."""
    for name in NAMES:
        arrays = calls[name].arrays
        wide = arrays["offset"].astype(np.float64)
        yield Refusal(name, {"offset": wide}, TypeError, "offset has dtype float64; wanted float32")
        yield Refusal(name, {"mask": arrays["mask"].astype(np.float64)}, TypeError, "mask has dtype float64")
        yield Refusal(name, {"offset": arrays["offset"][:, :-1].copy()}, ValueError, "offset has shape")
        yield Refusal(name, {"offset": arrays["offset"][..., 1:].copy()}, ValueError, "offset has shape")
        yield Refusal(name, {"mask": arrays["mask"][:, 1:].copy()}, ValueError, "mask has shape")
    thirds = numbers((2, 36, *SIZE))
    yield Refusal("deform_im2col", {"offset": thirds}, ValueError, "offset has 3 groups; input has 4 channels")
    for name in NAMES[1:]:
        yield Refusal(name, {"grad_columns": numbers((2, 24, 16))}, ValueError, "grad_columns has shape")


INVALID = pybaracuda.InvalidProblemError
FORWARD, BACKWARD = pybaracuda.DeformIm2colDescriptor, pybaracuda.DeformIm2colBackwardDescriptor

RECORD = Record(
    families=("deform_im2col",),
    baselines={name: baseline(name) for name in NAMES},
    checks={
        "deform_im2col": check_forward,
        "deform_im2col_backward": check_backward,
        "deform_im2col_offset_backward": check_offset_backward,
    },
    scratch=Scratch(draw_sizes, scratch_bounds),
    functions={
        "deform_im2col": "input offset kernel_size stride padding dilation mask",
        "deform_im2col_backward": "grad_columns offset input_shape kernel_size stride padding dilation mask",
        "deform_im2col_offset_backward": "grad_columns input offset kernel_size stride padding dilation mask",
    },
    calls=calls,
    plans=plans,
    floats_only={
        "deform_im2col": ("input", "offset", "mask"),
        "deform_im2col_backward": ("grad_columns", "offset", "mask"),
        "deform_im2col_offset_backward": ("grad_columns", "input", "offset", "mask"),
        "deform_im2col_without_mask": ("input", "offset"),
        "deform_im2col_offset_backward_without_mask": ("grad_columns", "input", "offset"),
    },
    bad_arrays=bad_arrays,
    bad_options=(
        *((name, "kernel_size", (1, 2, 3), ValueError, "kernel_size has 3 entries") for name in NAMES),
        *((name, "kernel_size", (3, 0), INVALID, "kernel_size is (3, 0)") for name in NAMES),
        *((name, "kernel_size", (8, 2), INVALID, "the kernel has 0 x 3 positions") for name in NAMES),
        *((name, "stride", 0, INVALID, "stride is (0, 0)") for name in NAMES),
        *((name, "stride", "1", TypeError, "stride: wanted an int") for name in NAMES),
        *((name, "padding", (0, -1), INVALID, "padding is (0, -1)") for name in NAMES),
        *((name, "dilation", 2.5, TypeError, "dilation: wanted an int") for name in NAMES),
        ("deform_im2col_backward", "input_shape", (2, 4, 5), ValueError, "input_shape is"),
        ("deform_im2col_backward", "input_shape", 5, TypeError, "input_shape: wanted a sequence of int"),
    ),
    bad_descriptors=(
        (lambda: FORWARD(1.0, 1, 1, 1, 1, 1, 1, 1, 1), TypeError, "n: wanted int"),
        (lambda: BACKWARD(1, 1, 1, 1, 1, 1, 1, 1, 1, element=3), TypeError, "element: wanted str"),
    ),
    bad_problems=(
        (FORWARD(1, -1, 1, 1, 1, 1, 1, 1, 1), INVALID, "offset_groups is -1; wanted"),
        (FORWARD(1, 1, 1, 1, 1, 1, 1, 0, 1), INVALID, "kernel_h is 0; wanted 1"),
        (FORWARD(1, 1, 1, 1, 1, 1, 1, 1, 1, has_mask=2), INVALID, "has_mask is 2; wanted 0"),
        (BACKWARD(*[2**31 - 1] * 9), INVALID, "overflow"),
        (FORWARD(1, 1, 1, 1, 1, 1, 1, 1, 1, element="s8"), pybaracuda.UnsupportedError, "no variant s8"),
    ),
    narrow={
        "deform_im2col": Narrow("mask"),
        "deform_im2col_backward": Narrow("mask"),
        "deform_im2col_offset_backward": Narrow("mask", narrows=True),
        "deform_im2col_without_mask": Narrow("offset"),
        "deform_im2col_offset_backward_without_mask": Narrow("offset", narrows=True),
    },
    not_in_jax=frozenset(NAMES),
)
