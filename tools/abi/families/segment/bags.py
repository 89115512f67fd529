# SPDX-License-Identifier: Apache-2.0
"""Bags of embeddings, which are rows of a table gathered and reduced, and their gradients, as the ABI states them."""

from __future__ import annotations

from dataclasses import replace

from tools.abi.model import BIT_STABLE, INT32_MAX, Operator, Parameter, Scalar, Tensor, Variant, extent

# Positions are kept in 32 bits, also a little behind the last one.
_MOST_INDICES = INT32_MAX - 256
_EXTENTS: tuple[Parameter, ...] = (
    Scalar("num_indices", "i64", "indices of all bags", low=0, high=_MOST_INDICES),
    extent("num_bags", "bags"),
    extent("num_embeddings", "rows of the table"),
    extent("embedding_dim", "columns"),
)
_MEAN = Scalar("mean", "i32", "1: what is added up is divided by how many take part; 0: it is not", low=0, high=1)
_HAS_WEIGHTS = Scalar("has_per_sample_weights", "i32", "1: positions have weights; 0: each weighs 1", low=0, high=1)
_WANTS_BAGS = Scalar("wants_bags", "i32", "1: bag_ids and bag_sizes are written; 0: neither is", low=0, high=1)
_PADDING = Scalar("padding_idx", "i64", "the row that takes no part; a number that is no row: none")
_FREQUENCY = Scalar("scale_grad_by_freq", "i32", "1: each row's gradient is divided by its count", low=0, high=1)

_BAGS = ("num_bags", "embedding_dim")
_TABLE = ("num_embeddings", "embedding_dim")
_WEIGHT = Tensor("weight", "input", "T", _TABLE, "the table")
_INDICES = Tensor("indices", "input", "I", ("num_indices",), "the row of each position, the bags one after another")
_OFFSETS = Tensor(
    "offsets", "input", "I", ("num_bags",), "where each bag begins, never descending; it ends where the next begins"
)
_WEIGHTS = Tensor(
    "per_sample_weights",
    "input",
    "T",
    ("has_per_sample_weights", "num_indices"),
    "of each position; not looked at without weights",
)
_OUTPUT = Tensor("output", "output", "T", _BAGS, "every element is written")
_BAG_IDS = Tensor("bag_ids", "output", "I", ("num_indices",), "the bag of each position, -1 before the first bag")
_BAG_SIZES = Tensor("bag_sizes", "output", "I", ("num_bags",), "how many positions of each bag take part")
_WANTED = tuple(
    replace(each, shape=("wants_bags", *each.shape), doc=f"{each.doc}; not looked at where it is not wanted")
    for each in (_BAG_IDS, _BAG_SIZES)
)
_GRAD_OUTPUT = Tensor("grad_output", "input", "T", _BAGS, "gradient of the output")
_GIVEN_IDS = Tensor("bag_ids", "input", "I", ("num_indices",), "of the forward call")
_GIVEN_SIZES = Tensor(
    "bag_sizes",
    "input",
    "I",
    ("mean", "num_bags"),
    "of the forward call; read for a mean alone",
)
_GRAD_WEIGHT = Tensor("grad_weight", "output", "T", _TABLE, "every element is written")

_VARIANTS = tuple(
    Variant(infix + token, {"T": token, "I": index})
    for infix, index in (("", "i32"), ("i64idx_", "i64"))
    for token in ("f32", "f64", "f16", "bf16")
)
_EMPTY = "No bags: bag_ids are -1. A bag in which nothing takes part is 0{also}."
_NO_PART = (
    "A position whose index lies outside [0, num_embeddings) or is padding_idx takes no part, nor does one before the "
    "first bag. "
)
_OFFSETS_BAD = (
    "Offsets are clamped to [0, num_indices]; where they descend every bag is empty, which no caller should rely on. "
)
_DROPPED = "A position whose bag id lies outside [0, num_bags) takes no part either. "
_ARITHMETIC = "NaN and infinity follow arithmetic."
_PARTS = (
    "and, if there are more indices than that, for every 256 or part of them two partial results of each column, of at "
    "most 12 bytes"
)
_FORWARD_WORKSPACE = (
    f"At most 1 byte an index and 128 {_PARTS}; of maxima for every 32 indices, as long as that is at most 16 MiB and "
    "16 bytes an index; of a mean whose bags are not wanted 4 a bag."
)
_BACKWARD_WORKSPACE = f"At most {{bytes}} bytes an index, 4 an embedding and 64 KiB {_PARTS}."
_PIECES = "in pieces of 256, pieces ascending"


