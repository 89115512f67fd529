# SPDX-License-Identifier: Apache-2.0
"""The one primitive of JAX that all operators are, and its rules. No operator is named here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, lru_cache, partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from .._dtypes import CANONICAL_NANS, numpy_dtype, numpy_token
from .._errors import BackendUnavailableError
from .._kernel import Kernel
from .._library import Library, load
from ._arguments import arguments_of, symbol_of
from ._handler import OWN_SCRATCH, TARGET, ffi
from ._operation import Axes, KernelOperation, Operation, Spec
from ._partition import assigned, mesh_axes, partitioned, specs_of

__all__ = ["array_of", "call", "filled", "in_64_bits", "run", "spec_of"]

# How many programs of one operator each are kept for calls outside of jit, and how many partitionings.
_MOST_PROGRAMS = 1024

# Where a program's result is the only result of a foreign call, and the program has a product of a matrix and a vector,
# XLA for CPUs before 0.7.2 takes the call's attributes for its own and ends the process. So calls have a second result.
_LONE_RESULTS_FAIL = jax.__version_info__ < (0, 7, 2)

_MOST_OF_INT32 = 2**31 - 1

# What a program is made for, in JAX's words.
Platforms = tuple[str, ...]

primitive = Primitive("pybaracuda")
primitive.multiple_results = True


def spec_of(array: Any) -> Spec:
    """Answer shape and dtype of an array or abstract value."""
    return tuple(array.shape), numpy_token(np.dtype(array.dtype))


def in_64_bits() -> AbstractContextManager[Any]:
    """What is made herein may have 64 bits, also in a program that has no other such numbers."""
    if hasattr(jax, "enable_x64"):
        context: AbstractContextManager[Any] = jax.enable_x64(True)
    else:
        from jax.experimental import enable_x64

        context = enable_x64()
    return context


@partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def filled(shape: tuple[int, ...], value: int, dtype: Any) -> Any:
    """Repeat a number, which a program holds: outside of jit nothing comes from the host.

    One of int64, which wants `in_64_bits` around, is made of int32: older JAXs have no constant of it in a program
    without other such numbers.
    """
    if dtype != np.int64:
        return jnp.full(shape, value, dtype)
    parts = (*divmod(value, _MOST_OF_INT32), _MOST_OF_INT32)
    high, low, base = (jax.lax.convert_element_type(jnp.full(shape, each, np.int32), dtype) for each in parts)
    return high * base + low


def _inner_spec(batch: int, array: Any) -> Spec:
    """Answer a spec without the mapped axes, which come first."""
    shape, token = spec_of(array)
    return shape[batch:], token


def _mapped(batch: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Map a function over the first `batch` axes of all its arguments."""
    for _ in range(batch):
        function = jax.vmap(function)
    return function


# What a call does.


def _narrowed(array: Any, token: str) -> Any:
    """Round results to a narrower dtype, all NaNs to the one that arithmetic stores."""
    if spec_of(array)[1] == token:
        return array
    narrow = array.astype(numpy_dtype(token))
    # XLA's converters make NaNs of no sign; those patterns are the largest integers.
    patterns = jax.lax.bitcast_convert_type(narrow, f"int{8 * narrow.dtype.itemsize}")
    settled = jnp.minimum(patterns, patterns.dtype.type(CANONICAL_NANS[token]))
    return jax.lax.bitcast_convert_type(settled, narrow.dtype)


@cache
def _cuda() -> Library | None:
    """Find the CUDA library, if this installation has it."""
    try:
        return load("cuda")
    except BackendUnavailableError:
        return None


def _scratch_bytes(kernel: Kernel, platforms: Platforms) -> int | None:
    """Answer what suffices on all platforms of a program; None where only the CUDA library knows, which is not here."""
    sizes = []
    if "cuda" in platforms:
        cuda = _cuda()
        if cuda is None:
            return None
        sizes.append(kernel.workspace_size_in(cuda))
    if platforms != ("cuda",):
        sizes.append(kernel.workspace_size)
    return max(sizes)


