# SPDX-License-Identifier: Apache-2.0
"""The kernels of libbaracuda_torch.so, above the routes in PyTorch's table: they reach the C library without Python.

What such a kernel does not take, and every call before the C library of its device is loaded, goes to the route, which
converts, counts and falls back.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

import torch

from .._library import load
from ._route import KEYS
from ._untraced import untraced

__all__ = [
    "SIGNATURES",
    "Entry",
    "entered",
    "operators",
    "places",
    "problem",
    "put_in_lines",
    "put_last",
    "screen",
    "take_dropped",
    "taken",
]

_PATH = Path(__file__).resolve().parent.parent / "lib" / "libbaracuda_torch.so"
_DEVICES = ("cpu", "cuda")
_DTYPES = ("f32", "f64", "f16", "bf16")
_NAMESPACE = "pybaracuda_route"
# What makes a process go without: for who suspects these kernels.
_SWITCH = "PYBARACUDA_TORCH_NATIVE"

# What native/pytorch/bridge.h declares, without the prefix: result and arguments.
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "start": (ctypes.c_char_p, []),
    "operators": (ctypes.c_int32, []),
    "name": (ctypes.c_char_p, [ctypes.c_int32]),
    "symbol": (ctypes.c_char_p, [ctypes.c_int32, ctypes.c_int32]),
    "set_kernel": (None, [*[ctypes.c_int32] * 4, ctypes.c_void_p, ctypes.c_void_p]),
    "enter": (ctypes.c_void_p, [ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p]),
    "remove": (None, [ctypes.c_void_p]),
    "hold": (None, [ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]),
    "calls": (ctypes.c_int64, [ctypes.c_int32, ctypes.c_int32]),
    "raise": (None, [ctypes.py_object, ctypes.c_char_p]),
    "screen": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p],
    ),
    "place": (
        ctypes.c_int32,
        [ctypes.c_void_p, *[ctypes.c_int64] * 4, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p],
    ),
    "put_last": (
        ctypes.c_int32,
        [
            *[ctypes.c_void_p, *[ctypes.c_int64] * 4, ctypes.c_int32, ctypes.c_int32],
            *[*[ctypes.c_void_p] * 3, ctypes.c_int32, ctypes.c_void_p],
        ],
    ),
    "put_in_lines": (
        ctypes.c_int32,
        [
            *[ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_int32],
            *[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p],
        ],
    ),
    "has_counted": (ctypes.c_int32, [ctypes.c_int32]),
    "take_dropped": (ctypes.c_int64, [ctypes.c_int32]),
}


class _Bridge:
    """The loaded library: its functions by their names without the prefix, and its operators' numbers."""

    def __init__(self) -> None:
        native = ctypes.CDLL(str(_PATH), mode=ctypes.RTLD_LOCAL)
        self._functions: dict[str, Any] = {}
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(native, f"baracuda_torch_{name}")
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function
        missing = self.start()
        if missing is not None:
            raise OSError(
                f"calls go through Python, since torch {torch.__version__} has no {missing.decode()}; 2.10 or newer has"
            )
        # Types of exceptions that were raised: the library keeps their addresses.
        self.raised: set[type[BaseException]] = set()
        self.numbers = {self.name(number).decode(): number for number in range(self.operators())}

    def __getattr__(self, name: str) -> Any:
        return self._functions[name]


@cache
def _found() -> _Bridge | str:
    """Answer the library, or why there is none: then the routes alone serve."""
    if os.environ.get(_SWITCH) == "0":
        return f"{_SWITCH}=0"
    try:
        return _Bridge()
    except (OSError, AttributeError) as error:
        return str(error)


def problem() -> str:
    """Say why calls do not go without Python; "" if they do."""
    found = _found()
    return found if isinstance(found, str) else ""


def operators() -> tuple[str, ...]:
    """Answer the operators that have such a kernel."""
    bridge = _found()
    return () if isinstance(bridge, str) else tuple(bridge.numbers)


def taken(operator: str, device: str) -> int:
    """Answer how many calls of an operator on a kind of device went without Python."""
    bridge = _found()
    if isinstance(bridge, str) or operator not in bridge.numbers:
        return 0
    return int(bridge.calls(bridge.numbers[operator], _DEVICES.index(device)))


