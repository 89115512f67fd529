# SPDX-License-Identifier: Apache-2.0
"""Who runs a case: our plan, other libraries with the same ABI, frameworks. Nothing is timed or judged here."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pybaracuda import _library
from pybaracuda._plan import Plan
from verify.dtypes import Array, token_of
from verify.memory.tensors import Tensor

from .case import Case, FrameworkCall, JaxCall
from .draw import Draw
from .place import Place

Tensors = Mapping[str, Tensor]
_THREADS = "BARACUDA_NUM_THREADS"
# As much as the device's own flush.
_JAX_FLUSH_BYTES = 512 << 20


class MissingError(Exception):
    """This contender cannot run this case; the text says why."""


@dataclass
class Contender:
    """One way to run the case. `results` answers what the last run wrote, None for an output that it lacks.

    `less` is timed too and subtracted. `batch` is set where single calls cannot be timed on the device: it enqueues so
    many runs as it is told and waits for all of them; `less_batch` does the same without what is to be timed.
    """

    name: str
    run: Callable[[], Any]
    results: Callable[[], list[Tensor | None]]
    note: str = ""
    less: Callable[[], Any] | None = None
    batch: Callable[[int], None] | None = None
    less_batch: Callable[[int], None] | None = None
    zeroing: Contender | None = None


def _outputs_of(case: Case, tensors: Tensors) -> list[Tensor]:
    return [tensors[name] for name in case.outputs()]


def ours(case: Case, plan: Plan, tensors: Tensors) -> Contender:
    """The plan bound to raw pointers, scratch taken by the library itself."""
    raw = {spec.name: (tensors[spec.name].pointer, tensors[spec.name].nbytes) for spec in plan.tensors}
    outputs = _outputs_of(case, tensors)
    return Contender("pybaracuda", plan.bind(**raw), lambda: list(outputs))


class RawLibrary:
    """A library with the same ABI, called through its plain `_run` functions as frozen callers call them."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self._native = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)

    def contender(self, case: Case, plan: Plan, place: Place, tensors: Tensors) -> Contender:
        """Raises MissingError if the library has no such symbol."""
        symbol = _library.symbol_name(plan.kernel.operator, plan.kernel.variant, "run")
        function = getattr(self._native, symbol, None)
        if function is None:
            raise MissingError("it has no such symbol")
        function.restype, function.argtypes = _library._signature(plan.kernel.operator, plan.kernel.variant, "run")
        given = {spec.name: tensors[spec.name].pointer for spec in plan.tensors}
        # None stands for a tensor, and is what a tensor that the problem does not have is given.
        arguments = [
            given.get(parameter.name) if value is None else value
            for parameter, value in zip(plan.kernel.operator.parameters, plan.kernel.arguments, strict=True)
        ]
        ordered = plan.kernel.operator.in_call_order(arguments, (None, 0))
        outputs = _outputs_of(case, tensors)

        def run() -> None:
            if status := function(*ordered, None):
                raise MissingError(f"it answers status {status}")

        def zero_and_run() -> None:
            for output in outputs:
                place.fill(output, 0)
            run()

        plain = Contender(self.name, run, lambda: list(outputs))
        plain.zeroing = Contender(self.name, zero_and_run, plain.results, "outputs zeroed first, as it asks for")
        return plain


