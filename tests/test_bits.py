# SPDX-License-Identifier: Apache-2.0
"""The committed bits: every configuration reproduces them, and the same cases pass the float64 oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import canaries
import numpy as np
import pytest
from canaries import CAPACITY, laid_out
from pad_gradients import assert_pad_gradient
from tolerance import assert_exact, assert_same_bits, assert_within

from pybaracuda import _abi
from pybaracuda._check import cases, children, vectors
from pybaracuda._check.abi_calls import Library, element_memory, extents
from pybaracuda._check.cases import Case
from pybaracuda._check.runs import Configuration, cpu_configurations, cuda_configurations, outputs, sizes_of
from verify.definitions import affine_grid, grid_sample, pad, quantize, roi_align, segment
from verify.dtypes import Array, bits, dtype_of
from verify.memory.arena import FILLS, Arena
from verify.memory.blocks import Memory, memory_for


@pytest.mark.parametrize("configuration", cpu_configurations(), ids=lambda found: found.name)
def test_cpu_reproduces_the_committed_bits(configuration: Configuration) -> None:
    said = vectors.differences(children.run_in_child(configuration, "canaries"), vectors.committed())
    assert not said, "\n" + "\n".join(said)


@pytest.mark.parametrize("configuration", cuda_configurations(), ids=lambda found: found.name)
def test_cuda_reproduces_the_committed_bits(configuration: Configuration) -> None:
    import pybaracuda

    if not pybaracuda.backend_available("cuda"):
        pytest.skip("no CUDA")
    said = vectors.differences(children.run_in_child(configuration, "canaries"), vectors.committed())
    assert not said, "\n" + "\n".join(said)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize(("source", "destination"), [(0, 0), (0, 8), (8, 0), (8, 8)])
def test_words_of_16_bytes_lie_at_any_multiple_of_8(backend: str, source: int, destination: int) -> None:
    import pybaracuda

    if not pybaracuda.backend_available(backend):
        pytest.skip("no CUDA")
    library, memory = Library(backend), memory_for(backend, canaries.CAPACITY)
    committed, count = vectors.committed(), 0
    for case in cases.cases():
        if case.symbol.variant.token != "b128":
            continue
        offsets = {t.name: source if t.role == "input" else destination for t in case.symbol.tensors}
        arena = Arena(memory, {**sizes_of(case), "workspace": 0}, offsets)
        bench = canaries.CanaryBench(case, library, arena, 0)
        bench.write(FILLS[0])
        bench.run()
        assert vectors.hashed(bench.results()) == committed[case.name], case.name
        count += 1
    memory.free()
    assert count > 100


def test_every_variant_has_several_cases() -> None:
    names = [case.name for case in cases.cases()]
    assert len(names) == len(set(names))
    for operator in _abi.OPERATORS.values():
        for token in operator.variants:
            assert sum(name.startswith(f"{operator.name}_{token}/") for name in names) >= 5, (operator.name, token)


# Elements that are no numbers, as what NumPy has of their width.
WORD_TYPES = {"b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "b128": np.complex128}


def decoded(content: Array, token: str) -> Array:
    """The bytes as an array of the dtype."""
    return content.view(WORD_TYPES[token] if token in WORD_TYPES else dtype_of(token))


class Arrays:
    """A case's tensors as arrays, by name."""

    def __init__(self, case: Case, results: dict[str, bytes]) -> None:
        self.values: dict[str, Any] = dict(case.values)
        self.token = case.symbol.variant.types.get("T", "")
        self._arrays: dict[str, Array] = {}
        for tensor in case.symbol.tensors:
            if tensor.role == "input":
                content = case.elements(tensor, case.inputs[tensor.name])
            else:
                content = np.frombuffer(results[tensor.name], np.uint8).copy()
            shape = extents(tensor, case.values)
            self._arrays[tensor.name] = decoded(content, case.symbol.dtype(tensor)).reshape(shape)

    def __getattr__(self, name: str) -> Array:
        return self._arrays[name]

    def with_arrays(self, **arrays: Array) -> Arrays:
        """The same case with other arrays, and values of its own."""
        changed = object.__new__(Arrays)
        changed.values, changed.token = dict(self.values), self.token
        changed._arrays = {**self._arrays, **arrays}
        return changed

    def extents(self, *names: str) -> tuple[int, ...]:
        return tuple(self.values[name] for name in names)

    @property
    def roi_options(self) -> dict[str, Any]:
        return {
            "spatial_scale": self.values["spatial_scale"],
            "sampling_ratio": self.values["sampling_ratio"],
            "aligned": bool(self.values["aligned"]),
            "coordinate_dtype": self.rois.dtype,
        }


def check_roi_align(a: Arrays) -> None:
    expected = roi_align.roi_align(a.input, a.rois, a.extents("pooled_h", "pooled_w"), **a.roi_options)  # type: ignore[arg-type]
    assert_within(a.output, expected)


