# SPDX-License-Identifier: Apache-2.0
"""Scans along an axis, which are sums, products, maxima, minima and log-sum-exps of everything up to an element, and
their gradients, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, FLOATS, Operator, Parameter, Scalar, Tensor, Variant

_SHAPE = ("outer", "length", "inner")
_REVERSED = "1: from a row's last element to its first; 0: from the first to the last"
_EXTENTS: tuple[Parameter, ...] = (
    Scalar("outer", "i64", "elements before the axis", low=0),
    Scalar("length", "i64", "elements of a row: along the axis", low=0),
    Scalar("inner", "i64", "elements behind the axis", low=0),
)
_FORWARD: tuple[Parameter, ...] = (*_EXTENTS, Scalar("reverse", "i32", _REVERSED, low=0, high=1))
_BACKWARD: tuple[Parameter, ...] = (
    *_EXTENTS,
    Scalar("reverse", "i32", "the forward's; the gradient goes the other way", low=0, high=1),
)
_INPUT = Tensor("input", "input", "T", _SHAPE, "rows, which are inner apart")
_GRAD_OUTPUT = Tensor("grad_output", "input", "T", _SHAPE, "gradient of the output")
_GRAD_INPUT = Tensor("grad_input", "output", "T", _SHAPE, "every element is written")

_INTEGERS = tuple(Variant(token, {"T": token}) for token in ("i32", "i64"))
_BYTES = tuple(Variant(token, {"T": token}) for token in ("s8", "u8"))
_NUMBERS = (*FLOATS, *_INTEGERS)
_WITH_INDICES = tuple(Variant(v.token, {**v.types, "I": "i64"}) for v in (*FLOATS, *_INTEGERS, *_BYTES))
_FLOATS_WITH_INDICES = tuple(Variant(v.token, {**v.types, "I": "i64"}) for v in FLOATS)

_IN_PLACE = "output may be input itself; status 2 if it shares an element otherwise."
_EMPTY = "No elements: success, nothing to write."
_WORKSPACE = (
    "For every 8192 elements of a row, begun ones too, on the CPU at most 24 bytes and on CUDA at most 96, and 64 "
    "more; none for rows of at most 8192 elements. On CUDA and where inner > 1 at most 24 bytes for every 128 elements "
    "and 24 for every 8192, and 64 more; none for rows of at most 128 elements."
)
_WRAPS = " Integers wrap around."


def _order(is_joined: str, start: str = "") -> str:
    """How rows are cut; what is joined how, and what the first tile's results are joined with."""
    return (
        f"{BIT_STABLE}Along the scan a row is cut into tiles of 8192 elements, and these into blocks of 128. Within a "
        f"block, of 2, 4, 8 and so on up to 128 elements, the last result of the first half {is_joined} each of the "
        f"second half; within a tile the last result of a block {is_joined} each of the next block; then the last "
        f"result of a tile {is_joined} each of the next tile{start}."
    )


