# SPDX-License-Identifier: Apache-2.0
"""One problem as the C library takes it: packed, checked and run at addresses. Nothing here knows an array.

What stands above it, plans and array functions alike, finds the addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _abi, _library
from ._descriptor import Descriptor
from ._errors import UnsupportedError
from ._immutable import Immutable
from ._packing import PackedProblem, pack_problem

__all__ = ["NO_SCRATCH", "Kernel"]

# Address and bytes of no workspace: the library takes scratch from its own pool or the heap.
NO_SCRATCH = (0, 0)


class Kernel(Immutable):
    """A problem on one backend, whose library has said that it can do it. Any thread may run it.

    Parameters
    ----------
    descriptor : Descriptor
    backend : {"cpu", "cuda"}

    Attributes
    ----------
    operator : Operator
    variant : Variant
    library : Library
    absent_tensors : frozenset of str
        Tensors of the operator that the problem has not.
    arguments : tuple
        One for each parameter of the C functions, None for a tensor.
    function : callable
        The ``_run_packed`` function: it takes a block and answers a status.
    block : callable
        Packs ``block(pointers, scratch, stream)``: the tensors' addresses in the order of the C arguments, address and
        bytes of the workspace, the stream's handle.
    workspace_size : int
        Bytes of scratch that a call wants.

    Raises
    ------
    InvalidProblemError, UnsupportedError, BackendUnavailableError
        As :meth:`Plan.select`.
    """

    __slots__ = (
        "_packed",
        "absent_tensors",
        "arguments",
        "block",
        "function",
        "library",
        "operator",
        "variant",
        "workspace_size",
    )

    absent_tensors: frozenset[str]
    arguments: tuple[Any, ...]
    block: Callable[[Sequence[int], tuple[int, int], int], bytes]
    function: Callable[[bytes], int]
    library: _library.Library
    operator: _abi.Operator
    variant: _abi.Variant
    workspace_size: int
    _packed: PackedProblem

    def __init__(self, descriptor: Descriptor, backend: str) -> None:
        operator = _abi.OPERATORS[descriptor.operator]
        variant = operator.variants.get(descriptor.variant)
        if variant is None:
            raise UnsupportedError(
                f"{operator.name}: there is no variant {descriptor.variant}; "
                f"wanted one of {', '.join(operator.variants)}"
            )
        library = _library.load(backend)
        packed = pack_problem(operator, variant, descriptor)
        put = object.__setattr__
        put(self, "operator", operator)
        put(self, "variant", variant)
        put(self, "library", library)
        put(self, "absent_tensors", descriptor.absent_tensors)
        put(self, "arguments", packed.arguments)
        put(self, "function", self._found("run_packed"))
        put(self, "block", packed.block)
        # It owns what the block points to.
        put(self, "_packed", packed)
        self.check()
        put(self, "workspace_size", int(self._found("workspace_size")(*packed.sizes)))

    def workspace_size_in(self, library: _library.Library) -> int:
        """Answer how much scratch another library wants for the problem: the backends' differ."""
        return int(library.function(self.operator, self.variant, "workspace_size")(*self._packed.sizes))

    def check(self) -> None:
        """Ask the C library whether it can do the problem."""
        arguments: Sequence[Any] = self.arguments
        if self.operator.after_workspace:
            arguments = self.operator.in_call_order(arguments, (None, 0))
        status = self._found("can_implement")(*arguments)
        if status:
            raise self.library.error(status, _library.symbol_name(self.operator, self.variant, "can_implement"))

    def invoke(self, pointers: Sequence[int], scratch: tuple[int, int], stream: int) -> None:
        """Run once, on the tensors at `pointers`; the rest as for `block`."""
        status = self.function(self.block(pointers, scratch, stream))
        if status:
            raise self.error(status, scratch)

    def error(self, status: int, scratch: tuple[int, int]) -> BaseException:
        """Answer the exception for what `function` answered, on the thread that called it."""
        symbol = _library.symbol_name(self.operator, self.variant, "run_packed")
        return self.library.error(status, symbol, needed=self.workspace_size, got=scratch[1])

    def _found(self, verb: str) -> Callable[..., Any]:
        return self.library.function(self.operator, self.variant, verb)
