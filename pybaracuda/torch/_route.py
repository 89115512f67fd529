# SPDX-License-Identifier: Apache-2.0
"""What a route is: an operator of PyTorch, the calls of it that a kernel of ours takes, and how it takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = [
    "ANOTHER_AXIS",
    "BY_ELEMENT",
    "CHANNELS_LAST",
    "CPU_ALWAYS",
    "FEW_ELEMENTS",
    "KEYS",
    "NARROW_INTEGERS",
    "ROUTES",
    "SIXTEEN_BITS",
    "SLOWER",
    "WIDE_FLOATS",
    "RefusedError",
    "Route",
    "is_plain",
    "of_floats",
    "route",
    "widened_floats",
]

# On the CPU a call is ours where PyTorch's own kernel is not faster; with this it always is, for the bits of a GPU.
CPU_ALWAYS = os.environ.get("PYBARACUDA_TORCH_CPU") == "always"

# Where PyTorch's own kernel is faster. A compiled program calls that kernel, too: a compiler's own code would have
# other bits than the eager program.
ANOTHER_AXIS, BY_ELEMENT, SIXTEEN_BITS, CHANNELS_LAST, FEW_ELEMENTS = SLOWER = (
    "another axis than the first on the CPU",
    "an index that differs by element on the CPU",
    "16 bits on the CPU",
    "channels last",
    "few elements on the CPU",
)
# There, too; sums of integers are the same in any order.
NARROW_INTEGERS = "integers of fewer than 32 bits on the CPU"

# What the dispatcher calls a kind of device.
KEYS = {"cpu": "CPU", "cuda": "CUDA"}

# Every route, by the operator's name.
ROUTES: dict[str, Route] = {}

_FLOATS = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
# In which dtype floats of 16 bits are added up, and coordinates of 16 bits are read.
WIDE_FLOATS = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


class RefusedError(Exception):
    """A run found out on its way, and before it wrote anything, that the call is PyTorch's; the text says why."""


@dataclass(frozen=True)
class Route:
    """How one operator of PyTorch comes to a kernel of ours.

    Attributes
    ----------
    operator : str
        With its namespace, and its overload where that has a name: ``"aten::scatter_reduce.two"``.
    group : str
        What ``install(ops=...)`` calls it; operators that belong together share one.
    refusal : callable
        Takes the operator's arguments and says why a call goes to PyTorch's kernel; "" if ours takes it. It looks at
        shapes, dtypes and strides, and at values only where a tensor has memory, so that a compiler can ask, too.
    run : callable
        Takes the same arguments and answers as the operator does; or raises RefusedError, where what refuses a call is
        in its tensors and nobody is to look twice.
    conditions : str
        The calls that ours takes, for a reader.
    devices : sequence of str
        Where: on a CPU only if ours is not slower there.
    compiled : bool
        Whether compiled programs take it, too. What only moves elements has the same bits in a compiler's own code.
    whole : bool
        Whether compilers have no code of their own for the operator: a compiled program then calls it, and so ours.
    composite : (str, callable), optional
        An overload that calls the operator, and that compilers take apart before they would see it; and what answers
        in its place by operators of ours, or NotImplemented.
    refused_by_tracer : bool
        Whether PyTorch's own function of shapes, which compilers ask, refuses it under the deterministic flag.
    level : {"", "SparseCsr", "Autograd"}
        Which kernel it stands in for, as PyTorch's dispatcher names them: that of dense tensors, that of calls which
        have a compressed sparse one as well, or, of an operator that PyTorch composes of others, its composition, which
        autograd sees. The operator's other kernels stay PyTorch's.
    """

    operator: str
    group: str
    refusal: Callable[..., str]
    run: Callable[..., Any] = field(repr=False)
    conditions: str
    devices: Sequence[str]
    compiled: bool
    whole: bool
    composite: tuple[str, Callable[..., Any]] | None = field(default=None, repr=False)
    refused_by_tracer: bool = False
    level: str = ""

    @property
    def namespace(self) -> str:
        """What the dispatcher's library is called."""
        return self.operator.partition("::")[0]

    def key(self, device: str) -> str:
        """Where its kernel for a kind of device stands in the dispatcher's table."""
        return self.level + KEYS[device]

    @property
    def name(self) -> str:
        """The operator without its namespace, as the dispatcher's library wants it."""
        return self.operator.partition("::")[2]


def route(
    operator: str,
    refusal: Callable[..., str],
    conditions: str,
    *,
    group: str | None = None,
    devices: Sequence[str] = ("cpu", "cuda"),
    compiled: bool = True,
    whole: bool = False,
    composite: tuple[str, Callable[..., Any]] | None = None,
    refused_by_tracer: bool = False,
    level: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated function as the run of an operator's route."""

    def enter(run: Callable[..., Any]) -> Callable[..., Any]:
        name = operator.partition("::")[2].partition(".")[0]
        places = ("cpu", "cuda") if CPU_ALWAYS else tuple(devices)
        ROUTES[operator] = Route(
            operator,
            group or name,
            refusal,
            run,
            conditions,
            places,
            compiled,
            whole,
            composite,
            refused_by_tracer,
            level,
        )
        return run

    return enter


def of_floats(*tensors: Any) -> str:
    """Say what is wrong with the dtypes of tensors that must have one of the four floats, and the same."""
    dtype = tensors[0].dtype
    if dtype not in _FLOATS:
        return f"dtype {dtype}"
    return "" if all(tensor.dtype == dtype for tensor in tensors) else "operands of several dtypes"


def is_plain(*tensors: Any) -> bool:
    """Tell whether tensors are memory: autograd's level also sees the stand-ins of compilers and transforms."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return all(type(tensor) is torch.Tensor and not wrapped(tensor) for tensor in tensors)


def widened_floats(tensor: Any) -> Any:
    """Answer floats of 16 bits in float32, which is exact, and other tensors as they are."""
    dtype = WIDE_FLOATS.get(tensor.dtype)
    return tensor if dtype is None else tensor.to(dtype)
