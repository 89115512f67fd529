# SPDX-License-Identifier: Apache-2.0
"""Array interchange: what the package sees of any framework's array, and how that framework is recognised.

A framework is never imported here: an array of it can exist only if the caller has imported it. What is special about
one framework belongs in its own `_arrays_<framework>.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import prod
from operator import index
from typing import Any

import numpy as np

from ._errors import shown
from ._forking import first_use

__all__ = [
    "CANONICAL_NANS",
    "DTYPE_NAMES",
    "EXTENSION_DTYPES",
    "HOST",
    "Adapter",
    "Operand",
    "dense_strides",
    "dtype_name",
    "element_strides",
    "fill_boxes",
    "item_bytes",
    "numpy_dtype",
    "numpy_token",
    "read",
    "stream_handle",
]

# The device index of host memory; CUDA devices count from 0.
HOST = -1

# The ABI's dtype tokens and the other dtypes that arrays may have, with the names that users know.
DTYPE_NAMES = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
    "s8": "int8",
    "u8": "uint8",
    "s16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "bool": "bool",
    "complex64": "complex64",
    "complex128": "complex128",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}
_ITEM_BYTES = {
    "f32": 4, "f64": 8, "f16": 2, "bf16": 2, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8,
    "u64": 8, "bool": 1, "complex64": 8, "complex128": 16, "f8e4m3": 1, "f8e5m2": 1,
}  # fmt: skip
# Those that NumPy has from ml_dtypes alone. They have no buffer protocol.
EXTENSION_DTYPES = frozenset({"bf16", "f8e4m3", "f8e5m2"})
# The bits of the one NaN that arithmetic stores, for the dtypes that results can be narrowed to.
CANONICAL_NANS = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000}
_TOKENS_BY_NAME = {name: token for token, name in DTYPE_NAMES.items()}
_NUMPY_TOKENS: dict[Any, str] = {}
# Types that were met, so that the next array of the type costs one lookup. Emptied when full: a program that makes
# classes without end must not grow it without end.
_ADAPTERS: dict[type, Adapter] = {}
_MOST_TYPES = 256


def dtype_name(token: str) -> str:
    """Spell a dtype as users know it."""
    return DTYPE_NAMES.get(token, token)


def item_bytes(token: str) -> int | None:
    """Answer the bytes of one element, or None for a dtype that has no token."""
    return _ITEM_BYTES.get(token)


def numpy_token(dtype: Any) -> str:
    """Name a NumPy dtype by its token, or by NumPy's own name where there is no token."""
    token = _NUMPY_TOKENS.get(dtype)
    if token is None:
        name = dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order"
        token = _TOKENS_BY_NAME.get(name, name)
        if token in DTYPE_NAMES:
            _NUMPY_TOKENS[dtype] = token
    return token


_NUMPY_DTYPES: dict[str, Any] = {}


def numpy_dtype(token: str) -> Any:
    """Answer the NumPy dtype of a token; some come from ml_dtypes."""
    dtype = _NUMPY_DTYPES.get(token)
    if dtype is None:
        if token in EXTENSION_DTYPES:
            name = DTYPE_NAMES[token]
            try:
                with first_use():
                    import ml_dtypes
            except ImportError:
                raise TypeError(f"{name} arrays of NumPy need ml_dtypes: pip install pybaracuda[bf16]") from None
            dtype = np.dtype(getattr(ml_dtypes, name))
        else:
            dtype = np.dtype(DTYPE_NAMES[token])
        _NUMPY_DTYPES[token] = dtype
    return dtype


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


