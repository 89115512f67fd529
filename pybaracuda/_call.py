# SPDX-License-Identifier: Apache-2.0
"""What every array function does around a plan: check operands, convert them, make outputs, launch.

The checks that depend on shapes and dtypes alone run once for each combination, in a function's cached `prepare`.
No operator is named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ._arrays import HOST, Operand, read, stream_handle
from ._descriptor import Descriptor, exact_float, whole_or_float
from ._dtypes import FLOATS, WIDTH_ORDER, dtype_name, item_bytes
from ._errors import UnsupportedError, shown
from ._float_environment import is_zero
from ._kernel import NO_SCRATCH, Kernel

__all__ = [
    "MOST_COMBINATIONS",
    "Output",
    "Prepared",
    "axis_of",
    "check_rank",
    "check_shape",
    "element_of",
    "extent_pair",
    "extent_triple",
    "flag",
    "kernel_for",
    "number",
    "outs_of",
    "real",
    "whole",
    "whole_tuple",
    "wider",
]

# How many combinations of shapes and dtypes each function remembers.
MOST_COMBINATIONS = 256
# No C argument is wider; beyond it not even a message could spell an integer.
_MOST_WHOLE = 1 << 63
# Steps of NumPy's exact comparison of strided memory, of which C takes as many.
_MOST_OVERLAP_WORK = 1 << 16
_TooHardError: Any = getattr(np, "exceptions", np).TooHardError  # NumPy 1.24 has it at its top


def number(name: str, value: Any) -> float:
    """Convert a real scalar argument to float; -0.0 becomes 0.0, so that equal arguments are the same problem."""
    if type(value) is not float:
        value = exact_float(name, value)
    return value if value or not is_zero(value) else 0.0


def outs_of(out: Any, names: Sequence[str], kind: str = "") -> Sequence[Any]:
    """Answer the array that receives each of several results, or None in its place; `kind` stands before the names."""
    if out is None:
        return (None,) * len(names)
    if not isinstance(out, tuple | list) or len(out) != len(names):
        raise TypeError(f"out: wanted {kind}({', '.join(names)})")
    return out


def whole(name: str, value: Any) -> int:
    """Convert an integer argument."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name}: wanted an int, got {type(value).__name__}") from None
    if -_MOST_WHOLE <= number < _MOST_WHOLE:
        return number
    raise ValueError(f"{name} is {shown(number)}; wanted one of at most 64 bits")


def real(name: str, value: Any) -> float | int:
    """Convert a real scalar argument to int if it is an integer, else to float; its bits are kept."""
    return whole_or_float(name, value)


def flag(name: str, value: Any) -> bool:
    """Convert a boolean argument."""
    if value is True or value is False:
        return value is True
    if type(value).__name__ in ("bool_", "bool", "int") and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name}: wanted a bool, got {shown(value)}")


def extent_pair(name: str, value: Any) -> tuple[int, int]:
    """Convert an argument that is an int, for both axes, or a pair (height, width)."""
    if type(value) is int:
        return value, value
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 2:
            raise ValueError(f"{name} has {len(value)} entries; wanted an int or a pair")
        return whole(name, value[0]), whole(name, value[1])
    both = whole(name, value)
    return both, both


def extent_triple(name: str, value: Any) -> tuple[int, int, int]:
    """Convert an argument that is an int, for all axes, or a triple (depth, height, width)."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 3:
            raise ValueError(f"{name} has {len(value)} entries; wanted an int or a triple")
        return whole(name, value[0]), whole(name, value[1]), whole(name, value[2])
    each = whole(name, value)
    return each, each, each


def whole_tuple(name: str, value: Any) -> tuple[int, ...]:
    """Convert a sequence of integers."""
    try:
        numbers = tuple(index(each) for each in value)
        if all(-_MOST_WHOLE <= number < _MOST_WHOLE for number in numbers):
            return numbers
        raise ValueError(f"{name} is {shown(value)}; wanted int of at most 64 bits")
    except TypeError:
        raise TypeError(f"{name}: wanted a sequence of int, got {shown(value)}") from None


def axis_of(shape: tuple[int, ...], dim: int) -> int:
    """The axis, counted from the first one; a single number is a row of one element."""
    rank = max(len(shape), 1)
    if not -rank <= dim < rank:
        raise ValueError(f"dim is {dim}; wanted {-rank}..{rank - 1}")
    return dim % rank


def check_rank(name: str, shape: tuple[int, ...], wanted: str, rank: int) -> None:
    """Refuse an array of another rank; `wanted` names the axes."""
    if len(shape) != rank:
        raise ValueError(f"{name} has shape {shape}; wanted {wanted}")


def check_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse an array of another shape."""
    if shape != wanted:
        raise ValueError(f"{name} has shape {shape}; wanted {wanted}")


