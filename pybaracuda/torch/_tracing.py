# SPDX-License-Identifier: Apache-2.0
"""Tracing of calls that are ours, where PyTorch's tracer refuses the operator under its deterministic flag.

A tracer asks an operator's function on tensors without values for shapes, and of some operators that function looks at
the flag. The table of such functions that is asked first is no public interface; where a version of torch has none,
such programs are refused as without this library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ._route import Route

__all__ = ["route_tracer"]

_META = torch._C.DispatchKey.Meta
# What was entered, by operator: the list that it stands in, and its entry.
_entered: dict[str, tuple[list[Any], Any]] = {}


def _without_flag(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    if not torch.are_deterministic_algorithms_enabled():
        return function(*args, **kwargs)
    torch.use_deterministic_algorithms(False)
    try:
        return function(*args, **kwargs)
    finally:
        torch.use_deterministic_algorithms(True, warn_only=warns)


def _traced(route: Route, before: Callable[..., Any]) -> Callable[..., Any]:
    """Answer the operator's function, which looks at the flag where no kernel of ours takes the call."""

    def trace(*args: Any, **kwargs: Any) -> Any:
        if args[0].device.type in route.devices and not route.refusal(*args, **kwargs):
            return _without_flag(before, *args, **kwargs)
        return before(*args, **kwargs)

    return trace


def _enter(route: Route) -> None:
    try:
        from torch._library import simple_registry
        from torch._library.utils import Kernel

        name, _, overload = route.name.partition(".")
        operator = getattr(getattr(getattr(torch.ops, route.namespace), name), overload or "default")
        kernels = simple_registry.singleton.find(route.operator).fake_impl.kernels
        if kernels:
            return
        kernels.append(Kernel(_traced(route, operator.py_kernels[_META]), "pybaracuda"))
    except (ImportError, AttributeError, KeyError):
        return
    operator._dispatch_cache.clear()
    _entered[route.operator] = kernels, kernels[-1]


def route_tracer(routes: Iterable[Route]) -> None:
    """Let tracers ask no flag where these routes take a call; without any, they are as they were."""
    for kernels, entry in _entered.values():
        if entry in kernels:
            kernels.remove(entry)
    _entered.clear()
    for route in routes:
        if route.refused_by_tracer:
            _enter(route)
