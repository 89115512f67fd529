# SPDX-License-Identifier: Apache-2.0
"""The calling thread's flush-to-zero mode, which a library's call must set aside and give back; x86 alone has one."""

from __future__ import annotations

import ctypes
import platform
from typing import Any

# glibc's fenv_t on x86-64: seven words of the old unit, then MXCSR.
_BYTES, _MXCSR = 32, 28
_FLUSH_AND_DENORMALS_ARE_ZERO = 0x8040
_EXCEPTION_FLAGS = 0x3F


class FloatMode:
    """Calls functions in flush-to-zero mode."""

    def __init__(self) -> None:
        self.exists = platform.machine() == "x86_64"
        if not self.exists:
            return
        libm = ctypes.CDLL("libm.so.6")
        self._get, self._set = libm.fegetenv, libm.fesetenv
        self._usual, self._flushing, self._found = ((ctypes.c_char * _BYTES)() for _ in range(3))
        self._get(self._usual)
        self._flushing.raw = self._usual.raw
        word = ctypes.c_uint32.from_buffer(self._flushing, _MXCSR)
        word.value |= _FLUSH_AND_DENORMALS_ARE_ZERO
        self._wanted = word.value & ~_EXCEPTION_FLAGS
        self._word = ctypes.c_uint32.from_buffer(self._found, _MXCSR)

    def call(self, function: Any, *arguments: Any) -> tuple[int, bool]:
        """What the function answers, and whether it left the mode as it was."""
        self._set(self._flushing)
        status = function(*arguments)
        self._get(self._found)
        self._set(self._usual)
        return int(status), self._word.value & ~_EXCEPTION_FLAGS == self._wanted
