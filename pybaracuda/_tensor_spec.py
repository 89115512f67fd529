# SPDX-License-Identifier: Apache-2.0
"""What a plan wants of each tensor, and whether what it is given will do. Nothing here calls the library."""

from __future__ import annotations

from math import prod
from operator import index
from typing import Any, NamedTuple

from . import _abi
from ._arrays import HOST, Operand, dense_strides, read
from ._descriptor import Descriptor
from ._dtypes import dtype_name, item_bytes
from ._errors import BufferTooSmallError, shown

__all__ = [
    "TensorSpec",
    "buffer_device",
    "check_array",
    "is_buffer",
    "memory_of",
    "raw_memory",
    "tensor_spec",
    "too_small",
]


class TensorSpec(NamedTuple):
    """One tensor of a plan.

    `numel` and `nbytes` count from the first to the last element touched; `is_dense` says that they lie row-major
    without gaps.
    """

    name: str
    is_output: bool
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    numel: int
    nbytes: int
    is_dense: bool


def tensor_spec(descriptor: Descriptor, parameter: _abi.Tensor, variant: _abi.Variant) -> TensorSpec:
    dtype = variant.types.get(parameter.dtype, parameter.dtype)
    shape = descriptor.tensor_shape(parameter)
    strides = dense_strides(shape) if parameter.strides is None else tuple(getattr(descriptor, parameter.strides))
    numel = 0
    if prod(shape) > 0:
        pairs = zip(shape, strides, strict=True)
        numel = 1 + sum((extent - 1) * stride for extent, stride in pairs if stride > 0)
    nbytes = numel * _abi.DTYPE_BYTES[dtype]
    is_dense = numel == 0 or strides == dense_strides(shape)
    return TensorSpec(parameter.name, parameter.role == "output", dtype, shape, strides, numel, nbytes, is_dense)


def too_small(spec: TensorSpec, got: int) -> BufferTooSmallError:
    return BufferTooSmallError(
        f"{spec.name} has {got} elements; wanted at least {spec.numel}", needed=spec.numel, got=got
    )


def check_array(spec: TensorSpec, operand: Operand) -> None:
    if operand.dtype != spec.dtype and not _is_word(spec, operand):
        raise TypeError(f"{spec.name} has dtype {dtype_name(operand.dtype)}; wanted {dtype_name(spec.dtype)}")
    if spec.is_output:
        operand.adapter.check_output(operand)
    if spec.is_dense:
        if operand.strides is not None:
            raise ValueError(f"{spec.name}: the array is not dense; copy it, or say its strides in the descriptor")
        if (got := prod(operand.shape)) < spec.numel:
            raise too_small(spec, got)
    elif operand.shape != spec.shape or operand.element_strides() != spec.strides:
        raise ValueError(
            f"{spec.name} has shape {operand.shape} and strides {operand.element_strides()}; "
            f"wanted {spec.shape} and {spec.strides}"
        )


def _is_word(spec: TensorSpec, operand: Operand) -> bool:
    """Tell whether the tensor takes every dtype of its width (b8 to b128) and the array has such a one."""
    is_any = spec.dtype[0] == "b" and spec.dtype != "bf16"
    return is_any and item_bytes(operand.dtype) == _abi.DTYPE_BYTES[spec.dtype]


def is_buffer(value: Any) -> bool:
    """Recognise cuda.core's Buffer without importing it."""
    return type(value).__name__ == "Buffer" and type(value).__module__.startswith("cuda.core")


def buffer_device(buffer: Any, backend: str) -> int:
    """Answer where a Buffer is, for a backend: memory that both sides reach suits either."""
    if backend == "cpu":
        return HOST if buffer.is_host_accessible else buffer.device_id
    return max(buffer.device_id, 0) if buffer.is_device_accessible else HOST


def raw_memory(name: str, value: tuple[Any, ...]) -> tuple[int, int]:
    """Check a raw pair (pointer, nbytes)."""
    try:
        pointer, nbytes = map(index, value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: wanted (pointer, nbytes), two int; got {shown(value)}") from None
    if not (0 <= pointer < 1 << 64 and 0 <= nbytes < 1 << 64):
        raise ValueError(f"{name}: wanted (pointer, nbytes), neither negative, in 64 bits; got {shown(value)}")
    return pointer, nbytes


def memory_of(name: str, value: Any) -> tuple[int, int]:
    """Answer address and bytes of a raw pair, a Buffer or a dense array."""
    if type(value) is tuple:
        return raw_memory(name, value)
    if is_buffer(value):
        return int(value.handle), int(value.size)
    operand = read(name, value)
    operand.adapter.check_output(operand)
    if operand.strides is not None:
        raise ValueError(f"{name}: the array is not dense")
    if operand.dtype not in _abi.DTYPE_BYTES:
        raise TypeError(f"{name} has dtype {dtype_name(operand.dtype)}; wanted uint8")
    return operand.pointer, prod(operand.shape) * _abi.DTYPE_BYTES[operand.dtype]
