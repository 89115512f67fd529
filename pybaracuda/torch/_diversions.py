# SPDX-License-Identifier: Apache-2.0
"""Python code of PyTorch and torchvision that goes around the kernels when determinism is asked for, led back to them.

Both look the function up in a module when they call it, so that replacing it there reaches every caller.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ._imports import forget_import, when_imported
from ._route import ROUTES

__all__ = ["intercept", "restore"]

# What was replaced: module, attribute, what stood there.
_replaced: list[tuple[Any, str, Any]] = []


def _replication(saved: Callable[..., Any]) -> Callable[..., Any]:
    def pad(input: Any, padding: Any) -> Any:
        route = ROUTES.get(f"aten::replication_pad{len(padding) // 2}d")
        if route is None or route.refusal(input, padding):
            return saved(input, padding)
        return torch._C._nn.pad(input, list(padding), "replicate")

    return pad


def _boxes(saved: Callable[..., Any]) -> Callable[..., Any]:
    def roi_align(input: Any, rois: Any, *rest: Any) -> Any:
        if ROUTES["torchvision::roi_align"].refusal(input, rois):
            return saved(input, rois, *rest)
        return torch.ops.torchvision.roi_align(input, rois, *rest)

    return roi_align


# Module, attribute, what makes the replacement of what stands there, and the group of the routes it leads to.
_DIVERSIONS = (
    ("torch._decomp.decompositions", "_replication_pad", _replication, "replication_pad"),
    ("torchvision.ops.roi_align", "_roi_align", _boxes, "roi_align"),
)


def _replace(name: str, attribute: str, make: Callable[[Any], Any]) -> None:
    module = sys.modules[name]
    if hasattr(module, attribute) and not any(each is module for each, _, _ in _replaced):
        saved = getattr(module, attribute)
        _replaced.append((module, attribute, saved))
        setattr(module, attribute, make(saved))


def intercept(groups: set[str]) -> None:
    """Lead back what goes around the routes of these groups, once, now or as soon as it is imported."""
    for name, attribute, make, group in _DIVERSIONS:
        if any(each.startswith(group) for each in groups):
            when_imported(name, partial(_replace, name, attribute, make))


def restore() -> None:
    """Put back what stood there."""
    for name, *_ in _DIVERSIONS:
        forget_import(name)
    while _replaced:
        module, attribute, saved = _replaced.pop()
        setattr(module, attribute, saved)
