# SPDX-License-Identifier: Apache-2.0
"""The route of a count of entries with weights, which PyTorch adds by atomics."""

from __future__ import annotations

from typing import Any

import torch

from ..bincount import MOST_BINS, bincount
from ._named import INDICES
from ._route import RefusedError, route

__all__: list[str] = []


def _bincount_refusal(self: Any, weights: Any = None, minlength: int = 0) -> str:
    # Without weights PyTorch counts by atomics of integers, which have one result.
    if weights is None:
        return "no weights"
    if self.dim() != 1 or weights.shape != self.shape or weights.device != self.device or minlength < 0:
        return "arguments that PyTorch refuses"
    if self.dtype not in INDICES:
        return f"an index of {self.dtype}"
    return "" if self.numel() else "an empty tensor"


# How many bins a device's entries named the last time, rounded up. So many are counted before it is known how many
# there are now. No sum depends on it: a bin's does not on how many others there are.
_FEWEST = 256
_named: dict[Any, int] = {}


def _counted(input: Any, weights: Any, guess: int) -> tuple[int, Any]:
    """Answer how many bins the entries name, and the sums of the first ones, unless that takes a look before."""
    if guess > MOST_BINS:
        least, most = torch.stack(torch.aminmax(input)).tolist()
        return (most + 1 if least >= 0 else -1), None
    sums, extent = bincount(input, weights, guess, return_extent=True)
    return extent.item(), sums


@route("aten::bincount", _bincount_refusal, "with weights; int32, int64", devices=("cuda",), compiled=False)
def _bincount(self: Any, weights: Any, minlength: int = 0) -> Any:
    summed = weights if weights.dtype == torch.float32 else weights.to(torch.float64)
    guess = max(minlength, _named.get(self.device, _FEWEST))
    # One look, which waits for the device, as PyTorch's own operator does twice.
    extent, sums = _counted(self, summed, guess)
    if extent < 0:
        raise RefusedError("a negative entry")
    _named[self.device] = -(-extent // _FEWEST) * _FEWEST
    wanted = max(extent, minlength)
    if sums is None or wanted > guess:
        return bincount(self, summed, wanted)
    return sums.resize_(wanted)
