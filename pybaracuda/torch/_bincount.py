# SPDX-License-Identifier: Apache-2.0
"""The route of a count of entries with weights, which PyTorch adds by atomics."""

from __future__ import annotations

from typing import Any

import torch

from ..bincount import bincount
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


@route("aten::bincount", _bincount_refusal, "with weights; int32, int64", devices=("cuda",), compiled=False)
def _bincount(self: Any, weights: Any, minlength: int = 0) -> Any:
    # One look, which waits for the device, as PyTorch's own operator does twice.
    least, most = torch.stack(torch.aminmax(self)).tolist()
    if least < 0:
        raise RefusedError("a negative entry")
    summed = weights if weights.dtype == torch.float32 else weights.to(torch.float64)
    return bincount(self, summed, max(most + 1, minlength))
