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
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from .._abi import ABI_HASH
from ._imports import forget_import, when_imported
from ._named import rows_named
from ._route import ROUTES, SLOWER, Route
from ._tracing import route_tracer

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
# The keys under which PyTorch has code of Python's that takes an overload apart, and what stood there.
_COMPOSITE_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)
_saved_kernels: dict[tuple[Any, Any], Callable[..., Any]] = {}


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

    def fake(*args: Any, **kwargs: Any) -> Any:
        # A call without values of an operator that is kept whole would come back here.
        return _contiguous(original._op_dk(_COMPOSITE, *args, **kwargs))

    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(original.name(), _COMPOSITE)
    _library.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pybaracuda::{name}", fake if is_composite else call, lib=_library)
    return getattr(torch.ops.pybaracuda, name).default


def _compiled(route: Route) -> tuple[Any, Any] | None:
    """Answer the operator that a compiler sees and ours for it; None for what it may keep."""
    original = _overload(route.operator)
    if not route.compiled or route.whole or original is None or original._schema.is_mutable:
        return None
    return original, _opaque(route.operator)


def _only_value(tensor: Any) -> Any:
    """Answer the number that all elements of a tensor are, where a compiler knows one; else None."""
    tracing = get_proxy_mode()
    found = None if tracing is None else get_proxy_slot(tensor, tracing.tracer, None)
    if found is None or found.proxy.node.target is not torch.ops.aten.full.default:
        return None
    value = found.proxy.node.args[1]
    return value if isinstance(value, int | float) else None


def _by_one_column(ours: Any) -> Callable[..., Any]:
    """Answer a scatter_add that adds up one column where all are alike.

    So PyTorch's gradient of a mean counts rows: it adds ones to ones or zeros, as many columns as the rows have. A
    compiler would have to write them for an operator that it cannot look into.
    """

    def add(self: Any, dim: int, index: Any, src: Any) -> Any:
        start, step = _only_value(self), _only_value(src)
        if start is None or step is None or rows_named(self, dim % self.dim(), index) is None:
            return ours(self, dim, index, src)
        column = [1] * self.dim()
        for at in range(self.dim()):
            if at != dim % self.dim():
                index = index.narrow(at, 0, 1)
        column[dim] = self.shape[dim]
        total = self.new_full(column, start)
        added = src.new_full(index.shape, step)
        return ours(total, dim, index, added).expand(self.shape).clone(memory_format=torch.contiguous_format)

    return add


def _router(route: Route, ours: Any, before: Any) -> Callable[..., Any]:
    taken = _by_one_column(ours) if route.operator == "aten::scatter_add" else ours

    def decompose(*args: Any, **kwargs: Any) -> Any:
        first = next((each for each in args if isinstance(each, torch.Tensor)), None)
        if first is not None and first.device.type in route.devices:
            reason = route.refusal(*args, **kwargs)
            if not reason or reason in SLOWER:
                return taken(*args, **kwargs)
        return NotImplemented if before is None else before(*args, **kwargs)

    return decompose


def _is_kept_whole(operator: Any) -> bool:
    """Tell whether this is an operator that PyTorch composes of others, and one kernel of ours is in its place.

    The kernel may still be there when its installation has gone.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    name = operator.name()
    return has_kernel(name, _COMPOSITE) and any(has_kernel(name, key) for key in ("CPU", "CUDA"))


def _keep_whole() -> list[Route]:
    """Let a compiler call such operators as they are, whether our kernel takes a call or not; answer their routes.

    PyTorch 2.9 would take them apart before the compiler's table is asked. Newer ones leave them whole for the sake of
    the kernel, and then take what the table does not know apart into writes in place, which the compiler cannot have.
    """
    kept = []
    for route in ROUTES.values():
        operator = _overload(route.operator)
        if operator is None:
            continue
        if _is_kept_whole(operator):
            operator.py_kernels[_COMPOSITE] = _opaque(route.operator)
            kept.append(route)
        elif _COMPOSITE in operator.py_kernels and operator.py_kernels[_COMPOSITE] is _opaque(route.operator):
            del operator.py_kernels[_COMPOSITE]
        else:
            continue
        operator._dispatch_cache.clear()
    return kept


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


def _in_place_of(route: Route, answer: Callable[..., Any], before: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        first = next((each for each in args if isinstance(each, torch.Tensor)), None)
        if first is not None and first.device.type in route.devices:
            found = answer(*args, **kwargs)
            if found is not NotImplemented:
                return found
        return before(*args, **kwargs)

    return call


def _change_composites(routes: Iterable[Route]) -> None:
    """Make what compilers call for composite overloads what it was, but for those of the routes."""
    for (overload, key), before in _saved_kernels.items():
        overload.py_kernels[key] = before
        overload._dispatch_cache.clear()
    _saved_kernels.clear()
    for route in routes:
        if route.composite is None:
            continue
        overload = _overload(route.composite[0])
        kernels = getattr(overload, "py_kernels", {})
        for key in _COMPOSITE_KEYS:
            if key in kernels:
                _saved_kernels[overload, key] = kernels[key]
                kernels[key] = _in_place_of(route, route.composite[1], kernels[key])
                overload._dispatch_cache.clear()


def _change(table: Any, routes: Iterable[Route], kept: Iterable[Route]) -> None:
    """Make inductor's table what it was, but for the routes and the operators that are kept whole."""
    _change_composites(routes)
    known = getattr(table, "decompositions", None)
    if known is None:
        return
    for operator, before in _saved.items():
        if before is None:
            known.pop(operator, None)
        else:
            known[operator] = before
    _saved.clear()
    for route in routes:
        pair = _compiled(route)
        if pair is not None:
            operator, ours = pair
            _saved[operator] = known.get(operator)
            known[operator] = _router(route, ours, _saved[operator])
    for route in kept:
        operator = _overload(route.operator)
        _saved.setdefault(operator, known.get(operator))
        known[operator] = _opaque(route.operator)
    copies = getattr(table, "fast_random_decomps", None)
    if copies is not None and hasattr(copies, "cache_clear"):
        copies.cache_clear()


def route_compiler(routes: Sequence[Route]) -> None:
    """Let torch.compile use these routes and no others; without any, it is as it was."""
    with _lock:
        forget_import(_LAST_READER)
        kept = _keep_whole()
        route_tracer(routes)
        if routes or kept or _saved:
            # Importing the compiler here would take seconds.
            when_imported(_LAST_READER, lambda: _change(sys.modules[_TABLE], routes, kept))
        # What was compiled without the routes must not be found in a cache, on disk neither, nor the other way round.
        config: Any = getattr(torch.compiler, "config", None)
        tag = getattr(config, "cache_key_tag", None)
        if tag is not None:
            config.cache_key_tag = tag.replace(_TAG, "") + (_TAG if routes or kept else "")
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
