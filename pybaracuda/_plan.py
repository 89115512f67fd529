# SPDX-License-Identifier: Apache-2.0
"""Plans: one problem each, selected, cached and run. No operator is named here."""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any, ClassVar, TypeVar

from . import _abi, _library, _machine
from ._arrays import HOST, Operand, read, stream_handle
from ._descriptor import Descriptor, PlanPreference, PrecisionGuarantee, Sku
from ._errors import BackendUnavailableError, UnsupportedError
from ._immutable import Immutable
from ._kernel import NO_SCRATCH, Kernel
from ._tensor_spec import (
    TensorSpec,
    buffer_device,
    check_array,
    is_buffer,
    memory_of,
    raw_memory,
    tensor_spec,
    too_small,
)

__all__ = ["BoundCall", "Plan"]

# Enough for every layer of a large model; a plan is about a kilobyte.
_MOST_PLANS = 1024
_DEFAULT_PREFERENCE = PlanPreference()

P = TypeVar("P", bound="Plan")
Scope = Callable[[], AbstractContextManager[None]]


class Plan(Immutable):
    """One problem, ready to run any number of times.

    Make plans with :meth:`select`. A plan is immutable, holds no tensor and no stream, and may be used by any number of
    threads and streams at once. Plans are equal when they are of one class, problem (to the bit), preference and
    backend. A pickled plan is selected anew where it is read, which raises BackendUnavailableError if its backend's
    library is not there.

    Attributes
    ----------
    descriptor : Descriptor
        The problem.
    preference : PlanPreference
    backend : str
        "cpu" or "cuda".
    workspace_size : int
        Bytes of scratch that :meth:`run` wants, 0 when none. Without one, the library takes scratch from the heap (CPU)
        or from its own stream-ordered pool (CUDA).
    tensors : tuple of TensorSpec
        Names, dtypes, shapes and sizes that :meth:`run` takes.
    kernel : Kernel
        The problem as the C library takes it, without tensors.
    """

    __slots__ = ("backend", "descriptor", "kernel", "preference", "tensors", "workspace_size")

    descriptor_type: ClassVar[type[Any]]
    category: ClassVar[str]
    layout: ClassVar[str] = "row-major"
    # Whether results are sums, and whether bits are only moved.
    sums: ClassVar[bool] = True
    moves: ClassVar[bool] = False

    descriptor: Any
    preference: PlanPreference
    backend: str
    workspace_size: int
    tensors: tuple[TensorSpec, ...]
    kernel: Kernel

    def __init__(self) -> None:
        raise TypeError(f"make a plan with {type(self).__name__}.select(descriptor)")

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Plan) and self._identity() == other._identity())

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.descriptor, self.backend, self.preference)

    def _identity(self) -> tuple[Any, ...]:
        """Answer what makes two plans equal; floats as their bits, by which -0.0 is not 0.0 and a NaN is itself."""
        values = [getattr(self.descriptor, field.name) for field in fields(self.descriptor)]
        bits = [struct.pack("d", value) if isinstance(value, float) else value for value in values]
        return (type(self), type(self.descriptor), *bits, self.backend, self.preference)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.backend}: {self.descriptor}>"

    @classmethod
    def select(
        cls: type[P], descriptor: Descriptor, *, stream: Any = None, preference: PlanPreference | None = None
    ) -> P:
        """Choose the code for a problem and check the problem.

        Plans are cached: equal arguments give the same object, up to some number of plans.

        Parameters
        ----------
        descriptor : Descriptor
            The problem, of this plan's own descriptor class.
        stream : int or object with ``__cuda_stream__``, optional
            Given, it asks for the CUDA backend; the plan does not keep it.
        preference : PlanPreference, optional
            ``prefer_backend`` decides before `stream` does.

        Raises
        ------
        InvalidProblemError
            If the problem is wrong on every backend.
        UnsupportedError
            If it needs more workspace than the preference allows, or a dtype that the operator does not have.
        BackendUnavailableError
            If the backend's library cannot be loaded.
        """
        if type(descriptor) is not cls.descriptor_type:
            raise TypeError(f"descriptor: wanted a {cls.descriptor_type.__name__}, got a {type(descriptor).__name__}")
        if preference is None:
            preference = _DEFAULT_PREFERENCE
        elif not isinstance(preference, PlanPreference):
            raise TypeError(f"preference: wanted a PlanPreference, got a {type(preference).__name__}")
        backend = preference.prefer_backend
        if backend is None:
            backend = "cpu" if stream is None else "cuda"
        elif backend == "cpu" and stream is not None:
            raise ValueError("stream: the CPU backend has no streams; leave it out")
        plan = _build(cls, descriptor, descriptor.cache_key, backend, preference)  # type: ignore[arg-type]
        return plan  # type: ignore[return-value]

    def can_implement(self, **tensors: Any) -> bool:
        """Ask the library about the problem again, and check tensors without running.

        Parameters
        ----------
        **tensors
            None at all, or everything that :meth:`run` takes by name.

        Returns
        -------
        bool
            True; what is wrong is raised as :meth:`run` would raise it.
        """
        self.kernel.check()
        if tensors:
            self._block(None, None, tensors)
        return True

    @property
    def sku(self) -> Sku:
        """Which piece of code the plan runs."""
        if self.backend == "cuda":
            if problem := _library.backend_problem("cuda"):
                raise BackendUnavailableError(problem)
            arch = _machine.cuda_arch()
        else:
            arch = f"{platform.machine()}-{self.kernel.library.cpu_isa}"
        return Sku(
            category=self.category,
            op=self.kernel.operator.name,
            element=self.descriptor.element,
            aux_element=self.descriptor.aux_element,
            layout=self.layout,
            epilogue="none",
            arch=arch,
            backend=self.backend,
            precision_guarantee=self.precision_guarantee,
        )

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """What the plan promises about its arithmetic."""
        wide = "f64" if self.descriptor.element == "f64" else "f32"
        return PrecisionGuarantee(
            math_precision="exact" if self.moves else wide, accumulator=wide if self.sums else "none"
        )

    def run(self, *, stream: Any = None, workspace: Any = None, **tensors: Any) -> None:
        """Run the problem on tensors.

        Parameters
        ----------
        stream : int or object with ``__cuda_stream__``, optional
            CUDA only. None means the current stream of the first array's framework, else the legacy default stream.
        workspace : array, (pointer, nbytes) or cuda.core Buffer, optional
            At least ``workspace_size`` bytes, 16-byte aligned.
        **tensors
            One for each entry of ``tensors``, by name: an array of any framework with the wanted dtype and enough
            elements, dense (or strided as the descriptor says); a pair ``(pointer, nbytes)``; or a cuda.core Buffer.
            Outputs are fully overwritten.

        Raises
        ------
        BufferTooSmallError
            If a tensor holds too few elements.
        WorkspaceTooSmallError
            If the workspace is too small.
        MisalignedOperandError
            If a pointer is not aligned to its element (those of 16 bytes: to 8), or the workspace not to
            16 bytes.
        TypeError, ValueError
            If an array has the wrong dtype, or the wrong device or layout, or is a read-only output.
        """
        kernel = self.kernel
        block, scratch, scope = self._block(stream, workspace, tensors)
        if scope is None:
            status = kernel.function(block)
        else:
            with scope():
                status = kernel.function(block)
        if status:
            raise kernel.error(status, scratch)

    def bind(self, *, stream: Any = None, workspace: Any = None, **tensors: Any) -> BoundCall:
        """Check tensors once and answer the cheapest thing to call again and again.

        Parameters
        ----------
        stream, workspace, **tensors
            As for :meth:`run`. The stream is settled now; the result keeps arrays alive, not the memory behind
            raw pointers.

        Returns
        -------
        BoundCall
            A callable without arguments.
        """
        block, scratch, scope = self._block(stream, workspace, tensors)
        return BoundCall(self, block, scratch, scope, (stream, workspace, dict(tensors)))

    def _block(
        self, stream: Any, workspace: Any, tensors: Mapping[str, Any]
    ) -> tuple[bytes, tuple[int, int], Scope | None]:
        """Pack the arguments of one call; say its workspace, and what must be entered around it, if anything."""
        specs = self.tensors
        if len(tensors) != len(specs):
            raise self._wrong_names(tensors)
        pointers = []
        first: Operand | None = None
        for spec in specs:
            try:
                value = tensors[spec.name]
            except KeyError:
                raise self._wrong_names(tensors) from None
            if type(value) is tuple:
                pointer, nbytes = value if len(value) == 2 else raw_memory(spec.name, value)
                if type(nbytes) is not int or nbytes < spec.nbytes:
                    pointer, nbytes = raw_memory(spec.name, value)
                    if nbytes < spec.nbytes:
                        raise too_small(spec, nbytes // _abi.DTYPE_BYTES[spec.dtype])
            elif is_buffer(value):
                pointer, nbytes = memory_of(spec.name, value)
                self._check_place(spec.name, buffer_device(value, self.backend))
                if nbytes < spec.nbytes:
                    raise too_small(spec, nbytes // _abi.DTYPE_BYTES[spec.dtype])
            else:
                operand = read(spec.name, value, stream, first)
                self._check_place(spec.name, operand.device)
                check_array(spec, operand)
                pointer = operand.pointer
                if first is None:
                    first = operand
            pointers.append(pointer)
        handle = 0
        scope: Scope | None = None
        if self.backend == "cpu":
            if stream is not None:
                raise ValueError("stream: the CPU backend has no streams; leave it out")
        else:
            if stream is not None:
                handle = stream_handle(stream)
            elif first is not None:
                handle = first.adapter.current_stream(first.device)
            if first is not None and _machine.device_scope(first.device, handle) is not None:
                scope = partial(_machine.on_device, first.device)
        scratch = NO_SCRATCH if workspace is None else memory_of("workspace", workspace)
        try:
            return self.kernel.block(pointers, scratch, handle), scratch, scope
        except struct.error:
            # A raw pointer that is no address. Nothing else has not been checked.
            for spec in specs:
                if type(tensors[spec.name]) is tuple:
                    raw_memory(spec.name, tensors[spec.name])
            raise

    def _check_place(self, name: str, device: int) -> None:
        if (device == HOST) != (self.backend == "cpu"):
            where = "host memory" if device == HOST else f"cuda:{device}"
            raise ValueError(f"{name}: the array is in {where}, the plan runs on {self.backend}")

    def _wrong_names(self, tensors: Mapping[str, Any]) -> TypeError:
        wanted = [spec.name for spec in self.tensors]
        missing = [name for name in wanted if name not in tensors]
        unknown = [name for name in tensors if name not in wanted]
        parts = ([f"missing {', '.join(missing)}"] if missing else []) + (
            [f"unknown {', '.join(unknown)}"] if unknown else []
        )
        return TypeError(f"tensors: {'; '.join(parts)}; wanted {', '.join(wanted)}")


class BoundCall(Immutable):
    """A plan with its tensors, stream and workspace settled. Calling it runs the plan, from any thread.

    It is immutable, and its copies are itself: what it holds are addresses, which also cannot be pickled.

    Attributes
    ----------
    plan : Plan
    """

    __slots__ = ("_alive", "_block", "_function", "_scope", "_scratch", "plan")

    plan: Plan
    _function: Callable[[bytes], int]
    _block: bytes
    _scratch: tuple[int, int]
    _scope: Scope | None
    _alive: Any

    def __init__(self, plan: Plan, block: bytes, scratch: tuple[int, int], scope: Scope | None, alive: Any) -> None:
        put = object.__setattr__
        put(self, "plan", plan)
        # Direct, since it is read at every call.
        put(self, "_function", plan.kernel.function)
        put(self, "_block", block)
        put(self, "_scratch", scratch)
        put(self, "_scope", scope)
        put(self, "_alive", alive)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a BoundCall holds addresses of this process; pickle its plan")

    def __call__(self) -> None:
        """Run the plan once more, with the tensors' present contents."""
        if self._scope is None:
            status = self._function(self._block)
        else:
            with self._scope():
                status = self._function(self._block)
        if status:
            raise self.plan.kernel.error(status, self._scratch)


def _restored(cls: type[Plan], descriptor: Descriptor, backend: str, preference: PlanPreference) -> Plan:
    """Select the plan that was pickled, on the backend that it had then."""
    plan: Plan = _build(cls, descriptor, descriptor.cache_key, backend, preference)  # type: ignore[arg-type]
    return plan


@lru_cache(maxsize=_MOST_PLANS)
def _build(cls: type[Plan], descriptor: Descriptor, cache_key: Any, backend: str, preference: PlanPreference) -> Plan:
    """Make a plan. `cache_key` only tells descriptors apart in the cache."""
    kernel = Kernel(descriptor, backend)
    plan = object.__new__(cls)
    put = object.__setattr__
    put(plan, "descriptor", descriptor)
    put(plan, "preference", preference)
    put(plan, "backend", backend)
    put(plan, "kernel", kernel)
    put(plan, "workspace_size", kernel.workspace_size)
    tensors = (each for each in kernel.operator.parameters if isinstance(each, _abi.Tensor))
    present = (each for each in tensors if each.name not in descriptor.absent_tensors)
    put(plan, "tensors", tuple(tensor_spec(descriptor, each, kernel.variant) for each in present))
    most = preference.max_workspace_bytes
    if most is not None and kernel.workspace_size > most:
        raise UnsupportedError(
            f"{kernel.operator.name}: the problem needs {kernel.workspace_size} bytes of workspace; "
            f"the preference allows {most}"
        )
    return plan
