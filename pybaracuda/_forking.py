# SPDX-License-Identifier: Apache-2.0
"""Forked children that work, whatever the parent's other threads were doing: what a fork waits for.

A child has the locks of its parent but not the threads that would release them, and CPython makes none of its import
locks anew. So a fork waits, as the C library's own does for its allocator, until no other thread is in the midst of
importing this package or of using a part of it for the first time. Imported before everything else; nothing else of the
package is imported here.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock, get_ident

__all__ = ["GUARDS_FORKS", "first_use"]

_PACKAGE = __name__.partition(".")[0]
# Seconds. Only a thread that forks while it imports a framework, for which another thread's first use waits, can wait
# so long: then the child may lack what that use was about to load, and loads it itself.
_PATIENCE = 10.0

_lock = RLock()
_holders: set[int] = set()


def first_use() -> RLock:
    """Answer the lock under which the package loads libraries and imports its own or a framework's modules.

    Not to be kept: a forked child has another one.
    """
    return _lock


def _wait_for_imports() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGE) and getattr(getattr(module, "__spec__", None), "_initializing", False):
            try:
                # Waits for the thread that imports it, unless that is this thread or waits for this thread.
                __import__(name)
            except ImportError:
                continue  # it is the importing thread's to say


def _before_fork() -> None:
    _wait_for_imports()
    if _lock.acquire(timeout=_PATIENCE):
        _holders.add(get_ident())


def _after_fork_in_parent() -> None:
    if get_ident() in _holders:
        _holders.remove(get_ident())
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock = RLock()
    _holders.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
# Says that it is done: what forks earlier finds Python itself looking for the package.
GUARDS_FORKS = True