def _launch(operation: KernelOperation, platforms: Platforms, operands: Sequence[Any]) -> list[Any]:
    """Call the C function on operands of the kernel's own dtypes."""
    specs = [spec_of(each) for each in operands]
    prepared, reused = operation.prepare(*specs), operation.reused(*specs)
    kernel = prepared.kernel
    results = [jax.ShapeDtypeStruct(output.shape, numpy_dtype(output.dtype)) for output in prepared.outputs]
    scratch = _scratch_bytes(kernel, platforms)
    if scratch or (scratch == 0 and _LONE_RESULTS_FAIL and "cpu" in platforms):
        # Scratch is a result that nobody reads, since XLA places results and uses their memory again.
        results.append(jax.ShapeDtypeStruct((scratch,), np.uint8))
    target = OWN_SCRATCH if scratch is None else TARGET
    foreign = ffi.ffi_call(target, results, input_output_aliases=None if reused is None else {reused: 0})
    answers = foreign(*operands, symbol=symbol_of(kernel), arguments=arguments_of(kernel))
    return list(answers)[: len(prepared.outputs)]


def _run_kernel(operation: KernelOperation, batch: int, platforms: Platforms, *operands: Any) -> tuple[Any, ...]:
    """Convert the operands, fold the mapped axes, call, and make the results of it."""
    prepared = operation.prepare(*(_inner_spec(batch, each) for each in operands))
    sizes = operands[0].shape[:batch]
    if 0 in sizes:
        # Of no problem none can be made.
        with in_64_bits():
            return tuple(filled((*sizes, *output.shape), 0, numpy_dtype(output.given)) for output in prepared.outputs)
    if prepared.casts:
        operands = tuple(
            each if cast is None else each.astype(numpy_dtype(cast))
            for each, cast in zip(operands, prepared.casts, strict=True)
        )
    if batch:
        given = [each.reshape((prod(sizes), *each.shape[batch:])) for each in operands]
        if operation.folds:
            folded, arrays, unfold = operation.fold(prod(sizes), given)
            found = unfold(_launch(folded, platforms, arrays))
        else:
            found = jax.lax.map(lambda each: tuple(_launch(operation, platforms, each)), given)
        results = [each.reshape((*sizes, *each.shape[1:])) for each in found]
    else:
        results = _launch(operation, platforms, operands)
    outputs = zip(results, prepared.outputs, strict=True)
    return tuple(_narrowed(result, output.given) for result, output in outputs)


def _function_of(operation: Operation, batch: int, platforms: Platforms) -> Callable[..., Any]:
    if isinstance(operation, KernelOperation):
        return partial(_run_kernel, operation, batch, platforms)
    return _mapped(batch, lambda *operands: tuple(operation.evaluate(*operands)))


def _axes_of(operation: KernelOperation, batch: int, specs: Sequence[Spec]) -> Axes:
    """Name the mapped axes, too: each stands for itself."""
    axes = operation.axes(*specs)
    extra = tuple(f"b{number}" for number in range(batch))
    operands, results = (tuple(extra + each for each in side) for side in (axes.operands, axes.results))
    return Axes(operands, results, axes.split.union(extra), axes.split_forever.union(extra))


@lru_cache(maxsize=_MOST_PROGRAMS)
def _partitioned(
    operation: KernelOperation, batch: int, platforms: Platforms, specs: tuple[Spec, ...]
) -> Callable[..., Any]:
    return partitioned(_function_of(operation, batch, platforms), _axes_of(operation, batch, specs))


# What JAX's versions call differently.


def _varying(array: Any) -> frozenset[str]:
    """Answer the manual mesh axes along which an array differs, inside of shard_map."""
    aval = jax.typeof(array) if hasattr(jax, "typeof") else None
    # The first name is that of 0.10 and newer, the second that of 0.7 to 0.9.
    kinds = getattr(aval, "manual_axis_type", None)
    return frozenset(getattr(aval, "vma", ()) if kinds is None else kinds.varying)


def _vary(array: Any, names: frozenset[str]) -> Any:
    """Mark an array that is equal along some manual mesh axes as one that may differ; its gradient is then summed."""
    missing = tuple(sorted(names - _varying(array)))
    if not missing:
        return array
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, missing, to="varying")
    return jax.lax.pvary(array, missing)


def _typed(array: Any) -> Any:
    """Answer the sharding that is part of an array's type, None where there is none."""
    aval = jax.typeof(array) if hasattr(jax, "typeof") else None
    sharding = getattr(aval, "sharding", None)
    spec = getattr(sharding, "spec", None)
    return sharding if spec is not None and any(entry is not None for entry in spec) else None


