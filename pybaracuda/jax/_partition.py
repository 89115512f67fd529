# SPDX-License-Identifier: Apache-2.0
"""How devices share a call: which mesh axes may split which axes of its arrays. No operator is named here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from ._operation import Axes

__all__ = ["assigned", "mesh_axes", "partitioned", "specs_of"]

Assignment = dict[str, tuple[str, ...]]


def _names(entry: Any) -> tuple[str, ...]:
    """Spell an entry of a PartitionSpec, which may be None, a name or several, or JAX's mark for a free one."""
    if isinstance(entry, str):
        return (entry,)
    return tuple(entry) if isinstance(entry, tuple) else ()


def mesh_axes(spec: Any) -> list[tuple[str, ...]]:
    """Spell a PartitionSpec in one way: the mesh axes of each axis, up to the last that is split."""
    found = [_names(entry) for entry in tuple(spec)]
    while found and not found[-1]:
        found.pop()
    return found


def assigned(specs: Sequence[Any], names: Sequence[tuple[str, ...]], allowed: frozenset[str]) -> Assignment:
    """Choose the mesh axes along which each axis that may be split is: as the first operand is that has it so."""
    found: Assignment = {}
    used: set[str] = set()
    for spec, axes in zip(specs, names, strict=True):
        for entry, name in zip(tuple(spec), axes, strict=False):
            wanted = _names(entry)
            if wanted and name in allowed and name not in found and not used.intersection(wanted):
                found[name] = wanted
                used.update(wanted)
    return found


def specs_of(names: Sequence[tuple[str, ...]], assignment: Assignment) -> list[Any]:
    """Answer the PartitionSpecs of arrays with these axes."""
    return [PartitionSpec(*(assignment.get(name) for name in axes)) for axes in names]


def _rule(axes: Axes) -> str:
    sides = (", ".join(" ".join(each) for each in side) for side in (axes.operands, axes.results))
    return " -> ".join(sides)


def partitioned(function: Callable[..., Any], axes: Axes) -> Callable[..., Any]:
    """Let the partitioner split the calls of a function; each device then runs it on its part of the arrays."""

    # XLA ends the process where one of these raises.
    def shardings(mesh: Any, arg_shapes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        specs = [getattr(each.sharding, "spec", PartitionSpec()) for each in arg_shapes]
        assignment = assigned(specs, axes.operands, axes.split)
        sides = (specs_of(names, assignment) for names in (axes.operands, axes.results))
        operands, results = ([NamedSharding(mesh, spec) for spec in side] for side in sides)
        return operands, results

    def infer(mesh: Any, arg_shapes: Any, result_shape: Any) -> Any:
        return tuple(shardings(mesh, arg_shapes)[1])

    def partition(mesh: Any, arg_shapes: Any, result_shape: Any) -> Any:
        operands, results = shardings(mesh, arg_shapes)
        return mesh, function, tuple(results), tuple(operands)

    wrapped: Any = custom_partitioning(function)
    options: dict[str, Any] = {"infer_sharding_from_operands": infer}
    known = inspect.signature(wrapped.def_partition).parameters
    if "sharding_rule" in known:
        options["sharding_rule"] = _rule(axes)
    if "need_replication_factors" in known:
        # In the order in which the rule names them.
        every = dict.fromkeys(name for side in (axes.operands, axes.results) for each in side for name in each)
        options["need_replication_factors"] = tuple(name for name in every if name not in axes.split)
    wrapped.def_partition(partition, **options)
    called: Callable[..., Any] = wrapped
    return called
