# SPDX-License-Identifier: Apache-2.0
"""Things to do as soon as a module has been imported, by whom and whenever that may be; now if it has been already."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

__all__ = ["forget_import", "when_imported"]


class _Loader(importlib.abc.Loader):
    """A module's own loader, and then the actions."""

    def __init__(self, loader: Any, actions: list[Callable[[], None]]) -> None:
        self._loader = loader
        self._actions = actions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for action in self._actions.copy():
            action()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as everybody does, and gives it our loader."""

    def __init__(self) -> None:
        # Several installations may wait for one module.
        self.actions: dict[str, list[Callable[[], None]]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        actions = self.actions.get(name)
        if not actions:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, actions)
        return spec


_finder = _Finder()


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Do it when the module is imported, or now."""
    if name in sys.modules:
        action()
        return
    _finder.actions.setdefault(name, []).append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def forget_import(name: str) -> None:
    """Leave the module's import alone again."""
    _finder.actions.pop(name, None)
    if not _finder.actions and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
