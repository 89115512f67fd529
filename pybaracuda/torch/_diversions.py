# SPDX-License-Identifier: Apache-2.0
"""Python code of PyTorch and torchvision that goes around the kernels, led back to them.

Some goes around them when determinism is asked for; pooling from several maps calls one for each map and waits for the
device to know how many boxes each has, where one call of ours has them all.

Both look the function up in a module when they call it, so that replacing it there reaches every caller.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch

from ._imports import forget_import, when_imported
from ._route import ROUTES, of_floats

__all__ = ["LEVELS", "Account", "intercept", "restore"]

# What torchvision's pooling from several maps is called in a report; it is no operator.
LEVELS = "torchvision::_multiscale_roi_align"


class Account(Protocol):
    """Where calls are counted."""

    ours: int
    fallbacks: Counter[str]


# Answers where calls of a function on a kind of device are counted; None where nothing takes them over.
Accounts = Callable[[str, str], Account | None]

# What was replaced: module, attribute, what stood there.
_replaced: list[tuple[Any, str, Any]] = []


def _replication(saved: Callable[..., Any], accounts: Accounts) -> Callable[..., Any]:
    def pad(input: Any, padding: Any) -> Any:
        route = ROUTES.get(f"aten::replication_pad{len(padding) // 2}d")
        if route is None or route.refusal(input, padding):
            return saved(input, padding)
        return torch._C._nn.pad(input, list(padding), "replicate")

    return pad


def _linear(saved: Callable[..., Any], accounts: Accounts) -> Callable[..., Any]:
    names = {4: "upsample_bilinear2d", 5: "upsample_trilinear3d"}

    def upsample(input: Any, output_size: Any, align_corners: Any, scale_factors: Any) -> Any:
        name = names.get(input.dim(), "")
        route = ROUTES.get(f"aten::{name}")
        # Sizes that PyTorch works out from the factors are above 0 where it takes them at all.
        if route is None or route.refusal(input, output_size or [1] * (input.dim() - 2)):
            return saved(input, output_size, align_corners, scale_factors)
        return getattr(torch._C._nn, name)(input, output_size, align_corners, scale_factors)

    return upsample


def _boxes(saved: Callable[..., Any], accounts: Accounts) -> Callable[..., Any]:
    def roi_align(input: Any, rois: Any, *rest: Any) -> Any:
        if ROUTES["torchvision::roi_align"].refusal(input, rois):
            return saved(input, rois, *rest)
        return torch.ops.torchvision.roi_align(input, rois, *rest)

    return roi_align


# torchvision 0.26's parameters; with others it is left alone.
_LEVELS_PARAMETERS = ["x_filtered", "boxes", "output_size", "sampling_ratio", "scales", "mapper"]
# What its LevelMapper adds to a level, and so does ours.
_LENIENCY = 1e-6


def _levels_refusal(maps: Any, boxes: Any, scales: Any, mapper: Any) -> str:
    """Say why a call goes to torchvision's code; "" if ours takes it."""
    if scales is None or not 1 <= len(maps) <= 8 or len(scales) != len(maps) or not boxes:
        return "shapes that do not fit"
    if type(mapper).__name__ != "LevelMapper" or type(mapper).__module__ != "torchvision.ops.poolers":
        return "a mapper of its own"
    if mapper.eps != _LENIENCY or mapper.k_max - mapper.k_min + 1 != len(maps) or int(mapper.lvl0) != mapper.lvl0:
        return "a mapper of its own"
    first = maps[0]
    if any(each.dim() != 4 or each.shape[:2] != first.shape[:2] or not each.numel() for each in maps):
        return "shapes that do not fit"
    if len(boxes) > first.shape[0] or any(each.dim() != 2 or each.shape[1] != 4 for each in boxes):
        return "shapes that do not fit"
    # Autocast has torchvision's kernel compute in float32, as ours does with 16 bits, and round to the maps' dtype.
    if torch.is_autocast_enabled(first.device.type):
        return of_floats(*maps) or ("dtype torch.float64 under autocast" if first.dtype == torch.float64 else "")
    return of_floats(*maps, *boxes)


def _levels(saved: Callable[..., Any], accounts: Accounts) -> Callable[..., Any]:
    if list(inspect.signature(saved).parameters) != _LEVELS_PARAMETERS:
        return saved

    def multiscale_roi_align(
        x_filtered: Any, boxes: Any, output_size: Any, sampling_ratio: int, scales: Any, mapper: Any
    ) -> Any:
        from ._levels_function import roi_align_levels

        account = accounts(LEVELS, x_filtered[0].device.type) if x_filtered else None
        # Compilers and exporters know torchvision's code.
        if account is None or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return saved(x_filtered, boxes, output_size, sampling_ratio, scales, mapper)
        reason = _levels_refusal(x_filtered, boxes, scales, mapper)
        if reason:
            account.fallbacks[reason] += 1
            return saved(x_filtered, boxes, output_size, sampling_ratio, scales, mapper)
        rows = boxes if x_filtered[0].dtype == torch.float64 else [each.float() for each in boxes]
        answer = roi_align_levels(
            x_filtered, rows, output_size, scales, sampling_ratio, False, mapper.k_min, mapper.s0, int(mapper.lvl0)
        )
        account.ours += 1
        return answer

    return multiscale_roi_align


# Module, attribute, what makes the replacement of what stands there, and the group of the routes it leads to.
_DIVERSIONS = (
    ("torch._decomp.decompositions", "_replication_pad", _replication, "replication_pad"),
    ("torch._decomp.decompositions", "_upsample_linear_vec", _linear, "upsample_"),
    ("torchvision.ops.roi_align", "_roi_align", _boxes, "roi_align"),
    ("torchvision.ops.poolers", "_multiscale_roi_align", _levels, "roi_align"),
)


def _replace(name: str, attribute: str, make: Callable[[Any, Accounts], Any], accounts: Accounts) -> None:
    module = sys.modules[name]
    if hasattr(module, attribute) and not any(each is module and of == attribute for each, of, _ in _replaced):
        saved = getattr(module, attribute)
        _replaced.append((module, attribute, saved))
        setattr(module, attribute, make(saved, accounts))


def intercept(groups: set[str], accounts: Accounts) -> None:
    """Lead back what goes around the routes of these groups, once, now or as soon as it is imported."""
    for name, attribute, make, group in _DIVERSIONS:
        if any(each.startswith(group) for each in groups):
            when_imported(name, partial(_replace, name, attribute, make, accounts))


def restore() -> None:
    """Put back what stood there."""
    for name, *_ in _DIVERSIONS:
        forget_import(name)
    while _replaced:
        module, attribute, saved = _replaced.pop()
        setattr(module, attribute, saved)