def _bridge_for(index: Any, *others: Any) -> _Bridge | None:
    """Answer the library, if its steps take an index, which is of int64 on a GPU, and no tensor is a subclass's."""
    bridge = _found()
    if isinstance(bridge, str) or any(type(each) is not torch.Tensor for each in (index, *others)):
        return None
    return bridge if index.device.type == "cuda" and index.dtype == torch.int64 else None


def _enqueued(step: Any, device: Any, *arguments: Any) -> bool:
    """Enqueue a step on the current stream of a GPU; False if nothing was launched."""
    with torch.cuda.device(device):
        return bool(step(*arguments, device.index, torch.cuda.current_stream().cuda_stream))


def screen(ids: Any, extent: int) -> bool:
    """Count the entries of an index on a GPU that name no row of `extent`, reading it once; False if nobody did.

    A replay of a CUDA graph counts, too.
    """
    bridge = _found()
    if isinstance(bridge, str) or ids.device.type != "cuda" or ids.dtype != torch.int64 or not ids.is_contiguous():
        return False
    return _enqueued(bridge.screen, ids.device, ids.data_ptr(), ids.numel(), extent)


def places(index: Any, rows: int, columns: int, extent: int, wraps: bool) -> Any | None:
    """Answer which element of a tensor each entry of an index along one axis names, -1 for none; None if not here.

    What names none is counted; a replay of a CUDA graph counts, too.

    Parameters
    ----------
    index : Tensor, [..., rows, columns]
    columns : int
        Elements of the axes behind the indexed one, which the tensor, of shape [..., extent, columns], has, too.
    wraps : bool
        Whether a negative entry counts from the end.

    Returns
    -------
    Tensor, [entries], int32
    """
    bridge = _bridge_for(index)
    if bridge is None or index.numel() // (rows * columns) * extent * columns >= 2**31:
        return None
    index = index.contiguous()
    found = torch.empty(index.numel(), dtype=torch.int32, device=index.device)
    sizes = (index.numel(), rows, columns, extent, int(wraps))
    return found if _enqueued(bridge.place, index.device, index.data_ptr(), *sizes, found.data_ptr()) else None


def put_last(self: Any, axis: int, index: Any, source: Any, wraps: bool) -> bool:
    """Put elements into a dense tensor where an index along an axis says, in place; False if that was not done here.

    Of several for one place the last stays. What names none is dropped and counted, by a replay of a CUDA graph, too.

    Parameters
    ----------
    self : Tensor
        Dense in row-major order, of elements of up to 4 bytes.
    index, source : Tensor
        Of the tensor's shape but for the axis; of half as many entries as it has elements or more, since each element's
        winner is looked at.
    wraps : bool
        Whether a negative entry counts from the end.
    """
    bridge = _bridge_for(index, self, source)
    if bridge is None or self.element_size() > 4:
        return False
    elements, entries = self.numel(), index.numel()
    if max(elements, entries) >= 2**31 or 2 * entries < elements:
        return False
    index, source = index.contiguous(), source.contiguous()
    winners = torch.empty(elements, dtype=torch.int64, device=index.device)
    sizes = (entries, index.shape[axis], prod(self.shape[axis + 1 :]), self.shape[axis])
    addresses = (source.data_ptr(), self.data_ptr(), winners.data_ptr())
    options = (int(wraps), self.element_size())
    return _enqueued(bridge.put_last, index.device, index.data_ptr(), *sizes, *options, *addresses)


def put_in_lines(self: Any, axis: int, index: Any, source: Any) -> bool:
    """Put one element into each line of a dense tensor along an axis, where it lies; False if that was not done here.

    What names no element is dropped and counted; a replay of a CUDA graph counts, too.

    Parameters
    ----------
    self : Tensor
        Dense in row-major order.
    index, source : Tensor
        Of the tensor's shape, with one element along the axis.
    """
    bridge = _bridge_for(index, self, source)
    if bridge is None:
        return False
    index, source = index.contiguous(), source.contiguous()
    sizes = (index.numel(), prod(self.shape[axis + 1 :]), self.shape[axis], self.element_size())
    addresses = (source.data_ptr(), self.data_ptr())
    return _enqueued(bridge.put_in_lines, index.device, index.data_ptr(), *sizes, *addresses)


