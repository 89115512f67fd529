# SPDX-License-Identifier: Apache-2.0
"""Order statistics along an axis, which are the k-th smallest element, medians and the most frequent one, with where
they stand, and their gradient, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, Operator, Parameter, Scalar, Tensor, Variant

_SHAPE = ("outer", "length", "inner")
_SELECTED = ("outer", "inner")
_ROWS: tuple[Parameter, ...] = (
    Scalar("outer", "i64", "elements before the axis", low=0),
    Scalar("length", "i64", "elements of a row: along the axis", low=1),
    Scalar("inner", "i64", "elements behind the axis", low=0),
)
_GRADIENT_ROWS: tuple[Parameter, ...] = (
    _ROWS[0],
    Scalar("length", "i64", "elements of a row: along the axis", low=0),
    _ROWS[2],
)
# Which 32 bits count.
_COUNTED_ROWS: tuple[Parameter, ...] = (
    _ROWS[0],
    Scalar("length", "i64", "elements of a row: along the axis", low=1, high=2**32 - 1),
    _ROWS[2],
)
_INPUT = Tensor("input", "input", "T", _SHAPE, "rows, which are inner apart")
_OUTPUTS: tuple[Parameter, ...] = (
    Tensor("output", "output", "T", _SELECTED, "the element of each row, whose bits are moved"),
    Tensor("indices", "output", "I", _SELECTED, "its place in its row"),
)

_INTEGERS = tuple(Variant(token, {"T": token}) for token in ("i32", "i64", "s8", "u8"))
_VARIANTS = tuple(Variant(v.token, {**v.types, "I": "i64"}) for v in (*FLOATS, *_INTEGERS))
_FLOATS_WITH_INDICES = tuple(Variant(v.token, {**v.types, "I": "i64"}) for v in FLOATS)

_EMPTY = "No rows: success, nothing to write. length is at least 1."
_EQUALS = "Zeros of both signs are equal; of equal elements the lowest place counts."
_NANS_LAST = "NaNs, of either sign and any payload, are equal and larger than every number. "
_SELECTION_SCRATCH = (
    "On CUDA for every row of more than 12288 elements (f64, i64: 6144) 2112 bytes. On the CPU at most 256 KiB."
)
_MODE_SCRATCH = (
    "On CUDA for every row of more than 5000 elements (f64, i64: 3400), and for one of them at the least, 12 bytes for "
    "each of its elements (f64, i64: 18), and 96 besides; for no more rows at once than have 2^25 elements. On the "
    "CPU at most 192 KiB, and for rows of more than 16384 elements (f64, i64: 8192) 8 bytes for each element (f64, "
    "i64: 16) of at most 16 rows."
)
_DETERMINISM = BIT_STABLE + "Elements are compared and counted, and none is computed with."


def _selecting(
    name: str, summary: str, bad_data: str, workspace: str, source: str, scalars: tuple[Parameter, ...] = _ROWS
) -> Operator:
    return Operator(
        name=name,
        family="order",
        summary=summary,
        parameters=(*scalars, _INPUT, *_OUTPUTS),
        variants=_VARIANTS,
        empty=_EMPTY,
        bad_data=bad_data,
        workspace=workspace,
        determinism=_DETERMINISM,
        source=source,
    )


ORDER = 130
OPERATORS: tuple[Operator, ...] = (
    _selecting(
        "kthvalue",
        "The k-th smallest element of each row, and where it is.",
        _NANS_LAST + _EQUALS,
        _SELECTION_SCRATCH,
        "torch.kthvalue (2.13), whose place among equals is another one.",
        (*_ROWS, Scalar("k", "i64", "which, counted from 1: at most length", low=1)),
    ),
    _selecting(
        "median",
        "The median of each row, of an even number of elements the lower of both in the middle, and where it is.",
        "A row with a NaN answers the first of them. " + _EQUALS,
        _SELECTION_SCRATCH,
        "torch.median along an axis (2.13), whose place among equals is another one.",
    ),
    _selecting(
        "nanmedian",
        "The median of those elements of each row that are no NaN, the lower of both in the middle, and where it is.",
        "A row of NaNs alone answers the first of them. " + _EQUALS,
        _SELECTION_SCRATCH,
        "torch.nanmedian along an axis (2.13), whose place among equals is another one.",
    ),
    _selecting(
        "mode",
        "The most frequent element of each row, the smallest of several, and where it is.",
        "NaNs are equal to nothing: each is there once, and larger than every number. " + _EQUALS,
        _MODE_SCRATCH,
        "torch.mode (2.13), whose place among equals is another one.",
        _COUNTED_ROWS,
    ),
    Operator(
        name="value_selecting_reduction_backward",
        family="order",
        summary=(
            "Gradient of kthvalue, median, nanmedian and mode with respect to their input: of the element that a row's "
            "index names, grad_output; of all others 0."
        ),
        parameters=(
            *_GRADIENT_ROWS,
            Tensor("grad_output", "input", "T", _SELECTED, "gradient of the output, whose bits are moved"),
            Tensor("indices", "input", "I", _SELECTED, "the forward's"),
            Tensor("grad_input", "output", "T", _SHAPE, "every element is written, also the zeros"),
        ),
        variants=_FLOATS_WITH_INDICES,
        empty="No elements: success, nothing to write.",
        bad_data="The gradient of a row whose index is outside [0, length) is dropped.",
        workspace="None.",
        determinism=BIT_STABLE + "Nothing is added.",
        source="torch's value_selecting_reduction_backward (2.13), without a negative index from the end.",
    ),
)
