# SPDX-License-Identifier: Apache-2.0
"""The rows that ids name, each once and ascending, without a look at how many there are: no call waits for the device.

For tensors of more rows than a kernel counts: there are no more sums than ids, by a number for each row that is named.
Ids keep their order, and so do a sum's terms: it has the bits that it would have by the ids themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["Distinct"]


class Distinct:
    """The rows that ids name, in as many places as there are ids; the places behind the last row repeat it.

    Parameters
    ----------
    ids : Tensor, [entries]
        At least one; what lies outside [0, extent) names nothing.
    extent : int
        How many rows there are.

    Attributes
    ----------
    ranks : Tensor, [entries]
        How many of the rows are below an id's; -1 where it names none.
    rows : Tensor, [entries]
        What each place holds: a row, the first one if nothing is named at all.
    sums : Tensor, [entries]
        The rank of each place's row.
    is_any : Tensor, []
        Whether any row is named.
    """

    def __init__(self, ids: Any, extent: int) -> None:
        ids = ids.to(torch.int64)
        is_row = (ids >= 0) & (ids < extent)
        # What names nothing comes last.
        keys, order = torch.where(is_row, ids, extent).sort(stable=True)
        is_next = torch.zeros_like(keys)
        is_next[1:] = keys[1:] != keys[:-1]
        ascending = is_next.cumsum(0)
        last = torch.where(keys < extent, ascending, -1).max()
        self.is_any = last >= 0
        self.ranks = torch.where(is_row, torch.empty_like(keys).index_copy_(0, order, ascending), -1)
        self.sums = torch.arange(keys.shape[0], device=keys.device).minimum(last).clamp(min=0)
        found = keys[torch.searchsorted(ascending, self.sums)]
        self.rows = torch.where(self.is_any, found, 0)

    def places(self, extents: Sequence[int]) -> list[Any]:
        """Answer the rows by their places along axes, as whose row-major order they are counted."""
        found, rest = [], self.rows
        for extent in reversed(extents[1:]):
            found.append(rest % extent)
            rest = rest.div(extent, rounding_mode="floor")
        return [rest, *reversed(found)]