@contextmanager
def single_thread_library(place: Place, warm_up: Case) -> Iterator[RawLibrary]:
    """A copy of our CPU library with a thread pool of its own, of one thread.

    A pool is made by the first call that is large enough for several threads; `warm_up` must be.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = RawLibrary("pybaracuda, one thread", Path(shutil.copy(_library.library_path("cpu"), folder)))
        before = os.environ.get(_THREADS)
        os.environ[_THREADS] = "1"
        try:
            tensors = {name: place.put(array) for name, array in warm_up.inputs(Draw()).items()}
            tensors |= {name: place.empty(*each) for name, each in warm_up.outputs().items()}
            library.contender(warm_up, warm_up.plan("cpu"), place, tensors).run()
        finally:
            if before is None:
                del os.environ[_THREADS]
            else:
                os.environ[_THREADS] = before
        yield library


# ----------------------------------------------------------------------------------------------------------- frameworks


class Framework:
    """A framework that can be imported here and computes on the place's backend."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def contenders(self, case: Case, tensors: Tensors, inputs: Mapping[str, Array]) -> dict[str, Contender | str]:
        """By name, or the reason why one cannot run the case."""
        raise NotImplementedError

    def between_rows(self) -> None:
        """Give back memory that is cached."""


def _tensor_of(pointer: int, shape: Sequence[int], dtype: str, owner: Any) -> Tensor:
    return Tensor(pointer, tuple(int(extent) for extent in shape), token_of(dtype), owner)


class _Interface:
    """Device memory for frameworks, which know the CUDA array interface."""

    def __init__(self, tensor: Tensor) -> None:
        # The interface has no bfloat16: the bits pass as integers.
        kinds = {"bf16": "<i2", "f16": "<f2", "f32": "<f4", "f64": "<f8", "s8": "|i1", "u8": "|u1"}
        kinds |= {"i32": "<i4", "i64": "<i8"}
        self.__cuda_array_interface__ = {
            "shape": tensor.shape,
            "typestr": kinds[tensor.element],
            "data": (tensor.pointer, False),
            "version": 3,
            "stream": None,
        }


