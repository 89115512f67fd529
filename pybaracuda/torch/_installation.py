# SPDX-License-Identifier: Apache-2.0
"""Puts routes in place of PyTorch's kernels and takes them away again; counts what goes where."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import torch

from .._errors import BaracudaError
from . import _diversions, _native
from ._compile import route_compiler
from ._deterministic import Deterministic
from ._imports import forget_import, when_imported
from ._route import KEYS, ROUTES, RefusedError, Route
from ._untraced import untraced

__all__ = ["Installation", "Line", "install", "lines", "uninstall"]

# Imported after torchvision has brought its operators.
_LATE = "torchvision.ops.roi_align"
# One thread at a time changes what is installed.
_lock = threading.RLock()


class Line(NamedTuple):
    """What became of the calls of one operator on one kind of device since the process began."""

    operator: str
    device: str
    calls: int
    ours: int
    # How many calls went to PyTorch's kernel, by the reason.
    fallbacks: dict[str, int]


class _Count:
    """Calls of one operator on one kind of device."""

    def __init__(self) -> None:
        self.ours = 0
        self.fallbacks: Counter[str] = Counter()


_counts: dict[tuple[str, str], _Count] = {}


class _Override:
    """One kernel in the dispatcher's table, with the one that was there before.

    PyTorch reads its table without a lock, and a kernel that is taken out while another thread calls it ends the
    process. So one that nobody holds stays and hands every call on, until no other thread can be in it.
    """

    def __init__(self, route: Route, device: str) -> None:
        self._holders = self._python_holders = 0
        self._route = route
        self._device = device
        self._key = route.key(device)
        self._count = _counts.setdefault((route.operator, device), _Count())
        self._place()

    def _place(self) -> None:
        self._original = torch.library.get_kernel(self._route.operator, self._key)
        kernel = self._kernel()
        # A library for each kernel, since one can only be taken away as a whole.
        library = torch.library.Library(self._route.namespace, "IMPL", self._key)
        options: dict[str, Any] = {"with_keyset": True}
        if "allow_override" in inspect.signature(library.impl).parameters:
            options["allow_override"] = True
        with warnings.catch_warnings():
            # That a kernel is replaced is what the user asked for.
            warnings.filterwarnings("ignore", message=r"(?s).*Overriding a previously registered kernel")
            library.impl(self._route.name, kernel, self._key, **options)
        self._library = library
        self._native = _native.entered(self._route.operator, self._device, kernel)
        self._tell_native()

    @property
    def is_held(self) -> bool:
        """Whether an installation wants it."""
        return self._holders > 0

    def hold(self, native: bool) -> None:
        """Note an installation that wants it, and whether its calls may go without Python."""
        self._holders += 1
        self._python_holders += not native
        self._tell_native()

    def release(self, native: bool) -> None:
        """Forget an installation that held it so."""
        self._holders -= 1
        self._python_holders -= not native
        self._tell_native()

    def _tell_native(self) -> None:
        if self._native is not None:
            self._native.hold(self._holders > 0 and not self._python_holders)

    def remove(self) -> None:
        # The last that came first.
        if self._native is not None:
            self._native.remove()
        self._library._destroy()

    def _kernel(self) -> Callable[..., Any]:
        route, count = self._route, self._count
        refusal, run = route.refusal, route.run

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._holders:
                return self._call_original(keys, args, kwargs)
            reason, answer = refusal(*args, **kwargs), None
            try:
                if not reason:
                    answer = run(*args, **kwargs)
            except RefusedError as refused:
                reason = str(refused)
            except BaracudaError as error:
                raise RuntimeError(
                    f"pybaracuda could not do {route.operator}: {error}. "
                    f'pybaracuda.torch.install(exclude=["{route.group}"]) leaves this operator to PyTorch.'
                ) from error
            if reason:
                count.fallbacks[reason] += 1
                return self._call_original(keys, args, kwargs)
            count.ours += 1
            if self._native is not None:
                self._native.hand_over()
            return answer

        return untraced(kernel)

    def _call_original(self, keys: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return self._original.call_boxed(keys, *args, **kwargs)
        except RuntimeError as error:
            if "SafeKernelFunction" not in str(error):
                raise
        # Somebody installed below us and went away: what is there now is found anew.
        with _lock:
            # The running call returns to the kernel that is taken out: PyTorch's object for it goes with the last
            # reference.
            _taken_out.append(torch.library.get_kernel(self._route.operator, self._key))
            self.remove()
            self._place()
        return self._original.call_boxed(keys, *args, **kwargs)


_active: dict[tuple[str, str], _Override] = {}
# Kernels that calls may still return to: few, since others rarely go away below ours.
_taken_out: list[Any] = []
_installations: list[Installation] = []


class Installation:
    """What one call of :func:`install` put in place; as a context manager it takes it away at the end.

    PyTorch's table of kernels is one for the whole process: other threads see an installation, too, and a backward pass
    that runs after its end uses PyTorch's kernels.
    """

    def __init__(self, routes: Iterable[tuple[Route, str]], deterministic: bool, compile: bool, native: bool) -> None:
        self._routes = tuple(routes)
        self._native = native
        self.keys: list[tuple[str, str]] = []
        self._deterministic = Deterministic() if deterministic else None
        self.compiles = compile
        self._removed = False
        with _lock:
            try:
                self.take_over()
                if self._deterministic is not None:
                    self._deterministic.begin()
                _installations.append(self)
                when_imported(_LATE, _complete)
                _tell_compiler()
            except BaseException:
                self._remove()
                raise

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators that it takes over."""
        return tuple(sorted({operator for operator, _ in self.keys}))

    def take_over(self) -> None:
        """Put in place what is not yet, of the operators that there are."""
        for route, device in self._routes:
            key = (route.operator, device)
            if key not in self.keys and _exists(route, device):
                if key not in _active:
                    _active[key] = _Override(route, device)
                _active[key].hold(self._native)
                self.keys.append(key)
        _diversions.intercept({route.group for route, _ in self._routes}, _account)

    def remove(self) -> None:
        """Take it away; what another installation holds stays. A second time does nothing."""
        with _lock:
            if not self._removed:
                self._remove()

    def _remove(self) -> None:
        self._removed = True
        for key in reversed(self.keys):
            _active[key].release(self._native)
        _clear()
        if self in _installations:
            _installations.remove(self)
            if self._deterministic is not None:
                self._deterministic.end()
        _tell_compiler()
        if not _installations:
            forget_import(_LATE)
            _diversions.restore()


