# SPDX-License-Identifier: Apache-2.0
"""torch.compile on what is installed: calls that a route takes become opaque operators of ours.

Inductor would decompose most of these operators into code of its own, whose sums have another order. The table in which
it looks decompositions up is no public interface; where a version of torch has none, compiled programs keep inductor's
code.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch

from .._abi import ABI_HASH
from ._imports import forget_import, when_imported
from ._route import ROUTES, SLOW_ON_CPU, Route

__all__ = ["decompositions", "route_compiler"]

_TABLE = "torch._inductor.decomposition"
# Imports the table and insists, while it is imported, that some of our operators are not in it.
_LAST_READER = "torch._inductor.lowering"
# Counts up when compiled code would rely on something else, so that code in a cache on disk is not used for it.
_PROMISES = 3
_TAG = f"|pybaracuda-{ABI_HASH:016x}-{_PROMISES}"
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

_lock = threading.RLock()
_library: Any = None
# What stood in inductor's table, by operator; None where nothing did.
_saved: dict[Any, Any] = {}


def _overload(operator: str) -> Any:
    """Answer the operator as torch.ops has it, or None if this process has none."""
    namespace, _, name = operator.partition("::")
    base, _, overload = name.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return getattr(packet, overload or "default", None)


def _contiguous(answer: Any) -> Any:
    return None if answer is None else answer.contiguous()


@cache
def _opaque(operator: str) -> Any:
    """Define the operator of ours that calls another one as it is, so that no compiler takes that apart."""
    global _library
    original = _overload(operator)
    schema = original._schema
    name = "_".join(part.strip("_") for part in (*schema.name.split("::"), schema.overload_name) if part)
    if _library is None:
        _library = torch.library.Library("pybaracuda", "FRAGMENT")
    arguments = str(schema).partition("(")[2]
    _library.define(f"{name}({arguments}", tags=(torch.Tag.pt2_compliant_tag,))

    def call(*args: Any, **kwargs: Any) -> Any:
        # Compiled code relies on the strides that it was promised, and PyTorch's kernels have others than ours here and
        # there: the gradient of affine_grid is a transposed tensor.
        answer = original(*args, **kwargs)
        return _contiguous(answer) if isinstance(answer, torch.Tensor) else tuple(map(_contiguous, answer))

    _library.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pybaracuda::{name}", call, lib=_library)
    return getattr(torch.ops.pybaracuda, name).default


def _compiled(route: Route) -> tuple[Any, Any] | None:
    """Answer the operator that a compiler sees and ours for it; None for what it may keep."""
    original = _overload(route.operator)
    if not route.compiled or original is None or original._schema.is_mutable:
        return None
    return original, _opaque(route.operator)


def _stays_whole(route: Route, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Tell whether a compiled program makes this call as the eager one does."""
    first = next((each for each in args if isinstance(each, torch.Tensor)), None)
    if first is None or first.device.type not in route.devices:
        return False
    reason = route.refusal(*args, **kwargs)
    return not reason or reason in SLOW_ON_CPU


def _router(route: Route, ours: Any, before: Any) -> Callable[..., Any]:
    def decompose(*args: Any, **kwargs: Any) -> Any:
        if _stays_whole(route, args, kwargs):
            return ours(*args, **kwargs)
        return NotImplemented if before is None else before(*args, **kwargs)

    return decompose


def _is_composite(operator: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), _COMPOSITE))


def _set_composite(operator: Any, route: Route | None) -> None:
    """Let a route's calls of an operator that PyTorch composes of others reach the table; None sets it back.

    PyTorch 2.9 takes such a call apart before any table is asked, and so does a newer one that has done so before.
    """

    def compose(*args: Any, **kwargs: Any) -> Any:
        assert route is not None
        return NotImplemented if _stays_whole(route, args, kwargs) else operator._op_dk(_COMPOSITE, *args, **kwargs)

    if route is None:
        operator.py_kernels.pop(_COMPOSITE, None)
    else:
        operator.py_kernels[_COMPOSITE] = compose
    operator._dispatch_cache.clear()


def decompositions(routes: Iterable[Route] | None = None) -> dict[Any, Callable[..., Any]]:
    """Answer a table for ``ExportedProgram.run_decompositions`` and custom compilers: what replaces each operator.

    What a route does not take is left as it is. To be laid over PyTorch's own table, which leads to these operators::

        table = torch.export.default_decompositions()
        table.update(pybaracuda.torch.decompositions())
    """
    found = {}
    for route in ROUTES.values() if routes is None else routes:
        pair = _compiled(route)
        if pair is not None:
            found[pair[0]] = _router(route, pair[1], None)
    return found


def _change(table: Any, routes: Iterable[Route]) -> None:
    """Make inductor's table what it was, but for the routes."""
    known = getattr(table, "decompositions", None)
    if known is None:
        return
    for operator, before in _saved.items():
        if before is None:
            known.pop(operator, None)
        else:
            known[operator] = before
        if _is_composite(operator):
            _set_composite(operator, None)
    _saved.clear()
    for route in routes:
        pair = _compiled(route)
        if pair is not None:
            operator, ours = pair
            _saved[operator] = known.get(operator)
            known[operator] = _router(route, ours, _saved[operator])
            if _is_composite(operator):
                _set_composite(operator, route)
    copies = getattr(table, "fast_random_decomps", None)
    if copies is not None and hasattr(copies, "cache_clear"):
        copies.cache_clear()


def route_compiler(routes: Sequence[Route]) -> None:
    """Let torch.compile use these routes and no others; without any, it is as it was."""
    with _lock:
        forget_import(_LAST_READER)
        if routes or _saved:
            # Importing the compiler here would take seconds.
            when_imported(_LAST_READER, lambda: _change(sys.modules[_TABLE], routes))
        # What was compiled without the routes must not be found in a cache, on disk neither, nor the other way round.
        config: Any = getattr(torch.compiler, "config", None)
        tag = getattr(config, "cache_key_tag", None)
        if tag is not None:
            config.cache_key_tag = tag.replace(_TAG, "") + (_TAG if routes else "")
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