def check_roi_align_backward(a: Arrays) -> None:
    shape: Any = a.extents("n", "c", "h", "w")
    expected = roi_align.roi_align_backward(a.grad_output, a.rois, shape, **a.roi_options)
    assert_within(a.grad_input, expected)


def check_grid_sample_2d(a: Arrays) -> None:
    expected = grid_sample.grid_sample_2d(a.input, a.grid, coordinate_dtype=a.grid.dtype)
    assert_within(a.output, expected)


def check_grid_sample_2d_backward(a: Arrays) -> None:
    expected = grid_sample.grid_sample_2d_backward(a.grad_output, a.input, a.grid, coordinate_dtype=a.grid.dtype)
    assert_within(a.grad_input, expected[0])
    # The sum of g * v * w over taps: with an infinite g it is an infinity where g is taken out of the sum, and a NaN
    # where it is not. No rule of ours says which, so an element that is not finite has to be not finite, and no more.
    value = expected[1].value
    got = a.grad_grid.astype(np.float64)
    value = np.where(np.isfinite(value) | np.isfinite(got), value, got)
    assert_within(a.grad_grid, expected[1]._replace(value=value))


def _size(a: Arrays) -> tuple[int, int, int, int]:
    n, height, width = a.extents("n", "output_h", "output_w")
    return n, 1, height, width


def check_affine_grid_2d(a: Arrays) -> None:
    expected = affine_grid.affine_grid_2d(a.theta, _size(a), coordinate_dtype=a.theta.dtype)
    assert_within(a.grid, expected)


def check_affine_grid_2d_backward(a: Arrays) -> None:
    expected = affine_grid.affine_grid_2d_backward(a.grad_grid, _size(a), coordinate_dtype=a.grad_grid.dtype)
    assert_within(a.grad_theta, expected)


def _pad_high(padded: Array, low: Sequence[int], unpadded: Array) -> list[int]:
    return [out - before - extent for out, before, extent in zip(padded.shape, low, unpadded.shape, strict=True)]


def _check_pad(mode: str, a: Arrays) -> None:
    low, patterns = a.values["pad_low"], bits(a.input)
    value = element_memory(a.token, a.values.get("value", 0))
    pattern = np.frombuffer(value, patterns.dtype)[0]
    high = _pad_high(a.output, low, a.input)
    assert_same_bits(bits(a.output), pad.pad(patterns, low, high, mode, pattern))


def _check_pad_backward(mode: str, a: Arrays) -> None:
    low = a.values["pad_low"]
    assert_pad_gradient(a.grad_input, a.grad_output, low, _pad_high(a.grad_output, low, a.grad_input), mode)


def check_pad_ex(a: Arrays) -> None:
    _check_pad(pad.MODES[a.values["mode"]], a)


def check_pad_ex_backward(a: Arrays) -> None:
    _check_pad_backward(pad.MODES[a.values["mode"]], a)


def _segment_check(prefix: str, operation: str) -> Callable[[Arrays], None]:
    """The check of one segment operator; a gradient's `output` is data like any other."""

    def check(a: Arrays) -> None:
        count = a.values["num_segments"]
        ids = segment.ids_of_offsets(a.offsets, a.values["num_rows"]) if prefix == "segment_csr" else a.segment_ids
        smallest = "min" in operation
        if operation in ("sum", "prod") and a.input.dtype.kind == "i":
            # Modulo 2^64, which every type's width divides.
            wrapped = np.full(a.output.shape, operation == "prod", np.uint64)
            inside = (ids >= 0) & (ids < count)
            reduce = np.add if operation == "sum" else np.multiply
            reduce.at(wrapped, ids[inside], a.input[inside].astype(np.int64).view(np.uint64))
            assert_same_bits(a.output, wrapped.astype(f"u{a.output.dtype.itemsize}").view(a.output.dtype))
        elif operation in ("max", "min", "max_with_arg", "min_with_arg"):
            assert_same_bits(a.output, segment.unsorted_segment_max(a.input, ids, count, smallest))
            if operation.endswith("arg"):
                expected = segment.unsorted_segment_argmax(a.input, ids, count, smallest)
                assert_same_bits(a.arg, expected.astype(a.arg.dtype))
        elif operation in ("max_backward", "min_backward"):
            arg = segment.unsorted_segment_argmax(a.input, ids, count, smallest)
            assert_same_bits(a.grad_input, segment.segment_arg_backward(a.grad_output, arg, ids))
        elif operation.endswith("arg_backward"):
            assert_same_bits(a.grad_input, segment.segment_arg_backward(a.grad_output, a.arg, ids))
        elif operation.endswith("even_backward"):
            assert_within(a.grad_input, segment.segment_even_backward(a.grad_output, a.input, ids, smallest))
        elif operation == "sum_backward":
            assert_same_bits(a.grad_input, segment.segment_gather(a.grad_output, ids))
        elif operation == "mean_backward":
            assert_within(a.grad_input, segment.segment_mean_backward(a.grad_output, ids))
        elif operation == "prod_backward":
            assert_within(a.grad_input, segment.segment_prod_backward(a.grad_output, a.input, ids))
        elif operation == "logsumexp_backward":
            expected = segment.segment_logsumexp_backward(a.grad_output, a.input, a.output, ids)
            assert_within(a.grad_input, expected)
        elif operation == "softmax_backward":
            expected = segment.segment_softmax_backward(a.grad_output, a.output, ids, count)
            assert_within(a.grad_input, expected)
        else:
            assert_within(a.output, getattr(segment, f"segment_{operation}")(a.input, ids, count))

    return check


