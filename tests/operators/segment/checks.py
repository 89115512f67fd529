# SPDX-License-Identifier: Apache-2.0
"""What holds the committed cases of segments against the float64 definitions."""

from __future__ import annotations

import numpy as np
from tolerance import assert_same_bits, assert_within

from pybaracuda import _abi
from verify.definitions import segment as definitions
from verify.dtypes import bits

from ..record import Arrays, Check


def check_of(prefix: str, operation: str) -> Check:
    """The check of one segment operator; a gradient's `output` is data like any other."""

    def check(a: Arrays) -> None:
        count = a.values["num_segments"]
        ids = definitions.ids_of_offsets(a.offsets, a.values["num_rows"]) if prefix == "segment_csr" else a.segment_ids
        smallest = "min" in operation
        if operation in ("sum", "prod") and a.input.dtype.kind == "i":
            # Modulo 2^64, which every type's width divides.
            wrapped = np.full(a.output.shape, operation == "prod", np.uint64)
            inside = (ids >= 0) & (ids < count)
            reduce = np.add if operation == "sum" else np.multiply
            reduce.at(wrapped, ids[inside], a.input[inside].astype(np.int64).view(np.uint64))
            assert_same_bits(a.output, wrapped.astype(f"u{a.output.dtype.itemsize}").view(a.output.dtype))
        elif operation in ("max", "min", "max_with_arg", "min_with_arg"):
            assert_same_bits(a.output, definitions.unsorted_segment_max(a.input, ids, count, smallest))
            if operation.endswith("arg"):
                expected = definitions.unsorted_segment_argmax(a.input, ids, count, smallest)
                assert_same_bits(a.arg, expected.astype(a.arg.dtype))
        elif operation in ("max_backward", "min_backward"):
            arg = definitions.unsorted_segment_argmax(a.input, ids, count, smallest)
            assert_same_bits(a.grad_input, definitions.segment_arg_backward(a.grad_output, arg, ids))
        elif operation.endswith("arg_backward"):
            assert_same_bits(a.grad_input, definitions.segment_arg_backward(a.grad_output, a.arg, ids))
        elif operation.endswith("even_backward"):
            assert_within(a.grad_input, definitions.segment_even_backward(a.grad_output, a.input, ids, smallest))
        elif operation == "sum_backward":
            assert_same_bits(a.grad_input, definitions.segment_gather(a.grad_output, ids))
        elif operation == "mean_backward":
            assert_within(a.grad_input, definitions.segment_mean_backward(a.grad_output, ids))
        elif operation == "prod_backward":
            assert_within(a.grad_input, definitions.segment_prod_backward(a.grad_output, a.input, ids))
        elif operation == "logsumexp_backward":
            expected = definitions.segment_logsumexp_backward(a.grad_output, a.input, a.output, ids)
            assert_within(a.grad_input, expected)
        elif operation == "softmax_backward":
            expected = definitions.segment_softmax_backward(a.grad_output, a.output, ids, count)
            assert_within(a.grad_input, expected)
        else:
            assert_within(a.output, getattr(definitions, f"segment_{operation}")(a.input, ids, count))

    return check


REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "max_with_arg", "min_with_arg")


def check_ex(a: Arrays) -> None:
    """The segments with rows are what the reduction's own operator has; the others are the value, bit for bit."""
    count, rows = a.values["num_segments"], a.values["num_rows"]
    ids = definitions.ids_of_offsets(a.index, rows) if a.values["form"] == 2 else a.index
    filled = np.unique(ids[(ids >= 0) & (ids < count)])
    given = a.values["empty_value"]
    operation = REDUCTIONS[a.values["reduce"]]
    if given is not None:
        assert len(filled) < count
        empty = np.delete(np.arange(count), filled)
        assert (bits(a.output[empty]) == a.pattern(given, bits(a.output))).all()
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
    check_of("unsorted_segment", operation)(plain)


def check_gather(a: Arrays) -> None:
    assert_same_bits(a.output, definitions.segment_gather(a.input, a.segment_ids))


PREFIXES = {"segment": "unsorted_segment", "segment_sorted": "segment", "segment_csr": "segment_csr"}
CHECKS: dict[str, Check] = {
    operator.name: check_of(PREFIXES[operator.family], operator.name.removeprefix(f"{PREFIXES[operator.family]}_"))
    for operator in _abi.OPERATORS.values()
    if operator.family in PREFIXES
}
CHECKS |= {"segment_ex": check_ex, "segment_gather": check_gather}