BAGS: tuple[Operator, ...] = (
    Operator(
        name="embedding_bag",
        family="embedding_bag",
        folder="segment",
        summary=(
            "output[b, d] = sum over the positions i of bag b, where offsets[b] <= i < offsets[b + 1] or num_indices, "
            "of weight[indices[i], d], each times per_sample_weights[i]; for a mean divided by how many take part."
        ),
        parameters=(
            *_EXTENTS,
            _MEAN,
            _HAS_WEIGHTS,
            _WANTS_BAGS,
            _PADDING,
            _WEIGHT,
            _INDICES,
            _OFFSETS,
            _WEIGHTS,
            _OUTPUT,
            *_WANTED,
        ),
        variants=_VARIANTS,
        empty=_EMPTY.format(also=""),
        bad_data=_NO_PART + _OFFSETS_BAD + _ARITHMETIC,
        workspace=_FORWARD_WORKSPACE,
        determinism=BIT_STABLE
        + f"A bag's positions ascending {_PIECES}, counted from the bag's first; one that takes no part is left out of "
        "its piece. A weighted term is added by one fma. A mean is divided once.",
        source="torch.nn.functional.embedding_bag (2.13).",
    ),
    Operator(
        name="embedding_bag_max",
        family="embedding_bag",
        folder="segment",
        summary="output[b, d] = max over the positions i of bag b of weight[indices[i], d]; arg[b, d] is the row of "
        "the table that holds it.",
        parameters=(
            *_EXTENTS,
            _PADDING,
            _WEIGHT,
            _INDICES,
            _OFFSETS,
            _OUTPUT,
            _BAG_IDS,
            _BAG_SIZES,
            Tensor("arg", "output", "I", _BAGS, "the row that holds each maximum, -1 for none"),
        ),
        variants=_VARIANTS,
        empty=_EMPTY.format(also=", its arg -1"),
        bad_data=_NO_PART
        + _OFFSETS_BAD
        + "NaN wins over every number, -0 equals +0, and among equals the first position wins.",
        workspace=_FORWARD_WORKSPACE,
        determinism=BIT_STABLE + "Bits are copied, NaN payloads and the sign of zero included.",
        source="torch.nn.functional.embedding_bag (2.13). Differs: NaN wins wherever it stands.",
    ),
    Operator(
        name="embedding_bag_backward",
        family="embedding_bag",
        folder="segment",
        summary="Gradient of embedding_bag with respect to the table: grad_weight[e, d] = sum over the positions i "
        "with indices[i] = e of grad_output[bag_ids[i], d] times per_sample_weights[i], for a mean divided by "
        "bag_sizes[bag_ids[i]].",
        parameters=(
            *_EXTENTS,
            _MEAN,
            _HAS_WEIGHTS,
            _PADDING,
            _FREQUENCY,
            _GRAD_OUTPUT,
            _INDICES,
            _GIVEN_IDS,
            _GIVEN_SIZES,
            _WEIGHTS,
            _GRAD_WEIGHT,
        ),
        variants=_VARIANTS,
        empty="No table: success, nothing to write. A row that no position names is 0.",
        bad_data=_NO_PART + _DROPPED + _ARITHMETIC,
        workspace=_BACKWARD_WORKSPACE.format(bytes=34),
        determinism=BIT_STABLE
        + f"A row's positions ascending {_PIECES}, counted from the row's first that takes part. A factor is rounded "
        "once, a term added by one fma, and the sum divided once.",
        source="torch.nn.functional.embedding_bag (2.13).",
    ),
    Operator(
        name="embedding_bag_max_backward",
        family="embedding_bag",
        folder="segment",
        summary="Gradient of embedding_bag_max with respect to the table: grad_weight[e, d] = sum over the positions i "
        "with indices[i] = e of grad_output[b, d] where arg[b, d] = e, b being bag_ids[i]; of positions of one bag "
        "that name the same row the first alone counts.",
        parameters=(
            *_EXTENTS,
            _PADDING,
            _GRAD_OUTPUT,
            _INDICES,
            _GIVEN_IDS,
            Tensor("arg", "input", "I", _BAGS, "of the forward call"),
            _GRAD_WEIGHT,
        ),
        variants=_VARIANTS,
        empty="No table: success, nothing to write. A row that no position names is 0.",
        bad_data=_NO_PART
        + _DROPPED
        + "An arg that is no row takes nothing. Positions are of one bag if they follow each other among those of a "
        "row and have one id. " + _ARITHMETIC,
        workspace=_BACKWARD_WORKSPACE.format(bytes=34) + " On CUDA also a quarter of a byte an index and column, "
        "columns rounded up to 32.",
        determinism=BIT_STABLE + f"A row's positions ascending {_PIECES}, counted from the row's first.",
        source="torch.nn.functional.embedding_bag (2.13).",
    ),
    Operator(
        name="embedding_bag_weights_backward",
        family="embedding_bag",
        folder="segment",
        summary="Gradient of embedding_bag with respect to per_sample_weights: grad_weights[i] = sum over d of "
        "grad_output[bag_ids[i], d] weight[indices[i], d].",
        parameters=(
            *_EXTENTS,
            _PADDING,
            _GRAD_OUTPUT,
            _WEIGHT,
            _INDICES,
            _GIVEN_IDS,
            Tensor("grad_weights", "output", "T", ("num_indices",), "0 of a position that takes no part"),
        ),
        variants=_VARIANTS,
        empty="No indices: success, nothing to write. No columns: all zeros.",
        bad_data=_NO_PART + _DROPPED + _ARITHMETIC,
        workspace="None.",
        determinism=BIT_STABLE
        + "With w the smallest power of two that is no less than embedding_dim, but at least 4 and at most 128, strand "
        "s adds the products of the columns s, s + w, s + 2 w and so on, ascending, each by one fma; then strand s + w "
        "/ 2 is added to strand s, the first half of the strands goes on alike, and so on down to one.",
        source="torch.nn.functional.embedding_bag (2.13).",
    ),
)
