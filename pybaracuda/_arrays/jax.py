# SPDX-License-Identifier: Apache-2.0
"""JAX arrays outside jit. Nothing about traced code belongs here."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from .. import _machine
from .._dtypes import CANONICAL_NANS, numpy_dtype, numpy_token
from .._forking import first_use
from .interface import HOST, Adapter, Operand, numbered_entries
from .numpy import NUMPY

__all__ = ["JaxAdapter", "adapter"]

# XLA on the CPU takes over memory with this alignment and copies any other.
_XLA_ALIGNMENT = 64


class JaxAdapter(Adapter):
    """Reads single-device arrays; every one is dense and may not be written.

    JAX has no stream that a caller could name, so the host waits for inputs to be computed and, on CUDA, for
    the kernel to end before its output becomes a JAX array.
    """

    kind = "JAX"
    takes_out = False

    def __init__(self) -> None:
        self._jax: Any = sys.modules["jax"]

    def read(self, name: str, array: Any, stream: Any = None, like: Operand | None = None) -> Operand:
        if array.is_deleted():
            raise ValueError(f"{name}: the JAX array was deleted or donated")
        devices = array.devices()
        if len(devices) != 1:
            raise ValueError(f"{name}: the JAX array is spread over {len(devices)} devices; wanted one")
        (device,) = devices
        if device.platform == "cpu":
            place = HOST
        elif device.platform in ("gpu", "cuda"):
            # The driver's number, which local_hardware_id carries; CUDA_VISIBLE_DEVICES has renumbered both alike.
            place = device.local_hardware_id
        else:
            raise ValueError(f"{name}: the JAX array is on platform {device.platform}; wanted cpu or cuda")
        array.block_until_ready()
        token = numpy_token(array.dtype)
        return Operand(name, array, self, array.unsafe_buffer_pointer(), array.shape, None, token, place, True)

    def check_output(self, operand: Operand) -> None:
        raise TypeError(f"{operand.name}: JAX arrays are immutable; leave it out and take the returned array")

    def empty(self, like: Operand, shape: tuple[int, ...], dtype: str, stream: int) -> tuple[int, Any]:
        wanted = numpy_dtype(dtype)
        if like.device == HOST:
            nbytes = wanted.itemsize * prod(shape)
            raw = np.empty(nbytes + _XLA_ALIGNMENT, np.uint8)
            address = raw.__array_interface__["data"][0]
            start = -address % _XLA_ALIGNMENT
            return address + start, raw[start : start + nbytes].view(wanted).reshape(shape)
        # Nobody has seen this array yet, and it is complete: to write it is to compute it.
        (device,) = like.array.devices()
        with self._wide(dtype):
            fresh = self._jax.numpy.empty(shape, wanted, device=device).block_until_ready()
        return fresh.unsafe_buffer_pointer(), fresh

    def finish(self, memory: Any, like: Operand, dtype: str, stream: int) -> Any:
        if like.device == HOST:
            (device,) = like.array.devices()
            with self._wide(dtype):
                return self._jax.device_put(memory, device)
        _machine.synchronize(stream)
        return memory

    def cast(self, operand: Operand, dtype: str, stream: int) -> Operand:
        if operand.device == HOST:
            # XLA's own threads flush subnormal numbers, always.
            return NUMPY.cast(NUMPY.read(operand.name, np.asarray(operand.array)), dtype, stream)
        with self._wide(dtype):
            return self.read(operand.name, operand.array.astype(numpy_dtype(dtype)))

    def narrow(self, wide: Operand, dtype: str, target: Operand | None, stream: int) -> Any:
        array = self.cast(wide, dtype, stream).array
        if wide.device == HOST:
            return self.finish(array, wide, dtype, stream)
        # XLA's converters make NaNs without a sign. As integers those are the largest patterns of all.
        patterns = self._jax.lax.bitcast_convert_type(array, f"i{array.dtype.itemsize}")
        settled = self._jax.numpy.minimum(patterns, CANONICAL_NANS[dtype])
        return self._jax.lax.bitcast_convert_type(settled, array.dtype)

    def renumbered(
        self, operand: Operand, dtype: str, bound: int, step: int, target: Operand | None, stream: int
    ) -> Any:
        if operand.device == HOST:
            host = NUMPY.read(operand.name, np.asarray(operand.array))
            return self.finish(NUMPY.renumbered(host, dtype, bound, step, None, stream), operand, dtype, stream)
        with self._wide("i64"):
            return numbered_entries(self._jax.numpy, operand.array.astype(numpy_dtype(dtype)), bound, step)

    def scope(self, device: int, stream: int | None) -> AbstractContextManager[Any] | None:
        return _machine.device_scope(device, stream or 0)

    def join_boxes(self, boxes: Sequence[Any], dtype: str) -> Any:
        if all(device.platform == "cpu" for each in boxes for device in each.devices()):
            return NUMPY.join_boxes([np.asarray(each) for each in boxes], dtype)
        jnp = self._jax.numpy
        wide = numpy_dtype(dtype)
        with self._wide(dtype):
            numbers = [jnp.full((len(each), 1), number, wide) for number, each in enumerate(boxes)]
            pairs = zip(numbers, boxes, strict=True)
            return jnp.concatenate([jnp.concatenate([number, each.astype(wide)], 1) for number, each in pairs])

    def _wide(self, dtype: str) -> AbstractContextManager[Any]:
        """Keep JAX from narrowing 64-bit values where its 64-bit mode is off."""
        if dtype not in ("f64", "i64", "u64") or self._jax.config.jax_enable_x64:
            return nullcontext()
        with first_use():
            home = self._jax if hasattr(self._jax, "enable_x64") else importlib.import_module("jax.experimental")
        switched: AbstractContextManager[Any] = home.enable_x64(True)
        return switched


@lru_cache(maxsize=1)
def adapter() -> JaxAdapter:
    """Answer the one adapter; JAX is imported, since an array of it was met."""
    return JaxAdapter()