def _aval(like: Any, spec: Spec) -> Any:
    """Make the abstract value of a result: of the operands' manual mesh axes, split along no mesh axis."""
    shape, token = spec
    dtype = numpy_dtype(token)
    changes: dict[str, Any] = {"shape": shape, "dtype": dtype, "weak_type": False}
    sharding = getattr(like, "sharding", None)
    if sharding is not None and hasattr(sharding, "update"):
        changes["sharding"] = sharding.update(spec=PartitionSpec(*(None,) * len(shape)))
    elif sharding is not None:
        changes["sharding"] = NamedSharding(sharding.mesh, PartitionSpec(*(None,) * len(shape)))
    return like.update(**changes)


def _zero_tangent(output: Any) -> Any:
    """Answer JAX's mark for a tangent that is 0 because nothing moves it."""
    if hasattr(ad.Zero, "from_primal_value"):
        return ad.Zero.from_primal_value(output)
    return ad.Zero(jax.typeof(output).to_tangent_aval())


# The rules.


def call(operation: Operation, *operands: Any, batch: int = 0) -> Sequence[Any]:
    """Bind the primitive; the first `batch` axes of every operand and result are mapped ones."""
    shardings = [_typed(each) for each in operands]
    if isinstance(operation, KernelOperation) and any(each is not None for each in shardings):
        return _call_typed(operation, batch, operands, shardings)
    names = frozenset().union(*map(_varying, operands))
    results: Sequence[Any] = primitive.bind(*(_vary(each, names) for each in operands), op=operation, batch=batch)
    return results


def _call_typed(
    operation: KernelOperation, batch: int, operands: Sequence[Any], shardings: Sequence[Any]
) -> Sequence[Any]:
    """Call where types say how arrays lie on an explicit mesh: each device for its part, and so in the derivatives."""
    axes = _axes_of(operation, batch, [_inner_spec(batch, each) for each in operands])
    mesh = next(each.mesh for each in shardings if each is not None)
    specs = [PartitionSpec() if each is None else each.spec for each in shardings]
    assignment = assigned(specs, axes.operands, axes.split_forever)
    inside, outside = specs_of(axes.operands, assignment), specs_of(axes.results, assignment)
    reshard = getattr(jax.sharding, "reshard", None) or _experimental_reshard()
    arrays = [
        array if mesh_axes(given) == mesh_axes(wanted) else reshard(array, wanted)
        for array, given, wanted in zip(operands, specs, inside, strict=True)
    ]
    shared: Callable[..., Sequence[Any]] = jax.shard_map(
        lambda *parts: tuple(call(operation, *parts, batch=batch)),
        mesh=mesh,
        in_specs=tuple(inside),
        out_specs=tuple(outside),
    )
    return shared(*arrays)


def _experimental_reshard() -> Any:
    from jax.experimental.shard import reshard

    return reshard


def _abstract(*avals: Any, op: Operation, batch: int) -> Any:
    sizes = tuple(avals[0].shape[:batch])
    specs = op.results(*(_inner_spec(batch, each) for each in avals))
    return [_aval(avals[0], ((*sizes, *shape), token)) for shape, token in specs]


@lru_cache(maxsize=_MOST_PROGRAMS)
def _program(op: Operation, batch: int) -> Callable[..., Any]:
    program: Callable[..., Any] = jax.jit(partial(primitive.bind, op=op, batch=batch))
    return program


def _implement(*operands: Any, op: Operation, batch: int) -> Any:
    # Indices of 64 bits that stand in no program stay as they are.
    with in_64_bits():
        if jax.config.jax_disable_jit:
            # One operator is a program all the same, as JAX's own are.
            with jax.disable_jit(False):
                return _program(op, batch)(*operands)
        return _program(op, batch)(*operands)