def element_of(
    name: str, dtype: str, allowed: Sequence[str] = FLOATS, not_yet: Sequence[str] = (), why: str = ""
) -> str:
    """Answer the dtype if it is allowed; UnsupportedError for one that is not wired yet, else TypeError."""
    if dtype in allowed:
        return dtype
    if dtype in not_yet:
        raise UnsupportedError(
            f"{name} has dtype {dtype_name(dtype)}, which is not wired yet; wanted {_named(allowed)}"
        )
    raise TypeError(f"{name} has dtype {dtype_name(dtype)}; wanted {_named(allowed)}{why}")


def _named(tokens: Sequence[str]) -> str:
    names = [dtype_name(token) for token in tokens]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def wider(name: str, dtype: str, wanted: str) -> str | None:
    """Answer the dtype to which a float operand must be widened, or None if it has `wanted` already.

    Widening is exact. A wider dtype than `wanted` is a TypeError, since narrowing would lose what the caller gave.
    """
    if dtype == wanted:
        return None
    if dtype in WIDTH_ORDER and WIDTH_ORDER[dtype] < WIDTH_ORDER[wanted]:
        return wanted
    narrower = [token for token in FLOATS if WIDTH_ORDER[token] < WIDTH_ORDER[wanted]]
    raise TypeError(f"{name} has dtype {dtype_name(dtype)}; wanted {_named([wanted, *narrower])}")


class Output(NamedTuple):
    """An output of an array function: `dtype` is what the kernel writes, `given` what the caller gets.

    One that is not `wanted` is written all the same; the caller gets it not and has no name for it.
    """

    shape: tuple[int, ...]
    dtype: str
    given: str
    wanted: bool = True


