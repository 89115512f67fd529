# SPDX-License-Identifier: Apache-2.0
"""Indices out of range on a GPU: kernels drop them, and what was seen of them is kept on the device until asked for.

Nothing here waits for the device but `check_indices`.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

__all__ = ["check_indices", "note"]

_lock = threading.Lock()
# By device: how many entries were out of range, as one element on that device.
_dropped: dict[Any, Any] = {}


def note(ids: Any, extent: int) -> None:
    """Count the entries of an index on a GPU that name no row of `extent`."""
    if ids.device.type != "cuda":
        return
    with _lock:
        total = _dropped.get(ids.device)
        if total is None:
            if torch.cuda.is_current_stream_capturing():
                return
            total = _dropped[ids.device] = torch.zeros((), dtype=torch.int64, device=ids.device)
    # An unsigned comparison finds both ends at once.
    total.add_(torch.count_nonzero(torch.bitwise_or(ids < 0, ids >= extent)))


def check_indices() -> None:
    """Raise IndexError if an operator that was taken over has dropped an index since this was last asked.

    Waits for every GPU on which such operators ran. On the CPU an index out of range is PyTorch's own error at once.

    Raises
    ------
    IndexError
        With how many entries were dropped, by device.
    """
    with _lock:
        totals = list(_dropped.items())
    found = []
    for device, total in totals:
        count = int(total)
        total.zero_()
        if count:
            found.append(f"{count} on {device}")
    if found:
        raise IndexError(f"indices out of range were dropped: {', '.join(found)}")
