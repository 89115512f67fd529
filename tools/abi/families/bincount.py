# SPDX-License-Identifier: Apache-2.0
"""Weighted counts, which are sums of what is named by small numbers in any order, as the ABI states them."""

from __future__ import annotations

from tools.abi.model import BIT_STABLE, Operator, Scalar, Tensor, Variant

# A table of so many sums fits into what a warp has of a GPU's shared memory, in f64, too.
_MOST_BINS = 4096

_VARIANTS = tuple(
    Variant(infix + token, {"T": token, "I": index})
    for infix, index in (("", "i32"), ("i64idx_", "i64"))
    for token in ("f32", "f64", "f16", "bf16", "i32", "i64")
)

_BAD_DATA = "An entry outside [0, num_bins) is dropped."

# Behind the segments, of which it is the sum of rows of one element.
ORDER = 58
OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="bincount",
        family="bincount",
        summary="Sums of weights by bin: output[b] is the sum of weights[i] over the entries i with input[i] = b. Its "
        "gradient with respect to the weights is unsorted_segment_sum_backward, with one column.",
        parameters=(
            Scalar("n", "i64", "entries", low=0),
            Scalar("num_bins", "i32", "bins; of more, unsorted_segment_sum with one column", low=0, high=_MOST_BINS),
            Scalar("wants_extent", "i32", "1: extent is written; 0: it is not", low=0, high=1),
            Tensor("input", "input", "I", ("n",), "bin of each entry, in any order"),
            Tensor("weights", "input", "T", ("n",), "what each entry adds"),
            Tensor("output", "output", "T", ("num_bins",), "every element is written"),
            Tensor(
                "extent",
                "output",
                "i64",
                ("wants_extent",),
                "how many bins the entries name: one more than the largest entry, -1 if one is negative (or 2^63 - 1); "
                "not looked at where it is not wanted",
            ),
        ),
        variants=_VARIANTS,
        empty="No bins: success, nothing to write but the extent. n = 0: the output is 0, and so is the extent.",
        bad_data=_BAD_DATA,
        workspace=(
            "4 bytes a bin (f64, i64: 8) for every 262144 entries, begun ones too, and on CUDA 4 (f64, i64: 8) more "
            "for every 4096, begun ones too; none on CUDA for at most 4096 entries. On the CPU also at most 33 KiB. "
            "Each array is rounded up to 16 bytes."
        ),
        determinism=(
            BIT_STABLE
            + "Entries are cut into blocks of 4096, and 64 blocks are a group. A bin's sum of a block is 0 to which "
            "its weights are added in ascending order of their entries; of a group, 0 to which its sums of the blocks "
            "are added in ascending order; the result, 0 to which its sums of the groups are. f16 and bf16 are added "
            "in f32 and rounded once. Integers wrap around."
        ),
        source="torch.bincount (2.13). Differs: bad entries are dropped, and the sums have the dtype of the weights.",
    ),
    Operator(
        name="bincount_rows",
        family="bincount",
        summary="Sums of weights by bin for each row of entries: output[r, b] is the sum of weights[r, i] over the "
        "entries i with input[r, i] = b. It is what elements add up to along the last axis, so the gradient of a "
        "gather along it.",
        parameters=(
            Scalar("rows", "i64", "rows of entries", low=0),
            Scalar("n", "i64", "entries of a row", low=0),
            Scalar("num_bins", "i32", "bins of a row", low=0, high=_MOST_BINS),
            Tensor("input", "input", "I", ("rows", "n"), "bin of each entry, in any order"),
            Tensor("weights", "input", "T", ("rows", "n"), "what each entry adds"),
            Tensor("output", "output", "T", ("rows", "num_bins"), "every element is written"),
        ),
        variants=_VARIANTS,
        empty="No rows or no bins: success, nothing to write. n = 0: the output is 0.",
        bad_data=_BAD_DATA,
        workspace=(
            "None for at most 4096 entries a row; else, for every row, 4 bytes a bin (f64, i64: 8) for every 262144 "
            "entries, begun ones too, and on CUDA 4 (f64, i64: 8) more for every 4096, begun ones too. On the CPU also "
            "at most 33 KiB. Each array is rounded up to 16 bytes."
        ),
        determinism=BIT_STABLE + "Each row has the bits that bincount has of it.",
        source="torch.Tensor.scatter_add_ of zeros along the last axis (2.13). Differs: bad entries are dropped.",
    ),
)