def _account(function: str, device: str) -> _Count | None:
    """Count calls of a function that stands before torchvision's roi_align, where that is taken over."""
    override = _active.get(("torchvision::roi_align", device))
    return _counts.setdefault((function, device), _Count()) if override is not None and override.is_held else None


def _complete() -> None:
    """Take over what torchvision has brought since."""
    with _lock:
        for each in _installations:
            each.take_over()
        _tell_compiler()


def _clear() -> None:
    """Take out what nobody holds, the last that came first, if this is the only thread of Python's."""
    if threading.active_count() == 1:
        for key, override in reversed(list(_active.items())):
            if not override.is_held:
                override.remove()
                del _active[key]


def _tell_compiler() -> None:
    operators = {operator for each in _installations if each.compiles for operator, _ in each.keys}
    route_compiler([route for route in ROUTES.values() if route.operator in operators])


def _chosen(ops: Iterable[str] | None, exclude: Iterable[str], devices: Iterable[str]) -> list[tuple[Route, str]]:
    groups = {route.group for route in ROUTES.values()}
    wanted = groups if ops is None else set([ops] if isinstance(ops, str) else ops)
    unwanted = set([exclude] if isinstance(exclude, str) else exclude)
    unknown = sorted((wanted | unwanted) - groups)
    if unknown:
        raise ValueError(f"there is no operator {', '.join(unknown)}; wanted some of {', '.join(sorted(groups))}")
    places = [devices] if isinstance(devices, str) else list(devices)
    for place in places:
        if place not in KEYS:
            raise ValueError(f"devices: there is none called {place!r}; wanted 'cpu' or 'cuda'")
    return [
        (route, place)
        for route in ROUTES.values()
        if route.group in wanted - unwanted
        for place in places
        if place in route.devices
    ]


def _exists(route: Route, device: str) -> bool:
    """Tell whether this process has the operator: torchvision's come with torchvision, CUDA's with a build for CUDA."""
    if not torch._C._dispatch_has_kernel(route.operator):
        return False
    # A kernel for any layout answers for sparse ones, too, and is not what a route of theirs stands in for.
    has_kernel = (
        torch._C._dispatch_has_kernel_for_dispatch_key
        if route.level == "SparseCsr"
        else torch._C._dispatch_has_computed_kernel_for_dispatch_key
    )
    return bool(has_kernel(route.operator, route.key(device)))


def install(
    ops: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    devices: Iterable[str] = ("cuda", "cpu"),
    compile: bool = True,
    *,
    deterministic: bool = False,
    native: bool = True,
) -> Installation:
    """Run PyTorch's operators on this library's kernels, where these can do the call.

    Parameters
    ----------
    ops : iterable of str, optional
        Names as ``pybaracuda.torch.operators()`` lists them; all by default.
    exclude : iterable of str
        Names to leave to PyTorch.
    devices : iterable of {"cuda", "cpu"}
    compile : bool
        Whether programs that torch.compile compiles from now on do the same. Compiled code is forgotten when an
        installation comes or goes.
    deterministic : bool
        Also sets ``torch.use_deterministic_algorithms(True)``, ``torch.backends.cudnn.benchmark = False`` and, where it
        is not set, ``CUBLAS_WORKSPACE_CONFIG``; :meth:`Installation.remove` sets them back.
    native : bool
        Whether calls may reach the C library without Python, where this PyTorch (2.10 or newer) and the operator allow
        it: the same results in less of the host's time. False is for who suspects that path.

    Returns
    -------
    Installation
        A context manager, too.

    Raises
    ------
    ValueError
        If a name is unknown.
    RuntimeError
        If this PyTorch is too old.

    Notes
    -----
    Only the kernels change: autograd, second derivatives, torch.func, autocast and export stay PyTorch's, and what a
    kernel of ours does not take goes to the one that was there, with its own errors. May be called from any thread and
    more than once; each installation is taken away by itself. The first one belongs before threads that compute:
    PyTorch changes its table of kernels without a lock.
    """
    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError(f"pybaracuda.torch.install needs PyTorch 2.9 or newer; this is {torch.__version__}")
    return Installation(_chosen(ops, exclude, devices), deterministic, compile, native)


def uninstall() -> None:
    """Take every installation away. Without one it does nothing."""
    with _lock:
        for installation in reversed(_installations.copy()):
            installation.remove()
        _clear()


def lines() -> list[Line]:
    """Answer what became of the calls so far, an operator and kind of device each."""
    found = []
    for (operator, device), count in sorted(_counts.items()):
        fallbacks = dict(count.fallbacks.most_common())
        ours = count.ours + _native.taken(operator, device)
        found.append(Line(operator, device, ours + sum(fallbacks.values()), ours, fallbacks))
    return found