SEGMENT_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "max_with_arg", "min_with_arg")


def check_segment_ex(a: Arrays) -> None:
    """The segments with rows are what the reduction's own operator has; the others are the value, bit for bit."""
    count, rows = a.values["num_segments"], a.values["num_rows"]
    ids = segment.ids_of_offsets(a.index, rows) if a.values["form"] == 2 else a.index
    filled = np.unique(ids[(ids >= 0) & (ids < count)])
    given = a.values["empty_value"]
    operation = SEGMENT_REDUCTIONS[a.values["reduce"]]
    if given is not None:
        assert len(filled) < count
        empty = np.delete(np.arange(count), filled)
        pattern = np.frombuffer(element_memory(a.token, given), bits(a.output).dtype)[0]
        assert (bits(a.output[empty]) == pattern).all()
        if operation.endswith("arg"):
            assert (a.arg[empty] == -1).all()
        # The rest alone, under new numbers.
        numbers = np.full(count + 1, -1)
        numbers[filled] = np.arange(len(filled))
        ids = numbers[np.where((ids >= 0) & (ids < count), ids, count)]
        a = a.with_arrays(output=a.output[filled], arg=a.arg[filled] if operation.endswith("arg") else a.arg)
        count = len(filled)
    plain = a.with_arrays(segment_ids=ids)
    plain.values["num_segments"] = count
    _segment_check("unsorted_segment", operation)(plain)


def check_segment_gather(a: Arrays) -> None:
    assert_same_bits(a.output, segment.segment_gather(a.input, a.segment_ids))


def check_dequantize_per_channel(a: Arrays) -> None:
    expected = quantize.dequantize_per_channel(a.input, a.scale, a.zero_point, a.values["axis"])
    assert_exact(a.output, expected)


def check_dequantize_per_channel_backward(a: Arrays) -> None:
    expected = quantize.dequantize_per_channel_backward(a.grad_output, a.scale, a.values["axis"])
    assert_exact(a.grad_input, expected)


CHECKS: dict[str, Callable[[Arrays], None]] = {
    name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")
}
CHECKS |= {f"pad_{mode}": partial(_check_pad, mode) for mode in pad.MODES}
CHECKS |= {f"pad_{mode}_backward": partial(_check_pad_backward, mode) for mode in pad.MODES}

_SEGMENT_PREFIXES = {"segment": "unsorted_segment", "segment_sorted": "segment", "segment_csr": "segment_csr"}
for _operator in _abi.OPERATORS.values():
    if _operator.family in _SEGMENT_PREFIXES and _operator.name not in CHECKS:
        _prefix = _SEGMENT_PREFIXES[_operator.family]
        CHECKS[_operator.name] = _segment_check(_prefix, _operator.name.removeprefix(f"{_prefix}_"))


@cache
def _library() -> tuple[Library, Memory]:
    return Library("cpu"), memory_for("cpu", CAPACITY)


@pytest.mark.parametrize("operator", _abi.OPERATORS.values(), ids=lambda operator: operator.name)
def test_the_same_cases_pass_the_oracle(operator: _abi.Operator) -> None:
    """On the CPU, whose bits are everyone's: what is committed is right, not only repeatable."""
    library, memory = _library()
    wrong: list[str] = []
    for case in cases.cases():
        if case.symbol.operator is operator:
            results = outputs(laid_out(case, library, memory), Configuration("oracle", "cpu", "the oracle"))
            try:
                CHECKS[operator.name](Arrays(case, results))
            except AssertionError as error:
                wrong.append(f"{case.name}: {error}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_differences_are_found() -> None:
    """The comparison itself: a flipped, a missing and a left-over hash are each said."""
    good: vectors.Hashes = {"a": {"x": "1"}, "b": {"x": "2"}}
    assert vectors.differences(good, good) == []
    changes: Sequence[vectors.Hashes] = (
        {"a": {"x": "1"}, "b": {"x": "3"}},
        {"a": {"x": "1"}},
        {**good, "c": {"x": "4"}},
    )
    for expected in changes:
        assert len(vectors.differences(good, expected)) == 1
