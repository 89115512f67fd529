# SPDX-License-Identifier: Apache-2.0
"""The route of a count of entries with weights, which PyTorch adds by atomics."""

from __future__ import annotations

import threading
from typing import Any

import torch

from ..bincount import bincount
from ._named import INDICES
from ._route import route

__all__: list[str] = []


class _Looked(threading.local):
    """What a thread's refusal of a count saw of the entries, for the run of the same call, which comes next."""

    bounds: tuple[int, int] | None = None


_looked = _Looked()


def _bincount_refusal(self: Any, weights: Any = None, minlength: int = 0) -> str:
    # Without weights PyTorch counts by atomics of integers, which have one result.
    if weights is None:
        return "no weights"
    if self.dim() != 1 or weights.shape != self.shape or weights.device != self.device or minlength < 0:
        return "arguments that PyTorch refuses"
    if self.dtype not in INDICES:
        return f"an index of {self.dtype}"
    if not self.numel():
        return "an empty tensor"
    # One look, which waits for the device, as PyTorch's own operator does twice.
    least, most = torch.stack(torch.aminmax(self)).tolist()
    _looked.bounds = least, most
    return "a negative entry" if least < 0 else ""


@route("aten::bincount", _bincount_refusal, "with weights; int32, int64", devices=("cuda",), compiled=False)
def _bincount(self: Any, weights: Any, minlength: int = 0) -> Any:
    assert _looked.bounds is not None
    (_, most), _looked.bounds = _looked.bounds, None
    summed = weights if weights.dtype == torch.float32 else weights.to(torch.float64)
    return bincount(self, summed, max(most + 1, minlength))
