# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in long calls: what a signal handler raises while the CPU library works ends the call and is raised by it.

Python runs signal handlers on the main thread alone, and only between bytecodes, of which there are none while a C
function runs. So that thread gives the library a check to ask during long calls (0.1 s and more): it goes on with a
generator, which is where pending handlers run.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import threading
from _thread import get_ident
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["take_exception", "watch_signals"]

_caught: BaseException | None = None
_watching_thread: int | None = None


def _go_on(answer: int) -> Iterator[int]:
    """Yield the first answer, then 0 until a signal handler raises; its exception is kept, and there is no more."""
    # ctypes prints what a callback raises and drops it. A generator goes on inside its own try block, so that nothing
    # is raised outside. Between the exception and the end is nothing after which the interpreter looks for signals.
    global _caught
    try:
        while True:
            yield answer
            answer = 0
    except GeneratorExit:
        raise
    except BaseException as error:
        _caught = error


# 0 for as long as no handler raises, then one 1, and so on. Made of C code but for the generators.
_answers = itertools.chain.from_iterable(map(_go_on, itertools.chain((0,), itertools.repeat(1))))
next(_answers)
# Never freed, since the library keeps their addresses.
_next = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.py_object)(next)


def watch_signals(set_interrupt_check: Callable[[Any, Any], None]) -> None:
    """Let the library's long calls on this thread end when a signal handler raises, if handlers run on this thread."""
    global _watching_thread
    if _watching_thread != get_ident() and threading.current_thread() is threading.main_thread():
        set_interrupt_check(_next, id(_answers))
        if _watching_thread is None:
            # Not into an interpreter that is being taken down.
            atexit.register(set_interrupt_check, None, None)
        _watching_thread = get_ident()


def take_exception() -> BaseException | None:
    """Answer what ended the call that was interrupted last, once. For the thread that made the call."""
    global _caught
    if _watching_thread != get_ident():
        return None
    caught, _caught = _caught, None
    return caught