ORDER = 120
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="cumsum",
        family="scan",
        summary=(
            "Sums up to each element of its row. Its gradient is cumsum the other way, of grad_output with 1 - reverse."
        ),
        parameters=(*_FORWARD, _INPUT, Tensor("output", "output", "T", _SHAPE, "the element and all before it added")),
        variants=_NUMBERS,
        empty=_EMPTY,
        bad_data="A NaN stays to the end of its row.",
        workspace=_WORKSPACE,
        determinism=_order("is added to", ", and 0 to each of the first")
        + " So sums of what is not negative never descend."
        + _WRAPS,
        source="torch.cumsum (2.13), jax.lax.cumsum.",
        overlap=_IN_PLACE,
    ),
    Operator(
        name="cumprod",
        family="scan",
        summary="Products up to each element of its row.",
        parameters=(
            *_FORWARD,
            _INPUT,
            Tensor("output", "output", "T", _SHAPE, "the element and all before it multiplied"),
        ),
        variants=_NUMBERS,
        empty=_EMPTY,
        bad_data="A NaN stays to the end of its row.",
        workspace=_WORKSPACE,
        determinism=_order("is multiplied into") + _WRAPS,
        source="torch.cumprod (2.13), jax.lax.cumprod.",
        overlap=_IN_PLACE,
    ),
    Operator(
        name="cumprod_backward",
        family="scan",
        summary=(
            "Gradient of cumprod with respect to its input: of an element the product of those before it, times the "
            "sum of grad_output over it and all after it, each times the elements between. Nothing is divided, so it "
            "is right with zeros."
        ),
        parameters=(
            *_BACKWARD,
            _GRAD_OUTPUT,
            Tensor("input", "input", "T", _SHAPE, "the forward's"),
            Tensor("output", "input", "T", _SHAPE, "the forward's"),
            _GRAD_INPUT,
        ),
        variants=FLOATS,
        empty=_EMPTY,
        bad_data="None is special.",
        workspace=_WORKSPACE,
        determinism=(
            BIT_STABLE
            + "The sums s = grad_output + next s', where next is the next element along the row and s' its sum, are "
            "put together as cumprod's products, the other way: of two neighbours, (p, s) before (p', s'), the second "
            "becomes (p' p, fma(p', s, s')), p being next."
        ),
        source="torch.cumprod (2.13).",
    ),
    Operator(
        name="logcumsumexp",
        family="scan",
        summary="Logarithms of the sums of exponentials up to each element of its row: m + log(sum of e^(x - m)).",
        parameters=(*_FORWARD, _INPUT, Tensor("output", "output", "T", _SHAPE, "the logarithms")),
        variants=FLOATS,
        empty=_EMPTY,
        bad_data="A NaN stays to the end of its row; -infinity adds nothing, +infinity stays.",
        workspace=_WORKSPACE,
        determinism=(
            BIT_STABLE
            + "m is the maximum up to the element. The sums of e^(x - m) are put together as cumprod's products; a sum "
            "that has an earlier maximum m' is multiplied by e^(m' - m) as it is added, by one fma."
        ),
        source="torch.logcumsumexp (2.13).",
        overlap=_IN_PLACE,
    ),
    Operator(
        name="logcumsumexp_backward",
        family="scan",
        summary=(
            "Gradient of logcumsumexp with respect to its input: the sum of grad_output e^(input - output') over the "
            "element's own output' and all after it."
        ),
        parameters=(
            *_BACKWARD,
            _GRAD_OUTPUT,
            Tensor("input", "input", "T", _SHAPE, "the forward's"),
            Tensor("output", "input", "T", _SHAPE, "the forward's"),
            _GRAD_INPUT,
        ),
        variants=FLOATS,
        empty=_EMPTY,
        bad_data="The gradient of an input of -infinity is 0.",
        workspace=_WORKSPACE,
        determinism=(
            BIT_STABLE
            + "Sums of grad_output e^(output - output') are put together as cumprod's products, the other way: one "
            "that belongs to a later output' is multiplied by e^(output - output') as it is added, by one fma."
        ),
        source="torch.logcumsumexp (2.13).",
    ),
    *(
        Operator(
            name=name,
            family="scan",
            summary=f"{what} up to each element of its row, and where they are.",
            parameters=(
                *_FORWARD,
                _INPUT,
                Tensor("output", "output", "T", _SHAPE, "bits of the input are moved, a NaN's and a zero's sign too"),
                Tensor("indices", "output", "I", _SHAPE, "places in their rows, counted from the row's first element"),
            ),
            variants=_WITH_INDICES,
            empty=_EMPTY,
            bad_data="A NaN stays to the end of its row.",
            workspace=_WORKSPACE,
            determinism=BIT_STABLE + "Of equal elements, and of NaNs, the last along the scan wins.",
            source=f"torch.{name} (2.13).",
        )
        for name, what in (("cummax", "Maxima"), ("cummin", "Minima"))
    ),
    Operator(
        name="cummaxmin_backward",
        family="scan",
        summary=(
            "Gradient of cummax and of cummin with respect to their input: of an element that indices name in its own "
            "place, the sum of grad_output over it and the elements after it that have the same index without a gap; "
            "of others 0."
        ),
        parameters=(
            *_BACKWARD,
            _GRAD_OUTPUT,
            Tensor("indices", "input", "I", _SHAPE, "the forward's"),
            _GRAD_INPUT,
        ),
        variants=_FLOATS_WITH_INDICES,
        empty=_EMPTY,
        bad_data="Indices that no forward made are compared alone and never followed.",
        workspace=_WORKSPACE,
        determinism=(
            _order("is added to", ", and 0 to every sum")
            + " The scan goes the other way than the forward's, and a sum is added only while the index stays."
        ),
        source="torch.cummax and torch.cummin (2.13).",
    ),
)
