# SPDX-License-Identifier: Apache-2.0
"""Python code of PyTorch and torchvision that goes around the kernels when determinism is asked for, led back to them.

Both look the function up in a module when they call it, so that replacing it there reaches every caller.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["intercept", "restore"]

# What was replaced: module, attribute, what stood there.
_replaced: list[tuple[Any, str, Any]] = []


def _replace(module: Any, attribute: str, make: Callable[[Any], Any]) -> None:
    if module is None or not hasattr(module, attribute):
        return
    saved = getattr(module, attribute)
    _replaced.append((module, attribute, saved))
    setattr(module, attribute, make(saved))


def _replication(saved: Any) -> Any:
    def pad(input: Any, padding: Any) -> Any:
        if min(padding) < 0:
            return saved(input, padding)
        return torch._C._nn.pad(input, list(padding), "replicate")

    return pad


def _boxes(saved: Any) -> Any:
    def roi_align(input: Any, rois: Any, *rest: Any) -> Any:
        return torch.ops.torchvision.roi_align(input, rois, *rest)

    return roi_align


def intercept() -> None:
    """Lead back what has been imported and is not led back yet."""
    done = {module.__name__ for module, _, _ in _replaced}
    for name, attribute, make in (
        ("torch._decomp.decompositions", "_replication_pad", _replication),
        ("torchvision.ops.roi_align", "_roi_align", _boxes),
    ):
        if name not in done:
            _replace(sys.modules.get(name), attribute, make)


def restore() -> None:
    """Put back what stood there."""
    while _replaced:
        module, attribute, saved = _replaced.pop()
        setattr(module, attribute, saved)
