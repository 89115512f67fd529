# SPDX-License-Identifier: Apache-2.0
"""How arrays of every framework are made from NumPy's and read again; no function of the library is called here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from operators.record import Call

from verify.dtypes import DTYPES, Array
from verify.memory.arrays import CupyArrays, NumpyArrays, TorchArrays
from verify.memory.blocks import POISONS

BF16 = DTYPES["bf16"]


class Framework:
    """How one framework's arrays are made from NumPy's and read again."""

    takes_out = True

    def __init__(self, name: str, arrays: NumpyArrays | None = None) -> None:
        self.name = name
        self._arrays = arrays or NumpyArrays()

    def make(self, values: Array) -> Any:
        return self._arrays.put(values)

    def owns(self, array: Any) -> bool:
        return self._arrays.owns(array)

    def values(self, array: Any) -> Array:
        return self._arrays.get(array)

    def pointer(self, array: Any) -> int:
        return self._arrays.pointer(array)

    def poisoned(self, values: Array) -> Any:
        """An array like `values` that holds something else."""
        return self.make(np.frombuffer(bytes([POISONS[1]]) * values.nbytes, values.dtype).reshape(values.shape))


def jax_in_float64() -> Any:
    """A context in which JAX keeps 64-bit values; its name moved between versions."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return importlib.import_module("jax.experimental").enable_x64(True)


class JaxArrays(Framework):
    takes_out = False

    def __init__(self, name: str, platform: str) -> None:
        super().__init__(name)
        self.device = jax.devices(platform)[0]

    def make(self, values: Array) -> Any:
        with jax_in_float64():
            return jax.device_put(values.copy(), self.device)

    def owns(self, array: Any) -> bool:
        return isinstance(array, jax.Array) and array.devices() == {self.device}


class Views(Framework):
    """cuda.core views of CuPy's memory."""

    def __init__(self, name: str) -> None:
        super().__init__(name, CupyArrays())

    def make(self, values: Array) -> Any:
        from cuda.core.utils import StridedMemoryView

        return StridedMemoryView.from_any_interface(super().make(values), stream_ptr=-1)

    def owns(self, array: Any) -> bool:
        return type(array).__name__ == "StridedMemoryView"

    def values(self, array: Any) -> Array:
        import cupy

        cupy.cuda.Device().synchronize()
        return np.asarray(cupy.asnumpy(cupy.from_dlpack(array)))

    def pointer(self, array: Any) -> int:
        return int(array.ptr)


class Exporter:
    """An array of no known framework that speaks DLPack alone."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()  # type: ignore[return-value]

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


class DLPackExporters(Framework):
    """Come back as NumPy arrays."""

    def make(self, values: Array) -> Any:
        return Exporter(values.copy())

    def values(self, array: Any) -> Array:
        return array.array if isinstance(array, Exporter) else np.asarray(array)

    def pointer(self, array: Any) -> int:
        return int(self.values(array).ctypes.data)


class Interfaced:
    """An array of no known framework that speaks the CUDA array interface alone."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class InterfaceExporters(Views):
    """Come back as cuda.core views."""

    def make(self, values: Array) -> Any:
        return Interfaced(self._arrays.put(values))

    def values(self, array: Any) -> Array:
        import cupy

        return np.asarray(cupy.asnumpy(array.array)) if isinstance(array, Interfaced) else super().values(array)

    def pointer(self, array: Any) -> int:
        return int(array.array.data.ptr) if isinstance(array, Interfaced) else super().pointer(array)


def framework_of(name: str) -> Framework:
    """The framework of a name out of place.HOST_FRAMEWORKS or CUDA_FRAMEWORKS."""
    makers: dict[str, Callable[[], Framework]] = {
        "numpy": lambda: Framework(name),
        "torch": lambda: Framework(name, TorchArrays("cpu")),
        "jax": lambda: JaxArrays(name, "cpu"),
        "dlpack": lambda: DLPackExporters(name),
        "torch-cuda": lambda: Framework(name, TorchArrays("cuda")),
        "cupy": lambda: Framework(name, CupyArrays()),
        "jax-cuda": lambda: JaxArrays(name, "gpu"),
        "cuda.core": lambda: Views(name),
        "cuda-array-interface": lambda: InterfaceExporters(name),
    }
    return makers[name]()


def knows(framework: Framework, dtype: np.dtype[Any]) -> bool:
    """Whether the framework has arrays of the dtype: DLPack out of NumPy and CuPy have no bfloat16."""
    return dtype != BF16 or framework.name in ("numpy", "torch", "jax", "torch-cuda", "jax-cuda")


def placed(framework: Framework, case: Call) -> dict[str, Any]:
    """A case's arrays by name, as the framework's."""
    return {name: framework.make(values) for name, values in case.arrays.items()}
