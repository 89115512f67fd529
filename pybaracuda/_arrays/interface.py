# SPDX-License-Identifier: Apache-2.0
"""What the package sees of any framework's array, and what it asks of the adapter to that framework."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import prod
from operator import index
from typing import Any

from .._errors import shown

__all__ = [
    "HOST",
    "Adapter",
    "Operand",
    "dense_strides",
    "element_strides",
    "fill_boxes",
    "numbered_entries",
    "of_module",
    "stream_handle",
]

# The device index of host memory; CUDA devices count from 0.
HOST = -1


class Operand:
    """One array argument as the C library sees it.

    Attributes
    ----------
    name : str
        The argument's name, for messages.
    array : object
        The caller's array, or whatever keeps the memory alive.
    adapter : Adapter
    pointer : int
        Address of the first element.
    shape : tuple of int
    strides : tuple of int or None
        In elements; None means dense row-major.
    dtype : str
        A token of DTYPE_NAMES, or another name.
    device : int
        HOST or a CUDA device's index.
    read_only : bool
    """

    __slots__ = ("adapter", "array", "device", "dtype", "name", "pointer", "read_only", "shape", "strides")

    def __init__(
        self,
        name: str,
        array: Any,
        adapter: Adapter,
        pointer: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        dtype: str,
        device: int,
        read_only: bool,
    ) -> None:
        self.name = name
        self.array = array
        self.adapter = adapter
        self.pointer = pointer
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.device = device
        self.read_only = read_only

    def byte_range(self, itemsize: int) -> tuple[int, int]:
        """Answer the addresses of the first byte and one past the last byte that the elements span."""
        if self.strides is None:
            return self.pointer, self.pointer + prod(self.shape) * itemsize
        low = high = 0
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == 0:
                return self.pointer, self.pointer
            reach = (extent - 1) * stride
            low, high = (low + reach, high) if reach < 0 else (low, high + reach)
        return self.pointer + low * itemsize, self.pointer + (high + 1) * itemsize

    def element_strides(self) -> tuple[int, ...]:
        """Answer the strides in elements, dense ones spelled out."""
        return dense_strides(self.shape) if self.strides is None else self.strides


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Compute row-major strides in elements."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def one_of_batch(operand: Operand) -> Operand:
    """Answer the one entry that a batch repeats, where that is dense and has another, else the operand itself.

    Such a batch is what ``numpy.broadcast_to`` and ``torch.Tensor.expand`` make along a first axis.
    """
    shape, strides = operand.shape, operand.strides
    if strides is None or shape[0] < 2 or strides[0] != 0:
        return operand
    dense = dense_strides(shape[1:])
    if any(a != b for a, b, extent in zip(strides[1:], dense, shape[1:], strict=True) if extent > 1):
        return operand
    return Operand(
        operand.name,
        operand.array,
        operand.adapter,
        operand.pointer,
        (1, *shape[1:]),
        None,
        operand.dtype,
        operand.device,
        operand.read_only,
    )


def element_strides(name: str, shape: tuple[int, ...], byte_strides: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Turn byte strides into element strides."""
    if any(stride % itemsize for stride, extent in zip(byte_strides, shape, strict=True) if extent > 1):
        raise ValueError(f"{name}: strides {tuple(byte_strides)} are not multiples of the element's {itemsize} bytes")
    return tuple(stride // itemsize for stride in byte_strides)


def numbered_entries(library: Any, numbers: Any, bound: int, step: int) -> Any:
    """Number the entries of a batch as :meth:`Adapter.renumbered` says, by NumPy or what has its functions."""
    shape = (numbers.shape[0], *(1,) * (numbers.ndim - 1))
    starts = (library.arange(shape[0], dtype="int64") * step).astype(numbers.dtype).reshape(shape)
    is_inside = (numbers >= 0) & (numbers < bound)
    return library.where(is_inside, numbers + starts, numbers.dtype.type(-1))


def fill_boxes(rows: Any, boxes: Sequence[Any]) -> Any:
    """Write each image's index and boxes into rows of a framework that assigns to slices, and answer these."""
    start = 0
    for number, each in enumerate(boxes):
        rows[start : start + len(each), 0] = number
        rows[start : start + len(each), 1:] = each
        start += len(each)
    return rows


class Adapter:
    """What the package has to know about one kind of array.

    `stream` arguments are raw handles (0 is the legacy default stream) and mean nothing for host memory.
    """

    kind = ""
    # Whether an `out=` may receive what is computed from arrays of this kind.
    takes_out = True

    def read(self, name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
        """Describe an array without copying it.

        `stream` is the caller's stream argument and `like` an operand whose framework's current stream stands in for a
        missing one; only arrays that need the consumer's stream to be exported look at them.
        """
        raise NotImplementedError

    def empty(self, like: Operand, shape: tuple[int, ...], dtype: str, stream: int) -> tuple[int, Any]:
        """Allocate a dense output on the device of `like`, an operand of this kind; answer address and memory."""
        raise NotImplementedError

    def scratch(self, like: Operand, size: int, stream: int) -> tuple[tuple[int, int], Any]:
        """Answer address and bytes of scratch for one call on the device of `like`, and what keeps it until then.

        Address and bytes of 0 leave the scratch to the C library, which has a pool of its own on each device.
        """
        return (0, 0), None

    def finish(self, memory: Any, like: Operand, dtype: str, stream: int) -> Any:
        """Turn memory that `empty` allocated, now written, into the caller's array."""
        return memory

    def check_output(self, operand: Operand) -> None:
        """Refuse an `out=` array that must not be written."""
        if operand.read_only:
            raise ValueError(f"{operand.name}: the array is read-only")

    def written(self, operand: Operand) -> None:
        """Tell the framework that its array was written behind its back."""

    def contiguous(self, operand: Operand, stream: int) -> Operand:
        """Copy into a dense array."""
        raise NotImplementedError

    def cast(self, operand: Operand, dtype: str, stream: int) -> Operand:
        """Copy into a dense array of another dtype."""
        raise NotImplementedError

    def narrow(self, wide: Operand, dtype: str, target: Operand | None, stream: int) -> Any:
        """Round a result once to a narrower float dtype, and answer the caller's array.

        It goes into `target`, of this kind and of the result's shape, if there is one. A NaN becomes the canonical one:
        the converters of processors, GPUs and frameworks each make another.
        """
        raise NotImplementedError

    def renumbered(
        self, operand: Operand, dtype: str, bound: int, step: int, target: Operand | None, stream: int
    ) -> Any:
        """Number what the entries of a batch count each for itself through all entries, and answer the caller's array.

        A number of entry b, along the first axis, becomes itself and b * step if it lies in [0, bound), else -1, in
        `dtype`, i32 or i64, which holds every one. It goes into `target`, of this kind and shape, if there is one, else
        into a dense array.
        """
        raise TypeError(
            f"{operand.name}: {self.kind} has no arithmetic to number a batch's entries; pass an array of a framework"
        )

    def join_boxes(self, boxes: Sequence[Any], dtype: str) -> Any:
        """Make one array of boxes out of one per image, the image's index first, in f32 or f64."""
        raise NotImplementedError

    def current_stream(self, device: int) -> int:
        """Answer the stream that this framework's next operation on `device` would use."""
        return 0

    def scope(self, device: int, stream: int | None) -> AbstractContextManager[Any] | None:
        """Make device and stream the framework's current ones, so that copies and outputs are ordered with the kernel.

        None if they already are.
        """
        return None


def of_module(cls: type, root: str) -> bool:
    """Tell whether a class was made in a module or a part of it."""
    return cls.__module__ == root or cls.__module__.startswith(root + ".")


def stream_handle(stream: Any) -> int:
    """Answer the raw handle of a stream: an int, or anything with `__cuda_stream__`.

    torch.cuda.Stream and cupy.cuda.Stream of versions without that protocol are understood too.
    """
    if type(stream) is int:
        handle = stream
    elif hasattr(stream, "__cuda_stream__"):
        handle = int(stream.__cuda_stream__()[1])
    elif of_module(type(stream), "torch") and hasattr(stream, "cuda_stream"):
        handle = int(stream.cuda_stream)
    elif of_module(type(stream), "cupy") and hasattr(stream, "ptr"):
        handle = int(stream.ptr)
    else:
        try:
            if isinstance(stream, bool):
                raise TypeError
            handle = index(stream)
        except TypeError:
            raise TypeError(
                f"stream: wanted None, an int or an object with __cuda_stream__; got {type(stream).__name__}"
            ) from None
    if not 0 <= handle < 1 << 64:
        raise ValueError(f"stream: a handle is not negative and has 64 bits; got {shown(handle)}")
    return handle