def element_strides(name: str, shape: tuple[int, ...], byte_strides: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Turn byte strides into element strides."""
    if any(stride % itemsize for stride, extent in zip(byte_strides, shape, strict=True) if extent > 1):
        raise ValueError(f"{name}: strides {tuple(byte_strides)} are not multiples of the element's {itemsize} bytes")
    return tuple(stride // itemsize for stride in byte_strides)


def fill_boxes(rows: Any, boxes: Sequence[Any]) -> Any:
    """Write each image's index and boxes into rows [K, 5] of a framework that assigns to slices, and answer these."""
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

    def join_boxes(self, boxes: Sequence[Any], dtype: str) -> Any:
        """Make one [K, 5] array out of one [L, 4] array per image, the image's index first, in f32 or f64."""
        raise NotImplementedError

    def current_stream(self, device: int) -> int:
        """Answer the stream that this framework's next operation on `device` would use."""
        return 0

    def scope(self, device: int, stream: int | None) -> AbstractContextManager[Any] | None:
        """Make device and stream the framework's current ones, so that copies and outputs are ordered with the kernel.

        None if they already are.
        """
        return None


def _of_module(cls: type, root: str) -> bool:
    return cls.__module__ == root or cls.__module__.startswith(root + ".")


def _masked_array_type() -> tuple[type, ...]:
    """Answer NumPy's masked array, as `isinstance` takes it; not through `np.ma`, which may import it."""
    masked = getattr(sys.modules.get("numpy.ma.core"), "MaskedArray", None)
    return () if masked is None else (masked,)


def _recognise(name: str, array: Any) -> Adapter:
    """Find the adapter of a type that was not met before. The frameworks' own classes decide, looked up by name."""
    kind = type(array)
    for cls in kind.__mro__:
        if cls is np.ndarray:
            from . import _arrays_numpy

            if isinstance(array, _masked_array_type()):
                raise TypeError(f"{name}: a masked array has no single value where it is masked; pass .filled(...)")
            return _arrays_numpy.NUMPY
        if cls.__module__ == "torch" and cls.__name__ == "Tensor":
            from . import _arrays_torch

            _arrays_torch.check_type(name, kind)
            return _arrays_torch.adapter()
        if _of_module(cls, "cupy") and cls.__name__ in ("ndarray", "_ndarray_base"):
            from . import _arrays_cupy

            return _arrays_cupy.adapter()
        if cls.__name__ == "Tracer" and _of_module(cls, "jax"):
            raise TypeError(
                f"{name}: a JAX tracer has no data; call this function outside jit, grad and vmap, on concrete arrays"
            )
        if cls.__name__ == "ArrayImpl" and (_of_module(cls, "jaxlib") or _of_module(cls, "jax")):
            from . import _arrays_jax

            return _arrays_jax.adapter()
        if _of_module(cls, "cuda.core") and cls.__name__ == "Buffer":
            raise TypeError(
                f"{name}: a cuda.core Buffer has no shape and dtype; wrap it with StridedMemoryView.from_buffer"
            )
        if _of_module(cls, "cuda.core") and cls.__name__ == "StridedMemoryView":
            from . import _arrays_cuda

            return _arrays_cuda.VIEW
    if hasattr(kind, "__dlpack__") or hasattr(array, "__cuda_array_interface__"):
        from . import _arrays_cuda

        return _arrays_cuda.GENERIC
    raise TypeError(
        f"{name}: wanted an array of NumPy, torch, CuPy, JAX or cuda.core, or an object with __dlpack__ or "
        f"__cuda_array_interface__; got {kind.__name__}"
    )


def read(name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
    """Describe any supported array as an operand, without copying it.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    array : object
        The array.
    stream : object, optional
        The caller's stream argument.
    like : Operand, optional
        An operand already read, whose framework's current stream stands in for a missing `stream`.
    """
    adapter = _ADAPTERS.get(type(array))
    if adapter is None:
        with first_use():  # it may import
            adapter = _recognise(name, array)
        if len(_ADAPTERS) >= _MOST_TYPES:
            _ADAPTERS.clear()
        _ADAPTERS[type(array)] = adapter
    return adapter.read(name, array, stream, like)


def stream_handle(stream: Any) -> int:
    """Answer the raw handle of a stream: an int, or anything with `__cuda_stream__`.

    torch.cuda.Stream and cupy.cuda.Stream of versions without that protocol are understood too.
    """
    if type(stream) is int:
        handle = stream
    elif hasattr(stream, "__cuda_stream__"):
        handle = int(stream.__cuda_stream__()[1])
    elif _of_module(type(stream), "torch") and hasattr(stream, "cuda_stream"):
        handle = int(stream.cuda_stream)
    elif _of_module(type(stream), "cupy") and hasattr(stream, "ptr"):
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
