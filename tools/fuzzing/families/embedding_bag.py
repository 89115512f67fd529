# SPDX-License-Identifier: Apache-2.0
"""Problems of bags of embeddings, drawn: offsets in no order, indices that are no row, bags that there are not."""

from __future__ import annotations

from tools.fuzzing import content
from tools.fuzzing.abi import Symbol
from tools.fuzzing.call import Values
from tools.fuzzing.drawer import Drawer
from tools.fuzzing.family import Family, kind_by_name

_EXTENTS = {
    "indices": "num_embeddings", "arg": "num_embeddings", "bag_ids": "num_bags", "bag_sizes": "num_indices",
    "offsets": "num_indices",
}  # fmt: skip


def _values(draw: Drawer, symbol: Symbol, large: bool) -> Values:
    count = draw.choice((0, 1, 2, 5, 7, 16, 33, 40))
    if large:
        count = draw.choice((255, 256, 257, 300, 513, 700, 2000, 5000))
    elif draw.one_in(8):
        count = 30 + draw.below(300)
    values: Values = {
        "num_indices": count,
        "num_bags": draw.choice((1, 3, 40, 700)) if large else draw.size(),
        "num_embeddings": draw.choice((1, 3, 40, 700)) if large else draw.size(),
        "embedding_dim": draw.size(70 if large else 9),
        "padding_idx": draw.choice((-1, -1, 0, 1, 2, 2**40, -(2**63), 2**63 - 1)),
    }
    flags = ("mean", "has_per_sample_weights", "wants_bags", "scale_grad_by_freq")
    names = {scalar.name for scalar in symbol.scalars}
    return values | {name: draw.below(2) for name in flags if name in names}


def _kind(draw: Drawer, symbol: Symbol, name: str, values: Values) -> str:
    if name == "offsets":
        return "offsets-" + str(draw.choice(content.OFFSET_KINDS))
    if name in ("bag_ids", "bag_sizes"):
        return "ids-sorted" if draw.below(2) else "ids-" + str(draw.choice(content.INDEX_KINDS))
    if name == "indices":
        return "ids-" + str(draw.choice(content.INDEX_KINDS))
    if name == "arg":
        return "ids-" + str(draw.choice(("random", "outside", "wild", "one")))
    return kind_by_name(draw, symbol, name, values)


def _limit(symbol: Symbol, name: str, values: Values) -> int:
    """What indices, bags and offsets stay below when they are good."""
    return int(values[_EXTENTS[name]]) if name in _EXTENTS else 0


FAMILY = Family(("embedding_bag",), _values, one_large_in=64, kind=_kind, limit=_limit)
