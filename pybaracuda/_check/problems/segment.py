# SPDX-License-Identifier: Apache-2.0
"""The problems of segments in three forms of an index, of their gradients and of the gather."""

from __future__ import annotations

from ..abi_calls import Value, Values
from ..content import (
    INT32_MIN,
    Maker,
    any_bits,
    bad_ids,
    holed_offsets,
    ids,
    near_one,
    offsets,
    rows,
    skewed_ids,
    sorted_ids,
    tied,
    uneven_ids,
    whole_numbers,
)
from ..problem import TENTH, Family, Problem


def _values(num_inputs: int, embedding_dim: int, num_segments: int) -> Values:
    return {"num_inputs": num_inputs, "embedding_dim": embedding_dim, "num_segments": num_segments}


_UNSORTED = [
    Problem("typical", "random ids", _values(60, 7, 13), {"segment_ids": ids}),
    Problem("ties", "few distinct values, zeros of both signs: the first row wins", _values(90, 5, 6),
            {"segment_ids": ids, "input": tied}),
    Problem("one-segment", "lists of 600 rows", _values(600, 3, 1), {"segment_ids": ids, "input": tied}),
    Problem("skewed", "one segment takes most of 700 rows", _values(700, 17, 9), {"segment_ids": skewed_ids}),
    Problem("sparse", "more segments than rows: most are empty", _values(40, 65, 300), {"segment_ids": ids}),
    Problem("bad-ids", "ids out of range are dropped, half of the segments are empty", _values(120, 4, 10),
            {"segment_ids": bad_ids}),
    Problem("special", "NaN payloads, infinities, zeros and subnormals", _values(150, 6, 11),
            {"segment_ids": ids, "input": any_bits, "grad_output": any_bits},
            ("sum", "mean", "prod", "logsumexp", "softmax", "even")),
    Problem("parallel", "enough work for several threads", _values(1200, 96, 40), {"segment_ids": ids}),
]  # fmt: skip

# So many rows of one column and so many segments that CUDA adds them in tables.
_SUMMED = [
    *_UNSORTED,
    Problem("elements", "many rows of one column, most segments have none or one, one has 4,104",
            _values((1 << 18) + 301, 1, 140_001), {"segment_ids": uneven_ids}),
    Problem("full-bucket", "many rows of one column, most of them of one segment",
            _values((1 << 18) + 301, 1, 140_001), {"segment_ids": skewed_ids}),
]  # fmt: skip


def _with_rows(num_rows: int, embedding_dim: int, num_segments: int) -> Values:
    return {**_values(num_rows, embedding_dim, num_segments), "num_rows": num_rows}


_SORTED = [
    Problem("typical", "ascending ids", _with_rows(60, 7, 13), {"segment_ids": sorted_ids}),
    Problem("two-pieces", "segments of more than 256 rows", _with_rows(700, 17, 2), {"segment_ids": sorted_ids}),
    Problem("one-segment", "lists of 600 rows", _with_rows(600, 3, 1), {"segment_ids": sorted_ids}),
    Problem("sparse", "more segments than rows: most are empty", _with_rows(40, 65, 300), {"segment_ids": sorted_ids}),
    Problem("parallel", "enough work for several threads", _with_rows(1200, 96, 40), {"segment_ids": sorted_ids}),
]  # fmt: skip
_CSR = [
    Problem("typical", "ascending offsets", _with_rows(60, 7, 13), {"offsets": offsets}),
    Problem("two-pieces", "segments of more than 256 rows", _with_rows(700, 17, 2), {"offsets": offsets}),
    Problem("one-segment", "lists of 600 rows", _with_rows(600, 3, 1), {"offsets": offsets}),
    Problem("sparse", "more segments than rows: most are empty", _with_rows(40, 65, 300), {"offsets": offsets}),
    Problem("parallel", "enough work for several threads", _with_rows(1200, 96, 40), {"offsets": offsets}),
]  # fmt: skip


def _reduced(reduce: int, form: int, shape: tuple[int, int, int], **more: Value) -> Values:
    return {**_with_rows(*shape), "reduce": reduce, "form": form, **more}


# Reductions and forms by number, as the options have them.
_EX = [
    Problem("sum", "any ids, half of the segments without rows", _reduced(0, 0, (120, 4, 10)), {"index": bad_ids}),
    Problem("mean", "ascending ids", _reduced(1, 1, (60, 7, 13)), {"index": sorted_ids}, floats_only=True),
    Problem("max", "offsets, most segments without rows", _reduced(2, 2, (40, 65, 300)), {"index": offsets}),
    Problem("min", "any ids, most segments without rows", _reduced(3, 0, (40, 65, 300)),
            {"index": ids, "input": tied}),
    Problem("prod", "offsets, segments of more than 256 rows", _reduced(4, 2, (1500, 17, 3)),
            {"index": holed_offsets, "input": near_one}),
    Problem("logsumexp", "any ids, half of the segments without rows", _reduced(5, 0, (120, 4, 10)),
            {"index": bad_ids}, floats_only=True),
    Problem("max-with-arg", "ascending ids, segments of more than 256 rows", _reduced(6, 1, (1500, 17, 3)),
            {"index": sorted_ids, "input": tied}),
    Problem("min-with-arg", "any ids, half of the segments without rows", _reduced(7, 0, (120, 4, 10)),
            {"index": bad_ids, "input": tied}),
    Problem("subnormal-value", "segments without rows are a subnormal number", _reduced(0, 0, (40, 3, 60)),
            {"index": ids}, floats_only=True, subnormal=True),
    Problem("own-value", "no value is given", _reduced(7, 2, (40, 3, 60), empty_value=None), {"index": offsets}),
    Problem("parallel", "enough work for several threads", _reduced(2, 0, (1200, 96, 40)), {"index": bad_ids}),
]  # fmt: skip


# What a segment without rows is, by dtype: NaNs with a payload for the 16-bit types, -0.0 for f64.
_EMPTY_VALUES = {"f32": TENTH, "f64": -0.0, "f16": 0x7D23, "bf16": 0xFF91, "i32": INT32_MIN, "i64": 2**53 + 1}


def _maker(operator: str, tensor: str, element: str | None, maker: Maker) -> Maker:
    if tensor == "arg":
        return rows
    if element in ("i32", "i64"):
        return whole_numbers  # also where floats have ties: their encoding would lose the halves
    return near_one if element is not None and "_prod" in operator else maker


FAMILY = Family(
    {
        "segment": _UNSORTED,
        "unsorted_segment_sum": _SUMMED,
        "segment_sorted": _SORTED,
        "segment_csr": _CSR,
        "segment_ex": _EX,
    },
    elements={"empty_value": _EMPTY_VALUES},
    maker=_maker,
)
