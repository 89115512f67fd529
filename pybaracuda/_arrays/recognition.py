# SPDX-License-Identifier: Apache-2.0
"""Recognises any framework's array and hands it to that framework's adapter.

A framework is never imported here: an array of it can exist only if the caller has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .._forking import first_use
from .interface import Adapter, Operand, of_module

__all__ = ["read"]

# Types that were met, so that the next array of the type costs one lookup. Emptied when full: a program that makes
# classes without end must not grow it without end.
_ADAPTERS: dict[type, Adapter] = {}
_MOST_TYPES = 256


def _masked_array_type() -> tuple[type, ...]:
    """Answer NumPy's masked array, as `isinstance` takes it; not through `np.ma`, which may import it."""
    masked = getattr(sys.modules.get("numpy.ma.core"), "MaskedArray", None)
    return () if masked is None else (masked,)


def _recognise(name: str, array: Any) -> Adapter:
    """Find the adapter of a type that was not met before. The frameworks' own classes decide, looked up by name."""
    kind = type(array)
    for cls in kind.__mro__:
        if cls is np.ndarray:
            from . import numpy

            if isinstance(array, _masked_array_type()):
                raise TypeError(f"{name}: a masked array has no single value where it is masked; pass .filled(...)")
            return numpy.NUMPY
        if cls.__module__ == "torch" and cls.__name__ == "Tensor":
            from . import torch

            torch.check_type(name, kind)
            return torch.adapter()
        if of_module(cls, "cupy") and cls.__name__ in ("ndarray", "_ndarray_base"):
            from . import cupy

            return cupy.adapter()
        if cls.__name__ == "Tracer" and of_module(cls, "jax"):
            raise TypeError(
                f"{name}: a JAX tracer has no data; use pybaracuda.jax, whose functions work inside jit, grad and vmap"
            )
        if cls.__name__ == "ArrayImpl" and (of_module(cls, "jaxlib") or of_module(cls, "jax")):
            from . import jax

            return jax.adapter()
        if of_module(cls, "cuda.core") and cls.__name__ == "Buffer":
            raise TypeError(
                f"{name}: a cuda.core Buffer has no shape and dtype; wrap it with StridedMemoryView.from_buffer"
            )
        if of_module(cls, "cuda.core") and cls.__name__ == "StridedMemoryView":
            from . import cuda_core

            return cuda_core.VIEW
    if hasattr(kind, "__dlpack__") or hasattr(array, "__cuda_array_interface__"):
        from . import dlpack

        return dlpack.GENERIC
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
