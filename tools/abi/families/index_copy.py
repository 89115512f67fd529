# SPDX-License-Identifier: Apache-2.0
"""Rows that take others' places by an index with several writers, as the ABI states it."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, Operator, Scalar, Tensor, Variant

_ROWS = ("outer", "length", "inner")
# Rows are bytes: beside the float types, a token for every width that an element may have.
_ELEMENTS = (*(variant.token for variant in FLOATS), "b8", "b16", "b32", "b64", "b128")
_VARIANTS = tuple(
    Variant(infix + token, {"T": token, "I": index})
    for infix, index in (("", "i32"), ("i64idx_", "i64"))
    for token in _ELEMENTS
)

# Behind the pools, of which max_unpool puts elements by the same rule.
ORDER = 76
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="index_copy",
        family="index_copy",
        summary=(
            "Rows by an index: output is input, in which row index[i] of the axis is row i of source. Of several i "
            "that name one row the last stays. output may be input itself: then rows that nobody names are not touched."
        ),
        parameters=(
            Scalar("outer", "i64", "elements before the axis", low=0),
            Scalar("length", "i64", "rows of input along the axis", low=0),
            Scalar("n", "i64", "rows of source along the axis", low=0),
            Scalar("inner", "i64", "elements of a row: behind the axis", low=0),
            Tensor("input", "input", "T", _ROWS, "what rows hold that nobody names"),
            Tensor("index", "input", "I", ("n",), "the row that each row of source takes the place of"),
            Tensor("source", "input", "T", ("outer", "n", "inner"), "rows that are put"),
            Tensor("output", "output", "T", _ROWS, "every element is written, or is input's"),
        ),
        variants=_VARIANTS,
        empty="An empty output: success, nothing to write. n = 0: output is input.",
        bad_data="A row of source whose index is outside [0, length) is dropped.",
        workspace="On the CPU none, on CUDA at most 8 bytes for each row of length, and 15 more.",
        determinism=BIT_STABLE + "Bits are moved, a NaN's and a zero's sign too.",
        source=(
            "torch.index_copy (2.13), whose choice among several rows of one index is open on CUDA. Differs: a bad "
            "index is dropped."
        ),
        overlap="output may be input itself; status 2 if it shares an element otherwise.",
    ),
)