class Prepared:
    """A kernel with everything that an array function needs to call it on arrays of one set of shapes and dtypes.

    Parameters
    ----------
    kernel : Kernel
    outputs : sequence of Output
        In the order of the C arguments.
    casts : sequence of (str or None), optional
        For each input, the dtype it must be converted to first.
    primary : int
        The input that decides the kind of the outputs.
    strided : bool
        Whether the kernel takes the inputs' strides; otherwise strided inputs are copied.
    in_place : int or None
        The input that the first output may share memory with.

    Attributes
    ----------
    kernel : Kernel
    outputs : tuple of Output
    casts : tuple of (str or None)
        Empty where no input must be converted.
    """

    __slots__ = (
        "_casts",
        "_fresh",
        "_in_place",
        "_invoke",
        "_is_direct",
        "_is_single",
        "_primary",
        "_strided",
        "_workspace_size",
        "casts",
        "kernel",
        "outputs",
    )

    def __init__(
        self,
        kernel: Kernel,
        outputs: Sequence[Output],
        *,
        casts: Sequence[str | None] = (),
        primary: int = 0,
        strided: bool = False,
        in_place: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.outputs = tuple(outputs)
        self.casts = tuple(casts) if any(casts) else ()
        self._casts = self.casts or None
        self._primary = primary
        self._strided = strided
        self._in_place = in_place
        self._invoke = kernel.invoke
        # On the host the C library takes scratch from the heap.
        self._workspace_size = kernel.workspace_size if kernel.library.backend == "cuda" else 0
        # Found in the first call: the input that each output is made like, since frameworks make a tensor like another
        # one sooner than one of a shape; then shape and dtype.
        self._fresh: list[tuple[int, tuple[int, ...], str]] | None = None
        self._is_single = sum(output.wanted for output in self.outputs) == 1
        self._is_direct = all(output.dtype == output.given for output in self.outputs)

    def launch(self, inputs: tuple[Operand, ...], outs: Sequence[Any], stream: Any) -> list[Any]:
        """Run on operands whose shapes and dtypes are this object's, and answer the outputs as the caller's arrays.

        `outs` holds the caller's `out=` arrays, or None where there is none.
        """
        primary = inputs[self._primary]
        device = primary.device
        for operand in inputs:
            if operand.device != device:
                raise ValueError(f"{operand.name} is {_place(operand)}, {primary.name} is {_place(primary)}")
        if device == HOST:
            if stream is not None:
                raise ValueError(f"stream: {primary.name} is in host memory, where there are no streams; leave it out")
            return self._launch(primary, inputs, outs, 0)
        adapter = primary.adapter
        handle = adapter.current_stream(device) if stream is None else stream_handle(stream)
        scope = adapter.scope(device, None if stream is None else handle)
        if scope is None:
            return self._launch(primary, inputs, outs, handle)
        with scope:
            return self._launch(primary, inputs, outs, handle)

    def _launch(self, primary: Operand, inputs: tuple[Operand, ...], outs: Sequence[Any], stream: int) -> list[Any]:
        if not self._strided:
            for operand in inputs:
                if operand.strides is not None:
                    inputs = self._converted(inputs, stream)
                    break
            else:
                if self._casts is not None:
                    inputs = self._converted(inputs, stream)
        pointers = [operand.pointer for operand in inputs]
        if not self._is_direct:
            return self._launch_into(primary, inputs, pointers, outs, stream)
        for out in outs:
            if out is not None:
                return self._launch_into(primary, inputs, pointers, outs, stream)
        adapter = primary.adapter
        if self._fresh is None:
            self._fresh = [(self._like(output, inputs), output.shape, output.dtype) for output in self.outputs]
        memories = []
        for position, shape, dtype in self._fresh:
            like = inputs[position]
            if like.adapter is not adapter:
                like = primary
            pointer, memory = adapter.empty(like, shape, dtype, stream)
            pointers.append(pointer)
            memories.append((memory, dtype))
        self._run(primary, pointers, stream)
        return [adapter.finish(memory, primary, dtype, stream) for memory, dtype in memories]

    def _run(self, primary: Operand, pointers: list[int], stream: int) -> None:
        if not self._workspace_size:
            self._invoke(pointers, NO_SCRATCH, stream)
            return
        # The memory may go once the work is enqueued: what its allocator gives it to next comes after on the stream.
        scratch, _memory = primary.adapter.scratch(primary, self._workspace_size, stream)
        self._invoke(pointers, scratch, stream)

    def _like(self, output: Output, inputs: tuple[Operand, ...]) -> int:
        """Answer which input has an output's shape and dtype, the primary one if none does."""
        for position, operand in enumerate(inputs):
            if operand.shape == output.shape and operand.dtype == output.dtype:
                return position
        return self._primary

    def _converted(self, inputs: tuple[Operand, ...], stream: int) -> tuple[Operand, ...]:
        """Copy the inputs that have another dtype than the kernel's, or strides."""
        converted = []
        for operand, cast in zip(inputs, self._casts or (None,) * len(inputs), strict=True):
            if cast is not None:
                operand = operand.adapter.cast(operand, cast, stream)
            elif operand.strides is not None:
                operand = operand.adapter.contiguous(operand, stream)
            converted.append(operand)
        return tuple(converted)

    def _launch_into(
        self, primary: Operand, inputs: tuple[Operand, ...], pointers: list[int], outs: Sequence[Any], stream: int
    ) -> list[Any]:
        """Launch with outputs that the caller gave, or that the kernel writes in a wider dtype than the caller gets."""
        adapter = primary.adapter
        targets: list[Operand | None] = []
        made = []
        for position, (shape, dtype, given, _) in enumerate(self.outputs):
            out = outs[position]
            target = None
            if out is not None:
                target = self._given(position, out, primary, inputs, stream)
                if targets:
                    _check_overlap(target, targets, None)
            if target is not None and dtype == given:
                pointer, memory = target.pointer, None
            else:
                pointer, memory = adapter.empty(primary, shape, dtype, stream)
            targets.append(target)
            made.append((out, target, memory, dtype, given))
            pointers.append(pointer)
        self._run(primary, pointers, stream)
        results = []
        for out, target, memory, dtype, given in made:
            if memory is not None:
                result = adapter.finish(memory, primary, dtype, stream)
                if dtype != given:
                    result = adapter.narrow(adapter.read("output", result), given, target, stream)
                    if target is not None:
                        result = out
            else:
                result = out
            if target is not None:
                target.adapter.written(target)
            results.append(result)
        return results

    def _given(self, position: int, out: Any, primary: Operand, inputs: tuple[Operand, ...], stream: int) -> Operand:
        """Read an `out=` argument and refuse it if the output cannot go there."""
        shape, dtype, given, _ = self.outputs[position]
        name = "out" if self._is_single else f"out[{position}]"
        if not primary.adapter.takes_out:
            raise TypeError(f"{name}: {primary.adapter.kind} arrays are immutable; take the returned array")
        target = read(name, out, None if primary.device == HOST else stream)
        target.adapter.check_output(target)
        if target.dtype != given:
            raise TypeError(f"{name} has dtype {dtype_name(target.dtype)}; wanted {dtype_name(given)}")
        check_shape(name, target.shape, shape)
        if target.device != primary.device:
            raise ValueError(f"{name} is {_place(target)}, {primary.name} is {_place(primary)}")
        if target.strides is not None and not self._strided:
            raise ValueError(f"{name}: the array is not contiguous")
        if dtype != given and target.adapter is not primary.adapter:
            raise TypeError(f"{name}: a gradient in {dtype_name(given)} needs a {primary.adapter.kind} array")
        if dtype == given:
            # Else the kernel writes other memory, and what is rounded into `out` is written after all was read.
            _check_overlap(target, inputs, self._in_place)
        return target


class _Places:
    """Where an operand's elements stand, as NumPy takes it; nobody reads them, so the memory may be a device's."""

    def __init__(self, operand: Operand, width: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (operand.pointer, True),
            "shape": operand.shape,
            "strides": tuple(stride * width for stride in operand.element_strides()),
            "typestr": f"|V{width}",
        }


def _share_an_element(one: Operand, other: Operand) -> bool:
    """Tell whether two operands have an element in common, gaps between strides left out."""
    widths = item_bytes(one.dtype) or 1, item_bytes(other.dtype) or 1
    low, high = one.byte_range(widths[0])
    start, end = other.byte_range(widths[1])
    if start >= high or low >= end or start == end or low == high:
        return False
    if one.strides is None and other.strides is None:
        return True
    arrays = np.asarray(_Places(one, widths[0])), np.asarray(_Places(other, widths[1]))
    try:
        return np.shares_memory(*arrays, max_work=_MOST_OVERLAP_WORK)  # type: ignore[arg-type]
    except _TooHardError:
        return True  # as C decides


def _check_overlap(target: Operand, others: Sequence[Operand | None], in_place: int | None) -> None:
    """Refuse an output that shares an element with another operand, unless it is the one at `in_place`, whole.

    C refuses the same. Here the message can have the caller's names.
    """
    for position, operand in enumerate(others):
        if operand is None or not _share_an_element(target, operand):
            continue
        if position != in_place or operand.pointer != target.pointer or operand.dtype != target.dtype:
            raise ValueError(f"{target.name} shares memory with {operand.name}")


def _place(operand: Operand) -> str:
    return "in host memory" if operand.device == HOST else f"on cuda:{operand.device}"


def kernel_for(descriptor: Descriptor, device: int) -> Kernel:
    """Answer the kernel for arrays on a device."""
    return Kernel(descriptor, "cpu" if device == HOST else "cuda")