def first_line(error: Exception) -> str:
    """What an exception says, short enough for a table."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


class _Holding(Framework):
    """A framework whose calls work on our memory."""

    def _wrap(self, tensor: Tensor) -> Any:
        raise NotImplementedError

    def _unwrap(self, array: Any) -> Tensor:
        raise NotImplementedError

    def _calls(self, case: Case, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        raise NotImplementedError

    def _name(self) -> str:
        raise NotImplementedError

    def contenders(self, case: Case, tensors: Tensors, inputs: Mapping[str, Array]) -> dict[str, Contender | str]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a function is young is not our matter here
                calls = self._calls(case, {name: self._wrap(tensor) for name, tensor in tensors.items()})
        except Exception as error:  # whatever a framework raises, the run goes on
            return {self._name(): first_line(error)}
        return {name: self._contender(name, call) for name, call in calls.items()}

    def _contender(self, name: str, call: FrameworkCall) -> Contender:
        last: list[Any] = []

        def run() -> None:
            last[:] = call()

        def results() -> list[Tensor | None]:
            return [None if each is None else self._unwrap(each) for each in last]

        return Contender(name, run, results)


class Torch(_Holding):
    """PyTorch, and torchvision and torch_scatter where they are importable."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.module = import_module("torch")
        if place.backend == "cuda" and not self.module.cuda.is_available():
            raise MissingError("it sees no CUDA device")

    def _name(self) -> str:
        return "PyTorch"

    def _wrap(self, tensor: Tensor) -> Any:
        torch = self.module
        if self._place.backend == "cuda":
            wrapped = torch.as_tensor(_Interface(tensor), device="cuda")
        else:
            array = self._place.view(tensor)
            wrapped = torch.from_numpy(array.view(np.int16) if tensor.element == "bf16" else array)
        return wrapped.view(torch.bfloat16) if tensor.element == "bf16" else wrapped

    def _unwrap(self, array: Any) -> Tensor:
        dense = array.detach().contiguous()
        return _tensor_of(dense.data_ptr(), dense.shape, str(dense.dtype).removeprefix("torch."), dense)

    def _calls(self, case: Case, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        return case.torch_calls(self.module, given)

    def between_rows(self) -> None:
        if self._place.backend == "cuda":
            self.module.cuda.empty_cache()


class Cupy(_Holding):
    """CuPy; GPU only, and without bfloat16."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        if place.backend != "cuda":
            raise MissingError("it computes on GPUs only")
        self._cupy = import_module("cupy")

    def _name(self) -> str:
        return "CuPy"

    def _wrap(self, tensor: Tensor) -> Any:
        return self._cupy.asarray(_Interface(tensor))

    def _unwrap(self, array: Any) -> Tensor:
        dense = self._cupy.ascontiguousarray(array)
        return _tensor_of(dense.data.ptr, dense.shape, dense.dtype.name, dense)

    def _calls(self, case: Case, given: Mapping[str, Any]) -> dict[str, FrameworkCall]:
        return {} if case.element == "bf16" else case.cupy_calls(self._cupy, given)

    def between_rows(self) -> None:
        self._cupy.get_default_memory_pool().free_all_blocks()


class Jax(Framework):
    """JAX, jitted, on arrays of its own.

    On a GPU its stream cannot be seen by events. There, calls are enqueued back to back, each after a flush of JAX's
    own, which also gives the host time to enqueue, and the host's clock runs until all are done; the flushes' share is
    subtracted, or that of flushes and forwards.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if place.backend == "cpu":
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
        self._jax = import_module("jax")
        self._jax.config.update("jax_enable_x64", True)
        try:
            self._device = self._jax.devices("cpu" if place.backend == "cpu" else "gpu")[0]
        except RuntimeError as error:
            raise MissingError(first_line(error)) from None

    def contenders(self, case: Case, tensors: Tensors, inputs: Mapping[str, Array]) -> dict[str, Contender | str]:
        jax = self._jax
        call: JaxCall | None = case.jax_call(jax)
        if call is None:
            return {}
        arrays = [jax.device_put(inputs[name], self._device) for name in call.inputs]
        function, less = jax.jit(call.function), None if call.less is None else jax.jit(call.less)
        last: list[Any] = []

        def run() -> None:
            answer = jax.block_until_ready(function(*arrays))
            last[:] = answer if isinstance(answer, tuple | list) else [answer]

        contender = Contender("JAX", run, lambda: [self._unwrap(each) for each in last], call.note)
        if self._place.backend == "cpu":
            contender.less = None if less is None else lambda: jax.block_until_ready(less(*arrays))
        else:
            contender.batch = self._batch(lambda: function(*arrays))
            contender.less_batch = self._batch(lambda: None if less is None else less(*arrays))
        return {"JAX": contender}

    def _batch(self, enqueue: Callable[[], Any]) -> Callable[[int], None]:
        """So many calls, each behind a flush."""
        jax = self._jax
        flush = jax.jit(lambda values: values + 1, donate_argnums=0)
        trash = [jax.numpy.zeros(_JAX_FLUSH_BYTES // 4, np.int32, device=self._device)]

        def batch(calls: int) -> None:
            found = None
            for _ in range(calls):
                trash[0] = flush(trash[0])
                found = enqueue()
            jax.block_until_ready((trash[0], found))

        return batch

    def _unwrap(self, array: Any) -> Tensor:
        if self._place.backend == "cpu":
            host = np.ascontiguousarray(array)
            return _tensor_of(host.ctypes.data, host.shape, host.dtype.name, host)
        return _tensor_of(array.unsafe_buffer_pointer(), array.shape, array.dtype.name, array)


_FRAMEWORKS: dict[str, type[Framework]] = {"torch": Torch, "cupy": Cupy, "jax": Jax}


def frameworks(place: Place) -> tuple[list[Framework], dict[str, str]]:
    """Those that can be imported here, and why the others cannot be used."""
    found: list[Framework] = []
    missing: dict[str, str] = {}
    for name, kind in _FRAMEWORKS.items():
        if find_spec(name) is None:
            missing[name] = "not installed"
            continue
        try:
            found.append(kind(place))
        except (ImportError, MissingError) as error:
            missing[name] = first_line(error)
    return found, missing