def _batch(arrays: Sequence[Any], axes: Sequence[Any], *, op: Operation, batch: int) -> Any:
    pairs = list(zip(arrays, axes, strict=True))
    size = next(array.shape[axis] for array, axis in pairs if axis is not None)
    # Indices of 64 bits stay as they are; older JAXs make 32 of them here in a program that has no other such numbers.
    with in_64_bits():
        first = [
            jnp.broadcast_to(array, (size, *array.shape)) if axis is None else jnp.moveaxis(array, axis, 0)
            for array, axis in pairs
        ]
    results = call(op, *first, batch=batch + 1)
    return results, [0] * len(results)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, op: Operation, batch: int) -> Any:
    outputs = call(op, *primals, batch=batch)
    # Integers have tangents of a dtype without values.
    are_zero = [type(each) is ad.Zero or each.dtype == jax.dtypes.float0 for each in tangents]
    given = [tangent for tangent, is_zero in zip(tangents, are_zero, strict=True) if not is_zero]
    lost: list[bool] = []

    def inner(primals: Sequence[Any], given: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        rest = iter(given)
        every = [None if is_zero else next(rest) for is_zero in are_zero]
        results = list(op.jvp(primals, every, outputs))
        lost[:] = [each is None for each in results]
        return [each for each in results if each is not None]

    found = iter(_mapped(batch, inner)(list(primals), given, list(outputs)) if given else [])
    if not given:
        lost = [True] * len(outputs)
    return outputs, [
        _zero_tangent(output) if is_lost else next(found) for output, is_lost in zip(outputs, lost, strict=True)
    ]


def _transpose(cotangents: Sequence[Any], *operands: Any, op: Operation, batch: int) -> Any:
    wanted = [ad.is_undefined_primal(each) for each in operands]
    are_zero = [type(each) is ad.Zero for each in cotangents]
    if all(are_zero):
        return [ad.Zero(each.aval) if is_wanted else None for each, is_wanted in zip(operands, wanted, strict=True)]
    given = [each for each, is_zero in zip(cotangents, are_zero, strict=True) if not is_zero]
    known = [each for each, is_wanted in zip(operands, wanted, strict=True) if not is_wanted]
    unknown = [
        _inner_spec(batch, each.aval) if is_wanted else None for each, is_wanted in zip(operands, wanted, strict=True)
    ]
    lost: list[bool] = []

    def inner(given: Sequence[Any], known: Sequence[Any]) -> list[Any]:
        rest, values = iter(given), iter(known)
        every = [None if is_zero else next(rest) for is_zero in are_zero]
        arrays = [next(values) if spec is None else spec for spec in unknown]
        results = list(op.transpose(every, arrays, wanted))
        lost[:] = [each is None for each in results]
        return [each for each in results if each is not None]

    found = iter(_mapped(batch, inner)(given, known))
    results = [None if is_lost else next(found) for is_lost in lost]
    return [
        None if not is_wanted else ad.Zero(operand.aval) if result is None else result
        for operand, is_wanted, result in zip(operands, wanted, results, strict=True)
    ]


def _lower(context: Any, *values: Any, op: Operation, batch: int) -> Any:
    platforms = tuple(context.module_context.platforms)
    function = _function_of(op, batch, platforms)
    if isinstance(op, KernelOperation) and _is_partitioned(context):
        specs = tuple(_inner_spec(batch, each) for each in context.avals_in)
        function = _partitioned(op, batch, platforms, specs)
    return mlir.lower_fun(function, multiple_results=True)(context, *values)


def _is_partitioned(context: Any) -> bool:
    """Tell whether a program is for several devices and this place of it is not one that each runs for itself."""
    where = context.module_context.axis_context
    if getattr(where, "manual_axes", None):
        return False
    return bool(getattr(where, "num_devices", 1) != 1)


primitive.def_abstract_eval(_abstract)
primitive.def_impl(_implement)
batching.primitive_batchers[primitive] = _batch
ad.primitive_jvps[primitive] = _jvp
ad.primitive_transposes[primitive] = _transpose
mlir.register_lowering(primitive, _lower)

try:
    # Without it there is no list of devices when a call that several devices share is lowered.
    from jax._src.dispatch import prim_requires_devices_during_lowering

    prim_requires_devices_during_lowering.add(primitive)
except ImportError:
    pass

try:
    # shard_map before it had types of its own.
    from jax.experimental.shard_map import register_standard_check, register_standard_rewrite

    register_standard_check(primitive)
    register_standard_rewrite(primitive)
except ImportError:
    pass


@lru_cache(maxsize=_MOST_PROGRAMS)
def _jitted(operation: Operation) -> Callable[..., tuple[Any, ...]]:
    def function(*operands: Any) -> tuple[Any, ...]:
        return tuple(call(operation, *operands))

    # Within another program it leaves no trace.
    jitted: Callable[..., tuple[Any, ...]] = jax.jit(function, inline=True)
    return jitted


def run(operation: Operation, *operands: Any) -> tuple[Any, ...]:
    """Call an operator from outside or inside of a transformation."""
    return _jitted(operation)(*operands)


def array_of(value: Any) -> Any:
    """Make a JAX array of what may be one."""
    return value if isinstance(value, jax.Array) else jnp.asarray(value)