def take_dropped() -> dict[int, int]:
    """Answer how many entries of indices were dropped without Python since this was last asked, by GPU; wait for them.

    A replay of a CUDA graph counts, too.
    """
    bridge = _found()
    found: dict[int, int] = {}
    if isinstance(bridge, str):
        return found
    for index in range(torch.cuda.device_count()):
        if bridge.has_counted(index):
            with torch.cuda.device(index):
                torch.cuda.synchronize()
                found[index] = int(bridge.take_dropped(index))
            if found[index] < 0:
                raise RuntimeError(f"the count of indices that were dropped on cuda:{index} could not be read")
    return found


# By operator and device: the route's kernel as it is now. PyTorch keeps what is defined for the life of the process.
_routes: dict[tuple[str, str], Callable[..., Any]] = {}
_defined: dict[str, Any] = {}
_handed_over: set[tuple[str, str]] = set()
_lock = threading.Lock()


def _fallback_name(operator: str) -> str:
    return operator.replace("::", "_").replace(".", "_")


def _schema(operator: str) -> Any:
    name, _, overload = operator.partition(".")
    (found,) = (each for each in torch._C._jit_get_schemas_for_operator(name) if each.overload_name == overload)
    return found


def _define_fallback(bridge: _Bridge, operator: str, device: str) -> str:
    """Make the operator that a call goes to which the kernel does not take: the route's, with the same arguments."""
    name = _fallback_name(operator)
    schema = _schema(operator)
    results = len(schema.returns)
    if operator not in _defined:
        library = torch.library.Library(_NAMESPACE, "FRAGMENT")
        library.define(name + str(schema).removeprefix(operator))
        # It is called below autograd, by a kernel.
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        _defined[operator] = library
    if (operator, device) not in _routes:

        def fall_back(keys: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return _routes[operator, device](keys, *args, **kwargs)
            except BaseException as error:
                # PyTorch's interface for C would drop its type and its text, and print it: the library raises it.
                bridge.raised.add(type(error))
                getattr(bridge, "raise")(type(error), str(error).encode(errors="replace"))
                return args[0] if results == 1 else (args[0],) * results

        _defined[operator].impl(name, untraced(fall_back), KEYS[device], with_keyset=True)
    return f"{_NAMESPACE}::{name}"


class Entry:
    """The kernel of one operator on one kind of device in PyTorch's table, above its route."""

    def __init__(self, bridge: _Bridge, operator: str, device: str, route: Callable[..., Any]) -> None:
        self._bridge = bridge
        self._key = (operator, device)
        self._place = (bridge.numbers[operator], _DEVICES.index(device))
        with _lock:
            name = _define_fallback(bridge, operator, device)
            _routes[self._key] = route
        self._entry = bridge.enter(*self._place, name.encode())

    def hold(self, is_held: bool) -> None:
        """Say whether the kernel takes calls, or hands all on."""
        self._bridge.hold(*self._place, is_held)

    def remove(self) -> None:
        """Take the kernel out of the table."""
        if self._entry is not None:
            self._bridge.remove(self._entry)
            self._entry = None

    def hand_over(self) -> None:
        """Give the kernel its C functions; called when the C library has done a call, so that it is loaded."""
        if self._key in _handed_over:
            return
        operator, device = self._place
        native = load(self._key[1]).native
        for place in count():
            symbol = self._bridge.symbol(operator, place)
            if symbol is None:
                break
            for number, dtype in enumerate(_DTYPES):
                names = (f"{symbol.decode() % dtype}_{verb}" for verb in ("run", "workspace_size"))
                self._bridge.set_kernel(operator, place, device, number, *(_address(native, name) for name in names))
        _handed_over.add(self._key)


def entered(operator: str, device: str, route: Callable[..., Any]) -> Entry | None:
    """Enter an operator's kernel, whose other calls go to a route; None if there is no such kernel."""
    bridge = _found()
    if isinstance(bridge, str) or operator not in bridge.numbers:
        return None
    return Entry(bridge, operator, device, route)


def _address(native: ctypes.CDLL, symbol: str) -> int | None:
    """Answer where a C function is, None if there is none of the dtype."""
    function = getattr(native, symbol, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value
